//! Objects to zones: whole zones as text, and single changes compared with a whole compilation.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::{Value, json};
use signpost_control::compiler::challenges::ChallengeInput;
use signpost_control::compiler::former_domains::FormerDomain;
use signpost_control::compiler::inputs::{BindingInput, RouterInput};
use signpost_control::compiler::platform::{Change, Platform};
use signpost_control::compiler::settings::{NameServer, Settings};
use signpost_control::compiler::{Compiled, Digest, Inputs, ShardView, alias, apex, compile, compile_platform, parent};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::check::{self, Severity};
use signpost_dns::zone::{Contents, OwnerChange};
use signpost_dns::zonefile;
use signpost_types::v1alpha1::challenge_record::ChallengeRecord;
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::Router;

const DOMAIN: &str = "v3.example";

fn settings() -> Settings {
    let servers = vec![
        NameServer {
            name: name("ns1.v3.example."),
            addresses: vec!["192.0.2.53".parse().expect("an address"), "2001:db8::53".parse().expect("an address")],
        },
        NameServer { name: name("ns.other.example."), addresses: Vec::new() },
    ];
    Settings::new(DOMAIN, servers, &[]).expect("good settings")
}

/// Returns settings with SVCB records, and with a second name server inside a shard of the property below.
fn with_services() -> Settings {
    let mut servers = settings().name_servers().to_vec();
    servers.push(NameServer { name: name("ns2.a.v3.example."), addresses: servers[0].addresses.clone() });
    let transports = ["dot", "h2:8443"].map(|text| text.parse().expect("a transport"));
    Settings::new(DOMAIN, servers, &[]).expect("good settings").with_transports(&transports, "/dns-query")
}

fn name(text: &str) -> Name {
    text.parse().expect("a name of a test")
}

fn router(name: &str, second: u32, spec: Value) -> RouterInput {
    let created = format!("2026-01-01T00:00:{second:02}Z");
    let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
        "metadata": {"name": name, "creationTimestamp": created}, "spec": spec});
    let object: Router = serde_json::from_value(object).expect("a Router of a test");
    let mut diagnostics = Vec::new();
    let input = RouterInput::read(&object, DOMAIN, &mut diagnostics).expect("it makes a zone");
    assert!(diagnostics.is_empty(), "{diagnostics:?}");
    input
}

const SINCE: &str = "2026-01-01T00:00:00Z";
const UNTIL: &str = "2026-01-02T00:00:00Z";

fn binding(namespace: &str, name: &str, second: u32, label: &str, shard: &str) -> BindingInput {
    moved(namespace, name, second, label, shard, &[])
}

/// Returns a binding of a route that has left these shards; its former names still point to a shard with a preceding `!`.
fn moved(namespace: &str, name: &str, second: u32, label: &str, shard: &str, left: &[&str]) -> BindingInput {
    let former = |zone: &&str| match zone.strip_prefix('!') {
        None => json!({"name": format!("{label}.{zone}"), "router": "old", "since": SINCE, "until": UNTIL}),
        Some(zone) => {
            json!({"name": format!("{label}.{zone}"), "router": "old", "since": SINCE, "from": UNTIL, "until": UNTIL})
        }
    };
    let former_names: Vec<Value> = left.iter().map(former).collect();
    let created = format!("2026-01-01T00:00:{second:02}Z");
    let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding",
        "metadata": {"namespace": namespace, "name": name, "creationTimestamp": created},
        "spec": {"routeNamespace": namespace, "routeName": name, "routeUID": "1", "router": "r", "dns": shard,
                 "label": label, "names": [], "formerNames": former_names, "strategy": "round-robin"}});
    let object: RouteBinding = serde_json::from_value(object).expect("a RouteBinding of a test");
    BindingInput::read(&object, &mut Vec::new()).expect("it makes an alias")
}

fn base(text: &str) -> Arc<Contents> {
    let path: Arc<std::path::Path> = std::path::Path::new("v3.example.zone").into();
    let mut includes = zonefile::include::NoIncludes;
    let text: Vec<&str> = text.lines().map(str::trim).collect();
    let read = zonefile::read_zone(text.join("\n").as_bytes(), &path, Some(name("v3.example.")), &mut includes);
    Arc::new(read.contents.unwrap_or_else(|| panic!("{:?}", read.findings)))
}

/// Returns a zone's records as lines, without the SOA: owner, TTL, type, data.
fn lines(zone: &Contents) -> Vec<String> {
    let text = String::from_utf8(zonefile::write::to_text(zone)).expect("zone files are ASCII");
    let origin: Arc<std::path::Path> = std::path::Path::new("written").into();
    let (records, findings) = zonefile::read_records(text.as_bytes(), &origin, zone.apex());
    assert!(findings.is_empty(), "{findings:?}\n{text}");
    let mut lines: Vec<String> = records
        .iter()
        .filter(|record| record.rtype != signpost_dns::wire::RecordType::SOA)
        .map(|record| {
            let mut data = Contents::new(Name::root());
            data.add(Name::root(), record.rtype, record.ttl.expect("written with TTLs"), record.rdata.clone())
                .expect("in a test");
            let text = String::from_utf8(zonefile::write::to_text(&data)).expect("ASCII");
            let line =
                text.lines().find(|line| line.contains(&record.rtype.to_string())).expect("one record").to_owned();
            let data = line.split_whitespace().skip_while(|word| *word != record.rtype.to_string());
            format!(
                "{} {} {}",
                record.owner,
                record.ttl.expect("in a test").seconds(),
                data.collect::<Vec<_>>().join(" ")
            )
        })
        .collect();
    lines.sort();
    lines
}

fn zone<'a>(compiled: &'a Compiled, apex: &str) -> &'a Contents {
    let apex = name(apex);
    &compiled.zones.iter().find(|zone| *zone.contents.apex() == apex).expect("the zone is there").contents
}

