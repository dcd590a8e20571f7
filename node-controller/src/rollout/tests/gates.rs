//! Jobs and units at gates, in the miniature.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::simulation::Sim;
use crate::rollout::runs;
use crate::world::{Held, Run};
use jiff::Timestamp;
use nodelet_api::objects::{SlotStep, UnitReport};
use serde_json::json;
use std::sync::Arc;

fn with_job() -> Sim {
    let gate = json!({"name": "smoke", "job": {"namespace": "d", "template": {"spec": {}}}});
    // Jobs come after the set has settled; its first revision asks for them as any other.
    let mut sim = Sim::new(2, json!({}));
    sim.set(|set| set.spec.health.gates = vec![serde_json::from_value(gate).unwrap()]);
    sim
}

/// What the gatekeeper does: looks at the runs that are due.
fn look(sim: &mut Sim, answer: impl Fn(&Run) -> Result<(), Held>) -> Vec<Run> {
    let due: Vec<Run> = runs::wanted(&sim.world.sets["s"]).into_iter().map(|(_, run)| run).collect();
    sim.world.runs = [("s".to_owned(), due.iter().map(|run| (run.clone(), answer(run))).collect())].into();
    due
}

#[test]
fn a_job_runs_before_the_first_node_and_after_each() {
    let mut sim = with_job();
    sim.class("second");
    let mut seen: Vec<String> = Vec::new();
    for _ in 0..60 {
        sim.tick();
        for run in look(&mut sim, |_| Ok(())) {
            assert_eq!(run.revision, sim.revision());
            if !seen.contains(&run.occasion) {
                seen.push(run.occasion);
            }
        }
    }
    sim.assert_done();
    let parts: Vec<&str> = seen.iter().map(|occasion| occasion.split('@').next().unwrap()).collect();
    assert_eq!(parts, ["before", "uid-n0", "uid-n1"]);
    assert!(seen[1].starts_with("uid-n0@2026-01-01T00:0"), "the turn is part of it: {seen:?}");
    assert!(look(&mut sim, |_| Ok(())).is_empty(), "at rest nothing is due");
}

#[test]
fn while_it_runs_nothing_begins_and_nobody_is_warned() {
    let mut sim = with_job();
    sim.class("second");
    for _ in 0..20 {
        sim.tick();
        look(&mut sim, |_| Err(Held::Runs("Job d/j is running".into())));
    }
    assert_eq!((sim.granted.len(), sim.reason().as_str()), (0, "WaitingForGate"));
    let condition = sim.status().conditions[0].clone();
    assert!(condition.message.contains("the gate smoke: Job d/j is running"), "{condition:?}");
    let telling = crate::decide::Telling::of("NodeSet", "s", &condition);
    assert!(!telling.warning, "{telling:?}");
    // It fails: that is another reason, and a warning.
    let failed = "Job d/j failed: BackoffLimitExceeded; delete it to run it again";
    for _ in 0..3 {
        look(&mut sim, |_| Err(Held::Fails(failed.into())));
        sim.tick();
    }
    assert_eq!(sim.reason(), "GateFailing");
    assert!(crate::decide::Telling::of("NodeSet", "s", &sim.status().conditions[0]).warning);
}

#[test]
fn a_node_soaks_until_its_job_is_done_and_fails_with_it() {
    let mut sim = with_job();
    sim.set(|set| set.spec.health.timeout_seconds = 30);
    sim.class("second");
    for _ in 0..20 {
        sim.tick();
        look(&mut sim, |run| if run.occasion == Run::BEFORE { Ok(()) } else { Err(Held::Fails("it failed".into())) });
    }
    let status = sim.status();
    assert_eq!(
        (status.slots[0].step, status.slots[0].waiting_for.as_str()),
        (SlotStep::Soaking, "the gate smoke: it failed")
    );
    assert_eq!(sim.granted, ["n0"]);
    for _ in 0..40 {
        sim.tick();
        look(&mut sim, |run| if run.occasion == Run::BEFORE { Ok(()) } else { Err(Held::Fails("it failed".into())) });
    }
    let reason = sim.status().failures.first().map(|failure| failure.reason.clone()).unwrap_or_default();
    assert!(reason.contains("the gate smoke: it failed"), "{:?}", sim.status());
}

