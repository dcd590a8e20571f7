//! The custom resources: what a node is to be, which nodes, and how far each one is.

mod gate;
mod node_class;
mod node_set;
mod node_state;
mod rollout;
mod skew;

pub use gate::{Gate, HttpGate, JobGate, JobTemplate, ObjectGate, PrometheusGate, SecretKey};
pub use node_class::{NodeClass, NodeClassSpec, NodeClassStatus, Taint, TaintEffect};
pub use node_set::{NodeSet, NodeSetSpec, NodeSetStatus, Selector, SelectorOperator, SelectorRequirement};
pub use node_state::{
    Applied, Grant, Identity, ManagedPackage, NodeSecrets, NodeState, NodeStateSpec, NodeStateStatus, OperatingSystem,
    RevisionRef, Staged, Step, StepResult, UnitReport,
};

pub use rollout::{
    Amount, BadRevision, Day, DrainBehavior, DrainOrder, DrainPolicy, FailureAction, FailurePolicy, NodeFailure,
    OnTimeout, RollbackScope, RolloutHealth, Skew, Slot, SlotStep, Strategy, StrategyType, Undo, Window,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The group of all of them.
pub const GROUP: &str = "nodelet.dev";
/// Their version.
pub const VERSION: &str = "v1alpha1";

/// The name that nodelet writes under.
pub const REPORTER: &str = "nodelet";
/// The reason of a node that does not understand the revision that it is to become.
pub const NOT_UNDERSTOOD: &str = "RevisionNotUnderstood";
/// How often, in seconds, a node renews its Lease.
pub const HEARTBEAT_SECONDS: u64 = 300;
/// The annotation of a node's own Secret: which version its contents are.
pub const CONTENTS_VERSION: &str = "nodelet.dev/contents-version";

/// The group of all nodes' own credentials.
pub const NODES_GROUP: &str = "nodelet:nodes";
/// What comes before the node's name in the user of its own credential.
pub const USER_PREFIX: &str = "nodelet:";
/// Who signs nodes' own certificates.
pub const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
/// What they are for, and nothing else.
pub const USAGES: [&str; 2] = ["client auth", "digital signature"];

/// Another object of the cluster, by name. Read leniently, as all that a `NodeState` is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Reference {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// One side of what is true of an object, in the form that all of Kubernetes has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// What it is about.
    #[serde(rename = "type")]
    #[schemars(length(max = 316))]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    #[schemars(length(max = 16))]
    pub status: String,
    /// A stable name of the cause, for programs.
    #[schemars(length(max = 1024))]
    pub reason: String,
    /// The cause in a sentence, for people.
    #[schemars(length(max = 32768))]
    pub message: String,
    /// When `status` last changed.
    #[schemars(extend("format" = "date-time"))]
    pub last_transition_time: String,
    /// The generation of the object that this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

impl Condition {
    /// A condition. When it last changed is kept from before, as long as its status is the same.
    pub fn since(
        kind: &str,
        (status, reason, message): (&str, &str, String),
        before: &[Self],
        generation: Option<i64>,
        now: &str,
    ) -> Self {
        let same = before.iter().find(|condition| condition.kind == kind && condition.status == status);
        Self {
            kind: kind.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: same.map_or_else(|| now.to_owned(), |same| same.last_transition_time.clone()),
            observed_generation: generation,
        }
    }
}

/// A time as Kubernetes writes it.
pub fn time_text(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// The same with milliseconds, where a second more or less counts.
pub fn exact_time_text(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%3fZ").to_string()
}
