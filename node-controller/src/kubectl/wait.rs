//! `kubectl nodes wait`

use super::live::Live;
use super::model;
use super::output::{Output, age, say};
use super::read::{Reader, find};
use super::token::duration;
use crate::world::World;
use anyhow::Context;
use clap::Args;
use jiff::SignedDuration;
use nodelet_api::objects::NodeSet;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// What is waited for.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The set.
    #[arg(value_name = "NODESET")]
    set: String,
    /// How long at most: a number with s, m, h or d.
    #[arg(long, default_value = "10m", value_parser = duration)]
    timeout: SignedDuration,
}

/// How far a rollout is.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// All nodes have it.
    Done(String),
    /// It will not come to that by itself.
    Failed(String),
    /// It goes on.
    Going(String),
}

/// Waits, and prints each transition. Success when all nodes have what the class asks for.
pub(super) async fn wait(reader: &Reader, options: &Options, output: Output) -> anyhow::Result<ExitCode> {
    let limit = Duration::try_from(options.timeout).context("reading --timeout")?;
    let end = Instant::now() + limit;
    let live = Live::start(&reader.client).await?;
    let mut said = String::new();
    loop {
        let world = live.world();
        let set = find(&world.sets, "NodeSet", "nodesets", &options.set)?;
        let (result, sentence) = match judge(&world, set) {
            Verdict::Done(sentence) => ("Updated", sentence),
            Verdict::Failed(sentence) => ("Failed", sentence),
            Verdict::Going(sentence) => ("Updating", sentence),
        };
        if sentence != said {
            let told = json!({"nodeSet": options.set, "result": result, "message": sentence});
            match output {
                Output::Text => say(&sentence)?,
                Output::Json => say(&told.to_string())?,
                Output::Yaml => say(&format!("---\n{}", super::output::yaml(&told)?))?,
            }
            said = sentence;
        }
        match result {
            "Updated" => return Ok(ExitCode::SUCCESS),
            "Failed" => return Ok(ExitCode::FAILURE),
            _ => {}
        }
        if timeout_at(end, live.changed()).await.is_err() {
            anyhow::bail!(
                "{} were over before all nodes of {} were updated; last: {said}. `kubectl nodes status {}` shows how far \
                 each one is; wait longer with --timeout",
                age(options.timeout),
                options.set,
                options.set
            );
        }
    }
}

/// Reasons for which a set stands still until a person does something.
const STUCK: [&str; 6] =
    ["FailureBudget", "NodesLeftOut", "UndoImpossible", "VersionSkew", "NoRevision", "ContentsMissing"];

