//! Controllers, definitions and nodelets that are one minor version apart, both ways, and the upgrade from one to the
//! other. The version before is a real one, built from the history (`testbed::previous`).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use futures::StreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use nodelet_api::objects::NodeSet;
use serde_json::{Value, json};
use testbed::cluster::{Cluster, Component, TOKEN};
use testbed::image::Kind;
use testbed::previous::{Previous, previous};
use testbed::repository::Repository;
use testbed::slot::Slot;
use testbed::{Node, NodeOptions, nodelet, paths};

use crate::rollout_sets::{self, Names};
use crate::scene::{LATER, Scene, TOKEN_FILE, bring_token, condition, join_as};

/// A controller of the version before.
fn older(cluster: &Cluster, previous: &Previous) -> Component {
    let credential = cluster.controller_credential().unwrap();
    cluster.controller_of(previous.program("node-controller"), "older", &credential).unwrap()
}

/// A cluster with one machine, whose repository has both versions of nodelet.
struct Machine {
    scene: Scene,
    node: Node,
    repository: Repository,
}

impl Machine {
    fn new(name: &str, previous: &Previous, nodelet: &str, old_cluster: bool) -> Self {
        let cluster = Cluster::start(&Slot::take().unwrap()).unwrap();
        let controller = if old_cluster {
            cluster.install_operator_from(&previous.config()).unwrap();
            older(&cluster, previous)
        } else {
            cluster.install_operator().unwrap();
            cluster.controller("one").unwrap()
        };
        controller.start().unwrap();
        let scene = Scene { cluster, controller };
        let repository = previous.repository(scene.cluster.slot()).unwrap();
        let options = NodeOptions::new(name, Kind::Base).bind(repository.dir(), repository.bound_at());
        let node = Node::boot(scene.cluster.slot(), options).unwrap();
        repository.add_to_apt(&node, &format!("file://{}", repository.bound_at())).unwrap();
        node.run(&["apt-get", "update", "-qq"]).unwrap();
        bring_token(&node, TOKEN, 0o600);
        join_as(&node, &scene.cluster.bootstrap_kubeconfig(TOKEN_FILE), "", Some(nodelet));
        scene.node_object(name);
        Self { scene, node, repository }
    }

    /// Hands over a class that asks for this version of nodelet, and goes with it until its set is at rest again.
    fn becomes(&self, content: &str, nodelet: &str) -> Value {
        let name = self.node.name();
        self.ready();
        let file = json!({"path": "/etc/from-cluster", "content": content, "onChange": "Restart"});
        let apt = json!({
            "uris": [format!("file://{}/apt", self.repository.bound_at())],
            "suites": ["stable"],
            "components": ["main"],
            "key": {"inline": self.repository.public_key().unwrap()},
        });
        let package = json!({"name": "nodelet", "version": nodelet, "allowDowngrade": true});
        let state = json!({"files": [file], "repositories": [{"name": "skew", "apt": apt}], "packages": [package]});
        self.scene.class_of("worker", &json!({"state": state}));
        self.scene.set();
        self.scene.wait_until_applied_of("worker", &[name], LATER);
        self.ready();
        self.scene.wait_for_object("the end of its turn", "nodeset", "workers", |set| {
            let status = &set["status"];
            status["updatedReplicas"] == 1 && status["slots"].as_array().is_none_or(Vec::is_empty)
        });
        assert_eq!(self.node.read_file("/etc/from-cluster").unwrap(), content);
        let state = self.scene.wait_for_object("its report", "nodestate", name, |state| {
            state["status"]["nodeletVersion"] == nodelet && state["status"]["conditions"][0]["status"] == "True"
        });
        // It was made ready, and had its turn for what it disturbs.
        assert_eq!(state["spec"]["grant"]["disruption"], "Restart", "{state}");
        assert!(state["status"]["steps"].as_array().is_some_and(|steps| !steps.is_empty()), "{state}");
        state
    }

    /// No kubelet says that the Node is ready; a turn ends only when it is.
    fn ready(&self) {
        let ready =
            json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "Test", "message": ""}]}});
        let words =
            ["patch", "node", self.node.name(), "--subresource=status", "--type=merge", "-p", &ready.to_string()];
        self.scene.cluster.kubectl(&words).unwrap();
    }
}

#[test]
fn an_older_nodelet_follows_and_is_upgraded_through_its_class() {
    let previous = previous().unwrap();
    let machine = Machine::new("skew-older", &previous, previous.version(), false);
    machine.becomes("one", previous.version());
    machine.becomes("two", previous.version());

    let newer = nodelet::version().unwrap();
    let state = machine.becomes("three", &newer);
    assert_eq!(state["status"]["packages"][0]["version"], *newer, "{state}");
    // One transaction, begun by the older one and ended by the newer one.
    let history = machine.node.run(&["nodelet", "history"]).unwrap();
    println!("{history}");
    assert!(!history.contains("undone"), "{history}");

    // Units that only the newer one reports, and would refuse to read about as the older one that it becomes again.
    let unit = "systemd-journald.service";
    let gates = json!({"spec": {"health": {"gates": [{"name": "units", "units": [unit]}]}}}).to_string();
    machine.scene.cluster.kubectl(&["patch", "nodeset", "workers", "--type=merge", "-p", &gates]).unwrap();
    let state = machine.becomes("four", &newer);
    assert_eq!((&state["spec"]["units"], &state["status"]["units"][0]["state"]), (&json!([unit]), &json!("active")));
    let start = Instant::now();
    let state = machine.becomes("five", previous.version());
    println!("back to {}: {:.1} s", previous.version(), start.elapsed().as_secs_f32());
    assert!(state["spec"]["units"].is_null(), "{state}");
}

