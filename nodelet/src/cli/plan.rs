//! `nodelet plan`

use super::{Global, Output, print_json, runtime};
use crate::exit;
use crate::plan::{Style, render};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Plan for this state file instead of the configured one.
    #[arg(value_name = "FILE")]
    state: Option<PathBuf>,
}

pub(super) fn execute(global: &Global, options: &Options) -> anyhow::Result<ExitCode> {
    let settings = super::apply::settings_for(global, options.state.as_deref())?;
    let path = settings.state.file.to_string();
    let planned = runtime()?.block_on(async {
        let reconciler = super::apply::connect(global, settings, options.state.as_deref()).await?;
        reconciler.plan().await
    });
    let Some(planned) = planned.map_err(super::apply::unwrapped)? else {
        anyhow::bail!("there is no state file {path}: write it, or name one on the command line");
    };
    match global.output {
        Output::Json => print_json(&planned.plan)?,
        Output::Text => {
            let root = global.root();
            let style = if std::io::stdout().is_terminal() { Style::Coloured } else { Style::Plain };
            print!(
                "{}",
                render(
                    &planned.plan,
                    &planned.target,
                    &|path| std::fs::read(root.join(path)).unwrap_or_default(),
                    style
                )
            );
        }
    }
    Ok(exit::code(if planned.plan.is_empty() { exit::OK } else { exit::CHANGES }))
}
