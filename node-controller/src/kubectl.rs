//! The command line of `kubectl nodes`.
//!
//! Commands read what the cluster holds ([`read`]), make data of it ([`model`]), and print that ([`output`]). What they
//! say is decided without a client, so that it is tested without a cluster.

mod completion;
#[cfg(test)]
mod fixture;
mod history;
mod live;
mod model;
mod output;
mod pause;
mod plan;
mod read;
mod render;
mod retry;
mod status;
mod token;
mod undo;
mod wait;
mod why;

pub use completion::mended;

use anyhow::Context;
use clap::{CommandFactory, Parser, Subcommand};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use output::Output;
use read::Reader;
use std::path::PathBuf;
use std::process::ExitCode;

/// Show and steer what the nodes of a cluster are.
#[derive(Debug, Parser)]
#[command(name = NAME, bin_name = "kubectl nodes", version, about)]
pub struct Cli {
    /// The kubeconfig file to use.
    #[arg(long, global = true, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig to use.
    #[arg(long, global = true, value_name = "NAME")]
    context: Option<String>,
    /// The namespace that node-controller runs in.
    #[arg(long, short, global = true, default_value = "nodelet-system")]
    namespace: String,
    /// How results are printed.
    #[arg(long, short, global = true, value_enum, default_value_t = Output::Text)]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

/// The program's name, which makes it a plugin of kubectl.
pub const NAME: &str = "kubectl-nodes";

#[derive(Debug, Subcommand)]
enum Command {
    /// Show how far sets and their nodes are.
    Status(status::Options),
    /// Say why a node is as it is, what it waits for, and what to do.
    Why(why::Options),
    /// Show what would change on each node of a set, and in which order.
    Plan(plan::Options),
    /// Show the state that a class stands for, with its presets written out.
    Render(render::Options),
    /// List the revisions of a set's class, and which nodes have them.
    History(history::Options),
    /// Let a set go back to an earlier revision.
    Undo(undo::Options),
    /// Try again what failed or was passed over in a set, as it is.
    Retry(retry::Options),
    /// Begin nothing more in a set, or on one node.
    Pause(pause::Options),
    /// Go on in a set, or on one node.
    Resume(pause::Options),
    /// Wait until all nodes of a set have what its class asks for.
    Wait(wait::Options),
    /// Make a bootstrap token with which one node can join, and print it.
    Token(token::Options),
    /// Print a script that completes commands in a shell.
    Completion(completion::Options),
}

/// The definition of the command line, for what is generated from it.
pub fn command() -> clap::Command {
    Cli::command()
}

/// Runs what the command line asks for.
pub fn execute(cli: &Cli) -> ExitCode {
    match run(cli) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: &Cli) -> anyhow::Result<ExitCode> {
    if let Command::Completion(options) = &cli.command {
        return completion::print(options).map(|()| ExitCode::SUCCESS);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().context("starting a runtime")?;
    runtime.block_on(async {
        let reader = Reader { client: connect(cli).await?, namespace: cli.namespace.clone() };
        let output = cli.output;
        match &cli.command {
            Command::Status(options) => status::show(&reader, options, output).await?,
            Command::Why(options) => why::show(&reader, options, output).await?,
            Command::Plan(options) => plan::show(&reader, options, output).await?,
            Command::Render(options) => render::show(&reader, options, output).await?,
            Command::History(options) => history::show(&reader, options, output).await?,
            Command::Undo(options) => undo::undo(&reader, options, output).await?,
            Command::Retry(options) => retry::retry(&reader, options, output).await?,
            Command::Pause(options) => pause::write(&reader, options, true, output).await?,
            Command::Resume(options) => pause::write(&reader, options, false, output).await?,
            Command::Wait(options) => return wait::wait(&reader, options, output).await,
            Command::Token(options) => token::make(reader.client, options, output).await?,
            Command::Completion(_) => {}
        }
        Ok(ExitCode::SUCCESS)
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
    let mut config = config.context(
        "finding a cluster: set KUBECONFIG or give --kubeconfig; `kubectl config get-contexts` lists what --context takes",
    )?;
    // A person waits for the answer: an API server that is away is said at once.
    config.default_retry = false;
    Client::try_from(config).context("making a client")
}
