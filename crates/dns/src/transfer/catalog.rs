//! Catalog zones (RFC 9432): the list of the zones that secondary servers transfer, which they follow by transfers of the catalog.
//!
//! ```text
//! catalog.invalid.                0 SOA invalid. invalid. SERIAL 60 60 2147483646 0
//! catalog.invalid.                0 NS  invalid.
//! version.catalog.invalid.        0 TXT "2"
//! ID.zones.catalog.invalid.       0 PTR shard1.apps.example.com.
//! group.ID.zones.catalog.invalid. 0 TXT "shards"
//! ```
//!
//! [`Catalog`] listens to the [`Publisher`] of the served zones. Its own zone has a publisher, too, and a map that no query reads: it
//! changes, is announced and is transferred like any other zone, and other queries for it are refused, because
//! its list of zones is private (§7).
//!
//! A member that vanishes from the catalog is deleted by the secondary servers, with all its data. So nothing is published before all
//! zones are known, and the ID of a zone (§5.1) depends only on its name: it is the same on every name server and after a restart. (A
//! changed ID would reset the state of the zone, §5.4. Its serial does not go back when a shard is deleted and re-created.)

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE32HEX_NOPAD;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Rule;
use super::message::seconds_now;
use crate::wire::name::NAME_OCTETS_MAX;
use crate::wire::{Name, RecordType};
use crate::zone::builder::OwnerChange;
use crate::zone::policy::ZonePattern;
use crate::zone::publish::{Change, Origin, Publisher, Step, What, build};
use crate::zone::rrset::Rdata;
use crate::zone::{Contents, Rrset, Serial, Ttl, Zone, ZoneDb};

/// The least time between two versions. The serial of a version is the time in seconds: it does not go back in a restart.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time between two checks whether all zones are known.
const LOOK: Duration = Duration::from_millis(100);
/// Objects that were read are published within this time, even if the API is slow to allocate serials.
const SETTLE: Duration = Duration::from_secs(3);

/// The length of the hash in an ID in octets, of which the ID is 32 characters: IDs must be unique (§5.1).
const ID_OCTETS: usize = 20;

/// The longest name of a catalog, in octets in wire form: `group.ID.zones` must fit before it.
pub const CATALOG_OCTETS_MAX: usize = NAME_OCTETS_MAX - (6 + 33 + 6);

/// Zones with a common group property (§4.4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The value of the property: at most 255 octets.
    pub name: String,
    /// The zones; none: all.
    pub zones: Vec<ZonePattern>,
}

/// The producer of a catalog.
pub struct Catalog {
    name: Name,
    /// The groups; the first one of a zone counts.
    groups: Vec<Group>,
    zones: Publisher,
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    rules: Vec<Rule>,
    /// All served zones.
    served: BTreeSet<Name>,
    /// The zones in the published version.
    members: BTreeSet<Name>,
    /// The zones that may have to be added or removed.
    changed: BTreeSet<Name>,
}

impl Catalog {
    /// Returns the producer of a catalog, whose name has at most [`CATALOG_OCTETS_MAX`] octets. It lists the zones that a rule is about.
    pub fn new(name: Name, groups: Vec<Group>, rules: Vec<Rule>) -> Catalog {
        let zones = Publisher::new(Arc::new(ZoneDb::new()));
        Catalog { name, groups, zones, state: Mutex::new(State { rules, ..State::default() }), changed: Notify::new() }
    }

    /// Returns the name of the catalog.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the publisher of the catalog's zone, for its listeners.
    pub fn publisher(&self) -> &Publisher {
        &self.zones
    }

    /// Returns the current version; `None` until all zones are known.
    pub fn zone(&self) -> Option<Arc<Zone>> {
        self.zones.db().get(&self.name)
    }

