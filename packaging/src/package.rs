//! One neutral description of a package, from which both the `.deb` and the `.rpm` are written.

use std::collections::BTreeMap;

use anyhow::{Result, bail, ensure};

use crate::arch::Arch;

/// The date inside packages that were given none: 2024-01-01. Fixed, so that they too are reproducible.
const DEFAULT_TIMESTAMP: i64 = 1_704_067_200;

/// A package, before it has a format.
#[derive(Debug, Clone)]
pub struct Package {
    /// Name, as valid in both worlds: lower case, digits, `+`, `-`, `.`.
    pub name: String,
    /// Upstream version, such as `0.1.0`. A `-` of a semantic pre-release must have been turned into `~` before.
    pub version: String,
    /// Debian revision and RPM release. Without one the `.deb` is a native package and the RPM release is `1`.
    pub revision: Option<String>,
    /// Architecture.
    pub arch: Arch,
    /// One line without a full stop.
    pub summary: String,
    /// Paragraphs, separated by empty lines.
    pub description: String,
    /// `Name <address>`.
    pub maintainer: String,
    /// SPDX expression.
    pub license: String,
    /// Address of the project's page.
    pub homepage: String,
    /// Debian section.
    pub section: String,
    /// Debian priority.
    pub priority: String,
    /// What is installed, in any order.
    pub entries: Vec<Entry>,
    /// What only the `.deb` says.
    pub deb: Relations,
    /// What only the `.rpm` says.
    pub rpm: Relations,
    /// The time of everything inside, in seconds since 1970 (`SOURCE_DATE_EPOCH`).
    pub timestamp: i64,
}

/// Relations to other packages, and the scripts, of one format.
///
/// A relation is written as that format writes it: `libc6 (>= 2.36)` for Debian, `systemd >= 252` for RPM.
#[derive(Debug, Clone, Default)]
pub struct Relations {
    /// Must be configured before this package is unpacked (`Pre-Depends`), or before each of its scriptlets runs
    /// (`Requires(pre,post,preun,postun)`).
    pub pre_depends: Vec<String>,
    /// `Depends`, `Requires`.
    pub depends: Vec<String>,
    /// `Recommends`.
    pub recommends: Vec<String>,
    /// `Suggests`.
    pub suggests: Vec<String>,
    /// `Provides`.
    pub provides: Vec<String>,
    /// `Conflicts`.
    pub conflicts: Vec<String>,
    /// `Replaces`, `Obsoletes`.
    pub replaces: Vec<String>,
    /// Maintainer scripts, scriptlets.
    pub scripts: Scripts,
    /// debconf templates (`.deb` only).
    pub templates: Option<String>,
    /// dpkg triggers (`.deb` only).
    pub triggers: Option<String>,
}

/// What runs when the package comes and goes. Text without `#!` is run by `/bin/sh`, in a `.deb` with `set -e`.
#[derive(Debug, Clone, Default)]
pub struct Scripts {
    /// debconf `config` (`.deb` only).
    pub config: Option<String>,
    /// `preinst`, `%pre`.
    pub pre_install: Option<String>,
    /// `postinst`, `%post`.
    pub post_install: Option<String>,
    /// `prerm`, `%preun`.
    pub pre_remove: Option<String>,
    /// `postrm`, `%postun`.
    pub post_remove: Option<String>,
}

/// One installed path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Absolute path.
    pub path: String,
    /// What is there.
    pub kind: Kind,
    /// Permission bits.
    pub mode: u32,
    /// Owner's name.
    pub owner: String,
    /// Group's name.
    pub group: String,
    /// A conffile, `%config(noreplace)`: an administrator's changes survive upgrades.
    pub config: bool,
}

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A regular file with this content.
    File(Vec<u8>),
    /// A directory that the package owns.
    Directory,
    /// A symbolic link to this target.
    Symlink(String),
}

impl Package {
    /// A package for every architecture, with nothing in it and placeholders for what people read.
    pub fn new(name: impl Into<String>, version: impl Into<String>) -> Self {
        let name = name.into();
        Self {
            summary: format!("{name} package"),
            description: format!("The {name} package."),
            name,
            version: version.into(),
            revision: None,
            arch: Arch::All,
            maintainer: "Nobody <nobody@example.org>".to_owned(),
            license: "Apache-2.0".to_owned(),
            homepage: String::new(),
            section: "admin".to_owned(),
            priority: "optional".to_owned(),
            entries: Vec::new(),
            deb: Relations::default(),
            rpm: Relations::default(),
            timestamp: DEFAULT_TIMESTAMP,
        }
    }

    /// Sets the architecture.
    #[must_use]
    pub fn arch(mut self, arch: Arch) -> Self {
        self.arch = arch;
        self
    }

    /// Sets the Debian revision and RPM release.
    #[must_use]
    pub fn revision(mut self, revision: impl Into<String>) -> Self {
        self.revision = Some(revision.into());
        self
    }

    /// Adds a file of root's.
    #[must_use]
    pub fn file(self, path: impl Into<String>, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        self.entry(Entry::new(path, Kind::File(content.into()), mode))
    }

    /// Adds a configuration file of root's: what an administrator changed in it survives upgrades.
    #[must_use]
    pub fn config_file(self, path: impl Into<String>, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        self.entry(Entry { config: true, ..Entry::new(path, Kind::File(content.into()), mode) })
    }

