//! A zone's data before it is compiled: owners in canonical order, each with its RRsets.
//!
//! Zone files, transfers and the compiler produce a [`Contents`]; checks, differences and the writer of zone files read
//! it; [`super::builder`] turns it into the immutable image that queries are answered from.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use super::rrset::{RRSET_RECORDS_MAX, Rdata, Rrset, Ttl};
use crate::wire::{Name, RecordType};

/// The most owners that are taken out of the order of a [`Collector`] for one record before them.
const OUT_OF_ORDER_MAX: usize = 16;

/// The records of one zone, class IN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    apex: Name,
    owners: BTreeMap<Name, Vec<Rrset>>,
    /// The weights by owner and type, one for each record of the RRset. Few zones have weights.
    weights: BTreeMap<(Name, RecordType), Vec<u16>>,
}

/// The reason why a record cannot be added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AddError {
    /// The owner is neither the apex nor below it.
    #[error("the owner is outside the zone")]
    OutOfZone,
    /// The type exists in questions and messages only.
    #[error("the type cannot be stored in a zone")]
    MetaType,
    /// The RRset has as many records as fit in a message.
    #[error("the RRset has {RRSET_RECORDS_MAX} records, and more do not fit in a message")]
    RrsetFull,
}

/// The reason why weights cannot be set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum WeightsError {
    /// Only RRsets of type A or AAAA can have weights.
    #[error("only A and AAAA records can have weights")]
    NotAddresses,
    /// The RRset does not exist, or has another number of records.
    #[error("the RRset has {records} records, but {weights} weights")]
    Count {
        /// The number of records of the RRset.
        records: usize,
        /// The number of weights.
        weights: usize,
    },
}

/// The outcome for an added record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// The record is new.
    New,
    /// The same record was there already, maybe with other letter case in a name of its data; nothing changed, and the first
    /// spelling stays (RFC 2181 §5).
    Duplicate,
    /// The record's TTL differed from the RRset's, and the lower of the two now applies to all (RFC 2181 §5.2); the record is
    /// new, or existed with the higher TTL.
    TtlAdjusted,
}

impl Contents {
    /// Returns a zone without records.
    pub fn new(apex: Name) -> Self {
        Contents { apex, owners: BTreeMap::new(), weights: BTreeMap::new() }
    }

    /// Returns the name at the zone's top.
    pub fn apex(&self) -> &Name {
        &self.apex
    }

    /// Adds one record. `rdata` must be uncompressed and valid for its type.
    pub fn add(&mut self, owner: Name, rtype: RecordType, ttl: Ttl, rdata: Rdata) -> Result<Added, AddError> {
        self.check(&owner, rtype)?;
        // Few zones have weights: only these need the owner twice.
        let weighted = (!self.weights.is_empty()).then(|| owner.clone());
        let added = add(self.owners.entry(owner).or_default(), rtype, ttl, rdata);
        if let Some(owner) = weighted.filter(|_| added != Added::Duplicate) {
            self.forget_weights(&owner, rtype);
        }
        Ok(added)
    }

    fn check(&self, owner: &Name, rtype: RecordType) -> Result<(), AddError> {
        if !owner.is_at_or_below(&self.apex) {
            return Err(AddError::OutOfZone);
        }
        if rtype.is_meta() { Err(AddError::MetaType) } else { Ok(()) }
    }

    /// Replaces the owner's RRset of this type with `rrset`, whose `rdata` is not empty.
    pub fn set(&mut self, owner: Name, rrset: Rrset) -> Result<(), AddError> {
        self.check(&owner, rrset.rtype)?;
        self.forget_weights(&owner, rrset.rtype);
        let rrsets = self.owners.entry(owner).or_default();
        match rrsets.iter_mut().find(|existing| existing.rtype == rrset.rtype) {
            Some(existing) => *existing = rrset,
            None => rrsets.push(rrset),
        }
        Ok(())
    }

    /// Removes all records of `owner` and returns them.
    pub fn remove_owner(&mut self, owner: &Name) -> Option<Vec<Rrset>> {
        for rtype in [RecordType::A, RecordType::AAAA] {
            self.forget_weights(owner, rtype);
        }
        self.owners.remove(owner)
    }

    /// Removes one RRset and returns it.
    pub fn remove(&mut self, owner: &Name, rtype: RecordType) -> Option<Rrset> {
        let rrsets = self.owners.get_mut(owner)?;
        let at = rrsets.iter().position(|rrset| rrset.rtype == rtype)?;
        let removed = rrsets.remove(at);
        if rrsets.is_empty() {
            self.owners.remove(owner);
        }
        self.forget_weights(owner, rtype);
        Some(removed)
    }

