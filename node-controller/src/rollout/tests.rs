//! A cluster in miniature: nodes that do what their states say, with workloads and faults, and a rollout over them.
#![allow(clippy::unwrap_used, clippy::panic)]

use crate::decide::{Intent, decide};
use crate::world::World;
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
struct Sim {
    world: World,
    now: Timestamp,
    class: Disruption,
    /// Nodes that fail with these revisions.
    breaks: BTreeSet<(String, String)>,
    /// The most that were out of service at once.
    most_away: usize,
    /// Which nodes were granted more than nothing, in order.
    granted: Vec<String>,
}

const STEP: SignedDuration = SignedDuration::from_secs(1);

impl Sim {
    #[expect(clippy::needless_pass_by_value, reason = "written where it is used")]
    fn new(nodes: usize, set: serde_json::Value) -> Self {
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
        let (breaks, granted) = (BTreeSet::new(), Vec::new());
        let mut sim = Self { world, now, class: Disruption::None, breaks, most_away: 0, granted };
        sim.class("first");
        sim.run(100);
        sim.class = Disruption::Drain;
        sim.most_away = 0;
        sim.granted.clear();
        sim
    }

    /// Another class.
    fn class(&mut self, package: &str) {
        let state = serde_json::from_value(json!({"packages": [{"name": package}]})).unwrap();
        let class = NodeClass::new("c", NodeClassSpec { state, ..NodeClassSpec::default() });
        self.world.classes.insert("c".into(), Arc::new(class));
    }

    fn node(&mut self, name: &str, change: impl FnOnce(&mut Node)) {
        let mut node = (*self.world.nodes[name]).clone();
        change(&mut node);
        self.world.nodes.insert(name.to_owned(), Arc::new(node));
    }

    fn set(&mut self, change: impl FnOnce(&mut NodeSet)) {
        let mut set = (*self.world.sets["s"]).clone();
        change(&mut set);
        self.world.sets.insert("s".into(), Arc::new(set));
    }

    fn ready(&mut self, name: &str, ready: bool) {
        let status = if ready { "True" } else { "False" };
        self.node(name, |node| {
            node.status.as_mut().unwrap().conditions.as_mut().unwrap()[0].status = status.into();
        });
    }

    fn pod(&mut self, node: &str, name: &str, owner: Option<&str>) {
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
    fn tick(&mut self) -> usize {
        self.now = self.now.checked_add(STEP).unwrap();
        for node in World::busy_nodes(&self.world.sets) {
            self.world.pods.entry(node).or_default();
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

    fn run(&mut self, ticks: usize) {
        for _ in 0..ticks {
            self.tick();
        }
    }

    fn act(&mut self, intent: Intent, read_back: &BTreeSet<String>) {
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
                    annotations.insert(super::CORDONED.into(), "true".into());
                } else {
                    annotations.remove(super::CORDONED);
                }
            }),
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
    fn nodelet(&mut self, name: &str) {
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
        let mut status = NodeStateStatus { applied: old.applied.clone(), ..NodeStateStatus::default() };
        let may = state.spec.step == Step::Apply && granted.unwrap_or_default() >= self.class;
        if has || may {
            if !has && self.breaks.contains(&(name.to_owned(), revision.clone())) {
                status.conditions =
                    vec![condition("Converged", false, "Reverted"), condition("Degraded", true, "HealthCheckFailed")];
                state.status = Some(status);
                self.world.states.insert(name.to_owned(), Arc::new(state));
                return;
            }
            status.applied = Some(Applied { revision, ..Applied::default() });
            status.conditions = vec![condition("Converged", true, "Converged")];
        } else {
            status.staged = Some(Staged { revision, disruption: self.class, plan: Vec::new() });
            status.conditions = vec![condition("Converged", false, "Staged")];
        }
        state.status = Some(status);
        self.world.states.insert(name.to_owned(), Arc::new(state));
    }

    fn revision(&self) -> String {
        self.world.classes["c"].status.clone().unwrap().revision.unwrap()
    }

    /// The nodes that have a revision.
    fn with(&self, revision: &str) -> usize {
        let has = |state: &&Arc<NodeState>| {
            let applied = state.status.as_ref().and_then(|status| status.applied.as_ref());
            applied.is_some_and(|applied| applied.revision == revision)
        };
        self.world.states.values().filter(has).count()
    }

    fn status(&self) -> nodelet_api::objects::NodeSetStatus {
        self.world.sets["s"].status.clone().unwrap()
    }

    fn reason(&self) -> String {
        self.status().conditions[0].reason.clone()
    }

    /// Everything has the class's revision, and nothing is left of the way there.
    fn assert_done(&self) {
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
