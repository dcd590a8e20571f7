//! An upgrade of containerd and the kubelet, while customers ask.

use anyhow::{Result, ensure};
use jiff::ToSpan;
use jiff::Zoned;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::{LIMIT, MACHINES, Show, VERSIONS, Witnesses};
use crate::cluster::{Cordons, Requests, SHOP, SHOP_PODS, Tally, shop};
use crate::wait::{Seen, wait_until};

/// The nodes look at a change for so long before they take it back, in seconds. What is well is so within three.
const HEALTH: u32 = 15;

/// One node is a canary, and no two are away at once.
pub(super) fn strategy() -> Value {
    json!({"maxUnavailable": 1, "steps": [1], "soakSeconds": 2})
}

/// Changes begin three days from now, so that a plan can be read before anything happens.
fn windows() -> Value {
    let day = Zoned::now().with_time_zone(TimeZone::UTC).saturating_add(3.days()).strftime("%a").to_string();
    json!({"windows": [{"days": [day], "start": "02:00", "durationMinutes": 240}]})
}

/// A release of nodes, as a change of their class. The name is in a file of the nodes, and whoever changes that asks for a
/// drain.
pub(super) fn release(name: &str, kubelet: &str, containerd: &str) -> String {
    format!(
        "spec:
  state:
    kubelet: {{version: \"{kubelet}\"}}
    runtime: {{version: \"{containerd}\"}}
    files: [{{path: /etc/node-release, content: \"{name}\", onChange: Drain}}]
    health: {{timeoutSeconds: {HEALTH}}}"
    )
}

impl Show {
    /// A workload that must not notice, and those who would.
    pub(super) fn shop(&mut self) -> Result<Witnesses> {
        self.stage.step("Open a shop, and let customers ask for its page 100 times in a second");
        for node in &self.nodes {
            self.cluster.route_to_pods(node)?;
        }
        self.apply("shop.yaml", &shop().to_string())?;
        self.ask(&format!("kubectl rollout status deployment/{SHOP} --timeout=120s"))?;
        self.kubectl(
            "kubectl get pods -o custom-columns=NAME:.metadata.name,NODE:.spec.nodeName,ADDRESS:.status.podIP",
        )?;
        self.kubectl("kubectl get poddisruptionbudgets")?;
        let requests = Requests::start(&self.cluster, SHOP)?;
        self.stage.say(&format!(
            "Each request goes to one of the {SHOP_PODS} pods, by the Service's EndpointSlices. None is ever repeated."
        ));
        Ok(Witnesses { requests, cordons: Cordons::start(&self.cluster)? })
    }

    /// The change is told, made ready everywhere, and looked at. Returns it.
    pub(super) fn plan(&mut self) -> Result<String> {
        self.stage.step("Change the class: a newer containerd, a newer kubelet. Every node says what it would do");
        self.kubectl(VERSIONS)?;
        let slot = self.cluster.slot().clone();
        let binaries = self.cluster.binaries().clone();
        let kubelet = binaries.kubelet_renumbered(&self.kubelets[1], &slot.dir().join("kubelets"))?;
        self.software.add_kubelet(&slot, &kubelet, &self.kubelets[1])?;
        let containerd = self.software.add_containerd(&slot)?;
        self.stage
            .say(&format!("containerd {containerd} is Debian's own under another number, to have something to go to."));
        self.change_set(&windows())?;
        let release = release("2026.11", &self.kubelets[1], &containerd);
        self.change_class("release.yaml", &release)?;
        wait_until("all nodes to be ready for their turn", LIMIT, || {
            let plan = self.ask("kubectl nodes plan workers")?;
            let ready = plan.matches("   staged").count() == MACHINES.len();
            Ok(if ready { Seen::Done(()) } else { Seen::NotYet(plan) })
        })?;
        self.kubectl("kubectl nodes plan workers")?;
        self.stage.say("Everything is downloaded and checked already, and nothing has changed yet.");
        Ok(release)
    }

    /// One node after the other.
    pub(super) fn upgrade(&mut self, witnesses: &Witnesses) -> Result<()> {
        self.stage.step("Open the window, and watch: a canary first, then the others, one at a time");
        self.change_set(&json!({"windows": null}))?;
        let mut asked = false;
        self.follow(witnesses, |line| {
            let waiting = MACHINES.iter().find(|name| !line.contains(*name));
            if let Some(name) = waiting.filter(|_| !asked && line.contains(": draining")) {
                asked = true;
                self.kubectl(&format!("kubectl nodes why {name}"))?;
            }
            Ok(line.contains("3 of 3 updated, Updated"))
        })?;
        self.kubectl(VERSIONS)?;
        self.kubectl("kubectl nodes history workers")?;
        let turns = witnesses.cordons.turns();
        let most = witnesses.cordons.most();
        ensure!(most == 1 && turns.len() == MACHINES.len(), "{most} nodes were cordoned at once; in order: {turns:?}");
        self.stage.say(&format!("Cordoned: {}, and at no instant more than {most}.", turns.join(", ")));
        self.account(&witnesses.requests.so_far())
    }

    /// What customers saw, all of which must be well.
    pub(super) fn account(&self, tally: &Tally) -> Result<()> {
        self.stage.say(&format!("Customers: {tally}."));
        for failure in &tally.failures {
            self.stage.say(&format!("FAILED {failure}"));
        }
        ensure!(tally.failures.is_empty(), "{} of {} requests failed", tally.failures.len(), tally.sent);
        Ok(())
    }
}
