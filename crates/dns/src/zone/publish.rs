//! The one way in which a zone changes: from the changes of every origin to the map of zones.
//!
//! ```text
//!  files ─────┐
//!  objects ───┼─► Change ─► own ─► sign ─► build or apply ─► difference ─► swap ─► notify
//!  primaries ─┘
//! ```
//!
//! 1. **own**: each origin has its own zone of an apex, and the precedence of [`Origin`] selects the zone to serve. At an apex with a
//!    [`Reservation`], only the objects' zone is served. The zones of other origins wait: if the zone of a file is withdrawn, that of
//!    the objects replaces it in the same step.
//! 2. **sign**: no zone is signed here. The place is after own, because the zones of some origins are not served.
//! 3. **build or apply**: an origin compiles a whole zone with [`build`], on its own threads; changed owners are applied to the
//!    origin's last zone, at a cost that depends on the change.
//! 4. **difference**: a [`Swap`] has the zones before and after. [`Swap::difference`] compares them when a listener needs it, and not
//!    at all if only owners changed.
//! 5. **swap**: [`ZoneDb`] gets all zones of a step at once.
//! 6. **notify**: each listener gets each [`Step`], in order.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use super::builder::{BuildError, OwnerChange};
use super::contents::Contents;
use super::db::ZoneDb;
use super::diff;
use super::image::{DENIES_ALWAYS, Unavailable, Zone};
use super::serial::Serial;
use crate::wire::{Name, NameMap, RecordType};

/// A change of the zone that an origin has at an apex.
pub struct Change {
    /// The apex of the zone.
    pub apex: Name,
    /// The origin of the zone.
    pub origin: Origin,
    /// The change.
    pub what: What,
}

/// The kind of a [`Change`].
pub enum What {
    /// The origin has this zone now.
    Whole(Arc<Zone>),
    /// Some owners of the zone changed. Without a zone, these are all of it.
    Owners {
        /// The records of each changed owner. Of several changes of one owner, the last counts.
        changes: Vec<OwnerChange>,
        /// The new serial, which replaces that of the SOA.
        serial: Serial,
    },
    /// The origin no longer has the zone.
    Withdraw,
}

/// The origin of a zone. Of the origins that have a zone, the first one in this order serves it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A zone file: the operator of this name server put it there.
    File(Arc<Path>),
    /// The objects of an API.
    Objects,
    /// A primary server ([`crate::secondary`]). An unavailable zone was not transferred yet, or has expired.
    Primary,
    /// A file with errors that never provided a zone. Its zone is unavailable: it is known, its contents are not, and the name server
    /// must not answer that its names do not exist.
    BrokenFile,
}

/// The number of kinds of [`Origin`].
const RANKS: usize = 4;
const FILE: usize = 0;
const OBJECTS: usize = 1;
const PRIMARY: usize = 2;

impl Origin {
    fn rank(&self) -> usize {
        match self {
            Origin::File(_) => FILE,
            Origin::Objects => OBJECTS,
            Origin::Primary => PRIMARY,
            Origin::BrokenFile => 3,
        }
    }
}

/// The use of a zone file at an apex where only the objects' zone is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reservation {
    /// The file provides the base of the objects' zone, see [`Publisher::base`].
    Base,
    /// The file has no use.
    Refused,
}

/// The zone that an origin serves.
#[derive(Clone)]
pub struct Version {
    /// The origin.
    pub origin: Origin,
    /// The zone.
    pub zone: Arc<Zone>,
}

/// A served zone that was replaced, added or removed.
pub struct Swap {
    /// The apex of the zone.
    pub apex: Name,
    /// The zone until now; `None`: the apex was not served.
    pub before: Option<Version>,
    /// The zone from now on; `None`: the apex is not served any more.
    pub after: Option<Version>,
    /// The changes of the origin of `before`, if they are only changes of owners.
    changes: Option<Vec<OwnerChange>>,
}

/// The outcome of one step: everything that changed at one moment.
#[derive(Default)]
pub struct Step {
    /// The zones whose served version changed, at most one for each apex.
    pub swaps: Vec<Swap>,
    /// Whether [`Publisher::files`] or [`Publisher::base`] changed.
    pub files_changed: bool,
    /// The faults of changes that were not applied: the zone of each is still the former one.
    pub refused: Vec<BuildError>,
}

