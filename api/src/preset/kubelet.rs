//! The kubelet.

mod check;

use super::runtime::{CgroupDriver, PackageNames, Runtime, yes};
use super::table::{self, Table};
use super::{Additions, HEADER, file, package, unit};
use crate::state::{Kernel, Swap, Unit, is_default};
use crate::text::{AbsolutePath, PackageVersion, SysctlKey};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The kubelet: its package, its configuration, how it joins, its unit, and the kernel settings that pods need.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Kubelet {
    /// Its version: `1.35.8`, or the version of its package, exact or a glob; it may go down as well. Without it, any
    /// installed version will do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<PackageVersion>,
    /// The names of its package, where they are not `kubelet`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub package: PackageNames,
    /// Nothing but nodelet may change its version. `true` unless said otherwise.
    #[serde(default = "yes", skip_serializing_if = "Clone::clone")]
    pub hold: bool,
    /// Fields of `KubeletConfiguration`, laid over the preset's.
    #[serde(default, skip_serializing_if = "Table::is_empty")]
    #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
    pub config: Table,
    /// Flags that have no field in the configuration, without dashes: `node-labels = "disk=ssd"`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub extra_args: BTreeMap<String, String>,
    /// The address that the node is known by: an address, two with a comma between them, or `${node.ip}`. Without it
    /// the kubelet chooses.
    #[serde(default, rename = "nodeIP", skip_serializing_if = "Option::is_none")]
    pub node_ip: Option<String>,
    /// How it gets its first credential. Without it, something else (`kubeadm join`) puts a kubeconfig where the kubelet
    /// looks, `/etc/kubernetes/kubelet.conf` or `bootstrap-kubelet.conf`, and starts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<Bootstrap>,
    /// It runs without an API server, and only the pods of `/etc/kubernetes/manifests`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub standalone: bool,
}

/// How a kubelet gets its first credential.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bootstrap {
    /// The address of the API server.
    pub server: String,
    /// The certificate that the API server's is signed with: a file on the node. Either this or `caInline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_file: Option<AbsolutePath>,
    /// The same as text; becomes `/etc/kubernetes/pki/ca.crt`. Either this or `caFile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_inline: Option<String>,
    /// A file on the node with the bootstrap token alone. The kubelet reads it; no state, plan or log ever holds it.
    pub token_file: AbsolutePath,
}

const UNIT: &str = "kubelet.service";
const CONFIG: &str = "/var/lib/kubelet/config.yaml";
const KUBECONFIG: &str = "/etc/kubernetes/kubelet.conf";
const BOOTSTRAP: &str = "/etc/kubernetes/bootstrap-kubelet.conf";
const AUTHORITY: &str = "/etc/kubernetes/pki/ca.crt";

/// Bridged pods' packets pass the host's rules, and the host passes packets on.
const SYSCTL: [(&str, &str); 3] = [
    ("net.bridge.bridge-nf-call-ip6tables", "1"),
    ("net.bridge.bridge-nf-call-iptables", "1"),
    ("net.ipv4.ip_forward", "1"),
];

/// What a kubelet with `protectKernelDefaults` refuses to run without, and refuses to set.
const PROTECTED_SYSCTL: [(&str, &str); 6] = [
    ("kernel.keys.root_maxbytes", "25000000"),
    ("kernel.keys.root_maxkeys", "1000000"),
    ("kernel.panic", "10"),
    ("kernel.panic_on_oops", "1"),
    ("vm.overcommit_memory", "1"),
    ("vm.panic_on_oom", "0"),
];

impl Kubelet {
    pub(super) fn expand(&self, runtime: Option<&Runtime>, additions: &mut Additions) {
        let names = PackageNames::usual("kubelet", None);
        additions.packages.extend(package(&self.package, names, self.package_version().as_ref(), self.hold, &[UNIT]));
        // JSON is YAML, and its writer can't be misread.
        let config = table::merged(self.defaults(runtime), Value::Object(self.config.clone()));
        additions.files.push(file(CONFIG, "0644", table::as_json(&config), &[UNIT]));
        if let Some(bootstrap) = &self.bootstrap {
            if let Some(certificate) = &bootstrap.ca_inline {
                additions.files.push(file(AUTHORITY, "0644", certificate.trim().to_owned() + "\n", &[UNIT]));
            }
            additions.files.push(file(BOOTSTRAP, "0600", table::as_json(&bootstrap.kubeconfig()), &[UNIT]));
        }
        // Without a way to join it only fails and starts again, until something else gives it a credential and starts it.
        let running = (self.bootstrap.is_some() || self.standalone).then_some(true);
        additions.units.push(Unit { running, ..unit(UNIT, Some(self.dropin(runtime))) });
        self.expand_kernel(&mut additions.kernel);
        if let Some(endpoint) = self.config.get("containerRuntimeEndpoint").and_then(Value::as_str) {
            additions.cri = Some(endpoint.to_owned());
        }
        additions.kubelet = self.health();
    }

