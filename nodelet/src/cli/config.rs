//! `nodelet config`

use super::{Global, Output, print_json};
use crate::exit;
use nodelet_api::FieldPath;
use serde_json::Value;
use std::process::ExitCode;

pub(super) fn execute(global: &Global) -> anyhow::Result<ExitCode> {
    let loaded = global.settings()?;
    if global.output == Output::Json {
        print_json(&loaded.settings)?;
        return Ok(exit::code(exit::OK));
    }
    let Value::Object(sections) = serde_json::to_value(&loaded.settings)? else { return Ok(exit::code(exit::OK)) };
    for (section, fields) in sections {
        println!("[{section}]");
        for (key, value) in fields.as_object().into_iter().flatten() {
            let path = FieldPath::root().key(&section).key(key);
            let origin = loaded.origin(&path).map_or_else(|| "default".into(), |file| file.display().to_string());
            println!("{:<40} # {origin}", format!("{key} = {value}"));
        }
        println!();
    }
    Ok(exit::code(exit::OK))
}
