//! Collects records into a zone: the records before the SOA, and the position of each record.
//!
//! The SOA provides the apex and the TTL without `$TTL`; it nearly always comes first. Records before it wait for it. The
//! position of each RRset's first record is stored, so that a check of the whole zone can refer to a line.

use std::hash::{BuildHasher, Hasher};

use super::finding::{Fault, Position};
use crate::wire::{Name, RecordType};
use crate::zone::contents::{AddError, Added, Collector};
use crate::zone::rrset::RRSET_RECORDS_MAX;
use crate::zone::{Contents, Ttl};

/// A record from a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The owner.
    pub owner: Name,
    /// The type; not a meta-type.
    pub rtype: RecordType,
    /// The TTL; `None` if neither the record nor an earlier `$TTL` has one, nor, in a zone, an earlier record.
    pub ttl: Option<Ttl>,
    /// The data, valid for its type.
    pub rdata: Box<[u8]>,
}

/// A position: the reader's file, and the position in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SourcePosition {
    pub file: u32,
    pub at: Position,
}

/// A warning about an accepted record.
pub(super) type RecordWarning = (&'static str, String);

/// The destination of records.
pub(super) trait Sink {
    /// Whether, without a `$TTL`, the last TTL of a record applies to the records after it (RFC 1035 §5.1). It does not if there
    /// is another default.
    const INHERITS_TTL: bool;
    /// Whether a TTL above 2^31 - 1 is taken as zero (RFC 2181 §8), as other servers take it in zone files, with a warning.
    const TAKES_LARGE_TTL: bool;

    /// Accepts a record, with a remark or a fault, if there is one.
    fn take(&mut self, record: Record, place: SourcePosition) -> Result<Option<RecordWarning>, Fault>;
}

impl Sink for Vec<Record> {
    const INHERITS_TTL: bool = false;
    const TAKES_LARGE_TTL: bool = false;

    fn take(&mut self, record: Record, _: SourcePosition) -> Result<Option<RecordWarning>, Fault> {
        self.push(record);
        Ok(None)
    }
}

/// An incomplete zone.
#[derive(Default)]
pub(super) struct ZoneAssembler {
    zone: Option<Collector>,
    /// The position of the first SOA record.
    pub soa: Option<SourcePosition>,
    /// The TTL of records without a TTL: the SOA's minimum.
    fallback_ttl: Ttl,
    said_ttl_missing: bool,
    early: Vec<(Record, SourcePosition)>,
    /// The faults of the early records.
    pub early_faults: Vec<(u32, Fault)>,
    /// The warnings about them.
    pub early_remarks: Vec<(SourcePosition, RecordWarning)>,
    /// Hash of the owner, type and place of the first record of each RRset, and of some more.
    places: Vec<(u64, RecordType, SourcePosition)>,
    hasher: foldhash::fast::FixedState,
    /// The owner of the record that is being added, for messages.
    owner: Vec<u8>,
}

impl Sink for ZoneAssembler {
    const INHERITS_TTL: bool = true;
    const TAKES_LARGE_TTL: bool = true;

    fn take(&mut self, record: Record, place: SourcePosition) -> Result<Option<RecordWarning>, Fault> {
        if self.zone.is_some() {
            return self.add(record, place);
        }
        if record.rtype != RecordType::SOA {
            self.early.push((record, place));
            return Ok(None);
        }
        self.zone = Some(Collector::new(record.owner.clone()));
        self.soa = Some(place);
        self.fallback_ttl = minimum_of(&record.rdata);
        let remark = self.add(record, place)?;
        for (record, place) in std::mem::take(&mut self.early) {
            match self.add(record, place) {
                Ok(remark) => self.early_remarks.extend(remark.map(|remark| (place, remark))),
                Err(fault) => self.early_faults.push((place.file, fault)),
            }
        }
        Ok(remark)
    }
}

impl ZoneAssembler {
    fn add(&mut self, record: Record, place: SourcePosition) -> Result<Option<RecordWarning>, Fault> {
        let Record { owner, rtype, ttl, rdata } = record;
        let Some(zone) = &mut self.zone else { return Ok(None) };
        let hash = hash_of(&self.hasher, &owner);
        if self.places.last().is_none_or(|(last, last_type, _)| (*last, *last_type) != (hash, rtype)) {
            self.places.push((hash, rtype, place));
        }
        self.owner.clear();
        self.owner.extend_from_slice(owner.as_wire());
        let shown = || Name::from_wire(&self.owner).unwrap_or_else(|_| Name::root());
        match zone.add(owner, rtype, ttl.unwrap_or(self.fallback_ttl), rdata) {
            Ok(Added::New) if ttl.is_none() && !self.said_ttl_missing => {
                self.said_ttl_missing = true;
                let seconds = self.fallback_ttl.seconds();
                let message = format!(
                    "no TTL here or earlier: using the SOA minimum, {seconds} s; write $TTL {seconds} at the top"
                );
                Ok(Some(("ttl-missing", message)))
            }
            Ok(Added::New) => Ok(None),
            Ok(Added::Duplicate) => Ok(Some(("duplicate", format!("{} already has this {rtype} record", shown())))),
            Ok(Added::TtlAdjusted) => {
                let message = format!("the {rtype} records of {} have different TTLs: using the smallest", shown());
                Ok(Some(("ttl-differs", message)))
            }
            // As in BIND and Knot: the server of a part of a domain can have the file of the whole domain.
            Err(AddError::OutOfZone) => {
                let apex = zone.apex();
                let message = format!(
                    "{} is not in the zone {apex}: ignoring the record; expected a name at or below the apex",
                    shown()
                );
                Ok(Some(("out-of-zone", message)))
            }
            Err(AddError::RrsetFull) => {
                let message = format!(
                    "{} has more than {RRSET_RECORDS_MAX} {rtype} records, which do not fit in a message",
                    shown()
                );
                Err(Fault::new(place.at, "rrset-too-large", message))
            }
            Err(error) => Err(Fault::new(place.at, "type", format!("{} {rtype}: {error}", shown()))),
        }
    }

    /// Returns the zone, `None` if there was no SOA, and the positions of its records.
    pub fn finish(self) -> (Option<Contents>, SourcePositions) {
        (self.zone.map(Collector::finish), SourcePositions { places: self.places, sorted: false, hasher: self.hasher })
    }
}

/// The positions of the records of a zone.
pub(super) struct SourcePositions {
    places: Vec<(u64, RecordType, SourcePosition)>,
    /// Whether they are sorted by hash, as after the first search.
    sorted: bool,
    hasher: foldhash::fast::FixedState,
}

impl SourcePositions {
    /// Returns the position of the RRset, or at least of its owner.
    pub fn find(&mut self, owner: &Name, rtype: Option<RecordType>) -> Option<SourcePosition> {
        if !self.sorted {
            // Stable: the first position of an owner stays the first.
            self.places.sort_by_key(|(hash, ..)| *hash);
            self.sorted = true;
        }
        let hash = hash_of(&self.hasher, owner);
        let first = self.places.partition_point(|(known, ..)| *known < hash);
        let mut of_owner = self.places[first..].iter().take_while(|(known, ..)| *known == hash);
        let any = of_owner.clone().next();
        of_owner.find(|(_, known, _)| Some(*known) == rtype).or(any).map(|(.., place)| *place)
    }
}

fn hash_of(hasher: &foldhash::fast::FixedState, owner: &Name) -> u64 {
    let mut state = hasher.build_hasher();
    match owner.as_wire() {
        // Most owners are in lower case; only the others need the conversion.
        wire if wire.iter().any(u8::is_ascii_uppercase) => state.write(&wire.to_ascii_lowercase()),
        wire => state.write(wire),
    }
    state.finish()
}

/// Returns the last field of a SOA's data.
pub(super) fn minimum_of(rdata: &[u8]) -> Ttl {
    rdata.last_chunk().map_or(Ttl::default(), |octets| Ttl::from_wire(u32::from_be_bytes(*octets)))
}
