//! RFC 2136: UPDATE, for TXT records of challenges.

mod clients;
mod handler;
mod octets;

use signpost_dns::update::{Operation, Record, Request, plan};
use signpost_dns::wire::{Class, Name, RecordType};
use signpost_dns::zone::Zone;

use self::octets::to_octets;
use crate::conformance::stage::{contents, zone};

/// The ID of requests.
const ID: u16 = 0xabcd;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// A request to change `z.test.`, whose lines are `CLASS owner TYPE [data…]` of updates, or of prerequisites after `if`.
fn request(lines: &str) -> Request {
    let (mut prerequisites, mut updates) = (Vec::new(), Vec::new());
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (section, line) = match line.strip_prefix("if ") {
            Some(line) => (&mut prerequisites, line),
            None => (&mut updates, line),
        };
        let words: Vec<&str> = line.split_ascii_whitespace().collect();
        let [class, owner, rtype, data @ ..] = &words[..] else { panic!("{line}") };
        let (class, ttl) =
            class.split_once('=').map_or((*class, 0), |(class, ttl)| (class, ttl.parse().expect("a TTL")));
        let rtype: RecordType = rtype.parse().expect("a type");
        let rdata = match data {
            [] => Box::default(),
            data => {
                let text = format!("@ {rtype} {}", data.join(" "));
                contents("z.test.", &text).get(&name("z.test."), rtype).expect("a record").rdata[0].clone()
            }
        };
        let class: Class = class.parse().expect("a class");
        section.push(Record { owner: name(owner), rtype, class, ttl, rdata });
    }
    Request { zone: name("z.test."), class: Class::IN, prerequisites, updates }
}

fn served() -> Zone {
    zone(
        "z.test.",
        "a A 192.0.2.1\na A 192.0.2.2\na TXT x\nleaf.ent TXT x\n* A 192.0.2.9\nc CNAME Target.test.\n_acme-challenge.a TXT old\n\
         sub NS ns.sub\nns.sub A 192.0.2.3",
    )
}

/// Returns the changes, or the code, of these lines.
fn outcome(lines: &str) -> String {
    match plan(&request(lines), &served()) {
        Ok(operations) => text_of(&operations),
        Err(rcode) => rcode.to_string(),
    }
}

