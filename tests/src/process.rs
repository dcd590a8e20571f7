//! Processes found in /proc by what they are, never by a name that another process could have too.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::wait::{Seen, wait_until};

/// Every process that the test bed starts on the host carries this variable with the slot's directory, so that it can
/// be found again without a record that might be stale or missing.
pub const MARK: &str = "NODELET_TESTBED_SLOT";

/// Processes that carry the mark of the slot with this directory.
pub fn marked(slot: &Path) -> Result<Vec<i32>> {
    let mark = format!("{MARK}={}", slot.display());
    select(|pid| {
        fs::read(format!("/proc/{pid}/environ"))
            .is_ok_and(|environment| environment.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes()))
    })
}

/// Processes whose root directory is an overlay with its upper directory below `dir`: everything that runs in a
/// node, except in containers inside it, which end with it.
pub fn rooted_below(dir: &Path) -> Result<Vec<i32>> {
    let upper = format!("upperdir={}/", dir.display());
    select(|pid| {
        fs::read_to_string(format!("/proc/{pid}/mountinfo"))
            .is_ok_and(|mounts| mounts.lines().any(|line| line.split(' ').nth(4) == Some("/") && line.contains(&upper)))
    })
}

/// The process among those that is number 1 of its pid namespace and runs systemd.
pub fn init_of(dir: &Path) -> Result<Option<i32>> {
    Ok(rooted_below(dir)?.into_iter().find(|pid| {
        let first = fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| {
            status
                .lines()
                .find_map(|line| line.strip_prefix("NSpid:"))
                .is_some_and(|ids| ids.split_whitespace().count() == 2 && ids.ends_with("\t1"))
        });
        first && fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "systemd")
    }))
}

/// The process of a node that has this number there. `leader` is the node's process 1.
pub fn in_node(leader: i32, number: i32) -> Result<Option<i32>> {
    let namespace = |pid: i32| fs::read_link(format!("/proc/{pid}/ns/pid")).ok();
    let there = namespace(leader).with_context(|| format!("finding the pid namespace of process {leader}"))?;
    let found = select(|pid| {
        let last = |ids: &str| ids.split_whitespace().last().and_then(|id| id.parse().ok());
        namespace(pid).is_some_and(|here| here == there)
            && fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| {
                status.lines().find_map(|line| line.strip_prefix("NSpid:")).and_then(last) == Some(number)
            })
    })?;
    Ok(found.first().copied())
}

/// Ends processes with SIGKILL and waits until they are gone. `find` is asked again each time, so that children born
/// in between are ended as well.
pub fn end_all(what: &str, limit: Duration, find: impl Fn() -> Result<Vec<i32>>) -> Result<usize> {
    let mut ended = 0;
    wait_until(what, limit, || {
        let alive: Vec<i32> = find()?.into_iter().filter(|pid| !is_zombie(*pid)).collect();
        if alive.is_empty() {
            return Ok(Seen::Done(()));
        }
        ended = ended.max(alive.len());
        for pid in &alive {
            end(*pid)?;
        }
        Ok(Seen::not_yet(format!("still there: {alive:?}")))
    })?;
    Ok(ended)
}

/// Sends SIGKILL; a process that is gone already is fine.
pub fn end(pid: i32) -> Result<()> {
    signal(pid, Signal::SIGKILL)
}

/// Sends a signal; a process that is gone already is fine.
pub fn signal(pid: i32, signal: Signal) -> Result<()> {
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("sending {signal} to process {pid}")),
    }
}

/// When a process started, in the kernel's ticks: with the pid, this names a process for good.
pub fn start_time(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in brackets may hold spaces: count from the last bracket. Field 22 of proc(5) is the 20th after it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19).map(str::to_owned)
}

/// A process that has ended and waits for its parent: killing it does nothing.
pub fn is_zombie(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat"))
        .ok()
        .and_then(|stat| stat.rsplit_once(')').map(|(_, rest)| rest.trim_start().starts_with('Z')))
        .unwrap_or(true)
}

fn select(wanted: impl Fn(i32) -> bool) -> Result<Vec<i32>> {
    let me = std::process::id().cast_signed();
    let entries = fs::read_dir("/proc").context("listing /proc")?;
    Ok(entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != me && wanted(*pid))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_start_time_is_a_number() {
        let me = std::process::id().cast_signed();
        assert!(start_time(me).is_some_and(|ticks| ticks.parse::<u64>().is_ok()));
        assert!(!is_zombie(me));
    }
}
