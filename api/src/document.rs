//! From a text to a checked value, or to everything that is wrong with it.

use crate::problem::{FieldPath, Problems};
use crate::{schema, toml_source};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// A type that can be read from TOML or JSON with all its checks.
pub trait Document: Serialize + DeserializeOwned + JsonSchema {
    /// Finds contradictions between fields, which a schema can't express.
    fn check(&self, problems: &mut Problems);
}

/// Reads a TOML text. Every problem has its line and column.
pub fn from_toml<T: Document>(text: &str) -> Result<T, Problems> {
    let source = toml_source::parse(text)?;
    from_value(source.value.clone()).map_err(|problems| problems.located(|path| source.locate(path)))
}

/// Reads a JSON text, such as the cached copy of a revision.
pub fn from_json<T: Document>(text: &str) -> Result<T, Problems> {
    let value = serde_json::from_str(text).map_err(|error| {
        let mut problems = Problems::default();
        problems.add(FieldPath::root(), format!("not JSON: {error}"));
        problems
    })?;
    from_value(value)
}

/// Checks a value that was parsed already.
pub fn from_value<T: Document>(value: Value) -> Result<T, Problems> {
    schema::check::<T>(&value).into_result(())?;
    let typed: T = serde_json::from_value(value).map_err(|error| {
        // The schema comes from the same types, so this is a form that it doesn't express.
        let mut problems = Problems::default();
        problems.add(FieldPath::root(), error.to_string());
        problems
    })?;
    let mut problems = Problems::default();
    typed.check(&mut problems);
    problems.into_result(typed)
}
