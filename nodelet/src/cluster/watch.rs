//! One watch on one object.
//!
//! When a watch ends before its time, the API server is gone, and every node knows it in the same moment. So this one is
//! not resumed by itself, as libraries do: whoever uses it comes back when its own time has come.

use anyhow::{Context, bail};
use futures::StreamExt;
use futures::stream::BoxStream;
use kube::Api;
use kube::api::{ListParams, WatchEvent, WatchParams};
use nodelet_api::objects::NodeState;
use std::time::{Duration, Instant};

/// How long one request lasts: the longest that the library allows. Nodes that come at different times stay apart.
const LASTS: u32 = 290;

/// What happened to the object.
#[derive(Debug)]
pub(super) enum Change {
    /// It is there, as this.
    Is(Box<NodeState>),
    /// It was looked for, and isn't there.
    Missing,
    /// It was removed.
    Gone,
}

/// What was asked, as far as it got.
enum Asked {
    /// Nothing yet.
    Nothing,
    /// What is there; changes since this version are next.
    Listed(String),
    /// Changes.
    Following { changes: BoxStream<'static, kube::Result<WatchEvent<NodeState>>>, since: Instant, version: String },
}

/// The watch.
pub(super) struct Watch {
    api: Api<NodeState>,
    name: String,
    asked: Asked,
}

impl Watch {
    pub(super) fn new(api: Api<NodeState>, name: &str) -> Self {
        Self { api, name: name.to_owned(), asked: Asked::Nothing }
    }

    /// The next change. May be dropped while it waits, and asked again.
    pub(super) async fn next(&mut self) -> anyhow::Result<Change> {
        let selector = format!("metadata.name={}", self.name);
        loop {
            match &mut self.asked {
                Asked::Nothing => {
                    let list = self.api.list(&ListParams::default().fields(&selector)).await;
                    let mut list = list.context("reading this node's NodeState")?;
                    self.asked = Asked::Listed(list.metadata.resource_version.take().unwrap_or_default());
                    return Ok(list.items.pop().map_or(Change::Missing, |state| Change::Is(Box::new(state))));
                }
                Asked::Listed(version) => {
                    let version = version.clone();
                    let parameters = WatchParams::default().fields(&selector).timeout(LASTS);
                    let changes =
                        self.api.watch(&parameters, &version).await.context("watching this node's NodeState")?;
                    self.asked = Asked::Following { changes: changes.boxed(), since: Instant::now(), version };
                }
                Asked::Following { changes, since, version } => match changes.next().await {
                    Some(Ok(WatchEvent::Added(state) | WatchEvent::Modified(state))) => {
                        *version = state.metadata.resource_version.clone().unwrap_or_default();
                        return Ok(Change::Is(Box::new(state)));
                    }
                    Some(Ok(WatchEvent::Deleted(state))) => {
                        *version = state.metadata.resource_version.clone().unwrap_or_default();
                        return Ok(Change::Gone);
                    }
                    Some(Ok(WatchEvent::Bookmark(mark))) => *version = mark.metadata.resource_version,
                    // Changes since then are forgotten: what is there is read anew.
                    Some(Ok(WatchEvent::Error(status))) if status.code == 410 => self.asked = Asked::Nothing,
                    Some(Ok(WatchEvent::Error(status))) => bail!("watching this node's NodeState: {}", status.message),
                    Some(Err(error)) => return Err(error).context("watching this node's NodeState"),
                    None if since.elapsed() + Duration::from_secs(30) < Duration::from_secs(LASTS.into()) => {
                        bail!("the watch on this node's NodeState ended before its time");
                    }
                    None => self.asked = Asked::Listed(std::mem::take(version)),
                },
            }
        }
    }
}
