//! What happens to turns, and what is said of it, at a real API server. Nodes are simulated, as in [`crate::rollout_sets`]:
//! some of this real machines can't be made to do.

use serde_json::{Value, json};
use std::process::Command;
use std::time::Duration;
use testbed::cluster::{Cluster, Component};
use testbed::command;
use testbed::slot::Slot;
use testbed::wait::Seen;

use crate::fleet::LIMIT;
use crate::rollout_sets::{Names, Odd, class, node, nodelets_with, wait_for};

/// The cluster, its controller, and its nodes.
struct Stage {
    cluster: Cluster,
    controller: Component,
    frozen: Names,
    odd: Odd,
}

impl Stage {
    async fn new() -> Self {
        let cluster = Cluster::start(&Slot::take().unwrap()).unwrap();
        cluster.install_operator().unwrap();
        // Without kubelets it would call all nodes lost. What it would make is made here.
        cluster.controller_manager.stop().unwrap();
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
        cluster.apply(&account.to_string()).unwrap();
        let controller = cluster.controller("one").unwrap();
        controller.start().unwrap();
        let (frozen, odd) = (Names::default(), Odd::default());
        tokio::spawn(nodelets_with(cluster.client().await.unwrap(), Names::clone(&frozen), odd.clone()));
        Self { cluster, controller, frozen, odd }
    }

    /// A set of so many nodes that have its first revision, which is returned.
    fn set(&self, name: &str, nodes: usize, spec: &Value) -> String {
        class(&self.cluster, name, "one");
        (0..nodes).for_each(|number| node(&self.cluster, name, &format!("{name}-{number}")));
        let mut object = json!({
            "apiVersion": "nodelet.dev/v1alpha1", "kind": "NodeSet", "metadata": {"name": name},
            "spec": {"classRef": {"name": name}, "selector": {"matchLabels": {"set": name}}},
        });
        for (key, value) in spec.as_object().unwrap() {
            object["spec"][key] = value.clone();
        }
        self.cluster.apply(&object.to_string()).unwrap();
        let status = wait_for(&self.cluster, name, "the nodes to be taken over", |status| {
            status["updatedReplicas"] == nodes && status["currentRevision"] == status["updateRevision"]
        });
        status["currentRevision"].as_str().unwrap().to_owned()
    }

    fn wait(&self, set: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let status = wait_for(&self.cluster, set, what, holds);
        println!("{set}, {what}: {}", status["conditions"][0]["message"].as_str().unwrap_or_default());
        status
    }

    fn wait_until_done(&self, set: &str, before: &str, nodes: usize) {
        self.wait(set, "all nodes to have it", |status| {
            status["updateRevision"] != before
                && status["currentRevision"] == status["updateRevision"]
                && status["updatedReplicas"] == nodes
                && status["slots"].as_array().is_none_or(Vec::is_empty)
        });
    }

    fn apply(&self, object: &Value) {
        self.cluster.apply(&object.to_string()).unwrap();
    }

    /// Writes the status of an object that nobody else writes here.
    fn status(&self, kind: &str, name: &str, status: &Value) {
        let patch = json!({"status": status}).to_string();
        let words = ["patch", kind, name, "--subresource=status", "--type=merge", "-p", &patch];
        self.cluster.kubectl(&words).unwrap();
    }

