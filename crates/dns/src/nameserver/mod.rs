//! Answering: from the octets of a query to the octets of its response.
//!
//! [`respond`] handles every query on every transport: it reads the query, finds the zone that encloses its name, and writes the
//! answer. [`respond_batch`] takes the same steps for many queries in parallel, so that while one waits for memory the next one
//! proceeds. There is no other path: rare answers are assembled from the same precompiled records by the same code. Requests that
//! need more than one message, or more time, leave as [`Outcome::HandOff`].
//!
//! Everything here is pure: no lock, no allocation, no clock; the time and a random number come with the [`Peer`].

pub mod query_log;
pub mod settings;
pub mod sizes;
pub mod stats;
pub mod wildcard_hit;
mod zone_query;

mod query;

pub mod cookie;
pub mod prefix;
pub mod rrl;

pub mod hand_off;
pub mod signed;

mod answer;
mod names;
mod proof;
mod section;

mod chaos;
mod opt;

use std::hint::black_box;
use std::net::SocketAddr;

pub use rrl::Limiter;
pub use settings::Settings;
pub use stats::Stats;

use cookie::{CookieStatus, ReceivedCookie};
use hand_off::HandOffKind;
use opt::Opt;
use query::Disposition;
use rrl::{RrlAction, Source};
use section::Message;
use stats::{DropReason, Kind, Limited};
use zone_query::ZoneQuery;

use crate::wire::RecordType;
use crate::wire::build::{Full, Writer};
use crate::wire::edns::ExtendedError;
use crate::wire::header::{FLAG_AA, FLAG_CD, FLAG_QR, FLAG_RD, FLAG_TC, HEADER_OCTETS, Header, Opcode, Rcode};
use crate::wire::message::Query;
use crate::wire::question::Question;
use crate::wire::tsig::TsigError;
use crate::zone::Zone;
use crate::zone::db::{BucketProbe, Snapshot};
use crate::zone::image::Unavailable;
use crate::zone::qname::Qname;

/// The transport of a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// One datagram.
    Udp,
    /// A stream without encryption (RFC 7766).
    Tcp,
    /// TLS (RFC 7858).
    Tls,
    /// HTTPS (RFC 8484).
    Https,
    /// QUIC (RFC 9250).
    Quic,
}

impl Transport {
    /// Returns whether the messages are encrypted: their sizes then reveal information, which padding hides (RFC 8467).
    #[inline]
    pub fn is_encrypted(self) -> bool {
        matches!(self, Transport::Tls | Transport::Https | Transport::Quic)
    }

    /// Returns whether edns-tcp-keepalive has a meaning on this transport (RFC 7828): not over UDP, and not over HTTPS and QUIC,
    /// which have other means. RFC 9250 §5.5.2: a server "MUST NOT send" it over QUIC.
    #[inline]
    pub fn has_keepalive(self) -> bool {
        matches!(self, Transport::Tcp | Transport::Tls)
    }
}

/// Client address, transport, time, and random number of a query; the caller supplies the last two.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// Source address of the query.
    pub address: SocketAddr,
    /// The transport of the query.
    pub transport: Transport,
    /// Seconds since the epoch, read once per batch.
    pub now: u64,
    /// A random number for this query; it selects the rotation of the records.
    pub random: u32,
    /// The current idle timeout of the connection, in units of 100 ms, for stream clients that request it (RFC 7828); `None`: not
    /// sent.
    pub keepalive: Option<u16>,
}

/// The action for a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Send it: `Response::octets()`.
    Reply,
    /// Send nothing.
    Drop,
    /// Pass it to the handler of such requests. Without one, send the refusal, `Response::octets()`, by [`hand_off::refuse`].
    HandOff(HandOffKind),
    /// The query has a signature (RFC 8945), and the server has keys: answer it by [`signed::respond`].
    Signed,
}

/// A response being built in a buffer of the caller.
pub struct Response<'a> {
    octets: &'a mut [u8],
    length: usize,
    rcode: Rcode,
}

impl<'a> Response<'a> {
    /// Returns an empty response that may grow to the size of `octets`: at least 512, 65,535 for a stream.
    pub fn new(octets: &'a mut [u8]) -> Self {
        Response { octets, length: 0, rcode: Rcode::NOERROR }
    }

