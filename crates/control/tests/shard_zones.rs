//! Queries of shards' zones as built from their Routers: each test whose name begins with `trap_2_` covers one line of the
//! project's list of problems with wildcard zones.

use std::net::IpAddr;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use signpost_control::compiler::expectation::Expected;
use signpost_control::compiler::inputs::{BindingInput, RouterInput};
use signpost_control::compiler::settings::{NameServer, Settings};
use signpost_control::compiler::{Compiled, Inputs, compile};
use signpost_control::world::{self, RouterInfo};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::Zone;
use signpost_types::names::is_host_label;
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::Router;

use self::stage::Stage;

#[path = "../../dns/tests/conformance/stage.rs"]
#[allow(dead_code, reason = "the conformance tests of the data plane use more of it")]
mod stage;

/// These tests query only the engine.
fn also_ask(_: &Stage, _: &[u8]) {}

const DOMAIN: &str = "v3.example";

/// Returns a platform with one shard, `shard1.v3.example`, of this specification. A route, `old-app`, has left it for `shard2`.
fn platform(spec: Value) -> Stage {
    stage(&compiled(spec, &settings(vec![])))
}

fn stage(compiled: &Compiled) -> Stage {
    Stage::new(compiled.zones.iter().map(|zone| Zone::build(zone.contents.clone()).expect("a zone")))
}

/// Returns the settings of a platform with these further name servers.
fn settings(servers: Vec<NameServer>) -> Settings {
    let name = "ns1.v3.example.".parse().expect("a name");
    let first = NameServer { name, addresses: vec!["192.0.2.53".parse().expect("an address")] };
    Settings::new(DOMAIN, [vec![first], servers].concat(), &[]).expect("good settings")
}

fn compiled(spec: Value, settings: &Settings) -> Compiled {
    let router = |name: &str, spec: Value| {
        let object: Router = serde_json::from_value(json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": spec}))
        .expect("a Router of a test");
        RouterInput::read(&object, DOMAIN, &mut Vec::new()).expect("it makes a zone")
    };
    let moved: RouteBinding =
        serde_json::from_value(json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding",
        "metadata": {"namespace": "old", "name": "app", "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"routeNamespace": "old", "routeName": "app", "routeUID": "1", "router": "shard2",
                 "dns": "shard2.v3.example", "label": "old-app", "names": [], "strategy": "move",
                 "formerNames": [{"name": "old-app.shard1.v3.example", "router": "shard1",
                             "since": "2026-01-01T00:00:00Z", "until": "2036-01-01T00:00:00Z"}]}}))
        .expect("a RouteBinding of a test");
    let shard2 = json!({"addresses": [{"ip": "198.51.100.2"}]});
    let inputs = Inputs {
        routers: vec![router("shard1", spec), router("shard2", shard2)],
        bindings: vec![BindingInput::read(&moved, &mut Vec::new()).expect("it makes an alias")],
        ..Inputs::default()
    };
    compile(&inputs, settings)
}

/// Returns the code, and the types and data of the answer section, of the response to `question`.
fn answer(stage: &Stage, question: &str) -> String {
    let message = stage.ask(question);
    let code = message[3] & 15;
    let answers = self::stage::lines(&message).into_iter().filter(|line| line.trim_start().starts_with("an "));
    let mut answers: Vec<String> =
        answers.map(|line| line.split_whitespace().skip(2).collect::<Vec<_>>().join(" ")).collect();
    answers.sort();
    format!("{code} {}", answers.join(" | ")).trim_end().to_owned()
}

#[track_caller]
fn answers(stage: &Stage, cases: &[(&str, &str)]) {
    for (question, expected) in cases {
        assert_eq!(answer(stage, question), *expected, "{question}");
    }
}

#[test]
fn trap_2_a_name_with_addresses_of_one_family_exists_for_the_other() {
    let v4 = platform(json!({"addresses": [{"ip": "192.0.2.1"}]}));
    answers(&v4, &[("app.shard1.v3.example. A", "0 A 192.0.2.1"), ("app.shard1.v3.example. AAAA", "0")]);
    let v6 = platform(json!({"addresses": [{"ip": "2001:db8::1"}]}));
    answers(&v6, &[("app.shard1.v3.example. A", "0"), ("app.shard1.v3.example. AAAA", "0 AAAA 2001:db8::1")]);
    let none = platform(json!({"addresses": [{"ip": "192.0.2.1", "state": "drained"}]}));
    answers(&none, &[("app.shard1.v3.example. A", "0"), ("app.shard1.v3.example. AAAA", "0")]);
}

