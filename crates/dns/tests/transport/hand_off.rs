//! Requests that a handler takes over: answers of many messages, answers that come later, and their bounds.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use signpost_dns::nameserver::Transport;
use signpost_dns::nameserver::hand_off::{Answer, Cursor, HandOff, HandOffKind, Handler, Progress};
use signpost_dns::transport::Config;
use tokio::sync::Semaphore;

use crate::support::{
    A, LIMIT, PATIENCE, Server, ask, ask_on, connect, connect_from, framed, query, receive, udp_client,
};
use crate::{https, tls};

const AXFR: u16 = 252;
const SOA: u16 = 6;
const SERVFAIL: u8 = 2;
const NOTIMP: u8 = 4;
const REFUSED: u8 = 5;

/// The bounds of `transport::hand_off`: requests in flight of a connection, later answers over UDP, and answers of many messages.
const OF_CONNECTION: u16 = 16;
const LATER: u16 = 1_024;
const MANY: u16 = 128;
const MANY_PER_CLIENT: u16 = 64;

/// Answers requests for served zones: a transfer with numbered messages, NOTIFY with one message, and UPDATE when the test permits it.
struct Numbers {
    messages: u32,
    octets: usize,
    permits: Arc<Semaphore>,
    /// Each unfinished transfer has a clone.
    transfers: Arc<()>,
}

impl Numbers {
    fn new(messages: u32, octets: usize) -> Arc<Numbers> {
        Arc::new(Numbers { messages, octets, permits: Arc::new(Semaphore::new(0)), transfers: Arc::default() })
    }

    fn serve(self: &Arc<Self>, change: impl FnOnce(&mut Config)) -> Server {
        Server::with_handler(Some(Arc::clone(self) as _), change)
    }

