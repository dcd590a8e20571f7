//! What is done while the next state may not come yet.

use super::records::conclude;
use super::{Planned, ROUNDS, ReconcileError, Reconciler};
use crate::apply::{Job, Pending, apply};
use crate::desired::Target;
use crate::progress::Tell;
use crate::source::Desired;
use crate::store::{End, Kind, Owned, Store, Transaction};

/// What a repair that was cut off left to do.
pub(super) struct Left {
    pub(super) transaction: Option<Transaction>,
    pub(super) pending: Pending,
}

impl Reconciler {
    /// Keeps the host at the state that it has, while the next one may not come yet: that may be for days. What it is kept
    /// at, and how many steps it took.
    pub(super) async fn repair_meanwhile(
        &self,
        store: &Store,
        owned: &mut Owned,
        next: &Desired,
        left: Left,
        tell: Tell<'_>,
    ) -> Result<(Option<Target>, usize), ReconcileError> {
        let Some(good) = store.good()?.first().map(|good| store.good_state(good)).transpose()? else {
            return Ok((None, 0));
        };
        let desired = Desired {
            state: good.state,
            origin: "the last good state".into(),
            why: "the next one may not be applied yet".into(),
            revision: good.revision,
            asked: next.asked.clone(),
            permit: None,
            reverted: None,
        };
        let Left { mut transaction, mut pending } = left;
        let mut done = 0;
        for _ in 0..ROUNDS {
            let planned = self.plan_for(desired.clone(), store, owned, &pending).await?;
            if planned.plan.is_empty() {
                if transaction.is_some() {
                    conclude(store, owned, transaction, &planned)?;
                }
                return Ok((Some(planned.target), done));
            }
            let (plan, staged) = self.prepare(store, &planned, tell).await?;
            let current = match &mut transaction {
                Some(transaction) => transaction,
                None => transaction.insert(store.begin(Kind::Repair, &desired.revision, &desired.origin)?),
            };
            let Planned { target, observed, .. } = &planned;
            let job = Job { plan: &plan, target, observed, staged: &staged, blobs: &store.blobs(), tell };
            pending = match apply(&job, self.hands(), current).await {
                Ok(left) => left,
                Err(error) => return Err(self.take_back(store, current, error, tell).await?),
            };
            self.repairs().note(plan.resources());
            done += plan.steps.len();
        }
        // Another program works against it; the full check comes back to it.
        if let Some(mut transaction) = transaction {
            transaction.ended(End::Done)?;
        }
        Ok((None, done))
    }
}
