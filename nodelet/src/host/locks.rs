//! Locks of package managers: who holds them, and waiting for them in the open.

use crate::progress::{Progress, Tell};
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How a program says that it holds a lock.
#[derive(Clone, Debug)]
pub(super) enum Lock {
    /// By a record lock on a file, as dpkg and rpm do.
    Record(PathBuf),
    /// By its process number in a file, as dnf does.
    Process(PathBuf),
}

/// A lock that was not free in time.
#[derive(Debug, thiserror::Error)]
#[error(
    "{} was held by {holder} for more than {} s: wait until it is done, or raise `packages.lockTimeoutSeconds`",
    path.display(),
    limit.as_secs()
)]
pub struct LockHeld {
    path: PathBuf,
    holder: String,
    limit: Duration,
}

/// How often a held lock is looked at: nothing tells when it is free.
const LOOK: Duration = Duration::from_millis(100);

impl Lock {
    fn path(&self) -> &Path {
        match self {
            Self::Record(path) | Self::Process(path) => path,
        }
    }

    /// The process that holds it.
    fn holder(&self) -> Option<i32> {
        match self {
            Self::Record(path) => record_holder(path),
            Self::Process(path) => {
                let process: i32 = std::fs::read_to_string(path).ok()?.trim().parse().ok()?;
                Path::new(&format!("/proc/{process}")).exists().then_some(process)
            }
        }
    }
}

fn record_holder(path: &Path) -> Option<i32> {
    let file = File::open(path).ok()?;
    let mut lock = libc::flock {
        l_type: i16::try_from(libc::F_WRLCK).unwrap_or_default(),
        l_whence: i16::try_from(libc::SEEK_SET).unwrap_or_default(),
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_GETLK(&mut lock)).ok()?;
    (libc::c_int::from(lock.l_type) != libc::F_UNLCK).then_some(lock.l_pid)
}

/// Waits until all are free, and tells for whom.
pub(super) async fn wait(locks: &[Lock], limit: Duration, tell: Tell<'_>) -> Result<(), LockHeld> {
    let end = Instant::now() + limit;
    let mut told = String::new();
    while let Some((lock, process)) = locks.iter().find_map(|lock| Some((lock, lock.holder()?))) {
        let name = std::fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
        let holder = format!("{} (process {process})", name.trim());
        if Instant::now() > end {
            return Err(LockHeld { path: lock.path().to_owned(), holder, limit });
        }
        let message = format!("{} to be free: {holder} holds it", lock.path().display());
        if message != told {
            tracing::info!("{message}");
            tell(Progress::Note(&message));
            told = message;
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::sync::Mutex;

    #[tokio::test]
    async fn a_live_process_is_waited_for_and_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lock.pid");
        std::fs::write(&path, std::process::id().to_string()).unwrap();
        let told = Mutex::new(Vec::new());
        let tell = |news: Progress<'_>| told.lock().unwrap().push(format!("{news:?}"));
        let locks = [Lock::Process(path.clone())];
        let error = wait(&locks, Duration::from_millis(250), &tell).await.unwrap_err().to_string();
        assert!(error.contains(&format!("(process {})", std::process::id())), "{error}");
        assert_eq!(told.lock().unwrap().len(), 1, "said once");
        std::fs::write(&path, "4194999").unwrap();
        wait(&locks, Duration::from_millis(250), &tell).await.unwrap();
    }

    #[tokio::test]
    async fn a_lock_that_nobody_made_is_free() {
        let locks = [Lock::Record("/nonexistent/lock".into()), Lock::Process("/nonexistent/pid".into())];
        wait(&locks, Duration::ZERO, &|_| ()).await.unwrap();
    }
}
