//! HTTP connections: accept, TLS if wanted, then HTTP/1.1 or HTTP/2 into an [`axum::Router`].
//!
//! Every stage has a limit: the number of connections, in total and per client (`places`), their idle time, the time for a
//! handshake, for the headers, and for a body, the size of each, and the time that a response waits for a client that does not
//! read (`pace`). A request carries as extensions its [`Peer`], over TLS [`Encrypted`], and, if the client presented a
//! certificate that the TLS configuration trusts, a [`ClientCertificate`]; none can be set from the network. On shutdown, the
//! listener closes first, idle connections end immediately, and busy ones can complete their requests within [`Limits::drain`].

mod body;
mod flood;
mod pace;
mod places;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, HttpBody};
use data_encoding::HEXLOWER;
use http::header::{CONNECTION, EXPECT, RETRY_AFTER};
use http::{Extensions, HeaderValue, Request, Response, StatusCode, Version};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;
use x509_parser::prelude::{FromDer, X509Certificate};

pub use self::pace::holding;
use self::places::ConnectionSlot;
pub use self::places::{ConnectionSlots, Totals};

/// The source address of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer(pub SocketAddr);

/// The request came over TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encrypted;

/// The extension of a response whose request came from a user of the platform itself. Its connection is never closed in favor of
/// another, and its address can use the reserved places.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OfPlatform;

/// The subject of a verified client certificate. In Kubernetes, the common name is the user, and the organizations are the
/// groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientCertificate {
    /// `CN`.
    pub common_name: String,
    /// Each `O`.
    pub organizations: Vec<String>,
    /// Serial number in lower-case hexadecimal.
    pub serial: String,
    /// The start of the validity, in seconds since the epoch.
    pub not_before: i64,
    /// The end of the validity, in seconds since the epoch. A connection can outlast it.
    pub not_after: i64,
}

impl ClientCertificate {
    /// Reads the subject of a verified certificate in DER; `None` if it has no common name.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let (_, certificate) = X509Certificate::from_der(der).ok()?;
        let subject = certificate.subject();
        let text =
            |attribute: &x509_parser::x509::AttributeTypeAndValue<'_>| attribute.as_str().ok().map(str::to_owned);
        let common_name = subject.iter_common_name().next().and_then(text).filter(|name| !name.is_empty())?;
        Some(ClientCertificate {
            common_name,
            organizations: subject.iter_organization().filter_map(text).collect(),
            serial: HEXLOWER.encode(certificate.raw_serial()),
            not_before: certificate.validity().not_before.timestamp(),
            not_after: certificate.validity().not_after.timestamp(),
        })
    }
}

/// The limits of a server.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The maximum number of connections. Beyond it, idle connections are closed, otherwise new ones.
    pub connections: usize,
    /// Connections of one client: an IPv4 address, or a /56 of IPv6.
    pub connections_per_client: usize,
    /// The maximum time from accepting a connection to its first request.
    pub first: Duration,
    /// The maximum time of a connection without a request in flight. A watch is a request in flight, and a request whose headers
    /// are not complete is not.
    pub idle: Duration,
    /// Streams of one HTTP/2 connection.
    pub streams: u32,
    /// The maximum number of octets of responses of known length in flight; one eighth for one client. Small responses do not
    /// count.
    pub answer_octets: usize,
    /// The timeout of the TLS handshake.
    pub handshake: Duration,
    /// The timeout of the whole body of a request.
    pub body: Duration,
    /// Octets of a request's body. The API refuses bodies over its own bound with a `Status`, so this one is larger.
    pub body_octets: usize,
    /// The maximum time for which a client may leave available response data unread. Then its connection is closed; if only one
    /// stream of an HTTP/2 connection stalls, only that response ends.
    pub stall: Duration,
    /// The maximum time for requests in flight after shutdown began.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            // A watch holds a connection; this is enough for five thousand watches and other clients.
            connections: 8192,
            // Many users can share an address.
            connections_per_client: 1024,
            first: Duration::from_secs(10),
            // Longer than clients keep idle connections (90 s in Go), so that they do not send on one that is being closed.
            idle: Duration::from_secs(120),
            // A client library with a watch on every kind in every namespace stays below.
            streams: 1024,
            // The API limits its requests by user.
            answer_octets: usize::MAX,
            handshake: Duration::from_secs(10),
            body: Duration::from_secs(30),
            body_octets: 4 << 20,
            // TCP retransmits lost segments for some ten seconds on a bad link; a shorter timeout would end connections that
            // recover.
            // A longer timeout keeps the resources of a disconnected client: a place for a connection, a watch, the objects of a
            // list.
            stall: Duration::from_secs(30),
            drain: Duration::from_secs(3),
        }
    }
}

