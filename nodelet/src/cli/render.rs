//! `nodelet render`

use super::{Global, Output, print_json};
use crate::{exit, source};
use anyhow::Context;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Show this state file instead of the configured one.
    #[arg(value_name = "FILE")]
    state: Option<PathBuf>,
}

/// Text is TOML, so that what is shown can be a state file itself.
pub(super) fn execute(global: &Global, options: &Options) -> anyhow::Result<ExitCode> {
    let settings = super::apply::settings_for(global, options.state.as_deref())?;
    let path = settings.state.file.as_str();
    let Some(desired) = source::local_file(&global.root(), path.as_ref())? else {
        anyhow::bail!("there is no state file {path}: write it, or name one on the command line");
    };
    match global.output {
        Output::Json => print_json(&desired.state)?,
        Output::Text => {
            let text = toml::to_string_pretty(&desired.state).context("writing the state as TOML")?;
            print!("# {}, with its presets written out: revision {}.\n\n{text}", desired.origin, desired.revision);
        }
    }
    Ok(exit::code(exit::OK))
}