#[test]
fn a_platform_comes_to_be_zones() {
    let inputs = Inputs {
        routers: vec![
            router(
                "shard1",
                0,
                json!({"addresses": [{"ip": "10.245.2.3"}, {"ip": "10.245.2.2"}, {"ip": "2001:db8::1", "state": "drained"}],
                       "records": ["_acme-challenge.app TXT token", "@ CAA 0 issue \"ca.example\""]}),
            ),
            router("empty", 0, json!({"addresses": [{"ip": "192.0.2.1", "state": "drained"}], "ttl": 60})),
            router("far", 0, json!({"dns": "apps.elsewhere.example", "addresses": [{"ip": "2001:db8::7"}]})),
        ],
        bindings: vec![binding("ns", "a", 0, "ns-a", "shard1.v3.example")],
        ..Inputs::default()
    };
    let compiled = compile(&inputs, &settings());
    assert_eq!(compiled.diagnostics, []);
    assert_eq!(
        lines(zone(&compiled, "v3.example.")),
        [
            "empty.v3.example. 3600 NS ns.other.example.",
            "empty.v3.example. 3600 NS ns1.v3.example.",
            "ns1.v3.example. 3600 A 192.0.2.53",
            "ns1.v3.example. 3600 AAAA 2001:db8::53",
            "routes.v3.example. 3600 NS ns.other.example.",
            "routes.v3.example. 3600 NS ns1.v3.example.",
            "shard1.v3.example. 3600 NS ns.other.example.",
            "shard1.v3.example. 3600 NS ns1.v3.example.",
            "v3.example. 3600 NS ns.other.example.",
            "v3.example. 3600 NS ns1.v3.example.",
        ]
    );
    assert_eq!(
        lines(zone(&compiled, "routes.v3.example.")),
        [
            "ns-a.routes.v3.example. 30 CNAME ns-a.shard1.v3.example.",
            "routes.v3.example. 3600 NS ns.other.example.",
            "routes.v3.example. 3600 NS ns1.v3.example.",
        ]
    );
    assert_eq!(
        lines(zone(&compiled, "shard1.v3.example.")),
        [
            "*._acme-challenge.app.shard1.v3.example. 30 A 10.245.2.2",
            "*._acme-challenge.app.shard1.v3.example. 30 A 10.245.2.3",
            "*.app.shard1.v3.example. 30 A 10.245.2.2",
            "*.app.shard1.v3.example. 30 A 10.245.2.3",
            "*.shard1.v3.example. 30 A 10.245.2.2",
            "*.shard1.v3.example. 30 A 10.245.2.3",
            "_acme-challenge.app.shard1.v3.example. 30 A 10.245.2.2",
            "_acme-challenge.app.shard1.v3.example. 30 A 10.245.2.3",
            "_acme-challenge.app.shard1.v3.example. 30 TXT \"token\"",
            "app.shard1.v3.example. 30 A 10.245.2.2",
            "app.shard1.v3.example. 30 A 10.245.2.3",
            "shard1.v3.example. 30 CAA 0 issue \"ca.example\"",
            "shard1.v3.example. 3600 NS ns.other.example.",
            "shard1.v3.example. 3600 NS ns1.v3.example.",
        ]
    );
    assert_eq!(
        lines(zone(&compiled, "empty.v3.example."))[0],
        "*.empty.v3.example. 60 TXT \"no active address\"",
        "all drained: the names exist"
    );
    for compiled in &compiled.zones {
        let errors = check::check(&compiled.contents);
        let errors: Vec<_> = errors.iter().filter(|finding| finding.code.severity() == Severity::Error).collect();
        assert!(errors.is_empty(), "{errors:?}");
    }
}

#[test]
fn a_base_file_joins_the_parent() {
    let mut settings = settings();
    settings.base = Some(base(
        "$TTL 300
         @ SOA . admin 2009092001 1 2 3 4
         @ NS elsewhere.example.
         @ TXT kept
         ns1 A 198.51.100.1
         www A 198.51.100.2
         shard1 NS ns1
         x.shard1 A 198.51.100.3
         a.routes TXT hidden
         other NS ns.other.example.",
    ));
    let routers = vec![router("shard1", 0, json!({}))];
    let compiled = compile(&Inputs { routers, bindings: Vec::new(), ..Inputs::default() }, &settings);
    let parent = zone(&compiled, "v3.example.");
    let lines = lines(parent);
    for present in [
        "v3.example. 300 TXT \"kept\"",
        "ns1.v3.example. 3600 A 192.0.2.53",
        "www.v3.example. 300 A 198.51.100.2",
        "shard1.v3.example. 3600 NS ns.other.example.",
        "other.v3.example. 300 NS ns.other.example.",
    ] {
        assert!(lines.iter().any(|line| line == present), "{present} is missing from {lines:#?}");
    }
    for absent in ["198.51.100.1", "198.51.100.3", "hidden", "elsewhere"] {
        assert!(!lines.iter().any(|line| line.contains(absent)), "{absent} is in {lines:#?}");
    }
    let soa = parent.get(parent.apex(), signpost_dns::wire::RecordType::SOA).expect("a SOA");
    let names = [name("ns1.v3.example.").as_wire(), name("admin.v3.example.").as_wire()].concat();
    assert_eq!(soa.rdata[0].strip_prefix(&*names).map(<[u8]>::len), Some(20), "{soa:?}");
    assert_eq!(apex::serial_of(parent), Some(0));
    let platform = Platform::new(&settings);
    assert_eq!(parent::hidden_base_names(platform.delegations(), &settings), [name("a.routes.v3.example.")]);
}

#[test]
fn conflicts_get_verdicts_and_the_older_serves() {
    let address = |ip: &str| json!({"dns": "s.v3.example", "addresses": [{"ip": ip}]});
    let routers = vec![
        router("young", 9, address("192.0.2.9")),
        router("old", 1, address("192.0.2.1")),
        router("domain", 0, json!({"dns": "v3.example"})),
        router("alias", 0, json!({"dns": "x.routes.v3.example"})),
    ];
    let bindings =
        vec![binding("ns", "young", 9, "label", "a.v3.example"), binding("ns", "old", 1, "label", "b.v3.example")];
    let compiled = compile(&Inputs { routers, bindings, ..Inputs::default() }, &settings());
    assert_eq!(lines(zone(&compiled, "s.v3.example."))[0], "*.s.v3.example. 30 A 192.0.2.1");
    assert_eq!(
        lines(zone(&compiled, "routes.v3.example."))[0],
        "label.routes.v3.example. 30 CNAME label.b.v3.example."
    );
    let diagnostics: Vec<String> = compiled.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(diagnostics.len(), 4, "{diagnostics:?}");
    for (diagnostic, part) in
        diagnostics.iter().zip(["Router alias", "Router domain", "Router young", "RouteBinding ns/young"])
    {
        assert!(diagnostic.starts_with(part), "{diagnostic}");
    }
    assert_eq!(compiled.zones.len(), 3);
}

