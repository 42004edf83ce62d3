//! The check whether the Services of Routes exist and have ready endpoints: the condition `ResolvedRefs`.
//!
//! ```text
//!  Service, EndpointSlice ──► Routes that use it ──► verdict ──► ResolvedRefs
//!  Route, Router ─────────────────┘                     (a worse one only after 5 s)
//! ```
//!
//! Only Routes on Routers with instances have the condition: other proxies can find applications in any way. Services and EndpointSlices
//! are watched while there is such a Router. A change of one checks only the Routes that use it, and a change that makes no difference
//! (another pod of several that are ready) checks none.
//!
//! If Services cannot be listed, their state is unknown: the condition is withdrawn, and `Ready` does not depend on it.

mod verdict;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub use self::verdict::{BackendState, RefsState, verdict};
use crate::client::reflector::{Applied, Change, Health, ObjectKey, Restart, Store};
use crate::hash::hash_of;
use crate::put::Put as _;
use crate::work::controller::{self, Controller, Inputs, Plan};
use crate::work::queue::WorkQueue;
use crate::world::backend::{ServiceInfo, SliceInfo};
use crate::world::condition::Status;
use crate::world::observations::{About, Observations, RouteFinding};
use crate::world::{RouteInfo, RouterInfo, World};
use signpost_types::backends::RoutePortRef;
use signpost_types::v1alpha1::route::{READY, RESOLVED_REFS};

/// The time for which a Route's state must be worse than reported before that is reported. An application that restarts, or whose Service is
/// created just after its Route, does not change the condition.
const GRACE: Duration = Duration::from_secs(5);
/// The findings that wait for their write at a time. Namespaces share them, so that a Service with 10,000 Routes does not delay the Routes
/// of other tenants.
const FINDINGS_MAX: usize = 256;
/// The interval of checks whether findings are written.
const INTERVAL: Duration = Duration::from_millis(20);
/// The most states of Services that are remembered.
const STATES_MAX: usize = 4_096;

/// The metrics on `/metrics`; clones share them.
#[derive(Debug, Clone, Default)]
pub struct Metrics {
    unresolved: Family<[(&'static str, &'static str); 1], Gauge>,
}

impl Metrics {
    /// Adds them to `registry`, under the registry's own prefix.
    pub fn register(&self, registry: &mut Registry) {
        let help = "Routes on Routers with instances whose condition ResolvedRefs is False, by reason";
        for reason in verdict::reasons() {
            drop(self.unresolved.get_or_create(&[("reason", reason)]));
        }
        registry.register("routes_refs_unresolved", help, self.unresolved.clone());
    }

    fn add(&self, reason: Option<&'static str>, count: i64) {
        if let Some(reason) = reason {
            self.unresolved.get_or_create(&[("reason", reason)]).inc_by(count);
        }
    }
}

/// Checks Routes until `stop`, which also ends with this process's leadership.
pub async fn run(world: World, metrics: Metrics, stop: CancellationToken) {
    world.observations.forget(RESOLVED_REFS);
    while stop.run_until_cancelled(router_with_instances(&world)).await.is_some() {
        watch(&world, &metrics, stop.child_token()).await;
    }
}

/// Waits until a Router has instances.
async fn router_with_instances(world: &World) {
    let (routers, mut changes) = world.routers.read();
    while !has_instances(&routers) {
        changes.next().await;
    }
}

fn has_instances(routers: &Store<RouterInfo>) -> bool {
    routers.all().iter().any(|(_, router)| router.target.active.has_instances)
}

/// Checks Routes until `stop`, which it fires when no Router has instances.
async fn watch(world: &World, metrics: &Metrics, stop: CancellationToken) {
    let mut inputs = Inputs::default();
    let stores = Stores {
        routes: inputs.read(&world.routes, Watch::take_routes),
        routers: inputs.read(&world.routers, Watch::take_routers),
        services: inputs.read(&world.services, Watch::take_services),
        slices: inputs.read(&world.slices, Watch::take_slices),
    };
    let watch = Watch::new(stores, Arc::clone(&world.observations), metrics.clone(), stop.clone());
    controller::run(watch, inputs, stop).await;
}

struct Stores {
    routes: Store<RouteInfo>,
    routers: Store<RouterInfo>,
    services: Store<ServiceInfo>,
    slices: Store<SliceInfo>,
}

impl Stores {
    fn are_listed(&self) -> bool {
        self.routes.is_synced() && self.routers.is_synced() && self.services.is_synced() && self.slices.is_synced()
    }

