//! Signed repositories of dummy (or any) packages, and what a node needs to use them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use packaging::arch::Arch;
use packaging::key::SigningKey;
use packaging::package::Package;
use packaging::repository::apt::AptOptions;
use packaging::repository::{apt, dnf};
use packaging::{deb, rpm};

use crate::Node;
use crate::digest::sha256;

/// When test keys and indexes were made: 2024-01-01, far enough back for any clock.
const EPOCH: i64 = 1_704_067_200;

/// A directory with an apt repository in `apt/` and a dnf repository in `dnf/`, signed with one key.
#[derive(Debug)]
pub struct Repository {
    name: String,
    dir: PathBuf,
    key: SigningKey,
    debs: Vec<PathBuf>,
    rpms: Vec<PathBuf>,
}

impl Repository {
    /// An empty one with a key of its own. `name` is used for file names on nodes.
    pub fn new(name: &str, dir: impl Into<PathBuf>) -> Result<Self> {
        let key = SigningKey::generate(&format!("{name} <{name}@example.org>"), EPOCH, None)?;
        Self::with_key(name, dir, key)
    }

    /// An empty one with this key (for example one that has expired).
    pub fn with_key(name: &str, dir: impl Into<PathBuf>, key: SigningKey) -> Result<Self> {
        let repository = Self { name: name.to_owned(), dir: dir.into(), key, debs: Vec::new(), rpms: Vec::new() };
        repository.index()?;
        Ok(repository)
    }

    /// Adds packages in both formats, keeping what is there, and indexes anew.
    pub fn publish(&mut self, packages: &[Package]) -> Result<()> {
        let built = self.dir.join("built");
        fs::create_dir_all(&built).with_context(|| format!("making {}", built.display()))?;
        for package in packages {
            let context = || format!("building the package {} {}", package.name, package.version);
            self.debs.push(deb::write(package, &built).with_context(context)?);
            self.rpms.push(rpm::write(package, &built, Some(&self.key)).with_context(context)?);
        }
        self.index()
    }

    /// Adds finished packages, told apart by their extension: Debian's own, or nodelet's.
    pub fn publish_files(&mut self, files: &[PathBuf]) -> Result<()> {
        for file in files {
            match file.extension().and_then(|extension| extension.to_str()) {
                Some("rpm") => self.rpms.push(file.clone()),
                _ => self.debs.push(file.clone()),
            }
        }
        self.index()
    }

    /// Takes all versions of a package away.
    pub fn withdraw(&mut self, name: &str) -> Result<()> {
        let other = |path: &PathBuf| {
            let file = path.file_name().unwrap_or_default().to_string_lossy();
            !file.starts_with(&format!("{name}_")) && !file.starts_with(&format!("{name}-"))
        };
        self.debs.retain(other);
        self.rpms.retain(other);
        self.index()
    }

    fn index(&self) -> Result<()> {
        for part in ["apt", "dnf"] {
            let path = self.dir.join(part);
            fs::create_dir_all(&path).with_context(|| format!("making {}", path.display()))?;
        }
        let options = AptOptions::new(&self.name, EPOCH);
        apt::write(&self.dir.join("apt"), &self.debs, &options, &self.key)
            .with_context(|| format!("indexing the apt repository {}", self.name))?;
        dnf::write(&self.dir.join("dnf"), &self.rpms, &self.key)
            .with_context(|| format!("indexing the dnf repository {}", self.name))
    }

    /// Indexes the packages for apt a second time without suites (`Suites: /`), as upstream's Kubernetes repository is.
    pub fn index_flat(&self) -> Result<()> {
        let dir = self.dir.join("apt");
        let index = dir.join(format!("dists/stable/main/binary-{}/Packages", Arch::host()?.deb()));
        let packages = fs::read(&index).with_context(|| format!("reading {}", index.display()))?;
        let time = "Mon, 01 Jan 2024 00:00:00 UTC";
        let sum = sha256(&packages);
        let release = format!("Origin: {}\nDate: {time}\nSHA256:\n {sum} {} Packages\n", self.name, packages.len());
        let signed = self.key.sign_clear(&release, EPOCH)?;
        fs::write(dir.join("Packages"), packages)
            .and_then(|()| fs::write(dir.join("InRelease"), signed))
            .with_context(|| format!("indexing {} without suites", dir.display()))
    }

    /// The directory that holds `apt/` and `dnf/`: bind it into a node, or serve it.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The public key, armored.
    pub fn public_key(&self) -> Result<String> {
        self.key.public_armored()
    }

    /// Where the node must look: the directory bound at `/srv/NAME`.
    pub fn bound_at(&self) -> String {
        format!("/srv/{}", self.name)
    }

    /// Puts the key and a deb822 source into the node. `base` is where the node finds [`Self::dir`]: `file:///srv/x` or
    /// an address of a [`crate::http::FileServer`].
    pub fn add_to_apt(&self, node: &Node, base: &str) -> Result<()> {
        let name = &self.name;
        node.write_file(&format!("/etc/apt/keyrings/{name}.asc"), self.public_key()?, 0o644)?;
        let source = format!(
            "Types: deb\nURIs: {base}/apt\nSuites: stable\nComponents: main\nSigned-By: /etc/apt/keyrings/{name}.asc\n"
        );
        node.write_file(&format!("/etc/apt/sources.list.d/{name}.sources"), source, 0o644)
    }

    /// The same for dnf, which checks both the packages and the index.
    pub fn add_to_dnf(&self, node: &Node, base: &str) -> Result<()> {
        let name = &self.name;
        let key = format!("/etc/pki/rpm-gpg/{name}.asc");
        node.write_file(&key, self.public_key()?, 0o644)?;
        let repo = format!(
            "[{name}]\nname={name}\nbaseurl={base}/dnf\nenabled=1\ngpgcheck=1\nrepo_gpgcheck=1\n\
             gpgkey=file://{key}\nmetadata_expire=0\n"
        );
        node.write_file(&format!("/etc/yum.repos.d/{name}.repo"), repo, 0o644)
    }
}
