//! The commented default configuration file, from the types.

use super::Settings;
use nodelet_api::schema;
use serde_json::{Map, Value};
use std::fmt::Write;

/// `/etc/nodelet/nodelet.toml` as the package ships it: every setting with its meaning and default, all of
/// them commented out, so that a default that changes with a new version takes effect.
pub fn default_file() -> String {
    let mut out = String::from(
        "# Configuration of nodelet itself; what the node is to be stands in the state file.\n\
         # Drop-ins: /usr/lib/nodelet/nodelet.toml.d/*.toml, then /run/nodelet/nodelet.toml.d/*.toml, then\n\
         # /etc/nodelet/nodelet.toml.d/*.toml, sorted by file name; a file of the same name in a later directory\n\
         # replaces the earlier one. They are merged over this file.\n\
         # `nodelet validate` checks it, `nodelet config` shows what is in effect, and\n\
         # `systemctl reload nodelet` takes changes up. The values below are the defaults.\n",
    );
    let root = schema::of::<Settings>();
    let empty = Map::new();
    let definitions = root.get("$defs").and_then(Value::as_object).unwrap_or(&empty);
    let defaults = serde_json::to_value(Settings::default()).unwrap_or_default();
    let sections = root.get("properties").and_then(Value::as_object).unwrap_or(&empty);
    for (section, field) in sections {
        let _ = writeln!(out, "\n[{section}]");
        let name = field.get("$ref").and_then(Value::as_str).and_then(|name| name.rsplit('/').next()).unwrap_or("");
        let fields = definitions.get(name).and_then(|schema| schema.get("properties")).and_then(Value::as_object);
        for (key, field) in fields.unwrap_or(&empty) {
            for line in comment(field, definitions).lines() {
                let _ = writeln!(out, "# {line}");
            }
            let _ = writeln!(out, "#{key} = {}", defaults[section][key]);
        }
    }
    out
}

fn comment(field: &Value, definitions: &Map<String, Value>) -> String {
    let description = field.get("description").and_then(Value::as_str).unwrap_or("").to_owned();
    let named = field.get("$ref").and_then(Value::as_str).and_then(|name| name.rsplit('/').next());
    let variants = named.and_then(|name| definitions.get(name)).and_then(|schema| schema.get("oneOf"));
    let words: Vec<&str> = variants
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(|variant| variant.get("const").and_then(Value::as_str))
        .collect();
    if words.is_empty() { description } else { format!("{description}\nOne of: {}.", words.join(", ")) }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use nodelet_api::from_toml;

    #[test]
    fn the_file_changes_nothing_and_its_values_are_the_defaults() {
        let text = default_file();
        assert_eq!(from_toml::<Settings>(&text).unwrap(), Settings::default());
        let uncommented: String = text
            .lines()
            .map(|line| if line.starts_with('#') && !line.starts_with("# ") { &line[1..] } else { line })
            .fold(String::new(), |all, line| all + line + "\n");
        assert_eq!(from_toml::<Settings>(&uncommented).unwrap(), Settings::default());
        assert!(uncommented.contains("lockTimeoutSeconds = 600"), "{uncommented}");
    }
}
