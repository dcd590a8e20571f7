//! `nodelet rollback`

use super::progress::Show;
use super::{Global, runtime};
use crate::exit;
use crate::reconcile::Reconciler;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// The revision to go back to; without it, the newest good one that isn't the state file's.
    #[arg(long, value_name = "REVISION")]
    to: Option<String>,
}

pub(super) fn execute(global: &Global, options: &Options) -> anyhow::Result<ExitCode> {
    nix::sys::stat::umask(nix::sys::stat::Mode::from_bits_truncate(0o022));
    let settings = global.settings()?.settings;
    runtime()?.block_on(async {
        let reconciler = Reconciler::connect(global.root(), settings).await.map_err(super::apply::unwrapped)?;
        let good = reconciler.roll_back(options.to.as_deref(), "was rolled back")?;
        println!("Going back to revision {}, good since {}.", good.revision, good.at.strftime("%F %T UTC"));
        let show = Show::new(false);
        let converged = reconciler.converge(&|news| show.tell(news)).await;
        show.end();
        let converged = converged.map_err(super::apply::unwrapped)?;
        anyhow::ensure!(converged.is_some(), "there is no state file, so nothing was changed: write one first");
        println!("The node is as revision {} wants it, and stays so until the state file changes.", good.revision);
        Ok(exit::code(exit::OK))
    })
}
