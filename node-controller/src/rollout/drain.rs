//! Which pods leave a node, in which order, and what keeps them.

use crate::world::World;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use nodelet_api::objects::{DrainBehavior, DrainPolicy, Selector, SelectorOperator, SelectorRequirement};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// A pod that is to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its uid: another pod of the same name stays.
    pub uid: Option<String>,
    /// How long it has to end, where the policy says so.
    pub grace: Option<u32>,
    /// Whatever budgets say.
    pub forced: bool,
}

/// What is left to leave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing: the node is empty, but for what stays.
    Nothing,
    /// Some pods.
    Some {
        /// Those that may go now.
        evictions: Vec<Eviction>,
        /// What is waited for.
        blocked: Blocked,
    },
}

/// What keeps a node from being empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// Pods are on their way.
    Leaving {
        /// How many.
        pods: usize,
        /// One of them.
        example: String,
    },
    /// A budget allows no disruption.
    Budget {
        /// The budget.
        budget: String,
        /// The pod that it keeps.
        pod: String,
        /// Why it allows none.
        why: String,
    },
    /// A pod must be dealt with by a person.
    Pod {
        /// The pod.
        pod: String,
        /// Why it can't just go.
        why: String,
    },
    /// A pod ends by itself.
    Completing {
        /// The pod.
        pod: String,
    },
    /// The API server does not let a pod go.
    Refused {
        /// The pod.
        pod: String,
        /// What it says.
        why: String,
    },
}

impl Blocked {
    /// Its stable name.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Leaving { .. } => "PodsLeaving",
            Self::Budget { .. } => "DisruptionBudget",
            Self::Pod { .. } => "PodBlocks",
            Self::Completing { .. } => "PodCompleting",
            Self::Refused { .. } => "EvictionRefused",
        }
    }
}

impl fmt::Display for Blocked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Leaving { pods: 1, example } => write!(f, "pod {example} to leave"),
            Self::Leaving { pods, example } => write!(f, "{pods} pods to leave, such as {example}"),
            Self::Budget { budget, pod, why } => {
                write!(f, "PodDisruptionBudget {budget} allows 0 disruptions ({why}); it keeps pod {pod}")
            }
            Self::Pod { pod, why } => write!(f, "pod {pod}, which {why}"),
            Self::Completing { pod } => write!(f, "pod {pod} to end by itself"),
            Self::Refused { pod, why } => write!(f, "pod {pod}, which the API server does not let go: {why}"),
        }
    }
}

/// What the API server is asked of a pod, for who remembers its answers: that an eviction was refused is no reason to wait
/// with a deletion, and says nothing of it.
pub(crate) fn question(uid: Option<&str>, forced: bool) -> String {
    format!("{}{}", uid.unwrap_or_default(), if forced { "!" } else { "" })
}

/// Finds what leaves now.
pub(crate) fn drain(pods: &[Arc<Pod>], policy: &DrainPolicy, world: &World, forced: bool) -> Left {
    let mut turns: BTreeMap<i32, Vec<(&Pod, DrainBehavior, bool)>> = BTreeMap::new();
    for pod in pods.iter().map(AsRef::as_ref).filter(|pod| !stays(pod) && !is_finished(pod)) {
        let entry = policy.order.iter().find(|entry| entry.selector.matches(pod.labels()));
        let behavior = entry.map(|entry| entry.behavior).unwrap_or_default();
        if behavior != DrainBehavior::Skip {
            let order = entry.map_or(0, |entry| entry.order);
            turns.entry(order).or_default().push((pod, behavior, entry.is_some()));
        }
    }
    // The next number begins when the one before is gone.
    let Some((_, turn)) = turns.into_iter().next() else { return Left::Nothing };
    let (mut evictions, mut blocked, mut leaving) = (Vec::new(), None, Vec::new());
    for (pod, behavior, named) in turn {
        if pod.metadata.deletion_timestamp.is_some() {
            leaving.push(name(pod));
            continue;
        }
        if behavior == DrainBehavior::WaitCompleted && !forced {
            blocked = blocked.or_else(|| Some(Blocked::Completing { pod: name(pod) }));
            continue;
        }
        if let Some(reason) = keeps(pod, policy, world, named).filter(|_| !forced) {
            blocked = blocked.or(Some(reason));
            continue;
        }
        // It is tried again all the same, after a while.
        if let Some(why) = world.refused.get(&question(pod.metadata.uid.as_deref(), forced)) {
            blocked = blocked.or_else(|| Some(Blocked::Refused { pod: name(pod), why: why.clone() }));
        }
        leaving.push(name(pod));
        evictions.push(Eviction {
            namespace: pod.namespace().unwrap_or_default(),
            name: pod.name_any(),
            uid: pod.metadata.uid.clone(),
            grace: u32::try_from(policy.grace_period_seconds).ok(),
            forced,
        });
    }
    let pods = leaving.len();
    let blocked =
        blocked.unwrap_or_else(|| Blocked::Leaving { pods, example: leaving.first().cloned().unwrap_or_default() });
    Left::Some { evictions, blocked }
}

