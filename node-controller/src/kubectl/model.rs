//! What is shown of sets and their nodes, as data. Pure, and without a word about terminals: a page in a browser could
//! show the same.

use crate::decide::members::{Members, members};
use crate::decide::nodes::CONVERGED;
use crate::rollout::PAUSED;
use crate::world::World;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::ResourceExt;
use nodelet_api::Disruption;
use nodelet_api::objects::{
    Condition, NodeSet, NodeSetStatus, NodeState, NodeStateStatus, Slot, SlotStep, StrategyType,
};
use serde::Serialize;
use std::collections::BTreeSet;

/// A set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SetRow {
    /// Its name.
    pub(super) name: String,
    /// Its class.
    pub(super) class: String,
    /// The revision that its nodes go to.
    pub(super) revision: String,
    /// How many nodes have it.
    pub(super) updated: usize,
    /// How many nodes there are.
    pub(super) total: usize,
    /// A stable name of how far it is.
    pub(super) reason: String,
    /// How far it is, in a sentence.
    pub(super) message: String,
    /// What somebody should look at.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) troubles: Vec<String>,
    /// Its nodes.
    pub(super) nodes: Vec<NodeRow>,
}

/// A node of a set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeRow {
    /// Its name.
    pub(super) name: String,
    /// How far it is.
    pub(super) step: NodeStep,
    /// Since when, where that is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) since: String,
    /// The revision that it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) applied: Option<String>,
    /// The revision that it must become.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) wanted: String,
    /// What that disturbs, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) disruption: Option<Disruption>,
    /// Why it is not done, or what is not well with it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(super) reason: String,
}

/// How far a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum NodeStep {
    /// It has its turn.
    Claimed,
    /// Its pods are leaving.
    Draining,
    /// It is changed.
    Applying,
    /// It must become well.
    Verifying,
    /// It is watched.
    Soaking,
    /// It failed.
    Failed,
    /// It has what it must have.
    Done,
    /// It is ready for its turn.
    Staged,
    /// It is not ready for its turn.
    Waiting,
    /// Nothing is begun there.
    Paused,
}

impl NodeStep {
    /// As it is written.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Claimed => "claimed",
            Self::Draining => "draining",
            Self::Applying => "applying",
            Self::Verifying => "verifying",
            Self::Soaking => "soaking",
            Self::Failed => "failed",
            Self::Done => "done",
            Self::Staged => "staged",
            Self::Waiting => "waiting",
            Self::Paused => "paused",
        }
    }
}

impl From<SlotStep> for NodeStep {
    fn from(step: SlotStep) -> Self {
        match step {
            SlotStep::Claimed => Self::Claimed,
            SlotStep::Draining => Self::Draining,
            SlotStep::Applying => Self::Applying,
            SlotStep::Verifying => Self::Verifying,
            SlotStep::Soaking => Self::Soaking,
            SlotStep::Failed => Self::Failed,
        }
    }
}

/// All sets.
pub(super) fn sets(world: &World) -> Vec<SetRow> {
    let members = members(world);
    world.sets.iter().map(|(name, set)| set_row(world, &members, name, set)).collect()
}

/// One set.
pub(super) fn set(world: &World, name: &str, set: &NodeSet) -> SetRow {
    set_row(world, &members(world), name, set)
}

fn set_row(world: &World, members: &Members, name: &str, set: &NodeSet) -> SetRow {
    let status = set.status.clone().unwrap_or_default();
    let revision = target(world, set);
    let nodes: Vec<NodeRow> =
        nodes_of(world, members, name).iter().map(|node| node_row(world, set, &revision, node)).collect();
    let (reason, message) = progress(set, &status);
    let trouble = |kind| condition(&status.conditions, kind).filter(|condition| condition.status == "True");
    let troubles = ["Degraded", "Overlapping"].into_iter().filter_map(trouble);
    SetRow {
        name: name.to_owned(),
        class: set.spec.class_ref.name.clone(),
        updated: nodes.iter().filter(|node| node.step == NodeStep::Done).count(),
        total: nodes.len(),
        revision,
        reason,
        message,
        troubles: troubles.map(|condition| condition.message.clone()).collect(),
        nodes,
    }
}

