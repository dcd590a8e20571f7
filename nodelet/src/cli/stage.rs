//! `nodelet stage`

use super::progress::Show;
use super::{Global, Output, print_json, runtime};
use crate::exit;
use crate::host::space::bytes;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Make this state file ready instead of the configured one.
    #[arg(value_name = "FILE")]
    state: Option<PathBuf>,
}

pub(super) fn execute(global: &Global, options: &Options) -> anyhow::Result<ExitCode> {
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let settings = super::apply::settings_for(global, options.state.as_deref())?;
    let path = settings.state.file.to_string();
    let show = Show::new(global.output == Output::Json);
    let staged = runtime()?.block_on(async {
        let reconciler = super::apply::connect(global, settings, options.state.as_deref()).await?;
        reconciler.stage(&|news| show.tell(news)).await
    });
    show.end();
    let Some(ready) = staged.map_err(super::apply::unwrapped)? else {
        anyhow::bail!("there is no state file {path}: write it, or name one on the command line");
    };
    match global.output {
        Output::Json => print_json(&ready)?,
        Output::Text => {
            for (name, version) in &ready.staged.versions {
                println!("{name} {version}");
            }
            let (steps, disruption) = (ready.plan.steps.len(), ready.disruption);
            let size = bytes(ready.staged.download);
            println!(
                "Revision {} is ready: {size} downloaded, {steps} steps to apply, disruption: {disruption}.",
                ready.revision
            );
        }
    }
    Ok(exit::code(exit::OK))
}