    /// Sets the weights of the records of an A or AAAA RRset, in the order of its RDATA. An answer includes a record with
    /// probability weight ÷ largest weight, so that at least one is always included. With equal weights, or none, all records
    /// are included. A later change of the RRset removes the weights.
    pub fn set_weights(&mut self, owner: &Name, rtype: RecordType, weights: Vec<u16>) -> Result<(), WeightsError> {
        if !matches!(rtype, RecordType::A | RecordType::AAAA) {
            return Err(WeightsError::NotAddresses);
        }
        let records = self.get(owner, rtype).map_or(0, |rrset| rrset.rdata.len());
        if records == 0 || records != weights.len() {
            return Err(WeightsError::Count { records, weights: weights.len() });
        }
        if weights.iter().all(|weight| *weight == weights[0]) {
            self.forget_weights(owner, rtype);
        } else {
            self.weights.insert((owner.clone(), rtype), weights);
        }
        Ok(())
    }

    /// Returns the weights of an RRset's records, in the order of its RDATA; `None` if all are included equally.
    pub fn weights(&self, owner: &Name, rtype: RecordType) -> Option<&[u16]> {
        if self.weights.is_empty() {
            return None;
        }
        self.weights.get(&(owner.clone(), rtype)).map(Vec::as_slice)
    }

    fn forget_weights(&mut self, owner: &Name, rtype: RecordType) {
        if !self.weights.is_empty() {
            self.weights.remove(&(owner.clone(), rtype));
        }
    }

    /// Returns the RRset of `owner` and `rtype`.
    pub fn get(&self, owner: &Name, rtype: RecordType) -> Option<&Rrset> {
        self.owner(owner).iter().find(|rrset| rrset.rtype == rtype)
    }

    /// Returns all RRsets of `owner`; none if it has no records.
    pub fn owner(&self, owner: &Name) -> &[Rrset] {
        self.owners.get(owner).map_or(&[], Vec::as_slice)
    }

    /// Returns the owner that equals `owner`, in its original case, and its RRsets; `None` if it has no records.
    pub fn entry(&self, owner: &Name) -> Option<(&Name, &[Rrset])> {
        self.owners.get_key_value(owner).map(|(name, rrsets)| (name, rrsets.as_slice()))
    }

    /// Returns the owners with their RRsets, in canonical order: the apex first if it has records.
    pub fn owners(&self) -> impl Iterator<Item = (&Name, &[Rrset])> {
        self.owners.iter().map(|(name, rrsets)| (name, rrsets.as_slice()))
    }

    /// Takes the owners in canonical order, with their RRsets. The apex and the weights stay.
    pub(super) fn take_owners(&mut self) -> impl Iterator<Item = (Name, Vec<Rrset>)> + use<> {
        std::mem::take(&mut self.owners).into_iter()
    }

    /// Returns whether records exist strictly below `name`.
    pub fn has_below(&self, name: &Name) -> bool {
        use std::ops::Bound::{Excluded, Unbounded};
        self.owners.range::<Name, _>((Excluded(name), Unbounded)).next().is_some_and(|(next, _)| next.is_below(name))
    }

    /// Returns the number of owners with records.
    pub fn owner_count(&self) -> usize {
        self.owners.len()
    }

    /// Returns the number of records.
    pub fn record_count(&self) -> usize {
        self.owners.values().flatten().map(|rrset| rrset.rdata.len()).sum()
    }
}

/// Adds a record to the RRsets of its owner.
fn add(rrsets: &mut Vec<Rrset>, rtype: RecordType, ttl: Ttl, rdata: Rdata) -> Added {
    let Some(rrset) = rrsets.iter_mut().find(|rrset| rrset.rtype == rtype) else {
        // Most owners have one RRset, and a vector grows to four at first.
        if rrsets.is_empty() {
            rrsets.reserve_exact(1);
        }
        rrsets.push(Rrset { rtype, ttl, rdata: vec![rdata] });
        return Added::New;
    };
    // RRSIGs of one owner cover different types and carry the TTL of what they cover (RFC 4034 §3).
    let differs = rrset.ttl != ttl && rtype != RecordType::RRSIG;
    let lowers = differs && ttl < rrset.ttl;
    rrset.ttl = rrset.ttl.min(ttl);
    if rrset.contains(&rdata) {
        return if lowers { Added::TtlAdjusted } else { Added::Duplicate };
    }
    rrset.rdata.push(rdata);
    if differs { Added::TtlAdjusted } else { Added::New }
}

/// A [`Contents`] of which the records come one after another, mostly in canonical order, as from a zone file. A record after the last
/// owner in order costs one comparison instead of a search.
#[derive(Debug)]
pub struct Collector {
    /// The owners out of order.
    contents: Contents,
    /// The others, in canonical order.
    ordered: Vec<(Name, Vec<Rrset>)>,
}

impl Collector {
    /// Returns one without records.
    pub fn new(apex: Name) -> Self {
        Collector { contents: Contents::new(apex), ordered: Vec::new() }
    }

    /// Returns the name at the zone's top.
    pub fn apex(&self) -> &Name {
        self.contents.apex()
    }

