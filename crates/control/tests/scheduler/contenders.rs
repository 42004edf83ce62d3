//! Several processes that contend for the lead, each with an election and a scheduler, over our own API server: the
//! lines between them delay, refuse, and lose answers of what was done; processes crash in the middle of anything, and the
//! Lease is taken from under whoever leads, who goes on writing until it notices.
//!
//! Whatever happens: no Route is bound twice, none is lost, no name is given twice, overlapping hosts of two namespaces are not
//! both admitted, no claim is held by nobody, and nothing was bound by who did not lead in that moment.
//!
//! `SIGNPOST_CONTENDERS_ROUTES` (1,000) and `SIGNPOST_CONTENDERS_SEEDS` (2) ask for more. What is done, and which request fails,
//! follows from the seed; in what order tasks run does not.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router as Endpoints;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::response::Response;
use futures::StreamExt as _;
use http::{Method, StatusCode};
use k8s_openapi::api::coordination::v1::{Lease as LeaseObject, LeaseSpec};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use signpost_api::identity::{GROUP_AUTHENTICATED, GROUP_MASTERS, Identity, USER_CONTROLLER, USER_SCHEDULER};
use signpost_api::kinds::{PlatformConfig, server_settings};
use signpost_api::names::{covers, label_claim_name};
use signpost_api::v1alpha1::name_claim::{ClaimKind, NameClaim};
use signpost_api::v1alpha1::route::{Phase, Route};
use signpost_api::v1alpha1::route_binding::{FENCING_ANNOTATION, FENCING_FIELD, RouteBinding};
use signpost_api::v1alpha1::router::Router;
use signpost_api::v1alpha1::{SCHEDULER_LEASE, SCHEDULER_LEASE_NAMESPACE};
use signpost_apiserver::ApiServer;
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::tokens::Tokens;
use signpost_apiserver::store::memory::Memory;
use signpost_control::client::in_process;
use signpost_control::client::lease::{Leadership, Lease, Settings as LeaseSettings, Term};
use signpost_control::reconcile::{self, Reconciler};
use signpost_control::scheduler::metrics::Metrics;
use signpost_control::scheduler::queue::Waits;
use signpost_control::scheduler::{Scheduler, Settings};
use signpost_control::world;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;

const DOMAIN: &str = "v3.example";
/// How long all may take to come to rest: far longer than it does, even on a busy machine.
const REST_TIMEOUT: Duration = Duration::from_secs(120);

/// SplitMix64.
fn mix(state: u64) -> u64 {
    let mut z = state.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What lies between one process and the API.
#[derive(Clone)]
struct Line {
    server: Endpoints,
    random: Arc<AtomicU64>,
    /// Whether it misbehaves.
    rough: Arc<AtomicBool>,
    /// Whether the process is dead: nothing of it goes through any more, and nothing comes back.
    cut: Arc<AtomicBool>,
    counts: Arc<Counts>,
}

/// What the lines have done.
#[derive(Debug, Default)]
struct Counts {
    /// Writes refused to a leader that was deposed.
    fenced: AtomicU64,
    /// Writes that were done, and whose answer was lost.
    lost: AtomicU64,
}

impl Line {
    fn chance(&self, of_a_thousand: u64) -> bool {
        mix(self.random.fetch_add(1, Ordering::Relaxed)) % 1000 < of_a_thousand
    }

    fn client(&self, user: &str) -> Client {
        let line = self.clone();
        let carry = move |request: Request| {
            let line = line.clone();
            async move { line.carry(request).await }
        };
        in_process(Endpoints::new().fallback(carry), Identity::user(user))
    }

    async fn carry(&self, request: Request) -> Response {
        let rough = self.rough.load(Ordering::Relaxed);
        let writes = request.method() != Method::GET;
        let watches = request.uri().query().is_some_and(|query| query.contains("watch="));
        if rough {
            sleep(Duration::from_millis(mix(self.random.fetch_add(1, Ordering::Relaxed)) % 6)).await;
        }
        self.while_alive().await;
        if rough && writes && self.chance(40) {
            return refusal(409, "Conflict", "an injected conflict");
        }
        if rough && writes && self.chance(30) {
            return refusal(500, "InternalError", "an injected failure");
        }
        let response = self.server.clone().oneshot(request).await.unwrap_or_else(|never| match never {});
        self.while_alive().await;
        if rough && writes && response.status().is_success() && self.chance(40) {
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
            return Response::builder().status(502).body(Body::from("no answer")).expect("it is whole");
        }
        if rough && watches && self.chance(150) {
            let events = 1 + usize::from(self.chance(500)) * 20;
            return response.map(|body| Body::from_stream(body.into_data_stream().take(events)));
        }
        if writes && response.status() == StatusCode::CONFLICT {
            let (parts, body) = response.into_parts();
            let body: Bytes = to_bytes(body, 1 << 20).await.expect("a small body");
            if String::from_utf8_lossy(&body).contains(FENCING_FIELD) {
                self.counts.fenced.fetch_add(1, Ordering::Relaxed);
            }
            return Response::from_parts(parts, Body::from(body));
        }
        response
    }

    async fn while_alive(&self) {
        if self.cut.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

fn refusal(code: u16, reason: &str, message: &str) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "reason": reason,
        "message": message, "code": code});
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Body::from(status.to_string())).expect("it is whole")
}

