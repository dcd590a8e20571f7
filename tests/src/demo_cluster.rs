//! `make demo-cluster`: three bare machines become nodes of a cluster by nodelet alone, and then follow it.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cluster::{Cluster, class_of, set_of_all};
use crate::demo::stage::Stage;
use crate::software::{Manager, Software};
use crate::{Node, Slot};

/// All that is waited for here takes seconds; this is for a machine that is busy.
const LIMIT: Duration = Duration::from_secs(5 * 60);
/// How often something that is watched is looked at.
const LOOK: Duration = Duration::from_millis(250);
const MACHINES: [&str; 3] = ["node-1", "node-2", "node-3"];
/// The change that is made: the kubelet's configuration, by its preset.
const CHANGE: &str = r#"{"spec":{"state":{"kubelet":{"config":{"maxPods":42}}}}}"#;

/// Runs the whole demo. Ctrl-C at any point is fine: the slot's reaper cleans up.
pub fn run() -> Result<()> {
    let mut stage = Stage::new();
    let slot = Slot::take()?;

    stage.step("Make signed apt repositories: nodelet, the kubelet, and containerd from Debian's archive");
    let software = Software::serve(&slot, Manager::Apt)?;
    stage.say(&format!(
        "The kubelet is the real one, {}. Machines have no other way out.",
        software.kubernetes_version()
    ));

    stage.step("Start a control plane, and install the node operator: its objects, its rights, its controller");
    let cluster = Cluster::start(&slot)?;
    cluster.install_operator()?;
    let controller = cluster.controller("demo")?;
    controller.start()?;
    show(&stage, &cluster, "kubectl api-resources --api-group=nodelet.dev")?;

    let nodes = machines(&mut stage, &cluster, &software)?;
    class(&mut stage, &cluster, &nodes)?;
    change(&mut stage, &cluster, &nodes)?;

    stage.step("Take the machines and the cluster away");
    drop(nodes);
    stage.end("a cluster that manages its own nodes");
    Ok(())
}

/// From nothing to Ready.
fn machines(stage: &mut Stage, cluster: &Cluster, software: &Software) -> Result<Vec<Node>> {
    stage.step("Write the machines' user data: config/cloud-init/debian.yaml with the values of this cluster");
    let user_data = cluster.user_data(software)?;
    // What the test bed's machines need beyond others is left out here.
    let wanted: Vec<&str> = user_data
        .lines()
        .skip_while(|line| !line.contains("[runtime]"))
        .take_while(|line| !line.contains("[runtime.config"))
        .map(|line| line.strip_prefix("      ").unwrap_or(line))
        .filter(|line| !line.is_empty())
        .collect();
    stage.say("The desired state in it, which nodelet finds on the disk at the first boot:");
    stage.told("cat /etc/nodelet/state.toml", &wanted.join("\n"));

    stage.step("Boot three bare machines with it, all at once, and touch nothing");
    let start = Instant::now();
    thread::scope(|scope| {
        let booting: Vec<_> =
            MACHINES.iter().map(|name| scope.spawn(move || cluster.boot_bare(name, software))).collect();
        let watched = watch(stage, cluster, "kubectl get nodes", |rows| {
            rows.len() == MACHINES.len() && rows.values().all(|row| row.contains(" Ready "))
        });
        let mut nodes = Vec::new();
        for thread in booting {
            match thread.join() {
                Ok(node) => nodes.push(node?),
                Err(_) => bail!("booting a machine ended in a panic"),
            }
        }
        watched?;
        stage.say(&format!(
            "From power-on to three Ready nodes in {:.0} s: cloud-init installed nodelet, and nodelet did the rest.",
            start.elapsed().as_secs_f32()
        ));
        Ok(nodes)
    })
}

/// The cluster takes over.
fn class(stage: &mut Stage, cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    stage.step("Say in the cluster what these nodes are: a NodeClass with the same state, and a NodeSet of all nodes");
    let first = nodes.first().context("there is no machine")?;
    let class = class_of("worker", &first.read_file("/etc/nodelet/state.toml")?)?;
    let applied = cluster.apply(&class.to_string())?;
    stage.told("kubectl apply -f worker.yaml", &applied);
    let applied = cluster.apply(&set_of_all("workers", "worker").to_string())?;
    stage.told("kubectl apply -f workers.yaml", &applied);
    watch(stage, cluster, "kubectl get nodestates", |rows| rows.len() == MACHINES.len() && all_applied(rows))?;
    stage.show(first, "nodelet history; nodelet status | head -n 5")?;
    stage.say(
        "It says the same as the file did, so no step was taken: the cluster took over, and nothing was disturbed.",
    );
    for (index, name) in MACHINES.iter().enumerate() {
        cluster.run_pod(&format!("pod-{}", index + 1), name)?;
    }
    show(stage, cluster, "kubectl get pods -o wide")
}

