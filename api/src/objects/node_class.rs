//! What a node is.

use super::Condition;
use crate::state::DesiredState;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What nodes of a kind are to be: the body of a `state.toml`, presets included, and what their Nodes carry.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "nodelet.dev",
    version = "v1alpha1",
    kind = "NodeClass",
    plural = "nodeclasses",
    singular = "nodeclass",
    status = "NodeClassStatus",
    derive = "PartialEq",
    schema = "disabled"
)]
#[serde(rename_all = "camelCase")]
pub struct NodeClassSpec {
    /// The desired state, as a local `state.toml` has it.
    #[serde(default)]
    pub state: DesiredState,
    /// Labels that the Nodes carry. What other programs label stays.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_labels: BTreeMap<String, String>,
    /// Taints that the Nodes carry. What other programs taint stays.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["key", "effect"]), length(max = 64))]
    pub node_taints: Vec<Taint>,
}

/// A taint of a Node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Its key.
    #[schemars(length(min = 1, max = 316))]
    pub key: String,
    /// Its value.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    #[schemars(length(max = 63))]
    pub value: String,
    /// What it does to pods that don't tolerate it.
    pub effect: TaintEffect,
}

/// What a taint does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum TaintEffect {
    /// No new pods.
    NoSchedule,
    /// No new pods, if it can be helped.
    PreferNoSchedule,
    /// No pods.
    NoExecute,
}

/// What became of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeClassStatus {
    /// The generation that this speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// The revision that it renders to: the name of a `ControllerRevision`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// `Rendered`: whether it is a state that nodes can have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
}
