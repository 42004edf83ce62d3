//! Names in stored RDATA, with pointers for common suffixes (RFC 1035 §4.1.4), so that an answer is a copy and a few additions.
//!
//! Only types of RFC 1035 are compressed: readers of other types need not follow pointers in them (RFC 3597 §4). A suffix of a
//! name is replaced if an equal suffix, also in case, is available, so that records can be restored unchanged:
//!
//! - a suffix of the zone's apex, which is at the end of every question that the zone answers,
//! - a suffix of the owner below the apex, which is at the position of the name that is being answered, or
//! - a suffix that an earlier name of the same RRset has written out: the records of an RRset are adjacent.
//!
//! The positions of these differ from message to message, so pointers are stored relative to them, listed as *patches* by the
//! code that stores them, and resolved by the writer of a message:
//!
//! ```text
//! C000 + octets into the RRset's records, below 3E00
//! FEFF - octets of a suffix of the owner
//! FFFF - octets of a suffix of the apex
//! ```

use std::collections::BTreeMap;

use crate::wire::name::{NAME_OCTETS_MAX, is_label_start};
use crate::wire::{Name, RecordType};

/// The end of the part of an RRset's records in which names can be targets of pointers. With the question before them, a pointer
/// of 14 bits cannot express more.
pub const REACH: usize = 0x3e00;

/// Owner pointer, type, class, TTL and RDLENGTH.
pub const RECORD_HEAD: usize = 12;

const SET: u16 = 0xc000;
const OWNER: u16 = SET + REACH as u16;
const OWNER_END: u16 = 0xfeff;
/// The stored pointer to the end of the apex; less the octets of the apex, it is the pointer to the whole apex.
pub const APEX_END: u16 = 0xffff;

/// The positions in a message to which stored pointers are relative.
#[derive(Debug, Clone, Copy)]
pub struct NameOffsets {
    /// The RRset's first record.
    pub records: usize,
    /// The position at which the owner's name would end if it were uncompressed.
    pub owner_end: usize,
    /// The end of the question's name.
    pub apex_end: usize,
}

impl NameOffsets {
    /// Returns the pointer in this message for a stored one. Its possible targets must be within the reach of pointers.
    #[inline]
    pub fn resolve(&self, stored: u16) -> u16 {
        let base = match stored {
            ..OWNER => self.records as u16,
            OWNER..=OWNER_END => (self.owner_end as u16).wrapping_sub(OWNER_END - SET),
            _ => (self.apex_end as u16).wrapping_sub(APEX_END - SET),
        };
        stored.wrapping_add(base)
    }
}

/// The end of a stored name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tail {
    /// Ends with the root label.
    Root,
    /// Ends with this many last octets of the owner, more than the apex has.
    Owner(usize),
    /// Ends with this many last octets of the apex.
    Apex(usize),
}

/// Follows a stored pointer through the `records` of its RRset: passes each run of labels to `each`, and returns the end of the
/// name.
pub fn follow(records: &[u8], mut stored: u16, mut each: impl FnMut(&[u8])) -> Tail {
    loop {
        match stored {
            OWNER..=OWNER_END => return Tail::Owner(usize::from(OWNER_END - stored)),
            APEX_FIRST.. => return Tail::Apex(usize::from(APEX_END - stored)),
            _ => {}
        }
        let start = usize::from(stored - SET);
        let mut at = start;
        // Pointers into the set refer to names that were written out before them, so this ends.
        while records[at] != 0 && records[at] < 0xc0 {
            at += 1 + usize::from(records[at]);
        }
        each(&records[start..at]);
        if records[at] == 0 {
            return Tail::Root;
        }
        stored = u16::from_be_bytes([records[at], records[at + 1]]);
    }
}

const APEX_FIRST: u16 = OWNER_END + 1;

/// Puts the names of one RRset into its records.
pub(super) struct Compressor<'a> {
    /// The apex in its original case.
    apex: &'a [u8],
    /// The owner's labels above the apex in their original case, if they are in the question.
    owner: &'a [u8],
    compresses: bool,
    /// The names that were written in full, with their suffixes; `None` for an RRset with one name.
    written: Option<BTreeMap<&'a [u8], u16>>,
}

/// The position of a written name.
pub(super) struct Put {
    /// The number of its octets that are written in full.
    pub(super) plain: usize,
    /// The position of the pointer in the records, if there is one.
    pub(super) pointer_at: Option<usize>,
}

