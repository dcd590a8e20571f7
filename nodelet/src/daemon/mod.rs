//! The daemon: converges when it starts, when the state or the configuration changes, and from time to time.

mod alarm;
mod notify;
mod shutdown;
mod tell;
mod units;

use crate::cluster::{self, Follower, Report};
use crate::desired::Target;
use crate::facts::Facts;
use crate::identity::Identity;
use crate::plan::Drifted;
use crate::progress::Progress;
use crate::reconcile::{ReconcileError, Reconciler};
use crate::report::log::LevelHandle;
use crate::report::status::{LastError, Managed, Phase, Status, first_problem};
use crate::root::Root;
use crate::settings::{self, Settings};
use crate::watch::{Noticed, Watcher};
use alarm::Alarm;
use anyhow::Context;
use jiff::Timestamp;
use nodelet_api::objects::UnitReport;
use notify::Watchdog;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

/// What one round of reconciling tells the daemon.
enum News {
    /// A step begins.
    Progress(String),
    /// The round is over.
    Done(Box<Result<Option<Round>, ReconcileError>>),
    /// The units that the cluster asks for were looked at.
    Units(Vec<UnitReport>),
}

/// What a round came to.
struct Round {
    revision: String,
    source: String,
    source_reason: String,
    managed: Managed,
    drifted: Vec<Drifted>,
    /// Why it is not the state that the source asks for.
    reverted: Option<String>,
    target: Target,
    steps: usize,
    /// What must happen before what is wanted may be done.
    waits_for: Option<String>,
    /// What the cluster hears of it.
    report: Report,
}

/// The running daemon.
struct Daemon {
    root: Root,
    config: PathBuf,
    settings: Settings,
    level: LevelHandle,
    status: Status,
    failures: u32,
    report: Report,
    /// Why the cluster's revision is not taken up.
    not_understood: Option<String>,
    reports: watch::Sender<Option<Report>>,
}

/// Runs until it is told to stop.
pub async fn run(root: Root, config: PathBuf, settings: Settings, level: LevelHandle) -> anyhow::Result<()> {
    let status = Status {
        version: env!("CARGO_PKG_VERSION").into(),
        pid: std::process::id(),
        phase: Phase::Converging,
        since: Timestamp::now(),
        source: settings.state.file.to_string(),
        source_reason: String::new(),
        cluster: None,
        revision: None,
        managed: Managed::default(),
        waiting_for: Some("looking at the node".into()),
        last_error: None,
        configuration_error: None,
        drifted: Vec::new(),
    };
    let report = tell::about_host(&root, &settings);
    let (failures, not_understood, reports) = (0, None, watch::channel(None).0);
    let daemon = Daemon { root, config, settings, level, status, failures, report, not_understood, reports };
    daemon.serve().await
}

