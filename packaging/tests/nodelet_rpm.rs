//! nodelet's RPM, as rpm sees it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::process::Command;

use common::{build, run};
use packaging::product::Format;

#[test]
fn header_and_contents() {
    let directory = tempfile::tempdir().unwrap();
    let package = build(directory.path(), Format::Rpm);
    let query = |arguments: &[&str]| {
        run(Command::new("rpm").arg("--dbpath").arg(directory.path()).arg("-qp").args(arguments).arg(&package))
    };
    assert_eq!(
        query(&["--qf", "%{name} %{version} %{release} %{license}"]),
        concat!("nodelet ", env!("CARGO_PKG_VERSION"), " 1 Apache-2.0")
    );
    assert_eq!(query(&["--configfiles"]), "/etc/nodelet/nodelet.toml\n");
    let flags = query(&["--qf", "[%{filenames} %{fileflags:fflags}\n]"]);
    assert!(flags.contains("/etc/nodelet/nodelet.toml cn\n"), "config(noreplace) is missing:\n{flags}");

    let files = query(&["-lv"]);
    for (mode, path) in [
        ("-rwxr-xr-x", "/usr/bin/nodelet"),
        ("-rw-------", "/etc/nodelet/nodelet.toml"),
        ("drwxr-xr-x", "/etc/nodelet"),
        ("-rw-r--r--", "/usr/lib/systemd/system/nodelet.service"),
        ("-rw-r--r--", "/usr/share/zsh/site-functions/_nodelet"),
        ("-rw-r--r--", "/usr/share/man/man8/nodelet.8.gz"),
    ] {
        let line = files.lines().find(|line| line.ends_with(&format!(" {path}")));
        let line = line.unwrap_or_else(|| panic!("{path} is not in\n{files}"));
        assert!(line.starts_with(mode), "{line}");
    }
    // A directory that others share must never be removed with this package.
    for shared in ["/usr", "/usr/bin", "/etc", "/usr/share/man/man8", "/usr/lib/systemd/system"] {
        assert!(!files.lines().any(|line| line.ends_with(&format!(" {shared}"))), "{shared} is listed\n{files}");
    }

    let requires = query(&["--requires"]);
    for part in ["systemd >= 249\n", "dbus\n", "/bin/sh\n", "libc.so.6()(64bit)\n", "libc.so.6(GLIBC_2."] {
        assert!(requires.contains(part), "{part:?} is not in\n{requires}");
    }
    let names = packaging::rpm::requires(&package).unwrap();
    assert!(names.contains(&"/bin/sh".to_owned()) && names.contains(&"systemd".to_owned()), "{names:?}");
    assert!(!names.iter().any(|name| name.contains("rpmlib") || name.contains("config")), "{names:?}");
    let scripts = query(&["--scripts"]);
    for part in ["postinstall scriptlet (using /bin/sh)", "preuninstall", "postuninstall", "try-restart"] {
        assert!(scripts.contains(part), "{part:?} is not in\n{scripts}");
    }
    let digests = run(Command::new("rpm").arg("--dbpath").arg(directory.path()).arg("-Kv").arg(&package));
    assert!(digests.contains("Payload SHA256 digest: OK"), "{digests}");
}
