//! What the cluster holds, as the controller sees it at one moment.

use crate::request::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use nodelet_api::Disruption;
use nodelet_api::objects::{NodeClass, NodeSet, NodeState, Slot, SlotStep};
use nodelet_api::state::ContentRef;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Everything that decisions are made from.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Classes by name.
    pub classes: BTreeMap<String, Arc<NodeClass>>,
    /// Classes that say something which this controller does not know, and what that is. Their nodes stay as they are.
    pub misread: BTreeMap<String, String>,
    /// Sets by name.
    pub sets: BTreeMap<String, Arc<NodeSet>>,
    /// Nodes by name.
    pub nodes: BTreeMap<String, Arc<Node>>,
    /// States by name.
    pub states: BTreeMap<String, Arc<NodeState>>,
    /// The nodes whose rights are given.
    pub allowed: BTreeSet<String>,
    /// The revisions that are stored, by name.
    pub revisions: BTreeMap<String, StoredRevision>,
    /// Requests for certificates that nobody answered yet.
    pub requests: Vec<Request>,
    /// What was read of objects that classes take contents from.
    pub sources: BTreeMap<ContentRef, Source>,
    /// The version of the contents in each node's own Secret, by node.
    pub stored: BTreeMap<String, String>,
    /// When each nodelet was last heard of, by the API server's clock, and how long that counts, in seconds.
    pub heard: BTreeMap<String, (Timestamp, i64)>,
    /// The pods of nodes whose turn it is, by node.
    pub pods: BTreeMap<String, Vec<Arc<Pod>>>,
    /// All budgets for disruptions.
    pub budgets: Vec<Arc<PodDisruptionBudget>>,
    /// The pods of budgets that keep one from leaving, by the budget's namespace and name.
    pub covered: BTreeMap<String, Vec<Arc<Pod>>>,
    /// Why the API server did not let pods go, by what it was asked.
    pub refused: BTreeMap<String, String>,
    /// The volumes of nodes that are drained, by node; not known while they are not listed.
    pub volumes: BTreeMap<String, Vec<Attached>>,
    /// What was found at the gates of sets, by set.
    pub gates: BTreeMap<String, Gates>,
    /// What became of the Jobs of sets' gates, by set.
    pub runs: BTreeMap<String, Runs>,
    /// The API server's version.
    pub api_server: Option<String>,
    /// The node that this controller runs on.
    pub own_node: Option<String>,
    /// Groups whose bootstrap tokens may ask for any node's certificate.
    pub bootstrap_groups: BTreeSet<String>,
    /// Since when this controller leads without a gap: what nodes did before, nobody may have seen.
    pub leads_since: Option<Timestamp>,
}

impl World {
    /// Whether any node has its turn.
    pub fn is_busy(&self) -> bool {
        self.sets.values().any(|set| set.status.as_ref().is_some_and(|status| !status.slots.is_empty()))
    }

    /// The nodes that have their turn.
    pub fn busy_nodes(sets: &BTreeMap<String, Arc<NodeSet>>) -> BTreeSet<String> {
        let slots = sets.values().flat_map(|set| set.status.iter().flat_map(|status| &status.slots));
        slots.map(|slot| slot.node.clone()).collect()
    }

    /// The nodes whose pods leave, or are about to.
    pub fn draining_nodes(sets: &BTreeMap<String, Arc<NodeSet>>) -> BTreeSet<String> {
        let slots = sets.values().flat_map(|set| set.status.iter().flat_map(|status| &status.slots));
        let drains = |slot: &&Slot| slot.step <= SlotStep::Draining && slot.disruption >= Disruption::Drain;
        slots.filter(drains).map(|slot| slot.node.clone()).collect()
    }
}

/// A volume that is attached to a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its name.
    pub volume: String,
    /// The namespace and name of the claim that it is for.
    pub claim: Option<(String, String)>,
}

/// A revision that is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRevision {
    /// The class that it is of.
    pub class: String,
    /// When it was stored.
    pub at: Timestamp,
}

/// What was read of one key of an object.
#[derive(Clone, PartialEq, Eq)]
pub enum Source {
    /// Its content, with a stamp of the object that changes when the object does.
    Found {
        /// The content.
        content: Vec<u8>,
        /// The stamp; nothing of the content can be found from it.
        stamp: String,
    },
    /// The object, or the key in it, isn't there or can't be read.
    Missing,
    /// It is not known yet.
    Unknown,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Never the content.
        f.write_str(match self {
            Self::Found { .. } => "found",
            Self::Missing => "missing",
            Self::Unknown => "unknown",
        })
    }
}

/// What was found at the gates of a set that are the same for all its nodes. One that nobody asked yet is not in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Gates(pub BTreeMap<String, Answer>);

/// What was found at a gate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// When the question began: what changed after that, it does not speak of.
    pub asked: Timestamp,
    /// Whether it is passed.
    pub found: Result<(), Held>,
}

impl Gates {
    /// Why not all are passed, with the gate's name. What is broken goes before what only takes its time. Answers to
    /// questions from before `since` say nothing.
    pub fn held(&self, since: Option<Timestamp>) -> Option<Held> {
        let held = self.0.iter().filter_map(|(name, answer)| {
            if since.is_some_and(|since| answer.asked < since) {
                return Some(Held::Runs("it was not looked at since the node changed".to_owned()).at_gate(name));
            }
            Some(answer.found.as_ref().err()?.clone().at_gate(name))
        });
        held.min_by_key(|held| matches!(held, Held::Runs(_)))
    }
}

/// One run of the Job of a gate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// The gate's name.
    pub gate: String,
    /// The revision that it is about.
    pub revision: String,
    /// [`Run::BEFORE`], with the moment of a retry behind `@`; or the uid of the Node whose change it follows, and when that
    /// turn began.
    pub occasion: String,
}

impl Run {
    /// The occasion before the first node. No uid looks like it.
    pub const BEFORE: &'static str = "before";
}

/// What became of each run; one that nobody looked at yet is not in it.
pub type Runs = BTreeMap<Run, Result<(), Held>>;

/// Why a gate is not passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Held {
    /// It is under way, and nothing is wrong with it.
    Runs(String),
    /// It does not hold.
    Fails(String),
}

impl Held {
    /// Its stable name, and what is said of it.
    pub fn told(self) -> (&'static str, String) {
        match self {
            Self::Runs(sentence) => ("WaitingForGate", sentence),
            Self::Fails(sentence) => ("GateFailing", sentence),
        }
    }

    /// The same with the name of the gate that says it.
    #[must_use]
    pub fn at_gate(self, gate: &str) -> Self {
        match self {
            Self::Runs(sentence) => Self::Runs(format!("the gate {gate}: {sentence}")),
            Self::Fails(sentence) => Self::Fails(format!("the gate {gate}: {sentence}")),
        }
    }
}

/// Objects by name.
pub fn by_name<K: ResourceExt>(objects: Vec<Arc<K>>) -> BTreeMap<String, Arc<K>> {
    objects.into_iter().map(|object| (object.name_any(), object)).collect()
}

/// A Node whose kubelet says that it is ready.
pub fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
