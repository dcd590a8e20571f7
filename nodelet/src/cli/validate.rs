//! `nodelet validate`

use super::{Global, Output, print_json};
use crate::settings::{InvalidSettings, Settings};
use crate::{exit, settings, source};
use anyhow::Context;
use clap::ValueEnum;
use nodelet_api::{DesiredState, Problem, Problems, from_toml};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub(super) struct Options {
    /// Files to check; without any, the configuration in effect and the state that it names.
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// What the files are; without it, told by their names: `nodelet.toml` and what lies in a
    /// `nodelet.toml.d` are configuration, all others are states.
    #[arg(long, value_enum)]
    kind: Option<Kind>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Kind {
    /// A desired state.
    State,
    /// nodelet's own configuration.
    Config,
}

type Found = Vec<(PathBuf, Problem)>;

pub(super) fn execute(global: &Global, options: &Options) -> anyhow::Result<ExitCode> {
    let (checked, found) = if options.files.is_empty() { in_effect(global) } else { files(options)? };
    match global.output {
        Output::Json => {
            let entries: Vec<_> = found.iter().map(|(path, problem)| json(path, problem)).collect();
            print_json(&serde_json::json!({"valid": found.is_empty(), "problems": entries}))?;
        }
        Output::Text => {
            for (path, problem) in &found {
                println!("{}:{problem}", path.display());
            }
            for path in checked.iter().filter(|path| !found.iter().any(|(bad, _)| bad == *path)) {
                println!("{}: valid", path.display());
            }
        }
    }
    Ok(exit::code(if found.is_empty() { exit::OK } else { exit::INVALID }))
}

fn json(path: &Path, problem: &Problem) -> serde_json::Value {
    serde_json::json!({
        "file": path.display().to_string(),
        "line": problem.position.map(|position| position.line),
        "column": problem.position.map(|position| position.column),
        "path": problem.path.to_string(),
        "message": problem.message,
    })
}

fn in_effect(global: &Global) -> (Vec<PathBuf>, Found) {
    let loaded = match settings::load(&global.root(), &global.config) {
        Ok(loaded) => loaded,
        Err(error) => return (Vec::new(), settings_problems(&error)),
    };
    let mut checked: Vec<PathBuf> = loaded.files().map(Path::to_owned).collect();
    let state = loaded.settings.state.file.as_str();
    let origin = global.root().join(state);
    match source::local_file(&global.root(), state.as_ref()) {
        Ok(None) => (checked, Vec::new()),
        Ok(Some(_)) => {
            checked.push(origin);
            (checked, Vec::new())
        }
        Err(invalid) => (checked, invalid.problems().map(|problem| (origin.clone(), problem.clone())).collect()),
    }
}

fn settings_problems(error: &InvalidSettings) -> Found {
    error.problems().to_vec()
}

fn files(options: &Options) -> anyhow::Result<(Vec<PathBuf>, Found)> {
    let mut found = Vec::new();
    for path in &options.files {
        let text = std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        let problems = match options.kind.unwrap_or_else(|| kind_of(path)) {
            Kind::State => from_toml::<DesiredState>(&text).err(),
            Kind::Config => from_toml::<Settings>(&text).err(),
        };
        found.extend(problems.map(Problems::into_iter).into_iter().flatten().map(|problem| (path.clone(), problem)));
    }
    Ok((options.files.clone(), found))
}

fn kind_of(path: &Path) -> Kind {
    let named = |part: Option<&std::ffi::OsStr>, name: &str| part.is_some_and(|part| part == name);
    let directory = path.parent().and_then(Path::file_name);
    if named(path.file_name(), "nodelet.toml") || named(directory, "nodelet.toml.d") {
        Kind::Config
    } else {
        Kind::State
    }
}
