//! `kubectl nodes undo`

use super::model;
use super::output::Output;
use super::pause::{MANAGER, named};
use super::read::{Reader, find};
use crate::decide::members::members;
use crate::world::World;
use anyhow::{Context, bail};
use clap::Args;
use kube::Api;
use kube::api::{Patch, PatchParams};
use nodelet_api::objects::{NodeSet, Undo};
use serde::Serialize;
use serde_json::json;
use std::fmt::Write as _;

/// What is undone.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The set.
    #[arg(value_name = "NODESET")]
    set: String,
    /// The revision to go back to; `kubectl nodes history` lists them. Without it, what all nodes had last.
    #[arg(long, value_name = "REVISION", visible_alias = "to-revision")]
    to: Option<String>,
}

/// What will be so.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Way {
    /// The set.
    node_set: String,
    /// The revision that its nodes go to.
    to: String,
    /// What is written; nothing, when an earlier undo is taken back.
    undo: Option<Undo>,
    /// What will happen.
    message: String,
}

/// Lets a set go back.
pub(super) async fn undo(reader: &Reader, options: &Options, output: Output) -> anyhow::Result<()> {
    let world = reader.world().await?;
    let set = find(&world.sets, "NodeSet", "nodesets", &options.set)?;
    let way = find_way(&world, set, options.to.as_deref())?;
    let name = &way.node_set;
    let parameters = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    // `awayFrom` is the precondition: if the class has become another one meanwhile, this counts for nothing.
    let patch = json!({"spec": {"undo": way.undo}});
    let api: Api<NodeSet> = Api::all(reader.client.clone());
    if let Err(error) = api.patch(name, &parameters, &Patch::Merge(patch)).await {
        bail!(named(error, &format!("writing `undo` of the NodeSet {name}"), "nodesets"));
    }
    output.print(&way, || format!("nodeset.nodelet.dev/{name} {}", way.message))
}

/// Where a set goes back to, if it can.
fn find_way(world: &World, set: &NodeSet, to: Option<&str>) -> anyhow::Result<Way> {
    let name = set.metadata.name.clone().unwrap_or_default();
    let class = &set.spec.class_ref.name;
    let asked = model::asked(world, set).with_context(|| {
        format!("the class {class} has no revision yet: `kubectl describe nodeclass {class}` says why")
    })?;
    let target = model::target(world, set);
    let status = set.status.clone().unwrap_or_default();
    let is_bad = |revision: &str| status.bad_revisions.iter().any(|bad| bad.revision == revision);
    let is_stored = |revision: &str| world.revisions.get(revision).is_some_and(|stored| stored.class == *class);
    let to = match to {
        Some(to) if !is_stored(to) => {
            bail!("the class {class} has no stored revision `{to}`: `kubectl nodes history {name}` lists them")
        }
        Some(to) if to == target => bail!("the set {name} goes to {to} already: nothing is to be undone"),
        Some(to) => to.to_owned(),
        None => {
            let current = Some(&status.current_revision).filter(|current| **current != target && is_stored(current));
            let others = world
                .revisions
                .iter()
                .filter(|(one, stored)| stored.class == *class && **one != target && **one != asked && !is_bad(one));
            let newest = others.max_by_key(|(one, stored)| (stored.at, *one)).map(|(one, _)| one);
            current.or(newest).cloned().with_context(|| {
                format!(
                    "there is nothing to go back to: {target} is the only good revision of the class {class} that is \
                     stored. Correct the class instead"
                )
            })?
        }
    };
    let members = members(world);
    let nodes = model::nodes_of(world, &members, &name);
    let change = nodes.iter().filter(|node| !model::has(world.states.get(*node).map(AsRef::as_ref), &to)).count();
    let limit = &set.spec.strategy.max_unavailable;
    let mut message = format!("goes back to {to}: {change} of {} nodes change, {limit} at a time", nodes.len());
    let undo = (to != asked).then(|| Undo { to: to.clone(), away_from: asked.clone() });
    if undo.is_some() {
        let _ = write!(message, ". It stays there until the class {class} is another one than {asked}");
    } else if is_bad(&asked) {
        bail!("{asked} is what the class {class} asks for, and it failed: correct the class, and it is tried again");
    } else {
        message = message.replace("goes back", "goes on");
    }
    if set.spec.paused {
        let _ = write!(message, ". The set is paused: nothing begins before `kubectl nodes resume {name}`");
    }
    Ok(Way { node_set: name, to, undo, message })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::kubectl::fixture::{Fixture, NEW, OLD};
    use nodelet_api::objects::BadRevision;

    fn way(fixture: &Fixture, to: Option<&str>) -> Result<Way, String> {
        find_way(&fixture.world, &fixture.world.sets["workers"], to).map_err(|error| error.to_string())
    }

    #[test]
    fn it_goes_to_what_all_had_last() {
        let mut fixture = Fixture::new(&["n1", "n2"]);
        fixture.applied("n1", NEW);
        fixture.applied("n2", OLD);
        let found = way(&fixture, None).unwrap();
        assert_eq!(found.undo, Some(Undo { to: OLD.into(), away_from: NEW.into() }));
        let said = "goes back to worker-old: 1 of 2 nodes change, 1 at a time. It stays there until the class worker is \
                    another one than worker-new";
        assert_eq!(found.message, said);
        // All of them have the new one: then the newest other one.
        fixture.set_status(|status| status.current_revision = NEW.into());
        assert_eq!(way(&fixture, None).unwrap().to, OLD);
        fixture.set(|set| set.spec.paused = true);
        assert!(way(&fixture, None).unwrap().message.ends_with("before `kubectl nodes resume workers`"));
    }

    #[test]
    fn it_is_refused_where_there_is_no_way() {
        let mut fixture = Fixture::new(&["n1"]);
        assert!(way(&fixture, Some("x")).unwrap_err().contains("no stored revision `x`"));
        assert!(way(&fixture, Some(NEW)).unwrap_err().contains("goes to worker-new already"));
        fixture.world.revisions.remove(OLD);
        assert!(way(&fixture, None).unwrap_err().starts_with("there is nothing to go back to"));
        fixture.class(|class| class.status = None);
        fixture.set_status(|status| status.update_revision.clear());
        assert!(way(&fixture, None).unwrap_err().contains("has no revision yet"));
    }

    #[test]
    fn an_undo_is_taken_back() {
        let mut fixture = Fixture::new(&["n1"]);
        fixture.set_status(|status| status.update_revision = OLD.into());
        let found = way(&fixture, Some(NEW)).unwrap();
        assert!(found.undo.is_none() && found.message.starts_with("goes on to worker-new"), "{found:?}");
        let bad = BadRevision { revision: NEW.into(), reason: "x".into(), at: String::new() };
        fixture.set_status(|status| status.bad_revisions.push(bad));
        assert!(way(&fixture, Some(NEW)).unwrap_err().contains("it failed"));
    }
}
