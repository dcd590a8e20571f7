//! What may happen in the middle of a rollout, on the real nodes of [`Fleet`].

use std::time::Instant;

use nodelet_api::objects::SlotStep;
use serde_json::{Value, json};
use testbed::wait::Seen;

use crate::fleet::{Fleet, LIMIT, NAMES, NEEDED, PODS, budget};

const STEPS: [SlotStep; 5] =
    [SlotStep::Claimed, SlotStep::Draining, SlotStep::Applying, SlotStep::Verifying, SlotStep::Soaking];

/// The first time that a node is seen at this step.
pub(crate) fn wait_for_step(fleet: &Fleet, step: SlotStep) -> String {
    testbed::wait_until(&format!("a node at {step:?}"), LIMIT, || {
        let sight = fleet.record.look();
        let found = sight.steps.iter().find(|(_, _, seen, _)| *seen == step);
        Ok(found.map_or_else(|| Seen::not_yet(format!("{:?}", sight.steps)), |(node, ..)| Seen::Done(node.clone())))
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}", fleet.log()))
}

fn assert_gentle(fleet: &Fleet) {
    let sight = fleet.record.look();
    println!("at most {} cordoned at once, at least {} pods ready", sight.most_cordoned, sight.least_ready);
    assert!(sight.most_cordoned <= 1, "{:?}", sight.turns);
    assert!(sight.least_ready >= NEEDED, "{} pods were ready", sight.least_ready);
}

/// Whatever the controller was about to do, the next one does it.
pub(crate) fn a_controller_killed_at_every_step(fleet: &mut Fleet) {
    fleet.patch_set(&json!({"spec": {"strategy": {"soakSeconds": 1}}}));
    let before = fleet.change_with_drain();
    for step in STEPS {
        wait_for_step(fleet, step);
        fleet.controller.kill().unwrap();
        fleet.controller.start().unwrap();
    }
    fleet.wait_until_updated(&before);
    fleet.assert_left_alone(&[]);
    assert_gentle(fleet);
    let sight = fleet.record.look();
    assert_eq!(sight.turns.len(), 3, "each node is out of service once: {:?}", sight.turns);
    assert!(!sight.steps.iter().any(|(_, _, step, _)| *step == SlotStep::Failed), "{:?}", sight.steps);
}

/// Cuts the power of the node that has its turn, and gives it back; the revision before, the node, and when that was. A
/// turn takes seconds: on a busy machine it may be over before the cut comes, and then it is tried again.
fn power_cut_in_a_turn(fleet: &mut Fleet) -> (String, String, Instant) {
    fleet.patch_set(&json!({"spec": {"strategy": {"soakSeconds": 3}}}));
    for _ in 0..5 {
        fleet.record.restart();
        let before = fleet.change_with_drain();
        let node = wait_for_step(fleet, SlotStep::Claimed);
        let cut = Instant::now();
        fleet.node(&node).power_cut().unwrap();
        let in_time = fleet.record.look().visited() == [node.clone()];
        fleet.node(&node).power_on().unwrap();
        if in_time {
            return (before, node, cut);
        }
        fleet.wait_until_updated(&before);
        fleet.wait_for_workload();
    }
    panic!("the power was always cut too late");
}

/// A power cut on the first node, the API server's end on the next: the rollout waits for both.
pub(crate) fn power_and_api_server_fail_in_the_middle(fleet: &mut Fleet) {
    let (before, first, cut) = power_cut_in_a_turn(fleet);
    let off = cut.elapsed();
    let visited = fleet.record.look().visited();
    assert_eq!(visited, std::slice::from_ref(&first), "the rollout went on without it");
    fleet.patch_set(&json!({"spec": {"strategy": {"soakSeconds": 0}}}));
    testbed::wait_until("another node's turn", LIMIT, || {
        let sight = fleet.record.look();
        let found = sight.steps.iter().find(|(node, _, step, _)| *node != first && *step == SlotStep::Draining);
        Ok(found.map_or_else(|| Seen::not_yet(format!("{:?}", sight.steps)), |_| Seen::Done(())))
    })
    .unwrap_or_else(|error| panic!("{error:#}\n{}\n{}", fleet.set(), fleet.log()));
    println!(
        "{first} was without power for {:.1} s; the rollout went on {:.1} s later",
        off.as_secs_f32(),
        cut.elapsed().saturating_sub(off).as_secs_f32()
    );
    let killed = Instant::now();
    fleet.cluster.api_server.kill().unwrap();
    fleet.cluster.api_server.start().unwrap();
    fleet.cluster.wait_until_ready().unwrap();
    println!("the API server was away for {:.1} s", killed.elapsed().as_secs_f32());
    fleet.wait_until_updated(&before);
    println!("all nodes had the revision {:.1} s after it was killed", killed.elapsed().as_secs_f32());
    fleet.assert_left_alone(&[]);
    let sight = fleet.record.look();
    assert!(sight.most_cordoned <= 1, "{:?}", sight.turns);
    assert!(!sight.steps.iter().any(|(_, _, step, _)| *step == SlotStep::Failed), "{:?}", sight.steps);
}

/// A budget that allows nothing holds a drain up and is named; then a person uncordons, the policy passes nodes over, and
/// the policy breaks the budget.
pub(crate) fn a_budget_that_never_allows(fleet: &mut Fleet) {
    fleet.cluster.apply(&budget(PODS)).unwrap();
    let last = fleet.change_with_drain();
    let sentence = format!(
        "PodDisruptionBudget default/web allows 0 disruptions ({PODS} of {PODS} pods are healthy, {PODS} are needed); \
         it keeps pod default/web-"
    );
    let waits = |status: &Value| status["slots"][0]["waitingFor"].as_str().unwrap_or_default().to_owned();
    let status = fleet.wait_for_set("the budget to be named", |status| waits(status).starts_with(&sentence));
    println!("{}", waits(&status));
    let progress = status["conditions"][0]["message"].as_str().unwrap();
    assert!(progress.contains(&sentence), "{progress}");
    let first = status["slots"][0]["node"].as_str().unwrap().to_owned();
    assert_eq!(fleet.record.look().least_ready, PODS, "a pod was touched");

    // Somebody wants the node back.
    fleet.cluster.kubectl(&["uncordon", &first]).unwrap();
    let status =
        fleet.wait_for_set("the node to be passed over", |status| status["failures"][0]["node"] == first.as_str());
    assert!(status["failures"][0]["reason"].as_str().unwrap().contains("uncordoned by hand"), "{status}");

    // `Skip`: others with pods are passed over as well, and the workload never notices.
    fleet.patch_set(&json!({"spec": {"drain": {"timeoutSeconds": 1, "onTimeout": "Skip"}}}));
    let status = fleet.wait_for_set("all nodes with pods to be passed over", |status| {
        let left_out = status["failures"].as_array().map_or(0, Vec::len);
        let updated = status["updatedReplicas"].as_u64().and_then(|count| usize::try_from(count).ok());
        status["slots"].as_array().is_none_or(Vec::is_empty) && updated.unwrap_or_default() + left_out == NAMES.len()
    });
    let left_out = status["failures"].as_array().unwrap();
    println!("{}", left_out.last().unwrap()["reason"].as_str().unwrap());
    assert!(left_out.iter().all(|failure| failure["skipped"] == true), "{status}");
    assert_eq!(status["conditions"][0]["reason"], "NodesLeftOut", "{status}");
    let bad = status["badRevisions"].as_array().into_iter().flatten();
    assert!(!bad.into_iter().any(|bad| bad["revision"] == status["updateRevision"]), "{status}");
    assert_ne!(status["currentRevision"], status["updateRevision"]);
    assert_eq!(status["currentRevision"], *last);
    fleet.assert_left_alone(&[]);
    assert_eq!(fleet.record.look().least_ready, PODS, "a pod was touched");

    // `Force`: whatever the budget says.
    fleet.patch_set(&json!({"spec": {"drain": {"timeoutSeconds": 1, "onTimeout": "Force"}}}));
    let before = fleet.change_with_drain();
    fleet.wait_until_updated(&before);
    fleet.assert_left_alone(&[]);
    assert_eq!(fleet.record.look().most_cordoned, 1);
    fleet.patch_set(&json!({"spec": {"drain": null}}));
    fleet.cluster.apply(&budget(NEEDED)).unwrap();
}

/// An administrator's own cordon counts, and stays.
pub(crate) fn an_administrators_cordon_stays(fleet: &mut Fleet) {
    let own = NAMES[2];
    fleet.cluster.kubectl(&["cordon", own]).unwrap();
    let before = fleet.change_with_drain();
    // It is away already, so it goes first; after it nobody may, because one is away.
    fleet.wait_for_set("the others to wait", |status| {
        status["updatedReplicas"] == 1 && status["slots"].as_array().is_none_or(Vec::is_empty)
    });
    assert_eq!(fleet.record.look().visited(), [own]);
    fleet.patch_set(&json!({"spec": {"strategy": {"maxUnavailable": 2}}}));
    fleet.wait_until_updated(&before);
    fleet.assert_left_alone(&[own]);
    let cordoned = fleet.cluster.kubectl(&["get", "node", own, "-o", "jsonpath={.spec.unschedulable}"]).unwrap();
    assert_eq!(cordoned, "true", "the administrator's cordon is gone");
    assert_eq!(fleet.record.look().most_cordoned, 2);
    fleet.cluster.kubectl(&["uncordon", own]).unwrap();
    fleet.patch_set(&json!({"spec": {"strategy": {"maxUnavailable": 1}}}));
}
