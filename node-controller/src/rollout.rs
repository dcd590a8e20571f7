//! The rollout of one set: from what the cluster holds to the next step of each node. Pure, and decided from objects
//! alone: a controller can be killed at any moment, and the next one goes on where the objects say.
//!
//! A node's turn is a [`Slot`] in the set's status. Nothing is done to a node for a slot that was not read back.
//!
//! ```text
//! claim → Claimed → Draining → Applying → Verifying → Soaking → release
//!            │          │          │           │          │
//!            └──────────┴──────────┴───────────┴──────────┴──→ Failed → release
//! ```

mod drain;
mod member;
mod order;
mod retry;
pub(crate) mod runs;
mod skew;
mod slots;
mod target;
mod units;
mod volumes;
mod windows;

pub use drain::{Blocked, Eviction, Left};
pub(crate) use drain::{allowed, drain, keeping, question, selector, touched};
pub(crate) use member::plain_version;
pub use member::{CORDONED, EXCLUDED, Member, PAUSED, SCALE_DOWN_DISABLED};
pub(crate) use order::queue;

use crate::world::World;
use jiff::Timestamp;
use nodelet_api::Disruption;
use nodelet_api::objects::NodeSecrets;
use nodelet_api::objects::{
    BadRevision, Grant, NodeFailure, NodeSet, NodeStateSpec, Reference, Slot, SlotStep, Step, StrategyType, time_text,
};
use std::collections::{BTreeMap, BTreeSet};

/// A set at one moment.
pub struct Scene<'a> {
    /// Its name.
    pub name: &'a str,
    /// The set.
    pub set: &'a NodeSet,
    /// The revision that its class renders to.
    pub revision: &'a str,
    /// The version of the kubelet that the class asks for.
    pub kubelet: Option<&'a str>,
    /// Why nothing may begin, whatever else is so: a stable reason, and a sentence.
    pub held: Option<(&'static str, String)>,
    /// Nodes that other sets gave turns to in this round, by uid: their status does not say so yet.
    pub taken: &'a BTreeSet<String>,
    /// Its nodes.
    pub members: BTreeMap<String, Member<'a>>,
    /// Everything else.
    pub world: &'a World,
    /// The time.
    pub now: Timestamp,
}

/// What is to become of a set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The revision that its nodes go to.
    pub target: String,
    /// The revision that all had last.
    pub current: String,
    /// The nodes whose turn it is.
    pub slots: Vec<Slot>,
    /// Nodes that failed.
    pub failures: Vec<NodeFailure>,
    /// Revisions that failed.
    pub bad: Vec<BadRevision>,
    /// What each node must become.
    pub specs: BTreeMap<String, NodeStateSpec>,
    /// Nodes that are to be cordoned (`true`), or whose cordon of ours is to go.
    pub cordons: BTreeMap<String, bool>,
    /// Pods that are to go.
    pub evictions: Vec<Eviction>,
    /// Why nothing more is begun: a stable reason, and a sentence.
    pub waits: Option<Waits>,
    /// How many nodes have the target.
    pub updated: usize,
    /// Where nodes go that do not keep the target, when it failed.
    back: Option<Back>,
}

/// The way back from a revision that failed.
#[derive(Clone, Debug, PartialEq)]
struct Back {
    /// The revision that it leads to.
    to: String,
    /// The nodes that are well with the one that failed, and keep it.
    keeping: BTreeSet<String>,
}

/// Decides the next step of each node. `secrets` is what each node's state names beside the revision; a node that is not
/// in it gets nothing new yet.
pub fn roll(scene: &Scene<'_>, secrets: &BTreeMap<String, Option<NodeSecrets>>) -> Outcome {
    let mut old = scene.set.status.clone().unwrap_or_default();
    retry::forget(scene, &mut old);
    let target = target::find(scene, &old);
    let mut outcome = Outcome {
        target: target.revision.clone(),
        current: old.current_revision.clone(),
        failures: old.failures.clone(),
        bad: target.bad.clone(),
        back: target.back.clone(),
        ..Outcome::default()
    };
    // What is said of revisions that nobody goes to any more is over.
    outcome.failures.retain(|failure| {
        [target.revision.as_str(), scene.revision].contains(&failure.revision.as_str())
            || target.back.as_ref().is_some_and(|back| back.to == failure.revision)
    });
    slots::advance(scene, &old.slots, target.blocked.is_some(), &mut outcome);
    note_failures(scene, &mut outcome);
    target::judge(scene, &mut outcome);
    let is_updated = |name: &str, member: &Member<'_>| {
        member.has(&outcome.target, contents(secrets, name, member)) && !outcome.holds(name)
    };
    outcome.updated = scene.members.iter().filter(|(name, member)| is_updated(name, member)).count();
    if outcome.updated == scene.members.len() && !scene.members.is_empty() {
        outcome.current.clone_from(&outcome.target);
    }
    outcome.waits = begin(scene, &mut outcome, target.blocked, secrets);
    hand_out(scene, &mut outcome, secrets);
    outcome
}

