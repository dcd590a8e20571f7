//! From nothing to the reference state, and from there to another version of all its packages: each time on a node
//! that was booted for it.

use anyhow::{Context, Result};

use super::reference::{INPUTS, NEW, OLD};
use super::report::Report;
use super::samples::Samples;
use super::site::Site;
use super::stopwatch::time;
use super::tool::{self, FLOOR, NODELET, Tool, prove};
use super::{Rounds, say};
use crate::Node;

/// How many times as long as the bare commands a change may take.
const OF_FLOOR: f64 = 1.15;
/// The same for what remains to be done once everything is downloaded.
const STAGED: f64 = 0.8;

/// Times of one tool.
#[derive(Debug, Default)]
struct Times {
    converge: Samples,
    upgrade: Samples,
    /// Processor times: on a busy machine they tell more than the clock does.
    converge_processor: Samples,
    upgrade_processor: Samples,
}

/// One kind of times.
type Pick = fn(&Times) -> &Samples;

/// Takes turns: the bare commands, nodelet, nodelet with everything downloaded ahead; the others now and then.
pub(super) fn measure(site: &Site, rounds: Rounds, report: &mut Report) -> Result<()> {
    let (mut floor, mut nodelet) = (Times::default(), Times::default());
    let (mut staging, mut staged) = (Samples::default(), Samples::default());
    let mut can_stage = true;
    let peers = tool::peers(rounds);
    let mut others: Vec<(&Tool, Times)> = peers.iter().map(|tool| (tool, Times::default())).collect();
    for round in 0..rounds.changes {
        say(&format!("round {} of {}", round + 1, rounds.changes));
        // Who comes second finds a warmer cache, or a disk that is busy with the first one's writes.
        if round % 2 == 0 {
            turn(site, &FLOOR, round, &mut floor)?;
            turn(site, &NODELET, round, &mut nodelet)?;
        } else {
            turn(site, &NODELET, round, &mut nodelet)?;
            turn(site, &FLOOR, round, &mut floor)?;
        }
        if can_stage {
            can_stage = staged_turn(site, round, &mut staging, &mut staged)?;
        }
        if round < rounds.peers {
            for (tool, times) in &mut others {
                say(&format!("round {} of {} of the others: {}", round + 1, rounds.peers, tool.name));
                turn(site, tool, round, times)?;
            }
        }
    }
    let kinds: [(&str, Pick); 4] = [
        ("first converge", |times| &times.converge),
        ("upgrade of all", |times| &times.upgrade),
        ("first converge, CPU", |times| &times.converge_processor),
        ("upgrade of all, CPU", |times| &times.upgrade_processor),
    ];
    for (what, times) in kinds {
        report.measure(what, FLOOR.name, times(&floor), Some(times(&floor)));
        report.measure(what, NODELET.name, times(&nodelet), Some(times(&floor)));
        for (tool, other) in others.iter().filter(|(_, other)| times(other).count() > 0) {
            report.measure(what, tool.name, times(other), Some(times(&floor)));
        }
    }
    for (what, times) in &kinds[..2] {
        report.at_most(what, times(&nodelet), (FLOOR.name, times(&floor)), OF_FLOOR);
    }
    if staged.count() > 0 {
        report.measure("upgrade, staging", "nodelet stage", &staging, Some(&floor.upgrade));
        report.measure("upgrade, after staging", NODELET.name, &staged, Some(&floor.upgrade));
    }
    report.at_most("upgrade, after staging", &staged, (FLOOR.name, &floor.upgrade), STAGED);
    Ok(())
}

/// One node's life with one tool.
fn turn(site: &Site, tool: &Tool, round: usize, times: &mut Times) -> Result<()> {
    let node = site.node(&format!("{}-{round}", tool.short))?;
    let (first, second) = (tool.change(&node, OLD)?, tool.change(&node, NEW)?);
    times.converge.push(first.time);
    times.converge_processor.push(first.processor);
    times.upgrade.push(second.time);
    times.upgrade_processor.push(second.processor);
    Ok(())
}

/// The same with an upgrade that was downloaded ahead; false if this nodelet can't do that.
fn staged_turn(site: &Site, round: usize, staging: &mut Samples, staged: &mut Samples) -> Result<bool> {
    let node = site.node(&format!("staged-{round}"))?;
    if !node.exec(&["nodelet", "stage", "--help"])?.success() {
        return Ok(false);
    }
    hand_over(&node, OLD)?;
    node.run(&["nodelet", "apply"])?;
    hand_over(&node, NEW)?;
    staging.push(time(&node, &["nodelet", "stage"]).context("staging")?.time);
    prove(&node, OLD).context("after staging, which is to change nothing")?;
    staged.push(time(&node, &["nodelet", "apply"]).context("applying what was staged")?.time);
    prove(&node, NEW).context("after applying what was staged")?;
    Ok(true)
}

/// Puts a version's state where nodelet looks for it.
fn hand_over(node: &Node, version: &str) -> Result<()> {
    node.run(&["cp", &format!("{INPUTS}/{version}/state.toml"), "/etc/nodelet/state.toml"]).map(drop)
}