/// The publisher of a map of zones, with the register of the origins of each apex.
pub struct Publisher {
    db: Arc<ZoneDb>,
    state: Mutex<State>,
}

type Listener = Box<dyn Fn(&Step) + Send + Sync>;

#[derive(Default)]
struct State {
    register: NameMap<Origins>,
    reservations: NameMap<Reservation>,
    /// Whether existing names may be missing from the zones of objects.
    partial: bool,
    /// The time until which zones at reserved apexes may deny names, in seconds since the epoch; `None`: always.
    denies_until: Option<u64>,
    listeners: Vec<Listener>,
}

/// The zones that the origins have at one apex.
#[derive(Default)]
struct Origins {
    /// The zone of each origin, in the order of precedence.
    zones: [Option<Arc<Zone>>; RANKS],
    /// The file of the zone of rank [`FILE`].
    file: Option<Arc<Path>>,
}

/// Compiles the contents of a whole zone, for [`What::Whole`]. Many zones can be compiled in parallel before one step.
pub fn build(contents: Contents) -> Result<Arc<Zone>, BuildError> {
    Zone::build(contents).map(Arc::new)
}

impl Change {
    /// Returns the change that makes `zone` the zone of an origin.
    pub fn whole(origin: Origin, zone: Arc<Zone>) -> Change {
        Change { apex: zone.apex().clone(), origin, what: What::Whole(zone) }
    }

    /// Returns a change of the zone at `apex`.
    pub fn of(apex: &Name, origin: Origin, what: What) -> Change {
        Change { apex: apex.clone(), origin, what }
    }

    /// Returns the change of an origin that knows the zone at `apex`, and has no contents to serve.
    pub fn unavailable(origin: Origin, apex: &Name) -> Change {
        Change::whole(origin, not_loaded(apex))
    }
}

fn not_loaded(apex: &Name) -> Arc<Zone> {
    Arc::new(Zone::unavailable(apex.clone(), Unavailable::NotLoaded))
}

impl Publisher {
    /// Returns the publisher of `db`, to which nothing else publishes.
    pub fn new(db: Arc<ZoneDb>) -> Self {
        Publisher { db, state: Mutex::default() }
    }

    /// Returns the map of zones.
    pub fn db(&self) -> &Arc<ZoneDb> {
        &self.db
    }

    /// Calls `listener` for each later step that changed something, before the next step begins. It must be short, and must not call
    /// the publisher.
    pub fn listen(&self, listener: impl Fn(&Step) + Send + Sync + 'static) {
        self.state.lock().listeners.push(Box::new(listener));
    }

    /// Applies all `changes` in one step: readers see none or all of them. Of several changes of one zone, each builds upon the previous
    /// change, and listeners get the sum.
    pub fn publish(&self, changes: impl IntoIterator<Item = Change>) -> Step {
        let mut state = self.state.lock();
        let mut step = Step::default();
        let mut swap_of: NameMap<usize> = NameMap::default();
        for change in changes {
            let at = *swap_of.entry(change.apex.clone()).or_insert_with_key(|apex| {
                step.swaps.push(state.swap(apex));
                step.swaps.len() - 1
            });
            match state.take(change, &mut step.swaps[at]) {
                Ok(files_changed) => step.files_changed |= files_changed,
                Err(error) => step.refused.push(error),
            }
        }
        self.finish(state, step)
    }

    /// Replaces all reservations. Until the objects have a zone at a reserved apex, the last served one remains; without one, the apex
    /// is unavailable. Returns the files that are refused from now on.
    pub fn reserve(&self, reservations: NameMap<Reservation>) -> Vec<Arc<Path>> {
        let mut state = self.state.lock();
        let known = state.reservations.iter().chain(&reservations);
        let changed = known.filter(|(apex, _)| state.reservations.get(*apex) != reservations.get(*apex));
        let mut swaps: Vec<Swap> = changed.map(|(apex, _)| state.swap(apex)).collect();
        if swaps.is_empty() {
            return Vec::new();
        }
        swaps.sort_by(|a, b| a.apex.cmp(&b.apex));
        swaps.dedup_by(|a, b| a.apex == b.apex);
        state.reservations = reservations;
        let refused = swaps.iter().filter_map(|swap| state.settle(swap)).collect();
        self.finish(state, Step { swaps, files_changed: true, refused: Vec::new() });
        refused
    }

