//! What fails, and the way back.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::simulation::Sim;
use jiff::SignedDuration;
use nodelet_api::objects::{SlotStep, Undo};
use serde_json::json;

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
    let mut sim = Sim::new(4, json!({"failure": {"scope": "AllNodes"}}));
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

/// The API server, or all controllers, are away for longer than a node may take: that is not the node's fault.
#[test]
fn time_in_which_nobody_led_does_not_count() {
    let mut sim = Sim::new(2, json!({"health": {"timeoutSeconds": 60}}));
    sim.world.leads_since = Some(sim.now);
    sim.class("second");
    while sim.status().slots.first().map(|slot| slot.step) != Some(SlotStep::Applying) {
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
    while sim.status().slots.first().map(|slot| slot.step) != Some(SlotStep::Applying) {
        sim.tick();
    }
    sim.ready("n0", false);
    sim.run(70);
    assert!(sim.status().bad_revisions[0].reason.contains("not done in 60 s"), "{:?}", sim.status());
}

#[test]
fn undo_goes_back_until_the_class_changes() {
    let mut sim = Sim::new(3, json!({}));
    let first = sim.revision();
    sim.class("second");
    sim.run(100);
    let second = sim.revision();
    assert_eq!(sim.with(&second), 3);
    let undo = Undo { to: first.clone(), away_from: second };
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
    let undo = Undo { to: first.clone(), away_from: sim.revision() };
    sim.set(|set| set.spec.undo = Some(undo));
    sim.run(20);
    assert_eq!((sim.with(&first), sim.status().slots.len()), (2, 0), "it has that revision, and needs no drain");
    assert!(!sim.world.nodes["n0"].spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false));
}

/// By default only what failed goes back: to take a change from nodes that are well with it disturbs them once more.
#[test]
fn nodes_that_are_well_with_a_bad_revision_keep_it() {
    let mut sim = Sim::new(4, json!({}));
    let first = sim.revision();
    sim.class("bad");
    sim.run(2);
    let bad = sim.revision();
    sim.breaks.insert(("n2".into(), bad.clone()));
    sim.run(200);
    assert_eq!((sim.with(&first), sim.with(&bad)), (2, 2), "{:?}", sim.status());
    assert_eq!(sim.granted, ["n0", "n1", "n2"], "nobody is visited twice");
    let message = sim.status().conditions[0].message.clone();
    assert_eq!(sim.reason(), "FailureBudget");
    assert!(message.contains("nodes that are well with it keep it") && message.contains("retry"), "{message}");
    assert_eq!(sim.tick(), 0, "then nothing is written any more");
    // What was in the way is mended, and somebody says so.
    sim.breaks.clear();
    sim.retry();
    sim.run(200);
    sim.assert_done();
    assert_eq!(sim.granted, ["n0", "n1", "n2", "n3"], "{:?}", sim.granted);
}

/// What a node can't undo by itself, because its change seemed well to it, is taken back in a turn.
#[test]
fn a_node_that_does_not_become_well_goes_back_alone() {
    let window = json!({"start": "00:00", "durationMinutes": 5});
    let mut sim =
        Sim::new(4, json!({"health": {"timeoutSeconds": 20}, "windows": [window], "strategy": {"maxUnavailable": 2}}));
    sim.gate(Ok(()));
    let first = sim.revision();
    sim.now = "2026-01-02T00:00:00Z".parse().unwrap();
    sim.class("bad");
    sim.run(4);
    let bad = sim.revision();
    while sim.with(&bad) < 2 {
        sim.tick();
    }
    // Both have it, and one of them is not ready; while it goes back, the window closes and the shop is closed, too.
    sim.gate(Err("the shop is closed".to_owned()));
    sim.ready("n1", false);
    sim.run(25);
    assert!(sim.status().failures.iter().any(|failure| failure.node == "n1"), "{:?}", sim.status());
    sim.now = "2026-01-02T03:00:00Z".parse().unwrap();
    sim.ready("n1", true);
    sim.run(60);
    assert_eq!((sim.with(&first), sim.status().slots.len()), (4, 0), "{:?}", sim.status());
    assert_eq!(sim.reason(), "RolledBack", "nobody was well with it");
}