    /// Returns the error because of which Services or EndpointSlices are not listed, if the API refuses to list them.
    fn refusal(&self) -> Option<String> {
        let is_refused = |health: &Health| {
            let refusals =
                health.restarts.iter().filter(|(why, _)| [Restart::Forbidden, Restart::Missing].contains(why));
            !health.synced && refusals.map(|(_, count)| count).sum::<u64>() > 0
        };
        let refused = [self.services.health(), self.slices.health()].into_iter().find(is_refused)?;
        Some(refused.error.unwrap_or_default())
    }

    /// Returns whether a Route is on a Router with instances.
    fn is_checked(&self, route: &RouteInfo) -> bool {
        let router = route.router.as_deref().filter(|_| route.bound);
        let router = router.and_then(|router| self.routers.get(&ObjectKey::cluster(router)));
        router.is_some_and(|router| router.target.active.has_instances)
    }
}

/// The knowledge of Services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listed {
    /// No list is complete.
    No,
    Yes,
    /// The API refuses to list them.
    Refused,
}

struct Watch {
    stores: Stores,
    observations: Arc<Observations>,
    metrics: Metrics,
    stop: CancellationToken,
    listed: Listed,
    /// The time from which a refusal to list Services counts.
    unlisted_at: Instant,
    /// The Routes to check. Those whose findings are not written yet are in progress.
    queue: WorkQueue<ObjectKey>,
    unwritten: HashSet<ObjectKey>,
    written_at: Instant,
    /// The Routes whose state is not whole.
    waiting: HashMap<ObjectKey, Waiting>,
    /// The names of the Routes that use a Service, and of its EndpointSlices, each with the hash of the Service's namespace and name, because
    /// there can be 100,000. Another Service with the same hash costs checks in vain.
    users: BTreeSet<(u64, Box<str>)>,
    slices_of: BTreeSet<(u64, Box<str>)>,
    /// The states of Services and ports since the last change of any.
    states: HashMap<(u64, Option<RoutePortRef>), (String, BackendState)>,
}

/// A Route whose state is not whole.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    /// The time since when it is not whole, or since when the condition should be False.
    since: Instant,
    is_true: bool,
    /// The reported reason, if the condition is False.
    reason: Option<&'static str>,
}

impl Controller for Watch {
    type Key = ObjectKey;
    type Job = Infallible;
    type Done = Infallible;

    const PACE: Duration = INTERVAL;

    fn queue(&mut self) -> &mut WorkQueue<ObjectKey> {
        &mut self.queue
    }

    fn prepare(&mut self, now: Instant) {
        self.update_listed(now >= self.unlisted_at);
        if now >= self.written_at + INTERVAL {
            self.written_at = now;
            let (observations, queue) = (&self.observations, &mut self.queue);
            self.unwritten.retain(|key| {
                let waits = observations.route(key).get(RESOLVED_REFS).is_some();
                if !waits {
                    queue.end(key);
                }
                waits
            });
        }
    }

    fn is_ready(&self) -> bool {
        self.listed != Listed::No && self.observations.has_room()
    }

    fn plan(&mut self, key: &ObjectKey, now: Instant) -> Plan<Infallible> {
        let route = self.stores.routes.get(key);
        let Some(route) = route.filter(|route| self.stores.is_checked(route)) else {
            self.forget(key);
            return Plan::Nothing;
        };
        let reported = route.conditions.get(RESOLVED_REFS);
        if self.listed == Listed::Refused {
            self.forget(key);
            if reported.is_some() || route.conditions.is_true(READY) != Some(true) {
                self.observations.check_route(key);
            }
            return Plan::Nothing;
        }
        let RefsState { update, is_whole } = self.verdict(key.namespace(), &route);
        let says = |is_true: bool| reported.is_some_and(|reported| reported.mark.is_true() == is_true);
        let is_worse = match update.status {
            Status::True => !is_whole && says(true),
            _ => !says(false),
        };
        let before = self.waiting.get(key).filter(|before| update.is_true() || !before.is_true);
        let since = before.map_or(now, |before| before.since);
        let is_early = is_worse && now < since + GRACE;
        let is_reported = reported.is_some_and(|reported| reported.is_as(&update));
        let reason = (!is_early && !update.is_true()).then_some(update.reason);
        self.set_waiting(key, (!is_whole).then_some(Waiting { since, is_true: update.is_true(), reason }));
        if is_early {
            return Plan::At(since + GRACE);
        }
        if is_reported {
            self.observations.set_route(key, RESOLVED_REFS, None);
            return Plan::Nothing;
        }
        let Some(router) = route.router.clone() else { return Plan::Nothing };
        let about = About::Generation(route.generation, router);
        let finding = RouteFinding::new(&route.uid, about, vec![update]);
        if !self.observations.has_route(key, RESOLVED_REFS, &finding) {
            self.observations.set_route(key, RESOLVED_REFS, Some(finding));
        }
        self.unwritten.insert(key.clone());
        Plan::Hold
    }

