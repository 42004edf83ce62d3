//! The object walk, end to end: creates a Route through the API over TLS, and queries its alias by UDP until the name server
//! answers.
//!
//! `cargo bench --bench walk` starts the real program on an embedded store in a temporary directory and then, with `--features
//! etcd`, on a single etcd member, and prints
//!
//! - the time from a Route's acknowledgement until its name is answered, on an idle system (p50, p99),
//! - the number of Routes per second that are created, scheduled, and published durably, with many clients and with
//!   `SIGNPOST_BENCH_ROUTES` existing Routes at rest (default 20,000; the target is defined for 100,000); and the number if each
//!   is also verified, with the result in its status,
//! - the resident memory at the end.
//!
//! With `SIGNPOST_BENCH_WAITING=N`, it measures the effect on other users while N unschedulable Routes are bound to one added
//! Router. Before and during that, it measures the time from another Route's acknowledgement until it is answered, and the
//! latency of a GET from the API.
//!
//! The baseline is the same machine's fsync: each Route needs at least two durable commits.

use std::io::Write;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use kube::api::{Api, PostParams};
use signpost_testing::dns::{Asker, RecordType};
use signpost_testing::{DataDir, Ports, Scrape, Server};
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::router::Router;

const DOMAIN: &str = "bench.example";
const CLIENTS: usize = 64;
const IDLE_SAMPLES: usize = 300;
/// The pause between two samples: longer than the minimum time between two versions of a zone, so that each sample finds it idle.
const IDLE_PAUSE: Duration = Duration::from_millis(50);

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    println!("store: file");
    runtime.block_on(run(&[]));
    #[cfg(feature = "etcd")]
    {
        println!("store: etcd");
        let cluster = signpost_testing::etcd::Cluster::start(1, &["--quota-backend-bytes", "8589934592"]);
        let endpoints = cluster.endpoints();
        runtime.block_on(run(&["--store", "etcd", "--etcd-endpoints", &endpoints[0]]));
    }
}

async fn run(store: &[&str]) {
    let (data, ports) = (DataDir::new(), Ports::free());
    let limits = ["--namespace-routes", "1000000", "--namespace-route-bytes", "16Gi"];
    let own = ["--domain", DOMAIN, "--data-dir", data.path()];
    let server = Server::start(ports, &[&own[..], &limits, store].concat());
    let servers = signpost_control::client::failover::Servers::default();
    let kubeconfig = data.join("kubeconfig");
    let client = signpost_control::client::from_kubeconfig(&kubeconfig, Duration::from_secs(60), &servers).await;
    let client = client.expect("a kubeconfig of the API server");
    let routers: Api<Router> = Api::all(client.clone());
    for shard in 1..=4 {
        routers.create(&PostParams::default(), &router(shard, "NotIn")).await.expect("created");
    }
    let routes: Api<Route> = Api::namespaced(client.clone(), "default");
    let (mut asker, admin) = (Asker::new(ports.dns), ports.admin);
    let number = |variable| std::env::var(variable).ok().and_then(|text: String| text.parse::<usize>().ok());
    if let Some(waiting) = number("SIGNPOST_BENCH_WAITING") {
        return added_router(waiting, &routes, &routers, &mut asker, admin).await;
    }

    println!("fsync floor: {:.2} ms a durable write of 4 KiB (median of 50)", fsync_floor(&data).as_secs_f64() * 1e3);
    let mut samples = Vec::with_capacity(IDLE_SAMPLES);
    for number in 0..IDLE_SAMPLES {
        routes.create(&PostParams::default(), &route("idle", number)).await.expect("created");
        let acknowledged = Instant::now();
        wait_for(&mut asker, &alias("idle", number));
        samples.push(acknowledged.elapsed());
        tokio::time::sleep(IDLE_PAUSE).await;
    }
    samples.sort();
    println!(
        "route create acknowledged -> name answered, idle: p50 {:.2} ms (bar 10), p99 {:.2} ms (bar 50), {} samples",
        samples[IDLE_SAMPLES / 2].as_secs_f64() * 1e3,
        samples[IDLE_SAMPLES * 99 / 100].as_secs_f64() * 1e3,
        IDLE_SAMPLES
    );

    let already = number("SIGNPOST_BENCH_ROUTES").unwrap_or(20_000);
    let began = Instant::now();
    let filled = create_many(&routes, "fill", already, &serde_json::Value::Null).await;
    println!("filled with {already} routes: {:.0} created/s acknowledged", already as f64 / filled.as_secs_f64());
    all_verified(admin, IDLE_SAMPLES + already).await;
    println!("verified at {:.0} routes/s in total", already as f64 / began.elapsed().as_secs_f64());
    let count = 10_000;
    let began = Instant::now();
    create_many(&routes, "more", count, &serde_json::Value::Null).await;
    for number in (0..count).step_by(97).chain([count - 1]) {
        wait_for(&mut asker, &alias("more", number));
    }
    let published = began.elapsed();
    all_verified(admin, IDLE_SAMPLES + already + count).await;
    println!(
        "created, scheduled and published, durable, {already} there already: {:.0} routes/s (bar 2000); and verified: {:.0}",
        count as f64 / published.as_secs_f64(),
        count as f64 / began.elapsed().as_secs_f64()
    );
    println!(
        "resident memory with {} routes: {} MiB (bar 700 at 100,000)",
        already + count + IDLE_SAMPLES,
        server.resident_kib() / 1024
    );
}

