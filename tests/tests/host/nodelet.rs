//! nodelet's own packages on real nodes: installing, upgrading, configuring, removing.

use std::time::Duration;

use testbed::image::Kind;
use testbed::{Node, NodeOptions, nodelet};

const SOON: Duration = Duration::from_secs(20);

fn plain_node(name: &str) -> Node {
    nodelet::node(NodeOptions::new(name, Kind::Base)).unwrap()
}

/// Every path that is not the package manager's own, a log, or in a file system of the kernel's.
fn files(node: &Node) -> String {
    node.run_sh(
        "find / -xdev \\( -path /proc -o -path /sys -o -path /run -o -path /tmp -o -path /var/tmp -o -path /var/log \
         -o -path /var/cache -o -path /var/lib/dpkg -o -path /var/lib/apt -o -path /var/lib/rpm -o -path /var/lib/dnf \
         -o -path /srv -o -path /root -o -path /etc/ld.so.cache -o -path /var/lib/systemd \\) -prune -o -print | sort
         find /var/cache/nodelet /run/nodelet /var/lib/nodelet 2>&1 || :; getent passwd; getent group",
    )
    .unwrap()
}

/// What an upgrade, an edited configuration and a removal do, whatever the package manager.
fn lives_and_leaves(name: &str, image: Kind, remove: &str) {
    let node = nodelet::node(NodeOptions::new(name, image)).unwrap();
    let before = files(&node);
    nodelet::install(&node, Some(nodelet::OLDER)).unwrap();
    assert_eq!(node.run(&["systemctl", "is-active", "nodelet"]).unwrap(), "active");
    assert_eq!(node.run(&["systemctl", "is-enabled", "nodelet"]).unwrap(), "enabled");
    assert_eq!(node.run(&["stat", "-c", "%a %U", "/etc/nodelet/nodelet.toml"]).unwrap(), "600 root");
    let status = node.run_sh("systemctl status nodelet").unwrap();
    assert!(status.contains("Status: \"Waiting: the state file /etc/nodelet/state.toml\""), "{status}");
    let own = node.exec(&["nodelet", "status"]).unwrap();
    assert_eq!(own.code(), 1, "not converged: {}", own.text());
    assert!(own.stdout.contains("Waiting for: the state file"), "{}", own.text());
    for path in ["/usr/share/man/man8/nodelet.8.gz", "/usr/share/bash-completion/completions/nodelet"] {
        assert!(node.exists(path).unwrap(), "{path} is missing");
    }

    // An upgrade keeps the edited file, asks nothing, and restarts the daemon.
    node.run_sh("sed -i 's/^#level = .*/level = \"debug\"/' /etc/nodelet/nodelet.toml").unwrap();
    let edited = node.read_file("/etc/nodelet/nodelet.toml").unwrap();
    let old_process = node.run(&["systemctl", "show", "-P", "MainPID", "nodelet"]).unwrap();
    nodelet::install(&node, None).unwrap();
    assert_eq!(node.read_file("/etc/nodelet/nodelet.toml").unwrap(), edited);
    assert_eq!(node.run(&["systemctl", "is-active", "nodelet"]).unwrap(), "active");
    assert_ne!(node.run(&["systemctl", "show", "-P", "MainPID", "nodelet"]).unwrap(), old_process);

    // A nodelet that an administrator stopped is not started by the next one.
    node.run_sh("systemctl stop nodelet").unwrap();
    match image {
        Kind::Rpm => node.run_sh("dnf -y reinstall nodelet"),
        _ => node.run_sh("apt-get install -y --reinstall nodelet"),
    }
    .unwrap();
    assert_eq!(node.unit_state("nodelet.service").unwrap(), "inactive");
    node.run_sh("systemctl start nodelet").unwrap();

    node.run_sh(remove).unwrap();
    let left: Vec<String> = {
        let before: std::collections::BTreeSet<&str> = before.lines().collect();
        files(&node).lines().filter(|line| !before.contains(line)).map(str::to_owned).collect()
    };
    assert_eq!(left, Vec::<String>::new(), "left behind");
    // Where there is none, its exit code says so too.
    let units =
        "systemctl list-units --all --no-legend 'nodelet*'; systemctl list-unit-files --no-legend 'nodelet*' || :";
    assert_eq!(node.run_sh(units).unwrap(), "");
}

#[test]
fn apt_installs_upgrades_and_purges() {
    lives_and_leaves("apt-life", Kind::Base, "apt-get purge -y nodelet");
}

/// rpm keeps an edited configuration as `.rpmsave`, which is an administrator's to remove.
#[test]
fn dnf_installs_upgrades_and_removes() {
    let remove = "dnf -y remove nodelet; rm /etc/nodelet/nodelet.toml.rpmsave; rmdir /etc/nodelet";
    lives_and_leaves("dnf-life", Kind::Rpm, remove);
}

