//! Compiles the RRsets of an owner into a node.

use super::{
    ENTRY, HEAD, IN_PLACE, IS_OWNER, LABELS_FOLLOW, Node, QUESTION_POINTER, Records, TARGET, WEIGHTED, flag, u32_at,
};
use crate::wire::name::NAME_OCTETS_MAX;
use crate::wire::{Class, Name, RecordType};
use crate::zone::compression::{Compressor, RECORD_HEAD, names_in};
use crate::zone::qname::{NameHash, Qname};
use crate::zone::rrset::{Rdata, Rrset, Ttl};

/// The input for a node.
pub(crate) struct NodeSource<'a> {
    /// The owner.
    pub owner: &'a Name,
    /// The zone's apex.
    pub apex: &'a Name,
    /// The RRsets; none for an empty non-terminal.
    pub rrsets: &'a [Rrset],
    /// Weights of RRsets that have them.
    pub weights: &'a dyn Fn(RecordType) -> Option<Vec<u16>>,
}

/// Compiles a node, with no children and only the flags that follow from its own records.
pub(crate) fn compile(source: &NodeSource<'_>) -> Vec<u8> {
    let mut groups = group(source.rrsets);
    groups.sort_by_key(|group| (!matches!(group.rtype, RecordType::A | RecordType::AAAA), group.rtype));
    let written = &source.owner.as_wire()[..source.owner.as_wire().len() - source.apex.as_wire().len()];
    let qname = Qname::of(source.owner.as_wire());
    let folded = &qname.octets()[..written.len()];

    let has = |rtype| groups.iter().any(|group| group.rtype == rtype && !group.rdata.is_empty());
    let mut flags = 0;
    // NS and DNAME at a wildcard neither delegate nor redirect (RFC 4592 §4.2, §4.4): checks reject them, and if they are served,
    // they are plain data.
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

    // Enough for all except patches and targets: the build of a large zone has a million of these at the same time.
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
pub(crate) fn set_children(node: &mut [u8], children: u32) {
    node[12..16].copy_from_slice(&children.to_le_bytes());
}

/// Sets or clears bits of a compiled node's flags.
pub(crate) fn set_flags(node: &mut [u8], flags: u8, on: bool) {
    if on {
        node[17] |= flags;
    } else {
        node[17] &= !flags;
    }
}

/// Replaces the hashes in a node of the zone `apex`, which another process compiled, with those of this process.
pub(crate) fn rehash(node: &mut [u8], apex: &Name) {
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

/// Returns the hash of the name of these labels below `apex`.
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

/// Assigns RRSIGs to the RRsets that they cover (RFC 4034 §3.1.1: the type is their first field).
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
    // An RRset that does not fit in a message is never sent unchanged, and its patches and targets do not fit in their 16 bits.
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

/// The records of an RRset, and the positions that the writer of a message changes.
struct Compiled {
    records: Vec<u8>,
    patches: Vec<usize>,
    targets: Vec<u8>,
}

/// Compiles the records of an RRset, with or without parsing their names.
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

/// Returns the target entry of a name in RDATA, if its addresses are worth adding to an answer and in this zone.
fn target(rtype: RecordType, rdata: &[u8], name: &[u8], name_at: usize, apex: &Name) -> Option<[u8; TARGET]> {
    let mut entry = [0; TARGET];
    entry[8..10].copy_from_slice(&(name_at as u16).to_le_bytes());
    match rtype {
        // RFC 9460 §2.5.2: in ServiceMode "." is the owner; in AliasMode it means that there is no service.
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
