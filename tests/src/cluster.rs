//! A control plane of real programs on this machine, and real kubelets on test nodes.
//!
//! etcd and the other programs listen where only this machine is, the API server on the bridge's address, where nodes
//! and the host reach it alike. Authorization is `Node,RBAC` with `NodeRestriction`, so that what nodes may do is
//! tested for real.

mod aside;
pub mod audit;
mod bare;
mod certificates;
mod component;
mod cordons;
mod join;
mod operator;
pub(crate) mod pods;
mod prometheus;
mod requests;
mod shop;
mod workload;

use std::fs;
use std::net::Ipv4Addr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::command::run;
use crate::kubernetes::{self, Binaries};
use crate::node::where_evidence_goes;
use crate::{Slot, slot};
use certificates::Authority;

pub use bare::class_of;
pub use certificates::{certificate_request, certificate_request_with};
pub use component::Component;
pub use cordons::Cordons;
pub use join::{JoinOptions, TOKEN, node_is_ready};
pub use operator::set_of_all;
pub use pods::{BUSYBOX, PAUSE};
pub use requests::{Failure, Requests, Tally};
pub use shop::{SHOP, SHOP_PODS, shop};

/// Cold, the API server needs 5 s; a machine that is busy with compiling needs longer.
const START_LIMIT: Duration = Duration::from_secs(2 * 60);
/// The addresses of services.
const SERVICES: &str = "10.96.0.0/16";
/// The first of them is the API server's, as pods see it.
const SERVICE: &str = "10.96.0.1";

/// A running control plane.
#[derive(Debug)]
pub struct Cluster {
    slot: Arc<Slot>,
    binaries: Binaries,
    dir: PathBuf,
    authority: Authority,
    /// The store. Stop it and the API server answers nothing.
    pub etcd: Component,
    /// The API server.
    pub api_server: Component,
    /// Controllers, among them the one that approves and the one that signs kubelets' certificates.
    pub controller_manager: Component,
    /// The scheduler.
    pub scheduler: Component,
}

/// The control plane that all tests of this process share.
pub fn cluster() -> Result<Shared> {
    static CLUSTER: OnceLock<Result<Arc<Cluster>, String>> = OnceLock::new();
    CLUSTER
        .get_or_init(|| {
            slot().and_then(|slot| Cluster::start(&slot)).map(Arc::new).map_err(|error| format!("{error:#}"))
        })
        .clone()
        .map(Shared)
        .map_err(|error| anyhow!(error))
}

/// A test's hold on the shared control plane. When the test fails, the control plane's logs are kept beside its nodes'.
#[derive(Debug)]
pub struct Shared(Arc<Cluster>);

impl Deref for Shared {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.keep_evidence();
        }
    }
}

/// What a control plane is to be like.
#[derive(Debug, Clone, Default)]
pub struct ClusterOptions<'a> {
    /// More flags of the API server.
    pub flags: &'a [(&'a str, String)],
    /// How long certificates are good that the cluster signs; a year by default.
    pub signing: Option<Duration>,
}

impl Cluster {
    /// Starts a control plane in this slot and waits until it serves. One for each slot.
    pub fn start(slot: &Arc<Slot>) -> Result<Self> {
        Self::start_as(slot, &ClusterOptions::default())
    }

    /// The same with more flags of the API server, such as [`audit::Audit::flags`].
    pub fn start_with(slot: &Arc<Slot>, flags: &[(&str, String)]) -> Result<Self> {
        Self::start_as(slot, &ClusterOptions { flags, ..ClusterOptions::default() })
    }

    /// The same, with options.
    pub fn start_as(slot: &Arc<Slot>, options: &ClusterOptions<'_>) -> Result<Self> {
        let binaries = kubernetes::binaries()?;
        let start = Instant::now();
        let dir = slot.dir().join("cluster");
        fs::create_dir_all(&dir).with_context(|| format!("making {}", dir.display()))?;
        let authority = Authority::new(&dir, slot.number().gateway())?;
        let cluster = Self {
            etcd: etcd(slot, &binaries, &dir),
            api_server: options
                .flags
                .iter()
                .fold(api_server(slot, &binaries, &dir), |server, (name, value)| server.flag(name, value)),
            controller_manager: controller_manager(slot, &binaries, &dir, options),
            scheduler: scheduler(slot, &binaries, &dir),
            slot: Arc::clone(slot),
            binaries,
            dir,
            authority,
        };
        for user in ["admin", "controller-manager", "scheduler"] {
            let kubeconfig = cluster.authority.kubeconfig(&cluster.url(), user)?;
            let path = cluster.dir.join(format!("{user}.conf"));
            fs::write(&path, kubeconfig).with_context(|| format!("writing {}", path.display()))?;
        }
        cluster.etcd.start()?;
        cluster.api_server.start()?;
        cluster.wait_until_ready()?;
        join::allow(&cluster)?;
        cluster.controller_manager.start()?;
        cluster.scheduler.start()?;
        eprintln!(
            "the control plane ({}, {}) serves after {:.1} s",
            cluster.binaries.version(),
            cluster.url(),
            start.elapsed().as_secs_f32()
        );
        Ok(cluster)
    }

