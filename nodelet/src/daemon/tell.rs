//! What the cluster hears of the node.

use crate::cluster::Report;
use crate::contents;
use crate::facts::Facts;
use crate::plan::headline;
use crate::reconcile::{Planned, ReconcileError, Reconciler};
use crate::report::status::{Phase, Status};
use crate::root::Root;
use crate::settings::Settings;
use crate::store::{End, Store};
use nodelet_api::objects::{Applied, ManagedPackage, NOT_UNDERSTOOD, OperatingSystem, Staged, StepResult, time_text};

/// The reason of a failure of health checks.
const UNHEALTHY: &str = "HealthCheckFailed";
/// As many lines of a plan are told.
const PLAN_LINES: usize = 50;

/// What is known before anything was looked at.
pub(super) fn about_host(root: &Root, settings: &Settings) -> Report {
    let facts = Facts::gather(root, &settings.node.name);
    let fact = |name: &str| facts.get(name).unwrap_or_default().to_owned();
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap_or_default().trim().to_owned();
    Report {
        os: OperatingSystem {
            id: fact("node.os"),
            version_id: fact("node.osVersion"),
            kernel: read("/proc/sys/kernel/osrelease"),
            package_manager: String::new(),
        },
        boot_id: read("/proc/sys/kernel/random/boot_id"),
        ..Report::default()
    }
}

/// What a round came to.
pub(super) fn about(planned: &Planned, reconciler: &Reconciler) -> Result<Report, ReconcileError> {
    let good = reconciler.good_revisions()?;
    let mut report = about_host(reconciler.root(), reconciler.settings());
    reconciler.manager_name().clone_into(&mut report.os.package_manager);
    // The contents' version is said beside the revision, not in its name.
    let plain = |revision: &str| contents::split(revision).map_or(revision, |(plain, _)| plain).to_owned();
    report.staged = planned.waits_for.is_some().then(|| Staged {
        revision: plain(&planned.desired.revision),
        disruption: planned.plan.disruption,
        plan: planned.plan.steps.iter().take(PLAN_LINES).map(|step| headline(&step.action)).collect(),
    });
    report.applied = good.first().map(|(revision, at)| Applied {
        revision: plain(revision),
        at: time_text(*at),
        secrets: contents::split(revision).map(|(_, version)| version.to_owned()).unwrap_or_default(),
    });
    report.last_good = good.get(1).or(good.first()).map(|(revision, _)| plain(revision));
    report.steps = steps(reconciler.root());
    let installed = planned.target.packages.iter().filter(|package| package.present).filter_map(|package| {
        let version = planned.observed.packages.get(&package.name)?.version.clone();
        Some(ManagedPackage { name: package.name.clone(), version })
    });
    report.packages = installed.collect();
    report.packages.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(report)
}

/// The last change, step by step. What can't be read is nothing to fail for here.
pub(super) fn steps(root: &Root) -> Vec<StepResult> {
    let last = Store::open(root).and_then(|store| store.last());
    let Some(transaction) = last.unwrap_or_default() else { return Vec::new() };
    let summary = transaction.summary();
    let at = time_text(summary.ended.unwrap_or(summary.record.started));
    let end = match transaction.end() {
        Some(End::Undone(_)) => "undone",
        Some(End::Stuck(_)) => "undone in part",
        Some(End::Done) | None => "done",
    };
    let mut steps = Vec::new();
    for (number, part) in transaction.parts().iter().enumerate() {
        for (index, step) in part.plan.steps.iter().enumerate() {
            let result = match transaction.step_state(number, index) {
                (false, _) => "not begun",
                (true, false) => "failed",
                (true, true) => end,
            };
            steps.push(StepResult { what: headline(&step.action), result: result.into(), at: at.clone() });
        }
    }
    steps.truncate(PLAN_LINES);
    steps
}

/// With what the daemon says of itself. A revision that is `not_understood` is the first thing to be said: the node is
/// well as it was, and nothing else will make it what it must become.
pub(super) fn with_conditions(report: &Report, status: &Status, not_understood: Option<&str>) -> Report {
    let phase = not_understood.map_or_else(|| format!("{:?}", status.phase), |_| NOT_UNDERSTOOD.to_owned());
    let error = status.last_error.as_ref();
    let said = || error.map_or_else(|| status.line(), |error| error.message.clone());
    let message = not_understood.map_or_else(said, str::to_owned);
    let reason = error.filter(|_| not_understood.is_none()).map_or_else(|| phase.clone(), |error| error.reason.clone());
    let converged = status.phase == Phase::Converged && not_understood.is_none();
    let names: Vec<&str> = status.drifted.iter().map(|drifted| drifted.resource.as_str()).collect();
    let failing = not_understood.is_some() || matches!(status.phase, Phase::Failed | Phase::Invalid | Phase::Reverted);
    let waits = not_understood.map_or_else(|| status.line(), str::to_owned);
    let steady = |holds: bool| if holds { reason.clone() } else { "AsExpected".to_owned() };
    let why = |holds: bool| if holds { message.clone() } else { String::new() };
    let drifted = !names.is_empty();
    let healthy = error.is_none_or(|error| error.reason != UNHEALTHY);
    Report {
        waiting_for: not_understood.or(status.waiting_for.as_deref()).unwrap_or_default().to_owned(),
        conditions: vec![
            ("Converged", converged, phase, if converged { String::new() } else { waits }),
            ("Degraded", failing, steady(failing), why(failing)),
            ("Healthy", healthy, (if healthy { "ChecksPassed" } else { UNHEALTHY }).to_owned(), why(!healthy)),
            ("Drifted", drifted, (if drifted { "LeftAlone" } else { "AsExpected" }).to_owned(), names.join(", ")),
        ],
        ..report.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::status::Managed;
    use jiff::Timestamp;

    #[test]
    fn a_revision_that_is_not_understood_is_said_first() {
        let status = Status {
            version: String::new(),
            pid: 1,
            phase: Phase::Converged,
            since: Timestamp::UNIX_EPOCH,
            source: String::new(),
            source_reason: String::new(),
            cluster: None,
            revision: None,
            managed: Managed::default(),
            waiting_for: None,
            last_error: None,
            configuration_error: None,
            drifted: Vec::new(),
        };
        let report = with_conditions(&Report::default(), &status, Some("why"));
        assert_eq!(report.waiting_for, "why");
        let said = |kind: &str| report.conditions.iter().find(|(one, ..)| *one == kind).cloned();
        for (kind, holds) in [("Converged", false), ("Degraded", true)] {
            assert_eq!(
                said(kind),
                Some((said(kind).map_or("", |one| one.0), holds, NOT_UNDERSTOOD.into(), "why".into()))
            );
        }
        let report = with_conditions(&Report::default(), &status, None);
        assert!(
            report.waiting_for.is_empty()
                && report
                    .conditions
                    .iter()
                    .all(|(kind, holds, ..)| (*kind == "Converged" || *kind == "Healthy") == *holds)
        );
    }
}
