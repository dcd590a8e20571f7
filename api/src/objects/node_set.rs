//! Which nodes, and how many.

use super::{
    BadRevision, Condition, DrainPolicy, FailurePolicy, NodeFailure, Reference, RolloutHealth, Skew, Slot, Strategy,
    Undo, Window,
};
use crate::state::is_default;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The nodes that are of a class.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nodelet.dev",
    version = "v1alpha1",
    kind = "NodeSet",
    plural = "nodesets",
    singular = "nodeset",
    status = "NodeSetStatus",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct NodeSetSpec {
    /// The class that its nodes are of.
    pub class_ref: Reference,
    /// The Nodes that belong to it. A Node that two sets select belongs to neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<Selector>,
    /// How many nodes there are to be, where nodes are made for it. Without it, the nodes are those that are there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 100_000))]
    pub replicas: Option<u32>,
    /// Nothing is handed out to its nodes while this is `true`; they keep what they have.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub paused: bool,
    /// In which steps a change goes through its nodes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub strategy: Strategy,
    /// How a node is emptied before a change that asks for it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drain: DrainPolicy,
    /// What must be well before the next node's turn.
    #[serde(default, skip_serializing_if = "is_default")]
    pub health: RolloutHealth,
    /// What happens when nodes fail.
    #[serde(default, skip_serializing_if = "is_default")]
    pub failure: FailurePolicy,
    /// When changes may begin; without any, at any time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub windows: Vec<Window>,
    /// How far a kubelet's version may be from the API server's.
    #[serde(default, skip_serializing_if = "is_default")]
    pub skew: Skew,
    /// A revision that the set is kept at, until its class becomes another one; `kubectl nodes undo` writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub undo: Option<Undo>,
    /// What failed up to this moment is tried again: nodes that failed or were passed over, and revisions that failed;
    /// `kubectl nodes retry` writes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("format" = "date-time"))]
    pub retry: Option<String>,
}

/// Which Nodes belong to a set, by their labels. All that it says must be true of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Selector {
    /// Labels with exactly these values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub match_labels: BTreeMap<String, String>,
    /// Demands on labels.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub match_expressions: Vec<SelectorRequirement>,
}

/// A demand on a label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SelectorRequirement {
    /// The label.
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// What is demanded of it.
    pub operator: SelectorOperator,
    /// The values, for `In` and `NotIn`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub values: Vec<String>,
}

/// What is demanded of a label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SelectorOperator {
    /// It has one of the values.
    In,
    /// It has none of the values, or isn't there.
    NotIn,
    /// It is there.
    Exists,
    /// It isn't there.
    DoesNotExist,
}

impl Selector {
    /// Whether a Node with these labels is selected. A selector that says nothing selects nothing.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let says_something = !self.match_labels.is_empty() || !self.match_expressions.is_empty();
        says_something
            && self.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
            && self.match_expressions.iter().all(|demand| demand.holds(labels))
    }
}

/// As `kubectl -l` takes it.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let labels = self.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
        let demands = self.match_expressions.iter().map(|demand| {
            let values = demand.values.join(",");
            match demand.operator {
                SelectorOperator::In => format!("{} in ({values})", demand.key),
                SelectorOperator::NotIn => format!("{} notin ({values})", demand.key),
                SelectorOperator::Exists => demand.key.clone(),
                SelectorOperator::DoesNotExist => format!("!{}", demand.key),
            }
        });
        f.write_str(&labels.chain(demands).collect::<Vec<_>>().join(","))
    }
}

/// Labels below these are refused to kubelets by the admission plugin `NodeRestriction`.
const GUARDED: [&str; 2] = ["node-restriction.kubernetes.io", "node-role.kubernetes.io"];

impl Selector {
    /// Whether a node can't come to be selected by a label that it gives itself.
    pub fn is_guarded(&self) -> bool {
        let guarded = |key: &String| {
            let domain = key.split_once('/').map(|(domain, _)| domain).unwrap_or_default();
            GUARDED.iter().any(|one| domain == *one || domain.ends_with(&format!(".{one}")))
        };
        let demands = |demand: &SelectorRequirement| {
            matches!(demand.operator, SelectorOperator::In | SelectorOperator::Exists) && guarded(&demand.key)
        };
        self.match_labels.keys().any(guarded) || self.match_expressions.iter().any(demands)
    }
}

impl SelectorRequirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match self.operator {
            SelectorOperator::In => value.is_some_and(|value| self.values.contains(value)),
            SelectorOperator::NotIn => value.is_none_or(|value| !self.values.contains(value)),
            SelectorOperator::Exists => value.is_some(),
            SelectorOperator::DoesNotExist => value.is_none(),
        }
    }
}

/// How far a set is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSetStatus {
    /// The generation that this speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// How many nodes belong to it.
    pub replicas: u32,
    /// How many of them are ready and as their revision wants them.
    pub ready_replicas: u32,
    /// How many of them have the revision that is handed out now.
    pub updated_replicas: u32,
    /// How many of them are not available.
    pub unavailable_replicas: u32,
    /// The revision that is handed out now.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub update_revision: String,
    /// The revision that all nodes had last: what a rollback goes to.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub current_revision: String,
    /// The nodes whose turn it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["uid"]))]
    pub slots: Vec<Slot>,
    /// Revisions that failed, and are not tried again by themselves.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub bad_revisions: Vec<BadRevision>,
    /// Nodes that failed to become a revision.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<NodeFailure>,
    /// The selector as text, for what scales the set.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub selector: String,
    /// `Progressing`, `Available`, `Degraded`, `Paused`, `Overlapping`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_selected_by_labels() {
        let labels = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let demand = |operator, values: &[&str]| SelectorRequirement {
            key: "zone".into(),
            operator,
            values: values.iter().map(ToString::to_string).collect(),
        };
        let selector = Selector {
            match_labels: labels(&[("role", "worker")]),
            match_expressions: vec![demand(SelectorOperator::NotIn, &["b"])],
        };
        assert!(selector.matches(&labels(&[("role", "worker"), ("zone", "a")])));
        assert!(!selector.matches(&labels(&[("role", "worker"), ("zone", "b")])));
        assert!(!selector.matches(&labels(&[("zone", "a")])));
        assert!(!selector.is_guarded(), "a node can label itself so");
        let guarded = labels(&[("role", "worker"), ("node-role.kubernetes.io/worker", "")]);
        assert!(Selector { match_labels: guarded, ..Selector::default() }.is_guarded());
        let not = SelectorRequirement {
            key: "node-role.kubernetes.io/worker".into(),
            ..demand(SelectorOperator::NotIn, &["x"])
        };
        assert!(!Selector { match_expressions: vec![not], ..Selector::default() }.is_guarded());
        assert!(!Selector::default().matches(&labels(&[("role", "worker")])), "nothing said, nothing selected");
    }
}
