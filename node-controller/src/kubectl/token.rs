//! Bootstrap tokens for one node each.

use super::output::Output;
use crate::decide::NODE_TOKEN_GROUP;
use anyhow::{Context, bail, ensure};
use clap::Args;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use kube::api::PostParams;
use kube::{Api, Client};
use nodelet_api::objects::time_text;
use serde_json::json;
use std::io::Read;

/// What the token is for.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The node that may join with it: its name as its Node object has it.
    node: String,
    /// How long it is good: a number with s, m, h or d.
    #[arg(long, default_value = "1h", value_parser = duration)]
    ttl: SignedDuration,
}

/// The group that kubeadm lets kubelets join with.
const KUBEADM: &str = "system:bootstrappers:kubeadm:default-node-token";

/// Makes a token and prints it.
pub(super) async fn make(client: Client, options: &Options, output: Output) -> anyhow::Result<()> {
    let node = &options.node;
    ensure!(is_node_name(node), "`{node}` can't be the name of a Node: use lower case letters, digits, `-` and `.`");
    let (id, secret) = (random(6)?, random(16)?);
    let until = time_text(Timestamp::now().checked_add(options.ttl).context("that is too long")?);
    let object = json!({
        "metadata": {"name": format!("bootstrap-token-{id}"), "namespace": "kube-system"},
        "type": "bootstrap.kubernetes.io/token",
        "stringData": {
            "description": format!("made by kubectl nodes token {node}"),
            "token-id": id,
            "token-secret": secret,
            "expiration": until,
            "usage-bootstrap-authentication": "true",
            // Its kubelet may join with it too. nodelet's certificate is for this node alone.
            "auth-extra-groups": format!("{KUBEADM},{}", group(node)),
        },
    });
    let object: Secret = serde_json::from_value(object).context("making the token's Secret")?;
    let api: Api<Secret> = Api::namespaced(client, "kube-system");
    let made = api.create(&PostParams::default(), &object).await;
    made.with_context(|| format!("writing the Secret bootstrap-token-{id} in kube-system"))?;
    let token = json!({"node": node, "token": format!("{id}.{secret}"), "expiration": until});
    output.print(&token, || format!("{id}.{secret}"))
}

/// The group of tokens for a node.
fn group(node: &str) -> String {
    format!("{NODE_TOKEN_GROUP}{}", node.replace('.', ":"))
}

fn is_node_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let label =
        |label: &str| !label.is_empty() && label.chars().all(plain) && !label.starts_with('-') && !label.ends_with('-');
    name.len() <= 200 && name.split('.').all(label)
}

/// Characters that nobody can guess.
fn random(length: usize) -> anyhow::Result<String> {
    const CHARACTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut source = std::fs::File::open("/dev/urandom").context("opening /dev/urandom")?;
    let mut text = String::new();
    let mut byte = [0];
    while text.len() < length {
        source.read_exact(&mut byte).context("reading /dev/urandom")?;
        // Seven times the characters fit into a byte; what is left over would make some likelier.
        if usize::from(byte[0]) < 7 * CHARACTERS.len() {
            text.push(char::from(CHARACTERS[usize::from(byte[0]) % CHARACTERS.len()]));
        }
    }
    Ok(text)
}

/// `90s`, `30m`, `2h`, `1d`.
pub(super) fn duration(text: &str) -> anyhow::Result<SignedDuration> {
    let (number, unit) = text.split_at(text.len().saturating_sub(1));
    let seconds: i64 = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        "d" => 86400,
        _ => bail!("write a number with a unit, such as 30m or 2h"),
    };
    let number: i64 = number.parse().ok().filter(|number| *number > 0).context("write a number, such as 30m")?;
    Ok(SignedDuration::from_secs(number.saturating_mul(seconds)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn tokens_are_random_and_well_formed() {
        let (one, other) = (random(16).unwrap(), random(16).unwrap());
        assert_ne!(one, other);
        assert!(one.len() == 16 && one.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()), "{one}");
        assert_eq!(group("n1.example.com"), "system:bootstrappers:nodelet:node:n1:example:com");
    }

    #[test]
    fn durations_are_read() {
        assert_eq!(duration("2h").unwrap(), SignedDuration::from_secs(7200));
        for text in ["", "h", "2", "-1h", "2w"] {
            assert!(duration(text).is_err(), "{text}");
        }
        assert!(is_node_name("n1.example.com") && !is_node_name("N1") && !is_node_name("a..b"));
    }
}
