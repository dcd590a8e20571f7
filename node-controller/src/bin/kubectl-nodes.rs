//! `kubectl nodes`: shows and steers what the nodes of a cluster are.

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    node_controller::kubectl::execute(&node_controller::kubectl::Cli::parse())
}
