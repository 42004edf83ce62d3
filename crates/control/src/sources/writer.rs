//! The loop of sources: it reads the cluster, derives, and writes Routers and Routes to the platform. Only the leader runs it.
//!
//! ```text
//!  informers of the cluster ─► Derivation ─┐
//!                                          ├─► differences ─► apply, or delete as [`Losses`] decides
//!  Routers, Routes of the platform ────────┘
//! ```
//!
//! It applies the fields that a source decides, as the field manager `signpost-sources`: the operator's own fields stay. It writes no
//! owner references: the owner may be in another cluster, and garbage collection would bypass the deletion hold.
//!
//! A deletion that a watch shows counts once the cluster confirms that it still serves the kind: when a definition is removed,
//! Kubernetes deletes all objects of the kind first.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::channel::mpsc::unbounded;
use futures::stream::BoxStream;
use futures::{FutureExt as _, StreamExt as _};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ManagedFieldsEntry};
use kube::api::{DeleteParams, ObjectMeta, Preconditions};
use kube::discovery::ApiResource;
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::derivation::{Changes, Derivation};
use super::inventory::{Kind, Objects};
use super::losses::Losses;
use super::metrics::Metrics;
use super::reader::{self, Discovered, Event, Item, Reader};
use super::{Name, Note, Platform, Reason, Settings, Shard, Shared, Source};
use crate::client::backoff::random;
use crate::client::failure_log::FailureLog;
use crate::client::reflector::{Change, ObjectKey, Relist, Store};
use crate::client::write;
use crate::deletion_hold::hold::{Decisions, Held};
use crate::deletion_hold::losses::HeldLosses;
use crate::deletion_hold::reminder::Reminder;
use crate::deletion_hold::reporter::{Holder, Reporter};
use crate::put::Put as _;
use crate::work::controller::{self, Action, Controller, Inputs, Plan, changes};
use crate::work::queue::{Item as QueueItem, WorkQueue};
use crate::world::route::SourceMarks;
use crate::world::{RouteInfo, RouterInfo, World};
use signpost_runtime::causes::chain;
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::router::{Router, default_ttl};
use signpost_types::v1alpha1::{GROUP, SOURCE_LABEL, SOURCE_OBJECT_ANNOTATION, SOURCES_FIELD_MANAGER, VERSION};

/// The writes and requests in progress.
const PLACES: usize = 32;
const RETRY: [Duration; 2] = [Duration::from_millis(500), Duration::from_secs(60)];
const JOB_TIMEOUT: Duration = Duration::from_secs(30);
/// The interval of discovery.
const DISCOVER_AGAIN: Duration = Duration::from_secs(10);
/// The wait before the cluster confirms a deletion: a definition that is being removed shows that before its objects are deleted,
/// and an object that is replaced is back.
const CONFIRM_AFTER: Duration = Duration::from_millis(250);
/// The interval of log lines and lists while something is held.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
/// The most addresses of a Router.
const ADDRESSES_MAX: usize = 128;

/// The parts of the loop.
#[derive(Clone)]
pub struct Parts {
    /// The client of the source cluster.
    pub cluster: Client,
    pub settings: Arc<Settings>,
    pub shared: Arc<Shared>,
    /// The identity of the process.
    pub instance: String,
    /// The percentage of known objects that can be lost at once.
    pub share_percent: watch::Receiver<u32>,
    pub metrics: Metrics,
}

/// Runs until `stop`. `client` writes to the platform.
pub async fn run(client: Client, world: World, parts: Parts, stop: CancellationToken) {
    let losses = Arc::<HeldLosses>::default();
    let reporter = Reporter::new(client.clone(), &world.holds, Holder::sources(&parts.instance), Arc::clone(&losses));
    let mut inputs = Inputs::default();
    let routers = inputs.read(&world.routers, Writer::take_routers);
    let routes = inputs.read(&world.routes, Writer::take_routes);
    inputs.add(changes(losses.decisions()), |writer: &mut Writer, _| writer.decide(Instant::now()));
    inputs.add(changes(parts.share_percent.clone()), |writer: &mut Writer, percent| writer.set_share(percent));
    inputs.add(changes(parts.shared.resolved.subscribe()), |writer: &mut Writer, resolved| {
        let changes = writer.derivation.set_resolved(resolved);
        writer.note(changes, None);
    });
    let (opened, events) = unbounded::<BoxStream<'static, Event>>();
    inputs.add(events.flatten_unordered(None), Writer::take_event);
    let writer = Writer::new(client, parts, routers, routes, losses, opened);
    tokio::join!(controller::run(writer, inputs, stop.clone()), reporter.run(stop));
}

