//! Debian's archive: the mirror that this machine uses, and packages from it for nodes that have no way out.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::command::{run, run_for};
use crate::image::{Image, chroot};
use crate::{lock, paths};

/// The release that test nodes run. Nothing here depends on the host's own release.
pub const SUITE: &str = "bookworm";

/// The mirror, as this machine's apt has it configured: on a closed network there may be only that one.
pub fn mirror() -> Result<String> {
    if let Ok(mirror) = std::env::var("NODELET_DEBIAN_MIRROR") {
        return Ok(mirror);
    }
    let targets =
        run(Command::new("apt-get").args(["indextargets", "--format", "$(LABEL) $(REPO_URI)", "Identifier: Packages"]))
            .context("asking apt for its mirrors")?;
    match targets.lines().find_map(|line| line.strip_prefix("Debian ")) {
        Some(uri) => Ok(uri.trim_end_matches('/').to_owned()),
        None => bail!(
            "apt on this machine has no Debian archive (is it Debian, and did `apt-get update` run?). \
             Set NODELET_DEBIAN_MIRROR to the address of a mirror that has {SUITE}"
        ),
    }
}

/// The host's proxy for apt, if it has one, as options for another apt.
pub(crate) fn proxy_options() -> Vec<String> {
    let dump = run(Command::new("apt-config").args(["dump", "--format", "%F %v%n", "Acquire"])).unwrap_or_default();
    dump.lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, value)| name.to_ascii_lowercase().ends_with("::proxy") && !value.is_empty())
        .map(|(name, value)| format!("-o{name}={value}"))
        .collect()
}

/// Downloads packages with everything that they need on a node with this image, and returns the files. They are kept
/// in the cache, so the second time nothing is fetched.
pub fn download(image: &Image, packages: &[&str]) -> Result<Vec<PathBuf>> {
    let dir = paths::cache()?.join("debs").join(image.name());
    let _lock = lock::take(&paths::cache()?.join("debs.lock"), "downloading Debian packages")?;
    let stamp = dir.join(format!("{}.list", packages.join("+")));
    if let Ok(list) = std::fs::read_to_string(&stamp) {
        let files: Vec<PathBuf> = list.lines().map(|name| dir.join(name)).collect();
        if files.iter().all(|file| file.is_file()) {
            return Ok(files);
        }
    }
    eprintln!("downloading {} with what it needs from {}", packages.join(", "), mirror()?);
    std::fs::create_dir_all(dir.join("partial")).with_context(|| format!("making {}", dir.display()))?;
    let script = format!(
        "apt-get $APT update -qq\n\
         apt-get $APT install -y -qq --no-install-recommends --download-only -o Dir::Cache::archives=/mnt {0}\n\
         apt-get $APT install -y -qq --no-install-recommends --print-uris {0} | cut -d' ' -f2 > /mnt/.names\n",
        packages.join(" ")
    );
    run_for(&mut chroot::throwaway(image, &script, &dir)?, Duration::from_secs(15 * 60))
        .with_context(|| format!("downloading {}", packages.join(", ")))?;
    let names = std::fs::read_to_string(dir.join(".names")).context("reading the list of downloaded packages")?;
    std::fs::write(&stamp, &names).with_context(|| format!("writing {}", stamp.display()))?;
    Ok(names.lines().map(|name| dir.join(name)).collect())
}
