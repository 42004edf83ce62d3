//! HTTP/3 (RFC 9114), by `h3` on QUIC.
//!
//! `h3` 0.0.8 buffers a frame until it is complete, without a limit (`frame.rs`, `decode`). The total buffer of its streams is
//! therefore limited below it: [`super::bounded`].

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::{Buf, Bytes};
use h3::error::{Code, StreamError};
use h3::server::{RequestResolver, RequestStream};
use hyper::Response;
use hyper::header::{DATE, HeaderValue};
use quinn::VarInt;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::super::quic::Opened;
use super::super::requests::Requests;
use super::super::stream::CloseReason;
use super::bounded::{self, Bounded};
use super::{Aborted, Body, HEAD_OCTETS_MAX, Site, Unanswered};
use crate::nameserver::Transport;

/// The number of unidirectional streams that a client may open: three, and some without a meaning (RFC 9114 §6.2).
pub(in super::super) const UNI_STREAMS_MAX: u32 = 8;

/// The time that a closing connection waits for its last answers to arrive.
const LINGER: Duration = Duration::from_millis(100);

type Resolver = RequestResolver<Bounded, Bytes>;

/// Serves one connection to its end.
pub(in super::super) async fn serve(opened: Opened, site: Arc<Site>) {
    let Opened { connection, handshaken, service } = opened;
    tokio::select! {
        () = handshaken.cancelled() => {}
        _ = connection.closed() => return,
    }
    let requests = Arc::new(Requests::new(Arc::clone(&service), Transport::Https));
    let mut builder = h3::server::builder();
    builder.max_field_section_size(HEAD_OCTETS_MAX.into()).send_grease(false);
    let bounded = Bounded::new(h3_quinn::Connection::new(connection.clone()));
    let Ok(mut http) = builder.build::<_, Bytes>(bounded).await else {
        return service.count_end(CloseReason::Broken);
    };
    let streams = TaskTracker::new();
    let mut end = std::pin::pin!(requests.end());
    let ended = loop {
        tokio::select! {
            biased;
            ended = &mut end => break ended,
            request = http.accept() => match request {
                Ok(Some(resolver)) => {
                    let peer = connection.remote_address();
                    streams.spawn(stream(Arc::clone(&requests), Arc::clone(&site), peer, resolver));
                }
                Ok(None) => break CloseReason::ByClient,
                Err(error) if error.is_h3_no_error() => break CloseReason::ByClient,
                Err(_) => break CloseReason::Broken,
            },
        }
    };
    streams.close();
    if matches!(ended, CloseReason::Idle | CloseReason::Old | CloseReason::Stopped) {
        // The client is notified, and its earlier requests are answered.
        drop(http.shutdown(0).await);
        let driven = async { while let Ok(Some(_)) = http.accept().await {} };
        let finished = async { tokio::join!(streams.wait(), tokio::time::sleep(LINGER)) };
        let last = async {
            tokio::select! {
                _ = finished => {}
                () = driven => {}
            }
        };
        drop(timeout(requests.last_wait(), last).await);
    }
    connection.close(code(ended), b"");
    service.count_end(ended);
}

/// Returns the code with which a connection closes (RFC 9114 §8.1).
fn code(ended: CloseReason) -> VarInt {
    let code = match ended {
        CloseReason::ByClient | CloseReason::Idle | CloseReason::Old | CloseReason::Stopped => Code::H3_NO_ERROR,
        CloseReason::Malformed => Code::H3_GENERAL_PROTOCOL_ERROR,
        CloseReason::SlowRead | CloseReason::SlowWrite | CloseReason::Cancelled => Code::H3_EXCESSIVE_LOAD,
        CloseReason::Broken => Code::H3_INTERNAL_ERROR,
    };
    VarInt::from_u64(code.value()).unwrap_or(VarInt::MAX)
}

/// Serves one request.
async fn stream(requests: Arc<Requests>, site: Arc<Site>, peer: SocketAddr, resolver: Resolver) {
    match answer(&requests, &site, peer, resolver).await {
        Ok(()) => requests.answered(),
        Err(Unanswered::Aborted) => requests.cancelled(),
        Err(Unanswered::Closes(reason)) => requests.fail(reason),
    }
}

async fn answer(requests: &Requests, site: &Site, peer: SocketAddr, resolver: Resolver) -> Result<(), Unanswered> {
    let limits = &requests.service.limits;
    let resolved = timeout(limits.read, resolver.resolve_request()).await;
    let resolved = resolved.map_err(|_| Unanswered::Closes(CloseReason::SlowRead))?;
    let (request, stream) = resolved.map_err(|error| match error {
        // By `bounded`: all heads together are too large.
        StreamError::RemoteTerminate { code: Code::H3_EXCESSIVE_LOAD, .. } => {
            Unanswered::Closes(CloseReason::Cancelled)
        }
        _ => Unanswered::Aborted,
    })?;
    let (mut send, receive) = stream.split();
    let response = site.respond(requests, peer, request.map(|()| receive)).await?;
    let (mut head, answer) = response.into_parts();
    // RFC 9110 §6.6.1: a server that has a clock sends it. Below HTTP/2, hyper does.
    if let Ok(date) = HeaderValue::try_from(httpdate::fmt_http_date(SystemTime::now())) {
        head.headers.insert(DATE, date);
    }
    let write = async {
        send.send_response(Response::from_parts(head, ())).await?;
        if let Some(answer) = answer {
            send.send_data(answer.octets).await?;
        }
        send.finish().await
    };
    match timeout(limits.write, write).await {
        Ok(written) => written.map_err(|_| Unanswered::Aborted),
        Err(_) => Err(Unanswered::Closes(CloseReason::SlowWrite)),
    }
}

impl Body for RequestStream<bounded::Receive<h3_quinn::RecvStream>, Bytes> {
    async fn chunk(&mut self) -> Option<Result<Bytes, Aborted>> {
        match self.recv_data().await {
            Ok(octets) => octets.map(|mut octets| Ok(octets.copy_to_bytes(octets.remaining()))),
            Err(_) => Some(Err(Aborted)),
        }
    }
}
