//! DNS over HTTPS by HTTP/3: the same requests and responses as by HTTP/2, and what a hostile client may take.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use data_encoding::BASE64URL_NOPAD;
use h3::client::SendRequest;
use hyper::{HeaderMap, Request, Response};
use quinn::crypto::rustls::QuicClientConfig;
use quinn::{Connection, ConnectionError, Endpoint};
use signpost_dns::nameserver::Transport;
use signpost_dns::transport::Config;
use signpost_dns::transport::tls_base::ALPN_H3;
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::rustls;

use crate::support::{A, PATIENCE, Server, TXT, check, query};
use crate::tls_client::NAME;

type Client = SendRequest<h3_quinn::OpenStreams, Bytes>;

struct Http3 {
    server: Server,
    address: SocketAddr,
    runtime: Runtime,
}

impl Http3 {
    fn with(change: impl FnOnce(&mut Config)) -> Http3 {
        let server = Server::with(|config| {
            config.https_addresses = vec!["127.0.0.1:0".parse().unwrap()];
            config.https.http3 = true;
            change(config);
        });
        let address = server.encrypted_address(Transport::Https);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Http3 { server, address, runtime }
    }

    fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { timeout(PATIENCE, work).await.expect("in time") })
    }

    fn connect(&self) -> Connection {
        let tls = self.server.certificate.client(&[&rustls::version::TLS13], &[ALPN_H3]);
        let tls = QuicClientConfig::try_from(rustls::ClientConfig::clone(&tls)).unwrap();
        self.run(async {
            let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
            endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(tls)));
            endpoint.connect(self.address, NAME).unwrap().await.unwrap()
        })
    }

    fn client(&self, connection: &Connection) -> Client {
        self.run(async {
            let (mut driver, client) = h3::client::new(h3_quinn::Connection::new(connection.clone())).await.unwrap();
            tokio::spawn(async move { std::future::poll_fn(|context| driver.poll_close(context)).await });
            client
        })
    }

    fn ask(&self, client: &Client, request: Request<()>, body: &[u8]) -> Response<Vec<u8>> {
        self.run(ask(client.clone(), request, body)).unwrap()
    }

    #[track_caller]
    fn check(&self, client: &Client) {
        let query = query(0, "app.shard.example", A);
        let response = self.ask(client, get(&query), b"");
        assert_eq!(response.status(), 200);
        check(response.body(), &query, 4);
    }
}

async fn ask(
    mut client: Client,
    request: Request<()>,
    body: &[u8],
) -> Result<Response<Vec<u8>>, h3::error::StreamError> {
    let mut stream = client.send_request(request).await?;
    // The server may refuse what it has seen of the body.
    if body.is_empty() || stream.send_data(Bytes::copy_from_slice(body)).await.is_ok() {
        drop(stream.finish().await);
    }
    let head = stream.recv_response().await?;
    let mut body = Vec::new();
    while let Some(octets) = stream.recv_data().await? {
        body.extend_from_slice(octets.chunk());
    }
    Ok(head.map(|()| body))
}

fn request(method: &str, target: &str) -> Request<()> {
    let request = Request::builder().method(method).uri(format!("https://{NAME}{target}"));
    request.header("content-type", "application/dns-message").body(()).unwrap()
}

fn get(query: &[u8]) -> Request<()> {
    request("GET", &format!("/dns-query?dns={}", BASE64URL_NOPAD.encode(query)))
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> &'h str {
    headers.get(name).map(|value| value.to_str().unwrap()).unwrap_or_default()
}

