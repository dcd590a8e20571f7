//! Steps for units.

use super::{Action, Changed, Step, UnitChange, quiet};
use crate::apply::Pending;
use crate::desired::{Target, TargetUnit};
use crate::host::systemd::UnitSeen;
use crate::observe::Observed;
use nodelet_api::Disruption;
use std::collections::{BTreeMap, BTreeSet};

/// Units that left the state with their unit file: they stop while systemd still knows how.
pub(super) fn stops_before_files(target: &Target, observed: &Observed) -> Vec<Step> {
    let mut steps = Vec::new();
    for unit in target.units.iter().filter(|unit| unit.left) {
        let seen = observed.units.get(&unit.name).cloned().unwrap_or_default();
        let reason = || "it left the state".to_owned();
        if unit.running == Some(false) && seen.is_up() {
            steps.push(step(&unit.name, UnitChange::Stop, reason(), unit.on_change));
        }
        if unit.enabled == Some(false) && seen.is_enabled() {
            steps.push(quiet(Action::Unit { name: unit.name.clone(), change: UnitChange::Disable }, reason()));
        }
    }
    steps
}

/// How a unit differs from what is wanted of it.
pub(super) fn difference(unit: &TargetUnit, seen: &UnitSeen) -> Option<String> {
    let runs_wrongly = unit.running.is_some_and(|wanted| wanted != seen.is_up());
    let differs = runs_wrongly || !file_state(unit, seen).is_empty();
    differs.then(|| format!("it is {}, {}", seen.active, seen.file))
}

/// Masks and enablement first, then what stops, then what restarts or reloads because of a file, then what
/// starts. Each unit restarts once, whatever the number of its changes.
pub(super) fn steps(target: &Target, observed: &Observed, changed: &Changed<'_>, pending: &Pending) -> Vec<Step> {
    let seen = |name: &str| observed.units.get(name).cloned().unwrap_or_default();
    let mut steps = Vec::new();
    let staying = || target.units.iter().filter(|unit| !unit.left);
    for unit in target.units.iter().filter(|unit| !unit.left || seen(&unit.name).is_masked()) {
        steps.extend(file_state(unit, &seen(&unit.name)));
    }
    let wanted: BTreeMap<&str, &TargetUnit> = target.units.iter().map(|unit| (unit.name.as_str(), unit)).collect();
    let stopped = |name: &str| wanted.get(name).is_some_and(|unit| unit.masked || unit.running == Some(false));

    for unit in staying().filter(|unit| unit.running == Some(false) && seen(&unit.name).is_up()) {
        let reason = format!("it is {}", seen(&unit.name).active);
        steps.push(step(&unit.name, UnitChange::Stop, reason, unit.on_change));
    }
    let mut restarted = BTreeSet::new();
    for (name, reason) in causes(&changed.restart, pending, UnitChange::Restart) {
        let to_run = wanted.get(name).is_some_and(|unit| unit.running == Some(true));
        // Even one that isn't seen running restarts when it is to run: a package that is installed in the
        // same plan may have started it with its own configuration.
        if !stopped(name) && (seen(name).is_up() || to_run) {
            let on_change = wanted.get(name).and_then(|unit| unit.on_change);
            steps.push(step(name, UnitChange::Restart, reason, on_change));
            restarted.insert(name);
        }
    }
    for (name, packages) in &changed.renew {
        if !stopped(name) && seen(name).is_up() && !restarted.contains(name) {
            let on_change = wanted.get(name).and_then(|unit| unit.on_change);
            steps.push(step(name, UnitChange::Renew, because(packages), on_change));
            restarted.insert(name);
        }
    }
    for (name, reason) in causes(&changed.reload, pending, UnitChange::Reload) {
        if !stopped(name) && seen(name).is_up() && !restarted.contains(name) {
            steps.push(Step { disruption: Disruption::Reload, ..step(name, UnitChange::Reload, reason, None) });
        }
    }
    for unit in staying().filter(|unit| unit.running == Some(true) && !restarted.contains(unit.name.as_str())) {
        let seen = seen(&unit.name);
        if !seen.is_up() {
            let state = if seen.active.is_empty() { "not known yet" } else { &seen.active };
            let action = Action::Unit { name: unit.name.clone(), change: UnitChange::Start };
            steps.push(quiet(action, format!("it is {state}")));
        }
    }
    steps
}

/// Units that restart or reload, with the reason: files that change now, or a change that was cut off.
fn causes<'a>(
    changed: &BTreeMap<&'a str, Vec<&'a str>>,
    pending: &'a Pending,
    kind: UnitChange,
) -> BTreeMap<&'a str, String> {
    let cut_off = pending.units.iter().filter(|(_, change)| **change == kind);
    let mut causes: BTreeMap<&str, String> =
        cut_off.map(|(name, _)| (name.as_str(), "a change before was cut off".to_owned())).collect();
    causes.extend(changed.iter().map(|(name, paths)| (*name, because(paths))));
    causes
}

fn file_state(unit: &TargetUnit, seen: &UnitSeen) -> Vec<Step> {
    let masked = seen.is_masked();
    let is = if seen.file.is_empty() { "there is no unit file yet".to_owned() } else { format!("it is {}", seen.file) };
    let change = |change| quiet(Action::Unit { name: unit.name.clone(), change }, is.clone());
    if unit.masked {
        let stop =
            seen.is_up().then(|| step(&unit.name, UnitChange::Stop, "it is to be masked".into(), unit.on_change));
        return stop.into_iter().chain((!masked).then(|| change(UnitChange::Mask))).collect();
    }
    let mut steps = Vec::new();
    if masked {
        steps.push(change(UnitChange::Unmask));
    }
    let enabled = seen.is_enabled();
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
    Step { action: Action::Unit { name: name.to_owned(), change }, reason, disruption, undo: String::new() }
}

fn because(paths: &[&str]) -> String {
    format!("{} {}", paths.join(", "), if paths.len() == 1 { "changes" } else { "change" })
}
