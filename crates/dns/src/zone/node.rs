//! One owner of a zone, compiled: its RRsets as they go into messages, so that most answers are one copy.
//!
//! Every record is stored whole with the owner `C0 0C`, a pointer to the question's name. Names in RDATA are compressed as
//! [`super::compression`] says; each pointer there is listed as a *patch*, for the writer to make it the message's own.
//!
//! ```text
//! node    hash u64 · length u32 · children u32 · name length u8 · flags u8 · RRsets u16
//!         RRset entries, 28 octets each, addresses first, then by type
//!         the name's labels above the apex in lower case, once more as written if that differs
//!         data of each RRset
//! entry   type u16 · record length u8 (0: they differ) · flags u8 · records u32 · data at u32 · octets of records u32 ·
//!         octets of signatures u32 · signatures u16 · patches u16 · octets of targets u32
//! data    records · signatures (RRSIG records) · patches u16 each · targets · weights u16 each
//! target  hash of the name u64 · offset in the records u16 · octets above the apex u8 · kind u8 · the labels above the
//!         apex, if the kind is that they do not stand in one piece in the records
//! ```
//!
//! Numbers are little endian. A node does not know where it lies, so that editing a zone copies nodes as they are.

use super::compression::{self, Compressor, REACH, Tail, names_in};
use super::qname::{NameHash, Qname};
use super::rrset::{Rdata, Rrset, Ttl};
use crate::wire::name::NAME_OCTETS_MAX;
use crate::wire::question::QUESTION_AT;
use crate::wire::{Class, Name, RecordType};

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
    /// The RRset's data, and what follows it in the node.
    data: &'z [u8],
}

/// A name in RDATA that lies in the zone and whose addresses may go into the additional section.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target<'z> {
    /// The hash of the name.
    pub hash: NameHash,
    /// Where the name starts in the records.
    pub at: usize,
    /// Its labels above the apex, as written.
    pub relative: &'z [u8],
    /// Whether the name is `.` and stands for the owner (RFC 9460 §2.5.2).
    pub is_owner: bool,
}

/// Facts about a node that answering needs before its records.
pub mod flag {
    /// A zone cut: NS records below the apex.
    pub const CUT: u8 = 1;
    /// Lies below a cut or a DNAME: glue at best.
    pub const OCCLUDED: u8 = 2;
    /// Has a child `*`.
    pub const WILDCARD_CHILD: u8 = 4;
    /// Has a DNAME record.
    pub const DNAME: u8 = 8;
    /// Has a CNAME record.
    pub const CNAME: u8 = 16;
    /// The name is stored a second time as it was written.
    pub(super) const CASED: u8 = 32;
}

const HEAD: usize = 20;
const ENTRY: usize = 28;
const TARGET: usize = 12;
/// Kinds of targets.
const IN_PLACE: u8 = 0;
const IS_OWNER: u8 = 1;
const LABELS_FOLLOW: u8 = 2;
/// Owner pointer, type, class, TTL and RDLENGTH.
pub const RECORD_HEAD: usize = 12;
/// The pointer to the question's name, which every stored owner is.
pub const QUESTION_POINTER: u16 = 0xc000 | QUESTION_AT as u16;
const WEIGHTED: u8 = 1;

impl<'z> Node<'z> {
    /// The node whose octets are at the start of `octets`.
    #[inline]
    pub(super) fn at(octets: &'z [u8]) -> Self {
        Node { head: octets.first_chunk().expect("every node has a head"), octets }
    }

    /// How many of `octets` are the node at their start; `None` if they are too few for a node's head.
    pub(super) fn stored_length(octets: &[u8]) -> Option<usize> {
        let head: &[u8; HEAD] = octets.first_chunk()?;
        Some(u32_at(head, 8) as usize).filter(|length| *length >= HEAD)
    }