#[test]
fn trap_2_further_records_do_not_take_a_name_from_the_wildcard() {
    let stage = platform(json!({
        "addresses": [{"ip": "192.0.2.1"}],
        "records": ["_acme-challenge.app TXT token", "plain TXT x", "a.b.deep TXT x", "own A 203.0.113.9"],
    }));
    answers(
        &stage,
        &[
            ("_acme-challenge.app.shard1.v3.example. TXT", "0 TXT token"),
            // The parents of a record, and the record's own name, still resolve to the shard.
            ("app.shard1.v3.example. A", "0 A 192.0.2.1"),
            ("plain.shard1.v3.example. A", "0 A 192.0.2.1"),
            ("plain.shard1.v3.example. TXT", "0 TXT x"),
            ("deep.shard1.v3.example. A", "0 A 192.0.2.1"),
            ("b.deep.shard1.v3.example. A", "0 A 192.0.2.1"),
            ("a.b.deep.shard1.v3.example. A", "0 A 192.0.2.1"),
            // So do names below them, and their siblings.
            ("other.app.shard1.v3.example. A", "0 A 192.0.2.1"),
            ("x.y.deep.shard1.v3.example. A", "0 A 192.0.2.1"),
            // A record's own addresses are the only answer.
            ("own.shard1.v3.example. A", "0 A 203.0.113.9"),
        ],
    );
}

#[test]
fn trap_2_a_former_name_is_alone_at_its_name() {
    let plain = platform(json!({"addresses": [{"ip": "192.0.2.1"}]}));
    let former_name = "CNAME old-app.shard2.v3.example.";
    // The target is in another zone.
    let led = format!("0 {former_name}");
    answers(
        &plain,
        &[
            ("old-app.shard1.v3.example. A", &led),
            ("old-app.shard1.v3.example. TXT", &led),
            ("old-app.shard1.v3.example. CAA", &led),
            ("old-app.shard2.v3.example. A", "0 A 198.51.100.2"),
            ("other.shard1.v3.example. A", "0 A 192.0.2.1"),
        ],
    );
    // A record there keeps the name, and no zone has both.
    let taken = platform(json!({"addresses": [{"ip": "192.0.2.1"}], "records": ["old-app TXT token"]}));
    answers(&taken, &[("old-app.shard1.v3.example. TXT", "0 TXT token"), ("old-app.shard1.v3.example. CNAME", "0")]);
    // A token below it is elsewhere, and both exist.
    let below = platform(json!({"addresses": [{"ip": "192.0.2.1"}], "records": ["_acme-challenge.old-app TXT token"]}));
    answers(
        &below,
        &[("old-app.shard1.v3.example. A", &led), ("_acme-challenge.old-app.shard1.v3.example. TXT", "0 TXT token")],
    );
}

#[test]
fn trap_2_the_wildcard_covers_many_labels_and_routes_ask_for_one() {
    let stage = platform(json!({"addresses": [{"ip": "192.0.2.1"}]}));
    answers(&stage, &[("a.b.c.shard1.v3.example. A", "0 A 192.0.2.1")]);
    assert!(is_host_label("a"));
    assert!(!is_host_label("a.b"), "a certificate for the wildcard does not cover it");
}

