//! Batches over real sockets of loopback.

use super::*;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

/// A socket that gives up waiting, and its address.
fn socket(address: &str) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

#[test]
fn nothing_to_receive_is_no_batch() {
    let (server, _) = socket("127.0.0.1:0");
    server.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut batch = Batch::new();
    for wait in [Wait::No, Wait::ForOne] {
        assert_eq!(batch.receive(server.as_fd(), wait).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(batch.each().count(), 0);
    }
}

#[test]
fn one_reply_that_cannot_go_does_not_stop_the_others() {
    let (server, there) = socket("127.0.0.1:0");
    let (client, _) = socket("127.0.0.1:0");
    for number in 0..3 {
        client.send_to(&[number], there).unwrap();
    }
    let mut batch = Batch::new();
    assert_eq!(batch.receive(server.as_fd(), Wait::ForOne).unwrap(), 3);
    batch.each().for_each(|datagram| datagram.reply[0] = datagram.query[0]);
    (0..3).for_each(|slot| batch.queue(slot, 1));
    // Port 0 is nowhere: the second reply fails.
    batch.sources.get_mut(1).sin6_port = 0;
    assert_eq!(batch.send(server.as_fd()), Sent { sent: 2, failed: 1, ..Sent::default() });
    let mut reply = [0; 1];
    let mut got = || client.recv(&mut reply).map(|_| reply[0]).unwrap();
    assert_eq!([got(), got()], [0, 2]);
}

/// Receives `count` datagrams and answers each with its octets.
fn echo(batch: &mut Batch, server: &UdpSocket, count: usize) -> Sent {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    let mut report = Sent::default();
    let mut received = 0;
    while received < count && std::time::Instant::now() < deadline {
        let Ok(now) = batch.receive(server.as_fd(), Wait::ForOne) else { continue };
        received += now;
        let mut lengths = [0; BATCH_MAX];
        for datagram in batch.each() {
            datagram.reply[..datagram.query.len()].copy_from_slice(datagram.query);
            lengths[datagram.slot] = datagram.query.len();
        }
        lengths[..now].iter().enumerate().for_each(|(slot, length)| batch.queue(slot, *length));
        let sent = batch.send(server.as_fd());
        report.sent += sent.sent;
        report.failed += sent.failed;
        report.gso_messages += sent.gso_messages;
    }
    report
}

/// Returns the datagrams that a client receives, sorted, and their number for each source address.
fn gather(client: &UdpSocket, servers: [SocketAddr; 2], count: usize) -> (Vec<Vec<u8>>, [usize; 2]) {
    let mut octets = [0; QUERY_OCTETS_MAX];
    let mut from = [0; 2];
    let mut all = Vec::new();
    for _ in 0..count {
        let (length, source) = client.recv_from(&mut octets).unwrap();
        from[servers.iter().position(|server| *server == source).expect("from a queried address")] += 1;
        all.push(octets[..length].to_vec());
    }
    all.sort();
    (all, from)
}

#[test]
fn gso_messages_arrive_as_what_was_queued() {
    for (bound, asked, clients_at) in [
        ("127.0.0.1:0", ["127.0.0.1", "127.0.0.1"], "127.0.0.1:0"),
        ("0.0.0.0:0", ["127.0.0.1", "127.0.0.2"], "127.0.0.1:0"),
        ("[::1]:0", ["::1", "::1"], "[::1]:0"),
        ("[::]:0", ["::1", "::1"], "[::1]:0"),
    ] {
        let (server, address) = socket(bound);
        if address.ip().is_unspecified() {
            crate::sys::packet_info::enable(server.as_fd(), address).unwrap();
        }
        let mut batch = Batch::new();
        // A kernel without GSO messages cannot run this test.
        if !batch.enable_gso(server.as_fd()) {
            return;
        }
        let clients: Vec<UdpSocket> = (0..3).map(|_| socket(clients_at).0).collect();
        let asked = asked.map(|ip| SocketAddr::new(ip.parse().unwrap(), address.port()));
        for round in 0..3u8 {
            // Few lengths, one too long for a GSO message, from each client to each address, turn and turn about.
            let octets = |client: usize, number: u8| {
                vec![client as u8 ^ number ^ round; [20, 31, 20, 1_232, 1_400][usize::from(number % 5)]]
            };
            for number in 0..20 {
                for (who, client) in clients.iter().enumerate() {
                    client.send_to(&octets(who, number), asked[usize::from(number / 10)]).unwrap();
                }
            }
            let sent = echo(&mut batch, &server, 60);
            assert_eq!((sent.sent, sent.failed), (60, 0), "{bound}");
            assert!(sent.gso_messages > 0, "{bound}");
            for (who, client) in clients.iter().enumerate() {
                let mut expected: Vec<_> = (0..20).map(|number| octets(who, number)).collect();
                expected.sort();
                let from = if asked[0] == asked[1] { [20, 0] } else { [10, 10] };
                assert_eq!(gather(client, asked, 20), (expected, from), "{bound}");
            }
        }
        assert!(batch.is_gso_on());
    }
}

fn set(socket: &UdpSocket, level: libc::c_int, name: libc::c_int, value: libc::c_int) {
    let (pointer, size) = (std::ptr::from_ref(&value).cast(), size_of_val(&value) as libc::socklen_t);
    // SAFETY: the pointer is to a `c_int` that outlives the call, and the size given is its size.
    assert_eq!(unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, pointer, size) }, 0);
}

