//! A scheduling cycle: pop, read the snapshot, filter, score, pick, explain, assume.
//!
//! `cargo bench --bench scheduling` measures it for each strategy, among 1,000 Routers that have 100,000 routes, on one core.
//! The bar is 100 µs. Among the Routers are some that are cordoned, some that select other routes and some above their soft
//! capacity, as on a real platform; another case has only Routers that fit, which costs the strategies most.
//! Last comes what a new Router costs while 100,000 routes wait for one.

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use serde_json::{Value, json};
use signpost_control::client::reflector::ObjectKey;
use signpost_control::client::uid::Uid;
use signpost_control::scheduler::decision::decide;
use signpost_control::scheduler::filter::{PlacementRequest, evaluate};
use signpost_control::scheduler::queue::{BackoffSettings, Queue};
use signpost_control::scheduler::snapshot::Snapshot;
use signpost_control::scheduler::strategy::StrategyName;
use signpost_control::world::router::RouterTarget;
use signpost_control::world::{BindingInfo, NamespaceInfo, RouteInfo};

const ROUTERS: usize = 1_000;
const BINDINGS: usize = 100_000;
const WAITING: usize = 1_000;
const BAR: Duration = Duration::from_micros(100);

fn cycles(criterion: &mut Criterion) {
    let mixed = |number: usize| match number % 10 {
        3 => json!({"state": "cordoned"}),
        5 => json!({"routeSelector": {"matchLabels": {"tier": "gold"}}}),
        7 => json!({"capacity": {"soft": 50}}),
        _ => json!({}),
    };
    let all_fit = |number: usize| json!({"weight": 1 + number % 5});
    for (platform, spec) in [("mixed", &mixed as &dyn Fn(usize) -> Value), ("all fit", &all_fit)] {
        let mut group = criterion.benchmark_group(format!("scheduling cycle, {ROUTERS} Routers, {platform}"));
        for strategy in StrategyName::ALL {
            let mut bench = Bench::new(spec);
            group.bench_function(strategy.as_str(), |bencher| bencher.iter(|| bench.cycle(strategy)));
            let mut samples: Vec<Duration> = (0..2_000).map(|_| timed(|| bench.cycle(strategy))).collect();
            samples.sort();
            let (median, p99) = (samples[1_000], samples[1_980]);
            println!("{platform}, {strategy}: median {median:?}, p99 {p99:?} (bar {BAR:?})");
        }
        group.finish();
    }
}

struct Bench {
    snapshot: Snapshot,
    queue: Queue,
    route: RouteInfo,
    namespace: NamespaceInfo,
}

impl Bench {
    fn new(spec: &dyn Fn(usize) -> Value) -> Self {
        let mut snapshot = Snapshot::default();
        for number in 0..ROUTERS {
            snapshot.set_router(router(number, spec(number)));
        }
        for number in 0..BINDINGS {
            // Uneven, so that scores differ.
            let router = name_of(number * number % 7919 % ROUTERS).into();
            let binding = BindingInfo { router, turn: number as u64 + 1, ..BindingInfo::default() };
            snapshot.bound(&ObjectKey::namespaced("old", &format!("route{number}")), &binding);
        }
        let mut queue = Queue::new(BackoffSettings::default());
        for number in 0..WAITING {
            queue.push(ObjectKey::namespaced("shop", &format!("web{number}")));
        }
        let labels = BTreeMap::from([("app".to_owned(), "web".to_owned())]);
        let route = RouteInfo { uid: Uid::from("u"), labels, ..RouteInfo::default() };
        Bench { snapshot, queue, route, namespace: NamespaceInfo::default() }
    }

    /// One cycle, and the end of it as when the API refuses, so that the next one finds the same.
    fn cycle(&mut self, strategy: StrategyName) {
        let key = self.queue.pop().expect("routes wait");
        let request = PlacementRequest::new(&key, &self.route, &self.namespace);
        let placement = decide(&request, &self.snapshot, strategy.strategy(), None).expect("a Router fits");
        self.snapshot.assume(key.clone(), &placement.router, tokio::time::Instant::now());
        black_box(&placement);
        self.snapshot.forget(&key);
        self.queue.done(&key);
        self.queue.push(key);
    }
}

/// Measures a search of 100,000 waiting routes for those that a new Router can take: how long it holds the scheduler's task
/// at a time, and how long it takes in total.
fn waking(_: &mut Criterion) {
    const WAITING: usize = 100_000;
    /// The number that the scheduler checks in a row.
    const IN_A_ROW: usize = 256;
    let key = |number: usize| ObjectKey::namespaced("shop", &format!("web{}", number * 7919 % WAITING));
    let route = |number: usize| {
        let tier = if number.is_multiple_of(2) { "gold" } else { "silver" };
        let labels = BTreeMap::from([("tier".to_owned(), tier.to_owned())]);
        RouteInfo { labels, ..RouteInfo::default() }
    };
    let routes: HashMap<ObjectKey, Arc<RouteInfo>> =
        (0..WAITING).map(|number| (key(number), Arc::new(route(number)))).collect();
    let mut snapshot = Snapshot::default();
    snapshot.set_router(router(0, json!({"routeSelector": {"matchLabels": {"tier": "gold"}}})));
    let mut queue = Queue::new(BackoffSettings::default());
    (0..WAITING).for_each(|number| queue.push(key(number)));
    while let Some(key) = queue.pop() {
        queue.unschedulable(&key, tokio::time::Instant::now(), 0);
    }
    let (namespace, strategy) = (NamespaceInfo::default(), StrategyName::default().strategy());
    let fits = |key: &ObjectKey| {
        let Some(route) = routes.get(key) else { return false };
        let request = PlacementRequest::new(key, route, &namespace);
        snapshot
            .router("shard0000")
            .is_some_and(|(router, shard)| evaluate(&request, router, shard, Some(strategy)).is_ok())
    };
    let (mut woken, mut slices, mut pass) = (0, Vec::new(), queue.requeue_pass());
    while !pass.is_over() {
        slices.push(timed(|| woken += queue.requeue(&mut pass, IN_A_ROW, fits)));
    }
    let all: Duration = slices.iter().sum();
    slices.sort();
    let (median, p99) = (slices[slices.len() / 2], slices[slices.len() * 99 / 100]);
    println!(
        "{woken} of {WAITING} waiting routes woken in {all:?}; a slice: median {median:?}, p99 {p99:?} (bar 10 ms)"
    );
}

fn timed(work: impl FnOnce()) -> Duration {
    let begun = Instant::now();
    work();
    begun.elapsed()
}

fn name_of(number: usize) -> String {
    format!("shard{number:04}")
}

fn router(number: usize, spec: Value) -> RouterTarget {
    let mut object = json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
        "metadata": {"name": name_of(number), "resourceVersion": (1_000_000 + number).to_string()},
        "spec": {"addresses": [{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}]},
    });
    for (field, value) in spec.as_object().into_iter().flatten() {
        object["spec"][field] = value.clone();
    }
    RouterTarget::read(&serde_json::from_value(object).expect("a Router"), "bench.example", Vec::new())
}

criterion_group!(benches, cycles, waking);
criterion_main!(benches);
