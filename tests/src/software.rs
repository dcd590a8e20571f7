//! What makes a bare node one of a cluster, in signed repositories that nodes reach: nodelet as this checkout builds it,
//! the real kubelet in a package as upstream's, and Debian's own container runtime.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use packaging::arch::Arch;
use packaging::deb;
use packaging::package::Package;

use crate::http::FileServer;
use crate::image::Kind;
use crate::kubernetes::{self, Binaries};
use crate::repository::Repository;
use crate::{NodeOptions, Slot, debian, nodelet, repackage};

/// What bare nodes take from Debian's archive; what these need comes along.
const FROM_DEBIAN: [&str; 3] = ["containerd", "runc", "containernetworking-plugins"];

/// Upstream's unit runs the kubelet without a flag. Nothing in upstream's package starts or restarts it.
const KUBELET_UNIT: &str = "[Unit]
Description=kubelet: The Kubernetes Node Agent
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
";

/// The repositories of bare nodes.
#[derive(Debug)]
pub struct Software {
    /// nodelet's.
    pub nodelet: Served,
    /// The kubelet's, laid out as upstream's is.
    pub kubernetes: Served,
    /// Stands for Debian's archive, which nodes have no way to.
    pub debian: Served,
    version: String,
}

/// A repository, and the server that nodes reach it by.
#[derive(Debug)]
pub struct Served {
    repository: Repository,
    server: FileServer,
}

impl Software {
    /// Builds the packages and serves them on the slot's bridge.
    pub fn serve(slot: &Arc<Slot>) -> Result<Self> {
        let binaries = kubernetes::binaries()?;
        let mut kubernetes = Repository::new("kubernetes", slot.dir().join("kubernetes-repository"))?;
        kubernetes.publish_files(&[kubelet(&binaries, &slot.dir().join("kubelet-package"))?])?;
        kubernetes.index_flat()?;
        let mut archive = Repository::new("debian", slot.dir().join("debian-repository"))?;
        archive.publish_files(&debian::download(&Kind::Cloud.image()?, &FROM_DEBIAN)?)?;
        Ok(Self {
            nodelet: Served::start(slot, nodelet::build_deb(slot)?)?,
            kubernetes: Served::start(slot, kubernetes)?,
            debian: Served::start(slot, archive)?,
            version: binaries.version().trim_start_matches('v').to_owned(),
        })
    }

    /// The kubelet's version, as people say it: `1.35.8`.
    pub fn kubernetes_version(&self) -> &str {
        &self.version
    }

    /// Gives a node Debian's archive, as a fresh machine has it.
    pub fn with_archive(&self, options: NodeOptions) -> Result<NodeOptions> {
        let source = format!(
            "Types: deb\nURIs: {}\nSuites: stable\nComponents: main\nSigned-By: /etc/apt/keyrings/debian.asc\n",
            self.debian.apt()
        );
        Ok(options.file("/etc/apt/keyrings/debian.asc", 0o644, self.debian.key()?).file(
            "/etc/apt/sources.list.d/debian.sources",
            0o644,
            source,
        ))
    }
}

impl Served {
    /// Serves a repository on the slot's bridge.
    pub fn start(slot: &Slot, repository: Repository) -> Result<Self> {
        let server = FileServer::start(slot.number().gateway(), repository.dir())?;
        Ok(Self { repository, server })
    }

    /// Where apt finds it.
    pub fn apt(&self) -> String {
        format!("{}/apt", self.server.url())
    }

    /// Where dnf finds it.
    pub fn dnf(&self) -> String {
        format!("{}/dnf", self.server.url())
    }

    /// Its public key, armored.
    pub fn key(&self) -> Result<String> {
        self.repository.public_key()
    }
}

/// The kubelet's package. It is built around an empty file, which the program then takes the place of: `dpkg-deb` packs
/// it in a second, where the packaging crate would need half a minute in a debug build.
fn kubelet(binaries: &Binaries, out: &Path) -> Result<PathBuf> {
    let program = binaries.program("kubelet");
    let package = Package::new("kubelet", binaries.version().trim_start_matches('v'))
        .revision("1.1")
        .arch(Arch::host()?)
        .file("/usr/bin/kubelet", 0o755, "")
        .file("/usr/lib/systemd/system/kubelet.service", 0o644, KUBELET_UNIT);
    fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
    let empty = deb::write(&package, out)?;
    repackage::as_version(&empty, &package.deb_version(), &out.join("whole"), |tree| {
        fs::copy(&program, tree.join("usr/bin/kubelet")).with_context(|| format!("copying {}", program.display()))?;
        // It was made for the empty file.
        fs::remove_file(tree.join("DEBIAN/md5sums")).context("removing the checksums")
    })
}
