//! The difference between what is wanted and what is there, as ordered steps. Pure: nothing here touches
//! the host.

mod drift;
mod packages;
mod render;
mod undo;
mod units;

pub use drift::{Drifted, hold_back};
pub(crate) use packages::is_version;
pub use render::{Style, headline, render};

use crate::apply::Pending;
use crate::desired::{Followers, Purpose, Target, TargetFile, TargetPackage};
use crate::host::files::{self, Seen};
use crate::observe::Observed;
use crate::settings::Manager;
use nodelet_api::Disruption;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// What is to be done, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Plan {
    /// The steps.
    pub steps: Vec<Step>,
    /// The most that any step disturbs.
    pub disruption: Disruption,
    /// Repositories whose lists are read again before the first step.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub refresh: BTreeSet<String>,
}

impl Plan {
    /// The resources that it changes, named as [`Drifted`] names them.
    pub fn resources(&self) -> Vec<String> {
        let mut names = Vec::new();
        for step in &self.steps {
            match &step.action {
                Action::WriteFile { path } | Action::RemoveFile { path } => names.push(format!("file {path}")),
                Action::ChangePackages { changes } => {
                    names.extend(changes.iter().map(|change| format!("package {}", change.name)));
                }
                Action::Unit { name, .. } => names.push(format!("unit {name}")),
                _ => {}
            }
        }
        names
    }

    /// True when there is nothing to do.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }
}

/// One step of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What is done.
    #[serde(flatten)]
    pub action: Action,
    /// Why.
    pub reason: String,
    /// What it disturbs.
    pub disruption: Disruption,
    /// What undoes it, in words.
    #[serde(default)]
    pub undo: String,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum Action {
    /// Puts a file in its place.
    WriteFile {
        /// Its path.
        path: String,
    },
    /// Removes a file.
    RemoveFile {
        /// Its path.
        path: String,
    },
    /// Installs, changes and removes packages in one transaction.
    ChangePackages {
        /// Each change.
        changes: Vec<PackageChange>,
    },
    /// Marks a package as wanted for itself.
    KeepPackage {
        /// Its name.
        name: String,
    },
    /// Holds a package at its version.
    HoldPackage {
        /// Its name.
        name: String,
    },
    /// Lets a held package go.
    UnholdPackage {
        /// Its name.
        name: String,
    },
    /// Loads a kernel module.
    LoadModule {
        /// Its name.
        name: String,
    },
    /// Sets a kernel parameter.
    SetParameter {
        /// Its name.
        key: String,
        /// Its value.
        value: String,
    },
    /// Turns swap off.
    SwapOff,
    /// Makes systemd read its units again.
    DaemonReload,
    /// Changes a unit.
    Unit {
        /// Its name.
        name: String,
        /// How.
        change: UnitChange,
    },
}

/// A package before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PackageChange {
    /// Its name.
    pub name: String,
    /// The version that is installed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// What becomes of it.
    pub to: PackageGoal,
}

/// What becomes of a package.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PackageGoal {
    /// It is installed, in whatever version the repositories have.
    Any,
    /// It gets this version (exact or a glob), which is newer, or not comparable.
    Version(String),
    /// It gets this older version.
    Downgrade(String),
    /// It is removed.
    Removed,
}

/// What is done with a unit, named as `systemctl` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
#[allow(missing_docs, reason = "systemctl's own verbs")]
pub enum UnitChange {
    Unmask,
    Mask,
    Enable,
    Disable,
    Stop,
    Start,
    Restart,
    Reload,
    /// A restart, unless the unit was restarted since the packages of this plan began to change.
    Renew,
}

impl UnitChange {
    /// Whether the unit runs anew afterwards.
    pub fn starts(self) -> bool {
        matches!(self, Self::Start | Self::Restart | Self::Renew)
    }
}

/// What can't be planned: the host is in a way that the state does not foresee.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    /// Something that is not a file is where a file is to be.
    #[error("{path} is {found}, and the state wants a file there: move it away, or change the path in the state")]
    NotAFile {
        /// The path.
        path: String,
        /// What is there.
        found: &'static str,
    },
    /// A version would go down, and the state doesn't allow that.
    #[error(
        "{name} {installed} is installed, and the state wants the older {wanted}: add `allowDowngrade = true` to the package, or raise `version`"
    )]
    Downgrade {
        /// The package.
        name: String,
        /// What is installed.
        installed: String,
        /// What is wanted.
        wanted: String,
    },
}

