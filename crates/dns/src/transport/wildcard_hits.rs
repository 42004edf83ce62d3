//! The workers' side of wildcard hits: the sampling of answered requests, and the rings that pass on the hits.
//!
//! At a low rate, all requests are sampled, so that the counts are exact. At a high rate, a worker samples one in N, and a hit
//! represents N requests: a worker samples some hundred requests per second, independent of its load. The reader of the hits need
//! not hurry; if a ring is full, a hit is lost and counted.

use std::num::NonZeroU32;
use std::time::Duration;

use super::random::Random;
use super::random_sampler::RandomSampler;
use super::ring::{RingReceiver, RingSender, ring};
use crate::nameserver::Outcome;
use crate::nameserver::wildcard_hit::WildcardHit;
use crate::zone::db::Snapshot;

/// The maximum number of waiting hits in each ring: 40 KiB, the maximum of one [`WINDOW`] when a million requests per second
/// suddenly arrive.
const RING_HITS: usize = 512;
/// The time for which a sampling rate holds. A ring must be emptied at least as often.
pub const WINDOW: Duration = Duration::from_millis(1_000 / WINDOWS_A_SECOND);
const WINDOWS_A_SECOND: u64 = 4;
/// The number of samples in a window above which the rate falls. A sample costs some 300 ns, so that a worker spends less than a
/// thousandth of its time on it; the share of a name is accurate to a few percent, and more samples would add little.
const SAMPLES_PER_WINDOW: u32 = 64;
/// The factor by which the rate falls, and by which it rises after a window with less than an eighth of the samples.
const STEP: u32 = 4;
/// The lowest rate: one in this many.
const EVERY_MAX: u32 = 1 << 20;

/// The sampling rate: one request in `every`.
struct SamplingRate {
    every: NonZeroU32,
    /// The number of the current window since the epoch.
    window: u64,
    samples: u32,
    /// Whether the rate fell within the window.
    slowed: bool,
}

/// The sampler of one worker.
pub(super) struct WildcardSampler {
    hits: RingSender<WildcardHit>,
    sampler: RandomSampler,
    rate: SamplingRate,
}

/// The reader's end of a worker's ring.
pub type WildcardHitReceiver = RingReceiver<WildcardHit>;

impl SamplingRate {
    fn new() -> SamplingRate {
        SamplingRate { every: NonZeroU32::MIN, window: 0, samples: 0, slowed: false }
    }

    /// Begins a batch.
    fn begin(&mut self, since_epoch: Duration) {
        let window = since_epoch.as_secs() * WINDOWS_A_SECOND
            + u64::from(since_epoch.subsec_millis()) * WINDOWS_A_SECOND / 1_000;
        if window == self.window {
            return;
        }
        // A clock that was set back also begins another window.
        let passed = window.saturating_sub(self.window).max(1);
        self.window = window;
        for _ in 0..passed {
            if self.every == NonZeroU32::MIN {
                break;
            }
            if !self.slowed && self.samples < SAMPLES_PER_WINDOW / 8 {
                self.every = NonZeroU32::new(self.every.get() / STEP).unwrap_or(NonZeroU32::MIN);
            }
            (self.samples, self.slowed) = (0, false);
        }
        (self.samples, self.slowed) = (0, false);
    }

    /// Counts a sampled request.
    fn count(&mut self) {
        self.samples += 1;
        if self.samples >= SAMPLES_PER_WINDOW && self.every.get() < EVERY_MAX {
            self.every = self.every.saturating_mul(NonZeroU32::new(STEP).expect("it is not zero"));
            (self.samples, self.slowed) = (0, true);
        }
    }
}

impl WildcardSampler {
    pub(super) fn new() -> (WildcardSampler, WildcardHitReceiver) {
        let (hits, receiver) = ring(RING_HITS);
        (WildcardSampler { hits, sampler: RandomSampler::default(), rate: SamplingRate::new() }, receiver)
    }

    /// Begins a batch at this time since the epoch.
    pub(super) fn begin(&mut self, since_epoch: Duration) {
        self.rate.begin(since_epoch);
    }

    /// Returns the first of the next `requests` requests to sample, if there is one. Call again for the rest.
    pub(super) fn pick(&mut self, requests: usize, random: &mut Random) -> Option<usize> {
        self.sampler.pick(self.rate.every, requests, random)
    }

