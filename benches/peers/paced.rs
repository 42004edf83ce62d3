//! The open loop: queries at a fixed rate, independent of the server's answers, and the latency of each answer.
//!
//! The latency counts from the scheduled time of the query, not from its transmission: a server that delays the generator does
//! not look faster. The number of late queries is counted, because those are the generator's fault.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use signpost_dns::sys::datagrams::{Batch, Wait};

use crate::generator::{Load, query};
use crate::zones;

const SOCKETS: usize = 8;

/// The wait for answers after the last query.
const PATIENCE: Duration = Duration::from_millis(200);

/// A query that leaves this much after it was due is late.
const LATE: Duration = Duration::from_micros(100);

/// The result of a run.
#[derive(Debug, Default)]
pub struct Latencies {
    /// Times of right answers, ascending.
    pub times: Vec<Duration>,
    pub asked: usize,
    pub wrong: usize,
    pub late: usize,
}

impl Latencies {
    /// Returns the time within which this share of answers had come, in µs.
    pub fn quantile(&self, share: f64) -> f64 {
        let place = (self.times.len() as f64 * share) as usize;
        self.times.get(place.min(self.times.len().saturating_sub(1))).map_or(f64::NAN, |time| time.as_secs_f64() * 1e6)
    }
}

/// Sends `rate` queries per second for `duration`.
pub fn run(load: Load, rate: u32, duration: Duration) -> Latencies {
    let sockets: [UdpSocket; SOCKETS] = std::array::from_fn(|_| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        socket.set_nonblocking(true).expect("a socket");
        socket
    });
    let mut batch = Batch::new();
    let mut octets = [0; 512];
    let mut random = 3;
    // When the query with each ID was due: with this many IDs none comes around before its answer is given up.
    let mut due = vec![None; 1 << 16];
    let mut report = Latencies {
        times: Vec::with_capacity((f64::from(rate) * duration.as_secs_f64()) as usize),
        ..Latencies::default()
    };
    let began = Instant::now();
    let mut turn = 0;
    loop {
        let now = began.elapsed();
        let next = Duration::from_secs(1) * report.asked as u32 / rate;
        if next <= now && next < duration {
            let length = query(&mut random, load, &mut octets);
            let id = report.asked as u16;
            octets[..2].copy_from_slice(&id.to_be_bytes());
            due[usize::from(id)] = Some(next);
            // Queries that the kernel does not accept count as missing.
            drop(sockets[report.asked % SOCKETS].send_to(&octets[..length], load.server));
            report.asked += 1;
            report.late += usize::from(now - next > LATE);
        }
        if now > duration + PATIENCE {
            break;
        }
        turn += 1;
        if batch.receive(sockets[turn % SOCKETS].as_fd(), Wait::No).is_err() {
            continue;
        }
        let now = began.elapsed();
        for datagram in batch.each() {
            let id = datagram.query.first_chunk().map_or(0, |id| u16::from_be_bytes(*id));
            match due[usize::from(id)].take() {
                Some(due) if zones::is_right(datagram.query, load.zones) => report.times.push(now - due),
                _ => report.wrong += 1,
            }
        }
    }
    report.times.sort_unstable();
    report
}
