//! Clients that create, move, delete, and read Routes through any API server, and record the acknowledged writes.
//!
//! Each Route has one client, so that client's writes determine its state. A write without a response leaves the Route in doubt:
//! it can take effect later, for example when TCP retransmits a packet that a partition dropped, which takes about as long as the
//! partition. Its client does not write it again until all hosts are ready and a grace period has passed, and then reads it
//! ([`Clients::settle`]).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::promises::{MOVE_TO, Promises, VERSION};
use crate::random::Random;
use crate::report::Report;
use crate::scene::{API_SERVERS, NAMESPACE, ROUTERS, Scene};
use signpost_testing::client::Client;
use signpost_testing::{PATIENCE, wait_for};

/// The clients.
const CLIENTS: usize = 4;
/// A deleted Route is created again after this time at the earliest.
const REST: Duration = Duration::from_secs(20);

/// The pace of the clients.
#[derive(Debug, Clone, Copy)]
pub struct RequestTiming {
    /// The time between two requests of a client.
    pub pause: Duration,
    /// The maximum time until a write without a response takes effect.
    pub grace: Duration,
}

/// The known state of a Route.
#[derive(Debug, Clone)]
pub struct KnownRoute {
    /// The UID of the Route, if it exists.
    pub uid: Option<String>,
    /// The number of the last write that was acknowledged, and of the last one that was sent.
    pub acknowledged: u64,
    sent: u64,
    /// The Router of the last move that was acknowledged.
    pub target: Option<String>,
    doubt: Doubt,
    changed: Instant,
}

/// The possible effects of a write without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    Nothing,
    /// The Route exists, in one of several versions.
    Version,
    /// The Route may or may not exist.
    Presence,
}

/// The number of requests of each kind that were acknowledged, rejected, or left without a response.
#[derive(Default)]
pub struct Counts {
    pub created: AtomicU64,
    pub moved: AtomicU64,
    pub deleted: AtomicU64,
    pub read: AtomicU64,
    pub doubtful: AtomicU64,
    pub refused: AtomicU64,
}

/// The clients, each in a thread of its own.
pub struct Clients {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<BTreeMap<String, KnownRoute>>>,
}

struct Shared {
    promises: Arc<Promises>,
    report: Arc<Report>,
    counts: Arc<Counts>,
    /// Whether clients are to settle their doubts and end, or to end at once.
    finish: AtomicBool,
    stop: AtomicBool,
    /// The number of requested and of completed settlements of all doubts, over all clients.
    settle: AtomicU64,
    settled: AtomicU64,
    /// The clients that have as many Routes as they should have.
    filled: AtomicU64,
}

impl Clients {
    /// Starts clients that together maintain this number of Routes.
    pub fn start(
        scene: &Scene,
        promises: &Arc<Promises>,
        report: &Arc<Report>,
        seed: u64,
        routes: usize,
        pace: RequestTiming,
    ) -> Clients {
        let shared = Arc::new(Shared {
            promises: Arc::clone(promises),
            report: Arc::clone(report),
            counts: Arc::default(),
            finish: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            settle: AtomicU64::new(0),
            settled: AtomicU64::new(0),
            filled: AtomicU64::new(0),
        });
        let threads = (0..CLIENTS).map(|number| {
            let worker = Worker {
                shared: Arc::clone(&shared),
                servers: API_SERVERS.map(|name| scene.client(name)).to_vec(),
                random: Random::new(seed, number as u64 + 1),
                number,
                share: routes / CLIENTS,
                routes: BTreeMap::new(),
                is_filled: false,
                settled: 0,
                pace,
            };
            std::thread::spawn(move || worker.run())
        });
        Clients { threads: threads.collect(), shared }
    }

    /// Waits until as many Routes were created as there should be.
    pub fn wait_filled(&self) {
        wait_for("all Routes are created", || self.shared.filled.load(Ordering::Relaxed) == CLIENTS as u64);
    }

    /// Returns the counts of the clients' requests.
    pub fn counts(&self) -> Arc<Counts> {
        Arc::clone(&self.shared.counts)
    }

    /// Waits until each client has read each Route that has been in doubt for the grace period. All hosts must be ready.
    pub fn settle(&self) {
        let rounds = self.shared.settle.fetch_add(1, Ordering::Relaxed) + 1;
        wait_for("all doubts are settled", || self.shared.settled.load(Ordering::Relaxed) >= rounds * CLIENTS as u64);
    }