/// Returns entries of `spec.records`, each in some spelling and in its plain one.
fn records() -> impl Strategy<Value = Vec<(String, String)>> {
    let owners = ["@", "*", "app", "q-app", "old-app", "ns", "x.app", "*.q-app", "_acme.old-app", "a.b.app", "a..b"];
    let data = [
        "A 192.0.2.1",
        "60 IN A 192.0.2.9",
        "A 192.0.2.2",
        "AAAA 2001:db8::1",
        "IN 60 aaaa 2001:db8::9",
        "CNAME there.example.",
        "NS ns.there.example.",
        "DNAME there.example.",
        "TXT \"a b\"",
        "MX 10 app",
        "A 192.0.2.300",
        "NOTYPE x",
        "",
    ];
    let spelled = |owner: &str, spelling: usize| match (spelling, owner.find(|at: char| at.is_ascii_alphabetic())) {
        (1, _) => owner.to_uppercase(),
        (2, Some(at)) => format!("{}\\{:03}{}", &owner[..at], owner.as_bytes()[at], &owner[at + 1..]),
        (3, _) if owner != "@" => format!("{owner}.Shard1.v3.example."),
        (4, Some(at)) => format!("{}\\{}.shard1.v3.example.", &owner[..at], &owner[at..]),
        _ => owner.to_owned(),
    };
    let outside =
        Just(("app.shard2.v3.example. A 192.0.2.9".to_owned(), "app.shard2.v3.example. A 192.0.2.9".to_owned()));
    let record = (prop::sample::select(owners.to_vec()), 0..5usize, prop::sample::select(data.to_vec()));
    let record = record.prop_map(move |(owner, spelling, data)| {
        (format!("{} {data}", spelled(owner, spelling)), format!("{owner} {data}"))
    });
    prop::collection::vec(prop_oneof![12 => record, 1 => outside], 0..6)
}

proptest! {
    /// The scheduler, verification, the conditions, the serial allocator and the name servers agree on every list of records, in any
    /// spelling: they agree with the answers.
    #[test]
    fn all_readers_agree_on_records(records in records()) {
        let server = |name: &str, address: &str| NameServer {
            name: name.parse().expect("a name"), addresses: vec![address.parse().expect("an address")],
        };
        let settings = settings(vec![server("ns.shard1.v3.example.", "192.0.2.1")]);
        let addresses = json!([{"ip": "192.0.2.1"}, {"ip": "2001:db8::1"}, {"ip": "192.0.2.2", "state": "drained"}]);
        let spec = |records: Vec<&String>| json!({"addresses": addresses, "records": records});
        let read = |spec: Value| {
            let router = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "shard1"}, "spec": spec});
            RouterInfo::new(&serde_json::from_value(router).expect("a Router"), &world::Settings::of(Arc::new(settings.clone())))
        };
        let spelled = spec(records.iter().map(|(spelled, _)| spelled).collect());
        let (info, plain) = (read(spelled.clone()), read(spec(records.iter().map(|(_, plain)| plain).collect())));
        let (shard, plain) = (info.shard.as_ref().expect("a zone"), plain.shard.expect("a zone"));
        prop_assert_eq!(shard.digest, plain.digest);
        prop_assert_eq!(&shard.expectation, &plain.expectation);
        prop_assert_eq!(&shard.record_labels, &plain.record_labels);
        prop_assert_eq!(shard.diagnostics.len(), plain.diagnostics.len());

        let compiled = compiled(spelled, &settings);
        let zone = compiled.zones.iter().find(|zone| zone.router.as_deref() == Some("shard1")).expect("a zone");
        let name = |label: &str| format!("{label}.shard1.v3.example.").parse::<Name>().expect("a name");
        let has_former_name = zone.contents.get(&name("old-app"), RecordType::CNAME).is_some_and(|rrset| {
            rrset.rdata == [Box::from("old-app.shard2.v3.example.".parse::<Name>().expect("a name").as_wire())]
        });
        prop_assert_eq!(has_former_name, !info.has_records_at("old-app"));

        let stage = stage(&compiled);
        let answers = |label: &str| ["A", "AAAA"].map(|rtype| answer(&stage, &format!("{label}.shard1.v3.example. {rtype}")));
        let own = ["192.0.2.1", "2001:db8::1"].map(|ip| ip.parse::<IpAddr>().expect("an address"));
        for label in ["app", "q-app", "a", "b", "ns", "free"] {
            let is_taken = shard.expectation.taken(label).is_some();
            prop_assert_eq!(is_taken, answers(label) != answers("free") || label == "ns", "{}", label);
            prop_assert_eq!(is_taken, info.target.taken.contains(label), "{}", label);
            if !is_taken {
                let Expected::Addresses(mut found) = shard.expectation.of(&name(label)).clone() else { panic!("{label}") };
                found.sort_unstable();
                prop_assert_eq!(&*found, &own, "{}", label);
            }
        }
    }
}
