//! What a kubelet may not be told.

use super::{Bootstrap, CONFIG, Kubelet};
use crate::preset::runtime::{CgroupDriver, Runtime};
use crate::preset::table;
use crate::problem::{FieldPath, Problems};
use crate::state::exactly_one;
use crate::text::AbsolutePath;
use crate::variables;
use std::net::IpAddr;

/// Flags that the preset writes itself, and what to write in the state instead.
const OWN_FLAGS: [(&str, &str); 7] = [
    ("config", "write its fields in `config`"),
    ("kubeconfig", "the kubelet writes it itself once it has joined"),
    ("bootstrap-kubeconfig", "write `bootstrap`"),
    ("hostname-override", "the name comes from `node.name` in nodelet.toml"),
    ("node-ip", "write `nodeIP`"),
    ("container-runtime-endpoint", "write `config.containerRuntimeEndpoint`"),
    ("cgroup-driver", "write `runtime.cgroupDriver`"),
];

impl Kubelet {
    pub(in crate::preset) fn check(&self, runtime: Option<&Runtime>, path: &FieldPath, problems: &mut Problems) {
        let config = path.key("config");
        table::check(&self.config, &config, problems);
        for name in ["apiVersion", "kind"] {
            if self.config.contains_key(name) {
                let message = "the preset writes `apiVersion` and `kind` itself: remove this, and keep only the fields";
                problems.add(config.key(name), message);
            }
        }
        let driver = runtime.map_or(CgroupDriver::Systemd, |runtime| runtime.cgroup_driver).word();
        if runtime.is_some() && self.config.get("cgroupDriver").is_some_and(|given| given != driver) {
            let message = format!(
                "the runtime's is \"{driver}\", and the two must be the same: remove this, and write `runtime.cgroupDriver`"
            );
            problems.add(config.key("cgroupDriver"), message);
        }
        if let Some(endpoint) = self.config.get("containerRuntimeEndpoint")
            && !endpoint.as_str().is_some_and(|text| text.starts_with("unix:///") && !text.contains('$'))
        {
            let message = "this is not a socket: write it like `unix:///run/containerd/containerd.sock`";
            problems.add(config.key("containerRuntimeEndpoint"), message);
        }
        for (name, flag) in
            ["failSwapOn", "protectKernelDefaults", "enableServer"].map(|name| (name, self.config.get(name)))
        {
            if flag.is_some_and(|flag| !flag.is_boolean()) {
                problems.add(config.key(name), "this can't stand here: write true or false");
            }
        }
        self.check_health(&config, problems);
        self.check_standalone(path, problems);
        self.check_arguments(path, problems);
        if self.version.as_ref().is_some_and(|version| version.as_str().starts_with('v')) {
            problems.add(path.key("version"), "packages have versions without the `v`: write it like `1.35.8`");
        }
        if let Some(bootstrap) = &self.bootstrap {
            bootstrap.check(&path.key("bootstrap"), problems);
        }
    }

    fn check_health(&self, path: &FieldPath, problems: &mut Problems) {
        let port = self.config.get("healthzPort");
        if port.is_some_and(|port| port.as_u64().is_none_or(|port| port > 65535)) {
            problems.add(path.key("healthzPort"), "this is not a port: write a number up to 65535, or 0 for none");
        }
        let address = self.config.get("healthzBindAddress");
        if address.is_some_and(|address| address.as_str().is_none_or(|text| text.parse::<IpAddr>().is_err())) {
            problems.add(path.key("healthzBindAddress"), "this is not an address: write it like `127.0.0.1`");
        }
    }

    fn check_standalone(&self, path: &FieldPath, problems: &mut Problems) {
        if !self.standalone {
            return;
        }
        if self.bootstrap.is_some() {
            problems.add(path.key("bootstrap"), "a standalone kubelet joins nothing: remove this, or `standalone`");
        }
        for name in ["enableServer", "authentication", "authorization"] {
            if self.config.contains_key(name) {
                let message = format!(
                    "a standalone kubelet has nobody to ask who may do what, so the preset lets nothing listen: remove \
                     this, or write the whole {CONFIG} in `files`"
                );
                problems.add(path.key("config").key(name), message);
            }
        }
    }

    fn check_arguments(&self, path: &FieldPath, problems: &mut Problems) {
        if let Some(address) = &self.node_ip {
            let good = address.split(',').all(|one| one.parse::<IpAddr>().is_ok());
            if !good && address != "${node.ip}" {
                let message =
                    format!("`{address}` is not an address: write one, such as `192.0.2.7`, or `${{node.ip}}`");
                problems.add(path.key("nodeIP"), message);
            }
        }
        for (flag, value) in &self.extra_args {
            let at = path.key("extraArgs").key(flag);
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            if let Some((_, instead)) = OWN_FLAGS.iter().find(|(own, _)| own == flag) {
                problems.add(at.clone(), format!("the preset writes this flag itself: remove it; {instead}"));
            } else if flag.is_empty() || flag.starts_with('-') || !flag.chars().all(plain) {
                let bare: String = flag.trim_start_matches('-').to_lowercase().replace('_', "-");
                problems.add(
                    at.clone(),
                    format!("`{flag}` is not a flag: write it without dashes before it, such as `{bare}`"),
                );
            }
            if let Err(message) = variables::check_part(value) {
                problems.add(at, message);
            } else if value.contains(char::is_control) || value.replace("${node.", "").contains('$') {
                problems.add(at, "a flag can't hold a line break, or a `$` but in a variable: remove it");
            }
        }
    }
}

impl Bootstrap {
    fn check(&self, path: &FieldPath, problems: &mut Problems) {
        let given = [("caFile", self.ca_file.is_some()), ("caInline", self.ca_inline.is_some())];
        exactly_one(&given, path, problems);
        if self.ca_inline.as_ref().is_some_and(|text| !text.trim_start().starts_with("-----BEGIN CERTIFICATE-----")) {
            let message = "this is not a certificate: paste the text from `-----BEGIN CERTIFICATE-----` on";
            problems.add(path.key("caInline"), message);
        }
        let address = self.server.strip_prefix("https://").unwrap_or_default();
        if address.is_empty() || address.contains(char::is_whitespace) {
            let message = format!("`{}` is not an API server: write it like `https://192.0.2.1:6443`", self.server);
            problems.add(path.key("server"), message);
        }
        let texts = [
            ("server", Some(self.server.as_str())),
            ("caFile", self.ca_file.as_ref().map(AbsolutePath::as_str)),
            ("caInline", self.ca_inline.as_deref()),
            ("tokenFile", Some(self.token_file.as_str())),
        ];
        for (field, text) in texts {
            if let Some(Err(message)) = text.map(variables::check_part) {
                problems.add(path.key(field), message);
            }
        }
    }
}
