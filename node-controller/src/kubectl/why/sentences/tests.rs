//! What is said of nodes in trouble.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::kubectl::fixture::{Fixture, NEW, OLD, now};
use crate::rollout::PAUSED;
use nodelet_api::Disruption;
use nodelet_api::objects::{BadRevision, SlotStep, StepResult, StrategyType, Undo};
use std::sync::Arc;

fn why(fixture: &Fixture, node: &str) -> Why {
    explain(&fixture.world, node, &[], now())
}

fn said(fixture: &Fixture, node: &str) -> (Vec<String>, String) {
    let why = why(fixture, node);
    (why.because, why.todo.join("\n"))
}

fn rolling() -> Fixture {
    let mut fixture = Fixture::new(&["n1", "n2", "n3"]);
    for node in ["n1", "n2", "n3"] {
        fixture.applied(node, OLD);
        fixture.staged(node, NEW, Disruption::Drain);
    }
    fixture.progressing("True", "Updating", "0 of 3 nodes have worker-new");
    fixture
}

#[test]
fn a_node_that_is_done_is_soon_explained() {
    let mut fixture = Fixture::new(&["n1"]);
    fixture.applied("n1", NEW);
    fixture.progressing("False", "Updated", "all 1 nodes have worker-new");
    let (because, todo) = said(&fixture, "n1");
    let wanted = [
        "n1 is in the NodeSet workers, of the class worker.",
        "It has had worker-new for 3h, and that is what its set wants.",
    ];
    assert_eq!((because, todo.as_str()), (wanted.map(str::to_owned).to_vec(), ""));
}

#[test]
fn a_turn_and_those_who_wait_for_it() {
    let mut fixture = rolling();
    fixture.slot("n1", SlotStep::Draining, "PodDisruptionBudget shop/web allows 0 disruptions");
    let (because, todo) = said(&fixture, "n1");
    assert!(todo.contains("`drain.onTimeout`"), "{todo}");
    let turn =
        "It has had its turn for 2m: it is draining, and waits for: PodDisruptionBudget shop/web allows 0 disruptions.";
    assert_eq!(because[1], "It has had worker-old for 3h, and must become worker-new; that disturbs: Drain.");
    assert_eq!(because[2], turn);
    let (because, _) = said(&fixture, "n2");
    assert_eq!(because[2..], ["Now it is the turn of n1 (draining).", "It is the next one."]);
    assert_eq!(said(&fixture, "n3").0[3], "One node comes before it.");
}

#[test]
fn what_holds_a_set_back_comes_with_what_to_do() {
    for (reason, rest, todo) in [
        ("Paused", "the set is paused", "kubectl nodes resume workers"),
        ("WaitingForWindow", "the next window opens at Sat 23:00", "`windows` of the set"),
        ("GateFailing", "the gate web: no answer", "make well"),
        ("WaitingForGate", "the gate smoke: Job shop/smoke is running", "wait until the gate"),
        ("FailureBudget", "revision worker-new failed", "kubectl nodes undo workers"),
    ] {
        let mut fixture = rolling();
        fixture.progressing("False", reason, &format!("0 of 3 nodes have worker-new; {rest}"));
        fixture.set(|set| set.spec.paused = reason == "Paused");
        let (because, what) = said(&fixture, "n1");
        assert!(because.contains(&format!("The set begins nothing: {rest}.")), "{because:?}");
        assert!(what.contains(todo), "{what}");
    }
}

