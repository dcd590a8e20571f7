//! A manifest for `puppet apply`.

use std::fmt::Write as _;

use crate::bench::reference::{FILES, FILES_DIR, INPUTS, files, package_names, sysctl_files, unit_names};

/// One resource for everything, in the order of the floor: packages, files, units.
pub(super) fn manifest(version: &str) -> String {
    let mut text = String::new();
    for name in package_names() {
        let _ = writeln!(text, "package {{ '{name}': ensure => '{version}' }}");
    }
    let _ = writeln!(text, "file {{ '{FILES_DIR}': ensure => directory }}");
    for (name, _) in files(FILES) {
        let _ = writeln!(text, "file {{ '{FILES_DIR}/{name}': ensure => file, source => '{INPUTS}/files/{name}' }}");
    }
    for (name, _) in sysctl_files() {
        let path = format!("/etc/sysctl.d/{name}");
        let _ = writeln!(
            text,
            "file {{ '{path}': ensure => file, source => '{INPUTS}/sysctl.d/{name}' }}\n\
             ~> exec {{ '/sbin/sysctl -q -p {path}': refreshonly => true }}"
        );
    }
    for (package, unit) in package_names().iter().zip(unit_names()) {
        let _ = writeln!(
            text,
            "service {{ '{unit}': ensure => running, enable => true, require => Package['{package}'] }}"
        );
    }
    text
}