impl Daemon {
    async fn serve(mut self) -> anyhow::Result<()> {
        let mut terminate = signal(SignalKind::terminate()).context("listening for SIGTERM")?;
        let mut interrupt = signal(SignalKind::interrupt()).context("listening for SIGINT")?;
        let mut hangup = signal(SignalKind::hangup()).context("listening for SIGHUP")?;
        let mut watcher = Watcher::new(&self.root, self.settings.state.file.as_str());
        let mut reconciler: Option<Arc<Reconciler>> = None;
        let watchdog = Watchdog::default();
        let (news_to, mut news) = mpsc::channel(16);
        let (heard_to, mut heard) = mpsc::channel(16);
        let mut following = self.follow(&heard_to);
        let mut working: Option<tokio::task::JoinHandle<()>> = None;
        // What comes while a round is under way asks for another round: a wish of a person always, drift only when
        // the round succeeds, because a failed one is undone, which looks like drift.
        let (mut asked, mut drift) = (true, false);
        // Whether the units that the cluster asks for must be looked at, and whether that is under way.
        let (mut look, mut looking) = (false, false);
        let mut pace = units::Pace::default();
        let (next_check, next_look) = (Alarm::new(), Alarm::new());
        notify::ready();
        self.publish();
        tracing::info!(version = self.status.version, state = self.status.source, "nodelet runs");
        loop {
            if (asked || drift) && working.is_none() {
                (asked, drift) = (false, false);
                match self.connected(&mut reconciler).await {
                    Ok(reconciler) => working = Some(start_round(reconciler, news_to.clone())),
                    Err(error) => next_check.set(self.finish(&Err(error))),
                }
            }
            if let Some(reconciler) = reconciler.as_ref().filter(|_| look && !looking) {
                let wait = pace.wait(Instant::now());
                if wait.is_zero() {
                    (look, looking) = (false, true);
                    // Not here: while nobody reads the signals, the answers might not be read either.
                    tokio::spawn(units::look(Arc::clone(reconciler), news_to.clone()));
                } else {
                    next_look.set(wait);
                }
            }
            tokio::select! {
                _ = terminate.recv() => break,
                _ = interrupt.recv() => break,
                _ = hangup.recv() => {
                    self.reload();
                    watcher = Watcher::new(&self.root, self.settings.state.file.as_str());
                    reconciler = None;
                    asked = true;
                    following.abort();
                    following = self.follow(&heard_to);
                }
                Some(heard) = heard.recv() => match heard {
                    cluster::News::Asked => {
                        tracing::info!("the cluster asks for something else");
                        asked = true;
                    }
                    cluster::News::Reached => self.note_cluster("followed".into()),
                    cluster::News::NotUnderstood(None) if self.not_understood.is_none() => {}
                    cluster::News::NotUnderstood(why) => {
                        let said = why.as_ref().map_or_else(|| "followed".to_owned(), |why| format!("followed, but {why}"));
                        self.not_understood = why;
                        self.note_cluster(said);
                    }
                    cluster::News::Away(why) => self.note_cluster(format!("away: {why}")),
                },
                noticed = watcher.changed() => match noticed {
                    Noticed::StateFile => {
                        tracing::info!(file = self.settings.state.file.as_str(), "the state file changed");
                        asked = true;
                    }
                    Noticed::Managed(what) => {
                        tracing::debug!(what, "something managed changed");
                        // While something fails, the retry comes in its own time.
                        drift = self.failures == 0;
                    }
                    Noticed::Unit { name, managed } => {
                        tracing::debug!(unit = name, managed, "a unit changed");
                        look = true;
                        if managed {
                            drift = self.failures == 0;
                        }
                    }
                },
                () = watchdog.due() => watchdog.alive(),
                () = next_check.rings(), if working.is_none() => asked = true,
                () = next_look.rings() => {}
                Some(message) = news.recv() => match message {
                    News::Progress(line) => self.enter(Phase::Converging, Some(line)),
                    News::Units(units) => {
                        looking = false;
                        if !units::is_same(&self.report.units, &units) {
                            pace.note(Instant::now());
                            self.report.units = units;
                            self.publish();
                        }
                    }
                    News::Done(result) => {
                        working = None;
                        next_check.set(self.finish(&result));
                        match (&*result, &reconciler) {
                            (Ok(Some(round)), Some(reconciler)) => {
                                let asked = units::asked(&self.root);
                                if !self.report.units.iter().map(|unit| &unit.name).eq(&asked) {
                                    // The cluster waits for others.
                                    pace = units::Pace::default();
                                }
                                watcher.follow(&self.root, &round.target, &asked, reconciler.systemd()).await;
                                // Also what changed before it was watched.
                                look = true;
                            }
                            // A connection that failed is made anew.
                            (Err(_), _) => {
                                reconciler = None;
                                drift = false;
                            }
                            _ => {}
                        }
                    }
                },
            }
        }
        notify::stopping();
        following.abort();
        if let Some(work) = working {
            if shutdown::is_under_way().await {
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

    /// Follows the cluster, where there is one.
    fn follow(&self, heard: &mpsc::Sender<cluster::News>) -> tokio::task::JoinHandle<()> {
        let settings = &self.settings;
        if settings.cluster.kubeconfig.is_empty() {
            return tokio::spawn(async {});
        }
        let facts = Facts::gather(&self.root, &settings.node.name);
        let node = facts.get("node.name").unwrap_or_default().to_owned();
        let follower = Follower {
            root: self.root.clone(),
            identity: Identity::new(&self.root, &node, &settings.cluster),
            namespace: settings.cluster.namespace.clone(),
            node,
        };
        tokio::spawn(follower.follow(heard.clone(), self.reports.subscribe()))
    }

    fn note_cluster(&mut self, said: String) {
        self.status.cluster = Some(said);
        self.publish();
    }

    /// The connections, made once and kept.
    async fn connected(&self, kept: &mut Option<Arc<Reconciler>>) -> Result<Arc<Reconciler>, ReconcileError> {
        if let Some(reconciler) = kept {
            return Ok(Arc::clone(reconciler));
        }
        let reconciler = Arc::new(Reconciler::connect(self.root.clone(), self.settings.clone()).await?);
        *kept = Some(Arc::clone(&reconciler));
        Ok(reconciler)
    }

    /// Takes the result of a round up; how long until the next check.
    fn finish(&mut self, result: &Result<Option<Round>, ReconcileError>) -> Duration {
        let interval = Duration::from_secs(self.settings.check.interval_seconds.into());
        match result {
            Ok(None) => {
                self.failures = 0;
                self.status.last_error = None;
                (self.status.revision, self.status.managed) = (None, Managed::default());
                self.status.drifted.clear();
                self.enter(Phase::Waiting, Some(format!("the state file {}", self.settings.state.file)));
                interval
            }
            Ok(Some(round)) => {
                self.failures = 0;
                // What was wrong with the state that was reverted stays to be read until there is another one.
                if round.reverted.is_none() {
                    self.status.last_error = None;
                }
                self.status.managed = round.managed;
                self.status.source.clone_from(&round.source);
                self.status.source_reason.clone_from(&round.source_reason);
                if round.waits_for.is_none()
                    && (round.steps > 0 || self.status.revision.as_ref() != Some(&round.revision))
                {
                    tracing::info!(revision = round.revision, steps = round.steps, "converged");
                }
                for drifted in round.drifted.iter().filter(|drifted| !self.status.drifted.contains(drifted)) {
                    tracing::warn!(resource = drifted.resource, "drifted, and left alone: {}", drifted.reason);
                }
                self.status.revision = Some(round.revision.clone());
                self.status.drifted.clone_from(&round.drifted);
                // Units are looked at apart, and may be newer than the round.
                self.report = Report { units: std::mem::take(&mut self.report.units), ..round.report.clone() };
                match &round.reverted {
                    _ if round.waits_for.is_some() => self.enter(Phase::Staged, round.waits_for.clone()),
                    Some(reverted) => {
                        self.enter(Phase::Reverted, Some(format!("a correction of the state: {reverted}")));
                    }
                    None if round.drifted.is_empty() => self.enter(Phase::Converged, None),
                    None => self.enter(Phase::Drifted, None),
                }
                interval
            }
            Err(error) => self.failed(error, interval),
        }
    }

    fn failed(&mut self, error: &ReconcileError, interval: Duration) -> Duration {
        let message = error.to_string();
        tracing::error!(reason = error.name(), "{message}");
        self.report.steps = tell::steps(&self.root);
        self.status.last_error =
            Some(LastError { reason: error.name().into(), message: message.clone(), at: Timestamp::now() });
        if matches!(error, ReconcileError::State(_)) {
            let fix = format!("a correction of the state: {}", first_problem(&message));
            self.enter(Phase::Invalid, Some(fix));
            return interval;
        }
        if matches!(error, ReconcileError::Unhealthy { kept: true, .. }) {
            self.enter(Phase::Failed, Some("the last good state".into()));
            return Duration::ZERO;
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
        self.reports.send_replace(Some(tell::with_conditions(
            &self.report,
            &self.status,
            self.not_understood.as_deref(),
        )));
        if let Err(error) = self.status.write(&self.root) {
            tracing::warn!(%error, "writing the status file failed; `nodelet status` shows an old one");
        }
    }
}

fn start_round(reconciler: Arc<Reconciler>, news: mpsc::Sender<News>) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let result = round(&reconciler, &news).await;
        // Nobody listens any more when the daemon stops.
        let _ = news.send(News::Done(Box::new(result))).await;
    })
}

async fn round(reconciler: &Reconciler, news: &mpsc::Sender<News>) -> Result<Option<Round>, ReconcileError> {
    let step = Mutex::new(String::new());
    let tell = |progress: Progress<'_>| {
        let mut step = step.lock().unwrap_or_else(PoisonError::into_inner);
        let line = match progress {
            Progress::Step { number, total, headline } => {
                *step = format!("step {number} of {total}: {headline}");
                step.clone()
            }
            Progress::Note(note) => {
                step.clear();
                note.to_owned()
            }
            Progress::Part { percent, what } if step.is_empty() => format!("{percent} %: {what}"),
            Progress::Part { percent, what } => format!("{step} ({percent} %: {what})"),
        };
        // A full channel loses a progress line, never a result.
        let _ = news.try_send(News::Progress(line));
    };
    let Some((planned, steps)) = reconciler.converge(&tell).await? else { return Ok(None) };
    let report = tell::about(&planned, reconciler)?;
    Ok(Some(Round {
        report,
        waits_for: planned.waits_for,
        managed: Managed::by(&planned.desired.state),
        revision: planned.desired.revision,
        source: planned.desired.origin,
        source_reason: planned.desired.why,
        reverted: planned.desired.reverted,
        drifted: planned.drifted,
        target: planned.in_force.unwrap_or(planned.target),
        steps,
    }))
}