    /// Returns the response code, part of which is in the header and part in the OPT record; NOERROR if there is no response.
    pub fn rcode(&self) -> Rcode {
        self.rcode
    }

    /// Returns the response: empty if the outcome is [`Outcome::Drop`].
    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.length]
    }
}

/// The data for answers, the same for a whole batch.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The current zones.
    pub snapshot: &'a Snapshot,
    /// The operator's settings.
    pub settings: &'a Settings,
    /// The counters of the worker; only that worker writes them.
    pub stats: &'a Stats,
    /// The worker's rate-limiting table; `None`: no limit.
    pub limiter: Option<&'a Limiter>,
}

/// One query of a batch, and the buffer of its response.
pub struct Exchange<'a> {
    /// The octets of the query.
    pub query: &'a [u8],
    /// The client.
    pub peer: Peer,
    /// The buffer for the response.
    pub response: Response<'a>,
    /// The action for the response, once the batch is answered.
    pub outcome: Outcome,
}

impl<'a> Exchange<'a> {
    /// Returns a query yet to be answered, with the buffer of its response.
    pub fn new(query: &'a [u8], peer: Peer, buffer: &'a mut [u8]) -> Self {
        Exchange { query, peer, response: Response::new(buffer), outcome: Outcome::Drop }
    }
}

/// Working memory of [`respond_batch`], made once by each worker: some 100 KiB.
pub struct Scratch {
    states: Box<[QueryState]>,
}

