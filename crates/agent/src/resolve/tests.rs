//! Tests that the served state of a Router depends only on the current objects, and not on their history.

use std::net::SocketAddr;

use proptest::prelude::*;
use serde_json::{Value, json};
use signpost_types::backends::SERVICE_LABEL;
use signpost_types::v1alpha1::route::{Termination, WEIGHT_DEFAULT};

use super::*;
use crate::render::Settings;
use crate::render::haproxy::Layout;
use crate::site::{Insecure, Upstream};

/// Objects from JSON.
struct World {
    routes: Vec<Arc<Route>>,
    bindings: Vec<Arc<RouteBinding>>,
    services: Vec<Arc<Service>>,
    slices: Vec<Arc<EndpointSlice>>,
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object")
}

fn shared<T: serde::de::DeserializeOwned>(value: Value) -> Arc<T> {
    Arc::new(object(value))
}

impl World {
    fn new() -> World {
        World { routes: vec![], bindings: vec![], services: vec![], slices: vec![] }
    }

    /// Returns a Route that was created at a second, and its binding to a Router.
    fn route(mut self, name: &str, second: u32, router: &str, names: &[&str], spec: Value) -> World {
        let metadata = json!({"namespace": "test", "name": name, "uid": format!("uid-{name}"),
            "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")});
        self.routes.push(shared(
            json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": metadata, "spec": spec}),
        ));
        let names: Vec<_> = names.iter().map(|name| json!({"name": name, "type": "system"})).collect();
        self.bindings.push(shared(
            json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding", "metadata": metadata, "spec": {
            "routeNamespace": "test", "routeName": name, "routeUID": format!("uid-{name}"), "router": router,
            "dns": "shard1.example", "label": name, "names": names, "strategy": "round-robin"}}),
        ));
        self
    }

    /// Returns a Service with endpoints on a port, of which those whose address begins with `!` are not ready, and those with `-`
    /// end.
    fn service(mut self, name: &str, port: u16, addresses: &[&str]) -> World {
        // As with "kubectl create service clusterip": the port of the Service differs from that of its endpoints.
        self.services.push(shared(json!({"metadata": {"namespace": "test", "name": name}, "spec": {
            "ports": [{"name": "web", "port": 8080, "targetPort": port}, {"name": "udp", "port": 8081, "protocol": "UDP"}]}})));
        for (family, v6) in [("IPv4", false), ("IPv6", true)] {
            let endpoint = |text: &&str| {
                let conditions = match text.as_bytes()[0] {
                    b'!' => json!({"ready": false}),
                    b'-' => json!({"ready": false, "serving": true, "terminating": true}),
                    _ => json!({}),
                };
                json!({"addresses": [text.trim_start_matches(['!', '-'])], "conditions": conditions})
            };
            let endpoints: Vec<_> = addresses.iter().filter(|text| text.contains(':') == v6).map(endpoint).collect();
            self.slices.push(shared(json!({"metadata": {"namespace": "test", "name": format!("{name}-{family}"),
                "labels": {SERVICE_LABEL: name}}, "addressType": family, "endpoints": endpoints,
                "ports": [{"name": "web", "port": port, "protocol": "TCP"}, {"name": "udp", "port": port, "protocol": "UDP"}]})));
        }
        self
    }

    fn resolve(&self) -> (Site, Vec<(String, Reason)>) {
        let World { routes, bindings, services, slices } = self;
        let mut resolver = Resolver::new("shard1", Refused::default(), Limits::default());
        let (_, mut faults) = resolver.update(objects(routes, bindings, services, slices));
        faults.sort();
        let site = Site::clone(resolver.site());
        (site, faults.into_iter().map(|fault| (fault.route.to_string(), fault.reason)).collect())
    }

    /// Returns the servers of the Route `test/a`.
    fn servers(&self) -> Vec<(String, u16)> {
        let (site, _) = self.resolve();
        site.routes["test/a"].servers.iter().map(|server| (server.address.to_string(), server.weight)).collect()
    }
}

fn objects(
    routes: &[Arc<Route>],
    bindings: &[Arc<RouteBinding>],
    services: &[Arc<Service>],
    slices: &[Arc<EndpointSlice>],
) -> Objects {
    fn all<K: kube::Resource>(objects: &[Arc<K>]) -> Changed<K> {
        objects.iter().map(|object| (key(object.meta()), Some(object.clone()))).collect()
    }
    Objects { routes: all(routes), bindings: all(bindings), services: all(services), slices: all(slices) }
}

fn to(name: &str) -> Value {
    json!({"to": {"kind": "Service", "name": name}})
}

