//! Nodes with a real kubelet, joined by TLS bootstrap as in any cluster.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use serde_json::json;

use super::{Cluster, SERVICE, pods};
use crate::command::ip;
use crate::image::Kind;
use crate::wait::{Seen, wait_until_async};
use crate::{Node, NodeOptions};

/// A kubelet registers within seconds; this is for a machine that is busy.
const READY_LIMIT: Duration = Duration::from_secs(3 * 60);
/// Where a node has the configuration of its pods' network.
pub(super) const CNI: &str = "/etc/cni/net.d/10-pods.conflist";
/// The cluster's bootstrap token.
pub const TOKEN: &str = "testbd.0123456789abcdef";

/// How a node joins.
#[derive(Debug, Clone, Default)]
pub struct JoinOptions {
    /// Another kubelet than the cluster's own, see [`crate::kubernetes::Binaries::kubelet_as`].
    pub kubelet: Option<PathBuf>,
    /// Labels that the kubelet registers with.
    pub labels: Vec<(String, String)>,
}

/// What kubeadm would have set up: who may ask for a certificate, and whose requests are approved by themselves.
pub(super) fn allow(cluster: &Cluster) -> Result<()> {
    let binding = |name: &str, role: &str, group: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": group}],
        })
    };
    let requests = "system:certificates.k8s.io:certificatesigningrequests";
    let (id, secret) = TOKEN.split_once('.').context("the token has two parts")?;
    let list = json!({
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            binding("testbed:bootstrap", "system:node-bootstrapper", "system:bootstrappers"),
            binding("testbed:approve", &format!("{requests}:nodeclient"), "system:bootstrappers"),
            binding("testbed:renew", &format!("{requests}:selfnodeclient"), "system:nodes"),
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
                "type": "bootstrap.kubernetes.io/token",
                "stringData": {
                    "token-id": id,
                    "token-secret": secret,
                    "usage-bootstrap-authentication": "true",
                    "usage-bootstrap-signing": "true",
                    "auth-extra-groups": "system:bootstrappers:kubeadm:default-node-token",
                },
            },
        ],
    });
    cluster.apply(&list.to_string()).context("allowing kubelets to join").map(drop)
}

impl Cluster {
    /// Boots a node, starts containerd and the kubelet on it, and waits until the cluster calls it ready.
    pub async fn join(&self, name: &str) -> Result<Node> {
        self.join_with(name, &JoinOptions::default()).await
    }

    /// The same, with options.
    pub async fn join_with(&self, name: &str, options: &JoinOptions) -> Result<Node> {
        let start = Instant::now();
        let node = self.start_kubelet(name, options)?;
        self.wait_until_node_ready(name).await?;
        eprintln!("the node {name} joined and is ready after {:.1} s", start.elapsed().as_secs_f32());
        Ok(node)
    }

    /// Boots a node and starts its kubelet, without waiting for the cluster's opinion.
    pub fn start_kubelet(&self, name: &str, options: &JoinOptions) -> Result<Node> {
        let kubelet = options.kubelet.clone().unwrap_or_else(|| self.binaries.program("kubelet"));
        let images = pods::archive(self.slot.dir())?;
        let node = Node::boot(
            &self.slot,
            NodeOptions::new(name, Kind::Kube)
                .bind(kubelet, "/usr/bin/kubelet")
                .bind(images, "/usr/lib/testbed/pod-images.tar"),
        )?;
        self.configure(&node, options).with_context(|| format!("configuring the kubelet of {name}"))?;
        node.run_sh(
            "systemctl enable --quiet --now containerd.service
             ctr -n k8s.io images import --no-unpack /usr/lib/testbed/pod-images.tar >/dev/null
             systemctl enable --quiet --now kubelet.service",
        )
        .with_context(|| format!("starting containerd and the kubelet of {name}"))?;
        Ok(node)
    }

    /// The node's own part of the pods' network; the last byte of its address makes it unique.
    pub fn pod_network(&self, node: &Node) -> String {
        self.pod_network_of(&node.index().to_string())
    }

    pub(super) fn pod_network_of(&self, index: &str) -> String {
        format!("10.{}.{index}.0/24", 100 + self.slot.number().0)
    }

