//! Keeps in order what placing routes leaves behind: claims on names, bindings, and the status of Routes and Routers.
//!
//! One task watches the objects, once for all three concerns ([`super::claim`], [`super::route`], [`super::router`]), and
//! keeps a list of what is to be looked at, and when. Looking means to ask a pure `judge` what is to be done by what the
//! informers show. Only when there is something to do is the API asked for the objects as they are now, and judged again:
//! informers may lag behind one another, and what is done here (a name let go, a binding deleted) must not rest on that.
//!
//! It acts only while this process leads. What is done is safe to repeat, so that an action which fails, or a crash, is
//! mended by looking again.

mod agenda;
mod former_names;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use self::agenda::Agenda;
use self::former_names::FormerNames;
use super::claim::{self, Hold};
use super::former_names::{FormerNameRetention, NameWriter};
use super::live::{self, feed::RouteFeed};
use super::moves::Moves;
use super::ownership;
use super::route;
use super::route_state_counts::RouteStateCounts;
use super::router::{self, Load};
use super::router_metrics::RouterMetrics;
use crate::client::backoff::{delay, random};
use crate::client::events::{self, Counters, Events, Notice};
use crate::client::lease::{Leadership, Term};
use crate::client::reflector::{self, Change, Changes, HealthProbe, Informer, ObjectKey, Store};
use crate::client::status::Statement;
use crate::compiler;
use crate::scheduler::Scheduler;
use crate::world::binding::FormerNameInfo;
use crate::world::route::Mark;
use crate::world::{self, BindingInfo, ClaimInfo, NamespaceInfo, RouteInfo, RouterInfo, World};
use signpost_api::names::{host_claim_name, label_claim_name, wildcards_above};
use signpost_api::v1alpha1::deletion_hold::DeletionHold;
use signpost_api::v1alpha1::name_claim::ClaimKind;
use signpost_api::v1alpha1::route::{ADMITTED, FORMER_NAME_BLOCKED, SCHEDULED};

/// Actions at a time. They are few, and the API has more urgent things to do.
const ACTIONS_AT_A_TIME: usize = 16;
/// Looks in a row before events are taken in again.
const LOOKS_IN_A_ROW: usize = 1024;
/// How long one action may take.
const ACTION_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest time until something is looked at again that waits for a date: timers do not count while a machine sleeps.
const DATE_LONGEST: Duration = Duration::from_secs(3600);
/// By how much each Router delays the writing of route counts, so that all of them together stay at fifty writes a second.
const COUNT_DELAY_PER_ROUTER: Duration = Duration::from_millis(20);
/// Between two Routes that a challenge is withdrawn from, when hosts need no proof any more: two hundred a second, since there
/// may be many and nobody waits for it.
const WITHDRAW_EVERY: Duration = Duration::from_millis(5);

/// How to keep order.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How long a label that was let go is kept for the same namespace and route name.
    pub quarantine: Duration,
    /// The time for which the host of a deleted Route is kept for a Route of the same namespace and name.
    pub host_reservation: Duration,
    /// How long a host that was let go stays in the ledger for another Route to take it over, before its claim is deleted.
    pub host_grace: Duration,
    /// Whether hosts are to be verified.
    pub verify_hosts: bool,
    /// How long after an event things are looked at, so that the informers of the other kinds have caught up.
    pub settle: Duration,
    /// How long after a failed action it is tried again, at first; at most 32 times as long.
    pub retry: Duration,
    /// What keeps former names beyond their time.
    pub quiet: FormerNameRetention,
    /// What the platform's zones are made under, to examine Routers; without it nothing is said of their fields.
    pub platform: Option<Arc<compiler::Settings>>,
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
            settle: Duration::from_secs(1),
            retry: Duration::from_secs(2),
            quiet: FormerNameRetention::default(),
            platform: None,
            instance: "signpost".to_owned(),
        }
    }
}

/// What the keeper counts; clones share it.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    actions: Family<[(&'static str, &'static str); 2], Counter>,
    pending: Gauge,
    events: Counters,
}

impl Metrics {
    /// Adds them to `registry`, under names that begin with `placement_` (and the registry's own prefix).
    pub fn register(&self, registry: &mut Registry) {
        let registry = registry.sub_registry_with_prefix("placement");
        registry.register("actions", "What was done to claims, bindings and status", self.actions.clone());
        registry.register("workqueue_depth", "What is to be looked at", self.pending.clone());
        registry.register("events", "Events recorded", self.events.recorded.clone());
        registry.register("events_dropped", "Events not recorded since too many waited", self.events.dropped.clone());
    }
}

