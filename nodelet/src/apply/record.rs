//! What was there before a plan, and what nodelet owns after it.

use crate::desired::{Purpose, Target};
use crate::host::files::Seen;
use crate::observe::Observed;
use crate::plan::{Action, PackageGoal, Plan, UnitChange};
use crate::store::{Before, Blobs, FileBefore, Owned, OwnedFile, OwnedUnit, Part, StoreError, Transaction};
use std::collections::BTreeSet;

/// Keeps what the steps of a plan are going to change.
pub fn before(plan: &Plan, observed: &Observed, blobs: &Blobs) -> Result<Before, StoreError> {
    let mut before = Before::default();
    for step in &plan.steps {
        match &step.action {
            Action::WriteFile { path } | Action::RemoveFile { path } => {
                before.files.insert(path.clone(), file_before(observed.files.get(path), blobs)?);
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
            Action::RefreshRepositories { .. } | Action::LoadModule { .. } | Action::SwapOff | Action::DaemonReload => {
            }
        }
    }
    Ok(before)
}

fn file_before(seen: Option<&Seen>, blobs: &Blobs) -> Result<FileBefore, StoreError> {
    Ok(match seen {
        Some(Seen::File { content, mode, uid, gid }) => {
            FileBefore::File { content: blobs.keep(content)?, mode: *mode, uid: *uid, gid: *gid }
        }
        _ => FileBefore::Absent,
    })
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
                let before = before.or_else(|| part.before.files.get(path).cloned()).unwrap_or(FileBefore::Absent);
                let file = target.files.get(path);
                let file = OwnedFile {
                    before,
                    followers: file.map(|file| file.followers.clone()).unwrap_or_default(),
                    unit_file: file.is_some_and(|file| file.purpose == Purpose::Unit),
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
                    UnitChange::Restart | UnitChange::Reload => {}
                }
            }
            _ => {}
        }
    }
}
