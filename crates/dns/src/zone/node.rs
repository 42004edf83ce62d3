//! One owner of a zone, compiled: its RRsets in the form of messages, so that most answers are one copy.
//!
//! Every record is stored completely, with the owner `C0 0C`, a pointer to the question's name. Names in RDATA are compressed as
//! described in [`super::compression`]; each pointer there is listed as a *patch*, which the writer resolves for the message.
//!
//! ```text
//! node    hash u64 · length u32 · children u32 · name length u8 · flags u8 · RRsets u16
//!         RRset entries, 28 octets each, addresses first, then by type
//!         the name's labels above the apex in lower case, and again in their original case if that differs
//!         data of each RRset
//! entry   type u16 · record length u8 (0: they differ) · flags u8 · records u32 · data at u32 · octets of records u32 ·
//!         octets of signatures u32 · signatures u16 · patches u16 · octets of targets u32
//! data    records · signatures (RRSIG records) · patches u16 each · targets · weights u16 each
//! target  hash of the name u64 · offset in the records u16 · octets above the apex u8 · kind u8 · the labels above the
//!         apex, if the kind is that they are not contiguous in the records
//! ```
//!
//! Numbers are little-endian. A node does not contain its position, so that an edit of a zone copies nodes unchanged.

pub(super) mod compile;

use super::compression::{self, REACH, RECORD_HEAD, Tail};
use super::qname::NameHash;
use super::rrset::{Rdata, Rrset, Ttl};
use crate::wire::question::QUESTION_AT;
use crate::wire::{Name, RecordType};

/// One owner in a zone's image.
#[derive(Clone, Copy)]
pub struct Node<'z> {
    head: &'z [u8; HEAD],
    octets: &'z [u8],
}

/// An RRset in a zone's image, with the signatures over it.
#[derive(Clone, Copy)]
pub struct Records<'z> {
    entry: &'z [u8; ENTRY],
    /// The RRset's data, and the rest of the node.
    data: &'z [u8],
}

/// A name in RDATA that is in the zone and whose addresses may be added to the additional section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'z> {
    /// The hash of the name.
    pub hash: NameHash,
    /// The start of the name in the records.
    pub at: usize,
    /// The labels above the apex, in their original case.
    pub relative: &'z [u8],
    /// Whether the name is `.` and represents the owner (RFC 9460 §2.5.2).
    pub is_owner: bool,
}

/// Properties of a node that an answer needs before its records.
pub mod flag {
    /// A zone cut: NS records below the apex.
    pub const CUT: u8 = 1;
    /// The name is below a cut or a DNAME: at most glue.
    pub const OCCLUDED: u8 = 2;
    /// The name has a child `*`.
    pub const WILDCARD_CHILD: u8 = 4;
    /// The name has a DNAME record.
    pub const DNAME: u8 = 8;
    /// The name has a CNAME record.
    pub const CNAME: u8 = 16;
    /// The name is also stored in its original case.
    pub(super) const CASED: u8 = 32;
}

const HEAD: usize = 20;
const ENTRY: usize = 28;
const TARGET: usize = 12;
/// Kinds of targets.
const IN_PLACE: u8 = 0;
const IS_OWNER: u8 = 1;
const LABELS_FOLLOW: u8 = 2;
/// The pointer to the question's name, which every stored owner is.
pub const QUESTION_POINTER: u16 = 0xc000 | QUESTION_AT as u16;
const WEIGHTED: u8 = 1;

impl<'z> Node<'z> {
    /// Returns the node whose octets are at the start of `octets`.
    #[inline]
    pub(super) fn at(octets: &'z [u8]) -> Self {
        Node { head: octets.first_chunk().expect("every node has a head"), octets }
    }

    /// Returns the length of the node at the start of `octets`; `None` if they are too few for a node's head.
    pub(super) fn stored_length(octets: &[u8]) -> Option<usize> {
        let head: &[u8; HEAD] = octets.first_chunk()?;
        Some(u32_at(head, 8) as usize).filter(|length| *length >= HEAD)
    }

