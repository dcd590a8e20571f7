//! The custom resource definitions, from the types.
//!
//! The schema that `schemars` derives is made structural, as the API server wants it, and gets rules in CEL, so that
//! `kubectl apply` refuses what nodelet would refuse, with a sentence that says what to write instead.

mod rules;
mod structural;

use crate::objects::{
    GROUP, NodeClassSpec, NodeClassStatus, NodeSetSpec, NodeSetStatus, NodeStateSpec, NodeStateStatus, VERSION,
};
use crate::schema;
use schemars::JsonSchema;
use serde_json::{Value, json};

/// A column of `kubectl get`.
struct Column {
    name: &'static str,
    path: &'static str,
    kind: &'static str,
    /// Shown only with `-o wide`.
    wide: bool,
}

const fn column(name: &'static str, path: &'static str) -> Column {
    Column { name, path, kind: "string", wide: false }
}

const fn wide(name: &'static str, path: &'static str) -> Column {
    Column { wide: true, ..column(name, path) }
}

const fn number(name: &'static str, path: &'static str) -> Column {
    Column { kind: "integer", ..column(name, path) }
}

const AGE: Column = Column { kind: "date", ..column("Age", ".metadata.creationTimestamp") };

/// What a definition says beside its schema.
struct Kind {
    name: &'static str,
    plural: &'static str,
    singular: &'static str,
    short: &'static str,
    columns: &'static [Column],
    scales: bool,
}

const NODE_CLASS: Kind = Kind {
    name: "NodeClass",
    plural: "nodeclasses",
    singular: "nodeclass",
    short: "nclass",
    columns: &[
        column("Runtime", ".spec.state.runtime.kind"),
        column("Kubelet", ".spec.state.kubelet.version"),
        column("Revision", ".status.revision"),
        column("Rendered", ".status.conditions[?(@.type=='Rendered')].status"),
        AGE,
    ],
    scales: false,
};

const NODE_SET: Kind = Kind {
    name: "NodeSet",
    plural: "nodesets",
    singular: "nodeset",
    short: "nset",
    columns: &[
        column("Class", ".spec.classRef.name"),
        number("Nodes", ".status.replicas"),
        number("Updated", ".status.updatedReplicas"),
        number("Ready", ".status.readyReplicas"),
        column("Revision", ".status.updateRevision"),
        column("Status", ".status.conditions[?(@.type=='Progressing')].reason"),
        AGE,
    ],
    scales: true,
};

const NODE_STATE: Kind = Kind {
    name: "NodeState",
    plural: "nodestates",
    singular: "nodestate",
    short: "nst",
    columns: &[
        column("Set", ".spec.nodeSetRef.name"),
        column("Step", ".spec.step"),
        column("Wanted", ".spec.revision"),
        column("Applied", ".status.applied.revision"),
        column("Disruption", ".status.staged.disruption"),
        column("Converged", ".status.conditions[?(@.type=='Converged')].status"),
        wide("Waiting for", ".status.waitingFor"),
        wide("nodelet", ".status.nodeletVersion"),
        AGE,
    ],
    scales: false,
};

/// All definitions, by the name of the resource.
pub fn definitions() -> Vec<(&'static str, Value)> {
    vec![
        (NODE_CLASS.plural, NODE_CLASS.definition::<NodeClassSpec, NodeClassStatus>()),
        (NODE_SET.plural, NODE_SET.definition::<NodeSetSpec, NodeSetStatus>()),
        (NODE_STATE.plural, NODE_STATE.definition::<NodeStateSpec, NodeStateStatus>()),
    ]
}

impl Kind {
    fn definition<Spec: JsonSchema, Status: JsonSchema>(&self) -> Value {
        let mut subresources = json!({"status": {}});
        if self.scales {
            subresources["scale"] = json!({
                "specReplicasPath": ".spec.replicas",
                "statusReplicasPath": ".status.replicas",
                "labelSelectorPath": ".status.selector",
            });
        }
        let spec = structural::of(&schema::of::<Spec>());
        let description = spec["description"].clone();
        json!({
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": format!("{}.{GROUP}", self.plural)},
            "spec": {
                "group": GROUP,
                "names": {
                    "kind": self.name,
                    "listKind": format!("{}List", self.name),
                    "plural": self.plural,
                    "singular": self.singular,
                    "shortNames": [self.short],
                    "categories": ["nodelet"],
                },
                "scope": "Cluster",
                "versions": [{
                    "name": VERSION,
                    "served": true,
                    "storage": true,
                    "additionalPrinterColumns": self.columns.iter().map(Column::as_json).collect::<Vec<_>>(),
                    "subresources": subresources,
                    "schema": {"openAPIV3Schema": {
                        "description": description,
                        "type": "object",
                        "required": ["spec"],
                        "properties": {
                            "apiVersion": {"type": "string", "description": "The version of this object's form."},
                            "kind": {"type": "string", "description": "What this object is."},
                            "metadata": {"type": "object"},
                            "spec": spec,
                            "status": structural::of(&schema::of::<Status>()),
                        },
                    }},
                }],
            },
        })
    }
}

impl Column {
    fn as_json(&self) -> Value {
        let mut column = json!({"name": self.name, "jsonPath": self.path, "type": self.kind});
        if self.wide {
            column["priority"] = json!(1);
        }
        column
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All fields below a schema, with their paths.
    fn fields(schema: &Value, path: &str, found: &mut Vec<(String, Value)>) {
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            found.push((path.clone(), field.clone()));
            fields(field, &path, found);
            fields(&field["items"], &path, found);
        }
    }

    #[test]
    fn every_field_is_described_and_structural() {
        for (name, definition) in definitions() {
            let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
            let mut found = Vec::new();
            fields(schema, name, &mut found);
            assert!(found.len() > 20, "{name}");
            for (path, field) in found {
                assert!(field["description"].is_string() || path.ends_with(".metadata"), "{path} has no description");
                let typed = field["type"].is_string() || field["x-kubernetes-int-or-string"] == true;
                assert!(typed, "{path} has no type: {field}");
                for word in ["$ref", "anyOf", "oneOf", "propertyNames", "const"] {
                    assert!(field.get(word).is_none(), "{path} has {word}");
                }
            }
        }
    }
}
