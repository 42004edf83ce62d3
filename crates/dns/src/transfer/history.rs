//! The last differences of each zone, from which incremental transfers (RFC 1995) are made.
//!
//! They are computed between the published contents, never assumed, and are lost in a restart: a client then gets the whole zone. If
//! a zone as a whole was replaced by one with more than [`COMPARED_OWNERS_MAX`] owners, its history begins again.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;

use super::Record;
use super::message::records_of;
use crate::wire::{Name, NameMap, RecordType};
use crate::zone::publish::{Step, Swap};
use crate::zone::{Rrset, Serial, diff};

/// The maximum number of differences of a zone. A secondary server that is behind by more gets the whole zone.
const DIFFERENCES_MAX: usize = 1_000;
/// The maximum size of the differences of a zone in octets: to merge them takes some milliseconds.
const ZONE_OCTETS_MAX: usize = 2 << 20;
/// The maximum size of the differences of all zones in octets. When it is reached, the zones that change lose their history.
const OCTETS_MAX: usize = 64 << 20;
/// The maximum number of owners of a zone that is compared as a whole when it is replaced, which delays other zones.
const COMPARED_OWNERS_MAX: usize = 100_000;
/// The memory of a record in addition to its name and data, in octets.
const RECORD_OVERHEAD: usize = 96;

/// The differences of all zones.
#[derive(Default)]
pub(super) struct History {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    zones: NameMap<VecDeque<Arc<Difference>>>,
    octets: usize,
}

/// The records that turn one version of a zone into the next, without the SOA records.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Difference {
    /// The serial of the version before.
    from: Serial,
    /// The serial of the version after.
    to: Serial,
    /// The SOA record of the version before.
    pub(super) soa: Arc<Record>,
    pub(super) deleted: Vec<Arc<Record>>,
    pub(super) added: Vec<Arc<Record>>,
}

impl Difference {
    /// Returns the difference between the zones of a swap; `None` if it cannot be transferred incrementally, or is not known.
    fn of(swap: &Swap) -> Option<Difference> {
        let (from, to) = (swap.old_serial()?, swap.new_serial()?);
        let (before, after) = (&swap.before.as_ref()?.zone, &swap.after.as_ref()?.zone);
        let is_signed = before.denial().is_some() || after.denial().is_some();
        if !to.is_after(from) {
            return None;
        }
        let (mut deleted, mut added) = (BTreeSet::new(), BTreeSet::new());
        let mut compare = |owner: &Name, old: &[Rrset], new: &[Rrset]| {
            deleted.extend(old.iter().flat_map(|rrset| records_of(owner, rrset)));
            added.extend(new.iter().flat_map(|rrset| records_of(owner, rrset)));
        };
        match swap.changed_owners().filter(|_| !is_signed) {
            Some(changes) => {
                let owners: BTreeSet<&Name> = changes.iter().map(|change| &change.owner).collect();
                owners.into_iter().for_each(|owner| compare(owner, &before.owner(owner), &after.owner(owner)));
            }
            None if before.owner_count().max(after.owner_count()) > COMPARED_OWNERS_MAX => return None,
            None => {
                let before = before.contents();
                for change in diff::owners(&before, &after.contents()) {
                    compare(&change.owner, before.owner(&change.owner), &change.rrsets);
                }
            }
        }
        let but = |these: &BTreeSet<Record>, those: &BTreeSet<Record>| {
            let others = these.difference(those).filter(|record| record.rtype != RecordType::SOA);
            others.map(|record| Arc::new(record.clone())).collect()
        };
        let soa = Arc::new(records_of(before.apex(), &before.soa()?).next()?);
        Some(Difference { from, to, soa, deleted: but(&deleted, &added), added: but(&added, &deleted) })
    }

    fn octets(&self) -> usize {
        let records = self.deleted.iter().chain(&self.added).chain([&self.soa]);
        records.map(|record| record.owner.as_wire().len() + record.rdata.len() + RECORD_OVERHEAD).sum()
    }

    /// Returns the sum of differences, each of which follows its predecessor; `None` if there are none.
    fn sum(differences: &[Arc<Difference>]) -> Option<Arc<Difference>> {
        let (first, last) = (differences.first()?, differences.last()?);
        if differences.len() == 1 {
            return Some(Arc::clone(first));
        }
        // The number of times that a record was added, less those that it was deleted: at most one in absolute value.
        let mut sums: BTreeMap<&Arc<Record>, i32> = BTreeMap::new();
        for difference in differences {
            difference.deleted.iter().for_each(|record| *sums.entry(record).or_default() -= 1);
            difference.added.iter().for_each(|record| *sums.entry(record).or_default() += 1);
        }
        let with = |sign: i32| {
            sums.iter().filter(|(_, sum)| **sum == sign).map(|(record, _)| Arc::clone(record)).collect::<Vec<_>>()
        };
        let (deleted, added) = (with(-1), with(1));
        Some(Arc::new(Difference { from: first.from, to: last.to, soa: Arc::clone(&first.soa), deleted, added }))
    }
}

impl History {
    /// Adds the differences of the zones that `selects` selects.
    pub(super) fn record(&self, step: &Step, selects: impl Fn(&Name) -> bool) {
        for swap in &step.swaps {
            let difference = if selects(&swap.apex) { Difference::of(swap) } else { None };
            self.state.lock().add(&swap.apex, difference);
        }
    }

    /// Returns the difference between two versions of a zone, whose size is at most `octets_max`; `None` if it is not known.
    pub(super) fn between(&self, apex: &Name, from: Serial, to: Serial, octets_max: usize) -> Option<Arc<Difference>> {
        let differences: Vec<_> = {
            let state = self.state.lock();
            let zone = state.zones.get(apex)?;
            let first = zone.iter().position(|difference| difference.from == from)?;
            let last = zone.iter().skip(first).position(|difference| difference.to == to)?;
            zone.iter().skip(first).take(last + 1).cloned().collect()
        };
        Difference::sum(&differences).filter(|sum| sum.octets() <= octets_max)
    }
}

impl State {
    fn add(&mut self, apex: &Name, difference: Option<Difference>) {
        let octets_of =
            |zone: &VecDeque<Arc<Difference>>| zone.iter().map(|difference| difference.octets()).sum::<usize>();
        let is_next = |zone: &VecDeque<Arc<Difference>>, difference: &Difference| {
            zone.back().is_none_or(|last| last.to == difference.from)
        };
        let octets = difference.as_ref().map_or(0, Difference::octets);
        let known = self.zones.get(apex);
        let continues =
            difference.as_ref().is_some_and(|difference| known.is_none_or(|zone| is_next(zone, difference)));
        if !continues || octets > ZONE_OCTETS_MAX || self.octets + octets > OCTETS_MAX {
            self.octets -= self.zones.remove(apex).as_ref().map_or(0, octets_of);
        }
        let Some(difference) = difference.filter(|_| octets <= ZONE_OCTETS_MAX && self.octets + octets <= OCTETS_MAX)
        else {
            return;
        };
        let zone = self.zones.entry(apex.clone()).or_default();
        zone.push_back(Arc::new(difference));
        self.octets += octets;
        let mut of_zone = octets_of(zone);
        while zone.len() > DIFFERENCES_MAX || of_zone > ZONE_OCTETS_MAX {
            let Some(oldest) = zone.pop_front() else { break };
            of_zone -= oldest.octets();
            self.octets -= oldest.octets();
        }
    }
}
