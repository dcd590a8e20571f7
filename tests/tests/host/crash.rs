//! nodelet killed, and the power cut, at every point of a change.

use crate::converge::Scene;
use testbed::image::Kind;

/// Kills `nodelet apply` before, right after and after the record of each step in turn, and lets the next one go on.
fn killed_at_every_step(name: &str, image: Kind) {
    let scene = Scene::new(name, image);
    let node = &scene.node;
    node.run_sh("systemctl stop nodelet").unwrap();
    let mut version = "1.0";
    scene.hand_over(&scene.state(version, ""));
    node.run(&["nodelet", "apply"]).unwrap();
    let mut killed = 0;
    for point in ["begun", "performed", "done"] {
        for step in 1.. {
            version = if version == "1.0" { "2.0" } else { "1.0" };
            scene.hand_over(&scene.state(version, ""));
            let starts = scene.starts().len();
            let fault = format!("NODELET_FAULT={point}:{step}");
            let done = node.exec(&["env", &fault, "nodelet", "apply"]).unwrap();
            if done.success() {
                // The plan has fewer steps than that: all of them were met.
                assert!(step > 4, "only {step} steps: {}", done.text());
                break;
            }
            assert!(done.text().contains("as NODELET_FAULT asks"), "{point}:{step}: {}", done.text());
            killed += 1;
            let resumed = node.exec(&["nodelet", "apply"]).unwrap();
            assert!(resumed.success(), "{point}:{step}: {}", resumed.text());
            assert_eq!(scene.installed("clock"), version, "{point}:{step}");
            let file = node.read_file("/etc/clock/wörld.conf").unwrap();
            assert!(file.starts_with(&format!("version = {version}")), "{point}:{step}: {file}");
            assert_eq!(node.unit_state("clock.service").unwrap(), "active", "{point}:{step}");
            // The package's own restart and ours, and never one more; the last is with the new version and file.
            let new = scene.starts()[starts..].to_vec();
            let expected = if image == Kind::Rpm { 1..=2 } else { 2..=2 };
            assert!(expected.contains(&new.len()), "{point}:{step}: started {new:?}");
            assert_eq!(new.last().map(String::as_str), Some(version), "{point}:{step}");
            assert_eq!(node.exec(&["nodelet", "plan"]).unwrap().code(), 0, "{point}:{step}");
            node.run_sh("test -z \"$(find /etc -name '.nodelet-*')\"").unwrap();
        }
    }
    println!("killed {killed} times");
    node.run_sh("! command -v dpkg || test -z \"$(dpkg --audit)\"").unwrap();
    let history = node.run(&["nodelet", "history", "-o", "json"]).unwrap();
    let history: serde_json::Value = serde_json::from_str(&history).unwrap();
    for transaction in history.as_array().unwrap() {
        assert_eq!(transaction["end"], "done", "{transaction}");
    }
}

#[test]
fn killed_at_every_step_with_apt() {
    killed_at_every_step("apt-killed", Kind::Base);
}

#[test]
fn killed_at_every_step_with_dnf() {
    killed_at_every_step("dnf-killed", Kind::Rpm);
}
