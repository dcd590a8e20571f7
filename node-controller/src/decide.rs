//! What is to be written next, from what the cluster holds. Pure: the same world gives the same answer, so a
//! controller can be killed at any moment and another one goes on.

use crate::render::{Revision, render};
use crate::world::{World, is_ready};
use kube::ResourceExt;
use nodelet_api::Disruption;
use nodelet_api::objects::{
    Condition, Grant, NodeClassStatus, NodeSet, NodeSetStatus, NodeState, NodeStateSpec, Reference, Selector,
    SelectorOperator, Step,
};
use std::collections::{BTreeMap, BTreeSet};

/// One thing to write.
#[derive(Clone, Debug, PartialEq)]
pub enum Intent {
    /// Stores a revision; it never changes.
    Store {
        /// The class that it is of.
        class: String,
        /// The revision.
        revision: Box<Revision>,
    },
    /// Says what became of a class.
    ClassStatus {
        /// Its name.
        name: String,
        /// Its status.
        status: NodeClassStatus,
    },
    /// Says what a node must become.
    Hand {
        /// The node's name.
        node: String,
        /// The set that owns it.
        set: String,
        /// What it must become.
        spec: Box<NodeStateSpec>,
    },
    /// Lets a node read and report its own state, and no other.
    Allow {
        /// Its name.
        node: String,
    },
    /// Says how far a set is.
    SetStatus {
        /// Its name.
        name: String,
        /// Its status.
        status: NodeSetStatus,
    },
}

/// Decides. Only what is not so already is in the answer. `now` is the time that transitions get.
pub fn decide(world: &World, now: &str) -> Vec<Intent> {
    let mut intents = Vec::new();
    let rendered = classes(world, now, &mut intents);
    for node in world.states.keys().filter(|node| !world.allowed.contains(*node)) {
        intents.push(Intent::Allow { node: node.clone() });
    }
    let members = members(world);
    for (name, set) in &world.sets {
        let nodes = members.of.get(name).cloned().unwrap_or_default();
        let revision = rendered.get(&set.spec.class_ref.name).filter(|revision| world.revisions.contains(*revision));
        if let Some(revision) = revision.filter(|_| !set.spec.paused) {
            hand_out(world, name, set, revision, &nodes, &mut intents);
        }
        let status = set_status(world, set, revision, &nodes, members.contested.get(name), now);
        if set.status.as_ref() != Some(&status) {
            intents.push(Intent::SetStatus { name: name.clone(), status });
        }
    }
    intents
}

/// Renders all classes; the revision of each that can be rendered.
fn classes(world: &World, now: &str, intents: &mut Vec<Intent>) -> BTreeMap<String, String> {
    let mut rendered = BTreeMap::new();
    for (name, class) in &world.classes {
        let old = class.status.clone().unwrap_or_default();
        let generation = class.metadata.generation;
        let (revision, condition) = match render(class) {
            Ok(revision) => {
                let found = ("True", "Rendered", format!("revision {}", revision.name));
                if !world.revisions.contains(&revision.name) {
                    intents.push(Intent::Store { class: name.clone(), revision: Box::new(revision.clone()) });
                }
                rendered.insert(name.clone(), revision.name.clone());
                (Some(revision.name), found)
            }
            Err(problems) => (old.revision.clone(), ("False", "Invalid", problems.to_string())),
        };
        let conditions = vec![self::condition("Rendered", condition, &old.conditions, generation, now)];
        let status = NodeClassStatus { observed_generation: generation, revision, conditions };
        if class.status.as_ref() != Some(&status) {
            intents.push(Intent::ClassStatus { name: name.clone(), status });
        }
    }
    rendered
}

/// Who belongs where.
#[derive(Debug, Default)]
struct Members {
    of: BTreeMap<String, BTreeSet<String>>,
    /// For each set the nodes that another set selects too, with that set.
    contested: BTreeMap<String, BTreeMap<String, String>>,
}

