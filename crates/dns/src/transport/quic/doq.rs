//! DNS over QUIC (RFC 9250): one query on each stream that a client opens.
//!
//! The task of a connection serves its streams: as separate tasks, each would wake QUIC for a single answer. `requests` limits
//! the memory of a client. A stream that the client cancels does not affect the others; any protocol error of RFC 9250 §4.3.3
//! ends the connection.
//!
//! An answer of many messages is sent on the stream of its query, one after another (RFC 9250 §4.2).

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::stream::{FuturesUnordered, StreamExt as _};
use quinn::{Connection, ConnectionError, RecvStream, SendStream, VarInt};
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_rustls::rustls::server::ServerSessionMemoryCache;
use tokio_rustls::rustls::{self, ServerConfig};
use tokio_util::sync::CancellationToken;

use super::super::requests::{Answer, Requests};
use super::super::stream::{CloseReason, Service};
use super::super::tls_base::{ALPN_DOQ, TlsBase};
use super::{SMALL_OCTETS, framing};
use crate::nameserver::Transport;
use crate::wire::header::{Header, Opcode};

/// The number of sessions that can be resumed with early data: some 3 MiB. A client whose session was evicted creates a new one.
const SESSIONS_MAX: usize = 8_192;

/// Returns the TLS configuration of DNS over QUIC. It accepts early data (0-RTT).
pub(in super::super) fn tls(base: &TlsBase) -> Result<ServerConfig, rustls::Error> {
    let mut config = base.server_config_for_quic(&[ALPN_DOQ])?;
    // RFC 9001 §4.6.1: the only value other than 0 that QUIC allows.
    config.max_early_data_size = u32::MAX;
    // rustls accepts early data only with stored sessions, each of them once. This prevents most replays; tickets cannot.
    config.session_storage = ServerSessionMemoryCache::new(SESSIONS_MAX);
    Ok(config)
}

/// Codes with which connections and streams end (RFC 9250 §4.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum Code {
    /// DOQ_NO_ERROR.
    NoError = 0,
    /// DOQ_INTERNAL_ERROR.
    InternalError = 1,
    /// DOQ_PROTOCOL_ERROR.
    ProtocolError = 2,
    /// DOQ_REQUEST_CANCELLED.
    RequestCancelled = 3,
    /// DOQ_EXCESSIVE_LOAD.
    ExcessiveLoad = 4,
}

impl From<Code> for VarInt {
    fn from(code: Code) -> VarInt {
        VarInt::from_u32(code as u32)
    }
}

/// The number of round trips, and the maximum time, that a connection waits for its last answers to arrive before it closes.
const LINGER_ROUND_TRIPS: u32 = 2;
const LINGER_MAX: Duration = Duration::from_millis(500);

struct Doq {
    connection: Connection,
    requests: Requests,
    handshaken: CancellationToken,
    /// The permit of the only query that may be larger than [`SMALL_OCTETS`].
    large: Semaphore,
}

/// The reason why a stream got no answer.
enum Unanswered {
    /// The client cancelled the request, or the connection failed, which the acceptor of its streams detects.
    Cancelled,
    /// The connection ends.
    Closes(CloseReason),
}

/// Serves one connection to its end. `handshaken` is cancelled when the handshake is complete: data before that may be a replay
/// (0-RTT).
pub(super) async fn serve(connection: Connection, handshaken: CancellationToken, service: Arc<Service>) {
    let requests = Requests::new(service, Transport::Quic);
    let doq = Doq { connection, requests, handshaken, large: Semaphore::new(1) };
    let mut streams = FuturesUnordered::new();
    let mut end = std::pin::pin!(doq.requests.end());
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut end => break ended,
            Some(()) = streams.next() => {}
            stream = doq.connection.accept_bi() => match stream {
                Ok((send, receive)) => streams.push(doq.stream(send, receive)),
                Err(error) => break of_error(&error),
            },
        }
    };
    if matches!(ended, CloseReason::Idle | CloseReason::Old | CloseReason::Stopped) {
        drop(timeout(doq.requests.last_wait(), streams.by_ref().count()).await);
        tokio::time::sleep((doq.connection.rtt() * LINGER_ROUND_TRIPS).min(LINGER_MAX)).await;
    }
    doq.connection.close(code(ended).into(), b"");
    doq.requests.service.count_end(ended);
}

/// Returns the reason why a connection ended.
fn of_error(error: &ConnectionError) -> CloseReason {
    match error {
        ConnectionError::ApplicationClosed(_) | ConnectionError::ConnectionClosed(_) => CloseReason::ByClient,
        ConnectionError::TimedOut => CloseReason::Idle,
        // The side that closed it has already counted it.
        ConnectionError::LocallyClosed => CloseReason::ByClient,
        _ => CloseReason::Broken,
    }
}

