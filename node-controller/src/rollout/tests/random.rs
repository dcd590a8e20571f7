//! Whatever happens.
#![allow(clippy::unwrap_used, clippy::panic)]

use super::simulation::Sim;
use nodelet_api::Disruption;
use serde_json::json;
use std::collections::BTreeMap;

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