/// The platform gets certificates for custom hosts with TLS that ends here and without a Secret.
#[test]
fn hosts_whose_certificates_the_platform_gets() {
    let spec = |path: &str, tls: Value| json!({"to": {"name": "web"}, "path": path, "tls": tls});
    let (edge, own) = (json!({"termination": "edge"}), json!({"termination": "edge", "secretName": "own"}));
    let (again, pass) = (json!({"termination": "reencrypt"}), json!({"termination": "passthrough"}));
    let mut world = World::new()
        .route("edge", 1, "shard1", &["edge.example"], spec("/", edge.clone()))
        .route("again", 2, "shard1", &["again.example"], spec("/", again))
        .route("own", 3, "shard1", &["own.example"], spec("/", own.clone()))
        .route("pass", 4, "shard1", &["pass.example"], spec("/", pass.clone()))
        .route("plain", 5, "shard1", &["plain.example"], to("web"))
        .route("wild", 6, "shard1", &["*.wild.example"], spec("/", edge.clone()))
        .route("far", 7, "shard2", &["far.example"], spec("/", edge.clone()))
        // Several paths of one host.
        .route("two", 8, "shard1", &["two.example"], to("web"))
        .route("two-edge", 9, "shard1", &["two.example"], spec("/edge", edge.clone()))
        .route("both", 10, "shard1", &["both.example"], spec("/", edge.clone()))
        .route("both-own", 11, "shard1", &["both.example"], spec("/own", own))
        .route("mixed", 12, "shard1", &["mixed.example"], spec("/", pass))
        .route("mixed-edge", 13, "shard1", &["mixed.example"], spec("/edge", edge.clone()));
    for binding in &mut world.bindings {
        Arc::make_mut(binding).spec.names.iter_mut().for_each(|name| name.kind = NameKind::Custom);
    }
    // A name of the platform.
    world = world.route("system", 14, "shard1", &["system.shard1.example"], spec("/", edge));
    let (site, _) = world.resolve();
    let issued: Vec<&str> = site.issued.iter().map(Host::as_str).collect();
    assert_eq!(issued, ["*.wild.example", "again.example", "edge.example", "two.example"]);
    let wild = "*.wild.example".parse().expect("a host");
    assert!(!site.answers_challenges(&wild), "HTTP challenges do not prove it");

    let mut resolver = Resolver::new("shard1", Refused::default(), Limits::default());
    let World { routes, bindings, services, slices } = &world;
    resolver.update(objects(routes, bindings, services, slices));
    assert!(resolver.issued(Some("shard1.example")).is_empty(), "the platform has no account");
    let thumbprint = "a".repeat(43).parse().expect("a thumbprint");
    assert!(resolver.set_thumbprint(Some(thumbprint)));
    let secrets = resolver.issued(Some("Shard1.example"));
    let hosts: Vec<&str> = secrets.keys().map(Host::as_str).collect();
    let custom = ["again.example", "edge.example"];
    assert_eq!(
        hosts,
        [&["*.shard1.example", "*.wild.example"], &custom[..], &["shard1.example", "two.example"]].concat()
    );
    assert_eq!(secrets["*.shard1.example"], secrets["shard1.example"], "one certificate");
    let keys: BTreeSet<&Key> = secrets.values().collect();
    assert_eq!(keys.len(), 5);
    assert!(keys.iter().all(|(namespace, name)| namespace == AGENT_NAMESPACE && name.starts_with("router-shard1.")));

    // A Route that gets a Secret takes its host out, and one that loses its TLS, too.
    let mut changed = routes.clone();
    for (name, tls) in [("edge", json!({"termination": "edge", "secretName": "own"})), ("again", Value::Null)] {
        let route = changed.iter_mut().find(|route| route.metadata.name.as_deref() == Some(name)).expect("a Route");
        Arc::make_mut(route).spec.tls = serde_json::from_value(tls).expect("TLS");
    }
    let (changes, _) = resolver.update(objects(&changed, &[], &[], &[]));
    let hosts: BTreeSet<&str> = changes.iter().flat_map(|change| &change.hosts).map(Host::as_str).collect();
    assert!(hosts.contains("edge.example") && hosts.contains("again.example"));
    assert_eq!(resolver.site().issued.iter().map(Host::as_str).collect::<Vec<_>>(), ["*.wild.example", "two.example"]);
}

#[test]
fn the_assigned_names_are_served_and_no_others() {
    let mut spec = to("web");
    spec["host"] = json!("not.assigned.example");
    let mut world = World::new()
        .route("a", 1, "shard1", &["a.shard1.example", "a.routes.example", "*.Own.example"], spec)
        .route("b", 1, "shard2", &["b.shard2.example"], to("web"))
        .route("left", 1, "shard2", &["left.shard2.example"], to("web"))
        .route("other", 1, "shard1", &["other.shard1.example"], to("web"))
        .service("web", 80, &["192.0.2.1"]);
    Arc::make_mut(&mut world.bindings[2]).spec.former_names =
        object(json!([{"name": "left.shard1.example", "router": "shard1",
        "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"}]));
    Arc::make_mut(&mut world.bindings[3]).spec.route_uid = "another".to_owned();
    let (site, faults) = world.resolve();
    let hosts: Vec<&str> = site.hosts.keys().map(Host::as_str).collect();
    let expected =
        ["*.own.example", "a.routes.example", "a.shard1.example", "left.shard1.example", "left.shard2.example"];
    assert_eq!((hosts, faults), (expected.to_vec(), vec![]));
}

