//! What is written down when a change begins, and when the host is as wanted.

use super::Planned;
use crate::apply::own;
use crate::contents::Contents;
use crate::source::Desired;
use crate::store::{End, FileBefore, Good, Kind, Owned, OwnedFile, Pin, Store, StoreError, Transaction};
use jiff::Timestamp;
use nodelet_api::text::PackageVersion;

/// The host is as wanted: notes what nodelet owns, ends the transaction, and remembers the state as a good one. Whether
/// it is a new one.
pub(super) fn conclude(
    store: &Store,
    owned: &mut Owned,
    transaction: Option<Transaction>,
    planned: &Planned,
) -> Result<bool, StoreError> {
    let before = owned.clone();
    own(owned, transaction.as_ref(), &planned.target, &planned.observed);
    // Ended first: a crash in between forgets that a file is ours, which is safe; the other way round, the next round
    // would take what was put back for something that nodelet placed.
    if let Some(mut transaction) = transaction {
        transaction.ended(End::Done)?;
        forget_secrets(store, &transaction, &before, owned)?;
    }
    if *owned != store.owned()? {
        store.set_owned(owned)?;
    }
    // The source asks for something else than what was rolled back: the rollback is over, also for that revision.
    if store.pin()?.is_some_and(|pin| pin.away_from != planned.desired.asked) {
        store.set_pin(None)?;
    }
    let new = store.good()?.first().is_none_or(|good| good.revision != planned.desired.revision);
    if new {
        store.add_good(&good(planned))?;
        Contents::tidy(store, &planned.desired)?;
    }
    Ok(new)
}

/// A secret that was in a file's place was kept to undo the change; nothing undoes it any more, whatever is there now.
fn forget_secrets(
    store: &Store,
    transaction: &Transaction,
    owned_before: &Owned,
    owned: &Owned,
) -> Result<(), StoreError> {
    let secret = |owned: &Owned, path: &str| owned.files.get(path).is_some_and(|file| file.secret);
    // The same content may be what some other file was before nodelet, and comes back there: an empty one, for example.
    let comes_back = |name: &str| {
        let found = |file: &OwnedFile| matches!(&file.before, FileBefore::File { content, .. } if content == name);
        owned.files.values().any(found)
    };
    for part in transaction.parts() {
        for (path, before) in &part.before.files {
            if let FileBefore::File { content, .. } = before
                && !comes_back(content)
                && (secret(owned_before, path) || secret(owned, path))
            {
                store.blobs().forget(content)?;
            }
        }
    }
    Ok(())
}

/// The state that the host has now, with the versions that are installed.
fn good(planned: &Planned) -> Good {
    let mut state = planned.desired.state.clone();
    for (package, target) in state.packages.iter_mut().zip(&planned.target.packages) {
        let installed = planned.observed.packages.get(&target.name).map(|installed| installed.version.as_str());
        if let Some(Ok(version)) = installed.filter(|_| target.present).map(PackageVersion::try_from) {
            package.version = Some(version);
            package.allow_downgrade = true;
        }
    }
    Good { revision: planned.desired.revision.clone(), state, at: Timestamp::now() }
}

/// Begins a transaction, named by why it came about.
pub(super) fn begin(store: &Store, desired: &Desired) -> Result<Transaction, StoreError> {
    let last = store.history()?.into_iter().rev().find(|summary| summary.end == Some(End::Done));
    let known = last.is_some_and(|summary| summary.record.revision == desired.revision);
    let back = store.pin()?.is_some_and(|pin| pin.good.revision == desired.revision);
    let kind = match (known, back) {
        (true, _) => Kind::Repair,
        (false, true) => Kind::Rollback,
        (false, false) => Kind::Apply,
    };
    store.begin(kind, &desired.revision, &desired.origin)
}

/// Keeps the host away from a revision, at the newest good one; whether there is one.
pub(super) fn keep_away(store: &Store, revision: &str, reason: String) -> Result<bool, StoreError> {
    let good = store.good()?.into_iter().find(|good| good.revision != revision);
    let Some(good) = good.map(|good| store.good_state(&good)).transpose()? else { return Ok(false) };
    store.set_pin(Some(&Pin { away_from: revision.to_owned(), good, reason, automatic: true }))?;
    Ok(true)
}
