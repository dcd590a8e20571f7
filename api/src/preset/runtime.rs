//! The container runtime, whichever it is.

use super::table::{self, Table};
use super::{Additions, containerd, crio, docker};
use crate::problem::{FieldPath, Problems};
use crate::state::{Kernel, is_default};
use crate::text::{PackageName, PackageVersion};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A container runtime: its package, its configuration, its unit and the kernel module that it needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Runtime {
    /// Which one.
    pub kind: RuntimeKind,
    /// The version of its package, exact or a glob such as `1.7.*`; it may go down as well. Without it, any installed
    /// version will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<PackageVersion>,
    /// The names of its package, where they are not the usual ones.
    #[serde(default, skip_serializing_if = "is_default")]
    pub package: PackageNames,
    /// Nothing but nodelet may change its version. `true` unless said otherwise.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub hold: bool,
    /// Who makes the containers' control groups. The kubelet follows it.
    #[serde(default, skip_serializing_if = "is_default")]
    pub cgroup_driver: CgroupDriver,
    /// The image of pods' sandboxes, where it is not the runtime's own choice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox_image: Option<String>,
    /// Fields of the runtime's own configuration, laid over the preset's: of `config.toml` for containerd, of
    /// `daemon.json` for docker, of `crio.conf` for CRI-O.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub config: Table,
}

/// The container runtimes that there are presets for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum RuntimeKind {
    /// containerd 1.6 or newer.
    Containerd,
    /// Docker Engine, with live-restore on; for a kubelet, with cri-dockerd.
    Docker,
    /// CRI-O.
    CriO,
}

/// Who makes the containers' control groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum CgroupDriver {
    /// systemd: right wherever systemd runs the host.
    #[default]
    Systemd,
    /// The runtime itself.
    Cgroupfs,
}

/// The names of a package.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PackageNames {
    /// Its name on all hosts but those named below.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<PackageName>,
    /// Its name on hosts with apt, when that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub apt_name: Option<PackageName>,
    /// Its name on hosts with dnf, when that differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dnf_name: Option<PackageName>,
}

pub(super) fn yes() -> bool {
    true
}

impl PackageNames {
    /// The usual names of a package: on all hosts, and on hosts with dnf when that differs.
    pub(super) fn usual(name: &'static str, dnf: Option<&'static str>) -> Self {
        Self { name: Some(PackageName::constant(name)), apt_name: None, dnf_name: dnf.map(PackageName::constant) }
    }
}

impl CgroupDriver {
    /// As all configurations write it.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Systemd => "systemd",
            Self::Cgroupfs => "cgroupfs",
        }
    }
}

impl RuntimeKind {
    /// Where the kubelet finds it.
    pub(super) fn endpoint(self) -> &'static str {
        match self {
            Self::Containerd => containerd::ENDPOINT,
            Self::Docker => docker::ENDPOINT,
            Self::CriO => crio::ENDPOINT,
        }
    }

    /// The units that must run before the kubelet.
    pub(super) fn units(self) -> &'static [&'static str] {
        match self {
            Self::Containerd => &[containerd::UNIT],
            Self::Docker => &[docker::UNIT, docker::CRI_UNIT],
            Self::CriO => &[crio::UNIT],
        }
    }
}

impl Runtime {
    pub(super) fn expand(&self, with_kubelet: bool, additions: &mut Additions) {
        additions.kernel = Kernel { modules: super::modules(&["overlay"]), ..Kernel::default() };
        match self.kind {
            RuntimeKind::Containerd => containerd::expand(self, additions),
            RuntimeKind::Docker => docker::expand(self, with_kubelet, additions),
            RuntimeKind::CriO => crio::expand(self, additions),
        }
    }

    /// The preset's configuration with the state's own fields over it.
    pub(super) fn configured(&self, preset: Value) -> Value {
        table::merged(preset, Value::Object(self.config.clone()))
    }

    pub(super) fn check(&self, with_kubelet: bool, path: &FieldPath, problems: &mut Problems) {
        table::check(&self.config, &path.key("config"), problems);
        if let Some(image) = &self.sandbox_image {
            // As image references are made; cri-dockerd gets it in a unit file, where other characters have meanings.
            let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:@".contains(c);
            if image.is_empty() || !image.chars().all(plain) {
                let message = format!("{image:?} is not an image: write it like `registry.example.org/pause:3.10`");
                problems.add(path.key("sandboxImage"), message);
            }
        }
        match self.kind {
            RuntimeKind::Containerd => containerd::check(self, &path.key("config"), problems),
            RuntimeKind::Docker => docker::check(self, with_kubelet, path, problems),
            RuntimeKind::CriO => crio::check(self, &path.key("config"), problems),
        }
    }

    /// A field that `cgroupDriver` decides must not say something else.
    pub(super) fn check_driver(&self, way: &[&str], wanted: &Value, path: &FieldPath, problems: &mut Problems) {
        if table::lookup(&self.config, way).is_some_and(|given| given != wanted) {
            let at = way.iter().fold(path.clone(), |at, name| at.key(*name));
            let message = format!("`cgroupDriver` is \"{}\": remove this, and say it there", self.cgroup_driver.word());
            problems.add(at, message);
        }
    }
}
