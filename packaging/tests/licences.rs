//! Every dependency is under a licence that `deny.toml` allows. `cargo deny check` says the same where it is
//! installed; this needs nothing but cargo.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use common::{repository, run};

/// Whether an SPDX expression is allowed: of alternatives one, of a conjunction all. What can't be read isn't.
fn allowed(expression: &str, list: &BTreeSet<String>) -> bool {
    // The old spelling of "or", from before expressions.
    let text = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut rest = words.as_slice();
    either(&mut rest, list) == Some(true) && rest.is_empty()
}

// Neither of the loops stops early: the words have to be consumed.

fn either(words: &mut &[&str], list: &BTreeSet<String>) -> Option<bool> {
    let mut result = both(words, list)?;
    while words.first() == Some(&"OR") {
        *words = &words[1..];
        result |= both(words, list)?;
    }
    Some(result)
}

fn both(words: &mut &[&str], list: &BTreeSet<String>) -> Option<bool> {
    let mut result = one(words, list)?;
    while words.first() == Some(&"AND") {
        *words = &words[1..];
        result &= one(words, list)?;
    }
    Some(result)
}

fn one(words: &mut &[&str], list: &BTreeSet<String>) -> Option<bool> {
    match *words {
        ["(", rest @ ..] => {
            *words = rest;
            let result = either(words, list)?;
            *words = words.strip_prefix(&[")"])?;
            Some(result)
        }
        [licence, "WITH", exception, rest @ ..] => {
            *words = rest;
            Some(list.contains(&format!("{licence} WITH {exception}")))
        }
        [licence, rest @ ..] => {
            *words = rest;
            Some(list.contains(*licence))
        }
        [] => None,
    }
}

#[test]
fn licences() {
    let deny: toml::Table = toml::from_str(&fs::read_to_string(repository().join("deny.toml")).unwrap()).unwrap();
    let list: BTreeSet<String> = deny["licenses"]["allow"].clone().try_into().unwrap();
    assert!(!list.is_empty());
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let metadata = run(Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--offline", "--filter-platform", "x86_64-unknown-linux-gnu"])
        .current_dir(repository()));
    let metadata: serde_json::Value = serde_json::from_str(&metadata).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 20, "cargo metadata lists {} packages only", packages.len());
    let refused: Vec<String> = packages
        .iter()
        .filter_map(|package| {
            let name = format!("{} {}", package["name"].as_str()?, package["version"].as_str()?);
            match package["license"].as_str() {
                Some(licence) if allowed(licence, &list) => None,
                Some(licence) => Some(format!("{name}: {licence}")),
                None => Some(format!("{name}: states no licence")),
            }
        })
        .collect();
    assert!(refused.is_empty(), "not allowed by deny.toml:\n  {}", refused.join("\n  "));
}

#[test]
fn expressions() {
    let list = ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception", "ISC"].map(String::from).into();
    for (expression, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("MIT OR GPL-3.0", true),
        ("GPL-3.0 OR MIT", true),
        ("MIT/GPL-3.0", true),
        ("MIT AND GPL-3.0", false),
        ("(MIT OR GPL-3.0) AND ISC", true),
        ("(GPL-2.0 OR GPL-3.0) AND ISC", false),
        ("Apache-2.0 WITH LLVM-exception", true),
        ("GPL-2.0 WITH Classpath-exception-2.0 OR MIT", true),
        ("MIT WITH LLVM-exception", false),
        ("MIT OR (", false),
        ("", false),
    ] {
        assert_eq!(allowed(expression, &list), expected, "{expression:?}");
    }
}
