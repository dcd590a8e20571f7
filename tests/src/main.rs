//! `testbed`: the reaper, the demos, and the caches of the test bed, as a program.

use std::io::Read;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use testbed::image::Kind;
use testbed::slot::{Number, reaper, teardown};
use testbed::{Node, NodeOptions, bench, demo, demo_cluster, kubernetes, previous};

/// The test bed of the node operator.
#[derive(Debug, Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Wait for the owner of a slot to end, then sweep the slot. Started by the test bed itself.
    #[command(hide = true)]
    Reap {
        /// The slot's number.
        slot: u8,
    },
    /// Wait until the slots of the tests that the runner started are swept.
    #[command(hide = true)]
    WaitClean,
    /// Boot a node, say so, and wait to be killed: for the tests of the reaper.
    #[command(hide = true)]
    Hold {
        /// The node's name.
        name: String,
    },
    /// Remove what crashed runs left behind.
    Clean,
    /// Build the images of test nodes, so that the tests find them in the cache.
    Images {
        /// Only these [default: all]
        names: Vec<Kind>,
    },
    /// Find or build the Kubernetes programs, so that the tests find them in the cache.
    Kubernetes {
        /// Also link a kubelet that says it is of this version
        #[arg(long, value_name = "VERSION")]
        kubelet: Option<String>,
    },
    /// Find or build the version before this one, so that the tests find it in the cache.
    Previous,
    /// Show nodelet at work on a throwaway node.
    Demo,
    /// Show bare machines becoming nodes of a cluster, upgraded under constant requests, and a broken release.
    DemoCluster,
    /// Measure how fast nodelet is, beside other tools.
    Bench(bench::Options),
    /// Run a command and print how long it took, in nanoseconds. Started in nodes by the benchmark.
    #[command(hide = true)]
    Stopwatch {
        /// The command.
        #[arg(last = true)]
        words: Vec<String>,
    },
}

fn main() -> ExitCode {
    match run(&Arguments::parse().task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: &Task) -> Result<()> {
    match task {
        Task::Reap { slot } => reaper::reap(Number(*slot)),
        Task::WaitClean => reaper::wait_for_all(),
        Task::Hold { name } => hold(name),
        Task::Clean => clean(),
        Task::Images { names } => {
            let all = [Kind::Base, Kind::Rpm, Kind::Kube, Kind::Cloud, Kind::CloudRpm];
            for kind in if names.is_empty() { &all } else { names.as_slice() } {
                println!("{}", kind.image()?.name());
            }
            Ok(())
        }
        Task::Kubernetes { kubelet } => {
            let binaries = kubernetes::binaries()?;
            println!("{}", binaries.dir().display());
            if let Some(version) = kubelet {
                println!("{}", binaries.kubelet_as(version)?.display());
            }
            Ok(())
        }
        Task::Previous => {
            let previous = previous::previous()?;
            println!("{} {}", previous.version(), previous.dir().display());
            Ok(())
        }
        Task::Demo => demo::run(),
        Task::DemoCluster => demo_cluster::run(),
        Task::Bench(options) => bench::run(options),
        Task::Stopwatch { words } => bench::stopwatch::run(words),
    }
}

fn clean() -> Result<()> {
    let (removed, busy) = teardown::sweep_free()?;
    for line in &removed {
        println!("removed {line}");
    }
    for number in &busy {
        println!("slot {} is in use by a run, and left alone", number.0);
    }
    if removed.is_empty() && busy.is_empty() {
        println!("there is nothing to remove");
    }
    Ok(())
}

fn hold(name: &str) -> Result<()> {
    let slot = testbed::slot()?;
    let _node = Node::boot(&slot, NodeOptions::new(name, Kind::Base))?;
    println!("{}", slot.number().0);
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
