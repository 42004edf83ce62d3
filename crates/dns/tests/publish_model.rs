//! After any sequence of steps, the map of zones has what a model of the origins has, and a listener that applies each difference to
//! the contents that it knows has the same zones.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use proptest::prelude::*;
use signpost_dns::wire::{Name, NameMap, RecordType};
use signpost_dns::zone::publish::{self, Change, Origin, Publisher, Reservation, Step, What};
use signpost_dns::zone::{Contents, OwnerChange, Rrset, Serial, Ttl, diff};

const APEXES: [&str; 4] = ["a.test.", "b.a.test.", "c.test.", "d.test."];
const OWNERS: [&str; 4] = ["@", "*", "h", "x.y"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    File,
    Objects,
    Broken,
}

#[derive(Debug, Clone)]
enum Edit {
    Whole(Who, Vec<(usize, u8)>),
    Unavailable(Who),
    /// The owners that change, each with an address, or none to delete it.
    Owners(Who, Vec<(usize, Option<u8>)>),
    Withdraw(Who),
}

#[derive(Debug, Clone)]
enum Action {
    Publish(Vec<(usize, Edit)>),
    Reserve(Vec<(usize, Reservation)>),
}

fn actions() -> impl Strategy<Value = Vec<Action>> {
    let who = || prop_oneof![3 => Just(Who::File), 3 => Just(Who::Objects), 1 => Just(Who::Broken)];
    let edit = prop_oneof![
        3 => (who(), prop::collection::vec((0..OWNERS.len(), 0..3u8), 0..4)).prop_map(|(who, owners)| Edit::Whole(who, owners)),
        1 => who().prop_map(Edit::Unavailable),
        4 => (who(), prop::collection::vec((0..OWNERS.len(), prop::option::of(0..3u8)), 0..4)).prop_map(|(who, owners)| Edit::Owners(who, owners)),
        2 => who().prop_map(Edit::Withdraw),
    ];
    let reservation = prop_oneof![Just(Reservation::Base), Just(Reservation::Refused)];
    let action = prop_oneof![
        8 => prop::collection::vec((0..APEXES.len(), edit), 0..6).prop_map(Action::Publish),
        1 => prop::collection::vec((0..APEXES.len(), reservation), 0..3).prop_map(Action::Reserve),
    ];
    prop::collection::vec(action, 1..40)
}

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn addresses(last: u8) -> Rrset {
    let ttl = Ttl::new(30).expect("small");
    Rrset { rtype: RecordType::A, ttl, rdata: vec![Box::from([192, 0, 2, last])] }
}

fn soa(serial: u32) -> Rrset {
    let rdata = [&[0, 0][..], &serial.to_be_bytes(), &[0; 16]].concat();
    Rrset { rtype: RecordType::SOA, ttl: Ttl::new(30).expect("small"), rdata: vec![rdata.into()] }
}

fn owner(apex: &Name, owner: usize) -> Name {
    Name::parse(OWNERS[owner].as_bytes(), apex).expect("a name")
}

/// The zone of one origin: `None` is one that is unavailable.
type ModelZone = Option<Contents>;

#[derive(Default)]
struct Model {
    zones: BTreeMap<(Name, Who), ModelZone>,
    reservations: BTreeMap<Name, Reservation>,
    serial: u32,
}

impl Model {
    fn served(&self, apex: &Name) -> Option<&ModelZone> {
        let order = match self.reservations.contains_key(apex) {
            true => &[Who::Objects][..],
            false => &[Who::File, Who::Objects, Who::Broken],
        };
        order.iter().find_map(|who| self.zones.get(&(apex.clone(), *who)))
    }

    /// Applies a change to the model, and returns it for the publisher.
    fn change(&mut self, apex: &Name, edit: &Edit) -> Change {
        let origin = |who: Who| match who {
            Who::File => Origin::File(Arc::from(Path::new("a.zone"))),
            Who::Objects => Origin::Objects,
            Who::Broken => Origin::BrokenFile,
        };
        self.serial += 1;
        let serial = self.serial;
        match edit {
            Edit::Whole(who, owners) => {
                let mut contents = Contents::new(apex.clone());
                contents.set(apex.clone(), soa(serial)).expect("in the zone");
                for (at, last) in owners {
                    contents.set(owner(apex, *at), addresses(*last)).expect("in the zone");
                }
                let zone = publish::build(contents.clone()).expect("it has a SOA");
                self.zones.insert((apex.clone(), *who), Some(contents));
                Change::whole(origin(*who), zone)
            }
            Edit::Unavailable(who) => {
                self.zones.insert((apex.clone(), *who), None);
                Change::unavailable(origin(*who), apex)
            }
            Edit::Owners(who, owners) => {
                let mut changes = Vec::new();
                let before = self.zones.get(&(apex.clone(), *who)).cloned().flatten();
                let mut after = before.clone().unwrap_or_else(|| Contents::new(apex.clone()));
                for (at, last) in owners {
                    let owner = owner(apex, *at);
                    let mut rrsets: Vec<Rrset> = last.iter().map(|last| addresses(*last)).collect();
                    if owner == *apex {
                        // With an older serial than that of the change.
                        rrsets.push(soa(0));
                    }
                    after.remove_owner(&owner);
                    for rrset in &rrsets {
                        after.set(owner.clone(), rrset.clone()).expect("in the zone");
                    }
                    changes.push(OwnerChange { owner, rrsets, weights: Vec::new() });
                }
                let has_apex = changes.iter().any(|change| change.owner == *apex);
                after.set(apex.clone(), soa(serial)).expect("in the zone");
                // A zone can also come as changes of all its owners.
                if before.is_some() || has_apex {
                    self.zones.insert((apex.clone(), *who), Some(after));
                }
                Change::of(apex, origin(*who), What::Owners { changes, serial: Serial(serial) })
            }
            Edit::Withdraw(who) => {
                self.zones.remove(&(apex.clone(), *who));
                Change::of(apex, origin(*who), What::Withdraw)
            }
        }
    }

