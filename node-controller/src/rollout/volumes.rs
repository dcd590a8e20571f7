//! Volumes that a drained node still has: where a volume is attached, no other node gets it.

use super::drain::is_finished;
use crate::world::Attached;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use std::sync::Arc;

/// What is waited for before a node counts as drained, if anything is: a stable reason, and for what. `pods` are those that
/// are left: what they use stays.
pub(super) fn attached(volumes: Option<&Vec<Attached>>, pods: &[Arc<Pod>]) -> Option<(&'static str, String)> {
    let Some(volumes) = volumes else {
        return Some(("ListingVolumes", "the list of its volumes".to_owned()));
    };
    let used = |volume: &&Attached| pods.iter().any(|pod| !is_finished(pod) && uses(pod, volume));
    let mut left = volumes.iter().filter(|volume| !used(volume));
    let first = left.next()?;
    let of = first.claim.as_ref().map(|(namespace, claim)| format!(", the claim {namespace}/{claim}"));
    let more = match left.count() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    Some(("VolumesAttached", format!("volume {}{}{more} to be detached", first.volume, of.unwrap_or_default())))
}

fn uses(pod: &Pod, volume: &Attached) -> bool {
    let Some((namespace, claim)) = &volume.claim else { return false };
    let volumes = pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    let by_claim = |one: &k8s_openapi::api::core::v1::Volume| {
        let named = one.persistent_volume_claim.as_ref().map(|source| source.claim_name.clone());
        // A claim that is made for the pod alone has the pod's name in its own.
        let own = one.ephemeral.as_ref().map(|_| format!("{}-{}", pod.name_any(), one.name));
        named.or(own).as_ref() == Some(claim)
    };
    pod.namespace().as_ref() == Some(namespace) && volumes.into_iter().any(by_claim)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::json;

    #[test]
    fn what_nobody_uses_any_more_is_waited_for() {
        let volume = |volume: &str, claim: Option<&str>| Attached {
            volume: volume.to_owned(),
            claim: claim.map(|claim| ("d".to_owned(), claim.to_owned())),
        };
        let pod = |phase: &str| -> Arc<Pod> {
            let pod = json!({
                "metadata": {"name": "agent", "namespace": "d"},
                "spec": {"containers": [], "volumes": [
                    {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "scratch", "ephemeral": {}},
                ]},
                "status": {"phase": phase},
            });
            Arc::new(serde_json::from_value(pod).unwrap())
        };
        let volumes = vec![volume("pv-1", Some("data")), volume("pv-2", Some("agent-scratch"))];
        let waits = |volumes: &Vec<Attached>, pods: &[Arc<Pod>]| attached(Some(volumes), pods).map(|(_, what)| what);
        assert_eq!(waits(&volumes, &[pod("Running")]), None, "a daemon set's volumes stay with it");
        assert_eq!(
            waits(&volumes, &[pod("Succeeded")]).unwrap(),
            "volume pv-1, the claim d/data and 1 more to be detached"
        );
        assert_eq!(waits(&vec![volume("disk", None)], &[]).unwrap(), "volume disk to be detached");
        assert_eq!(waits(&Vec::new(), &[]), None);
        assert_eq!(attached(None, &[]).unwrap().0, "ListingVolumes");
    }
}
