//! Pods that the API server did not let go: why, and when to ask again. Kept in memory alone: it only spares the API server
//! questions, and a controller that does not know asks once more.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// After a refusal it is asked again this much later, twice as late each time, up to the limit.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE_LIMIT: Duration = Duration::from_secs(15);
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
        let pause = known.get(pod).map_or(FIRST_PAUSE, |before| (before.pause * 2).min(PAUSE_LIMIT));
        known.insert(pod.to_owned(), Refusal { why, at: Instant::now(), pause });
    }

    /// The pod goes, or is gone.
    pub(super) fn forget(&self, pod: &str) {
        self.known().remove(pod);
    }

    /// What was said last of each.
    pub(crate) fn reasons(&self) -> BTreeMap<String, String> {
        let mut known = self.known();
        known.retain(|_, refusal| refusal.at.elapsed() < MEMORY);
        known.iter().map(|(pod, refusal)| (pod.clone(), refusal.why.clone())).collect()
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
        refusals.forget("a");
        assert!(refusals.may_ask("a"));
    }
}
