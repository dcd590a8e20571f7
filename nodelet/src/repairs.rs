//! How often each resource was put back: two tools that want different things must not fight for ever.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::{Duration, Instant};

const HOUR: Duration = Duration::from_secs(3600);

/// The repairs of the last hour.
#[derive(Debug, Default)]
pub(crate) struct Repairs(BTreeMap<String, VecDeque<Instant>>);

impl Repairs {
    /// Notes that these were put back.
    pub(crate) fn note(&mut self, resources: Vec<String>) {
        // A plan names a resource several times (enable, start), which is one repair.
        for resource in resources.into_iter().collect::<BTreeSet<_>>() {
            self.0.entry(resource).or_default().push_back(Instant::now());
        }
    }

    /// The resources that were put back as often as is allowed.
    pub(crate) fn tired(&mut self, budget: u32) -> BTreeSet<String> {
        for times in self.0.values_mut() {
            while times.front().is_some_and(|time| time.elapsed() > HOUR) {
                times.pop_front();
            }
        }
        self.0.retain(|_, times| !times.is_empty());
        let budget = usize::try_from(budget).unwrap_or(usize::MAX);
        self.0.iter().filter(|(_, times)| times.len() >= budget).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_per_resource() {
        let mut repairs = Repairs::default();
        for _ in 0..3 {
            repairs.note(vec!["file /a".into(), "file /a".into()]);
        }
        repairs.note(vec!["file /b".into()]);
        assert_eq!(repairs.tired(3).into_iter().collect::<Vec<_>>(), ["file /a"]);
        assert!(repairs.tired(4).is_empty());
    }
}
