//! What left the state: what nodelet placed goes away, and what it found in its place comes back. What it never
//! placed is never touched. What takes the place of a secret is as little shown as the secret.

use crate::desired::{Purpose, Target, TargetFile, TargetPackage, TargetUnit, template_of};
use crate::settings::Prune;
use crate::store::{Blobs, FileBefore, Owned, StoreError};
use nodelet_api::Drift;
use std::collections::BTreeSet;

/// Adds what must be taken back to a target.
pub fn extend(target: &mut Target, owned: &Owned, policy: Prune, blobs: &Blobs) -> Result<(), StoreError> {
    for (path, file) in &owned.files {
        if let Some(wanted) = target.files.get_mut(path) {
            wanted.secret |= file.secret;
            continue;
        }
        if target.absent.contains_key(path) {
            continue;
        }
        target.released.insert(path.clone());
        match &file.before {
            FileBefore::Absent => drop(target.absent.insert(path.clone(), file.followers.clone())),
            FileBefore::File { content, mode, uid, gid } => {
                let file = TargetFile {
                    content: blobs.get(content)?.into(),
                    mode: *mode,
                    owner: uid.to_string(),
                    group: gid.to_string(),
                    purpose: if file.unit_file { Purpose::Unit } else { Purpose::Plain },
                    followers: file.followers.clone(),
                    drift: Drift::Repair,
                    on_change: None,
                    secret: file.secret,
                };
                target.files.insert(path.clone(), file);
            }
        }
    }
    let named: BTreeSet<String> = target.packages.iter().map(|package| package.name.clone()).collect();
    if policy != Prune::Keep {
        target.packages.extend(owned.packages.difference(&named).map(|name| TargetPackage {
            name: name.clone(),
            present: false,
            version: None,
            hold: false,
            allow_downgrade: false,
            restart: BTreeSet::new(),
            drift: Drift::Repair,
            on_change: None,
        }));
    }
    let named: BTreeSet<String> = target.units.iter().map(|unit| unit.name.clone()).collect();
    for (name, unit) in owned.units.iter().filter(|(name, _)| !named.contains(*name)) {
        // A unit that nodelet only started goes on running, unless its unit file goes with it.
        let goes = |unit: &str| target.released.contains(&format!("/etc/systemd/system/{unit}"));
        let file_goes = goes(name) || template_of(name).is_some_and(|template| goes(&template));
        target.units.push(TargetUnit {
            name: name.clone(),
            enabled: unit.enabled.then_some(false),
            masked: false,
            running: file_goes.then_some(false),
            left: true,
            drift: Drift::Repair,
            on_change: None,
        });
    }
    Ok(())
}
