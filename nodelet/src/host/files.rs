//! Files: seen with their metadata, written so that a reader or a crash never meets half of one.

use nix::unistd::{Gid, Group, Uid, User};
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nothing.
    Absent,
    /// A file.
    File {
        /// What is in it.
        content: Vec<u8>,
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

/// Looks at a path; a link is not followed.
pub fn look(path: &Path) -> io::Result<Seen> {
    let metadata = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata,
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
            return Ok(Seen::Absent);
        }
        Err(error) => return Err(error),
    };
    Ok(if metadata.is_file() {
        let content = std::fs::read(path)?;
        Seen::File { content, mode: metadata.mode() & 0o7777, uid: metadata.uid(), gid: metadata.gid() }
    } else if metadata.is_dir() {
        Seen::Other("a directory")
    } else if metadata.is_symlink() {
        Seen::Other("a symbolic link")
    } else {
        Seen::Other("a device, pipe or socket")
    })
}

/// The number of a user, given by name or number.
pub fn user_number(name: &str) -> Result<u32, String> {
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
    std::fs::create_dir_all(directory)?;
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
        assert_eq!(look(&path).unwrap(), Seen::File { content: b"two".to_vec(), mode: 0o600, uid, gid });
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