/// Returns settings of a platform whose domain was v2.example before, and the new domain's own subdomain before that.
fn with_former_domains() -> Settings {
    let former = |domain: &str, server: &str| FormerDomain {
        domain: domain.to_owned(),
        name_servers: vec![(server.to_owned(), vec!["192.0.2.7".parse().expect("an address")])],
        transports: vec!["dot".to_owned()],
        https_path: "/dns-query".to_owned(),
    };
    let former = [former("v2.example", "ns1.v2.example"), former("v1.v3.example", "ns.elsewhere.example")];
    settings().with_former_domains(&former, |_| None)
}

#[test]
fn former_domains_keep_their_zones() {
    let address = |dns: &str| json!({"dns": dns, "addresses": [{"ip": "192.0.2.1"}]});
    let routers = vec![
        router("new", 0, address("s.v3.example")),
        router("old", 0, address("s.v2.example")),
        router("oldest", 0, address("s.v1.v3.example")),
        router("former", 0, address("v2.example")),
        router("alias", 0, address("x.routes.v2.example")),
    ];
    let inputs =
        Inputs { routers, bindings: vec![binding("ns", "web", 0, "web", "s.v3.example")], ..Inputs::default() };
    let compiled = compile(&inputs, &with_former_domains());
    for domain in ["v3.example", "v2.example", "v1.v3.example"] {
        let aliases = lines(zone(&compiled, &format!("routes.{domain}.")));
        assert!(aliases.contains(&format!("web.routes.{domain}. 30 CNAME web.s.v3.example.")), "{aliases:#?}");
        let parent = lines(zone(&compiled, &format!("{domain}.")));
        let delegates = |name: &str| parent.iter().any(|line| line.starts_with(&format!("{name}. 3600 NS ")));
        assert!(delegates(&format!("routes.{domain}")) && delegates(&format!("s.{domain}")), "{parent:#?}");
        assert_eq!(
            delegates("v1.v3.example"),
            domain.ends_with("v3.example"),
            "the domain itself, and the one above it"
        );
    }
    // The zone above a former domain delegates it to the name servers that it had.
    let former = lines(zone(&compiled, "v2.example."));
    for line in [
        "v2.example. 3600 NS ns1.v2.example.",
        "ns1.v2.example. 3600 A 192.0.2.7",
        "_dns.ns1.v2.example. 3600 SVCB 1 ns1.v2.example. alpn=\"dot\"",
    ] {
        assert!(former.iter().any(|found| found == line), "{line} is missing from {former:#?}");
    }
    let refused: Vec<String> = compiled.diagnostics.iter().map(ToString::to_string).collect();
    assert!(refused[0].starts_with("Router alias") && refused[1].contains("former domain"), "{refused:?}");
    assert_eq!((compiled.zones.len(), refused.len()), (9, 2), "{refused:?}");

    // Before the change, the zones of the former domain were the same.
    let before = Settings::new(
        "v2.example",
        vec![NameServer { name: name("ns1.v2.example."), addresses: vec!["192.0.2.7".parse().expect("an address")] }],
        &[],
    );
    let transport = ["dot".parse().expect("a transport")];
    let before = before.expect("good settings").with_transports(&transport, "/dns-query");
    assert_eq!(before.digest(), with_former_domains().former_domains()[0].digest());
    let earlier = compile(&inputs, &before);
    for apex in ["v2.example.", "routes.v2.example."] {
        let of = |compiled: &Compiled| {
            let found = compiled.zones.iter().find(|zone| *zone.contents.apex() == name(apex)).expect("it is there");
            (found.digest, lines(&found.contents))
        };
        assert_eq!(of(&compiled), of(&earlier), "{apex}");
    }
}

#[test]
fn svcb_records_are_in_the_zone_of_the_name_server() {
    let mut settings = with_services();
    settings.base = Some(base("$TTL 300\n@ SOA ns1 admin 1 1 2 3 4\n@ NS ns1\n_dns.ns1 SVCB 1 . alpn=dot\n"));
    let routers = vec![router("a", 0, json!({"dns": "a.v3.example", "addresses": [{"ip": "192.0.2.1"}]}))];
    let compiled = compile(&Inputs { routers, bindings: Vec::new(), ..Inputs::default() }, &settings);
    let svcb = |apex: &str| {
        let lines = lines(zone(&compiled, apex));
        lines.into_iter().filter(|line| line.contains(" SVCB ")).collect::<Vec<_>>()
    };
    let of = |server: &str| {
        [
            format!("_dns.{server}. 3600 SVCB 1 {server}. alpn=\"dot\""),
            format!("_dns.{server}. 3600 SVCB 1 {server}. alpn=\"h2\" port=8443 key7=\"/dns-query{{?dns}}\""),
        ]
    };
    assert_eq!(svcb("v3.example."), of("ns1.v3.example"));
    assert_eq!(svcb("a.v3.example."), of("ns2.a.v3.example"));
    assert_ne!(with_services().digest(), with_services().with_transports(&[], "/dns-query").digest());
}