    /// The stages difference, swap and notify.
    fn finish(&self, state: MutexGuard<'_, State>, mut step: Step) -> Step {
        for swap in &mut step.swaps {
            swap.after = state.owner(&swap.apex);
        }
        let zone = |version: &Option<Version>| version.as_ref().map(|version| Arc::as_ptr(&version.zone));
        step.swaps.retain(|swap| zone(&swap.before) != zone(&swap.after));
        if !step.swaps.is_empty() {
            let after = |swap: &Swap| swap.after.as_ref().map(|after| Arc::clone(&after.zone));
            self.db.apply(step.swaps.iter().map(|swap| (swap.apex.clone(), after(swap))));
        }
        if !step.swaps.is_empty() || step.files_changed {
            state.listeners.iter().for_each(|listener| listener(&step));
        }
        step
    }

    /// Returns the reservation of an apex.
    pub fn reservation(&self, apex: &Name) -> Option<Reservation> {
        self.state.lock().reservations.get(apex).copied()
    }

    /// Returns the origin that serves an apex, and its zone.
    pub fn owner(&self, apex: &Name) -> Option<Version> {
        self.state.lock().owner(apex)
    }

    /// Returns the zone from primary servers at an apex, even if another one is served.
    pub fn of_primaries(&self, apex: &Name) -> Option<Arc<Zone>> {
        self.state.lock().register.get(apex)?.zones[PRIMARY].clone()
    }

    /// Returns the apexes that files serve, with their files.
    pub fn files(&self) -> BTreeMap<Name, Arc<Path>> {
        let state = self.state.lock();
        let files = state.register.iter().filter(|(apex, _)| !state.reservations.contains_key(*apex));
        files.filter_map(|(apex, origins)| Some((apex.clone(), Arc::clone(origins.file.as_ref()?)))).collect()
    }

    /// Returns the contents of the file at an apex that is reserved for a base.
    pub fn base(&self, apex: &Name) -> Option<Arc<Contents>> {
        let state = self.state.lock();
        state.reservations.get(apex).filter(|reservation| **reservation == Reservation::Base)?;
        let zone = state.register.get(apex)?.zones[FILE].clone()?;
        drop(state);
        Some(Arc::new(zone.contents()))
    }

    /// Sets whether existing names can be missing from the zones of objects: if so, these zones do not answer NXDOMAIN.
    pub fn set_partial(&self, partial: bool) {
        let mut state = self.state.lock();
        state.partial = partial;
        state.register.keys().for_each(|apex| state.limit_denials(apex));
    }

    /// Sets the time until which the objects' zones at reserved apexes may answer NXDOMAIN, in seconds since the epoch. Their other
    /// zones are those of shards, which have a wildcard.
    pub fn set_denies_until(&self, seconds: u64) {
        let mut state = self.state.lock();
        state.denies_until = Some(seconds);
        state.reservations.keys().for_each(|apex| state.limit_denials(apex));
    }
}

impl State {
    fn swap(&self, apex: &Name) -> Swap {
        Swap { apex: apex.clone(), before: self.owner(apex), after: None, changes: Some(Vec::new()) }
    }

    /// The stage own: the first origin that has a zone, and may serve it.
    fn owner(&self, apex: &Name) -> Option<Version> {
        let origins = self.register.get(apex)?;
        let is_reserved = self.reservations.contains_key(apex);
        let mut ranked = origins.zones.iter().enumerate().filter(|(rank, _)| !is_reserved || *rank == OBJECTS);
        let (rank, zone) = ranked.find_map(|(rank, zone)| Some((rank, zone.as_ref()?)))?;
        let origin = match rank {
            FILE => Origin::File(origins.file.clone()?),
            OBJECTS => Origin::Objects,
            PRIMARY => Origin::Primary,
            _ => Origin::BrokenFile,
        };
        Some(Version { origin, zone: Arc::clone(zone) })
    }

