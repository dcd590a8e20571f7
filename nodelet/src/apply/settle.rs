//! Whether the units that a plan started stay up: a service that exits at once has a start job that succeeds.

use crate::host::command::Program;
use crate::host::systemd::{Systemd, UnitSeen};
use crate::plan::{Action, Plan};
use std::time::Duration;

/// How long a unit has to show that it stays up. A service that can't read its configuration is gone within a few
/// tens of milliseconds; longer waits are for health checks.
const SETTLE: Duration = Duration::from_millis(250);

/// Looks at what was started or restarted, after a moment. The first that is not up: its step and why.
pub(super) async fn check(plan: &Plan, systemd: Option<&Systemd>) -> Result<(), (usize, String)> {
    let Some(systemd) = systemd else { return Ok(()) };
    let started: Vec<(usize, String)> = plan
        .steps
        .iter()
        .enumerate()
        .filter_map(|(index, step)| match &step.action {
            Action::Unit { name, change } if change.starts() => Some((index, name.clone())),
            _ => None,
        })
        .collect();
    if started.is_empty() {
        return Ok(());
    }
    tokio::time::sleep(SETTLE).await;
    let names: Vec<String> = started.iter().map(|(_, name)| name.clone()).collect();
    let seen = systemd.units(&names).await.map_err(|error| (started[0].0, error.to_string()))?;
    for (index, name) in started {
        let unit = seen.get(&name).cloned().unwrap_or_default();
        let restarts = systemd.automatic_restarts(&name).await;
        if let Some(trouble) = trouble(&unit, restarts) {
            return Err((index, format!("{trouble}; its last words: {}", last_words(&name).await)));
        }
    }
    Ok(())
}

fn trouble(unit: &UnitSeen, restarts: u32) -> Option<String> {
    if restarts > 0 {
        Some(format!("it keeps ending and was started again {restarts} times within {} ms", SETTLE.as_millis()))
    } else if unit.is_up() {
        None
    } else {
        Some(format!("it did not stay up, and is {}", unit.active))
    }
}

async fn last_words(unit: &str) -> String {
    let journal =
        Program::new("journalctl").args(["--no-pager", "--output=cat", "--lines=5", "--unit", unit]).run().await;
    match journal {
        Ok(text) if !text.trim().is_empty() => text.trim().replace('\n', "; "),
        _ => "none in the journal".to_owned(),
    }
}
