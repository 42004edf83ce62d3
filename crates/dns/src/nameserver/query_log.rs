//! One request and its outcome as a query log record of fixed size. A query thread builds it from octets that it already has and
//! leaves it for another thread to write.

use std::net::SocketAddr;
use std::time::Duration;

use super::{Outcome, Peer, Response, Transport, side_of_cut};
use crate::wire::header::{Header, Opcode, Rcode};
use crate::wire::message::Query;
use crate::wire::name::NAME_OCTETS_MAX;
use crate::wire::{Class, Name, RecordType};
use crate::zone::db::Snapshot;
use crate::zone::qname::Qname;

/// The maximum lengths of a request and of a response whose octets a record contains: a query in 512 octets, and a response in
/// one datagram of the recommended size (DNS flag day 2020).
pub const MESSAGE_OCTETS_MAX: (usize, usize) = (512, 1_232);

/// One request, read, and its response.
#[derive(Debug, Clone, Copy)]
pub struct Record {
    /// The arrival of its batch, since the epoch.
    pub since_epoch: Duration,
    /// The client's address.
    pub client: SocketAddr,
    /// The transport.
    pub transport: Transport,
    /// The header's sixteen bits of flags, zero where there is no header.
    pub flags: u16,
    /// The contents of the OPT record, if there is one.
    pub edns: Option<Edns>,
    /// The length of the request in octets.
    pub octets: u16,
    /// The response; `None` if there was none.
    pub reply: Option<Reply>,
    question: Option<(RecordType, Class)>,
    /// The question's name in wire form, as sent, and the offset of the name of the enclosing zone in it, if there is one.
    name: [u8; NAME_OCTETS_MAX],
    name_length: u8,
    zone_at: Option<u8>,
    messages: Option<Messages>,
}

/// The octets of a request and of its response; a length of 0: none, or too long.
#[derive(Debug, Clone, Copy)]
struct Messages {
    query: [u8; MESSAGE_OCTETS_MAX.0],
    query_length: u16,
    response: [u8; MESSAGE_OCTETS_MAX.1],
    response_length: u16,
}

/// The contents of a request's OPT record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edns {
    /// Version.
    pub version: u8,
    /// The largest UDP payload that the client accepts.
    pub payload_octets_max: u16,
    /// DO: the client requests DNSSEC records.
    pub dnssec_ok: bool,
}

/// The response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// Response code, with the upper bits of the OPT record.
    pub rcode: Rcode,
    /// The header's sixteen bits of flags.
    pub flags: u16,
    /// Records in answer, authority and additional section.
    pub counts: [u16; 3],
    /// Octets.
    pub octets: u16,
}

