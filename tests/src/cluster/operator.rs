//! The node operator in the cluster: its objects, its rights, and what nodes report.

use std::env;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::Cluster;
use crate::wait::{Seen, wait_until};
use crate::{paths, process};

/// The definitions that `config/crd` brings.
const DEFINITIONS: [&str; 3] = ["nodeclasses", "nodesets", "nodestates"];
/// A node takes a change up within seconds; this is for one that installs packages on a busy machine.
const APPLY_LIMIT: Duration = Duration::from_secs(3 * 60);

impl Cluster {
    /// Installs what a user would with `kubectl apply -k`: definitions, namespace, rights and their bounds. The controller is started
    /// apart, see [`Cluster::controller`].
    pub fn install_operator(&self) -> Result<()> {
        self.install_operator_from(&paths::checkout().join("config"))
    }

    /// The same with the manifests of another version.
    pub fn install_operator_from(&self, config: &Path) -> Result<()> {
        self.define_from(config)?;
        self.kubectl(&["create", "namespace", "nodelet-system"])?;
        self.give_rights_from(config)
    }

    /// The rights among them, and their bounds.
    pub fn give_rights_from(&self, config: &Path) -> Result<()> {
        let part = |name: &str| config.join(name).display().to_string();
        self.kubectl(&["apply", "--server-side", "-k", &part("rbac")]).context("giving the rights")?;
        self.kubectl(&["apply", "--server-side", "-k", &part("admission")]).context("setting the bounds").map(drop)
    }

    /// The definitions among them, or the next ones over those that are there.
    pub fn define_from(&self, config: &Path) -> Result<()> {
        let definitions = config.join("crd").display().to_string();
        self.kubectl(&["apply", "--server-side", "-k", &definitions]).context("defining the custom resources")?;
        for name in DEFINITIONS {
            let definition = format!("crd/{name}.nodelet.dev");
            self.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", &definition])?;
        }
        Ok(())
    }

    /// `kubectl nodes`, as a user has it: kubectl finds the program beside its name in `PATH`.
    pub fn kubectl_nodes(&self, words: &[&str]) -> Result<Command> {
        let plugin = paths::program("kubectl-nodes")?;
        let mut path = OsString::from(plugin.parent().unwrap_or(Path::new("/")));
        path.push(":");
        path.push(env::var_os("PATH").unwrap_or_default());
        let mut command = Command::new(self.binaries.program("kubectl"));
        // Flags may not stand before a plugin's name, so the credential is in the environment.
        command.arg("nodes").args(words).env("PATH", path).env("KUBECONFIG", self.kubeconfig());
        // What a crash leaves running is found by it.
        command.env(process::MARK, self.slot.dir());
        Ok(command)
    }

    /// A `NodeState` as the API server has it; `null` where there is none.
    pub fn node_state(&self, name: &str) -> Result<Value> {
        let text = self.kubectl(&["get", "nodestate", name, "--ignore-not-found", "-o", "json"])?;
        if text.trim().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_str(&text).with_context(|| format!("reading the NodeState {name}"))
    }

    /// Waits until these nodes report that they are what their class makes them, by another revision than `before`.
    pub fn wait_until_applied(&self, nodes: &[&str], before: Option<&str>) -> Result<()> {
        wait_until("the nodes to be as their class wants them", APPLY_LIMIT, || {
            for name in nodes {
                let state = self.node_state(name)?;
                let (wanted, applied) = (&state["spec"]["revision"], &state["status"]["applied"]["revision"]);
                if wanted.is_null() || wanted != applied || wanted.as_str() == before {
                    return Ok(Seen::not_yet(format!("{name}: {state}")));
                }
            }
            Ok(Seen::Done(()))
        })
    }
}

/// A `NodeSet` of all nodes that have registered.
pub fn set_of_all(name: &str, class: &str) -> Value {
    json!({
        "apiVersion": "nodelet.dev/v1alpha1",
        "kind": "NodeSet",
        "metadata": {"name": name},
        "spec": {"classRef": {"name": class}, "selector": {"matchLabels": {"kubernetes.io/os": "linux"}}},
    })
}
