//! An image for pods, made from this machine's static busybox: no registry is needed.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde_json::json;

use crate::digest::sha256;

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
    if path.is_file() {
        return Ok(path);
    }
    let unfinished = dir.join(format!(".pod-images-{:?}.tar", std::thread::current().id()));
    write(&unfinished).with_context(|| format!("writing the pods' image to {}", unfinished.display()))?;
    fs::rename(&unfinished, &path).with_context(|| format!("putting the pods' image at {}", path.display()))?;
    Ok(path)
}

fn write(path: &Path) -> Result<()> {
    let busybox = fs::read("/bin/busybox").context("reading /bin/busybox (Debian package busybox-static)")?;
    let mut layer = tar::Builder::new(Vec::new());
    append(&mut layer, "bin/busybox", 0o755, &busybox)?;
    append(&mut layer, "etc/passwd", 0o644, b"root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/sh\n")?;
    for name in APPLETS {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        layer.append_link(&mut header, format!("bin/{name}"), "busybox").context("adding a link")?;
    }
    let layer = layer.into_inner().context("finishing the layer")?;
    let digest = sha256(&layer);
    let config = json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sh", "-c", ENTRYPOINT], "Env": ["PATH=/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
    });
    let manifest = json!([{"Config": "config.json", "RepoTags": [PAUSE, BUSYBOX], "Layers": ["layer.tar"]}]);
    let mut archive = tar::Builder::new(Vec::new());
    append(&mut archive, "config.json", 0o644, config.to_string().as_bytes())?;
    append(&mut archive, "layer.tar", 0o644, &layer)?;
    append(&mut archive, "manifest.json", 0o644, manifest.to_string().as_bytes())?;
    let bytes = archive.into_inner().context("finishing the archive")?;
    let mut file = fs::File::create(path).context("making the file")?;
    file.write_all(&bytes).context("writing the file")
}

fn append(archive: &mut tar::Builder<Vec<u8>>, path: &str, mode: u32, content: &[u8]) -> Result<()> {
    let mut header = tar::Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(mode);
    archive.append_data(&mut header, path, content).with_context(|| format!("adding {path}"))
}