    /// Returns all octets of this node.
    pub(super) fn octets(&self) -> &'z [u8] {
        &self.octets[..u32_at(self.head, 8) as usize]
    }

    /// Returns the hash of the owner.
    #[inline]
    pub fn hash(&self) -> NameHash {
        NameHash::from_le_bytes(*self.head.first_chunk().expect("a head of twenty octets"))
    }

    /// Returns the number of nodes directly below.
    pub fn children(&self) -> u32 {
        u32_at(self.head, 12)
    }

    /// Returns the bits of [`flag`].
    #[inline]
    pub fn flags(&self) -> u8 {
        self.head[17]
    }

    /// Returns whether all bits of `flags` are set.
    #[inline]
    pub fn has(&self, flags: u8) -> bool {
        self.flags() & flags == flags
    }

    /// Returns whether this name exists only because of names below it (RFC 4592 §2.2.2).
    pub fn is_empty_non_terminal(&self) -> bool {
        self.entry_count() == 0
    }

    /// Returns whether its owner is the zone's apex.
    #[inline]
    pub fn is_apex(&self) -> bool {
        self.head[16] == 0
    }

    /// Returns the owner's labels above the apex, in lower case, without root label.
    #[inline]
    pub fn relative(&self) -> &'z [u8] {
        let at = HEAD + ENTRY * self.entry_count();
        &self.octets[at..at + usize::from(self.head[16])]
    }

    /// Returns the owner's labels above the apex, in their original case.
    pub fn relative_as_written(&self) -> &'z [u8] {
        let length = usize::from(self.head[16]);
        let mut at = HEAD + ENTRY * self.entry_count();
        if self.has(flag::CASED) {
            at += length;
        }
        &self.octets[at..at + length]
    }

    /// Returns the records of `rtype`, or signatures over them.
    #[inline]
    pub fn get(&self, rtype: RecordType) -> Option<Records<'z>> {
        let entries = &self.octets[HEAD..HEAD + ENTRY * self.entry_count()];
        let entry =
            entries.as_chunks::<ENTRY>().0.iter().find(|entry| [entry[0], entry[1]] == rtype.0.to_le_bytes())?;
        Some(self.records(entry))
    }

    /// Returns all RRsets: addresses first, then by type.
    pub fn rrsets(self) -> impl Iterator<Item = Records<'z>> {
        let entries = &self.octets[HEAD..HEAD + ENTRY * self.entry_count()];
        entries.as_chunks::<ENTRY>().0.iter().map(move |entry| self.records(entry))
    }

    /// Returns the RRsets from which the node was compiled, RRSIGs as one RRset again.
    pub(super) fn to_rrsets(self, apex: &Name) -> Vec<Rrset> {
        let to_rrset = |records: Records<'_>| records.to_rrset(self.relative_as_written(), apex);
        let mut rrsets: Vec<Rrset> = self.rrsets().filter(|records| records.count() > 0).map(to_rrset).collect();
        let signatures: Vec<_> = self.rrsets().flat_map(Records::signature_rdata).collect();
        if !signatures.is_empty() {
            // Each signature has the TTL of the RRset that it covers (RFC 4034 §3); the lowest represents all, as when records
            // are added.
            let signed = self.rrsets().filter(|records| records.signature_count() > 0);
            let ttl = Ttl::from_wire(signed.map(|records| records.ttl()).min().unwrap_or(0));
            rrsets.push(Rrset { rtype: RecordType::RRSIG, ttl, rdata: signatures });
        }
        rrsets
    }

    #[inline]
    fn entry_count(&self) -> usize {
        usize::from(u16::from_le_bytes([self.head[18], self.head[19]]))
    }

    #[inline]
    fn records(&self, entry: &'z [u8; ENTRY]) -> Records<'z> {
        Records { entry, data: &self.octets[u32_at(entry, 8) as usize..] }
    }
}

