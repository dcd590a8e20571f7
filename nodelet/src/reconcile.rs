//! One round: read the state, look at the host, plan, apply, look again.

mod error;
mod meanwhile;
mod records;

pub use error::ReconcileError;

use crate::apply::{ApplyError, Hands, Job, Pending, apply, pending, undo};
use crate::contents::Contents;
use crate::desired::{Target, resolve};
use crate::facts::Facts;
use crate::guard;
use crate::health::Checks;
use crate::host::files::{Memory, Stamp};
use crate::host::packages::{self, PackageError, PackageManager, Staged};
use crate::host::systemd::Systemd;
use crate::host::withhold;
use crate::observe::{Observed, observe};
use crate::plan::{Drifted, Plan, headline, hold_back, plan};
use crate::progress::{Progress, Tell};
use crate::prune;
use crate::repairs::Repairs;
use crate::root::Root;
use crate::settings::{Manager, Settings};
use crate::source::{self, Choice, Desired, Permit, SourceError, wanted};
use crate::stage::{Ready, stage};
use crate::store::{
    End, Exclusive, Good, GoodRevision, Kind, Owned, Pin, STATE_DIRECTORY, Store, StoreError, Transaction,
};
use jiff::{SignedDuration, Timestamp};
use records::{begin, conclude, keep_away};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What a round needs, connected once.
pub struct Reconciler {
    root: Root,
    settings: Settings,
    packages: Box<dyn PackageManager>,
    systemd: Option<Systemd>,
    repairs: Mutex<Repairs>,
    memory: Mutex<Memory>,
    choice: Choice,
    /// What the sources asked for, as long as their files are the same.
    known: Mutex<Option<([Option<Stamp>; 2], Desired)>>,
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
    /// The host has converged to this revision before: what differs is drift.
    pub settled: bool,
    /// What must happen before the plan may be done.
    pub waits_for: Option<String>,
    /// What the host is kept at meanwhile.
    pub in_force: Option<Target>,
}

/// How often a plan may follow a plan: packages bring units, whose state is known only then.
const ROUNDS: usize = 4;

impl Reconciler {
    /// Connects to the package manager and to systemd. Below another root there is no systemd.
    pub async fn connect(root: Root, settings: Settings) -> Result<Self, ReconcileError> {
        let packages = packages::choose(&root, &settings.packages)?;
        let systemd = if root.is_host() { Some(Systemd::connect().await?) } else { None };
        Ok(Self {
            root,
            settings,
            packages,
            systemd,
            repairs: Mutex::default(),
            memory: Mutex::default(),
            choice: Choice::Configured,
            known: Mutex::default(),
        })
    }

    /// The same for a state file that a person named.
    #[must_use]
    pub fn named(self) -> Self {
        Self { choice: Choice::Named, ..self }
    }

    /// What the winning source asks for.
    fn asked(&self, store: &Store) -> Result<Option<Desired>, ReconcileError> {
        let file = self.settings.state.file.as_str();
        let kept = format!("{STATE_DIRECTORY}/{}", source::cluster::FILE);
        let stamps = [file, &kept].map(|path| std::fs::metadata(self.root.join(path)).ok().map(|at| Stamp::of(&at)));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((last, asked)) = &*known
            && *last == stamps
        {
            return Ok(Some(asked.clone()));
        }
        *known = None;
        let asked = source::asked(&self.root, file, self.choice, store).map_err(|error| match error {
            SourceError::Invalid(invalid) => ReconcileError::State(invalid),
            SourceError::Store(error) => ReconcileError::Store(error),
        })?;
        // A file that changed a moment ago may change again without its times telling.
        let settled = stamps.iter().flatten().all(Stamp::is_settled);
        if let Some(asked) = asked.as_ref().filter(|_| settled) {
            *known = Some((stamps, asked.clone()));
        }
        Ok(asked)
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
        let Some(asked) = self.asked(store)? else { return Ok(None) };
        let desired = wanted(asked, store.pin()?.as_ref());
        self.plan_for(desired, store, owned, pending).await.map(Some)
    }

    /// Plans for one state.
    async fn plan_for(
        &self,
        desired: Desired,
        store: &Store,
        owned: &Owned,
        pending: &Pending,
    ) -> Result<Planned, ReconcileError> {
        let facts = Facts::gather(&self.root, &self.settings.node.name);
        let contents = Contents::kept(store, &desired.revision)?;
        let resolved = resolve(&desired.state, self.packages.kind(), &facts, &contents, &self.root);
        let mut target = resolved.map_err(ReconcileError::Unresolved)?;
        prune::extend(&mut target, owned, self.settings.packages.prune, &store.blobs())?;
        let observed = observe(&target, &self.root, self.packages.as_ref(), self.systemd(), &self.memory).await?;
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
        let permit = desired.permit.as_ref().filter(|_| !settled && !plan.is_empty());
        let waits_for = permit.and_then(|permit| permit.waits_for(plan.disruption));
        Ok(Planned { desired, target, observed, plan, drifted, settled, waits_for, in_force: None })
    }

