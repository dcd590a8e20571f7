//! Signed package repositories.

pub mod apt;
pub mod dnf;

/// The name under which each repository holds the public half of its key.
pub const KEY_FILE: &str = "key.asc";
