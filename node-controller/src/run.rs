//! The running controller: watches, decides, writes.

use crate::act::{CLASS_LABEL, NODE_LABEL, Writer};
use crate::decide::decide;
use crate::leader::Candidate;
use crate::probes::Probes;
use crate::world::{World, by_name};
use anyhow::Context;
use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::runtime::reflector::{Store, store};
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, Resource, ResourceExt};
use nodelet_api::objects::{NodeClass, NodeSet, NodeState};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, watch};

/// How the controller runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespace of revisions and of the lease.
    pub namespace: String,
    /// Who this one of several is.
    pub identity: String,
    /// Where probes are answered; empty turns it off.
    pub health_address: String,
}

/// Events come in bursts; one decision is enough for all of them.
const BURST: Duration = Duration::from_millis(20);
/// How long to wait after something could not be written.
const RETRY: Duration = Duration::from_secs(1);

/// Runs until it is told to stop.
pub async fn run(client: Client, options: &Options) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let probes = Probes::listen(&options.health_address).await?;
    let view = View::start(&client, &options.namespace);
    let writer = Writer::new(client.clone(), &options.namespace);
    let (mut candidate, leads) = Candidate::new(client, &options.namespace, "node-controller", &options.identity);
    tracing::info!(identity = options.identity, namespace = options.namespace, "node-controller runs");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = candidate.stand() => {}
        () = view.keep_acting(&writer, leads) => {}
        () = probes.serve(view.is_complete()) => {}
    }
    candidate.resign().await;
    tracing::info!("node-controller stops");
    Ok(())
}

/// What the cluster holds, kept up to date.
struct View {
    classes: Store<NodeClass>,
    sets: Store<NodeSet>,
    nodes: Store<Node>,
    states: Store<NodeState>,
    revisions: Store<ControllerRevision>,
    bindings: Store<ClusterRoleBinding>,
    changed: Arc<Notify>,
}

impl View {
    fn start(client: &Client, namespace: &str) -> Self {
        let changed = Arc::new(Notify::new());
        let everything = watcher::Config::default;
        let revisions = Api::namespaced(client.clone(), namespace);
        Self {
            classes: follow(Api::all(client.clone()), everything(), &changed),
            sets: follow(Api::all(client.clone()), everything(), &changed),
            nodes: follow(Api::all(client.clone()), everything(), &changed),
            states: follow(Api::all(client.clone()), everything(), &changed),
            revisions: follow(revisions, everything().labels(CLASS_LABEL), &changed),
            bindings: follow(Api::all(client.clone()), everything().labels(NODE_LABEL), &changed),
            changed,
        }
    }

    /// Decides and writes, as long as this one leads.
    async fn keep_acting(&self, writer: &Writer, mut leads: watch::Receiver<bool>) {
        loop {
            if leads.wait_for(|leads| *leads).await.is_err() {
                return;
            }
            if !self.is_complete().await {
                continue;
            }
            let world = self.world();
            for intent in decide(&world, &Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()) {
                // Not one write more than while it leads.
                if !*leads.borrow() {
                    break;
                }
                if let Err(error) = writer.write(&intent, &world).await {
                    tracing::warn!(error = format!("{error:#}"), "it will be tried again");
                    tokio::time::sleep(RETRY).await;
                    self.changed.notify_one();
                }
            }
            tokio::select! {
                () = self.changed.notified() => tokio::time::sleep(BURST).await,
                _ = leads.changed() => {}
            }
        }
    }

    /// Whether everything was listed once; otherwise waits for it.
    async fn is_complete(&self) -> bool {
        let lists = tokio::join!(
            self.classes.wait_until_ready(),
            self.sets.wait_until_ready(),
            self.nodes.wait_until_ready(),
            self.states.wait_until_ready(),
            self.revisions.wait_until_ready(),
            self.bindings.wait_until_ready(),
        );
        matches!(lists, (Ok(()), Ok(()), Ok(()), Ok(()), Ok(()), Ok(())))
    }

    fn world(&self) -> World {
        World {
            classes: by_name(self.classes.state()),
            sets: by_name(self.sets.state()),
            nodes: by_name(self.nodes.state()),
            states: by_name(self.states.state()),
            allowed: self.bindings.state().iter().filter_map(|role| role.labels().get(NODE_LABEL).cloned()).collect(),
            revisions: self.revisions.state().iter().map(|revision| revision.name_any()).collect(),
        }
    }
}

/// Follows the objects of a kind; what changes is told.
fn follow<K>(api: Api<K>, config: watcher::Config, changed: &Arc<Notify>) -> Store<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let (reader, writer) = store();
    let changed = Arc::clone(changed);
    // What the API server notes for itself is large, and nobody here reads it.
    let stream = watcher(api, config).default_backoff().modify(|object| object.managed_fields_mut().clear());
    let mut stream = reflector(writer, stream).boxed();
    tokio::spawn(async move {
        while let Some(event) = stream.next().await {
            match event {
                Ok(_) => changed.notify_one(),
                Err(error) => tracing::warn!(%error, "watching failed; it goes on"),
            }
        }
    });
    reader
}
