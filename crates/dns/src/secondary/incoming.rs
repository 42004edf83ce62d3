//! The messages of a transfer from a primary server (RFC 5936, RFC 1995), read without trust in it. Pure.
//!
//! [`Incoming::read`] takes one message after another, until it has the whole answer. A zone is accepted only if [`check()`] accepts it,
//! which is the check of zone files. Everything that a primary server sends is bounded: the octets of the messages, those of an
//! answer without records, and the serials of differences, which only approach the last one.
//!
//! ```text
//! AXFR, and an answer of this kind to IXFR: SOA · records · SOA
//! IXFR: SOA of the newest version
//!       (SOA of a version · deleted records · SOA of the next version · added records) …
//!       SOA of the newest version
//! up to date: SOA
//! ```

use crate::transfer::Record;
use crate::wire::header::{FLAG_TC, Header, Opcode, Rcode};
use crate::wire::message::{skip_name, skip_questions};
use crate::wire::name::{NAME_OCTETS_MAX, expand};
use crate::wire::question::Question;
use crate::wire::{Class, Name, RecordType, rdata};
use crate::zone::check::{self, Options, Severity, UnparsedRecords};
use crate::zone::contents::{AddError, Added, Collector};
use crate::zone::rrset::{RRSET_RECORDS_MAX, Rdata, Ttl};
use crate::zone::{Contents, Rrset, Serial};

/// The maximum size of all messages of a transfer in octets: that of some ten million names.
const OCTETS_MAX: usize = 512 << 20;

/// A transfer that is being read.
pub struct Incoming {
    apex: Name,
    id: u16,
    /// The serial in the request; `None`: of AXFR.
    client: Option<Serial>,
    octets: usize,
    state: State,
}

enum State {
    Start,
    /// After the first SOA record.
    First(Record),
    Whole(Record, Collector),
    /// After the SOA record of a version: of the next record that is not a SOA record, it is deleted.
    Deleting(Record, Vec<Difference>, Difference),
    Adding(Record, Vec<Difference>, Difference),
    Ended(Received),
    /// After a fault, or after the result was taken.
    Failed,
}

/// The answer of a primary server.
#[derive(Debug, PartialEq)]
pub enum Received {
    /// The version is not newer; the serial of the primary server.
    Current(Serial),
    /// All records.
    Whole(Contents),
    /// The differences from the version of the request, at least one.
    Changes(Vec<Difference>),
}

/// The difference between two versions.
#[derive(Debug, PartialEq)]
pub struct Difference {
    from: Serial,
    to: Record,
    deleted: Vec<Record>,
    added: Vec<Record>,
}

/// The reason why a transfer is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The answer is an error.
    #[error("the primary server answers {0}")]
    Refused(Rcode),
    /// A message is not an answer to the request, or is malformed.
    #[error("malformed message: {0}")]
    Message(&'static str),
    /// A record is not permitted where it is.
    #[error("{owner} {rtype}: {problem}")]
    Record {
        /// The owner of the record.
        owner: Name,
        /// The type of the record.
        rtype: RecordType,
        /// The problem.
        problem: &'static str,
    },
    /// The transfer is larger than the limit.
    #[error("the transfer has more than {OCTETS_MAX} octets")]
    TooLarge,
    /// The differences do not fit the zone.
    #[error("the differences do not fit the zone: {0}")]
    Mismatch(String),
    /// The check of the zone has found an error.
    #[error("{0}")]
    Check(String),
}

impl Incoming {
    /// Returns a transfer of the zone at `apex` whose request had this ID and, for IXFR, this serial.
    pub fn new(apex: Name, id: u16, client: Option<Serial>) -> Incoming {
        Incoming { apex, id, client, octets: 0, state: State::Start }
    }

    /// Reads the next message. Returns the answer after the last one.
    ///
    /// # Errors
    ///
    /// The fault of the message; no further message must be read then.
    pub fn read(&mut self, message: &[u8]) -> Result<Option<Received>, Fault> {
        let read = self.read_records(message);
        match std::mem::replace(&mut self.state, State::Failed) {
            _ if read.is_err() => read.map(|()| None),
            State::Ended(received) => Ok(Some(received)),
            state => {
                self.state = state;
                Ok(None)
            }
        }
    }

