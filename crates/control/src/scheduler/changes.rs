//! The effects of changes of the API's objects on the snapshot and the queue.
//!
//! | change | the snapshot | the queue |
//! |---|---|---|
//! | Router created or changed | contains it | requeues the routes that it can take |
//! | Router deleted | removes it | requeues the routes whose host it may have blocked, and the routes to be moved to it |
//! | Namespace | | requeues its routes, also for a changed quota |
//! | Route created or changed, or a condition removed | | schedules it |
//! | Route bound, or deleted | | removes it |
//! | move of a Route requested, or withdrawn | | schedules it, or removes it |
//! | RouteBinding | counts it | |
//! | RouteBinding deleted, or on another Router | stops counting it | requeues routes, if its Router or its namespace's quota was full, or others may share its host |
//! | claim on a host released | | schedules the Route that has waited longest for it, and those that it blocked (`admission`) |

use super::Scheduler;
use crate::client::lease::Term;
use crate::client::reflector::{self, Change, ObjectKey};
use crate::world::namespace::Quota;
use crate::world::observations::{About, RouteFinding};
use crate::world::{BindingInfo, NamespaceInfo, RouteInfo, RouterInfo};
use signpost_types::v1alpha1::route::{MOVE_PENDING, SCHEDULED};

impl Scheduler {
    pub(super) fn on_routers(&mut self, change: Change<RouterInfo>) {
        let (applied, gone) = change.into_parts();
        gone.iter().for_each(|(key, _)| self.snapshot.remove_router(&key.name));
        let mut helpful: Vec<String> = gone.into_iter().map(|(key, _)| key.name).collect();
        helpful.extend(applied.iter().filter_map(|applied| self.set_router(applied)));
        self.requeue_for_routers(&helpful);
    }

    /// Stores a Router; returns its name if it is new or changes decisions.
    fn set_router(&mut self, applied: &reflector::Applied<RouterInfo>) -> Option<String> {
        let differs = applied.before.as_ref().is_none_or(|before| before.target.differs_from(&applied.now.target));
        self.snapshot.set_router(applied.now.target.clone());
        differs.then(|| applied.key.name.clone())
    }

    /// Requeues Routes after one has left a Router, if that was full.
    pub(super) fn requeue_for_room(&mut self, router: &str) {
        let made_room = self.snapshot.router(router).is_some_and(|(facts, shard)| {
            facts.capacity.hard.is_some_and(|hard| shard.routes.saturating_add(1) >= hard && shard.routes < hard)
        });
        if made_room {
            self.requeue_for_routers(&[router.to_owned()]);
        }
    }

    /// Requeues Routes after one has left the namespace of `key`, if that had reached its quota.
    pub(super) fn requeue_for_quota(&mut self, key: &ObjectKey) {
        let Quota::AtMost(quota) = self.objects.namespace_of(key).quota else { return };
        let namespace = key.namespace();
        if self.snapshot.routes_of_namespace(namespace).saturating_add(1) == quota {
            self.requeuer.for_namespaces([namespace.to_owned()]);
        }
    }

    pub(super) fn on_namespaces(&mut self, change: Change<NamespaceInfo>) {
        let (applied, _) = change.into_parts();
        if applied.is_empty() {
            return;
        }
        self.requeuer.for_namespaces(applied.into_iter().map(|applied| applied.key.name));
        self.moves.could_help();
    }

    pub(super) fn on_routes(&mut self, change: Change<RouteInfo>) {
        let (mut applied, gone) = change.into_parts();
        gone.iter().for_each(|(key, last)| self.on_route_gone(key, last));
        // The oldest first, in an order that a restart does not change.
        applied.sort_by(|a, b| (a.now.created, &a.key).cmp(&(b.now.created, &b.key)));
        applied.into_iter().for_each(|applied| self.on_route(applied));
    }

