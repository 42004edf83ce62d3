//! Live before told: a Route's `Resolvable` turns true only after every listed name server was asked over the wire and
//! answered right, and turns false when that is no longer so. `docs/live.md` tells what that means to people.
//!
//! ```text
//!  ledger of serials ── which zone holds what, under which serial ─┐
//!                                                                  ├─► Proofs ─► checks ─► name servers (UDP, TCP)
//!  Routes and RouteBindings ── which have changed ─────────────────┘     │  ▲        │
//!                                                                        │  └────────┘
//!                                                                        └─► observations ─► status of Routes and Routers
//! ```
//!
//! The loop runs where the ledger does: only in the process that leads. It adds one write to the way of a new Route, and a
//! few questions a second, whatever the number of Routes: [`proofs`] says why that is enough.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::agenda::Job;
use self::check::{Fault, Seen, carry_out};
use self::feed::ZoneFeed;
use self::metrics::Metrics;
use self::proofs::{Proofs, Server};
use self::unheld::Unheld;
use crate::client::backoff::random;
use crate::client::reflector::{Applied, Change, ObjectKey, Store};
use crate::compiler;
use crate::compiler::inputs::binding_key;
use crate::world::condition::ConditionUpdate;
use crate::world::observations::{About, Finding, Observations, Part};
use crate::world::{BindingInfo, RouteInfo, World};
use signpost_api::names::is_at_or_below;
use signpost_api::v1alpha1::deletion_hold::{DeletionHold, DeletionHoldKind};
use signpost_api::v1alpha1::route::{NameKind, RESOLVABLE};
use signpost_dns::wire::Name;
use signpost_runtime::telemetry::trace::Trace;

mod behind;
pub mod feed;
mod looks;
pub mod proofs;
mod routes;
pub mod standing;
mod zones;

pub mod agenda;
mod own;
mod unheld;
pub mod verdict;
mod waiting;

pub mod check;

pub mod metrics;

#[cfg(test)]
pub(super) mod fake;
#[cfg(test)]
mod simulation;

/// Checks at a time: a silent server holds each for some seconds.
const CHECKS_AT_A_TIME: usize = 64;
/// Questions a second that name servers are asked, all together, on average and at most at once.
const QUESTIONS_PER_SECOND: u32 = 500;
/// Routes judged in a row before anything else is looked at.
const JUDGED_IN_A_ROW: usize = 1024;
/// How soon it is looked whether more findings may wait to be written, when no more may.
const NO_ROOM_WAIT: Duration = Duration::from_millis(5);

/// What is asked, and how.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The listed name servers; `None`: nobody is asked.
    pub servers: Option<Vec<Server>>,
    /// How long a name server may take to answer one question.
    pub timeout: Duration,
    /// How long after a right answer a zone is checked again, about.
    pub interval: Duration,
    /// Apexes of the zones that this process serves from files.
    pub files: watch::Receiver<Arc<BTreeSet<Name>>>,
}

/// Verifies names until `stop`, and tells `observations`.
pub async fn run(
    world: World,
    platform: Arc<compiler::Settings>,
    settings: Settings,
    zones: Arc<ZoneFeed>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let (deletion_holds, mut deletion_hold_changes) = world.holds.read();
    let (routes, mut route_changes) = world.routes.read();
    let (bindings, _) = world.bindings.read();
    let observations = Arc::clone(&world.observations);
    observations.forget(Part::Names);
    observations.for_routers(|router| router.zone = None);
    let mut files = settings.files.clone();
    files.mark_changed();
    let mut verifier = Verifier {
        proofs: Proofs::new(platform, settings.servers.clone(), settings.interval),
        questions: TokenBucket::new(QUESTIONS_PER_SECOND),
        patience: settings.timeout,
        routes,
        bindings,
        zones,
        observations,
        metrics,
        unheld: Unheld::default(),
        checks: JoinSet::new(),
    };
    loop {
        verifier.take_zones();
        let more = verifier.judge_some();
        verifier.start_checks();
        verifier.metrics.reasons(verifier.proofs.reasons());
        let wake_at = verifier.next_time();
        tokio::select! {
            () = stop.cancelled() => break,
            () = verifier.zones.wait() => {}
            change = route_changes.next() => verifier.on_routes(change),
            Ok(()) = files.changed() => {
                let now = files.borrow_and_update().clone();
                verifier.proofs.take_files(now, Instant::now());
            }
            _ = deletion_hold_changes.next() => verifier.proofs.take_deletion_holds(held_by(&deletion_holds)),
            Some(landed) = verifier.checks.join_next() => verifier.on_checked(landed),
            () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {}
            () = tokio::task::yield_now(), if more => {}
        }
    }
    verifier.metrics.forget_reasons();
    // Checks leave nothing behind.
    verifier.checks.shutdown().await;
}

struct Verifier {
    patience: Duration,
    routes: Store<RouteInfo>,
    bindings: Store<BindingInfo>,
    zones: Arc<ZoneFeed>,
    observations: Arc<Observations>,
    metrics: Metrics,
    proofs: Proofs,
    unheld: Unheld,
    checks: JoinSet<(Job, Result<Seen, Fault>)>,
    questions: TokenBucket,
}