    fn read_records(&mut self, message: &[u8]) -> Result<(), Fault> {
        self.octets = self.octets.saturating_add(message.len());
        if self.octets > OCTETS_MAX {
            return Err(Fault::TooLarge);
        }
        let header = self.check_header(message)?;
        let malformed = |what| Fault::Message(what);
        let mut at = skip_questions(message, header.questions).ok_or(malformed("the question is cut"))?;
        for number in 0..header.answers {
            let mut octets = [0; NAME_OCTETS_MAX];
            let owner = expand(message, at, &mut octets).and_then(|owner| Name::from_wire(owner).ok());
            let owner = owner.ok_or(malformed("the owner of a record is not a name"))?;
            at = skip_name(message, at).ok_or(malformed("a record is cut"))?;
            let head: [u8; 10] =
                *message.get(at..).and_then(<[u8]>::first_chunk).ok_or(malformed("a record is cut"))?;
            let word = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
            let rtype = RecordType(word(0));
            let ttl = Ttl::from_wire(u32::from_be_bytes([head[4], head[5], head[6], head[7]]));
            let start = at + head.len();
            at = start + usize::from(word(8));
            let fault = |problem| Fault::Record { owner: owner.clone(), rtype, problem };
            if at > message.len() {
                return Err(malformed("a record is cut"));
            }
            if Class(word(2)) != Class::IN {
                return Err(fault("the class is not IN"));
            }
            if rtype.is_meta() {
                return Err(fault("the type cannot be stored in a zone"));
            }
            let Some(data) = rdata::expanded(message, rtype, start, at) else {
                return Err(fault("the data is not that of the type"));
            };
            let record = Record { owner, rtype, ttl, rdata: data.into() };
            self.push(record, number + 1 == header.answers)?;
        }
        Ok(())
    }

    fn check_header(&self, message: &[u8]) -> Result<Header, Fault> {
        let header = Header::read(message).ok_or(Fault::Message("it is shorter than a header"))?;
        if header.id != self.id || !header.is_response() || header.opcode() != Opcode::QUERY {
            return Err(Fault::Message("it is not an answer to the request"));
        }
        if header.rcode() != Rcode::NOERROR {
            return Err(Fault::Refused(header.rcode()));
        }
        if header.flags & FLAG_TC != 0 {
            return Err(Fault::Message("it is truncated"));
        }
        // RFC 5936 §2.2.1: the question is in the first message, and may be in the others.
        let qtype = if self.client.is_some() { RecordType::IXFR } else { RecordType::AXFR };
        let is_question = |question: Question| {
            let name = question.name(message);
            question.qtype == qtype && question.qclass == Class::IN && name.eq_ignore_ascii_case(self.apex.as_wire())
        };
        match header.questions {
            0 if !matches!(self.state, State::Start) => {}
            1 if Question::read(message).is_some_and(is_question) => {}
            _ => return Err(Fault::Message("it has another question")),
        }
        if header.answers == 0 {
            return Err(Fault::Message("it has no records"));
        }
        Ok(header)
    }

