//! A dnf repository: signed packages, `repodata/` made by `createrepo_c`, and a signature over `repomd.xml`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};

use super::apt::{file_name, put};
use crate::key::SigningKey;
use crate::repository::KEY_FILE;

/// Writes the repository that holds exactly `packages` into `dir`. Each package is signed with `key`, in place of
/// whatever signature it had. Packages that an earlier call left there are removed.
pub fn write(dir: &Path, packages: &[PathBuf], key: &SigningKey) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("creating {}", dir.display()))?;
    let mut wanted = std::collections::BTreeSet::new();
    let mut newest = key.created();
    for package in packages {
        let target = dir.join(file_name(package)?);
        newest = newest.max(sign(package, &target, key)?);
        wanted.insert(target);
    }
    for entry in fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "rpm") && !wanted.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("removing the old package {}", path.display()))?;
        }
    }
    index(dir, newest)?;
    let metadata = dir.join("repodata/repomd.xml");
    let content = fs::read(&metadata).with_context(|| format!("reading {}", metadata.display()))?;
    put(&dir.join("repodata/repomd.xml.asc"), key.sign_detached(&content, newest)?.as_bytes())?;
    put(&dir.join(KEY_FILE), key.public_armored()?.as_bytes())
}

/// Copies a package with a signature of this key, and returns the time at which it was built.
fn sign(package: &Path, target: &Path, key: &SigningKey) -> Result<i64> {
    let mut parsed =
        ::rpm::Package::open(package).with_context(|| format!("reading the package {}", package.display()))?;
    let built = i64::try_from(parsed.metadata.get_build_time().unwrap_or(0)).unwrap_or(0);
    parsed.clear_signatures().with_context(|| format!("removing signatures from {}", package.display()))?;
    key.sign_rpm(&mut parsed, built).with_context(|| format!("signing {}", package.display()))?;
    parsed.write_file(target).with_context(|| format!("writing {}", target.display()))?;
    // The index records each file's own time too.
    let time = UNIX_EPOCH + Duration::from_secs(u64::try_from(built).unwrap_or(0));
    fs::File::options()
        .write(true)
        .open(target)
        .and_then(|file| file.set_modified(time))
        .with_context(|| format!("setting the time of {}", target.display()))?;
    Ok(built)
}

/// The revision, and with it every time in the metadata, is the newest package's: the index depends on its
/// packages alone.
fn index(dir: &Path, revision: i64) -> Result<()> {
    let output = Command::new("createrepo_c")
        .args(["--quiet", "--simple-md-filenames", "--no-database", "--general-compress-type=gz"])
        .args(["--set-timestamp-to-revision", "--revision", &revision.to_string()])
        .arg(dir)
        .output()
        .context("running createrepo_c (Debian package createrepo-c, Fedora package createrepo_c)")?;
    ensure!(
        output.status.success(),
        "createrepo_c {}: {}",
        dir.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}
