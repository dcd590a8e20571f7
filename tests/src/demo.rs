//! `make demo`: nodelet at work on one throwaway node, told step by step.

pub(crate) mod stage;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::cluster::pods;
use crate::http::FileServer;
use crate::image::{Kind, WRITABLE_CGROUPS};
use crate::repository::Repository;
use crate::{Node, NodeOptions, Slot, debian, nodelet, repackage};
use stage::Stage;

/// The demo's own changes are quick; this is for a machine that is busy.
const SOON: Duration = Duration::from_secs(120);
const STATE: &str = "/etc/nodelet/state.toml";
/// The processes of containerd and of the container, with their starts.
const PROCESSES: &str = "ps -o pid,lstart,comm -C containerd -p $(ctr tasks ls | awk '/worker/ {print $2}')";

/// Runs the whole demo. Ctrl-C at any point is fine: the slot's reaper cleans up.
pub fn run() -> Result<()> {
    let mut stage = Stage::new();
    let slot = Slot::take()?;

    stage.step("Make two signed apt repositories: one with nodelet, one with containerd from Debian's archive");
    let product = nodelet::build_deb(&slot)?;
    let software = Software::prepare(&slot)?;
    stage.say(&format!(
        "containerd {} is Debian's own. {} and {} are the same files, repackaged under higher numbers, to have something \
         to upgrade to.",
        software.versions[0], software.versions[1], software.versions[2]
    ));

    stage.step(
        "Boot a throwaway node: Debian with a real systemd, dpkg and apt, without a way out and without a cluster",
    );
    let containers = slot.dir().join("containers");
    std::fs::create_dir_all(&containers).with_context(|| format!("making {}", containers.display()))?;
    let node = Node::boot(
        &slot,
        NodeOptions::new("demo", Kind::Base)
            .bind(product.dir(), product.bound_at())
            .bind(pods::archive(slot.dir())?, "/srv/busybox.tar")
            // containerd makes overlays here, and the node's disk is one itself.
            .bind_writable(containers, "/var/lib/containerd"),
    )?;
    node.run_sh(WRITABLE_CGROUPS)?;
    product.add_to_apt(&node, &format!("file://{}", product.bound_at()))?;
    stage.show(&node, "hostnamectl | grep -E 'Operating|Kernel'")?;

    stage.step("Install nodelet");
    stage.show(&node, "apt-get update -qq; DEBIAN_FRONTEND=noninteractive apt-get install -y nodelet | tail -n 3")?;
    stage.show(&node, "systemctl status nodelet --no-pager | grep -E 'Active|Status'")?;

    install(&mut stage, &node, &software)?;
    drift(&mut stage, &node)?;
    upgrade(&mut stage, &node, &software)?;
    broken_upgrade(&mut stage, &node, &software)?;

    stage.step("Take the node away");
    drop(node);
    stage.end("nodelet on one host");
    Ok(())
}

/// From a state file to a container that runs.
fn install(stage: &mut Stage, node: &Node, software: &Software) -> Result<()> {
    stage.step("Say what the node is to be; `nodelet render` shows what the words stand for");
    node.write_file("/etc/nodelet/keys/software.asc", software.repository.public_key()?, 0o644)?;
    node.write_file("/root/state.toml", software.state(0, ""), 0o600)?;
    stage.show(node, "cat /root/state.toml")?;
    stage.show(node, "nodelet render /root/state.toml | sed -n '/packages/,$p' | grep -v '^$' | head -n 21")?;
    stage.say("Then a unit, a kernel module, and a check: containerd must answer on its socket after a change.");

    stage.step("See what would be done for it, and why; nothing changes yet");
    stage.show(node, "nodelet plan /root/state.toml | grep -v '^ '")?;

    stage.step("Put it in place: the daemon notices, and converges");
    stage.show(node, &format!("mv /root/state.toml {STATE}"))?;
    software.reached(node, 0)?;
    stage.show(node, "nodelet status")?;
    stage.show(node, "ctr version | grep -A 1 Server; ctr plugins ls | grep -w cri")?;

    stage.step("Run a container, to see what becomes of it");
    node.run(&["ctr", "images", "import", "/srv/busybox.tar"])?;
    stage.show(node, &format!("ctr run --detach {} worker; ctr tasks ls", crate::cluster::BUSYBOX))
}

/// Things that somebody breaks, each with the condition that it is put back.
const DRIFT: [(&str, &str); 3] = [
    ("echo 'oops' > /etc/containerd/config.toml", "grep -q SystemdCgroup /etc/containerd/config.toml"),
    ("rm -r /etc/containerd", "test -e /etc/containerd/config.toml"),
    ("systemctl disable --now containerd", "systemctl -q is-active containerd && systemctl -q is-enabled containerd"),
];

