//! A container image, written as an archive that `ctr images import`, `docker load` and `podman load` take.
//!
//! No registry and no container tool is needed: the archive is a tar file with one layer, which is a tar file itself,
//! and two JSON texts. Everything is sorted and has the time zero, so that the same content is the same bytes.

mod controller;
mod libraries;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde_json::json;
use tar::{Builder, EntryType, Header};
use tempfile::NamedTempFile;

use crate::arch::Arch;
use crate::digest::sha256;
use crate::package::{Entry, Kind, is_clean};

pub use controller::{CONTROLLER, controller};

/// The time of everything in an image, as its description writes it.
const EPOCH: &str = "1970-01-01T00:00:00Z";
/// The longest tag that registries and runtimes accept.
const TAG_LENGTH: usize = 128;

/// A container image with one layer.
#[derive(Debug, Clone)]
pub struct Image {
    arch: Arch,
    names: Vec<String>,
    entries: BTreeMap<String, Entry>,
    entrypoint: Vec<String>,
    command: Vec<String>,
    environment: Vec<String>,
    user: Option<String>,
    labels: BTreeMap<String, String>,
}

impl Image {
    /// An image with nothing in it.
    pub fn new(arch: Arch) -> Self {
        Self {
            arch,
            names: Vec::new(),
            entries: BTreeMap::new(),
            entrypoint: Vec::new(),
            command: Vec::new(),
            environment: Vec::new(),
            user: None,
            labels: BTreeMap::new(),
        }
    }

    /// Adds a name that it is imported under, such as `example.org/program:1.0`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// Adds a file of root's. The directories above it come by themselves.
    #[must_use]
    pub fn file(self, path: impl Into<String>, mode: u32, content: impl Into<Vec<u8>>) -> Self {
        self.entry(Entry::new(path, Kind::File(content.into()), mode))
    }

    /// Adds a symbolic link.
    #[must_use]
    pub fn symlink(self, path: impl Into<String>, target: impl Into<String>) -> Self {
        self.entry(Entry::new(path, Kind::Symlink(target.into()), 0o777))
    }

    /// Adds a path; one that was there is replaced.
    #[must_use]
    pub fn entry(mut self, entry: Entry) -> Self {
        self.entries.insert(entry.path.clone(), entry);
        self
    }

    /// What is run; a pod's `args` come behind it.
    #[must_use]
    pub fn entrypoint(mut self, words: &[&str]) -> Self {
        self.entrypoint = words.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// The arguments, where a pod gives none.
    #[must_use]
    pub fn command(mut self, words: &[&str]) -> Self {
        self.command = words.iter().map(|&word| word.to_owned()).collect();
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push(format!("{name}={value}"));
        self
    }

    /// Who runs it. In numbers: only then can Kubernetes see that it is not root.
    #[must_use]
    pub fn user(mut self, user: u32, group: u32) -> Self {
        self.user = Some(format!("{user}:{group}"));
        self
    }

    /// Adds a label.
    #[must_use]
    pub fn label(mut self, name: &str, value: &str) -> Self {
        self.labels.insert(name.to_owned(), value.to_owned());
        self
    }

    /// The names that it is imported under.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Writes the archive. What was at the path is replaced in one step, and never seen half written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let what = || format!("writing the image to {}", path.display());
        let bytes = self.archive().with_context(what)?;
        let directory = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        fs::create_dir_all(directory).with_context(what)?;
        let mut file = NamedTempFile::new_in(directory).with_context(what)?;
        file.write_all(&bytes).with_context(what)?;
        file.as_file().set_permissions(Permissions::from_mode(0o644)).with_context(what)?;
        file.persist(path).with_context(what)?;
        Ok(())
    }