    fn reserve(&mut self, reservations: &[(usize, Reservation)]) -> NameMap<Reservation> {
        let reservations: BTreeMap<Name, Reservation> =
            reservations.iter().map(|(at, reservation)| (name(APEXES[*at]), *reservation)).collect();
        for (apex, reservation) in &reservations {
            let stands_in = match self.served(apex).cloned() {
                _ if self.reservations.get(apex) == Some(reservation) => None,
                last => Some(last.flatten()),
            };
            if let Some(zone) = stands_in {
                self.zones.entry((apex.clone(), Who::Objects)).or_insert(zone);
            }
        }
        self.reservations.clone_from(&reservations);
        reservations.into_iter().collect()
    }
}

/// A listener with the contents of all zones, and the serial of each that can answer.
#[derive(Default)]
struct Follower {
    zones: BTreeMap<Name, (Option<Serial>, Contents)>,
    wrong: Vec<String>,
}

impl Follower {
    fn take(&mut self, step: &Step) {
        for swap in &step.swaps {
            let known = self.zones.remove(&swap.apex);
            let serial = known.as_ref().and_then(|(serial, _)| *serial);
            if serial != swap.old_serial() || known.is_some() != swap.before.is_some() {
                self.wrong.push(format!("{}: known {serial:?}, notified of {:?}", swap.apex, swap.old_serial()));
            }
            let mut contents = known.map_or_else(|| Contents::new(swap.apex.clone()), |(_, contents)| contents);
            for change in &*swap.difference() {
                contents.remove_owner(&change.owner);
                for rrset in &change.rrsets {
                    contents.set(change.owner.clone(), rrset.clone()).expect("in the zone");
                }
            }
            if swap.after.is_some() {
                self.zones.insert(swap.apex.clone(), (swap.new_serial(), contents));
            } else if contents.owner_count() > 0 {
                self.wrong.push(format!("{}: {contents:?} remains", swap.apex));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_map_has_what_the_origins_have_and_listeners_see_each_difference(history in actions()) {
        let mut model = Model::default();
        let publisher = Publisher::new(Arc::default());
        let followers = [(); 2].map(|()| Arc::<Mutex<Follower>>::default());
        for follower in &followers {
            let follower = Arc::clone(follower);
            publisher.listen(move |step| follower.lock().take(step));
        }
        for action in &history {
            match action {
                Action::Publish(edits) => {
                    let changes: Vec<Change> =
                        edits.iter().map(|(at, edit)| model.change(&name(APEXES[*at]), edit)).collect();
                    publisher.publish(changes);
                }
                Action::Reserve(reservations) => drop(publisher.reserve(model.reserve(reservations))),
            }
            for apex in APEXES.map(name) {
                let served = publisher.db().get(&apex);
                let contents = served.as_ref().map(|zone| zone.serial().map(|_| zone.contents()));
                let is_equal = match (&contents, model.served(&apex)) {
                    (Some(Some(served)), Some(Some(expected))) => diff::owners(served, expected).is_empty(),
                    (served, expected) => served.as_ref().map(Option::is_some) == expected.map(Option::is_some),
                };
                prop_assert!(is_equal, "{apex}: {contents:?} is served, not {:?}", model.served(&apex));
                for follower in &followers {
                    let follower = follower.lock();
                    prop_assert!(follower.wrong.is_empty(), "{:?}", follower.wrong);
                    let known = follower.zones.get(&apex);
                    prop_assert_eq!(known.map(|known| known.0), served.as_ref().map(|zone| zone.serial()), "{}", apex);
                    if let (Some((_, known)), Some(zone)) = (known, &served) {
                        prop_assert!(diff::owners(known, &zone.contents()).is_empty(), "{apex}: known {known:?}");
                    }
                }
                let is_file = model.zones.contains_key(&(apex.clone(), Who::File));
                let is_served = is_file && !model.reservations.contains_key(&apex);
                prop_assert_eq!(publisher.files().contains_key(&apex), is_served);
                let is_base = is_file && model.reservations.get(&apex) == Some(&Reservation::Base);
                prop_assert_eq!(publisher.base(&apex).is_some(), is_base);
            }
            prop_assert_eq!(publisher.db().zone_count(), APEXES.iter().filter(|apex| model.served(&name(apex)).is_some()).count());
        }
    }
}
