//! Transfers out: what a client that follows the standards has after them, message by message, over the handler itself.

#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

#[path = "conformance/stage.rs"]
#[allow(dead_code, reason = "the stage is the conformance tests'; these use a part of it")]
mod stage;

/// The stage queries no other server.
fn also_ask(_: &stage::Stage, _: &[u8]) {}

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use domain::base::name::ToName;
use domain::base::rdata::ComposeRecordData;
use domain::rdata::AllRecordData;
use signpost_dns::nameserver::hand_off::{Answer, HandOff, HandOffKind, Handler, Progress};
use signpost_dns::nameserver::{Context, Peer, Settings, Stats, Transport};
use signpost_dns::transfer::{Rule, Transfers};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::builder::OwnerChange;
use signpost_dns::zone::policy::ZonePattern;
use signpost_dns::zone::publish::{Change, Origin, Publisher, What, build};
use signpost_dns::zone::rrset::Rdata;
use signpost_dns::zone::{Contents, Rrset, Serial, Ttl, Zone, ZoneDb, diff};
use signpost_dns::zonefile::include::NoIncludes;
use signpost_dns::zonefile::{CheckLevel, read_zone_with};

use stage::{contents, lines, query, well_formed};

type Record = (Name, RecordType, Ttl, Rdata);

fn everyone() -> Rule {
    Rule { zones: Vec::new(), networks: vec!["0.0.0.0/0".parse().unwrap()], keys: Vec::new(), tls: false }
}

/// A primary server.
struct Primary {
    zones: Publisher,
    transfers: Arc<Transfers>,
}

impl Primary {
    fn new(rules: Vec<Rule>) -> Primary {
        let transfers = Arc::new(Transfers::new(rules));
        let zones = Publisher::new(Arc::new(ZoneDb::new()));
        let listener = Arc::clone(&transfers);
        zones.listen(move |step| listener.record(step));
        Primary { zones, transfers }
    }

    fn publish(&self, contents: &Contents) {
        let zone = build(contents.clone()).unwrap();
        let step = self.zones.publish([Change::whole(Origin::Objects, zone)]);
        assert!(step.refused.is_empty());
    }

    fn change(&self, apex: &str, serial: u32, changes: Vec<OwnerChange>) {
        let what = What::Owners { changes, serial: Serial(serial) };
        let step = self.zones.publish([Change::of(&apex.parse().unwrap(), Origin::Objects, what)]);
        assert!(step.refused.is_empty());
    }

    fn zone(&self, apex: &str) -> Arc<Zone> {
        self.zones.owner(&apex.parse().unwrap()).unwrap().zone
    }

    /// Returns the messages of the answer; none for a refusal.
    fn ask(&self, message: &[u8], transport: Transport) -> Vec<Vec<u8>> {
        let address: SocketAddr = "192.0.2.1:4000".parse().unwrap();
        let peer = Peer { address, transport, now: 0, random: 0, keepalive: None };
        let (settings, stats, snapshot) = (Settings::default(), Stats::new(), self.zones.db().snapshot());
        let context = Context { snapshot: &snapshot, settings: &settings, stats: &stats, limiter: None };
        let request = HandOff::of(HandOffKind::Transfer, message, &peer, &context, None).unwrap();
        let messages = match self.transfers.answer(&request) {
            None => Vec::new(),
            Some(Answer::One(message)) => vec![message],
            Some(Answer::Later(_)) => panic!("a transfer does not wait"),
            Some(Answer::Many(mut cursor)) => {
                let mut messages = Vec::new();
                loop {
                    let mut buffer = vec![0xa5; 65_000];
                    let (octets, is_last) = match cursor.fill(&mut buffer) {
                        Progress::More(octets) => (octets, false),
                        Progress::Last(octets) => (octets, true),
                    };
                    buffer.truncate(octets);
                    messages.push(buffer);
                    if is_last {
                        break messages;
                    }
                }
            }
        };
        messages.iter().filter(|octets| !octets.is_empty()).for_each(|octets| well_formed(message, octets));
        messages
    }

    fn records(&self, message: &[u8]) -> Vec<Record> {
        self.ask(message, Transport::Tcp).iter().flat_map(|message| answers(message)).collect()
    }
}

