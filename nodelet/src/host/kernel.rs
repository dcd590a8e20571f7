//! Kernel modules, kernel parameters and swap, through `/proc`.

use super::command::{CommandError, Program};
use crate::root::Root;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// The modules that are loaded or built in, with `_` for `-`.
pub fn modules(root: &Root) -> BTreeSet<String> {
    let loaded = std::fs::read_to_string(root.join("/proc/modules")).unwrap_or_default();
    let loaded = loaded.lines().filter_map(|line| line.split(' ').next()).map(normal);
    // Built-in modules with parameters, and all loaded ones, have a directory here.
    let built_in = std::fs::read_dir(root.join("/sys/module")).into_iter().flatten().flatten();
    let built_in = built_in.map(|entry| normal(&entry.file_name().to_string_lossy()));
    loaded.chain(built_in).collect()
}

/// Whether a module's work is there although it isn't listed: filesystems that are built in are not.
pub fn provides(root: &Root, module: &str) -> bool {
    let filesystems = std::fs::read_to_string(root.join("/proc/filesystems")).unwrap_or_default();
    let built_in = filesystems.lines().any(|line| line.split_whitespace().last() == Some(module));
    built_in || (module == "br_netfilter" && root.join("/proc/sys/net/bridge").exists())
}

/// A module's name as the kernel writes it.
pub fn normal(module: &str) -> String {
    module.replace('-', "_")
}

/// Loads a module.
pub async fn load(module: &str) -> Result<(), CommandError> {
    Program::new("modprobe").arg("--").arg(module).run().await.map(|_| ())
}

/// The value of a kernel parameter, with single spaces; `None` when there is no such parameter.
pub fn parameter(root: &Root, key: &str) -> Option<String> {
    let text = std::fs::read_to_string(parameter_file(root, key)).ok()?;
    Some(text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Sets a kernel parameter.
pub fn set_parameter(root: &Root, key: &str, value: &str) -> std::io::Result<()> {
    std::fs::write(parameter_file(root, key), value)
}

fn parameter_file(root: &Root, key: &str) -> PathBuf {
    root.join(format!("/proc/sys/{}", key.replace('.', "/")))
}

/// Whether any swap is in use.
pub fn swap_in_use(root: &Root) -> bool {
    std::fs::read_to_string(root.join("/proc/swaps")).is_ok_and(|text| text.lines().count() > 1)
}

/// Turns all swap off.
pub async fn swap_off() -> Result<(), CommandError> {
    Program::new("swapoff").arg("--all").run().await.map(|_| ())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn proc_is_read_as_it_is() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        std::fs::create_dir_all(root.join("/proc/sys/net/ipv4")).unwrap();
        std::fs::write(root.join("/proc/sys/net/ipv4/ip_local_port_range"), "32768\t60999\n").unwrap();
        std::fs::write(root.join("/proc/modules"), "br_netfilter 32768 0 - Live 0x0\n").unwrap();
        std::fs::write(root.join("/proc/swaps"), "Filename Type Size Used Priority\n").unwrap();
        std::fs::write(root.join("/proc/filesystems"), "nodev\toverlay\n\text4\n").unwrap();
        assert_eq!(parameter(&root, "net.ipv4.ip_local_port_range").as_deref(), Some("32768 60999"));
        assert_eq!(parameter(&root, "net.ipv4.nothing"), None);
        assert!(modules(&root).contains(&normal("br-netfilter")));
        assert!(provides(&root, "overlay") && !provides(&root, "xfs"));
        assert!(!swap_in_use(&root));
    }
}
