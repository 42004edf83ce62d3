//! A tenant who wants more than its own names: texts that mean something in a configuration, Services of others, very many Routes.
//!
//! The objects are as an API may have them that does not validate as ours does, so that the agent alone must refuse.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use signpost_agent::resolve::{Limits, Objects, Refused, Resolver};
use signpost_agent::site::{Certificate, Insecure, Site};
use signpost_types::v1alpha1::route::Termination;

use crate::bench::{Bench, application, plain, route, with_tls};
use crate::client::{Identity, get, get_tls};

/// Texts that end a word, a line or a block of a configuration, and begin another.
const INJECTIONS: &[&str] = &[
    "x\n    http-request return status 200 string evil",
    "x; return 200 evil;",
    "x} server { listen 127.0.0.1:1; return 200 evil; }",
    "x {",
    "\"",
    "x\" \"y",
    "'",
    "x # comment",
    "x\\",
    "$host",
    "${PATH}",
    "%[env(PATH)]",
    "x\r\nset server h0/x state maint",
    "x\u{0}y",
    "x\u{1b}[2J",
    "../../etc/passwd",
    "x y z",
    "~^.*$",
    "*",
    "=/",
    "@named",
    "\u{202e}evil",
    "x\u{85}y\u{2028}z",
];

type Entries<K> = Vec<((String, String), Option<Arc<K>>)>;

/// The objects of a Router.
#[derive(Default)]
struct World {
    values: Vec<(&'static str, Value)>,
}

impl World {
    /// A Route with its binding: `namespace/name`, the names that the platform has assigned, and its specification.
    fn route(&mut self, key: &str, names: &[&str], spec: Value) {
        let (namespace, name) = key.split_once('/').expect("namespace and name");
        let metadata = json!({"namespace": namespace, "name": name, "uid": format!("uid-{key}"),
            "creationTimestamp": "2026-01-01T00:00:00Z"});
        let route = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": metadata, "spec": spec});
        let names: Vec<Value> = names.iter().map(|name| json!({"name": name, "type": "system"})).collect();
        let binding = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding", "metadata": metadata, "spec": {
            "routeNamespace": namespace, "routeName": name, "routeUID": format!("uid-{key}"), "router": "shard1",
            "dns": "shard1.example", "label": "x", "names": names, "strategy": "round-robin"}});
        self.values.extend([("route", route), ("binding", binding)]);
    }

    fn service(&mut self, namespace: &str, name: &str, endpoint: &str, port: u16, port_name: &str) {
        let service = json!({"metadata": {"namespace": namespace, "name": name},
            "spec": {"ports": [{"name": port_name, "port": port}]}});
        let slice = json!({"metadata": {"namespace": namespace, "name": format!("{name}-1"),
            "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4",
            "endpoints": [{"addresses": [endpoint]}], "ports": [{"name": port_name, "port": port}]});
        self.values.extend([("service", service), ("slice", slice)]);
    }

    /// Adds a Service without ports, and an EndpointSlice with endpoints on all of some ports.
    fn endpoints(&mut self, namespace: &str, name: &str, addresses: &[String], ports: impl Iterator<Item = u16>) {
        let service = json!({"metadata": {"namespace": namespace, "name": name}, "spec": {}});
        let endpoints: Vec<Value> = addresses.iter().map(|address| json!({"addresses": [address]})).collect();
        let ports: Vec<Value> = ports.map(|port| json!({"name": "x", "port": port})).collect();
        let slice = json!({"metadata": {"namespace": namespace, "name": format!("{name}-1"),
            "labels": {"kubernetes.io/service-name": name}}, "addressType": "IPv4", "endpoints": endpoints, "ports": ports});
        self.values.extend([("service", service), ("slice", slice)]);
    }

    fn site(&self) -> Site {
        self.site_with(&[])
    }

    /// Returns the Site of a Router whose instances have some listeners.
    fn site_with(&self, listeners: &[SocketAddr]) -> Site {
        fn of<K: serde::de::DeserializeOwned>(world: &World, kind: &str) -> Entries<K> {
            let own = world.values.iter().filter(|(one, _)| *one == kind);
            let entry = |(_, value): &(&str, Value)| {
                let text = |field: &str| value["metadata"][field].as_str().unwrap_or_default().to_owned();
                let object = serde_json::from_value(value.clone()).ok().map(Arc::new);
                ((text("namespace"), text("name")), object)
            };
            own.map(entry).collect()
        }
        let listeners = listeners.iter().map(|listener| (listener.ip(), listener.port())).collect();
        let refused = Refused { loopback: true, listeners, ..Refused::default() };
        let mut resolver = Resolver::new("shard1", refused, Limits::default());
        resolver.update(Objects {
            routes: of(self, "route"),
            bindings: of(self, "binding"),
            services: of(self, "service"),
            slices: of(self, "slice"),
        });
        Site::clone(resolver.site())
    }
}

