//! Dummy packages and signed repositories, with the real package managers.

use std::fs;

use testbed::http::FileServer;
use testbed::image::Kind;
use testbed::repository::Repository;
use testbed::{Node, NodeOptions, dummy, slot};

const INSTALL: &str = "DEBIAN_FRONTEND=noninteractive apt-get install -y";

/// A repository and a node that sees it.
fn bound(name: &str, image: Kind) -> (Repository, Node) {
    let slot = slot().unwrap();
    let repository = Repository::new("dummies", slot.dir().join(format!("repository-{name}"))).unwrap();
    let options = NodeOptions::new(name, image).bind(repository.dir(), repository.bound_at());
    let node = Node::boot(&slot, options).unwrap();
    let base = format!("file://{}", repository.bound_at());
    match image {
        Kind::Rpm => repository.add_to_dnf(&node, &base).unwrap(),
        _ => repository.add_to_apt(&node, &base).unwrap(),
    }
    (repository, node)
}

#[test]
fn apt_installs_and_upgrades_a_service() {
    let (mut repository, node) = bound("apt-service", Kind::Base);
    repository.publish(&[dummy::service("clock", "1.0"), dummy::service("clock", "2.0")]).unwrap();
    node.run_sh(&format!("apt-get update; {INSTALL} clock=1.0")).unwrap();
    assert_eq!(node.unit_state("clock.service").unwrap(), "active");
    assert_eq!(node.run(&["systemctl", "is-enabled", "clock.service"]).unwrap(), "enabled");

    node.run_sh(&format!("{INSTALL} clock")).unwrap();
    assert_eq!(node.read_file("/usr/share/clock/version").unwrap(), "2.0");
    node.wait_for(
        "a start of each version",
        std::time::Duration::from_secs(10),
        "test \"$(cat /var/log/clock.starts)\" = \"$(printf '1.0\\n2.0')\"",
    )
    .unwrap();

    node.run_sh("apt-get purge -y clock").unwrap();
    assert!(!node.exists("/usr/share/clock").unwrap());
    assert_eq!(node.unit_state("clock.service").unwrap(), "inactive");
}

#[test]
fn apt_refuses_a_tampered_repository() {
    let (mut repository, node) = bound("apt-tampered", Kind::Base);
    repository.publish(&[dummy::plain("thing", "1.0")]).unwrap();
    node.run(&["apt-get", "update"]).unwrap();

    // The index says one thing, the package another.
    let deb = repository.dir().join("apt/pool/main/thing_1.0_all.deb");
    let original = fs::read(&deb).unwrap();
    let mut changed = original.clone();
    *changed.last_mut().unwrap() ^= 1;
    fs::write(&deb, changed).unwrap();
    let refused = node.sh(&format!("{INSTALL} thing")).unwrap();
    assert!(!refused.success() && refused.text().contains("Hash Sum mismatch"), "{}", refused.text());
    fs::write(&deb, original).unwrap();

    // The signature does not fit the list of indexes.
    let release = repository.dir().join("apt/dists/stable/InRelease");
    let text = fs::read_to_string(&release).unwrap();
    fs::write(&release, text.replace("Origin: dummies", "Origin: mallory")).unwrap();
    let refused = node.exec(&["apt-get", "update", "-o", "APT::Update::Error-Mode=any"]).unwrap();
    assert!(!refused.success() && refused.text().contains("BADSIG"), "{}", refused.text());
}

#[test]
fn apt_refuses_a_repository_signed_by_another_key() {
    let (mut repository, node) = bound("apt-key", Kind::Base);
    repository.publish(&[dummy::plain("thing", "1.0")]).unwrap();
    let other = Repository::new("other", node.slot().dir().join("repository-other")).unwrap();
    node.write_file("/etc/apt/keyrings/dummies.asc", other.public_key().unwrap(), 0o644).unwrap();
    let refused = node.exec(&["apt-get", "update", "-o", "APT::Update::Error-Mode=any"]).unwrap();
    assert!(!refused.success() && refused.text().contains("NO_PUBKEY"), "{}", refused.text());
}

#[test]
fn a_failing_maintainer_script_fails() {
    let (mut repository, node) = bound("apt-failing", Kind::Base);
    repository.publish(&[dummy::failing("broken", "1.0")]).unwrap();
    let failed = node.sh(&format!("apt-get update -qq; {INSTALL} broken")).unwrap();
    assert_eq!(failed.code(), 100, "{}", failed.text());
    assert!(failed.text().contains("this postinst fails on purpose"), "{}", failed.text());
    assert!(node.run(&["dpkg", "--audit"]).unwrap().contains("broken"));
}

#[test]
fn a_prompt_does_not_hang_without_a_terminal() {
    let (mut repository, node) = bound("apt-prompt", Kind::Base);
    repository.publish(&[dummy::prompting("asker", "1.0")]).unwrap();
    node.run_sh(&format!("apt-get update -qq; {INSTALL} asker")).unwrap();
    assert_eq!(node.read_file("/etc/asker.answer").unwrap(), "unanswered");
}

