//! The scheduler: puts Routes on Routers, and says why.
//!
//! One task holds the queue and the snapshot and makes every decision, one after the other; carrying them out (claims and
//! bindings, which wait for the API) goes on beside it, many at once, and so does asking a webhook which Router it shall be
//! (`asking`). The way of a route, from `Scheduler::schedule_one` on:
//!
//! ```text
//!   pop ─► snapshot ─► filter ─► score ─► pick ─► explain ─► assume ─► claim names ─► create RouteBinding ─► confirmed
//!          └───────────────── decision::decide ─────────┘            └──────────── bind::Binder ────────┘
//! ```
//!
//! It watches Routers, Namespaces, Routes, RouteBindings and the claims on custom hosts at all times, so that a process
//! that becomes leader starts at once, and decides only while it leads.
//!
//! A route that no Router can take waits for a change that could help: of a Router, its Namespace, itself, or the claim on
//! its host; and tries again by itself now and then, since a guard costs little and a missed change a route. Its conditions
//! say why.
//!
//! A bound route stays where it is, but for those that are asked to leave their Router (`moving`).
//!
//! A custom host that another Route holds is not admitted, and its Route **is not bound until it holds the host**. It might
//! be bound by its system name alone; but then its `status.dns`, which never changes by allocation, would say a name that
//! leads to someone else's application, and `Scheduled=True` would promise what is not so.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::task::{self, JoinError, JoinSet, yield_now};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::asking::Answered;
use self::bind::{Binder, Outcome, Plan, is_label_refused};
use self::chooser::{ActiveStrategy, StrategyConfig};
use self::decision::{FitError, Placement, decide, decide_requested};
use self::drain::Drain;
use self::filter::{Wish, is_own_name};
use self::hosts::Hosts;
use self::lines::Lines;
use self::metrics::Metrics;
use self::moving::Turned;
use self::quarantine::Quarantined;
use self::queue::{Queue, Waits};
use self::quiet::FormerNameRetention;
use self::rebind::{Cause, Leaving};
use self::report::{Report, Reporter};
use self::snapshot::Snapshot;
use self::strategy::StrategyName;
use self::waking::Waking;
use self::webhook::ASKED_AT_A_TIME;
use self::webhook::circuit_breaker::CircuitBreaker;
use crate::client::backoff::random;
use crate::client::events::{self, Events, Notice};
use crate::client::lease::{Leadership, Term};
use crate::client::reflector::{Changes, HealthProbe, ObjectKey, Store};
use crate::world::{self, BindingInfo, ClaimInfo, NamespaceInfo, RouteInfo, RouterInfo, World};
use signpost_api::names::{LabelRules, is_at_or_below, other_label, takes_names_of};
use signpost_api::v1alpha1::name_claim::ClaimKind;

mod admission;
mod asking;
pub mod bind;
mod changes;
pub mod chooser;
pub mod claim;
pub mod decision;
pub mod drain;
pub mod explain;
pub mod filter;
pub mod hosts;
pub mod lines;
pub mod metrics;
mod moving;
pub mod quarantine;
pub mod queue;
pub mod quiet;
pub mod rebind;
pub mod report;
pub mod simulation;
pub mod snapshot;
pub mod strategy;
mod trace;
mod waking;
pub mod webhook;

/// Decisions in a row before events are looked at again: 256 take well under a millisecond.
const DECISIONS_IN_A_ROW: usize = 256;
/// Conditions being written at a time. They must not take the API from bindings.
const REPORTS_AT_A_TIME: usize = 8;
/// How long after its binding was made a route's status is looked at, to repair it on a server that does not set it.
const SETTLE: Duration = Duration::from_secs(1);
/// How long attempts under way may take to end when the scheduler stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// Failures in a row before a route's conditions tell of them; fewer are over before anyone could read it.
const FAILURES_TOLD: u32 = 3;

