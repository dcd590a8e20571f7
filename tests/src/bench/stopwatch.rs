//! The part that runs inside a node: it starts a command, waits for its end and prints how long that took. The way into
//! the node, which costs more than the quickest command that is measured, stays outside.

use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use crate::Node;

/// Where a node finds this program.
pub(super) const PROGRAM: &str = "/usr/lib/testbed/testbed";
/// What the measured commands say, in the node; shown when one fails.
const LOG: &str = "/run/bench.log";

/// What a command took, in seconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Taken {
    /// By the clock.
    pub(super) time: f64,
    /// Of processors, in the command and all that it waited for. Services that it started are not among them.
    pub(super) processor: f64,
}

/// `testbed stopwatch`: runs a command in silence, and prints its time and its processor time in nanoseconds.
pub fn run(words: &[String]) -> Result<()> {
    let (program, arguments) = words.split_first().context("there is no command to measure")?;
    let log = File::create(LOG).with_context(|| format!("making {LOG}"))?;
    let errors = log.try_clone().with_context(|| format!("opening {LOG}"))?;
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::null()).stdout(log).stderr(errors);
    let start = Instant::now();
    let status = command.spawn().with_context(|| format!("starting {program}"))?.wait();
    let taken = start.elapsed();
    let status = status.with_context(|| format!("waiting for {program}"))?;
    if !status.success() {
        bail!("`{}` ended with {status}:\n{}", words.join(" "), end_of(Path::new(LOG)));
    }
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).context("asking for the processor time")?;
    let processor = (usage.user_time() + usage.system_time()).num_microseconds();
    println!("{} {}", taken.as_nanos(), processor * 1000);
    Ok(())
}

/// What a command takes in a node.
pub(super) fn time(node: &Node, words: &[&str]) -> Result<Taken> {
    let mut all = vec![PROGRAM, "stopwatch", "--"];
    all.extend(words);
    let said = node.run(&all)?;
    let seconds = |text: &str| text.parse::<f64>().map(|nanoseconds| nanoseconds / 1e9);
    match said.trim().split_once(' ').map(|(time, processor)| (seconds(time), seconds(processor))) {
        Some((Ok(time), Ok(processor))) => Ok(Taken { time, processor }),
        _ => bail!("the stopwatch says {said:?}"),
    }
}

fn end_of(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(30)..].join("\n")
}