/// The settings of a Route follow its fields, its annotations, and the Router, whose other settings are in the Site at once.
#[test]
fn settings_follow_the_route_and_the_router() {
    let mut spec = to("web");
    spec["traffic"] = json!({"maxRequestBodyBytes": 500});
    let mut world = World::new()
        .route("a", 1, "shard1", &["a.shard1.example"], spec)
        .route("b", 1, "shard1", &["b.shard1.example"], to("web"))
        .service("web", 80, &["192.0.2.1"]);
    let annotations = [("haproxy.router.openshift.io/timeout".to_owned(), "90s".to_owned())];
    Arc::make_mut(&mut world.routes[0]).metadata.annotations = Some(annotations.into());
    let World { routes, bindings, services, slices } = &world;
    let mut resolver = Resolver::new("shard1", Refused::default(), Limits::default());
    resolver.update(objects(routes, bindings, services, slices));
    let settings = |resolver: &Resolver| {
        let of = |name: &str| json!(resolver.site().routes[name].settings);
        [of("test/a"), of("test/b")]
    };
    let own = json!({"request_timeout_ms": 90_000, "body_bytes_max": 500});
    assert_eq!(settings(&resolver), [own.clone(), json!({})]);
    let proxy = |value| object::<RouterProxy>(value);
    let maxima = proxy(json!({"maxima": {"requestTimeoutSeconds": 60}}));
    assert!(!resolver.set_router(Some(&maxima)));
    let (changes, _) = resolver.update(Objects::default());
    assert_eq!(changes.len(), 2);
    let within = [json!({"request_timeout_ms": 60_000, "body_bytes_max": 500}), json!({"request_timeout_ms": 60_000})];
    assert_eq!(settings(&resolver), within);
    let trusting = proxy(json!({"trustedProxies": ["192.0.2.0/24", "x"], "clientAddress": "proxy-protocol"}));
    assert!(resolver.set_router(Some(&trusting)) && !resolver.set_router(Some(&trusting)));
    let expected =
        json!({"trusted_proxies": ["192.0.2.0/24"], "client_address": "proxy-protocol", "keep_alive_seconds": null});
    assert_eq!(json!(resolver.site().router), expected);
    resolver.update(Objects::default());
    assert_eq!(settings(&resolver), [own, json!({})]);
}

#[test]
fn the_oldest_route_wins() {
    let host = ["own.example"];
    let with = |path: &str| json!({"to": {"name": "web"}, "path": path});
    let (site, faults) = World::new()
        .route("young", 9, "shard1", &host, to("web"))
        .route("old", 1, "shard1", &host, with("/"))
        .route("shop", 5, "shard1", &host, with("/shop/"))
        .route("shop-too", 5, "shard1", &host, with("/shop"))
        .route("odd", 1, "shard1", &host, with("/%61"))
        .service("web", 80, &["192.0.2.1"])
        .resolve();
    let route = |path| site.route("own.example", path).map(RouteKey::as_str);
    assert_eq!((route("/"), route("/shop/x")), (Some("test/old"), Some("test/shop")));
    let expected =
        [("test/odd", Reason::Unsupported), ("test/shop-too", Reason::Conflict), ("test/young", Reason::Conflict)];
    assert_eq!(faults, expected.map(|(route, reason)| (route.to_owned(), reason)));
}

#[test]
fn endpoints() {
    let port = |port: Value| json!({"to": {"name": "web"}, "port": {"targetPort": port}});
    let cases: [(Value, &[&str], &str, Option<Reason>); 18] = [
        (to("web"), &["192.0.2.2", "192.0.2.1"], "192.0.2.1:80 192.0.2.2:80", None),
        (to("web"), &["192.0.2.1", "!192.0.2.2", "-192.0.2.3"], "192.0.2.1:80", None),
        (to("web"), &["!192.0.2.2", "-192.0.2.3"], "192.0.2.3:80", None),
        (to("web"), &["2001:db8::1"], "[2001:db8::1]:80", None),
        (to("web"), &["192.0.2.1", "2001:db8::1"], "192.0.2.1:80", None),
        (to("web"), &[], "", Some(Reason::NoReadyEndpoints)),
        // What only the router itself should reach.
        (
            to("web"),
            &["127.0.0.1", "::1", "169.254.169.254", "::ffff:127.0.0.1", "0.0.0.0"],
            "",
            Some(Reason::NoReadyEndpoints),
        ),
        (port(json!(80)), &["192.0.2.1"], "192.0.2.1:80", None),
        (port(json!("web")), &["192.0.2.1"], "192.0.2.1:80", None),
        (port(json!(8080)), &["192.0.2.1"], "192.0.2.1:80", None),
        (port(json!(8081)), &["192.0.2.1"], "", Some(Reason::NoPort)),
        (port(json!(81)), &["192.0.2.1"], "", Some(Reason::NoPort)),
        (port(json!("udp")), &["192.0.2.1"], "", Some(Reason::NoPort)),
        // The slices of an application without instances do not show its ports.
        (port(json!("udp")), &[], "", Some(Reason::NoReadyEndpoints)),
        (to("other"), &["192.0.2.1"], "", Some(Reason::NoService)),
        (to("external"), &["192.0.2.1"], "", Some(Reason::NoReadyEndpoints)),
        (json!({}), &["192.0.2.1"], "", Some(Reason::NoTarget)),
        (json!({"to": {"kind": "Pod", "name": "web"}}), &["192.0.2.1"], "", Some(Reason::NoTarget)),
    ];
    for (spec, addresses, expected, fault) in cases {
        let mut world =
            World::new().route("a", 1, "shard1", &["a.example"], spec.clone()).service("web", 80, addresses);
        let external = json!({"metadata": {"namespace": "test", "name": "external"}, "spec": {"type": "ExternalName"}});
        world.services.push(shared(external));
        let servers: Vec<String> = world.servers().into_iter().map(|(address, _)| address).collect();
        assert_eq!(servers.join(" "), expected, "{spec} {addresses:?}");
        let (site, faults) = world.resolve();
        assert_eq!(faults.first().map(|(_, reason)| *reason), fault, "{spec} {addresses:?}");
        // A Route without endpoints keeps its host: the answer is 503, not 404.
        assert!(site.route("a.example", "/").is_some());
    }
}