    /// All octets of this node.
    pub(super) fn octets(&self) -> &'z [u8] {
        &self.octets[..u32_at(self.head, 8) as usize]
    }

    /// The hash of the owner.
    #[inline]
    pub fn hash(&self) -> NameHash {
        NameHash::from_le_bytes(*self.head.first_chunk().expect("a head of twenty octets"))
    }

    /// How many nodes lie directly below.
    pub fn children(&self) -> u32 {
        u32_at(self.head, 12)
    }

    /// The bits of [`flag`].
    #[inline]
    pub fn flags(&self) -> u8 {
        self.head[17]
    }

    /// Whether all bits of `flags` are set.
    #[inline]
    pub fn has(&self, flags: u8) -> bool {
        self.flags() & flags == flags
    }

    /// Whether nothing but names below makes this name exist (RFC 4592 §2.2.2).
    pub fn is_empty_non_terminal(&self) -> bool {
        self.entry_count() == 0
    }

    /// Whether its owner is the zone's apex.
    #[inline]
    pub fn is_apex(&self) -> bool {
        self.head[16] == 0
    }

    /// The owner's labels above the apex, in lower case, without root label.
    #[inline]
    pub fn relative(&self) -> &'z [u8] {
        let at = HEAD + ENTRY * self.entry_count();
        &self.octets[at..at + usize::from(self.head[16])]
    }

    /// The owner's labels above the apex, as they were written.
    pub fn relative_as_written(&self) -> &'z [u8] {
        let length = usize::from(self.head[16]);
        let mut at = HEAD + ENTRY * self.entry_count();
        if self.has(flag::CASED) {
            at += length;
        }
        &self.octets[at..at + length]
    }

    /// The records of `rtype`, or signatures over them.
    #[inline]
    pub fn get(&self, rtype: RecordType) -> Option<Records<'z>> {
        let entries = &self.octets[HEAD..HEAD + ENTRY * self.entry_count()];
        let entry =
            entries.as_chunks::<ENTRY>().0.iter().find(|entry| [entry[0], entry[1]] == rtype.0.to_le_bytes())?;
        Some(self.records(entry))
    }

    /// All RRsets: addresses first, then by type.
    pub fn rrsets(self) -> impl Iterator<Item = Records<'z>> {
        let entries = &self.octets[HEAD..HEAD + ENTRY * self.entry_count()];
        entries.as_chunks::<ENTRY>().0.iter().map(move |entry| self.records(entry))
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
    /// The type of every record.
    #[inline]
    pub fn rtype(&self) -> RecordType {
        RecordType(u16::from_le_bytes([self.entry[0], self.entry[1]]))
    }

    /// How many records there are; none where only signatures over a missing RRset exist.
    #[inline]
    pub fn count(&self) -> usize {
        u32_at(self.entry, 4) as usize
    }

    /// Octets of each record if all have the same length below 256, else 0.
    #[inline]
    pub fn stride(&self) -> usize {
        usize::from(self.entry[2])
    }

    /// The records, each with the owner `C0 0C`.
    #[inline]
    pub fn records(&self) -> &'z [u8] {
        &self.data[..u32_at(self.entry, 12) as usize]
    }

    /// The RRSIG records that cover this RRset, each with the owner `C0 0C`.
    #[inline]
    pub fn signatures(&self) -> &'z [u8] {
        &self.data[u32_at(self.entry, 12) as usize..][..u32_at(self.entry, 16) as usize]
    }

    /// How many RRSIG records there are.
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

    /// What follows records and signatures.
    #[inline]
    fn annotations(&self) -> &'z [u8] {
        &self.data[(u32_at(self.entry, 12) + u32_at(self.entry, 16)) as usize..]
    }

    /// Whether some of the RDATA's names lie in this zone: whether [`Self::targets`] has any.
    #[inline]
    pub fn has_targets(&self) -> bool {
        self.target_octets() > 0
    }

    /// The TTL of every record and signature, in seconds.
    pub fn ttl(&self) -> u32 {
        let octets = if self.count() == 0 { self.signatures() } else { self.records() };
        octets.get(6..10).map_or(0, |ttl| u32::from_be_bytes([ttl[0], ttl[1], ttl[2], ttl[3]]))
    }

    /// Before which octet of the records all that lies to which pointers in them point.
    #[inline]
    pub fn reach(&self) -> usize {
        self.records().len().min(REACH)
    }

    /// Whether there are any [`Self::patches`].
    #[inline]
    pub fn has_patches(&self) -> bool {
        self.patch_octets() > 0
    }

    /// Where in the records pointers stand that are to be resolved: see [`compression::Places`].
    #[inline]
    pub fn patches(&self) -> impl Iterator<Item = usize> + use<'z> {
        let patches = match self.patch_octets() {
            0 => &[],
            octets => &self.annotations()[..octets],
        };
        patches.as_chunks::<2>().0.iter().map(|at| usize::from(u16::from_le_bytes(*at)))
    }

    /// Names in the RDATA that lie in this zone, in the order of the records.
    pub fn targets(&self) -> impl Iterator<Item = Target<'z>> + use<'z> {
        self.stored_targets().map(|(_, target)| target)
    }

    /// The targets, each with its place among them.
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

    /// Whether the records have weights.
    #[inline]
    pub fn has_weights(&self) -> bool {
        self.entry[3] & WEIGHTED != 0
    }

    /// The weight of each record by which it takes part in answers, if they differ.
    pub fn weights(&self) -> Option<impl Iterator<Item = u16> + use<'z>> {
        if !self.has_weights() {
            return None;
        }
        let weights = &self.annotations()[self.patch_octets() + self.target_octets()..][..2 * self.count()];
        Some(weights.as_chunks::<2>().0.iter().map(|weight| u16::from_le_bytes(*weight)))
    }

    /// The RRset as it was before it was compiled, at an owner with these labels above the apex.
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

    /// The RDATA of the signatures.
    pub(super) fn signature_rdata(self) -> impl Iterator<Item = Rdata> + use<'z> {
        split_records(self.signatures()).map(|record| record[RECORD_HEAD..].into())
    }
}

