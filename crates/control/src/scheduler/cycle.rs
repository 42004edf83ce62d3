//! The path of one route through the scheduler: from the queue to a Router, and to its binding.

use std::sync::Arc;

use jiff::Timestamp;
use tokio::time::Instant;

use super::bind::{MoveSource, Plan, is_label_refused};
use super::chooser::ActiveStrategy;
use super::decision::{Placement, decide, decide_adopted, decide_requested};
use super::filter::{FitError, HostLeader, PlacementRequest, is_own_name};
use super::hosts::Hosts;
use super::rebind::held_by_caches;
use super::requests::MoveReason;
use super::strategy::StrategyName;
use super::webhook::ASKED_AT_A_TIME;
use super::{Attempt, Scheduler};
use crate::client::backoff::random;
use crate::client::lease::Term;
use crate::client::reflector::ObjectKey;
use crate::world::observations::RouteFinding;
use crate::world::{BindingInfo, NamespaceInfo, RouteInfo};
use signpost_types::names::{is_at_or_below, takes_names_of, wanted_label};
use signpost_types::v1alpha1::name_claim::ClaimKind;
use signpost_types::v1alpha1::route::Adopted;

/// The decisions in a row before events are processed again: 256 take well under a millisecond.
const DECISIONS_IN_A_ROW: usize = 256;

/// A route that needs a Router.
pub(super) struct QueuedRoute {
    pub(super) key: ObjectKey,
    pub(super) route: Arc<RouteInfo>,
    /// The Route's resourceVersion.
    pub(super) version: Box<str>,
    pub(super) namespace: Arc<NamespaceInfo>,
    /// Whether its host is the platform's own name for it.
    pub(super) host_is_own: bool,
    /// The current Router that it must leave, if there is one.
    pub(super) leaving: Option<MoveSource>,
    /// The Route with the same host that decides the Router.
    pub(super) host_leader: Option<HostLeader>,
    /// The routes that follow it to another Router.
    pub(super) followers: Vec<(ObjectKey, Arc<RouteInfo>)>,
    /// The time at which the route was taken from the queue.
    pub(super) started: Instant,
    /// The term in which it is scheduled.
    pub(super) term: Term,
}

impl QueuedRoute {
    pub(super) fn request<'a>(&'a self, hosts: &'a Hosts) -> PlacementRequest<'a> {
        let platform_host = self.route.host.as_deref().filter(|_| self.host_is_own);
        let leaving = self.leaving.as_ref().map(|leaving| leaving.router.as_str());
        let (host_leader, followers) = (self.host_leader.as_ref(), self.followers.as_slice());
        let request = PlacementRequest::new(&self.key, &self.route, &self.namespace);
        PlacementRequest { platform_host, leaving, host_leader, followers, hosts: Some(hosts), ..request }
    }

    /// Returns the custom host that the route needs, if it has no Router yet: a bound route was admitted before.
    fn custom_host(&self) -> Option<&str> {
        self.route.host.as_deref().filter(|_| !self.host_is_own && self.leaving.is_none())
    }

    /// Returns the Router in the route's annotation, unless the route is on that Router already and the Router drains, or must follow
    /// another Route.
    fn requested(&self) -> Option<&str> {
        if self.leaving.as_ref().is_some_and(|leaving| leaving.reason == MoveReason::Followed) {
            return None;
        }
        let drains = self.leaving.as_ref().filter(|leaving| leaving.reason == MoveReason::Drained);
        let is_on = |router: &str| drains.is_some_and(|leaving| leaving.router == router);
        self.route.move_to.as_deref().filter(|router| !is_on(router))
    }
}

impl Scheduler {
    /// Takes routes out of the queue while more may be bound at a time. Returns whether more could be scheduled now.
    pub(super) fn schedule_some(&mut self) -> bool {
        if !self.objects.is_synced() {
            return false;
        }
        let Some(term) = self.term.clone().filter(Term::is_current) else { return false };
        self.queue.unpark(ASKED_AT_A_TIME.saturating_sub(self.in_flight.calls.len()));
        for _ in 0..DECISIONS_IN_A_ROW {
            if self.in_flight.attempts.len() >= self.settings.concurrency {
                return false;
            }
            let Some(key) = self.queue.pop() else { return false };
            self.schedule_one(key, term.clone());
        }
        true
    }