/// Returns a slice of a Service `web` with an endpoint for each address and the given ports.
fn slice(name: &str, addresses: impl IntoIterator<Item = String>, ports: Value) -> Arc<EndpointSlice> {
    let endpoints: Vec<_> = addresses.into_iter().map(|address| json!({"addresses": [address]})).collect();
    shared(
        json!({"metadata": {"namespace": "test", "name": name, "labels": {SERVICE_LABEL: "web"}}, "addressType": "IPv4",
        "endpoints": endpoints, "ports": ports}),
    )
}

fn service(ports: Value) -> Arc<Service> {
    shared(json!({"metadata": {"namespace": "test", "name": "web"}, "spec": {"ports": ports}}))
}

fn addresses(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|at| format!("198.51.{}.{}", at / 200, at % 200 + 1))
}

#[test]
fn refused_endpoints() {
    let listeners = ["192.0.2.7:80", "0.0.0.0:8443", "[2001:db8::7]:80"]
        .map(|text| text.parse::<SocketAddr>().expect("an address"));
    let listeners = listeners.map(|one| (one.ip(), one.port())).into();
    let refused = |loopback| Refused { loopback, listeners: BTreeSet::clone(&listeners), ..Refused::default() };
    // Refused; refused without --loopback-endpoints; accepted.
    for (address, ports) in [
        ("192.0.2.7", &[(80, 'r'), (81, 'a'), (8443, 'a')][..]),
        ("::ffff:192.0.2.7", &[(80, 'r'), (81, 'r')]),
        ("2001:db8::7", &[(80, 'r'), (81, 'a')]),
        ("127.0.0.1", &[(80, 'l'), (8443, 'r')]),
        ("127.9.9.9", &[(80, 'l'), (8443, 'r')]),
        ("::1", &[(80, 'l'), (8443, 'r')]),
        ("::ffff:127.0.0.1", &[(80, 'r'), (8443, 'r')]),
        ("0.0.0.0", &[(80, 'r')]),
        ("0.1.2.3", &[(80, 'r')]),
        ("::", &[(80, 'r')]),
        ("169.254.169.254", &[(80, 'r')]),
        ("169.254.170.2", &[(80, 'r')]),
        ("100.100.100.200", &[(80, 'r')]),
        ("100.100.100.201", &[(80, 'a')]),
        ("168.63.129.16", &[(80, 'r'), (32526, 'r')]),
        ("192.0.0.192", &[(80, 'r')]),
        ("fd00:ec2::254", &[(80, 'r')]),
        ("fd00::254", &[(80, 'a')]),
        ("fd20:ce::254", &[(80, 'r')]),
        ("::ffff:192.0.2.1", &[(80, 'r')]),
        ("::192.0.2.1", &[(80, 'r')]),
        ("64:ff9b::a9fe:a9fe", &[(80, 'r')]),
        ("64:ff9b:1::a9fe:a9fe", &[(80, 'r')]),
        ("2002:a9fe:a9fe::1", &[(80, 'r')]),
        ("2001:0:a9fe:a9fe::1", &[(80, 'r')]),
        ("fe80::1", &[(80, 'r')]),
        ("ff02::1", &[(80, 'r')]),
        ("224.0.0.1", &[(80, 'r')]),
        ("240.0.0.1", &[(80, 'r')]),
        ("255.255.255.255", &[(80, 'r')]),
        ("10.0.0.1", &[(80, 'a')]),
        ("198.51.100.1", &[(80, 'a')]),
        ("2001:db8::1", &[(80, 'a')]),
        ("metadata.google.internal", &[(80, 'r')]),
    ] {
        for &(port, expected) in ports {
            let world = World::new().route("a", 1, "shard1", &["a.example"], to("web"));
            let slice = slice("web", [address.to_owned()], json!([{"port": port}]));
            for loopback in [false, true] {
                let (found, faults) = destinations(
                    &world.routes[0],
                    &[service(json!([{"port": 80}]))],
                    std::slice::from_ref(&slice),
                    refused(loopback),
                );
                let is_refused = faults.iter().any(|(reason, _)| *reason == Reason::RefusedEndpoint);
                let is_expected = expected == 'r' || (expected == 'l' && !loopback);
                assert_eq!(
                    (found[0].endpoints.is_empty(), is_refused),
                    (is_expected, is_expected),
                    "{address} {port} {loopback}: {faults:?}"
                );
            }
        }
    }
}

