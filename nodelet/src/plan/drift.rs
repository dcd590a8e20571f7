//! What drifted and is not to be put back: it is reported, and planning goes on without it.

use super::{PlanError, file_difference, packages, units};
use crate::desired::Target;
use crate::observe::Observed;
use crate::settings::Manager;
use nodelet_api::Drift;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// A resource that is not as wanted, and is left so.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Drifted {
    /// Which one: `file /etc/x`, `package y`, `unit z.service`.
    pub resource: String,
    /// How it differs, and why it is left alone.
    pub reason: String,
}

/// Takes what must not be repaired out of a target. `tired` are resources that were repaired too often.
pub fn hold_back(
    target: &mut Target,
    observed: &Observed,
    manager: Manager,
    tired: &BTreeSet<String>,
) -> Result<Vec<Drifted>, PlanError> {
    let mut drifted = Vec::new();
    let mut held = |resource: String, policy: Drift, difference: Option<String>| -> bool {
        let Some(difference) = difference else { return false };
        let why = match policy {
            _ if tired.contains(&resource) => "it was repaired too often in the last hour: find out what changes it",
            Drift::Repair => return false,
            Drift::RepairWithGrant => "its repair needs a grant",
            Drift::Report => "the state asks to report it only",
        };
        drifted.push(Drifted { resource, reason: format!("{difference}; {why}") });
        true
    };
    let mut error = None;
    target.files.retain(|path, file| match file_difference(path, file, observed) {
        Ok(difference) => !held(format!("file {path}"), file.drift, difference),
        Err(found) => {
            error = Some(found);
            true
        }
    });
    if let Some(error) = error {
        return Err(error);
    }
    target.packages.retain(|package| {
        // A downgrade that isn't allowed is an error of the plan, unless the package is left alone anyway.
        let difference = match packages::change(package, observed, manager) {
            Ok(change) => change.as_ref().map(packages::describe),
            Err(refused) => Some(refused.to_string()),
        };
        !held(format!("package {}", package.name), package.drift, difference)
    });
    target.units.retain(|unit| {
        let seen = observed.units.get(&unit.name).cloned().unwrap_or_default();
        !held(format!("unit {}", unit.name), unit.drift, units::difference(unit, &seen))
    });
    Ok(drifted)
}
