//! Whose turn it is, and what it leads to.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::simulation::Sim;
use nodelet_api::Disruption;
use nodelet_api::objects::{NodeSet, SlotStep};
use serde_json::json;
use std::sync::Arc;

#[test]
fn one_at_a_time_and_all_of_them() {
    let mut sim = Sim::new(5, json!({}));
    sim.class("second");
    sim.run(200);
    sim.assert_done();
    assert_eq!(sim.most_away, 1);
    assert_eq!(sim.granted, ["n0", "n1", "n2", "n3", "n4"], "in order, each once");
    assert_eq!(sim.tick(), 0, "then nothing is written any more");
}

#[test]
fn as_many_as_may_be_away() {
    for (amount, most) in [(json!(3), 3), (json!("40%"), 4), (json!("5%"), 1)] {
        let mut sim = Sim::new(10, json!({"strategy": {"maxUnavailable": amount}}));
        sim.class("second");
        sim.run(200);
        sim.assert_done();
        assert_eq!(sim.most_away, most);
    }
}

#[test]
fn what_disturbs_nothing_needs_no_turn() {
    let mut sim = Sim::new(5, json!({}));
    sim.class = Disruption::None;
    sim.class("second");
    sim.run(10);
    sim.assert_done();
    assert_eq!((sim.most_away, sim.granted.len()), (0, 0));
}

#[test]
fn a_restart_is_not_a_cordon() {
    let mut sim = Sim::new(3, json!({}));
    sim.class = Disruption::Restart;
    sim.class("second");
    sim.run(100);
    sim.assert_done();
    assert_eq!((sim.most_away, sim.granted.len()), (0, 3));
}

#[test]
fn the_sick_count_and_go_first() {
    let mut sim = Sim::new(3, json!({}));
    sim.ready("n2", false);
    sim.class("second");
    sim.run(50);
    assert!(sim.granted.is_empty(), "one is away already: {:?}", sim.granted);
    assert!(sim.status().conditions[0].message.contains("1 of 3 nodes are unavailable"), "{:?}", sim.status());
    sim.ready("n2", true);
    sim.run(100);
    sim.assert_done();
}

#[test]
fn waves_wait_for_one_another() {
    let mut sim = Sim::new(10, json!({"strategy": {"steps": [1, "50%"], "maxUnavailable": 5, "soakSeconds": 20}}));
    sim.class("second");
    sim.run(2);
    let second = sim.revision();
    sim.run(10);
    assert_eq!(sim.with(&second), 1, "the canary soaks");
    sim.run(24);
    assert_eq!(sim.with(&second), 5);
    sim.run(60);
    sim.assert_done();
}

#[test]
fn a_newer_revision_takes_over() {
    let mut sim = Sim::new(4, json!({"strategy": {"soakSeconds": 5}}));
    sim.class("second");
    sim.run(8);
    sim.class("third");
    sim.run(200);
    sim.assert_done();
    assert!(sim.granted.len() <= 6, "no node was visited needlessly: {:?}", sim.granted);
    assert_eq!(sim.most_away, 1);
}

#[test]
fn a_deleted_node_holds_no_slot() {
    let mut sim = Sim::new(3, json!({"strategy": {"soakSeconds": 50}}));
    sim.class("second");
    sim.run(6);
    let holder = sim.status().slots[0].node.clone();
    sim.node(&holder, |node| node.metadata.uid = Some("another".into()));
    sim.tick();
    assert!(sim.status().slots.iter().all(|slot| slot.uid != format!("uid-{holder}")), "{:?}", sim.status().slots);
    sim.run(400);
    sim.assert_done();
}

#[test]
fn an_administrators_cordon_stays() {
    let mut sim = Sim::new(2, json!({"strategy": {"maxUnavailable": 2}}));
    sim.node("n0", |node| node.spec.get_or_insert_default().unschedulable = Some(true));
    sim.class("second");
    sim.run(100);
    let revision = sim.revision();
    assert_eq!(sim.with(&revision), 2);
    let cordoned = |name: &str| sim.world.nodes[name].spec.as_ref().and_then(|spec| spec.unschedulable);
    assert_eq!((cordoned("n0"), cordoned("n1")), (Some(true), Some(false)));
}

/// What is away already is not made to wait for others to be back.
#[test]
fn a_cordoned_node_goes_first() {
    let mut sim = Sim::new(3, json!({}));
    sim.node("n2", |node| node.spec.get_or_insert_default().unschedulable = Some(true));
    sim.class("second");
    sim.run(100);
    assert_eq!(sim.granted, ["n2"]);
    assert!(sim.status().conditions[0].message.contains("1 of 3 nodes are unavailable"), "{:?}", sim.status());
    sim.node("n2", |node| node.spec.get_or_insert_default().unschedulable = Some(false));
    sim.run(100);
    sim.assert_done();
}

