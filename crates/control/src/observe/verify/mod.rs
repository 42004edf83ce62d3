//! Name verification: a Route's `Resolvable` turns true only after every listed name server that answers was queried over the
//! network and answered correctly, and turns false when that changes. `docs/live.md` explains the meaning for users.
//!
//! ```text
//!  serial allocator ── names and serial of each zone ─────► feed ─────────┐
//!                                                                         ├─► state ─► checks ─► name servers (UDP, TCP)
//!  Routes and RouteBindings ── changed objects ───────────────────────────┘    │  ▲       │
//!                                                                              │  └───────┘
//!                                                                              └─► conditions ─► observations
//! ```
//!
//! The loop runs in the same process as the serial allocator: only in the leader. It adds one write to a new Route, and a few
//! queries per second, for any number of Routes: [`state`] explains why that suffices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::check::{CheckResult, Fault};
use self::checks::Job;
use self::feed::ZoneFeed;
use self::metrics::Metrics;
use self::server_zone::DOUBT;
use self::state::{Server, VerificationState};
use crate::client::backoff::random;
use crate::client::reflector::{Applied, Change, ObjectKey, Store};
use crate::compiler;
use crate::compiler::inputs::{BindingInput, binding_key};
use crate::name_server::reserved::file_changes;
use crate::world::condition::ConditionUpdate;
use crate::world::observations::{About, Observations, RouteFinding, RouterFinding, RouterFindings};
use crate::world::{BindingInfo, RouteInfo, World};
use signpost_dns::wire::Name;
use signpost_dns::zone::publish::Publisher;
use signpost_types::names::is_at_or_below;
use signpost_types::v1alpha1::deletion_hold::{DeletionHold, DeletionHoldKind};
use signpost_types::v1alpha1::route::{NameKind, RESOLVABLE};
use signpost_types::v1alpha1::router::ZONE_PUBLISHED;

pub mod feed;
pub mod state;

pub mod checks;
pub mod conditions;
pub mod server_zone;

pub mod check;

pub mod metrics;

#[cfg(test)]
mod state_tests;

/// The maximum number of checks in flight: a silent server holds each for some seconds.
const IN_FLIGHT_MAX: usize = 64;
/// The maximum number of queries per second, to all name servers together, on average and at once.
const QUERIES_PER_SECOND: u32 = 500;
/// The Routes whose conditions are computed in a row, before other events.
const ROUTES_IN_A_ROW: usize = 1024;
/// The wait for room for more findings.
const NO_ROOM_WAIT: Duration = Duration::from_millis(5);

#[derive(Clone)]
pub struct Settings {
    /// The listed name servers; `None`: none is queried.
    pub servers: Option<Vec<Server>>,
    /// The time for a name server to answer one query.
    pub timeout: Duration,
    /// The approximate time after which a zone with correct answers is checked again.
    pub interval: Duration,
    /// The time without an answer after which a name server is not waited for: longer than the name server denies names without word
    /// from the API ([`denials`](crate::name_server::denials)).
    pub silence_longest: Duration,
    /// The zones of the name server in this process, some from files.
    pub served: Option<Arc<Publisher>>,
}

