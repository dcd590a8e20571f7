//! What a node can do.

use std::time::{Duration, Instant};

use testbed::image::Kind;
use testbed::{Node, NodeOptions, slot};

fn base(name: &str) -> Node {
    Node::boot(&slot().unwrap(), NodeOptions::new(name, Kind::Base)).unwrap()
}

/// Measured: 1 to 3 s. The bound is generous, for a machine that is busy; the image is built before the clock starts.
#[test]
fn boots_in_seconds_and_answers() {
    Kind::Base.image().unwrap();
    slot().unwrap();
    let start = Instant::now();
    let node = base("boot");
    let took = start.elapsed();
    assert!(took < Duration::from_secs(30), "booting took {took:?}");

    assert_eq!(node.run(&["hostname"]).unwrap(), "boot");
    let code = node.sh("echo out; echo err >&2; exit 7").unwrap();
    assert_eq!((code.code(), code.stdout.as_str(), code.stderr.as_str()), (7, "out", "err"));

    node.write_file("/etc/a/b.conf", "täxt\n", 0o640).unwrap();
    assert_eq!(node.read_file("/etc/a/b.conf").unwrap(), "täxt");
    assert_eq!(node.run(&["stat", "-c", "%a", "/etc/a/b.conf"]).unwrap(), "640");
    assert!(node.exists("/etc/a/b.conf").unwrap());
    assert!(!node.exists("/etc/a/c.conf").unwrap());

    node.run_sh("systemd-run --wait --unit=hello echo 'hello journal'").unwrap();
    assert!(node.journal("hello.service").unwrap().contains("hello journal"));
    assert_eq!(node.unit_state("dbus.service").unwrap(), "active");
}

#[tokio::test]
async fn systemd_answers_over_dbus() {
    let node = base("dbus");
    let socket = format!("unix:path=/proc/{}/root/run/dbus/system_bus_socket", node.leader().unwrap());
    let bus = zbus::connection::Builder::address(socket.as_str()).build().await.unwrap();
    let manager = zbus::Proxy::new(
        &bus,
        "org.freedesktop.systemd1",
        "/org/freedesktop/systemd1",
        "org.freedesktop.systemd1.Manager",
    )
    .await
    .unwrap();
    let version: String = manager.get_property("Version").await.unwrap();
    assert!(version.starts_with("252"), "Debian 12 has systemd 252, the node has {version}");
    let name: String = manager.get_property("SystemState").await.unwrap();
    assert_eq!(name, "running");
}

#[test]
fn a_reboot_changes_the_boot_id() {
    let node = base("reboot");
    let before = node.boot_id().unwrap();
    node.write_file("/root/kept", "kept\n", 0o600).unwrap();
    node.write_file("/run/lost", "lost\n", 0o600).unwrap();
    node.reboot().unwrap();
    assert_ne!(node.boot_id().unwrap(), before);
    assert_eq!(node.read_file("/root/kept").unwrap(), "kept");
    assert!(!node.exists("/run/lost").unwrap());
    assert_eq!(node.run(&["journalctl", "--list-boots", "--quiet"]).unwrap().lines().count(), 2);
    reaches_the_bridge(&node).unwrap();
}

#[test]
fn a_power_cut_is_survived() {
    let node = base("power");
    let before = node.boot_id().unwrap();
    node.write_file("/root/kept", "kept\n", 0o600).unwrap();
    node.run_sh("systemd-run --unit=busy sleep 1000").unwrap();
    node.power_cut().unwrap();
    assert!(node.boot_id().is_err(), "a node without power must not answer");
    node.power_on().unwrap();
    assert_ne!(node.boot_id().unwrap(), before);
    assert_eq!(node.read_file("/root/kept").unwrap(), "kept");
    assert_eq!(node.unit_state("busy.service").unwrap(), "inactive");
    reaches_the_bridge(&node).unwrap();
}

#[test]
fn a_shutdown_ends_the_node() {
    let node = base("off");
    node.exec(&["systemctl", "poweroff"]).unwrap();
    node.wait_until_off().unwrap();
    node.power_on().unwrap();
    assert_eq!(node.unit_state("multi-user.target").unwrap(), "active");
}

#[test]
fn a_network_cut_cuts_and_is_undone() {
    let node = base("network");
    reaches_the_bridge(&node).unwrap();
    node.network_cut().unwrap();
    assert!(reaches_the_bridge(&node).is_err(), "packets still get through");
    assert_eq!(node.run(&["hostname"]).unwrap(), "network", "exec needs no network");
    node.network_restore().unwrap();
    node.wait_for(
        "the bridge to be reachable again",
        Duration::from_secs(20),
        &format!("ping -c1 -W1 {}", node.slot().number().gateway()),
    )
    .unwrap();
}

#[test]
fn nodes_reach_each_other_but_not_the_world() {
    let (left, right) = (base("left"), base("right"));
    left.run(&["ping", "-c1", "-W5", &right.address().to_string()]).unwrap();
    // An address for documentation (RFC 5737): without a default route the kernel refuses it at once.
    let refused = left.exec(&["ping", "-c1", "-W5", "203.0.113.1"]).unwrap();
    assert!(refused.text().contains("Network is unreachable"), "{}", refused.text());
}

fn reaches_the_bridge(node: &Node) -> anyhow::Result<()> {
    node.run(&["ping", "-c1", "-W1", &node.slot().number().gateway().to_string()]).map(drop)
}
