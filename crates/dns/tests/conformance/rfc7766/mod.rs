//! RFC 7766: queries over TCP, to a running server on loopback. Bounds and timeouts are in `tests/transport/stream.rs`.
#![allow(clippy::unwrap_used, reason = "a test fails by its panic")]

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use crate::support::{A, Server, TXT, ask_on, check, connect, framed, query, receive, udp_client};

/// §5: "All general-purpose DNS implementations MUST support both UDP and TCP transport": what is truncated in one has its whole
/// in the other.
#[test]
fn section_5_what_udp_truncates_a_stream_has_whole() {
    let server = Server::start();
    let query = query(5, "large.shard.example", TXT);
    let client = udp_client(server.address());
    client.send(&query).unwrap();
    let mut reply = [0; 2048];
    let length = client.recv(&mut reply).expect("an answer");
    assert!(length <= 512 && reply[2] & 0x02 != 0, "it is truncated");
    let mut stream = connect(&server);
    stream.write_all(&framed(&query)).unwrap();
    let answer = receive(&mut stream).expect("an answer");
    check(&answer, &query, 200);
    assert!(answer.len() > 40_000);
}

/// §6.2.1: a connection may be used for one query after another, and so it "SHOULD".
#[test]
fn section_6_2_1_a_connection_is_used_again() {
    let server = Server::start();
    let mut stream = connect(&server);
    (0..50).for_each(|id| ask_on(&mut stream, id, 4));
    assert_eq!(server.stats().connections, 1);
}

/// §6.2.1.1: clients send queries without waiting for answers, and the server answers all.
#[test]
fn trap_54_section_6_2_1_1_pipelined_queries_are_all_answered() {
    let server = Server::with(|config| config.addresses = vec!["[::1]:0".parse().unwrap()]);
    let mut stream = connect(&server);
    let queries: Vec<_> = (0..1_000).map(|id| query(id, &format!("app{id}.shard.example"), A)).collect();
    let octets: Vec<u8> = queries.iter().flat_map(|query| framed(query)).collect();
    stream.write_all(&octets).unwrap();
    for query in &queries {
        check(&receive(&mut stream).expect("an answer"), query, 4);
    }
    assert_eq!((server.stats().messages, server.queries()), (1_000, (0, 1_000)));
}

/// §6.2.4: a client that closes its side, having sent queries, still gets the answers.
#[test]
fn trap_56_section_6_2_4_a_client_that_has_said_all_still_gets_its_answers() {
    let server = Server::start();
    let mut stream = connect(&server);
    let queries: Vec<_> = (0..20).map(|id| query(id, "app.shard.example", A)).collect();
    queries.iter().for_each(|query| stream.write_all(&framed(query)).unwrap());
    // And the beginning of one more, which no server can answer.
    stream.write_all(&[0, 30, 1, 2, 3]).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    for query in &queries {
        check(&receive(&mut stream).expect("an answer"), query, 4);
    }
    assert_eq!(receive(&mut stream), None);
}

/// §7: answers "MAY" come in another order than the queries; the client matches them by their identifiers, so that each answers its
/// own query in any order. With equal identifiers the question does.
#[test]
fn section_7_answers_are_matched_by_identifier_and_question() {
    let server = Server::start();
    let mut stream = connect(&server);
    let queries: Vec<_> = (0..40u16)
        .map(|number| match number % 4 {
            0 => query(number, "large.shard.example", TXT),
            1 => query(7, &format!("app{number}.shard.example"), A),
            _ => query(number, "app.shard.example", A),
        })
        .collect();
    stream.write_all(&queries.iter().flat_map(|query| framed(query)).collect::<Vec<_>>()).unwrap();
    let mut unanswered = queries.clone();
    for _ in &queries {
        let answer = receive(&mut stream).expect("an answer");
        let asked = |query: &Vec<u8>| answer[..2] == query[..2] && answer[12..].starts_with(&query[12..]);
        let at = unanswered.iter().position(asked).expect("it was sent, and not answered yet");
        let query = unanswered.swap_remove(at);
        check(&answer, &query, if answer.len() > 1000 { 200 } else { 4 });
    }
}

/// §8: the two octets of the length and the message may come in any pieces, and several messages in one.
#[test]
fn trap_55_section_8_messages_may_come_in_any_pieces() {
    let server = Server::start();
    let mut stream = connect(&server);
    let queries: Vec<_> = (0..3).map(|id| query(id, "app.shard.example", A)).collect();
    let octets: Vec<u8> = queries.iter().flat_map(|query| framed(query)).collect();
    for piece in [1, 2, 3, octets.len() / 3 + 1, octets.len() - 1] {
        for part in octets.chunks(piece) {
            stream.write_all(part).unwrap();
            if piece < 3 {
                std::thread::sleep(Duration::from_micros(100));
            }
        }
        for query in &queries {
            check(&receive(&mut stream).expect("an answer"), query, 4);
        }
    }
}

/// §8: answers of any length go whole, one after another.
#[test]
fn section_8_large_answers_come_whole() {
    let server = Server::start();
    let mut stream = connect(&server);
    let query = query(5, "large.shard.example", TXT);
    for _ in 0..3 {
        stream.write_all(&framed(&query)).unwrap();
        let answer = receive(&mut stream).expect("an answer");
        check(&answer, &query, 200);
        assert!(answer.len() > 40_000);
    }
}

/// §8: after an invalid message no later one can be found; the answers before it are sent, and the connection ends.
#[test]
fn trap_55_section_8_what_is_no_message_ends_the_connection_after_the_answers_before_it() {
    let mut response = query(2, "app.shard.example", A);
    response[2] |= 0x80;
    for bad in [framed(&[]), framed(&[0; 11]), vec![0, 5], framed(&response)] {
        let server = Server::start();
        let mut stream = connect(&server);
        let good = query(1, "app.shard.example", A);
        // More than is read at once follows, which must not turn the answer into a reset.
        let octets = [framed(&good), bad, vec![7; 10_000]].concat();
        stream.write_all(&octets).unwrap();
        check(&receive(&mut stream).expect("an answer"), &good, 4);
        assert_eq!(receive(&mut stream), None);
        server.wait("the count", |stats| stats.malformed == 1);
    }
}
