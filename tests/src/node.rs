//! A node: a real systemd with its own kernel namespaces, network address and disk.

mod evidence;
mod exec;
mod machine;
mod network;
mod power;

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::Slot;
use crate::command::run;
use crate::image::{Image, Kind, chroot};
use crate::slot::teardown::unmount_below;
use machine::Machine;

pub use evidence::where_evidence_goes;

/// From power-on to a running system takes 1 to 3 s; this is for a machine that is busy with something else.
pub const BOOT_LIMIT: Duration = Duration::from_secs(2 * 60);

/// Stands for the node's index in files that are on its disk before it boots: nobody else knows it so early.
pub(crate) const INDEX: &str = "@INDEX@";

/// Shows what failed while a node booted, and why. The kernel speaks to all nodes at once.
const FAILURES: &str = "systemctl --failed --no-pager --plain --no-legend
for unit in $(systemctl --failed --no-pager --plain --no-legend | cut -d' ' -f1); do
    journalctl -b --no-pager -u $unit | tail -n 40
done
journalctl -p warning -b --no-pager | grep -v -e ' kernel: ' -e systemd-journald | tail -n 30";

/// What a node is to be like.
#[derive(Debug, Clone)]
pub struct NodeOptions {
    /// Unique in the test process; the machine is called `nltN-NAME`, its host name is NAME.
    pub name: String,
    /// What its disk holds.
    pub image: Kind,
    /// Directories and files of the host that it sees.
    pub binds: Vec<Bind>,
    /// Files that are on its disk before it boots.
    pub files: Vec<Placed>,
    /// Whether its disk does what it is told to when something is synced.
    pub syncs: bool,
}

/// A file on a node's disk.
#[derive(Debug, Clone)]
pub struct Placed {
    /// In the node.
    pub path: String,
    /// Permission bits.
    pub mode: u32,
    /// What is in it; `@INDEX@` is the node's [`Node::index`].
    pub content: String,
}

/// A directory or file of the host, shown in a node.
#[derive(Debug, Clone)]
pub struct Bind {
    /// On the host.
    pub source: PathBuf,
    /// In the node.
    pub target: String,
    /// Whether the node may write there.
    pub writable: bool,
}

impl NodeOptions {
    /// A node of this name with this image.
    pub fn new(name: impl Into<String>, image: Kind) -> Self {
        Self { name: name.into(), image, binds: Vec::new(), files: Vec::new(), syncs: true }
    }

    /// A disk that takes a sync for done at once: for what writes so much that the machine's disk would be measured.
    #[must_use]
    pub fn without_syncs(mut self) -> Self {
        self.syncs = false;
        self
    }

    /// Puts a file on its disk before it boots, for what reads it at the first boot.
    #[must_use]
    pub fn file(mut self, path: impl Into<String>, mode: u32, content: impl Into<String>) -> Self {
        self.files.push(Placed { path: path.into(), mode, content: content.into() });
        self
    }

    /// Shows a path of the host in the node, read-only.
    #[must_use]
    pub fn bind(mut self, source: impl Into<PathBuf>, target: impl Into<String>) -> Self {
        self.binds.push(Bind { source: source.into(), target: target.into(), writable: false });
        self
    }

    /// Shows a path of the host in the node, writable.
    #[must_use]
    pub fn bind_writable(mut self, source: impl Into<PathBuf>, target: impl Into<String>) -> Self {
        self.binds.push(Bind { source: source.into(), target: target.into(), writable: true });
        self
    }
}

/// A node that was booted. Dropping it takes it away, and keeps its journal and state when the test is failing.
#[derive(Debug)]
pub struct Node {
    name: String,
    slot: Arc<Slot>,
    address: Ipv4Addr,
    index: u8,
    dir: PathBuf,
    machine: Arc<Machine>,
}

impl Node {
    /// Boots a node of this slot and waits until its systemd has started everything.
    pub fn boot(slot: &Arc<Slot>, options: NodeOptions) -> Result<Self> {
        let start = Instant::now();
        let name = options.name.clone();
        let node = Self::prepare(slot, options).with_context(|| format!("making the node {name}"))?;
        node.machine.power_on()?;
        let state = node.wait_until_up()?;
        if state != "running" {
            bail!("the node {name} booted, but its system is {state}:\n{}", node.sh(FAILURES)?.text());
        }
        eprintln!("the node {name} ({}) booted in {:.1} s", node.address, start.elapsed().as_secs_f32());
        Ok(node)
    }

