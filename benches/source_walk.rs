//! The walk of HTTPRoutes to answers, end to end: the real program on an embedded store publishes the Gateways of a simulated cluster.
//!
//! `cargo bench --bench source_walk` prints, for 10,000 HTTPRoutes on 20 Gateways,
//!
//! - the time from the start of the program until every alias is answered (bar 30 s), and until all are verified,
//! - the time from one new HTTPRoute until its host is answered (p50, bar 20 ms; p99),
//! - the resident memory of the program before the cluster has objects, and at the end.
//!
//! `SIGNPOST_BENCH_SCALE=0.01` makes everything a hundredth of that.

#[allow(dead_code, reason = "the scenarios of the simulation use the rest")]
#[path = "../crates/control/tests/simulation/scenarios/cluster.rs"]
mod cluster;

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::Request;
use axum::response::IntoResponse as _;
use cluster::Cluster;
use http::StatusCode;
use kube::api::{Api, ListParams};
use serde_json::{Value, json};
use signpost_control::sources::inventory::Kind;
use signpost_testing::dns::{Asker, RecordType};
use signpost_testing::{DataDir, Ports, Scrape, Server};
use signpost_types::v1alpha1::route::Route;

const DOMAIN: &str = "bench.example";
const GATEWAYS: usize = 20;
/// Changes that are timed.
const SAMPLES: usize = 200;
/// The pause between two samples: longer than the minimum time between two versions of a zone, so that each sample finds it idle.
const PAUSE: Duration = Duration::from_millis(50);

fn main() {
    let scale = std::env::var("SIGNPOST_BENCH_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1.0_f64);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(run((10_000.0 * scale) as usize));
}

async fn run(routes: usize) {
    let (data, cluster) = (DataDir::new(), Cluster::new());
    let kubeconfig = data.kubeconfig(serve(cluster.clone()).await);
    let arguments = [
        "--data-dir",
        data.path(),
        "--domain",
        DOMAIN,
        "--sources-gateway",
        "publish",
        "--sources-kubeconfig",
        &kubeconfig,
        "--namespace-routes",
        "1000000",
        "--namespace-route-bytes",
        "16Gi",
    ];
    let ports = Ports::free();
    let server = Server::start(ports, &arguments);
    println!("resident memory without objects: {} MiB", server.resident_kib() / 1024);
    let servers = signpost_control::client::failover::Servers::default();
    let own = data.join("kubeconfig");
    let client = signpost_control::client::from_kubeconfig(&own, Duration::from_secs(60), &servers).await;
    let api: Api<Route> = Api::all(client.expect("a kubeconfig of the API server"));
    let mut asker = Asker::new(ports.dns);

    let class = json!({"metadata": {"name": "envoy"}, "spec": {"controllerName": "example.com/envoy"},
        "status": {"conditions": [{"type": "Accepted", "status": "True"}]}});
    let began = Instant::now();
    (0..routes).for_each(|number| cluster.put(Kind::HTTPRoute, route(number, &host(number))));
    (0..GATEWAYS).for_each(|number| cluster.put(Kind::Gateway, gateway(number)));
    cluster.put(Kind::GatewayClass, class);
    let aliases = loop {
        let list = api.list(&ListParams::default()).await.expect("a list");
        let aliases = list.items.iter().filter_map(|route| route.status.as_ref()?.canonical_name.clone());
        let aliases: Vec<String> = aliases.collect();
        if aliases.len() == routes {
            break aliases;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    };
    aliases.iter().for_each(|alias| wait_for(&mut asker, alias));
    println!("{routes} HTTPRoutes on {GATEWAYS} Gateways, all aliases answered: {:?} (bar 30 s)", began.elapsed());
    let verified = || Scrape::of(ports.admin).sum("signpost_route_create_to_resolvable_seconds_count", &[]);
    while verified() < routes as f64 * 0.999 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    println!("all verified: {:?}", began.elapsed());

    let mut times: Vec<Duration> = Vec::with_capacity(SAMPLES);
    for sample in 0..SAMPLES {
        // In no shard, so that the name does not exist before.
        let host = format!("own{sample}.{DOMAIN}");
        let began = Instant::now();
        cluster.put(Kind::HTTPRoute, route(routes + sample, &host));
        wait_for(&mut asker, &host);
        times.push(began.elapsed());
        tokio::time::sleep(PAUSE).await;
    }
    times.sort_unstable();
    let (p50, p99) = (times[SAMPLES / 2], times[SAMPLES * 99 / 100]);
    println!("one new HTTPRoute -> its host is answered: p50 {p50:?} (bar 20 ms), p99 {p99:?}, {SAMPLES} samples");
    println!("resident memory with {} HTTPRoutes: {} MiB", routes + SAMPLES, server.resident_kib() / 1024);
}

/// Serves the cluster at a free address.
async fn serve(cluster: Cluster) -> SocketAddr {
    let answer = move |request: Request<Body>| {
        let answer = cluster.answer(&request);
        async move { answer.unwrap_or_else(|_| StatusCode::SERVICE_UNAVAILABLE.into_response()) }
    };
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
    address
}

fn gateway(number: usize) -> Value {
    let all = json!({"namespaces": {"from": "All"}});
    json!({
        "metadata": {"name": format!("g{number}"), "namespace": "infra"},
        "spec": {"gatewayClassName": "envoy", "listeners": [
            {"name": "https", "hostname": format!("*.g{number}.{DOMAIN}"), "port": 443, "protocol": "HTTPS", "allowedRoutes": all},
            {"name": "any", "port": 80, "protocol": "HTTP", "allowedRoutes": all},
        ]},
        "status": {
            "addresses": [{"value": format!("203.0.113.{}", number + 1)}],
            "conditions": [{"type": "Programmed", "status": "True"}],
        },
    })
}

fn host(number: usize) -> String {
    format!("app{number}.g{}.{DOMAIN}", number % GATEWAYS)
}

fn route(number: usize, host: &str) -> Value {
    let parent = json!({"name": format!("g{}", number % GATEWAYS), "namespace": "infra"});
    json!({
        "metadata": {"name": format!("app{number}"), "namespace": format!("team{}", number % 100)},
        "spec": {"hostnames": [host], "parentRefs": [parent]},
        "status": {"parents": [{"parentRef": parent, "controllerName": "example.com/envoy",
            "conditions": [{"type": "Accepted", "status": "True"}]}]},
    })
}

/// Waits until a name is answered.
fn wait_for(asker: &mut Asker, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !asker.ask(name, RecordType::CNAME, Duration::from_millis(200)).is_some_and(|answer| answer.is_live()) {
        assert!(Instant::now() < deadline, "{name} is not answered");
        std::thread::sleep(Duration::from_micros(200));
    }
}
