//! The daemon: converges when it starts, when the state or the configuration changes, and from time to time.

mod notify;
mod watch;

use crate::host::systemd::Systemd;
use crate::reconcile::{ReconcileError, Reconciler};
use crate::report::log::LevelHandle;
use crate::report::status::{LastError, Managed, Phase, Status, first_problem};
use crate::root::Root;
use crate::settings::{self, Settings};
use anyhow::Context;
use jiff::Timestamp;
use notify::Watchdog;
use std::path::PathBuf;
use std::time::Duration;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// What one round of reconciling tells the daemon.
enum News {
    /// A step begins.
    Progress(String),
    /// The round is over.
    Done(Result<Option<(String, Managed, usize)>, ReconcileError>),
}

/// The running daemon.
struct Daemon {
    root: Root,
    config: PathBuf,
    settings: Settings,
    level: LevelHandle,
    status: Status,
    failures: u32,
}

/// Runs until it is told to stop.
pub async fn run(root: Root, config: PathBuf, settings: Settings, level: LevelHandle) -> anyhow::Result<()> {
    let status = Status {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        phase: Phase::Converging,
        since: Timestamp::now(),
        source: settings.state.file.to_string(),
        revision: None,
        managed: Managed::default(),
        waiting_for: Some("looking at the node".into()),
        last_error: None,
        configuration_error: None,
    };
    let daemon = Daemon { root, config, settings, level, status, failures: 0 };
    daemon.serve().await
}

impl Daemon {
    async fn serve(mut self) -> anyhow::Result<()> {
        let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        let mut hangup = signal(SignalKind::hangup()).context("listening for SIGHUP")?;
        let mut watcher = watch::Watcher::new(&self.root, self.settings.state.file.as_str());
        let mut watchdog = Watchdog::default();
        let (news_to, mut news) = mpsc::channel(16);
        let mut working: Option<tokio::task::JoinHandle<()>> = None;
        // A change that comes while a round is under way asks for another round.
        let mut again = true;
        let mut next_check = Instant::now();
        notify::ready();
        self.publish();
        tracing::info!(version = self.status.version, state = self.status.source, "nodelet runs");
        loop {
            if again && working.is_none() {
                again = false;
                working = Some(self.start_round(news_to.clone()));
            }
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hangup.recv() => {
                    self.reload();
                    watcher = watch::Watcher::new(&self.root, self.settings.state.file.as_str());
                    again = true;
                }
                () = watcher.changed() => {
                    tracing::info!(file = self.status.source, "the state file changed");
                    again = true;
                }
                () = watchdog.due() => watchdog.alive(),
                () = sleep_until(next_check), if working.is_none() => again = true,
                Some(message) = news.recv() => match message {
                    News::Progress(line) => self.enter(Phase::Converging, Some(line)),
                    News::Done(result) => {
                        working = None;
                        next_check = Instant::now() + self.finish(result);
                    }
                },
            }
        }
        notify::stopping();
        if let Some(work) = working {
            if shutting_down().await {
                // systemd would end a package transaction with everything else; it may finish, as long as
                // TimeoutStopSec lets it.
                tracing::info!("the machine goes down; finishing the round that is under way first");
                drop(news);
                work.await.context("finishing the round that is under way")?;
            } else {
                // It goes on without us, and the next daemon waits for the package manager's lock. Waiting
                // here would never end when that transaction is what restarts us.
                tracing::info!("a round is under way; a package transaction goes on by itself");
            }
        }
        tracing::info!("nodelet stops");
        Ok(())
    }

    fn start_round(&mut self, news: mpsc::Sender<News>) -> tokio::task::JoinHandle<()> {
        let (root, settings) = (self.root.clone(), self.settings.clone());
        tokio::spawn(async move {
            let result = round(root, settings, &news).await;
            // Nobody listens any more when the daemon stops.
            let _ = news.send(News::Done(result)).await;
        })
    }

    /// Takes the result of a round up; how long until the next check.
    fn finish(&mut self, result: Result<Option<(String, Managed, usize)>, ReconcileError>) -> Duration {
        let interval = Duration::from_secs(self.settings.check.interval_seconds.into());
        match result {
            Ok(None) => {
                self.failures = 0;
                self.status.last_error = None;
                (self.status.revision, self.status.managed) = (None, Managed::default());
                self.enter(Phase::Waiting, Some(format!("the state file {}", self.status.source)));
                interval
            }
            Ok(Some((revision, managed, steps))) => {
                self.failures = 0;
                self.status.last_error = None;
                self.status.managed = managed;
                if steps > 0 || self.status.revision.as_ref() != Some(&revision) {
                    tracing::info!(revision, steps, "converged");
                }
                self.status.revision = Some(revision);
                self.enter(Phase::Converged, None);
                interval
            }
            Err(error) => self.failed(&error, interval),
        }
    }

    fn failed(&mut self, error: &ReconcileError, interval: Duration) -> Duration {
        let message = error.to_string();
        tracing::error!(reason = error.name(), "{message}");
        self.status.last_error =
            Some(LastError { reason: error.name().into(), message: message.clone(), at: Timestamp::now() });
        if matches!(error, ReconcileError::State(_) | ReconcileError::Unresolved(_)) {
            let fix = format!("a correction of the state: {}", first_problem(&message));
            self.enter(Phase::Invalid, Some(fix));
            return interval;
        }
        let first = Duration::from_secs(self.settings.check.retry_seconds.into());
        let wait = first.saturating_mul(2_u32.saturating_pow(self.failures)).min(interval);
        self.failures += 1;
        self.enter(Phase::Failed, Some(format!("a retry in {} s: {}", wait.as_secs(), first_problem(&message))));
        wait
    }

    /// `systemctl reload`: reads the configuration again; a wrong one changes nothing.
    fn reload(&mut self) {
        notify::reloading();
        match settings::load(&self.root, &self.config) {
            Ok(loaded) => {
                self.settings = loaded.settings;
                self.level.set(self.settings.log.level);
                self.status.source = self.settings.state.file.to_string();
                self.status.configuration_error = None;
                self.failures = 0;
                tracing::info!("the configuration was read again");
            }
            Err(error) => {
                tracing::error!("{error}; the settings read before stay in effect");
                self.status.configuration_error = Some(error.to_string());
            }
        }
        notify::ready();
        self.publish();
    }

    fn enter(&mut self, phase: Phase, waiting_for: Option<String>) {
        if self.status.phase != phase {
            self.status.phase = phase;
            self.status.since = Timestamp::now();
        }
        self.status.waiting_for = waiting_for;
        self.publish();
    }

    fn publish(&self) {
        notify::status(&self.status.line());
        if let Err(error) = self.status.write(&self.root) {
            tracing::warn!(%error, "writing the status file failed; `nodelet status` shows an old one");
        }
    }
}

async fn round(
    root: Root,
    settings: Settings,
    news: &mpsc::Sender<News>,
) -> Result<Option<(String, Managed, usize)>, ReconcileError> {
    let reconciler = Reconciler::connect(root, settings).await?;
    let progress = |number: usize, total: usize, headline: &str| {
        // A full channel loses a progress line, never a result.
        let _ = news.try_send(News::Progress(format!("step {number} of {total}: {headline}")));
    };
    let converged = reconciler.converge(progress).await?;
    Ok(converged.map(|(planned, steps)| (planned.desired.revision, Managed::by(&planned.desired.state), steps)))
}

async fn shutting_down() -> bool {
    match Systemd::connect().await {
        Ok(systemd) => systemd.is_shutting_down().await,
        Err(_) => false,
    }
}
