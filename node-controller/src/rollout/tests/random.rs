//! Whatever happens: properties that hold in every order of events.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::simulation::Sim;
use crate::decide::decide;
use nodelet_api::Disruption;
use nodelet_api::objects::{SlotStep, Undo};
use proptest::prelude::*;
use serde_json::json;
use std::collections::BTreeSet;

/// What may happen between two looks of the controller.
#[derive(Clone, Debug)]
enum Event {
    /// Nothing but time.
    Time(usize),
    /// A node becomes sick, or well again.
    Health(usize),
    /// Nobody hears of a node any more, or again.
    Silence(usize),
    /// Somebody cordons a node, or takes a cordon away.
    Cordon(usize),
    /// A machine is made anew.
    Replace(usize),
    /// A pod that nobody would make again comes to a node.
    Pod(usize),
    /// All such pods are deleted.
    NoPods,
    /// The class is another one.
    Class(u8),
    /// The newest revision breaks a node.
    Break(usize),
    /// Nothing breaks any more, and somebody lets all be tried again.
    Retry,
    /// Somebody goes back.
    Undo,
    /// Somebody pauses the set, or lets it go on.
    Pause,
    /// Another controller leads.
    Leader,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => (1_usize..15).prop_map(Event::Time),
        2 => (0_usize..8).prop_map(Event::Health),
        1 => (0_usize..8).prop_map(Event::Silence),
        1 => (0_usize..8).prop_map(Event::Cordon),
        1 => (0_usize..8).prop_map(Event::Replace),
        1 => (0_usize..8).prop_map(Event::Pod),
        1 => Just(Event::NoPods),
        2 => any::<u8>().prop_map(Event::Class),
        1 => (0_usize..8).prop_map(Event::Break),
        1 => Just(Event::Retry),
        1 => Just(Event::Undo),
        1 => Just(Event::Pause),
        1 => Just(Event::Leader),
    ]
}

fn disruption() -> impl Strategy<Value = Disruption> {
    prop_oneof![Just(Disruption::None), Just(Disruption::Restart), Just(Disruption::Drain)]
}

/// A rollout, and what people and faults did to it.
struct Story {
    sim: Sim,
    limit: usize,
    first: String,
    replaced: usize,
}

impl Story {
    fn name(&self, number: usize) -> String {
        format!("n{}", number % self.sim.world.nodes.len())
    }

    fn happen(&mut self, event: &Event) {
        let sim = &mut self.sim;
        match event {
            Event::Time(_) => {}
            Event::Health(number) => {
                let name = self.name(*number);
                let ready = crate::world::is_ready(&self.sim.world.nodes[&name]);
                self.sim.ready(&name, !ready);
            }
            Event::Silence(number) => {
                let name = self.name(*number);
                let ready = crate::world::is_ready(&self.sim.world.nodes[&name]);
                self.sim.heard(&name, if ready { "Unknown" } else { "True" });
            }
            Event::Cordon(number) => {
                let name = self.name(*number);
                let cordoned = self.sim.is_cordoned(&name);
                self.sim.node(&name, |node| node.spec.get_or_insert_default().unschedulable = Some(!cordoned));
            }
            Event::Replace(number) => {
                let name = self.name(*number);
                self.replaced += 1;
                let uid = format!("uid-{}", self.replaced);
                self.sim.node(&name, |node| {
                    node.metadata.uid = Some(uid);
                    node.metadata.annotations = None;
                    node.spec = None;
                });
                self.sim.world.states.remove(&name);
            }
            Event::Pod(number) => {
                let name = self.name(*number);
                self.sim.pod(&name, "stuck", None);
            }
            Event::NoPods => sim.world.pods.values_mut().for_each(Vec::clear),
            Event::Class(number) => sim.class(&format!("class-{number}")),
            Event::Break(number) => {
                let name = self.name(*number);
                let revision = self.sim.revision();
                self.sim.breaks.insert((name, revision));
            }
            Event::Retry => {
                sim.breaks.clear();
                sim.retry();
            }
            Event::Undo => {
                let undo = Undo { to: self.first.clone(), away_from: sim.revision() };
                sim.set(|set| set.spec.undo = Some(undo));
            }
            Event::Pause => sim.set(|set| set.spec.paused = !set.spec.paused),
            Event::Leader => sim.world.leads_since = Some(sim.now),
        }
    }