/// The stored records in `octets` one by one, each with its head.
pub fn split_records(mut octets: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let length = octets.get(10..12)?;
        let length = RECORD_HEAD + usize::from(u16::from_be_bytes([length[0], length[1]]));
        let (record, rest) = octets.split_at_checked(length)?;
        octets = rest;
        Some(record)
    })
}

/// What a node is compiled from.
pub(super) struct NodeSource<'a> {
    /// The owner.
    pub owner: &'a Name,
    /// The zone's apex.
    pub apex: &'a Name,
    /// Its RRsets; none for an empty non-terminal.
    pub rrsets: &'a [Rrset],
    /// Weights of RRsets that have them.
    pub weights: &'a dyn Fn(RecordType) -> Option<Vec<u16>>,
}

/// Compiles a node, with no children and only the flags that follow from its own records.
pub(super) fn compile(source: &NodeSource<'_>) -> Vec<u8> {
    let mut groups = group(source.rrsets);
    groups.sort_by_key(|group| (!matches!(group.rtype, RecordType::A | RecordType::AAAA), group.rtype));
    let written = &source.owner.as_wire()[..source.owner.as_wire().len() - source.apex.as_wire().len()];
    let qname = Qname::of(source.owner.as_wire());
    let folded = &qname.octets()[..written.len()];

    let has = |rtype| groups.iter().any(|group| group.rtype == rtype && !group.rdata.is_empty());
    let mut flags = 0;
    // NS and DNAME at a wildcard neither delegate nor redirect (RFC 4592 §4.2, §4.4): checks refuse them, and where they
    // are served nevertheless they are plain data.
    if !source.owner.is_wildcard() {
        if has(RecordType::NS) && !written.is_empty() {
            flags |= flag::CUT;
        }
        if has(RecordType::DNAME) {
            flags |= flag::DNAME;
        }
    }
    if has(RecordType::CNAME) {
        flags |= flag::CNAME;
    }
    if written != folded {
        flags |= flag::CASED;
    }

    // Enough for all but patches and targets: a million of these wait side by side while a large zone is built.
    let records: usize =
        source.rrsets.iter().flat_map(|rrset| &rrset.rdata).map(|rdata| RECORD_HEAD + rdata.len()).sum();
    let mut node = Vec::with_capacity(HEAD + ENTRY * groups.len() + 2 * written.len() + records);
    node.extend_from_slice(&qname.hash(0).to_le_bytes());
    node.extend_from_slice(&[0; 8]);
    node.extend_from_slice(&[written.len() as u8, flags]);
    node.extend_from_slice(&(groups.len() as u16).to_le_bytes());
    node.resize(HEAD + ENTRY * groups.len(), 0);
    node.extend_from_slice(folded);
    if flags & flag::CASED != 0 {
        node.extend_from_slice(written);
    }
    for (index, group) in groups.iter().enumerate() {
        let entry = compile_rrset(&mut node, group, source);
        node[HEAD + ENTRY * index..][..ENTRY].copy_from_slice(&entry);
    }
    let length = node.len() as u32;
    node[8..12].copy_from_slice(&length.to_le_bytes());
    node
}

/// Changes the number of children of a compiled node.
pub(super) fn set_children(node: &mut [u8], children: u32) {
    node[12..16].copy_from_slice(&children.to_le_bytes());
}

/// Sets or clears bits of a compiled node's flags.
pub(super) fn set_flags(node: &mut [u8], flags: u8, on: bool) {
    if on {
        node[17] |= flags;
    } else {
        node[17] &= !flags;
    }
}