/// The budgets that have a say in emptying a node, by namespace and name.
pub(crate) fn touched<'a>(
    pods: &[Arc<Pod>],
    policy: &DrainPolicy,
    budgets: &'a [Arc<PodDisruptionBudget>],
) -> BTreeMap<String, &'a PodDisruptionBudget> {
    let leaves = |pod: &&Arc<Pod>| {
        let entry = policy.order.iter().find(|entry| entry.selector.matches(pod.labels()));
        let behavior = entry.map(|entry| entry.behavior).unwrap_or_default();
        behavior != DrainBehavior::Skip && !stays(pod) && !is_finished(pod)
    };
    let leaving: Vec<_> = pods.iter().filter(leaves).collect();
    let touched = budgets.iter().filter(|budget| leaving.iter().any(|pod| covers(budget, pod)));
    touched.map(|budget| (full_name(budget), budget.as_ref())).collect()
}

fn full_name(budget: &PodDisruptionBudget) -> String {
    format!("{}/{}", budget.namespace().unwrap_or_default(), budget.name_any())
}

/// What keeps one pod.
fn keeps(pod: &Pod, policy: &DrainPolicy, world: &World, named: bool) -> Option<Blocked> {
    let because = |why: &str| Some(Blocked::Pod { pod: name(pod), why: why.to_owned() });
    if controller(pod).is_none() && !named {
        return because(
            "no controller would make again: delete it, or name it in `drain.order` of the set with `Drain` or `Skip`",
        );
    }
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    if !policy.delete_empty_dir_data && volumes.into_iter().any(|volume| volume.empty_dir.is_some()) {
        return because(
            "has an emptyDir volume that would be lost: delete it, or set `drain.deleteEmptyDirData: true`",
        );
    }
    let of_pod: Vec<_> = world.budgets.iter().filter(|budget| covers(budget, pod)).collect();
    // The API server asks no budget about a pod that never started.
    if of_pod.is_empty() || phase(pod) == Some("Pending") {
        return None;
    }
    if let [one, other, ..] = of_pod.as_slice() {
        let why = format!(
            "has the PodDisruptionBudgets {} and {}, and the API server evicts no pod that has two: narrow one of them",
            full_name(one),
            full_name(other)
        );
        return Some(Blocked::Pod { pod: name(pod), why });
    }
    let budget = of_pod.into_iter().find(|budget| allowed(budget) < 1 && !lets_sick_go(budget, pod))?;
    Some(Blocked::Budget { budget: full_name(budget), pod: name(pod), why: why_none(budget, world) })
}

/// As many pods are named that are not ready.
const NAMED: usize = 2;

/// Why a budget allows no disruption: who is missing, and how many there must be.
fn why_none(budget: &PodDisruptionBudget, world: &World) -> String {
    let status = budget.status.clone().unwrap_or_default();
    if status.expected_pods == 0 {
        return "it counts no pods yet".to_owned();
    }
    let pods = world.covered.get(&full_name(budget)).map(Vec::as_slice).unwrap_or_default();
    let sick = pods.iter().filter(|pod| !is_ready(pod) && !is_finished(pod));
    let mut sick: Vec<String> = sick
        .map(|pod| {
            let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
            node.map_or_else(
                || format!("{} on no node yet", pod.name_any()),
                |node| format!("{} on {node}", pod.name_any()),
            )
        })
        .collect();
    sick.sort();
    let counts = format!(
        "{} of {} pods are healthy, {} are needed",
        status.current_healthy, status.expected_pods, status.desired_healthy
    );
    match sick.len() {
        0 => counts,
        1..=NAMED => format!("{} not ready; {counts}", sick.join(" and ")),
        many => format!("{} and {} more not ready; {counts}", sick[..NAMED].join(", "), many - NAMED),
    }
}

