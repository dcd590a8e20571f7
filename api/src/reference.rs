//! A reference in Markdown, from the types and their descriptions.

use crate::schema::{choices, non_null, of, resolve, type_name};
use crate::state::DesiredState;
use crate::variables::VARIABLES;
use schemars::JsonSchema;
use serde_json::{Map, Value};
use std::fmt::Write;

/// The reference of the desired state: every field, what it takes and what it means.
pub fn markdown() -> String {
    let mut out = String::from(
        "# Desired state\n\n\
         <!-- Generated from the types in api/src/state and api/src/preset; change those, then run `make generate`. -->\n\n\
         The body of `/etc/nodelet/state.toml`. Field names are the same in TOML, YAML and JSON. Fields that are\n\
         not listed here are errors; `nodelet validate FILE` shows all the errors of a file with line and column.\n",
    );
    out.push_str(&tables::<DesiredState>());
    out.push_str("\n## Variables\n\nIn `content` of files (plain encoding), units and drop-ins, and in the addresses of repositories:\n\n| Variable | Stands for |\n|---|---|\n");
    for (name, meaning) in VARIABLES {
        let _ = writeln!(out, "| `${{{name}}}` | {meaning} |");
    }
    out.push_str("\nOther `${…}` stay as they are; `$${node.name}` stands for the text `${node.name}` itself.\n");
    out
}

/// A table of fields for a type and one for each type below it, in the order in which they are met.
pub fn tables<T: JsonSchema>() -> String {
    let root = of::<T>();
    let empty = Map::new();
    let definitions = root.get("$defs").and_then(Value::as_object).unwrap_or(&empty);
    let mut out = String::new();
    let mut queue: Vec<(String, &Map<String, Value>)> = Vec::new();
    let mut done: Vec<String> = Vec::new();
    if let Some(schema) = root.as_object() {
        queue.push((root.get("title").and_then(Value::as_str).unwrap_or("").to_owned(), schema));
    }
    while !queue.is_empty() {
        let (name, schema) = queue.remove(0);
        if done.contains(&name) {
            continue;
        }
        section(&mut out, &name, schema, definitions);
        done.push(name);
        let fields = schema.get("properties").and_then(Value::as_object).unwrap_or(&empty);
        for field in fields.values().filter_map(Value::as_object) {
            queue.extend(referenced(field, definitions));
        }
    }
    out
}

fn section(out: &mut String, name: &str, schema: &Map<String, Value>, definitions: &Map<String, Value>) {
    let _ = writeln!(out, "\n## {name}\n\n{}\n", description(schema));
    let Some(fields) = schema.get("properties").and_then(Value::as_object) else {
        let variants = schema.get("oneOf").and_then(Value::as_array);
        for variant in variants.into_iter().flatten().filter_map(Value::as_object) {
            let value = variant.get("const").and_then(Value::as_str).unwrap_or("");
            let _ = writeln!(out, "- `{value}`: {}", description(variant));
        }
        return;
    };
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    out.push_str("| Field | Takes | Meaning |\n|---|---|---|\n");
    for (field, value) in fields {
        let Some(value) = value.as_object() else { continue };
        let need = if required.contains(&field.as_str()) { " **(required)**" } else { "" };
        let default = value
            .get("default")
            .filter(|default| default.is_string() || default.is_number() || default.is_boolean())
            .map_or_else(String::new, |default| format!(" Default: `{}`.", default.to_string().trim_matches('"')));
        let meaning = description(value);
        let _ = writeln!(out, "| `{field}`{need} | {} | {meaning}{default} |", takes(value, definitions));
    }
}

/// The named types that a field leads to.
fn referenced<'s>(
    field: &'s Map<String, Value>,
    definitions: &'s Map<String, Value>,
) -> Vec<(String, &'s Map<String, Value>)> {
    let below = [field.get("items"), field.get("additionalProperties")];
    let options = field.get("anyOf").and_then(Value::as_array).into_iter().flatten();
    let mut found = Vec::new();
    for schema in std::iter::once(field).chain(below.into_iter().flatten().chain(options).filter_map(Value::as_object))
    {
        if let Some(name) = reference_name(schema) {
            found.push((name.to_owned(), resolve(schema, definitions)));
        }
    }
    found
}

fn reference_name(schema: &Map<String, Value>) -> Option<&str> {
    schema.get("$ref").and_then(Value::as_str).and_then(|name| name.strip_prefix("#/$defs/"))
}

fn takes(field: &Map<String, Value>, definitions: &Map<String, Value>) -> String {
    if let Some((name, schema)) = referenced(field, definitions).into_iter().next() {
        let link = format!("[{name}](#{})", name.to_lowercase());
        return match (type_name(field), choices(schema)) {
            (Some("array"), _) => format!("list of {link}"),
            (_, Some(words)) => words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", "),
            _ => link,
        };
    }
    let schema = non_null(field, definitions);
    match type_name(schema) {
        Some("array") => {
            let items = schema.get("items").and_then(Value::as_object);
            format!("list of {}", items.map_or_else(|| "values".into(), |items| takes(items, definitions)))
        }
        Some("object") if schema.get("additionalProperties") == Some(&Value::Bool(true)) => "table".into(),
        Some("object") => "table of texts".into(),
        Some("string") => schema.get("format").and_then(Value::as_str).unwrap_or("text").replace('-', " "),
        Some("boolean") => "`true`, `false`".into(),
        Some("integer") => "whole number".into(),
        other => other.unwrap_or("value").to_owned(),
    }
}

fn description(schema: &Map<String, Value>) -> String {
    schema.get("description").and_then(Value::as_str).unwrap_or("").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_is_described() {
        let text = markdown();
        for line in text.lines().filter(|line| line.starts_with("| `")) {
            let meaning = line.trim_end_matches(" |").rsplit("| ").next().unwrap_or("");
            assert!(!meaning.is_empty(), "{line}");
        }
        assert!(text.contains("| `allowDowngrade` |"), "{text}");
        assert!(text.contains("list of [Package](#package)"), "{text}");
    }
}
