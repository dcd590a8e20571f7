//! Whether a change did the node any harm. The checks must pass in the time that the state sets; otherwise the change
//! is undone, by this node alone: it may be the network that the change broke.

use crate::host::systemd::{Systemd, UnitSeen};
use crate::host::{cri, http};
use crate::progress::{Progress, Tell};
use crate::root::Root;
use jiff::{SignedDuration, Timestamp};
use nodelet_api::DesiredState;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Without it a kubelet has not joined yet, and can't be healthy.
const KUBELET_CREDENTIAL: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
/// How often what nobody signals is asked.
const LOOK: Duration = Duration::from_millis(200);

/// What is checked after a change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checks {
    units: BTreeSet<String>,
    socket: Option<String>,
    kubelet: Option<String>,
    stable: SignedDuration,
}

impl Checks {
    /// What a state asks for, on this host.
    pub fn of(state: &DesiredState, root: &Root) -> Self {
        let running = state.units.iter().filter(|unit| unit.running == Some(true)).map(|unit| &unit.name);
        let health = &state.health;
        let joined = root.join(KUBELET_CREDENTIAL).exists();
        Self {
            units: running.chain(&health.units).map(ToString::to_string).collect(),
            socket: health.cri.as_ref().map(|address| address.trim_start_matches("unix://").to_owned()),
            kubelet: health.kubelet.clone().filter(|_| joined),
            stable: SignedDuration::from_secs(health.stable_seconds.into()),
        }
    }

    /// Waits until all pass and have passed long enough. What still fails when the time is over.
    pub async fn pass(&self, systemd: Option<&Systemd>, until: Timestamp, tell: Tell<'_>) -> Result<(), String> {
        let mut restarts: Option<BTreeMap<String, u32>> = None;
        let mut passing_since: Option<Timestamp> = None;
        let mut told = String::new();
        loop {
            let now_restarts = self.restarts(systemd).await;
            let mut failing = self.failing(systemd).await;
            for (unit, count) in restarts.iter().flatten() {
                if now_restarts.get(unit).is_some_and(|now| now > count) {
                    failing.push(format!("{unit} keeps ending and being started again"));
                }
            }
            restarts = Some(now_restarts);
            let now = Timestamp::now();
            if failing.is_empty() {
                let since = *passing_since.get_or_insert(now);
                if now.duration_since(since) >= self.stable {
                    return Ok(());
                }
            } else {
                passing_since = None;
                if now >= until {
                    return Err(failing.join("; "));
                }
            }
            let news = if failing.is_empty() {
                format!("health checks pass; they must go on for {} s", self.stable.as_secs())
            } else {
                format!("health checks to pass: {}", failing.join("; "))
            };
            if news != told {
                tell(Progress::Note(&news));
                told = news;
            }
            tokio::time::sleep(LOOK).await;
        }
    }

    async fn failing(&self, systemd: Option<&Systemd>) -> Vec<String> {
        let mut failing = Vec::new();
        if let Some(systemd) = systemd {
            let names: Vec<String> = self.units.iter().cloned().collect();
            match systemd.units(&names).await {
                Ok(seen) => failing.extend(seen.iter().filter_map(|(name, unit)| unit_trouble(name, unit))),
                Err(error) => failing.push(error.to_string()),
            }
        }
        if let Some(socket) = &self.socket
            && let Err(error) = cri::ready(socket).await
        {
            failing.push(format!("the container runtime at {socket}: {error}"));
        }
        if let Some(address) = &self.kubelet {
            match http::get(address).await {
                Ok(answer) if answer.status == 200 => {}
                Ok(answer) => failing.push(format!("{address} answers {}: {}", answer.status, answer.body.trim())),
                Err(error) => failing.push(format!("{address}: {error}")),
            }
        }
        failing
    }

    async fn restarts(&self, systemd: Option<&Systemd>) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        // Asked only where it matters: without a time to stay well, one look is all there is.
        if let Some(systemd) = systemd.filter(|_| !self.stable.is_zero()) {
            for unit in &self.units {
                counts.insert(unit.clone(), systemd.automatic_restarts(unit).await);
            }
        }
        counts
    }
}

fn unit_trouble(name: &str, unit: &UnitSeen) -> Option<String> {
    let well = matches!(unit.active.as_str(), "active" | "reloading" | "refreshing");
    (!well).then(|| format!("{name} is {}", if unit.active.is_empty() { "not known" } else { &unit.active }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use nodelet_api::from_toml;

    const STATE: &str = "[[units]]\nname = 'a.service'\nrunning = true\n[[units]]\nname = 'b.service'\nenabled = true\n\
        [health]\nunits = ['c.service']\ncri = 'unix:///nowhere.sock'\nkubelet = 'http://127.0.0.1:1/healthz'\n";

    #[test]
    fn what_runs_is_checked_and_the_kubelet_once_it_joined() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let state = from_toml(STATE).unwrap();
        let checks = Checks::of(&state, &root);
        assert_eq!(checks.units, ["a.service", "c.service"].map(str::to_owned).into());
        assert_eq!((checks.socket.as_deref(), checks.kubelet.as_deref()), (Some("/nowhere.sock"), None));
        crate::host::files::place_as_self(&root.join(KUBELET_CREDENTIAL), b"", 0o600).unwrap();
        assert!(Checks::of(&state, &root).kubelet.is_some());
    }

    #[tokio::test]
    async fn what_fails_until_the_end_is_named() {
        let checks = Checks { socket: Some("/nowhere.sock".into()), ..Checks::default() };
        let error = checks.pass(None, Timestamp::now(), &|_| ()).await.unwrap_err();
        assert!(error.starts_with("the container runtime at /nowhere.sock: "), "{error}");
        Checks::default().pass(None, Timestamp::now(), &|_| ()).await.unwrap();
    }
}