/// The records of the answer section as `domain` reads them.
fn answers(message: &[u8]) -> Vec<Record> {
    let message = domain::base::Message::from_octets(message).unwrap();
    let read = |record: Result<domain::base::ParsedRecord<'_, _>, _>| {
        let record = record.unwrap();
        let owner = Name::from_wire(record.owner().to_name::<Vec<u8>>().as_slice()).unwrap();
        let (rtype, ttl) = (RecordType(record.rtype().to_int()), Ttl::new(record.ttl().as_secs()).unwrap());
        let record = record.to_any_record::<AllRecordData<_, _>>().unwrap();
        let mut rdata: Vec<u8> = Vec::new();
        record.data().compose_rdata(&mut rdata).unwrap();
        (owner, rtype, ttl, rdata.into_boxed_slice())
    };
    message.answer().unwrap().map(read).collect()
}

/// The contents of a zone that consists of these records.
fn assembled(apex: &Name, records: &[Record]) -> Contents {
    let mut contents = Contents::new(apex.clone());
    for (owner, rtype, ttl, rdata) in records {
        contents.add(owner.clone(), *rtype, *ttl, rdata.clone()).unwrap();
    }
    contents
}

/// Checks that a secondary server has this zone after the answer to AXFR; returns the number of messages.
#[track_caller]
fn check_axfr(primary: &Primary, apex: &str, question: &str) -> usize {
    let messages = primary.ask(&query(question), Transport::Tcp);
    let records: Vec<Record> = messages.iter().flat_map(|message| answers(message)).collect();
    let zone = primary.zone(apex);
    let expected = zone.contents();
    let (first, last) = (records.first().unwrap(), records.last().unwrap());
    assert_eq!((first.1, first), (RecordType::SOA, last));
    let inner = &records[..records.len() - 1];
    assert_eq!(inner.iter().filter(|record| record.1 == RecordType::SOA).count(), 1);
    assert_eq!(inner.len(), expected.record_count(), "each record once");
    let found = assembled(zone.apex(), inner);
    assert_eq!(diff::owners(&expected, &found).len(), 0);
    for (owner, ..) in inner {
        let (written, _) = expected.entry(owner).unwrap();
        assert_eq!(written.as_wire(), owner.as_wire(), "the case of an owner");
    }
    for (number, message) in messages.iter().enumerate() {
        assert_eq!(message[..2], [0xab, 0xcd]);
        assert_eq!(message[2] & 0x84, 0x84, "a response with AA");
        let has_opt = number == 0 && !question.contains("noedns");
        assert_eq!(message[10..12], [0, u8::from(has_opt)], "OPT in the first message");
    }
    messages.len()
}

fn file(text: &str, origin: &str) -> Contents {
    let check = CheckLevel::of_check(None, 3);
    let origin = Some(origin.parse().unwrap());
    read_zone_with(text.as_bytes(), &Arc::from(Path::new("test")), origin, &mut NoIncludes, &check).contents.unwrap()
}

/// RFC 5936 §2.2 and §3: every record, once, the glue and the occluded names too, in the case of the zone.
#[test]
fn axfr_has_the_whole_zone() {
    let primary = Primary::new(vec![everyone()]);
    let text = "@ SOA ns Admin\n@ NS ns\n@ NS ns2.Elsewhere.\n@ NS ns3.Elsewhere.\nns A 192.0.2.1\n* A 192.0.2.2
        Sub.Cut NS ns.sub.cut\nSub.Cut NS ns.Other.\nSub.Cut DS 1\nns.sub.cut A 192.0.2.3\ndeep.ns.sub.cut TXT occluded
        d DNAME elsewhere.\nbelow.d TXT occluded\na.b.c.d.e MX 10 mail.b.c.d.e\nMail.b.c.d.e AAAA 2001:db8::1
        s SRV 1 2 3 s.z.test.\nh HTTPS 1 .\nc CNAME c2.c\n*.w NS ns\nc2.c TXT x";
    primary.publish(&contents("z.test.", text));
    assert_eq!(check_axfr(&primary, "z.test.", "z.test. AXFR"), 1);
    assert_eq!(check_axfr(&primary, "z.test.", "Z.tEsT. AXFR noedns"), 1, "the case is not the client's");
    for (name, text) in [
        ("nsec", include_str!("zonefile/signed-nsec.zone")),
        ("nsec3", include_str!("zonefile/signed-nsec3.zone")),
        ("opt-out", include_str!("zonefile/signed/ecdsap256.zone")),
        ("dname", include_str!("zonefile/signed/dname-nsec3.zone")),
    ] {
        primary.publish(&file(text, "example.org."));
        assert!(check_axfr(&primary, "example.org.", "example.org. AXFR do") > 0, "{name}");
    }
}

