//! nodelet upgrades itself like any package: the transaction outlives the daemon's restart, and the new daemon finds it
//! in the journal. A new daemon that can't come up could not take that back, so somebody else watches: the program as
//! it was before, in a transient unit of its own.

use crate::host::command::Program;
use crate::host::files;
use crate::host::systemd::Systemd;
use crate::plan::{PackageChange, PackageGoal};
use crate::reconcile::{ReconcileError, Reconciler};
use crate::root::Root;
use crate::store::Store;
use std::time::Duration;

/// nodelet's own package and unit.
const PACKAGE: &str = "nodelet";
const UNIT: &str = "nodelet.service";
/// The unit of the one who watches.
const WATCHER: &str = "nodelet-rescue";
/// The program as it was. Not in `/run`, where nothing may be executed on many hosts.
const COPY: &str = "/var/lib/nodelet/rescue";
/// How long a new daemon has to come up; a test has no time for a minute.
const LIMIT_VARIABLE: &str = "NODELET_RESCUE_SECONDS";
const LIMIT_SECONDS: u64 = 60;
/// Nobody watches for longer.
const WATCH_LIMIT: Duration = Duration::from_secs(3600);

/// Whether these changes replace the program that runs.
pub(crate) fn concerns(changes: &[PackageChange]) -> bool {
    changes.iter().any(|change| change.name == PACKAGE && change.from.is_some() && change.to != PackageGoal::Removed)
}

/// Lets somebody watch over what comes. Without that, nodelet does not replace itself.
pub(crate) async fn arm(root: &Root) -> Result<(), String> {
    let copy = root.join(COPY);
    let program = std::fs::read("/proc/self/exe").map_err(|error| format!("reading the running program: {error}"))?;
    files::place_as_self(&copy, &program, 0o700).map_err(|error| format!("copying it to {COPY}: {error}"))?;
    let limit = std::env::var(LIMIT_VARIABLE).unwrap_or_default();
    // One that is left from before would be in the way.
    let _ = Program::new("systemctl").args(["stop", &format!("{WATCHER}.service")]).run().await;
    Program::new("systemd-run")
        .args(["--quiet", "--collect", "--no-block", &format!("--unit={WATCHER}")])
        .args(["--description=Put nodelet back if its new version can't come up", "--property=KillMode=process"])
        .args([format!("--setenv={LIMIT_VARIABLE}={limit}"), COPY.to_owned(), "rescue".to_owned()])
        .run()
        .await
        .map(drop)
        .map_err(|error| format!("nodelet replaces itself only while something watches over it: {error}"))
}

/// What became of the new daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It came up, and finished the change.
    Up,
    /// It could not come up, and was put back.
    PutBack,
    /// Nothing of it could be seen for too long.
    Unclear,
}

/// Watches over the change that is under way; puts it back when nodelet stays down.
pub async fn watch(reconciler: &Reconciler, systemd: &Systemd) -> Result<Outcome, ReconcileError> {
    let limit = std::env::var(LIMIT_VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(LIMIT_SECONDS);
    let second = Duration::from_secs(1);
    let store = Store::open(reconciler.root())?;
    let (mut down, mut watched) = (0, Duration::ZERO);
    while watched < WATCH_LIMIT {
        let units = systemd.units(&[UNIT.to_owned()]).await?;
        let is_up = units.get(UNIT).is_some_and(|unit| unit.active == "active");
        if is_up && store.unfinished()?.is_none() {
            return Ok(Outcome::Up);
        }
        down = if is_up { 0 } else { down + 1 };
        if down > limit {
            tracing::error!(seconds = limit, "the new nodelet does not come up; putting the old one back");
            put_back(reconciler, limit).await?;
            return Ok(Outcome::PutBack);
        }
        tokio::time::sleep(second).await;
        watched += second;
    }
    Ok(Outcome::Unclear)
}

async fn put_back(reconciler: &Reconciler, seconds: u64) -> Result<(), ReconcileError> {
    let systemctl = |verb: &'static str| Program::new("systemctl").args([verb, UNIT]);
    if let Err(error) = systemctl("stop").run().await {
        tracing::warn!(%error, "the new nodelet could not be stopped");
    }
    let reason = format!("the new nodelet did not come up within {seconds} s");
    let undone = reconciler.give_up(&reason, &|_| ()).await;
    if let Err(error) = &undone {
        tracing::error!(%error, "not everything could be put back; the old program takes its place all the same");
        let copy = std::fs::read(reconciler.root().join(COPY));
        let placed =
            copy.and_then(|old| files::place_as_self(&reconciler.root().join("/usr/bin/nodelet"), &old, 0o755));
        if let Err(error) = placed {
            tracing::error!(%error, "the old program could not be put in its place");
        }
    }
    if let Err(error) = systemctl("start").run().await {
        tracing::error!(%error, "the old nodelet could not be started: see `systemctl status nodelet`");
    }
    undone
}
