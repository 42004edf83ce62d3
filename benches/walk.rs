//! The object walk, end to end: a Route is created through the API over TLS, and its alias is asked for by UDP until the
//! name server answers it.
//!
//! `cargo bench --bench walk` starts the real program on an embedded store in a temporary directory and prints
//!
//! - how long after its acknowledgement a Route's name is answered on an idle system (p50, p99),
//! - how many Routes a second are created, scheduled and published, durably, with many clients and with as many Routes
//!   there already and at rest as `SIGNPOST_BENCH_ROUTES` says (default 20,000; the bar is meant for 100,000); and how many if
//!   each has also been proven, and its status says so,
//! - the resident memory at the end.
//!
//! With `SIGNPOST_BENCH_WAITING=N` it shows something else: what other people notice while N Routes that no Router could take
//! are placed on one that is added. Before and meanwhile it measures how long after its acknowledgement another Route is
//! answered, and how long the API takes to answer a GET.
//!
//! The floor beside it is the same machine's fsync: each Route is at least two durable commits.

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use kube::api::{Api, PostParams};
use signpost_api::v1alpha1::route::Route;
use signpost_api::v1alpha1::router::Router;
use signpost_testing::dns::{Asker, RecordType};
use signpost_testing::{DataDir, Ports, Scrape, Server};

const DOMAIN: &str = "bench.example";
const CLIENTS: usize = 64;
const IDLE_SAMPLES: usize = 300;
/// Between two samples: longer than the ledger's least time between two versions of a zone, so that each finds it idle.
const IDLE_PAUSE: Duration = Duration::from_millis(50);

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(run());
}

