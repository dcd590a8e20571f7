//! Files.

use super::{Disruption, Drift, exactly_one, is_default};
use crate::problem::{FieldPath, Problems};
use crate::text::{AbsolutePath, AccountName, FileMode, UnitName};
use crate::variables;
use base64::Engine;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A file with its whole content. `content` may use variables such as `${node.name}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct File {
    /// Where it is.
    pub path: AbsolutePath,
    /// Its permission bits; without it `0644`, and `0600` for what comes from a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FileMode>,
    /// Its user; without it `root`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<AccountName>,
    /// Its group; without it `root`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<AccountName>,
    /// What is in it. Either this or `contentFrom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Where its content comes from. Either this or `content`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_from: Option<ContentFrom>,
    /// How `content` is written here.
    #[serde(default, skip_serializing_if = "is_default")]
    pub encoding: Encoding,
    /// Units that restart when the file changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub restart: Vec<UnitName>,
    /// Units that reload when the file changes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub reload: Vec<UnitName>,
    /// What becomes of it when something else changes it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drift: Drift,
    /// What a change of this file disturbs, where the default is wrong for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_change: Option<Disruption>,
}

/// How a content is written in the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Encoding {
    /// As it is; variables are substituted.
    #[default]
    Plain,
    /// In base64, for content that is not text; no variables.
    Base64,
}

/// Where a content comes from: exactly one of the fields.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ContentFrom {
    /// A key of a Secret; needs a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_ref: Option<KeyRef>,
    /// A key of a `ConfigMap`; needs a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub config_map_ref: Option<KeyRef>,
    /// A file on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<AbsolutePath>,
}

/// One key of a Secret or a `ConfigMap`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct KeyRef {
    /// The namespace of the object.
    pub namespace: String,
    /// The name of the object.
    pub name: String,
    /// The key in it.
    pub key: String,
}

impl File {
    /// The permission bits that it is to have.
    pub fn mode_bits(&self) -> u32 {
        let secret = self.content_from.as_ref().is_some_and(|from| from.secret_ref.is_some());
        self.mode.as_ref().map_or(if secret { 0o600 } else { 0o644 }, FileMode::bits)
    }

    /// The user that it is to belong to.
    pub fn owner_name(&self) -> &str {
        self.owner.as_ref().map_or("root", AccountName::as_str)
    }

    /// The group that it is to belong to.
    pub fn group_name(&self) -> &str {
        self.group.as_ref().map_or("root", AccountName::as_str)
    }

    pub(super) fn check(&self, path: &FieldPath, problems: &mut Problems) {
        exactly_one(
            &[("content", self.content.is_some()), ("contentFrom", self.content_from.is_some())],
            path,
            problems,
        );
        if let Some(from) = &self.content_from {
            exactly_one(
                &[
                    ("secretRef", from.secret_ref.is_some()),
                    ("configMapRef", from.config_map_ref.is_some()),
                    ("file", from.file.is_some()),
                ],
                &path.key("contentFrom"),
                problems,
            );
            if from.file.as_ref() == Some(&self.path) {
                problems
                    .add(path.key("contentFrom").key("file"), "the file would be its own content: name another file");
            }
            if self.encoding == Encoding::Base64 {
                problems.add(path.key("encoding"), "`contentFrom` is taken as it is: remove `encoding`");
            }
        }
        match (&self.content, self.encoding) {
            (Some(content), Encoding::Base64) => {
                if let Err(error) = base64_bytes(content) {
                    problems.add(
                        path.key("content"),
                        format!("this is not base64 ({error}): write what `base64 < FILE` prints"),
                    );
                }
            }
            (Some(content), Encoding::Plain) => {
                if let Err(message) = variables::check(content) {
                    problems.add(path.key("content"), message);
                }
            }
            (None, _) => {}
        }
        for (index, unit) in self.reload.iter().enumerate().filter(|(_, unit)| self.restart.contains(unit)) {
            problems.add(
                path.key("reload").index(index),
                format!("`{unit}` restarts already when this file changes: keep it in one of `restart` and `reload`"),
            );
        }
    }
}

/// Decodes base64 that may be broken into lines.
pub fn base64_bytes(text: &str) -> Result<Vec<u8>, String> {
    let packed: String = text.chars().filter(|c| !c.is_ascii_whitespace()).collect();
    base64::engine::general_purpose::STANDARD.decode(packed).map_err(|error| error.to_string())
}
