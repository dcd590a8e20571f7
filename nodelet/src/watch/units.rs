//! Changes of units, through signals of systemd.

use crate::host::systemd::Systemd;
use futures::stream::{SelectAll, StreamExt};
use std::collections::{BTreeMap, BTreeSet};
use zbus::{MatchRule, MessageStream};

/// Watches units: one rule for each, because a host with pods changes many that are not ours.
#[derive(Default)]
pub(super) struct UnitWatch {
    names: BTreeSet<String>,
    /// Whether changes of enablement are watched, too.
    enablement: bool,
    /// Object paths of the units.
    paths: BTreeMap<String, String>,
    streams: SelectAll<MessageStream>,
}

impl UnitWatch {
    /// Watches these units, and where any is managed, their enablement. What can't be watched is left to the regular check.
    pub(super) async fn new(systemd: &Systemd, names: BTreeSet<String>, enablement: bool) -> Self {
        let mut watch = Self { enablement, ..Self::default() };
        for name in &names {
            match watch.add(systemd, name).await {
                Ok(()) => {}
                Err(error) => tracing::warn!(unit = name, %error, "its changes are found only by the regular check"),
            }
        }
        // Enablement is no property of a unit; one signal tells of all changes.
        if enablement && let Err(error) = watch.add_enablement(systemd).await {
            tracing::warn!(%error, "changes of enablement are found only by the regular check");
        }
        watch.names = names;
        watch
    }

    async fn add_enablement(&mut self, systemd: &Systemd) -> zbus::Result<()> {
        let rule = MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .interface("org.freedesktop.systemd1.Manager")
            .member("UnitFilesChanged")
            .build()?;
        self.streams.push(MessageStream::for_match_rule(rule, systemd.connection(), None).await?);
        Ok(())
    }

    async fn add(&mut self, systemd: &Systemd, name: &str) -> zbus::Result<()> {
        let path = systemd.unit_path(name).await?;
        let rule = MatchRule::builder()
            .msg_type(zbus::message::Type::Signal)
            .interface("org.freedesktop.DBus.Properties")
            .member("PropertiesChanged")
            .path(path.clone())
            .build()?;
        self.streams.push(MessageStream::for_match_rule(rule, systemd.connection(), None).await?);
        self.paths.insert(path, name.to_owned());
        Ok(())
    }

    /// Whether these are watched.
    pub(super) fn is_of(&self, names: &BTreeSet<String>, enablement: bool) -> bool {
        self.names == *names && self.enablement == enablement
    }

    /// Waits for the next change of a unit; its name.
    pub(super) async fn changed(&mut self) -> String {
        loop {
            if self.streams.is_empty() {
                return std::future::pending().await;
            }
            match self.streams.next().await {
                Some(Ok(message)) => {
                    let header = message.header();
                    let path = header.path().map(ToString::to_string).unwrap_or_default();
                    return self.paths.get(&path).cloned().unwrap_or_else(|| "the enablement of units".to_owned());
                }
                Some(Err(error)) => tracing::debug!(%error, "a signal could not be read"),
                None => {
                    // The connection is gone; the next round watches anew.
                    self.streams.clear();
                    self.names.clear();
                }
            }
        }
    }
}