#[test]
fn a_typo_in_the_configuration_is_told_with_its_line() {
    let node = plain_node("typo");
    node.write_file("/etc/nodelet/nodelet.toml", "[log]\nlevle = \"debug\"\n", 0o600).unwrap();
    let state = "[[files]]\npath = \"/etc/made\"\ncontent = \"x\"\n";
    node.write_file("/etc/nodelet/state.toml", state, 0o600).unwrap();
    let install = "DEBIAN_FRONTEND=noninteractive apt-get install -y -o Dpkg::Options::=--force-confold nodelet";
    node.run_sh(install).unwrap();
    node.wait_for("the daemon to give up", SOON, "test \"$(systemctl is-failed nodelet)\" = failed").unwrap();
    let exit = node.run(&["systemctl", "show", "-P", "ExecMainStatus", "nodelet"]).unwrap();
    assert_eq!(exit, "78");
    let problem = "/etc/nodelet/nodelet.toml:2:1: log.levle: there is no field `levle`: did you mean `level`?";
    // 3: systemctl's code for a unit that is not running.
    let status = node.exec(&["systemctl", "status", "nodelet"]).unwrap();
    assert_eq!(status.code(), 3, "{}", status.text());
    let status = status.stdout;
    assert!(status.contains(&format!("Status: \"Invalid configuration: {problem}\"")), "{status}");
    let checked = node.exec(&["nodelet", "validate"]).unwrap();
    assert_eq!((checked.code(), checked.stdout.as_str()), (78, problem));
    assert!(!node.exists("/etc/made").unwrap(), "it converged in spite of the mistake");
    assert_eq!(node.run(&["systemctl", "show", "-P", "NRestarts", "nodelet"]).unwrap(), "0");

    node.write_file("/etc/nodelet/nodelet.toml", "[log]\nlevel = \"debug\"\n", 0o600).unwrap();
    node.run_sh("systemctl restart nodelet").unwrap();
    node.wait_for("the state to be applied", SOON, "test -e /etc/made").unwrap();
}

#[test]
fn a_reload_takes_settings_up_and_refuses_wrong_ones() {
    let node = plain_node("reload");
    nodelet::install(&node, None).unwrap();
    let process = node.run(&["systemctl", "show", "-P", "MainPID", "nodelet"]).unwrap();
    node.write_file("/root/other.toml", "[[files]]\npath = \"/etc/made\"\ncontent = \"x\"\n", 0o600).unwrap();
    let dropin = "/etc/nodelet/nodelet.toml.d/50-test.toml";
    node.write_file(dropin, "[state]\nfile = \"/root/other.toml\"\n", 0o600).unwrap();
    node.run_sh("systemctl reload nodelet").unwrap();
    node.wait_for("the other state to be applied", SOON, "test -e /etc/made").unwrap();
    assert!(node.run(&["nodelet", "config"]).unwrap().contains(dropin));

    node.write_file(dropin, "[stat]\nfile = \"/root/other.toml\"\n", 0o600).unwrap();
    node.run_sh("systemctl reload nodelet").unwrap();
    let refused = "systemctl status nodelet | grep -F \"50-test.toml:1:2: stat: there is no field\"";
    node.wait_for("the refusal to be visible", SOON, refused).unwrap();
    assert_eq!(node.run(&["systemctl", "show", "-P", "MainPID", "nodelet"]).unwrap(), process);
    assert_eq!(node.unit_state("nodelet.service").unwrap(), "active");
}

#[test]
fn a_hung_daemon_is_restarted_and_logs_have_fields() {
    let node = plain_node("watchdog");
    let quick = "[Service]\nWatchdogSec=2\nRestartSec=0\nTimeoutAbortSec=2\n";
    node.write_file("/etc/systemd/system/nodelet.service.d/quick.conf", quick, 0o644).unwrap();
    nodelet::install(&node, None).unwrap();
    let state = "[[files]]\npath = \"/etc/made\"\ncontent = \"x\"\n";
    node.write_file("/etc/nodelet/state.toml", state, 0o600).unwrap();
    node.wait_for("the state to be applied", SOON, "test -e /etc/made").unwrap();
    node.wait_for("a step in the journal", SOON, "journalctl -u nodelet NODELET_STEP=1 | grep 'write /etc/made'")
        .unwrap();

    // It lives on through several intervals of the watchdog, as long as it is alive …
    let process = node.run(&["systemctl", "show", "-P", "MainPID", "nodelet"]).unwrap();
    let last_sign = || node.run(&["systemctl", "show", "-P", "WatchdogTimestampMonotonic", "nodelet"]).unwrap();
    // In microseconds, three intervals later.
    let later = last_sign().parse::<u64>().unwrap() + 6_000_000;
    let alive = format!("test \"$(systemctl show -P WatchdogTimestampMonotonic nodelet)\" -ge {later}");
    node.wait_for("signs of life over three intervals", SOON, &alive).unwrap();
    assert_eq!(node.run(&["systemctl", "show", "-P", "MainPID", "nodelet"]).unwrap(), process);
    // … and is replaced when it hangs.
    node.run_sh(&format!("kill -STOP {process}")).unwrap();
    let replaced = format!(
        "test \"$(systemctl show -P MainPID nodelet)\" != {process} && test \"$(systemctl is-active nodelet)\" = active"
    );
    node.wait_for("another process", SOON, &replaced).unwrap();
    assert_eq!(node.run(&["systemctl", "show", "-P", "NRestarts", "nodelet"]).unwrap(), "1");
}

#[test]
fn it_starts_without_network_and_after_a_reboot() {
    let node = plain_node("offline");
    nodelet::install(&node, None).unwrap();
    let state = "[[files]]\npath = \"/etc/made\"\ncontent = \"${node.name}\"\n";
    node.write_file("/etc/nodelet/state.toml", state, 0o600).unwrap();
    node.wait_for("the state to be applied", SOON, "test \"$(cat /etc/made)\" = offline").unwrap();
    node.network_cut().unwrap();
    node.run_sh("rm /etc/made; systemctl disable testbed-network.service").unwrap();
    node.reboot().unwrap();
    node.wait_for("the state to be applied again", SOON, "test \"$(cat /etc/made)\" = offline").unwrap();
    let status = node.run_sh("nodelet status").unwrap();
    assert!(status.contains("State: Converged"), "{status}");
}