/// How far the rollout of what the class asks for is.
fn judge(world: &World, set: &NodeSet) -> Verdict {
    let status = set.status.clone().unwrap_or_default();
    let class_name = &set.spec.class_ref.name;
    let progressing = model::condition(&status.conditions, "Progressing");
    // The controller says no more of such a class than this.
    if let Some(not) = progressing.filter(|progressing| progressing.reason == "ClassNotUnderstood") {
        return Verdict::Failed(format!("{}: {}", not.reason, not.message));
    }
    if let Some(error) = world.misread.get(class_name) {
        return Verdict::Failed(format!("the {}", model::not_understood(class_name, error)));
    }
    let Some(class) = world.classes.get(class_name) else {
        return Verdict::Failed(format!("there is no NodeClass {class_name}: make it, or correct `classRef`"));
    };
    let seen = class.status.as_ref().and_then(|status| status.observed_generation);
    if seen < class.metadata.generation || status.observed_generation < set.metadata.generation {
        return Verdict::Going("waiting for node-controller to see the last change".to_owned());
    }
    let rendered = class.status.as_ref().and_then(|status| model::condition(&status.conditions, "Rendered"));
    if let Some(wrong) = rendered.filter(|rendered| rendered.status == "False") {
        return Verdict::Failed(format!("the class {class_name} can't be rendered: {}", wrong.message));
    }
    let asked = model::asked(world, set).unwrap_or_default();
    let undo = set.spec.undo.as_ref().filter(|undo| undo.away_from == asked);
    // Somebody went back: then that is what is waited for, and what it leaves may be as bad as it likes.
    let wanted = undo.map_or(asked.as_str(), |undo| undo.to.as_str());
    if let Some(bad) = status.bad_revisions.iter().find(|bad| bad.revision == wanted) {
        return Verdict::Failed(format!("revision {wanted} failed: {}", bad.reason));
    }
    if status.update_revision != wanted {
        return Verdict::Going(format!("waiting for node-controller to hand out {wanted}"));
    }
    let Some(progressing) = progressing else {
        return Verdict::Going("waiting for node-controller to say how far it is".to_owned());
    };
    match progressing.reason.as_str() {
        "Updated" => Verdict::Done(progressing.message.clone()),
        // Who was passed over by the policy alone gets another turn.
        "NodesLeftOut" if status.failures.iter().any(|failure| failure.retry_at.is_some()) => {
            Verdict::Going(progressing.message.clone())
        }
        reason if STUCK.contains(&reason) => Verdict::Failed(format!("{reason}: {}", progressing.message)),
        _ => Verdict::Going(progressing.message.clone()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::kubectl::fixture::{Fixture, NEW, OLD};
    use nodelet_api::objects::{BadRevision, Undo};

    fn judged(fixture: &Fixture) -> Verdict {
        judge(&fixture.world, &fixture.world.sets["workers"])
    }

    #[test]
    fn all_nodes_have_it_or_it_goes_on() {
        let mut fixture = Fixture::new(&["n1"]);
        fixture.progressing("True", "Updating", "0 of 1 nodes have worker-new");
        assert_eq!(judged(&fixture), Verdict::Going("0 of 1 nodes have worker-new".into()));
        fixture.progressing("False", "Paused", "0 of 1 nodes have worker-new; the set is paused");
        assert!(matches!(judged(&fixture), Verdict::Going(_)), "somebody may resume it");
        fixture.progressing("False", "Updated", "all 1 nodes have worker-new");
        assert_eq!(judged(&fixture), Verdict::Done("all 1 nodes have worker-new".into()));
    }

    #[test]
    fn what_was_said_before_the_last_change_does_not_count() {
        let mut fixture = Fixture::new(&["n1"]);
        fixture.progressing("False", "Updated", "all 1 nodes have worker-old");
        fixture.set_status(|status| status.update_revision = OLD.into());
        assert_eq!(judged(&fixture), Verdict::Going("waiting for node-controller to hand out worker-new".into()));
        fixture.class(|class| class.metadata.generation = Some(2));
        let waits = Verdict::Going("waiting for node-controller to see the last change".into());
        assert_eq!(judged(&fixture), waits);
    }

    #[test]
    fn a_revision_that_failed_is_a_failure_unless_somebody_went_back() {
        let mut fixture = Fixture::new(&["n1"]);
        let bad = BadRevision { revision: NEW.into(), reason: "node n1: x".into(), at: String::new() };
        fixture.set_status(|status| {
            status.bad_revisions.push(bad);
            status.update_revision = OLD.into();
        });
        fixture.progressing("False", "Updated", "all 1 nodes have worker-old");
        assert_eq!(judged(&fixture), Verdict::Failed("revision worker-new failed: node n1: x".into()));
        fixture.set(|set| set.spec.undo = Some(Undo { to: OLD.into(), away_from: NEW.into() }));
        assert_eq!(judged(&fixture), Verdict::Done("all 1 nodes have worker-old".into()));
        fixture.progressing("False", "NodesLeftOut", "0 of 1 nodes have worker-old; n1 was left out: x");
        assert!(matches!(judged(&fixture), Verdict::Failed(_)));
        fixture.world.classes.clear();
        assert!(matches!(judged(&fixture), Verdict::Failed(_)));
        fixture.world.misread.insert("worker".into(), "unknown field `later`".into());
        assert!(matches!(judged(&fixture), Verdict::Failed(why) if why.contains("`later`")));
        fixture.progressing("False", "ClassNotUnderstood", "the class worker is not understood");
        assert!(matches!(judged(&fixture), Verdict::Failed(why) if why.starts_with("ClassNotUnderstood")));
    }
}
