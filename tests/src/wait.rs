//! Waiting for a condition, with a limit and an account of what was last seen.

use std::fmt::Display;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// The first pause between two looks, in milliseconds. Most conditions here hold within a few of them.
const FIRST_PAUSE_MS: u64 = 5;
/// The longest pause between two looks, in milliseconds: long enough to leave the processor alone, short enough not
/// to be noticed at the end of a wait.
const LONGEST_PAUSE_MS: u64 = 200;

/// What one look at a condition found.
#[derive(Debug)]
pub enum Seen<T> {
    /// The condition holds.
    Done(T),
    /// It does not hold yet; the sentence says what is there instead.
    NotYet(String),
}

impl<T> Seen<T> {
    /// For an error that may pass: it becomes the state that is reported when the limit is reached.
    pub fn not_yet(state: impl Display) -> Self {
        Self::NotYet(state.to_string())
    }
}

/// Looks until `look` is done, at most for `limit`. An error from `look` ends the wait at once: return
/// [`Seen::NotYet`] for what may still change.
pub fn wait_until<T>(what: &str, limit: Duration, mut look: impl FnMut() -> Result<Seen<T>>) -> Result<T> {
    let start = Instant::now();
    let mut pause = FIRST_PAUSE_MS;
    loop {
        match look()? {
            Seen::Done(value) => return Ok(value),
            Seen::NotYet(state) if start.elapsed() >= limit => {
                bail!("waited {} s for: {what}; it did not happen. Last seen: {state}", limit.as_secs())
            }
            Seen::NotYet(_) => {}
        }
        thread::sleep(Duration::from_millis(pause));
        pause = (pause * 3 / 2 + 1).min(LONGEST_PAUSE_MS);
    }
}

/// The same for a condition that is a question to the network.
pub async fn wait_until_async<T, F>(what: &str, limit: Duration, mut look: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<Seen<T>>>,
{
    let start = Instant::now();
    let mut pause = FIRST_PAUSE_MS;
    loop {
        match look().await? {
            Seen::Done(value) => return Ok(value),
            Seen::NotYet(state) if start.elapsed() >= limit => {
                bail!("waited {} s for: {what}; it did not happen. Last seen: {state}", limit.as_secs())
            }
            Seen::NotYet(_) => {}
        }
        tokio::time::sleep(Duration::from_millis(pause)).await;
        pause = (pause * 3 / 2 + 1).min(LONGEST_PAUSE_MS);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn says_what_it_waited_for_and_what_it_saw() {
        let error = wait_until::<()>("the moon", Duration::ZERO, || Ok(Seen::not_yet("the sun"))).unwrap_err();
        assert_eq!(error.to_string(), "waited 0 s for: the moon; it did not happen. Last seen: the sun");
    }

    #[test]
    fn returns_what_was_found() {
        let mut looks = 0;
        let found = wait_until("three looks", Duration::from_secs(5), || {
            looks += 1;
            Ok(if looks == 3 { Seen::Done(looks) } else { Seen::not_yet(looks) })
        });
        assert_eq!(found.unwrap(), 3);
    }
}
