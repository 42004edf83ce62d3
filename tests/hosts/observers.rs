//! Queries for promised names, at each name server and at the resolver, all the time.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::promises::{Promise, Promises};
use crate::report::Report;
use crate::scene::{ANSWER, DOMAIN, NAME_SERVERS, ROUTERS, Scene, serial};
use signpost_testing::dns::{Answer, Asker, RecordType, ResponseCode};

/// The pause between two queries.
const PAUSE: Duration = Duration::from_millis(8);
/// The number of attempts of a query.
const TRIES: usize = 3;

/// The addresses of each Router.
pub type Addresses = BTreeMap<String, BTreeSet<IpAddr>>;

/// One observer for each server.
pub struct Observers {
    servers: Vec<(&'static str, Arc<Shared>)>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    /// Even: queries reach it. Each change counts.
    reach: AtomicU64,
    /// Whether it is a resolver.
    is_resolver: bool,
    answers: AtomicU64,
    /// Queries without a usable answer, from a server that queries do not reach, or a resolver.
    failures: AtomicU64,
    stop: AtomicBool,
}

impl Observers {
    pub fn start(scene: &Scene, promises: &Arc<Promises>, report: &Arc<Report>) -> Observers {
        let name_servers = NAME_SERVERS.iter().copied().zip(scene.name_servers());
        let all = name_servers.chain([("resolver", scene.resolver())]);
        let addresses = addresses(scene);
        let (mut servers, mut threads) = (Vec::new(), Vec::new());
        for (name, server) in all {
            let shared = Arc::new(Shared { is_resolver: name == "resolver", ..Shared::default() });
            servers.push((name, Arc::clone(&shared)));
            let (promises, report, addresses) = (Arc::clone(promises), Arc::clone(report), addresses.clone());
            threads.push(std::thread::spawn(move || shared.observe(name, server, &promises, &report, &addresses)));
        }
        Observers { servers, threads }
    }

    /// Whether queries reach the server on a host, from now on.
    pub fn set_reachable(&self, host: &str, is_reachable: bool) {
        for (_, shared) in self.servers.iter().filter(|(name, _)| *name == host) {
            let reach = shared.reach.load(Ordering::Relaxed);
            shared.reach.store(reach + u64::from(reach.is_multiple_of(2) != is_reachable), Ordering::Relaxed);
        }
    }

    /// Returns the number of answers that were as promised, and of queries without an answer.
    pub fn counts(&self) -> (u64, u64) {
        let sum = |count: fn(&Shared) -> &AtomicU64| {
            self.servers.iter().map(|(_, shared)| count(shared).load(Ordering::Relaxed)).sum()
        };
        (sum(|shared| &shared.answers), sum(|shared| &shared.failures))
    }
}

impl Drop for Observers {
    fn drop(&mut self) {
        self.servers.iter().for_each(|(_, shared)| shared.stop.store(true, Ordering::Relaxed));
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Returns the addresses of all Routers.
pub fn addresses(scene: &Scene) -> Addresses {
    ROUTERS.iter().map(|router| ((*router).to_owned(), scene.addresses(router).into_iter().collect())).collect()
}

/// Returns whether an answer is as promised: addresses of a Router, and of no other one; from a name server also a CNAME that
/// leads there, which aliases and former names are.
pub fn is_as_promised(answer: &Answer, routers: &BTreeSet<String>, addresses: &Addresses) -> bool {
    let is_on = |router: &String, name: &str| name.split_once('.').is_some_and(|(_, zone)| zone == zone_of(router));
    let belongs = |router: &String| match &answer.alias {
        Some(target) if answer.addresses.is_empty() => is_on(router, target),
        _ => !answer.addresses.is_empty() && answer.addresses.is_subset(&addresses[router]),
    };
    answer.rcode == ResponseCode::NoError && routers.iter().any(belongs)
}

/// Returns the zone of a Router.
pub fn zone_of(router: &str) -> String {
    format!("{router}.{DOMAIN}")
}

impl Shared {
    fn observe(&self, name: &str, server: SocketAddr, promises: &Promises, report: &Report, addresses: &Addresses) {
        let mut asker = Asker::new(server);
        let mut last = String::new();
        while !self.stop.load(Ordering::Relaxed) {
            std::thread::sleep(PAUSE);
            let Some(promise) = promises.next(&last) else { continue };
            for owner in [&promise.alias, &promise.system] {
                if let Err(error) = self.query(&mut asker, owner, &promise, promises, addresses) {
                    let serial = serial(server, &format!("routes.{DOMAIN}"));
                    let history = promises.history(&promise.route);
                    let text = format!("{name}, whose serial of aliases is {serial:?}: {owner}: {error}");
                    report.violation(format!("{text}; {promise:?}{history}"));
                }
            }
            last = promise.route;
        }
    }

    /// Sends a query for a name of a promise; an error is an answer that breaks the promise.
    fn query(
        &self,
        asker: &mut Asker,
        owner: &str,
        promise: &Promise,
        promises: &Promises,
        addresses: &Addresses,
    ) -> Result<(), String> {
        let reach = self.reach.load(Ordering::Relaxed);
        let mut answer = None;
        for _ in 0..TRIES {
            answer = asker.ask(owner, RecordType::A, ANSWER);
            if answer.is_some() || !reach.is_multiple_of(2) || self.is_resolver {
                break;
            }
        }
        let was_reachable = reach.is_multiple_of(2) && self.reach.load(Ordering::Relaxed) == reach;
        let holds = promises.holds(promise);
        let Some(answer) = answer.filter(|answer| answer.rcode != ResponseCode::ServFail) else {
            self.failures.fetch_add(1, Ordering::Relaxed);
            let is_broken = was_reachable && !self.is_resolver && holds;
            return if is_broken { Err(String::from("no answer, or SERVFAIL")) } else { Ok(()) };
        };
        // What a resolver remembers is older: it may have seen the name at any Router, or no name.
        let routers = if self.is_resolver { addresses.keys().cloned().collect() } else { promise.routers.clone() };
        let is_complete = !self.is_resolver || !answer.addresses.is_empty();
        if is_complete && is_as_promised(&answer, &routers, addresses) {
            self.answers.fetch_add(1, Ordering::Relaxed);
            return Ok(());
        }
        // A name server that starts refuses queries until it has its zones.
        let is_start = !was_reachable && answer.rcode == ResponseCode::Refused;
        if !holds || is_start || self.is_resolver && !promise.is_first {
            return Ok(());
        }
        Err(format!("{answer:?}"))
    }
}
