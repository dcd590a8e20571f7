//! The sentences that explain a node.

use super::{Unanswered, Why};
use crate::decide::members::{Members, members};
use crate::kubectl::model::{self, NodeRow, NodeStep};
use crate::kubectl::output::ago;
use crate::kubectl::plan::{is_by_hand, turns};
use crate::world::{World, is_ready};
use jiff::Timestamp;
use kube::ResourceExt;
use nodelet_api::objects::{Condition, NodeSet, NodeState, NodeStateStatus};

/// Says why a node is as it is.
pub(super) fn explain(world: &World, node: &str, requests: &[Unanswered], now: Timestamp) -> Why {
    let mut why = Why { node: node.to_owned(), ..Why::default() };
    let members = members(world);
    if let Some(name) = belongs(world, &members, node, &mut why)
        && let Some(set) = world.sets.get(&name)
    {
        let revision = model::target(world, set);
        let row = model::node_row(world, set, &revision, node);
        has_and_wants(world, set, &row, now, &mut why);
        target(world, set, &revision, &mut why);
        turn(world, &name, set, &row, now, &mut why);
        set_level(set, &row, &mut why);
    }
    about_nodelet(world, node, now, &mut why);
    certificates(world, node, requests, &mut why);
    if let Some(object) = world.nodes.get(node).filter(|object| !is_ready(object)) {
        why.because.push("Its kubelet does not say that it is ready.".to_owned());
        why.todo.push(format!("see why it is not ready: `kubectl describe node {}`", object.name_any()));
    }
    why
}

/// The set that a node belongs to.
fn belongs(world: &World, members: &Members, node: &str, why: &mut Why) -> Option<String> {
    let contested: Vec<&str> =
        members.contested.iter().filter(|(_, nodes)| nodes.contains_key(node)).map(|(set, _)| set.as_str()).collect();
    if !contested.is_empty() {
        let sets = contested.join(" and ");
        why.because.push(format!("{node} is selected by the NodeSets {sets}, and so belongs to none of them."));
        why.because.push("It keeps what it has, and gets nothing new.".to_owned());
        why.todo.push(format!("narrow the selector of all but one: `kubectl edit nodesets {}`", contested.join(" ")));
        return None;
    }
    let found = world.sets.keys().find(|set| model::nodes_of(world, members, set).contains(node)).cloned();
    if let Some(set) = &found {
        let class = world.sets.get(set).map(|set| set.spec.class_ref.name.as_str()).unwrap_or_default();
        why.because.push(format!("{node} is in the NodeSet {set}, of the class {class}."));
    } else {
        why.because.push(format!("{node} belongs to no NodeSet: none selects its labels."));
        let selectors = world.sets.iter().filter_map(|(name, set)| {
            let text = set.status.as_ref().map(|status| status.selector.clone()).filter(|text| !text.is_empty())?;
            Some(format!("{name} selects {text}"))
        });
        let selectors: Vec<String> = selectors.collect();
        let which = if selectors.is_empty() { String::new() } else { format!(" ({})", selectors.join("; ")) };
        why.todo.push(format!("give it the labels of a set{which}: `kubectl label node {node} KEY=VALUE`"));
    }
    found
}

/// What it has, and what it must become.
fn has_and_wants(world: &World, set: &NodeSet, row: &NodeRow, now: Timestamp, why: &mut Why) {
    let state = world.states.get(&row.name).map(AsRef::as_ref);
    let applied = model::status_of(state).and_then(|status| status.applied.as_ref());
    let has = match applied {
        Some(applied) => match ago(&applied.at, now) {
            age if age.is_empty() => format!("It has {}", applied.revision),
            age => format!("It has had {} for {age}", applied.revision),
        },
        None => "It has not reported any revision".to_owned(),
    };
    why.because.push(match (row.step, row.wanted.as_str()) {
        (_, "") => format!("{has}; its class has no revision that it could become."),
        (NodeStep::Done, _) => format!("{has}, and that is what its set wants."),
        (_, wanted) if applied.is_some_and(|applied| applied.revision == wanted) => {
            format!("{has}, but with contents of Secrets that have changed since.")
        }
        (_, wanted) => match row.disruption {
            Some(disruption) => format!("{has}, and must become {wanted}; that disturbs: {disruption}."),
            None => format!("{has}, and must become {wanted}."),
        },
    });
    let class = &set.spec.class_ref.name;
    match world.classes.get(class) {
        None if world.misread.contains_key(class) => {
            why.because.push(format!("The {}.", model::not_understood(class, &world.misread[class])));
        }
        None => {
            why.because.push(format!("The class {class} does not exist."));
            why.todo.push(format!("make the class {class}, or correct `classRef` of the set"));
        }
        Some(object) => {
            let conditions = object.status.iter().flat_map(|status| &status.conditions);
            for wrong in conditions.filter(|condition| condition.status == "False") {
                why.because.push(sentence(&format!("Of the class {class}: {}", wrong.message)));
                why.todo.push(format!("correct the class: `kubectl edit nodeclass {class}`"));
            }
        }
    }
    if state.is_none() {
        why.because.push("It has no NodeState yet; node-controller makes it.".to_owned());
        why.todo.push("see whether node-controller runs: `kubectl -n nodelet-system get pods`".to_owned());
    }
}

