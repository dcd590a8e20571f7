//! The packages of kubectl's plugin, as dpkg, lintian, rpm and kubectl see them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use common::{build_of, lintian, program_of, run};
use packaging::product::{Format, Product};

const PLUGIN: Product = Product::KubectlNodes;

/// What both formats install.
const INSTALLED: [(&str, &str); 6] = [
    ("-rwxr-xr-x", "/usr/bin/kubectl-nodes"),
    ("-rwxr-xr-x", "/usr/bin/kubectl_complete-nodes"),
    ("-rw-r--r--", "/usr/share/man/man1/kubectl-nodes.1.gz"),
    ("-rw-r--r--", "/usr/share/bash-completion/completions/kubectl-nodes"),
    ("-rw-r--r--", "/usr/share/fish/vendor_completions.d/kubectl-nodes.fish"),
    ("-rw-r--r--", "/usr/share/doc/kubectl-nodes/copyright"),
];

fn has(listing: &str, (mode, path): (&str, &str)) {
    let line = listing.lines().find(|line| line.ends_with(path)).unwrap_or_else(|| panic!("no {path} in\n{listing}"));
    assert!(line.starts_with(mode), "{line}");
}

#[test]
fn the_debian_package() {
    let directory = tempfile::tempdir().unwrap();
    let package = build_of(PLUGIN, directory.path(), Format::Deb);
    let field = |name: &str| run(Command::new("dpkg-deb").arg("--field").arg(&package).arg(name));
    assert_eq!(field("Package"), "kubectl-nodes\n");
    let depends = field("Depends");
    assert!(depends.starts_with("libc6 (>= 2.") && !depends.contains("systemd"), "{depends}");
    let contents = run(Command::new("dpkg-deb").arg("--contents").arg(&package));
    for entry in INSTALLED {
        has(&contents, entry);
    }
    has(&contents, ("-rw-r--r--", "/usr/share/zsh/vendor-completions/_kubectl-nodes"));
    for other in ["./etc/", "systemd", "/nodelet", "man8"] {
        assert!(!contents.contains(other), "{other} is nodelet's\n{contents}");
    }
    let info = run(Command::new("dpkg-deb").arg("--info").arg(&package));
    assert!(!info.contains("postinst"), "it has nothing to run\n{info}");

    let tree = directory.path().join("tree");
    run(Command::new("dpkg-deb").arg("-x").arg(&package).arg(&tree));
    let (packed, program) = (fs::read(tree.join("usr/bin/kubectl-nodes")).unwrap(), program_of(PLUGIN));
    assert!(packed == fs::read(program).unwrap());
    #[cfg(feature = "generate")]
    completes(&tree);
    lintian(&package);
}

/// As kubectl asks: the words so far, and the one that is being typed. kubectl itself is a script that knows two sets.
#[cfg(feature = "generate")]
fn completes(tree: &Path) {
    let kubectl = tree.join("usr/bin/kubectl");
    fs::write(&kubectl, "#!/bin/sh\n[ \"$2\" = nodesets ] && printf 'nodeset.nodelet.dev/%s\\n' edge workers\n")
        .unwrap();
    fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:/usr/bin:/bin", tree.join("usr/bin").display());
    let hook = tree.join("usr/bin/kubectl_complete-nodes");
    for (words, expected) in [
        (&["st"] as &[&str], "status\n:4\n"),
        (&["completion", ""], "bash\nzsh\nfish\n:4\n"),
        (&["status", "--wat"], "--watch\n:4\n"),
        (&["pause", ""], "edge\nworkers\n:4\n"),
        (&["status", "w"], "workers\n:4\n"),
        (&["retry", "w"], "workers\n:4\n"),
        // A name, and no pattern.
        (&["pause", "w.*"], ":4\n"),
        (&["why", ""], ":4\n"),
    ] {
        let answer = run(Command::new(&hook).args(words).env("PATH", &path));
        assert_eq!(answer, expected, "{words:?}");
    }
}

#[test]
fn the_rpm() {
    let directory = tempfile::tempdir().unwrap();
    let package = build_of(PLUGIN, directory.path(), Format::Rpm);
    let query = |arguments: &[&str]| {
        run(Command::new("rpm").arg("--dbpath").arg(directory.path()).arg("-qp").args(arguments).arg(&package))
    };
    let wanted = format!("kubectl-nodes {} 1 Apache-2.0", env!("CARGO_PKG_VERSION"));
    assert_eq!(query(&["--qf", "%{name} %{version} %{release} %{license}"]), wanted);
    let files = query(&["-lv"]);
    for entry in INSTALLED {
        has(&files, entry);
    }
    has(&files, ("-rw-r--r--", "/usr/share/zsh/site-functions/_kubectl-nodes"));
    let requires = query(&["--requires"]);
    assert!(requires.contains("libc.so.6()(64bit)\n") && !requires.contains("systemd"), "{requires}");
    assert_eq!(query(&["--scripts"]), "", "it has nothing to run");
}
