//! What a state says itself, over what its presets say.

use super::Additions;
use crate::state::{DesiredState, Kernel, Swap, Unit};

/// The state with what presets add. The state's own entries keep their places, so that a problem found in one later
/// still has the index that a person can find.
pub(super) fn over(mut state: DesiredState, additions: Additions) -> DesiredState {
    let Additions { packages, files, units, kernel, cri, kubelet } = additions;
    for package in packages {
        if !state.packages.iter().any(|own| own.name == package.name) {
            state.packages.push(package);
        }
    }
    // A drop-in that the state writes as a file is the state's.
    let taken: Vec<String> = state.files.iter().map(|file| file.path.to_string()).collect();
    for mut unit in units {
        let dropins = std::mem::take(&mut unit.dropins);
        unit.dropins = dropins.into_iter().filter(|dropin| !taken.contains(&unit.dropin_path(dropin))).collect();
        match state.units.iter_mut().find(|own| own.name == unit.name) {
            Some(own) => merge_unit(own, unit),
            None => state.units.push(unit),
        }
    }
    for file in files {
        if !taken.iter().any(|path| path == file.path.as_str()) {
            state.files.push(file);
        }
    }
    merge_kernel(&mut state.kernel, kernel);
    state.health.cri = state.health.cri.or(cri);
    state.health.kubelet = state.health.kubelet.or(kubelet);
    state
}

fn merge_unit(own: &mut Unit, preset: Unit) {
    if !own.masked {
        own.enabled = own.enabled.or(preset.enabled);
        own.running = own.running.or(preset.running);
    }
    own.on_change = own.on_change.or(preset.on_change);
    for dropin in preset.dropins {
        if !own.dropins.iter().any(|other| other.name == dropin.name) {
            own.dropins.push(dropin);
        }
    }
}

fn merge_kernel(own: &mut Kernel, preset: Kernel) {
    for module in preset.modules {
        // The kernel takes `-` and `_` for the same.
        let name = module.as_str().replace('-', "_");
        if !own.modules.iter().any(|other| other.as_str().replace('-', "_") == name) {
            own.modules.push(module);
        }
    }
    for (key, value) in preset.sysctl {
        own.sysctl.entry(key).or_insert(value);
    }
    if preset.swap == Swap::Off {
        own.swap = Swap::Off;
    }
}
