//! The lock-free map of zones: where the control plane publishes and the data plane reads.
//!
//! A [`Snapshot`] is persistent, a tree by the hash of the apex:
//!
//! ```text
//! Snapshot ── 16 × Row ── 16 × Part ── 2^n × Group ── up to 16 × bucket of some zones
//! ```
//!
//! Publishing a zone copies one list of each level, a few microseconds among a million zones, and swaps the whole in one step;
//! readers use it from their next batch on and never wait. A copy of a list increments the reference count of each entry, which
//! fetches a cache line that displaces one of the queries: the lists are therefore short.
//!
//! Old versions are freed by the publisher, never by a query thread: the publisher keeps each replaced snapshot until it has no
//! reader. A reader that sleeps pins one version, not all later ones.

use std::sync::Arc;

use arc_swap::{ArcSwap, Cache};
use parking_lot::{Mutex, MutexGuard};

use super::counter_slots::CounterSlots;
use super::image::Zone;
use super::policy::Policies;
use super::qname::{NameHash, Qname};
use crate::wire::Name;
use crate::wire::name::LABELS_MAX;

/// The data for the answers of one batch of queries: the zones at one moment.
#[derive(Clone)]
pub struct Snapshot {
    readiness: Readiness,
    /// A bit for each number of labels that an apex has: other suffixes need no probe.
    depths: u128,
    zone_count: usize,
    rows: [Arc<Row>; ROWS],
}

/// The first bucket to probe for the zone of a name.
#[derive(Clone, Copy)]
pub struct BucketProbe<'a> {
    bucket: &'a [Entry],
    /// The number of the name's labels that are not in the apex.
    skipped: usize,
}

impl<'a> BucketProbe<'a> {
    /// Prefetches the data of the bucket into the cache.
    #[inline]
    pub fn touch(&self) -> u64 {
        self.bucket.first().map_or(0, |entry| entry.hash)
    }

    /// Returns the zone in the bucket.
    #[inline]
    fn find(&self, qname: &Qname) -> Option<&'a Zone> {
        let hash = qname.hash(self.skipped);
        self.bucket.iter().find(|entry| entry.hash == hash).map(|entry| &*entry.zone)
    }
}

/// The completeness of the map: how many of the zones of this name server it contains. It only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Readiness {
    /// Nothing may be answered: a zone that is not loaded yet may hide the present data.
    Nothing,
    /// The present zones answer for their names; a name outside all of them may be in a zone that is not loaded yet.
    SomeZones,
    /// All zones are there.
    AllZones,
}

/// Some of the 256 parts of the map, chosen by the hash's top four bits.
#[derive(Clone)]
struct Row([Arc<Part>; PARTS / ROWS]);

/// One of 256 parts of the map, chosen by the hash's top octet.
#[derive(Clone)]
struct Part {
    /// The groups: a power of two, or none; each has the same number of buckets.
    groups: Box<[Arc<Group>]>,
    /// The number of buckets in all groups: a power of two, or none.
    bucket_count: usize,
    zone_count: usize,
}

/// Some buckets of a part, of all of them chosen by the hash's bits from 40 on.
#[derive(Clone)]
struct Group([Option<Bucket>; GROUP_BUCKETS]);

type Bucket = Arc<[Entry]>;

#[derive(Clone)]
struct Entry {
    hash: NameHash,
    zone: Arc<Zone>,
}

const PARTS: usize = 256;
const ROWS: usize = 16;
/// Buckets of a group: with 16, a part of 400 zones has as many groups as a group has buckets.
const GROUP_BUCKETS: usize = 16;
/// Zones of a bucket on average when its part was laid out, and twice as many before it is laid out again. Two entries
/// share a cache line.
const BUCKET_ZONES: usize = 2;
/// The maximum number of buckets of a part, from the bits of the hash that select one.
const PART_BUCKETS_MAX: usize = 1 << 16;

/// All zones of a name server.
pub struct ZoneDb {
    current: Arc<ArcSwap<Snapshot>>,
    publisher: Mutex<Publisher>,
}

