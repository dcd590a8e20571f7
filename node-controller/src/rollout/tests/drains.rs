//! How nodes are emptied.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::simulation::Sim;
use crate::decide::{Intent, decide};
use nodelet_api::Disruption;
use nodelet_api::objects::SlotStep;
use serde_json::json;
use std::sync::Arc;

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
    assert_eq!(sim.status().slots[0].step, SlotStep::Draining);
    sim.node("n0", |node| node.spec.get_or_insert_default().unschedulable = Some(false));
    sim.run(100);
    assert_eq!(sim.granted, ["n1"]);
    assert!(sim.status().failures[0].reason.contains("uncordoned by hand"), "{:?}", sim.status());
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
        if slot(&sim) == Some(SlotStep::Verifying) {
            break;
        }
    }
    let mut blind = sim.world.clone();
    blind.pods.clear();
    for intent in decide(&blind, sim.now) {
        if let Intent::SetStatus { status, .. } = intent {
            assert_eq!(status.slots[0].step, SlotStep::Verifying);
            assert!(status.slots[0].waiting_for.contains("pods"), "{:?}", status.slots);
        }
    }
    sim.run(20);
    sim.assert_done();
}

/// A budget is held up by somebody: the pod that is not ready, and where it is.
#[test]
fn who_a_budget_waits_for_is_named() {
    let mut sim = Sim::new(2, json!({}));
    sim.pod("n0", "db", Some("StatefulSet"));
    let budget = json!({
        "metadata": {"name": "db", "namespace": "d"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 2},
    });
    sim.world.budgets = vec![Arc::new(serde_json::from_value(budget).unwrap())];
    let sick = |name: &str, node: &str| {
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [], "nodeName": node}});
        Arc::new(serde_json::from_value(pod).unwrap())
    };
    sim.world.covered.insert("d/db".into(), vec![sick("db-1", "n7")]);
    sim.class("second");
    sim.run(10);
    let slot = sim.status().slots[0].clone();
    let sentence = "PodDisruptionBudget d/db allows 0 disruptions (db-1 on n7 not ready; 1 of 2 pods are healthy, 1 are \
                    needed); it keeps pod d/db";
    assert_eq!((slot.reason.as_str(), slot.waiting_for.as_str()), ("DisruptionBudget", sentence));
    assert_eq!(sim.reason(), "Updating", "pods leave within seconds, most of the time");
    sim.run(30);
    assert_eq!(sim.reason(), "DrainBlocked");
    let budgets = std::mem::take(&mut sim.world.budgets);
    sim.evicts = false;
    sim.tick();
    assert_eq!(
        (sim.status().slots[0].reason.as_str(), sim.reason().as_str()),
        ("PodsLeaving", "DrainBlocked"),
        "no flapping"
    );
    sim.world.budgets = budgets;
    let many = ["db-1", "db-2", "db-3", "db-4"].map(|name| sick(name, "n7")).to_vec();
    sim.world.covered.insert("d/db".into(), many);
    sim.tick();
    let waits = sim.status().slots[0].waiting_for.clone();
    assert!(waits.contains("(db-1 on n7, db-2 on n7 and 2 more not ready; "), "{waits}");
}

#[test]
fn what_the_api_server_does_not_let_go_is_said() {
    let mut sim = Sim::new(1, json!({}));
    sim.pod("n0", "db", Some("StatefulSet"));
    sim.evicts = false;
    sim.class("second");
    sim.run(10);
    sim.world.refused.insert("db".into(), "admission webhook \"guard\" denied the request".into());
    sim.tick();
    let slot = sim.status().slots[0].clone();
    assert_eq!(slot.reason, "EvictionRefused");
    assert!(slot.waiting_for.contains("pod d/db, which the API server does not let go: admission"), "{slot:?}");
    sim.world.refused.clear();
    sim.evicts = true;
    sim.run(30);
    sim.assert_done();
}

#[test]
fn volumes_are_waited_for() {
    let mut sim = Sim::new(2, json!({"drain": {"timeoutSeconds": 60, "onTimeout": "Force"}}));
    let volume = crate::world::Attached { volume: "pv-1".into(), claim: Some(("d".into(), "data".into())) };
    for node in ["n0", "n1"] {
        sim.world.volumes.insert(node.into(), vec![volume.clone()]);
    }
    sim.class("second");
    sim.run(20);
    let slot = sim.status().slots[0].clone();
    assert_eq!(
        (slot.step, slot.reason.as_str(), slot.waiting_for.as_str()),
        (SlotStep::Draining, "VolumesAttached", "volume pv-1, the claim d/data to be detached")
    );
    sim.world.volumes.insert("n0".into(), Vec::new());
    sim.run(10);
    assert_eq!(sim.granted, ["n0"]);
    // Where the policy is to go on, also a volume that never leaves does not hold a node up.
    sim.run(100);
    sim.assert_done();
}

/// An autoscaler and load balancers are told before the first pod is asked to leave.
#[test]
fn others_are_told_before_the_cordon() {
    let mut sim = Sim::new(1, json!({}));
    sim.class("second");
    let mut told = None;
    for moment in 0..20 {
        let intents = decide(&sim.world, sim.now);
        let marks = |intent: &Intent| matches!(intent, Intent::Mark { marks, .. } if marks.labels.contains_key(crate::rollout::EXCLUDED));
        let cordons = |intent: &Intent| matches!(intent, Intent::Cordon { cordon: true, .. });
        told = told.or(intents.iter().any(marks).then_some(moment));
        if intents.iter().any(cordons) {
            assert!(told.is_some_and(|told| told < moment), "{told:?}, cordoned at {moment}");
            return;
        }
        sim.tick();
    }
    panic!("it was never cordoned");
}
