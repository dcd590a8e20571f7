//! States that the host had, and that were good: what a rollback goes back to.

use jiff::Timestamp;
use nodelet_api::DesiredState;
use serde::{Deserialize, Serialize};

/// A state that the host converged to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Good {
    /// Its revision.
    pub revision: String,
    /// The state, with the exact versions that were installed.
    pub state: DesiredState,
    /// When the host converged to it.
    pub at: Timestamp,
}

/// A good state as the list of them has it: what it is in full is kept beside, because it may be large.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GoodRevision {
    /// Its revision.
    pub revision: String,
    /// When the host converged to it.
    pub at: Timestamp,
    /// The name of the state among the blobs.
    pub state: String,
}

/// The host is kept away from a revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pin {
    /// The revision that is not to be applied again. Any other one ends this.
    pub away_from: String,
    /// What the host is to be instead.
    pub good: Good,
    /// Why, in words.
    pub reason: String,
    /// nodelet did it by itself, because the checks after the change did not pass.
    #[serde(default)]
    pub automatic: bool,
}