impl Record {
    /// Returns the record of an answered request, with the octets of both messages if `with_messages`. It parses the request
    /// again, which costs time only for logged requests.
    pub fn of(
        query: &[u8],
        peer: &Peer,
        since_epoch: Duration,
        (outcome, response): (Outcome, &Response<'_>),
        snapshot: &Snapshot,
        with_messages: bool,
    ) -> Record {
        let is_answered = outcome == Outcome::Reply;
        let read = Query::read(query).unwrap_or_default();
        let mut record = Record {
            since_epoch,
            client: peer.address,
            transport: peer.transport,
            flags: read.header.flags,
            edns: read.edns.map(|edns| Edns {
                version: edns.version,
                payload_octets_max: edns.payload_octets_max,
                dnssec_ok: edns.dnssec_ok,
            }),
            octets: query.len().min(usize::from(u16::MAX)) as u16,
            reply: is_answered.then(|| Reply::of(response)).flatten(),
            question: None,
            name: [0; NAME_OCTETS_MAX],
            name_length: 0,
            zone_at: None,
            messages: with_messages.then(|| Messages::of(query, if is_answered { response.octets() } else { &[] })),
        };
        if let Some(question) = read.question {
            let name = question.name(query);
            record.question = Some((question.qtype, question.qclass));
            record.name[..name.len()].copy_from_slice(name);
            record.name_length = question.name_length;
            if question.qclass == Class::IN && read.header.opcode() == Opcode::QUERY {
                record.zone_at = zone_at(&Qname::of(name), question.qtype, snapshot);
            }
        }
        record
    }

    /// Returns the question, if there was one to be read.
    pub fn question(&self) -> Option<(Name, RecordType, Class)> {
        let (qtype, class) = self.question?;
        Some((self.name_from(0)?, qtype, class))
    }

    /// Returns the apex of the zone that encloses the question's name.
    pub fn zone(&self) -> Option<Name> {
        self.name_from(usize::from(self.zone_at?))
    }

    /// Returns the octets of the request, and of the response. `None`: they were not recorded, there was no response, or a
    /// message is longer than [`MESSAGE_OCTETS_MAX`].
    pub fn messages(&self) -> (Option<&[u8]>, Option<&[u8]>) {
        fn part(octets: &[u8], length: u16) -> Option<&[u8]> {
            octets.get(..usize::from(length)).filter(|octets| !octets.is_empty())
        }
        let Some(messages) = &self.messages else { return (None, None) };
        (part(&messages.query, messages.query_length), part(&messages.response, messages.response_length))
    }

    fn name_from(&self, at: usize) -> Option<Name> {
        Name::from_wire(self.name.get(at..usize::from(self.name_length))?).ok()
    }
}

impl Messages {
    fn of(query: &[u8], response: &[u8]) -> Messages {
        let mut messages = Messages {
            query: [0; MESSAGE_OCTETS_MAX.0],
            query_length: 0,
            response: [0; MESSAGE_OCTETS_MAX.1],
            response_length: 0,
        };
        for (from, to, length) in [
            (query, &mut messages.query[..], &mut messages.query_length),
            (response, &mut messages.response[..], &mut messages.response_length),
        ] {
            if let Some(to) = to.get_mut(..from.len()) {
                to.copy_from_slice(from);
                *length = from.len() as u16;
            }
        }
        messages
    }
}

impl Reply {
    fn of(response: &Response<'_>) -> Option<Reply> {
        let header = Header::read(response.octets())?;
        let counts = [header.answers, header.authorities, header.additionals];
        let octets = response.octets().len().min(usize::from(u16::MAX)) as u16;
        Some(Reply { rcode: response.rcode(), flags: header.flags, counts, octets })
    }
}

/// Returns the offset of the zone's apex in the name.
fn zone_at(qname: &Qname, qtype: RecordType, snapshot: &Snapshot) -> Option<u8> {
    let zone = snapshot.enclosing(qname, 0)?;
    let labels = side_of_cut(snapshot, qname, qtype, zone).apex_labels();
    u8::try_from(qname.start(qname.labels() - labels)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nameserver::{Context, Settings, Stats, respond};
    use crate::zone::image::Unavailable;
    use crate::zone::{Zone, ZoneDb};

    fn record(query: &[u8]) -> Record {
        let db = ZoneDb::new();
        for apex in ["example.", "sub.example."] {
            db.publish(Zone::unavailable(apex.parse().expect("a name"), Unavailable::Expired));
        }
        db.set_ready();
        let (snapshot, settings, stats) = (db.snapshot(), Settings::default(), Stats::new());
        let address = "[2001:db8::1]:4000".parse().expect("an address");
        let peer = Peer { address, transport: Transport::Udp, now: 0, random: 0, keepalive: None };
        let mut buffer = [0; 1232];
        let mut response = Response::new(&mut buffer);
        let context = Context { snapshot: &snapshot, settings: &settings, stats: &stats, limiter: None };
        let outcome = respond(&context, query, &peer, &mut response);
        Record::of(query, &peer, Duration::from_secs(7), (outcome, &response), &snapshot, true)
    }

    fn query(name: &str, qtype: RecordType) -> Vec<u8> {
        let mut message = vec![0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 1];
        message.extend_from_slice(name.parse::<Name>().expect("a name").as_wire());
        message.extend_from_slice(&qtype.0.to_be_bytes());
        message.extend_from_slice(b"\0\x01\0\0\x29\x10\0\0\x03\x80\0\0\0");
        message
    }

    #[test]
    fn it_has_the_query_and_the_response() {
        for (name, qtype, zone, rcode) in [
            ("A.Sub.example.", RecordType::A, Some("sub.example."), Rcode::BADVERS),
            ("sub.example.", RecordType::DS, Some("example."), Rcode::BADVERS),
            ("example.", RecordType::DS, Some("example."), Rcode::BADVERS),
            ("other.test.", RecordType::A, None, Rcode::BADVERS),
        ] {
            let message = query(name, qtype);
            let record = record(&message);
            let expected: Name = name.parse().expect("a name");
            assert_eq!(record.question(), Some((expected.clone(), qtype, Class::IN)));
            assert_eq!(record.question().map(|question| question.0.to_string()), Some(name.to_owned()), "case is kept");
            assert_eq!(record.zone(), zone.map(|zone| zone.parse().expect("a name")), "{name} {qtype}");
            let edns = Edns { version: 3, payload_octets_max: 4096, dnssec_ok: true };
            assert_eq!((record.edns, usize::from(record.octets)), (Some(edns), message.len()));
            let reply = record.reply.expect("is answered");
            assert_eq!((reply.rcode, reply.counts, reply.flags & 0x8100), (rcode, [0, 0, 1], 0x8100));
        }
        let mut plain = query("a.sub.example.", RecordType::A);
        plain.truncate(plain.len() - 11);
        plain[11] = 0;
        let plain = record(&plain);
        assert_eq!((plain.edns, plain.reply.map(|reply| reply.rcode)), (None, Some(Rcode::SERVFAIL)));
    }

    #[test]
    fn what_cannot_be_read_is_a_record_too() {
        for message in [&b"short"[..], &[0; 12], &[0, 1, 0x80, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 1]] {
            let record = record(message);
            assert_eq!((usize::from(record.octets), record.zone()), (message.len(), None));
            assert_eq!(record.reply.is_some(), message.len() == 12, "{message:?}");
        }
    }
}
