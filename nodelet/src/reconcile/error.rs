//! What ends a round.

use crate::apply::ApplyError;
use crate::host::packages::PackageError;
use crate::host::systemd::SystemdError;
use crate::observe::ObserveError;
use crate::plan::PlanError;
use crate::source::InvalidState;
use crate::store::StoreError;
use nodelet_api::Problems;

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
    /// A step failed because the machine goes down, or systemd is away: nothing was undone, the next round goes on.
    #[error("{0}; systemd is away or the machine goes down, so it is gone on with when it is back")]
    Interrupted(ApplyError),
    /// Below another root only looking is possible.
    #[error(
        "package managers and systemd act on the running host only: `--root` is for plan, validate, config and history"
    )]
    OtherRoot,
    /// Another nodelet is at work for too long.
    #[error("another nodelet is still changing this host: see `nodelet status`, and try again when it is done")]
    Busy,
    /// The change is done, and did the node harm: it was undone, and the last good state stays.
    #[error("the health checks of revision {revision} did not pass in {seconds} s: {failing}; everything was undone{}", if *kept { ", and the last good state stays until the state changes" } else { "" })]
    Unhealthy {
        /// What was applied.
        revision: String,
        /// The time that it had.
        seconds: u32,
        /// What still failed.
        failing: String,
        /// There is a good state that the host goes back to.
        kept: bool,
    },
    /// Something else changes it back as fast as nodelet repairs it.
    #[error(
        "{0}: needed again right after it was done: another program works against it; find out which (`nodelet history`)"
    )]
    Contested(String),
    /// What is asked for would stop containers.
    #[error("{0}")]
    Guarded(String),
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
            Self::Interrupted(_) => "Interrupted",
            Self::Store(_) => "RecordsFailed",
            Self::OtherRoot => "OtherRoot",
            Self::Busy => "Busy",
            Self::Unhealthy { .. } => "HealthCheckFailed",
            Self::Guarded(_) => "ContainersInDanger",
            Self::Contested(_) => "Contested",
            Self::NothingGood => "NothingGood",
        }
    }
}
