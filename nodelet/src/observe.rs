//! What is on the host now, as far as a target speaks of it.

use crate::desired::Target;
use crate::host::files::{self, Memory, Seen};
use crate::host::kernel;
use crate::host::packages::{InstalledPackages, PackageError, PackageManager};
use crate::host::systemd::{Systemd, SystemdError, UnitSeen};
use crate::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

/// What is on the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// Installed packages.
    pub packages: Arc<InstalledPackages>,
    /// What is at the target's paths.
    pub files: BTreeMap<String, Seen>,
    /// The units that the target speaks of.
    pub units: BTreeMap<String, UnitSeen>,
    /// Loaded or built-in kernel modules among the target's.
    pub modules: BTreeSet<String>,
    /// Kernel parameters among the target's; without an entry there is no such parameter.
    pub sysctl: BTreeMap<String, String>,
    /// Swap is in use.
    pub swap_in_use: bool,
}

/// What kept the host from being seen.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// Packages.
    #[error("looking at installed packages: {0}")]
    Packages(#[from] PackageError),
    /// Units.
    #[error("looking at units: {0}")]
    Units(#[from] SystemdError),
    /// A file.
    #[error("looking at {path}: {source}")]
    File {
        /// Its path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Looks at everything that the target speaks of, and at nothing else.
pub async fn observe(
    target: &Target,
    root: &Root,
    packages: &dyn PackageManager,
    systemd: Option<&Systemd>,
    memory: &Mutex<Memory>,
) -> Result<Observed, ObserveError> {
    let mut observed = Observed::default();
    if !target.packages.is_empty() {
        observed.packages = packages.installed().await?;
    }
    observed.files = look_at_files(target, root, &mut memory.lock().unwrap_or_else(PoisonError::into_inner))?;
    if let Some(systemd) = systemd {
        observed.units = systemd.units(&unit_names(target)).await?;
    }
    if !target.modules.is_empty() {
        let loaded = kernel::modules(root);
        let there = |name: &&String| loaded.contains(&kernel::normal(name)) || kernel::provides(root, name);
        observed.modules = target.modules.iter().filter(there).cloned().collect();
    }
    for key in target.sysctl.keys() {
        if let Some(value) = kernel::parameter(root, key) {
            observed.sysctl.insert(key.clone(), value);
        }
    }
    observed.swap_in_use = target.swap_off && kernel::swap_in_use(root);
    Ok(observed)
}

fn look_at_files(target: &Target, root: &Root, memory: &mut Memory) -> Result<BTreeMap<String, Seen>, ObserveError> {
    let look = |path: &String| {
        let seen = files::look_again(&root.join(path), memory);
        seen.map(|seen| (path.clone(), seen)).map_err(|source| ObserveError::File { path: path.clone(), source })
    };
    target.files.keys().chain(target.absent.keys()).map(look).collect()
}

/// The units of the target, and those that its files restart or reload.
fn unit_names(target: &Target) -> Vec<String> {
    let followers = target.files.values().map(|file| &file.followers).chain(target.absent.values());
    let by_files = followers.flat_map(|followers| followers.restart.iter().chain(&followers.reload));
    let by_packages = target.packages.iter().flat_map(|package| &package.restart);
    let by_others = by_files.chain(by_packages);
    let names: BTreeSet<&String> = target.units.iter().map(|unit| &unit.name).chain(by_others).collect();
    names.into_iter().cloned().collect()
}