    fn on_route(&mut self, applied: reflector::Applied<RouteInfo>) {
        let reflector::Applied { key, now, before, recreated } = applied;
        let wants_as = |before: &RouteInfo| before.host == now.host && before.path() == now.path();
        if let Some(before) = before.as_ref().filter(|before| recreated || !wants_as(before)) {
            self.leave_host(&key, before);
        }
        if now.bound && !now.deleting && self.moves.holds(&key) {
            // The requester follows the Route, and repeats the request if necessary.
        } else if now.bound || now.deleting {
            // Conditions about moves belong to the move requests.
            let is_of_move = |finding: &RouteFinding| !now.deleting && finding.about == About::Bound;
            self.observations.retain_route(&key, SCHEDULED, is_of_move);
            if now.bound {
                self.hosts.stop(&key);
            } else {
                self.leave_host(&key, &now);
            }
            self.queue.remove(&key);
        } else if now.is_news(before.as_deref()) {
            self.queue.push(key);
        }
    }

    fn on_route_gone(&mut self, key: &ObjectKey, last: &RouteInfo) {
        self.observations.set_route(key, SCHEDULED, None);
        self.leave_host(key, last);
        self.queue.remove(key);
    }

    pub(super) fn on_bindings(&mut self, change: Change<BindingInfo>) {
        let (applied, gone) = change.into_parts();
        gone.into_iter().for_each(|(key, last)| self.on_binding_gone(key, &last));
        applied.iter().for_each(|applied| self.on_binding(applied));
    }

    fn on_binding(&mut self, applied: &reflector::Applied<BindingInfo>) {
        if let Some(before) = &applied.before {
            self.snapshot.unbound(&applied.key, before);
        }
        self.snapshot.bound(&applied.key, &applied.now);
        if let Some(before) = applied.before.as_deref().filter(|before| before.router != applied.now.router) {
            // While it moved it counted twice.
            self.requeue_for_room(&before.router);
            self.requeue_for_quota(&applied.key);
            self.requeue_for_host(&applied.key, &applied.now);
        }
    }

    /// Requeues Routes after the Router of a Route with a host, which others may share, has changed.
    fn requeue_for_host(&mut self, key: &ObjectKey, binding: &BindingInfo) {
        if binding.has_host {
            self.requeuer.for_namespaces([key.namespace().to_owned()]);
        }
    }

    fn on_binding_gone(&mut self, key: ObjectKey, last: &BindingInfo) {
        self.snapshot.unbound(&key, last);
        self.requeue_for_room(&last.router);
        self.requeue_for_quota(&key);
        self.requeue_for_host(&key, last);
        // A binding of an earlier Route of this name was in the way, or this Route must be placed again.
        if self.objects.routes.get(&key).is_some_and(|route| !route.bound && !route.deleting) {
            self.queue.push(key);
        }
    }

    /// Applies new and withdrawn move requests.
    pub(super) fn on_move_requests(&mut self) {
        // The requester may have seen a Router drain that the snapshot does not show yet: then that Router might be chosen again.
        if self.watched.routers.is_behind() {
            return self.moves.remind();
        }
        for key in self.moves.take_news() {
            if self.moves.holds(&key) {
                self.queue.push(key);
            } else if let Some(route) = self.objects.routes.get(&key).filter(|route| route.bound) {
                self.queue.remove(&key);
                // A finding that is being written is retracted when it is seen.
                self.observations.set_route(&key, SCHEDULED, None);
                self.retract(&key, &route);
            }
        }
    }

    /// Removes the condition about a move that is not, or no longer, requested.
    fn retract(&mut self, key: &ObjectKey, route: &RouteInfo) {
        let says_so = route.conditions.is_true(MOVE_PENDING) == Some(true);
        // The condition of a completed move ends when the status shows the move.
        let is_there =
            || self.objects.bindings.get(key).is_some_and(|binding| route.router.as_ref() == Some(&binding.router));
        // A process that does not lead leaves this to the leader, and gets the requests again if it becomes the leader.
        let may_decide = || self.objects.is_synced() && self.term.as_ref().is_some_and(Term::is_current);
        if says_so && is_there() && may_decide() {
            self.observations.set_route(key, SCHEDULED, Some(RouteFinding::stays(&route.uid)));
        }
    }
}
