//! The units that the cluster asks for.

use super::News;
use crate::reconcile::Reconciler;
use crate::root::Root;
use crate::source::cluster;
use crate::store::Store;
use nodelet_api::objects::UnitReport;
use std::sync::Arc;
use tokio::sync::mpsc;

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
