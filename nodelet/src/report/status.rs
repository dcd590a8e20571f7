//! The status file: what the daemon would say if it were asked. `nodelet status` shows it.

use crate::host::files;
use crate::plan::Drifted;
use crate::root::Root;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::io;

/// Where it is; the unit's `RuntimeDirectory`.
pub const STATUS_FILE: &str = "/run/nodelet/status.json";

/// How far the node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// There is no desired state yet.
    Waiting,
    /// The next revision is ready, and waits until it may be applied.
    Staged,
    /// Steps are being done.
    Converging,
    /// The node is as wanted.
    Converged,
    /// The node is as wanted but for what is only to be reported.
    Drifted,
    /// The state did not pass its health checks, and the node went back to the last good one; a person must correct it.
    Reverted,
    /// Something failed; it will be tried again.
    Failed,
    /// The desired state is invalid; a person must edit it.
    Invalid,
}

/// The daemon's own account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// nodelet's version.
    pub version: String,
    /// The daemon's process.
    pub pid: u32,
    /// How far the node is.
    pub phase: Phase,
    /// Since when.
    pub since: Timestamp,
    /// Where the desired state comes from.
    pub source: String,
    /// Why that source.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub source_reason: String,
    /// The cluster: followed, or why not. Without one there is nothing to say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The revision of the desired state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// What is managed.
    pub managed: Managed,
    /// One sentence that answers "why is this node not done?".
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// What failed last, and has not succeeded since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<LastError>,
    /// What is not as wanted, and is left so.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drifted: Vec<Drifted>,
    /// What is wrong with the configuration files; the settings read before stay in effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration_error: Option<String>,
}

/// A failure.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LastError {
    /// Its stable name.
    pub reason: String,
    /// What was tried, on what, and what to do next.
    pub message: String,
    /// When.
    pub at: Timestamp,
}

/// How many things are managed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Managed {
    /// Repositories.
    pub repositories: usize,
    /// Packages.
    pub packages: usize,
    /// Files, those of the state's own list.
    pub files: usize,
    /// Units.
    pub units: usize,
}

impl Managed {
    /// What a state manages.
    pub fn by(state: &nodelet_api::DesiredState) -> Self {
        Self {
            repositories: state.repositories.len(),
            packages: state.packages.len(),
            files: state.files.len(),
            units: state.units.len(),
        }
    }
}

impl std::fmt::Display for Managed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counted = [
            (self.repositories, "repository", "repositories"),
            (self.packages, "package", "packages"),
            (self.files, "file", "files"),
            (self.units, "unit", "units"),
        ];
        let words: Vec<String> = counted
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }))
            .collect();
        f.write_str(&if words.is_empty() { "nothing".to_owned() } else { words.join(", ") })
    }
}

impl Status {
    /// One line, for `systemctl status`.
    pub fn line(&self) -> String {
        let state = match (self.phase, &self.waiting_for) {
            (Phase::Converged, _) => format!("Converged: {}", self.managed),
            (Phase::Drifted, _) => {
                let names: Vec<&str> = self.drifted.iter().map(|drifted| drifted.resource.as_str()).collect();
                format!("Drifted, and left alone: {}", names.join(", "))
            }
            (phase, Some(waiting_for)) => format!("{phase:?}: {waiting_for}"),
            (phase, None) => format!("{phase:?}"),
        };
        match &self.configuration_error {
            None => state,
            Some(error) => format!("{state} (reload refused: {})", first_problem(error)),
        }
    }

    /// Writes the file, whole.
    pub fn write(&self, root: &Root) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(self)?;
        // For root only: an error may quote a service's own words.
        files::place_as_self(&root.join(STATUS_FILE), &text, 0o600)
    }

    /// Reads the file; `None` when no daemon has written one since boot.
    pub fn read(root: &Root) -> io::Result<Option<Self>> {
        match std::fs::read(root.join(STATUS_FILE)) {
            Ok(text) => Ok(Some(serde_json::from_slice(&text)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The first problem of a list of lines whose first is a heading.
pub fn first_problem(message: &str) -> &str {
    let mut lines = message.lines();
    let heading = lines.next().unwrap_or("");
    lines.next().unwrap_or(heading)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn counts_read_well() {
        let managed = Managed { repositories: 1, packages: 2, files: 0, units: 1 };
        assert_eq!(managed.to_string(), "1 repository, 2 packages, 1 unit");
        assert_eq!(Managed::default().to_string(), "nothing");
    }

    #[test]
    fn the_file_reads_back() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        assert_eq!(Status::read(&root).unwrap(), None);
        let status = Status {
            version: "1".into(),
            pid: 1,
            phase: Phase::Failed,
            since: Timestamp::UNIX_EPOCH,
            source: "/etc/nodelet/state.toml".into(),
            source_reason: String::new(),
            cluster: None,
            revision: Some("abc".into()),
            managed: Managed::default(),
            waiting_for: Some("a retry".into()),
            last_error: None,
            drifted: Vec::new(),
            configuration_error: Some("invalid:\n/etc/x:1:1: y".into()),
        };
        status.write(&root).unwrap();
        assert_eq!(Status::read(&root).unwrap(), Some(status.clone()));
        assert_eq!(status.line(), "Failed: a retry (reload refused: /etc/x:1:1: y)");
    }
}
