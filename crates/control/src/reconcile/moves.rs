//! The selection of bound Routes that must leave their Routers: those with the annotation, and, one after another, those on
//! draining Routers (`drain`). The scheduler is requested to choose other Routers for them.
//!
//! A Route whose host a source's router admitted is on the Router that stands for that one: it moves when the admission names another.
//!
//! A route that must move takes the same path as an unbound one, through the same queue, filter, and strategy. Without a target,
//! it gets the condition `MovePending`, stays on its Router, and is served. Nothing else moves a route: not a new Router, not
//! changed selectors, not another strategy.
//!
//! Requests for a host arrive at one Router. So Routes with one host *follow* the first of them that has a Router
//! (`Scheduler::host_leader`), and only that one can be moved.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::drain::Drain;
use crate::client::reflector::{Applied, Change, ObjectKey};
use crate::client::uid::Uid;
use crate::scheduler::Scheduler;
use crate::scheduler::metrics::Metrics;
use crate::scheduler::requests::{MoveReason, MoveRequest, MoveRequests};
use crate::world::objects::Objects;
use crate::world::router::RouterTarget;
use crate::world::{BindingInfo, ClaimInfo, RouteInfo, RouterInfo};
use signpost_types::names::host_claim_name;
use signpost_types::v1alpha1::route::MOVE_PENDING;

/// Returns the reason why a bound Route must leave its Router now, if it must. `router` is the Router of that name;
/// `is_released`: the Route's turn to leave that draining Router has come; `follows`: the first Route with its host is elsewhere.
fn reason(
    route: &RouteInfo,
    binding: &BindingInfo,
    router: Option<&RouterTarget>,
    is_released: bool,
    follows: bool,
) -> Option<MoveReason> {
    // A Router that was re-created with another zone is a different one.
    let is_zone_gone = router.is_some_and(|router| binding.is_zone_gone(router));
    // The admission of its host decides where an adopted Route is.
    let to = route.adopted_router().or(route.move_to.as_deref());
    match to {
        _ if route.deleting || !route.bound => None,
        _ if follows => Some(MoveReason::Followed),
        Some(to) if *to != *binding.router || is_zone_gone => Some(MoveReason::Asked),
        _ => is_released.then_some(MoveReason::Drained),
    }
}

/// Requests moves, and follows their results.
pub struct Moves {
    requests: MoveRequests,
    metrics: Metrics,
    objects: Objects,
    drain: Drain,
    search_every: Duration,
    next_search: Instant,
}

impl Moves {
    /// Requests them of `scheduler`.
    pub fn new(scheduler: &Scheduler, objects: Objects) -> Self {
        let settings = scheduler.settings();
        Moves {
            requests: scheduler.move_requests(),
            metrics: scheduler.metrics(),
            objects,
            drain: Drain::new(settings.drain_rate, settings.concurrency),
            search_every: settings.search,
            next_search: Instant::now() + settings.search,
        }
    }

    /// Handles changes of Routers; `is_used` returns whether one has routes.
    pub fn on_routers(&mut self, change: &Change<RouterInfo>, is_used: impl Fn(&str) -> bool) {
        let (applied, gone) = match change {
            Change::Applied(applied) => (std::slice::from_ref(applied), Vec::new()),
            Change::Deleted { key, .. } => (&[][..], vec![key]),
            Change::Relisted(resync) => (&resync.applied[..], resync.vanished.iter().map(|(key, _)| key).collect()),
        };
        let draining = applied.iter().map(|applied| (&applied.key, applied.now.is_draining()));
        let draining: Vec<_> = draining.chain(gone.into_iter().map(|key| (key, false))).collect();
        let turned = draining.into_iter().filter(|(key, drains)| self.drain.set_router(&key.name, *drains));
        let turned: Vec<&str> = turned.map(|(key, _)| &*key.name).collect();
        if !turned.is_empty() {
            self.follow_draining(&turned);
        }
        // Routes may be requested on their own former Routers, which have changed.
        let is_other = |one: &&Applied<RouterInfo>| {
            one.before.as_ref().is_none_or(|before| before.target.dns != one.now.target.dns) && is_used(&one.key.name)
        };
        let remade: Vec<&str> = applied.iter().filter(is_other).map(|one| &*one.key.name).collect();
        if !remade.is_empty() {
            for (key, route) in self.objects.routes.all() {
                if route.adopted_router().or(route.move_to.as_deref()).is_some_and(|to| remade.contains(&to)) {
                    self.reconcile(&key, &route, true);
                }
            }
        }
    }

