//! Connections of HTTP/2 and HTTP/1.1 over TLS. The first octets of a client show the version.
//!
//! `hyper` and `h2` limit what they read, and end connections for frames that cost the server more than the client:
//!
//! - bodies: by windows, and a budget of empty and small frames (CVE-2019-9518);
//! - heads: by their size, and the number of CONTINUATION frames (VU#421644);
//! - streams that are reset before they are accepted (CVE-2023-44487), or by an error (CVE-2025-8671): by their number;
//! - PING and SETTINGS (CVE-2019-9512, CVE-2019-9515): they read no further while an acknowledgment waits.
//!
//! [`Exchanges`] and [`Requests`] limit the memory and the time of accepted requests and of their answers.

use std::error::Error;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::ServerConfig;

use super::super::buffered::{Buffered, Cork};
use super::super::requests::{REQUESTS_MAX, Requests};
use super::super::stream::{CloseReason, Limits, Service};
use super::super::worker::MESSAGE_OCTETS_MAX;
use super::super::{tcp, tls};
use super::exchange::{Exchanges, QUERY_OCTETS_MAX};
use super::request::TemplatePath;
use super::streams::{Accepted, WithStreams};
use crate::nameserver::Transport;

/// The maximum size of the head of a request in octets, measured as in RFC 9113 §6.5.2.
const HEAD_OCTETS_MAX: u32 = 16 * 1024;

/// The maximum number of header fields of an HTTP/1.1 request.
const FIELDS_MAX: usize = 64;

/// The window of each request: one octet more than a query has at most, so that a larger one is noticed.
const STREAM_OCTETS: u32 = 1 + MESSAGE_OCTETS_MAX as u32;

/// The time in which an idle connection is closed with GOAWAY and close_notify.
const LINGER: Duration = Duration::from_millis(500);

/// Serves a connection, if there is room for it, to its end.
pub(in super::super) async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    service: Arc<Service>,
    config: Arc<ServerConfig>,
    template: Arc<TemplatePath>,
) {
    let Some(_permit) = tcp::admit(&stream, peer, &service) else { return };
    let stream = Buffered::new(stream);
    let cork = stream.cork();
    let Some(stream) = tls::handshake(stream, &service, config).await else { return };
    let requests = Requests::new(Arc::clone(&service), Transport::Https);
    let ended = drive(stream, cork, Arc::new(Exchanges::new(requests, template, peer))).await;
    service.count_end(ended);
}

async fn drive<S>(stream: S, cork: Cork, exchanges: Arc<Exchanges>) -> CloseReason
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let requests = &exchanges.requests;
    let accepted = Accepted::default();
    let builder = builder(&requests.service.limits, accepted.clone());
    let answering = {
        let exchanges = Arc::clone(&exchanges);
        service_fn(move |request| Arc::clone(&exchanges).answer(request))
    };
    let connection = pin!(builder.serve_connection(TokioIo::new(stream), answering));
    let mut connection = WithStreams::new(connection, accepted, cork);
    let ended = tokio::select! {
        biased;
        ended = requests.end() => ended,
        served = poll_fn(|context| connection.poll(context)) => {
            return served.map_or_else(|error| of_error(&*error), |()| CloseReason::ByClient);
        }
    };
    let last_wait = match ended {
        CloseReason::Idle if !connection.has_streams() => LINGER,
        CloseReason::Idle | CloseReason::Old | CloseReason::Stopped => requests.last_wait(),
        _ => return ended,
    };
    connection.connection.as_mut().graceful_shutdown();
    drop(timeout(last_wait, poll_fn(|context| connection.poll(context))).await);
    ended
}

/// Returns the reason why a connection ended: an error of the socket, or otherwise of the protocol.
fn of_error(error: &(dyn Error + 'static)) -> CloseReason {
    let mut causes = std::iter::successors(Some(error), |&error| error.source());
    match causes.find_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind) {
        // Without close_notify. Requests have an end, so a truncated one is detected.
        Some(io::ErrorKind::UnexpectedEof) => CloseReason::ByClient,
        Some(_) => CloseReason::Broken,
        None => CloseReason::Malformed,
    }
}

/// Returns the configuration of `hyper`. Limits that are not set here have their defaults.
fn builder(limits: &Limits, accepted: Accepted) -> auto::Builder<Accepted> {
    let mut builder = auto::Builder::new(accepted);
    let mut http1 = builder.http1();
    http1.timer(TokioTimer::new()).header_read_timeout(limits.idle);
    http1.max_headers(FIELDS_MAX).max_buf_size(HEAD_OCTETS_MAX as usize).half_close(true);
    let mut http2 = builder.http2();
    http2.max_concurrent_streams(REQUESTS_MAX).max_header_list_size(HEAD_OCTETS_MAX);
    http2.initial_stream_window_size(STREAM_OCTETS).initial_connection_window_size(QUERY_OCTETS_MAX);
    builder
}
