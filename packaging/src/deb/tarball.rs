//! A gzip-compressed tar archive with fixed owners and times, with names in dpkg's spelling (`./usr/bin/x`).

use std::io::Write;

use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder, write::GzEncoder};
use tar::{EntryType, Header};

use crate::package::{Entry, Kind};

/// The longest name that fits into a tar header's own field.
const NAME_FIELD: usize = 100;

pub(super) struct Tarball {
    archive: tar::Builder<GzEncoder<Vec<u8>>>,
    timestamp: u64,
}

impl Tarball {
    pub(super) fn new(timestamp: i64) -> Result<Self> {
        // `GzBuilder` leaves the header's time at zero: the compressed bytes depend on the content alone.
        let encoder = GzBuilder::new().write(Vec::new(), Compression::best());
        Ok(Self {
            archive: tar::Builder::new(encoder),
            timestamp: u64::try_from(timestamp).context("the package's time is before 1970")?,
        })
    }

    /// `./`, with which dpkg's own archives begin.
    pub(super) fn root(&mut self) -> Result<()> {
        self.append("./", EntryType::Directory, 0o755, ("root", "root"), None, &[])
    }

    /// A directory that no package owns in particular.
    pub(super) fn directory(&mut self, path: &str) -> Result<()> {
        self.append(&format!(".{path}/"), EntryType::Directory, 0o755, ("root", "root"), None, &[])
    }

    /// A member of `control.tar`.
    pub(super) fn control(&mut self, name: &str, mode: u32, content: &[u8]) -> Result<()> {
        self.append(&format!("./{name}"), EntryType::Regular, mode, ("root", "root"), None, content)
    }

    /// An installed path.
    pub(super) fn entry(&mut self, entry: &Entry) -> Result<()> {
        let owner = (entry.owner.as_str(), entry.group.as_str());
        match &entry.kind {
            Kind::File(content) => {
                self.append(&format!(".{}", entry.path), EntryType::Regular, entry.mode, owner, None, content)
            }
            Kind::Directory => {
                self.append(&format!(".{}/", entry.path), EntryType::Directory, entry.mode, owner, None, &[])
            }
            Kind::Symlink(target) => {
                self.append(&format!(".{}", entry.path), EntryType::Symlink, 0o777, owner, Some(target), &[])
            }
        }
    }

    /// The compressed bytes.
    pub(super) fn finish(self) -> Result<Vec<u8>> {
        self.archive.into_inner().and_then(GzEncoder::finish).context("finishing a tar archive")
    }

    fn append(
        &mut self,
        name: &str,
        kind: EntryType,
        mode: u32,
        (owner, group): (&str, &str),
        target: Option<&str>,
        content: &[u8],
    ) -> Result<()> {
        if name.len() > NAME_FIELD {
            self.long_name(name)?;
        }
        let mut header = self.header(name, kind, mode, content.len())?;
        header.set_username(owner).with_context(|| format!("owner {owner:?} of {name}"))?;
        header.set_groupname(group).with_context(|| format!("group {group:?} of {name}"))?;
        if let Some(target) = target {
            ensure!(target.len() <= NAME_FIELD, "the link {name} points to more than {NAME_FIELD} bytes: {target}");
            header.set_link_name_literal(target).with_context(|| format!("link {name} to {target}"))?;
        }
        header.set_cksum();
        self.archive.append(&header, content).with_context(|| format!("adding {name} to a tar archive"))
    }

    /// GNU's extension for names that don't fit: a member of its own that holds the name of the next one.
    fn long_name(&mut self, name: &str) -> Result<()> {
        let mut content = name.as_bytes().to_vec();
        content.push(0);
        let mut header = self.header("././@LongLink", EntryType::GNULongName, 0o644, content.len())?;
        header.set_cksum();
        self.archive.append(&header, content.as_slice()).with_context(|| format!("adding the long name {name}"))
    }

    /// The name is written as it is: `Header::set_path` would drop the leading `./`.
    fn header(&self, name: &str, kind: EntryType, mode: u32, size: usize) -> Result<Header> {
        let mut header = Header::new_gnu();
        let gnu = header.as_gnu_mut().context("a GNU header")?;
        let length = name.len().min(NAME_FIELD);
        (&mut gnu.name[..length]).write_all(&name.as_bytes()[..length])?;
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(self.timestamp);
        header.set_size(size as u64);
        Ok(header)
    }
}
