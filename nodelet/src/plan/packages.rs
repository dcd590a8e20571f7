//! Steps for packages.

use super::{Action, PackageChange, PackageGoal, PlanError, Step, quiet};
use crate::desired::{Target, TargetPackage};
use crate::observe::Observed;
use crate::settings::Manager;
use nodelet_api::Disruption;
use nodelet_api::text::PackageVersion;
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// One transaction for all changes, then holds.
pub(super) fn steps(target: &Target, observed: &Observed, manager: Manager) -> Result<Vec<Step>, PlanError> {
    let mut changes = Vec::new();
    let mut disruption = Disruption::None;
    for package in &target.packages {
        if let Some(change) = change(package, observed, manager)? {
            // A first installation disturbs nothing that runs; anything else may restart its services.
            let default = if change.from.is_none() { Disruption::None } else { Disruption::Restart };
            disruption = disruption.max(package.on_change.unwrap_or(default));
            changes.push(change);
        }
    }
    let changing_names: BTreeSet<String> = changes.iter().map(|change| change.name.clone()).collect();
    let mut steps = Vec::new();
    // A package that was held by us and is to go must be let go first; apt is told so by its own flag.
    if !changes.is_empty() {
        let reason = changes.iter().map(describe).collect::<Vec<_>>().join("; ");
        steps.push(Step { action: Action::ChangePackages { changes }, reason, disruption, undo: String::new() });
    }
    for package in target.packages.iter().filter(|package| package.present) {
        let seen = observed.packages.get(&package.name);
        let held = seen.is_some_and(|installed| installed.held);
        let name = package.name.clone();
        // A transaction that names it marks it too.
        if seen.is_some_and(|installed| installed.automatic) && !changing_names.contains(&name) {
            let reason = "it came for another package, and would go with that one".into();
            steps.push(quiet(Action::KeepPackage { name: name.clone() }, reason));
        }
        match (package.hold, held) {
            (true, false) => steps.push(quiet(Action::HoldPackage { name }, "it is not held".into())),
            (false, true) => {
                steps
                    .push(quiet(Action::UnholdPackage { name }, "it is held, and the state doesn't ask for it".into()));
            }
            _ => {}
        }
    }
    Ok(steps)
}

/// The packages that these steps install or change.
pub(super) fn changing<'a>(steps: &[Step], target: &'a Target) -> Vec<&'a TargetPackage> {
    let changes = |name: &str| {
        changes(steps).any(|change| change.name == name && change.to != PackageGoal::Removed && change.from.is_some())
    };
    target.packages.iter().filter(|package| changes(&package.name)).collect()
}

/// Whether anything must come from a repository.
pub(super) fn installs(steps: &[Step]) -> bool {
    changes(steps).any(|change| change.to != PackageGoal::Removed)
}

fn changes(steps: &[Step]) -> impl Iterator<Item = &PackageChange> {
    let of = |step| match step {
        &Step { action: Action::ChangePackages { ref changes }, .. } => Some(changes),
        _ => None,
    };
    steps.iter().filter_map(of).flatten()
}

pub(super) fn change(
    package: &TargetPackage,
    observed: &Observed,
    manager: Manager,
) -> Result<Option<PackageChange>, PlanError> {
    let seen = observed.packages.get(&package.name);
    let installed = seen.map(|installed| installed.version.clone());
    let complete = seen.is_some_and(|installed| installed.complete);
    let to = match (package.present, &installed, &package.version) {
        (false, None, _) => return Ok(None),
        (true, Some(_), None) if complete => return Ok(None),
        (false, Some(_), _) => PackageGoal::Removed,
        (true, _, None) => PackageGoal::Any,
        (true, None, Some(wanted)) => PackageGoal::Version(wanted.to_string()),
        (true, Some(version), Some(wanted)) if complete && is_version(wanted, version, manager) => return Ok(None),
        (true, Some(version), Some(wanted)) => {
            let older = !wanted.is_glob() && order(wanted.as_str(), version, manager) == Ordering::Less;
            match (older, package.allow_downgrade) {
                (false, _) => PackageGoal::Version(wanted.to_string()),
                (true, true) => PackageGoal::Downgrade(wanted.to_string()),
                (true, false) => {
                    return Err(PlanError::Downgrade {
                        name: package.name.clone(),
                        installed: version.clone(),
                        wanted: wanted.to_string(),
                    });
                }
            }
        }
    };
    Ok(Some(PackageChange { name: package.name.clone(), from: installed, to }))
}

/// Whether an installed version is what is asked for. An rpm's release may be left out.
pub(crate) fn is_version(wanted: &PackageVersion, installed: &str, manager: Manager) -> bool {
    // `26.1.4` asks for `3:26.1.4-1` too: people leave out what their package manager lets them leave out.
    let (_, without_epoch) = installed.split_once(':').unwrap_or(("", installed));
    let installed = if manager == Manager::Dnf && !wanted.as_str().contains(':') { without_epoch } else { installed };
    let without_release = installed.rsplit_once('-').map_or(installed, |(version, _)| version);
    wanted.matches(installed) || (manager == Manager::Dnf && wanted.matches(without_release))
}

fn order(a: &str, b: &str, manager: Manager) -> Ordering {
    match manager {
        Manager::Dnf => rpm_version::rpm_evr_compare(a, b),
        _ => match (a.parse::<debversion::Version>(), b.parse::<debversion::Version>()) {
            (Ok(a), Ok(b)) => a.cmp(&b),
            _ => Ordering::Equal,
        },
    }
}

pub(super) fn describe(change: &PackageChange) -> String {
    let name = &change.name;
    match (&change.from, &change.to) {
        (None, PackageGoal::Version(version) | PackageGoal::Downgrade(version)) => {
            format!("{name} is not installed, {version} is wanted")
        }
        (None, _) => format!("{name} is not installed"),
        (Some(from), PackageGoal::Version(version) | PackageGoal::Downgrade(version)) => {
            format!("{name} {from} is installed, {version} is wanted")
        }
        (Some(from), PackageGoal::Removed) => format!("{name} {from} is installed, and the state wants it absent"),
        (Some(from), PackageGoal::Any) => format!("{name} {from} is only half installed"),
    }
}