/// The keeper, before and while it runs.
pub struct Placement {
    client: kube::Client,
    settings: Settings,
    metrics: Metrics,
    watched: Watched,
    routes: Store<RouteInfo>,
    bindings: Store<BindingInfo>,
    claims: Store<ClaimInfo>,
    routers: Store<RouterInfo>,
    namespaces: Store<NamespaceInfo>,
    deletion_holds: Store<DeletionHold>,
    holds: Informer<DeletionHold>,
    /// How many RouteBindings these hold.
    held: u32,
    /// The claims that a Route holds or held last, behind the hash of its namespace and name: there may be 100,000. A claim
    /// of another Route with that hash is looked at for nothing.
    claims_of: BTreeSet<(u64, Box<str>)>,
    /// How many routes are bound to each Router.
    counts: HashMap<Arc<str>, u32>,
    former_names: FormerNames,
    /// The bound Routes that do not have their host, with that.
    without_host: BTreeMap<ObjectKey, String>,
    /// The Routes that are being deleted.
    deleting: HashSet<ObjectKey>,
    agenda: Agenda,
    /// Those that are to be changed, if it works for a scheduler.
    name_writer: Option<NameWriter>,
    /// Who is to leave a Router, if it works for a scheduler.
    moves: Option<Moves>,
    /// When the next challenge may be withdrawn.
    withdraw_at: Instant,
    failures: HashMap<Subject, u32>,
    /// While it runs.
    events: Option<Events>,
    term: Option<Term>,
    feed: Arc<RouteFeed>,
    route_states: RouteStateCounts,
}

struct Watched {
    routes: Changes<RouteInfo>,
    bindings: Changes<BindingInfo>,
    claims: Changes<ClaimInfo>,
    routers: Changes<RouterInfo>,
    namespaces: Changes<NamespaceInfo>,
    deletion_holds: Changes<DeletionHold>,
}

/// What is looked at.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Subject {
    Claim(String),
    Binding(ObjectKey),
    Route(ObjectKey),
    /// The former names of a Route, and its alias.
    FormerNames(ObjectKey),
    /// What a Route tells of the proof of its host, where none is needed.
    Challenge(ObjectKey),
    Router(String),
}

/// What was done, as a metric's label, or that nothing was left to do.
type Done = Option<&'static str>;

impl Placement {
    /// A keeper that speaks through `client`, whose identity must be allowed to change NameClaims, delete RouteBindings, and
    /// write the status of Routes and Routers.
    pub fn new(client: kube::Client, settings: Settings, metrics: Metrics) -> Self {
        let world = World::new(&client, settings.platform.clone().map(world::Settings::of).unwrap_or_default());
        Self::sharing(client, &world, settings, metrics)
    }

    /// One that reads the objects of `world`, as other loops do.
    pub fn sharing(client: kube::Client, world: &World, settings: Settings, metrics: Metrics) -> Self {
        let (routes, route_changes) = world.routes.read();
        let (bindings, binding_changes) = world.bindings.read();
        let (claims, claim_changes) = world.claims.read();
        let (routers, router_changes) = world.routers.read();
        let (namespaces, namespace_changes) = world.namespaces.read();
        let (deletion_holds, deletion_hold_changes) = world.holds.read();
        Placement {
            client,
            settings,
            metrics,
            watched: Watched {
                routes: route_changes,
                bindings: binding_changes,
                claims: claim_changes,
                routers: router_changes,
                namespaces: namespace_changes,
                deletion_holds: deletion_hold_changes,
            },
            routes,
            bindings,
            claims,
            routers,
            namespaces,
            deletion_holds,
            holds: world.holds.clone(),
            held: 0,
            claims_of: BTreeSet::new(),
            counts: HashMap::new(),
            former_names: FormerNames::default(),
            without_host: BTreeMap::new(),
            deleting: HashSet::new(),
            agenda: Agenda::default(),
            name_writer: None,
            moves: None,
            withdraw_at: Instant::now(),
            failures: HashMap::new(),
            events: None,
            term: None,
            feed: Arc::default(),
            route_states: RouteStateCounts::default(),
        }
    }

    /// Works for this scheduler, too: speaks as it where only a scheduler may.
    #[must_use]
    pub fn with_scheduler(mut self, scheduler: &Scheduler) -> Self {
        let (client, server, domain) = scheduler.platform();
        let (quiet, next_overdue) = (self.settings.quiet, Instant::now());
        let stores = (self.routes.clone(), self.bindings.clone(), self.routers.clone());
        self.moves = Some(Moves::new(scheduler, stores.0, stores.1, stores.2));
        self.name_writer = Some(NameWriter { client, server, domain, quiet, next_overdue });
        self
    }

    /// What those are given who prove the names of Routes.
    pub fn routes(&self) -> live::Routes {
        live::Routes {
            routes: self.routes.clone(),
            bindings: self.bindings.clone(),
            routers: self.routers.clone(),
            holds: self.holds.clone(),
            feed: Arc::clone(&self.feed),
        }
    }

