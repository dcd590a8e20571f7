//! What undoes a step, in words. The journal holds what it takes; this is for people and programs that read a plan.

use super::{Action, PackageChange, UnitChange};
use crate::host::files::Seen;
use crate::host::systemd::UnitSeen;
use crate::observe::Observed;

/// What undoes a step on a host as it is now.
pub(super) fn in_words(action: &Action, observed: &Observed) -> String {
    match action {
        Action::WriteFile { path } => match observed.files.get(path) {
            None | Some(Seen::Absent) => "remove it".into(),
            Some(_) => "put back its content, mode and owner".into(),
        },
        Action::RemoveFile { .. } => "put it back".into(),
        Action::ChangePackages { changes } => changes.iter().map(package).collect::<Vec<_>>().join(", "),
        Action::KeepPackage { .. } => "mark it as automatically installed".into(),
        Action::HoldPackage { .. } => "unhold it".into(),
        Action::UnholdPackage { .. } => "hold it".into(),
        Action::LoadModule { .. } => "nothing: it stays loaded until the next boot".into(),
        Action::SetParameter { key, .. } => match observed.sysctl.get(key) {
            Some(value) => format!("set {key} = {value}"),
            None => "nothing: there was no such parameter".into(),
        },
        Action::SwapOff => "nothing: swap stays off until the next boot".into(),
        Action::DaemonReload => "reload systemd's units".into(),
        Action::Unit { name, change } => {
            let up = observed.units.get(name).is_some_and(UnitSeen::is_up);
            match change {
                UnitChange::Mask => "unmask it",
                UnitChange::Unmask => "mask it",
                UnitChange::Enable => "disable it",
                UnitChange::Disable => "enable it",
                UnitChange::Stop => "start it",
                UnitChange::Reload => "reload it with what was there before",
                _ if up => "restart it with what was there before",
                _ => "stop it",
            }
            .into()
        }
    }
}

fn package(change: &PackageChange) -> String {
    match &change.from {
        Some(version) => format!("{} {version}", change.name),
        None => format!("remove {}", change.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::PackageGoal;

    #[test]
    fn what_is_there_now_decides() {
        let mut observed = Observed::default();
        let write = Action::WriteFile { path: "/a".into() };
        assert_eq!(in_words(&write, &observed), "remove it");
        observed.files.insert("/a".into(), Seen::Other("a directory"));
        assert_eq!(in_words(&write, &observed), "put back its content, mode and owner");
        let change = |name: &str, from: Option<&str>| PackageChange {
            name: name.into(),
            from: from.map(Into::into),
            to: PackageGoal::Any,
        };
        let changes = vec![change("a", Some("1.0")), change("b", None)];
        assert_eq!(in_words(&Action::ChangePackages { changes }, &observed), "a 1.0, remove b");
        let restart = Action::Unit { name: "a.service".into(), change: UnitChange::Restart };
        assert_eq!(in_words(&restart, &observed), "stop it");
    }
}
