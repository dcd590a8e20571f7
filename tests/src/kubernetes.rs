//! The Kubernetes and etcd programs: found, built or fetched once, and kept in the cache.
//!
//! In this order: the directory that `NODELET_KUBE_BIN` names; the cache; a build from `tests/kubernetes/go.mod`
//! (checksummed by its `go.sum`), if there is a Go that can; the official release, checked against its published
//! checksums. `NODELET_KUBERNETES` chooses another minor that has a directory with a `go.mod` of its own there.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};

use crate::command::{run, run_for};
use crate::digest::sha256;
use crate::{lock, paths, repackage};

/// What the control plane and the nodes need, all of the same release.
const KUBERNETES: [&str; 5] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kubelet"];
/// Cold, on two cores, the build takes 7 min; this is for a slower machine.
const BUILD_LIMIT: Duration = Duration::from_secs(40 * 60);

/// The programs, in one directory.
#[derive(Debug, Clone)]
pub struct Binaries {
    dir: PathBuf,
    version: String,
}

impl Binaries {
    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The Kubernetes version that `go.mod` asks for, such as `v1.35.8`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// One of them.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The same kubelet linked under another version, for tests that upgrade it: its code does not differ, what it
    /// reports does. Costs a link, seconds with Go's build cache.
    pub fn kubelet_as(&self, version: &str) -> Result<PathBuf> {
        let target = self.dir.join(format!("kubelet-{version}"));
        let _lock = lock::take(&self.dir.join("kubelet.lock"), "linking a kubelet")?;
        if !target.is_file() {
            usable_go().context("a kubelet of another version must be linked with Go")?;
            eprintln!("linking the kubelet as {version}");
            let unfinished = self.dir.join(format!(".kubelet-{version}"));
            go_build(&["k8s.io/kubernetes/cmd/kubelet"], &flags(version)?, &unfinished)?;
            fs::rename(&unfinished, &target).with_context(|| format!("putting the kubelet at {}", target.display()))?;
        }
        Ok(target)
    }

    /// Three patch releases in a row, such as `1.35.7`, `1.35.8`, `1.35.9`; the real one is among them.
    pub fn patches(&self) -> Result<[String; 3]> {
        let version = self.version.trim_start_matches('v');
        let (start, last) = version.split_at(version.len().saturating_sub(1));
        let last: u8 = last.parse().with_context(|| format!("{version} does not end with a number"))?;
        let first = last.clamp(1, 8) - 1;
        Ok([0, 1, 2].map(|more| format!("{start}{}", first + more)))
    }

    /// The same kubelet under another number of the same length, in a directory: its code does not differ, what it
    /// reports does. Unlike [`Self::kubelet_as`] it needs no Go.
    pub fn kubelet_renumbered(&self, version: &str, dir: &Path) -> Result<PathBuf> {
        let program = self.program("kubelet");
        let own = self.version.trim_start_matches('v');
        if version == own {
            return Ok(program);
        }
        fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
        let target = dir.join(format!("kubelet-{version}"));
        fs::copy(&program, &target).with_context(|| format!("copying {}", program.display()))?;
        repackage::replace_version(&target, &format!("v{own}"), &format!("v{version}"))?;
        Ok(target)
    }
}

/// The programs of the version in `go.mod`. Those of several versions are kept side by side.
pub fn binaries() -> Result<Binaries> {
    let version = required(&module()?, "k8s.io/kubernetes")?;
    if let Some(dir) = env::var_os("NODELET_KUBE_BIN") {
        let dir = PathBuf::from(dir);
        complete(&dir).context("NODELET_KUBE_BIN names a directory that can't be used")?;
        return Ok(Binaries { dir, version });
    }
    let store = paths::cache()?.join("kubernetes");
    let dir = store.join(&version);
    if complete(&dir).is_err() {
        let _lock = lock::take(&store.join("build.lock"), "building the Kubernetes programs")?;
        if complete(&dir).is_err() {
            obtain(&version, &dir)?;
        }
    }
    Ok(Binaries { dir, version })
}