/// A unit of work.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    Discovery,
    /// The deletions of a kind that the cluster has to confirm.
    Confirm(Kind),
    /// A Router, or a Route: only Routes have a namespace.
    Object(ObjectKey),
}

/// Each namespace has its share of the permits.
impl QueueItem for Key {
    type Owner = Option<String>;

    fn owner(&self) -> &Option<String> {
        static NONE: Option<String> = None;
        match self {
            Key::Discovery | Key::Confirm(_) => &NONE,
            Key::Object(key) => &key.namespace,
        }
    }
}

pub enum Job {
    Discover(BTreeSet<Kind>),
    Confirm(Kind, ApiResource),
    /// A Route, or the Router of a shard.
    Apply(ObjectKey, Value, Option<Arc<Shard>>),
    /// The object is deleted only if it is still this one, in this version.
    Delete(ObjectKey, Preconditions),
}

pub enum Done {
    Discovered(Discovered),
    IsServed(bool),
    /// The shard whose Router was applied.
    Written(Option<Arc<Shard>>),
}

/// A Router that a source wrote.
#[derive(Debug, Clone, PartialEq)]
struct WrittenRouter {
    uid: String,
    object: String,
    dns: Option<String>,
    addresses: BTreeSet<IpAddr>,
    selectors: [Option<LabelSelector>; 2],
    ttl: u32,
    records: Vec<String>,
}

struct Writer {
    client: Client,
    shared: Arc<Shared>,
    reader: Reader,
    derivation: Derivation,
    routers: Store<RouterInfo>,
    routes: Store<RouteInfo>,
    platform: Platform,
    written_routers: BTreeMap<String, WrittenRouter>,
    written_routes: HashMap<ObjectKey, SourceMarks>,
    /// The number of written Routes on each Router.
    routes_on: HashMap<Box<str>, usize>,
    /// The shards as their Routers were applied last, by name: other fields and addresses of a Router are its operator's. Absent: it is unknown
    /// what was applied.
    applied: HashMap<String, Arc<Shard>>,
    /// The written objects that are not derived, and whose loss is not judged yet.
    suspects: BTreeSet<ObjectKey>,
    router_losses: Losses,
    route_losses: Losses,
    held: Arc<HeldLosses>,
    reminder: Reminder,
    housekeeping_at: Option<Instant>,
    /// The watched deletions that are not confirmed yet.
    deleted: BTreeMap<Kind, BTreeSet<ObjectKey>>,
    /// The deletions that the cluster confirms now.
    confirming: BTreeMap<Kind, BTreeSet<ObjectKey>>,
    /// The notes about writes that the platform rejects.
    rejected: BTreeMap<ObjectKey, Note>,
    is_changed: bool,
    metrics: Metrics,
    queue: WorkQueue<Key>,
    failures: FailureLog,
}

impl Writer {
    fn new(
        client: Client,
        parts: Parts,
        routers: Store<RouterInfo>,
        routes: Store<RouteInfo>,
        held: Arc<HeldLosses>,
        opened: futures::channel::mpsc::UnboundedSender<BoxStream<'static, Event>>,
    ) -> Self {
        let share = *parts.share_percent.borrow();
        let mut derivation = Derivation::new(Settings::clone(&parts.settings));
        derivation.set_resolved(parts.shared.resolved.borrow().clone());
        let mut queue = WorkQueue::new(PLACES, RETRY);
        queue.add(Key::Discovery, Instant::now());
        Writer {
            client,
            reader: Reader::new(parts.cluster, parts.settings, opened),
            shared: parts.shared,
            derivation,
            routers,
            routes,
            platform: Platform::default(),
            written_routers: BTreeMap::new(),
            written_routes: HashMap::new(),
            routes_on: HashMap::new(),
            applied: HashMap::new(),
            suspects: BTreeSet::new(),
            router_losses: Losses::routers(share),
            route_losses: Losses::routes(share),
            held,
            reminder: Reminder::new("their Routers and Routes are kept"),
            housekeeping_at: None,
            deleted: BTreeMap::new(),
            confirming: BTreeMap::new(),
            rejected: BTreeMap::new(),
            is_changed: true,
            metrics: parts.metrics,
            queue,
            failures: FailureLog::default(),
        }
    }

    fn take_event(&mut self, event: Event) {
        if !self.reader.is_current(&event) {
            return;
        }
        let kind = event.kind;
        match event.change {
            Change::Applied(applied) => self.put(kind, applied.key, &applied.now),
            Change::Deleted { key, .. } => {
                self.deleted.entry(kind).or_default().insert(key);
                self.queue.add(Key::Confirm(kind), Instant::now() + CONFIRM_AFTER);
            }
            Change::Relisted(list) => self.take_list(kind, list),
        }
    }

