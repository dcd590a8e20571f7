//! A no-op: everything is as wanted, and each tool is asked to find that out.

use anyhow::{Context, Result};

use super::reference::OLD;
use super::report::Report;
use super::samples::Samples;
use super::tool::{self, CFENGINE_SHELL, FLOOR, NODELET, Tool, prove};
use super::{Rounds, say};
use crate::Node;

/// How much of the time of the bare commands a no-op may take.
const OF_FLOOR: f64 = 0.4;
/// How many times as fast as Puppet it is to be.
const PUPPET: f64 = 150.0;
/// How many times as fast as the quickest of the others it is to be.
const BEST_PEER: f64 = 50.0;

/// How often the others look, for each time that they change something.
const PEER_TURNS: usize = 3;

/// Takes turns on a node that all of the tools have brought to the same state.
pub(super) fn measure(node: &Node, rounds: Rounds, report: &mut Report) -> Result<()> {
    let peers = tool::peers(rounds);
    for tool in [FLOOR, NODELET].iter().chain(&peers) {
        say(&format!("bringing the node to the reference state with {}", tool.name));
        tool.change(node, OLD)?;
    }
    say(&format!("taking {} turns", rounds.quick));
    let (mut floor, mut nodelet) = (Samples::default(), Samples::default());
    for _ in 0..rounds.quick {
        floor.push(FLOOR.check(node, OLD)?);
        nodelet.push(NODELET.check(node, OLD)?);
    }
    let mut others: Vec<(&Tool, Samples)> = peers.iter().map(|tool| (tool, Samples::default())).collect();
    let turns = rounds.peers * PEER_TURNS;
    for round in 0..turns {
        for (tool, samples) in &mut others {
            say(&format!("round {} of {turns}: {}", round + 1, tool.name));
            samples.push(tool.check(node, OLD)?);
            floor.push(FLOOR.check(node, OLD)?);
            nodelet.push(NODELET.check(node, OLD)?);
        }
    }
    prove(node, OLD).context("after the no-ops")?;

    report.measure("no-op", FLOOR.name, &floor, Some(&floor));
    report.measure("no-op", NODELET.name, &nodelet, Some(&floor));
    for (tool, samples) in &others {
        report.measure("no-op", tool.name, samples, Some(&floor));
    }
    report.at_most("no-op apply", &nodelet, (FLOOR.name, &floor), OF_FLOOR);
    let empty = Samples::default();
    let puppet = others.iter().find(|(tool, _)| **tool == tool::PUPPET);
    report.faster("no-op apply", &nodelet, ("Puppet", puppet.map_or(&empty, |(_, samples)| samples)), PUPPET);
    // Shell scripts that a tool starts are not the tool's way of looking.
    let by_itself = others.iter().filter(|(tool, _)| **tool != CFENGINE_SHELL);
    let median = |(_, samples): &&(&Tool, Samples)| samples.median().unwrap_or(f64::MAX);
    let best = by_itself.min_by(|one, other| median(one).total_cmp(&median(other)));
    let best = best.map_or(("the best peer", &empty), |(tool, samples)| (tool.name, samples));
    report.faster("no-op apply", &nodelet, best, BEST_PEER);
    Ok(())
}