/// Where also the way back fails, it ends at the same budget.
#[test]
fn the_way_back_is_not_taken_by_all_when_it_fails() {
    let mut sim = Sim::new(5, json!({}));
    let first = sim.revision();
    sim.class("second");
    sim.run(200);
    let second = sim.revision();
    sim.breaks.extend((0..5).map(|number| (format!("n{number}"), first.clone())));
    sim.granted.clear();
    sim.set(|set| set.spec.undo = Some(Undo { to: first.clone(), away_from: second.clone() }));
    sim.run(200);
    assert_eq!((sim.granted.len(), sim.with(&second)), (1, 5), "{:?}", sim.status());
    assert_eq!(sim.reason(), "FailureBudget");
    assert!(sim.status().bad_revisions.is_empty(), "that is for what the class asks for");
    assert!(sim.status().conditions[0].message.contains("look at that node"), "{:?}", sim.status());
}

/// A machine without power says nothing about the revision.
#[test]
fn a_node_that_nobody_hears_of_is_waited_for() {
    let mut sim = Sim::new(6, json!({"health": {"timeoutSeconds": 3}, "strategy": {"maxUnavailable": 2}}));
    sim.class("second");
    while !sim.status().slots.iter().any(|slot| slot.node == "n0" && slot.step == SlotStep::Applying) {
        sim.tick();
    }
    // Its nodelet was heard a moment ago: that is no sign that it still is.
    sim.world.heard.insert("n0".into(), (sim.now, 900));
    sim.heard("n0", "Unknown");
    sim.run(300);
    let status = sim.status();
    assert_eq!((status.failures.len(), status.bad_revisions.len()), (0, 0), "{status:?}");
    assert_eq!((status.slots.len(), status.slots[0].reason.as_str()), (1, "NodeSilent"), "{status:?}");
    assert!(sim.granted.len() < 4, "the others wait until it is known what became of it: {:?}", sim.granted);
    assert_eq!((sim.reason().as_str(), status.conditions[3].reason.as_str()), ("NodeSilent", "NodeSilent"));
    // It is back, and goes on where it was.
    sim.heard("n0", "True");
    sim.run(200);
    sim.assert_done();
    assert_eq!(sim.granted.iter().filter(|node| *node == "n0").count(), 1);

    // Or somebody decides to go on without it.
    sim.class("third");
    while !sim.status().slots.iter().any(|slot| slot.node == "n0" && slot.step == SlotStep::Applying) {
        sim.tick();
    }
    sim.heard("n0", "Unknown");
    sim.run(100);
    sim.pause("n0");
    sim.run(200);
    let third = sim.revision();
    assert_eq!((sim.with(&third), sim.status().slots.len()), (5, 0), "{:?}", sim.status());
}

/// Passed over by the policy: it has another turn after a while. By a person: when a person says so.
#[test]
fn nodes_that_were_passed_over_get_another_turn() {
    let mut sim = Sim::new(2, json!({"drain": {"timeoutSeconds": 5, "onTimeout": "Skip"}}));
    sim.pod("n0", "stuck", None);
    sim.class("second");
    sim.run(60);
    let second = sim.revision();
    assert_eq!((sim.with(&second), sim.reason().as_str()), (1, "NodesLeftOut"), "{:?}", sim.status());
    assert!(
        sim.status().conditions[0].message.contains("it gets another turn at 2026-01-01T00:1"),
        "{:?}",
        sim.status()
    );
    sim.world.pods.get_mut("n0").unwrap().clear();
    sim.run(600);
    sim.assert_done();

    sim.pod("n1", "stuck", None);
    sim.class("third");
    let drains = |sim: &Sim| sim.status().slots.iter().any(|slot| slot.node == "n1" && slot.step == SlotStep::Draining);
    while !drains(&sim) {
        sim.tick();
    }
    sim.node("n1", |node| node.spec.as_mut().unwrap().unschedulable = Some(false));
    sim.world.pods.get_mut("n1").unwrap().clear();
    sim.run(3000);
    let third = sim.revision();
    assert_eq!(sim.with(&third), 1, "whoever uncordoned it wants it so");
    assert!(sim.status().conditions[0].message.contains("`kubectl nodes retry`"), "{:?}", sim.status());
    sim.retry();
    sim.run(100);
    sim.assert_done();
}