#[test]
fn a_pause_of_one_node_and_a_set_that_waits_for_hands() {
    let mut fixture = rolling();
    fixture.node("n1", |node| {
        node.annotations_mut().insert(PAUSED.into(), "true".into());
    });
    assert!(said(&fixture, "n1").1.contains("kubectl nodes resume --node n1"));
    fixture.set(|set| set.spec.strategy.r#type = StrategyType::OnDelete);
    assert!(said(&fixture, "n2").1.contains("kubectl delete nodestate n2"));
}

#[test]
fn failures_and_ways_back() {
    let mut fixture = rolling();
    fixture.failure("n1", NEW, "StepFailed: containerd does not start", false);
    let step = |what: &str, result: &str| StepResult { what: what.into(), result: result.into(), at: String::new() };
    fixture.status("n1", |status| status.steps = vec![step("upgrade containerd", "undone"), step("write /a", "done")]);
    let (because, todo) = said(&fixture, "n1");
    assert_eq!(because[2], "It failed: StepFailed: containerd does not start.");
    assert_eq!(because[3], "Of its last change: upgrade containerd (undone).");
    assert!(todo.contains("kubectl nodes undo workers"), "{todo}");

    let bad = BadRevision { revision: NEW.into(), reason: "node n1: x".into(), at: String::new() };
    fixture.set_status(|status| {
        status.bad_revisions.push(bad);
        status.update_revision = OLD.into();
    });
    let (because, _) = said(&fixture, "n2");
    assert_eq!(because[2], "The class asks for worker-new, which failed (node n1: x), so the set went back.");
    fixture.set(|set| set.spec.undo = Some(Undo { to: OLD.into(), away_from: NEW.into() }));
    assert!(said(&fixture, "n2").0[2].contains("somebody went back from it"));
}

#[test]
fn membership_that_is_not_one() {
    let mut fixture = rolling();
    let twin = Arc::clone(&fixture.world.sets["workers"]);
    fixture.world.sets.insert("others".into(), twin);
    let (because, todo) = said(&fixture, "n1");
    assert_eq!(because[0], "n1 is selected by the NodeSets others and workers, and so belongs to none of them.");
    assert!(todo.contains("kubectl edit nodesets others workers"), "{todo}");
    fixture.world.sets.remove("others");
    fixture.world.states.remove("n1");
    fixture.set_status(|status| status.selector = "role=worker".into());
    fixture.node("n1", |node| node.metadata.labels = None);
    let (because, todo) = said(&fixture, "n1");
    assert_eq!(because[0], "n1 belongs to no NodeSet: none selects its labels.");
    assert!(todo.contains("workers selects role=worker"), "{todo}");
}

#[test]
fn a_nodelet_that_is_silent_or_never_came() {
    let mut fixture = rolling();
    fixture.silent("n1");
    let (because, todo) = said(&fixture, "n1");
    assert!(because.iter().any(|one| one.starts_with("Its nodelet was not heard of")), "{because:?}");
    assert!(todo.contains("systemctl status nodelet"), "{todo}");
    fixture.state("n2", |state| state.status = None);
    let unheard = "It is not ready for its turn: its nodelet has not reported yet.".to_owned();
    assert!(said(&fixture, "n2").0.contains(&unheard));
    fixture.world.states.remove("n3");
    assert!(said(&fixture, "n3").0.iter().any(|one| one.contains("It has no NodeState yet")));
}

#[test]
fn certificates_that_it_did_not_get() {
    let fixture = rolling();
    let requests = [
        Unanswered { name: "r1".into(), denied: Some("another machine has it.".into()) },
        Unanswered { name: "r2".into(), denied: None },
    ];
    let why = explain(&fixture.world, "n1", &requests, now());
    let said = why.because.join("\n");
    assert!(said.contains("Its request r1 for a certificate was denied: another machine has it.\n"), "{said}");
    assert!(said.contains("Its request r2 for a certificate is not answered yet."), "{said}");
    assert!(why.todo.iter().any(|one| one.contains("kubectl delete csr r1")), "{:?}", why.todo);
}

#[test]
fn a_node_and_a_class_that_are_not_well() {
    let mut fixture = rolling();
    fixture.node("n1", |node| node.status = None);
    fixture.condition("n1", "Degraded", "DiskFull", "/var has no room");
    fixture.class(|class| {
        let found = ("False", "Missing", "Secret a/b is missing".to_owned());
        class.status.as_mut().unwrap().conditions.push(Condition::since("ContentsFound", found, &[], None, ""));
    });
    let (because, todo) = said(&fixture, "n1");
    let said = because.join("\n");
    assert!(said.contains("Its kubelet does not say that it is ready."), "{said}");
    assert!(said.contains("DiskFull: /var has no room"), "{said}");
    assert!(said.contains("Of the class worker: Secret a/b is missing."), "{said}");
    assert!(todo.contains("kubectl edit nodeclass worker"), "{todo}");
}