    /// How many routes each Router has, for `/metrics`.
    pub fn router_metrics(&self) -> RouterMetrics {
        RouterMetrics(self.routers.clone())
    }

    /// How many Routes stand how, for `/metrics`.
    pub fn route_states(&self) -> RouteStateCounts {
        self.route_states.clone()
    }

    /// The health of each informer, for metrics and readiness.
    pub fn informers(&self) -> Vec<HealthProbe> {
        vec![
            self.routes.probe(),
            self.bindings.probe(),
            self.claims.probe(),
            self.routers.probe(),
            self.namespaces.probe(),
        ]
    }

    /// Keeps order whenever `leadership` says that this process leads, until `stop`.
    pub async fn run(mut self, mut leadership: watch::Receiver<Leadership>, stop: CancellationToken) {
        let reporter = events::Reporter {
            controller: "signpost.dev/placement",
            action: "Keeping",
            instance: self.settings.instance.clone(),
        };
        let (line, recording) = Events::new(self.client.clone(), reporter, self.metrics.events.clone());
        self.events = Some(line);
        // It ends with this loop: an event tells what the status tells.
        let mut beside = JoinSet::new();
        beside.spawn(recording);
        let mut actions: JoinSet<(Subject, kube::Result<Done>)> = JoinSet::new();
        let mut election_runs = true;
        loop {
            self.term = leadership.borrow_and_update().term().cloned();
            self.look(&mut actions);
            self.metrics.pending.set(i64::try_from(self.agenda.len()).unwrap_or(i64::MAX));
            let may_look = self.may_act() && actions.len() < ACTIONS_AT_A_TIME;
            let wake_at = self.agenda.next_time().filter(|_| may_look).into_iter().chain(self.request_moves()).min();
            tokio::select! {
                () = stop.cancelled() => break,
                change = self.watched.routes.next() => self.on_routes(change),
                change = self.watched.bindings.next() => self.on_bindings(change),
                change = self.watched.claims.next() => self.on_claims(change),
                change = self.watched.routers.next() => self.on_routers(change),
                change = self.watched.namespaces.next() => self.on_namespaces(change),
                _ = self.watched.deletion_holds.next() => self.on_deletion_holds(),
                () = Moves::answered(self.moves.as_ref()) => {}
                Some(done) = actions.join_next() => self.on_done(done),
                changed = leadership.changed(), if election_runs => election_runs = changed.is_ok(),
                () = sleep_until(wake_at.unwrap_or_else(Instant::now)), if wake_at.is_some() => {}
            }
        }
        // What is under way is safe to break off: each action is one write.
        actions.shutdown().await;
    }

    /// Requests the moves that are due; the answer is when there are more.
    fn request_moves(&mut self) -> Option<Instant> {
        let may_act = self.may_act();
        let is_behind = || self.watched.routes.is_behind() || self.watched.bindings.is_behind();
        self.moves.as_mut().and_then(|moves| moves.step(may_act, is_behind))
    }

    fn may_act(&self) -> bool {
        let synced = self.routes.is_synced()
            && self.bindings.is_synced()
            && self.claims.is_synced()
            && self.routers.is_synced()
            && self.namespaces.is_synced();
        synced && self.term.as_ref().is_some_and(Term::is_current)
    }

    /// Looks at what is due, and begins what there is to do.
    fn look(&mut self, actions: &mut JoinSet<(Subject, kube::Result<Done>)>) {
        if !self.may_act() {
            return;
        }
        let now = Instant::now();
        for _ in 0..LOOKS_IN_A_ROW {
            if actions.len() >= ACTIONS_AT_A_TIME {
                return;
            }
            let Some(subject) = self.agenda.pop_due(now) else { return };
            if !self.has_work(&subject) {
                self.failures.remove(&subject);
            } else if let Some(term) = self.term.clone() {
                let action = self.action(subject.clone());
                actions.spawn(async move {
                    let result = if term.is_current() { timeout(ACTION_TIMEOUT, action).await } else { Ok(Ok(None)) };
                    let silent = || std::io::Error::new(std::io::ErrorKind::TimedOut, "the API did not answer in time");
                    (subject, result.unwrap_or_else(|_| Err(kube::Error::ReadEvents(silent()))))
                });
            }
        }
    }

