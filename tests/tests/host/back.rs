//! Ways back: undoing beside somebody else, pruning, and a revision that was rolled back from.

use std::time::Duration;

use testbed::image::Kind;
use testbed::repository::Repository;
use testbed::{NodeOptions, dummy, slot};

use crate::converge::Scene;

const SOON: Duration = Duration::from_secs(60);

/// What an administrator installs while nodelet is at work is not nodelet's to undo.
fn beside_somebody_else(name: &str, image: Kind) {
    let scene = Scene::new(name, image);
    let node = &scene.node;
    scene.hand_over(&scene.state("1.0", ""));
    scene.wait_for_phase("Converged", None);
    // Packages are done by the time that it starts, and it fails when it is told to.
    let unit = "[[units]]\nname = \"bad.service\"\nrunning = true\ncontent = \"\"\"\n[Service]\nType=oneshot\n\
                ExecStart=/bin/sh -c 'touch /run/reached; until test -e /run/go; do sleep 0.05; done; exit 1'\n\"\"\"\n";
    scene.hand_over(&scene.state("2.0", unit));
    node.wait_for("the last step", SOON, "test -e /run/reached").unwrap();
    assert_eq!(scene.installed("clock"), "2.0");
    let install = if image == Kind::Rpm { "dnf install -y extra" } else { "apt-get install -y extra" };
    node.run_sh(install).unwrap();
    node.run_sh("touch /run/go").unwrap();
    scene.wait_for_phase("Failed", None);
    assert_eq!((scene.installed("clock").as_str(), scene.installed("extra").as_str()), ("1.0", "1.0"));
}

#[test]
fn an_undo_beside_somebody_else_with_apt() {
    beside_somebody_else("apt-beside", Kind::Base);
}

#[test]
fn an_undo_beside_somebody_else_with_dnf() {
    beside_somebody_else("dnf-beside", Kind::Rpm);
}

/// `packages.prune`: configuration files stay, or go; or the packages stay too.
#[test]
fn what_pruning_leaves() {
    let mut repository = Repository::new("dummies", slot().unwrap().dir().join("repository-prune")).unwrap();
    repository.publish(&[dummy::with_config("tuned", "1.0")]).unwrap();
    let scene = Scene::with(NodeOptions::new("prune", Kind::Base), repository);
    let node = &scene.node;
    let status = "dpkg-query -W -f '${db:Status-Status}' tuned 2>/dev/null || :";
    for (policy, left, configuration) in
        [("remove", "config-files", true), ("purge", "not-installed", false), ("keep", "installed", true)]
    {
        let setting = format!("[packages]\nprune = \"{policy}\"\n");
        node.write_file("/etc/nodelet/nodelet.toml.d/prune.toml", setting, 0o600).unwrap();
        node.run_sh("systemctl reload nodelet").unwrap();
        scene.hand_over(&format!("{}[[packages]]\nname = \"tuned\"\n", scene.source()));
        node.wait_for("the package", SOON, &format!("nodelet status && test \"$({status})\" = installed")).unwrap();
        node.write_file("/etc/tuned.conf", "mine\n", 0o644).unwrap();
        scene.hand_over("# nothing\n");
        node.wait_for("its end", SOON, "nodelet status && test ! -e /etc/apt/sources.list.d/dummies.sources").unwrap();
        let is = node.run_sh(status).unwrap();
        assert!(is == left || (left == "not-installed" && is.is_empty()), "{policy}: {is}");
        assert_eq!(node.exists("/etc/tuned.conf").unwrap(), configuration, "{policy}");
    }
}

/// A rollback is from one revision, until another one comes: then that revision may come back.
#[test]
fn a_revision_that_was_rolled_back_from_can_return() {
    let scene = Scene::new("return", Kind::Base);
    let node = &scene.node;
    let state = |word: &str| format!("[[files]]\npath = \"/etc/word\"\ncontent = \"{word}\"\n");
    let mut revisions: Vec<String> = Vec::new();
    let word = || node.read_file("/etc/word").unwrap();
    for name in ["one", "two"] {
        scene.hand_over(&state(name));
        revisions.push(scene.wait_for_phase("Converged", revisions.last().map(String::as_str)));
    }
    node.run(&["nodelet", "rollback"]).unwrap();
    assert_eq!(word(), "one");
    // The same text again is the same revision, and stays rolled back from; also with another daemon.
    scene.hand_over(&(state("two") + "# with a comment\n"));
    node.run_sh("systemctl restart nodelet").unwrap();
    assert_eq!(scene.wait_for_phase("Converged", Some(&revisions[1])), revisions[0]);
    assert_eq!(word(), "one");

    scene.hand_over(&state("three"));
    let third = scene.wait_for_phase("Converged", Some(&revisions[0]));
    assert_eq!(word(), "three");
    scene.hand_over(&state("two"));
    assert_eq!(scene.wait_for_phase("Converged", Some(&third)), revisions[1]);
    assert_eq!(word(), "two");
    node.run_sh("systemctl restart nodelet").unwrap();
    node.wait_for("the daemon", SOON, "nodelet status && nodelet plan").unwrap();
    assert_eq!(word(), "two");
}
