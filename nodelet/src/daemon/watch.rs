//! Notices a change of the state file as it happens.

use crate::root::Root;
use futures::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};
use std::ffi::OsString;
use std::path::Path;

/// Watches the directory of a file: editors and configuration tools replace files instead of writing them.
pub(super) struct Watcher {
    stream: Option<EventStream<[u8; 4096]>>,
    name: OsString,
}

impl Watcher {
    /// A directory that can't be watched is left to the regular check, with a line in the log.
    pub(super) fn new(root: &Root, file: &str) -> Self {
        let path = root.join(file);
        let directory = path.parent().unwrap_or(Path::new("/"));
        let mask = WatchMask::CLOSE_WRITE | WatchMask::MOVED_TO | WatchMask::MOVED_FROM | WatchMask::DELETE;
        let stream = Inotify::init().and_then(|inotify| {
            inotify.watches().add(directory, mask)?;
            inotify.into_event_stream([0; 4096])
        });
        if let Err(error) = &stream {
            tracing::warn!(directory = %directory.display(), %error, "changes are found only by the regular check");
        }
        Self { stream: stream.ok(), name: path.file_name().unwrap_or_default().to_owned() }
    }

    /// Waits for the next change of the file.
    pub(super) async fn changed(&mut self) {
        loop {
            let Some(stream) = &mut self.stream else { return std::future::pending().await };
            match stream.next().await {
                Some(Ok(event)) if event.name.as_ref() == Some(&self.name) => return,
                Some(Ok(_)) => {}
                Some(Err(error)) => {
                    tracing::warn!(%error, "watching the state file failed; changes are found only by the regular check");
                    self.stream = None;
                }
                None => self.stream = None,
            }
        }
    }
}