    /// The archive's bytes.
    pub fn archive(&self) -> Result<Vec<u8>> {
        ensure!(!self.names.is_empty(), "an image without a name can't be found once it is imported: give it one");
        for name in &self.names {
            check_name(name)?;
        }
        let layer = self.layer()?;
        let mut config = json!({
            "architecture": self.architecture()?,
            "os": "linux",
            "created": EPOCH,
            "config": {
                "Entrypoint": self.entrypoint,
                "Cmd": self.command,
                "Env": self.environment,
                "Labels": self.labels,
            },
            "history": [{"created": EPOCH, "created_by": "packaging image"}],
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", sha256(&layer))]},
        });
        if let Some(user) = &self.user {
            config["config"]["User"] = json!(user);
        }
        let manifest = json!([{"Config": "config.json", "RepoTags": self.names, "Layers": ["layer.tar"]}]);
        let mut archive = Builder::new(Vec::new());
        for (name, content) in [
            ("config.json", config.to_string().as_bytes()),
            ("layer.tar", &layer),
            ("manifest.json", manifest.to_string().as_bytes()),
        ] {
            append(&mut archive, name, &Kind::File(Vec::new()), 0o644, content)?;
        }
        archive.into_inner().context("finishing the archive")
    }

    /// The layer: directories before what is in them, which sorting by path gives.
    fn layer(&self) -> Result<Vec<u8>> {
        let mut all: BTreeMap<&str, (&Kind, u32)> = BTreeMap::new();
        for path in self.entries.keys() {
            ensure!(is_clean(path), "{path:?} is not a clean absolute path");
            for (end, _) in path.match_indices('/').skip(1) {
                all.entry(&path[..end]).or_insert((&Kind::Directory, 0o755));
            }
        }
        for (path, entry) in &self.entries {
            let kept = all.insert(path, (&entry.kind, entry.mode));
            ensure!(
                kept.is_none() || entry.kind == Kind::Directory,
                "{path} is no directory, and something is below it"
            );
        }
        let mut layer = Builder::new(Vec::new());
        for (path, (kind, mode)) in all {
            let content = if let Kind::File(content) = kind { content.as_slice() } else { &[] };
            append(&mut layer, &path[1..], kind, mode, content)?;
        }
        layer.into_inner().context("finishing the layer")
    }

    /// The name of the architecture in the world of containers, which is Go's.
    fn architecture(&self) -> Result<&'static str> {
        match self.arch {
            Arch::Amd64 => Ok("amd64"),
            Arch::Arm64 => Ok("arm64"),
            Arch::All => bail!("an image is for one architecture, and none was given"),
        }
    }
}

fn append(archive: &mut Builder<Vec<u8>>, path: &str, kind: &Kind, mode: u32, content: &[u8]) -> Result<()> {
    let what = || format!("adding {path} to a tar archive");
    let mut header = Header::new_ustar();
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(content.len() as u64);
    match kind {
        Kind::File(_) => header.set_entry_type(EntryType::Regular),
        Kind::Directory => header.set_entry_type(EntryType::Directory),
        Kind::Symlink(target) => {
            header.set_entry_type(EntryType::Symlink);
            return archive.append_link(&mut header, path, target).with_context(what);
        }
    }
    archive.append_data(&mut header, path, content).with_context(what)
}

