//! Datagrams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use signpost_dns::nameserver::Settings;

use crate::support::{A, PATIENCE, Server, TXT, ask, check, query, query_with_option, shard, udp_client};

#[test]
fn every_query_of_full_batches_is_answered() {
    let server = Server::with(|config| config.addresses.push("[::1]:0".parse().unwrap()));
    for address in &server.addresses {
        let clients: Vec<_> = (0..4).map(|_| udp_client(*address)).collect();
        for round in 0..5u16 {
            let queries: Vec<_> =
                (0..100).map(|id| query(round * 100 + id, &format!("a{id}.shard.example"), A)).collect();
            for client in &clients {
                for query in &queries {
                    client.send(query).unwrap();
                }
            }
            for client in &clients {
                let mut left: Vec<_> = queries.iter().collect();
                let mut reply = [0; 2048];
                while !left.is_empty() {
                    let length = client.recv(&mut reply).expect("every query is answered");
                    let place = left.iter().position(|query| query[..2] == reply[..2]).expect("answered once");
                    check(&reply[..length], left.swap_remove(place), 4);
                }
            }
        }
    }
    // A batch is counted once it is sent.
    server.wait("the last batch's counts", |stats| stats.replies == 4_000);
    let stats = server.stats();
    assert_eq!((stats.datagrams, stats.replies, stats.send_errors), (4_000, 4_000, 0));
    assert!(stats.batches <= 4_000);
    assert_eq!(server.queries(), (4_000, 0));
}

#[test]
fn pipelined_queries_get_their_own_answers_with_gso_and_without() {
    for gso in [true, false] {
        let server = Server::with(|config| {
            config.udp_gso = gso;
            config.addresses =
                ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0", "[::]:0"].map(|address| address.parse().unwrap()).into();
        });
        for address in &server.addresses {
            let asked: &[&str] = match (address.is_ipv4(), address.ip().is_unspecified()) {
                (true, true) => &["127.0.0.1", "127.0.0.9"],
                (true, false) => &["127.0.0.1"],
                (false, _) => &["::1"],
            };
            let asked = asked.iter().map(|ip| SocketAddr::new(ip.parse().unwrap(), address.port()));
            let clients: Vec<_> = asked.map(udp_client).collect();
            // Names of a few lengths, and answers cut short among them: what is alike travels together.
            let queries: Vec<_> = (0..120u16)
                .map(|id| match id % 10 {
                    9 => query(id, "large.shard.example", TXT),
                    kind => query(id, &format!("{}.shard.example", "n".repeat(1 + usize::from(kind % 4))), A),
                })
                .collect();
            for client in &clients {
                queries.iter().for_each(|query| assert_eq!(client.send(query).unwrap(), query.len()));
            }
            for client in &clients {
                let mut left: Vec<_> = queries.iter().collect();
                let mut reply = [0; 2048];
                while !left.is_empty() {
                    let length = client.recv(&mut reply).expect("every query is answered");
                    let place = left.iter().position(|query| query[..2] == reply[..2]).expect("answered once");
                    let query = left.swap_remove(place);
                    match query.ends_with(&[0, 16, 0, 1]) {
                        true => assert_eq!((reply[2] & 0x86, &reply[12..query.len()]), (0x86, &query[12..])),
                        false => check(&reply[..length], query, 4),
                    }
                }
            }
        }
        // A batch is counted when it has been sent.
        server.wait("all counted", |stats| stats.replies == 600);
        let stats = server.stats();
        assert_eq!((stats.send_errors, stats.gso_refused), (0, 0), "{stats:?}");
        assert!(gso || stats.gso_messages == 0, "{stats:?}");
    }
}

#[test]
fn answers_come_from_the_address_that_was_asked() {
    let server =
        Server::with(|config| config.addresses = vec!["0.0.0.0:0".parse().unwrap(), "[::]:0".parse().unwrap()]);
    let [v4, v6] = [server.addresses[0].port(), server.addresses[1].port()];
    // A connected client takes datagrams from the address it queried and no other.
    for address in [[127, 0, 0, 1], [127, 0, 0, 2], [127, 1, 2, 3]] {
        let client = udp_client(SocketAddr::from((address, v4)));
        (0..3).for_each(|id| ask(&client, id, 4));
    }
    let client = udp_client(SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, v6)));
    (0..3).for_each(|id| ask(&client, id, 4));
}

#[test]
fn large_answers_are_truncated() {
    let server = Server::start();
    let client = udp_client(server.address());
    client.send(&query(9, "large.shard.example", TXT)).unwrap();
    let mut reply = [0; 4096];
    let length = client.recv(&mut reply).unwrap();
    assert!(length <= 512, "{length} octets without EDNS");
    assert_eq!(reply[2] & 0x82, 0x82, "a response with TC");
}

