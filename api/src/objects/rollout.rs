//! How changes reach the nodes of a set.

use super::{Gate, Selector};
use crate::state::{Disruption, is_default};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// A number of nodes, or a part of them: `2` or `"10%"`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    /// So many.
    Number(u32),
    /// Such a part, as `10%`.
    Part(String),
}

impl Amount {
    /// How many of `all` that is, rounded down.
    pub fn of(&self, all: usize) -> usize {
        match self {
            Self::Number(number) => usize::try_from(*number).unwrap_or(usize::MAX),
            Self::Part(text) => {
                let percent: usize = text.trim_end_matches('%').parse().unwrap_or(0);
                all.saturating_mul(percent.min(100)) / 100
            }
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(number) => number.fmt(f),
            Self::Part(text) => f.write_str(text),
        }
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({"x-kubernetes-int-or-string": true})
    }
}

/// In which steps a change goes through the nodes of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Strategy {
    /// `InPlace`: nodes change by themselves, in their turn. `OnDelete`: a node changes when its `NodeState` is deleted.
    pub r#type: StrategyType,
    /// How many nodes may be unavailable at once, whatever made them so: a number, or a part such as `10%`, at least one.
    pub max_unavailable: Amount,
    /// Waves: how many nodes have the change at most before everything so far is well. After the last one, all.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub steps: Vec<Amount>,
    /// How long, in seconds, a node must be well before the next one's turn.
    #[schemars(range(min = 0, max = 604_800))]
    pub soak_seconds: u32,
    /// A label of Nodes: all of one value before those of the next, such as `topology.kubernetes.io/zone`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 316))]
    pub topology_key: Option<String>,
}

impl Default for Strategy {
    fn default() -> Self {
        Self {
            r#type: StrategyType::InPlace,
            max_unavailable: Amount::Number(1),
            steps: Vec::new(),
            soak_seconds: 0,
            topology_key: None,
        }
    }
}

/// What starts a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum StrategyType {
    /// A node's turn.
    #[default]
    InPlace,
    /// The deletion of its `NodeState`.
    OnDelete,
}

/// How a node is emptied before a change that asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct DrainPolicy {
    /// How long, in seconds, it may take before `onTimeout` says what to do.
    #[schemars(range(min = 1, max = 604_800))]
    pub timeout_seconds: u32,
    /// How long, in seconds, pods have to end; -1: as each pod says.
    #[schemars(range(min = -1, max = 86_400))]
    pub grace_period_seconds: i32,
    /// What to do when it takes too long.
    pub on_timeout: OnTimeout,
    /// Pods whose `emptyDir` volumes would be lost are evicted too. `false`: they block the drain.
    pub delete_empty_dir_data: bool,
    /// Pods that are treated otherwise, by their labels; the first entry that selects a pod counts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 32))]
    pub order: Vec<DrainOrder>,
}

impl Default for DrainPolicy {
    fn default() -> Self {
        Self {
            timeout_seconds: 900,
            grace_period_seconds: -1,
            on_timeout: OnTimeout::Wait,
            delete_empty_dir_data: true,
            order: Vec::new(),
        }
    }
}

/// What to do when a drain takes too long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum OnTimeout {
    /// Goes on to wait, and says what for.
    #[default]
    Wait,
    /// Deletes what is left, whatever budgets say.
    Force,
    /// Leaves the node as it is, and lets others go first.
    Skip,
}

/// How some pods are treated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DrainOrder {
    /// Which pods, by their labels.
    pub selector: Selector,
    /// Pods of a lower number go first; others have 0. The next number begins when the one before is gone.
    #[serde(default, skip_serializing_if = "is_default")]
    #[schemars(range(min = -1000, max = 1000))]
    pub order: i32,
    /// What becomes of them.
    #[serde(default, skip_serializing_if = "is_default")]
    pub behavior: DrainBehavior,
}

/// What becomes of pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum DrainBehavior {
    /// They are evicted.
    #[default]
    Drain,
    /// They stay.
    Skip,
    /// They are waited for until they end by themselves.
    WaitCompleted,
}

/// What must be well before the next node's turn.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RolloutHealth {
    /// How long, in seconds, a node has to be well after its change; then it has failed.
    #[schemars(range(min = 1, max = 86_400))]
    pub timeout_seconds: u32,
    /// What else must be well: before the first node, after each, and while it soaks.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]), length(max = 16))]
    pub gates: Vec<Gate>,
}

impl Default for RolloutHealth {
    fn default() -> Self {
        Self { timeout_seconds: 600, gates: Vec::new() }
    }
}

