//! `kubectl nodes history`

use super::model;
use super::output::{Cell, Colour, Look, Output, ago, plain, table};
use super::read::{Reader, find};
use crate::decide::members::members;
use crate::world::World;
use clap::Args;
use jiff::Timestamp;
use nodelet_api::objects::{NodeSet, time_text};
use serde::Serialize;

/// What is shown.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The set.
    #[arg(value_name = "NODESET")]
    set: String,
}

/// A revision of the set's class.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    /// Its name.
    revision: String,
    /// When it was stored; nothing, where only nodes still know it.
    #[serde(skip_serializing_if = "String::is_empty")]
    stored: String,
    /// The nodes that have it.
    nodes: Vec<String>,
    /// What it is to the set: `class`, `target`, `current`, `bad`.
    marks: Vec<&'static str>,
    /// Why it is bad.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
}

/// As many nodes are named; of more, their number says enough.
const NAMED: usize = 3;

/// Lists revisions, the newest first.
pub(super) async fn show(reader: &Reader, options: &Options, output: Output) -> anyhow::Result<()> {
    let world = reader.world().await?;
    let set = find(&world.sets, "NodeSet", "nodesets", &options.set)?;
    let rows = rows(&world, set);
    let look = Look::find();
    output.print(&rows, || text(&rows, look, Timestamp::now()))
}

fn rows(world: &World, set: &NodeSet) -> Vec<Row> {
    let name = set.metadata.name.clone().unwrap_or_default();
    let class = &set.spec.class_ref.name;
    let status = set.status.clone().unwrap_or_default();
    let applied = |node: &String| {
        let state = world.states.get(node).map(AsRef::as_ref);
        model::status_of(state).and_then(|status| status.applied.as_ref()).map(|applied| applied.revision.clone())
    };
    let nodes: Vec<(String, String)> = model::nodes_of(world, &members(world), &name)
        .into_iter()
        .filter_map(|node| applied(&node).map(|revision| (revision, node)))
        .collect();
    let of_class = world.revisions.iter().filter(|(_, stored)| stored.class == *class);
    let mut known: Vec<(Option<Timestamp>, String)> =
        of_class.map(|(revision, stored)| (Some(stored.at), revision.clone())).collect();
    for (revision, _) in &nodes {
        if !known.iter().any(|(_, one)| one == revision) {
            known.push((None, revision.clone()));
        }
    }
    known.sort_by(|a, b| b.cmp(a));
    let asked = model::asked(world, set).unwrap_or_default();
    let row = |(at, revision): (Option<Timestamp>, String)| {
        let bad = status.bad_revisions.iter().find(|bad| bad.revision == revision);
        let marks = [
            ("class", revision == asked),
            ("target", revision == status.update_revision),
            ("current", revision == status.current_revision),
            ("bad", bad.is_some()),
        ];
        Row {
            stored: at.map(time_text).unwrap_or_default(),
            nodes: nodes.iter().filter(|(one, _)| *one == revision).map(|(_, node)| node.clone()).collect(),
            marks: marks.into_iter().filter(|(_, is)| *is).map(|(mark, _)| mark).collect(),
            reason: bad.map(|bad| bad.reason.clone()).unwrap_or_default(),
            revision,
        }
    };
    known.into_iter().map(row).collect()
}

fn text(rows: &[Row], look: Look, now: Timestamp) -> String {
    if rows.is_empty() {
        return "No revision is stored: `kubectl get nodeclasses` shows whether the class could be rendered.\n"
            .to_owned();
    }
    let cells = |row: &Row| -> Vec<Cell> {
        let colour = match row.marks.as_slice() {
            marks if marks.contains(&"bad") => Colour::Red,
            marks if marks.contains(&"target") => Colour::Green,
            _ => Colour::Plain,
        };
        let age = if row.stored.is_empty() { "not stored".to_owned() } else { ago(&row.stored, now) };
        let nodes = match row.nodes.len() {
            0 => "none".to_owned(),
            few if few <= NAMED => row.nodes.join(", "),
            many => format!("{many} nodes, such as {}", row.nodes.first().cloned().unwrap_or_default()),
        };
        let marks = row.marks.join(", ");
        vec![
            (Colour::Plain, row.revision.clone()),
            (Colour::Plain, age),
            (Colour::Plain, nodes),
            (colour, marks),
            (Colour::Plain, row.reason.clone()),
        ]
    };
    let heads = plain(["REVISION", "AGE", "NODES", "IS", "WHY"]);
    table(&std::iter::once(heads).chain(rows.iter().map(cells)).collect::<Vec<_>>(), "", look)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubectl::fixture::{Fixture, NEW, OLD, now};
    use nodelet_api::objects::BadRevision;

    #[test]
    fn revisions_say_who_has_them_and_what_they_are() {
        let mut fixture = Fixture::new(&["n1", "n2", "n3", "n4", "n5"]);
        for node in ["n1", "n2", "n3", "n4"] {
            fixture.applied(node, OLD);
        }
        fixture.applied("n5", "worker-lost");
        let bad = BadRevision { revision: NEW.into(), reason: "node n1: x".into(), at: String::new() };
        fixture.set_status(|status| status.bad_revisions.push(bad));
        let rows = rows(&fixture.world, &fixture.world.sets["workers"]);
        let wanted = "\
REVISION      AGE          NODES                 IS                   WHY
worker-new    10m          none                  class, target, bad   node n1: x
worker-old    7d           4 nodes, such as n1   current
worker-lost   not stored   n5
";
        assert_eq!(text(&rows, Look::default(), now()), wanted);
    }
}
