//! Keeps packages from starting services that nodelet is about to configure.
//!
//! A package starts its service when it is installed, with the configuration that it ships, and restarts it when it
//! is upgraded. nodelet wants one start, once its own files are in place. Debian's packages ask
//! `/usr/sbin/policy-rc.d` before they act; for the time of a transaction that is a script of ours, which denies what
//! concerns the units named and writes down what was asked for. RPM packages ask nobody; a unit that doesn't run
//! gets a condition that isn't met.

use crate::host::files;
use crate::plan::UnitChange;
use crate::root::Root;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

/// Units that are to be left alone. In `/run`: after a power cut it doesn't apply.
const UNITS: &str = "/run/nodelet/withheld-units";
/// What packages asked for and did not get: `UNIT ACTION` lines. On disk: it is owed, also after a power cut.
const ASKED: &str = "/var/lib/nodelet/withheld";
const POLICY: &str = "/usr/sbin/policy-rc.d";
const MARK: &str = "# Written by nodelet for the time of one package transaction.";
/// What stands before systemctl for packages' scripts leaves this when systemd must read its units again.
const RELOAD: &str = "/run/nodelet/daemon-reload";
const CONDITION: &str = "/run/systemd/system";
const CONDITION_FILE: &str = "90-nodelet-withheld.conf";

/// The script. Denied is 101, allowed is 0, as Debian's policy has it.
fn script() -> String {
    format!(
        r#"#!/bin/sh
{MARK}
# It denies the start of the units in {UNITS}, which nodelet starts itself
# once their configuration is in place. It may be removed when nodelet is not at work.
unit=$1
case $unit in *.*) ;; *) unit=$unit.service ;; esac
case $2 in *start* | *reload*) ;; *) exit 0 ;; esac
grep -qxF -- "$unit" {UNITS} 2>/dev/null || exit 0
echo "$unit $2" >>{ASKED}
exit 101
"#
    )
}

/// Denies starts to these units until [`end`]. An administrator's own policy goes first: then nothing is done.
pub(super) fn begin_policy(root: &Root, units: &BTreeSet<String>) -> io::Result<()> {
    let policy = root.join(POLICY);
    if units.is_empty() || (policy.exists() && !is_ours(root)) {
        return Ok(());
    }
    let lines = units.iter().fold(String::new(), |lines, unit| lines + unit + "\n");
    files::place_as_self(&root.join(UNITS), lines.as_bytes(), 0o644)?;
    files::place_as_self(&policy, script().as_bytes(), 0o755)
}

/// Gives these units, which don't run, a condition that isn't met.
pub(super) fn begin_condition(root: &Root, units: &BTreeSet<String>) -> io::Result<()> {
    let text = format!("[Unit]\nConditionPathExists=!{UNITS}\n");
    let lines = units.iter().fold(String::new(), |lines, unit| lines + unit + "\n");
    for unit in units {
        files::place_as_self(&condition(root, unit), text.as_bytes(), 0o644)?;
    }
    if units.is_empty() { Ok(()) } else { files::place_as_self(&root.join(UNITS), lines.as_bytes(), 0o644) }
}

/// Ends it; what packages asked for and did not get. Also after a crash.
pub fn end(root: &Root) -> io::Result<BTreeMap<String, UnitChange>> {
    let units = std::fs::read_to_string(root.join(UNITS)).unwrap_or_default();
    for unit in units.lines() {
        let path = condition(root, unit);
        if path.exists() {
            files::remove(&path)?;
        }
    }
    if is_ours(root) {
        files::remove(&root.join(POLICY))?;
    }
    files::remove(&root.join(UNITS))?;
    Ok(asked(root))
}

/// What was asked for, until [`forget`].
fn asked(root: &Root) -> BTreeMap<String, UnitChange> {
    let mut owed = BTreeMap::new();
    for line in std::fs::read_to_string(root.join(ASKED)).unwrap_or_default().lines() {
        let Some((unit, action)) = line.split_once(' ') else { continue };
        let change = if action.contains("restart") || owed.get(unit) == Some(&UnitChange::Restart) {
            UnitChange::Restart
        } else if action.contains("reload") && !owed.contains_key(unit) {
            UnitChange::Reload
        } else {
            UnitChange::Start
        };
        owed.insert(unit.to_owned(), change);
    }
    owed
}

/// What was asked for is written down elsewhere, or was given.
pub fn forget(root: &Root) -> io::Result<()> {
    files::remove(&root.join(ASKED))
}

/// Whether systemd must read its units again because of packages; said once.
pub fn take_reload(root: &Root) -> io::Result<bool> {
    let path = root.join(RELOAD);
    let asked = path.exists();
    if asked {
        files::remove(&path)?;
    }
    Ok(asked)
}

/// Whether a transaction was cut off while units were withheld.
pub fn is_under_way(root: &Root) -> bool {
    is_ours(root) || [UNITS, ASKED, RELOAD].iter().any(|path| root.join(path).exists())
}

fn is_ours(root: &Root) -> bool {
    std::fs::read_to_string(root.join(POLICY)).is_ok_and(|text| text.contains(MARK))
}

fn condition(root: &Root, unit: &str) -> PathBuf {
    root.join(format!("{CONDITION}/{unit}.d/{CONDITION_FILE}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_is_asked_for_is_owed_once() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        std::fs::create_dir_all(root.join("/var/lib/nodelet")).unwrap();
        assert!(!is_under_way(&root));
        begin_policy(&root, &BTreeSet::from(["a.service".into()])).unwrap();
        assert!(is_under_way(&root));
        std::fs::write(root.join(ASKED), "a.service start\nb.service restart\nb.service start\nc.service reload\n")
            .unwrap();
        let owed = end(&root).unwrap();
        let wanted = [("a", UnitChange::Start), ("b", UnitChange::Restart), ("c", UnitChange::Reload)];
        assert_eq!(owed, wanted.map(|(name, change)| (format!("{name}.service"), change)).into());
        assert!(!root.join(POLICY).exists() && is_under_way(&root), "what is owed is not forgotten");
        forget(&root).unwrap();
        assert!(!is_under_way(&root));
    }

    #[test]
    fn an_administrators_policy_stays() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        files::place_as_self(&root.join(POLICY), b"#!/bin/sh\nexit 101\n", 0o755).unwrap();
        begin_policy(&root, &BTreeSet::from(["a.service".into()])).unwrap();
        end(&root).unwrap();
        assert_eq!(std::fs::read_to_string(root.join(POLICY)).unwrap(), "#!/bin/sh\nexit 101\n");
    }
}