/// How to schedule.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The platform's domain, such as `v3.rhcloud.com`.
    pub domain: String,
    /// The names of the platform's name servers, which no route's name can be.
    pub name_servers: Vec<String>,
    /// What chooses Routers, at first; [`Scheduler::switch`] changes it.
    pub chooser: StrategyConfig,
    /// How many routes are being bound at a time. Bindings wait for the disk, and the more wait together the fewer times
    /// it is written to; beyond some dozens nothing is gained.
    pub concurrency: usize,
    /// Name of this process in events.
    pub instance: String,
    /// How long routes wait that could not be bound.
    pub waits: Waits,
    /// How often all Routes are searched for one that was missed.
    pub search: Duration,
    /// Whether a host of one's own is to be verified before its Route is admitted.
    pub verify_hosts: bool,
    /// How many routes a second are moved from Routers that are draining.
    pub drain_rate: u32,
    /// How long the former name of a moved route leads to its new one at least; longer if caches hold it for longer.
    pub former_name_retention: Duration,
    /// What keeps it beyond that.
    pub quiet: FormerNameRetention,
    /// How many labels may be in quarantine for a namespace that is to get new ones.
    pub quarantined_max: u32,
    /// Which labels Routes may have.
    pub label_rules: LabelRules,
}

impl Settings {
    /// The defaults for the platform `domain`.
    pub fn new(domain: &str) -> Self {
        Settings {
            domain: domain.to_owned(),
            name_servers: Vec::new(),
            chooser: StrategyConfig::default(),
            concurrency: 64,
            instance: "signpost".to_owned(),
            waits: Waits::default(),
            search: Duration::from_secs(60),
            verify_hosts: false,
            drain_rate: 10,
            former_name_retention: Duration::from_secs(7 * 24 * 3600),
            quiet: FormerNameRetention::default(),
            quarantined_max: 10_000,
            label_rules: LabelRules::default(),
        }
    }
}

/// The scheduler, before and while it runs.
pub struct Scheduler {
    settings: Settings,
    metrics: Metrics,
    binder: Binder,
    reporter: Reporter,
    client: kube::Client,
    watched: Watched,
    routes: Store<RouteInfo>,
    bindings: Store<BindingInfo>,
    namespaces: Store<NamespaceInfo>,
    claims: Store<ClaimInfo>,
    routers: Store<RouterInfo>,
    snapshot: Snapshot,
    queue: Queue,
    /// Which of the routes that wait are to be looked at again.
    waking: Waking,
    chooser: ActiveStrategy,
    /// Whether the webhook is asked, if that is what chooses.
    rest: CircuitBreaker,
    /// Held so that what chooses can be changed as long as this runs.
    switch: watch::Sender<StrategyConfig>,
    switched: watch::Receiver<StrategyConfig>,
    /// Routes that want one and the same custom host.
    lines: Lines,
    /// Custom hosts that overlap.
    hosts: Hosts,
    /// Labels in quarantine, and reserved hosts.
    quarantined: Quarantined,
    /// Routes just bound, with the time at which their status shall say so.
    settling: VecDeque<(Instant, ObjectKey)>,
    /// The routes on Routers that are draining.
    drain: Drain,
    /// When the first former name of each moved route begins or is over.
    former_name_turns: BTreeSet<(Timestamp, ObjectKey)>,
    /// What is to be written to Routes, the newest for each.
    reports: HashMap<ObjectKey, Report>,
    /// The attempts under way, to know whose it was if one panics.
    flights: HashMap<task::Id, ObjectKey>,
    term: Option<Term>,
}

struct Watched {
    routers: Changes<RouterInfo>,
    namespaces: Changes<NamespaceInfo>,
    routes: Changes<RouteInfo>,
    bindings: Changes<BindingInfo>,
    claims: Changes<ClaimInfo>,
}

/// What goes on beside the loop.
#[derive(Default)]
struct UnderWay {
    attempts: JoinSet<Finished>,
    questions: JoinSet<Answered>,
    /// Former names that begin or end: beside the attempts, so that the many that a drain leaves do not keep new routes waiting.
    former_names: JoinSet<Turned>,
}

/// A route that needs a Router.
struct Subject {
    key: ObjectKey,
    route: Arc<RouteInfo>,
    /// Its resourceVersion.
    version: Box<str>,
    namespace: Arc<NamespaceInfo>,
    /// Whether its host is the platform's own name for it.
    host_is_own: bool,
    /// The Router that it is on and is to leave, if it has one.
    leaving: Option<Leaving>,
    /// When it was taken out of the queue.
    started: Instant,
}

