//! Certificates that are good for half a minute: they are renewed while the node is followed, and after it was off.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use testbed::cluster::ClusterOptions;
use testbed::wait::{Seen, wait_until};

use crate::scene::{LATER, SOON, Scene};

const LIFE: Duration = Duration::from_secs(30);
/// As many are seen through, the first one included.
const CERTIFICATES: usize = 4;

#[test]
fn certificates_are_renewed_while_the_node_follows_and_after_it_was_off() {
    let scene = Scene::with(&ClusterOptions { signing: Some(LIFE), ..ClusterOptions::default() });
    scene.class("0");
    scene.set();
    let (on, off) = (scene.node("renews"), scene.node("sleeps"));
    scene.wait_until_applied(&["renews", "sleeps"]);
    let identity = |node: &str| scene.state(node)["status"]["identity"].clone();
    let asleep = identity("sleeps");
    off.power_cut().unwrap();

    let (mut keys, mut slowest, mut changes) = (BTreeSet::new(), Duration::ZERO, 0_u32);
    while keys.len() < CERTIFICATES {
        changes += 1;
        let start = Instant::now();
        scene.class(&changes.to_string());
        // Nothing may be lost: a change that comes while the certificate is renewed is as quick as any other.
        scene.wait_until_applied(&["renews"]);
        slowest = slowest.max(start.elapsed());
        assert_eq!(on.read_file("/etc/from-cluster").unwrap(), format!("{changes} renews"));
        keys.insert(identity("renews")["key"].as_str().unwrap().to_owned());
        assert!(changes < 1000, "{} certificates after {changes} changes", keys.len());
    }
    println!("{changes} changes through {CERTIFICATES} certificates; the slowest took {} ms", slowest.as_millis());
    assert!(slowest < Duration::from_secs(15), "a change waited for {slowest:?}");
    let journal = on.journal("nodelet.service").unwrap();
    for words in ["the cluster is not followed", "was not renewed"] {
        assert!(!journal.contains(words), "{words}:\n{journal}");
    }
    assert_eq!(journal.matches("this node has a certificate of its own").count(), CERTIFICATES, "{journal}");
    // Its first sign of life comes within half a minute of a session; sessions here are shorter.
    wait_until("a sign of life", SOON, || {
        let words = ["get", "lease", "renews", "--namespace=nodelet-system", "-o", "jsonpath={.spec.holderIdentity}"];
        Ok(match scene.cluster.kubectl(&words) {
            Ok(holder) if holder == "renews" => Seen::Done(()),
            other => Seen::not_yet(format!("{other:?}")),
        })
    })
    .unwrap();

    // Off for longer than its certificate was good.
    let until = asleep["notAfter"].as_str().unwrap().to_owned();
    wait_until("the certificate of the node that is off to be over", SOON, || {
        let now = testbed::command::run(std::process::Command::new("date").args(["-u", "+%Y-%m-%dT%H:%M:%SZ"]))?;
        Ok(if now > until { Seen::Done(()) } else { Seen::not_yet(now) })
    })
    .unwrap();
    let start = Instant::now();
    off.power_on().unwrap();
    scene.wait_until_applied_of("worker", &["sleeps"], LATER);
    assert_eq!(off.read_file("/etc/from-cluster").unwrap(), format!("{changes} sleeps"));
    assert_ne!(identity("sleeps")["key"], asleep["key"]);
    println!("a node whose certificate was over was converged {} ms after it was on", start.elapsed().as_millis());
}