#[test]
fn moved_routes_leave_former_names() {
    let inputs = Inputs {
        routers: vec![
            router(
                "shard1",
                0,
                json!({"addresses": [{"ip": "192.0.2.1"}], "ttl": 300, "records": ["taken TXT x", "_acme-challenge.web TXT y"]}),
            ),
            router("shard2", 0, json!({"addresses": [{"ip": "192.0.2.2"}]})),
            router("shard3", 0, json!({"addresses": [{"ip": "192.0.2.3"}]})),
        ],
        bindings: vec![
            // Moved twice: both former names point to the current name.
            moved("ns", "web", 0, "web", "shard3.v3.example", &["shard1.v3.example", "shard2.v3.example"]),
            // A move and its reversal, to a zone without a former name of it; and a route whose old zone was deleted.
            moved("ns", "back", 0, "back", "shard2.v3.example", &["gone.v3.example"]),
            moved("ns", "taken", 0, "taken", "shard2.v3.example", &["shard1.v3.example"]),
        ],
        ..Inputs::default()
    };
    let compiled = compile(&inputs, &settings());
    let of = |apex: &str| {
        let lines = lines(zone(&compiled, apex)).into_iter();
        lines.filter(|line| !line.contains(" NS ")).collect::<Vec<String>>()
    };
    assert_eq!(
        of("shard1.v3.example."),
        [
            "*._acme-challenge.web.shard1.v3.example. 300 A 192.0.2.1",
            "*.shard1.v3.example. 300 A 192.0.2.1",
            "*.taken.shard1.v3.example. 300 A 192.0.2.1",
            // The names below the former one no longer block the wildcard.
            "*.web.shard1.v3.example. 30 CNAME web.shard3.v3.example.",
            "_acme-challenge.web.shard1.v3.example. 300 A 192.0.2.1",
            "_acme-challenge.web.shard1.v3.example. 300 TXT \"y\"",
            "taken.shard1.v3.example. 300 A 192.0.2.1",
            "taken.shard1.v3.example. 300 TXT \"x\"",
            "web.shard1.v3.example. 30 CNAME web.shard3.v3.example.",
        ]
    );
    assert_eq!(
        of("shard2.v3.example."),
        [
            "*.shard2.v3.example. 30 A 192.0.2.2",
            "*.web.shard2.v3.example. 30 CNAME web.shard3.v3.example.",
            "web.shard2.v3.example. 30 CNAME web.shard3.v3.example.",
        ]
    );
    assert_eq!(of("shard3.v3.example."), ["*.shard3.v3.example. 30 A 192.0.2.3"]);
    assert_eq!(compiled.diagnostics.len(), 1, "{:?}", compiled.diagnostics);
    assert_eq!(compiled.diagnostics[0].path, "spec.records");
    for zone in &compiled.zones {
        let findings = check::check(&zone.contents);
        assert!(findings.iter().all(|finding| finding.code.severity() != Severity::Error), "{findings:?}");
    }
}

#[test]
fn former_names_of_a_route_that_has_come_back_lead_to_where_it_was() {
    let shards =
        ["shard1", "shard2", "shard3"].map(|name| router(name, 0, json!({"addresses": [{"ip": "192.0.2.1"}]})));
    let cnames = |left: &[&str]| -> Vec<String> {
        let web = moved("ns", "web", 0, "web", "shard1.v3.example", left);
        let compiled =
            compile(&Inputs { routers: shards.to_vec(), bindings: vec![web], ..Inputs::default() }, &settings());
        let lines = compiled.zones.iter().filter(|zone| zone.router.is_some()).flat_map(|zone| lines(&zone.contents));
        lines.filter(|line| line.contains("CNAME") && !line.starts_with('*')).collect()
    };
    // It was on shard1, then shard2, then shard3, and is on shard1 again.
    assert_eq!(
        cnames(&["shard2.v3.example", "!shard3.v3.example"]),
        ["web.shard2.v3.example. 30 CNAME web.shard3.v3.example."]
    );
    assert_eq!(
        cnames(&["shard2.v3.example", "shard3.v3.example"]),
        ["shard2", "shard3"].map(|left| format!("web.{left}.v3.example. 30 CNAME web.shard1.v3.example."))
    );
    assert_eq!(cnames(&["!shard2.v3.example"]), [""; 0], "there is nothing to lead on yet");
}

#[test]
fn former_names_that_are_none_are_left_out() {
    let object = |former_names: &[&str]| {
        let former = |name: &&str| json!({"name": name, "router": "old", "since": "2026-01-01T00:00:00Z", "until": "2026-01-02T00:00:00Z"});
        let former_names: Vec<Value> = former_names.iter().map(former).collect();
        let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding",
            "metadata": {"namespace": "ns", "name": "web"},
            "spec": {"routeNamespace": "ns", "routeName": "web", "routeUID": "1", "router": "r", "dns": "s1.v3.example",
                     "label": "web", "names": [], "formerNames": former_names, "strategy": "round-robin"}});
        serde_json::from_value::<RouteBinding>(object).expect("a RouteBinding of a test")
    };
    for (former_names, zones, diagnostics) in [
        (
            &["web.s2.v3.example", "Web.S2.v3.example", "web.s0.v3.example"][..],
            &["s0.v3.example.", "s2.v3.example."][..],
            0,
        ),
        (&["web.s1.v3.example", "other.s2.v3.example", "web", "", "web..x"], &[], 5),
    ] {
        let mut found = Vec::new();
        let input = BindingInput::read(&object(former_names), &mut found).expect("it has an alias");
        let read: Vec<String> = input.former_names.iter().map(ToString::to_string).collect();
        assert_eq!(
            (read.iter().map(String::as_str).collect::<Vec<_>>(), found.len()),
            (zones.to_vec(), diagnostics),
            "{found:?}"
        );
    }
}

/// Returns a binding of a route with this adopted host.
fn adopted(name: &str, second: u32, label: &str, shard: &str, host: &str) -> BindingInput {
    BindingInput { adopted: Some(self::name(host)), ..binding("ns", name, second, label, shard) }
}

