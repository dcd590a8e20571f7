//! Places where a test makes nodelet die, to show that it goes on afterwards.
//!
//! `NODELET_FAULT=performed:3` kills the process right after its third step was performed and before that was
//! written down. Without the variable this costs one look at an empty cell.

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::sync::OnceLock;

static WANTED: OnceLock<Option<(String, usize)>> = OnceLock::new();

/// A place that a test can name.
pub(crate) fn point(name: &str, number: usize) {
    let wanted = WANTED.get_or_init(|| {
        let text = std::env::var("NODELET_FAULT").ok()?;
        let (name, number) = text.split_once(':')?;
        Some((name.to_owned(), number.parse().ok()?))
    });
    if wanted.as_ref().is_some_and(|(wanted, at)| wanted == name && *at == number) {
        eprintln!("nodelet: killed at {name}:{number}, as NODELET_FAULT asks");
        // SIGKILL: nothing may run on the way out, as in a crash.
        let _ = kill(Pid::this(), Signal::SIGKILL);
    }
}
