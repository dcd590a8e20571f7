//! The pods of nodes whose turn it is, and of budgets that hold such a node up. Of all others nobody needs to know, and a
//! cluster has many.

use crate::rollout::selector;
use crate::view::follow_until;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// What is followed.
pub(crate) struct Pods {
    client: Client,
    changed: Arc<Notify>,
    nodes: Followed<String>,
    /// By the budget, and its selector.
    covered: Followed<(String, String)>,
}

impl Pods {
    pub(crate) fn new(client: &Client, changed: &Arc<Notify>) -> Self {
        Self { client: client.clone(), changed: Arc::clone(changed), nodes: BTreeMap::new(), covered: BTreeMap::new() }
    }

    /// The pods of these nodes, as far as they are known; from now on these are followed, and no others.
    pub(crate) fn read(&mut self, wanted: &BTreeSet<String>) -> BTreeMap<String, Vec<Arc<Pod>>> {
        keep(&mut self.nodes, |node| wanted.contains(node));
        for node in wanted {
            if !self.nodes.contains_key(node) {
                let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
                let followed = follow_until(Api::all(self.client.clone()), config, Some(&self.changed));
                self.nodes.insert(node.clone(), followed);
            }
        }
        known(&self.nodes)
    }

    /// The pods of these budgets, as far as they are known: those that are not ready are why a budget allows nothing.
    pub(crate) fn read_covered(
        &mut self,
        budgets: &BTreeMap<String, &PodDisruptionBudget>,
    ) -> BTreeMap<String, Vec<Arc<Pod>>> {
        let labels = |budget: &PodDisruptionBudget| selector(budget).map(|one| one.to_string()).unwrap_or_default();
        let wanted: BTreeMap<(String, String), &PodDisruptionBudget> =
            budgets.iter().map(|(name, budget)| ((name.clone(), labels(budget)), *budget)).collect();
        keep(&mut self.covered, |key| wanted.contains_key(key));
        for (key, budget) in wanted {
            let (client, namespace) = (self.client.clone(), budget.namespace().unwrap_or_default());
            let config = watcher::Config::default().labels(&key.1);
            let begin = || follow_until(Api::namespaced(client, &namespace), config, Some(&self.changed));
            self.covered.entry(key).or_insert_with(begin);
        }
        known(&self.covered).into_iter().map(|((name, _), pods)| (name, pods)).collect()
    }
}

type Followed<K> = BTreeMap<K, (Store<Pod>, AbortHandle)>;

/// Ends what nobody needs any more.
fn keep<K: Ord>(followed: &mut Followed<K>, wanted: impl Fn(&K) -> bool) {
    followed.retain(|key, (_, task)| {
        let stays = wanted(key);
        if !stays {
            task.abort();
        }
        stays
    });
}

/// What was listed.
fn known<K: Ord + Clone>(followed: &Followed<K>) -> BTreeMap<K, Vec<Arc<Pod>>> {
    let listed = |store: &Store<Pod>| store.wait_until_ready().now_or_never().is_some_and(|ready| ready.is_ok());
    let known = followed.iter().filter(|(_, (store, _))| listed(store));
    known.map(|(key, (store, _))| (key.clone(), store.state())).collect()
}
