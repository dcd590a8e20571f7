//! nodelet's own packages, built from this checkout, in a repository that nodes can install them from.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, anyhow};
use packaging::package::Package;
use packaging::product::{Format, Sources};

use crate::command::run;
use crate::image::Kind;
use crate::repository::Repository;
use crate::{Node, NodeOptions, Slot, paths, slot};

/// An older version of the same program, for tests of an upgrade. Only the package's version differs.
pub const OLDER: &str = "0.0.1";

/// The repository with nodelet's packages, as this checkout builds them, and [`OLDER`] ones. Made once in a process.
pub fn repository() -> Result<&'static Repository> {
    static REPOSITORY: OnceLock<Result<Repository, String>> = OnceLock::new();
    REPOSITORY
        .get_or_init(|| slot().and_then(|slot| build(&slot)).map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|error| anyhow!(error.clone()))
}

/// The version that this checkout builds.
pub fn version() -> Result<String> {
    Sources::new(paths::checkout()).version(None)
}

/// Builds the packages and the repository into a slot's directory.
pub fn build(slot: &Arc<Slot>) -> Result<Repository> {
    build_some(slot, &[OLDER.to_owned(), version()?], &[Format::Deb, Format::Rpm])
}

/// The same for apt and the newest version alone.
pub fn build_deb(slot: &Arc<Slot>) -> Result<Repository> {
    build_some(slot, &[version()?], &[Format::Deb])
}

/// This checkout's program without its symbols, in a directory: it is packed and unpacked in a moment.
pub fn stripped(dir: &Path) -> Result<PathBuf> {
    fs::create_dir_all(dir).with_context(|| format!("making {}", dir.display()))?;
    let stripped = dir.join("nodelet");
    strip(&paths::program("nodelet")?, &stripped)?;
    Ok(stripped)
}

pub(crate) fn strip(program: &Path, to: &Path) -> Result<()> {
    run(Command::new("strip").arg("-o").arg(to).arg(program)).map(drop)
}

fn build_some(slot: &Arc<Slot>, versions: &[String], formats: &[Format]) -> Result<Repository> {
    let program = paths::program("nodelet")?;
    let sources = Sources::new(paths::checkout());
    let out = slot.dir().join("nodelet-packages");
    let mut files: Vec<PathBuf> = Vec::new();
    for version in versions {
        let built = sources
            .build(&program, version, formats, &out)
            .with_context(|| format!("building nodelet's packages around {}", program.display()))?;
        files.extend(built);
    }
    let mut repository = Repository::new("nodelet", slot.dir().join("nodelet-repository"))?;
    repository.publish_files(&files)?;
    repository.publish(&[libraries(&files)?])?;
    Ok(repository)
}

/// Nodes with dnf are Debian inside, so no RPM provides the libraries that nodelet's asks for; this one says it does.
pub fn libraries(built: &[PathBuf]) -> Result<Package> {
    let mut package = Package::new("host-libraries", "1");
    for rpm in built.iter().filter(|path| path.extension().is_some_and(|extension| extension == "rpm")) {
        package.rpm.provides = packaging::rpm::requires(rpm)?;
    }
    Ok(package)
}

/// Boots a node that has nodelet's repository configured, and nodelet not yet installed.
pub fn node(options: NodeOptions) -> Result<Node> {
    node_in(&slot()?, options)
}

/// The same in another slot than the one that tests share.
pub fn node_in(slot: &Arc<Slot>, options: NodeOptions) -> Result<Node> {
    let repository = repository()?;
    let image = options.image;
    let node = Node::boot(slot, options.bind(repository.dir(), repository.bound_at()))?;
    let base = format!("file://{}", repository.bound_at());
    if image == Kind::Rpm {
        repository.add_to_dnf(&node, &base)?;
    } else {
        repository.add_to_apt(&node, &base)?;
        node.run(&["apt-get", "update", "-qq"])?;
    }
    Ok(node)
}

/// Installs nodelet as an administrator would, with apt or dnf; a version of it, or the newest.
pub fn install(node: &Node, version: Option<&str>) -> Result<()> {
    let dnf = node.exists("/usr/bin/dnf")?;
    let command = match (dnf, version) {
        // `dnf install` leaves an older version that is installed as it is.
        (true, None) => "dnf install -y nodelet && dnf upgrade -y nodelet".to_owned(),
        (true, Some(version)) => format!("dnf install -y nodelet-{version}"),
        (false, None) => "apt-get install -y nodelet".to_owned(),
        (false, Some(version)) => format!("apt-get install -y nodelet={version}"),
    };
    // No frontend is named and there is no terminal: a question of the package's would fail the installation.
    node.run_sh(&format!("{{ {command}; }} </dev/null"))
        .with_context(|| format!("installing nodelet on {}", node.name()))
        .map(drop)
}
