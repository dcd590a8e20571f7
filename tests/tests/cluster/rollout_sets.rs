//! Several sets, and Nodes that go away in their turn. Here nodes are simulated: Node objects without a machine, and a
//! task that reports what their nodelets would.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::api::{ListParams, Patch, PatchParams};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use nodelet_api::Disruption;
use nodelet_api::objects::{NodeState, Step};
use serde_json::{Value, json};
use testbed::cluster::{Cluster, node_is_ready};
use testbed::slot::Slot;
use testbed::wait::Seen;

use crate::fleet::{LIMIT, is_cordoned};

pub(crate) type Names = Arc<Mutex<BTreeSet<String>>>;

/// Nodes with which something is wrong.
#[derive(Clone, Default)]
pub(crate) struct Odd {
    /// Nothing is heard of them.
    pub(crate) silent: Names,
    /// They fail with whatever they are granted.
    pub(crate) broken: Names,
}

fn has(names: &Names, name: &str) -> bool {
    names.lock().unwrap_or_else(PoisonError::into_inner).contains(name)
}

/// Does for all nodes what a nodelet would; those that are frozen apply nothing.
pub(crate) async fn nodelets(client: Client, frozen: Names) {
    nodelets_with(client, frozen, Odd::default()).await;
}

/// The same, with nodes that are odd.
pub(crate) async fn nodelets_with(client: Client, frozen: Names, odd: Odd) {
    let states: Api<NodeState> = Api::all(client.clone());
    let nodes: Api<NodeObject> = Api::all(client);
    loop {
        // An API server that begins to serve a kind says so.
        let all = (nodes.list(&ListParams::default()).await, states.list(&ListParams::default()).await);
        let (Ok(all_nodes), Ok(all_states)) = all else {
            tokio::time::sleep(Duration::from_millis(200)).await;
            continue;
        };
        for node in all_nodes {
            let heard = !has(&odd.silent, &node.name_any());
            let said = if heard { "True" } else { "Unknown" };
            let ready = json!({"status": {"conditions": [{"type": "Ready", "status": said, "reason": "Simulated"}]}});
            if node_is_ready(&node) != heard {
                let patch = Patch::Strategic(ready);
                drop(nodes.patch_status(&node.name_any(), &PatchParams::default(), &patch).await);
            }
        }
        for state in all_states {
            let name = state.name_any();
            let Some(revision) = state.spec.revision.clone() else { continue };
            let old = state.status.clone().unwrap_or_default();
            let applied = old.applied.map(|applied| applied.revision);
            let granted = state.spec.grant.as_ref().filter(|grant| grant.revision == revision);
            if has(&odd.silent, &name) {
                continue;
            }
            let may = state.spec.step == Step::Apply
                && granted.is_some_and(|grant| grant.disruption >= Disruption::Drain)
                && !has(&frozen, &name);
            // The first one disturbs nothing.
            let there = applied.as_deref() == Some(&revision) || applied.is_none();
            let fails = may && !there && has(&odd.broken, &name);
            let has = there || (may && !fails);
            let converged = if has { "True" } else { "False" };
            let degraded = if fails { "True" } else { "False" };
            let report = json!({"status": {
                "observedGeneration": state.metadata.generation,
                "nodeletVersion": "0.1.0",
                "applied": {"revision": if has { Some(revision.clone()) } else { applied }, "at": "2026-01-01T00:00:00Z"},
                "staged": if has { Value::Null } else { json!({"revision": revision, "disruption": "Drain"}) },
                "conditions": [{
                    "type": "Converged", "status": converged, "reason": "Simulated", "message": "",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": state.metadata.generation,
                }, {
                    "type": "Degraded", "status": degraded, "reason": "StepFailed", "message": "it does not start",
                    "lastTransitionTime": "2026-01-01T00:00:00Z", "observedGeneration": state.metadata.generation,
                }],
            }});
            drop(states.patch_status(&name, &PatchParams::default(), &Patch::Merge(report)).await);
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// The most nodes of each set that were cordoned at once.
async fn count_cordons(client: Client, most: Arc<Mutex<BTreeMap<String, usize>>>) {
    let mut stream = Box::pin(watcher(Api::<NodeObject>::all(client), watcher::Config::default()));
    let mut cordoned: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    while let Some(event) = stream.next().await {
        let (node, there) = match event {
            Ok(Event::Apply(node) | Event::InitApply(node)) => (node, true),
            Ok(Event::Delete(node)) => (node, false),
            _ => continue,
        };
        let (set, name) = (node.labels().get("set").cloned().unwrap_or_default(), node.name_any());
        let of_set = cordoned.entry(set.clone()).or_default();
        if there && is_cordoned(&node) {
            of_set.insert(name);
        } else {
            of_set.remove(&name);
        }
        let count = of_set.len();
        let mut most = most.lock().unwrap_or_else(PoisonError::into_inner);
        let known = most.entry(set).or_default();
        *known = count.max(*known);
    }
}

pub(crate) fn class(cluster: &Cluster, set: &str, content: &str) {
    let state = json!({"files": [{"path": "/etc/any", "content": content}]});
    let class = json!({
        "apiVersion": "nodelet.dev/v1alpha1", "kind": "NodeClass", "metadata": {"name": set}, "spec": {"state": state},
    });
    cluster.apply(&class.to_string()).unwrap();
}

pub(crate) fn node(cluster: &Cluster, set: &str, name: &str) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"set": set}}});
    cluster.apply(&node.to_string()).unwrap();
}

