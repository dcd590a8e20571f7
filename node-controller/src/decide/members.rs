//! Which nodes belong to which set.

use crate::world::World;
use kube::ResourceExt;
use nodelet_api::objects::NodeSet;
use std::collections::{BTreeMap, BTreeSet};

/// Who belongs where.
#[derive(Debug, Default)]
pub(crate) struct Members {
    pub(crate) of: BTreeMap<String, BTreeSet<String>>,
    /// For each set the nodes that another set selects too, with that set.
    pub(crate) contested: BTreeMap<String, BTreeMap<String, String>>,
}

/// Finds it.
pub(crate) fn members(world: &World) -> Members {
    let mut members = Members::default();
    for (node, object) in &world.nodes {
        let selects =
            |set: &NodeSet| set.spec.selector.as_ref().is_some_and(|selector| selector.matches(object.labels()));
        let sets: Vec<&String> = world.sets.iter().filter(|(_, set)| selects(set)).map(|(name, _)| name).collect();
        match sets.as_slice() {
            [] => {}
            [only] => drop(members.of.entry((*only).clone()).or_default().insert(node.clone())),
            several => {
                for set in several {
                    let others = several.iter().filter(|other| other != &set).map(|name| name.as_str());
                    let others = others.collect::<Vec<_>>().join(", ");
                    members.contested.entry((*set).clone()).or_default().insert(node.clone(), others);
                }
            }
        }
    }
    members
}

impl Members {
    /// Whether a node is anybody's.
    pub(super) fn has(&self, node: &str) -> bool {
        self.of.values().any(|nodes| nodes.contains(node))
            || self.contested.values().any(|nodes| nodes.contains_key(node))
    }
}
