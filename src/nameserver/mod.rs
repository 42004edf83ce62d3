//! Answering: from the octets of a query to the octets of its response.

use std::net::SocketAddr;

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
    /// An empty response that may grow to the size of `octets`.
    pub fn new(octets: &'a mut [u8]) -> Self {
        Response { octets, length: 0 }
    }

    /// What was built.
    pub fn octets(&self) -> &[u8] {
        &self.octets[..self.length]
    }
}

/// Answers one query from `snapshot`.
pub fn respond(_snapshot: &Snapshot, _query: &[u8], _peer: &Peer, _response: &mut Response<'_>) -> Outcome {
    Outcome::Drop
}
