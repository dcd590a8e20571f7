//! Does what a plan says, step by step, and writes each step down before and after.

mod pending;
mod perform;
mod record;
mod settle;
mod undo;

pub use pending::{Pending, pending};
pub use perform::Hands;
pub use record::{before, own};
pub use undo::undo;

use crate::desired::Target;
use crate::observe::Observed;
use crate::plan::{Action, Plan, headline};
use crate::store::{Blobs, StoreError, Transaction};

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
    /// What is done could not be written down, so it was not done.
    #[error("nothing is done that can't be written down: {0}")]
    Store(#[from] StoreError),
}

/// Does all the steps in order; the first that fails ends it. `progress` hears of each before it begins.
pub async fn apply(
    plan: &Plan,
    target: &Target,
    observed: &Observed,
    hands: Hands<'_>,
    blobs: &Blobs,
    transaction: &mut Transaction,
    mut progress: impl FnMut(usize, usize, &str),
) -> Result<(), ApplyError> {
    let part = transaction.add_part(plan, before(plan, observed, blobs)?)?;
    let total = plan.steps.len();
    for (index, step) in plan.steps.iter().enumerate() {
        let (number, headline) = (index + 1, headline(&step.action));
        progress(number, total, &headline);
        transaction.step_begins(part, index, pending::mark(&step.action, hands.systemd).await)?;
        crate::fault::point("begun", number);
        let result = match examine(&step.action, hands, part, transaction).await? {
            Ok(()) => perform::perform(&step.action, target, hands).await,
            refused => refused,
        };
        result.map_err(|cause| {
            tracing::error!(step = number, of = total, what = headline, error = cause, "step failed");
            ApplyError::Step { number, total, headline: headline.clone(), cause }
        })?;
        crate::fault::point("performed", number);
        transaction.step_done(part, index)?;
        crate::fault::point("done", number);
        tracing::info!(step = number, of = total, reason = step.reason, "{headline}");
    }
    settle::check(plan, hands.systemd).await.map_err(|(index, cause)| {
        let headline = headline(&plan.steps[index].action);
        tracing::error!(step = index + 1, of = total, what = headline, error = cause, "step failed");
        ApplyError::Step { number: index + 1, total, headline, cause }
    })
}

/// Notes which packages a step is going to touch, so that an undo touches no others; the inner error is a refusal.
async fn examine(
    action: &Action,
    hands: Hands<'_>,
    part: usize,
    transaction: &mut Transaction,
) -> Result<Result<(), String>, StoreError> {
    let Action::ChangePackages { changes } = action else { return Ok(Ok(())) };
    match hands.packages.examine(&perform::transaction(changes)).await {
        Ok(touched) => transaction.touches(part, touched).map(Ok),
        Err(error) => Ok(Err(error.to_string())),
    }
}
