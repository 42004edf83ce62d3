//! The API server's part of the object walk: creates, lists, the fan-out of watches, and what an object takes in memory.
//!
//! `cargo bench --bench api` runs the server in process over the embedded store in a temporary directory (`TMPDIR` selects the
//! disk), and sends it HTTP requests without a socket. Times are CPU time of the whole process, clients included, so that other
//! work on the machine does not count. `SIGNPOST_BENCH_ROUTES` sets the number of Routes for the memory figure (default 100,000).
//! Each figure is printed with its target. `cargo bench --bench api -- writes` prints only the cost of single writes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::{Body, BodyDataStream};
use futures::{StreamExt, stream};
use http::{Method, Request, StatusCode};
use signpost_api::access::GROUP_SCHEDULERS;
use signpost_api::identity::{GROUP_AUTHENTICATED, GROUP_MASTERS, Identity};
use signpost_api::kinds::quotas::Limits;
use signpost_api::kinds::{PlatformConfig, server_settings};
use signpost_apiserver::ApiServer;
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::tokens::Tokens;
use signpost_apiserver::limits::Amount;

use signpost_apiserver::store::embedded::{Embedded, Options};
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

const CLIENTS: usize = 64;
const LISTED: usize = 10_000;
const LISTS: usize = 9;
const WATCHERS: usize = 1_000;
const WRITES: usize = 50;
/// The number of measured writes of each kind, many at once and one at a time.
const MEASURED: usize = 4_000;
const MEASURED_ALONE: usize = 400;
/// The size of a served Route in octets.
const ROUTE_OCTETS: usize = 1_024;

const JSON: &str = "application/json";
const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io";

/// The allocator of the program.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(run());
}

async fn run() {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let store = Arc::new(Embedded::open(folder.path(), Options::default()).expect("a new store"));
    let authenticator = Arc::new(Authenticator::new(Tokens::parse("").expect("no tokens")));
    let routes = Amount { objects: 1_000_000, bytes: 16 << 30 };
    let limits = Limits { routes, ..Limits::default() };
    let config = PlatformConfig { limits, ..PlatformConfig::new("bench.example") };
    let server = Server(ApiServer::new(store, server_settings(config, authenticator)));
    let stop = CancellationToken::new();
    let running = tokio::spawn({
        let (api, stop) = (server.0.clone(), stop.clone());
        async move { api.run(stop).await }
    });
    server.0.ready().await;
    for namespace in ["few", "many", "walked"] {
        let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{namespace}"}}}}"#);
        server.create("/api/v1/namespaces", body).await;
    }

    let only_writes = std::env::args().any(|argument| argument == "writes");
    writes(&server).await;
    if !only_writes {
        server.fill("few", LISTED).await;
        lists(&server, JSON, "JSON").await;
        lists(&server, TABLE, "a Table").await;
        fan_out(&server).await;
        memory(&server).await;
    }
    stop.cancel();
    running.await.expect("it stops");
}

/// Measures each write in the life of a Route: its create, the claim of its label, its binding (which also writes its status),
/// and the status patch that reports it as live. The writes are durable, one at a time and many at once.
async fn writes(server: &Server) {
    let router = r#"{"apiVersion":"signpost.dev/v1alpha1","kind":"Router","metadata":{"name":"s1"},"spec":{"dns":"s1.bench.example","addresses":[{"ip":"192.0.2.1"}]}}"#;
    server.create("/apis/signpost.dev/v1alpha1/routers", router.to_owned()).await;
    // The first writes include one-time costs.
    let mut first = 0;
    for (count, at_once, name) in
        [(MEASURED, CLIENTS, ""), (MEASURED_ALONE, 1, "one at a time"), (MEASURED, CLIENTS, "64 at once")]
    {
        let mut results = Vec::new();
        for (what, write) in walked::WRITES {
            let (cpu, began) = (processor_time(), Instant::now());
            let sent = stream::iter(first..first + count).map(|number| write(server, number));
            sent.buffer_unordered(at_once).for_each(async |()| ()).await;
            let each = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
            results.push(format!("{what} {:.0} (took {:.0})", each(processor_time() - cpu), each(began.elapsed())));
        }
        first += count;
        if !name.is_empty() {
            println!("durable writes, {name}, µs CPU each: {}", results.join(", "));
        }
    }
}

/// The writes of a Route's way, as the scheduler and the controllers send them.
mod walked {
    use futures::future::{BoxFuture, FutureExt};

    use super::*;

