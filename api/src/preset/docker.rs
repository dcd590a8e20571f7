//! Docker Engine, and cri-dockerd where a kubelet needs it.

use super::runtime::{PackageNames, Runtime};
use super::{Additions, file, package, table, unit};
use crate::problem::{FieldPath, Problems};
use serde_json::{Value, json};

/// cri-dockerd's.
pub(super) const ENDPOINT: &str = "unix:///run/cri-dockerd.sock";
pub(super) const UNIT: &str = "docker.service";
pub(super) const CRI_UNIT: &str = "cri-docker.service";
const CRI_SOCKET: &str = "cri-docker.socket";

/// docker restarts when its configuration changes, and does not reload: a reload takes up live-restore, mirrors and
/// labels, but neither `exec-opts` nor `log-opts`, and says nothing of the rest. Its containers go on running, also
/// where it was started without live-restore: before it stops, it reads its configuration again.
const STOP: &str = "\
# Written by nodelet.
# Before docker stops it takes up live-restore from daemon.json, in case it was started without: containers go on.
[Service]
ExecStop=-/bin/sh -c 'kill -HUP $$MAINPID && sleep 1'
";

pub(super) fn expand(runtime: &Runtime, with_kubelet: bool, additions: &mut Additions) {
    let names = PackageNames::usual("docker.io", Some("docker-ce"));
    additions.packages.extend(package(&runtime.package, names, runtime.version.as_ref(), runtime.hold, &[UNIT]));
    let content = table::as_json(&runtime.configured(config(runtime)));
    additions.files.push(file("/etc/docker/daemon.json", "0644", content, &[UNIT]));
    additions.units.push(unit(UNIT, Some(STOP.to_owned())));
    if with_kubelet {
        let names = PackageNames::usual("cri-dockerd", None);
        additions.packages.extend(package(&PackageNames::default(), names, None, runtime.hold, &[CRI_UNIT]));
        additions.units.push(unit(CRI_SOCKET, None));
        additions.units.push(unit(CRI_UNIT, runtime.sandbox_image.as_deref().map(cri_dropin)));
        additions.cri = Some(ENDPOINT.to_owned());
    }
}

fn config(runtime: &Runtime) -> Value {
    json!({
        "live-restore": true,
        "exec-opts": [driver(runtime)],
        "log-driver": "json-file",
        "log-opts": {"max-size": "100m", "max-file": "3"},
    })
}

fn driver(runtime: &Runtime) -> String {
    format!("{DRIVER}{}", runtime.cgroup_driver.word())
}

const DRIVER: &str = "native.cgroupdriver=";

/// The sandboxes' image is a flag of cri-dockerd, which has no configuration file.
fn cri_dropin(image: &str) -> String {
    format!(
        "# Written by nodelet.\n[Service]\nExecStart=\n\
         ExecStart=/usr/bin/cri-dockerd --container-runtime-endpoint fd:// --pod-infra-container-image={image}\n"
    )
}

pub(super) fn check(runtime: &Runtime, with_kubelet: bool, path: &FieldPath, problems: &mut Problems) {
    let config = path.key("config");
    if runtime.config.get("live-restore").is_some_and(|value| *value != Value::Bool(true)) {
        let message = "without live-restore all containers would stop whenever docker is upgraded or restarted: \
                       remove this";
        problems.add(config.key("live-restore"), message);
    }
    if let Some(options) = runtime.config.get("exec-opts") {
        let given: Vec<&str> = options.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let wanted = driver(runtime);
        let drivers: Vec<&&str> = given.iter().filter(|option| option.starts_with(DRIVER)).collect();
        if drivers.iter().any(|option| **option != wanted) || drivers.is_empty() {
            let message =
                format!("this list takes the place of the preset's: add \"{wanted}\" to it, or change `cgroupDriver`");
            problems.add(config.key("exec-opts"), message);
        }
    }
    if runtime.sandbox_image.is_some() && !with_kubelet {
        let message = "docker alone has no sandboxes: remove this, or add the `kubelet` table";
        problems.add(path.key("sandboxImage"), message);
    }
}