    /// Samples a request that was picked.
    pub(super) fn sample(&mut self, query: &[u8], outcome: Outcome, snapshot: &Snapshot) {
        let weight = self.rate.every.get();
        self.rate.count();
        if outcome == Outcome::Reply
            && let Some(hit) = WildcardHit::of(query, weight, snapshot)
        {
            self.hits.push_with(u64::from(weight), || hit);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Name, RecordType};
    use crate::zone::{Contents, Ttl, Zone, ZoneDb};

    fn shard() -> ZoneDb {
        let apex: Name = "shard.example.".parse().expect("a name");
        let mut contents = Contents::new(apex.clone());
        let soa = [apex.as_wire(), apex.as_wire(), &[0; 20]].concat();
        contents.add(apex.clone(), RecordType::SOA, Ttl::from_wire(5), soa.into()).expect("is in the zone");
        let wildcard = apex.wildcard().expect("there is room");
        contents.add(wildcard, RecordType::A, Ttl::from_wire(5), Box::from([192, 0, 2, 1])).expect("is in the zone");
        let zone = Zone::build(contents).expect("a zone");
        zone.set_shard();
        let db = ZoneDb::new();
        db.publish(zone);
        db.set_ready();
        db
    }

    const QUERY: &[u8] = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x03foo\x05shard\x07example\0\0\x01\0\x01";

    /// Answers `rate` requests per window in batches of `batch`, for `windows` windows, and takes the hits after each; returns
    /// the number of hits and of the requests that they represent.
    fn run(
        sampler: &mut WildcardSampler,
        out: &mut WildcardHitReceiver,
        first: u32,
        windows: u32,
        rate: usize,
        batch: usize,
    ) -> (u64, u64) {
        let (db, mut random) = (shard(), Random::new());
        let snapshot = db.snapshot();
        let (mut seen, mut weight) = (0, 0);
        for window in first..first + windows {
            let mut left = rate;
            while left > 0 {
                sampler.begin(WINDOW * window);
                let size = left.min(batch);
                let mut from = 0;
                while let Some(at) = sampler.pick(size - from, &mut random) {
                    sampler.sample(QUERY, Outcome::Reply, &snapshot);
                    from += at + 1;
                }
                left -= size;
            }
            while let Some(hit) = out.pop() {
                seen += 1;
                weight += u64::from(hit.weight);
            }
        }
        (seen, weight)
    }

    #[test]
    fn few_are_counted_exactly() {
        let (mut sampler, mut out) = WildcardSampler::new();
        assert_eq!(run(&mut sampler, &mut out, 0, 100, 60, 7), (6_000, 6_000));
        assert_eq!(out.lost(), 0);
    }

    #[test]
    fn many_are_estimated_by_few_samples() {
        for (rate, batch) in [(1_000, 64), (20_000, 64), (250_000, 64), (20_000, 1)] {
            let (mut sampler, mut out) = WildcardSampler::new();
            let windows = 200;
            let (seen, weight) = run(&mut sampler, &mut out, 0, windows, rate, batch);
            let requests = rate as u64 * u64::from(windows);
            assert!(weight.abs_diff(requests) < requests / 8, "{rate}: {weight} of {requests}");
            assert!(
                seen < u64::from(windows) * u64::from(2 * SAMPLES_PER_WINDOW) + RING_HITS as u64,
                "{rate}: {seen} samples"
            );
            assert_eq!(out.lost(), 0, "{rate}: the ring holds what one window can bring");
            // After a quiet time all are counted again.
            let quiet = run(&mut sampler, &mut out, windows + 1_000, 10, 5, batch);
            assert_eq!(quiet, (50, 50), "{rate}");
        }
    }

    #[test]
    fn a_clock_that_is_set_back_stops_nothing() {
        let mut rate = SamplingRate::new();
        rate.begin(WINDOW * 1_000);
        for _ in 0..10 * SAMPLES_PER_WINDOW {
            rate.count();
        }
        assert!(rate.every.get() > 1_000);
        for window in (0..20).rev() {
            rate.begin(WINDOW * window);
        }
        assert_eq!(rate.every, NonZeroU32::MIN);
    }
}
