//! Checksums as people write them.

use std::fmt::Write as _;

use sha2::{Digest, Sha256};

/// SHA-256 in hexadecimal.
pub(crate) fn sha256(content: impl AsRef<[u8]>) -> String {
    Sha256::digest(content).iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
