//! Which revision a set goes to, and what was found to be bad.

use super::{Back, Outcome, Scene, Waits, skew};
use nodelet_api::objects::{BadRevision, FailureAction, NodeSetStatus, RollbackScope, time_text};
use std::collections::BTreeSet;

/// As many bad revisions are remembered.
const REMEMBERED: usize = 10;

/// Where a set goes to.
pub(super) struct Target {
    pub(super) revision: String,
    pub(super) bad: Vec<BadRevision>,
    /// Why nothing goes there.
    pub(super) blocked: Option<Waits>,
    /// Where nodes go that do not keep it.
    pub(super) back: Option<Back>,
}

/// What the class asks for, unless somebody went back, or it is known to be bad.
pub(super) fn find(scene: &Scene<'_>, old: &NodeSetStatus) -> Target {
    let asked = scene.revision;
    let mut target = Target { revision: asked.to_owned(), bad: old.bad_revisions.clone(), blocked: None, back: None };
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
        let before = (scene.set.spec.failure.action == FailureAction::Rollback)
            .then_some(old.current_revision.as_str())
            .filter(|current| *current != asked && scene.world.revisions.contains_key(*current));
        let keeping = keeping(scene, old);
        let all = scene.set.spec.failure.scope == RollbackScope::AllNodes || keeping.is_empty();
        let next = "correct the class, undo, or retry";
        match before {
            Some(before) if all => before.clone_into(&mut target.revision),
            Some(before) => {
                let sentence = format!(
                    "revision {asked} failed ({}): nodes that are well with it keep it, all others have {before}; {next}",
                    in_short(&bad.reason)
                );
                target.blocked = Some(("FailureBudget", sentence));
                target.back = Some(Back { to: before.to_owned(), keeping });
            }
            None => {
                let sentence = format!("revision {asked} failed ({}): {next}", in_short(&bad.reason));
                target.blocked = Some(("FailureBudget", sentence));
            }
        }
        return target;
    }
    if let Some(sentence) = skew::refuse(scene) {
        target.blocked = Some(("VersionSkew", sentence));
    }
    target
}

/// The node and the stable name of its failure; the whole story is said by `Degraded`.
fn in_short(reason: &str) -> String {
    reason.splitn(3, ": ").take(2).collect::<Vec<_>>().join(": ")
}

/// The nodes that have what the class asks for, and did not fail with it.
fn keeping(scene: &Scene<'_>, old: &NodeSetStatus) -> BTreeSet<String> {
    let failed = |name: &str| {
        old.failures
            .iter()
            .any(|failure| failure.node == name && failure.revision == scene.revision && !failure.skipped)
    };
    let has = scene.members.iter().filter(|(_, member)| member.applied() == Some(scene.revision));
    has.map(|(name, _)| name.clone()).filter(|name| !failed(name)).collect()
}

/// Why nothing more begins: too many nodes failed with what they go to. Of the class's revision the set remembers that; of
/// one that it went back to it does not, because there is none further back.
pub(super) fn stuck(scene: &Scene<'_>, outcome: &Outcome) -> Option<Waits> {
    let goal = outcome.back.as_ref().map_or(&outcome.target, |back| &back.to);
    if outcome.failed(goal) < budget(scene) {
        return None;
    }
    let failure = outcome.failures.iter().rfind(|failure| !failure.skipped && failure.revision == *goal)?;
    let sentence = format!("{goal} failed on {} ({}): look at that node", failure.node, failure.reason);
    Some(("FailureBudget", sentence))
}

fn budget(scene: &Scene<'_>) -> usize {
    usize::try_from(scene.set.spec.failure.budget).unwrap_or(usize::MAX)
}

/// Remembers the class's revision as bad when too many nodes failed with it.
pub(super) fn judge(scene: &Scene<'_>, outcome: &mut Outcome) {
    let known = outcome.bad.iter().any(|bad| bad.revision == outcome.target);
    if known || outcome.target != scene.revision || outcome.failed(&outcome.target) < budget(scene) {
        return;
    }
    let mut failed = outcome.failures.iter().filter(|failure| !failure.skipped && failure.revision == outcome.target);
    let Some(last) = failed.next_back() else { return };
    let reason = format!("node {}: {}", last.node, last.reason);
    outcome.bad.push(BadRevision { revision: outcome.target.clone(), reason, at: time_text(scene.now) });
    let surplus = outcome.bad.len().saturating_sub(REMEMBERED);
    outcome.bad.drain(..surplus);
    // What that means for the target is the next round's: the status says it first.
}
