//! What was there before a plan, and what nodelet owns after it.

use crate::desired::{Purpose, Target};
use crate::host::systemd::UnitSeen;
use crate::observe::Observed;
use crate::plan::{Action, PackageGoal, Plan, UnitChange};
use crate::root::Root;
use crate::store::{Before, Blobs, FileBefore, Owned, OwnedFile, OwnedUnit, Part, StoreError, Transaction, failed};
use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Keeps what the steps of a plan are going to change.
pub fn before(plan: &Plan, observed: &Observed, root: &Root, blobs: &Blobs) -> Result<Before, StoreError> {
    let mut before = Before::default();
    for step in &plan.steps {
        match &step.action {
            Action::WriteFile { path } | Action::RemoveFile { path } => {
                before.files.insert(path.clone(), file_before(&root.join(path), blobs)?);
            }
            Action::ChangePackages { .. } => {
                let versions = observed.packages.iter().map(|(name, is)| (name.clone(), is.version.clone()));
                before.packages = Some(versions.collect());
            }
            Action::HoldPackage { name } => drop(before.holds.insert(name.clone(), false)),
            Action::UnholdPackage { name } => drop(before.holds.insert(name.clone(), true)),
            Action::SetParameter { key, .. } => {
                if let Some(value) = observed.sysctl.get(key) {
                    before.sysctl.insert(key.clone(), value.clone());
                }
            }
            Action::Unit { name, .. } => {
                before.units.insert(name.clone(), observed.units.get(name).cloned().unwrap_or_default());
            }
            // What undoes these does not depend on anything.
            Action::KeepPackage { .. } | Action::LoadModule { .. } | Action::SwapOff | Action::DaemonReload => {}
        }
    }
    Ok(before)
}

/// What is at a path, with its content kept.
pub(super) fn file_before(place: &Path, blobs: &Blobs) -> Result<FileBefore, StoreError> {
    let Ok(metadata) = std::fs::symlink_metadata(place) else { return Ok(FileBefore::Absent) };
    if !metadata.is_file() {
        return Ok(FileBefore::Absent);
    }
    let content = std::fs::read(place).map_err(failed("reading", place))?;
    let (mode, uid, gid) = (metadata.mode() & 0o7777, metadata.uid(), metadata.gid());
    Ok(FileBefore::File { content: blobs.keep(&content)?, mode, uid, gid })
}

/// Notes what nodelet owns once a transaction is done and the host is as wanted.
pub fn own(owned: &mut Owned, transaction: Option<&Transaction>, target: &Target, observed: &Observed) {
    if let Some(transaction) = transaction {
        for (number, part) in transaction.parts().iter().enumerate() {
            own_part(owned, transaction, number, part, target);
        }
    }
    for path in &target.released {
        owned.files.remove(path);
    }
    owned.packages.retain(|name| observed.packages.contains_key(name));
    let left: BTreeSet<&str> = target.units.iter().filter(|unit| unit.left).map(|unit| unit.name.as_str()).collect();
    owned.units.retain(|name, unit| (unit.enabled || unit.masked || unit.started) && !left.contains(name.as_str()));
}

fn own_part(owned: &mut Owned, transaction: &Transaction, number: usize, part: &Part, target: &Target) {
    let begun = part.plan.steps.iter().enumerate().filter(|(index, _)| transaction.step_state(number, *index).0);
    for (_, step) in begun {
        match &step.action {
            Action::WriteFile { path } if !target.released.contains(path) => {
                let before = owned.files.remove(path).map(|file| file.before);
                let before = before.or_else(|| transaction.found_at(number, path).cloned());
                let before = before.or_else(|| part.before.files.get(path).cloned()).unwrap_or(FileBefore::Absent);
                let file = target.files.get(path);
                let file = OwnedFile {
                    before,
                    followers: file.map(|file| file.followers.clone()).unwrap_or_default(),
                    unit_file: file.is_some_and(|file| file.purpose == Purpose::Unit),
                    secret: file.is_some_and(|file| file.secret),
                };
                owned.files.insert(path.clone(), file);
            }
            Action::ChangePackages { changes } => {
                for change in changes {
                    if change.to == PackageGoal::Removed {
                        owned.packages.remove(&change.name);
                    } else if change.from.is_none() {
                        owned.packages.insert(change.name.clone());
                    }
                }
            }
            Action::Unit { name, change } => {
                let unit = owned.units.entry(name.clone()).or_insert(OwnedUnit {
                    enabled: false,
                    masked: false,
                    started: false,
                });
                match change {
                    UnitChange::Enable => unit.enabled = true,
                    UnitChange::Disable => unit.enabled = false,
                    UnitChange::Mask => unit.masked = true,
                    UnitChange::Unmask => unit.masked = false,
                    UnitChange::Start => unit.started = true,
                    UnitChange::Stop => unit.started = false,
                    // A first start that came as a restart, because of a file.
                    UnitChange::Restart | UnitChange::Renew => {
                        unit.started |= !part.before.units.get(name).is_some_and(UnitSeen::is_up);
                    }
                    UnitChange::Reload => {}
                }
            }
            _ => {}
        }
    }
}