impl Subject {
    fn wish(&self) -> Wish<'_> {
        let platform_host = self.route.host.as_deref().filter(|_| self.host_is_own);
        let leaving = self.leaving.as_ref().map(|leaving| leaving.router.as_str());
        Wish { key: &self.key, route: &self.route, namespace: &self.namespace, platform_host, leaving }
    }

    /// The host of its own that it is to have, if it has no Router yet: one that has was judged before.
    fn custom_host(&self) -> Option<&str> {
        self.route.host.as_deref().filter(|_| !self.host_is_own && self.leaving.is_none())
    }

    /// The Router that its annotation names; one that it is on already and that drains was not asked for.
    fn asked(&self) -> Option<&str> {
        let drains = self.leaving.as_ref().filter(|leaving| leaving.cause == Cause::Drained);
        let is_on = |router: &str| drains.is_some_and(|leaving| leaving.router == router);
        self.route.move_to.as_deref().filter(|router| !is_on(router))
    }
}

enum Finished {
    Attempt { plan: Box<Plan>, outcome: Outcome, started: Instant },
    Repair { key: ObjectKey, result: kube::Result<()> },
}

impl Scheduler {
    /// A scheduler that speaks through `client`, whose identity must be allowed to create NameClaims and RouteBindings, to
    /// change the status of Routes, and to record Events.
    pub fn new(client: kube::Client, settings: Settings, metrics: Metrics) -> Self {
        let (domain, name_servers) = (settings.domain.clone(), settings.name_servers.clone());
        let world = World::new(&client, world::Settings { domain, name_servers, platform: None });
        Self::sharing(client, &world, settings, metrics)
    }

    /// One that reads the objects of `world`, as other loops do.
    pub fn sharing(client: kube::Client, world: &World, settings: Settings, metrics: Metrics) -> Self {
        let domain: Arc<str> = settings.domain.as_str().into();
        let (routers, router_changes) = world.routers.read();
        let (namespaces, namespace_changes) = world.namespaces.read();
        let (routes, route_changes) = world.routes.read();
        let (bindings, binding_changes) = world.bindings.read();
        let (claims, claim_changes) = world.claims.read();
        let (switch, switched) = watch::channel(settings.chooser.clone());
        let binder = Binder { client: client.clone(), server: Arc::default(), domain, quiet: settings.quiet };
        Scheduler {
            queue: Queue::new(settings.waits.clone()),
            waking: Waking::default(),
            drain: Drain::new(settings.drain_rate, settings.concurrency),
            quarantined: Quarantined::new(settings.quarantined_max),
            former_name_turns: BTreeSet::new(),
            chooser: ActiveStrategy::new(&settings.chooser, &metrics),
            rest: CircuitBreaker::default(),
            switch,
            switched,
            settings,
            metrics,
            binder,
            reporter: Reporter { client: client.clone() },
            client,
            watched: Watched {
                routers: router_changes,
                namespaces: namespace_changes,
                routes: route_changes,
                bindings: binding_changes,
                claims: claim_changes,
            },
            routes,
            bindings,
            namespaces,
            claims,
            routers,
            snapshot: Snapshot::default(),
            lines: Lines::default(),
            hosts: Hosts::default(),
            settling: VecDeque::new(),
            reports: HashMap::new(),
            flights: HashMap::new(),
            term: None,
        }
    }

    /// Changes what chooses Routers while it runs. Routes that have a Router keep it.
    pub fn switch(&self) -> watch::Sender<StrategyConfig> {
        self.switch.clone()
    }

    /// The health of each informer, for metrics and readiness.
    pub fn informers(&self) -> Vec<HealthProbe> {
        vec![
            self.routers.probe(),
            self.namespaces.probe(),
            self.routes.probe(),
            self.bindings.probe(),
            self.claims.probe(),
        ]
    }