    /// Decides the Router of one route, and starts the execution.
    fn schedule_one(&mut self, key: ObjectKey, term: Term) {
        if let Some(queued) = self.queued(key, Instant::now(), term) {
            self.place(queued);
        }
    }

    /// Returns the route at `key`, if it needs a Router, or another one, and may have one. Otherwise, puts it into its queue.
    pub(super) fn queued(&mut self, key: ObjectKey, started: Instant, term: Term) -> Option<QueuedRoute> {
        let (route, version) = self.objects.routes.get_versioned(&key).unzip();
        let route = route.filter(|route| !route.deleting);
        let binding = self.objects.bindings.get(&key);
        let binding = binding.filter(|binding| route.as_ref().is_some_and(|route| route.uid == binding.route_uid));
        let says_so = |route: &RouteInfo| {
            binding.as_ref().is_none_or(|binding| route.bound && route.router.as_ref() == Some(&binding.router))
        };
        let leaving = match (&route, &binding) {
            (Some(route), Some(binding)) => self.leaving(&key, route, binding),
            _ => None,
        };
        let Some(route) = route.filter(|route| !route.bound || leaving.is_some() || !says_so(route)) else {
            self.moves.mark_stuck(&key);
            self.queue.done(&key);
            return None;
        };
        if !says_so(&route) {
            // The route was placed; the reconciler updates its conditions.
            self.queue.done(&key);
            return None;
        }
        let namespace = self.objects.namespace_of(&key);
        if namespace.terminating {
            self.put_aside(&key, leaving.as_ref(), random());
            self.hosts.give_up(&key, route.host.as_deref());
            return None;
        }
        let is_adopted = route.adopted.is_some();
        let zone = route.host.as_deref().filter(|_| !is_adopted).and_then(|host| self.platform_zone(host));
        let platform_host = route.host.as_deref().filter(|_| zone.is_some());
        // A bound route was checked before; if no Router has its name, no Router can take it.
        if let Some(host) = platform_host.filter(|_| leaving.is_none()) {
            let request = PlacementRequest { platform_host, ..PlacementRequest::new(&key, &route, &namespace) };
            if !self.snapshot.routers().any(|(router, _)| is_own_name(&request, router, host)) {
                let message = refusal_of_platform_name(host, &zone.unwrap_or_default());
                self.refuse(&key, &route, ("HostInPlatformDomain", message));
                self.metrics.attempt("not_admitted", started.elapsed().as_secs_f64());
                return None;
            }
        }
        let host_is_own = platform_host.is_some();
        let custom = route.host.as_deref().filter(|_| !host_is_own && leaving.is_none());
        if let Some(refusal) = custom.and_then(|host| self.refusal(&key, &route, host)) {
            self.refuse(&key, &route, refusal);
            self.metrics.attempt("not_admitted", started.elapsed().as_secs_f64());
            return None;
        }
        let shared = route.host.as_deref().filter(|_| !host_is_own && !is_adopted);
        let host_leader = shared.and_then(|host| self.host_leader(&key, host));
        let leads = leaving.is_some() && host_leader.is_none();
        let followers = shared.filter(|_| leads).map(|host| self.followers(&key, host)).unwrap_or_default();
        Some(QueuedRoute {
            host_leader,
            followers,
            key,
            route,
            version: version.unwrap_or_default(),
            namespace,
            host_is_own,
            leaving,
            started,
            term,
        })
    }

    /// Returns the Router that a bound route must leave now, if any.
    fn leaving(&self, key: &ObjectKey, route: &RouteInfo, binding: &BindingInfo) -> Option<MoveSource> {
        let request = self.moves.get(key).filter(|request| request.is_of(route, binding))?;
        // A Router that was re-created with another zone is a different one.
        let router = self.snapshot.router(&binding.router).filter(|(router, _)| !binding.is_zone_gone(router));
        let former_name =
            router.map(|(router, _)| held_by_caches(router, Timestamp::now()).max(self.settings.former_name_retention));
        let router = binding.router.to_string();
        Some(MoveSource { router, reason: request.reason, former_name, to_instances: false })
    }