async fn run() {
    let data = DataDir::new();
    let ports = Ports::free();
    let own = ["--domain", DOMAIN, "--data-dir", data.path()];
    let limits = ["--namespace-routes", "1000000", "--namespace-route-bytes", "16Gi"];
    let server = Server::start(ports, &[&own[..], &limits].concat());
    let (dns, admin) = (ports.dns, ports.admin);
    let kubeconfig = data.join("kubeconfig");
    let client =
        signpost_control::client::from_kubeconfig(&kubeconfig, Duration::from_secs(60)).await.expect("a client");
    let routers: Api<Router> = Api::all(client.clone());
    for shard in 1..=4 {
        routers.create(&PostParams::default(), &router(shard, "NotIn")).await.expect("created");
    }
    let routes: Api<Route> = Api::namespaced(client.clone(), "default");
    let number = |variable| std::env::var(variable).ok().and_then(|text: String| text.parse::<usize>().ok());
    if let Some(waiting) = number("SIGNPOST_BENCH_WAITING") {
        return added_router(waiting, &routes, &routers, dns, admin).await;
    }

    println!(
        "fsync floor: {:.2} ms a durable write of 4 KiB (median of 50)",
        fsync_floor(&data.join("floor")).as_secs_f64() * 1e3
    );
    let mut samples = Vec::with_capacity(IDLE_SAMPLES);
    for number in 0..IDLE_SAMPLES {
        routes.create(&PostParams::default(), &route("idle", number)).await.expect("created");
        let acknowledged = Instant::now();
        wait_until_live(dns, &alias("idle", number));
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
    all_proven(admin, IDLE_SAMPLES + already).await;
    println!("proven at {:.0} routes/s, all told", already as f64 / began.elapsed().as_secs_f64());
    let count = 10_000;
    let began = Instant::now();
    create_many(&routes, "more", count, &serde_json::Value::Null).await;
    for number in (0..count).step_by(97).chain([count - 1]) {
        wait_until_live(dns, &alias("more", number));
    }
    let published = began.elapsed();
    all_proven(admin, IDLE_SAMPLES + already + count).await;
    println!(
        "created, scheduled and published, durable, {already} there already: {:.0} routes/s (bar 2000); and proven: {:.0}",
        count as f64 / published.as_secs_f64(),
        count as f64 / began.elapsed().as_secs_f64()
    );
    println!(
        "resident memory with {} routes: {} MiB (bar 500 at 100,000)",
        already + count + IDLE_SAMPLES,
        server.resident_kib() >> 10
    );
}

/// Waits until so many Routes were found to be resolvable since the start, and told so; a thousandth may have been overlooked.
async fn all_proven(admin: SocketAddr, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(1800);
    let proven = || Scrape::of(admin).sum("signpost_route_create_to_resolvable_seconds_count", &[]);
    while proven() < count as f64 * 0.999 {
        assert!(Instant::now() < deadline, "{} of {count} Routes are proven", proven());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Fills the platform with Routes that wait, and adds the Router that takes them.
async fn added_router(waiting: usize, routes: &Api<Route>, routers: &Api<Router>, dns: SocketAddr, admin: SocketAddr) {
    let rest = async |all_rest: &dyn Fn(&Scrape) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(1800);
        while !all_rest(&Scrape::fetch(admin)) {
            assert!(Instant::now() < deadline, "the Routes do not come to rest");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let place = |metrics: &Scrape, place| metrics.sum("signpost_scheduler_waiting_routes", &[("place", place)]);
    create_many(routes, "gold", waiting, &serde_json::json!({"tier": "gold"})).await;
    // All have been told why they wait, and the writes of that are over.
    rest(&|metrics| {
        place(metrics, "unschedulable") >= waiting as f64
            && metrics.sum("signpost_scheduler_status_writes_total", &[]) >= waiting as f64
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = others("before", routes, dns, &|samples, _| samples < 200, admin).await;
    println!("{waiting} Routes wait, others before: {before}");
    routers.create(&PostParams::default(), &router(5, "In")).await.expect("created");
    let added = Instant::now();
    let still_wait = |_, metrics: &Scrape| place(metrics, "unschedulable") + place(metrics, "active") > 0.0;
    let during = others("during", routes, dns, &still_wait, admin).await;
    let rate = waiting as f64 / added.elapsed().as_secs_f64();
    println!("{waiting} Routes placed at {rate:.0} a second, others meanwhile: {during}");
}

/// Creates other Routes one after the other, and reads, for as long as `more` says; tells of what that took.
async fn others(
    prefix: &str,
    routes: &Api<Route>,
    dns: SocketAddr,
    more: &dyn Fn(usize, &Scrape) -> bool,
    admin: SocketAddr,
) -> String {
    let (mut creates, mut answers, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    while more(creates.len(), &Scrape::fetch(admin)) {
        for _ in 0..10 {
            let number = creates.len();
            let begun = Instant::now();
            routes.create(&PostParams::default(), &route(prefix, number)).await.expect("created");
            creates.push(begun.elapsed());
            let acknowledged = Instant::now();
            wait_until_live(dns, &alias(prefix, number));
            answers.push(acknowledged.elapsed());
            for _ in 0..5 {
                let begun = Instant::now();
                routes.get(&format!("{prefix}-{number}")).await.expect("it is there");
                reads.push(begun.elapsed());
            }
            tokio::time::sleep(IDLE_PAUSE).await;
        }
    }
    let told = |samples: &mut Vec<Duration>| {
        samples.sort();
        let at = |hundredth: usize| samples[samples.len() * hundredth / 100].as_secs_f64() * 1e3;
        format!("p50 {:.2} ms, p99 {:.2} ms", at(50), at(99))
    };
    let count = creates.len();
    format!(
        "create acknowledged -> answered {}; POST {}; GET {} ({count} Routes)",
        told(&mut answers),
        told(&mut creates),
        told(&mut reads)
    )
}

/// A Router that takes Routes whose tier is gold (`In`), or all others (`NotIn`).
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

/// Waits until the name server answers `name` with an alias.
fn wait_until_live(dns: SocketAddr, name: &str) {
    let mut asker = Asker::new(dns);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !asker.ask(name, RecordType::CNAME, Duration::from_millis(200)).is_some_and(|answer| answer.is_live()) {
        assert!(Instant::now() < deadline, "{name} is never answered");
        std::thread::sleep(Duration::from_micros(100));
    }
}

fn fsync_floor(path: &Path) -> Duration {
    let mut file = std::fs::File::create(path).expect("a file");
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
