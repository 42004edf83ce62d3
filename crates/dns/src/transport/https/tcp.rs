//! HTTP/2 and HTTP/1.1 over TLS. A client selects HTTP/2 by ALPN (RFC 9113 §3.2). HTTP/1.1 is what clients without ALPN speak; it comes
//! with `hyper`, which limits what it reads, and answers one request at a time.

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::ServerConfig;

use super::super::buffered::Buffered;
use super::super::requests::{Answer, Requests};
use super::super::stream::{Answerer, CloseReason, Framing, Service, WriteProgress};
use super::super::tls_base::ALPN_H2;
use super::super::{tcp, tls};
use super::http2::frame::response_octets;
use super::http2::{Batch, Http2, Progress, QueryHandler};
use super::{Aborted, Body, HEAD_OCTETS_MAX, Site, Unanswered};
use crate::nameserver::Transport;

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
    if stream.get_ref().1.alpn_protocol() == Some(ALPN_H2) {
        let framing = Box::new(Http2::new(site, service.limits.unsent_octets_max));
        service.serve(stream, peer, Transport::Https, framing).await;
    } else {
        let requests = Arc::new(Requests::new(Arc::clone(&service), Transport::Https));
        // On the heap, so that connections of HTTP/2 are not as large.
        let ended = Box::pin(serve_http1(stream, peer, requests, site)).await;
        service.count_end(ended);
    }
}

impl Framing for Box<Http2> {
    fn missing(&self, input: &[u8]) -> usize {
        Http2::missing(self, input)
    }

    fn answer(&mut self, input: &[u8], output: &mut Vec<u8>, answerer: &mut Answerer<'_>) -> (usize, WriteProgress) {
        let (moment, second) = (answerer.moment, answerer.second);
        let (octets, progress) = self.receive(input, Batch { output, handler: answerer, moment, second });
        let progress = match progress {
            Progress::All => WriteProgress::All,
            Progress::Some => WriteProgress::Some,
            Progress::Malformed => WriteProgress::UpToFault(CloseReason::Malformed),
            Progress::Excessive => WriteProgress::UpToFault(CloseReason::Cancelled),
        };
        (octets, progress)
    }

    fn waits(&self) -> (Option<Instant>, Option<Instant>) {
        Http2::waits(self)
    }

    /// Each response is written to TLS alone, so that it is in records of its own: `dnsperf` 2.10 loses responses that share a record.
    fn write_octets(output: &[u8]) -> usize {
        response_octets(output)
    }

    fn announce_end(&self, output: &mut Vec<u8>) -> bool {
        Http2::announce_end(self, output)
    }

    fn end(&mut self, output: &mut Vec<u8>) {
        Http2::end(self, output);
    }
}

impl QueryHandler for Answerer<'_> {
    fn answer(&mut self, query: &[u8]) -> Option<&[u8]> {
        Answerer::answer(self, query)
    }
}

async fn serve_http1<S>(stream: S, peer: SocketAddr, requests: Arc<Requests>, site: Arc<Site>) -> CloseReason
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let answering = {
        let requests = Arc::clone(&requests);
        service_fn(move |request| answer(Arc::clone(&requests), Arc::clone(&site), peer, request))
    };
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(requests.service.limits.idle);
    builder.max_headers(FIELDS_MAX).max_buf_size(HEAD_OCTETS_MAX as usize).half_close(true);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), answering));
    let ended = tokio::select! {
        biased;
        ended = requests.end() => ended,
        served = &mut connection => {
            return if served.is_ok() { CloseReason::ByClient } else { CloseReason::Broken };
        }
    };
    if matches!(ended, CloseReason::Idle | CloseReason::Old | CloseReason::Stopped) {
        connection.as_mut().graceful_shutdown();
        drop(timeout(requests.last_wait(), connection).await);
    }
    ended
}

async fn answer(
    requests: Arc<Requests>,
    site: Arc<Site>,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Aborted> {
    match site.respond(&requests, peer, request).await {
        Ok(response) => {
            requests.answered();
            Ok(response.map(|answer| {
                answer.map_or_else(Full::default, |Answer { octets, permit }| {
                    // The next request of the connection follows the response.
                    drop(permit);
                    Full::new(octets)
                })
            }))
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

impl Body for Incoming {
    async fn chunk(&mut self) -> Option<Result<Bytes, Aborted>> {
        loop {
            match self.frame().await?.map(Frame::into_data) {
                Ok(Ok(octets)) => return Some(Ok(octets)),
                // Trailers.
                Ok(Err(_)) => {}
                Err(_) => return Some(Err(Aborted)),
            }
        }
    }
}
