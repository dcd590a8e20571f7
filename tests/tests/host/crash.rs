//! nodelet killed, and the power cut, at every point of a change.

use std::time::{Duration, Instant};

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

/// Cuts the power at random moments of an upgrade of ten packages, back and forth.
#[test]
fn the_power_is_cut_at_random_moments() {
    let names: Vec<String> = (0..10).map(|number| format!("many{number}")).collect();
    let mut scene = Scene::new("power-cuts", Kind::Base);
    for version in ["1.0", "2.0"] {
        let packages: Vec<_> = names.iter().map(|name| testbed::dummy::service(name, version)).collect();
        scene.repository.publish(&packages).unwrap();
    }
    let state = |version: &str| {
        let more = names.iter().fold(String::new(), |all, name| {
            all + &format!(
                "[[packages]]\nname = \"{name}\"\nversion = \"{version}\"\nallowDowngrade = true\n\
                 [[units]]\nname = \"{name}.service\"\nrunning = true\n\
                 [[files]]\npath = \"/etc/{name}.conf\"\ncontent = \"{version}\"\nrestart = [\"{name}.service\"]\n"
            )
        });
        scene.state(version, &more)
    };
    let node = &scene.node;
    scene.hand_over(&state("1.0"));
    let mut revision = scene.wait_for_phase("Converged", None);
    let start = Instant::now();
    scene.hand_over(&state("2.0"));
    revision = scene.wait_for_phase("Converged", Some(&revision));
    let whole = u64::try_from(start.elapsed().as_millis()).unwrap();

    // Not a secret, only different from run to run; it is printed, so that a failure can be repeated.
    let seed = std::env::var("NODELET_SEED").ok().and_then(|seed| seed.parse().ok());
    let mut random = seed.unwrap_or_else(|| u64::from(std::process::id()) * 2_654_435_761);
    println!("NODELET_SEED={random}; an upgrade takes {whole} ms");
    for round in 0..10 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let moment = (random >> 33) % whole;
        let version = if round % 2 == 0 { "1.0" } else { "2.0" };
        scene.hand_over(&state(version));
        // The moment itself is what is tested: there is no condition to wait for.
        std::thread::sleep(Duration::from_millis(moment));
        node.power_cut().unwrap();
        node.power_on().unwrap();
        let reached = scene.wait_for_phase("Converged", Some(&revision));
        println!("round {round}: cut after {moment} ms, converged to {reached}");
        revision = reached;
        for name in names.iter().map(String::as_str).chain(["clock"]) {
            assert_eq!(scene.installed(name), version, "{name} after {moment} ms");
            assert_eq!(node.unit_state(&format!("{name}.service")).unwrap(), "active", "{name} after {moment} ms");
        }
        assert_eq!(node.run(&["dpkg", "--audit"]).unwrap(), "", "after {moment} ms");
        assert_eq!(node.exec(&["nodelet", "plan"]).unwrap().code(), 0, "after {moment} ms");
    }
    let history = node.run(&["nodelet", "history"]).unwrap();
    assert!(!history.contains("STUCK") && !history.contains("undone"), "{history}");
}
