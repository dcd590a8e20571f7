//! Jobs of gates: when each is run, and what its end means for the turns.
//!
//! Once before the first node of a revision, and once after each node's change. Where nodes go back, nothing is run: a way
//! back must not wait for what may be broken.

use super::{Outcome, Scene};
use crate::world::{Held, Run};
use nodelet_api::objects::{Gate, NodeFailure, NodeSet, Slot, SlotStep};

/// The runs that are due, by what the set's status says. A passed one stays due until its occasion is over.
pub(crate) fn wanted(set: &NodeSet) -> Vec<(&Gate, Run)> {
    let Some(status) = &set.status else { return Vec::new() };
    let target = status.update_revision.as_str();
    let first = is_first(status.updated_replicas == 0, target, &status.current_revision, &status.slots);
    let before = first.then(|| (target, before_first(set)));
    let after = status.slots.iter().filter(|slot| is_followed(set, slot));
    let after = after.map(|slot| (slot.revision.as_str(), after_turn(slot)));
    let occasions: Vec<(&str, String)> = before.into_iter().chain(after).collect();
    let of_gate = |gate| occasions.iter().map(move |(revision, occasion)| (gate, run(gate, revision, occasion)));
    jobs(set).flat_map(of_gate).collect()
}

/// Why no turn may begin, as far as Jobs say.
pub(super) fn before(scene: &Scene<'_>, outcome: &Outcome) -> Option<Held> {
    let first = is_first(outcome.updated == 0, &outcome.target, &outcome.current, &outcome.slots);
    let occasion = before_first(scene.set);
    let due = jobs(scene.set).filter(|_| first).filter_map(|gate| held(scene, gate, &outcome.target, &occasion));
    let failed =
        outcome.slots.iter().filter_map(|slot| after(scene, slot).filter(|held| matches!(held, Held::Fails(_))));
    // What is broken goes before what only takes its time.
    due.chain(failed).chain(unasked(scene)).min_by_key(|held| matches!(held, Held::Runs(_)))
}

/// Why a node that soaks is not done, as far as Jobs say.
pub(super) fn after(scene: &Scene<'_>, slot: &Slot) -> Option<Held> {
    if !is_followed(scene.set, slot) {
        return None;
    }
    let occasion = after_turn(slot);
    jobs(scene.set).find_map(|gate| held(scene, gate, &slot.revision, &occasion)).or_else(|| unasked(scene))
}

/// Whether a turn is so far that Jobs follow it, and goes ahead. What runs and what is waited for must be the same, so this
/// looks at what the set's status says, and at nothing else.
fn is_followed(set: &NodeSet, slot: &Slot) -> bool {
    let undone = set.spec.undo.as_ref().is_some_and(|undo| undo.to == slot.revision);
    let gave_way = set.status.as_ref().is_some_and(|status| {
        let other_failed = |failure: &NodeFailure| !failure.skipped && failure.revision != slot.revision;
        status.current_revision == slot.revision && status.failures.iter().any(other_failed)
    });
    slot.step == SlotStep::Soaking && !undone && !gave_way
}

/// The occasion of the runs before the first node. A retry asks for them anew.
fn before_first(set: &NodeSet) -> String {
    set.spec.retry.as_ref().map_or_else(|| Run::BEFORE.to_owned(), |retry| format!("{}@{retry}", Run::BEFORE))
}

/// The occasion of the runs after a turn; another turn of the same node is another one.
fn after_turn(slot: &Slot) -> String {
    // Slots of an older controller don't say it.
    if slot.claimed.is_empty() { slot.uid.clone() } else { format!("{}@{}", slot.uid, slot.claimed) }
}

/// Whether a gate is the same for all nodes, at any time.
pub(crate) fn is_of_cluster(gate: &Gate) -> bool {
    gate.job.is_none() && gate.units.is_empty()
}

/// A gate that was not asked yet is not passed; nor does it fail.
fn unasked(scene: &Scene<'_>) -> Option<Held> {
    let answers = scene.world.gates.get(scene.name).map(|gates| &gates.0);
    let asked = |gate: &&Gate| answers.is_some_and(|answers| answers.contains_key(&gate.name));
    let gate = scene.set.spec.health.gates.iter().find(|gate| is_of_cluster(gate) && !asked(gate))?;
    Some(Held::Runs(format!("the gate {}: it was not looked at yet", gate.name)))
}

/// Whether no node has the revision or is on its way there, and it is not one that nodes go back to.
fn is_first(none_updated: bool, target: &str, current: &str, slots: &[Slot]) -> bool {
    none_updated && !target.is_empty() && target != current && slots.iter().all(|slot| slot.revision != target)
}

fn jobs(set: &NodeSet) -> impl Iterator<Item = &Gate> {
    set.spec.health.gates.iter().filter(|gate| gate.job.is_some())
}

fn run(gate: &Gate, revision: &str, occasion: &str) -> Run {
    Run { gate: gate.name.clone(), revision: revision.to_owned(), occasion: occasion.to_owned() }
}

fn held(scene: &Scene<'_>, gate: &Gate, revision: &str, occasion: &str) -> Option<Held> {
    let known = scene.world.runs.get(scene.name).and_then(|runs| runs.get(&run(gate, revision, occasion)));
    match known {
        Some(Ok(())) => None,
        Some(Err(held)) => Some(held.clone().at_gate(&gate.name)),
        None => Some(Held::Runs("its Job was not looked at yet".to_owned()).at_gate(&gate.name)),
    }
}