/// Waits until `count` Routes were reported as resolvable since the start; up to a thousandth can be missing.
async fn all_verified(admin: SocketAddr, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(1800);
    let verified = || Scrape::of(admin).sum("signpost_route_create_to_resolvable_seconds_count", &[]);
    while verified() < count as f64 * 0.999 {
        assert!(Instant::now() < deadline, "{} of {count} Routes are verified", verified());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Fills the platform with Routes that wait, and adds the Router that takes them.
async fn added_router(
    waiting: usize,
    routes: &Api<Route>,
    routers: &Api<Router>,
    asker: &mut Asker,
    admin: SocketAddr,
) {
    let pending = |metrics: &Scrape, queue| metrics.sum("signpost_scheduler_pending_routes", &[("queue", queue)]);
    create_many(routes, "gold", waiting, &serde_json::json!({"tier": "gold"})).await;
    // All Routes have their reason for waiting, and the writes of these are complete.
    let deadline = Instant::now() + Duration::from_secs(1800);
    let is_at_rest = |metrics: &Scrape| {
        let of_routes = [("action", "status_written"), ("kind", "route")];
        let written = metrics.sum("signpost_reconciler_actions_total", &of_routes);
        pending(metrics, "unschedulable").min(written) >= waiting as f64
    };
    while !is_at_rest(&Scrape::of(admin)) {
        assert!(Instant::now() < deadline, "the Routes do not come to rest");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = others("before", routes, asker, &|samples, _| samples < 200, admin).await;
    println!("{waiting} Routes wait, others before: {before}");
    routers.create(&PostParams::default(), &router(5, "In")).await.expect("created");
    let added = Instant::now();
    let still_wait = |_, metrics: &Scrape| pending(metrics, "unschedulable") + pending(metrics, "active") > 0.0;
    let during = others("during", routes, asker, &still_wait, admin).await;
    let rate = waiting as f64 / added.elapsed().as_secs_f64();
    println!("{waiting} Routes placed at {rate:.0} a second, others meanwhile: {during}");
}

/// Creates other Routes one after the other, and reads objects, while `more` returns true; prints the latencies.
async fn others(
    prefix: &str,
    routes: &Api<Route>,
    asker: &mut Asker,
    more: &dyn Fn(usize, &Scrape) -> bool,
    admin: SocketAddr,
) -> String {
    let (mut creates, mut answers, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    while more(creates.len(), &Scrape::of(admin)) {
        for _ in 0..10 {
            let number = creates.len();
            let begun = Instant::now();
            routes.create(&PostParams::default(), &route(prefix, number)).await.expect("created");
            creates.push(begun.elapsed());
            let acknowledged = Instant::now();
            wait_for(asker, &alias(prefix, number));
            answers.push(acknowledged.elapsed());
            for _ in 0..5 {
                let begun = Instant::now();
                routes.get(&format!("{prefix}-{number}")).await.expect("it is there");
                reads.push(begun.elapsed());
            }
            tokio::time::sleep(IDLE_PAUSE).await;
        }
    }
    let percentiles = |samples: &mut Vec<Duration>| {
        samples.sort();
        let at = |hundredth: usize| samples[samples.len() * hundredth / 100].as_secs_f64() * 1e3;
        format!("p50 {:.2} ms, p99 {:.2} ms", at(50), at(99))
    };
    let count = creates.len();
    format!(
        "create acknowledged -> answered {}; POST {}; GET {} ({count} Routes)",
        percentiles(&mut answers),
        percentiles(&mut creates),
        percentiles(&mut reads)
    )
}

/// Returns a Router that takes Routes whose tier is gold (`In`), or all others (`NotIn`).
fn router(shard: usize, operator: &str) -> Router {
    let tier = serde_json::json!({"key": "tier", "operator": operator, "values": ["gold"]});
    object(serde_json::json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": format!("shard{shard}")},
        "spec": {
            "addresses": [{"ip": format!("192.0.2.{shard}")}], "routeSelector": {"matchExpressions": [tier]},
        },
    }))
}

fn object<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("an object of this kind")
}

fn route(prefix: &str, number: usize) -> Route {
    object(serde_json::json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
        "metadata": {"name": format!("{prefix}-{number}")}, "spec": {"to": {"name": "application"}},
    }))
}

fn alias(prefix: &str, number: usize) -> String {
    format!("default-{prefix}-{number}.routes.{DOMAIN}")
}

async fn create_many(routes: &Api<Route>, prefix: &str, count: usize, labels: &serde_json::Value) -> Duration {
    let begin = Instant::now();
    stream::iter(0..count)
        .for_each_concurrent(CLIENTS, |number| async move {
            let mut route = route(prefix, number);
            route.metadata.labels = serde_json::from_value(labels.clone()).expect("labels");
            routes.create(&PostParams::default(), &route).await.expect("created");
        })
        .await;
    begin.elapsed()
}

fn wait_for(asker: &mut Asker, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !asker.ask(name, RecordType::CNAME, Duration::from_millis(200)).is_some_and(|answer| answer.is_live()) {
        assert!(Instant::now() < deadline, "{name} is never answered");
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn fsync_floor(directory: &DataDir) -> Duration {
    let mut file = std::fs::File::create(directory.join("floor")).expect("a file");
    let mut samples: Vec<Duration> = (0..50)
        .map(|_| {
            let begin = Instant::now();
            file.write_all(&[0; 4096]).and_then(|()| file.sync_data()).expect("written");
            begin.elapsed()
        })
        .collect();
    samples.sort();
    samples[25]
}