    type Write = for<'a> fn(&'a Server, usize) -> BoxFuture<'a, ()>;

    pub const WRITES: [(&str, Write); 4] = [
        ("create of a Route", |server, number| route(server, number).boxed()),
        ("of its claim", |server, number| claim(server, number).boxed()),
        ("of its binding", |server, number| binding(server, number).boxed()),
        ("patch of its status", |server, number| status(server, number).boxed()),
    ];

    async fn route(server: &Server, number: usize) {
        let path = format!("{}?fieldManager=bench", routes_of("walked"));
        let name = name(number);
        let body = format!(
            r#"{{"apiVersion":"signpost.dev/v1alpha1","kind":"Route","metadata":{{"name":"{name}"}},"spec":{{"to":{{"name":"application"}}}}}}"#
        );
        server.create(&path, body).await;
    }

    async fn claim(server: &Server, number: usize) {
        let (name, uid) = (name(number), server.route(number).await.0);
        let body = format!(
            r#"{{"apiVersion":"signpost.dev/v1alpha1","kind":"NameClaim","metadata":{{"name":"walked-{name}"}},"spec":{{"type":"label","value":"walked-{name}","holder":{{"namespace":"walked","name":"{name}","uid":"{uid}"}},"since":"2026-01-01T00:00:00Z"}}}}"#
        );
        server.create("/apis/signpost.dev/v1alpha1/nameclaims", body).await;
    }

    async fn binding(server: &Server, number: usize) {
        let (name, (uid, version)) = (name(number), server.route(number).await);
        let body = format!(
            r#"{{"apiVersion":"signpost.dev/v1alpha1","kind":"RouteBinding","metadata":{{"name":"{name}","namespace":"walked"}},"spec":{{"routeName":"{name}","routeNamespace":"walked","routeUID":"{uid}","routeResourceVersion":"{version}","router":"s1","dns":"s1.bench.example","label":"walked-{name}","names":[{{"name":"walked-{name}.s1.bench.example","type":"system"}},{{"name":"walked-{name}.routes.bench.example","type":"alias"}}],"strategy":"weighted-rendezvous"}}}}"#
        );
        server.create("/apis/signpost.dev/v1alpha1/namespaces/walked/routebindings", body).await;
    }

    async fn status(server: &Server, number: usize) {
        let (_, version) = server.route(number).await;
        let condition = |kind: &str, reason: &str, message: &str| {
            format!(
                r#"{{"type":"{kind}","status":"True","reason":"{reason}","message":"{message}","lastTransitionTime":"2026-01-01T00:00:00Z","observedGeneration":1}}"#
            )
        };
        let conditions = [
            condition("Admitted", "Admitted", "the Route holds its names"),
            condition("Scheduled", "Scheduled", "the strategy weighted-rendezvous chose Router s1"),
            condition("Published", "Published", "serial 7 of s1.bench.example holds it"),
            condition("Resolvable", "Answered", "every name server was queried and answered correctly"),
        ];
        let conditions = conditions.join(",");
        let body = format!(
            r#"{{"metadata":{{"resourceVersion":"{version}"}},"status":{{"observedGeneration":1,"conditions":[{conditions}]}}}}"#
        );
        let path = format!("{}/{}/status", routes_of("walked"), name(number));
        let request = Request::patch(path).header("content-type", "application/merge-patch+json");
        let response = server.send(request.body(body.into()).expect("a request")).await;
        assert_eq!(response.status(), StatusCode::OK);
    }

    pub fn name(number: usize) -> String {
        format!("route-{number:06}")
    }
}

/// Measures a list of 10,000 Routes.
async fn lists(server: &Server, accept: &str, name: &str) {
    let mut spent = Vec::with_capacity(LISTS);
    let mut octets = 0;
    for _ in 0..LISTS {
        let before = processor_time();
        let mut body = server.open(&routes_of("few"), accept).await;
        octets = 0;
        while let Some(chunk) = body.next().await {
            octets += chunk.expect("it is read").len();
        }
        spent.push(processor_time() - before);
    }
    spent.sort();
    let median = spent[LISTS / 2].as_secs_f64();
    let rate = octets as f64 / median / 1e6;
    println!(
        "list of {LISTED} Routes as {name}: {:.1} ms CPU (bar 50), {:.1} MB, {rate:.0} MB/s",
        median * 1e3,
        octets as f64 / 1e6
    );
}

/// Measures the cost of one write for each of a thousand watchers, including their reads.
async fn fan_out(server: &Server) {
    let path = format!("{}?watch=true&resourceVersion={}", routes_of("many"), server.version().await);
    let mut watchers = Vec::with_capacity(WATCHERS);
    for _ in 0..WATCHERS {
        let mut body = server.open(&path, JSON).await;
        watchers.push(tokio::spawn(async move {
            let mut lines = 0;
            while lines < WRITES {
                let chunk = body.next().await.expect("the watch continues").expect("it is read");
                lines += chunk.iter().filter(|octet| **octet == b'\n').count();
            }
        }));
    }
    let before = processor_time();
    for number in 0..WRITES {
        server.create(&routes_of("many"), route("many", number)).await;
    }
    for watcher in watchers {
        watcher.await.expect("every event comes");
    }
    let delivered = (WRITES * WATCHERS) as f64;
    let each = (processor_time() - before).as_secs_f64() / delivered;
    println!("a write to {WATCHERS} watchers: {:.2} µs CPU for each event delivered (bar 15)", each * 1e6);
}

