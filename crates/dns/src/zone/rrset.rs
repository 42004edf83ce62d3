//! RRsets (RFC 2181 §5): the records of one owner and type, which are served, changed and signed as a unit.

use crate::wire::RecordType;

/// Time to live in seconds, at most 2^31 - 1 (RFC 2181 §8).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Ttl(u32);

impl Ttl {
    /// The largest TTL, some 68 years.
    pub const MAX: Ttl = Ttl(i32::MAX as u32);

    /// Returns a TTL of `seconds`; `None` beyond the bound of RFC 2181 §8.
    pub const fn new(seconds: u32) -> Option<Ttl> {
        if seconds <= Self::MAX.0 { Some(Ttl(seconds)) } else { None }
    }

    /// Returns a TTL from a message, where a set top bit means zero (RFC 2181 §8).
    pub const fn from_wire(seconds: u32) -> Ttl {
        if seconds <= Self::MAX.0 { Ttl(seconds) } else { Ttl(0) }
    }

    /// In seconds.
    pub const fn seconds(self) -> u32 {
        self.0
    }
}

/// The data of one record, uncompressed: at most 65,535 octets.
pub type Rdata = Box<[u8]>;

/// The maximum number of RRs of one RRset: more do not fit in a message of 65,535 octets, because each takes at least 12 octets.
pub const RRSET_RECORDS_MAX: usize = 65_535 / 12;

/// The records of one type at one owner. RDATA are distinct octet strings in the order in which they were added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rrset {
    /// The type of every record here; never a meta-type.
    pub rtype: RecordType,
    /// The TTL of every record here (RFC 2181 §5.2).
    pub ttl: Ttl,
    /// At least one record's data.
    pub rdata: Vec<Rdata>,
}

/// Returns the TTL of a record of `rrset`, given all RRsets of its owner. A signature has the TTL of the RRset that it covers
/// (RFC 4034 §3), while an RRset of signatures over several types has only one.
pub fn ttl_of(rrset: &Rrset, rdata: &[u8], beside: &[Rrset]) -> Ttl {
    if rrset.rtype != RecordType::RRSIG {
        return rrset.ttl;
    }
    let covered = rdata.first_chunk().map(|octets| RecordType(u16::from_be_bytes(*octets)));
    beside.iter().find(|other| Some(other.rtype) == covered).map_or(rrset.ttl, |other| other.ttl)
}
