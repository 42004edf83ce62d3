//! DNS over HTTPS by HTTP/2 and HTTP/1.1: RFC 8484's rules for requests and responses, and limits for a hostile client.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use data_encoding::BASE64URL_NOPAD;
use h2::client::SendRequest;
use hyper::{HeaderMap, Request, Response};
use signpost_dns::nameserver::Transport;
use signpost_dns::transport::tls_base::{ALPN_H2, ALPN_HTTP1};
use signpost_dns::transport::{Config, Totals};
use tokio::io::AsyncWriteExt as _;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::DEFAULT_VERSIONS;
use tokio_rustls::rustls::pki_types::ServerName;

use crate::frames::{self, frame, head};
use crate::support::{A, LIMIT, PATIENCE, Server, TXT, check, query, query_with_option};
use crate::tls_client::{NAME, connect_tls};

/// A server that answers over HTTPS, too, and a place for clients.
pub struct Https {
    server: Server,
    address: SocketAddr,
    runtime: Runtime,
}

/// A response with its body.
pub type Whole = Response<Vec<u8>>;

impl Https {
    fn with(change: impl FnOnce(&mut Config)) -> Https {
        Https::of(Server::with(|config| {
            config.https_addresses = vec!["127.0.0.1:0".parse().unwrap()];
            change(config);
        }))
    }

    pub fn of(server: Server) -> Https {
        let address = server.encrypted_address(Transport::Https);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Https { server, address, runtime }
    }

    fn start() -> Https {
        Https::with(|_| {})
    }

    fn stats(&self) -> Totals {
        self.server.encrypted_stats(Transport::Https)
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { timeout(PATIENCE, work).await.expect("in time") })
    }

    pub fn connect(&self) -> SendRequest<Bytes> {
        self.try_connect().unwrap()
    }

    fn try_connect(&self) -> Option<SendRequest<Bytes>> {
        let tls = TlsConnector::from(self.server.certificate.client(DEFAULT_VERSIONS, &[ALPN_H2]));
        self.run(async {
            let stream = tokio::net::TcpStream::connect(self.address).await.ok()?;
            let stream = tls.connect(ServerName::try_from(NAME).unwrap(), stream).await.ok()?;
            let (client, connection) = h2::client::handshake(stream).await.ok()?;
            tokio::spawn(connection);
            Some(client)
        })
    }

    pub fn ask(&self, client: &SendRequest<Bytes>, request: Request<()>, body: &[u8]) -> Result<Whole, h2::Error> {
        self.run(ask(client.clone(), request, body))
    }

    /// Queries by GET and checks the answer.
    #[track_caller]
    fn check(&self, client: &SendRequest<Bytes>) {
        let query = query(0, "app.shard.example", A);
        let response = self.ask(client, get(&query), b"").unwrap();
        assert_eq!(response.status(), 200);
        check(response.body(), &query, 4);
    }
}

async fn ask(client: SendRequest<Bytes>, request: Request<()>, body: &[u8]) -> Result<Whole, h2::Error> {
    let (response, mut send) = client.ready().await?.send_request(request, body.is_empty())?;
    if !body.is_empty() {
        // The server may refuse what it has seen of it.
        drop(send.send_data(Bytes::copy_from_slice(body), true));
    }
    let (head, mut stream) = response.await?.into_parts();
    let mut body = Vec::new();
    while let Some(octets) = stream.data().await.transpose()? {
        stream.flow_control().release_capacity(octets.len())?;
        body.extend_from_slice(&octets);
    }
    Ok(Response::from_parts(head, body))
}

