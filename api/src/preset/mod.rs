//! Presets: a few words that stand for ordinary desired state.
//!
//! [`DesiredState::expand`] is pure: the same words always give the same packages, files, units and kernel settings,
//! so that a revision can be named by its content. What the state says itself wins over what a preset says.

mod containerd;
mod crio;
mod docker;
mod kubelet;
mod merge;
mod runtime;
mod table;

pub use kubelet::{Bootstrap, Kubelet};
pub use runtime::{CgroupDriver, PackageNames, Runtime, RuntimeKind};

use crate::document::Document;
use crate::problem::{FieldPath, Problems};
use crate::state::{DesiredState, Disruption, Dropin, File, Kernel, Package, Presence, Unit};
use crate::text::{AbsolutePath, DropinName, FileMode, ModuleName, PackageVersion, UnitName};

/// What presets add to a state.
#[derive(Debug, Default)]
struct Additions {
    packages: Vec<Package>,
    files: Vec<File>,
    units: Vec<Unit>,
    kernel: Kernel,
    /// The CRI endpoint that must answer after a change.
    cri: Option<String>,
    /// The kubelet's address that must answer after a change.
    kubelet: Option<String>,
}

impl DesiredState {
    /// The same state without presets: what they stand for is written out. What the state says itself wins: a package
    /// of the same name or a file of the same path replaces the preset's, units are merged field by field, kernel
    /// settings are united.
    #[must_use]
    pub fn expand(&self) -> Self {
        let mut additions = Additions::default();
        if let Some(runtime) = &self.runtime {
            runtime.expand(self.kubelet.is_some(), &mut additions);
        }
        if let Some(kubelet) = &self.kubelet {
            kubelet.expand(self.runtime.as_ref(), &mut additions);
        }
        let explicit = Self { runtime: None, kubelet: None, ..self.clone() };
        merge::over(explicit, additions)
    }

    /// The presets themselves, then what they stand for together with the rest of the state.
    pub(crate) fn check_presets(&self, problems: &mut Problems) {
        let root = FieldPath::root();
        if let Some(runtime) = &self.runtime {
            runtime.check(self.kubelet.is_some(), &root.key("runtime"), problems);
        }
        if let Some(kubelet) = &self.kubelet {
            kubelet.check(self.runtime.as_ref(), &root.key("kubelet"), problems);
        }
        let preset = match (&self.runtime, &self.kubelet) {
            (Some(_), _) => "runtime",
            (None, Some(_)) => "kubelet",
            (None, None) => return,
        };
        if problems.is_empty() {
            let mut contradictions = Problems::default();
            self.expand().check(&mut contradictions);
            for problem in contradictions {
                let message = format!("this does not go with the rest of the state: {}", problem.message);
                problems.add(root.key(preset), message);
            }
        }
    }
}

/// A package of a preset. Its version is the preset's word alone, so it may go down as well: a rollout that is taken
/// back does just that.
fn package(
    names: &PackageNames,
    defaults: PackageNames,
    version: Option<&PackageVersion>,
    hold: bool,
    restart: &[&'static str],
) -> Option<Package> {
    let PackageNames { name, apt_name, dnf_name } = match names.name {
        Some(_) => names.clone(),
        None => PackageNames {
            name: defaults.name,
            apt_name: names.apt_name.clone().or(defaults.apt_name),
            dnf_name: names.dnf_name.clone().or(defaults.dnf_name),
        },
    };
    Some(Package {
        name: name?,
        apt_name,
        dnf_name,
        version: version.cloned(),
        hold,
        state: Presence::Present,
        allow_downgrade: version.is_some(),
        restart: restart.iter().copied().map(UnitName::constant).collect(),
        drift: crate::Drift::Repair,
        // The default is right: nothing for a first installation, a restart for an upgrade.
        on_change: None,
    })
}

/// A file of a preset, whose change restarts a unit; containers go on running.
fn file(path: &'static str, mode: &'static str, content: String, restart: &[&'static str]) -> File {
    File {
        path: AbsolutePath::constant(path),
        mode: Some(FileMode::constant(mode)),
        owner: None,
        group: None,
        content: Some(content),
        content_from: None,
        encoding: crate::state::Encoding::Plain,
        restart: restart.iter().copied().map(UnitName::constant).collect(),
        reload: Vec::new(),
        drift: crate::Drift::Repair,
        on_change: Some(Disruption::Restart),
    }
}

/// A unit of a preset that runs, with the preset's drop-in if it has one.
fn unit(name: &'static str, dropin: Option<String>) -> Unit {
    let dropin = dropin.map(|content| Dropin { name: DropinName::constant(DROPIN), content });
    Unit {
        name: UnitName::constant(name),
        enabled: Some(true),
        masked: false,
        running: Some(true),
        content: None,
        dropins: dropin.into_iter().collect(),
        drift: crate::Drift::Repair,
        on_change: Some(Disruption::Restart),
    }
}

/// The first line of files that may have one.
const HEADER: &str = "# Written by nodelet.\n";

/// The name of presets' drop-ins: behind `10-kubeadm.conf`, which kubeadm's package brings, before an administrator's.
const DROPIN: &str = "20-nodelet.conf";

fn modules(names: &[&'static str]) -> Vec<ModuleName> {
    names.iter().copied().map(ModuleName::constant).collect()
}

#[cfg(test)]
mod tests;
