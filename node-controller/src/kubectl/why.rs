//! `kubectl nodes why`

mod sentences;

use super::output::{Colour, Look, Output};
use super::read::{Reader, allowed, find, list};
use crate::request::Request;
use clap::Args;
use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::ListParams;
use nodelet_api::objects::SIGNER;
use serde::Serialize;
use std::fmt::Write as _;

/// What is explained.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The node.
    #[arg(value_name = "NODE")]
    node: String,
}

/// Why a node is as it is.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Why {
    /// Its name.
    node: String,
    /// How it is, what it must become, and what it waits for.
    because: Vec<String>,
    /// What somebody can do.
    todo: Vec<String>,
}

/// A node's request for a certificate that it did not get.
#[derive(Debug, PartialEq, Eq)]
struct Unanswered {
    /// Its name.
    name: String,
    /// Why it was denied; nothing, while nobody answered.
    denied: Option<String>,
}

/// Explains a node.
pub(super) async fn show(reader: &Reader, options: &Options, output: Output) -> anyhow::Result<()> {
    let node = options.node.rsplit('/').next().unwrap_or(&options.node);
    let requests: Api<CertificateSigningRequest> = Api::all(reader.client.clone());
    let ours = ListParams::default().fields(&format!("spec.signerName={SIGNER}"));
    let (world, requests) = tokio::join!(reader.world(), list(requests, "CertificateSigningRequests", &ours));
    let (world, requests) = (world?, allowed(requests)?);
    if !world.states.contains_key(node) {
        find(&world.nodes, "Node", "nodes", node)?;
    }
    let requests = requests.values().filter_map(|request| unanswered(request, node)).collect::<Vec<_>>();
    let why = sentences::explain(&world, node, &requests, Timestamp::now());
    output.print(&why, || text(&why, Look::find()))
}

/// A request for a node's certificate that was not granted.
fn unanswered(object: &CertificateSigningRequest, node: &str) -> Option<Unanswered> {
    let request = Request::parse(object).filter(|request| request.node == node)?;
    let conditions = object.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let answers: Vec<_> = conditions.collect();
    if answers.iter().any(|answer| answer.type_ == "Approved") {
        return None;
    }
    let no = answers.iter().find(|answer| matches!(answer.type_.as_str(), "Denied" | "Failed"));
    let denied = no.map(|answer| answer.message.clone().unwrap_or_else(|| "no reason was given".to_owned()));
    Some(Unanswered { name: request.name, denied })
}

fn text(why: &Why, look: Look) -> String {
    let mut text = why.because.iter().fold(String::new(), |text, sentence| text + sentence + "\n");
    if !why.todo.is_empty() {
        let _ = writeln!(text, "\n{}", look.paint(Colour::Bold, "What to do:"));
        for one in &why.todo {
            let _ = writeln!(text, "- {one}");
        }
    }
    text
}