/// One process of the platform.
struct Process {
    line: Line,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl Process {
    fn start(world: &World, name: &str, lease: LeaseSettings) -> Process {
        let line = Line {
            server: world.server.router(),
            random: Arc::new(AtomicU64::new(world.next())),
            rough: Arc::clone(&world.rough),
            cut: Arc::default(),
            counts: Arc::clone(&world.counts),
        };
        let stop = CancellationToken::new();
        let client = line.client(USER_SCHEDULER);
        let leadership = Lease::run(client.clone(), SCHEDULER_LEASE, name, lease, stop.clone());
        let mut settings = Settings::new(DOMAIN);
        settings.instance = name.to_owned();
        settings.search = Duration::from_secs(2);
        settings.waits = Waits {
            failed_first: Duration::from_millis(5),
            failed_longest: Duration::from_millis(200),
            unschedulable_first: Duration::from_secs(1),
            unschedulable_longest: Duration::from_secs(2),
        };
        let mut tasks = JoinSet::new();
        let world = signpost_control::world::World::new(&client, world::Settings::of_domain(DOMAIN));
        let scheduler = Scheduler::new(client, &world, settings, Metrics::default());
        let keeper = reconcile::Settings { settle: Duration::from_millis(50), ..reconcile::Settings::default() };
        let reconciler = Reconciler::new(line.client(USER_CONTROLLER), &world, keeper, reconcile::Metrics::default());
        let reconciler = reconciler.with_scheduler(&scheduler);
        tasks.spawn(scheduler.run(leadership.clone(), stop.clone()));
        tasks.spawn(reconciler.run(leadership, stop.clone()));
        Process { line, stop, tasks }
    }

    /// Nothing is finished, nothing is told, the Lease is not let go.
    fn crash(mut self) {
        self.line.cut.store(true, Ordering::Relaxed);
        self.tasks.abort_all();
        self.stop.cancel();
    }

    async fn end(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// The API, and what was seen to happen in it.
struct World {
    server: ApiServer,
    admin: Client,
    rough: Arc<AtomicBool>,
    counts: Arc<Counts>,
    random: AtomicU64,
    /// The Routes that there are, with their spec.
    there: Mutex<Vec<((String, String), Value)>>,
    /// Every RouteBinding as it was created, with its resourceVersion.
    created: Arc<Mutex<Vec<(u64, RouteBinding)>>>,
    /// The fencing number, by the resourceVersion from which on it was that; `None`: there was no Lease.
    leads: Arc<Mutex<BTreeMap<u64, Option<i64>>>>,
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl World {
    async fn new(seed: u64) -> World {
        let tokens = Tokens::parse("").expect("no tokens are tokens");
        let settings = server_settings(PlatformConfig::new(DOMAIN), Arc::new(Authenticator::new(tokens)));
        let server = ApiServer::new(Arc::new(Memory::new()), settings);
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        let (running, until) = (server.clone(), stop.clone());
        tasks.spawn(async move { running.run(until).await });
        server.ready().await;
        let groups = vec![GROUP_MASTERS.to_owned(), GROUP_AUTHENTICATED.to_owned()];
        let admin = in_process(server.router(), Identity { user: "admin".to_owned(), groups });
        let (created, leads) = (Arc::new(Mutex::new(Vec::new())), Arc::new(Mutex::new(BTreeMap::new())));
        let seen = Arc::clone(&created);
        tasks.spawn(witness(Api::<RouteBinding>::all(admin.clone()), move |event| {
            if let WatchEvent::Added(binding) = event {
                seen.lock().expect("no holder panics").push((version(&binding), binding));
            }
        }));
        let seen = Arc::clone(&leads);
        tasks.spawn(witness(Api::<LeaseObject>::all(admin.clone()), move |event| {
            let (lease, is_there) = match event {
                WatchEvent::Added(lease) | WatchEvent::Modified(lease) => (lease, true),
                WatchEvent::Deleted(lease) => (lease, false),
                WatchEvent::Bookmark(_) | WatchEvent::Error(_) => return,
            };
            if lease.name_any() == SCHEDULER_LEASE {
                let number = lease.spec.as_ref().and_then(|spec| spec.lease_transitions).unwrap_or_default();
                seen.lock().expect("no holder panics").insert(version(&lease), is_there.then(|| number.into()));
            }
        }));
        let keeper = reconcile::Settings { settle: Duration::from_millis(50), ..reconcile::Settings::default() };
        let client = in_process(server.router(), Identity::user(USER_CONTROLLER));
        let world = signpost_control::world::World::new(&client, world::Settings::of_domain(DOMAIN));
        let keeper = Reconciler::new(client, &world, keeper, reconcile::Metrics::default());
        let (leadership, follow) = watch::channel(Leadership::Leader(Term::unlimited()));
        let until = stop.clone();
        tasks.spawn(async move {
            keeper.run(follow, until).await;
            drop(leadership);
        });
        let (rough, counts) = (Arc::new(AtomicBool::new(false)), Arc::default());
        World {
            server,
            admin,
            rough,
            counts,
            random: AtomicU64::new(seed << 32),
            there: Mutex::default(),
            created,
            leads,
            stop,
            tasks,
        }
    }

    fn next(&self) -> u64 {
        mix(self.random.fetch_add(1, Ordering::Relaxed))
    }

    fn below(&self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).expect("below a usize")
    }

    async fn create<T>(&self, api: Api<T>, object: Value)
    where
        T: Clone + std::fmt::Debug + DeserializeOwned + serde::Serialize,
    {
        let object: T = serde_json::from_value(object).expect("an object of a test");
        api.create(&PostParams::default(), &object).await.expect("created");
    }

    async fn namespace(&self, name: &str) {
        self.create(Api::<Namespace>::all(self.admin.clone()), json!({"metadata": {"name": name}})).await;
    }

    /// A Router that takes all routes but those that nobody takes.
    async fn router(&self, name: &str) {
        let selector = json!({"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": ["nowhere"]}]});
        let spec = json!({"addresses": [{"ip": "192.0.2.1"}], "routeSelector": selector});
        self.create(Api::<Router>::all(self.admin.clone()), json!({"metadata": {"name": name}, "spec": spec})).await;
    }

    fn routes(&self, namespace: &str) -> Api<Route> {
        Api::namespaced(self.admin.clone(), namespace)
    }

    async fn route(&self, namespace: &str, name: &str, spec: Value, labels: Value) {
        let key = (namespace.to_owned(), name.to_owned());
        self.there.lock().expect("no holder panics").push((key, spec.clone()));
        let route = json!({"metadata": {"name": name, "labels": labels}, "spec": spec});
        self.create(self.routes(namespace), route).await;
    }

    async fn list<T>(&self) -> Vec<T>
    where
        T: Resource<DynamicType = ()> + Clone + std::fmt::Debug + DeserializeOwned,
    {
        Api::<T>::all(self.admin.clone()).list(&ListParams::default()).await.expect("listed").items
    }

    fn leases(&self) -> Api<LeaseObject> {
        Api::namespaced(self.admin.clone(), SCHEDULER_LEASE_NAMESPACE)
    }

    /// Takes the Lease from whoever has it, as another process does.
    async fn usurp(&self, holder: &str) {
        self.change_lease(|spec| {
            spec.holder_identity = Some(holder.to_owned());
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or_default() + 1);
        })
        .await;
    }

