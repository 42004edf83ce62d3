//! What happens in one simulation: people who change objects, processes that come and go, faults, and calm in between.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use signpost_api::kinds::{deletion_hold, route, route_binding, router};
use signpost_api::v1alpha1::deletion_hold::DeletionHold;
use signpost_api::v1alpha1::route::Route;
use signpost_api::v1alpha1::router::Router;
use signpost_api::v1alpha1::{SCHEDULER_LEASE, SCHEDULER_LEASE_NAMESPACE};
use signpost_control::dns_client;
use signpost_control::observe::verify::state::Server;
use signpost_dns::zone::ZoneDb;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::api::{Api, Behaviour, Line, Weather};
use super::chance::Chance;
use super::truth::{SETTLING, Truth};
use super::{PLANES, SERVERS, address_of, control_plane, name_server, system};

/// How often it storms, and calms down again.
const ROUNDS: u32 = 2;
/// How long a storm lasts.
const STORM: Duration = Duration::from_secs(8 * 60);
/// How long after it all must be as it is to be.
const RECOVERY: Duration = Duration::from_secs(15 * 60);
/// How long it is calm, and how long before the end of that nothing is written any more: former names and quarantines have ended by
/// then.
const CALM: Duration = Duration::from_secs(115 * 60);
const STILL: Duration = Duration::from_secs(15 * 60);
const NAMESPACES: [&str; 3] = ["shop", "blog", "blog-eu"];

/// The simulated world.
struct Life {
    api: Api,
    truth: Arc<Mutex<Truth>>,
    chance: Chance,
    processes: BTreeMap<&'static str, Process>,
    /// Where name servers answer, by address.
    answering: Arc<Mutex<BTreeMap<SocketAddr, Answering>>>,
    disks: tempfile::TempDir,
    /// The names of all processes, and how many of them, at the front, are name servers.
    names: Vec<&'static str>,
    made: u32,
}

/// A name server as the network sees it.
#[derive(Clone)]
struct Answering {
    db: Arc<ZoneDb>,
    reachable: bool,
}

/// A running process.
struct Process {
    line: Line,
    loops: JoinSet<()>,
    /// By how many seconds its wall clock is off.
    offset: Arc<Mutex<i64>>,
}

/// A loop of a process, polled under the process's own clock. After each poll it is seen what a name server has published.
struct Polled {
    running: BoxFuture<'static, ()>,
    offset: Arc<Mutex<i64>>,
    of: &'static str,
    truth: Arc<Mutex<Truth>>,
}

impl Future for Polled {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let other = system::set_offset(*self.offset.lock());
        let polled = self.running.poll_unpin(context);
        system::set_offset(other);
        self.truth.lock().look_at(self.of);
        polled
    }
}

/// Lives through the simulation of `seed`.
pub async fn live(seed: u64) {
    let chance = Chance::new(seed);
    let behaviour = if chance.below(3) == 0 { Behaviour::Kubernetes } else { Behaviour::Ours };
    let truth = Arc::new(Mutex::new(Truth::new(seed, behaviour == Behaviour::Ours)));
    truth.lock().note(format!("{behaviour:?}"));
    let api = Api::start(behaviour, truth.clone(), chance.clone()).await;
    // Its own name: if another run of the seed had the same, one of them would draw another, and then other identifiers than it.
    let prefix = format!("simulation-{}-", std::process::id());
    let disks = tempfile::Builder::new().prefix(&prefix).tempdir_in(memory_disk()).expect("a directory");
    let (servers, planes) = (2 + chance.below(2), 2 + chance.below(2));
    let names = SERVERS.into_iter().take(servers as usize).chain(PLANES.into_iter().take(planes as usize)).collect();
    let (processes, answering) = (BTreeMap::new(), Arc::default());
    let mut life = Life { api, truth, chance, processes, answering, disks, names, made: 0 };
    life.network();
    life.prepare().await;
    for round in 0..ROUNDS {
        life.storm().await;
        life.calm(round).await;
    }
    let mut out = std::io::stderr().lock();
    let hours = system::elapsed().as_secs_f64() / 3600.0;
    let _ = writeln!(out, "simulated {hours:.3} hours, history {:016x}", life.truth.lock().sum());
    // What still runs ends with the process.
    drop(out);
    drop(life);
    std::process::exit(0);
}

