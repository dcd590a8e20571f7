//! node-controller: writes the desired state of every node and decides when a node may be disturbed.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    node_controller::cli::execute(&node_controller::cli::Cli::parse())
}