    /// The stages build or apply, for the zone of one origin. Returns whether the files in use changed.
    fn take(&mut self, change: Change, swap: &mut Swap) -> Result<bool, BuildError> {
        let Change { apex, origin, what } = change;
        let rank = origin.rank();
        let origins = self.register.entry(apex.clone()).or_default();
        let is_served = swap.before.as_ref().is_some_and(|before| before.origin.rank() == rank);
        let (zone, owners) = match what {
            What::Whole(zone) => (Some(zone), None),
            What::Owners { changes, serial } => {
                let zone = origins.zones[rank].clone().unwrap_or_else(|| not_loaded(&apex));
                let owners = with_serial(&zone, changes, serial);
                (Some(Arc::new(zone.with_changes(&owners)?)), Some(owners))
            }
            What::Withdraw => (None, None),
        };
        if is_served {
            let both = swap.changes.take().zip(owners);
            swap.changes = both.map(|(changes, owners)| changes.into_iter().chain(owners).collect());
        }
        let reservation = self.reservations.get(&apex);
        if let (OBJECTS, Some(zone)) = (rank, &zone) {
            zone.set_follows();
            if reservation.is_none() {
                zone.set_shard();
            }
        }
        let mut files_changed = false;
        if let Origin::File(path) = origin {
            let path = zone.is_some().then_some(path);
            files_changed = reservation.map_or(origins.file != path, |use_of| *use_of == Reservation::Base);
            origins.file = path;
        }
        origins.zones[rank] = zone;
        if origins.zones.iter().all(Option::is_none) {
            self.register.remove(&apex);
        }
        self.limit_denials(&apex);
        Ok(files_changed)
    }

    /// Applies a new or ended reservation. Returns the file that it refuses.
    fn settle(&mut self, swap: &Swap) -> Option<Arc<Path>> {
        let reservation = self.reservations.get(&swap.apex).copied();
        if reservation.is_some() {
            let last = || swap.before.as_ref().and_then(|before| before.zone.with_changes(&[]).ok());
            let stand_in = || last().map_or_else(|| not_loaded(&swap.apex), Arc::new);
            self.register.entry(swap.apex.clone()).or_default().zones[OBJECTS].get_or_insert_with(stand_in);
        }
        self.limit_denials(&swap.apex);
        self.register.get(&swap.apex)?.file.clone().filter(|_| reservation == Some(Reservation::Refused))
    }

    fn limit_denials(&self, apex: &Name) {
        if let Some(zone) = self.register.get(apex).and_then(|origins| origins.zones[OBJECTS].as_ref()) {
            let limit = self.denies_until.filter(|_| self.reservations.contains_key(apex));
            zone.set_denies_until(if self.partial { 0 } else { limit.unwrap_or(DENIES_ALWAYS) });
        }
    }
}

/// Returns `changes` with the SOA of this serial at the apex.
fn with_serial(zone: &Zone, mut changes: Vec<OwnerChange>, serial: Serial) -> Vec<OwnerChange> {
    let changed = changes.iter().rposition(|change| change.owner == *zone.apex());
    let mut apex = changed.map(|at| changes.remove(at)).unwrap_or_else(|| {
        let records = zone.apex_node().into_iter().flat_map(|node| node.rrsets().collect::<Vec<_>>());
        let weights = records.filter_map(|records| Some((records.rtype(), records.weights()?.collect()))).collect();
        OwnerChange { owner: zone.apex().clone(), rrsets: zone.owner(zone.apex()), weights }
    });
    let soa = apex.rrsets.iter_mut().filter(|rrset| rrset.rtype == RecordType::SOA);
    for rdata in soa.flat_map(|rrset| &mut rrset.rdata) {
        // The serial is the first of the five numbers at the end (RFC 1035 §3.3.13).
        if let Some(octets) = rdata.len().checked_sub(20).and_then(|at| rdata.get_mut(at..at + 4)) {
            octets.copy_from_slice(&serial.0.to_be_bytes());
        }
    }
    changes.push(apex);
    changes
}