fn memory_disk() -> PathBuf {
    Some(PathBuf::from("/dev/shm")).filter(|path| path.is_dir()).unwrap_or_else(std::env::temp_dir)
}

impl Life {
    /// Queries reach the name servers, or nobody.
    fn network(&self) {
        let (answering, api, chance) = (self.answering.clone(), self.api.clone(), self.chance.clone());
        dns_client::simulate(move |server, query| {
            let (answering, api, chance) = (answering.clone(), api.clone(), chance.clone());
            async move {
                let lag = api.weather.lock().lag_longest;
                sleep(Duration::from_millis(chance.below(lag + 1))).await;
                let server = answering.lock().get(&server).cloned();
                let response =
                    server.filter(|server| server.reachable).and_then(|server| name_server::answer(&server.db, &query));
                match response {
                    Some(response) => response,
                    None => std::future::pending().await,
                }
            }
            .boxed()
        });
    }

    async fn prepare(&mut self) {
        for namespace in NAMESPACES {
            let api = kube::Api::<Namespace>::all(self.api.admin());
            let _ = api.create(&PostParams::default(), &object(json!({"metadata": {"name": namespace}}))).await;
        }
        for name in ["shard1", "shard2"] {
            self.create_router(name).await;
        }
        for name in self.names.clone() {
            self.start(name);
        }
    }

    /// The name servers, each with where it answers.
    fn servers(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let running = SERVERS.into_iter().enumerate().filter(|(_, name)| self.names.contains(name));
        running.map(|(number, name)| (name, address_of(number)))
    }

    /// Starts a process with what is on its disk.
    fn start(&mut self, name: &'static str) {
        self.truth.lock().note(format!("{name} starts"));
        let (line, offset) = (self.api.line(name), Arc::new(Mutex::new(0)));
        let address = self.servers().find(|(server, _)| *server == name).map(|(_, address)| address);
        let started = match address {
            Some(address) => {
                let db = Arc::new(ZoneDb::new());
                self.answering.lock().insert(address, Answering { db: db.clone(), reachable: true });
                self.truth.lock().serves(name, Some(db.clone()));
                name_server::loops(&line, name, db, self.disks.path().join(name))
            }
            None => {
                let server = |(name, address)| Server { name: format!("{name}.{}", super::DOMAIN), address };
                control_plane::loops(&line, name, self.servers().map(server).collect())
            }
        };
        let mut loops = JoinSet::new();
        for running in started {
            loops.spawn(Polled { running, offset: offset.clone(), of: name, truth: self.truth.clone() });
        }
        self.processes.insert(name, Process { line, loops, offset });
    }

    /// Ends a process between two of its steps.
    async fn crash(&mut self, name: &str) {
        let Some(mut process) = self.processes.remove(name) else { return };
        process.line.kill();
        process.loops.shutdown().await;
        if let Some((_, address)) = self.servers().find(|(server, _)| *server == name) {
            self.answering.lock().remove(&address);
            self.truth.lock().serves(name, None);
            if self.chance.below(6) == 0 {
                let _ = std::fs::remove_dir_all(self.disks.path().join(name));
                self.truth.lock().forgets(name);
            }
        }
        self.truth.lock().note(format!("{name} crashes"));
    }

    /// Things happen, and go wrong.
    async fn storm(&mut self) {
        let until = system::elapsed() + STORM;
        while system::elapsed() < until {
            sleep(Duration::from_millis(self.chance.below(40_000))).await;
            match self.chance.below(10) {
                0..6 => self.person().await,
                6 => self.weather(),
                _ => self.fault().await,
            }
        }
    }

