//! What a set hands out, and how far it is.

use super::Intent;
use super::classes::Rendered;
use super::contents::Contents;
use crate::world::{World, is_ready};
use nodelet_api::Disruption;
use nodelet_api::objects::{
    Condition, Grant, NodeSet, NodeSetStatus, NodeState, NodeStateSpec, Reference, Selector, SelectorOperator, Step,
};
use std::collections::{BTreeMap, BTreeSet};

/// Hands a revision to all nodes of a set. Every node may go at once.
pub(super) fn hand_out(
    world: &World,
    name: &str,
    set: &NodeSet,
    class: &Rendered,
    nodes: &BTreeSet<String>,
    intents: &mut Vec<Intent>,
) {
    let revision = class.revision.as_str();
    for node in nodes {
        let state = world.states.get(node);
        // First its Secret, then the state that names it.
        let Ok(secrets) = class.contents.hand(node, world, intents) else { continue };
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
            secrets,
        };
        if state.is_none_or(|state| state.spec != spec) {
            intents.push(Intent::Hand { node: node.clone(), set: name.to_owned(), spec: Box::new(spec) });
        }
    }
}

/// How far a set is.
pub(super) fn status(
    world: &World,
    set: &NodeSet,
    class: Option<&Rendered>,
    nodes: &BTreeSet<String>,
    contested: Option<&BTreeMap<String, String>>,
    now: &str,
) -> NodeSetStatus {
    let old = set.status.clone().unwrap_or_default();
    let revision = class.map(|class| &class.revision);
    let count = |holds: &dyn Fn(&str) -> bool| {
        u32::try_from(nodes.iter().filter(|name| holds(name)).count()).unwrap_or(u32::MAX)
    };
    let state = |name: &str| world.states.get(name);
    let updated = |name: &str| revision.is_some() && state(name).is_some_and(|state| has_what_it_must(state, revision));
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
    let missing = match class.map(|class| &class.contents) {
        Some(Contents::Missing(what)) => Some(what),
        _ => None,
    };
    let progressing = match (revision, set.spec.paused) {
        (None, _) => (
            "False",
            "NoRevision",
            format!("the class {} has no revision: see its conditions", set.spec.class_ref.name),
        ),
        (_, true) => ("False", "Paused", "the set is paused".to_owned()),
        _ if missing.is_some() => ("False", "ContentsMissing", missing.cloned().unwrap_or_default()),
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
        Condition::since("Progressing", progressing, &old.conditions, generation, now),
        Condition::since("Overlapping", overlapping, &old.conditions, generation, now),
    ];
    status
}

fn applied(state: &NodeState) -> Option<&str> {
    state.status.as_ref()?.applied.as_ref().map(|applied| applied.revision.as_str())
}

/// Whether a node has the revision, with the contents that are named with it.
fn has_what_it_must(state: &NodeState, revision: Option<&String>) -> bool {
    let contents = state.status.as_ref().and_then(|status| status.applied.as_ref()).map(|applied| &applied.secrets);
    let named = state.spec.secrets.as_ref().map(|secrets| secrets.version.as_str()).unwrap_or_default();
    applied(state) == revision.map(String::as_str) && contents.is_some_and(|contents| contents == named)
}

fn is_true(state: &NodeState, kind: &str) -> bool {
    let conditions = state.status.iter().flat_map(|status| &status.conditions);
    conditions.into_iter().any(|condition| condition.kind == kind && condition.status == "True")
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
