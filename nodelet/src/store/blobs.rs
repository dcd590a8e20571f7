//! Contents of files, kept by their hash: a content that many transactions meet is stored once.

use super::{StoreError, failed};
use crate::content::Digest;
use crate::host::files;
use std::path::PathBuf;

/// A directory of contents.
#[derive(Clone, Debug)]
pub struct Blobs {
    directory: PathBuf,
}

impl Blobs {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Keeps a content; its name.
    pub fn keep(&self, content: &[u8]) -> Result<String, StoreError> {
        let name = Digest::of(content).to_string();
        let path = self.directory.join(&name);
        if !path.exists() {
            // For root's eyes only: the file that it came from may be.
            files::place_as_self(&path, content, 0o600).map_err(failed("keeping", &path))?;
        }
        Ok(name)
    }

    /// Lets a content go.
    pub fn forget(&self, name: &str) -> Result<(), StoreError> {
        let path = self.directory.join(name);
        if path.exists() { files::remove(&path).map_err(failed("removing", &path)) } else { Ok(()) }
    }

    /// A content by its name.
    pub fn get(&self, name: &str) -> Result<Vec<u8>, StoreError> {
        let path = self.directory.join(name);
        std::fs::read(&path).map_err(failed("reading", &path))
    }
}
