//! systemd's own opinion of the unit.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::process::Command;

use common::{attempt, repository, run};

#[test]
fn systemd_analyze_verify_is_clean() {
    let directory = tempfile::tempdir().unwrap();
    let unit = fs::read_to_string(repository().join("systemd/nodelet.service")).unwrap();
    assert!(unit.contains("\nExecStart=/usr/bin/nodelet run\n"));
    // nodelet isn't installed here: a program that exists stands in for it.
    let path = directory.path().join("nodelet.service");
    fs::write(&path, unit.replace("/usr/bin/nodelet run", "/usr/bin/true")).unwrap();
    let output = attempt(Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&path));
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    // Complaints about other units of this machine are not this one's.
    let own: Vec<_> = complaints.lines().filter(|line| line.contains("nodelet.service")).collect();
    assert!(output.status.success() && own.is_empty(), "{complaints}");
}

#[test]
fn the_score_that_the_documentation_states_holds() {
    let unit = repository().join("systemd/nodelet.service");
    let report = run(Command::new("systemd-analyze").args(["security", "--offline=true", "--no-pager"]).arg(unit));
    let score = report.lines().last().and_then(|line| line.rsplit(": ").next()).and_then(|rest| rest.split(' ').next());
    let score = score.unwrap_or_else(|| panic!("no score in\n{report}"));
    let documented = fs::read_to_string(repository().join("systemd/README.md")).unwrap();
    assert!(documented.contains(&format!("**{score}**")), "systemd/README.md does not say **{score}**");
}
