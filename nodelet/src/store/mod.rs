//! What nodelet remembers across restarts, in its state directory: what it placed, what it is doing, what it did.

mod blobs;
mod good;
mod owned;
mod transaction;

pub use blobs::Blobs;
pub use good::{Good, GoodRevision, Pin};
pub use owned::{Owned, OwnedFile, OwnedUnit};
pub use transaction::{Before, End, FileBefore, Kind, Part, Record, Summary, Transaction};

use crate::host::files;
use crate::root::Root;
use crate::stage::Ready;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io;
use std::path::{Path, PathBuf};

/// Where it is; the unit's `StateDirectory`.
pub const STATE_DIRECTORY: &str = "/var/lib/nodelet";

/// How many transactions are kept for `nodelet history`; older ones are removed.
const KEPT_TRANSACTIONS: usize = 50;

/// The state directory could not be used.
#[derive(Debug, thiserror::Error)]
#[error("{what} {}: {source}", path.display())]
pub struct StoreError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

pub(crate) fn failed(what: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError { what, path, source }
}

/// How many good states are kept for a rollback.
const KEPT_GOOD: usize = 5;

/// The right to change the host: one nodelet at a time has it.
#[derive(Debug)]
pub struct Exclusive(#[allow(dead_code, reason = "held, not read")] Flock<std::fs::File>);

/// nodelet's state directory.
#[derive(Clone, Debug)]
pub struct Store {
    directory: PathBuf,
}

impl Store {
    /// The store of a host.
    pub fn open(root: &Root) -> Result<Self, StoreError> {
        let directory = root.join(STATE_DIRECTORY);
        std::fs::create_dir_all(directory.join("transactions")).map_err(failed("making", &directory))?;
        Ok(Self { directory })
    }

    /// Takes the right to change the host; `None` while another nodelet has it.
    pub fn exclusive(&self) -> Result<Option<Exclusive>, StoreError> {
        let path = self.directory.join("lock");
        let file = std::fs::File::create(&path).map_err(failed("opening", &path))?;
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => Ok(Some(Exclusive(lock))),
            Err((_, Errno::EWOULDBLOCK)) => Ok(None),
            Err((_, error)) => Err(failed("locking", &path)(error.into())),
        }
    }

    /// States that were good, newest first.
    pub fn good(&self) -> Result<Vec<GoodRevision>, StoreError> {
        Ok(read(&self.directory.join("good.json"))?.unwrap_or_default())
    }

    /// One of them in full.
    pub fn good_state(&self, good: &GoodRevision) -> Result<Good, StoreError> {
        let text = self.blobs().get(&good.state)?;
        let path = self.directory.join("blobs").join(&good.state);
        let state = serde_json::from_slice(&text).map_err(|error| failed("understanding", &path)(error.into()))?;
        Ok(Good { revision: good.revision.clone(), state, at: good.at })
    }

    /// Notes that the host is good as it is.
    pub fn add_good(&self, good: &Good) -> Result<(), StoreError> {
        let path = self.directory.join("good.json");
        let text = serde_json::to_vec(&good.state).map_err(|error| failed("writing", &path)(error.into()))?;
        let state = self.blobs().keep(&text)?;
        let mut all = self.good()?;
        all.retain(|known| known.revision != good.revision);
        all.insert(0, GoodRevision { revision: good.revision.clone(), at: good.at, state });
        all.truncate(KEPT_GOOD);
        write(&path, &all)
    }

    /// What the host is kept away from.
    pub fn pin(&self) -> Result<Option<Pin>, StoreError> {
        self.record("pin.json")
    }

    /// Keeps the host away from a revision, or ends that.
    pub fn set_pin(&self, pin: Option<&Pin>) -> Result<(), StoreError> {
        self.set_record("pin.json", pin)
    }

    /// The plan that was made ready last.
    pub fn ready(&self) -> Result<Option<Ready>, StoreError> {
        // One that an older nodelet wrote otherwise is made anew.
        Ok(self.record("ready.json").unwrap_or_default())
    }

    /// Notes a plan that was made ready, or that none is.
    pub fn set_ready(&self, ready: Option<&Ready>) -> Result<(), StoreError> {
        self.set_record("ready.json", ready)
    }

    /// A record by its file's name.
    pub(crate) fn record<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>, StoreError> {
        read(&self.directory.join(name))
    }

    /// Whether there is a record.
    pub(crate) fn has_record(&self, name: &str) -> bool {
        self.directory.join(name).exists()
    }

    /// The names of records that begin so.
    pub(crate) fn records(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let entries = std::fs::read_dir(&self.directory).map_err(failed("listing", &self.directory))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        Ok(names.filter(|name| name.starts_with(prefix)).collect())
    }

    /// Writes a record, or removes it.
    pub(crate) fn set_record<T: Serialize>(&self, name: &str, record: Option<&T>) -> Result<(), StoreError> {
        let path = self.directory.join(name);
        match record {
            Some(record) => write(&path, record),
            None if path.exists() => files::remove(&path).map_err(failed("removing", &path)),
            None => Ok(()),
        }
    }

    /// Contents of files, by their hash.
    pub fn blobs(&self) -> Blobs {
        Blobs::new(self.directory.join("blobs"))
    }

    /// What nodelet placed on the host.
    pub fn owned(&self) -> Result<Owned, StoreError> {
        Ok(read(&self.directory.join("owned.json"))?.unwrap_or_default())
    }

    /// Notes what nodelet placed on the host.
    pub fn set_owned(&self, owned: &Owned) -> Result<(), StoreError> {
        write(&self.directory.join("owned.json"), owned)
    }

    /// The transaction that was under way when nodelet last stopped, if any.
    pub fn unfinished(&self) -> Result<Option<Transaction>, StoreError> {
        Ok(self.last()?.filter(|transaction| transaction.end().is_none()))
    }

    /// The newest transaction.
    pub fn last(&self) -> Result<Option<Transaction>, StoreError> {
        match self.numbers()?.last() {
            None => Ok(None),
            Some(number) => Transaction::open(&self.transaction_directory(*number)),
        }
    }

    /// Starts a transaction.
    pub fn begin(&self, kind: Kind, revision: &str, source: &str) -> Result<Transaction, StoreError> {
        let numbers = self.numbers()?;
        for old in numbers.iter().rev().skip(KEPT_TRANSACTIONS - 1) {
            let directory = self.transaction_directory(*old);
            std::fs::remove_dir_all(&directory).map_err(failed("removing", &directory))?;
        }
        let number = numbers.last().map_or(1, |last| last + 1);
        Transaction::begin(&self.transaction_directory(number), number, kind, revision, source)
    }

    /// What was done, oldest first.
    pub fn history(&self) -> Result<Vec<Summary>, StoreError> {
        let mut summaries = Vec::new();
        for number in self.numbers()? {
            if let Some(transaction) = Transaction::open(&self.transaction_directory(number))? {
                summaries.push(transaction.summary());
            }
        }
        Ok(summaries)
    }

    fn transaction_directory(&self, number: u64) -> PathBuf {
        self.directory.join("transactions").join(format!("{number:08}"))
    }

    fn numbers(&self) -> Result<Vec<u64>, StoreError> {
        let directory = self.directory.join("transactions");
        let entries = std::fs::read_dir(&directory).map_err(failed("listing", &directory))?;
        let mut numbers: Vec<u64> =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }
}

/// Reads a JSON file; `None` when it isn't there.
fn read<T: DeserializeOwned>(path: &Path) -> Result<Option<T>, StoreError> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(failed("reading", path)(error)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| failed("understanding", path)(error.into()))
}

/// Writes a JSON file, whole, for root's eyes only.
fn write(path: &Path, value: &impl Serialize) -> Result<(), StoreError> {
    let text = serde_json::to_vec(value).map_err(|error| failed("writing", path)(error.into()))?;
    files::place_as_self(path, &text, 0o600).map_err(failed("writing", path))
}
