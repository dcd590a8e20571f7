#![allow(clippy::unwrap_used)]
use super::*;
use crate::desired::{TargetPackage, TargetUnit};
use crate::host::packages::Installed;
use crate::host::systemd::UnitSeen;
use nodelet_api::Drift;
use std::sync::Arc;

fn own() -> (u32, u32, String, String) {
    let (uid, gid) = (nix::unistd::Uid::current().as_raw(), nix::unistd::Gid::current().as_raw());
    (uid, gid, uid.to_string(), gid.to_string())
}

fn file(content: &str, restart: &[&str]) -> TargetFile {
    let (_, _, owner, group) = own();
    TargetFile {
        content: content.into(),
        mode: 0o644,
        owner,
        group,
        purpose: Purpose::Plain,
        followers: Followers { restart: restart.iter().map(ToString::to_string).collect(), ..Followers::default() },
        drift: Drift::Repair,
        on_change: None,
        secret: false,
    }
}

fn seen(content: &str, mode: u32) -> Seen {
    let (uid, gid, ..) = own();
    Seen::File { digest: crate::content::Digest::of(content.as_bytes()), mode, uid, gid }
}

fn package(name: &str, version: Option<&str>) -> TargetPackage {
    TargetPackage {
        name: name.into(),
        present: true,
        version: version.map(|version| version.try_into().unwrap()),
        hold: false,
        allow_downgrade: false,
        restart: BTreeSet::new(),
        drift: Drift::Repair,
        on_change: None,
    }
}

fn unit(name: &str) -> TargetUnit {
    TargetUnit {
        name: name.into(),
        enabled: Some(true),
        masked: false,
        running: Some(true),
        left: false,
        drift: Drift::Repair,
        on_change: None,
    }
}

fn unit_seen(active: &str, file: &str) -> UnitSeen {
    UnitSeen { load: "loaded".into(), active: active.into(), file: file.into() }
}

fn shown(target: &Target, observed: &Observed) -> Vec<String> {
    let plan = plan(target, observed, &Pending::default(), Manager::Apt).unwrap();
    plan.steps.iter().map(|step| format!("{} ({})", render::headline(&step.action), step.reason)).collect()
}

#[test]
fn from_nothing_everything_is_done_in_order() {
    let mut target = Target { swap_off: true, ..Target::default() };
    target.files.insert("/etc/a.conf".into(), file("a", &["a.service"]));
    let sources = TargetFile { purpose: Purpose::Repository("r".into()), ..file("r", &[]) };
    target.files.insert("/etc/apt/sources.list.d/r.sources".into(), sources);
    let dropin = TargetFile { purpose: Purpose::Unit, ..file("d", &["a.service"]) };
    target.files.insert("/etc/systemd/system/a.service.d/1.conf".into(), dropin);
    target.packages.push(TargetPackage { hold: true, ..package("a", Some("1.0")) });
    target.units.push(unit("a.service"));
    target.modules.insert("overlay".into());
    target.sysctl.insert("net.x".into(), "1".into());
    let observed = Observed { swap_in_use: true, ..Observed::default() };
    assert_eq!(
        shown(&target, &observed),
        [
            "write /etc/apt/sources.list.d/r.sources (it is not there)",
            "install a 1.0 (a is not installed, 1.0 is wanted)",
            "hold a (it is not held)",
            "write /etc/a.conf (it is not there)",
            "write /etc/systemd/system/a.service.d/1.conf (it is not there)",
            "load kernel module overlay (it is not loaded)",
            "set kernel parameter net.x = 1 (there is no such parameter yet)",
            "turn swap off (swap is in use)",
            "reload systemd's units (unit files change)",
            "enable a.service (there is no unit file yet)",
            "restart a.service (/etc/a.conf, /etc/systemd/system/a.service.d/1.conf change)",
        ]
    );
}

