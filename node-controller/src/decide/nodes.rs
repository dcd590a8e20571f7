//! What a Node shows of its nodelet: a condition, an annotation, and the labels and taints of its class.

use super::members::Members;
use super::{Intent, tell};
use crate::rollout::{EXCLUDED, SCALE_DOWN_DISABLED};
use crate::world::World;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use nodelet_api::Disruption;
use nodelet_api::objects::{Condition, NodeClass, NodeState, Slot, SlotStep, Taint, TaintEffect, time_text};
use std::collections::{BTreeMap, BTreeSet};

/// The condition of a Node.
pub(crate) const CONVERGED: &str = "NodeletConverged";
/// The annotation of a Node: the revision that it has.
pub(super) const REVISION: &str = "nodelet.dev/revision";
/// The annotation of a Node: the taints that are on it because of its class, as `KEY:EFFECT`.
pub(super) const TAINTS: &str = "nodelet.dev/class-taints";

/// What a Node is to carry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Labels.
    pub labels: BTreeMap<String, String>,
    /// Annotations.
    pub annotations: BTreeMap<String, String>,
    /// All taints of the Node, where they have to change.
    pub taints: Option<Vec<serde_json::Value>>,
}

pub(super) fn show(world: &World, members: &Members, now: Timestamp, intents: &mut Vec<Intent>) {
    for (name, state) in &world.states {
        let Some(node) = world.nodes.get(name) else { continue };
        let class = state.spec.class_ref.as_ref().and_then(|class| world.classes.get(&class.name));
        let misread = state.spec.class_ref.as_ref().is_some_and(|class| world.misread.contains_key(&class.name));
        let mut marks = marks(node, state, class.map(AsRef::as_ref), slot(world, state, node));
        if misread {
            // What a class wants that is not understood can't be told from what it doesn't want any more: all of it stays,
            // but for what comes and goes with a turn.
            keep_owned(node, &mut marks);
        }
        if differs(node, &marks) {
            intents.push(Intent::Mark { node: name.clone(), marks });
        }
        let silent = world.heard.get(name).is_some_and(|(at, seconds)| {
            at.checked_add(SignedDuration::from_secs(*seconds)).is_ok_and(|until| until < now)
        });
        let before: Vec<Condition> = known(node).into_iter().collect();
        let converged = converged(state, silent, &before, &time_text(now));
        if before.first() != Some(&converged) {
            tell("Node", name, &before, std::slice::from_ref(&converged), intents);
            intents.push(Intent::Show { node: name.clone(), condition: Some(converged) });
        }
    }
    clear(world, members, intents);
}

/// Takes from Nodes that are nobody's any more what was put there: labels, annotations, taints and the condition.
/// One whose state is only made anew keeps all of it.
fn clear(world: &World, members: &Members, intents: &mut Vec<Intent>) {
    let nobodys = |name: &str| !world.states.contains_key(name) && !members.has(name);
    for (name, node) in world.nodes.iter().filter(|(name, _)| nobodys(name)) {
        let marks = Marks { taints: taints(node, &[], &BTreeSet::new()), ..Marks::default() };
        if differs(node, &marks) {
            intents.push(Intent::Mark { node: name.clone(), marks });
        }
        if known(node).is_some() {
            intents.push(Intent::Show { node: name.clone(), condition: None });
        }
    }
}

/// The turn of a node, as its set's status has it.
fn slot<'a>(world: &'a World, state: &NodeState, node: &Node) -> Option<&'a Slot> {
    let set = world.sets.get(&state.spec.node_set_ref.as_ref()?.name)?;
    set.status.as_ref()?.slots.iter().find(|slot| Some(&slot.uid) == node.metadata.uid.as_ref())
}

/// The condition as the Node has it.
fn known(node: &Node) -> Option<Condition> {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let found = conditions.into_iter().find(|condition| condition.type_ == CONVERGED)?;
    Some(Condition {
        kind: CONVERGED.to_owned(),
        status: found.status.clone(),
        reason: found.reason.clone().unwrap_or_default(),
        message: found.message.clone().unwrap_or_default(),
        last_transition_time: found
            .last_transition_time
            .as_ref()
            .and_then(|time| serde_json::to_value(time).ok())
            .and_then(|time| time.as_str().map(str::to_owned))
            .unwrap_or_default(),
        observed_generation: None,
    })
}

fn converged(state: &NodeState, silent: bool, before: &[Condition], now: &str) -> Condition {
    let conditions = state.status.iter().flat_map(|status| &status.conditions);
    let said = conditions.into_iter().find(|condition| condition.kind == "Converged");
    let found = match said {
        _ if silent => ("Unknown", "NodeletSilent", "its nodelet was not heard of for a long time".to_owned()),
        None => ("Unknown", "NotReported", "its nodelet has not reported yet".to_owned()),
        // Its sentence changes with every step: that is for the NodeState to show.
        Some(said) if said.reason == "Converging" => ("False", "Converging", "the node is being changed".to_owned()),
        Some(said) => (said.status.as_str(), said.reason.as_str(), said.message.clone()),
    };
    Condition::since(CONVERGED, found, before, None, now)
}

