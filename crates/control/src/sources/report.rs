//! Reports on the objects of the source cluster, from the leader: what the platform has made of them.
//!
//! ```text
//!  Derived ──────────┐
//!  Routes, Routers ──┼─► Source ─► reads its Routes and the object ─► status.parents[] of a Route of Gateway API ([`status`])
//!  of the platform ──┘                                             └─► Events on the others
//! ```
//!
//! A Route of Gateway API has an entry for each parent that is a Gateway of the platform. The entries stay as long as the platform has
//! a Route for the object, also while the object is unknown, and go with it. Events are about changes only. Nothing is reported on
//! objects that are only shown.
//!
//! A controller that replaces the list as a whole would remove the entries again and again. After `RACES_MAX` lost entries in
//! `RACES_WITHIN`, the loop writes none until the object changes, and records an Event.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use jiff::Timestamp;
use kube::api::{DynamicObject, Patch, PatchParams};
use kube::discovery::ApiResource;
use kube::{Api, Client};
use parking_lot::Mutex;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::inventory::{Kind, ParentRef};
use super::reader;
use super::status::{self, HostState, Outcome, Wanted, is_own, merged, overall, reference};
use super::targets::is_private;
use super::{Derived, Mode, Name, Note, Reason, Settings, Shard, Shared, Source, gateway};
use crate::client::backoff::random;
use crate::client::events::{self, Counters, Events, Notice};
use crate::client::reflector::{Change, ObjectKey, Store};
use crate::work::controller::{self, Action, Controller, Inputs, Plan, changes};
use crate::work::queue::{Item, WorkQueue};
use crate::world::condition::Status;
use crate::world::{RouteInfo, RouterInfo, World};
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::router::{READY, ZONE_PUBLISHED};

/// The objects in progress; the namespaces share these permits.
const IN_FLIGHT_MAX: usize = 16;
const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
const JOB_TIMEOUT: Duration = Duration::from_secs(30);
/// The attempts at one write that others overtake.
const CONFLICTS_MAX: usize = 5;
/// The time between two derivations that are taken in: each compares all objects.
const PAUSE: Duration = Duration::from_millis(200);
/// The number of lost entries after which the loop gives up.
const RACES_MAX: usize = 5;
/// The time within which they count: that of the routers of OpenShift.
const RACES_WITHIN: Duration = Duration::from_secs(600);

/// The parts of the loop.
#[derive(Clone)]
pub struct Parts {
    /// The client of the source cluster.
    pub cluster: Client,
    pub settings: Arc<Settings>,
    pub shared: Arc<Shared>,
    /// The identity of the process.
    pub instance: String,
    pub events: Counters,
}

/// Adds the counters of Events to `registry`.
pub fn register(events: &Counters, registry: &mut Registry) {
    events.register(registry.sub_registry_with_prefix("sources"));
}

/// Runs until `stop`. `client` reads the Routes of the platform.
pub async fn run(client: Client, world: World, parts: Parts, stop: CancellationToken) {
    let reporter = events::Reporter { controller: status::CONTROLLER, action: "Publishing", instance: parts.instance };
    let (events, recording) = Events::new(parts.cluster.clone(), reporter, parts.events);
    let mut inputs = Inputs::default();
    let routes = inputs.read(&world.routes, Reporter::take_routes);
    let routers = inputs.read(&world.routers, Reporter::take_routers);
    let derived = parts.shared.derived.subscribe();
    let first = derived.borrow().clone();
    inputs.add(changes(derived), |reporter: &mut Reporter, derived| reporter.next = Some(derived));
    let reporter = Reporter {
        platform: client,
        cluster: Cluster { client: parts.cluster, resources: Arc::default() },
        settings: parts.settings,
        routes,
        routers,
        views: HashMap::new(),
        routes_of: HashMap::new(),
        gateways: Arc::default(),
        of_routes: HashMap::new(),
        of_routers: HashMap::new(),
        reported: HashMap::new(),
        next: Some(first),
        taken_at: Instant::now(),
        events,
        queue: WorkQueue::new(IN_FLIGHT_MAX, RETRY),
    };
    let recording = stop.clone().run_until_cancelled_owned(recording);
    tokio::join!(controller::run(reporter, inputs, stop), recording);
}

/// Each namespace has its share of the permits.
impl Item for Source {
    type Owner = String;

