//! Checksums in the spelling that package indexes use: lower-case hexadecimal.

use std::fmt::Write;

use md5::Md5;
use sha2::{Digest, Sha256};

/// What Debian's `md5sums` and `Packages` hold. Not a security measure: SHA256 stands next to it wherever it matters.
pub(crate) fn md5(data: &[u8]) -> String {
    hex(&Md5::digest(data))
}

/// The checksum that apt and dnf verify.
pub(crate) fn sha256(data: &[u8]) -> String {
    hex(&Sha256::digest(data))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_values() {
        assert_eq!(md5(b""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(sha256(b""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }
}
