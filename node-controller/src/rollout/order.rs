//! Whose turn is next.

use super::member::is_control_plane;
use super::{Member, Outcome, Scene, Waits, retry};
use crate::world::is_ready;
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use nodelet_api::objects::{Slot, SlotStep, exact_time_text};

/// Claims slots for nodes that want one, as many as may be; why no more, if any is left.
pub(super) fn claim(scene: &Scene<'_>, pending: &[&String], outcome: &mut Outcome) -> Option<Waits> {
    let strategy = &scene.set.spec.strategy;
    let total = scene.members.len();
    let limit = strategy.max_unavailable.of(total).max(1);
    let mut waiting: Vec<(&String, &Member<'_>)> =
        pending.iter().filter_map(|name| Some((*name, scene.members.get(*name)?))).collect();
    waiting.retain(|(name, member)| !outcome.holds(name) && !member.is_paused());
    retry::take_up(scene, outcome);
    waiting.retain(|(name, _)| outcome.left_out(name).is_none());
    if waiting.is_empty() {
        return None;
    }
    waiting.sort_by_key(|(name, member)| key(scene, name, member));
    let zone = |member: &Member<'_>| {
        strategy.topology_key.as_ref().map(|key| member.node.labels().get(key).cloned().unwrap_or_default())
    };
    // Where work is under way, or else where it begins.
    let busy = outcome.slots.iter().find_map(|slot| scene.members.get(&slot.node)).map(zone);
    let zone_now = busy.or_else(|| waiting.first().map(|(_, member)| zone(member))).flatten();
    let wave = wave(scene, outcome);
    let mut reason = None;
    for (name, member) in waiting {
        if zone(member) != zone_now {
            reason = reason.or(Some(("Updating", "nodes of another zone come later".to_owned())));
            continue;
        }
        let goal = outcome.goal(name).to_owned();
        let Some(disruption) = member.staged(&goal) else {
            reason = reason.or_else(|| Some(("Staging", staging(name, member))));
            continue;
        };
        let away = scene.members.iter().filter(|(name, member)| !member.is_available() || outcome.holds(name)).count();
        // One that is away already takes nothing more away.
        let cost = usize::from(member.is_available());
        if away + cost > limit || (cost == 0 && outcome.slots.len() >= limit) {
            let sentence = format!("{away} of {total} nodes are unavailable, and {limit} may be");
            return Some(("Updating", sentence));
        }
        // Waves are for what goes ahead: the way back is as wide as the limit.
        if goal == scene.revision && outcome.updated + outcome.slots.len() >= wave {
            return Some(("Updating", format!("the first {wave} nodes must be well before more follow")));
        }
        if member.is_control_plane()
            && let Some(other) = control_plane_at_risk(scene, name, outcome)
        {
            reason =
                reason.or_else(|| Some(("Updating", format!("control-plane nodes go one at a time, and {other}"))));
            continue;
        }
        outcome.slots.push(Slot {
            node: name.clone(),
            uid: member.uid(),
            claimed: exact_time_text(scene.now),
            revision: goal,
            step: SlotStep::Claimed,
            disruption,
            unready_pods: 0,
            pressures: Vec::new(),
            since: exact_time_text(scene.now),
            reason: String::new(),
            waiting_for: String::new(),
        });
    }
    reason
}

/// The nodes in the order in which their turns would come.
pub(crate) fn queue(scene: &Scene<'_>) -> Vec<String> {
    let mut members: Vec<_> = scene.members.iter().collect();
    members.sort_by_key(|(name, member)| key(scene, name, member));
    members.into_iter().map(|(name, _)| name.clone()).collect()
}

/// The order: zone by zone, those that are away already, the oldest; the controller's own node last.
fn key(scene: &Scene<'_>, name: &str, member: &Member<'_>) -> (bool, String, bool, Timestamp, String) {
    let own = scene.world.own_node.as_deref() == Some(name);
    let topology = scene.set.spec.strategy.topology_key.as_ref();
    let zone = topology.and_then(|key| member.node.labels().get(key).cloned()).unwrap_or_default();
    // What is away already, cordoned by somebody for example, takes nothing more away: it would wait behind those that do.
    let well = member.is_available();
    let born = member.node.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    (own, zone, well, born, name.to_owned())
}

/// How many nodes may have the revision, or be on their way, before all of these are well.
fn wave(scene: &Scene<'_>, outcome: &Outcome) -> usize {
    let total = scene.members.len();
    let limits = scene.set.spec.strategy.steps.iter().map(|step| step.of(total).max(1));
    limits.filter(|limit| outcome.updated < *limit).min().unwrap_or(total)
}

/// Why a control-plane node must not go now: another one is away, in any set.
fn control_plane_at_risk(scene: &Scene<'_>, name: &str, outcome: &Outcome) -> Option<String> {
    let world = scene.world;
    let held = |node: &str| {
        let uid = world.nodes.get(node).and_then(|node| node.metadata.uid.as_ref());
        outcome.holds(node)
            || uid.is_some_and(|uid| scene.taken.contains(uid))
            || world.sets.values().any(|set| {
                let slots = set.status.iter().flat_map(|status| &status.slots);
                set.name_any() != scene.name && slots.into_iter().any(|slot| slot.node == node)
            })
    };
    let others = world.nodes.iter().filter(|(other, node)| *other != name && is_control_plane(node));
    let mut risky = others.filter(|(other, node)| !is_ready(node) || held(other));
    risky.next().map(|(other, _)| format!("{other} is away or in its turn"))
}

/// A control-plane node of another set that has its turn first. Two sets may give turns at once when one does not see yet
/// what the other wrote; who was later waits before anything is done.
pub(super) fn control_plane_before(scene: &Scene<'_>, own: &Slot) -> Option<String> {
    let others = scene.world.sets.iter().filter(|(name, _)| *name != scene.name);
    let slots = others.flat_map(|(name, set)| {
        set.status.iter().flat_map(|status| &status.slots).map(move |slot| (name.as_str(), slot))
    });
    let mut before = slots.filter(|(name, slot)| {
        let control_plane = scene.world.nodes.get(&slot.node).is_some_and(|node| is_control_plane(node));
        let earlier = (slot.since.as_str(), *name) < (own.since.as_str(), scene.name);
        control_plane && (slot.step > SlotStep::Claimed || earlier)
    });
    before.next().map(|(_, slot)| slot.node.clone())
}

/// What a node waits for that is not ready.
pub(super) fn staging(name: &str, member: &Member<'_>) -> String {
    let status = member.state.and_then(|state| state.status.as_ref());
    let waits = status.map(|status| status.waiting_for.as_str()).unwrap_or_default();
    match member.failed() {
        Some(why) => format!("node {name} can't make it ready: {why}"),
        None if waits.is_empty() => format!("node {name} makes it ready"),
        None => format!("node {name} makes it ready: {waits}"),
    }
}