fn marks(node: &Node, state: &NodeState, class: Option<&NodeClass>, slot: Option<&Slot>) -> Marks {
    let applied = state.status.as_ref().and_then(|status| status.applied.as_ref());
    let mut annotations = BTreeMap::new();
    if let Some(applied) = applied {
        annotations.insert(REVISION.to_owned(), applied.revision.clone());
    }
    let wanted: Vec<&Taint> = class.iter().flat_map(|class| &class.spec.node_taints).collect();
    let ours: BTreeSet<String> = wanted.iter().map(|taint| id(&taint.key, effect(taint.effect))).collect();
    if !ours.is_empty() {
        annotations.insert(TAINTS.to_owned(), ours.iter().cloned().collect::<Vec<_>>().join(","));
    }
    let mut labels = class.map(|class| class.spec.node_labels.clone()).unwrap_or_default();
    // While it is worked on, others keep away from it.
    if let Some(slot) = slot.filter(|slot| slot.step < SlotStep::Soaking) {
        // Where somebody else has said so already, as kubeadm does of its control plane, his word stays as it is.
        let said = |on: &BTreeMap<String, String>, key: &str| on.get(key).cloned().unwrap_or_else(|| "true".to_owned());
        annotations.insert(SCALE_DOWN_DISABLED.to_owned(), said(node.annotations(), SCALE_DOWN_DISABLED));
        if slot.disruption >= Disruption::Drain {
            labels.insert(EXCLUDED.to_owned(), said(node.labels(), EXCLUDED));
        }
    }
    Marks { labels, annotations, taints: taints(node, &wanted, &ours) }
}

/// All taints, with the class's among them and without those that it had before; `None` when they are so already.
fn taints(node: &Node, wanted: &[&Taint], ours: &BTreeSet<String>) -> Option<Vec<serde_json::Value>> {
    let before = node.annotations().get(TAINTS).map(String::as_str).unwrap_or_default();
    let before: BTreeSet<&str> = before.split(',').filter(|one| !one.is_empty()).collect();
    let current: Vec<_> = node.spec.iter().flat_map(|spec| spec.taints.iter().flatten()).collect();
    let mut all = Vec::new();
    for taint in &current {
        let id = id(&taint.key, &taint.effect);
        if !before.contains(id.as_str()) && !ours.contains(&id) {
            all.push(serde_json::json!(taint));
        }
    }
    let had = current.len();
    for taint in wanted {
        let is = |one: &&&k8s_openapi::api::core::v1::Taint| {
            one.key == taint.key
                && one.effect == effect(taint.effect)
                && one.value.clone().unwrap_or_default() == taint.value
        };
        all.push(match current.iter().find(is) {
            Some(there) => serde_json::json!(there),
            None => serde_json::json!(taint),
        });
    }
    let same = all.len() == had && current.iter().all(|taint| all.contains(&serde_json::json!(taint)));
    (!same).then_some(all)
}

fn id(key: &str, effect: &str) -> String {
    format!("{key}:{effect}")
}

fn effect(effect: TaintEffect) -> &'static str {
    match effect {
        TaintEffect::NoSchedule => "NoSchedule",
        TaintEffect::PreferNoSchedule => "PreferNoSchedule",
        TaintEffect::NoExecute => "NoExecute",
    }
}

/// What the controller has put on a Node stays there, but for what belongs to a turn.
fn keep_owned(node: &Node, marks: &mut Marks) {
    let ours = |part: &str, on: &BTreeMap<String, String>, into: &mut BTreeMap<String, String>| {
        let keys = owned(node, part).into_iter().filter(|key| ![EXCLUDED, SCALE_DOWN_DISABLED].contains(&key.as_str()));
        for key in keys {
            if let Some(value) = on.get(&key) {
                into.entry(key).or_insert_with(|| value.clone());
            }
        }
    };
    ours("labels", node.labels(), &mut marks.labels);
    ours("annotations", node.annotations(), &mut marks.annotations);
    marks.taints = None;
}

/// The keys of labels or annotations that the controller has put on a Node.
fn owned(node: &Node, part: &str) -> BTreeSet<String> {
    let fields = node.metadata.managed_fields.iter().flatten().filter(|entry| entry.subresource.is_none());
    let fields = fields.filter(|entry| entry.manager.as_deref() == Some(crate::act::MANAGER));
    let keys = fields.filter_map(|entry| {
        let of = entry.fields_v1.as_ref()?.0.get("f:metadata")?.get(format!("f:{part}"))?.as_object()?;
        Some(of.keys().filter_map(|key| key.strip_prefix("f:").map(str::to_owned)).collect::<Vec<_>>())
    });
    keys.flatten().collect()
}

/// Whether a Node lacks something of it, or has something of ours that is not in it.
fn differs(node: &Node, marks: &Marks) -> bool {
    let lacks = |has: &BTreeMap<String, String>, wants: &BTreeMap<String, String>| {
        wants.iter().any(|(key, value)| has.get(key) != Some(value))
    };
    let surplus =
        |part: &str, wants: &BTreeMap<String, String>| owned(node, part).iter().any(|key| !wants.contains_key(key));
    marks.taints.is_some()
        || lacks(node.labels(), &marks.labels)
        || lacks(node.annotations(), &marks.annotations)
        || surplus("labels", &marks.labels)
        || surplus("annotations", &marks.annotations)
}
