//! Gates that speak of nodes, on the real nodes of [`Fleet`]: Jobs with real pods, and units of systemd.

use std::collections::BTreeSet;
use std::time::Instant;

use nodelet_api::objects::SlotStep;
use serde_json::{Value, json};
use testbed::cluster::BUSYBOX;
use testbed::wait::Seen;

use crate::fleet::{Fleet, LIMIT};
use crate::rollout_faults::wait_for_step;

/// A change that restarts, and does not drain.
fn change(fleet: &mut Fleet, content: &str) -> String {
    fleet.change(|state| {
        let files = state["files"].as_array_mut().unwrap();
        files.retain(|file| file["path"] != "/etc/fleet-gates");
        files.push(json!({"path": "/etc/fleet-gates", "content": content, "onChange": "Restart"}));
    })
}

fn said(status: &Value) -> String {
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let progressing = conditions.into_iter().find(|one| one["type"] == "Progressing");
    progressing.map(|one| one["message"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

/// A Job before the first node, and one after each; and a unit that must be active. A Job that fails lets nothing begin, and a
/// unit that ends after the change keeps the next node from its turn, until it runs again.
pub(crate) fn jobs_and_units_at_gates(fleet: &mut Fleet) {
    for node in &fleet.nodes {
        let unit = "[Service]\nExecStart=/bin/sleep infinity\n";
        node.write_file("/etc/systemd/system/probe.service", unit, 0o644).unwrap();
        node.run(&["systemctl", "daemon-reload"]).unwrap();
        node.run(&["systemctl", "start", "probe.service"]).unwrap();
    }
    set_gates(fleet, &[smoke("exit 1")]);
    let before = change(fleet, "gates\n");
    let status = fleet.wait_for_set("the missing right, in words", |status| {
        said(status).contains("bind a Role to node-controller that lets it create jobs.batch in default")
    });
    println!("{}", said(&status));
    allow_jobs(fleet);
    let status = fleet.wait_for_set("the Job to fail", |status| {
        said(status).contains("failed: BackoffLimitExceeded; delete it to run it again")
    });
    println!("{}", said(&status));
    assert!(fleet.record.look().visited().is_empty(), "a turn began");

    // Another definition is another Job.
    let start = Instant::now();
    let units = json!({"name": "units", "units": ["probe.service", "kubelet.service"]});
    set_gates(fleet, &[smoke("exit 0"), units]);
    let first = wait_for_step(fleet, SlotStep::Soaking);
    // The next controller knows from the names which Jobs were run already.
    fleet.controller.kill().unwrap();
    fleet.controller.start().unwrap();
    let killed = Instant::now();
    fleet.node(&first).run(&["systemctl", "kill", "--signal=KILL", "probe.service"]).unwrap();
    fleet.wait_for_set("the unit's name", |status| status["slots"][0]["waitingFor"] == "probe.service is failed");
    println!("the end of a unit is in the set's status after {:.1} s", killed.elapsed().as_secs_f32());
    let state = fleet.cluster.node_state(&first).unwrap();
    let reported = state["status"]["units"].as_array().unwrap();
    assert_eq!(reported.len(), 2, "{reported:?}");
    assert!(reported.iter().any(|unit| unit["name"] == "kubelet.service" && unit["state"] == "active"), "{reported:?}");
    testbed::wait_until("the node's Job, after which only the unit holds it", LIMIT, || {
        let done = succeeded(fleet).len();
        Ok(if done == 2 { Seen::Done(()) } else { Seen::not_yet(format!("{done} Jobs have succeeded")) })
    })
    .unwrap();
    assert_eq!(fleet.set()["status"]["slots"][0]["waitingFor"], "probe.service is failed");
    assert_eq!(fleet.record.look().visited(), std::slice::from_ref(&first), "the rollout went on without it");
    fleet.node(&first).run(&["systemctl", "start", "probe.service"]).unwrap();
    fleet.wait_until_updated(&before);
    println!("three nodes, four Jobs: {:.1} s", start.elapsed().as_secs_f32());

    let set = fleet.set();
    let mut occasions = BTreeSet::new();
    for job in succeeded(fleet) {
        let metadata = &job["metadata"];
        assert!(metadata["name"].as_str().unwrap().starts_with("workers-smoke-"), "{metadata}");
        assert_eq!(metadata["labels"]["nodelet.dev/node-set"], "workers");
        assert_eq!(metadata["ownerReferences"][0]["uid"], set["metadata"]["uid"]);
        assert_eq!(metadata["annotations"]["nodelet.dev/revision"], set["status"]["updateRevision"]);
        assert_eq!(job["spec"]["ttlSecondsAfterFinished"], 3600);
        assert!(occasions.insert(metadata["annotations"]["nodelet.dev/occasion"].to_string()), "twice: {metadata}");
    }
    assert_eq!(occasions.len(), 4, "one before and one after each: {occasions:?}");
    set_gates(fleet, &[]);
    for node in &fleet.nodes {
        node.run(&["systemctl", "stop", "probe.service"]).unwrap();
    }
}

fn set_gates(fleet: &Fleet, gates: &[Value]) {
    fleet.patch_set(&json!({"spec": {"health": {"gates": gates}}}));
}

/// A gate with a Job that runs this script.
fn smoke(script: &str) -> Value {
    let container = json!({
        "name": "main", "image": BUSYBOX, "imagePullPolicy": "Never", "command": ["sh", "-c", script],
    });
    let pod = json!({
        "restartPolicy": "Never", "automountServiceAccountToken": false, "terminationGracePeriodSeconds": 1,
        "containers": [container],
    });
    let template = json!({"spec": {"backoffLimit": 0, "template": {"spec": pod}}});
    json!({"name": "smoke", "job": {"namespace": "default", "template": template}})
}

/// The Jobs of the gate that have succeeded.
fn succeeded(fleet: &Fleet) -> Vec<Value> {
    let text = fleet.cluster.kubectl(&["get", "jobs", "-l", "nodelet.dev/gate=smoke", "-o", "json"]).unwrap();
    let jobs: Value = serde_json::from_str(&text).unwrap();
    jobs["items"].as_array().unwrap().iter().filter(|job| job["status"]["succeeded"] == 1).cloned().collect()
}

/// As the documentation has it.
fn allow_jobs(fleet: &Fleet) {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role",
        "metadata": {"name": "node-controller-jobs", "namespace": "default"},
        "rules": [{"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["get", "create"]}],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
        "metadata": {"name": "node-controller-jobs", "namespace": "default"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "node-controller-jobs"},
        "subjects": [{"kind": "ServiceAccount", "name": "node-controller", "namespace": "nodelet-system"}],
    });
    fleet.cluster.apply(&role.to_string()).unwrap();
    fleet.cluster.apply(&binding.to_string()).unwrap();
}