#[test]
fn responses_are_never_answered() {
    let server = Server::start();
    let client = udp_client(server.address());
    let mut response = query(1, "app.shard.example", A);
    response[2] |= 0x80;
    for octets in [&response[..], &[], &[0; 11]] {
        client.send(octets).unwrap();
    }
    // The next one is: had there been an answer before, it would come first.
    ask(&client, 2, 4);
    server.wait("all four", |stats| stats.datagrams == 4 && stats.replies > 0);
    assert_eq!(server.stats().replies, 1);
}

#[test]
fn answers_flow_during_a_flood_of_garbage() {
    let server = Server::start();
    let stop = Arc::new(AtomicBool::new(false));
    let flood = std::thread::spawn({
        let (stop, client) = (Arc::clone(&stop), udp_client(server.address()));
        move || {
            let mut state = 1u64;
            let mut octets = [0; 600];
            while !stop.load(Ordering::Relaxed) {
                for octet in &mut octets {
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    *octet = (state >> 56) as u8;
                }
                // A quarter looks like a query at least up to the question.
                if state & 3 == 0 {
                    octets[2..12].copy_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
                }
                let length = (state >> 32) as usize % octets.len();
                // Refusals of a full queue are what a flood meets.
                drop(client.send(&octets[..length]));
            }
        }
    });
    // Some queries may drown in a full socket; a resolver retries, and so does this.
    let client = udp_client(server.address());
    client.set_read_timeout(Some(std::time::Duration::from_millis(20))).unwrap();
    let mut answered = 0u32;
    let deadline = Instant::now() + PATIENCE;
    // The flood's thread may start late, and so the queries end only after many of its datagrams.
    while answered < 200 || server.stats().datagrams < u64::from(answered) + 1_000 {
        assert!(Instant::now() < deadline, "only {answered} answers; {:?}", server.stats());
        let query = query(answered as u16, "app.shard.example", A);
        client.send(&query).unwrap();
        let mut reply = [0; 2048];
        while let Ok(length) = client.recv(&mut reply) {
            if reply[..2] == query[..2] {
                check(&reply[..length], &query, 4);
                answered += 1;
                break;
            }
        }
    }
    stop.store(true, Ordering::Relaxed);
    flood.join().unwrap();
    assert_eq!(server.stats().panics, 0);
}

#[test]
fn new_zones_and_settings_show_in_the_next_answer() {
    let server = Server::start();
    let client = udp_client(server.address());
    ask(&client, 1, 4);
    server.db.publish(shard(7));
    ask(&client, 2, 7);
    // Settings, shown by an NSID (RFC 5001).
    let nsid = |id| {
        client.send(&query_with_option(id, "app.shard.example", 3)).unwrap();
        let mut reply = [0; 2048];
        let length = client.recv(&mut reply).unwrap();
        reply[..length].windows(4).any(|octets| octets == b"ns-1")
    };
    assert!(!nsid(3));
    server.settings.store(Arc::new(Settings { nsid: Some((*b"ns-1").into()), ..Settings::default() }));
    assert!(nsid(4));
}

#[test]
fn what_arrived_before_the_stop_is_answered() {
    let mut server = Server::with(|config| config.udp_workers = 1);
    let client = udp_client(server.address());
    ask(&client, 0, 4);
    let queries: Vec<_> = (1..=50).map(|id| query(id, "app.shard.example", A)).collect();
    for query in &queries {
        client.send(query).unwrap();
    }
    server.stop();
    for query in &queries {
        let mut reply = [0; 2048];
        let length = client.recv(&mut reply).expect("answered before the end");
        check(&reply[..length], query, 4);
    }
    client.send(&queries[0]).unwrap();
    assert!(client.recv(&mut [0; 2048]).is_err(), "the socket is closed");
}

/// More octets than the server advertises, here mostly padding (RFC 7830), are still a whole query, up to the
/// longest datagram.
#[test]
fn large_queries_are_read_whole() {
    let server = Server::start();
    let client = udp_client(server.address());
    for octets in [2_049, 4_096, 4_097, 65_507] {
        let mut query = query_with_option(octets as u16, "app.shard.example", 12);
        let padding = octets - query.len();
        let at = query.len() - 2;
        query[at - 4..at - 2].copy_from_slice(&(padding as u16 + 4).to_be_bytes());
        query[at..].copy_from_slice(&(padding as u16).to_be_bytes());
        query.resize(octets, 0);
        client.send(&query).unwrap();
        let mut reply = [0; 2048];
        let length = client.recv(&mut reply).expect("an answer");
        assert_eq!((&reply[..2], reply[3] & 15, reply[7]), (&query[..2], 0, 4), "{octets}: {:?}", &reply[..length]);
    }
}
