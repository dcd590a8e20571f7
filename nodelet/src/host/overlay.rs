//! The host's repositories as they will be, in a directory of their own: packages are resolved and downloaded from
//! there before the host's own definitions change.

use super::files;
use super::packages::Request;
use crate::root::Root;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

/// Readable for all: apt's helpers are not root.
const STAGE: &str = "/var/cache/nodelet/stage";

/// Where a package manager keeps its definitions and nodelet the keys for them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    pub(super) definitions: &'static str,
    pub(super) keys: &'static str,
}

/// The directories.
#[derive(Debug)]
pub(super) struct Overlay {
    /// All definitions as they will be; `None` when the host's own are that already.
    pub(super) all: Option<PathBuf>,
    /// Those of the repositories that are refreshed, and no others.
    pub(super) refreshed: PathBuf,
}

/// Makes the directories what they must be. What is the same already isn't written again: package managers take new
/// files for new repositories.
pub(super) fn build(root: &Root, places: Places, request: &Request<'_>) -> io::Result<Overlay> {
    let stage = root.join(STAGE);
    let (all, refreshed, keys) = (stage.join("all"), stage.join("refreshed"), stage.join("keys"));
    for directory in [&all, &refreshed, &keys] {
        std::fs::create_dir_all(directory)?;
    }
    let mut wanted = [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()];
    let key_prefix = format!("{}/nodelet-", places.keys);
    let staged_prefix = format!("{}/nodelet-", keys.display());
    for (path, content) in &request.sources {
        let path = Path::new(path);
        let Some(name) = path.file_name() else { continue };
        if path.starts_with(places.keys) {
            write(&keys.join(name), content)?;
            wanted[2].insert(name.to_owned());
            continue;
        }
        let text = String::from_utf8_lossy(content).replace(&key_prefix, &staged_prefix);
        write(&all.join(name), text.as_bytes())?;
        wanted[0].insert(name.to_owned());
        let repository = path.file_stem().unwrap_or_default().to_string_lossy();
        if request.refresh.contains(&*repository) {
            write(&refreshed.join(name), text.as_bytes())?;
            wanted[1].insert(name.to_owned());
        }
    }
    for entry in std::fs::read_dir(root.join(places.definitions)).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let gone = request.gone.contains(format!("{}/{}", places.definitions, name.to_string_lossy()).as_str());
        if !gone && !wanted[0].contains(&name) {
            link(&all.join(&name), &entry.path())?;
            wanted[0].insert(name);
        }
    }
    for (directory, wanted) in [&all, &refreshed, &keys].into_iter().zip(&wanted) {
        clear(directory, wanted)?;
    }
    let differs = |(path, content): (&&str, &&[u8])| std::fs::read(root.join(path)).ok().as_deref() != Some(*content);
    let changes = request.sources.iter().any(differs) || request.gone.iter().any(|path| root.join(path).exists());
    Ok(Overlay { all: changes.then_some(all), refreshed })
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let is_file = std::fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_file());
    if is_file && std::fs::read(path)? == content {
        return Ok(());
    }
    files::place_as_self(path, content, 0o644)
}

fn link(path: &Path, to: &Path) -> io::Result<()> {
    if std::fs::read_link(path).is_ok_and(|found| found == to) {
        return Ok(());
    }
    files::remove(path)?;
    std::os::unix::fs::symlink(to, path)
}

fn clear(directory: &Path, wanted: &BTreeSet<OsString>) -> io::Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        if !wanted.contains(&entry.file_name()) {
            files::remove(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn it_shows_what_will_be() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let places = Places { definitions: "/etc/apt/sources.list.d", keys: "/etc/apt/keyrings" };
        std::fs::create_dir_all(root.join(places.definitions)).unwrap();
        for name in ["debian.sources", "old.sources"] {
            std::fs::write(root.join(places.definitions).join(name), "x").unwrap();
        }
        let request = Request {
            sources: BTreeMap::from([
                ("/etc/apt/keyrings/nodelet-r.asc", b"key".as_slice()),
                ("/etc/apt/sources.list.d/r.sources", b"Signed-By: /etc/apt/keyrings/nodelet-r.asc\n".as_slice()),
            ]),
            gone: BTreeSet::from(["/etc/apt/sources.list.d/old.sources"]),
            refresh: BTreeSet::from(["r".to_owned()]),
            transaction: None,
        };
        let overlay = build(&root, places, &request).unwrap();
        let names = |path: &Path| -> BTreeSet<String> {
            std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
        };
        let all = overlay.all.unwrap();
        assert_eq!(names(&all), ["debian.sources", "r.sources"].map(str::to_owned).into());
        assert_eq!(names(&overlay.refreshed), ["r.sources"].map(str::to_owned).into());
        let text = std::fs::read_to_string(all.join("r.sources")).unwrap();
        assert!(text.contains("/var/cache/nodelet/stage/keys/nodelet-r.asc"), "{text}");
        assert_eq!(build(&root, places, &Request::default()).unwrap().all, None, "nothing changes");
    }
}
