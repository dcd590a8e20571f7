//! Removes everything of a slot, each thing by its exact name. What can't be removed does not stop the rest: all
//! errors are reported together.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Number;
use crate::command::{ip, run};
use crate::lock;
use crate::wait::{Seen, wait_until};
use crate::{cgroup, process};

/// Processes are killed, not asked: a few seconds are plenty even on a busy machine.
const PROCESS_LIMIT: Duration = Duration::from_secs(30);

/// Removes all of the slot and returns a line for each thing that was there. Its lock must be held.
pub fn sweep(number: Number) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut errors = Vec::new();
    let mut attempt = |result: Result<Option<String>>| match result {
        Ok(line) => found.extend(line),
        Err(error) => errors.push(format!("{error:#}")),
    };
    // The last owner may have been another user, with another cache.
    let mut dirs = vec![number.dir()?];
    dirs.extend(number.last_dir().filter(|last| *last != dirs[0]));
    for dir in &dirs {
        attempt(processes(dir));
        attempt(unmount_below(dir).map(|count| (count > 0).then(|| format!("{count} mounts"))));
    }
    attempt(interfaces(number));
    attempt(control_groups(number));
    attempt(nspawn_leftovers(number));
    for dir in &dirs {
        attempt(files(dir));
    }
    if !errors.is_empty() {
        bail!("sweeping slot {}: {}", number.0, errors.join("; "));
    }
    Ok(found)
}

/// Sweeps every slot that nobody holds. Returns what was removed, and the slots that are in use.
pub fn sweep_free() -> Result<(Vec<String>, Vec<Number>)> {
    let mut lines = Vec::new();
    let mut busy = Vec::new();
    for number in Number::all() {
        let path = number.lock_file();
        if !path.exists() {
            continue;
        }
        match lock::try_take(&path)? {
            Some(_held) => lines.extend(sweep(number)?),
            None => busy.push(number),
        }
    }
    Ok((lines, busy))
}

fn processes(dir: &Path) -> Result<Option<String>> {
    // Supervisors first, so that none of them starts a node again; then what runs in the nodes.
    let outside = process::end_all("the slot's processes to end", PROCESS_LIMIT, || process::marked(dir))?;
    let inside = process::end_all("the nodes' processes to end", PROCESS_LIMIT, || process::rooted_below(dir))?;
    Ok(match outside + inside {
        0 => None,
        count => Some(format!("{count} processes")),
    })
}

/// Unmounts everything below a directory and returns how much that was.
pub(crate) fn unmount_below(dir: &Path) -> Result<usize> {
    let points = mount_points(dir)?;
    for point in points.iter().rev() {
        run(Command::new("umount").args(["--lazy", point])).with_context(|| format!("unmounting {point}"))?;
    }
    Ok(points.len())
}

/// Mount points below a directory, in the order in which they were made.
pub fn mount_points(dir: &Path) -> Result<Vec<String>> {
    let table = fs::read_to_string("/proc/self/mountinfo").context("reading /proc/self/mountinfo")?;
    Ok(table
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .filter(|point| Path::new(point).starts_with(dir))
        .map(str::to_owned)
        .collect())
}

fn interfaces(number: Number) -> Result<Option<String>> {
    let bridge = number.bridge();
    let path = format!("/sys/class/net/{bridge}");
    if !Path::new(&path).exists() {
        return Ok(None);
    }
    // A node's end of the cable goes with its network namespace, which the kernel takes down a moment after the last
    // process; the host's end goes with it.
    for port in ports(&bridge) {
        if ip(&format!("link del {port}")).is_err() && Path::new(&format!("/sys/class/net/{port}")).exists() {
            bail!("the interface {port} can't be removed: try `ip link del {port}`");
        }
    }
    ip(&format!("link del {bridge}")).with_context(|| format!("removing the bridge {bridge}"))?;
    Ok(Some(format!("the bridge {bridge}")))
}

/// The interfaces on a bridge.
pub fn ports(bridge: &str) -> Vec<String> {
    fs::read_dir(format!("/sys/class/net/{bridge}/brif"))
        .map(|entries| entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect())
        .unwrap_or_default()
}

fn control_groups(number: Number) -> Result<Option<String>> {
    let names = cgroup::names(&number.prefix())?;
    for name in &names {
        // The kernel lets go of a group a moment after its last process.
        wait_until(&format!("the control group {name} to be empty"), PROCESS_LIMIT, || {
            Ok(match cgroup::remove(name) {
                Ok(()) => Seen::Done(()),
                Err(error) => Seen::not_yet(format!("{error:#}")),
            })
        })?;
    }
    Ok((!names.is_empty()).then(|| format!("the control groups of {}", names.join(", "))))
}

/// nspawn's own directory for a machine stays behind when it is killed, and where /run is not a tmpfs.
fn nspawn_leftovers(number: Number) -> Result<Option<String>> {
    let parent = Path::new("/run/systemd/nspawn/propagate");
    let Ok(entries) = fs::read_dir(parent) else {
        return Ok(None);
    };
    for entry in entries.flatten() {
        if entry.file_name().to_string_lossy().starts_with(&number.prefix()) {
            let path = entry.path();
            fs::remove_dir_all(&path).with_context(|| format!("removing {}", path.display()))?;
        }
    }
    Ok(None)
}

fn files(dir: &Path) -> Result<Option<String>> {
    if !dir.exists() {
        return Ok(None);
    }
    // Never delete through a mount into what it shows.
    let mounted = mount_points(dir)?;
    if !mounted.is_empty() {
        bail!("{} is kept, because something is still mounted there: {}", dir.display(), mounted.join(", "));
    }
    if fs::remove_dir_all(dir).is_err() {
        // A test may have made files immutable in its node.
        run(Command::new("chattr").args(["-R", "-f", "-i", "-a"]).arg(dir)).ok();
        fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    Ok(Some(format!("the directory {}", dir.display())))
}