impl Scratch {
    /// Working memory for batches.
    pub fn new() -> Self {
        Scratch { states: vec![QueryState::new(); BATCH_MAX].into() }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// The state of one query between its steps.
#[derive(Clone)]
struct QueryState {
    query: Query,
    cookie: ReceivedCookie,
    disposition: Disposition,
    /// The question's name, if it must be looked up.
    qname: Qname,
}

impl QueryState {
    fn new() -> Self {
        QueryState {
            query: Query::default(),
            cookie: ReceivedCookie::NONE,
            disposition: Disposition::Drop(DropReason::Short),
            qname: Qname::new(),
        }
    }
}

/// The maximum number of queries that are answered in parallel.
pub const BATCH_MAX: usize = 64;

/// Answers one query.
pub fn respond(context: &Context<'_>, query: &[u8], peer: &Peer, response: &mut Response<'_>) -> Outcome {
    let mut state = QueryState::new();
    read(context, query, peer, &mut state);
    respond_classified(context, query, peer, &state, response)
}

/// The steps of [`respond`] after the first one.
#[inline]
fn respond_classified(
    context: &Context<'_>,
    query: &[u8],
    peer: &Peer,
    state: &QueryState,
    response: &mut Response<'_>,
) -> Outcome {
    let zone = authority(context, state, locate(context, state, first(context, state)));
    write(context, query, peer, state, zone, response)
}

/// Answers batches of any length, in parts of [`BATCH_MAX`] that overlap their waits for memory.
///
/// Between the steps, the loads of all queries follow each other, and each depends only on the step before. The processor
/// therefore waits for many loads in parallel, where a single query waits for one after another.
pub fn respond_batch(context: &Context<'_>, scratch: &mut Scratch, exchanges: &mut [Exchange<'_>]) {
    for exchanges in exchanges.chunks_mut(BATCH_MAX) {
        let states = &mut scratch.states[..exchanges.len()];
        for (exchange, state) in exchanges.iter().zip(states.iter_mut()) {
            read(context, exchange.query, &exchange.peer, state);
        }
        let mut firsts: [Option<BucketProbe<'_>>; BATCH_MAX] = [None; BATCH_MAX];
        for (state, place) in states.iter().zip(&mut firsts) {
            *place = first(context, state);
            black_box(place.map(|first| first.touch()));
        }
        let mut zones: [Option<&Zone>; BATCH_MAX] = [None; BATCH_MAX];
        let zones = &mut zones[..states.len()];
        for ((state, first), zone) in states.iter().zip(firsts).zip(&mut *zones) {
            *zone = locate(context, state, first);
        }
        for zone in zones.iter().flatten() {
            black_box(zone.apex_labels());
        }
        for (state, zone) in states.iter().zip(&*zones) {
            black_box(zone.map(|zone| zone.touch(&state.qname)));
        }
        for (state, zone) in states.iter().zip(&mut *zones) {
            *zone = authority(context, state, *zone);
        }
        for ((exchange, state), zone) in exchanges.iter_mut().zip(states.iter()).zip(zones) {
            exchange.outcome = write(context, exchange.query, &exchange.peer, state, *zone, &mut exchange.response);
        }
    }
}

/// Writes `message`, the handler's answer to a request that was handed off, as its response; SERVFAIL if there is no message, or one that is larger
/// than the client accepts.
#[cold]
pub fn complete(
    context: &Context<'_>,
    query: &[u8],
    peer: &Peer,
    message: Option<&[u8]>,
    response: &mut Response<'_>,
) -> Outcome {
    let mut state = QueryState::new();
    state.query.read_again(query);
    let limit = octets_max(context, &state.query, peer).min(response.octets.len());
    if let Some(message) = message.filter(|message| (HEADER_OCTETS..=limit).contains(&message.len())) {
        response.octets[..message.len()].copy_from_slice(message);
        response.length = message.len();
        response.rcode = Header::read(message).map_or(Rcode::NOERROR, Header::rcode);
        hand_off::count(context.stats, peer, message);
        return Outcome::Reply;
    }
    state.cookie = cookie::verify(context.settings.cookies.as_ref(), &state.query, query, peer.address, peer.now);
    state.disposition = Disposition::Reply(Rcode::SERVFAIL, None);
    // The request has passed the rate limit.
    write(&Context { limiter: None, ..*context }, query, peer, &state, None, response)
}

/// First step: reads and classifies the query, and hashes the name to look up.
#[inline]
fn read(context: &Context<'_>, query: &[u8], peer: &Peer, state: &mut QueryState) {
    let is_long_enough = state.query.read_again(query);
    let qtype = state.query.question.filter(|_| is_long_enough).map(|question| question.qtype);
    context.stats.count_request(peer, qtype, query.len());
    if !is_long_enough {
        state.disposition = Disposition::Drop(DropReason::Short);
        return;
    }
    classify(context, query, peer, state);
    if state.query.header.opcode() != Opcode::QUERY {
        context.stats.count_opcode(state.query.header.opcode());
    }
}

/// Classifies a query that was read.
#[inline]
fn classify(context: &Context<'_>, query: &[u8], peer: &Peer, state: &mut QueryState) {
    state.cookie = cookie::verify(context.settings.cookies.as_ref(), &state.query, query, peer.address, peer.now);
    state.disposition = query::classify(&state.query, peer, context.settings, state.cookie.status);
    if let (Disposition::Lookup, Some(question)) = (state.disposition, state.query.question) {
        state.qname.read(question.name(query));
        if question.qtype == RecordType::SOA && context.settings.is_catalog(state.qname.octets()) {
            state.disposition = Disposition::HandOff(HandOffKind::Transfer);
        }
    }
}

/// Second step: determines the first bucket to probe for the zone, if there is a name to look up.
#[inline]
fn first<'a>(context: &Context<'a>, state: &QueryState) -> Option<BucketProbe<'a>> {
    if state.disposition != Disposition::Lookup || !context.snapshot.is_open() {
        return None;
    }
    context.snapshot.first(&state.qname)
}

/// Third step: finds the zone by hash.
#[inline]
fn locate<'a>(context: &Context<'a>, state: &QueryState, first: Option<BucketProbe<'a>>) -> Option<&'a Zone> {
    context.snapshot.candidate(&state.qname, first?)
}

/// Fourth step: returns the zone.
#[inline]
fn authority<'a>(context: &Context<'a>, state: &QueryState, candidate: Option<&'a Zone>) -> Option<&'a Zone> {
    let zone = context.snapshot.confirm(&state.qname, candidate)?;
    Some(side_of_cut(context.snapshot, &state.qname, state.query.question?.qtype, zone))
}

/// Returns the zone with the records of this type of a name that `zone` encloses: DS belongs to the parent's side of the cut (RFC
/// 4035 §3.1.4.1), if the parent is served here, too.
#[inline]
fn side_of_cut<'a>(snapshot: &'a Snapshot, qname: &Qname, qtype: RecordType, zone: &'a Zone) -> &'a Zone {
    if qtype == RecordType::DS && qname.labels() == zone.apex_labels() && zone.apex_labels() > 0 {
        return snapshot.enclosing(qname, 1).unwrap_or(zone);
    }
    zone
}