    /// `1.35.8` is what people call it; its packages are called `1.35.8-1.1` and the like.
    fn package_version(&self) -> Option<PackageVersion> {
        let version = self.version.as_ref()?;
        if version.as_str().chars().all(|c| c.is_ascii_digit() || c == '.') {
            return PackageVersion::try_from(format!("{version}-*")).ok();
        }
        Some(version.clone())
    }

    fn defaults(&self, runtime: Option<&Runtime>) -> Value {
        let driver = runtime.map_or(CgroupDriver::Systemd, |runtime| runtime.cgroup_driver);
        let mut config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "cgroupDriver": driver.word(),
            "clusterDomain": "cluster.local",
            "staticPodPath": "/etc/kubernetes/manifests",
        });
        if let Some(runtime) = runtime {
            config["containerRuntimeEndpoint"] = json!(runtime.kind.endpoint());
        }
        let access = if self.standalone {
            // There is nobody to ask who may do what, so nothing listens. The kubelet still wants to be told a way.
            json!({
                "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
                "authorization": {"mode": "AlwaysAllow"},
                "enableServer": false,
            })
        } else {
            let authority = self.bootstrap.as_ref().and_then(|bootstrap| bootstrap.ca_file.as_ref());
            json!({
                "authentication": {
                    "anonymous": {"enabled": false},
                    "webhook": {"enabled": true},
                    "x509": {"clientCAFile": authority.map_or(AUTHORITY, AbsolutePath::as_str)},
                },
                "authorization": {"mode": "Webhook"},
                "rotateCertificates": true,
            })
        };
        table::merged(config, access)
    }

    fn dropin(&self, runtime: Option<&Runtime>) -> String {
        let mut text = HEADER.to_owned();
        if let Some(runtime) = runtime {
            let units = runtime.kind.units().join(" ");
            let _ = write!(text, "[Unit]\nWants={units}\nAfter={units}\n\n");
        }
        let mut arguments = vec![argument("config", CONFIG), argument("hostname-override", "${node.name}")];
        if !self.standalone {
            arguments.push(argument("bootstrap-kubeconfig", BOOTSTRAP));
            arguments.push(argument("kubeconfig", KUBECONFIG));
        }
        arguments.extend(self.node_ip.as_ref().map(|address| argument("node-ip", address)));
        arguments.extend(self.extra_args.iter().map(|(flag, value)| argument(flag, value)));
        // The empty one takes back the package's own, and kubeadm's.
        text += "[Service]\nExecStart=\nExecStart=/usr/bin/kubelet";
        for argument in arguments {
            let _ = write!(text, " \\\n  {argument}");
        }
        text + "\n"
    }

    fn expand_kernel(&self, kernel: &mut Kernel) {
        kernel.modules = super::modules(&["overlay", "br_netfilter"]);
        let protects = self.config.get("protectKernelDefaults") == Some(&Value::Bool(true));
        let protected = if protects { &PROTECTED_SYSCTL[..] } else { &[] };
        for (key, value) in SYSCTL.iter().chain(protected) {
            kernel.sysctl.insert(SysctlKey::constant(key), (*value).to_owned());
        }
        if self.config.get("failSwapOn") != Some(&Value::Bool(false)) {
            kernel.swap = Swap::Off;
        }
    }

    /// Where it says that it is well, unless the configuration turns that off.
    fn health(&self) -> Option<String> {
        let port = self.config.get("healthzPort").map_or(Some(10248), Value::as_u64).filter(|port| *port != 0)?;
        let address = match self.config.get("healthzBindAddress").and_then(Value::as_str) {
            None | Some("0.0.0.0" | "::" | "") => "127.0.0.1".to_owned(),
            Some(address) if address.contains(':') => format!("[{address}]"),
            Some(address) => address.to_owned(),
        };
        Some(format!("http://{address}:{port}/healthz"))
    }
}

/// A flag as a unit file has it. systemd reads quotes, backslashes and `%` in its own way.
fn argument(flag: &str, value: &str) -> String {
    let text = format!("--{flag}={value}");
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=./:,@+${}".contains(c);
    if text.chars().all(plain) {
        return text;
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%"))
}

impl Bootstrap {
    /// The token stays in its file: the kubelet's client reads it from there.
    fn kubeconfig(&self) -> Value {
        let authority = self.ca_file.as_ref().map_or(AUTHORITY, AbsolutePath::as_str);
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {"name": "cluster", "cluster": {"server": self.server, "certificate-authority": authority}},
            ],
            "users": [{"name": "bootstrap", "user": {"tokenFile": self.token_file}}],
            "contexts": [{"name": "bootstrap", "context": {"cluster": "cluster", "user": "bootstrap"}}],
            "current-context": "bootstrap",
        })
    }
}