    /// Where nodes and the host find the API server.
    pub fn url(&self) -> String {
        format!("https://{}:6443", self.address())
    }

    /// The API server's address, on the slot's bridge.
    pub fn address(&self) -> Ipv4Addr {
        self.slot.number().gateway()
    }

    /// The slot that it is in.
    pub fn slot(&self) -> &Arc<Slot> {
        &self.slot
    }

    /// The programs that it is made of.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// Credentials of a cluster administrator.
    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.join("admin.conf")
    }

    /// The certificate authority's certificate.
    pub fn authority_certificate(&self) -> &str {
        self.authority.certificate()
    }

    /// A kubeconfig for any user and groups, with a client certificate that the cluster's authority signed.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<String> {
        self.authority.kubeconfig_for(&self.url(), user, groups)
    }

    /// A kubeconfig with the cluster's bootstrap token, which is in a file of its own, as the kubelet preset writes it.
    pub fn bootstrap_kubeconfig(&self, token_file: &str) -> String {
        self.kubeconfig_with(&serde_json::json!({"tokenFile": token_file}))
    }

    /// A kubeconfig with any credential, as a user's entry has it; `{}` has none.
    pub fn kubeconfig_with(&self, user: &serde_json::Value) -> String {
        self.authority.kubeconfig_with(&self.url(), user)
    }

    /// A client of an administrator. Each test makes its own: a client belongs to the runtime that it was made in.
    pub async fn client(&self) -> Result<Client> {
        let path = self.kubeconfig();
        let kubeconfig = Kubeconfig::read_from(&path).with_context(|| format!("reading {}", path.display()))?;
        client_of(kubeconfig).await
    }

    /// A client of any user, see [`Self::kubeconfig_for`].
    pub async fn client_for(&self, user: &str, groups: &[&str]) -> Result<Client> {
        let text = self.kubeconfig_for(user, groups)?;
        client_of(Kubeconfig::from_yaml(&text).context("reading the kubeconfig just made")?).await
    }

    /// `kubectl` as an administrator; the words are its arguments. Returns its standard output.
    pub fn kubectl(&self, words: &[&str]) -> Result<String> {
        run(Command::new(self.binaries.program("kubectl")).arg("--kubeconfig").arg(self.kubeconfig()).args(words))
    }

    /// `kubectl` with the credential in a file.
    pub fn kubectl_as(&self, kubeconfig: &Path, words: &[&str]) -> Result<String> {
        run(Command::new(self.binaries.program("kubectl")).arg("--kubeconfig").arg(kubeconfig).args(words))
    }

    /// `kubectl apply` of a manifest (YAML or JSON).
    pub fn apply(&self, manifest: &str) -> Result<String> {
        let mut command = Command::new(self.binaries.program("kubectl"));
        command.arg("--kubeconfig").arg(self.kubeconfig()).args(["apply", "-f", "-"]);
        let done = crate::command::output(&mut command, Some(manifest.as_bytes()), START_LIMIT)?;
        anyhow::ensure!(done.success(), "kubectl apply failed:\n{}\nof:\n{manifest}", done.text());
        Ok(done.stdout)
    }

    /// A node-controller of this checkout, not started yet. Several may run; one of them acts. Each has the rights of its
    /// service account and no others, so that what they may do is tested for real.
    pub fn controller(&self, identity: &str) -> Result<Component> {
        self.controller_with(identity, &self.controller_credential()?)
    }

    /// A file with the credential of a controller's service account.
    pub fn controller_credential(&self) -> Result<PathBuf> {
        let groups = ["system:serviceaccounts", "system:serviceaccounts:nodelet-system"];
        let kubeconfig = self.kubeconfig_for("system:serviceaccount:nodelet-system:node-controller", &groups)?;
        let path = self.dir.join("node-controller.conf");
        fs::write(&path, kubeconfig).with_context(|| format!("writing {}", path.display()))?;
        Ok(path)
    }

    /// The same with the credential in a file.
    pub fn controller_with(&self, identity: &str, kubeconfig: &Path) -> Result<Component> {
        self.controller_of(crate::paths::program("node-controller")?, identity, kubeconfig)
    }

    /// The same of another version.
    pub fn controller_of(&self, program: PathBuf, identity: &str, kubeconfig: &Path) -> Result<Component> {
        let name = format!("node-controller-{identity}");
        Ok(Component::new(&name, &self.slot, program, &self.dir)
            .word("run")
            .flag("namespace", "nodelet-system")
            .flag("identity", identity)
            // Several run beside each other on this machine, and none of them has a kubelet that asks.
            .flag("health-address", "")
            .env("KUBECONFIG", kubeconfig.display()))
    }

    /// Waits until the API server says that it is ready, for example after a restart.
    pub fn wait_until_ready(&self) -> Result<()> {
        self.api_server.wait_until("the API server to be ready", START_LIMIT, || {
            self.kubectl(&["get", "--raw", "/readyz", "--request-timeout=5s"])
        })
    }

    /// Copies the logs to where the failing test's evidence goes, and says so. Done by itself when a test panics while it
    /// holds the control plane.
    pub fn keep_evidence(&self) {
        let dir = where_evidence_goes().join("control-plane");
        let copied = fs::create_dir_all(&dir).and_then(|()| {
            // Of node-controllers too.
            for entry in fs::read_dir(&self.dir)?.flatten() {
                if entry.path().extension().is_some_and(|extension| extension == "log") {
                    fs::copy(entry.path(), dir.join(entry.file_name()))?;
                }
            }
            // Apart: not every cluster has all kinds.
            for (file, kinds) in [
                ("objects.yaml", "nodes,pods,events,csr,leases"),
                ("nodelet.yaml", "nodeclasses,nodesets,nodestates,controllerrevisions"),
            ] {
                let objects = self.kubectl(&["get", kinds, "-A", "-o", "yaml", "--request-timeout=10s"]);
                fs::write(dir.join(file), objects.unwrap_or_else(|error| format!("{error:#}")))?;
            }
            Ok(())
        });
        match copied {
            Ok(()) => eprintln!("the control plane's logs are in {}", dir.display()),
            Err(error) => eprintln!("keeping the control plane's logs: {error}"),
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.keep_evidence();
        }
    }
}