    /// Adds a directory of root's.
    #[must_use]
    pub fn directory(self, path: impl Into<String>, mode: u32) -> Self {
        self.entry(Entry::new(path, Kind::Directory, mode))
    }

    /// Adds a symbolic link.
    #[must_use]
    pub fn symlink(self, path: impl Into<String>, target: impl Into<String>) -> Self {
        self.entry(Entry::new(path, Kind::Symlink(target.into()), 0o777))
    }

    /// Adds any entry.
    #[must_use]
    pub fn entry(mut self, entry: Entry) -> Self {
        self.entries.push(entry);
        self
    }

    /// Depends on a package that has the same name in both worlds, at any version.
    #[must_use]
    pub fn depends(mut self, name: &str) -> Self {
        self.deb.depends.push(name.to_owned());
        self.rpm.depends.push(name.to_owned());
        self
    }

    /// Conflicts with a package that has the same name in both worlds, at any version.
    #[must_use]
    pub fn conflicts(mut self, name: &str) -> Self {
        self.deb.conflicts.push(name.to_owned());
        self.rpm.conflicts.push(name.to_owned());
        self
    }

    /// Runs the same text after installation in both formats (`exit 1` makes a package that can't be configured).
    #[must_use]
    pub fn post_install(mut self, script: &str) -> Self {
        self.deb.scripts.post_install = Some(script.to_owned());
        self.rpm.scripts.post_install = Some(script.to_owned());
        self
    }

    /// Runs the same text before removal in both formats.
    #[must_use]
    pub fn pre_remove(mut self, script: &str) -> Self {
        self.deb.scripts.pre_remove = Some(script.to_owned());
        self.rpm.scripts.pre_remove = Some(script.to_owned());
        self
    }

    /// Asks a debconf question of type `string` at installation, and writes the answer to `/etc/NAME.answer`.
    ///
    /// A front end that may ask stops there: it shows whether a caller keeps prompts from appearing.
    #[must_use]
    pub fn prompt(mut self, question: &str) -> Self {
        let name = self.name.clone();
        self.deb.depends.push("debconf (>= 0.5) | debconf-2.0".to_owned());
        self.deb.templates = Some(format!(
            "Template: {name}/answer\nType: string\nDefault: unanswered\nDescription: {question}\n Asked at critical priority.\n"
        ));
        self.deb.scripts.config = Some(format!(
            "#!/bin/sh\nset -e\n. /usr/share/debconf/confmodule\ndb_input critical {name}/answer || true\ndb_go || true\n"
        ));
        self.deb.scripts.post_install = Some(format!(
            "#!/bin/sh\nset -e\n. /usr/share/debconf/confmodule\ndb_get {name}/answer\nprintf '%s\\n' \"$RET\" >/etc/{name}.answer\ndb_stop\n"
        ));
        self.deb.scripts.post_remove = Some(format!(
            "#!/bin/sh\nset -e\nif [ \"$1\" = purge ]; then\n  rm -f /etc/{name}.answer\n  if [ -e /usr/share/debconf/confmodule ]; then\n    . /usr/share/debconf/confmodule\n    db_purge\n  fi\nfi\n"
        ));
        self
    }

    /// The version with the revision, as Debian writes it.
    pub fn deb_version(&self) -> String {
        match &self.revision {
            Some(revision) => format!("{}-{revision}", self.version),
            None => self.version.clone(),
        }
    }

    /// The release, as RPM writes it.
    pub fn rpm_release(&self) -> &str {
        self.revision.as_deref().unwrap_or("1")
    }

    /// The entries by path, checked: absolute, without `.` and `..`, each once.
    pub(crate) fn sorted_entries(&self) -> Result<BTreeMap<&str, &Entry>> {
        let mut sorted = BTreeMap::new();
        for entry in &self.entries {
            let path = entry.path.as_str();
            ensure!(is_clean(path), "package {}: {path:?} is not a clean absolute path", self.name);
            if sorted.insert(path, entry).is_some() {
                bail!("package {}: {path} is listed twice", self.name);
            }
        }
        Ok(sorted)
    }
}

/// A path from the root, without `.` and `..`, and not the root itself.
pub(crate) fn is_clean(path: &str) -> bool {
    let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
    path.strip_prefix('/').is_some_and(|below| below.split('/').all(plain))
}

impl Entry {
    /// An entry of root's that is no configuration file.
    pub fn new(path: impl Into<String>, kind: Kind, mode: u32) -> Self {
        Self { path: path.into(), kind, mode, owner: "root".to_owned(), group: "root".to_owned(), config: false }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;

    #[test]
    fn unclean_and_repeated_paths_are_refused() {
        for path in ["relative", "/", "/a//b", "/a/../b", "/a/./b", "/a/"] {
            let error = Package::new("x", "1").file(path, 0o644, "").sorted_entries().unwrap_err();
            assert!(error.to_string().contains("clean absolute path"), "{path}: {error}");
        }
        let twice = Package::new("x", "1").file("/a", 0o644, "").directory("/a", 0o755);
        assert!(twice.sorted_entries().unwrap_err().to_string().contains("twice"));
    }

    #[test]
    fn versions_in_both_spellings() {
        let native = Package::new("x", "1.2");
        assert_eq!((native.deb_version().as_str(), native.rpm_release()), ("1.2", "1"));
        let revised = native.revision("3");
        assert_eq!((revised.deb_version().as_str(), revised.rpm_release()), ("1.2-3", "3"));
    }
}
