//! Hostile clients of the encrypted transports: handshakes that never end, floods of handshakes, requests that are reset, and
//! requests that never end.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use h2::client::SendRequest;
use signpost_testing::PATIENCE;
use signpost_testing::net::free_address;
use tokio::runtime::Runtime;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::connections::connect_from;
use crate::support::{Platform, is_long};

/// The number of handshakes, or of connections, that make an attack.
const ATTACKS_MIN: u64 = 100;
/// The number of requests that are reset at once in an attack.
const RESETS_MIN: u64 = 1_000;
/// The number of tries of a client whose handshake has two seconds, which can pass on a busy machine. During an attack that locks others out,
/// all of them fail.
const TRIES: usize = 5;

/// A query for the bystander's name, with its length in front.
const QUERY: &[u8] =
    b"\0\x35\x12\x34\0\0\0\x01\0\0\0\0\0\0\x0dbystander-app\x06shard1\x02v3\x07rhcloud\x03com\0\0\x01\0\x01";

struct Attacked {
    platform: Platform,
    tls: SocketAddr,
    https: SocketAddr,
    #[cfg(feature = "quic")]
    quic: SocketAddr,
    client: Arc<ClientConfig>,
}

impl Attacked {
    fn start(flags: &[&str]) -> Attacked {
        let [tls, https, quic] = [free_address(), free_address(), free_address()];
        let listen = [tls, https, quic].map(|address| address.to_string());
        let mut own = vec!["--dns-tls-listen", &listen[0], "--dns-https-listen", &listen[1]];
        if cfg!(feature = "quic") {
            own.extend(["--dns-quic-listen", &listen[2]]);
        }
        let platform = Platform::start(&[&own, flags].concat());
        let authority = std::fs::read(platform.data.join("pki/ca.crt")).expect("the authority's certificate is there");
        let mut client = signpost_runtime::trust::only(&authority).expect("a certificate");
        client.resumption = tokio_rustls::rustls::client::Resumption::disabled();
        Attacked {
            platform,
            tls,
            https,
            #[cfg(feature = "quic")]
            quic,
            client: Arc::new(client),
        }
    }

    /// Returns a connection over TLS from this address.
    fn connect(&self, client: [u8; 4]) -> std::io::Result<StreamOwned<ClientConnection, TcpStream>> {
        let mut socket = connect_from(client, self.tls)?;
        socket.set_read_timeout(Some(Duration::from_secs(10)))?;
        let name = ServerName::try_from("localhost").expect("a name");
        let mut connection = ClientConnection::new(self.client.clone(), name).expect("the settings are good");
        while connection.is_handshaking() {
            connection.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(connection, socket))
    }

    /// The settings of a client with this protocol.
    fn client(&self, alpn: &[u8]) -> ClientConfig {
        let mut client = ClientConfig::clone(&self.client);
        client.alpn_protocols = vec![alpn.to_vec()];
        client
    }

    /// A connection of HTTP/2 from this address.
    async fn connect_http2(&self, client: [u8; 4]) -> Option<SendRequest<Bytes>> {
        let socket = connect_from(client, self.https).ok()?;
        socket.set_nonblocking(true).ok()?;
        let stream = tokio::net::TcpStream::from_std(socket).ok()?;
        let name = ServerName::try_from("localhost").expect("a name");
        let stream = TlsConnector::from(Arc::new(self.client(b"h2"))).connect(name, stream).await.ok()?;
        let (client, connection) = h2::client::handshake(stream).await.ok()?;
        tokio::spawn(connection);
        Some(client)
    }

    /// Whether another client is served over HTTPS.
    async fn serves_https(&self) -> bool {
        let asked = async {
            let client = self.connect_http2([127, 3, 0, 1]).await?;
            let request = post().body(()).expect("a request");
            let (response, mut body) = client.ready().await.ok()?.send_request(request, false).ok()?;
            body.send_data(Bytes::from_static(&QUERY[2..]), true).ok()?;
            Some(response.await.ok()?.status() == 200)
        };
        tokio::time::timeout(PATIENCE, asked).await.ok().flatten() == Some(true)
    }

    fn closed(&self, transport: &str, reason: &str) -> f64 {
        let labels = format!("{{transport=\"{transport}\",reason=\"{reason}\"}}");
        self.platform.metric(&format!("signpost_dns_encrypted_closed_total{labels}"))
    }

    fn handshakes(&self, result: &str) -> f64 {
        let series = "signpost_dns_encrypted_handshakes_total{transport=\"tls\"";
        self.platform.metric(&format!("{series},result=\"{result}\"}}"))
    }
}

/// Returns the result of the first of several tries that succeeds; `None` if all fail, or last too long together.
async fn tried<T>(attempt: impl AsyncFn() -> Option<T>) -> Option<T> {
    let tries = async {
        for _ in 0..TRIES {
            if let Some(found) = attempt().await {
                return Some(found);
            }
        }
        None
    };
    tokio::time::timeout(PATIENCE, tries).await.ok().flatten()
}

