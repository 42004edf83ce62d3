//! The scheduler: binds Routes to Routers, and reports the reasons.
//!
//! One task owns the queue and the snapshot and makes every decision in sequence. The writes (claims and bindings, which wait for
//! the API) run concurrently outside of it, and so do the calls of a webhook that chooses the Router. The path of a
//! route, from `Scheduler::schedule_one`:
//!
//! ```text
//!   pop ─► snapshot ─► filter ─► score ─► pick ─► explain ─► assume ─► claim names ─► create RouteBinding ─► confirmed
//!          └───────────────── decision::decide ─────────┘            └──────────── bind::Binder ────────┘
//! ```
//!
//! The scheduler always watches Routers, Namespaces, Routes, RouteBindings, and the claims on custom hosts, so that a process
//! that becomes leader starts immediately. It decides only while it leads.
//!
//! An unschedulable route waits for a change that could help: of a Router, its Namespace, itself, or the claim on its host. It is
//! also retried at intervals, because a retry costs little, and a missed change would leave the route unbound. Its conditions
//! show the reason.
//!
//! A bound route stays on its Router, except if it is requested to leave (`requests`).
//!
//! A Route whose host the router of a source admitted is *adopted*: it gets the Router that stands for that router, and no strategy decides.
//!
//! A custom host of another Route is not admitted, and the requesting Route **is not bound until it holds the host**. With a
//! binding only by its system name, its `status.dns`, which allocation never changes, would name a host of another application,
//! and `Scheduled=True` would be wrong.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{JoinSet, yield_now};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::asking::Call;
use self::bind::{ATTEMPT_TIMEOUT, Binder, Outcome, Plan};
use self::chooser::{Choice, StrategyConfig};
use self::hosts::Hosts;
use self::metrics::Metrics;
use self::queue::{BackoffSettings, Queue};
use self::requests::MoveRequests;
use self::requeuer::Requeuer;
use self::snapshot::Snapshot;
use self::webhook::CallError;
use self::webhook::message::Answer;
use crate::client::events::{self, Events};
use crate::client::failure_log::FailureLog;
use crate::client::lease::{Leadership, Term};
use crate::client::reflector::HealthProbe;
use crate::client::server::ServerKind;
use crate::work::executor::Executor;
use crate::world::objects::{ObjectChanges, Objects};
use crate::world::observations::Observations;
use crate::world::parents::FormerDomains;
use crate::world::{Quarantined, World};
use signpost_types::names::LabelRules;
use signpost_types::v1alpha1::route::SCHEDULED;

mod admission;
mod asking;
pub mod bind;
mod changes;
pub mod chooser;
pub mod claim;
mod cycle;
pub mod decision;
pub mod explain;
pub mod filter;
pub mod hosts;
pub mod metrics;
mod outcome;
pub mod queue;
pub mod rebind;
pub mod requests;
mod requeuer;
pub mod simulation;
pub mod snapshot;
pub mod strategy;
pub mod webhook;

/// The time limit for attempts in flight when the scheduler stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct Settings {
    /// The platform's domain, such as `v3.rhcloud.com`.
    pub domain: String,
    /// The names of the platform's name servers, which no route's name can be.
    pub name_servers: Vec<String>,
    /// The initial strategy or webhook; [`Scheduler::switch`] changes it.
    pub chooser: StrategyConfig,
    /// The number of routes that are bound at a time. Bindings wait for the disk, and the more wait together, the fewer disk
    /// writes are necessary; more than some dozens have no effect.
    pub concurrency: usize,
    /// Name of this process in events.
    pub instance: String,
    /// The backoff of routes that could not be bound.
    pub backoff: BackoffSettings,
    /// The interval of searches through all Routes for a missed one.
    pub search: Duration,
    /// Whether ownership of a custom host must be verified before its Route is admitted.
    pub verify_hosts: bool,
    /// The number of routes per second that leave draining Routers.
    pub drain_rate: u32,
    /// The time for which a moved route's former name resolves to its new one; longer if caches hold it for longer.
    pub former_name_retention: Duration,
    /// The most labels in quarantine for a namespace that still gets new ones.
    pub quarantined_max: u32,
    /// The labels that Routes may have.
    pub label_rules: LabelRules,
}

