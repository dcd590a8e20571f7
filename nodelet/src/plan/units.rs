//! Steps for units.

use super::{Action, Step, UnitChange, quiet};
use crate::desired::{Target, TargetFile, TargetUnit};
use crate::host::systemd::UnitSeen;
use crate::observe::Observed;
use nodelet_api::Disruption;
use std::collections::{BTreeMap, BTreeSet};

/// Masks and enablement first, then what stops, then what restarts or reloads because of a file, then what
/// starts. Each unit restarts once, whatever the number of its changes.
pub(super) fn steps(target: &Target, observed: &Observed, changed: &[(&String, &TargetFile)]) -> Vec<Step> {
    let seen = |name: &str| observed.units.get(name).cloned().unwrap_or_default();
    let mut steps = Vec::new();
    for unit in &target.units {
        steps.extend(file_state(unit, &seen(&unit.name)));
    }
    let wanted: BTreeMap<&str, &TargetUnit> = target.units.iter().map(|unit| (unit.name.as_str(), unit)).collect();
    let stopped = |name: &str| wanted.get(name).is_some_and(|unit| unit.masked || unit.running == Some(false));

    for unit in target.units.iter().filter(|unit| unit.running == Some(false) && is_up(&seen(&unit.name))) {
        let reason = format!("it is {}", seen(&unit.name).active);
        steps.push(step(&unit.name, UnitChange::Stop, reason, unit.on_change));
    }
    let restarts = causes(changed, |file| &file.restart);
    let reloads = causes(changed, |file| &file.reload);
    let mut restarted = BTreeSet::new();
    for (name, paths) in &restarts {
        let to_run = wanted.get(name.as_str()).is_some_and(|unit| unit.running == Some(true));
        // Even one that isn't seen running restarts when it is to run: a package that is installed in the
        // same plan may have started it with its own configuration.
        if !stopped(name) && (is_up(&seen(name)) || to_run) {
            let on_change = wanted.get(name.as_str()).and_then(|unit| unit.on_change);
            steps.push(step(name, UnitChange::Restart, because(paths), on_change));
            restarted.insert(name.clone());
        }
    }
    for (name, paths) in &reloads {
        if !stopped(name) && is_up(&seen(name)) && !restarted.contains(name) {
            steps.push(Step { disruption: Disruption::Reload, ..step(name, UnitChange::Reload, because(paths), None) });
        }
    }
    for unit in target.units.iter().filter(|unit| unit.running == Some(true) && !restarted.contains(&unit.name)) {
        let seen = seen(&unit.name);
        if !is_up(&seen) {
            let state = if seen.active.is_empty() { "not known yet" } else { &seen.active };
            steps.push(quiet(
                Action::Unit { name: unit.name.clone(), change: UnitChange::Start },
                format!("it is {state}"),
            ));
        }
    }
    steps
}

fn is_up(seen: &UnitSeen) -> bool {
    matches!(seen.active.as_str(), "active" | "activating" | "reloading" | "refreshing")
}

fn file_state(unit: &TargetUnit, seen: &UnitSeen) -> Vec<Step> {
    let masked = seen.file.starts_with("masked") || seen.load == "masked";
    let is = if seen.file.is_empty() { "there is no unit file yet".to_owned() } else { format!("it is {}", seen.file) };
    let change = |change| quiet(Action::Unit { name: unit.name.clone(), change }, is.clone());
    if unit.masked {
        let stop = is_up(seen).then(|| step(&unit.name, UnitChange::Stop, "it is to be masked".into(), unit.on_change));
        return stop.into_iter().chain((!masked).then(|| change(UnitChange::Mask))).collect();
    }
    let mut steps = Vec::new();
    if masked {
        steps.push(change(UnitChange::Unmask));
    }
    let enabled = matches!(seen.file.as_str(), "enabled" | "enabled-runtime" | "alias");
    // A static unit has nothing to enable, and is as enabled as it can be.
    let fixed = matches!(seen.file.as_str(), "static" | "generated" | "transient" | "indirect");
    match unit.enabled {
        Some(true) if !enabled && !fixed => steps.push(change(UnitChange::Enable)),
        Some(false) if enabled => steps.push(change(UnitChange::Disable)),
        _ => {}
    }
    steps
}

fn step(name: &str, change: UnitChange, reason: String, on_change: Option<Disruption>) -> Step {
    let disruption = on_change.unwrap_or(Disruption::Restart);
    Step { action: Action::Unit { name: name.to_owned(), change }, reason, disruption }
}

/// Units with the changed files that name them.
fn causes<'a>(
    changed: &[(&'a String, &'a TargetFile)],
    units: impl Fn(&'a TargetFile) -> &'a BTreeSet<String>,
) -> BTreeMap<String, Vec<&'a str>> {
    let mut causes: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for (path, file) in changed {
        for unit in units(file) {
            causes.entry(unit.clone()).or_default().push(path);
        }
    }
    causes
}

fn because(paths: &[&str]) -> String {
    format!("{} {}", paths.join(", "), if paths.len() == 1 { "changes" } else { "change" })
}
