//! The query log's side of the workers: which requests are logged, and the rings by which their records leave.
//!
//! Each desk has a ring of its own that holds [`RING_RECORDS`] records. Its worker puts records in without waiting for
//! anyone: where the ring is full, since whoever writes the log cannot keep up, the record is lost and counted. While the
//! log is off nothing is done for a request, and of the rings' memory nothing is touched.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};

use super::counters::Count;
use super::desk::Random;
use super::draw::Draw;
use crate::nameserver::query_log::Record;
use crate::nameserver::{Outcome, Peer, Response};
use crate::zone::db::Snapshot;

/// Records that wait at most, in each ring: some 350 KiB, and at one look every 50 ms some 20,000 records a second.
pub const RING_RECORDS: usize = 1024;

/// What a desk logs by.
pub(super) struct Sampler {
    records: Producer<Record>,
    lost: Arc<Count>,
    draw: Draw,
}

/// The other end of a desk's ring.
pub struct Tap {
    records: Consumer<Record>,
    lost: Arc<Count>,
}

/// How many records one desk lost.
pub(super) struct Lost(Arc<Count>);

impl Sampler {
    pub(super) fn new() -> (Sampler, Tap) {
        let (producer, consumer) = RingBuffer::new(RING_RECORDS);
        let lost = Arc::new(Count::default());
        let tap = Tap { records: consumer, lost: Arc::clone(&lost) };
        (Sampler { records: producer, lost, draw: Draw::default() }, tap)
    }

    /// Which of the next `requests` requests is the first to be logged, if one of them is. Ask again for those after it.
    pub(super) fn pick(&mut self, every: NonZeroU32, requests: usize, random: &mut Random) -> Option<usize> {
        self.draw.pick(every, requests, random)
    }

    /// Leaves the record of an answered request.
    pub(super) fn log(
        &mut self,
        query: &[u8],
        peer: &Peer,
        since_epoch: Duration,
        answered: (Outcome, &Response<'_>),
        snapshot: &Snapshot,
    ) {
        if self.records.is_full() {
            self.lost.add(1);
            return;
        }
        let record = Record::of(query, peer, since_epoch, answered, snapshot);
        if self.records.push(record).is_err() {
            self.lost.add(1);
        }
    }
}

impl Tap {
    /// The oldest record.
    pub fn pop(&mut self) -> Option<Record> {
        self.records.pop().ok()
    }

    pub(super) fn lost(&self) -> Lost {
        Lost(Arc::clone(&self.lost))
    }
}

impl Lost {
    pub(super) fn read(&self) -> u64 {
        self.0.read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nameserver::Transport;
    use crate::zone::ZoneDb;

    #[test]
    fn a_full_ring_loses_and_counts() {
        let (mut sampler, mut tap) = Sampler::new();
        let snapshot = ZoneDb::new().snapshot();
        let address = "192.0.2.1:4000".parse().expect("an address");
        let peer = Peer { address, transport: Transport::Udp, now: 0, random: 0, keepalive: None };
        for second in 0..RING_RECORDS as u64 + 3 {
            let response = Response::new(&mut []);
            sampler.log(b"short", &peer, Duration::from_secs(second), (Outcome::Drop, &response), &snapshot);
        }
        assert_eq!(tap.lost().read(), 3);
        let seconds: Vec<u64> = std::iter::from_fn(|| tap.pop()).map(|record| record.since_epoch.as_secs()).collect();
        assert_eq!(seconds, (0..RING_RECORDS as u64).collect::<Vec<_>>());
    }
}
