//! containerd.

use super::runtime::{CgroupDriver, PackageNames, Runtime};
use super::table::{self, Table};
use super::{Additions, HEADER, file, package, unit};
use crate::problem::{FieldPath, Problems};
use serde_json::{Value, json};

pub(super) const ENDPOINT: &str = "unix:///run/containerd/containerd.sock";
pub(super) const UNIT: &str = "containerd.service";

/// The version of the configuration's schema. containerd 1.6 and 1.7 know no newer one; 2.x reads it and takes its
/// fields to where they are now.
const SCHEMA: i64 = 2;
/// The plugin that serves the kubelet, as this schema names it.
const CRI: &str = "io.containerd.grpc.v1.cri";

pub(super) fn expand(runtime: &Runtime, additions: &mut Additions) {
    let names = PackageNames::usual("containerd", Some("containerd.io"));
    additions.packages.extend(package(&runtime.package, names, runtime.version.as_ref(), runtime.hold, &[UNIT]));
    let content = HEADER.to_owned() + &table::as_toml(&runtime.configured(config(runtime)));
    additions.files.push(file("/etc/containerd/config.toml", "0644", content, &[UNIT]));
    additions.units.push(unit(UNIT, None));
    additions.cri = Some(ENDPOINT.to_owned());
}

fn config(runtime: &Runtime) -> Value {
    let mut cri = json!({
        "cni": {"bin_dir": "/opt/cni/bin", "conf_dir": "/etc/cni/net.d"},
        "containerd": {"runtimes": {"runc": {
            // A runtime that the file names at all is taken as the file has it, so its type must be said too.
            "runtime_type": "io.containerd.runc.v2",
            "options": {"SystemdCgroup": systemd(runtime)},
        }}},
    });
    if let Some(image) = &runtime.sandbox_image {
        cri["sandbox_image"] = json!(image);
    }
    json!({"version": SCHEMA, "plugins": {CRI: cri}})
}

fn systemd(runtime: &Runtime) -> bool {
    runtime.cgroup_driver == CgroupDriver::Systemd
}

pub(super) fn check(runtime: &Runtime, path: &FieldPath, problems: &mut Problems) {
    if runtime.config.get("version").is_some_and(|version| version != SCHEMA) {
        let message = "the preset writes version 2, which containerd 1.6 to 2.x read: remove this and use the names of \
                       version 2, or write the whole /etc/containerd/config.toml in `files`";
        problems.add(path.key("version"), message);
    }
    let plugins = runtime.config.get("plugins").and_then(Value::as_object);
    for name in plugins.map(Table::keys).into_iter().flatten().filter(|name| name.starts_with("io.containerd.cri.v1."))
    {
        let message = format!("this is a name of version 3, and the preset writes version 2: write \"{CRI}\"");
        problems.add(path.key("plugins").key(name), message);
    }
    let way = ["plugins", CRI, "containerd", "runtimes", "runc", "options", "SystemdCgroup"];
    runtime.check_driver(&way, &json!(systemd(runtime)), path, problems);
}
