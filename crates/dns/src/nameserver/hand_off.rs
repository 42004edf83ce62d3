//! Requests that [`respond`](super::respond) does not answer itself: zone transfers (RFC 5936, RFC 1995), NOTIFY (RFC 1996) and
//! UPDATE (RFC 2136).
//!
//! `respond` writes the refusal of such a request, and returns [`Outcome::HandOff`]. The transport then calls the server's
//! [`Handler`], if there is one. Its [`Answer`] is one message, many messages that are made one after another, or one that comes
//! later. Without a handler, or if that returns none, the refusal is sent.

use std::pin::Pin;
use std::sync::Arc;

pub use super::query::HandOffKind;
use super::{Context, Outcome, Peer, Response, Stats, octets_max};
use crate::tsig::Key;
use crate::wire::Class;
use crate::wire::header::{FLAG_TC, Header};
use crate::wire::message::Query;
use crate::wire::question::Question;
use crate::zone::Zone;
use crate::zone::qname::Qname;

/// A request that is handed off.
pub struct HandOff<'a> {
    /// Transfer, NOTIFY or UPDATE.
    pub kind: HandOffKind,
    /// The octets of the request. For UPDATE, only the header and the first question were read.
    pub message: &'a [u8],
    /// The client.
    pub peer: &'a Peer,
    /// The key that signed the request (RFC 8945), which is verified, and which signs the answer. `message` has no signature then.
    pub key: Option<&'a Arc<Key>>,
    /// The signature's MAC; empty without one.
    pub mac: &'a [u8],
    /// The question; for UPDATE, the zone section.
    pub question: Question,
    /// The served zone whose apex is the name in the question, if the class is IN. A clone keeps this version in memory.
    pub zone: Option<&'a Arc<Zone>>,
    /// The largest response that the client accepts, in octets, without a signature.
    pub octets_max: usize,
}

/// The verified signature of a request.
#[derive(Debug, Clone, Copy)]
pub struct Signature<'a> {
    /// The key.
    pub key: &'a Arc<Key>,
    /// The MAC.
    pub mac: &'a [u8],
    /// The number of octets that a signature adds to each message of the answer.
    pub octets: usize,
}

impl<'a> HandOff<'a> {
    /// Returns the request in `message`, for which [`respond`](super::respond) returned this kind; `None` if it has no question.
    pub fn of(
        kind: HandOffKind,
        message: &'a [u8],
        peer: &'a Peer,
        context: &Context<'a>,
        signature: Option<Signature<'a>>,
    ) -> Option<Self> {
        let query = Query::read(message)?;
        let question = query.question?;
        let qname = Qname::of(question.name(message));
        let zone = context.snapshot.by_hash(qname.hash(0)).filter(|zone| zone.apex_octets() == qname.suffix(0));
        let zone = zone.filter(|_| question.qclass == Class::IN);
        let added = signature.map_or(0, |signature| signature.octets);
        let octets_max = octets_max(context, &query, peer).saturating_sub(added);
        let (key, mac) = signature.map_or((None, &[][..]), |signature| (Some(signature.key), signature.mac));
        Some(HandOff { kind, message, peer, key, mac, question, zone, octets_max })
    }
}

/// Answers requests that are handed off.
pub trait Handler: Send + Sync {
    /// Returns the answer; `None`: the refusal. A worker calls this between other queries, so it must neither wait nor take
    /// long: such work belongs in the answer.
    fn answer(&self, request: &HandOff<'_>) -> Option<Answer>;
}

/// The answer to a request. Each message is complete: header, question, records.
pub enum Answer {
    /// One message, of at most [`HandOff::octets_max`] octets; otherwise, the client gets SERVFAIL.
    One(Vec<u8>),
    /// Many messages, only over TCP, TLS and QUIC; other clients get the refusal. (RFC 5936 §4.2: AXFR over UDP is not defined; RFC
    /// 8484 §6: an HTTP response has a single message.)
    Many(Box<dyn Cursor>),
    /// One message, as above, that is not ready yet. The client gets SERVFAIL if it takes too long. The future is dropped
    /// then, and when the connection fails or the server stops.
    Later(Pin<Box<dyn Future<Output = Vec<u8>> + Send>>),
}

/// Makes the messages of an answer, each when the client has read the previous one. It is dropped after the last one, or when the
/// client does not read.
pub trait Cursor: Send {
    /// Writes the next message into `buffer`, which has room for the largest (65,535 octets, less those of a signature). It must take
    /// no longer than that.
    fn fill(&mut self, buffer: &mut [u8]) -> Progress;
}

/// The message that a cursor has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// A message of this many octets; there are more messages.
    More(usize),
    /// The last message, of this many octets.
    Last(usize),
}

/// Sends the refusal that [`respond`](super::respond) has written.
pub fn refuse(context: &Context<'_>, peer: &Peer, response: &Response<'_>) -> Outcome {
    count(context.stats, peer, response.octets());
    Outcome::Reply
}

/// Counts the first message of an answer.
pub(crate) fn count(stats: &Stats, peer: &Peer, message: &[u8]) {
    if let Some(header) = Header::read(message) {
        stats.count_response(peer, header.rcode(), header.flags & FLAG_TC != 0, message.len());
    }
}
