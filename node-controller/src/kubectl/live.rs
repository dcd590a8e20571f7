//! What the cluster holds, kept up to date by watches.

use super::read::explain;
use crate::view::{follow, read};
use crate::world::{World, by_name};
use anyhow::Context;
use k8s_openapi::api::core::v1::Node;
use kube::api::ListParams;
use kube::core::DeserializeGuard;
use kube::runtime::reflector::Store;
use kube::runtime::watcher;
use kube::{Api, Client};
use nodelet_api::objects::{NodeClass, NodeSet, NodeState};
use std::sync::Arc;
use tokio::sync::Notify;

/// Watches.
pub(super) struct Live {
    classes: Store<DeserializeGuard<NodeClass>>,
    sets: Store<NodeSet>,
    states: Store<NodeState>,
    /// Where they may be read.
    nodes: Option<Store<Node>>,
    changed: Arc<Notify>,
}

impl Live {
    /// Watches everything that is shown of sets, and waits until it is known.
    pub(super) async fn start(client: &Client) -> anyhow::Result<Self> {
        // A lost connection is told while the watch tries again.
        let _ = tracing_subscriber::fmt()
            .with_max_level(tracing_subscriber::filter::LevelFilter::WARN)
            .with_writer(std::io::stderr)
            .try_init();
        // Asked once before: a watch tries for ever, also what can't work.
        let one = ListParams::default().limit(1);
        let sets: Api<NodeSet> = Api::all(client.clone());
        sets.list(&one).await.map_err(|error| explain(error, "watching NodeSets"))?;
        let nodes: Api<Node> = Api::all(client.clone());
        let may = nodes.list(&one).await.is_ok();
        let changed = Arc::new(Notify::new());
        let config = watcher::Config::default;
        let live = Self {
            classes: follow(Api::all(client.clone()), config(), Some(&changed)),
            sets: follow(sets, config(), Some(&changed)),
            states: follow(Api::all(client.clone()), config(), Some(&changed)),
            nodes: may.then(|| follow(nodes, config(), Some(&changed))),
            changed,
        };
        live.classes.wait_until_ready().await.context("watching NodeClasses")?;
        live.sets.wait_until_ready().await.context("watching NodeSets")?;
        live.states.wait_until_ready().await.context("watching NodeStates")?;
        if let Some(nodes) = &live.nodes {
            nodes.wait_until_ready().await.context("watching Nodes")?;
        }
        Ok(live)
    }

    /// What is known now.
    pub(super) fn world(&self) -> World {
        let (classes, misread) = read(&self.classes.state());
        World {
            classes,
            misread,
            sets: by_name(self.sets.state()),
            states: by_name(self.states.state()),
            nodes: self.nodes.as_ref().map(|nodes| by_name(nodes.state())).unwrap_or_default(),
            ..World::default()
        }
    }

    /// Waits until something is other than it was.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }
}
