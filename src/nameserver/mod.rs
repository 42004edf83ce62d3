//! Answering: from the octets of a query to the octets of its response.

pub mod settings;
pub mod stats;

use std::net::SocketAddr;

pub use settings::Settings;
pub use stats::Stats;

use crate::zone::db::Snapshot;

/// How a query came.
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

/// Who asks, how, and what the moment adds: time and chance come from the caller.
#[derive(Debug, Clone, Copy)]
pub struct Peer {
    /// Source address of the query.
    pub address: SocketAddr,
    /// How it came.
    pub transport: Transport,
    /// Seconds since the epoch, learned once a batch.
    pub now: u64,
    /// A random number of this query's own; it decides the rotation.
    pub random: u32,
}

/// What to do with the response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Send it: `Response::octets()`.
    Reply,
    /// Send nothing.
    Drop,
}

/// A response being built in a buffer of the caller.
pub struct Response<'a> {
    octets: &'a mut [u8],
    length: usize,
}

impl<'a> Response<'a> {
    /// An empty response that may grow to the size of `octets`: at least 512, 65,535 for a stream.
    pub fn new(octets: &'a mut [u8]) -> Self {
        Response { octets, length: 0 }
    }

    /// What was built: empty unless the outcome is [`Outcome::Reply`].
    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.length]
    }
}

/// What a query is answered from, the same for a whole batch.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The zones of this moment.
    pub snapshot: &'a Snapshot,
    /// What the operator set.
    pub settings: &'a Settings,
    /// The counters of the worker that asks; only that worker writes them.
    pub stats: &'a Stats,
}

/// One query of a batch and where its response goes.
pub struct Exchange<'a> {
    /// The octets of the query.
    pub query: &'a [u8],
    /// Who asks.
    pub peer: Peer,
    /// Where the response is built.
    pub response: Response<'a>,
    /// What to do with it, once the batch is answered.
    pub outcome: Outcome,
}

impl<'a> Exchange<'a> {
    /// A query yet to be answered, with the buffer of its response.
    pub fn new(query: &'a [u8], peer: Peer, buffer: &'a mut [u8]) -> Self {
        Exchange { query, peer, response: Response::new(buffer), outcome: Outcome::Drop }
    }
}

/// Working memory of [`respond_batch`], made once by each worker: some 100 KiB.
pub struct Scratch {}

impl Scratch {
    /// Working memory for batches.
    pub fn new() -> Self {
        Scratch {}
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Answers one query.
pub fn respond(_context: &Context<'_>, _query: &[u8], _peer: &Peer, _response: &mut Response<'_>) -> Outcome {
    Outcome::Drop
}

/// Answers a batch of any length; its parts of [`BATCH_MAX`] overlap their waits for memory.
pub fn respond_batch(context: &Context<'_>, _scratch: &mut Scratch, exchanges: &mut [Exchange<'_>]) {
    for exchange in exchanges {
        exchange.outcome = respond(context, exchange.query, &exchange.peer, &mut exchange.response);
    }
}

/// How many queries are answered side by side at most.
pub const BATCH_MAX: usize = 64;
