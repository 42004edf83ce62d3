//! Record data (RFC 1035 §3.3 and the later types), as one table of field kinds per type.
//!
//! [`field::fields`] is the table. [`walk`] cuts a record's octets into the fields that the table names and checks each of them;
//! all other functions use that walk: [`validate`], the [`names`] inside (which the engine follows for additional data, and
//! compresses where RFC 3597 §4 lets it), and the [`canonical`] form that is signed and compared (RFC 4034 §6.2, RFC 6840 §5.1).
//! `zonefile` reads and writes text by the same table. A type that is not in the table is one opaque field, so it never fails
//! (RFC 3597 §3).

use std::borrow::Cow;

use super::RecordType;
use super::message::skip_name;
use super::name::{NAME_OCTETS_MAX, NameError, expand};

pub mod field;
mod measure;

pub use field::{Field, NameForm, fields};
pub use measure::svc_params;

/// The longest RDATA in octets: RDLENGTH has 16 bits (RFC 1035 §3.2.1).
pub const RDATA_OCTETS_MAX: usize = u16::MAX as usize;

/// The reason why octets are not the data of a record of their type.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum RdataError {
    /// The octets end before or inside this field.
    #[error("expected {0}, found the end of the data")]
    Truncated(Field),
    /// This many octets follow the last field.
    #[error("{0} octets too many at the end")]
    Trailing(usize),
    /// More than 65,535 octets.
    #[error("more than 65535 octets")]
    TooLong,
    /// A name in the data is invalid or compressed.
    #[error("invalid name in the data: {0}")]
    Name(#[from] NameError),
    /// The content of a field violates a rule of its type.
    #[error("{0}: {1}")]
    Malformed(Field, &'static str),
}

/// One field of a record's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Item<'a> {
    /// The kind of the field.
    pub field: Field,
    /// The offset of its first octet in the data.
    pub start: usize,
    /// The octets of the field, with the length octets if it has any.
    pub octets: &'a [u8],
}

/// Returns the fields of `rdata` in order. The walk ends after the first error.
pub fn walk(rtype: RecordType, rdata: &[u8]) -> Walk<'_> {
    Walk { rdata, at: 0, fields: fields(rtype) }
}

/// Iterator of [`walk`].
#[derive(Clone)]
pub struct Walk<'a> {
    rdata: &'a [u8],
    at: usize,
    fields: &'static [Field],
}

impl<'a> Iterator for Walk<'a> {
    type Item = Result<Item<'a>, RdataError>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&field, rest) = self.fields.split_first()?;
        let start = self.at;
        match measure::end_of(field, self.rdata, start) {
            Ok(end) => {
                (self.at, self.fields) = (end, rest);
                Some(Ok(Item { field, start, octets: &self.rdata[start..end] }))
            }
            Err(error) => {
                self.fields = &[];
                Some(Err(error))
            }
        }
    }
}

/// Checks that `rdata` is well-formed, uncompressed data of a record of `rtype`.
pub fn validate(rtype: RecordType, rdata: &[u8]) -> Result<(), RdataError> {
    if rdata.len() > RDATA_OCTETS_MAX {
        return Err(RdataError::TooLong);
    }
    let mut walk = walk(rtype, rdata);
    for item in walk.by_ref() {
        item?;
    }
    match rdata.len() - walk.at {
        0 => Ok(()),
        more => Err(RdataError::Trailing(more)),
    }
}

/// Returns the data of a record in a message, from `start` to `end`, with its names whole; `None` if they are malformed. RFC 3597 §4:
/// receivers "SHOULD also decompress RRs of type RP, AFSDB, RT, SIG, PX, NXT, NAPTR, and SRV".
pub fn expanded(message: &[u8], rtype: RecordType, start: usize, end: usize) -> Option<Vec<u8>> {
    let rdata = message.get(start..end)?;
    let mut octets = Vec::with_capacity(rdata.len());
    let mut at = 0;
    for field in fields(rtype) {
        let next = match field {
            Field::Name(NameForm::Compressible | NameForm::Folded) => {
                octets.extend_from_slice(expand(message, start + at, &mut [0; NAME_OCTETS_MAX])?);
                skip_name(message, start + at)?.checked_sub(start)?
            }
            _ => {
                let next = measure::end_of(*field, rdata, at).ok()?;
                octets.extend_from_slice(&rdata[at..next]);
                next
            }
        };
        at = if next <= rdata.len() { next } else { return None };
    }
    (at == rdata.len() && validate(rtype, &octets).is_ok()).then_some(octets)
}

/// A domain name inside a record's data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EmbeddedName<'a> {
    /// The offset of its first octet in the data.
    pub start: usize,
    /// The name, uncompressed.
    pub wire: &'a [u8],
    /// Whether it may be compressed, and whether its case matters.
    pub form: NameForm,
}

/// Returns the domain names in valid `rdata`, in order: an NS's server, an MX's host, both names of a SOA.
pub fn names(rtype: RecordType, rdata: &[u8]) -> impl Iterator<Item = EmbeddedName<'_>> {
    walk(rtype, rdata).filter_map(Result::ok).flat_map(move |item| {
        let (form, mut start) = match item.field {
            Field::Name(form) => (form, item.start),
            Field::Names => (NameForm::Exact, item.start),
            // RFC 4025 §2.3: gateway type 3 is a name.
            Field::Gateway if rdata[1] == 3 => (NameForm::Exact, item.start),
            // RFC 8777 §4.2.3: as is relay type 3.
            Field::Relay if item.octets[0] & 0x7f == 3 => (NameForm::Exact, item.start + 1),
            _ => (NameForm::Exact, item.start + item.octets.len()),
        };
        let end = item.start + item.octets.len();
        std::iter::from_fn(move || {
            if start >= end {
                return None;
            }
            let next = measure::end_of_name(rdata, start).ok()?;
            let name = EmbeddedName { start, wire: &rdata[start..next], form };
            start = next;
            Some(name)
        })
    })
}

