#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use crate::world::{Source, StoredRevision};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use nodelet_api::objects::{
    Applied, NodeClass, NodeClassSpec, NodeSet, NodeSetSpec, NodeState, NodeStateStatus, Reference, Selector, Step,
};
use std::sync::Arc;

/// A label that a node can't give itself.
const ROLE: &str = "node-role.kubernetes.io/role";

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn class(name: &str, package: &str) -> Arc<NodeClass> {
    let state = serde_json::from_value(serde_json::json!({"packages": [{"name": package}]})).unwrap();
    Arc::new(NodeClass::new(name, NodeClassSpec { state, ..NodeClassSpec::default() }))
}

fn set(name: &str, role: &str) -> Arc<NodeSet> {
    let selector = Selector { match_labels: [(ROLE.to_owned(), role.to_owned())].into(), ..Selector::default() };
    let spec =
        NodeSetSpec { class_ref: Reference { name: "c".into() }, selector: Some(selector), ..NodeSetSpec::default() };
    Arc::new(NodeSet::new(name, spec))
}

fn node(name: &str, role: &str) -> Arc<Node> {
    let mut node = Node::default();
    node.metadata.name = Some(name.into());
    node.metadata.labels = Some([(ROLE.to_owned(), role.to_owned())].into());
    Arc::new(node)
}

/// Does what is decided, as the cluster would, until nothing is left to do.
fn settle(world: &mut World) -> Vec<Telling> {
    let mut world_tells = Vec::new();
    for _ in 0..10 {
        let intents = decide(world, now());
        if intents.is_empty() {
            return world_tells;
        }
        for intent in intents {
            match intent {
                Intent::Store { class, revision } => {
                    let stored = StoredRevision { class, at: now() };
                    world.revisions.insert(revision.name, stored);
                }
                Intent::Forget { revision } => drop(world.revisions.remove(&revision)),
                Intent::Contents { node, version, .. } => drop(world.stored.insert(node, version)),
                Intent::ForgetContents { node } => drop(world.stored.remove(&node)),
                Intent::Release { node } => drop(world.states.remove(&node)),
                Intent::Answer { name, .. } => world.requests.retain(|request| request.name != name),
                Intent::Tell(telling) => world_tells.push(telling),
                Intent::Cordon { .. } | Intent::Evict(_) => panic!("nothing is drained here"),
                Intent::Mark { node, marks } => {
                    let mut object = (*world.nodes[&node]).clone();
                    object.metadata.labels.get_or_insert_default().extend(marks.labels);
                    object.metadata.annotations.get_or_insert_default().extend(marks.annotations);
                    if let Some(taints) = marks.taints {
                        let taints = taints.into_iter().map(|taint| serde_json::from_value(taint).unwrap());
                        object.spec.get_or_insert_default().taints = Some(taints.collect());
                    }
                    world.nodes.insert(node, Arc::new(object));
                }
                Intent::Show { node, condition } => {
                    let mut object = (*world.nodes[&node]).clone();
                    let shown = condition.map(|condition| {
                        serde_json::from_value(serde_json::json!({
                            "type": condition.kind, "status": condition.status, "reason": condition.reason,
                            "message": condition.message, "lastTransitionTime": condition.last_transition_time,
                        }))
                        .unwrap()
                    });
                    object.status.get_or_insert_default().conditions = Some(shown.into_iter().collect());
                    world.nodes.insert(node, Arc::new(object));
                }
                Intent::ClassStatus { name, status } => {
                    let mut class = (*world.classes[&name]).clone();
                    class.status = Some(status);
                    world.classes.insert(name, Arc::new(class));
                }
                Intent::Hand { node, spec, .. } => {
                    let status = world.states.get(&node).and_then(|state| state.status.clone());
                    let mut state = NodeState::new(&node, *spec);
                    state.status = status;
                    world.states.insert(node, Arc::new(state));
                }
                Intent::Allow { node } => drop(world.allowed.insert(node)),
                Intent::SetStatus { name, status } => {
                    let mut set = (*world.sets[&name]).clone();
                    set.status = Some(status);
                    world.sets.insert(name, Arc::new(set));
                }
            }
        }
    }
    panic!("it never settles: {:?}", decide(world, now()));
}

