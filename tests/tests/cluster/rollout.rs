//! Rollouts over real nodes with real kubelets, and what they promise to those who run on them.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use nodelet_api::objects::SlotStep;
use serde_json::{Value, json};
use testbed::Node;
use testbed::cluster::{Requests, SHOP, SHOP_PODS};

use crate::fleet::{Fleet, NAMES, NEEDED, marker};
use crate::rollout_faults as faults;
use crate::rollout_gates as gates;

/// A part of the test.
type Part = fn(&mut Fleet);

/// One scene for all of it: three bare machines take most of a minute to become nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rollouts_keep_their_promises() {
    let start = Instant::now();
    let mut fleet = Fleet::new().await;
    println!("three nodes and their workload are ready after {} s", start.elapsed().as_secs());
    let parts: [(&str, Part); 8] = [
        ("a restart disturbs no container", a_restart_disturbs_no_container),
        ("an upgrade with a drain", an_upgrade_with_a_drain),
        ("a kubelet that crashes", a_kubelet_that_crashes),
        ("Jobs and units at gates", gates::jobs_and_units_at_gates),
        ("a controller killed at every step", faults::a_controller_killed_at_every_step),
        ("power and API server fail", faults::power_and_api_server_fail_in_the_middle),
        ("a budget that never allows", faults::a_budget_that_never_allows),
        ("an administrator's cordon", faults::an_administrators_cordon_stays),
    ];
    for (name, part) in parts {
        let start = Instant::now();
        fleet.wait_for_workload();
        fleet.record.restart();
        part(&mut fleet);
        println!("{name}: {:.1} s", start.elapsed().as_secs_f32());
    }
}

/// An upgrade of the kubelet is a restart: all pods go on, and no node is cordoned.
fn a_restart_disturbs_no_container(fleet: &mut Fleet) {
    let (containers, version) = (fleet.containers(), fleet.versions[1].clone());
    let before = fleet.change(|state| state["kubelet"]["version"] = json!(version));
    fleet.wait_until_updated(&before);
    assert_eq!(fleet.kubelets(), BTreeSet::from([version]));
    assert_eq!(fleet.containers(), containers, "containers were touched");
    let sight = fleet.record.look();
    assert_eq!((sight.most_cordoned, sight.visited().len()), (0, 3));
    assert!(sight.least_ready >= NEEDED, "{}", sight.least_ready);
}

/// The kubelet and containerd are upgraded, one node after another, the workload's budget holds all the time, and nobody who
/// asks a web server on them is left without an answer.
fn an_upgrade_with_a_drain(fleet: &mut Fleet) {
    let slot = fleet.cluster.slot().clone();
    fleet.cluster.open_shop(&fleet.nodes).unwrap();
    let requests = Requests::start(&fleet.cluster, SHOP).unwrap();
    let containerd = fleet.software.add_containerd(&slot).unwrap();
    // Nobody reads the lists of the distribution's archive again: nodelet does, when it finds no such version.
    let version = fleet.versions[2].clone();
    let before = fleet.change(|state| {
        state["kubelet"]["version"] = json!(version);
        state["runtime"]["version"] = json!(containerd);
        marker(state, "upgrade\n");
    });
    fleet.wait_until_updated(&before);
    assert_eq!(fleet.kubelets(), BTreeSet::from([version]));
    for node in &fleet.nodes {
        let installed = node.run(&["dpkg-query", "-W", "-f", "${Version}", "containerd"]).unwrap();
        assert_eq!(installed, containerd, "{}", node.name());
    }
    fleet.assert_left_alone(&[]);
    let tally = requests.end().unwrap();
    println!("{tally}");
    assert!(tally.failures.is_empty(), "{tally}: {:?}", tally.failures);
    assert!(tally.pods.len() > SHOP_PODS, "no pod of the shop had to move");
    fleet.cluster.close_shop().unwrap();
    let sight = fleet.record.look();
    println!("at most {} cordoned at once, at least {} pods ready", sight.most_cordoned, sight.least_ready);
    assert_eq!((sight.most_cordoned, sight.turns.len()), (1, 3), "{:?}", sight.turns);
    assert!(sight.least_ready >= NEEDED, "{} pods were ready", sight.least_ready);
    for turn in &sight.turns {
        let whole = turn.until.unwrap() - turn.from;
        let drain = sight.at(&turn.node, SlotStep::Applying).unwrap() - turn.from;
        let change = bare_change(fleet.node(&turn.node));
        let ratio = whole.as_secs_f32() / (drain + change).as_secs_f32();
        println!(
            "{}: out of service for {:.1} s; the drain took {:.1} s, the change itself {:.1} s: {ratio:.2} times their sum",
            turn.node,
            whole.as_secs_f32(),
            drain.as_secs_f32(),
            change.as_secs_f32(),
        );
        // 1.3 on a machine that does nothing else.
        assert!(ratio <= 2.0, "{ratio:.2}");
    }
}

