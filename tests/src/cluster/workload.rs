//! Pods that run, as nodes' proof of what they are.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use super::{BUSYBOX, Cluster};
use crate::wait::{Seen, wait_until};

/// A pod starts within seconds; this is for a busy machine.
const START_LIMIT: Duration = Duration::from_secs(2 * 60);

impl Cluster {
    /// Runs a pod on a node that stays until it is asked to end, and waits until it is ready.
    pub fn run_pod(&self, name: &str, node: &str) -> Result<()> {
        // Made by the controller manager a moment after the namespace; a pod is refused without it.
        wait_until("the default service account", START_LIMIT, || {
            Ok(match self.kubectl(&["get", "serviceaccount", "default"]) {
                Ok(_) => Seen::Done(()),
                Err(error) => Seen::not_yet(format!("{error:#}")),
            })
        })?;
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 5,
                "automountServiceAccountToken": false,
                "containers": [{"name": "main", "image": BUSYBOX, "imagePullPolicy": "Never"}],
            },
        });
        self.apply(&pod.to_string())?;
        wait_until(&format!("the pod {name} to be ready"), START_LIMIT, || {
            let ready = self.kubectl(&["wait", "--for=condition=Ready", "--timeout=1s", &format!("pod/{name}")]);
            Ok(match ready {
                Ok(_) => Seen::Done(()),
                Err(error) => Seen::not_yet(format!("{error:#}")),
            })
        })
    }

    /// The id of a pod's container, and how often it was started again.
    pub fn container(&self, pod: &str) -> Result<String> {
        let path = "jsonpath={.status.containerStatuses[0].containerID} {.status.containerStatuses[0].restartCount}";
        self.kubectl(&["get", "pod", pod, "-o", path])
    }
}
