//! Nodes from nothing: bare machines that cloud-init and nodelet make nodes of the cluster.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::join::{CNI, cni};
use super::{Cluster, PAUSE, TOKEN, pods};
use crate::cloud_init::{UserData, seeded};
use crate::node::INDEX;
use crate::software::{Manager, Software};
use crate::{Node, NodeOptions};

/// What nodes of the test bed need beyond others, as part of their desired state. Without `CAP_SYS_RESOURCE` runc fails
/// unless `restrict_oom_score_adj` is set; images come from a file; the machine may have the v1 controllers, and is too
/// small and too full for a kubelet's usual limits.
const STATE: &str = r#"[runtime.config.plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "@PAUSE@"
restrict_oom_score_adj = true
cni = { bin_dir = "/usr/lib/cni" }

[kubelet.config]
failCgroupV1 = false
failSwapOn = false
imageGCHighThresholdPercent = 100
enforceNodeAllocatable = ["pods"]
evictionHard = { "memory.available" = "0%", "nodefs.available" = "0%", "imagefs.available" = "0%", "nodefs.inodesFree" = "0%" }

[[units]]
name = "pod-images.service"
enabled = true
running = true
content = """
[Unit]
Description=Images of pods, from a file: there is no registry
Requires=containerd.service
After=containerd.service
Before=kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/ctr -n k8s.io images import --no-unpack /usr/lib/testbed/pod-images.tar

[Install]
WantedBy=multi-user.target
"""
"#;

/// In Debian these are a package of their own.
const DEBIAN_STATE: &str = r#"
[[packages]]
name = "containernetworking-plugins"
"#;

impl Cluster {
    /// Boots a bare machine with the user data of `config/cloud-init`, and returns when its first boot is
    /// over: nodelet is installed and at work. Wait for the node with [`Cluster::wait_until_node_ready`].
    pub fn boot_bare(&self, name: &str, software: &Software) -> Result<Node> {
        let user_data = self.user_data(software)?;
        let bare = self.bare(name, software)?;
        Node::boot(&self.slot, seeded(bare, &user_data)).with_context(|| format!("booting the bare machine {name}"))
    }

    /// A machine as a cloud hands it out: Debian with cloud-init, its archive, a network, and nothing of Kubernetes but the
    /// configuration of its pods' network. That differs from node to node, and is the work of the network's own add-on.
    fn bare(&self, name: &str, software: &Software) -> Result<NodeOptions> {
        // Nodes have no default route. The address that `${node.ip}` is asked for with must lead somewhere.
        let route = format!("route replace 192.0.2.0/24 via {}\n", self.address());
        let options = NodeOptions::new(name, software.manager.image())
            .bind(pods::archive(self.slot.dir())?, "/usr/lib/testbed/pod-images.tar")
            .file("/etc/testbed/routes", 0o644, route)
            .file(CNI, 0o644, cni(&self.pod_network_of(INDEX)).to_string());
        software.with_archive(options)
    }

    /// The user data of this cluster's machines.
    pub fn user_data(&self, software: &Software) -> Result<String> {
        let manager = software.manager;
        let state = STATE.replace("@PAUSE@", PAUSE);
        let data = match manager {
            Manager::Apt => UserData::read("debian.yaml")?.add_to_state(&(state + DEBIAN_STATE))?,
            Manager::Dnf => UserData::read("rpm.yaml")?
                .fill("CONTAINERD_REPOSITORY", &software.runtime.address(manager))?
                .fill_file("CONTAINERD_KEY", &software.runtime.key()?)?
                .add_to_state(&state)?,
        };
        data.fill("NODELET_REPOSITORY", &software.nodelet.address(manager))?
            .fill_file("NODELET_KEY", &software.nodelet.key()?)?
            .fill("KUBERNETES_REPOSITORY", &software.kubernetes.address(manager))?
            .fill_file("KUBERNETES_KEY", &software.kubernetes.key()?)?
            .fill("KUBERNETES_VERSION", software.kubernetes_version())?
            .fill("API_SERVER", &self.url())?
            .fill_file("CLUSTER_CA", self.authority_certificate())?
            .fill("BOOTSTRAP_TOKEN", TOKEN)?
            .finish()
    }
}

/// A `NodeClass` that says what a state file says: when the cluster takes over with it, nothing changes on the node.
pub fn class_of(name: &str, state_file: &str) -> Result<Value> {
    let state: Value = toml::from_str(state_file).context("reading the state file")?;
    Ok(json!({
        "apiVersion": "nodelet.dev/v1alpha1",
        "kind": "NodeClass",
        "metadata": {"name": name},
        "spec": {"state": state},
    }))
}
