//! `nodelet rescue`: started by nodelet itself while it is upgraded.

use super::{Global, runtime};
use crate::exit;
use crate::reconcile::Reconciler;
use crate::rescue;
use anyhow::Context;
use std::process::ExitCode;

pub(super) fn execute(global: &Global) -> anyhow::Result<ExitCode> {
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let loaded = global.settings()?;
    let _level = crate::report::log::start(loaded.settings.log.level);
    runtime()?.block_on(async {
        let reconciler = Reconciler::connect(global.root(), loaded.settings).await?;
        let systemd = reconciler.systemd().context("systemd can't be reached")?;
        let outcome = rescue::watch(&reconciler, systemd).await?;
        tracing::info!(?outcome, "nodelet was watched while it was upgraded");
        Ok(exit::code(exit::OK))
    })
}
