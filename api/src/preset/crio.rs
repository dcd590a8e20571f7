//! CRI-O.

use super::runtime::{CgroupDriver, PackageNames, Runtime};
use super::{Additions, HEADER, file, package, table, unit};
use crate::problem::{FieldPath, Problems};
use serde_json::{Map, Value, json};

pub(super) const ENDPOINT: &str = "unix:///run/crio/crio.sock";
pub(super) const UNIT: &str = "crio.service";

/// Behind `10-crio.conf`, which its package brings: of two files that say the same, CRI-O takes the later.
const FILE: &str = "/etc/crio/crio.conf.d/20-nodelet.conf";

pub(super) fn expand(runtime: &Runtime, additions: &mut Additions) {
    let names = PackageNames::usual("cri-o", None);
    additions.packages.extend(package(&runtime.package, names, runtime.version.as_ref(), runtime.hold, &[UNIT]));
    let content = HEADER.to_owned() + &table::as_toml(&runtime.configured(config(runtime)));
    additions.files.push(file(FILE, "0644", content, &[UNIT]));
    additions.units.push(unit(UNIT, None));
    additions.cri = Some(ENDPOINT.to_owned());
}

fn config(runtime: &Runtime) -> Value {
    let mut own = json!({"cgroup_manager": runtime.cgroup_driver.word()});
    if runtime.cgroup_driver == CgroupDriver::Cgroupfs {
        // The only place that CRI-O accepts without systemd.
        own["conmon_cgroup"] = json!("pod");
    }
    let mut crio = Map::from_iter([("runtime".to_owned(), own)]);
    if let Some(image) = &runtime.sandbox_image {
        crio.insert("image".to_owned(), json!({"pause_image": image}));
    }
    json!({"crio": crio})
}

pub(super) fn check(runtime: &Runtime, path: &FieldPath, problems: &mut Problems) {
    let driver = json!(runtime.cgroup_driver.word());
    runtime.check_driver(&["crio", "runtime", "cgroup_manager"], &driver, path, problems);
    for name in runtime.config.keys().filter(|name| *name != "crio") {
        let message = "CRI-O has all its fields below `crio`: write this as `crio.NAME`";
        problems.add(path.key(name), message);
    }
}
