//! What a node's credential may do: with its own objects, by their names, and with no others.

use super::{NODE_LABEL, Writer, label, owners, parameters};
use crate::decide::contents_name;
use crate::world::World;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use kube::api::Patch;
use kube::{Api, Resource};
use nodelet_api::objects::{GROUP, USER_PREFIX};
use serde_json::{Value, json};

const RBAC: &str = "rbac.authorization.k8s.io";

impl Writer {
    /// Roles with the node's own name in them, bound to its users: nodelet's own, and the kubelet's for clusters that
    /// issue no certificates. All go with the `NodeState`: deleting that takes the node's rights away.
    pub(super) async fn allow(&self, node: &str, world: &World) -> kube::Result<()> {
        let owner = json!(world.states.get(node).and_then(|state| state.controller_owner_ref(&())));
        let name = format!("{USER_PREFIX}{node}");
        let metadata = json!({
            "name": name,
            "labels": {NODE_LABEL: label(node)},
            "annotations": {NODE_LABEL: node},
            "ownerReferences": owners(owner),
        });
        let may = |group: &str, resource: &str, object: &str, verbs: &[&str]| json!({"apiGroups": [group], "resources": [resource], "resourceNames": [object], "verbs": verbs});
        let role = |kind: &str, rules: Value| json!({"apiVersion": format!("{RBAC}/v1"), "kind": kind, "metadata": metadata, "rules": rules});
        let binding = |kind: &str, role: &str| {
            let user = |user: String| json!({"apiGroup": RBAC, "kind": "User", "name": user});
            json!({
                "apiVersion": format!("{RBAC}/v1"),
                "kind": kind,
                "metadata": metadata,
                "roleRef": {"apiGroup": RBAC, "kind": role, "name": name},
                "subjects": [user(name.clone()), user(format!("system:node:{node}"))],
            })
        };
        let state = json!([
            may(GROUP, "nodestates", node, &["get", "list", "watch"]),
            may(GROUP, "nodestates/status", node, &["get", "patch"]),
        ]);
        // In the controller's namespace alone: a node's Lease of the same name elsewhere is the kubelet's.
        let beside = json!([
            may("coordination.k8s.io", "leases", node, &["get", "create", "patch"]),
            may("", "secrets", &contents_name(node), &["get"]),
        ]);
        let roles: Api<Role> = Api::namespaced(self.client.clone(), &self.namespace);
        roles.patch(&name, &parameters(), &Patch::Apply(role("Role", beside))).await?;
        let bindings: Api<RoleBinding> = Api::namespaced(self.client.clone(), &self.namespace);
        bindings.patch(&name, &parameters(), &Patch::Apply(binding("RoleBinding", "Role"))).await?;
        let roles: Api<ClusterRole> = Api::all(self.client.clone());
        roles.patch(&name, &parameters(), &Patch::Apply(role("ClusterRole", state))).await?;
        // This one last: its presence says that all is there.
        let bindings: Api<ClusterRoleBinding> = Api::all(self.client.clone());
        bindings
            .patch(&name, &parameters(), &Patch::Apply(binding("ClusterRoleBinding", "ClusterRole")))
            .await
            .map(drop)
    }
}
