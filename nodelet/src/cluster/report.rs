//! What is said of the node in its `NodeState`.

use jiff::Timestamp;
use nodelet_api::objects::{
    Applied, Condition, ManagedPackage, NodeStateStatus, OperatingSystem, RevisionRef, Staged, StepResult, UnitReport,
    time_text,
};

/// How far the node is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What runs on the machine.
    pub os: OperatingSystem,
    /// This boot.
    pub boot_id: String,
    /// What is ready to be applied.
    pub staged: Option<Staged>,
    /// What the node is.
    pub applied: Option<Applied>,
    /// What it would go back to.
    pub last_good: Option<String>,
    /// The last change, step by step.
    pub steps: Vec<StepResult>,
    /// Why it is not done.
    pub waiting_for: String,
    /// The managed packages.
    pub packages: Vec<ManagedPackage>,
    /// The units that the cluster asks for, as far as they were looked at.
    pub units: Vec<UnitReport>,
    /// Conditions: type, status, reason, message.
    pub conditions: Vec<(&'static str, bool, String, String)>,
}

impl Report {
    /// As the status of an object of this generation, which asks for these units. What has not changed keeps its time.
    pub fn status(
        &self,
        before: Option<&NodeStateStatus>,
        generation: Option<i64>,
        asked: &[String],
        now: Timestamp,
    ) -> NodeStateStatus {
        let old = before.map(|status| status.conditions.as_slice()).unwrap_or_default();
        let (conditions, now) = (self.conditions.iter(), time_text(now));
        NodeStateStatus {
            observed_generation: generation,
            nodelet_version: env!("CARGO_PKG_VERSION").into(),
            boot_id: self.boot_id.clone(),
            os: Some(self.os.clone()),
            staged: self.staged.clone(),
            applied: self.applied.clone(),
            last_good: self.last_good.clone().map(|revision| RevisionRef { revision }),
            steps: self.steps.clone(),
            waiting_for: self.waiting_for.clone(),
            packages: self.packages.clone(),
            units: self.units_of(asked),
            identity: before.and_then(|status| status.identity.clone()),
            conditions: conditions
                .map(|(kind, holds, reason, message)| {
                    let status = if *holds { "True" } else { "False" };
                    Condition::since(kind, (status, reason, message.clone()), old, generation, &now)
                })
                .collect(),
        }
    }
}

impl Report {
    /// Whoever asks gets an answer, also an empty one.
    fn units_of(&self, asked: &[String]) -> Option<Vec<UnitReport>> {
        let mut units = self.units.clone();
        units.retain(|unit| asked.contains(&unit.name));
        (!asked.is_empty()).then_some(units)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_until_it_changes() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let report = |holds| Report {
            conditions: vec![("Converged", holds, "Why".into(), "because".into())],
            ..Report::default()
        };
        let first = report(true).status(None, Some(1), &[], at(1));
        let same = report(true).status(Some(&first), Some(1), &[], at(100));
        assert_eq!(first, same, "nothing to write");
        let other = report(false).status(Some(&same), Some(1), &[], at(200));
        assert_eq!(other.conditions[0].last_transition_time, "1970-01-01T00:03:20Z");
    }

    #[test]
    fn units_are_said_when_they_are_asked_for() {
        let unit = |name: &str| UnitReport { name: name.into(), state: "active".into(), restarts: 0 };
        let report = Report { units: vec![unit("a.service"), unit("b.service")], ..Report::default() };
        let said = |asked: &[&str]| {
            let asked: Vec<String> = asked.iter().map(ToString::to_string).collect();
            report.status(None, Some(1), &asked, Timestamp::UNIX_EPOCH).units
        };
        assert_eq!(said(&[]), None);
        assert_eq!(said(&["b.service", "c.service"]), Some(vec![unit("b.service")]));
        assert_eq!(said(&["c.service"]), Some(Vec::new()), "not looked at yet, and not unable to");
    }
}
