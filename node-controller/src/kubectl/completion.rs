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
    output::say(&String::from_utf8_lossy(&script))
}
