//! Configuration of another program, as a table that only that program understands.

use crate::problem::{FieldPath, Problems};
use crate::variables;
use serde_json::{Map, Value};

/// Fields of another program's configuration.
pub(super) type Table = Map<String, Value>;

/// `over` laid over `base`: tables are merged, everything else is replaced.
pub(super) fn merged(base: Value, over: Value) -> Value {
    match (base, over) {
        (Value::Object(mut fields), Value::Object(others)) => {
            for (name, other) in others {
                let value = match fields.remove(&name) {
                    Some(field) => merged(field, other),
                    None => other,
                };
                fields.insert(name, value);
            }
            Value::Object(fields)
        }
        (_, over) => over,
    }
}

/// The value at the end of a way through tables.
pub(super) fn lookup<'t>(table: &'t Table, way: &[&str]) -> Option<&'t Value> {
    let (last, tables) = way.split_last()?;
    tables.iter().try_fold(table, |table, name| table.get(*name)?.as_object())?.get(*last)
}

/// As TOML, with sorted keys.
pub(super) fn as_toml(value: &Value) -> String {
    // Nothing that a table can hold fails here: what TOML can't write is left out by the conversion.
    toml_value(value).and_then(|value| toml::to_string(&value).ok()).unwrap_or_default()
}

/// As JSON for people, with sorted keys.
pub(super) fn as_json(value: &Value) -> String {
    serde_json::to_string_pretty(&sorted(value)).unwrap_or_default() + "\n"
}

fn toml_value(value: &Value) -> Option<toml::Value> {
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => toml::Value::Boolean(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => toml::Value::Integer(whole),
            None => toml::Value::Float(number.as_f64()?),
        },
        Value::String(text) => toml::Value::String(text.clone()),
        Value::Array(entries) => toml::Value::Array(entries.iter().filter_map(toml_value).collect()),
        Value::Object(fields) => toml::Value::Table(
            fields.iter().filter_map(|(name, field)| Some((name.clone(), toml_value(field)?))).collect(),
        ),
    })
}

fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut entries: Vec<(String, Value)> =
                fields.iter().map(|(name, field)| (name.clone(), sorted(field))).collect();
            entries.sort_by(|(a, _), (b, _)| a.cmp(b));
            Value::Object(entries.into_iter().collect())
        }
        Value::Array(entries) => Value::Array(entries.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// What no configuration of ours can hold, wherever in the table it stands.
pub(super) fn check(table: &Table, path: &FieldPath, problems: &mut Problems) {
    for (name, value) in table {
        let at = path.key(name);
        if let Err(message) = variables::check_part(name) {
            problems.add(at.clone(), message);
        }
        check_value(value, &at, problems);
    }
}

fn check_value(value: &Value, path: &FieldPath, problems: &mut Problems) {
    match value {
        Value::Null => problems.add(path.clone(), "nothing can't stand here: leave the field out, or give it a value"),
        Value::Number(number) if number.is_u64() && number.as_i64().is_none() => {
            problems.add(path.clone(), format!("{number} is too large: write at most {}", i64::MAX));
        }
        Value::String(text) => {
            if let Err(message) = variables::check_part(text) {
                problems.add(path.clone(), message);
            }
        }
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                check_value(entry, &path.index(index), problems);
            }
        }
        Value::Object(fields) => check(fields, path, problems),
        Value::Bool(_) | Value::Number(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tables_are_merged_and_the_rest_replaced() {
        let base = json!({"a": {"b": 1, "c": [1, 2]}, "d": true});
        let over = json!({"a": {"c": [3], "e": "x"}, "d": {"f": 1}});
        assert_eq!(merged(base, over), json!({"a": {"b": 1, "c": [3], "e": "x"}, "d": {"f": 1}}));
    }

    #[test]
    fn the_order_of_fields_changes_nothing() {
        let (one, other) = (json!({"b": {"d": 1, "c": 2.5}, "a": 1}), json!({"a": 1, "b": {"c": 2.5, "d": 1}}));
        assert_eq!(as_json(&one), as_json(&other));
        assert_eq!(as_toml(&one), as_toml(&other));
        assert_eq!(as_toml(&one), "a = 1\n\n[b]\nc = 2.5\nd = 1\n");
    }
}
