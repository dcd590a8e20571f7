//! Nodes from nothing: a bare machine, the user data of `config/cloud-init`, and nobody who logs in.

use std::time::Duration;

use testbed::cluster::Cluster;
use testbed::slot::Slot;
use testbed::software::Software;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bare_machine_becomes_a_node() {
    let slot = Slot::take().unwrap();
    let software = Software::serve(&slot).unwrap();
    let cluster = Cluster::start(&slot).unwrap();
    let node = cluster.boot_bare("bare", &software).unwrap();
    cluster.wait_until_node_ready("bare").await.unwrap_or_else(|error| {
        panic!("{error:#}\n{}", node.journal("nodelet").unwrap());
    });
    println!("{}", node.run_sh("systemd-analyze blame | head -20; cloud-init status --long; journalctl -u nodelet --no-pager -o short-precise; nodelet history; cat /var/log/apt/history.log").unwrap());
    println!("{}", node.run_sh("grep -i warn /var/log/cloud-init.log || true; systemctl show -p ActiveEnterTimestamp -p ExecMainStartTimestamp nodelet kubelet containerd").unwrap());
    std::thread::sleep(Duration::from_secs(std::env::var("HOLD").map_or(0, |v| v.parse().unwrap())));
}