#[test]
fn a_unit_that_is_not_active_holds_the_node_and_then_fails_it() {
    let gates = json!([{"name": "runtime", "units": ["containerd.service"]}]);
    let mut sim = Sim::new(2, json!({"health": {"gates": gates, "timeoutSeconds": 30}}));
    let tick = |sim: &mut Sim, state: &str| {
        sim.tick();
        for name in sim.world.states.keys().cloned().collect::<Vec<_>>() {
            let mut node = (*sim.world.states[&name]).clone();
            let unit = UnitReport { name: "containerd.service".into(), state: state.to_owned(), restarts: 0 };
            node.status.as_mut().unwrap().units = Some(vec![unit]);
            sim.world.states.insert(name, Arc::new(node));
        }
    };
    sim.class("second");
    (0..20).for_each(|_| tick(&mut sim, "failed"));
    let slot = sim.status().slots[0].clone();
    assert_eq!(
        (slot.step, slot.waiting_for.as_str()),
        (SlotStep::Verifying, "the node to be well: containerd.service is failed")
    );
    (0..40).for_each(|_| tick(&mut sim, "failed"));
    let reason = sim.status().bad_revisions[0].reason.clone();
    assert!(reason.contains("it was not well 30 s after its change: containerd.service is failed"), "{reason}");
    sim.class("third");
    (0..100).for_each(|_| tick(&mut sim, "active"));
    sim.assert_done();
}

#[test]
fn a_gate_that_was_not_asked_is_neither_passed_nor_failing() {
    let gate = json!({"name": "web", "http": {"url": "http://web"}});
    let mut sim = Sim::new(2, json!({}));
    sim.set(|set| set.spec.health.gates = vec![serde_json::from_value(gate).unwrap()]);
    sim.class("second");
    sim.run(5);
    assert_eq!((sim.granted.len(), sim.reason().as_str()), (0, "WaitingForGate"));
    let answer = |sim: &mut Sim, answer: Result<(), String>| {
        sim.answer("web", Timestamp::MAX, answer);
        sim.run(20);
    };
    answer(&mut sim, Err("no answer in 5 s".into()));
    assert_eq!((sim.granted.len(), sim.reason().as_str()), (0, "GateFailing"));
    answer(&mut sim, Ok(()));
    sim.assert_done();
}

#[test]
fn an_answer_from_before_the_change_passes_no_node() {
    let mut sim = Sim::new(2, json!({}));
    sim.gate(Ok(()));
    let start = sim.now;
    sim.answer("shop", start, Ok(()));
    sim.class("second");
    sim.run(30);
    // Good enough to begin, and not to be done.
    let slot = sim.status().slots[0].clone();
    assert_eq!((sim.granted.as_slice(), slot.step), (["n0".to_owned()].as_slice(), SlotStep::Soaking));
    let sentence = "the gate shop: it was not looked at since the node changed";
    assert_eq!((slot.reason.as_str(), slot.waiting_for.as_str()), ("WaitingForGate", sentence));
    let since: Timestamp = slot.since.parse().unwrap();
    sim.answer("shop", since, Ok(()));
    sim.run(30);
    assert_eq!(sim.granted, ["n0", "n1"], "the first is done, and the next one waits in its turn");
    assert_eq!(sim.status().slots[0].waiting_for, sentence);
    sim.gate(Ok(()));
    sim.run(5);
    sim.assert_done();
}