/// Queries the bystander's name.
fn ask(stream: &mut (impl Read + Write)) -> std::io::Result<()> {
    stream.write_all(QUERY)?;
    let mut length = [0; 2];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer)?;
    assert_eq!((answer[3] & 15, answer[7]), (0, 1), "one address: {answer:?}");
    Ok(())
}

#[test]
fn handshakes_that_never_end_lock_nobody_out() {
    let (clients, each) = if is_long() { (60, 100) } else { (20, 25) };
    let total = (clients * each + 400).to_string();
    let most = ["--tcp-connections", &total, "--tcp-connections-per-client", "20", "--tcp-read-timeout", "2s"];
    let attacked = Attacked::start(&most);
    let bystander = attacked.platform.bystander();
    let before = attacked.platform.resident_mib();
    // Nothing, the start of a record, and a record with the maximum length in its header.
    let beginnings: [&[u8]; 3] = [b"", b"\x16\x03\x01\x02\x00\x01", b"\x16\x03\x01\x3f\xff\x01\x00\x3f\xfb"];
    let mut held = Vec::new();
    for number in 0..clients * each {
        let address = [127, 2, 0, (number % clients) as u8 + 1];
        if let Ok(mut stream) = connect_from(address, attacked.tls) {
            drop(stream.write_all(beginnings[number % beginnings.len()]));
            held.push(stream);
        }
    }
    assert!(held.len() > clients * each / 2, "the attack takes place: {}", held.len());
    let began = Instant::now();
    let over_tls = || ask(&mut attacked.connect([127, 3, 0, 1])?);
    let served = (1..TRIES).find_map(|_| over_tls().ok()).map_or_else(over_tls, Ok);
    served.expect("others shake hands and are answered over TLS");
    ask(&mut connect_from([127, 3, 0, 1], attacked.platform.ports.dns).expect("connects")).expect("and over TCP");
    println!("another client was served within {:?}", began.elapsed());
    let grown = attacked.platform.resident_mib().saturating_sub(before);
    assert!(grown < 128, "{grown} MiB more");
    let refused = "signpost_dns_encrypted_closed_total{transport=\"tls\",reason=\"client\"}";
    assert!(attacked.platform.metric(refused) > 0.0, "a client has 20 places");
    // They are ended without the client's help.
    signpost_testing::eventually("they time out", || {
        (attacked.handshakes("timeout") >= (clients * 20) as f64 * 0.9).then_some(())
    });
    println!("{:?}", bystander.was_served());
}

#[test]
fn a_flood_of_handshakes_leaves_udp_and_tcp_their_time() {
    let attacked = Attacked::start(&[]);
    let bystander = attacked.platform.bystander();
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let mut slowest = Duration::ZERO;
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (attacked, stop, done) = (&attacked, &stop, &done);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    // Some send a query; most disconnect without one.
                    if attacked.connect([127, 4, 0, number + 1]).is_ok() {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let least = Instant::now() + least_time();
        while Instant::now() < least || done.load(Ordering::Relaxed) <= ATTACKS_MIN {
            let began = Instant::now();
            ask(&mut connect_from([127, 3, 0, 1], attacked.platform.ports.dns).expect("connects")).expect("over TCP");
            slowest = slowest.max(began.elapsed());
            std::thread::sleep(Duration::from_millis(20));
        }
        stop.store(true, Ordering::Relaxed);
    });
    let done = done.into_inner();
    println!("{done} handshakes; the slowest answer over a new TCP connection took {slowest:?}");
    println!("{:?}", bystander.was_served());
}

