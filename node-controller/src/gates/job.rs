//! Gates that run a Job. What a gate asks for is in the Job's name, so that it is asked for once, whoever asks and how often.

use super::{Asker, explain, names};
use crate::act::{GATE_LABEL, MANAGER, SET_LABEL};
use crate::world::{Held, Run};
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use kube::api::{DynamicObject, PostParams};
use kube::core::ApiResource;
use nodelet_api::objects::{GROUP, Gate, JobGate, VERSION};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

/// How long, in seconds, a Job stays at least when it is over: one that is gone before it was looked at would run again, and
/// again.
const STAYS: u32 = 3600;
/// The longest name of a Job: it becomes a label's value.
const NAME: usize = 63;
/// As many digits of the hash.
const DIGITS: usize = 10;

/// The set that a Job belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) set: String,
    pub(super) uid: String,
}

/// Passed when the Job has completed. Makes it, where it is not there.
pub(super) async fn ask(asker: &Asker, owner: &Owner, gate: &Gate, job: &JobGate, run: &Run) -> Result<(), Held> {
    let (name, namespace) = (name(owner, gate, run), job.namespace.as_str());
    names::check_namespace(namespace).map_err(|error| Held::Fails(error.to_string()))?;
    let resource = ApiResource::erase::<Job>(&());
    let title = format!("Job {namespace}/{name}");
    let fails = |error: kube::Error, verb| Held::Fails(explain(error, verb, &resource, Some(namespace)).to_string());
    let jobs: Api<Job> = Api::namespaced(asker.client.clone(), namespace);
    if let Some(found) = jobs.get_opt(&name).await.map_err(|error| fails(error, "get"))? {
        return judge(&title, &found);
    }
    let object: DynamicObject = serde_json::from_value(object(owner, gate, job, run, &name))
        .map_err(|error| Held::Fails(format!("the template is no Job: {error}")))?;
    let api: Api<DynamicObject> = Api::namespaced_with(asker.client.clone(), namespace, &resource);
    let parameters = PostParams { field_manager: Some(MANAGER.to_owned()), ..PostParams::default() };
    match api.create(&parameters, &object).await {
        Ok(_) => tracing::info!(job = title, gate = gate.name, occasion = run.occasion, "runs"),
        Err(kube::Error::Api(status)) if status.reason == "AlreadyExists" => {}
        Err(error) => return Err(fails(error, "create")),
    }
    Err(Held::Runs(format!("{title} is running")))
}

/// How far a Job is.
fn judge(title: &str, job: &Job) -> Result<(), Held> {
    let conditions = job.status.as_ref().and_then(|status| status.conditions.as_ref());
    let find = |kind: &str| conditions?.iter().find(|one| one.type_ == kind && one.status == "True");
    if find("Complete").is_some() {
        return Ok(());
    }
    if job.metadata.deletion_timestamp.is_some() {
        return Err(Held::Runs(format!("{title} is being deleted")));
    }
    match (find("Failed"), find("Suspended")) {
        (Some(failed), _) => {
            let reason = failed.reason.as_deref().unwrap_or("no reason");
            Err(Held::Fails(format!("{title} failed: {reason}; delete it to run it again")))
        }
        (None, Some(_)) => Err(Held::Runs(format!("{title} is suspended"))),
        (None, None) => Err(Held::Runs(format!("{title} is running"))),
    }
}

/// `SET-GATE-HASH`. The hash is of all that a run is about: another definition, another revision or another node is another
/// Job.
fn name(owner: &Owner, gate: &Gate, run: &Run) -> String {
    let definition = serde_json::to_string(gate).unwrap_or_default();
    let mut hash = Sha256::new();
    for part in [owner.uid.as_str(), &definition, &run.revision, &run.occasion] {
        // With its length, so that no two lists of parts are the same text.
        hash.update(part.len().to_le_bytes());
        hash.update(part);
    }
    let hash = hash.finalize();
    let hash = hash.iter().take(DIGITS / 2).fold(String::new(), |text, byte| text + &format!("{byte:02x}"));
    let words: String = format!("{}-{}", owner.set, gate.name).replace('.', "-");
    let words: String = words.chars().take(NAME - DIGITS - 1).collect();
    format!("{}-{hash}", words.trim_end_matches('-'))
}

fn object(owner: &Owner, gate: &Gate, job: &JobGate, run: &Run, name: &str) -> Value {
    let Owner { set, uid } = owner;
    let labels = json!({SET_LABEL: label(set), GATE_LABEL: gate.name});
    let mut spec = job.template.spec.clone();
    let stays = spec.entry("ttlSecondsAfterFinished").or_insert(json!(STAYS));
    if stays.as_i64().is_some_and(|seconds| seconds < i64::from(STAYS)) {
        *stays = json!(STAYS);
    }
    // Its pods are known by them, too.
    let pods = spec.entry("template").or_insert_with(|| json!({}));
    merge(pods, "metadata", "labels", &labels);
    let mut object = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": job.template.metadata, "spec": spec,
    });
    merge(&mut object, "metadata", "labels", &labels);
    let about = json!({"nodelet.dev/revision": run.revision, "nodelet.dev/occasion": run.occasion});
    merge(&mut object, "metadata", "annotations", &about);
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!(job.namespace);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "NodeSet", "name": set, "uid": uid,
        "controller": true, "blockOwnerDeletion": false,
    }]);
    object
}

