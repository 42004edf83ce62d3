//! Routes that leave their Router: those whose annotation says so, those on Routers that are draining; and when their former names
//! begin and end.
//!
//! A route that is to move goes the way of one that has no Router, through the same queue, filter and strategy, and is bound by
//! replacing its binding (`rebind`). What it is told when there is nowhere to go is the condition `MovePending`; it stays where
//! it is meanwhile, and serves. Nothing else moves a route: not a new Router, not changed selectors, not another strategy.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tokio::task::{self, JoinError};
use tokio::time::{Instant, timeout};

use super::rebind::{Cause, Leaving, held_by_caches};
use super::{Scheduler, UnderWay};
use crate::client::lease::Term;
use crate::client::reflector::ObjectKey;
use crate::reconcile::observations::Part;
use crate::status::route::Finding;
use crate::world::route::Mark;
use crate::world::{BindingInfo, RouteInfo};
use signpost_api::v1alpha1::router::RouterState;

/// How many routes' former names begin or end at a time. A drain leaves as many as there were routes, whose end is in no hurry.
const TURNS_AT_A_TIME: usize = 4;
/// How long a former name's begin or end may take to be written.
const TURN_TIMEOUT: Duration = Duration::from_secs(15);
/// How long after it was tried the begin or end of a former name is tried again, if it is as it was.
const FORMER_NAME_RETRY: SignedDuration = SignedDuration::from_secs(30);
/// Longest wait for a date: timers do not count while a machine sleeps.
const DATE_LONGEST: Duration = Duration::from_secs(3600);

/// How it ended that a route's former names were to begin or end.
pub(super) type Turned = Result<(), String>;

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
        let former_name =
            router.map(|(router, _)| held_by_caches(router, Timestamp::now()).max(self.settings.former_name_retention));
        Some(Leaving { router: binding.router.to_string(), cause, former_name })
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
            self.observations.set_route(key, Part::Scheduling, Some(Finding::stays(&route.uid)));
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
                self.observations.set_route(&key, Part::Scheduling, None);
                self.take_back(&key, &route);
            }
        }
    }

    /// A binding is there, or is different.
    pub(super) fn follow_binding(&mut self, key: &ObjectKey, before: Option<&BindingInfo>, now: &BindingInfo) {
        if let Some(time) = before.and_then(BindingInfo::former_name_turn) {
            self.former_name_turns.remove(&(time, key.clone()));
        }
        if let Some(time) = now.former_name_turn() {
            self.former_name_turns.insert((time, key.clone()));
        }
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

    /// A binding is gone.
    pub(super) fn forget_binding(&mut self, key: &ObjectKey, last: &BindingInfo) {
        if let Some(time) = last.former_name_turn() {
            self.former_name_turns.remove(&(time, key.clone()));
        }
        self.drain.remove(key);
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

    /// Has the former names begin or end whose time has come.
    pub(super) fn turn_former_names(&mut self, under_way: &mut UnderWay) {
        let now = Timestamp::now();
        if self.former_name_turns.first().is_none_or(|(time, _)| *time > now) || !self.may_decide() {
            return;
        }
        let Some(term) = self.term.clone().filter(Term::is_current) else { return };
        while under_way.former_names.len() < TURNS_AT_A_TIME
            && let Some((_, key)) = self.former_name_turns.first().filter(|(time, _)| *time <= now).cloned()
        {
            self.former_name_turns.pop_first();
            let binder = self.binder.clone();
            let (term, flying) = (term.clone(), key.clone());
            let task = under_way.former_names.spawn(async move {
                let turn = async { binder.turn_names(&key, &term).await.map(drop) };
                timeout(TURN_TIMEOUT, turn).await.map_or_else(
                    |_| Err("the API did not answer in time".to_owned()),
                    |result| result.map_err(|error| error.to_string()),
                )
            });
            self.flights.insert(task.id(), flying);
        }
    }

    /// It was tried to let a route's former names begin or end. What the informer shows from then on says whether it is done.
    pub(super) fn on_former_names_turned(&mut self, turned: Result<(task::Id, Turned), JoinError>) {
        let (id, result) = match turned {
            Ok((id, result)) => (id, result),
            Err(error) => (error.id(), Err(error.to_string())),
        };
        let Some(key) = self.flights.remove(&id) else { return };
        if let Err(error) = result {
            tracing::warn!(route = %key, %error, "the names of a bound route cannot be changed; trying again");
        }
        let now = Timestamp::now();
        if self.bindings.get(&key).is_some_and(|binding| binding.former_name_turn().is_some_and(|time| time <= now)) {
            let again = now.checked_add(FORMER_NAME_RETRY).unwrap_or(Timestamp::MAX);
            self.former_name_turns.insert((again, key));
        }
    }

    /// When a route can be released, or a former name begins or ends.
    pub(super) fn next_move(&self) -> Option<Instant> {
        if !self.may_decide() {
            return None;
        }
        let now = Instant::now();
        let former_name = self.former_name_turns.first().map(|(until, _)| {
            let wait = Duration::try_from(until.duration_since(Timestamp::now())).unwrap_or_default();
            // A little later, so that it is over by then.
            now + (wait + Duration::from_millis(10)).min(DATE_LONGEST)
        });
        [self.drain.next_time(now), former_name].into_iter().flatten().min()
    }

    fn may_decide(&self) -> bool {
        self.is_synced() && self.term.as_ref().is_some_and(Term::is_current)
    }
}
