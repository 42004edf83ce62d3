//! Routes that leave their Router, as was requested (`requests`). They go the way of one that has no Router, through the same
//! queue, filter and strategy, and are bound by replacing their binding (`rebind`).

use jiff::Timestamp;
use tokio::time::Instant;

use super::Scheduler;
use super::rebind::{Leaving, held_by_caches};
use super::report::Report;
use super::requests::MoveReason;
use crate::client::lease::Term;
use crate::client::reflector::ObjectKey;
use crate::world::route::Mark;
use crate::world::{BindingInfo, RouteInfo};

impl Scheduler {
    /// The Router that a bound route is to leave now, if it is.
    pub(super) fn leaving(&self, key: &ObjectKey, route: &RouteInfo, binding: &BindingInfo) -> Option<Leaving> {
        let request = self.moves.get(key).filter(|request| request.is_of(route, binding))?;
        // A Router made again with another zone is another one.
        let router = self.snapshot.router(&binding.router).filter(|(router, _)| !binding.is_zone_gone(router));
        let trail = router.map(|(router, _)| held_by_caches(router, Timestamp::now()).max(self.settings.trail_minimum));
        Some(Leaving { router: binding.router.to_string(), reason: request.reason, trail })
    }

    /// A route with nowhere to go stays where it is, and is looked at again when that may have changed.
    pub(super) fn put_aside(&mut self, key: &ObjectKey, leaving: Option<&Leaving>, random: u64) {
        if leaving.is_some() {
            self.moves.nowhere(key);
        }
        match leaving.map(|leaving| leaving.reason) {
            Some(MoveReason::Drained) => self.queue.done(key),
            Some(MoveReason::Asked) | None => self.queue.unschedulable(key, Instant::now(), random),
        }
    }

    /// Takes in what is requested, and what is not any more.
    pub(super) fn on_move_requests(&mut self) {
        // Who requests may have seen a Router drain that the snapshot does not show yet: then that one might be chosen again.
        if self.watched.routers.is_behind() {
            return self.moves.remind();
        }
        for key in self.moves.take_news() {
            if self.moves.holds(&key) {
                self.queue.push(key);
            } else if let Some(route) = self.objects.routes.get(&key).filter(|route| route.bound) {
                self.queue.remove(&key);
                // One that is being written is taken back when it is seen.
                self.reports.remove(&key);
                self.take_back(&key, &route);
            }
        }
    }

    /// A route is not to move, or not any more: what it is told of that is taken back.
    fn take_back(&mut self, key: &ObjectKey, route: &RouteInfo) {
        let says_so = route.conditions.moving.is_some_and(Mark::is_true);
        // What a move that was made leaves said is over when the status tells of the move.
        let is_there =
            || self.objects.bindings.get(key).is_some_and(|binding| route.router.as_ref() == Some(&binding.router));
        // Who does not lead leaves it to who does, and is told again if it comes to lead.
        let may_decide = || self.objects.is_synced() && self.term.as_ref().is_some_and(Term::is_current);
        if says_so && is_there() && may_decide() {
            self.reports.insert(key.clone(), Report::stays(&route.uid));
        }
    }
}