impl Outcome {
    /// Whether it is a node's turn.
    fn holds(&self, node: &str) -> bool {
        self.slots.iter().any(|slot| slot.node == node)
    }

    /// The revision that a node goes to.
    fn goal(&self, node: &str) -> &str {
        match &self.back {
            Some(back) if !back.keeping.contains(node) => &back.to,
            _ => &self.target,
        }
    }

    /// Why a node gets no turn although it does not have what it goes to, if that is so.
    fn left_out(&self, node: &str) -> Option<&NodeFailure> {
        let goal = self.goal(node);
        self.failures.iter().find(|failure| failure.node == node && failure.revision == goal)
    }

    /// How many nodes failed with a revision.
    fn failed(&self, revision: &str) -> usize {
        self.failures.iter().filter(|failure| !failure.skipped && failure.revision == revision).count()
    }
}

/// Nodes that failed without a turn: what disturbs nothing needs none, and can be wrong all the same.
fn note_failures(scene: &Scene<'_>, outcome: &mut Outcome) {
    for (name, member) in &scene.members {
        let spec = member.state.map(|state| &state.spec);
        let goal = outcome.goal(name).to_owned();
        let goes = spec.is_some_and(|spec| spec.revision.as_ref() == Some(&goal) && spec.step == Step::Apply);
        if let Some(reason) =
            member.failed().filter(|_| goes && outcome.left_out(name).is_none() && !outcome.holds(name))
        {
            let at = time_text(scene.now);
            let node = name.clone();
            outcome.failures.push(NodeFailure { node, revision: goal, reason, skipped: false, at, retry_at: None });
        }
    }
}

/// The contents that a node must have. While nobody knows them, as after a start, those that it was asked for last.
fn contents<'a>(
    secrets: &'a BTreeMap<String, Option<NodeSecrets>>,
    name: &str,
    member: &Member<'a>,
) -> Option<&'a NodeSecrets> {
    let asked = || member.state.and_then(|state| state.spec.secrets.as_ref());
    secrets.get(name).map_or_else(asked, Option::as_ref)
}

/// Gives turns; why none is given, if there are nodes that want one. `blocked` holds back the revision of the class, not
/// the way back from it.
fn begin(
    scene: &Scene<'_>,
    outcome: &mut Outcome,
    blocked: Option<Waits>,
    secrets: &BTreeMap<String, Option<NodeSecrets>>,
) -> Option<Waits> {
    let spec = &scene.set.spec;
    let lacks = |name: &String, member: &Member<'_>, goal: &str| !member.has(goal, contents(secrets, name, member));
    let mut pending: Vec<&String> = scene
        .members
        .iter()
        .filter(|(name, member)| lacks(name, member, outcome.goal(name)))
        .map(|(name, _)| name)
        .collect();
    if blocked.is_some() {
        // Whoever keeps what is blocked stays as it is.
        pending.retain(|name| outcome.goal(name) != outcome.target);
    }
    if pending.is_empty() {
        return blocked;
    }
    let returns = |name: &&String| outcome.goal(name) != scene.revision;
    // Who goes back does not wait until all is well, nor for a time that was chosen for going ahead.
    let back = pending.iter().all(returns);
    let waits = if let Some(held) = &scene.held {
        Some(held.clone())
    } else if spec.paused {
        Some(("Paused", "the set is paused".to_owned()))
    } else if let Some(sentence) = windows::closed(&spec.windows, scene.now).filter(|_| !back) {
        Some(("WaitingForWindow", sentence))
    } else if let Some(held) = scene.world.gates.get(scene.name).and_then(|gates| gates.held(None)).filter(|_| !back) {
        Some(held.told())
    } else if let Some(held) = runs::before(scene, outcome).filter(|_| !back) {
        Some(held.told())
    } else if let Some(slot) = outcome.slots.iter().find(|slot| slot.reason == "NodeSilent") {
        Some(("NodeSilent", format!("nothing begins while node {} is not heard of in its turn", slot.node)))
    } else {
        target::stuck(scene, outcome).or_else(|| order::claim(scene, &pending, outcome))
    };
    blocked.or(waits)
}

