//! Small packages with known behaviour, as `.deb` and `.rpm` alike.
//!
//! [`Package`] is the packaging tool's own description (files, configuration files, services, scripts, a prompt,
//! relations); what is here are the shapes that tests ask for again and again.

pub use packaging::package::Package;

/// A package that installs `/usr/share/NAME/version` with its version inside.
pub fn plain(name: &str, version: &str) -> Package {
    Package::new(name, version).file(format!("/usr/share/{name}/version"), 0o644, format!("{version}\n"))
}

/// A package with a service `NAME.service`. The service runs a program of the package that notes each start, with
/// its version, in `/var/log/NAME.starts`; so a test can tell whether, and with which version, it was restarted.
pub fn service(name: &str, version: &str) -> Package {
    // Not a shell that traps SIGTERM and waits for a child: dash misses the signal when both get it at once, one time
    // in three, and systemd then waits 90 s.
    let program = format!("#!/bin/sh\necho '{version}' >> /var/log/{name}.starts\nexec sleep infinity\n");
    let unit = format!(
        "[Unit]\nDescription=Dummy service {name} {version}\n\n\
         [Service]\nExecStart=/usr/libexec/{name}\n\n[Install]\nWantedBy=multi-user.target\n"
    );
    plain(name, version).file(format!("/usr/libexec/{name}"), 0o755, program).service(&format!("{name}.service"), &unit)
}

/// A package whose installation fails in the script that runs after unpacking.
pub fn failing(name: &str, version: &str) -> Package {
    plain(name, version).post_install("echo 'this postinst fails on purpose' >&2; exit 1")
}

/// A package with a configuration file `/etc/NAME.conf` that differs from version to version.
pub fn with_config(name: &str, version: &str) -> Package {
    plain(name, version).config_file(format!("/etc/{name}.conf"), 0o644, format!("default = \"{version}\"\n"))
}

/// A package that asks a debconf question at critical priority (`.deb` only; RPMs can't ask).
pub fn prompting(name: &str, version: &str) -> Package {
    plain(name, version).prompt("What shall it be?")
}