    fn wait_transfers(&self, count: usize) {
        let deadline = Instant::now() + PATIENCE;
        while Arc::strong_count(&self.transfers) != count + 1 {
            assert!(Instant::now() < deadline, "{} transfers", Arc::strong_count(&self.transfers) - 1);
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

impl Handler for Numbers {
    fn answer(&self, request: &HandOff<'_>) -> Option<Answer> {
        request.zone?;
        let start = request.message[..request.question.end()].to_vec();
        Some(match request.kind {
            HandOffKind::Transfer => Answer::Many(Box::new(Transfer {
                start,
                next: 0,
                messages: self.messages,
                octets: self.octets,
                _alive: Arc::clone(&self.transfers),
            })),
            HandOffKind::Notify => Answer::One(numbered(&start, 0, self.octets)),
            HandOffKind::Update => {
                let permits = Arc::clone(&self.permits);
                Answer::Later(Box::pin(async move {
                    permits.acquire().await.unwrap().forget();
                    numbered(&start, 0, 0)
                }))
            }
        })
    }
}

struct Transfer {
    start: Vec<u8>,
    next: u32,
    messages: u32,
    octets: usize,
    _alive: Arc<()>,
}

impl Cursor for Transfer {
    fn fill(&mut self, buffer: &mut [u8]) -> Progress {
        let message = numbered(&self.start, self.next, self.octets);
        buffer[..message.len()].copy_from_slice(&message);
        self.next += 1;
        if self.next == self.messages { Progress::Last(message.len()) } else { Progress::More(message.len()) }
    }
}

/// A response that begins with the header and the question of a request, then a number, and fills up to `octets`.
fn numbered(start: &[u8], number: u32, octets: usize) -> Vec<u8> {
    let mut message = [start, &number.to_be_bytes()].concat();
    message[2] |= 0x80;
    message.resize(message.len().max(octets), b'x');
    message
}

fn transfer(id: u16) -> Vec<u8> {
    query(id, "shard.example", AXFR)
}

fn notify(id: u16) -> Vec<u8> {
    let mut message = query(id, "shard.example", SOA);
    message[2] = 0x20;
    message
}

fn update(id: u16) -> Vec<u8> {
    let mut message = query(id, "shard.example", SOA);
    message[2] = 0x28;
    message
}

fn rcode(message: &[u8]) -> u8 {
    assert_eq!(message[2] & 0x80, 0x80, "a response");
    message[3] & 15
}

/// Sends a request over UDP; returns the response.
fn over_udp(server: SocketAddr, request: &[u8]) -> Vec<u8> {
    let client = udp_client(server);
    client.send(request).unwrap();
    let mut reply = vec![0; 8_192];
    let length = client.recv(&mut reply).expect("a response");
    reply.truncate(length);
    assert_eq!(reply[..2], request[..2]);
    reply
}

/// Sends a request on a stream; returns the next message.
fn over(stream: &mut (impl Read + Write), request: &[u8]) -> Vec<u8> {
    stream.write_all(&framed(request)).unwrap();
    receive(stream).expect("a message")
}

/// Checks the messages of the transfer with 5 messages.
#[track_caller]
fn check_five(mut messages: impl FnMut() -> Vec<u8>, request: &[u8]) {
    for number in 0..5 {
        assert_eq!(messages(), numbered(request, number, 60_000));
    }
}

/// RFC 5936 §2.2, RFC 9250 §4.2: all messages on one stream.
#[test]
fn many_messages_answer_one_request() {
    let handler = Numbers::new(5, 60_000);
    let local = || vec!["127.0.0.1:0".parse().unwrap()];
    let server = handler.serve(|config| {
        config.tls_addresses = local();
        config.quic_addresses = if cfg!(feature = "quic") { local() } else { Vec::new() };
    });
    let mut stream = connect(&server);
    for id in 1..4 {
        stream.write_all(&framed(&transfer(id))).unwrap();
        check_five(|| receive(&mut stream).expect("a message"), &transfer(id));
    }
    // The connection stays open.
    ask_on(&mut stream, 9, 4);
    let mut stream = tls::connect(&server);
    stream.write_all(&framed(&transfer(1))).unwrap();
    check_five(|| receive(&mut stream).expect("a message"), &transfer(1));
    ask_on(&mut stream, 9, 4);
    #[cfg(feature = "quic")]
    {
        let quic = crate::quic::Quic::of(server);
        let connection = quic.connect(&quic.endpoint_with(|_| {})).unwrap();
        let octets = quic.run(crate::quic::exchange(&connection, &framed(&transfer(0)))).unwrap();
        let mut rest = &octets[..];
        check_five(|| receive(&mut rest).expect("a message"), &transfer(0));
        assert!(rest.is_empty());
        // An answer is counted once.
        for (transport, answers) in [(Transport::Tcp, 4), (Transport::Tls, 2), (Transport::Quic, 1)] {
            assert_eq!((quic.server.requests(transport).0, quic.server.responses(transport)), (answers, answers));
        }
    }
    handler.wait_transfers(0);
}

/// UDP and HTTPS have one response for each request (RFC 5936 §4.2, RFC 8484 §6).
#[test]
fn many_messages_are_refused_where_there_is_one_response() {
    let server = Numbers::new(5, 600).serve(|config| config.https_addresses = vec!["127.0.0.1:0".parse().unwrap()]);
    assert_eq!(rcode(&over_udp(server.address(), &transfer(7))), REFUSED);
    // The client accepts 512 octets.
    assert_eq!(rcode(&over_udp(server.address(), &notify(7))), SERVFAIL);
    let https = https::Https::of(server);
    let response = https.ask(&https.connect(), https::post(), &transfer(0)).unwrap();
    assert_eq!((response.status().as_u16(), rcode(response.body())), (200, REFUSED));
    let response = https.ask(&https.connect(), https::post(), &notify(0)).unwrap();
    assert_eq!(*response.body(), numbered(&notify(0), 0, 600));
}

/// A handler that returns no answer, here for names other than those of zones, and a server without a handler.
#[test]
fn requests_without_an_answer_are_refused() {
    let kinds = |name| {
        let mut requests = [AXFR, SOA, SOA].map(|qtype| query(7, name, qtype));
        (requests[1][2], requests[2][2]) = (0x20, 0x28);
        requests
    };
    let handler = Numbers::new(5, 600);
    for (server, name) in [(handler.serve(|_| {}), "a.shard.example"), (Server::start(), "shard.example")] {
        for (request, expected) in kinds(name).into_iter().zip([REFUSED, REFUSED, NOTIMP]) {
            assert_eq!(rcode(&over_udp(server.address(), &request)), expected);
            assert_eq!(rcode(&over(&mut connect(&server), &request)), expected);
        }
        assert_eq!((server.responses(Transport::Udp), server.responses(Transport::Tcp)), (3, 3));
    }
}

#[test]
fn queries_are_answered_between_the_messages_of_a_transfer() {
    let server = Numbers::new(500, 60_000).serve(|_| {});
    let mut stream = connect(&server);
    over(&mut stream, &transfer(1));
    let query = query(2, "app.shard.example", A);
    stream.write_all(&framed(&query)).unwrap();
    let before = (0..).map(|_| receive(&mut stream).unwrap()).take_while(|message| message[..2] == [0, 1]).count();
    assert!(before < 499, "the answer comes before the end");
    for _ in before + 1..500 {
        assert_eq!(receive(&mut stream).unwrap()[..2], [0, 1]);
    }
    ask_on(&mut stream, 3, 4);
}

#[test]
fn a_client_that_does_not_read_loses_its_transfer() {
    let handler = Numbers::new(u32::MAX, 60_000);
    let server = handler.serve(|config| config.streams.write = LIMIT);
    let mut stream = connect(&server);
    over(&mut stream, &transfer(1));
    assert_eq!(Arc::strong_count(&handler.transfers), 2);
    server.wait("a write timeout", |stats| stats.write_timeouts == 1);
    handler.wait_transfers(0);
    // One that disconnects does, too.
    over(&mut connect(&server), &transfer(2));
    handler.wait_transfers(0);
}

#[cfg(feature = "quic")]
#[test]
fn a_client_over_quic_that_does_not_read_loses_its_transfer() {
    let handler = Numbers::new(u32::MAX, 60_000);
    let quic = crate::quic::Quic::of(handler.serve(|config| {
        config.quic_addresses = vec!["127.0.0.1:0".parse().unwrap()];
        config.streams.write = LIMIT;
    }));
    let narrow = |config: &mut quinn::TransportConfig| {
        config.stream_receive_window(1_024u32.into());
    };
    let connection = quic.connect(&quic.endpoint_with(narrow)).unwrap();
    let _streams = quic.run(async {
        let (mut send, receive) = connection.open_bi().await.unwrap();
        send.write_all(&framed(&transfer(0))).await.unwrap();
        send.finish().unwrap();
        (send, receive)
    });
    assert_eq!(quic.closed(&connection), signpost_dns::transport::quic::doq::Code::ExcessiveLoad.into());
    handler.wait_transfers(0);
}

/// The time for which a client may be silent, and the longer one after which a later answer comes. After 5 seconds, it would be SERVFAIL.
const IDLE: Duration = Duration::from_secs(2);
const PERMITTED_AFTER: Duration = Duration::from_millis(2_500);

/// RFC 7766 §6.2.1.1: the answers to pipelined queries do not wait for it. It is not silence of the client, either.
#[test]
fn an_answer_may_come_later_on_each_transport() {
    let handler = Numbers::new(0, 0);
    let local = || vec!["127.0.0.1:0".parse().unwrap()];
    let server = handler.serve(|config| {
        config.addresses = vec!["0.0.0.0:0".parse().unwrap(), "[::]:0".parse().unwrap()];
        config.tls_addresses = local();
        config.https_addresses = local();
        config.streams.idle = IDLE;
    });
    let permit_later = || {
        let permits = Arc::clone(&handler.permits);
        std::thread::spawn(move || {
            std::thread::sleep(PERMITTED_AFTER);
            permits.add_permits(1);
        })
    };
    let check_stream = |mut stream: &mut dyn ReadWrite| {
        let permitted = permit_later();
        stream.write_all(&framed(&update(1))).unwrap();
        ask_on(&mut stream, 2, 4);
        ask_on(&mut stream, 3, 4);
        assert_eq!(receive(&mut stream).expect("a response"), numbered(&update(1), 0, 0));
        permitted.join().unwrap();
    };
    let address = SocketAddr::from(([127, 0, 0, 1], server.address().port()));
    check_stream(&mut std::net::TcpStream::connect(address).unwrap());
    check_stream(&mut tls::connect(&server));
    // From the address that was queried: a connected client takes no others.
    for (address, ip) in server.addresses.iter().zip(["127.0.0.9", "::1"]) {
        let client = udp_client(SocketAddr::new(ip.parse().unwrap(), address.port()));
        client.send(&update(1)).unwrap();
        ask(&client, 2, 4);
        handler.permits.add_permits(1);
        let mut reply = [0; 512];
        let length = client.recv(&mut reply).expect("a response");
        assert_eq!(reply[..length], numbered(&update(1), 0, 0));
    }
    server.wait("all replies", |stats| stats.replies == 4 && stats.send_errors == 0);
    assert_eq!((server.responses(Transport::Udp), server.responses(Transport::Tcp)), (4, 3));
    let https = https::Https::of(server);
    permit_later();
    let response = https.ask(&https.connect(), https::post(), &update(0)).unwrap();
    assert_eq!(*response.body(), numbered(&update(0), 0, 0));
}

#[cfg(feature = "quic")]
#[test]
fn an_answer_may_come_later_over_quic() {
    let handler = Numbers::new(0, 0);
    let quic = crate::quic::Quic::of(handler.serve(|config| {
        config.quic_addresses = vec!["127.0.0.1:0".parse().unwrap()];
        config.streams.idle = IDLE;
    }));
    let alive = |config: &mut quinn::TransportConfig| {
        config.keep_alive_interval(Some(Duration::from_millis(100)));
    };
    let connection = quic.connect(&quic.endpoint_with(alive)).unwrap();
    let plain = framed(&query(0, "app.shard.example", A));
    let octets = quic.run(async {
        let request = framed(&update(0));
        let update = crate::quic::exchange(&connection, &request);
        let permit = async {
            crate::quic::exchange(&connection, &plain).await.unwrap();
            tokio::time::sleep(PERMITTED_AFTER).await;
            handler.permits.add_permits(1);
        };
        tokio::join!(update, permit).0.unwrap()
    });
    assert_eq!(octets, framed(&numbered(&update(0), 0, 0)));
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

#[test]
fn what_takes_too_long_is_servfail() {
    let server = Numbers::new(0, 0).serve(|_| {});
    let began = Instant::now();
    assert_eq!(rcode(&over_udp(server.address(), &update(7))), SERVFAIL);
    assert!(began.elapsed() >= Duration::from_secs(4));
    assert_eq!(server.responses(Transport::Udp), 1);
}

#[test]
fn requests_in_flight_are_bounded() {
    let handler = Numbers::new(u32::MAX, 60_000);
    let server = handler.serve(|config| config.streams.write = PATIENCE);
    // Of one connection.
    let mut stream = connect(&server);
    let requests: Vec<u8> = (0..=OF_CONNECTION).flat_map(|id| framed(&update(id))).collect();
    stream.write_all(&requests).unwrap();
    let refused = receive(&mut stream).unwrap();
    assert_eq!((&refused[..2], rcode(&refused)), (&OF_CONNECTION.to_be_bytes()[..], SERVFAIL));
    handler.permits.add_permits(OF_CONNECTION.into());
    for _ in 0..OF_CONNECTION {
        assert_eq!(rcode(&receive(&mut stream).unwrap()), 0);
    }
    // Over UDP.
    let client = udp_client(server.address());
    let mut reply = [0; 512];
    let mut next = || {
        let length = client.recv(&mut reply).expect("a response");
        (u16::from_be_bytes([reply[0], reply[1]]), rcode(&reply[..length]))
    };
    for id in 0..=LATER {
        client.send(&update(id)).unwrap();
    }
    assert_eq!(next(), (LATER, SERVFAIL));
    for _ in 0..LATER / 64 {
        handler.permits.add_permits(64);
        (0..64).for_each(|_| assert_eq!(next().1, 0));
    }
    // Transfers of all connections of a client, and of all clients.
    let requests: Vec<u8> = (0..OF_CONNECTION).flat_map(|id| framed(&transfer(id))).collect();
    let clients = [1, 2, 3].map(|last| Ipv4Addr::new(127, 0, 0, last));
    let mut streams = Vec::new();
    for (client, before) in [(clients[0], 0), (clients[1], MANY_PER_CLIENT)] {
        for _ in 0..MANY_PER_CLIENT / OF_CONNECTION {
            let mut stream = connect_from(client, &server);
            stream.write_all(&requests).unwrap();
            streams.push(stream);
        }
        handler.wait_transfers((before + MANY_PER_CLIENT).into());
        assert_eq!(rcode(&over(&mut connect_from(client, &server), &transfer(1))), SERVFAIL);
    }
    let mut another = connect_from(clients[2], &server);
    assert_eq!(rcode(&over(&mut another, &transfer(1))), SERVFAIL);
    drop(streams.pop());
    handler.wait_transfers((MANY - OF_CONNECTION).into());
    assert_eq!(over(&mut another, &transfer(1)), numbered(&transfer(1), 0, 60_000));
    // The first client still has all of its own.
    assert_eq!(rcode(&over(&mut connect_from(clients[0], &server), &transfer(1))), SERVFAIL);
    let mut again = connect_from(clients[1], &server);
    assert_eq!(over(&mut again, &transfer(1)), numbered(&transfer(1), 0, 60_000));
}

/// Requests in flight at a stop get their answers within the time for the last answers, or SERVFAIL.
#[test]
fn a_stop_ends_what_is_in_flight() {
    let handler = Numbers::new(u32::MAX, 60_000);
    let mut server = handler.serve(|config| config.streams.write = Duration::from_secs(2));
    let client = udp_client(server.address());
    client.send(&update(1)).unwrap();
    ask(&client, 2, 4);
    let mut stream = connect(&server);
    stream.write_all(&framed(&update(1))).unwrap();
    ask_on(&mut stream, 2, 4);
    let mut reader = connect(&server);
    over(&mut reader, &transfer(1));
    let reading = std::thread::spawn(move || while let Ok(1..) = reader.read(&mut [0; 65_536]) {});
    server.stop();
    let mut reply = [0; 512];
    let length = client.recv(&mut reply).expect("a response");
    assert_eq!(rcode(&reply[..length]), SERVFAIL);
    let response = receive(&mut stream).expect("a response");
    assert_eq!((rcode(&response), receive(&mut stream)), (SERVFAIL, None));
    reading.join().unwrap();
    handler.wait_transfers(0);
}
