//! A time to wake up at. The kernel keeps it: a timer of the runtime would wake the process several times on the way.

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use std::fs::File;
use std::os::fd::AsFd;
use std::time::Duration;
use tokio::net::unix::pipe::Receiver;

/// An alarm; without the kernel's help it never rings, and the watchdog tells.
#[derive(Debug)]
pub(super) struct Alarm(Option<Timer>);

#[derive(Debug)]
struct Timer {
    timer: TimerFd,
    /// The same, for the runtime to wait on.
    ready: Receiver,
}

impl Alarm {
    /// One that is not set.
    pub(super) fn new() -> Self {
        // CLOCK_BOOTTIME: a machine that slept is late.
        let timer = TimerFd::new(ClockId::CLOCK_BOOTTIME, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC);
        let registered = timer.map_err(std::io::Error::from).and_then(|timer| {
            // Not a pipe, but read like one.
            let ready = Receiver::from_file_unchecked(File::from(timer.as_fd().try_clone_to_owned()?))?;
            Ok(Timer { timer, ready })
        });
        if let Err(error) = &registered {
            tracing::error!(%error, "no timer; nothing is checked unless something changes");
        }
        Self(registered.ok())
    }

    /// Sets it to ring once, in this time.
    pub(super) fn set(&self, time: Duration) {
        let Some(Timer { timer, .. }) = &self.0 else { return };
        // Zero would turn it off.
        let expiration = Expiration::OneShot(TimeSpec::from_duration(time.max(Duration::from_nanos(1))));
        if let Err(error) = timer.set(expiration, TimerSetTimeFlags::empty()) {
            tracing::error!(%error, "setting a timer failed");
        }
    }

    /// Waits until it rings.
    pub(super) async fn rings(&self) {
        let Some(Timer { ready, .. }) = &self.0 else { return std::future::pending().await };
        loop {
            if ready.readable().await.is_err() {
                return std::future::pending().await;
            }
            // How often it rang, which is once. Another one may have read it: then it goes on waiting.
            match ready.try_read(&mut [0; 8]) {
                Ok(_) => return,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => return std::future::pending().await,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[tokio::test]
    async fn it_rings_when_it_is_set() {
        let alarm = Alarm::new();
        let start = Instant::now();
        alarm.set(Duration::from_secs(60));
        alarm.set(Duration::from_millis(20));
        alarm.rings().await;
        assert!((15..1000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
        assert!(tokio::time::timeout(Duration::from_millis(50), alarm.rings()).await.is_err(), "it rings once");
        alarm.set(Duration::ZERO);
        alarm.rings().await;
    }
}
