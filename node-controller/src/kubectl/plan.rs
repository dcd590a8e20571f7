//! `kubectl nodes plan`

use super::model::{self, NodeRow, NodeStep};
use super::output::{Colour, Look, Output};
use super::read::{Reader, allowed, find, list};
use crate::decide::members::members;
use crate::rollout::{Left, Member, Scene, drain, queue, touched};
use crate::world::World;
use clap::Args;
use futures::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use nodelet_api::Disruption;
use nodelet_api::objects::{NodeSet, StrategyType};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

/// What is shown.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The set.
    #[arg(value_name = "NODESET")]
    set: String,
}

/// What would be done to a set.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Plan {
    /// Its name.
    node_set: String,
    /// Where it goes to.
    revision: String,
    /// How many nodes there are.
    total: usize,
    /// How many may be unavailable at once.
    max_unavailable: usize,
    /// What holds it back now.
    #[serde(skip_serializing_if = "String::is_empty")]
    held: String,
    /// Nodes that are not done, in the order of their turns.
    nodes: Vec<Change>,
}

/// What would be done to a node.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Change {
    /// How far it is.
    #[serde(flatten)]
    row: NodeRow,
    /// The steps, as the node says them; none, until it knows.
    plan: Vec<String>,
    /// The budgets that have a say in emptying it, and how many disruptions each allows now.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    budgets: BTreeMap<String, i32>,
    /// What would keep it from being emptied now.
    #[serde(skip_serializing_if = "Option::is_none")]
    blocked: Option<String>,
}

/// As many nodes are asked about at once.
const AT_ONCE: usize = 8;

/// Shows what would change.
pub(super) async fn show(reader: &Reader, options: &Options, output: Output) -> anyhow::Result<()> {
    let mut world = reader.world().await?;
    let name = options.set.rsplit('/').next().unwrap_or(&options.set);
    let set = Arc::clone(find(&world.sets, "NodeSet", "nodesets", name)?);
    world.own_node = leader_node(reader).await;
    let emptied: Vec<String> = rows(&world, &set)
        .into_iter()
        .filter(|row| row.disruption >= Some(Disruption::Drain))
        .map(|row| row.name)
        .collect();
    if !emptied.is_empty() {
        let api = Api::all(reader.client.clone());
        let budgets = allowed(list(api, "PodDisruptionBudgets", &ListParams::default()).await)?;
        world.budgets = budgets.into_values().collect();
        world.pods = pods(reader, emptied).await?;
    }
    let plan = plan(&world, &set);
    output.print(&plan, || text(&plan, Look::find()))
}

/// The node of the controller that leads, whose turn comes last. Without knowing it, the order is a guess for one node.
async fn leader_node(reader: &Reader) -> Option<String> {
    let leases: Api<Lease> = reader.own();
    let holder = leases.get_opt("node-controller").await.ok()??.spec?.holder_identity?;
    let pods: Api<Pod> = reader.own();
    pods.get_opt(&holder).await.ok()??.spec?.node_name
}

/// The pods of nodes.
async fn pods(reader: &Reader, nodes: Vec<String>) -> anyhow::Result<BTreeMap<String, Vec<Arc<Pod>>>> {
    let ask = |node: String| async move {
        let api: Api<Pod> = Api::all(reader.client.clone());
        let there = ListParams::default().fields(&format!("spec.nodeName={node}"));
        let found = api.list(&there).await.map_err(|error| super::read::explain(error, "listing pods"))?;
        anyhow::Ok((node, found.items.into_iter().map(Arc::new).collect()))
    };
    allowed(stream::iter(nodes).map(ask).buffer_unordered(AT_ONCE).try_collect().await)
}

