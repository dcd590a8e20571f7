//! What is written on Nodes.

use super::{MANAGER, Writer, parameters};
use crate::decide::Marks;
use crate::rollout::{CORDONED, Eviction, question};
use crate::world::World;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{DeleteParams, EvictParams, Patch, PatchParams, Preconditions};
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

    /// A cordon with the note that it is ours, or neither: one write, of the Node that was seen.
    pub(super) async fn cordon(&self, node: &str, cordon: bool, world: &World) -> kube::Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let version = world.nodes.get(node).and_then(|node| node.metadata.resource_version.clone());
        let mark = if cordon { json!("true") } else { json!(null) };
        let patch = json!({
            "metadata": {"resourceVersion": version, "annotations": {CORDONED: mark}},
            "spec": {"unschedulable": if cordon { json!(true) } else { json!(null) }},
        });
        let parameters = PatchParams { field_manager: Some(format!("{MANAGER}-cordon")), ..PatchParams::default() };
        api.patch(node, &parameters, &Patch::Merge(patch)).await.map(drop)
    }

    /// Sends a pod away. That it is refused just now is an answer, not an error: it is asked again after a while.
    pub(super) async fn evict(&self, eviction: &Eviction) -> kube::Result<()> {
        let Eviction { namespace, name, uid, grace, forced } = eviction;
        let question = question(uid.as_deref(), *forced);
        if !self.refusals.may_ask(&question) {
            return Ok(());
        }
        tracing::info!(pod = format!("{namespace}/{name}"), forced, "evicting it");
        let api: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
        let preconditions = Some(Preconditions { uid: uid.clone(), resource_version: None });
        let delete = DeleteParams { grace_period_seconds: *grace, preconditions, ..DeleteParams::default() };
        let sent = if *forced {
            api.delete(name, &delete).await.map(drop)
        } else {
            api.evict(name, &EvictParams { delete_options: Some(delete), ..EvictParams::default() }).await.map(drop)
        };
        match sent {
            // Gone, or another one of that name.
            Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => self.refusals.accepted(&question),
            Err(kube::Error::Api(status)) => {
                tracing::info!(pod = format!("{namespace}/{name}"), why = status.message, "it is not let go");
                self.refusals.refused(&question, status.message.clone());
            }
            Ok(()) => self.refusals.accepted(&question),
            Err(error) => return Err(error),
        }
        Ok(())
    }

    pub(super) async fn show(&self, node: &str, condition: Option<&Condition>) -> kube::Result<()> {
        let api: Api<Node> = Api::all(self.client.clone());
        let conditions: Vec<_> = condition
            .iter()
            .map(|condition| {
                json!({
                    "type": condition.kind,
                    "status": condition.status,
                    "reason": condition.reason,
                    "message": condition.message,
                    "lastTransitionTime": condition.last_transition_time,
                })
            })
            .collect();
        // What is applied without it is taken away.
        let patch = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": node}, "status": {"conditions": conditions},
        });
        api.patch_status(node, &parameters(), &Patch::Apply(patch)).await.map(drop)
    }
}