    fn owner(&self) -> &String {
        &self.namespace
    }
}

/// Resolves the host names of shards, and hands the addresses to the writer, until `stop`.
pub async fn resolve(world: World, settings: Arc<Settings>, shared: Arc<Shared>, stop: CancellationToken) {
    let (mut derived, mut results) = (shared.derived.subscribe(), world.host_names.results());
    loop {
        let shards = derived.borrow_and_update().shards.clone();
        results.mark_unchanged();
        let wanted: BTreeSet<String> = shards.iter().flat_map(|shard| shard.host_names.iter().cloned()).collect();
        world.host_names.want("sources", wanted.clone());
        let is_usable = |ip: &IpAddr| settings.private_addresses || !is_private(*ip);
        let known = |name: String| {
            let addresses = world.host_names.get(&name).addresses?;
            Some((name, addresses.into_iter().filter(is_usable).collect()))
        };
        controller::set(&shared.resolved, Arc::new(wanted.into_iter().filter_map(known).collect()));
        tokio::select! {
            () = stop.cancelled() => return,
            _ = derived.changed() => {}
            _ = results.changed() => {}
        }
    }
}

/// The part of the derivation that is about one object.
#[derive(Debug, Clone, Default, PartialEq)]
struct View {
    /// The names of the object, and the key of the Route for each, which another object can share.
    names: Vec<(Arc<Name>, ObjectKey)>,
    shards: Vec<Arc<Shard>>,
    notes: Vec<Arc<Note>>,
    /// The generation of the object, if its status has an entry of Signpost.
    marked: Option<Option<i64>>,
}

/// The reports on an object so far.
#[derive(Debug, Default)]
struct Reported {
    notes: BTreeSet<Arc<Note>>,
    is_published: bool,
    is_resolvable: bool,
    /// The entries after the last write.
    entries: Option<Vec<Value>>,
    /// The times at which these were lost.
    races: Vec<Instant>,
    /// The generation of the object at which the loop gave up.
    given_up: Option<Option<i64>>,
}

/// The source cluster.
#[derive(Clone)]
struct Cluster {
    client: Client,
    /// The kinds in the versions that it serves.
    resources: Arc<Mutex<BTreeMap<Kind, ApiResource>>>,
}

struct Reporter {
    platform: Client,
    cluster: Cluster,
    settings: Arc<Settings>,
    routes: Store<RouteInfo>,
    routers: Store<RouterInfo>,
    views: HashMap<Source, View>,
    /// The number of Routes of the platform that were written from an object.
    routes_of: HashMap<Source, BTreeSet<ObjectKey>>,
    /// The Gateways whose shards are published.
    gateways: Arc<BTreeSet<Source>>,
    /// The objects whose hosts a Route has, and whose shard a Router is.
    of_routes: HashMap<ObjectKey, Vec<Source>>,
    of_routers: HashMap<String, Source>,
    reported: HashMap<Source, Reported>,
    /// The newest derivation, if it is not taken in yet, and the time at which the last one was.
    next: Option<Arc<Derived>>,
    taken_at: Instant,
    events: Events,
    queue: WorkQueue<Source>,
}

/// A report on one object.
struct Job {
    kind: Kind,
    view: View,
    /// The Routers of its shards.
    routers: Vec<Option<Arc<RouterInfo>>>,
    /// Whether the platform has Routes that were written from it.
    has_routes: bool,
    gateways: Arc<BTreeSet<Source>>,
    entries: Option<Vec<Value>>,
    given_up: Option<Option<i64>>,
}

/// The result of a report.
#[derive(Debug, Default)]
struct Done {
    /// The object, if it exists: `apiVersion` and uid.
    object: Option<(String, String)>,
    generation: Option<i64>,
    published: Option<Outcome>,
    resolvable: Option<Outcome>,
    /// The entries that the object has now.
    entries: Option<Vec<Value>>,
    /// Whether another writer removed or changed entries.
    is_lost: bool,
}

impl Reporter {
    fn add(&mut self, source: Source) {
        self.queue.add(source, Instant::now());
    }

