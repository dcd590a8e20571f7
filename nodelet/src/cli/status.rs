//! `nodelet status`

use super::{Global, Output, print_json};
use crate::exit;
use crate::report::status::{Phase, STATUS_FILE, Status};
use anyhow::Context;
use jiff::{SpanRound, Timestamp, Unit};
use std::process::ExitCode;

pub(super) fn execute(global: &Global) -> anyhow::Result<ExitCode> {
    let status = Status::read(&global.root()).with_context(|| format!("reading {STATUS_FILE}"))?;
    let Some(status) = status else {
        anyhow::bail!("the daemon has not reported since boot: start it with `systemctl start nodelet`");
    };
    let runs = global.root().join(format!("/proc/{}", status.pid)).exists();
    match global.output {
        Output::Json => print_json(&status)?,
        Output::Text => print!("{}", text(&status, runs)),
    }
    Ok(exit::code(if runs && status.phase == Phase::Converged { exit::OK } else { exit::FAILED }))
}

fn text(status: &Status, runs: bool) -> String {
    let mut lines = Vec::new();
    let mut line = |name: &str, value: String| lines.push(format!("{name:>12}: {value}\n"));
    line("State", format!("{:?} for {}", status.phase, age(status.since)));
    if !runs {
        line("Daemon", "not running: this is what it last said; `systemctl start nodelet`".into());
    }
    if let Some(waiting_for) = &status.waiting_for {
        line("Waiting for", waiting_for.clone());
    }
    let why =
        if status.source_reason.is_empty() { String::new() } else { format!(", because {}", status.source_reason) };
    line("Source", status.source.clone() + &why);
    if let Some(cluster) = &status.cluster {
        line("Cluster", cluster.clone());
    }
    if let Some(revision) = &status.revision {
        line("Revision", revision.clone());
    }
    line("Managed", status.managed.to_string());
    for drifted in &status.drifted {
        line("Drifted", format!("{}: {}", drifted.resource, drifted.reason));
    }
    if let Some(error) = &status.last_error {
        line(
            "Last error",
            format!("{} {} ago: {}", error.reason, age(error.at), error.message.replace('\n', "\n              ")),
        );
    }
    if let Some(error) = &status.configuration_error {
        line("Settings", error.replace('\n', "\n              "));
    }
    line("Version", format!("nodelet {}, process {}", status.version, status.pid));
    lines.concat()
}

fn age(since: Timestamp) -> String {
    let seconds = (Timestamp::now() - since).round(SpanRound::new().largest(Unit::Hour).smallest(Unit::Second));
    seconds.map_or_else(|_| "a moment".into(), |span| format!("{span:#}"))
}