/// The rules for endpoints apply to all Routes as soon as they change.
#[test]
fn another_listener() {
    let World { routes, bindings, services, slices } =
        World::new().route("a", 1, "shard1", &["a.example"], to("web")).service("web", 80, &["192.0.2.1", "192.0.2.2"]);
    let mut resolver = Resolver::new("shard1", Refused::default(), Limits::default());
    resolver.update(objects(&routes, &bindings, &services, &slices));
    assert_eq!(resolver.site().routes["test/a"].servers.len(), 2);
    let listeners = BTreeSet::from([("192.0.2.1".parse().expect("an address"), 80)]);
    assert!(resolver.set_refused(Refused { listeners, ..Refused::default() }));
    let (changes, faults) = resolver.update(Objects::default());
    assert_eq!((changes.len(), faults.len()), (1, 1));
    assert_eq!(resolver.site().routes["test/a"].servers.len(), 1);
    assert!(faults[0].message.contains("192.0.2.1:80 of Service web is a listener"), "{}", faults[0].message);
}

#[test]
fn ports_of_a_route_without_one() {
    let tcp = |name: &str, port: u16| json!({"name": name, "port": port});
    let udp = |name: &str, port: u16| json!({"name": name, "port": port, "protocol": "UDP"});
    for (of_service, of_slice, expected, note) in [
        (json!([{"port": 80}]), json!([{"port": 8080}]), Some(8080), false),
        (json!([tcp("web", 80)]), json!([tcp("web", 8080)]), Some(8080), false),
        (json!([tcp("web", 80), tcp("ssh", 22)]), json!([tcp("ssh", 2222), tcp("web", 8080)]), Some(8080), true),
        (json!([tcp("ssh", 22), tcp("web", 80)]), json!([tcp("ssh", 2222), tcp("web", 8080)]), Some(2222), true),
        (json!([udp("dns", 53), tcp("web", 80)]), json!([udp("dns", 53), tcp("web", 8080)]), Some(8080), false),
        // Slices that were written by hand.
        (json!([tcp("web", 80)]), json!([{"port": 8080}]), Some(8080), false),
        (json!([]), json!([tcp("b", 8080), tcp("a", 9090)]), Some(8080), true),
        (json!([tcp("web", 80), tcp("ssh", 22)]), json!([tcp("other", 8080)]), None, true),
        (json!([]), json!([]), None, false),
    ] {
        let mut world = World::new().route("a", 1, "shard1", &["a.example"], to("web"));
        world.services.push(service(of_service.clone()));
        world.slices.push(slice("web", ["192.0.2.1".to_owned()], of_slice.clone()));
        let servers: Vec<String> = world.servers().into_iter().map(|(address, _)| address).collect();
        let expected: Vec<String> = expected.iter().map(|port| format!("192.0.2.1:{port}")).collect();
        assert_eq!(servers, expected, "{of_service} {of_slice}");
        let (_, faults) = world.resolve();
        assert_eq!(faults.iter().any(|(_, reason)| *reason == Reason::FirstPort), note, "{of_service} {of_slice}");
    }
    let mut world = World::new().route("a", 1, "shard1", &["a.example"], to("web"));
    world.services.push(service(json!([tcp("web", 80), tcp("ssh", 22)])));
    world.slices.push(slice("web", ["192.0.2.1".to_owned()], json!([tcp("web", 8080)])));
    let mut resolver = Resolver::new("shard1", Refused::default(), Limits::default());
    let (_, faults) = resolver.update(objects(&world.routes, &world.bindings, &world.services, &world.slices));
    assert_eq!(faults[0].message, "Service web has several ports: requests go to the first, web; set spec.port");
    assert_eq!(resolver.routes_at_fault(), 0);
}