/// Returns the types in a type bitmap (RFC 4034 §4.1.2), in order.
pub fn types_in(mut windows: &[u8]) -> impl Iterator<Item = RecordType> {
    std::iter::from_fn(move || {
        let [window, length, tail @ ..] = windows else { return None };
        let (bits, rest) = tail.split_at(usize::from(*length).min(tail.len()));
        windows = rest;
        Some((*window, bits))
    })
    .flat_map(|(window, bits)| {
        (0..bits.len() * 8)
            .filter(|bit| bits[bit / 8] & 0x80 >> (bit % 8) != 0)
            .map(move |bit| RecordType(u16::from_be_bytes([window, bit as u8])))
    })
}

/// Returns the canonical form of valid `rdata`: names of the types that RFC 4034 §6.2 lists are in lower case.
pub fn canonical(rtype: RecordType, rdata: &[u8]) -> Cow<'_, [u8]> {
    let mut folded = Cow::Borrowed(rdata);
    for name in names(rtype, rdata) {
        if name.form != NameForm::Exact && name.wire.iter().any(u8::is_ascii_uppercase) {
            folded.to_mut()[name.start..name.start + name.wire.len()].make_ascii_lowercase();
        }
    }
    folded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_with_their_forms() {
        let soa = b"\x01A\x00\x01b\x01c\x00\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01";
        let hip = b"\x01\x02\x00\x01hk\x01R\x00\x01s\x00";
        let gateway = b"\x0a\x03\x02\x01G\x00key";
        for (rtype, rdata, expected) in [
            (RecordType::SOA, &soa[..], vec![(0, NameForm::Compressible), (3, NameForm::Compressible)]),
            (RecordType::MX, b"\0\x0a\x01m\0", vec![(2, NameForm::Compressible)]),
            (RecordType::SRV, b"\0\0\0\0\0\x50\x01S\0", vec![(6, NameForm::Folded)]),
            (RecordType::HIP, hip, vec![(6, NameForm::Exact), (9, NameForm::Exact)]),
            (RecordType::IPSECKEY, gateway, vec![(3, NameForm::Exact)]),
            (RecordType::A, &[192, 0, 2, 1], vec![]),
            (RecordType(65400), b"\x01a\0", vec![]),
        ] {
            assert_eq!(validate(rtype, rdata), Ok(()), "{rtype}");
            let found: Vec<_> = names(rtype, rdata).map(|name| (name.start, name.form)).collect();
            assert_eq!(found, expected, "{rtype}");
        }
    }

    /// RFC 4034 §6.2 folds SRV and RRSIG names; RFC 6840 §5.1 takes NSEC off the list; later types were never on it.
    #[test]
    fn canonical_form_folds_what_the_standard_lists() {
        for (rtype, rdata, canonical_form) in [
            (RecordType::NS, &b"\x02Ns\0"[..], &b"\x02ns\0"[..]),
            (RecordType::SRV, b"AAAAAA\x01S\0", b"AAAAAA\x01s\0"),
            (RecordType::NSEC, b"\x01N\0\0\x01\x40", b"\x01N\0\0\x01\x40"),
            (RecordType::HTTPS, b"\0\x01\x01N\0", b"\0\x01\x01N\0"),
            (RecordType::TXT, b"\x02Ns", b"\x02Ns"),
        ] {
            assert_eq!(canonical(rtype, rdata), canonical_form, "{rtype}");
        }
    }

    #[test]
    fn broken_data_is_refused() {
        use RecordType as T;
        let bad: &[(T, &[u8])] = &[
            (T::A, b"\x01\x02\x03"),
            (T::A, b"\x01\x02\x03\x04\x05"),
            (T::NS, b"\xc0\x0c"),
            (T::NS, b"\x01a"),
            (T::MX, b"\0\x01"),
            (T::TXT, b""),
            (T::TXT, b"\x05abc"),
            (T::NSEC, b"\0\0\x01\0"),
            (T::NSEC, b"\0\0\x00"),
            (T::NSEC, b"\0\x01\x01\x40\0\x01\x40"),
            (T::NSEC, b"\0\0\x21\x40"),
            (T::DS, b"\0\x01\x08\x02"),
            (T::CAA, b"\0\x00v"),
            (T::CAA, b"\0\x02a-v"),
            (T::LOC, &[1; 16]),
            (T::SVCB, b"\0\x01\0\0\x03\0\x02\0\x50\0\x01\0\x03\x02h2"),
            (T::SVCB, b"\0\x01\0\0\x03\0\x01\0"),
            (T::SVCB, b"\0\x01\0\0\x00\0\x02\0\x03"),
            (T::SVCB, b"\0\x01\0\0\x01\0\x01\0"),
            (T::SVCB, b"\0\x01\0\0\x02\0\0"),
            (T::APL, b"\0\x01\x21\x00"),
            (T::APL, b"\0\x01\x08\x02\x0a\x00"),
            (T::IPSECKEY, b"\x0a\x04\x02k"),
            (T::HIP, b"\x00\x02\x00\x01k"),
            (T::URI, b"\0\x01\0\x01"),
        ];
        for (rtype, rdata) in bad {
            assert!(validate(*rtype, rdata).is_err(), "{rtype} {rdata:?}");
        }
        assert_eq!(validate(T(65400), &vec![0; 65536]), Err(RdataError::TooLong));
        assert_eq!(validate(T(65400), b""), Ok(()));
    }
}
