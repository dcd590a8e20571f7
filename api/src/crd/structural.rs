//! A derived schema as the API server takes it: no references, one type for each value, rules in CEL.

use super::rules;
use crate::schema::{choices, non_null, resolve, type_name};
use schemars::Schema;
use serde_json::{Map, Value, json};

/// What is taken over as it is.
const KEPT: [&str; 10] = [
    "minimum",
    "maximum",
    "minLength",
    "maxLength",
    "minItems",
    "maxItems",
    "maxProperties",
    "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-preserve-unknown-fields",
];

/// A number or a text.
const INT_OR_STRING: &str = "x-kubernetes-int-or-string";

/// How many entries a list has that says nothing itself: the API server weighs rules by that.
const LIST_LIMIT: u64 = 256;
/// How many entries a table has.
const TABLE_LIMIT: u64 = 256;

/// Makes a schema structural.
pub(super) fn of(root: &Schema) -> Value {
    let empty = Map::new();
    let schema = root.as_object().unwrap_or(&empty);
    let definitions = schema.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default();
    value(schema, &definitions)
}

fn value(outer: &Map<String, Value>, definitions: &Map<String, Value>) -> Value {
    let name = type_of(outer, definitions);
    let inner = non_null(outer, definitions);
    let mut made = Map::new();
    // What the field says of itself goes before what its type says.
    if let Some(description) = outer.get("description").or_else(|| inner.get("description")) {
        made.insert("description".into(), description.clone());
    }
    if let Some(values) = choices(inner) {
        made.insert("type".into(), json!("string"));
        made.insert("enum".into(), json!(values));
        note_default(outer, &mut made);
        return Value::Object(made);
    }
    if inner.get(INT_OR_STRING).is_some() {
        made.insert(INT_OR_STRING.into(), json!(true));
        // `100%`: the API server weighs rules by that.
        made.insert("maxLength".into(), json!(4));
        made.insert("x-kubernetes-validations".into(), json!(rules::of_type(name.as_deref().unwrap_or_default())));
        note_default(outer, &mut made);
        return Value::Object(made);
    }
    let kind = type_name(inner).unwrap_or("object");
    made.insert("type".into(), json!(kind));
    for word in KEPT {
        if let Some(kept) = outer.get(word).or_else(|| inner.get(word)) {
            made.insert(word.into(), kept.clone());
        }
    }
    let mut found = rules::of_type(name.as_deref().unwrap_or_default());
    match kind {
        "object" => object(inner, definitions, &mut made, &mut found),
        "array" => {
            let items = inner.get("items").and_then(Value::as_object);
            made.insert(
                "items".into(),
                items.map_or_else(|| json!({"type": "object"}), |items| value(items, definitions)),
            );
            made.entry("maxItems").or_insert(json!(LIST_LIMIT));
        }
        "string" => {
            let format = inner.get("format").and_then(Value::as_str).unwrap_or_default();
            if format == "date-time" {
                made.insert("format".into(), json!(format));
            }
            if let Some(form) = rules::of_format(format) {
                made.entry("maxLength").or_insert(json!(form.length));
                found.push(form.rule());
            }
        }
        "integer" => drop(made.insert("format".into(), json!("int64"))),
        _ => {}
    }
    if !found.is_empty() {
        made.insert("x-kubernetes-validations".into(), json!(found));
    }
    note_default(outer, &mut made);
    Value::Object(made)
}

fn object(
    schema: &Map<String, Value>,
    definitions: &Map<String, Value>,
    made: &mut Map<String, Value>,
    found: &mut Vec<Value>,
) {
    let properties = schema.get("properties").and_then(Value::as_object);
    if let Some(properties) = properties {
        let fields =
            properties.iter().filter_map(|(name, field)| Some((name.clone(), value(field.as_object()?, definitions))));
        made.insert("properties".into(), Value::Object(fields.collect()));
        if let Some(required) = schema.get("required") {
            made.insert("required".into(), required.clone());
        }
        return;
    }
    if let Some(entry) = schema.get("additionalProperties").and_then(Value::as_object) {
        made.insert("additionalProperties".into(), value(entry, definitions));
        made.entry("maxProperties").or_insert(json!(TABLE_LIMIT));
        let format = schema.get("propertyNames").and_then(|names| names.get("format")).and_then(Value::as_str);
        if let Some(form) = format.and_then(rules::of_format) {
            found.push(form.rule_for_keys());
        }
    }
}

/// The name of the type that a schema refers to.
fn type_of(schema: &Map<String, Value>, definitions: &Map<String, Value>) -> Option<String> {
    let direct = |schema: &Map<String, Value>| {
        let reference = schema.get("$ref").and_then(Value::as_str)?;
        reference.strip_prefix("#/$defs/").map(str::to_owned)
    };
    let choices = resolve(schema, definitions).get("anyOf").and_then(Value::as_array);
    let nested = || choices?.iter().filter_map(Value::as_object).find_map(direct);
    let title = || schema.get("title").and_then(Value::as_str).map(str::to_owned);
    direct(schema).or_else(nested).or_else(title)
}

/// Defaults that say something. Empty ones would only clutter every object.
fn note_default(schema: &Map<String, Value>, made: &mut Map<String, Value>) {
    let says_something = |value: &&Value| match value {
        Value::Bool(flag) => *flag,
        Value::Number(_) => true,
        Value::String(text) => !text.is_empty(),
        _ => false,
    };
    if let Some(default) = schema.get("default").filter(says_something) {
        made.insert("default".into(), default.clone());
    }
}
