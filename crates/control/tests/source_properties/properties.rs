//! A property of sources: for any objects of a cluster, deriving ends, the result is the same for the same objects, and it
//! contains only names that a router has admitted and addresses that clients can reach.
//!
//! An input is a sequence of choices, from which a cluster with few names grows, so that its objects refer to each other. The check
//! of a name does not use the code that derives: it searches for the admission in the objects themselves.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use signpost_control::sources::inventory::{Inventory, Kind};
use signpost_control::sources::{ANNOTATION_PREFIXES, Derived, Family, Mode, Name, Settings, derive};

/// The domains of the platform.
const DOMAINS: [&str; 2] = ["c.example", "extra.example"];
const HOSTS: [&str; 16] = [
    "",
    "*.eu.c.example",
    "eu.c.example",
    "web.eu.c.example",
    "*.web.eu.c.example",
    "A.web.EU.c.example",
    "*.c.example",
    "c.example",
    "www.other.example",
    "*.other.example",
    "192.0.2.1",
    "under_score..example",
    "*",
    "db.extra.example",
    "*.extra.example",
    "-a.eu.c.example",
];
const ADDRESSES: [&str; 10] = [
    "203.0.113.1",
    "2001:db8::1",
    "lb.cloud.example",
    "a.b.svc.cluster.local",
    "127.0.0.1",
    "169.254.1.1",
    "10.0.0.1",
    "198.51.100.9",
    "",
    "rubbish!",
];
const NAMESPACES: [&str; 2] = ["infra", "shop"];
const NAMES: [&str; 2] = ["a", "b"];

/// A sequence of choices; after its end, every choice is the first.
struct Choices<'a>(std::slice::Iter<'a, u8>);