    /// How bad it is from now on.
    fn weather(&mut self) {
        let share = |most: u64| if self.chance.below(2) == 0 { 0 } else { self.chance.below(most) };
        let weather = Weather {
            conflicts: share(100),
            failures: share(100),
            lost_answers: share(100),
            ended_watches: share(100),
            expired_watches: share(50),
            hung_watches: share(20),
            lag_longest: share(3_000),
        };
        self.truth.lock().note(format!("{weather:?}"));
        *self.api.weather.lock() = weather;
    }

    async fn fault(&mut self) {
        let all = self.names.clone();
        let name = *self.chance.one_of(&all).expect("there are some");
        match self.chance.below(13) {
            0..3 if self.processes.contains_key(name) => self.crash(name).await,
            3..6 => {
                let down = all.iter().find(|name| !self.processes.contains_key(*name)).copied();
                down.into_iter().for_each(|name| self.start(name));
            }
            6 | 7 => {
                let cut = self.chance.below(2) == 0;
                if let Some(process) = self.processes.get(name) {
                    process.line.cut(cut);
                    self.truth.lock().note(format!("{name} is {}", if cut { "cut off" } else { "connected" }));
                }
            }
            8 => {
                let chance = self.chance.clone();
                self.answering.lock().values_mut().for_each(|server| server.reachable = chance.below(3) > 0);
            }
            9 => {
                let seconds = i64::try_from(self.chance.below(7_200)).expect("small") - 3_600;
                if let Some(process) = self.processes.get(name) {
                    *process.offset.lock() = seconds;
                    self.truth.lock().note(format!("the clock of {name} is off by {seconds} s"));
                }
            }
            10 => {
                self.truth.lock().note("the API restarts");
                self.api.restart().await;
            }
            11 if self.chance.below(2) == 0 => self.go_back().await,
            12 => self.usurp().await,
            _ => {}
        }
    }

    /// Somebody takes the Lease from whoever leads, or away.
    async fn usurp(&self) {
        let (api, name) =
            (kube::Api::<Lease>::namespaced(self.api.admin(), SCHEDULER_LEASE_NAMESPACE), SCHEDULER_LEASE);
        let Ok(Some(lease)) = api.get_opt(name).await else { return };
        self.truth.lock().note("the Lease is taken from whoever has it");
        if self.chance.below(3) == 0 {
            let _ = api.delete(name, &DeleteParams::default()).await;
            return;
        }
        let number = lease.spec.and_then(|spec| spec.lease_transitions).unwrap_or_default() + 1;
        let mut spec = json!({"leaseTransitions": number});
        if self.chance.below(2) == 0 {
            spec["holderIdentity"] = json!("nobody");
        }
        let _ = api.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await;
    }

    /// The store is put back to what it was. Where its revisions are not moved on by that, nobody may be without a connection: who
    /// comes back when there are as many again cannot see it.
    async fn go_back(&mut self) {
        let commits = usize::try_from(1 + self.chance.below(60)).expect("few");
        let restored = self.chance.below(2) == 0;
        if !restored {
            *self.api.weather.lock() = Weather::default();
            self.processes.values().for_each(|process| process.line.cut(false));
            // Whoever was without one has had time to connect again.
            sleep(Duration::from_secs(120)).await;
        }
        self.api.go_back(if restored { commits } else { 30 + commits }, restored).await;
        if !restored {
            sleep(SETTLING).await;
        }
    }

