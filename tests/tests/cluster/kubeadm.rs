//! A node that kubeadm made is taken over by nodelet: nothing on it is restarted, no pod notices.

use serde_json::json;
use testbed::cluster::{Cluster, set_of_all};
use testbed::slot::Slot;
use testbed::{Node, nodelet};

/// The drop-in of kubeadm's package.
const DROPIN: &str = r#"[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
"#;

/// Makes a joined node look as `kubeadm join` leaves it. The kubelet wrote its kubeconfig itself, as there; only the
/// bootstrap credential is gone afterwards.
fn as_kubeadm_leaves_it(node: &Node) {
    let extra = node.read_file("/etc/default/kubelet").unwrap();
    let flags = extra.replace("KUBELET_EXTRA_ARGS", "KUBELET_KUBEADM_ARGS");
    node.write_file("/var/lib/kubelet/kubeadm-flags.env", flags, 0o644).unwrap();
    node.write_file("/usr/lib/systemd/system/kubelet.service.d/10-kubeadm.conf", DROPIN, 0o644).unwrap();
    node.run_sh(
        "rm /etc/kubernetes/bootstrap-kubelet.conf /etc/default/kubelet
         systemctl daemon-reload && systemctl restart kubelet.service
         grep -q /var/lib/kubelet/pki/kubelet-client-current.pem /etc/kubernetes/kubelet.conf",
    )
    .unwrap();
}

fn kubelet(node: &Node) -> String {
    node.run(&["systemctl", "show", "--property=MainPID,NRestarts,ExecMainStartTimestamp", "kubelet.service"]).unwrap()
}

#[tokio::test]
async fn a_node_of_kubeadm_is_taken_over() {
    let cluster = Cluster::start(&Slot::take().unwrap()).unwrap();
    cluster.install_operator().unwrap();
    let controller = cluster.controller("one").unwrap();
    controller.start().unwrap();
    let node = cluster.join("taken-over").await.unwrap();
    as_kubeadm_leaves_it(&node);
    cluster.run_pod("worker", "taken-over").unwrap();
    let (process, container) = (kubelet(&node), cluster.container("worker").unwrap());
    let containerd = || node.run(&["systemctl", "show", "--property=MainPID", "containerd.service"]).unwrap();
    let runtime = containerd();

    // As docs/kubeadm.md has it.
    nodelet_arrives(&node, &cluster);
    let class = |content: &str| {
        json!({
            "apiVersion": "nodelet.dev/v1alpha1",
            "kind": "NodeClass",
            "metadata": {"name": "worker"},
            "spec": {"state": {
                "packages": [{"name": "containerd", "hold": true}],
                "files": [{"path": "/etc/motd", "content": content}],
                "units": [
                    {"name": "containerd.service", "enabled": true, "running": true},
                    {"name": "kubelet.service", "enabled": true, "running": true},
                ],
                "health": {
                    "cri": "unix:///run/containerd/containerd.sock",
                    "kubelet": "http://127.0.0.1:10248/healthz",
                },
            }},
        })
        .to_string()
    };
    cluster.apply(&class("one\n")).unwrap();
    cluster.apply(&set_of_all("workers", "worker").to_string()).unwrap();
    let applied = |before: Option<&str>| {
        let waited = cluster.wait_until_applied(&["taken-over"], before);
        waited.unwrap_or_else(|error| panic!("{error:#}\n{}", node.journal("nodelet").unwrap()));
        cluster.node_state("taken-over").unwrap()["spec"]["revision"].as_str().unwrap().to_owned()
    };
    let first = applied(None);
    assert_eq!(node.run(&["apt-mark", "showhold"]).unwrap(), "containerd");
    cluster.apply(&class("two\n")).unwrap();
    applied(Some(&first));
    assert_eq!(node.read_file("/etc/motd").unwrap(), "two");

    assert_eq!(kubelet(&node), process, "the kubelet was restarted");
    assert_eq!(containerd(), runtime, "containerd was restarted");
    assert_eq!(cluster.container("worker").unwrap(), container, "the pod did not go on");
    let status = node.run(&["nodelet", "status"]).unwrap();
    assert!(status.contains("Cluster: followed"), "{status}");
}

/// What a person does on the node: nodelet's repository, the setting, the package.
fn nodelet_arrives(node: &Node, cluster: &Cluster) {
    let repository = nodelet::build_deb(cluster.slot()).unwrap();
    let served = testbed::software::Served::start(cluster.slot(), repository).unwrap();
    node.write_file("/etc/apt/keyrings/nodelet.asc", served.key().unwrap(), 0o644).unwrap();
    let source = served.apt_source("/etc/apt/keyrings/nodelet.asc");
    node.write_file("/etc/apt/sources.list.d/nodelet.sources", source, 0o644).unwrap();
    let settings = "[cluster]\nkubeconfig = \"/etc/kubernetes/kubelet.conf\"\n";
    node.write_file("/etc/nodelet/nodelet.toml.d/10-cluster.toml", settings, 0o600).unwrap();
    node.run(&["apt-get", "update", "-qq"]).unwrap();
    nodelet::install(node, None).unwrap();
}