    /// One look of the controller, and what must be true of it.
    fn look(&mut self) {
        let before: BTreeSet<String> = self.sim.status().slots.iter().map(|slot| slot.uid.clone()).collect();
        let nodes = self.sim.world.nodes.clone();
        let away = |name: &str| {
            let node = &nodes[name];
            !crate::world::is_ready(node) || node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
        };
        let soon = self.sim.now.checked_add(jiff::SignedDuration::from_secs(1)).unwrap();
        assert_eq!(decide(&self.sim.world, soon), decide(&self.sim.world, soon), "the same world, the same answer");
        // That a grant needs a slot that was read back is asserted by the simulation.
        self.sim.tick();
        let slots = self.sim.status().slots;
        let claimed: Vec<&str> =
            slots.iter().filter(|slot| !before.contains(&slot.uid)).map(|slot| slot.node.as_str()).collect();
        let sick = nodes.keys().filter(|name| away(name) || slots.iter().any(|slot| slot.node == **name)).count();
        let taken = claimed.iter().filter(|name| !away(name)).count();
        assert!(taken == 0 || sick <= self.limit, "{claimed:?} were taken, {sick} are away, {} may be", self.limit);
        assert!(claimed.is_empty() || slots.len() <= self.limit, "{} turns, {} may be", slots.len(), self.limit);
        for name in self.sim.world.nodes.keys() {
            let held = slots.iter().any(|slot| slot.node == *name && slot.step != SlotStep::Failed);
            let ours = self.sim.world.nodes[name]
                .metadata
                .annotations
                .iter()
                .any(|all| all.contains_key(crate::rollout::CORDONED));
            assert!(
                !ours || held || before.iter().any(|uid| self.sim.world.nodes[name].metadata.uid.as_ref() == Some(uid)),
                "{name} is cordoned without a turn"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// Never more away than may be by our doing, no grant without a turn, no cordon without one; and when people and faults
    /// let it, it ends with all nodes as the class asks for.
    #[test]
    fn whatever_happens_it_ends_well(
        nodes in 1_usize..7,
        limit in 1_usize..4,
        soak in 0_u32..4,
        class in disruption(),
        events in prop::collection::vec(event(), 1..25),
    ) {
        let set = json!({
            "strategy": {"maxUnavailable": limit, "soakSeconds": soak},
            "drain": {"timeoutSeconds": 40, "onTimeout": "Skip"},
            "health": {"timeoutSeconds": 30},
        });
        let sim = Sim::new(nodes, set);
        let first = sim.revision();
        let mut story = Story { sim, limit, first, replaced: 0 };
        story.sim.class = class;
        story.sim.class("one");
        story.look();
        for event in &events {
            story.happen(event);
            for _ in 0..(if let Event::Time(ticks) = event { *ticks } else { 1 }) {
                story.look();
            }
        }
        // Everybody is well again, and lets it go on.
        story.sim.breaks.clear();
        story.sim.world.pods.values_mut().for_each(Vec::clear);
        for number in 0..nodes {
            let name = format!("n{number}");
            story.sim.heard(&name, "True");
            let ours = |node: &k8s_openapi::api::core::v1::Node| {
                node.metadata.annotations.iter().any(|all| all.contains_key(crate::rollout::CORDONED))
            };
            if !ours(&story.sim.world.nodes[&name]) {
                story.sim.node(&name, |node| node.spec.get_or_insert_default().unschedulable = Some(false));
            }
        }
        story.sim.set(|set| {
            set.spec.paused = false;
            set.spec.undo = None;
        });
        for _ in 0..3 {
            // What failed just now is tried again, too.
            story.sim.run(60);
            story.sim.retry();
        }
        story.sim.run(120 * nodes);
        story.sim.assert_done();
    }
}
