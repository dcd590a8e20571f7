//! What the variables of a state stand for on this host.

use crate::root::Root;
use nodelet_api::variables;
use std::collections::BTreeMap;
use std::net::UdpSocket;

/// Facts of the host, by variable name. A fact that isn't known (no address without a network) is missing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts(BTreeMap<&'static str, String>);

impl Facts {
    /// Gathers them. `name` is the node's name from the settings, empty for the host name.
    pub fn gather(root: &Root, name: &str) -> Self {
        let mut facts = BTreeMap::new();
        let mut note = |key, value: Option<String>| {
            if let Some(value) = value.filter(|value| !value.is_empty()) {
                facts.insert(key, value);
            }
        };
        note("node.name", if name.is_empty() { host_name() } else { Some(name.to_owned()) });
        note("node.ip", address());
        note("node.arch", Some(architecture().to_owned()));
        let release = std::fs::read_to_string(root.join("/etc/os-release")).unwrap_or_default();
        note("node.os", os_release(&release, "ID"));
        note("node.osVersion", os_release(&release, "VERSION_ID"));
        note("node.osCodename", os_release(&release, "VERSION_CODENAME"));
        Self(facts)
    }

    /// One of them.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// Puts the facts in the place of the variables of a text.
    pub fn substitute(&self, text: &str) -> Result<String, String> {
        let mut missing = None;
        let result = variables::substitute(text, |name| {
            let value = self.0.get(name).cloned();
            if value.is_none() && variables::VARIABLES.iter().any(|(known, _)| *known == name) {
                missing = Some(name.to_owned());
            }
            value
        });
        match missing {
            Some(name) => {
                Err(format!("`${{{name}}}` is not known on this host (yet): see `nodelet config`, or write the value"))
            }
            None => result,
        }
    }
}

fn host_name() -> Option<String> {
    let name = nix::unistd::gethostname().ok()?.into_string().ok()?;
    // Node names are lower case, as the kubelet makes them.
    Some(name.to_lowercase())
}

/// The address that the default route would send from. Connecting a datagram socket sends nothing.
fn address() -> Option<String> {
    // An address of a documentation range: it only has to match the default route.
    let probe = |bind: &str, to: &str| {
        let socket = UdpSocket::bind(bind).ok()?;
        socket.connect(to).ok()?;
        socket.local_addr().ok().map(|local| local.ip().to_string())
    };
    probe("0.0.0.0:0", "192.0.2.1:9").or_else(|| probe("[::]:0", "[2001:db8::1]:9"))
}

fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// One value of an os-release file.
pub(crate) fn os_release(text: &str, key: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='))?;
    Some(line.trim().trim_matches(['"', '\'']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn os_release_values_lose_their_quotes() {
        let text = "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\n";
        assert_eq!(os_release(text, "VERSION_ID").as_deref(), Some("12"));
        assert_eq!(os_release(text, "ID").as_deref(), Some("debian"));
        assert_eq!(os_release(text, "VERSION_CODENAME"), None);
    }

    #[test]
    fn an_unknown_fact_is_an_error_and_not_an_empty_text() {
        let facts = Facts(BTreeMap::from([("node.name", "n1".to_owned())]));
        assert_eq!(facts.substitute("${node.name}!").as_deref(), Ok("n1!"));
        assert!(facts.substitute("${node.ip}").is_err_and(|error| error.contains("not known on this host")));
    }
}