fn text_of(operations: &[Operation]) -> String {
    let show = |operation: &Operation| match operation {
        Operation::Add(owner, text) => format!("+{owner} {}", String::from_utf8_lossy(text)),
        Operation::Delete(owner, text) => format!("-{owner} {}", String::from_utf8_lossy(text)),
        Operation::DeleteAll(owner) => format!("-{owner}"),
    };
    operations.iter().map(show).collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn check_all(cases: &[(&str, &str)]) {
    for (lines, expected) in cases {
        assert_eq!(outcome(lines), *expected, "{lines}");
    }
}

/// §2.4 and §3.2.5. The code is that of the first prerequisite that is not met.
#[test]
fn section_3_2_prerequisites() {
    check_all(&[
        // §2.4.1: the RRset exists, with any data.
        ("if ANY a.z.test. A", ""),
        ("if ANY A.Z.test. txt", ""),
        ("if ANY a.z.test. MX", "NXRRSET"),
        ("if ANY b.z.test. A", "NXRRSET"),
        // §2.4.2: the RRset has these data, and no others.
        ("if IN a.z.test. A 192.0.2.2\nif IN a.z.test. A 192.0.2.1", ""),
        ("if IN a.z.test. A 192.0.2.2\nif IN a.z.test. A 192.0.2.2\nif IN a.z.test. A 192.0.2.1", ""),
        ("if IN a.z.test. A 192.0.2.1", "NXRRSET"),
        ("if IN a.z.test. A 192.0.2.1\nif IN a.z.test. A 192.0.2.2\nif IN a.z.test. A 192.0.2.3", "NXRRSET"),
        ("if IN b.z.test. A 192.0.2.9", "NXRRSET"),
        ("if IN c.z.test. CNAME target.TEST.", ""),
        // §2.4.3: the RRset does not exist.
        ("if NONE a.z.test. MX", ""),
        ("if NONE b.z.test. A", ""),
        ("if NONE a.z.test. A", "YXRRSET"),
        // §2.4.4: the name is in use. "[...] this prerequisite IS NOT satisfied by empty nonterminals." Nor by wildcards.
        ("if ANY a.z.test. ANY", ""),
        ("if ANY z.test. ANY", ""),
        ("if ANY ent.z.test. ANY", "NXDOMAIN"),
        ("if ANY b.z.test. ANY", "NXDOMAIN"),
        // §2.4.5: the name is not in use.
        ("if NONE b.z.test. ANY", ""),
        ("if NONE ent.z.test. ANY", ""),
        ("if NONE leaf.ent.z.test. ANY", "YXDOMAIN"),
        // §3.2: all of them must be met, and those with data come last.
        ("if ANY a.z.test. A\nif NONE a.z.test. TXT\nif ANY b.z.test. ANY", "YXRRSET"),
        ("if IN a.z.test. A 192.0.2.1\nif ANY b.z.test. ANY", "NXDOMAIN"),
        // §3.2.5: a TTL other than 0, data where only an RRset is named, another class.
        ("if ANY=1 a.z.test. A", "FORMERR"),
        ("if ANY a.z.test. A 192.0.2.1", "FORMERR"),
        ("if NONE a.z.test. A 192.0.2.1", "FORMERR"),
        ("if CH a.z.test. A", "FORMERR"),
        ("if IN a.z.test. A", "FORMERR"),
        ("if IN a.z.test. ANY", "FORMERR"),
        // "[...] if (zone_of(rr.name) != ZNAME) return (NOTZONE)"
        ("if ANY a.y.test. A", "NOTZONE"),
        ("if ANY test. ANY", "NOTZONE"),
        ("if ANY ns.sub.z.test. A", "NOTZONE"),
        ("if ANY sub.z.test. NS", ""),
        // A prerequisite that is not met comes before a fault of an update.
        ("if ANY b.z.test. ANY\nCH a.z.test. A", "NXDOMAIN"),
    ]);
}

/// §3.4.1: no update is made if any of them is malformed.
#[test]
fn section_3_4_1_prescan() {
    check_all(&[
        ("IN x.y.test. TXT v", "NOTZONE"),
        ("IN _acme-challenge.ns.sub.z.test. TXT v", "NOTZONE"),
        ("ANY y.test. ANY", "NOTZONE"),
        ("IN a.z.test. ANY", "FORMERR"),
        ("IN a.z.test. TXT", "FORMERR"),
        ("IN a.z.test. AXFR", "FORMERR"),
        ("IN a.z.test. MAILA", "FORMERR"),
        ("ANY=60 a.z.test. TXT", "FORMERR"),
        ("ANY a.z.test. TXT v", "FORMERR"),
        ("ANY a.z.test. AXFR", "FORMERR"),
        ("NONE=60 a.z.test. TXT v", "FORMERR"),
        ("NONE a.z.test. ANY", "FORMERR"),
        ("NONE a.z.test. TXT", "FORMERR"),
        ("CH a.z.test. TXT v", "FORMERR"),
        ("HS a.z.test. TXT v", "FORMERR"),
        ("IN _acme-challenge.a.z.test. TXT v\nIN a.z.test. ANY", "FORMERR"),
        // A fault of form comes before the policy.
        ("IN a.z.test. A 192.0.2.1\nIN a.z.test. ANY", "FORMERR"),
    ]);
}

/// §2.5, §3.4.2: the changes, in the order of the message. Only TXT records are changed.
#[test]
fn section_3_4_2_changes() {
    check_all(&[
        ("", ""),
        ("IN=120 _acme-challenge.A.z.test. TXT v", "+_acme-challenge.A.z.test. v"),
        ("NONE _acme-challenge.a.z.test. TXT v", "-_acme-challenge.a.z.test. v"),
        ("ANY _acme-challenge.a.z.test. TXT", "-_acme-challenge.a.z.test."),
        ("ANY _acme-challenge.a.z.test. ANY", "-_acme-challenge.a.z.test."),
        (
            "ANY _acme-challenge.a.z.test. TXT\nIN _acme-challenge.a.z.test. TXT v",
            "-_acme-challenge.a.z.test., +_acme-challenge.a.z.test. v",
        ),
        ("IN a.z.test. A 192.0.2.1", "REFUSED"),
        ("ANY a.z.test. A", "REFUSED"),
        ("NONE a.z.test. A 192.0.2.1", "REFUSED"),
        ("IN z.test. SOA ns.test. a.test.", "REFUSED"),
        // The value of a challenge is one string.
        ("IN _acme-challenge.a.z.test. TXT v w", "REFUSED"),
        ("IN _acme-challenge.a.z.test. TXT v\nIN a.z.test. MX 1 a.z.test.", "REFUSED"),
    ]);
}

/// §3.1.2: NOTAUTH for another zone or class.
#[test]
fn section_3_1_the_zone() {
    for (zone, class) in
        [("y.test.", Class::IN), ("a.z.test.", Class::IN), ("test.", Class::IN), ("z.test.", Class::CH)]
    {
        let request = Request { zone: name(zone), class, ..request("if ANY b.z.test. ANY") };
        assert_eq!(plan(&request, &served()).expect_err(zone).to_string(), "NOTAUTH", "{zone} {class}");
    }
}

/// §2: a message as an independent encoder writes it, and a message that is written and read back.
#[test]
fn section_2_the_message() {
    use hickory_proto::op::{Message, MessageType, OpCode, Query, UpdateMessage as _};
    use hickory_proto::rr;
    let name = |text: &str| rr::Name::from_ascii(text).expect("a name");
    let mut message = Message::new(7, MessageType::Query, OpCode::Update);
    message.add_zone({
        let mut zone = Query::new();
        zone.set_name(name("z.test.")).set_query_type(rr::RecordType::SOA).set_query_class(rr::DNSClass::IN);
        zone
    });
    let mut in_use = rr::Record::update0(name("a.z.test."), 0, rr::RecordType::ANY);
    in_use.dns_class = rr::DNSClass::ANY;
    message.add_pre_requisite(in_use);
    let cname = rr::RData::CNAME(rr::rdata::CNAME(name("target.z.test.")));
    message.add_pre_requisite(rr::Record::from_rdata(name("c.z.test."), 0, cname));
    let txt = rr::RData::TXT(rr::rdata::TXT::new(vec!["v".to_owned()]));
    message.add_update(rr::Record::from_rdata(name("_acme-challenge.a.z.test."), 60, txt.clone()));
    let mut deleted = rr::Record::from_rdata(name("_acme-challenge.a.z.test."), 0, txt);
    deleted.dns_class = rr::DNSClass::NONE;
    message.add_update(deleted);
    let octets = message.to_vec().expect("it encodes");
    let read = Request::read(&octets).expect("well-formed");
    let expected = request(
        "if ANY a.z.test. ANY\nif IN c.z.test. CNAME target.z.test.\n\
         IN=60 _acme-challenge.a.z.test. TXT v\nNONE _acme-challenge.a.z.test. TXT v",
    );
    assert_eq!(read, expected);
    let written = to_octets(ID, &read).expect("it is short");
    assert!(written.len() > octets.len(), "names were compressed");
    assert_eq!(Request::read(&written), Ok(expected));
    for cut in 0..written.len() {
        assert!(Request::read(&written[..cut]).is_err(), "cut at {cut}");
    }
}

/// §3.1.1: "[...] the Zone Section [...] exactly one RR [...] must be SOA".
#[test]
fn section_3_1_1_the_zone_section() {
    let good = to_octets(ID, &request("")).expect("it is short");
    let with = |at: usize, octet: u8| {
        let mut message = good.clone();
        message[at] = octet;
        message
    };
    let type_at = good.len() - 3;
    for (message, why) in [
        (with(5, 0), "no zone"),
        (with(5, 2), "two zones"),
        (with(type_at, 1), "another type"),
        (with(2, 0xa8), "a response"),
        (with(2, 0), "a query"),
        (with(7, 1), "a prerequisite less than counted"),
        (with(11, 1), "an additional record less than counted"),
        (good[..11].to_vec(), "no header"),
    ] {
        assert_eq!(Request::read(&message).expect_err(why).to_string(), "FORMERR", "{why}");
    }
    let many = Request { updates: vec![request("ANY a.z.test. TXT").updates[0].clone(); 1_001], ..request("") };
    let prerequisites = vec![request("ANY a.z.test. TXT").updates[0].clone(); 65];
    for many in [many, Request { prerequisites, ..request("") }] {
        let message = to_octets(ID, &many).expect("64 KiB are enough");
        assert_eq!(Request::read(&message).expect_err("many").to_string(), "REFUSED");
    }
}
