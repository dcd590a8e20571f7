//! nodelet upgrades itself.

use std::time::Duration;

use testbed::image::Kind;
use testbed::repository::Repository;
use testbed::{Node, NodeOptions, nodelet, repackage, slot};

const SOON: Duration = Duration::from_secs(120);

/// A version that can't come up, made of the real package.
const BROKEN: &str = "9.0.0";

/// A node with the older nodelet, whose repository has the newer one, and a broken one that is newer still.
fn node(name: &str) -> (Node, Repository) {
    let slot = slot().unwrap();
    let packages = slot.dir().join(format!("packages-{name}"));
    let version = nodelet::version().unwrap();
    let sources = packaging::product::Sources::new(testbed::paths::checkout());
    let program = testbed::paths::program("nodelet").unwrap();
    let mut files = Vec::new();
    for version in [nodelet::OLDER, version.as_str()] {
        files.extend(sources.build(&program, version, &[packaging::product::Format::Deb], &packages).unwrap());
    }
    let newest = files.last().unwrap().clone();
    let broken = repackage::as_version(&newest, BROKEN, &packages, |tree| {
        std::fs::write(tree.join("usr/bin/nodelet"), "#!/bin/sh\necho 'this nodelet is broken' >&2\nexit 1\n")?;
        Ok(())
    });
    files.push(broken.unwrap());
    let mut repository = Repository::new("own", slot.dir().join(format!("repository-{name}"))).unwrap();
    repository.publish_files(&files).unwrap();
    let options = NodeOptions::new(name, Kind::Base).bind(repository.dir(), repository.bound_at());
    let node = Node::boot(&slot, options).unwrap();
    repository.add_to_apt(&node, &format!("file://{}", repository.bound_at())).unwrap();
    node.run(&["apt-get", "update", "-qq"]).unwrap();
    // A new daemon has a minute in the world; here it has ten seconds.
    let environment = "[Service]\nEnvironment=NODELET_RESCUE_SECONDS=10\n";
    node.write_file("/etc/systemd/system/nodelet.service.d/quick.conf", environment, 0o644).unwrap();
    node.run_sh(&format!("apt-get install -y nodelet={} </dev/null", nodelet::OLDER)).unwrap();
    node.write_file("/etc/nodelet/keys/own.asc", repository.public_key().unwrap(), 0o644).unwrap();
    (node, repository)
}

fn state(repository: &Repository, version: &str) -> String {
    let base = format!("file://{}", repository.bound_at());
    format!(
        "[[packages]]\nname = \"nodelet\"\nversion = \"{version}\"\nallowDowngrade = true\n\
         [[files]]\npath = \"/etc/marker\"\ncontent = \"{version}\"\n\
         [[repositories]]\nname = \"own\"\n[repositories.apt]\nuris = [\"{base}/apt\"]\nsuites = [\"stable\"]\n\
         components = [\"main\"]\nkey = {{ file = \"/etc/nodelet/keys/own.asc\" }}\n"
    )
}

fn reached(node: &Node, version: &str) {
    let script = format!(
        "test \"$(dpkg-query -W -f '${{Version}}' nodelet)\" = {version} && test \"$(cat /etc/marker)\" = {version} && \
         systemctl -q is-active nodelet && ! systemctl -q is-active nodelet-rescue && nodelet plan >/dev/null"
    );
    let waited = node.wait_for(&format!("nodelet {version}"), SOON, &script);
    waited.unwrap_or_else(|error| panic!("{error:#}\n{}", node.journal("nodelet").unwrap()));
}

#[test]
fn nodelet_upgrades_itself_and_a_broken_one_is_put_back() {
    let (node, repository) = node("itself");
    let version = nodelet::version().unwrap();
    let hand_over = |version: &str| {
        node.write_file("/etc/nodelet/state.toml", state(&repository, version), 0o600).unwrap();
    };
    hand_over(nodelet::OLDER);
    reached(&node, nodelet::OLDER);
    hand_over(&version);
    reached(&node, &version);
    let history = node.run(&["nodelet", "history"]).unwrap();
    assert!(!history.contains("undone"), "{history}");

    // The broken one never comes up; the program as it was puts everything back.
    hand_over(BROKEN);
    node.wait_for("the broken one to be there", SOON, "grep -q 'is broken' /usr/bin/nodelet").unwrap();
    reached(&node, &version);
    node.wait_for("its word for it", SOON, "nodelet status -o json | grep -q Reverted").unwrap();
    let status = node.exec(&["nodelet", "status", "-o", "json"]).unwrap().stdout;
    assert!(status.contains("Reverted") && status.contains("did not come up within 10 s"), "{status}");
    assert_eq!(node.unit_state("nodelet.service").unwrap(), "active");
    node.run_sh("test -z \"$(dpkg --audit)\"").unwrap();
}
