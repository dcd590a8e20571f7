//! Finds the configuration's fragments, merges them, and keeps track of which file says what.

use super::Settings;
use crate::root::Root;
use nodelet_api::document::from_value;
use nodelet_api::toml_source::{self, TomlSource};
use nodelet_api::{FieldPath, Problem, Problems, schema};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

/// Directories above the main file's own, least important first.
const BASES: [&str; 2] = ["/usr/lib/nodelet", "/run/nodelet"];

/// One configuration file.
#[derive(Debug)]
struct Fragment {
    path: PathBuf,
    source: TomlSource,
}

/// Settings that were read, and where they come from.
#[derive(Debug)]
pub struct Loaded {
    /// The settings in effect.
    pub settings: Settings,
    fragments: Vec<Fragment>,
}

impl Loaded {
    /// The files that were read, least important first.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        self.fragments.iter().map(|fragment| fragment.path.as_path())
    }

    /// The file that says this field; `None` for a default.
    pub fn origin(&self, path: &FieldPath) -> Option<&Path> {
        last_setting(&self.fragments, path).map(|fragment| fragment.path.as_path())
    }
}

fn last_setting<'f>(fragments: &'f [Fragment], path: &FieldPath) -> Option<&'f Fragment> {
    fragments.iter().rev().find(|fragment| fragment.source.sets(path))
}

/// What is wrong with the configuration, file by file.
#[derive(Debug, thiserror::Error)]
pub struct InvalidSettings {
    problems: Vec<(PathBuf, Problem)>,
}

impl InvalidSettings {
    /// Each problem with its file.
    pub fn problems(&self) -> &[(PathBuf, Problem)] {
        &self.problems
    }
}

impl fmt::Display for InvalidSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is invalid, so nothing is done:")?;
        for (path, problem) in &self.problems {
            write!(f, "\n{}:{problem}", path.display())?;
        }
        Ok(())
    }
}

/// Reads the main file and its drop-ins. A main file that doesn't exist is an empty one.
pub fn load(root: &Root, main: &Path) -> Result<Loaded, InvalidSettings> {
    let mut fragments = Vec::new();
    let mut problems = Vec::new();
    for path in files(root, main) {
        match read(&path) {
            Ok(Some(source)) => fragments.push(Fragment { path, source }),
            Ok(None) => {}
            Err(found) => problems.extend(found.into_iter().map(|problem| (path.clone(), problem))),
        }
    }
    if !problems.is_empty() {
        return Err(InvalidSettings { problems });
    }
    let mut merged = Value::Object(Map::new());
    for fragment in &fragments {
        merge(&mut merged, &fragment.source.value);
    }
    let settings = from_value(merged).map_err(|found| InvalidSettings {
        problems: found.into_iter().map(|problem| placed(problem, &fragments, main)).collect(),
    })?;
    Ok(Loaded { settings, fragments })
}

/// The files in the order in which they are merged.
fn files(root: &Root, main: &Path) -> Vec<PathBuf> {
    let name = main.file_name().unwrap_or_default().to_string_lossy();
    let own = main.parent().unwrap_or(Path::new("/"));
    let directories = BASES.iter().map(Path::new).chain([own]).map(|base| root.join(base.join(format!("{name}.d"))));
    // A name in a later directory replaces the same name of an earlier one, as systemd does.
    let mut dropins: BTreeMap<String, PathBuf> = BTreeMap::new();
    for directory in directories {
        for entry in std::fs::read_dir(&directory).into_iter().flatten().flatten() {
            let file = entry.file_name().to_string_lossy().into_owned();
            if Path::new(&file).extension().is_some_and(|suffix| suffix == "toml") && !file.starts_with('.') {
                dropins.insert(file, entry.path());
            }
        }
    }
    std::iter::once(root.join(main)).chain(dropins.into_values()).collect()
}