    /// Converges. What was wanted, and how many steps it took; `None` when there is no state file.
    pub async fn converge(&self, tell: Tell<'_>) -> Result<Option<(Planned, usize)>, ReconcileError> {
        if !self.root.is_host() {
            return Err(ReconcileError::OtherRoot);
        }
        let store = Store::open(&self.root)?;
        let _exclusive = self.exclusive(&store, tell).await?;
        let mut owned = store.owned()?;
        let (mut transaction, mut pending) = self.recover(&store, tell).await?;
        let mut done = 0;
        for round in 0.. {
            let mut planned = match (self.plan_with(&store, &owned, &pending).await, &mut transaction) {
                (Ok(Some(planned)), _) => planned,
                (Ok(None), _) => return Ok(None),
                // The first plan was done and a second one is refused: half of a change must not stay.
                (Err(ReconcileError::Plan(refused)), Some(current)) if done > 0 => {
                    let error = ApplyError::NotConverged(refused.to_string());
                    return Err(self.take_back(&store, current, error, tell).await?);
                }
                (Err(error), _) => return Err(error),
            };
            let Some(first) = planned.plan.steps.first() else {
                if withhold::is_under_way(&self.root) {
                    self.forget_withheld()?;
                }
                if let Some(current) = &mut transaction {
                    self.verify(&store, current, &planned, tell).await?;
                }
                if conclude(&store, &mut owned, transaction, &planned)?
                    && let Some(oldest) = store.good()?.last()
                {
                    self.packages.tidy(oldest.at.into());
                }
                return Ok(Some((planned, done)));
            };
            // What was begun is finished; what was not waits until it may.
            let begun = |transaction: &Transaction| transaction.record.revision == planned.desired.revision;
            if planned.waits_for.is_some() && !transaction.as_ref().is_some_and(begun) {
                self.make_ready(&store, &planned, tell).await?;
                // On the way to a revision that nobody asks for any more: the next grant leads on from there.
                if transaction.as_ref().is_some_and(|transaction| transaction.record.kind != Kind::Repair) {
                    return Ok(Some((planned, 0)));
                }
                let left = meanwhile::Left { transaction, pending };
                let (in_force, repaired) =
                    self.repair_meanwhile(&store, &mut owned, &planned.desired, left, tell).await?;
                planned.in_force = in_force;
                return Ok(Some((planned, repaired)));
            }
            let (plan, staged) = match self.prepare(&store, &planned, tell).await {
                Ok(prepared) => prepared,
                Err(error) => match &mut transaction {
                    // The first plan was done and the next one can't be: half of a change must not stay.
                    Some(current) if done > 0 => {
                        let error = ApplyError::NotConverged(error.to_string());
                        return Err(self.take_back(&store, current, error, tell).await?);
                    }
                    _ => return Err(error),
                },
            };
            let current = match &mut transaction {
                Some(transaction) => transaction,
                None => transaction.insert(begin(&store, &planned.desired)?),
            };
            if round == ROUNDS && current.record.kind == Kind::Repair {
                // Undoing would put back what somebody else does to it.
                current.ended(End::Done)?;
                return Err(ReconcileError::Contested(headline(&first.action)));
            }
            if round == ROUNDS {
                let error = ApplyError::NotConverged(format!("{} because {}", headline(&first.action), first.reason));
                return Err(self.take_back(&store, current, error, tell).await?);
            }
            let Planned { target, observed, .. } = &planned;
            let job = Job { plan: &plan, target, observed, staged: &staged, blobs: &store.blobs(), tell };
            pending = match apply(&job, self.hands(), current).await {
                Ok(left) => left,
                Err(error) => return Err(self.take_back(&store, current, error, tell).await?),
            };
            store.set_ready(None)?;
            if current.record.kind == Kind::Repair {
                self.repairs().note(plan.resources());
            }
            done += plan.steps.len();
        }
        Ok(None)
    }

