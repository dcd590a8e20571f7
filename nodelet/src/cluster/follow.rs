//! Follows this node's `NodeState`.

use super::heartbeat;
use super::report::Report;
use super::take::{Taken, Taker};
use super::watch::{Change, Watch};
use crate::identity::{Credential, Identity, IdentityError};
use crate::root::Root;
use anyhow::Context;
use jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams};
use nodelet_api::objects::{self, GROUP, NodeState, NodeStateStatus, VERSION};
use serde_json::json;
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
    /// It asks for something that is not understood, and why; `None` when that is over.
    NotUnderstood(Option<String>),
}

/// The least time between two reports.
const REPORT_PAUSE: Duration = Duration::from_secs(1);
/// The longest first wait after a failure, doubled up to the limit. Each wait is anything up to that: when an API server
/// restarts, all nodes lose it in the same moment, and must not come back in the same moment.
const FIRST_WAIT: Duration = Duration::from_secs(16);
/// The same when it answers and refuses: a node's rights come a moment after its `NodeState`.
const REFUSED_WAIT: Duration = Duration::from_secs(4);
const WAIT_LIMIT: Duration = Duration::from_secs(120);
/// How often a file that is not there yet is looked for; only the first round of the node makes it.
const FILE_WAIT: Duration = Duration::from_secs(30);
/// What is said while nobody hands out anything.
const NO_STATE: &str = "its NodeState does not exist: does a NodeSet select this node?";
/// What the API server says of a field that its definitions don't have.
const UNDECLARED: &str = "field not declared in schema";
/// A renewal that failed is tried again after this part of what is left of the certificate.
const RENEWAL_RETRIES: i32 = 10;

/// Who follows what.
#[derive(Clone, Debug)]
pub struct Follower {
    /// Where the host's files are.
    pub root: Root,
    /// Who the node is to the cluster.
    pub identity: Identity,
    /// The namespace of revisions.
    pub namespace: String,
    /// The node's name.
    pub node: String,
}

/// What ended a session.
enum End {
    /// The daemon is gone.
    Stopped,
    /// There is a newer credential.
    Renewed(Credential),
}

