//! `make demo`: nodelet at work on one throwaway node, told step by step.

mod stage;

use std::time::Duration;

use anyhow::{Context, Result};

use crate::image::Kind;
use crate::repository::Repository;
use crate::{Node, NodeOptions, Slot, dummy, nodelet};
use stage::Stage;

/// The demo's own changes are quick; this is for a machine that is busy.
const SOON: Duration = Duration::from_secs(60);

/// Runs the whole demo. Ctrl-C at any point is fine: the slot's reaper cleans up.
pub fn run() -> Result<()> {
    let mut stage = Stage::new();
    let slot = Slot::take()?;

    stage.step("Build nodelet's packages and a signed apt repository");
    let product = nodelet::build(&slot)?;
    let mut software = Repository::new("software", slot.dir().join("software"))?;
    software.publish(&["1.0", "2.0", "3.0"].map(|version| dummy::service("clock", version)))?;
    stage.say(&format!(
        "nodelet {} and a small service `clock` in versions 1.0, 2.0 and 3.0, signed",
        nodelet::version()?
    ));

    stage.step("Boot a throwaway node: Debian with a real systemd, dpkg and apt");
    let node = Node::boot(
        &slot,
        NodeOptions::new("demo", Kind::Base)
            .bind(product.dir(), product.bound_at())
            .bind(software.dir(), software.bound_at()),
    )?;
    product.add_to_apt(&node, &format!("file://{}", product.bound_at()))?;
    stage.show(&node, "hostnamectl | grep -E 'Static|Operating|Kernel'")?;

    stage.step("apt install nodelet");
    stage.show(&node, "apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y nodelet | tail -n 4")?;
    stage.show(&node, "systemctl status nodelet --no-pager | head -n 5")?;

    converge(&mut stage, &node, &software)?;

    stage.step("Take the node away");
    drop(node);
    stage.end();
    Ok(())
}

/// The part that shows what nodelet is for.
fn converge(stage: &mut Stage, node: &Node, software: &Repository) -> Result<()> {
    stage.step("Hand it a desired state, and see what it would do");
    node.write_file("/etc/nodelet/keys/software.asc", software.public_key()?, 0o644)?;
    node.write_file("/root/state.toml", state(software, "1.0", ""), 0o600)?;
    stage.show(node, "cat /root/state.toml")?;
    stage.show(node, "nodelet plan /root/state.toml || test $? = 2")?;

    stage.step("Put it in place: the daemon notices, and converges");
    stage.show(node, "mv /root/state.toml /etc/nodelet/state.toml")?;
    reached(node, "1.0")?;
    stage.show(node, "nodelet status")?;
    stage.show(node, "systemctl is-active clock; cat /etc/clock.conf")?;

    stage.step("Break something: somebody edits the file, and stops the service");
    stage.show(node, "echo 'oops' > /etc/clock.conf; until grep version /etc/clock.conf; do sleep 0.01; done")?;
    node.wait_for("the repair to be complete", SOON, "nodelet plan && nodelet status")?;
    stage.show(
        node,
        "systemctl stop clock; until systemctl -q is-active clock; do sleep 0.01; done; systemctl is-active clock",
    )?;
    node.wait_for("the repair to be complete", SOON, "nodelet plan && nodelet status")?;
    stage.say("Both were put back by the daemon.");

    stage.step("Upgrade to 2.0");
    node.write_file("/etc/nodelet/state.toml", state(software, "2.0", ""), 0o600)?;
    reached(node, "2.0")?;
    stage.show(node, "dpkg-query -W clock; cat /etc/clock.conf")?;

    stage.step("A broken upgrade: 3.0 comes with a service that can't run");
    let broken = "\n[[units]]\nname = \"broken.service\"\nrunning = true\n\
                  content = \"[Service]\\nExecStart=/bin/false\\n\"\n";
    node.write_file("/etc/nodelet/state.toml", state(software, "3.0", broken), 0o600)?;
    node.wait_for("the failure to be reported", SOON, "nodelet status -o json | grep -q '\"phase\": \"Failed\"'")?;
    stage.show(node, "nodelet status || true")?;
    stage.show(node, "dpkg-query -W clock; cat /etc/clock.conf; systemctl is-active clock")?;
    stage.say("Everything is as it was before.");

    stage.step("What was done, and a way back");
    node.write_file("/etc/nodelet/state.toml", state(software, "2.0", ""), 0o600)?;
    reached(node, "2.0")?;
    stage.show(node, "nodelet rollback")?;
    stage.show(node, "dpkg-query -W clock; nodelet history | cut -c1-120")
}

fn reached(node: &Node, version: &str) -> Result<()> {
    node.wait_for(
        &format!("the node to have clock {version}"),
        SOON,
        &format!("dpkg-query -W -f '${{Version}} ${{db:Status-Status}}' clock | grep -qx '{version} installed'; grep -q '{version}' /etc/clock.conf; systemctl is-active --quiet clock; nodelet status -o json | grep -q Converged"),
    )
    .context("nodelet did not converge")
}

fn state(software: &Repository, version: &str, more: &str) -> String {
    let base = software.bound_at();
    format!(
        r#"[[repositories]]
name = "software"
[repositories.apt]
uris = ["file://{base}/apt"]
suites = ["stable"]
components = ["main"]
key = {{ file = "/etc/nodelet/keys/software.asc" }}

[[packages]]
name = "clock"
version = "{version}"
allowDowngrade = true

[[files]]
path = "/etc/clock.conf"
content = "version = {version}, node = ${{node.name}}\n"
restart = ["clock.service"]

[[units]]
name = "clock.service"
enabled = true
running = true
{more}"#
    )
}
