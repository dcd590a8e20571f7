//! What a cluster shows of its nodes: conditions, labels, taints, Events, tables.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::scene::{SOON, Scene, condition, one_file};

const ROLE: &str = "shown";

/// Events about an object, by reason: how many objects there are, and how often they say that it happened.
fn events(scene: &Scene, kind: &str, name: &str) -> BTreeMap<String, (u64, u64)> {
    let selector = format!("--field-selector=regarding.kind={kind},regarding.name={name}");
    let text = scene.cluster.kubectl(&["get", "events.events.k8s.io", "-A", &selector, "-o", "json"]).unwrap();
    let list: Value = serde_json::from_str(&text).unwrap();
    let mut found = BTreeMap::new();
    for event in list["items"].as_array().unwrap() {
        if event["reportingController"] == "nodelet.dev/node-controller" {
            let entry: &mut (u64, u64) = found.entry(event["reason"].as_str().unwrap().to_owned()).or_default();
            entry.0 += 1;
            entry.1 += event["series"]["count"].as_u64().unwrap_or(1);
        }
    }
    found
}

fn taints(node: &Value) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let text = |taint: &Value| format!("{}={}:{}", taint["key"], taint["value"], taint["effect"]).replace('"', "");
    taints.iter().map(text).collect()
}

#[test]
fn a_node_shows_what_it_is_and_what_its_class_says() {
    let scene = Scene::shared();
    let _node = scene.node_of("shown", ROLE);
    let kubectl = |words: &[&str]| scene.cluster.kubectl(words).unwrap();
    // What other people put there stays.
    kubectl(&["label", "node", "shown", "others=label"]);
    kubectl(&["taint", "node", "shown", "others=taint:NoSchedule"]);
    let mut spec = one_file("one");
    spec["nodeLabels"] = json!({"of-class": "yes", "tier": "a"});
    spec["nodeTaints"] = json!([{"key": "of-class", "value": "a", "effect": "PreferNoSchedule"}]);
    scene.class_of(ROLE, &spec);
    scene.set_of(ROLE);
    scene.wait_until_applied_of(ROLE, &["shown"], SOON);

    let revision = scene.state("shown")["spec"]["revision"].clone();
    let object = scene.wait_for_object("the Node to show it", "node", "shown", |node| {
        condition(node, "NodeletConverged")["status"] == "True"
            && node["metadata"]["annotations"]["nodelet.dev/revision"] == revision
    });
    assert_eq!(condition(&object, "NodeletConverged")["reason"], "Converged", "{object}");
    let labels = &object["metadata"]["labels"];
    assert_eq!(
        (&labels["of-class"], &labels["tier"], &labels["others"]),
        (&json!("yes"), &json!("a"), &json!("label"))
    );
    let all = taints(&object);
    assert!(all.contains(&"of-class=a:PreferNoSchedule".to_owned()), "{all:?}");
    assert!(all.contains(&"others=taint:NoSchedule".to_owned()), "{all:?}");

    // A label that somebody else changes is put back; the class's other value of a taint replaces its first.
    kubectl(&["label", "node", "shown", "tier=mine", "--overwrite"]);
    spec["nodeTaints"] = json!([{"key": "of-class", "value": "b", "effect": "PreferNoSchedule"}]);
    scene.class_of(ROLE, &spec);
    scene.wait_for_object("the other value", "node", "shown", |node| {
        let all = taints(node);
        node["metadata"]["labels"]["tier"] == "a"
            && all.contains(&"of-class=b:PreferNoSchedule".to_owned())
            && all.len() == 2
    });

    // What the class drops goes, and nothing else.
    scene.class_of(ROLE, &one_file("two"));
    scene.wait_until_applied_of(ROLE, &["shown"], SOON);
    let revision = scene.state("shown")["spec"]["revision"].clone();
    let object = scene.wait_for_object("what the class dropped to be gone", "node", "shown", |node| {
        taints(node) == ["others=taint:NoSchedule"]
            && node["metadata"]["labels"]["of-class"].is_null()
            && node["metadata"]["annotations"]["nodelet.dev/revision"] == revision
    });
    assert_eq!(object["metadata"]["labels"]["others"], "label", "{object}");
    assert!(object["metadata"]["labels"]["tier"].is_null(), "{object}");
    assert!(object["metadata"]["annotations"]["nodelet.dev/class-taints"].is_null(), "{object}");

    // A change that fails on the node is a condition with its words, and one warning.
    let broken = json!({"state": {"units": [{"name": "not-there.service", "running": true}]}});
    scene.class_of(ROLE, &broken);
    let object = scene.wait_for_object("the failure", "node", "shown", |node| {
        condition(node, "NodeletConverged")["reason"] == "Failed"
    });
    let said = condition(&object, "NodeletConverged")["message"].as_str().unwrap().to_owned();
    assert!(said.contains("not-there.service"), "{said}");
    let table = kubectl(&["get", "nodestates,nodesets"]);
    println!("{table}");
    for word in ["CLASS", "REVISION", "UPDATED", "AGE"] {
        assert!(table.contains(word), "no {word} in:\n{table}");
    }
    assert!(table.lines().all(|line| line.chars().count() <= 180), "too wide for a terminal:\n{table}");
    scene.class_of(ROLE, &one_file("three"));
    scene.wait_until_applied_of(ROLE, &["shown"], SOON);
    scene.wait_for_object("the recovery", "node", "shown", |node| {
        condition(node, "NodeletConverged")["status"] == "True"
    });

    // Ten more changes: the Node goes from Converged to Converging and back with each, at most.
    let before = events(&scene, "Node", "shown");
    for number in 0..10 {
        scene.class_of(ROLE, &one_file(&number.to_string()));
        scene.wait_until_applied_of(ROLE, &["shown"], SOON);
    }
    let after = events(&scene, "Node", "shown");
    println!("Events of the Node, (objects, times) by reason: {before:?}, after ten more changes: {after:?}");
    println!("Events of the set: {:?}", events(&scene, "NodeSet", "showns"));
    println!("Events of the class: {:?}", events(&scene, "NodeClass", ROLE));
    let of_set = events(&scene, "NodeSet", "showns");
    assert!(!of_set.contains_key("NoRevision"), "the class always had one: {of_set:?}");
    assert!(before.contains_key("Converged") && before.contains_key("Failed"), "{before:?}");
    for (kind, name, limit) in [("Node", "shown", 16), ("NodeSet", "showns", 18), ("NodeClass", ROLE, 18)] {
        for (reason, (objects, times)) in events(&scene, kind, name) {
            assert!(objects <= limit && times <= limit, "{kind} {name}: {reason} {times} times in {objects} Events");
        }
    }
}
