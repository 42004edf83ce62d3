//! The closed loop: queries for random names below random zones, with a fixed number in flight, and a check of each answer.
//!
//! Each answer triggers the next query from the same buffers, so the generator costs about as little as the servers. After
//! [`PATIENCE`] without an answer, the queries in flight count as lost and are sent again.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use signpost_dns::sys::BATCH_MAX;
use signpost_dns::sys::datagrams::{Batch, Wait};
use signpost_dns::sys::packet_info;
use socket2::{Domain, Socket, Type};

use crate::zones;

/// Sockets: few, so that the generator takes many answers by one call.
const SOCKETS: usize = 8;

/// The number of queries in flight on each socket.
const WINDOW: usize = BATCH_MAX;

/// After how long without an answer a socket's queries count as lost.
const PATIENCE: Duration = Duration::from_millis(100);

/// The clients of the queries. The total number in flight is the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peers {
    /// Eight clients with 64 queries in flight each: forwarders, and load balancers in front of a name server.
    Few,
    /// 512 clients, each with its own address and one query in flight: resolvers on the Internet.
    Many,
}

impl Peers {
    pub fn count(self) -> usize {
        match self {
            Peers::Few => SOCKETS,
            Peers::Many => SOCKETS * WINDOW,
        }
    }
}

/// The server and the queries of a run.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    pub server: SocketAddr,
    /// The number of zones.
    pub zones: usize,
    pub peers: Peers,
    /// Each query has a client's cookie.
    pub cookies: bool,
}

/// The result of a run.
#[derive(Debug, Default, Clone, Copy)]
pub struct Report {
    pub answered: u64,
    pub wrong: u64,
    pub lost: u64,
    pub took: Duration,
}

/// Returns whether `count` queries, one after another, each get a right answer soon. The first that does not ends it.
pub fn all_right(load: Load, count: usize) -> bool {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    socket.connect(load.server).expect("an address");
    socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a duration");
    let mut random = 7;
    let mut octets = [0; 1_500];
    (0..count).all(|_| {
        let length = query(&mut random, load, &mut octets);
        let id = [octets[0], octets[1]];
        socket.send(&octets[..length]).is_ok()
            && socket.recv(&mut octets).is_ok_and(|length| zones::is_right(&octets[..length], load.zones))
            && octets[..2] == id
    })
}

/// Sends queries for `duration`.
pub fn run(load: Load, duration: Duration) -> Report {
    let mut sockets: Vec<Client> = (0..SOCKETS).map(|number| Client::new(load, number)).collect();
    let mut report = Report::default();
    let began = Instant::now();
    while began.elapsed() < duration {
        for client in &mut sockets {
            client.turn(&mut report);
        }
    }
    report.took = began.elapsed();
    report
}

struct Client {
    load: Load,
    number: usize,
    socket: UdpSocket,
    batch: Batch,
    random: u64,
    under_way: usize,
    heard: Instant,
}

impl Client {
    fn new(load: Load, number: usize) -> Self {
        let address = match load.peers {
            Peers::Few => Ipv4Addr::LOCALHOST,
            // Takes what comes to any address of loopback, and sends the next query from there.
            Peers::Many => Ipv4Addr::UNSPECIFIED,
        };
        let socket = shared_socket(SocketAddr::from((address, 0)));
        if load.peers == Peers::Many {
            let bound = socket.local_addr().expect("is bound");
            packet_info::enable(socket.as_fd(), bound).expect("Linux has it");
        }
        let random = (number as u64) << 32 | 1;
        Client { load, number, socket, batch: Batch::new(), random, under_way: 0, heard: Instant::now() }
    }

    /// Reads the pending answers and sends as many new queries.
    fn turn(&mut self, report: &mut Report) {
        if self.batch.receive(self.socket.as_fd(), Wait::No).is_err() {
            if self.under_way == 0 || self.heard.elapsed() > PATIENCE {
                report.lost += self.under_way as u64;
                self.prime();
            }
            return;
        }
        let mut lengths = [0; BATCH_MAX];
        let mut count = 0;
        let random = &mut self.random;
        for datagram in self.batch.each() {
            if datagram.source == self.load.server && zones::is_right(datagram.query, self.load.zones) {
                report.answered += 1;
            } else {
                report.wrong += 1;
            }
            lengths[datagram.slot] = query(random, self.load, datagram.reply);
            count += 1;
        }
        for (slot, length) in lengths.iter().enumerate().take(count) {
            self.batch.queue(slot, *length);
        }
        self.batch.send(self.socket.as_fd());
        self.heard = Instant::now();
    }

    /// Fills the window.
    fn prime(&mut self) {
        let mut octets = [0; 512];
        for place in 0..WINDOW {
            let length = query(&mut self.random, self.load, &mut octets);
            // A full socket buffer is a lost query, which is counted when it is missed.
            match self.load.peers {
                Peers::Few => drop(self.socket.send_to(&octets[..length], self.load.server)),
                Peers::Many => {
                    // A socket that is there just for this query: the answer comes when it is gone, to ours.
                    let port = self.socket.local_addr().expect("is bound").port();
                    let source = Ipv4Addr::new(127, 1, self.number as u8, 1 + place as u8);
                    drop(shared_socket(SocketAddr::from((source, port))).send_to(&octets[..length], self.load.server));
                }
            }
        }
        self.under_way = WINDOW;
        self.heard = Instant::now();
    }
}

/// Returns a socket on an address that other sockets of this program can share.
fn shared_socket(address: SocketAddr) -> UdpSocket {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, None).expect("a socket");
    socket.set_reuse_address(true).expect("an option of all sockets");
    socket.bind(&address.into()).expect("a port");
    socket.into()
}

/// Encodes a query for `<8 random letters>.z<zone>.bench.test`, A, with EDNS and 1,232 octets, and optionally a client cookie.
pub fn query(random: &mut u64, load: Load, octets: &mut [u8]) -> usize {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let number = *random >> 16;
    let mut length = 0;
    let mut put = |part: &[u8]| {
        octets[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    };
    put(&[(number >> 8) as u8, number as u8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 8]);
    put(&std::array::from_fn::<u8, 8, _>(|place| b'a' + (number >> (4 * place) & 15) as u8));
    put(&zones::apex((number >> 20) as usize % load.zones));
    put(&[0, 1, 0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0]);
    put(if load.cookies { b"\x0c\0\x0a\0\x08client-1" } else { &[0] });
    length
}
