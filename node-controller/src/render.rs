//! A class becomes a revision: an immutable object that is named by its content.

use nodelet_api::objects::NodeClass;
use nodelet_api::{DesiredState, Document, Problems};
use sha2::{Digest, Sha256};

/// What a class renders to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revision {
    /// Its name, which is the class's and the beginning of a hash of the content.
    pub name: String,
    /// The state, with presets expanded.
    pub state: DesiredState,
}

/// Names and labels of Kubernetes end at this length; the hash needs eleven characters of it.
const CLASS_NAME_LIMIT: usize = 52;

/// Renders a class. What is wrong with it is said for people.
pub fn render(class: &NodeClass) -> Result<Revision, Problems> {
    let mut problems = Problems::default();
    class.spec.state.check(&mut problems);
    let state = canonical(class.spec.state.expand());
    problems.into_result(())?;
    let name = class.metadata.name.as_deref().unwrap_or_default();
    let short: String = name.chars().take(CLASS_NAME_LIMIT).collect();
    Ok(Revision { name: format!("{}-{}", short.trim_end_matches(['-', '.']), hash(&state)), state })
}

/// The same state always looks the same, whatever the order in which its parts were written: several authors may
/// have merged their entries into one list.
fn canonical(mut state: DesiredState) -> DesiredState {
    state.repositories.sort_by(|a, b| a.name.cmp(&b.name));
    state.packages.sort_by(|a, b| a.name.cmp(&b.name));
    state.files.sort_by(|a, b| a.path.cmp(&b.path));
    state.units.sort_by(|a, b| a.name.cmp(&b.name));
    for unit in &mut state.units {
        unit.dropins.sort_by(|a, b| a.name.cmp(&b.name));
    }
    state.kernel.modules.sort();
    state
}

/// Ten characters: two of a million revisions of one class are the same with a chance of one in two.
fn hash(state: &DesiredState) -> String {
    let canonical = serde_json::to_vec(state).unwrap_or_default();
    Sha256::digest(&canonical).iter().take(5).fold(String::new(), |name, byte| name + &format!("{byte:02x}"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use nodelet_api::objects::NodeClassSpec;

    fn class(state: &str) -> NodeClass {
        let state = serde_json::from_str(state).unwrap();
        NodeClass::new("worker", NodeClassSpec { state, ..NodeClassSpec::default() })
    }

    #[test]
    fn a_revision_is_its_content() {
        let one = render(&class(r#"{"packages": [{"name": "a", "version": "1"}, {"name": "b"}]}"#)).unwrap();
        let same = r#"{"kernel": {}, "packages": [{"hold": false, "name": "b"}, {"version": "1", "name": "a"}]}"#;
        assert_eq!(render(&class(same)).unwrap().name, one.name);
        assert!(one.name.starts_with("worker-") && one.name.len() == "worker-".len() + 10, "{}", one.name);
        assert_ne!(render(&class(r#"{"packages": [{"name": "a"}]}"#)).unwrap().name, one.name);
        let config = |text: &str| class(&format!(r#"{{"runtime": {{"kind": "containerd", "config": {text}}}}}"#));
        let (a, b) = (config(r#"{"x": 1, "a": {"c": 1, "b": 2}}"#), config(r#"{"a": {"b": 2, "c": 1}, "x": 1}"#));
        assert_eq!(render(&a).unwrap().name, render(&b).unwrap().name, "the order of a preset's own fields");
    }

    #[test]
    fn a_contradiction_is_said() {
        let files = r#"{"files": [{"path": "/a", "content": "x"}, {"path": "/a/b", "content": "x"}]}"#;
        let problems = render(&class(files)).unwrap_err().to_string();
        assert!(problems.contains("nothing can lie below it"), "{problems}");
    }
}
