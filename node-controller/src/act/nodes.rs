//! What is written on Nodes.

use super::{MANAGER, Writer, parameters};
use crate::decide::Marks;
use crate::world::World;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};
use nodelet_api::objects::Condition;
use serde_json::json;

impl Writer {
    /// Taints first, the note of which are ours after them: a crash in between is mended by the next round.
    pub(super) async fn mark(&self, node: &str, marks: &Marks, world: &World) -> kube::Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        if let Some(taints) = &marks.taints {
            // Taints are one list for everybody: it must still be the one that was seen.
            let version = world.nodes.get(node).and_then(|node| node.metadata.resource_version.clone());
            let patch = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": taints}});
            let parameters = PatchParams { field_manager: Some(format!("{MANAGER}-taints")), ..PatchParams::default() };
            api.patch(node, &parameters, &Patch::Merge(patch)).await?;
        }
        let patch = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node, "labels": marks.labels, "annotations": marks.annotations},
        });
        api.patch(node, &parameters(), &Patch::Apply(patch)).await.map(drop)
    }

    pub(super) async fn show(&self, node: &str, condition: &Condition) -> kube::Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let patch = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": node},
            "status": {"conditions": [{
                "type": condition.kind,
                "status": condition.status,
                "reason": condition.reason,
                "message": condition.message,
                "lastTransitionTime": condition.last_transition_time,
            }]},
        });
        api.patch_status(node, &parameters(), &Patch::Apply(patch)).await.map(drop)
    }
}
