//! A TOML text as a value that remembers where each field stands.

use crate::problem::{FieldPath, Position, Problem, Problems};
use serde_json::{Map, Number, Value};
use std::collections::HashMap;
use std::ops::Range;
use toml::de::{DeTable, DeValue};

/// A parsed TOML text.
#[derive(Clone, Debug)]
pub struct TomlSource {
    /// What it says.
    pub value: Value,
    positions: HashMap<FieldPath, Position>,
}

impl TomlSource {
    /// Where the field stands; for one that is missing, where what should hold it stands.
    pub fn locate(&self, path: &FieldPath) -> Option<Position> {
        let mut path = path.clone();
        loop {
            if let Some(position) = self.positions.get(&path) {
                return Some(*position);
            }
            path = path.parent()?;
        }
    }

    /// True when the text sets this field itself.
    pub fn sets(&self, path: &FieldPath) -> bool {
        self.positions.contains_key(path)
    }
}

/// Parses a text; all the errors of syntax that can be told apart are reported.
pub fn parse(text: &str) -> Result<TomlSource, Problems> {
    let (document, errors) = DeTable::parse_recoverable(text);
    let mut problems = Problems::default();
    for error in errors {
        let position = error.span().map(|span| Position::of(text, span.start));
        let message = format!("not TOML: {}", error.message().trim().replace('\n', ", "));
        problems.push(Problem { position, ..Problem::new(FieldPath::root(), message) });
    }
    problems.into_result(())?;
    let mut reader = Reader { lines: LineStarts::of(text), text, positions: HashMap::new() };
    let value = reader.table(document.get_ref(), &FieldPath::root());
    Ok(TomlSource { value, positions: reader.positions })
}

struct Reader<'t> {
    text: &'t str,
    lines: LineStarts,
    positions: HashMap<FieldPath, Position>,
}

impl Reader<'_> {
    fn table(&mut self, table: &DeTable<'_>, path: &FieldPath) -> Value {
        let mut map = Map::new();
        for (key, value) in table {
            let below = path.key(key.get_ref().as_ref());
            self.note(&below, &key.span());
            let value = self.value(value.get_ref(), &below);
            map.insert(key.get_ref().to_string(), value);
        }
        Value::Object(map)
    }

    fn value(&mut self, value: &DeValue<'_>, path: &FieldPath) -> Value {
        match value {
            DeValue::String(text) => Value::String(text.to_string()),
            DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
                .map_or_else(|_| Value::String(number.to_string()), Value::from),
            DeValue::Float(number) => number
                .as_str()
                .parse()
                .ok()
                .and_then(Number::from_f64)
                .map_or_else(|| Value::String(number.to_string()), Value::Number),
            DeValue::Boolean(flag) => Value::Bool(*flag),
            DeValue::Datetime(time) => Value::String(time.to_string()),
            DeValue::Array(entries) => Value::Array(
                entries
                    .iter()
                    .enumerate()
                    .map(|(index, entry)| {
                        let below = path.index(index);
                        self.note(&below, &entry.span());
                        self.value(entry.get_ref(), &below)
                    })
                    .collect(),
            ),
            DeValue::Table(table) => self.table(table, path),
        }
    }

    fn note(&mut self, path: &FieldPath, span: &Range<usize>) {
        self.positions.insert(path.clone(), self.lines.position(self.text, span.start));
    }
}

/// Byte offsets of the lines' first characters, so that a state of thousands of fields is read once.
struct LineStarts(Vec<usize>);

impl LineStarts {
    fn of(text: &str) -> Self {
        Self(std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect())
    }

    fn position(&self, text: &str, offset: usize) -> Position {
        let line = self.0.partition_point(|start| *start <= offset);
        let start = self.0.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = text.get(start..offset).unwrap_or("");
        Position { line, column: before.chars().count() + 1 }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn fields_keep_their_place() {
        let source = parse("a = 1\n[b]\n  c = ['x', 'y']\n\n[[d]]\nüü.e = true\n")
            .unwrap_or_else(|_| parse("a = 1\n[b]\n  c = ['x', 'y']\n\n[[d]]\n'üü'.e = true\n").unwrap());
        let at = |path: FieldPath| source.locate(&path).unwrap().to_string();
        let root = FieldPath::root();
        assert_eq!(at(root.key("a")), "1:1");
        assert_eq!(at(root.key("b").key("c")), "3:3");
        assert_eq!(at(root.key("b").key("c").index(1)), "3:13");
        assert_eq!(at(root.key("d").index(0).key("missing")), "5:1");
    }

    #[test]
    fn every_error_of_syntax_is_reported() {
        let problems = parse("a = \nb = 1\nc = [1,\n").unwrap_err();
        assert!(problems.len() >= 2, "{problems}");
        assert!(problems.iter().all(|p| p.position.is_some()), "{problems}");
    }
}
