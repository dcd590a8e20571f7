//! Does what a plan says, step by step, and writes each step down before and after.

mod pending;
mod perform;
mod record;
mod settle;
mod undo;

pub use pending::{Pending, pending};
pub use perform::Hands;
pub(crate) use perform::transaction;
pub use record::{before, own};
pub use undo::undo;

use crate::desired::Target;
use crate::host::packages::{Staged, Withhold};
use crate::host::systemd::UnitSeen;
use crate::host::withhold;
use crate::observe::Observed;
use crate::plan::{Action, PackageChange, Plan, Step, UnitChange, headline};
use crate::progress::{Progress, Tell};
use crate::rescue;
use crate::store::{Before, Blobs, FileBefore, Kind, StoreError, Transaction};
use futures::future::join_all;
use std::time::SystemTime;

/// A step that failed.
#[derive(Debug, thiserror::Error)]
pub enum ApplyError {
    /// The step itself.
    #[error("step {number} of {total}, {headline}: {cause}")]
    Step {
        /// Which one, from 1.
        number: usize,
        /// Of how many.
        total: usize,
        /// What it does.
        headline: String,
        /// Why it failed.
        cause: String,
    },
    /// All the steps succeeded, and the host is still not as wanted.
    #[error("after all steps there is still something to do: {0}; does another program undo it?")]
    NotConverged(String),
    /// All the steps succeeded, and did the node harm.
    #[error("the health checks did not pass: {0}")]
    Unhealthy(String),
    /// What is done could not be written down, so it was not done.
    #[error("nothing is done that can't be written down: {0}")]
    Store(#[from] StoreError),
}

/// What a plan is done with.
pub struct Job<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What it leads to.
    pub target: &'a Target,
    /// What was there when it was made.
    pub observed: &'a Observed,
    /// What was made ready for it.
    pub staged: &'a Staged,
    /// Contents that were there before are kept here.
    pub blobs: &'a Blobs,
    /// Hears of each step before it begins.
    pub tell: Tell<'a>,
}

/// Does all the steps in order; the first that fails ends it. What is owed to units that no step restarts.
pub async fn apply(job: &Job<'_>, hands: Hands<'_>, transaction: &mut Transaction) -> Result<Pending, ApplyError> {
    let Job { plan, target, observed, blobs, tell, .. } = *job;
    let withheld = withheld(plan, target, observed);
    let before = Before { withhold: withheld.clone(), ..before(plan, observed, hands.root, blobs)? };
    let part = transaction.add_part(plan, before)?;
    let total = plan.steps.len();
    let since = SystemTime::now();
    let mut owed = Pending::default();
    let mut next = 0;
    while next < total {
        let group = next..next + together(&plan.steps[next..]);
        for index in group.clone() {
            let action = &plan.steps[index].action;
            tell(Progress::Step { number: index + 1, total, headline: &headline(action) });
            transaction.step_begins(part, index, pending::mark(action, hands.systemd).await)?;
            crate::fault::point("begun", index + 1);
        }
        let results = match &plan.steps[next].action {
            Action::ChangePackages { changes } => {
                let done = change_packages(job, changes, &withheld, hands, part, transaction, &mut owed).await?;
                vec![done]
            }
            action => {
                if let Action::WriteFile { path } = action
                    && changes_packages(plan)
                {
                    note_package_file(path, part, hands, blobs, transaction)?;
                }
                let steps = plan.steps[group.clone()].iter();
                join_all(steps.map(|step| perform::perform(&step.action, target, hands, since))).await
            }
        };
        for (index, result) in group.clone().zip(results) {
            let (number, step) = (index + 1, &plan.steps[index]);
            let headline = headline(&step.action);
            result.map_err(|cause| {
                tracing::error!(step = number, of = total, what = headline, error = cause, "step failed");
                ApplyError::Step { number, total, headline: headline.clone(), cause }
            })?;
            crate::fault::point("performed", number);
            transaction.step_done(part, index)?;
            crate::fault::point("done", number);
            tracing::info!(step = number, of = total, reason = step.reason, "{headline}");
        }
        next = group.end;
    }
    // A repair is to be quick, and systemd answers nobody while it reads.
    if transaction.record.kind != Kind::Repair {
        remember_enablement(plan, hands).await;
    }
    settle::check(plan, hands.systemd).await.map_err(|(index, cause)| {
        let headline = headline(&plan.steps[index].action);
        tracing::error!(step = index + 1, of = total, what = headline, error = cause, "step failed");
        ApplyError::Step { number: index + 1, total, headline, cause }
    })?;
    Ok(owed)
}

