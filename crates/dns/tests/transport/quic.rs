//! DNS over QUIC: RFC 9250's rules for streams and errors, and limits for a hostile client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quinn::crypto::rustls::QuicClientConfig;
use quinn::{ClientConfig, Connection, ConnectionError, Endpoint, ReadToEndError, TransportConfig, VarInt, WriteError};
use signpost_dns::nameserver::Transport;
use signpost_dns::transport::quic::doq::Code;
use signpost_dns::transport::tls_base::ALPN_DOQ;
use signpost_dns::transport::{Config, Totals};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use tokio_rustls::rustls;

use crate::support::{A, LIMIT, PATIENCE, Server, TXT, check, framed, query, query_with_option, udp_client};
use crate::tls_client::NAME;

/// A server that answers over QUIC, too, and a place for clients.
pub struct Quic {
    pub server: Server,
    address: SocketAddr,
    runtime: Runtime,
}

impl Quic {
    fn with(change: impl FnOnce(&mut Config)) -> Quic {
        Quic::of(Server::with(|config| {
            config.quic_addresses = vec!["127.0.0.1:0".parse().unwrap()];
            change(config);
        }))
    }

    pub fn of(server: Server) -> Quic {
        let address = server.encrypted_address(Transport::Quic);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        Quic { server, address, runtime }
    }

    fn stats(&self) -> Totals {
        self.server.encrypted_stats(Transport::Quic)
    }

    fn start() -> Quic {
        Quic::with(|_| {})
    }

    /// An endpoint of clients with windows that hold nothing up.
    fn endpoint(&self) -> Endpoint {
        self.endpoint_with(|_| {})
    }

    pub fn endpoint_with(&self, change: impl FnOnce(&mut TransportConfig)) -> Endpoint {
        let _inside = self.runtime.enter();
        let mut endpoint = Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap();
        let tls = self.server.certificate.client(&[&rustls::version::TLS13], &[ALPN_DOQ]);
        let mut tls = rustls::ClientConfig::clone(&tls);
        tls.enable_early_data = true;
        let tls = QuicClientConfig::try_from(tls).unwrap();
        let mut config = ClientConfig::new(Arc::new(tls));
        let mut transport = TransportConfig::default();
        change(&mut transport);
        config.transport_config(Arc::new(transport));
        endpoint.set_default_client_config(config);
        endpoint
    }

    pub fn connect(&self, endpoint: &Endpoint) -> Result<Connection, ConnectionError> {
        self.run(async { endpoint.connect(self.address, NAME).unwrap().await })
    }

    /// Nothing of a client takes longer than the test has patience.
    pub fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(async { timeout(PATIENCE, work).await.expect("in time") })
    }

    /// Sends octets on a stream of their own, ends it, and returns the octets that come back.
    fn exchange(&self, connection: &Connection, octets: &[u8]) -> Result<Vec<u8>, ReadToEndError> {
        self.run(exchange(connection, octets))
    }

    /// Returns the code with which the server closes this connection.
    pub fn closed(&self, connection: &Connection) -> VarInt {
        match self.run(connection.closed()) {
            ConnectionError::ApplicationClosed(close) => close.error_code,
            error => panic!("{error}"),
        }
    }
}

pub async fn exchange(connection: &Connection, octets: &[u8]) -> Result<Vec<u8>, ReadToEndError> {
    let (mut send, mut receive) = connection.open_bi().await.map_err(|error| ReadToEndError::Read(error.into()))?;
    // The server may have seen enough before the end.
    drop(send.write_all(octets).await);
    drop(send.finish());
    receive.read_to_end(1_000_000).await
}

#[track_caller]
fn check_framed(reply: &[u8], query: &[u8], answers: u16) {
    assert_eq!(reply[..2], ((reply.len() - 2) as u16).to_be_bytes(), "the length");
    check(&reply[2..], query, answers);
}

/// §4.2: one query on each stream, answered with its octets alone; many at once.
#[test]
fn each_stream_has_one_query_and_its_answer() {
    let quic = Quic::start();
    let connection = quic.connect(&quic.endpoint()).unwrap();
    let large = query(0, "large.shard.example", TXT);
    check_framed(&quic.exchange(&connection, &framed(&large)).unwrap(), &large, 200);
    let padded = query_with_option(0, "app.shard.example", 12);
    let reply = quic.exchange(&connection, &framed(&padded)).unwrap();
    assert_eq!((reply.len() - 2) % 468, 0, "padded, RFC 8467 §4.1");
    quic.run(async {
        let queries: Vec<_> = (0..1_000).map(|number| query(0, &format!("app{number}.shard.example"), A)).collect();
        let exchanges: Vec<_> = queries
            .into_iter()
            .map(|query| {
                let connection = connection.clone();
                tokio::spawn(async move { (exchange(&connection, &framed(&query)).await.unwrap(), query) })
            })
            .collect();
        for exchanged in exchanges {
            let (reply, query) = exchanged.await.unwrap();
            check_framed(&reply, &query, 4);
        }
    });
    assert_eq!(quic.stats().messages, 1_002);
}

