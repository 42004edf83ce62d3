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
use crate::nameserver::query_log::Record;
use crate::nameserver::{Outcome, Peer, Response};
use crate::zone::db::Snapshot;

/// Records that wait at most, in each ring: some 350 KiB, and at one look every 50 ms some 20,000 records a second.
pub const RING_RECORDS: usize = 1024;

/// What a desk logs by.
pub(super) struct Sampler {
    records: Producer<Record>,
    lost: Arc<Count>,
    every: Option<NonZeroU32>,
    /// Requests to pass over before the next that is logged.
    left: u64,
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
        (Sampler { records: producer, lost, every: None, left: 0 }, tap)
    }

    /// Which of the next `requests` requests is the first to be logged, if one of them is. Ask again for those after it.
    ///
    /// The gaps are drawn anew each time, between none and twice what is asked for: clients that ask in a rhythm would
    /// otherwise always be in the log, or never.
    pub(super) fn pick(&mut self, every: NonZeroU32, requests: usize, random: &mut Random) -> Option<usize> {
        if self.every != Some(every) {
            self.every = Some(every);
            self.left = gap(every, random);
        }
        if self.left >= requests as u64 {
            self.left -= requests as u64;
            return None;
        }
        let picked = self.left as usize;
        self.left = gap(every, random);
        Some(picked)
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

/// Requests to pass over: on average one less than `every`.
fn gap(every: NonZeroU32, random: &mut Random) -> u64 {
    let most = 2 * u128::from(every.get()) - 1;
    // The high part of the product is even over 0..most but for one part in four thousand millions.
    ((u128::from(random.next()) * most) >> 32) as u64
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

    /// How many of `batches` batches of `size` are picked.
    fn picked(sampler: &mut Sampler, every: u32, batches: usize, size: usize) -> usize {
        let (every, mut random) = (NonZeroU32::new(every).expect("not zero"), Random::new());
        let mut count = 0;
        for _ in 0..batches {
            let mut from = 0;
            while let Some(at) = sampler.pick(every, size - from, &mut random) {
                assert!(from + at < size);
                count += 1;
                from += at + 1;
            }
        }
        count
    }

    #[test]
    fn one_in_so_many_is_picked() {
        let (mut sampler, _tap) = Sampler::new();
        assert_eq!(picked(&mut sampler, 1, 100, 64), 6_400);
        for (every, size) in [(2, 1), (10, 64), (10, 3), (100, 64)] {
            let requests = 1_000_000;
            let expected = requests / every as usize;
            let found = picked(&mut sampler, every, requests / size, size);
            assert!(found.abs_diff(expected) < expected / 10, "1 in {every}: {found} of {requests}");
        }
        let (longest, mut random) = (NonZeroU32::MAX, Random::new());
        let gaps: Vec<u64> = (0..1_000).map(|_| gap(longest, &mut random)).collect();
        assert!(
            gaps.iter().all(|gap| *gap < 2 * u64::from(u32::MAX)) && gaps.iter().any(|gap| *gap > u64::from(u32::MAX))
        );
        // A reload is not kept waiting for the gap of before.
        picked(&mut sampler, u32::MAX, 1, 1);
        assert_eq!(picked(&mut sampler, 1, 1, 1), 1);
    }

    #[test]
    fn a_full_ring_loses_and_counts() {
        let (mut sampler, mut tap) = Sampler::new();
        let snapshot = ZoneDb::new().snapshot();
        let address = "192.0.2.1:4000".parse().expect("an address");
        let peer = Peer { address, transport: Transport::Udp, now: 0, random: 0 };
        for second in 0..RING_RECORDS as u64 + 3 {
            let response = Response::new(&mut []);
            sampler.log(b"short", &peer, Duration::from_secs(second), (Outcome::Drop, &response), &snapshot);
        }
        assert_eq!(tap.lost().read(), 3);
        let seconds: Vec<u64> = std::iter::from_fn(|| tap.pop()).map(|record| record.since_epoch.as_secs()).collect();
        assert_eq!(seconds, (0..RING_RECORDS as u64).collect::<Vec<_>>());
    }
}