    /// Parks a route without a target: it stays on its Router, and is scheduled again when a change may help.
    fn put_aside(&mut self, key: &ObjectKey, leaving: Option<&MoveSource>, random: u64) {
        if leaving.is_some() {
            self.moves.mark_stuck(key);
        }
        match leaving.map(|leaving| leaving.reason) {
            Some(MoveReason::Drained) => self.queue.done(key),
            Some(MoveReason::Asked | MoveReason::Followed) | None => {
                self.queue.unschedulable(key, Instant::now(), random);
            }
        }
    }

    /// Chooses a Router, now or through a call outside the loop.
    pub(super) fn place(&mut self, queued: QueuedRoute) {
        if let Some(adopted) = queued.route.adopted.clone() {
            self.reserve_host(&queued);
            let decided = self.timed(|all| all.decide_adopted(&queued, &adopted));
            return self.carry_out(queued, decided);
        }
        let must_ask = matches!(self.choice.in_use, ActiveStrategy::Webhook(_))
            && queued.requested().is_none()
            && !self.choice.rest.is_resting();
        if must_ask && self.in_flight.calls.len() >= ASKED_AT_A_TIME {
            return self.queue.park(&queued.key);
        }
        self.reserve_host(&queued);
        if let Some(to) = queued.requested() {
            let decided = self.timed(|all| decide_requested(&queued.request(&all.hosts), &all.snapshot, to));
            return self.carry_out(queued, decided);
        }
        match self.choice.in_use.clone() {
            ActiveStrategy::Strategy(name) => {
                let decided = self.decide_by(&queued, name, None);
                self.carry_out(queued, decided);
            }
            ActiveStrategy::Webhook(webhook) => self.consult(queued, webhook),
        }
    }

    fn decide_adopted(&self, queued: &QueuedRoute, adopted: &Adopted) -> Result<Placement, FitError> {
        if queued.leaving.as_ref().is_some_and(|leaving| leaving.reason == MoveReason::Drained) {
            let message =
                format!("the Route stays on Router {}, on which {} admitted its host", adopted.router, adopted.by);
            return Err(FitError { reason: "Adopted", message });
        }
        let host = queued.route.host.as_deref().unwrap_or_default();
        let domain = self.platform_domains().find(|domain| is_at_or_below(host, domain));
        decide_adopted(&queued.request(&self.hosts), &self.snapshot, adopted, domain.as_deref())
    }

    pub(super) fn decide_by(
        &self,
        queued: &QueuedRoute,
        name: StrategyName,
        instead_of: Option<&str>,
    ) -> Result<Placement, FitError> {
        self.timed(|all| decide(&queued.request(&all.hosts), &all.snapshot, name.strategy(), instead_of))
    }

    pub(super) fn timed<T>(&self, decide: impl FnOnce(&Self) -> T) -> T {
        let begun = Instant::now();
        let decided = decide(self);
        self.metrics.decision(begun.elapsed().as_secs_f64());
        decided
    }