    /// Handles Routers that start or stop draining.
    fn follow_draining(&mut self, turned: &[&str]) {
        for router in turned.iter().filter(|router| self.drain.drains(router)) {
            tracing::info!(router, "the Router is draining: moving its Routes to other Routers");
        }
        for (key, binding) in self.objects.bindings.all() {
            if !turned.contains(&&*binding.router) {
                continue;
            }
            if self.drain.drains(&binding.router) {
                self.drain.add(&key);
            } else if self.drain.remove(&key)
                && let Some(route) = self.objects.routes.get(&key)
                && !self.reconcile(&key, &route, false)
            {
                self.requests.withdraw(&key);
            }
        }
    }

    /// Handles a new or changed Route.
    pub fn on_route(&mut self, applied: &Applied<RouteInfo>) {
        let Applied { key, now, before, .. } = applied;
        let wanted = self.reconcile(key, now, now.is_news(before.as_deref()));
        if !wanted && before.as_ref().is_none_or(|before| !now.decides_as(before)) {
            // The route may fit another Router now, and a withdrawn request can leave it on a draining one.
            self.drain.retry_one(key);
        }
    }

    /// Handles a deleted Route.
    pub fn on_route_gone(&mut self, key: &ObjectKey) {
        // A finalizer can keep its binding for long: it must not prevent other routes from leaving.
        self.drain.mark_stuck(key);
        if self.requests.holds(key) {
            self.requests.withdraw(key);
        }
    }

    /// Handles a new or changed binding.
    pub fn on_binding(&mut self, applied: &Applied<BindingInfo>) {
        let Applied { key, now, before, .. } = applied;
        if before.as_ref().is_some_and(|before| before.router != now.router || before.route_uid != now.route_uid) {
            self.drain.remove(key);
        }
        if self.drain.drains(&now.router) {
            self.drain.add(key);
        }
        if let Some(route) = self.objects.routes.get(key) {
            self.reconcile(key, &route, false);
            let is_other = before.as_ref().is_none_or(|before| before.router != now.router);
            let host = route.host.as_deref().filter(|_| now.has_host && is_other);
            if let Some(claim) = host.and_then(|host| self.shared(host)) {
                self.on_claim(&claim);
            }
        }
    }

    /// Handles a new or changed claim, or a changed binding of one of its Routes.
    pub fn on_claim(&mut self, claim: &ClaimInfo) {
        if claim.released.is_some() || !claim.is_shared() {
            return;
        }
        for (key, ..) in claim.holders() {
            if let Some(route) = self.objects.routes.get(&key) {
                self.reconcile(&key, &route, false);
            }
        }
    }

    /// Returns the claim on a host that several Routes have.
    fn shared(&self, host: &str) -> Option<Arc<ClaimInfo>> {
        let claim = self.objects.claim(&host_claim_name(host));
        claim.filter(|claim| claim.released.is_none() && claim.is_shared())
    }

    /// Returns whether the Route must follow the first Route with its host to another Router, which exists.
    fn follows(&self, key: &ObjectKey, route: &RouteInfo) -> bool {
        let is_decided = !route.bound || route.adopted.is_some();
        let Some(host) = route.custom_name.as_deref().filter(|_| !is_decided) else { return false };
        let Some(claim) = self.shared(host) else { return false };
        let bound = |(other, uid, _): (ObjectKey, &Uid, &str)| {
            let binding = self.objects.bindings.get(&other).filter(|binding| binding.route_uid == *uid)?;
            Some((other, binding))
        };
        let Some((leader, there)) = claim.holders().find_map(bound) else { return false };
        let is_elsewhere = |binding: Arc<BindingInfo>| binding.router != there.router;
        leader != *key
            && self.objects.router(&there.router).is_some()
            && self.objects.bindings.get(key).is_some_and(is_elsewhere)
    }