    fn settle(&mut self, now: Instant) -> Option<Instant> {
        match self.listed {
            // The error of a list wakes no reader.
            Listed::No => Some(if now < self.unlisted_at { self.unlisted_at } else { now + GRACE }),
            _ => (!self.unwritten.is_empty()).then(|| self.written_at + INTERVAL),
        }
    }

    fn end(&mut self) {
        self.observations.forget(RESOLVED_REFS);
        self.waiting.values().for_each(|waiting| self.metrics.add(waiting.reason, -1));
    }
}

impl Watch {
    fn new(stores: Stores, observations: Arc<Observations>, metrics: Metrics, stop: CancellationToken) -> Watch {
        // An item never fails.
        let queue = WorkQueue::new(FINDINGS_MAX, [GRACE; 2]);
        // For a process that led before, Services cannot be listed: no Route turns unready until they are refused again.
        let listed = if observations.are_services_unknown() { Listed::Refused } else { Listed::No };
        let (unwritten, waiting, users, slices_of, states) = Default::default();
        let written_at = Instant::now();
        Watch {
            stores,
            observations,
            metrics,
            stop,
            listed,
            unlisted_at: written_at + GRACE,
            queue,
            unwritten,
            written_at,
            waiting,
            users,
            slices_of,
            states,
        }
    }

    /// Checks all Routes if Services are listed now, or if the API has refused to list them until it is late.
    fn update_listed(&mut self, is_late: bool) {
        let refusal = || self.stores.refusal().filter(|_| is_late);
        let listed = match self.listed {
            Listed::Yes => return,
            _ if self.stores.are_listed() => Listed::Yes,
            Listed::Refused => return,
            Listed::No => match refusal() {
                Some(error) => {
                    tracing::warn!(
                        %error,
                        "failed to list Services and EndpointSlices, so Routes do not report ResolvedRefs; grant list and \
                         watch on services and endpointslices.discovery.k8s.io"
                    );
                    Listed::Refused
                }
                None => return,
            },
        };
        self.listed = listed;
        self.observations.set_services_unknown(listed == Listed::Refused);
        let now = Instant::now();
        for (key, _) in self.stores.routes.all() {
            self.queue.add(key, now);
        }
    }

    fn set_waiting(&mut self, key: &ObjectKey, waiting: Option<Waiting>) {
        self.metrics.add(waiting.and_then(|waiting| waiting.reason), 1);
        let before = self.waiting.put(key.clone(), waiting);
        self.metrics.add(before.and_then(|before| before.reason), -1);
    }

    /// Removes the finding about a Route.
    fn forget(&mut self, key: &ObjectKey) {
        self.set_waiting(key, None);
        self.observations.set_route(key, RESOLVED_REFS, None);
    }

    fn verdict(&mut self, namespace: &str, route: &RouteInfo) -> RefsState {
        let port = &route.targets.port;
        verdict(&route.targets, |service| {
            let hash = hash_of(&(namespace, service));
            let name = format!("{namespace}/{service}");
            if let Some((of, state)) = self.states.get(&(hash, port.clone()))
                && *of == name
            {
                return *state;
            }
            let slices = names(&self.slices_of, hash).filter_map(|slice| {
                let slice = self.stores.slices.get(&ObjectKey::namespaced(namespace, slice))?;
                (*slice.service == *service).then_some(slice)
            });
            let object = self.stores.services.get(&ObjectKey::namespaced(namespace, service));
            let state = BackendState::new(object.as_deref(), slices, port.as_ref());
            if self.states.len() >= STATES_MAX {
                self.states.clear();
            }
            self.states.insert((hash, port.clone()), (name, state));
            state
        })
    }

