//! One round: read the state, look at the host, plan, apply, look again.

use crate::apply::{ApplyError, Hands, Pending, apply, own, pending, undo};
use crate::desired::{Target, resolve};
use crate::facts::Facts;
use crate::host::packages::{self, PackageError, PackageManager};
use crate::host::systemd::{Systemd, SystemdError};
use crate::observe::{ObserveError, Observed, observe};
use crate::plan::{Drifted, Plan, PlanError, headline, hold_back, plan};
use crate::prune;
use crate::repairs::Repairs;
use crate::root::Root;
use crate::settings::Settings;
use crate::source::{Desired, InvalidState, local_file, wanted};
use crate::store::{End, Exclusive, Good, Kind, Owned, Pin, Store, StoreError, Transaction};
use jiff::Timestamp;
use nodelet_api::Problems;
use nodelet_api::text::PackageVersion;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What ended a round.
#[derive(Debug, thiserror::Error)]
pub enum ReconcileError {
    /// The state file is wrong.
    #[error(transparent)]
    State(#[from] InvalidState),
    /// The state can't be made concrete on this host.
    #[error("the desired state can't be used on this host, so nothing is changed:\n{0}")]
    Unresolved(Problems),
    /// The package manager.
    #[error(transparent)]
    Packages(#[from] PackageError),
    /// systemd.
    #[error(transparent)]
    Systemd(#[from] SystemdError),
    /// The host could not be seen.
    #[error(transparent)]
    Observe(#[from] ObserveError),
    /// The way there can't be planned.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// A step failed, and everything that the plan had done was undone.
    #[error("{0}; everything was undone")]
    Undone(ApplyError),
    /// A step failed, and so did something of the undoing.
    #[error("{error}; undoing failed too, and a person must look:\n{}", left.join("\n"))]
    Stuck {
        /// What failed first.
        error: ApplyError,
        /// What could not be undone.
        left: Vec<String>,
    },
    /// Below another root only looking is possible.
    #[error(
        "package managers and systemd act on the running host only: `--root` is for plan, validate, config and history"
    )]
    OtherRoot,
    /// Another nodelet is at work for too long.
    #[error("another nodelet is still changing this host: see `nodelet status`, and try again when it is done")]
    Busy,
    /// There is no state to go back to.
    #[error("there is no such good state to go back to: `nodelet history` shows what was applied")]
    NothingGood,
    /// nodelet's own records.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl ReconcileError {
    /// A short stable name: the reason of a condition or an event, the label of a metric.
    pub fn name(&self) -> &'static str {
        match self {
            Self::State(_) => "StateInvalid",
            Self::Unresolved(_) => "StateUnresolved",
            Self::Packages(_) => "PackageManagerFailed",
            Self::Systemd(_) => "SystemdUnreachable",
            Self::Observe(_) => "ObserveFailed",
            Self::Plan(_) => "PlanRefused",
            Self::Undone(_) => "StepFailed",
            Self::Stuck { .. } => "UndoFailed",
            Self::Store(_) => "RecordsFailed",
            Self::OtherRoot => "OtherRoot",
            Self::Busy => "Busy",
            Self::NothingGood => "NothingGood",
        }
    }
}

/// What a round needs, connected once.
pub struct Reconciler {
    root: Root,
    settings: Settings,
    packages: Box<dyn PackageManager>,
    systemd: Option<Systemd>,
    repairs: Mutex<Repairs>,
}

/// Everything up to the plan.
pub struct Planned {
    /// The state and where it comes from.
    pub desired: Desired,
    /// The state, concrete.
    pub target: Target,
    /// What is on the host.
    pub observed: Observed,
    /// What is to be done.
    pub plan: Plan,
    /// What is not as wanted and is left so.
    pub drifted: Vec<Drifted>,
}

/// How often a plan may follow a plan: packages bring units, whose state is known only then.
const ROUNDS: usize = 3;

impl Reconciler {
    /// Connects to the package manager and to systemd. Below another root there is no systemd.
    pub async fn connect(root: Root, settings: Settings) -> Result<Self, ReconcileError> {
        let packages = packages::choose(&root, &settings.packages)?;
        let systemd = if root.is_host() { Some(Systemd::connect().await?) } else { None };
        Ok(Self { root, settings, packages, systemd, repairs: Mutex::default() })
    }

    /// Reads the state and plans. `None` when there is no state file.
    pub async fn plan(&self) -> Result<Option<Planned>, ReconcileError> {
        let store = Store::open(&self.root)?;
        let pending = match store.unfinished()? {
            Some(transaction) => pending(&transaction, self.systemd()).await,
            None => Pending::default(),
        };
        self.plan_with(&store, &store.owned()?, &pending).await
    }

