//! nodelet killed, and the power cut, at every point of a change.

use std::time::{Duration, Instant};

use crate::converge::Scene;
use testbed::Node;
use testbed::image::Kind;

/// Kills `nodelet apply` before, right after and after the record of each step in turn, and lets the next one go on.
fn killed_at_every_step(name: &str, image: Kind) {
    let scene = Scene::new(name, image);
    let node = &scene.node;
    node.run_sh("systemctl stop nodelet").unwrap();
    let mut version = "1.0";
    // A unit file that changes too, so that systemd has to read its units again.
    let state = |version: &str| {
        let unit = "[[units]]\nname = \"tick.service\"\nrunning = true\ncontent = \"\"\"\n[Service]\nExecStart=/bin/sleep infinity\n";
        scene.state(version, &format!("{unit}Environment=VERSION={version}\n\"\"\"\n"))
    };
    scene.hand_over(&state(version));
    node.run(&["nodelet", "apply"]).unwrap();
    let mut killed = 0;
    for point in ["begun", "performed", "done"] {
        for step in 1.. {
            version = if version == "1.0" { "2.0" } else { "1.0" };
            scene.hand_over(&state(version));
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
            let tick = node.run(&["systemctl", "show", "-P", "Environment", "tick.service"]).unwrap();
            assert_eq!(tick, format!("VERSION={version}"), "{point}:{step}");
            // One restart, with everything in place; an RPM's own comes before it.
            let new = scene.starts()[starts..].to_vec();
            let expected = if image == Kind::Rpm { 1..=2 } else { 1..=1 };
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

/// nodelet dies while apt works: apt goes on by itself, and what packages asked for meanwhile is given once, not again
/// with every later check.
#[test]
fn killed_while_apt_works() {
    let mut scene = Scene::new("apt-outlives", Kind::Base);
    let slow = testbed::dummy::plain("zslow", "1.0").post_install("touch /run/zslow; sleep 4");
    scene.repository.publish(&[slow]).unwrap();
    let node = &scene.node;
    scene.hand_over(&scene.state("1.0", ""));
    let first = scene.wait_for_phase("Converged", None);
    let starts = scene.starts().len();
    scene.hand_over(&scene.state("2.0", "[[packages]]\nname = \"zslow\"\n"));
    node.wait_for("apt to be at work", Duration::from_secs(60), "test -e /run/zslow").unwrap();
    node.run_sh("systemctl kill --kill-whom=main --signal=KILL nodelet").unwrap();
    scene.wait_for_phase("Converged", Some(&first));
    for _ in 0..2 {
        node.run(&["nodelet", "apply"]).unwrap();
    }
    assert_eq!((scene.installed("clock").as_str(), scene.installed("zslow").as_str()), ("2.0", "1.0"));
    assert_eq!(scene.starts()[starts..], ["2.0"]);
    node.run_sh("test ! -e /usr/sbin/policy-rc.d && test ! -e /var/lib/nodelet/withheld").unwrap();
}

/// Cuts the power at random moments of an upgrade of ten packages, back and forth.
fn power_cuts(name: &str, image: Kind, rounds: usize) {
    let names: Vec<String> = (0..10).map(|number| format!("many{number}")).collect();
    let mut scene = Scene::new(name, image);
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
    let units = || names.iter().map(String::as_str).chain(["clock"]);
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
    for round in 0..rounds {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let moment = (random >> 33) % whole;
        let version = if round % 2 == 0 { "1.0" } else { "2.0" };
        let starts: Vec<usize> = units().map(|name| started(node, name).len()).collect();
        scene.hand_over(&state(version));
        // The moment itself is what is tested: there is no condition to wait for.
        std::thread::sleep(Duration::from_millis(moment));
        node.power_cut().unwrap();
        node.power_on().unwrap();
        let reached = scene.wait_for_phase("Converged", Some(&revision));
        println!("round {round}: cut after {moment} ms, converged to {reached}");
        revision = reached;
        for (name, before) in units().zip(starts) {
            assert_eq!(scene.installed(name), version, "{name} after {moment} ms");
            assert_eq!(node.unit_state(&format!("{name}.service")).unwrap(), "active", "{name} after {moment} ms");
            // Our restart, the boot's, and one that the cut may have cost; an RPM's own comes before ours.
            let new = &started(node, name)[before..];
            let most = if image == Kind::Rpm { 4 } else { 3 };
            assert!(new.len() <= most, "{name} started {new:?} after {moment} ms");
            assert_eq!(new.last().map(String::as_str), Some(version), "{name} after {moment} ms");
        }
        assert_eq!(node.run_sh(audit(image)).unwrap(), "", "after {moment} ms");
        assert_eq!(node.exec(&["nodelet", "plan"]).unwrap().code(), 0, "after {moment} ms");
    }
    let history = node.run(&["nodelet", "history"]).unwrap();
    assert!(!history.contains("STUCK") && !history.contains("undone"), "{history}");
}

/// The starts that a dummy noted.
fn started(node: &Node, name: &str) -> Vec<String> {
    node.read_file(&format!("/var/log/{name}.starts")).unwrap().lines().map(str::to_owned).collect()
}

/// Prints what is wrong with the database of packages: unfinished ones, two versions at once, missing files.
fn audit(image: Kind) -> &'static str {
    match image {
        Kind::Rpm => {
            "rpmdb --verifydb >/dev/null; rpm -qa --qf '%{NAME}\\n' | grep -v ^gpg-pubkey | sort | uniq -d
             rpm -V $(rpm -qa --qf '%{NAME}\\n' 'many*' clock) || :"
        }
        _ => "dpkg --audit",
    }
}

#[test]
fn the_power_is_cut_at_random_moments_with_apt() {
    power_cuts("apt-power-cuts", Kind::Base, 10);
}

#[test]
fn the_power_is_cut_at_random_moments_with_dnf() {
    power_cuts("dnf-power-cuts", Kind::Rpm, 10);
}
