//! What the cluster holds, kept up to date by watches.

use crate::act::{CLASS_LABEL, MANAGER, NODE_LABEL, Refusals};
use crate::gates::Gatekeeper;
use crate::pods::Pods;
use crate::render::render;
use crate::request::Request;
use crate::rollout::keeping;
use crate::run::Options;
use crate::sources::Sources;
use crate::volumes::Volumes;
use crate::world::{StoredRevision, World, by_name};
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Node, Secret};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::{Store, store};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use nodelet_api::objects::{CONTENTS_VERSION, NodeClass, NodeSet, NodeState, REPORTER, SIGNER};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::AbortHandle;

/// What the cluster holds.
pub(crate) struct View {
    classes: Store<DeserializeGuard<NodeClass>>,
    sets: Store<NodeSet>,
    nodes: Store<Node>,
    states: Store<NodeState>,
    revisions: Store<ControllerRevision>,
    bindings: Store<ClusterRoleBinding>,
    requests: Store<CertificateSigningRequest>,
    stored: Store<Secret>,
    leases: Store<Lease>,
    budgets: Store<PodDisruptionBudget>,
    sources: Mutex<Sources>,
    pods: Mutex<Pods>,
    volumes: Mutex<Volumes>,
    refusals: Refusals,
    gates: Gatekeeper,
    api_server: watch::Receiver<Option<String>>,
    options: Options,
    /// Something that decisions are made from changed.
    pub(crate) changed: Arc<Notify>,
}

impl View {
    pub(crate) fn start(client: &Client, options: &Options, refusals: Refusals) -> Self {
        let namespace = options.namespace.as_str();
        let changed = Arc::new(Notify::new());
        let everything = watcher::Config::default;
        let ours = || everything().labels(NODE_LABEL);
        let told = Some(&changed);
        Self {
            classes: follow(Api::all(client.clone()), everything(), told),
            sets: follow(Api::all(client.clone()), everything(), told),
            nodes: follow(Api::all(client.clone()), everything(), told),
            states: follow(Api::all(client.clone()), everything(), told),
            revisions: follow(Api::namespaced(client.clone(), namespace), everything().labels(CLASS_LABEL), told),
            bindings: follow(Api::all(client.clone()), ours(), told),
            requests: follow(Api::all(client.clone()), everything().fields(&format!("spec.signerName={SIGNER}")), told),
            stored: follow(Api::namespaced(client.clone(), namespace), ours(), told),
            // Signs of life come all the time, and that none comes is noticed by the clock.
            leases: follow(Api::namespaced(client.clone(), namespace), everything(), None),
            budgets: follow(Api::all(client.clone()), everything(), told),
            sources: Mutex::new(Sources::new(client, &changed)),
            pods: Mutex::new(Pods::new(client, &changed)),
            volumes: Mutex::new(Volumes::new(client, &changed)),
            refusals,
            gates: Gatekeeper::new(client, namespace, &changed),
            api_server: ask_version(client),
            options: options.clone(),
            changed,
        }
    }

    /// Whether everything was listed once; otherwise waits for it.
    pub(crate) async fn is_complete(&self) -> bool {
        let lists = tokio::join!(
            self.classes.wait_until_ready(),
            self.sets.wait_until_ready(),
            self.nodes.wait_until_ready(),
            self.states.wait_until_ready(),
            self.revisions.wait_until_ready(),
            self.bindings.wait_until_ready(),
            self.requests.wait_until_ready(),
            self.stored.wait_until_ready(),
            self.leases.wait_until_ready(),
            self.budgets.wait_until_ready(),
        );
        matches!(lists, (Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Ok(())))
    }

    /// Whoever does not lead looks at no gates, and runs no Jobs.
    pub(crate) fn rest(&self) {
        self.gates.rest();
    }

    /// What it holds now.
    pub(crate) fn world(&self) -> World {
        let (classes, misread) = read(&self.classes.state());
        let references: BTreeSet<_> =
            classes.values().filter_map(|class| render(class).ok()).flat_map(|one| one.state.references()).collect();
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner).read(&references);
        let states = by_name(self.states.state());
        let sets = by_name(self.sets.state());
        self.gates.watch(&sets);
        let draining = World::draining_nodes(&sets);
        let budgets = self.budgets.state();
        let (pods, covered) = {
            let mut followed = self.pods.lock().unwrap_or_else(PoisonError::into_inner);
            let pods = followed.read(&World::busy_nodes(&sets));
            let leaving = pods.iter().filter(|(node, _)| draining.contains(*node)).flat_map(|(_, pods)| pods);
            let covered = followed.read_covered(&keeping(leaving, &budgets));
            (pods, covered)
        };
        World {
            classes,
            misread,
            sources,
            pods,
            covered,
            budgets,
            refused: self.refusals.reasons(),
            volumes: self.volumes.lock().unwrap_or_else(PoisonError::into_inner).read(&draining),
            gates: self.gates.found(),
            runs: self.gates.runs(),
            api_server: self.api_server.borrow().clone(),
            own_node: self.options.own_node.clone(),
            sets,
            nodes: by_name(self.nodes.state()),
            allowed: self.bindings.state().iter().filter_map(|binding| allowed(binding, &states)).collect(),
            states,
            revisions: self.revisions.state().iter().map(|revision| stored(revision)).collect(),
            requests: self.requests.state().iter().filter_map(|request| Request::read(request)).collect(),
            stored: self.stored.state().iter().filter_map(|secret| contents(secret)).collect(),
            heard: self.leases.state().iter().filter_map(|lease| heard(lease)).collect(),
            bootstrap_groups: self.options.bootstrap_groups.iter().cloned().collect(),
            leads_since: None,
        }
    }
}