impl Verifier {
    fn take_zones(&mut self) {
        let now = Instant::now();
        let news = self.zones.take();
        // A zone elsewhere may take hosts of routes, or let go of them; one of the platform's domain holds none.
        let comes_or_goes = |(apex, shard): (&Name, &Option<_>)| {
            self.proofs.is_other_elsewhere(apex, shard.is_some()).then(|| apex.clone())
        };
        let elsewhere: Vec<Name> = news.shards.iter().filter_map(comes_or_goes).collect();
        self.proofs.take(news, now);
        self.look_at_hosts_in(&elsewhere);
    }

    fn on_routes(&mut self, change: Change<RouteInfo>) {
        // At first the ledger tells of all names there are.
        if !change.is_first() {
            let (applied, gone) = change.into_parts();
            gone.into_iter().for_each(|(key, _)| self.look_at_route(key));
            applied.iter().for_each(|applied| self.on_route(applied));
        }
    }

    fn on_route(&mut self, applied: &Applied<RouteInfo>) {
        let before = applied.before.as_ref().filter(|_| !applied.recreated);
        if applied.recreated || applied.now.bound && before.is_none_or(|before| *before != applied.now) {
            self.look_at_route(applied.key.clone());
        }
    }

    fn look_at_route(&mut self, key: ObjectKey) {
        let bound = self.routes.get(&key).is_some_and(|route| route.bound);
        let binding = self.bindings.get(&key).filter(|_| bound);
        let held = binding.as_ref().is_some_and(|binding| self.holds(&key, &binding.label));
        match binding {
            Some(binding) if held => {
                self.unheld.remove(&key);
                self.proofs.looks.push(&binding.label.to_ascii_lowercase());
            }
            Some(_) => self.unheld.insert(key, Instant::now()),
            None => self.unheld.remove(&key),
        }
    }

    /// Has the Routes judged whose own hosts lie in one of these zones.
    fn look_at_hosts_in(&mut self, zones: &[Name]) {
        if zones.is_empty() {
            return;
        }
        let zones: Vec<String> = zones.iter().map(check::text).collect();
        for (key, route) in self.routes.all() {
            let lies = |host: &str| zones.iter().any(|zone| is_at_or_below(host, zone));
            if route.host.as_deref().is_some_and(lies)
                && let Some(binding) = self.bindings.get(&key)
            {
                self.proofs.looks.push(&binding.label.to_ascii_lowercase());
            }
        }
    }

    /// Whether the label's names are those of the Route at `key`.
    fn holds(&self, key: &ObjectKey, label: &str) -> bool {
        let binding = self.proofs.binding(&label.to_ascii_lowercase());
        binding.is_some_and(|binding| *binding.key == *binding_key(key.namespace(), &key.name))
    }

    /// Judges what is to be judged, as long as more findings may wait; whether there is more.
    fn judge_some(&mut self) -> bool {
        let now = Instant::now();
        for _ in 0..JUDGED_IN_A_ROW {
            if let Some(apex) = self.proofs.pop_changed_shard() {
                self.judge_router(&apex);
                continue;
            }
            if !self.observations.has_room() {
                return false;
            }
            if let Some(key) = self.unheld.pop_late(now) {
                self.judge_unheld(&key);
                continue;
            }
            let Some(label) = self.proofs.pop_dirty(now) else { return false };
            self.judge(&label, now);
        }
        true
    }

    fn judge(&mut self, label: &str, now: Instant) {
        let Some(binding) = self.proofs.binding(label).cloned() else { return };
        let Some((namespace, name)) = binding.key.split_once('/') else { return };
        let key = ObjectKey::namespaced(namespace, name);
        let route = self.routes.get(&key);
        let host = route.as_ref().and_then(|route| route.host.as_deref());
        let saying = self.proofs.saying(label, host, now, Timestamp::now());
        let known = saying.resolvable.as_ref().or(saying.published.as_ref().filter(|_| !self.proofs.config.asks));
        self.proofs.note(label, known.map(|statement| statement.reason));
        if saying.published.is_none() {
            self.proofs.look_at_when_late(label, now);
        }
        // A Route that the informer does not show as bound yet is told of when it is.
        let Some(route) = route.filter(|route| route.bound) else { return };
        let system_name = format!("{}.{}", binding.label, binding.shard);
        let statements = saying.news(&route.conditions.names);
        if statements.iter().any(|statement| statement.kind == RESOLVABLE && statement.is_true()) {
            self.trace(&key, &route, label);
        }
        self.find(&key, &route, About::Name(NameKind::System, system_name), statements);
    }

    fn judge_unheld(&mut self, key: &ObjectKey) {
        let route = self.routes.get(key).filter(|route| route.bound);
        let binding = self.bindings.get(key);
        let held = binding.as_ref().is_some_and(|binding| self.holds(key, &binding.label));
        if let (Some(route), Some(_), false) = (route, binding, held) {
            let statements = self.proofs.unheld_saying().news(&route.conditions.names);
            self.find(key, &route, About::Bound, statements);
        }
    }

