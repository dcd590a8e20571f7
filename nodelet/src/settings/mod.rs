//! nodelet's own configuration: fragments from drop-in directories → merged → validated settings.

mod default_file;
mod fragments;

pub use default_file::default_file;
pub use fragments::{InvalidSettings, Loaded, load};

use nodelet_api::text::{AbsolutePath, PackageName};
use nodelet_api::{Document, FieldPath, Problems};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Where the main file is.
pub const MAIN_FILE: &str = "/etc/nodelet/nodelet.toml";

/// The settings of nodelet itself. What the node is to be stands in the state file, not here.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// Who this node is.
    pub node: Node,
    /// Where the desired state comes from.
    pub state: State,
    /// The cluster that the node belongs to.
    pub cluster: Cluster,
    /// How packages are managed.
    pub packages: Packages,
    /// When the node is checked.
    pub check: Check,
    /// What goes into the log.
    pub log: Log,
}

/// Who this node is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Node {
    /// The node's name, as its Node object has it. Empty: the host name.
    pub name: String,
}

/// Where the desired state comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct State {
    /// The file with the desired state. It need not exist yet: nodelet waits for it.
    pub file: AbsolutePath,
}

/// The cluster that the node belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Cluster {
    /// A kubeconfig that says where the API server is, with a credential: `/etc/kubernetes/bootstrap-kubelet.conf`,
    /// `/etc/kubernetes/kubelet.conf`, or one with a bootstrap token. It need not exist yet. From the first state that
    /// the cluster hands out, that one counts instead of the local file. Empty: there is no cluster.
    pub kubeconfig: String,
    /// Whose credential nodelet uses. `own`: the one in `kubeconfig` only asks for a certificate of nodelet's own, once.
    /// `kubelet`: the one in `kubeconfig` itself, where the cluster issues no such certificates.
    pub identity: Identity,
    /// How long, in seconds, nodelet's own certificate is asked to be good; the cluster may give less. It is renewed after
    /// two thirds of that. 0: as long as the cluster gives.
    #[schemars(range(min = 0, max = 315_360_000))]
    pub certificate_seconds: u32,
    /// The namespace of the controller, where revisions are.
    pub namespace: String,
}

/// Whose credential nodelet uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Identity {
    /// A certificate of its own.
    #[default]
    Own,
    /// The kubelet's.
    Kubelet,
}

/// How packages are managed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Packages {
    /// Which package manager to use. `auto`: the one that the host has.
    pub manager: Manager,
    /// How long to wait, in seconds, for another program that holds the package manager's lock.
    #[schemars(range(min = 1, max = 86400))]
    pub lock_timeout_seconds: u32,
    /// What becomes of a package that nodelet installed, once the state doesn't name it any more.
    pub prune: Prune,
    /// What becomes of a configuration file that was edited, when a new version of its package ships another one.
    pub conffiles: Conffiles,
    /// Packages that a transaction may remove although the state doesn't ask for it.
    pub may_remove: Vec<PackageName>,
}

/// The package managers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Manager {
    /// The one that the host has.
    #[default]
    Auto,
    /// apt and dpkg.
    Apt,
    /// dnf and rpm.
    Dnf,
}

/// What becomes of packages that left the state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Prune {
    /// They are removed; their configuration files stay.
    #[default]
    Remove,
    /// They are removed with their configuration files (with dnf the same as `remove`).
    Purge,
    /// They stay.
    Keep,
}

/// What becomes of edited configuration files of packages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Conffiles {
    /// They stay as they are.
    #[default]
    Keep,
    /// The package's own take their place (with dnf the same as `keep`: an RPM decides itself).
    Replace,
}

/// When the node is checked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Check {
    /// How often, in seconds, everything is checked.
    #[schemars(range(min = 10, max = 86400))]
    pub interval_seconds: u32,
    /// How long to wait, in seconds, before something that failed is tried again; doubled with every
    /// further failure, up to the check interval.
    #[schemars(range(min = 1, max = 86400))]
    pub retry_seconds: u32,
    /// How often in an hour a resource that something else keeps changing is put back; after that it is reported
    /// only, until the hour is over.
    #[schemars(range(min = 0, max = 3600))]
    pub repairs_per_hour: u32,
}

/// What goes into the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Log {
    /// The least severe level that is logged.
    pub level: Level,
}

/// Levels of the log, most severe first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum Level {
    /// What failed.
    Error,
    /// What may need attention.
    Warn,
    /// What was done.
    #[default]
    Info,
    /// How it was done.
    Debug,
    /// Everything.
    Trace,
}

impl Default for State {
    #[expect(clippy::expect_used, reason = "a constant that a test reads")]
    fn default() -> Self {
        Self { file: "/etc/nodelet/state.toml".try_into().expect("the default path is absolute") }
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            kubeconfig: String::new(),
            identity: Identity::Own,
            certificate_seconds: 0,
            namespace: "nodelet-system".into(),
        }
    }
}

impl Default for Packages {
    fn default() -> Self {
        // Ten minutes: unattended-upgrades and the first boot's own package runs take a few.
        Self {
            manager: Manager::Auto,
            lock_timeout_seconds: 600,
            prune: Prune::Remove,
            conffiles: Conffiles::Keep,
            may_remove: Vec::new(),
        }
    }
}

impl Default for Check {
    fn default() -> Self {
        Self { interval_seconds: 1800, retry_seconds: 10, repairs_per_hour: 10 }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self { level: Level::Info }
    }
}

impl Document for Settings {
    fn check(&self, problems: &mut Problems) {
        let name = &self.node.name;
        let label = |label: &str| {
            !label.is_empty()
                && label.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        if !name.is_empty() && (name.len() > 253 || !name.split('.').all(label)) {
            let at = FieldPath::root().key("node").key("name");
            problems
                .add(at, format!("`{name}` can't be the name of a Node: use lower case letters, digits, `-` and `.`"));
        }
        let kubeconfig = &self.cluster.kubeconfig;
        if !kubeconfig.is_empty() && !kubeconfig.starts_with('/') {
            let at = FieldPath::root().key("cluster").key("kubeconfig");
            problems.add(at, format!("`{kubeconfig}` is not a path from the root: begin it with a slash"));
        }
        if (1..600).contains(&self.cluster.certificate_seconds) {
            let at = FieldPath::root().key("cluster").key("certificateSeconds");
            problems.add(at, "Kubernetes issues no certificates of less than ten minutes: write 0, or at least 600");
        }
        if self.check.retry_seconds > self.check.interval_seconds {
            let at = FieldPath::root().key("check").key("retrySeconds");
            problems.add(at, "a retry would come later than the next check: write at most `check.intervalSeconds`");
        }
    }
}
