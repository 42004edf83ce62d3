//! The reconciler: cleans up after the placement of routes (claims on names, bindings), and writes the statuses of Routes and
//! Routers.
//!
//! ```text
//!  World ──changes──► keys ────────┐
//!                     (changes)    ├─► WorkQueue ─► plan (pure) ─► Executor ─► API
//!  Observations ──findings─────────┘       ▲            │ check again        │
//!                                          └────────────┴────────────────────┘ failed: after a backoff
//! ```
//!
//! `state::Planner::plan` returns the action for a key by the state of the informers. Informers can lag behind one another, and
//! actions (release a name, delete a binding) must not depend on that. So a key is checked some time after the change
//! ([`Settings::settle`]), and an action reads the objects again and repeats the decision. Findings of other parts of the process
//! are written immediately.
//!
//! The reconciler acts only while this process leads. Actions are safe to repeat, so a failed action, or a crash, is corrected by
//! the next check.

mod changes;
pub mod claim;
mod drain;
pub mod former_names;
pub mod moves;
pub mod route_state_counts;
pub mod router_metrics;
mod state;
mod write;

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use self::former_names::NameWriter;
use self::moves::Moves;
use self::route_state_counts::RouteStateCounts;
use self::router_metrics::RouterMetrics;
use self::state::{Action, Plan, Planner};
use self::write::{Done, Writer};
use crate::client::backoff::random;
use crate::client::events::{self, Counters, Events, Notice};
use crate::client::failure_log::FailureLog;
use crate::client::lease::{Leadership, Term};
use crate::client::reflector::{Changes, HealthProbe, ObjectKey};
use crate::scheduler::Scheduler;
use crate::work::executor::Executor;
use crate::work::queue::{Item, WorkQueue};
use crate::world::World;
use crate::world::condition::ConditionUpdate;
use crate::world::objects::ObjectChanges;
use crate::world::observations::Observed;
use signpost_types::v1alpha1::deletion_hold::DeletionHold;
use signpost_types::v1alpha1::route::{ADMITTED, FORMER_NAME_BLOCKED, PUBLISHED, RESOLVABLE, SCHEDULED};

/// The maximum number of actions in flight; one kind gets at most half of them. New Routes are scheduled concurrently, and must
/// not wait for it.
const ACTIONS_AT_A_TIME: usize = 32;
/// The keys checked in a row before events are processed again.
const LOOKS_IN_A_ROW: usize = 1024;
/// The time limit for one action.
const ACTION_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest time until a key that waits for a date is checked again: timers do not advance while a machine sleeps.
const DATE_LONGEST: Duration = Duration::from_secs(3600);

/// The settings of the reconciler.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The time for which a released label is reserved for the same namespace and route name.
    pub quarantine: Duration,
    /// The time for which the host of a deleted Route is reserved for a Route of the same namespace and name.
    pub host_reservation: Duration,
    /// The time for which a released host stays in the ledger for another Route to take over, before its claim is deleted.
    pub host_grace: Duration,
    /// Whether hosts must be verified.
    pub verify_hosts: bool,
    /// Whether name servers are queried for the names of Routes.
    pub verify_names: bool,
    /// The delay between an event and the check, so that the informers of the other kinds have caught up.
    pub settle: Duration,
    /// The first wait after a failed action; the longest is 32 times that.
    pub retry: Duration,
    /// Name of this process in events.
    pub instance: String,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            quarantine: Duration::from_secs(30 * 24 * 3600),
            host_reservation: Duration::ZERO,
            host_grace: Duration::from_secs(60),
            verify_hosts: false,
            verify_names: true,
            settle: Duration::from_secs(1),
            retry: Duration::from_secs(2),
            instance: "signpost".to_owned(),
        }
    }
}

