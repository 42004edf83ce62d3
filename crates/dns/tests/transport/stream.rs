//! TCP: bounds and timeouts. The tests of RFC 7766's queries and answers are under `tests/conformance/rfc7766`.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use crate::support::{
    A, PATIENCE, Server, TXT, ask, ask_on, check, connect, connect_from, framed, query, query_with_option, receive,
    shard, udp_client,
};

#[test]
fn connections_are_bounded_by_client_and_in_total() {
    let server = Server::with(|config| {
        config.addresses = vec!["0.0.0.0:0".parse().unwrap()];
        config.streams.connections_per_client_max = 3;
        config.streams.connections_max = 5;
        // A tenth of it where there is a crowd.
        config.streams.idle = Duration::from_secs(600);
    });
    let from = |client: u8| connect_from(Ipv4Addr::new(127, 0, 0, client), &server);
    let mut first: Vec<_> = (0..3).map(|_| from(1)).collect();
    first.iter_mut().for_each(|stream| ask_on(stream, 1, 4));
    assert_eq!(receive(&mut from(1)), None, "the client has three");
    let mut second: Vec<_> = (0..2).map(|_| from(2)).collect();
    second.iter_mut().for_each(|stream| ask_on(stream, 2, 4));
    assert_eq!(receive(&mut from(3)), None, "there are five");
    let stats = server.stats();
    assert_eq!((stats.connections, stats.refused_client, stats.refused_total), (5, 1, 1));
    // Who leaves makes room.
    drop(first);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut stream = from(3);
        drop(stream.write_all(&framed(&query(3, "app.shard.example", A))));
        if receive(&mut stream).is_some() {
            break;
        }
        assert!(Instant::now() < deadline, "no room");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn silence_ends_a_connection() {
    let server = Server::with(|config| config.streams.idle = Duration::from_millis(300));
    // Silent from the start.
    assert_eq!(receive(&mut connect(&server)), None);
    server.wait("one idle", |stats| stats.idle_timeouts == 1);
    // Silent after a query; on a busy machine the query may come too late.
    let deadline = Instant::now() + PATIENCE;
    let query = query(1, "app.shard.example", A);
    loop {
        let mut stream = connect(&server);
        if stream.write_all(&framed(&query)).is_ok()
            && let Some(answer) = receive(&mut stream)
        {
            check(&answer, &query, 4);
            assert_eq!(receive(&mut stream), None);
            break;
        }
        assert!(Instant::now() < deadline, "each query came too late");
    }
    server.wait("another idle", |stats| stats.idle_timeouts >= 2);
}

#[test]
fn slowness_ends_a_connection() {
    let server = Server::with(|config| {
        config.streams.idle = Duration::from_secs(600);
        config.streams.read = Duration::from_millis(100);
    });
    // A message that trickles in is not kept alive by each octet.
    let mut slow = connect(&server);
    let trickle = framed(&[0; 60_000]);
    let deadline = Instant::now() + PATIENCE;
    for octet in trickle {
        if slow.write_all(&[octet]).is_err() {
            break;
        }
        assert!(Instant::now() < deadline, "it continues; {:?}", server.stats());
        std::thread::sleep(Duration::from_millis(20));
    }
    server.wait("one slow", |stats| stats.read_timeouts == 1);
}

#[test]
fn age_ends_a_connection() {
    const LIFETIME: Duration = Duration::from_millis(700);
    let server = Server::with(|config| {
        (config.streams.idle, config.streams.lifetime) = (Duration::from_secs(600), LIFETIME);
    });
    let began = Instant::now();
    // It is never silent.
    let mut busy = connect(&server);
    let query = query(1, "app.shard.example", A);
    while busy.write_all(&framed(&query)).is_ok() && receive(&mut busy).is_some() {
        assert!(began.elapsed() < PATIENCE, "it never ends");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(began.elapsed() >= LIFETIME, "{:?}", began.elapsed());
}

#[test]
fn a_client_that_never_reads_is_cut_off_and_harms_nobody() {
    let server = Server::with(|config| config.streams.write = Duration::from_millis(300));
    let mut greedy: Vec<_> = (0..4).map(|_| connect(&server)).collect();
    let queries = framed(&query(1, "large.shard.example", TXT)).repeat(2_000);
    // 80 MB of answers each; the server reads only queries whose answers it can hold, so this may block.
    for stream in &mut greedy {
        stream.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        drop(stream.write_all(&queries));
    }
    let udp = udp_client(server.address());
    let mut patient = connect(&server);
    let deadline = Instant::now() + PATIENCE;
    let mut id = 0;
    while server.stats().write_timeouts < 4 {
        assert!(Instant::now() < deadline, "{:?}", server.stats());
        ask(&udp, id, 4);
        ask_on(&mut patient, id, 4);
        id += 1;
    }
    // Those of the patient client count, too.
    let of_greedy = server.stats().messages - u64::from(id);
    assert!(of_greedy < 4 * 2_000, "it did not read on while answers waited");
}

#[test]
fn a_thousand_idle_connections_do_not_disturb() {
    // Each has two ends here.
    let files = signpost_dns::sys::files::raise_open_files_max().unwrap();
    let count = 1_000.min(files as usize / 2 - 200);
    let server = Server::with(|config| {
        (config.streams.connections_per_client_max, config.streams.idle) = (5_000, Duration::from_secs(600));
    });
    let mut idle: Vec<_> = (0..count).map(|_| connect(&server)).collect();
    server.wait("all connections", |stats| stats.connections == count as u64);
    let udp = udp_client(server.address());
    for id in 0..100 {
        ask(&udp, id, 4);
    }
    for (id, stream) in idle.iter_mut().enumerate().step_by(100) {
        ask_on(stream, id as u16, 4);
    }
}

#[test]
fn keepalive_is_answered_on_request() {
    let server = Server::with(|config| {
        // Longer than the test has patience; a tenth of it is not.
        (config.streams.connections_max, config.streams.idle) = (4, Duration::from_secs(70));
    });
    // RFC 7828: option 11, two octets, in units of 100 ms.
    let timeout = |stream: &mut TcpStream, query: &[u8]| {
        stream.write_all(&framed(query)).unwrap();
        let answer = receive(stream).expect("an answer");
        answer
            .windows(6)
            .find(|octets| octets[..4] == [0, 11, 0, 2])
            .map(|octets| u16::from_be_bytes([octets[4], octets[5]]))
    };
    let asks = |id| query_with_option(id, "app.shard.example", 11);
    let mut stream = connect(&server);
    assert_eq!(timeout(&mut stream, &query(1, "app.shard.example", A)), None);
    assert_eq!(timeout(&mut stream, &asks(2)), Some(700));
    // A connection that is crowded may be silent for a tenth of that, and gets that value.
    let mut others: Vec<_> = (0..3).map(|_| connect(&server)).collect();
    others.iter_mut().for_each(|stream| ask_on(stream, 1, 4));
    assert_eq!(timeout(&mut stream, &asks(3)), Some(70));
    assert_eq!(receive(&mut stream), None);
}

#[test]
fn a_stop_answers_what_has_arrived_and_closes_the_rest() {
    // If the stop only waited for a connection, it would wait longer than the test has patience.
    let mut server = Server::with(|config| config.streams.idle = Duration::from_secs(600));
    let mut streams: Vec<_> = (0..20).map(|_| connect(&server)).collect();
    streams.iter_mut().for_each(|stream| ask_on(stream, 1, 4));
    server.db.publish(shard(5));
    let query = query(2, "app.shard.example", A);
    streams.iter_mut().step_by(2).for_each(|stream| stream.write_all(&framed(&query)).unwrap());
    server.stop();
    for (number, stream) in streams.iter_mut().enumerate() {
        if number % 2 == 0 {
            check(&receive(stream).expect("an answer"), &query, 5);
        }
        assert_eq!(receive(stream), None);
    }
    assert!(TcpStream::connect(server.address()).is_err());
}