/// Verifies names until `stop`, and stores the findings in the World's observations.
pub async fn run(
    world: World,
    platform: Arc<compiler::Settings>,
    settings: Settings,
    feed: Arc<ZoneFeed>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let (deletion_holds, mut deletion_hold_changes) = world.holds.read();
    let (routes, mut route_changes) = world.routes.read();
    let (bindings, _) = world.bindings.read();
    let observations = Arc::clone(&world.observations);
    observations.forget(RESOLVABLE);
    observations.forget(ZONE_PUBLISHED);
    // Without a name server, there are no changes.
    let mut files = settings.served.as_deref().map_or_else(|| watch::Sender::new(()).subscribe(), file_changes);
    let apexes = || settings.served.iter().flat_map(|zones| zones.files().into_keys()).collect();
    let servers = settings.servers.clone();
    let mut verifier = Verifier {
        state: VerificationState::new(platform, servers, settings.interval, settings.silence_longest),
        queries: TokenBucket::new(QUERIES_PER_SECOND),
        timeout: settings.timeout,
        routes,
        bindings,
        observations,
        metrics,
        without_alias: BTreeSet::new(),
        silent: BTreeSet::new(),
        checks: JoinSet::new(),
    };
    verifier.state.set_files(apexes(), Instant::now());
    verifier.state.config.servers.iter().for_each(|server| verifier.metrics.set_silent(server, false));
    loop {
        verifier.take_update(&feed);
        let has_more = verifier.compute_conditions();
        verifier.start_checks();
        verifier.metrics.set_reasons(verifier.state.reasons());
        verifier.report_silence();
        let wake_at = verifier.next_time();
        tokio::select! {
            () = stop.cancelled() => break,
            () = feed.wait() => {}
            change = route_changes.next() => verifier.take_change(change),
            Ok(()) = files.changed() => verifier.state.set_files(apexes(), Instant::now()),
            _ = deletion_hold_changes.next() => verifier.state.set_deletion_holds(entered(&deletion_holds)),
            Some(ended) = verifier.checks.join_next() => verifier.finish_check(ended),
            () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {}
            () = tokio::task::yield_now(), if has_more => {}
        }
    }
    verifier.metrics.clear();
    // Checks leave nothing behind.
    verifier.checks.shutdown().await;
}

struct Verifier {
    timeout: Duration,
    routes: Store<RouteInfo>,
    bindings: Store<BindingInfo>,
    observations: Arc<Observations>,
    metrics: Metrics,
    state: VerificationState,
    /// The bound Routes whose names were in no zone when they changed, or were another Route's, with the time at which that is
    /// too long.
    without_alias: BTreeSet<(Instant, ObjectKey)>,
    /// The servers that are reported as silent.
    silent: BTreeSet<usize>,
    checks: JoinSet<(Job, Result<CheckResult, Fault>)>,
    queries: TokenBucket,
}

impl Verifier {
    fn take_update(&mut self, feed: &ZoneFeed) {
        let now = Instant::now();
        let update = feed.take();
        // A zone outside the platform's domain can contain or release hosts of routes; one inside has none.
        let comes_or_goes = |(apex, shard): (&Name, &Option<_>)| {
            self.state.is_other_elsewhere(apex, shard.is_some()).then(|| check::text(apex))
        };
        let elsewhere: Vec<String> = update.shards.iter().filter_map(comes_or_goes).collect();
        self.state.apply(update, now);
        if elsewhere.is_empty() {
            return;
        }
        for (key, route) in self.routes.all() {
            let is_there = |host: &str| elsewhere.iter().any(|zone| is_at_or_below(host, zone));
            if route.host.as_deref().is_some_and(is_there)
                && let Some(binding) = self.bindings.get(&key)
            {
                self.state.queue(&binding.label.to_ascii_lowercase());
            }
        }
    }

    fn take_change(&mut self, change: Change<RouteInfo>) {
        // At first the feed has all names.
        if !change.is_first() {
            let (applied, _) = change.into_parts();
            applied.into_iter().filter(is_news).for_each(|applied| self.queue(applied.key));
        }
    }

    fn queue(&mut self, key: ObjectKey) {
        let is_bound = self.routes.get(&key).is_some_and(|route| route.bound);
        let Some(binding) = self.bindings.get(&key).filter(|_| is_bound) else { return };
        if self.has_alias(&key, &binding.label) {
            self.state.queue(&binding.label.to_ascii_lowercase());
        } else {
            self.without_alias.insert((Instant::now() + DOUBT, key));
        }
    }

    /// Returns whether the names of the label belong to the Route at `key`.
    fn has_alias(&self, key: &ObjectKey, label: &str) -> bool {
        let binding = self.state.binding(&label.to_ascii_lowercase());
        binding.is_some_and(|binding| *binding.key == *binding_key(key.namespace(), &key.name))
    }