    /// Schedules whenever `leadership` says that this process leads, until `stop`; then waits for what is under way, for
    /// at most five seconds.
    pub async fn run(mut self, mut leadership: watch::Receiver<Leadership>, stop: CancellationToken) {
        let instance = self.settings.instance.clone();
        let reporter = events::Reporter { controller: "signpost.dev/scheduler", action: "Scheduling", instance };
        let (events, recording) = Events::new(self.client.clone(), reporter, self.metrics.events.clone());
        let mut beside = JoinSet::new();
        beside.spawn(recording);
        let mut under_way = UnderWay::default();
        let mut writes: JoinSet<(ObjectKey, kube::Result<()>)> = JoinSet::new();
        let mut search = interval(self.settings.search);
        search.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut election_runs = true;
        loop {
            self.term = leadership.borrow_and_update().term().cloned();
            self.metrics.leading(self.term.is_some());
            self.release_drained();
            self.turn_former_names(&mut under_way);
            let more_wait = self.wake_some();
            let more = self.schedule_some(&mut under_way, &events) || more_wait;
            self.write_reports(&mut writes);
            self.metrics.depths(self.queue.depths());
            self.metrics.drain(self.drain.depths());
            // Before all is listed, bindings are seen whose Router is not yet.
            self.metrics.orphans(if self.is_synced() { self.snapshot.orphans() } else { 0 });
            let wake_at = self.next_time();
            tokio::select! {
                () = stop.cancelled() => break,
                change = self.watched.routers.next() => self.on_routers(change),
                change = self.watched.namespaces.next() => self.on_namespaces(change),
                change = self.watched.routes.next() => self.on_routes(change),
                change = self.watched.bindings.next() => self.on_bindings(change),
                change = self.watched.claims.next() => self.on_claims(change),
                Some(finished) = under_way.attempts.join_next_with_id() => self.on_landed(finished, &events),
                Some(answered) = under_way.questions.join_next_with_id() => {
                    self.on_answered(answered, &mut under_way, &events);
                }
                Some(turned) = under_way.former_names.join_next_with_id() => self.on_former_names_turned(turned),
                Ok(()) = self.switched.changed() => self.on_switched(&mut under_way),
                Some(written) = writes.join_next() => on_written(written),
                changed = leadership.changed(), if election_runs => election_runs = changed.is_ok(),
                () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => self.on_time(),
                _ = search.tick() => self.search_missed(),
                () = yield_now(), if more => {}
            }
        }
        self.metrics.leading(false);
        // What is only asked about has left nothing behind, and a former name is found by who comes next.
        under_way.questions.abort_all();
        under_way.former_names.abort_all();
        let _ = timeout(STOP_TIMEOUT, async { while under_way.attempts.join_next().await.is_some() {} }).await;
        drop(events);
        let _ = timeout(Duration::from_secs(1), async { while beside.join_next().await.is_some() {} }).await;
    }

    /// Takes routes out of the queue as long as more may be bound at a time. The answer is whether there are more that
    /// could be looked at now.
    fn schedule_some(&mut self, under_way: &mut UnderWay, events: &Events) -> bool {
        if !self.is_synced() {
            return false;
        }
        let Some(term) = self.term.clone().filter(Term::is_current) else { return false };
        self.queue.fetch(ASKED_AT_A_TIME.saturating_sub(under_way.questions.len()));
        for _ in 0..DECISIONS_IN_A_ROW {
            if under_way.attempts.len() >= self.settings.concurrency {
                return false;
            }
            let Some(key) = self.queue.pop() else { return false };
            self.schedule_one(key, &term, under_way, events);
        }
        true
    }

    /// Decides where one route goes, and begins to carry it out.
    fn schedule_one(&mut self, key: ObjectKey, term: &Term, under_way: &mut UnderWay, events: &Events) {
        let Some(subject) = self.subject(key, Instant::now(), under_way, events) else { return };
        self.place(subject, term, under_way, events);
    }