impl Follower {
    /// Follows for ever; `reports` is what is to be said of the node.
    pub async fn follow(self, news: mpsc::Sender<News>, mut reports: watch::Receiver<Option<Report>>) {
        let (mut first, mut wait) = (FIRST_WAIT, FIRST_WAIT);
        let mut credential = None;
        loop {
            let started = Instant::now();
            let error = match Box::pin(self.attempt(&mut credential, &news, &mut reports)).await {
                Ok(End::Stopped) => return,
                Ok(End::Renewed(newer)) => {
                    credential = Some(newer);
                    continue;
                }
                Err(error) => error,
            };
            // The certificate may be the reason, and a file may hold another one by now.
            credential = None;
            let not_yet = matches!(error.downcast_ref(), Some(IdentityError::Kubeconfig { .. }));
            let refused = matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.code == 403);
            let error = format!("{error:#}");
            tracing::warn!(error, "the cluster is not followed; trying again");
            if news.send(News::Away(error)).await.is_err() {
                return;
            }
            if not_yet {
                // What a round does may bring the file.
                tokio::select! {
                    () = tokio::time::sleep(FILE_WAIT) => {}
                    told = reports.changed() => {
                        if told.is_err() {
                            return;
                        }
                        tokio::time::sleep(REPORT_PAUSE).await;
                    }
                }
                continue;
            }
            let next = if refused { REFUSED_WAIT } else { FIRST_WAIT };
            // What went well for a while, and what fails for another reason, begins anew.
            if started.elapsed() > FIRST_WAIT || next != first {
                (first, wait) = (next, next);
            }
            tokio::time::sleep(spread(wait, &self.node)).await;
            wait = (wait * 2).min(WAIT_LIMIT);
        }
    }

    /// Gets a credential, and follows until something fails or the credential is renewed.
    async fn attempt(
        &self,
        known: &mut Option<Credential>,
        news: &mpsc::Sender<News>,
        reports: &mut watch::Receiver<Option<Report>>,
    ) -> anyhow::Result<End> {
        let credential = if let Some(credential) = known.take() {
            credential
        } else {
            // A full channel loses a word, never an answer.
            let tell = |what: String| drop(news.try_send(News::Away(format!("waiting for {what}"))));
            self.identity.credential(&tell).await?
        };
        tokio::select! {
            ended = self.session(&credential, news, reports) => ended.map(|()| End::Stopped),
            newer = self.renewed(&credential) => Ok(End::Renewed(newer)),
        }
    }

    /// Waits until the certificate is due, and renews it while it is still followed with the old one.
    async fn renewed(&self, credential: &Credential) -> Credential {
        let Some(certificate) = &credential.certificate else { return std::future::pending().await };
        let mut due = certificate.renew_at();
        loop {
            // The wall clock may jump; an hour is a small part of any certificate's life.
            while let left = due.duration_since(Timestamp::now())
                && left.is_positive()
            {
                let step = left.unsigned_abs().min(Duration::from_secs(3600));
                tokio::time::sleep(step).await;
            }
            match self.identity.renew(credential).await {
                Ok(newer) => return newer,
                Err(error) => {
                    tracing::warn!(%error, until = %certificate.not_after(), "the certificate was not renewed");
                    let left = certificate.not_after().duration_since(Timestamp::now());
                    let pause = (left / RENEWAL_RETRIES).max(jiff::SignedDuration::from_secs(10));
                    due = Timestamp::now().checked_add(pause).unwrap_or(due);
                }
            }
        }
    }

    /// One connection, until it fails. `Ok` when the daemon is gone.
    async fn session(
        &self,
        credential: &Credential,
        news: &mpsc::Sender<News>,
        reports: &mut watch::Receiver<Option<Report>>,
    ) -> anyhow::Result<()> {
        let client = credential.client.clone();
        let taker = Taker { root: &self.root, client: &client, namespace: &self.namespace };
        let objects: Api<NodeState> = Api::all(client.clone());
        let mut watch = Watch::new(objects.clone(), &self.node);
        let mut current: Option<NodeState> = None;
        let mut said: Option<NodeStateStatus> = None;
        // The cluster's definitions are found to be older than this nodelet.
        let mut older = false;
        let mut quiet_until = Instant::now();
        let identity = credential.describe();
        // A kubelet's credential may write no Lease but the kubelet's own (the admission plugin NodeRestriction).
        let beats = credential.certificate.is_some();
        let mut beat = heartbeat::Beat::new(&client, &self.namespace, &self.node);
        reports.mark_changed();
        loop {
            // A report waits for its time; what the cluster asks for does not wait for a report.
            let next_report = async {
                tokio::time::sleep_until(quiet_until).await;
                reports.changed().await
            };
            tokio::select! {
                change = watch.next() => match change? {
                    // It is made anew, or the node left its set: what is kept goes on to count.
                    Change::Gone | Change::Missing => {
                        (current, said) = (None, None);
                        if news.send(News::Away(NO_STATE.to_owned())).await.is_err() {
                            return Ok(());
                        }
                    }
                    Change::Is(state) => {
                        let first = current.as_ref().is_none_or(|known| known.metadata.uid != state.metadata.uid);
                        if first {
                            said.clone_from(&state.status);
                            if news.send(News::Reached).await.is_err() {
                                return Ok(());
                            }
                        }
                        let asks = first || current.as_ref().is_none_or(|before| before.spec != state.spec);
                        let state = &*current.insert(*state);
                        if asks && !tell(news, taker.take_up(state).await?).await {
                            return Ok(());
                        }
                        if first {
                            reports.mark_changed();
                        }
                    }
                },
                told = next_report, if current.is_some() => {
                    if told.is_err() {
                        return Ok(());
                    }
                    let report = reports.borrow_and_update().clone();
                    let (Some(report), Some(state)) = (report, &current) else { continue };
                    let (generation, asked) = (state.metadata.generation, &state.spec.units);
                    let mut status = report.status(said.as_ref(), generation, asked, Timestamp::now());
                    status.identity.clone_from(&identity);
                    if said.as_ref() != Some(&status) {
                        self.write(&objects, &status, &mut older).await?;
                        said = Some(status);
                        quiet_until = Instant::now() + REPORT_PAUSE;
                    }
                }
                () = beat.due(), if beats && current.is_some() => beat.beat().await?,
            }
        }
    }

    /// Writes all of a status. Definitions that are older than this nodelet don't have every field of it, and the API
    /// server then refuses the whole: what 0.1 has is written instead, for as long as this connection lasts.
    async fn write(&self, objects: &Api<NodeState>, status: &NodeStateStatus, older: &mut bool) -> anyhow::Result<()> {
        let least = status.least();
        let written = self.patch(objects, if *older { &least } else { status }).await;
        let written = match written {
            // Nothing else: what passes, an API server that starts for example, must not turn units off.
            Err(kube::Error::Api(refused)) if least != *status && !*older && is_undeclared(&refused.message) => {
                self.patch(objects, &least).await.inspect(|()| {
                    *older = true;
                    tracing::warn!(%refused, "the definitions in the cluster are older than this nodelet: apply config/crd");
                })
            }
            other => other,
        };
        written.context("writing this node's status")
    }

    async fn patch(&self, objects: &Api<NodeState>, status: &NodeStateStatus) -> kube::Result<()> {
        let patch = json!({
            "apiVersion": format!("{GROUP}/{VERSION}"),
            "kind": "NodeState",
            "metadata": {"name": self.node},
            "status": status,
        });
        let parameters = PatchParams::apply(objects::REPORTER).force();
        objects.patch_status(&self.node, &parameters, &Patch::Apply(patch)).await.map(drop)
    }
}