/// What happens when nodes fail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct FailurePolicy {
    /// How many nodes fail before the change is stopped.
    #[schemars(range(min = 1, max = 100_000))]
    pub budget: u32,
    /// What happens then.
    pub action: FailureAction,
    /// Which nodes go back.
    pub scope: RollbackScope,
}

impl Default for FailurePolicy {
    fn default() -> Self {
        Self { budget: 1, action: FailureAction::Rollback, scope: RollbackScope::FailedNodes }
    }
}

/// What happens when too many nodes failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum FailureAction {
    /// Nothing more is begun, and nodes go back to the revision before, in their turn; `scope` says which.
    #[default]
    Rollback,
    /// Nothing more is begun; nodes stay as they are.
    Pause,
}

/// Which nodes go back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RollbackScope {
    /// Those that failed. Nodes that are well with the change keep it: to take it back disturbs them once more.
    #[default]
    FailedNodes,
    /// All that have the change.
    AllNodes,
}

/// A time in which changes may begin. What was begun is finished.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Window {
    /// The days on which it begins; none means every day.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 7))]
    pub days: Vec<Day>,
    /// When it begins, as `02:00`.
    #[schemars(length(min = 5, max = 5))]
    pub start: String,
    /// How long it is open.
    #[schemars(range(min = 1, max = 10_080))]
    pub duration_minutes: u32,
    /// The time zone of `start`, such as `Europe/Berlin`.
    #[serde(default = "utc")]
    #[schemars(length(min = 1, max = 64))]
    pub time_zone: String,
}

fn utc() -> String {
    "UTC".into()
}

/// A day of the week.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[allow(missing_docs, reason = "days")]
pub enum Day {
    Mon,
    Tue,
    Wed,
    Thu,
    Fri,
    Sat,
    Sun,
}

/// How far a kubelet's version may be from the API server's. It is never newer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Skew {
    /// How many minor versions it may be behind.
    #[schemars(range(min = 0, max = 100))]
    pub max_kubelet_minors_behind: u32,
}

impl Default for Skew {
    fn default() -> Self {
        Self { max_kubelet_minors_behind: 3 }
    }
}

/// A revision that the set is kept at, until its class becomes another one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Undo {
    /// The revision that it goes back to.
    #[schemars(length(min = 1, max = 253))]
    pub to: String,
    /// The revision of the class that it leaves. Once the class has another one, this counts no more.
    #[schemars(length(min = 1, max = 253))]
    pub away_from: String,
}

/// The right of a node to be unavailable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Slot {
    /// The node.
    pub node: String,
    /// Its Node's uid: another machine of the same name has no slot.
    pub uid: String,
    /// When its turn began: no two turns of a node are the same.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub claimed: String,
    /// The revision that it goes to.
    pub revision: String,
    /// How far it is.
    pub step: SlotStep,
    /// What the change disturbs.
    #[serde(default)]
    pub disruption: Disruption,
    /// How many of its pods were not ready before: no more may be so afterwards.
    #[serde(default)]
    pub unready_pods: u32,
    /// Which pressures it had before, such as `DiskPressure`: none may be new afterwards.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pressures: Vec<String>,
    /// Since when it is that far.
    #[schemars(extend("format" = "date-time"))]
    pub since: String,
    /// A stable name of what it waits for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
    /// What it waits for.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub waiting_for: String,
}

/// How far a node in its turn is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum SlotStep {
    /// It has its turn, and is being taken out of service as far as the change asks for it.
    Claimed,
    /// Its pods are leaving.
    Draining,
    /// nodelet changes it.
    Applying,
    /// It must become well.
    Verifying,
    /// It is in service again, and watched.
    Soaking,
    /// It failed, and is put back into service.
    Failed,
}

/// A revision that failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BadRevision {
    /// The revision.
    pub revision: String,
    /// Why it is bad.
    pub reason: String,
    /// When that was found.
    #[schemars(extend("format" = "date-time"))]
    pub at: String,
}

/// A node that failed to become a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeFailure {
    /// The node.
    pub node: String,
    /// The revision.
    pub revision: String,
    /// Why.
    pub reason: String,
    /// It was passed over, and does not count as failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub skipped: bool,
    /// When that was.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub at: String,
    /// When it gets another turn by itself, if it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub retry_at: Option<String>,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn amounts_are_numbers_or_parts() {
        let amount = |text: &str| serde_json::from_str::<Amount>(text).unwrap();
        assert_eq!((amount("3").of(10), amount("\"25%\"").of(10), amount("\"5%\"").of(10)), (3, 2, 0));
        assert_eq!(amount("\"50%\"").to_string(), "50%");
    }
}
