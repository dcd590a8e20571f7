//! A package that brings a systemd unit, with the scripts that each distribution's own tools would generate for it.

use crate::package::Package;

impl Package {
    /// Adds a unit that is enabled and started on installation, restarted on upgrade, and stopped on removal.
    #[must_use]
    pub fn service(mut self, unit: &str, content: &str) -> Self {
        self = self.file(format!("/usr/lib/systemd/system/{unit}"), 0o644, content);
        let deb = &mut self.deb.scripts;
        deb.post_install = Some(script(POSTINST, unit));
        deb.pre_remove = Some(script(PRERM, unit));
        deb.post_remove = Some(script(POSTRM, unit));
        let rpm = &mut self.rpm.scripts;
        rpm.post_install = Some(script(POST, unit));
        rpm.pre_remove = Some(script(PREUN, unit));
        rpm.post_remove = Some(script(POSTUN, unit));
        self
    }
}

fn script(template: &str, unit: &str) -> String {
    template.replace("@UNIT@", unit)
}

/// What `dh_installsystemd` does after installation: the enablement is remembered, so that an administrator's
/// `systemctl disable` survives upgrades; starting is left to the policy of `policy-rc.d`.
const POSTINST: &str = r#"#!/bin/sh
set -e
case "$1" in
configure | abort-upgrade | abort-deconfigure | abort-remove)
    deb-systemd-helper unmask '@UNIT@' >/dev/null || true
    if deb-systemd-helper --quiet was-enabled '@UNIT@'; then
        deb-systemd-helper enable '@UNIT@' >/dev/null || true
    else
        deb-systemd-helper update-state '@UNIT@' >/dev/null || true
    fi
    if [ -d /run/systemd/system ]; then
        systemctl --system daemon-reload >/dev/null || true
        if [ -n "$2" ]; then action=restart; else action=start; fi
        deb-systemd-invoke "$action" '@UNIT@' >/dev/null || true
    fi
    ;;
esac
"#;

const PRERM: &str = r#"#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop '@UNIT@' >/dev/null || true
fi
"#;

const POSTRM: &str = r#"#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
fi
if [ "$1" = purge ] && command -v deb-systemd-helper >/dev/null; then
    deb-systemd-helper purge '@UNIT@' >/dev/null || true
fi
"#;

/// `$1` is the number of versions that will be installed afterwards.
const POST: &str = r#"if [ "$1" -eq 1 ]; then
    systemctl enable '@UNIT@' >/dev/null 2>&1 || :
    if [ -d /run/systemd/system ]; then
        systemctl daemon-reload >/dev/null 2>&1 || :
        systemctl start '@UNIT@' >/dev/null 2>&1 || :
    fi
fi
"#;

const PREUN: &str = r#"if [ "$1" -eq 0 ]; then
    if [ -d /run/systemd/system ]; then
        systemctl stop '@UNIT@' >/dev/null 2>&1 || :
    fi
    systemctl disable '@UNIT@' >/dev/null 2>&1 || :
fi
"#;

const POSTUN: &str = r#"if [ -d /run/systemd/system ]; then
    systemctl daemon-reload >/dev/null 2>&1 || :
    if [ "$1" -ge 1 ]; then
        systemctl try-restart '@UNIT@' >/dev/null 2>&1 || :
    fi
fi
"#;
