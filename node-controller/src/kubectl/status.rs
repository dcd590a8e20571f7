//! `kubectl nodes status`

use super::live::Live;
use super::model::{self, NOT_SEEN, NodeRow, NodeStep, SetRow};
use super::output::{Cell, Colour, Look, Output, ago, plain, say, table};
use super::read::{Reader, find};
use crate::world::World;
use clap::Args;
use jiff::Timestamp;
use std::fmt::Write as _;
use std::time::Duration;

/// What is shown.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The sets; all of them, if none is named.
    #[arg(value_name = "NODESET")]
    sets: Vec<String>,
    /// Keep it up to date until Ctrl-C.
    #[arg(long, short)]
    watch: bool,
}

/// So long the controller may need to see a change.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often the times on a terminal move on.
const TICK: Duration = Duration::from_secs(1);

/// Shows how far sets are.
pub(super) async fn show(reader: &Reader, options: &Options, output: Output) -> anyhow::Result<()> {
    if options.watch {
        return watch(reader, options, output).await;
    }
    let rows = rows(&reader.world().await?, &options.sets)?;
    let look = Look::find();
    output.print(&rows, || text(&rows, look, Timestamp::now()))
}

/// Shows it again whenever it changes.
async fn watch(reader: &Reader, options: &Options, output: Output) -> anyhow::Result<()> {
    let live = Live::start(&reader.client).await?;
    let look = Look::find();
    let redraw = look.terminal && output == Output::Text;
    let mut shown: Option<Vec<SetRow>> = None;
    loop {
        let now = rows(&live.world(), &options.sets)?;
        if redraw {
            let text = text(&now, look, Timestamp::now());
            // From the top, each line to its end, then what is left of before: nothing flickers.
            let first = if shown.is_none() { "\x1b[2J" } else { "" };
            say(&format!("{first}\x1b[H{}\x1b[J", text.replace('\n', "\x1b[K\n")))?;
        } else if shown.as_ref() != Some(&now) {
            // A change that the controller has not seen yet is seen in a moment: that is no news, unless it lasts.
            let unseen = now.iter().any(|set| set.reason == NOT_SEEN);
            if unseen && tokio::time::timeout(PATIENCE, live.changed()).await.is_ok() {
                continue;
            }
            match output {
                Output::Text => say(&changes(shown.as_deref().unwrap_or_default(), &now))?,
                // A document for each change.
                Output::Json => say(&serde_json::to_string(&now)?)?,
                Output::Yaml => say(&format!("---\n{}", super::output::yaml(&now)?))?,
            }
        }
        shown = Some(now);
        if redraw {
            // A change, or the clock: times are shown.
            let _ = tokio::time::timeout(TICK, live.changed()).await;
        } else {
            live.changed().await;
        }
    }
}

/// The sets that were named, or all.
fn rows(world: &World, names: &[String]) -> anyhow::Result<Vec<SetRow>> {
    if names.is_empty() {
        return Ok(model::sets(world));
    }
    let one = |name: &String| {
        let set = find(&world.sets, "NodeSet", "nodesets", name)?;
        Ok(model::set(world, name.rsplit('/').next().unwrap_or(name), set))
    };
    names.iter().map(one).collect()
}

/// Everything, for people.
fn text(sets: &[SetRow], look: Look, now: Timestamp) -> String {
    if sets.is_empty() {
        return "There is no NodeSet: docs/cluster.md says how to write one.\n".to_owned();
    }
    let mut text = String::new();
    for (index, set) in sets.iter().enumerate() {
        if index > 0 {
            text.push('\n');
        }
        let _ = writeln!(
            text,
            "{}   class {}   {}   {}   {}",
            look.paint(Colour::Bold, &set.name),
            set.class,
            if set.revision.is_empty() { "no revision" } else { &set.revision },
            progress(set, look),
            look.paint(mood(set), &said(set))
        );
        for trouble in &set.troubles {
            let _ = writeln!(text, "  {}", look.paint(Colour::Red, trouble));
        }
        let heads = plain(["NODE", "STEP", "FOR", "REVISION", "DISRUPTION", "WHY"]);
        let rows = set.nodes.iter().map(|node| cells(node, now));
        let rows: Vec<_> = std::iter::once(heads).chain(rows).collect();
        if rows.len() > 1 {
            text += &table(&rows, "  ", look);
        }
    }
    text
}

/// How far a set is, in words.
fn said(set: &SetRow) -> String {
    match (set.reason.as_str(), set.message.as_str()) {
        ("", _) => "node-controller has not seen it yet: does it run?".to_owned(),
        (reason, "") => reason.to_owned(),
        // What a node waits for stands beside the node.
        (reason @ "Updating", message) => {
            format!("{reason}: {}", message.split_once(", waits for ").map_or(message, |(node, _)| node))
        }
        (reason, message) => format!("{reason}: {message}"),
    }
}

