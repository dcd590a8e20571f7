//! The units that the cluster asks for.

use super::News;
use crate::reconcile::Reconciler;
use crate::root::Root;
use crate::source::cluster;
use crate::store::Store;
use nodelet_api::objects::UnitReport;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// So many changes in this time are usual; what changes more often is looked at less often.
const USUAL: usize = 3;
const SPAN: Duration = Duration::from_secs(60);
/// The first pause between looks, doubled up to the limit.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE_LIMIT: Duration = Duration::from_secs(60);

/// How often they are looked at: one that starts and ends in a loop must not be written of for ever.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// When the last changes were.
    changes: Vec<Instant>,
    pause: Duration,
}

impl Pace {
    /// A look found something else.
    pub(super) fn note(&mut self, now: Instant) {
        if self.is_calm(now) {
            *self = Self::default();
        }
        self.changes.retain(|at| now.duration_since(*at) < SPAN);
        self.changes.push(now);
        if self.changes.len() > USUAL || !self.pause.is_zero() {
            self.pause = (self.pause * 2).clamp(FIRST_PAUSE, PAUSE_LIMIT);
        }
    }

    /// How long the next look has to wait.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let last = self.changes.last().filter(|_| !self.is_calm(now));
        last.map_or(Duration::ZERO, |last| (*last + self.pause).saturating_duration_since(now))
    }

    fn is_calm(&self, now: Instant) -> bool {
        self.changes.last().is_none_or(|last| now.duration_since(*last) >= SPAN + self.pause)
    }
}

/// Whether two looks found the same. How often a unit was started again is no news by itself.
pub(super) fn is_same(one: &[UnitReport], other: &[UnitReport]) -> bool {
    let plain = |unit: &UnitReport| (unit.name.clone(), unit.state.clone());
    one.iter().map(plain).eq(other.iter().map(plain))
}

/// Their names. What can't be read is nothing to fail for here.
pub(super) fn asked(root: &Root) -> Vec<String> {
    let kept = Store::open(root).and_then(|store| cluster::kept(&store));
    kept.ok().flatten().map(|state| state.units).unwrap_or_default()
}

/// Looks at them, and tells.
pub(super) async fn look(reconciler: Arc<Reconciler>, news: mpsc::Sender<News>) {
    let reports = reports(&reconciler).await;
    // Nobody listens any more when the daemon stops.
    let _ = news.send(News::Units(reports)).await;
}

async fn reports(reconciler: &Reconciler) -> Vec<UnitReport> {
    let names = asked(reconciler.root());
    let Some(systemd) = reconciler.systemd().filter(|_| !names.is_empty()) else { return Vec::new() };
    let seen = match systemd.units(&names).await {
        Ok(seen) => seen,
        Err(error) => {
            tracing::warn!(%error, "the units that the cluster asks for can't be looked at");
            return Vec::new();
        }
    };
    let mut reports = Vec::new();
    for (name, unit) in seen {
        let restarts = systemd.automatic_restarts(&name).await;
        // What can't run at all is `inactive` to systemd, too; people want to know why.
        let state = if unit.load == "loaded" { unit.active } else { unit.load };
        reports.push(UnitReport { name, state, restarts });
    }
    reports
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_in_a_loop_is_looked_at_less_often() {
        let (start, mut pace) = (Instant::now(), Pace::default());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        for second in 0..3 {
            pace.note(at(second));
            assert_eq!(pace.wait(at(second)), Duration::ZERO, "{second}");
        }
        // Each look finds another state, as soon as it may look.
        let (mut now, mut pauses) = (at(3), Vec::new());
        for _ in 0..9 {
            pace.note(now);
            pauses.push(pace.wait(now).as_secs());
            now += pace.wait(now);
            assert_eq!(pace.wait(now), Duration::ZERO);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
        // Nothing happens for a while.
        now += SPAN + PAUSE_LIMIT;
        pace.note(now);
        assert_eq!(pace.wait(now), Duration::ZERO);
    }

    #[test]
    fn a_restart_alone_is_no_news() {
        let unit = |state: &str, restarts| UnitReport { name: "a.service".into(), state: state.into(), restarts };
        assert!(is_same(&[unit("active", 1)], &[unit("active", 2)]));
        assert!(!is_same(&[unit("active", 1)], &[unit("failed", 1)]));
        assert!(!is_same(&[unit("active", 1)], &[]));
    }
}
