//! The newest entry of `debian/changelog`: the version and the time of a build.

use anyhow::{Context, Result};

/// The newest entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The version, with a revision if it has one.
    pub version: String,
    /// When it was written, in seconds since 1970.
    pub timestamp: i64,
}

impl Entry {
    /// Reads the first entry: `name (version) …`, up to ` -- Name <address>  date`.
    pub fn newest(text: &str) -> Result<Self> {
        let heading = text.lines().find(|line| !line.trim().is_empty()).context("the changelog is empty")?;
        let version = heading
            .split_once('(')
            .and_then(|(_, rest)| rest.split_once(')'))
            .map(|(version, _)| version.to_owned())
            .with_context(|| format!("the changelog begins with {heading:?}, not with `name (version) …`"))?;
        let trailer = text
            .lines()
            .find(|line| line.starts_with(" -- "))
            .context("the changelog's newest entry has no line that begins with ` -- `")?;
        let date = trailer
            .split_once(">  ")
            .map(|(_, date)| date)
            .with_context(|| format!("no date after two spaces in the changelog's line {trailer:?}"))?;
        let time = jiff::fmt::rfc2822::parse(date).with_context(|| format!("the changelog's date {date:?}"))?;
        Ok(Self { version, timestamp: time.timestamp().as_second() })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn the_first_entry_counts() {
        let text = "x (1.2~rc.1) unstable; urgency=medium\n\n  * New.\n\n -- A B <a@example.org>  Mon, 01 Jan 2024 01:00:00 +0100\n\nx (1.1) unstable; urgency=medium\n\n -- A B <a@example.org>  Sun, 01 Jan 2023 00:00:00 +0000\n";
        let entry = Entry::newest(text).unwrap();
        assert_eq!(entry, Entry { version: "1.2~rc.1".into(), timestamp: 1_704_067_200 });
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, message) in [
            ("", "empty"),
            ("x 1.2\n", "name (version)"),
            ("x (1)\n", "` -- `"),
            ("x (1)\n -- A <a@b> Mon\n", "two spaces"),
            ("x (1)\n -- A <a@b>  yesterday\n", "yesterday"),
        ] {
            let error = Entry::newest(text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
