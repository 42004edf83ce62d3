//! A server with one zone, and messages written and read by hand.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use crate::tls_client::Certificate;
use signpost_dns::nameserver::hand_off::Handler;
use signpost_dns::nameserver::{Settings, Transport};
use signpost_dns::transport::tls_base::TlsBase;
use signpost_dns::transport::{self, Config, LiveSettings, Running, Totals};
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::contents::Contents;
use signpost_dns::zone::db::ZoneDb;
use signpost_dns::zone::image::Zone;
use signpost_dns::zone::rrset::Ttl;

/// No wait of a test is longer.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// The time limit of a server for what a client sends or reads, in tests of clients that do neither. Other clients of these tests keep it
/// on a busy machine, too.
pub const LIMIT: Duration = Duration::from_secs(3);

pub const A: u16 = 1;
pub const TXT: u16 = 16;

/// A running server.
pub struct Server {
    pub db: ZoneDb,
    pub settings: LiveSettings,
    pub addresses: Vec<SocketAddr>,
    pub tls_addresses: Vec<SocketAddr>,
    /// The certificate of the encrypted transports.
    pub certificate: Arc<Certificate>,
    runtime: tokio::runtime::Runtime,
    running: Option<Running>,
}

impl Server {
    /// Listens on port 0 of loopback with two workers.
    pub fn start() -> Server {
        Server::with(|_| {})
    }

    /// Starts a server with a changed configuration.
    pub fn with(change: impl FnOnce(&mut Config)) -> Server {
        Server::with_handler(None, change)
    }

    /// Starts one that also has a handler.
    pub fn with_handler(handler: Option<Arc<dyn Handler>>, change: impl FnOnce(&mut Config)) -> Server {
        let mut config =
            Config { addresses: vec!["127.0.0.1:0".parse().unwrap()], udp_workers: 2, ..Config::default() };
        change(&mut config);
        let db = ZoneDb::new();
        db.publish(shard(4));
        db.set_ready();
        let mut server = Server::of(&db, Settings::default(), &config, handler);
        server.db = db;
        server
    }

    /// Serves these zones, which stay the caller's.
    pub fn of(db: &ZoneDb, settings: Settings, config: &Config, handler: Option<Arc<dyn Handler>>) -> Server {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let settings: LiveSettings = Arc::new(ArcSwap::from_pointee(settings));
        let certificate = Arc::new(Certificate::new());
        let mut bound = transport::bind(config).unwrap();
        bound.set_tls(TlsBase::new(certificate.clone()).unwrap());
        handler.into_iter().for_each(|handler| bound.set_handler(handler));
        let running = runtime.block_on(async { bound.start(db, &settings) }).unwrap();
        let (addresses, tls_addresses) =
            (running.addresses().to_vec(), running.encrypted_addresses(Transport::Tls).to_vec());
        Server { db: ZoneDb::new(), settings, addresses, tls_addresses, certificate, runtime, running: Some(running) }
    }

    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    pub fn stats(&self) -> Totals {
        self.running.as_ref().unwrap().stats()
    }

    /// Returns the counters of an encrypted transport.
    pub fn encrypted_stats(&self, transport: Transport) -> Totals {
        let stats = self.running.as_ref().unwrap().encrypted_stats();
        stats.into_iter().find(|(of, _)| *of == transport).map(|(_, totals)| totals).unwrap()
    }