fn world() -> World {
    World {
        classes: [("c".to_owned(), class("c", "a"))].into(),
        sets: [("s".to_owned(), set("s", "worker"))].into(),
        nodes: [("n1".to_owned(), node("n1", "worker")), ("n2".to_owned(), node("n2", "other"))].into(),
        ..World::default()
    }
}

#[test]
fn nodes_of_a_set_get_the_revision_and_others_nothing() {
    let mut world = world();
    settle(&mut world);
    assert_eq!(world.states.keys().collect::<Vec<_>>(), ["n1"]);
    let spec = world.states["n1"].spec.clone();
    let revision = world.classes["c"].status.clone().unwrap().revision;
    assert_eq!((spec.revision.clone(), spec.step), (revision, Step::Apply));
    assert_eq!(world.sets["s"].status.clone().unwrap().conditions[0].reason, "Staging");

    let mut state = (*world.states["n1"]).clone();
    let applied = Applied { revision: spec.revision.unwrap(), ..Applied::default() };
    state.status = Some(NodeStateStatus { applied: Some(applied), ..NodeStateStatus::default() });
    world.states.insert("n1".into(), Arc::new(state));
    settle(&mut world);
    let status = world.sets["s"].status.clone().unwrap();
    assert_eq!((status.updated_replicas, status.conditions[0].reason.as_str()), (1, "Updated"));
    assert_eq!(status.selector, format!("{ROLE}=worker"));
}

#[test]
fn a_new_class_is_a_new_revision_unless_the_set_is_paused() {
    let mut world = world();
    settle(&mut world);
    let first = world.states["n1"].spec.revision.clone();
    let mut paused = (*world.sets["s"]).clone();
    paused.spec.paused = true;
    world.sets.insert("s".into(), Arc::new(paused.clone()));
    world.classes.insert("c".into(), class("c", "b"));
    settle(&mut world);
    assert_eq!(world.states["n1"].spec.revision, first);
    paused.spec.paused = false;
    world.sets.insert("s".into(), Arc::new(paused));
    settle(&mut world);
    assert_ne!(world.states["n1"].spec.revision, first);
}

#[test]
fn a_node_that_two_sets_select_belongs_to_neither() {
    let mut world = world();
    settle(&mut world);
    let before = world.states["n1"].spec.clone();
    world.sets.insert("t".into(), set("t", "worker"));
    world.classes.insert("c".into(), class("c", "b"));
    settle(&mut world);
    assert_eq!(world.states["n1"].spec, before, "nobody fights for it");
    for name in ["s", "t"] {
        let status = world.sets[name].status.clone().unwrap();
        assert_eq!(status.conditions[1].reason, "SelectedTwice", "{name}");
        assert!(status.conditions[1].message.contains("n1"), "{}", status.conditions[1].message);
    }
}

#[test]
fn a_class_that_contradicts_itself_changes_nothing() {
    let mut world = world();
    settle(&mut world);
    let before = world.states["n1"].spec.clone();
    let state = serde_json::json!({"files": [{"path": "/a", "content": ""}, {"path": "/a/b", "content": ""}]});
    let spec = NodeClassSpec { state: serde_json::from_value(state).unwrap(), ..NodeClassSpec::default() };
    world.classes.insert("c".into(), Arc::new(NodeClass::new("c", spec)));
    settle(&mut world);
    let status = world.classes["c"].status.clone().unwrap();
    assert_eq!(status.conditions[0].reason, "Invalid");
    assert_eq!(world.states["n1"].spec, before);
    assert_eq!(world.sets["s"].status.clone().unwrap().conditions[0].reason, "NoRevision");
}