    /// Takes the next record; `is_last`: of its message.
    fn push(&mut self, record: Record, is_last: bool) -> Result<(), Fault> {
        let fault = |problem| {
            let (owner, rtype) = (record.owner.clone(), record.rtype);
            Err(Fault::Record { owner, rtype, problem })
        };
        if !record.owner.is_at_or_below(&self.apex) {
            return fault("the owner is outside the zone");
        }
        let soa = (record.rtype == RecordType::SOA).then(|| serial_of(&record.rdata));
        if soa.is_some() && record.owner != self.apex {
            return fault("a SOA record below the apex");
        }
        self.state = match (std::mem::replace(&mut self.state, State::Failed), soa) {
            (State::Start, Some(serial)) => match self.client {
                // RFC 1995 §4: "If the server's version is not newer, or the transport is UDP": a single SOA record.
                Some(client) if is_last && !serial.is_after(client) => State::Ended(Received::Current(serial)),
                Some(client) if !serial.is_after(client) => return fault("a version that is not newer"),
                _ => State::First(record),
            },
            (State::Start, None) => return fault("the first record is not the SOA record"),
            (State::First(first), Some(serial)) if Some(serial) == self.client => {
                let difference = Difference::new(serial, &first);
                State::Deleting(first, Vec::new(), difference)
            }
            (State::First(first), Some(_)) if record.rdata == first.rdata => {
                let mut contents = Collector::new(self.apex.clone());
                collect(&mut contents, first)?;
                State::Ended(Received::Whole(contents.finish()))
            }
            (State::First(first), None) => {
                let mut contents = Collector::new(self.apex.clone());
                collect(&mut contents, first.clone())?;
                collect(&mut contents, record)?;
                State::Whole(first, contents)
            }
            (State::Whole(first, contents), Some(_)) if record.rdata == first.rdata => {
                State::Ended(Received::Whole(contents.finish()))
            }
            (State::Whole(first, mut contents), None) => {
                collect(&mut contents, record)?;
                State::Whole(first, contents)
            }
            (State::First(_) | State::Whole(..), Some(_)) => return fault("a SOA record in the middle"),
            (State::Deleting(first, before, mut difference), None) => {
                difference.deleted.push(record);
                State::Deleting(first, before, difference)
            }
            (State::Deleting(first, before, mut difference), Some(serial)) => {
                // Each version is nearer to the newest one, so that the number of differences is limited.
                let left = |serial: Serial| serial_of(&first.rdata).0.wrapping_sub(serial.0);
                if left(serial) >= left(difference.from) {
                    return fault("the serials of the differences do not increase up to the newest one");
                }
                difference.to = record;
                State::Adding(first, before, difference)
            }
            (State::Adding(first, before, mut difference), None) => {
                difference.added.push(record);
                State::Adding(first, before, difference)
            }
            (State::Adding(first, mut before, difference), Some(serial)) => {
                let is_newest = difference.to.rdata == first.rdata;
                if serial != serial_of(&difference.to.rdata) || is_newest && record.rdata != first.rdata {
                    return fault("the differences do not follow each other");
                }
                before.push(difference);
                match is_newest {
                    true => State::Ended(Received::Changes(before)),
                    false => {
                        let difference = Difference::new(serial, &first);
                        State::Deleting(first, before, difference)
                    }
                }
            }
            (State::Ended(_) | State::Failed, _) => return fault("a record after the last SOA record"),
        };
        Ok(())
    }
}

impl Difference {
    fn new(from: Serial, to: &Record) -> Difference {
        Difference { from, to: to.clone(), deleted: Vec::new(), added: Vec::new() }
    }
}

/// Returns the serial in the data of a SOA record, which has been checked.
pub(super) fn serial_of(rdata: &[u8]) -> Serial {
    let at = rdata.len().saturating_sub(20);
    Serial(rdata[at..].first_chunk().map_or(0, |octets| u32::from_be_bytes(*octets)))
}

fn collect(contents: &mut Collector, record: Record) -> Result<(), Fault> {
    let Record { owner, rtype, ttl, rdata } = record;
    match contents.add(owner.clone(), rtype, ttl, rdata) {
        Ok(_) => Ok(()),
        Err(AddError::RrsetFull) => Err(Fault::Record { owner, rtype, problem: TOO_MANY }),
        Err(AddError::OutOfZone | AddError::MetaType) => {
            Err(Fault::Record { owner, rtype, problem: "the record cannot be in the zone" })
        }
    }
}

const TOO_MANY: &str = "more records than fit in a message";

/// Applies differences to the version that they begin with.
///
/// # Errors
///
/// [`Fault::Mismatch`] if a deleted record is missing, or an added one exists: the versions of both sides are not the same.
pub fn apply(contents: &mut Contents, differences: Vec<Difference>) -> Result<(), Fault> {
    for Difference { from, to, deleted, added } in differences {
        let soa = contents.get(&to.owner, RecordType::SOA).and_then(|soa| soa.rdata.first());
        if soa.map(|soa| serial_of(soa)) != Some(from) {
            return Err(Fault::Mismatch(format!("it does not have the serial {from}")));
        }
        for record in &deleted {
            delete(contents, record)?;
        }
        for record in added {
            add(contents, record)?;
        }
        let Record { owner, rtype, ttl, rdata } = to;
        contents.set(owner, Rrset { rtype, ttl, rdata: vec![rdata] }).expect("the apex is in the zone");
    }
    Ok(())
}

fn delete(contents: &mut Contents, Record { owner, rtype, rdata, .. }: &Record) -> Result<(), Fault> {
    let mut rrset = contents.remove(owner, *rtype);
    let same = |known: &Rdata| Rrset { rtype: *rtype, ttl: Ttl::MAX, rdata: vec![known.clone()] }.contains(rdata);
    let at = rrset.as_ref().and_then(|rrset| {
        let exact = rrset.rdata.iter().position(|known| known == rdata);
        exact.or_else(|| rrset.rdata.iter().position(same))
    });
    let (Some(rrset), Some(at)) = (&mut rrset, at) else {
        return Err(Fault::Mismatch(format!("{owner} has no such {rtype} record")));
    };
    rrset.rdata.remove(at);
    if !rrset.rdata.is_empty() {
        contents.set(owner.clone(), rrset.clone()).expect("it was in the zone");
    }
    Ok(())
}

