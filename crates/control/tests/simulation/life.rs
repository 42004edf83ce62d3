//! The events of one simulation: users who change objects, processes that start and stop, faults, and calm in between.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use serde_json::json;
use signpost_api::kinds::{deletion_hold, zone};
use signpost_control::observe::verify::state::Server;
use signpost_dns::zone::ZoneDb;
use signpost_types::v1alpha1::deletion_hold::DeletionHold;
use signpost_types::v1alpha1::{SCHEDULER_LEASE, SCHEDULER_LEASE_NAMESPACE};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::api::{Api, Behaviour};
use super::chance::Chance;
use super::connection::{Connection, Weather};
use super::outside::{self, Answering, Outside};
use super::person::object;
use super::source_cluster::SourceCluster;
use super::truth::{SETTLING, Truth};
use super::{
    AGENTS, AHEAD, DOMAIN, PLANES, SERVERS, SHARDS, WITH_INSTANCES, address_of, agent, control_plane, dns_of,
    name_server, system,
};

/// The number of storms, each followed by calm.
const ROUNDS: u32 = 2;
const STORM: Duration = Duration::from_secs(8 * 60);
/// The time after a storm within which everything must be in the desired state.
const RECOVERY: Duration = Duration::from_secs(15 * 60);
/// The duration of calm, and the time before its end without writes: former names and quarantines have ended by its end.
const CALM: Duration = Duration::from_secs(150 * 60);
const STILL: Duration = Duration::from_secs(15 * 60);
/// The time within which a leader reads a source cluster without faults.
const SOURCES_READ: Duration = Duration::from_secs(4 * 60);
pub const NAMESPACES: [&str; 3] = ["shop", "blog", "blog-eu"];

/// The simulated world.
pub struct Life {
    pub api: Api,
    pub truth: Arc<Mutex<Truth>>,
    pub chance: Chance,
    processes: BTreeMap<&'static str, Process>,
    pub outside: Arc<Mutex<Outside>>,
    /// Whether hosts must be verified.
    verify_hosts: bool,
    /// Whether the spec of the Router with instances lists their addresses.
    pub lists_instances: bool,
    disks: tempfile::TempDir,
    /// The cluster from which sources derive Routers and Routes, in some lives.
    sources: Option<SourceCluster>,
    /// The names of all processes, and how many of them, at the front, are name servers.
    names: Vec<&'static str>,
    pub made: u32,
}

/// A running process.
struct Process {
    connection: Connection,
    loops: JoinSet<()>,
    /// The error of its wall clock in seconds.
    offset: Arc<Mutex<i64>>,
}

/// A loop of a process, polled under the process's own clock. After each poll, the publications of a name server are checked.
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
        self.truth.lock().check_published(self.of);
        polled
    }
}

/// Lives through the simulation of `seed`.
pub async fn live(seed: u64) {
    let chance = Chance::new(seed);
    let behaviour = if chance.below(3) == 0 { Behaviour::Kubernetes } else { Behaviour::Ours };
    let verify_hosts = chance.below(3) == 0;
    let outside = Arc::new(Mutex::new(Outside::default()));
    let mut truth = Truth::new(Some(seed), outside.clone());
    (truth.is_fenced, truth.verify_hosts) = (behaviour == Behaviour::Ours, verify_hosts);
    let truth = Arc::new(Mutex::new(truth));
    let lists_instances = chance.below(2) == 0;
    truth.lock().note(format!("{behaviour:?}, verify_hosts: {verify_hosts}, lists_instances: {lists_instances}"));
    let api = Api::start(behaviour, truth.clone(), chance.clone()).await;
    // A unique name: if another run of the seed had the same one, one of them would choose a second name, and other identifiers.
    let prefix = format!("simulation-{}-", std::process::id());
    let disks = tempfile::Builder::new().prefix(&prefix).tempdir_in(memory_disk()).expect("a directory");
    if chance.below(2) == 0 {
        put_ledger_ahead(&api);
    }
    let (servers, planes) = (2 + chance.below(2), 2 + chance.below(2));
    let names = SERVERS.into_iter().take(servers as usize).chain(PLANES.into_iter().take(planes as usize));
    let names = names.chain(AGENTS.map(|(name, _)| name)).collect();
    outside::simulate(&outside, &api, &chance);
    let processes = BTreeMap::new();
    let sources = (chance.below(3) == 0).then(|| SourceCluster::new(truth.clone(), chance.clone()));
    let mut life =
        Life { api, truth, chance, processes, outside, verify_hosts, lists_instances, disks, sources, names, made: 0 };
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

/// Gives all zones serials that are far ahead of the clock, as after a migration from serials with another scheme.
fn put_ledger_ahead(api: &Api) {
    let now = Time(jiff::Timestamp::from_second(jiff::Timestamp::now().as_second()).expect("it is the time"));
    let shards = (1..=SHARDS).map(|number| (dns_of(&format!("shard{number}")), "shard"));
    for (apex, kind) in shards.chain([(format!("routes.{DOMAIN}"), "alias"), (DOMAIN.to_owned(), "parent")]) {
        let version = json!({"serial": AHEAD, "digest": "00000000000000000000000000000001", "at": now});
        let metadata = json!({"name": apex, "uid": format!("of-{apex}"), "creationTimestamp": now});
        let zone = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Zone", "metadata": metadata,
            "spec": {"type": kind, "versions": [version]}});
        api.put(format!("{}{apex}", zone::ZONE.key_prefix), Some(&zone));
    }
}

