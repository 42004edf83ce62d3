//! The cost of sources: 10,000 HTTPRoutes on 20 Gateways.
//!
//! Bars (docs/performance.md): all derived within 1 s; one change derived and handed on within a few milliseconds; all written within
//! 30 s, and one change within 20 ms, into an API in memory. `SIGNPOST_BENCH_SCALE=0.01` makes everything a hundredth of that;
//! `SIGNPOST_BENCH_DERIVE=1` writes nothing.

#[allow(dead_code, reason = "the scenarios of the simulation use the rest")]
#[path = "../tests/simulation/scenarios/cluster.rs"]
mod cluster;

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use cluster::{Cluster, settings};
use serde_json::{Value, json};
use signpost_api::identity::Identity;
use signpost_api::identity::USER_CONTROLLER;
use signpost_api::kinds::{PlatformConfig, server_settings};
use signpost_apiserver::ApiServer;
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::tokens::Tokens;
use signpost_apiserver::store::memory::Memory;
use signpost_control::client::reflector::ObjectKey;
use signpost_control::sources::Shared;
use signpost_control::sources::derivation::Derivation;
use signpost_control::sources::inventory::{Inventory, Kind};
use signpost_control::sources::writer::{self, Parts};
use signpost_control::world::{self, World};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

const GATEWAYS: usize = 20;
/// Changes that are timed.
const SAMPLES: usize = 200;

/// The program's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let scale = std::env::var("SIGNPOST_BENCH_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1.0_f64);
    let routes = (10_000.0 * scale) as usize;
    derive(routes);
    if std::env::var_os("SIGNPOST_BENCH_DERIVE").is_none() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
        runtime.block_on(write(routes));
    }
}

fn objects(routes: usize) -> BTreeMap<Kind, Vec<Value>> {
    let class = json!({"metadata": {"name": "envoy"}, "spec": {"controllerName": "example.com/envoy"},
        "status": {"conditions": [{"type": "Accepted", "status": "True"}]}});
    let gateways = (0..GATEWAYS).map(|number| {
        json!({
            "metadata": {"name": format!("g{number}"), "namespace": "infra", "uid": format!("gateway-{number}")},
            "spec": {"gatewayClassName": "envoy", "listeners": [
                {"name": "https", "hostname": format!("*.g{number}.v3.example"), "port": 443, "protocol": "HTTPS",
                 "allowedRoutes": {"namespaces": {"from": "All"}}},
                {"name": "http", "hostname": format!("*.g{number}.v3.example"), "port": 80, "protocol": "HTTP",
                 "allowedRoutes": {"namespaces": {"from": "All"}}},
            ]},
            "status": {"addresses": [{"value": "192.0.2.1"}], "conditions": [{"type": "Programmed", "status": "True"}]},
        })
    });
    BTreeMap::from([
        (Kind::GatewayClass, vec![class]),
        (Kind::Gateway, gateways.collect()),
        (Kind::HTTPRoute, (0..routes).map(|number| route(number, number, 0)).collect()),
    ])
}

/// Returns a Route of this number; each version has another host.
fn route(number: usize, of: usize, version: usize) -> Value {
    let gateway = format!("g{}", of % GATEWAYS);
    let parent = json!({"name": gateway, "namespace": "infra"});
    json!({
        "metadata": {"name": format!("app{number}"), "namespace": format!("team{}", number % 100), "uid": format!("route-{number}")},
        "spec": {"hostnames": [format!("app{number}-{version}.{gateway}.v3.example")], "parentRefs": [parent]},
        "status": {"parents": [{"parentRef": parent, "controllerName": "example.com/envoy",
            "conditions": [{"type": "Accepted", "status": "True"}]}]},
    })
}

fn derive(routes: usize) {
    let prefixes = settings().annotation_prefixes;
    let mut inventory = Inventory::default();
    let began = Instant::now();
    for (kind, objects) in objects(routes) {
        inventory.add(kind, objects, &prefixes);
    }
    println!("{routes} HTTPRoutes made and read: {:?}", began.elapsed());
    let began = Instant::now();
    let mut derivation = Derivation::of(inventory, settings());
    println!("{routes} HTTPRoutes on {GATEWAYS} Gateways derived: {:?}", began.elapsed());
    assert_eq!(derivation.routes().count(), routes);
    let mut times: Vec<Duration> = (0..SAMPLES)
        .map(|sample| {
            let number = sample * 37 % routes;
            let object = Kind::HTTPRoute
                .read(route(number, number, sample + 1), &prefixes)
                .map(Arc::new)
                .map_err(|error| error.to_string());
            let key = ObjectKey::namespaced(&format!("team{}", number % 100), &format!("app{number}"));
            let began = Instant::now();
            let changes = derivation.put(Kind::HTTPRoute, key, object);
            assert_eq!(changes.routes.len(), 2);
            black_box(derivation.derived());
            began.elapsed()
        })
        .collect();
    report("one HTTPRoute changed, and the whole result handed on", &mut times);
}

fn report(what: &str, times: &mut [Duration]) {
    times.sort_unstable();
    println!("{what}: p50 {:?}, p99 {:?}", times[times.len() / 2], times[times.len() * 99 / 100]);
}

async fn write(routes: usize) {
    let stop = CancellationToken::new();
    let authenticator = Arc::new(Authenticator::new(Tokens::parse("").expect("no tokens are tokens")));
    let server =
        ApiServer::new(Arc::new(Memory::new()), server_settings(PlatformConfig::new("v3.example"), authenticator));
    let (running, until) = (server.clone(), stop.clone());
    tokio::spawn(async move { running.run(until).await });
    server.ready().await;
    let router = server.router().layer(axum::Extension(Identity::user(USER_CONTROLLER)));
    let client = signpost_control::client::in_process(router);
    let cluster = Cluster::new();
    for (kind, objects) in objects(routes) {
        objects.into_iter().for_each(|object| cluster.put(kind, object));
    }
    let world = World::new(&client, world::Settings::of_domain("v3.example"));
    let shared = Arc::<Shared>::default();
    let parts = Parts {
        cluster: cluster.client(),
        settings: Arc::new(settings()),
        shared: Arc::clone(&shared),
        instance: "bench".to_owned(),
        share_percent: watch::Sender::new(25).subscribe(),
        metrics: Default::default(),
    };
    let (written, mut changes) = world.routes.read();
    let (began, loops) = (Instant::now(), tokio::spawn(writer::run(client, world, parts, stop.clone())));
    while written.len() < routes {
        changes.next().await;
    }
    println!("{routes} HTTPRoutes read, derived and written: {:?}", began.elapsed());
    let mut times = Vec::new();
    for sample in 0..SAMPLES {
        let number = sample * 37 % routes;
        let began = Instant::now();
        cluster.put(Kind::HTTPRoute, route(number, number, sample + 1));
        let host = format!("app{number}-{}.g{}.v3.example", sample + 1, number % GATEWAYS);
        let is_there = |change: signpost_control::client::reflector::Change<world::RouteInfo>| {
            change.into_parts().0.iter().any(|applied| applied.now.host.as_deref() == Some(&*host))
        };
        while !is_there(changes.next().await) {}
        times.push(began.elapsed());
    }
    report("one HTTPRoute changed, and the Route written", &mut times);
    stop.cancel();
    loops.await.expect("it does not panic");
}
