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
use std::time::Duration;

/// A Secret that is older than its name in the `NodeState` is looked at again.
const LOOKS: u32 = 5;

/// What reads from the cluster and keeps on disk.
pub(super) struct Taker<'a> {
    pub(super) root: &'a Root,
    pub(super) client: &'a Client,
    pub(super) namespace: &'a str,
}

impl Taker<'_> {
    /// Keeps what a `NodeState` asks for; whether it is anything new. A revision is fetched once.
    pub(super) async fn take_up(&self, state: &NodeState) -> anyhow::Result<bool> {
        let Some(revision) = state.spec.revision.clone() else { return Ok(false) };
        let store = Store::open(self.root)?;
        let kept = cluster::kept(&store)?;
        let content = match kept.as_ref().filter(|kept| kept.revision == revision) {
            Some(kept) => kept.state.clone(),
            None => self.fetch(&revision).await?,
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
            return Ok(false);
        }
        cluster::keep(&store, &asked)?;
        Ok(true)
    }

    async fn fetch(&self, name: &str) -> anyhow::Result<DesiredState> {
        let revisions: Api<ControllerRevision> = Api::namespaced(self.client.clone(), self.namespace);
        let revision = revisions.get(name).await.with_context(|| format!("fetching revision {name}"))?;
        let data = revision.data.map(|data| data.0).unwrap_or_default();
        let state = data.get("state").cloned().with_context(|| format!("revision {name} has no state"))?;
        document::from_value(state).map_err(|problems| anyhow::anyhow!("revision {name} is invalid:\n{problems}"))
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