    /// Records added and removed zones: the listener of the publisher of the served zones.
    pub fn record(&self, step: &Step) {
        let mut state = self.state.lock();
        let State { served, changed, .. } = &mut *state;
        for swap in &step.swaps {
            let is_change = match swap.after.is_some() {
                true => served.insert(swap.apex.clone()),
                false => served.remove(&swap.apex),
            };
            if is_change {
                changed.insert(swap.apex.clone());
            }
        }
        if !changed.is_empty() {
            self.changed.notify_one();
        }
    }

    /// Replaces the rules that zones are listed by.
    pub fn set_rules(&self, rules: Vec<Rule>) {
        let mut state = self.state.lock();
        state.rules = rules;
        state.changed = &state.served | &state.members;
        self.changed.notify_one();
    }

    /// Returns a served zone whose apex is the catalog's name, or a name above: RFC 9432 does not define such a catalog, and queries for
    /// its names would get answers from that zone.
    pub fn zone_above(&self) -> Option<Name> {
        let state = self.state.lock();
        let above = std::iter::successors(Some(self.name.clone()), Name::parent);
        above.into_iter().find(|name| state.served.contains(name))
    }

    /// Publishes a version with all changes, unless there are none, at the time `now` in seconds since the epoch. Returns whether it did.
    pub fn publish(&self, now: u64) -> bool {
        let mut state = self.state.lock();
        let State { rules, served, members, changed } = &mut *state;
        let is_listed = |apex: &Name| served.contains(apex) && rules.iter().any(|rule| rule.is_about(apex));
        let mut changes = Vec::new();
        for apex in std::mem::take(changed) {
            let listed = is_listed(&apex);
            if listed == members.contains(&apex) {
                continue;
            }
            changes.extend(self.records_of(&apex, listed));
            match listed {
                true => members.insert(apex),
                false => members.remove(&apex),
            };
        }
        drop(state);
        let origin = Origin::Objects;
        let step = match self.zone() {
            Some(_) if changes.is_empty() => return false,
            Some(zone) => {
                let serial = Serial::next(zone.serial().unwrap_or(Serial(0)), now);
                self.zones.publish([Change::of(&self.name, origin, What::Owners { changes, serial })])
            }
            None => {
                let mut contents = Contents::new(self.name.clone());
                for change in self.apex_records(now as u32).into_iter().chain(changes) {
                    for rrset in change.rrsets {
                        contents.set(change.owner.clone(), rrset).expect("the owners are in the zone");
                    }
                }
                let zone = build(contents).expect("it has a SOA, and no records that exclude each other");
                self.zones.publish([Change::whole(origin, zone)])
            }
        };
        assert!(step.refused.is_empty(), "the changes of a catalog do not fit it: {:?}", step.refused);
        true
    }

    /// Publishes a version after each change, until `stop`, while `is_complete` returns that all zones are known. The serial of a version is the
    /// time on this server: one without the zones that another name server knows would be newer than the one there, and secondary servers
    /// would delete these zones.
    pub async fn run(&self, is_complete: impl Fn() -> bool, stop: CancellationToken) {
        let mut completeness = Completeness::default();
        loop {
            while !completeness.lasts(is_complete(), Instant::now()) {
                if stop.run_until_cancelled(tokio::time::sleep(LOOK)).await.is_none() {
                    return;
                }
            }
            match self.zone_above() {
                None => {
                    self.publish(seconds_now());
                }
                Some(above) => tracing::error!(
                    "catalog {} stays unchanged: it is at or below the served zone {above}; change dns.catalog.name",
                    self.name
                ),
            }
            let next = async {
                tokio::time::sleep(INTERVAL).await;
                self.changed.notified().await;
            };
            if stop.run_until_cancelled(next).await.is_none() {
                return;
            }
        }
    }