/// Makes the hashes in a node of the zone `apex` those of this process, the node having been compiled in another one.
pub(super) fn rehash(node: &mut [u8], apex: &Name) {
    let view = Node::at(node);
    let mut hashes = vec![(0, hash_below(view.relative(), apex))];
    for records in view.rrsets().filter(Records::has_targets) {
        let data_at = u32_at(records.entry, 8) as usize;
        let annotations_at = data_at + (u32_at(records.entry, 12) + u32_at(records.entry, 16)) as usize;
        let targets_at = annotations_at + records.patch_octets();
        for (place, target) in records.stored_targets().filter(|(_, target)| !target.is_owner) {
            hashes.push((targets_at + place, hash_below(target.relative, apex)));
        }
    }
    for (at, hash) in hashes {
        node[at..at + 8].copy_from_slice(&hash.to_le_bytes());
    }
}

/// The hash of the name of these labels below `apex`.
fn hash_below(relative: &[u8], apex: &Name) -> NameHash {
    let mut name = [0; NAME_OCTETS_MAX];
    let length = relative.len() + apex.as_wire().len();
    name[..relative.len()].copy_from_slice(relative);
    name[relative.len()..length].copy_from_slice(apex.as_wire());
    Qname::of(&name[..length]).hash(0)
}

/// An RRset with the signatures that cover it.
struct Group<'a> {
    rtype: RecordType,
    ttl: Ttl,
    rdata: &'a [Rdata],
    signatures: Vec<&'a Rdata>,
}

/// Takes RRSIGs to the RRsets that they cover (RFC 4034 §3.1.1: the type is their first field).
fn group(rrsets: &[Rrset]) -> Vec<Group<'_>> {
    let mut groups: Vec<Group<'_>> = rrsets
        .iter()
        .filter(|rrset| rrset.rtype != RecordType::RRSIG)
        .map(|rrset| Group { rtype: rrset.rtype, ttl: rrset.ttl, rdata: &rrset.rdata, signatures: Vec::new() })
        .collect();
    for rrsig in rrsets.iter().filter(|rrset| rrset.rtype == RecordType::RRSIG) {
        for rdata in &rrsig.rdata {
            let rtype =
                rdata.first_chunk().map_or(RecordType::RRSIG, |covered| RecordType(u16::from_be_bytes(*covered)));
            let covered = groups.iter().position(|group| group.rtype == rtype).unwrap_or_else(|| {
                groups.push(Group { rtype, ttl: rrsig.ttl, rdata: &[], signatures: Vec::new() });
                groups.len() - 1
            });
            groups[covered].signatures.push(rdata);
        }
    }
    groups
}

fn compile_rrset(node: &mut Vec<u8>, group: &Group<'_>, source: &NodeSource<'_>) -> [u8; ENTRY] {
    let data_at = node.len() as u32;
    // What does not fit in a message is never sent as it is, and its patches and targets have no room in their 16 bits.
    let mut compiled = compile_records(group, source, true);
    if compiled.records.len() > usize::from(u16::MAX) {
        compiled = compile_records(group, source, false);
    }
    let Compiled { records, patches, targets } = compiled;
    let strides_agree = group.rdata.windows(2).all(|pair| pair[0].len() == pair[1].len());
    let mut signatures = Vec::new();
    for rdata in &group.signatures {
        put_head(&mut signatures, RecordType::RRSIG, group.ttl, rdata.len() as u16);
        signatures.extend_from_slice(rdata);
    }
    let weights = (source.weights)(group.rtype).filter(|weights| weights.len() == group.rdata.len());
    node.extend_from_slice(&records);
    node.extend_from_slice(&signatures);
    for patch in &patches {
        node.extend_from_slice(&(*patch as u16).to_le_bytes());
    }
    node.extend_from_slice(&targets);
    for weight in weights.iter().flatten() {
        node.extend_from_slice(&weight.to_le_bytes());
    }

    let stride = match group.rdata {
        // Compressed names make lengths differ again; only plain records are rotated.
        [first, ..] if strides_agree && patches.is_empty() => u8::try_from(RECORD_HEAD + first.len()).unwrap_or(0),
        _ => 0,
    };
    let mut entry = [0; ENTRY];
    entry[..2].copy_from_slice(&group.rtype.0.to_le_bytes());
    entry[2] = stride;
    entry[3] = if weights.is_some() { WEIGHTED } else { 0 };
    entry[4..8].copy_from_slice(&(group.rdata.len() as u32).to_le_bytes());
    entry[8..12].copy_from_slice(&data_at.to_le_bytes());
    entry[12..16].copy_from_slice(&(records.len() as u32).to_le_bytes());
    entry[16..20].copy_from_slice(&(signatures.len() as u32).to_le_bytes());
    entry[20..22].copy_from_slice(&(group.signatures.len() as u16).to_le_bytes());
    entry[22..24].copy_from_slice(&(patches.len() as u16).to_le_bytes());
    entry[24..28].copy_from_slice(&(targets.len() as u32).to_le_bytes());
    entry
}

