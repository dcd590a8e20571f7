//! A node of a set, as a rollout sees it.

use crate::world::is_ready;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use nodelet_api::Disruption;
use nodelet_api::objects::{NodeSecrets, NodeState};
use std::sync::Arc;

/// The annotation of a Node that the controller cordoned. Without it a cordon is somebody else's, and is never removed.
pub const CORDONED: &str = "nodelet.dev/cordoned";
/// The annotation of a Node that is left as it is.
pub const PAUSED: &str = "nodelet.dev/paused";
/// The label that keeps load balancers away.
pub const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The annotation that keeps the cluster autoscaler away.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";

const CONTROL_PLANE: &str = "node-role.kubernetes.io/control-plane";
const PRESSURES: [&str; 3] = ["MemoryPressure", "DiskPressure", "PIDPressure"];

/// A node.
#[derive(Clone, Debug)]
pub struct Member<'a> {
    /// The Node.
    pub node: &'a Node,
    /// Its state.
    pub state: Option<&'a NodeState>,
    /// The pods on it; not known while nobody needs to.
    pub pods: Option<&'a [Arc<Pod>]>,
}

impl Member<'_> {
    pub(super) fn uid(&self) -> String {
        self.node.metadata.uid.clone().unwrap_or_default()
    }

    /// The version of its nodelet, as that said itself; empty before it did.
    pub(super) fn nodelet_version(&self) -> &str {
        let status = self.state.and_then(|state| state.status.as_ref());
        status.map(|status| status.nodelet_version.as_str()).unwrap_or_default()
    }

    /// Whether it has a revision with its contents.
    pub(super) fn has(&self, revision: &str, secrets: Option<&NodeSecrets>) -> bool {
        let applied = self.state.and_then(|state| state.status.as_ref()?.applied.as_ref());
        let version = secrets.map(|secrets| secrets.version.as_str()).unwrap_or_default();
        applied.is_some_and(|applied| applied.revision == revision && applied.secrets == version)
    }

    /// What becoming a revision disturbs, once that is known.
    pub(super) fn staged(&self, revision: &str) -> Option<Disruption> {
        let state = self.state.filter(|state| state.spec.revision.as_deref() == Some(revision))?;
        let staged = state.status.as_ref()?.staged.as_ref()?;
        (staged.revision == revision).then_some(staged.disruption)
    }

    /// Why it failed to do what its spec says now, if it did.
    pub(super) fn failed(&self) -> Option<String> {
        let state = self.state?;
        let conditions = &state.status.as_ref()?.conditions;
        let degraded =
            conditions.iter().find(|condition| condition.kind == "Degraded" && condition.status == "True")?;
        let current = degraded.observed_generation == state.metadata.generation;
        // What is the revision's own fault. A lock, a full disk or a repository that is away are tried again.
        let own = [
            "StepFailed",
            "HealthCheckFailed",
            "UndoFailed",
            "PlanRefused",
            "StateUnresolved",
            "StateInvalid",
            "ContainersInDanger",
        ];
        (current && own.contains(&degraded.reason.as_str()))
            .then(|| format!("{}: {}", degraded.reason, degraded.message))
    }

    pub(super) fn is_available(&self) -> bool {
        is_ready(self.node) && !self.is_cordoned()
    }

    pub(super) fn is_cordoned(&self) -> bool {
        self.node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false)
    }

    /// Whether the controller cordoned it.
    pub(super) fn is_ours(&self) -> bool {
        self.node.annotations().contains_key(CORDONED)
    }

    pub(super) fn is_paused(&self) -> bool {
        self.node.annotations().get(PAUSED).is_some_and(|value| value == "true")
    }

    pub(super) fn is_control_plane(&self) -> bool {
        is_control_plane(self.node)
    }

    /// What is not well with it; `None` when all is.
    pub(super) fn unwell(&self, kubelet: Option<&str>) -> Option<String> {
        if !is_ready(self.node) {
            return Some("its kubelet does not say that it is ready".to_owned());
        }
        let conditions = self.node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        for condition in conditions {
            if PRESSURES.contains(&condition.type_.as_str()) && condition.status == "True" {
                return Some(format!("it has {}", condition.type_));
            }
        }
        let converged = self.state.and_then(|state| state.status.as_ref()).is_some_and(|status| {
            status.conditions.iter().any(|condition| condition.kind == "Converged" && condition.status == "True")
        });
        if !converged {
            return Some("its nodelet does not say that it has converged".to_owned());
        }
        let runs = self.node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let runs = runs.map(|info| info.kubelet_version.trim_start_matches('v')).unwrap_or_default();
        let other = kubelet.filter(|wanted| !runs.is_empty() && *wanted != runs);
        other.map(|wanted| format!("the API server sees kubelet {runs}, and {wanted} was applied"))
    }
}

/// Whether a Node is of the control plane.
pub(super) fn is_control_plane(node: &Node) -> bool {
    node.labels().contains_key(CONTROL_PLANE)
}
