//! The running controller: looks, decides, writes.

use crate::act::{Refusals, Writer};
use crate::batch::batches;
use crate::decide::{Intent, decide};
use crate::leader::Candidate;
use crate::probes::Probes;
use crate::view::View;
use crate::world::World;
use anyhow::Context;
use futures::{StreamExt, stream};
use jiff::Timestamp;
use kube::Client;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// How the controller runs.
#[derive(Clone, Debug)]
pub struct Options {
    /// The namespace of revisions and of the lease.
    pub namespace: String,
    /// Who this one of several is.
    pub identity: String,
    /// Groups whose bootstrap tokens may ask for any node's certificate.
    pub bootstrap_groups: Vec<String>,
    /// The node that this one runs on.
    pub own_node: Option<String>,
    /// Where probes are answered; empty turns it off.
    pub health_address: String,
}

/// Events come in bursts; one decision is enough for all of them.
const BURST: Duration = Duration::from_millis(20);
/// How long to wait after something could not be written.
const RETRY: Duration = Duration::from_secs(1);
/// How often, while nodes have their turn: time is part of what they wait for.
const BUSY_TICK: Duration = Duration::from_secs(1);
/// How long a write may take: less than what is left when a leader stops to believe in itself.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// How many nodes are written to at once. A role binding takes the API server 100 ms, because it waits for its own cache
/// before it compares rights; one after another, the rights of a thousand nodes would take minutes.
const AT_ONCE: usize = 16;
/// How often time alone is a reason to decide: silence makes no sound.
const TICK: Duration = Duration::from_secs(60);

/// Runs until it is told to stop.
pub async fn run(client: Client, options: &Options) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
    let probes = Probes::listen(&options.health_address).await?;
    let refusals = Refusals::default();
    let view = View::start(&client, options, refusals.clone());
    let writer = Writer::new(client.clone(), &options.namespace, &options.identity, refusals);
    let (mut candidate, leads) = Candidate::new(client, &options.namespace, "node-controller", &options.identity);
    tracing::info!(identity = options.identity, namespace = options.namespace, "node-controller runs");
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        () = candidate.stand() => {}
        () = keep_acting(&view, &writer, leads) => {}
        () = probes.serve(view.is_complete()) => {}
    }
    candidate.resign().await;
    tracing::info!("node-controller stops");
    Ok(())
}

/// Whether a write was refused because the object is not what was seen.
fn is_stale(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(status)) if status.code == 409)
}

/// Decides and writes, as long as this one leads.
async fn keep_acting(view: &View, writer: &Writer, mut leads: watch::Receiver<bool>) {
    let mut since = None;
    loop {
        // Also one that was lost and won again meanwhile.
        if leads.has_changed().unwrap_or(true) || !*leads.borrow() {
            since = None;
            view.rest();
        }
        if leads.wait_for(|leads| *leads).await.is_err() {
            return;
        }
        if !view.is_complete().await {
            continue;
        }
        let now = Timestamp::now();
        let world = World { leads_since: Some(*since.get_or_insert(now)), ..view.world() };
        for batch in batches(&decide(&world, now)) {
            let written =
                stream::iter(batch).for_each_concurrent(AT_ONCE, |chain| write(chain, &world, view, writer, &leads));
            written.await;
        }
        tokio::select! {
            () = view.changed.notified() => tokio::time::sleep(BURST).await,
            () = tokio::time::sleep(if world.is_busy() { BUSY_TICK } else { TICK }) => {}
            _ = leads.changed() => since = None,
        }
    }
}

/// Writes one after another, as long as this one leads.
async fn write(intents: Vec<&Intent>, world: &World, view: &View, writer: &Writer, leads: &watch::Receiver<bool>) {
    for intent in intents {
        // Not one write more than while it leads.
        if !*leads.borrow() {
            return;
        }
        // A write that hangs would outlive the leadership that it is made under.
        let written = tokio::time::timeout(WRITE_LIMIT, writer.write(intent, world)).await;
        let written = written.unwrap_or_else(|_| Err(anyhow::anyhow!("no answer from the API server")));
        // Somebody wrote meanwhile: what was decided is looked at again.
        if written.as_ref().is_err_and(is_stale) {
            view.changed.notify_one();
            continue;
        }
        if let Err(error) = written {
            tracing::warn!(error = format!("{error:#}"), "it will be tried again");
            tokio::time::sleep(RETRY).await;
            view.changed.notify_one();
        }
    }
}