/// Returns the code with which a connection closes.
fn code(ended: CloseReason) -> Code {
    match ended {
        CloseReason::ByClient | CloseReason::Idle | CloseReason::Old | CloseReason::Stopped => Code::NoError,
        CloseReason::Malformed => Code::ProtocolError,
        CloseReason::SlowRead | CloseReason::SlowWrite | CloseReason::Cancelled => Code::ExcessiveLoad,
        CloseReason::Broken => Code::InternalError,
    }
}

impl Doq {
    /// Serves one stream.
    async fn stream(&self, mut send: SendStream, mut receive: RecvStream) {
        match self.answer(&mut send, &mut receive).await {
            Ok(()) => self.requests.answered(),
            Err(Unanswered::Closes(reason)) => {
                // Otherwise, the drop of the stream would end it like a complete answer.
                drop(send.reset(code(reason).into()));
                self.requests.fail(reason);
            }
            Err(Unanswered::Cancelled) => {
                // The stream may have ended in both directions already.
                drop(send.reset(Code::RequestCancelled.into()));
                self.requests.cancelled();
            }
        }
    }

    async fn answer(&self, send: &mut SendStream, receive: &mut RecvStream) -> Result<(), Unanswered> {
        let limits = &self.requests.service.limits;
        let began = self.requests.begin();
        let Ok(octets) = timeout(limits.read, self.read(receive)).await else {
            return Err(Unanswered::Closes(CloseReason::SlowRead));
        };
        let octets = octets?;
        let query = framing::query(&octets).map_err(|_| Unanswered::Closes(CloseReason::Malformed))?;
        let is_query = Header::read(query).is_some_and(|header| header.opcode() == Opcode::QUERY);
        if !is_query && receive.is_0rtt() {
            // RFC 9250 §4.5: "Servers MUST NOT execute non-replayable transactions received in 0-RTT data"; its first option is
            // to wait for the handshake.
            tokio::select! {
                () = self.handshaken.cancelled() => {}
                _ = self.connection.closed() => return Err(Unanswered::Cancelled),
            }
        }
        let peer = self.connection.remote_address();
        let (mut answer, mut further) =
            self.requests.answer(query, peer, began, true).await.map_err(Unanswered::Closes)?;
        drop(octets);
        while let Some(more) = further {
            self.write(send, answer, false).await?;
            (answer, further) = self.requests.next(more).await.map_err(Unanswered::Closes)?;
        }
        self.write(send, answer, true).await?;
        self.requests.record(began);
        Ok(())
    }

    /// Writes one message, and the end of the stream if it is the last.
    async fn write(&self, send: &mut SendStream, answer: Answer, is_last: bool) -> Result<(), Unanswered> {
        let is_large = answer.octets.len() > SMALL_OCTETS;
        let write = async {
            send.write_chunk(answer.octets).await.map_err(|_| Unanswered::Cancelled)?;
            if !is_last {
                return Ok(());
            }
            drop(send.finish());
            // A small answer may be lost if the connection ends at that moment. A large answer, or one during a stop of the
            // server, counts until the client has received it.
            if is_large || self.requests.service.last_moment().is_some() {
                drop(send.stopped().await);
            }
            Ok(())
        };
        let written = timeout(self.requests.service.limits.write, write).await;
        written.unwrap_or(Err(Unanswered::Closes(CloseReason::SlowWrite)))
    }

    /// Reads a stream to its end. Most come whole in one packet.
    async fn read(&self, receive: &mut RecvStream) -> Result<Bytes, Unanswered> {
        let Some(first) = self.chunk(receive).await? else { return Ok(Bytes::new()) };
        self.check(&first)?;
        let Some(second) = self.chunk(receive).await? else { return Ok(first) };
        let mut octets = BytesMut::from(first);
        let mut next = Some(second);
        let mut large = None;
        while let Some(chunk) = next {
            if octets.len() + chunk.len() > SMALL_OCTETS && large.is_none() {
                large = self.large.acquire().await.ok();
            }
            octets.extend_from_slice(&chunk);
            self.check(&octets)?;
            next = self.chunk(receive).await?;
        }
        Ok(octets.freeze())
    }

    async fn chunk(&self, receive: &mut RecvStream) -> Result<Option<Bytes>, Unanswered> {
        match receive.read_chunk(usize::MAX, true).await {
            Ok(chunk) => Ok(chunk.map(|chunk| chunk.bytes)),
            Err(_) => Err(Unanswered::Cancelled),
        }
    }

    /// Returns whether the octets so far can be a query's.
    fn check(&self, octets: &[u8]) -> Result<(), Unanswered> {
        framing::expected_octets(octets).map(drop).map_err(|_| Unanswered::Closes(CloseReason::Malformed))
    }
}