    /// Takes in a derivation, and plans the objects that it changes.
    fn take_derived(&mut self, derived: Arc<Derived>) {
        let mut views: HashMap<Source, View> = HashMap::new();
        let mut gateways = BTreeSet::new();
        let routes: HashMap<&str, ObjectKey> = derived.names.iter().map(|name| (&*name.host, name.key())).collect();
        for name in derived.names.iter().chain(&derived.shared).filter(|name| name.mode == Mode::Publish) {
            if let Some(route) = routes.get(&*name.host) {
                views.entry(name.source.clone()).or_default().names.push((Arc::clone(name), route.clone()));
            }
        }
        for shard in derived.shards.iter().filter(|shard| shard.mode == Mode::Publish) {
            views.entry(shard.source.clone()).or_default().shards.push(Arc::clone(shard));
            gateways.insert(shard.source.clone());
        }
        for note in &derived.notes {
            if self.is_published(&note.source) {
                views.entry(note.source.clone()).or_default().notes.push(Arc::clone(note));
            }
        }
        for (source, generation) in &derived.marked {
            views.entry(source.clone()).or_default().marked = Some(*generation);
        }
        let before = std::mem::replace(&mut self.views, views);
        let gone = before.keys().filter(|source| !self.views.contains_key(source));
        let other = self.views.iter().filter(|(source, view)| before.get(source) != Some(view));
        // Another writer has removed the entry before this loop has seen it.
        let lost = self
            .reported
            .iter()
            .filter(|(source, reported)| reported.entries.is_some() && !derived.marked.contains_key(*source));
        let other = other.map(|(source, _)| source).chain(lost.map(|(source, _)| source));
        let mut changed: BTreeSet<Source> = gone.chain(other).cloned().collect();
        if *self.gateways != gateways {
            self.gateways = Arc::new(gateways);
            // Their entries depend on it.
            changed
                .extend(self.views.iter().filter(|(_, view)| view.names.is_empty()).map(|(source, _)| source.clone()));
        }
        self.of_routes.clear();
        self.of_routers.clear();
        for (source, view) in &self.views {
            for (_, route) in &view.names {
                self.of_routes.entry(route.clone()).or_default().push(source.clone());
            }
            self.of_routers.extend(view.shards.iter().map(|shard| (shard.name.clone(), source.clone())));
        }
        changed.into_iter().for_each(|source| self.add(source));
    }

    /// Returns whether the source of an object is published.
    fn is_published(&self, source: &Source) -> bool {
        !source.name.is_empty() && source.family().is_some_and(|family| self.settings.mode(family) == Mode::Publish)
    }

    fn take_routes(&mut self, change: Change<RouteInfo>) {
        let (applied, gone) = change.into_parts();
        let source_of = |route: &RouteInfo| Source::parse(&route.source.as_ref()?.object);
        for (key, route) in gone {
            if let Some(source) = source_of(&route) {
                if let Some(routes) = self.routes_of.get_mut(&source) {
                    routes.remove(&key);
                }
                self.routes_of.retain(|_, routes| !routes.is_empty());
                self.add(source);
            }
        }
        for applied in applied {
            if let Some(source) = source_of(&applied.now) {
                self.routes_of.entry(source.clone()).or_default().insert(applied.key.clone());
                if applied.before.as_ref().is_none_or(|before| before.conditions != applied.now.conditions) {
                    let others = self.of_routes.get(&applied.key).cloned().unwrap_or_default();
                    others.into_iter().for_each(|source| self.add(source));
                }
            }
        }
    }

    fn take_routers(&mut self, change: Change<RouterInfo>) {
        let (applied, gone) = change.into_parts();
        let names =
            applied.into_iter().map(|applied| applied.key.name).chain(gone.into_iter().map(|(key, _)| key.name));
        let sources: Vec<Source> = names.filter_map(|name| self.of_routers.get(&name).cloned()).collect();
        sources.into_iter().for_each(|source| self.add(source));
    }

    fn notice(&self, source: &Source, done: &Done, is_warning: bool, reason: &'static str, note: String) {
        let Some((api_version, uid)) = done.object.clone() else { return };
        let api_version = Some(api_version);
        let (kind, object) = (source.kind, source.key());
        self.events.record(Notice { api_version, kind, object, uid, is_warning, reason, note });
    }
}

