//! A sign of life for those who look at many nodes: a Lease, renewed at a low rate.

use anyhow::Context;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use nodelet_api::objects::{HEARTBEAT_SECONDS, REPORTER};
use serde_json::json;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;
use tokio::time::Instant;

/// When the next one is due.
pub(super) struct Beat {
    leases: Api<Lease>,
    node: String,
    due: Instant,
}

impl Beat {
    /// The first one comes soon, at another moment on each node: nodes that lost the API server together come back
    /// together.
    pub(super) fn new(client: &Client, namespace: &str, node: &str) -> Self {
        let random = RandomState::new().hash_one(node) % (HEARTBEAT_SECONDS * 100);
        let due = Instant::now() + Duration::from_millis(random);
        Self { leases: Api::namespaced(client.clone(), namespace), node: node.to_owned(), due }
    }

    /// Waits until it is due.
    pub(super) async fn due(&self) {
        tokio::time::sleep_until(self.due).await;
    }

    /// Says that the node lives.
    pub(super) async fn beat(&mut self) -> anyhow::Result<()> {
        let lease = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.node},
            "spec": {
                "holderIdentity": self.node,
                // Three that did not come are a silence.
                "leaseDurationSeconds": 3 * HEARTBEAT_SECONDS,
                "renewTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string(),
            },
        });
        let parameters = PatchParams::apply(REPORTER).force();
        let written = self.leases.patch(&self.node, &parameters, &Patch::Apply(lease)).await;
        self.due = Instant::now() + Duration::from_secs(HEARTBEAT_SECONDS);
        match written {
            // Who looks at many nodes misses it; the node itself is reached all the same, and goes on to follow.
            Err(kube::Error::Api(refused)) => tracing::warn!(%refused, "this node's Lease was not written"),
            other => drop(other.context("writing this node's Lease")?),
        }
        Ok(())
    }
}