/// Returns a World with the Route of a victim, whose application answers `victim`.
async fn with_victim() -> World {
    let mut world = World::default();
    let address = application("victim", None).await;
    world.service("victim", "web", &address.ip().to_string(), address.port(), "http");
    world.route("victim/app", &["victim.shard1.example"], json!({"to": {"name": "web"}}));
    world
}

async fn body(address: SocketAddr, host: &str) -> (u16, String) {
    let response = get(address, host, "/").await.unwrap_or_else(|| panic!("no response for {host}"));
    (response.status, response.body)
}

/// No text that a tenant can choose gets into a configuration, and the other Routes are served.
pub async fn injections(mut bench: Bench) {
    let mut world = with_victim().await;
    let own = application("own", None).await;
    let (ip, port) = (own.ip().to_string(), own.port());
    world.service("thief", "web", &ip, port, "http");
    for (at, text) in INJECTIONS.iter().enumerate() {
        let host = format!("own{at}.shard1.example");
        let route = |field: &str| format!("thief/{field}{at}");
        world.route(&route("path"), &[&host], json!({"to": {"name": "web"}, "path": format!("/{text}")}));
        world.route(&route("bare"), &[&host], json!({"to": {"name": "web"}, "path": text}));
        world.route(
            &route("host"),
            &[text, &format!("{text}.example"), &format!("*.{text}")],
            json!({"to": {"name": "web"}}),
        );
        world.route(&route("to"), &[&format!("to{at}.example")], json!({"to": {"name": text}}));
        world.route(&route("kind"), &[&format!("kind{at}.example")], json!({"to": {"kind": text, "name": "web"}}));
        world.route(
            &route("port"),
            &[&format!("port{at}.example")],
            json!({"to": {"name": "web"}, "port": {"targetPort": text}}),
        );
        world.route(
            &route("again"),
            &[&format!("again{at}.example")],
            json!({
                "to": {"name": format!("svc{at}")}, "tls": {"termination": "reencrypt"},
            }),
        );
        world.route(&format!("thief/{text}"), &[&format!("name{at}.example")], json!({"to": {"name": "web"}}));
        world.route(&format!("{text}/name"), &[&format!("namespace{at}.example")], json!({"to": {"name": "web"}}));
        // The name of a Service is a name in certificates, an endpoint an address, and the name of a port a name.
        world.service("thief", text, &ip, port, "http");
        world.service("thief", &format!("svc{at}"), text, port, text);
    }
    let applied = bench.apply(&world.site()).await;
    assert_eq!(applied.faults, []);
    assert_eq!(body(bench.http, "victim.shard1.example").await, (200, "victim".to_owned()));
    // Not below example: one of the names above is *.example, and a name that is assigned is served.
    for host in ["evil.test", "x.test", "x", "localhost"] {
        assert_eq!(body(bench.http, host).await.0, 404, "{host}");
    }
    // The tenant's remaining Routes are served by its application, or return an error.
    for at in 0..INJECTIONS.len() {
        for name in ["own", "to", "kind", "port", "again", "name", "namespace"] {
            let host = if name == "own" { format!("own{at}.shard1.example") } else { format!("{name}{at}.example") };
            let (status, body) = body(bench.http, &host).await;
            assert!(status >= 400 || body == "own", "{host}: {status} {body}");
        }
    }
}

