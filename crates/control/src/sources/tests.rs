//! Tables of the cases of Gateway API, OpenShift and Ingresses.

use serde_json::{Value, json};

use super::gateway::intersection;
use super::*;

fn settings() -> Settings {
    Settings {
        modes: Family::ALL.into_iter().map(|family| (family, Mode::Publish)).collect(),
        domain: "c.example".to_owned(),
        domains: vec!["extra.example".to_owned()],
        gateway_controllers: Vec::new(),
        ingress_classes: BTreeMap::from([("nginx".to_owned(), "web.c.example".to_owned())]),
        namespace_selector: None,
        annotation_prefixes: ANNOTATION_PREFIXES.map(str::to_owned).into(),
        private_addresses: false,
    }
}

/// The cases of the specification, and those of its conformance suite for listeners and Routes.
#[test]
fn hosts_in_common() {
    for (listener, route, expected) in [
        ("", "", None),
        ("", "a.example.com", Some("a.example.com")),
        ("a.example.com", "", Some("a.example.com")),
        ("very.specific.com", "very.specific.com", Some("very.specific.com")),
        ("very.specific.com", "*.specific.com", Some("very.specific.com")),
        ("very.specific.com", "non.matching.com", None),
        ("*.wildcard.io", "foo.wildcard.io", Some("foo.wildcard.io")),
        ("*.wildcard.io", "foo.bar.wildcard.io", Some("foo.bar.wildcard.io")),
        ("*.wildcard.io", "*.bar.wildcard.io", Some("*.bar.wildcard.io")),
        ("*.wildcard.io", "*.wildcard.io", Some("*.wildcard.io")),
        // A wildcard does not cover its base, nor a name that only ends in the same letters.
        ("*.wildcard.io", "wildcard.io", None),
        ("*.wildcard.io", "notwildcard.io", None),
        ("*.anotherwildcard.io", "*.wildcard.io", None),
        ("*.Wildcard.IO", "FOO.wildcard.io", Some("foo.wildcard.io")),
        ("192.0.2.1", "192.0.2.1", None),
        ("*.example.com", "under_score..example.com", None),
    ] {
        assert_eq!(intersection(listener, route).as_deref(), expected, "{listener} {route}");
        assert_eq!(intersection(route, listener).as_deref(), expected, "{route} {listener}");
    }
}

fn add(inventory: &mut Inventory, kind: Kind, objects: Vec<Value>) {
    inventory.add(kind, objects, &settings().annotation_prefixes);
}

fn gateway(edit: impl FnOnce(&mut Value)) -> Value {
    let mut gateway = json!({
        "metadata": {"name": "eu", "namespace": "infra"},
        "spec": {"gatewayClassName": "envoy", "listeners": [
            {"name": "https", "hostname": "*.eu.c.example", "port": 443, "protocol": "HTTPS",
             "allowedRoutes": {"namespaces": {"from": "All"}}},
        ]},
        "status": {"addresses": [{"value": "203.0.113.1"}], "conditions": [{"type": "Programmed", "status": "True"}]},
    });
    edit(&mut gateway);
    gateway
}

fn http_route(edit: impl FnOnce(&mut Value)) -> Value {
    let parent = json!({"name": "eu", "namespace": "infra"});
    let mut route = json!({
        "metadata": {"name": "web", "namespace": "shop", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"hostnames": ["web.eu.c.example"], "parentRefs": [parent]},
        "status": {"parents": [{
            "parentRef": parent, "controllerName": "example.com/envoy",
            "conditions": [{"type": "Accepted", "status": "True"}],
        }]},
    });
    edit(&mut route);
    route
}

fn inventory(gateways: Vec<Value>, routes: Vec<Value>) -> Inventory {
    let mut inventory = Inventory::default();
    let class = json!({
        "metadata": {"name": "envoy"}, "spec": {"controllerName": "example.com/envoy"},
        "status": {"conditions": [{"type": "Accepted", "status": "True"}]},
    });
    add(&mut inventory, Kind::GatewayClass, vec![class]);
    add(&mut inventory, Kind::Gateway, gateways);
    add(&mut inventory, Kind::HTTPRoute, routes);
    let namespace = |name: &str, team: &str| json!({"metadata": {"name": name, "labels": {"team": team}}});
    add(&mut inventory, Kind::Namespace, vec![namespace("shop", "a"), namespace("bank", "b")]);
    let service = json!({"metadata": {"name": "s", "namespace": "shop"}, "spec": {"clusterIP": "198.51.100.9"}});
    add(&mut inventory, Kind::Service, vec![service]);
    inventory
}