#[test]
fn a_refused_gso_message_is_sent_singly_and_is_the_last() {
    let (server, there) = socket("127.0.0.1:0");
    let (client, _) = socket("127.0.0.1:0");
    let mut batch = Batch::new();
    if !batch.enable_gso(server.as_fd()) {
        return;
    }
    // The kernel cuts nothing on a socket without checksums: EINVAL.
    set(&server, libc::SOL_SOCKET, libc::SO_NO_CHECK, 1);
    for round in 0..2 {
        (0..20u8).for_each(|number| assert!(client.send_to(&[number; 30], there).is_ok()));
        let sent = echo(&mut batch, &server, 20);
        assert_eq!((sent.sent, sent.failed, sent.gso_messages), (20, 0, 0), "round {round}");
        let expected: Vec<_> = (0..20u8).map(|number| vec![number; 30]).collect();
        assert_eq!(gather(&client, [there; 2], 20).0, expected);
        assert!(!batch.is_gso_on());
    }
}

#[test]
fn a_peer_that_cannot_be_answered_does_not_end_gso() {
    let (server, there) = socket("127.0.0.1:0");
    let (client, _) = socket("127.0.0.1:0");
    let mut batch = Batch::new();
    if !batch.enable_gso(server.as_fd()) {
        return;
    }
    (0..8u8).for_each(|number| assert!(client.send_to(&[number], there).is_ok()));
    assert_eq!(batch.receive(server.as_fd(), Wait::ForOne).unwrap(), 8);
    (0..8).for_each(|slot| batch.queue(slot, 1));
    // Port 0 is nowhere, and EINVAL: a query can claim to come from there.
    (0..4).for_each(|slot| batch.sources.get_mut(slot).sin6_port = 0);
    let sent = batch.send(server.as_fd());
    assert_eq!(sent, Sent { sent: 4, failed: 4, gso_messages: 1, ..Sent::default() });
    assert!(batch.is_gso_on());
}

#[test]
fn what_is_too_large_is_counted_beside_gso_messages_too() {
    let (server, there) = socket("[::1]:0");
    let (client, _) = socket("[::1]:0");
    let mut batch = Batch::new();
    // As if the interface had the smallest MTU of IPv6, 1,232 octets of which are a datagram's, and fragments were
    // forbidden.
    set(&server, libc::IPPROTO_IPV6, libc::IPV6_MTU, 1_280);
    set(&server, libc::IPPROTO_IPV6, libc::IPV6_DONTFRAG, 1);
    for gso in [false, true] {
        if gso && !batch.enable_gso(server.as_fd()) {
            return;
        }
        for octets in [1_233, 30, 1_232, 30, 30, 30] {
            client.send_to(&[7; QUERY_OCTETS_MAX][..octets], there).unwrap();
        }
        assert_eq!(batch.receive(server.as_fd(), Wait::ForOne).unwrap(), 6);
        let lengths: Vec<_> = batch.each().map(|datagram| (datagram.slot, datagram.query.len())).collect();
        lengths.iter().for_each(|(slot, octets)| batch.queue(*slot, *octets));
        let sent = batch.send(server.as_fd());
        let expected = Sent { sent: 5, failed: 1, too_large: 1, gso_messages: usize::from(gso) };
        assert_eq!(sent, expected, "gso: {gso}");
        assert_eq!(batch.is_gso_on(), gso);
    }
}

/// Returns a datagram socket within this machine; when it is full, sends fail.
fn local_socket(name: &str) -> (UnixDatagram, std::os::unix::net::SocketAddr) {
    let name = format!("sp-{}-{name}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let socket = UnixDatagram::bind_addr(&address).unwrap();
    socket.set_nonblocking(true).unwrap();
    (socket, address)
}

#[test]
fn without_room_for_one_reply_the_rest_is_given_up() {
    // Full queues represent a device that does not drain, and a call without a wait represents an expired timeout.
    let (server, there) = local_socket("server");
    let (full, here) = local_socket("full");
    let (idle, _) = local_socket("idle");
    // Each sender has a bound of its own, too; full is what takes not one of a new sender's.
    let fill = |number: usize| {
        let (sender, _) = local_socket(&format!("fill{number}"));
        (0..1_000_000).take_while(|_| sender.send_to_addr(&[9], &here).is_ok()).count()
    };
    assert!((0..1_000).any(|number| fill(number) == 0), "it is never full");
    for gso in [false, true] {
        let mut batch = Batch::new();
        batch.plan = gso.then(|| Box::new(SendPlan::new(SEGMENTS_MIN)));
        // One goes, four would go together if there were room, and one more would find room.
        for client in [&idle, &full, &full, &full, &full, &idle] {
            client.send_to_addr(&[3; 8], &there).unwrap();
        }
        assert_eq!(batch.receive(server.as_fd(), Wait::No).unwrap(), 6);
        (0..6).for_each(|slot| batch.queue(slot, if slot == 5 { 7 } else { 8 }));
        assert_eq!(batch.send(server.as_fd()), Sent { sent: 1, failed: 5, ..Sent::default() }, "gso: {gso}");
        assert_eq!(idle.recv(&mut [0; 9]).unwrap(), 8);
        assert_eq!(idle.recv(&mut [0; 9]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!(batch.is_gso_on(), gso);
    }
}
