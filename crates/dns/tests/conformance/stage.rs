//! Zones from a few lines of text, queries from one line, and responses as lines to compare with.
//!
//! Responses are read by code of its own here, and must also satisfy two independent parsers, hickory-proto and domain.

use std::any::Any;
use std::fmt::Write;
use std::net::SocketAddr;
use std::sync::OnceLock;

use signpost_dns::nameserver::hand_off::refuse;
use signpost_dns::nameserver::{
    Context, Limiter, Outcome, Peer, Response, Settings, Stats, Transport, respond, signed,
};
use signpost_dns::wire::name::unescape;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::db::ZoneDb;
use signpost_dns::zone::{Contents, Ttl, Zone};

/// Time to live of records whose line has none.
pub const TTL: u32 = 300;

/// Reads `owner [ttl] TYPE rdata…` lines: names are relative to `apex`, a `;` begins a comment.
pub fn contents(apex: &str, text: &str) -> Contents {
    let apex: Name = apex.parse().expect("the apex of a test");
    let mut contents = Contents::new(apex.clone());
    for line in text.lines() {
        let mut words = line.split(';').next().unwrap_or_default().split_ascii_whitespace().peekable();
        let Some(owner) = words.next() else { continue };
        let ttl = words.next_if(|word| word.bytes().all(|octet| octet.is_ascii_digit()));
        let ttl = ttl.map_or(TTL, |ttl| ttl.parse().expect("a TTL"));
        let rtype: RecordType =
            words.next().and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("type: {line}"));
        let words: Vec<&str> = words.collect();
        let rdata = rdata(rtype, &words, &apex);
        let owner = Name::parse(owner.as_bytes(), &apex).unwrap_or_else(|error| panic!("{error}: {line}"));
        let ttl = Ttl::new(ttl).expect("a TTL");
        contents.add(owner, rtype, ttl, rdata.into()).unwrap_or_else(|error| panic!("{error}: {line}"));
    }
    contents
}

/// A zone with SOA and NS, and these lines.
pub fn zone(apex: &str, text: &str) -> Zone {
    let text = format!("@ SOA ns.elsewhere. admin\n@ NS ns.elsewhere.\n{text}");
    Zone::build(contents(apex, &text)).expect("a zone of a test")
}

/// Lines of `count` signatures of 256 octets each over the records of this type of `owner`.
pub fn large_signatures(owner: &str, covered: RecordType, count: u8) -> String {
    let line = |index: u8| {
        let fixed = [13, 3, 0, 0, 1, 44, 0, 0, 0, 2, 0, 0, 0, 1, 0, 7];
        let rdata = [&covered.0.to_be_bytes()[..], &fixed, b"\x01z\x04test\0", &[index; 256]].concat();
        format!("{owner} RRSIG \\# {} {}\n", rdata.len(), data_encoding::HEXLOWER.encode(&rdata))
    };
    (0..count).map(line).collect()
}

fn rdata(rtype: RecordType, words: &[&str], origin: &Name) -> Vec<u8> {
    let name = |word: &str| Name::parse(word.as_bytes(), origin).expect("a name in RDATA").as_wire().to_vec();
    let number = |word: &str| word.parse::<u16>().expect("a number in RDATA").to_be_bytes();
    match (rtype, words) {
        (_, ["\\#", _, hex @ ..]) => data_encoding::HEXLOWER.decode(hex.concat().as_bytes()).expect("hex"),
        (RecordType::A, [address]) => address.parse::<std::net::Ipv4Addr>().expect("an address").octets().into(),
        (RecordType::AAAA, [address]) => address.parse::<std::net::Ipv6Addr>().expect("an address").octets().into(),
        (RecordType::NS | RecordType::CNAME | RecordType::DNAME | RecordType::PTR, [target]) => name(target),
        (RecordType::SOA, [mname, rname, minimum @ ..]) => {
            let mut octets = [name(mname), name(rname)].concat();
            let minimum = minimum.first().map_or(60, |minimum| minimum.parse().expect("a minimum"));
            for field in [2026u32, 7200, 3600, 1_209_600, minimum] {
                octets.extend_from_slice(&field.to_be_bytes());
            }
            octets
        }
        (RecordType::MX, [preference, target]) => [&number(preference)[..], &name(target)].concat(),
        (RecordType::SRV, [priority, weight, port, target]) => {
            [&number(priority)[..], &number(weight), &number(port), &name(target)].concat()
        }
        (RecordType::SVCB | RecordType::HTTPS, [priority, target]) => [&number(priority)[..], &name(target)].concat(),
        (RecordType::TXT, strings) => {
            strings.iter().flat_map(|text| [&[text.len() as u8], text.as_bytes()].concat()).collect()
        }
        (RecordType::DS, [tag]) => [&number(tag)[..], &[13, 2], &[7; 32]].concat(),
        // Signatures are told apart by what they cover; the rest is the same in all.
        (RecordType::RRSIG, [covered]) => {
            let covered: RecordType = covered.parse().expect("a type");
            let fixed = [13, 3, 0, 0, 1, 44, 0, 0, 0, 2, 0, 0, 0, 1, 0, 7];
            [&covered.0.to_be_bytes()[..], &fixed, origin.as_wire(), &[9; 64]].concat()
        }
        (RecordType::NSEC, [next]) => [&name(next)[..], &[0, 1, 0x40]].concat(),
        (RecordType::NSEC3PARAM, []) => vec![1, 0, 0, 0, 0],
        (RecordType::NSEC3, [flags, next]) => {
            let next = data_encoding::BASE32HEX_NOPAD.decode(next.to_ascii_uppercase().as_bytes()).expect("a hash");
            [&[1, flags.parse().expect("flags"), 0, 0, 0, 20][..], &next, &[0, 1, 0x40]].concat()
        }
        _ => panic!("no RDATA of {rtype} from {words:?}"),
    }
}