/// Returns a summary of the result: zones with addresses, hosts, and the reasons of notes.
fn short(inventory: &Inventory, settings: &Settings) -> String {
    let derived = derive(inventory, settings);
    assert_eq!(derive(inventory, settings), derived);
    let shard = |shard: &Shard| {
        let targets = shard.addresses.iter().map(ToString::to_string).chain(shard.host_names.iter().cloned());
        format!("{}={}", shard.dns, targets.collect::<Vec<_>>().join(","))
    };
    let mut shards: Vec<String> = derived.shards.iter().map(shard).collect();
    shards.sort();
    let names = derived.names.iter().map(|name| {
        let zone = derived.shards.iter().find(|shard| shard.name == name.shard).expect("a name has a shard");
        assert_eq!(name.in_zone, is_at_or_below(&name.host, &zone.dns));
        name.host.clone()
    });
    let mut notes: Vec<String> = derived.notes.iter().map(|note| format!("!{:?}", note.reason)).collect();
    notes.sort();
    shards.into_iter().chain(names).chain(notes).collect::<Vec<_>>().join(" ")
}

type Edit = fn(&mut Value);

/// A Gateway and a Route that are not changed.
const SAME: Edit = |_| {};

/// Derives a Gateway and a Route after these changes.
fn check(cases: &[(&str, Edit, Edit, &str)]) {
    for (what, edit_gateway, edit_route, expected) in cases {
        let inventory = inventory(vec![gateway(*edit_gateway)], vec![http_route(*edit_route)]);
        assert_eq!(short(&inventory, &settings()), *expected, "{what}");
    }
}

#[test]
fn shards_of_gateways() {
    check(&[
        ("without a change", SAME, SAME, "eu.c.example=203.0.113.1 web.eu.c.example"),
        (
            "it has a class without a controller",
            |gateway| gateway["spec"]["gatewayClassName"] = "other".into(),
            SAME,
            "!ClassNotAccepted",
        ),
        (
            "nothing programs it",
            |gateway| gateway["status"]["conditions"][0]["status"] = "False".into(),
            SAME,
            "!NotProgrammed",
        ),
        (
            "addresses of all types",
            |gateway| {
                gateway["status"]["addresses"] = json!([
                    {"type": "IPAddress", "value": "2001:db8::1"}, {"type": "Hostname", "value": "lb.cloud.example"},
                    {"type": "Hostname", "value": "eu.infra.svc.cluster.local"}, {"value": "198.51.100.9"},
                    {"value": "127.0.0.1"}, {"value": "10.0.0.1"}, {"value": "169.254.1.1"}, {"value": "rubbish!"},
                ]);
            },
            SAME,
            "eu.c.example=2001:db8::1,lb.cloud.example web.eu.c.example !AddressRefused !AddressRefused !AddressRefused \
             !AddressRefused !AddressRefused !AddressRefused",
        ),
        (
            "the annotation replaces its addresses, and the older prefix counts, too",
            |gateway| {
                gateway["metadata"]["annotations"] =
                    json!({"external-dns.alpha.kubernetes.io/target": "203.0.113.8, 203.0.113.9"});
            },
            SAME,
            "eu.c.example=203.0.113.8,203.0.113.9 web.eu.c.example",
        ),
        (
            "no address yet",
            |gateway| gateway["status"]["addresses"] = json!([]),
            SAME,
            "eu.c.example= web.eu.c.example !NoAddress",
        ),
        (
            "two bases are two shards",
            |gateway| {
                let second = json!({"name": "b", "hostname": "*.extra.c.example", "port": 80, "protocol": "HTTP"});
                gateway["spec"]["listeners"].as_array_mut().expect("a list").push(second);
            },
            SAME,
            "eu.c.example=203.0.113.1 extra.c.example=203.0.113.1 web.eu.c.example",
        ),
        (
            "without a wildcard the zone has its name, and hosts are custom",
            |gateway| gateway["spec"]["listeners"][0]["hostname"] = Value::Null,
            |route| route["spec"]["hostnames"] = json!(["www.shop.example"]),
            "eu.c.example=203.0.113.1 www.shop.example",
        ),
        (
            "the annotation names the zone",
            |gateway| {
                gateway["spec"]["listeners"][0]["hostname"] = "www.shop.example".into();
                gateway["metadata"]["annotations"] = json!({"signpost.dev/dns": "apps.c.example"});
            },
            |route| route["spec"]["hostnames"] = json!([]),
            "apps.c.example=203.0.113.1 www.shop.example",
        ),
    ]);
}

