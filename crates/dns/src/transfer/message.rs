//! A message of a transfer: as many records as fit, with compressed names.
//!
//! Every message has the question, so that its name, the zone's apex, is the target of the pointers of the owners (RFC 5936
//! §3.4). If the client wrote it in another case, the apex is written a second time: a secondary server copies the case. Messages have
//! at most [`FILL_OCTETS`], which pointers reach (RFC 1035 §4.1.4), as those of NSD; one record may exceed it.

use std::time::{SystemTime, UNIX_EPOCH};

use super::Record;
use crate::wire::RecordType;
use crate::wire::build::{Full, Writer};
use crate::wire::edns::{OPT_OCTETS, opt_head};
use crate::wire::header::{FLAG_AA, FLAG_QR, FLAG_RD, FLAGS_OPCODE, HEADER_OCTETS, Header, Rcode};
use crate::wire::message::Query;
use crate::wire::name::is_label_start;
use crate::wire::question::QUESTION_AT;
use crate::zone::compression::{RECORD_HEAD, Tail, follow};
use crate::zone::node::{Node, Records, split_records};
use crate::zone::{Rrset, Zone};

/// The size up to which a message is filled.
const FILL_OCTETS: usize = 0x4000;

/// The size of our UDP payload in OPT records, as in other responses.
const PAYLOAD_OCTETS: u16 = 1232;

/// Returns the ID of a request to another server.
pub(crate) fn random_id() -> u16 {
    let mut octets = [0; 2];
    aws_lc_rs::rand::fill(&mut octets).expect("the system's generator of random numbers never fails once it is up");
    u16::from_be_bytes(octets)
}

/// Returns the time for signatures, in seconds since the epoch.
pub(crate) fn seconds_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The parts of a request that every message of its answer repeats.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    /// The header and the question.
    start: Box<[u8]>,
    /// Whether the request has an OPT record, and DO in it.
    edns: Option<bool>,
}

impl Head {
    /// Reads a request that has a question.
    pub(crate) fn of(message: &[u8]) -> Option<Head> {
        let query = Query::read(message)?;
        let start = message[..query.question?.end()].into();
        Some(Head { start, edns: query.edns.map(|edns| edns.dnssec_ok) })
    }

    /// Returns a response without records.
    pub(crate) fn reply(&self, rcode: Rcode) -> Vec<u8> {
        let mut octets = self.start.to_vec();
        octets.extend(self.opt(rcode).into_iter().flatten());
        let counts = [1, 0, u16::from(self.edns.is_some())];
        octets[..HEADER_OCTETS].copy_from_slice(&self.header(0, rcode, counts));
        octets
    }

    fn opt(&self, rcode: Rcode) -> Option<[u8; OPT_OCTETS]> {
        self.edns.map(|dnssec_ok| opt_head(PAYLOAD_OCTETS, rcode, dnssec_ok, 0))
    }

    fn header(&self, flags: u16, rcode: Rcode, [questions, answers, additionals]: [u16; 3]) -> [u8; HEADER_OCTETS] {
        let query = Header::read(&self.start).unwrap_or_default();
        let flags = FLAG_QR | flags | query.flags & (FLAGS_OPCODE | FLAG_RD) | rcode.0 & 0x0f;
        Header { id: query.id, flags, questions, answers, authorities: 0, additionals }.to_octets()
    }
}

