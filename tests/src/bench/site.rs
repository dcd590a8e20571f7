//! What all measurements share: packages, repositories, scripts, and nodes that have them.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use packaging::deb;
use packaging::product::{Format, Sources};

use super::reference::{self, INPUTS, NEW, OLD, VERSIONS};
use super::{peers, stopwatch};
use crate::digest::sha256;
use crate::image::Kind;
use crate::repository::Repository;
use crate::{Node, NodeOptions, Slot, paths};

/// Where the key of the repository is in a node.
const KEY: &str = "/srv/bench/software.asc";

/// Packages, repositories and scripts, made once.
pub(super) struct Site {
    slot: Arc<Slot>,
    product: Repository,
    software: Repository,
    inputs: PathBuf,
}

impl Site {
    /// Takes a slot, and makes everything that nodes are shown.
    pub(super) fn new() -> Result<Self> {
        let slot = Slot::take()?;
        let product = product(&slot)?;
        let software = software(&slot)?;
        let inputs = slot.dir().join("bench");
        let site = Self { slot, product, software, inputs };
        site.write_inputs().context("writing what the nodes are to be")?;
        Ok(site)
    }

    /// Boots a node that has nodelet, with its daemon off. The repository is known by its key only.
    pub(super) fn node(&self, name: &str) -> Result<Node> {
        let program = std::env::current_exe().context("finding the path of the running program")?;
        let options = NodeOptions::new(name, Kind::Bench)
            .bind(self.product.dir(), self.product.bound_at())
            .bind(self.software.dir(), self.software.bound_at())
            .bind(&self.inputs, INPUTS)
            .bind(program, stopwatch::PROGRAM);
        let node = Node::boot(&self.slot, options)?;
        self.product.add_to_apt(&node, &format!("file://{}", self.product.bound_at()))?;
        node.run_sh("apt-get -qq update; apt-get -qq -y install nodelet; systemctl stop nodelet")
            .context("installing nodelet")?;
        Ok(node)
    }

    /// A file for the nodes, below [`INPUTS`].
    pub(super) fn write(&self, name: &str, content: impl AsRef<[u8]>) -> Result<()> {
        write(&self.inputs.join(name), content)
    }

    /// The reference state with so many files.
    pub(super) fn state(&self, version: &str, files: usize) -> String {
        reference::state(version, &format!("file://{}/apt", self.software.bound_at()), KEY, files)
    }

    fn write_inputs(&self) -> Result<()> {
        self.write("software.asc", self.software.public_key()?)?;
        let uri = format!("file://{}/apt", self.software.bound_at());
        let source = format!("Types: deb\nURIs: {uri}\nSuites: stable\nComponents: main\nSigned-By: {KEY}\n");
        self.write("software.sources", source)?;
        let mut sums = String::new();
        for (name, content) in reference::files(reference::FILES) {
            let _ = writeln!(sums, "{}  {}/{name}", sha256(&content), reference::FILES_DIR);
            self.write(&format!("files/{name}"), content)?;
        }
        self.write("file-sums", &sums)?;
        for (name, content) in reference::sysctl_files() {
            let _ = writeln!(sums, "{}  /etc/sysctl.d/{name}", sha256(&content));
            self.write(&format!("sysctl.d/{name}"), content)?;
        }
        self.write("sums", &sums)?;
        self.write("parameters", reference::SYSCTL.map(|(key, value)| format!("{key} {value}\n")).concat())?;
        self.write("check.sh", reference::bare_check(&format!("{INPUTS}/sums")))?;
        for version in VERSIONS {
            self.write(&format!("{version}/change.sh"), reference::bare_change(version))?;
            self.write(&format!("{version}/proof.sh"), reference::proof(version))?;
            self.write(&format!("{version}/state.toml"), self.state(version, reference::FILES))?;
            for (name, content) in peers::inputs(version) {
                self.write(&format!("{version}/{name}"), content)?;
            }
        }
        Ok(())
    }
}

/// nodelet's package, around the program as it is released.
fn product(slot: &Arc<Slot>) -> Result<Repository> {
    let program = paths::program("nodelet.release")?;
    let sources = Sources::new(paths::checkout());
    let version = sources.version(None)?;
    let files = sources.build(&program, &version, &[Format::Deb], &slot.dir().join("nodelet-packages"))?;
    let mut repository = Repository::new("nodelet", slot.dir().join("nodelet-repository"))?;
    repository.publish_files(&files)?;
    Ok(repository)
}

/// The packages of the reference state, in both versions.
fn software(slot: &Arc<Slot>) -> Result<Repository> {
    let dir = slot.dir().join("software-packages");
    fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
    let mut files = Vec::new();
    for package in [OLD, NEW].into_iter().flat_map(reference::packages) {
        let context = || format!("building the package {} {}", package.name, package.version);
        files.push(deb::write(&package, &dir).with_context(context)?);
    }
    let mut repository = Repository::new("software", slot.dir().join("software"))?;
    repository.publish_files(&files)?;
    Ok(repository)
}

fn write(path: &Path, content: impl AsRef<[u8]>) -> Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
    }
    fs::write(path, content).with_context(|| format!("writing {}", path.display()))
}
