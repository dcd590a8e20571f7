//! Three real nodes that rollouts go through, with a workload on them, and all that is seen of them meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node as NodeObject, Pod};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use nodelet_api::objects::{NodeSet, SlotStep};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use testbed::Node;
use testbed::cluster::{BUSYBOX, Cluster, Component, class_of, set_of_all};
use testbed::slot::Slot;
use testbed::software::{Manager, Software};
use testbed::wait::Seen;

/// More than two minutes: for so long the API server takes an eviction for under way whose client died in the middle of it.
pub(crate) const LIMIT: Duration = Duration::from_secs(180);
pub(crate) const NAMES: [&str; 3] = ["fleet-1", "fleet-2", "fleet-3"];
/// The workload: so many pods, of which so many must be ready.
pub(crate) const PODS: usize = 4;
pub(crate) const NEEDED: usize = 3;

/// The nodes, their control plane and the controller.
pub(crate) struct Fleet {
    pub(crate) cluster: Cluster,
    pub(crate) controller: Component,
    pub(crate) nodes: Vec<Node>,
    pub(crate) software: Software,
    /// Three versions of the kubelet, the least first; nodes begin with that.
    pub(crate) versions: [String; 3],
    pub(crate) class: Value,
    pub(crate) record: Record,
    changes: usize,
}