impl Swap {
    /// Returns the serial until now; `None` without a zone that could answer.
    pub fn old_serial(&self) -> Option<Serial> {
        self.before.as_ref()?.zone.serial()
    }

    /// Returns the serial from now on; `None` without a zone that can answer.
    pub fn new_serial(&self) -> Option<Serial> {
        self.after.as_ref()?.zone.serial()
    }

    /// Returns the changed owners, if they are known to be the only difference.
    pub fn changed_owners(&self) -> Option<&[OwnerChange]> {
        match (&self.before, &self.after, &self.changes) {
            (Some(before), Some(after), Some(changes)) if before.origin.rank() == after.origin.rank() => Some(changes),
            _ => None,
        }
    }

    /// Returns changes that turn the records before into those after. If the owners are not known to be the only difference, this
    /// compares all records of both zones.
    pub fn difference(&self) -> Cow<'_, [OwnerChange]> {
        if let Some(changes) = self.changed_owners() {
            return changes.into();
        }
        let none = || Contents::new(self.apex.clone());
        let contents =
            |version: &Option<Version>| version.as_ref().map_or_else(none, |version| version.zone.contents());
        diff::owners(&contents(&self.before), &contents(&self.after)).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::{Rrset, Ttl};

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn records(rtype: RecordType, rdata: &[u8]) -> Rrset {
        Rrset { rtype, ttl: Ttl::new(30).expect("small"), rdata: vec![rdata.into()] }
    }

    fn zone(apex: &Name, serial: u8) -> Arc<Zone> {
        let mut contents = Contents::new(apex.clone());
        let soa = [&[0, 0][..], &[0, 0, 0, serial], &[0; 16]].concat();
        contents.set(apex.clone(), records(RecordType::SOA, &soa)).expect("in the zone");
        build(contents).expect("it has a SOA")
    }

    fn file() -> Origin {
        Origin::File(Arc::from(Path::new("a.zone")))
    }

    /// Which serial answers: that of the file, 1, or that of the objects, 2; 0: unavailable; `None`: no zone.
    fn served(publisher: &Publisher, apex: &Name) -> Option<u32> {
        let zone = publisher.db().get(apex)?;
        Some(zone.serial().map_or(0, |serial| serial.0))
    }

    /// All orders in which some of these events arrive, each at most once.
    fn orders<T: Copy + PartialEq>(events: &[T]) -> Vec<Vec<T>> {
        let mut all = vec![Vec::new()];
        for &event in events {
            let rest: Vec<T> = events.iter().copied().filter(|other| *other != event).collect();
            all.extend(orders(&rest).into_iter().map(|order| [vec![event], order].concat()));
        }
        all
    }

    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Event {
        File,
        NoFile,
        Broken,
        Mended,
        Objects,
        NoObjects,
    }