/// Returns the reason of the Event about a note; `None`: the object's own status, or another one, has it.
fn event_of(reason: Reason) -> Option<&'static str> {
    match reason {
        Reason::DomainAlreadyInUse => Some("DomainAlreadyInUse"),
        Reason::Taken => Some("HostAlreadyClaimed"),
        Reason::NoAddress | Reason::AddressRefused => Some("AddressNotUsable"),
        Reason::OutsideDomain => Some("OutsideDomain"),
        Reason::Invalid => Some("Invalid"),
        Reason::Rejected => Some("Rejected"),
        Reason::Held => Some("DeletionHeld"),
        Reason::SeveralLabels => Some("SeveralLabels"),
        Reason::AnnotationIgnored => Some("AnnotationIgnored"),
        _ => None,
    }
}

impl Controller for Reporter {
    type Key = Source;
    type Job = Job;
    type Done = Done;

    const JOB_TIMEOUT: Duration = JOB_TIMEOUT;

    fn queue(&mut self) -> &mut WorkQueue<Source> {
        &mut self.queue
    }

    fn is_ready(&self) -> bool {
        self.routes.is_synced() && self.routers.is_synced()
    }

    fn plan(&mut self, source: &Source, _: Instant) -> Plan<Job> {
        let Some(kind) = Kind::named(source.kind) else { return Plan::Nothing };
        let view = self.views.get(source).cloned();
        if view.is_none() && !kind.is_gateway_route() {
            self.reported.remove(source);
            return Plan::Nothing;
        }
        let view = view.unwrap_or_default();
        let reported = self.reported.entry(source.clone()).or_default();
        let routers = view.shards.iter().map(|shard| self.routers.get(&ObjectKey::cluster(&shard.name))).collect();
        Plan::Act(Job {
            kind,
            routers,
            has_routes: self.routes_of.contains_key(source),
            gateways: Arc::clone(&self.gateways),
            entries: reported.entries.clone(),
            given_up: reported.given_up,
            view,
        })
    }

    fn settle(&mut self, now: Instant) -> Option<Instant> {
        let derived = self.next.take()?;
        if now < self.taken_at + PAUSE {
            self.next = Some(derived);
            return Some(self.taken_at + PAUSE);
        }
        self.taken_at = now;
        self.take_derived(derived);
        Some(now)
    }

    fn act(&self, source: &Source, job: Job) -> Action<Done> {
        let (source, platform, cluster) = (source.clone(), self.platform.clone(), self.cluster.clone());
        async move {
            let kind = job.kind;
            let result = report(source, job, platform, &cluster).await;
            if result.is_err() {
                // The cluster may serve another version.
                cluster.resources.lock().remove(&kind);
            }
            result
        }
        .boxed()
    }

    fn done(&mut self, source: Source, result: kube::Result<Done>, now: Instant) {
        let done = match result {
            Ok(done) => done,
            Err(error) => {
                tracing::warn!(%source, %error, "failed to report on an object of the source cluster; retrying");
                self.queue.failed(&source, now, random());
                return;
            }
        };
        self.queue.succeeded(&source);
        if done.object.is_none() || !self.views.contains_key(&source) && done.entries.is_none() {
            self.reported.remove(&source);
            return;
        }
        let mut reported = self.reported.remove(&source).unwrap_or_default();
        self.record_changes(&source, &done, &mut reported);
        reported.entries = done.entries.clone();
        if reported.given_up.is_some_and(|generation| generation != done.generation) {
            reported.given_up = None;
        }
        if done.is_lost {
            reported.races.retain(|at| now.duration_since(*at) < RACES_WITHIN);
            reported.races.push(now);
            if reported.races.len() >= RACES_MAX {
                let note = "another writer removes or changes the entries of signpost.dev/dns in status.parents; Signpost \
                            stops writing them until the object changes";
                tracing::warn!(%source, "{note}");
                self.notice(&source, &done, true, "StatusContended", note.to_owned());
                reported.given_up = Some(done.generation);
                reported.races.clear();
            }
        }
        self.reported.insert(source, reported);
    }
}

