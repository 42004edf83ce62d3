//! An UPDATE message (RFC 2136 §2), read from octets: the zone, the prerequisites and the updates.
//!
//! The sections are those of a query under other names: question, answer, authority. The additional section is checked for its
//! form, and otherwise ignored, as §3.4 lets a server do.

use crate::wire::header::{HEADER_OCTETS, Header, Opcode, Rcode};
use crate::wire::message::skip_name;
use crate::wire::name::{NAME_OCTETS_MAX, expand};
use crate::wire::question::Question;
use crate::wire::rdata::expanded;
use crate::wire::{Class, Name, RecordType};
use crate::zone::rrset::Rdata;

/// The maximum number of prerequisites and updates of one request. A certificate has at most 100 names at most authorities, and a client
/// such as certbot sends all its values so far.
pub const RECORDS_MAX: usize = 1_000;

/// The maximum number of prerequisites. ACME clients send none, and each can cost the comparison of an RRset.
const PREREQUISITES_MAX: u16 = 64;

/// A request to change a zone, well-formed, and not compared with the zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The name in the zone section.
    pub zone: Name,
    /// The class in the zone section.
    pub class: Class,
    /// The prerequisite section.
    pub prerequisites: Vec<Record>,
    /// The update section.
    pub updates: Vec<Record>,
}

/// A record of the prerequisite or the update section. Its class selects its meaning (§2.4, §2.5).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The owner, in the case of the message.
    pub owner: Name,
    /// The type; ANY means all of them.
    pub rtype: RecordType,
    /// The class: that of the zone, ANY or NONE.
    pub class: Class,
    /// The TTL as sent.
    pub ttl: u32,
    /// The data without compression; empty in records that name an RRset, or all of them.
    pub rdata: Rdata,
}

impl Request {
    /// Reads a message without its signature.
    ///
    /// # Errors
    ///
    /// FORMERR if it is malformed (§3.1.1: the zone section has one entry, of type SOA), and REFUSED if it has more than
    /// [`RECORDS_MAX`] records, or more than 64 prerequisites.
    pub fn read(message: &[u8]) -> Result<Request, Rcode> {
        let header = Header::read(message).ok_or(Rcode::FORMERR)?;
        if header.opcode() != Opcode::UPDATE || header.is_response() || header.questions != 1 {
            return Err(Rcode::FORMERR);
        }
        let question = Question::read(message).filter(|question| question.qtype == RecordType::SOA);
        let question = question.ok_or(Rcode::FORMERR)?;
        let zone = Name::from_wire(question.name(message)).map_err(|_| Rcode::FORMERR)?;
        let records = usize::from(header.answers) + usize::from(header.authorities);
        if records > RECORDS_MAX || header.answers > PREREQUISITES_MAX {
            return Err(Rcode::REFUSED);
        }
        let mut at = question.end();
        let prerequisites = read_section(message, &mut at, header.answers)?;
        let updates = read_section(message, &mut at, header.authorities)?;
        for _ in 0..header.additionals {
            at = Head::read(message, at).ok_or(Rcode::FORMERR)?.end;
        }
        Ok(Request { zone, class: question.qclass, prerequisites, updates })
    }
}

/// The part of a record before its data.
struct Head {
    /// The end of the owner, which begins where the record does.
    owner_end: usize,
    /// The positions of the data.
    start: usize,
    end: usize,
}

impl Head {
    fn read(message: &[u8], at: usize) -> Option<Head> {
        let owner_end = skip_name(message, at)?;
        let start = owner_end + RECORD_HEAD;
        let length = message.get(start - 2..start)?;
        let end = start + usize::from(u16::from_be_bytes([length[0], length[1]]));
        (end <= message.len()).then_some(Head { owner_end, start, end })
    }
}

/// The octets of type, class, TTL and length.
const RECORD_HEAD: usize = 10;

fn read_section(message: &[u8], at: &mut usize, count: u16) -> Result<Vec<Record>, Rcode> {
    (0..count).map(|_| read_record(message, at).ok_or(Rcode::FORMERR)).collect()
}

fn read_record(message: &[u8], at: &mut usize) -> Option<Record> {
    debug_assert!(*at >= HEADER_OCTETS);
    let Head { owner_end, start, end } = Head::read(message, *at)?;
    let owner = Name::from_wire(expand(message, *at, &mut [0; NAME_OCTETS_MAX])?).ok()?;
    let fixed: &[u8; RECORD_HEAD] = message.get(owner_end..)?.first_chunk()?;
    let [type_high, type_low, class_high, class_low, ttl @ .., _, _] = *fixed;
    let rtype = RecordType(u16::from_be_bytes([type_high, type_low]));
    let class = Class(u16::from_be_bytes([class_high, class_low]));
    let ttl = u32::from_be_bytes(ttl);
    // Without data, a record of any type is about an RRset.
    let rdata = if start == end { Rdata::default() } else { expanded(message, rtype, start, end)?.into() };
    *at = end;
    Some(Record { owner, rtype, class, ttl, rdata })
}
