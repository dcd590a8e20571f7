//! How a node shows that a change did it no harm.

use crate::problem::{FieldPath, Problems};
use crate::text::UnitName;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Checks after a change. If they don't pass in time, the change is undone and the node goes back to its last good
/// state, by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Health {
    /// How long, in seconds, the checks may take to pass after a change.
    #[schemars(range(min = 1, max = 86400))]
    pub timeout_seconds: u32,
    /// How long, in seconds, they must go on passing before the change counts as good.
    #[schemars(range(min = 0, max = 3600))]
    pub stable_seconds: u32,
    /// Units that must be active and stay so. Units that the state wants running are among them anyway.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub units: Vec<UnitName>,
    /// The container runtime's CRI endpoint, such as `unix:///run/containerd/containerd.sock`: it must answer and say
    /// that it is ready.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cri: Option<String>,
    /// An address that must answer with 200, such as the kubelet's `http://127.0.0.1:10248/healthz`. Asked only where
    /// the kubelet has its certificate already (`/var/lib/kubelet/pki/kubelet-client-current.pem`): before it joins, it can't
    /// be healthy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<String>,
}

impl Default for Health {
    fn default() -> Self {
        Self { timeout_seconds: 120, stable_seconds: 0, units: Vec::new(), cri: None, kubelet: None }
    }
}

impl Health {
    pub(super) fn check(&self, path: &FieldPath, problems: &mut Problems) {
        if let Some(cri) = &self.cri {
            let socket = cri.strip_prefix("unix://").unwrap_or_default();
            if !socket.starts_with('/') {
                let message =
                    format!("`{cri}` is not a socket: write it like `unix:///run/containerd/containerd.sock`");
                problems.add(path.key("cri"), message);
            }
        }
        if let Some(kubelet) = &self.kubelet
            && !kubelet.starts_with("http://")
        {
            let message = format!("`{kubelet}` is not an address: write it like `http://127.0.0.1:10248/healthz`");
            problems.add(path.key("kubelet"), message);
        }
        if self.stable_seconds >= self.timeout_seconds {
            let message = "the checks could never pass in time: write less than `timeoutSeconds`";
            problems.add(path.key("stableSeconds"), message);
        }
    }
}