#[test]
fn windows_and_pauses_limit_what_begins() {
    let mut sim = Sim::new(3, json!({"windows": [{"start": "12:00", "durationMinutes": 60}]}));
    sim.class("second");
    sim.run(20);
    assert_eq!((sim.granted.len(), sim.reason().as_str()), (0, "WaitingForWindow"));
    sim.now = "2026-01-01T12:00:00Z".parse().unwrap();
    sim.run(5);
    sim.set(|set| set.spec.paused = true);
    sim.run(30);
    assert_eq!((sim.granted.len(), sim.reason().as_str()), (1, "Paused"), "what was begun is finished");
    assert!(sim.status().slots.is_empty());
    sim.set(|set| set.spec.paused = false);
    sim.node("n1", |node| {
        node.metadata.annotations.get_or_insert_default().insert(crate::rollout::PAUSED.into(), "true".into());
    });
    sim.run(60);
    let revision = sim.revision();
    assert_eq!(sim.with(&revision), 2, "n1 is paused by itself");
}

#[test]
fn a_kubelet_is_never_newer_than_the_api_server() {
    let mut sim = Sim::new(2, json!({}));
    sim.world.api_server = Some("v1.35.8".into());
    let kubelet = |sim: &mut Sim, version: &str| {
        sim.kubelet(version);
        sim.run(60);
        (sim.granted.len(), sim.status().conditions[0].message.clone())
    };
    let (granted, message) = kubelet(&mut sim, "1.36.0");
    assert!(
        granted == 0 && message.contains("newer than the API server v1.35.8: upgrade the control plane"),
        "{message}"
    );
    let (granted, message) = kubelet(&mut sim, "1.31.9");
    assert!(granted == 0 && message.contains("4 minor versions behind"), "{message}");
    assert_eq!(kubelet(&mut sim, "1.33.0").0, 2);
}

#[test]
fn control_plane_nodes_and_zones_go_in_order() {
    let mut sim = Sim::new(6, json!({"strategy": {"maxUnavailable": 3, "topologyKey": "zone"}}));
    for (number, zone) in ["b", "a", "b", "a", "b", "a"].iter().enumerate() {
        sim.node(&format!("n{number}"), |node| {
            node.metadata.labels.as_mut().unwrap().insert("zone".into(), (*zone).into());
        });
    }
    sim.class("second");
    sim.run(200);
    sim.assert_done();
    assert_eq!(sim.granted, ["n1", "n3", "n5", "n0", "n2", "n4"]);

    let mut sim = Sim::new(3, json!({"strategy": {"maxUnavailable": 3}}));
    for number in 0..3 {
        sim.node(&format!("n{number}"), |node| {
            node.metadata
                .labels
                .as_mut()
                .unwrap()
                .insert("node-role.kubernetes.io/control-plane".into(), String::new());
        });
    }
    sim.world.own_node = Some("n0".into());
    sim.class("second");
    sim.run(200);
    sim.assert_done();
    assert_eq!((sim.most_away, sim.granted.last().map(String::as_str)), (1, Some("n0")));
}

/// What a person does to a set in the middle of a turn leaves no node cordoned.
#[test]
fn no_cordon_outlives_its_turn() {
    let begun = || {
        let mut sim = Sim::new(2, json!({}));
        sim.pod("n0", "stuck", None);
        sim.class("second");
        sim.run(10);
        assert!(sim.is_cordoned("n0"));
        sim
    };
    let mut sim = begun();
    sim.node("n0", |node| drop(node.metadata.labels.take()));
    sim.run(3);
    assert!(!sim.is_cordoned("n0"), "it left its set");

    let mut sim = begun();
    sim.world.sets.clear();
    sim.run(3);
    assert!(!sim.is_cordoned("n0"), "its set is gone");

    // Without its class nothing begins; what was begun is finished.
    let mut sim = begun();
    let second = sim.revision();
    sim.world.classes.clear();
    sim.run(5);
    assert_eq!(sim.reason(), "NoRevision");
    assert!(sim.is_cordoned("n0"), "its turn goes on");
    let mut gone = begun();
    gone.world.classes.clear();
    gone.world.revisions.clear();
    gone.run(3);
    assert!(!gone.is_cordoned("n0") && gone.status().slots.is_empty(), "what it was begun for is gone, too");
    sim.world.pods.get_mut("n0").unwrap().clear();
    sim.run(30);
    assert_eq!((sim.with(&second), sim.is_cordoned("n0"), sim.granted.len()), (1, false, 1), "{:?}", sim.status());
}