fn memory_disk() -> PathBuf {
    Some(PathBuf::from("/dev/shm")).filter(|path| path.is_dir()).unwrap_or_else(std::env::temp_dir)
}

impl Life {
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

    /// Returns the name servers with their addresses.
    fn servers(&self) -> impl Iterator<Item = (&'static str, SocketAddr)> {
        let running = SERVERS.into_iter().enumerate().filter(|(_, name)| self.names.contains(name));
        running.map(|(number, name)| (name, address_of(number)))
    }

    /// Starts a process with its existing disk.
    fn start(&mut self, name: &'static str) {
        self.truth.lock().note(format!("{name} starts"));
        let (connection, offset) = (self.api.connection(name), Arc::new(Mutex::new(0)));
        let address = self.servers().find(|(server, _)| *server == name).map(|(_, address)| address);
        let agent = AGENTS.into_iter().find(|(agent, _)| *agent == name);
        let started = match (address, agent) {
            (_, Some((_, ip))) => agent::loops(&connection, WITH_INSTANCES, ip.into(), self.outside.clone()),
            (Some(address), _) => {
                let db = Arc::new(ZoneDb::new());
                self.outside.lock().name_servers.insert(address, Answering { db: db.clone(), reachable: true });
                self.truth.lock().serves(name, Some(db.clone()));
                name_server::loops(&connection, name, db, self.disks.path().join(name))
            }
            (None, None) => {
                let server = |(name, address)| Server { name: format!("{name}.{}", DOMAIN), address };
                let servers = self.servers().map(server).collect();
                let cluster = self.sources.as_ref().map(|sources| sources.cluster.clone());
                control_plane::loops(&connection, name, servers, self.verify_hosts, cluster)
            }
        };
        let mut loops = JoinSet::new();
        for running in started {
            loops.spawn(Polled { running, offset: offset.clone(), of: name, truth: self.truth.clone() });
        }
        self.processes.insert(name, Process { connection, loops, offset });
    }

    /// Ends a process between two of its steps.
    async fn crash(&mut self, name: &str) {
        let Some(mut process) = self.processes.remove(name) else { return };
        process.connection.kill();
        process.loops.shutdown().await;
        if let Some((_, address)) = self.servers().find(|(server, _)| *server == name) {
            self.outside.lock().name_servers.remove(&address);
            self.truth.lock().serves(name, None);
            if self.chance.below(6) == 0 {
                let _ = std::fs::remove_dir_all(self.disks.path().join(name));
                self.truth.lock().forgets(name);
            }
        }
        if let Some((_, ip)) = AGENTS.into_iter().find(|(agent, _)| *agent == name) {
            self.outside.lock().instances.remove(&ip.into());
        }
        self.truth.lock().note(format!("{name} crashes"));
    }

    /// Things happen, and go wrong.
    async fn storm(&mut self) {
        let until = system::elapsed() + STORM;
        self.truth.lock().kept = self.sources.as_ref().map(SourceCluster::admitted).unwrap_or_default();
        while system::elapsed() < until {
            sleep(Duration::from_millis(self.chance.below(40_000))).await;
            if let Some(sources) = self.sources.as_mut().filter(|_| self.chance.below(3) == 0) {
                sources.act();
            }
            match self.chance.below(10) {
                0..6 => self.person().await,
                6 => self.weather(),
                _ => self.fault().await,
            }
        }
    }