/// What each node must become, as far as it may go now.
fn hand_out(scene: &Scene<'_>, outcome: &mut Outcome, secrets: &BTreeMap<String, Option<NodeSecrets>>) {
    let old = scene.set.status.clone().unwrap_or_default();
    let spec = &scene.set.spec;
    // What disturbs nothing needs no turn, unless turns are what the set asks for.
    let free = spec.strategy.steps.is_empty() && !matches!(outcome.waits, Some((reason, _)) if STOPS.contains(&reason));
    for (name, member) in &scene.members {
        let current = member.state.map(|state| &state.spec);
        // A turn that was read back, and is as far as that.
        let slot = old.slots.iter().find(|slot| slot.node == *name && slot.uid == member.uid());
        let slot = slot.filter(|slot| outcome.holds(&slot.node));
        let Some(secrets) = secrets.get(name) else { continue };
        let stays = spec.paused
            || scene.held.is_some()
            || member.is_paused()
            || (spec.strategy.r#type == StrategyType::OnDelete && current.is_some());
        if slot.is_none() && stays {
            // It stays as it is; what its turn allowed goes with its turn.
            let left = current.filter(|spec| {
                let allowed = spec.grant.as_ref().is_some_and(|grant| grant.disruption > Disruption::None);
                allowed && !spec.revision.as_ref().is_some_and(|revision| member.has(revision, spec.secrets.as_ref()))
            });
            if let Some(spec) = left {
                outcome.specs.insert(name.clone(), NodeStateSpec { step: Step::Stage, grant: None, ..spec.clone() });
            }
            continue;
        }
        let goal = hand_back(scene, outcome, name, member).unwrap_or_else(|| outcome.goal(name)).to_owned();
        let revision = slot.map_or(&goal, |slot| &slot.revision);
        let grant =
            |id: &str, disruption| Grant { id: format!("{revision}-{id}"), revision: revision.clone(), disruption };
        let (step, grant) = match slot {
            Some(slot) if slot.step >= SlotStep::Applying && slot.step != SlotStep::Failed => {
                (Step::Apply, Some(grant(&short(&slot.uid), slot.disruption.max(Disruption::Restart))))
            }
            _ if member.has(revision, secrets.as_ref()) => {
                // It has it: how it got there stays, so that nothing is written for nothing.
                let same = current.filter(|spec| spec.revision.as_ref() == Some(revision) && spec.secrets == *secrets);
                match same {
                    Some(spec) => (spec.step, spec.grant.clone()),
                    None => (Step::Stage, None),
                }
            }
            None if free => (Step::Apply, Some(grant("free", Disruption::None))),
            _ => (Step::Stage, None),
        };
        // Until the change is done, it is not known which nodelet reads this: one of 0.1 would refuse all of it.
        let changes = slot.is_some_and(|slot| slot.step == SlotStep::Applying);
        let units = if changes { Vec::new() } else { units::asked(scene.set) };
        let wanted = NodeStateSpec {
            node_set_ref: Some(Reference { name: scene.name.to_owned() }),
            class_ref: Some(spec.class_ref.clone()),
            revision: Some(revision.clone()),
            step,
            grant,
            secrets: secrets.clone(),
            units,
        };
        let wanted = wanted.for_nodelet(member.nodelet_version());
        if current != Some(&wanted) {
            outcome.specs.insert(name.clone(), wanted);
        }
    }
}

/// What a node that failed is asked for: the revision that it has. Its nodelet keeps itself from the one that failed until it
/// is asked for another one, and so can try again when a person says so.
fn hand_back<'a>(scene: &Scene<'_>, outcome: &Outcome, name: &str, member: &'a Member<'_>) -> Option<&'a str> {
    outcome.left_out(name).filter(|failure| !failure.skipped)?;
    member.applied().filter(|applied| scene.world.revisions.contains_key(*applied))
}

/// Why nothing is begun: a stable reason, and a sentence.
type Waits = (&'static str, String);

/// Reasons that hold back also what disturbs nothing.
const STOPS: [&str; 9] = [
    "Paused",
    "WaitingForWindow",
    "GateFailing",
    "WaitingForGate",
    "FailureBudget",
    "VersionSkew",
    "NodeSilent",
    "NoRevision",
    "UndoImpossible",
];

fn short(uid: &str) -> String {
    uid.chars().take(8).collect()
}

#[cfg(test)]
mod tests;