#[test]
fn a_newer_nodelet_follows_an_older_controller() {
    let previous = previous().unwrap();
    let newer = nodelet::version().unwrap();
    let machine = Machine::new("skew-newer", &previous, &newer, true);
    machine.becomes("one", &newer);
    machine.becomes("two", &newer);

    // Definitions first, then the controller: what was so stays so.
    let cluster = &machine.scene.cluster;
    cluster.define_from(&paths::checkout().join("config")).unwrap();
    let before = machine.becomes("three", &newer);
    machine.scene.controller.stop().unwrap();
    let controller = cluster.controller("newer").unwrap();
    controller.start().unwrap();
    let state = machine.becomes("four", &newer);
    assert_ne!(before["status"]["applied"]["revision"], state["status"]["applied"]["revision"]);
    meets_the_version_after(&machine, &controller);
}

/// What a version after this one may write: fields that are not known yet, in definitions that have them.
fn meets_the_version_after(machine: &Machine, controller: &Component) {
    let (scene, name) = (&machine.scene, machine.node.name());
    let cluster = &scene.cluster;
    let schema = "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties";
    for (definition, field) in [("nodestates", "later"), ("nodeclasses", "state/properties/later")] {
        let value = json!({"type": "string"});
        let patch = json!([{"op": "add", "path": format!("{schema}/{field}"), "value": value}]).to_string();
        let definition = format!("{definition}.nodelet.dev");
        cluster.kubectl(&["patch", "crd", &definition, "--type=json", "-p", &patch]).unwrap();
    }
    let patch = |spec: &Value| {
        let patch = json!({"spec": spec}).to_string();
        cluster.kubectl(&["patch", "nodestate", name, "--type=merge", "-p", &patch]).unwrap();
    };
    // A moment passes until the API server knows the field; until then it drops it.
    scene.wait_for_object("a field of the future", "nodestate", name, |state| {
        patch(&json!({"later": "x"}));
        state["spec"]["later"] == "x"
    });
    let state = machine.becomes("five", &nodelet::version().unwrap());
    assert_eq!(state["spec"]["later"], "x", "{state}");

    // This is why a status goes out once more without what is new: the API server refuses all of it.
    let status = json!({
        "apiVersion": "nodelet.dev/v1alpha1", "kind": "NodeState", "metadata": {"name": name}, "status": {"later": "x"},
    });
    let file = cluster.slot().dir().join("later.json");
    std::fs::write(&file, status.to_string()).unwrap();
    let words = ["apply", "--server-side", "--subresource=status", "-f", file.to_str().unwrap()];
    let refused = cluster.kubectl(&words).unwrap_err().to_string();
    assert!(refused.contains("field not declared in schema"), "{refused}");

    // A class that the controller can't understand: its nodes stay.
    scene.wait_for_object("a class of the future", "nodeclass", "worker", |class| {
        let patch = json!({"spec": {"state": {"later": "x"}}}).to_string();
        cluster.kubectl(&["patch", "nodeclass", "worker", "--type=merge", "-p", &patch]).unwrap();
        class["spec"]["state"]["later"] == "x"
    });
    let set = scene.wait_for_object("the set to say so", "nodeset", "workers", |set| {
        condition(set, "Progressing")["reason"] == "ClassNotUnderstood"
    });
    let sentence = condition(&set, "Progressing")["message"].as_str().unwrap();
    assert!(sentence.contains("later") && sentence.contains("node-controller must be upgraded first"), "{sentence}");
    assert_eq!(scene.state(name)["spec"], state["spec"]);

    // A revision that nodelet can't understand: nothing changes on the node.
    controller.stop().unwrap();
    let system = "--namespace=nodelet-system";
    let known = state["spec"]["revision"].as_str().unwrap();
    let text = cluster.kubectl(&["get", "controllerrevision", known, system, "-o", "json"]).unwrap();
    let mut revision: Value = serde_json::from_str(&text).unwrap();
    revision["metadata"] = json!({"name": "worker-later", "namespace": "nodelet-system"});
    revision["data"]["state"]["files"] = json!([{"path": "/etc/from-cluster", "content": "six", "later": "x"}]);
    cluster.apply(&revision.to_string()).unwrap();
    let grant = json!({"id": "x", "revision": "worker-later", "disruption": "Reboot"});
    patch(&json!({"revision": "worker-later", "step": "Apply", "grant": grant}));
    let told = scene.wait_for_object("its word for it", "nodestate", name, |state| {
        condition(state, "Degraded")["reason"] == "RevisionNotUnderstood"
    });
    let sentence = told["status"]["waitingFor"].as_str().unwrap();
    println!("{sentence}");
    assert!(sentence.contains("files[0].later") && sentence.contains("nodelet must be upgraded first"), "{sentence}");
    assert_eq!(condition(&told, "Converged")["status"], "False", "{told}");
    assert_eq!(machine.node.read_file("/etc/from-cluster").unwrap(), "five");
    let shown = machine.node.run(&["nodelet", "status"]).unwrap();
    assert!(shown.contains("followed, but revision worker-later is not understood"), "{shown}");
    patch(&state["spec"]);
    scene.wait_for_object("the end of it", "nodestate", name, |state| {
        condition(state, "Converged")["status"] == "True" && state["status"]["waitingFor"].is_null()
    });
}

