//! HTTP/2 and HTTP/1.1 over TLS. Clients without ALPN use HTTP/1.1, which `hyper` includes.
//!
//! `hyper` limits its reads. Its buffered answers are limited here: the share of an answer in the connection's unsent octets is
//! released when the socket has accepted the data, not when HTTP has.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use tokio_rustls::rustls::ServerConfig;

use super::super::buffered::Buffered;
use super::super::requests::{Answer, REQUESTS_MAX, Requests};
use super::super::stream::{CloseReason, Service};
use super::super::{tcp, tls};
use super::streams::{Accepted, Corked, WithStreams};
use super::{Aborted, Body, HEAD_OCTETS_MAX, Site, Unanswered};
use crate::nameserver::Transport;

/// The amount that an HTTP/2 stream may receive before it is read: a query is no larger, except one at a time.
const STREAM_OCTETS: u32 = 4 * 1024;

/// The number of octets of an answer that are passed to HTTP at a time.
const FRAME_OCTETS: usize = 16 * 1024;

/// The maximum number of header fields of an HTTP/1.1 request.
const FIELDS_MAX: usize = 64;

/// Serves a connection, if there is room for it, to its end.
pub(in super::super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    service: Arc<Service>,
    config: Arc<ServerConfig>,
    site: Arc<Site>,
) {
    let Some(_permit) = tcp::admit(&stream, peer, &service) else { return };
    let Some(stream) = tls::handshake(Buffered::new(stream), &service, config).await else { return };
    let ended = drive(stream, peer, Arc::new(Requests::new(Arc::clone(&service), Transport::Https)), site).await;
    service.count_end(ended);
}

async fn drive<S>(stream: S, peer: SocketAddr, requests: Arc<Requests>, site: Arc<Site>) -> CloseReason
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (written, accepted, corked) = (Arc::new(Written::default()), Accepted::default(), Corked::default());
    let socket = TokioIo::new(Socket { stream, written: Arc::clone(&written), corked: corked.clone() });
    let answering = {
        let requests = Arc::clone(&requests);
        service_fn(move |request| answer(Arc::clone(&requests), Arc::clone(&site), Arc::clone(&written), peer, request))
    };
    let builder = builder(&requests.service, accepted.clone());
    let connection = pin!(builder.serve_connection(socket, answering));
    let mut connection = WithStreams::new(connection, accepted, corked);
    let ended = tokio::select! {
        biased;
        ended = requests.end() => ended,
        served = poll_fn(|context| connection.poll(context)) => {
            return if served.is_ok() { CloseReason::ByClient } else { CloseReason::Broken };
        }
    };
    if matches!(ended, CloseReason::Idle | CloseReason::Old | CloseReason::Stopped) {
        connection.connection.as_mut().graceful_shutdown();
        drop(timeout(requests.last_wait(), poll_fn(|context| connection.poll(context))).await);
    }
    ended
}

/// Returns the configuration of `hyper`. Its other limits, such as that of streams that were reset and not yet accepted, have
/// their defaults.
fn builder(service: &Service, accepted: Accepted) -> auto::Builder<Accepted> {
    let mut builder = auto::Builder::new(accepted);
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(service.limits.idle);
    http1.max_headers(FIELDS_MAX).max_buf_size(HEAD_OCTETS_MAX as usize).half_close(true);
    let mut http2 = builder.http2();
    http2.max_concurrent_streams(REQUESTS_MAX).max_header_list_size(HEAD_OCTETS_MAX);
    http2.initial_stream_window_size(STREAM_OCTETS).max_send_buf_size(FRAME_OCTETS);
    builder
}

async fn answer(
    requests: Arc<Requests>,
    site: Arc<Site>,
    written: Arc<Written>,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response<AnswerBody>, Aborted> {
    // If it is dropped before its end, the client has cancelled it.
    let mut cancelled = Cancelled(Some(&requests));
    let response = site.respond(&requests, peer, request).await;
    cancelled.0 = None;
    match response {
        Ok(response) => {
            requests.answered();
            Ok(response.map(|answer| AnswerBody { answer, at: 0, written }))
        }
        Err(Unanswered::Closes(reason)) => {
            requests.fail(reason);
            Err(Aborted)
        }
        Err(Unanswered::Aborted) => {
            requests.cancelled();
            Err(Aborted)
        }
    }
}

struct Cancelled<'r>(Option<&'r Requests>);

impl Drop for Cancelled<'_> {
    fn drop(&mut self) {
        if let Some(requests) = self.0 {
            requests.cancelled();
        }
    }
}

impl Body for Incoming {
    async fn chunk(&mut self) -> Option<Result<Bytes, Aborted>> {
        loop {
            let frame = poll_fn(|context| Pin::new(&mut *self).poll_frame(context)).await?;
            match frame.map(Frame::into_data) {
                Ok(Ok(octets)) => return Some(Ok(octets)),
                // Trailers.
                Ok(Err(_)) => {}
                Err(_) => return Some(Err(Aborted)),
            }
        }
    }
}

/// The body of a response.
struct AnswerBody {
    answer: Option<Answer>,
    at: usize,
    written: Arc<Written>,
}

impl hyper::body::Body for AnswerBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Some(answer) = &self.answer else { return Poll::Ready(None) };
        let (at, end) = (self.at, answer.octets.len().min(self.at + FRAME_OCTETS));
        let octets = answer.octets.slice(at..end);
        self.at = end;
        Poll::Ready((at < end).then(|| Ok(Frame::data(octets))))
    }

    fn is_end_stream(&self) -> bool {
        self.answer.as_ref().is_none_or(|answer| self.at >= answer.octets.len())
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.answer.as_ref().map_or(0, |answer| (answer.octets.len() - self.at) as u64))
    }
}

impl Drop for AnswerBody {
    fn drop(&mut self) {
        if let Some(answer) = self.answer.take() {
            self.written.add(answer.permit);
        }
    }
}

/// The shares of answers that HTTP has accepted and the socket may not have.
#[derive(Default)]
struct Written(Mutex<Option<OwnedSemaphorePermit>>);

impl Written {
    fn add(&self, permit: OwnedSemaphorePermit) {
        let mut shares = self.0.lock();
        match &mut *shares {
            Some(shares) => shares.merge(permit),
            None => *shares = Some(permit),
        }
    }

    fn give_back(&self) {
        drop(self.0.lock().take());
    }
}

/// A socket that releases the shares when it has accepted all data.
struct Socket<S> {
    stream: S,
    written: Arc<Written>,
    corked: Corked,
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, octets)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.corked.is_set() {
            return Poll::Ready(Ok(()));
        }
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            self.written.give_back();
        }
        flushed
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