impl<'z> Records<'z> {
    /// Returns the type of every record.
    #[inline]
    pub fn rtype(&self) -> RecordType {
        RecordType(u16::from_le_bytes([self.entry[0], self.entry[1]]))
    }

    /// Returns the number of records; none if there are only signatures over a missing RRset.
    #[inline]
    pub fn count(&self) -> usize {
        u32_at(self.entry, 4) as usize
    }

    /// Returns the number of octets of each record if all have the same length below 256, otherwise 0.
    #[inline]
    pub fn stride(&self) -> usize {
        usize::from(self.entry[2])
    }

    /// Returns the records, each with the owner `C0 0C`.
    #[inline]
    pub fn records(&self) -> &'z [u8] {
        &self.data[..u32_at(self.entry, 12) as usize]
    }

    /// Returns the RRSIG records that cover this RRset, each with the owner `C0 0C`.
    #[inline]
    pub fn signatures(&self) -> &'z [u8] {
        &self.data[u32_at(self.entry, 12) as usize..][..u32_at(self.entry, 16) as usize]
    }

    /// Returns the number of RRSIG records.
    #[inline]
    pub fn signature_count(&self) -> usize {
        usize::from(u16::from_le_bytes([self.entry[20], self.entry[21]]))
    }

    #[inline]
    fn patch_octets(&self) -> usize {
        2 * usize::from(u16::from_le_bytes([self.entry[22], self.entry[23]]))
    }

    #[inline]
    fn target_octets(&self) -> usize {
        u32_at(self.entry, 24) as usize
    }

    /// Returns the data after records and signatures.
    #[inline]
    fn annotations(&self) -> &'z [u8] {
        &self.data[(u32_at(self.entry, 12) + u32_at(self.entry, 16)) as usize..]
    }

    /// Returns whether some of the RDATA's names are in this zone: whether [`Self::targets`] has any.
    #[inline]
    pub fn has_targets(&self) -> bool {
        self.target_octets() > 0
    }

    /// Returns the TTL of every record and signature, in seconds.
    pub fn ttl(&self) -> u32 {
        let octets = if self.count() == 0 { self.signatures() } else { self.records() };
        octets.get(6..10).map_or(0, |ttl| u32::from_be_bytes([ttl[0], ttl[1], ttl[2], ttl[3]]))
    }

    /// Returns the end of the part of the records that contains all targets of their pointers.
    #[inline]
    pub fn reach(&self) -> usize {
        self.records().len().min(REACH)
    }

    /// Returns whether there are any [`Self::patches`].
    #[inline]
    pub fn has_patches(&self) -> bool {
        self.patch_octets() > 0
    }

    /// Returns the positions of the pointers in the records that must be resolved: see [`compression::NameOffsets`].
    #[inline]
    pub fn patches(&self) -> impl Iterator<Item = usize> + use<'z> {
        let patches = match self.patch_octets() {
            0 => &[],
            octets => &self.annotations()[..octets],
        };
        patches.as_chunks::<2>().0.iter().map(|at| usize::from(u16::from_le_bytes(*at)))
    }

    /// Returns the names in the RDATA that are in this zone, in the order of the records.
    pub fn targets(&self) -> impl Iterator<Item = Target<'z>> + use<'z> {
        self.stored_targets().map(|(_, target)| target)
    }

    /// Returns the targets, each with its index.
    fn stored_targets(&self) -> impl Iterator<Item = (usize, Target<'z>)> + use<'z> {
        let records = self.records();
        let targets = &self.annotations()[self.patch_octets()..][..self.target_octets()];
        let mut next = 0;
        std::iter::from_fn(move || {
            let place = next;
            let (target, rest) = targets[place..].split_first_chunk::<TARGET>()?;
            let at = usize::from(u16::from_le_bytes([target[8], target[9]]));
            let (length, kind) = (usize::from(target[10]), target[11]);
            next += TARGET;
            let relative = if kind == LABELS_FOLLOW {
                next += length;
                &rest[..length]
            } else {
                &records[at..at + length]
            };
            let hash = NameHash::from_le_bytes(*target.first_chunk().expect("a target of twelve octets"));
            Some((place, Target { hash, at, relative, is_owner: kind == IS_OWNER }))
        })
    }

    /// Returns whether the records have weights.
    #[inline]
    pub fn has_weights(&self) -> bool {
        self.entry[3] & WEIGHTED != 0
    }

    /// Returns the weight of each record in answers, if weights differ.
    pub fn weights(&self) -> Option<impl Iterator<Item = u16> + use<'z>> {
        if !self.has_weights() {
            return None;
        }
        let weights = &self.annotations()[self.patch_octets() + self.target_octets()..][..2 * self.count()];
        Some(weights.as_chunks::<2>().0.iter().map(|weight| u16::from_le_bytes(*weight)))
    }

    /// Returns the RRset from which this one was compiled, at an owner with these labels above the apex.
    pub(super) fn to_rrset(self, relative: &[u8], apex: &Name) -> Rrset {
        let apex = apex.as_wire();
        let mut patches = self.patches().peekable();
        let mut rdata = Vec::with_capacity(self.count());
        let mut at = 0;
        for record in split_records(self.records()) {
            let mut plain = Vec::with_capacity(record.len());
            let mut from = RECORD_HEAD;
            while let Some(patch) = patches.next_if(|patch| *patch < at + record.len()) {
                let patch = patch - at;
                plain.extend_from_slice(&record[from..patch]);
                let stored = u16::from_be_bytes([record[patch], record[patch + 1]]);
                match compression::follow(self.records(), stored, |labels| plain.extend_from_slice(labels)) {
                    Tail::Root => plain.push(0),
                    Tail::Apex(octets) => plain.extend_from_slice(&apex[apex.len() - octets..]),
                    Tail::Owner(octets) => {
                        plain.extend_from_slice(&relative[relative.len() - (octets - apex.len())..]);
                        plain.extend_from_slice(apex);
                    }
                }
                from = patch + 2;
            }
            plain.extend_from_slice(&record[from..]);
            rdata.push(plain.into_boxed_slice());
            at += record.len();
        }
        Rrset { rtype: self.rtype(), ttl: Ttl::from_wire(self.ttl()), rdata }
    }

    /// Returns the RDATA of the signatures.
    pub(super) fn signature_rdata(self) -> impl Iterator<Item = Rdata> + use<'z> {
        split_records(self.signatures()).map(|record| record[RECORD_HEAD..].into())
    }
}

