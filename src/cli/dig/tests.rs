//! Explanations of responses, from fixed objects.

use serde_json::{Value, json};

use super::*;
use crate::cli::objects::object;
use crate::cli::zones::{Source, ZoneEntry};
use signpost_control::compiler::inputs::{BindingInput, RouterInput};
use signpost_control::compiler::{self, Inputs};
use signpost_control::dns_client::Data;
use signpost_dns::wire::header::Rcode;
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::Router;

fn name(text: &str) -> Name {
    text.parse().expect("a name of a test")
}

/// A platform `v3.example` with two shards, a route that has moved from the second to the first, and one zone file.
fn zones() -> Zones {
    let records = json!(["_acme-challenge.app TXT \"x\"", "@ CAA 0 issue \"ca.example\""]);
    let router: Router = object(
        "Router",
        json!({"name": "shard1"}),
        json!({"addresses": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}], "records": records}),
        Value::Null,
    );
    let names = json!([{"name": "shop-front.shard1.v3.example", "type": "system"}, {"name": "shop-front.routes.v3.example", "type": "alias"}]);
    let other: Router =
        object("Router", json!({"name": "shard2"}), json!({"addresses": [{"ip": "192.0.2.9"}]}), Value::Null);
    let (since, until) = ("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    let former_names =
        json!([{"name": "shop-front.shard2.v3.example", "router": "shard2", "since": since, "until": until}]);
    let binding: RouteBinding = object(
        "RouteBinding",
        json!({"namespace": "shop", "name": "front"}),
        json!({"routeNamespace": "shop", "routeName": "front", "routeUID": "u", "router": "shard1", "dns": "shard1.v3.example",
            "label": "shop-front", "names": names, "strategy": "weighted", "formerNames": former_names}),
        Value::Null,
    );
    let settings = compiler::Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
    let settings = settings.expect("good settings");
    let mut diagnostics = Vec::new();
    let inputs = Inputs {
        routers: [&router, &other]
            .map(|router| RouterInput::read(router, "v3.example", &mut diagnostics))
            .into_iter()
            .flatten()
            .collect(),
        bindings: BindingInput::read(&binding, &mut diagnostics).into_iter().collect(),
        ..Inputs::default()
    };
    let compiled = compiler::compile(&inputs, &settings);
    assert_eq!((diagnostics.len(), compiled.diagnostics.len()), (0, 0));
    let source = |kind, router: Option<Box<str>>| match kind {
        signpost_types::v1alpha1::zone::ZoneKind::Parent => Source::Parent,
        signpost_types::v1alpha1::zone::ZoneKind::Alias => Source::Alias,
        signpost_types::v1alpha1::zone::ZoneKind::Shard => Source::Shard(router.expect("a shard has one").into()),
    };
    let mut all: Vec<ZoneEntry> = compiled
        .zones
        .into_iter()
        .map(|zone| ZoneEntry { contents: zone.contents, source: source(zone.kind, zone.router), serial_is_sure: true })
        .collect();
    let text = b"$TTL 60\n@ SOA ns h 7 1 1 1 1\n@ NS ns.v3.example.\n*.w CNAME shop-front.routes.v3.example.\n";
    let called: std::sync::Arc<std::path::Path> = std::sync::Arc::from(std::path::Path::new("own.example.zone"));
    let read = signpost_dns::zonefile::read_zone(
        text,
        &called,
        Some(name("own.example.")),
        &mut signpost_dns::zonefile::include::FolderIncludes::new(std::path::Path::new("")),
    );
    let contents = read.contents.expect("a good zone");
    all.push(ZoneEntry { contents, source: Source::File("own.example.zone".into()), serial_is_sure: true });
    Zones {
        zones: all,
        routers: vec![router, other],
        bindings: vec![binding],
        platform: Some(settings),
        ..Zones::default()
    }
}

/// The explanation of a name: each step without its name and zone.
fn explained(asked: &str, rtype: RecordType) -> String {
    let why = Why::explain(&zones(), &name(asked), rtype);
    let steps: Vec<String> = why
        .steps
        .iter()
        .map(|step| {
            let text = step_facts(step).text(Painter::PLAIN);
            let lines = text.lines().filter(|line| !line.starts_with("name ") && !line.starts_with("zone "));
            lines.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect::<Vec<_>>().join(" | ")
        })
        .collect();
    steps.join(" || ")
}

const SHARD: &str = "found the records of the wildcard *.shard1.v3.example. | from Router shard1, spec.addresses";
const CLOSEST: &str = "found no such name: the closest encloser is";

fn system() -> String {
    format!("{SHARD} | route Route shop/front on Router shard1 (its system name; RouteBinding shop/front)")
}

/// Checks explanations of names.
fn check<const N: usize>(cases: [(&str, RecordType, String); N]) {
    for (asked, rtype, expected) in cases {
        assert_eq!(explained(asked, rtype), expected, "{asked} {rtype}");
    }
}