/// Why a set does not go where its class asks for.
fn target(world: &World, set: &NodeSet, revision: &str, why: &mut Why) {
    let Some(asked) = model::asked(world, set).filter(|asked| asked != revision && !revision.is_empty()) else {
        return;
    };
    let (name, class) = (set.name_any(), &set.spec.class_ref.name);
    let bad = set.status.iter().flat_map(|status| &status.bad_revisions).find(|bad| bad.revision == asked);
    let undone = set.spec.undo.as_ref().is_some_and(|undo| undo.away_from == asked);
    if undone {
        why.because.push(format!("The class asks for {asked}, but somebody went back from it (`kubectl nodes undo`)."));
        why.todo
            .push(format!("to go on after all: `kubectl nodes undo {name} --to {asked}`; or change the class {class}"));
    } else if let Some(bad) = bad {
        let reason = bad.reason.trim_end_matches('.');
        why.because.push(format!("The class asks for {asked}, which failed ({reason}), so the set went back."));
        why.todo.push(format!("correct the class: `kubectl edit nodeclass {class}`"));
    }
}

/// Whose turn it is.
fn turn(world: &World, name: &str, set: &NodeSet, row: &NodeRow, now: Timestamp, why: &mut Why) {
    let waits = if row.reason.is_empty() { String::new() } else { format!(", and waits for: {}", row.reason) };
    let step = row.step.text();
    match row.step {
        NodeStep::Failed => {
            why.because.push(sentence(&format!("It failed: {}", row.reason)));
            last_steps(world.states.get(&row.name).map(AsRef::as_ref), why);
            why.todo.push(format!(
                "see what went wrong there: `journalctl -u nodelet` on {}; then correct the class {}, go back with \
                 `kubectl nodes undo {name}`, or let it try again as it is with `kubectl nodes retry {name}`",
                row.name, set.spec.class_ref.name
            ));
            return;
        }
        NodeStep::Paused if !set.spec.paused => {
            why.because.push(sentence(&format!("It is left as it is: {}", row.reason)));
            why.todo.push(format!("let it go on: `kubectl nodes resume --node {}`", row.name));
            return;
        }
        // Of a set that is paused, that is said later.
        NodeStep::Done | NodeStep::Paused => return,
        NodeStep::Staged | NodeStep::Waiting => {}
        _ => {
            why.because.push(format!("It has had its turn for {}: it is {step}{waits}.", ago(&row.since, now)));
            if row.reason.contains("a sign of life") {
                why.todo.push(format!(
                    "look at its power and its network; to go on without it, `kubectl nodes pause --node {}`, or delete its \
                     Node",
                    row.name
                ));
            }
            if row.reason.contains("PodDisruptionBudget") {
                why.todo.push(format!(
                    "make more of those pods healthy, or change the budget; or say in `drain.onTimeout` of the set what \
                     happens when it takes too long: `kubectl edit nodeset {name}`"
                ));
            }
            return;
        }
    }
    if row.step == NodeStep::Waiting {
        why.because.push(sentence(&format!("It is not ready for its turn: {}", row.reason)));
    }
    if is_by_hand(set) {
        why.todo.push(format!("start its change: `kubectl delete nodestate {}`", row.name));
        return;
    }
    let busy: Vec<NodeRow> = model::set(world, name, set).nodes;
    let busy = busy.into_iter().filter(|other| model::slot_of(set, &other.name, None).is_some());
    let busy: Vec<String> = busy.map(|other| format!("{} ({})", other.name, other.step.text())).collect();
    if !busy.is_empty() {
        why.because.push(format!("Now it is the turn of {}.", busy.join(", ")));
    }
    let revision = model::target(world, set);
    let waiting = |node: &String| {
        let step = model::node_row(world, set, &revision, node).step;
        matches!(step, NodeStep::Staged | NodeStep::Waiting)
    };
    let queue: Vec<String> = turns(world, name, set).into_iter().filter(waiting).collect();
    match queue.iter().position(|node| *node == row.name) {
        Some(0) => why.because.push("It is the next one.".to_owned()),
        Some(1) => why.because.push("One node comes before it.".to_owned()),
        Some(place) => why.because.push(format!("{place} nodes come before it.")),
        None => {}
    }
}

/// The steps of the last change that did not stay.
fn last_steps(state: Option<&NodeState>, why: &mut Why) {
    let steps = model::status_of(state).map(|status| status.steps.as_slice()).unwrap_or_default();
    let wrong = steps.iter().filter(|step| step.result != "done");
    let wrong: Vec<String> = wrong.map(|step| format!("{} ({})", step.what, step.result)).collect();
    if !wrong.is_empty() {
        why.because.push(format!("Of its last change: {}.", wrong.join(", ")));
    }
}