/// Fifth step: writes the response.
#[inline]
fn write(
    context: &Context<'_>,
    query: &[u8],
    peer: &Peer,
    state: &QueryState,
    zone: Option<&Zone>,
    response: &mut Response<'_>,
) -> Outcome {
    response.length = 0;
    // The rarer dispositions are checked only after the common one.
    let looks_up = state.disposition == Disposition::Lookup;
    match state.disposition {
        Disposition::Drop(reason) if !looks_up => {
            context.stats.count_drop(reason);
            return Outcome::Drop;
        }
        Disposition::Signed if !looks_up => return Outcome::Signed,
        _ => {}
    }
    context.stats.count_cookie(state.cookie.status);
    let limit = octets_max(context, &state.query, peer);
    let mut writer = Writer::new(response.octets, limit);
    let question_octets = state.query.question.map_or(0, |question| question.end() - HEADER_OCTETS);
    let mut opt =
        state.query.edns.as_ref().map(|edns| Opt::new(edns, peer, context.settings, state.cookie.answer(), zone));
    let opt_octets = opt.as_ref().map_or(0, Opt::octets);
    let mut spare_octets = opt.as_ref().map_or(0, Opt::spare_octets);
    // The space for the header, and the question octet by octet: resolvers check the case of its letters.
    let start = &query[..HEADER_OCTETS + question_octets];
    if writer.put(start).is_err() || writer.reserve(opt_octets).is_err() {
        context.stats.count_drop(DropReason::Room);
        return Outcome::Drop;
    }

    if writer.reserve(spare_octets).is_err() {
        spare_octets = 0;
    }

    let mut reply = reply(context, query, peer, state, zone, &mut writer, &mut spare_octets);
    let mut outcome = match state.disposition {
        Disposition::HandOff(kind) if !looks_up => Outcome::HandOff(kind),
        _ => Outcome::Reply,
    };
    if let Some(verdict) = limited(context, peer, state, reply.source, [query.len(), writer.position() + opt_octets]) {
        outcome = hold_back(context, verdict, &mut reply, &mut writer, start.len());
        if outcome == Outcome::Drop {
            return Outcome::Drop;
        }
        opt = opt.map(Opt::bare);
    }

    writer.release(opt_octets + spare_octets);
    let unverified = match state.disposition {
        Disposition::Unverified(error) if !looks_up => Some(error),
        _ => None,
    };
    // Padding covers the whole message, so it depends on the length of the data after it.
    let tsig_octets = if unverified.is_some() { tsig_octets(query, state) } else { 0 };
    let put_opt = |opt: &Opt<'_>| opt.put(&mut writer, reply.rcode, reply.ede, tsig_octets).is_ok();
    let mut closing = u16::from(opt.as_ref().is_some_and(put_opt));
    if let Some(error) = unverified {
        match put_tsig(query, state, error, &mut writer) {
            Ok(()) => closing += 1,
            // RFC 8945 §5.3: if it does not fit, the response has TC, and the client retries over a stream.
            Err(_) => reply.truncated = true,
        }
    }
    let header = header_of(state.query.header, &reply, u16::from(question_octets > 0), closing);
    writer.written_mut()[..HEADER_OCTETS].copy_from_slice(&header.to_octets());
    response.length = writer.position();
    response.rcode = reply.rcode;
    if outcome == Outcome::Reply {
        context.stats.count_response(peer, reply.rcode, reply.truncated, response.length);
    }
    outcome
}

/// Returns the header of the response to a query with this header. `closing`: the number of records after those of the reply.
#[inline]
fn header_of(query: Header, reply: &Reply, questions: u16, closing: u16) -> Header {
    let [answers, authorities, additionals] = reply.counts;
    let additionals = additionals + closing;
    Header { id: query.id, flags: flags(query, reply), questions, answers, authorities, additionals }
}

/// Returns the flags of the response to a query with this header.
#[inline]
fn flags(header: Header, reply: &Reply) -> u16 {
    let copied = FLAG_RD | if header.opcode() == Opcode::QUERY { FLAG_CD } else { 0 };
    FLAG_QR
        | u16::from(header.opcode().0) << 11
        | if reply.authoritative { FLAG_AA } else { 0 }
        | if reply.truncated { FLAG_TC } else { 0 }
        | header.flags & copied
        | reply.rcode.0 & 0x0f
}