    /// Computes the conditions that may have changed, while more findings may wait. Returns whether there are more.
    fn compute_conditions(&mut self) -> bool {
        let now = Instant::now();
        for _ in 0..ROUTES_IN_A_ROW {
            if let Some(apex) = self.state.next_shard() {
                if let Some((name, statement, serial)) = self.state.router_condition(&apex) {
                    let finding = RouterFinding { statement, serial };
                    let set = |findings: &mut RouterFindings| findings.conditions.set(ZONE_PUBLISHED, Some(finding));
                    self.observations.set_router(&name, set);
                }
                continue;
            }
            if !self.observations.has_room() {
                return false;
            }
            if self.without_alias.first().is_some_and(|(late_at, _)| *late_at <= now) {
                let (_, key) = self.without_alias.pop_first().expect("it was there");
                self.compute_without_alias(&key);
                continue;
            }
            let Some(label) = self.state.next_route(now) else { return false };
            self.compute(&label, now);
        }
        true
    }

    fn compute(&mut self, label: &str, now: Instant) {
        let Some(binding) = self.state.binding(label).cloned() else { return };
        let Some((namespace, name)) = binding.key.split_once('/') else { return };
        let key = ObjectKey::namespaced(namespace, name);
        let route = self.routes.get(&key);
        let host = route.as_ref().and_then(|route| route.host.as_deref());
        let desired = self.state.conditions(label, host, now, Timestamp::now());
        let known = desired.resolvable.as_ref().or(desired.published.as_ref().filter(|_| !self.state.config.queries));
        self.state.set_reason(label, known.map(|condition| condition.reason));
        if desired.published.is_none() {
            self.state.queue_when_late(label, now);
        }
        if let Some(at) = desired.revisit {
            self.state.queue_at(label, at);
        }
        // A Route that the informer does not show as bound yet is queued again when it does.
        let Some(route) = route.filter(|route| route.bound) else { return };
        if !self.binds(&binding, &key, &route) {
            self.without_alias.insert((now + DOUBT, key));
            return;
        }
        let system_name = format!("{}.{}", binding.label, binding.shard);
        let changed = desired.changed_conditions(&route.conditions);
        self.report(&key, &route, About::Name(NameKind::System, system_name), changed);
    }

    /// Returns whether the known names belong to this Route, not to an earlier one whose binding is still the known one.
    fn binds(&self, known: &BindingInput, key: &ObjectKey, route: &RouteInfo) -> bool {
        let binding = self.bindings.get(key).filter(|binding| binding.route_uid == route.uid);
        binding.is_some_and(|binding| binding.input.as_ref().is_some_and(|input| input.created == known.created))
    }

    fn compute_without_alias(&mut self, key: &ObjectKey) {
        let route = self.routes.get(key).filter(|route| route.bound);
        let Some((route, binding)) = route.zip(self.bindings.get(key)) else { return };
        if self.has_alias(key, &binding.label) {
            self.state.queue(&binding.label.to_ascii_lowercase());
        } else {
            let changed = self.state.conditions_without_alias().changed_conditions(&route.conditions);
            self.report(key, &route, About::BoundTo(binding.router.clone()), changed);
        }
    }

    fn report(&self, key: &ObjectKey, route: &RouteInfo, about: About, changed: Vec<ConditionUpdate>) {
        let finding = RouteFinding::new(&route.uid, about, changed);
        self.observations.set_route(key, RESOLVABLE, Some(finding).filter(|finding| !finding.statements.is_empty()));
    }

    /// Starts the due checks, as many as the query rate allows.
    fn start_checks(&mut self) {
        let now = Instant::now();
        while self.checks.len() < IN_FLIGHT_MAX && self.queries.opens_at(now) <= now {
            let Some(job) = self.state.next_job(now, random()) else { return };
            let queries = job.check.queries();
            self.queries.take(queries, now);
            self.metrics.queries.inc_by(queries as u64);
            let (address, timeout) = (self.state.config.servers[job.server].address, self.timeout);
            self.checks.spawn(async move {
                let result = job.check.run(address, timeout).await;
                (job, result)
            });
        }
    }