/// Octets of all headers of a request.
const HEADER_OCTETS_MAX: u32 = 64 << 10;
/// The interval of pings to a silent HTTP/2 client.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// TCP keepalive: idle time before the first probe, interval between probes, and number of probes.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(60), Duration::from_secs(15), 4);
/// The maximum wait for the rest of a request's body when its response is ready.
const DRAIN_BODY: Duration = Duration::from_secs(2);
/// Grace period of an idle connection that ends, for its GOAWAY.
const GOODBYE: Duration = Duration::from_secs(1);
/// The maximum size of responses that do not count against `answer_octets`, such as those to health probes.
const SMALL_ANSWER_OCTETS: usize = 4 << 10;
/// The pause when the system has no free sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves `router` on `listener` until `stop` fires and connections have drained. With `tls`, over TLS only. Listeners can share
/// their `places`.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Arc<ServerConfig>>,
    router: axum::Router,
    places: impl Into<Arc<ConnectionSlots>>,
    stop: CancellationToken,
) {
    let places = places.into();
    let limits = places.limits;
    let acceptor = tls.map(TlsAcceptor::from);
    let connections = TaskTracker::new();
    let abort = CancellationToken::new();
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(place) = places.admit(peer.ip()) else { continue };
        tune(&stream);
        let (acceptor, router, stop, abort) = (acceptor.clone(), router.clone(), stop.clone(), abort.clone());
        connections.spawn(async move {
            tokio::select! {
                () = connection(stream, peer, acceptor, router, place.clone(), limits, stop) => {}
                () = place.closed() => {}
                () = abort.cancelled() => {}
            }
        });
    }
    drop(listener);
    connections.close();
    if tokio::time::timeout(limits.drain, connections.wait()).await.is_err() {
        abort.cancel();
        connections.wait().await;
    }
}

/// A peer that has already gone makes these fail; its connection ends soon.
fn tune(stream: &TcpStream) {
    let (time, interval, retries) = KEEPALIVE;
    let keepalive = TcpKeepalive::new().with_time(time).with_interval(interval).with_retries(retries);
    let tuned = stream.set_nodelay(true).and_then(|()| SockRef::from(stream).set_tcp_keepalive(&keepalive));
    if let Err(error) = tuned {
        tracing::debug!(%error, "failed to set the options of a connection");
    }
}

async fn connection(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    router: axum::Router,
    place: Arc<ConnectionSlot>,
    limits: Limits,
    stop: CancellationToken,
) {
    // Below TLS: the system of the peer decides.
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.stall));
    let stream = Box::pin(stream);
    let mut reported = Extensions::new();
    reported.insert(Peer(peer));
    let Some(acceptor) = acceptor else {
        return requests(stream, peer, reported, router, place, limits, stop).await;
    };
    // A peer that does not use TLS, or trusts another CA, has a client-side problem.
    match tokio::time::timeout(limits.handshake, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => {
            reported.insert(Encrypted);
            // The first certificate is the client's.
            let chain = stream.get_ref().1.peer_certificates();
            if let Some(certificate) = chain.and_then(|chain| ClientCertificate::from_der(chain.first()?)) {
                reported.insert(certificate);
            }
            requests(stream, peer, reported, router, place, limits, stop).await;
        }
        Ok(Err(error)) => tracing::debug!(%peer, %error, "TLS handshake failed"),
        Err(_) => tracing::debug!(%peer, "TLS handshake timed out"),
    }
}