    /// Whether, by what the informers show, something is to be done.
    fn has_work(&mut self, subject: &Subject) -> bool {
        match subject {
            Subject::Claim(name) => {
                let Some(claim) = self.claims.get(&ObjectKey::cluster(name)) else { return false };
                let (route, binding) = (self.routes.get(&claim.holder_key()), self.bindings.get(&claim.holder_key()));
                let now = Timestamp::now();
                match claim::judge(&claim, route.as_deref(), binding.as_deref(), now, &self.settings) {
                    claim::Step::Keep => false,
                    claim::Step::LookAgain(time) => {
                        let wait = Duration::try_from(time.duration_since(now)).unwrap_or_default().min(DATE_LONGEST);
                        self.agenda.add(subject.clone(), Instant::now() + wait.max(self.settings.settle));
                        false
                    }
                    _ => true,
                }
            }
            Subject::Binding(key) => {
                let route = self.routes.get(key);
                let is_left = |binding: &BindingInfo| !binding.deleting && route::is_stray(binding, route.as_deref());
                self.bindings.get(key).is_some_and(|binding| is_left(&binding))
            }
            Subject::Route(key) => {
                self.judge_route(key).is_some_and(|(hold, statements)| hold == Hold::Free || !statements.is_empty())
            }
            Subject::FormerNames(key) => {
                let is_due = self
                    .bindings
                    .get(key)
                    .and_then(|one| one.former_name_turn())
                    .is_some_and(|turn| turn <= Timestamp::now());
                if !is_due {
                    self.look_at_names(key);
                }
                is_due
            }
            Subject::Challenge(key) => {
                !self.settings.verify_hosts && self.routes.get(key).is_some_and(|route| route.is_challenged())
            }
            Subject::Router(name) => {
                let load = self.load(name);
                let drains = self.routers.get(&ObjectKey::cluster(name)).is_some_and(|router| router.is_draining());
                // Drained may be what somebody waits for to delete it.
                if drains && !self.knows_deletion_holds() {
                    self.agenda.add(subject.clone(), Instant::now() + self.settings.settle);
                    return false;
                }
                self.routers.get(&ObjectKey::cluster(name)).is_some_and(|router| router.is_stale(&load))
            }
        }
    }

    /// How a bound Route stands to its host, and what its conditions should say and do not.
    fn judge_route(&self, key: &ObjectKey) -> Option<(Hold, Vec<Statement>)> {
        let route = self.routes.get(key).filter(|route| route.bound)?;
        let binding = self.bindings.get(key).filter(|binding| binding.route_uid == route.uid)?;
        let router = self.routers.get(&ObjectKey::cluster(&binding.router));
        let namespace = self.namespaces.get(&ObjectKey::cluster(key.namespace.as_deref().unwrap_or_default()));
        let (hold, no_labels) = (self.hold(key, &route, &binding), route::Labels::new());
        let blocks = |router: &str| {
            self.routers.get(&ObjectKey::cluster(router)).is_some_and(|router| router.has_records_at(&binding.label))
        };
        let (lost, there): (Vec<_>, Vec<_>) = binding.former_names.iter().partition(|former| self.is_lost(former));
        let lost: Vec<String> = lost.iter().map(|former| former.zone.to_string()).collect();
        let blocking = there.iter().filter(|former| blocks(&former.router)).map(|former| former.router.to_string());
        let blocking: Vec<String> = blocking.collect();
        let around = route::Around {
            key,
            router: router.as_deref(),
            namespace: namespace.as_deref().map_or(&no_labels, |namespace| &namespace.labels),
            hold: &hold,
            blocking: &blocking,
            lost: &lost,
        };
        let statements = route::statements(&route, &binding, around);
        Some((hold, statements))
    }

    /// Whether no Router has the zone of a former name any more.
    fn is_lost(&self, former: &FormerNameInfo) -> bool {
        let router = self.routers.get(&ObjectKey::cluster(&former.router));
        // Nearly always it is still there. If not, another one may have its zone.
        router.is_none_or(|router| router.has_other_zone(&former.zone))
            && !self.routers.all().iter().any(|(_, router)| router.has_zone(&former.zone))
    }

    /// How a bound Route stands to its host.
    fn hold(&self, key: &ObjectKey, route: &RouteInfo, binding: &BindingInfo) -> Hold {
        let Some(host) = route.host.as_deref().filter(|_| binding.has_custom) else { return Hold::Held };
        if self.settings.verify_hosts && route.conditions.host_verified == Some(false) {
            return Hold::Unverified;
        }
        let claim = self.claims.get(&ObjectKey::cluster(&host_claim_name(host)));
        let now = Timestamp::now();
        let is_kept =
            |claim: &ClaimInfo| claim.released.is_none() || claim.is_reserved(now) && claim.holder_key() != *key;
        let holder = claim.filter(|claim| is_kept(claim)).map(|claim| claim.holder_key());
        let is_ours = |holder: &ObjectKey| holder.namespace == key.namespace;
        match holder {
            // Another uid of the same name is written down by the keeper of claims.
            Some(holder) if holder == *key => Hold::Held,
            Some(holder) if is_ours(&holder) => {
                Hold::Taken(format!("{host} is held by the route {} by now", holder.name))
            }
            Some(_) => Hold::Taken(format!("{host} is held by a route of another namespace by now")),
            None if self.has_overlap(key, host) => {
                Hold::Taken(format!("{host} overlaps with a host that a route of another namespace holds by now"))
            }
            None => Hold::Free,
        }
    }

