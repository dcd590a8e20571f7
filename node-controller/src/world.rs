//! What the cluster holds, as the controller sees it at one moment.

use crate::request::Request;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use nodelet_api::objects::{NodeClass, NodeSet, NodeState};
use nodelet_api::state::ContentRef;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// Everything that decisions are made from.
#[derive(Clone, Debug, Default)]
pub struct World {
    /// Classes by name.
    pub classes: BTreeMap<String, Arc<NodeClass>>,
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
pub struct Gates(pub BTreeMap<String, Result<(), String>>);

impl Gates {
    /// The first gate that is not passed, in words.
    pub fn failing(&self) -> Option<String> {
        self.0.iter().find_map(|(name, found)| found.as_ref().err().map(|why| format!("the gate {name}: {why}")))
    }
}

/// One run of the Job of a gate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run {
    /// The gate's name.
    pub gate: String,
    /// The revision that it is about.
    pub revision: String,
    /// [`Run::BEFORE`], or the uid of the Node whose change it follows.
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
    /// The reason in words.
    pub fn sentence(self) -> String {
        match self {
            Self::Runs(sentence) | Self::Fails(sentence) => sentence,
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