/// Returns the stored records in `octets` one by one, each with its head.
pub fn split_records(mut octets: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = octets.get(10..12)?;
        let length = RECORD_HEAD + usize::from(u16::from_be_bytes([length[0], length[1]]));
        let (record, rest) = octets.split_at_checked(length)?;
        octets = rest;
        Some(record)
    })
}

#[inline]
fn u32_at<const N: usize>(octets: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::qname::Qname;

    fn name(text: &str) -> Name {
        text.parse().expect("a name of a test")
    }

    fn rrset(rtype: RecordType, rdata: &[&[u8]]) -> Rrset {
        let ttl = Ttl::new(300).expect("is small");
        Rrset { rtype, ttl, rdata: rdata.iter().map(|data| Box::from(*data)).collect() }
    }

    fn compiled(owner: &str, apex: &str, rrsets: &[Rrset]) -> Vec<u8> {
        compile::compile(&compile::NodeSource { owner: &name(owner), apex: &name(apex), rrsets, weights: &|_| None })
    }

    #[test]
    fn records_come_back_out() {
        let soa = [name("ns1.v3.example.").as_wire(), name("Admin.Shard1.v3.example.").as_wire(), &[7; 20]]
            .concat()
            .into_boxed_slice();
        let mx = [&[0, 10], name("mx.shard1.v3.example.").as_wire()].concat();
        let rrsets = [
            rrset(RecordType::SOA, &[&soa]),
            rrset(RecordType::NS, &[name("ns1.v3.example.").as_wire(), name("ns.V3.example.").as_wire(), b"\0"]),
            rrset(RecordType::MX, &[&mx, b"not an mx"]),
            rrset(RecordType::A, &[&[192, 0, 2, 1], &[192, 0, 2, 2]]),
            rrset(RecordType::TXT, &[b"\x01a", b"\x02bc"]),
            rrset(RecordType(65400), &[b""]),
        ];
        let octets = compiled("Shard1.V3.example.", "shard1.v3.example.", &rrsets);
        let node = Node::at(&octets);
        assert_eq!(node.octets(), octets);
        for rrset in &rrsets {
            let records = node.get(rrset.rtype).expect("was compiled");
            assert_eq!(&records.to_rrset(b"", &name("shard1.v3.example.")), rrset);
        }
        let a = node.get(RecordType::A).expect("was compiled");
        assert_eq!((a.count(), a.stride(), a.records().len(), a.ttl()), (2, 16, 32, 300));
        let ns = node.get(RecordType::NS).expect("was compiled");
        assert_eq!(ns.patches().count(), 2, "only as far as the case agrees");
        assert!(ns.records().ends_with(&[0, 1, 0]));
        assert_eq!(ns.targets().count(), 0, "v3.example. is above the zone");
        let mx = node.get(RecordType::MX).expect("was compiled");
        let targets: Vec<_> = mx.targets().collect();
        assert_eq!(targets.len(), 1);
        assert_eq!((targets[0].at, targets[0].relative), (14, &b"\x02mx"[..]));
        assert_eq!(targets[0].hash, Qname::of(name("mx.shard1.v3.example.").as_wire()).hash(0));
    }

    #[test]
    fn signatures_lie_with_what_they_cover() {
        let rrsets = [
            rrset(RecordType::A, &[&[192, 0, 2, 1]]),
            rrset(RecordType::RRSIG, &[b"\0\x01one", b"\0\x10two", b"\0\x01three"]),
        ];
        let octets = compiled("a.z.example.", "z.example.", &rrsets);
        let node = Node::at(&octets);
        let a = node.get(RecordType::A).expect("was compiled");
        assert_eq!(a.signature_count(), 2);
        assert_eq!(a.signature_rdata().collect::<Vec<_>>(), [b"\0\x01one"[..].into(), b"\0\x01three"[..].into()]);
        let txt = node.get(RecordType::TXT).expect("has a signature");
        assert_eq!((txt.count(), txt.signature_count()), (0, 1));
    }

    #[test]
    fn flags_follow_from_records() {
        for (owner, rtype, flags) in [
            ("z.example.", RecordType::NS, 0),
            ("a.z.example.", RecordType::NS, flag::CUT),
            ("*.z.example.", RecordType::NS, 0),
            ("a.z.example.", RecordType::DNAME, flag::DNAME),
            ("z.example.", RecordType::DNAME, flag::DNAME),
            ("*.z.example.", RecordType::DNAME, 0),
            ("A.z.example.", RecordType::CNAME, flag::CNAME | flag::CASED),
        ] {
            let octets = compiled(owner, "z.example.", &[rrset(rtype, &[b"\0"])]);
            assert_eq!(Node::at(&octets).flags(), flags, "{owner} {rtype}");
        }
    }

    #[test]
    fn an_rrset_beyond_any_message_survives() {
        let records: Vec<Vec<u8>> =
            (0..9000u32).map(|index| [index.to_be_bytes(), index.to_be_bytes()].concat()).collect();
        let rdata: Vec<&[u8]> = records.iter().map(Vec::as_slice).collect();
        let set = rrset(RecordType::MX, &rdata);
        let octets = compiled("z.example.", "z.example.", std::slice::from_ref(&set));
        let found = Node::at(&octets).get(RecordType::MX).expect("was compiled");
        assert_eq!(found.to_rrset(b"", &name("z.example.")), set);
    }
}