#[test]
fn inner_shards_are_cut_out_of_the_closest_zone() {
    let shard = |name: &str, dns: &str, last: u8, records: &[&str]| {
        let spec = json!({"dns": dns, "addresses": [{"ip": format!("192.0.2.{last}")}], "records": records});
        router(name, 0, spec)
    };
    let routers = vec![
        shard("apps", "apps.v3.example", 1, &["x.eu TXT lost", "b TXT kept"]),
        shard("eu", "eu.apps.v3.example", 2, &[]),
        shard("south", "south.eu.apps.v3.example", 3, &[]),
        shard("deep", "a.b.apps.v3.example", 4, &[]),
        shard("far", "far.example", 5, &[]),
        shard("near", "near.far.example", 6, &[]),
    ];
    let mut servers = settings().name_servers().to_vec();
    let address = servers[0].addresses[0];
    servers.push(NameServer { name: name("ns2.eu.apps.v3.example."), addresses: vec![address] });
    let transports = ["dot".parse().expect("a transport")];
    let settings =
        Settings::new(DOMAIN, servers, &[]).expect("good settings").with_transports(&transports, "/dns-query");
    // The former name has no place at the cut.
    let bindings = vec![moved("ns", "eu", 1, "eu", "far.example", &["apps.v3.example"])];
    let compiled = compile(&Inputs { routers, bindings, ..Inputs::default() }, &settings);
    let of = |apex: &str, kinds: &[&str]| {
        let lines = lines(zone(&compiled, apex)).into_iter();
        lines.filter(|line| kinds.iter().any(|kind| line.contains(kind))).collect::<Vec<String>>()
    };
    let delegated = |apex: &str| {
        let owners = of(apex, &[" NS "]).into_iter().map(|line| line.split(' ').next().expect("an owner").to_owned());
        owners.collect::<std::collections::BTreeSet<_>>().into_iter().collect::<Vec<String>>()
    };
    assert_eq!(delegated("v3.example."), ["apps.v3.example.", "routes.v3.example.", "v3.example."]);
    assert_eq!(delegated("apps.v3.example."), ["a.b.apps.v3.example.", "apps.v3.example.", "eu.apps.v3.example."]);
    assert_eq!(delegated("eu.apps.v3.example."), ["eu.apps.v3.example.", "south.eu.apps.v3.example."]);
    assert_eq!(delegated("south.eu.apps.v3.example."), ["south.eu.apps.v3.example."]);
    assert_eq!(delegated("far.example."), ["far.example.", "near.far.example."]);
    // Glue is there, but no other record below a cut; the name above the deep zone resolves like all others.
    assert_eq!(
        of("apps.v3.example.", &[" A ", " TXT ", " CNAME ", " SVCB "]),
        [
            "*.apps.v3.example. 30 A 192.0.2.1",
            "*.b.apps.v3.example. 30 A 192.0.2.1",
            "b.apps.v3.example. 30 A 192.0.2.1",
            "b.apps.v3.example. 30 TXT \"kept\"",
            "ns2.eu.apps.v3.example. 3600 A 192.0.2.53",
        ]
    );
    assert!(of("eu.apps.v3.example.", &[" SVCB "]).iter().any(|line| line.starts_with("_dns.ns2.eu.apps.v3.example.")));
    let diagnostics: Vec<String> = compiled.diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(diagnostics.len(), 2, "{diagnostics:?}");
    assert!(diagnostics[0].contains("x.eu.apps.v3.example. is in eu.apps.v3.example., the zone of another Router"));
    assert!(
        diagnostics[1].contains("eu.apps.v3.example. has records, so the former name cannot lead"),
        "{diagnostics:?}"
    );
    for zone in &compiled.zones {
        let findings = check::check(&zone.contents);
        assert!(findings.iter().all(|finding| finding.code.severity() != Severity::Error), "{findings:?}");
    }
}

/// A host that the router of a source admitted, in the platform's domain and in no shard, is a CNAME to the alias of its Route.
#[test]
fn hosts_in_no_shard_are_in_the_parent_zone() {
    let custom = |name: &str, second, host: &str| BindingInput {
        custom: Some(self::name(host)),
        ..binding("ns", name, second, &format!("ns-{name}"), "s1.v3.example")
    };
    let routers = vec![router("s1", 1, json!({"dns": "s1.v3.example", "addresses": [{"ip": "192.0.2.1"}]}))];
    let bindings = vec![
        custom("a", 1, "www.v3.example."),
        // The older one has it.
        custom("b", 2, "www.v3.example."),
        custom("c", 1, "a.b.v3.example."),
        // In another zone, at a name of the base, of a name server, and of the parent zone itself, and outside of the domain.
        custom("d", 1, "x.s1.v3.example."),
        custom("e", 1, "based.v3.example."),
        custom("f", 1, "ns1.v3.example."),
        custom("g", 1, "v3.example."),
        custom("h", 1, "www.shop.example."),
    ];
    let mut settings = settings();
    settings.base = Some(base("$TTL 9\n@ SOA . a 1 1 1 1 1\n@ NS n.example.\nbased TXT t\n"));
    let compiled = compile(&Inputs { routers, bindings, ..Inputs::default() }, &settings);
    let parent = lines(zone(&compiled, "v3.example."));
    let aliases: Vec<&String> = parent.iter().filter(|line| line.contains(" CNAME ")).collect();
    assert_eq!(
        aliases,
        ["a.b.v3.example. 30 CNAME ns-c.routes.v3.example.", "www.v3.example. 30 CNAME ns-a.routes.v3.example."]
    );
    let findings = check::check(
        &compiled.zones.iter().find(|zone| zone.contents.apex() == &name("v3.example.")).expect("it is there").contents,
    );
    assert!(findings.iter().all(|finding| finding.code.severity() != Severity::Error), "{findings:?}");
}