fn obtain(version: &str, dir: &Path) -> Result<()> {
    let start = Instant::now();
    let unfinished = dir.with_extension("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).with_context(|| format!("removing {}", unfinished.display()))?;
    }
    fs::create_dir_all(&unfinished).with_context(|| format!("making {}", unfinished.display()))?;
    let outcome = match usable_go() {
        Ok(go) => {
            eprintln!("building Kubernetes {version} and etcd with {go} (once, 7 to 15 min on two cores)");
            build(version, &unfinished).context("building from the go.mod in tests/kubernetes")
        }
        Err(no_go) => {
            eprintln!("no Go to build Kubernetes with ({no_go:#}): downloading the official release {version}");
            download(version, &unfinished)
        }
    };
    outcome.and_then(|()| complete(&unfinished)).with_context(|| {
        format!(
            "the programs of Kubernetes {version} can't be had. Do one of these: install Go 1.25 or newer and let it \
             reach a module proxy; or make dl.k8s.io and github.com reachable; or put {}, etcd into a directory and \
             set NODELET_KUBE_BIN to it",
            KUBERNETES.join(", ")
        )
    })?;
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("removing the incomplete {}", dir.display()))?;
    }
    fs::rename(&unfinished, dir).with_context(|| format!("putting the programs at {}", dir.display()))?;
    eprintln!("Kubernetes {version} is in {} after {} s", dir.display(), start.elapsed().as_secs());
    Ok(())
}

/// Whether all programs are there.
fn complete(dir: &Path) -> Result<()> {
    let missing: Vec<&str> =
        KUBERNETES.iter().copied().chain(["etcd"]).filter(|name| !dir.join(name).is_file()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!("{} lacks {}", dir.display(), missing.join(", "))
}

/// The directory of the `go.mod` that counts in this run.
fn module() -> Result<PathBuf> {
    let usual = paths::checkout().join("tests/kubernetes");
    let minor = env::var("NODELET_KUBERNETES").unwrap_or_default();
    module_of(&usual, &minor)
}

/// The directory of a minor such as `1.33`; of the usual one, if none is named.
fn module_of(usual: &Path, minor: &str) -> Result<PathBuf> {
    let named = usual.join(minor);
    if minor.is_empty() || required(usual, "k8s.io/kubernetes")?.starts_with(&format!("v{minor}.")) {
        return Ok(usual.to_owned());
    }
    if named.join("go.mod").is_file() {
        return Ok(named);
    }
    bail!(
        "NODELET_KUBERNETES is {minor:?}, and {} does not exist: name a minor that has one, such as 1.33, or add it \
         (docs/testing.md)",
        named.join("go.mod").display()
    )
}

/// The version of a module that the `go.mod` in a directory requires.
fn required(directory: &Path, module_name: &str) -> Result<String> {
    let path = directory.join("go.mod");
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    version_in(&text, module_name).with_context(|| format!("{} requires no version of {module_name}", path.display()))
}

fn version_in(go_mod: &str, module_name: &str) -> Option<String> {
    go_mod.lines().find_map(|line| {
        let mut words = line.trim().strip_prefix("require ").unwrap_or(line.trim()).split_whitespace();
        (words.next() == Some(module_name))
            .then(|| words.next())
            .flatten()
            .filter(|word| word.starts_with('v'))
            .map(str::to_owned)
    })
}

/// What `go version` says, if it is as new as `go.mod` asks for.
fn usable_go() -> Result<String> {
    let said = run(Command::new("go").arg("version").env("GOTOOLCHAIN", "local")).context("running Go")?;
    let release = said.split_whitespace().nth(2).unwrap_or_default().trim_start_matches("go");
    let mut parts = release.split('.').map(|part| part.parse::<u32>().unwrap_or(0));
    let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    if (major, minor) < (1, 25) {
        bail!("Go {release} is too old, 1.25 is needed");
    }
    Ok(format!("Go {release}"))
}

/// The linker's settings that make a program say which version it is.
fn flags(version: &str) -> Result<String> {
    let mut parts = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (parts.next(), parts.next()) else {
        bail!("{version} is no Kubernetes version: write it as v1.35.8");
    };
    let package = "k8s.io/component-base/version";
    Ok(format!(
        "-s -w -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor} -X {package}.gitTreeState=clean"
    ))
}

fn build(version: &str, dir: &Path) -> Result<()> {
    let packages: Vec<String> = KUBERNETES.iter().map(|name| format!("k8s.io/kubernetes/cmd/{name}")).collect();
    let names: Vec<&str> = packages.iter().map(String::as_str).collect();
    go_build(&names, &flags(version)?, &dir.join(""))?;
    go_build(&["go.etcd.io/etcd/server/v3"], "-s -w", &dir.join("etcd"))
}

fn go_build(packages: &[&str], linker: &str, output: &Path) -> Result<()> {
    run_for(
        Command::new("go")
            .current_dir(module()?)
            .args(["build", "-trimpath", "-ldflags", linker, "-o"])
            .arg(output)
            .args(packages)
            .env("CGO_ENABLED", "0")
            .env("GOTOOLCHAIN", "local")
            .env("GOFLAGS", "-mod=readonly -buildvcs=false"),
        BUILD_LIMIT,
    )
    .map(drop)
}

fn download(version: &str, dir: &Path) -> Result<()> {
    let arch = match env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => bail!("there is no official release for {other}"),
    };
    for name in KUBERNETES {
        let url = format!("https://dl.k8s.io/release/{version}/bin/linux/{arch}/{name}");
        let sum = fetch_text(&format!("{url}.sha256"))?;
        fetch(&url, &dir.join(name), sum.trim())?;
    }
    let etcd = required(&module()?, "go.etcd.io/etcd/server/v3")?;
    let archive = format!("etcd-{etcd}-linux-{arch}.tar.gz");
    let base = format!("https://github.com/etcd-io/etcd/releases/download/{etcd}");
    let sums = fetch_text(&format!("{base}/SHA256SUMS"))?;
    let sum = sums
        .lines()
        .find_map(|line| line.strip_suffix(&archive).map(str::trim))
        .ok_or_else(|| anyhow!("{base}/SHA256SUMS does not list {archive}"))?;
    let file = dir.join(&archive);
    fetch(&format!("{base}/{archive}"), &file, sum)?;
    let member = format!("etcd-{etcd}-linux-{arch}/etcd");
    run(Command::new("tar").arg("-xzf").arg(&file).arg("-C").arg(dir).args(["--strip-components=1", &member]))?;
    fs::remove_file(&file).with_context(|| format!("removing {}", file.display()))
}

