//! A kubelet is never newer than the API server, nor too far behind it.

use super::Scene;

/// Why the class's kubelet must not be rolled out, if it must not.
pub(super) fn refuse(scene: &Scene<'_>) -> Option<String> {
    let wanted = minor(scene.kubelet?)?;
    let (server, text) = scene.world.api_server.as_ref().and_then(|text| Some((minor(text)?, text)))?;
    let kubelet = scene.kubelet.unwrap_or_default();
    let behind = scene.set.spec.skew.max_kubelet_minors_behind;
    if wanted > server {
        return Some(format!(
            "kubelet {kubelet} would be newer than the API server {text}: upgrade the control plane first"
        ));
    }
    (wanted.0 == server.0 && server.1 - wanted.1 > behind).then(|| {
        format!(
            "kubelet {kubelet} would be {} minor versions behind the API server {text}, and {behind} are allowed: choose a \
             newer kubelet",
            server.1 - wanted.1
        )
    })
}

/// `1.35` of `v1.35.8`.
fn minor(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    let major = parts.next()?.parse().ok()?;
    let minor: String = parts.next()?.chars().take_while(char::is_ascii_digit).collect();
    Some((major, minor.parse().ok()?))
}
