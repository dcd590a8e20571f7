//! nodelet keeps one node's package repositories, packages, files, kernel settings and systemd units equal
//! to a desired state.
//!
//! A pure core and a thin shell: [`plan`] computes what to do from what is wanted ([`desired`]) and what is
//! there ([`observe`]), and never touches the host; [`apply`] does it through [`host`].

pub mod apply;
pub mod cli;
pub mod cluster;
pub mod content;
pub mod contents;
pub mod daemon;
pub mod desired;
pub mod exit;
pub mod facts;
mod fault;
pub mod guard;
pub mod health;
pub mod host;
pub mod identity;
pub mod key;
pub mod observe;
pub mod plan;
pub mod progress;
pub mod prune;
pub mod reconcile;
mod repairs;
pub mod report;
pub mod rescue;
pub mod root;
pub mod settings;
pub mod source;
pub mod stage;
pub mod store;
pub mod watch;