#[test]
fn queries_are_answered_and_refused_as_by_http_2() {
    let http3 = Http3::with(|_| {});
    let client = http3.client(&http3.connect());
    let query_of_a = query(0, "app.shard.example", A);
    for (asked, body) in [(get(&query_of_a), &b""[..]), (request("POST", "/dns-query"), &query_of_a)] {
        let response = http3.ask(&client, asked, body);
        assert_eq!(response.status(), 200);
        assert_eq!(header(response.headers(), "cache-control"), "max-age=30");
        assert_eq!(header(response.headers(), "alt-svc"), format!("h3=\":{}\"; ma=86400", http3.address.port()));
        assert!(header(response.headers(), "date").ends_with(" GMT"));
        check(response.body(), &query_of_a, 4);
    }
    let large = query(0, "large.shard.example", TXT);
    check(http3.ask(&client, get(&large), b"").body(), &large, 200);
    // An UPDATE that comes in many frames of QUIC: NOTIMP.
    let update = [&[0, 0, 0x28, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[7; 60_000][..]].concat();
    assert_eq!(http3.ask(&client, request("POST", "/dns-query"), &update).body()[3] & 15, 4);
    for (asked, body, status) in [
        (request("GET", "/dns-query"), &b""[..], 400),
        (request("POST", "/dns-query"), b"x", 400),
        (request("GET", "/"), b"", 404),
        (request("PUT", "/dns-query"), b"", 405),
        (request("POST", "/dns-query"), &[0; 70_000], 413),
        (request("GET", &format!("/dns-query?dns={}", "A".repeat(9_000))), b"", 414),
    ] {
        assert_eq!(http3.ask(&client, asked, body).status(), status);
    }
    assert_eq!(http3.server.requests(Transport::Https), (5, 4), "that of one octet has no duration");
    http3.check(&client);
}

/// Header frames without end, of which the library below would keep everything, are bounded over all streams of a connection;
/// streams that are never finished end it in time.
#[test]
fn endless_heads_end() {
    let http3 = Http3::with(|config| config.streams.read = Duration::from_secs(2));
    let connection = http3.connect();
    let sent = http3.run(async {
        let mut streams = Vec::new();
        let mut sent = 0;
        for _ in 0..100 {
            let Ok((mut send, receive)) = connection.open_bi().await else { break };
            // HEADERS of 2^30 octets.
            drop(send.write_all(&[0x01, 0xc0, 0, 0, 0, 0x40, 0, 0, 0]).await);
            while let Ok(Ok(())) = timeout(Duration::from_millis(50), send.write_all(&[0; 16_384])).await {
                sent += 16_384;
                assert!(sent < 8 << 20, "it takes everything");
            }
            streams.push((send, receive));
        }
        sent
    });
    assert!(sent < 2 << 20, "{sent} octets were taken");
    match http3.run(connection.closed()) {
        ConnectionError::ApplicationClosed(close) => assert_eq!(close.error_code.into_inner(), 0x107, "{close}"),
        error => panic!("{error}"),
    }
    http3.check(&http3.client(&http3.connect()));
}

#[test]
fn silence_ends_a_connection() {
    let http3 = Http3::with(|config| config.streams.idle = Duration::from_millis(300));
    let connection = http3.connect();
    match http3.run(connection.closed()) {
        ConnectionError::ApplicationClosed(close) => assert_eq!(close.error_code.into_inner(), 0x100, "{close}"),
        ConnectionError::TimedOut => {}
        error => panic!("{error}"),
    }
}

#[test]
fn a_stop_answers_what_has_arrived() {
    let mut http3 = Http3::with(|config| config.streams.idle = Duration::from_secs(600));
    let clients: Vec<_> = (0..5).map(|_| http3.client(&http3.connect())).collect();
    let query = query(0, "app.shard.example", A);
    let asked: Vec<_> = clients
        .iter()
        .map(|client| {
            let (client, request) = (client.clone(), get(&query));
            http3.runtime.spawn(async move { ask(client, request, b"").await })
        })
        .collect();
    http3.server.wait_encrypted(Transport::Https, "all queries", |stats| stats.messages == 5);
    http3.server.stop();
    for asked in asked {
        check(http3.run(asked).unwrap().expect("an answer").body(), &query, 4);
    }
}
