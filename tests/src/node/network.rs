//! The node's cable.

use anyhow::{Context, Result};

use super::Node;
use crate::command::run;
use std::process::Command;

impl Node {
    /// Everything that the node sends or is sent is dropped, without a sign to either side: as a switch that fails,
    /// not as a cable that is pulled, because that is the harder case for a program (connections just hang).
    pub fn network_cut(&self) -> Result<()> {
        self.port_state("0").with_context(|| format!("cutting the network of {}", self.name))
    }

    /// Undoes [`Node::network_cut`].
    pub fn network_restore(&self) -> Result<()> {
        self.port_state("3").with_context(|| format!("restoring the network of {}", self.name))
    }

    /// Adds a route that is still there after a reboot.
    pub fn add_route(&self, to: &str, via: &str) -> Result<()> {
        self.run_sh(&format!(
            "echo 'route replace {to} via {via}' >> /etc/testbed/routes; ip route replace {to} via {via}"
        ))
        .map(drop)
    }

    /// The bridge's port states are those of the spanning tree protocol: 0 is disabled, 3 is forwarding.
    fn port_state(&self, state: &str) -> Result<()> {
        let port = self.machine.port()?;
        run(Command::new("bridge").args(["link", "set", "dev", &port, "state", state])).map(drop)
    }
}