    fn put(&mut self, kind: Kind, key: ObjectKey, item: &Item) {
        self.deleted.get_mut(&kind).map(|deleted| deleted.remove(&key));
        let source = Source::named(kind, &key);
        let changes = self.derivation.put(kind, key, item.clone());
        self.note(changes, Some(&source));
    }

    /// Takes a list: what it lacks is not explained.
    fn take_list(&mut self, kind: Kind, list: Relist<Item>) {
        if list.first {
            self.deleted.remove(&kind);
            let known = |key: &ObjectKey| self.derivation.inventory().object(kind, key).cloned();
            // An object that cannot be read keeps its last value.
            let objects = list.applied.iter().filter_map(|applied| {
                let object = applied.now.as_ref().clone().ok().or_else(|| known(&applied.key))?;
                Some((applied.key.clone(), object))
            });
            let objects: Objects = objects.collect();
            let changes = self.derivation.replace(kind, objects);
            self.note(changes, None);
        }
        for applied in list.applied {
            if !list.first || applied.now.is_err() {
                let changes = self.derivation.put(kind, applied.key, applied.now.as_ref().clone());
                self.note(changes, None);
            }
        }
        for (key, _) in list.vanished {
            let changes = self.derivation.remove(kind, &key);
            self.note(changes, None);
        }
        self.suspect_all();
    }

    /// Takes in the effects of a change; `source`: the object that a watch shows to have changed.
    fn note(&mut self, changes: Changes, source: Option<&Source>) {
        self.is_changed |= changes.is_any;
        let now = Instant::now();
        let routers = changes.shards.iter().map(|name| ObjectKey::cluster(name));
        // With a Gateway, its names go.
        let is_of_source = |key: &ObjectKey| source.is_some() && self.lost(key).as_ref() == source;
        let lost_routers: BTreeSet<String> = routers.clone().filter(is_of_source).map(|key| key.name).collect();
        for key in routers.chain(changes.routes) {
            if let Some(lost) = self.lost(&key) {
                let router = self.written_routes.get(&key).map(|marks| &*marks.router);
                let is_explained = Some(&lost) == source || router.is_some_and(|router| lost_routers.contains(router));
                if is_explained && self.is_certain(&key, &lost) {
                    let known = self.known(&key);
                    self.losses(&key).watched(&key.to_string(), known, now);
                } else {
                    self.suspects.insert(key.clone());
                }
            }
            self.queue.add(Key::Object(key), now);
        }
    }

    /// Returns the object from which a Router or Route was written that is not derived any more.
    fn lost(&self, key: &ObjectKey) -> Option<Source> {
        let object = match key.namespace {
            None if self.derivation.shard(&key.name).is_none() => &*self.written_routers.get(&key.name)?.object,
            Some(_) if self.derivation.name(key).is_none() => &*self.written_routes.get(key)?.object,
            _ => return None,
        };
        Source::parse(object)
    }

    /// Returns whether an object that is not derived from this source is certainly lost, and the source is switched on.
    fn is_certain(&self, key: &ObjectKey, source: &Source) -> bool {
        let is_pending = key.namespace.is_some() && self.derivation.is_pending(source, key);
        !is_pending && self.derivation.is_certain(source)
    }

    fn losses(&mut self, key: &ObjectKey) -> &mut Losses {
        match key.namespace {
            None => &mut self.router_losses,
            Some(_) => &mut self.route_losses,
        }
    }

    /// Returns the number of written objects like this one.
    fn known(&self, key: &ObjectKey) -> usize {
        match key.namespace {
            None => self.written_routers.len(),
            Some(_) => self.written_routes.len(),
        }
    }

    /// Suspects all written objects that are not derived.
    fn suspect_all(&mut self) {
        let routers = self.written_routers.keys().map(|name| ObjectKey::cluster(name));
        let keys = routers.chain(self.written_routes.keys().cloned());
        let lost: Vec<ObjectKey> = keys.filter(|key| self.lost(key).is_some()).collect();
        self.suspects.extend(lost);
    }

