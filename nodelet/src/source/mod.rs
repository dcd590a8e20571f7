//! Where the desired state comes from, and which source wins.
//!
//! Before a cluster exists the local file says what the node is to be. From the first state that the cluster hands
//! out the cluster does, also while it can't be reached: its last state is kept on disk. To add a source: a module
//! here, and its place in [`choose`].

pub mod cluster;
pub mod local;

pub use cluster::{ClusterState, Permit};
pub use local::{InvalidState, local_file};

use crate::root::Root;
use crate::store::{Pin, Store, StoreError};
use nodelet_api::DesiredState;
use sha2::{Digest, Sha256};

/// A desired state, and where it comes from.
#[derive(Clone, Debug)]
pub struct Desired {
    /// The state, with presets expanded.
    pub state: DesiredState,
    /// Where it comes from, in words.
    pub origin: String,
    /// Why that source, in words.
    pub why: String,
    /// A short name for this content: the beginning of its hash.
    pub revision: String,
    /// The revision that the source asks for, which is another one while the host is kept away from that.
    pub asked: String,
    /// How far the source lets the node go; a local file lets it go all the way.
    pub permit: Option<Permit>,
    /// Why it is another one than the source asks for, when nodelet went back by itself.
    pub reverted: Option<String>,
}

/// What kept the sources from being read.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The local file is wrong.
    #[error(transparent)]
    Invalid(#[from] InvalidState),
    /// What was kept of the cluster can't be read.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Which file is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// The configured one, unless a cluster has taken over.
    Configured,
    /// The one that a person named: nothing else counts.
    Named,
}

/// The state that the winning source asks for. `None` when no source has one yet.
pub fn asked(root: &Root, file: &str, choice: Choice, store: &Store) -> Result<Option<Desired>, SourceError> {
    let cluster = match choice {
        Choice::Configured => cluster::kept(store)?,
        Choice::Named => None,
    };
    if cluster.is_some() {
        // A mistake in a file that doesn't count is nobody's trouble.
        return Ok(choose(None, cluster, file, choice));
    }
    Ok(choose(local_file(root, file.as_ref())?, None, file, choice))
}

/// Decides between the sources.
fn choose(local: Option<Desired>, cluster: Option<ClusterState>, file: &str, choice: Choice) -> Option<Desired> {
    match (cluster, local) {
        (Some(cluster), _) => Some(cluster.desired(file)),
        (None, Some(local)) => {
            let why = match choice {
                Choice::Configured => "no cluster has taken over",
                Choice::Named => "it was named on the command line",
            };
            Some(Desired { why: why.into(), ..local })
        }
        (None, None) => None,
    }
}

/// The state that is wanted: what the source asks for, or the last good one while the host is kept away from that.
pub fn wanted(asked: Desired, pin: Option<&Pin>) -> Desired {
    match pin {
        Some(pin) if pin.away_from == asked.revision => Desired {
            state: pin.good.state.clone(),
            origin: "the last good state".into(),
            why: format!("the node is kept away from revision {} of {}", pin.away_from, asked.origin),
            revision: pin.good.revision.clone(),
            asked: asked.revision,
            permit: None,
            reverted: pin.automatic.then(|| format!("revision {} of {} {}", pin.away_from, asked.origin, pin.reason)),
        },
        _ => asked,
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
    use nodelet_api::from_toml;

    #[test]
    fn a_revision_is_its_content() {
        let revision = |text: &str| revision_of(&from_toml(text).unwrap());
        let plain = revision("[[packages]]\nname = 'a'\nversion = '1'\n");
        assert_eq!(plain, revision("# why\n[[packages]]\nversion = \"1\"\nname = \"a\"\nhold = false\n"));
        assert_ne!(plain, revision("[[packages]]\nname = 'a'\nversion = '2'\n"));
    }

    #[test]
    fn the_cluster_wins_once_it_has_spoken() {
        let directory = tempfile::tempdir().unwrap();
        let root = Root::at(directory.path());
        let store = Store::open(&root).unwrap();
        let asked = |choice| asked(&root, "/state.toml", choice, &store);
        assert!(asked(Choice::Configured).unwrap().is_none());
        std::fs::write(root.join("/state.toml"), "[[packages]]\nname = 'a'\n").unwrap();
        assert_eq!(asked(Choice::Configured).unwrap().unwrap().why, "no cluster has taken over");
        let state: DesiredState = from_toml("[[packages]]\nname = 'b'\n").unwrap();
        cluster::keep(&store, &ClusterState::received("worker-1".into(), state)).unwrap();
        std::fs::write(root.join("/state.toml"), "nonsense").unwrap();
        let won = asked(Choice::Configured).unwrap().unwrap();
        assert_eq!((won.revision.as_str(), won.state.packages[0].name.as_str()), ("worker-1", "b"));
        assert!(won.why.contains("took over from /state.toml"), "{}", won.why);
        assert!(asked(Choice::Named).is_err(), "what a person names is read, whatever the cluster says");
    }
}
