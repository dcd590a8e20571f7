//! Reboots, shutdowns and power cuts.

use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::Node;
use crate::wait::{Seen, wait_until};

/// A shutdown may wait for pods that ignore SIGTERM: systemd's own limit is 90 s for each stage.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(4 * 60);

impl Node {
    /// Changes with every boot.
    pub fn boot_id(&self) -> Result<String> {
        self.read_file("/proc/sys/kernel/random/boot_id")
    }

    /// Asks logind for a reboot, as an administrator or nodelet would, and waits until it is up again.
    pub fn reboot(&self) -> Result<()> {
        let before = self.boot_id()?;
        // The answer may get lost with the connection: only the boot id proves anything.
        self.exec(&[
            "busctl",
            "call",
            "org.freedesktop.login1",
            "/org/freedesktop/login1",
            "org.freedesktop.login1.Manager",
            "Reboot",
            "b",
            "false",
        ])?;
        self.wait_for_reboot(&before)
    }

    /// Waits until the node is up with another boot id than `before`, whoever asked for the reboot.
    pub fn wait_for_reboot(&self, before: &str) -> Result<()> {
        wait_until(&format!("a new boot id on {}", self.name), SHUTDOWN_LIMIT, || {
            if !self.machine.is_on() {
                bail!("the node {} went off instead of rebooting", self.name);
            }
            Ok(match self.boot_id() {
                Ok(id) if id != before => Seen::Done(()),
                Ok(_) => Seen::not_yet("it has not gone down yet"),
                Err(error) => Seen::not_yet(format!("{error:#}")),
            })
        })?;
        self.wait_until_up().map(drop)
    }

    /// Waits until the node has switched itself off.
    pub fn wait_until_off(&self) -> Result<()> {
        wait_until(&format!("the node {} to be off", self.name), SHUTDOWN_LIMIT, || {
            Ok(if self.machine.is_on() { Seen::not_yet("it is on") } else { Seen::Done(()) })
        })
    }

    /// Cuts the power: every process of the node is gone without a chance to do anything. (What it had written is
    /// not lost, even if it had not been synced: the page cache is the host's. A test can't see a missing fsync.)
    pub fn power_cut(&self) -> Result<()> {
        self.machine.power_off_hard().with_context(|| format!("cutting the power of {}", self.name))
    }

    /// Starts the node again after a power cut or a shutdown.
    pub fn power_on(&self) -> Result<()> {
        self.machine
            .power_off_hard()
            .and_then(|()| self.machine.power_on())
            .with_context(|| format!("switching {} on", self.name))?;
        self.wait_until_up().map(drop)
    }
}