/// Returns the maximum size of the response (RFC 6891 §6.2.3, §6.2.5): over UDP 512 octets, or the limit that client and operator
/// both allow.
#[inline]
fn octets_max(context: &Context<'_>, query: &Query, peer: &Peer) -> usize {
    if peer.transport != Transport::Udp {
        return usize::from(u16::MAX);
    }
    let client = query.edns.map_or(512, |edns| edns.payload_octets_max.max(512));
    usize::from(client.min(context.settings.udp_payload_max.max(512)))
}

/// Returns `Some` action if the response to `peer` exceeds the limit; `octets` are those of the query and of the response. A stream and a valid cookie prove the client's address, so
/// there is no victim to protect.
#[inline]
fn limited(
    context: &Context<'_>,
    peer: &Peer,
    state: &QueryState,
    source: Source,
    [query_octets, response_octets]: [usize; 2],
) -> Option<RrlAction> {
    let (Some(limit), Some(limiter)) = (&context.settings.rate_limit, context.limiter) else { return None };
    let is_proven = peer.transport != Transport::Udp || state.cookie.status == CookieStatus::Valid;
    if is_proven || limit.is_free(query_octets, response_octets) {
        return None;
    }
    let verdict = limiter.take(limit, peer.address.ip(), source, peer.now);
    if verdict == RrlAction::Send {
        return None;
    }
    let what = match limit.enforced {
        _ if limit.exempts(peer.address.ip()) => Limited::Exempt,
        false => Limited::Watched,
        true => return Some(verdict),
    };
    context.stats.count_limited(what);
    None
}

/// Applies the action to a response over the limit. A small response has no records, and TC instead: the client retries over a
/// stream. An error has no records anyway, and is unchanged except for its extended error.
#[cold]
fn hold_back(
    context: &Context<'_>,
    verdict: RrlAction,
    reply: &mut Reply,
    writer: &mut Writer<'_>,
    question_end: usize,
) -> Outcome {
    if verdict == RrlAction::Drop {
        context.stats.count_limited(Limited::Dropped);
        context.stats.count_drop(DropReason::RateLimit);
        return Outcome::Drop;
    }
    if reply.source == Source::ERROR {
        reply.ede = None;
        context.stats.count_limited(Limited::Error);
        return Outcome::Reply;
    }
    context.stats.count_limited(Limited::Truncated);
    writer.rewind(question_end);
    *reply = Reply { truncated: true, ..Reply::of(Rcode::NOERROR, None) };
    Outcome::Reply
}

/// A response without its records.
struct Reply {
    rcode: Rcode,
    ede: Option<ExtendedError>,
    authoritative: bool,
    truncated: bool,
    counts: [u16; 3],
    source: Source,
}

impl Reply {
    /// Returns a response without records and without data from a zone.
    fn of(rcode: Rcode, ede: Option<ExtendedError>) -> Self {
        Reply { rcode, ede, authoritative: false, truncated: false, counts: [0; 3], source: Source::ERROR }
    }
}

/// Writes the sections after the question. If they do not fit otherwise, they use all of the reserved `spare` octets.
#[inline]
fn reply(
    context: &Context<'_>,
    query: &[u8],
    peer: &Peer,
    state: &QueryState,
    zone: Option<&Zone>,
    writer: &mut Writer<'_>,
    spare: &mut usize,
) -> Reply {
    let (Disposition::Lookup, Some(question)) = (state.disposition, &state.query.question) else {
        return reply_without_lookup(context, query, state, writer);
    };
    let Some(zone) = zone else {
        return match context.snapshot.is_ready() {
            true => Reply::of(Rcode::REFUSED, Some(ExtendedError::NOT_AUTHORITATIVE)),
            false => Reply::of(Rcode::SERVFAIL, Some(ExtendedError::NOT_READY)),
        };
    };
    if let Some(why) = zone.why_unavailable() {
        return reply_unavailable(context, zone, why);
    }
    let start = writer.position();
    let dnssec = state.query.edns.is_some_and(|edns| edns.dnssec_ok);
    let ask = ZoneQuery { zone, qtype: question.qtype, dnssec, random: peer.random, now: peer.now };
    let mut message = Message::new(writer, question, zone);
    let mut answered = answer::answer(&ask, &state.qname, &mut message);
    let mut counts = message.counts;
    if *spare > 0 && !answered.is_ok_and(|verdict| !verdict.truncated) {
        writer.rewind(start);
        writer.release(std::mem::take(spare));
        (answered, counts) = answer_again(&ask, &state.qname, question, writer);
    }
    match answered {
        Ok(verdict) => {
            context.stats.count_answer(zone.number(), verdict.kind);
            let (authoritative, truncated) = (verdict.authoritative, verdict.truncated);
            let source = Source { kind: Some(verdict.kind), owner: verdict.source };
            // The settings are already in cache; the zone is read only if necessary.
            let ede = match verdict.rcode {
                Rcode::SERVFAIL if zone.follows() => Some(ExtendedError::NOT_READY),
                _ => (context.settings.stale && zone.follows()).then_some(ExtendedError::STALE_ANSWER),
            };
            Reply { rcode: verdict.rcode, ede, authoritative, truncated, counts, source }
        }
        Err(_) => {
            // Clients would treat a part of an answer as complete (RFC 2181 §9): with no records and TC, they retry over a
            // stream.
            writer.rewind(start);
            context.stats.count_answer(zone.number(), Kind::Data);
            let source = Source { kind: Some(Kind::Data), owner: zone.apex_hash() };
            Reply { truncated: true, authoritative: true, source, ..Reply::of(Rcode::NOERROR, None) }
        }
    }
}