/// The nodes whose turn it was, in order; one that has a second turn is in it twice.
async fn note_turns(client: Client, turns: Arc<Mutex<Vec<String>>>) {
    let mut stream = Box::pin(watcher(Api::<NodeSet>::all(client), watcher::Config::default()));
    let mut busy: BTreeSet<String> = BTreeSet::new();
    while let Some(event) = stream.next().await {
        let Ok(Event::Apply(set) | Event::InitApply(set)) = event else { continue };
        let slots = set.status.unwrap_or_default().slots;
        let now: BTreeSet<String> = slots.into_iter().map(|slot| slot.node).collect();
        turns.lock().unwrap_or_else(PoisonError::into_inner).extend(now.difference(&busy).cloned());
        busy = now;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rollout_goes_on_under_a_newer_controller() {
    let previous = previous().unwrap();
    let cluster = Cluster::start(&Slot::take().unwrap()).unwrap();
    cluster.install_operator_from(&previous.config()).unwrap();
    // Without kubelets it would call all nodes lost.
    cluster.controller_manager.stop().unwrap();
    let old = older(&cluster, &previous);
    old.start().unwrap();
    let (frozen, turns) = (Names::default(), Arc::default());
    rollout_sets::class(&cluster, "few", "one");
    let names = ["few-0", "few-1", "few-2"];
    for name in names {
        rollout_sets::node(&cluster, "few", name);
    }
    let set = json!({
        "apiVersion": "nodelet.dev/v1alpha1", "kind": "NodeSet", "metadata": {"name": "few"},
        "spec": {"classRef": {"name": "few"}, "selector": {"matchLabels": {"set": "few"}}},
    });
    cluster.apply(&set.to_string()).unwrap();
    tokio::spawn(rollout_sets::nodelets(cluster.client().await.unwrap(), Arc::clone(&frozen)));
    let wait_for = |what: &str, holds: &dyn Fn(&Value) -> bool| rollout_sets::wait_for(&cluster, "few", what, holds);
    let done = |status: &Value| {
        status["updatedReplicas"] == 3
            && status["currentRevision"] == status["updateRevision"]
            && status["slots"].as_array().is_none_or(Vec::is_empty)
    };
    let before = wait_for("the nodes to be taken over", &done)["updateRevision"].clone();
    tokio::spawn(note_turns(cluster.client().await.unwrap(), Arc::clone(&turns)));

    // One node is being changed when the controller is replaced.
    frozen.lock().unwrap().extend(names.map(str::to_owned));
    rollout_sets::class(&cluster, "few", "two");
    let begun = wait_for("a node that is in its turn", &|status| status["slots"][0]["step"] == "Applying");
    // Definitions first, and the rights of the newer one.
    let config = paths::checkout().join("config");
    cluster.define_from(&config).unwrap();
    cluster.give_rights_from(&config).unwrap();
    old.stop().unwrap();
    let new = cluster.controller("newer").unwrap();
    new.start().unwrap();
    let words = ["get", "lease", "node-controller", "-n", "nodelet-system", "-o", "jsonpath={.spec.holderIdentity}"];
    testbed::wait_until("the newer one to lead", LATER, || {
        let holder = cluster.kubectl(&words).unwrap_or_default();
        let leads = holder == "newer";
        Ok(if leads { testbed::wait::Seen::Done(()) } else { testbed::wait::Seen::not_yet(holder) })
    })
    .unwrap();
    frozen.lock().unwrap().clear();
    let ended = wait_for("all nodes to be done", &|status| status["updateRevision"] != before && done(status));
    assert_eq!(ended["updateRevision"], begun["updateRevision"], "the newer one renders the same revision");
    assert!(ended["failures"].as_array().is_none_or(Vec::is_empty), "{ended}");
    let mut turns: Vec<String> = turns.lock().unwrap().clone();
    println!("turns: {turns:?}");
    turns.sort();
    assert_eq!(turns, names, "each node has one turn");
    let cordoned =
        cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[?(@.spec.unschedulable)].metadata.name}"]).unwrap();
    assert_eq!(cordoned, "", "left cordoned");
}