/// Tells the daemon what was taken up; whether it is there to hear it.
async fn tell(news: &mpsc::Sender<News>, taken: Taken) -> bool {
    let (asked, not_understood) = match taken {
        Taken::New => (true, None),
        Taken::Same => (false, None),
        Taken::NotUnderstood(why) => {
            tracing::error!(reason = objects::NOT_UNDERSTOOD, "{why}");
            (false, Some(why))
        }
    };
    news.send(News::NotUnderstood(not_understood)).await.is_ok() && (!asked || news.send(News::Asked).await.is_ok())
}

/// Whether the API server refused a status for a field that it does not know.
fn is_undeclared(message: &str) -> bool {
    message.contains(UNDECLARED)
}

/// Anything up to a time, differently for each node and each time; a twentieth of it at least.
fn spread(wait: Duration, node: &str) -> Duration {
    use std::hash::{BuildHasher, RandomState};
    let random = RandomState::new().hash_one(node) % 1000;
    wait / 20 + wait.mul_f64(f64::from(u32::try_from(random).unwrap_or_default()) * 0.95 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_field_that_is_not_known_is_left_out() {
        let older = "failed to create typed patch object (/n; nodelet.dev/v1alpha1, Kind=NodeState): .status.units: field \
                     not declared in schema";
        assert!(is_undeclared(older));
        for other in
            ["etcdserver: request timed out", "the server is currently unable to handle the request", "", "Too many"]
        {
            assert!(!is_undeclared(other), "{other}");
        }
    }

    #[test]
    fn waits_are_spread() {
        let waits: Vec<Duration> = (0..200).map(|_| spread(FIRST_WAIT, "n")).collect();
        assert!(waits.iter().all(|wait| *wait >= FIRST_WAIT / 20 && *wait <= FIRST_WAIT), "{waits:?}");
        let (least, most) = (waits.iter().min().copied(), waits.iter().max().copied());
        assert!(most > least.map(|least| least + Duration::from_secs(10)), "{waits:?}");
    }
}
