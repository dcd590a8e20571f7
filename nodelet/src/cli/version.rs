//! `nodelet version`

use super::{Global, Output, print_json};
use crate::exit;
use std::process::ExitCode;

pub(super) fn execute(global: &Global) -> anyhow::Result<ExitCode> {
    let version = env!("CARGO_PKG_VERSION");
    match global.output {
        Output::Json => print_json(&serde_json::json!({"version": version, "architecture": std::env::consts::ARCH}))?,
        Output::Text => println!("nodelet {version} ({})", std::env::consts::ARCH),
    }
    Ok(exit::code(exit::OK))
}
