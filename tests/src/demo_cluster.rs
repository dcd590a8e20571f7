//! `make demo-cluster`: three bare machines become nodes by nodelet alone, and then their software is upgraded and broken
//! under a shop whose customers never stop asking.

mod broken;
mod live;
mod upgrade;

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::cluster::{Cluster, Component, Cordons, Requests, class_of, set_of_all};
use crate::command::run as run_command;
use crate::demo::stage::Stage;
use crate::software::{Manager, Software};
use crate::{Node, Slot, kubernetes};

/// All that is waited for here takes seconds; this is for a machine that is busy.
const LIMIT: Duration = Duration::from_secs(5 * 60);
const MACHINES: [&str; 3] = ["node-1", "node-2", "node-3"];
/// What nodes are, as `kubectl get nodes -o wide` shows it, without what is the same everywhere.
const VERSIONS: &str = "kubectl get nodes -o custom-columns=NAME:.metadata.name,\
                        READY:.status.conditions[?(@.type==\"Ready\")].status,KUBELET:.status.nodeInfo.kubeletVersion,\
                        RUNTIME:.status.nodeInfo.containerRuntimeVersion";

/// What is on the stage. It goes in this order: with the cluster goes the slot, and with that the bridge that the others are
/// on.
struct Show {
    stage: Stage,
    nodes: Vec<Node>,
    software: Software,
    /// It acts for as long as the slot is there.
    _controller: Component,
    cluster: Cluster,
    /// The kubelets that there are: what nodes begin with, what they go to, and one that is broken.
    kubelets: [String; 3],
}

/// Those who would notice.
struct Witnesses {
    requests: Requests,
    cordons: Cordons,
}

/// Runs the whole demo. Ctrl-C at any point is fine: the slot's reaper cleans up.
pub fn run() -> Result<()> {
    let mut show = Show::open()?;
    show.machines()?;
    show.class()?;
    let witnesses = show.shop()?;
    let release = show.plan()?;
    show.upgrade(&witnesses)?;
    show.broken(&witnesses)?;
    show.correct(&release)?;
    show.account(&witnesses.requests.end()?)?;

    show.stage.step("Take the machines and the cluster away");
    drop(show.nodes);
    show.stage.end("a cluster that upgrades its own nodes");
    Ok(())
}

impl Show {
    /// Repositories and a control plane.
    fn open() -> Result<Self> {
        let mut stage = Stage::new();
        let slot = Slot::take()?;
        let binaries = kubernetes::binaries()?;
        let kubelets = binaries.patches()?;

        stage.step("Make signed apt repositories: nodelet, the kubelet, and containerd from Debian's archive");
        let first = binaries.kubelet_renumbered(&kubelets[0], &slot.dir().join("kubelets"))?;
        let software = Software::serve_kubelet(&slot, Manager::Apt, &first, kubelets[0].clone())?;
        stage.say(&format!(
            "The kubelet is the real {}, here under the number {}. Machines have no other way out.",
            binaries.version().trim_start_matches('v'),
            kubelets[0]
        ));

        stage.step("Start a control plane, and install the node operator: its objects, its rights, its controller");
        let cluster = Cluster::start(&slot)?;
        cluster.install_operator()?;
        let controller = cluster.controller("demo")?;
        controller.start()?;
        let show = Self { stage, nodes: Vec::new(), software, _controller: controller, cluster, kubelets };
        show.kubectl("kubectl api-resources --api-group=nodelet.dev")?;
        Ok(show)
    }

