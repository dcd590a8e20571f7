//! Our own packages, put together from the repository: `debian/` and `rpm/` for what each format says,
//! `packaging/files.toml` and its like for what is installed.

mod control;
mod files;
mod rpm_metadata;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

use crate::changelog;
use crate::elf::Program;
use crate::package::{Package, Relations, Scripts};
use crate::{deb, rpm};
use control::Control;
use rpm_metadata::Metadata;

/// A package format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// Debian's.
    Deb,
    /// RPM's.
    Rpm,
}

/// What packages are made of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Product {
    /// The daemon of hosts.
    #[default]
    Nodelet,
    /// kubectl's plugin, for people.
    KubectlNodes,
}

impl Product {
    /// The name of its package.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nodelet => "nodelet",
            Self::KubectlNodes => "kubectl-nodes",
        }
    }

    /// The list of what it installs, below the repository's root.
    fn files(self) -> &'static str {
        match self {
            Self::Nodelet => "packaging/files.toml",
            Self::KubectlNodes => "packaging/files-kubectl-nodes.toml",
        }
    }
}

/// A checkout of this repository, and which of its packages is meant.
#[derive(Debug, Clone)]
pub struct Sources {
    root: PathBuf,
    product: Product,
}

impl Sources {
    /// The checkout at `root`, for nodelet's package.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), product: Product::default() }
    }

    /// The same checkout for another package.
    #[must_use]
    pub fn of(self, product: Product) -> Self {
        Self { product, ..self }
    }

    /// Which package is meant.
    pub fn product(&self) -> Product {
        self.product
    }

    /// The checkout that the working directory is in.
    pub fn find() -> Result<Self> {
        let here = std::env::current_dir().context("finding the working directory")?;
        let list = Product::default().files();
        here.ancestors()
            .find(|directory| directory.join(list).is_file())
            .map(Self::new)
            .with_context(|| format!("no directory above {} holds {list}; pass --root", here.display()))
    }

    /// The directory of the checkout.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The newest entry of the changelog.
    pub fn changelog(&self) -> Result<changelog::Entry> {
        changelog::Entry::newest(&self.read("debian/changelog")?)
            .with_context(|| format!("reading {}", self.root.join("debian/changelog").display()))
    }

    /// `SOURCE_DATE_EPOCH` if it is set, the changelog's date otherwise; never the clock.
    pub fn timestamp(&self) -> Result<i64> {
        match std::env::var("SOURCE_DATE_EPOCH") {
            Ok(text) => text.parse().with_context(|| format!("SOURCE_DATE_EPOCH={text:?} is no number of seconds")),
            Err(_) => Ok(self.changelog()?.timestamp),
        }
    }

    /// The version to build: the given one, or the workspace's if the changelog's newest entry is about it.
    pub fn version(&self, given: Option<&str>) -> Result<String> {
        if let Some(given) = given {
            return Ok(package_version(given));
        }
        let workspace = package_version(env!("CARGO_PKG_VERSION"));
        let changelog = self.changelog()?.version;
        ensure!(
            changelog == workspace,
            "debian/changelog's newest entry is about {changelog}, but the workspace's version is {workspace}; \
             add an entry, or pass --version to build another version"
        );
        Ok(workspace)
    }

    /// The package around the program at `binary`, as it is in one format.
    pub fn package(&self, binary: &Path, version: &str, format: Format) -> Result<Package> {
        let content = fs::read(binary).with_context(|| format!("reading the program {}", binary.display()))?;
        let program = Program::read(&content).with_context(|| format!("examining the program {}", binary.display()))?;
        let name = self.product.name();
        let control = Control::read(&self.read("debian/control")?, name).context("reading debian/control")?;
        let mut package = Package::new(name, version).arch(program.arch);
        package.summary = control.summary()?;
        package.description = control.description()?;
        package.maintainer = control.source("Maintainer")?;
        package.homepage = control.source("Homepage")?;
        package.section = control.source("Section")?;
        package.priority = control.source("Priority")?;
        package.timestamp = self.timestamp()?;
        package.entries = files::entries(self, content, format)?;
        match format {
            Format::Deb => package.deb = self.deb_relations(&control, &program)?,
            Format::Rpm => {
                let path = format!("rpm/{name}.toml");
                let metadata = Metadata::read(&self.read(&path)?).with_context(|| format!("reading {path}"))?;
                package.rpm = metadata.relations(self, &program)?;
                package.license = metadata.license;
            }
        }
        Ok(package)
    }

    /// Builds the packages and returns their paths.
    pub fn build(&self, binary: &Path, version: &str, formats: &[Format], out: &Path) -> Result<Vec<PathBuf>> {
        fs::create_dir_all(out).with_context(|| format!("creating {}", out.display()))?;
        let mut paths = Vec::new();
        for format in formats {
            let package = self.package(binary, version, *format)?;
            paths.push(match format {
                Format::Deb => deb::write(&package, out)?,
                Format::Rpm => rpm::write(&package, out, None)?,
            });
        }
        Ok(paths)
    }

    fn deb_relations(&self, control: &Control, program: &Program) -> Result<Relations> {
        let libraries = program.deb_depends()?;
        let list = |field| control.relations(field, &libraries);
        let script = |name: &str| -> Result<Option<String>> {
            let path = format!("debian/{}.{name}", self.product.name());
            if self.root.join(&path).exists() { self.read(&path).map(Some) } else { Ok(None) }
        };
        Ok(Relations {
            pre_depends: list("Pre-Depends"),
            depends: list("Depends"),
            recommends: list("Recommends"),
            suggests: list("Suggests"),
            provides: list("Provides"),
            conflicts: list("Conflicts"),
            replaces: list("Replaces"),
            scripts: Scripts {
                config: script("config")?,
                pre_install: script("preinst")?,
                post_install: script("postinst")?,
                pre_remove: script("prerm")?,
                post_remove: script("postrm")?,
            },
            templates: script("templates")?,
            triggers: script("triggers")?,
        })
    }

    /// A text file of the repository.
    fn read(&self, path: &str) -> Result<String> {
        let path = self.root.join(path);
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }
}

/// A semantic version as both formats write it: a pre-release comes before the release, which `~` says and `-` doesn't.
pub fn package_version(version: &str) -> String {
    version.replace('-', "~")
}

/// The mode in a file of ours: octal, in quotes.
fn mode(text: &str) -> Result<u32> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        _ => bail!("the mode {text:?} is not octal, such as \"0644\""),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn a_pre_release_sorts_before_its_release() {
        assert_eq!(package_version("0.2.0-rc.1"), "0.2.0~rc.1");
        assert_eq!(package_version("0.2.0"), "0.2.0");
    }

    #[test]
    fn modes() {
        assert_eq!(mode("0644").unwrap(), 0o644);
        assert!(mode("rw").is_err());
        assert!(mode("99999").is_err());
    }
}