/// The state of the publisher.
struct Publisher {
    /// Replaced snapshots that readers may still use: after each sweep, at most one per reader.
    retired: Vec<Arc<Snapshot>>,
    /// The number of apexes with this many labels.
    depth_counts: [usize; LABELS_MAX + 1],
    numbers: CounterSlots,
}

/// A worker's view of the zones: one atomic load per batch while nothing changes.
pub struct Reader {
    cache: Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>,
}

/// A change of one apex: the zone to serve, or none.
struct Step {
    hash: NameHash,
    apex: Name,
    zone: Option<Arc<Zone>>,
}

impl Reader {
    /// Returns the current zones. Call it once per batch.
    #[inline]
    pub fn snapshot(&mut self) -> &Snapshot {
        self.cache.load()
    }
}

impl Snapshot {
    /// Returns whether the present zones may answer.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.readiness >= Readiness::SomeZones
    }

    /// Returns whether names outside all zones may be answered as such.
    #[inline]
    pub fn is_ready(&self) -> bool {
        self.readiness == Readiness::AllZones
    }

    /// Returns the number of zones.
    pub fn zone_count(&self) -> usize {
        self.zone_count
    }

    /// Returns the zone whose apex is the closest at or above `qname`, not counting its first `skipped` labels.
    #[inline]
    pub fn enclosing(&self, qname: &Qname, skipped: usize) -> Option<&Zone> {
        self.probes(qname, skipped).find_map(|skipped| self.at(qname, skipped)).map(|zone| &**zone)
    }

    /// Like [`Self::enclosing`], but only by hashes: returns the almost certain zone, without reading any zone.
    /// [`Self::confirm`] verifies it. `first` is the result of [`Self::first`] for the name.
    #[inline]
    pub fn candidate<'a>(&'a self, qname: &Qname, first: BucketProbe<'a>) -> Option<&'a Zone> {
        first.find(qname).or_else(|| self.candidate_above(qname, first.skipped + 1))
    }

    /// [`Self::candidate`], not counting the name's first `skipped` labels.
    #[inline(never)]
    fn candidate_above(&self, qname: &Qname, mut skipped: usize) -> Option<&Zone> {
        loop {
            let next = self.next(qname, skipped)?;
            if let Some(zone) = next.find(qname) {
                return Some(zone);
            }
            skipped = next.skipped + 1;
        }
    }

    /// Returns the zone that encloses `qname`, given what [`Self::candidate`] found.
    #[inline]
    pub fn confirm<'a>(&'a self, qname: &Qname, candidate: Option<&'a Zone>) -> Option<&'a Zone> {
        let zone = candidate?;
        match qname.labels().checked_sub(zone.apex_labels()) {
            Some(above) if qname.suffix(above) == zone.apex_octets() => Some(zone),
            // Two names have the same hash.
            _ => self.enclosing(qname, 0),
        }
    }

    /// Returns the first bucket that [`Self::candidate`] must probe; `None` if no suffix of the name can be an apex.
    #[inline]
    pub fn first(&self, qname: &Qname) -> Option<BucketProbe<'_>> {
        self.next(qname, 0)
    }

    /// Returns the bucket for the longest suffix of `qname` that can be an apex, without its first `skipped` labels.
    #[inline]
    fn next(&self, qname: &Qname, skipped: usize) -> Option<BucketProbe<'_>> {
        let skipped = self.probe(qname, skipped)?;
        let hash = qname.hash(skipped);
        let bucket = self.part(hash).bucket(hash).map_or(&[][..], |bucket| bucket);
        Some(BucketProbe { bucket, skipped })
    }

    /// Returns the numbers of labels to skip of `qname`, at least `skipped`, to get the suffixes that can be apexes, the longest
    /// first.
    #[inline]
    fn probes<'a>(&'a self, qname: &'a Qname, mut skipped: usize) -> impl Iterator<Item = usize> + use<'a> {
        std::iter::from_fn(move || {
            let probe = self.probe(qname, skipped)?;
            skipped = probe + 1;
            Some(probe)
        })
    }

    /// Returns the first of [`Self::probes`].
    #[inline]
    fn probe(&self, qname: &Qname, skipped: usize) -> Option<usize> {
        let most = qname.labels().checked_sub(skipped)?;
        // The bits up to and including the longest suffix.
        let depth = match most {
            0..64 => (self.depths as u64 & (u64::MAX >> (63 - most))).checked_ilog2(),
            _ => self.depth_of_many(most),
        };
        Some(qname.labels() - depth? as usize)
    }

    /// Returns the largest number of labels of an apex, up to `most`, which is at most 127 and rarely above half of that.
    #[cold]
    fn depth_of_many(&self, most: usize) -> Option<u32> {
        (self.depths & (u128::MAX >> (LABELS_MAX - most))).checked_ilog2()
    }

    /// Returns the zone whose apex is the suffix of `qname` that is left after `skipped` labels.
    #[inline]
    fn at(&self, qname: &Qname, skipped: usize) -> Option<&Arc<Zone>> {
        let hash = qname.hash(skipped);
        let bucket = self.part(hash).bucket(hash)?;
        let suffix = qname.suffix(skipped);
        let entry = bucket.iter().find(|entry| entry.hash == hash && entry.zone.apex_octets() == suffix)?;
        Some(&entry.zone)
    }

    /// Returns the zone whose apex has this hash; a collision is practically impossible.
    pub fn by_hash(&self, hash: NameHash) -> Option<&Arc<Zone>> {
        let bucket = self.part(hash).bucket(hash)?;
        bucket.iter().find(|entry| entry.hash == hash).map(|entry| &entry.zone)
    }

    /// Returns all zones, in no order.
    pub fn zones(&self) -> impl Iterator<Item = &Arc<Zone>> {
        self.rows.iter().flat_map(|row| &row.0).flat_map(|part| part.entries()).map(|entry| &entry.zone)
    }

    /// Returns the part in which a zone of this hash is.
    #[inline]
    fn part(&self, hash: NameHash) -> &Part {
        let index = part_index(hash);
        &self.rows[index / (PARTS / ROWS)].0[index % (PARTS / ROWS)]
    }
}