/// The reconciler's metrics; clones share them.
#[derive(Debug, Clone)]
pub struct Metrics {
    actions: Family<[(&'static str, &'static str); 2], Counter>,
    depth: Gauge,
    events: Counters,
    create_to_resolvable: Arc<Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Metrics {
            actions: Family::default(),
            depth: Gauge::default(),
            events: Counters::default(),
            // 1 ms to 131 s.
            create_to_resolvable: Arc::new(Histogram::new(exponential_buckets(0.001, 2.0, 18))),
        }
    }
}

impl Metrics {
    /// Adds them to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "route_create_to_resolvable_seconds",
            "Time from the first observation of a new Route until every listed name server answered correctly for it \
             and its status was updated",
            (*self.create_to_resolvable).clone(),
        );
        let registry = registry.sub_registry_with_prefix("placement");
        registry.register(
            "actions",
            "Writes of NameClaims, RouteBindings, and statuses, by action",
            self.actions.clone(),
        );
        registry.register(
            "workqueue_depth",
            "Objects in the work queue of the placement controller",
            self.depth.clone(),
        );
        registry.register("events", "Events recorded", self.events.recorded.clone());
        registry.register(
            "events_dropped",
            "Events not recorded because too many were waiting",
            self.events.dropped.clone(),
        );
    }
}

/// The key of a check.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Claim(String),
    /// A RouteBinding.
    Binding(ObjectKey),
    /// The former names of a RouteBinding, and its alias.
    FormerNames(ObjectKey),
    /// A Route, after the informers have settled.
    Route(ObjectKey),
    /// A Route of which something was found out.
    Findings(ObjectKey),
    Router(String),
}

/// Each kind of key has its share of the actions.
impl Item for Key {
    type Owner = &'static str;

    fn owner(&self) -> &&'static str {
        match self {
            Key::Claim(_) => &"claim",
            Key::Binding(_) => &"binding",
            Key::FormerNames(_) => &"former_names",
            Key::Route(_) => &"route",
            Key::Findings(_) => &"findings",
            Key::Router(_) => &"router",
        }
    }
}

/// The reconciler, before and while it runs.
pub struct Reconciler {
    settings: Settings,
    metrics: Metrics,
    writer: Writer,
    watched: ObjectChanges,
    deletion_hold_changes: Changes<DeletionHold>,
    former_domains: watch::Receiver<Option<Vec<String>>>,
    planner: Planner,
    queue: WorkQueue<Key>,
    actions: Executor<Key, Done>,
    /// The Routes that should leave their Routers, if there is a scheduler to move them.
    moves: Option<Moves>,
    term: Option<Term>,
    failures: FailureLog,
    route_states: RouteStateCounts,
}

impl Reconciler {
    /// Returns a reconciler that uses `client`, whose identity must be allowed to change NameClaims, delete RouteBindings, write
    /// the status of Routes and Routers, and record Events. It reads the objects and the observations of `world`.
    pub fn new(client: kube::Client, world: &World, settings: Settings, metrics: Metrics) -> Self {
        let (objects, watched) = world.objects();
        let (deletion_holds, deletion_hold_changes) = world.holds.read();
        let observations = Arc::clone(&world.observations);
        // Who observes the instances polls their informer.
        let (instances, _) = world.instances.read();
        let former_domains = world.former_domains.clone();
        let owners = world.owners.clone();
        let writer = Writer::new(client, &settings, Arc::clone(&world.settings), owners.clone());
        let index = Default::default();
        let platform = Arc::clone(&world.settings.platform);
        let planner =
            Planner { platform, objects, owners, deletion_holds, instances, observations, former_domains, index };
        Reconciler {
            writer,
            queue: WorkQueue::new(ACTIONS_AT_A_TIME, [settings.retry, settings.retry * 32]),
            actions: Executor::new(ACTION_TIMEOUT),
            settings,
            metrics,
            watched,
            deletion_hold_changes,
            former_domains: planner.former_domains.subscribe(),
            planner,
            moves: None,
            term: None,
            failures: FailureLog::default(),
            route_states: RouteStateCounts::default(),
        }
    }

