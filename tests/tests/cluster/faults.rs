//! What goes wrong in a cluster, one after the other. Each ends with nodes that are as their class says, and say so.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;
use testbed::Node;
use testbed::cluster::TOKEN;
use testbed::command::run;
use testbed::image::Kind;
use testbed::wait::{Seen, wait_until};

use crate::scene::{LATER, SOON, Scene, TOKEN_FILE, condition};

/// How far the clocks of nodes are wrong.
const WRONG: Duration = Duration::from_secs(600);
const NAMES: [&str; 3] = ["right", "behind", "ahead"];

/// A library that shows a process another time. All nodes here share the machine's clock: there is no other way.
fn false_clock(scene: &Scene) -> PathBuf {
    let debs = testbed::debian::download(&Kind::Base.image().unwrap(), &["libfaketime"]).unwrap();
    let dir = scene.cluster.slot().dir().join("libfaketime");
    for deb in &debs {
        run(Command::new("dpkg-deb").arg("-x").arg(deb).arg(&dir)).unwrap();
    }
    // In a directory that is named after the architecture.
    run(Command::new("find").arg(&dir).args(["-name", "libfaketime.so.1"])).unwrap().into()
}

/// A node whose nodelet sees another time than everybody else.
fn node_with_clock(scene: &Scene, name: &str, library: &PathBuf, offset: &str) -> Node {
    let node = scene.bare_node(name);
    node.write_file("/usr/local/lib/libfaketime.so.1", std::fs::read(library).unwrap(), 0o755).unwrap();
    let dropin = format!(
        "[Service]\nEnvironment=LD_PRELOAD=/usr/local/lib/libfaketime.so.1 FAKETIME={offset} FAKETIME_DONT_FAKE_MONOTONIC=1\n"
    );
    node.write_file("/etc/systemd/system/nodelet.service.d/clock.conf", dropin, 0o644).unwrap();
    crate::scene::bring_token(&node, TOKEN, 0o600);
    crate::scene::join(&node, &scene.cluster.bootstrap_kubeconfig(TOKEN_FILE), "");
    scene.node_object(name);
    node
}

fn seconds(time: &str) -> i64 {
    run(Command::new("date").args(["-d", time, "+%s"])).unwrap().parse().unwrap()
}

/// Numbers between 0 and a limit, the same for the same seed.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % limit
    }
}

/// The scene with its nodes.
struct Stage {
    scene: Scene,
    nodes: Vec<Node>,
}

impl Stage {
    /// A change of the class reaches all nodes, and they say so.
    fn converges(&self, after: &str) {
        let start = Instant::now();
        self.scene.class(after);
        self.scene.wait_until_applied_of("worker", &NAMES, LATER);
        for (node, name) in self.nodes.iter().zip(NAMES) {
            assert_eq!(node.read_file("/etc/from-cluster").unwrap(), format!("{after} {name}"));
        }
        for name in NAMES {
            self.scene.wait_for_object("the Node's condition", "node", name, |node| {
                condition(node, "NodeletConverged")["status"] == "True"
            });
        }
        println!("after {after:?}: a change reached all nodes after {} ms", start.elapsed().as_millis());
    }

    fn uid(&self, kind: &str, name: &str) -> Value {
        self.scene.get(kind, name)["metadata"]["uid"].clone()
    }
}

#[test]
fn every_fault_ends_converged() {
    let scene = Scene::new();
    scene.class("start");
    scene.set();
    let library = false_clock(&scene);
    let nodes = vec![
        scene.node(NAMES[0]),
        node_with_clock(&scene, NAMES[1], &library, "-10m"),
        node_with_clock(&scene, NAMES[2], &library, "+10m"),
    ];
    let stage = Stage { scene, nodes };
    stage.scene.wait_until_applied_of("worker", &NAMES, LATER);
    clocks_differ(&stage);
    stage.converges("wrong clocks");
    // In this order: with each loss of the cluster a node waits longer before it comes back.
    controller_killed(&stage);
    state_deleted(&stage);
    node_replaced(&stage);
    api_server_killed(&stage);
    etcd_killed(&stage);
    set_deleted(&stage);
}

