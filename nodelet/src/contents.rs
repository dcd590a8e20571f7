//! Contents that a state takes from Secrets and `ConfigMap`s. The cluster hands them out in an object that only this
//! node may read; here they are kept beside the state, for root's eyes only, so that drift is repaired offline too.
//! They are in no plan, journal or report.

use crate::source::Desired;
use crate::store::{Store, StoreError};
use base64::Engine as _;
use nodelet_api::state::ContentRef;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Between the name of a revision and the version of its contents: neither has it.
const MARK: char = '+';
const PREFIX: &str = "contents-";

/// Contents by their slots.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Contents {
    version: Option<String>,
    slots: BTreeMap<String, Vec<u8>>,
}

impl fmt::Debug for Contents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} contents of version {:?}", self.slots.len(), self.version)
    }
}

impl Contents {
    /// What the cluster handed out.
    pub fn new(version: &str, slots: BTreeMap<String, Vec<u8>>) -> Self {
        Self { version: Some(version.to_owned()), slots }
    }

    /// One of them.
    pub fn get(&self, reference: &ContentRef) -> Option<Vec<u8>> {
        self.slots.get(&reference.slot()).cloned()
    }

    /// Why one of them is not there.
    pub(crate) fn why_not(&self, reference: &ContentRef) -> String {
        match self.version {
            Some(_) => format!("the cluster did not hand out {reference}: see the conditions of the NodeClass"),
            None => format!(
                "a {} can only be read through a cluster, and this state came without: use `file` or write the content here",
                reference.origin.name()
            ),
        }
    }

    /// The contents that belong to a revision.
    pub fn kept(store: &Store, revision: &str) -> Result<Self, StoreError> {
        let Some((_, version)) = split(revision) else { return Ok(Self::default()) };
        let kept: Option<BTreeMap<String, String>> = store.record(&file(version))?;
        let decode = |text: &String| base64::engine::general_purpose::STANDARD.decode(text).unwrap_or_default();
        let slots = kept.unwrap_or_default().iter().map(|(slot, text)| (slot.clone(), decode(text))).collect();
        Ok(Self { version: Some(version.to_owned()), slots })
    }

    /// Keeps them.
    pub fn keep(&self, store: &Store) -> Result<(), StoreError> {
        let Some(version) = &self.version else { return Ok(()) };
        let encode = |bytes: &Vec<u8>| base64::engine::general_purpose::STANDARD.encode(bytes);
        let slots: BTreeMap<&String, String> = self.slots.iter().map(|(slot, bytes)| (slot, encode(bytes))).collect();
        store.set_record(&file(version), Some(&slots))
    }

    /// Whether a version of them is kept.
    pub fn is_kept(store: &Store, version: &str) -> bool {
        store.has_record(&file(version))
    }

    /// Lets go of versions that nothing goes back to.
    pub fn tidy(store: &Store, desired: &Desired) -> Result<(), StoreError> {
        let good = store.good()?;
        let revisions = good.iter().map(|good| good.revision.as_str());
        let in_use: BTreeSet<String> = revisions
            .chain([desired.revision.as_str(), desired.asked.as_str()])
            .filter_map(split)
            .map(|(_, version)| file(version))
            .collect();
        for name in store.records(PREFIX)? {
            if !in_use.contains(&name) {
                store.set_record::<()>(&name, None)?;
            }
        }
        Ok(())
    }
}

fn file(version: &str) -> String {
    // A version comes from the cluster, and becomes the name of a file.
    let plain: String = version.chars().filter(char::is_ascii_alphanumeric).collect();
    format!("{PREFIX}{plain}.json")
}

/// A revision with the version of its contents: what the node converges to is both.
pub fn revision_with(revision: &str, version: Option<&str>) -> String {
    version.map_or_else(|| revision.to_owned(), |version| format!("{revision}{MARK}{version}"))
}

/// The revision and the version of its contents, where it has any.
pub fn split(revision: &str) -> Option<(&str, &str)> {
    revision.split_once(MARK)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::root::Root;
    use nodelet_api::state::{KeyRef, Origin};

    #[test]
    fn contents_are_kept_by_their_version() {
        let directory = tempfile::tempdir().unwrap();
        let store = Store::open(&Root::at(directory.path())).unwrap();
        let at = KeyRef { namespace: "n".into(), name: "s".into(), key: "k".into() };
        let reference = ContentRef::new(Origin::Secret, &at);
        let contents = Contents::new("v1", [(reference.slot(), b"hush\xff".to_vec())].into());
        contents.keep(&store).unwrap();
        assert!(!format!("{contents:?}").contains("hush"));
        let revision = revision_with("worker-1", Some("v1"));
        assert_eq!(Contents::kept(&store, &revision).unwrap().get(&reference).unwrap(), b"hush\xff");
        assert!(Contents::is_kept(&store, "v1") && !Contents::is_kept(&store, "v2"));
        let without = Contents::kept(&store, "worker-1").unwrap();
        assert!(without.get(&reference).is_none() && without.why_not(&reference).contains("through a cluster"));
    }
}