    /// The route at `key`, if it needs a Router, or another one, and may have one. If not, it is put where it belongs.
    fn subject(
        &mut self,
        key: ObjectKey,
        started: Instant,
        under_way: &mut UnderWay,
        events: &Events,
    ) -> Option<Subject> {
        let (route, version) = self.routes.get_versioned(&key).unzip();
        let route = route.filter(|route| !route.deleting);
        let binding = self.bindings.get(&key);
        let binding = binding.filter(|binding| route.as_ref().is_some_and(|route| route.uid == binding.route_uid));
        let says_so = |route: &RouteInfo| {
            binding.as_ref().is_none_or(|binding| route.bound && route.router.as_ref() == Some(&binding.router))
        };
        let leaving = match (&route, &binding) {
            (Some(route), Some(binding)) => self.leaving(&key, route, binding),
            _ => None,
        };
        let Some(route) = route.filter(|route| !route.bound || leaving.is_some() || !says_so(route)) else {
            // One that is being deleted may be held by a finalizer for long: it keeps no other route from leaving.
            self.drain.nowhere(&key);
            self.queue.done(&key);
            return None;
        };
        if !says_so(&route) {
            let reporter = self.reporter.clone();
            let flying = key.clone();
            let repair = async move { Finished::Repair { result: reporter.repair(&key).await, key } };
            let task = under_way.attempts.spawn(repair);
            self.flights.insert(task.id(), flying);
            return None;
        }
        let namespace = self.namespace(&key);
        if namespace.terminating {
            self.put_aside(&key, leaving.as_ref(), random());
            self.give_up_host(&key, &route);
            return None;
        }
        let zone = route.host.as_deref().and_then(|host| self.platform_zone(host));
        let platform_host = route.host.as_deref().filter(|_| zone.is_some());
        // One that has a Router was judged before; if no Router has its name, no Router can take it.
        if let Some(host) = platform_host.filter(|_| leaving.is_none()) {
            let wish = Wish { key: &key, route: &route, namespace: &namespace, platform_host, leaving: None };
            if !self.snapshot.routers().any(|(router, _)| is_own_name(&wish, router, host)) {
                let message = refusal_of_platform_name(host, zone.unwrap_or_default());
                self.refuse(&key, &route, "HostInPlatformDomain", message, events);
                self.metrics.attempt("not_admitted", started.elapsed().as_secs_f64());
                return None;
            }
        }
        let host_is_own = platform_host.is_some();
        let custom = route.host.as_deref().filter(|_| !host_is_own && leaving.is_none());
        if let Some((reason, message)) = custom.and_then(|host| self.kept_out(&key, &route, host)) {
            self.refuse(&key, &route, reason, message, events);
            self.metrics.attempt("not_admitted", started.elapsed().as_secs_f64());
            return None;
        }
        Some(Subject { key, route, version: version.unwrap_or_default(), namespace, host_is_own, leaving, started })
    }

    /// Has a Router chosen, now or beside the loop.
    fn place(&mut self, subject: Subject, term: &Term, under_way: &mut UnderWay, events: &Events) {
        let must_ask =
            matches!(self.chooser, ActiveStrategy::Webhook(_)) && subject.asked().is_none() && !self.rest.is_resting();
        if must_ask && under_way.questions.len() >= ASKED_AT_A_TIME {
            return self.queue.set_aside(&subject.key);
        }
        self.reserve_host(&subject);
        if let Some(to) = subject.asked() {
            let decided = self.timed(|all| decide_requested(&subject.wish(), &all.snapshot, to));
            return self.carry_out(subject, decided, term, under_way, events);
        }
        match self.chooser.clone() {
            ActiveStrategy::Strategy(name) => {
                let decided = self.decide_by(&subject, name, None);
                self.carry_out(subject, decided, term, under_way, events);
            }
            ActiveStrategy::Webhook(webhook) => self.consult(subject, webhook, term, under_way, events),
        }
    }

    fn decide_by(
        &self,
        subject: &Subject,
        name: StrategyName,
        instead_of: Option<&str>,
    ) -> Result<Placement, FitError> {
        self.timed(|all| decide(&subject.wish(), &all.snapshot, name.strategy(), instead_of))
    }

    fn timed<T>(&self, decide: impl FnOnce(&Self) -> T) -> T {
        let begun = Instant::now();
        let decided = decide(self);
        self.metrics.decision(begun.elapsed().as_secs_f64());
        decided
    }

    /// Begins to bind a route to the Router chosen, or says why there is none.
    fn carry_out(
        &mut self,
        subject: Subject,
        decided: Result<Placement, FitError>,
        term: &Term,
        under_way: &mut UnderWay,
        events: &Events,
    ) {
        if decided.is_ok() {
            // Another one may have held it when this one was asked about.
            self.reserve_host(&subject);
        }
        let Subject { key, route, version, host_is_own, leaving, started, .. } = subject;
        let mut placement = match decided {
            Ok(placement) => placement,
            Err(nowhere) => {
                self.metrics.attempt("unschedulable", started.elapsed().as_secs_f64());
                self.put_aside(&key, leaving.as_ref(), random());
                self.give_up_host(&key, &route);
                let report = match leaving {
                    Some(_) => Report::move_pending(&route.uid, nowhere.reason, nowhere.message),
                    None => Report::unscheduled(&route.uid, nowhere.reason, nowhere.message, route.host.is_some()),
                };
                self.report(&key, &route, report, events);
                return;
            }
        };
        if let Some(Leaving { router, cause: Cause::Drained, .. }) = &leaving {
            let summary = &mut placement.explanation.summary;
            *summary = format!("moved from {router}, which is draining: {summary}");
        }
        self.snapshot.assume(key.clone(), &placement.router, Instant::now());
        let decided = std::time::Instant::now();
        let namespace = key.namespace.as_deref().unwrap_or_default();
        let [labels_kept, hosts_kept] =
            [ClaimKind::Label, ClaimKind::Host].map(|kind| self.quarantined.is_full(kind, namespace));
        let exists = |name: &str| self.namespaces.get(&ObjectKey::cluster(name)).is_some();
        let is_label_refused = is_label_refused(&self.settings.label_rules, &key, route.subdomain.as_deref(), exists);
        let plan = Box::new(Plan {
            key,
            route,
            version,
            host_is_own,
            leaving,
            placement,
            labels_kept,
            hosts_kept,
            is_label_refused,
            decided,
        });
        let (binder, term, flying) = (self.binder.clone(), term.clone(), plan.key.clone());
        let task = under_way.attempts.spawn(async move {
            let outcome = binder.bind(&plan, &term).await;
            Finished::Attempt { plan, outcome, started }
        });
        self.flights.insert(task.id(), flying);
    }