fn clocks_differ(stage: &Stage) {
    let applied = |name: &str| seconds(stage.scene.state(name)["status"]["applied"]["at"].as_str().unwrap());
    let now = seconds("now");
    let off = [applied("behind") - now, applied("ahead") - now];
    println!("by their clocks, the nodes applied the class {} s and {} s from now", off[0], off[1]);
    let wrong = i64::try_from(WRONG.as_secs()).unwrap();
    assert!(off[0] <= -wrong && off[1] > wrong / 2, "the clocks are right: {off:?}");
}

fn controller_killed(stage: &Stage) {
    let given = std::env::var("NODELET_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()) * 2_654_435_761);
    println!("NODELET_SEED={seed}");
    let mut random = Random(seed);
    for kill in 0..6 {
        for change in 0..=random.below(3) {
            stage.scene.class(&format!("burst {kill} {change}"));
        }
        // The moment is the fault: anywhere in what the controller does with the last change.
        std::thread::sleep(Duration::from_millis(random.below(400)));
        stage.scene.controller.kill().unwrap();
        stage.scene.controller.start().unwrap();
    }
    stage.converges("six crashes of the controller");
}

fn state_deleted(stage: &Stage) {
    let before = stage.uid("nodestate", "right");
    stage.scene.cluster.kubectl(&["delete", "nodestate", "right"]).unwrap();
    let start = Instant::now();
    stage.scene.wait_for_object("the NodeState, made and reported anew", "nodestate", "right", |state| {
        state["metadata"]["uid"] != before && state["status"]["identity"]["key"].is_string()
    });
    println!("a NodeState that was deleted was back, with a report, after {} ms", start.elapsed().as_millis());
    stage.converges("a deleted NodeState");
}

fn node_replaced(stage: &Stage) {
    let before = stage.uid("node", "right");
    stage.scene.cluster.kubectl(&["delete", "node", "right"]).unwrap();
    stage.scene.node_object("right");
    assert_ne!(before, stage.uid("node", "right"));
    stage.converges("a Node with another UID");
    let node = stage.scene.get("node", "right");
    let revision = &node["metadata"]["annotations"]["nodelet.dev/revision"];
    assert_eq!(*revision, stage.scene.state("right")["spec"]["revision"], "{node}");
}

fn set_deleted(stage: &Stage) {
    let scene = &stage.scene;
    scene.cluster.kubectl(&["delete", "nodeset", "workers"]).unwrap();
    wait_until("the NodeStates to go", SOON, || {
        let left = scene.cluster.kubectl(&["get", "nodestates", "-o", "name"])?;
        Ok(if left.is_empty() { Seen::Done(()) } else { Seen::not_yet(left) })
    })
    .unwrap();
    scene.class("nobody's");
    let node = &stage.nodes[0];
    node.write_file("/etc/from-cluster", "drift", 0o644).unwrap();
    node.wait_for("the repair of a node that nobody hands anything out to", SOON, "grep -q etcd /etc/from-cluster")
        .unwrap();
    node.wait_for("`nodelet status` to say so", SOON, "nodelet status | grep -q 'its NodeState does not exist'")
        .unwrap();
    scene.set();
    stage.converges("a set that was deleted and made again");
}

fn api_server_killed(stage: &Stage) {
    // Killed: asked to stop, it would wait a minute for those who watch.
    stage.scene.cluster.api_server.kill().unwrap();
    stage.scene.cluster.api_server.start().unwrap();
    stage.scene.cluster.wait_until_ready().unwrap();
    stage.converges("a crash of the API server");
}

fn etcd_killed(stage: &Stage) {
    let cluster = &stage.scene.cluster;
    cluster.etcd.kill().unwrap();
    wait_until("the API server to notice", SOON, || {
        Ok(match cluster.kubectl(&["get", "--raw", "/readyz", "--request-timeout=5s"]) {
            Ok(_) => Seen::not_yet("it says that it is ready"),
            Err(_) => Seen::Done(()),
        })
    })
    .unwrap();
    cluster.etcd.start().unwrap();
    cluster.wait_until_ready().unwrap();
    stage.converges("a crash of etcd");
}
