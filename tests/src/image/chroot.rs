//! Work inside an image that is being made. Every command here runs in a mount namespace of its own, so a build that
//! is cut off at any point leaves no mount behind.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};

use super::Image;
use crate::debian;

/// Mounts what apt needs and makes the network's names resolve. Nothing is started by package scripts: they ask for
/// /run/systemd/system, which is not there.
const PREPARE: &str = r#"
mount -t proc proc "$ROOT/proc"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs tmpfs "$ROOT/run"
mount -t tmpfs tmpfs "$ROOT/tmp"
mount -t tmpfs tmpfs "$ROOT/var/lib/apt/lists"
for file in resolv.conf hosts ssl/certs/ca-certificates.crt; do
    if [ -e "/etc/$file" ] && [ -e "$ROOT/etc/$file" ]; then
        mount --bind "$(readlink -f "/etc/$file")" "$ROOT/etc/$file"
    fi
done
printf 'deb %s %s main\n' "$MIRROR" "$SUITE" > "$ROOT/run/sources.list"
APT="$PROXY -oDir::Etc::sourcelist=/run/sources.list -oDir::Etc::sourceparts=- -oDir::Cache::pkgcache= -oDir::Cache::srcpkgcache="
export APT DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8 HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
"#;

fn namespace(script: &str) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", script]);
    command
}

/// The base: a whole Debian without anything that is not asked for.
pub(crate) fn debootstrap(root: &Path, mirror: &str, packages: &[&str]) -> Command {
    let mut command = Command::new("debootstrap");
    command
        .args(["--variant=minbase", &format!("--include={}", packages.join(",")), debian::SUITE])
        .arg(root)
        .arg(mirror);
    command
}

/// A layer: packages added to an image by apt, as an overlay's upper directory `diff` in `dir`.
pub(crate) fn layer(parent: &Image, dir: &Path, packages: &[&str]) -> Result<Command> {
    let script = format!(
        "set -eu\nmkdir -p \"$DIR/work\" \"$ROOT\"\n\
         mount -t overlay overlay -o \"lowerdir=$LOWER,upperdir=$DIR/diff,workdir=$DIR/work\" \"$ROOT\"\n\
         {PREPARE}\
         chroot \"$ROOT\" sh -euc 'apt-get $APT update -qq\n\
         apt-get $APT install -y -qq --no-install-recommends {}\n\
         apt-get clean'",
        packages.join(" ")
    );
    let mut command = namespace(&script);
    environment(&mut command)?;
    command.env("DIR", dir).env("ROOT", dir.join("root")).env("LOWER", parent.lower_dirs());
    Ok(command)
}

/// The last touch to an image whose own directory is the uppermost layer.
pub(crate) fn finish(image: &Image, dir: &Path, script: &str) -> Command {
    let mount = match image.layers.as_slice() {
        [] | [_] => "mount --bind \"$DIR/diff\" \"$ROOT\"\n",
        _ => "mount -t overlay overlay -o \"lowerdir=$LOWER,upperdir=$DIR/diff,workdir=$DIR/work\" \"$ROOT\"\n",
    };
    let mut command = namespace(&format!(
        "set -eu\nmkdir -p \"$DIR/work\" \"$ROOT\"\n{mount}\
         mount -t proc proc \"$ROOT/proc\"\nmount --rbind /dev \"$ROOT/dev\"\n\
         exec chroot \"$ROOT\" /bin/sh -euc \"$SCRIPT\""
    ));
    let below: Vec<String> = image.layers.iter().skip(1).map(|layer| layer.display().to_string()).collect();
    command
        .env("DIR", dir)
        .env("ROOT", dir.join("root"))
        .env("LOWER", below.join(":"))
        .env("SCRIPT", script)
        .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command
}

/// A script in an image whose changes are thrown away, with a directory of the host at /mnt.
pub(crate) fn throwaway(image: &Image, script: &str, shared: &Path) -> Result<Command> {
    let whole = format!(
        "set -eu\n\
         SPACE=$(mktemp -d)\nmount -t tmpfs tmpfs \"$SPACE\"\n\
         mkdir \"$SPACE/upper\" \"$SPACE/work\" \"$SPACE/root\"\nROOT=$SPACE/root\n\
         mount -t overlay overlay -o \"lowerdir=$LOWER,upperdir=$SPACE/upper,workdir=$SPACE/work\" \"$ROOT\"\n\
         {PREPARE}\
         mount --bind \"$SHARED\" \"$ROOT/mnt\"\n\
         chroot \"$ROOT\" sh -euc \"$SCRIPT\"\n\
         cd /; umount -l \"$SPACE\"; rmdir \"$SPACE\""
    );
    let mut command = namespace(&whole);
    environment(&mut command)?;
    command.env("LOWER", image.lower_dirs()).env("SCRIPT", script).env("SHARED", shared);
    Ok(command)
}

fn environment(command: &mut Command) -> Result<()> {
    command
        .env("MIRROR", debian::mirror()?)
        .env("SUITE", debian::SUITE)
        .env("PROXY", debian::proxy_options().join(" "));
    Ok(())
}

/// Puts a file into a tree that no process runs in.
pub(crate) fn place(root: &Path, path: &str, mode: u32, content: &str) -> Result<()> {
    let target = root.join(path.trim_start_matches('/'));
    if let Some(dir) = target.parent() {
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    }
    write(&target, mode, content)
}

fn write(path: &Path, mode: u32, content: &str) -> Result<()> {
    fs::write(path, content)
        .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
        .with_context(|| format!("writing {}", path.display()))
}