/// The records of an RRset, and where in them the writer of a message has something to do.
struct Compiled {
    records: Vec<u8>,
    patches: Vec<usize>,
    targets: Vec<u8>,
}

/// Compiles the records of an RRset, with their names looked at or not.
fn compile_records(group: &Group<'_>, source: &NodeSource<'_>, with_names: bool) -> Compiled {
    let octets = group.rdata.iter().map(|rdata| RECORD_HEAD + rdata.len()).sum();
    let (mut records, mut patches, mut targets) = (Vec::with_capacity(octets), Vec::new(), Vec::new());
    let written = source.owner.as_wire();
    let relative = &written[..written.len() - source.apex.as_wire().len()];
    // A SOA has two names, all others one for each record.
    let names = if group.rtype == RecordType::SOA { 2 } else { group.rdata.len() };
    let mut compressor = Compressor::new(group.rtype, relative, source.apex, names);
    for rdata in group.rdata {
        let head_at = records.len();
        put_head(&mut records, group.rtype, group.ttl, 0);
        let mut copied = 0;
        for (start, end) in names_in(group.rtype, rdata).filter(|_| with_names).into_iter().flatten() {
            records.extend_from_slice(&rdata[copied..start]);
            let (name, name_at) = (&rdata[start..end], records.len());
            let put = compressor.put(&mut records, name);
            patches.extend(put.pointer_at);
            if let Some(mut target) = target(group.rtype, rdata, name, name_at, source.apex) {
                let above = usize::from(target[10]);
                let labels = if above > put.plain { &name[..above] } else { &[] };
                if !labels.is_empty() {
                    target[11] = LABELS_FOLLOW;
                }
                targets.extend_from_slice(&target);
                targets.extend_from_slice(labels);
            }
            copied = end;
        }
        records.extend_from_slice(&rdata[copied..]);
        let length = (records.len() - head_at - RECORD_HEAD) as u16;
        records[head_at + 10..head_at + 12].copy_from_slice(&length.to_be_bytes());
    }
    Compiled { records, patches, targets }
}

fn put_head(records: &mut Vec<u8>, rtype: RecordType, ttl: Ttl, length: u16) {
    records.extend_from_slice(&QUESTION_POINTER.to_be_bytes());
    records.extend_from_slice(&rtype.0.to_be_bytes());
    records.extend_from_slice(&Class::IN.0.to_be_bytes());
    records.extend_from_slice(&ttl.seconds().to_be_bytes());
    records.extend_from_slice(&length.to_be_bytes());
}

/// The target entry of a name in RDATA, if its addresses are worth adding to an answer and in this zone.
fn target(rtype: RecordType, rdata: &[u8], name: &[u8], name_at: usize, apex: &Name) -> Option<[u8; TARGET]> {
    let mut entry = [0; TARGET];
    entry[8..10].copy_from_slice(&(name_at as u16).to_le_bytes());
    match rtype {
        // RFC 9460 §2.5.2: in ServiceMode "." is the owner; in AliasMode it says that there is no service.
        RecordType::SVCB | RecordType::HTTPS if name == [0] => {
            entry[11] = IS_OWNER;
            return (rdata[..2] != [0, 0]).then_some(entry);
        }
        RecordType::NS | RecordType::MX | RecordType::SRV | RecordType::SVCB | RecordType::HTTPS => {}
        _ => return None,
    }
    let qname = Qname::of(name);
    let apex = Qname::of(apex.as_wire());
    let above = qname.labels().checked_sub(apex.labels())?;
    if qname.suffix(above) != apex.octets() {
        return None;
    }
    entry[..8].copy_from_slice(&qname.hash(0).to_le_bytes());
    entry[10] = qname.start(above) as u8;
    entry[11] = IN_PLACE;
    Some(entry)
}

#[inline]
fn u32_at<const N: usize>(octets: &[u8; N], at: usize) -> u32 {
    u32::from_le_bytes([octets[at], octets[at + 1], octets[at + 2], octets[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> Name {
        text.parse().expect("a name of a test")
    }

    fn rrset(rtype: RecordType, rdata: &[&[u8]]) -> Rrset {
        let ttl = Ttl::new(300).expect("is small");
        Rrset { rtype, ttl, rdata: rdata.iter().map(|data| Box::from(*data)).collect() }
    }

    fn compiled(owner: &str, apex: &str, rrsets: &[Rrset]) -> Vec<u8> {
        compile(&NodeSource { owner: &name(owner), apex: &name(apex), rrsets, weights: &|_| None })
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
