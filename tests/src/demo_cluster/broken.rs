//! A release that does not work, and what becomes of it.

use std::fs;

use anyhow::{Context, Result, ensure};

use super::upgrade::release;
use super::{LIMIT, MACHINES, Show, VERSIONS, Witnesses};
use crate::wait::{Seen, wait_until};

/// Events name the whole reason, which is above them already.
const WIDTH: usize = 100;
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
        self.change_class("broken.yaml", &release("2026.12", &broken, &containerd))?;
        self.follow(witnesses, |line| Ok(line.contains("3 of 3 updated, RolledBack")))?;
        let touched = witnesses.cordons.turns().split_off(before);
        ensure!(touched.len() == 1, "the broken release reached {touched:?}");
        self.kubectl("kubectl nodes status workers")?;
        self.kubectl(&format!("kubectl nodes why {}", touched[0]))?;
        let events = self.ask(EVENTS)?;
        self.stage
            .told("kubectl get events --field-selector=involvedObject.kind=NodeSet … | tail -n 3", &tail(&events));
        // The kubelet that was put back tells its version a moment after it is well.
        wait_until(&format!("all nodes with the kubelet {good}"), LIMIT, || {
            let nodes = self.ask(VERSIONS)?;
            let well = nodes.lines().filter(|row| row.contains(" True ") && row.contains(&good)).count();
            Ok(if well == MACHINES.len() { Seen::Done(()) } else { Seen::NotYet(nodes) })
        })?;
        self.kubectl(VERSIONS)?;
        self.stage.say(&format!("{} alone was touched, and is back by itself.", touched[0]));
        self.account(&witnesses.requests.so_far())
    }

    /// What a person does next.
    pub(super) fn correct(&mut self, release: &str) -> Result<()> {
        self.stage.step("Correct the class; the nodes have all of it already");
        self.change_class("release.yaml", release)?;
        self.kubectl("kubectl nodes wait workers --timeout 60s")?;
        self.kubectl("kubectl nodes status workers")?;
        self.kubectl("kubectl nodes history workers")
    }
}

/// The last three lines, each as far as it fits.
fn tail(events: &str) -> String {
    let lines: Vec<&str> = events.lines().collect();
    let short = |line: &&str| match line.char_indices().nth(WIDTH) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => (*line).to_owned(),
    };
    lines[lines.len().saturating_sub(3)..].iter().map(short).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_shown_as_far_as_it_fits() {
        let long = "ü".repeat(WIDTH + 1);
        let wanted = format!("b\nc\n{}…", "ü".repeat(WIDTH));
        assert_eq!(tail(&format!("a\nb\nc\n{long}")), wanted);
        assert_eq!(tail("a"), "a");
    }
}
