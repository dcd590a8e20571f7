//! What makes a bare node one of a cluster, in signed repositories that nodes reach: nodelet as this checkout builds it,
//! the real kubelet in a package as upstream's, and Debian's own container runtime.

mod packages;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};

use crate::http::FileServer;
use crate::image::Kind;
use crate::kubernetes;
use crate::repository::Repository;
use crate::{NodeOptions, Slot, debian, nodelet, repackage};

/// What bare nodes take from Debian's archive; what these need comes along.
const FROM_DEBIAN: [&str; 3] = ["containerd", "runc", "containernetworking-plugins"];

/// The package manager of the nodes that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manager {
    /// apt, on Debian.
    Apt,
    /// dnf, on nodes that are taken for Fedora.
    Dnf,
}

/// The repositories of bare nodes.
#[derive(Debug)]
pub struct Software {
    /// Whose nodes it is for.
    pub manager: Manager,
    /// nodelet's.
    pub nodelet: Served,
    /// The kubelet's, laid out as upstream's is.
    pub kubernetes: Served,
    /// The container runtime's. For apt it stands for Debian's archive, which nodes have no way to.
    pub runtime: Served,
    version: String,
}

/// A repository, and the server that nodes reach it by.
#[derive(Debug)]
pub struct Served {
    repository: Repository,
    server: FileServer,
}

impl Manager {
    /// The image of its nodes.
    pub fn image(self) -> Kind {
        match self {
            Self::Apt => Kind::Cloud,
            Self::Dnf => Kind::CloudRpm,
        }
    }
}

impl Software {
    /// Builds the packages and serves them on the slot's bridge.
    pub fn serve(slot: &Arc<Slot>, manager: Manager) -> Result<Self> {
        let binaries = kubernetes::binaries()?;
        let version = binaries.version().trim_start_matches('v').to_owned();
        Self::serve_kubelet(slot, manager, &binaries.program("kubelet"), version)
    }

    /// The same with this kubelet, see [`crate::kubernetes::Binaries::kubelet_renumbered`].
    pub fn serve_kubelet(slot: &Arc<Slot>, manager: Manager, program: &Path, version: String) -> Result<Self> {
        let debs = debian::download(&manager.image().image()?, &FROM_DEBIAN)?;
        let out = slot.dir().join("software");
        let (nodelets, kubelet, runtime) = match manager {
            Manager::Apt => (nodelet::build_deb(slot)?, packages::kubelet_deb(program, &version, &out)?, debs),
            Manager::Dnf => (
                nodelet::build(slot)?,
                packages::kubelet_rpm(program, &version, &out)?,
                vec![packages::containerd_rpm(&debs, &out)?],
            ),
        };
        let publish = |name: &str, files: &[_]| {
            let mut repository = Repository::new(name, slot.dir().join(format!("{name}-repository")))?;
            repository.publish_files(files)?;
            anyhow::Ok(repository)
        };
        let kubernetes = publish("kubernetes", &[kubelet])?;
        kubernetes.index_flat()?;
        Ok(Self {
            manager,
            nodelet: Served::start(slot, nodelets)?,
            kubernetes: Served::start(slot, kubernetes)?,
            runtime: Served::start(slot, publish("runtime", &runtime)?)?,
            version,
        })
    }

    /// The kubelet's version, as people say it: `1.35.8`.
    pub fn kubernetes_version(&self) -> &str {
        &self.version
    }

    /// Adds another kubelet to those that apt finds.
    pub fn add_kubelet(&mut self, slot: &Slot, program: &Path, version: &str) -> Result<()> {
        let deb = packages::kubelet_deb(program, version, &slot.dir().join("software"))?;
        self.kubernetes.repository.publish_files(&[deb])?;
        self.kubernetes.repository.index_flat()
    }

    /// Adds a newer containerd to those that apt finds: the same files under another number, which is returned. What it says
    /// of itself, and the cluster of its node, is another number too, where one of the same length follows.
    pub fn add_containerd(&mut self, slot: &Slot) -> Result<String> {
        let debs = debian::download(&self.manager.image().image()?, &FROM_DEBIAN)?;
        let is_containerd =
            |file: &&PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("containerd_"));
        let deb = debs.iter().find(is_containerd).context("Debian's containerd is not among its packages")?;
        let version = repackage::version(deb)?;
        let following = repackage::following(&version);
        let newer = following.clone().unwrap_or_else(|| format!("{version}+newer1"));
        let built = repackage::as_version(deb, &newer, &slot.dir().join("software"), |files| match following {
            // The program knows its release and the whole version.
            Some(_) => {
                repackage::replace_version(&files.join("usr/bin/containerd"), release(&version), release(&newer))
            }
            None => Ok(()),
        })?;
        self.runtime.repository.publish_files(&[built])?;
        Ok(newer)
    }

    /// Gives a node Debian's archive, as a fresh machine has it.
    pub fn with_archive(&self, options: NodeOptions) -> Result<NodeOptions> {
        if self.manager == Manager::Dnf {
            return Ok(options);
        }
        let key = "/etc/apt/keyrings/debian.asc";
        let source = self.runtime.apt_source(key);
        Ok(options.file(key, 0o644, self.runtime.key()?).file("/etc/apt/sources.list.d/debian.sources", 0o644, source))
    }
}

/// A version without the distribution's own number: `1.6.20~ds1` of `1.6.20~ds1-1+deb12u3`.
fn release(version: &str) -> &str {
    version.rsplit_once('-').map_or(version, |(release, _)| release)
}

impl Served {
    /// Serves a repository on the slot's bridge.
    pub fn start(slot: &Slot, repository: Repository) -> Result<Self> {
        let server = FileServer::start(slot.number().gateway(), repository.dir())?;
        Ok(Self { repository, server })
    }

    /// Where apt or dnf finds it.
    pub fn address(&self, manager: Manager) -> String {
        let part = match manager {
            Manager::Apt => "apt",
            Manager::Dnf => "dnf",
        };
        format!("{}/{part}", self.server.url())
    }

    /// A deb822 source for it, with its key in this file.
    pub fn apt_source(&self, key: &str) -> String {
        format!(
            "Types: deb\nURIs: {}\nSuites: stable\nComponents: main\nSigned-By: {key}\n",
            self.address(Manager::Apt)
        )
    }

    /// Its public key, armored.
    pub fn key(&self) -> Result<String> {
        self.repository.public_key()
    }
}
