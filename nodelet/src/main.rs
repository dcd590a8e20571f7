//! nodelet: keeps one node's packages, files and units equal to a desired state.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    nodelet::cli::execute(nodelet::cli::Cli::parse())
}
