//! Files: seen with their metadata, written so that a reader or a crash never meets half of one.

use crate::content::Digest;
use nix::unistd::{Gid, Group, Uid, User};
use std::collections::BTreeMap;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Absent,
    /// A file.
    File {
        /// What stands for its content.
        digest: Digest,
        /// Its permission bits.
        mode: u32,
        /// Its user's number.
        uid: u32,
        /// Its group's number.
        gid: u32,
    },
    /// Something else, such as a directory, in words.
    Other(&'static str),
}

/// What files were when they were last looked at: one whose metadata is the same isn't read again.
#[derive(Debug, Default)]
pub struct Memory(BTreeMap<PathBuf, (Stamp, Digest)>);

/// What changes when a file does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    device: u64,
    inode: u64,
    length: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    /// The stamp of a file as its metadata has it.
    pub fn of(metadata: &std::fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }

    /// A change within the clock's resolution leaves the times as they were: only what is older can be trusted.
    pub fn is_settled(&self) -> bool {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        let (seconds, nanoseconds) = self.changed;
        let changed = i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds);
        i128::try_from(now.as_nanos()).is_ok_and(|now| now - changed > 50_000_000)
    }
}

/// Looks at a path; a link is not followed.
pub fn look(path: &Path) -> io::Result<Seen> {
    look_again(path, &mut Memory::default())
}

/// Looks at a path; what is in a file is read only when its metadata changed.
pub fn look_again(path: &Path, memory: &mut Memory) -> io::Result<Seen> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Seen::Absent);
        }
        Err(error) => return Err(error),
    };
    Ok(if metadata.is_file() {
        let digest = digest(path, &metadata, memory)?;
        Seen::File { digest, mode: metadata.mode() & 0o7777, uid: metadata.uid(), gid: metadata.gid() }
    } else if metadata.is_dir() {
        Seen::Other("a directory")
    } else if metadata.is_symlink() {
        Seen::Other("a symbolic link")
    } else {
        Seen::Other("a device, pipe or socket")
    })
}

fn digest(path: &Path, metadata: &std::fs::Metadata, memory: &mut Memory) -> io::Result<Digest> {
    let stamp = Stamp::of(metadata);
    if let Some((known, digest)) = memory.0.get(path)
        && *known == stamp
    {
        return Ok(*digest);
    }
    let digest = Digest::of(&std::fs::read(path)?);
    if stamp.is_settled() {
        memory.0.insert(path.to_owned(), (stamp, digest));
    } else {
        memory.0.remove(path);
    }
    Ok(digest)
}

/// The number of a user, given by name or number.
pub fn user_number(name: &str) -> Result<u32, String> {
    // Most files are root's; looking that up each time costs more than the rest of a check.
    if name == "root" {
        return Ok(0);
    }
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    match User::from_name(name) {
        Ok(Some(user)) => Ok(user.uid.as_raw()),
        Ok(None) => Err(format!("there is no user `{name}`: create it (a package may), or name another `owner`")),
        Err(error) => Err(format!("looking the user `{name}` up: {error}")),
    }
}

/// The number of a group, given by name or number.
pub fn group_number(name: &str) -> Result<u32, String> {
    if name == "root" {
        return Ok(0);
    }
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    match Group::from_name(name) {
        Ok(Some(group)) => Ok(group.gid.as_raw()),
        Ok(None) => Err(format!("there is no group `{name}`: create it (a package may), or name another `group`")),
        Err(error) => Err(format!("looking the group `{name}` up: {error}")),
    }
}

/// Puts a file in its place: written beside it, flushed, renamed. Directories above it are made 0755.
pub fn place(path: &Path, content: &[u8], mode: u32, uid: u32, gid: u32) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    std::fs::create_dir_all(directory).map_err(|error| in_the_way(directory, error))?;
    // The name begins with a dot, so that no service that reads the directory takes it.
    let mut temporary = tempfile::Builder::new().prefix(".nodelet-").tempfile_in(directory)?;
    temporary.write_all(content)?;
    let (user, group) = (Uid::from_raw(uid), Gid::from_raw(gid));
    fchown(temporary.as_file(), Some(user.as_raw()), Some(group.as_raw()))?;
    temporary.as_file().set_permissions(Permissions::from_mode(mode))?;
    temporary.as_file().sync_all()?;
    temporary.persist(path).map_err(|error| error.error)?;
    sync_directory(directory)
}

/// Says what keeps a directory from being made.
fn in_the_way(directory: &Path, error: io::Error) -> io::Error {
    let not_a_directory = |path: &&Path| path.symlink_metadata().is_ok() && !path.is_dir();
    match directory.ancestors().find(not_a_directory) {
        Some(path) if path.is_symlink() => io::Error::other(format!(
            "{} is a link that leads nowhere: make what it leads to, or remove it",
            path.display()
        )),
        Some(path) => io::Error::other(format!("{} is not a directory: move it away", path.display())),
        None => error,
    }
}

/// Puts a file of nodelet's own in its place.
pub fn place_as_self(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    place(path, content, mode, Uid::current().as_raw(), Gid::current().as_raw())
}

/// Removes a file; one that is gone already is fine.
pub fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => sync_directory(path.parent().unwrap_or(Path::new("/"))),
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    match File::open(directory) {
        Ok(directory) => directory.sync_all(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_placed_file_is_whole_and_nothing_else_stays() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ä/b.conf");
        let (uid, gid) = (Uid::current().as_raw(), Gid::current().as_raw());
        place(&path, b"one", 0o640, uid, gid).unwrap();
        place(&path, b"two", 0o600, uid, gid).unwrap();
        assert_eq!(look(&path).unwrap(), Seen::File { digest: Digest::of(b"two"), mode: 0o600, uid, gid });
        assert_eq!(std::fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        remove(&path).unwrap();
        remove(&path).unwrap();
        assert_eq!(look(&path).unwrap(), Seen::Absent);
        assert_eq!(look(directory.path()).unwrap(), Seen::Other("a directory"));
    }

    #[test]
    fn placing_over_a_directory_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("d");
        std::fs::create_dir(&path).unwrap();
        assert!(place(&path, b"x", 0o644, Uid::current().as_raw(), Gid::current().as_raw()).is_err());
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
