//! How results look: as text for people, or as data for programs.

use anyhow::Context;
use clap::ValueEnum;
use jiff::{SignedDuration, Timestamp};
use serde::Serialize;
use std::fmt::Write as _;
use std::io::{ErrorKind, IsTerminal, Write as _, stdout};

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
    /// For programs, and for people who look at objects.
    Yaml,
}

impl Output {
    /// Prints a result: its text, or its data.
    pub(super) fn print(self, data: &impl Serialize, text: impl FnOnce() -> String) -> anyhow::Result<()> {
        match self {
            Self::Text => say(&text()),
            Self::Json => say(&serde_json::to_string_pretty(data).context("writing the result as JSON")?),
            Self::Yaml => say(&yaml(data)?),
        }
    }
}

/// An object as YAML.
pub(super) fn yaml(data: &impl Serialize) -> anyhow::Result<String> {
    serde_saphyr::to_string(data).context("writing the result as YAML")
}

/// Prints lines. Somebody who reads no further, such as `head`, is no error.
pub(super) fn say(text: &str) -> anyhow::Result<()> {
    let mut out = stdout().lock();
    let end = if text.ends_with('\n') || text.is_empty() { "" } else { "\n" };
    match write!(out, "{text}{end}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.context("writing to the standard output"),
    }
}

/// What of a terminal is there.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    /// A person looks at a terminal: bars are drawn.
    pub(super) terminal: bool,
    /// In colours.
    pub(super) colour: bool,
}

impl Look {
    /// What the standard output is.
    pub(super) fn find() -> Self {
        let terminal = stdout().is_terminal();
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Self { terminal, colour: terminal && wanted }
    }

    /// A text in a colour.
    pub(super) fn paint(self, colour: Colour, text: &str) -> String {
        match colour {
            Colour::Plain => text.to_owned(),
            _ if !self.colour || text.is_empty() => text.to_owned(),
            _ => format!("\x1b[{}m{text}\x1b[0m", colour as u8),
        }
    }
}

/// Colours, by their number in terminals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Colour {
    /// None.
    #[default]
    Plain = 0,
    /// What the eye should find.
    Bold = 1,
    /// What failed.
    Red = 31,
    /// What is well.
    Green = 32,
    /// What is under way.
    Yellow = 33,
}

/// One field of a table.
pub(super) type Cell = (Colour, String);

/// Lines whose fields stand below each other.
pub(super) fn table(rows: &[Vec<Cell>], indent: &str, look: Look) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        rows.iter().filter_map(|row| row.get(column)).map(|(_, text)| text.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = indent.to_owned();
        for (index, (colour, field)) in row.iter().enumerate() {
            // A column that is empty everywhere takes no room.
            let wide = widths.get(index).copied().unwrap_or(0);
            if wide == 0 {
                continue;
            }
            line += &look.paint(*colour, field);
            line += &" ".repeat(wide.saturating_sub(field.chars().count()) + 3);
        }
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

/// Fields without a colour.
pub(super) fn plain<const N: usize>(fields: [&str; N]) -> Vec<Cell> {
    fields.iter().map(|field| (Colour::Plain, (*field).to_owned())).collect()
}

/// How long ago a time of an object is, as `kubectl get` writes ages; nothing where it is not known.
pub(super) fn ago(since: &str, now: Timestamp) -> String {
    since.parse::<Timestamp>().map_or_else(|_| String::new(), |since| age(now.duration_since(since)))
}

/// `45s`, `3m20s`, `15m`, `2h10m`, `30h`, `5d`.
pub(super) fn age(time: SignedDuration) -> String {
    let seconds = time.as_secs().max(0);
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    let two = |large: i64, unit: &str, small: i64, part: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{part}"),
    };
    match seconds {
        i64::MIN..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        _ => format!("{days}d"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_as_kubectl_writes_them() {
        let text = |seconds| age(SignedDuration::from_secs(seconds));
        let texts: Vec<String> = [-5, 45, 200, 300, 900, 11_000, 100_000, 500_000].map(text).into();
        assert_eq!(texts, ["0s", "45s", "3m20s", "5m", "15m", "3h3m", "27h", "5d"]);
        assert_eq!(ago("", Timestamp::UNIX_EPOCH), "");
    }

    #[test]
    fn columns_stand_below_each_other_and_colours_take_no_room() {
        let rows =
            [plain(["a", "", "b"]), vec![(Colour::Red, "long".into()), Cell::default(), (Colour::Green, "c".into())]];
        assert_eq!(table(&rows, " ", Look::default()), " a      b\n long   c\n");
        let colours = Look { terminal: true, colour: true };
        assert_eq!(table(&rows, "", colours), "a      b\n\x1b[31mlong\x1b[0m   \x1b[32mc\x1b[0m\n");
    }
}
