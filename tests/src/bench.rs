//! `make bench`: how fast nodelet is, beside the bare commands that must run in any case, and beside Puppet, `CFEngine` and
//! Ansible. Everything is measured in one run on nodes from one image, in turns, because a machine is not equally
//! fast all the time. Nothing here fails because something is slow: the tables tell.

mod changes;
mod check;
mod curve;
mod daemon;
mod drift;
mod peers;
mod reference;
mod report;
mod samples;
mod site;
pub mod stopwatch;
mod table;
mod tool;

use std::io::Read;
use std::sync::LazyLock;
use std::time::Instant;

use anyhow::{Context, Result};

use daemon::Daemon;
use reference::{FILES, OLD};
use report::Report;
use site::Site;
use tool::NODELET;

/// What to measure, and how often.
#[derive(Debug, Clone, clap::Args)]
pub struct Options {
    /// Rounds of changes; quick things are measured four times as often
    #[arg(long, env = "BENCH_ROUNDS", default_value_t = 5)]
    rounds: usize,
    /// Rounds of the other tools, which are slow; 0 leaves them out
    #[arg(long, env = "BENCH_PEER_ROUNDS", default_value_t = 1)]
    peer_rounds: usize,
    /// Also Ansible with a task for every resource, which takes minutes
    #[arg(long, env = "BENCH_PLAIN")]
    plain: bool,
    /// Only these parts [default: all]
    #[arg(long, env = "BENCH_PARTS", value_enum, value_delimiter = ',')]
    parts: Vec<Part>,
    /// Measure nothing: boot a node as the benchmark has it, and wait for the end of standard input. For a profiler
    #[arg(long)]
    hold: bool,
}

/// A part of the benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// A no-op.
    Check,
    /// The daemon at rest and at work.
    Daemon,
    /// Repairs.
    Drift,
    /// The first converge, and an upgrade.
    Changes,
    /// More files and packages.
    Curve,
}

/// How often things are measured.
#[derive(Debug, Clone, Copy)]
struct Rounds {
    quick: usize,
    changes: usize,
    peers: usize,
    plain: bool,
}

/// Measures, prints the tables and writes them down. Ctrl-C at any point is fine: the slot's reaper cleans up.
pub fn run(options: &Options) -> Result<()> {
    let rounds =
        Rounds { quick: options.rounds * 4, changes: options.rounds, peers: options.peer_rounds, plain: options.plain };
    let wanted = |part: Part| options.parts.is_empty() || options.parts.contains(&part);
    say("building packages, repositories and scripts");
    let site = Site::new()?;
    if options.hold {
        let node = site.node("held")?;
        println!("enter it with: nsenter -t {} -m -u -i -n -p", node.leader()?);
        std::io::stdin().read_to_end(&mut Vec::new()).context("waiting for the end of standard input")?;
        return Ok(());
    }
    let mut report = Report::default();
    if [Part::Check, Part::Daemon, Part::Drift].into_iter().any(wanted) {
        let node = site.node("reference")?;
        if wanted(Part::Check) {
            check::measure(&node, rounds, &mut report)?;
        } else {
            NODELET.change(&node, OLD)?;
        }
        if wanted(Part::Daemon) || wanted(Part::Drift) {
            let daemon = Daemon::start(&node, &site.state(OLD, FILES))?;
            if wanted(Part::Daemon) {
                daemon::measure(&daemon, rounds, &mut report)?;
            }
            if wanted(Part::Drift) {
                drift::measure(&node, &daemon, rounds, &mut report)?;
            }
            daemon.stop()?;
        }
    }
    if wanted(Part::Curve) {
        curve::measure(&site, rounds, &mut report)?;
    }
    if wanted(Part::Changes) {
        changes::measure(&site, rounds, &mut report)?;
    }
    report.print();
    report.write()
}

/// Says what is under way, and since when.
fn say(line: &str) {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    let seconds = START.elapsed().as_secs();
    println!("[{:2}:{:02}] {line}", seconds / 60, seconds % 60);
}