/// A name server on a stage: zones, settings, and a client.
pub struct Stage {
    pub db: ZoneDb,
    pub settings: Settings,
    pub stats: Stats,
    pub limiter: Option<Limiter>,
    pub peer: Peer,
    /// The state of [`crate::also_ask`].
    #[allow(dead_code, reason = "for those who keep something")]
    pub also: OnceLock<Box<dyn Any + Send + Sync>>,
}

impl Stage {
    /// Serves `zones`.
    pub fn new(zones: impl IntoIterator<Item = Zone>) -> Self {
        let db = ZoneDb::new();
        db.publish_many(zones);
        db.set_ready();
        let address: SocketAddr = "192.0.2.53:4000".parse().expect("an address");
        let peer = Peer { address, transport: Transport::Udp, now: 1_800_000_000, random: 0, keepalive: None };
        Stage { db, settings: Settings::default(), stats: Stats::new(), limiter: None, peer, also: OnceLock::new() }
    }

    /// Serves one zone of these lines, with SOA and NS.
    pub fn with(apex: &str, text: &str) -> Self {
        Self::new([zone(apex, text)])
    }

    /// Answers a message; `None` if there is no response.
    pub fn respond(&self, query: &[u8]) -> Option<Vec<u8>> {
        crate::also_ask(self, query);
        self.respond_to(query, &self.peer, &self.settings, &self.stats)
    }

    /// Answers a message of this peer's.
    pub fn respond_to(&self, query: &[u8], peer: &Peer, settings: &Settings, stats: &Stats) -> Option<Vec<u8>> {
        let mut buffer = vec![0xa5; 65535];
        let mut response = Response::new(&mut buffer);
        let snapshot = self.db.snapshot();
        let limiter = self.limiter.as_ref();
        let context = Context { snapshot: &snapshot, settings, stats, limiter };
        let (outcome, signed) = match respond(&context, query, peer, &mut response) {
            Outcome::Signed => signed::respond(&context, query, peer, &mut response),
            outcome => (outcome, None),
        };
        let outcome = match (outcome, signed) {
            (Outcome::HandOff(_), Some(signed)) => signed.refuse(&context, peer, &mut response),
            (Outcome::HandOff(_), None) => refuse(&context, peer, &response),
            (outcome, _) => outcome,
        };
        (outcome == Outcome::Reply).then(|| response.octets().to_vec())
    }

    /// Queries `name TYPE [option…]`, with EDNS of 1232 octets unless the options differ, and returns the response.
    pub fn ask(&self, question: &str) -> Vec<u8> {
        let query = query(question);
        let response = self.respond(&query).unwrap_or_else(|| panic!("no response: {question}"));
        well_formed(&query, &response);
        response
    }

    /// Queries, and compares the response's lines: see [`lines`].
    #[track_caller]
    pub fn check(&self, question: &str, expected: &str) {
        let found = lines(&self.ask(question));
        let expected: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(found, expected, "\n--- {question}: found\n{}", found.join("\n"));
    }

    /// [`Self::check`] for a table of cases.
    #[track_caller]
    pub fn check_all(&self, cases: &[(&str, &str)]) {
        for (question, expected) in cases {
            self.check(question, expected);
        }
    }
}