/// §2.2: filled messages. Records after the reach of pointers, RRsets that no message holds, and large records.
#[test]
fn axfr_fills_many_messages() {
    let primary = Primary::new(vec![everyone()]);
    let mut zone = contents("z.test.", "@ SOA ns admin\n@ NS ns.elsewhere.");
    let mut add = |owner: &str, rtype, rdata: Vec<u8>| {
        let owner: Name = format!("{owner}z.test.").parse().unwrap();
        zone.add(owner, rtype, Ttl::new(60).unwrap(), rdata.into()).unwrap();
    };
    for number in 0..20_000u32 {
        add(&format!("Name-{number}."), RecordType::A, number.to_be_bytes().to_vec());
    }
    for number in 0..3_000u32 {
        let target: Name = format!("host{number}.pool.Many.z.test.").parse().unwrap();
        add("many.", RecordType::NS, target.as_wire().to_vec());
        let mail: Name = format!("{number}.mail.elsewhere.").parse().unwrap();
        add("mails.", RecordType::MX, [&[0, 1], mail.as_wire()].concat());
    }
    let large = |octets: usize| {
        let mut text = Vec::new();
        while text.len() < octets {
            text.push(255);
            text.resize(text.len() + 255, b'x');
        }
        text
    };
    add("large.", RecordType::TXT, large(60_000));
    add("large2.", RecordType::TXT, large(15_000));
    primary.publish(&zone);
    let messages = check_axfr(&primary, "z.test.", "z.test. AXFR");
    let octets: usize = primary.ask(&query("z.test. AXFR"), Transport::Tcp).iter().map(Vec::len).sum();
    assert!(messages <= octets / 16_000 + 4, "{messages} messages of {octets} octets are filled");
    assert!(octets < 1_100_000, "{octets} octets: names are compressed");
}

/// A record that fits in no message ends the transfer: other servers repeated it endlessly.
#[test]
fn a_record_that_does_not_fit_ends_the_transfer() {
    let primary = Primary::new(vec![everyone()]);
    let mut zone = contents("z.test.", "@ SOA ns admin\n@ NS ns.elsewhere.");
    let large = vec![7; 65_500].into_boxed_slice();
    zone.add("large.z.test.".parse().unwrap(), RecordType(65_400), Ttl::MAX, large).unwrap();
    primary.publish(&zone);
    let messages = primary.ask(&query("z.test. AXFR"), Transport::Tcp);
    assert_eq!((messages.len(), messages.last().map(Vec::len)), (2, Some(0)));
}

fn ixfr(question: &str, serial: u32) -> Vec<u8> {
    let mut message = query(&format!("{question} noedns"));
    message[9] = 1;
    message.extend_from_slice(b"\xc0\x0c\0\x06\0\x01\0\0\0\0\0\x16\0\0");
    message.extend_from_slice(&serial.to_be_bytes());
    message.extend_from_slice(&[0; 16]);
    message
}

/// Applies the answer to IXFR to the contents of a secondary server (RFC 1995 §4).
fn apply(contents: &mut Contents, records: &[Record]) {
    let serial = |record: &Record| {
        assert_eq!(record.1, RecordType::SOA);
        u32::from_be_bytes(record.3[record.3.len() - 20..][..4].try_into().unwrap())
    };
    let current = serial(&records[0]);
    assert_eq!(serial(records.last().unwrap()), current);
    let parts: Vec<&[Record]> = {
        let starts: Vec<usize> = (1..records.len()).filter(|at| records[*at].1 == RecordType::SOA).collect();
        starts.windows(2).map(|pair| &records[pair[0]..pair[1]]).collect()
    };
    let [deleted, added] = parts[..] else { panic!("one difference: {}", parts.len()) };
    for (owner, rtype, ttl, rdata) in deleted {
        let mut rrset = contents.remove(owner, *rtype).unwrap();
        let at = rrset.rdata.iter().position(|known| known == rdata).expect("a deleted record exists");
        assert_eq!(rrset.ttl, *ttl);
        rrset.rdata.remove(at);
        if !rrset.rdata.is_empty() {
            contents.set(owner.clone(), rrset).unwrap();
        }
    }
    for (owner, rtype, ttl, rdata) in added {
        contents.add(owner.clone(), *rtype, *ttl, rdata.clone()).unwrap();
    }
}