    /// Another strategy chooses from now on. What has a Router keeps it; what has none may have one now.
    fn on_switched(&mut self, under_way: &mut UnderWay) {
        let chooser = self.switched.borrow_and_update().clone();
        tracing::info!(strategy = %chooser, "Routers are chosen by this strategy from now on");
        self.chooser = ActiveStrategy::new(&chooser, &self.metrics);
        self.rest = CircuitBreaker::default();
        // The routes asked about come back to the queue as their questions end.
        under_way.questions.abort_all();
        self.waking.for_any();
    }

    fn on_landed(&mut self, landed: Result<(task::Id, Finished), JoinError>, events: &Events) {
        match landed {
            Ok((id, finished)) => {
                self.flights.remove(&id);
                self.on_finished(finished, events);
            }
            Err(error) => {
                tracing::error!(%error, "binding a route panicked");
                if let Some(key) = self.flights.remove(&error.id()) {
                    self.snapshot.forget(&key);
                    self.wake_for_quota(&key);
                    let woken = self.hosts.release(&key);
                    self.look_at(woken);
                    self.queue.failed(&key, Instant::now(), random());
                }
            }
        }
    }

    fn on_finished(&mut self, finished: Finished, events: &Events) {
        let (plan, outcome, started) = match finished {
            Finished::Attempt { plan, outcome, started } => (plan, outcome, started),
            Finished::Repair { key, result: Ok(()) } => return self.queue.done(&key),
            Finished::Repair { key, result: Err(error) } => {
                tracing::warn!(route = %key, %error, "the route's status cannot be written");
                self.queue.failed(&key, Instant::now(), random());
                return;
            }
        };
        let (key, route) = (&plan.key, &plan.route);
        self.metrics.attempt(outcome.label(), started.elapsed().as_secs_f64());
        trace::attempt(&plan, &outcome, started);
        if !matches!(outcome, Outcome::Bound { .. } | Outcome::Moved) {
            self.snapshot.forget(key);
            self.wake_for_room(&plan.placement.router);
            self.wake_for_quota(key);
        }
        match outcome {
            Outcome::Bound { label } => {
                let note = format!("placed on {}: {}", plan.placement.router, plan.placement.explanation.summary);
                self.tell(events, key, route, "Scheduled", note, false);
                let namespace = key.namespace.as_deref().unwrap_or_default();
                if let Some((reason, note)) = other_label(namespace, &key.name, route.subdomain.as_deref(), &label) {
                    self.tell(events, key, route, reason, note, matches!(reason, "LabelTaken" | "SubdomainTaken"));
                }
                self.settle(key.clone(), route);
            }
            Outcome::Moved => {
                let note = format!("on {} now: {}", plan.placement.router, plan.placement.explanation.summary);
                self.tell(events, key, route, "Moved", note, false);
                self.settle(key.clone(), route);
            }
            Outcome::AlreadyBound => self.settle(key.clone(), route),
            Outcome::NotAdmitted { reason, message } => {
                self.give_up_host(key, route);
                self.refuse(key, route, reason, message, events);
            }
            Outcome::Overlaps => self.on_overlap(key, route, events),
            Outcome::NamesKept { kind, most } => self.on_names_kept(key, route, (kind, most), events),
            Outcome::Changed | Outcome::Deposed => {
                self.release_host(key, route);
                self.queue.failed(key, Instant::now(), random());
            }
            Outcome::Fenced { error } => {
                tracing::warn!(route = %key, %error, "the route cannot be bound now: to the API this process does not lead");
                self.release_host(key, route);
                self.queue.failed(key, Instant::now(), random());
            }
            Outcome::Failed { answered, error, told } => {
                tracing::warn!(route = %key, router = %plan.placement.router, %error, "the route cannot be bound");
                self.release_host(key, route);
                let failures = self.queue.failed(key, Instant::now(), random());
                if answered && failures >= FAILURES_TOLD {
                    let report = match plan.leaving {
                        Some(_) => Report::move_pending(&route.uid, "BindingFailed", told),
                        None => Report::unscheduled(&route.uid, "BindingFailed", told, route.host.is_some()),
                    };
                    self.report(key, route, report, events);
                }
            }
        }
    }