/// A name that is imported but that nobody can ask for is worse than an error here.
fn check_name(name: &str) -> Result<()> {
    let Some((repository, tag)) = name.rsplit_once(':').filter(|(_, tag)| !tag.contains('/')) else {
        bail!("the image name {name:?} has no tag: write it as example.org/program:1.0");
    };
    let plain = |letter: u8| letter.is_ascii_alphanumeric() || letter == b'_';
    ensure!(
        !tag.is_empty()
            && tag.len() <= TAG_LENGTH
            && tag.bytes().next().is_some_and(plain)
            && tag.bytes().all(|letter| plain(letter) || letter == b'.' || letter == b'-'),
        "{tag:?} can't be an image's tag: use letters, digits, `_`, `.` and `-`, at most {TAG_LENGTH} of them"
    );
    ensure!(
        !repository.is_empty() && !repository.bytes().any(|letter| letter.is_ascii_whitespace()),
        "the image name {name:?} has nothing before its tag"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
    use super::*;
    use serde_json::Value;
    use std::io::Read;

    fn image() -> Image {
        Image::new(Arch::Amd64)
            .name("example.org/program:1.0")
            .file("/usr/bin/program", 0o755, "content")
            .symlink("/bin/program", "../usr/bin/program")
            .file("/etc/passwd", 0o644, "x")
            .entrypoint(&["/bin/program"])
            .command(&["run"])
            .env("A", "b")
            .user(65532, 65532)
    }

    /// Names, kinds, modes and contents of a tar archive.
    fn members(bytes: &[u8]) -> Vec<(String, EntryType, u32, Vec<u8>)> {
        let mut archive = tar::Archive::new(bytes);
        let read = archive.entries().unwrap().map(|entry| {
            let mut entry = entry.unwrap();
            let header = entry.header().clone();
            assert_eq!((header.mtime().unwrap(), header.uid().unwrap(), header.gid().unwrap()), (0, 0, 0));
            let mut content = Vec::new();
            entry.read_to_end(&mut content).unwrap();
            let name = entry.path().unwrap().to_str().unwrap().trim_end_matches('/').to_owned();
            (name, header.entry_type(), header.mode().unwrap(), content)
        });
        read.collect()
    }

    #[test]
    fn the_description_fits_the_layer() {
        let archive = members(&image().archive().unwrap());
        let text = |name: &str| &archive.iter().find(|member| member.0 == name).unwrap().3;
        let manifest: Value = serde_json::from_slice(text("manifest.json")).unwrap();
        assert_eq!(manifest[0]["RepoTags"], json!(["example.org/program:1.0"]));
        let config: Value = serde_json::from_slice(text(manifest[0]["Config"].as_str().unwrap())).unwrap();
        let layer = text(manifest[0]["Layers"][0].as_str().unwrap());
        assert_eq!(config["rootfs"]["diff_ids"], json!([format!("sha256:{}", sha256(layer))]));
        assert_eq!((&config["architecture"], &config["os"]), (&json!("amd64"), &json!("linux")));
        let run = &config["config"];
        assert_eq!((&run["Entrypoint"], &run["Cmd"]), (&json!(["/bin/program"]), &json!(["run"])));
        assert_eq!((&run["User"], &run["Env"]), (&json!("65532:65532"), &json!(["A=b"])));
    }

    #[test]
    fn the_layer_is_sorted_and_has_its_directories() {
        let layer = members(&image().layer().unwrap());
        let names: Vec<&str> = layer.iter().map(|member| member.0.as_str()).collect();
        assert_eq!(names, ["bin", "bin/program", "etc", "etc/passwd", "usr", "usr/bin", "usr/bin/program"]);
        assert_eq!((layer[0].1, layer[0].2), (EntryType::Directory, 0o755));
        assert_eq!(layer[1].1, EntryType::Symlink);
        assert_eq!((layer[6].2, layer[6].3.as_slice()), (0o755, &b"content"[..]));
    }

    #[test]
    fn the_same_content_is_the_same_bytes() {
        let other = Image::new(Arch::Amd64)
            .name("example.org/program:1.0")
            .user(65532, 65532)
            .file("/etc/passwd", 0o644, "x")
            .symlink("/bin/program", "../usr/bin/program")
            .env("A", "b")
            .file("/usr/bin/program", 0o755, "content")
            .command(&["run"])
            .entrypoint(&["/bin/program"]);
        assert_eq!(image().archive().unwrap(), other.archive().unwrap());
    }

    #[test]
    fn a_file_is_replaced_whole_and_may_be_read_by_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/image.tar");
        for _ in 0..2 {
            image().write(&path).unwrap();
            assert_eq!(fs::read(&path).unwrap(), image().archive().unwrap());
        }
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o644);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
    }

    #[test]
    fn what_can_not_work_is_refused() {
        let named = |name: &str| Image::new(Arch::Amd64).name(name);
        for (image, words) in [
            (Image::new(Arch::Amd64), "without a name"),
            (named("program"), "has no tag"),
            (named("example.org:5000/program"), "has no tag"),
            (named("program:"), "can't be an image's tag"),
            (named("program:1.0~rc1"), "can't be an image's tag"),
            (named(":1"), "nothing before its tag"),
            (Image::new(Arch::All).name("a:1"), "for one architecture"),
            (named("a:1").file("relative", 0o644, ""), "clean absolute path"),
            (named("a:1").file("/a", 0o644, "").file("/a/b", 0o644, ""), "something is below it"),
        ] {
            let error = format!("{:#}", image.archive().unwrap_err());
            assert!(error.contains(words), "{error}");
        }
    }
}
