//! A node whose next revision may not come yet: it is kept at the one that it has.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;

use crate::scene::{SOON, Scene, one_file};

const ROLE: &str = "waiting";
const SET: &str = "waitings";

/// The time of day twelve hours away, which no window of a minute reaches now.
fn far_away() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(12 * 3600);
    let minutes = seconds.as_secs() / 60 % (24 * 60);
    format!("{:02}:{:02}", minutes / 60, minutes % 60)
}

#[test]
fn drift_is_repaired_while_the_next_revision_waits() {
    let scene = Scene::shared();
    let node = scene.node_of("waits", ROLE);
    scene.class_of(ROLE, &one_file("one"));
    scene.set_of(ROLE);
    scene.wait_until_applied_of(ROLE, &["waits"], SOON);
    let windows = |windows: &serde_json::Value| {
        let patch = json!({"spec": {"windows": windows}}).to_string();
        scene.cluster.kubectl(&["patch", "nodeset", SET, "--type=merge", "-p", &patch]).unwrap();
    };
    windows(&json!([{"start": far_away(), "durationMinutes": 1}]));
    scene.class_of(ROLE, &one_file("two"));
    scene.wait_for_object("the next revision to be ready", "nodestate", "waits", |state| {
        let wanted = &state["spec"]["revision"];
        *wanted != state["status"]["applied"]["revision"] && *wanted == state["status"]["staged"]["revision"]
    });
    scene.wait_for_object("the set to wait for its window", "nodeset", SET, |set| {
        set["status"]["conditions"][0]["reason"] == "WaitingForWindow"
    });
    let is_one = "test \"$(cat /etc/from-cluster)\" = 'one waits'";
    node.run_sh("echo drift >/etc/from-cluster").unwrap();
    node.wait_for("the repair", SOON, is_one).unwrap();

    // A repair that is cut off is gone on with, and lets nothing in that has no grant.
    node.run_sh("systemctl stop nodelet; echo drift >/etc/from-cluster").unwrap();
    let cut = node.exec(&["env", "NODELET_FAULT=begun:1", "nodelet", "apply"]).unwrap();
    assert!(cut.text().contains("as NODELET_FAULT asks"), "{}", cut.text());
    node.run_sh("systemctl start nodelet").unwrap();
    node.wait_for("the repair", SOON, is_one).unwrap();
    node.wait_for("its word for it", SOON, "nodelet status | grep -q Staged").unwrap();
    node.run_sh(is_one).unwrap();
    let applied = node.exec(&["nodelet", "apply"]).unwrap();
    assert!(applied.code() == 1 && applied.stdout.contains("is not applied yet: it waits for"), "{}", applied.text());

    windows(&json!(null));
    scene.wait_until_applied_of(ROLE, &["waits"], SOON);
    node.run_sh("test \"$(cat /etc/from-cluster)\" = 'two waits'").unwrap();
}
