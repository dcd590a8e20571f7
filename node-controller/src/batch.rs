//! What may be written at the same time: one node's business waits for no other node's.

use crate::decide::Intent;
use std::collections::BTreeMap;

/// Intents in batches, each of chains. A batch waits for the one before it, an intent for those before it in its chain;
/// chains of a batch are about different nodes, and may go side by side.
pub(crate) fn batches(intents: &[Intent]) -> Vec<Vec<Vec<&Intent>>> {
    let mut batches: Vec<Vec<Vec<&Intent>>> = Vec::new();
    let mut chains: BTreeMap<&str, Vec<&Intent>> = BTreeMap::new();
    for intent in intents {
        if let Some(node) = node_of(intent) {
            chains.entry(node).or_default().push(intent);
            continue;
        }
        // Nodes are handed a revision that is stored, and a set's status tells of what was handed out.
        close(&mut chains, &mut batches);
        batches.push(vec![vec![intent]]);
    }
    close(&mut chains, &mut batches);
    batches
}

fn close<'a>(chains: &mut BTreeMap<&'a str, Vec<&'a Intent>>, batches: &mut Vec<Vec<Vec<&'a Intent>>>) {
    if !chains.is_empty() {
        batches.push(std::mem::take(chains).into_values().collect());
    }
}

/// The node that an intent is about, if it is about one alone.
fn node_of(intent: &Intent) -> Option<&str> {
    match intent {
        Intent::Contents { node, .. }
        | Intent::ForgetContents { node }
        | Intent::Hand { node, .. }
        | Intent::Allow { node }
        | Intent::Release { node }
        | Intent::Answer { node, .. }
        | Intent::Mark { node, .. }
        | Intent::Cordon { node, .. }
        | Intent::Show { node, .. } => Some(node),
        Intent::Tell(telling) if telling.kind == "Node" => Some(&telling.name),
        Intent::Tell(_)
        | Intent::Evict(_)
        | Intent::Store { .. }
        | Intent::Forget { .. }
        | Intent::ClassStatus { .. }
        | Intent::SetStatus { .. } => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_node_is_written_in_order_and_beside_others() {
        let allow = |node: &str| Intent::Allow { node: node.into() };
        let release = |node: &str| Intent::Release { node: node.into() };
        let forget = || Intent::Forget { revision: "r".into() };
        let intents = [forget(), allow("a"), allow("b"), release("a"), forget(), release("b")];
        let [first, a, b, then, second, last] = &intents;
        assert_eq!(
            batches(&intents),
            [vec![vec![first]], vec![vec![a, then], vec![b]], vec![vec![second]], vec![vec![last]]]
        );
        assert!(batches(&[]).is_empty());
    }
}