    fn apex_records(&self, serial: u32) -> Vec<OwnerChange> {
        const INVALID: &[u8] = b"\x07invalid\0";
        let timers = [serial, 60, 60, 0x7fff_fffe, 0].map(u32::to_be_bytes).concat();
        let soa = Rdata::from([INVALID, INVALID, &timers].concat());
        vec![
            OwnerChange {
                owner: self.name.clone(),
                rrsets: vec![rrset(RecordType::SOA, soa), rrset(RecordType::NS, INVALID.into())],
                weights: Vec::new(),
            },
            change(self.below(b"\x07version"), Some(rrset(RecordType::TXT, b"\x012"[..].into()))),
        ]
    }

    /// Returns the records of a member, or their removal.
    fn records_of(&self, apex: &Name, is_listed: bool) -> Vec<OwnerChange> {
        let id = id_of(apex);
        let label = [&[id.len() as u8], id.as_bytes()].concat();
        let owner = self.below(&[&label, &b"\x05zones"[..]].concat());
        let pointer = is_listed.then(|| rrset(RecordType::PTR, apex.as_wire().into()));
        let mut changes = vec![change(owner, pointer)];
        if let Some(group) = self.groups.iter().find(|group| ZonePattern::any(&group.zones, apex)) {
            let owner = self.below(&[b"\x05group", &label[..], b"\x05zones"].concat());
            let text = [&[group.name.len() as u8], group.name.as_bytes()].concat();
            changes.push(change(owner, is_listed.then(|| rrset(RecordType::TXT, text.into()))));
        }
        changes
    }

    /// Returns the name of these labels before the catalog's.
    fn below(&self, labels: &[u8]) -> Name {
        Name::from_wire(&[labels, self.name.as_wire()].concat()).expect("CATALOG_OCTETS_MAX leaves room for the labels")
    }
}

/// The time since which all zones are known.
#[derive(Default)]
struct Completeness {
    since: Option<Instant>,
}

impl Completeness {
    /// Returns whether all zones are known at `now`, and have been for [`SETTLE`].
    fn lasts(&mut self, is_complete: bool, now: Instant) -> bool {
        self.since = is_complete.then(|| self.since.unwrap_or(now));
        self.since.is_some_and(|since| now >= since + SETTLE)
    }
}

/// Returns the ID of a member.
fn id_of(apex: &Name) -> String {
    let hash = digest(&SHA256, &apex.as_wire().to_ascii_lowercase());
    BASE32HEX_NOPAD.encode(&hash.as_ref()[..ID_OCTETS]).to_ascii_lowercase()
}

fn change(owner: Name, rrset: Option<Rrset>) -> OwnerChange {
    OwnerChange { owner, rrsets: rrset.into_iter().collect(), weights: Vec::new() }
}

