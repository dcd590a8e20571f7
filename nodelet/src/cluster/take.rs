//! Takes up what a `NodeState` asks for: its revision, and the contents that only this node may read.

use crate::contents::Contents;
use crate::root::Root;
use crate::source::cluster::{self, ClusterState};
use crate::store::Store;
use anyhow::{Context, bail};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Secret;
use kube::{Api, Client, ResourceExt};
use nodelet_api::objects::{CONTENTS_VERSION, NodeSecrets, NodeState};
use nodelet_api::{DesiredState, document};
use serde_json::Value;
use std::time::Duration;

/// A Secret that is older than its name in the `NodeState` is looked at again.
const LOOKS: u32 = 5;

/// What became of what a `NodeState` asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is new, and kept on disk.
    New,
    /// It is what was asked for before.
    Same,
    /// Its revision is not understood, and nothing was taken up; why.
    NotUnderstood(String),
}

/// A revision that says something which this nodelet does not know. To leave that out would make the node something
/// else than the class says, so nothing of it is done.
#[derive(Debug, thiserror::Error)]
#[error(
    "revision {revision} is not understood by nodelet {}, and nothing was changed: {problems}; if a newer version knows \
     that, nodelet must be upgraded first",
    env!("CARGO_PKG_VERSION")
)]
struct NotUnderstood {
    revision: String,
    problems: String,
}

/// What reads from the cluster and keeps on disk.
pub(super) struct Taker<'a> {
    pub(super) root: &'a Root,
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
}

impl Taker<'_> {
    /// Keeps what a `NodeState` asks for. A revision is fetched once.
    pub(super) async fn take_up(&self, state: &NodeState) -> anyhow::Result<Taken> {
        let Some(revision) = state.spec.revision.clone() else { return Ok(Taken::Same) };
        let store = Store::open(self.root)?;
        let kept = cluster::kept(&store)?;
        let content = match kept.as_ref().filter(|kept| kept.revision == revision) {
            Some(kept) => kept.state.clone(),
            None => match understand(&revision, &self.fetch(&revision).await?) {
                Ok(content) => content,
                Err(error) => return Ok(Taken::NotUnderstood(error.to_string())),
            },
        };
        if let Some(secrets) = state.spec.secrets.as_ref().filter(|one| !Contents::is_kept(&store, &one.version)) {
            self.contents(secrets).await?.keep(&store)?;
        }
        let asked = ClusterState {
            step: state.spec.step,
            grant: state.spec.grant.clone(),
            contents: state.spec.secrets.as_ref().map(|secrets| secrets.version.clone()),
            units: state.spec.units.clone(),
            ..ClusterState::received(revision, content)
        };
        if kept.is_some_and(|kept| kept.asks_the_same(&asked)) {
            return Ok(Taken::Same);
        }
        cluster::keep(&store, &asked)?;
        Ok(Taken::New)
    }

    /// A revision as it is stored.
    async fn fetch(&self, name: &str) -> anyhow::Result<Value> {
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), self.namespace);
        let revision = revisions.get(name).await.with_context(|| format!("fetching revision {name}"))?;
        Ok(revision.data.map(|data| data.0).unwrap_or_default())
    }

    async fn contents(&self, wanted: &NodeSecrets) -> anyhow::Result<Contents> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), self.namespace);
        let NodeSecrets { name, version } = wanted;
        for look in 1..=LOOKS {
            let secret = secrets.get(name).await.with_context(|| format!("reading the Secret {name}"))?;
            if secret.annotations().get(CONTENTS_VERSION) == Some(version) {
                let slots = secret.data.unwrap_or_default().into_iter().map(|(slot, bytes)| (slot, bytes.0));
                return Ok(Contents::new(version, slots.collect()));
            }
            tokio::time::sleep(Duration::from_millis(100) * look).await;
        }
        bail!("the Secret {name} is not of version {version}, which the NodeState names")
    }
}

/// The state in a revision. What is not known in it makes all of it unknown.
fn understand(revision: &str, data: &Value) -> Result<DesiredState, NotUnderstood> {
    let not = |problems: String| NotUnderstood { revision: revision.to_owned(), problems };
    let state = data.get("state").cloned().ok_or_else(|| not("it has no state".to_owned()))?;
    document::from_value(state).map_err(|problems| not(problems.to_string().trim_end().replace('\n', "; ")))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_revision_of_the_future_is_refused_by_its_field() {
        let data = json!({"state": {"files": [{"path": "/a", "content": "x", "later": true}], "packages": []}});
        let said = understand("worker-1", &data).unwrap_err().to_string();
        assert!(said.contains("revision worker-1 is not understood by nodelet 0."), "{said}");
        assert!(said.contains("files[0].later") && said.contains("nodelet must be upgraded first"), "{said}");
        let said = understand("worker-1", &json!({})).unwrap_err().to_string();
        assert!(said.contains("it has no state"), "{said}");
        let known = json!({"state": {"files": [{"path": "/a", "content": "x"}]}, "later": 1});
        assert_eq!(understand("worker-1", &known).unwrap().files.len(), 1, "what is beside the state is no part of it");
    }
}
