//! Holds a value against the schema of a type, and reports everything that is wrong.
//!
//! serde stops at the first error; people want all of them. The schema that `schemars` derives from the
//! types is also what the custom resources carry, so both refuse the same things. Only what our types
//! produce is understood here: references, objects, lists, maps, texts with a format, choices, nullables.

use crate::problem::{FieldPath, Problems};
use crate::{suggest, text};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema};
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// The schema of a type, with `$defs` for the types below it.
pub fn of<T: JsonSchema>() -> Schema {
    SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>()
}

/// Everything about `value` that the schema of `T` doesn't allow.
pub fn check<T: JsonSchema>(value: &Value) -> Problems {
    let root = known::<T>();
    let definitions = definitions(root);
    let mut checker = Checker { definitions: &definitions, problems: Problems::default() };
    if let Some(object) = root.as_object() {
        checker.value(value, object, &FieldPath::root());
    }
    checker.problems
}

/// The schema of a type, derived once: a daemon reads its state again and again.
fn known<T: JsonSchema>() -> &'static Schema {
    static KNOWN: Mutex<BTreeMap<String, &'static Schema>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    // There are a few types of documents, so what is leaked here is little, and bounded.
    known.entry(T::schema_id().into_owned()).or_insert_with(|| Box::leak(Box::new(of::<T>())))
}

fn definitions(root: &Schema) -> Map<String, Value> {
    root.get("$defs").and_then(Value::as_object).cloned().unwrap_or_default()
}

/// Follows `$ref` to the schema that it names.
pub(crate) fn resolve<'s>(
    schema: &'s Map<String, Value>,
    definitions: &'s Map<String, Value>,
) -> &'s Map<String, Value> {
    schema
        .get("$ref")
        .and_then(Value::as_str)
        .and_then(|reference| reference.strip_prefix("#/$defs/"))
        .and_then(|name| definitions.get(name))
        .and_then(Value::as_object)
        .unwrap_or(schema)
}

/// The schema behind an optional field: `anyOf: [X, null]` is X.
pub(crate) fn non_null<'s>(
    schema: &'s Map<String, Value>,
    definitions: &'s Map<String, Value>,
) -> &'s Map<String, Value> {
    let schema = resolve(schema, definitions);
    let choices = schema.get("anyOf").and_then(Value::as_array);
    choices
        .and_then(|choices| {
            choices.iter().filter_map(Value::as_object).find(|choice| choice.get("type") != Some(&Value::from("null")))
        })
        .map_or(schema, |choice| resolve(choice, definitions))
}

/// The values that a choice allows, in the order of their declaration.
pub(crate) fn choices(schema: &Map<String, Value>) -> Option<Vec<&str>> {
    if let Some(values) = schema.get("enum").and_then(Value::as_array) {
        return Some(values.iter().filter_map(Value::as_str).collect());
    }
    let variants = schema.get("oneOf").and_then(Value::as_array)?;
    variants.iter().map(|variant| variant.get("const").and_then(Value::as_str)).collect()
}

/// The JSON type of a schema, without the `null` of an optional field.
pub(crate) fn type_name(schema: &Map<String, Value>) -> Option<&str> {
    match schema.get("type")? {
        Value::String(name) => Some(name),
        Value::Array(names) => names.iter().filter_map(Value::as_str).find(|name| *name != "null"),
        _ => None,
    }
}

struct Checker<'s> {
    definitions: &'s Map<String, Value>,
    problems: Problems,
}

impl<'s> Checker<'s> {
    fn value(&mut self, value: &Value, schema: &'s Map<String, Value>, path: &FieldPath) {
        let schema = non_null(schema, self.definitions);
        if let Some(allowed) = choices(schema) {
            self.choice(value, &allowed, path);
            return;
        }
        match type_name(schema) {
            Some("object") => match value {
                Value::Object(fields) => self.object(fields, schema, path),
                other => self.wrong_type(other, "a table of fields", path),
            },
            Some("array") => match value {
                Value::Array(entries) => {
                    let Some(items) = schema.get("items").and_then(Value::as_object) else { return };
                    for (index, entry) in entries.iter().enumerate() {
                        self.value(entry, items, &path.index(index));
                    }
                }
                other => self.wrong_type(other, "a list in brackets", path),
            },
            Some("string") => match value {
                Value::String(content) => {
                    let format = schema.get("format").and_then(Value::as_str).unwrap_or("");
                    if let Err(message) = text::check(format, content) {
                        self.problems.add(path.clone(), message);
                    }
                }
                other => self.wrong_type(other, "text in quotes", path),
            },
            Some("boolean") if !value.is_boolean() => self.wrong_type(value, "true or false", path),
            Some("integer") => self.integer(value, schema, path),
            _ => {}
        }
    }