    /// Adds one record, as [`Contents::add`] does, to at most [`RRSET_RECORDS_MAX`] of its RRset: it is compared with all of them.
    pub fn add(&mut self, owner: Name, rtype: RecordType, ttl: Ttl, rdata: Rdata) -> Result<Added, AddError> {
        self.contents.check(&owner, rtype)?;
        let rrsets = self.rrsets(owner);
        let is_full = |rrset: &Rrset| rrset.rtype == rtype && rrset.rdata.len() >= RRSET_RECORDS_MAX;
        if rrsets.iter().any(is_full) { Err(AddError::RrsetFull) } else { Ok(add(rrsets, rtype, ttl, rdata)) }
    }

    fn rrsets(&mut self, owner: Name) -> &mut Vec<Rrset> {
        let Collector { contents: Contents { owners: others, .. }, ordered } = self;
        let compare = |ordered: &[(Name, Vec<Rrset>)], from_end: usize| {
            let other = ordered.len().checked_sub(from_end).and_then(|at| ordered.get(at));
            other.map_or(Ordering::Greater, |(other, _)| owner.cmp(other))
        };
        let mut order = compare(ordered, 1);
        // Some names at the top of a file, such as those of name servers, are after most others.
        if order == Ordering::Less && compare(ordered, OUT_OF_ORDER_MAX) == Ordering::Greater {
            let before = ordered.partition_point(|(other, _)| *other < owner);
            others.extend(ordered.drain(before..));
            order = Ordering::Greater;
        }
        match order {
            Ordering::Equal => {}
            Ordering::Greater if others.contains_key(&owner) => return others.entry(owner).or_default(),
            Ordering::Greater => ordered.push((owner, Vec::new())),
            Ordering::Less => match ordered.binary_search_by(|(other, _)| other.cmp(&owner)) {
                Ok(at) => return &mut ordered[at].1,
                Err(_) => return others.entry(owner).or_default(),
            },
        }
        &mut ordered.last_mut().expect("it was found or added").1
    }

    /// Returns the records.
    pub fn finish(self) -> Contents {
        let Collector { mut contents, ordered } = self;
        let mut owners: BTreeMap<_, _> = ordered.into_iter().collect();
        owners.append(&mut contents.owners);
        contents.owners = owners;
        contents
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_in_any_order_are_collected_as_they_are_added() {
        let few = ["z", "b.z", "c.z", "a.z", "c.z", "a.z", "z", "b.a.z", "d.z", "b.z", "aa.z", "d.z", "x"];
        let many = (0..3 * OUT_OF_ORDER_MAX).map(|number| format!("n{number:02}.z"));
        let late = ["n47.z", "n40.z", "n45x.z", "n46.z", "n48.z", "n01.z", "e.z", "n49.z"];
        let owners: Vec<String> = few.map(String::from).into_iter().chain(many).chain(late.map(String::from)).collect();
        // Each rotation has another order.
        for turn in 0..owners.len() {
            let (mut collector, mut contents) = (Collector::new(name("z.")), Contents::new(name("z.")));
            for (number, owner) in owners.iter().cycle().skip(turn).take(owners.len()).enumerate() {
                let record = || {
                    (name(&format!("{owner}.")), RecordType::A, Ttl::MAX, Rdata::from([192, 0, 2, number as u8 % 5]))
                };
                let ((owner, rtype, ttl, rdata), (again, ..)) = (record(), record());
                assert_eq!(collector.add(owner, rtype, ttl, rdata.clone()), contents.add(again, rtype, ttl, rdata));
            }
            assert_eq!(collector.finish(), contents);
        }
    }

    fn name(text: &str) -> Name {
        text.parse().expect("a name of a test")
    }

    #[test]
    fn records_gather_in_rrsets() {
        let mut zone = Contents::new(name("z.example."));
        let ttl = |seconds| Ttl::new(seconds).expect("small");
        let mut add =
            |owner: &str, ttl_seconds, data: &[u8]| zone.add(name(owner), RecordType::A, ttl(ttl_seconds), data.into());
        assert_eq!(add("a.z.example.", 60, &[192, 0, 2, 1]), Ok(Added::New));
        assert_eq!(add("A.Z.example.", 60, &[192, 0, 2, 1]), Ok(Added::Duplicate));
        assert_eq!(add("a.z.example.", 30, &[192, 0, 2, 2]), Ok(Added::TtlAdjusted));
        assert_eq!(add("example.", 30, &[192, 0, 2, 2]), Err(AddError::OutOfZone));
        let rrset = zone.get(&name("a.z.example."), RecordType::A).expect("was added");
        assert_eq!((rrset.ttl.seconds(), rrset.rdata.len()), (30, 2));
        assert!(zone.has_below(&name("z.example.")) && !zone.has_below(&name("a.z.example.")));
        assert_eq!(zone.add(name("z.example."), RecordType::ANY, Ttl::MAX, Box::new([])), Err(AddError::MetaType));
    }
}
