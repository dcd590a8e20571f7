//! Writes a `.deb`: an `ar` archive of `debian-binary`, `control.tar.gz` and `data.tar.gz`, in this order.
//!
//! gzip rather than xz: it needs no C library, every dpkg reads it, and the packages are a few megabytes.

mod control;
mod read;
mod tarball;

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::package::Package;
pub use read::{Fields, fields};
use tarball::Tarball;

/// The format's version: what every dpkg since 1995 expects.
const FORMAT: &[u8] = b"2.0\n";

/// Writes `NAME_VERSION_ARCH.deb` into `out_dir` and returns its path.
///
/// The bytes depend on nothing but `package`.
pub fn write(package: &Package, out_dir: &Path) -> Result<PathBuf> {
    let attempt = || format!("building {} {} as a .deb", package.name, package.deb_version());
    check_name(&package.name).with_context(attempt)?;
    let data = data(package).with_context(attempt)?;
    let control = control::tarball(package).with_context(attempt)?;

    let version = package.deb_version();
    // An epoch is part of the version but, by convention, not of the file's name.
    let short_version = version.split_once(':').map_or(version.as_str(), |(_, rest)| rest);
    let path = out_dir.join(format!("{}_{short_version}_{}.deb", package.name, package.arch.deb()));
    let file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    archive(file, package.timestamp, &control, &data).with_context(|| format!("writing {}", path.display()))?;
    Ok(path)
}

fn check_name(name: &str) -> Result<()> {
    let valid = name.len() >= 2
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "+-.".contains(c));
    ensure!(valid, "{name:?} is no Debian package name: lower-case letters, digits, '+', '-' and '.', two at least");
    Ok(())
}

fn archive(file: File, timestamp: i64, control: &[u8], data: &[u8]) -> Result<()> {
    let mut archive = ar::Builder::new(BufWriter::new(file));
    let time = u64::try_from(timestamp).context("the package's time is before 1970")?;
    for (name, content) in [("debian-binary", FORMAT), ("control.tar.gz", control), ("data.tar.gz", data)] {
        let mut header = ar::Header::new(name.as_bytes().to_vec(), content.len() as u64);
        header.set_mtime(time);
        header.set_mode(0o100_644);
        archive.append(&header, content).with_context(|| format!("writing the member {name}"))?;
    }
    archive.into_inner().context("finishing the archive")?.flush().context("flushing the archive")
}

/// The installed tree, each parent directory before what is in it.
fn data(package: &Package) -> Result<Vec<u8>> {
    let entries = package.sorted_entries()?;
    let mut tarball = Tarball::new(package.timestamp)?;
    tarball.root()?;
    let mut parents = std::collections::BTreeSet::new();
    for (path, entry) in &entries {
        for (position, _) in path.match_indices('/').skip(1) {
            let parent = &path[..position];
            // A parent that the package lists itself comes by itself, earlier: sorting puts it there.
            if !entries.contains_key(parent) && parents.insert(parent) {
                tarball.directory(parent)?;
            }
        }
        tarball.entry(entry)?;
    }
    tarball.finish()
}
