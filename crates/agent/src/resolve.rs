//! Objects of the API to the [`Site`] that a Router's instances serve. Pure.
//!
//! A Route is served on the Router that its RouteBinding names, under the names that the binding assigns, and no others. A Router
//! that a Route has left continues to serve it while the binding has a former name there, for clients whose resolvers still return
//! the old addresses.
//!
//! `port.targetPort` means a port of the endpoints by number or name, as in OpenShift; a number that no endpoint has means the port
//! of the Service with that number. A headless Service is like any other. A Service of type ExternalName is not supported: with it,
//! a tenant could make the router connect to hosts that only the router can reach.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServicePort};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use signpost_api::v1alpha1::route::{self, InsecurePolicy, Route, RouteSpec, Target, WEIGHT_DEFAULT};
use signpost_api::v1alpha1::route_binding::RouteBinding;

use crate::site::{Host, Insecure, PathPrefix, RouteKey, Server, Site, Termination, Upstream, WEIGHT_MAX};

/// The label of an EndpointSlice with the name of its Service.
pub const SERVICE_LABEL: &str = "kubernetes.io/service-name";

/// The objects from which a Site follows; those of other Routers and namespaces may be among them.
#[derive(Clone, Copy, Debug)]
pub struct Objects<'a> {
    /// The Routes.
    pub routes: &'a [Arc<Route>],
    /// The RouteBindings.
    pub bindings: &'a [Arc<RouteBinding>],
    /// The Services.
    pub services: &'a [Arc<Service>],
    /// The EndpointSlices.
    pub slices: &'a [Arc<EndpointSlice>],
}

/// A reason why a Route is not, or not wholly, served.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteFault {
    /// The Route.
    pub route: RouteKey,
    /// The reason.
    pub reason: Reason,
    /// The object and what is wrong with it.
    pub message: String,
}

/// The reason of a [`RouteFault`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// The Route has no target, or one that is not a Service.
    NoTarget,
    /// A target does not exist.
    NoService,
    /// A target does not have the Route's port.
    NoPort,
    /// No endpoint of any target is ready: requests get a 503.
    NoReadyEndpoints,
    /// An older Route has the same host and path.
    Conflict,
    /// The proxies do not support the Route's path or one of its names.
    Unsupported,
}

/// Resolves the Site of a Router. Endpoints on loopback addresses count only if `loopback` is set: on a machine that runs more than the
/// applications of one tenant, they are a way around its firewall.
pub fn resolve(router: &str, objects: Objects, loopback: bool) -> (Site, Vec<RouteFault>) {
    let routes: HashMap<_, _> = objects.routes.iter().map(|route| (id(&route.metadata), &**route)).collect();
    let backends = Backends::new(objects.services, objects.slices, loopback);
    let mut bound: Vec<_> = objects
        .bindings
        .iter()
        .filter(|binding| is_served(router, binding))
        .filter_map(|binding| {
            let route = *routes.get(&id(&binding.metadata))?;
            (route.metadata.uid.as_deref() == Some(&binding.spec.route_uid)).then_some((route, binding))
        })
        .collect();
    // The oldest Route wins a host and path that two have.
    let age = |route: &Route| route.metadata.creation_timestamp.as_ref().map(|time| time.0);
    bound.sort_by(|(one, _), (other, _)| (age(one), id(&one.metadata)).cmp(&(age(other), id(&other.metadata))));
    let (mut site, mut faults) = (Site::default(), Vec::new());
    for (route, binding) in bound {
        let (namespace, name) = key(&route.metadata);
        let Ok(key) = RouteKey::try_from(format!("{namespace}/{name}")) else { continue };
        let mut report = |reason, message| faults.push(RouteFault { route: key.clone(), reason, message });
        let Some(path) = path(&route.spec, &mut report) else { continue };
        let mut hosts = BTreeSet::new();
        for name in names(binding) {
            match name.parse::<Host>() {
                Ok(host) => _ = hosts.insert(host),
                Err(error) => report(Reason::Unsupported, error.to_string()),
            }
        }
        for host in hosts {
            let older = site.hosts.entry(host.clone()).or_default().entry(path.clone()).or_insert_with(|| key.clone());
            if *older != key {
                report(Reason::Conflict, format!("Route {older} is older and has {host}{path}, too"));
            }
        }
        let upstream =
            Upstream { uid: binding.spec.route_uid.clone(), ..backends.upstream(&namespace, &route.spec, &mut report) };
        site.routes.insert(key, upstream);
    }
    faults.sort();
    faults.dedup();
    (site, faults)
}