/// The nodes that are not done, in the order of their turns: first those that have theirs.
fn rows(world: &World, set: &NodeSet) -> Vec<NodeRow> {
    let name = set.metadata.name.as_deref().unwrap_or_default();
    let row = model::set(world, name, set);
    let queue = turns(world, name, set);
    let place = |row: &NodeRow| queue.iter().position(|node| *node == row.name).unwrap_or(usize::MAX);
    let mut nodes: Vec<NodeRow> = row.nodes.into_iter().filter(|row| row.step != NodeStep::Done).collect();
    nodes.sort_by_key(|row| {
        let group = match row.step {
            NodeStep::Staged | NodeStep::Waiting => 1,
            NodeStep::Paused => 2,
            NodeStep::Failed => 3,
            _ => 0,
        };
        (group, place(row))
    });
    nodes
}

/// All nodes of a set, in the order in which the controller would take them.
pub(super) fn turns(world: &World, name: &str, set: &NodeSet) -> Vec<String> {
    let nodes = model::nodes_of(world, &members(world), name);
    let member = |node: &String| {
        let state = world.states.get(node).map(AsRef::as_ref);
        Some((node.clone(), Member { node: world.nodes.get(node)?, state, pods: None }))
    };
    let members = nodes.iter().filter_map(member).collect();
    let (now, taken) = (Timestamp::UNIX_EPOCH, BTreeSet::new());
    queue(&Scene { name, set, revision: "", kubelet: None, held: None, taken: &taken, members, world, now })
}

fn plan(world: &World, set: &NodeSet) -> Plan {
    let name = set.metadata.name.clone().unwrap_or_default();
    let row = model::set(world, &name, set);
    let held = match row.reason.as_str() {
        "" | "Updated" | "Updating" | "Staging" => String::new(),
        _ => row.message.clone(),
    };
    let change = |row: NodeRow| {
        let state = world.states.get(&row.name).map(AsRef::as_ref);
        let staged = model::status_of(state).and_then(|status| status.staged.clone());
        let staged = staged.filter(|staged| staged.revision == row.wanted);
        let (budgets, blocked) = emptying(world, set, &row);
        Change { row, plan: staged.map(|staged| staged.plan).unwrap_or_default(), budgets, blocked }
    };
    Plan {
        revision: row.revision,
        total: row.total,
        max_unavailable: set.spec.strategy.max_unavailable.of(row.total).max(1),
        held,
        nodes: rows(world, set).into_iter().map(change).collect(),
        node_set: name,
    }
}

/// The budgets that emptying a node touches, and what would keep it from being emptied.
fn emptying(world: &World, set: &NodeSet, row: &NodeRow) -> (BTreeMap<String, i32>, Option<String>) {
    let Some(pods) = world.pods.get(&row.name).filter(|_| row.disruption >= Some(Disruption::Drain)) else {
        return Default::default();
    };
    let policy = &set.spec.drain;
    let budgets = touched(pods, policy, &world.budgets);
    let budgets = budgets.into_iter().map(|(name, budget)| (name, crate::rollout::allowed(budget))).collect();
    let blocked = match drain(pods, policy, world, false) {
        // What only takes its time is no obstacle.
        Left::Some { blocked: crate::rollout::Blocked::Leaving { .. }, .. } | Left::Nothing => None,
        Left::Some { blocked, .. } => Some(blocked.to_string()),
    };
    (budgets, blocked)
}