/// Computes the steps from what is there to what is wanted. `pending` is what an earlier plan left undone and no
/// difference shows.
pub fn plan(target: &Target, observed: &Observed, pending: &Pending, manager: Manager) -> Result<Plan, PlanError> {
    let mut changed = Changed::default();
    let mut writes = Vec::new();
    for (path, file) in &target.files {
        if let Some(reason) = file_difference(path, file, observed)? {
            let disruption = file.on_change.unwrap_or_else(|| follower_disruption(&file.followers));
            let action = Action::WriteFile { path: path.clone() };
            writes.push((file, Step { action, reason, disruption, undo: String::new() }));
            changed.note(path, &file.followers);
            changed.units |= file.purpose == Purpose::Unit;
        }
    }
    let mut steps = units::stops_before_files(target, observed);
    for (path, followers) in &target.absent {
        if observed.files.get(path).is_some_and(|seen| *seen != Seen::Absent) {
            let left = target.released.contains(path);
            let reason = if left { "it left the state" } else { "the state wants it absent" }.into();
            let disruption = follower_disruption(followers);
            let action = Action::RemoveFile { path: path.clone() };
            steps.push(Step { action, reason, disruption, undo: String::new() });
            changed.note(path, followers);
            changed.units |= path.starts_with("/etc/systemd/system/");
        }
    }
    let is_repository = |file: &TargetFile| matches!(file.purpose, Purpose::Repository(_));
    let repositories = writes.iter().filter_map(|(file, _)| repository(file)).collect();
    steps.extend(writes.iter().filter(|(file, _)| is_repository(file)).map(|(_, step)| step.clone()));
    let package_steps = packages::steps(target, observed, manager)?;
    for package in packages::changing(&package_steps, target) {
        changed.note_package(package);
    }
    let refresh = if packages::installs(&package_steps) {
        // What the lists held when they were last read may be long gone.
        target.files.values().filter_map(repository).collect()
    } else {
        repositories
    };
    steps.extend(package_steps);
    steps.extend(writes.into_iter().filter(|(file, _)| !is_repository(file)).map(|(_, step)| step));
    steps.extend(kernel(target, observed));
    if changed.units || pending.daemon_reload {
        steps.push(quiet(Action::DaemonReload, "unit files change".into()));
    }
    steps.extend(units::steps(target, observed, &changed, pending));
    for step in &mut steps {
        step.undo = undo::in_words(&step.action, observed);
    }
    let disruption = steps.iter().map(|step| step.disruption).max().unwrap_or_default();
    Ok(Plan { steps, disruption, refresh })
}

/// Files and packages that change, by the units that take notice.
#[derive(Default)]
struct Changed<'a> {
    restart: BTreeMap<&'a str, Vec<&'a str>>,
    reload: BTreeMap<&'a str, Vec<&'a str>>,
    /// Packages, whose own scripts may have restarted the unit already.
    renew: BTreeMap<&'a str, Vec<&'a str>>,
    /// Unit files are among them.
    units: bool,
}

impl<'a> Changed<'a> {
    fn note(&mut self, path: &'a str, followers: &'a Followers) {
        for unit in &followers.restart {
            self.restart.entry(unit).or_default().push(path);
        }
        for unit in &followers.reload {
            self.reload.entry(unit).or_default().push(path);
        }
    }

    fn note_package(&mut self, package: &'a TargetPackage) {
        for unit in &package.restart {
            self.renew.entry(unit).or_default().push(&package.name);
        }
    }
}

fn repository(file: &TargetFile) -> Option<String> {
    match &file.purpose {
        Purpose::Repository(name) => Some(name.clone()),
        _ => None,
    }
}

fn quiet(action: Action, reason: String) -> Step {
    Step { action, reason, disruption: Disruption::None, undo: String::new() }
}

/// A file's own change disturbs nothing; the restart or reload that follows it does, and is a step itself.
/// The class is on the file too, so that a plan shows where it comes from.
fn follower_disruption(followers: &Followers) -> Disruption {
    if !followers.restart.is_empty() {
        Disruption::Restart
    } else if !followers.reload.is_empty() {
        Disruption::Reload
    } else {
        Disruption::None
    }
}

/// Why a file must be written, or `None` when it is as wanted.
fn file_difference(path: &str, file: &TargetFile, observed: &Observed) -> Result<Option<String>, PlanError> {
    let (digest, mode, uid, gid) = match observed.files.get(path) {
        None | Some(Seen::Absent) => return Ok(Some("it is not there".into())),
        Some(Seen::Other(found)) => return Err(PlanError::NotAFile { path: path.into(), found }),
        Some(Seen::File { digest, mode, uid, gid }) => (*digest, *mode, *uid, *gid),
    };
    if digest != file.content.digest() {
        return Ok(Some("its content differs".into()));
    }
    if mode != file.mode {
        return Ok(Some(format!("its mode is {mode:04o}, not {:04o}", file.mode)));
    }
    // An owner that doesn't exist yet may come with a package: the write will tell.
    let other = |wanted: Result<u32, String>, is: u32| wanted != Ok(is);
    if other(files::user_number(&file.owner), uid) {
        return Ok(Some(format!("it belongs to user {uid}, not {}", file.owner)));
    }
    if other(files::group_number(&file.group), gid) {
        return Ok(Some(format!("it belongs to group {gid}, not {}", file.group)));
    }
    Ok(None)
}

fn kernel(target: &Target, observed: &Observed) -> Vec<Step> {
    let mut steps = Vec::new();
    for name in target.modules.difference(&observed.modules) {
        steps.push(quiet(Action::LoadModule { name: name.clone() }, "it is not loaded".into()));
    }
    for (key, value) in &target.sysctl {
        let reason = match observed.sysctl.get(key) {
            Some(current) if current == value => continue,
            Some(current) => format!("it is {current}"),
            None => "there is no such parameter yet".into(),
        };
        steps.push(quiet(Action::SetParameter { key: key.clone(), value: value.clone() }, reason));
    }
    if target.swap_off && observed.swap_in_use {
        steps.push(quiet(Action::SwapOff, "swap is in use".into()));
    }
    steps
}

#[cfg(test)]
mod tests;