impl Settings {
    /// Returns the defaults for the platform `domain`.
    pub fn new(domain: &str) -> Self {
        Settings {
            domain: domain.to_owned(),
            name_servers: Vec::new(),
            chooser: StrategyConfig::default(),
            concurrency: 64,
            instance: "signpost".to_owned(),
            backoff: BackoffSettings::default(),
            search: Duration::from_secs(60),
            verify_hosts: false,
            drain_rate: 10,
            former_name_retention: Duration::from_secs(7 * 24 * 3600),
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
    watched: ObjectChanges,
    /// The objects on which decisions depend.
    objects: Objects,
    /// Labels in quarantine, and reserved hosts.
    quarantined: Quarantined,
    former_domains: FormerDomains,
    snapshot: Snapshot,
    queue: Queue,
    requeuer: Requeuer,
    /// The strategy or webhook in use.
    choice: Choice,
    /// Custom hosts, and the Routes that wait for one.
    hosts: Hosts,
    /// The requests for bound routes to leave their Routers.
    moves: MoveRequests,
    /// The register of reasons why routes have no Router.
    observations: Arc<Observations>,
    in_flight: InFlight,
    failures: FailureLog,
    term: Option<Term>,
}

/// The work that runs outside the loop.
struct InFlight {
    /// Attempts to bind Routes.
    attempts: Executor<Attempt, Outcome>,
    /// Calls of the webhook.
    calls: Executor<Call, Option<Result<Answer, CallError>>>,
    events: Events,
    /// Records these.
    recorder: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

/// An attempt to bind a Route.
struct Attempt {
    plan: Arc<Plan>,
    started: Instant,
}

impl Scheduler {
    /// Returns a scheduler that uses `client`, whose identity must be allowed to create NameClaims and RouteBindings, and to
    /// record Events. It reads the objects of `world`, and reports to its observations why a Route has no Router.
    pub fn new(client: kube::Client, world: &World, settings: Settings, metrics: Metrics) -> Self {
        let domain: Arc<str> = settings.domain.as_str().into();
        let (objects, watched) = world.objects();
        let instance = settings.instance.clone();
        let reporter = events::Reporter { controller: "signpost.dev/scheduler", action: "Scheduling", instance };
        let (events, recorder) = Events::new(client.clone(), reporter, metrics.events.clone());
        // A call limits itself.
        let (attempts, calls) = (Executor::new(ATTEMPT_TIMEOUT), Executor::new(Duration::MAX));
        let in_flight = InFlight { attempts, calls, events, recorder: Some(Box::pin(recorder)) };
        let binder = Binder { client, server: Arc::default(), domain };
        Scheduler {
            queue: Queue::new(settings.backoff.clone()),
            requeuer: Requeuer::default(),
            moves: MoveRequests::default(),
            choice: Choice::new(&settings.chooser, &metrics),
            hosts: Hosts::default(),
            settings,
            metrics,
            binder,
            watched,
            objects,
            quarantined: world.quarantined.clone(),
            former_domains: world.former_domains.clone(),
            snapshot: Snapshot::default(),
            observations: Arc::clone(&world.observations),
            in_flight,
            failures: FailureLog::default(),
            term: None,
        }
    }

    /// Returns the sender that changes the strategy at run time. Bound Routes keep their Router.
    pub fn switch(&self) -> watch::Sender<StrategyConfig> {
        self.choice.switch()
    }

    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Returns the handle for move requests.
    pub fn move_requests(&self) -> MoveRequests {
        self.moves.clone()
    }

    /// Returns the scheduler's client, the detected type of its server, and the platform's domain.
    pub fn platform(&self) -> (kube::Client, Arc<ServerKind>, Arc<str>) {
        let Binder { client, server, domain } = self.binder.clone();
        (client, server, domain)
    }

    /// Returns the health of each informer, for metrics and readiness.
    pub fn informers(&self) -> Vec<HealthProbe> {
        self.objects.probes()
    }

    /// Schedules while `leadership` shows that this process leads, until `stop`; then waits for the work in flight, for at most
    /// five seconds.
    pub async fn run(mut self, mut leadership: watch::Receiver<Leadership>, stop: CancellationToken) {
        let mut beside = JoinSet::new();
        self.in_flight.recorder.take().into_iter().for_each(|recorder| drop(beside.spawn(recorder)));
        let mut search = interval(self.settings.search);
        search.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut election_runs = true;
        loop {
            let term = leadership.borrow_and_update().term().cloned();
            if self.term.is_some() && term.is_none() {
                self.observations.forget(SCHEDULED);
            }
            self.term = term;
            self.metrics.leading(self.term.is_some());
            let is_pass_open = self.requeue_batch();
            let more = self.schedule_some() | self.push_woken() | is_pass_open;
            self.metrics.depths(self.queue.depths());
            // Before all objects are listed, bindings appear before their Routers.
            self.metrics.orphans(if self.objects.is_synced() { self.snapshot.orphans() } else { 0 });
            let wake_at = self.queue.next_time();
            tokio::select! {
                () = stop.cancelled() => break,
                change = self.watched.routers.next() => self.on_routers(change),
                change = self.watched.namespaces.next() => self.on_namespaces(change),
                change = self.watched.routes.next() => self.on_routes(change),
                change = self.watched.bindings.next() => self.on_bindings(change),
                change = self.watched.claims.next() => self.on_claims(change),
                () = self.moves.requested() => self.on_move_requests(),
                Some((attempt, result)) = self.in_flight.attempts.next() => self.on_attempt_ended(&attempt, result),
                Some((call, result)) = self.in_flight.calls.next() => self.on_answered(call, result),
                () = self.choice.switched() => self.on_switched(),
                changed = leadership.changed(), if election_runs => election_runs = changed.is_ok(),
                () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => self.queue.flush_expired_backoff(Instant::now()),
                _ = search.tick() => self.search_missed(),
                () = yield_now(), if more => {}
            }
        }
        self.metrics.leading(false);
        // A call has left nothing behind.
        drop(self.in_flight.calls);
        let _ = timeout(STOP_TIMEOUT, async { while self.in_flight.attempts.next().await.is_some() {} }).await;
        drop(self.in_flight.events);
        let _ = timeout(Duration::from_secs(1), async { while beside.join_next().await.is_some() {} }).await;
    }

    /// Searches all Routes for one that is not in a queue. There should be none.
    fn search_missed(&mut self) {
        if !self.objects.is_synced() {
            return;
        }
        self.on_move_requests();
        let queue = &self.queue;
        self.snapshot.expire(Instant::now(), |key| queue.is_in_flight(key));
        // A Route that is about to arrive is not missed.
        let missed = u64::from(!self.watched.routes.is_behind());
        for (key, route) in self.objects.routes.all() {
            let to = route.adopted_router().or(route.move_to.as_deref());
            let may_have_moved = || to.is_some() && to != route.router.as_deref();
            let is_placed = || self.objects.bindings.get(&key).is_some_and(|binding| binding.route_uid == route.uid);
            // As in `on_move_requests`.
            let is_requested = || !self.watched.routers.is_behind() && self.moves.holds(&key);
            let waits = !route.deleting && (!route.bound && !is_placed() || may_have_moved() || is_requested());
            if waits && !self.queue.holds(&key) {
                self.metrics.missed.inc_by(missed);
                self.queue.push(key);
            }
        }
    }

    /// Switches the strategy. Bound routes keep their Router; unbound ones may get one now.
    fn on_switched(&mut self) {
        self.choice.take(&self.metrics);
        for call in self.in_flight.calls.abort_all() {
            let key = call.queued.key;
            self.hosts.give_up(&key, None);
            self.queue.done(&key);
            self.queue.push(key);
        }
        self.requeuer.for_any();
    }
}