    fn choice(&mut self, value: &Value, allowed: &[&str], path: &FieldPath) {
        let Value::String(word) = value else {
            return self.wrong_type(value, &format!("one of {}", quoted(allowed)), path);
        };
        if !allowed.contains(&word.as_str()) {
            let hint = suggest::nearest(word, allowed.iter().copied())
                .map_or_else(String::new, |near| format!(" (did you mean \"{near}\"?)"));
            self.problems
                .add(path.clone(), format!("\"{word}\" is not a choice here: write one of {}{hint}", quoted(allowed)));
        }
    }

    fn integer(&mut self, value: &Value, schema: &Map<String, Value>, path: &FieldPath) {
        let Some(number) = value.as_i64() else {
            return self.wrong_type(value, "a whole number", path);
        };
        let bound = |name: &str| schema.get(name).and_then(Value::as_i64);
        if let Some(least) = bound("minimum").filter(|least| number < *least) {
            self.problems.add(path.clone(), format!("{number} is too small: write at least {least}"));
        }
        if let Some(most) = bound("maximum").filter(|most| number > *most) {
            self.problems.add(path.clone(), format!("{number} is too large: write at most {most}"));
        }
    }

    fn object(&mut self, fields: &Map<String, Value>, schema: &'s Map<String, Value>, path: &FieldPath) {
        static EMPTY: LazyLock<Map<String, Value>> = LazyLock::new(Map::new);
        let known = schema.get("properties").and_then(Value::as_object).unwrap_or(&EMPTY);
        for (name, value) in fields {
            if let Some(field) = known.get(name).and_then(Value::as_object) {
                self.value(value, field, &path.key(name));
            } else {
                match schema.get("additionalProperties") {
                    Some(Value::Object(entry)) => self.map_entry(name, value, schema, entry, path),
                    Some(Value::Bool(false)) => self.unknown(name, known, path),
                    _ => {}
                }
            }
        }
        let required = schema.get("required").and_then(Value::as_array);
        for name in required.into_iter().flatten().filter_map(Value::as_str) {
            if !fields.contains_key(name) {
                self.problems.add(path.key(name), format!("`{name}` is missing: add it{}", example(known.get(name))));
            }
        }
    }

    fn map_entry(
        &mut self,
        name: &str,
        value: &Value,
        schema: &Map<String, Value>,
        entry: &'s Map<String, Value>,
        path: &FieldPath,
    ) {
        let key_format = schema.get("propertyNames").and_then(|names| names.get("format")).and_then(Value::as_str);
        if let Some(Err(message)) = key_format.map(|format| text::check(format, name)) {
            self.problems.add(path.key(name), message);
        }
        self.value(value, entry, &path.key(name));
    }

    fn unknown(&mut self, name: &str, known: &Map<String, Value>, path: &FieldPath) {
        let names: Vec<&str> = known.keys().map(String::as_str).collect();
        let hint = match suggest::nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the fields here are: {}", names.join(", ")),
        };
        self.problems.add(path.key(name), format!("there is no field `{name}`: {hint}"));
    }

    fn wrong_type(&mut self, value: &Value, expected: &str, path: &FieldPath) {
        let (found, instead) = match value {
            Value::Null => ("nothing".to_owned(), String::new()),
            Value::Bool(flag) => (format!("{flag}"), format!("\"{flag}\"")),
            Value::Number(number) => (format!("the number {number}"), format!("\"{number}\"")),
            Value::String(text) => (format!("the text \"{}\"", shortened(text)), format!("[\"{}\"]", shortened(text))),
            Value::Array(_) => ("a list".to_owned(), String::new()),
            Value::Object(_) => ("a table".to_owned(), String::new()),
        };
        let fits = expected.starts_with("text") || (expected.starts_with("a list") && value.is_string());
        let instead = if fits && !instead.is_empty() { format!(", such as {instead}") } else { String::new() };
        self.problems.add(path.clone(), format!("{found} can't stand here: write {expected}{instead}"));
    }
}

fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(24).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

fn quoted(words: &[&str]) -> String {
    words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(", ")
}

/// The first sentence of a field's description, to say what a missing field is.
fn example(field: Option<&Value>) -> String {
    let description = field.and_then(|field| field.get("description")).and_then(Value::as_str).unwrap_or("");
    let sentence = description.split(['.', '\n']).next().unwrap_or("").trim();
    if sentence.is_empty() { String::new() } else { format!(" ({sentence})") }
}
