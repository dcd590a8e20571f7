//! What the daemon tells systemd: readiness, status, and that it is alive.

use sd_notify::NotifyState;
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// The connection to systemd; without one (on a terminal) it says nothing.
#[derive(Debug)]
pub(super) struct Notifier {
    /// Half of what the unit allows between two signs of life.
    interval: Option<Duration>,
    due: Instant,
}

impl Default for Notifier {
    fn default() -> Self {
        let interval = sd_notify::watchdog_enabled().map(|limit| limit / 2);
        Self { interval, due: Instant::now() }
    }
}

impl Notifier {
    pub(super) fn ready(&self) {
        say(&[NotifyState::Ready]);
    }

    pub(super) fn reloading(&self) {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => say(&[NotifyState::Reloading, now]),
            Err(_) => say(&[NotifyState::Reloading]),
        }
    }

    pub(super) fn stopping(&self) {
        say(&[NotifyState::Stopping]);
    }

    pub(super) fn status(&self, line: &str) {
        say(&[NotifyState::Status(line)]);
    }

    /// Waits until the next sign of life is due; for ever where none is asked for.
    pub(super) async fn watchdog_due(&self) {
        match self.interval {
            Some(_) => sleep_until(self.due).await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn alive(&mut self) {
        say(&[NotifyState::Watchdog]);
        if let Some(interval) = self.interval {
            self.due = Instant::now() + interval;
        }
    }
}

/// A message that doesn't get through is not worth failing for: systemd will miss it and act.
pub(super) fn say(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd was not reached");
    }
}
