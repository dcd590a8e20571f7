//! Classes become revisions.

use super::contents::Contents;
use super::{Intent, tell};
use crate::render::render;
use crate::rollout::plain_version;
use crate::world::World;
use kube::ResourceExt;
use nodelet_api::objects::{Condition, NodeClass, NodeClassStatus, NodeSet};
use std::collections::{BTreeMap, BTreeSet};

/// As many revisions that nothing names are kept of each class, for a way back.
const KEPT: usize = 10;

/// What a class can hand out.
pub(super) struct Rendered {
    pub(super) revision: String,
    pub(super) contents: Contents,
    /// The version of the kubelet that it asks for, where that is exact.
    pub(super) kubelet: Option<String>,
}

impl Rendered {
    /// What it can hand out to the nodes of a set.
    pub(super) fn for_set(&self, set: &NodeSet) -> Self {
        let (revision, kubelet) = (self.revision.clone(), self.kubelet.clone());
        Self { revision, kubelet, contents: self.contents.for_set(set) }
    }
}

/// Renders all classes; those that can be.
pub(super) fn render_all(world: &World, now: &str, intents: &mut Vec<Intent>) -> BTreeMap<String, Rendered> {
    let mut all = BTreeMap::new();
    for (name, class) in &world.classes {
        let old = class.status.clone().unwrap_or_default();
        let generation = class.metadata.generation;
        let mut conditions = Vec::new();
        let mut note = |kind, found| conditions.push(Condition::since(kind, found, &old.conditions, generation, now));
        let revision = match render(class) {
            Ok(revision) => {
                note("Rendered", ("True", "Rendered", format!("revision {}", revision.name)));
                let contents = Contents::of(&revision.state, world);
                match &contents {
                    Contents::None => {}
                    Contents::Found { slots, .. } => {
                        note("ContentsFound", ("True", "Found", format!("{} contents were read", slots.len())));
                    }
                    Contents::Missing(what) => note("ContentsFound", ("False", "Missing", what.clone())),
                    // As it was, until it is known.
                    Contents::Unknown => {
                        let before = old.conditions.iter().find(|condition| condition.kind == "ContentsFound");
                        conditions.extend(before.cloned());
                    }
                }
                let name_of = revision.name.clone();
                if !world.revisions.contains_key(&name_of) {
                    intents.push(Intent::Store { class: name.clone(), revision: Box::new(revision) });
                }
                all.insert(name.clone(), Rendered { revision: name_of.clone(), contents, kubelet: kubelet(class) });
                Some(name_of)
            }
            Err(problems) => {
                note("Rendered", ("False", "Invalid", problems.to_string()));
                old.revision.clone()
            }
        };
        let status = NodeClassStatus { observed_generation: generation, revision, conditions };
        if class.status.as_ref() != Some(&status) {
            tell("NodeClass", name, &old.conditions, &status.conditions, intents);
            intents.push(Intent::ClassStatus { name: name.clone(), status });
        }
    }
    forget_revisions(world, intents);
    all
}

/// The version of the kubelet that a class asks for, where that is exact.
fn kubelet(class: &NodeClass) -> Option<String> {
    let version = class.spec.state.kubelet.as_ref()?.version.as_ref()?.as_str();
    plain_version(version).map(str::to_owned)
}

/// Revisions that nothing names any more go, the oldest first, beyond those that are kept for a way back.
fn forget_revisions(world: &World, intents: &mut Vec<Intent>) {
    let mut named = BTreeSet::new();
    named.extend(world.classes.values().filter_map(|class| class.status.as_ref()?.revision.clone()));
    for set in world.sets.values() {
        named.extend(set.spec.undo.iter().map(|undo| undo.to.clone()));
        if let Some(status) = &set.status {
            named.extend([status.update_revision.clone(), status.current_revision.clone()]);
            named.extend(status.slots.iter().map(|slot| slot.revision.clone()));
        }
    }
    for state in world.states.values() {
        named.extend(state.spec.revision.clone());
        let status = state.status.as_ref();
        named.extend(status.and_then(|status| status.applied.as_ref()).map(|applied| applied.revision.clone()));
        named.extend(status.and_then(|status| status.last_good.as_ref()).map(|good| good.revision.clone()));
    }
    let mut unnamed = BTreeMap::<&str, Vec<(&String, &crate::world::StoredRevision)>>::new();
    for (name, stored) in world.revisions.iter().filter(|(name, _)| !named.contains(*name)) {
        unnamed.entry(&stored.class).or_default().push((name, stored));
    }
    for (class, mut revisions) in unnamed {
        // Of a class that is not there any more, its owner's deletion takes them along.
        if !world.classes.values().any(|one| one.name_any() == class) {
            continue;
        }
        revisions.sort_by_key(|(name, stored)| (stored.at, *name));
        let surplus = revisions.len().saturating_sub(KEPT);
        intents.extend(revisions.iter().take(surplus).map(|(name, _)| Intent::Forget { revision: (*name).clone() }));
    }
}
