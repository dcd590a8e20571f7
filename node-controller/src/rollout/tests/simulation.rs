//! A cluster in miniature: nodes that do what their states say, with workloads and faults, and a rollout over them.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::decide::{Intent, Telling, decide};
use crate::world::{Answer, Gates, Held, World};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, Pod};
use nodelet_api::Disruption;
use nodelet_api::objects::{
    Applied, Condition, NodeClass, NodeClassSpec, NodeSet, NodeSetSpec, NodeState, NodeStateStatus, Staged, Step,
};
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// The cluster.
pub(super) struct Sim {
    pub(super) world: World,
    pub(super) now: Timestamp,
    pub(super) class: Disruption,
    /// Nodes that fail with these revisions.
    pub(super) breaks: BTreeSet<(String, String)>,
    /// Nodes whose nodelets keep themselves from a revision that failed there.
    pub(super) pinned: BTreeMap<String, String>,
    /// The most that were out of service at once.
    pub(super) most_away: usize,
    /// Which nodes were granted more than nothing, in order.
    pub(super) granted: Vec<String>,
    /// Whether pods go that are evicted.
    pub(super) evicts: bool,
    /// Whether nodes can make revisions ready.
    pub(super) stages: bool,
    /// What was told.
    pub(super) told: Vec<Telling>,
}

const STEP: SignedDuration = SignedDuration::from_secs(1);

impl Sim {
    #[expect(clippy::needless_pass_by_value, reason = "written where it is used")]
    pub(super) fn new(nodes: usize, set: serde_json::Value) -> Self {
        let mut spec = json!({"classRef": {"name": "c"}, "selector": {"matchLabels": {"role": "worker"}}});
        for (key, value) in set.as_object().unwrap() {
            spec[key] = value.clone();
        }
        let spec: NodeSetSpec = serde_json::from_value(spec).unwrap();
        let mut world =
            World { sets: [("s".to_owned(), Arc::new(NodeSet::new("s", spec)))].into(), ..World::default() };
        for number in 0..nodes {
            let name = format!("n{number}");
            let node = json!({
                "metadata": {"name": name, "uid": format!("uid-{name}"), "labels": {"role": "worker"}},
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            });
            world.nodes.insert(name.clone(), Arc::new(serde_json::from_value(node).unwrap()));
            world.allowed.insert(name);
        }
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let (breaks, granted, told) = (BTreeSet::new(), Vec::new(), Vec::new());
        let mut sim = Self {
            world,
            now,
            class: Disruption::None,
            breaks,
            most_away: 0,
            granted,
            evicts: true,
            stages: true,
            told,
            pinned: BTreeMap::new(),
        };
        sim.class("first");
        sim.run(100);
        sim.class = Disruption::Drain;
        sim.most_away = 0;
        sim.granted.clear();
        sim
    }

    /// A class that asks for a kubelet.
    pub(super) fn kubelet(&mut self, version: &str) {
        let state = serde_json::from_value(json!({"kubelet": {"version": version}})).unwrap();
        let class = NodeClass::new("c", NodeClassSpec { state, ..NodeClassSpec::default() });
        self.world.classes.insert("c".into(), Arc::new(class));
    }

    /// Another class.
    pub(super) fn class(&mut self, package: &str) {
        let state = serde_json::from_value(json!({"packages": [{"name": package}]})).unwrap();
        let class = NodeClass::new("c", NodeClassSpec { state, ..NodeClassSpec::default() });
        self.world.classes.insert("c".into(), Arc::new(class));
    }

    pub(super) fn node(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        let mut node = (*self.world.nodes[name]).clone();
        change(&mut node);
        self.world.nodes.insert(name.to_owned(), Arc::new(node));
    }

    pub(super) fn set(&mut self, change: impl FnOnce(&mut NodeSet)) {
        let mut set = (*self.world.sets["s"]).clone();
        change(&mut set);
        self.world.sets.insert("s".into(), Arc::new(set));
    }

    pub(super) fn ready(&mut self, name: &str, ready: bool) {
        self.heard(name, if ready { "True" } else { "False" });
    }

    /// What the cluster says of a node's kubelet.
    pub(super) fn heard(&mut self, name: &str, status: &str) {
        self.node(name, |node| {
            node.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = status.into();
        });
    }

    pub(super) fn is_cordoned(&self, name: &str) -> bool {
        self.world.nodes[name].spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
    }

    pub(super) fn pause(&mut self, name: &str) {
        self.node(name, |node| {
            node.metadata.annotations.get_or_insert_default().insert(super::super::PAUSED.into(), "true".into());
        });
    }

