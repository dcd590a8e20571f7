//! Packages around real programs. The distribution's own tools pack them, in a second: the packaging crate would need
//! half a minute for programs of this size in a debug build.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use packaging::arch::Arch;
use packaging::deb;
use packaging::package::Package;

use crate::command::run;
use crate::repackage;

/// Upstream's revision of its packages.
const REVISION: &str = "1.1";
/// Upstream's unit runs the kubelet without a flag. Nothing in upstream's package starts or restarts it.
const KUBELET_UNIT: &str = "[Unit]
Description=kubelet: The Kubernetes Node Agent
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10

[Install]
WantedBy=multi-user.target
";
const KUBELET: &str = "usr/bin/kubelet";
const KUBELET_UNIT_FILE: &str = "usr/lib/systemd/system/kubelet.service";

/// What rpmbuild is told. Nothing is stripped, compressed or looked into: the programs are as they came.
const SPEC: &str = "Name: @NAME@
Version: @VERSION@
Release: @RELEASE@
Summary: Real programs for test nodes
License: Apache-2.0
AutoReqProv: no
%global _binary_payload w0.gzdio
%global __os_install_post %{nil}
%global _build_id_links none
%global debug_package %{nil}

%description
Real programs for test nodes.

%install
mkdir -p %{buildroot}
cp -a '@TREE@'/. %{buildroot}

%files
@FILES@
";

/// The kubelet's `.deb`. It is built around an empty file, which the program then takes the place of.
pub(super) fn kubelet_deb(program: &Path, version: &str, out: &Path) -> Result<PathBuf> {
    let package = Package::new("kubelet", version)
        .revision(REVISION)
        .arch(Arch::host()?)
        .file(format!("/{KUBELET}"), 0o755, "")
        .file(format!("/{KUBELET_UNIT_FILE}"), 0o644, KUBELET_UNIT);
    fs::create_dir_all(out).with_context(|| format!("making {}", out.display()))?;
    let empty = deb::write(&package, out)?;
    repackage::as_version(&empty, &package.deb_version(), &out.join("whole"), |tree| {
        fs::copy(program, tree.join(KUBELET)).with_context(|| format!("copying {}", program.display()))?;
        // They were made for the empty file.
        fs::remove_file(tree.join("DEBIAN/md5sums")).context("removing the checksums")
    })
}

/// The kubelet's `.rpm`.
pub(super) fn kubelet_rpm(program: &Path, version: &str, out: &Path) -> Result<PathBuf> {
    let tree = out.join("kubelet-tree");
    for (path, mode) in [(KUBELET, 0o755), (KUBELET_UNIT_FILE, 0o644)] {
        let path = tree.join(path);
        let attempt = || format!("writing {}", path.display());
        fs::create_dir_all(path.parent().unwrap_or(&tree)).with_context(attempt)?;
        if path.ends_with(KUBELET) {
            fs::copy(program, &path).with_context(attempt)?;
        } else {
            fs::write(&path, KUBELET_UNIT).with_context(attempt)?;
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).with_context(attempt)?;
    }
    rpm("kubelet", version, REVISION, &tree, out)
}

/// `containerd.io` with the files of Debian's packages: like the real one it brings runc along, and here also the CNI
/// programs.
pub(super) fn containerd_rpm(debs: &[PathBuf], out: &Path) -> Result<PathBuf> {
    let tree = out.join("containerd-tree");
    fs::create_dir_all(&tree).with_context(|| format!("making {}", tree.display()))?;
    for deb in debs {
        run(Command::new("dpkg-deb").arg("--extract").arg(deb).arg(&tree))?;
    }
    // Debian's unit is where only Debian still looks; `/lib` is a link on the nodes, which an RPM must not touch.
    run(Command::new("sh")
        .args(["-euc", "mkdir -p usr/lib && cp -a lib/. usr/lib/ && rm -r lib && rm -rf usr/share etc/init.d"])
        .current_dir(&tree))?;
    rpm("containerd.io", "1.6.20", "1", &tree, out)
}

/// An `.rpm` of a tree, which owns its files and none of its directories.
fn rpm(name: &str, version: &str, release: &str, tree: &Path, out: &Path) -> Result<PathBuf> {
    let attempt = || format!("building {name} {version} as an .rpm");
    let files = run(Command::new("find").args([".", "!", "-type", "d", "-printf", "/%P\\n"]).current_dir(tree))?;
    let spec = [("@NAME@", name), ("@VERSION@", version), ("@RELEASE@", release), ("@FILES@", &files)]
        .into_iter()
        .fold(SPEC.replace("@TREE@", &tree.display().to_string()), |text, (place, value)| text.replace(place, value));
    let (file, top) = (out.join(format!("{name}.spec")), out.join(format!("{name}-build")));
    fs::write(&file, spec).with_context(attempt)?;
    run(Command::new("rpmbuild").arg("-bb").arg("--define").arg(format!("_topdir {}", top.display())).arg(&file))
        .with_context(attempt)?;
    let arch = Arch::host()?.rpm();
    Ok(top.join("RPMS").join(arch).join(format!("{name}-{version}-{release}.{arch}.rpm")))
}