fn id(metadata: &ObjectMeta) -> (&str, &str) {
    (metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

fn key(metadata: &ObjectMeta) -> (String, String) {
    (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
}

/// Whether a Router serves the Route of a binding.
pub(crate) fn is_served(router: &str, binding: &RouteBinding) -> bool {
    binding.spec.router == router || binding.spec.former_names.iter().any(|former| former.router == router)
}

/// All names that the platform assigned.
fn names(binding: &RouteBinding) -> impl Iterator<Item = String> {
    let names = binding.spec.names.iter().map(|name| &name.name);
    names.chain(binding.spec.former_names.iter().map(|former| &former.name)).map(|name| name.to_ascii_lowercase())
}

/// The endpoints of one target of a Route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// The name of the Service.
    pub service: String,
    /// The weight of the target, which its endpoints share; 0 to 256.
    pub weight: u32,
    /// The endpoints that get requests.
    pub endpoints: BTreeSet<SocketAddr>,
}

/// Resolves the targets of one Route, as [`resolve`] does for all: its endpoints by target, and why it is not, or not wholly, served,
/// apart from conflicts with other Routes.
pub fn destinations(
    route: &Route,
    services: &[Arc<Service>],
    slices: &[Arc<EndpointSlice>],
    loopback: bool,
) -> (Vec<Destination>, Vec<(Reason, String)>) {
    let mut faults = Vec::new();
    let mut report = |reason, message| faults.push((reason, message));
    let (namespace, _) = key(&route.metadata);
    path(&route.spec, &mut report);
    let found = Backends::new(services, slices, loopback).destinations(&namespace, &route.spec, &mut report);
    (found, faults)
}

/// The path that a Route has on its hosts. With passthrough it has them all, because the proxy does not see any path.
fn path(spec: &RouteSpec, report: &mut impl FnMut(Reason, String)) -> Option<PathPrefix> {
    if spec.tls.as_ref().is_some_and(|tls| tls.termination == route::Termination::Passthrough) {
        return Some(PathPrefix::root());
    }
    match spec.path.as_deref().unwrap_or_default().trim_end_matches('/') {
        "" => Some(PathPrefix::root()),
        path => {
            let parsed = path.parse().ok();
            if parsed.is_none() {
                report(Reason::Unsupported, format!("path {path:?} is not supported by the proxies"));
            }
            parsed
        }
    }
}

/// Services and their endpoints by namespace and name.
struct Backends<'a> {
    services: BTreeMap<(String, String), &'a Service>,
    slices: BTreeMap<(String, String), Vec<&'a EndpointSlice>>,
    loopback: bool,
}

impl<'a> Backends<'a> {
    fn new(services: &'a [Arc<Service>], slices: &'a [Arc<EndpointSlice>], loopback: bool) -> Backends<'a> {
        let services = services.iter().map(|service| (key(&service.metadata), &**service)).collect();
        let mut by_service: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for slice in slices {
            let service = slice.metadata.labels.as_ref().and_then(|labels| labels.get(SERVICE_LABEL));
            if let Some(service) = service {
                let namespace = slice.metadata.namespace.clone().unwrap_or_default();
                by_service.entry((namespace, service.clone())).or_default().push(&**slice);
            }
        }
        Backends { services, slices: by_service, loopback }
    }

    fn upstream(&self, namespace: &str, spec: &RouteSpec, report: &mut impl FnMut(Reason, String)) -> Upstream {
        let termination = spec.tls.as_ref().map(|tls| match tls.termination {
            route::Termination::Edge => Termination::Edge,
            route::Termination::Passthrough => Termination::Passthrough,
            route::Termination::Reencrypt => Termination::Reencrypt,
        });
        let insecure = match spec.tls.as_ref().and_then(|tls| tls.insecure_edge_termination_policy) {
            None | Some(InsecurePolicy::None) => Insecure::None,
            Some(InsecurePolicy::Allow) => Insecure::Allow,
            Some(InsecurePolicy::Redirect) => Insecure::Redirect,
        };
        let mut shares: BTreeMap<(SocketAddr, Option<Host>), f64> = BTreeMap::new();
        for Destination { service, weight, endpoints } in self.destinations(namespace, spec, report) {
            let tls_name = match termination {
                Some(Termination::Reencrypt) => format!("{service}.{namespace}.svc").parse().ok(),
                _ => None,
            };
            let weight = f64::from(weight) / endpoints.len() as f64;
            for address in endpoints {
                *shares.entry((address, tls_name.clone())).or_default() += weight;
            }
        }
        Upstream { termination, insecure, servers: weighted(shares), ..Upstream::default() }
    }

    fn destinations(
        &self,
        namespace: &str,
        spec: &RouteSpec,
        report: &mut impl FnMut(Reason, String),
    ) -> Vec<Destination> {
        if spec.to.is_none() {
            report(Reason::NoTarget, "the Route has no target: set spec.to".to_owned());
        }
        let port = spec.port.as_ref().map(|port| &port.target_port);
        let mut found = Vec::new();
        for target in spec.to.iter().chain(&spec.alternate_backends) {
            let endpoints = self.endpoints(namespace, target, port, report);
            let weight = target.weight.unwrap_or(WEIGHT_DEFAULT);
            found.push(Destination { service: target.name.clone(), weight, endpoints });
        }
        if found.iter().all(|target| target.weight == 0 || target.endpoints.is_empty()) {
            report(Reason::NoReadyEndpoints, "no endpoint is ready: requests get a 503".to_owned());
        }
        found
    }

    /// The addresses of a target's endpoints that get requests.
    fn endpoints(
        &self,
        namespace: &str,
        target: &Target,
        port: Option<&IntOrString>,
        report: &mut impl FnMut(Reason, String),
    ) -> BTreeSet<SocketAddr> {
        let name = &target.name;
        if target.kind != "Service" {
            report(Reason::NoTarget, format!("target {name:?} has kind {:?}, which is not supported", target.kind));
            return BTreeSet::new();
        }
        let service = (namespace.to_owned(), name.clone());
        let Some(object) = self.services.get(&service) else {
            report(Reason::NoService, format!("Service {name} does not exist"));
            return BTreeSet::new();
        };
        let spec = object.spec.clone().unwrap_or_default();
        if spec.type_.as_deref() == Some("ExternalName") {
            report(Reason::Unsupported, format!("Service {name} has type ExternalName, which is not supported"));
            return BTreeSet::new();
        }
        let slices = self.slices.get(&service).map(Vec::as_slice).unwrap_or_default();
        let mut has_port = slices.is_empty();
        let mut found: Vec<(SocketAddr, bool)> = Vec::new();
        for slice in slices {
            for port in ports(slice, port, spec.ports.as_deref().unwrap_or_default()) {
                has_port = true;
                let endpoints = slice.endpoints.iter().flatten();
                found.extend(
                    endpoints.filter_map(|endpoint| Some((self.address(endpoint, port)?, is_ready(endpoint)?))),
                );
            }
        }
        if let (false, Some(port)) = (has_port, port) {
            let port = match port {
                IntOrString::Int(number) => number.to_string(),
                IntOrString::String(name) => name.clone(),
            };
            report(Reason::NoPort, format!("Service {name} has no endpoints with port {port}"));
        }
        // The endpoints that end are better than none: Kubernetes does the same.
        let ready = found.iter().any(|(_, ready)| *ready);
        let addresses = found.into_iter().filter(|(_, is_ready)| *is_ready == ready).map(|(address, _)| address);
        let (v4, v6): (BTreeSet<_>, BTreeSet<_>) = addresses.partition(SocketAddr::is_ipv4);
        // In a dual-stack cluster, both are the same endpoints.
        if v4.is_empty() { v6 } else { v4 }
    }

    /// The address of an endpoint, unless it is one that no application should be reached at.
    fn address(&self, endpoint: &Endpoint, port: u16) -> Option<SocketAddr> {
        let address: IpAddr = endpoint.addresses.first()?.parse().ok()?;
        let address = address.to_canonical();
        let link_local = match address {
            IpAddr::V4(address) => address.is_link_local() || address.is_broadcast(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let forbidden = link_local
            || address.is_unspecified()
            || address.is_multicast()
            || (address.is_loopback() && !self.loopback);
        (!forbidden).then_some(SocketAddr::new(address, port))
    }
}

/// Whether an endpoint is ready (`true`), or still serves while it ends (`false`).
fn is_ready(endpoint: &Endpoint) -> Option<bool> {
    let conditions = endpoint.conditions.clone().unwrap_or_default();
    let ending = conditions.terminating.unwrap_or(false);
    match conditions.ready.unwrap_or(true) && !ending {
        true => Some(true),
        false => (ending && conditions.serving.unwrap_or(false)).then_some(false),
    }
}

/// The TCP ports of a slice that a Route means.
fn ports(slice: &EndpointSlice, wanted: Option<&IntOrString>, of_service: &[ServicePort]) -> Vec<u16> {
    let is_tcp = |protocol: &Option<String>| protocol.as_deref().unwrap_or("TCP") == "TCP";
    let ports: Vec<_> = slice.ports.iter().flatten().filter(|port| is_tcp(&port.protocol)).collect();
    let named = |name: &str| -> Vec<_> {
        ports
            .iter()
            .filter(|port| port.name.as_deref().unwrap_or_default() == name)
            .filter_map(|port| port.port)
            .collect()
    };
    let numbers = match wanted {
        None => ports.iter().filter_map(|port| port.port).collect(),
        Some(IntOrString::Int(number)) if ports.iter().any(|port| port.port == Some(*number)) => vec![*number],
        // The ports of Services and of their slices have the same names; a single one may have none.
        Some(IntOrString::Int(number)) => {
            let port = of_service.iter().find(|port| port.port == *number && is_tcp(&port.protocol));
            port.map(|port| named(port.name.as_deref().unwrap_or_default())).unwrap_or_default()
        }
        Some(IntOrString::String(name)) => named(name),
    };
    numbers.into_iter().filter_map(|number| u16::try_from(number).ok().filter(|port| *port > 0)).collect()
}

/// Scales the shares so that the largest one has the largest weight, and none that is not 0 becomes 0.
fn weighted(shares: BTreeMap<(SocketAddr, Option<Host>), f64>) -> Vec<Server> {
    let largest = shares.values().copied().fold(0.0, f64::max);
    let weight = |share: f64| match share > 0.0 {
        true => ((share / largest * f64::from(WEIGHT_MAX)).round() as u16).max(1),
        false => 0,
    };
    shares.into_iter().map(|((address, tls_name), share)| Server { address, tls_name, weight: weight(share) }).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

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

        /// A Route that was created at a second, and its binding to a Router.
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

        /// A Service with endpoints on a port, of which those whose address begins with `!` are not ready, and those with `-` end.
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
                let endpoints: Vec<_> =
                    addresses.iter().filter(|text| text.contains(':') == v6).map(endpoint).collect();
                self.slices.push(shared(json!({"metadata": {"namespace": "test", "name": format!("{name}-{family}"),
                    "labels": {SERVICE_LABEL: name}}, "addressType": family, "endpoints": endpoints,
                    "ports": [{"name": "web", "port": port, "protocol": "TCP"}, {"name": "udp", "port": port, "protocol": "UDP"}]})));
            }
            self
        }

        fn resolve(&self) -> (Site, Vec<(String, Reason)>) {
            let World { routes, bindings, services, slices } = self;
            let (site, faults) = resolve("shard1", Objects { routes, bindings, services, slices }, false);
            (site, faults.into_iter().map(|fault| (fault.route.to_string(), fault.reason)).collect())
        }

        /// The servers of the Route `test/a`.
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
            let external =
                json!({"metadata": {"namespace": "test", "name": "external"}, "spec": {"type": "ExternalName"}});
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
}