/// A gate that fails while a node is watched is said in the condition, and told once.
#[test]
fn a_gate_that_fails_while_a_node_soaks_is_told() {
    let mut sim = Sim::new(2, json!({"health": {"timeoutSeconds": 30}}));
    sim.gate(Ok(()));
    sim.class("second");
    while !sim.status().slots.iter().any(|slot| slot.step == SlotStep::Verifying) {
        sim.tick();
    }
    sim.gate(Err("it answers with 500".into()));
    sim.told.clear();
    sim.run(10);
    assert_eq!(sim.reason(), "GateFailing");
    let slot = sim.status().slots[0].clone();
    assert_eq!(
        (slot.reason.as_str(), slot.waiting_for.as_str()),
        ("GateFailing", "the gate shop: it answers with 500")
    );
    let told = sim.told.iter().filter(|told| told.reason == "GateFailing").collect::<Vec<_>>();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].warning && told[0].note.contains("the gate shop: it answers with 500"), "{told:?}");
    sim.gate(Ok(()));
    sim.run(60);
    sim.assert_done();
    let reasons: Vec<&str> =
        sim.told.iter().filter(|told| told.kind == "Node").map(|told| told.reason.as_str()).collect();
    assert_eq!(reasons.iter().filter(|reason| **reason == "TurnEnded").count(), 2, "{reasons:?}");
}

/// What pressed a node before its turn is no fault of the change; what is new is.
#[test]
fn only_new_pressures_count() {
    let mut sim = Sim::new(2, json!({"health": {"timeoutSeconds": 20}}));
    let press = |sim: &mut Sim, name: &str, kind: &str| {
        let condition = json!({"type": kind, "status": "True"});
        sim.node(name, |node| {
            node.status.as_mut().unwrap().conditions.as_mut().unwrap().push(serde_json::from_value(condition).unwrap());
        });
    };
    press(&mut sim, "n0", "DiskPressure");
    sim.class("second");
    while sim.status().slots.first().map(|slot| slot.node.as_str()) != Some("n1") {
        sim.tick();
    }
    while sim.status().slots.first().map(|slot| slot.step) != Some(SlotStep::Verifying) {
        sim.tick();
    }
    press(&mut sim, "n1", "PIDPressure");
    sim.run(5);
    let waits = sim.status().slots[0].waiting_for.clone();
    assert_eq!(waits, "the node to be well: it has PIDPressure");
    sim.run(30);
    assert_eq!(sim.status().failures[0].node, "n1");
}

/// A class that asks for any patch of a minor version: which one it became, the node says.
#[test]
fn the_kubelet_that_the_api_server_sees_is_the_one_that_was_installed() {
    use crate::rollout::plain_version;
    assert_eq!(plain_version("1.35.8-1.1"), Some("1.35.8"));
    assert_eq!((plain_version("1.35.*"), plain_version("1.20.5+really1.20.2-1")), (None, None));
}

/// Control-plane nodes of two sets, at once and when one set does not see yet what the other did.
#[test]
fn control_plane_nodes_of_two_sets_go_one_at_a_time() {
    let mut sim = Sim::new(2, json!({}));
    for (name, role) in [("n0", "worker"), ("n1", "other")] {
        sim.node(name, |node| {
            let labels = node.metadata.labels.as_mut().unwrap();
            labels.insert("role".into(), role.into());
            labels.insert("node-role.kubernetes.io/control-plane".into(), String::new());
        });
    }
    let spec = json!({"classRef": {"name": "c"}, "selector": {"matchLabels": {"role": "other"}}});
    sim.world.sets.insert("t".into(), Arc::new(NodeSet::new("t", serde_json::from_value(spec).unwrap())));
    sim.run(50);
    sim.class("second");
    sim.most_away = 0;
    sim.run(100);
    let second = sim.revision();
    assert_eq!((sim.with(&second), sim.most_away), (2, 1));
    // Both have a turn, as when the second was given before the first was seen.
    sim.class("third");
    sim.run(4);
    let mut slots = sim.status().slots;
    if slots.is_empty() {
        slots = sim.world.sets["t"].status.clone().unwrap().slots;
    }
    let mut other = slots[0].clone();
    let (set, node) = if other.node == "n0" { ("t", "n1") } else { ("s", "n0") };
    (other.node, other.uid) = (node.to_owned(), format!("uid-{node}"));
    let mut changed = (*sim.world.sets[set]).clone();
    changed.status.as_mut().unwrap().slots = vec![other];
    sim.world.sets.insert(set.to_owned(), Arc::new(changed));
    sim.most_away = 0;
    sim.run(100);
    let third = sim.revision();
    assert_eq!((sim.with(&third), sim.most_away), (2, 1));
}

/// A label that somebody else put there before stays his.
#[test]
fn what_others_say_of_a_node_is_not_overruled() {
    let mut sim = Sim::new(1, json!({}));
    sim.class("second");
    for _ in 0..30 {
        // The simulation takes it away with ours.
        sim.node("n0", |node| {
            drop(node.metadata.labels.as_mut().unwrap().insert(crate::rollout::EXCLUDED.into(), String::new()));
        });
        for intent in crate::decide::decide(&sim.world, sim.now) {
            if let crate::decide::Intent::Mark { marks, .. } = intent {
                assert!(marks.labels.get(crate::rollout::EXCLUDED).is_none_or(String::is_empty), "{marks:?}");
            }
        }
        sim.tick();
    }
    sim.assert_done();
}