    async fn plan_with(
        &self,
        store: &Store,
        owned: &Owned,
        pending: &Pending,
    ) -> Result<Option<Planned>, ReconcileError> {
        let path = self.settings.state.file.as_str();
        let Some(local) = local_file(&self.root, path.as_ref())? else { return Ok(None) };
        let desired = wanted(local, store.pin()?.as_ref());
        let facts = Facts::gather(&self.root, &self.settings.node.name);
        let resolved = resolve(&desired.state, self.packages.kind(), &facts, &self.root);
        let mut target = resolved.map_err(ReconcileError::Unresolved)?;
        prune::extend(&mut target, owned, self.settings.packages.prune, &store.blobs())?;
        let observed = observe(&target, &self.root, self.packages.as_ref(), self.systemd.as_ref()).await?;
        let kind = self.packages.kind();
        let settled = store.good()?.first().is_some_and(|good| good.revision == desired.revision);
        let (plan, drifted) = if settled {
            let tired = self.repairs().tired(self.settings.check.repairs_per_hour);
            let mut repairable = target.clone();
            let drifted = hold_back(&mut repairable, &observed, kind, &tired)?;
            (plan(&repairable, &observed, pending, kind)?, drifted)
        } else {
            (plan(&target, &observed, pending, kind)?, Vec::new())
        };
        Ok(Some(Planned { desired, target, observed, plan, drifted }))
    }

    /// Converges. What was wanted, and how many steps it took; `None` when there is no state file.
    pub async fn converge(
        &self,
        mut progress: impl FnMut(usize, usize, &str),
    ) -> Result<Option<(Planned, usize)>, ReconcileError> {
        if !self.root.is_host() {
            return Err(ReconcileError::OtherRoot);
        }
        let store = Store::open(&self.root)?;
        let _exclusive = self.exclusive(&store, &mut progress).await?;
        let mut owned = store.owned()?;
        let (mut transaction, mut pending) = self.recover(&store).await?;
        let mut done = 0;
        for round in 0.. {
            let planned = match (self.plan_with(&store, &owned, &pending).await, &mut transaction) {
                (Ok(Some(planned)), _) => planned,
                (Ok(None), _) => return Ok(None),
                // The first plan was done and a second one is refused: half of a change must not stay.
                (Err(ReconcileError::Plan(refused)), Some(current)) if done > 0 => {
                    let error = ApplyError::NotConverged(refused.to_string());
                    return Err(self.take_back(&store, current, error).await?);
                }
                (Err(error), _) => return Err(error),
            };
            let Some(first) = planned.plan.steps.first() else {
                conclude(&store, &mut owned, transaction, &planned)?;
                return Ok(Some((planned, done)));
            };
            let current = match &mut transaction {
                Some(transaction) => transaction,
                None => transaction.insert(begin(&store, &planned.desired)?),
            };
            if round == ROUNDS {
                let error = ApplyError::NotConverged(format!("{} because {}", headline(&first.action), first.reason));
                return Err(self.take_back(&store, current, error).await?);
            }
            let Planned { plan, target, observed, .. } = &planned;
            let result = apply(plan, target, observed, self.hands(), &store.blobs(), current, &mut progress).await;
            if let Err(error) = result {
                return Err(self.take_back(&store, current, error).await?);
            }
            if current.record.kind == Kind::Repair {
                self.repairs().note(plan.resources());
            }
            pending = Pending::default();
            done += planned.plan.steps.len();
        }
        Ok(None)
    }