    /// Whether a Route of another namespace holds a host that overlaps with this one. Asked of the few that have lost theirs.
    fn has_overlap(&self, key: &ObjectKey, host: &str) -> bool {
        let now = Timestamp::now();
        let is_in_the_way = |claim: &ClaimInfo| {
            claim.kind == ClaimKind::Host
                && (claim.released.is_none() || claim.is_reserved(now))
                && claim.holder_key().namespace != key.namespace
                && claim::overlap(&claim.value, host)
        };
        if host.starts_with("*.") {
            return self.claims.all().iter().any(|(_, claim)| is_in_the_way(claim));
        }
        wildcards_above(host).any(|wildcard| {
            let claim = self.claims.get(&ObjectKey::cluster(&host_claim_name(&wildcard)));
            claim.is_some_and(|claim| is_in_the_way(&claim))
        })
    }

    fn action(&self, subject: Subject) -> futures::future::BoxFuture<'static, kube::Result<Done>> {
        let client = self.client.clone();
        match subject {
            Subject::Claim(name) => {
                let settings = self.settings.clone();
                Box::pin(async move { claim::settle(&client, &name, &settings).await })
            }
            Subject::Binding(key) => Box::pin(async move { route::clear_binding(&client, &key).await }),
            Subject::Route(key) => {
                let judged = self.judge_route(&key);
                let (hold, statements) = judged.unwrap_or((Hold::Held, Vec::new()));
                let uid = self.routes.get(&key).map(|route| route.uid.to_string()).unwrap_or_default();
                let events = self.events.clone();
                Box::pin(async move {
                    if hold == Hold::Free && statements.is_empty() {
                        return claim::take_back(&client, &key, &uid).await;
                    }
                    let Some(turned) = route::write(&client, &key, &uid, &statements).await? else { return Ok(None) };
                    if let Some(events) = events {
                        turned.iter().for_each(|statement| tell(&events, &key, &uid, statement));
                    }
                    Ok(Some("status_written"))
                })
            }
            Subject::FormerNames(key) => match self.name_writer.clone().zip(self.term.clone()) {
                Some((names, term)) => Box::pin(async move { names.settle(&key, &term).await }),
                None => Box::pin(async { Ok(None) }),
            },
            Subject::Challenge(key) => Box::pin(async move { ownership::withdraw(&client, &key).await }),
            Subject::Router(name) => {
                let load = self.load(&name);
                let platform = self.settings.platform.clone();
                Box::pin(async move { router::write(&client, &name, &load, platform).await })
            }
        }
    }

    fn on_done(&mut self, done: Result<(Subject, kube::Result<Done>), JoinError>) {
        let (subject, result) = match done {
            Ok(done) => done,
            Err(error) => return tracing::error!(%error, "keeping order panicked"),
        };
        let kind = match subject {
            Subject::Claim(_) => "claim",
            Subject::Binding(_) => "binding",
            Subject::Route(_) => "route",
            Subject::FormerNames(_) => "former_names",
            Subject::Challenge(_) => "challenge",
            Subject::Router(_) => "router",
        };
        match result {
            Ok(action) => {
                self.failures.remove(&subject);
                self.metrics.actions.get_or_create(&[("kind", kind), ("action", action.unwrap_or("none"))]).inc();
                // Claims have a next step; and whatever the informers showed wrongly, they show rightly by then.
                self.agenda.add(subject, Instant::now() + self.settings.settle * 2);
            }
            Err(error) => {
                tracing::warn!(?subject, %error, "order cannot be kept; it is tried again");
                self.metrics.actions.get_or_create(&[("kind", kind), ("action", "failed")]).inc();
                let failures = self.failures.entry(subject.clone()).or_default();
                let wait = delay(self.settings.retry, self.settings.retry * 32, *failures, random());
                *failures = failures.saturating_add(1);
                self.agenda.add(subject, Instant::now() + wait);
            }
        }
    }

    fn on_routes(&mut self, change: Change<RouteInfo>) {
        match change {
            Change::Applied(applied) => self.on_route(&applied),
            Change::Deleted { key, last } => {
                self.route_states.remove(&key, &last);
                // Its deletion is certain: whoever waits for its host shall not wait for the informers to settle.
                for name in self.claim_names_of(&key) {
                    self.agenda.add(Subject::Claim(name), Instant::now());
                }
                self.on_route_gone(key);
            }
            Change::Relisted(resync) => {
                for (key, last) in resync.vanished {
                    self.route_states.remove(&key, &last);
                    self.on_route_gone(key);
                }
                resync.applied.iter().for_each(|applied| self.on_route(applied));
            }
        }
    }

    fn on_route(&mut self, applied: &reflector::Applied<RouteInfo>) {
        let reflector::Applied { key, now, before, recreated } = applied;
        self.moves.iter_mut().for_each(|moves| moves.on_route(applied));
        if let Some(before) = before {
            self.route_states.remove(key, before);
        }
        self.route_states.add(key, now);
        if *recreated {
            self.on_route_gone(key.clone());
        }
        let was_deleting = match now.deleting {
            true => !self.deleting.insert(key.clone()),
            false => self.deleting.remove(key),
        };
        if was_deleting != now.deleting
            && let Some(binding) = self.bindings.get(key)
        {
            self.count_changed(&binding.router);
        }
        let of_host = |view: &RouteInfo| (view.host.clone(), view.conditions.host_verified);
        if before.as_ref().is_some_and(|before| of_host(before) != of_host(now)) {
            self.look_at_claims_of(key);
        }
        match now
            .host
            .as_ref()
            .filter(|_| now.bound && now.conditions.admitted.is_some_and(|mark: Mark| !mark.is_true()))
        {
            Some(host) => drop(self.without_host.insert(key.clone(), host.to_string())),
            None => drop(self.without_host.remove(key)),
        }
        if now.bound && before.as_ref().is_none_or(|before| !before.is_placed_as(now)) {
            self.soon(Subject::Route(key.clone()));
        }
        let challenge = Subject::Challenge(key.clone());
        if now.is_challenged() && !self.settings.verify_hosts && !self.agenda.has(&challenge) {
            self.withdraw_at = self.withdraw_at.max(Instant::now() + self.settings.settle) + WITHDRAW_EVERY;
            self.agenda.add(challenge, self.withdraw_at);
        }
        let known = before.as_ref().filter(|_| !recreated);
        if now.bound && known.is_none_or(|before| before != now) {
            self.feed.changed(key);
        } else if !now.bound && known.is_none() {
            self.feed.appeared(key, Instant::now());
        }
    }

    fn on_route_gone(&mut self, key: ObjectKey) {
        self.feed.gone(&key);
        self.moves.iter_mut().for_each(|moves| moves.on_route_gone(&key));
        self.without_host.remove(&key);
        self.deleting.remove(&key);
        self.look_at_claims_of(&key);
        self.soon(Subject::Binding(key));
    }

    fn on_bindings(&mut self, change: Change<BindingInfo>) {
        match change {
            Change::Applied(applied) => self.on_binding(&applied),
            Change::Deleted { key, last } => {
                self.on_binding_gone(&key, &last);
                self.let_go(&key);
            }
            Change::Relisted(resync) => {
                for (key, last) in &resync.vanished {
                    self.on_binding_gone(key, last);
                    self.let_go(key);
                }
                resync.applied.iter().for_each(|applied| self.on_binding(applied));
            }
        }
    }

    fn on_binding(&mut self, applied: &reflector::Applied<BindingInfo>) {
        let key = &applied.key;
        if let Some(before) = &applied.before {
            self.on_binding_gone(key, before);
        }
        *self.counts.entry(applied.now.router.clone()).or_default() += 1;
        for former in &*applied.now.former_names {
            self.former_names.add(former, key);
            self.count_changed(&former.router);
        }
        self.count_changed(&applied.now.router);
        self.soon(Subject::Binding(key.clone()));
        self.soon(Subject::Route(key.clone()));
        self.look_at_names(key);
        self.moves.iter_mut().for_each(|moves| moves.on_binding(applied));
        // Another label than before leaves a claim behind.
        if applied.before.as_ref().is_some_and(|before| before.label != applied.now.label) {
            self.look_at_claims_of(key);
        }
    }

    /// Has the names of a bound Route looked at when they are due.
    fn look_at_names(&mut self, key: &ObjectKey) {
        let names = self.name_writer.as_mut().zip(self.bindings.get(key));
        if let Some(time) = names.and_then(|(names, binding)| names.time_of(&binding)) {
            self.agenda.add(Subject::FormerNames(key.clone()), time);
        }
    }

    fn on_binding_gone(&mut self, key: &ObjectKey, last: &BindingInfo) {
        for former in &*last.former_names {
            self.former_names.remove(former, key);
            self.count_changed(&former.router);
        }
        if let Some(count) = self.counts.get_mut(&last.router) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.counts.remove(&last.router);
            }
        }
        self.count_changed(&last.router);
    }

    /// A binding that was there longer than its Route kept its label from being let go.
    fn let_go(&mut self, key: &ObjectKey) {
        self.moves.iter_mut().for_each(|moves| moves.on_binding_gone(key));
        if self.routes.get(key).is_none() {
            self.look_at_claims_of(key);
        }
    }

    /// What is on a Router.
    fn load(&self, router: &str) -> Load {
        let view = self.routers.get(&ObjectKey::cluster(router));
        let is_of_zone = |zone: &str| !view.as_ref().is_some_and(|view| view.has_other_zone(zone));
        let former_names =
            || self.former_names.of_router(router).filter(|(zone, _)| is_of_zone(zone)).map(|(_, names)| names);
        Load {
            routes: self.counts.get(router).copied().unwrap_or(0),
            deleting: self.deleting_on(router),
            former_names: u32::try_from(former_names().map(BTreeSet::len).sum::<usize>()).unwrap_or(u32::MAX),
            former_names_until: former_names().filter_map(|names| names.last()).map(|(until, _)| *until).max(),
            held: self.held,
            is_name_taken: self.is_name_taken(router),
            is_former_name_blocked: self.is_former_name_blocked(router),
        }
    }

    /// Whether the DeletionHolds were listed. The kind may be missing in a cluster with older definitions: then there are none.
    fn knows_deletion_holds(&self) -> bool {
        let health = self.deletion_holds.health();
        health.synced || health.error.is_some()
    }

    /// What the deletion hold keeps may lead to any Router: a DeletionHold tells but a few of the names.
    fn on_deletion_holds(&mut self) {
        let held = self
            .deletion_holds
            .all()
            .into_iter()
            .fold(0_u32, |sum, (_, held)| sum.saturating_add(held.bindings_served_on()));
        if std::mem::replace(&mut self.held, held) == held {
            return;
        }
        for (key, _) in self.routers.all() {
            self.agenda.add(Subject::Router(key.name), Instant::now());
        }
    }

    /// How many of the routes on a Router that is draining are being deleted.
    fn deleting_on(&self, router: &str) -> u32 {
        // Nearly always there are none.
        if self.deleting.is_empty()
            || !self.routers.get(&ObjectKey::cluster(router)).is_some_and(|one| one.is_draining())
        {
            return 0;
        }
        let is_there = |key: &&ObjectKey| self.bindings.get(key).is_some_and(|binding| *binding.router == *router);
        u32::try_from(self.deleting.iter().filter(is_there).count()).unwrap_or(u32::MAX)
    }

    /// Whether there are routes on a Router whose names in its zone lead elsewhere.
    fn is_name_taken(&self, router: &str) -> bool {
        let Some(view) = self.routers.get(&ObjectKey::cluster(router)) else { return false };
        view.taken().any(|(label, _)| {
            let claim = self.claims.get(&ObjectKey::cluster(&label_claim_name(label)));
            let binding = claim.and_then(|claim| self.bindings.get(&claim.holder_key()));
            binding.is_some_and(|binding| *binding.router == *router && binding.label.eq_ignore_ascii_case(label))
        })
    }

    /// Whether former names of routes are records of a Router.
    fn is_former_name_blocked(&self, router: &str) -> bool {
        let Some(view) = self.routers.get(&ObjectKey::cluster(router)).filter(|view| view.has_records()) else {
            return false;
        };
        let mut former_names = self
            .former_names
            .of_router(router)
            .filter(|(zone, _)| !view.has_other_zone(zone))
            .flat_map(|(_, names)| names);
        former_names.any(|(_, key)| self.bindings.get(key).is_some_and(|binding| view.has_records_at(&binding.label)))
    }

    fn count_changed(&mut self, router: &str) {
        let routers = u32::try_from(self.routers.len()).unwrap_or(u32::MAX);
        let wait = self.settings.settle + COUNT_DELAY_PER_ROUTER.saturating_mul(routers);
        self.agenda.add(Subject::Router(router.to_owned()), Instant::now() + wait);
    }

    fn on_claims(&mut self, change: Change<ClaimInfo>) {
        match change {
            Change::Applied(applied) => self.on_claim(&applied),
            Change::Deleted { key, last } => {
                self.on_claim_gone(&key, &last);
                self.look_at_hosts(&last, None);
            }
            Change::Relisted(resync) => {
                for (key, last) in &resync.vanished {
                    self.on_claim_gone(key, last);
                    self.look_at_hosts(last, None);
                }
                resync.applied.iter().for_each(|applied| self.on_claim(applied));
            }
        }
    }

    fn on_claim(&mut self, applied: &reflector::Applied<ClaimInfo>) {
        if let Some(before) = applied.before.as_ref().filter(|before| before.holder_key() != applied.now.holder_key()) {
            self.on_claim_gone(&applied.key, before);
        }
        self.claims_of.insert((hash_of(&applied.now.holder_key()), applied.key.name.as_str().into()));
        self.soon(Subject::Claim(applied.key.name.clone()));
        self.look_at_hosts(&applied.now, applied.before.as_deref());
    }

    /// A claim on a host has changed or is gone: those who have lost theirs may have it back; and its holder has it.
    fn look_at_hosts(&mut self, claim: &ClaimInfo, before: Option<&ClaimInfo>) {
        if claim.kind != ClaimKind::Host || before.is_some_and(|before| before == claim) {
            return;
        }
        let is_concerned =
            |host: &&String| host.eq_ignore_ascii_case(&claim.value) || claim::overlap(host, &claim.value);
        let concerned = self.without_host.iter().filter(|(_, host)| is_concerned(host));
        let concerned: Vec<ObjectKey> = concerned.map(|(key, _)| key.clone()).collect();
        concerned.into_iter().for_each(|key| self.soon(Subject::Route(key)));
    }

    fn on_claim_gone(&mut self, key: &ObjectKey, last: &ClaimInfo) {
        self.claims_of.remove(&(hash_of(&last.holder_key()), key.name.as_str().into()));
    }

    /// The claims that the Route of this key holds; rarely one of another's, of the same hash.
    fn claim_names_of(&self, key: &ObjectKey) -> Vec<String> {
        let hash = hash_of(key);
        let claims = self.claims_of.range((hash, Box::default())..).take_while(|(of, _)| *of == hash);
        claims.map(|(_, name)| name.to_string()).collect()
    }

    fn look_at_claims_of(&mut self, key: &ObjectKey) {
        self.claim_names_of(key).into_iter().for_each(|name| self.soon(Subject::Claim(name)));
    }

    fn on_routers(&mut self, change: Change<RouterInfo>) {
        let counts = &self.counts;
        self.moves.iter_mut().for_each(|moves| moves.on_routers(&change, |router| counts.contains_key(router)));
        let (applied, gone, first) = match change {
            Change::Applied(applied) => (vec![applied], Vec::new(), false),
            Change::Deleted { key, .. } => (Vec::new(), vec![key], false),
            Change::Relisted(resync) => {
                (resync.applied, resync.vanished.into_iter().map(|(key, _)| key).collect(), resync.first)
            }
        };
        // The Routers whose routes are looked at: their selectors are others, or they have gone or come.
        let mut changed: HashSet<String> = gone.into_iter().map(|key| key.name).collect();
        let mut left: Vec<ObjectKey> =
            changed.iter().flat_map(|router| self.former_names.routes_of(router)).cloned().collect();
        for applied in applied {
            self.soon(Subject::Router(applied.key.name.clone()));
            let (before, now) = (applied.before, applied.now);
            if before.as_ref().is_none_or(|before| !before.says_of_zone_as(&now)) {
                self.feed.router_changed(&applied.key.name);
            }
            if before.as_ref().map_or(!first, |before| !before.selects_as(&now) || !before.has_zone_of(&now)) {
                changed.insert(applied.key.name.clone());
            }
            if before.as_ref().is_none_or(|before| !before.has_records_as(&now) || !before.has_zone_of(&now)) {
                left.extend(self.former_names.routes_of(&applied.key.name).cloned());
            }
            // The zone of a Router that is gone may have come back by another one's name.
            if before.as_ref().is_none_or(|before| !before.has_zone_of(&now)) {
                left.extend(self.former_names.routes_in(|zone| now.has_zone(zone)).cloned());
            }
        }
        left.into_iter().for_each(|key| self.soon(Subject::Route(key)));
        changed.retain(|router| self.counts.contains_key(router.as_str()));
        if !changed.is_empty() {
            self.look_at_routes(|_, binding| changed.contains(&*binding.router));
        }
    }

    fn on_namespaces(&mut self, change: Change<NamespaceInfo>) {
        let changed: HashSet<String> = match change {
            Change::Applied(applied) => {
                let same = applied.before.is_some_and(|before| before.labels == applied.now.labels);
                [applied.key.name].into_iter().filter(|_| !same).collect()
            }
            Change::Deleted { .. } => return,
            Change::Relisted(resync) if resync.first => return,
            Change::Relisted(resync) => resync.applied.into_iter().map(|applied| applied.key.name).collect(),
        };
        if !changed.is_empty() {
            self.look_at_routes(|key, _| key.namespace.as_ref().is_some_and(|namespace| changed.contains(namespace)));
        }
    }

    fn look_at_routes(&mut self, which: impl Fn(&ObjectKey, &BindingInfo) -> bool) {
        for (key, binding) in self.bindings.all() {
            if which(&key, &binding) {
                self.soon(Subject::Route(key));
            }
        }
    }

    fn soon(&mut self, subject: Subject) {
        self.agenda.add(subject, Instant::now() + self.settings.settle);
    }
}

fn hash_of(key: &ObjectKey) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key)
}

/// Tells by an Event that a condition has turned.
fn tell(events: &Events, key: &ObjectKey, uid: &str, statement: &Statement) {
    let is_warning = match statement.kind {
        SCHEDULED | ADMITTED => !statement.is_true,
        FORMER_NAME_BLOCKED => statement.is_true,
        _ => return,
    };
    let note = format!("{}: {}", statement.reason, statement.message);
    events.tell(Notice { route: key.clone(), uid: uid.to_owned(), is_warning, reason: statement.reason, note });
}