    /// A pod on a node, of a controller, and whether it is ready.
    fn pod(&self, name: &str, node: &str, ready: bool) {
        self.apply(&json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": "default", "labels": {"app": "db"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "1", "controller": true}],
            },
            "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "none"}]},
        }));
        let ready = if ready { "True" } else { "False" };
        let status = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]});
        self.status("pod", name, &status);
    }

    fn events(&self, node: &str) -> Vec<String> {
        let field = format!("--field-selector=involvedObject.name={node}");
        let path = "jsonpath={range .items[*]}{.reason}{\"\\n\"}{end}";
        let text = self.cluster.kubectl(&["get", "events", "-A", &field, "-o", path]).unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

/// A part of the test.
type Part = fn(&Stage);

fn slot(status: &Value) -> &Value {
    &status["slots"][0]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_end_as_a_person_would_wish() {
    let stage = Stage::new().await;
    let parts: [(&str, Part); 7] = [
        ("volumes", volumes_are_waited_for),
        ("a budget", who_holds_a_budget_up_is_named),
        ("a refusal", what_the_api_server_refuses_is_said),
        ("silence", a_silent_node_is_waited_for),
        ("leaving", who_leaves_its_set_keeps_nothing_of_it),
        ("failing", what_failed_goes_back_and_is_tried_again_when_asked),
        ("handover", another_controller_goes_on),
    ];
    for (name, part) in parts {
        let start = std::time::Instant::now();
        part(&stage);
        println!("{name}: {:.1} s", start.elapsed().as_secs_f32());
    }
}

/// A drained node keeps its turn at draining until its volumes are detached.
fn volumes_are_waited_for(stage: &Stage) {
    let before = stage.set("disks", 1, &json!({}));
    stage.apply(&json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv-1"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "csi": {"driver": "disk.test", "volumeHandle": "1"},
            "claimRef": {"namespace": "default", "name": "data-db-0"},
        },
    }));
    stage.apply(&json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": "attached-1"},
        "spec": {"attacher": "disk.test", "nodeName": "disks-0", "source": {"persistentVolumeName": "pv-1"}},
    }));
    class(&stage.cluster, "disks", "two");
    let status = stage.wait("disks", "the volume to be named", |status| slot(status)["reason"] == "VolumesAttached");
    assert_eq!(slot(&status)["step"], "Draining");
    assert_eq!(slot(&status)["waitingFor"], "volume pv-1, the claim default/data-db-0 to be detached");
    stage.cluster.kubectl(&["delete", "volumeattachment", "attached-1"]).unwrap();
    stage.wait_until_done("disks", &before, 1);
    let events = stage.events("disks-0");
    for reason in ["TurnBegan", "TurnEnded"] {
        assert!(events.iter().any(|event| event == reason), "{reason}: {events:?}");
    }
}

/// The pod that is not ready is elsewhere: the budget's own pods are looked at.
fn who_holds_a_budget_up_is_named(stage: &Stage) {
    let before = stage.set("dbs", 2, &json!({}));
    stage.apply(&json!({
        "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "db", "namespace": "default"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "db"}}},
    }));
    stage.pod("db-0", "dbs-0", true);
    stage.pod("db-1", "dbs-1", false);
    let counts = |allowed: u32, healthy: u32| {
        let status = json!({
            "observedGeneration": 1, "disruptionsAllowed": allowed, "currentHealthy": healthy, "desiredHealthy": 1,
            "expectedPods": 2,
        });
        stage.status("pdb", "db", &status);
    };
    counts(0, 1);
    class(&stage.cluster, "dbs", "two");
    let sentence = "PodDisruptionBudget default/db allows 0 disruptions (db-1 on dbs-1 not ready; 1 of 2 pods are healthy, \
                    1 are needed); it keeps pod default/db-0";
    stage.wait("dbs", "the pod to be named", |status| slot(status)["waitingFor"] == sentence);
    stage.pod("db-1", "dbs-1", true);
    counts(1, 2);
    stage.wait("dbs", "the next node's turn", |status| status["updatedReplicas"] == 1);
    counts(1, 2);
    stage.wait_until_done("dbs", &before, 2);
    stage.cluster.kubectl(&["delete", "pdb", "db"]).unwrap();
}