/// What holds the whole set back.
fn set_level(set: &NodeSet, row: &NodeRow, why: &mut Why) {
    let name = set.name_any();
    let Some(status) = &set.status else {
        why.because.push("node-controller has not looked at the set yet.".to_owned());
        why.todo.push("see whether node-controller runs: `kubectl -n nodelet-system get pods`".to_owned());
        return;
    };
    if row.step == NodeStep::Done {
        return;
    }
    let Some(progressing) = model::condition(&status.conditions, "Progressing") else { return };
    let message = progressing.message.as_str();
    let rest = message.split_once("; ").map_or(message, |(_, rest)| rest);
    let todo = match progressing.reason.as_str() {
        "Paused" => format!("let the set go on: `kubectl nodes resume {name}`"),
        "WaitingForWindow" => format!("wait, or change `windows` of the set: `kubectl edit nodeset {name}`"),
        "GateFailing" => "make well what the gate looks at; it is looked at again by itself".to_owned(),
        "WaitingForGate" => {
            "wait until the gate was asked, or its Job has ended; `kubectl logs` shows what that does".to_owned()
        }
        "FailureBudget" => format!(
            "correct the class {}, or `kubectl nodes undo {name}`; where the reason is gone, `kubectl nodes retry {name}`",
            set.spec.class_ref.name
        ),
        "NodeSilent" => "look at the power and the network of the node that is not heard of; to go on without it, \
                         `kubectl nodes pause --node NODE`, or delete its Node"
            .to_owned(),
        "NodesLeftOut" => format!("when what kept it is gone, `kubectl nodes retry {name}`"),
        "UndoImpossible" => format!("choose a stored revision: `kubectl nodes history {name}`"),
        "VersionSkew" => "upgrade the control plane first, or ask for another kubelet in the class".to_owned(),
        "ContentsMissing" => "make what the class takes contents from".to_owned(),
        // What is under way, or said of this node itself.
        _ => return,
    };
    why.because.push(sentence(&format!("The set begins nothing: {rest}")));
    why.todo.push(todo);
}

/// What its nodelet says, or that it says nothing.
fn about_nodelet(world: &World, node: &str, now: Timestamp, why: &mut Why) {
    let on_node = format!("look at its nodelet: `systemctl status nodelet` and `journalctl -u nodelet` on {node}");
    if let Some(silent) = world.nodes.get(node).and_then(|node| model::silent(node)) {
        let since = silent.last_transition_time.as_ref().map(|time| nodelet_api::objects::time_text(time.0));
        let age = since.map(|since| ago(&since, now)).filter(|age| !age.is_empty());
        let age = age.map(|age| format!(" for at least {age}")).unwrap_or_default();
        why.because.push(format!("Its nodelet was not heard of{age}: what is said of it may be old."));
        why.todo.push(on_node);
        return;
    }
    let state = world.states.get(node).map(AsRef::as_ref);
    let Some(status) = model::status_of(state) else {
        if state.is_some() {
            // Of a node of a set it was said before.
            if !why.because.iter().any(|sentence| sentence.contains("nodelet has not reported yet")) {
                why.because.push("Its nodelet has not reported yet.".to_owned());
            }
            why.todo.push(on_node);
        }
        return;
    };
    says(status, why);
}

fn says(status: &NodeStateStatus, why: &mut Why) {
    let known = |why: &Why, text: &str| why.because.iter().any(|sentence| sentence.contains(text));
    if !status.waiting_for.is_empty() && !known(why, &status.waiting_for) {
        why.because.push(sentence(&format!("Its nodelet waits for: {}", status.waiting_for)));
    }
    let wrong = |condition: &&Condition| {
        condition.status == "True" && ["Degraded", "Drifted"].contains(&condition.kind.as_str())
    };
    for condition in status.conditions.iter().filter(wrong) {
        if !known(why, &condition.message) {
            why.because.push(sentence(&format!("Its nodelet says {}: {}", condition.reason, condition.message)));
        }
    }
}

/// Certificates that it asked for and did not get.
fn certificates(world: &World, node: &str, requests: &[Unanswered], why: &mut Why) {
    let identity = world.states.get(node).and_then(|state| state.status.as_ref()?.identity.clone());
    for Unanswered { name, denied } in requests {
        match denied {
            Some(reason) => {
                why.because.push(sentence(&format!("Its request {name} for a certificate was denied: {reason}")));
                why.todo.push(format!("when that is mended: `kubectl delete csr {name}`; it asks again by itself"));
            }
            // One that has a certificate renews it, and goes on until it is over.
            None if identity.is_some() => {
                why.because.push(format!("Its request {name} for its next certificate is not answered yet."));
            }
            None => {
                why.because.push(format!("Its request {name} for a certificate is not answered yet."));
                why.todo
                    .push(format!("see who asked (`kubectl describe csr {name}`), and whether node-controller runs"));
            }
        }
    }
}

/// With a full stop, and only one.
fn sentence(text: &str) -> String {
    format!("{}.", text.trim_end_matches('.'))
}

#[cfg(test)]
mod tests;