#[test]
fn accepted_routes() {
    check(&[
        (
            "a zone outside the domains is left out with its names",
            |gateway| gateway["spec"]["listeners"][0]["hostname"] = "*.other.example".into(),
            |route| route["spec"]["hostnames"] = json!(["web.other.example"]),
            "!OutsideDomain",
        ),
        (
            "a further domain counts",
            |gateway| gateway["spec"]["listeners"][0]["hostname"] = "*.eu.extra.example".into(),
            |route| route["spec"]["hostnames"] = json!(["web.eu.extra.example"]),
            "eu.extra.example=203.0.113.1 web.eu.extra.example",
        ),
        (
            "no router has accepted the Route",
            SAME,
            |route| route["status"]["parents"][0]["conditions"][0]["status"] = "False".into(),
            "eu.c.example=203.0.113.1 !NotAdmitted",
        ),
        (
            "the controller of another class has accepted it",
            SAME,
            |route| route["status"]["parents"][0]["controllerName"] = "example.com/other".into(),
            "eu.c.example=203.0.113.1 !NotAdmitted",
        ),
        (
            "a stale status for a parent that it has no longer",
            SAME,
            |route| route["spec"]["parentRefs"][0]["sectionName"] = "https".into(),
            "eu.c.example=203.0.113.1 !NotAdmitted",
        ),
        (
            "a parent of another kind is ignored",
            SAME,
            |route| route["spec"]["parentRefs"][0]["kind"] = "Service".into(),
            "eu.c.example=203.0.113.1",
        ),
        (
            "hosts that match nothing are left out one by one",
            SAME,
            |route| route["spec"]["hostnames"] = json!(["a.eu.c.example", "b.other.example", "*.x.eu.c.example"]),
            "eu.c.example=203.0.113.1 *.x.eu.c.example a.eu.c.example !HostNotServed",
        ),
    ]);
}

#[test]
fn attached_routes() {
    check(&[
        (
            "without a host, that of the listener",
            SAME,
            |route| route["spec"]["hostnames"] = json!([]),
            "eu.c.example=203.0.113.1 *.eu.c.example",
        ),
        (
            "neither has a host",
            |gateway| gateway["spec"]["listeners"][0]["hostname"] = Value::Null,
            |route| route["spec"]["hostnames"] = json!([]),
            "eu.c.example=203.0.113.1 !NoHost",
        ),
        (
            "the listener allows its own namespace only, by default",
            |gateway| gateway["spec"]["listeners"][0]["allowedRoutes"] = Value::Null,
            SAME,
            "eu.c.example=203.0.113.1 !HostNotServed",
        ),
        (
            "the listener selects the namespace",
            |gateway| {
                gateway["spec"]["listeners"][0]["allowedRoutes"]["namespaces"] =
                    json!({"from": "Selector", "selector": {"matchLabels": {"team": "a"}}});
            },
            SAME,
            "eu.c.example=203.0.113.1 web.eu.c.example",
        ),
        (
            "the listener selects other namespaces",
            |gateway| {
                gateway["spec"]["listeners"][0]["allowedRoutes"]["namespaces"] =
                    json!({"from": "Selector", "selector": {"matchLabels": {"team": "b"}}});
            },
            SAME,
            "eu.c.example=203.0.113.1 !HostNotServed",
        ),
        (
            "the listener takes other kinds",
            |gateway| gateway["spec"]["listeners"][0]["allowedRoutes"]["kinds"] = json!([{"kind": "GRPCRoute"}]),
            SAME,
            "eu.c.example=203.0.113.1 !HostNotServed",
        ),
        (
            "an object of another shape is named",
            |gateway| gateway["spec"]["listeners"] = "none".into(),
            SAME,
            "!Invalid",
        ),
    ]);
}

#[test]
fn listener_sets() {
    let set = |accepted: &str| {
        json!({
            "metadata": {"name": "more", "namespace": "shop"},
            "spec": {"parentRef": {"name": "eu", "namespace": "infra"}, "listeners": [
                {"name": "x", "hostname": "*.more.c.example", "port": 443, "protocol": "HTTPS"},
            ]},
            "status": {"conditions": [{"type": "Accepted", "status": accepted}]},
        })
    };
    let route = || {
        http_route(|route| {
            let parent = json!({"kind": "ListenerSet", "name": "more"});
            route["spec"]["hostnames"] = json!(["web.more.c.example"]);
            route["spec"]["parentRefs"][0] = parent.clone();
            route["status"]["parents"][0]["parentRef"] = parent;
        })
    };
    for (from, accepted, expected) in [
        (Some("All"), "True", "eu.c.example=203.0.113.1 more.c.example=203.0.113.1 web.more.c.example"),
        (Some("Same"), "True", "eu.c.example=203.0.113.1"),
        // No namespace may add listeners by default.
        (None, "True", "eu.c.example=203.0.113.1"),
        (Some("All"), "False", "eu.c.example=203.0.113.1"),
    ] {
        let of_gateway = gateway(|gateway| {
            gateway["spec"]["allowedListeners"] = json!({"namespaces": {"from": from}});
        });
        let mut inventory = inventory(vec![of_gateway], vec![route()]);
        add(&mut inventory, Kind::ListenerSet, vec![set(accepted)]);
        assert_eq!(short(&inventory, &settings()), expected, "{from:?} {accepted}");
    }
}