    /// What was found at the set's gate, which it has from then on.
    pub(super) fn gate(&mut self, found: Result<(), String>) {
        let gate = json!({"name": "shop", "http": {"url": "http://shop/"}});
        self.set(|set| set.spec.health.gates = vec![serde_json::from_value(gate).unwrap()]);
        // As if it was asked at every moment.
        self.answer("shop", Timestamp::MAX, found);
    }

    /// What was found at a gate, by a question that began then.
    pub(super) fn answer(&mut self, gate: &str, asked: Timestamp, found: Result<(), String>) {
        let answer = Answer { asked, found: found.map_err(Held::Fails) };
        self.world.gates.insert("s".into(), Gates([(gate.to_owned(), answer)].into()));
    }

    /// As `kubectl nodes retry` has it.
    pub(super) fn retry(&mut self) {
        let status = self.status();
        let failures = status.failures.into_iter().map(|failure| failure.at);
        let last = failures.chain(status.bad_revisions.into_iter().map(|bad| bad.at)).max();
        self.set(|set| set.spec.retry = last);
    }

    pub(super) fn pod(&mut self, node: &str, name: &str, owner: Option<&str>) {
        let owners: Vec<_> = owner
            .iter()
            .map(|kind| json!({"kind": kind, "name": "o", "uid": "o", "apiVersion": "v1", "controller": true}))
            .collect();
        let pod = json!({
            "metadata": {"name": name, "namespace": "d", "uid": name, "labels": {"app": name}, "ownerReferences": owners},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]},
        });
        let pod: Pod = serde_json::from_value(pod).unwrap();
        self.world.pods.entry(node.to_owned()).or_default().push(Arc::new(pod));
    }

    /// One moment: the controller decides, the cluster does it, the nodes do theirs.
    pub(super) fn tick(&mut self) -> usize {
        self.now = self.now.checked_add(STEP).unwrap();
        for node in World::busy_nodes(&self.world.sets) {
            self.world.pods.entry(node.clone()).or_default();
            self.world.volumes.entry(node).or_default();
        }
        let intents = decide(&self.world, self.now);
        // What Nodes show is not kept here, and so is written again and again.
        let shown = |intent: &&Intent| matches!(intent, Intent::Mark { .. } | Intent::Show { .. } | Intent::Tell(_));
        let count = intents.iter().filter(|intent| !shown(intent)).count();
        let read_back = World::busy_nodes(&self.world.sets);
        for intent in intents {
            self.act(intent, &read_back);
        }
        for name in self.world.states.keys().cloned().collect::<Vec<_>>() {
            self.nodelet(&name);
        }
        let cordoned = |node: &Arc<Node>| node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
        let ready = |node: &Arc<Node>| crate::world::is_ready(node);
        let away = self.world.nodes.values().filter(|node| cordoned(node) || !ready(node)).count();
        self.most_away = self.most_away.max(away);
        count
    }

    pub(super) fn run(&mut self, ticks: usize) {
        for _ in 0..ticks {
            self.tick();
        }
    }

    pub(super) fn act(&mut self, intent: Intent, read_back: &BTreeSet<String>) {
        let world = &mut self.world;
        match intent {
            Intent::Store { class, revision } => {
                let stored = crate::world::StoredRevision { class, at: self.now };
                world.revisions.insert(revision.name, stored);
            }
            Intent::ClassStatus { name, status } => {
                let mut class = (*world.classes[&name]).clone();
                class.status = Some(status);
                world.classes.insert(name, Arc::new(class));
            }
            Intent::Hand { node, spec, .. } => {
                let grant = spec.grant.as_ref().map(|grant| grant.disruption).unwrap_or_default();
                if spec.step == Step::Apply && grant > Disruption::None {
                    assert!(read_back.contains(&node), "{node} was granted without a slot that was read back");
                    if self.granted.last() != Some(&node) {
                        self.granted.push(node.clone());
                    }
                }
                let old = world.states.get(&node);
                let mut state = NodeState::new(&node, *spec);
                state.status = old.and_then(|state| state.status.clone());
                state.metadata.generation = Some(old.and_then(|state| state.metadata.generation).unwrap_or(0) + 1);
                world.states.insert(node, Arc::new(state));
            }
            Intent::SetStatus { name, status } => {
                let mut set = (*world.sets[&name]).clone();
                set.status = Some(status);
                world.sets.insert(name, Arc::new(set));
            }
            Intent::Cordon { node, cordon } => self.node(&node, |node| {
                node.spec.get_or_insert_default().unschedulable = Some(cordon);
                let annotations = node.metadata.annotations.get_or_insert_default();
                if cordon {
                    annotations.insert(super::super::CORDONED.into(), "true".into());
                } else {
                    annotations.remove(super::super::CORDONED);
                }
            }),
            Intent::Mark { node, marks } => self.node(&node, |node| {
                // Of ours, those that come and go.
                let (labels, annotations) = (&mut node.metadata.labels, &mut node.metadata.annotations);
                put(labels.get_or_insert_default(), super::super::EXCLUDED, &marks.labels);
                put(annotations.get_or_insert_default(), super::super::SCALE_DOWN_DISABLED, &marks.annotations);
            }),
            Intent::Tell(telling) => self.told.push(telling),
            Intent::Evict(_) if !self.evicts => {}
            Intent::Evict(eviction) => {
                for pods in world.pods.values_mut() {
                    pods.retain(|pod| pod.metadata.name.as_ref() != Some(&eviction.name));
                }
            }
            Intent::Release { node } => drop(world.states.remove(&node)),
            Intent::Forget { revision } => drop(world.revisions.remove(&revision)),
            _ => {}
        }
    }

    /// What the nodelet of a node does with its state.
    pub(super) fn nodelet(&mut self, name: &str) {
        let Some(node) = self.world.nodes.get(name).filter(|node| crate::world::is_ready(node)) else { return };
        let _ = node;
        let mut state = (*self.world.states[name]).clone();
        let revision = state.spec.revision.clone().unwrap();
        let old = state.status.clone().unwrap_or_default();
        let has = old.applied.as_ref().is_some_and(|applied| applied.revision == revision);
        let granted =
            state.spec.grant.as_ref().filter(|grant| grant.revision == revision).map(|grant| grant.disruption);
        let condition = |kind: &str, holds: bool, reason: &str| {
            let status = if holds { "True" } else { "False" };
            let mut condition =
                Condition::since(kind, (status, reason, String::new()), &[], None, "2026-01-01T00:00:00Z");
            condition.observed_generation = state.metadata.generation;
            condition
        };
        let nodelet_version = env!("CARGO_PKG_VERSION").to_owned();
        let mut status =
            NodeStateStatus { applied: old.applied.clone(), nodelet_version, ..NodeStateStatus::default() };
        let may = state.spec.step == Step::Apply && granted.unwrap_or_default() >= self.class;
        // As a real one: what failed is not tried again before something else was asked for.
        self.pinned.retain(|node, pinned| node != name || *pinned == revision);
        if has || may {
            let breaks = self.breaks.contains(&(name.to_owned(), revision.clone()));
            if !has && (breaks || self.pinned.contains_key(name)) {
                // Without anything to go back to it is tried again, as after any failure.
                if old.applied.is_some() {
                    self.pinned.insert(name.to_owned(), revision.clone());
                }
                status.conditions =
                    vec![condition("Converged", false, "Reverted"), condition("Degraded", true, "HealthCheckFailed")];
                state.status = Some(status);
                self.world.states.insert(name.to_owned(), Arc::new(state));
                return;
            }
            status.applied = Some(Applied { revision, ..Applied::default() });
            status.conditions = vec![condition("Converged", true, "Converged")];
        } else if self.stages {
            status.staged = Some(Staged { revision, disruption: self.class, plan: Vec::new() });
            status.conditions = vec![condition("Converged", false, "Staged")];
        }
        state.status = Some(status);
        self.world.states.insert(name.to_owned(), Arc::new(state));
    }

    pub(super) fn revision(&self) -> String {
        self.world.classes["c"].status.clone().unwrap().revision.unwrap()
    }

    /// The nodes that have a revision.
    pub(super) fn with(&self, revision: &str) -> usize {
        let has = |state: &&Arc<NodeState>| {
            let applied = state.status.as_ref().and_then(|status| status.applied.as_ref());
            applied.is_some_and(|applied| applied.revision == revision)
        };
        self.world.states.values().filter(has).count()
    }

    pub(super) fn status(&self) -> nodelet_api::objects::NodeSetStatus {
        self.world.sets["s"].status.clone().unwrap()
    }

    pub(super) fn reason(&self) -> String {
        self.status().conditions[0].reason.clone()
    }

    /// Everything has the class's revision, and nothing is left of the way there.
    pub(super) fn assert_done(&self) {
        let revision = self.revision();
        assert_eq!(self.with(&revision), self.world.nodes.len(), "{:?}", self.status());
        assert!(self.status().slots.is_empty(), "{:?}", self.status().slots);
        for (name, node) in &self.world.nodes {
            let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable) == Some(true);
            assert!(!cordoned, "{name} is left cordoned");
        }
        assert_eq!(self.reason(), "Updated");
    }
}

fn put(on: &mut BTreeMap<String, String>, key: &str, wanted: &BTreeMap<String, String>) {
    match wanted.get(key) {
        Some(value) => drop(on.insert(key.to_owned(), value.clone())),
        None => drop(on.remove(key)),
    }
}
