//! The command line. Manual pages and shell completions are generated from it.

mod apply;
mod config;
mod history;
mod plan;
mod progress;
mod render;
mod rescue;
mod rollback;
mod run;
mod stage;
mod status;
mod validate;
mod version;

use crate::exit;
use crate::root::Root;
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

const EXIT_CODES: &str = "\
Exit codes:
  0   all is well; for `plan`: nothing to do
  1   something failed; the message says what was tried and what to do next
  2   for `plan`: there are changes to make; otherwise: a wrong command line
  78  the configuration or the state is invalid; nothing was changed";

/// Keeps this node's packages, files and systemd units equal to a desired state.
#[derive(Debug, Parser)]
#[command(name = "nodelet", version, about, after_help = EXIT_CODES, propagate_version = true)]
pub struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Args)]
struct Global {
    /// The main configuration file; its drop-ins are read from the `.d` directory beside it, and from the
    /// same names below /run and /usr/lib.
    #[arg(long, global = true, value_name = "FILE", default_value = crate::settings::MAIN_FILE)]
    config: PathBuf,
    /// Take all paths of the host below this directory.
    #[arg(long, global = true, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// How results are printed.
    #[arg(long, short, global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon: converge, and stay converged.
    Run,
    /// Show what would change, and why; change nothing.
    Plan(plan::Options),
    /// Make a change ready: resolve, verify and download everything; change nothing.
    Stage(stage::Options),
    /// Converge once.
    Apply(apply::Options),
    /// Go back to the last good state, and stay there until the state file changes.
    Rollback(rollback::Options),
    /// List what was applied when, by which revision, with the result.
    History,
    /// Show whether the node is converged, and what it waits for.
    Status,
    /// Check state files or configuration files; print every mistake with line and column.
    Validate(validate::Options),
    /// Watch over nodelet's own upgrade; nodelet starts this itself.
    #[command(hide = true)]
    Rescue,
    /// Show the state with its presets written out: packages, files, units and kernel settings.
    Render(render::Options),
    /// Show the configuration in effect, and which file each value comes from.
    Config,
    /// Show the version.
    Version,
}

/// The definition, for manual pages and completions.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs what the command line asks for.
pub fn execute(cli: Cli) -> ExitCode {
    let Cli { global, command } = cli;
    let result = match command {
        Command::Run => run::execute(&global),
        Command::Plan(options) => plan::execute(&global, &options),
        Command::Stage(options) => stage::execute(&global, &options),
        Command::Apply(options) => apply::execute(&global, &options),
        Command::Rollback(options) => rollback::execute(&global, &options),
        Command::Rescue => rescue::execute(&global),
        Command::History => history::execute(&global),
        Command::Status => status::execute(&global),
        Command::Validate(options) => validate::execute(&global, &options),
        Command::Render(options) => render::execute(&global, &options),
        Command::Config => config::execute(&global),
        Command::Version => version::execute(&global),
    };
    match result {
        Ok(code) => code,
        Err(error) => {
            eprintln!("nodelet: {}", told_once(&error));
            let invalid = error.is::<crate::settings::InvalidSettings>() || error.is::<crate::source::InvalidState>();
            exit::code(if invalid { exit::INVALID } else { exit::FAILED })
        }
    }
}

/// An error with its causes; one that already says its cause doesn't say it twice.
fn told_once(error: &anyhow::Error) -> String {
    error
        .chain()
        .skip(1)
        .map(ToString::to_string)
        .fold(error.to_string(), |told, cause| if told.contains(&cause) { told } else { format!("{told}: {cause}") })
}

impl Global {
    fn root(&self) -> Root {
        Root::at(&self.root)
    }

    fn settings(&self) -> anyhow::Result<crate::settings::Loaded> {
        Ok(crate::settings::load(&self.root(), &self.config)?)
    }
}

/// Prints a value as JSON on standard output.
fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(())
}

/// A runtime on this thread alone: nodelet waits much more than it computes, and threads cost memory.
fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    use anyhow::Context;
    tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting the async runtime")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        command().debug_assert();
    }
}