fn change(owner: &str, addresses: &[u8]) -> OwnerChange {
    let rdata = addresses.iter().map(|last| Rdata::from([192, 0, 2, *last])).collect::<Vec<_>>();
    let rrset = Rrset { rtype: RecordType::A, ttl: Ttl::new(60).unwrap(), rdata };
    let rrsets = if addresses.is_empty() { Vec::new() } else { vec![rrset] };
    OwnerChange { owner: owner.parse().unwrap(), rrsets, weights: Vec::new() }
}

/// RFC 1995 §4 and §5: one condensed difference from any known version, and the whole zone from others.
#[test]
fn ixfr_has_the_difference() {
    let primary = Primary::new(vec![everyone()]);
    let text = (0..300).map(|number| format!("n{number} A 10.0.0.1\n")).collect::<String>();
    primary.publish(&contents("z.test.", &format!("@ SOA ns admin\n@ NS ns.elsewhere.\n{text}")));
    let mut versions = vec![primary.zone("z.test.").contents()];
    for (number, changes) in [
        vec![change("new.z.test.", &[1, 2])],
        vec![change("new.z.test.", &[2, 3]), change("n7.z.test.", &[])],
        vec![change("New.z.test.", &[]), change("n7.z.test.", &[7]), change("n8.z.test.", &[8])],
        vec![change("n8.z.test.", &[9]), change("n8.z.test.", &[10])],
    ]
    .into_iter()
    .enumerate()
    {
        primary.change("z.test.", 2027 + number as u32, changes);
        versions.push(primary.zone("z.test.").contents());
    }
    // As a whole, as shards are.
    let mut whole = versions.last().unwrap().clone();
    whole.remove_owner(&"n9.z.test.".parse().unwrap());
    let mut soa = whole.remove(&"z.test.".parse().unwrap(), RecordType::SOA).unwrap();
    let at = soa.rdata[0].len() - 20;
    soa.rdata[0][at..at + 4].copy_from_slice(&2031u32.to_be_bytes());
    whole.set("z.test.".parse().unwrap(), soa).unwrap();
    primary.publish(&whole);
    versions.push(primary.zone("z.test.").contents());
    let last = versions.last().unwrap();
    for (number, version) in versions.iter().enumerate().take(5) {
        let records = primary.records(&ixfr("z.test. IXFR", 2026 + number as u32));
        let mut secondary = version.clone();
        apply(&mut secondary, &records);
        secondary.remove(last.apex(), RecordType::SOA);
        let mut expected = last.clone();
        expected.remove(last.apex(), RecordType::SOA);
        assert_eq!(diff::owners(&expected, &secondary), [], "from version {number}");
    }
    // What came and went again is not mentioned.
    let records = primary.records(&ixfr("z.test. IXFR", 2026));
    assert!(records.iter().all(|(owner, ..)| *owner != "new.z.test.".parse().unwrap()));
    // Unknown versions get the whole zone; current, newer and incomparable ones the SOA record.
    for (serial, expected) in [(2020, 302), (2031, 1), (2032, 1), (2031u32.wrapping_add(1 << 31), 1)] {
        assert_eq!(primary.records(&ixfr("z.test. IXFR", serial)).len(), expected, "{serial}");
    }
    assert_eq!(primary.transfers.counts()[..3], [1, 6, 3]);
}

/// §2: over UDP, the difference if it fits, otherwise the SOA record; AXFR is refused.
#[test]
fn over_udp() {
    let primary = Primary::new(vec![everyone()]);
    let text = (0..40).map(|number| format!("n{number} A 10.0.0.1\n")).collect::<String>();
    primary.publish(&contents("z.test.", &format!("@ SOA ns admin\n@ NS ns.elsewhere.\n{text}")));
    primary.change("z.test.", 2027, (0..30).map(|last| change(&format!("n{last}.z.test."), &[last])).collect());
    primary.change("z.test.", 2028, vec![change("n1.z.test.", &[99])]);
    for (serial, expected) in [(2027, 6), (2026, 1), (2020, 1), (2028, 1)] {
        let messages = primary.ask(&ixfr("z.test. IXFR", serial), Transport::Udp);
        assert_eq!((messages.len(), answers(&messages[0]).len()), (1, expected), "{serial}");
        assert!(messages[0].len() <= 512);
    }
    assert_eq!(primary.ask(&query("z.test. AXFR"), Transport::Udp), Vec::<Vec<u8>>::new());
}