impl Fleet {
    /// From nothing to three nodes that follow their class, with the workload ready.
    pub(crate) async fn new() -> Self {
        let slot = Slot::take().unwrap();
        let binaries = testbed::kubernetes::binaries().unwrap();
        let versions = binaries.patches().unwrap();
        let programs = slot.dir().join("kubelets");
        let kubelet = |version: &str| binaries.kubelet_renumbered(version, &programs).unwrap();
        let first = versions[0].clone();
        let mut software = Software::serve_kubelet(&slot, Manager::Apt, &kubelet(&first), first).unwrap();
        let cluster = Cluster::start(&slot).unwrap();
        cluster.install_operator().unwrap();
        let controller = cluster.controller("one").unwrap();
        controller.start().unwrap();
        let nodes = std::thread::scope(|scope| {
            let booting: Vec<_> =
                NAMES.iter().map(|name| scope.spawn(|| cluster.boot_bare(name, &software).unwrap())).collect();
            booting.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        for version in &versions[1..] {
            software.add_kubelet(&slot, &kubelet(version), version).unwrap();
        }
        for name in NAMES {
            cluster.wait_until_node_ready(name).await.unwrap();
        }
        let class = class_of("worker", &nodes[0].read_file("/etc/nodelet/state.toml").unwrap()).unwrap();
        cluster.apply(&class.to_string()).unwrap();
        let mut set = set_of_all("workers", "worker");
        set["spec"]["strategy"] = json!({"maxUnavailable": 1});
        cluster.apply(&set.to_string()).unwrap();
        cluster.wait_until_applied(&NAMES, None).unwrap();
        workload(&cluster);
        let record = Record::start(&cluster.client().await.unwrap());
        let fleet = Self { cluster, controller, nodes, software, versions, class, record, changes: 0 };
        fleet.wait_for_workload();
        fleet
    }

    /// Changes the class; returns the revision that the nodes had.
    pub(crate) fn change(&mut self, edit: impl FnOnce(&mut Value)) -> String {
        let before = self.set()["status"]["updateRevision"].as_str().unwrap_or_default().to_owned();
        edit(&mut self.class["spec"]["state"]);
        self.cluster.apply(&self.class.to_string()).unwrap();
        before
    }

    /// A change that is nothing but a file, and asks for a drain.
    pub(crate) fn change_with_drain(&mut self) -> String {
        self.changes += 1;
        let content = format!("{}\n", self.changes);
        self.change(|state| marker(state, &content))
    }

    pub(crate) fn set(&self) -> Value {
        serde_json::from_str(&self.cluster.kubectl(&["get", "nodeset", "workers", "-o", "json"]).unwrap()).unwrap()
    }

    pub(crate) fn patch_set(&self, patch: &Value) {
        self.cluster.kubectl(&["patch", "nodeset", "workers", "--type=merge", "-p", &patch.to_string()]).unwrap();
    }

    /// Waits until the set is as expected.
    pub(crate) fn wait_for_set(&self, what: &str, holds: impl Fn(&Value) -> bool) -> Value {
        let waited = testbed::wait_until(what, LIMIT, || {
            let set = self.set();
            Ok(if holds(&set["status"]) { Seen::Done(set["status"].clone()) } else { Seen::not_yet(&set["status"]) })
        });
        waited.unwrap_or_else(|error| panic!("{error:#}\n{}", self.log()))
    }

    /// Waits until all nodes have another revision than before, and nothing is left of the way there.
    pub(crate) fn wait_until_updated(&self, before: &str) {
        self.wait_for_set("all nodes to have the new revision", |status| {
            status["updateRevision"] != *before
                && status["currentRevision"] == status["updateRevision"]
                && status["updatedReplicas"] == 3
                && status["slots"].as_array().is_none_or(Vec::is_empty)
        });
    }

    /// The end of what the controller said.
    pub(crate) fn log(&self) -> String {
        let log = std::fs::read_to_string(self.controller.log()).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(60)..].join("\n")
    }

    pub(crate) fn wait_for_workload(&self) {
        testbed::wait_until("the workload to be ready", LIMIT, || {
            let ready = self.record.look().ready();
            Ok(if ready == PODS { Seen::Done(()) } else { Seen::not_yet(format!("{ready} pods are ready")) })
        })
        .unwrap();
    }

    /// No node is cordoned, and none carries what nodes carry in their turn.
    pub(crate) fn assert_left_alone(&self, but: &[&str]) {
        let all = || -> Vec<NodeObject> {
            let text = self.cluster.kubectl(&["get", "nodes", "-l", "kubernetes.io/os=linux", "-o", "json"]).unwrap();
            let list: Value = serde_json::from_str(&text).unwrap();
            serde_json::from_value(list["items"].clone()).unwrap()
        };
        testbed::wait_until("no trace of the turns", LIMIT, || {
            for node in all().iter().filter(|node| !but.contains(&node.name_any().as_str())) {
                let ours = ["nodelet.dev/cordoned", "cluster-autoscaler.kubernetes.io/scale-down-disabled"];
                let left = ours.iter().find(|one| node.annotations().contains_key(**one)).copied();
                let label = "node.kubernetes.io/exclude-from-external-load-balancers";
                let left = left.or_else(|| node.labels().contains_key(label).then_some(label));
                let left = left.or_else(|| is_cordoned(node).then_some("the cordon"));
                if let Some(left) = left {
                    return Ok(Seen::not_yet(format!("{} has {left}", node.name_any())));
                }
            }
            Ok(Seen::Done(()))
        })
        .unwrap();
    }

    /// The kubelets' versions as the API server has them.
    pub(crate) fn kubelets(&self) -> BTreeSet<String> {
        let path = "jsonpath={range .items[*]}{.status.nodeInfo.kubeletVersion}{\" \"}{end}";
        let text = self.cluster.kubectl(&["get", "nodes", "-l", "kubernetes.io/os=linux", "-o", path]).unwrap();
        text.split_whitespace().map(|version| version.trim_start_matches('v').to_owned()).collect()
    }

    /// All containers, and how often each was started.
    pub(crate) fn containers(&self) -> BTreeSet<String> {
        let path = "jsonpath={range .items[*]}{.metadata.name}={.status.containerStatuses[*].containerID} \
                    {.status.containerStatuses[*].restartCount}{\"\\n\"}{end}";
        let text = self.cluster.kubectl(&["get", "pods", "-A", "-o", path]).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    pub(crate) fn node(&self, name: &str) -> &Node {
        self.nodes.iter().find(|node| node.name() == name).unwrap()
    }
}

/// The file whose change asks for a drain.
pub(crate) fn marker(state: &mut Value, content: &str) {
    state["files"] = json!([{"path": "/etc/fleet-marker", "content": content, "onChange": "Drain"}]);
}

/// A budget for the workload.
pub(crate) fn budget(needed: usize) -> String {
    json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"minAvailable": needed, "selector": {"matchLabels": {"app": "web"}}},
    })
    .to_string()
}

fn workload(cluster: &Cluster) {
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "replicas": PODS,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}},
                "spec": {
                    "terminationGracePeriodSeconds": 5,
                    "automountServiceAccountToken": false,
                    "containers": [{"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never"}],
                },
            },
        },
    });
    cluster.apply(&deployment.to_string()).unwrap();
    cluster.apply(&budget(NEEDED)).unwrap();
}

pub(crate) fn is_cordoned(node: &NodeObject) -> bool {
    node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
}

/// From a cordon to its end.
#[derive(Clone, Debug)]
pub(crate) struct Turn {
    pub(crate) node: String,
    pub(crate) from: Instant,
    pub(crate) until: Option<Instant>,
}

