//! Contents that a state takes from objects of the cluster.

use super::{DesiredState, KeyRef};
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

/// The kind of object that a content comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Origin {
    /// A Secret.
    Secret,
    /// A `ConfigMap`.
    ConfigMap,
}

impl Origin {
    /// As Kubernetes calls it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Secret => "Secret",
            Self::ConfigMap => "ConfigMap",
        }
    }
}

/// One key of an object of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ContentRef {
    /// The kind of object.
    pub origin: Origin,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The key in it.
    pub key: String,
}

impl ContentRef {
    /// A key of an object of this kind.
    pub fn new(origin: Origin, at: &KeyRef) -> Self {
        Self { origin, namespace: at.namespace.clone(), name: at.name.clone(), key: at.key.clone() }
    }

    /// The key that the content has in a node's own Secret: names may be longer than a key can be.
    pub fn slot(&self) -> String {
        let Self { origin, namespace, name, key } = self;
        let digest = Sha256::digest(format!("{}/{namespace}/{name}/{key}", origin.name()));
        digest.iter().take(16).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
    }
}

impl std::fmt::Display for ContentRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { origin, namespace, name, key } = self;
        write!(f, "key {key} of the {} {namespace}/{name}", origin.name())
    }
}

impl DesiredState {
    /// Everything that it takes from objects of the cluster.
    pub fn references(&self) -> BTreeSet<ContentRef> {
        let mut all = BTreeSet::new();
        for from in self.files.iter().filter_map(|file| file.content_from.as_ref()) {
            all.extend(from.secret_ref.iter().map(|at| ContentRef::new(Origin::Secret, at)));
            all.extend(from.config_map_ref.iter().map(|at| ContentRef::new(Origin::ConfigMap, at)));
        }
        for repository in &self.repositories {
            let apt = repository.apt.iter().filter_map(|apt| apt.key.secret_ref.as_ref());
            let dnf = repository.dnf.iter().filter_map(|dnf| dnf.key.secret_ref.as_ref());
            all.extend(apt.chain(dnf).map(|at| ContentRef::new(Origin::Secret, at)));
        }
        all
    }
}

/// A name for what is in several slots, which changes when one of them does.
pub fn version_of(contents: &BTreeMap<String, Vec<u8>>) -> String {
    let mut hash = Sha256::new();
    for (slot, content) in contents {
        hash.update(slot);
        hash.update((content.len() as u64).to_be_bytes());
        hash.update(content);
    }
    hash.finalize().iter().take(8).fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn references_are_found_wherever_they_are() {
        let text = r#"{"files": [
            {"path": "/a", "contentFrom": {"secretRef": {"namespace": "n", "name": "s", "key": "k"}}},
            {"path": "/b", "contentFrom": {"configMapRef": {"namespace": "n", "name": "s", "key": "k"}}},
            {"path": "/c", "contentFrom": {"file": "/x"}}],
            "repositories": [{"name": "r", "apt": {"uris": ["u"], "suites": ["/"],
                "key": {"secretRef": {"namespace": "n", "name": "keys", "key": "r"}}}}]}"#;
        let state: DesiredState = serde_json::from_str(text).unwrap();
        let found: Vec<String> = state.references().iter().map(ToString::to_string).collect();
        assert_eq!(found, ["key r of the Secret n/keys", "key k of the Secret n/s", "key k of the ConfigMap n/s"]);
        let slots: BTreeSet<String> = state.references().iter().map(ContentRef::slot).collect();
        assert_eq!(slots.len(), 3, "a slot for each");
    }

    #[test]
    fn a_version_is_of_contents_and_of_their_places() {
        let of = |pairs: &[(&str, &str)]| {
            version_of(&pairs.iter().map(|(k, v)| ((*k).to_owned(), v.as_bytes().to_vec())).collect())
        };
        assert_eq!(of(&[("a", "1"), ("b", "2")]), of(&[("b", "2"), ("a", "1")]));
        assert_ne!(of(&[("a", "12")]), of(&[("a", "1"), ("2", "")]));
    }
}