impl Choices<'_> {
    fn up_to(&mut self, count: usize) -> usize {
        usize::from(self.0.next().copied().unwrap_or(0)) % count
    }

    fn one<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.up_to(from.len())]
    }

    /// Returns true more often than not.
    fn mostly(&mut self) -> bool {
        self.up_to(5) != 4
    }

    fn some(&mut self, most: usize, mut make: impl FnMut(&mut Self) -> Value) -> Vec<Value> {
        (0..self.up_to(most + 1)).map(|_| make(self)).collect()
    }

    fn metadata(&mut self) -> Value {
        json!({
            "name": self.one(&NAMES), "namespace": self.one(&NAMESPACES), "uid": format!("u{}", self.up_to(9)),
            "creationTimestamp": format!("202{}-01-01T00:00:00Z", self.up_to(7)),
        })
    }

    fn condition(&mut self, kind: &str) -> Value {
        json!([{"type": kind, "status": if self.mostly() { "True" } else { self.one(&["False", "Unknown", ""]) }}])
    }

    fn host(&mut self) -> Value {
        match self.one(&HOSTS) {
            "" => Value::Null,
            host => host.into(),
        }
    }

    fn listener(&mut self) -> Value {
        let from = self.one(&["All", "All", "All", "Same", "Selector", "None", "unheard"]);
        let kinds = match self.up_to(5) {
            0 => json!([{"kind": self.one(&["HTTPRoute", "GRPCRoute", "TLSRoute"])}]),
            _ => json!([]),
        };
        json!({
            "name": self.one(&NAMES), "hostname": self.host(), "port": self.one(&[80, 443]),
            "protocol": self.one(&["HTTP", "TLS", "HTTPS", "TLS", "TCP"]),
            "allowedRoutes": {
                "namespaces": {"from": from, "selector": {"matchLabels": {"team": self.one(&NAMES)}}}, "kinds": kinds,
            },
        })
    }

    fn parent(&mut self) -> Value {
        let mut parent = json!({"name": self.one(&NAMES), "namespace": self.one(&NAMESPACES)});
        if self.up_to(8) == 7 {
            parent["kind"] = self.one(&["ListenerSet", "Service", "Gateway"]).into();
        }
        if self.up_to(8) == 7 {
            parent["sectionName"] = self.one(&NAMES).into();
        }
        if self.up_to(12) == 11 {
            parent["port"] = self.one(&[80, 443]).into();
        }
        parent
    }

    fn balancer(&mut self) -> Value {
        let ingress = self.some(2, |choices| {
            let address = choices.one(&ADDRESSES);
            let field = if address.parse::<std::net::IpAddr>().is_ok() { "ip" } else { "hostname" };
            json!({field: address})
        });
        json!({"loadBalancer": {"ingress": ingress}})
    }

    fn objects(&mut self, kind: Kind) -> Vec<Value> {
        let hosts = |choices: &mut Self, most| choices.some(most, |choices| choices.one(&HOSTS[1..]).into());
        self.some(3, |choices| {
            let mut object = json!({"metadata": choices.metadata()});
            match kind {
                Kind::Namespace => object["metadata"] = json!({
                    "name": choices.one(&NAMESPACES), "labels": {"team": choices.one(&NAMES)},
                }),
                Kind::GatewayClass => object = json!({
                    "metadata": {"name": choices.one(&["a", "a", "a", "b"])}, "spec": {"controllerName": "example.com/envoy"},
                    "status": {"conditions": choices.condition("Accepted")},
                }),
                Kind::Gateway => {
                    let from = choices.one(&["All", "Same", "None"]);
                    object["spec"] = json!({
                        "gatewayClassName": choices.one(&["a", "a", "a", "b"]),
                        "listeners": choices.some(3, Self::listener), "allowedListeners": {"namespaces": {"from": from}},
                    });
                    let addresses = choices.some(2, |choices| json!({"value": choices.one(&ADDRESSES)}));
                    object["status"] = json!({"addresses": addresses, "conditions": choices.condition("Programmed")});
                }
                Kind::ListenerSet => {
                    object["spec"] =
                        json!({"parentRef": choices.parent(), "listeners": choices.some(2, Self::listener)});
                    object["status"] = json!({"conditions": choices.condition("Accepted")});
                }
                Kind::HTTPRoute | Kind::GRPCRoute | Kind::TLSRoute => {
                    let parents = choices.some(2, Self::parent);
                    object["spec"] = json!({"hostnames": hosts(choices, 3), "parentRefs": parents});
                    let status: Vec<Value> = parents.iter().map(|parent| json!({
                        "parentRef": parent, "controllerName": choices.one(&["example.com/envoy", "example.com/envoy", "example.com/envoy", "x"]),
                        "conditions": choices.condition("Accepted"),
                    })).collect();
                    object["status"] = json!({"parents": status});
                }
                Kind::IngressController => {
                    object["status"] = json!({
                        "domain": choices.one(&HOSTS).trim_start_matches("*."),
                        "endpointPublishingStrategy": {"type": choices.one(&["LoadBalancerService", "HostNetwork", "Private"])},
                    });
                    if choices.mostly() {
                        object["metadata"]["annotations"] = json!({"signpost.dev/addresses": choices.one(&ADDRESSES)});
                    }
                }
                Kind::Route => {
                    let ingress = choices.some(2, |choices| json!({
                        "host": choices.one(&HOSTS), "routerName": choices.one(&NAMES),
                        "conditions": choices.condition("Admitted"),
                    }));
                    object["status"] = json!({"ingress": ingress});
                }
                Kind::IngressClass => object = json!({
                    "metadata": {"name": choices.one(&NAMES), "annotations": {
                        "ingressclass.kubernetes.io/is-default-class": choices.one(&["true", "false"]),
                    }},
                }),
                Kind::Ingress => {
                    let rules: Vec<Value> = hosts(choices, 2).into_iter().map(|host| json!({"host": host})).collect();
                    let class = if choices.mostly() { json!(choices.one(&NAMES)) } else { Value::Null };
                    object["spec"] = json!({"ingressClassName": class, "rules": rules});
                    object["status"] = choices.balancer();
                }
                Kind::Service => {
                    let spec_type = choices.one(&["LoadBalancer", "LoadBalancer", "ClusterIP"]);
                    object["spec"] = json!({"type": spec_type, "clusterIP": "198.51.100.9"});
                    object["status"] = choices.balancer();
                    let hosts = [choices.one(&HOSTS), choices.one(&HOSTS)].join(",");
                    object["metadata"]["annotations"] = json!({format!("{}hostname", choices.one(&ANNOTATION_PREFIXES)): hosts});
                }
                Kind::EndpointSlice | Kind::Infrastructure => {}
            }
            if choices.up_to(40) == 39 {
                object[choices.one(&["spec", "status"])] = choices.one(&[Value::Null, json!("x"), json!([1])].each_ref()).clone();
            }
            object
        })
    }
}

/// Derives the cluster of these choices, and checks the result. Returns the kinds of the names.
pub fn derived(choices: &[u8]) -> Vec<&'static str> {
    let mut choices = Choices(choices.iter());
    let mut objects = BTreeMap::new();
    for kind in Kind::ALL {
        // Sometimes a kind is not served.
        if choices.up_to(8) != 7 {
            objects.insert(kind, choices.objects(kind));
        }
    }
    let settings = || Settings {
        modes: Family::ALL.into_iter().map(|family| (family, Mode::Publish)).collect(),
        domain: DOMAINS[0].to_owned(),
        domains: vec![DOMAINS[1].to_owned()],
        gateway_controllers: Vec::new(),
        ingress_classes: [("a".to_owned(), "eu.c.example".to_owned())].into(),
        namespace_selector: None,
        annotation_prefixes: ANNOTATION_PREFIXES.map(str::to_owned).into(),
        private_addresses: false,
    };
    let found = || {
        let mut inventory = Inventory::default();
        for (kind, objects) in &objects {
            inventory.add(*kind, objects.clone(), &settings().annotation_prefixes);
        }
        derive(&inventory, &settings())
    };
    let derived = found();
    assert_eq!(serde_json::to_value(&derived).ok(), serde_json::to_value(found()).ok(), "another result");
    check(&derived, &objects);
    derived.names.iter().map(|name| name.source.kind).collect()
}

