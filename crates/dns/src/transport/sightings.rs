//! The workers' side of the sightings of names: which answered requests are looked at, and the rings by which what was seen
//! leaves.
//!
//! As long as few requests come, all of them are looked at, so that what is counted is exact. Where many come, a worker draws
//! one in so many, and what it sees stands for that many: it looks at some hundred requests a second, however many it
//! answers. Who takes the sightings out need not hurry; where a ring is full, a sighting is lost and counted.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use rtrb::{Consumer, Producer, RingBuffer};

use super::counters::Count;
use super::desk::Random;
use super::draw::Draw;
use crate::nameserver::Outcome;
use crate::nameserver::sighting::Sighting;
use crate::zone::db::Snapshot;

/// Sightings that wait at most, in each ring: 40 KiB, which is what one [`WINDOW`] can bring when all at once a million
/// requests a second come.
const RING_SIGHTINGS: usize = 512;
/// The time by which the pace is kept. A ring must be emptied at least as often.
pub const WINDOW: Duration = Duration::from_millis(1_000 / WINDOWS_A_SECOND);
const WINDOWS_A_SECOND: u64 = 4;
/// Requests looked at in a window before fewer are drawn. A look costs some 300 ns, so that a worker spends less than a
/// thousandth of its time on it; more looks would tell no more than that the share of a name is right to a few percent.
const LOOKS: u32 = 64;
/// How many times fewer are drawn from then on, and how many times more after a window with less than an eighth of the looks.
const STEP: u32 = 4;
/// Fewest that are drawn: one in so many.
const EVERY_MAX: u32 = 1 << 20;

/// One request in how many is looked at.
struct Pace {
    every: NonZeroU32,
    /// The number of the window at hand since the epoch.
    window: u64,
    looks: u32,
    /// Whether fewer were drawn from some point of the window on.
    slowed: bool,
}

/// What a desk looks out with.
pub(super) struct Lookout {
    sightings: Producer<Sighting>,
    lost: Arc<Count>,
    draw: Draw,
    pace: Pace,
}

/// The other end of a desk's ring.
pub struct Sightings {
    sightings: Consumer<Sighting>,
    lost: Arc<Count>,
}

impl Pace {
    fn new() -> Pace {
        Pace { every: NonZeroU32::MIN, window: 0, looks: 0, slowed: false }
    }

    /// A batch has come.
    fn begin(&mut self, since_epoch: Duration) {
        let window = since_epoch.as_secs() * WINDOWS_A_SECOND
            + u64::from(since_epoch.subsec_millis()) * WINDOWS_A_SECOND / 1_000;
        if window == self.window {
            return;
        }
        // A clock that was set back has begun another window, too.
        let passed = window.saturating_sub(self.window).max(1);
        self.window = window;
        for _ in 0..passed {
            if self.every == NonZeroU32::MIN {
                break;
            }
            if !self.slowed && self.looks < LOOKS / 8 {
                self.every = NonZeroU32::new(self.every.get() / STEP).unwrap_or(NonZeroU32::MIN);
            }
            (self.looks, self.slowed) = (0, false);
        }
        (self.looks, self.slowed) = (0, false);
    }

    fn looked(&mut self) {
        self.looks += 1;
        if self.looks >= LOOKS && self.every.get() < EVERY_MAX {
            self.every = self.every.saturating_mul(NonZeroU32::new(STEP).expect("it is not zero"));
            (self.looks, self.slowed) = (0, true);
        }
    }
}

impl Lookout {
    pub(super) fn new() -> (Lookout, Sightings) {
        let (producer, consumer) = RingBuffer::new(RING_SIGHTINGS);
        let lost = Arc::new(Count::default());
        let sightings = Sightings { sightings: consumer, lost: Arc::clone(&lost) };
        (Lookout { sightings: producer, lost, draw: Draw::default(), pace: Pace::new() }, sightings)
    }

    /// A batch has come at this time since the epoch.
    pub(super) fn begin(&mut self, since_epoch: Duration) {
        self.pace.begin(since_epoch);
    }