/// A class that says what only a newer controller knows.
#[test]
fn a_class_that_is_not_understood_changes_nothing() {
    let mut world = world();
    let mut labelled = (*world.classes["c"]).clone();
    labelled.spec.node_labels.insert("of".into(), "class".into());
    world.classes.insert("c".into(), Arc::new(labelled));
    settle(&mut world);
    let (state, node) = (world.states["n1"].clone(), world.nodes["n1"].clone());
    world.classes.clear();
    world.misread.insert("c".into(), "unknown field `later`".into());
    settle(&mut world);
    assert_eq!((&world.states["n1"].spec, &world.nodes["n1"]), (&state.spec, &node));
    let status = world.sets["s"].status.clone().unwrap();
    assert_eq!(status.conditions[0].reason, "ClassNotUnderstood");
    let message = &status.conditions[0].message;
    assert!(message.contains("`later`") && message.contains("must be upgraded first"), "{message}");
}

#[test]
fn a_node_that_is_nobodys_is_let_go() {
    let mut world = world();
    settle(&mut world);
    world.nodes.insert("n1".into(), node("n1", "other"));
    settle(&mut world);
    assert!(world.states.is_empty(), "its label changed");
    world.nodes.insert("n1".into(), node("n1", "worker"));
    settle(&mut world);
    assert!(world.states.contains_key("n1"));
    world.nodes.remove("n1");
    settle(&mut world);
    assert!(world.states.is_empty(), "its Node is gone");
}

#[test]
fn contents_come_before_the_state_that_names_them() {
    let mut world = world();
    let state = serde_json::json!({"files": [
        {"path": "/s", "contentFrom": {"secretRef": {"namespace": "n", "name": "s", "key": "k"}}}]});
    let spec = NodeClassSpec { state: serde_json::from_value(state).unwrap(), ..NodeClassSpec::default() };
    let reference = spec.state.references().pop_first().unwrap();
    let with_contents = Arc::new(NodeClass::new("c", spec));
    world.classes.insert("c".into(), Arc::clone(&with_contents));
    settle(&mut world);
    assert!(world.states.is_empty() && world.stored.is_empty(), "it is not known whether they are there");
    world.sources.insert(reference.clone(), Source::Missing);
    settle(&mut world);
    let conditions = world.classes["c"].status.clone().unwrap().conditions;
    assert!(conditions[1].message.contains("key k of the Secret n/s"), "{conditions:?}");
    assert_eq!(world.sets["s"].status.clone().unwrap().conditions[0].reason, "ContentsMissing");
    let found = |stamp: &str| Source::Found { content: b"x".to_vec(), stamp: stamp.into() };
    world.sources.insert(reference.clone(), found("1"));
    settle(&mut world);
    let first = world.states["n1"].spec.secrets.clone().unwrap();
    assert_eq!((&first.version, first.name.as_str()), (&world.stored["n1"], "nodelet-contents.n1"));
    world.sources.insert(reference, found("2"));
    settle(&mut world);
    let second = world.states["n1"].spec.secrets.clone().unwrap();
    assert!(second.version != first.version && world.stored["n1"] == second.version);
    // A label that a node can give itself is no reason to hand it a Secret.
    let mut own_word = (*world.sets["s"]).clone();
    own_word.spec.selector.as_mut().unwrap().match_labels = [("role".to_owned(), "worker".to_owned())].into();
    let mut labelled = (*world.nodes["n1"]).clone();
    labelled.metadata.labels.as_mut().unwrap().insert("role".into(), "worker".into());
    world.nodes.insert("n1".into(), Arc::new(labelled));
    world.sets.insert("s".into(), Arc::new(own_word));
    let before = world.states["n1"].spec.clone();
    world.stored.clear();
    settle(&mut world);
    let condition = world.sets["s"].status.clone().unwrap().conditions.remove(0);
    assert!(condition.message.contains("labels that a node can give itself"), "{condition:?}");
    assert!(world.stored.is_empty() && world.states["n1"].spec == before);
    world.sets.insert("s".into(), set("s", "worker"));

    world.classes.insert("c".into(), class("c", "a"));
    settle(&mut world);
    assert!(world.stored.is_empty() && world.states["n1"].spec.secrets.is_none());
    world.classes.insert("c".into(), with_contents);
    settle(&mut world);
    assert!(world.stored.contains_key("n1"));
    world.nodes.insert("n1".into(), node("n1", "other"));
    settle(&mut world);
    assert!(world.states.is_empty() && world.stored.is_empty(), "it goes with its node");
}