fn check(derived: &Derived, objects: &BTreeMap<Kind, Vec<Value>>) {
    let is_below = |name: &str, zone: &str| name == zone || name.ends_with(&format!(".{zone}"));
    let mut zones = BTreeSet::new();
    for shard in &derived.shards {
        assert!(zones.insert(&shard.dns), "two shards have the zone {}", shard.dns);
        // A further domain can be a shard itself.
        let in_domain = is_below(&shard.dns, DOMAINS[1]) || is_below(&shard.dns, DOMAINS[0]) && shard.dns != DOMAINS[0];
        assert!(in_domain, "{} is in no domain", shard.dns);
        assert!(shard.name.len() <= 63, "{} is too long", shard.name);
        for address in &shard.addresses {
            let text = address.to_string();
            // The last one is a ClusterIP only if its Service is known.
            let reachable = ["203.0.113.1", "2001:db8::1", "198.51.100.9"];
            assert!(reachable.contains(&&*text), "{text} is unreachable");
        }
        assert!(shard.host_names.iter().all(|name| name == "lb.cloud.example"), "{:?}", shard.host_names);
    }
    let mut hosts = BTreeSet::new();
    for name in &derived.names {
        assert!(hosts.insert(&name.host), "{} is on two Routes", name.host);
        let shard = derived.shards.iter().find(|shard| shard.name == name.shard);
        let shard = shard.unwrap_or_else(|| panic!("{} is on {}, which does not exist", name.host, name.shard));
        assert_eq!(name.in_zone, is_below(&name.host, &shard.dns), "{}", name.host);
        assert!(is_admitted(name, objects), "no router has admitted {} of {}", name.host, name.source);
    }
}

/// Returns whether the object of a name has the host, and a router has admitted it.
fn is_admitted(name: &Name, objects: &BTreeMap<Kind, Vec<Value>>) -> bool {
    let all = |kind: Kind| objects.get(&kind).into_iter().flatten();
    let is_it = |object: &&Value| {
        object["metadata"]["name"] == *name.source.name && object["metadata"]["namespace"] == *name.source.namespace
    };
    let kind = Kind::ALL.into_iter().find(|kind| kind.name() == name.source.kind).expect("a kind that sources read");
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let has = |object: &Value, kind: &str| {
        list(&object["conditions"]).iter().any(|one| one["type"] == kind && one["status"] == "True")
    };
    let is_host = |value: &Value| value.as_str().is_some_and(|text| text.eq_ignore_ascii_case(&name.host));
    all(kind).filter(is_it).any(|object| match kind {
        Kind::Route => {
            list(&object["status"]["ingress"]).iter().any(|one| has(one, "Admitted") && is_host(&one["host"]))
        }
        Kind::Ingress => {
            let has_address = !list(&object["status"]["loadBalancer"]["ingress"]).is_empty();
            has_address && list(&object["spec"]["rules"]).iter().any(|rule| is_host(&rule["host"]))
        }
        Kind::Service => {
            let hosts = ANNOTATION_PREFIXES
                .iter()
                .filter_map(|prefix| object["metadata"]["annotations"][format!("{prefix}hostname")].as_str());
            hosts.flat_map(|hosts| hosts.split(',')).any(|host| is_host(&host.into()))
        }
        _ => {
            let is_accepted = list(&object["status"]["parents"]).iter().any(|parent| has(parent, "Accepted"));
            let parents = all(Kind::Gateway).chain(all(Kind::ListenerSet));
            let listeners: Vec<Value> = parents.flat_map(|parent| list(&parent["spec"]["listeners"])).collect();
            let mut wanted = list(&object["spec"]["hostnames"]);
            if wanted.is_empty() {
                wanted.push(Value::Null);
            }
            is_accepted
                && listeners.iter().any(|listener| {
                    wanted.iter().any(|host| common(&listener["hostname"], host).as_deref() == Some(&name.host))
                })
        }
    })
}

/// Returns the host that a listener and a Route have in common: the longer one of two that match, label by label from the end.
fn common(listener: &Value, route: &Value) -> Option<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_ascii_lowercase();
    let (listener, route) = (text(listener), text(route));
    let matches = |pattern: &str, host: &str| {
        let mut pattern: Vec<&str> = pattern.rsplit('.').collect();
        let host: Vec<&str> = host.rsplit('.').collect();
        let is_wildcard = pattern.last() == Some(&"*");
        if is_wildcard {
            pattern.pop();
        }
        let is_same = host.iter().zip(&pattern).all(|(one, other)| one == other);
        is_same && if is_wildcard { host.len() > pattern.len() } else { host.len() == pattern.len() }
    };
    match (&*listener, &*route) {
        ("", "") => None,
        ("", one) | (one, "") => Some(one.to_owned()),
        (listener, route) if listener == route || matches(listener, route) => Some(route.to_owned()),
        (listener, route) => matches(route, listener).then(|| listener.to_owned()),
    }
}
