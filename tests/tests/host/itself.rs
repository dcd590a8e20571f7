//! nodelet upgrades itself, with apt and with dnf.

use std::path::{Path, PathBuf};
use std::time::Duration;

use packaging::package::Kind as Entry;
use packaging::product::{Format, Sources};
use testbed::image::Kind;
use testbed::repository::Repository;
use testbed::{Node, NodeOptions, nodelet, slot};

const SOON: Duration = Duration::from_secs(120);

/// A version that can't come up, made of the real package.
const BROKEN: &str = "9.0.0";

/// The same package around a program that fails.
fn broken(sources: &Sources, program: &Path, format: Format, out: &Path) -> PathBuf {
    let mut package = sources.package(program, BROKEN, format).unwrap();
    let entry = package.entries.iter_mut().find(|entry| entry.path == "/usr/bin/nodelet").unwrap();
    entry.kind = Entry::File(b"#!/bin/sh\necho 'this nodelet is broken' >&2\nexit 1\n".to_vec());
    match format {
        Format::Deb => packaging::deb::write(&package, out).unwrap(),
        Format::Rpm => packaging::rpm::write(&package, out, None).unwrap(),
    }
}

/// A node with the older nodelet, whose repository has the newer one, and a broken one that is newer still.
fn node(name: &str, image: Kind) -> (Node, Repository) {
    let slot = slot().unwrap();
    let packages = slot.dir().join(format!("packages-{name}"));
    let version = nodelet::version().unwrap();
    let sources = Sources::new(testbed::paths::checkout());
    let program = nodelet::stripped(&packages).unwrap();
    let format = if image == Kind::Rpm { Format::Rpm } else { Format::Deb };
    let mut files = Vec::new();
    for version in [nodelet::OLDER, version.as_str()] {
        files.extend(sources.build(&program, version, &[format], &packages).unwrap());
    }
    files.push(broken(&sources, &program, format, &packages));
    let mut repository = Repository::new("own", slot.dir().join(format!("repository-{name}"))).unwrap();
    repository.publish_files(&files).unwrap();
    repository.publish(&[nodelet::libraries(&files).unwrap()]).unwrap();
    let options = NodeOptions::new(name, image).bind(repository.dir(), repository.bound_at());
    let node = Node::boot(&slot, options).unwrap();
    let base = format!("file://{}", repository.bound_at());
    if image == Kind::Rpm {
        repository.add_to_dnf(&node, &base).unwrap();
        // These nodes are Debian inside, so both are there.
        node.write_file("/etc/nodelet/nodelet.toml.d/dnf.toml", "[packages]\nmanager = \"dnf\"\n", 0o600).unwrap();
    } else {
        repository.add_to_apt(&node, &base).unwrap();
        node.run(&["apt-get", "update", "-qq"]).unwrap();
    }
    // A new daemon has a minute in the world; here it has ten seconds.
    let environment = "[Service]\nEnvironment=NODELET_RESCUE_SECONDS=10\n";
    node.write_file("/etc/systemd/system/nodelet.service.d/quick.conf", environment, 0o644).unwrap();
    nodelet::install(&node, Some(nodelet::OLDER)).unwrap();
    node.write_file("/etc/nodelet/keys/own.asc", repository.public_key().unwrap(), 0o644).unwrap();
    (node, repository)
}

fn state(repository: &Repository, version: &str) -> String {
    let base = format!("file://{}", repository.bound_at());
    let key = "key = { file = \"/etc/nodelet/keys/own.asc\" }";
    format!(
        "[[packages]]\nname = \"nodelet\"\nversion = \"{version}\"\nallowDowngrade = true\n\
         [[files]]\npath = \"/etc/marker\"\ncontent = \"{version}\"\n\
         [[repositories]]\nname = \"own\"\n[repositories.apt]\nuris = [\"{base}/apt\"]\nsuites = [\"stable\"]\n\
         components = [\"main\"]\n{key}\n[repositories.dnf]\nbaseurl = [\"{base}/dnf\"]\n{key}\n"
    )
}

fn upgrades_itself(name: &str, image: Kind) {
    let (node, repository) = node(name, image);
    let version = nodelet::version().unwrap();
    let (installed, whole) = match image {
        Kind::Rpm => ("rpm -q --qf '%{VERSION}' nodelet", "test \"$(rpm -q nodelet | wc -l)\" = 1"),
        _ => ("dpkg-query -W -f '${Version}' nodelet", "test -z \"$(dpkg --audit)\""),
    };
    let reached = |version: &str| {
        let script = format!(
            "test \"$({installed})\" = {version} && test \"$(cat /etc/marker)\" = {version} && \
             systemctl -q is-active nodelet && ! systemctl -q is-active nodelet-rescue && nodelet plan >/dev/null"
        );
        let waited = node.wait_for(&format!("nodelet {version}"), SOON, &script);
        waited.unwrap_or_else(|error| panic!("{error:#}\n{}", node.journal("nodelet").unwrap()));
    };
    let hand_over = |version: &str| {
        node.write_file("/etc/nodelet/state.toml", state(&repository, version), 0o600).unwrap();
    };
    hand_over(nodelet::OLDER);
    reached(nodelet::OLDER);
    hand_over(&version);
    reached(&version);
    let history = node.run(&["nodelet", "history"]).unwrap();
    assert!(!history.contains("undone"), "{history}");

    // The broken one never comes up; the program as it was puts everything back.
    hand_over(BROKEN);
    node.wait_for("the broken one to be there", SOON, "grep -q 'is broken' /usr/bin/nodelet").unwrap();
    reached(&version);
    node.wait_for("its word for it", SOON, "nodelet status -o json | grep -q Reverted").unwrap();
    let status = node.exec(&["nodelet", "status", "-o", "json"]).unwrap().stdout;
    assert!(status.contains("Reverted") && status.contains("did not come up within 10 s"), "{status}");
    assert_eq!(node.unit_state("nodelet.service").unwrap(), "active");
    node.run_sh(whole).unwrap();
}

#[test]
fn nodelet_upgrades_itself_and_a_broken_one_is_put_back_with_apt() {
    upgrades_itself("itself", Kind::Base);
}

#[test]
fn nodelet_upgrades_itself_and_a_broken_one_is_put_back_with_dnf() {
    upgrades_itself("dnf-itself", Kind::Rpm);
}
