//! A change that does the node harm is taken back by the node itself.

use crate::converge::Scene;
use testbed::image::Kind;

const NEVER: &str = "[health]\ntimeoutSeconds = 3\ncri = \"unix:///run/nowhere.sock\"\n";

fn reverts(name: &str, image: Kind) {
    let scene = Scene::new(name, image);
    let node = &scene.node;
    scene.hand_over(&scene.state("1.0", ""));
    let good = scene.wait_for_phase("Converged", None);

    // All steps succeed, and a check never passes.
    scene.hand_over(&scene.state("2.0", NEVER));
    assert_eq!(scene.wait_for_phase("Reverted", None), good);
    assert_eq!(scene.installed("clock"), "1.0");
    assert!(node.read_file("/etc/clock/wörld.conf").unwrap().starts_with("version = 1.0"));
    assert_eq!(scene.starts().last().map(String::as_str), Some("1.0"));
    let status = node.exec(&["nodelet", "status"]).unwrap();
    assert_eq!(status.code(), 1, "{}", status.text());
    for words in ["Reverted for", "did not pass its health checks", "/run/nowhere.sock", "HealthCheckFailed"] {
        assert!(status.stdout.contains(words), "no {words:?} in:\n{}", status.stdout);
    }
    let history = node.run(&["nodelet", "history"]).unwrap();
    assert!(history.contains("undone") && history.contains("health checks"), "{history}");

    // It is not tried again by itself, also not after a restart.
    let starts = scene.starts();
    node.run_sh("systemctl restart nodelet").unwrap();
    scene.wait_for_phase("Reverted", None);
    assert_eq!(scene.starts(), starts);

    // A correction is taken up.
    scene.hand_over(&scene.state("2.0", "[health]\ntimeoutSeconds = 10\nstableSeconds = 1\n"));
    scene.wait_for_phase("Converged", Some(&good));
    assert_eq!(scene.installed("clock"), "2.0");
}

#[test]
fn harm_is_reverted_with_apt() {
    reverts("apt-health", Kind::Base);
}

#[test]
fn harm_is_reverted_with_dnf() {
    reverts("dnf-health", Kind::Rpm);
}

/// The time that the checks have goes on while nodelet is away.
#[test]
fn a_killed_daemon_still_reverts() {
    let scene = Scene::new("health-killed", Kind::Base);
    let node = &scene.node;
    scene.hand_over(&scene.state("1.0", ""));
    let good = scene.wait_for_phase("Converged", None);
    scene.hand_over(&scene.state("2.0", &NEVER.replace("= 3", "= 20")));
    node.wait_for("the checks", std::time::Duration::from_secs(60), "nodelet status | grep -q 'health checks to pass'")
        .unwrap();
    node.run_sh("systemctl kill --signal=KILL nodelet").unwrap();
    assert_eq!(scene.wait_for_phase("Reverted", None), good);
    assert_eq!(scene.installed("clock"), "1.0");
}

/// Packages don't start what nodelet configures: one start, with everything in place.
fn starts_once(name: &str, image: Kind) {
    let scene = Scene::new(name, image);
    scene.hand_over(&scene.state("1.0", ""));
    scene.wait_for_phase("Converged", None);
    assert_eq!(scene.starts(), ["1.0"]);
    assert!(!scene.node.exists("/usr/sbin/policy-rc.d").unwrap());
    scene.node.run_sh("! ls /run/systemd/system/clock.service.d 2>/dev/null | grep withheld").unwrap();
    if image == Kind::Rpm {
        return;
    }
    // Also where no file of its changes: the package asks, nodelet restarts.
    let state = scene.state("2.0", "").replace("content = \"version = 2.0", "content = \"version = 1.0");
    scene.hand_over(&state);
    scene
        .node
        .wait_for(
            "the upgrade",
            std::time::Duration::from_secs(60),
            "grep -q 2.0 /var/log/clock.starts && nodelet status",
        )
        .unwrap();
    assert_eq!(scene.starts(), ["1.0", "2.0"]);
}

#[test]
fn a_service_starts_once_with_apt() {
    starts_once("apt-once", Kind::Base);
}

#[test]
fn a_service_starts_once_with_dnf() {
    starts_once("dnf-once", Kind::Rpm);
}

/// What is staged is applied without another look at the repository.
fn stages(name: &str, image: Kind) {
    let scene = Scene::new(name, image);
    let node = &scene.node;
    scene.hand_over(&scene.state("1.0", ""));
    scene.wait_for_phase("Converged", None);
    node.run_sh("systemctl stop nodelet").unwrap();
    scene.hand_over(&scene.state("2.*", ""));
    let staged = node.run(&["nodelet", "stage"]).unwrap();
    assert!(staged.contains("clock 2.0") && staged.contains("is ready"), "{staged}");
    assert_eq!(scene.installed("clock"), "1.0");
    let applied = node.run(&["nodelet", "apply"]).unwrap();
    assert!(!applied.contains("resolve and download"), "{applied}");
    assert_eq!(scene.installed("clock"), "2.0");
}

#[test]
fn a_staged_change_only_has_to_be_applied_with_apt() {
    stages("apt-stage", Kind::Base);
}

#[test]
fn a_staged_change_only_has_to_be_applied_with_dnf() {
    stages("dnf-stage", Kind::Rpm);
}
