//! Rollouts over a cluster in miniature.
#![allow(clippy::unwrap_used, clippy::panic)]

mod gates;
mod simulation;

use crate::decide::{Intent, decide};
use jiff::SignedDuration;
use nodelet_api::Disruption;
use nodelet_api::objects::{NodeClass, NodeClassSpec};
use serde_json::json;
use simulation::Sim;
use std::collections::BTreeMap;
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
fn a_bad_revision_stops_at_the_first_node_and_goes_back() {
    let mut sim = Sim::new(4, json!({}));
    let first = sim.revision();
    sim.class("bad");
    sim.run(2);
    let bad = sim.revision();
    for node in ["n0", "n1", "n2", "n3"] {
        sim.breaks.insert((node.into(), bad.clone()));
    }
    sim.run(100);
    assert_eq!(sim.granted, ["n0"], "exactly one node was touched");
    assert_eq!(sim.with(&first), 4);
    let status = sim.status();
    assert_eq!(
        (status.bad_revisions[0].revision.as_str(), status.update_revision.as_str()),
        (bad.as_str(), first.as_str())
    );
    assert!(status.conditions[3].message.contains("HealthCheckFailed"), "{status:?}");
    assert_eq!(sim.reason(), "RolledBack", "{status:?}");
    assert!(status.conditions[0].message.contains("correct the class"), "{status:?}");
    assert!(status.slots.is_empty());
    // A correction goes through; the bad one is not tried again.
    sim.class("good");
    sim.run(200);
    sim.assert_done();
    sim.class("bad");
    sim.run(100);
    assert_ne!(sim.with(&bad), 4);
    assert_eq!(sim.with(&bad), 0, "it is remembered");
}

#[test]
fn nodes_that_had_the_bad_revision_go_back_in_their_turn() {
    let mut sim = Sim::new(4, json!({}));
    let first = sim.revision();
    sim.class("bad");
    sim.run(2);
    let bad = sim.revision();
    sim.breaks.insert(("n2".into(), bad.clone()));
    sim.run(200);
    assert_eq!((sim.with(&first), sim.with(&bad)), (4, 0), "{:?}", sim.status());
    assert_eq!(sim.granted, ["n0", "n1", "n2", "n0", "n1"]);
    assert_eq!((sim.most_away, sim.reason().as_str()), (1, "RolledBack"));
}