/// The oldest of two objects has the host, and the alias leads to one of two parents.
#[test]
fn conflicts() {
    let named = |name: &'static str, namespace: &'static str, year: u32| {
        http_route(move |route| {
            route["metadata"] = json!({
                "name": name, "namespace": namespace, "creationTimestamp": format!("{year}-01-01T00:00:00Z"),
            });
        })
    };
    let routes = vec![named("a", "shop", 2026), named("b", "bank", 2024), named("c", "shop", 2025)];
    let found = derive(&inventory(vec![gateway(|_| {})], routes), &settings());
    let holders: Vec<String> = found.names.iter().map(|name| name.source.to_string()).collect();
    assert_eq!(holders, ["HTTPRoute bank/b"]);
    let taken: Vec<String> = found.notes.iter().map(|note| format!("{:?} {}", note.reason, note.source)).collect();
    assert_eq!(taken, ["Taken HTTPRoute shop/a", "Taken HTTPRoute shop/c"]);

    // Routes of one namespace share a host.
    let routes = vec![named("a", "shop", 2026), named("c", "shop", 2025)];
    assert_eq!(
        short(&inventory(vec![gateway(|_| {})], routes), &settings()),
        "eu.c.example=203.0.113.1 web.eu.c.example"
    );

    // Two Gateways with one zone.
    let us = gateway(|gateway| gateway["metadata"]["name"] = "us".into());
    let inventory = inventory(vec![gateway(|_| {}), us], Vec::new());
    assert_eq!(short(&inventory, &settings()), "eu.c.example=203.0.113.1 !DomainAlreadyInUse");
}

#[test]
fn names_of_objects() {
    let source = |namespace: &str, name: &str| Source {
        kind: Kind::Gateway.name(),
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    };
    let a = shard_name("gw", &source("a-b", "c"), "x.example");
    assert!(a.starts_with("gw-a-b-c-") && a.len() <= NAME_BYTES_MAX, "{a}");
    assert_ne!(a, shard_name("gw", &source("a", "b-c"), "x.example"));
    assert_ne!(a, shard_name("gw", &source("a-b", "c"), "y.example"));
    let long = shard_name("gw", &source(&"n".repeat(63), &"g".repeat(200)), "x.example");
    assert_eq!(long.len(), NAME_BYTES_MAX);
    assert_ne!(long, shard_name("gw", &source(&"n".repeat(63), &"g".repeat(201)), "x.example"));
}

#[test]
fn ingress_controllers() {
    let controller = |name: &str, strategy: &str, annotations: Value| {
        json!({
            "metadata": {"name": name, "namespace": "openshift-ingress-operator", "annotations": annotations},
            "status": {"domain": format!("{name}.c.example"), "endpointPublishingStrategy": {"type": strategy}},
        })
    };
    let no = || json!({});
    let with_annotation = || json!({"signpost.dev/addresses": "203.0.113.5,203.0.113.6"});
    for (object, expected) in [
        (controller("sharded", "HostNetwork", no()), "sharded.c.example=203.0.113.21,203.0.113.22"),
        // The virtual address of the cluster.
        (controller("default", "HostNetwork", no()), "default.c.example=203.0.113.10"),
        (controller("cloud", "LoadBalancerService", no()), "cloud.c.example=lb.cloud.example"),
        (controller("gone", "LoadBalancerService", no()), "gone.c.example= !NoAddress !Unknown"),
        (controller("private", "Private", no()), "private.c.example= !NoAddress !NoAddress"),
        (controller("private", "Private", with_annotation()), "private.c.example=203.0.113.5,203.0.113.6"),
    ] {
        let mut inventory = Inventory::default();
        add(&mut inventory, Kind::IngressController, vec![object]);
        let endpoint = |ip: &str, ready: bool| json!({"addresses": [ip], "conditions": {"ready": ready}});
        let slice = json!({
            "metadata": {"name": "s", "namespace": "openshift-ingress",
                         "labels": {"kubernetes.io/service-name": "router-internal-sharded"}},
            "addressType": "IPv4",
            "endpoints": [endpoint("203.0.113.21", true), endpoint("203.0.113.22", true), endpoint("203.0.113.23", false)],
        });
        add(&mut inventory, Kind::EndpointSlice, vec![slice]);
        let service = json!({
            "metadata": {"name": "router-cloud", "namespace": "openshift-ingress"},
            "status": {"loadBalancer": {"ingress": [{"hostname": "lb.cloud.example"}]}},
        });
        add(&mut inventory, Kind::Service, vec![service]);
        let infrastructure = json!({"metadata": {"name": "cluster"}, "status": {"platformStatus": {"type": "BareMetal", "baremetal": {"ingressIPs": ["203.0.113.10"]}}}});
        add(&mut inventory, Kind::Infrastructure, vec![infrastructure]);
        assert_eq!(short(&inventory, &settings()), expected);
    }
}

