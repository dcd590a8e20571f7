//! Where things are: the user's cache, this checkout, and what the runner built for it.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

/// The cache that survives a fresh clone: images, Kubernetes programs, downloaded packages, compiled dependencies.
pub fn cache() -> Result<PathBuf> {
    if let Some(dir) = env::var_os("NODELET_TESTBED_CACHE") {
        return Ok(PathBuf::from(dir));
    }
    let base = match env::var_os("XDG_CACHE_HOME") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => PathBuf::from(env::var_os("HOME").context("neither XDG_CACHE_HOME nor HOME is set: set one of them")?)
            .join(".cache"),
    };
    Ok(base.join("node-operator"))
}

/// The checkout that this program was built from.
pub fn checkout() -> PathBuf {
    if let Some(dir) = env::var_os("NODELET_CHECKOUT") {
        return PathBuf::from(dir);
    }
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_path_buf()
}

/// What a run builds and keeps in the checkout (git-ignored).
pub fn build() -> PathBuf {
    checkout().join("build")
}

/// A program of this workspace. The runner copies them to `build/bin`, because the target directory is shared by
/// all clones; without a runner it stands where cargo put it.
pub fn program(name: &str) -> Result<PathBuf> {
    let me = env::current_exe().context("finding the path of the running program")?;
    let dir = me.parent().unwrap_or(Path::new("/"));
    // Cargo puts test programs into target/debug/deps, others one level up.
    for candidate in [dir.join(name), dir.join("..").join(name)] {
        if candidate.is_file() {
            return Ok(candidate);
        }
    }
    bail!(
        "the program `{name}` is not beside {}: build it with `cargo build --workspace --bins`, or use `make test`",
        me.display()
    )
}
