//! Gates that look at an object of the cluster.

use super::cel::{Question, Subject};
use super::{Asker, explain, names};
use anyhow::{Context, bail, ensure};
use kube::api::DynamicObject;
use kube::core::{ApiResource, GroupVersionKind};
use kube::discovery::{Scope, pinned_kind};
use kube::{Api, Client};
use nodelet_api::objects::ObjectGate;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// Passed when the object has the condition, or when the expression that is left is true of it.
pub(super) async fn ask(asker: &Asker, gate: &ObjectGate) -> anyhow::Result<Option<Question>> {
    let what = title(gate);
    let object = read(asker, gate).await?;
    match (&gate.condition, &gate.cel) {
        (Some(condition), _) => holds(&object, condition).map(|()| None).with_context(|| what),
        (None, Some(expression)) => {
            Ok(Some(Question { expression: expression.clone(), subject: Subject::Object(object) }))
        }
        (None, None) => bail!("{what}: neither `condition` nor `cel` says what must be true of it"),
    }
}

/// As in `Deployment shop/web`.
pub(super) fn title(gate: &ObjectGate) -> String {
    match &gate.namespace {
        Some(namespace) => format!("{} {namespace}/{}", gate.kind, gate.name),
        None => format!("{} {}", gate.kind, gate.name),
    }
}

async fn read(asker: &Asker, gate: &ObjectGate) -> anyhow::Result<Value> {
    let kind = kind(gate)?;
    let (resource, scope) = asker.kinds.resolve(&asker.client, &kind).await?;
    refuse_secrets(&resource)?;
    let api: Api<DynamicObject> = match (&gate.namespace, scope) {
        (Some(namespace), Scope::Namespaced) => Api::namespaced_with(asker.client.clone(), namespace, &resource),
        (None, Scope::Cluster) => Api::all_with(asker.client.clone(), &resource),
        (None, Scope::Namespaced) => bail!("a {} is in a namespace: add `namespace`", gate.kind),
        (Some(_), Scope::Cluster) => bail!("a {} is in no namespace: remove `namespace`", gate.kind),
    };
    let found = api.get_opt(&gate.name).await;
    let found = found.map_err(|error| explain(error, "get", &resource, gate.namespace.as_deref()))?;
    let Some(mut object) = found else {
        // Its definition may be another one by now.
        asker.kinds.forget(&kind);
        bail!("{} does not exist", title(gate));
    };
    ensure!(is_asked_for(&object, gate), "{}: the API server answers with another object", title(gate));
    // Large, and nobody's business.
    object.metadata.managed_fields = None;
    serde_json::to_value(object).context("reading the object")
}

/// The kind, where all that is written there can be part of an address.
fn kind(gate: &ObjectGate) -> anyhow::Result<GroupVersionKind> {
    let (group, version) = names::group_and_version(&gate.api_version)?;
    names::check("kind", &gate.kind)?;
    names::check("name", &gate.name)?;
    gate.namespace.as_deref().map_or(Ok(()), |namespace| names::check("namespace", namespace))?;
    Ok(GroupVersionKind::gvk(group, version, &gate.kind))
}

/// The controller reads Secrets of its own namespace, and whoever may edit a set may not. Asked of what the cluster found
/// for the kind: there may be more than one way to write it.
fn refuse_secrets(resource: &ApiResource) -> anyhow::Result<()> {
    ensure!(!resource.group.is_empty() || resource.plural != "secrets", "gates don't look into Secrets");
    Ok(())
}

fn is_asked_for(object: &DynamicObject, gate: &ObjectGate) -> bool {
    object.metadata.name.as_ref() == Some(&gate.name) && object.metadata.namespace == gate.namespace
}

/// Whether a condition of an object is true.
fn holds(object: &Value, condition: &str) -> anyhow::Result<()> {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|one| one["type"] == condition));
    let Some(found) = found else { bail!("it has no condition {condition}") };
    let message = found["message"].as_str().filter(|text| !text.is_empty());
    let message = message.or(found["reason"].as_str()).unwrap_or("it does not say why");
    ensure!(found["status"] == "True", "it is not {condition}: {message}");
    Ok(())
}

/// What the cluster calls kinds in addresses. It is asked, because only it knows: the plural of a custom resource may be
/// any word.
#[derive(Default)]
pub(super) struct Kinds(Mutex<HashMap<GroupVersionKind, (ApiResource, Scope)>>);

impl Kinds {
    async fn resolve(&self, client: &Client, kind: &GroupVersionKind) -> anyhow::Result<(ApiResource, Scope)> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner).get(kind).cloned();
        if let Some(known) = known {
            return Ok(known);
        }
        let missing = || format!("the cluster has no kind {} in {}", kind.kind, kind.api_version());
        let found = match pinned_kind(client, kind).await {
            Ok((resource, capabilities)) => (resource, capabilities.scope),
            Err(kube::Error::Api(status)) if status.code == 404 => bail!(missing()),
            Err(kube::Error::Discovery(_)) => bail!(missing()),
            Err(error) => return Err(error).with_context(|| format!("asking for the kind {}", kind.kind)),
        };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(kind.clone(), found.clone());
        Ok(found)
    }

    fn forget(&self, kind: &GroupVersionKind) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(kind);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    fn gate(fields: &[(&str, &str)]) -> ObjectGate {
        let mut gate = json!({"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"});
        for (name, value) in fields {
            gate[*name] = json!(value);
        }
        serde_json::from_value(gate).unwrap()
    }

    #[test]
    fn secrets_and_other_addresses_are_refused() {
        assert_eq!(kind(&gate(&[])).unwrap(), GroupVersionKind::gvk("apps", "v1", "Deployment"));
        for (field, value) in [
            ("apiVersion", "/v1"),
            ("kind", "Secret?"),
            ("namespace", "nodelet-system/secrets/token?x="),
            ("namespace", ".."),
            ("name", "web/log"),
            ("name", "web%2flog"),
        ] {
            assert!(kind(&gate(&[(field, value)])).unwrap_err().to_string().contains(field), "{value}");
        }
        let resource = |group: &str, kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
        assert!(refuse_secrets(&resource("", "Secret")).is_err());
        assert!(refuse_secrets(&resource("", "Service")).is_ok());
        assert!(refuse_secrets(&resource("example.org", "Secret")).is_ok(), "what somebody else calls so");
    }

    #[test]
    fn another_object_is_no_answer() {
        let object =
            |metadata: Value| -> DynamicObject { serde_json::from_value(json!({"metadata": metadata})).unwrap() };
        assert!(is_asked_for(&object(json!({"name": "web", "namespace": "shop"})), &gate(&[])));
        for other in
            [json!({}), json!({"name": "web"}), json!({"name": "web", "namespace": "x"}), json!({"namespace": "shop"})]
        {
            assert!(!is_asked_for(&object(other.clone()), &gate(&[])), "{other}");
        }
    }

    #[test]
    fn conditions_are_true_or_say_why_not() {
        let object = json!({"status": {"conditions": [
            {"type": "Available", "status": "True"},
            {"type": "Ready", "status": "False", "reason": "Starting", "message": "1 of 2 are ready"},
            {"type": "Synced", "status": "Unknown", "reason": "Starting"},
        ]}});
        let said = |condition: &str| holds(&object, condition).map_err(|error| error.to_string());
        assert_eq!(said("Available"), Ok(()));
        assert_eq!(said("Ready").unwrap_err(), "it is not Ready: 1 of 2 are ready");
        assert_eq!(said("Synced").unwrap_err(), "it is not Synced: Starting");
        assert_eq!(said("Other").unwrap_err(), "it has no condition Other");
    }
}