    async fn change_lease(&self, change: impl Fn(&mut LeaseSpec)) {
        let leases = self.leases();
        loop {
            let mut lease = leases.get(SCHEDULER_LEASE).await.expect("somebody has led");
            change(lease.spec.get_or_insert_default());
            match leases.replace(SCHEDULER_LEASE, &PostParams::default(), &lease).await {
                Ok(_) => return,
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => panic!("{error}"),
            }
        }
    }

    async fn end(mut self) {
        self.stop.cancel();
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
    }

    /// What is not at rest yet; empty: all is.
    async fn unrest(&self) -> Vec<String> {
        let (routes, claims) = (self.list::<Route>().await, self.list::<NameClaim>().await);
        let bindings: HashMap<(String, String), RouteBinding> =
            self.list::<RouteBinding>().await.into_iter().map(|binding| (key(&binding), binding)).collect();
        let mut unrest: Vec<String> = Vec::new();
        for route in &routes {
            let status = route.status.clone().unwrap_or_default();
            let is_settled = match bindings.get(&key(route)) {
                Some(binding) => {
                    Some(&binding.spec.route_uid) == route.metadata.uid.as_ref()
                        && status.phase == Phase::Scheduled
                        && status.router.as_ref() == Some(&binding.spec.router)
                }
                None => {
                    let is_no =
                        |kind: &str| status.conditions.iter().any(|one| one.type_ == kind && one.status == "False");
                    let has_obstacle = route.labels().contains_key("pool") || obstacle(route, &routes).is_some();
                    status.phase == Phase::New && is_no("Scheduled") && has_obstacle
                }
            };
            if !is_settled {
                unrest.push(format!("{:?} {status:?}", key(route)));
            }
        }
        let uids: BTreeSet<_> = routes.iter().filter_map(|route| route.metadata.uid.as_ref()).collect();
        if bindings.len() > routes.len() || bindings.values().any(|one| !uids.contains(&one.spec.route_uid)) {
            unrest.push("there are bindings of Routes that are gone".to_owned());
        }
        for claim in claims.iter().filter(|claim| claim.spec.released_at.is_none()) {
            if !uids.contains(&claim.spec.holder.uid) {
                unrest.push(format!("{} is held by a Route that is gone", claim.spec.value));
            }
        }
        unrest
    }

