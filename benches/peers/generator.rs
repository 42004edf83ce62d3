//! The load: a closed loop of queries for random names below random zones, each answer checked.
//!
//! Some sockets keep a fixed number of queries under way; each answer that comes sends the next query from the same
//! buffers, so the generator costs about as little as the servers do. A query that is lost is sent anew when nothing has
//! come for [`PATIENCE`].

use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use signpost::sys::datagrams::{BATCH_MAX, Batch, Wait};

use crate::zones::{self, ZONES};

/// Sockets, so that the server sees several clients.
const SOCKETS: usize = 8;

/// Queries under way on each socket.
const WINDOW: usize = BATCH_MAX;

/// After how long without an answer a socket's queries count as lost.
const PATIENCE: Duration = Duration::from_millis(20);

/// What a run saw.
#[derive(Debug, Default, Clone, Copy)]
pub struct Report {
    pub answered: u64,
    pub wrong: u64,
    pub lost: u64,
    pub took: Duration,
}

/// Whether the server gives a right answer within a second.
pub fn is_up(server: SocketAddr) -> bool {
    let report = run(server, Duration::from_millis(50), false);
    report.answered > 0 && report.wrong == 0
}

/// Asks for `duration`, with a client's cookie in each query if `cookies`.
pub fn run(server: SocketAddr, duration: Duration, cookies: bool) -> Report {
    let mut sockets: Vec<Client> = (0..SOCKETS).map(|number| Client::new(server, number as u64, cookies)).collect();
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
    socket: UdpSocket,
    server: SocketAddr,
    batch: Batch,
    random: u64,
    cookies: bool,
    under_way: usize,
    heard: Instant,
}

impl Client {
    fn new(server: SocketAddr, seed: u64, cookies: bool) -> Self {
        let socket = UdpSocket::bind(("127.0.0.1", 0)).expect("a port");
        Client {
            socket,
            server,
            batch: Batch::new(),
            random: seed << 32 | 1,
            cookies,
            under_way: 0,
            heard: Instant::now(),
        }
    }

    /// Takes what has come and asks as much anew.
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
            if datagram.source == self.server && zones::is_right(datagram.query) {
                report.answered += 1;
            } else {
                report.wrong += 1;
            }
            lengths[datagram.slot] = query(random, self.cookies, datagram.reply);
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
        for _ in 0..WINDOW {
            let length = query(&mut self.random, self.cookies, &mut octets);
            // A full socket buffer is a lost query, which is counted when it is missed.
            drop(self.socket.send_to(&octets[..length], self.server));
        }
        self.under_way = WINDOW;
        self.heard = Instant::now();
    }
}

/// Writes a query for `<8 random letters>.z<zone>.bench.test`, A, with EDNS and 1,232 octets, and perhaps a client's cookie.
fn query(random: &mut u64, cookie: bool, octets: &mut [u8]) -> usize {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    let number = *random >> 16;
    let mut length = 0;
    let mut put = |part: &[u8]| {
        octets[length..length + part.len()].copy_from_slice(part);
        length += part.len();
    };
    put(&[(number >> 8) as u8, number as u8, 0, 0, 0, 1, 0, 0, 0, 0, 0, 1, 8]);
    put(&std::array::from_fn::<u8, 8, _>(|place| b'a' + (number >> (4 * place) & 15) as u8));
    put(&zones::apex((number >> 32) as usize % ZONES));
    put(&[0, 1, 0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0, 0]);
    put(if cookie { b"\x0c\0\x0a\0\x08client-1" } else { &[0] });
    length
}