#[test]
fn what_is_as_wanted_needs_no_step() {
    let mut target = Target::default();
    target.files.insert("/etc/a.conf".into(), file("a", &["a.service"]));
    target.packages = vec![package("a", Some("1.*")), package("b", None)];
    target.units.push(unit("a.service"));
    let mut observed = Observed::default();
    observed.files.insert("/etc/a.conf".into(), seen("a", 0o644));
    Arc::make_mut(&mut observed.packages)
        .insert("a".into(), Installed { version: "1.9".into(), held: false, complete: true, automatic: false });
    Arc::make_mut(&mut observed.packages)
        .insert("b".into(), Installed { version: "7".into(), held: false, complete: true, automatic: false });
    observed.units.insert("a.service".into(), unit_seen("active", "enabled"));
    assert!(plan(&target, &observed, &Pending::default(), Manager::Apt).unwrap().is_empty());
}

#[test]
fn one_difference_is_one_step() {
    let mut target = Target::default();
    target.files.insert("/etc/a.conf".into(), file("a", &[]));
    let mut observed = Observed::default();
    for (there, reason) in [(seen("b", 0o644), "its content differs"), (seen("a", 0o600), "its mode is 0600, not 0644")]
    {
        observed.files.insert("/etc/a.conf".into(), there);
        assert_eq!(shown(&target, &observed), [format!("write /etc/a.conf ({reason})")]);
    }
    observed.files.insert("/etc/a.conf".into(), Seen::Other("a directory"));
    let error = plan(&target, &observed, &Pending::default(), Manager::Apt).unwrap_err().to_string();
    assert!(error.starts_with("/etc/a.conf is a directory"), "{error}");
}

#[test]
fn units_follow_their_wanted_state() {
    let mut target = Target { units: vec![unit("a.service")], ..Target::default() };
    let mut observed = Observed::default();
    let table = [
        (unit("a.service"), unit_seen("inactive", "disabled"), vec!["enable a.service", "start a.service"]),
        (unit("a.service"), unit_seen("failed", "enabled"), vec!["start a.service"]),
        (unit("a.service"), unit_seen("active", "static"), vec![]),
        (
            unit("a.service"),
            unit_seen("inactive", "masked"),
            vec!["unmask a.service", "enable a.service", "start a.service"],
        ),
        (
            TargetUnit { enabled: Some(false), running: Some(false), ..unit("a.service") },
            unit_seen("active", "enabled"),
            vec!["disable a.service", "stop a.service"],
        ),
        (
            TargetUnit { enabled: None, running: None, masked: true, ..unit("a.service") },
            unit_seen("active", "enabled"),
            vec!["stop a.service", "mask a.service"],
        ),
    ];
    for (wanted, there, expected) in table {
        target.units = vec![wanted];
        observed.units.insert("a.service".into(), there.clone());
        let plan = plan(&target, &observed, &Pending::default(), Manager::Apt).unwrap();
        let steps: Vec<String> = plan.steps.iter().map(|step| render::headline(&step.action)).collect();
        assert_eq!(steps, expected, "{there:?}");
    }
}

#[test]
fn a_stopped_unit_that_nobody_wants_running_is_not_started_by_a_file() {
    let mut target = Target::default();
    target.files.insert("/etc/a.conf".into(), file("a", &["a.service"]));
    let mut observed = Observed::default();
    observed.units.insert("a.service".into(), unit_seen("inactive", "disabled"));
    assert_eq!(shown(&target, &observed), ["write /etc/a.conf (it is not there)"]);
    observed.units.insert("a.service".into(), unit_seen("active", "disabled"));
    assert_eq!(shown(&target, &observed).len(), 2);
}

