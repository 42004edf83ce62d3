//! Routes that leave their Router: those whose annotation says so, and those on Routers that are draining.
//!
//! A route that is to move goes the way of one that has no Router, through the same queue, filter and strategy, and is bound by
//! replacing its binding (`rebind`). What it is told when there is nowhere to go is the condition `MovePending`; it stays where
//! it is meanwhile, and serves. Nothing else moves a route: not a new Router, not changed selectors, not another strategy.

use std::collections::BTreeSet;

use jiff::Timestamp;
use tokio::time::Instant;

use super::Scheduler;
use super::rebind::{Cause, Leaving, held_by_caches};
use super::report::Report;
use crate::client::lease::Term;
use crate::client::reflector::ObjectKey;
use crate::world::route::Mark;
use crate::world::{BindingInfo, RouteInfo};
use signpost_api::v1alpha1::router::RouterState;

impl Scheduler {
    /// Why a bound route is to leave its Router now, if it is.
    pub(super) fn leaving(&self, key: &ObjectKey, route: &RouteInfo, binding: &BindingInfo) -> Option<Leaving> {
        let is_zone_gone = self.is_zone_gone(binding);
        let cause = if route.move_to.as_ref().is_some_and(|to| *to != binding.router || is_zone_gone) {
            Cause::Asked
        } else if self.drain.drains(&binding.router) && self.drain.is_released(key) {
            Cause::Drained
        } else {
            return None;
        };
        // A Router made again with another zone is another one.
        let router = self.snapshot.router(&binding.router).filter(|_| !is_zone_gone);
        let trail = router.map(|(router, _)| held_by_caches(router, Timestamp::now()).max(self.settings.trail_minimum));
        Some(Leaving { router: binding.router.to_string(), cause, trail })
    }

    /// Whether a bound route is to be looked at, by what its own status says, or because the zone of its name is gone.
    pub(super) fn is_to_move(&self, key: &ObjectKey, route: &RouteInfo) -> bool {
        let is_elsewhere = || self.bindings.get(key).is_some_and(|binding| self.is_zone_gone(&binding));
        route.move_to.is_some() && (route.move_to != route.router || is_elsewhere()) || self.drain.is_released(key)
    }

    /// Whether there is a Router of the name that a binding has, but not with its zone.
    fn is_zone_gone(&self, binding: &BindingInfo) -> bool {
        self.snapshot.router(&binding.router).is_some_and(|(router, _)| binding.is_zone_gone(router))
    }

    /// A route with nowhere to go stays where it is, and is looked at again when that may have changed.
    pub(super) fn put_aside(&mut self, key: &ObjectKey, leaving: Option<&Leaving>, random: u64) {
        self.drain.nowhere(key);
        match leaving.map(|leaving| leaving.cause) {
            Some(Cause::Drained) => self.queue.done(key),
            Some(Cause::Asked) | None => self.queue.unschedulable(key, Instant::now(), random),
        }
    }

    /// A route that was to move is not to any more: what it is told of that is taken back.
    pub(super) fn take_back(&mut self, key: &ObjectKey, route: &RouteInfo) {
        // Who does not lead leaves it to who does, and finds it in its next search if it comes to lead.
        if route.bound && route.conditions.moving.is_some_and(Mark::is_true) && self.may_decide() {
            self.reports.insert(key.clone(), Report::stays(&route.uid));
        }
    }

    /// Takes note of the Routers that are draining.
    pub(super) fn follow_draining(&mut self) {
        let draining = self.snapshot.routers().filter(|(router, _)| router.state == RouterState::Draining);
        let draining: BTreeSet<String> = draining.map(|(router, _)| router.name.clone()).collect();
        let (begun, ended) = self.drain.set_routers(draining);
        if begun.is_empty() && ended.is_empty() {
            return;
        }
        for router in &begun {
            tracing::info!(router, "the Router is draining: its routes are moved to others");
        }
        for (key, binding) in self.bindings.all() {
            if begun.contains(&*binding.router) {
                self.drain.add(&key);
            } else if ended.contains(&*binding.router)
                && self.drain.remove(&key)
                && let Some(route) = self.routes.get(&key).filter(|route| route.move_to.is_none())
            {
                self.queue.remove(&key);
                // One that is being written is taken back when it is seen.
                self.reports.remove(&key);
                self.take_back(&key, &route);
            }
        }
    }

    /// A binding is there, or is different.
    pub(super) fn follow_binding(&mut self, key: &ObjectKey, before: Option<&BindingInfo>, now: &BindingInfo) {
        if before.is_some_and(|before| before.router != now.router || before.route_uid != now.route_uid) {
            self.drain.remove(key);
        }
        if self.drain.drains(&now.router) {
            self.drain.add(key);
        }
        if self
            .routes
            .get(key)
            .is_some_and(|route| route.bound && route.move_to.as_ref().is_some_and(|to| *to != now.router))
        {
            self.queue.push(key.clone());
        }
    }

    /// Puts routes whose turn it is to leave a draining Router into the queue.
    pub(super) fn release_drained(&mut self) {
        if self.drain.is_idle() || !self.may_decide() {
            return;
        }
        let now = Instant::now();
        while let Some(key) = self.drain.release(now) {
            self.queue.push(key);
        }
    }

    /// When a route can be released.
    pub(super) fn next_move(&self) -> Option<Instant> {
        if self.may_decide() { self.drain.next_time(Instant::now()) } else { None }
    }

    fn may_decide(&self) -> bool {
        self.is_synced() && self.term.as_ref().is_some_and(Term::is_current)
    }
}