    /// The route needs a new label or host, and its namespace may have none for now.
    fn on_names_kept(&mut self, key: &ObjectKey, route: &RouteInfo, (kind, most): (ClaimKind, u32), events: &Events) {
        self.give_up_host(key, route);
        if self.quarantined.is_full(kind, key.namespace.as_deref().unwrap_or_default()).is_none() {
            // One was freed meanwhile, which nobody tells a route that does not wait yet.
            self.queue.failed(key, Instant::now(), random());
            return;
        }
        self.queue.unschedulable(key, Instant::now(), random());
        let (reason, message) = quarantine::refusal(kind, most);
        self.report(key, route, Report::unscheduled(&route.uid, reason, message, route.host.is_some()), events);
    }

    /// The route must not have its host, and waits until that changes.
    fn refuse(&mut self, key: &ObjectKey, route: &RouteInfo, reason: &'static str, message: String, events: &Events) {
        self.queue.unschedulable(key, Instant::now(), random());
        self.report(key, route, Report::not_admitted(&route.uid, reason, message), events);
    }

    fn settle(&mut self, key: ObjectKey, route: &RouteInfo) {
        self.queue.done(&key);
        self.stop_waiting_for_host(&key, route);
        if self.routes.get(&key).is_none_or(|now| now.uid != route.uid) {
            // It went in that moment, and its claim may be let go before it is seen.
            self.release_host(&key, route);
        }
        self.settling.push_back((Instant::now() + SETTLE, key));
    }

    fn report(&mut self, key: &ObjectKey, route: &RouteInfo, report: Report, events: &Events) {
        // What the informer shows may lag behind a report that is on its way; that one then finds nothing to do.
        if report.is_said_by(route) || self.reports.get(key) == Some(&report) {
            return;
        }
        if let Some(statement) = report.trouble() {
            let note = format!("{}: {}", statement.reason, statement.message);
            self.tell(events, key, route, "FailedScheduling", note, true);
        }
        self.reports.insert(key.clone(), report);
    }

    fn tell(
        &self,
        events: &Events,
        key: &ObjectKey,
        route: &RouteInfo,
        reason: &'static str,
        note: String,
        is_warning: bool,
    ) {
        events.tell(Notice { route: key.clone(), uid: route.uid.to_string(), is_warning, reason, note });
    }

    fn write_reports(&mut self, writes: &mut JoinSet<(ObjectKey, kube::Result<()>)>) {
        let Some(term) = self.term.as_ref().filter(|term| term.is_current()) else { return };
        while writes.len() < REPORTS_AT_A_TIME {
            let Some(key) = self.reports.keys().next().cloned() else { return };
            let Some(report) = self.reports.remove(&key) else { return };
            let (reporter, term) = (self.reporter.clone(), term.clone());
            self.metrics.status_writes.inc();
            writes.spawn(async move {
                let result = if term.is_current() { reporter.report(&key, &report).await } else { Ok(()) };
                (key, result)
            });
        }
    }

    fn next_time(&self) -> Option<Instant> {
        let settled = self.settling.front().map(|(time, _)| *time);
        [settled, self.queue.next_time(), self.next_move()].into_iter().flatten().min()
    }