pub(crate) fn wait_for(cluster: &Cluster, set: &str, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
    testbed::wait_until(what, LIMIT, || {
        let text = cluster.kubectl(&["get", "nodeset", set, "-o", "json"])?;
        let status = serde_json::from_str::<Value>(&text)?["status"].clone();
        Ok(if holds(&status) { Seen::Done(status) } else { Seen::not_yet(&status) })
    })
    .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sets_keep_their_own_limits_and_a_deleted_node_its_turn_to_others() {
    let cluster = Cluster::start(&Slot::take().unwrap()).unwrap();
    cluster.install_operator().unwrap();
    // Without kubelets it would call all nodes lost.
    cluster.controller_manager.stop().unwrap();
    let controller = cluster.controller("one").unwrap();
    controller.start().unwrap();
    let frozen = Names::default();
    let most: Arc<Mutex<BTreeMap<String, usize>>> = Arc::default();
    for (set, count, limit) in [("few", 5, 1), ("many", 5, 2)] {
        class(&cluster, set, "one");
        (0..count).for_each(|number| node(&cluster, set, &format!("{set}-{number}")));
        let object = json!({
            "apiVersion": "nodelet.dev/v1alpha1", "kind": "NodeSet", "metadata": {"name": set},
            "spec": {
                "classRef": {"name": set},
                "selector": {"matchLabels": {"set": set}},
                "strategy": {"maxUnavailable": limit},
            },
        });
        cluster.apply(&object.to_string()).unwrap();
    }
    tokio::spawn(nodelets(cluster.client().await.unwrap(), Arc::clone(&frozen)));
    let mut before = BTreeMap::new();
    for (set, count) in [("few", 5), ("many", 5)] {
        let status = wait_for(&cluster, set, "the nodes to be taken over", |status| {
            status["updatedReplicas"] == count && status["currentRevision"] == status["updateRevision"]
        });
        before.insert(set, status["updateRevision"].clone());
    }
    tokio::spawn(count_cordons(cluster.client().await.unwrap(), Arc::clone(&most)));

    // The first of the few hangs in its turn, and is then taken away with it.
    frozen.lock().unwrap().insert("few-0".into());
    for set in ["few", "many"] {
        class(&cluster, set, "two");
    }
    wait_for(&cluster, "few", "the node that hangs", |status| status["slots"][0]["step"] == "Applying");
    let done = |status: &Value, set: &str, count: u32| {
        status["updateRevision"] != before[set]
            && status["updatedReplicas"] == count
            && status["slots"].as_array().is_none_or(Vec::is_empty)
    };
    wait_for(&cluster, "many", "the other set to be done meanwhile", |status| done(status, "many", 5));
    cluster.kubectl(&["delete", "node", "few-0"]).unwrap();
    let status = wait_for(&cluster, "few", "the turn of the others", |status| done(status, "few", 4));
    assert!(status["failures"].as_array().is_none_or(Vec::is_empty), "{status}");

    // A machine of the same name is another one: it has its own turn, or needs none.
    frozen.lock().unwrap().clear();
    node(&cluster, "few", "few-0");
    wait_for(&cluster, "few", "the new one to be taken over", |status| done(status, "few", 5));
    let cordoned =
        cluster.kubectl(&["get", "nodes", "-o", "jsonpath={.items[?(@.spec.unschedulable)].metadata.name}"]).unwrap();
    assert_eq!(cordoned, "", "left cordoned");
    let most = most.lock().unwrap().clone();
    println!("at most this many were cordoned at once: {most:?}");
    assert_eq!(most, BTreeMap::from([("few".to_owned(), 1), ("many".to_owned(), 2)]));
}
