//! Findings from surveys written by hand: one that is as it should be, and one fault after another put into it.

use super::super::survey::{Parent, Proof, Trail};
use super::*;

const DOMAIN: &str = "apps.example.";

fn silent() -> QueryError {
    QueryError::Silent(std::time::Duration::from_secs(2))
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn name_servers(of: &[(&str, &[&str])]) -> NameServers {
    let addresses = |list: &[&str]| list.iter().map(|address| address.parse().expect("an address")).collect();
    of.iter().map(|(server, list)| (name(server), addresses(list))).collect()
}

fn two() -> NameServers {
    name_servers(&[("ns1.apps.example.", &["192.0.2.1"]), ("ns2.apps.example.", &["198.51.100.2"])])
}

fn start(serial: u32) -> Start {
    let (rcode, authoritative, recursion, edns) = (Rcode::NOERROR, true, false, Some(1_232));
    Start { rcode, authoritative, recursion, edns, serial: Some(serial) }
}

fn server(called: &str, address: &str) -> Server {
    let wildcard = ["203.0.113.7".parse().expect("an address")];
    Server {
        name: called.to_owned(),
        address: format!("{address}:53").parse().expect("an address"),
        udp: Ok(start(7)),
        tcp: Ok(start(7)),
        child: two(),
        unknown_option: Ok(Rcode::NOERROR),
        unknown_version: Ok(Rcode::BADVERS),
        transfer: Transfer::Refused,
        zones: vec![
            Zone { apex: name("routes.apps.example."), start: Ok(start(3)), wildcard: None },
            Zone {
                apex: name("shard1.apps.example."),
                start: Ok(start(4)),
                wildcard: Some(Ok(wildcard.into_iter().collect())),
            },
        ],
        encrypted: Vec::new(),
    }
}

fn parent(servers: NameServers) -> Parent {
    let address = "203.0.113.53:53".parse().expect("an address");
    Parent { address, says: Ok(Delegation { rcode: Rcode::NOERROR, servers }) }
}

/// A platform as it should be.
fn healthy() -> Observations {
    Observations {
        domain: name(DOMAIN),
        alias_zone: name("routes.apps.example."),
        expected: two(),
        private: false,
        lost: None,
        without_address: Vec::new(),
        host: None,
        parent_zone: Some(name("example.")),
        parents: vec![parent(two())],
        servers: vec![server("ns1.apps.example.", "192.0.2.1"), server("ns2.apps.example.", "198.51.100.2")],
        knows_shards: true,
    }
}

/// Asserts that the survey has exactly these findings that are not good, and gives them.
fn check(survey: &Observations, codes: &[(Severity, &str)]) -> Vec<Diagnosis> {
    let found: Vec<Diagnosis> = diagnose(survey).into_iter().filter(|finding| finding.severity != Good).collect();
    let listed: Vec<(Severity, &str)> = found.iter().map(|finding| (finding.severity, finding.code)).collect();
    assert_eq!(listed, codes, "{found:#?}");
    found
}

#[test]
fn what_is_as_it_should_be_is_good() {
    let findings = diagnose(&healthy());
    assert!(findings.iter().all(|finding| finding.severity == Good), "{findings:#?}");
    let codes: Vec<&str> = findings.iter().map(|finding| finding.code).collect();
    assert_eq!(codes, ["delegation", "server"]);
    assert_eq!(findings[1].subjects, ["ns1.apps.example. (192.0.2.1:53)", "ns2.apps.example. (198.51.100.2:53)"]);
}

#[test]
fn encrypted_transports_that_fail() {
    let mut survey = healthy();
    let offered = |transport: &str, checked| EncryptedTransport {
        host: name("ns1.apps.example."),
        transport: transport.parse().expect("a transport"),
        checked,
    };
    survey.servers[0].encrypted = vec![offered("dot", Ok(()))];
    check(&survey, &[]);
    survey.servers[0].encrypted = vec![offered("h2:8443", Err("connection refused".to_owned()))];
    let found = check(&survey, &[(Error, "encrypted-failed")]);
    let expected = "over h2:8443, which the SVCB records of ns1.apps.example. offer: connection refused; open the port";
    assert!(found[0].message.starts_with(expected), "{}", found[0].message);
}

#[test]
fn parents_that_differ_or_fail() {
    let mut survey = healthy();
    let only = name_servers(&[("ns1.apps.example.", &["192.0.2.1"])]);
    survey.parents.push(parent(only));
    survey.parents.push(Parent { says: Err(silent()), ..parent(two()) });
    let refusing = Delegation { rcode: Rcode::REFUSED, servers: NameServers::new() };
    survey.parents.push(Parent { says: Ok(refusing), ..parent(two()) });
    survey.knows_shards = false;
    let codes = [
        (Error, "parent-silent"),
        (Error, "parent-not-authoritative"),
        (Warning, "parents-differ"),
        (Error, "ns-missing"),
        (Note, "shards-unknown"),
    ];
    check(&survey, &codes);
    survey.knows_shards = true;
    survey.parents.clear();
    survey.lost = Some("at example.: no answer in time".to_owned());
    assert_eq!(check(&survey, &[(Error, "parent-not-found")])[0].add.len(), 4);
}

#[test]
fn addresses_that_nobody_can_reach_are_errors_unless_they_are_meant() {
    let private = ["127.0.0.1", "10.0.0.1", "192.168.0.1", "169.254.0.1", "100.64.0.1", "::1", "fd00::1", "fe80::1"];
    let public = ["192.0.2.1", "100.128.0.1", "2001:db8::1"];
    for (address, public) in
        private.map(|address| (address, false)).into_iter().chain(public.map(|address| (address, true)))
    {
        let mut survey = healthy();
        survey.servers[0].address.set_ip(address.parse().expect("an address"));
        match public {
            true => check(&survey, &[]),
            false => check(&survey, &[(Error, "address-not-public")]),
        };
        survey.private = true;
        check(&survey, &[]);
    }
    let mut survey = healthy();
    survey.expected = name_servers(&[("ns1.apps.example.", &["192.0.2.1"])]);
    survey.parents = vec![parent(survey.expected.clone())];
    survey.servers.truncate(1);
    survey.servers[0].child = survey.expected.clone();
    survey.without_address = vec![name("ns7.example.net.")];
    check(&survey, &[(Error, "ns-without-address"), (Warning, "one-server")]);
}

#[test]
fn faults_of_a_server() {
    type Break = fn(&mut Server);
    let cases: [(&[(Severity, &str)], Break); 15] = [
        (&[(Error, "udp-silent"), (Note, "tcp")], |server| server.udp = Err(silent())),
        (&[(Error, "tcp-silent")], |server| {
            server.tcp = Err(QueryError::Unreachable(std::io::ErrorKind::ConnectionRefused))
        }),
        (&[(Error, "not-authoritative")], |server| server.udp = Ok(Start { authoritative: false, ..start(7) })),
        (&[(Error, "not-authoritative")], |server| {
            server.udp = Ok(Start { rcode: Rcode::REFUSED, serial: None, ..start(7) });
        }),
        (&[(Warning, "recursion")], |server| server.udp = Ok(Start { recursion: true, ..start(7) })),
        (&[(Warning, "edns-missing")], |server| server.udp = Ok(Start { edns: None, ..start(7) })),
        (&[(Warning, "edns-size")], |server| server.udp = Ok(Start { edns: Some(4_096), ..start(7) })),
        (&[(Warning, "edns-option")], |server| server.unknown_option = Ok(Rcode::FORMERR)),
        (&[(Warning, "edns-version")], |server| server.unknown_version = Ok(Rcode::NOERROR)),
        (&[(Warning, "edns-version")], |server| server.unknown_version = Err(silent())),
        (&[(Warning, "transfer-open")], |server| server.transfer = Transfer::Given),
        (&[(Error, "zone-missing")], |server| {
            server.zones[1].start = Ok(Start { rcode: Rcode::REFUSED, serial: None, ..start(4) });
        }),
        (&[(Error, "wildcard-empty")], |server| server.zones[1].wildcard = Some(Ok(BTreeSet::new()))),
        (&[(Error, "wildcard-missing")], |server| server.zones[1].wildcard = Some(Err("NXDOMAIN".to_owned()))),
        (&[(Error, "ns-differ")], |server| drop(server.child.remove(&name("ns2.apps.example.")))),
    ];
    for (codes, break_it) in cases {
        let mut survey = healthy();
        break_it(&mut survey.servers[1]);
        check(&survey, codes);
    }
}

#[test]
fn custom_hosts() {
    let target = "shop-web.routes.apps.example.";
    let trail = |aliases: &[&str], addresses: &[&str]| Trail {
        rcode: Rcode::NOERROR,
        aliases: aliases.iter().map(|alias| name(alias)).collect(),
        addresses: addresses.iter().map(|address| address.parse().expect("an address")).collect(),
    };
    let wanted = "www.shop.example. 300 IN CNAME shop-web.routes.apps.example.";
    let vague = "www.shop.example. 300 IN CNAME <label>.routes.apps.example.";
    let system = "shop-web.shard1.apps.example.";
    type Case<'a> = (Trail, bool, &'a [(Severity, &'a str)], &'a [&'a str]);
    let cases: [Case; 9] = [
        (trail(&[target, system], &["203.0.113.7"]), true, &[], &[]),
        (trail(&[target, system], &["203.0.113.7"]), false, &[], &[]),
        (trail(&[], &[]), true, &[(Error, "host-missing")], &[wanted]),
        (trail(&[], &[]), false, &[(Error, "host-missing")], &[vague]),
        (trail(&[], &["203.0.113.7"]), true, &[(Warning, "host-addresses")], &[wanted]),
        (trail(&["other.routes.apps.example."], &["203.0.113.7"]), true, &[(Error, "host-wrong-alias")], &[wanted]),
        (trail(&["elsewhere.example."], &["203.0.113.7"]), false, &[(Error, "host-elsewhere")], &[vague]),
        (trail(&[system], &["203.0.113.7"]), false, &[(Warning, "host-no-stable-alias")], &[vague]),
        (trail(&[target], &[]), true, &[(Error, "host-dead-end")], &[]),
    ];
    for (seen, knows, codes, add) in cases {
        let mut survey = healthy();
        let (name, target) = (name("www.shop.example."), knows.then(|| name(target)));
        survey.host = Some(Host { name, target, seen: Ok(seen), proof: None });
        let findings = check(&survey, codes);
        let listed: Vec<&str> = findings.iter().flat_map(|finding| &finding.add).map(String::as_str).collect();
        assert_eq!(listed, add, "{findings:#?}");
    }
}

#[test]
fn proofs_of_hosts() {
    let alias = Trail {
        rcode: Rcode::NOERROR,
        aliases: vec![name("shop-web.routes.apps.example.")],
        addresses: ["203.0.113.7".parse().expect("an address")].into(),
    };
    for (seen, codes, add) in [
        (Ok(true), &[][..], &[][..]),
        (
            Ok(false),
            &[(Error, "host-unverified")],
            &["_signpost-challenge.www.shop.example. 300 IN TXT \"signpost=abc\""],
        ),
        (Err("the resolver does not help".to_owned()), &[(Error, "host-unseen")], &[]),
    ] {
        let owner = name("_signpost-challenge.www.shop.example.");
        let proof = Some(Proof { owner, text: "signpost=abc".to_owned(), seen });
        let name = name("www.shop.example.");
        let host = Some(Host { name, target: None, seen: Ok(alias.clone()), proof });
        let findings = check(&Observations { host, ..healthy() }, codes);
        let listed: Vec<&str> = findings.iter().flat_map(|finding| &finding.add).map(String::as_str).collect();
        assert_eq!(listed, add);
    }
}

#[test]
fn no_record_is_recommended_that_is_wrong_elsewhere() {
    let mixed =
        || name_servers(&[("ns1.apps.example.", &["10.0.0.1"]), ("ns2.apps.example.", &["198.51.100.2", "fd00::2"])]);
    let others = [
        NameServers::new(),
        name_servers(&[("ns2.apps.example.", &["198.51.100.2"])]),
        name_servers(&[("ns1.apps.example.", &[]), ("ns2.apps.example.", &[])]),
        name_servers(&[("ns1.apps.example.", &["203.0.113.1"]), ("ns2.apps.example.", &["198.51.100.9"])]),
    ];
    for servers in others {
        let mut survey = healthy();
        survey.expected = mixed();
        survey.servers.iter_mut().for_each(|server| server.child = mixed());
        survey.parents = vec![parent(servers.clone())];
        let findings = diagnose(&survey);
        for record in findings.iter().flat_map(|finding| &finding.add) {
            assert!(!record.contains("10.0.0.1") && !record.contains("fd00::") && !record.contains("ns1."), "{record}");
        }
        let removed = |record: &String| record.contains("203.0.113.1");
        assert!(!findings.iter().flat_map(|finding| &finding.remove).any(removed), "the public address of ns1 stays");
        // Where they are meant, they are.
        survey.private = true;
        let findings = diagnose(&survey);
        assert!(
            findings.iter().flat_map(|finding| &finding.add).any(|record| record.contains("10.0.0.1")),
            "{servers:?}"
        );
    }
}

#[test]
fn equal_findings_are_one() {
    let mut survey = healthy();
    let says = Ok(Delegation { rcode: Rcode::REFUSED, servers: NameServers::new() });
    survey.parents = (1..=13)
        .map(|last| Parent { address: format!("203.0.113.{last}:53").parse().expect("an address"), says: says.clone() })
        .collect();
    let findings = check(&survey, &[(Error, "parent-not-authoritative")]);
    assert_eq!((findings[0].subject.as_str(), findings[0].subjects.len()), ("parent 203.0.113.1:53", 13));
    let report = super::super::finding::Report::new(&name(DOMAIN), findings);
    let text = report.table(crate::cli::style::Painter::PLAIN);
    assert!(text.contains("parent 203.0.113.1:53 and 12 more: it returned REFUSED"), "{text}");
    assert!(text.contains("parent 203.0.113.13:53") && text.ends_with("1 errors, 0 warnings\n"), "{text}");
}