    fn prepare(slot: &Arc<Slot>, options: NodeOptions) -> Result<Self> {
        let image = options.image.image()?;
        let index = slot.reserve(&options.name)?;
        let gateway = slot.number().gateway().octets();
        let address = Ipv4Addr::new(gateway[0], gateway[1], gateway[2], index);
        let dir = slot.dir().join("nodes").join(&options.name);
        let root = overlay(&image, &dir, options.syncs)?;
        let mut binds = options.binds;
        if options.image.runs_containers() {
            // An overlay's upper directory can't be on an overlay, and containerd makes overlays here.
            for path in ["/var/lib/containerd", "/var/lib/kubelet"] {
                let source = dir.join("data").join(path.rsplit('/').next().unwrap_or_default());
                fs::create_dir_all(&source).with_context(|| format!("making {}", source.display()))?;
                binds.push(Bind { source, target: path.to_owned(), writable: true });
            }
        }
        settings(&root, &options.name, address)?;
        for file in &options.files {
            chroot::place(&root, &file.path, file.mode, &file.content.replace(INDEX, &index.to_string()))?;
        }
        let machine = Machine::new(slot, &options.name, &dir, binds)?;
        Ok(Self { name: options.name, slot: Arc::clone(slot), address, index, dir, machine })
    }

    /// As given in the options; also the host name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its address on the slot's bridge.
    pub fn address(&self) -> Ipv4Addr {
        self.address
    }

    /// Unique in the slot, 10 to 254: the last byte of the address.
    pub fn index(&self) -> u8 {
        self.index
    }

    /// The slot that it is in.
    pub fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// Its disk as the host sees it, also while it is off. Beware of absolute links in it: they lead to the host.
    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// What it printed on its console.
    pub fn console(&self) -> PathBuf {
        self.dir.join("console.log")
    }

    /// The process on the host that is the node's process 1. Another one after each boot.
    pub fn leader(&self) -> Result<i32> {
        self.machine.leader()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_evidence();
        }
        // The reaper does all of this again at the end of the process, so a failure here is only news.
        if let Err(error) = self.take_away() {
            eprintln!("taking the node {} away: {error:#}", self.name);
        }
    }
}

impl Node {
    fn take_away(&self) -> Result<()> {
        self.machine.power_off_hard()?;
        unmount_below(&self.dir)?;
        if fs::remove_dir_all(&self.dir).is_err() {
            // A test may have made files immutable.
            run(Command::new("chattr").args(["-R", "-f", "-i", "-a"]).arg(&self.dir)).ok();
            fs::remove_dir_all(&self.dir).with_context(|| format!("removing {}", self.dir.display()))?;
        }
        Ok(())
    }
}

fn overlay(image: &Image, dir: &Path, syncs: bool) -> Result<PathBuf> {
    for part in ["upper", "work", "root"] {
        fs::create_dir_all(dir.join(part)).with_context(|| format!("making {}/{part}", dir.display()))?;
    }
    let root = dir.join("root");
    let layers = format!(
        "lowerdir={},upperdir={},workdir={}{}",
        image.lower_dirs(),
        dir.join("upper").display(),
        dir.join("work").display(),
        if syncs { "" } else { ",volatile" }
    );
    run(Command::new("mount").args(["-t", "overlay", "overlay", "-o", &layers]).arg(&root)).with_context(|| {
        format!(
            "mounting the node's disk. If {} is itself on an overlay, set XDG_CACHE_HOME to a directory on a plain \
             filesystem",
            dir.display()
        )
    })?;
    Ok(root)
}

/// What differs between nodes. A machine id is given, because a system without one applies all presets at boot.
fn settings(root: &Path, name: &str, address: Ipv4Addr) -> Result<()> {
    let id = fs::read_to_string("/proc/sys/kernel/random/uuid").context("making a machine id")?.replace('-', "");
    for (path, content) in [
        ("etc/machine-id", id),
        ("etc/hosts", format!("127.0.0.1 localhost\n::1 localhost\n{address} {name}\n")),
        ("etc/testbed/address", format!("{address}/24\n")),
    ] {
        let path = root.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
        }
        fs::write(&path, content).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}
