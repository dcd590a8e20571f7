//! Sets and nodes in all their states.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::kubectl::fixture::{Fixture, NEW, OLD};
use serde_json::json;

fn row(fixture: &Fixture, node: &str) -> NodeRow {
    let row = set(&fixture.world, "workers", &fixture.world.sets["workers"]);
    row.nodes.into_iter().find(|row| row.name == node).unwrap()
}

#[test]
fn a_set_says_how_far_it_is() {
    let mut fixture = Fixture::new(&["n1", "n2", "n3"]);
    fixture.applied("n1", NEW);
    fixture.progressing("True", "Updating", "1 of 3 nodes have worker-new; n2 is draining, waits for pod a/b to leave");
    let row = set(&fixture.world, "workers", &fixture.world.sets["workers"]);
    assert_eq!((row.class.as_str(), row.revision.as_str(), row.updated, row.total), ("worker", NEW, 1, 3));
    assert_eq!((row.reason.as_str(), row.message.as_str()), ("Updating", "n2 is draining, waits for pod a/b to leave"));
    fixture.progressing("False", "Updated", "all 3 nodes have worker-new");
    let row = set(&fixture.world, "workers", &fixture.world.sets["workers"]);
    assert_eq!((row.reason.as_str(), row.message.as_str()), ("Updated", ""));
    fixture.set(|set| set.metadata.generation = Some(9));
    assert_eq!(sets(&fixture.world)[0].reason, "NotSeen");
    fixture.degraded("RevisionFailed", "revision worker-new failed: node n1: x");
    assert_eq!(sets(&fixture.world)[0].troubles, ["revision worker-new failed: node n1: x"]);
}

#[test]
fn a_turn_is_shown_before_anything_else() {
    let mut fixture = Fixture::new(&["n1"]);
    fixture.applied("n1", OLD);
    fixture.slot("n1", SlotStep::Draining, "pod a/b to leave");
    let shown = row(&fixture, "n1");
    assert_eq!((shown.step, shown.reason.as_str()), (NodeStep::Draining, "pod a/b to leave"));
    assert_eq!((shown.applied.as_deref(), shown.wanted.as_str()), (Some(OLD), NEW));
    assert_eq!((shown.disruption, shown.since.as_str()), (Some(Disruption::Drain), "2026-11-17T11:58:00Z"));
    // Another machine of that name.
    fixture.node("n1", |node| node.metadata.uid = Some("other".into()));
    assert_eq!(row(&fixture, "n1").step, NodeStep::Waiting);
}

#[test]
fn a_node_without_a_turn_says_why() {
    let mut fixture = Fixture::new(&["n1"]);
    let seen = |fixture: &Fixture| (row(fixture, "n1").step, row(fixture, "n1").reason);
    let is = |step, reason: &str| (step, reason.to_owned());
    assert_eq!(seen(&fixture), is(NodeStep::Waiting, "its nodelet has not reported yet"));
    fixture.status("n1", |_| {});
    assert_eq!(seen(&fixture), is(NodeStep::Waiting, "it makes the revision ready"));
    fixture.status("n1", |status| status.waiting_for = "the lock of dpkg".into());
    assert_eq!(seen(&fixture), is(NodeStep::Waiting, "the lock of dpkg"));
    fixture.staged("n1", NEW, Disruption::Restart);
    assert_eq!(seen(&fixture), is(NodeStep::Staged, "it waits for its turn"));
    assert_eq!(row(&fixture, "n1").disruption, Some(Disruption::Restart));
    fixture.set(|set| set.spec.paused = true);
    assert_eq!(seen(&fixture), is(NodeStep::Paused, "the set is paused"));
    fixture.node("n1", |node| {
        node.annotations_mut().insert(PAUSED.into(), "true".into());
    });
    assert_eq!(seen(&fixture), is(NodeStep::Paused, "its Node has the annotation nodelet.dev/paused"));
    fixture.failure("n1", NEW, "StepFailed: x", false);
    assert_eq!(seen(&fixture), is(NodeStep::Failed, "StepFailed: x"));
    fixture.applied("n1", NEW);
    assert_eq!(seen(&fixture), is(NodeStep::Done, ""));
    fixture.status("n1", |status| status.applied.as_mut().unwrap().secrets = "other".into());
    assert_eq!(seen(&fixture).0, NodeStep::Failed, "with other contents it is not done");
    fixture.world.states.clear();
    fixture.set(|set| {
        set.spec.paused = false;
        set.status = None;
    });
    fixture.node("n1", |node| node.annotations_mut().clear());
    assert_eq!(seen(&fixture), is(NodeStep::Waiting, "it has no NodeState yet"));
}

#[test]
fn what_is_not_well_is_said_also_of_a_node_that_is_done() {
    let mut fixture = Fixture::new(&["n1"]);
    fixture.applied("n1", NEW);
    fixture.condition("n1", "Drifted", "RepairBudget", "/etc/x was changed 5 times");
    assert_eq!(row(&fixture, "n1").reason, "RepairBudget: /etc/x was changed 5 times");
    fixture.silent("n1");
    assert_eq!((row(&fixture, "n1").step, row(&fixture, "n1").reason.as_str()), (NodeStep::Done, "not heard of"));
}

#[test]
fn states_are_enough_where_nodes_may_not_be_read() {
    let mut fixture = Fixture::new(&["n1", "n2"]);
    fixture.applied("n1", NEW);
    fixture.world.nodes.clear();
    let row = set(&fixture.world, "workers", &fixture.world.sets["workers"]);
    assert_eq!((row.updated, row.total), (1, 2));
}

#[test]
fn a_delete_starts_the_change_where_the_set_says_so() {
    let mut fixture = Fixture::new(&["n1"]);
    fixture.set(|set| set.spec.strategy.r#type = StrategyType::OnDelete);
    fixture.applied("n1", OLD);
    fixture.state("n1", |state| state.spec.revision = Some(OLD.into()));
    assert_eq!(row(&fixture, "n1").reason, "it changes when its NodeState is deleted");
}

#[test]
fn rows_are_data() {
    let mut fixture = Fixture::new(&["n1"]);
    fixture.applied("n1", OLD);
    fixture.staged("n1", NEW, Disruption::Drain);
    let data = serde_json::to_value(row(&fixture, "n1")).unwrap();
    let wanted = json!({
        "name": "n1", "step": "staged", "applied": OLD, "wanted": NEW, "disruption": "Drain",
        "reason": "it waits for its turn",
    });
    assert_eq!(data, wanted);
}
