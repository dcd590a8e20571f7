//! What nodelet asks of a package manager.

use super::apt::Apt;
use super::command::CommandError;
use super::dnf::Dnf;
use crate::root::Root;
use crate::settings::{self, Manager};
use futures::future::BoxFuture;
use std::collections::{BTreeMap, BTreeSet};

/// A package that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Its version, as the package manager writes it.
    pub version: String,
    /// Nothing but nodelet may change it.
    pub held: bool,
    /// Its installation came to its end.
    pub complete: bool,
}

/// The packages that are installed, by name.
pub type InstalledPackages = BTreeMap<String, Installed>;

/// The packages that a transaction touches; `None` where the package manager can't tell beforehand.
pub type Touched<'a> = Option<&'a BTreeSet<String>>;

/// What one transaction does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Packages to install or change, with the version (exact or glob) where one is asked for.
    pub install: Vec<(String, Option<String>)>,
    /// Packages whose version goes down, which the state allows.
    pub downgrade: Vec<(String, Option<String>)>,
    /// Packages to remove.
    pub remove: Vec<String>,
}

/// What went wrong with packages.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The package manager itself said no.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The transaction would remove what nobody asked to remove.
    #[error("installing {asked} would also remove {}, which the state doesn't ask for: add those packages with `state = \"absent\"`, or name them in `packages.mayRemove` of nodelet.toml", removed.join(", "))]
    WouldRemove {
        /// What is to be installed.
        asked: String,
        /// What would go.
        removed: Vec<String>,
    },
    /// The database of installed packages could not be read.
    #[error("reading {path}: {source}")]
    Database {
        /// The database.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// The host has no package manager that nodelet knows.
    #[error("this host has neither apt-get nor dnf: install one, or name it as `packages.manager` in nodelet.toml")]
    NoManager,
    /// Something that this package manager can't do as the host is.
    #[error("{0}")]
    Unsupported(String),
}

/// A package manager. To add one: a module beside `apt.rs`, a variant in [`Manager`], a line in [`choose`].
pub trait PackageManager: Send + Sync {
    /// Which one it is.
    fn kind(&self) -> Manager;
    /// Everything that is installed.
    fn installed(&self) -> BoxFuture<'_, Result<InstalledPackages, PackageError>>;
    /// Reads the lists of the named repositories again, and of no others.
    fn refresh<'a>(&'a self, repositories: &'a BTreeSet<String>) -> BoxFuture<'a, Result<(), PackageError>>;
    /// Simulates a transaction, and refuses one that would remove what nobody asked to remove. The packages that it
    /// touches, where that can be told: an undo must not touch any others.
    fn examine<'a>(
        &'a self,
        transaction: &'a Transaction,
    ) -> BoxFuture<'a, Result<Option<BTreeSet<String>>, PackageError>>;
    /// Installs and removes in one go.
    fn transact<'a>(&'a self, transaction: &'a Transaction) -> BoxFuture<'a, Result<(), PackageError>>;
    /// Brings what a transaction touched back to these versions: the packages that were installed before it.
    fn restore<'a>(
        &'a self,
        before: &'a BTreeMap<String, String>,
        touched: Touched<'a>,
    ) -> BoxFuture<'a, Result<(), PackageError>>;
    /// Holds a package at its version, or lets it go.
    fn hold<'a>(&'a self, package: &'a str, hold: bool) -> BoxFuture<'a, Result<(), PackageError>>;
}

/// What must change to get from what is installed back to what was.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct WayBack {
    /// Packages with the versions that they had.
    pub(super) install: Vec<(String, String)>,
    /// Packages that were not there.
    pub(super) remove: Vec<String>,
}

impl WayBack {
    pub(super) fn find(now: &InstalledPackages, before: &BTreeMap<String, String>, touched: Touched<'_>) -> Self {
        let ours = |name: &String| touched.is_none_or(|touched| touched.contains(name));
        let differs = |(name, version): &(&String, &String)| {
            ours(name) && now.get(*name).is_none_or(|is| is.version != **version || !is.complete)
        };
        Self {
            install: before.iter().filter(differs).map(|(name, version)| (name.clone(), version.clone())).collect(),
            remove: now.keys().filter(|name| !before.contains_key(*name) && ours(name)).cloned().collect(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.install.is_empty() && self.remove.is_empty()
    }
}

/// The package manager that the settings name, or that the host has.
pub fn choose(root: &Root, settings: &settings::Packages) -> Result<Box<dyn PackageManager>, PackageError> {
    let has = |program: &str| root.join(format!("/usr/bin/{program}")).exists();
    let manager = match settings.manager {
        // A Debian host may have dnf as an ordinary package; apt is the one that installed it.
        Manager::Auto if has("apt-get") && root.join("/var/lib/dpkg/status").exists() => Manager::Apt,
        Manager::Auto if has("dnf") => Manager::Dnf,
        Manager::Auto => return Err(PackageError::NoManager),
        named => named,
    };
    Ok(match manager {
        Manager::Dnf => Box::new(Dnf::new(settings)),
        _ => Box::new(Apt::new(root, settings)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_names_only_what_differs() {
        let is = |version: &str| Installed { version: version.into(), held: false, complete: true };
        let now = BTreeMap::from([("same".into(), is("1")), ("up".into(), is("2")), ("new".into(), is("1"))]);
        let before =
            BTreeMap::from([("same".into(), "1".into()), ("up".into(), "1".into()), ("gone".into(), "3".into())]);
        let way = WayBack::find(&now, &before, None);
        assert_eq!(way.install, [("gone".to_owned(), "3".to_owned()), ("up".to_owned(), "1".to_owned())]);
        assert_eq!(way.remove, ["new"]);
        let way = WayBack::find(&now, &before, Some(&BTreeSet::from(["up".to_owned()])));
        assert_eq!((way.install.len(), way.remove.len()), (1, 0), "what somebody else installed stays");
    }
}