fn fetch_text(url: &str) -> Result<String> {
    run(Command::new("curl").args(["-fsSL", "--retry", "3", url])).with_context(|| format!("downloading {url}"))
}

fn fetch(url: &str, file: &Path, sum: &str) -> Result<()> {
    eprintln!("downloading {url}");
    run_for(Command::new("curl").args(["-fsSL", "--retry", "3", "-o"]).arg(file).arg(url), BUILD_LIMIT)
        .with_context(|| format!("downloading {url}"))?;
    let content = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
    let found = sha256(&content);
    if found != sum {
        bail!("{url} has the checksum {found}, but {sum} was published: not used");
    }
    fs::set_permissions(file, fs::Permissions::from_mode(0o755))
        .with_context(|| format!("making {} executable", file.display()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn finds_versions_in_go_mod() {
        let text = "tool (\n\tk8s.io/kubernetes/cmd/kubelet\n)\nrequire (\n\tk8s.io/kubernetes v1.35.8\n\tx/y v1 // indirect\n)\n";
        assert_eq!(version_in(text, "k8s.io/kubernetes").unwrap(), "v1.35.8");
        assert_eq!(version_in(text, "x/y").unwrap(), "v1");
        assert_eq!(version_in(text, "z"), None);
    }

    #[test]
    fn the_real_go_mods_name_both_versions() {
        let usual = paths::checkout().join("tests/kubernetes");
        for (minor, version) in [("", "v1."), ("1.33", "v1.33.")] {
            let directory = module_of(&usual, minor).unwrap();
            assert!(required(&directory, "k8s.io/kubernetes").unwrap().starts_with(version), "{minor:?}");
            assert!(required(&directory, "go.etcd.io/etcd/server/v3").unwrap().starts_with("v3."), "{minor:?}");
        }
        let version = required(&usual, "k8s.io/kubernetes").unwrap();
        let minor = version.trim_start_matches('v').rsplit_once('.').unwrap().0;
        assert_eq!(module_of(&usual, minor).unwrap(), usual);
        assert!(module_of(&usual, "1.1").unwrap_err().to_string().contains("1.1/go.mod does not exist"));
    }

    #[test]
    fn versions_reach_the_linker() {
        assert!(flags("v1.34.2").unwrap().contains("gitMinor=34"));
        assert!(flags("1").is_err());
    }
}
