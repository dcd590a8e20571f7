//! Undoes a transaction: what its steps touched becomes what it was. Goes on when something fails, and reports
//! everything that did.

use super::perform::Hands;
use crate::host::files::{self, Seen};
use crate::host::kernel;
use crate::host::packages::{Owed, PackageError, Touched};
use crate::host::systemd::{Job, Systemd, UnitSeen};
use crate::host::withhold;
use crate::plan::{Action, UnitChange};
use crate::progress::{Progress, Tell};
use crate::store::{Blobs, FileBefore, Part, Transaction};
use jiff::Timestamp;
use std::collections::{BTreeMap, BTreeSet};
use std::time::SystemTime;

/// Undoes all steps that were begun, the last part first. What failed, in words; nothing when all is as it was.
pub async fn undo(transaction: &Transaction, hands: Hands<'_>, blobs: &Blobs, tell: Tell<'_>) -> Vec<String> {
    tell(Progress::Note("undo what was done"));
    let mut errors = Vec::new();
    for (number, part) in transaction.parts().iter().enumerate().rev() {
        let begun: Vec<&Action> = part
            .plan
            .steps
            .iter()
            .enumerate()
            .filter(|(index, _)| transaction.step_state(number, *index).0)
            .map(|(_, step)| &step.action)
            .collect();
        let undo = Undo { part, begun, touched: transaction.touched(number), started: transaction.record.started };
        undo_part(&undo, hands, blobs, tell, &mut errors).await;
    }
    errors
}

/// A part that is undone.
struct Undo<'a> {
    part: &'a Part,
    /// Its steps that were begun.
    begun: Vec<&'a Action>,
    touched: Touched<'a>,
    /// When its transaction began: what runs since before that was never restarted.
    started: Timestamp,
}

async fn undo_part(undo: &Undo<'_>, hands: Hands<'_>, blobs: &Blobs, tell: Tell<'_>, errors: &mut Vec<String>) {
    let Undo { part, begun, touched, .. } = undo;
    let mut asked = Owed::new();
    let mut note = |what: String, result: Result<(), String>| match result {
        Ok(()) => tracing::info!("undone: {what}"),
        Err(error) => errors.push(format!("{what}: {error}")),
    };
    if let (Some(versions), true) =
        (&part.before.packages, begun.iter().any(|action| matches!(action, Action::ChangePackages { .. })))
    {
        let restored = hands.packages.restore(versions, *touched, &part.before.withhold, tell).await;
        let restored = restored.and_then(|owed| {
            asked = owed;
            let at = |source| PackageError::Database { path: "/var/lib/nodelet".into(), source };
            withhold::forget(hands.root).map_err(at)
        });
        note("packages back to the versions before".into(), restored.map_err(|error| error.to_string()));
    }
    // While systemd still has the unit file: without it, enablement can't be seen nor taken back.
    for action in begun.iter().rev() {
        if let (Action::Unit { name, change: UnitChange::Enable }, Some(systemd)) = (action, hands.systemd)
            && !part.before.units.get(name).is_some_and(UnitSeen::is_enabled)
            && is_enabled(systemd, name).await
        {
            let result = systemd.disable(name).await.map_err(|error| error.to_string());
            note(format!("{name} disabled"), result);
        }
    }
    let mut unit_files = false;
    for action in begun.iter().rev() {
        match action {
            Action::WriteFile { path } | Action::RemoveFile { path } => {
                if let Some(before) = part.before.files.get(path) {
                    unit_files |= path.starts_with("/etc/systemd/system/");
                    note(format!("{path} as it was"), put_back(path, before, hands, blobs));
                }
            }
            Action::KeepPackage { name } => {
                let result = hands.packages.keep(name, false).await.map_err(|error| error.to_string());
                note(format!("{name} automatically installed"), result);
            }
            Action::HoldPackage { name } | Action::UnholdPackage { name } => {
                let held = part.before.holds.get(name).copied().unwrap_or_default();
                let result = hands.packages.hold(name, held).await.map_err(|error| error.to_string());
                note(format!("{name} {}", if held { "held" } else { "not held" }), result);
            }
            Action::SetParameter { key, .. } => {
                if let Some(value) = part.before.sysctl.get(key) {
                    let result = kernel::set_parameter(hands.root, key, value).map_err(|error| error.to_string());
                    note(format!("{key} = {value}"), result);
                }
            }
            _ => {}
        }
    }
    if unit_files {
        let result = match hands.systemd {
            Some(systemd) => systemd.daemon_reload().await.map_err(|error| error.to_string()),
            None => Ok(()),
        };
        note("systemd's units read again".into(), result);
    }
    undo_units(undo, &asked, hands, &mut note).await;
}

