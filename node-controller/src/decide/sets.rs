//! What a set hands out, and how far it is.

use super::Intent;
use super::classes::Rendered;
use super::contents::Contents;
use crate::rollout::{self, Member, Outcome, Scene};
use crate::world::{World, is_ready};
use jiff::Timestamp;
use nodelet_api::objects::{
    Condition, NodeSecrets, NodeSet, NodeSetStatus, NodeState, Selector, SelectorOperator, SlotStep, time_text,
};
use std::collections::{BTreeMap, BTreeSet};

/// Moves a set on: what its nodes must become, and what it says of itself.
pub(super) fn roll(
    world: &World,
    name: &str,
    set: &NodeSet,
    class: &Rendered,
    nodes: &BTreeSet<String>,
    now: Timestamp,
    intents: &mut Vec<Intent>,
) -> Outcome {
    let members: BTreeMap<String, Member<'_>> =
        nodes.iter().filter_map(|node| Some((node.clone(), member(world, node)?))).collect();
    let kubelet = class.kubelet.as_deref();
    let scene = Scene { name, set, revision: &class.revision, kubelet, members, world, now };
    // First a node's Secret, then the state that names it.
    let secrets: BTreeMap<String, Option<NodeSecrets>> =
        nodes.iter().filter_map(|node| Some((node.clone(), class.contents.hand(node, world, intents).ok()?))).collect();
    let outcome = rollout::roll(&scene, &secrets);
    for (node, spec) in &outcome.specs {
        intents.push(Intent::Hand { node: node.clone(), set: name.to_owned(), spec: Box::new(spec.clone()) });
    }
    for (node, cordon) in &outcome.cordons {
        intents.push(Intent::Cordon { node: node.clone(), cordon: *cordon });
    }
    intents.extend(outcome.evictions.iter().map(|eviction| Intent::Evict(eviction.clone())));
    outcome
}

fn member<'a>(world: &'a World, name: &str) -> Option<Member<'a>> {
    Some(Member {
        node: world.nodes.get(name)?,
        state: world.states.get(name).map(AsRef::as_ref),
        pods: world.pods.get(name).map(Vec::as_slice),
    })
}

/// How far a set is.
pub(super) fn status(
    world: &World,
    set: &NodeSet,
    class: Option<&Rendered>,
    outcome: Option<&Outcome>,
    nodes: &BTreeSet<String>,
    contested: Option<&BTreeMap<String, String>>,
    now: Timestamp,
) -> NodeSetStatus {
    let old = set.status.clone().unwrap_or_default();
    let now = time_text(now);
    let count = |holds: &dyn Fn(&str) -> bool| {
        u32::try_from(nodes.iter().filter(|name| holds(name)).count()).unwrap_or(u32::MAX)
    };
    let node_ready = |name: &str| world.nodes.get(name).is_some_and(|node| is_ready(node));
    let converged = |name: &str| world.states.get(name).is_some_and(|state| is_true(state, "Converged"));
    let total = count(&|_| true);
    let unavailable = count(&|name| {
        let cordoned = world.nodes.get(name).and_then(|node| node.spec.as_ref()?.unschedulable).unwrap_or(false);
        !node_ready(name) || cordoned
    });
    let mut status = NodeSetStatus {
        observed_generation: set.metadata.generation,
        replicas: total,
        ready_replicas: count(&|name| node_ready(name) && converged(name)),
        unavailable_replicas: unavailable,
        selector: set.spec.selector.as_ref().map(as_text).unwrap_or_default(),
        conditions: Vec::new(),
        // What nothing is known about stays as it was.
        ..old.clone()
    };
    if let Some(outcome) = outcome {
        status.updated_replicas = u32::try_from(outcome.updated).unwrap_or(u32::MAX);
        status.update_revision.clone_from(&outcome.target);
        status.current_revision.clone_from(&outcome.current);
        status.slots.clone_from(&outcome.slots);
        status.failures.clone_from(&outcome.failures);
        status.bad_revisions.clone_from(&outcome.bad);
    }
    let generation = set.metadata.generation;
    let limit = set.spec.strategy.max_unavailable.of(nodes.len()).max(1);
    let mut note =
        |kind, found| status.conditions.push(Condition::since(kind, found, &old.conditions, generation, &now));
    let misread = world.misread.get(&set.spec.class_ref.name);
    note("Progressing", progressing(set, class, misread, outcome, total));
    note(
        "Overlapping",
        match contested.and_then(|contested| contested.first_key_value()) {
            Some((twice, others)) => (
                "True",
                "SelectedTwice",
                format!("node {twice} is selected by {others} too, and belongs to neither: narrow one selector"),
            ),
            None => ("False", "Disjoint", "no other set selects the same nodes".to_owned()),
        },
    );
    note(
        "Available",
        if usize::try_from(unavailable).unwrap_or(usize::MAX) <= limit {
            ("True", "EnoughNodes", format!("{unavailable} of {total} nodes are unavailable, and {limit} may be"))
        } else {
            ("False", "TooFewNodes", format!("{unavailable} of {total} nodes are unavailable, and only {limit} may be"))
        },
    );
    note("Degraded", degraded(class, outcome));
    status
}

