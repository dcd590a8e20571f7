//! What a transaction that was cut off still owes: the restart of a unit whose file it had written already can't
//! be seen in a difference any more.

use crate::host::packages::Owed;
use crate::host::systemd::Systemd;
use crate::plan::{Action, Plan, Step, UnitChange};
use crate::store::Transaction;
use std::collections::BTreeMap;

/// Actions that no difference shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// systemd must read its units again.
    pub daemon_reload: bool,
    /// Units that must restart or reload.
    pub units: BTreeMap<String, UnitChange>,
}

impl Pending {
    /// Notes what packages asked for, unless a step of the same plan does it.
    pub(super) fn owe(&mut self, asked: &Owed, plan: &Plan) {
        let done = |name: &str| {
            let does = |step: &Step| matches!(&step.action, Action::Unit { name: unit, change } if unit == name && change.starts());
            plan.steps.iter().any(does)
        };
        self.note(asked.iter().filter(|(name, _)| !done(name)).map(|(name, change)| (name.clone(), *change)));
    }

    /// Notes restarts and reloads; a start shows in a difference.
    pub fn note(&mut self, owed: impl IntoIterator<Item = (String, UnitChange)>) {
        let kept = owed.into_iter().filter(|(_, change)| matches!(change, UnitChange::Restart | UnitChange::Reload));
        self.units.extend(kept);
    }
}

/// What tells afterwards whether a step took effect: a unit that was restarted has another invocation.
pub(super) async fn mark(action: &Action, systemd: Option<&Systemd>) -> Option<String> {
    match (action, systemd) {
        (Action::Unit { name, change: UnitChange::Restart | UnitChange::Renew }, Some(systemd)) => {
            systemd.invocation(name).await
        }
        _ => None,
    }
}

/// What is pending: restarts and reloads of the last part that were not done, once anything of that part was.
pub async fn pending(transaction: &Transaction, systemd: Option<&Systemd>) -> Pending {
    let mut pending = Pending::default();
    let mut started = false;
    // Over all parts: a plan that was made to finish an earlier one may have been cut off itself, before its first step.
    for (number, part) in transaction.parts().iter().enumerate() {
        started |= (0..part.plan.steps.len()).any(|step| transaction.step_state(number, step).0);
        if !started {
            continue;
        }
        pending.note(transaction.owed(number));
        for (index, step) in part.plan.steps.iter().enumerate() {
            let (begun, done) = transaction.step_state(number, index);
            match &step.action {
                Action::DaemonReload => pending.daemon_reload = !done,
                Action::Unit { name, change: UnitChange::Start } if done => drop(pending.units.remove(name)),
                Action::Unit {
                    name,
                    change: change @ (UnitChange::Restart | UnitChange::Renew | UnitChange::Reload),
                } => {
                    // Cut off between the restart and the note that it was done: once is enough.
                    let restarted = begun
                        && *change != UnitChange::Reload
                        && mark(&step.action, systemd).await.as_deref() != transaction.mark(number, index);
                    if done || restarted {
                        pending.units.remove(name);
                    } else {
                        let change = if *change == UnitChange::Renew { UnitChange::Restart } else { *change };
                        pending.units.insert(name.clone(), change);
                    }
                }
                _ => {}
            }
        }
    }
    pending
}
