//! Tables of the cases of Gateway API, OpenShift and Ingresses.

use serde_json::{Value, json};

use super::gateway::intersection;
use super::*;
use signpost_types::names::is_at_or_below;

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

/// Returns a summary of the result: zones with addresses, `@` for those whose own name has them, and TTLs; hosts; the reasons of notes.
fn short(inventory: &Inventory, settings: &Settings) -> String {
    let derived = derive(inventory, settings);
    assert_eq!(derive(inventory, settings), derived);
    let shard = |shard: &Arc<Shard>| {
        let targets = shard.addresses.iter().map(ToString::to_string).chain(shard.host_names.iter().cloned());
        let (apex, ttl) = (if shard.has_apex { "@" } else { "" }, shard.ttl.map(|ttl| ttl.to_string()));
        format!("{}={}{apex}{}", shard.dns, targets.collect::<Vec<_>>().join(","), ttl.unwrap_or_default())
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
    ]);
}

/// Gateways in the shapes in which some controllers have them.
#[test]
fn unusual_gateways() {
    check(&[
        (
            "a listener for the zone's own name",
            |gateway| {
                let own = json!({"name": "own", "hostname": "eu.c.example", "port": 443, "protocol": "HTTPS",
                                 "allowedRoutes": {"namespaces": {"from": "All"}}});
                gateway["spec"]["listeners"].as_array_mut().expect("a list").push(own);
            },
            |route| route["spec"]["hostnames"] = json!(["eu.c.example"]),
            "eu.c.example=203.0.113.1@ eu.c.example",
        ),
        (
            "listeners of other protocols mean nothing, such as that of a waypoint",
            |gateway| gateway["spec"]["listeners"][0]["protocol"] = "HBONE".into(),
            SAME,
            "!NoHost",
        ),
        (
            "its operator names the address that its controller lacks",
            |gateway| {
                gateway["metadata"]["annotations"] = json!({"external-dns.kubernetes.io/target": "203.0.113.8"});
                gateway["status"] = json!({"conditions": [
                    {"type": "Programmed", "status": "False", "reason": "AddressNotAssigned"}]});
            },
            SAME,
            "eu.c.example=203.0.113.8 web.eu.c.example",
        ),
    ]);
}

