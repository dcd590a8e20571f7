//! `kubectl nodes completion`

use super::{NAME, command, output};
use clap::{Args, ValueEnum};
use clap_complete::Shell;

/// For which shell.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The shell.
    shell: Known,
}

/// Shells that scripts are tried with.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Known {
    /// GNU Bash.
    Bash,
    /// The Z shell.
    Zsh,
    /// The friendly interactive shell.
    Fish,
}

/// Prints the script.
pub(super) fn print(options: &Options) -> anyhow::Result<()> {
    let shell = match options.shell {
        Known::Bash => Shell::Bash,
        Known::Zsh => Shell::Zsh,
        Known::Fish => Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), NAME, &mut script);
    output::say(&mended(&String::from_utf8_lossy(&script)))
}

/// `clap_complete` (4.6) tells commands apart by names in which it writes the dash of the program's own name in two
/// ways, so that bash would complete no word behind the first.
pub fn mended(script: &str) -> String {
    script.replace(&NAME.replace('-', "__subcmd__"), &NAME.replace('-', "__"))
}
