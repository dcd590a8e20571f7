//! nodelet's Debian package, as dpkg and lintian see it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::process::Command;

use common::{attempt, build, checkout, lintian, program, run};
use packaging::product::Format;

#[test]
fn control_and_contents() {
    let directory = tempfile::tempdir().unwrap();
    let package = build(directory.path(), Format::Deb);
    let info = run(Command::new("dpkg-deb").arg("--info").arg(&package));
    for part in [
        " Package: nodelet\n",
        " Depends: dbus, systemd (>= 247), libc6 (>= 2.",
        " Section: admin\n",
        "  .\n",
        "* postinst ",
        "* prerm ",
        "* postrm ",
    ] {
        let squeezed = info.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(info.contains(part) || squeezed.contains(part), "{part:?} is not in\n{info}");
    }
    let conffiles = run(Command::new("dpkg-deb").arg("--info").arg(&package).arg("conffiles"));
    assert_eq!(conffiles, "/etc/nodelet/nodelet.toml\n");

    let contents = run(Command::new("dpkg-deb").arg("--contents").arg(&package));
    for (mode, path) in [
        ("-rwxr-xr-x", "./usr/bin/nodelet"),
        ("-rw-------", "./etc/nodelet/nodelet.toml"),
        ("drwxr-xr-x", "./etc/nodelet/keys/"),
        ("drwxr-xr-x", "./etc/nodelet/nodelet.toml.d/"),
        ("drwxr-xr-x", "./usr/lib/nodelet/nodelet.toml.d/"),
        ("-rw-r--r--", "./usr/lib/systemd/system/nodelet.service"),
        ("-rw-r--r--", "./usr/share/man/man8/nodelet.8.gz"),
        ("-rw-r--r--", "./usr/share/bash-completion/completions/nodelet"),
        ("-rw-r--r--", "./usr/share/zsh/vendor-completions/_nodelet"),
        ("-rw-r--r--", "./usr/share/fish/vendor_completions.d/nodelet.fish"),
        ("-rw-r--r--", "./usr/share/doc/nodelet/copyright"),
        ("-rw-r--r--", "./usr/share/doc/nodelet/changelog.gz"),
        ("-rw-r--r--", "./usr/share/doc/nodelet/examples/state.toml"),
    ] {
        let line = contents.lines().find(|line| line.ends_with(&format!(" {path}")));
        let line = line.unwrap_or_else(|| panic!("{path} is not in\n{contents}"));
        assert!(line.starts_with(mode) && line.contains(" root/root "), "{line}");
    }
    assert!(!contents.contains("./var/"), "state directories are the unit's to make\n{contents}");
    assert!(!contents.contains("./etc/nodelet/state.toml"), "the state is the administrator's\n{contents}");

    let tree = directory.path().join("tree");
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tree));
    assert_eq!(fs::read(tree.join("usr/bin/nodelet")).unwrap(), fs::read(program()).unwrap());
    let control = directory.path().join("control");
    run(Command::new("dpkg-deb").arg("-e").arg(&package).arg(&control));
    run(Command::new("md5sum").arg("--check").arg("--quiet").arg(control.join("md5sums")).current_dir(&tree));
}

#[test]
fn lintian_finds_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let package = build(directory.path(), Format::Deb);
    lintian(&package);
}

#[test]
fn two_builds_are_the_same_bytes() {
    let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    for format in [Format::Deb, Format::Rpm] {
        let a = build(first.path(), format);
        // Other inodes, other times, another place.
        let b = build(second.path(), format);
        assert!(fs::read(&a).unwrap() == fs::read(&b).unwrap(), "{} and {} differ", a.display(), b.display());
    }
}

#[test]
fn a_changelog_of_another_version_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let sources = checkout(directory.path());
    let changelog = sources.root().join("debian/changelog");
    let text = fs::read_to_string(&changelog).unwrap();
    fs::write(&changelog, text.replacen(env!("CARGO_PKG_VERSION"), "99.0.0", 1)).unwrap();
    let tool = |extra: &[&str]| {
        attempt(
            Command::new(env!("CARGO_BIN_EXE_packaging"))
                .args(["build", "--formats", "deb", "--root"])
                .arg(sources.root())
                .arg("--binary")
                .arg(program())
                .arg("--out")
                .arg(directory.path().join("out"))
                .args(extra)
                .env("SOURCE_DATE_EPOCH", "1700000000"),
        )
    };
    let refused = tool(&[]);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && message.contains("99.0.0") && message.contains("--version"), "{message}");

    // Another version by intent, a pre-release at that, at another time.
    let built = tool(&["--version", "0.2.0-rc.1"]);
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let path = String::from_utf8(built.stdout).unwrap();
    assert!(path.trim_end().contains("nodelet_0.2.0~rc.1_"), "{path}");
    let contents = run(Command::new("dpkg-deb").arg("--contents").arg(path.trim_end()).env("TZ", "UTC"));
    assert!(contents.lines().all(|line| line.contains("2023-11-14 22:13")), "{contents}");
}
