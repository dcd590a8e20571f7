//! Writes what was decided. Every write says what is to be so, and may be repeated.

use crate::decide::Intent;
use crate::render::Revision;
use crate::world::World;
use anyhow::Context;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, Resource};
use nodelet_api::objects::{GROUP, NodeClass, NodeSet, NodeState, VERSION};
use serde_json::{Value, json};

/// The name that the controller writes under.
pub const MANAGER: &str = "node-controller";
/// The label of revisions: the class that they are of.
pub const CLASS_LABEL: &str = "nodelet.dev/class";

/// The label of a node's rights: its name.
pub const NODE_LABEL: &str = "nodelet.dev/node";

/// What writes to a cluster.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    namespace: String,
}

impl Writer {
    /// A writer whose revisions are kept in a namespace.
    pub fn new(client: Client, namespace: &str) -> Self {
        Self { client, namespace: namespace.to_owned() }
    }

    /// Writes one thing.
    pub async fn write(&self, intent: &Intent, world: &World) -> anyhow::Result<()> {
        match intent {
            Intent::Store { class, revision } => {
                let owner = world.classes.get(class).and_then(|class| class.controller_owner_ref(&()));
                self.store(class, revision, json!(owner))
                    .await
                    .with_context(|| format!("storing revision {}", revision.name))
            }
            Intent::ClassStatus { name, status } => {
                let patch = object("NodeClass", name, "status", &json!(status), Value::Null);
                let api: Api<NodeClass> = Api::all(self.client.clone());
                let written = api.patch_status(name, &parameters(), &Patch::Apply(patch)).await;
                written.map(drop).with_context(|| format!("writing the status of the class {name}"))
            }
            Intent::SetStatus { name, status } => {
                let patch = object("NodeSet", name, "status", &json!(status), Value::Null);
                let api: Api<NodeSet> = Api::all(self.client.clone());
                let written = api.patch_status(name, &parameters(), &Patch::Apply(patch)).await;
                written.map(drop).with_context(|| format!("writing the status of the set {name}"))
            }
            Intent::Allow { node } => {
                self.allow(node, world).await.with_context(|| format!("giving node {node} its rights"))
            }
            Intent::Hand { node, set, spec } => {
                let owner = world.sets.get(set).and_then(|set| set.controller_owner_ref(&()));
                let patch = object("NodeState", node, "spec", &json!(spec), json!(owner));
                let api: Api<NodeState> = Api::all(self.client.clone());
                let written = api.patch(node, &parameters(), &Patch::Apply(patch)).await;
                written.map(drop).with_context(|| format!("handing node {node} its revision"))
            }
        }
    }

    /// A role with the node's own name in it, bound to its user. Both go with the `NodeState`: deleting that takes the
    /// node's rights away.
    async fn allow(&self, node: &str, world: &World) -> kube::Result<()> {
        let owner = world.states.get(node).and_then(|state| state.controller_owner_ref(&()));
        let name = format!("nodelet:{node}");
        let metadata = json!({"name": name, "labels": {NODE_LABEL: node}, "ownerReferences": owners(json!(owner))});
        let may = |resource: &str, verbs: &[&str]| json!({"apiGroups": [GROUP], "resources": [resource], "resourceNames": [node], "verbs": verbs});
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": metadata,
            "rules": [may("nodestates", &["get", "list", "watch"]), may("nodestates/status", &["get", "patch"])],
        });
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": metadata,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
        });
        // The binding last: its presence says that all is there.
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        roles.patch(&name, &parameters(), &Patch::Apply(role)).await?;
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        bindings.patch(&name, &parameters(), &Patch::Apply(binding)).await.map(drop)
    }

    async fn store(&self, class: &str, revision: &Revision, owner: Value) -> kube::Result<()> {
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &self.namespace);
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": revision.name,
                "labels": {CLASS_LABEL: class},
                "ownerReferences": owners(owner),
            },
            "revision": 1,
            "data": {"state": revision.state},
        });
        api.patch(&revision.name, &parameters(), &Patch::Apply(object)).await.map(drop)
    }
}

fn parameters() -> PatchParams {
    // Only the controller writes these fields; whoever else did is overruled.
    PatchParams::apply(MANAGER).force()
}

fn object(kind: &str, name: &str, part: &str, content: &Value, owner: Value) -> Value {
    let mut metadata = json!({"name": name});
    if !owner.is_null() {
        metadata["ownerReferences"] = owners(owner);
    }
    json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": metadata, part: content})
}

/// The owner's deletion takes the object along, and doesn't wait for it.
fn owners(owner: Value) -> Value {
    match owner {
        Value::Null => json!([]),
        mut owner => {
            owner["blockOwnerDeletion"] = json!(false);
            json!([owner])
        }
    }
}
