//! Kernel settings.

use super::is_default;
use crate::problem::{FieldPath, Problems};
use crate::text::{ModuleName, SysctlKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Kernel settings, applied now and at every boot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kernel {
    /// Modules that are to be loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub modules: Vec<ModuleName>,
    /// Kernel parameters and their values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("propertyNames" = { "format": SysctlKey::FORMAT }))]
    pub sysctl: BTreeMap<SysctlKey, String>,
    /// Whether swap may be in use.
    #[serde(default, skip_serializing_if = "is_default")]
    pub swap: Swap,
}

/// What is to become of swap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Swap {
    /// It stays as it is.
    #[default]
    Leave,
    /// It is turned off, now and at every boot.
    Off,
}

impl Kernel {
    /// True when nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    pub(super) fn check(&self, path: &FieldPath, problems: &mut Problems) {
        for (index, module) in self.modules.iter().enumerate() {
            if self.modules[..index].contains(module) {
                problems.add(path.key("modules").index(index), format!("`{module}` stands here twice: remove one"));
            }
        }
        for (key, value) in &self.sysctl {
            if value.trim().is_empty() || value.contains('\n') {
                problems.add(
                    path.key("sysctl").key(key.as_str()),
                    "the value is empty or has a line break: write what `sysctl NAME` shows behind `=`",
                );
            }
        }
    }
}
