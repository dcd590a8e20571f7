//! What a transaction that was cut off still owes: the restart of a unit whose file it had written already can't
//! be seen in a difference any more.

use crate::host::systemd::Systemd;
use crate::plan::{Action, UnitChange};
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

/// What tells afterwards whether a step took effect: a unit that was restarted has another invocation.
pub(super) async fn mark(action: &Action, systemd: Option<&Systemd>) -> Option<String> {
    match (action, systemd) {
        (Action::Unit { name, change: UnitChange::Restart }, Some(systemd)) => systemd.invocation(name).await,
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
        for (index, step) in part.plan.steps.iter().enumerate() {
            let (begun, done) = transaction.step_state(number, index);
            match &step.action {
                Action::DaemonReload => pending.daemon_reload = !done,
                Action::Unit { name, change: change @ (UnitChange::Restart | UnitChange::Reload) } => {
                    // Cut off between the restart and the note that it was done: once is enough.
                    let restarted = begun
                        && *change == UnitChange::Restart
                        && mark(&step.action, systemd).await.as_deref() != transaction.mark(number, index);
                    if done || restarted {
                        pending.units.remove(name);
                    } else {
                        pending.units.insert(name.clone(), *change);
                    }
                }
                _ => {}
            }
        }
    }
    pending
}
