//! Queries with a TSIG record (RFC 8945): verified before [`respond`](super::respond) answers them, and answered with a signature.
//!
//! `respond` sees a query without the record, and a buffer that is smaller by the signature of the response. It therefore
//! truncates a response that would not fit with its signature. Unlike other queries, these allocate: their number is limited by
//! the HMAC, which costs more.

use super::cookie::{self, FULL_OCTETS};
use super::hand_off::Signature;
use super::query::Disposition;
use super::{
    Context, Outcome, Peer, QueryState, Reply, Response, classify, complete, flags, hand_off, octets_max,
    respond_classified, write,
};
use crate::tsig::{Signer, Verified, verify};
use crate::wire::edns::OPT_OCTETS;
use crate::wire::header::{HEADER_OCTETS, Header, Rcode};
use crate::wire::message::Query;

/// A verified query that was handed off.
pub struct Signed {
    /// The query without its signature.
    query: Vec<u8>,
    signer: Signer,
}

/// Handles a query for which [`respond`](super::respond) returned [`Outcome::Signed`]. Returns the signed query if it is handed off; the
/// response then has the refusal, which [`Signed::refuse`] signs.
#[cold]
pub fn respond(
    context: &Context<'_>,
    query: &[u8],
    peer: &Peer,
    response: &mut Response<'_>,
) -> (Outcome, Option<Signed>) {
    let mut state = QueryState::new();
    state.query.read_again(query);
    let (Some(keys), Some(tsig)) = (&context.settings.keys, state.query.tsig) else { return (Outcome::Drop, None) };
    let mut signer = match verify(keys, query, &tsig, peer.now) {
        Verified::Good(signer) => signer,
        Verified::Bad(error, signer) => {
            state.cookie =
                cookie::verify(context.settings.cookies.as_ref(), &state.query, query, peer.address, peer.now);
            let Some(mut signer) = signer else {
                state.disposition = Disposition::Unverified(error);
                return (write(context, query, peer, &state, None, response), None);
            };
            state.disposition = Disposition::Reply(Rcode::NOTAUTH, None);
            let outcome = with_signature(context, peer, query, &mut state, response, &mut signer, |state, short| {
                write(context, query, peer, state, None, short)
            });
            return (outcome, None);
        }
        Verified::Malformed => {
            state.disposition = Disposition::Reply(Rcode::FORMERR, None);
            return (write(context, query, peer, &state, None, response), None);
        }
    };
    let Some(query) = without_signature(query, tsig.start()) else { return (Outcome::Drop, None) };
    state.query.read_again(&query);
    classify(context, &query, peer, &mut state);
    let outcome = with_signature(context, peer, &query, &mut state, response, &mut signer, |state, short| {
        respond_classified(context, &query, peer, state, short)
    });
    let signed = matches!(outcome, Outcome::HandOff(_)).then_some(Signed { query, signer });
    (outcome, signed)
}

/// Returns the query up to the signature, with a record less.
fn without_signature(query: &[u8], start: usize) -> Option<Vec<u8>> {
    let mut query = query.get(..start)?.to_vec();
    let additionals = u16::from_be_bytes([*query.get(10)?, *query.get(11)?]).checked_sub(1)?;
    query[10..12].copy_from_slice(&additionals.to_be_bytes());
    Some(query)
}

/// Calls `answer` with room for the signature left, and signs the response.
fn with_signature(
    context: &Context<'_>,
    peer: &Peer,
    query: &[u8],
    state: &mut QueryState,
    response: &mut Response<'_>,
    signer: &mut Signer,
    answer: impl FnOnce(&QueryState, &mut Response<'_>) -> Outcome,
) -> Outcome {
    let limit = octets_max(context, &state.query, peer).min(response.octets.len());
    let question_octets = state.query.question.map_or(0, |question| question.end() - HEADER_OCTETS);
    let short = limit.saturating_sub(signer.octets());
    if HEADER_OCTETS + question_octets + OPT_OCTETS + 4 + FULL_OCTETS > short {
        // RFC 8945 §5.3: "[...] MUST be altered so that a response can be generated [...] having only the question and a TSIG
        // record, has the TC bit set".
        return truncate(context, peer, query, state, response, (signer, limit));
    }
    let mut inner = Response::new(&mut response.octets[..short]);
    let outcome = answer(state, &mut inner);
    (response.length, response.rcode) = (inner.length, inner.rcode);
    if outcome == Outcome::Reply {
        sign(response, signer, peer.now);
    }
    outcome
}

/// Writes a truncated response, with a signature if that fits.
fn truncate(
    context: &Context<'_>,
    peer: &Peer,
    query: &[u8],
    state: &QueryState,
    response: &mut Response<'_>,
    (signer, limit): (&mut Signer, usize),
) -> Outcome {
    let end = state.query.question.map_or(HEADER_OCTETS, |question| question.end());
    if end > limit {
        return Outcome::Drop;
    }
    response.octets[..end].copy_from_slice(&query[..end]);
    let reply = Reply { truncated: true, ..Reply::of(Rcode::NOERROR, None) };
    let Query { header, question, .. } = state.query;
    let (id, questions) = (header.id, u16::from(question.is_some()));
    let head = Header { id, flags: flags(header, &reply), questions, ..Header::default() };
    response.octets[..HEADER_OCTETS].copy_from_slice(&head.to_octets());
    response.length = signer.sign(&mut response.octets[..limit], end, peer.now).unwrap_or(end);
    response.rcode = Rcode::NOERROR;
    context.stats.count_response(peer, Rcode::NOERROR, true, response.length);
    Outcome::Reply
}

fn sign(response: &mut Response<'_>, signer: &mut Signer, now: u64) {
    let length = signer.sign(response.octets, response.length, now);
    debug_assert!(length.is_some(), "the room for the signature was left");
    response.length = length.unwrap_or(response.length);
}

impl Signed {
    /// Returns the query without its signature.
    pub fn query(&self) -> &[u8] {
        &self.query
    }

    /// Returns the signature of the query.
    pub fn signature(&self) -> Signature<'_> {
        Signature { key: self.signer.key(), mac: self.signer.mac(), octets: self.signer.octets() }
    }

    /// Returns the query, and the signer of its answer.
    pub fn into_parts(self) -> (Vec<u8>, Signer) {
        (self.query, self.signer)
    }

    /// Signs the refusal that is in `response`.
    pub fn refuse(mut self, context: &Context<'_>, peer: &Peer, response: &mut Response<'_>) -> Outcome {
        sign(response, &mut self.signer, peer.now);
        hand_off::refuse(context, peer, response)
    }
}

/// Like [`complete`], and signs the response if the query was signed.
#[cold]
pub fn complete_signed(
    context: &Context<'_>,
    query: &[u8],
    peer: &Peer,
    message: Option<&[u8]>,
    response: &mut Response<'_>,
    signer: Option<&mut Signer>,
) -> Outcome {
    let Some(signer) = signer else { return complete(context, query, peer, message, response) };
    let mut state = QueryState::new();
    state.query.read_again(query);
    with_signature(context, peer, query, &mut state, response, signer, |_, short| {
        complete(context, query, peer, message, short)
    })
}