    /// Starts to bind a route to the chosen Router, or reports why there is none.
    pub(super) fn carry_out(&mut self, queued: QueuedRoute, decided: Result<Placement, FitError>) {
        if decided.is_ok() {
            // Another Route may have held the host when the call was made.
            self.reserve_host(&queued);
        }
        let QueuedRoute { key, route, version, host_is_own, mut leaving, host_leader, started, term, .. } = queued;
        let mut placement = match decided {
            Ok(placement) => placement,
            Err(error) => {
                self.metrics.attempt("unschedulable", started.elapsed().as_secs_f64());
                self.put_aside(&key, leaving.as_ref(), random());
                self.hosts.give_up(&key, route.host.as_deref());
                let report = match leaving {
                    Some(_) => RouteFinding::move_pending(&route.uid, error.reason, error.message),
                    None => RouteFinding::unscheduled(&route, error.reason, error.message),
                };
                self.report(&key, &route, report);
                return;
            }
        };
        if let Some(leaving) = &mut leaving {
            let router = self.snapshot.router(&placement.router);
            leaving.to_instances = router.is_some_and(|(router, _)| router.active.has_instances);
        }
        if let Some(MoveSource { router, reason: MoveReason::Drained, .. }) = &leaving {
            let summary = &mut placement.explanation.summary;
            *summary = format!("moved from {router}, which is draining: {summary}");
        }
        if let (Some(MoveSource { router, reason: MoveReason::Followed, .. }), Some(leader)) = (&leaving, &host_leader)
        {
            let summary = &mut placement.explanation.summary;
            *summary = format!("moved from {router} with Route {}, which has the same host: {summary}", leader.name);
        }
        self.snapshot.assume(key.clone(), &placement.router, Instant::now());
        let namespace = key.namespace();
        let [labels_kept, hosts_kept] =
            [ClaimKind::Label, ClaimKind::Host].map(|kind| self.names_kept(kind, namespace));
        let exists = |name: &str| self.objects.namespaces.get(&ObjectKey::cluster(name)).is_some();
        let is_label_refused = is_label_refused(&self.settings.label_rules, &key, route.subdomain.as_deref(), exists)
            || self.is_label_taken(&key, &route, &placement);
        let plan = Arc::new(Plan {
            key,
            route,
            version,
            host_is_own,
            leaving,
            placement,
            labels_kept,
            hosts_kept,
            is_label_refused,
        });
        let (binder, attempt) = (self.binder.clone(), Attempt { plan: Arc::clone(&plan), started });
        self.in_flight.attempts.start(attempt, async move { binder.bind(&plan, &term).await });
    }

    /// Reserves the custom host for a route, from the start of the search for a Router.
    fn reserve_host(&mut self, queued: &QueuedRoute) {
        if let Some(host) = queued.custom_host() {
            self.hosts.reserve(host, queued.route.path(), &queued.key);
        }
    }

    /// Returns whether the name that a route would have with its preferred label is the host of another Route, or, on a Router that it
    /// must have, is in use for another purpose.
    fn is_label_taken(&self, key: &ObjectKey, route: &RouteInfo, placement: &Placement) -> bool {
        let label = wanted_label(key.namespace(), &key.name, route.subdomain.as_deref());
        let router = self.snapshot.router(&placement.router).filter(|_| route.adopted.is_some());
        self.hosts.is_of_another_route(&format!("{label}.{}", placement.dns), key)
            || router.is_some_and(|(router, _)| router.taken.contains(&*label) || self.snapshot.is_zone(router, &label))
    }

    /// Returns the platform's domain, and the former ones.
    fn platform_domains(&self) -> impl Iterator<Item = String> {
        [self.settings.domain.clone()].into_iter().chain(self.former_domains.list())
    }

    /// Returns the platform's domain, the former domain or the Router's zone that a host is at or below, or a wildcard above, if
    /// there is one.
    fn platform_zone(&self, host: &str) -> Option<String> {
        let mut zones = self.snapshot.routers().map(|(router, _)| router.dns.as_str());
        let zone = || zones.find(|zone| takes_names_of(host, zone)).map(str::to_owned);
        self.platform_domains().find(|domain| takes_names_of(host, domain)).or_else(zone)
    }
}

/// Returns the reason why a route may not have a host that covers names of the platform's zone `zone`.
fn refusal_of_platform_name(host: &str, zone: &str) -> String {
    let covered = host.strip_prefix("*.").filter(|covered| is_at_or_below(zone, covered));
    match covered {
        Some(_) if !is_at_or_below(host.trim_start_matches("*."), zone) => {
            format!("{host} covers {zone}, where the platform assigns all names")
        }
        _ => format!(
            "{host} is below {zone}, where the platform assigns all names, and is not this Route's own name there"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_name_of_the_platform_is_refused() {
        for (host, zone, start) in [
            ("www.v3.example", "v3.example", "www.v3.example is below v3.example, where"),
            ("*.v3.example", "v3.example", "*.v3.example is below v3.example, where"),
            ("*.other.example", "shards.other.example", "*.other.example covers shards.other.example, where"),
        ] {
            let message = refusal_of_platform_name(host, zone);
            assert!(message.starts_with(start), "{message}");
        }
    }
}