    fn on_time(&mut self) {
        let now = Instant::now();
        self.queue.ripen(now);
        while let Some((_, key)) = self.settling.front().filter(|(time, _)| *time <= now).cloned() {
            self.settling.pop_front();
            let router = self.bindings.get(&key).map(|binding| binding.router.clone());
            let unsettled = |route: &RouteInfo| !route.bound || router.is_some() && route.router != router;
            let unsettled = self.routes.get(&key).is_some_and(|route| !route.deleting && unsettled(&route));
            if unsettled && !self.queue.holds(&key) {
                self.queue.push(key);
            }
        }
    }

    /// Looks through all Routes for one that waits nowhere. There should be none.
    fn search_missed(&mut self) {
        if !self.is_synced() {
            return;
        }
        let queue = &self.queue;
        self.snapshot.expire(Instant::now(), |key| queue.is_in_flight(key));
        let settling: HashSet<ObjectKey> = self.settling.iter().map(|(_, key)| key.clone()).collect();
        // One that is about to be told of is not missed.
        let missed = u64::from(!self.watched.routes.is_behind());
        for (key, route) in self.routes.all() {
            let is_asked = || route.move_to.is_some() && self.is_to_move(&key, &route);
            // Where a binding sets no status, whoever was to do it after a move may be gone.
            let is_elsewhere = |binding: Arc<BindingInfo>| {
                binding.route_uid == route.uid && route.router.as_ref() != Some(&binding.router)
            };
            let is_moved = || self.bindings.get(&key).is_some_and(is_elsewhere);
            let waits = !route.deleting && (!route.bound || is_asked() || is_moved());
            if waits && !self.queue.holds(&key) && !settling.contains(&key) {
                self.metrics.missed.inc_by(missed);
                self.queue.push(key);
            } else if !waits && !self.queue.holds(&key) && !self.drain.holds(&key) {
                self.take_back(&key, &route);
            }
        }
        if self.drain.is_idle() {
            return;
        }
        let missed = u64::from(!self.watched.bindings.is_behind());
        for (key, binding) in self.bindings.all() {
            if self.drain.drains(&binding.router) && self.drain.add(&key) {
                self.metrics.missed.inc_by(missed);
            }
        }
    }

    fn is_synced(&self) -> bool {
        self.routers.is_synced()
            && self.namespaces.is_synced()
            && self.routes.is_synced()
            && self.bindings.is_synced()
            && self.claims.is_synced()
    }

    fn namespace(&self, key: &ObjectKey) -> Arc<NamespaceInfo> {
        self.namespaces.get(&namespace_key(key)).unwrap_or_default()
    }

    /// The platform's domain or the Router's zone that a host is at or below, or a wildcard above, if there is one.
    fn platform_zone(&self, host: &str) -> Option<&str> {
        let domain = Some(self.settings.domain.as_str()).filter(|domain| takes_names_of(host, domain));
        let mut zones = self.snapshot.routers().map(|(router, _)| router.dns.as_str());
        domain.or_else(|| zones.find(|zone| takes_names_of(host, zone)))
    }
}

/// Why a route may not have a host that takes names of the platform's zone `zone`.
fn refusal_of_platform_name(host: &str, zone: &str) -> String {
    let covered = host.strip_prefix("*.").filter(|covered| is_at_or_below(zone, covered));
    match covered {
        Some(_) if !is_at_or_below(host.trim_start_matches("*."), zone) => {
            format!("{host} covers {zone}, whose names are given by the platform")
        }
        _ => format!(
            "{host} is below {zone}, whose names are given by the platform, and not this route's own name there"
        ),
    }
}

fn namespace_key(key: &ObjectKey) -> ObjectKey {
    ObjectKey::cluster(key.namespace.as_deref().unwrap_or_default())
}

fn on_written(written: Result<(ObjectKey, kube::Result<()>), JoinError>) {
    // The route is looked at again in any case, and will say the same again if it was not written.
    match written {
        Ok((_, Ok(()))) => {}
        Ok((key, Err(error))) => tracing::warn!(route = %key, %error, "the route's conditions cannot be written"),
        Err(error) => tracing::error!(%error, "writing a route's conditions panicked"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn why_a_name_of_the_platform_is_refused() {
        for (host, zone, told) in [
            ("www.v3.example", "v3.example", "www.v3.example is below v3.example, whose"),
            ("*.v3.example", "v3.example", "*.v3.example is below v3.example, whose"),
            ("*.other.example", "shards.other.example", "*.other.example covers shards.other.example, whose"),
        ] {
            let message = refusal_of_platform_name(host, zone);
            assert!(message.starts_with(told), "{message}");
        }
    }
}
