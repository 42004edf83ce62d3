//! RRsets (RFC 2181 §5): the records of one owner and type, which are served, changed and signed as a unit.

use crate::wire::RecordType;
use crate::wire::rdata::{self, Field, NameForm};

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

/// The records of one type at one owner. RDATA are distinct in canonical form (RFC 4034 §6.3), in the order in which they were
/// added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rrset {
    /// The type of every record here; never a meta-type.
    pub rtype: RecordType,
    /// The TTL of every record here (RFC 2181 §5.2).
    pub ttl: Ttl,
    /// At least one record's data.
    pub rdata: Vec<Rdata>,
}

impl Rrset {
    /// Returns whether a record with this data exists. Names in the data are compared without case (RFC 4343 §3) in the types whose
    /// canonical form has them in lower case (RFC 4034 §6.2, RFC 6840 §5.1). In later types, other servers and validators treat
    /// two spellings as two records.
    pub fn contains(&self, rdata: &[u8]) -> bool {
        let folds = |field: &Field| matches!(field, Field::Name(NameForm::Compressible | NameForm::Folded));
        if !rdata::fields(self.rtype).iter().any(folds) {
            return self.rdata.iter().any(|known| **known == *rdata);
        }
        // The canonical form changes only the case of letters: few other records need the comparison of it.
        self.rdata.iter().any(|known| {
            known.eq_ignore_ascii_case(rdata)
                && (**known == *rdata || rdata::canonical(self.rtype, known) == rdata::canonical(self.rtype, rdata))
        })
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_data_have_no_case_where_the_canonical_form_has_none() {
        use RecordType as T;
        let signature = |signer: &[u8], octet: u8| [&[0, 1, 13, 3][..], &[9; 14], signer, &[octet; 64]].concat();
        let soa = |name: &[u8]| [name, b"\x01A\0", &[7; 20]].concat();
        let cases: &[(T, &[u8], &[u8], bool)] = &[
            (T::NS, b"\x02ns\0", b"\x02Ns\0", true),
            (T::NS, b"\x02ns\0", b"\x02nt\0", false),
            (T::CNAME, b"\x02ns\x01Z\0", b"\x02Ns\x01z\0", true),
            (T::DNAME, b"\x01a\0", b"\x01A\0", true),
            (T::PTR, b"\x01a\0", b"\x01A\0", true),
            (T::PTR, b"\x01[\0", b"\x01{\0", false),
            (T::PTR, b"\x01\xe4\0", b"\x01\xc4\0", false),
            (T::SOA, &soa(b"\x01n\0"), &soa(b"\x01N\0"), true),
            (T::MX, b"\0\x0a\x01m\0", b"\0\x0a\x01M\0", true),
            // 0x41 and 0x61 are not letters in a preference, a weight, or a string.
            (T::MX, b"\0A\x01m\0", b"\0a\x01m\0", false),
            (T::SRV, b"AAAAAA\x01s\0", b"AAAAAA\x01S\0", true),
            (T::SRV, b"AAAAAA\x01s\0", b"AAAAAa\x01S\0", false),
            (T::NAPTR, b"\0\0\0\0\x01U\0\0\x01n\0", b"\0\0\0\0\x01U\0\0\x01N\0", true),
            (T::NAPTR, b"\0\0\0\0\x01U\0\0\x01n\0", b"\0\0\0\0\x01u\0\0\x01N\0", false),
            (T::RP, b"\x01a\0\x01b\0", b"\x01A\0\x01B\0", true),
            (T::RRSIG, &signature(b"\x01z\0", 9), &signature(b"\x01Z\0", 9), true),
            (T::RRSIG, &signature(b"\x01z\0", b'a'), &signature(b"\x01z\0", b'A'), false),
            // RFC 6840 §5.1, RFC 3597 §7.
            (T::NSEC, b"\x01n\0\0\x01\x40", b"\x01N\0\0\x01\x40", false),
            (T::HTTPS, b"\0\x01\x01n\0", b"\0\x01\x01N\0", false),
            (T(65400), b"\x01n\0", b"\x01N\0", false),
            (T::TXT, b"\x01n", b"\x01N", false),
        ];
        for (rtype, first, second, is_one) in cases {
            for (known, added) in [(first, second), (second, first)] {
                let rrset = Rrset { rtype: *rtype, ttl: Ttl::MAX, rdata: vec![(*known).into()] };
                assert_eq!(rrset.contains(added), *is_one, "{rtype} {known:?} {added:?}");
                assert!(rrset.contains(known), "{rtype} {known:?}");
            }
        }
    }
}