    /// Waits until `done` accepts its counters.
    pub fn wait_encrypted(&self, transport: Transport, what: &str, done: impl Fn(&Totals) -> bool) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while !done(&self.encrypted_stats(transport)) {
            let stats = self.encrypted_stats(transport);
            assert!(std::time::Instant::now() < deadline, "not in time: {what}; {stats:?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Returns the engine's count of requests by this transport, and of those with a duration.
    pub fn requests(&self, transport: Transport) -> (u64, u64) {
        let (running, at) = (self.running.as_ref().unwrap(), transport as usize);
        (running.counts().traffic[at].request_count(), running.durations()[at].request_count())
    }

    /// Returns the engine's count of responses by this transport.
    pub fn responses(&self, transport: Transport) -> u64 {
        self.running.as_ref().unwrap().counts().traffic[transport as usize].responses.iter().sum()
    }

    /// The first address of an encrypted transport.
    pub fn encrypted_address(&self, transport: Transport) -> SocketAddr {
        self.running.as_ref().unwrap().encrypted_addresses(transport)[0]
    }

    /// Returns the engine's counts of queries: by UDP, by TCP.
    pub fn queries(&self) -> (u64, u64) {
        let traffic = self.running.as_ref().unwrap().counts().traffic;
        (traffic[0].request_count(), traffic[1].request_count())
    }

    /// Waits until `done` accepts the counters.
    pub fn wait(&self, what: &str, done: impl Fn(&Totals) -> bool) {
        let deadline = std::time::Instant::now() + PATIENCE;
        while !done(&self.stats()) {
            assert!(std::time::Instant::now() < deadline, "not in time: {what}; {:?}", self.stats());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Stops it and waits for that.
    pub fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            self.runtime.block_on(async { tokio::time::timeout(PATIENCE, running.stop()).await.expect("it stops") });
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            self.stop();
        }
    }
}

/// A shard's zone with `addresses` addresses at its wildcard, and a text of 40,000 octets at `large`.
pub fn shard(addresses: u8) -> Zone {
    let name = |text: &str| Name::parse(text.as_bytes(), &Name::root()).unwrap();
    let mut contents = Contents::new(name("shard.example."));
    let mut soa = Vec::new();
    soa.extend_from_slice(name("ns.example.").as_wire());
    soa.extend_from_slice(name("hostmaster.example.").as_wire());
    [1u32, 3600, 600, 86_400, 30].iter().for_each(|number| soa.extend_from_slice(&number.to_be_bytes()));
    let mut add = |owner: &str, rtype: u16, rdata: &[u8]| {
        contents.add(name(owner), RecordType(rtype), Ttl::from_wire(30), rdata.into()).unwrap();
    };
    add("shard.example.", 6, &soa);
    add("shard.example.", 2, name("ns.example.").as_wire());
    for last in 1..=addresses {
        add("*.shard.example.", A, &[192, 0, 2, last]);
    }
    for number in 0..200u8 {
        let mut text = vec![199, number];
        text.resize(200, b'x');
        add("large.shard.example.", TXT, &text);
    }
    Zone::build(contents).unwrap()
}

/// A query without EDNS.
pub fn query(id: u16, name: &str, rtype: u16) -> Vec<u8> {
    let mut message = Vec::new();
    message.extend_from_slice(&id.to_be_bytes());
    message.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        message.push(label.len() as u8);
        message.extend_from_slice(label.as_bytes());
    }
    message.push(0);
    message.extend_from_slice(&rtype.to_be_bytes());
    message.extend_from_slice(&[0, 1]);
    message
}

/// A query with an OPT record that holds one empty option.
pub fn query_with_option(id: u16, name: &str, option: u16) -> Vec<u8> {
    let mut message = query(id, name, A);
    message[11] = 1;
    message.extend_from_slice(&[0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 4]);
    message.extend_from_slice(&option.to_be_bytes());
    message.extend_from_slice(&[0, 0]);
    message
}

/// Checks that `reply` answers `query` with this many records.
#[track_caller]
pub fn check(reply: &[u8], query: &[u8], answers: u16) {
    assert!(reply.len() >= query.len(), "{reply:?}");
    let two = |at: usize| u16::from_be_bytes([reply[at], reply[at + 1]]);
    assert_eq!(reply[..2], query[..2], "the ID");
    assert_eq!(reply[2] & 0x86, 0x84, "a response, authoritative, not truncated");
    assert_eq!(reply[3] & 15, 0, "NOERROR");
    assert_eq!((two(4), two(6)), (1, answers));
    let question_end = 12 + query[12..].iter().position(|octet| *octet == 0).unwrap() + 5;
    assert_eq!(reply[12..question_end], query[12..question_end], "the question");
}

/// A client of one UDP address, which takes answers from there alone.
pub fn udp_client(server: SocketAddr) -> UdpSocket {
    let local = if server.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(local).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

/// Queries and checks the answer.
#[track_caller]
pub fn ask(client: &UdpSocket, id: u16, answers: u16) {
    let query = query(id, &format!("app{id}.shard.example"), A);
    client.send(&query).unwrap();
    let mut reply = [0; 2048];
    let length = client.recv(&mut reply).expect("an answer");
    check(&reply[..length], &query, answers);
}

/// A connection to the server, on which every wait is bounded.
pub fn connect(server: &Server) -> TcpStream {
    with_patience(TcpStream::connect(server.address()).unwrap())
}

/// Connects from an address of the loopback network.
pub fn connect_from(address: Ipv4Addr, server: &Server) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((address, 0)).into()).unwrap();
    socket.connect(&server.address().into()).unwrap();
    with_patience(socket.into())
}

fn with_patience(stream: TcpStream) -> TcpStream {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// A message with its length in front (RFC 1035 §4.2.2).
pub fn framed(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u16).to_be_bytes(), message].concat()
}

/// The next message, `None` at the end of the stream.
pub fn receive(stream: &mut impl Read) -> Option<Vec<u8>> {
    let mut length = [0; 2];
    match stream.read_exact(&mut length) {
        Ok(()) => {}
        Err(error) if matches!(error.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => return None,
        Err(error) => panic!("{error}"),
    }
    let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut message).unwrap();
    Some(message)
}

/// Queries over a stream and checks the answer.
#[track_caller]
pub fn ask_on(stream: &mut (impl Read + Write), id: u16, answers: u16) {
    let query = query(id, "app.shard.example", A);
    stream.write_all(&framed(&query)).unwrap();
    check(&receive(stream).expect("an answer"), &query, answers);
}