    /// Judges the suspects whose sources are known.
    fn settle_suspects(&mut self, now: Instant) {
        let suspects = std::mem::take(&mut self.suspects);
        let (mut routers, mut routes) = (BTreeSet::new(), BTreeSet::new());
        for key in &suspects {
            if self.lost(key).is_some_and(|source| self.is_certain(key, &source)) {
                let names = if key.namespace.is_some() { &mut routes } else { &mut routers };
                names.insert(key.to_string());
            }
        }
        self.router_losses.listed(routers, self.written_routers.len(), now);
        self.route_losses.listed(routes, self.written_routes.len(), now);
        suspects.into_iter().for_each(|key| self.queue.add(Key::Object(key), now));
        self.decide(now);
    }

    /// Applies the decisions of administrators, and reports the held objects.
    fn decide(&mut self, now: Instant) {
        let decisions = self.held.decisions().borrow().clone();
        for losses in [&mut self.router_losses, &mut self.route_losses] {
            for (name, at) in losses.decide(&decisions, now) {
                self.queue.add(Key::Object(key_of(&name)), at);
            }
        }
        self.report_held(&decisions);
    }

    fn report_held(&mut self, decisions: &Decisions) {
        let held = [self.router_losses.held(decisions), self.route_losses.held(decisions)];
        let held: Vec<Held> = held.into_iter().flatten().collect();
        self.reminder.log(&held);
        if self.reminder.is_relist_due(&held, Instant::now().into_std()) {
            self.reader.relist();
        }
        self.housekeeping_at = (!held.is_empty()).then(|| Instant::now() + HOUSEKEEPING);
        self.is_changed |= self.held.held() != held;
        self.held.set_held(held);
    }

    fn set_share(&mut self, percent: u32) {
        self.router_losses.set_share(percent);
        self.route_losses.set_share(percent);
    }

    fn take_routers(&mut self, change: Change<RouterInfo>) {
        let (applied, gone) = change.into_parts();
        let before = self.platform.clone();
        for (key, _) in gone {
            self.forget_router(&key.name);
            self.router_losses.release(&key.name);
            self.queue.add(Key::Object(key), Instant::now());
        }
        for applied in applied {
            let name = applied.key.name.clone();
            let router = &applied.now;
            if let Some(written) = WrittenRouter::read(router) {
                let is_same = self.written_routers.get(&name) == Some(&written);
                if !is_same {
                    self.forget_router(&name);
                    self.platform.written.insert(name.clone(), written.addresses.clone());
                    self.written_routers.insert(name, written);
                    self.take_written(applied.key);
                }
            } else {
                self.forget_router(&name);
                self.platform.zones.insert(router.target.dns.to_ascii_lowercase(), name);
                self.queue.add(Key::Object(applied.key), Instant::now());
            }
        }
        if self.platform != before {
            let changes = self.derivation.set_platform(self.platform.clone());
            self.note(changes, None);
        }
    }

    fn forget_router(&mut self, name: &str) {
        self.written_routers.remove(name);
        self.platform.written.remove(name);
        self.platform.zones.retain(|_, router| router != name);
    }

    fn take_routes(&mut self, change: Change<RouteInfo>) {
        let (applied, gone) = change.into_parts();
        for (key, _) in gone {
            self.route_losses.release(&key.to_string());
            if self.set_written_route(&key, None) {
                self.queue.add(Key::Object(key), Instant::now());
            }
        }
        for applied in applied {
            let marks = applied.now.source.as_deref().cloned();
            if self.set_written_route(&applied.key, marks) {
                self.take_written(applied.key);
            }
        }
    }

    /// Sets the marks of a Route; returns whether they differ.
    fn set_written_route(&mut self, key: &ObjectKey, marks: Option<SourceMarks>) -> bool {
        if self.written_routes.get(key) == marks.as_ref() {
            return false;
        }
        if let Some(marks) = &marks {
            *self.routes_on.entry(marks.router.clone()).or_default() += 1;
        }
        if let Some(SourceMarks { router, .. }) = self.written_routes.put(key.clone(), marks)
            && let Some(count) = self.routes_on.get_mut(&router)
        {
            *count -= 1;
            if *count == 0 {
                self.routes_on.remove(&router);
                // It can be deleted now.
                self.queue.add(Key::Object(ObjectKey::cluster(&router)), Instant::now());
            }
        }
        true
    }

    /// Compares a written object with the derived one.
    fn take_written(&mut self, key: ObjectKey) {
        if self.lost(&key).is_some() {
            self.suspects.insert(key.clone());
        }
        self.queue.add(Key::Object(key), Instant::now());
    }

    fn take_discovered(&mut self, discovered: Discovered) {
        for kind in self.reader.kinds().clone() {
            if let Some(resource) = discovered.served.get(&kind) {
                self.reader.open(kind, resource.clone());
            } else if !discovered.unknown.contains_key(&kind) {
                self.close(kind);
            }
            let failure = discovered.unknown.get(&kind).cloned();
            self.report_failure(kind, failure);
        }
        self.suspect_all();
    }

