//! The state that everything is measured on: 40 packages, 15 of them with a unit, 60 files and 5 kernel parameters;
//! and the shell scripts that are the floor.

use std::fmt::Write as _;

use packaging::package::Package;

use crate::dummy;

/// What nodes start with.
pub(super) const OLD: &str = "1.0";
/// What they are upgraded to.
pub(super) const NEW: &str = "2.0";
/// Both.
pub(super) const VERSIONS: [&str; 2] = [OLD, NEW];

/// How many packages there are.
pub(super) const PACKAGES: usize = 40;
/// How many of them bring a unit.
pub(super) const UNITS: usize = 15;
/// How many files there are.
pub(super) const FILES: usize = 60;
/// Where they are.
pub(super) const FILES_DIR: &str = "/etc/bench";

/// Kernel parameters that a network namespace has for itself, with values that are not the defaults.
pub(super) const SYSCTL: [(&str, &str); 5] = [
    ("net.core.somaxconn", "8192"),
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv4.tcp_fin_timeout", "30"),
    ("net.ipv4.tcp_keepalive_intvl", "30"),
    ("net.ipv4.tcp_keepalive_time", "600"),
];

/// Where a node finds the scripts, states and policies.
pub(super) const INPUTS: &str = "/srv/bench";

/// The names of the packages; the first [`UNITS`] of them bring a unit.
pub(super) fn package_names() -> Vec<String> {
    (1..=PACKAGES).map(|number| format!("app-{number:02}")).collect()
}

/// The names of the units.
pub(super) fn unit_names() -> Vec<String> {
    package_names().iter().take(UNITS).map(|name| format!("{name}.service")).collect()
}

/// All packages in a version.
pub(super) fn packages(version: &str) -> Vec<Package> {
    let names = package_names();
    let build = |(index, name): (usize, &String)| match index {
        _ if index < UNITS => dummy::service(name, version),
        _ => dummy::plain(name, version),
    };
    names.iter().enumerate().map(build).collect()
}

/// The name and the content of the files, about a kilobyte each.
pub(super) fn files(count: usize) -> Vec<(String, String)> {
    let content = |number: usize| {
        (0..25).fold(format!("# file {number}\n"), |text, line| {
            text + &format!("setting-{line:02} = \"value {number} {line}\"\n")
        })
    };
    (1..=count).map(|number| (format!("file-{number:04}.conf"), content(number))).collect()
}

/// The name and the content of a drop-in for each kernel parameter.
pub(super) fn sysctl_files() -> Vec<(String, String)> {
    let file = |(key, value): &(&str, &str)| (format!("90-bench-{key}.conf"), format!("{key} = {value}\n"));
    SYSCTL.iter().map(file).collect()
}

/// The reference state for nodelet, with so many files.
pub(super) fn state(version: &str, uri: &str, key: &str, file_count: usize) -> String {
    let mut text = format!(
        "[[repositories]]\nname = \"software\"\n[repositories.apt]\nuris = [\"{uri}\"]\nsuites = [\"stable\"]\n\
         components = [\"main\"]\nkey = {{ file = \"{key}\" }}\n"
    );
    for name in package_names() {
        let _ = writeln!(text, "\n[[packages]]\nname = \"{name}\"\nversion = \"{version}\"");
    }
    for (name, content) in files(file_count) {
        let _ = writeln!(text, "\n[[files]]\npath = \"{FILES_DIR}/{name}\"\ncontent = '''\n{content}'''");
    }
    for name in unit_names() {
        let _ = writeln!(text, "\n[[units]]\nname = \"{name}\"\nenabled = true\nrunning = true");
    }
    text += "\n[kernel.sysctl]\n";
    for (key, value) in SYSCTL {
        let _ = writeln!(text, "\"{key}\" = \"{value}\"");
    }
    text
}

/// What a person would type to get there.
pub(super) fn bare_change(version: &str) -> String {
    let packages: Vec<String> = package_names().iter().map(|name| format!("{name}={version}")).collect();
    format!(
        "set -eu\n\
         export DEBIAN_FRONTEND=noninteractive\n\
         cp {INPUTS}/software.sources /etc/apt/sources.list.d/\n\
         apt-get -qq update\n\
         apt-get -qq -y --no-install-recommends install {}\n\
         mkdir -p {FILES_DIR}\n\
         cp {INPUTS}/files/* {FILES_DIR}/\n\
         cp {INPUTS}/sysctl.d/* /etc/sysctl.d/\n\
         sysctl -q -p /etc/sysctl.d/90-bench-*.conf\n\
         systemctl enable --now {}\n",
        packages.join(" "),
        unit_names().join(" ")
    )
}

/// The least that looks at everything, with the sums of the files in a file: one command for each kind.
pub(super) fn bare_check(sums: &str) -> String {
    format!(
        "set -eu\n\
         dpkg-query -W -f '${{Package}} ${{Version}} ${{db:Status-Status}}\\n' {}\n\
         sha256sum --check --quiet {sums}\n\
         systemctl show --property=Id,ActiveState,UnitFileState {}\n",
        package_names().join(" "),
        unit_names().join(" ")
    )
}

/// Fails where a node is not as a version wants it. Not measured: it keeps a tool from being quick by doing nothing.
pub(super) fn proof(version: &str) -> String {
    let units = unit_names().join(" ");
    format!(
        "set -eu\n\
         found=$(dpkg-query -W -f '${{Package}} ${{Version}} ${{db:Status-Status}}\\n' {})\n\
         wrong=$(echo \"$found\" | sed '/ {version} installed$/d')\n\
         test -z \"$wrong\" || {{ echo \"$wrong\"; exit 1; }}\n\
         sha256sum --check --quiet {INPUTS}/file-sums\n\
         for i in {units}; do systemctl is-active $i; systemctl is-enabled $i; done >/run/units || {{ cat /run/units; exit 1; }}\n\
         while read -r key value; do\n\
           test \"$(sysctl -n \"$key\")\" = \"$value\" || {{ echo \"$key is $(sysctl -n \"$key\")\"; exit 1; }}\n\
         done <{INPUTS}/parameters\n",
        package_names().join(" ")
    )
}
