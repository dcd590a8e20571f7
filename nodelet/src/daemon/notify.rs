//! What the daemon tells systemd: readiness, status, and that it is alive. Where it doesn't run under
//! systemd (on a terminal), all of this says nothing.

use super::alarm::Alarm;
use sd_notify::NotifyState;
use std::time::Duration;

pub(super) fn ready() {
    say(&[NotifyState::Ready]);
}

pub(super) fn reloading() {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => say(&[NotifyState::Reloading, now]),
        Err(_) => say(&[NotifyState::Reloading]),
    }
}

pub(super) fn stopping() {
    say(&[NotifyState::Stopping]);
}

pub(super) fn status(line: &str) {
    say(&[NotifyState::Status(line)]);
}

/// A message that doesn't get through is not worth failing for: systemd will miss it and act.
fn say(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        tracing::debug!(%error, "systemd was not reached");
    }
}

/// Signs of life, at half of the interval that the unit allows between two of them.
#[derive(Debug)]
pub(super) struct Watchdog {
    interval: Option<Duration>,
    alarm: Alarm,
}

impl Default for Watchdog {
    fn default() -> Self {
        let interval = sd_notify::watchdog_enabled().map(|limit| limit / 2);
        let alarm = Alarm::new();
        alarm.set(Duration::ZERO);
        Self { interval, alarm }
    }
}

impl Watchdog {
    /// Waits until the next sign of life is due; for ever where none is asked for.
    pub(super) async fn due(&self) {
        match self.interval {
            Some(_) => self.alarm.rings().await,
            None => std::future::pending().await,
        }
    }

    pub(super) fn alive(&self) {
        say(&[NotifyState::Watchdog]);
        if let Some(interval) = self.interval {
            self.alarm.set(interval);
        }
    }
}