    #[test]
    fn precedence_is_the_same_in_every_order() {
        use Event::{Broken, File, Mended, NoFile, NoObjects, Objects};
        let apex = name("a.test.");
        // By the reservation: the served zone with a file, a broken file, and objects.
        #[rustfmt::skip]
        let table = [
            (None, [
                (false, false, false, None), (true, false, false, Some(1)), (false, true, false, Some(0)), (true, true, false, Some(1)),
                (false, false, true, Some(2)), (true, false, true, Some(1)), (false, true, true, Some(2)), (true, true, true, Some(1)),
            ]),
            (Some(Reservation::Base), [
                (false, false, false, None), (true, false, false, None), (false, true, false, None), (true, true, false, None),
                (false, false, true, Some(2)), (true, false, true, Some(2)), (false, true, true, Some(2)), (true, true, true, Some(2)),
            ]),
            (Some(Reservation::Refused), [
                (false, false, false, None), (true, false, false, None), (false, true, false, None), (true, true, false, None),
                (false, false, true, Some(2)), (true, false, true, Some(2)), (false, true, true, Some(2)), (true, true, true, Some(2)),
            ]),
        ];
        for (reservation, rows) in table {
            for order in orders(&[File, NoFile, Broken, Mended, Objects, NoObjects]) {
                let publisher = Publisher::new(Arc::default());
                publisher.reserve(reservation.map(|reservation| (apex.clone(), reservation)).into_iter().collect());
                // Without the placeholder for the objects' zone.
                publisher.publish([Change::of(&apex, Origin::Objects, What::Withdraw)]);
                let (mut has_file, mut is_broken, mut has_objects) = (false, false, false);
                for event in &order {
                    let change = match event {
                        File => Change::whole(file(), zone(&apex, 1)),
                        NoFile => Change::of(&apex, file(), What::Withdraw),
                        Broken => Change::unavailable(Origin::BrokenFile, &apex),
                        Mended => Change::of(&apex, Origin::BrokenFile, What::Withdraw),
                        Objects => Change::whole(Origin::Objects, zone(&apex, 2)),
                        NoObjects => Change::of(&apex, Origin::Objects, What::Withdraw),
                    };
                    match event {
                        File | NoFile => has_file = *event == File,
                        Broken | Mended => is_broken = *event == Broken,
                        Objects | NoObjects => has_objects = *event == Objects,
                    }
                    publisher.publish([change]);
                    let row = rows.iter().find(|row| (row.0, row.1, row.2) == (has_file, is_broken, has_objects));
                    let expected = row.expect("all cases are in the table").3;
                    assert_eq!(served(&publisher, &apex), expected, "{reservation:?}: {order:?} at {event:?}");
                    let is_base = has_file && reservation == Some(Reservation::Base);
                    assert_eq!(publisher.base(&apex).is_some(), is_base, "{order:?} at {event:?}");
                    assert_eq!(publisher.files().len(), usize::from(has_file && reservation.is_none()), "{order:?}");
                }
            }
        }
    }

    /// A file, then objects, then a primary server, then a broken file.
    #[test]
    fn a_zone_of_a_primary_server_gives_way_to_the_operators_own() {
        let apex = name("a.test.");
        let publisher = Publisher::new(Arc::default());
        publisher.publish([Change::unavailable(Origin::BrokenFile, &apex)]);
        for (origin, serial) in [(Origin::Primary, 3), (Origin::Objects, 2), (file(), 1)] {
            publisher.publish([Change::whole(origin.clone(), zone(&apex, serial))]);
            let served = publisher.owner(&apex).map(|version| (version.origin, version.zone.serial()));
            assert_eq!(served, Some((origin, Some(Serial(serial.into())))));
        }
        // It is kept up to date meanwhile, and is served again.
        publisher.publish([Change::whole(Origin::Primary, zone(&apex, 4))]);
        assert_eq!(served(&publisher, &apex), Some(1));
        assert_eq!(publisher.of_primaries(&apex).and_then(|zone| zone.serial()), Some(Serial(4)));
        publisher.publish([file(), Origin::Objects].map(|origin| Change::of(&apex, origin, What::Withdraw)));
        assert_eq!(served(&publisher, &apex), Some(4));
        publisher.reserve(NameMap::from_iter([(apex.clone(), Reservation::Refused)]));
        publisher.publish([Change::whole(Origin::Objects, zone(&apex, 2))]);
        assert_eq!(served(&publisher, &apex), Some(2), "at a reserved apex, only the objects' zone");
    }

