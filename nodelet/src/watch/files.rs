//! Changes of files, through inotify.

use crate::root::Root;
use futures::StreamExt;
use inotify::{EventMask, EventStream, Inotify, WatchDescriptor, WatchMask};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Watches the directories of files: editors and package managers replace files instead of writing them.
pub(super) struct FileWatch {
    paths: BTreeSet<String>,
    /// Databases among them, with how they were when last seen: programs that only read one open it for writing.
    databases: HashMap<String, (PathBuf, Look)>,
    /// A watched directory is gone, or was not there: watches must be made anew.
    stale: bool,
    stream: Option<EventStream<[u8; 4096]>>,
    names: HashMap<WatchDescriptor, BTreeMap<OsString, String>>,
}

impl FileWatch {
    /// Watches these files, whether they are there or not. What can't be watched is left to the regular check.
    pub(super) fn new(root: &Root, paths: BTreeSet<String>, databases: &[&str]) -> Self {
        let mut names: HashMap<WatchDescriptor, BTreeMap<OsString, String>> = HashMap::new();
        let mut stale = false;
        let stream = Inotify::init().and_then(|inotify| {
            for path in &paths {
                let place = root.join(path);
                // Where the directory isn't there (yet), the nearest one above it tells when that changes.
                let (directory, name) = nearest(&place);
                stale |= Some(directory.as_path()) != place.parent();
                match inotify.watches().add(&directory, mask()) {
                    Ok(watch) => drop(names.entry(watch).or_default().insert(name, path.clone())),
                    Err(error) => tracing::warn!(path, %error, "its changes are found only by the regular check"),
                }
            }
            inotify.into_event_stream([0; 4096])
        });
        if let Err(error) = &stream {
            tracing::warn!(%error, "changes of files are found only by the regular check");
        }
        let databases = databases.iter().map(|path| {
            let place = root.join(path);
            ((*path).to_owned(), (place.clone(), Look::at(&place)))
        });
        Self { paths, databases: databases.collect(), stale, stream: stream.ok(), names }
    }

    pub(super) fn paths(&self) -> &BTreeSet<String> {
        &self.paths
    }

    /// Whether the watches must be made anew, although the paths are the same.
    pub(super) fn is_stale(&self) -> bool {
        self.stale
    }

    /// Waits for the next change of one of the files; its path.
    pub(super) async fn changed(&mut self) -> String {
        loop {
            let Some(stream) = &mut self.stream else { return std::future::pending().await };
            match stream.next().await {
                Some(Ok(event)) => {
                    let lost =
                        EventMask::IGNORED | EventMask::DELETE_SELF | EventMask::MOVE_SELF | EventMask::Q_OVERFLOW;
                    self.stale |= event.mask.intersects(lost);
                    // A new file counts once it is closed: until then it is empty, or half.
                    if event.mask.contains(EventMask::CREATE) && !event.mask.contains(EventMask::ISDIR) {
                        continue;
                    }
                    let named = self.names.get(&event.wd);
                    // An event without a name is about the directory itself: it may be gone.
                    let path = match &event.name {
                        Some(name) => named.and_then(|names| names.get::<OsStr>(name)),
                        None => named.and_then(|names| names.values().next()),
                    };
                    if let Some(path) = path
                        && changed_indeed(&mut self.databases, path)
                    {
                        return path.clone();
                    }
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "watching files failed; changes are found only by the regular check");
                    self.stream = None;
                }
                None => self.stream = None,
            }
        }
    }
}

/// What tells that a database has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Look {
    length: u64,
    /// Of a log that is written ahead only the length counts: a reader may make an empty one, and remove it.
    written: Option<SystemTime>,
}

impl Look {
    fn at(path: &Path) -> Self {
        let metadata = std::fs::metadata(path).ok();
        let is_log = path.extension().is_some_and(|extension| extension == "sqlite-wal");
        Self {
            length: metadata.as_ref().map_or(0, std::fs::Metadata::len),
            written: metadata.filter(|_| !is_log).and_then(|metadata| metadata.modified().ok()),
        }
    }
}

/// True for any file but a database that is as it was.
fn changed_indeed(databases: &mut HashMap<String, (PathBuf, Look)>, path: &str) -> bool {
    match databases.get_mut(path) {
        None => true,
        Some((place, last)) => {
            let now = Look::at(place);
            let changed = now != *last;
            *last = now;
            changed
        }
    }
}

fn mask() -> WatchMask {
    WatchMask::CLOSE_WRITE
        | WatchMask::ATTRIB
        | WatchMask::CREATE
        | WatchMask::MOVED_TO
        | WatchMask::MOVED_FROM
        | WatchMask::DELETE
        | WatchMask::MOVE_SELF
        | WatchMask::DELETE_SELF
}

/// The nearest directory above a path that exists, and the name in it that leads to the path.
fn nearest(path: &Path) -> (PathBuf, OsString) {
    let mut below = path;
    for directory in path.ancestors().skip(1) {
        if directory.is_dir() {
            return (directory.to_owned(), below.file_name().unwrap_or_default().to_owned());
        }
        below = directory;
    }
    (PathBuf::from("/"), OsString::new())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use std::time::Duration;

    async fn next(watch: &mut FileWatch) -> Option<String> {
        tokio::time::timeout(Duration::from_millis(500), watch.changed()).await.ok()
    }

    #[tokio::test]
    async fn only_the_named_files_count() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let mut watch = FileWatch::new(&root, BTreeSet::from(["/a".into(), "/sub/deep/b".into()]), &[]);
        std::fs::write(root.join("/other"), "x").unwrap();
        assert_eq!(next(&mut watch).await, None);
        std::fs::write(root.join("/a"), "x").unwrap();
        assert_eq!(next(&mut watch).await.as_deref(), Some("/a"));
        let mut watch = FileWatch::new(&root, watch.paths().clone(), &[]);
        std::fs::create_dir(root.join("/sub")).unwrap();
        assert_eq!(next(&mut watch).await.as_deref(), Some("/sub/deep/b"));
    }

    #[tokio::test]
    async fn a_database_that_was_only_read_did_not_change() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let names = ["/db.sqlite", "/db.sqlite-wal"];
        std::fs::write(root.join(names[0]), "x").unwrap();
        let mut watch = FileWatch::new(&root, names.map(str::to_owned).into(), &names);
        // As a reader of the database does it: opened for writing, an empty log made and removed.
        drop(std::fs::OpenOptions::new().append(true).open(root.join(names[0])).unwrap());
        drop(std::fs::File::create(root.join(names[1])).unwrap());
        std::fs::remove_file(root.join(names[1])).unwrap();
        assert_eq!(next(&mut watch).await, None);
        std::fs::write(root.join(names[1]), "y").unwrap();
        assert_eq!(next(&mut watch).await.as_deref(), Some("/db.sqlite-wal"));
    }
}
