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

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use futures::{StreamExt, stream};
use kube::api::{Api, PostParams};
use signpost_api::v1alpha1::route::Route;
use signpost_api::v1alpha1::router::Router;

const DOMAIN: &str = "bench.example";
const CLIENTS: usize = 64;
const IDLE_SAMPLES: usize = 300;
/// The pause between two samples: longer than the minimum time between two versions of a zone, so that each sample finds it idle.
const IDLE_PAUSE: Duration = Duration::from_millis(50);

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

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
    let data = tempfile::tempdir().expect("a temporary directory");
    let [dns, api, admin] = [free(), free(), free()];
    let listen = [("--dns-listen", dns), ("--api-listen", api), ("--admin-listen", admin)];
    let mut command = Command::new(env!("CARGO_BIN_EXE_signpost"));
    command.args(["serve", "--domain", DOMAIN, "--data-dir"]).arg(data.path());
    command.args(["--namespace-routes", "1000000", "--namespace-route-bytes", "16Gi"]).args(store);
    command.args(listen.iter().flat_map(|(flag, address)| [(*flag).to_owned(), address.to_string()]));
    let child =
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the program starts");
    let server = Server(child);
    let client = connect(&data.path().join("kubeconfig")).await;
    let routers: Api<Router> = Api::all(client.clone());
    for shard in 1..=4 {
        create_until_ready(&routers, &router(shard, "NotIn")).await;
    }
    let routes: Api<Route> = Api::namespaced(client.clone(), "default");
    let resolver = Resolver::new(dns);
    let number = |variable| std::env::var(variable).ok().and_then(|text: String| text.parse::<usize>().ok());
    if let Some(waiting) = number("SIGNPOST_BENCH_WAITING") {
        return added_router(waiting, &routes, &routers, &resolver, admin).await;
    }

    println!(
        "fsync floor: {:.2} ms a durable write of 4 KiB (median of 50)",
        fsync_floor(data.path()).as_secs_f64() * 1e3
    );
    let mut samples = Vec::with_capacity(IDLE_SAMPLES);
    for number in 0..IDLE_SAMPLES {
        routes.create(&PostParams::default(), &route("idle", number)).await.expect("created");
        let acknowledged = Instant::now();
        resolver.wait_for(&alias("idle", number));
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
        resolver.wait_for(&alias("more", number));
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
        resident_mib(server.0.id())
    );
}

/// Waits until `count` Routes were reported as resolvable since the start; up to a thousandth can be missing.
async fn all_verified(admin: SocketAddr, count: usize) {
    let deadline = Instant::now() + Duration::from_secs(1800);
    let verified = || Metrics::fetch(admin).value("signpost_route_create_to_resolvable_seconds_count");
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
    resolver: &Resolver,
    admin: SocketAddr,
) {
    let rest = async |all_rest: &dyn Fn(&Metrics) -> bool| {
        let deadline = Instant::now() + Duration::from_secs(1800);
        while !all_rest(&Metrics::fetch(admin)) {
            assert!(Instant::now() < deadline, "the Routes do not come to rest");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    };
    let place = |place| format!("signpost_scheduler_pending_routes{{queue=\"{place}\"}}");
    create_many(routes, "gold", waiting, &serde_json::json!({"tier": "gold"})).await;
    // All Routes have their reason for waiting, and the writes of these are complete.
    rest(&|metrics| {
        metrics.value(&place("unschedulable")) >= waiting as f64
            && metrics.value("signpost_scheduler_status_writes_total") >= waiting as f64
    })
    .await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let before = others("before", routes, resolver, &|samples, _| samples < 200, admin).await;
    println!("{waiting} Routes wait, others before: {before}");
    routers.create(&PostParams::default(), &router(5, "In")).await.expect("created");
    let added = Instant::now();
    let still_wait =
        |_, metrics: &Metrics| metrics.value(&place("unschedulable")) + metrics.value(&place("active")) > 0.0;
    let during = others("during", routes, resolver, &still_wait, admin).await;
    let rate = waiting as f64 / added.elapsed().as_secs_f64();
    println!("{waiting} Routes placed at {rate:.0} a second, others meanwhile: {during}");
}

/// Creates other Routes one after the other, and reads objects, while `more` returns true; prints the latencies.
async fn others(
    prefix: &str,
    routes: &Api<Route>,
    resolver: &Resolver,
    more: &dyn Fn(usize, &Metrics) -> bool,
    admin: SocketAddr,
) -> String {
    let (mut creates, mut answers, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    while more(creates.len(), &Metrics::fetch(admin)) {
        for _ in 0..10 {
            let number = creates.len();
            let begun = Instant::now();
            routes.create(&PostParams::default(), &route(prefix, number)).await.expect("created");
            creates.push(begun.elapsed());
            let acknowledged = Instant::now();
            resolver.wait_for(&alias(prefix, number));
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

/// The numbers that the server shows.
struct Metrics(String);

impl Metrics {
    fn fetch(admin: SocketAddr) -> Self {
        let mut answer = String::new();
        let mut stream = std::net::TcpStream::connect(admin).expect("the server runs");
        write!(stream, "GET /metrics HTTP/1.0\r\nHost: {admin}\r\n\r\n").expect("the server reads");
        stream.read_to_string(&mut answer).expect("the server answers");
        assert!(answer.starts_with("HTTP/1.0 200"), "{answer}");
        Metrics(answer)
    }

    fn value(&self, name: &str) -> f64 {
        let line = self.0.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.and_then(|value| value.trim().parse().ok()).unwrap_or(0.0)
    }
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

async fn connect(kubeconfig: &Path) -> kube::Client {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Ok(client) = signpost_control::client::from_kubeconfig(
            kubeconfig,
            Duration::from_secs(60),
            &signpost_control::client::failover::Servers::default(),
        )
        .await
            && client.apiserver_version().await.is_ok()
        {
            return client;
        }
        assert!(Instant::now() < deadline, "the API does not come up");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn create_until_ready(routers: &Api<Router>, router: &Router) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while let Err(error) = routers.create(&PostParams::default(), router).await {
        assert!(Instant::now() < deadline, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
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

/// A client that queries one server for one name until it exists.
struct Resolver(UdpSocket);

impl Resolver {
    fn new(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback");
        socket.connect(server).expect("loopback");
        socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a timeout");
        Resolver(socket)
    }

    fn wait_for(&self, name: &str) {
        let mut query = vec![0x12, 0x34, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            query.push(label.len() as u8);
            query.extend_from_slice(label.as_bytes());
        }
        query.extend_from_slice(&[0, 0, 5, 0, 1]);
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut answer = [0; 1232];
        loop {
            self.0.send(&query).expect("loopback");
            if let Ok(length) = self.0.recv(&mut answer)
                && length > 12
                && answer[3] & 0x0f == 0
                && answer[7] > 0
            {
                return;
            }
            assert!(Instant::now() < deadline, "{name} is never answered");
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

fn free() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr()).expect("a free port")
}

fn fsync_floor(folder: &Path) -> Duration {
    let mut file = std::fs::File::create(folder.join("floor")).expect("a file");
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

fn resident_mib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("the server runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).expect("Linux reports VmRSS");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("in KiB") / 1024
}