    /// Notes that a kind is not served.
    fn close(&mut self, kind: Kind) {
        self.reader.close(kind);
        self.deleted.remove(&kind);
        let changes = self.derivation.set_absent(kind);
        self.note(changes, None);
        self.report_failure(kind, None);
    }

    fn report_failure(&mut self, kind: Kind, discovery: Option<String>) {
        let is_gone = self.reader.resource(kind).is_none() && self.derivation.inventory().is_known(kind);
        let gone = is_gone.then(|| "the cluster does not serve it any more".to_owned());
        let changes = self.derivation.set_failure(kind, self.reader.failure(kind).or(discovery).or(gone));
        self.note(changes, None);
    }

    fn take_confirmed(&mut self, kind: Kind, is_served: bool) {
        let keys = self.confirming.remove(&kind).unwrap_or_default();
        if !is_served {
            return self.close(kind);
        }
        for key in keys {
            // It may be back.
            if self.deleted.get_mut(&kind).is_some_and(|deleted| deleted.remove(&key)) {
                let changes = self.derivation.remove(kind, &key);
                self.note(changes, Some(&Source::named(kind, &key)));
            }
        }
        if self.deleted.get(&kind).is_some_and(|deleted| !deleted.is_empty()) {
            self.queue.add(Key::Confirm(kind), Instant::now() + CONFIRM_AFTER);
        }
    }

    fn plan_router(&mut self, key: &ObjectKey, now: Instant) -> Plan<Job> {
        let name = &key.name;
        let existing = self.routers.get_versioned(key);
        if let Some(shard) = self.derivation.shard(name).cloned() {
            self.router_losses.release(name);
            let written = self.written_routers.get(name);
            return match (&existing, written) {
                (Some(_), None) => {
                    self.reject(key, &shard.source, "a Router of this name exists, which no source wrote")
                }
                (Some(_), Some(written)) if written.is_of(&shard, self.applied.get(name).map(|shard| &**shard)) => {
                    self.settled(key)
                }
                (_, written) => {
                    let records = written.map_or(&[][..], |written| &written.records);
                    let object = router_of(&shard, records);
                    Plan::Act(Job::Apply(key.clone(), object, Some(shard)))
                }
            };
        }
        let Some(at) = self.router_losses.deletion(name) else { return self.settled(key) };
        let Some((router, version)) = existing.filter(|_| self.written_routers.contains_key(name)) else {
            return Plan::Nothing;
        };
        if at > now {
            return Plan::At(at);
        }
        // Its Routes are first; each adds it again.
        if self.routes_on.contains_key(name.as_str()) || router.target.deleting {
            return Plan::Nothing;
        }
        let uid = router.object.metadata.uid.clone();
        Plan::Act(Job::Delete(key.clone(), Preconditions { uid, resource_version: Some(version.into_string()) }))
    }

    fn plan_route(&mut self, key: &ObjectKey, now: Instant) -> Plan<Job> {
        let text = key.to_string();
        let existing = self.routes.get_versioned(key);
        if let Some(name) = self.derivation.name(key).cloned() {
            self.route_losses.release(&text);
            let written = self.written_routes.get(key);
            return match (&existing, written) {
                (Some(_), None) => self.reject(key, &name.source, "a Route of this name exists, which no source wrote"),
                (Some((route, _)), Some(written)) if is_of(written, route, &name) => self.settled(key),
                _ => Plan::Act(Job::Apply(key.clone(), route_of(&name), None)),
            };
        }
        let Some(at) = self.route_losses.deletion(&text) else { return self.settled(key) };
        let Some((route, version)) = existing.filter(|(route, _)| route.source.is_some() && !route.deleting) else {
            return Plan::Nothing;
        };
        if at > now {
            return Plan::At(at);
        }
        let uid = Some(route.uid.to_string());
        Plan::Act(Job::Delete(key.clone(), Preconditions { uid, resource_version: Some(version.into_string()) }))
    }

    /// Notes that there is nothing to write.
    fn settled(&mut self, key: &ObjectKey) -> Plan<Job> {
        self.is_changed |= self.rejected.remove(key).is_some();
        Plan::Nothing
    }

    fn reject(&mut self, key: &ObjectKey, source: &Source, message: &str) -> Plan<Job> {
        let note = Note { source: source.clone(), reason: Reason::Rejected, message: format!("{key}: {message}") };
        self.is_changed |= self.rejected.insert(key.clone(), note.clone()) != Some(note);
        Plan::Nothing
    }

