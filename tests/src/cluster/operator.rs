//! The node operator in the cluster: its objects, its rights, and node-controller.

use anyhow::{Context, Result};

use super::Cluster;
use crate::paths;

/// The definitions that `config/crd` brings.
const DEFINITIONS: [&str; 3] = ["nodeclasses", "nodesets", "nodestates"];

impl Cluster {
    /// Installs what a user would with `kubectl apply -k`: definitions, namespace, rights. The controller is started
    /// apart, see [`Cluster::controller`].
    pub fn install_operator(&self) -> Result<()> {
        let config = |part: &str| paths::checkout().join("config").join(part).display().to_string();
        self.kubectl(&["apply", "--server-side", "-k", &config("crd")]).context("defining the custom resources")?;
        for name in DEFINITIONS {
            let definition = format!("crd/{name}.nodelet.dev");
            self.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", &definition])?;
        }
        self.kubectl(&["create", "namespace", "nodelet-system"])?;
        self.kubectl(&["apply", "--server-side", "-k", &config("rbac")]).context("giving the rights").map(drop)
    }
}