    /// Requests moves of this scheduler, and changes former names with its identity.
    #[must_use]
    pub fn with_scheduler(mut self, scheduler: &Scheduler) -> Self {
        let (client, server, domain) = scheduler.platform();
        self.moves = Some(Moves::new(scheduler, self.planner.objects.clone()));
        self.writer.names = Some(NameWriter { client, server, domain, next_overdue: Instant::now() });
        self
    }

    /// Returns the number of routes of each Router, for `/metrics`.
    pub fn router_metrics(&self) -> RouterMetrics {
        RouterMetrics(self.planner.objects.routers.clone())
    }

    /// Returns the number of Routes in each state, for `/metrics`.
    pub fn route_states(&self) -> RouteStateCounts {
        self.route_states.clone()
    }

    /// Returns the health of each informer, for metrics and readiness.
    pub fn informers(&self) -> Vec<HealthProbe> {
        self.planner.objects.probes()
    }

    /// Reconciles while `leadership` shows that this process leads, until `stop`.
    pub async fn run(mut self, mut leadership: watch::Receiver<Leadership>, stop: CancellationToken) {
        let reporter = events::Reporter {
            controller: "signpost.dev/placement",
            action: "Keeping",
            instance: self.settings.instance.clone(),
        };
        let (events, recording) = Events::new(self.writer.client.clone(), reporter, self.metrics.events.clone());
        // The recorder ends with this loop: events only repeat the status.
        let mut beside = JoinSet::new();
        beside.spawn(recording);
        let observations = Arc::clone(&self.planner.observations);
        let mut election_runs = true;
        loop {
            self.term = leadership.borrow_and_update().term().cloned();
            self.check_first_lists();
            self.take_findings();
            let more = self.work();
            self.metrics.depth.set(i64::try_from(self.queue.depth()).unwrap_or(i64::MAX));
            let wake_at = self.queue.next_at().filter(|_| self.may_act()).into_iter().chain(self.request_moves()).min();
            tokio::select! {
                () = stop.cancelled() => break,
                change = self.watched.routes.next() => self.on_routes(change),
                change = self.watched.bindings.next() => self.on_bindings(change),
                change = self.watched.claims.next() => self.on_claims(change),
                change = self.watched.routers.next() => self.on_routers(change),
                change = self.watched.namespaces.next() => self.on_namespaces(change),
                _ = self.deletion_hold_changes.next() => self.on_deletion_holds(),
                Ok(()) = self.former_domains.changed() => self.check_routers(),
                Some((key, result)) = self.actions.next() => self.on_done(key, result, &events),
                () = observations.wait() => {}
                () = Moves::answered(self.moves.as_ref()) => {}
                changed = leadership.changed(), if election_runs => election_runs = changed.is_ok(),
                () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {}
                () = tokio::task::yield_now(), if more => {}
            }
        }
        // Actions in flight can be aborted safely: each is one write.
        self.actions.shutdown().await;
    }

    /// Requests the due moves; returns the time of the next ones.
    fn request_moves(&mut self) -> Option<Instant> {
        let may_act = self.may_act();
        let is_behind = || self.watched.routes.is_behind() || self.watched.bindings.is_behind();
        self.moves.as_mut().and_then(|moves| moves.step(may_act, is_behind))
    }

    fn may_act(&self) -> bool {
        self.planner.objects.is_synced() && self.term.as_ref().is_some_and(Term::is_current)
    }

    /// Judges, once, the Routes that are missing according to their bindings and claims.
    fn check_first_lists(&mut self) {
        let Planner { objects, owners, .. } = &self.planner;
        if !owners.is_judged() && objects.is_synced() {
            owners.miss_routes(objects.missing_routes());
        }
    }