/// The classes that are understood, and why others are not, by name. A class may say something that a newer controller
/// knows and this one doesn't: that is no reason to stop for all of them.
pub(crate) fn read(
    classes: &[Arc<DeserializeGuard<NodeClass>>],
) -> (BTreeMap<String, Arc<NodeClass>>, BTreeMap<String, String>) {
    let (mut understood, mut misread) = (BTreeMap::new(), BTreeMap::new());
    for class in classes {
        match &class.0 {
            Ok(class) => drop(understood.insert(class.name_any(), Arc::new(class.clone()))),
            Err(invalid) => drop(misread.insert(class.name_any(), invalid.error.clone())),
        }
    }
    (understood, misread)
}

/// How often the API server's version is asked for: it changes with an upgrade of the control plane.
const VERSION_PAUSE: Duration = Duration::from_secs(60);

/// The API server's version, kept up to date.
fn ask_version(client: &Client) -> watch::Receiver<Option<String>> {
    let (told, version) = watch::channel(None);
    let client = client.clone();
    tokio::spawn(async move {
        while !told.is_closed() {
            if let Ok(found) = client.apiserver_version().await {
                told.send_replace(Some(found.git_version));
            }
            tokio::time::sleep(VERSION_PAUSE).await;
        }
    });
    version
}

/// The node whose rights are given by a binding. Those that belong to a `NodeState` which was deleted are about to go
/// with it, also when there is another one of the same name by now.
fn allowed(binding: &ClusterRoleBinding, states: &BTreeMap<String, Arc<NodeState>>) -> Option<String> {
    let node = binding.annotations().get(NODE_LABEL)?;
    let owner = states.get(node)?.metadata.uid.as_ref();
    let stands = binding.owner_references().iter().any(|reference| Some(&reference.uid) == owner);
    stands.then(|| node.clone())
}

fn stored(revision: &ControllerRevision) -> (String, StoredRevision) {
    let class = revision.labels().get(CLASS_LABEL).cloned().unwrap_or_default();
    let at = revision.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |time| time.0);
    (revision.name_any(), StoredRevision { class, at })
}

fn contents(secret: &Secret) -> Option<(String, String)> {
    let annotations = secret.annotations();
    Some((annotations.get(NODE_LABEL)?.clone(), annotations.get(CONTENTS_VERSION)?.clone()))
}

/// When a nodelet wrote its Lease, by the API server's clock: the node's own may be wrong.
fn heard(lease: &Lease) -> Option<(String, (Timestamp, i64))> {
    let entries = lease.metadata.managed_fields.iter().flatten();
    let written = entries.filter(|entry| entry.manager.as_deref() == Some(REPORTER));
    let Time(at) = written.filter_map(|entry| entry.time.clone()).max()?;
    let seconds = lease.spec.as_ref()?.lease_duration_seconds?;
    Some((lease.name_any(), (at, seconds.into())))
}

/// Follows the objects of a kind; what changes is told.
pub(crate) fn follow<K>(api: Api<K>, config: watcher::Config, changed: Option<&Arc<Notify>>) -> Store<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    follow_until(api, config, changed).0
}

/// The same, with what ends it.
pub(crate) fn follow_until<K>(
    api: Api<K>,
    config: watcher::Config,
    changed: Option<&Arc<Notify>>,
) -> (Store<K>, AbortHandle)
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let (reader, writer) = store();
    let changed = changed.map(Arc::clone);
    // What the API server notes of other writers is large, and nobody here reads it.
    let stream = watcher(api, config).default_backoff().modify(|object| {
        let ours = |manager: &Option<String>| matches!(manager.as_deref(), Some(MANAGER | REPORTER));
        object.managed_fields_mut().retain(|entry| ours(&entry.manager));
    });
    let mut stream = reflector(writer, stream).boxed();
    let task = tokio::spawn(async move {
        while let Some(event) = stream.next().await {
            match (event, &changed) {
                (Ok(_), Some(changed)) => changed.notify_one(),
                (Ok(_), None) => {}
                (Err(error), _) => {
                    let kind = std::any::type_name::<K>().rsplit("::").next().unwrap_or_default();
                    tracing::warn!(%error, kind, "watching failed; it goes on");
                }
            }
        }
    });
    (reader, task.abort_handle())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn one_class_that_is_not_understood_leaves_the_others() {
        let class = |name: &str, state: serde_json::Value| {
            let (api, kind) = ("nodelet.dev/v1alpha1", "NodeClass");
            let class = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "spec": {"state": state, "later": 1}});
            Arc::new(serde_json::from_value(class).unwrap())
        };
        let (understood, misread) = read(&[class("a", json!({})), class("b", json!({"packages": [{"later": 1}]}))]);
        assert_eq!(understood.keys().collect::<Vec<_>>(), ["a"]);
        assert!(misread["b"].contains("later"), "{misread:?}");
    }
}
