//! The pods of nodes whose turn it is. Of all others nobody needs to know, and a cluster has many.

use crate::view::follow_until;
use futures::FutureExt;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Client};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// What is followed.
pub(crate) struct Pods {
    client: Client,
    changed: Arc<Notify>,
    nodes: BTreeMap<String, (Store<Pod>, AbortHandle)>,
}

impl Pods {
    pub(crate) fn new(client: &Client, changed: &Arc<Notify>) -> Self {
        Self { client: client.clone(), changed: Arc::clone(changed), nodes: BTreeMap::new() }
    }

    /// The pods of these nodes, as far as they are known; from now on these are followed, and no others.
    pub(crate) fn read(&mut self, wanted: &BTreeSet<String>) -> BTreeMap<String, Vec<Arc<Pod>>> {
        self.nodes.retain(|node, (_, task)| {
            let stays = wanted.contains(node);
            if !stays {
                task.abort();
            }
            stays
        });
        for node in wanted {
            if !self.nodes.contains_key(node) {
                let config = watcher::Config::default().fields(&format!("spec.nodeName={node}"));
                let followed = follow_until(Api::all(self.client.clone()), config, Some(&self.changed));
                self.nodes.insert(node.clone(), followed);
            }
        }
        let known = self
            .nodes
            .iter()
            .filter(|(_, (store, _))| store.wait_until_ready().now_or_never().is_some_and(|ready| ready.is_ok()));
        known.map(|(node, (store, _))| (node.clone(), store.state())).collect()
    }
}
