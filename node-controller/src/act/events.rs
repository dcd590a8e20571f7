//! Events: what happened, for people who look at an object.

use crate::decide::Telling;
use crate::world::World;
use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::{Client, Resource};
use std::fmt;
use std::sync::Arc;

/// An Event's note ends at 1024 bytes.
const NOTE_LIMIT: usize = 1000;

/// Who tells, by a qualified name: the plain one is that of a controller in kube-controller-manager, which tells of Nodes
/// too.
const REPORTER: &str = "nodelet.dev/node-controller";

/// What publishes them.
#[derive(Clone)]
pub(super) struct Events(Arc<Recorder>);

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("events")
    }
}

impl Events {
    pub(super) fn new(client: Client, identity: &str) -> Self {
        let reporter = Reporter { controller: REPORTER.to_owned(), instance: Some(identity.to_owned()) };
        Self(Arc::new(Recorder::new(client, reporter)))
    }

    pub(super) async fn tell(&self, telling: &Telling, world: &World) -> kube::Result<()> {
        let name = &telling.name;
        let about = match telling.kind {
            "NodeClass" => world.classes.get(name).map(|object| object.object_ref(&())),
            "NodeSet" => world.sets.get(name).map(|object| object.object_ref(&())),
            // As the kubelet names it: `kubectl describe node` looks for Events by name, not by uid.
            _ => Some(ObjectReference {
                api_version: Some("v1".into()),
                kind: Some("Node".into()),
                name: Some(name.clone()),
                uid: Some(name.clone()),
                ..ObjectReference::default()
            }),
        };
        let Some(about) = about else { return Ok(()) };
        let note: String = telling.note.chars().take(NOTE_LIMIT).collect();
        let event = Event {
            type_: if telling.warning { EventType::Warning } else { EventType::Normal },
            reason: telling.reason.clone(),
            note: Some(note),
            action: "Reconcile".into(),
            secondary: None,
        };
        self.0.publish(&event, &about).await
    }
}
