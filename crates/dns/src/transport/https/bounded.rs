//! Limits the octets that the QUIC streams of a connection hold for `h3`: received octets count until their stream ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use h3::error::Code;
use h3::quic::{
    BidiStream, Connection, ConnectionErrorIncoming, OpenStreams, RecvStream, SendStream, StreamErrorIncoming,
    StreamId, WriteBuf,
};

/// The maximum total size of the unanswered requests of a connection: all that can be open at once with some 3 KiB each, or
/// several large ones.
const REQUEST_OCTETS_MAX: usize = 512 * 1024;

/// The maximum amount of data on each other stream during the lifetime of a connection: settings, and priorities of thousands of
/// requests.
const CONTROL_OCTETS_MAX: usize = 256 * 1024;

/// A connection, or an opener of its streams, with this limit.
pub(super) struct Bounded<C = h3_quinn::Connection> {
    connection: C,
    requests: Arc<AtomicUsize>,
}

impl Bounded {
    pub(super) fn new(connection: h3_quinn::Connection) -> Self {
        Bounded { connection, requests: Arc::default() }
    }
}

/// A stream that counts the octets that it receives.
pub(super) struct Receive<S> {
    stream: S,
    held: Held,
}

/// The received octets of one stream.
struct Held {
    octets: usize,
    total: Arc<AtomicUsize>,
    max: usize,
}

impl Held {
    /// Adds octets to the count; returns false if they exceed the limit.
    fn add(&mut self, octets: usize) -> bool {
        self.octets += octets;
        self.total.fetch_add(octets, Ordering::Relaxed) + octets <= self.max
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.total.fetch_sub(self.octets, Ordering::Relaxed);
    }
}

impl<C> Bounded<C> {
    fn request<S>(&self, stream: S) -> Receive<S> {
        Receive { stream, held: Held { octets: 0, total: Arc::clone(&self.requests), max: REQUEST_OCTETS_MAX } }
    }
}

impl<B: Buf> Connection<B> for Bounded {
    type RecvStream = Receive<h3_quinn::RecvStream>;
    type OpenStreams = Bounded<h3_quinn::OpenStreams>;

    fn poll_accept_recv(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::RecvStream, ConnectionErrorIncoming>> {
        let accepted = Connection::<B>::poll_accept_recv(&mut self.connection, context);
        accepted.map_ok(|stream| Receive {
            stream,
            held: Held { octets: 0, total: Arc::default(), max: CONTROL_OCTETS_MAX },
        })
    }

    fn poll_accept_bidi(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Self::BidiStream, ConnectionErrorIncoming>> {
        self.connection.poll_accept_bidi(context).map_ok(|stream| self.request(stream))
    }

    fn opener(&self) -> Self::OpenStreams {
        let connection = Connection::<B>::opener(&self.connection);
        Bounded { connection, requests: Arc::clone(&self.requests) }
    }
}

impl<B, C> OpenStreams<B> for Bounded<C>
where
    B: Buf,
    C: OpenStreams<B, BidiStream = h3_quinn::BidiStream<B>, SendStream = h3_quinn::SendStream<B>>,
{
    type BidiStream = Receive<h3_quinn::BidiStream<B>>;
    type SendStream = h3_quinn::SendStream<B>;

    fn poll_open_bidi(&mut self, context: &mut Context<'_>) -> Poll<Result<Self::BidiStream, StreamErrorIncoming>> {
        self.connection.poll_open_bidi(context).map_ok(|stream| self.request(stream))
    }

    fn poll_open_send(&mut self, context: &mut Context<'_>) -> Poll<Result<Self::SendStream, StreamErrorIncoming>> {
        self.connection.poll_open_send(context)
    }

    fn close(&mut self, code: Code, reason: &[u8]) {
        self.connection.close(code, reason);
    }
}

impl<S: RecvStream<Buf = Bytes>> RecvStream for Receive<S> {
    type Buf = Bytes;

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        let Poll::Ready(received) = self.stream.poll_data(context)? else { return Poll::Pending };
        if self.held.add(received.as_ref().map_or(0, Bytes::len)) {
            return Poll::Ready(Ok(received));
        }
        let error_code = Code::H3_EXCESSIVE_LOAD.value();
        self.stream.stop_sending(error_code);
        Poll::Ready(Err(StreamErrorIncoming::StreamTerminated { error_code }))
    }

    fn stop_sending(&mut self, code: u64) {
        self.stream.stop_sending(code);
    }

    fn recv_id(&self) -> StreamId {
        self.stream.recv_id()
    }
}

impl<B: Buf> BidiStream<B> for Receive<h3_quinn::BidiStream<B>> {
    type SendStream = h3_quinn::SendStream<B>;
    type RecvStream = Receive<h3_quinn::RecvStream>;

    fn split(self) -> (Self::SendStream, Self::RecvStream) {
        let (send, stream) = self.stream.split();
        (send, Receive { stream, held: self.held })
    }
}

impl<B: Buf, S: SendStream<B>> SendStream<B> for Receive<S> {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.stream.poll_ready(context)
    }

    fn send_data<T: Into<WriteBuf<B>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.stream.send_data(data)
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.stream.poll_finish(context)
    }

    fn reset(&mut self, code: u64) {
        self.stream.reset(code);
    }

    fn send_id(&self) -> StreamId {
        self.stream.send_id()
    }
}
