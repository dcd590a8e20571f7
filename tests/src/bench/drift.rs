//! How soon the daemon puts back what somebody changes. The clock runs from the moment of the change, and stops when
//! the wanted is there again; both are seen from the host, every tenth of a millisecond.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::daemon::Daemon;
use super::reference::{FILES_DIR, UNITS, files, package_names};
use super::report::Report;
use super::samples::Samples;
use super::{Rounds, say};
use crate::{Node, process};

/// How soon it is to be.
const SOON: f64 = 0.1;
/// A repair that did not come at all.
const LIMIT: Duration = Duration::from_secs(20);
/// Between two looks.
const PAUSE: Duration = Duration::from_micros(100);

/// Breaks files and units, one at a time, and waits for each to be whole again.
pub(super) fn measure(node: &Node, daemon: &Daemon<'_>, rounds: Rounds, report: &mut Report) -> Result<()> {
    say(&format!("breaking files and units, {} of each kind", rounds.quick));
    let wanted = files(rounds.quick);
    let (mut edited, mut removed, mut stopped) = (Samples::default(), Samples::default(), Samples::default());
    for round in 0..rounds.quick {
        let (name, content) = &wanted[round % wanted.len().min(super::reference::FILES)];
        let path = daemon.reach(&format!("{FILES_DIR}/{name}"));
        edited.push(file(&path, content, |path| fs::write(path, "somebody was here\n"))?);
        daemon.settle()?;
        removed.push(file(&path, content, |path| fs::remove_file(path))?);
        daemon.settle()?;
        stopped.push(unit(node, daemon, &package_names()[round % UNITS])?);
        daemon.settle()?;
    }
    for (what, samples) in [("edited file", &edited), ("removed file", &removed), ("stopped unit", &stopped)] {
        report.measure("back after drift", what, samples, None);
        report.within(&format!("{what} is back"), samples, SOON);
    }
    Ok(())
}

fn file(path: &str, content: &str, spoil: impl Fn(&Path) -> std::io::Result<()>) -> Result<f64> {
    let start = Instant::now();
    spoil(path.as_ref()).with_context(|| format!("spoiling {path}"))?;
    until(&format!("{path} to be repaired"), || fs::read(path).is_ok_and(|is| is == content.as_bytes()))?;
    Ok(start.elapsed().as_secs_f64())
}

/// From the end of the unit's process to the first thing that the next one does: to note its start.
fn unit(node: &Node, daemon: &Daemon<'_>, name: &str) -> Result<f64> {
    let inner = node.run(&["systemctl", "show", "--property=MainPID", "--value", name])?;
    let inner: i32 = inner.trim().parse().with_context(|| format!("the number of {name} is {inner:?}"))?;
    let outer = process::in_node(node.leader()?, inner)?.with_context(|| format!("finding the process of {name}"))?;
    let (alive, starts) = (format!("/proc/{outer}"), daemon.reach(&format!("/var/log/{name}.starts")));
    let length = || fs::metadata(&starts).map_or(0, |metadata| metadata.len());
    let before = length();
    let mut command = node.entering()?;
    let mut stop =
        command.args(["systemctl", "stop", name]).spawn().with_context(|| format!("asking {name} to stop"))?;
    until(&format!("{name} to end"), || !Path::new(&alive).exists())?;
    let start = Instant::now();
    until(&format!("{name} to be repaired"), || length() > before)?;
    let taken = start.elapsed().as_secs_f64();
    stop.wait().with_context(|| format!("stopping {name}"))?;
    Ok(taken)
}

fn until(what: &str, holds: impl Fn() -> bool) -> Result<()> {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > LIMIT {
            bail!("waited {} s for {what}", LIMIT.as_secs());
        }
        sleep(PAUSE);
    }
    Ok(())
}