impl Reporter {
    /// Records Events about what has changed since the last ones.
    fn record_changes(&self, source: &Source, done: &Done, reported: &mut Reported) {
        // Their status has it.
        if Kind::named(source.kind).is_some_and(Kind::is_gateway_route) {
            return;
        }
        let notes = self.views.get(source).map(|view| view.notes.clone()).unwrap_or_default();
        for note in notes.iter().filter(|note| !reported.notes.contains(*note)) {
            if let Some(reason) = event_of(note.reason) {
                self.notice(source, done, true, reason, note.message.clone());
            }
        }
        reported.notes = notes.into_iter().collect();
        let is_true = |outcome: &Option<Outcome>| outcome.as_ref().map(|outcome| outcome.status == Status::True);
        let (published, resolvable) = (is_true(&done.published), is_true(&done.resolvable));
        let turn = |before: &mut bool, outcome: &Option<Outcome>, words: [&'static str; 2], is_quiet: bool| {
            let Some(outcome) = outcome else { return };
            let is_true = outcome.status == Status::True;
            // An unknown state is not a loss.
            let is_news = *before != is_true && outcome.status != Status::Unknown;
            if is_news && !is_quiet {
                let message =
                    if is_true { outcome.message.clone() } else { format!("{}: {}", outcome.reason, outcome.message) };
                self.notice(source, done, !is_true, words[usize::from(!is_true)], message);
            }
            if is_news {
                *before = is_true;
            }
        };
        // One Event is enough for both.
        let is_quiet = published == Some(true) && resolvable == Some(true) && !reported.is_resolvable;
        turn(&mut reported.is_published, &done.published, ["Published", "NotPublished"], is_quiet);
        turn(&mut reported.is_resolvable, &done.resolvable, ["Resolvable", "NotResolvable"], false);
    }
}

/// Reads the object and its Routes, and writes the entries in its status.
async fn report(source: Source, job: Job, platform: Client, cluster: &Cluster) -> kube::Result<Done> {
    let Some(resource) = cluster.resource(job.kind).await? else { return Ok(Done::default()) };
    let key = source.key();
    let api: Api<DynamicObject> = match &key.namespace {
        Some(namespace) => Api::namespaced_with(cluster.client.clone(), namespace, &resource),
        None => Api::all_with(cluster.client.clone(), &resource),
    };
    let mut hosts = Vec::new();
    for (name, route) in &job.view.names {
        let routes: Api<Route> = Api::namespaced(platform.clone(), route.namespace());
        let route = routes.get_opt(&route.name).await?;
        hosts.push((HostState::of(&name.host, route.as_ref()), name));
    }
    let states: Vec<&HostState> = hosts.iter().map(|(state, _)| state).collect();
    let mut done = Done::default();
    if !states.is_empty() {
        done.published = Some(overall(&states, |state| &state.published));
        done.resolvable = Some(overall(&states, |state| &state.resolvable));
    } else if !job.view.shards.is_empty() {
        done.published = Some(shards(&job.view.shards, &job.routers));
    }
    let (mut is_first, mut conflicts) = (true, 0);
    loop {
        let Some(object) = api.get_opt(&key.name).await? else { return Ok(done) };
        done.object = object.metadata.uid.clone().map(|uid| (resource.api_version.clone(), uid));
        done.generation = object.metadata.generation;
        if !job.kind.is_gateway_route() {
            return Ok(done);
        }
        let list = object.data["status"]["parents"].as_array().cloned().unwrap_or_default();
        let own: Vec<Value> = list.iter().filter(|entry| is_own(entry)).cloned().collect();
        // The comparison is with the last write, and not with what a conflict of this write has shown.
        done.is_lost |= is_first && job.entries.as_ref().is_some_and(|entries| *entries != own);
        is_first = false;
        done.entries = Some(own.clone()).filter(|own| !own.is_empty());
        if job.given_up == Some(object.metadata.generation) {
            done.is_lost = false;
            return Ok(done);
        }
        // What was derived may be unknown now; its Routes are still there. After a refusal they are deleted.
        let is_silence = |note: &Arc<Note>| note.reason == Reason::NotAdmitted || note.reason.is_advice();
        let is_unknown = job.view.notes.iter().all(is_silence);
        if job.view.names.is_empty() && is_unknown && job.has_routes {
            return Ok(done);
        }
        let wanted = wanted(&object.data["spec"]["parentRefs"], &hosts, &job, &source.namespace);
        let merged = merged(&list, &wanted, &source.namespace, object.metadata.generation, Timestamp::now());
        if merged.left_out > 0 {
            tracing::warn!(%source, left_out = merged.left_out, "status.parents is full of entries of others");
        }
        if !merged.is_changed {
            return Ok(done);
        }
        let patch = json!({
            "metadata": {"resourceVersion": object.metadata.resource_version}, "status": {"parents": merged.parents},
        });
        match api.patch_status(&key.name, &PatchParams::default(), &Patch::Merge(patch)).await {
            Ok(object) => {
                let list = object.data["status"]["parents"].as_array().cloned().unwrap_or_default();
                let own: Vec<Value> = list.into_iter().filter(is_own).collect();
                done.entries = Some(own).filter(|own| !own.is_empty());
                return Ok(done);
            }
            Err(kube::Error::Api(status)) if status.code == 409 && conflicts < CONFLICTS_MAX => conflicts += 1,
            Err(kube::Error::Api(status)) if status.code == 409 => {
                done.is_lost = true;
                return Ok(done);
            }
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(done),
            Err(error) => return Err(error),
        }
    }
}

