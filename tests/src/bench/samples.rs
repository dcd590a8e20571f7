//! Times that were taken, and what is said of them: the median and the spread.

use serde_json::{Value, json};

/// Times of one thing, in seconds, in the order in which they were taken.
#[derive(Debug, Clone, Default)]
pub(super) struct Samples(Vec<f64>);

impl Samples {
    /// Adds one.
    pub(super) fn push(&mut self, seconds: f64) {
        self.0.push(seconds);
    }

    fn sorted(&self) -> Vec<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.0.len()
    }

    /// Half are below, half above.
    pub(super) fn median(&self) -> Option<f64> {
        let sorted = self.sorted();
        let upper = *sorted.get(sorted.len() / 2)?;
        if sorted.len() % 2 == 1 {
            return Some(upper);
        }
        Some(f64::midpoint(*sorted.get(sorted.len() / 2 - 1)?, upper))
    }

    /// How many times the other's median this one is.
    pub(super) fn ratio(&self, other: &Self) -> Option<f64> {
        Some(self.median()? / other.median()?)
    }

    /// The longest.
    pub(super) fn longest(&self) -> Option<f64> {
        self.sorted().last().copied()
    }

    /// From the shortest to the longest, in words.
    pub(super) fn spread(&self) -> String {
        let sorted = self.sorted();
        match (sorted.first(), sorted.last()) {
            (Some(first), Some(last)) => format!("{} … {}", duration(*first), duration(*last)),
            _ => "-".to_owned(),
        }
    }

    /// For the file with the results.
    pub(super) fn json(&self) -> Value {
        json!({ "median": self.median(), "samples": self.0 })
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<T: IntoIterator<Item = f64>>(seconds: T) -> Self {
        Self(seconds.into_iter().collect())
    }
}

/// A duration as people read it.
pub(super) fn duration(seconds: f64) -> String {
    match seconds {
        _ if seconds < 0.01 => format!("{:.2} ms", seconds * 1e3),
        _ if seconds < 0.1 => format!("{:.1} ms", seconds * 1e3),
        _ if seconds < 1.0 => format!("{:.0} ms", seconds * 1e3),
        _ if seconds < 20.0 => format!("{seconds:.2} s"),
        _ => format!("{seconds:.0} s"),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::float_cmp)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(Samples::default().median(), None);
        assert_eq!([3.0, 1.0, 2.0].into_iter().collect::<Samples>().median().unwrap(), 2.0);
        let even: Samples = [4.0, 1.0, 2.0, 3.0].into_iter().collect();
        assert_eq!(even.median().unwrap(), 2.5);
        assert_eq!(even.spread(), "1.00 s … 4.00 s");
    }
}
