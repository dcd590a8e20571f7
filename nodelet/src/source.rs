//! Where the desired state comes from. For now that is the local file alone.

use crate::root::Root;
use crate::store::Pin;
use nodelet_api::{DesiredState, Problem, Problems, from_toml};
use sha2::{Digest, Sha256};
use std::fmt;
use std::path::{Path, PathBuf};

/// A desired state, and where it comes from.
#[derive(Clone, Debug)]
pub struct Desired {
    /// The state.
    pub state: DesiredState,
    /// Where it comes from, in words: the file, or why it is another one.
    pub origin: String,
    /// A short name for this content: the beginning of its hash.
    pub revision: String,
}

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
    let state: DesiredState = from_toml(&text).map_err(invalid)?;
    Ok(Some(Desired { revision: revision_of(&state), state, origin: origin.display().to_string() }))
}

/// The state that is wanted: the local file's, or the last good one while the host is kept away from that.
pub fn wanted(local: Desired, pin: Option<&Pin>) -> Desired {
    match pin {
        Some(pin) if pin.away_from == local.revision => Desired {
            state: pin.good.state.clone(),
            origin: format!("the last good state; {} has revision {}, {}", local.origin, pin.away_from, pin.reason),
            revision: pin.good.revision.clone(),
        },
        _ => local,
    }
}

/// A name for a state by its content: comments, order of fields and spacing don't change it.
pub fn revision_of(state: &DesiredState) -> String {
    let canonical = serde_json::to_vec(state).unwrap_or_default();
    let digest = Sha256::digest(&canonical);
    digest.iter().take(6).fold(String::new(), |name, byte| name + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_revision_is_its_content() {
        let revision = |text: &str| revision_of(&from_toml(text).unwrap());
        let plain = revision("[[packages]]\nname = 'a'\nversion = '1'\n");
        assert_eq!(plain, revision("# why\n[[packages]]\nversion = \"1\"\nname = \"a\"\nhold = false\n"));
        assert_ne!(plain, revision("[[packages]]\nname = 'a'\nversion = '2'\n"));
    }

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