/// The revision that a set goes to; what its class asks for, until the controller said it.
pub(super) fn target(world: &World, set: &NodeSet) -> String {
    let said = set.status.as_ref().map(|status| status.update_revision.clone()).filter(|name| !name.is_empty());
    said.or_else(|| asked(world, set)).unwrap_or_default()
}

/// The revision that a set's class renders to.
pub(super) fn asked(world: &World, set: &NodeSet) -> Option<String> {
    world.classes.get(&set.spec.class_ref.name)?.status.as_ref()?.revision.clone()
}

/// The nodes of a set. Where Nodes may not be read, states name their set too.
pub(super) fn nodes_of(world: &World, members: &Members, set: &str) -> BTreeSet<String> {
    let mut nodes = members.of.get(set).cloned().unwrap_or_default();
    let named = world.states.iter().filter(|(node, state)| {
        !world.nodes.contains_key(*node) && state.spec.node_set_ref.as_ref().is_some_and(|one| one.name == set)
    });
    nodes.extend(named.map(|(node, _)| node.clone()));
    nodes
}

/// The reason of a set whose last change the controller has not seen.
pub(super) const NOT_SEEN: &str = "NotSeen";

/// How far a set is: a reason, and a sentence without the numbers, which are shown beside it.
fn progress(set: &NodeSet, status: &NodeSetStatus) -> (String, String) {
    if status.observed_generation < set.metadata.generation {
        return (NOT_SEEN.into(), "node-controller has not seen the set's last change: does it run?".into());
    }
    let Some(progressing) = condition(&status.conditions, "Progressing") else { return (String::new(), String::new()) };
    let rest = match progressing.message.split_once("; ") {
        Some((numbers, rest)) if numbers.contains(" nodes have ") => rest,
        None if progressing.message.contains(" nodes have ") => "",
        _ => &progressing.message,
    };
    (progressing.reason.clone(), rest.to_owned())
}

/// One node of a set that goes to a revision.
pub(super) fn node_row(world: &World, set: &NodeSet, revision: &str, name: &str) -> NodeRow {
    let node = world.nodes.get(name).map(AsRef::as_ref);
    let state = world.states.get(name).map(AsRef::as_ref);
    let applied = status_of(state).and_then(|status| status.applied.as_ref());
    let mut row = NodeRow {
        name: name.to_owned(),
        step: NodeStep::Waiting,
        since: String::new(),
        applied: applied.map(|applied| applied.revision.clone()),
        wanted: revision.to_owned(),
        disruption: staged(state, revision),
        reason: String::new(),
    };
    if let Some(slot) = slot_of(set, name, node) {
        row.step = slot.step.into();
        row.since.clone_from(&slot.since);
        row.wanted.clone_from(&slot.revision);
        row.disruption = Some(slot.disruption);
        row.reason.clone_from(&slot.waiting_for);
        if let Some(reason) = failure(set, name, &slot.revision).filter(|_| slot.step == SlotStep::Failed) {
            row.reason = reason;
        }
    } else if has(state, revision) {
        row.step = NodeStep::Done;
        row.since = applied.map(|applied| applied.at.clone()).unwrap_or_default();
        row.disruption = None;
        row.reason = unwell(node, state);
    } else if let Some(reason) = failure(set, name, revision) {
        (row.step, row.reason) = (NodeStep::Failed, reason);
    } else if node.is_some_and(is_paused) {
        (row.step, row.reason) = (NodeStep::Paused, format!("its Node has the annotation {PAUSED}"));
    } else if set.spec.paused {
        (row.step, row.reason) = (NodeStep::Paused, "the set is paused".to_owned());
    } else {
        (row.step, row.reason) = pending(set, node, state, revision);
    }
    row
}

