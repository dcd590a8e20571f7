//! Notices, as it happens, that something on the host changed: files and package databases through inotify, units
//! through signals of systemd. Nothing is polled.

mod files;
mod units;

use crate::desired::Target;
use crate::host::systemd::Systemd;
use crate::root::Root;
use crate::source::cluster;
use crate::store::STATE_DIRECTORY;
use files::FileWatch;
use std::collections::BTreeSet;
use units::UnitWatch;

/// dpkg replaces the one, rpm writes to the other (and to files beside it).
const DATABASES: [&str; 4] = [
    "/var/lib/dpkg/status",
    "/var/lib/apt/extended_states",
    "/var/lib/rpm/rpmdb.sqlite-wal",
    "/var/lib/rpm/rpmdb.sqlite",
];

/// What woke the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Noticed {
    /// The file with the desired state.
    StateFile,
    /// Something that is managed, in words.
    Managed(String),
    /// A unit.
    Unit {
        /// Its name.
        name: String,
        /// Whether it is managed; otherwise the cluster only asks for its state.
        managed: bool,
    },
}

/// Watches the state file, and what a target manages.
pub struct Watcher {
    files: FileWatch,
    units: UnitWatch,
    /// Units that the cluster only asks for.
    asked: BTreeSet<String>,
    sources: BTreeSet<String>,
}

impl Watcher {
    /// Watches the state file and what is kept of the cluster's alone, until [`Self::follow`] says what is managed.
    pub fn new(root: &Root, state_file: &str) -> Self {
        let kept = format!("{STATE_DIRECTORY}/{}", cluster::FILE);
        let sources = BTreeSet::from([state_file.to_owned(), kept]);
        let files = FileWatch::new(root, sources.clone(), &[]);
        Self { files, units: UnitWatch::default(), asked: BTreeSet::new(), sources }
    }

    /// Watches what this target manages, and these units beside, and nothing else. Cheap when that is the same as before.
    pub async fn follow(&mut self, root: &Root, target: &Target, asked: &[String], systemd: Option<&Systemd>) {
        let mut paths: BTreeSet<String> = target.files.keys().chain(target.absent.keys()).cloned().collect();
        paths.extend(self.sources.iter().chain(&target.reads).cloned());
        if !target.packages.is_empty() {
            paths.extend(DATABASES.map(str::to_owned));
        }
        if *self.files.paths() != paths || self.files.is_stale() {
            self.files = FileWatch::new(root, paths, &DATABASES);
        }
        let managed: BTreeSet<String> = target.units.iter().map(|unit| unit.name.clone()).collect();
        self.asked = asked.iter().filter(|name| !managed.contains(*name)).cloned().collect();
        let names: BTreeSet<String> = managed.union(&self.asked).cloned().collect();
        let enablement = !managed.is_empty();
        if !self.units.is_of(&names, enablement) {
            // The old streams go first: nobody reads them while the new ones are made, and a full one would keep
            // the connection from being read at all.
            self.units = UnitWatch::default();
            if let Some(systemd) = systemd {
                self.units = UnitWatch::new(systemd, names, enablement).await;
            }
        }
    }

    /// Waits for the next change.
    pub async fn changed(&mut self) -> Noticed {
        tokio::select! {
            path = self.files.changed() => {
                if self.sources.contains(&path) { Noticed::StateFile } else { Noticed::Managed(path) }
            }
            name = self.units.changed() => {
                let managed = !self.asked.contains(&name);
                Noticed::Unit { name, managed }
            }
        }
    }
}
