//! A platform on thirteen hosts: three members of etcd, two API servers, two schedulers, three name servers, two instances of a
//! Router with HAProxy, and a resolver, each in a network namespace with its own address.
//!
//! Clients create, move, delete, and read Routes through both API servers while hosts are killed, paused, slowed, or partitioned
//! from others, also in only one direction, one host after another. At all times:
//!
//! - An acknowledged write is visible on every server ([`clients`]).
//! - A watch that continues at the other server sees each event once, in order ([`watcher`]).
//! - No Route is bound twice, and none leaves its Router unless a client moves it ([`bindings`]).
//! - A name that was reported `Resolvable` is answered correctly by every reachable name server ([`observers`]).
//!
//! When all faults are over, the replicas are equal ([`replicas`]).
//!
//! `SIGNPOST_HOSTS_SECONDS=3600 cargo test --features etcd --test hosts -- --nocapture` is the long form: 2,000 Routes and random
//! faults for that time. `SIGNPOST_HOSTS_ROUTES` and `SIGNPOST_HOSTS_SEED` set the number of Routes, and the seed of the faults.

mod bindings;
mod clients;
mod faults;
mod observers;
mod promises;
mod random;
mod replicas;
mod report;
mod scene;
mod watcher;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bindings::Bindings;
use clients::{Clients, RequestTiming};
use faults::{Fault, KINDS, Kind};
use observers::Observers;
use promises::Promises;
use random::Random;
use replicas::bindings_path;
use report::Report;
use scene::Scene;
use signpost_testing::namespace::inside_namespaces;
use watcher::Watcher;

/// The Routes of the short and the long form.
const ROUTES_SHORT: u64 = 200;
const ROUTES_LONG: u64 = 2_000;
/// The duration of a fault of the short form, and the maximum of the long form. The Lease of an instance is valid for 15 seconds.
const FAULT_SHORT: Duration = Duration::from_secs(3);
const FAULT_LONG_SECONDS: usize = 25;
const PACE_SHORT: RequestTiming = RequestTiming { pause: Duration::from_millis(40), grace: Duration::from_secs(10) };
const PACE_LONG: RequestTiming = RequestTiming { pause: Duration::from_millis(100), grace: Duration::from_secs(60) };

#[test]
fn replicas_stay_correct_while_hosts_fail() {
    if !inside_namespaces("replicas_stay_correct_while_hosts_fail") {
        return;
    }
    let length = variable("SIGNPOST_HOSTS_SECONDS").map(Duration::from_secs);
    let routes = variable("SIGNPOST_HOSTS_ROUTES").unwrap_or(if length.is_some() { ROUTES_LONG } else { ROUTES_SHORT });
    let seed = variable("SIGNPOST_HOSTS_SEED").unwrap_or(u64::from(std::process::id()) ^ now());
    let report = Arc::new(Report::new());
    report.event(&format!("seed {seed}, {routes} Routes"));
    let mut scene = Scene::start();
    report.event("all hosts are ready");

    let promises = Arc::new(Promises::default());
    let live = Arc::clone(&promises);
    let is_live = move |kind: &str, route: &serde_json::Value| {
        if kind != "DELETED" {
            live.observe(route);
        }
        Ok(())
    };
    let of_routes = Watcher::start(&scene, clients::routes_path(), &report, Box::new(is_live));
    let mut bindings = Bindings::new(&promises);
    let is_bound = move |kind: &str, binding: &serde_json::Value| bindings.observe(kind, binding);
    let of_bindings = Watcher::start(&scene, bindings_path(), &report, Box::new(is_bound));
    let observers = Observers::start(&scene, &promises, &report);
    let pace = if length.is_some() { PACE_LONG } else { PACE_SHORT };
    let clients = Clients::start(&scene, &promises, &report, seed, routes as usize, pace);
    clients.wait_filled();
    report.event("all Routes are created");
    report.check(seed);

    let mut random = Random::new(seed, 0);
    let begun = Instant::now();
    let mut count = 0;
    loop {
        let fault = match length {
            None if count == 0 => Fault::of(&scene, &mut random, Kind::Kill, scene.etcd_leader(), FAULT_SHORT),
            None if count > KINDS.len() => break,
            None => Fault::draw(&scene, &mut random, KINDS[count - 1], FAULT_SHORT),
            Some(length) if begun.elapsed() > length => break,
            Some(_) => {
                let kind = *random.pick(&KINDS);
                let time = Duration::from_secs(1 + random.below(FAULT_LONG_SECONDS) as u64);
                Fault::draw(&scene, &mut random, kind, time)
            }
        };
        report.event(&fault.to_string());
        let healed = fault.happen(&mut scene, &observers);
        clients.settle();
        count += 1;
        report.event(&format!("all is ready {:.1?} after the end of it", healed.elapsed()));
        report.check(seed);
    }

    let counts = clients.counts();
    let known = clients.finish();
    let ended = Instant::now();
    let watchers = [(clients::routes_path(), &of_routes), (bindings_path(), &of_bindings)];
    let live =
        replicas::are_equal(&scene, &known, &promises, &watchers.each_ref().map(|(path, watcher)| (&**path, *watcher)));
    report.check(seed);
    report.event(&format!("{live} Routes are equal everywhere {:.1?} after the last write", ended.elapsed()));
    let count_of = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    report.event(&format!(
        "{count} faults in {:.0?}; {} creations, {} moves and {} deletions acknowledged, {} writes in doubt, {} refused, {} reads",
        begun.elapsed(),
        count_of(&counts.created),
        count_of(&counts.moved),
        count_of(&counts.deleted),
        count_of(&counts.doubtful),
        count_of(&counts.refused),
        count_of(&counts.read),
    ));
    let (answers, failures) = observers.counts();
    let [(events, switches), (more_events, more_switches)] = [of_routes.counts(), of_bindings.counts()];
    report.event(&format!(
        "{answers} answers as promised, {failures} queries without one; {} events in {} watches",
        events + more_events,
        switches + more_switches + 2,
    ));
}

/// Returns the number in a variable.
fn variable(name: &str) -> Option<u64> {
    let value = std::env::var(name).ok()?;
    Some(value.parse().unwrap_or_else(|_| panic!("{name} is not a number: {value}")))
}

fn now() -> u64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("it is later");
    u64::from(since.subsec_nanos())
}
