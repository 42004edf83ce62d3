//! Tests that the served state of a Router depends only on the current objects, and not on their history.

use proptest::prelude::*;
use serde_json::{Value, json};
use signpost_types::v1alpha1::route::WEIGHT_DEFAULT;

use super::*;
use crate::render::Settings;
use crate::render::haproxy::Layout;
use crate::site::{Insecure, Termination};

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
        let mut resolver = Resolver::new("shard1", false);
        let (_, mut faults) = resolver.update(Objects {
            routes: routes.iter().map(|object| (key(&object.metadata), Some(object.clone()))).collect(),
            bindings: bindings.iter().map(|object| (key(&object.metadata), Some(object.clone()))).collect(),
            services: services.iter().map(|object| (key(&object.metadata), Some(object.clone()))).collect(),
            slices: slices.iter().map(|object| (key(&object.metadata), Some(object.clone()))).collect(),
        });
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

fn to(name: &str) -> Value {
    json!({"to": {"kind": "Service", "name": name}})
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
    let cases: [(Value, &[&str], &str, Option<Reason>); 17] = [
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

#[test]
fn targets_of_one_route() {
    let spec = json!({"path": "/%61", "to": {"name": "one", "weight": 3}, "alternateBackends": [{"name": "none"}]});
    let World { routes, services, slices, .. } =
        World::new().route("a", 1, "shard1", &[], spec).service("one", 80, &["192.0.2.1", "!192.0.2.2"]);
    let (found, faults) = destinations(&routes[0], &services, &slices, false);
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
        let mut resolver = Resolver::new("shard1", false);
        for (at, step) in steps.iter().enumerate() {
            let (changes, _) = resolver.update(changed(*step));
            layout.advance(resolver.site(), Some(&changes)).expect("there is room");
            prop_assert_eq!(layout.advance(resolver.site(), None), Some(vec![]));
            let mut fresh = Resolver::new("shard1", false);
            let last: BTreeMap<usize, usize> = steps[..=at].iter().map(|(object, state)| match object {
                // Both are Service "api".
                8 => (7, *state),
                other => (*other, *state),
            }).collect();
            last.into_iter().for_each(|step| _ = fresh.update(changed(step)));
            prop_assert_eq!(resolver.site(), fresh.site());
            prop_assert_eq!(&resolver.faults, &fresh.faults);
            prop_assert_eq!(resolver.revision(100), fresh.revision(100));
        }
    }
}