/// One Route cannot have more servers than its limit, and keeps almost all of them when some endpoints change.
#[test]
fn servers_of_a_route() {
    let mut world = World::new().route("a", 1, "shard1", &["a.example"], to("web"));
    world.services.push(service(json!([])));
    let many: Vec<Value> = (1..=100).map(|port| json!({"name": "x", "port": port})).collect();
    world.slices.push(slice("web", addresses(1_000), json!(many)));
    let port = json!({"to": {"name": "web"}, "port": {"targetPort": "x"}});
    for spec in [port, to("web")] {
        Arc::make_mut(&mut world.routes[0]).spec = object(spec);
        let before = world.servers();
        assert_eq!(before.len(), 200);
        let (_, faults) = world.resolve();
        assert!(faults.contains(&("test/a".to_owned(), Reason::TooManyEndpoints)), "{faults:?}");
        // 50 of 1,000 endpoints are replaced.
        let kept = addresses(1_050).skip(50);
        let old = std::mem::replace(&mut world.slices[0], slice("web", kept, json!(many)));
        let kept = world.servers().into_iter().filter(|server| before.contains(server)).count();
        assert!(kept > 160, "{kept}");
        world.slices[0] = old;
    }
}

/// A large target leaves room for a small one.
#[test]
fn servers_of_targets() {
    let spec = json!({"to": {"name": "web", "weight": 1}, "alternateBackends": [{"name": "small", "weight": 1}, {"name": "none", "weight": 0}]});
    let mut world = World::new()
        .route("a", 1, "shard1", &["a.example"], spec)
        .service("small", 80, &["192.0.2.1", "192.0.2.2"])
        .service("none", 80, &["192.0.2.3"]);
    world.services.push(service(json!([{"port": 80}])));
    world.slices.push(slice("web", addresses(1_000), json!([{"port": 80}])));
    let servers = world.servers();
    assert_eq!(servers.len(), 200);
    let small: Vec<u16> =
        servers.iter().filter(|(address, _)| address.starts_with("192.")).map(|server| server.1).collect();
    assert_eq!(small, [256, 256]);
}

#[test]
fn servers_of_a_namespace_and_a_router() {
    let mut world = World::new();
    for (at, namespace) in [(1, "test"), (2, "test"), (3, "other"), (4, "test"), (5, "third")] {
        let name = format!("r{at}");
        world = world.route(&name, at, "shard1", &[&format!("{name}.example")], to("web"));
        let namespace = namespace.to_owned();
        Arc::make_mut(world.routes.last_mut().expect("it was added")).metadata.namespace = Some(namespace.clone());
        Arc::make_mut(world.bindings.last_mut().expect("it was added")).metadata.namespace = Some(namespace);
    }
    for namespace in ["test", "other", "third"] {
        let (mut service, mut slice) =
            (service(json!([{"port": 80}])), slice("web", addresses(10), json!([{"port": 80}])));
        Arc::make_mut(&mut service).metadata.namespace = Some(namespace.to_owned());
        Arc::make_mut(&mut slice).metadata.namespace = Some(namespace.to_owned());
        world.services.push(service);
        world.slices.push(slice);
    }
    let World { routes, bindings, services, slices } = &world;
    let mut resolver = Resolver::new("shard1", Refused::default(), Limits { route: 8, namespace: 12, router: 22 });
    let counts = |resolver: &Resolver| {
        let of = |route: &str| resolver.site().routes.get(route).map(|upstream| upstream.servers.len());
        ["test/r1", "test/r2", "other/r3", "test/r4", "third/r5"].map(|route| of(route).unwrap_or(99))
    };
    let (_, mut faults) = resolver.update(objects(routes, bindings, services, slices));
    assert_eq!(counts(&resolver), [8, 4, 8, 0, 2]);
    faults.sort();
    let messages: Vec<&str> = faults.iter().map(|fault| fault.message.as_str()).collect();
    assert_eq!(
        messages,
        [
            "requests go to 8 of 10 endpoints, the limit of a Route",
            "requests go to 8 of 10 endpoints, the limit of a Route",
            "the Routes of the namespace have more than 12 endpoints: requests go to 4 of the 10 endpoints of this Route, because older Routes come first",
            "the Routes of the namespace have more than 12 endpoints: requests go to 0 of the 10 endpoints of this Route, because older Routes come first",
            "the Routes of the Router have more than 22 endpoints: requests go to 2 of the 10 endpoints of this Route, because older Routes come first",
        ]
    );
    assert_eq!(resolver.routes_at_fault(), 5);
    // An older Route leaves, and the others get more.
    let (changes, _) =
        resolver.update(Objects { routes: vec![(key(&routes[0].metadata), None)], ..Objects::default() });
    assert_eq!(counts(&resolver), [99, 8, 8, 4, 2]);
    let changed: Vec<&str> = changes.iter().map(|change| change.route.as_str()).collect();
    assert_eq!(changed, ["test/r1", "test/r2", "test/r4"]);
    assert!(changes.iter().all(|change| change.hosts.len() == 1 && change.servers >= 4));
}

