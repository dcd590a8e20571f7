//! What the cluster holds, as the controller sees it at one moment.

use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use nodelet_api::objects::{NodeClass, NodeSet, NodeState};
use std::collections::{BTreeMap, BTreeSet};
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
    /// The names of the revisions that are stored.
    pub revisions: BTreeSet<String>,
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