fn rrset(rtype: RecordType, rdata: Rdata) -> Rrset {
    Rrset { rtype, ttl: Ttl::default(), rdata: vec![rdata] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::image::Unavailable;
    use crate::zonefile::write::to_text;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    fn rule(zones: &[&str]) -> Rule {
        let zones = zones.iter().map(|zone| ZonePattern::Below(name(zone))).collect();
        Rule { zones, networks: Vec::new(), keys: Vec::new(), tls: false }
    }

    fn catalog(rules: Vec<Rule>) -> (Arc<Catalog>, Publisher) {
        let group = |name: &str, zones: &[&str]| Group { name: name.to_owned(), zones: rule(zones).zones };
        let catalog = Arc::new(Catalog::new(
            name("catalog.invalid."),
            vec![group("shards", &["a.test."]), group("x", &[])],
            rules,
        ));
        let zones = Publisher::new(Arc::default());
        let listening = catalog.clone();
        zones.listen(move |step| listening.record(step));
        (catalog, zones)
    }

    fn known(apex: &str) -> Change {
        Change::whole(Origin::Objects, Arc::new(Zone::unavailable(name(apex), Unavailable::NotLoaded)))
    }

    fn members(catalog: &Catalog) -> Vec<String> {
        let contents = catalog.zone().expect("published").contents();
        let pointers = contents.owners().flat_map(|(_, rrsets)| rrsets).filter(|rrset| rrset.rtype == RecordType::PTR);
        let mut names: Vec<String> =
            pointers.map(|rrset| Name::from_wire(&rrset.rdata[0]).expect("a name").to_string()).collect();
        names.sort();
        names
    }

    #[test]
    fn zones_come_and_go() {
        let (catalog, zones) = catalog(vec![rule(&["a.test.", "other.test."])]);
        zones.publish([known("s1.a.test."), known("x.other.test."), known("not.listed.")]);
        assert!(catalog.zone().is_none(), "nothing before all zones are known");
        assert!(catalog.publish(1_000) && !catalog.publish(1_001), "a version, and no change");
        let text = String::from_utf8(to_text(&catalog.zone().expect("published").contents())).expect("text");
        let id = id_of(&name("s1.a.test."));
        assert_eq!((id.len(), id_of(&name("S1.A.test."))), (32, id.clone()));
        for line in [
            "@\tIN\tSOA\tinvalid. invalid. 1000 60 60 2147483646 0".to_owned(),
            "@\tIN\tNS\tinvalid.".to_owned(),
            "version\tIN\tTXT\t\"2\"".to_owned(),
            format!("{id}.zones\tIN\tPTR\ts1.a.test."),
            format!("group.{id}.zones\tIN\tTXT\t\"shards\""),
        ] {
            assert!(text.lines().any(|other| other.replace(' ', "\t") == line.replace(' ', "\t")), "{line}: {text}");
        }
        // Two changes in one second; a clock that went back.
        zones.publish([known("s2.a.test."), Change::of(&name("s1.a.test."), Origin::Objects, What::Withdraw)]);
        assert!(catalog.publish(1_000));
        assert_eq!(members(&catalog), ["s2.a.test.", "x.other.test."]);
        assert_eq!(catalog.zone().and_then(|zone| zone.serial()), Some(Serial(1_001)));
        zones.publish([known("s1.a.test."), Change::of(&name("s1.a.test."), Origin::Objects, What::Withdraw)]);
        assert!(!catalog.publish(2_000), "it came and went");
        catalog.set_rules(vec![rule(&["."])]);
        assert!(catalog.publish(2_000));
        assert_eq!(members(&catalog), ["not.listed.", "s2.a.test.", "x.other.test."]);
    }

    /// A name server that has lost the API lacks zones that others list.
    #[test]
    fn a_version_needs_all_zones_for_some_time() {
        let (start, mut completeness) = (Instant::now(), Completeness::default());
        for (second, is_complete, expected) in [
            (0, false, false),
            (1, true, false),
            (3, true, false),
            (4, true, true),
            (900, true, true),
            (901, false, false),
            (902, true, false),
            (905, true, true),
        ] {
            let now = start + Duration::from_secs(second);
            assert_eq!(completeness.lasts(is_complete, now), expected, "second {second}");
        }
    }

    #[test]
    fn a_catalog_is_not_below_a_zone() {
        let (catalog, zones) = catalog(vec![rule(&["."])]);
        zones.publish([known("a.catalog.invalid."), known("test.")]);
        assert_eq!(catalog.zone_above(), None);
        zones.publish([known("invalid.")]);
        assert_eq!(catalog.zone_above(), Some(name("invalid.")));
    }

    #[test]
    fn the_longest_names_fit() {
        let full =
            Name::from_wire(&[[&[63][..], &[b'c'; 63]].concat().repeat(3), vec![16], vec![b'd'; 16], vec![0]].concat());
        let full = full.expect("a name of 210 octets");
        assert_eq!(full.as_wire().len(), CATALOG_OCTETS_MAX);
        let groups = vec![Group { name: "g".to_owned(), zones: Vec::new() }];
        let catalog = Catalog::new(full, groups, vec![rule(&["."])]);
        let owners = catalog.records_of(&name("a.test."), true);
        assert_eq!(owners[1].owner.as_wire().len(), NAME_OCTETS_MAX);
    }
}
