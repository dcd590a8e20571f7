//! `nodelet run`

use super::{Global, runtime};
use crate::report::{log, status::first_problem};
use crate::{daemon, exit, settings};
use std::process::ExitCode;

pub(super) fn execute(global: &Global) -> anyhow::Result<ExitCode> {
    // Files that maintainer scripts make must not depend on who started the daemon.
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let loaded = match settings::load(&global.root(), &global.config) {
        Ok(loaded) => loaded,
        Err(error) => {
            // The log's own settings are not known; the defaults tell it where a person looks.
            log::start(settings::Settings::default().log.level);
            let message = error.to_string();
            tracing::error!("{message}");
            let line = format!("Invalid configuration: {}", first_problem(&message));
            // A message that doesn't get through changes nothing: the journal has it too.
            let _ = sd_notify::notify(&[sd_notify::NotifyState::Status(&line)]);
            return Ok(exit::code(exit::INVALID));
        }
    };
    let level = log::start(loaded.settings.log.level);
    runtime()?.block_on(daemon::run(global.root(), global.config.clone(), loaded.settings, level))?;
    Ok(exit::code(exit::OK))
}
