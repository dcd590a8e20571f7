//! `kubectl nodes render`

use super::output::{Output, yaml};
use super::read::{Reader, find};
use crate::render::render;
use anyhow::anyhow;
use clap::Args;
use nodelet_api::objects::NodeClass;

/// What is shown.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The class.
    #[arg(value_name = "NODECLASS")]
    class: String,
}

/// Shows what a class stands for.
pub(super) async fn show(reader: &Reader, options: &Options, output: Output) -> anyhow::Result<()> {
    let classes = reader.list::<NodeClass>("NodeClasses").await?;
    let class = find(&classes, "NodeClass", "nodeclasses", &options.class)?;
    let revision = render(class).map_err(|problems| {
        anyhow!(
            "the class {} is not a state that a node can have; correct it with `kubectl edit`:\n{problems}",
            options.class
        )
    })?;
    // Text is YAML too, which can be the state of another class.
    let state = yaml(&revision.state)?;
    output.print(&revision.state, || {
        format!("# The class {}, with its presets written out: revision {}.\n{state}", options.class, revision.name)
    })
}
