//! Nodes from nothing: a bare machine, the user data of `config/cloud-init`, and nobody who logs in.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use testbed::Node;
use testbed::cluster::{Cluster, TOKEN, class_of, set_of_all};
use testbed::slot::Slot;
use testbed::software::{Manager, Software};

/// The user data, as the machine was given it.
const SEED: &str = "/var/lib/cloud/seed/nocloud/user-data";
/// What may be added to the package manager's own time, from nodelet's start to a Ready node.
const ALLOWED: Duration = Duration::from_secs(20);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bare_machine_becomes_a_node() {
    becomes_a_node("bare", Manager::Apt).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bare_machine_with_dnf_becomes_a_node() {
    becomes_a_node("bare-dnf", Manager::Dnf).await;
}

async fn becomes_a_node(name: &'static str, manager: Manager) {
    let slot = Slot::take().unwrap();
    let software = Software::serve(&slot, manager).unwrap();
    let cluster = Arc::new(Cluster::start(&slot).unwrap());
    cluster.install_operator().unwrap();
    let controller = cluster.controller("one").unwrap();
    controller.start().unwrap();

    // Both sides are watched at once: the node may be ready before the machine's first boot is over.
    let watched = Arc::clone(&cluster);
    let ready = tokio::spawn(async move { watched.wait_until_node_ready(name).await.map(|()| SystemTime::now()) });
    let node = tokio::task::block_in_place(|| cluster.boot_bare(name, &software)).unwrap();
    let ready = ready.await.unwrap();
    let ready = ready.unwrap_or_else(|error| panic!("{error:#}\n{}", node.journal("nodelet").unwrap()));
    measure(&node, manager, ready);

    assert!(node.run(&["cloud-init", "status"]).unwrap().contains("done"));
    node.run(&["cloud-init", "schema", "--config-file", SEED]).unwrap();
    assert_eq!(node.run(&["stat", "-c", "%a", "/etc/nodelet/bootstrap-token"]).unwrap(), "600");
    let secret = TOKEN.split_once('.').unwrap().1;
    for text in [node.journal("nodelet").unwrap(), node.journal("cloud-final").unwrap()] {
        assert!(!text.contains(secret), "the token is in the log:\n{text}");
    }
    let version = cluster.kubectl(&["get", "node", name, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}"]);
    assert_eq!(version.unwrap(), format!("v{}", software.kubernetes_version()));
    cluster.run_pod("first", name).unwrap();
    let (kubelet, container) = (process(&node, "kubelet"), cluster.container("first").unwrap());

    // The cluster takes over with a class that says the same: nothing on the node changes.
    let state = node.read_file("/etc/nodelet/state.toml").unwrap();
    let mut class = class_of("worker", &state).unwrap();
    cluster.apply(&class.to_string()).unwrap();
    cluster.apply(&set_of_all("workers", "worker").to_string()).unwrap();
    applied(&cluster, &node, None);
    let status = node.run(&["nodelet", "status"]).unwrap();
    assert!(status.contains("the cluster took over"), "{status}");
    let steps = node.run_sh("nodelet history | awk 'NR > 2 && $5 != 0'").unwrap();
    assert_eq!(steps, "", "the cluster took over, and something was done");

    // And it follows: another class, another file.
    let before = cluster.node_state(name).unwrap()["spec"]["revision"].as_str().unwrap().to_owned();
    class["spec"]["state"]["files"] = serde_json::json!([{"path": "/etc/from-cluster", "content": "for ${node.name}"}]);
    cluster.apply(&class.to_string()).unwrap();
    applied(&cluster, &node, Some(&before));
    assert_eq!(node.read_file("/etc/from-cluster").unwrap(), format!("for {name}"));
    assert_eq!(process(&node, "kubelet"), kubelet, "the kubelet was restarted");
    assert_eq!(cluster.container("first").unwrap(), container, "the pod did not go on");
}

/// Waits until the node says that it is what its class makes it.
fn applied(cluster: &Cluster, node: &Node, before: Option<&str>) {
    let waited = cluster.wait_until_applied(&[node.name()], before);
    waited.unwrap_or_else(|error| panic!("{error:#}\n{}", node.journal("nodelet").unwrap()));
}

fn process(node: &Node, unit: &str) -> String {
    node.run(&["systemctl", "show", "--property=MainPID,NRestarts,ExecMainStartTimestamp", unit]).unwrap()
}

/// From the start of nodelet to a Ready node, and the package manager's share. Of that only the transaction is counted:
/// refreshing the lists and the download come before the first step, and are not told apart from nodelet's own work.
fn measure(node: &Node, manager: Manager, ready: SystemTime) {
    let journal = node.run(&["journalctl", "-u", "nodelet", "-o", "json", "--no-pager"]).unwrap();
    let entries: Vec<(Duration, String)> = journal
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter_map(|entry| {
            let microseconds = entry["__REALTIME_TIMESTAMP"].as_str()?.parse().ok()?;
            Some((Duration::from_micros(microseconds), entry["MESSAGE"].as_str()?.to_owned()))
        })
        .collect();
    let at = |start: &str| entries.iter().find(|(_, message)| message.starts_with(start)).unwrap().0;
    let (started, installed) = (at("Starting nodelet"), at("install "));
    // A step is noted when it is done: the one before the transaction is its beginning.
    let begun = at(match manager {
        Manager::Apt => "write /etc/apt/sources.list.d/",
        Manager::Dnf => "write /etc/yum.repos.d/kubernetes",
    });
    let (whole, packages) =
        (ready.duration_since(UNIX_EPOCH).unwrap().saturating_sub(started), installed.saturating_sub(begun));
    println!(
        "from nodelet's start to a Ready node: {:.1} s, of which the transaction of packages: {:.1} s",
        whole.as_secs_f32(),
        packages.as_secs_f32()
    );
    assert!(whole <= packages + ALLOWED, "{whole:?} is too long for a transaction of {packages:?}:\n{journal}");
}
