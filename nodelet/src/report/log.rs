//! The log: to the journal with fields when it is connected to it, to standard error as lines otherwise.

use crate::settings::Level;
use std::os::unix::fs::MetadataExt;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, reload};

/// Changes the level of a running log.
#[derive(Clone)]
pub struct LevelHandle(reload::Handle<LevelFilter, Registry>);

impl LevelHandle {
    /// Logs from this level on.
    pub fn set(&self, level: Level) {
        if let Err(error) = self.0.reload(filter(level)) {
            tracing::warn!(%error, "the log level could not be changed");
        }
    }
}

/// Starts the log.
pub fn start(level: Level) -> LevelHandle {
    let (filter, handle) = reload::Layer::new(filter(level));
    // Fields become NODELET_STEP=, NODELET_UNIT=, … in the journal: `journalctl NODELET_UNIT=x`.
    let journal = stderr_is_journal().then(tracing_journald::layer).and_then(Result::ok);
    let journal = journal.map(|layer| layer.with_field_prefix(Some("NODELET".into())));
    let lines = journal.is_none().then(|| {
        tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_target(false).without_time().boxed()
    });
    let registry = tracing_subscriber::registry().with(filter).with(journal).with(lines);
    if let Err(error) = registry.try_init() {
        eprintln!("nodelet: the log was started already: {error}");
    }
    LevelHandle(handle)
}

fn filter(level: Level) -> LevelFilter {
    match level {
        Level::Error => LevelFilter::ERROR,
        Level::Warn => LevelFilter::WARN,
        Level::Info => LevelFilter::INFO,
        Level::Debug => LevelFilter::DEBUG,
        Level::Trace => LevelFilter::TRACE,
    }
}

/// systemd names the device and inode of the stream that it connected to the journal; whoever redirected
/// standard error since then wants lines.
fn stderr_is_journal() -> bool {
    let named = std::env::var("JOURNAL_STREAM").ok();
    let Some((device, inode)) = named.as_deref().and_then(|text| text.split_once(':')) else { return false };
    let Ok(metadata) = std::fs::metadata("/proc/self/fd/2") else { return false };
    device.parse() == Ok(metadata.dev()) && inode.parse() == Ok(metadata.ino())
}
