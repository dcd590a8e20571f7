//! Secrets and `ConfigMap`s that classes take contents from: followed in the namespaces that a class names, and in no
//! others.

use crate::view::follow;
use crate::world::Source;
use futures::FutureExt;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher;
use kube::{Api, Client, Resource};
use nodelet_api::state::{ContentRef, Origin};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A namespace that can't be listed for so long may not be read.
const PATIENCE: Duration = Duration::from_secs(10);

/// What is followed.
pub(crate) struct Sources {
    client: Client,
    changed: Arc<Notify>,
    secrets: BTreeMap<String, (Store<Secret>, Instant)>,
    maps: BTreeMap<String, (Store<ConfigMap>, Instant)>,
}

impl Sources {
    pub(crate) fn new(client: &Client, changed: &Arc<Notify>) -> Self {
        let (secrets, maps) = (BTreeMap::new(), BTreeMap::new());
        Self { client: client.clone(), changed: Arc::clone(changed), secrets, maps }
    }

    /// Reads what is referred to; a namespace that is new is followed from now on.
    pub(crate) fn read(&mut self, references: &BTreeSet<ContentRef>) -> BTreeMap<ContentRef, Source> {
        let mut read = BTreeMap::new();
        for reference in references {
            let namespace = &reference.namespace;
            let source = match reference.origin {
                Origin::Secret => {
                    let entry = self.secrets.entry(namespace.clone()).or_insert_with(|| {
                        let api = Api::namespaced(self.client.clone(), namespace);
                        (follow(api, watcher::Config::default(), Some(&self.changed)), Instant::now())
                    });
                    find(entry, reference, |secret: &Secret, key| {
                        secret.data.as_ref()?.get(key).map(|bytes| bytes.0.clone())
                    })
                }
                Origin::ConfigMap => {
                    let entry = self.maps.entry(namespace.clone()).or_insert_with(|| {
                        let api = Api::namespaced(self.client.clone(), namespace);
                        (follow(api, watcher::Config::default(), Some(&self.changed)), Instant::now())
                    });
                    find(entry, reference, |map: &ConfigMap, key| {
                        let text =
                            map.data.as_ref().and_then(|data| data.get(key)).map(|text| text.clone().into_bytes());
                        text.or_else(|| map.binary_data.as_ref()?.get(key).map(|bytes| bytes.0.clone()))
                    })
                }
            };
            read.insert(reference.clone(), source);
        }
        read
    }
}

fn find<K>(
    (store, since): &(Store<K>, Instant),
    reference: &ContentRef,
    content: impl Fn(&K, &str) -> Option<Vec<u8>>,
) -> Source
where
    K: Resource<DynamicType = ()> + Clone + 'static,
{
    let listed = store.wait_until_ready().now_or_never().is_some_and(|ready| ready.is_ok());
    if !listed {
        return if since.elapsed() > PATIENCE { Source::Missing } else { Source::Unknown };
    }
    let Some(object) = store.get(&ObjectRef::new(&reference.name).within(&reference.namespace)) else {
        return Source::Missing;
    };
    let metadata = object.meta();
    let stamp = format!(
        "{}/{}",
        metadata.uid.as_deref().unwrap_or_default(),
        metadata.resource_version.as_deref().unwrap_or_default()
    );
    content(&object, &reference.key).map_or(Source::Missing, |content| Source::Found { content, stamp })
}
