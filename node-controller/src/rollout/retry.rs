//! Another try: by itself for nodes that were passed over, and when a person asks for it.

use super::{Outcome, Scene};
use jiff::{SignedDuration, Timestamp};
use nodelet_api::objects::{NodeFailure, NodeSetStatus, Slot, time_text};

/// How long a node that was passed over waits for another turn: what kept its pods may need a person, or a night.
const PAUSE: SignedDuration = SignedDuration::from_mins(10);

/// Forgets what failed before the moment that the set names.
pub(super) fn forget(scene: &Scene<'_>, status: &mut NodeSetStatus) {
    let until = scene.set.spec.retry.as_ref().and_then(|text| text.parse::<Timestamp>().ok());
    // A moment to come would forget what fails until then, and try it again and again.
    let Some(until) = until.filter(|until| *until <= scene.now) else { return };
    // What has no time is older than the field for it.
    let later = |at: &str| at.parse::<Timestamp>().is_ok_and(|at| at > until);
    status.failures.retain(|failure| later(&failure.at));
    status.bad_revisions.retain(|bad| later(&bad.at));
}

/// Nodes whose time for another turn has come are not left out any more.
pub(super) fn take_up(scene: &Scene<'_>, outcome: &mut Outcome) {
    let due = |failure: &NodeFailure| {
        let at = failure.retry_at.as_ref().and_then(|text| text.parse::<Timestamp>().ok());
        at.is_some_and(|at| at <= scene.now)
    };
    outcome.failures.retain(|failure| !due(failure));
}

/// What is noted of a node that did not become its revision.
pub(super) enum Verdict {
    /// It failed.
    Failed,
    /// It is passed over, and gets another turn after a while.
    Later,
    /// It is passed over until a person says otherwise.
    LeftOut,
}

impl Outcome {
    /// Notes what became of a turn.
    pub(super) fn note(&mut self, slot: &Slot, reason: String, verdict: &Verdict, now: Timestamp) {
        let retry_at = match verdict {
            Verdict::Later => now.checked_add(PAUSE).ok().map(time_text),
            Verdict::Failed | Verdict::LeftOut => None,
        };
        self.failures.retain(|failure| failure.node != slot.node || failure.revision != slot.revision);
        self.failures.push(NodeFailure {
            node: slot.node.clone(),
            revision: slot.revision.clone(),
            reason,
            skipped: !matches!(verdict, Verdict::Failed),
            at: time_text(now),
            retry_at,
        });
    }
}
