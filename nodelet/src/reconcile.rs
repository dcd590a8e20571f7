//! One round: read the state, look at the host, plan, apply, look again.

use crate::apply::{ApplyError, Hands, apply};
use crate::desired::{Target, resolve};
use crate::facts::Facts;
use crate::host::packages::{self, PackageError, PackageManager};
use crate::host::systemd::{Systemd, SystemdError};
use crate::observe::{ObserveError, Observed, observe};
use crate::plan::{Plan, PlanError, headline, plan};
use crate::root::Root;
use crate::settings::Settings;
use crate::source::{Desired, InvalidState, local_file};
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
    /// A step failed.
    #[error(transparent)]
    Apply(#[from] ApplyError),
    /// All the steps succeeded, and the host is still not as wanted.
    #[error("after applying, there is still something to do: {0}; does another program undo it?")]
    NotConverged(String),
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
            Self::Apply(_) => "StepFailed",
            Self::NotConverged(_) => "NotConverged",
        }
    }
}

/// What a round needs, connected once.
pub struct Reconciler {
    root: Root,
    settings: Settings,
    packages: Box<dyn PackageManager>,
    systemd: Option<Systemd>,
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
}

/// How often a plan may follow a plan: packages bring units, whose state is known only then.
const ROUNDS: usize = 3;

impl Reconciler {
    /// Connects to the package manager and to systemd. Below another root there is no systemd.
    pub async fn connect(root: Root, settings: Settings) -> Result<Self, ReconcileError> {
        let packages = packages::choose(&root, &settings.packages)?;
        let systemd = if root.is_host() { Some(Systemd::connect().await?) } else { None };
        Ok(Self { root, settings, packages, systemd })
    }

    /// Reads the state and plans. `None` when there is no state file.
    pub async fn plan(&self) -> Result<Option<Planned>, ReconcileError> {
        let path = self.settings.state.file.as_str();
        let Some(desired) = local_file(&self.root, path.as_ref())? else { return Ok(None) };
        let facts = Facts::gather(&self.root, &self.settings.node.name);
        let target =
            resolve(&desired.state, self.packages.kind(), &facts, &self.root).map_err(ReconcileError::Unresolved)?;
        let observed = observe(&target, &self.root, self.packages.as_ref(), self.systemd.as_ref()).await?;
        let plan = plan(&target, &observed, self.packages.kind())?;
        Ok(Some(Planned { desired, target, observed, plan }))
    }

    /// Converges. What was wanted, and how many steps it took; `None` when there is no state file.
    pub async fn converge(
        &self,
        mut progress: impl FnMut(usize, usize, &str),
    ) -> Result<Option<(Planned, usize)>, ReconcileError> {
        let mut done = 0;
        for _ in 0..ROUNDS {
            let Some(planned) = self.plan().await? else { return Ok(None) };
            if planned.plan.is_empty() {
                return Ok(Some((planned, done)));
            }
            let hands = Hands { root: &self.root, packages: self.packages.as_ref(), systemd: self.systemd.as_ref() };
            apply(&planned.plan, &planned.target, hands, &mut progress).await?;
            done += planned.plan.steps.len();
        }
        match self.plan().await? {
            None => Ok(None),
            Some(planned) => match planned.plan.steps.first() {
                None => Ok(Some((planned, done))),
                Some(step) => {
                    Err(ReconcileError::NotConverged(format!("{} because {}", headline(&step.action), step.reason)))
                }
            },
        }
    }
}