/// How many nodes are done: as a bar on a terminal.
fn progress(set: &SetRow, look: Look) -> String {
    const WIDTH: usize = 20;
    let numbers = format!("{} of {} updated", set.updated, set.total);
    if !look.terminal {
        return numbers;
    }
    let full = (set.updated * WIDTH).checked_div(set.total).unwrap_or(WIDTH);
    let bar = format!("{}{}", "█".repeat(full), "░".repeat(WIDTH - full));
    format!("{} {numbers}", look.paint(mood(set), &bar))
}

fn mood(set: &SetRow) -> Colour {
    match set.reason.as_str() {
        "Updated" => Colour::Green,
        "Updating" | "Staging" | "Paused" | "WaitingForWindow" => Colour::Yellow,
        _ => Colour::Red,
    }
}

fn cells(node: &NodeRow, now: Timestamp) -> Vec<Cell> {
    let colour = match node.step {
        NodeStep::Done => Colour::Green,
        NodeStep::Failed => Colour::Red,
        NodeStep::Staged | NodeStep::Waiting => Colour::Plain,
        _ => Colour::Yellow,
    };
    let disruption = node.disruption.map(|disruption| disruption.to_string()).unwrap_or_default();
    vec![
        (Colour::Plain, node.name.clone()),
        (colour, node.step.text().to_owned()),
        (Colour::Plain, ago(&node.since, now)),
        (Colour::Plain, revisions(node)),
        (Colour::Plain, disruption),
        (Colour::Plain, node.reason.clone()),
    ]
}

/// What a node has, and what it must become where that is another.
fn revisions(node: &NodeRow) -> String {
    match node.applied.as_deref() {
        Some(applied) if applied == node.wanted => applied.to_owned(),
        applied => format!("{} → {}", applied.unwrap_or("nothing"), node.wanted),
    }
}

/// What changed, a line each.
fn changes(before: &[SetRow], now: &[SetRow]) -> String {
    let mut text = String::new();
    for set in now {
        let old = before.iter().find(|old| old.name == set.name);
        let line = |set: &SetRow| {
            let parts = std::iter::once(said(set)).chain(set.troubles.iter().cloned()).collect::<Vec<_>>();
            format!("{}: {}, {}", set.name, progress(set, Look::default()), parts.join("; "))
        };
        if old.map(line) != Some(line(set)) {
            let _ = writeln!(text, "{}", line(set));
        }
        for node in &set.nodes {
            if !old.is_some_and(|old| old.nodes.contains(node)) {
                let disruption = node.disruption.map(|disruption| format!(", {disruption}")).unwrap_or_default();
                let why = if node.reason.is_empty() { String::new() } else { format!(": {}", node.reason) };
                let (step, revisions) = (node.step.text(), revisions(node));
                let _ = writeln!(text, "{}/{}: {step}, {revisions}{disruption}{why}", set.name, node.name);
            }
        }
    }
    for gone in before.iter().filter(|old| !now.iter().any(|set| set.name == old.name)) {
        let _ = writeln!(text, "{}: deleted", gone.name);
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::kubectl::fixture::{Fixture, NEW, OLD, now};
    use nodelet_api::objects::SlotStep;

    fn scene() -> Fixture {
        let mut fixture = Fixture::new(&["n1", "n2"]);
        fixture.applied("n1", NEW);
        fixture.applied("n2", OLD);
        fixture.slot("n2", SlotStep::Draining, "pod a/b to leave");
        fixture.progressing("True", "Updating", "1 of 2 nodes have worker-new; n2 is draining, waits for x");
        fixture
    }

    #[test]
    fn it_reads_well() {
        let rows = rows(&scene().world, &[]).unwrap();
        let wanted = "\
workers   class worker   worker-new   1 of 2 updated   Updating: n2 is draining
  NODE   STEP       FOR   REVISION                  DISRUPTION   WHY
  n1     done       3h    worker-new
  n2     draining   2m    worker-old → worker-new   Drain        pod a/b to leave
";
        assert_eq!(text(&rows, Look::default(), now()), wanted);
        let terminal = text(&rows, Look { terminal: true, colour: false }, now());
        assert!(terminal.contains("██████████░░░░░░░░░░ 1 of 2 updated"), "{terminal}");
        assert!(!terminal.contains('\x1b'));
        assert!(text(&rows, Look { terminal: true, colour: true }, now()).contains("\x1b[33mdraining\x1b[0m"));
    }

    #[test]
    fn lines_come_for_what_changed() {
        let mut fixture = scene();
        let before = rows(&fixture.world, &[]).unwrap();
        let all = changes(&[], &before);
        assert_eq!(all.lines().count(), 3, "{all}");
        assert_eq!(changes(&before, &before), "");
        fixture.set_status(|status| status.slots[0].step = SlotStep::Applying);
        let after = rows(&fixture.world, &["nodeset/workers".to_owned()]).unwrap();
        let line = "workers/n2: applying, worker-old → worker-new, Drain: pod a/b to leave\n";
        assert_eq!(changes(&before, &after), line);
        assert_eq!(changes(&before, &[]), "workers: deleted\n");
    }

    #[test]
    fn a_name_that_is_not_there_is_an_error() {
        assert!(rows(&scene().world, &["x".to_owned()]).unwrap_err().to_string().contains("no NodeSet `x`"));
    }
}
