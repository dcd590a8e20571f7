#![allow(clippy::unwrap_used, clippy::panic)]
use super::*;
use k8s_openapi::api::core::v1::Node;
use nodelet_api::objects::{Applied, NodeClass, NodeClassSpec, NodeSetSpec, NodeStateStatus};
use std::sync::Arc;

const NOW: &str = "2026-01-01T00:00:00Z";

fn class(name: &str, package: &str) -> Arc<NodeClass> {
    let state = serde_json::from_value(serde_json::json!({"packages": [{"name": package}]})).unwrap();
    Arc::new(NodeClass::new(name, NodeClassSpec { state, ..NodeClassSpec::default() }))
}

fn set(name: &str, role: &str) -> Arc<NodeSet> {
    let selector = Selector { match_labels: [("role".to_owned(), role.to_owned())].into(), ..Selector::default() };
    let spec =
        NodeSetSpec { class_ref: Reference { name: "c".into() }, selector: Some(selector), ..NodeSetSpec::default() };
    Arc::new(NodeSet::new(name, spec))
}

fn node(name: &str, role: &str) -> Arc<Node> {
    let mut node = Node::default();
    node.metadata.name = Some(name.into());
    node.metadata.labels = Some([("role".to_owned(), role.to_owned())].into());
    Arc::new(node)
}

/// Does what is decided, as the cluster would, until nothing is left to do.
fn settle(world: &mut World) -> usize {
    for round in 0..10 {
        let intents = decide(world, NOW);
        if intents.is_empty() {
            return round;
        }
        for intent in intents {
            match intent {
                Intent::Store { revision, .. } => drop(world.revisions.insert(revision.name)),
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
    panic!("it never settles: {:?}", decide(world, NOW));
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
    assert_eq!(world.sets["s"].status.clone().unwrap().conditions[0].reason, "Updating");

    let mut state = (*world.states["n1"]).clone();
    let applied = Applied { revision: spec.revision.unwrap(), ..Applied::default() };
    state.status = Some(NodeStateStatus { applied: Some(applied), ..NodeStateStatus::default() });
    world.states.insert("n1".into(), Arc::new(state));
    settle(&mut world);
    let status = world.sets["s"].status.clone().unwrap();
    assert_eq!((status.updated_replicas, status.conditions[0].reason.as_str()), (1, "Updated"));
    assert_eq!(status.selector, "role=worker");
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
