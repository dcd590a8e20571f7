//! What tests of nodes in a cluster begin with: a control plane with a controller, and classes, sets and nodes in it.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use serde_json::{Value, json};
use testbed::cluster::audit::Audit;
use testbed::cluster::{Cluster, ClusterOptions, Component, TOKEN};
use testbed::image::Kind;
use testbed::slot::Slot;
use testbed::wait::{Seen, wait_until};
use testbed::{Node, NodeOptions, nodelet};

/// For what takes a second or two on a machine that has nothing else to do.
/// The label that sets select by. A kubelet can't give it to itself, so nodes may get Secrets by it.
pub(crate) const ROLE: &str = "node-restriction.kubernetes.io/role";
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// For what waits for a second try: a node that lost the API server comes back after up to 16 s, then 32 s, then 64 s.
pub(crate) const LATER: Duration = Duration::from_secs(150);

/// Who the controller is where it runs as config/default has it.
pub(crate) const CONTROLLER: &str = "system:serviceaccount:nodelet-system:node-controller";

/// A control plane with the custom resources, and one controller.
pub(crate) struct Scene {
    pub(crate) cluster: Cluster,
    pub(crate) controller: Component,
}

/// A test's hold on the scene that tests share which do it no harm. Each has classes, sets and nodes of its own in it.
pub(crate) struct Shared(Arc<Scene>);

impl Deref for Shared {
    type Target = Scene;

    fn deref(&self) -> &Scene {
        &self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.cluster.keep_evidence();
        }
    }
}

impl Scene {
    pub(crate) fn new() -> Self {
        Self::with(&ClusterOptions::default())
    }

    pub(crate) fn with(options: &ClusterOptions<'_>) -> Self {
        Self::on(&Slot::take().unwrap(), options)
    }

    /// With a log of what nodelets and the controller ask the API server for.
    pub(crate) fn audited() -> (Self, Audit) {
        let slot = Slot::take().unwrap();
        let audit = Audit::of(&slot, &[CONTROLLER], &["nodelet:nodes"]).unwrap();
        let scene = Self::on(&slot, &ClusterOptions { flags: &audit.flags(), ..ClusterOptions::default() });
        (scene, audit)
    }

    fn on(slot: &Arc<Slot>, options: &ClusterOptions<'_>) -> Self {
        let cluster = Cluster::start_as(slot, options).unwrap();
        crate::objects::define_in(&cluster);
        cluster.kubectl(&["create", "namespace", "nodelet-system"]).unwrap();
        for part in ["rbac", "admission"] {
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../config").join(part);
            cluster.kubectl(&["apply", "--server-side", "-k", directory.to_str().unwrap()]).unwrap();
        }
        let controller = cluster.controller("one").unwrap();
        controller.start().unwrap();
        Self { cluster, controller }
    }

    pub(crate) fn shared() -> Shared {
        static SCENE: OnceLock<Arc<Scene>> = OnceLock::new();
        Shared(Arc::clone(SCENE.get_or_init(|| Arc::new(Self::new()))))
    }

    /// A node with nodelet that joins by the cluster's token, and its Node object with this role.
    pub(crate) fn node_of(&self, name: &str, role: &str) -> Node {
        let node = self.bare_node(name);
        bring_token(&node, TOKEN, 0o600);
        join(&node, &self.cluster.bootstrap_kubeconfig(TOKEN_FILE), "");
        self.node_object_of(name, role);
        node
    }

    pub(crate) fn node(&self, name: &str) -> Node {
        self.node_of(name, "worker")
    }

    /// A node without nodelet.
    pub(crate) fn bare_node(&self, name: &str) -> Node {
        nodelet::node_in(self.cluster.slot(), NodeOptions::new(name, Kind::Base)).unwrap()
    }

