//! What is told of the turns of nodes, and what they must not leave behind.

use super::{Intent, Telling};
use crate::rollout::{CORDONED, Outcome};
use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use nodelet_api::objects::{DrainPolicy, NodeFailure, NodeSet, Slot, SlotStep};
use std::collections::{BTreeMap, BTreeSet};

/// Pods leave, and nodes come back, within so much; what takes longer somebody may want to look at.
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);

/// Why somebody should look at a turn, if so: a stable name. `before` is what was said last.
pub(super) fn trouble(slot: &Slot, policy: &DrainPolicy, before: &str, now: Timestamp) -> Option<&'static str> {
    let passed = slot.since.parse::<Timestamp>().map_or(SignedDuration::ZERO, |since| now.duration_since(since));
    match slot.reason.as_str() {
        "GateFailing" => Some("GateFailing"),
        "NodeSilent" => Some("NodeSilent"),
        "NodeUnwell" if passed > PATIENCE => Some("NodeUnwell"),
        // A pod that leaves and the next one that is kept take turns: that is said once for the whole drain.
        _ if slot.step == SlotStep::Draining && before == "DrainBlocked" => Some("DrainBlocked"),
        "DisruptionBudget" | "PodBlocks" | "PodCompleting" | "EvictionRefused" | "VolumesAttached" | "ListingPods"
        | "ListingVolumes"
            if passed > PATIENCE =>
        {
            Some("DrainBlocked")
        }
        "PodsLeaving" if passed > SignedDuration::from_secs(policy.timeout_seconds.into()) => Some("DrainBlocked"),
        _ => None,
    }
}

/// Tells of turns that begin and end, on the Nodes: that is where somebody looks who wonders about a node.
pub(super) fn tell(
    name: &str,
    set: &NodeSet,
    outcome: &Outcome,
    members: &BTreeSet<String>,
    intents: &mut Vec<Intent>,
) {
    let before = set.status.iter().flat_map(|status| &status.slots);
    let before: BTreeMap<&str, &Slot> = before.map(|slot| (slot.uid.as_str(), slot)).collect();
    let mut say = |node: &str, warning: bool, reason: &str, note: String| {
        let (name, reason) = (node.to_owned(), reason.to_owned());
        intents.push(Intent::Tell(Telling { kind: "Node", name, warning, reason, note }));
    };
    for slot in &outcome.slots {
        let known = before.get(slot.uid.as_str());
        if known.is_none() {
            let note =
                format!("NodeSet {name}: its turn to become {}; that disturbs: {}", slot.revision, slot.disruption);
            say(&slot.node, false, "TurnBegan", note);
        }
        if slot.step == SlotStep::Failed && known.is_none_or(|known| known.step != SlotStep::Failed) {
            let ended = |failure: &&NodeFailure| failure.node == slot.node && failure.revision == slot.revision;
            if let Some(failure) = outcome.failures.iter().find(ended) {
                let reason = if failure.skipped { "TurnSkipped" } else { "TurnFailed" };
                say(&slot.node, true, reason, format!("NodeSet {name}, {}: {}", slot.revision, failure.reason));
            }
        }
    }
    for (uid, slot) in before {
        let over = !outcome.slots.iter().any(|now| now.uid == uid);
        if over && slot.step != SlotStep::Failed && members.contains(&slot.node) {
            say(&slot.node, false, "TurnEnded", format!("NodeSet {name}: it has {}, and is well", slot.revision));
        }
    }
}

/// Takes our cordons from Nodes that have no turn: also from those that left their set, and whose set is gone.
pub(super) fn uncordon(world: &World, held: &BTreeSet<String>, intents: &mut Vec<Intent>) {
    for (name, node) in &world.nodes {
        let ours = node.annotations().contains_key(CORDONED);
        if ours && !node.metadata.uid.as_ref().is_some_and(|uid| held.contains(uid)) {
            intents.push(Intent::Cordon { node: name.clone(), cordon: false });
        }
    }
}
