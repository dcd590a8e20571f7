//! A small cluster for tests: the class `worker`, the set `workers`, and nodes that it selects.
#![allow(clippy::unwrap_used)]

use crate::decide::nodes::CONVERGED;
use crate::world::{StoredRevision, World};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, NodeCondition, NodeStatus};
use nodelet_api::Disruption;
use nodelet_api::objects::{
    Applied, Condition, NodeClass, NodeClassSpec, NodeClassStatus, NodeFailure, NodeSet, NodeSetStatus, NodeState,
    NodeStateStatus, Slot, SlotStep, Staged,
};
use serde_json::json;
use std::sync::Arc;

/// The revision that everything had.
pub(super) const OLD: &str = "worker-old";
/// The revision that the class asks for.
pub(super) const NEW: &str = "worker-new";

/// A cluster.
pub(super) struct Fixture {
    pub(super) world: World,
}

/// When all of it happens.
pub(super) fn now() -> Timestamp {
    "2026-11-17T12:00:00Z".parse().unwrap()
}

impl Fixture {
    /// With these nodes, which were told of the new revision.
    pub(super) fn new(nodes: &[&str]) -> Self {
        let mut class = NodeClass::new("worker", NodeClassSpec::default());
        class.metadata.generation = Some(1);
        class.status = Some(NodeClassStatus {
            observed_generation: Some(1),
            revision: Some(NEW.into()),
            ..NodeClassStatus::default()
        });
        let spec = json!({"classRef": {"name": "worker"}, "selector": {"matchLabels": {"role": "worker"}}});
        let mut set = NodeSet::new("workers", serde_json::from_value(spec).unwrap());
        set.metadata.generation = Some(1);
        set.status = Some(NodeSetStatus {
            observed_generation: Some(1),
            update_revision: NEW.into(),
            current_revision: OLD.into(),
            ..NodeSetStatus::default()
        });
        let stored = |at: &str| StoredRevision { class: "worker".into(), at: at.parse().unwrap() };
        let mut fixture = Self {
            world: World {
                classes: [("worker".to_owned(), Arc::new(class))].into(),
                sets: [("workers".to_owned(), Arc::new(set))].into(),
                revisions: [
                    (OLD.to_owned(), stored("2026-11-10T12:00:00Z")),
                    (NEW.to_owned(), stored("2026-11-17T11:50:00Z")),
                ]
                .into(),
                ..World::default()
            },
        };
        for name in nodes {
            fixture.add(name);
        }
        fixture
    }

    fn add(&mut self, name: &str) {
        let node = json!({
            "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {"role": "worker"}},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        self.world.nodes.insert(name.to_owned(), Arc::new(serde_json::from_value(node).unwrap()));
        let spec = json!({
            "nodeSetRef": {"name": "workers"}, "classRef": {"name": "worker"}, "revision": NEW, "step": "Stage",
        });
        let state = NodeState::new(name, serde_json::from_value(spec).unwrap());
        self.world.states.insert(name.to_owned(), Arc::new(state));
    }

    pub(super) fn set(&mut self, change: impl FnOnce(&mut NodeSet)) {
        change(Arc::make_mut(self.world.sets.get_mut("workers").unwrap()));
    }

    pub(super) fn set_status(&mut self, change: impl FnOnce(&mut NodeSetStatus)) {
        self.set(|set| change(set.status.get_or_insert_default()));
    }

    pub(super) fn class(&mut self, change: impl FnOnce(&mut NodeClass)) {
        change(Arc::make_mut(self.world.classes.get_mut("worker").unwrap()));
    }

    pub(super) fn node(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        change(Arc::make_mut(self.world.nodes.get_mut(name).unwrap()));
    }

    pub(super) fn state(&mut self, name: &str, change: impl FnOnce(&mut NodeState)) {
        change(Arc::make_mut(self.world.states.get_mut(name).unwrap()));
    }

    pub(super) fn status(&mut self, name: &str, change: impl FnOnce(&mut NodeStateStatus)) {
        self.state(name, |state| change(state.status.get_or_insert_default()));
    }

    pub(super) fn applied(&mut self, name: &str, revision: &str) {
        let applied = Applied { revision: revision.into(), at: "2026-11-17T09:00:00Z".into(), secrets: String::new() };
        self.status(name, |status| status.applied = Some(applied));
    }

    pub(super) fn staged(&mut self, name: &str, revision: &str, disruption: Disruption) {
        let plan = vec!["upgrade containerd 1 to 2".to_owned()];
        self.status(name, |status| status.staged = Some(Staged { revision: revision.into(), disruption, plan }));
    }

    pub(super) fn slot(&mut self, node: &str, step: SlotStep, waiting_for: &str) {
        let slot = Slot {
            node: node.into(),
            uid: format!("uid-{node}"),
            claimed: "2026-11-17T11:57:00.000Z".into(),
            revision: NEW.into(),
            step,
            disruption: Disruption::Drain,
            unready_pods: 0,
            pressures: Vec::new(),
            since: "2026-11-17T11:58:00Z".into(),
            reason: String::new(),
            waiting_for: waiting_for.into(),
        };
        self.set_status(|status| status.slots.push(slot));
    }

    pub(super) fn failure(&mut self, node: &str, revision: &str, reason: &str, skipped: bool) {
        let (node, revision, reason) = (node.into(), revision.into(), reason.into());
        let at = "2026-11-17T11:59:00Z".into();
        let failure = NodeFailure { node, revision, reason, skipped, at, retry_at: None };
        self.set_status(|status| status.failures.push(failure));
    }

    fn note(&mut self, kind: &str, status: &str, reason: &str, message: &str) {
        self.set_status(|set| {
            set.conditions.retain(|condition| condition.kind != kind);
            set.conditions.push(condition(kind, status, reason, message));
        });
    }

    pub(super) fn progressing(&mut self, status: &str, reason: &str, message: &str) {
        self.note("Progressing", status, reason, message);
    }

    pub(super) fn degraded(&mut self, reason: &str, message: &str) {
        self.note("Degraded", "True", reason, message);
    }

    /// A condition of a node's state.
    pub(super) fn condition(&mut self, node: &str, kind: &str, reason: &str, message: &str) {
        self.status(node, |status| status.conditions.push(condition(kind, "True", reason, message)));
    }

    pub(super) fn silent(&mut self, node: &str) {
        let silent = NodeCondition {
            type_: CONVERGED.into(),
            status: "Unknown".into(),
            reason: Some("NodeletSilent".into()),
            message: Some("not heard of".into()),
            ..NodeCondition::default()
        };
        self.node(node, |node| {
            let status: &mut NodeStatus = node.status.get_or_insert_default();
            status.conditions.get_or_insert_default().push(silent);
        });
    }
}

fn condition(kind: &str, status: &str, reason: &str, message: &str) -> Condition {
    Condition::since(kind, (status, reason, message.to_owned()), &[], Some(1), "2026-11-17T11:00:00Z")
}
