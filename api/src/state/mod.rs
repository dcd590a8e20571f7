//! The desired state: what is to be on a node.

mod contents;
mod file;
mod health;
mod kernel;
mod package;
mod repository;
mod unit;

pub use contents::{ContentRef, Origin, version_of};
pub use file::{ContentFrom, Encoding, File, KeyRef, base64_bytes};
pub use health::Health;
pub use kernel::{Kernel, Swap};
pub use package::Package;
pub use repository::{AptRepository, DnfRepository, KeySource, Repository};
pub use unit::{Dropin, Unit};

use crate::document::Document;
use crate::preset::{Kubelet, Runtime};
use crate::problem::{FieldPath, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::hash::Hash;

/// Everything that nodelet keeps on a node: the body of `state.toml`, of a `NodeClass` and of a revision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DesiredState {
    /// A container runtime, in a few words: stands for packages, files, units and kernel settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    /// The kubelet, in a few words: stands for packages, files, units and kernel settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<Kubelet>,
    /// Sources of packages, each with a key of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]), length(max = 64))]
    pub repositories: Vec<Repository>,
    /// Packages that are to be there, or not to be there.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]), length(max = 512))]
    pub packages: Vec<Package>,
    /// Files with their whole content.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["path"]), length(max = 1024))]
    pub files: Vec<File>,
    /// systemd units: their state, their drop-ins, or the whole unit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]), length(max = 256))]
    pub units: Vec<Unit>,
    /// Kernel modules and parameters, swap.
    #[serde(default, skip_serializing_if = "is_default")]
    pub kernel: Kernel,
    /// How a change is checked once it is made.
    #[serde(default, skip_serializing_if = "is_default")]
    pub health: Health,
}

/// Whether something is to be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Presence {
    /// It is to be there.
    #[default]
    Present,
    /// It is not to be there.
    Absent,
}

/// What becomes of a resource that something else changed after it was as wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Drift {
    /// It is put back at once.
    #[default]
    Repair,
    /// It is put back once the cluster allows it; without a cluster it is reported.
    RepairWithGrant,
    /// It is left alone and reported.
    Report,
}

/// How much a change disturbs what runs on the node, least first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Disruption {
    /// Nothing notices.
    #[default]
    None,
    /// A service reads its configuration again.
    Reload,
    /// A service restarts; containers go on running.
    Restart,
    /// The node's pods must leave first.
    Drain,
    /// The machine restarts.
    Reboot,
}

impl std::fmt::Display for Disruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::None => "None",
            Self::Reload => "Reload",
            Self::Restart => "Restart",
            Self::Drain => "Drain",
            Self::Reboot => "Reboot",
        })
    }
}

impl DesiredState {
    /// True when nothing is asked for.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Document for DesiredState {
    fn check(&self, problems: &mut Problems) {
        let root = FieldPath::root();
        each(&self.repositories, &root.key("repositories"), problems, Repository::check);
        each(&self.packages, &root.key("packages"), problems, Package::check);
        each(&self.files, &root.key("files"), problems, File::check);
        each(&self.units, &root.key("units"), problems, Unit::check);
        self.kernel.check(&root.key("kernel"), problems);
        self.health.check(&root.key("health"), problems);

        unique(&self.repositories, &root.key("repositories"), "name", problems, |r| r.name.as_str());
        unique(&self.packages, &root.key("packages"), "name", problems, |p| p.name.as_str());
        unique(&self.units, &root.key("units"), "name", problems, |u| u.name.as_str());
        self.check_paths(problems);
        self.check_masked_units(problems);
        self.check_presets(problems);
    }
}

impl DesiredState {
    /// One path has one owner: a file, a unit's own file, a drop-in, or what kernel settings write.
    fn check_paths(&self, problems: &mut Problems) {
        let mut owners: HashMap<String, FieldPath> = HashMap::new();
        let mut claims: Vec<(String, FieldPath)> = Vec::new();
        let root = FieldPath::root();
        for (index, file) in self.files.iter().enumerate() {
            claims.push((file.path.to_string(), root.key("files").index(index).key("path")));
        }
        for (index, unit) in self.units.iter().enumerate() {
            let at = root.key("units").index(index);
            if unit.content.is_some() {
                claims.push((unit.path(), at.key("content")));
            }
            for (number, dropin) in unit.dropins.iter().enumerate() {
                claims.push((unit.dropin_path(dropin), at.key("dropins").index(number).key("name")));
            }
        }
        for (path, at) in claims {
            if let Some(first) = owners.get(&path) {
                problems.add(at, format!("`{path}` is placed by {first} already: keep one of the two"));
            } else {
                owners.insert(path, at);
            }
        }
        for (path, at) in &owners {
            let mut above = path.as_str();
            while let Some((parent, _)) = above.rsplit_once('/') {
                if let Some(owner) = owners.get(parent) {
                    let message = format!(
                        "`{parent}` is a file by {owner}, so nothing can lie below it: change one of the two paths"
                    );
                    problems.add(at.clone(), message);
                }
                above = parent;
            }
        }
    }

    /// A masked unit can't be restarted by a file that changes.
    fn check_masked_units(&self, problems: &mut Problems) {
        let masked: Vec<&str> = self.units.iter().filter(|unit| unit.masked).map(|unit| unit.name.as_str()).collect();
        for (index, file) in self.files.iter().enumerate() {
            for (field, units) in [("restart", &file.restart), ("reload", &file.reload)] {
                for (number, unit) in units.iter().enumerate().filter(|(_, unit)| masked.contains(&unit.as_str())) {
                    let at = FieldPath::root().key("files").index(index).key(field).index(number);
                    problems.add(at, format!("`{unit}` is masked by this state: remove it here, or unmask it"));
                }
            }
        }
    }
}

/// What is as the default has it is not written out.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

fn each<T>(entries: &[T], path: &FieldPath, problems: &mut Problems, check: impl Fn(&T, &FieldPath, &mut Problems)) {
    for (index, entry) in entries.iter().enumerate() {
        check(entry, &path.index(index), problems);
    }
}

fn unique<'a, T, K: Eq + Hash + std::fmt::Display>(
    entries: &'a [T],
    path: &FieldPath,
    field: &str,
    problems: &mut Problems,
    key_of: impl Fn(&'a T) -> K,
) {
    let mut seen: HashMap<K, usize> = HashMap::new();
    for (index, entry) in entries.iter().enumerate() {
        let key = key_of(entry);
        if let Some(first) = seen.get(&key) {
            let message = format!("`{key}` stands in {} already: merge the two", path.index(*first));
            problems.add(path.index(index).key(field), message);
        } else {
            seen.insert(key, index);
        }
    }
}

/// Exactly one of several fields is to be set.
pub(crate) fn exactly_one(set: &[(&str, bool)], path: &FieldPath, problems: &mut Problems) {
    let names = set.iter().map(|(name, _)| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let given: Vec<&str> = set.iter().filter(|(_, is_set)| *is_set).map(|(name, _)| *name).collect();
    match given.as_slice() {
        [_] => {}
        [] => problems.add(path.clone(), format!("nothing is given: write exactly one of {names}")),
        [.., last] => {
            problems.add(path.key(*last), format!("{} are given: keep exactly one of {names}", given.join(" and ")));
        }
    }
}