async fn client_of(kubeconfig: Kubeconfig) -> Result<Client> {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .context("using the kubeconfig")?;
    // By default a 429, such as an eviction that a budget forbids, is retried for five minutes before anybody hears
    // of it. A test wants the answer.
    config.default_retry = false;
    Client::try_from(config).context("making a client")
}

fn etcd(slot: &Slot, binaries: &Binaries, dir: &Path) -> Component {
    let client = format!("http://{}:2379", slot.number().loopback());
    let peer = format!("http://{}:2380", slot.number().loopback());
    Component::new("etcd", slot, binaries.program("etcd"), dir)
        .flag("data-dir", dir.join("etcd").display())
        .flag("listen-client-urls", &client)
        .flag("advertise-client-urls", &client)
        .flag("listen-peer-urls", &peer)
        .flag("initial-advertise-peer-urls", &peer)
        .flag("initial-cluster", format!("default={peer}"))
        // Nothing here must survive the machine itself, and every sync costs a test milliseconds.
        .flag("unsafe-no-fsync", true)
}

fn api_server(slot: &Slot, binaries: &Binaries, dir: &Path) -> Component {
    let file = |name: &str| dir.join(name).display().to_string();
    let address = slot.number().gateway();
    Component::new("kube-apiserver", slot, binaries.program("kube-apiserver"), dir)
        .flag("etcd-servers", format!("http://{}:2379", slot.number().loopback()))
        .flag("bind-address", address)
        .flag("advertise-address", address)
        .flag("secure-port", 6443)
        .flag("authorization-mode", "Node,RBAC")
        .flag("enable-admission-plugins", "NodeRestriction")
        .flag("enable-bootstrap-token-auth", true)
        .flag("allow-privileged", true)
        .flag("anonymous-auth", false)
        .flag("client-ca-file", file("ca.crt"))
        .flag("tls-cert-file", file("apiserver.crt"))
        .flag("tls-private-key-file", file("apiserver.key"))
        .flag("kubelet-client-certificate", file("apiserver-kubelet.crt"))
        .flag("kubelet-client-key", file("apiserver-kubelet.key"))
        .flag("kubelet-preferred-address-types", "InternalIP")
        .flag("service-account-issuer", "https://kubernetes.default.svc")
        .flag("service-account-key-file", file("service-account.pub"))
        .flag("service-account-signing-key-file", file("service-account.key"))
        .flag("service-cluster-ip-range", SERVICES)
        // Long-running requests would hold a stop up for a minute.
        .flag("shutdown-delay-duration", "0s")
}

fn controller_manager(slot: &Slot, binaries: &Binaries, dir: &Path, options: &ClusterOptions<'_>) -> Component {
    let file = |name: &str| dir.join(name).display().to_string();
    let component = Component::new("kube-controller-manager", slot, binaries.program("kube-controller-manager"), dir)
        .flag("kubeconfig", file("controller-manager.conf"))
        .flag("bind-address", slot.number().loopback())
        .flag("leader-elect", false)
        .flag("controllers", "*,bootstrapsigner,tokencleaner")
        .flag("use-service-account-credentials", true)
        .flag("service-account-private-key-file", file("service-account.key"))
        .flag("root-ca-file", file("ca.crt"))
        .flag("cluster-signing-cert-file", file("ca.crt"))
        .flag("cluster-signing-key-file", file("ca.key"));
    match options.signing {
        Some(signing) => component.flag("cluster-signing-duration", format!("{}s", signing.as_secs())),
        None => component,
    }
}

fn scheduler(slot: &Slot, binaries: &Binaries, dir: &Path) -> Component {
    Component::new("kube-scheduler", slot, binaries.program("kube-scheduler"), dir)
        .flag("kubeconfig", dir.join("scheduler.conf").display())
        .flag("bind-address", slot.number().loopback())
        .flag("leader-elect", false)
}
