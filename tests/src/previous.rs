//! The minor version before this one: its programs, packages and manifests, for tests of nodes and controllers that
//! are one version apart.
//!
//! `tests/previous.toml` names its commit. It is built once from this repository's history, with the dependencies that
//! are compiled already, and kept in the cache by its commit.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use packaging::product::{Format, Sources};
use serde::Deserialize;

use crate::command::{run, run_for};
use crate::repository::Repository;
use crate::{Slot, lock, nodelet, paths};

/// The file that names the version, below the checkout.
const FILE: &str = "tests/previous.toml";
/// What is built of it; the last one builds its packages.
const PROGRAMS: [&str; 3] = ["nodelet", "node-controller", "packaging"];
/// With the dependencies compiled it takes about a minute on two cores; this is for when they are not.
const BUILD_LIMIT: Duration = Duration::from_secs(30 * 60);

/// The version, and where it is kept.
#[derive(Debug, Clone)]
pub struct Previous {
    version: String,
    dir: PathBuf,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Named {
    version: String,
    commit: String,
}

impl Previous {
    /// The version, such as `0.1.0`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Where it is kept.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// One of its programs: `nodelet` or `node-controller`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join("bin").join(name)
    }

    /// Its manifests.
    pub fn config(&self) -> PathBuf {
        self.dir.join("checkout/config")
    }

    /// A repository with its nodelet for apt, and with this checkout's, which is newer.
    pub fn repository(&self, slot: &Arc<Slot>) -> Result<Repository> {
        let out = slot.dir().join("skew-packages");
        let program = nodelet::stripped(&out)?;
        let sources = Sources::new(paths::checkout());
        let mut files = sources.build(&program, &nodelet::version()?, &[Format::Deb], &out)?;
        files.extend(debs(&self.dir.join("packages"))?);
        let mut repository = Repository::new("skew", slot.dir().join("skew-repository"))?;
        repository.publish_files(&files)?;
        Ok(repository)
    }
}

/// The version before, from the cache or built now.
pub fn previous() -> Result<Previous> {
    let Named { version, commit } = named(&paths::checkout())?;
    let store = paths::cache()?.join("previous");
    let dir = store.join(&commit);
    if !dir.is_dir() {
        let _lock = lock::take(&store.join("build.lock"), "building the version before")?;
        if !dir.is_dir() {
            let start = Instant::now();
            eprintln!("building {version} from commit {commit} (once)");
            let unfinished = dir.with_extension("unfinished");
            build(&version, &commit, &unfinished).with_context(|| format!("building {version}, see {FILE}"))?;
            fs::rename(&unfinished, &dir).with_context(|| format!("putting it at {}", dir.display()))?;
            eprintln!("{version} is in {} after {} s", dir.display(), start.elapsed().as_secs());
        }
    }
    Ok(Previous { version, dir })
}

fn named(checkout: &Path) -> Result<Named> {
    let path = checkout.join(FILE);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("reading {}", path.display()))
}

fn build(version: &str, commit: &str, dir: &Path) -> Result<()> {
    if dir.exists() {
        fs::remove_dir_all(dir).with_context(|| format!("removing {}", dir.display()))?;
    }
    let checkout = dir.join("checkout");
    for part in [&checkout, &dir.join("bin")] {
        fs::create_dir_all(part).with_context(|| format!("making {}", part.display()))?;
    }
    extract(commit, &checkout)?;
    // In the target directory of this workspace, for the sake of the dependencies in it. Its own crates are not
    // disturbed: they have another version, and with it other file names. All of the workspace is named, because the
    // features of dependencies are those of all packages that are.
    let target = env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Ok(paths::cache()?.join("target")), |dir| anyhow::Ok(PathBuf::from(dir)))?;
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&checkout).args(["build", "--locked", "--workspace"]).env("CARGO_TARGET_DIR", &target);
    for name in PROGRAMS {
        cargo.args(["--bin", name]);
    }
    run_for(&mut cargo, BUILD_LIMIT)?;
    for name in PROGRAMS {
        nodelet::strip(&target.join("debug").join(name), &dir.join("bin").join(name))?;
    }
    let mut packaging = Command::new(dir.join("bin/packaging"));
    packaging.current_dir(&checkout).args(["build", "--formats", "deb", "--version", version, "--binary"]);
    run(packaging.arg(dir.join("bin/nodelet")).arg("--out").arg(dir.join("packages"))).map(drop)
}

/// The files of a commit. They are as new as this moment, so that cargo takes nothing for built that another clone of
/// the same version left in the target directory.
fn extract(commit: &str, checkout: &Path) -> Result<()> {
    let git = || {
        let mut git = Command::new("git");
        // A checkout of another user, mounted into a container for example, is refused without it.
        let trusted = format!("safe.directory={}", paths::checkout().display());
        git.args(["-c", &trusted, "-C"]).arg(paths::checkout());
        git
    };
    if let Err(error) = run(git().args(["cat-file", "-e", &format!("{commit}^{{commit}}")])) {
        // Only a shallow clone lacks it for a reason that fetching mends.
        let shallow = run(git().args(["rev-parse", "--is-shallow-repository"]));
        if !shallow.as_deref().is_ok_and(|text| text.trim() == "true") {
            return Err(error).with_context(|| format!("looking for the commit {commit} in the history here"));
        }
        run_for(git().args(["fetch", "--quiet", "--depth=1", "origin", commit]), BUILD_LIMIT).with_context(|| {
            format!(
                "the history here does not have the commit {commit}, and it can't be fetched from origin. Do one of \
                 these: run `git fetch --unshallow`, clone the whole repository, or name a commit in {FILE} that is there"
            )
        })?;
    }
    let archive = checkout.with_extension("tar");
    run(git().args(["archive", "--format=tar", "--output"]).arg(&archive).arg(commit))?;
    run(Command::new("tar").args(["--extract", "--touch", "--file"]).arg(&archive).arg("-C").arg(checkout))?;
    fs::remove_file(&archive).with_context(|| format!("removing {}", archive.display()))
}

fn debs(dir: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(dir).with_context(|| format!("listing {}", dir.display()))?;
    let found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    ensure!(!found.is_empty(), "{} holds no package", dir.display());
    Ok(found)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// One minor before this one, as the documentation promises it.
    #[test]
    fn the_version_before_is_one_minor_before() {
        let named = named(&paths::checkout()).unwrap();
        let minor = |version: &str| version.split('.').nth(1).unwrap().parse::<u32>().unwrap();
        assert_eq!(minor(&named.version) + 1, minor(env!("CARGO_PKG_VERSION")), "{FILE} names {}", named.version);
        assert_eq!(named.commit.len(), 40, "a whole commit id: a short one can't be fetched");
    }
}
