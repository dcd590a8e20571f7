//! The end of the machine, as opposed to the daemon's own.

use crate::host::systemd::Systemd;

/// Whether the machine goes down. Asked by a connection of its own: the others may be gone by then.
pub(super) async fn is_under_way() -> bool {
    match Systemd::connect().await {
        Ok(systemd) => systemd.is_shutting_down().await,
        Err(_) => false,
    }
}
