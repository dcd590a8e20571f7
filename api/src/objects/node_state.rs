//! How far one node is.

use super::{Condition, Reference};
use crate::state::Disruption;
use crate::text::UnitName;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One node: what it must become, and how far it is. It has the name of its Node. The controller alone writes `spec`,
/// and that node's nodelet alone `status`: nothing else carries state, so either can be rebuilt from here.
//
// Fields that are not known are ignored here, unlike elsewhere: the controller is upgraded before the nodes, and a nodelet
// that is older must go on to understand the rest. The API server refuses what the definition does not know.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nodelet.dev",
    version = "v1alpha1",
    kind = "NodeState",
    plural = "nodestates",
    singular = "nodestate",
    status = "NodeStateStatus",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct NodeStateSpec {
    /// The set that the node belongs to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_set_ref: Option<Reference>,
    /// The class that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_ref: Option<Reference>,
    /// What it must become: the name of a `ControllerRevision`, which never changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 253))]
    pub revision: Option<String>,
    /// How far nodelet may go now.
    #[serde(default, deserialize_with = "super::skew::step_or_hold")]
    pub step: Step,
    /// The right to disturb what runs there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grant: Option<Grant>,
    /// The node's own Secret, with the contents that its state takes from Secrets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secrets: Option<NodeSecrets>,
    /// Units whose state is to be reported: those that gates of the set name.
    // As many as 16 gates can name, with 16 each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<UnitName>", length(max = 256))]
    pub units: Vec<String>,
}

/// How far nodelet may go, least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub enum Step {
    /// It stays as it is; drift that disturbs nothing is repaired.
    Hold,
    /// It makes the revision ready, and changes nothing.
    #[default]
    Stage,
    /// It becomes the revision, as far as the grant reaches.
    Apply,
}

/// The right to disturb, for one revision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Grant {
    /// Its name; each is given once.
    #[schemars(length(min = 1, max = 253))]
    pub id: String,
    /// The revision that it is for.
    #[schemars(length(min = 1, max = 253))]
    pub revision: String,
    /// The most that may be disturbed.
    pub disruption: Disruption,
}

/// The Secret that only this node may read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeSecrets {
    /// Its name, in the controller's namespace.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// Changes when a content does.
    #[schemars(length(min = 1, max = 64))]
    pub version: String,
}

/// How far the node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStateStatus {
    /// The generation that this speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// nodelet's version there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub nodelet_version: String,
    /// The boot that this is of.
    #[serde(rename = "bootID", skip_serializing_if = "String::is_empty")]
    pub boot_id: String,
    /// What runs on the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<OperatingSystem>,
    /// What it would do next, and what that disturbs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub staged: Option<Staged>,
    /// What it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub applied: Option<Applied>,
    /// What it would go back to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_good: Option<RevisionRef>,
    /// The last change, step by step.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub steps: Vec<StepResult>,
    /// One sentence that answers why this node is not done.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub waiting_for: String,
    /// The managed packages as they are installed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub packages: Vec<ManagedPackage>,
    /// The units that `spec.units` names, as systemd has them. A nodelet of 0.1 has no such field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub units: Option<Vec<UnitReport>>,
    /// Which machine has the node's certificate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// `Converged`, `Drifted`, `Degraded`, `Healthy`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}

/// What runs on the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct OperatingSystem {
    /// The distribution, such as `debian`.
    pub id: String,
    /// Its version, such as `12`.
    #[serde(rename = "versionID")]
    pub version_id: String,
    /// The running kernel.
    pub kernel: String,
    /// The package manager.
    pub package_manager: String,
}

/// A revision that is ready to be applied.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Staged {
    /// The revision.
    pub revision: String,
    /// What applying it disturbs.
    pub disruption: Disruption,
    /// What applying it does, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 100))]
    pub plan: Vec<String>,
}

/// A revision that the node has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Applied {
    /// The revision.
    pub revision: String,
    /// Since when.
    pub at: String,
    /// The version of the node's Secret that it was applied with.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub secrets: String,
}

/// A revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct RevisionRef {
    /// Its name.
    pub revision: String,
}

/// A step of the last change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct StepResult {
    /// What was done.
    pub what: String,
    /// How it ended.
    pub result: String,
    /// When.
    pub at: String,
}

/// A package that the state manages.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagedPackage {
    /// Its name.
    pub name: String,
    /// The installed version.
    pub version: String,
}

/// A unit of the node's systemd.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnitReport {
    /// Its name.
    pub name: String,
    /// Its `ActiveState`, such as `active` or `failed`; `not-found` or `masked` where there is nothing to run.
    pub state: String,
    /// How often systemd itself has started it again (`NRestarts`).
    #[serde(default)]
    pub restarts: u32,
}

/// The machine behind a node's credential.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct Identity {
    /// A name for the machine that its own id can't be found from.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// What stands for the key of its certificate: the hash of the public key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// Until when its certificate is good.
    pub not_after: String,
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_newer_controller_adds_is_ignored() {
        let spec = json!({
            "revision": "r", "later": 1, "classRef": {"name": "c", "later": 1},
            "grant": {"id": "i", "revision": "r", "disruption": "Drain", "later": 1},
            "secrets": {"name": "s", "version": "v", "later": 1},
        });
        let spec: NodeStateSpec = serde_json::from_value(spec).unwrap();
        assert_eq!((spec.revision.as_deref(), spec.grant.unwrap().id.as_str()), (Some("r"), "i"));
    }
}
