//! Builds Debian and RPM packages, the signed repositories that hold them, and container images.
//!
//! One neutral [`package::Package`] is written by [`deb::write`] and by [`rpm::write`]; the same code makes
//! nodelet's own packages (from `debian/`, `rpm/`, `systemd/` and `packaging/files.toml`) and the small packages
//! that the tests install. Nothing here reads the clock: every time inside a package or an index is an argument,
//! so that two builds of the same commit are the same bytes.

pub mod arch;
pub mod changelog;
pub mod deb;
mod digest;
pub mod elf;
#[cfg(feature = "generate")]
pub mod generate;
pub mod image;
pub mod key;
pub mod package;
pub mod product;
pub mod repository;
pub mod rpm;
pub mod service;
