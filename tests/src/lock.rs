//! Locks between processes, as files in the cache. The files stay: removing one would let two processes hold "the"
//! lock on two different files of the same name.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::Path;

use anyhow::{Context, Result};

fn open(path: &Path) -> Result<File> {
    if let Some(dir) = path.parent() {
        fs::create_dir_all(dir).with_context(|| format!("making the directory {}", dir.display()))?;
    }
    OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)
        .with_context(|| format!("opening the lock file {}", path.display()))
}

/// Takes the lock if it is free. It is held as long as the file, or a copy of its descriptor, is open.
pub fn try_take(path: &Path) -> Result<Option<File>> {
    let file = open(path)?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("locking {}", path.display())),
    }
}

/// Takes the lock, and says so when it has to wait for another process.
pub fn take(path: &Path, what: &str) -> Result<File> {
    if let Some(file) = try_take(path)? {
        return Ok(file);
    }
    eprintln!("waiting for another process: {what} ({})", path.display());
    let file = open(path)?;
    file.lock().with_context(|| format!("locking {}", path.display()))?;
    Ok(file)
}