/// As many starts and restarts are asked for at once: systemd knows best which of them wait for one another.
const AT_ONCE: usize = 16;

/// How many of these steps are done together: several starts of units, or the first one alone.
fn together(steps: &[Step]) -> usize {
    let starts = |step: &&Step| matches!(&step.action, Action::Unit { change, .. } if change.starts());
    steps.iter().take_while(starts).take(AT_ONCE).count().max(1)
}

/// Changes packages, and notes what they asked of systemd; the inner error is the package manager's.
async fn change_packages(
    job: &Job<'_>,
    changes: &[PackageChange],
    withheld: &Withhold,
    hands: Hands<'_>,
    part: usize,
    transaction: &mut Transaction,
    owed: &mut Pending,
) -> Result<Result<(), String>, StoreError> {
    transaction.touches(part, job.staged.touches.clone())?;
    let mut wanted = perform::transaction(changes);
    wanted.take(job.staged);
    wanted.withhold = withheld.clone();
    if hands.root.is_host()
        && rescue::concerns(changes)
        && let Err(error) = rescue::arm(hands.root).await
    {
        return Ok(Err(error));
    }
    match hands.packages.transact(&wanted, job.tell).await {
        Ok(asked) => {
            owed.owe(&asked, job.plan);
            transaction.owes(part, asked)?;
            Ok(withhold::forget(hands.root).map_err(|error| error.to_string()))
        }
        Err(error) => Ok(Err(error.to_string())),
    }
}

/// As `systemctl enable` does it: systemd remembers what changed, and is quick to answer for it from then on.
async fn remember_enablement(plan: &Plan, hands: Hands<'_>) {
    let concerns = |step: &Step| match &step.action {
        Action::ChangePackages { .. } => true,
        Action::Unit { change, .. } => {
            matches!(change, UnitChange::Enable | UnitChange::Disable | UnitChange::Mask | UnitChange::Unmask)
        }
        _ => false,
    };
    if let Some(systemd) = hands.systemd
        && plan.steps.iter().any(concerns)
        && !systemd.unit_files_are_as_loaded().await
        && let Err(error) = systemd.daemon_reload().await
    {
        tracing::debug!(%error, "systemd did not read its units again");
    }
}

/// Units that packages leave alone: those whose running is the state's business, and those that restart anyway.
pub(crate) fn withheld(plan: &Plan, target: &Target, observed: &Observed) -> Withhold {
    let managed = target.units.iter().filter(|unit| unit.running.is_some() && !unit.left).map(|unit| &unit.name);
    let restarted = plan.steps.iter().filter_map(|step| match &step.action {
        Action::Unit { name, change: UnitChange::Restart | UnitChange::Renew } => Some(name),
        _ => None,
    });
    let mut withhold = Withhold::default();
    for name in managed.chain(restarted) {
        let up = observed.units.get(name).is_some_and(UnitSeen::is_up);
        if up { &mut withhold.running } else { &mut withhold.stopped }.insert(name.clone());
    }
    withhold
}

fn changes_packages(plan: &Plan) -> bool {
    plan.steps.iter().any(|step| matches!(step.action, Action::ChangePackages { .. }))
}

/// A package that was just installed may have put its own file where ours goes: that one comes back when ours leaves
/// the state.
fn note_package_file(
    path: &str,
    part: usize,
    hands: Hands<'_>,
    blobs: &Blobs,
    transaction: &mut Transaction,
) -> Result<(), StoreError> {
    if transaction.parts()[part].before.files.get(path) != Some(&FileBefore::Absent) {
        return Ok(());
    }
    match record::file_before(&hands.root.join(path), blobs)? {
        FileBefore::Absent => Ok(()),
        found @ FileBefore::File { .. } => transaction.found(part, path, found),
    }
}