/// A Route can only use Services of its own namespace, under any name.
pub async fn services_of_others(mut bench: Bench) {
    let mut world = with_victim().await;
    for (at, name) in
        ["web", "victim/web", "web.victim", "../victim/web", "web.victim.svc.cluster.local"].iter().enumerate()
    {
        world.route(&format!("thief/r{at}"), &[&format!("r{at}.example")], json!({
            "to": {"name": name, "namespace": "victim"}, "alternateBackends": [{"kind": "Service", "name": name, "weight": 256}],
        }));
    }
    // The thief's EndpointSlice that names the victim's Service does not add an endpoint to it.
    let decoy = application("decoy", None).await;
    world.values.push((
        "slice",
        json!({"metadata": {"namespace": "thief", "name": "decoy",
        "labels": {"kubernetes.io/service-name": "web"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": [decoy.ip()]}], "ports": [{"name": "http", "port": decoy.port()}]}),
    ));
    bench.apply(&world.site()).await;
    for at in 0..5 {
        assert_eq!(body(bench.http, &format!("r{at}.example")).await.0, 503, "r{at}");
    }
    for _ in 0..8 {
        assert_eq!(body(bench.http, "victim.shard1.example").await, (200, "victim".to_owned()));
    }
}

/// A large number of Routes of one tenant with the same host and path does not affect the Routes of others.
pub async fn very_many_routes(mut bench: Bench) {
    let mut world = with_victim().await;
    let own = application("own", None).await;
    world.service("thief", "web", &own.ip().to_string(), own.port(), "http");
    for at in 0..10_000 {
        world.route(&format!("thief/r{at:05}"), &["same.example"], json!({"to": {"name": "web"}}));
    }
    let site = world.site();
    assert_eq!((site.hosts.len(), site.routes.len()), (2, 10_001));
    // The oldest wins, and of several the first by name.
    assert_eq!(site.route("same.example", "/").map(|route| route.as_str()), Some("thief/r00000"));
    assert_eq!(bench.apply(&site).await.faults, []);
    assert_eq!(body(bench.http, "same.example").await, (200, "own".to_owned()));
    assert_eq!(body(bench.http, "victim.shard1.example").await, (200, "victim".to_owned()));
}

/// The time for a change to be served while another tenant has as much as possible. The slowest machines are slow.
const BYSTANDER_PATIENCE: Duration = Duration::from_secs(10);

/// Routes with 100,000 endpoints each do not keep another tenant's Route waiting, neither in a running proxy nor in one that starts.
pub async fn very_many_servers(mut bench: Bench) {
    let mut world = with_victim().await;
    bench.apply(&world.site()).await;
    let addresses: Vec<String> = (0..1_000).map(|at| format!("127.66.{}.{}", at / 200, at % 200 + 1)).collect();
    world.endpoints("thief", "huge", &addresses, 1_001..=1_100);
    let tls = |termination: &str| json!({"to": {"name": "huge"}, "tls": {"termination": termination}});
    let named = json!({"to": {"name": "huge"}, "port": {"targetPort": "x"}});
    for (at, spec) in
        [json!({"to": {"name": "huge"}}), named.clone(), tls("passthrough"), tls("reencrypt"), named].iter().enumerate()
    {
        world.route(&format!("thief/r{at}"), &[&format!("r{at}.example")], spec.clone());
        let own = format!("new{at}.shard1.example");
        world.route(&format!("victim/new{at}"), &[&own], json!({"to": {"name": "web"}}));
        let started = Instant::now();
        assert_eq!(bench.apply(&world.site()).await.faults, []);
        assert_eq!(body(bench.http, &own).await, (200, "victim".to_owned()));
        assert!(started.elapsed() < BYSTANDER_PATIENCE, "{:?}", started.elapsed());
    }
    bench.signal("-KILL");
    let started = Instant::now();
    while !bench.apply(&world.site()).await.reloaded {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(body(bench.http, "victim.shard1.example").await, (200, "victim".to_owned()));
    assert!(started.elapsed() < BYSTANDER_PATIENCE, "{:?}", started.elapsed());
}

/// A Route cannot lead to the router itself, nor to an address that only the router's machine should reach.
pub async fn router_itself(mut bench: Bench) {
    let mut world = with_victim().await;
    let (http, https) = (bench.http, bench.https);
    for (name, listener) in [("http", http), ("https", https)] {
        world.endpoints("thief", name, &[listener.ip().to_string()], listener.port()..=listener.port());
    }
    let addresses: Vec<String> =
        ["169.254.169.254", "100.100.100.200", "168.63.129.16", "0.0.0.0", "::ffff:169.254.169.254", "fd00:ec2::254"]
            .map(str::to_owned)
            .into();
    world.endpoints("thief", "metadata", &addresses, http.port()..=http.port());
    world.route("thief/loop", &["loop.example"], json!({"to": {"name": "http"}}));
    world.route("thief/metadata", &["metadata.example"], json!({"to": {"name": "metadata"}}));
    let tls = |termination: &str| json!({"to": {"name": "https"}, "tls": {"termination": termination}});
    world.route("thief/pass", &["pass.example"], tls("passthrough"));
    world.route("thief/again", &["again.example"], tls("reencrypt"));
    let site = world.site_with(&[http, https]);
    for route in ["loop", "metadata", "pass", "again"] {
        assert_eq!(site.routes[format!("thief/{route}").as_str()].servers, [], "{route}");
    }
    assert_eq!(bench.apply(&site).await.faults, []);
    for host in ["loop.example", "metadata.example"] {
        assert_eq!(body(http, host).await.0, 503, "{host}");
    }
    let identity = Identity::new("again.example");
    assert!(get_tls(https, &identity, "pass.example", "pass.example", "/").await.is_none());
    assert_eq!(body(http, "victim.shard1.example").await, (200, "victim".to_owned()));
    // Another port of the same machine is an application.
    let own = application("own", None).await;
    world.service("thief", "own", &own.ip().to_string(), own.port(), "http");
    world.route("thief/own", &["own.example"], json!({"to": {"name": "own"}}));
    bench.apply(&world.site_with(&[http, https])).await;
    assert_eq!(body(http, "own.example").await, (200, "own".to_owned()));
}

/// Certificates that are none, some of which hold commands, are left out, and everything else is served.
pub async fn garbage_certificates(mut bench: Bench) {
    let mut site = Site::default();
    route(&mut site, "web", "web.example", "/", plain(&[(application("web", None).await, 1)]));
    let secure = with_tls(application("tls", None).await, Termination::Edge, Insecure::Allow);
    let garbage = [
        "",
        "\n\n\n",
        "garbage\n\nset server h0/x state maint\n\nshow env\n",
        "-----BEGIN CERTIFICATE-----\n",
        "\u{0}\u{1}\u{2}",
        &"A".repeat(100_000),
    ];
    for (at, text) in garbage.iter().enumerate() {
        let host = format!("tls{at}.example");
        route(&mut site, &format!("tls{at}"), &host, "/", secure.clone());
        site.certificates.insert(host.parse().expect("a host"), Certificate { pem: (*text).into() });
    }
    let applied = bench.apply(&site).await;
    assert_eq!(applied.faults.len(), garbage.len(), "{:?}", applied.faults);
    assert_eq!(body(bench.http, "web.example").await, (200, "web".to_owned()));
    for at in 0..garbage.len() {
        assert_eq!(body(bench.http, &format!("tls{at}.example")).await, (200, "tls".to_owned()));
    }
}
