//! Follows this node's `NodeState`.

use super::report::Report;
use crate::root::Root;
use crate::source::cluster::{self, ClusterState};
use crate::store::Store;
use anyhow::Context;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{Patch, PatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, Config};
use nodelet_api::objects::{GROUP, NodeState, NodeStateStatus, VERSION};
use nodelet_api::{DesiredState, document};
use serde_json::json;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

/// What the daemon hears of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// What it asks for changed, and is kept on disk.
    Asked,
    /// It can't be reached, or does not let us in; why.
    Away(String),
    /// It is reached.
    Reached,
}

/// The least time between two reports.
const REPORT_PAUSE: Duration = Duration::from_secs(1);
/// The first wait after a failure; doubled up to the limit, and spread, so that many nodes don't come at once.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// Who follows what.
#[derive(Clone, Debug)]
pub struct Follower {
    /// Where the host's files are.
    pub root: Root,
    /// The credential.
    pub kubeconfig: PathBuf,
    /// The namespace of revisions.
    pub namespace: String,
    /// The node's name.
    pub node: String,
}

impl Follower {
    /// Follows for ever; `reports` is what is to be said of the node.
    pub async fn follow(self, news: mpsc::Sender<News>, mut reports: watch::Receiver<Option<Report>>) {
        let mut wait = FIRST_WAIT;
        loop {
            let started = std::time::Instant::now();
            let error = match self.session(&news, &mut reports).await {
                Ok(()) => return,
                Err(error) => format!("{error:#}"),
            };
            tracing::warn!(error, "the cluster is not followed; trying again");
            if news.send(News::Away(error)).await.is_err() {
                return;
            }
            if started.elapsed() > WAIT_LIMIT {
                wait = FIRST_WAIT;
            }
            tokio::time::sleep(spread(wait, &self.node)).await;
            wait = (wait * 2).min(WAIT_LIMIT);
        }
    }

    /// One connection, until it fails. `Ok` when the daemon is gone.
    async fn session(
        &self,
        news: &mpsc::Sender<News>,
        reports: &mut watch::Receiver<Option<Report>>,
    ) -> anyhow::Result<()> {
        let client = self.client().await?;
        let objects: Api<NodeState> = Api::all(client.clone());
        let config = watcher::Config::default().fields(&format!("metadata.name={}", self.node));
        let mut watch = watcher(objects.clone(), config).applied_objects().boxed();
        let mut current: Option<NodeState> = None;
        let mut said: Option<NodeStateStatus> = None;
        let mut quiet_until = Instant::now();
        reports.mark_changed();
        loop {
            // A report waits for its time; what the cluster asks for does not wait for a report.
            let next_report = async {
                tokio::time::sleep_until(quiet_until).await;
                reports.changed().await
            };
            tokio::select! {
                change = watch.next() => {
                    let state = change.context("the watch ended")?.context("watching this node's NodeState")?;
                    if current.is_none() && news.send(News::Reached).await.is_err() {
                        return Ok(());
                    }
                    if said.is_none() {
                        said.clone_from(&state.status);
                    }
                    let first = current.is_none();
                    let asks = current.as_ref().is_none_or(|before| before.spec != state.spec);
                    current = Some(state.clone());
                    if asks && self.take_up(&client, &state).await? && news.send(News::Asked).await.is_err() {
                        return Ok(());
                    }
                    if first {
                        reports.mark_changed();
                    }
                }
                told = next_report, if current.is_some() => {
                    if told.is_err() {
                        return Ok(());
                    }
                    let report = reports.borrow_and_update().clone();
                    let (Some(report), Some(state)) = (report, &current) else { continue };
                    let status = report.status(said.as_ref(), state.metadata.generation, Timestamp::now());
                    if said.as_ref() != Some(&status) {
                        self.write(&objects, &status).await?;
                        said = Some(status);
                        quiet_until = Instant::now() + REPORT_PAUSE;
                    }
                }
            }
        }
    }

    async fn client(&self) -> anyhow::Result<Client> {
        let path = &self.kubeconfig;
        let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
        let config = config.with_context(|| format!("using {}", path.display()))?;
        Client::try_from(config).context("making a client")
    }

    /// Keeps what a `NodeState` asks for; whether it is anything new. A revision is fetched once.
    async fn take_up(&self, client: &Client, state: &NodeState) -> anyhow::Result<bool> {
        let Some(revision) = state.spec.revision.clone() else { return Ok(false) };
        let store = Store::open(&self.root)?;
        let kept = cluster::kept(&store)?;
        let content = match kept.as_ref().filter(|kept| kept.revision == revision) {
            Some(kept) => kept.state.clone(),
            None => self.fetch(client, &revision).await?,
        };
        let asked = ClusterState {
            step: state.spec.step,
            grant: state.spec.grant.clone(),
            ..ClusterState::received(revision, content)
        };
        if kept.is_some_and(|kept| kept.asks_the_same(&asked)) {
            return Ok(false);
        }
        cluster::keep(&store, &asked)?;
        Ok(true)
    }

    async fn fetch(&self, client: &Client, name: &str) -> anyhow::Result<DesiredState> {
        let revisions: Api<ControllerRevision> = Api::namespaced(client.clone(), &self.namespace);
        let revision = revisions.get(name).await.with_context(|| format!("fetching revision {name}"))?;
        let data = revision.data.map(|data| data.0).unwrap_or_default();
        let state = data.get("state").cloned().with_context(|| format!("revision {name} has no state"))?;
        document::from_value(state).map_err(|problems| anyhow::anyhow!("revision {name} is invalid:\n{problems}"))
    }

    async fn write(&self, objects: &Api<NodeState>, status: &NodeStateStatus) -> anyhow::Result<()> {
        let patch = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "NodeState",
            "metadata": {"name": self.node},
            "status": status,
        });
        let parameters = PatchParams::apply("nodelet").force();
        let written = objects.patch_status(&self.node, &parameters, &Patch::Apply(patch)).await;
        written.map(drop).context("writing this node's status")
    }
}

/// Between half of a time and all of it, differently for each node and each time.
fn spread(wait: Duration, node: &str) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(node) % 1000;
    wait / 2 + wait.mul_f64(f64::from(u32::try_from(random).unwrap_or_default()) / 2000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_spread() {
        let waits: Vec<Duration> = (0..50).map(|_| spread(Duration::from_secs(10), "n")).collect();
        assert!(waits.iter().all(|wait| (5..=10).contains(&wait.as_secs())), "{waits:?}");
        let (least, most) = (waits.iter().min().copied(), waits.iter().max().copied());
        assert!(most > least.map(|least| least + Duration::from_secs(1)), "{waits:?}");
    }
}
