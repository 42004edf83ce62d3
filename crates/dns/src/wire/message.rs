//! A query message, read within bounds and without allocation: header, question, and the OPT record at any position in the
//! additional section (RFC 1035 §4.1, RFC 6891 §6.1.1).
//!
//! The fault of a message is a value next to the parsed part, because the response to a malformed query still echoes that part.
//! The OPT record is also searched after most faults: "If an OPT record is present in a received request, compliant responders
//! MUST include an OPT record in their respective responses" (RFC 6891 §6.1.1). Octets after the last counted record are ignored,
//! as Knot and NSD mostly do, and so is a SIG(0) record (RFC 2931), as Knot does: no answer depends on the client's identity.

use super::edns::Edns;
use super::header::{HEADER_OCTETS, Header, Opcode};
use super::name::LABEL_OCTETS_MAX;
use super::question::Question;
use super::rtype::{Class, RecordType};
use super::tsig::{RECORD_HEAD, Tsig};

/// The parsed part of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Query {
    /// The header.
    pub header: Header,
    /// The question, if there is exactly one and it is well-formed.
    pub question: Option<Question>,
    /// The first OPT record.
    pub edns: Option<Edns>,
    /// The TSIG record, if it is where it has to be and well-formed.
    pub tsig: Option<Tsig>,
    /// The first fault, if one was found.
    pub fault: Option<Fault>,
}

/// A fault of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// The number of questions is not one (RFC 9619 §4).
    QuestionCount,
    /// The question cannot be read.
    Question,
    /// Records in the answer or authority section, where a query of this kind has none.
    Sections,
    /// A record extends past the end, or its owner is not a name.
    Record,
    /// A second OPT record, one whose owner is not the root, or malformed options (RFC 6891 §6.1.1).
    Opt,
    /// A malformed TSIG record, or one that is not the last of the additional section (RFC 8945 §5.2).
    Tsig,
}

impl Query {
    /// Reads a query; `None` if it is shorter than a header. For opcodes other than QUERY and NOTIFY, whose sections can have any
    /// meaning, the question and the OPT record are read if they are at the positions of a query; otherwise, this is not a fault.
    pub fn read(message: &[u8]) -> Option<Query> {
        let mut query = Query::default();
        query.read_again(message).then_some(query)
    }

    /// Reads `message` into `self`; returns false, and leaves `self` unusable, if it is shorter than a header.
    #[inline]
    pub fn read_again(&mut self, message: &[u8]) -> bool {
        let Some(header) = Header::read(message) else { return false };
        self.header = header;
        self.question = None;
        self.edns = None;
        self.tsig = None;
        self.fault = self.read_body(message).err();
        true
    }

    #[inline]
    fn read_body(&mut self, message: &[u8]) -> Result<(), Fault> {
        let end = match self.header.questions {
            // A cookie-only query (RFC 7873 §5.4) has an OPT record; the caller decides about the missing question.
            0 => HEADER_OCTETS,
            1 => match Question::read(message) {
                Some(question) => {
                    self.question = Some(question);
                    question.end()
                }
                None => return self.fail(Fault::Question, message),
            },
            _ => return self.fail(Fault::QuestionCount, message),
        };
        match self.header.opcode() {
            Opcode::QUERY if self.has_other_records() => self.fail(Fault::Sections, message),
            Opcode::QUERY | Opcode::NOTIFY => self.read_records(message, end),
            _ => {
                self.find_opt(message);
                Ok(())
            }
        }
    }

    /// Returns whether there are answer or authority records that do not belong in a query. (NOTIFY can have the new SOA in its
    /// answer section, RFC 1996 §3.7.)
    #[inline]
    fn has_other_records(&self) -> bool {
        let header = &self.header;
        if header.answers == 0 && header.authorities == 0 {
            return false;
        }
        // Only IXFR carries something, the SOA that the client has (RFC 1995 §3).
        let is_ixfr = self.question.is_some_and(|question| question.qtype == RecordType::IXFR);
        header.answers != 0 || !is_ixfr
    }

    /// Returns the fault after the search for the OPT record.
    #[cold]
    fn fail(&mut self, fault: Fault, message: &[u8]) -> Result<(), Fault> {
        self.find_opt(message);
        Err(fault)
    }

    /// Reads the OPT record if the message allows it. Other faults are not reported, because they follow a fault, or are none
    /// for this opcode.
    #[cold]
    fn find_opt(&mut self, message: &[u8]) {
        if let Some(end) = skip_questions(message, self.header.questions) {
            self.read_records(message, end).ok();
        }
    }