    /// Somebody changes something.
    async fn person(&mut self) {
        let routes = self.keys(route::ROUTE.key_prefix);
        let routers = self.keys(router::ROUTER.key_prefix);
        let (route, router) = (self.chance.one_of(&routes).cloned(), self.chance.one_of(&routers).cloned());
        match (self.chance.below(16), route, router) {
            (0..6, ..) if routes.len() < 30 => self.create_route().await,
            (6..8, Some(key), _) => {
                self.delete_route(&key).await;
                if self.chance.below(2) == 0 {
                    sleep(Duration::from_millis(self.chance.below(3_000))).await;
                    self.create_route_as(&key).await;
                }
            }
            (8, Some(key), _) => {
                let value = self.chance.below(9).to_string();
                self.patch_route(&key, json!({"metadata": {"labels": {"version": value}}})).await;
            }
            (9 | 10, Some(key), Some(router)) => {
                self.patch_route(&key, json!({"metadata": {"annotations": {"signpost.dev/move-to": router}}})).await;
            }
            (11, _, Some(router)) => {
                let addresses: Vec<Value> = self.addresses();
                self.patch_router(&router, json!({"spec": {"addresses": addresses}})).await;
            }
            (12, _, Some(router)) => {
                let state = *self.chance.one_of(&["active", "active", "cordoned", "draining"]).expect("some");
                self.patch_router(&router, json!({"spec": {"state": state}})).await;
            }
            (13, ..) => {
                let name = format!("shard{}", 1 + self.chance.below(5));
                self.create_router(&name).await;
            }
            (14, _, Some(router)) => {
                // Nobody deletes one that a name leads to, now or since a move.
                let leads = |binding: &Value| {
                    let former_names = binding["formerNames"].as_array().into_iter().flatten();
                    former_names.chain([binding]).any(|one| one["router"] == *router)
                };
                let prefix = route_binding::ROUTE_BINDING.key_prefix;
                let is_used = self.truth.lock().all(prefix).any(|(_, binding)| leads(&binding["spec"]));
                if !is_used && routers.len() > 1 {
                    self.delete_router(&router).await;
                    if self.chance.below(2) == 0 {
                        sleep(Duration::from_millis(self.chance.below(5_000))).await;
                        self.create_router(&router).await;
                    }
                }
            }
            _ => {}
        }
    }

    fn keys(&self, prefix: &str) -> Vec<String> {
        self.truth.lock().all(prefix).map(|(key, _)| key.to_owned()).collect()
    }

    fn addresses(&self) -> Vec<Value> {
        let first = self.chance.below(200);
        (0..1 + self.chance.below(3)).map(|next| json!({"ip": format!("198.51.100.{}", first + next)})).collect()
    }

    async fn create_route(&mut self) {
        self.made += 1;
        let namespace = *self.chance.one_of(&NAMESPACES).expect("some");
        // A few names that come again, and a few pairs whose default labels are the same.
        let name = match self.chance.below(3) {
            0 => format!("app{}", self.chance.below(6)),
            1 => format!("eu-app{}", self.chance.below(4)),
            _ => format!("r{}", self.made),
        };
        self.create_route_as(&format!("{namespace}/{name}")).await;
    }

    async fn create_route_as(&mut self, key: &str) {
        let (namespace, name) = key.split_once('/').expect("a key");
        let hosts = ["www.shop.example", "blog.example", "*.blog.example", "eu.blog.example"];
        let mut spec = json!({"to": {"kind": "Service", "name": name}});
        if self.chance.below(3) == 0 {
            spec["host"] = json!(self.chance.one_of(&hosts));
        }
        if self.chance.below(8) == 0 {
            spec["subdomain"] = json!(format!("sub{}", self.chance.below(3)));
        }
        let labels = if self.chance.below(16) == 0 { json!({"pool": super::NOWHERE}) } else { json!({}) };
        let metadata = json!({"name": name, "namespace": namespace, "labels": labels});
        let route = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": metadata, "spec": spec});
        let api = kube::Api::<Route>::namespaced(self.api.admin(), namespace);
        let (object, parameters) = (object(route), PostParams::default());
        self.write(format!("{}{key}", route::ROUTE.key_prefix), api.create(&parameters, &object)).await;
    }

    async fn patch_route(&mut self, key: &str, patch: Value) {
        let (namespace, name) = key.split_once('/').expect("a key");
        let api = kube::Api::<Route>::namespaced(self.api.admin(), namespace);
        let (parameters, patch) = (PatchParams::default(), Patch::Merge(patch));
        self.write(format!("{}{key}", route::ROUTE.key_prefix), api.patch(name, &parameters, &patch)).await;
    }

    async fn delete_route(&mut self, key: &str) {
        let (namespace, name) = key.split_once('/').expect("a key");
        let api = kube::Api::<Route>::namespaced(self.api.admin(), namespace);
        let parameters = DeleteParams::default();
        self.write(format!("{}{key}", route::ROUTE.key_prefix), api.delete(name, &parameters)).await;
    }

