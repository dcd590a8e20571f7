//! Units of the node that gates name: its nodelet reports them, and they must be active after a change.

use nodelet_api::objects::{NodeSet, NodeState, NodeStateSpec};
use std::collections::BTreeSet;

/// The units whose state nodes are asked for.
pub(super) fn asked(set: &NodeSet) -> Vec<String> {
    let units: BTreeSet<&String> = set.spec.health.gates.iter().flat_map(|gate| &gate.units).collect();
    units.into_iter().cloned().collect()
}

/// The first unit that is not well, in words.
///
/// A nodelet that is too old to report units is not waited for: it would hold every rollout up, and the one that brings the
/// newer nodelet first of all. It is known by its version: one of 0.1 is not even asked, and all others report what they are
/// asked for.
pub(super) fn unwell(set: &NodeSet, state: Option<&NodeState>) -> Option<String> {
    let asked = asked(set);
    let first = asked.first()?;
    let status = state.and_then(|state| state.status.as_ref());
    let version = status.map(|status| status.nodelet_version.as_str()).filter(|version| !version.is_empty());
    let question = NodeStateSpec { units: asked.clone(), ..NodeStateSpec::default() };
    if version.is_some_and(|version| question.for_nodelet(version).units.is_empty()) {
        return None;
    }
    let Some(reported) = status.and_then(|status| status.units.as_ref()) else {
        return Some(format!("its nodelet has not reported {first} yet"));
    };
    asked.iter().find_map(|name| match reported.iter().find(|unit| unit.name == *name) {
        Some(unit) if unit.state == "active" => None,
        Some(unit) => Some(format!("{name} is {}", unit.state)),
        None => Some(format!("its nodelet has not reported {name} yet")),
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use serde_json::{Value, json};

    fn set() -> NodeSet {
        let gates = json!([{"name": "a", "units": ["b.service", "a.service"]}, {"name": "b", "units": ["a.service"]}]);
        let spec = json!({"classRef": {"name": "c"}, "health": {"gates": gates}});
        serde_json::from_value(json!({
            "apiVersion": "nodelet.dev/v1alpha1", "kind": "NodeSet", "metadata": {"name": "s"}, "spec": spec,
        }))
        .unwrap()
    }

    fn state(asked: &Value, observed: i64, units: &Value) -> NodeState {
        serde_json::from_value(json!({
            "apiVersion": "nodelet.dev/v1alpha1", "kind": "NodeState", "metadata": {"name": "n", "generation": 2},
            "spec": {"units": asked}, "status": {"observedGeneration": observed, "units": units},
        }))
        .unwrap()
    }

    #[test]
    fn a_nodelet_that_can_not_be_asked_is_not_waited_for() {
        let mut old = state(&json!([]), 1, &Value::Null);
        old.status.as_mut().unwrap().nodelet_version = "0.1.0".into();
        assert_eq!(unwell(&set(), Some(&old)), None);
        old.status.as_mut().unwrap().nodelet_version = "0.2.0".into();
        assert!(unwell(&set(), Some(&old)).is_some(), "it is asked in a moment");
    }

    #[test]
    fn each_unit_is_asked_for_once() {
        assert_eq!(asked(&set()), ["a.service", "b.service"]);
    }

    #[test]
    fn units_must_be_active() {
        let both = json!(["a.service", "b.service"]);
        let unit = |name: &str, state: &str| json!({"name": name, "state": state, "restarts": 0});
        let (a, b) = (unit("a.service", "active"), unit("b.service", "active"));
        let late = "its nodelet has not reported a.service yet";
        for (asked, observed, units, expected) in [
            (&both, 2, json!([a, b]), None),
            (&both, 2, json!([a, unit("b.service", "failed")]), Some("b.service is failed")),
            (&both, 2, json!([unit("a.service", "activating"), b]), Some("a.service is activating")),
            (&both, 2, json!([a]), Some("its nodelet has not reported b.service yet")),
            (&both, 2, json!([]), Some(late)),
            // It has not said anything of them yet, or was not asked yet.
            (&both, 2, Value::Null, Some(late)),
            (&both, 1, Value::Null, Some(late)),
            (&json!([]), 2, Value::Null, Some(late)),
        ] {
            let state = state(asked, observed, &units);
            assert_eq!(unwell(&set(), Some(&state)).as_deref(), expected, "{asked} {observed} {units}");
        }
        assert_eq!(unwell(&set(), None).as_deref(), Some(late));
        let mut none = set();
        none.spec.health.gates.clear();
        assert_eq!(unwell(&none, None), None);
    }
}
