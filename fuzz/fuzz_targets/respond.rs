//! Any octets as a query over UDP and TCP. The property: no panic; a response is one to hickory-proto, is no larger than
//! allowed, has the query's identifier and opcode, and either no question or the query's, octet by octet.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use signpost_dns::nameserver::cookie::{Cookies, Secret};
use signpost_dns::nameserver::{Context, Outcome, Peer, Response, Settings, Stats, Transport, respond};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::db::{Snapshot, ZoneDb};
use signpost_dns::zone::{Contents, Ttl, Zone};

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
    let peer = Peer { address, transport, now: 1_800_000_000, random: query.len() as u32, keepalive: Some(300) };
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
        // RFC 6891 §6.2.5: 512 octets without EDNS; with it, the size that the client accepts, according to an independent
        // parser.
        let asked = hickory_proto::op::Message::from_vec(query).ok().and_then(|query| query.edns);
        let allowed = match (&parsed.edns, asked) {
            (None, _) => 512,
            (Some(_), Some(asked)) => usize::from(asked.max_payload()).clamp(512, limit),
            (Some(_), None) => limit,
        };
        assert!(response.len() <= allowed, "{} octets where {allowed} are allowed", response.len());
    }
}

/// Returns a zone with a chain of CNAMEs that continues beyond the reach of compression pointers, and with NSEC3 records with the
/// largest signatures.
fn far() -> Zone {
    let apex: Name = "f.".parse().expect("a name");
    let mut contents = Contents::new(apex.clone());
    let mut add = |owner: &str, rtype: RecordType, rdata: &[u8]| {
        let owner = Name::parse(owner.as_bytes(), &apex).expect("a name");
        contents.add(owner, rtype, Ttl::MAX, rdata.into()).expect("in the zone");
    };
    let soa = [b"\x02ns\x01o\0\x05admin\x01o\0", &[1u8; 20][..]].concat();
    let records: [(&str, RecordType, &[u8]); 15] = [
        ("@", RecordType::SOA, &soa[..]),
        ("@", RecordType::NSEC3PARAM, &[1, 0, 0, 0, 0]),
        ("a", RecordType::CNAME, b"\x01b\x01f\0"),
        ("b", RecordType::CNAME, b"\x01c\x01f\0"),
        ("c", RecordType::MX, b"\0\x01\x01d\x01c\x01f\0"),
        ("c", RecordType::MX, b"\0\x02\x01x\x01o\0"),
        ("c", RecordType::MX, b"\0\x03\x01y\x01o\0"),
        ("d.c", RecordType::A, &[192, 0, 2, 1]),
        ("g", RecordType::CNAME, b"\x01h\x01f\0"),
        ("h", RecordType::CNAME, b"\x01q\x01i\x01f\0"),
        ("i", RecordType::DNAME, b"\x01j\x01f\0"),
        ("k", RecordType::CNAME, b"\x01l\x01s\x01f\0"),
        ("s", RecordType::NS, b"\x01n\x01s\x01f\0"),
        ("s", RecordType::NS, b"\x01m\x01s\x01f\0"),
        ("n.s", RecordType::A, &[192, 0, 2, 2]),
    ];
    for (owner, rtype, rdata) in records {
        add(owner, rtype, rdata);
    }
    let signature = |covered: RecordType, index: u8| {
        [&covered.0.to_be_bytes()[..], &[13, 1], &[0; 14], b"\x01f\0", &[index; 256]].concat()
    };
    for (owner, index) in ["a", "g", "k"].into_iter().flat_map(|owner| (0..80).map(move |index| (owner, index))) {
        add(owner, RecordType::RRSIG, &signature(RecordType::CNAME, index));
    }
    // Hashes that match no name: each queried name is between two of them.
    for (digit, hash, next) in [("0", 0x00, 0x52), ("a", 0x52, 0xff), ("v", 0xff, 0x00)] {
        let owner = digit.repeat(32);
        add(&owner, RecordType::NSEC3, &[&[1, 0, 0, 0, 0, 20][..], &[next; 20], &[0, 1, 0x40]].concat());
        add(&owner, RecordType::RRSIG, &signature(RecordType::NSEC3, hash));
    }
    Zone::build(contents).expect("a zone")
}

/// Returns a zone whose answers have room in 512 octets only with their names as short as they go, if at all: a referral, a
/// wildcard and a chain of aliases.
fn tight() -> Zone {
    let apex: Name = "t.".parse().expect("a name");
    let mut contents = Contents::new(apex.clone());
    let name = |text: &str| Name::parse(text.as_bytes(), &apex).expect("a name").as_wire().to_vec();
    let mut add = |owner: &str, rtype: RecordType, rdata: &[u8]| {
        let owner = Name::parse(owner.as_bytes(), &apex).expect("a name");
        contents.add(owner, rtype, Ttl::MAX, rdata.into()).expect("in the zone");
    };
    add("@", RecordType::SOA, &[&name("n")[..], &name("a"), &[1u8; 20]].concat());
    let long = "l".repeat(30);
    for letter in 'a'..='j' {
        let server = format!("{letter}{long}.s");
        add("s", RecordType::NS, &name(&server));
        add(&server, RecordType::A, &[192, 0, 2, 1]);
        add("*.w", RecordType::MX, &[&[0, 1][..], &name(&format!("{letter}.{long}.w"))].concat());
    }
    for at in 0..6 {
        add(&format!("{at}.{long}"), RecordType::CNAME, &name(&format!("{}.{long}", at + 1)));
    }
    add(&format!("6.{long}"), RecordType::CNAME, &name("x.d"));
    add("d", RecordType::DNAME, &name(&long));
    add(&format!("x.{long}"), RecordType::MX, &[&[0, 1][..], &name(&format!("y.x.{long}"))].concat());
    Zone::build(contents).expect("a zone")
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
        Zone::build(contents).expect("a zone")
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
    db.publish(far());
    db.publish(tight());
    db.set_ready();
    db.snapshot()
}