    async fn create_router(&mut self, name: &str) {
        let selector = json!({"matchExpressions": [{"key": "pool", "operator": "NotIn", "values": [super::NOWHERE]}]});
        let (dns, addresses) = (format!("{name}.{}", super::DOMAIN), self.addresses());
        let spec = json!({"dns": dns, "addresses": addresses, "routeSelector": selector});
        let router =
            json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": name}, "spec": spec});
        let (api, router, parameters) =
            (kube::Api::<Router>::all(self.api.admin()), object(router), PostParams::default());
        self.write(format!("{}{name}", router::ROUTER.key_prefix), api.create(&parameters, &router)).await;
    }

    async fn patch_router(&mut self, name: &str, patch: Value) {
        let (api, parameters) = (kube::Api::<Router>::all(self.api.admin()), PatchParams::default());
        self.write(format!("{}{name}", router::ROUTER.key_prefix), api.patch(name, &parameters, &Patch::Merge(patch)))
            .await;
    }

    async fn delete_router(&mut self, name: &str) {
        let (api, parameters) = (kube::Api::<Router>::all(self.api.admin()), DeleteParams::default());
        self.write(format!("{}{name}", router::ROUTER.key_prefix), api.delete(name, &parameters)).await;
    }

    /// Writes as a person does: it succeeds, or is refused.
    async fn write<T>(&self, key: String, write: impl Future<Output = kube::Result<T>>) {
        self.truth.lock().admin_writes = Some(key.clone());
        let result = pin!(write).await;
        let mut truth = self.truth.lock();
        truth.admin_writes = None;
        if let Err(error) = result {
            truth.note(format!("a person's write of {key} is refused: {error}"));
        }
    }

    /// Nothing goes wrong any more, and all comes to rest.
    async fn calm(&mut self, round: u32) {
        self.truth.lock().note("calm");
        *self.api.weather.lock() = Weather::default();
        for process in self.processes.values() {
            process.line.cut(false);
            *process.offset.lock() = 0;
        }
        self.answering.lock().values_mut().for_each(|server| server.reachable = true);
        for name in self.names.clone() {
            if !self.processes.contains_key(name) {
                self.start(name);
            }
        }
        let began = system::elapsed();
        if let Some(unrest) = self.unrest().await {
            self.truth.lock().fail(&format!("in calm {round} it does not come to rest: {unrest}"));
        }
        // A name server that lists again late in the calm may hold what has gone before.
        while system::elapsed() + STILL < began + CALM {
            sleep(Duration::from_secs(30)).await;
            self.approve().await;
        }
        sleep((began + CALM).saturating_sub(system::elapsed())).await;
        let mut truth = self.truth.lock();
        let unrest = truth.unrest();
        if !unrest.is_empty() {
            truth.fail(&format!("in calm {round} it comes to rest and does not stay there: {}", unrest.join("; ")));
        }
        let (at, what) = truth.last_write.clone();
        if at + STILL > system::elapsed() {
            truth.fail(&format!("in calm {round} {what} was still written at {:.3}", at.as_secs_f64()));
        }
        truth.all_is_live();
    }

    /// What is not as it is to be after [`RECOVERY`].
    async fn unrest(&self) -> Option<String> {
        let until = system::elapsed() + RECOVERY;
        loop {
            sleep(Duration::from_secs(30)).await;
            self.approve().await;
            let unrest = self.truth.lock().unrest();
            if unrest.is_empty() || system::elapsed() >= until {
                return (!unrest.is_empty()).then(|| unrest.join("; "));
            }
        }
    }

    /// An administrator agrees with all deletions.
    async fn approve(&self) {
        let api = kube::Api::<DeletionHold>::all(self.api.admin());
        for name in self.keys(deletion_hold::DELETION_HOLD.key_prefix) {
            let patch = Patch::Merge(json!({"spec": {"decision": "approve"}}));
            let _ = api.patch(&name, &PatchParams::default(), &patch).await;
        }
    }
}

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of a test")
}