/// Adds to a table two levels below. What is no table is left to the API server, which says so better.
fn merge(object: &mut Value, first: &str, second: &str, more: &Value) {
    let Some(outer) = object.as_object_mut() else { return };
    let Some(inner) = outer.entry(first).or_insert_with(|| Value::Object(Map::new())).as_object_mut() else { return };
    let table = inner.entry(second).or_insert_with(|| Value::Object(Map::new()));
    if let (Some(table), Some(more)) = (table.as_object_mut(), more.as_object()) {
        table.extend(more.clone());
    }
}

/// A label's value is shorter than a set's name may be.
fn label(set: &str) -> String {
    set.chars().take(NAME).collect::<String>().trim_end_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn gate() -> Gate {
        serde_json::from_value(json!({"name": "smoke", "job": {"namespace": "shop", "template": {
            "metadata": {"labels": {"team": "shop"}},
            "spec": {"backoffLimit": 0, "template": {"spec": {"restartPolicy": "Never", "containers": []}}},
        }}}))
        .unwrap()
    }

    fn owner() -> Owner {
        Owner { set: "workers".into(), uid: "u-1".into() }
    }

    fn run(revision: &str, occasion: &str) -> Run {
        Run { gate: "smoke".into(), revision: revision.into(), occasion: occasion.into() }
    }

    #[test]
    fn the_name_says_what_it_is_for() {
        let first = name(&owner(), &gate(), &run("r1", Run::BEFORE));
        assert!(first.starts_with("workers-smoke-") && first.len() == "workers-smoke-".len() + DIGITS, "{first}");
        assert_eq!(first, name(&owner(), &gate(), &run("r1", Run::BEFORE)), "asked for twice, it is one");
        let mut other = gate();
        other.job.as_mut().unwrap().template.spec.insert("parallelism".into(), json!(2));
        let names = [
            first,
            name(&owner(), &gate(), &run("r2", Run::BEFORE)),
            name(&owner(), &gate(), &run("r1", "uid-of-a-node")),
            name(&Owner { uid: "u-2".into(), ..owner() }, &gate(), &run("r1", Run::BEFORE)),
            name(&owner(), &other, &run("r1", Run::BEFORE)),
        ];
        assert_eq!(names.iter().collect::<std::collections::BTreeSet<_>>().len(), 5, "{names:?}");
        let long = Owner { set: format!("{}.b", "a".repeat(51)), uid: String::new() };
        let long = name(&long, &gate(), &run("r", Run::BEFORE));
        assert!(long.len() <= NAME && !long.contains('.') && !long.contains("--"), "{long}");
    }

    #[test]
    fn the_job_is_the_template_with_what_it_belongs_to() {
        let (gate, run) = (gate(), run("r1", "n-1"));
        let made = object(&owner(), &gate, gate.job.as_ref().unwrap(), &run, "j");
        assert_eq!(made["metadata"]["labels"]["team"], "shop");
        assert_eq!(made["metadata"]["labels"][SET_LABEL], "workers");
        assert_eq!(made["spec"]["template"]["metadata"]["labels"][GATE_LABEL], "smoke");
        assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "u-1");
        assert_eq!(
            (&made["spec"]["ttlSecondsAfterFinished"], &made["spec"]["backoffLimit"]),
            (&json!(3600), &json!(0))
        );
        let mut own = gate.clone();
        for (written, expected) in [(0, 3600), (5, 3600), (7200, 7200)] {
            own.job.as_mut().unwrap().template.spec.insert("ttlSecondsAfterFinished".into(), json!(written));
            let made = object(&owner(), &own, own.job.as_ref().unwrap(), &run, "j");
            assert_eq!(made["spec"]["ttlSecondsAfterFinished"], expected);
        }
    }

    #[test]
    fn a_job_runs_passes_or_fails() {
        let job = |kind: &str, reason: &str| -> Job {
            let condition = json!({"type": kind, "status": "True", "reason": reason});
            serde_json::from_value(json!({"status": {"conditions": [condition]}})).unwrap()
        };
        let runs = |words: &str| Err(Held::Runs(words.to_owned()));
        assert_eq!(judge("Job a/b", &job("Complete", "")), Ok(()));
        assert_eq!(judge("Job a/b", &Job::default()), runs("Job a/b is running"));
        assert_eq!(judge("Job a/b", &job("Suspended", "")), runs("Job a/b is suspended"));
        let failed = "Job a/b failed: BackoffLimitExceeded; delete it to run it again";
        assert_eq!(judge("Job a/b", &job("Failed", "BackoffLimitExceeded")), Err(Held::Fails(failed.to_owned())));
    }
}