    /// Waits for another nodelet that is at work, as long as for the package manager's lock.
    async fn exclusive(
        &self,
        store: &Store,
        progress: &mut impl FnMut(usize, usize, &str),
    ) -> Result<Exclusive, ReconcileError> {
        let limit = Instant::now() + Duration::from_secs(self.settings.packages.lock_timeout_seconds.into());
        let mut told = false;
        loop {
            if let Some(exclusive) = store.exclusive()? {
                return Ok(exclusive);
            }
            if Instant::now() > limit {
                return Err(ReconcileError::Busy);
            }
            if !told {
                progress(0, 0, "wait for another nodelet that is at work");
                told = true;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Keeps the host away from the state file's revision until that changes. The good state that it goes to: the
    /// one named, or the newest other one.
    pub fn roll_back(&self, to: Option<&str>, reason: &str) -> Result<Good, ReconcileError> {
        let store = Store::open(&self.root)?;
        let path = self.settings.state.file.as_str();
        let away_from = local_file(&self.root, path.as_ref())?.map(|local| local.revision).unwrap_or_default();
        let fits = |good: &Good| to.map_or(good.revision != away_from, |to| good.revision == to);
        let good = store.good()?.into_iter().find(fits).ok_or(ReconcileError::NothingGood)?;
        store.set_pin(Some(&Pin { away_from, good: good.clone(), reason: reason.into() }))?;
        Ok(good)
    }

    /// Goes on with what was under way when nodelet last stopped: an undo is finished, anything else continues.
    async fn recover(&self, store: &Store) -> Result<(Option<Transaction>, Pending), ReconcileError> {
        let Some(mut transaction) = store.unfinished()? else { return Ok((None, Pending::default())) };
        if let Some(reason) = transaction.undoing_because().map(str::to_owned) {
            tracing::warn!(transaction = transaction.record.number, "finishing an undo that was cut off");
            let left = undo(&transaction, self.hands(), &store.blobs()).await;
            transaction.ended(if left.is_empty() { End::Undone(reason) } else { End::Stuck(left.join("; ")) })?;
            return Ok((None, Pending::default()));
        }
        tracing::warn!(transaction = transaction.record.number, "going on with a change that was cut off");
        let pending = pending(&transaction, self.systemd()).await;
        Ok((Some(transaction), pending))
    }

    /// Undoes a transaction whose step failed; the error to report.
    async fn take_back(
        &self,
        store: &Store,
        transaction: &mut Transaction,
        error: ApplyError,
    ) -> Result<ReconcileError, StoreError> {
        let reason = error.to_string();
        transaction.undoing(&reason)?;
        let left = undo(transaction, self.hands(), &store.blobs()).await;
        if left.is_empty() {
            transaction.ended(End::Undone(reason))?;
            return Ok(ReconcileError::Undone(error));
        }
        transaction.ended(End::Stuck(format!("{reason}; {}", left.join("; "))))?;
        Ok(ReconcileError::Stuck { error, left })
    }

    /// systemd, for what watches it.
    pub fn systemd(&self) -> Option<&Systemd> {
        self.systemd.as_ref()
    }

    fn repairs(&self) -> MutexGuard<'_, Repairs> {
        self.repairs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hands(&self) -> Hands<'_> {
        Hands { root: &self.root, packages: self.packages.as_ref(), systemd: self.systemd.as_ref() }
    }
}

/// The host is as wanted: notes what nodelet owns, ends the transaction, and remembers the state as a good one.
fn conclude(
    store: &Store,
    owned: &mut Owned,
    transaction: Option<Transaction>,
    planned: &Planned,
) -> Result<(), StoreError> {
    own(owned, transaction.as_ref(), &planned.target, &planned.observed);
    // Ended first: a crash in between forgets that a file is ours, which is safe; the other way round, the next round
    // would take what was put back for something that nodelet placed.
    if let Some(mut transaction) = transaction {
        transaction.ended(End::Done)?;
    }
    if *owned != store.owned()? {
        store.set_owned(owned)?;
    }
    // Another state than the one rolled back to: the rollback is over, also for the revision that it led away from.
    if store.pin()?.is_some_and(|pin| pin.good.revision != planned.desired.revision) {
        store.set_pin(None)?;
    }
    if store.good()?.first().is_none_or(|good| good.revision != planned.desired.revision) {
        store.add_good(good(planned))?;
    }
    Ok(())
}

/// The state that the host has now, with the versions that are installed.
fn good(planned: &Planned) -> Good {
    let mut state = planned.desired.state.clone();
    for (package, target) in state.packages.iter_mut().zip(&planned.target.packages) {
        let installed = planned.observed.packages.get(&target.name).map(|installed| installed.version.as_str());
        if let Some(Ok(version)) = installed.filter(|_| target.present).map(PackageVersion::try_from) {
            package.version = Some(version);
            package.allow_downgrade = true;
        }
    }
    Good { revision: planned.desired.revision.clone(), state, at: Timestamp::now() }
}

fn begin(store: &Store, desired: &Desired) -> Result<Transaction, StoreError> {
    let last = store.history()?.into_iter().rev().find(|summary| summary.end == Some(End::Done));
    let known = last.is_some_and(|summary| summary.record.revision == desired.revision);
    let back = store.pin()?.is_some_and(|pin| pin.good.revision == desired.revision);
    let kind = match (known, back) {
        (true, _) => Kind::Repair,
        (false, true) => Kind::Rollback,
        (false, false) => Kind::Apply,
    };
    store.begin(kind, &desired.revision, &desired.origin)
}
