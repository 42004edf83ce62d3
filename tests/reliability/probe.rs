//! An honest client over UDP: how many of its queries are answered, and how soon.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use signpost_testing::dns::{RecordType, query};

/// After this long without an answer a query is lost.
const LOST_AFTER: Duration = Duration::from_secs(1);

/// The outcome of the queries.
#[derive(Default)]
pub struct Report {
    pub asked: usize,
    pub answered: usize,
    pub took: Duration,
    /// The latencies of all answered queries, in order of size.
    latencies: Vec<Duration>,
}

impl Report {
    /// Returns the number of answers per second.
    #[allow(dead_code, reason = "for the bench")]
    pub fn rate(&self) -> f64 {
        self.answered as f64 / self.took.as_secs_f64().max(1e-9)
    }

    /// Returns the latency that this many answers of a thousand did not exceed.
    #[allow(dead_code, reason = "for the bench")]
    pub fn latency(&self, of_thousand: usize) -> Duration {
        let last = self.latencies.len().saturating_sub(1);
        self.latencies.get(last * of_thousand / 1000).copied().unwrap_or_default()
    }
}

/// Sends `count` queries, or as many as fit into `longest`, `window` at a time, each once.
pub fn ask(server: SocketAddr, count: usize, longest: Duration, window: usize) -> Report {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("loopback");
    socket.connect(server).expect("loopback");
    let mut report = Report::default();
    let start = Instant::now();
    let mut answer = [0; 2048];
    let mut id = 0u16;
    while report.asked < count && start.elapsed() < longest {
        let window = window.min(count - report.asked);
        let sent = Instant::now();
        let first = id;
        for _ in 0..window {
            socket.send(&query(id, &format!("app{id}.shard.example"), RecordType::A)).expect("loopback");
            id = id.wrapping_add(1);
        }
        report.asked += window;
        let mut missing = window;
        while missing > 0 {
            let Some(left) = LOST_AFTER.checked_sub(sent.elapsed()).filter(|left| !left.is_zero()) else { break };
            socket.set_read_timeout(Some(left)).expect("a timeout");
            let Ok(length) = socket.recv(&mut answer) else { break };
            // An answer that was given up is late, not wrong.
            let of_this_window = usize::from(u16::from_be_bytes([answer[0], answer[1]]).wrapping_sub(first)) < window;
            if length > 12 && of_this_window {
                assert_eq!((answer[2] & 0x86, answer[3] & 0x0f, answer[7]), (0x84, 0, 4), "a right answer");
                report.latencies.push(sent.elapsed());
                report.answered += 1;
                missing -= 1;
            }
        }
    }
    report.took = start.elapsed();
    report.latencies.sort_unstable();
    report
}
