//! DNS over TLS (RFC 7858): handshakes, and what is different from TCP. Bounds that are those of TCP are in `stream.rs`, and
//! that answers are the same in `tests/conformance`.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use aws_lc_rs::aead::{self, AES_256_GCM, LessSafeKey, NONCE_LEN, UnboundKey};
use signpost_dns::nameserver::Transport;
use signpost_dns::transport::Config;
use tokio_rustls::rustls::crypto::cipher::Nonce;
use tokio_rustls::rustls::{ConnectionTrafficSecrets, DEFAULT_VERSIONS, HandshakeKind, version};

use crate::support::{A, LIMIT, PATIENCE, Server, TXT, ask_on, check, framed, query, query_with_option, receive};
use crate::tls_client::{TlsStream, connect_tls};

const TLS: Transport = Transport::Tls;

fn server(change: impl FnOnce(&mut Config)) -> Server {
    Server::with(|config| {
        config.tls_addresses = vec!["127.0.0.1:0".parse().unwrap()];
        change(config);
    })
}

pub fn connect(server: &Server) -> TlsStream {
    let client = server.certificate.client(DEFAULT_VERSIONS, &[b"dot"]);
    connect_tls(server.tls_addresses[0], &client, PATIENCE).expect("a connection")
}

/// A connection that never sends a TLS message.
fn silent(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.tls_addresses[0]).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads to the end of the stream.
fn is_over(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0; 4096]) {
        Ok(0) => true,
        Ok(_) => is_over(stream),
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn pipelined_queries_in_records_of_their_own_are_all_answered_and_counted() {
    let server = server(|_| {});
    let mut stream = connect(&server);
    let queries: Vec<_> = (0..1_000).map(|id| query(id, &format!("app{id}.shard.example"), A)).collect();
    queries.iter().for_each(|query| stream.write_all(&framed(query)).unwrap());
    for query in &queries {
        check(&receive(&mut stream).expect("an answer"), query, 4);
    }
    // Many in one record, and one that has a large answer.
    stream.write_all(&queries.iter().flat_map(|query| framed(query)).collect::<Vec<_>>()).unwrap();
    let large = query(7, "large.shard.example", TXT);
    stream.write_all(&framed(&large)).unwrap();
    for query in &queries {
        check(&receive(&mut stream).expect("an answer"), query, 4);
    }
    check(&receive(&mut stream).expect("an answer"), &large, 200);
    server.wait_encrypted(TLS, "all messages", |stats| stats.messages == 2_001);
    assert_eq!((server.encrypted_stats(TLS).connections, server.requests(TLS).0), (1, 2_001));
    assert_eq!((server.stats().messages, server.requests(Transport::Tcp).0), (0, 0), "they are not of TCP");
}

#[test]
fn other_protocols_are_refused_and_none_is_not() {
    let server = server(|_| {});
    let connect = |versions, alpn: &[&[u8]]| {
        connect_tls(server.tls_addresses[0], &server.certificate.client(versions, alpn), PATIENCE)
    };
    for versions in [&[&version::TLS13][..], &[&version::TLS12]] {
        for (alpn, chosen) in
            [(&[][..], None), (&[&b"dot"[..]], Some(&b"dot"[..])), (&[&b"h2"[..], b"dot"], Some(b"dot"))]
        {
            let mut stream = connect(versions, alpn).expect("a connection");
            assert_eq!(stream.conn.alpn_protocol(), chosen);
            ask_on(&mut stream, 1, 4);
        }
        let error = connect(versions, &[b"h2"]).expect_err("is refused").to_string();
        assert!(error.contains("NoApplicationProtocol"), "{error}");
    }
    // A client that trusts another certificate.
    let stranger = crate::tls_client::Certificate::new().client(DEFAULT_VERSIONS, &[]);
    connect_tls(server.tls_addresses[0], &stranger, PATIENCE).expect_err("does not trust it");
    // And one that speaks no TLS.
    let mut plain = silent(&server);
    plain.write_all(&framed(&query(1, "app.shard.example", A))).unwrap();
    assert!(is_over(&mut plain));
    server.wait_encrypted(TLS, "the failures", |stats| {
        (stats.handshakes_no_protocol, stats.handshakes_invalid, stats.handshakes_refused_by_client) == (2, 1, 1)
    });
    assert_eq!(server.encrypted_stats(TLS).handshakes_full, 6);
}

#[test]
fn a_session_is_resumed_and_a_new_certificate_shows_with_the_next_one() {
    let server = server(|_| {});
    for versions in [&[&version::TLS13][..], &[&version::TLS12]] {
        let client = server.certificate.client(versions, &[b"dot"]);
        let kinds: Vec<_> = (0..3)
            .map(|id| {
                let mut stream = connect_tls(server.tls_addresses[0], &client, PATIENCE).expect("a connection");
                // Tickets come with the next read.
                ask_on(&mut stream, id, 4);
                stream.conn.handshake_kind().unwrap()
            })
            .collect();
        assert_eq!(kinds, [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed]);
    }
    let mut before = connect(&server);
    let old = server.certificate.client(DEFAULT_VERSIONS, &[]);
    server.certificate.replace();
    connect_tls(server.tls_addresses[0], &old, PATIENCE).expect_err("the former certificate is not shown");
    ask_on(&mut connect(&server), 1, 4);
    ask_on(&mut before, 2, 4);
    let stats = server.encrypted_stats(TLS);
    assert_eq!((stats.handshakes_full, stats.handshakes_resumed), (4, 4));
}

#[test]
fn handshakes_that_never_end_are_ended_and_take_no_place_of_others() {
    let server = server(|config| {
        config.streams.read = LIMIT;
        config.streams.idle = Duration::from_secs(600);
        config.streams.connections_per_client_max = 3;
    });
    let mut patient = connect(&server);
    let mut stuck: Vec<_> = (0..2).map(|_| silent(&server)).collect();
    // The beginning of a record, whose rest never comes.
    stuck[0].write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    let mut fourth = silent(&server);
    assert!(is_over(&mut fourth), "half a connection is a connection");
    server.wait_encrypted(TLS, "the refusal", |stats| stats.refused_client == 1);
    ask_on(&mut TcpStream::connect(server.address()).unwrap(), 1, 4);
    stuck.iter_mut().for_each(|stream| assert!(is_over(stream)));
    server.wait_encrypted(TLS, "both", |stats| stats.handshake_timeouts == 2);
    ask_on(&mut patient, 2, 4);
    let deadline = Instant::now() + PATIENCE;
    let client = server.certificate.client(DEFAULT_VERSIONS, &[]);
    while connect_tls(server.tls_addresses[0], &client, PATIENCE).is_err() {
        assert!(Instant::now() < deadline, "their places are free");
    }
}

#[test]
fn silence_and_the_clients_goodbye_end_a_connection_with_ours() {
    let server = server(|config| config.streams.idle = LIMIT);
    // `receive` is `None` only after close_notify: rustls reports an end without it as an error.
    assert_eq!(receive(&mut connect(&server)), None);
    server.wait_encrypted(TLS, "one idle", |stats| stats.idle_timeouts == 1);
    let mut stream = connect(&server);
    let query = query(1, "app.shard.example", A);
    stream.write_all(&framed(&query)).unwrap();
    stream.conn.send_close_notify();
    stream.conn.write_tls(&mut stream.sock).unwrap();
    check(&receive(&mut stream).expect("an answer after the goodbye"), &query, 4);
    assert_eq!(receive(&mut stream), None);
    // A close without a notification is not a fault.
    let mut stream = connect(&server);
    ask_on(&mut stream, 2, 4);
    drop(stream.sock);
    let done = |stats: &signpost_dns::transport::Totals| stats.handshakes_full == 3;
    server.wait_encrypted(TLS, "all", done);
    assert_eq!(server.encrypted_stats(TLS).broken, 0);
}

/// A connection's records that hold nothing, which no well-behaved client makes, as many as wanted.
fn empty_records(stream: TlsStream) -> (TcpStream, impl FnMut() -> Vec<u8>) {
    let (mut sequence, secrets) = stream.conn.dangerous_extract_secrets().unwrap().tx;
    let ConnectionTrafficSecrets::Aes256Gcm { key, iv } = secrets else { panic!("another cipher") };
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key.as_ref()).unwrap());
    let next = move || {
        let nonce: [u8; NONCE_LEN] = Nonce::new(&iv, sequence).0;
        sequence += 1;
        // RFC 8446 §5.2: the type of the content, and nothing before it.
        let (mut record, mut sealed) = (vec![23, 3, 3, 0, 17], vec![23]);
        let nonce = aead::Nonce::assume_unique_for_key(nonce);
        key.seal_in_place_append_tag(nonce, aead::Aad::from(&record[..]), &mut sealed).unwrap();
        record.extend(sealed);
        record
    };
    (stream.sock, next)
}

