//! The boundary to the host: one module for each outside system.

pub mod apt;
pub mod command;
pub mod cri;
pub mod dnf;
pub mod dpkg;
pub mod files;
pub mod http;
pub mod kernel;
mod locks;
mod overlay;
pub mod packages;
pub mod space;
pub mod systemd;
pub mod withhold;
