//! What the cluster holds, asked for once.

use crate::act::CLASS_LABEL;
use crate::view;
use crate::world::{StoredRevision, World};
use anyhow::anyhow;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::ListParams;
use kube::core::{DeserializeGuard, NamespaceResourceScope};
use kube::{Api, Client, Resource, ResourceExt};
use nodelet_api::objects::NodeClass;
use nodelet_api::suggest;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

/// Who asks the cluster.
pub(super) struct Reader {
    /// The cluster.
    pub(super) client: Client,
    /// Where node-controller runs and keeps revisions.
    pub(super) namespace: String,
}

impl Reader {
    /// Classes, sets, states, Nodes and revisions. What a person may read but need not (Nodes, revisions) is left out
    /// where it is forbidden: who may only look at the custom resources still sees how far they are.
    pub(super) async fn world(&self) -> anyhow::Result<World> {
        let (classes, sets, states, nodes, revisions) = tokio::join!(
            self.list::<DeserializeGuard<NodeClass>>("NodeClasses"),
            self.list("NodeSets"),
            self.list("NodeStates"),
            self.list("Nodes"),
            self.revisions(),
        );
        let (classes, misread) = view::read(&classes?.into_values().collect::<Vec<_>>());
        Ok(World {
            classes,
            misread,
            sets: sets?,
            states: states?,
            nodes: allowed(nodes)?,
            revisions: allowed(revisions)?,
            ..World::default()
        })
    }

    /// All objects of a kind that is in no namespace, by name.
    pub(super) async fn list<K>(&self, what: &str) -> anyhow::Result<BTreeMap<String, Arc<K>>>
    where
        K: Resource + Clone + DeserializeOwned + Debug,
        K::DynamicType: Default,
    {
        list(Api::all(self.client.clone()), what, &ListParams::default()).await
    }

    /// Revisions, by name.
    async fn revisions(&self) -> anyhow::Result<BTreeMap<String, StoredRevision>> {
        let api: Api<ControllerRevision> = self.own();
        let what = format!("ControllerRevisions in {}", self.namespace);
        let found = list(api, &what, &ListParams::default().labels(CLASS_LABEL)).await?;
        let stored = |revision: &ControllerRevision| StoredRevision {
            class: revision.labels().get(CLASS_LABEL).cloned().unwrap_or_default(),
            at: revision.creation_timestamp().map_or(Timestamp::UNIX_EPOCH, |time| time.0),
        };
        Ok(found.iter().map(|(name, revision)| (name.clone(), stored(revision))).collect())
    }

    /// What is in the controller's namespace.
    pub(super) fn own<K>(&self) -> Api<K>
    where
        K: Resource<Scope = NamespaceResourceScope>,
        K::DynamicType: Default,
    {
        Api::namespaced(self.client.clone(), &self.namespace)
    }
}

/// All objects of a kind, by name.
pub(super) async fn list<K>(
    api: Api<K>,
    what: &str,
    parameters: &ListParams,
) -> anyhow::Result<BTreeMap<String, Arc<K>>>
where
    K: Clone + DeserializeOwned + Debug + ResourceExt,
{
    let found = api.list(parameters).await.map_err(|error| explain(error, &format!("listing {what}")))?;
    Ok(found.items.into_iter().map(|object| (object.name_any(), Arc::new(object))).collect())
}

/// What may be missing is empty where it is forbidden.
pub(super) fn allowed<T: Default>(found: anyhow::Result<T>) -> anyhow::Result<T> {
    let forbidden = |error: &anyhow::Error| error.downcast_ref::<Refusal>().is_some_and(|refusal| refusal.code == 403);
    match found {
        Err(error) if forbidden(&error) => Ok(T::default()),
        other => other,
    }
}

/// What the API server answered.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct Refusal {
    /// The status; 0 when there was no answer.
    code: u16,
    /// Its sentence.
    message: String,
}

/// What went wrong, with what was tried and what to do next.
pub(super) fn explain(error: kube::Error, tried: &str) -> anyhow::Error {
    let advice = match &error {
        kube::Error::Api(status) if status.code == 404 && !status.message.contains("\" not found") => {
            "the cluster does not know them: install node-controller there (`kubectl apply -k config/default`), or choose \
             another cluster with --context"
        }
        kube::Error::Api(status) if status.code == 403 => {
            "you have no right to do that: `kubectl auth whoami` says who you are; ask an administrator of the cluster"
        }
        kube::Error::Api(status) if status.code == 401 => {
            "the cluster does not know you: renew your credential, or choose another context with --context"
        }
        kube::Error::Api(_) => "the API server refused it",
        _ => {
            "the API server can't be reached: see whether `kubectl cluster-info` can, and choose another one with --context"
        }
    };
    // Of what the API server answers, its sentence is enough; the whole answer is a page.
    let refusal = match error {
        kube::Error::Api(status) => Refusal { code: status.code, message: status.message.clone() },
        other => Refusal { code: 0, message: other.to_string() },
    };
    anyhow::Error::new(refusal).context(advice).context(tried.to_owned())
}

/// An object that somebody named.
pub(super) fn find<'a, V>(
    objects: &'a BTreeMap<String, V>,
    kind: &str,
    plural: &str,
    name: &str,
) -> anyhow::Result<&'a V> {
    // `kubectl` takes TYPE/NAME too.
    let plain = name.rsplit('/').next().unwrap_or(name);
    objects.get(plain).ok_or_else(|| missing(objects.keys(), kind, plural, plain))
}

fn missing<'a>(names: impl Iterator<Item = &'a String>, kind: &str, plural: &str, name: &str) -> anyhow::Error {
    match suggest::nearest(name, names.map(String::as_str)) {
        Some(other) => anyhow!("there is no {kind} `{name}`; do you mean `{other}`? `kubectl get {plural}` lists them"),
        None => anyhow!("there is no {kind} `{name}`: `kubectl get {plural}` lists them"),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_name_that_is_nearly_right_is_suggested() {
        let sets = BTreeMap::from([("workers".to_owned(), 1)]);
        assert_eq!(find(&sets, "NodeSet", "nodesets", "nodeset/workers").unwrap(), &1);
        let error = find(&sets, "NodeSet", "nodesets", "worker").unwrap_err().to_string();
        assert_eq!(error, "there is no NodeSet `worker`; do you mean `workers`? `kubectl get nodesets` lists them");
        let error = find(&sets, "NodeSet", "nodesets", "other").unwrap_err().to_string();
        assert_eq!(error, "there is no NodeSet `other`: `kubectl get nodesets` lists them");
    }
}
