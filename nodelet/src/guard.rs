//! Keeps containers alive through an upgrade of docker: its daemon takes them down with it, unless live-restore is on.

use crate::desired::Target;
use crate::host::http;
use crate::host::systemd::{Systemd, UnitSeen};
use crate::plan::{Action, PackageChange, Plan, Step, UnitChange};
use nodelet_api::Disruption;
use serde_json::Value;

/// Packages whose change restarts docker's daemon.
const PACKAGES: [&str; 5] = ["docker.io", "docker-ce", "docker-engine", "moby-engine", "docker"];
const UNIT: &str = "docker.service";
const SOCKET: &str = "/run/docker.sock";
const CONFIGURATION: &str = "/etc/docker/daemon.json";

/// What must come before a plan that changes docker.
#[derive(Debug, PartialEq, Eq)]
pub enum Before {
    /// Nothing: containers survive it, or there are none, or the state says that they are gone by then.
    Nothing,
    /// Live-restore is turned on by this plan first.
    First(Plan),
    /// It must not happen.
    Refused(String),
}

/// Looks at docker before a plan changes it.
pub async fn docker(plan: &Plan, target: &Target, systemd: Option<&Systemd>) -> Before {
    let Some(what) = disturbance(plan) else { return Before::Nothing };
    if plan.disruption >= Disruption::Drain {
        return Before::Nothing;
    }
    let units = match systemd {
        Some(systemd) => systemd.units(&[UNIT.to_owned()]).await.unwrap_or_default(),
        None => return Before::Nothing,
    };
    if !units.get(UNIT).is_some_and(UnitSeen::is_up) {
        return Before::Nothing;
    }
    match http::get_from_socket(SOCKET, "info").await {
        Ok(answer) if answer.status == 200 => decide(&answer.body, &what, plan, target),
        Ok(answer) => Before::Refused(unsure(&what, &format!("it answers {}", answer.status))),
        Err(error) => Before::Refused(unsure(&what, &error.to_string())),
    }
}

/// What a plan does that takes docker's daemon down: in words.
fn disturbance(plan: &Plan) -> Option<String> {
    let docker = |change: &&PackageChange| change.from.is_some() && PACKAGES.contains(&change.name.as_str());
    plan.steps.iter().find_map(|step| match &step.action {
        Action::ChangePackages { changes } => {
            changes.iter().find(docker).map(|change| format!("changing {}", change.name))
        }
        Action::Unit { name, change: UnitChange::Restart | UnitChange::Renew } if name == UNIT => {
            Some(format!("restarting {UNIT}"))
        }
        _ => None,
    })
}

fn unsure(what: &str, why: &str) -> String {
    format!(
        "whether live-restore is on, docker can't be asked ({SOCKET}: {why}), and without it {what} stops all containers: \
         see `docker info`, or give the package `onChange = \"Drain\"`"
    )
}

/// Decides by what docker says of itself.
fn decide(info: &str, what: &str, plan: &Plan, target: &Target) -> Before {
    let info: Value = serde_json::from_str(info).unwrap_or_default();
    if info["LiveRestoreEnabled"] == Value::Bool(true) {
        return Before::Nothing;
    }
    let turns_on = target.files.get(CONFIGURATION).is_some_and(|file| {
        let configuration: Value = serde_json::from_slice(file.content.bytes()).unwrap_or_default();
        configuration["live-restore"] == Value::Bool(true)
    });
    let writes =
        plan.steps.iter().find(|step| matches!(&step.action, Action::WriteFile { path } if path == CONFIGURATION));
    match (turns_on, writes) {
        (true, write) => Before::First(first(write.cloned())),
        (false, _) if info["ContainersRunning"] == 0 => Before::Nothing,
        (false, _) => {
            let running = &info["ContainersRunning"];
            Before::Refused(format!(
                "docker's live-restore is off, so {what} would stop its {running} running containers: write \
                 {CONFIGURATION} with `\"live-restore\": true`, or give the package `onChange = \"Drain\"`"
            ))
        }
    }
}

/// docker reads live-restore again on a reload, without touching containers.
fn first(write: Option<Step>) -> Plan {
    let reload = Step {
        action: Action::Unit { name: UNIT.into(), change: UnitChange::Reload },
        reason: "live-restore must be on before docker is upgraded".into(),
        disruption: Disruption::Reload,
        undo: "docker reads its configuration again".into(),
    };
    let steps = write.into_iter().chain([reload]).collect();
    Plan { steps, disruption: Disruption::Reload, ..Plan::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desired::{Followers, Purpose, TargetFile};
    use crate::plan::PackageGoal;

    fn upgrade() -> Plan {
        let change =
            PackageChange { name: "docker.io".into(), from: Some("1".into()), to: PackageGoal::Version("2".into()) };
        let step = |action| Step { action, reason: String::new(), disruption: Disruption::None, undo: String::new() };
        let write = Action::WriteFile { path: CONFIGURATION.into() };
        let steps = [Action::ChangePackages { changes: vec![change] }, write].map(step);
        Plan { steps: steps.into(), ..Plan::default() }
    }

    fn target(configuration: &str) -> Target {
        let file = TargetFile {
            content: configuration.into(),
            mode: 0o644,
            owner: "root".into(),
            group: "root".into(),
            purpose: Purpose::Plain,
            followers: Followers::default(),
            drift: nodelet_api::Drift::Repair,
            on_change: None,
            secret: false,
        };
        Target { files: [(CONFIGURATION.to_owned(), file)].into(), ..Target::default() }
    }

    #[test]
    fn containers_are_not_stopped_by_an_upgrade() {
        let off = r#"{"LiveRestoreEnabled": false, "ContainersRunning": 2}"#;
        let on = r#"{"LiveRestoreEnabled": true, "ContainersRunning": 2}"#;
        let (with, without) = (target(r#"{"live-restore": true}"#), target("{}"));
        let decided = |info, target: &Target| decide(info, "changing docker.io", &upgrade(), target);
        assert_eq!(decided(on, &without), Before::Nothing);
        assert!(matches!(decided(off, &with), Before::First(plan) if plan.steps.len() == 2));
        assert!(matches!(decided(off, &without), Before::Refused(why) if why.contains("2 running containers")));
        assert_eq!(decided(r#"{"ContainersRunning": 0}"#, &without), Before::Nothing);
    }

    #[test]
    fn a_first_installation_is_no_upgrade() {
        let mut plan = upgrade();
        assert_eq!(disturbance(&plan).as_deref(), Some("changing docker.io"));
        if let Action::ChangePackages { changes } = &mut plan.steps[0].action {
            changes[0].from = None;
        }
        assert_eq!(disturbance(&plan), None);
    }
}
