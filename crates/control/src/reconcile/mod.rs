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

use futures::FutureExt as _;
use futures::stream::once;
use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::time::Instant;
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
use crate::client::reflector::{HealthProbe, ObjectKey};
use crate::scheduler::Scheduler;
use crate::work::controller::{self, Controller, Inputs, changes, signals};
use crate::work::queue::{Item, WorkQueue};
use crate::world::World;
use crate::world::condition::ConditionUpdate;
use crate::world::observations::Observed;
use signpost_runtime::causes::chain;
use signpost_types::v1alpha1::route::{ADMITTED, FORMER_NAME_BLOCKED, PUBLISHED, RESOLVABLE, SCHEDULED};

/// The maximum number of actions in flight; one kind gets at most half of them. New Routes are scheduled concurrently, and must
/// not wait for it.
const ACTIONS_AT_A_TIME: usize = 32;
/// The time limit for one action.
const ACTION_TIMEOUT: Duration = Duration::from_secs(15);
/// The wait of the first findings about a Route for those about its names: together they are one write.
const NAMES_WAIT: Duration = Duration::from_millis(500);
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
        let registry = registry.sub_registry_with_prefix("reconciler");
        registry.register(
            "actions",
            "Writes of NameClaims, RouteBindings, and statuses, by action",
            self.actions.clone(),
        );
        registry.register("workqueue_depth", "Objects in the work queue of the reconciler", self.depth.clone());
        self.events.register(registry);
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
    planner: Planner,
    queue: WorkQueue<Key>,
    inputs: Inputs<Self>,
    /// Returns whether the stores of Routes or RouteBindings show changes that this loop has not received.
    is_behind: Box<dyn Fn() -> bool + Send>,
    events: Events,
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
        let mut inputs = Inputs::<Self>::default();
        let deletion_holds = inputs.read(&world.holds, |reconciler, _| reconciler.on_deletion_holds());
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
        let reporter = events::Reporter {
            controller: "signpost.dev/reconciler",
            action: "Keeping",
            instance: settings.instance.clone(),
        };
        let (events, recording) = Events::new(writer.client.clone(), reporter, metrics.events.clone());
        let behind = [watched.routes.behind(), watched.bindings.behind()];
        let observations = Arc::clone(&planner.observations);
        inputs.add(watched.routes, Self::on_routes);
        inputs.add(watched.bindings, Self::on_bindings);
        inputs.add(watched.claims, Self::on_claims);
        inputs.add(watched.routers, Self::on_routers);
        inputs.add(watched.namespaces, Self::on_namespaces);
        inputs.add(changes(planner.former_domains.subscribe()), |reconciler, _| reconciler.check_routers());
        // Findings are taken before keys are planned.
        inputs.add(signals(observations, |observations| observations.wait().boxed()), |_, ()| {});
        // The recorder ends with this loop: events only repeat the status.
        inputs.add(once(recording), |_, ()| {});
        Reconciler {
            writer,
            queue: WorkQueue::new(ACTIONS_AT_A_TIME, [settings.retry, settings.retry * 32]),
            settings,
            metrics,
            inputs,
            is_behind: Box::new(move || behind.iter().any(|is_behind| is_behind())),
            events,
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
        let answered = signals(scheduler.move_requests(), |requests| requests.answered().boxed());
        self.inputs.add(answered, |_, ()| {});
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
    pub async fn run(mut self, leadership: watch::Receiver<Leadership>, stop: CancellationToken) {
        self.term = leadership.borrow().term().cloned();
        let mut inputs = std::mem::take(&mut self.inputs);
        inputs.add(changes(leadership), |reconciler, lead: Leadership| reconciler.term = lead.term().cloned());
        controller::run(self, inputs, stop).await;
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
    fn take_findings(&mut self, now: Instant) {
        for observed in self.planner.observations.take_changed() {
            match observed {
                Observed::Route(key) if self.planner.waits_for_names(&key) => {
                    self.queue.add(Key::Findings(key), now + NAMES_WAIT);
                }
                Observed::Route(key) => self.queue.add(Key::Findings(key), now),
                Observed::Router(name) => self.queue.add(Key::Router(name), now),
            }
        }
    }

    /// Records an Event for a condition that has turned, and updates metrics.
    fn record(&mut self, key: &ObjectKey, uid: &str, statement: &ConditionUpdate) {
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
        self.events.record(Notice { api_version: None, kind: "Route", object, uid, is_warning, reason, note });
    }
}

impl Controller for Reconciler {
    type Key = Key;
    type Job = (Box<Action>, Term);
    type Done = Done;

    const JOB_TIMEOUT: Duration = ACTION_TIMEOUT;

    fn queue(&mut self) -> &mut WorkQueue<Key> {
        &mut self.queue
    }

    fn prepare(&mut self, now: Instant) {
        self.check_first_lists();
        self.take_findings(now);
    }

    fn is_ready(&self) -> bool {
        self.may_act()
    }

    fn plan(&mut self, key: &Key, now: Instant) -> controller::Plan<Self::Job> {
        match (self.planner.plan(key, &self.settings, Timestamp::now()), self.term.clone()) {
            (Plan::Act(action), Some(term)) => controller::Plan::Act((action, term)),
            (Plan::LookAgain(wait), _) => controller::Plan::At(now + wait.clamp(self.settings.settle, DATE_LONGEST)),
            _ => controller::Plan::Nothing,
        }
    }

    fn act(&self, _: &Key, (action, term): Self::Job) -> controller::Action<Done> {
        let writer = self.writer.clone();
        async move { if term.is_current() { writer.carry_out(*action, &term).await } else { Ok(Done::default()) } }
            .boxed()
    }

    fn done(&mut self, key: Key, result: kube::Result<Done>, now: Instant) {
        // Findings about a Route are written like the rest of its status.
        let kind = if let Key::Findings(_) = key { "route" } else { *key.owner() };
        let done = match result {
            Ok(done) => done,
            Err(error) => {
                if let Some(omitted) = self.failures.take(now) {
                    tracing::warn!(?key, error = chain(&error), omitted, "reconcile failed; retrying");
                }
                self.metrics.actions.get_or_create(&[("kind", kind), ("action", "failed")]).inc();
                return self.queue.failed(&key, now, random());
            }
        };
        self.metrics.actions.get_or_create(&[("kind", kind), ("action", done.action.unwrap_or("none"))]).inc();
        self.queue.succeeded(&key);
        if let Key::Route(route) | Key::Findings(route) = &key {
            self.planner.observations.settle_route(route, &done.findings);
            // The Event of a resolvable Route implies that its names are published.
            let is_resolvable = done.turned.iter().any(|statement| statement.kind == RESOLVABLE && statement.is_true());
            let turned = done.turned.iter().filter(|statement| !is_resolvable || statement.kind != PUBLISHED);
            turned.for_each(|statement| self.record(route, &done.uid, statement));
        }
        if !matches!(key, Key::Findings(_)) {
            // Claims have a next step; and temporary errors of the informers are over at that time.
            self.queue.add(key, now + self.settings.settle * 2);
        }
    }

    /// Requests the due moves; returns the time of the next ones.
    fn settle(&mut self, _: Instant) -> Option<Instant> {
        self.metrics.depth.set(i64::try_from(self.queue.depth()).unwrap_or(i64::MAX));
        let may_act = self.may_act();
        self.moves.as_mut().and_then(|moves| moves.step(may_act, &self.is_behind))
    }
}
