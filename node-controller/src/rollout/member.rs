//! A node of a set, as a rollout sees it.

use crate::world::is_ready;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::ResourceExt;
use nodelet_api::Disruption;
use nodelet_api::objects::{NodeSecrets, NodeState, REPORTER};
use std::sync::Arc;

/// The annotation of a Node that the controller cordoned. Without it a cordon is somebody else's, and is never removed.
pub const CORDONED: &str = "nodelet.dev/cordoned";
/// The annotation of a Node that is left as it is.
pub const PAUSED: &str = "nodelet.dev/paused";
/// The label that keeps load balancers away.
pub const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
/// The annotation that keeps the cluster autoscaler away.
pub const SCALE_DOWN_DISABLED: &str = "cluster-autoscaler.kubernetes.io/scale-down-disabled";

/// Labels of nodes that are of the control plane, or hold a member of its etcd.
const CONTROL_PLANE: [&str; 3] =
    ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/etcd", "node-role.kubernetes.io/master"];
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

    /// The revision that it has.
    pub(super) fn applied(&self) -> Option<&str> {
        Some(self.state?.status.as_ref()?.applied.as_ref()?.revision.as_str())
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

    /// When its nodelet last reported, by the API server's clock.
    pub(super) fn last_report(&self) -> Option<jiff::Timestamp> {
        let entries = self.state?.metadata.managed_fields.iter().flatten();
        let reports = entries.filter(|entry| entry.manager.as_deref() == Some(REPORTER));
        reports.filter_map(|entry| Some(entry.time.as_ref()?.0)).max()
    }

    /// Whether its kubelet says nothing any more: that is what the control plane calls `Unknown`. One that says that it is
    /// not ready is heard.
    pub(super) fn is_away(&self) -> bool {
        let conditions = self.node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "Unknown")
    }

    /// Whether others are told to keep away from it, as far as a change asks for that.
    pub(super) fn is_shielded(&self, disruption: Disruption) -> bool {
        self.node.annotations().contains_key(SCALE_DOWN_DISABLED)
            && (disruption < Disruption::Drain || self.node.labels().contains_key(EXCLUDED))
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

    /// The pressures that its kubelet speaks of.
    pub(super) fn pressures(&self) -> Vec<String> {
        let conditions = self.node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let pressing = conditions.filter(|one| PRESSURES.contains(&one.type_.as_str()) && one.status == "True");
        pressing.map(|condition| condition.type_.clone()).collect()
    }

    /// The version of the kubelet that its nodelet installed, as `1.35.8`, where it is such a number.
    pub(super) fn installed_kubelet(&self) -> Option<&str> {
        let packages = &self.state?.status.as_ref()?.packages;
        plain_version(&packages.iter().find(|package| package.name == "kubelet")?.version)
    }

    /// What is not well with it; `None` when all is. `before` are the pressures that it had.
    pub(super) fn unwell(&self, kubelet: Option<&str>, before: &[String]) -> Option<String> {
        if !is_ready(self.node) {
            return Some("its kubelet does not say that it is ready".to_owned());
        }
        if let Some(pressure) = self.pressures().into_iter().find(|pressure| !before.contains(pressure)) {
            return Some(format!("it has {pressure}"));
        }
        let converged = self.state.and_then(|state| state.status.as_ref()).is_some_and(|status| {
            status.conditions.iter().any(|condition| condition.kind == "Converged" && condition.status == "True")
        });
        if !converged {
            return Some("its nodelet does not say that it has converged".to_owned());
        }
        let runs = self.node.status.as_ref().and_then(|status| status.node_info.as_ref());
        let runs = runs.map(|info| info.kubelet_version.trim_start_matches('v')).unwrap_or_default();
        // Of a version such as `1.35.*` the node knows which one it has.
        let wanted = kubelet.or_else(|| self.installed_kubelet());
        let other = wanted.filter(|wanted| !runs.is_empty() && *wanted != runs);
        other.map(|wanted| format!("the API server sees kubelet {runs}, and {wanted} was applied"))
    }
}

/// `1.35.8`, of a version such as that or `1.35.8-1.1`; of others nothing.
pub(crate) fn plain_version(version: &str) -> Option<&str> {
    let plain = version.split('-').next().unwrap_or(version);
    let exact = plain.split('.').count() == 3 && plain.chars().all(|c| c.is_ascii_digit() || c == '.');
    exact.then_some(plain)
}

/// Whether a Node is of the control plane.
pub(super) fn is_control_plane(node: &Node) -> bool {
    CONTROL_PLANE.iter().any(|label| node.labels().contains_key(*label))
}
