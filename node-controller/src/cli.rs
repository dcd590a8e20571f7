//! The command line.

use crate::gates;
use crate::preflight::{self, Finding};
use crate::run;
use anyhow::Context;
use clap::{Parser, Subcommand, ValueEnum};
use kube::{Client, Config};
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
pub enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the controller. Several may run; one of them acts.
    Run {
        /// The namespace of revisions and of the lease.
        #[arg(long, env = "POD_NAMESPACE", default_value = "nodelet-system")]
        namespace: String,
        /// Who this one of several is. Without it, the host name and the process.
        #[arg(long, env = "POD_NAME")]
        identity: Option<String>,
        /// A group whose bootstrap tokens may ask for the certificate of any expected node; may be given several times.
        /// Tokens of `kubectl nodes token NODE` are for that node alone, and need none.
        #[arg(long, value_name = "GROUP", default_value = "system:bootstrappers:kubeadm:default-node-token")]
        bootstrap_group: Vec<String>,
        /// The node that this one runs on: its turn comes last.
        #[arg(long, env = "NODE_NAME")]
        own_node: Option<String>,
        /// Where /healthz and /readyz are served. Empty turns it off.
        #[arg(long, default_value = "0.0.0.0:8081")]
        health_address: String,
    },
    /// Look whether the cluster of the current kubeconfig can take node-controller; change nothing.
    Preflight,
    /// Evaluate one expression of a gate, for the running controller.
    #[command(hide = true)]
    Evaluate,
    /// Show the version.
    Version,
}

/// Runs what the command line asks for.
pub fn execute(cli: &Cli) -> ExitCode {
    let result = match &cli.command {
        Command::Run { namespace, identity, bootstrap_group, own_node, health_address } => {
            run_controller(&run::Options {
                namespace: namespace.clone(),
                identity: identity.clone().unwrap_or_else(own_name),
                bootstrap_groups: bootstrap_group.clone(),
                own_node: own_node.clone(),
                health_address: health_address.clone(),
            })
        }
        Command::Preflight => preflight(cli.output),
        Command::Evaluate => gates::evaluate().map(|()| true),
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

/// The host name and the process.
fn own_name() -> String {
    format!("{}-{}", std::fs::read_to_string("/etc/hostname").unwrap_or_default().trim(), std::process::id())
}

fn run_controller(options: &run::Options) -> anyhow::Result<bool> {
    let level = tracing_subscriber::filter::LevelFilter::INFO;
    tracing_subscriber::fmt().with_max_level(level).with_writer(std::io::stderr).init();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let config = Config::infer().await.context("finding a cluster: set KUBECONFIG, or run in a pod")?;
        let client = Client::try_from(without_retries(config)).context("making a client")?;
        run::run(client, options).await
    })?;
    Ok(true)
}

/// By itself a client asks again for minutes when it is told `429`, which is also how a budget forbids an eviction. What
/// is refused is decided anew here.
fn without_retries(mut config: Config) -> Config {
    config.default_retry = false;
    config
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
