//! How many nodes are cordoned at once, as a watch sees it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, ResourceExt};

use super::Cluster;
use super::aside::Aside;

/// A record of cordons, kept until it is dropped.
#[derive(Debug)]
pub struct Cordons {
    record: Arc<Mutex<Record>>,
    _aside: Aside,
}

#[derive(Debug, Default)]
struct Record {
    now: BTreeSet<String>,
    most: usize,
    turns: Vec<String>,
}

impl Cordons {
    /// Watches all nodes from now on.
    pub fn start(cluster: &Cluster) -> Result<Self> {
        let record = Arc::<Mutex<Record>>::default();
        let seen = Arc::clone(&record);
        let aside = Aside::start(cluster, |client, ending| async move {
            let nodes: Api<NodeObject> = Api::all(client);
            let events = watcher(nodes, watcher::Config::default()).default_backoff().applied_objects();
            let watching = events.for_each(|node| {
                // A watch that breaks is begun anew.
                if let Ok(node) = node {
                    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
                    seen.lock().unwrap_or_else(PoisonError::into_inner).see(&node.name_any(), cordoned);
                }
                std::future::ready(())
            });
            tokio::select! {
                _ = ending => {}
                () = watching => {}
            }
            Ok(())
        })?;
        Ok(Self { record, _aside: aside })
    }

    /// The most nodes that were cordoned at any instant.
    pub fn most(&self) -> usize {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).most
    }

    /// The nodes that were cordoned, in order, each as often as it was.
    pub fn turns(&self) -> Vec<String> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner).turns.clone()
    }
}

impl Record {
    fn see(&mut self, node: &str, cordoned: bool) {
        if !cordoned {
            self.now.remove(node);
        } else if self.now.insert(node.to_owned()) {
            self.turns.push(node.to_owned());
            self.most = self.most.max(self.now.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_most_at_once_is_kept_and_a_turn_counts_once() {
        let mut record = Record::default();
        for (node, cordoned) in [("a", true), ("a", true), ("a", false), ("b", true), ("c", true), ("b", false)] {
            record.see(node, cordoned);
        }
        assert_eq!((record.most, record.turns), (2, vec!["a".to_owned(), "b".to_owned(), "c".to_owned()]));
    }
}
