//! Many name servers over one API server, and a new one that starts, on both stores.
//!
//! `cargo bench --bench fleet` starts the real program on a file store and then, with `--features etcd`, on a single etcd member.
//! It creates `SIGNPOST_BENCH_ROUTERS` Routers (default 1,000) and `SIGNPOST_BENCH_ROUTES` Routes (default 100,000), and prints
//!
//! - the time from the start of a new name server's process until it answers for the newest Route (target 3 s), and its memory;
//! - with `SIGNPOST_BENCH_SERVERS` name servers that watch (default 200): the time from a Route's creation until the last of them
//!   has its RouteBinding, the bytes that each receives per Route, the CPU time of the API server for it, and the number of
//!   watches that the API server has at etcd. These name servers are connections of this process with the kubeconfig of a name
//!   server;
//! - the time until a Route's name is answered with all of them connected;
//! - the memory of the API server.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::{AsyncBufReadExt as _, StreamExt, stream};
use kube::api::{Api, PostParams};
use signpost_testing::dns::{Asker, RecordType};
use signpost_testing::{DataDir, Ports, Process, Server};
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::router::Router;

const DOMAIN: &str = "bench.example";
const CLIENTS: usize = 64;
/// Routers are made by administrators, a few at a time.
const CLIENTS_OF_ROUTERS: usize = 4;
/// Routes that are created one at a time while the fleet watches.
const SAMPLES: usize = 100;
const PAUSE: Duration = Duration::from_millis(50);
/// The kinds that a name server watches.
const WATCHED: [&str; 4] = ["routers", "routebindings", "zones", "deletionholds"];
const PATIENCE: Duration = Duration::from_secs(3_600);

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    println!("store: file");
    runtime.block_on(run(&[], &|| None));
    #[cfg(feature = "etcd")]
    {
        println!("store: etcd");
        let cluster = signpost_testing::etcd::Cluster::start(1, &["--quota-backend-bytes", "8589934592"]);
        let endpoints = cluster.endpoints();
        runtime.block_on(run(&["--store", "etcd", "--etcd-endpoints", &endpoints[0]], &|| Some(cluster.watches(0))));
    }
}