    /// A Node without a machine.
    pub(crate) fn node_object_of(&self, name: &str, role: &str) {
        let object = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {ROLE: role}}});
        self.cluster.apply(&object.to_string()).unwrap();
    }

    pub(crate) fn node_object(&self, name: &str) {
        self.node_object_of(name, "worker");
    }

    /// Several of them.
    pub(crate) fn node_objects(&self, names: &[&str]) {
        let object = |name: &&str| {
            format!("apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{{ROLE}: worker}}}}\n---\n")
        };
        self.cluster.apply(&names.iter().map(object).collect::<String>()).unwrap();
    }

    /// A class with this spec. Several tests may make the same one at once.
    pub(crate) fn class_of(&self, name: &str, spec: &Value) {
        self.put("NodeClass", name, spec);
    }

    /// The class `worker`, with one file.
    pub(crate) fn class(&self, content: &str) {
        self.class_of("worker", &one_file(content));
    }

    /// The set of a class; the Nodes whose role is the class belong to it.
    pub(crate) fn set_of(&self, name: &str) {
        let spec = json!({"classRef": {"name": name}, "selector": {"matchLabels": {ROLE: name}}});
        self.put("NodeSet", &format!("{name}s"), &spec);
    }

    fn put(&self, kind: &str, name: &str, spec: &Value) {
        let object = json!({
            "apiVersion": "nodelet.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec,
        });
        let path = self.cluster.slot().dir().join(format!("{kind}-{name}-{:?}.json", std::thread::current().id()));
        std::fs::write(&path, object.to_string()).unwrap();
        self.cluster.kubectl(&["apply", "--server-side", "-f", path.to_str().unwrap()]).unwrap();
    }

    pub(crate) fn set(&self) {
        self.set_of("worker");
    }

    pub(crate) fn get(&self, kind: &str, name: &str) -> Value {
        self.look(kind, name).unwrap()
    }

    /// The same where the object, or the API server, may not be there.
    pub(crate) fn look(&self, kind: &str, name: &str) -> anyhow::Result<Value> {
        let text = self.cluster.kubectl(&["get", kind, name, "-o", "json", "--request-timeout=10s"])?;
        Ok(serde_json::from_str(&text)?)
    }

    pub(crate) fn state(&self, node: &str) -> Value {
        self.get("nodestate", node)
    }

    /// Waits until the nodes' credentials may read their states.
    pub(crate) fn wait_for_rights(&self, nodes: &[&str]) {
        self.wait_for_rights_within(nodes, SOON);
    }

    pub(crate) fn wait_for_rights_within(&self, nodes: &[&str], limit: Duration) {
        wait_until("the nodes' rights", limit, || {
            let found = self.cluster.kubectl(&["get", "clusterrolebindings", "-o", "name"]).unwrap_or_default();
            let there = |node: &&str| found.lines().any(|line| line.ends_with(&format!("/nodelet:{node}")));
            let late = nodes.iter().find(|node| !there(node));
            Ok(late.map_or(Seen::Done(()), Seen::not_yet))
        })
        .unwrap();
    }

    /// Waits until nodes report that they are what their class says now.
    pub(crate) fn wait_until_applied_of(&self, class: &str, nodes: &[&str], limit: Duration) {
        wait_until(&format!("the nodes {nodes:?} to be as {class} wants them"), limit, || {
            let object = match self.look("nodeclass", class) {
                Ok(object) => object,
                Err(error) => return Ok(Seen::not_yet(format!("{error:#}"))),
            };
            let rendered = &object["status"];
            if rendered["observedGeneration"] != object["metadata"]["generation"] {
                return Ok(Seen::not_yet(format!("the class is not rendered: {rendered}")));
            }
            for node in nodes {
                let state = match self.look("nodestate", node) {
                    Ok(state) => state,
                    Err(error) => return Ok(Seen::not_yet(format!("{error:#}"))),
                };
                let (spec, applied) = (&state["spec"], &state["status"]["applied"]);
                let asked = spec["revision"] == rendered["revision"];
                if !asked || applied["revision"] != spec["revision"] || applied["secrets"] != spec["secrets"]["version"]
                {
                    return Ok(Seen::not_yet(format!("{node}: {state}")));
                }
            }
            Ok(Seen::Done(()))
        })
        .unwrap();
    }

    pub(crate) fn wait_until_applied(&self, nodes: &[&str]) {
        self.wait_until_applied_of("worker", nodes, SOON);
    }

    /// Waits until `kubectl get KIND NAME` shows what is looked for.
    pub(crate) fn wait_for_object(&self, what: &str, kind: &str, name: &str, holds: impl Fn(&Value) -> bool) -> Value {
        wait_until(what, SOON, || {
            Ok(match self.look(kind, name) {
                Ok(object) if holds(&object) => Seen::Done(object),
                Ok(object) => Seen::not_yet(object),
                Err(error) => Seen::not_yet(format!("{error:#}")),
            })
        })
        .unwrap()
    }

    /// A file with a kubeconfig for any user.
    pub(crate) fn credential(&self, user: &str, groups: &[&str]) -> PathBuf {
        let path = self.cluster.slot().dir().join(format!("{}.conf", user.replace(':', "-")));
        std::fs::write(&path, self.cluster.kubeconfig_for(user, groups).unwrap()).unwrap();
        path
    }

    pub(crate) fn controller_log(&self) -> String {
        std::fs::read_to_string(self.controller.log()).unwrap()
    }
}

/// Where a node's bootstrap token is.
pub(crate) const TOKEN_FILE: &str = "/etc/nodelet/token";

/// The spec of a class with one file.
pub(crate) fn one_file(content: &str) -> Value {
    json!({"state": {"files": [{"path": "/etc/from-cluster", "content": format!("{content} ${{node.name}}")}]}})
}

/// The condition of an object.
pub(crate) fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    conditions.and_then(|all| all.iter().find(|one| one["type"] == kind)).unwrap_or(&Value::Null)
}

pub(crate) fn bring_token(node: &Node, token: &str, mode: u32) {
    node.write_file(TOKEN_FILE, token, mode).unwrap();
}

/// Installs nodelet, with a kubeconfig and further settings.
pub(crate) fn join(node: &Node, kubeconfig: &str, settings: &str) {
    join_as(node, kubeconfig, settings, None);
}

/// The same with this version of nodelet.
pub(crate) fn join_as(node: &Node, kubeconfig: &str, settings: &str, version: Option<&str>) {
    node.write_file("/etc/nodelet/kubeconfig", kubeconfig, 0o600).unwrap();
    let settings = format!("[cluster]\nkubeconfig = \"/etc/nodelet/kubeconfig\"\n{settings}");
    node.write_file("/etc/nodelet/nodelet.toml.d/cluster.toml", settings, 0o600).unwrap();
    nodelet::install(node, version).unwrap();
}