#[test]
fn an_edited_config_file_survives_an_upgrade() {
    let (mut repository, node) = bound("apt-config", Kind::Base);
    repository.publish(&[dummy::with_config("tuned", "1.0"), dummy::with_config("tuned", "2.0")]).unwrap();
    node.run_sh(&format!("apt-get update -qq; {INSTALL} tuned=1.0")).unwrap();
    assert_eq!(node.read_file("/etc/tuned.conf").unwrap(), "default = \"1.0\"");
    node.write_file("/etc/tuned.conf", "mine\n", 0o644).unwrap();
    node.run_sh(&format!("{INSTALL} -o Dpkg::Options::=--force-confold tuned")).unwrap();
    assert_eq!(node.read_file("/etc/tuned.conf").unwrap(), "mine");
    assert_eq!(node.read_file("/usr/share/tuned/version").unwrap(), "2.0");
}

#[test]
fn a_repository_over_http_can_go_away() {
    let slot = slot().unwrap();
    let mut repository = Repository::new("remote", slot.dir().join("repository-http")).unwrap();
    repository.publish(&[dummy::plain("far+away", "1.0~rc1")]).unwrap();
    let node = Node::boot(&slot, NodeOptions::new("apt-http", Kind::Base)).unwrap();
    let server = FileServer::start(slot.number().gateway(), repository.dir()).unwrap();
    repository.add_to_apt(&node, &server.url()).unwrap();
    node.run_sh(&format!("apt-get update; {INSTALL} far+away")).unwrap();
    assert!(server.requests().iter().any(|path| path.contains("far")), "{:?}", server.requests());

    drop(server);
    let gone = node.exec(&["apt-get", "update", "-o", "APT::Update::Error-Mode=any"]).unwrap();
    assert!(!gone.success() && gone.text().contains("Connection refused"), "{}", gone.text());
}

/// Nodes have no way out: what they need of Debian's archive is downloaded once by the host and served to them.
#[test]
fn debian_packages_reach_a_node_without_a_way_out() {
    let (mut repository, node) = bound("apt-debian", Kind::Base);
    let debs = testbed::debian::download(&Kind::Base.image().unwrap(), &["cron"]).unwrap();
    assert!(debs.iter().any(|path| path.to_string_lossy().contains("/cron_")), "{debs:?}");
    repository.publish_files(&debs).unwrap();
    node.run_sh(&format!("apt-get update -qq; {INSTALL} --no-install-recommends cron")).unwrap();
    assert_eq!(node.unit_state("cron.service").unwrap(), "active");
}

#[test]
fn dnf_installs_upgrades_and_removes_a_signed_rpm() {
    let (mut repository, node) = bound("dnf-service", Kind::Rpm);
    repository.publish(&[dummy::service("clock", "1.0"), dummy::service("clock", "2.0")]).unwrap();
    node.run(&["dnf", "install", "-y", "clock-1.0"]).unwrap();
    assert_eq!(node.unit_state("clock.service").unwrap(), "active");
    node.run(&["dnf", "upgrade", "-y", "clock"]).unwrap();
    assert_eq!(node.run(&["rpm", "-q", "clock"]).unwrap(), "clock-2.0-1.noarch");
    node.run(&["dnf", "remove", "-y", "clock"]).unwrap();
    assert!(!node.exists("/usr/share/clock/version").unwrap());
}

#[test]
fn dnf_refuses_what_another_key_signed() {
    let (mut repository, node) = bound("dnf-key", Kind::Rpm);
    repository.publish(&[dummy::plain("thing", "1.0")]).unwrap();
    let other = Repository::new("other", node.slot().dir().join("repository-dnf-other")).unwrap();
    node.write_file("/etc/pki/rpm-gpg/dummies.asc", other.public_key().unwrap(), 0o644).unwrap();
    let refused = node.exec(&["dnf", "install", "-y", "thing"]).unwrap();
    assert!(!refused.success(), "{}", refused.text());
    // The packages themselves are checked too, even where the index is not.
    let refused = node.exec(&["dnf", "install", "-y", "--setopt=dummies.repo_gpgcheck=0", "thing"]).unwrap();
    assert!(!refused.success() && refused.text().contains("GPG"), "{}", refused.text());
    assert!(!node.exists("/usr/share/thing/version").unwrap());
}

#[test]
fn a_failing_scriptlet_is_reported() {
    let (mut repository, node) = bound("dnf-failing", Kind::Rpm);
    repository.publish(&[dummy::failing("broken", "1.0")]).unwrap();
    let done = node.exec(&["dnf", "install", "-y", "broken"]).unwrap();
    assert!(done.text().contains("this postinst fails on purpose"), "{}", done.text());
}