/// A message being written.
pub(super) struct Message<'b, 'h> {
    writer: Writer<'b>,
    head: &'h Head,
    /// The apex in its original case.
    apex: &'h [u8],
    /// The position of the apex, once it is there.
    apex_at: Option<usize>,
    /// The labels of the last owner above the apex, and their position.
    owner: Option<(&'h [u8], usize)>,
    records: u16,
    is_first: bool,
    fill_octets: usize,
}

impl<'b, 'h> Message<'b, 'h> {
    /// Begins a message within `buffer`. The first one of an answer has an OPT record if the request has one.
    pub(super) fn new(buffer: &'b mut [u8], head: &'h Head, zone: &'h Zone, is_first: bool) -> Result<Self, Full> {
        let apex = zone.apex().as_wire();
        let mut writer = Writer::new(buffer, usize::MAX);
        writer.put(&head.start)?;
        if is_first && head.edns.is_some() {
            writer.reserve(OPT_OCTETS)?;
        }
        let apex_at = (head.start.get(QUESTION_AT..QUESTION_AT + apex.len()) == Some(apex)).then_some(QUESTION_AT);
        Ok(Message { writer, head, apex, apex_at, owner: None, records: 0, is_first, fill_octets: FILL_OCTETS })
    }

    /// Returns the length of the message, which is complete.
    pub(super) fn finish(mut self) -> usize {
        let mut additionals = 0;
        if let Some(opt) = self.head.opt(Rcode::NOERROR).filter(|_| self.is_first) {
            self.writer.release(OPT_OCTETS);
            additionals = u16::from(self.writer.put(&opt).is_ok());
        }
        let header = self.head.header(FLAG_AA, Rcode::NOERROR, [1, self.records, additionals]);
        self.writer.written_mut()[..HEADER_OCTETS].copy_from_slice(&header);
        self.writer.position()
    }

    /// Returns whether there are no records.
    pub(super) fn is_empty(&self) -> bool {
        self.records == 0
    }

    /// Writes the records of a node from number `next` on, and advances it. The SOA record, which begins and ends
    /// a transfer, is left out.
    pub(super) fn put_node(&mut self, node: Node<'h>, next: &mut usize) -> Result<(), Full> {
        let mut number = 0;
        for records in node.rrsets() {
            let count = if records.rtype() == RecordType::SOA && node.is_apex() { 0 } else { records.count() };
            if *next < number + count {
                self.put_records(node.relative_as_written(), &records, number, next)?;
            }
            number += count;
            for signature in split_records(records.signatures()) {
                if *next == number {
                    self.put_record(node.relative_as_written(), signature, |message| {
                        message.writer.put(&signature[RECORD_HEAD..])
                    })?;
                    *next += 1;
                }
                number += 1;
            }
        }
        Ok(())
    }

    /// Writes the SOA record of the zone.
    pub(super) fn put_soa(&mut self, zone: &'h Zone) -> Result<(), Full> {
        match zone.apex_node().and_then(|node| node.get(RecordType::SOA)) {
            Some(records) => self.put_records(&[], &records, 0, &mut 0),
            None => Err(Full),
        }
    }

    /// Writes the records of an RRset, of which the first has the number `first`, from the number `next` on.
    fn put_records(
        &mut self,
        relative: &'h [u8],
        records: &Records<'h>,
        first: usize,
        next: &mut usize,
    ) -> Result<(), Full> {
        let mut patches = records.patches().peekable();
        let mut at = 0;
        for (number, record) in split_records(records.records()).enumerate() {
            let end = at + record.len();
            if first + number < *next {
                while patches.next_if(|patch| *patch < end).is_some() {}
            } else {
                self.put_record(relative, record, |message| {
                    let mut from = RECORD_HEAD;
                    while let Some(patch) = patches.next_if(|patch| *patch < end) {
                        let patch = patch - at;
                        message.writer.put(&record[from..patch])?;
                        let stored = u16::from_be_bytes([record[patch], record[patch + 1]]);
                        message.put_tail(relative, records.records(), stored)?;
                        from = patch + 2;
                    }
                    message.writer.put(&record[from..])
                })?;
                *next += 1;
            }
            at = end;
        }
        Ok(())
    }