fn add(contents: &mut Contents, record: Record) -> Result<(), Fault> {
    let Record { owner, rtype, ttl, rdata } = record;
    if contents.get(&owner, rtype).is_some_and(|rrset| rrset.rdata.len() >= RRSET_RECORDS_MAX) {
        return Err(Fault::Record { owner, rtype, problem: TOO_MANY });
    }
    match contents.add(owner.clone(), rtype, ttl, rdata) {
        Ok(Added::New | Added::TtlAdjusted) => Ok(()),
        Ok(Added::Duplicate) => Err(Fault::Mismatch(format!("{owner} has this {rtype} record already"))),
        Err(_) => Err(Fault::Record { owner, rtype, problem: "the record cannot be in the zone" }),
    }
}

/// Checks a zone as a zone file is checked before it is served.
///
/// # Errors
///
/// [`Fault::Check`] with the first error.
pub fn check(contents: &Contents) -> Result<(), Fault> {
    let unparsed = UnparsedRecords::default();
    let report = check::examine(contents, &Options { now: None, verify: None, kept_max: 1, unparsed: &unparsed });
    match report.findings.into_iter().find(|finding| finding.code.severity() == Severity::Error) {
        Some(finding) => Err(Fault::Check(finding.message)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::header::{FLAG_AA, FLAG_QR};

    /// The records of a message.
    type Records = Vec<Vec<u8>>;

    const APEX: &str = "z.test.";
    const ID: u16 = 7;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    /// A record from its owner, type and data in hexadecimal or, for SOA, its serial.
    fn record(owner: &str, rtype: RecordType, rdata: &[u8]) -> Vec<u8> {
        of_class(owner, rtype, 1, rdata)
    }

    fn of_class(owner: &str, rtype: RecordType, class: u16, rdata: &[u8]) -> Vec<u8> {
        let head = [&rtype.0.to_be_bytes()[..], &class.to_be_bytes(), &60u32.to_be_bytes()].concat();
        [name(owner).as_wire(), &head, &(rdata.len() as u16).to_be_bytes(), rdata].concat()
    }

    fn soa(serial: u32) -> Vec<u8> {
        soa_at(APEX, serial)
    }

    fn soa_at(owner: &str, serial: u32) -> Vec<u8> {
        let names = b"\x02ns\x04test\0\x05admin\x04test\0";
        let timers = [serial, 3_600, 600, 86_400, 60].map(u32::to_be_bytes).concat();
        record(owner, RecordType::SOA, &[&names[..], &timers].concat())
    }

    fn ns() -> Vec<u8> {
        record(APEX, RecordType::NS, b"\x02ns\x04test\0")
    }

    fn a(owner: &str, last: u8) -> Vec<u8> {
        record(owner, RecordType::A, &[192, 0, 2, last])
    }

    fn message(records: &[Vec<u8>], qtype: RecordType) -> Vec<u8> {
        let answers = records.len() as u16;
        let header = Header { id: ID, flags: FLAG_QR | FLAG_AA, questions: 1, answers, authorities: 0, additionals: 0 };
        let question = [name(APEX).as_wire(), &qtype.0.to_be_bytes(), &[0, 1]].concat();
        [&header.to_octets()[..], &question, &records.concat()].concat()
    }

    /// Reads these messages; `Ok(None)`: there would have to be more.
    fn read(client: Option<u32>, messages: &[Vec<Vec<u8>>]) -> Result<Option<Received>, Fault> {
        let qtype = if client.is_some() { RecordType::IXFR } else { RecordType::AXFR };
        let mut incoming = Incoming::new(name(APEX), ID, client.map(Serial));
        for records in messages {
            if let Some(received) = incoming.read(&message(records, qtype))? {
                return Ok(Some(received));
            }
        }
        Ok(None)
    }

    fn whole(received: Result<Option<Received>, Fault>) -> Contents {
        match received {
            Ok(Some(Received::Whole(contents))) => contents,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn whole_zones() {
        let records = vec![soa(1), ns(), a("a.z.test.", 1), a("a.z.test.", 2), a("B.z.test.", 1), soa(1)];
        let contents = whole(read(None, std::slice::from_ref(&records)));
        assert_eq!((contents.owner_count(), contents.record_count(), check(&contents)), (3, 5, Ok(())));
        // However it is cut into messages; as an answer to IXFR; a record twice.
        let singles: Vec<Vec<Vec<u8>>> = records.iter().map(|record| vec![record.clone()]).collect();
        assert_eq!(whole(read(None, &singles)), contents);
        assert_eq!(whole(read(Some(0), &singles)), contents);
        let again = vec![soa(1), ns(), ns(), a("a.z.test.", 1), a("a.z.test.", 2), a("B.z.test.", 1), soa(1)];
        assert_eq!(whole(read(None, &[again])), contents);
        assert_eq!(read(None, &singles[..5]), Ok(None), "no closing SOA record");
        assert_eq!(read(Some(1), &[vec![soa(1)]]), Ok(Some(Received::Current(Serial(1)))));
        assert_eq!(read(Some(2), &[vec![soa(1)]]), Ok(Some(Received::Current(Serial(1)))), "it went back");
    }

    #[test]
    fn differences_are_applied() {
        let mut contents = whole(read(None, &[vec![soa(1), ns(), a("a.z.test.", 1), a("b.z.test.", 1), soa(1)]]));
        let before = contents.clone();
        let answer = vec![
            soa(4),
            soa(1),
            a("a.z.test.", 1),
            soa(3),
            a("a.z.test.", 2),
            a("c.z.test.", 1),
            soa(3),
            a("b.z.test.", 1),
            soa(4),
            soa(4),
        ];
        let singles: Vec<Vec<Vec<u8>>> = answer.iter().map(|record| vec![record.clone()]).collect();
        for messages in [vec![answer], singles] {
            let Ok(Some(Received::Changes(differences))) = read(Some(1), &messages) else { panic!("differences") };
            assert_eq!(differences.len(), 2);
            contents = before.clone();
            apply(&mut contents, differences).expect("they fit");
            let expected = whole(read(None, &[vec![soa(4), ns(), a("a.z.test.", 2), a("c.z.test.", 1), soa(4)]]));
            assert_eq!(contents, expected);
        }
        // Of another version, of a missing record, and of one that exists.
        for records in [
            vec![soa(4), soa(2), soa(4), soa(4)],
            vec![soa(4), soa(1), a("x.z.test.", 1), soa(4), soa(4)],
            vec![soa(4), soa(1), soa(4), a("a.z.test.", 1), soa(4)],
        ] {
            let client = if records[1] == soa(2) { 2 } else { 1 };
            let Ok(Some(Received::Changes(differences))) = read(Some(client), &[records]) else {
                panic!("differences")
            };
            let mut contents = before.clone();
            assert!(matches!(apply(&mut contents, differences), Err(Fault::Mismatch(_))));
        }
    }

    /// Messages that broke other secondary servers, and others that primary servers could send.
    #[test]
    fn lies_are_rejected() {
        let meta = |rtype: u16| record("a.z.test.", RecordType(rtype), b"");
        let short_soa = record(APEX, RecordType::SOA, b"\0\0\0\0\0\x01");
        let zone = |records: Vec<Vec<u8>>| vec![[vec![soa(9), ns()], records, vec![soa(9)]].concat()];
        let table: Vec<(&str, Option<u32>, Vec<Records>, &str)> = vec![
            ("out of zone", None, zone(vec![a("a.test.", 1)]), "outside the zone"),
            ("out of zone, deleted", Some(1), vec![vec![soa(9), soa(1), a("a.test.", 1)]], "outside the zone"),
            ("another class", None, zone(vec![of_class("a.z.test.", RecordType::A, 3, &[192, 0, 2, 1])]), "class"),
            ("class ANY", None, zone(vec![of_class("a.z.test.", RecordType::A, 255, b"")]), "class"),
            ("OPT", None, zone(vec![meta(41)]), "cannot be stored"),
            ("TSIG in the answer", None, zone(vec![meta(250)]), "cannot be stored"),
            ("ANY", None, zone(vec![meta(255)]), "cannot be stored"),
            ("SOA in the middle", None, vec![vec![soa(9), ns(), soa(8), a("a.z.test.", 1), soa(9)]], "in the middle"),
            ("SOA below the apex", None, zone(vec![soa_at("a.z.test.", 9)]), "below the apex"),
            ("SOA of the zone above", None, zone(vec![soa_at("test.", 9)]), "outside the zone"),
            ("no SOA at the start", None, vec![vec![ns(), soa(9)]], "first record is not the SOA"),
            ("short SOA", None, vec![vec![short_soa]], "data is not that of the type"),
            ("records after the end", None, vec![vec![soa(9), ns(), soa(9), a("a.z.test.", 1)]], "after the last SOA"),
            ("a second zone after the end", None, vec![vec![soa(9), ns(), soa(9), soa(9)]], "after the last SOA"),
            ("no records", None, vec![vec![soa(9)], vec![]], "no records"),
            ("IXFR that goes back", Some(5), vec![vec![soa(4), soa(5), soa(4), soa(4)]], "not newer"),
            ("IXFR that does not begin here", Some(1), vec![vec![soa(9), soa(2)]], "in the middle"),
            ("IXFR in a circle", Some(1), vec![vec![soa(9), soa(1), soa(1)]], "do not increase"),
            ("IXFR beyond the newest", Some(1), vec![vec![soa(9), soa(1), soa(10)]], "do not increase"),
            ("IXFR around the ring", Some(1), vec![vec![soa(9), soa(1), soa(5), soa(5), soa(3)]], "do not increase"),
            ("IXFR with a gap", Some(1), vec![vec![soa(9), soa(1), soa(5), soa(6)]], "do not follow"),
            (
                "bad address",
                None,
                zone(vec![record("a.z.test.", RecordType::A, b"123")]),
                "data is not that of the type",
            ),
            ("bad name in the data", None, zone(vec![record("a.z.test.", RecordType::NS, b"\xc0\xff")]), "data is not"),
        ];
        for (case, client, messages, expected) in table {
            match read(client, &messages) {
                Err(fault) => assert!(fault.to_string().contains(expected), "{case}: {fault}"),
                other => panic!("{case}: {other:?}"),
            }
        }
        // The messages around the records.
        let good = message(&[soa(9)], RecordType::AXFR);
        let change = |at: usize, octet: u8| {
            let mut message = good.clone();
            message[at] = octet;
            message
        };
        let question_end = 12 + name(APEX).as_wire().len() + 4;
        for (case, message, expected) in [
            ("another ID", change(1, 8), "not an answer"),
            ("a query", change(2, 0), "not an answer"),
            ("another opcode", change(2, 0xa4), "not an answer"),
            ("truncated", change(2, 0x86), "truncated"),
            ("refused", change(3, 5), "REFUSED"),
            ("another question", change(14, b'y'), "another question"),
            ("no question", [&change(5, 0)[..12], &good[question_end..]].concat(), "another question"),
            ("two questions", change(5, 2), "another question"),
            ("a cut record", good[..good.len() - 1].to_vec(), "cut"),
            ("more records than there are", change(7, 2), "not a name"),
            ("a header", good[..11].to_vec(), "shorter"),
        ] {
            match Incoming::new(name(APEX), ID, None).read(&message) {
                Err(fault) => assert!(fault.to_string().contains(expected), "{case}: {fault}"),
                other => panic!("{case}: {other:?}"),
            }
        }
        // The check of the whole zone: what a zone file must not have either.
        for (case, records) in [
            ("no NS", vec![soa(9), a("a.z.test.", 1), soa(9)]),
            (
                "CNAME and A",
                vec![soa(9), ns(), record("a.z.test.", RecordType::CNAME, b"\0"), a("a.z.test.", 1), soa(9)],
            ),
        ] {
            assert!(matches!(check(&whole(read(None, &[records]))), Err(Fault::Check(_))), "{case}");
        }
    }

    /// A primary server that never ends.
    #[test]
    fn the_size_of_a_transfer_is_limited() {
        let mut incoming = Incoming::new(name(APEX), ID, None);
        let first = message(&[soa(9), a("a.z.test.", 1)], RecordType::AXFR);
        let again = message(&vec![a("a.z.test.", 1); 1_500], RecordType::AXFR);
        assert_eq!(incoming.read(&first), Ok(None));
        incoming.octets = OCTETS_MAX - again.len() - 1;
        assert_eq!((incoming.read(&again), incoming.read(&again)), (Ok(None), Err(Fault::TooLarge)));
        assert!(incoming.read(&message(&[soa(9)], RecordType::AXFR)).is_err(), "nothing is accepted after a fault");
    }
}
