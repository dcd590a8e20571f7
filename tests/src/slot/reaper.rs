//! The process that outlives a test and sweeps its slot.
//!
//! It is in a session of its own, so that Ctrl-C does not reach it, and waits for the end of a pipe whose other end
//! only the test process has. A normal end, a panic, Ctrl-C and SIGKILL all look the same to it. It shares the
//! slot's lock: the slot is free for others when it is clean, not before.

use std::fs::{File, OpenOptions};
use std::io::{self, PipeWriter, Read, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Number, teardown};
use crate::wait::{Seen, wait_until};
use crate::{paths, process};

/// Names the file in which reapers are noted for the runner, which waits for them at its end.
pub const REAPERS: &str = "NODELET_TESTBED_REAPERS";

/// Starts the reaper of a slot whose lock is held. Drop the returned end, or just end, to set it to work.
pub fn start(number: Number, lock: File) -> Result<PipeWriter> {
    let program = paths::program("testbed")?;
    let (sign, hold) = io::pipe().context("making the reaper's pipe")?;
    let log_path = paths::cache()?.join("run").join(format!("slot-{}.log", number.0));
    let log = File::create(&log_path).with_context(|| format!("making {}", log_path.display()))?;
    let child = Command::new("setsid")
        .arg(&program)
        .args(["reap", &number.0.to_string()])
        .env_remove(process::MARK)
        .stdin(Stdio::from(sign))
        // Never written to: it is how a descriptor that others must not inherit is handed on.
        .stdout(Stdio::from(lock))
        .stderr(Stdio::from(log))
        .spawn()
        .with_context(|| format!("starting the reaper, {}", program.display()))?;
    note(child.id().cast_signed())?;
    Ok(hold)
}

/// The reaper itself.
pub fn reap(number: Number) -> Result<()> {
    let mut nothing = Vec::new();
    io::stdin().read_to_end(&mut nothing).context("waiting for the owner of the slot to end")?;
    for line in teardown::sweep(number)? {
        eprintln!("{line}");
    }
    Ok(())
}

fn note(pid: i32) -> Result<()> {
    let Some(path) = std::env::var_os(REAPERS) else {
        return Ok(());
    };
    let start = process::start_time(pid).unwrap_or_default();
    OpenOptions::new()
        .create(true)
        .append(true)
        .open(&path)
        .and_then(|mut file| writeln!(file, "{pid} {start}"))
        .with_context(|| format!("noting the reaper in {}", path.display()))
}

/// Waits until all reapers noted in the runner's file are done.
pub fn wait_for_all() -> Result<()> {
    let Some(path) = std::env::var_os(REAPERS) else {
        return Ok(());
    };
    let noted = std::fs::read_to_string(&path).unwrap_or_default();
    wait_until("the test nodes to be torn down", Duration::from_secs(2 * 60), || {
        let alive: Vec<&str> = noted
            .lines()
            .filter(|line| {
                line.split_once(' ').is_some_and(|(pid, start)| {
                    pid.parse().ok().is_some_and(|pid| {
                        !process::is_zombie(pid) && process::start_time(pid).as_deref() == Some(start)
                    })
                })
            })
            .collect();
        Ok(if alive.is_empty() {
            Seen::Done(())
        } else {
            Seen::not_yet(format!("reapers still at work (pid, start): {alive:?}"))
        })
    })
}
