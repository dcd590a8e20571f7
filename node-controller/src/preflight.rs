//! Whether a cluster can take node-controller: its version, and what the caller may do there.

use anyhow::Context;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};
use serde::Serialize;

/// The oldest minor version of Kubernetes 1 whose API this is built for; see `k8s-openapi` in Cargo.toml.
pub const OLDEST_MINOR: u32 = 33;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Whether it is as it must be.
    pub ok: bool,
    /// What was found, and what to do where it is not.
    pub message: String,
}

/// What `kubectl apply -k config/default` needs: verb, group, resource.
const NEEDED: [(&str, &str, &str); 4] = [
    ("create", "apiextensions.k8s.io", "customresourcedefinitions"),
    ("create", "rbac.authorization.k8s.io", "clusterroles"),
    ("create", "admissionregistration.k8s.io", "validatingadmissionpolicies"),
    ("create", "apps", "deployments"),
];

/// Looks at the cluster of the current kubeconfig, or of the pod that this runs in.
pub async fn examine() -> anyhow::Result<Vec<Finding>> {
    let client = Client::try_default().await.context("finding a cluster: set KUBECONFIG, or run in a pod")?;
    let version = client.apiserver_version().await.context("asking the API server for its version")?;
    let mut findings = vec![version_finding(&version.major, &version.minor, &version.git_version)];
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client);
    for (verb, group, resource) in NEEDED {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(verb.into()),
                    group: Some(group.into()),
                    resource: Some(resource.into()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let answer = reviews.create(&PostParams::default(), &review).await;
        let answer = answer.with_context(|| format!("asking whether you may {verb} {resource}"))?;
        let ok = answer.status.is_some_and(|status| status.allowed);
        let message = if ok {
            format!("you may {verb} {resource}.{group}")
        } else {
            format!("you may not {verb} {resource}.{group}: install with the rights of cluster-admin")
        };
        findings.push(Finding { ok, message });
    }
    Ok(findings)
}

fn version_finding(major: &str, minor: &str, shown: &str) -> Finding {
    // Some providers write the minor as "33+".
    let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().ok();
    match (number(major), number(minor)) {
        (Some(1), Some(minor)) if minor >= OLDEST_MINOR => {
            Finding { ok: true, message: format!("the API server is {shown}") }
        }
        (Some(_), Some(_)) => Finding {
            ok: false,
            message: format!("the API server is {shown}: upgrade it to at least v1.{OLDEST_MINOR}"),
        },
        _ => Finding { ok: false, message: format!("the API server calls its version {shown}, which is no number") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions() {
        for (major, minor, ok) in [("1", "33", true), ("1", "35+", true), ("1", "32", false), ("", "x", false)] {
            assert_eq!(version_finding(major, minor, "v").ok, ok, "{major}.{minor}");
        }
    }
}
