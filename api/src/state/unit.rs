//! systemd units.

use super::{Disruption, Drift, is_default};
use crate::problem::{FieldPath, Problems};
use crate::text::{DropinName, UnitName};
use crate::variables;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// A systemd unit. What is not said is left as it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Unit {
    /// Its full name, with the suffix.
    pub name: UnitName,
    /// Whether it starts at boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
    /// Whether it can't be started at all.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub masked: bool,
    /// Whether it runs now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<bool>,
    /// The whole unit file, put in `/etc/systemd/system`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Additions to the unit file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]), length(max = 32))]
    pub dropins: Vec<Dropin>,
    /// What becomes of it when something else changes it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drift: Drift,
    /// What a change of this unit disturbs, where the default is wrong for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_change: Option<Disruption>,
}

/// An addition to a unit file, put in `/etc/systemd/system/UNIT.d`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Dropin {
    /// Its file name.
    pub name: DropinName,
    /// What is in it.
    pub content: String,
}

/// Where an administrator's units live; a package's are in `/usr/lib/systemd/system`.
const UNIT_DIRECTORY: &str = "/etc/systemd/system";

impl Unit {
    /// The path of the unit file, when the state has one.
    pub fn path(&self) -> String {
        format!("{UNIT_DIRECTORY}/{}", self.name)
    }

    /// The path of one of its drop-ins.
    pub fn dropin_path(&self, dropin: &Dropin) -> String {
        format!("{UNIT_DIRECTORY}/{}.d/{}", self.name, dropin.name)
    }

    pub(super) fn check(&self, path: &FieldPath, problems: &mut Problems) {
        if self.masked {
            let with = [
                ("enabled", self.enabled == Some(true)),
                ("running", self.running == Some(true)),
                ("content", self.content.is_some()),
            ];
            for (field, _) in with.iter().filter(|(_, set)| *set) {
                problems.add(path.key(*field), format!("a masked unit can't have `{field}`: remove it, or `masked`"));
            }
        }
        if self.running == Some(true) && self.name.as_str().contains("@.") {
            problems.add(
                path.key("running"),
                "a template can't run: name an instance, such as `name@1.service`, or remove this",
            );
        }
        let mut names = HashSet::new();
        for (index, dropin) in self.dropins.iter().enumerate() {
            let at = path.key("dropins").index(index);
            if !names.insert(&dropin.name) {
                problems.add(at.key("name"), format!("`{}` stands here twice: merge the two", dropin.name));
            }
            if let Err(message) = variables::check(&dropin.content) {
                problems.add(at.key("content"), message);
            }
        }
        if let Some(Err(message)) = self.content.as_deref().map(variables::check) {
            problems.add(path.key("content"), message);
        }
        let says_something = self.enabled.is_some()
            || self.masked
            || self.running.is_some()
            || self.content.is_some()
            || !self.dropins.is_empty();
        if !says_something {
            problems.add(
                path.clone(),
                "the unit says nothing: add `enabled`, `running`, `masked`, `content` or `dropins`, or remove it",
            );
        }
    }
}