/// Whoever else has a say in evictions is quoted.
fn what_the_api_server_refuses_is_said(stage: &Stage) {
    let before = stage.set("guarded", 1, &json!({}));
    stage.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": "guard"},
        "spec": {
            "matchConstraints": {"resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"],
            }]},
            "validations": [{"expression": "false", "message": "the guard has not slept yet"}],
        },
    }));
    stage.apply(&json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "guard"}, "spec": {"policyName": "guard", "validationActions": ["Deny"]},
    }));
    stage.pod("kept", "guarded-0", true);
    // A policy is in force a moment after it is there.
    let eviction = stage.cluster.slot().dir().join("eviction.json");
    let body = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "kept", "namespace": "default"},
        "deleteOptions": {"dryRun": ["All"]}});
    std::fs::write(&eviction, body.to_string()).unwrap();
    testbed::wait_until("the policy to be in force", LIMIT, || {
        let path = "/api/v1/namespaces/default/pods/kept/eviction";
        Ok(match stage.cluster.kubectl(&["create", "--raw", path, "-f", eviction.to_str().unwrap()]) {
            Ok(_) => Seen::not_yet("the eviction is let through"),
            Err(error) if format!("{error:#}").contains("guard") => Seen::Done(()),
            Err(error) => Seen::not_yet(format!("{error:#}")),
        })
    })
    .unwrap();
    class(&stage.cluster, "guarded", "two");
    let status = stage.wait("guarded", "the refusal", |status| slot(status)["reason"] == "EvictionRefused");
    let waits = slot(&status)["waitingFor"].as_str().unwrap();
    assert!(waits.contains("pod default/kept, which the API server does not let go: "), "{waits}");
    assert!(waits.contains("the guard has not slept yet"), "{waits}");
    stage.cluster.kubectl(&["delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "guard"]).unwrap();
    stage.wait_until_done("guarded", &before, 1);
}

/// A machine without power is no fault of its revision, for however long.
fn a_silent_node_is_waited_for(stage: &Stage) {
    let health = json!({"timeoutSeconds": 2});
    let before = stage.set("quiet", 3, &json!({"health": health, "strategy": {"maxUnavailable": 2, "soakSeconds": 1}}));
    stage.frozen.lock().unwrap().insert("quiet-0".into());
    class(&stage.cluster, "quiet", "two");
    let applies = |status: &Value| {
        let slots = status["slots"].as_array();
        slots.is_some_and(|all| all.iter().any(|slot| slot["node"] == "quiet-0" && slot["step"] == "Applying"))
    };
    stage.wait("quiet", "its turn", applies);
    stage.odd.silent.lock().unwrap().insert("quiet-0".into());
    let status = stage.wait("quiet", "its silence to be said", |status| {
        let slots = status["slots"].as_array();
        slots.is_some_and(|all| all.iter().any(|slot| slot["reason"] == "NodeSilent"))
    });
    assert!(status["failures"].as_array().is_none_or(Vec::is_empty), "{status}");
    assert!(status["badRevisions"].as_array().is_none_or(Vec::is_empty), "{status}");
    stage.wait("quiet", "that somebody should look", |status| status["conditions"][3]["reason"] == "NodeSilent");
    stage.frozen.lock().unwrap().clear();
    stage.odd.silent.lock().unwrap().clear();
    stage.wait_until_done("quiet", &before, 3);
}

/// In the middle of its turn a node becomes nobody's: nothing of ours stays on it.
fn who_leaves_its_set_keeps_nothing_of_it(stage: &Stage) {
    stage.set("leaving", 1, &json!({}));
    let labels =
        json!({"spec": {"nodeLabels": {"of": "leaving"}, "nodeTaints": [{"key": "of", "effect": "NoSchedule"}]}});
    let words = ["patch", "nodeclass", "leaving", "--type=merge", "-p", &labels.to_string()];
    stage.cluster.kubectl(&words).unwrap();
    stage.frozen.lock().unwrap().insert("leaving-0".into());
    class(&stage.cluster, "leaving", "two");
    stage.cluster.kubectl(&words).unwrap();
    stage.wait("leaving", "its turn", |status| slot(status)["step"] == "Applying");
    stage.cluster.kubectl(&["label", "node", "leaving-0", "set=none", "--overwrite"]).unwrap();
    testbed::wait_until("nothing to be left", LIMIT, || {
        let text = stage.cluster.kubectl(&["get", "node", "leaving-0", "-o", "json"])?;
        let node: Value = serde_json::from_str(&text)?;
        let ours = |part: &str| {
            let keys = node["metadata"][part].as_object().into_iter().flat_map(|all| all.keys());
            let ours =
                |key: &&String| key.contains("nodelet.dev") || key.contains("autoscaler") || key.contains("exclude");
            keys.filter(ours).cloned().collect::<Vec<_>>()
        };
        let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        let shown: Vec<&Value> = conditions.filter(|one| one["type"] == "NodeletConverged").collect();
        let clean = node["spec"]["unschedulable"].is_null()
            && node["spec"]["taints"].as_array().is_none_or(|taints| !taints.iter().any(|one| one["key"] == "of"))
            && node["metadata"]["labels"]["of"].is_null()
            && ours("labels").is_empty()
            && ours("annotations").is_empty()
            && shown.is_empty();
        Ok(if clean { Seen::Done(()) } else { Seen::not_yet(node) })
    })
    .unwrap();
    stage.frozen.lock().unwrap().clear();
}

/// A node that fails goes back alone; with `retry` the same revision goes on from there.
fn what_failed_goes_back_and_is_tried_again_when_asked(stage: &Stage) {
    let before = stage.set("mixed", 3, &json!({}));
    stage.odd.broken.lock().unwrap().insert("mixed-1".into());
    class(&stage.cluster, "mixed", "two");
    let status = stage.wait("mixed", "the failure", |status| {
        status["conditions"][0]["reason"] == "FailureBudget" && status["slots"].as_array().is_none_or(Vec::is_empty)
    });
    assert_eq!(
        (&status["updatedReplicas"], &status["failures"][0]["node"]),
        (&json!(1), &json!("mixed-1")),
        "{status}"
    );
    let asked = |node: &str| {
        let object = stage.cluster.node_state(node).unwrap();
        (object["spec"]["revision"].as_str().unwrap().to_owned(), object["status"]["applied"]["revision"].clone())
    };
    let bad = status["updateRevision"].as_str().unwrap();
    testbed::wait_until("the others to be asked for what they have", LIMIT, || {
        let found = ["mixed-0", "mixed-1", "mixed-2"].map(asked);
        let wanted = [bad, &before, &before].map(|revision| (revision.to_owned(), json!(revision)));
        Ok(if found == wanted { Seen::Done(()) } else { Seen::not_yet(format!("{found:?}")) })
    })
    .unwrap();
    stage.odd.broken.lock().unwrap().clear();
    let mut plugin = Command::new(testbed::paths::program("kubectl-nodes").unwrap());
    plugin.env("KUBECONFIG", stage.cluster.kubeconfig()).args(["retry", "mixed"]);
    let done = command::output(&mut plugin, None, Duration::from_secs(30)).unwrap();
    assert!(done.success(), "{}", done.text());
    println!("$ kubectl nodes retry mixed\n{}", done.stdout);
    assert!(done.stdout.contains("counts as good again, and another turn for mixed-1"), "{}", done.stdout);
    stage.wait_until_done("mixed", &before, 3);
}

/// The leader goes in the middle of a turn, and the one that waited goes on with it.
fn another_controller_goes_on(stage: &Stage) {
    let before = stage.set("handed", 3, &json!({}));
    stage.frozen.lock().unwrap().insert("handed-0".into());
    let other = stage.cluster.controller("two").unwrap();
    other.start().unwrap();
    class(&stage.cluster, "handed", "two");
    let status = stage.wait("handed", "its turn", |status| slot(status)["step"] == "Applying");
    let turn = slot(&status).clone();
    stage.controller.stop().unwrap();
    stage.frozen.lock().unwrap().clear();
    let handed = std::time::Instant::now();
    stage.wait_until_done("handed", &before, 3);
    println!("all three had it {:.1} s after the leader went", handed.elapsed().as_secs_f32());
    let begun = stage.events("handed-0").into_iter().filter(|event| event == "TurnBegan").count();
    assert_eq!(begun, 1, "{turn}");
    let cordoned = "jsonpath={.items[?(@.spec.unschedulable)].metadata.name}";
    assert_eq!(stage.cluster.kubectl(&["get", "nodes", "-o", cordoned]).unwrap(), "");
    stage.controller.start().unwrap();
    other.stop().unwrap();
}