/// What watches saw, event by event.
#[derive(Default)]
pub(crate) struct Sight {
    cordoned: BTreeSet<String>,
    pub(crate) most_cordoned: usize,
    pub(crate) turns: Vec<Turn>,
    pods: BTreeMap<String, bool>,
    pub(crate) least_ready: usize,
    /// Each step of each slot, once: node, revision, step, and when it was seen.
    pub(crate) steps: Vec<(String, String, SlotStep, Instant)>,
}

impl Sight {
    /// The pods that are ready and not on their way out.
    pub(crate) fn ready(&self) -> usize {
        self.pods.values().filter(|ready| **ready).count()
    }

    /// The nodes that had a turn since the record was begun anew, in order.
    pub(crate) fn visited(&self) -> Vec<String> {
        let mut visited: Vec<String> = Vec::new();
        for (node, ..) in &self.steps {
            if !visited.contains(node) {
                visited.push(node.clone());
            }
        }
        visited
    }

    /// When a node was first seen at a step.
    pub(crate) fn at(&self, node: &str, step: SlotStep) -> Option<Instant> {
        self.steps.iter().find(|(one, _, seen, _)| one == node && *seen == step).map(|(.., at)| *at)
    }
}

/// The record of all watches.
#[derive(Clone, Default)]
pub(crate) struct Record(Arc<Mutex<Sight>>);

impl Record {
    fn start(client: &Client) -> Self {
        let record = Self::default();
        let config = watcher::Config::default;
        let (nodes, pods, sets) = (record.clone(), record.clone(), record.clone());
        let of_set = config().labels("kubernetes.io/os=linux");
        tokio::spawn(watch(Api::<NodeObject>::all(client.clone()), of_set, move |event| nodes.node(event)));
        let web = config().labels("app=web");
        tokio::spawn(watch(Api::<Pod>::namespaced(client.clone(), "default"), web, move |event| pods.pod(&event)));
        tokio::spawn(watch(Api::<NodeSet>::all(client.clone()), config(), move |event| sets.set(event)));
        record
    }

    pub(crate) fn look(&self) -> MutexGuard<'_, Sight> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets the extremes and the turns so far.
    pub(crate) fn restart(&self) {
        let mut sight = self.look();
        (sight.most_cordoned, sight.least_ready) = (sight.cordoned.len(), sight.ready());
        sight.turns.clear();
        sight.steps.clear();
    }

    fn node(&self, event: Event<NodeObject>) {
        let (Event::Apply(node) | Event::InitApply(node)) = event else { return };
        let (mut sight, name) = (self.look(), node.name_any());
        if is_cordoned(&node) && sight.cordoned.insert(name.clone()) {
            sight.most_cordoned = sight.most_cordoned.max(sight.cordoned.len());
            sight.turns.push(Turn { node: name, from: Instant::now(), until: None });
        } else if !is_cordoned(&node) && sight.cordoned.remove(&name) {
            let turn = sight.turns.iter_mut().rev().find(|turn| turn.node == name);
            if let Some(turn) = turn {
                turn.until = Some(Instant::now());
            }
        }
    }

    fn pod(&self, event: &Event<Pod>) {
        let mut sight = self.look();
        match event {
            // After a gap the list is made anew.
            Event::Init => return sight.pods.clear(),
            Event::InitApply(pod) | Event::Apply(pod) => {
                let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
                let ready = conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True");
                let ready = ready && pod.metadata.deletion_timestamp.is_none();
                sight.pods.insert(pod.name_any(), ready);
            }
            Event::Delete(pod) => drop(sight.pods.remove(&pod.name_any())),
            Event::InitDone => {}
        }
        if !matches!(event, Event::InitApply(_)) {
            sight.least_ready = sight.least_ready.min(sight.ready());
        }
    }

    fn set(&self, event: Event<NodeSet>) {
        let (Event::Apply(set) | Event::InitApply(set)) = event else { return };
        let mut sight = self.look();
        for slot in set.status.iter().flat_map(|status| &status.slots) {
            let known = |(node, revision, step, _): &(String, String, SlotStep, Instant)| {
                *node == slot.node && *revision == slot.revision && *step == slot.step
            };
            if !sight.steps.iter().any(known) {
                sight.steps.push((slot.node.clone(), slot.revision.clone(), slot.step, Instant::now()));
            }
        }
    }
}

async fn watch<K>(api: Api<K>, config: watcher::Config, mut see: impl FnMut(Event<K>))
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut stream = watcher(api, config).default_backoff().boxed();
    while let Some(event) = stream.next().await {
        // The API server is killed now and then: the watch is begun anew.
        if let Ok(event) = event {
            see(event);
        }
    }
}
