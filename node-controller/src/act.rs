//! Writes what was decided. Every write says what is to be so, and may be repeated.

mod events;
mod nodes;
mod refusals;
mod rights;

pub(crate) use refusals::Refusals;

use crate::decide::{Answer, Intent, Slots, contents_name};
use crate::render::Revision;
use crate::world::World;
use anyhow::Context;
use base64::Engine as _;
use events::Events;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client, Resource};
use nodelet_api::objects::{CONTENTS_VERSION, GROUP, NodeClass, NodeSet, NodeState, VERSION, time_text};
use serde_json::{Value, json};

/// The name that the controller writes under.
pub const MANAGER: &str = "node-controller";
/// The label of revisions: the class that they are of.
pub const CLASS_LABEL: &str = "nodelet.dev/class";
/// The label of a node's rights and of its Secret: its name.
pub const NODE_LABEL: &str = "nodelet.dev/node";
/// The label of gates' Jobs and their pods: the set that they are for.
pub const SET_LABEL: &str = "nodelet.dev/node-set";
/// The label of gates' Jobs and their pods: the gate that they are of.
pub const GATE_LABEL: &str = "nodelet.dev/gate";

/// What writes to a cluster.
#[derive(Clone)]
pub struct Writer {
    client: Client,
    namespace: String,
    events: Events,
    refusals: Refusals,
}

impl Writer {
    /// A writer whose revisions are kept in a namespace.
    pub(crate) fn new(client: Client, namespace: &str, identity: &str, refusals: Refusals) -> Self {
        let events = Events::new(client.clone(), identity);
        Self { client, namespace: namespace.to_owned(), events, refusals }
    }