/// Measures the memory of a stored Route.
async fn memory(server: &Server) {
    let count = std::env::var("SIGNPOST_BENCH_ROUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(100_000);
    // The rings of changes and the store's cache of pages fill up once; what comes after that is the objects' own.
    let warm = 10_000;
    server.fill_from("many", WRITES, warm).await;
    let before = resident_octets();
    let began = Instant::now();
    server.fill_from("many", WRITES + warm, count).await;
    let rate = count as f64 / began.elapsed().as_secs_f64();
    let each = (resident_octets() - before) as f64 / count as f64;
    println!("durable creates by {CLIENTS} clients: {rate:.0} a second (bar 5,000 of the store alone)");
    println!("{count} Routes of {ROUTE_OCTETS} octets: {:.2} KiB resident each (bar 3)", each / 1024.0);
}

struct Server(ApiServer);

impl Server {
    async fn send(&self, request: Request<Body>) -> http::Response<Body> {
        let (mut parts, body) = request.into_parts();
        let groups = vec![GROUP_MASTERS.into(), GROUP_SCHEDULERS.into(), GROUP_AUTHENTICATED.into()];
        parts.extensions.insert(Identity { user: "admin".into(), groups });
        self.0.router().oneshot(Request::from_parts(parts, body)).await.expect("routers do not fail")
    }

    async fn open(&self, path: &str, accept: &str) -> BodyDataStream {
        let request = Request::get(path).header("accept", accept).body(Body::empty()).expect("a request");
        let response = self.send(request).await;
        assert_eq!(response.status(), StatusCode::OK);
        response.into_body().into_data_stream()
    }

    async fn create(&self, path: &str, body: String) {
        let request = Request::builder().method(Method::POST).uri(path).header("content-type", JSON);
        let response = self.send(request.body(body.into()).expect("a request")).await;
        assert_eq!(response.status(), StatusCode::CREATED);
    }

    /// Uid and version of a Route of those that are walked.
    async fn route(&self, number: usize) -> (String, String) {
        let mut body = self.open(&format!("{}/{}", routes_of("walked"), walked::name(number)), JSON).await;
        let mut text = Vec::new();
        while let Some(chunk) = body.next().await {
            text.extend_from_slice(&chunk.expect("it is read"));
        }
        let text = String::from_utf8(text).expect("JSON");
        // A minimal read, so that it costs little compared to the write.
        let of = |key: &str| text.split_once(key).and_then(|(_, rest)| rest.split('"').next()).expect("it is there");
        (of("\"uid\":\"").to_owned(), of("\"resourceVersion\":\"").to_owned())
    }

    async fn fill(&self, namespace: &str, count: usize) {
        self.fill_from(namespace, 0, count).await;
    }

    async fn fill_from(&self, namespace: &str, first: usize, count: usize) {
        let path = routes_of(namespace);
        let create = |number| self.create(&path, route(namespace, number));
        stream::iter(first..first + count).map(create).buffer_unordered(CLIENTS).for_each(async |()| ()).await;
    }

    /// Returns the current version.
    async fn version(&self) -> String {
        let mut body = self.open(&format!("{}?limit=1", routes_of("few")), JSON).await;
        let mut text = Vec::new();
        while let Some(chunk) = body.next().await {
            text.extend_from_slice(&chunk.expect("it is read"));
        }
        let list: serde_json::Value = serde_json::from_slice(&text).expect("JSON");
        list["metadata"]["resourceVersion"].as_str().expect("every list has a version").to_owned()
    }
}

fn routes_of(namespace: &str) -> String {
    format!("/apis/signpost.dev/v1alpha1/namespaces/{namespace}/routes")
}

/// Returns a Route of about [`ROUTE_OCTETS`] in served form.
fn route(namespace: &str, number: usize) -> String {
    // What the server adds: uid, times, versions, managed fields, defaults.
    const ADDED: usize = 590;
    let filler = "x".repeat(ROUTE_OCTETS - ADDED);
    format!(
        r#"{{"apiVersion":"signpost.dev/v1alpha1","kind":"Route","metadata":{{"name":"route-{number:06}","namespace":"{namespace}","annotations":{{"example.test/filler":"{filler}"}}}},"spec":{{"to":{{"name":"application"}}}}}}"#
    )
}

/// Processor time of all threads of this process so far.
fn processor_time() -> Duration {
    let tasks = std::fs::read_dir("/proc/self/task").expect("Linux");
    let spent = |task: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_ascii_whitespace().next()?.parse::<u64>().ok()
    };
    Duration::from_nanos(tasks.filter_map(spent).sum())
}

/// Memory of this process that is in use.
fn resident_octets() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("every process has some");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}
