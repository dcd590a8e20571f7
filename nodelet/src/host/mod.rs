//! The boundary to the host: one module for each outside system.

pub mod apt;
pub mod command;
pub mod dnf;
pub mod dpkg;
pub mod files;
pub mod kernel;
pub mod packages;
pub mod systemd;
