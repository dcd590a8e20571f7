//! What is to be written next, from what the cluster holds. Pure: the same world gives the same answer, so a
//! controller can be killed at any moment and another one goes on.

mod access;
mod classes;
mod contents;
pub(crate) mod members;
pub(crate) mod nodes;
mod sets;
mod turns;

pub use access::{Answer, NODE_TOKEN_GROUP};
pub use contents::{Slots, name as contents_name};
pub use nodes::Marks;

use crate::render::Revision;
use crate::rollout::Eviction;
use crate::world::World;
use jiff::Timestamp;
use nodelet_api::objects::{Condition, NodeClassStatus, NodeSetStatus, NodeStateSpec, time_text};
use sets::Subject;
use std::collections::BTreeSet;

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
    /// Removes a revision that nothing names any more.
    Forget {
        /// Its name.
        revision: String,
    },
    /// Says what became of a class.
    ClassStatus {
        /// Its name.
        name: String,
        /// Its status.
        status: NodeClassStatus,
    },
    /// Puts contents into a node's own Secret.
    Contents {
        /// The node's name.
        node: String,
        /// Their version.
        version: String,
        /// The contents.
        slots: Slots,
    },
    /// Removes a node's own Secret, of which it takes nothing any more.
    ForgetContents {
        /// The node's name.
        node: String,
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
    /// Lets a node go: its state and its rights are removed, the machine stays as it is.
    Release {
        /// Its name.
        node: String,
    },
    /// Answers a request for a certificate.
    Answer {
        /// The request's name.
        name: String,
        /// The node that it is for.
        node: String,
        /// The answer.
        answer: Answer,
    },
    /// Says how far a set is.
    SetStatus {
        /// Its name.
        name: String,
        /// Its status.
        status: NodeSetStatus,
    },
    /// Puts labels, annotations and taints on a Node.
    Mark {
        /// Its name.
        node: String,
        /// What it carries.
        marks: Marks,
    },
    /// Shows a condition on a Node, or none of ours any more.
    Show {
        /// Its name.
        node: String,
        /// The condition.
        condition: Option<Condition>,
    },
    /// Cordons a Node for a turn, or takes that back.
    Cordon {
        /// Its name.
        node: String,
        /// Whether it is cordoned.
        cordon: bool,
    },
    /// Sends a pod away.
    Evict(Eviction),
    /// Tells people of a transition.
    Tell(Telling),
}

/// What an Event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Telling {
    /// The kind of the object that it is about.
    pub kind: &'static str,
    /// The object's name.
    pub name: String,
    /// Somebody should look.
    pub warning: bool,
    /// A stable name of what happened.
    pub reason: String,
    /// What happened, in a sentence.
    pub note: String,
}

impl Telling {
    /// A condition that changed. A condition that is not so, for a reason that waiting doesn't mend, is a warning.
    pub(crate) fn of(kind: &'static str, name: &str, condition: &Condition) -> Self {
        let note = if condition.message.is_empty() { &condition.reason } else { &condition.message };
        let waits = [
            "Converging",
            "Staged",
            "Waiting",
            "Updating",
            "Updated",
            "Paused",
            "NotReported",
            "Disjoint",
            "Staging",
            "AsExpected",
            "WaitingForWindow",
            "WaitingForGate",
        ];
        let trouble = ["GateFailing", "NodeSilent", "DrainBlocked", "NodeUnwell"].contains(&condition.reason.as_str());
        // Of most conditions it is good that they are so; of these it is not.
        let inverse = ["Degraded", "Overlapping"].contains(&condition.kind.as_str());
        let wrong = (condition.status == "True") == inverse;
        let warning = trouble || (wrong && !waits.contains(&condition.reason.as_str()));
        Self { kind, name: name.to_owned(), warning, reason: condition.reason.clone(), note: note.clone() }
    }
}

/// Decides. Only what is not so already is in the answer. `now` is the time that transitions get.
pub fn decide(world: &World, now: Timestamp) -> Vec<Intent> {
    let text = time_text(now);
    let mut intents = Vec::new();
    let rendered = classes::render_all(world, &text, &mut intents);
    let members = members::members(world);
    for node in world.states.keys() {
        // Its Node is gone, or no set selects it: it is nobody's, and keeps what it has.
        if !members.has(node) {
            intents.push(Intent::Release { node: node.clone() });
        } else if !world.allowed.contains(node) {
            intents.push(Intent::Allow { node: node.clone() });
        }
    }
    access::answer(world, now, &mut intents);
    // The Nodes that have a turn, by their uids.
    let mut held = BTreeSet::new();
    for (name, set) in &world.sets {
        let nodes = members.of.get(name).cloned().unwrap_or_default();
        let class = rendered.get(&set.spec.class_ref.name).map(|class| class.for_set(set));
        let class = class.as_ref();
        // A moment later it is stored. What the set says until then stays as it is.
        if class.is_some_and(|class| !world.revisions.contains_key(&class.revision)) {
            held.extend(set.status.iter().flat_map(|status| &status.slots).map(|slot| slot.uid.clone()));
            continue;
        }
        let outcome = sets::roll(world, &Subject { name, set, class, nodes: &nodes }, &held, now, &mut intents);
        let contested = members.contested.get(name);
        let status = sets::status(world, set, class, outcome.as_ref(), &nodes, contested, now);
        held.extend(status.slots.iter().map(|slot| slot.uid.clone()));
        if set.status.as_ref() != Some(&status) {
            let before = set.status.clone().unwrap_or_default().conditions;
            tell("NodeSet", name, &before, &status.conditions, &mut intents);
            intents.push(Intent::SetStatus { name: name.clone(), status });
        }
    }
    for node in world.stored.keys() {
        // Of a node that left, too: the first Secret is older than the state, which can't own it then.
        let named = world.states.get(node).is_some_and(|state| state.spec.secrets.is_some());
        if !named && !waits_for_contents(&intents, node) {
            intents.push(Intent::ForgetContents { node: node.clone() });
        }
    }
    turns::uncordon(world, &held, &mut intents);
    nodes::show(world, &members, now, &mut intents);
    intents
}

/// Whether a node's Secret is about to be named.
fn waits_for_contents(intents: &[Intent], node: &str) -> bool {
    intents.iter().any(|intent| match intent {
        Intent::Contents { node: one, .. } => one == node,
        Intent::Hand { node: one, spec, .. } => one == node && spec.secrets.is_some(),
        _ => false,
    })
}

/// What is no news when an object begins with it.
const QUIET: [&str; 3] = ["Disjoint", "AsExpected", "EnoughNodes"];

/// Tells of conditions whose reason changed; what an object begins with is told too, unless all is well.
fn tell(kind: &'static str, name: &str, before: &[Condition], now: &[Condition], intents: &mut Vec<Intent>) {
    for condition in now {
        let known = before.iter().find(|known| known.kind == condition.kind);
        if known.map_or(!QUIET.contains(&condition.reason.as_str()), |known| known.reason != condition.reason) {
            intents.push(Intent::Tell(Telling::of(kind, name, condition)));
        }
    }
}

#[cfg(test)]
mod tests;