#[test]
fn versions_go_down_only_where_asked() {
    let mut target = Target { packages: vec![package("a", Some("1.0"))], ..Target::default() };
    let mut observed = Observed::default();
    Arc::make_mut(&mut observed.packages)
        .insert("a".into(), Installed { version: "1.10".into(), held: false, complete: true, automatic: false });
    let error = plan(&target, &observed, &Pending::default(), Manager::Apt).unwrap_err();
    assert_eq!(error, PlanError::Downgrade { name: "a".into(), installed: "1.10".into(), wanted: "1.0".into() });
    target.packages[0].allow_downgrade = true;
    assert_eq!(shown(&target, &observed), ["downgrade a 1.10 to 1.0 (a 1.10 is installed, 1.0 is wanted)"]);
    assert_eq!(plan(&target, &observed, &Pending::default(), Manager::Apt).unwrap().disruption, Disruption::Restart);
}

#[test]
fn an_rpm_may_be_named_without_its_release() {
    let target = Target { packages: vec![package("a", Some("1.0"))], ..Target::default() };
    let mut observed = Observed::default();
    Arc::make_mut(&mut observed.packages)
        .insert("a".into(), Installed { version: "1.0-3".into(), held: false, complete: true, automatic: false });
    assert!(plan(&target, &observed, &Pending::default(), Manager::Dnf).unwrap().is_empty());
    assert!(!plan(&target, &observed, &Pending::default(), Manager::Apt).is_ok_and(|plan| plan.is_empty()));
}

#[test]
fn a_restart_that_was_cut_off_is_still_done() {
    let target = Target { units: vec![unit("a.service")], ..Target::default() };
    let mut observed = Observed::default();
    observed.units.insert("a.service".into(), unit_seen("active", "enabled"));
    let pending = Pending { daemon_reload: true, units: BTreeMap::from([("a.service".into(), UnitChange::Restart)]) };
    let plan = plan(&target, &observed, &pending, Manager::Apt).unwrap();
    let steps: Vec<String> = plan.steps.iter().map(|step| render::headline(&step.action)).collect();
    assert_eq!(steps, ["reload systemd's units", "restart a.service"]);
}

#[test]
fn what_left_the_state_is_stopped_before_its_file_goes() {
    let mut target = Target::default();
    let path = "/etc/systemd/system/a.service".to_owned();
    target.absent.insert(path.clone(), Followers::default());
    target.released.insert(path.clone());
    target.units.push(TargetUnit { enabled: Some(false), running: Some(false), left: true, ..unit("a.service") });
    let mut observed = Observed::default();
    observed.files.insert(path, seen("x", 0o644));
    observed.units.insert("a.service".into(), unit_seen("active", "enabled"));
    assert_eq!(
        shown(&target, &observed),
        [
            "stop a.service (it left the state)",
            "disable a.service (it left the state)",
            "remove /etc/systemd/system/a.service (it left the state)",
            "reload systemd's units (unit files change)",
        ]
    );
}

#[test]
fn what_is_to_be_reported_is_left_alone() {
    let mut target =
        Target { units: vec![TargetUnit { drift: Drift::Report, ..unit("a.service") }], ..Target::default() };
    target.files.insert("/etc/a".into(), TargetFile { drift: Drift::RepairWithGrant, ..file("a", &[]) });
    target.files.insert("/etc/b".into(), file("b", &[]));
    target.files.insert("/etc/c".into(), file("c", &[]));
    target.packages.push(TargetPackage { drift: Drift::Report, ..package("p", Some("1")) });
    let mut observed = Observed::default();
    observed.units.insert("a.service".into(), unit_seen("inactive", "enabled"));
    let tired = BTreeSet::from(["file /etc/b".to_owned()]);
    let drifted = hold_back(&mut target, &observed, Manager::Apt, &tired).unwrap();
    let names: Vec<&str> = drifted.iter().map(|drifted| drifted.resource.as_str()).collect();
    assert_eq!(names, ["file /etc/a", "file /etc/b", "package p", "unit a.service"]);
    assert_eq!(shown(&target, &observed), ["write /etc/c (it is not there)"]);
}
