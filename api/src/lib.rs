//! The desired state of a node.
//!
//! One set of types serves the local TOML file, the custom resources and the on-disk cache. Nothing in
//! here touches a file, a socket or the clock: reading is done by the caller, so that the same checks run
//! on a node, in the controller and in a test.
//!
//! The way in is [`document::from_toml`] or [`document::from_json`]: both check against the schema that is
//! derived from the types (unknown fields, wrong values), then for contradictions between fields, and
//! report everything that is wrong at once, with the path to each field.

pub mod crd;
pub mod document;
pub mod objects;
pub mod preset;
pub mod problem;
pub mod reference;
pub mod schema;
pub mod state;
pub mod suggest;
pub mod text;
pub mod toml_source;
pub mod variables;

pub use document::{Document, from_json, from_toml};
pub use problem::{FieldPath, Problem, Problems};
pub use state::{DesiredState, Disruption, Drift};