/// A query message from `name TYPE [option…]`: `do`, `noedns`, `size=N`, `rd`, `cd`, `class=C`.
pub fn query(question: &str) -> Vec<u8> {
    let mut words = question.split_ascii_whitespace();
    let name: Name = words.next().and_then(|word| word.parse().ok()).expect("a name to query");
    let qtype: RecordType = words.next().and_then(|word| word.parse().ok()).expect("a type to query");
    let (mut size, mut dnssec_ok, mut flags, mut class) = (Some(1232u16), 0u8, 0u16, 1u16);
    for option in words {
        match option.split_once('=').unwrap_or((option, "")) {
            ("do", _) => dnssec_ok = 0x80,
            ("noedns", _) => size = None,
            ("rd", _) => flags |= 0x0100,
            ("cd", _) => flags |= 0x0010,
            ("size", number) => size = number.parse().ok(),
            ("class", word) => class = word.parse::<signpost_dns::wire::Class>().expect("a class").0,
            _ => panic!("unknown option {option}"),
        }
    }
    let mut message = vec![0xab, 0xcd];
    message.extend_from_slice(&flags.to_be_bytes());
    message.extend_from_slice(&[0, 1, 0, 0, 0, 0, 0, u8::from(size.is_some())]);
    message.extend_from_slice(name.as_wire());
    message.extend_from_slice(&qtype.0.to_be_bytes());
    message.extend_from_slice(&class.to_be_bytes());
    if let Some(size) = size {
        message.extend_from_slice(&[0, 0, 41]);
        message.extend_from_slice(&size.to_be_bytes());
        message.extend_from_slice(&[0, 0, dnssec_ok, 0, 0, 0]);
    }
    message
}

/// A query as [`query`] makes it, with EDNS, and this option in its OPT record.
pub fn query_with_option(question: &str, code: u16, data: &[u8]) -> Vec<u8> {
    let mut message = query(question);
    // The OPT record is the last, and without options yet.
    let at = message.len() - 2;
    let length = data.len() as u16;
    message[at..].copy_from_slice(&(length + 4).to_be_bytes());
    message.extend_from_slice(&code.to_be_bytes());
    message.extend_from_slice(&length.to_be_bytes());
    message.extend_from_slice(data);
    message
}

/// Panics unless both independent parsers read all of `response` and it answers `query`.
#[track_caller]
pub fn well_formed(query: &[u8], response: &[u8]) {
    assert_eq!(response[..2], query[..2], "the identifier");
    let message = hickory_proto::op::Message::from_vec(response);
    assert!(message.is_ok(), "hickory: {message:?}: {response:02x?}");
    let message = domain::base::Message::from_octets(response).expect("domain reads the header");
    for section in [message.answer(), message.authority(), message.additional()] {
        for record in section.expect("domain finds the section") {
            let record = record.expect("domain reads the record");
            record
                .to_any_record::<domain::rdata::AllRecordData<_, _>>()
                .unwrap_or_else(|error| panic!("domain: {error}: {}", record.owner()));
        }
    }
}

/// A response as lines: `RCODE flags`, then `an`, `ns` or `ar`, owner, type and data of each record but OPT.
pub fn lines(message: &[u8]) -> Vec<String> {
    let mut lines = vec![head_line(message)];
    for record in records(message) {
        if record.rtype != RecordType::OPT {
            let line = format!("{} {} {} {}", record.section, record.owner, record.rtype, record.rdata);
            lines.push(line.trim_end().to_owned());
        }
    }
    lines
}

fn head_line(message: &[u8]) -> String {
    let flags = u16::from_be_bytes([message[2], message[3]]);
    let upper = records(message).iter().find(|record| record.rtype == RecordType::OPT).map_or(0, |opt| opt.ttl >> 24);
    let rcode = match upper << 4 | u32::from(flags & 15) {
        0 => "NOERROR".to_owned(),
        1 => "FORMERR".to_owned(),
        2 => "SERVFAIL".to_owned(),
        3 => "NXDOMAIN".to_owned(),
        4 => "NOTIMP".to_owned(),
        5 => "REFUSED".to_owned(),
        6 => "YXDOMAIN".to_owned(),
        7 => "YXRRSET".to_owned(),
        8 => "NXRRSET".to_owned(),
        10 => "NOTZONE".to_owned(),
        9 => "NOTAUTH".to_owned(),
        16 => "BADVERS".to_owned(),
        23 => "BADCOOKIE".to_owned(),
        other => format!("RCODE{other}"),
    };
    let mut line = rcode;
    for (flag, name) in
        [(0x400, "aa"), (0x200, "tc"), (0x100, "rd"), (0x80, "ra"), (0x40, "z"), (0x20, "ad"), (0x10, "cd")]
    {
        if flags & flag != 0 {
            write!(line, " {name}").expect("writes to a string");
        }
    }
    line
}

/// A record of a response.
#[derive(Debug, Clone)]
pub struct Record {
    pub section: &'static str,
    pub owner: Name,
    pub rtype: RecordType,
    pub class: u16,
    pub ttl: u32,
    /// The text; empty for SOA, the covered type for RRSIG.
    pub rdata: String,
    /// The octets; names in them can be compressed.
    pub octets: Vec<u8>,
}

