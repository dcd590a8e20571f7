//! A slot: a bridge, a subnet, a name prefix and a directory that belong to one process.
//!
//! The number of the slot is the lock that was free, so several runs at once stay out of each other's way. A reaper
//! process sweeps the slot when its owner is gone, see [`reaper`].

pub mod reaper;
pub mod teardown;

use std::collections::BTreeSet;
use std::fs;
use std::io::PipeWriter;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::{Context, Result, anyhow, bail};

use crate::command::ip;
use crate::{lock, paths};

/// How many slots there are: one byte of the address is the slot's number, and pods' networks are 10.(100+N)/16.
const SLOTS: u8 = 100;
/// Nodes get the addresses from here on; what is below is for the host.
const FIRST_ADDRESS: u8 = 10;

/// The number of a slot, and the names that follow from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Number(pub u8);

impl Number {
    /// All numbers, in the order in which they are tried.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..SLOTS).map(Self)
    }

    /// The prefix of every name that the slot gives: machines, control groups.
    pub fn prefix(self) -> String {
        format!("nlt{}-", self.0)
    }

    /// The bridge that the nodes are on.
    pub fn bridge(self) -> String {
        format!("nlt{}", self.0)
    }

    /// The host's address on the bridge.
    pub fn gateway(self) -> Ipv4Addr {
        Ipv4Addr::new(10, 213, self.0, 1)
    }

    /// An address that only this machine can reach, for what nodes have no business with.
    pub fn loopback(self) -> Ipv4Addr {
        Ipv4Addr::new(127, 213, self.0, 1)
    }

    /// Everything of the slot that is on disk.
    pub fn dir(self) -> Result<PathBuf> {
        Ok(paths::cache()?.join("run").join(format!("slot-{}", self.0)))
    }

    /// Held by the owner and then by its reaper. Not in the cache: bridges belong to the machine, not to a user.
    pub fn lock_file(self) -> PathBuf {
        PathBuf::from(format!("/run/lock/nodelet-testbed/slot-{}.lock", self.0))
    }

    /// Where the last owner kept its files, as it wrote into the lock file.
    fn last_dir(self) -> Option<PathBuf> {
        let text = fs::read_to_string(self.lock_file()).ok()?;
        (!text.is_empty()).then(|| PathBuf::from(text))
    }
}

/// A slot that this process owns.
#[derive(Debug)]
pub struct Slot {
    number: Number,
    dir: PathBuf,
    taken: Mutex<Taken>,
    /// Closed by the kernel when this process is gone: that is the reaper's sign.
    _sign: PipeWriter,
}

#[derive(Debug, Default)]
struct Taken {
    names: BTreeSet<String>,
    addresses: u8,
}

/// The slot that all tests of this process share.
pub fn slot() -> Result<Arc<Slot>> {
    static SLOT: OnceLock<Result<Arc<Slot>, String>> = OnceLock::new();
    SLOT.get_or_init(|| Slot::take().map_err(|error| format!("{error:#}"))).clone().map_err(|error| anyhow!(error))
}

impl Slot {
    /// Takes the first free slot, removes what a crashed owner may have left in it, and starts its reaper.
    pub fn take() -> Result<Arc<Self>> {
        if !nix::unistd::geteuid().is_root() {
            bail!(
                "test nodes need root (namespaces, mounts, a bridge): run it as root, or through `make`, which uses sudo"
            );
        }
        for number in Number::all() {
            let Some(held) = lock::try_take(&number.lock_file())? else {
                continue;
            };
            for line in teardown::sweep(number).with_context(|| {
                format!("removing what an earlier run left in slot {}; `make clean-testbed` tries again", number.0)
            })? {
                eprintln!("left over from an earlier run in slot {}: {line}", number.0);
            }
            let dir = number.dir()?;
            fs::write(number.lock_file(), dir.as_os_str().as_encoded_bytes())
                .with_context(|| format!("writing {}", number.lock_file().display()))?;
            fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
            let sign = reaper::start(number, held)?;
            bridge(number)?;
            return Ok(Arc::new(Self { number, dir, taken: Mutex::default(), _sign: sign }));
        }
        bail!("all {SLOTS} slots of the test bed are taken: wait for another run to end, or see `make clean-testbed`")
    }

    /// Which one it is.
    pub fn number(&self) -> Number {
        self.number
    }

    /// Everything of the slot that is on disk; removed at the end.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Reserves a node's name and address.
    pub(crate) fn reserve(&self, name: &str) -> Result<u8> {
        let fits = !name.is_empty()
            && name.len() <= 40
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if !fits {
            bail!("a node can't be called {name:?}: use at most 40 lower-case letters, digits and hyphens");
        }
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if !taken.names.insert(name.to_owned()) {
            bail!("there is a node {name:?} already in this test process: give each test's nodes names of their own");
        }
        let address =
            FIRST_ADDRESS.checked_add(taken.addresses).context("no address is left for another node in this slot")?;
        taken.addresses += 1;
        Ok(address)
    }
}

fn bridge(number: Number) -> Result<()> {
    let name = number.bridge();
    let what = || format!("making the bridge {name}");
    // An address of its own: otherwise it is that of one of its ports, and changes when a node goes, and the other nodes
    // talk to nobody until they ask for it again half a minute later.
    ip(&format!("link add {name} address 02:6e:6c:74:00:{:02x} type bridge", number.0)).with_context(what)?;
    ip(&format!("addr add {}/24 dev {name}", number.gateway())).with_context(what)?;
    ip(&format!("link set {name} up")).with_context(what)?;
    Ok(())
}