#[test]
fn names_of_a_shard() {
    use RecordType as T;
    check([
        ("shop-front.shard1.v3.example.", T::A, system()),
        (
            "other.shard1.v3.example.",
            T::A,
            format!("{SHARD} | route no Route has this name; the wildcard matches every name"),
        ),
        (
            "a.b.shard1.v3.example.",
            T::AAAA,
            "found no data: the wildcard *.shard1.v3.example. has no records of this type | from Router shard1 has no active IPv6 address".into(),
        ),
        (
            "app.shard1.v3.example.",
            T::A,
            "found the records of app.shard1.v3.example. | from Router shard1, spec.addresses: copied from the wildcard, which \
             this name blocks".into(),
        ),
        (
            "_acme-challenge.app.shard1.v3.example.",
            T::TXT,
            "found the records of _acme-challenge.app.shard1.v3.example. | from Router shard1, spec.records[0]: \
             _acme-challenge.app TXT \"x\"".into(),
        ),
        (
            "shard1.v3.example.",
            T::CAA,
            "found the records of shard1.v3.example. | from Router shard1, spec.records[1]: @ CAA 0 issue \"ca.example\"".into(),
        ),
        (
            "shard1.v3.example.",
            T::SOA,
            "found the records of shard1.v3.example. | from the configuration; the serial is that of Zone shard1.v3.example".into(),
        ),
    ]);
}

#[test]
fn aliases_and_names_of_the_parent() {
    use RecordType as T;
    check([
        (
            "shop-front.routes.v3.example.",
            T::A,
            format!(
                "found an alias at shop-front.routes.v3.example. | from RouteBinding shop/front | route Route shop/front on \
                 Router shard1 (its stable alias; RouteBinding shop/front) || {}",
                system()
            ),
        ),
        (
            "shop-front.shard2.v3.example.",
            T::A,
            format!(
                "found an alias at shop-front.shard2.v3.example. | from RouteBinding shop/front: a former name of its \
                 Route, which moved to shard1 || {}",
                system()
            ),
        ),
        (
            "gone.routes.v3.example.",
            T::A,
            format!("{CLOSEST} routes.v3.example., which has no wildcard | from no Route has this alias"),
        ),
        (
            "ns1.v3.example.",
            T::A,
            "found the records of ns1.v3.example. | from a name server of the configuration (--nameserver)".into(),
        ),
        (
            "nothing.v3.example.",
            T::A,
            format!(
                "{CLOSEST} v3.example., which has no wildcard | from no Router, setting, or zone file defines this \
                 name"
            ),
        ),
        (
            "shard1.v3.example.",
            T::DS,
            "found no data: shard1.v3.example. has no records of this type | from the delegation to the shard of Router shard1".into(),
        ),
        ("www.example.org.", T::A, String::new()),
    ]);
}

#[test]
fn an_alias_leads_from_a_file_into_the_zones_of_objects() {
    let through = explained("x.w.own.example.", RecordType::A);
    assert!(
        through.starts_with("found an alias by the wildcard *.w.own.example. | from the file own.example.zone || "),
        "{through}"
    );
    assert_eq!(through.matches(" || ").count(), 2, "{through}");
}

/// A response to `shop-front.shard1.v3.example. A` with these addresses.
fn response(flags: u16, addresses: &[[u8; 4]]) -> Response {
    let owner = name("shop-front.shard1.v3.example.");
    let record = |address: &[u8; 4]| Record {
        owner: owner.clone(),
        rtype: RecordType::A,
        ttl: 30,
        data: Data::Address((*address).into()),
        rdata: Box::new(*address),
    };
    Response {
        transport: Transport::Udp,
        took: Duration::from_micros(412),
        octets: 100,
        flags,
        rcode: Rcode(flags & 0xf),
        answers: addresses.iter().map(record).collect(),
        authorities: Vec::new(),
        additionals: Vec::new(),
        edns: None,
    }
}

#[test]
fn differences_from_the_objects_are_found() {
    let zones = zones();
    let asked = name("shop-front.shard1.v3.example.");
    for (response, serial, differences) in [
        (response(0x8400, &[[192, 0, 2, 1], [192, 0, 2, 2]]), Some(0), vec![]),
        // Weights leave some out.
        (response(0x8400, &[[192, 0, 2, 2]]), None, vec![]),
        (response(0x8400, &[[192, 0, 2, 2], [192, 0, 2, 9]]), Some(0), vec!["answer: unexpected record A 192.0.2.9"]),
        (response(0x8400, &[]), Some(0), vec!["answer: expected 2 A records, got none"]),
        (response(0x8403, &[]), Some(0), vec!["response code: expected NOERROR, got NXDOMAIN"]),
        (response(0x8400, &[[192, 0, 2, 1]]), Some(5), vec!["serial: expected 0, got 5"]),
    ] {
        let mut why = Why::explain(&zones, &asked, RecordType::A);
        why.compare(&zones, &asked, &response, serial);
        assert_eq!(why.differences, differences);
    }
}