    /// Writes one thing.
    pub async fn write(&self, intent: &Intent, world: &World) -> anyhow::Result<()> {
        match intent {
            Intent::Store { class, revision } => {
                let owner = world.classes.get(class).and_then(|class| class.controller_owner_ref(&()));
                let stored = self.store(class, revision, json!(owner)).await;
                stored.with_context(|| format!("storing revision {}", revision.name))
            }
            Intent::Forget { revision } => {
                let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &self.namespace);
                gone(api.delete(revision, &DeleteParams::default()).await)
                    .with_context(|| format!("removing revision {revision}"))
            }
            Intent::ClassStatus { name, status } => {
                let patch = object("NodeClass", name, "status", &json!(status), Value::Null);
                let api: Api<NodeClass> = Api::all(self.client.clone());
                let written = api.patch_status(name, &parameters(), &Patch::Apply(patch)).await;
                written.map(drop).with_context(|| format!("writing the status of the class {name}"))
            }
            Intent::SetStatus { name, status } => {
                let mut patch = object("NodeSet", name, "status", &json!(status), Value::Null);
                // Turns are given from what was read: somebody else may have written meanwhile.
                let version = world.sets.get(name).and_then(|set| set.metadata.resource_version.clone());
                patch["metadata"]["resourceVersion"] = json!(version);
                let api: Api<NodeSet> = Api::all(self.client.clone());
                let written = api.patch_status(name, &parameters(), &Patch::Apply(patch)).await;
                written.map(drop).with_context(|| format!("writing the status of the set {name}"))
            }
            Intent::Contents { node, version, slots } => {
                let written = self.contents(node, version, slots, world).await;
                written.with_context(|| format!("writing the Secret of node {node}"))
            }
            Intent::ForgetContents { node } => {
                let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
                gone(api.delete(&contents_name(node), &DeleteParams::default()).await)
                    .with_context(|| format!("removing the Secret of node {node}"))
            }
            Intent::Allow { node } => {
                self.allow(node, world).await.with_context(|| format!("giving node {node} its rights"))
            }
            Intent::Hand { node, set, spec } => {
                let owner = world.sets.get(set).and_then(|set| set.controller_owner_ref(&()));
                let patch = object("NodeState", node, "spec", &json!(spec), json!(owner));
                let api: Api<NodeState> = Api::all(self.client.clone());
                let written = api.patch(node, &parameters(), &Patch::Apply(patch)).await;
                written.map(drop).with_context(|| format!("handing node {node} its revision"))
            }
            Intent::Release { node } => {
                let uid = world.states.get(node).and_then(|state| state.metadata.uid.clone());
                let only_this = Preconditions { uid, resource_version: None };
                let parameters = DeleteParams { preconditions: Some(only_this), ..DeleteParams::default() };
                let api: Api<NodeState> = Api::all(self.client.clone());
                tracing::info!(node, "no set selects it, or its Node is gone: it is let go");
                gone(api.delete(node, &parameters).await).with_context(|| format!("letting node {node} go"))
            }
            Intent::Answer { name, node, answer } => {
                self.answer(name, node, answer).await.with_context(|| format!("answering the request {name}"))
            }
            Intent::Mark { node, marks } => {
                self.mark(node, marks, world).await.with_context(|| format!("marking the Node {node}"))
            }
            Intent::Show { node, condition } => self
                .show(node, condition.as_ref())
                .await
                .with_context(|| format!("writing a condition of the Node {node}")),
            Intent::Cordon { node, cordon } => {
                let verb = if *cordon { "cordoning" } else { "uncordoning" };
                tracing::info!(node, "{verb} it");
                self.cordon(node, *cordon, world).await.with_context(|| format!("{verb} the Node {node}"))
            }
            Intent::Evict(eviction) => self
                .evict(eviction)
                .await
                .with_context(|| format!("evicting pod {}/{}", eviction.namespace, eviction.name)),
            Intent::Tell(telling) => {
                // What nobody hears of is no reason to stop.
                if let Err(error) = self.events.tell(telling, world).await {
                    tracing::warn!(%error, reason = telling.reason, "an Event could not be written");
                }
                Ok(())
            }
        }
    }

    async fn answer(&self, name: &str, node: &str, answer: &Answer) -> kube::Result<()> {
        let (kind, reason, message) = match answer {
            Answer::Approve(why) => ("Approved", "NodeExpected", why),
            Answer::Deny(why) => ("Denied", "NotPermitted", why),
        };
        tracing::info!(request = name, node, answer = kind, message, "a request for a certificate");
        let condition = json!({
            "type": kind, "status": "True", "reason": reason, "message": message,
            "lastUpdateTime": time_text(Timestamp::now()),
        });
        let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        let api: Api<CertificateSigningRequest> = Api::all(self.client.clone());
        api.patch_approval(name, &PatchParams::default(), &patch).await.map(drop)
    }

    /// The Secret that only this node may read. It goes with the `NodeState`.
    async fn contents(&self, node: &str, version: &str, slots: &Slots, world: &World) -> kube::Result<()> {
        let owner = world.states.get(node).and_then(|state| state.controller_owner_ref(&()));
        let encode = |bytes: &Vec<u8>| base64::engine::general_purpose::STANDARD.encode(bytes);
        let data: serde_json::Map<String, Value> =
            slots.0.iter().map(|(slot, bytes)| (slot.clone(), json!(encode(bytes)))).collect();
        let name = contents_name(node);
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": name,
                "labels": {NODE_LABEL: label(node)},
                "annotations": {CONTENTS_VERSION: version, NODE_LABEL: node},
                "ownerReferences": owners(json!(owner)),
            },
            "type": "nodelet.dev/contents",
            "data": data,
        });
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &self.namespace);
        api.patch(&name, &parameters(), &Patch::Apply(secret)).await.map(drop)
    }

    async fn store(&self, class: &str, revision: &Revision, owner: Value) -> kube::Result<()> {
        let api: Api<ControllerRevision> = Api::namespaced(self.client.clone(), &self.namespace);
        let object = json!({
            "apiVersion": "apps/v1",
            "kind": "ControllerRevision",
            "metadata": {
                "name": revision.name,
                "labels": {CLASS_LABEL: class},
                "ownerReferences": owners(owner),
            },
            "revision": 1,
            "data": {"state": revision.state},
        });
        api.patch(&revision.name, &parameters(), &Patch::Apply(object)).await.map(drop)
    }
}

/// What is gone already is gone.
fn gone<T>(result: kube::Result<T>) -> kube::Result<()> {
    match result {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map(drop),
    }
}

fn parameters() -> PatchParams {
    // Only the controller writes these fields; whoever else did is overruled.
    PatchParams::apply(MANAGER).force()
}

fn object(kind: &str, name: &str, part: &str, content: &Value, owner: Value) -> Value {
    let mut metadata = json!({"name": name});
    if !owner.is_null() {
        metadata["ownerReferences"] = owners(owner);
    }
    json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": kind, "metadata": metadata, part: content})
}

/// A label's value is shorter than a name may be; whole names are in annotations.
fn label(node: &str) -> String {
    node.chars().take(63).collect::<String>().trim_end_matches(['-', '.']).to_owned()
}

/// The owner's deletion takes the object along, and doesn't wait for it.
fn owners(owner: Value) -> Value {
    match owner {
        Value::Null => json!([]),
        mut owner => {
            owner["blockOwnerDeletion"] = json!(false);
            json!([owner])
        }
    }
}