/// A name of the outer shard that is live stays live: the API rejects such an inner shard, and here it is not served.
#[test]
fn an_inner_shard_waits_for_the_names_of_the_outer_one() {
    let shard = |name: &str, second, dns: &str| {
        router(name, second, json!({"dns": dns, "addresses": [{"ip": format!("192.0.2.{second}")}]}))
    };
    let outer = || shard("apps", 1, "apps.v3.example");
    for (what, inner, bindings, is_withheld) in [
        ("no names", "eu.apps.v3.example", vec![], false),
        ("a system name", "eu.apps.v3.example", vec![binding("ns", "a", 4, "eu", "apps.v3.example")], true),
        ("of the same second", "eu.apps.v3.example", vec![binding("ns", "a", 5, "eu", "apps.v3.example")], true),
        ("newer than the shard", "eu.apps.v3.example", vec![binding("ns", "a", 6, "eu", "apps.v3.example")], false),
        ("another name", "eu.apps.v3.example", vec![binding("ns", "a", 4, "us", "apps.v3.example")], false),
        ("on another shard", "eu.apps.v3.example", vec![binding("ns", "a", 4, "eu", "far.example")], false),
        ("above it", "x.eu.apps.v3.example", vec![binding("ns", "a", 4, "eu", "apps.v3.example")], false),
        (
            "a former name",
            "eu.apps.v3.example",
            vec![moved("ns", "a", 4, "eu", "far.example", &["apps.v3.example"])],
            true,
        ),
        (
            "a name that is about to be a former one",
            "eu.apps.v3.example",
            vec![moved("ns", "a", 4, "eu", "far.example", &["!apps.v3.example"])],
            true,
        ),
        (
            "an adopted host below it",
            "eu.apps.v3.example",
            vec![adopted("a", 4, "ns-a", "apps.v3.example", "b.web.eu.apps.v3.example.")],
            true,
        ),
        (
            "an adopted wildcard there",
            "eu.apps.v3.example",
            vec![adopted("a", 4, "ns-a", "apps.v3.example", "*.eu.apps.v3.example.")],
            true,
        ),
        (
            "an adopted host next to it",
            "eu.apps.v3.example",
            vec![adopted("a", 4, "ns-a", "apps.v3.example", "web.us.apps.v3.example.")],
            false,
        ),
        (
            "its own adopted host",
            "eu.apps.v3.example",
            vec![adopted("a", 4, "ns-a", "eu.apps.v3.example", "web.eu.apps.v3.example.")],
            false,
        ),
    ] {
        let routers = vec![outer(), shard("inner", 5, inner)];
        let compiled = compile(&Inputs { routers, bindings, ..Inputs::default() }, &settings());
        let is_served = compiled.zones.iter().any(|zone| *zone.contents.apex() == name(&format!("{inner}.")));
        let lines = lines(zone(&compiled, "apps.v3.example."));
        let is_cut = lines.iter().any(|line| line.starts_with(&format!("{inner}. 3600 NS ")));
        assert_eq!((is_served, is_cut), (!is_withheld, !is_withheld), "{what}");
        let refused = compiled.diagnostics.iter().filter(|diagnostic| diagnostic.path == "spec.dns");
        let refused: Vec<String> = refused.map(ToString::to_string).collect();
        assert_eq!(refused.len(), usize::from(is_withheld), "{what}: {refused:?}");
        assert!(refused.iter().all(|text| text.contains("names of Routes in the zone apps.v3.example")), "{refused:?}");
    }
}

fn challenge(namespace: &str, second: u32, owner: &str, value: &str) -> ChallengeInput {
    let created = format!("2026-01-01T00:00:{second:02}Z");
    let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "ChallengeRecord",
        "metadata": {"namespace": namespace, "name": "c", "creationTimestamp": created},
        "spec": {"name": owner, "value": value, "expiresAt": UNTIL}});
    let object: ChallengeRecord = serde_json::from_value(object).expect("a ChallengeRecord of a test");
    ChallengeInput::read(&object).expect("it can be in a zone")
}

#[test]
fn challenges_are_served_for_names_of_their_namespace() {
    let shard = |name: &str, dns: &str, records: Value| {
        router(name, 1, json!({"dns": dns, "addresses": [{"ip": "192.0.2.1"}], "records": records}))
    };
    let platform = "signpost-system";
    for (what, namespace, owner, is_served) in [
        ("a name", "shop", "_acme-challenge.shop-web.s1.v3.example", true),
        ("a former name", "shop", "_acme-challenge.shop-old.s1.v3.example", true),
        ("an adopted host", "shop", "_acme-challenge.www.deep.s1.v3.example", true),
        ("an alias", "shop", "_acme-challenge.shop-web.routes.v3.example", true),
        ("a custom host", "shop", "shop-web.acme.v3.example", true),
        ("the name of another namespace", "evil", "_acme-challenge.shop-web.s1.v3.example", false),
        ("the alias of another namespace", "evil", "_acme-challenge.shop-web.routes.v3.example", false),
        ("the custom host of another namespace", "evil", "shop-web.acme.v3.example", false),
        ("a name on another shard", "shop", "_acme-challenge.shop-web.s2.v3.example", false),
        ("a name below", "shop", "_acme-challenge.x.shop-web.s1.v3.example", false),
        ("a name of no Route", "shop", "_acme-challenge.shop-none.s1.v3.example", false),
        ("the shard of a tenant", "shop", "_acme-challenge.s1.v3.example", false),
        ("a shard", platform, "_acme-challenge.s1.v3.example", true),
        ("a custom host, by the platform", platform, "shop-web.acme.v3.example", true),
        ("a label of no Route", platform, "shop-none.acme.v3.example", false),
        ("the parent zone", platform, "_acme-challenge.v3.example", false),
        ("another name", "shop", "shop-web.s1.v3.example", false),
        ("a name outside", platform, "_acme-challenge.example", false),
        ("next to a CNAME", "shop", "_acme-challenge.shop-cname.s1.v3.example", false),
        ("next to TXT records", "shop", "_acme-challenge.shop-txt.s1.v3.example", true),
    ] {
        let records = json!(["_acme-challenge.shop-cname CNAME x.example.", "_acme-challenge.shop-txt 60 TXT own"]);
        let inputs = Inputs {
            routers: vec![shard("s1", "s1.v3.example", records), shard("s2", "s2.v3.example", json!([]))],
            bindings: vec![
                binding("shop", "web", 1, "shop-web", "s1.v3.example"),
                moved("shop", "old", 1, "shop-old", "s2.v3.example", &["s1.v3.example"]),
                binding("shop", "cname", 1, "shop-cname", "s1.v3.example"),
                binding("shop", "txt", 1, "shop-txt", "s1.v3.example"),
                BindingInput {
                    adopted: Some(name("www.deep.s1.v3.example.")),
                    ..binding("shop", "adopted", 1, "shop-adopted", "s1.v3.example")
                },
                // Its router serves all names that no other Route has.
                BindingInput {
                    adopted: Some(name("*.s1.v3.example.")),
                    ..binding("shop", "all", 1, "shop-all", "s1.v3.example")
                },
            ],
            challenges: vec![("x/c".into(), challenge(namespace, 1, owner, "proof"))],
        };
        let compiled = compile(&inputs, &settings());
        let without = compile(&Inputs { challenges: Vec::new(), ..inputs }, &settings());
        let all = |compiled: &Compiled| -> Vec<String> {
            compiled.zones.iter().flat_map(|zone| lines(&zone.contents)).collect()
        };
        let (with, without_lines) = (all(&compiled), all(&without));
        let is_proof = |line: &String| line.contains("TXT \"proof\"");
        let proofs: Vec<&String> = with.iter().filter(|line| is_proof(line)).collect();
        assert_eq!(!proofs.is_empty(), is_served, "{what}: {proofs:?}");
        assert!(proofs.iter().all(|line| line.starts_with(&format!("{owner}. "))), "{what}: {proofs:?}");
        // Nothing else changes but the names that would not exist: they get what the wildcard answers.
        let changed = without_lines.iter().filter(|line| !with.contains(line)).collect::<Vec<_>>();
        assert!(changed.is_empty(), "{what}: {changed:?}");
        let digests = |compiled: &Compiled| compiled.zones.iter().map(|zone| zone.digest).collect::<Vec<_>>();
        assert_eq!(digests(&compiled) != digests(&without), is_served, "{what}");
        let refused: Vec<String> = compiled.diagnostics.iter().map(ToString::to_string).collect();
        assert!(refused.is_empty(), "{what}: {refused:?}");
        for zone in &compiled.zones {
            let faults: Vec<_> = check::check(&zone.contents);
            let faults: Vec<_> = faults.iter().filter(|fault| fault.code.severity() == Severity::Error).collect();
            assert!(faults.is_empty(), "{what}: {faults:?}");
        }
    }
}