#[test]
fn records_that_hold_nothing_end_a_connection() {
    let server = server(|config| config.streams.idle = Duration::from_secs(600));
    let mut client = (*server.certificate.client(&[&version::TLS13], &[])).clone();
    client.enable_secret_extraction = true;
    let client = std::sync::Arc::new(client);
    let stream = connect_tls(server.tls_addresses[0], &client, PATIENCE).expect("a connection");
    let (mut socket, mut next) = empty_records(stream);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let records: Vec<u8> = (0..2_000).flat_map(|_| next()).collect();
        if socket.write_all(&records).is_err() {
            break;
        }
        assert!(Instant::now() < deadline, "{:?}", server.encrypted_stats(TLS));
    }
    // The first of them may come with the handshake's last message.
    server.wait_encrypted(TLS, "its end", |stats| stats.broken + stats.handshakes_invalid == 1);
}

#[test]
fn requests_of_new_keys_are_bounded() {
    let server = server(|config| config.streams.idle = Duration::from_secs(600));
    let mut stream = connect(&server);
    // The server has ended its part of the handshake when it answers.
    stream.write_all(&framed(&query(1, "app.shard.example", A))).unwrap();
    receive(&mut stream).expect("an answer");
    let deadline = Instant::now() + PATIENCE;
    while stream.conn.refresh_traffic_keys().is_ok() && stream.flush().is_ok() {
        assert!(Instant::now() < deadline, "{:?}", server.encrypted_stats(TLS));
    }
    server.wait_encrypted(TLS, "it is ended", |stats| stats.broken == 1);
}

#[test]
fn padding_and_keepalive_are_answered() {
    let server = server(|config| config.streams.idle = Duration::from_secs(30));
    let mut stream = connect(&server);
    let padded = query_with_option(1, "app.shard.example", 12);
    stream.write_all(&framed(&padded)).unwrap();
    assert_eq!(receive(&mut stream).expect("an answer").len(), 468);
    let asks = query_with_option(2, "app.shard.example", 11);
    stream.write_all(&framed(&asks)).unwrap();
    let answer = receive(&mut stream).expect("an answer");
    assert!(answer.ends_with(&[0, 11, 0, 2, 1, 44]), "30 s: {answer:?}");
}

#[test]
fn a_stop_answers_what_has_arrived_and_says_goodbye() {
    let mut server = server(|_| {});
    let mut streams: Vec<_> = (0..3).map(|_| connect(&server)).collect();
    let query = query(1, "app.shard.example", A);
    streams.iter_mut().for_each(|stream| stream.write_all(&framed(&query)).unwrap());
    server.wait_encrypted(TLS, "the handshakes", |stats| stats.handshakes_full == 3);
    server.stop();
    for stream in &mut streams {
        check(&receive(stream).expect("an answer"), &query, 4);
        assert_eq!(receive(stream), None);
    }
}