    fn find(&self, key: &ObjectKey, route: &RouteInfo, about: About, statements: Vec<ConditionUpdate>) {
        let finding = Finding { uid: route.uid.clone(), about, statements, challenge: None };
        self.observations.set_route(key, Part::Names, Some(finding).filter(|finding| !finding.statements.is_empty()));
    }

    fn judge_router(&mut self, apex: &Name) {
        if let Some((name, statement, serial)) = self.proofs.router_saying(apex) {
            self.observations.set_router(&name, |router| router.zone = Some((statement, serial)));
        }
    }

    /// The span of a verification: from the moment at which the ledger named a version of the zones with the Route's names.
    fn trace(&self, key: &ObjectKey, route: &RouteInfo, label: &str) {
        let Some(trace) = Trace::of(&route.uid.to_string()) else { return };
        let Some(since) = self.proofs.routes.get(label).map(|route| route.since) else { return };
        let span = trace.step("prove", since.into_std()).with("signpost.route", key.to_string());
        span.with("signpost.label", label).with("signpost.resolvable", "true").end();
    }

    /// Begins the checks that are due, as many as the pace allows.
    fn start_checks(&mut self) {
        let now = Instant::now();
        while self.checks.len() < CHECKS_AT_A_TIME && self.questions.is_open(now) {
            let Some(job) = self.proofs.next_job(now, random()) else { return };
            let questions = job.check.questions();
            self.questions.take(u32::try_from(questions).unwrap_or(u32::MAX), now);
            self.metrics.questions.inc_by(questions as u64);
            let (address, patience) = (self.proofs.config.servers[job.server].address, self.patience);
            self.checks.spawn(async move {
                let result = carry_out(address, &job.check, patience).await;
                (job, result)
            });
        }
    }

    fn on_checked(&mut self, landed: Result<(Job, Result<Seen, Fault>), JoinError>) {
        match landed {
            Ok((job, result)) => {
                self.metrics.check(result.as_ref().map_or_else(Fault::label, |_| "right"));
                self.proofs.landed(&job, result, Instant::now(), random());
            }
            Err(error) => tracing::error!(%error, "a check panicked"),
        }
    }

    fn next_time(&self) -> Option<Instant> {
        let now = Instant::now();
        let looks = [self.unheld.next_late_at(), self.proofs.looks.next_at()].into_iter().flatten().min();
        let looks = if self.observations.has_room() { looks } else { Some(now + NO_ROOM_WAIT) };
        let checks = self.proofs.next_check_at().filter(|_| self.checks.len() < CHECKS_AT_A_TIME);
        let checks = checks.map(|at| at.max(self.questions.opens_at(now)));
        [looks, checks].into_iter().flatten().min()
    }
}

/// The DeletionHolds that name servers have entered.
fn held_by(deletion_holds: &Store<DeletionHold>) -> BTreeMap<String, DeletionHoldKind> {
    let is_entered =
        |deletion_hold: &DeletionHold| deletion_hold.status.as_ref().is_some_and(|status| !status.holders.is_empty());
    let entered = deletion_holds.all().into_iter().filter(|(_, deletion_hold)| is_entered(deletion_hold));
    entered.map(|(key, deletion_hold)| (key.name, deletion_hold.spec.kind)).collect()
}

/// A pace: so many a second on average, and at most a second's worth at once.
#[derive(Debug)]
struct TokenBucket {
    per_second: u32,
    /// When all that was taken is paid back.
    until: Option<Instant>,
}

impl TokenBucket {
    fn new(per_second: u32) -> Self {
        TokenBucket { per_second, until: None }
    }

    /// Whether something may be taken.
    fn is_open(&self, now: Instant) -> bool {
        self.opens_at(now) <= now
    }

    /// When something may be taken.
    fn opens_at(&self, now: Instant) -> Instant {
        self.until.and_then(|until| until.checked_sub(Duration::from_secs(1))).map_or(now, |opens| opens.max(now))
    }

    /// Takes `count`, if it may.
    fn take(&mut self, count: u32, now: Instant) -> bool {
        let open = self.is_open(now);
        if open {
            let paid = self.until.map_or(now, |until| until.max(now));
            self.until = Some(paid + Duration::from_secs(1).saturating_mul(count) / self.per_second);
        }
        open
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_allows_a_second_at_once_and_then_so_many_a_second() {
        let start = Instant::now();
        let mut pace = TokenBucket::new(10);
        let taken = |pace: &mut TokenBucket, now| (0..100).filter(|_| pace.take(1, now)).count();
        assert_eq!(taken(&mut pace, start), 11);
        assert_eq!(taken(&mut pace, start + Duration::from_millis(350)), 3);
        assert!(!pace.is_open(start + Duration::from_millis(350)));
        assert!(pace.is_open(pace.opens_at(start + Duration::from_millis(350))));
        assert_eq!(taken(&mut pace, start + Duration::from_secs(60)), 11);
    }
}
