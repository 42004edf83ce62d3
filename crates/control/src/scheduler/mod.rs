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
//! A bound route stays where it is, but for those that are requested to leave their Router (`requests`).
//!
//! A custom host that another Route holds is not admitted, and its Route **is not bound until it holds the host**. It might
//! be bound by its system name alone; but then its `status.dns`, which never changes by allocation, would say a name that
//! leads to someone else's application, and `Scheduled=True` would promise what is not so.

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
use crate::client::lease::{Leadership, Term};
use crate::client::reflector::HealthProbe;
use crate::client::server::ServerKind;
use crate::reconcile::executor::Executor;
use crate::world::objects::{ObjectChanges, Objects};
use crate::world::observations::{Observations, Part};
use crate::world::{Quarantined, World};
use signpost_api::names::LabelRules;

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
mod trace;
pub mod webhook;

/// How long attempts under way may take to end when the scheduler stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

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
    pub backoff: BackoffSettings,
    /// How often all Routes are searched for one that was missed.
    pub search: Duration,
    /// Whether a host of one's own is to be verified before its Route is admitted.
    pub verify_hosts: bool,
    /// How many routes a second are moved from Routers that are draining.
    pub drain_rate: u32,
    /// How long the former name of a moved route leads to its new one at least; longer if caches hold it for longer.
    pub former_name_retention: Duration,
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
    /// What it decides by.
    objects: Objects,
    /// Labels in quarantine, and reserved hosts.
    quarantined: Quarantined,
    snapshot: Snapshot,
    queue: Queue,
    requeuer: Requeuer,
    /// What chooses Routers.
    choice: Choice,
    /// Custom hosts, and the Routes that wait for one.
    hosts: Hosts,
    /// Which bound routes are to leave their Routers.
    moves: MoveRequests,
    /// Where it is told why routes have no Router.
    observations: Arc<Observations>,
    in_flight: InFlight,
    term: Option<Term>,
}

/// What goes on beside the loop.
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
    /// A scheduler that speaks through `client`, whose identity must be allowed to create NameClaims and RouteBindings, and to
    /// record Events. It reads the objects of `world`, and tells its observations why a Route has no Router.
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
            snapshot: Snapshot::default(),
            observations: Arc::clone(&world.observations),
            in_flight,
            term: None,
        }
    }

    /// Changes what chooses Routers while it runs. Routes that have a Router keep it.
    pub fn switch(&self) -> watch::Sender<StrategyConfig> {
        self.choice.switch()
    }

    /// How it schedules.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What it counts.
    pub fn metrics(&self) -> Metrics {
        self.metrics.clone()
    }

    /// Where moves are requested of it.
    pub fn move_requests(&self) -> MoveRequests {
        self.moves.clone()
    }

    /// The client that speaks as the scheduler, what is known of the server behind it, and the platform's domain.
    pub fn platform(&self) -> (kube::Client, Arc<ServerKind>, Arc<str>) {
        let Binder { client, server, domain } = self.binder.clone();
        (client, server, domain)
    }

    /// The health of each informer, for metrics and readiness.
    pub fn informers(&self) -> Vec<HealthProbe> {
        self.objects.probes()
    }

    /// Schedules whenever `leadership` says that this process leads, until `stop`; then waits for what is under way, for
    /// at most five seconds.
    pub async fn run(mut self, mut leadership: watch::Receiver<Leadership>, stop: CancellationToken) {
        let mut beside = JoinSet::new();
        self.in_flight.recorder.take().into_iter().for_each(|recorder| drop(beside.spawn(recorder)));
        let mut search = interval(self.settings.search);
        search.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut election_runs = true;
        loop {
            let term = leadership.borrow_and_update().term().cloned();
            if self.term.is_some() && term.is_none() {
                self.observations.forget(Part::Scheduling);
            }
            self.term = term;
            self.metrics.leading(self.term.is_some());
            let is_pass_open = self.requeue_batch();
            let more = self.schedule_some() | self.push_woken() | is_pass_open;
            self.metrics.depths(self.queue.depths());
            // Before all is listed, bindings are seen whose Router is not yet.
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

    /// Looks through all Routes for one that waits nowhere. There should be none.
    fn search_missed(&mut self) {
        if !self.objects.is_synced() {
            return;
        }
        self.on_move_requests();
        let queue = &self.queue;
        self.snapshot.expire(Instant::now(), |key| queue.is_in_flight(key));
        // One that is about to be told of is not missed.
        let missed = u64::from(!self.watched.routes.is_behind());
        for (key, route) in self.objects.routes.all() {
            let may_have_moved = || route.move_to.is_some() && route.move_to != route.router;
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

    /// Another strategy chooses from now on. What has a Router keeps it; what has none may have one now.
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
