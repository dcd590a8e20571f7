//! A release that does not work, and what becomes of it.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::upgrade::release;
use super::{MACHINES, Show, VERSIONS, Witnesses};

/// The nodes look at a change for so long before they take it back, in seconds.
const HEALTH: &str = "\n    health: {timeoutSeconds: 10}";
/// What the set tells of itself.
const EVENTS: &str = "kubectl get events --field-selector=involvedObject.kind=NodeSet --sort-by=.lastTimestamp \
                      -o custom-columns=TYPE:.type,REASON:.reason,MESSAGE:.message";

impl Show {
    /// It stops at its canary, which goes back by itself.
    pub(super) fn broken(&mut self, witnesses: &Witnesses) -> Result<()> {
        let [_, good, broken] = self.kubelets.clone();
        self.stage.step(&format!("Release a kubelet that does not work: {broken} ends as soon as it starts"));
        let slot = self.cluster.slot().clone();
        let program = slot.dir().join("broken-kubelet");
        fs::write(&program, "#!/bin/sh\nexit 1\n").with_context(|| format!("writing {}", program.display()))?;
        self.software.add_kubelet(&slot, &program, &broken)?;
        let containerd =
            self.cluster.kubectl(&["get", "nodeclass", "worker", "-o", "jsonpath={.spec.state.runtime.version}"])?;
        let before = witnesses.cordons.turns().len();
        self.change_class("broken.yaml", &release("2026.12", &broken, &containerd, HEALTH))?;
        self.follow(witnesses, |line| Ok(line.contains("3 of 3 updated, RolledBack")))?;
        let touched = witnesses.cordons.turns().split_off(before);
        ensure!(touched.len() == 1, "the broken release reached {touched:?}");
        self.kubectl("kubectl nodes status workers")?;
        self.kubectl(&format!("kubectl nodes why {}", touched[0]))?;
        self.kubectl(EVENTS)?;
        self.watch(VERSIONS, |rows| rows.len() == MACHINES.len() && rows.values().all(|row| row.contains(&good)))?;
        self.stage.say(&format!("{} alone was touched, and is back; the others never heard of it.", touched[0]));
        self.account(witnesses)
    }

    /// What a person does next.
    pub(super) fn correct(&mut self, release: &str, witnesses: &Witnesses) -> Result<()> {
        self.stage.step("Correct the class; the nodes have all of it already");
        self.change_class("release.yaml", release)?;
        self.kubectl("kubectl nodes wait workers --timeout 60s")?;
        self.kubectl("kubectl nodes history workers")?;
        self.account(witnesses)
    }
}