/// The budgets that keep one of these pods from leaving now, by namespace and name.
pub(crate) fn keeping<'a, 'b>(
    pods: impl Iterator<Item = &'b Arc<Pod>>,
    budgets: &'a [Arc<PodDisruptionBudget>],
) -> BTreeMap<String, &'a PodDisruptionBudget> {
    let leaving: Vec<_> = pods.filter(|pod| !stays(pod) && !is_finished(pod)).collect();
    let keeps =
        |budget: &&Arc<PodDisruptionBudget>| allowed(budget) < 1 && leaving.iter().any(|pod| covers(budget, pod));
    budgets.iter().filter(keeps).map(|budget| (full_name(budget), budget.as_ref())).collect()
}

/// Whether a pod that is not ready may go although the budget allows no disruption, as the API server has it.
fn lets_sick_go(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    let policy = budget.spec.as_ref().and_then(|spec| spec.unhealthy_pod_eviction_policy.as_deref());
    let status = budget.status.clone().unwrap_or_default();
    let healthy = status.desired_healthy > 0 && status.current_healthy >= status.desired_healthy;
    !is_ready(pod) && (policy == Some("AlwaysAllow") || healthy)
}

/// Whether a pod says that it is ready.
pub(super) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// How many disruptions a budget allows now.
pub(crate) fn allowed(budget: &PodDisruptionBudget) -> i32 {
    budget.status.as_ref().map_or(0, |status| status.disruptions_allowed)
}

fn covers(budget: &PodDisruptionBudget, pod: &Pod) -> bool {
    // First what is cheap: there are many pods, and many budgets.
    if budget.metadata.namespace != pod.metadata.namespace {
        return false;
    }
    let Some(selector) = selector(budget) else { return false };
    // A selector that says nothing covers everything, in a budget.
    (selector.match_labels.is_empty() && selector.match_expressions.is_empty()) || selector.matches(pod.labels())
}

/// The pods that a budget is for, if it says so.
pub(crate) fn selector(budget: &PodDisruptionBudget) -> Option<Selector> {
    let selector = budget.spec.as_ref().and_then(|spec| spec.selector.as_ref())?;
    let demands = selector.match_expressions.iter().flatten().filter_map(|demand| {
        let operator = match demand.operator.as_str() {
            "In" => SelectorOperator::In,
            "NotIn" => SelectorOperator::NotIn,
            "Exists" => SelectorOperator::Exists,
            "DoesNotExist" => SelectorOperator::DoesNotExist,
            _ => return None,
        };
        Some(SelectorRequirement {
            key: demand.key.clone(),
            operator,
            values: demand.values.clone().unwrap_or_default(),
        })
    });
    let match_expressions = demands.collect();
    Some(Selector { match_labels: selector.match_labels.clone().unwrap_or_default(), match_expressions })
}

/// Pods that stay on a node, as `kubectl drain` leaves them: static ones, and those of daemon sets.
pub(super) fn stays(pod: &Pod) -> bool {
    pod.annotations().contains_key("kubernetes.io/config.mirror") || controller(pod) == Some("DaemonSet")
}

/// What ended by itself disturbs nobody.
pub(super) fn is_finished(pod: &Pod) -> bool {
    matches!(phase(pod), Some("Succeeded" | "Failed"))
}

fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref().and_then(|status| status.phase.as_deref())
}

fn controller(pod: &Pod) -> Option<&str> {
    let owners = pod.metadata.owner_references.iter().flatten();
    owners.into_iter().find(|owner| owner.controller == Some(true)).map(|owner| owner.kind.as_str())
}

fn name(pod: &Pod) -> String {
    format!("{}/{}", pod.namespace().unwrap_or_default(), pod.name_any())
}