    /// Waits for another nodelet that is at work, as long as for the package manager's lock.
    async fn exclusive(&self, store: &Store, tell: Tell<'_>) -> Result<Exclusive, ReconcileError> {
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
                tell(Progress::Note("another nodelet that is at work"));
                told = true;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    /// Keeps the host away from the state file's revision until that changes. The good state that it goes to: the
    /// one named, or the newest other one.
    pub fn roll_back(&self, to: Option<&str>, reason: &str) -> Result<Good, ReconcileError> {
        let store = Store::open(&self.root)?;
        let away_from = self.asked(&store)?.map(|asked| asked.revision).unwrap_or_default();
        let fits = |good: &GoodRevision| to.map_or(good.revision != away_from, |to| good.revision == to);
        let good = store.good()?.into_iter().find(fits).ok_or(ReconcileError::NothingGood)?;
        let good = store.good_state(&good)?;
        store.set_pin(Some(&Pin { away_from, good: good.clone(), reason: reason.into(), automatic: false }))?;
        Ok(good)
    }

    /// Goes on with what was under way when nodelet last stopped: an undo is finished, anything else continues.
    async fn recover(&self, store: &Store, tell: Tell<'_>) -> Result<(Option<Transaction>, Pending), ReconcileError> {
        let mut asked = Pending::default();
        if withhold::is_under_way(&self.root) {
            // A package transaction outlives nodelet; it may be at work still.
            self.packages.wait(tell).await?;
            let at = |source| PackageError::Database { path: "/run/nodelet".into(), source };
            asked.daemon_reload = withhold::take_reload(&self.root).map_err(at)?;
            asked.note(
                withhold::end(&self.root)
                    .map_err(|source| PackageError::Database { path: "/usr/sbin/policy-rc.d".into(), source })?,
            );
        }
        let Some(mut transaction) = store.unfinished()? else { return Ok((None, asked)) };
        if let Some(reason) = transaction.undoing_because().map(str::to_owned) {
            tracing::warn!(transaction = transaction.record.number, "finishing an undo that was cut off");
            let left = undo(&transaction, self.hands(), &store.blobs(), tell).await;
            transaction.ended(if left.is_empty() { End::Undone(reason) } else { End::Stuck(left.join("; ")) })?;
            return Ok((None, Pending::default()));
        }
        tracing::warn!(transaction = transaction.record.number, "going on with a change that was cut off");
        // Written down where the restart will be too: asked for once, given once.
        if let Some(last) = transaction.parts().len().checked_sub(1) {
            transaction.owes(last, std::mem::take(&mut asked.units))?;
            self.forget_withheld()?;
        }
        let mut pending = pending(&transaction, self.systemd()).await;
        pending.daemon_reload |= asked.daemon_reload;
        Ok((Some(transaction), pending))
    }

    /// What packages asked for was given, or is written down elsewhere.
    fn forget_withheld(&self) -> Result<(), PackageError> {
        let at = |source| PackageError::Database { path: STATE_DIRECTORY.into(), source };
        withhold::forget(&self.root).map_err(at)
    }

    /// What is to be done now, ready to be done: the plan, or what must come before it.
    async fn prepare(
        &self,
        store: &Store,
        planned: &Planned,
        tell: Tell<'_>,
    ) -> Result<(Plan, Staged), ReconcileError> {
        let Planned { desired, target, observed, plan, .. } = planned;
        match guard::docker(plan, target, self.systemd()).await {
            guard::Before::Nothing => {}
            guard::Before::First(first) => return Ok((first, Staged::default())),
            guard::Before::Refused(why) => return Err(ReconcileError::Guarded(why)),
        }
        if let Some(ready) = store.ready()?.filter(|ready| ready.revision == desired.revision && ready.plan == *plan) {
            return Ok((ready.plan, ready.staged));
        }
        let staged = stage(plan, target, observed, &self.root, self.packages.as_ref(), tell).await?;
        Ok((plan.clone(), staged))
    }

    /// Makes the way to the desired state ready, and changes nothing. `None` when there is no state file.
    pub async fn stage(&self, tell: Tell<'_>) -> Result<Option<Ready>, ReconcileError> {
        if !self.root.is_host() {
            return Err(ReconcileError::OtherRoot);
        }
        let store = Store::open(&self.root)?;
        let _exclusive = self.exclusive(&store, tell).await?;
        let pending = match store.unfinished()? {
            Some(transaction) => pending(&transaction, self.systemd()).await,
            None => Pending::default(),
        };
        let Some(planned) = self.plan_with(&store, &store.owned()?, &pending).await? else { return Ok(None) };
        self.stage_plan(&store, &planned, tell).await.map(Some)
    }

    async fn stage_plan(&self, store: &Store, planned: &Planned, tell: Tell<'_>) -> Result<Ready, ReconcileError> {
        let Planned { desired, target, observed, plan, .. } = planned;
        let staged = stage(plan, target, observed, &self.root, self.packages.as_ref(), tell).await?;
        let ready =
            Ready { revision: desired.revision.clone(), disruption: plan.disruption, plan: plan.clone(), staged };
        store.set_ready(Some(&ready))?;
        Ok(ready)
    }

    /// Makes a plan ready that may not be done yet, unless it is.
    async fn make_ready(&self, store: &Store, planned: &Planned, tell: Tell<'_>) -> Result<(), ReconcileError> {
        let may = planned.desired.permit.as_ref().is_none_or(Permit::may_stage);
        let is = |ready: Ready| ready.revision == planned.desired.revision && ready.plan == planned.plan;
        if may && !store.ready()?.is_some_and(is) {
            self.stage_plan(store, planned, tell).await?;
        }
        Ok(())
    }

    /// Waits until the checks pass. If they don't in time, everything is undone, and the host stays away from that
    /// revision.
    async fn verify(
        &self,
        store: &Store,
        transaction: &mut Transaction,
        planned: &Planned,
        tell: Tell<'_>,
    ) -> Result<(), ReconcileError> {
        // A repair changes nothing that was good before; a rollback has nothing better to go back to.
        if transaction.record.kind != Kind::Apply {
            return Ok(());
        }
        let seconds = planned.desired.state.health.timeout_seconds;
        let until = transaction.verify_until(Timestamp::now() + SignedDuration::from_secs(seconds.into()))?;
        let checks = Checks::of(&planned.desired.state, &self.root);
        let Err(failing) = checks.pass(self.systemd(), until, tell).await else { return Ok(()) };
        tracing::error!(revision = planned.desired.revision, failing, "the health checks did not pass; going back");
        let revision = planned.desired.revision.clone();
        // Before the undo: a crash in between must not end in a second try.
        let kept = keep_away(store, &revision, format!("did not pass its health checks: {failing}"))?;
        let error = ApplyError::Unhealthy(failing.clone());
        match self.take_back(store, transaction, error, tell).await? {
            ReconcileError::Undone(_) => Err(ReconcileError::Unhealthy { revision, seconds, failing, kept }),
            stuck => Err(stuck),
        }
    }

    /// Takes the change that is under way back, and keeps the host away from its revision.
    pub async fn give_up(&self, reason: &str, tell: Tell<'_>) -> Result<(), ReconcileError> {
        let store = Store::open(&self.root)?;
        let _exclusive = self.exclusive(&store, tell).await?;
        self.packages.wait(tell).await?;
        let Some(mut transaction) = store.unfinished()? else { return Ok(()) };
        let revision = transaction.record.revision.clone();
        keep_away(&store, &revision, reason.to_owned())?;
        match self.take_back(&store, &mut transaction, ApplyError::Unhealthy(reason.to_owned()), tell).await? {
            ReconcileError::Undone(_) => Ok(()),
            stuck => Err(stuck),
        }
    }

    /// Undoes a transaction whose step failed; the error to report.
    async fn take_back(
        &self,
        store: &Store,
        transaction: &mut Transaction,
        error: ApplyError,
        tell: Tell<'_>,
    ) -> Result<ReconcileError, StoreError> {
        if let Some(systemd) = self.systemd()
            && !systemd.is_there_to_stay().await
        {
            return Ok(ReconcileError::Interrupted(error));
        }
        let reason = error.to_string();
        transaction.undoing(&reason)?;
        let left = undo(transaction, self.hands(), &store.blobs(), tell).await;
        if left.is_empty() {
            transaction.ended(End::Undone(reason))?;
            return Ok(ReconcileError::Undone(error));
        }
        transaction.ended(End::Stuck(format!("{reason}; {}", left.join("; "))))?;
        Ok(ReconcileError::Stuck { error, left })
    }

    /// The revisions that were good, newest first, with the time.
    pub fn good_revisions(&self) -> Result<Vec<(String, Timestamp)>, ReconcileError> {
        let good = Store::open(&self.root)?.good()?;
        Ok(good.into_iter().map(|good| (good.revision, good.at)).collect())
    }

    /// Where the host's files are.
    pub fn root(&self) -> &Root {
        &self.root
    }

    /// The settings in effect.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The package manager in use.
    pub fn manager_name(&self) -> &'static str {
        match self.packages.kind() {
            Manager::Dnf => "dnf",
            Manager::Apt | Manager::Auto => "apt",
        }
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