    /// Returns the object that a Router or Route is derived from.
    fn source_of(&self, key: &ObjectKey) -> Option<Source> {
        match key.namespace {
            None => Some(self.derivation.shard(&key.name)?.source.clone()),
            Some(_) => Some(self.derivation.name(key)?.source.clone()),
        }
    }

    /// Publishes the result.
    fn publish(&mut self) {
        let mut derived = self.derivation.derived();
        derived.notes.extend(self.rejected.values().cloned().map(Arc::new));
        for key in self.router_losses.held_names().chain(self.route_losses.held_names()).map(key_of) {
            if let Some(source) = self.lost(&key) {
                let kind = if key.namespace.is_some() { "Route" } else { "Router" };
                let message = format!("it is no longer derived; {kind} {key} is kept by a deletion hold");
                derived.notes.insert(Arc::new(Note { source, reason: Reason::Held, message }));
            }
        }
        self.metrics.set(&derived, self.derivation.inventory().failures.keys().copied());
        self.shared.derived.send_replace(Arc::new(derived));
    }
}

impl Controller for Writer {
    type Key = Key;
    type Job = Job;
    type Done = Done;

    const JOB_TIMEOUT: Duration = JOB_TIMEOUT;

    fn queue(&mut self) -> &mut WorkQueue<Key> {
        &mut self.queue
    }

    fn is_ready(&self) -> bool {
        self.routers.is_synced() && self.routes.is_synced()
    }

    fn prepare(&mut self, now: Instant) {
        if !self.is_ready() {
            return;
        }
        if !self.suspects.is_empty() {
            self.settle_suspects(now);
        }
        let inventory = self.derivation.inventory();
        self.held.set_synced(self.reader.kinds().iter().all(|kind| inventory.is_settled(*kind)));
    }

    fn plan(&mut self, key: &Key, now: Instant) -> Plan<Job> {
        match key {
            Key::Discovery => Plan::Act(Job::Discover(self.reader.kinds().clone())),
            Key::Confirm(kind) => {
                let deleted = self.deleted.get(kind).cloned().unwrap_or_default();
                match self.reader.resource(*kind) {
                    Some(resource) if !deleted.is_empty() => {
                        let resource = resource.clone();
                        self.confirming.insert(*kind, deleted);
                        Plan::Act(Job::Confirm(*kind, resource))
                    }
                    _ => Plan::Nothing,
                }
            }
            Key::Object(router) if router.namespace.is_none() => self.plan_router(router, now),
            Key::Object(route) => self.plan_route(route, now),
        }
    }

    fn settle(&mut self, now: Instant) -> Option<Instant> {
        if self.housekeeping_at.is_some_and(|at| at <= now) {
            let decisions = self.held.decisions().borrow().clone();
            self.report_held(&decisions);
        }
        if std::mem::take(&mut self.is_changed) {
            self.publish();
        }
        self.housekeeping_at
    }

    fn act(&self, _: &Key, job: Job) -> Action<Done> {
        let (client, cluster) = (self.client.clone(), self.reader.client().clone());
        async move {
            match job {
                Job::Discover(kinds) => reader::discover(cluster, kinds).await.map(Done::Discovered),
                Job::Confirm(kind, resource) => reader::is_served(cluster, kind, resource).await.map(Done::IsServed),
                Job::Apply(key, object, shard) => apply(&client, &key, object).await.map(|()| Done::Written(shard)),
                Job::Delete(key, preconditions) => {
                    delete(&client, &key, preconditions).await.map(|()| Done::Written(None))
                }
            }
        }
        .boxed()
    }

    fn done(&mut self, key: Key, result: kube::Result<Done>, now: Instant) {
        if let Key::Object(_) = key {
            self.metrics.count(result.is_ok());
        }
        match result {
            Ok(done) => {
                self.queue.succeeded(&key);
                match (done, &key) {
                    (Done::Discovered(discovered), _) => {
                        self.take_discovered(discovered);
                        self.queue.add(key, now + DISCOVER_AGAIN);
                    }
                    (Done::IsServed(is_served), Key::Confirm(kind)) => self.take_confirmed(*kind, is_served),
                    (Done::Written(shard), Key::Object(key)) => {
                        // The derived shard can be another one since.
                        if let Some(shard) = shard {
                            self.applied.insert(shard.name.clone(), shard);
                        }
                        self.settled(key);
                    }
                    _ => {}
                }
            }
            Err(error) => {
                if let Some(omitted) = self.failures.take(now) {
                    let error = chain(&error);
                    tracing::warn!(
                        ?key,
                        error,
                        omitted,
                        "sources: a request to the cluster or the platform failed; retrying"
                    );
                }
                if let (kube::Error::Api(status), Key::Object(object)) = (&error, &key)
                    && matches!(status.code, 400..=499)
                    && ![409, 429].contains(&status.code)
                    && let Some(source) = self.source_of(object)
                {
                    self.reject(object, &source, &status.message);
                }
                // It is unknown whether the write was done.
                if let Key::Object(ObjectKey { namespace: None, name }) = &key {
                    self.applied.remove(name);
                }
                if key == Key::Discovery {
                    for kind in self.reader.kinds().clone() {
                        self.report_failure(kind, Some(error.to_string()));
                    }
                }
                self.queue.failed(&key, now, random());
            }
        }
    }

