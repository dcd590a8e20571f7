//! Nothing stays behind, whatever happens to the test process.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use nix::sys::signal::Signal;
use testbed::process;
use testbed::slot::{Number, reaper, teardown};
use testbed::wait::{Seen, wait_until};

const LIMIT: Duration = Duration::from_secs(60);

/// A process with a slot and a node of its own, as a test process is.
struct Owner {
    child: Child,
    slot: Number,
    reaper: i32,
}

fn owner(name: &str) -> Owner {
    let notes = tempfile::NamedTempFile::new().unwrap();
    let mut child = Command::new(testbed::paths::program("testbed").unwrap())
        .args(["hold", name])
        .env(reaper::REAPERS, notes.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        // As a shell does it, so that a signal to the group is what Ctrl-C is.
        .process_group(0)
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let slot = Number(line.trim().parse().expect("the number of the slot"));
    let content = fs::read_to_string(notes.path()).unwrap();
    let reaper = content.split(' ').next().unwrap().parse().unwrap();
    let owner = Owner { child, slot, reaper };
    assert_eq!(owner.traces().len(), 4, "the node should be there: {:?}", owner.traces());
    owner
}

impl Owner {
    /// What is there of the slot.
    fn traces(&self) -> Vec<String> {
        let dir = self.slot.dir().unwrap();
        let mut traces = Vec::new();
        let mut processes = process::marked(&dir).unwrap();
        processes.extend(process::rooted_below(&dir).unwrap());
        if !processes.is_empty() {
            traces.push(format!("processes {processes:?}"));
        }
        let mounts = teardown::mount_points(&dir).unwrap();
        if !mounts.is_empty() {
            traces.push(format!("mounts {mounts:?}"));
        }
        let bridge = self.slot.bridge();
        if Path::new(&format!("/sys/class/net/{bridge}")).exists() {
            traces.push(format!("the bridge {bridge}"));
        }
        if dir.exists() {
            traces.push(format!("the directory {}", dir.display()));
        }
        traces
    }

    fn wait_until_clean(&mut self) {
        self.child.wait().unwrap();
        wait_until("the slot to be swept", LIMIT, || {
            let traces = self.traces();
            Ok(if traces.is_empty() { Seen::Done(()) } else { Seen::not_yet(traces.join(", ")) })
        })
        .unwrap();
    }
}

#[test]
fn a_killed_test_process_leaves_nothing() {
    let mut owner = owner("killed");
    owner.child.kill().unwrap();
    owner.wait_until_clean();
}

#[test]
fn an_interrupted_test_process_leaves_nothing() {
    let mut owner = owner("interrupted");
    process::signal(-owner.child.id().cast_signed(), Signal::SIGINT).unwrap();
    owner.wait_until_clean();
}

#[test]
fn a_process_that_ends_normally_leaves_nothing() {
    let mut owner = owner("ended");
    drop(owner.child.stdin.take());
    owner.wait_until_clean();
}

/// The machine itself may have crashed, or somebody killed everything: then the next one to look cleans up.
#[test]
fn leftovers_are_found_when_the_reaper_died_too() {
    let mut owner = owner("orphan");
    process::end(owner.reaper).unwrap();
    owner.child.kill().unwrap();
    owner.child.wait().unwrap();
    assert_eq!(owner.traces().len(), 4, "with its reaper dead, the slot should still be full: {:?}", owner.traces());
    // What taking a slot does first; another run may even have been quicker with it.
    if let Some(_held) = testbed::lock::try_take(&owner.slot.lock_file()).unwrap() {
        let removed = teardown::sweep(owner.slot).unwrap();
        assert!(removed.iter().any(|line| line.contains("processes")), "{removed:?}");
    }
    owner.wait_until_clean();
}
