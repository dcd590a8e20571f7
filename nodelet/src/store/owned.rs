//! What nodelet placed on the host: only that may it take away again.

use super::FileBefore;
use crate::desired::Followers;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Everything that nodelet placed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Owned {
    /// Files by path.
    pub files: BTreeMap<String, OwnedFile>,
    /// Packages that were not there before nodelet installed them.
    pub packages: BTreeSet<String>,
    /// Units whose enablement nodelet changed.
    pub units: BTreeMap<String, OwnedUnit>,
}

/// A file that nodelet placed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedFile {
    /// What was there before nodelet's first write: it comes back when the file leaves the state.
    pub before: FileBefore,
    /// Units that take notice when it goes.
    #[serde(default)]
    pub followers: Followers,
    /// It is a unit file or drop-in.
    #[serde(default)]
    pub unit_file: bool,
    /// Its content came from a Secret.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

/// A unit whose enablement nodelet changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OwnedUnit {
    /// nodelet enabled it.
    pub enabled: bool,
    /// nodelet masked it.
    pub masked: bool,
    /// nodelet started it.
    pub started: bool,
}