fn members(world: &World) -> Members {
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

/// Hands a revision to all nodes of a set. Every node may go at once.
fn hand_out(
    world: &World,
    name: &str,
    set: &NodeSet,
    revision: &str,
    nodes: &BTreeSet<String>,
    intents: &mut Vec<Intent>,
) {
    for node in nodes {
        let state = world.states.get(node);
        let spec = NodeStateSpec {
            node_set_ref: Some(Reference { name: name.to_owned() }),
            class_ref: Some(set.spec.class_ref.clone()),
            revision: Some(revision.to_owned()),
            step: Step::Apply,
            grant: Some(Grant {
                id: format!("{revision}-all"),
                revision: revision.to_owned(),
                disruption: Disruption::Restart,
            }),
            secrets: state.and_then(|state| state.spec.secrets.clone()),
        };
        if state.is_none_or(|state| state.spec != spec) {
            intents.push(Intent::Hand { node: node.clone(), set: name.to_owned(), spec: Box::new(spec) });
        }
    }
}

fn set_status(
    world: &World,
    set: &NodeSet,
    revision: Option<&String>,
    nodes: &BTreeSet<String>,
    contested: Option<&BTreeMap<String, String>>,
    now: &str,
) -> NodeSetStatus {
    let old = set.status.clone().unwrap_or_default();
    let count = |holds: &dyn Fn(&str) -> bool| {
        u32::try_from(nodes.iter().filter(|name| holds(name)).count()).unwrap_or(u32::MAX)
    };
    let state = |name: &str| world.states.get(name);
    let updated = |name: &str| {
        revision.is_some() && state(name).is_some_and(|state| applied(state) == revision.map(String::as_str))
    };
    let node_ready = |name: &str| world.nodes.get(name).is_some_and(|node| is_ready(node));
    let ready = |name: &str| node_ready(name) && state(name).is_some_and(|state| is_true(state, "Converged"));
    let total = count(&|_| true);
    let update_revision = revision.cloned().unwrap_or_else(|| old.update_revision.clone());
    let mut status = NodeSetStatus {
        observed_generation: set.metadata.generation,
        replicas: total,
        ready_replicas: count(&ready),
        updated_replicas: count(&updated),
        unavailable_replicas: count(&|name| !node_ready(name)),
        update_revision,
        selector: set.spec.selector.as_ref().map(as_text).unwrap_or_default(),
        conditions: Vec::new(),
    };
    let progressing = match (revision, set.spec.paused) {
        (None, _) => (
            "False",
            "NoRevision",
            format!("the class {} has no revision: see its conditions", set.spec.class_ref.name),
        ),
        (_, true) => ("False", "Paused", "the set is paused".to_owned()),
        (Some(revision), _) if status.updated_replicas < total => {
            ("True", "Updating", format!("{} of {total} nodes have {revision}", status.updated_replicas))
        }
        (Some(revision), _) => ("False", "Updated", format!("all {total} nodes have {revision}")),
    };
    let overlapping = match contested.and_then(|contested| contested.first_key_value()) {
        Some((node, others)) => (
            "True",
            "SelectedTwice",
            format!("node {node} is selected by {others} too, and belongs to neither: narrow one selector"),
        ),
        None => ("False", "Disjoint", "no other set selects the same nodes".to_owned()),
    };
    let generation = set.metadata.generation;
    status.conditions = vec![
        condition("Progressing", progressing, &old.conditions, generation, now),
        condition("Overlapping", overlapping, &old.conditions, generation, now),
    ];
    status
}

fn applied(state: &NodeState) -> Option<&str> {
    state.status.as_ref()?.applied.as_ref().map(|applied| applied.revision.as_str())
}

fn is_true(state: &NodeState, kind: &str) -> bool {
    let conditions = state.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.kind == kind && condition.status == "True")
}

/// A condition; when it changed is kept from before, as long as it is the same.
fn condition(
    kind: &str,
    (status, reason, message): (&str, &str, String),
    old: &[Condition],
    generation: Option<i64>,
    now: &str,
) -> Condition {
    let same = old.iter().find(|condition| condition.kind == kind && condition.status == status);
    Condition {
        kind: kind.to_owned(),
        status: status.to_owned(),
        reason: reason.to_owned(),
        message,
        last_transition_time: same.map_or_else(|| now.to_owned(), |same| same.last_transition_time.clone()),
        observed_generation: generation,
    }
}

/// A selector as `kubectl -l` takes it.
fn as_text(selector: &Selector) -> String {
    let labels = selector.match_labels.iter().map(|(key, value)| format!("{key}={value}"));
    let demands = selector.match_expressions.iter().map(|demand| {
        let values = demand.values.join(",");
        match demand.operator {
            SelectorOperator::In => format!("{} in ({values})", demand.key),
            SelectorOperator::NotIn => format!("{} notin ({values})", demand.key),
            SelectorOperator::Exists => demand.key.clone(),
            SelectorOperator::DoesNotExist => format!("!{}", demand.key),
        }
    });
    labels.chain(demands).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests;
