//! Any octets as an UPDATE message. The properties: no panic; what is accepted is written and read back unchanged, and its sections are
//! those that hickory-proto reads; and a zone that has no such names meets none of the prerequisites that a record is there.

#![no_main]

#[path = "../../crates/dns/tests/conformance/rfc2136/octets.rs"]
mod octets;

use std::sync::LazyLock;

use hickory_proto::op::Message;
use libfuzzer_sys::fuzz_target;
use signpost_dns::update::{Record, Request, plan};
use signpost_dns::wire::{Class, Name, RecordType};
use signpost_dns::zone::{Contents, Ttl, Zone};

fuzz_target!(|message: &[u8]| {
    static ZONE: LazyLock<Zone> = LazyLock::new(zone);
    let Ok(request) = Request::read(message) else { return };
    if let Some(written) = octets::to_octets(7, &request) {
        assert_eq!(Request::read(&written), Ok(request.clone()));
    }
    if let Ok(parsed) = Message::from_vec(message) {
        agrees(&request.prerequisites, &parsed.answers);
        agrees(&request.updates, &parsed.authorities);
    }
    if let Ok(operations) = plan(&request, &ZONE) {
        assert_eq!(operations.len(), request.updates.len());
        for (operation, update) in operations.iter().zip(&request.updates) {
            assert!(*operation.owner() == update.owner && update.owner.is_at_or_below(ZONE.apex()));
            assert!(matches!(update.rtype, RecordType::TXT | RecordType::ANY));
        }
        let needs_missing = |record: &Record| record.class == Class::ANY && ZONE.owner(&record.owner).is_empty();
        assert!(!request.prerequisites.iter().any(needs_missing));
    }
});

/// Compares the records with those of an independent parser, which leaves some out.
fn agrees(ours: &[Record], theirs: &[hickory_proto::rr::Record]) {
    if ours.len() != theirs.len() {
        return;
    }
    for (our, their) in ours.iter().zip(theirs) {
        let owner = Name::from_labels(their.name.iter(), &Name::root()).expect("a name that was in a message");
        assert_eq!(our.owner, owner);
        assert_eq!((our.rtype.0, our.class.0), (their.record_type().into(), their.dns_class.into()));
        assert_eq!(our.ttl, their.ttl);
    }
}

fn zone() -> Zone {
    let apex: Name = "z.".parse().expect("a name");
    let mut contents = Contents::new(apex.clone());
    let soa = [b"\x02ns\0\x05admin\0", &[1u8; 20][..]].concat();
    let records: [(&str, RecordType, &[u8]); 7] = [
        ("@", RecordType::SOA, &soa),
        ("*", RecordType::A, &[192, 0, 2, 1]),
        ("a", RecordType::A, &[192, 0, 2, 1]),
        ("a", RecordType::MX, b"\0\x01\x01A\0"),
        ("t", RecordType::TXT, b"\x01x"),
        ("b.ent", RecordType::TXT, b"\x01x"),
        ("s", RecordType::NS, b"\x01n\x01s\x01z\0"),
    ];
    for (owner, rtype, rdata) in records {
        let owner = Name::parse(owner.as_bytes(), &apex).expect("a name");
        contents.add(owner, rtype, Ttl::MAX, rdata.into()).expect("in the zone");
    }
    Zone::build(contents).expect("a zone")
}
