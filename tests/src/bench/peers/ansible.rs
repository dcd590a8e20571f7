//! Playbooks for `ansible-playbook -c local`.

use std::fmt::Write as _;

use crate::bench::reference::{FILES, FILES_DIR, INPUTS, files, package_names, sysctl_files, unit_names};

/// No facts are gathered, and modules get to Python without a file in between.
pub(super) const SETTINGS: &str = "[defaults]\ngathering = explicit\nlocalhost_warning = false\n\
                                   interpreter_python = /usr/bin/python3\n[connection]\npipelining = true\n";

/// What runs a playbook on the node itself.
pub(super) fn command(dir: &str, playbook: &str) -> String {
    format!("env ANSIBLE_CONFIG={dir}/ansible.cfg ansible-playbook -i localhost, -c local {dir}/{playbook}")
}

const HEAD: &str = "- hosts: localhost\n  tasks:\n";

const HANDLERS: &str = "  handlers:\n    - name: parameters\n      ansible.builtin.command: sysctl -q --system\n";

/// A task for each kind, over all of the kind.
pub(super) fn plain(version: &str) -> String {
    let mut text = HEAD.to_owned();
    text +=
        "    - ansible.builtin.apt:\n        name: \"{{ item }}\"\n        install_recommends: false\n      loop:\n";
    for name in package_names() {
        let _ = writeln!(text, "        - {name}={version}");
    }
    let _ = writeln!(text, "    - ansible.builtin.file:\n        path: {FILES_DIR}\n        state: directory");
    let mut copy = |dir: &str, target: &str, names: Vec<(String, String)>, more: &str| {
        let _ = writeln!(
            text,
            "    - ansible.builtin.copy:\n        src: {INPUTS}/{dir}/{{{{ item }}}}\n        dest: {target}/{{{{ item }}}}\n{more}      loop:"
        );
        for (name, _) in names {
            let _ = writeln!(text, "        - {name}");
        }
    };
    copy("files", FILES_DIR, files(FILES), "");
    copy("sysctl.d", "/etc/sysctl.d", sysctl_files(), "      notify: parameters\n");
    text += "    - ansible.builtin.systemd:\n        name: \"{{ item }}\"\n        enabled: true\n        state: started\n      loop:\n";
    for name in unit_names() {
        let _ = writeln!(text, "        - {name}");
    }
    text + HANDLERS
}

/// One call of a module for each kind, which looks at all of the kind.
pub(super) fn tuned(version: &str) -> String {
    let mut text = HEAD.to_owned();
    text += "    - ansible.builtin.apt:\n        install_recommends: false\n        name:\n";
    for name in package_names() {
        let _ = writeln!(text, "          - {name}={version}");
    }
    let _ = write!(
        text,
        "    - ansible.builtin.copy:\n        src: {INPUTS}/files/\n        dest: {FILES_DIR}/\n        remote_src: true\n\
         \x20   - ansible.builtin.copy:\n        src: {INPUTS}/sysctl.d/\n        dest: /etc/sysctl.d/\n        remote_src: true\n\
         \x20     notify: parameters\n\
         \x20   - ansible.builtin.command: sh {INPUTS}/{version}/units-differ.sh\n      register: units\n\
         \x20     changed_when: units.rc == 0\n      failed_when: units.rc > 1\n\
         \x20   - ansible.builtin.command: systemctl enable --now {}\n      when: units.rc == 0\n",
        unit_names().join(" ")
    );
    text + HANDLERS
}
