//! The local file.

use super::{Desired, revision_of};
use crate::root::Root;
use nodelet_api::{DesiredState, Problem, Problems, from_toml};
use std::fmt;
use std::path::{Path, PathBuf};

/// What is wrong with a state file.
#[derive(Debug, thiserror::Error)]
pub struct InvalidState {
    path: PathBuf,
    problems: Problems,
}

impl InvalidState {
    /// Each problem.
    pub fn problems(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter()
    }
}

impl fmt::Display for InvalidState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the desired state is invalid, so nothing is changed:")?;
        for problem in &self.problems {
            write!(f, "\n{}:{problem}", self.path.display())?;
        }
        Ok(())
    }
}

/// Reads a state file. `None` when it doesn't exist: nothing is wanted of this node yet.
pub fn local_file(root: &Root, path: &Path) -> Result<Option<Desired>, InvalidState> {
    let origin = root.join(path);
    let invalid = |problems| InvalidState { path: origin.clone(), problems };
    let text = match std::fs::read_to_string(&origin) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let mut problems = Problems::default();
            problems.add(nodelet_api::FieldPath::root(), format!("reading it failed: {error}"));
            return Err(invalid(problems));
        }
    };
    if text.trim().is_empty() {
        // A file that is being written, or that a full disk left: taken as a state it would take everything away.
        let mut problems = Problems::default();
        let message =
            "the file is empty: remove it to leave the node as it is, or write a comment to take everything back";
        problems.add(nodelet_api::FieldPath::root(), message);
        return Err(invalid(problems));
    }
    let state = from_toml::<DesiredState>(&text).map_err(invalid)?.expand();
    let (revision, origin) = (revision_of(&state), origin.display().to_string());
    Ok(Some(Desired {
        state,
        origin,
        why: String::new(),
        asked: revision.clone(),
        revision,
        permit: None,
        reverted: None,
    }))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn an_empty_file_is_a_mistake() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("state.toml"), "\n").unwrap();
        let error = local_file(&Root::at(directory.path()), Path::new("/state.toml")).unwrap_err().to_string();
        assert!(error.contains("the file is empty"), "{error}");
    }

    #[test]
    fn a_missing_file_wants_nothing() {
        let directory = tempfile::tempdir().unwrap();
        assert!(local_file(&Root::at(directory.path()), Path::new("/state.toml")).unwrap().is_none());
    }
}
