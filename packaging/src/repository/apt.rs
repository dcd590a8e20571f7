//! An apt repository in the usual layout, which works through `file://` and `http://` alike:
//!
//! ```text
//! key.asc                                     the public key
//! pool/COMPONENT/NAME_VERSION_ARCH.deb        the packages
//! dists/SUITE/InRelease, Release, Release.gpg the signed list of indexes
//! dists/SUITE/COMPONENT/binary-ARCH/Packages  the indexes, also as .gz
//! ```
//!
//! Every architecture of [`Arch::MACHINES`] has an index, empty or not: apt complains about one that is missing.

use std::fmt::Write as _;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};

use crate::arch::Arch;
use crate::deb;
use crate::digest;
use crate::key::SigningKey;
use crate::repository::KEY_FILE;

/// What the `Release` file says about the repository.
#[derive(Debug, Clone)]
pub struct AptOptions {
    /// Who publishes it.
    pub origin: String,
    /// What it is called; pinning by label uses it.
    pub label: String,
    /// The suite, the name of the directory below `dists/`.
    pub suite: String,
    /// The code name, the suite's name if not given.
    pub codename: Option<String>,
    /// The only component.
    pub component: String,
    /// When the index was made, in seconds since 1970.
    pub date: i64,
    /// After which time apt refuses it.
    pub valid_until: Option<i64>,
}

impl AptOptions {
    /// The suite `stable` with the component `main`.
    pub fn new(origin: impl Into<String>, date: i64) -> Self {
        let origin = origin.into();
        Self {
            label: origin.clone(),
            origin,
            suite: "stable".to_owned(),
            codename: None,
            component: "main".to_owned(),
            date,
            valid_until: None,
        }
    }
}

/// Writes the repository that holds exactly `packages` into `dir`. Indexes of an earlier call are replaced, and
/// packages that it no longer holds are removed from the pool.
pub fn write(dir: &Path, packages: &[PathBuf], options: &AptOptions, key: &SigningKey) -> Result<()> {
    let pool = Path::new("pool").join(&options.component);
    fill(&dir.join(&pool), packages)?;
    let mut records = packages.iter().map(|path| Record::read(path, &pool)).collect::<Result<Vec<_>>>()?;
    records.sort_by(|a, b| (&a.name, &a.file).cmp(&(&b.name, &b.file)));

    let dist = dir.join("dists").join(&options.suite);
    let mut indexes = Vec::new();
    for arch in Arch::MACHINES {
        let text: String = records
            .iter()
            .filter(|record| record.arch == arch.deb() || record.arch == Arch::All.deb())
            .map(|record| record.text.as_str())
            .collect();
        let name = format!("{}/binary-{}/Packages", options.component, arch.deb());
        let packed = gzip(text.as_bytes())?;
        for (name, content) in [(name.clone(), text.into_bytes()), (format!("{name}.gz"), packed)] {
            let path = dist.join(&name);
            make_parent(&path)?;
            put(&path, &content)?;
            indexes.push((name, content));
        }
    }
    let release = release(options, &indexes)?;
    put(&dist.join("Release"), release.as_bytes())?;
    put(&dist.join("Release.gpg"), key.sign_detached(release.as_bytes(), options.date)?.as_bytes())?;
    put(&dist.join("InRelease"), key.sign_clear(&release, options.date)?.as_bytes())?;
    put(&dir.join(KEY_FILE), key.public_armored()?.as_bytes())
}

/// One package's paragraph in the index.
struct Record {
    name: String,
    arch: String,
    file: String,
    text: String,
}

impl Record {
    fn read(path: &Path, pool: &Path) -> Result<Self> {
        let content = fs::read(path).with_context(|| format!("reading the package {}", path.display()))?;
        let fields = deb::fields(path)?;
        let file = pool.join(file_name(path)?).to_string_lossy().into_owned();
        let mut text = fields.text.clone();
        writeln!(text, "Filename: {file}")?;
        writeln!(text, "Size: {}", content.len())?;
        writeln!(text, "MD5sum: {}", digest::md5(&content))?;
        writeln!(text, "SHA256: {}\n", digest::sha256(&content))?;
        Ok(Self {
            name: fields.require("Package")?.to_owned(),
            arch: fields.require("Architecture")?.to_owned(),
            file,
            text,
        })
    }
}

/// Makes the pool hold exactly these packages. One that is already there (a hard link, or the same file) stays.
fn fill(pool: &Path, packages: &[PathBuf]) -> Result<()> {
    fs::create_dir_all(pool).with_context(|| format!("creating {}", pool.display()))?;
    let mut wanted = std::collections::BTreeSet::new();
    for package in packages {
        let target = pool.join(file_name(package)?);
        let same = target.exists() && fs::canonicalize(&target)? == fs::canonicalize(package)?;
        if !same {
            let content = fs::read(package).with_context(|| format!("reading the package {}", package.display()))?;
            put(&target, &content)?;
        }
        wanted.insert(target);
    }
    for entry in fs::read_dir(pool).with_context(|| format!("listing {}", pool.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "deb") && !wanted.contains(&path) {
            fs::remove_file(&path).with_context(|| format!("removing the old package {}", path.display()))?;
        }
    }
    Ok(())
}

fn release(options: &AptOptions, indexes: &[(String, Vec<u8>)]) -> Result<String> {
    let mut text = String::new();
    writeln!(text, "Origin: {}", options.origin)?;
    writeln!(text, "Label: {}", options.label)?;
    writeln!(text, "Suite: {}", options.suite)?;
    writeln!(text, "Codename: {}", options.codename.as_ref().unwrap_or(&options.suite))?;
    writeln!(text, "Date: {}", date(options.date)?)?;
    if let Some(until) = options.valid_until {
        writeln!(text, "Valid-Until: {}", date(until)?)?;
    }
    writeln!(text, "Architectures: {}", Arch::MACHINES.map(Arch::deb).join(" "))?;
    writeln!(text, "Components: {}", options.component)?;
    writeln!(text, "Description: {} packages", options.label)?;
    writeln!(text, "SHA256:")?;
    for (name, content) in indexes {
        // The order of the columns matters: checksum, size, name.
        writeln!(text, " {} {:>9} {name}", digest::sha256(content), content.len())?;
    }
    Ok(text)
}

/// A time in the only spelling that apt takes.
fn date(seconds: i64) -> Result<String> {
    let time = jiff::Timestamp::from_second(seconds).with_context(|| format!("{seconds} is no time"))?;
    Ok(time.strftime("%a, %d %b %Y %H:%M:%S UTC").to_string())
}

fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(content).and_then(|()| encoder.finish()).context("compressing an index")
}

pub(super) fn file_name(path: &Path) -> Result<&std::ffi::OsStr> {
    path.file_name().with_context(|| format!("{} names no file", path.display()))
}

fn make_parent(path: &Path) -> Result<()> {
    let parent = path.parent().with_context(|| format!("{} has no parent", path.display()))?;
    fs::create_dir_all(parent).with_context(|| format!("creating {}", parent.display()))
}

/// Replaces a file in one step: a client that reads at this moment sees the old one or the new one.
pub(super) fn put(path: &Path, content: &[u8]) -> Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    fs::write(&part, content)
        .and_then(|()| fs::rename(&part, path))
        .with_context(|| format!("writing {}", path.display()))
}
