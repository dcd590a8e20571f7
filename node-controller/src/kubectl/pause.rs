//! `kubectl nodes pause` and `resume`

use super::output::Output;
use super::read::{Reader, explain};
use crate::rollout::PAUSED;
use anyhow::bail;
use clap::Args;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use nodelet_api::objects::NodeSet;
use serde_json::json;

/// What is paused or goes on.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The set.
    #[arg(value_name = "NODESET", required_unless_present = "node", conflicts_with = "node")]
    set: Option<String>,
    /// One node instead of a set.
    #[arg(long, value_name = "NODE")]
    node: Option<String>,
}

/// The name that the plugin writes under.
pub(super) const MANAGER: &str = "kubectl-nodes";

/// Writes it, and says what that means.
pub(super) async fn write(reader: &Reader, options: &Options, pause: bool, output: Output) -> anyhow::Result<()> {
    let parameters = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    let done = if pause { "paused" } else { "resumed" };
    if let Some(node) = &options.node {
        let api: Api<Node> = Api::all(reader.client.clone());
        let value = if pause { json!("true") } else { json!(null) };
        let patch = json!({"metadata": {"annotations": {PAUSED: value}}});
        let tried = format!("writing the annotation {PAUSED} of the Node {node}");
        if let Err(error) = api.patch(node, &parameters, &Patch::Merge(patch)).await {
            bail!(named(error, &tried, "nodes"));
        }
        let note =
            if pause { "nothing is begun there; a turn that it has is finished" } else { "it gets its turn again" };
        let result = json!({"kind": "Node", "name": node, "paused": pause});
        return output.print(&result, || format!("node/{node} {done}: {note}"));
    }
    let set = options.set.as_deref().unwrap_or_default();
    let set = set.rsplit('/').next().unwrap_or(set);
    let api: Api<NodeSet> = Api::all(reader.client.clone());
    let patch = json!({"spec": {"paused": if pause { json!(true) } else { json!(null) }}});
    let tried = format!("writing `paused` of the NodeSet {set}");
    let written = match api.patch(set, &parameters, &Patch::Merge(patch)).await {
        Ok(written) => written,
        Err(error) => bail!(named(error, &tried, "nodesets")),
    };
    let busy = written.status.as_ref().map_or(0, |status| status.slots.len());
    let note = match (pause, busy) {
        (false, _) => "its nodes get their turns again".to_owned(),
        (true, 0) => "its nodes keep what they have".to_owned(),
        (true, 1) => "no node begins; the one that has its turn finishes it".to_owned(),
        (true, busy) => format!("no node begins; the {busy} that have their turn finish it"),
    };
    let result = json!({"kind": "NodeSet", "name": set, "paused": pause});
    output.print(&result, || format!("nodeset.nodelet.dev/{set} {done}: {note}"))
}

/// The error of a write to one object; that it isn't there has its own advice.
pub(super) fn named(error: kube::Error, tried: &str, plural: &str) -> anyhow::Error {
    match &error {
        kube::Error::Api(status) if status.code == 404 && status.message.contains("\" not found") => {
            anyhow::anyhow!("{tried}: it does not exist; `kubectl get {plural}` lists those that do")
        }
        _ => explain(error, tried),
    }
}