/// Reads one file and holds it against the schema, so that each mistake is told with its own file and line.
fn read(path: &Path) -> Result<Option<TomlSource>, Problems> {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let mut problems = Problems::default();
            problems.add(FieldPath::root(), format!("reading it failed: {error}"));
            return Err(problems);
        }
    };
    let source = toml_source::parse(&text)?;
    schema::check::<Settings>(&source.value).located(|path| source.locate(path)).into_result(())?;
    Ok(Some(source))
}

/// Tables are merged, everything else is replaced.
fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

/// A contradiction belongs to the last file that set one of its fields.
fn placed(problem: Problem, fragments: &[Fragment], main: &Path) -> (PathBuf, Problem) {
    match last_setting(fragments, &problem.path) {
        Some(fragment) => {
            let position = fragment.source.locate(&problem.path);
            (fragment.path.clone(), Problem { position, ..problem })
        }
        None => (main.to_owned(), problem),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::settings::{Level, MAIN_FILE};

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        for (path, text) in files {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        (directory, root)
    }

    #[test]
    fn later_directories_win_and_same_names_replace() {
        let (_keep, root) = tree(&[
            ("/etc/nodelet/nodelet.toml", "[node]\nname = 'main'\n[check]\nintervalSeconds = 60\n"),
            ("/usr/lib/nodelet/nodelet.toml.d/10-a.toml", "[node]\nname = 'vendor'\n[log]\nlevel = 'debug'\n"),
            ("/etc/nodelet/nodelet.toml.d/10-a.toml", "[log]\nlevel = 'warn'\n"),
            ("/run/nodelet/nodelet.toml.d/05-b.toml", "[log]\nlevel = 'error'\n[check]\nretrySeconds = 3\n"),
            ("/etc/nodelet/nodelet.toml.d/ignored.conf", "nonsense"),
        ]);
        let loaded = load(&root, Path::new(MAIN_FILE)).unwrap();
        assert_eq!(loaded.settings.node.name, "main");
        assert_eq!(loaded.settings.log.level, Level::Warn);
        assert_eq!((loaded.settings.check.interval_seconds, loaded.settings.check.retry_seconds), (60, 3));
        let level = FieldPath::root().key("log").key("level");
        assert!(loaded.origin(&level).unwrap().ends_with("etc/nodelet/nodelet.toml.d/10-a.toml"));
        assert_eq!(loaded.files().count(), 3);
    }

    #[test]
    fn nothing_is_a_valid_configuration() {
        let (_keep, root) = tree(&[]);
        assert_eq!(load(&root, Path::new(MAIN_FILE)).unwrap().settings, Settings::default());
    }

    #[test]
    fn mistakes_of_all_files_are_told_with_file_and_line() {
        let (_keep, root) = tree(&[
            ("/etc/nodelet/nodelet.toml", "\n[nod]\nname = 'x'\n"),
            ("/etc/nodelet/nodelet.toml.d/1.toml", "[log]\nlevel = 'loud'\n"),
        ]);
        let error = load(&root, Path::new(MAIN_FILE)).unwrap_err();
        let lines: Vec<String> = error.problems().iter().map(|(_, problem)| problem.to_string()).collect();
        assert_eq!(lines[0], "2:2: nod: there is no field `nod`: did you mean `node`?");
        assert!(lines[1].starts_with("2:1: log.level: \"loud\" is not a choice here"), "{lines:?}");
    }

    #[test]
    fn a_contradiction_names_the_file_that_made_it() {
        let (_keep, root) = tree(&[
            ("/etc/nodelet/nodelet.toml", "[check]\nintervalSeconds = 60\n"),
            ("/etc/nodelet/nodelet.toml.d/1.toml", "\n[check]\nretrySeconds = 70\n"),
        ]);
        let error = load(&root, Path::new(MAIN_FILE)).unwrap_err().to_string();
        assert!(error.contains("1.toml:3:1: check.retrySeconds: a retry would come later"), "{error}");
    }
}
