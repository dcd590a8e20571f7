//! The turn of a node, step by step.

use super::drain::{self, Left};
use super::retry::Verdict;
use super::{Member, Outcome, Scene, order, runs, units, volumes};
use crate::act::GATE_LABEL;
use crate::world::Held;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use nodelet_api::Disruption;
use nodelet_api::objects::{OnTimeout, Slot, SlotStep, exact_time_text};
use std::sync::Arc;

/// What becomes of a slot.
enum Next {
    /// It stays as far as it is, and waits: a stable reason, and for what.
    Waits(&'static str, String),
    /// It goes on.
    To(SlotStep),
    /// The turn ends without the change.
    Ends(Verdict, String),
    /// It is over.
    Done,
}

/// Moves all slots on as far as they can go now. Where what the class asks for is `blocked`, none is led there.
pub(super) fn advance(scene: &Scene<'_>, slots: &[Slot], blocked: bool, outcome: &mut Outcome) {
    for slot in slots {
        // Another machine of that name, or one that left the set, has no turn.
        let Some(member) = scene.members.get(&slot.node).filter(|member| member.uid() == slot.uid) else { continue };
        let mut slot = slot.clone();
        if !(blocked && outcome.goal(&slot.node) == outcome.target) {
            supersede(scene, member, &mut slot, outcome);
        }
        let next = step(scene, member, &mut slot, outcome);
        (slot.step, slot.since, slot.reason, slot.waiting_for) = match next {
            Next::Waits(reason, what) => (slot.step, slot.since, reason.to_owned(), what),
            Next::To(step) => (step, exact_time_text(scene.now), String::new(), String::new()),
            Next::Ends(verdict, why) => {
                outcome.note(&slot, why, &verdict, scene.now);
                (SlotStep::Failed, exact_time_text(scene.now), String::new(), String::new())
            }
            Next::Done => continue,
        };
        outcome.slots.push(slot);
    }
}

/// A newer revision takes the turn over, so that the node is not visited twice.
fn supersede(scene: &Scene<'_>, member: &Member<'_>, slot: &mut Slot, outcome: &Outcome) {
    let over = matches!(slot.step, SlotStep::Soaking | SlotStep::Failed);
    let goal = outcome.goal(&slot.node);
    if slot.revision == goal || over {
        return;
    }
    goal.clone_into(&mut slot.revision);
    if let Some(disruption) = member.staged(&slot.revision) {
        slot.disruption = disruption;
    }
    // From the beginning: the node may have that one already, or need no drain for it. What has left has left.
    (slot.step, slot.since) = (SlotStep::Claimed, exact_time_text(scene.now));
}

fn step(scene: &Scene<'_>, member: &Member<'_>, slot: &mut Slot, outcome: &mut Outcome) -> Next {
    match slot.step {
        SlotStep::Claimed => claimed(scene, member, slot, outcome),
        SlotStep::Draining => draining(scene, member, slot, outcome),
        SlotStep::Applying => applying(scene, member, slot),
        SlotStep::Verifying => verifying(scene, member, slot),
        SlotStep::Soaking => soaking(scene, member, slot, outcome),
        SlotStep::Failed => back_in_service(member, slot, outcome).unwrap_or(Next::Done),
    }
}

fn claimed(scene: &Scene<'_>, member: &Member<'_>, slot: &mut Slot, outcome: &mut Outcome) -> Next {
    if member.has_revision(&slot.revision) {
        return Next::To(SlotStep::Verifying);
    }
    if is_silent(scene, member, slot) {
        return silent(member);
    }
    match member.staged(&slot.revision) {
        Some(disruption) => slot.disruption = disruption,
        None if is_overdue(scene, slot, limit(scene)) => {
            let why = order::staging(&slot.node, member);
            return Next::Ends(Verdict::Later, format!("it was not ready in {} s: {why}", limit(scene).as_secs()));
        }
        None => return Next::Waits("Staging", "the node to make the revision ready".to_owned()),
    }
    if member.is_control_plane()
        && let Some(other) = order::control_plane_before(scene, slot)
    {
        return Next::Waits("ControlPlane", format!("the turn of {other}: control-plane nodes go one at a time"));
    }
    let Some(pods) = member.pods else { return unlisted() };
    slot.unready_pods = unready(pods, slot.disruption);
    slot.pressures = member.pressures();
    // An autoscaler must not take away what comes back, and load balancers are to know before the first pod leaves.
    if !member.is_shielded(slot.disruption) {
        return Next::Waits("Shielding", "autoscaler and load balancers to be told".to_owned());
    }
    if slot.disruption < Disruption::Drain {
        return Next::To(SlotStep::Applying);
    }
    if !member.is_cordoned() {
        outcome.cordons.insert(slot.node.clone(), true);
        return Next::Waits("Cordoning", "the cordon".to_owned());
    }
    Next::To(SlotStep::Draining)
}

fn draining(scene: &Scene<'_>, member: &Member<'_>, slot: &Slot, outcome: &mut Outcome) -> Next {
    // Also where the cordon was an administrator's own: pods that leave would come back.
    if !member.is_cordoned() {
        let why = "it was uncordoned by hand while its pods were leaving".to_owned();
        return Next::Ends(Verdict::LeftOut, why);
    }
    let policy = &scene.set.spec.drain;
    if policy.on_timeout != OnTimeout::Skip && is_silent(scene, member, slot) {
        return silent(member);
    }
    let Some(pods) = member.pods else { return unlisted() };
    let late = is_overdue(scene, slot, SignedDuration::from_secs(policy.timeout_seconds.into()));
    let forced = late && policy.on_timeout == OnTimeout::Force;
    let (reason, sentence, evictions) = match drain::drain(pods, policy, scene.world, forced) {
        Left::Nothing if forced => return Next::To(SlotStep::Applying),
        // What a pod wrote may still be on its way to a disk that the next node is to have.
        Left::Nothing => match volumes::attached(scene.world.volumes.get(&slot.node), pods) {
            None => return Next::To(SlotStep::Applying),
            Some((reason, sentence)) => (reason, sentence, Vec::new()),
        },
        Left::Some { evictions, blocked } => (blocked.reason(), blocked.to_string(), evictions),
    };
    if late && policy.on_timeout == OnTimeout::Skip {
        let why = format!("its pods did not leave in {} s: {sentence}", policy.timeout_seconds);
        return Next::Ends(Verdict::Later, why);
    }
    outcome.evictions.extend(evictions);
    Next::Waits(reason, sentence)
}

fn applying(scene: &Scene<'_>, member: &Member<'_>, slot: &Slot) -> Next {
    if member.has_revision(&slot.revision) {
        return Next::To(SlotStep::Verifying);
    }
    let granted = member.state.is_some_and(|state| {
        state.spec.grant.as_ref().is_some_and(|grant| grant.revision == slot.revision)
            && state.spec.revision.as_deref() == Some(slot.revision.as_str())
            && state.spec.grant.as_ref().is_some_and(|grant| grant.disruption >= slot.disruption)
    });
    if !granted {
        // A grant that could not be handed out, because contents are missing for example, is nobody's fault.
        return Next::Waits("Granting", "its grant to be handed out".to_owned());
    }
    if let Some(why) = member.failed() {
        return Next::Ends(Verdict::Failed, why);
    }
    if !member.is_away() && AWAY.contains(&slot.reason.as_str()) {
        // It is back. The time in which it could not do anything does not count.
        return Next::To(SlotStep::Applying);
    }
    if is_silent(scene, member, slot) {
        return silent(member);
    }
    let waits = member.state.and_then(|state| state.status.as_ref()).map(|status| status.waiting_for.clone());
    let waits = waits.filter(|text| !text.is_empty()).unwrap_or_else(|| "nodelet to report".to_owned());
    // Of a node whose kubelet is not heard of it shows after a while longer whether its nodelet is.
    let patience = if member.is_away() { limit(scene) * 2 } else { limit(scene) };
    if is_overdue(scene, slot, patience) {
        let seconds = patience.as_secs();
        return Next::Ends(Verdict::Failed, format!("the change was not done in {seconds} s; it waits for: {waits}"));
    }
    if member.is_away() {
        return Next::Waits("NodeAway", format!("the change: {waits}; its kubelet is not heard of"));
    }
    Next::Waits("Applying", format!("the change: {waits}"))
}

/// Reasons for which time does not count: nothing was heard of the node, or it had no grant.
const AWAY: [&str; 3] = ["NodeAway", "NodeSilent", "Granting"];

/// How long a node may take to change, and to be well.
fn limit(scene: &Scene<'_>) -> SignedDuration {
    SignedDuration::from_secs(scene.set.spec.health.timeout_seconds.into())
}

/// Whether nothing was heard of a node for as long as it may take.
fn is_silent(scene: &Scene<'_>, member: &Member<'_>, slot: &Slot) -> bool {
    let lease = scene.world.heard.get(&slot.node).map(|(at, _)| *at);
    let heard = lease.max(member.last_report());
    let long = heard.is_none_or(|at| scene.now.duration_since(at) >= limit(scene));
    member.is_away() && long && is_overdue(scene, slot, limit(scene))
}

/// A machine without power says nothing about the revision: when it is back, it goes on where it was. One that the change
/// took off the network goes back by itself, and says so then. Until it is known, nobody else is changed.
fn silent(member: &Member<'_>) -> Next {
    if member.is_paused() {
        return Next::Ends(Verdict::LeftOut, "nothing was heard of it in its turn, and it is paused".to_owned());
    }
    let sentence = "a sign of life: neither its kubelet nor its nodelet is heard of; look at its power and network. To \
                    go on without it, pause it or delete its Node";
    Next::Waits("NodeSilent", sentence.to_owned())
}

fn verifying(scene: &Scene<'_>, member: &Member<'_>, slot: &Slot) -> Next {
    if let Some(why) = member.failed() {
        return Next::Ends(Verdict::Failed, why);
    }
    let Some(unwell) = unwell(scene, member, slot) else { return Next::To(SlotStep::Soaking) };
    if is_overdue(scene, slot, limit(scene)) {
        let seconds = limit(scene).as_secs();
        return Next::Ends(Verdict::Failed, format!("it was not well {seconds} s after its change: {unwell}"));
    }
    Next::Waits("NodeUnwell", format!("the node to be well: {unwell}"))
}

fn soaking(scene: &Scene<'_>, member: &Member<'_>, slot: &Slot, outcome: &mut Outcome) -> Next {
    if let Some(waits) = back_in_service(member, slot, outcome) {
        return waits;
    }
    let soak = SignedDuration::from_secs(scene.set.spec.strategy.soak_seconds.into());
    // What is not well around a node that goes back is what it goes back for.
    let ahead = slot.revision == scene.revision;
    // What was found before the node changed says nothing of it as it is now.
    let since = slot.since.parse::<Timestamp>().ok();
    let gates = || scene.world.gates.get(scene.name).and_then(|gates| gates.held(since));
    let gate = || gates().or_else(|| runs::after(scene, slot));
    let unwell = unwell(scene, member, slot).map(|what| ("NodeUnwell", what));
    match unwell.or_else(|| gate().filter(|_| ahead).map(Held::told)) {
        Some((_, what)) if is_overdue(scene, slot, soak + limit(scene)) => {
            Next::Ends(Verdict::Failed, format!("while it was watched: {what}"))
        }
        Some((reason, what)) => Next::Waits(reason, what),
        None if passed(slot, scene.now) >= soak => Next::Done,
        None => Next::Waits("Soaking", format!("{} s of watching", soak.as_secs())),
    }
}

fn unlisted() -> Next {
    Next::Waits("ListingPods", "the list of its pods".to_owned())
}

/// Takes our own cordon away; what is waited for, until it is gone.
fn back_in_service(member: &Member<'_>, slot: &Slot, outcome: &mut Outcome) -> Option<Next> {
    member.is_ours().then(|| {
        outcome.cordons.insert(slot.node.clone(), false);
        Next::Waits("Uncordoning", "the node to be in service again".to_owned())
    })
}

/// What is not well with a node after its change.
fn unwell(scene: &Scene<'_>, member: &Member<'_>, slot: &Slot) -> Option<String> {
    // What the class asks for is what was applied only as long as the turn leads there.
    let ahead = slot.revision == scene.revision;
    let kubelet = scene.kubelet.filter(|_| ahead);
    // Nor must a way back wait for a unit that is what it goes back for.
    let units = || units::unwell(scene.set, member.state).filter(|_| ahead);
    if let Some(unwell) = member.unwell(kubelet, &slot.pressures).or_else(units) {
        return Some(unwell);
    }
    // A controller that was just started does not know them yet.
    let Some(pods) = member.pods else { return Some("the list of its pods is not here yet".to_owned()) };
    let now = unready(pods, slot.disruption);
    (now > slot.unready_pods)
        .then(|| format!("{now} of its pods are not ready, and {} were not before", slot.unready_pods))
}

/// How many pods that stay on the node are not ready.
fn unready(pods: &[Arc<Pod>], disruption: Disruption) -> u32 {
    let counts = |pod: &&Arc<Pod>| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default();
        let ends = pod.metadata.deletion_timestamp.is_some() || matches!(phase, "Succeeded" | "Failed");
        // Of a gate's own Job the gate itself speaks.
        let of_gate = pod.labels().contains_key(GATE_LABEL);
        !ends && !of_gate && (disruption < Disruption::Drain || drain::stays(pod)) && !drain::is_ready(pod)
    };
    u32::try_from(pods.iter().filter(counts).count()).unwrap_or(u32::MAX)
}

/// Whether a slot is as far as it is for too long. Time in which no controller led does not count: nobody evicted pods, and
/// nodes could not report.
fn is_overdue(scene: &Scene<'_>, slot: &Slot, limit: SignedDuration) -> bool {
    let led = scene.world.leads_since.is_none_or(|since| scene.now.duration_since(since) > limit);
    led && passed(slot, scene.now) > limit
}

/// How long a slot is as far as it is.
fn passed(slot: &Slot, now: Timestamp) -> SignedDuration {
    slot.since.parse::<Timestamp>().map_or(SignedDuration::ZERO, |since| now.duration_since(since))
}

impl Member<'_> {
    /// Whether it has a revision, with whatever contents its spec names.
    fn has_revision(&self, revision: &str) -> bool {
        let secrets = self.state.and_then(|state| state.spec.secrets.as_ref());
        let asked = self.state.is_some_and(|state| state.spec.revision.as_deref() == Some(revision));
        asked && self.has(revision, secrets)
    }
}
