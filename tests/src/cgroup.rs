//! A control group of its own for each node, so that several kubelets don't see each other's pods.
//!
//! nspawn makes a cgroup namespace whose root is the group that it runs in. It derives its sub-groups `payload` and
//! `supervisor` from the *unified* hierarchy's path even where the v1 controllers are in use, so a node must have its
//! own group there too: otherwise all nodes share one `payload` and fight over it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

const MOUNT: &str = "/sys/fs/cgroup";

/// How this machine has control groups mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Layout {
    /// The v1 controllers, one directory each (and, beside them, name=systemd and perhaps unified).
    Legacy(Vec<PathBuf>),
    /// Version 2 only.
    Unified,
}

/// Looks at what is mounted.
pub fn layout() -> Result<Layout> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("reading /proc/self/mountinfo")?;
    Ok(parse(&mounts))
}

fn parse(mountinfo: &str) -> Layout {
    let mut hierarchies = Vec::new();
    for line in mountinfo.lines() {
        let Some((left, right)) = line.split_once(" - ") else { continue };
        let point = left.split(' ').nth(4).unwrap_or_default();
        let kind = right.split(' ').next().unwrap_or_default();
        if point == MOUNT && kind == "cgroup2" {
            return Layout::Unified;
        }
        if kind.starts_with("cgroup") && Path::new(point).starts_with(MOUNT) {
            hierarchies.push(PathBuf::from(point));
        }
    }
    if hierarchies.is_empty() { Layout::Unified } else { Layout::Legacy(hierarchies) }
}

/// Makes the node's groups afresh and returns the `cgroup.procs` files that a process writes itself into.
pub fn make(name: &str) -> Result<Vec<PathBuf>> {
    let Layout::Legacy(hierarchies) = layout()? else {
        return Ok(Vec::new());
    };
    remove(name)?;
    let mut files = Vec::new();
    for hierarchy in hierarchies {
        let dir = hierarchy.join(name);
        fs::create_dir(&dir).with_context(|| format!("making the control group {}", dir.display()))?;
        // A cpuset takes no process until it is told which processors and memory it may use.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            if hierarchy.join(file).exists() {
                fs::read(hierarchy.join(file))
                    .and_then(|value| fs::write(dir.join(file), value))
                    .with_context(|| format!("setting {file} of {}", dir.display()))?;
            }
        }
        files.push(dir.join("cgroup.procs"));
    }
    Ok(files)
}

/// Removes every group of that name with all below it. They must hold no process any more.
pub fn remove(name: &str) -> Result<()> {
    let roots = match layout()? {
        Layout::Legacy(hierarchies) => hierarchies,
        Layout::Unified => vec![PathBuf::from(MOUNT)],
    };
    for root in roots {
        let dir = root.join(name);
        if dir.is_dir() {
            remove_tree(&dir).with_context(|| format!("removing the control group {}", dir.display()))?;
        }
    }
    Ok(())
}

/// Names of the groups that start with `prefix`, in any hierarchy.
pub fn names(prefix: &str) -> Result<Vec<String>> {
    let roots = match layout()? {
        Layout::Legacy(hierarchies) => hierarchies,
        Layout::Unified => vec![PathBuf::from(MOUNT)],
    };
    let mut found = Vec::new();
    for root in roots {
        let entries = fs::read_dir(&root).with_context(|| format!("listing {}", root.display()))?;
        found.extend(
            entries
                .flatten()
                .filter(|entry| entry.path().is_dir())
                .filter_map(|entry| entry.file_name().into_string().ok())
                .filter(|name| name.starts_with(prefix)),
        );
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn remove_tree(dir: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(dir)?.flatten() {
        if entry.file_type()?.is_dir() {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_the_layouts_apart() {
        let hybrid = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      36 31 0:33 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        assert_eq!(
            parse(hybrid),
            Layout::Legacy(vec![PathBuf::from("/sys/fs/cgroup/memory"), PathBuf::from("/sys/fs/cgroup/unified")])
        );
        assert_eq!(parse("31 24 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"), Layout::Unified);
    }
}