    /// Queues the findings.
    fn take_findings(&mut self) {
        let now = Instant::now();
        for observed in self.planner.observations.take_changed() {
            let key = match observed {
                Observed::Route(key) => Key::Findings(key),
                Observed::Router(name) => Key::Router(name),
            };
            self.queue.add(key, now);
        }
    }

    /// Checks due keys, and starts actions; returns whether there is more to do.
    fn work(&mut self) -> bool {
        let Some(term) = self.term.clone().filter(|_| self.may_act()) else { return false };
        let (now, time) = (Instant::now(), Timestamp::now());
        for _ in 0..LOOKS_IN_A_ROW {
            let Some(key) = self.queue.begin(now) else { return false };
            match self.planner.plan(&key, &self.settings, time) {
                Plan::Act(action) => self.start(key, *action, term.clone()),
                Plan::Done => {
                    self.queue.end(&key);
                    self.queue.succeeded(&key);
                }
                Plan::LookAgain(wait) => {
                    self.queue.end(&key);
                    self.queue.succeeded(&key);
                    self.queue.add(key, now + wait.clamp(self.settings.settle, DATE_LONGEST));
                }
            }
        }
        true
    }

    fn start(&mut self, key: Key, action: Action, term: Term) {
        let writer = self.writer.clone();
        self.actions.start(key, async move {
            if term.is_current() { writer.carry_out(action, &term).await } else { Ok(Done::default()) }
        });
    }

    fn on_done(&mut self, key: Key, result: kube::Result<Done>, events: &Events) {
        self.queue.end(&key);
        // Findings about a Route are written like the rest of its status.
        let kind = if let Key::Findings(_) = key { "route" } else { *key.owner() };
        let done = match result {
            Ok(done) => done,
            Err(error) => {
                if let Some(omitted) = self.failures.take(Instant::now()) {
                    tracing::warn!(?key, %error, omitted, "reconcile failed; retrying");
                }
                self.metrics.actions.get_or_create(&[("kind", kind), ("action", "failed")]).inc();
                return self.queue.failed(&key, Instant::now(), random());
            }
        };
        self.metrics.actions.get_or_create(&[("kind", kind), ("action", done.action.unwrap_or("none"))]).inc();
        self.queue.succeeded(&key);
        if let Key::Route(route) | Key::Findings(route) = &key {
            self.planner.observations.settle_route(route, &done.findings);
            done.turned.iter().for_each(|statement| self.record(events, route, &done.uid, statement));
        }
        if !matches!(key, Key::Findings(_)) {
            // Claims have a next step; and temporary errors of the informers are over at that time.
            self.queue.add(key, Instant::now() + self.settings.settle * 2);
        }
    }

    /// Records an Event for a condition that has turned, and updates metrics.
    fn record(&mut self, events: &Events, key: &ObjectKey, uid: &str, statement: &ConditionUpdate) {
        let ConditionUpdate { kind, reason, message, .. } = statement;
        let is_true = statement.is_true();
        if *kind == RESOLVABLE
            && is_true
            && let Some(appeared) = self.planner.index.take_appeared(key)
        {
            self.metrics.create_to_resolvable.observe(appeared.elapsed().as_secs_f64());
        }
        let (is_warning, reason, note) = match (*kind, is_true) {
            (PUBLISHED, true) => (false, "Published", message.clone()),
            (RESOLVABLE, true) => (false, "Resolvable", message.clone()),
            (PUBLISHED, false) => (true, "NotPublished", format!("{reason}: {message}")),
            (RESOLVABLE, false) => (true, "NotResolvable", format!("{reason}: {message}")),
            (SCHEDULED | ADMITTED, _) => (!is_true, *reason, format!("{reason}: {message}")),
            (FORMER_NAME_BLOCKED, _) => (is_true, *reason, format!("{reason}: {message}")),
            _ => return,
        };
        let (object, uid) = (key.clone(), uid.to_owned());
        events.record(Notice { kind: "Route", object, uid, is_warning, reason, note });
    }
}