#[test]
fn zones_and_addresses_of_gateways() {
    check(&[
        (
            "the zone is the domain of the platform",
            |gateway| gateway["spec"]["listeners"][0]["hostname"] = "*.c.example".into(),
            SAME,
            "!OutsideDomain",
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
            "another controller has written a refusal in the name of the first",
            SAME,
            |route| {
                let mut refusal = route["status"]["parents"][0].clone();
                refusal["conditions"][0]["status"] = "False".into();
                route["status"]["parents"].as_array_mut().expect("a list").insert(0, refusal);
            },
            "eu.c.example=203.0.113.1 web.eu.c.example",
        ),
        (
            "annotations of external-dns without an effect are noted",
            |gateway| gateway["metadata"]["annotations"] = json!({"external-dns.alpha.kubernetes.io/ttl": "60"}),
            |route| {
                route["metadata"]["annotations"] = json!({
                    "external-dns.kubernetes.io/hostname": "more.eu.c.example",
                    "external-dns.kubernetes.io/target": "203.0.113.8",
                });
            },
            "eu.c.example=203.0.113.1 web.eu.c.example !AnnotationIgnored !AnnotationIgnored",
        ),
        (
            "more than one label below the zone",
            SAME,
            |route| route["spec"]["hostnames"] = json!(["a.b.eu.c.example"]),
            "eu.c.example=203.0.113.1 a.b.eu.c.example !SeveralLabels",
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
            "eu.c.example=203.0.113.1 *.x.eu.c.example a.eu.c.example !HostNotServed !SeveralLabels",
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
    // A controller can refuse one listener of an accepted set.
    let with = "eu.c.example=203.0.113.1 more.c.example=203.0.113.1 web.more.c.example";
    for (name, conditions, is_used) in [
        ("x", json!([{"type": "Accepted", "status": "True"}, {"type": "Conflicted", "status": "False"}]), true),
        ("x", json!([{"type": "Accepted", "status": "False"}]), false),
        ("x", json!([{"type": "Accepted", "status": "Unknown"}]), true),
        ("x", json!([{"type": "Conflicted", "status": "True"}]), false),
        ("other", json!([{"type": "Accepted", "status": "False"}]), true),
        ("x", json!([]), true),
    ] {
        let mut set = set("True");
        set["status"]["listeners"] = json!([{"name": name, "conditions": conditions}]);
        let of_gateway = gateway(|gateway| {
            gateway["spec"]["allowedListeners"] = json!({"namespaces": {"from": "All"}});
        });
        let mut inventory = inventory(vec![of_gateway], vec![route()]);
        add(&mut inventory, Kind::ListenerSet, vec![set]);
        let expected = if is_used { with } else { "eu.c.example=203.0.113.1" };
        assert_eq!(short(&inventory, &settings()), expected, "{name} {conditions}");
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

    // Two Gateways with one zone: the older one has it, not the first by name.
    let aged = |name: &'static str, year: u32| {
        gateway(move |gateway| {
            let created = format!("{year}-01-01T00:00:00Z");
            gateway["metadata"] = json!({"name": name, "namespace": "infra", "creationTimestamp": created});
        })
    };
    let found = derive(&inventory(vec![aged("a", 2026), aged("z", 2024)], Vec::new()), &settings());
    assert_eq!(found.shards[0].source.to_string(), "Gateway infra/z");
    let note = found.notes.iter().find(|note| note.reason == Reason::DomainAlreadyInUse).expect("a note");
    assert_eq!(note.source.to_string(), "Gateway infra/a");
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
        (controller("gone", "LoadBalancerService", no()), "gone.c.example= !Unknown"),
        (controller("private", "Private", no()), "private.c.example= !NoAddress"),
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

/// Each list of each kind.
#[test]
fn empty_lists_that_are_null() {
    let status = |field: &str| json!({"status": {field: null}});
    for (kind, object) in [
        (Kind::EndpointSlice, json!({"endpoints": null})),
        (Kind::EndpointSlice, json!({"endpoints": [{"addresses": null, "conditions": null}]})),
        (Kind::Service, json!({"spec": {"clusterIPs": null, "externalIPs": null}})),
        (Kind::Service, json!({"status": {"loadBalancer": {"ingress": null}}})),
        (Kind::Ingress, json!({"spec": {"rules": null}, "status": {"loadBalancer": {"ingress": null}}})),
        (Kind::GatewayClass, status("conditions")),
        (Kind::Gateway, json!({"spec": {"listeners": null}, "status": {"conditions": null, "addresses": null}})),
        (Kind::Gateway, json!({"spec": {"listeners": [{"name": "a", "allowedRoutes": {"kinds": null}}]}})),
        (Kind::ListenerSet, json!({"spec": {"listeners": null}, "status": {"conditions": null, "listeners": null}})),
        (Kind::ListenerSet, json!({"status": {"listeners": [{"name": "a", "conditions": null}]}})),
        (Kind::HTTPRoute, json!({"spec": {"hostnames": null, "parentRefs": null}, "status": {"parents": null}})),
        (Kind::HTTPRoute, json!({"status": {"parents": [{"conditions": null}]}})),
        (Kind::IngressController, status("conditions")),
        (Kind::Infrastructure, status("platformStatus")),
        (Kind::Route, status("ingress")),
        (Kind::Route, json!({"status": {"ingress": [{"host": "a.c.example", "conditions": null}]}})),
        (Kind::Namespace, json!({"metadata": {"name": "a", "labels": null, "annotations": null}})),
    ] {
        let found = read(kind, &object);
        assert!(found.is_ok(), "{object}: {found:?}");
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
    let target = |text: &str| json!({"external-dns.kubernetes.io/target": text});
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
        // Its annotation neither changes the addresses of the class nor admits it.
        (
            ingress(rules("nginx", &["a.web.c.example"]), target("203.0.113.66"), ip),
            "web.c.example=203.0.113.7 a.web.c.example !AnnotationIgnored",
        ),
        (
            ingress(rules("nginx", &["a.web.c.example"]), target("203.0.113.66"), None),
            "web.c.example= !AnnotationIgnored !NoAddress !NotAdmitted",
        ),
    ] {
        let mut inventory = Inventory::default();
        add(&mut inventory, Kind::Ingress, vec![object]);
        let class = json!({
            "metadata": {"name": "nginx", "annotations": {"ingressclass.kubernetes.io/is-default-class": "true"}},
        });
        add(&mut inventory, Kind::IngressClass, vec![class]);
        assert_eq!(short(&inventory, &settings()), expected);
    }
    // That of the class, which only its operator can write, replaces what its controller reports.
    let mut inventory = Inventory::default();
    add(&mut inventory, Kind::Ingress, vec![ingress(rules("nginx", &["a.web.c.example"]), json!({}), ip)]);
    let class = json!({"metadata": {"name": "nginx", "annotations": target("203.0.113.8,lb.cloud.example")}});
    add(&mut inventory, Kind::IngressClass, vec![class]);
    assert_eq!(short(&inventory, &settings()), "web.c.example=203.0.113.8,lb.cloud.example a.web.c.example");
}

/// Services with the annotation of external-dns: spec, annotations without their prefix, load balancer.
#[test]
fn services() {
    let balancer = || json!({"type": "LoadBalancer"});
    let ip = || json!([{"ip": "203.0.113.7"}]);
    let host = |hosts: &str| json!({"hostname": hosts});
    for (spec, annotations, ingress, expected) in [
        (balancer(), host("db.c.example"), ip(), "db.c.example=203.0.113.7@"),
        (balancer(), host(" DB.c.example. ,"), ip(), "db.c.example=203.0.113.7@"),
        (balancer(), json!({}), ip(), ""),
        (json!({"type": "ClusterIP"}), host("db.c.example"), ip(), ""),
        // A wildcard is a shard; its base can have the addresses, too; hosts below it are names of it.
        (balancer(), host("*.apps.c.example"), ip(), "apps.c.example=203.0.113.7"),
        (
            balancer(),
            host("*.apps.c.example,apps.c.example,a.b.apps.c.example"),
            ip(),
            "apps.c.example=203.0.113.7@ a.b.apps.c.example !SeveralLabels",
        ),
        (balancer(), host("a.c.example,b.a.c.example"), ip(), "a.c.example=203.0.113.7@ b.a.c.example=203.0.113.7@"),
        // Both families, a host name, and an address through which traffic goes by a proxy.
        (
            balancer(),
            host("db.c.example"),
            json!([{"ip": "203.0.113.7", "ipMode": "Proxy"}, {"ip": "2001:db8::7"}, {"hostname": "lb.cloud.example"}]),
            "db.c.example=203.0.113.7,2001:db8::7,lb.cloud.example@",
        ),
        (
            json!({"type": "LoadBalancer", "externalIPs": ["203.0.113.8"]}),
            host("db.c.example"),
            ip(),
            "db.c.example=203.0.113.8@",
        ),
        (
            balancer(),
            json!({"hostname": "db.c.example", "target": "203.0.113.9,lb.cloud.example"}),
            ip(),
            "db.c.example=203.0.113.9,lb.cloud.example@",
        ),
        (balancer(), host("db.c.example"), json!([]), "!NotAdmitted"),
        (balancer(), host("db.c.example"), json!([{"ip": "10.0.0.1"}]), "db.c.example=@ !AddressRefused !NoAddress"),
        (balancer(), host("db.other.example"), ip(), "!OutsideDomain"),
        (balancer(), host("db.extra.example"), ip(), "db.extra.example=203.0.113.7@"),
        (balancer(), host("203.0.113.7"), ip(), "!Invalid !NoHost"),
        (balancer(), host(","), ip(), "!NoHost"),
        // Left to another controller.
        (balancer(), json!({"hostname": "db.c.example", "controller": "other"}), ip(), "!OtherController"),
        (
            balancer(),
            json!({"hostname": "db.c.example", "controller": "dns-controller"}),
            ip(),
            "db.c.example=203.0.113.7@",
        ),
        (balancer(), json!({"hostname": "db.c.example", "ttl": "60"}), ip(), "db.c.example=203.0.113.7@60"),
        (balancer(), json!({"hostname": "db.c.example", "ttl": "1m30s"}), ip(), "db.c.example=203.0.113.7@90"),
        (balancer(), json!({"hostname": "db.c.example", "ttl": "0"}), ip(), "db.c.example=203.0.113.7@ !Invalid"),
    ] {
        for prefix in ANNOTATION_PREFIXES {
            let with_prefix = annotations.as_object().expect("an object").iter();
            let with_prefix: BTreeMap<String, Value> =
                with_prefix.map(|(name, value)| (format!("{prefix}{name}"), value.clone())).collect();
            let service = json!({
                "metadata": {"name": "db", "namespace": "shop", "annotations": with_prefix},
                "spec": spec, "status": {"loadBalancer": {"ingress": ingress}},
            });
            let mut inventory = Inventory::default();
            add(&mut inventory, Kind::Service, vec![service]);
            assert_eq!(short(&inventory, &settings()), expected, "{annotations}");
        }
    }
}

/// A Service with a host in the zone of a Gateway of 2026, which has that host for a Route: the older one has it.
#[test]
fn services_take_no_names_of_older_objects() {
    let service = |hosts: &str, year: u32| {
        json!({
            "metadata": {
                "name": "db", "namespace": "bank", "annotations": {"external-dns.kubernetes.io/hostname": hosts},
                "creationTimestamp": format!("{year}-01-01T00:00:00Z"),
            },
            "spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}},
        })
    };
    for (hosts, year, expected) in [
        ("web.eu.c.example", 2027, "eu.c.example=203.0.113.1 web.eu.c.example !Taken"),
        ("*.web.eu.c.example,web.eu.c.example", 2027, "eu.c.example=203.0.113.1 web.eu.c.example !Taken"),
        ("web.eu.c.example", 2025, "eu.c.example=203.0.113.1 web.eu.c.example=203.0.113.7@ !Taken"),
        ("*.eu.c.example", 2027, "eu.c.example=203.0.113.1 web.eu.c.example !DomainAlreadyInUse"),
    ] {
        let created = |gateway: &mut Value| gateway["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z".into();
        let mut inventory = inventory(vec![gateway(created)], vec![http_route(|_| {})]);
        add(&mut inventory, Kind::Service, vec![service(hosts, year)]);
        assert_eq!(short(&inventory, &settings()), expected, "{hosts} {year}");
    }
}

/// A Service that is left out, because its host is in the zone of an older object, takes the zone from none.
#[test]
fn services_that_are_left_out_take_no_zone() {
    let gateway = |name: &'static str, year: u32, base: &'static str| {
        gateway(move |gateway| {
            let created = format!("{year}-01-01T00:00:00Z");
            gateway["metadata"] = json!({"name": name, "namespace": "infra", "creationTimestamp": created});
            gateway["spec"]["listeners"][0]["hostname"] = format!("*.{base}").into();
        })
    };
    let gateways = vec![gateway("h", 2024, "apps.c.example"), gateway("g", 2026, "eu.apps.c.example")];
    let service = json!({
        "metadata": {
            "name": "s", "namespace": "bank", "annotations": {"external-dns.kubernetes.io/hostname": "eu.apps.c.example"},
            "creationTimestamp": "2025-01-01T00:00:00Z",
        },
        "spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}},
    });
    let mut inventory = inventory(gateways, Vec::new());
    add(&mut inventory, Kind::Service, vec![service]);
    let found = derive(&inventory, &settings());
    let shards: BTreeSet<String> = found.shards.iter().map(|shard| format!("{} {}", shard.dns, shard.source)).collect();
    let expected = ["apps.c.example Gateway infra/h", "eu.apps.c.example Gateway infra/g"];
    assert_eq!(shards, expected.map(str::to_owned).into());
    let notes: Vec<String> = found.notes.iter().map(|note| format!("{:?} {}", note.reason, note.source)).collect();
    assert_eq!(notes, ["Taken Service bank/s"]);
}

fn listener(name: &str, hostname: &str, port: u16, protocol: &str, allowed: &Value) -> Value {
    json!({"name": name, "hostname": hostname, "port": port, "protocol": protocol, "allowedRoutes": allowed})
}

/// Returns the hosts of a Route whose reference has this section and port, on a Gateway with these listeners.
fn attached(kind: Kind, listeners: &Value, section: Option<&str>, port: Option<u16>, hosts: &[&str]) -> String {
    let gateway = gateway(|gateway| gateway["spec"]["listeners"] = listeners.clone());
    let route = http_route(|route| {
        let reference = &mut route["spec"]["parentRefs"][0];
        reference["sectionName"] = json!(section);
        reference["port"] = json!(port);
        route["status"]["parents"][0]["parentRef"] = reference.clone();
        route["spec"]["hostnames"] = json!(hosts);
    });
    let mut inventory = inventory(vec![gateway], Vec::new());
    add(&mut inventory, kind, vec![route]);
    let found = derive(&inventory, &settings());
    assert!(found.names.iter().all(|name| name.parents.len() == 1), "{:?}", found.names);
    let names: Vec<&str> = found.names.iter().map(|name| &*name.host).collect();
    names.join(" ")
}

/// The cases of the conformance suite of Gateway API for the attachment of Routes: the listeners, the parent reference, and the hosts.
#[test]
fn attachment_to_listeners() {
    let all = json!({"namespaces": {"from": "All"}});
    let two =
        |first, second| json!([listener("a", first, 80, "HTTP", &all), listener("b", second, 443, "HTTPS", &all)]);
    let one = |hostname, protocol| json!([listener("a", hostname, 443, protocol, &all)]);
    let (eu, us, very) = ("*.eu.c.example", "*.us.c.example", "very.eu.c.example");
    let (x, y) = ("x.eu.c.example", "y.us.c.example");
    for (kind, listeners, section, port, hosts, expected) in [
        // HTTPRouteListenerHostnameMatching, HTTPRouteHostnameIntersection: each listener by itself, the more specific host.
        (Kind::HTTPRoute, two(very, eu), None, None, &[eu][..], "*.eu.c.example very.eu.c.example"),
        (Kind::HTTPRoute, two(very, eu), None, None, &[very], very),
        (Kind::HTTPRoute, two(very, eu), Some("a"), None, &[x], ""),
        (Kind::HTTPRoute, two(eu, us), None, None, &[x, y, "z.c.example"], "x.eu.c.example y.us.c.example"),
        // HTTPRouteListenerPortMatching, and sectionName.
        (Kind::HTTPRoute, two(eu, eu), None, Some(443), &[x], x),
        (Kind::HTTPRoute, two(eu, eu), None, Some(8080), &[x], ""),
        (Kind::HTTPRoute, two(eu, us), None, Some(80), &[y], ""),
        (Kind::HTTPRoute, two(eu, us), Some("b"), None, &[y], y),
        (Kind::HTTPRoute, two(eu, eu), Some("none"), None, &[x], ""),
        (Kind::HTTPRoute, two(eu, eu), Some("a"), Some(443), &[x], ""),
        // GRPCRouteListenerHostnameMatching: on the same listeners.
        (Kind::GRPCRoute, two(very, eu), None, None, &[x], x),
        (Kind::GRPCRoute, one(eu, "HTTPS"), None, None, &[], eu),
        (Kind::GRPCRoute, one(eu, "TLS"), None, None, &[x], ""),
        // TLSRouteHostnameIntersection: on listeners of TLS only.
        (
            Kind::TLSRoute,
            one(eu, "TLS"),
            None,
            None,
            &[x, "eu.c.example", "*.b.eu.c.example"],
            "*.b.eu.c.example x.eu.c.example",
        ),
        (Kind::TLSRoute, one(x, "TLS"), None, None, &[eu], x),
        (Kind::TLSRoute, one(eu, "HTTPS"), None, None, &[x], ""),
        (Kind::HTTPRoute, one(eu, "TCP"), None, None, &[x], ""),
    ] {
        let found = attached(kind, &listeners, section, port, hosts);
        assert_eq!(found, expected, "{kind:?} {listeners} {section:?} {port:?} {hosts:?}");
    }
}

/// GatewayAllowedRoutes, HTTPRouteInvalidCrossNamespaceParentRef: `from`, the selector, the kinds.
#[test]
fn attachment_that_listeners_allow() {
    let selector = json!({"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "c"]}]});
    let of_kinds = |kinds: Value| json!({"namespaces": {"from": "All"}, "kinds": kinds});
    for (allowed, is_allowed) in [
        (json!({"namespaces": {"from": "Same"}}), false),
        (json!({"namespaces": {"from": "Unheard"}}), false),
        (json!({"namespaces": {"from": "Selector"}}), false),
        (json!({"namespaces": {"from": "Selector", "selector": selector}}), true),
        (of_kinds(json!([{"kind": "TLSRoute"}])), false),
        (of_kinds(json!([{"group": "example.com", "kind": "HTTPRoute"}])), false),
        (of_kinds(json!([{"kind": "TLSRoute"}, {"kind": "HTTPRoute"}])), true),
    ] {
        let listeners = json!([listener("a", "*.eu.c.example", 443, "HTTP", &allowed)]);
        let found = attached(Kind::HTTPRoute, &listeners, None, None, &["x.eu.c.example"]);
        assert_eq!(found, if is_allowed { "x.eu.c.example" } else { "" }, "{allowed}");
    }
}

fn published(inventory: Inventory, settings: Settings) -> Derivation {
    Derivation::of(inventory, settings)
}

fn key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::namespaced(namespace, name)
}

fn read(kind: Kind, object: &Value) -> Result<Arc<inventory::Resource>, String> {
    kind.read(object.clone(), &settings().annotation_prefixes).map(Arc::new).map_err(|error| error.to_string())
}

/// A Gateway that was programmed once keeps its shard, and a shard without addresses those of its Router.
#[test]
fn what_was_published_stays() {
    let mut derivation = published(inventory(vec![gateway(|_| {})], vec![http_route(|_| {})]), settings());
    let router = derivation.routers().next().expect("a shard").clone();
    let written = BTreeMap::from([(router.name.clone(), router.addresses.clone())]);
    derivation.set_platform(Platform { written, ..Platform::default() });
    let later = gateway(|gateway| {
        gateway["status"]["conditions"][0]["status"] = "False".into();
        gateway["status"]["addresses"] = json!([]);
    });
    derivation.put(Kind::Gateway, key("infra", "eu"), read(Kind::Gateway, &later));
    assert_eq!(derivation.shard(&router.name), Some(&router));
    assert_eq!(derivation.routes().count(), 1);
    let reasons: Vec<Reason> = derivation.derived().notes.iter().map(|note| note.reason).collect();
    assert_eq!(reasons, [Reason::NotProgrammed, Reason::NoAddress]);
}

/// A new leader resolves the host names of a shard one after another.
#[test]
fn addresses_stay_until_all_host_names_are_resolved() {
    let with_names = gateway(|gateway| {
        gateway["status"]["addresses"] = json!([
            {"value": "203.0.113.1"}, {"type": "Hostname", "value": "a.cloud.example"},
            {"type": "Hostname", "value": "b.cloud.example"},
        ]);
    });
    let set = |ips: &[&str]| -> BTreeSet<IpAddr> { ips.iter().map(|ip| ip.parse().expect("an address")).collect() };
    let mut derivation = published(inventory(vec![with_names], Vec::new()), settings());
    let router = derivation.routers().next().expect("a shard").name.clone();
    let written = BTreeMap::from([(router.clone(), set(&["203.0.113.1", "203.0.113.2", "203.0.113.3"]))]);
    derivation.set_platform(Platform { written, ..Platform::default() });
    for (resolved, expected) in [
        (vec![], set(&["203.0.113.1", "203.0.113.2", "203.0.113.3"])),
        (vec![("a", "203.0.113.2")], set(&["203.0.113.1", "203.0.113.2", "203.0.113.3"])),
        (vec![("a", "203.0.113.4")], set(&["203.0.113.1", "203.0.113.2", "203.0.113.3", "203.0.113.4"])),
        (vec![("a", "203.0.113.4"), ("b", "203.0.113.3")], set(&["203.0.113.1", "203.0.113.3", "203.0.113.4"])),
    ] {
        let addresses = resolved.iter().map(|(name, ip)| (format!("{name}.cloud.example"), set(&[ip])));
        derivation.set_resolved(Arc::new(addresses.collect()));
        assert_eq!(derivation.shard(&router).expect("a shard").addresses, expected, "{resolved:?}");
    }
}

/// A router that reports nothing has not refused: the written Route stays, until it does.
#[test]
fn silence_is_no_refusal() {
    type Case = (Kind, Value, Value, Value);
    let of_gateway = |status: Value| http_route(move |route| route["status"]["parents"] = status);
    let accepted = |status: &str| {
        let parent = json!({"name": "eu", "namespace": "infra"});
        json!([{"parentRef": parent, "controllerName": "example.com/envoy",
                "conditions": [{"type": "Accepted", "status": status}]}])
    };
    let ingress = |status: Value| {
        json!({"metadata": {"name": "web", "namespace": "shop"},
               "spec": {"ingressClassName": "nginx", "rules": [{"host": "web.web.c.example"}]},
               "status": {"loadBalancer": status}})
    };
    let mut unruled = ingress(json!({}));
    unruled["spec"]["rules"] = json!([]);
    let unhosted = http_route(|route| {
        route["spec"]["hostnames"] = json!(["other.eu.c.example"]);
        route["status"]["parents"] = json!([]);
    });
    let served = ingress(json!({"ingress": [{"ip": "203.0.113.3"}]}));
    let cases: [Case; 3] = [
        (Kind::HTTPRoute, http_route(|_| {}), of_gateway(json!([])), of_gateway(accepted("False"))),
        (Kind::HTTPRoute, http_route(|_| {}), of_gateway(accepted("Unknown")), unhosted),
        (Kind::Ingress, served, ingress(json!({})), unruled),
    ];
    for (kind, admitted, silent, refused) in cases {
        let mut inventory = inventory(vec![gateway(|_| {})], Vec::new());
        let other = json!({"metadata": {"name": "other", "namespace": "shop"},
                           "spec": {"ingressClassName": "nginx", "rules": []},
                           "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.3"}]}}});
        add(&mut inventory, Kind::Ingress, vec![other]);
        let mut derivation = published(inventory, settings());
        let (source, key) = (Source::named(kind, &key("shop", "web")), key("shop", "web"));
        derivation.put(kind, key.clone(), read(kind, &admitted));
        let route = derivation.routes().next().expect("a name").key();
        let changes = derivation.put(kind, key.clone(), read(kind, &silent));
        assert!(changes.routes.contains(&route) && derivation.name(&route).is_none(), "{silent}");
        assert!(derivation.is_pending(&source, &route), "{silent}");
        let changes = derivation.put(kind, key.clone(), read(kind, &refused));
        assert!(changes.routes.contains(&route), "{refused}");
        assert!(!derivation.is_pending(&source, &route), "{refused}");
        derivation.put(kind, key.clone(), read(kind, &silent));
        let changes = derivation.remove(kind, &key);
        assert!(changes.routes.contains(&route) && !derivation.is_pending(&source, &route));
    }
}

/// A load balancer without an address has not left its hosts.
#[test]
fn services_keep_their_shards() {
    let service = |status: Value| {
        json!({"metadata": {"name": "db", "namespace": "shop", "annotations": {
                   "external-dns.kubernetes.io/hostname": "db.c.example"}},
               "spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": status}})
    };
    let mut inventory = Inventory::default();
    add(&mut inventory, Kind::Service, vec![service(json!({"ingress": [{"ip": "203.0.113.7"}]}))]);
    let mut derivation = published(inventory, settings());
    let router = derivation.routers().next().expect("a shard").clone();
    let written = BTreeMap::from([(router.name.clone(), router.addresses.clone())]);
    derivation.set_platform(Platform { written, ..Platform::default() });
    derivation.put(Kind::Service, key("shop", "db"), read(Kind::Service, &service(json!({}))));
    assert_eq!(derivation.shard(&router.name), Some(&router));
}

/// A host on two routers of one object resolves to the one in whose zone it is.
#[test]
fn one_host_on_two_routers() {
    let controller = |name: &str| {
        json!({"metadata": {"name": name, "namespace": "openshift-ingress-operator",
                            "annotations": {"signpost.dev/addresses": "203.0.113.1"}},
               "status": {"domain": format!("{name}.c.example")}})
    };
    let entry = |router: &str| json!({"host": "web.a.c.example", "routerName": router, "conditions": [{"type": "Admitted", "status": "True"}]});
    let route =
        json!({"metadata": {"name": "web", "namespace": "shop"}, "status": {"ingress": [entry("b"), entry("a")]}});
    let mut inventory = Inventory::default();
    add(&mut inventory, Kind::IngressController, vec![controller("a"), controller("b")]);
    add(&mut inventory, Kind::Route, vec![route]);
    assert_eq!(
        short(&inventory, &settings()),
        "a.c.example=203.0.113.1 b.c.example=203.0.113.1 web.a.c.example !SeveralParents"
    );
}

/// The closest zone has a host, also if a hand-written Router has it.
#[test]
fn shards_inside_shards() {
    let inner = gateway(|gateway| {
        gateway["metadata"]["name"] = "inner".into();
        gateway["spec"]["listeners"][0]["hostname"] = "*.a.eu.c.example".into();
    });
    let mut of_inner = http_route(|route| {
        route["metadata"]["name"] = "inner".into();
        route["spec"]["hostnames"] = json!(["web.a.eu.c.example"]);
    });
    // The outer Gateway has it, too.
    of_inner["spec"]["parentRefs"] =
        json!([{"name": "eu", "namespace": "infra"}, {"name": "inner", "namespace": "infra"}]);
    let accepted = json!([{"type": "Accepted", "status": "True"}]);
    let parents = of_inner["spec"]["parentRefs"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|parent| json!({"parentRef": parent, "controllerName": "example.com/envoy", "conditions": accepted}));
    of_inner["status"]["parents"] = parents.collect();
    let mut derivation =
        published(inventory(vec![gateway(|_| {}), inner], vec![of_inner, http_route(|_| {})]), settings());
    let shards = |derivation: &Derivation| -> BTreeMap<String, String> {
        let zone = |name: &Name| derivation.shard(&name.shard).expect("it is there").dns.clone();
        derivation.routes().map(|name| (name.host.clone(), zone(name))).collect()
    };
    let expected = [("web.a.eu.c.example", "a.eu.c.example"), ("web.eu.c.example", "eu.c.example")];
    let expected: BTreeMap<String, String> = expected.map(|(host, zone)| (host.to_owned(), zone.to_owned())).into();
    assert_eq!(shards(&derivation), expected);
    // A Router that no source wrote takes the inner zone, and its names.
    let zones = BTreeMap::from([("a.eu.c.example".to_owned(), "by-hand".to_owned())]);
    let changes = derivation.set_platform(Platform { zones, ..Platform::default() });
    assert_eq!((changes.shards.len(), changes.routes.len()), (1, 1));
    assert_eq!(shards(&derivation).len(), 1);
}

/// Each filter.
#[test]
fn objects_that_do_not_count() {
    let selected = |team: &str| {
        let match_labels = Some([("team".to_owned(), team.to_owned())].into());
        Settings { namespace_selector: Some(LabelSelector { match_labels, ..LabelSelector::default() }), ..settings() }
    };
    let others = |route: &mut Value| {
        route["metadata"]["annotations"] = json!({"external-dns.kubernetes.io/controller": "other"});
    };
    let none = "eu.c.example=203.0.113.1";
    for (what, edit, settings, expected) in [
        ("a namespace that is selected", SAME, selected("a"), "eu.c.example=203.0.113.1 web.eu.c.example"),
        ("another one", SAME, selected("b"), none),
        ("another controller of DNS", others, settings(), "eu.c.example=203.0.113.1 !OtherController"),
        (
            "another controller of Gateways",
            SAME,
            Settings { gateway_controllers: vec!["example.com/other".to_owned()], ..settings() },
            "!ClassNotAccepted",
        ),
        ("a source that is off", SAME, Settings { modes: BTreeMap::new(), ..settings() }, ""),
    ] {
        let inventory = inventory(vec![gateway(|_| {})], vec![http_route(edit)]);
        assert_eq!(short(&inventory, &settings), expected, "{what}");
    }
}

/// An object that does not count adds no address to a shard, and makes none.
#[test]
fn objects_that_do_not_count_make_no_shards() {
    let match_labels = Some([("team".to_owned(), "a".to_owned())].into());
    let selector = LabelSelector { match_labels, ..LabelSelector::default() };
    let selected = Settings { namespace_selector: Some(selector), ..settings() };
    let ingress = |namespace: &str, ip: &str, annotations: Value| {
        json!({"metadata": {"name": "web", "namespace": namespace, "annotations": annotations},
               "spec": {"ingressClassName": "nginx", "rules": [{"host": format!("{namespace}.web.c.example")}]},
               "status": {"loadBalancer": {"ingress": [{"ip": ip}]}}})
    };
    let service = |namespace: &str| {
        json!({"metadata": {"name": "db", "namespace": namespace, "annotations": {
                   "external-dns.kubernetes.io/hostname": format!("{namespace}.c.example")}},
               "spec": {"type": "LoadBalancer"}, "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}}})
    };
    let own = || ingress("shop", "203.0.113.3", json!({}));
    let others = json!({"external-dns.kubernetes.io/controller": "other"});
    let both = "web.c.example=203.0.113.3,203.0.113.4 bank.web.c.example shop.web.c.example";
    let of_shop = "web.c.example=203.0.113.3 shop.web.c.example";
    for (kind, objects, settings, expected) in [
        (Kind::Ingress, vec![own(), ingress("bank", "203.0.113.4", json!({}))], settings(), both),
        (Kind::Ingress, vec![own(), ingress("bank", "203.0.113.4", json!({}))], selected.clone(), of_shop),
        (
            Kind::Ingress,
            vec![own(), ingress("bank", "203.0.113.4", others)],
            settings(),
            "web.c.example=203.0.113.3 shop.web.c.example !OtherController",
        ),
        (Kind::Ingress, vec![ingress("bank", "203.0.113.4", json!({}))], selected.clone(), ""),
        (
            Kind::Service,
            vec![service("bank"), service("shop")],
            settings(),
            "bank.c.example=203.0.113.7@ shop.c.example=203.0.113.7@",
        ),
        (Kind::Service, vec![service("bank"), service("shop")], selected, "shop.c.example=203.0.113.7@"),
    ] {
        let mut inventory = inventory(Vec::new(), Vec::new());
        add(&mut inventory, kind, objects);
        assert_eq!(short(&inventory, &settings), expected, "{kind:?}");
    }
}

/// Steps lead to the same result as all objects at once, and report each Router and Route that differs.
#[test]
fn steps_and_all_at_once() {
    let mut random = 7_u64;
    let mut below = move |bound: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % bound
    };
    let mut derivation = published(inventory(Vec::new(), Vec::new()), settings());
    for _ in 0..400 {
        let before = derivation.derived();
        let (number, age) = (below(3), 2020 + below(5));
        let created = format!("{age}-01-01T00:00:00Z");
        let changes = match below(8) {
            0 => derivation.remove(Kind::Gateway, &key("infra", &format!("g{number}"))),
            1 => derivation.remove(Kind::HTTPRoute, &key("shop", &format!("r{number}"))),
            2 => {
                let team = if below(2) == 0 { "a" } else { "b" };
                let namespace = json!({"metadata": {"name": "shop", "labels": {"team": team}}});
                derivation.put(Kind::Namespace, ObjectKey::cluster("shop"), read(Kind::Namespace, &namespace))
            }
            3 | 4 => {
                let base = ["eu", "a.eu", "us"][below(3) as usize];
                let from = json!({"from": "Selector", "selector": {"matchLabels": {"team": "a"}}});
                let from = if below(2) == 0 { json!({"from": "All"}) } else { from };
                let object = gateway(|gateway| {
                    gateway["metadata"] =
                        json!({"name": format!("g{number}"), "namespace": "infra", "creationTimestamp": created});
                    gateway["spec"]["listeners"][0]["hostname"] = format!("*.{base}.c.example").into();
                    gateway["spec"]["listeners"][0]["allowedRoutes"] = json!({"namespaces": from});
                });
                derivation.put(Kind::Gateway, key("infra", &format!("g{number}")), read(Kind::Gateway, &object))
            }
            _ => {
                let parent = json!({"name": format!("g{}", below(3)), "namespace": "infra"});
                let host = ["web.eu.c.example", "web.a.eu.c.example", "web.us.c.example"][below(3) as usize];
                let object = http_route(|route| {
                    route["metadata"] =
                        json!({"name": format!("r{number}"), "namespace": "shop", "creationTimestamp": created});
                    route["spec"] = json!({"hostnames": [host], "parentRefs": [parent]});
                    route["status"]["parents"][0]["parentRef"] = parent;
                });
                derivation.put(Kind::HTTPRoute, key("shop", &format!("r{number}")), read(Kind::HTTPRoute, &object))
            }
        };
        let after = derivation.derived();
        assert_eq!(after, derive(derivation.inventory(), &settings()));
        let differs = |name: &&Arc<Name>| !before.names.contains(name) || !after.names.contains(name);
        let names: BTreeSet<ObjectKey> =
            before.names.iter().chain(&after.names).filter(differs).map(|name| name.key()).collect();
        assert_eq!(changes.routes, names);
        let differs = |shard: &&Arc<Shard>| !before.shards.contains(shard) || !after.shards.contains(shard);
        let shards = before.shards.iter().chain(&after.shards).filter(differs);
        assert_eq!(changes.shards, shards.map(|shard| shard.name.clone()).collect());
        assert!(changes.is_any || before == after);
    }
}

/// While the kinds on which an object depends are unknown, none of its Routers and Routes is certainly lost.
#[test]
fn certainty() {
    let route = Source { kind: "HTTPRoute", namespace: "shop".to_owned(), name: "web".to_owned() };
    let all = inventory(vec![gateway(|_| {})], vec![http_route(|_| {})]);
    let mut derivation = published(all.clone(), settings());
    assert!(!derivation.is_certain(&route), "other kinds of the source are not known yet");
    for kind in Family::Gateway.kinds() {
        derivation.set_absent(*kind);
    }
    assert!(derivation.is_certain(&route));
    let of_set = http_route(|route| route["spec"]["parentRefs"][0]["kind"] = "ListenerSet".into());
    derivation.put(Kind::HTTPRoute, key("shop", "web"), read(Kind::HTTPRoute, &of_set));
    assert!(!derivation.is_certain(&route), "ListenerSets are not served");
    let broken = http_route(|route| route["spec"]["hostnames"] = "none".into());
    derivation.put(Kind::HTTPRoute, key("shop", "new"), read(Kind::HTTPRoute, &broken));
    let new = Source { name: "new".to_owned(), ..route.clone() };
    assert!(!derivation.is_certain(&new), "it cannot be read");
    let mode = BTreeMap::from([(Family::Gateway, Mode::Show)]);
    let mut shown = published(all, Settings { modes: mode, ..settings() });
    for kind in Family::Gateway.kinds() {
        shown.set_absent(*kind);
    }
    assert!(!shown.is_certain(&route));
}

#[test]
fn sources_as_texts() {
    for text in ["HTTPRoute shop/web", "IngressClass nginx", "Route shop/web"] {
        assert_eq!(Source::parse(text).expect("a source").to_string(), text);
    }
    assert_eq!(Source::parse("Secret shop/web"), None);
    assert_eq!(Source::parse(""), None);
}