impl<'a> Compressor<'a> {
    /// Creates the state for an RRset of `names` names at an owner with these labels above `apex`.
    pub(super) fn new(rtype: RecordType, owner: &'a [u8], apex: &'a Name, names: usize) -> Self {
        // Only the labels after the asterisk of a synthesized name belong to the owner.
        let owner = owner.strip_prefix(b"\x01*").unwrap_or(owner);
        // A chain of CNAMEs continues at the target, whose labels above the apex must be contiguous.
        let is_alias = rtype == RecordType::CNAME;
        Compressor {
            apex: apex.as_wire(),
            owner: if is_alias { &[] } else { owner },
            compresses: is_compressed(rtype),
            written: (names > 1 && !is_alias && is_compressed(rtype)).then(BTreeMap::new),
        }
    }

    /// Appends `name` to `records`, or its first labels and a pointer.
    pub(super) fn put(&mut self, records: &mut Vec<u8>, name: &'a [u8]) -> Put {
        let mut start = 0;
        while self.compresses && name[start] != 0 {
            let suffix = &name[start..];
            if let Some(stored) = self.find(suffix) {
                records.extend_from_slice(&name[..start]);
                let pointer_at = records.len();
                records.extend_from_slice(&stored.to_be_bytes());
                return Put { plain: start, pointer_at: Some(pointer_at) };
            }
            let at = records.len() + start;
            if let Some(written) = self.written.as_mut().filter(|_| at < REACH) {
                written.insert(suffix, at as u16);
            }
            start += 1 + usize::from(name[start]);
        }
        records.extend_from_slice(name);
        Put { plain: name.len(), pointer_at: None }
    }

    fn find(&self, suffix: &[u8]) -> Option<u16> {
        if is_suffix(self.apex, suffix) {
            return Some(APEX_END - suffix.len() as u16);
        }
        if let Some(relative) = suffix.strip_suffix(self.apex)
            && is_suffix(self.owner, relative)
        {
            return Some(OWNER_END - suffix.len() as u16);
        }
        Some(SET + *self.written.as_ref()?.get(suffix)?)
    }
}

/// Returns whether names in RDATA of this type may be compressed (RFC 3597 §4).
fn is_compressed(rtype: RecordType) -> bool {
    use RecordType as T;
    matches!(rtype, T::NS | T::CNAME | T::PTR | T::SOA | T::MX | T::MD | T::MF | T::MB | T::MG | T::MR | T::MINFO)
}

/// Returns the positions of the names in RDATA of types whose names are compressed or looked up; `None` for other types and for
/// RDATA that is invalid for its type.
pub(super) fn names_in(rtype: RecordType, rdata: &[u8]) -> Option<Vec<(usize, usize)>> {
    let Layout { before, count, after } = Layout::of(rtype)?;
    let mut names = Vec::with_capacity(count);
    let mut at = before;
    for _ in 0..count {
        let (_, rest) = Name::split_from(rdata.get(at..)?).ok()?;
        let end = rdata.len() - rest.len();
        names.push((at, end));
        at = end;
    }
    after.is_none_or(|after| rdata.len() - at == after).then_some(names)
}

/// A name in a stored record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StoredName {
    /// The start in the record.
    pub start: usize,
    /// The end of its labels that are written in full.
    pub plain_end: usize,
    /// The stored pointer after these; `None`: the root label.
    pub pointer: Option<u16>,
    /// The start of the data after it.
    pub end: usize,
}

/// Returns the names in a stored record, head included, that may be compressed; none, and the record must stay unchanged, if its
/// type has none or its RDATA is invalid for its type. `is_pointer` is called with increasing offsets and returns whether a
/// stored pointer is there.
pub fn stored_names(
    rtype: RecordType,
    record: &[u8],
    mut is_pointer: impl FnMut(usize) -> bool,
) -> [Option<StoredName>; 2] {
    let mut names = [None; 2];
    let Some(layout) = Layout::of(rtype).filter(|_| is_compressed(rtype)) else { return names };
    let mut at = RECORD_HEAD + layout.before;
    for name in names.iter_mut().take(layout.count) {
        let start = at;
        let (plain_end, pointer) = loop {
            if is_pointer(at) {
                break (at, Some(u16::from_be_bytes([record[at], record[at + 1]])));
            }
            match record.get(at) {
                Some(0) => break (at, None),
                Some(length @ 1..0x40) => at += 1 + usize::from(*length),
                _ => return [None; 2],
            }
            if at - start >= NAME_OCTETS_MAX {
                return [None; 2];
            }
        };
        at = plain_end + if pointer.is_some() { 2 } else { 1 };
        *name = Some(StoredName { start, plain_end, pointer, end: at });
    }
    if layout.after.is_none_or(|after| at + after == record.len()) { names } else { [None; 2] }
}

/// The structure of RDATA with names.
struct Layout {
    /// Octets before the first name.
    before: usize,
    /// The number of consecutive names.
    count: usize,
    /// The number of octets after them, if it is constant.
    after: Option<usize>,
}