    /// Stops all clients, which settle their doubts first; returns all Routes that they ever created.
    pub fn finish(mut self) -> BTreeMap<String, KnownRoute> {
        self.shared.finish.store(true, Ordering::Relaxed);
        let mut all = BTreeMap::new();
        for thread in self.threads.drain(..) {
            all.extend(thread.join().expect("a client does not panic"));
        }
        all
    }
}

impl Drop for Clients {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// One client.
struct Worker {
    shared: Arc<Shared>,
    servers: Vec<Client>,
    random: Random,
    number: usize,
    /// The number of Routes of this client.
    share: usize,
    routes: BTreeMap<String, KnownRoute>,
    is_filled: bool,
    settled: u64,
    pace: RequestTiming,
}

impl Worker {
    fn run(mut self) -> BTreeMap<String, KnownRoute> {
        loop {
            if self.settled < self.shared.settle.load(Ordering::Relaxed) {
                self.settle_all();
            }
            if self.shared.finish.load(Ordering::Relaxed) {
                while !self.doubts().is_empty() {
                    std::thread::sleep(Duration::from_millis(100));
                    self.settle_all();
                }
                return self.routes;
            }
            if self.shared.stop.load(Ordering::Relaxed) {
                return self.routes;
            }
            let present = self.names(|known| known.uid.is_some() && known.doubt == Doubt::Nothing);
            let doubts = self.doubts().len();
            if !self.is_filled && present.len() + doubts >= self.share {
                self.is_filled = true;
                self.shared.filled.fetch_add(1, Ordering::Relaxed);
            }
            if present.len() + doubts < self.share {
                self.create();
            } else if !present.is_empty() {
                let route = self.random.pick(&present).clone();
                match self.random.below(10) {
                    0..3 => self.delete(&route),
                    3..8 => self.relocate(&route),
                    _ => {}
                }
                self.read(&route);
            }
            if self.is_filled {
                std::thread::sleep(self.pace.pause);
            }
        }
    }

    fn names(&self, which: impl Fn(&KnownRoute) -> bool) -> Vec<String> {
        self.routes.iter().filter(|(_, known)| which(known)).map(|(name, _)| name.clone()).collect()
    }

    fn doubts(&self) -> Vec<String> {
        self.names(|known| known.doubt != Doubt::Nothing)
    }