/// Serves the requests of a connection, each of which is `reported` where it came from.
async fn requests(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    reported: Extensions,
    router: axum::Router,
    place: Arc<ConnectionSlot>,
    limits: Limits,
    stop: CancellationToken,
) {
    let of_connection = place.clone();
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().extend(reported.clone());
        let (router, place) = (router.clone(), of_connection.clone());
        async move { Ok::<_, Infallible>(respond(request, router, &place, limits).await) }
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // It would begin at the end of the former request, and close idle connections. The idle timeout covers slow headers.
        .header_read_timeout(None::<Duration>)
        .max_buf_size(HEADER_OCTETS_MAX as usize)
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEADER_OCTETS_MAX)
        .max_concurrent_streams(limits.streams)
        .keep_alive_interval(PING_INTERVAL);
    let stream = flood::Metered::new(stream, place.input().clone());
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => {
            if place.input().is_exhausted() {
                place.count_flood();
            }
            ended
        }
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
        () = place.idle_too_long() => {
            connection.as_mut().graceful_shutdown();
            tokio::time::timeout(GOODBYE, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%peer, error = %error, "connection ended");
    }
}

/// Answers one request. It is in flight until its response is consumed or dropped.
async fn respond(
    request: Request<Incoming>,
    router: axum::Router,
    place: &Arc<ConnectionSlot>,
    limits: Limits,
) -> Response<Body> {
    let mut in_flight = place.begin();
    let version = request.version();
    let expects_continue = request.headers().contains_key(EXPECT);
    let mut rest = None;
    let request = request.map(|body| {
        let (body, left) = body::Bounded::new(body, limits.body_octets, limits.body, place.input().clone());
        rest = Some(left);
        Body::new(body)
    });
    let Ok(mut response) = router.oneshot(request).await;
    if response.extensions().get::<OfPlatform>().is_some() {
        place.is_platforms();
    }
    if version < Version::HTTP_2
        && let Some(rest) = rest
    {
        // A client that waits for 100 Continue has not sent the body, and reading it would send 100 Continue.
        let within = if expects_continue { Duration::ZERO } else { DRAIN_BODY };
        if !rest.drained(within).await {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
    let octets = response.body().size_hint().exact().and_then(|octets| usize::try_from(octets).ok()).unwrap_or(0);
    if !in_flight.count(octets) {
        let text = "too many responses are in flight, for this client or in total; retry later\n";
        response = Response::new(Body::from(text));
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("5"));
    }
    response.map(|body| pace::paced(body, limits.stall, in_flight))
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio_rustls::rustls::pki_types::CertificateDer;

    use super::*;

    async fn start(limits: Limits) -> (SocketAddr, CancellationToken, tokio::task::JoinHandle<()>) {
        let router = axum::Router::new()
            .route("/", get(|| async { "hello" }).post(|body: String| async move { body.len().to_string() }))
            .route("/forever", get(|| async { std::future::pending::<&str>().await }));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let stop = CancellationToken::new();
        (address, stop.clone(), tokio::spawn(serve(listener, None, router, limits, stop)))
    }

    async fn exchange(address: SocketAddr, request: &str) -> String {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        stream.write_all(request.as_bytes()).await.expect("writes");
        let mut answer = Vec::new();
        let read = stream.read_to_end(&mut answer);
        tokio::time::timeout(PATIENCE, read).await.expect("ends in time").expect("reads");
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Requests `/` and returns the response, or nothing if the connection is refused.
    async fn try_exchange(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.expect("connects");
        let _ = stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        let mut answer = Vec::new();
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends a request, and returns whether the connection answers.
    async fn has_answer(stream: &mut TcpStream) -> bool {
        let mut answer = Vec::new();
        if stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.is_err() {
            return false;
        }
        while !answer.ends_with(b"hello") {
            match tokio::time::timeout(PATIENCE, stream.read_buf(&mut answer)).await.expect("in time") {
                Ok(octets) if octets > 0 => {}
                _ => return false,
            }
        }
        true
    }

    /// The headers of a further request that are not complete do not extend the time, and have no shorter one.
    #[tokio::test]
    async fn an_idle_connection_ends_by_the_idle_timeout_and_is_counted() {
        for rest in ["", "GET / HTT"] {
            let idle = Duration::from_millis(300);
            let places: Arc<ConnectionSlots> = Limits { idle, ..Limits::default() }.into();
            let router = axum::Router::new().route("/", get(|| async { "hello" }));
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
            let address = listener.local_addr().expect("is bound");
            tokio::spawn(serve(listener, None, router, places.clone(), CancellationToken::new()));
            let mut stream = TcpStream::connect(address).await.expect("connects");
            assert!(has_answer(&mut stream).await);
            stream.write_all(rest.as_bytes()).await.expect("writes");
            let mut answer = Vec::new();
            let closed = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
            assert!(closed.is_ok() && answer.is_empty(), "{rest:?}");
            assert_eq!(places.totals().closed_idle, 1, "{rest:?}");
        }
    }

    #[tokio::test]
    async fn it_serves_and_drains() {
        let (address, stop, server) = start(Limits { drain: Duration::from_millis(50), ..Limits::default() }).await;
        let answer = exchange(address, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("hello"), "{answer}");
        let mut busy = TcpStream::connect(address).await.expect("connects");
        busy.write_all(b"GET /forever HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("writes");
        tokio::time::sleep(Duration::from_millis(20)).await;
        stop.cancel();
        tokio::time::timeout(PATIENCE, server).await.expect("ends though a request hangs").expect("ends");
        assert!(TcpStream::connect(address).await.is_err(), "the listener is closed");
    }

    #[tokio::test]
    async fn slow_and_large_requests_end() {
        let limits = Limits {
            first: Duration::from_millis(100),
            body: Duration::from_millis(100),
            body_octets: 10,
            ..Limits::default()
        };
        let (address, _stop, _server) = start(limits).await;
        // Complete data can arrive late on a busy machine.
        let (patient, _stop_too, _patient_server) = start(Limits { body_octets: 10, ..Limits::default() }).await;
        let slow_headers = exchange(address, "GET / HTTP/1.1\r\nHost").await;
        assert!(!slow_headers.contains("200 OK"), "{slow_headers}");
        let post = |length: usize, body: &str| {
            format!("POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}")
        };
        let slow_body = exchange(address, &post(9, "abc")).await;
        assert!(!slow_body.contains("200 OK"), "{slow_body}");
        let large = exchange(patient, &post(11, "abcdefghijk")).await;
        assert!(!large.contains("200 OK"), "{large}");
        assert!(exchange(patient, &post(10, "abcdefghij")).await.ends_with("10"));
    }

    /// A signal on drop.
    struct DropSignal(tokio::sync::mpsc::UnboundedSender<()>);

    impl Drop for DropSignal {
        fn drop(&mut self) {
            let _ = self.0.send(());
        }
    }

    /// Starts a server whose `/endless` never ends. Returns a receiver that reports when such a response is dropped.
    async fn start_endless(
        stall: Duration,
    ) -> (SocketAddr, CancellationToken, tokio::sync::mpsc::UnboundedReceiver<()>) {
        let (reported, let_go) = tokio::sync::mpsc::unbounded_channel();
        let endless = move || {
            let reported = DropSignal(reported.clone());
            let pieces = futures::stream::repeat_with(move || {
                let _held = &reported;
                Ok::<_, Infallible>(bytes::Bytes::from_static(&[b'x'; 16 << 10]))
            });
            async move { Body::from_stream(pieces) }
        };
        let late = move || async move {
            let piece = |text: &'static str| async move { Ok::<_, Infallible>(text) };
            let late = async move {
                tokio::time::sleep(stall * 4).await;
                Ok("last")
            };
            use futures::StreamExt;
            Body::from_stream(futures::stream::once(piece("first")).chain(futures::stream::once(late)))
        };
        let large = || async { bytes::Bytes::from(vec![b'x'; 64 << 20]) };
        let router = axum::Router::new()
            .route("/", get(|| async { "hello" }))
            .route("/large", get(large))
            .route("/endless", get(endless))
            .route("/late", get(late));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let stop = CancellationToken::new();
        let limits = Limits { connections: 1, stall, ..Limits::default() };
        tokio::spawn(serve(listener, None, router, limits, stop.clone()));
        (address, stop, let_go)
    }

    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn who_takes_nothing_is_cut_off() {
        let (address, _stop, mut let_go) = start_endless(Duration::from_millis(100)).await;
        // An answer in pieces, and one in a single piece that the socket's buffers cannot hold.
        for path in ["/endless", "/large"] {
            let socket = tokio::net::TcpSocket::new_v4().expect("a socket");
            socket.set_recv_buffer_size(4 << 10).expect("small buffers");
            let mut deaf = socket.connect(address).await.expect("connects");
            let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
            deaf.write_all(request.as_bytes()).await.expect("writes");
            if path == "/endless" {
                tokio::time::timeout(PATIENCE, let_go.recv()).await.expect("in time").expect("the answer is dropped");
            }
            // There is room for one connection: others are closed until the first has ended.
            let began = std::time::Instant::now();
            while !try_exchange(address).await.ends_with("hello") {
                assert!(began.elapsed() < PATIENCE, "{path}: the connection does not end");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            drop(deaf);
        }
    }

    /// The connection works and is read; its only stream gets no window.
    #[tokio::test]
    async fn a_stream_that_stands_still_is_cut_off() {
        let (address, _stop, mut let_go) = start_endless(Duration::from_millis(100)).await;
        let stream = TcpStream::connect(address).await.expect("connects");
        let (mut read, mut write) = stream.into_split();
        write.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("writes");
        // SETTINGS, its acknowledgement, and HEADERS of stream 1 that end it (RFC 9113 §4.1, §6): GET, http, /endless
        // (RFC 7541 Appendix A, §6.2.2).
        write.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0]).await.expect("writes");
        write.write_all(&[0, 0, 12, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x04, 8]).await.expect("writes");
        write.write_all(b"/endless").await.expect("writes");
        let reads = tokio::spawn(async move {
            let mut buffer = vec![0; 64 << 10];
            let mut count = 0;
            while let Ok(octets @ 1..) = read.read(&mut buffer).await {
                count += octets;
            }
            count
        });
        tokio::time::timeout(PATIENCE, let_go.recv()).await.expect("in time").expect("the answer is dropped");
        assert!(!reads.is_finished(), "the connection continues");
        drop(write);
        let count = tokio::time::timeout(PATIENCE, reads).await.expect("in time").expect("reads");
        assert!(count >= 65_535, "the stream's whole window was used: {count}");
    }

    /// Frames that begin no request and carry no body, while a request is in flight.
    #[tokio::test]
    async fn a_flood_of_frames_without_requests_is_cut_off() {
        const PING: &[u8] = &[0, 0, 8, 6, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        const SETTINGS: &[u8] = &[0, 0, 0, 4, 0, 0, 0, 0, 0];
        for (frame, is_flood) in [(PING, true), (SETTINGS, true), (PING, false)] {
            let places: Arc<ConnectionSlots> = Limits::default().into();
            let router = axum::Router::new().route("/", get(|| async { std::future::pending::<&str>().await }));
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
            let address = listener.local_addr().expect("is bound");
            let stop = CancellationToken::new();
            tokio::spawn(serve(listener, None, router, places.clone(), stop.clone()));
            let (mut read, mut write) = TcpStream::connect(address).await.expect("connects").into_split();
            let reads = tokio::spawn(async move { tokio::io::copy(&mut read, &mut tokio::io::sink()).await });
            // The preface, SETTINGS and their acknowledgement, and HEADERS of stream 1 (see above): GET / of http.
            write.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("writes");
            write.write_all(&[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 4, 1, 0, 0, 0, 0]).await.expect("writes");
            write.write_all(&[0, 0, 3, 1, 5, 0, 0, 0, 1, 0x82, 0x86, 0x84]).await.expect("writes");
            let frames = frame.repeat(1_000);
            // The acknowledgements and the request add to the budget.
            let times = if is_flood { flood::OCTETS_MAX * 2 / frames.len() } else { 1 };
            let sent = async {
                for _ in 0..times {
                    write.write_all(&frames).await?;
                }
                Ok::<_, std::io::Error>(())
            };
            let sent = tokio::time::timeout(PATIENCE, sent).await.expect("in time");
            if is_flood {
                let _ = tokio::time::timeout(PATIENCE, reads).await.expect("the connection ends");
            } else {
                assert!(sent.is_ok());
                tokio::time::sleep(Duration::from_millis(50)).await;
                assert!(!reads.is_finished(), "the connection continues");
            }
            assert_eq!(places.totals().closed_flooded, u64::from(is_flood), "{frame:?}");
        }
    }

    #[tokio::test]
    async fn silence_with_nothing_to_write_is_no_stall() {
        let stall = Duration::from_millis(100);
        let (address, _stop, _let_go) = start_endless(stall).await;
        let mut stream = TcpStream::connect(address).await.expect("connects");
        for pause in [stall * 4, Duration::ZERO] {
            stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("writes");
            let mut answer = Vec::new();
            while !answer.ends_with(b"hello") {
                assert!(stream.read_buf(&mut answer).await.expect("reads") > 0, "the connection stays");
            }
            tokio::time::sleep(pause).await;
        }
        drop(stream);
        let late = exchange(address, "GET /late HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
        assert!(late.contains("first") && late.contains("last"), "{late}");
    }

    /// Returns the identity that a TLS client has at the server, with or without a certificate signed by the authority in
    /// `folder`.
    async fn whoami(with_certificate: bool) -> String {
        use crate::tls::{Authority, loopback_names};
        use tokio_rustls::rustls::pki_types::pem::PemObject;
        use tokio_rustls::rustls::{self, pki_types};

        let folder = tempfile::tempdir().expect("a folder");
        let authority =
            Authority::open(folder.path(), loopback_names(), std::time::SystemTime::now()).expect("an authority");
        let router = axum::Router::new().route(
            "/",
            get(|certificate: Option<axum::Extension<ClientCertificate>>| async move {
                certificate.map_or("anonymous".to_owned(), |certificate| certificate.common_name.clone())
            }),
        );
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("binds");
        let address = listener.local_addr().expect("is bound");
        let stop = CancellationToken::new();
        let tls = authority.server_config(None).expect("a configuration");
        tokio::spawn(serve(listener, Some(tls), router, Limits::default(), stop.clone()));

        let mut roots = rustls::RootCertStore::empty();
        let ca = CertificateDer::from_pem_slice(authority.certificate_pem().as_bytes()).expect("a certificate");
        let (_, parsed) = X509Certificate::from_der(&ca).expect("a certificate");
        let issuer_name =
            parsed.subject().iter_common_name().next().and_then(|name| name.as_str().ok()).expect("a name");
        let mut issuer = rcgen::CertificateParams::default();
        issuer.distinguished_name = rcgen::DistinguishedName::new();
        issuer.distinguished_name.push(rcgen::DnType::CommonName, issuer_name);
        let ca_key = std::fs::read_to_string(folder.path().join("ca.key")).expect("a key");
        let issuer = rcgen::Issuer::new(issuer, rcgen::KeyPair::from_pem(&ca_key).expect("a key"));
        let key = rcgen::KeyPair::generate().expect("a key");
        let mut alice = rcgen::CertificateParams::default();
        alice.distinguished_name = rcgen::DistinguishedName::new();
        alice.distinguished_name.push(rcgen::DnType::CommonName, "alice");
        let certificate = alice.signed_by(&key, &issuer).expect("a certificate");
        roots.add(ca.clone()).expect("a root");

        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = if with_certificate {
            let key = pki_types::PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).expect("a key");
            builder.with_client_auth_cert(vec![certificate.der().clone()], key).expect("a client certificate")
        } else {
            builder.with_no_client_auth()
        };
        let name = pki_types::ServerName::try_from("localhost").expect("a name");
        let stream = TcpStream::connect(address).await.expect("connects");
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(name, stream).await.expect("trusts");
        let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
        stream.write_all(request).await.expect("writes");
        let mut answer = Vec::new();
        // A peer that closes without a TLS close_notify also ends the response.
        let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await;
        stop.cancel();
        String::from_utf8_lossy(&answer).lines().last().unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn client_certificates_are_optional_and_named() {
        assert_eq!(whoami(false).await, "anonymous");
        assert_eq!(whoami(true).await, "alice");
    }
}