/// Prints the CPU time of one changed slice with 1,000 Routes and 60 slices of their Service.
#[test]
fn a_changed_label() {
    let mut world = World::new();
    for at in 0..1_000 {
        world = world.route(&format!("r{at}"), 1, "shard1", &[&format!("r{at}.example")], to("web"));
    }
    world.services.push(service(json!([{"port": 80}])));
    for at in 0..60 {
        let of_slice = addresses(6_000).skip(at * 100).take(100);
        world.slices.push(slice(&format!("web-{at}"), of_slice, json!([{"port": 80}])));
    }
    let World { routes, bindings, services, slices } = &world;
    let mut resolver = Resolver::new("shard1", Refused::default(), Limits::default());
    resolver.update(objects(routes, bindings, services, slices));
    let mut slice = EndpointSlice::clone(&slices[0]);
    let mut measure = |slice: &EndpointSlice| {
        let started = std::time::Instant::now();
        let changed =
            Objects { slices: vec![(key(&slice.metadata), Some(Arc::new(slice.clone())))], ..Objects::default() };
        let (changes, _) = resolver.update(changed);
        (changes.len(), started.elapsed())
    };
    slice.metadata.labels.as_mut().expect("it has labels").insert("x".to_owned(), "y".to_owned());
    let (label, endpoints) = (measure(&slice), {
        slice.endpoints.as_mut().expect("it has endpoints").clear();
        measure(&slice)
    });
    println!("1,000 Routes, 60 slices: a changed label takes {:.1?}, changed endpoints {:.1?}", label.1, endpoints.1);
    assert_eq!(label.0, 0);
}

#[test]
fn weights() {
    let spec = |a: Value, b: Value| json!({"to": {"name": "one", "weight": a}, "alternateBackends": [{"name": "two", "weight": b}]});
    for (first, second, expected) in [
        (json!(100), json!(100), [256, 128, 128]),
        (Value::Null, json!(50), [256, 64, 64]),
        (json!(1), json!(256), [2, 256, 256]),
        (json!(0), json!(5), [0, 256, 256]),
        (json!(0), json!(0), [0, 0, 0]),
    ] {
        let world = World::new()
            .route("a", 1, "shard1", &["a.example"], spec(first.clone(), second.clone()))
            .service("one", 80, &["192.0.2.1"])
            .service("two", 80, &["192.0.2.2", "192.0.2.3"]);
        let weights: Vec<u16> = world.servers().into_iter().map(|(_, weight)| weight).collect();
        assert_eq!(weights, expected, "{first} {second}");
    }
}

/// The smallest weight of a server is 1: many endpoints of a small target would get more than its share.
#[test]
fn a_small_target_has_its_share() {
    for (large, small, endpoints, expected) in [
        (99, 1, 2, 0.01),
        (99, 1, 20, 0.01),
        (99, 1, 100, 0.01),
        (1, 1, 100, 0.5),
        (256, 1, 1, 0.004),
        (255, 2, 60, 0.008),
    ] {
        let spec =
            json!({"to": {"name": "one", "weight": large}, "alternateBackends": [{"name": "two", "weight": small}]});
        let addresses: Vec<String> = (1..=endpoints).map(|number| format!("192.0.2.{number}")).collect();
        let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
        let world = World::new()
            .route("a", 1, "shard1", &["a.example"], spec)
            .service("one", 80, &["198.51.100.1", "198.51.100.2"])
            .service("two", 80, &addresses);
        let servers = world.servers();
        let total = |network: &str| -> f64 {
            servers.iter().filter(|(at, _)| at.starts_with(network)).map(|(_, weight)| f64::from(*weight)).sum()
        };
        let share = total("192.0.2.") / total("");
        assert!((share / expected - 1.0).abs() < 0.3, "{small} of {large} with {endpoints} endpoints: {share}");
    }
}

#[test]
fn targets_of_one_route() {
    let spec = json!({"path": "/%61", "to": {"name": "one", "weight": 3}, "alternateBackends": [{"name": "none"}]});
    let World { routes, services, slices, .. } =
        World::new().route("a", 1, "shard1", &[], spec).service("one", 80, &["192.0.2.1", "!192.0.2.2"]);
    let (found, faults) = destinations(&routes[0], &services, &slices, Refused::default());
    let found: Vec<_> =
        found.iter().map(|target| (target.service.as_str(), target.weight, target.endpoints.len())).collect();
    assert_eq!(found, [("one", 3, 1), ("none", WEIGHT_DEFAULT, 0)]);
    let reasons: Vec<Reason> = faults.into_iter().map(|(reason, _)| reason).collect();
    assert_eq!(reasons, [Reason::Unsupported, Reason::NoService]);
}

#[test]
fn tls() {
    let spec = json!({"to": {"name": "web"}, "tls": {"termination": "reencrypt", "insecureEdgeTerminationPolicy": "Redirect"}});
    let (site, _) =
        World::new().route("a", 1, "shard1", &["a.example"], spec).service("web", 443, &["192.0.2.1"]).resolve();
    let upstream = &site.routes["test/a"];
    assert_eq!(upstream.uid, "uid-a");
    assert_eq!((upstream.termination, upstream.insecure), (Some(Termination::Reencrypt), Insecure::Redirect));
    assert_eq!(upstream.servers[0].tls_name.as_ref().map(Host::as_str), Some("web.test.svc"));
}