/// All records of a response.
pub fn records(message: &[u8]) -> Vec<Record> {
    let count = |at: usize| usize::from(u16::from_be_bytes([message[at], message[at + 1]]));
    let mut at = 12;
    for _ in 0..count(4) {
        at = name_at(message, at).1 + 4;
    }
    let mut records = Vec::new();
    for (section, number) in [("an", count(6)), ("ns", count(8)), ("ar", count(10))] {
        for _ in 0..number {
            let (owner, end) = name_at(message, at);
            let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
            let rtype = RecordType(word(end));
            let ttl = u32::from(word(end + 4)) << 16 | u32::from(word(end + 6));
            let start = end + 10;
            at = start + usize::from(word(end + 8));
            let rdata = text(message, rtype, start, at);
            records.push(Record {
                section,
                owner,
                rtype,
                class: word(end + 2),
                ttl,
                rdata,
                octets: message[start..at].into(),
            });
        }
    }
    assert_eq!(at, message.len(), "octets after the last record");
    records
}

fn text(message: &[u8], rtype: RecordType, start: usize, end: usize) -> String {
    let rdata = &message[start..end];
    let word = |at: usize| u16::from_be_bytes([rdata[at], rdata[at + 1]]);
    match rtype {
        RecordType::A => std::net::Ipv4Addr::from(<[u8; 4]>::try_from(rdata).expect("four octets")).to_string(),
        RecordType::AAAA => std::net::Ipv6Addr::from(<[u8; 16]>::try_from(rdata).expect("sixteen octets")).to_string(),
        RecordType::NS | RecordType::CNAME | RecordType::PTR | RecordType::DNAME => {
            name_at(message, start).0.to_string()
        }
        RecordType::MX => format!("{} {}", word(0), name_at(message, start + 2).0),
        RecordType::SVCB | RecordType::HTTPS => format!("{} {}", word(0), name_at(message, start + 2).0),
        RecordType::SRV => format!("{} {} {} {}", word(0), word(2), word(4), name_at(message, start + 6).0),
        RecordType::SOA => String::new(),
        RecordType::DS => word(0).to_string(),
        RecordType::RRSIG => RecordType(word(0)).to_string(),
        RecordType::NSEC => name_at(message, start).0.to_string(),
        RecordType::NSEC3 => String::new(),
        RecordType::TXT => {
            let mut strings = Vec::new();
            let mut rest = rdata;
            while let Some((&length, tail)) = rest.split_first() {
                strings.push(String::from_utf8_lossy(&tail[..usize::from(length)]).into_owned());
                rest = &tail[usize::from(length)..];
            }
            strings.join(" ")
        }
        RecordType::HINFO => String::from_utf8_lossy(rdata).into_owned(),
        _ => data_encoding::HEXLOWER.encode(rdata),
    }
}

/// The name at `at`, pointers followed, and where it ends.
fn name_at(message: &[u8], mut at: usize) -> (Name, usize) {
    let mut wire = Vec::new();
    let mut end = None;
    loop {
        let length = usize::from(message[at]);
        match length {
            0 => {
                wire.push(0);
                return (Name::from_wire(&wire).expect("a name"), end.unwrap_or(at + 1));
            }
            0xc0.. => {
                let target = (length & 0x3f) << 8 | usize::from(message[at + 1]);
                assert!(target < at, "a pointer must point backwards");
                end = end.or(Some(at + 2));
                at = target;
            }
            _ => {
                wire.extend_from_slice(&message[at..=at + length]);
                at += length + 1;
            }
        }
    }
}

/// An OPT record: payload size, the content of the TTL field, and its options.
pub type Opt = (u16, u32, Vec<(u16, Vec<u8>)>);

/// The OPT record of a response.
pub fn opt(message: &[u8]) -> Option<Opt> {
    let record = records(message).into_iter().find(|record| record.rtype == RecordType::OPT)?;
    let mut options = Vec::new();
    let mut rest = &record.octets[..];
    while let [a, b, c, d, tail @ ..] = rest {
        let length = usize::from(u16::from_be_bytes([*c, *d]));
        options.push((u16::from_be_bytes([*a, *b]), tail[..length].to_vec()));
        rest = &tail[length..];
    }
    assert!(rest.is_empty(), "a rest of an option");
    Some((record.class, record.ttl, options))
}

/// Octets from text with `\ddd` escapes.
pub fn octets(text: &str) -> Vec<u8> {
    let mut octets = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((&octet, tail)) = rest.split_first() {
        rest = tail;
        if octet == b'\\' {
            let (value, tail) = unescape(rest).expect("an escape");
            octets.push(value);
            rest = tail;
        } else {
            octets.push(octet);
        }
    }
    octets
}
