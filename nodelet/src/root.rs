//! The root that paths of the host are taken from: `/`, or another directory for a look at an image.

use std::path::{Path, PathBuf};

/// The directory that stands for `/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root(PathBuf);

impl Default for Root {
    fn default() -> Self {
        Self(PathBuf::from("/"))
    }
}

impl Root {
    /// A root at `directory`.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self(directory.into())
    }

    /// Where the host's absolute path `path` is.
    pub fn join(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.0.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// True for the running host itself.
    pub fn is_host(&self) -> bool {
        self.0 == Path::new("/")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_stay_below_the_root() {
        assert_eq!(Root::at("/mnt").join("/etc/x"), Path::new("/mnt/etc/x"));
        assert_eq!(Root::default().join("/etc/x"), Path::new("/etc/x"));
    }
}