#[test]
fn a_way_back_does_not_wait_for_units() {
    let gates = json!([{"name": "runtime", "units": ["containerd.service"]}]);
    let failure = json!({"scope": "AllNodes"});
    let mut sim = Sim::new(2, json!({"health": {"gates": gates, "timeoutSeconds": 30}, "failure": failure}));
    let first = sim.revision();
    let tick = |sim: &mut Sim| {
        sim.tick();
        for name in sim.world.states.keys().cloned().collect::<Vec<_>>() {
            let mut node = (*sim.world.states[&name]).clone();
            let unit = UnitReport { name: "containerd.service".into(), state: "failed".into(), restarts: 0 };
            node.status.as_mut().unwrap().units = Some(vec![unit]);
            sim.world.states.insert(name, Arc::new(node));
        }
    };
    sim.class("second");
    (0..100).for_each(|_| tick(&mut sim));
    assert_eq!((sim.with(&first), sim.status().slots.len()), (2, 0), "{:?}", sim.status());
    assert_eq!(sim.reason(), "RolledBack");
}

/// It is not known yet which nodelet reads it: one of 0.1 refuses a spec with such a field.
#[test]
fn units_are_not_asked_for_while_the_node_changes() {
    let gates = json!([{"name": "runtime", "units": ["containerd.service"]}]);
    let mut sim = Sim::new(1, json!({"health": {"gates": gates}}));
    sim.class("second");
    let mut asked = Vec::new();
    for _ in 0..30 {
        sim.tick();
        let mut state = (*sim.world.states["n0"]).clone();
        let granted = state.spec.grant.as_ref().is_some_and(|grant| grant.disruption > nodelet_api::Disruption::None);
        let now = (granted, state.spec.units.len());
        if asked.last() != Some(&now) {
            asked.push(now);
        }
        let unit = UnitReport { name: "containerd.service".into(), state: "active".into(), restarts: 0 };
        state.status.as_mut().unwrap().units = Some(vec![unit]);
        sim.world.states.insert("n0".into(), Arc::new(state));
    }
    assert_eq!(asked, [(false, 1), (true, 0), (true, 1)]);
    sim.assert_done();
}

#[test]
fn another_turn_and_a_retry_are_other_runs() {
    let mut sim = with_job();
    sim.class("second");
    let mut seen: Vec<Run> = Vec::new();
    let go = |sim: &mut Sim, seen: &mut Vec<Run>, ticks: usize| {
        for _ in 0..ticks {
            sim.tick();
            for run in
                look(sim, |run| if run.occasion.starts_with("uid") { Err(Held::Fails("no".into())) } else { Ok(()) })
            {
                if !seen.contains(&run) {
                    seen.push(run);
                }
            }
        }
    };
    sim.set(|set| set.spec.health.timeout_seconds = 10);
    go(&mut sim, &mut seen, 60);
    assert_eq!((sim.status().bad_revisions.len(), seen.len()), (1, 2), "{seen:?}");
    sim.retry();
    // It goes back first, and nothing follows that; then it is tried again.
    go(&mut sim, &mut seen, 60);
    let occasions: Vec<&str> = seen.iter().map(|run| run.occasion.as_str()).collect();
    assert!(occasions.iter().any(|one| one.starts_with("before@")), "{occasions:?}");
    let turns = occasions.iter().filter(|one| one.starts_with("uid-n0@")).count();
    assert!(turns >= 2, "{occasions:?}");
}

#[test]
fn no_job_follows_a_way_back() {
    for undo in [false, true] {
        let mut sim = with_job();
        let first = sim.revision();
        sim.set(|set| {
            set.spec.failure.scope = nodelet_api::objects::RollbackScope::AllNodes;
            set.spec.failure.budget = if undo { 10 } else { 1 };
            set.spec.health.timeout_seconds = 10;
        });
        sim.class("second");
        sim.run(1);
        let second = sim.revision();
        for tick in 0..200 {
            let due =
                look(&mut sim, |run| if run.occasion == Run::BEFORE { Ok(()) } else { Err(Held::Fails("no".into())) });
            assert!(due.iter().all(|run| run.revision == second), "{due:?}");
            if undo && tick == 15 {
                let undo = nodelet_api::objects::Undo { to: first.clone(), away_from: second.clone() };
                sim.set(|set| set.spec.undo = Some(undo));
            }
            sim.tick();
        }
        assert_eq!((sim.with(&first), sim.status().slots.len()), (2, 0), "{:?}", sim.status());
    }
}