#[test]
fn a_set_that_pauses_on_failure_stays_as_it_is() {
    let mut sim = Sim::new(4, json!({"failure": {"action": "Pause", "budget": 2}}));
    sim.class("bad");
    sim.run(2);
    let bad = sim.revision();
    sim.breaks.extend([("n0".to_owned(), bad.clone()), ("n2".to_owned(), bad.clone())]);
    sim.run(200);
    assert_eq!(sim.granted, ["n0", "n1", "n2"]);
    assert_eq!((sim.with(&bad), sim.reason().as_str()), (1, "FailureBudget"));
    assert!(sim.status().slots.is_empty());
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

#[test]
fn who_uncordons_by_hand_is_heard() {
    let mut sim = Sim::new(2, json!({}));
    sim.pod("n0", "stuck", None);
    sim.class("second");
    sim.run(10);
    assert!(
        sim.status().slots[0].waiting_for.contains("pod d/stuck, which no controller would make again"),
        "{:?}",
        sim.status()
    );
    sim.node("n0", |node| node.spec.as_mut().unwrap().unschedulable = Some(false));
    sim.run(100);
    let revision = sim.revision();
    assert_eq!(sim.with(&revision), 1);
    assert_eq!(sim.granted, ["n1"]);
    assert!(sim.status().failures[0].reason.contains("uncordoned by hand"));
    assert!(sim.status().bad_revisions.is_empty(), "that is no failure");
}

#[test]
fn budgets_keep_pods_and_are_named() {
    let mut sim = Sim::new(2, json!({"drain": {"timeoutSeconds": 30, "onTimeout": "Force"}}));
    sim.pod("n0", "db", Some("StatefulSet"));
    sim.pod("n0", "agent", Some("DaemonSet"));
    let budget = json!({
        "metadata": {"name": "db", "namespace": "d"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
    });
    sim.world.budgets = vec![Arc::new(serde_json::from_value(budget).unwrap())];
    sim.class("second");
    sim.run(15);
    let waits = sim.status().slots[0].waiting_for.clone();
    assert_eq!(
        waits,
        "PodDisruptionBudget d/db allows 0 disruptions (1 of 1 pods are healthy, 1 are needed); it keeps pod d/db"
    );
    assert!(sim.granted.is_empty());
    sim.run(60);
    sim.assert_done();
    assert_eq!(sim.world.pods["n0"].len(), 1, "the daemon set's stays");
}

/// Whatever budgets say, the API server lets go what is not well anyway.
#[test]
fn a_budget_keeps_no_pod_that_the_api_server_would_let_go() {
    let budget = |name: &str, healthy: i32, policy: &str| {
        let budget = json!({
            "metadata": {"name": name, "namespace": "d"},
            "spec": {"selector": {"matchLabels": {"app": "db"}}, "unhealthyPodEvictionPolicy": policy},
            "status": {"disruptionsAllowed": 0, "currentHealthy": healthy, "desiredHealthy": 2, "expectedPods": 3},
        });
        Arc::new(serde_json::from_value(budget).unwrap())
    };
    let sick = |phase: &str| {
        let mut sim = Sim::new(2, json!({}));
        sim.pod("n0", "db", Some("StatefulSet"));
        let pod = Arc::make_mut(&mut sim.world.pods.get_mut("n0").unwrap()[0]);
        let status = json!({"phase": phase, "conditions": [{"type": "Ready", "status": "False"}]});
        pod.status = Some(serde_json::from_value(status).unwrap());
        sim
    };
    for (phase, healthy, policy, goes) in [
        ("Pending", 0, "IfHealthyBudget", true),
        ("Running", 2, "IfHealthyBudget", true),
        ("Running", 1, "IfHealthyBudget", false),
        ("Running", 1, "AlwaysAllow", true),
    ] {
        let mut sim = sick(phase);
        sim.world.budgets = vec![budget("db", healthy, policy)];
        sim.class("second");
        sim.run(100);
        assert_eq!(sim.granted.contains(&"n0".to_owned()), goes, "{phase} {healthy} {policy}: {:?}", sim.status());
    }
    let mut sim = sick("Running");
    sim.world.budgets = vec![budget("db", 1, "AlwaysAllow"), budget("other", 1, "AlwaysAllow")];
    sim.class("second");
    sim.run(20);
    let waits = sim.status().slots[0].waiting_for.clone();
    assert!(waits.contains("d/db and d/other, and the API server evicts no pod that has two"), "{waits}");
}

/// Pods that leave an uncordoned node come back to it.
#[test]
fn an_administrator_who_takes_his_own_cordon_back_ends_the_drain() {
    let mut sim = Sim::new(2, json!({}));
    sim.pod("n0", "stuck", None);
    sim.node("n0", |node| node.spec.get_or_insert_default().unschedulable = Some(true));
    sim.class("second");
    sim.run(10);
    assert_eq!(sim.status().slots[0].step, nodelet_api::objects::SlotStep::Draining);
    sim.node("n0", |node| node.spec.get_or_insert_default().unschedulable = Some(false));
    sim.run(100);
    assert_eq!(sim.granted, ["n1"]);
    assert!(sim.status().failures[0].reason.contains("uncordoned by hand"), "{:?}", sim.status());
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

/// A controller that was just started does not know a node's pods: that is no sign that they are well.
#[test]
fn pods_that_are_not_known_are_waited_for() {
    let mut sim = Sim::new(1, json!({}));
    sim.class = Disruption::Restart;
    sim.pod("n0", "web", Some("ReplicaSet"));
    sim.class("second");
    let slot = |sim: &Sim| sim.status().slots.first().map(|slot| slot.step);
    for _ in 0..20 {
        sim.tick();
        if slot(&sim) == Some(nodelet_api::objects::SlotStep::Verifying) {
            break;
        }
    }
    let mut blind = sim.world.clone();
    blind.pods.clear();
    for intent in decide(&blind, sim.now) {
        if let Intent::SetStatus { status, .. } = intent {
            assert_eq!(status.slots[0].step, nodelet_api::objects::SlotStep::Verifying);
            assert!(status.slots[0].waiting_for.contains("pods"), "{:?}", status.slots);
        }
    }
    sim.run(20);
    sim.assert_done();
}

/// The API server, or all controllers, are away for longer than a node may take: that is not the node's fault.
#[test]
fn time_in_which_nobody_led_does_not_count() {
    let mut sim = Sim::new(2, json!({"health": {"timeoutSeconds": 60}}));
    sim.world.leads_since = Some(sim.now);
    sim.class("second");
    while sim.status().slots.first().map(|slot| slot.step) != Some(nodelet_api::objects::SlotStep::Applying) {
        sim.tick();
    }
    // Its nodelet is heard again a while after the controller.
    sim.ready("n0", false);
    sim.now = sim.now.checked_add(SignedDuration::from_hours(1)).unwrap();
    sim.world.leads_since = Some(sim.now);
    sim.run(30);
    assert!(sim.status().failures.is_empty(), "{:?}", sim.status());
    sim.ready("n0", true);
    sim.run(100);
    sim.assert_done();
    // One that stays away fails all the same.
    sim.class("third");
    while sim.status().slots.first().map(|slot| slot.step) != Some(nodelet_api::objects::SlotStep::Applying) {
        sim.tick();
    }
    sim.ready("n0", false);
    sim.run(70);
    assert!(sim.status().bad_revisions[0].reason.contains("not done in 60 s"), "{:?}", sim.status());
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
        node.metadata.annotations.get_or_insert_default().insert(super::PAUSED.into(), "true".into());
    });
    sim.run(60);
    let revision = sim.revision();
    assert_eq!(sim.with(&revision), 2, "n1 is paused by itself");
}

#[test]
fn undo_goes_back_until_the_class_changes() {
    let mut sim = Sim::new(3, json!({}));
    let first = sim.revision();
    sim.class("second");
    sim.run(100);
    let second = sim.revision();
    assert_eq!(sim.with(&second), 3);
    let undo = nodelet_api::objects::Undo { to: first.clone(), away_from: second };
    sim.set(|set| set.spec.undo = Some(undo));
    sim.run(100);
    assert_eq!(sim.with(&first), 3);
    sim.class("third");
    sim.run(100);
    sim.assert_done();
}

#[test]
fn undo_frees_a_node_whose_pods_do_not_leave() {
    let mut sim = Sim::new(2, json!({}));
    let first = sim.revision();
    sim.pod("n0", "alone", None);
    sim.class("second");
    sim.run(15);
    assert!(sim.status().slots[0].waiting_for.contains("d/alone"), "{:?}", sim.status().slots);
    let undo = nodelet_api::objects::Undo { to: first.clone(), away_from: sim.revision() };
    sim.set(|set| set.spec.undo = Some(undo));
    sim.run(20);
    assert_eq!((sim.with(&first), sim.status().slots.len()), (2, 0), "it has that revision, and needs no drain");
    assert!(!sim.world.nodes["n0"].spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false));
}

