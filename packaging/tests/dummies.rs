//! The odd packages that the test bed asks for.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::process::Command;

use common::run;
use packaging::deb;
use packaging::package::Package;

#[test]
fn a_failing_script_a_prompt_and_a_unit() {
    let directory = tempfile::tempdir().unwrap();
    let member = |package: &Package, name: &str| {
        let path = deb::write(package, directory.path()).unwrap();
        run(Command::new("dpkg-deb").arg("--info").arg(path).arg(name))
    };
    let broken = Package::new("broken", "1.0").post_install("exit 1");
    assert_eq!(member(&broken, "postinst"), "#!/bin/sh\nset -e\nexit 1\n");

    let asking = Package::new("asking", "1.0").prompt("What is it?");
    assert!(member(&asking, "templates").contains("Template: asking/answer\nType: string\n"));
    assert!(member(&asking, "config").contains("db_input critical asking/answer"));

    let serving = Package::new("serving", "1.0").service("serving.service", "[Service]\nExecStart=/bin/sleep 1d\n");
    assert!(member(&serving, "postinst").contains("deb-systemd-invoke \"$action\" 'serving.service'"));

    let long =
        Package::new("long", "1:2.0").revision("3").file(format!("/opt/{}/x", "deep/".repeat(30) + "er"), 0o600, "x");
    let path = deb::write(&long, directory.path()).unwrap();
    assert!(path.ends_with("long_2.0-3_all.deb"), "{}", path.display());
    let contents = run(Command::new("dpkg-deb").arg("--contents").arg(&path));
    assert!(contents.contains("deep/er/x\n"), "{contents}");
    run(Command::new("dpkg-deb").arg("-x").arg(&path).arg(directory.path().join("tree")));
}

#[test]
fn names_that_dpkg_would_refuse() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["x", "Upper", "under_score", "-dash"] {
        let error = deb::write(&Package::new(name, "1.0"), directory.path()).unwrap_err();
        assert!(format!("{error:#}").contains("Debian package name"), "{error:#}");
    }
}