impl Part {
    fn empty() -> Part {
        Part { groups: Box::new([]), bucket_count: 0, zone_count: 0 }
    }

    #[inline]
    fn bucket(&self, hash: NameHash) -> Option<&Bucket> {
        let index = bucket_index(hash, self.bucket_count);
        self.groups.get(index / GROUP_BUCKETS)?.0[index % GROUP_BUCKETS].as_ref()
    }

    /// Returns the bucket for a zone of this hash, to be changed; `None` if there are no buckets.
    fn bucket_mut(&mut self, hash: NameHash) -> Option<&mut Option<Bucket>> {
        let index = bucket_index(hash, self.bucket_count);
        let group = Arc::make_mut(self.groups.get_mut(index / GROUP_BUCKETS)?);
        Some(&mut group.0[index % GROUP_BUCKETS])
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.groups.iter().flat_map(|group| group.0.iter().flatten()).flat_map(|bucket| bucket.iter())
    }

    /// Returns the same zones over as many buckets as `zone_count` zones need.
    fn laid_out_for(&self, zone_count: usize) -> Part {
        let bucket_count = zone_count.div_ceil(BUCKET_ZONES).next_power_of_two().min(PART_BUCKETS_MAX);
        let mut buckets: Vec<Vec<Entry>> = vec![Vec::new(); bucket_count];
        for entry in self.entries() {
            buckets[bucket_index(entry.hash, bucket_count)].push(entry.clone());
        }
        let group = |buckets: &[Vec<Entry>]| {
            let bucket = |at: usize| buckets.get(at).filter(|entries| !entries.is_empty());
            Arc::new(Group(std::array::from_fn(|at| bucket(at).map(|entries| entries.as_slice().into()))))
        };
        Part { groups: buckets.chunks(GROUP_BUCKETS).map(group).collect(), bucket_count, zone_count: self.zone_count }
    }
}

