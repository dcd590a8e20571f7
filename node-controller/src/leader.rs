//! One of several controllers acts: the one that holds a Lease, by the protocol that all of Kubernetes uses.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// How long a leader that says nothing more is still believed.
const DURATION: Duration = Duration::from_secs(15);
/// How long a leader that can't renew still believes in itself: shorter, so that never two do.
const RENEW_LIMIT: Duration = Duration::from_secs(10);
/// How long one try may take.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(4);
/// How often it is tried.
const RETRY: Duration = Duration::from_secs(2);

/// A candidate.
pub struct Candidate {
    leases: Api<Lease>,
    name: String,
    identity: String,
    /// The lease as it was when it last changed, and when that was seen by this machine's clock: clocks of machines
    /// differ, and only changes count.
    seen: Option<(Option<String>, Instant)>,
    renewed: Option<Instant>,
    leads: watch::Sender<bool>,
}

impl Candidate {
    /// A candidate for the lease of this name.
    pub fn new(client: Client, namespace: &str, name: &str, identity: &str) -> (Self, watch::Receiver<bool>) {
        let (leads, told) = watch::channel(false);
        let leases = Api::namespaced(client, namespace);
        let candidate = Self { leases, name: name.into(), identity: identity.into(), seen: None, renewed: None, leads };
        (candidate, told)
    }

    /// Tries for ever; the receiver hears when this one leads, and when it doesn't any more.
    pub async fn stand(&mut self) {
        loop {
            // From before the request: that is when a lease that it renewed began.
            let asked = Instant::now();
            // A connection that swallows everything must not keep one in office.
            match tokio::time::timeout(ATTEMPT_LIMIT, self.attempt()).await {
                Ok(Ok(true)) => self.renewed = Some(asked),
                Ok(Ok(false)) => self.renewed = None,
                Err(_) => tracing::warn!(lease = self.name, "no answer to a question about the lease"),
                Ok(Err(error)) => tracing::warn!(%error, lease = self.name, "the lease could not be read or written"),
            }
            let leads = self.renewed.is_some_and(|at| at.elapsed() < RENEW_LIMIT);
            if self.leads.send_if_modified(|now| std::mem::replace(now, leads) != leads) {
                tracing::info!(identity = self.identity, leads, "leadership changed");
            }
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Lets the lease go, so that another one needs not wait until it is over.
    pub async fn resign(&mut self) {
        if !*self.leads.borrow() {
            return;
        }
        self.leads.send_replace(false);
        if let Ok(mut lease) = self.leases.get(&self.name).await
            && let Some(spec) = lease.spec.as_mut().filter(|spec| spec.holder_identity.as_ref() == Some(&self.identity))
        {
            spec.holder_identity = Some(String::new());
            spec.lease_duration_seconds = Some(1);
            if let Err(error) = self.leases.replace(&self.name, &PostParams::default(), &lease).await {
                tracing::warn!(%error, "the lease could not be let go; the next leader waits until it is over");
            }
        }
    }

    async fn attempt(&mut self) -> kube::Result<bool> {
        let Some(lease) = self.leases.get_opt(&self.name).await? else {
            let created = self.leases.create(&PostParams::default(), &self.lease(None, 0)).await;
            return match created {
                Ok(_) => Ok(true),
                // Another one was quicker.
                Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
                Err(error) => Err(error),
            };
        };
        let version = lease.metadata.resource_version.clone();
        if self.seen.as_ref().is_none_or(|(seen, _)| *seen != version) {
            self.seen = Some((version, Instant::now()));
        }
        let spec = lease.spec.clone().unwrap_or_default();
        let holder = spec.holder_identity.clone().unwrap_or_default();
        let over = self.seen.as_ref().is_some_and(|(_, at)| at.elapsed() > DURATION);
        if holder != self.identity && !holder.is_empty() && !over {
            return Ok(false);
        }
        let transitions = spec.lease_transitions.unwrap_or(0) + i32::from(holder != self.identity);
        let mut mine = self.lease(Some(&lease), transitions);
        mine.metadata.resource_version = lease.metadata.resource_version;
        match self.leases.replace(&self.name, &PostParams::default(), &mine).await {
            Ok(written) => {
                self.seen = Some((written.metadata.resource_version, Instant::now()));
                Ok(true)
            }
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn lease(&self, before: Option<&Lease>, transitions: i32) -> Lease {
        let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
        let held = before.and_then(|lease| lease.spec.as_ref());
        let kept = held.filter(|spec| spec.holder_identity.as_ref() == Some(&self.identity));
        let acquired =
            kept.and_then(|spec| serde_json::to_value(&spec.acquire_time).ok()).unwrap_or_else(|| json!(now));
        let spec = json!({
            "holderIdentity": self.identity,
            "leaseDurationSeconds": DURATION.as_secs(),
            "acquireTime": acquired,
            "renewTime": now,
            "leaseTransitions": transitions,
        });
        Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: serde_json::from_value(spec).ok(),
        }
    }
}