#[test]
fn openshift_routes() {
    let entry = |host: &str, router: &str, admitted: &str| json!({"host": host, "routerName": router, "conditions": [{"type": "Admitted", "status": admitted}]});
    for (entries, expected) in [
        (
            json!([entry("web-shop.apps.c.example", "default", "True")]),
            "apps.c.example=203.0.113.5 web-shop.apps.c.example",
        ),
        (json!([entry("www.shop.example", "default", "True")]), "apps.c.example=203.0.113.5 www.shop.example"),
        (json!([entry("web-shop.apps.c.example", "default", "False")]), "apps.c.example=203.0.113.5 !NotAdmitted"),
        (json!([entry("web-shop.apps.c.example", "other", "True")]), "apps.c.example=203.0.113.5 !Unknown"),
        (json!([]), "apps.c.example=203.0.113.5 !NotAdmitted"),
    ] {
        let mut inventory = Inventory::default();
        let controller = json!({
            "metadata": {"name": "default", "namespace": "openshift-ingress-operator",
                         "annotations": {"signpost.dev/addresses": "203.0.113.5"}},
            "status": {"domain": "apps.c.example"},
        });
        add(&mut inventory, Kind::IngressController, vec![controller]);
        let route = json!({"metadata": {"name": "web", "namespace": "shop"}, "status": {"ingress": entries}});
        add(&mut inventory, Kind::Route, vec![route]);
        assert_eq!(short(&inventory, &settings()), expected);
    }
}

#[test]
fn ingresses() {
    let ingress = |spec: Value, annotations: Value, ip: Option<&str>| {
        let reported: Vec<Value> = ip.iter().map(|ip| json!({"ip": ip})).collect();
        json!({
            "metadata": {"name": "web", "namespace": "shop", "annotations": annotations},
            "spec": spec, "status": {"loadBalancer": {"ingress": reported}},
        })
    };
    let rules = |class: &str, hosts: &[&str]| {
        let rules: Vec<Value> = hosts.iter().map(|host| json!({"host": host})).collect();
        json!({"ingressClassName": if class.is_empty() { Value::Null } else { class.into() }, "rules": rules})
    };
    let ip = Some("203.0.113.7");
    let old = json!({"kubernetes.io/ingress.class": "nginx"});
    for (object, expected) in [
        (
            ingress(rules("nginx", &["a.web.c.example", "www.shop.example"]), json!({}), ip),
            "web.c.example=203.0.113.7 a.web.c.example www.shop.example",
        ),
        (ingress(rules("", &["a.web.c.example"]), old, ip), "web.c.example=203.0.113.7 a.web.c.example"),
        // The default class.
        (ingress(rules("", &["a.web.c.example"]), json!({}), ip), "web.c.example=203.0.113.7 a.web.c.example"),
        (ingress(rules("other", &["a.web.c.example"]), json!({}), ip), "!ClassNotAccepted"),
        (ingress(rules("nginx", &[]), json!({}), ip), "web.c.example=203.0.113.7 !NoHost"),
        (ingress(rules("nginx", &["a.web.c.example"]), json!({}), None), "web.c.example= !NoAddress !NotAdmitted"),
    ] {
        let mut inventory = Inventory::default();
        add(&mut inventory, Kind::Ingress, vec![object]);
        let class = json!({
            "metadata": {"name": "nginx", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
        });
        add(&mut inventory, Kind::IngressClass, vec![class]);
        assert_eq!(short(&inventory, &settings()), expected);
    }
}
