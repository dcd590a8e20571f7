//! What nodelet asks of a package manager.

use super::apt::Apt;
use super::command::CommandError;
use super::dnf::Dnf;
use super::locks::LockHeld;
use super::space::NoSpace;
use crate::plan::UnitChange;
use crate::progress::Tell;
use crate::root::Root;
use crate::settings::{self, Manager};
use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::SystemTime;

/// A package that is installed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Installed {
    /// Its version, as the package manager writes it.
    pub version: String,
    /// Nothing but nodelet may change it.
    pub held: bool,
    /// Its installation came to its end.
    pub complete: bool,
    /// It came because another package needs it, and goes with that one (`apt autoremove`).
    pub automatic: bool,
}

/// The packages that are installed, by name.
pub type InstalledPackages = BTreeMap<String, Installed>;

/// The packages that a transaction touches; `None` where the package manager can't tell beforehand.
pub type Touched<'a> = Option<&'a BTreeSet<String>>;

/// What packages asked of systemd during a transaction and did not get, because nodelet does it later.
pub type Owed = BTreeMap<String, UnitChange>;

/// What one transaction does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// Packages to install or change, with the version (exact or glob) where one is asked for.
    pub install: Vec<(String, Option<String>)>,
    /// Packages whose version goes down, which the state allows.
    pub downgrade: Vec<(String, Option<String>)>,
    /// Packages to remove.
    pub remove: Vec<String>,
    /// Units that the packages are not to start: nodelet does, once their files are in place.
    pub withhold: Withhold,
}

/// Units that packages are not to start or restart.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Withhold {
    /// Those that run.
    pub running: BTreeSet<String>,
    /// Those that don't.
    pub stopped: BTreeSet<String>,
}

impl Withhold {
    /// All of them.
    pub fn all(&self) -> BTreeSet<String> {
        self.running.union(&self.stopped).cloned().collect()
    }
}

impl Transaction {
    /// Everything in it by name.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.install.iter().chain(&self.downgrade).map(|(name, _)| name).chain(&self.remove)
    }

    /// What is to be there afterwards, up or down.
    pub(super) fn versions(&self) -> Vec<(String, Option<String>)> {
        self.install.iter().chain(&self.downgrade).cloned().collect()
    }

    /// Takes exactly the versions that were staged.
    pub fn take(&mut self, staged: &Staged) {
        for (name, version) in self.install.iter_mut().chain(&mut self.downgrade) {
            if let Some(exact) = staged.versions.get(name) {
                *version = Some(exact.clone());
            }
        }
    }
}

/// What is to be made ready before anything changes.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// The files that define repositories, as they will be: by path, with their content.
    pub sources: BTreeMap<&'a str, &'a [u8]>,
    /// Such files that will be gone.
    pub gone: BTreeSet<&'a str>,
    /// Repositories whose lists are read again, by name.
    pub refresh: BTreeSet<String>,
    /// What is to be resolved and downloaded.
    pub transaction: Option<Transaction>,
}

/// What is ready.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Staged {
    /// The packages that the transaction touches; without a list, it may be any.
    pub touches: Option<BTreeSet<String>>,
    /// The exact version that each package gets.
    pub versions: BTreeMap<String, String>,
    /// What would go.
    pub removes: BTreeSet<String>,
    /// How many bytes were to be downloaded.
    pub download: u64,
    /// How many more bytes it takes on disk.
    pub space: u64,
}

impl Staged {
    /// Refuses what would remove a package that nobody asked to remove.
    pub(super) fn refuse_unasked(
        &self,
        transaction: &Transaction,
        may_remove: &BTreeSet<String>,
    ) -> Result<(), PackageError> {
        let asked = |name: &&String| transaction.remove.contains(name) || may_remove.contains(*name);
        let removed: Vec<String> = self.removes.iter().filter(|name| !asked(name)).cloned().collect();
        if removed.is_empty() {
            return Ok(());
        }
        let asked = transaction.names().map(String::as_str).collect::<Vec<_>>().join(", ");
        Err(PackageError::WouldRemove { asked, removed })
    }
}

/// What went wrong with packages.
#[derive(Debug, thiserror::Error)]
pub enum PackageError {
    /// The package manager itself said no.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// The lists of repositories could not be read.
    #[error("reading the lists of {}: {source}", repositories.iter().cloned().collect::<Vec<_>>().join(", "))]
    Refresh {
        /// Their names.
        repositories: BTreeSet<String>,
        /// What the package manager said.
        source: CommandError,
    },
    /// Another program held the package manager's lock for too long.
    #[error(transparent)]
    Lock(#[from] LockHeld),
    /// The package manager failed, most likely because there was too little room.
    #[error("{failed}; {directory} has {free} free: make room there")]
    Full {
        /// What it said.
        failed: Box<CommandError>,
        /// Where it writes to.
        directory: &'static str,
        /// How much room is there.
        free: String,
    },
    /// There is too little room.
    #[error(transparent)]
    Space(#[from] NoSpace),
    /// The transaction would remove what nobody asked to remove.
    #[error("changing {asked} would also remove {}, which the state doesn't ask for: add those packages with `state = \"absent\"`, or name them in `packages.mayRemove` of nodelet.toml", removed.join(", "))]
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
    fn installed(&self) -> BoxFuture<'_, Result<Arc<InstalledPackages>, PackageError>>;
    /// Makes everything ready and changes nothing: reads the lists of the named repositories again and of no others,
    /// resolves the exact versions, refuses what would remove a package that nobody asked to remove, downloads, and
    /// checks that there is room.
    fn stage<'a>(&'a self, request: &'a Request<'a>, tell: Tell<'a>) -> BoxFuture<'a, Result<Staged, PackageError>>;
    /// Installs and removes in one go. What the packages asked of systemd meanwhile and did not get.
    fn transact<'a>(&'a self, wanted: &'a Transaction, tell: Tell<'a>) -> BoxFuture<'a, Result<Owed, PackageError>>;
    /// Brings what a transaction touched back to these versions: the packages that were installed before it.
    fn restore<'a>(
        &'a self,
        before: &'a BTreeMap<String, String>,
        touched: Touched<'a>,
        withhold: &'a Withhold,
        tell: Tell<'a>,
    ) -> BoxFuture<'a, Result<Owed, PackageError>>;
    /// Lets go of kept packages that nothing will go back to: those that are not installed, and were downloaded
    /// before this time.
    fn tidy(&self, before: SystemTime);
    /// Waits until nobody changes packages.
    fn wait<'a>(&'a self, tell: Tell<'a>) -> BoxFuture<'a, Result<(), PackageError>>;
    /// Marks a package as wanted for itself, so that no `autoremove` takes it away, or takes that back.
    fn keep<'a>(&'a self, package: &'a str, keep: bool) -> BoxFuture<'a, Result<(), PackageError>>;
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
        Manager::Dnf => Box::new(Dnf::new(root, settings)),
        _ => Box::new(Apt::new(root, settings)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_back_names_only_what_differs() {
        let is = |version: &str| Installed { version: version.into(), held: false, complete: true, automatic: false };
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
