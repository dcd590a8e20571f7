//! The command line of `kubectl nodes`.

mod token;

use crate::cli::Output;
use anyhow::Context;
use clap::{Parser, Subcommand};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use std::path::PathBuf;
use std::process::ExitCode;

/// Show and steer what the nodes of a cluster are.
#[derive(Debug, Parser)]
#[command(name = "kubectl-nodes", bin_name = "kubectl nodes", version, about)]
pub struct Cli {
    /// The kubeconfig file to use.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// How results are printed.
    #[arg(long, short, global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Make a bootstrap token with which one node can join, and print it.
    Token(token::Options),
}

/// Runs what the command line asks for.
pub fn execute(cli: &Cli) -> ExitCode {
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let client = connect(cli).await?;
        match &cli.command {
            Command::Token(options) => token::make(client, options, cli.output).await,
        }
    })
}

/// The cluster that kubectl would speak to.
async fn connect(cli: &Cli) -> anyhow::Result<Client> {
    let options = KubeConfigOptions { context: cli.context.clone(), ..KubeConfigOptions::default() };
    let config = match &cli.kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path).with_context(|| format!("reading {}", path.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &options).await
        }
        None => Config::from_kubeconfig(&options).await,
    };
    let config = config.context("finding a cluster: set KUBECONFIG, or give --kubeconfig")?;
    Client::try_from(config).context("making a client")
}