/// A nodelet keeps itself from what failed until it is asked for something else: also where all others stay as they are.
#[test]
fn a_retry_reaches_nodes_that_keep_themselves_from_what_failed() {
    for failure in [json!({"action": "Pause"}), json!({"budget": 2})] {
        let mut sim = Sim::new(3, json!({"failure": failure}));
        sim.class("second");
        sim.run(2);
        let second = sim.revision();
        sim.breaks.insert(("n0".into(), second.clone()));
        sim.run(100);
        assert_eq!(sim.status().failures[0].node, "n0", "{failure}: {:?}", sim.status());
        sim.breaks.clear();
        sim.run(20);
        assert_ne!(sim.with(&second), 3, "it is not tried again by itself");
        sim.retry();
        sim.run(100);
        sim.assert_done();
    }
}

/// Who could not go back is not taken for one that is well.
#[test]
fn a_node_that_is_passed_over_on_its_way_back_is_still_a_failed_one() {
    let mut sim =
        Sim::new(3, json!({"health": {"timeoutSeconds": 20}, "drain": {"timeoutSeconds": 5, "onTimeout": "Skip"}}));
    let first = sim.revision();
    sim.class("bad");
    sim.run(2);
    let bad = sim.revision();
    while sim.with(&bad) < 2 {
        sim.tick();
    }
    // The second one has it, is not ready, and then can't be emptied.
    sim.ready("n1", false);
    sim.run(30);
    sim.pod("n1", "stuck", None);
    sim.ready("n1", true);
    sim.run(60);
    let failures = sim.status().failures;
    assert!(failures.iter().any(|one| one.node == "n1" && one.revision == bad && !one.skipped), "{failures:?}");
    assert!(failures.iter().any(|one| one.node == "n1" && one.revision == first && one.skipped), "{failures:?}");
    sim.world.pods.get_mut("n1").unwrap().clear();
    sim.run(700);
    assert_eq!((sim.with(&first), sim.with(&bad)), (2, 1), "it went back in its next turn: {:?}", sim.status());
}

/// What is blocked is not reached by a turn that was begun for something else.
#[test]
fn a_turn_is_not_led_to_a_kubelet_that_is_refused() {
    let mut sim = Sim::new(2, json!({}));
    sim.world.api_server = Some("v1.35.8".into());
    sim.pod("n0", "stuck", None);
    sim.class("second");
    sim.run(10);
    let second = sim.revision();
    assert_eq!(sim.status().slots[0].step, SlotStep::Draining);
    sim.kubelet("1.36.0");
    sim.run(5);
    assert_eq!(sim.status().slots[0].revision, second, "{:?}", sim.status());
    sim.world.pods.get_mut("n0").unwrap().clear();
    sim.run(60);
    assert_eq!((sim.with(&second), sim.granted.len()), (1, 1), "{:?}", sim.status());
    assert_eq!(sim.reason(), "VersionSkew");
}

/// What a turn allowed goes with it, also where the node is left as it is.
#[test]
fn no_grant_outlives_its_turn() {
    let mut sim = Sim::new(2, json!({"health": {"timeoutSeconds": 5}}));
    sim.class = nodelet_api::Disruption::Restart;
    sim.class("second");
    while !sim.status().slots.iter().any(|slot| slot.node == "n0" && slot.step == SlotStep::Applying) {
        sim.tick();
    }
    sim.heard("n0", "Unknown");
    sim.run(10);
    sim.pause("n0");
    sim.run(10);
    let spec = &sim.world.states["n0"].spec;
    assert_eq!((spec.step, &spec.grant), (nodelet_api::objects::Step::Stage, &None));
}

/// A turn whose next revision can't be made ready ends, and frees the node.
#[test]
fn a_turn_does_not_wait_for_ever_for_a_revision_that_is_not_ready() {
    let mut sim = Sim::new(2, json!({"health": {"timeoutSeconds": 30}}));
    sim.pod("n0", "stuck", None);
    sim.class("second");
    sim.run(10);
    assert!(sim.is_cordoned("n0"));
    sim.stages = false;
    sim.class("third");
    sim.run(10);
    assert_eq!(sim.status().slots[0].reason, "Staging");
    sim.run(30);
    assert!(sim.status().slots.is_empty() && !sim.is_cordoned("n0"), "{:?}", sim.status());
    assert!(sim.status().failures[0].skipped && sim.status().failures[0].retry_at.is_some());
}