    fn take_routes(&mut self, change: Change<RouteInfo>) {
        let (applied, gone) = change.into_parts();
        for (key, last) in gone {
            self.put_users(&key, Some(&last), None);
            self.queue.forget(&key);
            self.forget(&key);
        }
        let now = Instant::now();
        for Applied { key, now: route, before, recreated } in applied {
            self.put_users(&key, before.as_deref(), Some(&route));
            if recreated {
                self.forget(&key);
            }
            if before.is_none_or(|before| !is_same(&before, &route)) {
                self.queue.add(key, now);
            }
        }
    }

    /// Updates which Services a Route uses.
    fn put_users(&mut self, key: &ObjectKey, before: Option<&RouteInfo>, now: Option<&RouteInfo>) {
        if before.map(|before| &before.targets) == now.map(|now| &now.targets) {
            return;
        }
        let entries = |route: Option<&RouteInfo>| {
            let services = route.into_iter().flat_map(|route| route.targets.services());
            services
                .map(|service| (hash_of(&(key.namespace(), service)), Box::from(key.name.as_str())))
                .collect::<Vec<_>>()
        };
        for entry in entries(before) {
            self.users.remove(&entry);
        }
        self.users.extend(entries(now));
    }

    /// Checks the Routes of Routers that have instances now, or have none any more.
    fn take_routers(&mut self, change: Change<RouterInfo>) {
        let (applied, gone) = change.into_parts();
        let has = |router: &RouterInfo| router.target.active.has_instances;
        let changed =
            applied.into_iter().filter(|applied| applied.before.as_deref().map(has) != Some(has(&applied.now)));
        let changed = changed.map(|applied| applied.key.name).chain(gone.into_iter().map(|(key, _)| key.name));
        let changed: HashSet<String> = changed.collect();
        if self.stores.routers.is_synced() && !has_instances(&self.stores.routers) {
            self.stop.cancel();
        }
        if changed.is_empty() {
            return;
        }
        let now = Instant::now();
        for (key, route) in self.stores.routes.all() {
            if route.router.as_deref().is_some_and(|router| changed.contains(router)) {
                self.queue.add(key, now);
            }
        }
    }

    fn take_services(&mut self, change: Change<ServiceInfo>) {
        let (applied, gone) = change.into_parts();
        let changed = applied.into_iter().filter(|applied| applied.before.as_ref() != Some(&applied.now));
        for key in changed.map(|applied| applied.key).chain(gone.into_iter().map(|(key, _)| key)) {
            self.check_users(key.namespace(), &key.name);
        }
    }

    fn take_slices(&mut self, change: Change<SliceInfo>) {
        let (applied, gone) = change.into_parts();
        for (key, last) in gone {
            self.put_slice(&key, Some(&last), None);
        }
        for Applied { key, now, before, .. } in applied {
            self.put_slice(&key, before.as_deref(), Some(&now));
        }
    }

    fn put_slice(&mut self, key: &ObjectKey, before: Option<&SliceInfo>, now: Option<&SliceInfo>) {
        if before == now {
            return;
        }
        let services =
            [before, now].map(|slice| slice.map(|slice| &*slice.service).filter(|service| !service.is_empty()));
        let entry = |service: &str| (hash_of(&(key.namespace(), service)), Box::from(key.name.as_str()));
        if let Some(service) = services[0] {
            self.slices_of.remove(&entry(service));
        }
        if let Some(service) = services[1] {
            self.slices_of.insert(entry(service));
        }
        let [before, now] = services;
        for service in before.into_iter().chain(now.filter(|_| now != before)) {
            self.check_users(key.namespace(), service);
        }
    }

    /// Checks the Routes that use a Service, which has changed.
    fn check_users(&mut self, namespace: &str, service: &str) {
        self.states.clear();
        let now = Instant::now();
        for route in names(&self.users, hash_of(&(namespace, service))) {
            self.queue.add(ObjectKey::namespaced(namespace, route), now);
        }
    }
}

/// Returns whether two states of a Route are the same for a check.
fn is_same(one: &RouteInfo, other: &RouteInfo) -> bool {
    (&one.uid, one.generation, one.bound, &one.router) == (&other.uid, other.generation, other.bound, &other.router)
        && one.targets == other.targets
        && one.conditions.get(RESOLVED_REFS) == other.conditions.get(RESOLVED_REFS)
}

/// Returns the names with this hash.
fn names(index: &BTreeSet<(u64, Box<str>)>, hash: u64) -> impl Iterator<Item = &str> {
    let from: (u64, Box<str>) = (hash, Box::default());
    index.range(from..).take_while(move |(of, _)| *of == hash).map(|(_, name)| &**name)
}