#[test]
fn a_challenge_hides_no_name_from_the_wildcard() {
    let inputs = Inputs {
        routers: vec![router("s1", 1, json!({"dns": "s1.v3.example", "addresses": [{"ip": "192.0.2.1"}]}))],
        bindings: vec![binding("shop", "web", 1, "shop-web", "s1.v3.example")],
        challenges: (0..12)
            .map(|at| {
                let owner = "_acme-challenge.shop-web.s1.v3.example";
                (format!("shop/c{at}").into(), challenge("shop", at, owner, &format!("proof{at:02}")))
            })
            .collect(),
    };
    let compiled = compile(&inputs, &settings());
    let lines = lines(zone(&compiled, "s1.v3.example."));
    for owner in ["shop-web", "*.shop-web", "_acme-challenge.shop-web", "*._acme-challenge.shop-web"] {
        let line = format!("{owner}.s1.v3.example. 30 A 192.0.2.1");
        assert!(lines.contains(&line), "{line}: {lines:?}");
    }
    // The oldest ten values.
    let values: Vec<&String> = lines.iter().filter(|line| line.contains("TXT")).collect();
    assert_eq!(values.len(), 10, "{values:?}");
    assert!(values.iter().all(|line| !line.contains("proof10") && !line.contains("proof11")), "{values:?}");
}

