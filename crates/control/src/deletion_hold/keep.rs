//! The loop of a scheduler's holds: it applies decisions to the [owners](crate::world::owners), and reports the held losses.
//!
//! Every scheduler judges and holds, not only the leader, so that approved losses are released in the next leader, too.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::losses::HeldLosses;
use super::reminder::Reminder;
use crate::world::World;
use signpost_types::v1alpha1::deletion_hold::DeletionHoldKind;

/// The time until what depends on a held object is checked again. An approval takes effect within this time.
pub const CHECK_AGAIN: Duration = Duration::from_secs(5);
/// The interval of log lines and lists, while something is held.
const HOUSEKEEPING: Duration = Duration::from_secs(5);

/// Runs until `stop`. `share_percent`: the percentage of known objects that can be lost at once.
pub async fn run(
    world: World,
    losses: Arc<HeldLosses>,
    mut share_percent: watch::Receiver<u32>,
    stop: CancellationToken,
) {
    // Others poll these informers.
    let (routers, routes) = (world.routers.read().0, world.routes.read().0);
    let (owners, mut decisions) = (world.owners, losses.decisions());
    let mut reminder = Reminder::new("what depends on them is kept");
    loop {
        owners.set_share(*share_percent.borrow_and_update());
        let decided = decisions.borrow_and_update().clone();
        let held = owners.decide(&decided);
        losses.set_held(held.clone());
        losses.set_synced(owners.is_judged());
        reminder.log(&held);
        if reminder.is_relist_due(&held, Instant::now()) {
            for held in &held {
                match held.kind {
                    DeletionHoldKind::Router => routers.relist(),
                    DeletionHoldKind::RouteBinding => routes.relist(),
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = owners.changed() => {}
            Ok(()) = decisions.changed() => {}
            Ok(()) = share_percent.changed() => {}
            () = tokio::time::sleep(HOUSEKEEPING), if !held.is_empty() => {}
        }
    }
}