    async fn come_to_rest(&self) {
        let deadline = Instant::now() + REST_TIMEOUT;
        loop {
            let unrest = self.unrest().await;
            if unrest.is_empty() {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{} things never came to rest: {:#?}",
                unrest.len(),
                &unrest[..unrest.len().min(5)]
            );
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Waits until the witnesses have seen all that has happened up to now. What a watch tells comes in order.
    async fn is_witnessed(&self) {
        let bindings = self.list::<RouteBinding>().await;
        let lease = version(&self.leases().get(SCHEDULER_LEASE).await.expect("somebody has led"));
        let deadline = Instant::now() + REST_TIMEOUT;
        loop {
            let seen_lease = self.leads.lock().expect("no holder panics").last_key_value().map(|(at, _)| *at);
            let seen: BTreeSet<_> = {
                let created = self.created.lock().expect("no holder panics");
                created.iter().map(|(_, binding)| binding.spec.route_uid.clone()).collect()
            };
            if seen_lease >= Some(lease) && bindings.iter().all(|binding| seen.contains(&binding.spec.route_uid)) {
                return;
            }
            assert!(Instant::now() < deadline, "the witnesses have not seen all");
            sleep(Duration::from_millis(5)).await;
        }
    }

    /// Every binding was made by who led in that moment.
    async fn check_numbers(&self) {
        self.is_witnessed().await;
        let created = self.created.lock().expect("no holder panics");
        let leads = self.leads.lock().expect("no holder panics");
        for (version, binding) in created.iter() {
            let number: i64 = binding.annotations()[FENCING_ANNOTATION].parse().expect("a number");
            let leading = leads.range(..version).next_back().map(|(_, number)| *number);
            assert_eq!(Some(Some(number)), leading, "{:?} was bound by who did not lead", key(binding));
        }
    }

    /// What must hold at the end, and must have held all the time.
    async fn check(&self) {
        let (routes, bindings) = (self.list::<Route>().await, self.list::<RouteBinding>().await);
        let mut names = BTreeSet::new();
        for binding in &bindings {
            for name in &binding.spec.names {
                assert!(names.insert(name.name.to_ascii_lowercase()), "{} was given twice", name.name);
            }
        }
        let held: HashMap<String, NameClaim> =
            self.list::<NameClaim>().await.into_iter().map(|claim| (claim.name_any(), claim)).collect();
        for binding in &bindings {
            let claim = &held[&label_claim_name(&binding.spec.label)];
            assert_eq!((&claim.spec.holder.uid, &claim.spec.released_at), (&binding.spec.route_uid, &None));
        }
        let hosts: Vec<_> = held.values().filter(|claim| claim.spec.kind == ClaimKind::Host).collect();
        let hosts: Vec<_> = hosts.into_iter().filter(|claim| claim.spec.released_at.is_none()).collect();
        for (one, other) in hosts.iter().flat_map(|one| hosts.iter().map(move |other| (one, other))) {
            let overlap = covers(&one.spec.value, &other.spec.value);
            assert!(
                !overlap || one.spec.holder.namespace == other.spec.holder.namespace,
                "{:?} and {:?}",
                one.spec,
                other.spec
            );
        }
        self.check_numbers().await;
        let created = self.created.lock().expect("no holder panics");
        let mut uids = BTreeSet::new();
        for (_, binding) in created.iter() {
            assert!(uids.insert(&binding.spec.route_uid), "{:?} was bound twice", key(binding));
        }
        let bound: BTreeSet<_> = bindings.iter().map(|binding| &binding.spec.route_uid).collect();
        assert!(bound.iter().all(|uid| uids.contains(uid)), "the witness saw all");
        let nowhere = routes.iter().filter(|route| route.labels().contains_key("pool"));
        assert!(nowhere.into_iter().all(|route| !bound.contains(route.metadata.uid.as_ref().expect("it has one"))));
    }
}

/// Tells of everything that happens to the objects of a kind. A watch whose reader is late on a busy machine is cut off, and goes on
/// from what was read last.
async fn witness<T>(api: Api<T>, mut tell: impl FnMut(WatchEvent<T>))
where
    T: Resource + Clone + std::fmt::Debug + DeserializeOwned,
{
    let mut last = "0".to_owned();
    loop {
        let events = api.watch(&WatchParams::default(), &last).await.expect("it can be watched");
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            let event = event.expect("nothing disturbs the witness");
            match &event {
                WatchEvent::Error(error) => panic!("the witness lost sight: {error:?}"),
                WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                    last = object.resource_version().expect("it has one");
                }
                WatchEvent::Bookmark(_) => {}
            }
            tell(event);
        }
        sleep(Duration::from_millis(5)).await;
    }
}

fn version(object: &impl Resource) -> u64 {
    object
        .meta()
        .resource_version
        .as_deref()
        .and_then(|version| version.parse().ok())
        .expect("our versions are numbers")
}

fn key(object: &impl Resource) -> (String, String) {
    (object.meta().namespace.clone().unwrap_or_default(), object.meta().name.clone().unwrap_or_default())
}

/// What keeps a Route from its host: a Route that has the same one, or one of another namespace that has an overlapping one.
fn obstacle<'a>(route: &Route, routes: &'a [Route]) -> Option<&'a Route> {
    let host = route.spec.host.as_deref()?;
    routes.iter().find(|other| {
        let is_bound = other.status.as_ref().is_some_and(|status| status.phase == Phase::Scheduled);
        let overlaps = |theirs: &str| {
            theirs.eq_ignore_ascii_case(host)
                || other.metadata.namespace != route.metadata.namespace
                    && (covers(theirs, host) || covers(host, theirs))
        };
        is_bound && key(*other) != key(route) && other.spec.host.as_deref().is_some_and(overlaps)
    })
}

