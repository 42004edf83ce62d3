//! Any octets as a query over UDP and TCP. The property: no panic; a response is one to hickory-proto, is no larger than
//! allowed, has the query's identifier and opcode, and either no question or the query's, octet by octet.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use signpost::nameserver::cookie::{Cookies, Secret};
use signpost::nameserver::{Context, Outcome, Peer, Response, Settings, Stats, Transport, respond};
use signpost::wire::{Name, RecordType};
use signpost::zone::db::{Snapshot, ZoneDb};
use signpost::zone::{Contents, Ttl, Zone};

fuzz_target!(|query: &[u8]| {
    for (transport, limit) in [(Transport::Udp, 1232), (Transport::Tcp, 65535)] {
        holds(query, transport, limit);
    }
});

fn holds(query: &[u8], transport: Transport, limit: usize) {
    static SNAPSHOT: LazyLock<std::sync::Arc<Snapshot>> = LazyLock::new(snapshot);
    let settings = Settings {
        nsid: Some((*b"ns1").into()),
        version: Some("signpost".into()),
        cookies: Some(Cookies { first: Secret::new([7; 16]), others: Box::default(), required: query.len() % 2 == 0 }),
        ..Settings::default()
    };
    let stats = Stats::new();
    let context = Context { snapshot: &SNAPSHOT, settings: &settings, stats: &stats, limiter: None };
    let address = ([192, 0, 2, 53], 4000).into();
    let peer = Peer { address, transport, now: 1_800_000_000, random: query.len() as u32 };
    let mut buffer = vec![0; 65535];
    let mut response = Response::new(&mut buffer);
    if respond(&context, query, &peer, &mut response) == Outcome::Drop {
        return;
    }
    let response = response.octets();
    assert!(response.len() <= limit);
    assert_eq!(response[..2], query[..2]);
    assert_eq!(response[2] & 0xf8, 0x80 | query[2] & 0x78);
    if response[4..6] == [0, 1] {
        let mut end = 12;
        while query[end] != 0 {
            end += usize::from(query[end]) + 1;
        }
        assert_eq!(response[12..end + 5], query[12..end + 5]);
    } else {
        assert_eq!(response[4..6], [0, 0]);
    }
    let parsed = hickory_proto::op::Message::from_vec(response).expect("a well-formed response");
    let message = domain::base::Message::from_octets(response).expect("a header");
    for section in [message.answer(), message.authority(), message.additional()] {
        for record in section.expect("a section") {
            record.expect("a record").to_any_record::<domain::rdata::AllRecordData<_, _>>().expect("data of its type");
        }
    }
    if transport == Transport::Udp {
        // RFC 6891 §6.2.5: without EDNS 512 octets, with it what the client takes, as far as an independent parser can tell.
        let asked = hickory_proto::op::Message::from_vec(query).ok().and_then(|query| query.edns);
        let allowed = match (&parsed.edns, asked) {
            (None, _) => 512,
            (Some(_), Some(asked)) => usize::from(asked.max_payload()).clamp(512, limit),
            (Some(_), None) => limit,
        };
        assert!(response.len() <= allowed, "{} octets where {allowed} are allowed", response.len());
    }
}

/// Zones in which every kind of answer can be met.
fn snapshot() -> std::sync::Arc<Snapshot> {
    let zone = |apex: &str, records: &[(&str, RecordType, &[u8])]| {
        let apex: Name = apex.parse().expect("a name");
        let mut contents = Contents::new(apex.clone());
        let soa = [b"\x02ns\0\x05admin\0", &[1u8; 20][..]].concat();
        for (owner, rtype, rdata) in [("@", RecordType::SOA, &soa[..])].iter().chain(records) {
            let owner = Name::parse(owner.as_bytes(), &apex).expect("a name");
            contents.add(owner, *rtype, Ttl::MAX, (*rdata).into()).expect("in the zone");
        }
        Zone::build(&contents).expect("a zone")
    };
    let db = ZoneDb::new();
    db.publish(zone(
        "z.",
        &[
            ("*", RecordType::A, &[192, 0, 2, 1]),
            ("*", RecordType::A, &[192, 0, 2, 2]),
            ("c", RecordType::CNAME, b"\x01x\x01d\x01z\0"),
            ("d", RecordType::DNAME, b"\x01e\x01z\0"),
            ("x.e", RecordType::CNAME, b"\x01c\x01z\0"),
            ("m", RecordType::MX, b"\0\x01\x01a\x01m\x01z\0"),
            ("a.m", RecordType::AAAA, &[1; 16]),
            ("s", RecordType::NS, b"\x01n\x01s\x01z\0"),
            ("n.s", RecordType::A, &[192, 0, 2, 3]),
            ("h", RecordType::HTTPS, b"\0\x01\0"),
            ("t", RecordType::TXT, &[&[255; 1][..], &[b'x'; 255]].concat().repeat(6)),
            ("@", RecordType::NSEC, b"\x01c\x01z\0\0\x01\x40"),
            ("c", RecordType::NSEC, b"\x01z\0\0\x01\x40"),
        ],
    ));
    db.publish(zone("a.z.", &[("@", RecordType::NS, b"\x02ns\x01a\x01z\0"), ("ns", RecordType::A, &[192, 0, 2, 4])]));
    db.set_ready();
    db.snapshot()
}
