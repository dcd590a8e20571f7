//! What the cluster asked for last, kept on disk: with the API server away it goes on to count.
//!
//! Whatever talks to the cluster hands a state over by [`keep`]; from then on the cluster's word is the node's, until
//! [`forget`] gives it back to the local file.

use super::Desired;
use crate::contents;
use crate::store::{Store, StoreError};
use jiff::Timestamp;
use nodelet_api::objects::{Grant, Step};
use nodelet_api::{DesiredState, Disruption};
use serde::{Deserialize, Serialize};

/// A state that the cluster handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterState {
    /// The name of its revision.
    pub revision: String,
    /// The state.
    pub state: DesiredState,
    /// When this one came.
    pub received: Timestamp,
    /// When the first one came, which took over from the local file.
    pub since: Timestamp,
    /// How far the node may go now.
    #[serde(default)]
    pub step: Step,
    /// The right to disturb what runs on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
    /// The version of the contents that it takes from Secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contents: Option<String>,
    /// The units whose state is to be reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<String>,
}

impl ClusterState {
    /// A state that came just now.
    pub fn received(revision: String, state: DesiredState) -> Self {
        let now = Timestamp::now();
        let (grant, contents, units) = (None, None, Vec::new());
        Self { revision, state, received: now, since: now, step: Step::Hold, grant, contents, units }
    }

    /// Whether another one asks for nothing else.
    pub fn asks_the_same(&self, other: &Self) -> bool {
        let rights = |state: &Self| (state.step, state.grant.clone());
        let what = |state: &Self| (state.revision.clone(), state.contents.clone(), state.units.clone());
        what(self) == what(other) && rights(self) == rights(other)
    }

    /// Why the node must not become this revision yet, if it must not.
    fn waits_for(&self, disruption: Disruption) -> Option<String> {
        let revision = &self.revision;
        let granted = self.grant.as_ref().filter(|grant| grant.revision == *revision).map(|grant| grant.disruption);
        match self.step {
            Step::Hold => Some("the cluster, which holds this node as it is".to_owned()),
            Step::Stage => Some(format!("a grant for revision {revision}, which disturbs: {disruption}")),
            Step::Apply if disruption > granted.unwrap_or_default() => {
                let reach = granted.map_or_else(|| "nothing".to_owned(), |class| class.to_string());
                Some(format!("a grant that reaches to {disruption} for revision {revision}; it has {reach}"))
            }
            Step::Apply => None,
        }
    }

    pub(super) fn desired(self, file: &str) -> Desired {
        let at = |time: Timestamp| time.strftime("%F %T UTC").to_string();
        Desired {
            state: self.state.expand(),
            origin: format!("the cluster, as received on {}", at(self.received)),
            why: format!("the cluster took over from {file} on {}", at(self.since)),
            asked: contents::revision_with(&self.revision, self.contents.as_deref()),
            revision: contents::revision_with(&self.revision, self.contents.as_deref()),
            permit: Some(Permit(self)),
            reverted: None,
        }
    }
}

/// How far the cluster lets the node go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permit(ClusterState);

impl Permit {
    /// Why the node must not become its revision yet, if it must not.
    pub fn waits_for(&self, disruption: Disruption) -> Option<String> {
        self.0.waits_for(disruption)
    }

    /// Whether the revision may be made ready.
    pub fn may_stage(&self) -> bool {
        self.0.step >= Step::Stage
    }
}

/// The name of the file in the state directory.
pub const FILE: &str = "cluster.json";

/// What the cluster asked for last; `None` before it took over.
pub fn kept(store: &Store) -> Result<Option<ClusterState>, StoreError> {
    store.record(FILE)
}

/// Keeps a state. When the cluster took over doesn't change with it.
pub fn keep(store: &Store, state: &ClusterState) -> Result<(), StoreError> {
    let since = kept(store)?.map_or(state.since, |before| before.since);
    store.set_record(FILE, Some(&ClusterState { since, ..state.clone() }))
}

/// Gives the node back to its local file.
pub fn forget(store: &Store) -> Result<(), StoreError> {
    store.set_record::<ClusterState>(FILE, None)
}