/// Builds an answer that needs only the message.
#[cold]
fn reply_without_lookup(context: &Context<'_>, query: &[u8], state: &QueryState, writer: &mut Writer<'_>) -> Reply {
    match state.disposition {
        Disposition::Reply(rcode, ede) => Reply::of(rcode, ede),
        Disposition::HandOff(kind) => {
            let (rcode, ede) = kind.refusal();
            Reply::of(rcode, ede)
        }
        Disposition::Unverified(_) => Reply::of(Rcode::NOTAUTH, None),
        Disposition::Chaos => chaos(context, query, state, writer),
        // Dropped before, or without a question to look up.
        Disposition::Drop(_) | Disposition::Signed | Disposition::Lookup => Reply::of(Rcode::FORMERR, None),
    }
}

/// Builds the answer to a query whose zone cannot provide answers.
#[cold]
fn reply_unavailable(context: &Context<'_>, zone: &Zone, why: Unavailable) -> Reply {
    context.stats.count_answer(zone.number(), Kind::Failed);
    let ede = match why {
        Unavailable::NotLoaded => ExtendedError::NOT_READY,
        Unavailable::Expired => ExtendedError::INVALID_DATA,
    };
    Reply::of(Rcode::SERVFAIL, Some(ede))
}

/// Writes the answer again, in a larger message.
#[cold]
#[inline(never)]
fn answer_again(
    ask: &ZoneQuery<'_>,
    qname: &Qname,
    question: &Question,
    writer: &mut Writer<'_>,
) -> (Result<answer::AnswerOutcome, Full>, [u16; 3]) {
    let mut message = Message::new(writer, question, ask.zone);
    let answered = answer::answer(ask, qname, &mut message);
    (answered, message.counts)
}

/// Writes the TSIG record of a response that is not signed itself (RFC 8945 §5.3.2): the last record of the message.
#[cold]
fn put_tsig(query: &[u8], state: &QueryState, error: TsigError, writer: &mut Writer<'_>) -> Result<(), Full> {
    state.query.tsig.ok_or(Full)?.put_error(query, error, writer)
}

/// Returns the length of that record.
#[cold]
fn tsig_octets(query: &[u8], state: &QueryState) -> usize {
    state.query.tsig.map_or(0, |tsig| tsig.error_octets(query))
}

/// Writes the information about the server.
#[cold]
fn chaos(context: &Context<'_>, query: &[u8], state: &QueryState, writer: &mut Writer<'_>) -> Reply {
    let start = writer.position();
    let text = chaos::text(&state.query, query, context.settings);
    match text.map(|text| chaos::put(writer, text)) {
        Some(Ok(())) => {
            let source = Source { kind: Some(Kind::Data), owner: 0 };
            Reply { authoritative: true, counts: [1, 0, 0], source, ..Reply::of(Rcode::NOERROR, None) }
        }
        Some(Err(_)) => {
            writer.rewind(start);
            Reply { truncated: true, ..Reply::of(Rcode::NOERROR, None) }
        }
        None => Reply::of(Rcode::REFUSED, None),
    }
}