/// A change, and what it does not disturb.
fn change(stage: &mut Stage, cluster: &Cluster, nodes: &[Node]) -> Result<()> {
    stage.step("Change the class: at most 42 pods on a node; watch the nodes take it up");
    let before = cluster.kubectl(&["get", "nodestates", "-o", "jsonpath={.items[0].spec.revision}"])?;
    let patched = cluster.kubectl(&["patch", "nodeclass", "worker", "--type=merge", "-p", CHANGE])?;
    stage.told(&format!("kubectl patch nodeclass worker --type=merge -p '{CHANGE}'"), &patched);
    watch(stage, cluster, "kubectl get nodestates", |rows| {
        all_applied(rows) && rows.values().all(|row| !row.contains(&before))
    })?;
    for node in nodes {
        stage.show(node, "grep maxPods /var/lib/kubelet/config.yaml")?;
    }
    watch(
        stage,
        cluster,
        "kubectl get nodes -o custom-columns=NAME:.metadata.name,PODS:.status.allocatable.pods",
        |rows| rows.values().all(|row| row.ends_with("42")),
    )?;
    show(stage, cluster, "kubectl get pods")?;
    if let Some(first) = nodes.first() {
        stage.show(first, "nodelet history")?;
    }
    stage.say("The kubelets were restarted, once each; the pods went on.");
    Ok(())
}

/// Whether every row names the revision that is wanted also as the one that is applied.
fn all_applied(rows: &BTreeMap<String, String>) -> bool {
    rows.values().all(|row| {
        let words: Vec<&str> = row.split_whitespace().collect();
        // NAME, SET, STEP, WANTED, APPLIED
        words.len() > 4 && words[3] == words[4] && row.contains(" True")
    })
}

/// Runs a `kubectl` command line and shows it.
fn show(stage: &Stage, cluster: &Cluster, line: &str) -> Result<()> {
    stage.told(line, &cluster.kubectl(&words(line))?);
    Ok(())
}

/// Repeats a `kubectl get` until `done`, and shows rows that changed, as `kubectl get -w` would.
fn watch(stage: &Stage, cluster: &Cluster, line: &str, done: impl Fn(&BTreeMap<String, String>) -> bool) -> Result<()> {
    let start = Instant::now();
    let mut known: BTreeMap<String, String> = BTreeMap::new();
    let mut header = String::new();
    stage.told(&format!("{line} --watch"), "");
    loop {
        let table = cluster.kubectl(&words(line))?;
        let mut lines = table.lines();
        let title = lines.next().unwrap_or_default();
        if title != header && !title.is_empty() {
            title.clone_into(&mut header);
            stage.seen(start, title);
        }
        let rows: BTreeMap<String, String> =
            lines.filter_map(|row| Some((row.split_whitespace().next()?.to_owned(), row.to_owned()))).collect();
        for (name, row) in &rows {
            if known.get(name).map(|old| without_age(old)) != Some(without_age(row)) {
                stage.seen(start, row);
            }
        }
        known = rows;
        if done(&known) {
            return Ok(());
        }
        if start.elapsed() > LIMIT {
            bail!("waited {} s for `{line}` to show what was expected; last seen:\n{table}", LIMIT.as_secs());
        }
        thread::sleep(LOOK);
    }
}

fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().skip(1).collect()
}

/// A row without its age, which changes by itself.
fn without_age(row: &str) -> Vec<&str> {
    let is_age = |word: &&str| word.ends_with(['s', 'm', 'h']) && word.starts_with(|c: char| c.is_ascii_digit());
    row.split_whitespace().filter(|word| !is_age(word)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_news_is_shown() {
        assert_eq!(
            without_age("node-1   Ready   <none>   9s   v1.35.8"),
            without_age("node-1 Ready <none> 1m5s v1.35.8")
        );
        assert_ne!(without_age("node-1   Ready   <none>   9s"), without_age("node-1   NotReady   <none>   9s"));
    }

    #[test]
    fn applied_is_what_is_wanted() {
        let rows = |row: &str| BTreeMap::from([("n".to_owned(), row.to_owned())]);
        assert!(all_applied(&rows("n workers Apply worker-1 worker-1 None True 5s")));
        assert!(!all_applied(&rows("n workers Apply worker-2 worker-1 None True 5s")));
        assert!(!all_applied(&rows("n workers Stage worker-2 5s")));
    }
}