fn progressing(
    set: &NodeSet,
    class: Option<&Rendered>,
    misread: Option<&String>,
    outcome: Option<&Outcome>,
    total: u32,
) -> (&'static str, &'static str, String) {
    if let Some(error) = misread {
        let (name, version) = (&set.spec.class_ref.name, env!("CARGO_PKG_VERSION"));
        let sentence = format!(
            "the class {name} is not understood by node-controller {version}: {error}; if a newer version knows that, \
             node-controller must be upgraded first"
        );
        return ("False", "ClassNotUnderstood", sentence);
    }
    let (Some(class), Some(outcome)) = (class, outcome) else {
        let name = &set.spec.class_ref.name;
        return ("False", "NoRevision", format!("the class {name} has no revision: see its conditions"));
    };
    if let Contents::Missing(what) = &class.contents {
        return ("False", "ContentsMissing", what.clone());
    }
    let (target, updated) = (&outcome.target, outcome.updated);
    if updated == usize::try_from(total).unwrap_or(usize::MAX) {
        // They are well, and yet not what the class asks for. Who has undone that knows.
        let undone = set.spec.undo.as_ref().is_some_and(|undo| undo.away_from == class.revision);
        let bad = outcome.bad.iter().find(|bad| bad.revision == class.revision && bad.revision != *target);
        if let Some(bad) = bad.filter(|_| !undone) {
            let sentence =
                format!("all {total} nodes have {target}; {} failed: correct the class, or undo", bad.revision);
            return ("False", "RolledBack", sentence);
        }
        return ("False", "Updated", format!("all {total} nodes have {target}"));
    }
    let far = format!("{updated} of {total} nodes have {target}");
    let moves = outcome.slots.iter().find(|slot| slot.step != SlotStep::Failed);
    match (&outcome.waits, moves) {
        (Some((reason, sentence)), None) => {
            // Where nothing is under way and nothing may begin, it does not progress.
            let status = if ["Updating", "Staging"].contains(reason) { "True" } else { "False" };
            (status, reason, format!("{far}; {sentence}"))
        }
        (_, Some(slot)) => {
            let step = format!("{:?}", slot.step).to_lowercase();
            let waits =
                if slot.waiting_for.is_empty() { String::new() } else { format!(", waits for {}", slot.waiting_for) };
            ("True", "Updating", format!("{far}; {} is {step}{waits}", slot.node))
        }
        (None, None) => match outcome.failures.first() {
            Some(failure) => {
                ("False", "NodesLeftOut", format!("{far}; {} was left out: {}", failure.node, failure.reason))
            }
            None => ("True", "Updating", far),
        },
    }
}

fn degraded(class: Option<&Rendered>, outcome: Option<&Outcome>) -> (&'static str, &'static str, String) {
    let asked = class.map(|class| class.revision.as_str()).unwrap_or_default();
    let bad = outcome.and_then(|outcome| outcome.bad.iter().find(|bad| bad.revision == asked));
    match (bad, outcome.and_then(|outcome| outcome.failures.iter().find(|failure| !failure.skipped))) {
        (Some(bad), _) => ("True", "RevisionFailed", format!("revision {} failed: {}", bad.revision, bad.reason)),
        (None, Some(failure)) => ("True", "NodeFailed", format!("node {} failed: {}", failure.node, failure.reason)),
        (None, None) => ("False", "AsExpected", String::new()),
    }
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
