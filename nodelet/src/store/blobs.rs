//! Contents of files, kept by their hash: a content that many transactions meet is stored once.

use super::{StoreError, failed};
use crate::host::files;
use nix::unistd::{Gid, Uid};
use sha2::{Digest, Sha256};
use std::path::PathBuf;

/// The hash of a content, in hexadecimal digits.
fn hash(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold(String::with_capacity(64), |name, byte| name + &format!("{byte:02x}"))
}

/// A directory of contents.
#[derive(Clone, Debug)]
pub struct Blobs {
    directory: PathBuf,
}

impl Blobs {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// The name that a content has, or would have.
    pub fn name(content: &[u8]) -> String {
        hash(content)
    }

    /// Keeps a content; its name.
    pub fn keep(&self, content: &[u8]) -> Result<String, StoreError> {
        let name = hash(content);
        let path = self.directory.join(&name);
        if !path.exists() {
            // For root's eyes only: the file that it came from may be.
            files::place(&path, content, 0o600, Uid::current().as_raw(), Gid::current().as_raw())
                .map_err(failed("keeping", &path))?;
        }
        Ok(name)
    }

    /// A content by its name.
    pub fn get(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let path = self.directory.join(name);
        std::fs::read(&path).map_err(failed("reading", &path))
    }
}