#[inline]
fn part_index(hash: NameHash) -> usize {
    (hash >> 56) as usize
}

#[inline]
fn bucket_index(hash: NameHash, buckets: usize) -> usize {
    (hash >> 40) as usize & buckets.wrapping_sub(1)
}

impl ZoneDb {
    /// Returns an empty map that is not ready, without numbers for zones.
    pub fn new() -> Self {
        Self::with_policies(0, Policies::default())
    }

    /// Creates an empty map with counter slots for `most` zones, by which their queries can be counted: those that the policies
    /// select, and the first others. Publish a zone in at most one map.
    pub fn with_policies(most: usize, policies: Policies) -> Self {
        let empty = Arc::new(Part::empty());
        let empty = Arc::new(Row(std::array::from_fn(|_| Arc::clone(&empty))));
        let rows = std::array::from_fn(|_| Arc::clone(&empty));
        let snapshot = Snapshot { readiness: Readiness::Nothing, depths: 0, zone_count: 0, rows };
        ZoneDb {
            current: Arc::new(ArcSwap::from_pointee(snapshot)),
            publisher: Mutex::new(Publisher {
                retired: Vec::new(),
                depth_counts: [0; LABELS_MAX + 1],
                numbers: CounterSlots::new(most, policies),
            }),
        }
    }

    /// Returns a view for one worker.
    pub fn reader(&self) -> Reader {
        Reader { cache: Cache::new(Arc::clone(&self.current)) }
    }

    /// Returns the current zones for a single use; workers have a [`Reader`]. Do not keep it: it pins this version.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Applies all `changes` in one step: readers see none or all of them. Each is an apex with the zone to serve instead of the
    /// former version; without a zone, the apex is no longer served. Of several changes of one apex the last counts.
    pub fn apply(&self, changes: impl IntoIterator<Item = (Name, Option<Arc<Zone>>)>) {
        let step = |(apex, zone): (Name, _)| Step { hash: Qname::of(apex.as_wire()).hash(0), apex, zone };
        let mut steps: Vec<Step> = changes.into_iter().map(step).collect();
        // Stable, so that two changes of one apex keep their order.
        steps.sort_by_key(|step| part_index(step.hash));

        let mut publisher = self.publisher.lock();
        publisher.numbers.assign(steps.iter().filter_map(|step| step.zone.as_deref()));
        let mut next = Snapshot::clone(&self.current.load());
        for steps in steps.chunk_by(|a, b| part_index(a.hash) == part_index(b.hash)) {
            let index = part_index(steps[0].hash);
            // Each list that readers can see is copied once.
            let row = Arc::make_mut(&mut next.rows[index / (PARTS / ROWS)]);
            let part = Arc::make_mut(&mut row.0[index % (PARTS / ROWS)]);
            let zones_after = part.zone_count + steps.len();
            if zones_after > 2 * BUCKET_ZONES * part.bucket_count {
                *part = part.laid_out_for(zones_after);
            }
            for step in steps {
                part.change(step, &mut publisher.depth_counts);
            }
        }
        next.zone_count = publisher.depth_counts.iter().sum();
        next.depths = (0..=LABELS_MAX)
            .filter(|depth| publisher.depth_counts[*depth] > 0)
            .fold(0, |bits, depth| bits | 1 << depth);
        self.swap(publisher, next);
    }

    /// Serves `zone` instead of the former version of its apex.
    pub fn publish(&self, zone: impl Into<Arc<Zone>>) {
        let zone = zone.into();
        self.apply([(zone.apex().clone(), Some(zone))]);
    }

    /// Serves all of `zones`, in one step.
    pub fn publish_many(&self, zones: impl IntoIterator<Item = Zone>) {
        self.apply(zones.into_iter().map(|zone| (zone.apex().clone(), Some(Arc::new(zone)))));
    }

    /// Stops serving `apex`.
    pub fn remove(&self, apex: &Name) {
        self.apply([(apex.clone(), None)]);
    }

