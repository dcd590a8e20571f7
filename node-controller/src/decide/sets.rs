//! What a set hands out, and how far it is.

use super::classes::Rendered;
use super::contents::Contents;
use super::{Intent, turns};
use crate::rollout::{self, Member, Outcome, Scene};
use crate::world::{World, is_ready};
use jiff::Timestamp;
use nodelet_api::objects::{Condition, NodeSecrets, NodeSet, NodeSetStatus, NodeState, SlotStep, time_text};
use std::collections::{BTreeMap, BTreeSet};

/// A set, its class as far as it can be handed out, and its nodes.
#[derive(Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) name: &'a str,
    pub(super) set: &'a NodeSet,
    pub(super) class: Option<&'a Rendered>,
    pub(super) nodes: &'a BTreeSet<String>,
}

/// Moves a set on: what its nodes must become, and what it says of itself. `None` while nobody knows what they are to be.
pub(super) fn roll(
    world: &World,
    subject: &Subject<'_>,
    taken: &BTreeSet<String>,
    now: Timestamp,
    intents: &mut Vec<Intent>,
) -> Option<Outcome> {
    let Subject { name, set, class, nodes } = *subject;
    let members: BTreeMap<String, Member<'_>> =
        nodes.iter().filter_map(|node| Some((node.clone(), member(world, node)?))).collect();
    // Without a class nothing begins; turns that were begun are finished with what they were begun for.
    let before = set.status.as_ref().map(|status| status.update_revision.as_str());
    let before = before.filter(|revision| world.revisions.contains_key(*revision));
    let revision = class.map(|class| class.revision.as_str()).or(before)?;
    let kubelet = class.and_then(|class| class.kubelet.as_deref());
    let held = class.is_none().then(|| ("NoRevision", no_revision(set)));
    let scene = Scene { name, set, revision, kubelet, held, taken, members, world, now };
    // First a node's Secret, then the state that names it.
    let mut secrets: BTreeMap<String, Option<NodeSecrets>> = BTreeMap::new();
    for node in nodes {
        let known = || world.states.get(node).map(|state| state.spec.secrets.clone());
        let found = class.map_or_else(known, |class| class.contents.hand(node, world, intents).ok());
        secrets.extend(found.map(|found| (node.clone(), found)));
    }
    let outcome = rollout::roll(&scene, &secrets);
    for (node, spec) in &outcome.specs {
        intents.push(Intent::Hand { node: node.clone(), set: name.to_owned(), spec: Box::new(spec.clone()) });
    }
    for (node, cordon) in &outcome.cordons {
        intents.push(Intent::Cordon { node: node.clone(), cordon: *cordon });
    }
    intents.extend(outcome.evictions.iter().map(|eviction| Intent::Evict(eviction.clone())));
    turns::tell(name, set, &outcome, nodes, intents);
    Some(outcome)
}

fn no_revision(set: &NodeSet) -> String {
    format!("the class {} has no revision: see its conditions", set.spec.class_ref.name)
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
        selector: set.spec.selector.as_ref().map(ToString::to_string).unwrap_or_default(),
        conditions: Vec::new(),
        // What nothing is known about stays as it was.
        ..old.clone()
    };
    if outcome.is_none() {
        // The class is gone, and what it was with it: turns that nobody can finish are over, and their cordons go.
        status.slots.clear();
    }
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
    let mut note = |kind, found| {
        status.conditions.push(Condition::since(kind, found, &old.conditions, generation, &time_text(now)));
    };
    let misread = world.misread.get(&set.spec.class_ref.name);
    note("Progressing", progressing(set, class, misread, outcome, total, now));
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
    now: Timestamp,
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
        return ("False", "NoRevision", no_revision(set));
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
                format!("all {total} nodes have {target}; {} failed: correct the class, undo, or retry", bad.revision);
            return ("False", "RolledBack", sentence);
        }
        return ("False", "Updated", format!("all {total} nodes have {target}"));
    }
    let far = format!("{updated} of {total} nodes have {target}");
    // Of several turns the one that somebody should look at.
    let mut moving = outcome.slots.iter().filter(|slot| slot.step != SlotStep::Failed);
    let before = set.status.iter().flat_map(|status| &status.conditions).find(|one| one.kind == "Progressing");
    let before = before.map(|condition| condition.reason.as_str()).unwrap_or_default();
    let trouble = moving.clone().find_map(|slot| Some((slot, turns::trouble(slot, &set.spec.drain, before, now)?)));
    let moves = trouble.or_else(|| moving.next().map(|slot| (slot, "Updating")));
    match (&outcome.waits, moves) {
        (Some((reason, sentence)), None) => {
            // Where nothing is under way and nothing may begin, it does not progress.
            let status = if ["Updating", "Staging"].contains(reason) { "True" } else { "False" };
            (status, reason, format!("{far}; {sentence}"))
        }
        (_, Some((slot, reason))) => {
            let step = format!("{:?}", slot.step).to_lowercase();
            let waits =
                if slot.waiting_for.is_empty() { String::new() } else { format!(", waits for {}", slot.waiting_for) };
            ("True", reason, format!("{far}; {} is {step}{waits}", slot.node))
        }
        // Who failed with what the set goes back from is on its way.
        (None, None) => match outcome.failures.iter().find(|failure| failure.revision == *target) {
            Some(failure) => {
                let again = match &failure.retry_at {
                    Some(at) => format!("it gets another turn at {at}"),
                    None => "`kubectl nodes retry` gives it another turn".to_owned(),
                };
                let sentence = format!("{far}; {} was left out: {}; {again}", failure.node, failure.reason);
                ("False", "NodesLeftOut", sentence)
            }
            None => ("True", "Updating", far),
        },
    }
}

fn degraded(class: Option<&Rendered>, outcome: Option<&Outcome>) -> (&'static str, &'static str, String) {
    let asked = class.map(|class| class.revision.as_str()).unwrap_or_default();
    let bad = outcome.and_then(|outcome| outcome.bad.iter().find(|bad| bad.revision == asked));
    let silent = outcome.and_then(|outcome| outcome.slots.iter().find(|slot| slot.reason == "NodeSilent"));
    if let Some(slot) = silent.filter(|_| bad.is_none()) {
        return ("True", "NodeSilent", format!("node {} waits for {}", slot.node, slot.waiting_for));
    }
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
