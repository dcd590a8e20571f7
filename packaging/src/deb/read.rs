//! Reads the `control` paragraph of any `.deb`, for a repository's index.

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;

/// The paragraph of a package, as text and by field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    /// The paragraph as it is in the package, ending with a line break.
    pub text: String,
}

impl Fields {
    /// The first line of a field, by its exact name.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.text.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            (key == name).then(|| value.trim())
        })
    }

    /// A field that every package has.
    pub fn require(&self, name: &str) -> Result<&str> {
        self.get(name).with_context(|| format!("the control paragraph has no field {name}"))
    }
}

/// The control paragraph of the package at `path`.
pub fn fields(path: &Path) -> Result<Fields> {
    let attempt = || format!("reading the control paragraph of {}", path.display());
    let file = File::open(path).with_context(attempt)?;
    let mut archive = ar::Archive::new(BufReader::new(file));
    while let Some(member) = archive.next_entry() {
        let member = member.with_context(attempt)?;
        let name = String::from_utf8_lossy(member.header().identifier()).trim_end_matches('/').to_owned();
        match name.as_str() {
            "control.tar.gz" => return paragraph(GzDecoder::new(member)).with_context(attempt),
            "control.tar" => return paragraph(member).with_context(attempt),
            // Debian's own packages: xz or zstd, for which dpkg-deb is at hand wherever there are such packages.
            other if other.starts_with("control.tar.") => return by_dpkg(path).with_context(attempt),
            _ => {}
        }
    }
    bail!("{} holds no control archive: not a Debian package?", path.display())
}

fn paragraph(reader: impl Read) -> Result<Fields> {
    let mut archive = tar::Archive::new(reader);
    for entry in archive.entries()? {
        let mut entry = entry?;
        if entry.path()?.file_name().is_some_and(|name| name == "control") {
            let mut text = String::new();
            entry.read_to_string(&mut text)?;
            return Ok(finished(&text));
        }
    }
    bail!("the control archive holds no control file")
}

fn by_dpkg(path: &Path) -> Result<Fields> {
    let output = Command::new("dpkg-deb").arg("--field").arg(path).output().context("running dpkg-deb --field")?;
    ensure!(output.status.success(), "dpkg-deb --field: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(finished(&String::from_utf8(output.stdout)?))
}

fn finished(text: &str) -> Fields {
    Fields { text: format!("{}\n", text.trim_end()) }
}
