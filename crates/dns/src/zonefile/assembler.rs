//! Records on their way into a zone: what waits for the SOA, and where each record stood.
//!
//! The SOA says what the apex is and which TTL holds without `$TTL`; it nearly always comes first. Records before it are
//! kept until it is there. The place of each RRset's first record is remembered, so that a check of the whole zone can
//! point at a line.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher};

use super::finding::{Fault, Position};
use crate::wire::{Name, RecordType};
use crate::zone::check::RRSET_RECORDS_MAX;
use crate::zone::contents::{AddError, Added};
use crate::zone::{Contents, Ttl};

/// A record as it was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its owner.
    pub owner: Name,
    /// Its type; no meta-type.
    pub rtype: RecordType,
    /// Its TTL; `None` if neither the record nor a `$TTL` before it says one, nor, in a zone, a record before it.
    pub ttl: Option<Ttl>,
    /// Its data, valid for its type.
    pub rdata: Box<[u8]>,
}

/// Where something stood: which of the reader's files, and where in it.
#[derive(Debug, Clone, Copy)]
pub(super) struct SourcePosition {
    pub file: u32,
    pub at: Position,
}

/// What is worth a warning about a record that was taken.
pub(super) type RecordWarning = (&'static str, String);

/// Where records go as they are read.
pub(super) trait Sink {
    /// Whether without a `$TTL` the last TTL that a record stated holds for those after it (RFC 1035 §5.1). It does not where
    /// there is a default of another kind, that stands for the `$TTL`.
    const INHERITS_TTL: bool;
    /// Whether a TTL above 2^31 - 1 is taken as zero (RFC 2181 §8), as other servers take it in zone files, with a warning.
    const TAKES_LARGE_TTL: bool;

    /// Takes a record, with a remark or a fault if there is one to make.
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

/// A zone in the making.
#[derive(Default)]
pub(super) struct ZoneAssembler {
    zone: Option<Contents>,
    /// What holds for records without a TTL: the SOA's minimum.
    fallback_ttl: Ttl,
    said_ttl_missing: bool,
    early: Vec<(Record, SourcePosition)>,
    /// What became of the early records.
    pub early_faults: Vec<(u32, Fault)>,
    /// What there is to say about them.
    pub early_remarks: Vec<(SourcePosition, RecordWarning)>,
    /// Hash of the owner, type and place of the first record of each RRset, and of some more.
    places: Vec<(u64, RecordType, SourcePosition)>,
    hasher: foldhash::fast::FixedState,
    records: usize,
    /// How many records of each RRset came after as many as one may have: in a small zone none can have too many.
    counts: HashMap<(u64, RecordType), usize, foldhash::fast::FixedState>,
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
        self.zone = Some(Contents::new(record.owner.clone()));
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
        // Adding compares with what the RRset has: without this bound a file of one endless RRset would take hours.
        self.records += 1;
        let count = match self.records > RRSET_RECORDS_MAX {
            true => self.counts.entry((hash, rtype)).and_modify(|count| *count += 1).or_insert(1),
            false => &mut 0,
        };
        if *count > RRSET_RECORDS_MAX {
            let message =
                format!("{owner} has more than {RRSET_RECORDS_MAX} {rtype} records, which do not fit in a message");
            return Err(Fault::new(place.at, "rrset-too-large", message));
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
            // As for BIND and Knot: the file of a whole domain may be given to the server of a part of it.
            Err(AddError::OutOfZone) => {
                let apex = zone.apex();
                let message = format!(
                    "{} is not in the zone {apex}: ignoring the record; expected a name at or below the apex",
                    shown()
                );
                Ok(Some(("out-of-zone", message)))
            }
            Err(error) => Err(Fault::new(place.at, "type", format!("{} {rtype}: {error}", shown()))),
        }
    }

    /// The zone, `None` if there was no SOA, and what tells where its records stood.
    pub fn finish(self) -> (Option<Contents>, SourcePositions) {
        (self.zone, SourcePositions { places: self.places, sorted: false, hasher: self.hasher })
    }
}

/// Where the records of a zone stood.
pub(super) struct SourcePositions {
    places: Vec<(u64, RecordType, SourcePosition)>,
    /// Whether they are in the order of the hashes, as when one was looked for.
    sorted: bool,
    hasher: foldhash::fast::FixedState,
}

impl SourcePositions {
    /// Where the RRset stood, or at least its owner.
    pub fn find(&mut self, owner: &Name, rtype: Option<RecordType>) -> Option<SourcePosition> {
        if !self.sorted {
            // Stable: of one owner the first place stays the first.
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
        // Most owners are in lower case; the fold is for the others.
        wire if wire.iter().any(u8::is_ascii_uppercase) => state.write(&wire.to_ascii_lowercase()),
        wire => state.write(wire),
    }
    state.finish()
}

/// The last field of a SOA's data.
fn minimum_of(rdata: &[u8]) -> Ttl {
    rdata.last_chunk().map_or(Ttl::default(), |octets| Ttl::from_wire(u32::from_be_bytes(*octets)))
}
