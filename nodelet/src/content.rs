//! What is in a file, and the digest that stands for it.

use sha2::{Digest as _, Sha256};
use std::fmt;

/// The SHA-256 of a content.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of a content.
    pub fn of(content: &[u8]) -> Self {
        Self(Sha256::digest(content).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A content with its digest, which is computed once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Content {
    bytes: Vec<u8>,
    digest: Digest,
}

impl Content {
    /// What is in it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// What stands for it.
    pub fn digest(&self) -> Digest {
        self.digest
    }
}

impl From<Vec<u8>> for Content {
    fn from(bytes: Vec<u8>) -> Self {
        Self { digest: Digest::of(&bytes), bytes }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        text.as_bytes().to_vec().into()
    }
}