/// A history ends where serials do not grow, and is bounded.
#[test]
fn a_history_is_of_serials_that_follow() {
    let primary = Primary::new(vec![everyone()]);
    let zone = |serial: u32, last: u8| {
        let mut zone = contents("z.test.", &format!("@ SOA ns admin\n@ NS ns.elsewhere.\na A 192.0.2.{last}"));
        (0..50).for_each(|number| {
            let owner = format!("{number}.z.test.").parse().unwrap();
            zone.add(owner, RecordType::A, Ttl::MAX, Rdata::from([10, 0, 0, 1])).unwrap();
        });
        let apex: Name = "z.test.".parse().unwrap();
        let mut soa = zone.remove(&apex, RecordType::SOA).unwrap();
        let at = soa.rdata[0].len() - 20;
        soa.rdata[0][at..at + 4].copy_from_slice(&serial.to_be_bytes());
        zone.set(apex, soa).unwrap();
        zone
    };
    let len = |serial| primary.records(&ixfr("z.test. IXFR", serial)).len();
    primary.publish(&zone(10, 1));
    primary.publish(&zone(11, 2));
    assert_eq!(len(10), 6);
    primary.publish(&zone(9, 3));
    primary.publish(&zone(12, 4));
    assert_eq!((len(11), len(9)), (54, 6), "after a step back, only what follows it");
    for serial in 13..1_500 {
        primary.publish(&zone(serial, serial as u8));
    }
    assert_eq!(len(9), 54, "too old");
    assert_eq!(len(1_000), 6);
}

/// RFC 5936 §5, RFC 9103 §6.3: none by default; zones, networks, keys and TLS, all that a rule has.
#[test]
fn rights() {
    let below = |name: &str| ZonePattern::Below(name.parse().unwrap());
    let rule = |zones: Vec<ZonePattern>, network: &str, tls| Rule {
        zones,
        networks: vec![network.parse().unwrap()],
        keys: Vec::new(),
        tls,
    };
    let z = || vec![ZonePattern::Apex("z.test.".parse().unwrap())];
    let signed = Rule { keys: vec!["key.".parse().unwrap()], ..everyone() };
    for (rules, transport, is_permitted) in [
        (vec![], Transport::Tcp, false),
        (vec![everyone()], Transport::Tcp, true),
        (vec![rule(z(), "192.0.2.0/24", false)], Transport::Tcp, true),
        (vec![rule(z(), "198.51.100.0/24", false)], Transport::Tcp, false),
        (vec![rule(vec![below("z.test.")], "0.0.0.0/0", false)], Transport::Tcp, false),
        (vec![rule(vec![below("test.")], "0.0.0.0/0", false)], Transport::Tcp, true),
        (vec![rule(z(), "0.0.0.0/0", true)], Transport::Tcp, false),
        (vec![rule(z(), "0.0.0.0/0", true)], Transport::Tls, true),
        (vec![rule(z(), "0.0.0.0/0", true)], Transport::Quic, true),
        (vec![signed.clone()], Transport::Tls, false),
        (vec![signed, everyone()], Transport::Tcp, true),
    ] {
        let primary = Primary::new(rules.clone());
        primary.publish(&contents("z.test.", "@ SOA ns admin\n@ NS ns.elsewhere."));
        for message in [query("z.test. AXFR"), ixfr("z.test. IXFR", 1)] {
            assert_eq!(!primary.ask(&message, transport).is_empty(), is_permitted, "{rules:?} {transport:?}");
        }
    }
}

/// Errors: RFC 5936 §2.2.1, RFC 1995 §3.
#[test]
fn errors() {
    let primary = Primary::new(vec![everyone()]);
    primary.publish(&contents("z.test.", "@ SOA ns admin\n@ NS ns.elsewhere."));
    let broken = Change::unavailable(Origin::BrokenFile, &"broken.test.".parse().unwrap());
    primary.zones.publish([broken]);
    let mut without_serial = ixfr("z.test. IXFR", 1);
    let end = without_serial.len();
    without_serial[end - 21] = 0xc0;
    for (message, expected) in [
        (query("a.z.test. AXFR"), Some("NOTAUTH")),
        (query("elsewhere. AXFR noedns"), Some("NOTAUTH")),
        (query("broken.test. AXFR"), Some("SERVFAIL")),
        (query("z.test. IXFR"), Some("FORMERR")),
        (without_serial, Some("FORMERR")),
        (query("z.test. AXFR class=CH"), None),
    ] {
        let messages = primary.ask(&message, Transport::Tcp);
        assert_eq!(messages.first().map(|message| lines(message)[0].clone()).as_deref(), expected);
    }
}