/// The octets of a query that come one by one are one query.
#[test]
fn a_query_may_come_in_parts() {
    let quic = Quic::start();
    let connection = quic.connect(&quic.endpoint()).unwrap();
    let query = query(0, "app.shard.example", A);
    let reply = quic.run(async {
        let (mut send, mut receive) = connection.open_bi().await.unwrap();
        for octet in framed(&query) {
            send.write_all(&[octet]).await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // RFC 9250 §4.2: the client "MUST indicate through the STREAM FIN mechanism that no further data will be sent".
        let early = timeout(Duration::from_millis(50), receive.read_chunk(1, true)).await;
        assert!(early.is_err(), "no answer before the end of the stream");
        send.finish().unwrap();
        receive.read_to_end(70_000).await.unwrap()
    });
    check_framed(&reply, &query, 4);
    // A large one, of an opcode that the server does not implement.
    let mut update = [&[0, 0, 0x28, 0, 0, 0, 0, 0, 0, 0, 0, 0], &[7; 60_000][..]].concat();
    let reply = quic.exchange(&connection, &framed(&update)).unwrap();
    assert_eq!(reply[5] & 15, 4, "NOTIMP");
    update.truncate(12);
    assert_eq!(quic.exchange(&connection, &framed(&update)).unwrap()[5] & 15, 4);
}

/// §4.3.3: protocol errors, which end the connection.
#[test]
fn protocol_errors_end_the_connection() {
    let quic = Quic::start();
    let good = framed(&query(0, "app.shard.example", A));
    let mut response = query(0, "app.shard.example", A);
    response[2] |= 0x80;
    for (what, octets) in [
        ("an ID", framed(&query(1, "app.shard.example", A))),
        ("keepalive, §5.5.2", framed(&query_with_option(0, "app.shard.example", 11))),
        ("two queries", good.repeat(2)),
        ("an octet more", [&good[..], &[0]].concat()),
        ("an octet less", good[..good.len() - 1].to_vec()),
        ("no octet", vec![]),
        ("an empty message", vec![0, 0]),
        ("a response", framed(&response)),
    ] {
        let connection = quic.connect(&quic.endpoint()).unwrap();
        assert!(quic.exchange(&connection, &octets).is_err(), "{what}");
        assert_eq!(quic.closed(&connection), Code::ProtocolError.into(), "{what}");
    }
    quic.server.wait_encrypted(Transport::Quic, "all malformed", |stats| stats.malformed == 8);
    // §4.3.3 of streams that are not bidirectional; no such stream is allowed.
    let connection = quic.connect(&quic.endpoint()).unwrap();
    let opened = quic.runtime.block_on(async { timeout(Duration::from_millis(50), connection.open_uni()).await });
    assert!(opened.is_err());
}

/// §5.3: a client cancels one query, and the others are answered; a flood of cancelled ones is a fault.
#[test]
fn cancelled_queries_are_forgotten() {
    let quic = Quic::start();
    let connection = quic.connect(&quic.endpoint()).unwrap();
    let query = query(0, "app.shard.example", A);
    let cancel = async || {
        let (mut send, _receive) = connection.open_bi().await.ok()?;
        send.write_all(&framed(&query)[..5]).await.ok()?;
        send.reset(Code::RequestCancelled.into()).ok()
    };
    for _ in 0..50 {
        quic.run(cancel()).unwrap();
        check_framed(&quic.exchange(&connection, &framed(&query)).unwrap(), &query, 4);
    }
    let deadline = Instant::now() + PATIENCE;
    while quic.run(cancel()).is_some() {
        assert!(Instant::now() < deadline, "it never ends");
    }
    assert_eq!(quic.closed(&connection), Code::ExcessiveLoad.into());
}

/// §4.5: queries of a resumed session come and are answered before the handshake ends.
#[test]
fn early_data_is_answered() {
    let quic = Quic::start();
    let endpoint = quic.endpoint();
    let query = query(0, "app.shard.example", A);
    let connection = quic.connect(&endpoint).unwrap();
    quic.exchange(&connection, &framed(&query)).unwrap();
    connection.close(VarInt::from_u32(0), b"");
    let mut update = [0; 12];
    update[2] = 0x28;
    for octets in [&query[..], &update] {
        let connecting = quic.run(async { endpoint.connect(quic.address, NAME).unwrap().into_0rtt() });
        let (connection, accepted) = connecting.unwrap_or_else(|_| panic!("a session to resume"));
        let reply = quic.exchange(&connection, &framed(octets));
        let reply = reply.unwrap_or_else(|error| panic!("{error}, {} octets", octets.len()));
        assert!(quic.run(accepted), "0-RTT is accepted");
        match octets.len() {
            12 => assert_eq!(reply[5] & 15, 4, "NOTIMP, after the handshake"),
            _ => check_framed(&reply, &query, 4),
        }
        // The next session's ticket comes on this connection.
        quic.exchange(&connection, &framed(&query)).unwrap();
    }
}

/// §5.5.2: silence ends a connection, also with QUIC's keep-alive; age does, too.
#[test]
fn silence_and_age_end_a_connection() {
    const LONG: Duration = Duration::from_secs(600);
    for (idle, lifetime) in [(LIMIT, LONG), (LONG, LIMIT)] {
        let quic = Quic::with(|config| {
            config.streams.idle = idle;
            config.streams.lifetime = lifetime;
        });
        let alive = |config: &mut TransportConfig| {
            config.keep_alive_interval(Some(Duration::from_millis(50)));
        };
        let connection = quic.connect(&quic.endpoint_with(alive)).unwrap();
        assert_eq!(quic.closed(&connection), Code::NoError.into());
    }
}

/// Streams that are opened and never finished end their connection, and hold up no other client.
#[test]
fn slow_queries_end_a_connection() {
    let quic = Quic::with(|config| config.streams.read = LIMIT);
    let slow = quic.connect(&quic.endpoint()).unwrap();
    let mut streams = quic.run(async {
        let mut streams = Vec::new();
        for _ in 0..100 {
            let mut stream = slow.open_bi().await.unwrap();
            // All that they may hold, with 60,000 to come.
            stream.0.write_all(&[234, 96, 0, 0]).await.unwrap();
            streams.push(stream);
        }
        streams
    });
    let others = quic.connect(&quic.endpoint()).unwrap();
    let query = query(0, "app.shard.example", A);
    check_framed(&quic.exchange(&slow, &framed(&query)).unwrap(), &query, 4);
    check_framed(&quic.exchange(&others, &framed(&query)).unwrap(), &query, 4);
    let written = quic.run(async {
        let mut written = 0;
        for (send, _) in &mut streams {
            // One continues its large query, and the others have to wait for that.
            match timeout(Duration::from_millis(20), send.write_all(&[0; 40_000])).await {
                Ok(Ok(())) => written += 1,
                Err(_) => {}
                Ok(Err(WriteError::ConnectionLost(_))) => break,
                Ok(Err(error)) => panic!("{error}"),
            }
        }
        written
    });
    assert!(written <= 1, "{written} large queries at once");
    assert_eq!(quic.closed(&slow), Code::ExcessiveLoad.into());
    quic.server.wait_encrypted(Transport::Quic, "one slow", |stats| stats.read_timeouts == 1);
    check_framed(&quic.exchange(&others, &framed(&query)).unwrap(), &query, 4);
}

/// A client that takes no answers is cut off after the time to write, and the number of waiting answers is limited.
#[test]
fn a_client_that_takes_no_answers_is_cut_off() {
    let quic = Quic::with(|config| config.streams.write = LIMIT);
    // 1 KiB of each stream.
    let narrow = |config: &mut TransportConfig| {
        config.stream_receive_window(1_024u32.into());
    };
    let greedy = quic.connect(&quic.endpoint_with(narrow)).unwrap();
    let streams = quic.run(async {
        let mut streams = Vec::new();
        for _ in 0..100 {
            let (mut send, receive) = greedy.open_bi().await.unwrap();
            drop(send.write_all(&framed(&query(0, "large.shard.example", TXT))).await);
            drop(send.finish());
            streams.push(receive);
        }
        streams
    });
    let others = quic.connect(&quic.endpoint()).unwrap();
    let query = query(0, "app.shard.example", A);
    check_framed(&quic.exchange(&others, &framed(&query)).unwrap(), &query, 4);
    assert_eq!(quic.closed(&greedy), Code::ExcessiveLoad.into());
    quic.server.wait_encrypted(Transport::Quic, "a slow one", |stats| stats.write_timeouts >= 1);
    // All are counted; two were answered.
    let answered = quic.server.requests(Transport::Quic).0;
    assert!(answered < 10, "{answered} answers were made");
    drop(streams);
}

#[test]
fn connections_are_bounded_by_client_and_in_total() {
    for (per_client, total) in [(3, 100), (100, 3)] {
        let quic = Quic::with(|config| {
            (config.streams.connections_per_client_max, config.streams.connections_max) = (per_client, total);
            config.streams.idle = Duration::from_secs(600);
        });
        let endpoint = quic.endpoint();
        let first: Vec<_> = (0..3).map(|_| quic.connect(&endpoint).unwrap()).collect();
        assert!(quic.connect(&endpoint).is_err(), "there are three");
        let stats = quic.stats();
        assert_eq!((stats.connections, stats.refused_client + stats.refused_total), (3, 1));
        first[0].close(VarInt::from_u32(0), b"");
        let deadline = Instant::now() + PATIENCE;
        while quic.connect(&endpoint).is_err() {
            assert!(Instant::now() < deadline, "no room");
        }
    }
}

/// RFC 9000 §8.1: to an address that is not proven, the server sends at most three times what it got; repeated or not.
#[test]
fn an_unproven_address_gets_at_most_three_times_its_octets() {
    let quic = Quic::start();
    let first = first_packet(&quic);
    for repeated in [1, 3] {
        let client = udp_client(quic.address);
        client.set_read_timeout(Some(Duration::from_millis(1_500))).unwrap();
        for _ in 0..repeated {
            client.send(&first).unwrap();
        }
        let mut packet = [0; 2_000];
        let mut received = client.recv(&mut packet).expect("an answer");
        while let Ok(more) = client.recv(&mut packet) {
            received += more;
        }
        assert!(received <= 3 * repeated * first.len(), "{received} octets for {repeated} x {}", first.len());
    }
    assert_eq!(quic.stats().connections, 0, "no connection before the address is proven");
}

/// First packets alone, which can have forged addresses: other clients get in, after a Retry.
#[test]
fn many_half_open_connections_keep_nobody_out() {
    let quic = Quic::with(|config| {
        config.streams.connections_per_client_max = 80;
        config.streams.read = PATIENCE;
    });
    // Its datagrams go out, and none come in: the answers to the first go to a socket without a reader.
    let flood = udp_client(quic.address);
    let first = first_packet(&quic);
    for number in 0..500u16 {
        let mut packet = first.clone();
        // Another connection each: the destination's connection ID begins at the sixth octet. It goes into the keys, so
        // the rest can no longer be read; the server does the work up to there.
        packet[6..8].copy_from_slice(&number.to_be_bytes());
        flood.send(&packet).unwrap();
    }
    let query = query(0, "app.shard.example", A);
    let connection = quic.connect(&quic.endpoint()).unwrap();
    check_framed(&quic.exchange(&connection, &framed(&query)).unwrap(), &query, 4);
}

/// The first datagram of a client.
fn first_packet(quic: &Quic) -> Vec<u8> {
    let sink = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    sink.set_read_timeout(Some(PATIENCE)).unwrap();
    let endpoint = quic.endpoint();
    let connecting = quic.run(async { endpoint.connect(sink.local_addr().unwrap(), NAME) }).unwrap();
    let mut packet = vec![0; 2_000];
    let length = sink.recv(&mut packet).unwrap();
    drop(connecting);
    packet.truncate(length);
    packet
}

#[test]
fn a_stop_answers_what_has_arrived_and_closes() {
    let mut quic = Quic::with(|config| config.streams.idle = Duration::from_secs(600));
    let endpoint = quic.endpoint();
    let connections: Vec<_> = (0..10).map(|_| quic.connect(&endpoint).unwrap()).collect();
    let query = query(0, "large.shard.example", TXT);
    let asked: Vec<_> = connections
        .iter()
        .map(|connection| {
            let (connection, query) = (connection.clone(), query.clone());
            quic.runtime.spawn(async move { exchange(&connection, &framed(&query)).await })
        })
        .collect();
    quic.server.wait_encrypted(Transport::Quic, "all queries", |stats| stats.messages == 10);
    quic.server.stop();
    for asked in asked {
        let reply = quic.run(asked).unwrap().expect("an answer");
        check_framed(&reply, &query, 200);
    }
    for connection in &connections {
        assert_eq!(quic.closed(connection), Code::NoError.into());
    }
    let again = async { timeout(Duration::from_millis(200), endpoint.connect(quic.address, NAME).unwrap()).await };
    assert!(quic.run(again).is_err());
}