async fn run(store: &[&str], watches: &dyn Fn() -> Option<u64>) {
    let (data, fleet) = (DataDir::new(), number("SIGNPOST_BENCH_SERVERS", 200));
    let own =
        ["--domain", DOMAIN, "--data-dir", data.path(), "--roles", "api,scheduler,admin", "--routers-runtime", "off"];
    let roomy = ["--namespace-routes", "10000000", "--namespace-route-bytes", "64Gi", "--verify-names", "false"];
    let api = Server::start(Ports::free(), &[&own[..], &roomy, store].concat());
    let admin = connect(&data.join("kubeconfig")).await;
    let routes: Api<Route> = Api::namespaced(admin.clone(), "default");
    fill(&Api::all(admin.clone()), &routes).await;
    println!("memory of the API server: {} MiB, at most {}", api.resident_kib() / 1024, api.resident_peak_kib() / 1024);

    at_rest(&api).await;
    let kubeconfig = data.join("name-server.kubeconfig");
    let (began, cpu) = (Instant::now(), api.cpu());
    let state = DataDir::new();
    let ports = Ports::free();
    let own = ["--domain", DOMAIN, "--roles", "dns,admin", "--data-dir", state.path(), "--kubeconfig"];
    let name_server = Server::spawn(ports, &[&own[..], &[kubeconfig.to_str().expect("UTF-8")]].concat());
    let mut asker = Asker::new(ports.dns);
    let last = number("SIGNPOST_BENCH_ROUTES", 100_000) - 1;
    wait_for(&mut asker, &alias("fill", last));
    println!(
        "first sync of a name server: {:.2} s (bar 3), {:.2} s of its processor, {:.2} s of the API server's, {} MiB, at most {}",
        began.elapsed().as_secs_f64(),
        name_server.cpu().as_secs_f64(),
        (api.cpu() - cpu).as_secs_f64(),
        name_server.resident_kib() / 1024,
        name_server.resident_peak_kib() / 1024
    );
    let alone = answered(&routes, &mut asker, "alone").await;
    println!("create acknowledged -> answered, one name server: {alone}");

    let seen = Arc::new(Fleet::default());
    for _ in 0..fleet {
        watch_all(&kubeconfig, &seen).await;
    }
    let (bytes, cpu) = (seen.bytes.load(Ordering::Relaxed), api.cpu());
    let mut last_seen = Vec::new();
    for sample in 0..SAMPLES {
        let before = seen.bindings.load(Ordering::Relaxed);
        routes.create(&PostParams::default(), &route("fleet", sample)).await.expect("created");
        let created = Instant::now();
        let deadline = created + Duration::from_secs(60);
        while seen.bindings.load(Ordering::Relaxed) < before + fleet as u64 {
            assert!(Instant::now() < deadline, "a watch has no RouteBinding");
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        last_seen.push(created.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    let (bytes, cpu) = (seen.bytes.load(Ordering::Relaxed) - bytes, api.cpu() - cpu);
    println!(
        "create acknowledged -> the last of {fleet} watches has the RouteBinding: {}",
        percentiles(&mut last_seen)
    );
    println!(
        "for one Route: {} bytes to each name server, {:.2} ms of the API server's processor, {:.1} us for each name server",
        bytes / (fleet * SAMPLES) as u64,
        cpu.as_secs_f64() * 1e3 / SAMPLES as f64,
        cpu.as_secs_f64() * 1e6 / (SAMPLES * fleet) as f64
    );
    if let Some(watches) = watches() {
        println!("watches at etcd: {watches}");
    }
    let beside = answered(&routes, &mut asker, "watched").await;
    println!("create acknowledged -> answered, {fleet} name servers: {beside}");
    println!("memory of the API server: {} MiB, at most {}", api.resident_kib() / 1024, api.resident_peak_kib() / 1024);
    seen.stop.cancel();
}

/// Creates the Routers and Routes of the platform.
async fn fill(routers: &Api<Router>, routes: &Api<Route>) {
    let (shards, count) = (number("SIGNPOST_BENCH_ROUTERS", 1_000), number("SIGNPOST_BENCH_ROUTES", 100_000));
    stream::iter(0..shards)
        .for_each_concurrent(CLIENTS_OF_ROUTERS, |shard| async move {
            routers.create(&PostParams::default(), &router(shard)).await.expect("created");
        })
        .await;
    let began = Instant::now();
    stream::iter(0..count)
        .for_each_concurrent(CLIENTS, |number| async move {
            routes.create(&PostParams::default(), &route("fill", number)).await.expect("created");
        })
        .await;
    let created = began.elapsed();
    let deadline = Instant::now() + PATIENCE;
    let is_bound = |route: &Route| route.status.as_ref().is_some_and(|status| status.dns.is_some());
    while !is_bound(&routes.get(&format!("fill-{}", count - 1)).await.expect("it is there")) {
        assert!(Instant::now() < deadline, "the last Route is not bound");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let rate = |since: Duration| count as f64 / since.as_secs_f64();
    println!("{shards} Routers, {count} Routes: {:.0} created/s, {:.0} bound/s", rate(created), rate(began.elapsed()));
}

/// Waits until the process has nothing left to do.
async fn at_rest(process: &Process) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let before = process.cpu();
        tokio::time::sleep(Duration::from_secs(3)).await;
        if process.cpu() - before < Duration::from_millis(300) {
            return;
        }
        assert!(Instant::now() < deadline, "it does not come to rest");
    }
}

/// The events that the watches of the fleet have received.
#[derive(Default)]
struct Fleet {
    bytes: AtomicU64,
    bindings: AtomicU64,
    stop: tokio_util::sync::CancellationToken,
}

/// Watches, from now on, what a name server watches, over a connection of its own.
async fn watch_all(kubeconfig: &Path, fleet: &Arc<Fleet>) {
    let client = connect(kubeconfig).await;
    for plural in WATCHED {
        let path = format!("/apis/signpost.dev/v1alpha1/{plural}");
        let list = http::Request::get(format!("{path}?limit=1")).body(Vec::new()).expect("a request");
        let list: serde_json::Value = client.request(list).await.expect("a list");
        let version = list["metadata"]["resourceVersion"].as_str().expect("a version");
        let watch = format!("{path}?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=3600");
        let watch = http::Request::get(watch).body(Vec::new()).expect("a request");
        let events = client.request_stream(watch).await.expect("a watch");
        let (fleet, is_bindings) = (Arc::clone(fleet), plural == "routebindings");
        tokio::spawn(async move {
            let mut lines = Box::pin(events).lines();
            while let Some(Some(Ok(line))) = fleet.stop.run_until_cancelled(lines.next()).await {
                fleet.bytes.fetch_add(line.len() as u64 + 1, Ordering::Relaxed);
                let is_added = is_bindings && line.contains("\"ADDED\"");
                fleet.bindings.fetch_add(u64::from(is_added), Ordering::Relaxed);
            }
        });
    }
}

/// Measures the time from the acknowledgement of some Routes until their names are answered.
async fn answered(routes: &Api<Route>, asker: &mut Asker, prefix: &str) -> String {
    let mut samples = Vec::new();
    for sample in 0..SAMPLES {
        routes.create(&PostParams::default(), &route(prefix, sample)).await.expect("created");
        let acknowledged = Instant::now();
        wait_for(asker, &alias(prefix, sample));
        samples.push(acknowledged.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    percentiles(&mut samples)
}

fn percentiles(samples: &mut [Duration]) -> String {
    samples.sort();
    let at = |hundredth: usize| samples[samples.len() * hundredth / 100].as_secs_f64() * 1e3;
    format!("p50 {:.1} ms, p99 {:.1} ms, {} samples", at(50), at(99), samples.len())
}

fn wait_for(asker: &mut Asker, name: &str) {
    let deadline = Instant::now() + PATIENCE;
    while !asker.ask(name, RecordType::CNAME, Duration::from_millis(200)).is_some_and(|answer| answer.is_live()) {
        assert!(Instant::now() < deadline, "{name} is never answered");
        std::thread::sleep(Duration::from_micros(200));
    }
}

async fn connect(kubeconfig: &Path) -> kube::Client {
    let servers = signpost_control::client::failover::Servers::default();
    let client = signpost_control::client::from_kubeconfig(kubeconfig, Duration::from_secs(60), &servers).await;
    client.expect("a kubeconfig of the API server")
}

fn alias(prefix: &str, number: usize) -> String {
    format!("default-{prefix}-{number}.routes.{DOMAIN}")
}

fn router(shard: usize) -> Router {
    object(serde_json::json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": format!("shard{shard}")},
        "spec": {"addresses": [{"ip": format!("10.{}.{}.1", shard / 256, shard % 256)}]},
    }))
}

fn route(prefix: &str, number: usize) -> Route {
    object(serde_json::json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
        "metadata": {"name": format!("{prefix}-{number}")}, "spec": {"to": {"name": "application"}},
    }))
}

fn object<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("an object of this kind")
}