fn drift(stage: &mut Stage, node: &Node) -> Result<()> {
    stage.step("Break things: edit the configuration, remove it, stop the service");
    for (change, repaired) in DRIFT {
        stage.command(node, change);
        let script = format!(
            "{{ {change}; }} 2>/dev/null; start=$(date +%s%N); until {repaired}; do sleep 0.01; done 2>/dev/null\n\
             echo $((($(date +%s%N) - start) / 1000000))"
        );
        let took = node.run(&["timeout", "120", "sh", "-c", &script]).context("waiting for a repair")?;
        stage.say(&format!("Put back by the daemon {took} ms later."));
        node.wait_for("the repair to be complete", SOON, "nodelet plan && nodelet status")?;
    }
    stage.show(node, "nodelet history; ctr tasks ls")
}

fn upgrade(stage: &mut Stage, node: &Node, software: &Software) -> Result<()> {
    stage.step("Upgrade containerd: download it ahead, look at the plan, hand it over");
    stage.show(node, PROCESSES)?;
    node.write_file("/root/state.toml", software.state(1, ""), 0o600)?;
    stage.show(node, "nodelet stage /root/state.toml")?;
    stage.show(node, "nodelet plan /root/state.toml | grep -v '^ '")?;
    stage.show(node, &format!("mv /root/state.toml {STATE}"))?;
    software.reached(node, 1)?;
    stage.show(node, "nodelet status | head -n 3; dpkg-query -W containerd")?;
    stage.show(node, PROCESSES)?;
    stage.say("containerd is a new process; the container's shell is the one from before.");
    Ok(())
}

fn broken_upgrade(stage: &mut Stage, node: &Node, software: &Software) -> Result<()> {
    stage.step("Break the next upgrade: containerd runs, but its configuration turns off what the kubelet talks to");
    let mistake = "config = { disabled_plugins = [\"io.containerd.grpc.v1.cri\"] }\n";
    node.write_file("/root/state.toml", software.state(2, mistake), 0o600)?;
    stage.look(node, &format!("diff {STATE} /root/state.toml"))?;
    stage.show(node, &format!("cp /etc/containerd/config.toml /root/before.toml; mv /root/state.toml {STATE}"))?;
    stage.say("Every step succeeds. Then nodelet asks the runtime whether it is ready, as the kubelet would:");
    node.wait_for("the checks", SOON, "nodelet status | grep -q 'health checks to pass'")?;
    stage.look(node, "nodelet status | head -n 2")?;
    node.wait_for("the way back", SOON, "nodelet status -o json | grep -q '\"phase\": \"Reverted\"'")?;
    stage.look(node, "nodelet status | grep -E 'State|Revision|Last error'")?;
    stage.show(node, "cmp /root/before.toml /etc/containerd/config.toml && echo the same")?;
    stage.show(node, "dpkg-query -W containerd; ctr plugins ls | grep -w cri")?;
    stage.show(node, PROCESSES)?;
    stage.say("The node undid it by itself: the old package, the old configuration, and the container still runs.");

    stage.step("Correct the state, go back to before the first upgrade, and see what was done");
    node.write_file(STATE, software.state(1, ""), 0o600)?;
    software.reached(node, 1)?;
    stage.show(node, "nodelet rollback")?;
    stage.show(node, "dpkg-query -W containerd; ctr tasks ls")?;
    stage.show(node, "nodelet history | cut -c 1-110")
}

/// What the node installs.
struct Software {
    repository: Repository,
    server: FileServer,
    /// containerd's: Debian's, and the same files under two higher numbers.
    versions: [String; 3],
}

impl Software {
    fn prepare(slot: &Slot) -> Result<Self> {
        let mut files = debian::download(&Kind::Base.image()?, &["containerd"])?;
        let is_containerd =
            |file: &&PathBuf| file.file_name().is_some_and(|name| name.to_string_lossy().starts_with("containerd_"));
        let containerd = files.iter().find(is_containerd).context("Debian's archive has no containerd")?.clone();
        let first = repackage::version(&containerd)?;
        let versions = [first.clone(), format!("{first}+demo1"), format!("{first}+demo2")];
        for version in &versions[1..] {
            files.push(repackage::as_version(&containerd, version, &slot.dir().join("repackaged"), |_| Ok(()))?);
        }
        let mut repository = Repository::new("software", slot.dir().join("software"))?;
        repository.publish_files(&files)?;
        let server = FileServer::start(slot.number().gateway(), repository.dir())?;
        Ok(Self { repository, server, versions })
    }

    /// A state with containerd in one of the versions, and more in its table.
    fn state(&self, version: usize, more: &str) -> String {
        let (version, base) = (&self.versions[version], self.server.url());
        format!(
            r#"[runtime]
kind = "containerd"
version = "{version}"
{more}
[health]
timeoutSeconds = 10

[[repositories]]
name = "software"
[repositories.apt]
uris = ["{base}/apt"]
suites = ["stable"]
components = ["main"]
key = {{ file = "/etc/nodelet/keys/software.asc" }}
"#
        )
    }

    fn reached(&self, node: &Node, version: usize) -> Result<()> {
        let version = &self.versions[version];
        let installed = format!(
            "test \"$(dpkg-query -W -f '${{Version}} ${{db:Status-Status}}' containerd)\" = '{version} installed'"
        );
        node.wait_for(&format!("containerd {version}"), SOON, &format!("{installed}; nodelet status; nodelet plan"))
            .context("nodelet did not converge")
    }
}