impl Layout {
    fn of(rtype: RecordType) -> Option<Layout> {
        use RecordType as T;
        let (before, count, after) = match rtype {
            T::NS | T::CNAME | T::PTR | T::MD | T::MF | T::MB | T::MG | T::MR => (0, 1, Some(0)),
            T::MINFO => (0, 2, Some(0)),
            T::SOA => (0, 2, Some(20)),
            T::MX => (2, 1, Some(0)),
            T::SRV => (6, 1, Some(0)),
            T::SVCB | T::HTTPS => (2, 1, None),
            _ => return None,
        };
        Some(Layout { before, count, after })
    }
}

/// Returns whether `labels` end with `suffix`; neither is empty.
fn is_suffix(labels: &[u8], suffix: &[u8]) -> bool {
    !suffix.is_empty() && labels.ends_with(suffix) && is_label_start(labels, labels.len() - suffix.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name of a test")
    }

    /// The names put one after another, taken back out through their pointers, and what they took.
    #[track_caller]
    fn check(rtype: RecordType, owner: &str, names: &[&str], octets: usize) {
        let (apex, owner, names) =
            (name("z.test."), name(owner), names.iter().map(|text| name(text)).collect::<Vec<_>>());
        let relative = &owner.as_wire()[..owner.as_wire().len() - apex.as_wire().len()];
        let mut compressor = Compressor::new(rtype, relative, &apex, names.len());
        let mut records = Vec::new();
        let puts: Vec<(usize, Put)> =
            names.iter().map(|name| (records.len(), compressor.put(&mut records, name.as_wire()))).collect();
        assert_eq!(records.len(), octets, "{records:02x?}");
        for ((at, put), name) in puts.iter().zip(&names) {
            let mut plain = records[*at..at + put.plain].to_vec();
            if let Some(pointer_at) = put.pointer_at {
                assert_eq!(pointer_at, at + put.plain);
                let stored = u16::from_be_bytes([records[pointer_at], records[pointer_at + 1]]);
                let end = |all: &[u8], octets: usize| all[all.len() - octets..].to_vec();
                match follow(&records, stored, |labels| plain.extend_from_slice(labels)) {
                    Tail::Root => plain.push(0),
                    Tail::Owner(octets) => plain.extend(end(owner.as_wire(), octets)),
                    Tail::Apex(octets) => plain.extend(end(apex.as_wire(), octets)),
                }
            }
            assert_eq!(plain, name.as_wire());
        }
    }

    #[test]
    fn suffixes_are_shared() {
        use RecordType as T;
        for (rtype, owner, names, octets) in [
            (T::NS, "z.test.", &["ns.z.test.", "z.test.", "test."][..], 5 + 2 + 2),
            (T::NS, "sub.z.test.", &["ns.sub.z.test.", "sub.z.test."], 5 + 2),
            (T::NS, "z.test.", &["a.ns.example.", "b.ns.example.", "ns.example.", "b.ns.example."], 14 + 4 + 2 + 2),
            (T::MX, "*.w.z.test.", &["mx.w.z.test.", "w.w.z.test."], 5 + 4),
            // Case is kept, and a label is whole.
            (T::NS, "z.test.", &["ns.Z.test.", "s.z.test.", "ns.z.test."], 7 + 4 + 5),
            // The target of an alias is in one piece down to the apex.
            (T::CNAME, "a.b.z.test.", &["c.b.z.test.", "c.b.z.test."], 6 + 6),
            (T::SRV, "z.test.", &["a.z.test.", "b.z.test."], 10 + 10),
            (T::NS, "z.test.", &[".", "a.", "a.", "."], 1 + 3 + 2 + 1),
        ] {
            check(rtype, owner, names, octets);
        }
    }

    #[test]
    fn nothing_points_beyond_the_reach() {
        let (owner, apex) = (name("z.test."), name("z.test."));
        let names: Vec<Name> = (0..300).map(|index| name(&format!("{}{index}.example.", "x".repeat(60)))).collect();
        let mut compressor = Compressor::new(RecordType::NS, &owner.as_wire()[..0], &apex, 600);
        let mut records = Vec::new();
        for _ in 0..2 {
            for name in &names {
                compressor.put(&mut records, name.as_wire());
            }
        }
        let places = NameOffsets { records: 0x1ff, owner_end: 0, apex_end: 0 };
        let mut at = 0;
        while at < records.len() {
            while records[at] != 0 && records[at] < 0xc0 {
                at += 1 + usize::from(records[at]);
            }
            if records[at] >= 0xc0 {
                let stored = u16::from_be_bytes([records[at], records[at + 1]]);
                let offset = usize::from(stored - SET);
                assert!(offset < at.min(REACH));
                assert_eq!(usize::from(places.resolve(stored) - SET), offset + 0x1ff);
                at += 1;
            }
            at += 1;
        }
        assert!(records.len() > REACH);
    }
}
