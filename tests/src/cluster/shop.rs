//! A web server as people run it: several pods behind a Service, with a probe, a budget, and time to say goodbye.

use anyhow::Result;
use serde_json::{Value, json};

use super::{BUSYBOX, Cluster};
use crate::Node;

/// Its name: of the Deployment, the Service and the budget.
pub const SHOP: &str = "shop";
/// So many pods it has.
pub const SHOP_PODS: usize = 4;
/// So many of them must be there at any time, by its budget.
const NEEDED: usize = 3;
const PORT: u16 = 8080;
/// A pod that is to end still answers for so long, in seconds: until all clients have heard of it. Every web server behind a
/// Service needs that, because its endpoint and its process go at the same time.
const FAREWELL: u32 = 2;
/// The page is the pod's name. As process 1 the shell ends when it is asked to, and the server with it.
const COMMAND: &str = "mkdir /www; hostname > /www/index.html; trap 'exit 0' TERM; httpd -f -p 8080 -h /www & wait";

impl Cluster {
    /// Leads the host to the pods of these nodes, makes the shop, and waits until all its pods are ready.
    pub fn open_shop(&self, nodes: &[Node]) -> Result<()> {
        for node in nodes {
            self.route_to_pods(node)?;
        }
        self.apply(&shop().to_string())?;
        self.kubectl(&["rollout", "status", &format!("deployment/{SHOP}"), "--timeout=120s"]).map(drop)
    }

    /// Removes the shop, without waiting for its pods to end.
    pub fn close_shop(&self) -> Result<()> {
        for kind in ["service", "deployment", "poddisruptionbudget"] {
            self.kubectl(&["delete", kind, SHOP, "--wait=false"])?;
        }
        Ok(())
    }
}

/// The shop's objects.
pub fn shop() -> Value {
    let labels = json!({"app": SHOP});
    let container = json!({
        "name": "main",
        "image": BUSYBOX,
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", COMMAND],
        "readinessProbe": {"httpGet": {"path": "/", "port": PORT}, "periodSeconds": 1},
        "lifecycle": {"preStop": {"sleep": {"seconds": FAREWELL}}},
    });
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": SHOP, "namespace": "default"},
        "spec": {
            "replicas": SHOP_PODS,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "terminationGracePeriodSeconds": 10,
                    "automountServiceAccountToken": false,
                    "containers": [container],
                },
            },
        },
    });
    let service = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": SHOP, "namespace": "default"},
        "spec": {"selector": labels, "ports": [{"port": 80, "targetPort": PORT}]},
    });
    let budget = json!({
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": SHOP, "namespace": "default"},
        "spec": {"minAvailable": NEEDED, "selector": {"matchLabels": labels}},
    });
    json!({"apiVersion": "v1", "kind": "List", "items": [deployment, service, budget]})
}
