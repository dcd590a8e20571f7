//! `packaging/files.toml` and its like: what the packages install.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use flate2::{Compression, GzBuilder};
use serde::Deserialize;

use super::{Format, Sources, mode};
use crate::package::{Entry, Kind};

/// Stands for the program in place of a source.
const BINARY: &str = "@binary";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct List {
    entry: Vec<Line>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    path: String,
    source: Option<String>,
    mode: Option<String>,
    #[serde(default)]
    config: bool,
    #[serde(default)]
    compress: bool,
    formats: Option<Vec<Format>>,
}

pub(super) fn entries(sources: &Sources, binary: Vec<u8>, format: Format) -> Result<Vec<Entry>> {
    let name = sources.product().files();
    let list: List = toml::from_str(&sources.read(name)?).with_context(|| format!("reading {name}"))?;
    let mut entries = Vec::new();
    let mut binary = Some(binary);
    for line in list.entry {
        if line.formats.as_ref().is_some_and(|formats| !formats.contains(&format)) {
            continue;
        }
        let place = || format!("{name}: {}", line.path);
        let mode = mode(line.mode.as_deref().unwrap_or("0644")).with_context(place)?;
        let Some(source) = &line.source else {
            entries.push(Entry::new(&line.path, Kind::Directory, mode));
            continue;
        };
        let files = if source == BINARY {
            vec![(line.path.clone(), binary.take().with_context(|| format!("{name}: {BINARY} twice"))?)]
        } else {
            contents(sources.root(), source, &line.path).with_context(place)?
        };
        for (path, content) in files {
            let (path, content) = if line.compress { (format!("{path}.gz"), gzip(&content)?) } else { (path, content) };
            entries.push(Entry { config: line.config, ..Entry::new(path, Kind::File(content), mode) });
        }
    }
    Ok(entries)
}

/// The files that a source names, with the paths that they are installed under.
fn contents(root: &Path, source: &str, target: &str) -> Result<Vec<(String, Vec<u8>)>> {
    let read = |path: &Path| fs::read(path).with_context(|| format!("reading {}", path.display()));
    let Some((directory, suffix)) = source.split_once('*') else {
        return Ok(vec![(target.to_owned(), read(&root.join(source))?)]);
    };
    ensure!(target.ends_with('/'), "the path must end in / where the source has a *");
    let directory = root.join(directory);
    let mut paths: Vec<PathBuf> = fs::read_dir(&directory)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect())
        .with_context(|| format!("listing {}", directory.display()))?;
    // The directory's own order differs from machine to machine.
    paths.sort();
    let mut found = Vec::new();
    for path in paths {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(suffix) {
            found.push((format!("{target}{name}"), read(&path)?));
        }
    }
    ensure!(!found.is_empty(), "no file matches {source}; `packaging generate` makes the generated ones");
    Ok(found)
}

fn gzip(content: &[u8]) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().write(Vec::new(), Compression::best());
    encoder.write_all(content).and_then(|()| encoder.finish()).context("compressing")
}