    /// Which of the next `requests` requests is the first to be looked at, if one of them is. Ask again for those after it.
    pub(super) fn pick(&mut self, requests: usize, random: &mut Random) -> Option<usize> {
        self.draw.pick(self.pace.every, requests, random)
    }

    /// Looks at a request that was picked.
    pub(super) fn look(&mut self, query: &[u8], outcome: Outcome, snapshot: &Snapshot) {
        let weight = self.pace.every.get();
        self.pace.looked();
        if outcome != Outcome::Reply {
            return;
        }
        if let Some(sighting) = Sighting::of(query, weight, snapshot)
            && self.sightings.push(sighting).is_err()
        {
            self.lost.add(u64::from(weight));
        }
    }
}

impl Sightings {
    /// The oldest sighting.
    pub fn pop(&mut self) -> Option<Sighting> {
        self.sightings.pop().ok()
    }

    /// How many requests those that were lost stand for, since the start.
    pub fn lost(&self) -> u64 {
        self.lost.read()
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
        let zone = Zone::build(&contents).expect("a zone");
        zone.set_shard();
        let db = ZoneDb::new();
        db.publish(zone);
        db.set_ready();
        db
    }

    const QUERY: &[u8] = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x03foo\x05shard\x07example\0\0\x01\0\x01";

    /// Answers `rate` requests a window in batches of `batch`, for `windows` windows, and takes out what is seen after each;
    /// returns how many sightings there were, and how many requests they stand for.
    fn run(
        lookout: &mut Lookout,
        out: &mut Sightings,
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
                lookout.begin(WINDOW * window);
                let size = left.min(batch);
                let mut from = 0;
                while let Some(at) = lookout.pick(size - from, &mut random) {
                    lookout.look(QUERY, Outcome::Reply, &snapshot);
                    from += at + 1;
                }
                left -= size;
            }
            while let Some(sighting) = out.pop() {
                seen += 1;
                weight += u64::from(sighting.weight);
            }
        }
        (seen, weight)
    }

    #[test]
    fn few_are_counted_exactly() {
        let (mut lookout, mut out) = Lookout::new();
        assert_eq!(run(&mut lookout, &mut out, 0, 100, 60, 7), (6_000, 6_000));
        assert_eq!(out.lost(), 0);
    }

    #[test]
    fn many_are_estimated_by_few_looks() {
        for (rate, batch) in [(1_000, 64), (20_000, 64), (250_000, 64), (20_000, 1)] {
            let (mut lookout, mut out) = Lookout::new();
            let windows = 200;
            let (seen, weight) = run(&mut lookout, &mut out, 0, windows, rate, batch);
            let requests = rate as u64 * u64::from(windows);
            assert!(weight.abs_diff(requests) < requests / 8, "{rate}: {weight} of {requests}");
            assert!(seen < u64::from(windows) * u64::from(2 * LOOKS) + RING_SIGHTINGS as u64, "{rate}: {seen} looks");
            assert_eq!(out.lost(), 0, "{rate}: the ring holds what one window can bring");
            // After a quiet time all are counted again.
            let quiet = run(&mut lookout, &mut out, windows + 1_000, 10, 5, batch);
            assert_eq!(quiet, (50, 50), "{rate}");
        }
    }

    #[test]
    fn what_nobody_takes_out_is_lost_and_counted() {
        let (mut lookout, mut out) = Lookout::new();
        let db = shard();
        let snapshot = db.snapshot();
        for window in 0..RING_SIGHTINGS as u32 + 3 {
            lookout.begin(WINDOW * window);
            lookout.look(QUERY, Outcome::Reply, &snapshot);
            lookout.look(QUERY, Outcome::Drop, &snapshot);
        }
        assert_eq!(out.lost(), 3);
        assert_eq!(std::iter::from_fn(|| out.pop()).count(), RING_SIGHTINGS);
    }

    #[test]
    fn a_clock_that_is_set_back_stops_nothing() {
        let mut pace = Pace::new();
        pace.begin(WINDOW * 1_000);
        for _ in 0..10 * LOOKS {
            pace.looked();
        }
        assert!(pace.every.get() > 1_000);
        for window in (0..20).rev() {
            pace.begin(WINDOW * window);
        }
        assert_eq!(pace.every, NonZeroU32::MIN);
    }
}
