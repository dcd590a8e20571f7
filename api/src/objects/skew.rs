//! What the version before this one knows of a `NodeState`. Controllers, nodelets and definitions are upgraded one after
//! the other, and each must get on with others that are one minor version older:
//!
//! - whoever reads an object takes no notice of fields that it does not know;
//! - but a nodelet of 0.1 refuses a spec with such a field, so it is handed none;
//! - and the API server refuses a status with a field that its definitions don't have, so that is said without it.

use super::{NodeStateSpec, NodeStateStatus, Step};
use serde::de::IntoDeserializer;
use serde::de::value::Error;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The fields of a spec in 0.1.
const SPEC: [&str; 9] = [
    "nodeSetRef.name",
    "classRef.name",
    "revision",
    "step",
    "grant.id",
    "grant.revision",
    "grant.disruption",
    "secrets.name",
    "secrets.version",
];
/// The steps in 0.1.
const STEPS: [&str; 3] = ["Hold", "Stage", "Apply"];
/// The fields of a status in 0.1.
const STATUS: [&str; 29] = [
    "observedGeneration",
    "nodeletVersion",
    "bootID",
    "os.id",
    "os.versionID",
    "os.kernel",
    "os.packageManager",
    "staged.revision",
    "staged.disruption",
    "staged.plan",
    "applied.revision",
    "applied.at",
    "applied.secrets",
    "lastGood.revision",
    "steps.what",
    "steps.result",
    "steps.at",
    "waitingFor",
    "packages.name",
    "packages.version",
    "identity.machineID",
    "identity.key",
    "identity.notAfter",
    "conditions.type",
    "conditions.status",
    "conditions.reason",
    "conditions.message",
    "conditions.lastTransitionTime",
    "conditions.observedGeneration",
];

impl NodeStateSpec {
    /// As a nodelet of this version can read it; it says its version in its status. One that has said nothing yet may
    /// be an old one.
    #[must_use]
    pub fn for_nodelet(self, version: &str) -> Self {
        if reads_unknown_fields(version) {
            return self;
        }
        let Ok(mut spec) = serde_json::to_value(&self) else { return self };
        if !spec["step"].as_str().is_some_and(|step| STEPS.contains(&step)) {
            // What it can't do is not asked of it; it makes the revision ready, and waits.
            spec["step"] = Value::from("Stage");
            spec["grant"] = Value::Null;
        }
        serde_json::from_value(reduced(spec, &SPEC, "")).unwrap_or(self)
    }
}

impl NodeStateStatus {
    /// Without what definitions of 0.1 don't have.
    #[must_use]
    pub fn least(&self) -> Self {
        let reduced = serde_json::to_value(self).map(|status| reduced(status, &STATUS, ""));
        reduced.and_then(serde_json::from_value).unwrap_or_else(|_| self.clone())
    }
}

/// Reads a step. A newer controller may ask for one that is not known here: the node stays as it is.
pub(super) fn step_or_hold<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Step, D::Error> {
    let text = String::deserialize(deserializer)?;
    let known: Result<Step, Error> = Step::deserialize(text.as_str().into_deserializer());
    Ok(known.unwrap_or(Step::Hold))
}

/// Whether a nodelet takes no notice of fields that it does not know: since 0.2.
fn reads_unknown_fields(version: &str) -> bool {
    let mut numbers = version.split('.').map_while(|number| number.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(0), Some(2))
}

/// A value with these fields alone.
fn reduced(value: Value, fields: &[&str], path: &str) -> Value {
    match value {
        Value::Object(entries) => {
            let below = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            let known = |name: &str| {
                let (exact, inside) = (below(name), format!("{}.", below(name)));
                fields.iter().any(|field| *field == exact || field.starts_with(&inside))
            };
            let kept = entries.into_iter().filter(|(name, _)| known(name));
            Value::Object(kept.map(|(name, value)| (name.clone(), reduced(value, fields, &below(&name)))).collect())
        }
        Value::Array(entries) => Value::Array(entries.into_iter().map(|entry| reduced(entry, fields, path)).collect()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::super::{Grant, NodeSetSpec, NodeState};
    use super::*;
    use crate::state::Disruption;
    use serde_json::json;

    fn granted() -> NodeStateSpec {
        let grant = Grant { id: "1".into(), revision: "a".into(), disruption: Disruption::Drain };
        NodeStateSpec { revision: Some("a".into()), step: Step::Apply, grant: Some(grant), ..NodeStateSpec::default() }
    }

    #[test]
    fn what_is_not_known_is_no_obstacle() {
        let state: NodeState = serde_json::from_value(json!({
            "apiVersion": "nodelet.dev/v1alpha1", "kind": "NodeState", "metadata": {"name": "n"},
            "spec": {
                "revision": "a", "step": "Apply", "later": {"x": 1},
                "grant": {"id": "1", "revision": "a", "disruption": "Drain", "later": 1},
            },
            "status": {"applied": {"revision": "b", "at": "", "later": 1}, "later": []},
        }))
        .unwrap();
        assert_eq!(state.spec, granted());
        let other: NodeStateSpec = serde_json::from_value(json!({"step": "Later"})).unwrap();
        assert_eq!(other.step, Step::Hold, "what a step means that is not known can't be guessed");
        let set = json!({"classRef": {"name": "c", "later": 1}, "later": 1, "strategy": {"later": 1}, "health": {"gates": [{"name": "g", "later": {}}]}});
        assert_eq!(serde_json::from_value::<NodeSetSpec>(set).unwrap().health.gates[0].name, "g");
    }

    #[test]
    fn an_older_nodelet_is_handed_what_it_knows() {
        for version in ["", "0.1.0", "0.2.0", "0.2.0~rc.1", "1.0.0"] {
            assert_eq!(granted().for_nodelet(version), granted(), "{version}");
        }
        for (version, reads) in [("", false), ("0.1.0", false), ("0.1.9", false), ("0.2.0", true), ("1.0.0", true)] {
            assert_eq!(reads_unknown_fields(version), reads, "{version}");
        }
        let spec = json!({"revision": "a", "later": 1, "grant": {"id": "1", "later": 1}, "classRef": {"name": "c"}});
        let known = json!({"revision": "a", "grant": {"id": "1"}, "classRef": {"name": "c"}});
        assert_eq!(reduced(spec, &SPEC, ""), known);
        let status =
            json!({"staged": {"plan": ["x"], "later": 1}, "conditions": [{"type": "a", "later": 1}], "later": {}});
        assert_eq!(reduced(status, &STATUS, ""), json!({"staged": {"plan": ["x"]}, "conditions": [{"type": "a"}]}));
    }

    /// What 0.1 knows stays: its nodelets and controllers are there for a while.
    #[test]
    fn nothing_is_taken_away() {
        let definitions = crate::crd::definitions();
        let (_, definition) = definitions.iter().find(|(name, _)| *name == "nodestates").unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"];
        for (part, fields) in [("spec", SPEC.as_slice()), ("status", STATUS.as_slice())] {
            for field in fields {
                let found = field.split('.').fold(&schema[part], |schema, name| {
                    let inner = if schema["items"].is_object() { &schema["items"] } else { schema };
                    &inner["properties"][name]
                });
                assert!(found.is_object(), "{part}.{field} is gone");
            }
        }
        let steps = &schema["spec"]["properties"]["step"]["enum"];
        assert!(STEPS.iter().all(|step| steps.as_array().unwrap().contains(&json!(step))), "{steps}");
    }
}