    fn end(&mut self) {
        self.metrics.clear();
        self.shared.derived.send_replace(Arc::default());
    }
}

/// Returns the key of a Router or Route with this text, as deletion holds show it.
fn key_of(text: &str) -> ObjectKey {
    match text.split_once('/') {
        None => ObjectKey::cluster(text),
        Some((namespace, name)) => ObjectKey::namespaced(namespace, name),
    }
}

impl WrittenRouter {
    /// Reads a Router, if a source wrote it.
    fn read(router: &RouterInfo) -> Option<Self> {
        let Router { metadata, spec, .. } = &*router.object;
        let uid = metadata.labels.as_ref()?.get(SOURCE_LABEL)?.clone();
        let annotations = metadata.annotations.as_ref();
        let object = annotations.and_then(|annotations| annotations.get(SOURCE_OBJECT_ANNOTATION));
        Some(WrittenRouter {
            uid,
            object: object.cloned().unwrap_or_default(),
            dns: spec.dns.clone(),
            addresses: spec.addresses.iter().filter_map(|address| address.ip.parse().ok()).collect(),
            selectors: [spec.route_selector.clone(), spec.namespace_selector.clone()],
            ttl: spec.ttl,
            records: spec.records.clone(),
        })
    }

    /// Returns whether it equals the derived one. Addresses other than those applied last are its operator's. So are a TTL, and addresses of
    /// the zone's own name, that stay after the shard was applied without them.
    fn is_of(&self, shard: &Shard, applied: Option<&Shard>) -> bool {
        let addresses = addresses(shard);
        let are_applied = applied.is_some_and(|applied| applied.addresses == shard.addresses);
        let are_same = addresses == self.addresses || are_applied && addresses.is_subset(&self.addresses);
        are_same
            && self.uid == label(&shard.source, &shard.origin.uid)
            && self.object == shard.source.to_string()
            && self.dns.as_deref() == Some(&shard.dns)
            && match shard.ttl {
                Some(ttl) => self.ttl == ttl,
                None => self.ttl == default_ttl() || applied.is_some_and(|applied| applied.ttl.is_none()),
            }
            && match shard.has_apex {
                true => self.records == records(shard, &self.records),
                false => {
                    let has_own = self.records.iter().any(|record| is_of_apex(record));
                    !has_own || applied.is_some_and(|applied| !applied.has_apex)
                }
            }
            && [&shard.route_selector, &shard.namespace_selector] == [&self.selectors[0], &self.selectors[1]]
    }
}

/// Returns whether a Route equals the derived one.
fn is_of(written: &SourceMarks, route: &RouteInfo, name: &Name) -> bool {
    *written.uid == *label(&name.source, &name.origin.uid)
        && *written.object == *name.source.to_string()
        && *written.router == *name.shard
        && *written.by == *name.admitted_by
        && route.host.as_deref() == Some(&name.host)
}

/// Returns the value of the label of the Routers and Routes of an object: its UID. A class without an object has none.
fn label(source: &Source, uid: &str) -> String {
    if uid.is_empty() {
        super::named(source.kind, [source.kind, &source.namespace, &source.name], 63)
    } else {
        uid.to_owned()
    }
}

fn addresses(shard: &Shard) -> BTreeSet<IpAddr> {
    shard.addresses.iter().take(ADDRESSES_MAX).copied().collect()
}

/// Returns the records of a zone whose own name has the addresses, after those of the Router that are its operator's.
fn records(shard: &Shard, before: &[String]) -> Vec<String> {
    let record = |ip: &IpAddr| format!("@ {} {ip}", if ip.is_ipv6() { "AAAA" } else { "A" });
    let others = before.iter().filter(|text| !is_of_apex(text)).cloned();
    others.chain(addresses(shard).iter().map(record)).collect()
}