    /// Handles a deleted binding.
    pub fn on_binding_gone(&mut self, key: &ObjectKey) {
        self.drain.remove(key);
        if self.requests.holds(key) {
            self.requests.withdraw(key);
        }
    }

    /// Requests the Route's move, if it must move, and withdraws the request otherwise. Returns whether it must move.
    fn reconcile(&mut self, key: &ObjectKey, route: &RouteInfo, again: bool) -> bool {
        let is_released = self.drain.is_released(key);
        // Nearly always, there is no request.
        let follows = self.follows(key, route);
        let is_meant = route.move_to.is_some() || route.adopted.is_some() || is_released || follows;
        let binding = if is_meant { self.objects.bindings.get(key) } else { None };
        if let Some(binding) = binding.filter(|binding| binding.route_uid == route.uid) {
            let router = self.objects.router(&binding.router);
            let is_released = is_released && self.drain.drains(&binding.router);
            let router = router.as_deref().map(|router| &router.target);
            if let Some(reason) = reason(route, &binding, router, is_released, follows) {
                let request = MoveRequest { router: binding.router.clone(), dns: binding.dns.clone(), reason };
                self.requests.request(key, request, again);
                return true;
            }
        }
        // A route that is being deleted, or has moved, must not prevent others from leaving.
        self.drain.mark_stuck(key);
        // Also if the condition was written at the moment when the reason for the move ended.
        let says_so = || route.bound && route.conditions.is_true(MOVE_PENDING) == Some(true);
        if self.requests.holds(key) || says_so() && !self.drain.holds(key) && self.objects.is_synced() {
            self.requests.withdraw(key);
        }
        false
    }

    /// Processes the scheduler's answers, and, if it may act, makes the due requests. Returns the time at which there is more to
    /// do.
    pub fn step(&mut self, may_act: bool, is_behind: impl FnOnce() -> bool) -> Option<Instant> {
        let answers = self.requests.take_answers();
        answers.stuck.iter().for_each(|key| self.drain.mark_stuck(key));
        if answers.could_help {
            self.drain.retry();
        }
        let now = Instant::now();
        if may_act {
            if now >= self.next_search {
                self.next_search = now + self.search_every;
                self.search_missed(is_behind());
            }
            while let Some(key) = self.drain.release(now) {
                match self.objects.routes.get(&key) {
                    Some(route) => drop(self.reconcile(&key, &route, true)),
                    None => self.drain.mark_stuck(&key),
                }
            }
        }
        self.metrics.drain(self.drain.depths());
        may_act.then(|| self.drain.next_time(now).map_or(self.next_search, |next| next.min(self.next_search)))
    }

    /// Searches for routes that must move, but have no request. There should be none.
    fn search_missed(&mut self, is_behind: bool) {
        // A Route that is about to arrive is not missed.
        let missed = u64::from(!is_behind);
        for (key, route) in self.objects.routes.all() {
            let was_known = self.requests.holds(&key);
            if (route.move_to.is_some()
                || route.adopted.is_some()
                || route.conditions.is_true(MOVE_PENDING) == Some(true)
                || self.follows(&key, &route))
                && self.reconcile(&key, &route, false)
                && !was_known
            {
                self.metrics.missed.inc_by(missed);
            }
        }
        if self.drain.is_idle() {
            return;
        }
        for (key, binding) in self.objects.bindings.all() {
            if self.drain.drains(&binding.router) && self.drain.add(&key) {
                self.metrics.missed.inc_by(missed);
            }
        }
    }
}