    /// From nothing to Ready.
    fn machines(&mut self) -> Result<()> {
        self.stage.step("Boot three bare machines with config/cloud-init/debian.yaml as user data, and touch nothing");
        let user_data = self.cluster.user_data(&self.software)?;
        // What the test bed's machines need beyond others is left out here.
        let wanted: Vec<&str> = user_data
            .lines()
            .skip_while(|line| !line.contains("[runtime]"))
            .take_while(|line| !line.contains("[kubelet.bootstrap]"))
            .map(|line| line.strip_prefix("      ").unwrap_or(line))
            .filter(|line| !line.is_empty())
            .collect();
        self.stage.told("head -n 5 /etc/nodelet/state.toml", &wanted.join("\n"));
        let start = Instant::now();
        let (cluster, software) = (&self.cluster, &self.software);
        self.nodes = thread::scope(|scope| {
            let booting: Vec<_> =
                MACHINES.iter().map(|name| scope.spawn(move || cluster.boot_bare(name, software))).collect();
            let watched = self.watch("kubectl get nodes", |rows| {
                rows.len() == MACHINES.len() && rows.values().all(|row| row.contains(" Ready "))
            });
            let mut nodes = Vec::new();
            for thread in booting {
                match thread.join() {
                    Ok(node) => nodes.push(node?),
                    Err(_) => bail!("booting a machine ended in a panic"),
                }
            }
            watched.map(|()| nodes)
        })?;
        self.stage.say(&format!(
            "From power-on to three Ready nodes in {:.0} s: cloud-init installed nodelet, and nodelet did the rest.",
            start.elapsed().as_secs_f32()
        ));
        Ok(())
    }

    /// The cluster takes over.
    fn class(&mut self) -> Result<()> {
        self.stage.step("Say in the cluster what these nodes are: a NodeClass with the same state, and a NodeSet");
        let first = self.nodes.first().context("there is no machine")?;
        let class = class_of("worker", &first.read_file("/etc/nodelet/state.toml")?)?;
        self.apply("worker.yaml", &class.to_string())?;
        let mut set = set_of_all("workers", "worker");
        set["spec"]["strategy"] = upgrade::strategy();
        self.apply("workers.yaml", &set.to_string())?;
        self.cluster.wait_until_applied(&MACHINES, None)?;
        self.kubectl("kubectl nodes status")?;
        self.stage.show(first, "nodelet history")?;
        self.stage.say(
            "It says the same as the file did, so no step was taken: the cluster took over, and nothing was disturbed.",
        );
        Ok(())
    }

    /// Runs a line of `kubectl` and shows it.
    fn kubectl(&self, line: &str) -> Result<()> {
        let output = self.ask(line)?;
        // Its name alone would do: nobody needs to read a path of JSON.
        let shown = if line == VERSIONS { "kubectl get nodes -o custom-columns=…" } else { line };
        self.stage.told(shown, &output);
        Ok(())
    }

    /// Runs a line of `kubectl`.
    fn ask(&self, line: &str) -> Result<String> {
        let words: Vec<&str> = line.split_whitespace().skip(1).collect();
        match words.as_slice() {
            ["nodes", words @ ..] => run_command(&mut self.cluster.kubectl_nodes(words)?),
            words => self.cluster.kubectl(words),
        }
    }

    /// Applies a manifest and shows that.
    fn apply(&self, file: &str, manifest: &str) -> Result<()> {
        self.stage.told(&format!("kubectl apply -f {file}"), &self.cluster.apply(manifest)?);
        Ok(())
    }

    /// Changes the set and shows that.
    fn change_set(&self, spec: &Value) -> Result<()> {
        let change = json!({"spec": spec}).to_string();
        let patched = self.cluster.kubectl(&["patch", "nodeset", "workers", "--type=merge", "-p", &change])?;
        self.stage.told(&format!("kubectl patch nodeset workers --type=merge -p '{change}'"), &patched);
        Ok(())
    }

    /// Changes the class by a file, which is shown.
    fn change_class(&self, file: &str, change: &str) -> Result<()> {
        let path = self.cluster.slot().dir().join(file);
        std::fs::write(&path, change).with_context(|| format!("writing {}", path.display()))?;
        self.stage.told(&format!("cat {file}"), change);
        let words = ["patch", "nodeclass", "worker", "--type=merge", "--patch-file"];
        let patched = self.cluster.kubectl(&[&words[..], &[&path.display().to_string()]].concat())?;
        self.stage.told(&format!("kubectl {} {file}", words.join(" ")), &patched);
        Ok(())
    }
}
