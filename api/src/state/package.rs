//! Packages.

use super::{Disruption, Drift, Presence, is_default};
use crate::problem::{FieldPath, Problems};
use crate::text::{PackageName, PackageVersion, UnitName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A package that is to be installed, or not to be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Package {
    /// Its name.
    pub name: PackageName,
    /// Its name on hosts with apt, when that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apt_name: Option<PackageName>,
    /// Its name on hosts with dnf, when that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dnf_name: Option<PackageName>,
    /// The version, exact or a glob such as `1.7.*`. Without it, any installed version will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<PackageVersion>,
    /// Nothing but nodelet may change its version (`apt-mark hold`, `dnf versionlock`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hold: bool,
    /// `absent` removes it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub state: Presence,
    /// Whether an older version than the installed one may be put in its place.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_downgrade: bool,
    /// Units that restart when its version changes. Packages of daemons restart theirs themselves; name here what
    /// they leave running with the old version.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 8))]
    pub restart: Vec<UnitName>,
    /// What becomes of it when something else changes it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub drift: Drift,
    /// What a change of this package disturbs, where the default is wrong for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_change: Option<Disruption>,
}

impl Package {
    pub(super) fn check(&self, path: &FieldPath, problems: &mut Problems) {
        if self.state == Presence::Absent {
            let with = [
                ("version", self.version.is_some()),
                ("hold", self.hold),
                ("allowDowngrade", self.allow_downgrade),
                ("restart", !self.restart.is_empty()),
            ];
            for (field, _) in with.iter().filter(|(_, set)| *set) {
                problems.add(
                    path.key(*field),
                    format!(
                        "the package is to be absent, so `{field}` has no meaning: remove it, or `state = \"absent\"`"
                    ),
                );
            }
        }
        if self.allow_downgrade && self.version.is_none() {
            problems.add(
                path.key("allowDowngrade"),
                "without `version` nothing is ever downgraded: add the version, or remove this",
            );
        }
    }
}