#[test]
fn a_class_that_changes_has_a_revision_all_the_time() {
    let mut world = world();
    settle(&mut world);
    world.classes.insert("c".into(), class("c", "b"));
    let told = settle(&mut world);
    assert!(!told.iter().any(|one| one.reason == "NoRevision"), "{told:?}");
    world.classes.clear();
    let told = settle(&mut world);
    assert!(told.iter().any(|one| one.reason == "NoRevision" && one.warning), "{told:?}");
}

#[test]
fn revisions_that_nothing_names_are_forgotten_at_last() {
    let mut world = world();
    for number in 0..30 {
        world.classes.insert("c".into(), class("c", &format!("p{number}")));
        settle(&mut world);
    }
    assert!((11..=12).contains(&world.revisions.len()), "{}", world.revisions.len());
}

#[test]
fn a_node_shows_its_class_and_how_far_it_is() {
    let mut world = world();
    let mut class = (*class("c", "a")).clone();
    class.spec.node_labels.insert("disk".into(), "ssd".into());
    class.spec.node_taints =
        serde_json::from_value(serde_json::json!([{"key": "gpu", "effect": "NoSchedule"}])).unwrap();
    world.classes.insert("c".into(), Arc::new(class.clone()));
    let mut object = (*node("n1", "worker")).clone();
    let other = serde_json::json!({"taints": [{"key": "other", "effect": "NoExecute"}]});
    object.spec = Some(serde_json::from_value(other).unwrap());
    world.nodes.insert("n1".into(), Arc::new(object));
    let told = settle(&mut world);
    let shown = world.nodes["n1"].clone();
    assert_eq!(shown.labels()["disk"], "ssd");
    let taints = |world: &World| -> Vec<String> {
        let taints = world.nodes["n1"].spec.clone().unwrap().taints.unwrap();
        taints.into_iter().map(|taint| taint.key).collect()
    };
    assert_eq!(taints(&world), ["other", "gpu"]);
    let condition = shown.status.clone().unwrap().conditions.unwrap().remove(0);
    assert_eq!((condition.status.as_str(), condition.reason.as_deref()), ("Unknown", Some("NotReported")));
    assert!(told.iter().any(|one| one.kind == "Node" && one.reason == "NotReported" && !one.warning), "{told:?}");

    class.spec.node_taints.clear();
    world.classes.insert("c".into(), Arc::new(class));
    let mut state = (*world.states["n1"]).clone();
    let failed = Condition::since("Converged", ("False", "Failed", "no".into()), &[], None, "2026-01-01T00:00:00Z");
    state.status = Some(NodeStateStatus { conditions: vec![failed], ..NodeStateStatus::default() });
    world.states.insert("n1".into(), Arc::new(state));
    let told = settle(&mut world);
    assert_eq!(taints(&world), ["other"], "what others taint stays");
    assert!(told.iter().any(|one| one.kind == "Node" && one.warning && one.note == "no"), "{told:?}");

    let long_ago: Timestamp = "2025-12-31T00:00:00Z".parse().unwrap();
    world.heard.insert("n1".into(), (long_ago, 900));
    let told = settle(&mut world);
    assert!(told.iter().any(|one| one.reason == "NodeletSilent"), "{told:?}");
}