    #[inline]
    fn read_records(&mut self, message: &[u8], mut at: usize) -> Result<(), Fault> {
        let header = self.header;
        let before = u32::from(header.answers) + u32::from(header.authorities);
        let count = before + u32::from(header.additionals);
        let mut tsig = Ok(());
        // Each iteration uses at least eleven octets of the message, so large counts do not cost time.
        for index in 0..count {
            let owner_at = at;
            at = skip_name(message, at).ok_or(Fault::Record)?;
            let &[type_high, type_low, class_high, class_low, ttl_a, ttl_b, ttl_c, ttl_d, length_high, length_low] =
                message.get(at..).and_then(<[u8]>::first_chunk).ok_or(Fault::Record)?;
            let start = at + 10;
            at = start + usize::from(u16::from_be_bytes([length_high, length_low]));
            if at > message.len() {
                return Err(Fault::Record);
            }
            let rtype = RecordType(u16::from_be_bytes([type_high, type_low]));
            if rtype == RecordType::OPT && index >= before {
                if message[owner_at] != 0 || self.edns.is_some() {
                    return Err(Fault::Opt);
                }
                let class = u16::from_be_bytes([class_high, class_low]);
                let ttl = u32::from_be_bytes([ttl_a, ttl_b, ttl_c, ttl_d]);
                let read = Edns::read(class, ttl, message, start, at);
                // A malformed OPT record is still one: the response also has it.
                let malformed = Edns { payload_octets_max: class, ..Edns::default() };
                self.edns = Some(read.unwrap_or(malformed));
                if read.is_none() {
                    return Err(Fault::Opt);
                }
            } else if rtype == RecordType::TSIG {
                let class = Class(u16::from_be_bytes([class_high, class_low]));
                let is_last = index + 1 == count && index >= before;
                // An OPT record after it must still be found.
                tsig = tsig.and(self.read_tsig(message, owner_at, class, start, at, is_last));
            }
        }
        tsig
    }

    #[cold]
    fn read_tsig(
        &mut self,
        message: &[u8],
        owner_at: usize,
        class: Class,
        start: usize,
        end: usize,
        is_last: bool,
    ) -> Result<(), Fault> {
        self.tsig = Tsig::read(message, owner_at, class, start, end).filter(|_| is_last);
        self.tsig.map(|_| ()).ok_or(Fault::Tsig)
    }
}

/// Returns the end of the questions, regardless of their names. Each takes at least five octets, which bounds the time for any
/// count.
pub fn skip_questions(message: &[u8], count: u16) -> Option<usize> {
    (0..count).try_fold(HEADER_OCTETS, |at, _| {
        let end = skip_name(message, at)? + 4;
        (end <= message.len()).then_some(end)
    })
}

/// Returns the end of the possibly compressed name at `at`.
#[inline]
pub fn skip_name(message: &[u8], mut at: usize) -> Option<usize> {
    loop {
        let length = usize::from(*message.get(at)?);
        match length {
            0 => return Some(at + 1),
            1..=LABEL_OCTETS_MAX => at += length + 1,
            0xc0.. => return (at + 2 <= message.len()).then_some(at + 2),
            _ => return None,
        }
    }
}

/// Finds the TSIG record at the end of a message, after any other records; `None` if the last record is another one, or the message is
/// malformed.
pub fn find_tsig(message: &[u8]) -> Option<Tsig> {
    let header = Header::read(message)?;
    let mut at = skip_questions(message, header.questions)?;
    let before = usize::from(header.answers) + usize::from(header.authorities);
    let count = before + usize::from(header.additionals);
    for index in 0..count {
        let owner_at = at;
        at = skip_name(message, at)?;
        let head: &[u8; RECORD_HEAD] = message.get(at..)?.first_chunk()?;
        let start = at + RECORD_HEAD;
        at = start + usize::from(u16::from_be_bytes([head[8], head[9]]));
        if index + 1 == count && index >= before && [head[0], head[1]] == RecordType::TSIG.0.to_be_bytes() {
            let class = Class(u16::from_be_bytes([head[2], head[3]]));
            return Tsig::read(message, owner_at, class, start, at);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A query for `a. A` with these records counted as additional.
    fn read(additionals: u8, records: &[u8]) -> Query {
        let mut message = vec![0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, additionals];
        message.extend_from_slice(b"\x01a\0\0\x01\0\x01");
        message.extend_from_slice(records);
        Query::read(&message).expect("has a header")
    }

    const OPT: &[u8] = b"\0\0\x29\x04\xd0\0\0\0\0\0\0";

    #[test]
    fn faults() {
        for (count, records, fault) in [
            (2, [OPT, OPT].concat(), Fault::Opt),
            (1, [b"\x01a", OPT].concat(), Fault::Opt),
            (1, b"\xc0\x12\0\x29\x04\xd0\0\0\0\0\0\0".to_vec(), Fault::Opt),
            (1, b"\0\0\x29\x04\xd0\0\0\0\0\0\x02\0\x03".to_vec(), Fault::Opt),
            (1, OPT[..10].to_vec(), Fault::Record),
            (1, b"\0\0\x29\x04\xd0\0\0\0\0\0\x02\0".to_vec(), Fault::Record),
            (2, OPT.to_vec(), Fault::Record),
            (1, b"\x41a\0\0\x01\0\x01\0\0\0\0\0\0".to_vec(), Fault::Record),
            (1, b"\xc0".to_vec(), Fault::Record),
        ] {
            assert_eq!(read(count, &records).fault, Some(fault), "{count} {records:?}");
        }
    }
}
