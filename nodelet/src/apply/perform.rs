//! Does one step.

use crate::desired::Target;
use crate::host::files;
use crate::host::kernel;
use crate::host::packages::{PackageManager, Transaction};
use crate::host::systemd::{Job, Systemd};
use crate::plan::{Action, PackageChange, PackageGoal, UnitChange};
use crate::root::Root;
use std::time::SystemTime;

/// What the steps act on.
#[derive(Clone, Copy)]
pub struct Hands<'a> {
    /// Where paths are taken from.
    pub root: &'a Root,
    /// The package manager.
    pub packages: &'a dyn PackageManager,
    /// systemd, where it runs.
    pub systemd: Option<&'a Systemd>,
}

/// Does it; the error is in words. `since` is when the plan's first step began.
pub(super) async fn perform(
    action: &Action,
    target: &Target,
    hands: Hands<'_>,
    since: SystemTime,
) -> Result<(), String> {
    let Hands { root, packages, systemd } = hands;
    let text = |error: &dyn std::fmt::Display| error.to_string();
    match action {
        Action::WriteFile { path } => {
            let file = target.files.get(path).ok_or("the plan and the state don't belong together")?;
            let (uid, gid) = (files::user_number(&file.owner)?, files::group_number(&file.group)?);
            files::place(&root.join(path), file.content.bytes(), file.mode, uid, gid).map_err(|error| text(&error))
        }
        Action::RemoveFile { path } => files::remove(&root.join(path)).map_err(|error| text(&error)),
        Action::ChangePackages { .. } => Err("packages change by a transaction of their own".to_owned()),
        Action::KeepPackage { name } => packages.keep(name, true).await.map_err(|error| text(&error)),
        Action::HoldPackage { name } => packages.hold(name, true).await.map_err(|error| text(&error)),
        Action::UnholdPackage { name } => packages.hold(name, false).await.map_err(|error| text(&error)),
        Action::LoadModule { name } => kernel::load(name).await.map_err(|error| text(&error)),
        Action::SetParameter { key, value } => kernel::set_parameter(root, key, value)
            .map_err(|error| format!("{error}: does the kernel have it, and is its module loaded?")),
        Action::SwapOff => kernel::swap_off().await.map_err(|error| text(&error)),
        Action::DaemonReload => connected(systemd)?.daemon_reload().await.map_err(|error| text(&error)),
        Action::Unit { name, change } => {
            let systemd = connected(systemd)?;
            match change {
                UnitChange::Unmask => systemd.unmask(name).await,
                UnitChange::Mask => systemd.mask(name).await,
                UnitChange::Enable => systemd.enable(name).await,
                UnitChange::Disable => systemd.disable(name).await,
                UnitChange::Stop => systemd.job(Job::Stop, name).await,
                UnitChange::Start => systemd.job(Job::Start, name).await,
                // The package's own scripts were quicker.
                UnitChange::Renew if systemd.active_since(name).await.is_some_and(|at| at > since) => Ok(()),
                UnitChange::Restart | UnitChange::Renew => systemd.job(Job::Restart, name).await,
                UnitChange::Reload => systemd.job(Job::Reload, name).await,
            }
            .map_err(|error| text(&error))
        }
    }
}

fn connected(systemd: Option<&Systemd>) -> Result<&Systemd, String> {
    systemd.ok_or_else(|| "systemd can't be reached below another root: apply on the host itself".to_owned())
}

/// A plan's changes as a package manager takes them.
pub(crate) fn transaction(changes: &[PackageChange]) -> Transaction {
    let mut transaction = Transaction::default();
    for change in changes {
        let name = change.name.clone();
        match &change.to {
            PackageGoal::Any => transaction.install.push((name, None)),
            PackageGoal::Version(version) => transaction.install.push((name, Some(version.clone()))),
            PackageGoal::Downgrade(version) => transaction.downgrade.push((name, Some(version.clone()))),
            PackageGoal::Removed => transaction.remove.push(name),
        }
    }
    transaction
}