    fn finish_check(&mut self, ended: Result<(Job, Result<CheckResult, Fault>), JoinError>) {
        match ended {
            Ok((job, result)) => {
                let fault = self.state.finish(job, result, Instant::now(), random());
                self.metrics.count_check(fault.map_or("right", |fault| fault.label()));
            }
            Err(error) => tracing::error!(%error, "a check panicked"),
        }
    }

    /// Reports the servers that have become silent, or answer again.
    fn report_silence(&mut self) {
        let now = Instant::now();
        for (index, from) in self.state.silent_from().enumerate() {
            let is_silent = from.is_some_and(|from| from <= now);
            if is_silent == self.silent.contains(&index) {
                continue;
            }
            let server = &self.state.config.servers[index];
            self.metrics.set_silent(server, is_silent);
            if is_silent {
                self.silent.insert(index);
                tracing::warn!(
                    %server,
                    "a name server does not answer: Routes do not wait for it while another one answers correctly"
                );
            } else {
                self.silent.remove(&index);
                tracing::info!(%server, "a name server answers again: Routes wait for it");
            }
        }
    }

    fn next_time(&self) -> Option<Instant> {
        let now = Instant::now();
        let silent_from = self.state.silent_from().flatten().filter(|from| *from > now).min();
        let without_alias = self.without_alias.first().map(|(late_at, _)| *late_at);
        let late_at = [without_alias, self.state.next_late_at()].into_iter().flatten().min();
        let late_at = if self.observations.has_room() { late_at } else { Some(now + NO_ROOM_WAIT) };
        let checks = self.state.next_check_at().filter(|_| self.checks.len() < IN_FLIGHT_MAX);
        let checks = checks.map(|at| at.max(self.queries.opens_at(now)));
        [late_at, checks, silent_from].into_iter().flatten().min()
    }
}

/// Returns whether the Route's conditions must be computed after this change.
fn is_news(applied: &Applied<RouteInfo>) -> bool {
    applied.recreated || applied.now.bound && applied.before.as_ref().is_none_or(|before| *before != applied.now)
}

/// Returns the DeletionHolds that name servers have entered.
fn entered(deletion_holds: &Store<DeletionHold>) -> BTreeMap<String, DeletionHoldKind> {
    let entered = deletion_holds.all().into_iter().filter(|(_, deletion_hold)| deletion_hold.is_held_in_dns());
    entered.map(|(key, deletion_hold)| (key.name, deletion_hold.spec.kind)).collect()
}

/// A token bucket: this rate per second on average, and at most the amount of one second at once.
#[derive(Debug)]
struct TokenBucket {
    per_second: u32,
    /// The time at which all used tokens are refilled.
    full_at: Option<Instant>,
}

impl TokenBucket {
    fn new(per_second: u32) -> Self {
        TokenBucket { per_second, full_at: None }
    }

    /// Returns the time from which a token is available.
    fn opens_at(&self, now: Instant) -> Instant {
        self.full_at.and_then(|full_at| full_at.checked_sub(Duration::from_secs(1))).map_or(now, |opens| opens.max(now))
    }

    fn take(&mut self, count: usize, now: Instant) {
        let full_at = self.full_at.map_or(now, |full_at| full_at.max(now));
        self.full_at = Some(full_at + Duration::from_secs(1).mul_f64(count as f64 / f64::from(self.per_second)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_of_tokens_may_be_taken_at_once_and_then_so_many_per_second() {
        let start = Instant::now();
        let mut bucket = TokenBucket::new(10);
        for (millis, expected) in [(0, 11), (350, 3), (60_000, 11)] {
            let now = start + Duration::from_millis(millis);
            let mut taken = 0;
            while bucket.opens_at(now) <= now {
                bucket.take(1, now);
                taken += 1;
            }
            assert_eq!(taken, expected, "{millis}");
        }
    }
}
