//! Contents that classes take from Secrets and `ConfigMap`s, and the Secret of each node that brings them there.

use super::Intent;
use crate::world::{Source, World};
use nodelet_api::DesiredState;
use nodelet_api::objects::{NodeSecrets, NodeSet, Selector};
use nodelet_api::state::{Origin, version_of};
use std::collections::BTreeMap;
use std::fmt;

/// The contents of a class.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Contents {
    /// It takes none.
    None,
    /// All of them, by slot, with a version that changes when a source does, and whether any is a Secret's.
    Found { version: String, slots: BTreeMap<String, Vec<u8>>, secret: bool },
    /// Something is not there; in words.
    Missing(String),
    /// Not everything was read yet.
    Unknown,
}

impl Contents {
    /// What a state takes.
    pub(super) fn of(state: &DesiredState, world: &World) -> Self {
        let mut slots = BTreeMap::new();
        // Of the objects' stamps, not of their contents: whoever may see a version must not be able to guess from it.
        let mut stamps = BTreeMap::new();
        let mut secret = false;
        for reference in state.references() {
            secret |= reference.origin == Origin::Secret;
            match world.sources.get(&reference).unwrap_or(&Source::Unknown) {
                Source::Found { content, stamp } => {
                    stamps.insert(reference.slot(), stamp.clone().into_bytes());
                    slots.insert(reference.slot(), content.clone());
                }
                Source::Missing => {
                    let namespace = &reference.namespace;
                    return Self::Missing(format!(
                        "there is no {reference}, or node-controller may not read it: make it, or bind the ClusterRole \
                         nodelet-contents to node-controller in the namespace {namespace}"
                    ));
                }
                Source::Unknown => return Self::Unknown,
            }
        }
        if slots.is_empty() { Self::None } else { Self::Found { version: version_of(&stamps), slots, secret } }
    }

    /// The contents for the nodes of a set. Who is in a set decides who gets a Secret, so that must not be a node's own
    /// word: a kubelet may give itself most labels.
    pub(super) fn for_set(&self, set: &NodeSet) -> Self {
        let guarded = set.spec.selector.as_ref().is_none_or(Selector::is_guarded);
        match self {
            Self::Found { secret: true, .. } if !guarded => Self::Missing(
                "its selector names only labels that a node can give itself, so no Secret is handed out: select by a label \
                 below node-restriction.kubernetes.io/ or node-role.kubernetes.io/ as well"
                    .to_owned(),
            ),
            other => other.clone(),
        }
    }

    /// What a node's state names; not yet while its Secret is not as it must be, which an intent mends.
    pub(super) fn hand(
        &self,
        node: &str,
        world: &World,
        intents: &mut Vec<Intent>,
    ) -> Result<Option<NodeSecrets>, NotYet> {
        match self {
            Self::None => Ok(None),
            Self::Found { version, slots, .. } => {
                if world.stored.get(node) != Some(version) {
                    let (node, version, slots) = (node.to_owned(), version.clone(), Slots(slots.clone()));
                    intents.push(Intent::Contents { node, version, slots });
                    return Err(NotYet);
                }
                Ok(Some(NodeSecrets { name: name(node), version: version.clone() }))
            }
            Self::Missing(_) | Self::Unknown => Err(NotYet),
        }
    }
}

/// A node's contents are not where it finds them.
pub(super) struct NotYet;

/// The name of a node's own Secret.
pub fn name(node: &str) -> String {
    format!("nodelet-contents.{node}").chars().take(253).collect()
}

/// Contents by slot.
#[derive(Clone, PartialEq, Eq)]
pub struct Slots(pub BTreeMap<String, Vec<u8>>);

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} contents", self.0.len())
    }
}