    /// Returns the zone at `apex`.
    pub fn get(&self, apex: &Name) -> Option<Arc<Zone>> {
        self.current.load().at(&Qname::of(apex.as_wire()), 0).map(Arc::clone)
    }

    /// Returns all zones, in canonical order of their apexes.
    pub fn zones(&self) -> Vec<Arc<Zone>> {
        let mut zones: Vec<Arc<Zone>> = self.current.load().zones().cloned().collect();
        zones.sort_by(|a, b| a.apex().cmp(b.apex()));
        zones
    }

    /// Returns the number of zones.
    pub fn zone_count(&self) -> usize {
        self.current.load().zone_count
    }

    /// Lets the present zones answer; a name outside all of them gets SERVFAIL with EDE 14 (Not Ready). Before this call, every
    /// query gets that.
    pub fn open(&self) {
        self.become_ready(Readiness::SomeZones);
    }

    /// Returns the maximum number of zones with counter slots.
    pub fn numbers_max(&self) -> usize {
        self.publisher.lock().numbers.most()
    }

    /// Returns the apexes of zones that have or had numbers, by number.
    pub fn numbered(&self) -> Vec<Name> {
        self.publisher.lock().numbers.apexes().to_vec()
    }

    /// Lets the zones answer; a name outside all of them gets REFUSED.
    pub fn set_ready(&self) {
        self.become_ready(Readiness::AllZones);
    }

    fn become_ready(&self, readiness: Readiness) {
        let publisher = self.publisher.lock();
        let current = self.current.load();
        if current.readiness < readiness {
            let next = Snapshot { readiness, ..Snapshot::clone(&current) };
            drop(current);
            self.swap(publisher, next);
        }
    }

    /// Returns whether [`Self::set_ready`] was called.
    pub fn is_ready(&self) -> bool {
        self.current.load().is_ready()
    }

    /// Frees versions that no reader uses; returns the number of those still in use. Every publish also does this; call it
    /// periodically, so that the last replaced version does not stay during a quiet hour.
    pub fn reclaim(&self) -> usize {
        let mut publisher = self.publisher.lock();
        let unused = publisher.take_unused();
        let held = publisher.retired.len();
        drop(publisher);
        drop(unused);
        held
    }

    fn swap(&self, mut publisher: MutexGuard<'_, Publisher>, next: Snapshot) {
        publisher.retired.push(self.current.swap(Arc::new(next)));
        let unused = publisher.take_unused();
        // Freeing a large zone takes milliseconds, and needs no lock.
        drop(publisher);
        drop(unused);
    }
}

impl Default for ZoneDb {
    fn default() -> Self {
        Self::new()
    }
}

impl Publisher {
    fn take_unused(&mut self) -> Vec<Arc<Snapshot>> {
        // No new reader gets a replaced snapshot, so a count of one stays one.
        self.retired.extract_if(.., |snapshot| Arc::strong_count(snapshot) == 1).collect()
    }
}

impl Part {
    fn change(&mut self, step: &Step, depth_counts: &mut [usize]) {
        let hash = step.hash;
        let mut zone_count = self.zone_count;
        let Some(bucket) = self.bucket_mut(hash) else { return };
        let mut entries: Vec<Entry> = bucket.as_deref().unwrap_or_default().to_vec();
        let at = entries.iter().position(|entry| entry.hash == hash && *entry.zone.apex() == step.apex);
        match (&step.zone, at) {
            (Some(zone), Some(at)) => entries[at].zone = Arc::clone(zone),
            (Some(zone), None) => {
                entries.push(Entry { hash, zone: Arc::clone(zone) });
                zone_count += 1;
                depth_counts[zone.apex_labels()] += 1;
            }
            (None, Some(at)) => {
                let removed = entries.swap_remove(at).zone;
                zone_count -= 1;
                depth_counts[removed.apex_labels()] -= 1;
            }
            (None, None) => return,
        }
        *bucket = (!entries.is_empty()).then(|| entries.into());
        self.zone_count = zone_count;
    }
}