    /// Creates a new Route, or a deleted one again.
    fn create(&mut self) {
        let deleted =
            self.names(|known| known.uid.is_none() && known.doubt == Doubt::Nothing && known.changed.elapsed() > REST);
        let route = if deleted.is_empty() || self.random.below(2) == 0 {
            format!("r{}-{}", self.number, self.routes.len())
        } else {
            self.random.pick(&deleted).clone()
        };
        let version = self.sending(&route);
        self.shared.promises.creating(&route, version);
        let object = json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
            "metadata": {"name": route, "namespace": NAMESPACE, "annotations": {VERSION: version.to_string()}},
            "spec": {"to": {"name": "web"}},
        });
        let (status, body) = self.server().send("POST", &routes_path(), Some(&object));
        match status {
            201 => {
                self.shared.counts.created.fetch_add(1, Ordering::Relaxed);
                let object: Value = serde_json::from_str(&body).unwrap_or_default();
                let known = self.known(&route);
                known.uid = object["metadata"]["uid"].as_str().map(str::to_owned);
                known.target = None;
                known.acknowledged = version;
            }
            _ => self.unacknowledged("create", &route, status, &body, Doubt::Presence),
        }
    }

    /// Moves a Route to any Router.
    fn relocate(&mut self, route: &str) {
        let to = *self.random.pick(&ROUTERS);
        let version = self.sending(route);
        self.shared.promises.moving(route, version, to);
        let patch = json!({"metadata": {"annotations": {VERSION: version.to_string(), MOVE_TO: to}}});
        let (status, body) = self.server().send("PATCH", &path(route), Some(&patch));
        match status {
            200 => {
                self.shared.counts.moved.fetch_add(1, Ordering::Relaxed);
                let known = self.known(route);
                known.acknowledged = version;
                known.target = Some(to.to_owned());
            }
            _ => self.unacknowledged("move", route, status, &body, Doubt::Version),
        }
    }

    fn delete(&mut self, route: &str) {
        let uid = self.known(route).uid.clone().unwrap_or_default();
        self.shared.promises.deleting(route, &uid);
        let (status, body) = self.server().send("DELETE", &path(route), None);
        match status {
            200 => {
                self.shared.counts.deleted.fetch_add(1, Ordering::Relaxed);
                self.known(route).uid = None;
            }
            _ => self.unacknowledged("delete", route, status, &body, Doubt::Presence),
        }
    }

    /// Reads a Route: what was acknowledged must be there, whichever server acknowledged it.
    fn read(&mut self, route: &str) {
        let known = self.known(route).clone();
        let (status, body) = self.server().send("GET", &path(route), None);
        if known.doubt == Doubt::Nothing && (status == 200 || status == 404) {
            self.shared.counts.read.fetch_add(1, Ordering::Relaxed);
            if let Err(error) = agrees(&known, status, &body) {
                self.shared.report.violation(format!("read of Route {route}: {error}; known: {known:?}"));
            }
        }
    }

    /// Reads all Routes that have been in doubt for the grace period.
    fn settle_all(&mut self) {
        let grace = self.pace.grace;
        for route in self.names(|known| known.doubt != Doubt::Nothing && known.changed.elapsed() > grace) {
            let mut answers = Vec::new();
            for server in &self.servers {
                let mut answer = server.send("GET", &path(&route), None);
                let deadline = Instant::now() + PATIENCE;
                while !matches!(answer.0, 200 | 404) && Instant::now() < deadline {
                    std::thread::sleep(Duration::from_millis(100));
                    answer = server.send("GET", &path(&route), None);
                }
                answers.push((answer.0, version_of(&answer.1), answer.1));
            }
            let (status, version, body) = answers.swap_remove(0);
            let other = answers.swap_remove(0);
            let report = Arc::clone(&self.shared.report);
            if !matches!(status, 200 | 404) || (status, version) != (other.0, other.1) {
                report.violation(format!("Route {route}: {status} {body} and {} {}", other.0, other.2));
                self.known(&route).doubt = Doubt::Nothing;
                continue;
            }
            let known = self.known(&route);
            if known.doubt == Doubt::Version && status == 404 {
                report.violation(format!("Route {route} is gone and no client deleted it: {known:?}"));
            } else if status == 200 && !version.is_some_and(|found| (known.acknowledged..=known.sent).contains(&found))
            {
                report.violation(format!("Route {route} has version {version:?}: {known:?}"));
            }
            let object: Value = serde_json::from_str(&body).unwrap_or_default();
            known.uid = object["metadata"]["uid"].as_str().filter(|_| status == 200).map(str::to_owned);
            known.acknowledged = version.filter(|_| status == 200).unwrap_or(known.acknowledged);
            // Which of its moves came last is not known.
            known.target = None;
            known.doubt = Doubt::Nothing;
            if let Some(uid) = known.uid.clone() {
                self.shared.promises.is_there(&route, &uid);
            }
        }
        self.settled += 1;
        self.shared.settled.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of the next write to a Route, which was sent from now on.
    fn sending(&mut self, route: &str) -> u64 {
        let known = self.known(route);
        known.sent += 1;
        known.sent
    }

    /// Notes a write that was rejected, or has no answer. The Route is in doubt in any case.
    fn unacknowledged(&mut self, what: &str, route: &str, status: u16, body: &str, doubt: Doubt) {
        let counts = &self.shared.counts;
        match status {
            // The server does not know, either: it may have happened, or may yet.
            0 | 500.. => counts.doubtful.fetch_add(1, Ordering::Relaxed),
            429 => counts.refused.fetch_add(1, Ordering::Relaxed),
            _ => {
                self.shared.report.violation(format!("{what} of Route {route}: {status} {body}"));
                0
            }
        };
        self.known(route).doubt = doubt;
    }

    fn known(&mut self, route: &str) -> &mut KnownRoute {
        let now = Instant::now();
        let known = self.routes.entry(route.to_owned()).or_insert(KnownRoute {
            uid: None,
            acknowledged: 0,
            sent: 0,
            target: None,
            doubt: Doubt::Nothing,
            changed: now,
        });
        known.changed = now;
        known
    }

    fn server(&mut self) -> Client {
        self.random.pick(&self.servers).clone()
    }
}

/// Returns whether a response matches the known state of a Route.
fn agrees(known: &KnownRoute, status: u16, body: &str) -> Result<(), String> {
    match (&known.uid, status) {
        (None, 404) => Ok(()),
        (Some(_), 200) if version_of(body) == Some(known.acknowledged) => Ok(()),
        _ => Err(format!("{status} {body}")),
    }
}

fn version_of(body: &str) -> Option<u64> {
    let object: Value = serde_json::from_str(body).ok()?;
    object["metadata"]["annotations"][VERSION].as_str()?.parse().ok()
}

pub fn routes_path() -> String {
    format!("/apis/signpost.dev/v1alpha1/namespaces/{NAMESPACE}/routes")
}

fn path(route: &str) -> String {
    format!("{}/{route}", routes_path())
}