/// A change to the objects: which one, and in which of its states it is then; state 0: there is none.
type Step = (usize, usize);

/// Returns the objects of a small world in all their states.
fn changed((object, state): Step) -> Objects {
    let mut objects = Objects::default();
    let name = ["a", "b", "c"][object % 3];
    let exists = state > 0;
    let key = |name: &str| ("test".to_owned(), name.to_owned());
    match object / 3 {
        0 => {
            let uid = format!("uid-{name}-{}", state % 2);
            let metadata = json!({"namespace": "test", "name": name, "uid": uid, "creationTimestamp": format!("2026-01-01T00:00:0{state}Z")});
            let (target, path) = [("", ""), ("web", ""), ("api", "/shop"), ("none", "/%61")][state];
            let spec = json!({"to": {"name": target}, "path": path});
            let route = shared(json!({"metadata": metadata, "spec": spec}));
            objects.routes.push((key(name), exists.then_some(route)));
        }
        1 => {
            let router = ["", "shard1", "shard1", "shard2"][state];
            let names = [
                json!({"name": "shared.example", "type": "alias"}),
                json!({"name": format!("{name}.example"), "type": "system"}),
            ];
            let spec = json!({"routeNamespace": "test", "routeName": name, "routeUID": format!("uid-{name}-{}", state % 2), "router": router,
                "dns": "shard1.example", "label": name, "names": names[state % 2..], "strategy": "round-robin"});
            let metadata = json!({"namespace": "test", "name": name, "resourceVersion": format!("{}", 10 + state)});
            objects.bindings.push((key(name), exists.then(|| shared(json!({"metadata": metadata, "spec": spec})))));
        }
        2 => {
            let service = ["web", "api", "api"][object % 3];
            let ports = json!([{"port": 80 + state}]);
            objects.services.push((
                key(service),
                exists.then(|| {
                    shared(json!({"metadata": {"namespace": "test", "name": service}, "spec": {"ports": ports}}))
                }),
            ));
        }
        _ => {
            let service = ["", "web", "api", "api"][state];
            let labels = json!({SERVICE_LABEL: service});
            let endpoints = json!([{"addresses": [format!("192.0.2.{object}")], "conditions": {"ready": state != 3}}]);
            let slice = json!({"metadata": {"namespace": "test", "name": name, "labels": labels}, "addressType": "IPv4",
                "endpoints": endpoints, "ports": [{"port": 80}]});
            objects.slices.push((key(name), exists.then(|| shared(slice))));
        }
    }
    objects
}

proptest! {
    /// The outcome depends only on the current objects; and a layout that follows the changes has nothing left to do.
    #[test]
    fn changes_lead_to_what_the_objects_mean(steps in prop::collection::vec((0..12_usize, 0..4_usize), 1..60)) {
        let settings = Settings::default();
        let mut layout = Layout::new(&Site::default(), &settings);
        // Another layout follows later and in parts.
        let (mut late, mut pending) = (Layout::new(&Site::default(), &settings), std::collections::VecDeque::new());
        // Two of three Routes with servers are beyond a limit.
        let limits = Limits { route: 2, namespace: 2, router: 1 };
        let mut resolver = Resolver::new("shard1", Refused::default(), limits);
        for (at, step) in steps.iter().enumerate() {
            let (changes, _) = resolver.update(changed(*step));
            pending.extend(changes.clone());
            for change in pending.drain(..pending.len().min(step.1)) {
                let changes = [change].into_iter().collect();
                late.advance(resolver.site(), &resolver.site().certificates, Some(&changes)).expect("there is room");
            }
            layout.advance(resolver.site(), &resolver.site().certificates, Some(&changes.into_iter().collect())).expect("there is room");
            prop_assert_eq!(layout.advance(resolver.site(), &resolver.site().certificates, None), Some(vec![]));
            let mut fresh = Resolver::new("shard1", Refused::default(), limits);
            let last: BTreeMap<usize, usize> = steps[..=at].iter().map(|(object, state)| match object {
                // Both are Service "api".
                8 => (7, *state),
                other => (*other, *state),
            }).collect();
            last.into_iter().for_each(|step| _ = fresh.update(changed(step)));
            prop_assert_eq!(resolver.site(), fresh.site());
            prop_assert_eq!(&resolver.faults, &fresh.faults);
            let endpoints: usize = fresh.site().routes.values().map(Upstream::endpoints).sum();
            prop_assert_eq!((resolver.endpoints(), fresh.endpoints()), (endpoints, endpoints));
            prop_assert_eq!(resolver.revision(100), fresh.revision(100));
        }
        late.advance(resolver.site(), &resolver.site().certificates, Some(&pending.into_iter().collect())).expect("there is room");
        prop_assert_eq!(late.advance(resolver.site(), &resolver.site().certificates, None), Some(vec![]));
    }
}
