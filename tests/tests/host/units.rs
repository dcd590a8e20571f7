//! Units that go by another name: aliases, templates and their instances.

use std::time::Duration;

use testbed::image::Kind;
use testbed::{NodeOptions, nodelet};

const SOON: Duration = Duration::from_secs(30);

#[test]
fn aliases() {
    let node = nodelet::node(NodeOptions::new("aliases", Kind::Base)).unwrap();
    nodelet::install(&node, None).unwrap();
    // As a distribution has `sshd.service` beside `ssh.service`.
    let unit = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\nAlias=nick.service\n";
    node.write_file("/etc/systemd/system/real.service", unit, 0o644).unwrap();
    node.run_sh("systemctl daemon-reload; systemctl enable real").unwrap();
    let state = "[[units]]\nname = \"nick.service\"\nenabled = true\nrunning = true\n\
                 [[units.dropins]]\nname = \"1.conf\"\ncontent = \"[Service]\\nEnvironment=A=b\\n\"\n";
    node.write_file("/etc/nodelet/state.toml", state, 0o600).unwrap();
    node.wait_for("the unit behind the alias", SOON, "nodelet status && systemctl -q is-active real").unwrap();
    assert_eq!(node.run(&["systemctl", "show", "-P", "Environment", "real"]).unwrap(), "A=b");
    assert_eq!(node.exec(&["nodelet", "plan"]).unwrap().code(), 0);

    // A change of the unit is one of its alias.
    node.run_sh("systemctl stop real").unwrap();
    node.wait_for("the repair", SOON, "systemctl -q is-active real").unwrap();

    // The alias is a link, and a whole unit in its place would take it away from somebody.
    let whole = "[[units]]\nname = \"nick.service\"\ncontent = \"[Service]\\nExecStart=/bin/sleep 1\\n\"\n";
    node.write_file("/root/whole.toml", whole, 0o600).unwrap();
    let refused = node.exec(&["nodelet", "plan", "/root/whole.toml"]).unwrap();
    assert_eq!(refused.code(), 1, "{}", refused.text());
    assert!(refused.stderr.contains("/etc/systemd/system/nick.service is a symbolic link"), "{}", refused.text());

    // What was there before nodelet stays when the state forgets it.
    node.write_file("/etc/nodelet/state.toml", "# nothing\n", 0o600).unwrap();
    let forgotten = "nodelet status && test ! -e /etc/systemd/system/nick.service.d/1.conf";
    node.wait_for("the state to be forgotten", SOON, forgotten).unwrap();
    assert_eq!(node.unit_state("real.service").unwrap(), "active");
}

/// A template with two instances that run, and one that is only enabled.
fn instances(word: &str) -> String {
    format!(
        r#"
[[units]]
name = "worker@.service"
content = """
[Service]
ExecStart=/bin/sh -c 'echo {word} %I >> /var/log/worker.starts; exec sleep infinity'
[Install]
WantedBy=multi-user.target
"""
[[units]]
name = "worker@one.service"
enabled = true
running = true
[[units]]
name = "worker@two\\x20words.service"
running = true
[[units.dropins]]
name = "1.conf"
content = "[Service]\nEnvironment=A=b\n"
[[units]]
name = "worker@later.service"
enabled = true
"#
    )
}

#[test]
fn instances_of_a_template() {
    let node = nodelet::node(NodeOptions::new("instances", Kind::Base)).unwrap();
    nodelet::install(&node, None).unwrap();
    node.run_sh("systemctl stop nodelet").unwrap();
    let apply = |state: &str| {
        node.write_file("/etc/nodelet/state.toml", state, 0o600).unwrap();
        node.run(&["nodelet", "apply"]).unwrap();
        assert_eq!(node.exec(&["nodelet", "plan"]).unwrap().code(), 0);
    };
    apply(&instances("first"));
    let starts = "sort /var/log/worker.starts";
    assert_eq!(node.run_sh(starts).unwrap(), "first one\nfirst two words");
    let show = |property: &str, unit: &str| node.run(&["systemctl", "show", "-P", property, unit]).unwrap();
    assert_eq!(show("Environment", r"worker@two\x20words.service"), "A=b");
    assert_eq!(show("Environment", "worker@one.service"), "");
    for (unit, enabled) in
        [("worker@one", "enabled"), (r"worker@two\x20words", "disabled"), ("worker@later", "enabled")]
    {
        assert_eq!(node.exec(&["systemctl", "is-enabled", unit]).unwrap().stdout, enabled, "{unit}");
    }
    assert_eq!(node.unit_state("worker@later.service").unwrap(), "inactive");

    // One instance leaves, the others stay as they are.
    let later = "[[units]]\nname = \"worker@later.service\"\nenabled = true\n";
    let fewer = instances("first").replace(later, "");
    apply(&fewer);
    assert_eq!(node.exec(&["systemctl", "is-enabled", "worker@later"]).unwrap().stdout, "disabled");
    assert_eq!(node.run_sh(starts).unwrap(), "first one\nfirst two words");
}

#[test]
fn instances_leave_with_their_template() {
    let node = nodelet::node(NodeOptions::new("template-prune", Kind::Base)).unwrap();
    nodelet::install(&node, None).unwrap();
    node.run_sh("systemctl stop nodelet").unwrap();
    for state in [instances("first").as_str(), "# nothing\n"] {
        node.write_file("/etc/nodelet/state.toml", state, 0o600).unwrap();
        node.run(&["nodelet", "apply"]).unwrap();
    }
    assert_eq!(node.run_sh("find /etc/systemd/system -name 'worker@*' -not -type d").unwrap(), "");
    assert_eq!(node.run_sh("systemctl list-units --no-legend --state=active 'worker@*'").unwrap(), "");
}

#[test]
fn instances_restart_with_their_template() {
    let node = nodelet::node(NodeOptions::new("template-change", Kind::Base)).unwrap();
    nodelet::install(&node, None).unwrap();
    node.run_sh("systemctl stop nodelet").unwrap();
    for word in ["first", "second"] {
        node.write_file("/etc/nodelet/state.toml", instances(word), 0o600).unwrap();
        node.run(&["nodelet", "apply"]).unwrap();
    }
    let starts = node.run_sh("sort /var/log/worker.starts").unwrap();
    assert_eq!(starts, "first one\nfirst two words\nsecond one\nsecond two words");
}
