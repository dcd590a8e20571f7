//! What is measured: a way to look at a node, and a way to change it.

use anyhow::{Context, Result};

use super::Rounds;
use super::reference::INPUTS;
use super::stopwatch::{Taken, time};
use crate::Node;

/// Something that brings a node to the reference state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tool {
    /// What it is called in tables.
    pub(super) name: &'static str,
    /// A short name, for nodes.
    pub(super) short: &'static str,
    /// Looks, and finds nothing to do. `@` stands for the directory of a version.
    check: &'static str,
    /// Changes what must change.
    change: &'static str,
}

/// Shell commands.
pub(super) const FLOOR: Tool =
    Tool { name: "bare commands", short: "bare", check: "sh /srv/bench/check.sh", change: "sh @/change.sh" };
/// nodelet without its daemon.
pub(super) const NODELET: Tool = Tool {
    name: "nodelet apply",
    short: "nodelet",
    check: "nodelet apply @/state.toml",
    change: "nodelet apply @/state.toml",
};
/// Puppet.
pub(super) const PUPPET: Tool =
    Tool { name: "Puppet", short: "puppet", check: "sh @/puppet.sh", change: "sh @/puppet.sh update" };
/// `CFEngine` with the bodies of its library.
const CFENGINE: Tool =
    Tool { name: "CFEngine", short: "cfengine", check: "sh @/cfengine.sh", change: "sh @/cfengine.sh update" };
/// `CFEngine` that has shell scripts look at packages and units: the floor again, with `CFEngine` around it.
pub(super) const CFENGINE_SHELL: Tool = Tool {
    name: "CFEngine around the bare commands",
    short: "cfengine-shell",
    check: "sh @/cfengine-shell.sh",
    change: "sh @/cfengine-shell.sh update",
};
/// Ansible with one call of a module for each kind.
const ANSIBLE_TUNED: Tool = Tool {
    name: "Ansible, tuned",
    short: "ansible-tuned",
    check: "sh @/ansible-tuned.sh",
    change: "sh @/ansible-tuned.sh update",
};
/// Ansible with one call of a module for each resource.
const ANSIBLE: Tool =
    Tool { name: "Ansible", short: "ansible", check: "sh @/ansible.sh", change: "sh @/ansible.sh update" };

/// The others. Lists of packages are read before they change something, not when they only look.
pub(super) fn peers(rounds: Rounds) -> Vec<Tool> {
    match (rounds.peers, rounds.plain) {
        (0, _) => Vec::new(),
        (_, false) => vec![PUPPET, CFENGINE, CFENGINE_SHELL, ANSIBLE_TUNED],
        (_, true) => vec![PUPPET, CFENGINE, CFENGINE_SHELL, ANSIBLE_TUNED, ANSIBLE],
    }
}

impl Tool {
    /// How long it looks at a node that is as wanted, in seconds.
    pub(super) fn check(&self, node: &Node, version: &str) -> Result<f64> {
        run(node, self.check, version).map(|taken| taken.time).with_context(|| format!("checking with {}", self.name))
    }

    /// What it takes to bring a node to a version; an error when the node is not so afterwards.
    pub(super) fn change(&self, node: &Node, version: &str) -> Result<Taken> {
        let taken =
            run(node, self.change, version).with_context(|| format!("changing to {version} with {}", self.name))?;
        prove(node, version).with_context(|| format!("after {}", self.name))?;
        Ok(taken)
    }
}

/// Fails where a node is not as a version wants it.
pub(super) fn prove(node: &Node, version: &str) -> Result<()> {
    node.run(&["sh", &format!("{INPUTS}/{version}/proof.sh")]).map(drop)
}

fn run(node: &Node, command: &str, version: &str) -> Result<Taken> {
    let command = command.replace('@', &format!("{INPUTS}/{version}"));
    time(node, &command.split(' ').collect::<Vec<_>>())
}
