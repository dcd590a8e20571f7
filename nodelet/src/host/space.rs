//! Room on filesystems: what doesn't fit is found before anything changes.

use nix::sys::statvfs::statvfs;
use std::path::{Path, PathBuf};

/// A filesystem that is too full.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} has {} free, and {purpose} needs {}: make room there, or leave something out", path.display(), bytes(*free), bytes(*needed))]
pub struct NoSpace {
    path: PathBuf,
    purpose: String,
    needed: u64,
    free: u64,
}

/// Kept free beyond what is needed: databases and logs grow as well.
const MARGIN: u64 = 4 << 20;

/// Whether so much fits below a directory, or below the nearest one above it that exists.
pub fn check(directory: &Path, needed: u64, purpose: &str) -> Result<(), NoSpace> {
    // What can't be asked can't be refused either: the write itself will tell.
    let Some(free) = free(directory) else { return Ok(()) };
    let needed = needed + MARGIN;
    if free >= needed {
        return Ok(());
    }
    Err(NoSpace { path: directory.to_owned(), purpose: purpose.to_owned(), needed, free })
}

/// How much room there is below a directory, or below the nearest one above it that exists.
pub fn free(directory: &Path) -> Option<u64> {
    let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    statvfs(existing).ok().map(|found| found.blocks_available() * found.fragment_size())
}

/// A number of bytes for people.
pub fn bytes(count: u64) -> String {
    let units = [(1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB")];
    match units.iter().find(|(size, _)| count >= *size) {
        Some((size, unit)) => format!("{}.{} {unit}", count / size, count % size * 10 / size),
        None => format!("{count} B"),
    }
}

/// A number of bytes as apt (`1,234 kB`) and dnf (`1.2 M`) print it.
pub(super) fn parse_bytes(text: &str) -> Option<u64> {
    let (number, unit) = text.trim().split_once(' ').unwrap_or((text.trim(), "B"));
    let number: f64 = number.replace(',', "").parse().ok()?;
    let factor = match unit.trim_end_matches("iB").trim_end_matches('B') {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return None,
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "sizes of packages")]
    Some((number * factor) as u64)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn numbers_read_as_printed() {
        for (text, value) in [("0 B", 0), ("1,234 kB", 1_234_000), ("1.2 M", 1_200_000), ("45.1 MB", 45_100_000)] {
            assert_eq!(parse_bytes(text), Some(value), "{text}");
        }
        assert_eq!(parse_bytes("many"), None);
        assert_eq!((bytes(999), bytes(1_250_000)), ("999 B".into(), "1.2 MB".into()));
    }

    #[test]
    fn what_cannot_fit_is_named() {
        let error = check(Path::new("/nonexistent/below"), u64::MAX / 2, "unpacking packages").unwrap_err().to_string();
        assert!(error.starts_with("/nonexistent/below has ") && error.contains("unpacking packages needs"), "{error}");
        check(Path::new("/"), 0, "nothing").unwrap();
    }
}