/// How far a node is that has no turn yet.
fn pending(set: &NodeSet, node: Option<&Node>, state: Option<&NodeState>, revision: &str) -> (NodeStep, String) {
    let Some(state) = state else { return (NodeStep::Waiting, "it has no NodeState yet".to_owned()) };
    let bad = set.status.iter().flat_map(|status| &status.bad_revisions).any(|bad| bad.revision == revision);
    if bad && state.spec.revision.as_deref() != Some(revision) {
        return (NodeStep::Waiting, format!("it keeps what it has: {revision} failed"));
    }
    if state.status.is_none() {
        return (NodeStep::Waiting, "its nodelet has not reported yet".to_owned());
    }
    let wrong = unwell(node, Some(state));
    if !wrong.is_empty() {
        return (NodeStep::Waiting, wrong);
    }
    if set.spec.strategy.r#type == StrategyType::OnDelete && state.spec.revision.as_deref() != Some(revision) {
        return (NodeStep::Waiting, "it changes when its NodeState is deleted".to_owned());
    }
    let says = status_of(Some(state)).map(|status| status.waiting_for.clone()).unwrap_or_default();
    match staged(Some(state), revision) {
        // What disturbs nothing needs no turn; what the node says is what counts there.
        Some(Disruption::None) if !says.is_empty() => (NodeStep::Staged, says),
        Some(_) => (NodeStep::Staged, "it waits for its turn".to_owned()),
        None if says.is_empty() => (NodeStep::Waiting, "it makes the revision ready".to_owned()),
        None => (NodeStep::Waiting, says),
    }
}

/// What is not well with a node, whatever it has: nothing, where all is.
fn unwell(node: Option<&Node>, state: Option<&NodeState>) -> String {
    if let Some(silent) = node.and_then(silent) {
        return silent.message.clone().unwrap_or_else(|| "its nodelet is silent".to_owned());
    }
    let conditions = status_of(state).map(|status| status.conditions.as_slice()).unwrap_or_default();
    let wrong = ["Degraded", "Drifted"].into_iter().filter_map(|kind| condition(conditions, kind));
    let wrong = wrong.filter(|condition| condition.status == "True");
    wrong.map(|condition| format!("{}: {}", condition.reason, condition.message)).next().unwrap_or_default()
}

/// The condition of a Node whose nodelet was not heard of for long.
pub(super) fn silent(node: &Node) -> Option<&NodeCondition> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let mut found = conditions.filter(|condition| condition.type_ == CONVERGED);
    found.find(|condition| condition.reason.as_deref() == Some("NodeletSilent"))
}

/// A condition of a kind.
pub(super) fn condition<'a>(conditions: &'a [Condition], kind: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.kind == kind)
}

/// Why a class can't be looked at with this version; begins with a noun.
pub(super) fn not_understood(class: &str, error: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("class {class} is not understood by kubectl-nodes {version}: {error}; install a newer one")
}

/// What a node's nodelet says.
pub(super) fn status_of(state: Option<&NodeState>) -> Option<&NodeStateStatus> {
    state.and_then(|state| state.status.as_ref())
}

/// Whether a node has a revision, with the contents that its state names.
pub(super) fn has(state: Option<&NodeState>, revision: &str) -> bool {
    let Some(state) = state.filter(|_| !revision.is_empty()) else { return false };
    let version = state.spec.secrets.as_ref().map(|secrets| secrets.version.as_str()).unwrap_or_default();
    let applied = status_of(Some(state)).and_then(|status| status.applied.as_ref());
    applied.is_some_and(|applied| applied.revision == revision && applied.secrets == version)
}

/// What becoming a revision disturbs, once a node knows.
fn staged(state: Option<&NodeState>, revision: &str) -> Option<Disruption> {
    let staged = status_of(state).and_then(|status| status.staged.as_ref())?;
    (staged.revision == revision).then_some(staged.disruption)
}

/// A node's turn.
pub(super) fn slot_of<'a>(set: &'a NodeSet, name: &str, node: Option<&Node>) -> Option<&'a Slot> {
    let slots = set.status.as_ref().map(|status| status.slots.as_slice()).unwrap_or_default();
    // Another machine of the same name has no turn.
    let same = |slot: &&Slot| node.is_none_or(|node| node.metadata.uid.as_ref() == Some(&slot.uid));
    slots.iter().find(|slot| slot.node == name && same(slot))
}

/// Why a node failed to become a revision.
pub(super) fn failure(set: &NodeSet, node: &str, revision: &str) -> Option<String> {
    let failures = set.status.iter().flat_map(|status| &status.failures);
    let mut found = failures.filter(|failure| failure.node == node && failure.revision == revision);
    found
        .next()
        .map(|failure| if failure.skipped { format!("left out: {}", failure.reason) } else { failure.reason.clone() })
}

/// Whether a Node is left as it is.
pub(super) fn is_paused(node: &Node) -> bool {
    node.annotations().get(PAUSED).is_some_and(|value| value == "true")
}

#[cfg(test)]
mod tests;
