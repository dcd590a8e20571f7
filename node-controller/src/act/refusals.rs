//! Pods that were asked to go: when to ask again, and why the API server did not let them. Kept in memory alone: it only
//! spares the API server questions, and a controller that does not know asks once more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// After a refusal it is asked again this much later, twice as late each time, up to the limit.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE_LIMIT: Duration = Duration::from_secs(15);
/// A pod that may go is seen to leave within so much; only then it is asked for once more.
const SEEN: Duration = Duration::from_secs(3);
/// What was not asked about for so long is over: the pod is gone, or its turn is.
const MEMORY: Duration = Duration::from_secs(60);

struct Refusal {
    why: String,
    at: Instant,
    pause: Duration,
}

/// What is known of them, by the pods' uids.
#[derive(Clone, Default)]
pub(crate) struct Refusals(Arc<Mutex<BTreeMap<String, Refusal>>>);

impl Refusals {
    /// Whether it is time to ask for a pod.
    pub(super) fn may_ask(&self, pod: &str) -> bool {
        self.known().get(pod).is_none_or(|refusal| refusal.at.elapsed() >= refusal.pause)
    }

    /// The API server refused.
    pub(super) fn refused(&self, pod: &str, why: String) {
        let mut known = self.known();
        let before = known.get(pod).filter(|before| !before.why.is_empty());
        let pause = before.map_or(FIRST_PAUSE, |before| (before.pause * 2).min(PAUSE_LIMIT));
        known.insert(pod.to_owned(), Refusal { why, at: Instant::now(), pause });
    }

    /// The pod goes, or is gone: that is seen in a moment.
    pub(super) fn accepted(&self, pod: &str) {
        let accepted = Refusal { why: String::new(), at: Instant::now(), pause: SEEN };
        self.known().insert(pod.to_owned(), accepted);
    }

    /// What was said last of each.
    pub(crate) fn reasons(&self) -> BTreeMap<String, String> {
        let mut known = self.known();
        known.retain(|_, refusal| refusal.at.elapsed() < MEMORY);
        let refused = known.iter().filter(|(_, refusal)| !refusal.why.is_empty());
        refused.map(|(pod, refusal)| (pod.clone(), refusal.why.clone())).collect()
    }

    fn known(&self) -> MutexGuard<'_, BTreeMap<String, Refusal>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_again_later_and_later() {
        let refusals = Refusals::default();
        assert!(refusals.may_ask("a"));
        for _ in 0..6 {
            refusals.refused("a", "no".into());
        }
        assert!(!refusals.may_ask("a") && refusals.may_ask("b"));
        assert_eq!(refusals.known()["a"].pause, PAUSE_LIMIT);
        assert_eq!(refusals.reasons(), BTreeMap::from([("a".to_owned(), "no".to_owned())]));
        refusals.accepted("a");
        assert!(!refusals.may_ask("a") && refusals.reasons().is_empty(), "it is seen to leave in a moment");
        refusals.refused("a", "no".into());
        assert_eq!(refusals.known()["a"].pause, FIRST_PAUSE, "from the beginning");
    }
}