/// Returns the entries that a Route with these parents should have: for those that lead to a published Gateway.
fn wanted(parents: &Value, hosts: &[(HostState, &Arc<Name>)], job: &Job, namespace: &str) -> Vec<Wanted> {
    let is_known = |reference: &ParentRef| {
        gateway::target(reference, namespace).is_some_and(|target| job.gateways.contains(&target))
    };
    let notes: Vec<&Note> = job.view.notes.iter().map(|note| &**note).filter(|note| !note.reason.is_advice()).collect();
    let entry = |parent: &Value| {
        let reference = reference(parent);
        let of_parent = |name: &Name| name.parents.iter().any(|one| one.is_same(&reference, namespace));
        let mut here: Vec<&HostState> =
            hosts.iter().filter(|(_, name)| of_parent(name)).map(|(state, _)| state).collect();
        // The alias leads to another parent.
        if here.is_empty() && notes.iter().any(|note| note.reason == Reason::SeveralParents) {
            here = hosts.iter().map(|(state, _)| state).collect();
        }
        if here.is_empty() && (notes.is_empty() || !is_known(&reference)) {
            return None;
        }
        let outcome = |part: fn(&HostState) -> &Outcome| match notes.first().filter(|_| here.is_empty()) {
            Some(note) => Outcome {
                status: Status::False,
                reason: format!("{:?}", note.reason),
                message: notes.iter().map(|note| note.message.as_str()).collect::<Vec<_>>().join("; "),
            },
            None => overall(&here, part),
        };
        let (published, resolvable) = (outcome(|state| &state.published), outcome(|state| &state.resolvable));
        Some(Wanted { parent: parent.clone(), published, resolvable })
    };
    parents.as_array().into_iter().flatten().filter_map(entry).collect()
}

/// Returns the outcome on the shards of an object: the worst of their Routers.
fn shards(shards: &[Arc<Shard>], routers: &[Option<Arc<RouterInfo>>]) -> Outcome {
    let state = |(shard, router): (&Arc<Shard>, &Option<Arc<RouterInfo>>)| {
        let status = router.as_ref().and_then(|router| router.object.status.clone()).unwrap_or_default();
        let find = |kind: &str| status.conditions.iter().find(|condition| condition.type_ == kind).cloned();
        let (ready, published) = (find(READY), find(ZONE_PUBLISHED));
        let said = ready.filter(|ready| ready.status == "False").or(published);
        let outcome = match said {
            Some(said) => Outcome {
                status: if said.status == "True" { Status::True } else { Status::False },
                message: format!("shard {}: {}", shard.name, said.message),
                reason: said.reason,
            },
            None => Outcome {
                status: Status::Unknown,
                reason: status::PENDING.to_owned(),
                message: format!("shard {}: its zone is not published yet", shard.name),
            },
        };
        HostState { host: shard.dns.clone(), alias: None, published: outcome.clone(), resolvable: outcome }
    };
    let states: Vec<HostState> = shards.iter().zip(routers).map(state).collect();
    overall(&states.iter().collect::<Vec<_>>(), |state| &state.published)
}

impl Cluster {
    /// Returns a kind in the version that the cluster serves; `None`: it serves none.
    async fn resource(&self, kind: Kind) -> kube::Result<Option<ApiResource>> {
        if let Some(known) = self.resources.lock().get(&kind) {
            return Ok(Some(known.clone()));
        }
        let found = reader::discover(self.client.clone(), BTreeSet::from([kind])).await?.served.remove(&kind);
        if let Some(resource) = &found {
            self.resources.lock().insert(kind, resource.clone());
        }
        Ok(found)
    }
}
