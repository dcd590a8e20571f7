//! What nodes are made from: a Debian base and layers on it, each built once and kept in the cache under a hash of
//! its recipe. A node is an overlay on them, so it costs nothing to make.

pub(crate) mod chroot;
mod recipes;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::command::run_for;
use crate::digest::sha256;
use crate::{debian, lock, paths};

pub(crate) use recipes::CGROUPS as WRITABLE_CGROUPS;

/// How an image is made.
#[derive(Debug)]
pub(crate) struct Recipe {
    name: &'static str,
    parent: Option<&'static Recipe>,
    packages: &'static [&'static str],
    /// Run in the image after the packages are in.
    script: &'static str,
    files: &'static [File],
}

/// A file that is put into an image.
#[derive(Debug)]
pub(crate) struct File {
    path: &'static str,
    mode: u32,
    content: &'static str,
}

/// The images that there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Kind {
    /// Debian with systemd and apt, nothing else.
    Base,
    /// The base with dnf and an rpm database that believes in a base system.
    Rpm,
    /// The base with containerd, runc and CNI plugins; the kubelet is bound into the node.
    Kube,
    /// The base with Debian's cloud-init, for nodes that become something by themselves. No container runtime.
    Cloud,
    /// The image with dnf, and cloud-init that takes it for Fedora.
    CloudRpm,
    /// The base with Puppet, Ansible and `CFEngine`, for `make bench`.
    Bench,
}

/// An image that is there.
#[derive(Debug, Clone)]
pub struct Image {
    name: String,
    /// The directories of the overlay, uppermost first.
    layers: Vec<PathBuf>,
}

impl Image {
    /// Its name with the hash of its recipe.
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn lower_dirs(&self) -> String {
        let dirs: Vec<String> = self.layers.iter().map(|dir| dir.display().to_string()).collect();
        dirs.join(":")
    }
}

impl Kind {
    fn recipe(self) -> &'static Recipe {
        match self {
            Self::Base => &recipes::BASE,
            Self::Rpm => &recipes::RPM,
            Self::Kube => &recipes::KUBE,
            Self::Cloud => &recipes::CLOUD,
            Self::CloudRpm => &recipes::CLOUD_RPM,
            Self::Bench => &recipes::BENCH,
        }
    }

    /// Whether containers are to run on its nodes.
    pub(crate) fn runs_containers(self) -> bool {
        matches!(self, Self::Kube | Self::Cloud | Self::CloudRpm)
    }

    /// The image, built now if it is not in the cache.
    pub fn image(self) -> Result<Image> {
        let store = paths::cache()?.join("images");
        fs::create_dir_all(&store).with_context(|| format!("making {}", store.display()))?;
        ensure(self.recipe(), &store)
    }
}

impl Recipe {
    fn id(&self) -> String {
        let mut text = self.parent.map(Recipe::id).unwrap_or_default();
        for part in [debian::SUITE, self.name, self.script].iter().chain(self.packages) {
            text += part;
            text.push('\n');
        }
        for file in self.files {
            let _ = writeln!(text, "{} {:o} {}", file.path, file.mode, file.content);
        }
        format!("{}-{}", self.name, &sha256(text)[..12])
    }
}

fn ensure(recipe: &Recipe, store: &Path) -> Result<Image> {
    let parent = recipe.parent.map(|parent| ensure(parent, store)).transpose()?;
    let name = recipe.id();
    let dir = store.join(&name);
    if !dir.is_dir() {
        let _lock =
            lock::take(&store.join(format!("{}.lock", recipe.name)), &format!("building the image {}", recipe.name))?;
        if !dir.is_dir() {
            build(recipe, parent.as_ref(), &dir)?;
            prune(recipe, store, &name)?;
        }
    }
    let mut layers = vec![dir];
    layers.extend(parent.into_iter().flat_map(|parent| parent.layers));
    Ok(Image { name, layers })
}

fn build(recipe: &Recipe, parent: Option<&Image>, dir: &Path) -> Result<()> {
    let start = Instant::now();
    let mirror = debian::mirror()?;
    eprintln!("building the image {} from {mirror} (once; kept in the cache)", recipe.name);
    // Under another name until it is whole: a build that was cut off is never taken for an image.
    let unfinished = dir.with_extension("unfinished");
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished).with_context(|| format!("removing {}", unfinished.display()))?;
    }
    let root = unfinished.join("diff");
    fs::create_dir_all(&root).with_context(|| format!("making {}", root.display()))?;
    let command = match parent {
        None => &mut chroot::debootstrap(&root, &mirror, recipe.packages),
        Some(parent) => &mut chroot::layer(parent, &unfinished, recipe.packages)?,
    };
    run_for(command, Duration::from_secs(20 * 60))
        .with_context(|| format!("building the image {}: is the mirror {mirror} reachable?", recipe.name))?;
    for file in recipe.files {
        chroot::place(&root, file.path, file.mode, file.content)?;
    }
    let image = Image {
        name: recipe.name.to_owned(),
        layers: std::iter::once(root.clone())
            .chain(parent.into_iter().flat_map(|parent| parent.layers.iter().cloned()))
            .collect(),
    };
    run_for(&mut chroot::finish(&image, &unfinished, recipe.script), Duration::from_secs(5 * 60))
        .with_context(|| format!("finishing the image {}", recipe.name))?;
    fs::rename(&root, dir).with_context(|| format!("putting the image at {}", dir.display()))?;
    fs::remove_dir_all(&unfinished).with_context(|| format!("removing {}", unfinished.display()))?;
    eprintln!("the image {} took {} s", recipe.name, start.elapsed().as_secs());
    Ok(())
}

/// Removes images of the same name with other recipes, except what a running node may still have mounted.
fn prune(recipe: &Recipe, store: &Path, keep: &str) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("reading /proc/self/mountinfo")?;
    for entry in fs::read_dir(store).with_context(|| format!("listing {}", store.display()))?.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let hash = name.strip_prefix(recipe.name).and_then(|rest| rest.strip_prefix('-'));
        let is_old = hash.is_some_and(|hash| hash.len() == 12 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()));
        if is_old && name != keep && !mounts.contains(&name) {
            fs::remove_dir_all(entry.path()).with_context(|| format!("removing the old image {name}"))?;
            eprintln!("removed the old image {name}");
        }
    }
    Ok(())
}