fn request(method: &str, target: &str, headers: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(format!("https://{NAME}{target}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap()
}

fn get(query: &[u8]) -> Request<()> {
    request("GET", &target(query), &[])
}

fn target(query: &[u8]) -> String {
    format!("/dns-query?dns={}", BASE64URL_NOPAD.encode(query))
}

pub fn post() -> Request<()> {
    request("POST", "/dns-query", &[("content-type", "application/dns-message")])
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

/// RFC 8484 §4.1: GET and POST, with the same answer, for any ID; HEAD has its header fields.
#[test]
fn queries_are_answered_by_each_method() {
    let https = Https::start();
    let client = https.connect();
    for id in [0, 7] {
        let query = query(id, "app.shard.example", A);
        for (request, body) in [(get(&query), &b""[..]), (post(), &query)] {
            let response = https.ask(&client, request, body).unwrap();
            assert_eq!(response.status(), 200);
            assert_eq!(header(response.headers(), "content-type"), "application/dns-message");
            assert_eq!(header(response.headers(), "content-length"), response.body().len().to_string());
            assert_eq!(header(response.headers(), "cache-control"), "max-age=30");
            check(response.body(), &query, 4);
        }
        let response = https.ask(&client, request("HEAD", &target(&query), &[]), b"").unwrap();
        assert_eq!((response.status().as_u16(), response.body().len()), (200, 0));
        assert_ne!(header(response.headers(), "content-length"), "0");
    }
    let large = query(0, "large.shard.example", TXT);
    let response = https.ask(&client, get(&large), b"").unwrap();
    check(response.body(), &large, 200);
    let padded = query_with_option(0, "app.shard.example", 12);
    let response = https.ask(&client, post(), &padded).unwrap();
    assert_eq!(response.body().len() % 468, 0, "padded, RFC 8467 §4.1");
    assert_eq!(https.server.requests(Transport::Https), (8, 8));
}

/// §5.1: how long what does not exist may be kept, and what may not be.
#[test]
fn responses_have_a_cache_lifetime() {
    let https = Https::start();
    let client = https.connect();
    for (name, rtype, expected) in [
        ("app.shard.example", 28, "max-age=30"),
        ("elsewhere.example", A, "no-store"),
        ("shard.example", 252, "no-store"),
    ] {
        let response = https.ask(&client, get(&query(0, name, rtype)), b"").unwrap();
        assert_eq!(
            (response.status().as_u16(), header(response.headers(), "cache-control")),
            (200, expected),
            "{name}"
        );
    }
}

/// §4.2.1 and RFC 9110 §15.5: each refusal has its status, and the connection stays open.
#[test]
fn what_cannot_be_answered_has_a_status() {
    let https = Https::start();
    let client = https.connect();
    let good = query(0, "app.shard.example", A);
    let mut response_as_query = good.clone();
    response_as_query[2] |= 0x80;
    let large = vec![0; 70_000];
    for (request, body, status) in [
        (request("GET", "/dns-query", &[]), &b""[..], 400),
        (request("GET", "/dns-query?dns=!", &[]), b"", 400),
        (get(b"too short"), b"", 400),
        (get(&response_as_query), b"", 400),
        (post(), b"x", 400),
        (request("POST", "/dns-query", &[("content-type", "text/plain")]), &good, 415),
        (request("GET", "/", &[]), b"", 404),
        (request("DELETE", "/dns-query", &[]), b"", 405),
        (post(), &large, 413),
        (request("GET", &format!("/dns-query?dns={}", "A".repeat(9_000)), &[]), b"", 414),
        (request("GET", "/dns-query", &[("x", &"y".repeat(20_000))]), b"", 431),
    ] {
        let response = https.ask(&client, request, body).unwrap();
        assert_eq!(response.status(), status);
        assert_eq!(response.body().len(), 0, "{status}");
        assert_eq!(header(response.headers(), "allow"), if status == 405 { "GET, HEAD, POST" } else { "" });
        assert_eq!(header(response.headers(), "cache-control"), "", "{status}");
    }
    https.check(&client);
}

/// RFC 9110 with HTTP/1.1, as clients without ALPN speak it.
#[test]
fn http_1_is_answered() {
    let https = Https::start();
    let query = query(0, "app.shard.example", A);
    for alpn in [&[][..], &[ALPN_HTTP1]] {
        let config = https.server.certificate.client(DEFAULT_VERSIONS, alpn);
        let mut stream = connect_tls(https.address, &config, PATIENCE).unwrap();
        let content = format!("content-type: application/dns-message\r\ncontent-length: {}", query.len());
        write!(stream, "POST /dns-query HTTP/1.1\r\nhost: {NAME}\r\n{content}\r\n\r\n").unwrap();
        stream.write_all(&query).unwrap();
        write!(stream, "GET {} HTTP/1.1\r\nhost: {NAME}\r\nconnection: close\r\n\r\n", target(&query)).unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        let text = String::from_utf8_lossy(&all);
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2, "{text}");
        assert_eq!(text.matches("cache-control: max-age=30").count(), 2, "{text}");
    }
}

#[test]
fn connections_are_bounded_by_client_and_in_total() {
    for (per_client, total) in [(3, 100), (100, 3)] {
        let https = Https::with(|config| {
            (config.streams.connections_per_client_max, config.streams.connections_max) = (per_client, total);
            config.streams.idle = Duration::from_secs(600);
        });
        let clients: Vec<_> = (0..3).map(|_| https.connect()).collect();
        assert!(https.try_connect().is_none(), "there are three");
        let stats = https.stats();
        assert_eq!((stats.connections, stats.refused_client + stats.refused_total), (3, 1));
        https.check(&clients[0]);
        drop(clients);
        let deadline = Instant::now() + PATIENCE;
        while https.try_connect().is_none() {
            assert!(Instant::now() < deadline, "no room");
        }
    }
}

#[test]
fn silence_and_age_end_a_connection() {
    const LONG: Duration = Duration::from_secs(600);
    for (idle, lifetime) in [(LIMIT, LONG), (LONG, LIMIT)] {
        let https = Https::with(|config| {
            config.streams.idle = idle;
            config.streams.lifetime = lifetime;
        });
        let client = https.connect();
        let deadline = Instant::now() + PATIENCE;
        while https.run(client.clone().ready()).is_ok() {
            assert!(Instant::now() < deadline, "it never ends");
            std::thread::sleep(Duration::from_millis(10));
        }
        // The client sees GOAWAY before the end of the connection is counted.
        let expected = u64::from(idle == LIMIT);
        https.server.wait_encrypted(Transport::Https, "the count", |stats| stats.idle_timeouts == expected);
    }
}

/// Bodies that never end hold up their own connection alone, and end it.
#[test]
fn slow_bodies_end_a_connection() {
    let https = Https::with(|config| config.streams.read = LIMIT);
    let client = https.connect();
    let bodies: Vec<_> = (0..100)
        .map(|_| {
            https.run(async {
                let (response, mut send) = client.clone().ready().await.unwrap().send_request(post(), false).unwrap();
                send.send_data(Bytes::from_static(&[0; 100]), false).unwrap();
                (response, send)
            })
        })
        .collect();
    https.check(&client);
    https.check(&https.connect());
    for (response, _) in bodies {
        assert!(https.run(response).is_err());
    }
    https.server.wait_encrypted(Transport::Https, "a slow one", |stats| stats.read_timeouts == 1);
}

/// Requests that are cancelled at once (CVE-2023-44487) end their connection after a while; others do not notice.
#[test]
fn a_flood_of_cancelled_requests_ends_its_connection() {
    let https = Https::start();
    let client = https.connect();
    let deadline = Instant::now() + PATIENCE;
    let cancel = async || {
        let (_response, mut send) = client.clone().ready().await.ok()?.send_request(post(), false).ok()?;
        send.send_reset(h2::Reason::CANCEL);
        tokio::task::yield_now().await;
        Some(())
    };
    while https.run(cancel()).is_some() {
        assert!(Instant::now() < deadline, "it never ends");
    }
    https.check(&https.connect());
}

/// A client that takes no answers is cut off, and few of them are made.
#[test]
fn a_client_that_takes_no_answers_is_cut_off() {
    let https = Https::with(|config| config.streams.write = LIMIT);
    let greedy = https.connect();
    let flood = async {
        let mut responses = Vec::new();
        for _ in 0..100 {
            let request = get(&query(0, "large.shard.example", TXT));
            responses.push(greedy.clone().ready().await.unwrap().send_request(request, true).unwrap());
        }
        responses
    };
    let _responses = https.run(flood);
    https.check(&https.connect());
    https.server.wait_encrypted(Transport::Https, "a slow one", |stats| stats.write_timeouts == 1);
    let made = https.server.requests(Transport::Https).0;
    assert!(made < 20, "{made} answers were made");
}

/// A client whose window takes nothing, or one octet, of a single answer is cut off, too.
#[test]
fn a_window_that_stays_closed_ends_a_connection() {
    for window in [0, 1] {
        let https = Https::with(|config| {
            config.streams.write = LIMIT;
            config.streams.idle = Duration::from_secs(600);
        });
        let tls = TlsConnector::from(https.server.certificate.client(DEFAULT_VERSIONS, &[ALPN_H2]));
        let response = https.run(async {
            let stream = tokio::net::TcpStream::connect(https.address).await.unwrap();
            let stream = tls.connect(ServerName::try_from(NAME).unwrap(), stream).await.unwrap();
            let mut builder = h2::client::Builder::new();
            let (client, connection) = builder.initial_window_size(window).handshake::<_, Bytes>(stream).await.unwrap();
            tokio::spawn(connection);
            let request = get(&query(0, "app.shard.example", A));
            client.ready().await.unwrap().send_request(request, true).unwrap().0.await.unwrap()
        });
        assert_eq!(response.status(), 200);
        https.server.wait_encrypted(Transport::Https, "a slow one", |stats| stats.write_timeouts == 1);
    }
}

/// Queries that never end take a bounded share of the memory; beyond it, others of the connection are refused.
#[test]
fn queries_that_are_not_whole_are_bounded() {
    let https = Https::start();
    let client = https.connect();
    https.run(async {
        let begin = async || {
            let (response, mut send) = client.clone().ready().await.unwrap().send_request(post(), false).unwrap();
            send.send_data(Bytes::from_static(&[0; 16_000]), false).unwrap();
            (response, send)
        };
        let mut held = Vec::new();
        for _ in 0..8 {
            held.push(begin().await);
        }
        let (refused, _send) = begin().await;
        assert_eq!(refused.await.unwrap().status(), 503, "beyond 128 KiB");
        for (response, _) in &mut held {
            assert!(timeout(Duration::ZERO, response).await.is_err(), "it is held");
        }
    });
    https.check(&client);
}

/// Frames that cost the server more than the client, or about as much without a request, end their connection.
#[test]
fn floods_of_frames_end_their_connection() {
    let post = |stream| head(stream, 0, "POST", "/dns-query");
    let empty = frame(frames::DATA, 0, 1, b"");
    let begun = frame(frames::HEADERS, 0, 1, b"");
    let continued = frame(frames::CONTINUATION, 0, 1, b"\0\x01a\x01b");
    // The server resets each of these streams for the update (CVE-2025-8671).
    let reset = |stream| [post(stream), frame(frames::WINDOW_UPDATE, 0, stream, &[0; 4])].concat();
    let is_idle: fn(&Totals) -> bool = |stats| stats.idle_timeouts == 1;
    let is_malformed: fn(&Totals) -> bool = |stats| stats.malformed == 1;
    for (what, first, flood, is_ended) in [
        ("PING", vec![], frame(frames::PING, 0, 0, &[0; 8]).repeat(1_000), is_idle),
        ("SETTINGS", vec![], frame(frames::SETTINGS, 0, 0, b"").repeat(1_000), is_idle),
        ("PRIORITY", vec![], frame(frames::PRIORITY, 0, 1, &[0; 5]).repeat(1_000), is_idle),
        ("empty DATA", post(1), empty.repeat(1_000), is_malformed),
        ("CONTINUATION", begun, continued.repeat(1_000), is_malformed),
        ("resets by the server", vec![], (0..2_000).flat_map(|number| reset(2 * number + 1)).collect(), is_malformed),
    ] {
        let https = Https::with(|config| config.streams.idle = Duration::from_secs(1));
        let tls = TlsConnector::from(https.server.certificate.client(DEFAULT_VERSIONS, &[ALPN_H2]));
        https.run(async {
            let stream = tokio::net::TcpStream::connect(https.address).await.unwrap();
            let stream = tls.connect(ServerName::try_from(NAME).unwrap(), stream).await.unwrap();
            let (mut read, mut write) = tokio::io::split(stream);
            let reading = tokio::spawn(async move { drop(tokio::io::copy(&mut read, &mut tokio::io::sink()).await) });
            write.write_all(&[frames::PREFACE, &first].concat()).await.unwrap();
            while !reading.is_finished() && write.write_all(&flood).await.is_ok() {}
        });
        https.server.wait_encrypted(Transport::Https, what, is_ended);
        https.check(&https.connect());
    }
}

/// `dnsperf` 2.10 loses responses that share a TLS record.
#[test]
fn responses_to_requests_of_one_record_have_records_of_their_own() {
    let https = Https::start();
    let config = https.server.certificate.client(DEFAULT_VERSIONS, &[ALPN_H2]);
    let mut stream = connect_tls(https.address, &config, PATIENCE).unwrap();
    let target = target(&query(0, "app.shard.example", A));
    let requests = (0..4).map(|number| head(2 * number + 1, frames::END_STREAM, "GET", &target));
    let requests: Vec<u8> = requests.flatten().collect();
    stream.write_all(&[frames::PREFACE, &requests].concat()).unwrap();
    let mut answered = 0;
    while answered < 4 {
        let mut record = vec![0; 5];
        stream.sock.read_exact(&mut record).unwrap();
        let length = usize::from(u16::from_be_bytes([record[3], record[4]]));
        record.resize(5 + length, 0);
        stream.sock.read_exact(&mut record[5..]).unwrap();
        stream.conn.read_tls(&mut &record[..]).unwrap();
        stream.conn.process_new_packets().unwrap();
        let mut octets = Vec::new();
        drop(stream.conn.reader().read_to_end(&mut octets));
        let mut rest = &octets[..];
        let mut ends = 0;
        while let Some((frame, after)) = rest.split_first_chunk::<9>() {
            ends += u32::from(frame[3] == frames::DATA && frame[4] & frames::END_STREAM != 0);
            rest = &after[u32::from_be_bytes([0, frame[0], frame[1], frame[2]]) as usize..];
        }
        assert!(rest.is_empty() && ends <= 1, "{ends} responses in one record");
        answered += ends;
    }
}

/// The same where HTTP gives all the room that there is, and the socket is not read.
#[test]
fn a_client_that_reads_nothing_is_cut_off() {
    let https = Https::with(|config| config.streams.write = LIMIT);
    let tls = TlsConnector::from(https.server.certificate.client(DEFAULT_VERSIONS, &[ALPN_H2]));
    let stalled = https.run(async {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4_096).unwrap();
        let stream = socket.connect(https.address).await.unwrap();
        let stream = tls.connect(ServerName::try_from(NAME).unwrap(), stream).await.unwrap();
        let mut builder = h2::client::Builder::new();
        builder.initial_window_size(1 << 30).initial_connection_window_size(1 << 30);
        let (client, mut connection) = builder.handshake::<_, Bytes>(stream).await.unwrap();
        let mut responses = Vec::new();
        let flood = async {
            for _ in 0..100 {
                let request = get(&query(0, "large.shard.example", TXT));
                responses.push(client.clone().ready().await.unwrap().send_request(request, true).unwrap());
            }
            // The requests go out.
            tokio::time::sleep(Duration::from_millis(20)).await;
        };
        tokio::select! {
            _ = &mut connection => panic!("it continues"),
            () = flood => {}
        }
        (connection, responses)
    });
    https.check(&https.connect());
    https.server.wait_encrypted(Transport::Https, "a slow one", |stats| stats.write_timeouts == 1);
    let made = https.server.requests(Transport::Https).0;
    assert!(made < 90, "{made} answers were made");
    drop(stalled);
}

/// Clients that never shake hands, or shake hands and send nothing, block no other client.
#[test]
fn half_open_connections_end() {
    let https = Https::with(|config| {
        config.streams.read = LIMIT;
        config.streams.idle = LIMIT;
    });
    let silent: Vec<_> = (0..100).map(|_| std::net::TcpStream::connect(https.address).unwrap()).collect();
    let config = https.server.certificate.client(DEFAULT_VERSIONS, &[ALPN_H2]);
    let mut shaken: Vec<_> = (0..10).map(|_| connect_tls(https.address, &config, PATIENCE).unwrap()).collect();
    // The beginning of a preface.
    shaken.iter_mut().step_by(2).for_each(|stream| stream.write_all(b"PRI * HTTP").unwrap());
    https.check(&https.connect());
    https.server.wait_encrypted(Transport::Https, "all in vain", |stats| {
        stats.handshake_timeouts == 100 && stats.idle_timeouts >= 10
    });
    drop(silent);
}

#[test]
fn a_stop_answers_what_has_arrived_and_closes() {
    let mut https = Https::with(|config| config.streams.idle = Duration::from_secs(600));
    let clients: Vec<_> = (0..10).map(|_| https.connect()).collect();
    let query = query(0, "large.shard.example", TXT);
    let asked: Vec<_> = clients
        .iter()
        .map(|client| {
            let (client, request) = (client.clone(), get(&query));
            https.runtime.spawn(async move { ask(client, request, b"").await })
        })
        .collect();
    https.server.wait_encrypted(Transport::Https, "all queries", |stats| stats.messages == 10);
    https.server.stop();
    for asked in asked {
        check(https.run(asked).unwrap().expect("an answer").body(), &query, 200);
    }
    for client in clients {
        assert!(https.run(client.ready()).is_err());
    }
}
