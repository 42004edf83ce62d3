//! Any octets as a query: no panic, a response that independent parsers read, within its limit, with the query's question,
//! and counters that add up.
//! The fuzz target `respond` holds the same property over more of them.

#[path = "conformance/stage.rs"]
#[allow(dead_code, reason = "the stage is the conformance tests'; these use a part of it")]
mod stage;

/// The stage queries no other server.
fn also_ask(_: &stage::Stage, _: &[u8]) {}

use proptest::prelude::*;
use signpost_dns::nameserver::Transport;
use signpost_dns::nameserver::cookie::Cookies;
use signpost_dns::wire::RecordType;

use stage::{Stage, large_signatures, query, well_formed, zone};

fn stage() -> Stage {
    let many: String = (0..60)
        .map(|index| format!("many A 198.51.100.{index}\n many NS ns{index}.many\n ns{index}.many A 192.0.2.{index}\n"))
        .collect();
    let text = format!(
        "* A 192.0.2.1\n * MX 1 mail\n mail AAAA 2001:db8::1\n c CNAME d\n d CNAME e.f\n f DNAME g\n e.g CNAME c
         sub NS ns.sub\n ns.sub A 192.0.2.2\n big TXT {}\n s SRV 1 2 3 mail\n h HTTPS 1 .\n h A 192.0.2.3\n h RRSIG A
         @ NSEC c\n @ RRSIG SOA\n @ RRSIG NSEC\n c NSEC @\n{many}",
        ["x".repeat(200).as_str(); 7].join(" "),
    );
    let mut stage = Stage::new([
        zone("z.test.", &text),
        zone("a.z.test.", "@ A 192.0.2.9"),
        zone("test.", "z NS ns.z"),
        zone("far.test.", &far()),
    ]);
    stage.settings.nsid = Some((*b"ns1").into());
    stage.settings.version = Some("signpost".into());
    let first = "e5e973e5a6b2a43f48e7dc849e37bfcf".parse().expect("a secret");
    stage.settings.cookies = Some(Cookies { first, others: Box::default(), required: false });
    stage
}

/// A zone whose chains of aliases continue where no pointer reaches, with a chain of NSEC3 that is signed as largely.
fn far() -> String {
    let hashes = ["0", "a", "k", "v"].map(|digit| digit.repeat(32));
    let chain = |at: usize| {
        let (hash, next) = (&hashes[at], &hashes[(at + 1) % hashes.len()]);
        format!("{hash} NSEC3 1 {next}\n{}", large_signatures(hash, RecordType::NSEC3, 2))
    };
    let chain: String = (0..hashes.len()).map(chain).collect();
    let signed = ["a", "c", "d"].map(|owner| large_signatures(owner, RecordType::CNAME, 60)).concat();
    format!(
        "@ NSEC3PARAM\n a CNAME big\n big CNAME h\n h MX 1 mail\n h MX 2 x.elsewhere.\n h MX 3 y.elsewhere.\n h MX 4 g.h
         mail A 192.0.2.1\n c CNAME f.g\n f.g CNAME q.s\n s DNAME t\n q.t CNAME nowhere\n d CNAME sub\n sub NS ns.sub
         sub NS ns2.sub\n sub NS ns.elsewhere.\n ns.sub A 192.0.2.2\n ns2.sub A 192.0.2.3\n {signed}{chain}"
    )
}

/// Holds the property for one message.
fn holds(stage: &Stage, message: &[u8]) -> Result<(), TestCaseError> {
    let response = stage.respond(message);
    counted(stage)?;
    let Some(response) = response else { return Ok(()) };
    well_formed(message, &response);
    let limit = if stage.peer.transport == Transport::Udp { 1232 } else { 65535 };
    prop_assert!(response.len() <= limit);
    prop_assert!(response[2] & 0x80 != 0);
    prop_assert_eq!(response[2] & 0x78, message[2] & 0x78);
    if response[5] == 1 {
        let end = 12 + message[12..].iter().position(|octet| *octet == 0).unwrap_or(0) + 1;
        // Labels may hold zeros: walk them.
        let mut at = 12;
        while message[at] != 0 {
            at += usize::from(message[at]) + 1;
        }
        prop_assert!(at + 1 >= end);
        prop_assert_eq!(&response[12..at + 5], &message[12..at + 5]);
    }
    Ok(())
}

/// Each request is counted once by type and size, and once as a response or as dropped.
fn counted(stage: &Stage) -> Result<(), TestCaseError> {
    let counts = stage.stats.counts();
    let (mut requests, mut responses) = (0, 0);
    for traffic in &counts.traffic {
        requests += traffic.request_count();
        responses += traffic.responses.iter().sum::<u64>();
        prop_assert_eq!(traffic.request_sizes.messages.iter().sum::<u64>(), traffic.request_count());
        prop_assert_eq!(traffic.response_sizes.messages.iter().sum::<u64>(), traffic.responses.iter().sum::<u64>());
    }
    prop_assert_eq!(requests, responses + counts.drops.iter().sum::<u64>());
    prop_assert!(counts.kinds.iter().sum::<u64>() <= responses);
    Ok(())
}

fn valid_query() -> impl Strategy<Value = Vec<u8>> {
    let label = prop_oneof![
        Just("a"),
        Just("c"),
        Just("d"),
        Just("f"),
        Just("g"),
        Just("*"),
        Just("sub"),
        Just("ns"),
        Just("many"),
        Just("big"),
        Just("mail"),
        Just("s"),
        Just("h"),
        Just(r"\000"),
    ];
    let suffix = prop_oneof![8 => Just("z.test."), 4 => Just("far.test."), 1 => Just("test."), 1 => Just("."), 1 => Just("bind.")];
    let qtype = prop_oneof![
        Just("A"),
        Just("AAAA"),
        Just("NS"),
        Just("SOA"),
        Just("MX"),
        Just("TXT"),
        Just("CNAME"),
        Just("DNAME"),
        Just("DS"),
        Just("ANY"),
        Just("RRSIG"),
        Just("NSEC"),
        Just("SRV"),
        Just("HTTPS"),
        Just("AXFR"),
        Just("TYPE65280"),
    ];
    let option =
        prop_oneof![Just("noedns"), Just("do"), Just("size=4096"), Just("size=512"), Just("class=CH"), Just("rd")];
    (prop::collection::vec(label, 0..5), suffix, qtype, option).prop_map(|(labels, suffix, qtype, option)| {
        let name = if labels.is_empty() {
            suffix.to_owned()
        } else {
            format!("{}.{}", labels.join("."), suffix.trim_start_matches('.'))
        };
        query(&format!("{name} {qtype} {option}"))
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn valid_queries(message in valid_query(), stream: bool) {
        thread_local!(static STAGE: std::cell::RefCell<Stage> = std::cell::RefCell::new(stage()));
        STAGE.with_borrow_mut(|stage| {
            stage.peer.transport = if stream { Transport::Tcp } else { Transport::Udp };
            holds(stage, &message)
        })?;
    }

    #[test]
    fn damaged_queries(
        message in valid_query(),
        damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        thread_local!(static STAGE: Stage = stage());
        let mut message = message;
        for (at, octet) in damage {
            let at = at.index(message.len());
            message[at] = octet;
        }
        if let Some(cut) = cut {
            message.truncate(cut.index(message.len()));
        }
        STAGE.with(|stage| holds(stage, &message))?;
    }

    #[test]
    fn any_octets(message in prop::collection::vec(any::<u8>(), 0..200)) {
        thread_local!(static STAGE: Stage = stage());
        STAGE.with(|stage| holds(stage, &message))?;
    }
}
