//! An image for pods, made from this machine's static busybox: no registry is needed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use packaging::arch::Arch;
use packaging::image::Image;

/// The image of pods' sandboxes, and a workload that does nothing and ends at once when asked to.
pub const PAUSE: &str = "registry.local/pause:1";
/// The same image under the name for workloads; give a command. Use it with `imagePullPolicy: Never`.
pub const BUSYBOX: &str = "registry.local/busybox:1";

/// As process 1 a shell ignores SIGTERM unless it traps it, and a pod that ignores SIGTERM holds up every drain and
/// every shutdown.
const ENTRYPOINT: &str = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done";

const APPLETS: [&str; 22] = [
    "cat", "date", "echo", "env", "false", "grep", "head", "hostname", "httpd", "kill", "ls", "mkdir", "nc", "ping",
    "ps", "rm", "sh", "sleep", "tail", "touch", "true", "wget",
];

/// The archive in the slot's directory, made if it is not there.
pub(crate) fn archive(dir: &Path) -> Result<PathBuf> {
    let path = dir.join("pod-images.tar");
    if !path.is_file() {
        image()?.write(&path)?;
    }
    Ok(path)
}

fn image() -> Result<Image> {
    let busybox = fs::read("/bin/busybox").context("reading /bin/busybox (Debian package busybox-static)")?;
    let image = Image::new(Arch::host()?)
        .name(PAUSE)
        .name(BUSYBOX)
        .file("/bin/busybox", 0o755, busybox)
        .file("/etc/passwd", 0o644, "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")
        .entrypoint(&["/bin/sh", "-c", ENTRYPOINT])
        .env("PATH", "/bin");
    Ok(APPLETS.iter().fold(image, |image, name| image.symlink(format!("/bin/{name}"), "busybox")))
}
