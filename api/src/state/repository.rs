//! Package repositories.

use super::{Drift, KeyRef, Presence, exactly_one, is_default};
use crate::problem::{FieldPath, Problems};
use crate::text::{AbsolutePath, RepositoryName};
use crate::variables;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A source of packages. The section for the host's package manager is used, the other is ignored, so
/// that one state serves Debian and RPM hosts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Repository {
    /// Its name; becomes `NAME.sources` or `NAME.repo`.
    pub name: RepositoryName,
    /// `absent` removes it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state: Presence,
    /// What becomes of it when something else changes it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drift: Drift,
    /// On hosts with apt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apt: Option<AptRepository>,
    /// On hosts with dnf.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dnf: Option<DnfRepository>,
}

/// A repository for apt, written as a deb822 `.sources` file whose `Signed-By` is a keyring of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AptRepository {
    /// Where it is: `https:`, `http:` or `file:` addresses.
    pub uris: Vec<String>,
    /// Its suites, such as `bookworm`, or `/` for a flat repository.
    pub suites: Vec<String>,
    /// Its components, such as `main`; none for a flat repository.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub components: Vec<String>,
    /// The key that signs it.
    pub key: KeySource,
}

/// A repository for dnf, written as a `.repo` file with its own key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DnfRepository {
    /// Where it is: `https:`, `http:` or `file:` addresses.
    pub baseurl: Vec<String>,
    /// The key that signs its packages.
    pub key: KeySource,
    /// Whether the metadata is signed too, beside the packages.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub signed_metadata: bool,
}

/// Where a repository's public key comes from: exactly one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeySource {
    /// A file on the node, armoured or binary.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<AbsolutePath>,
    /// The armoured key itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline: Option<String>,
    /// A key of a Secret; needs a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<KeyRef>,
}

impl Repository {
    pub(super) fn check(&self, path: &FieldPath, problems: &mut Problems) {
        if self.state == Presence::Absent {
            return;
        }
        if self.apt.is_none() && self.dnf.is_none() {
            problems.add(
                path.clone(),
                "the repository says neither `apt` nor `dnf`: add the section for your hosts, or `state = \"absent\"`",
            );
        }
        if let Some(apt) = &self.apt {
            let at = path.key("apt");
            check_addresses(&apt.uris, &at.key("uris"), problems);
            check_words(&apt.suites, &at.key("suites"), problems);
            check_words(&apt.components, &at.key("components"), problems);
            if apt.suites.is_empty() {
                problems.add(at.key("suites"), "no suite: write one, such as `bookworm`, or `/` for a flat repository");
            }
            let flat = apt.suites.iter().any(|suite| suite.ends_with('/'));
            match (flat, apt.components.is_empty()) {
                (true, false) => problems.add(
                    at.key("components"),
                    "a flat repository (its suite ends with `/`) has no components: remove them",
                ),
                (false, true) if !apt.suites.is_empty() => {
                    problems.add(at.key("components"), "no component: write one, such as `main`");
                }
                _ => {}
            }
            apt.key.check(&at.key("key"), problems);
        }
        if let Some(dnf) = &self.dnf {
            let at = path.key("dnf");
            check_addresses(&dnf.baseurl, &at.key("baseurl"), problems);
            dnf.key.check(&at.key("key"), problems);
        }
    }
}

impl KeySource {
    fn check(&self, path: &FieldPath, problems: &mut Problems) {
        exactly_one(
            &[
                ("file", self.file.is_some()),
                ("inline", self.inline.is_some()),
                ("secretRef", self.secret_ref.is_some()),
            ],
            path,
            problems,
        );
        let armoured = |key: &String| key.trim_start().starts_with("-----BEGIN PGP PUBLIC KEY BLOCK-----");
        if self.inline.as_ref().is_some_and(|key| !armoured(key)) {
            problems.add(
                path.key("inline"),
                "this is not an armoured public key: paste the text from `-----BEGIN PGP PUBLIC KEY BLOCK-----` on",
            );
        }
    }
}

fn check_addresses(addresses: &[String], path: &FieldPath, problems: &mut Problems) {
    if addresses.is_empty() {
        problems.add(path.clone(), "no address: write at least one, such as `https://pkgs.example.org/stable/`");
    }
    for (index, address) in addresses.iter().enumerate() {
        let scheme = ["https://", "http://", "file:/"].iter().any(|scheme| address.starts_with(scheme));
        if !scheme || address.contains(char::is_whitespace) {
            problems.add(
                path.index(index),
                format!("`{address}` is not an address: begin it with https://, http:// or file:/, without spaces"),
            );
        } else if let Err(message) = variables::check(address) {
            problems.add(path.index(index), message);
        }
    }
}

/// deb822 separates words by spaces: a word must not bring its own, nor a line break.
fn check_words(words: &[String], path: &FieldPath, problems: &mut Problems) {
    for (index, word) in words.iter().enumerate() {
        if word.is_empty() || word.contains(|c: char| c.is_whitespace() || c.is_control()) {
            problems.add(path.index(index), format!("{word:?} is not one word: write each as an entry of its own"));
        } else if let Err(message) = variables::check(word) {
            problems.add(path.index(index), message);
        }
    }
}