#[test]
fn a_kubelet_is_never_newer_than_the_api_server() {
    let mut sim = Sim::new(2, json!({}));
    sim.world.api_server = Some("v1.35.8".into());
    let kubelet = |sim: &mut Sim, version: &str| {
        let state = serde_json::from_value(json!({"kubelet": {"version": version}})).unwrap();
        let class = NodeClass::new("c", NodeClassSpec { state, ..NodeClassSpec::default() });
        sim.world.classes.insert("c".into(), Arc::new(class));
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

/// Random faults: never more away than allowed by our doing, and in the end all is as it should be.
#[test]
fn whatever_happens_it_ends_well() {
    let mut random: u64 = 20_261_117;
    let mut next = |limit: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % limit
    };
    for round in 0..30 {
        let nodes = usize::try_from(1 + next(8)).unwrap();
        let limit = usize::try_from(1 + next(3)).unwrap();
        let class = [Disruption::Restart, Disruption::Drain, Disruption::None][usize::try_from(next(3)).unwrap()];
        let soak = next(5);
        let mut sim = Sim::new(nodes, json!({"strategy": {"maxUnavailable": limit, "soakSeconds": soak}}));
        sim.class = class;
        sim.class("one");
        let mut sick: BTreeMap<String, bool> = BTreeMap::new();
        for moment in 0..60 {
            let node = format!("n{}", next(u64::try_from(nodes).unwrap()));
            match next(12) {
                0 => {
                    let is = sick.entry(node.clone()).or_default();
                    *is = !*is;
                    let ready = !*is;
                    sim.ready(&node, ready);
                }
                1 => sim.class(&format!("{round}-{moment}")),
                2 => sim.set(|set| set.spec.paused = !set.spec.paused),
                _ => {}
            }
            let before = sim.status().slots.len();
            sim.tick();
            let slots = sim.status().slots.len();
            assert!(slots <= limit.max(before), "{slots} turns, and {limit} may be");
        }
        for (node, is) in sick {
            if is {
                sim.ready(&node, true);
            }
        }
        sim.set(|set| set.spec.paused = false);
        sim.run(120 * nodes);
        sim.assert_done();
    }
}