fn text(plan: &Plan, look: Look) -> String {
    let Plan { node_set, revision, total, max_unavailable, held, nodes } = plan;
    if nodes.is_empty() {
        return format!("All {total} nodes of {node_set} have {revision}: nothing would change.\n");
    }
    let mut text = format!(
        "{} goes to {revision}: {} of {total} nodes change, {max_unavailable} at a time.\n",
        look.paint(Colour::Bold, node_set),
        nodes.len()
    );
    if !held.is_empty() {
        let _ = writeln!(text, "{}", look.paint(Colour::Yellow, &format!("Nothing begins now: {held}.")));
    }
    for (index, change) in nodes.iter().enumerate() {
        let row = &change.row;
        let disruption = row.disruption.map(|disruption| format!(", disruption {disruption}")).unwrap_or_default();
        let _ = writeln!(
            text,
            "{:>3}. {}   {} → {}{disruption}   {}",
            index + 1,
            look.paint(Colour::Bold, &row.name),
            row.applied.as_deref().unwrap_or("nothing"),
            row.wanted,
            row.step.text(),
        );
        for line in &change.plan {
            let _ = writeln!(text, "       {line}");
        }
        if change.plan.is_empty() {
            let why = if row.reason.is_empty() { String::new() } else { format!(": {}", row.reason) };
            let known = if row.disruption.is_some() { "it says no steps" } else { "the steps are not known yet" };
            let _ = writeln!(text, "       {known}{why}");
        }
        for (budget, allowed) in &change.budgets {
            let colour = if *allowed < 1 { Colour::Red } else { Colour::Green };
            let disruptions = if *allowed == 1 { "disruption" } else { "disruptions" };
            let says = format!("PodDisruptionBudget {budget} allows {allowed} {disruptions} now");
            let _ = writeln!(text, "       {}", look.paint(colour, &says));
        }
        if let Some(blocked) = &change.blocked {
            let _ = writeln!(text, "       {}", look.paint(Colour::Red, &format!("would wait now for {blocked}")));
        }
    }
    text
}

/// Whether nodes of a set change only when somebody deletes their state.
pub(super) fn is_by_hand(set: &NodeSet) -> bool {
    set.spec.strategy.r#type == StrategyType::OnDelete
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::kubectl::fixture::{Fixture, NEW, OLD};
    use serde_json::json;

    fn shown(fixture: &Fixture) -> String {
        text(&plan(&fixture.world, &fixture.world.sets["workers"]), Look::default())
    }

    #[test]
    fn turns_come_in_order_with_steps_and_budgets() {
        let mut fixture = Fixture::new(&["n1", "n2", "n3"]);
        for node in ["n1", "n2"] {
            fixture.applied(node, OLD);
            fixture.staged(node, NEW, Disruption::Drain);
        }
        fixture.applied("n3", NEW);
        fixture.world.own_node = Some("n1".into());
        let pod = json!({"metadata": {"name": "p", "namespace": "shop", "labels": {"app": "web"},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": true}]},
            "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        fixture.world.pods.insert("n2".into(), vec![Arc::new(serde_json::from_value(pod).unwrap())]);
        let budget = json!({"metadata": {"name": "web", "namespace": "shop"},
            "spec": {"selector": {"matchLabels": {"app": "web"}}},
            "status": {"disruptionsAllowed": 0, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}});
        fixture.world.budgets.push(Arc::new(serde_json::from_value(budget).unwrap()));
        fixture.progressing("False", "WaitingForWindow", "1 of 3 nodes have worker-new; the next window opens at noon");
        let wanted = "\
workers goes to worker-new: 2 of 3 nodes change, 1 at a time.
Nothing begins now: the next window opens at noon.
  1. n2   worker-old → worker-new, disruption Drain   staged
       upgrade containerd 1 to 2
       PodDisruptionBudget shop/web allows 0 disruptions now
       would wait now for PodDisruptionBudget shop/web allows 0 disruptions (1 of 1 pods are healthy, 1 are needed); it keeps pod shop/p
  2. n1   worker-old → worker-new, disruption Drain   staged
       upgrade containerd 1 to 2
";
        assert_eq!(shown(&fixture), wanted);
    }

    #[test]
    fn nothing_to_do_is_said_and_what_is_not_known_too() {
        let mut fixture = Fixture::new(&["n1"]);
        assert!(shown(&fixture).contains("the steps are not known yet: its nodelet has not reported yet"));
        fixture.applied("n1", NEW);
        assert_eq!(shown(&fixture), "All 1 nodes of workers have worker-new: nothing would change.\n");
    }
}
