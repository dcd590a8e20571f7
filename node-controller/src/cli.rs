//! The command line.

use crate::preflight::{self, Finding};
use clap::{Parser, Subcommand, ValueEnum};
use std::process::ExitCode;

/// Writes the desired state of every node and decides when a node may be disturbed.
#[derive(Debug, Parser)]
#[command(name = "node-controller", version, about)]
pub struct Cli {
    /// How results are printed.
    #[arg(long, short, global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

/// How results are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Look whether the cluster of the current kubeconfig can take node-controller; change nothing.
    Preflight,
    /// Show the version.
    Version,
}

/// Runs what the command line asks for.
pub fn execute(cli: &Cli) -> ExitCode {
    let result = match cli.command {
        Command::Preflight => preflight(cli.output),
        Command::Version => {
            println!("node-controller {}", env!("CARGO_PKG_VERSION"));
            Ok(true)
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("node-controller: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn preflight(output: Output) -> anyhow::Result<bool> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let findings = runtime.block_on(preflight::examine())?;
    match output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&findings)?),
        Output::Text => {
            for Finding { ok, message } in &findings {
                println!("{} {message}", if *ok { "ok " } else { "NO " });
            }
        }
    }
    Ok(findings.iter().all(|finding| finding.ok))
}
