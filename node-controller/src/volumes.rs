//! The volumes that are attached to nodes whose pods are leaving. Of all others nobody needs to know: attachments are
//! followed while a node is drained, and volumes while such a node has any.

use crate::view::follow_until;
use crate::world::{Attached, by_name};
use futures::FutureExt;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// What is followed.
pub(crate) struct Volumes {
    client: Client,
    changed: Arc<Notify>,
    attachments: Followed<VolumeAttachment>,
    persistent: Followed<PersistentVolume>,
}

impl Volumes {
    pub(crate) fn new(client: &Client, changed: &Arc<Notify>) -> Self {
        let (attachments, persistent) = (Followed(None), Followed(None));
        Self { client: client.clone(), changed: Arc::clone(changed), attachments, persistent }
    }

    /// The volumes of these nodes, as far as they are known.
    pub(crate) fn read(&mut self, nodes: &BTreeSet<String>) -> BTreeMap<String, Vec<Attached>> {
        let attachments = self.attachments.read(!nodes.is_empty(), &self.client, &self.changed);
        let of_nodes = attachments.iter().flatten().filter(|one| nodes.contains(&one.spec.node_name));
        let of_nodes: Vec<&Arc<VolumeAttachment>> = of_nodes.collect();
        let named = of_nodes.iter().any(|one| one.spec.source.persistent_volume_name.is_some());
        let volumes = self.persistent.read(named, &self.client, &self.changed);
        if attachments.is_none() || (named && volumes.is_none()) {
            return BTreeMap::new();
        }
        let volumes = by_name(volumes.unwrap_or_default());
        let mut found: BTreeMap<String, Vec<Attached>> = nodes.iter().map(|node| (node.clone(), Vec::new())).collect();
        for attachment in of_nodes {
            found.entry(attachment.spec.node_name.clone()).or_default().push(describe(attachment, &volumes));
        }
        found
    }
}

fn describe(attachment: &VolumeAttachment, volumes: &BTreeMap<String, Arc<PersistentVolume>>) -> Attached {
    let source = &attachment.spec.source;
    let volume = source.persistent_volume_name.clone().unwrap_or_else(|| format!("of {}", attachment.spec.attacher));
    let claim = volumes.get(&volume).and_then(|volume| volume.spec.as_ref()?.claim_ref.clone());
    let claim = claim.and_then(|claim| Some((claim.namespace?, claim.name?)));
    Attached { volume, claim }
}

/// What can't be listed for so long may not be read, by a controller that is newer than its rights for example: a drain does
/// not wait for that.
const PATIENCE: Duration = Duration::from_secs(10);

/// Objects of a kind that are followed at times, and since when.
struct Followed<K: Resource + 'static>(Option<(Store<K>, AbortHandle, Instant)>)
where
    K::DynamicType: Eq + Hash;

impl<K> Followed<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    /// All of them, once they are listed. When nobody wants to know, they are not followed any more.
    fn read(&mut self, wanted: bool, client: &Client, changed: &Arc<Notify>) -> Option<Vec<Arc<K>>> {
        if !wanted {
            if let Some((_, task, _)) = self.0.take() {
                task.abort();
            }
            return None;
        }
        let (store, _, since) = self.0.get_or_insert_with(|| {
            let (store, task) = follow_until(Api::all(client.clone()), watcher::Config::default(), Some(changed));
            (store, task, Instant::now())
        });
        let listed = store.wait_until_ready().now_or_never().is_some_and(|ready| ready.is_ok());
        (listed || since.elapsed() > PATIENCE).then(|| store.state())
    }
}