/// One step of a history: what is set or removed.
#[derive(Debug, Clone)]
enum Step {
    Router(usize, Option<RouterInput>),
    Binding(usize, Option<BindingInput>),
    Challenge(usize, Option<ChallengeInput>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let apexes =
        ["a.v3.example", "l1.a.v3.example", "x.l1.a.v3.example", "v3.example", "routes.v3.example", "far.example"];
    let hosts = ["w.l1.a.v3.example.", "w.x.l1.a.v3.example.", "w.far.example."];
    let customs = ["w.v3.example.", "w.x.l1.a.v3.example.", "w.v2.example."];
    let router = (0..5usize, 0..3u32, 0..6usize, proptest::option::weighted(0.7, 0..4u8)).prop_map(
        move |(number, second, apex, address)| {
            let spec = |address| json!({"dns": apexes[apex], "addresses": [{"ip": format!("192.0.2.{address}")}]});
            Step::Router(number, address.map(|address| router(&format!("r{number}"), second, spec(address))))
        },
    );
    // The platform's own zones never had a route.
    let is_shards = |apex: &str| apex != "v3.example" && apex != "routes.v3.example";
    let left = proptest::collection::vec(0..6usize, 0..4);
    let host = (proptest::option::weighted(0.3, 0..3usize), proptest::option::weighted(0.3, 0..3usize));
    let binding = (0..5usize, 0..3u32, 0..3usize, proptest::option::weighted(0.7, 0..3usize), left, host).prop_map(
        move |(number, second, label, shard, left, (host, custom))| {
            let one = |shard: usize| {
                let names = left.iter().map(|left| apexes[*left]).enumerate();
                let left: Vec<String> = names
                    .map(|(at, left)| format!("{}{left}", if at == 2 && is_shards(left) { "!" } else { "" }))
                    .collect();
                let left: Vec<&str> = left.iter().map(String::as_str).collect();
                let moved = moved("ns", &format!("b{number}"), second, &format!("l{label}"), apexes[shard], &left);
                let host = host
                    .map(|host| name(hosts[host]))
                    .filter(|host| host.is_below(&name(&format!("{}.", apexes[shard]))));
                let custom = custom.map(|custom| name(customs[custom])).filter(|_| host.is_none());
                BindingInput { adopted: host, custom, ..moved }
            };
            Step::Binding(number, shard.map(one))
        },
    );
    let challenge = (0..5usize, 0..3u32, proptest::option::weighted(0.8, (0..8usize, 0..3usize))).prop_map(
        |(number, second, one)| {
            let owners = [
                "_acme-challenge.l0.a.v3.example",
                "_acme-challenge.l1.a.v3.example",
                "_acme-challenge.w.x.l1.a.v3.example",
                "_acme-challenge.l1.routes.v3.example",
                "_acme-challenge.a.v3.example",
                "_acme-challenge.far.example",
                "l2.acme.v3.example",
                "l0.v3.example",
            ];
            let one = one.map(|(owner, namespace)| {
                challenge(["ns", "other", "signpost-system"][namespace], second, owners[owner], &format!("v{number}"))
            });
            Step::Challenge(number, one)
        },
    );
    proptest::collection::vec(prop_oneof![2 => router, 2 => binding, 1 => challenge], 0..40)
}

fn put(zone: &mut Contents, change: OwnerChange) {
    zone.remove_owner(&change.owner);
    for rrset in change.rrsets {
        zone.set(change.owner.clone(), rrset).expect("in zone");
    }
}

proptest! {
    /// Changes applied one by one have the same result as compiling the final objects at once, including digests and diagnostics.
    #[test]
    fn one_by_one_is_all_at_once(
        history in steps(),
        with_base in any::<bool>(),
        with_transports in any::<bool>(),
        // Former domains come and go at some steps.
        former in any::<[bool; 2]>(),
        former_at in proptest::collection::vec(any::<bool>(), 40),
    ) {
        let mut settings = settings();
        if with_transports {
            settings = with_services();
        }
        if with_base {
            settings.base = Some(base("$TTL 9\n@ SOA . a 1 1 1 1 1\n@ NS n.example.\nw.x.l1.a TXT t\na TXT t\nl1.a NS n.example.\nc TXT t\n"));
        }
        let plain = settings.clone();
        let domains = [name("a.v3.example."), name("v2.example.")];
        let domains = domains.iter().zip(former).filter(|(_, is_former)| *is_former).map(|(domain, _)| domain);
        let former: Vec<FormerDomain> =
            domains.map(|domain| FormerDomain::new(domain.to_string().trim_end_matches('.'), None)).collect();
        let with_former = settings.with_former_domains(&former, |_| None);
        let mut former_at = former_at.into_iter();
        let mut platform = Platform::new(&settings);
        let mut parent_zone = parent::zone(platform.delegations(), &settings, 0);
        let mut alias_zone = alias::zone([], &BTreeMap::new(), &settings, 0);
        let mut shards: BTreeMap<Name, Arc<ShardView>> = BTreeMap::new();
        let mut objects = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        for step in history {
            let mut changes = Vec::new();
            settings = if former_at.next().unwrap_or_default() { with_former.clone() } else { plain.clone() };
            platform.set_former_domains(&settings, &mut changes);
            let mut former_names: BTreeMap<Name, Digest> = BTreeMap::new();
            match step {
                Step::Router(number, Some(router)) => {
                    objects.0.insert(number, router.clone());
                    platform.put(&router.name.clone(), Some(Arc::new(ShardView::new(router, &settings))), &mut changes);
                }
                Step::Router(number, None) => {
                    objects.0.remove(&number);
                    platform.put::<ShardView>(&format!("r{number}"), None, &mut changes);
                }
                Step::Binding(number, Some(binding)) => {
                    objects.1.insert(number, binding.clone());
                    platform.put(&binding.key.clone(), Some(Arc::new(binding)), &mut changes);
                }
                Step::Binding(number, None) => {
                    objects.1.remove(&number);
                    platform.put::<BindingInput>(&format!("ns/b{number}"), None, &mut changes);
                }
                Step::Challenge(number, one) => {
                    let key: Box<str> = format!("ns/c{number}").into();
                    platform.put(&key, one.clone().map(Arc::new), &mut changes);
                    match one {
                        Some(one) => drop(objects.2.insert(key, one)),
                        None => drop(objects.2.remove(&key)),
                    }
                }
            }
            for change in changes {
                match change {
                    Change::Shard { apex, router: Some(router) } => drop(shards.insert(apex, router)),
                    Change::Shard { apex, router: None } => drop(shards.remove(&apex)),
                    Change::FormerName { apex, digest, .. } => {
                        prop_assert!(shards.contains_key(&apex), "{} is not served", apex);
                        former_names.insert(apex, digest);
                    }
                    Change::Delegation { apex, domain, .. } if domain == *settings.domain() => {
                        let changes = parent::changes(&apex, platform.delegations(), &settings);
                        changes.into_iter().for_each(|change| put(&mut parent_zone, change));
                    }
                    Change::Delegation { .. } => {}
                    Change::Alias { label, binding, .. } => {
                        let shard = binding.as_ref().map(|binding| binding.target());
                        put(&mut alias_zone, alias::change(&label, shard, &settings));
                    }
                    Change::AliasText { label, values, .. } => {
                        put(&mut alias_zone, alias::text_change(&label, &values, &settings).expect("short labels"));
                    }
                }
            }
            for (apex, digest) in former_names {
                prop_assert_eq!(digest, platform.former_names(&apex).digest());
            }
        }
        let (routers, bindings, challenges) = objects;
        let inputs = Inputs {
            routers: routers.into_values().collect(),
            bindings: bindings.into_values().collect(),
            challenges: challenges.into_iter().collect(),
        };
        let whole = compile(&inputs, &settings);
        let stepwise = compile_platform(&platform, &settings);
        prop_assert_eq!(&stepwise, &whole);
        prop_assert_eq!(lines(&parent_zone), lines(zone(&whole, "v3.example.")));
        prop_assert_eq!(lines(&alias_zone), lines(zone(&whole, "routes.v3.example.")));
        // From each former name, it is one step to the current name, which is not a former name's.
        let former_name_of = |owner: &Name| whole.zones.iter().find_map(|zone| zone.contents.get(owner, RecordType::CNAME));
        for zone in whole.zones.iter().filter(|zone| zone.router.is_some()) {
            for (owner, rrsets) in zone.contents.owners() {
                for rrset in rrsets.iter().filter(|rrset| rrset.rtype == RecordType::CNAME) {
                    let target = Name::from_wire(&rrset.rdata[0]).expect("a name");
                    prop_assert!(former_name_of(&target).is_none(), "{} leads to {}, which leads on", owner, target);
                }
            }
        }
        let served: Vec<(Name, Arc<ShardView>)> = shards.into_iter().collect();
        let expected: Vec<_> = platform.shards().map(|(apex, router)| (apex.clone(), Arc::clone(router))).collect();
        prop_assert_eq!(served, expected);
    }
}