/// Returns the minimum duration of a flood. It continues until it has the minimum size, too.
fn least_time() -> Duration {
    Duration::from_secs(if is_long() { 30 } else { 3 })
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

fn post() -> http::request::Builder {
    let content = "application/dns-message";
    http::Request::post("https://localhost/dns-query").header("content-type", content).header("accept", content)
}

/// CVE-2023-44487: requests that the client cancels at once must not be worked on without bound.
#[test]
fn requests_that_are_reset_at_once_lock_nobody_out() {
    let attacked = Attacked::start(&[]);
    let bystander = attacked.platform.bystander();
    let before = attacked.platform.resident_mib();
    let sent = AtomicU64::new(0);
    runtime().block_on(async {
        let least = Instant::now() + least_time();
        let continues = || Instant::now() < least || sent.load(Ordering::Relaxed) <= RESETS_MIN;
        let attack = async |number: u8| {
            while continues() {
                let Some(mut client) = attacked.connect_http2([127, 4, 0, number]).await else { continue };
                while continues() {
                    let Ok(ready) = client.ready().await else { break };
                    client = ready;
                    let Ok((_, mut stream)) = client.send_request(post().body(()).expect("a request"), false) else {
                        break;
                    };
                    stream.send_reset(h2::Reason::CANCEL);
                    sent.fetch_add(1, Ordering::Relaxed);
                    tokio::task::yield_now().await;
                }
            }
        };
        let others = async {
            while continues() {
                assert!(attacked.serves_https().await, "another client is served");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::join!(attack(1), attack(2), others);
    });
    let (sent, grown) = (sent.into_inner(), attacked.platform.resident_mib().saturating_sub(before));
    println!("{sent} requests were reset; {grown} MiB more");
    assert!(grown < 64, "{grown} MiB more");
    println!("{:?}", bystander.was_served());
}

#[test]
fn requests_that_never_end_are_ended() {
    let attacked = Attacked::start(&["--tcp-read-timeout", "2s"]);
    let bystander = attacked.platform.bystander();
    let before = attacked.platform.resident_mib();
    let runtime = runtime();
    let (clients, each) = (8, 64);
    let held = runtime.block_on(async {
        let mut held = Vec::new();
        for number in 0..clients {
            let connected = tried(async || attacked.connect_http2([127, 4, 1, number + 1]).await).await;
            let mut client = connected.expect("connects");
            for _ in 0..each {
                let Ok(ready) = client.ready().await else { break };
                client = ready;
                let Ok((response, mut body)) = client.send_request(post().body(()).expect("a request"), false) else {
                    break;
                };
                // As much as may be sent without a window update, and no end.
                let sent = body.send_data(Bytes::from(vec![0; 16_000]), false);
                held.push((response, body, sent.is_ok()));
            }
        }
        let served = tried(async || attacked.serves_https().await.then_some(())).await;
        served.expect("another client is served");
        held
    });
    assert!(held.len() > usize::from(clients) * 16, "the attack takes place: {}", held.len());
    let grown = attacked.platform.resident_mib().saturating_sub(before);
    assert!(grown < 64, "{grown} MiB more for {} requests", held.len());
    signpost_testing::eventually("they are ended", || (attacked.closed("https", "slow_read") > 0.0).then_some(()));
    println!("{} requests, {grown} MiB more", held.len());
    println!("{:?}", bystander.was_served());
}

#[cfg(feature = "quic")]
mod quic {
    use super::*;

    impl Attacked {
        fn endpoint(&self, client: [u8; 4]) -> quinn::Endpoint {
            let mut endpoint = quinn::Endpoint::client((client, 0).into()).expect("an address of loopback");
            let tls = quinn::crypto::rustls::QuicClientConfig::try_from(self.client(b"doq")).expect("TLS 1.3");
            endpoint.set_default_client_config(quinn::ClientConfig::new(Arc::new(tls)));
            endpoint
        }

        async fn connect_quic(&self, endpoint: &quinn::Endpoint) -> Option<quinn::Connection> {
            endpoint.connect(self.quic, "localhost").ok()?.await.ok()
        }

        async fn serves_quic(&self) -> bool {
            let asked = async {
                let endpoint = self.endpoint([127, 3, 0, 1]);
                let connection = self.connect_quic(&endpoint).await?;
                let (mut send, mut receive) = connection.open_bi().await.ok()?;
                let mut query = QUERY.to_vec();
                query[2..4].fill(0);
                send.write_all(&query).await.ok()?;
                send.finish().ok()?;
                Some(receive.read_to_end(4_096).await.ok()?.len() > 12)
            };
            tokio::time::timeout(PATIENCE, asked).await.ok().flatten() == Some(true)
        }
    }

    #[test]
    fn streams_that_never_end_and_floods_of_connections_lock_nobody_out() {
        let attacked = Attacked::start(&["--tcp-read-timeout", "10s", "--tcp-connections-per-client", "20"]);
        let bystander = attacked.platform.bystander();
        let before = attacked.platform.resident_mib();
        let done = AtomicU64::new(0);
        runtime().block_on(async {
            // Streams without a whole query.
            let endpoint = attacked.endpoint([127, 5, 0, 1]);
            let mut held = Vec::new();
            for _ in 0..8 {
                let connection = attacked.connect_quic(&endpoint).await.expect("connects");
                while let Ok(Ok((mut send, receive))) =
                    tokio::time::timeout(Duration::from_millis(200), connection.open_bi()).await
                {
                    let sent = send.write_all(&QUERY[..9]).await;
                    held.push((connection.clone(), send, receive, sent.is_ok()));
                }
            }
            assert!(held.len() >= 64, "the attack takes place: {}", held.len());
            assert!(attacked.serves_quic().await, "another client is served with {} streams open", held.len());
            // Connections without a query, one after the other.
            let least = Instant::now() + least_time();
            let continues = || Instant::now() < least || done.load(Ordering::Relaxed) <= ATTACKS_MIN;
            let flood = async |number: u8| {
                let endpoint = attacked.endpoint([127, 5, 1, number]);
                while continues() {
                    let connecting = attacked.connect_quic(&endpoint);
                    if let Ok(Some(connection)) = tokio::time::timeout(Duration::from_secs(2), connecting).await {
                        done.fetch_add(1, Ordering::Relaxed);
                        connection.close(0_u32.into(), b"");
                    }
                }
            };
            let others = async {
                while continues() {
                    assert!(attacked.serves_quic().await, "another client is served during a flood");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            };
            tokio::join!(flood(1), flood(2), flood(3), others);
        });
        let (done, grown) = (done.into_inner(), attacked.platform.resident_mib().saturating_sub(before));
        println!("{done} connections; {grown} MiB more");
        assert!(grown < 128, "{grown} MiB more");
        println!("{:?}", bystander.was_served());
    }
}