    /// Files are read before a name server knows its former domains.
    #[test]
    fn a_reserved_apex_keeps_its_zone_until_the_objects_have_one() {
        let apexes = ["base.test.", "refused.test.", "other.test.", "new.test."].map(name);
        let [base, refused, other, new] = &apexes;
        let publisher = Publisher::new(Arc::default());
        let path = |apex: &Name| Arc::<Path>::from(Path::new(&apex.to_string()));
        publisher.publish(apexes[..3].iter().map(|apex| Change::whole(Origin::File(path(apex)), zone(apex, 1))));
        publisher.set_denies_until(7);
        let reservations = NameMap::from_iter([
            (base.clone(), Reservation::Base),
            (new.clone(), Reservation::Base),
            (refused.clone(), Reservation::Refused),
        ]);
        assert_eq!(publisher.reserve(reservations.clone()), [path(refused)]);
        let now = |publisher: &Publisher| apexes.each_ref().map(|apex| served(publisher, apex));
        assert_eq!(now(&publisher), [Some(1), Some(1), Some(1), Some(0)], "the last zones, and the place of a new one");
        assert!(publisher.files().keys().eq([other]));
        assert!(publisher.base(base).is_some() && publisher.base(refused).is_none() && publisher.base(new).is_none());
        assert!(publisher.reserve(reservations).is_empty(), "nothing changed");

        publisher.publish([base, refused, other, new].map(|apex| Change::whole(Origin::Objects, zone(apex, 2))));
        assert_eq!(now(&publisher), [Some(2), Some(2), Some(1), Some(2)]);
        let denies = |apex: &Name, at| publisher.db().get(apex).is_some_and(|zone| zone.may_deny(at));
        assert_eq!([base, other].map(|apex| (denies(apex, 6), denies(apex, 8))), [(true, false), (true, true)]);
        publisher.set_partial(true);
        assert_eq!([base, other].map(|apex| denies(apex, 6)), [false, true], "a file lacks no names");

        // The file is still there, and serves again.
        publisher.reserve(NameMap::default());
        assert_eq!(now(&publisher), [Some(1), Some(1), Some(1), Some(2)]);
        assert_eq!(publisher.files().len(), 3);
        publisher.publish([base, refused].map(|apex| Change::of(apex, Origin::Objects, What::Withdraw)));
        assert_eq!(now(&publisher), [Some(1), Some(1), Some(1), Some(2)]);
        assert!(publisher.base(base).is_none() && denies(base, 8), "the limit is that of the objects' zone");
    }

    #[test]
    fn changed_owners_need_a_zone_and_keep_it_servable() {
        let apex = name("a.test.");
        let publisher = Publisher::new(Arc::default());
        let host = |owner: &str| OwnerChange {
            owner: name(owner),
            rrsets: vec![records(RecordType::A, &[192, 0, 2, 1])],
            weights: Vec::new(),
        };
        let change =
            |changes: Vec<OwnerChange>| Change::of(&apex, Origin::Objects, What::Owners { changes, serial: Serial(9) });
        let step = publisher.publish([change(vec![host("b.a.test.")])]);
        assert_eq!(step.refused, [BuildError::NoSoa { apex: apex.clone() }]);
        let step = publisher.publish([Change::whole(Origin::Objects, zone(&apex, 2)), change(vec![host("b.a.test.")])]);
        assert_eq!(
            (step.swaps.len(), step.swaps[0].old_serial(), step.swaps[0].new_serial()),
            (1, None, Some(Serial(9)))
        );
        assert_eq!(served(&publisher, &apex), Some(9));
        let step = publisher.publish([change(vec![host("b.test.")])]);
        assert_eq!(step.refused, [BuildError::OutOfZone { owner: name("b.test."), apex: apex.clone() }]);
        assert_eq!(served(&publisher, &apex), Some(9), "the last zone");

        // A change of the serial keeps the weights at the apex.
        let weights = vec![(RecordType::A, vec![1, 2])];
        let both =
            Rrset { rdata: vec![Box::from([192, 0, 2, 1]), Box::from([192, 0, 2, 2])], ..records(RecordType::A, &[]) };
        let soa = publisher.db().get(&apex).expect("served").owner(&apex);
        let top = OwnerChange { owner: apex.clone(), rrsets: [soa, vec![both]].concat(), weights: weights.clone() };
        publisher.publish([change(vec![top]), change(Vec::new())]);
        let contents = publisher.db().get(&apex).expect("served").contents();
        assert_eq!(contents.weights(&apex, RecordType::A), Some(&weights[0].1[..]));

        // One owner of many: the changes are the difference, and nothing is compared.
        let step = publisher.publish([change(vec![host("c.a.test.")])]);
        assert!(
            matches!(step.swaps[0].difference(), Cow::Borrowed([host, top]) if host.owner == name("c.a.test.") && top.owner == apex)
        );
    }
}
