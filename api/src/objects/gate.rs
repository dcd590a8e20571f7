//! What must be well beside the nodes themselves, for a change to go on.

use crate::text::UnitName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Something that must be well: exactly one of the fields beside the name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Gate {
    /// Its name, in messages.
    #[schemars(length(min = 1, max = 63))]
    pub name: String,
    /// An address that must answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpGate>,
    /// An object of the cluster that must be well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object: Option<ObjectGate>,
    /// A query whose answer must be well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prometheus: Option<PrometheusGate>,
    /// A Job that must succeed: once before the first node of a revision, and once after each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<JobGate>,
    /// Units of systemd that must be active on the node after its change.
    // Plain texts: one that is wrong must not make the whole set unreadable.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<UnitName>", length(min = 1, max = 16))]
    pub units: Vec<String>,
}

/// An address that must answer.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HttpGate {
    /// The address, with `http://` or `https://`.
    #[schemars(length(min = 8, max = 1024))]
    pub url: String,
    /// The status that it must answer with.
    #[serde(default = "ok", skip_serializing_if = "is_ok")]
    #[schemars(range(min = 100, max = 599))]
    pub status: u16,
    /// Certificates of authorities in PEM, which alone are trusted. Without them, the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub ca_bundle: Option<String>,
    /// A bearer token that is sent along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<SecretKey>,
}

fn ok() -> u16 {
    200
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_ok(status: &u16) -> bool {
    *status == 200
}

/// An object of the cluster that must be well: exactly one of `condition` and `cel` says how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ObjectGate {
    /// Its group and version, such as `apps/v1`.
    #[schemars(length(min = 1, max = 316))]
    pub api_version: String,
    /// Its kind.
    #[schemars(length(min = 1, max = 63))]
    pub kind: String,
    /// Its namespace, where its kind has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 63))]
    pub namespace: Option<String>,
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The type of the condition in its status that must be `True`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 316))]
    pub condition: Option<String>,
    /// What must be true of it, in CEL: `object.status.readyReplicas == object.spec.replicas`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 1024))]
    pub cel: Option<String>,
}

/// A query whose answer must be well.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PrometheusGate {
    /// Where Prometheus is, without `/api/v1`.
    #[schemars(length(min = 8, max = 1024))]
    pub url: String,
    /// The query, as Prometheus has it.
    #[schemars(length(min = 1, max = 4096))]
    pub query: String,
    /// What must be true of the answer, in CEL: `value` is the first sample's number, 0 where there is none; `result` all
    /// samples, each with `metric` and `value`.
    #[schemars(length(min = 1, max = 1024))]
    pub cel: String,
    /// Certificates of authorities in PEM, which alone are trusted. Without them, the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 65536))]
    pub ca_bundle: Option<String>,
    /// A bearer token that is sent along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_secret_ref: Option<SecretKey>,
}

/// A key of a Secret in the controller's namespace, which carries the label `nodelet.dev/gate-token: "true"` and, in the
/// annotation `nodelet.dev/gate-url`, scheme, host and port of the address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecretKey {
    /// The Secret's name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// The key in it.
    #[schemars(length(min = 1, max = 253))]
    pub key: String,
}

/// A Job that must succeed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobGate {
    /// The namespace that it runs in.
    #[schemars(length(min = 1, max = 63))]
    pub namespace: String,
    /// The Job, as a `CronJob` has it in `jobTemplate`.
    pub template: JobTemplate,
}

/// A Job without a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct JobTemplate {
    /// Its labels and annotations.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub metadata: Map<String, Value>,
    /// What it is to do, as `batch/v1` has it.
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub spec: Map<String, Value>,
}
