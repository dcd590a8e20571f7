//! The reference state as others write it down: Puppet, `CFEngine` and Ansible, as Debian has them.
//!
//! Each is run by a script that reads the lists of packages first when it is told to; what only looks needs no lists.
//! Some ask about everything of a kind at once, in a shell script, and go into details only when something is wrong.

mod ansible;
mod cfengine;
mod puppet;

use super::reference::{INPUTS, package_names, unit_names};

/// Files for one version: a script that runs each tool, and what it reads.
pub(super) fn inputs(version: &str) -> Vec<(String, String)> {
    let mut inputs = vec![
        ("packages".to_owned(), wanted_packages(version)),
        ("packages-differ.sh".to_owned(), packages_differ(version)),
        ("units-differ.sh".to_owned(), units_differ()),
    ];
    let dir = format!("{INPUTS}/{version}");
    let tools = [
        ("puppet", "puppet.pp", format!("puppet apply {dir}/puppet.pp"), puppet::manifest(version)),
        ("cfengine", "cfengine.cf", format!("cf-agent -K -f {dir}/cfengine.cf"), cfengine::plain(version)),
        (
            "cfengine-shell",
            "cfengine-shell.cf",
            format!("cf-agent -K -f {dir}/cfengine-shell.cf"),
            cfengine::shell(version),
        ),
        ("ansible", "ansible.yml", ansible::command(&dir, "ansible.yml"), ansible::plain(version)),
        ("ansible-tuned", "ansible-tuned.yml", ansible::command(&dir, "ansible-tuned.yml"), ansible::tuned(version)),
    ];
    for (name, file, command, content) in tools {
        inputs.push((format!("{name}.sh"), script(&command)));
        inputs.push((file.to_owned(), content));
    }
    inputs.push(("ansible.cfg".to_owned(), ansible::SETTINGS.to_owned()));
    inputs
}

fn script(command: &str) -> String {
    format!(
        "set -eu\n\
         export DEBIAN_FRONTEND=noninteractive\n\
         if [ \"${{1-}}\" = update ]; then\n\
         \x20   test -e /etc/apt/sources.list.d/software.sources || cp {INPUTS}/software.sources /etc/apt/sources.list.d/\n\
         \x20   apt-get -qq update\n\
         fi\n\
         exec {command}\n"
    )
}

fn wanted_packages(version: &str) -> String {
    package_names().iter().fold(String::new(), |text, name| text + &format!("{name} {version} installed\n"))
}

/// Succeeds where a package is not in its version.
fn packages_differ(version: &str) -> String {
    format!(
        "! dpkg-query -W -f '${{Package}} ${{Version}} ${{db:Status-Status}}\\n' {} 2>&1 | cmp -s {INPUTS}/{version}/packages\n",
        package_names().join(" ")
    )
}

/// Succeeds where a unit does not run, or is not enabled.
fn units_differ() -> String {
    let units = unit_names();
    let right = units.len();
    format!(
        "test \"$(systemctl show --property=ActiveState,UnitFileState {} | grep -cE '=(active|enabled)$')\" != {}\n",
        units.join(" "),
        right * 2
    )
}
