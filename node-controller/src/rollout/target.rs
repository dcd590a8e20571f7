//! Which revision a set goes to, and what was found to be bad.

use super::{Outcome, Scene, skew};
use nodelet_api::objects::{BadRevision, FailureAction, NodeSetStatus, time_text};

/// As many bad revisions are remembered.
const REMEMBERED: usize = 10;

/// Where a set goes to.
pub(super) struct Target {
    pub(super) revision: String,
    pub(super) bad: Vec<BadRevision>,
    /// Why nothing is begun.
    pub(super) blocked: Option<(&'static str, String)>,
}

/// What the class asks for, unless somebody went back, or it is known to be bad.
pub(super) fn find(scene: &Scene<'_>, old: &NodeSetStatus) -> Target {
    let asked = scene.revision;
    let mut target = Target { revision: asked.to_owned(), bad: old.bad_revisions.clone(), blocked: None };
    if let Some(undo) = scene.set.spec.undo.as_ref().filter(|undo| undo.away_from == asked) {
        if scene.world.revisions.contains_key(&undo.to) {
            target.revision.clone_from(&undo.to);
        } else {
            let sentence = format!("`undo` names the revision {}, which is not stored any more", undo.to);
            target.blocked = Some(("UndoImpossible", sentence));
        }
        return target;
    }
    if let Some(bad) = target.bad.iter().find(|bad| bad.revision == asked) {
        let back = (scene.set.spec.failure.action == FailureAction::Rollback)
            .then_some(old.current_revision.as_str())
            .filter(|current| !current.is_empty() && *current != asked);
        if let Some(current) = back {
            current.clone_into(&mut target.revision);
        } else {
            let sentence = format!("revision {asked} failed ({}): correct the class, or undo", bad.reason);
            target.blocked = Some(("FailureBudget", sentence));
        }
        return target;
    }
    if let Some(sentence) = skew::refuse(scene) {
        target.blocked = Some(("VersionSkew", sentence));
    }
    target
}

/// Remembers a revision as bad when too many nodes failed with it.
pub(super) fn judge(scene: &Scene<'_>, outcome: &mut Outcome) {
    let budget = usize::try_from(scene.set.spec.failure.budget).unwrap_or(usize::MAX);
    let failed = outcome.failures.iter().filter(|failure| !failure.skipped && failure.revision == outcome.target);
    let failed: Vec<_> = failed.collect();
    if failed.len() < budget || outcome.bad.iter().any(|bad| bad.revision == outcome.target) {
        return;
    }
    let Some(last) = failed.last() else { return };
    let reason = format!("node {}: {}", last.node, last.reason);
    outcome.bad.push(BadRevision { revision: outcome.target.clone(), reason, at: time_text(scene.now) });
    let surplus = outcome.bad.len().saturating_sub(REMEMBERED);
    outcome.bad.drain(..surplus);
    // What that means for the target is the next round's: the status says it first.
}