    /// Writes the end of a name in RDATA, which is a stored pointer.
    fn put_tail(&mut self, relative: &[u8], records: &[u8], stored: u16) -> Result<(), Full> {
        let mut labels = Ok(());
        let tail = follow(records, stored, |run| labels = labels.and_then(|()| self.writer.put(run)));
        labels?;
        match tail {
            Tail::Root => self.writer.put(&[0]),
            Tail::Apex(octets) => self.put_apex(octets),
            Tail::Owner(octets) => {
                let above = octets - self.apex.len();
                match self.owner {
                    Some((labels, at)) if labels.len() == relative.len() && at + labels.len() < FILL_OCTETS => {
                        self.put_pointer(at + labels.len() - above)
                    }
                    _ => {
                        self.writer.put(&relative[relative.len() - above..])?;
                        self.put_apex(self.apex.len())
                    }
                }
            }
        }
    }

    /// Writes a record: its owner, what follows in `stored`, and the data.
    fn put_record(
        &mut self,
        relative: &'h [u8],
        stored: &[u8],
        data: impl FnOnce(&mut Self) -> Result<(), Full>,
    ) -> Result<(), Full> {
        self.whole(|message| {
            message.put_owner(relative)?;
            message.writer.put(&stored[2..RECORD_HEAD - 2])?;
            message.put_data(data)
        })
    }

    /// Writes a record whole, or nothing.
    fn whole(&mut self, record: impl FnOnce(&mut Self) -> Result<(), Full>) -> Result<(), Full> {
        let start = self.writer.position();
        let mut written = record(self);
        if self.records > 0 && (self.writer.position() > self.fill_octets || self.records == u16::MAX) {
            written = Err(Full);
        }
        match written {
            Ok(()) => self.records += 1,
            Err(Full) => self.writer.rewind(start),
        }
        written
    }

    /// Writes the length of the data and the data.
    fn put_data(&mut self, data: impl FnOnce(&mut Self) -> Result<(), Full>) -> Result<(), Full> {
        let length_at = self.writer.position();
        self.writer.put_u16(0)?;
        data(self)?;
        let length = (self.writer.position() - length_at - 2) as u16;
        self.writer.written_mut()[length_at..length_at + 2].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }

    /// Writes a record that is not of the zone's image.
    pub(super) fn put_other(&mut self, record: &'h Record) -> Result<(), Full> {
        let owner = record.owner.as_wire();
        self.whole(|message| {
            match owner.strip_suffix(message.apex).filter(|relative| is_label_start(owner, relative.len())) {
                Some(relative) => message.put_owner(relative)?,
                None => message.writer.put(owner)?,
            }
            message.writer.put_u16(record.rtype.0)?;
            message.writer.put(&[0, 1])?;
            message.writer.put(&record.ttl.seconds().to_be_bytes())?;
            message.put_data(|message| message.writer.put(&record.rdata))
        })
    }

    fn put_owner(&mut self, relative: &'h [u8]) -> Result<(), Full> {
        if relative.is_empty() {
            return self.put_apex(self.apex.len());
        }
        if let Some((labels, at)) = self.owner
            && labels == relative
            && at < FILL_OCTETS
        {
            return self.put_pointer(at);
        }
        let at = self.writer.position();
        self.writer.put(relative)?;
        self.put_apex(self.apex.len())?;
        self.owner = Some((relative, at));
        Ok(())
    }

    /// Writes the last `octets` octets of the apex.
    fn put_apex(&mut self, octets: usize) -> Result<(), Full> {
        let before = self.apex.len() - octets;
        if let Some(at) = self.apex_at {
            return self.put_pointer(at + before);
        }
        let at = self.writer.position();
        self.writer.put(&self.apex[before..])?;
        if before == 0 {
            self.apex_at = Some(at);
        }
        Ok(())
    }

    fn put_pointer(&mut self, at: usize) -> Result<(), Full> {
        self.writer.put_u16(0xc000 | at as u16)
    }
}

/// Returns the records of an RRset.
pub(super) fn records_of(owner: &crate::wire::Name, rrset: &Rrset) -> impl Iterator<Item = Record> {
    let (owner, rtype, ttl) = (owner.clone(), rrset.rtype, rrset.ttl);
    rrset.rdata.iter().map(move |rdata| Record { owner: owner.clone(), rtype, ttl, rdata: rdata.clone() })
}