fn asked_for(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

const NAMESPACES: [&str; 5] = ["a", "a-b", "a-b-c", "shop", "other"];

/// What one step of the history does.
async fn step(world: &World, number: usize) {
    let namespace = NAMESPACES[world.below(NAMESPACES.len())];
    let name = format!("r{number}");
    match world.below(100) {
        // Two that want the same label.
        0..20 => {
            world.route("a", &format!("b-c-{number}"), json!({}), json!({})).await;
            world.route("a-b", &format!("c-{number}"), json!({}), json!({})).await;
        }
        20..30 => world.route(namespace, &name, json!({"subdomain": format!("app{}", number % 40)}), json!({})).await,
        30..45 => {
            let host = match world.below(6) {
                0 => format!("*.shop{}.example", world.below(8)),
                1 => format!("*.x.shop{}.example", world.below(8)),
                _ => format!("h{}.x.shop{}.example", world.below(10), world.below(8)),
            };
            world.route(namespace, &name, json!({"host": host}), json!({})).await;
        }
        45..48 => world.route(namespace, &name, json!({}), json!({"pool": "nowhere"})).await,
        // One that goes, and perhaps comes back under its name.
        48..60 => {
            world.route(namespace, &name, json!({}), json!({})).await;
            let ((of, name), spec) = {
                let mut there = world.there.lock().expect("no holder panics");
                let at = world.below(there.len());
                there.swap_remove(at)
            };
            world.routes(&of).delete(&name, &DeleteParams::default()).await.expect("deleted");
            if world.below(2) == 0 {
                world.route(&of, &name, spec, json!({})).await;
            }
        }
        _ => world.route(namespace, &name, json!({}), json!({})).await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_route_twice_none_lost_no_name_twice() {
    let routes = usize::try_from(asked_for("SIGNPOST_CONTENDERS_ROUTES", 1_000)).expect("a count");
    let lease =
        LeaseSettings { duration: Duration::from_secs(2), renew: Duration::from_millis(300), ..Default::default() };
    let (mut fenced, mut lost) = (0, 0);
    for seed in 1..=asked_for("SIGNPOST_CONTENDERS_SEEDS", 2) {
        let world = World::new(seed).await;
        for namespace in NAMESPACES {
            world.namespace(namespace).await;
        }
        for name in ["shard1", "shard2", "shard3"] {
            world.router(name).await;
        }
        world.rough.store(true, Ordering::Relaxed);
        let mut names = (0..).map(|number| format!("process{number}"));
        let mut start = || Process::start(&world, &names.next().expect("endless"), lease.clone());
        let mut processes = vec![start(), start(), start()];
        for number in 0..routes {
            step(&world, number).await;
            // Eight crashes and four usurpations, spread over the history.
            if number % (routes / 8).max(1) == routes / 16 {
                processes.swap_remove(world.below(processes.len())).crash();
                processes.push(start());
            }
            if number % (routes / 4).max(1) == routes / 8 && !world.leads.lock().expect("no holder panics").is_empty() {
                world.usurp(&format!("usurper{number}")).await;
            }
            if number % (routes / 5).max(1) == routes / 10 {
                let state = if world.below(2) == 0 { "cordoned" } else { "active" };
                let patch = Patch::Merge(json!({"spec": {"state": state}}));
                let routers: Api<Router> = Api::all(world.admin.clone());
                routers.patch("shard2", &PatchParams::default(), &patch).await.expect("patched");
            }
        }
        // The leader goes on to renew its Lease: sooner or later the answer to one of its writes is lost.
        let deadline = Instant::now() + REST_TIMEOUT;
        while world.counts.lost.load(Ordering::Relaxed) == 0 {
            assert!(Instant::now() < deadline, "no answer was lost");
            sleep(Duration::from_millis(10)).await;
        }
        world.rough.store(false, Ordering::Relaxed);
        world.come_to_rest().await;
        world.check().await;
        fenced += world.counts.fenced.load(Ordering::Relaxed);
        lost += world.counts.lost.load(Ordering::Relaxed);
        for process in processes {
            process.end().await;
        }
        world.end().await;
    }
    println!("{fenced} writes were refused to deposed leaders, {lost} answers were lost");
}

/// A leader that does not look at its Lease for long, from which it is taken meanwhile: whatever it goes on to do is refused. Also
/// if its number is the greater one, since the Lease was deleted, and made anew by one who never knew it; and as long as there is
/// none.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deposed_leader_that_goes_on_writing_binds_nothing() {
    for deposed_by in [DeposedBy::Usurper, DeposedBy::LeaseMadeAnew, DeposedBy::LeaseGone] {
        deposed(deposed_by).await;
    }
}

#[derive(Clone, Copy)]
enum DeposedBy {
    Usurper,
    LeaseMadeAnew,
    LeaseGone,
}

async fn deposed(by: DeposedBy) {
    let world = World::new(7).await;
    world.namespace("shop").await;
    world.router("shard1").await;
    let unaware =
        LeaseSettings { duration: Duration::from_secs(600), renew: Duration::from_secs(300), ..Default::default() };
    let lease = |holder: Option<&str>, number: i32| {
        json!({"metadata": {"name": SCHEDULER_LEASE, "namespace": SCHEDULER_LEASE_NAMESPACE},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 600, "leaseTransitions": number}})
    };
    // It was let go by an earlier leader.
    world.create(world.leases(), lease(None, 4)).await;
    let old = Process::start(&world, "old", unaware);
    world.route("shop", "before", json!({}), json!({})).await;
    world.come_to_rest().await;
    let end_lease = async || {
        world.leases().delete(SCHEDULER_LEASE, &DeleteParams::default()).await.expect("deleted");
    };
    match by {
        DeposedBy::Usurper => world.usurp("new").await,
        DeposedBy::LeaseMadeAnew => {
            end_lease().await;
            world.create(world.leases(), lease(Some("new"), 1)).await;
        }
        DeposedBy::LeaseGone => end_lease().await,
    }
    for number in 0..50 {
        world.route("shop", &format!("after{number}"), json!({}), json!({})).await;
    }
    let deadline = Instant::now() + REST_TIMEOUT;
    while world.counts.fenced.load(Ordering::Relaxed) < 50 {
        assert!(Instant::now() < deadline, "it does not go on");
        sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(world.list::<RouteBinding>().await.len(), 1, "what was before is all");
    // Who leads now finds all of it.
    old.crash();
    if !matches!(by, DeposedBy::LeaseGone) {
        end_lease().await;
    }
    let new = Process::start(&world, "new", LeaseSettings::default());
    world.come_to_rest().await;
    assert_eq!(world.list::<RouteBinding>().await.len(), 51);
    new.end().await;
    world.end().await;
}

/// Whatever becomes of the Lease that a leader holds, it binds again, under a number that was never another's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_whose_number_was_changed_goes_on_in_a_new_term() {
    let world = World::new(8).await;
    world.namespace("shop").await;
    world.router("shard1").await;
    let lease =
        LeaseSettings { duration: Duration::from_secs(60), renew: Duration::from_millis(200), ..Default::default() };
    let leader = Process::start(&world, "leader", lease);
    world.route("shop", "first", json!({}), json!({})).await;
    world.come_to_rest().await;
    for (round, number) in [Some(7), Some(1), None].into_iter().enumerate() {
        match number {
            Some(number) => world.change_lease(|spec| spec.lease_transitions = Some(number)).await,
            None => drop(world.leases().delete(SCHEDULER_LEASE, &DeleteParams::default()).await.expect("deleted")),
        }
        for route in 0..10 {
            world.route("shop", &format!("r{round}-{route}"), json!({}), json!({})).await;
        }
        world.come_to_rest().await;
    }
    assert_eq!(world.list::<RouteBinding>().await.len(), 31);
    world.check_numbers().await;
    leader.end().await;
    world.end().await;
}
