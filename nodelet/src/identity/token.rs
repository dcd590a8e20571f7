//! The bootstrap token: a systemd credential, or a file that only root reads.

use libsystemd::credentials::CredentialsLoader;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// The name of the systemd credential.
pub(super) const CREDENTIAL: &str = "nodelet.token";

/// What is wrong with a token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// It can't be read.
    #[error("reading the bootstrap token {}: {source}", path.display())]
    Unreadable {
        /// Where it is.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Others can read it.
    #[error("the bootstrap token {} can be read by others than root (mode {mode:04o}), and is not used: chmod 0600 it, and make a new one if others had it", path.display())]
    Exposed {
        /// Where it is.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It is no token.
    #[error(
        "the systemd credential {CREDENTIAL} is not a bootstrap token: it looks like abcdef.0123456789abcdef, as `kubectl nodes token NODE` prints it"
    )]
    Malformed,
}

/// The token that systemd hands to the unit, where it does.
pub(super) fn from_systemd() -> Result<Option<String>, TokenError> {
    let Ok(credentials) = CredentialsLoader::open() else { return Ok(None) };
    let Ok(mut file) = credentials.get(CREDENTIAL) else { return Ok(None) };
    let mut text = String::new();
    let path = PathBuf::from(CREDENTIAL);
    file.read_to_string(&mut text).map_err(|source| TokenError::Unreadable { path, source })?;
    // An empty one is none.
    match text.trim() {
        "" => Ok(None),
        token if is_token(token) => Ok(Some(token.to_owned())),
        _ => Err(TokenError::Malformed),
    }
}

/// Refuses a file that others can read.
pub(super) fn check_file(path: &Path) -> Result<(), TokenError> {
    let metadata =
        std::fs::metadata(path).map_err(|source| TokenError::Unreadable { path: path.to_owned(), source })?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(TokenError::Exposed { path: path.to_owned(), mode });
    }
    Ok(())
}

fn is_token(text: &str) -> bool {
    let part = |part: &str, length: usize| {
        part.len() == length && part.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit())
    };
    text.split_once('.').is_some_and(|(id, secret)| part(id, 6) && part(secret, 16))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn tokens_are_told_from_other_text() {
        assert!(is_token("abcdef.0123456789abcdef"));
        for text in ["abcdef", "abcdef.0123456789abcde", "ABCDEF.0123456789abcdef", "abcdef.0123456789abcdef.x"] {
            assert!(!is_token(text), "{text}");
        }
    }

    #[test]
    fn a_file_that_others_read_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let set = |mode| std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
        set(0o600);
        check_file(file.path()).unwrap();
        set(0o640);
        let error = check_file(file.path()).unwrap_err().to_string();
        assert!(error.contains("mode 0640") && error.contains("chmod 0600"), "{error}");
    }
}