    /// Sets the fault rates from now on.
    fn weather(&mut self) {
        let share = |most: u64| if self.chance.below(2) == 0 { 0 } else { self.chance.below(most) };
        let weather = Weather {
            conflicts: share(100),
            failures: share(100),
            lost_answers: share(100),
            ended_watches: share(100),
            expired_watches: share(50),
            hung_watches: share(20),
            disorder: share(20),
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
                    process.connection.cut(cut);
                    self.truth.lock().note(format!("{name} is {}", if cut { "cut off" } else { "connected" }));
                }
            }
            8 => {
                let chance = self.chance.clone();
                let mut outside = self.outside.lock();
                outside.name_servers.values_mut().for_each(|server| server.reachable = chance.below(3) > 0);
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

    /// Takes the Lease from the leader, or deletes it.
    async fn usurp(&self) {
        let (api, name) =
            (kube::Api::<Lease>::namespaced(self.api.admin(), SCHEDULER_LEASE_NAMESPACE), SCHEDULER_LEASE);
        let Ok(Some(lease)) = api.get_opt(name).await else { return };
        self.truth.lock().note("the Lease is taken from its holder");
        if self.chance.below(3) == 0 {
            let _ = api.delete(name, &DeleteParams::default()).await;
            return;
        }
        let number = lease.spec.and_then(|spec| spec.lease_transitions).unwrap_or_default() + 1;
        let mut spec = json!({"leaseTransitions": number});
        if self.chance.below(2) == 0 {
            spec["holderIdentity"] = json!("other");
        }
        let _ = api.patch(name, &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await;
    }

    /// Restores the store to an earlier state. If that does not advance its revisions, every process must be connected: one that
    /// reconnects at the same revision number cannot detect it. A control plane that does not lead follows only some of the kinds, so it
    /// starts again, as after a restore of etcd without `--bump-revision`.
    async fn go_back(&mut self) {
        let commits = usize::try_from(1 + self.chance.below(60)).expect("few");
        let restored = self.chance.below(2) == 0;
        if !restored {
            *self.api.weather.lock() = Weather::default();
            self.processes.values().for_each(|process| process.connection.cut(false));
            // Processes without a connection, or with a silent watch, have had time to reconnect.
            sleep(Duration::from_secs(240)).await;
        }
        let leader = self.truth.lock().leader();
        let is_waiting =
            |name: &&str| !restored && leader.as_deref() != Some(name) && self.processes.contains_key(name);
        let waiting: Vec<&str> = PLANES.into_iter().filter(is_waiting).collect();
        for name in &waiting {
            self.crash(name).await;
        }
        self.api.go_back(if restored { commits } else { 30 + commits }, restored).await;
        waiting.into_iter().for_each(|name| self.start(name));
        if !restored {
            sleep(SETTLING).await;
        }
    }

    /// Ends all faults, and waits until everything is in the desired state.
    async fn calm(&mut self, round: u32) {
        self.truth.lock().note("calm");
        *self.api.weather.lock() = Weather::default();
        for process in self.processes.values() {
            process.connection.cut(false);
            *process.offset.lock() = 0;
        }
        self.outside.lock().name_servers.values_mut().for_each(|server| server.reachable = true);
        if let Some(sources) = &mut self.sources {
            sources.heal();
            sources.settle();
            self.truth.lock().admitted = Some(sources.admitted());
        }
        for name in self.names.clone() {
            if !self.processes.contains_key(name) {
                self.start(name);
            }
        }
        let began = system::elapsed();
        if self.sources.is_some() {
            // An administrator approves no deletion before the leader has read the cluster again.
            sleep(SOURCES_READ).await;
        }
        if let Some(unrest) = self.unrest().await {
            self.truth.lock().fail(&format!("in calm {round} it does not come to rest: {unrest}"));
        }
        // A name server that lists again late in the calm can hold earlier deletions.
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

    /// Returns the difference from the desired state after [`RECOVERY`].
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

    /// Approves all deletions as an administrator.
    async fn approve(&self) {
        let api = kube::Api::<DeletionHold>::all(self.api.admin());
        for name in self.keys(deletion_hold::DELETION_HOLD.key_prefix) {
            let hold = self.truth.lock().get(deletion_hold::DELETION_HOLD.key_prefix, &name).cloned();
            let hold = hold.and_then(|hold| serde_json::from_value::<DeletionHold>(hold).ok());
            if !hold.is_some_and(|hold| hold.is_undecided()) {
                continue;
            }
            // As `signpost hold approve` does: a holder that has entered since the last time waits for another decision.
            let decided = json!({"decision": "approve", "decidedAt": Time(jiff::Timestamp::now())});
            let patch = Patch::Merge(json!({"spec": decided}));
            let _ = api.patch(&name, &PatchParams::default(), &patch).await;
        }
    }
}