/// Returns whether a record is an address of the zone's own name, in the form in which sources write it.
fn is_of_apex(record: &str) -> bool {
    let address = record.strip_prefix("@ A ").or_else(|| record.strip_prefix("@ AAAA "));
    address.is_some_and(|address| address.parse::<IpAddr>().is_ok())
}

/// Returns the fields of a Router that a source decides; `before` are its records.
fn router_of(shard: &Shard, before: &[String]) -> Value {
    let addresses: Vec<Value> = addresses(shard).iter().map(|ip| json!({"ip": ip})).collect();
    let mut spec = json!({"dns": shard.dns, "addresses": addresses});
    for (field, selector) in
        [("routeSelector", &shard.route_selector), ("namespaceSelector", &shard.namespace_selector)]
    {
        if let Some(selector) = selector {
            spec[field] = json!(selector);
        }
    }
    if let Some(ttl) = shard.ttl {
        spec["ttl"] = json!(ttl);
    }
    if shard.has_apex {
        spec["records"] = json!(records(shard, before));
    }
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Router",
        "metadata": metadata(None, &shard.name, &shard.source, &shard.origin.uid), "spec": spec,
    })
}

/// Returns the fields of a Route that a source decides.
fn route_of(name: &Name) -> Value {
    json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Route",
        "metadata": metadata(Some(&name.source.namespace), &name.route, &name.source, &name.origin.uid),
        "spec": {"host": name.host, "adopted": {"router": name.shard, "by": name.admitted_by}},
    })
}

fn metadata(namespace: Option<&str>, name: &str, source: &Source, uid: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        namespace: namespace.map(str::to_owned),
        labels: Some([(SOURCE_LABEL.to_owned(), label(source, uid))].into()),
        annotations: Some([(SOURCE_OBJECT_ANNOTATION.to_owned(), source.to_string())].into()),
        ..ObjectMeta::default()
    }
}

/// Keeps the operator's records in a Router that is applied without records, because its zone's own name has no addresses.
///
/// If an earlier application had some, they and the operator's records are one field of `signpost-sources`, and the API removes the whole
/// field if it is not applied any more.
async fn keep_records(client: &Client, name: &str, object: &mut Value) -> kube::Result<()> {
    let Some(Router { metadata, spec, .. }) = Api::<Router>::all(client.clone()).get_opt(name).await? else {
        return Ok(());
    };
    let owns_records = |entry: &ManagedFieldsEntry| {
        let fields = entry.fields_v1.as_ref();
        entry.manager.as_deref() == Some(SOURCES_FIELD_MANAGER)
            && fields.is_some_and(|fields| !fields.0["f:spec"]["f:records"].is_null())
    };
    let others: Vec<&String> = spec.records.iter().filter(|record| !is_of_apex(record)).collect();
    if !others.is_empty() && metadata.managed_fields.iter().flatten().any(owns_records) {
        object["spec"]["records"] = json!(others);
        // A change of the operator since makes this write a conflict.
        object["metadata"]["resourceVersion"] = json!(metadata.resource_version);
    }
    Ok(())
}

/// Applies an object. The namespace of a Route is created if the platform, which can be another cluster, lacks it.
async fn apply(client: &Client, ObjectKey { namespace, name }: &ObjectKey, mut object: Value) -> kube::Result<()> {
    match namespace {
        None => {
            if object["spec"]["records"].is_null() {
                keep_records(client, name, &mut object).await?;
            }
            write::apply::<Router>(client, None, name, SOURCES_FIELD_MANAGER, &object).await
        }
        Some(namespace) => {
            let apply = || write::apply::<Route>(client, Some(namespace), name, SOURCES_FIELD_MANAGER, &object);
            match apply().await {
                Err(kube::Error::Api(status)) if status.code == 404 => {
                    let metadata = ObjectMeta { name: Some(namespace.clone()), ..ObjectMeta::default() };
                    match write::create(client, None, &Namespace { metadata, ..Namespace::default() }).await {
                        Err(kube::Error::Api(status)) if status.code == 409 => {}
                        created => created?,
                    }
                    apply().await
                }
                applied => applied,
            }
        }
    }
}

async fn delete(
    client: &Client,
    ObjectKey { namespace, name }: &ObjectKey,
    preconditions: Preconditions,
) -> kube::Result<()> {
    let parameters = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
    let deleted = match namespace {
        None => Api::<Router>::all(client.clone()).delete(name, &parameters).await.map(drop),
        Some(namespace) => {
            Api::<Route>::namespaced(client.clone(), namespace).delete(name, &parameters).await.map(drop)
        }
    };
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        deleted => deleted,
    }
}