    fn configure(&self, node: &Node, options: &JoinOptions) -> Result<()> {
        let bootstrap = self.authority.kubeconfig_with(&self.url(), &json!({"token": TOKEN}));
        node.write_file("/etc/kubernetes/bootstrap-kubelet.conf", bootstrap, 0o600)?;
        node.write_file("/etc/kubernetes/pki/ca.crt", self.authority.certificate(), 0o644)?;
        node.write_file("/var/lib/kubelet/config.yaml", kubelet_configuration().to_string(), 0o644)?;
        node.write_file(CNI, cni(&self.pod_network(node)).to_string(), 0o644)?;
        let mut extra = format!("--node-ip={} --hostname-override={}", node.address(), node.name());
        if !options.labels.is_empty() {
            let labels: Vec<String> = options.labels.iter().map(|(name, value)| format!("{name}={value}")).collect();
            extra = format!("{extra} --node-labels={}", labels.join(","));
        }
        node.write_file("/etc/default/kubelet", format!("KUBELET_EXTRA_ARGS=\"{extra}\"\n"), 0o644)
    }

    /// Lets pods of the two nodes reach each other.
    pub fn connect_pods(&self, left: &Node, right: &Node) -> Result<()> {
        left.add_route(&self.pod_network(right), &right.address().to_string())?;
        right.add_route(&self.pod_network(left), &left.address().to_string())
    }

    /// Lets the host reach pods of the node, as a cloud's routes do. The route goes with the slot's bridge.
    pub fn route_to_pods(&self, node: &Node) -> Result<()> {
        let (pods, bridge) = (self.pod_network(node), self.slot.number().bridge());
        ip(&format!("route replace {pods} via {} dev {bridge}", node.address()))
            .map(drop)
            .with_context(|| format!("leading the host to the pods of {}", node.name()))
    }

    /// Lets pods of the node reach the API server where every pod looks for it, at its service's address. That is a
    /// kube-proxy's work, and there is none: one rule does it. The second gives the pods the node's address on the way,
    /// as most pod networks do, because the host has no route back to pods. Gone after a reboot.
    pub fn show_api_to_pods(&self, node: &Node) -> Result<()> {
        let (pods, address) = (self.pod_network(node), self.address());
        node.run_sh(&format!(
            "iptables -w -t nat -A PREROUTING -d {SERVICE}/32 -p tcp --dport 443 -j DNAT --to-destination {address}:6443
             iptables -w -t nat -A POSTROUTING -s {pods} -d {address}/32 -j MASQUERADE"
        ))
        .map(drop)
    }

    /// Waits until the node's condition `Ready` is true.
    pub async fn wait_until_node_ready(&self, name: &str) -> Result<()> {
        let nodes: Api<NodeObject> = Api::all(self.client().await?);
        wait_until_async(&format!("the node {name} to be ready"), READY_LIMIT, || async {
            Ok(match nodes.get_opt(name).await {
                Ok(Some(node)) if node_is_ready(&node) => Seen::Done(()),
                Ok(Some(node)) => Seen::not_yet(format!(
                    "conditions {}",
                    serde_json::to_string(&node.status.and_then(|status| status.conditions)).unwrap_or_default()
                )),
                Ok(None) => Seen::not_yet("it has not registered"),
                Err(error) => Seen::not_yet(error),
            })
        })
        .await
    }
}

/// Whether a Node object's condition `Ready` is true.
pub fn node_is_ready(node: &NodeObject) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.is_some_and(|all| all.iter().any(|one| one.type_ == "Ready" && one.status == "True"))
}

/// The configuration of a node's pod network: a bridge on the node, and addresses of its own.
pub(super) fn cni(subnet: &str) -> serde_json::Value {
    json!({
        "cniVersion": "1.0.0",
        "name": "pods",
        "plugins": [
            {
                "type": "bridge",
                "bridge": "cni0",
                "isGateway": true,
                "ipMasq": false,
                "ipam": {"type": "host-local", "ranges": [[{"subnet": subnet}]], "routes": [{"dst": "0.0.0.0/0"}]},
            },
            {"type": "portmap", "capabilities": {"portMappings": true}},
        ],
    })
}

fn kubelet_configuration() -> serde_json::Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "cgroupDriver": "systemd",
        // A machine with the v1 controllers is fine for tests.
        "failCgroupV1": false,
        "failSwapOn": false,
        "rotateCertificates": true,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
        },
        "authorization": {"mode": "Webhook"},
        // Test machines are small and shared: nothing is evicted because of the host's disk or memory.
        "evictionHard": {"memory.available": "0%", "nodefs.available": "0%", "imagefs.available": "0%", "nodefs.inodesFree": "0%"},
        "imageGCHighThresholdPercent": 100,
        "enforceNodeAllocatable": ["pods"],
    })
}