/// How long the last change of packages took on the node, by its own journal: from the grant until all was done and well.
fn bare_change(node: &Node) -> Duration {
    let journal = node.run(&["journalctl", "-u", "nodelet", "-o", "json", "--no-pager"]).unwrap();
    let entries: Vec<(Duration, String)> = journal
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter_map(|entry| {
            let microseconds = entry["__REALTIME_TIMESTAMP"].as_str()?.parse().ok()?;
            Some((Duration::from_micros(microseconds), entry["MESSAGE"].as_str()?.to_owned()))
        })
        .collect();
    let changed = entries.iter().rposition(|(_, message)| message.starts_with("change ")).unwrap();
    let (before, after) = entries.split_at(changed);
    let granted = before.iter().rfind(|(_, message)| message == "the cluster asks for something else").unwrap().0;
    after.iter().find(|(_, message)| message == "converged").unwrap().0.saturating_sub(granted)
}

/// A revision with a kubelet that does not stay up: one node is touched, and comes back by itself.
fn a_kubelet_that_crashes(fleet: &mut Fleet) {
    let slot = fleet.cluster.slot().clone();
    let program = slot.dir().join("broken-kubelet");
    std::fs::write(&program, "#!/bin/sh\nexit 1\n").unwrap();
    let good = fleet.versions[2].clone();
    let broken = format!("{good}0");
    fleet.software.add_kubelet(&slot, &program, &broken).unwrap();
    let kept = fleet.class.clone();
    let processes = |fleet: &Fleet| -> Vec<String> {
        let process = |node: &Node| node.run(&["systemctl", "show", "-P", "MainPID", "kubelet"]).unwrap();
        fleet.nodes.iter().map(process).collect()
    };
    let before = processes(fleet);
    let last = fleet.change(|state| {
        state["kubelet"]["version"] = json!(broken);
        state["health"] = json!({"timeoutSeconds": 15});
        marker(state, "broken\n");
    });
    let status = fleet.wait_for_set("the revision to be found bad, and nothing under way", |status| {
        status["badRevisions"].as_array().is_some_and(|bad| !bad.is_empty())
            && status["slots"].as_array().is_none_or(Vec::is_empty)
            && status["updateRevision"] == *last
            && status["updatedReplicas"] == 3
    });
    let visited = fleet.record.look().visited();
    assert_eq!(visited.len(), 1, "{visited:?}");
    let condition = |kind: &str| -> Value {
        let all = status["conditions"].as_array().unwrap();
        all.iter().find(|one| one["type"] == kind).cloned().unwrap_or_default()
    };
    println!("Degraded: {}\nProgressing: {}", condition("Degraded"), condition("Progressing"));
    assert_eq!(condition("Degraded")["reason"], "RevisionFailed");
    assert_eq!(condition("Progressing")["reason"], "RolledBack");
    assert!(condition("Degraded")["message"].as_str().unwrap().contains(&visited[0]));
    let touched: Vec<&str> = NAMES
        .iter()
        .zip(before.iter().zip(processes(fleet)))
        .filter(|(_, (before, now))| *before != now)
        .map(|(name, _)| *name)
        .collect();
    assert_eq!(touched, visited, "whose kubelet is another one");
    let ready = |fleet: &Fleet| {
        let words = ["wait", "--for=condition=Ready", "--timeout=60s", "node", "-l", "kubernetes.io/os=linux"];
        fleet.cluster.kubectl(&words).unwrap()
    };
    ready(fleet);
    assert_eq!(fleet.kubelets(), BTreeSet::from([good]));
    fleet.assert_left_alone(&[]);
    {
        let sight = fleet.record.look();
        assert!(sight.most_cordoned <= 1 && sight.least_ready >= NEEDED, "{} pods ready", sight.least_ready);
    }
    let applied = fleet.cluster.node_state(&visited[0]).unwrap();
    assert_eq!(applied["status"]["applied"]["revision"], *last);
    // Corrected: all is as before, and nobody has to do anything.
    fleet.class = kept;
    fleet.change(|_| ());
    fleet.wait_for_set("the set to be well again", |status| {
        status["conditions"].as_array().unwrap().iter().any(|one| one["reason"] == "Updated")
            && status["conditions"].as_array().unwrap().iter().all(|one| one["reason"] != "RevisionFailed")
    });
}