/// An enabling that failed leaves nothing to disable.
async fn is_enabled(systemd: &Systemd, name: &str) -> bool {
    let seen = systemd.units(&[name.to_owned()]).await.unwrap_or_default();
    seen.get(name).is_some_and(UnitSeen::is_enabled)
}

fn put_back(path: &str, before: &FileBefore, hands: Hands<'_>, blobs: &Blobs) -> Result<(), String> {
    let place = hands.root.join(path);
    // A step that failed may have changed nothing, and what kept it from writing would keep us too.
    if matches!(files::look(&place), Ok(seen) if is_as_before(&seen, before)) {
        return Ok(());
    }
    match before {
        FileBefore::Absent => files::remove(&place).map_err(|error| error.to_string()),
        FileBefore::File { content, mode, uid, gid } => {
            let content = blobs.get(content).map_err(|error| error.to_string())?;
            files::place(&place, &content, *mode, *uid, *gid).map_err(|error| error.to_string())
        }
    }
}

fn is_as_before(seen: &Seen, before: &FileBefore) -> bool {
    match (seen, before) {
        (Seen::Absent, FileBefore::Absent) => true,
        (Seen::File { digest, mode, uid, gid }, FileBefore::File { .. }) => {
            *before == FileBefore::File { content: digest.to_string(), mode: *mode, uid: *uid, gid: *gid }
        }
        _ => false,
    }
}

/// Enablement first; then what ran before runs, with its old files, and what did not run doesn't.
async fn undo_units(
    undo: &Undo<'_>,
    asked: &Owed,
    hands: Hands<'_>,
    note: &mut impl FnMut(String, Result<(), String>),
) {
    let Some(systemd) = hands.systemd else { return };
    let Undo { part, begun, started, .. } = undo;
    // No step concerned these, but their packages asked for a restart.
    let only_asked = asked.keys().filter(|name| part.before.withhold.running.contains(*name));
    let names: BTreeSet<&String> = part.before.units.keys().chain(only_asked).collect();
    let names: Vec<String> = names.into_iter().cloned().collect();
    let now: BTreeMap<String, UnitSeen> = systemd.units(&names).await.unwrap_or_default();
    let mut restarted: BTreeSet<&str> = begun
        .iter()
        .filter_map(|action| match action {
            Action::Unit { name, change } if change.starts() || *change == UnitChange::Reload => Some(name.as_str()),
            _ => None,
        })
        .collect();
    for name in asked.keys() {
        let since = systemd.active_since(name).await;
        if since.is_some_and(|since| since > SystemTime::from(*started)) {
            restarted.insert(name);
        }
    }
    for name in &names {
        let now = now.get(name).cloned().unwrap_or_default();
        let before = part.before.units.get(name).cloned();
        let before = before.unwrap_or_else(|| UnitSeen { active: "active".into(), ..now.clone() });
        let result = match (before.is_masked(), now.is_masked()) {
            (true, false) => Some(("masked", systemd.mask(name).await)),
            (false, true) => Some(("unmasked", systemd.unmask(name).await)),
            _ => None,
        };
        let result = result.or(match (before.is_enabled(), now.is_enabled()) {
            (true, false) => Some(("enabled", systemd.enable(name).await)),
            (false, true) => Some(("disabled", systemd.disable(name).await)),
            _ => None,
        });
        if let Some((word, result)) = result {
            note(format!("{name} {word}"), result.map_err(|error| error.to_string()));
        }
        if now.active == "failed" && before.active != "failed" {
            note(format!("{name} not failed"), systemd.reset_failed(name).await.map_err(|error| error.to_string()));
        }
        let job = match (before.is_up(), now.is_up()) {
            (true, true) if restarted.contains(name.as_str()) => Some(Job::Restart),
            (true, false) => Some(Job::Restart),
            (false, true) => Some(Job::Stop),
            _ => None,
        };
        if let Some(job) = job {
            let result = systemd.job(job, name).await.map_err(|error| error.to_string());
            note(format!("{name} {}", if job == Job::Stop { "stopped" } else { "running as before" }), result);
        }
    }
}
