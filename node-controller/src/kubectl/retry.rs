//! `kubectl nodes retry`

use super::output::Output;
use super::pause::{MANAGER, named};
use super::read::{Reader, find};
use anyhow::bail;
use clap::Args;
use kube::api::{Patch, PatchParams};
use kube::{Api, ResourceExt};
use nodelet_api::objects::NodeSet;
use serde::Serialize;
use serde_json::json;

/// What is tried again.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The set.
    #[arg(value_name = "NODESET")]
    set: String,
}

/// What will be so.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Another {
    /// The set.
    node_set: String,
    /// The nodes that get another turn.
    nodes: Vec<String>,
    /// The revisions that failed, and are good again.
    revisions: Vec<String>,
    /// The last moment of what is forgotten.
    retry: String,
}

/// Lets a set try again what failed.
pub(super) async fn retry(reader: &Reader, options: &Options, output: Output) -> anyhow::Result<()> {
    let world = reader.world().await?;
    let set = find(&world.sets, "NodeSet", "nodesets", &options.set)?;
    let another = find_failures(set)?;
    let name = &another.node_set;
    let parameters = PatchParams { field_manager: Some(MANAGER.into()), ..PatchParams::default() };
    let patch = json!({"spec": {"retry": another.retry}});
    let api: Api<NodeSet> = Api::all(reader.client.clone());
    if let Err(error) = api.patch(name, &parameters, &Patch::Merge(patch)).await {
        bail!(named(error, &format!("writing `retry` of the NodeSet {name}"), "nodesets"));
    }
    output.print(&another, || format!("nodeset.nodelet.dev/{name} tries again: {}", another.sentence()))
}

impl Another {
    fn sentence(&self) -> String {
        match (self.nodes.as_slice(), self.revisions.as_slice()) {
            (nodes, []) => format!("another turn for {}", nodes.join(", ")),
            ([], revisions) => format!("{} counts as good again", revisions.join(", ")),
            (nodes, revisions) => {
                format!("{} counts as good again, and another turn for {}", revisions.join(", "), nodes.join(", "))
            }
        }
    }
}

/// What failed so far. Its own times count, not this machine's clock, which may be another than the controller's.
fn find_failures(set: &NodeSet) -> anyhow::Result<Another> {
    let (node_set, status) = (set.name_any(), set.status.clone().unwrap_or_default());
    let failures = status.failures.iter().map(|failure| &failure.at);
    let Some(retry) = failures.chain(status.bad_revisions.iter().map(|bad| &bad.at)).max() else {
        bail!("nothing failed in the set {node_set}: `kubectl nodes status {node_set}` shows how far it is");
    };
    let nodes = status.failures.iter().map(|failure| failure.node.clone()).collect();
    let revisions = status.bad_revisions.iter().map(|bad| bad.revision.clone()).collect();
    Ok(Another { node_set, nodes, revisions, retry: retry.clone() })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::kubectl::fixture::{Fixture, NEW};
    use nodelet_api::objects::BadRevision;

    #[test]
    fn what_failed_last_is_the_moment() {
        let mut fixture = Fixture::new(&["a"]);
        let found = |fixture: &Fixture| find_failures(&fixture.world.sets["workers"]);
        let error = found(&fixture).unwrap_err().to_string();
        assert!(error.starts_with("nothing failed in the set workers"), "{error}");
        fixture.failure("a", NEW, "StepFailed", false);
        assert_eq!(found(&fixture).unwrap().sentence(), "another turn for a");
        let bad = BadRevision { revision: NEW.into(), reason: String::new(), at: "2026-11-17T12:30:00Z".into() };
        fixture.set_status(|status| status.bad_revisions.push(bad));
        let another = found(&fixture).unwrap();
        assert_eq!(another.retry, "2026-11-17T12:30:00Z");
        assert_eq!(another.sentence(), format!("{NEW} counts as good again, and another turn for a"));
    }
}
