//! Who gets a certificate, and who does not.

use super::Intent;
use crate::request::Request;
use crate::world::World;
use jiff::Timestamp;
use nodelet_api::objects::{NODES_GROUP, USER_PREFIX};

/// The group of a bootstrap token that is for one node; its name follows, with colons for dots, which a group can't have.
pub const NODE_TOKEN_GROUP: &str = "system:bootstrappers:nodelet:node:";
/// The group of all bootstrap tokens.
const BOOTSTRAPPERS: &str = "system:bootstrappers";
/// The group of all kubelets.
const KUBELETS: &str = "system:nodes";

/// What is to be said to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It gets a certificate.
    Approve(String),
    /// It gets none.
    Deny(String),
}

pub(super) fn answer(world: &World, now: Timestamp, intents: &mut Vec<Intent>) {
    for request in &world.requests {
        if let Some(answer) = judge(world, request, now) {
            let (name, node) = (request.name.clone(), request.node.clone());
            intents.push(Intent::Answer { name, node, answer });
        }
    }
}

/// The answer to a request; `None` while it has to wait, or is a person's business.
fn judge(world: &World, request: &Request, now: Timestamp) -> Option<Answer> {
    let node = &request.node;
    let by = match authority(world, request) {
        Authority::Has(by) => by,
        Authority::Lacks => {
            let who = &request.user;
            return Some(Answer::Deny(format!("{who} may not ask for the certificate of node {node}")));
        }
        // An administrator who asks by hand answers by hand too.
        Authority::Unknown => return None,
    };
    if let Some(wrong) = &request.wrong {
        return Some(Answer::Deny(wrong.clone()));
    }
    // Expected, and with rights that the certificate is good for; otherwise it may become so.
    let state = world.states.get(node).filter(|_| world.allowed.contains(node))?;
    let renewal = request.user == format!("{USER_PREFIX}{node}");
    let identity = state.status.as_ref().and_then(|status| status.identity.as_ref());
    if let Some(identity) = identity.filter(|identity| !renewal && identity.key != request.key)
        && identity.not_after.parse::<Timestamp>().is_ok_and(|until| until > now)
    {
        return Some(Answer::Deny(format!(
            "the certificate of node {node} is in use by the machine {} until {}: if that machine is gone or was \
             installed anew, run `kubectl delete nodestate {node}`",
            identity.machine_id, identity.not_after
        )));
    }
    Some(Answer::Approve(format!("node {node} is expected, and asks by {by}")))
}

/// Whether who asks may ask for that node.
enum Authority {
    Has(String),
    Lacks,
    Unknown,
}

fn authority(world: &World, request: &Request) -> Authority {
    let is_in = |group: &str| request.groups.iter().any(|one| one == group);
    let node = &request.node;
    if is_in(NODES_GROUP) {
        return if request.user == format!("{USER_PREFIX}{node}") {
            Authority::Has("its own certificate".into())
        } else {
            Authority::Lacks
        };
    }
    if is_in(KUBELETS) {
        return if request.user == format!("system:node:{node}") {
            Authority::Has("its kubelet's certificate".into())
        } else {
            Authority::Lacks
        };
    }
    if !is_in(BOOTSTRAPPERS) {
        return Authority::Unknown;
    }
    let own: Vec<&str> = request.groups.iter().filter_map(|group| group.strip_prefix(NODE_TOKEN_GROUP)).collect();
    let for_all = request.groups.iter().any(|group| world.bootstrap_groups.contains(group));
    match own.as_slice() {
        [] if for_all => Authority::Has(format!("the bootstrap token {}", request.user)),
        [] => Authority::Lacks,
        nodes if nodes.contains(&node.replace('.', ":").as_str()) => Authority::Has("a token of its own".into()),
        _ => Authority::Lacks,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use nodelet_api::objects::{Identity, NodeState, NodeStateSpec, NodeStateStatus};
    use std::sync::Arc;

    fn request(user: &str, groups: &[&str]) -> Request {
        Request {
            name: "r".into(),
            node: "n1.example".into(),
            user: user.into(),
            groups: groups.iter().map(ToString::to_string).collect(),
            key: "new".into(),
            wrong: None,
        }
    }

    fn world(identity: Option<(&str, &str)>) -> World {
        let mut state = NodeState::new("n1.example", NodeStateSpec::default());
        let identity =
            identity.map(|(key, until)| Identity { machine_id: "m".into(), key: key.into(), not_after: until.into() });
        state.status = Some(NodeStateStatus { identity, ..NodeStateStatus::default() });
        World {
            states: [("n1.example".to_owned(), Arc::new(state))].into(),
            allowed: ["n1.example".to_owned()].into(),
            bootstrap_groups: ["system:bootstrappers:kubeadm:default-node-token".to_owned()].into(),
            ..World::default()
        }
    }

    fn judged(world: &World, request: &Request) -> &'static str {
        match judge(world, request, "2026-01-01T00:00:00Z".parse().unwrap()) {
            Some(Answer::Approve(_)) => "approved",
            Some(Answer::Deny(_)) => "denied",
            None => "waits",
        }
    }

    #[test]
    fn who_asks_must_have_the_authority() {
        let free = world(None);
        let token = |group: &str| request("system:bootstrap:abcdef", &["system:bootstrappers", group]);
        for (request, verdict) in [
            (token("system:bootstrappers:kubeadm:default-node-token"), "approved"),
            (token("system:bootstrappers:nodelet:node:n1:example"), "approved"),
            (token("system:bootstrappers:nodelet:node:n2:example"), "denied"),
            (token("system:bootstrappers:other"), "denied"),
            (request("system:node:n1.example", &["system:nodes"]), "approved"),
            (request("system:node:n2.example", &["system:nodes"]), "denied"),
            (request("nodelet:n1.example", &["nodelet:nodes"]), "approved"),
            (request("nodelet:n2.example", &["nodelet:nodes"]), "denied"),
            (request("admin", &["system:masters"]), "waits"),
        ] {
            assert_eq!(judged(&free, &request), verdict, "{request:?}");
        }
        let mut both = token("system:bootstrappers:kubeadm:default-node-token");
        both.groups.push("system:bootstrappers:nodelet:node:n2:example".into());
        assert_eq!(judged(&free, &both), "denied", "a token for one node is for no other");
    }

    #[test]
    fn a_node_must_be_expected_and_its_name_free() {
        let kubelet = request("system:node:n1.example", &["system:nodes"]);
        let own = request("nodelet:n1.example", &["nodelet:nodes"]);
        assert_eq!(judged(&World::default(), &kubelet), "waits");
        let mut without_rights = world(None);
        without_rights.allowed.clear();
        assert_eq!(judged(&without_rights, &kubelet), "waits");
        let used = world(Some(("old", "2026-06-01T00:00:00Z")));
        assert_eq!(judged(&used, &kubelet), "denied", "another machine has it");
        assert_eq!(judged(&used, &own), "approved", "a renewal");
        assert_eq!(judged(&world(Some(("new", "2026-06-01T00:00:00Z"))), &kubelet), "approved", "the same key");
        assert_eq!(judged(&world(Some(("old", "2025-06-01T00:00:00Z"))), &kubelet), "approved", "it is over");
        let wrong = Request { wrong: Some("x".into()), ..own };
        assert_eq!(judged(&world(None), &wrong), "denied");
    }
}
