//! `nodelet apply`

use super::progress::Show;
use super::{Global, Output, print_json, runtime};
use crate::exit;
use crate::reconcile::{ReconcileError, Reconciler};
use crate::settings::Settings;
use anyhow::Context;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Apply this state file instead of the configured one.
    #[arg(value_name = "FILE")]
    state: Option<PathBuf>,
}

pub(super) fn execute(global: &Global, options: &Options) -> anyhow::Result<ExitCode> {
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let settings = settings_for(global, options.state.as_deref())?;
    let path = settings.state.file.to_string();
    let show = Show::new(global.output == Output::Json);
    let converged = runtime()?.block_on(async {
        let reconciler = connect(global, settings, options.state.as_deref()).await?;
        reconciler.converge(&|news| show.tell(news)).await
    });
    show.end();
    let Some((planned, steps)) = converged.map_err(unwrapped)? else {
        anyhow::bail!("there is no state file {path}: write it, or name one on the command line");
    };
    let revision = &planned.desired.revision;
    if let Some(waits) = &planned.waits_for {
        match global.output {
            Output::Json => {
                print_json(&serde_json::json!({"converged": false, "revision": revision, "waitsFor": waits}))?;
            }
            Output::Text => println!("Revision {revision} is not applied yet: it waits for {waits}."),
        }
        return Ok(exit::code(exit::FAILED));
    }
    match global.output {
        Output::Json => print_json(&serde_json::json!({"converged": true, "revision": revision, "steps": steps}))?,
        Output::Text if steps == 0 => println!("Nothing to do: the node is as revision {revision} wants it."),
        Output::Text => println!("Converged to revision {revision} in {steps} steps."),
    }
    Ok(exit::code(exit::OK))
}

/// The reconciler for the configured state, or for the file that the command line names.
pub(super) async fn connect(
    global: &Global,
    settings: Settings,
    named: Option<&Path>,
) -> Result<Reconciler, ReconcileError> {
    let reconciler = Reconciler::connect(global.root(), settings).await?;
    Ok(if named.is_some() { reconciler.named() } else { reconciler })
}

/// The settings, with the state file that the command line names.
pub(super) fn settings_for(global: &Global, state: Option<&Path>) -> anyhow::Result<Settings> {
    let mut settings = global.settings()?.settings;
    if let Some(path) = state {
        let absolute = std::path::absolute(path).with_context(|| format!("finding {}", path.display()))?;
        let text = absolute.to_string_lossy().into_owned();
        settings.state.file = text.try_into().map_err(anyhow::Error::msg)?;
    }
    Ok(settings)
}

/// An invalid state keeps its type, because it has an exit code of its own.
pub(super) fn unwrapped(error: ReconcileError) -> anyhow::Error {
    match error {
        ReconcileError::State(invalid) => invalid.into(),
        other => other.into(),
    }
}
