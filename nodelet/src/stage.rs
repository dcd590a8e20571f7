//! What is made ready before anything changes: lists are read, versions resolved, packages downloaded, room checked.

use crate::apply::{transaction, withheld};
use crate::desired::{Purpose, Target};
use crate::host::packages::{PackageError, PackageManager, Request, Staged};
use crate::host::space;
use crate::observe::Observed;
use crate::plan::{Action, Plan};
use crate::progress::{Progress, Tell};
use crate::root::Root;
use crate::store::STATE_DIRECTORY;
use nodelet_api::Disruption;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// A plan that is ready: what is left of it is only what disturbs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ready {
    /// The revision that it leads to.
    pub revision: String,
    /// What it disturbs.
    pub disruption: Disruption,
    /// The plan that was made ready; another one needs to be made ready anew.
    pub plan: Plan,
    /// What the package manager has ready.
    pub staged: Staged,
}

/// Makes a plan ready.
pub async fn stage(
    plan: &Plan,
    target: &Target,
    observed: &Observed,
    root: &Root,
    packages: &dyn PackageManager,
    tell: Tell<'_>,
) -> Result<Staged, PackageError> {
    check_space(plan, target, root)?;
    let changes = plan.steps.iter().find_map(|step| match &step.action {
        Action::ChangePackages { changes } => Some(changes),
        _ => None,
    });
    if changes.is_none() && plan.refresh.is_empty() {
        return Ok(Staged::default());
    }
    tell(Progress::Note("resolve and download packages"));
    let wanted = changes.map(|changes| {
        let mut wanted = transaction(changes);
        wanted.withhold = withheld(plan, target, observed);
        wanted
    });
    let repository_file = |file: &&crate::desired::TargetFile| matches!(file.purpose, Purpose::Repository(_));
    let sources = target.files.iter().filter(|(_, file)| repository_file(file));
    let request = Request {
        sources: sources.map(|(path, file)| (path.as_str(), file.content.bytes())).collect(),
        gone: target.absent.keys().map(String::as_str).collect(),
        refresh: plan.refresh.clone(),
        transaction: wanted,
    };
    packages.stage(&request, tell).await
}

/// Whether files and nodelet's own records fit.
fn check_space(plan: &Plan, target: &Target, root: &Root) -> Result<(), PackageError> {
    let mut records = 0;
    for step in &plan.steps {
        if let Action::WriteFile { path } = &step.action
            && let Some(file) = target.files.get(path)
        {
            let size = u64::try_from(file.content.bytes().len()).unwrap_or(u64::MAX);
            let directory = Path::new(path).parent().unwrap_or(Path::new("/"));
            space::check(&root.join(directory), size, &format!("writing {path}"))?;
            records += size;
        }
    }
    Ok(space::check(&root.join(STATE_DIRECTORY), records, "nodelet's own records of the change")?)
}
