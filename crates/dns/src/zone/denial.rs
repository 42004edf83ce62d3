//! Authenticated denial of a signed zone: finding the NSEC or NSEC3 record that matches or covers a name
//! (RFC 4034 §4, RFC 5155).
//!
//! A zone that another signer signed contains its chain. NSEC records are at their owners like other records; this module has
//! only their canonical order. NSEC3 records are at names of hashes, which do not exist as names (RFC 5155 §7.2.8). This module
//! stores them, including those outside the chain in use; they are not among the zone's nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use aws_lc_rs::digest;

use super::contents::Contents;
use super::leaf::TooLarge;
use super::node::Node;
use super::node::compile::{self, NodeSource};
use super::ordered_map::OrderedMap;
use super::qname::{NameHash, Qname};
use super::rrset::Rrset;
use crate::wire::name::NAME_OCTETS_MAX;
use crate::wire::{Name, RecordType};

/// The chain of proofs of a signed zone, and all of its NSEC3 records.
///
/// A change of an owner copies one path of an ordered map, and nothing if the owner stays in the chain with the same proof. The
/// neighbors that a signer links to it are changed owners too.
#[derive(Default)]
pub struct Denial {
    kind: ChainKind,
    /// The chain in use. By NSEC: the canonical key of each owner, with the hash and the labels of its node. By NSEC3: each hash,
    /// with its compiled owner.
    chain: OrderedMap,
    /// The compiled owners of NSEC3 records that do not belong to the chain in use, by canonical key.
    leftover: OrderedMap,
}

#[derive(Clone, Default)]
enum ChainKind {
    /// Nothing can be proved.
    #[default]
    None,
    Nsec,
    /// The data of the NSEC3PARAM record.
    Nsec3(Box<[u8]>),
}

/// Another chain may come into use by a change, or the one in use has no records left: [`Denial::build`] finds the chain.
pub(super) struct AnotherChain;

/// An NSEC3 hash: SHA-1 is the only defined algorithm (RFC 5155 §11).
pub type Nsec3Hash = [u8; 20];

/// The maximum number of iterations of a chain in use: every name of a proof costs that many rounds of SHA-1, and the client
/// selects the name. Of three names for each negative answer, one took 0.35 µs without iterations, 23 µs with 50 and 72 µs with
/// 150, in a build without optimization. RFC 9276 §3.1 recommends none. Validators stop at 50 or at 150, and treat the zone as
/// unsigned beyond; this limit is documented, as §3.3 requires.
pub const NSEC3_ITERATIONS_MAX: u16 = 50;

/// The blocks of SHA-1 in one hash at [`NSEC3_ITERATIONS_MAX`] with a salt of the usual length: the maximum for any salt.
const HASH_BLOCKS_MAX: u32 = NSEC3_ITERATIONS_MAX as u32 + 1;

/// Returns whether a hash with these iterations and this salt exceeds the limit of the server. All rounds but the first hash 20
/// octets and the salt, with at least 9 octets of padding in blocks of 64: with a salt of 255 octets each round takes five
/// blocks, not one.
pub(super) fn is_too_costly(iterations: u16, salt: &[u8]) -> bool {
    let blocks_per_round = (20 + salt.len() as u32 + 9).div_ceil(64);
    iterations > 0 && (u32::from(iterations) + 1) * blocks_per_round > HASH_BLOCKS_MAX
}

/// The position of an NSEC3 owner in one version of a zone.
#[derive(Debug, Clone)]
pub struct HashedKey {
    /// Whether the record is not of the chain that proves absences.
    is_leftover: bool,
    key: Box<[u8]>,
}

impl Denial {
    /// Returns the chain in `contents`, and NSEC3 records of other chains; `None` if there are neither.
    pub(super) fn build(contents: &Contents) -> Result<Option<Denial>, TooLarge> {
        let apex = contents.apex();
        let mut denial = Denial::default();
        for parameters in affordable(contents.get(apex, RecordType::NSEC3PARAM)) {
            // Canonical order is the order of the hashes: both compare the digits of base32hex.
            let owners = contents.owners().filter_map(|(owner, rrsets)| {
                let hash = chain_hash(owner, rrsets, apex, parameters)?;
                Some((hash.to_vec(), compile_nsec3(owner, apex, rrsets)))
            });
            denial.chain = OrderedMap::build(owners)?;
            if !denial.chain.is_empty() {
                denial.kind = ChainKind::Nsec3(parameters.into());
                break;
            }
        }
        if !denial.is_hashed_chain() && contents.get(apex, RecordType::NSEC).is_some() {
            let with_nsec = contents.owners().filter(|(_, rrsets)| has(rrsets, RecordType::NSEC));
            denial.kind = ChainKind::Nsec;
            denial.chain = OrderedMap::build(with_nsec.map(|(owner, _)| nsec_entry(owner, apex)))?;
        }
        let leftover = contents
            .owners()
            .filter(|(owner, rrsets)| is_hashed(rrsets) && denial.chain_hash(owner, rrsets, apex).is_none());
        let leftover = leftover.map(|(owner, rrsets)| (canonical_key(owner, apex), compile_nsec3(owner, apex, rrsets)));
        denial.leftover = OrderedMap::build(leftover)?;
        Ok((!denial.is_empty()).then_some(denial))
    }

    /// Returns what `old` becomes in a zone with this node at its apex when owners get other RRsets; of several changes of one owner,
    /// the last counts.
    pub(super) fn with_changes<'c>(
        old: Option<&Arc<Denial>>,
        (apex, apex_node): (&Name, Node<'_>),
        changes: impl Iterator<Item = (&'c Name, &'c [Rrset])>,
    ) -> Result<Option<Arc<Denial>>, AnotherChain> {
        let none = Denial::default();
        let (unchanged, old) = (old, old.map_or(&none, |old| &**old));
        let (mut chain, mut leftover) = (BTreeMap::new(), BTreeMap::new());
        let parameters = apex_node.get(RecordType::NSEC3PARAM).map(|records| records.to_rrset(&[], apex));
        let has_nsec = apex_node.get(RecordType::NSEC).is_some_and(|records| records.count() > 0);
        for (owner, rrsets) in changes {
            let new_parameters = || rrsets.iter().find(|rrset| rrset.rtype == RecordType::NSEC3PARAM);
            if owner == apex
                && (has(rrsets, RecordType::NSEC) != has_nsec
                    || usable(new_parameters()).ne(usable(parameters.as_ref())))
            {
                return Err(AnotherChain);
            }
            let hash = old.chain_hash(owner, rrsets, apex);
            match old.kind {
                ChainKind::None => {}
                ChainKind::Nsec => {
                    let (key, value) = nsec_entry(owner, apex);
                    chain.insert(key, has(rrsets, RecordType::NSEC).then_some(value));
                }
                ChainKind::Nsec3(_) => {
                    if let Some(label) = hash_below(owner, apex) {
                        chain.insert(label.to_vec(), hash.map(|_| compile_nsec3(owner, apex, rrsets)));
                    }
                }
            }
            let is_leftover = is_hashed(rrsets) && hash.is_none();
            let mut preferred = old.preferred(parameters.as_ref());
            if is_leftover && preferred.any(|parameters| chain_hash(owner, rrsets, apex, parameters).is_some()) {
                return Err(AnotherChain);
            }
            if is_leftover || !old.leftover.is_empty() {
                let node = is_leftover.then(|| compile_nsec3(owner, apex, rrsets));
                leftover.insert(canonical_key(owner, apex), node);
            }
        }
        chain.retain(|key, value| old.chain.get(key) != value.as_deref());
        leftover.retain(|key, value| old.leftover.get(key) != value.as_deref());
        if chain.is_empty() && leftover.is_empty() {
            return Ok(unchanged.cloned());
        }
        let edit = |map: &OrderedMap, changes: BTreeMap<_, _>| {
            // A build has the error for a zone that is too large.
            map.with_changes(changes.into_iter().collect()).map_err(|_: TooLarge| AnotherChain)
        };
        let denial = Denial {
            kind: old.kind.clone(),
            chain: edit(&old.chain, chain)?,
            leftover: edit(&old.leftover, leftover)?,
        };
        if denial.chain.is_empty() && !old.chain.is_empty() {
            return Err(AnotherChain);
        }
        Ok((!denial.is_empty()).then(|| Arc::new(denial)))
    }

    /// Returns the data of the NSEC3PARAM records whose chain would be in use if it had records.
    fn preferred<'p>(&self, rrset: Option<&'p Rrset>) -> impl Iterator<Item = &'p [u8]> {
        affordable(rrset).take_while(|parameters| match &self.kind {
            ChainKind::Nsec3(in_use) => *parameters != &**in_use,
            ChainKind::Nsec | ChainKind::None => true,
        })
    }

    /// Returns the hash of an owner of NSEC3 records of the chain in use.
    fn chain_hash(&self, owner: &Name, rrsets: &[Rrset], apex: &Name) -> Option<Nsec3Hash> {
        let ChainKind::Nsec3(parameters) = &self.kind else { return None };
        chain_hash(owner, rrsets, apex, parameters)
    }

    fn is_empty(&self) -> bool {
        matches!(self.kind, ChainKind::None) && self.leftover.is_empty()
    }

    /// Returns the RRsets without NSEC3 and the signatures over it.
    pub(super) fn without_nsec3(rrsets: &[Rrset]) -> Vec<Rrset> {
        rrsets.iter().filter_map(|rrset| nsec3_part(rrset, false)).collect()
    }

    /// Returns the nodes of NSEC3 owners, which are not among those of the zone, after this key; each with its key.
    pub fn hashed_nodes_after(&self, key: Option<&HashedKey>) -> impl Iterator<Item = (HashedKey, Node<'_>)> {
        let (chain, leftover) = match key {
            None => (None, None),
            Some(HashedKey { is_leftover: false, key }) => (Some(&key[..]), None),
            Some(HashedKey { is_leftover: true, key }) => (None, Some(&key[..])),
        };
        let in_chain = self.is_hashed_chain() && leftover.is_none();
        let chain = in_chain.then(|| self.chain.after(chain)).into_iter().flatten().map(|entry| (false, entry));
        let leftover = self.leftover.after(leftover).map(|entry| (true, entry));
        chain
            .chain(leftover)
            .map(|(is_leftover, (key, octets))| (HashedKey { is_leftover, key: key.into() }, Node::at(octets)))
    }

    /// Returns whether the chain is of NSEC3 records.
    pub fn is_hashed_chain(&self) -> bool {
        matches!(self.kind, ChainKind::Nsec3(_))
    }

    /// In a chain of NSEC records, the last owner that is not after the name with these labels above the apex (in lower case):
    /// the hash and the labels of its node, whose record matches the name or covers it (RFC 4034 §4.1.1).
    pub fn nsec(&self, relative: &[u8]) -> Option<(NameHash, &[u8])> {
        if !matches!(self.kind, ChainKind::Nsec) {
            return None;
        }
        let (_, value) = self.chain.at_or_before(CanonicalKey::of(relative).octets())?;
        let (hash, relative) = value.split_first_chunk()?;
        Some((NameHash::from_le_bytes(*hash), relative))
    }

    /// In a chain of NSEC3 records, the hash of a name in lower case, in wire form (RFC 5155 §5).
    pub fn nsec3_hash(&self, name: &[u8]) -> Option<Nsec3Hash> {
        let ChainKind::Nsec3(parameters) = &self.kind else { return None };
        Some(hash_name(name, salt(parameters), iterations(parameters)))
    }

    /// Returns the NSEC3 record that matches a hash, as a node; otherwise the covering record.
    pub fn nsec3(&self, hash: &Nsec3Hash) -> Option<Nsec3<'_>> {
        if !self.is_hashed_chain() {
            return None;
        }
        // Hashes before the first are covered by the last: the chain is a ring.
        let (found, node) = self.chain.at_or_before(hash).or_else(|| self.chain.at_or_before(&[u8::MAX; 20]))?;
        let node = Node::at(node);
        Some(if found == hash { Nsec3::Matching(node) } else { Nsec3::Covering(node) })
    }
}

pub(super) fn has(rrsets: &[Rrset], rtype: RecordType) -> bool {
    rrsets.iter().any(|rrset| rrset.rtype == rtype)
}

/// Returns the entry of an owner in a chain of NSEC records.
fn nsec_entry(owner: &Name, apex: &Name) -> (Vec<u8>, Vec<u8>) {
    let qname = Qname::of(owner.as_wire());
    let relative = &qname.octets()[..qname.length() - apex.as_wire().len()];
    (CanonicalKey::of(relative).octets().to_vec(), [&qname.hash(0).to_le_bytes(), relative].concat())
}

fn canonical_key(owner: &Name, apex: &Name) -> Vec<u8> {
    nsec_entry(owner, apex).0
}

/// Returns the hash of an owner of NSEC3 records of the chain that belongs to the NSEC3PARAM record `parameters` (RFC 5155 §4.2).
fn chain_hash(owner: &Name, rrsets: &[Rrset], apex: &Name, parameters: &[u8]) -> Option<Nsec3Hash> {
    let rrset = rrsets.iter().find(|rrset| rrset.rtype == RecordType::NSEC3)?;
    hash_below(owner, apex).filter(|_| rrset.rdata.iter().all(|rdata| is_of_chain(rdata, parameters)))
}

/// Returns the hash in the label of a name directly below the apex.
fn hash_below(owner: &Name, apex: &Name) -> Option<Nsec3Hash> {
    if owner.label_count() == apex.label_count() + 1 { hash_in(owner) } else { None }
}

/// Returns the hash in a name's first label.
pub(super) fn hash_in(owner: &Name) -> Option<Nsec3Hash> {
    let label = owner.labels().next()?.to_ascii_uppercase();
    data_encoding::BASE32HEX_NOPAD.decode(&label).ok().and_then(|hash| Nsec3Hash::try_from(hash).ok())
}

/// Returns whether these RRsets make their owner the name of a hash (RFC 5155 §7.2.8).
pub(super) fn is_hashed(rrsets: &[Rrset]) -> bool {
    has(rrsets, RecordType::NSEC3)
}

/// Returns the NSEC3 records among these, with their signatures, as a node.
fn compile_nsec3(owner: &Name, apex: &Name, rrsets: &[Rrset]) -> Vec<u8> {
    let only: Vec<Rrset> = rrsets.iter().filter_map(|rrset| nsec3_part(rrset, true)).collect();
    compile::compile(&NodeSource { owner, apex, rrsets: &only, weights: &|_| None })
}

/// Returns the data of the apex's usable NSEC3PARAM records: SHA-1, and no flags, because records with flags "MUST be ignored"
/// (RFC 5155 §4.1.2). The chain of NSEC3 records that they announce can be incomplete.
pub(super) fn parameters(contents: &Contents) -> impl Iterator<Item = &[u8]> {
    usable(contents.get(contents.apex(), RecordType::NSEC3PARAM))
}

fn usable(rrset: Option<&Rrset>) -> impl Iterator<Item = &[u8]> {
    let data = rrset.into_iter().flat_map(|rrset| &rrset.rdata).map(|data| &data[..]);
    data.filter(|data| matches!(data, [1, 0, _, _, length, salt @ ..] if usize::from(*length) == salt.len()))
}

/// Returns the usable ones among these whose chain can be in use.
fn affordable(rrset: Option<&Rrset>) -> impl Iterator<Item = &[u8]> {
    usable(rrset).filter(|parameters| !is_too_costly(iterations(parameters), salt(parameters)))
}

/// Returns the number of additional iterations in the data of an NSEC3PARAM.
pub(super) fn iterations(parameters: &[u8]) -> u16 {
    u16::from_be_bytes([parameters[2], parameters[3]])
}

/// Returns the salt in the data of an NSEC3PARAM.
fn salt(parameters: &[u8]) -> &[u8] {
    &parameters[5..]
}

/// Returns whether NSEC3 data belong to the chain of these data of an NSEC3PARAM: by SHA-1, with the same iterations and salt.
/// Flags are each record's own (RFC 5155 §4.1.2).
pub(super) fn is_of_chain(nsec3: &[u8], parameters: &[u8]) -> bool {
    nsec3.first() == Some(&1) && nsec3.get(2..).is_some_and(|rest| rest.starts_with(&parameters[2..]))
}

/// Returns the NSEC3 hash of a name in lower case, in wire form (RFC 5155 §5).
pub(super) fn hash_name(name: &[u8], salt: &[u8], iterations: u16) -> Nsec3Hash {
    let mut hash = Nsec3Hash::default();
    for iteration in 0..=iterations {
        let mut context = digest::Context::new(&digest::SHA1_FOR_LEGACY_USE_ONLY);
        context.update(if iteration == 0 { name } else { &hash });
        context.update(salt);
        hash.copy_from_slice(context.finish().as_ref());
    }
    hash
}

/// An NSEC3 record found for a hash.
pub enum Nsec3<'z> {
    /// The owner is the hash.
    Matching(Node<'z>),
    /// The hash is between its owner and the next one.
    Covering(Node<'z>),
}

/// Returns the part of an RRset that is NSEC3 or signs it, or the other part; `None` if there is none.
fn nsec3_part(rrset: &Rrset, nsec3: bool) -> Option<Rrset> {
    let belongs = |rdata: &[u8]| match rrset.rtype {
        RecordType::RRSIG => rdata.starts_with(&RecordType::NSEC3.0.to_be_bytes()),
        rtype => rtype == RecordType::NSEC3,
    };
    let rdata: Vec<_> = rrset.rdata.iter().filter(|rdata| belongs(rdata) == nsec3).cloned().collect();
    (!rdata.is_empty()).then_some(Rrset { rtype: rrset.rtype, ttl: rrset.ttl, rdata })
}

/// A name below the apex as octets whose plain order is the canonical order of names (RFC 4034 §6.1): the labels from the apex
/// down, each closed by a zero octet; zeros and ones in labels are written as two octets that sort after the closing zero and
/// before all other octets.
struct CanonicalKey {
    octets: [u8; 2 * NAME_OCTETS_MAX + 2],
    length: usize,
}

impl CanonicalKey {
    fn of(relative: &[u8]) -> Self {
        let mut key = CanonicalKey { octets: [0; 2 * NAME_OCTETS_MAX + 2], length: 0 };
        let mut starts = [0u8; NAME_OCTETS_MAX];
        let (mut at, mut labels) = (0, 0);
        while at < relative.len() {
            starts[labels] = at as u8;
            labels += 1;
            at += usize::from(relative[at]) + 1;
        }
        for start in starts[..labels].iter().rev() {
            let start = usize::from(*start);
            for octet in &relative[start + 1..start + 1 + usize::from(relative[start])] {
                match octet {
                    0 | 1 => {
                        key.push(1);
                        key.push(octet + 1);
                    }
                    _ => key.push(*octet),
                }
            }
            key.push(0);
        }
        key
    }

    fn push(&mut self, octet: u8) {
        self.octets[self.length] = octet;
        self.length += 1;
    }

    fn octets(&self) -> &[u8] {
        &self.octets[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::{OwnerChange, Ttl, Zone};

    #[test]
    fn keys_sort_as_names() {
        let apex: Name = "example.".parse().expect("a name");
        let mut names: Vec<Name> = [
            "example.",
            "a.example.",
            "yljkjljk.a.example.",
            "Z.a.example.",
            "zABC.a.EXAMPLE.",
            "z.example.",
            r"\001.z.example.",
            "*.z.example.",
            r"\200.z.example.",
            r"a\000.example.",
            r"a\000b.example.",
            r"a\001.example.",
            r"a\002.example.",
            "b.a.example.",
            r"\000.a.example.",
            "ab.example.",
        ]
        .iter()
        .map(|text| text.parse().expect("a name"))
        .collect();
        let key = |name: &Name| {
            let folded = name.to_lowercase();
            let wire = folded.as_wire();
            CanonicalKey::of(&wire[..wire.len() - apex.as_wire().len()]).octets().to_vec()
        };
        names.sort();
        assert!(names.is_sorted_by_key(key));
    }

    /// The hash of RFC 5155 appendix A: salt `aabbccdd`, 12 more iterations.
    #[test]
    fn nsec3_hash_of_the_rfc() {
        let denial =
            Denial { kind: ChainKind::Nsec3([1, 0, 0, 12, 4, 0xaa, 0xbb, 0xcc, 0xdd].into()), ..Denial::default() };
        for (name, hash) in
            [("example.", "0p9mhaveqvm6t7vbl5lop2u3t2rp3tom"), ("x.y.w.example.", "2vptu5timamqttgl4luu9kg21e0aor3s")]
        {
            let name: Name = name.parse().expect("a name");
            let found = denial.nsec3_hash(name.as_wire()).expect("is a chain of NSEC3");
            assert_eq!(data_encoding::BASE32HEX_NOPAD.encode(&found).to_ascii_lowercase(), hash);
        }
    }

    #[test]
    fn a_change_copies_its_part_of_the_chain() {
        let apex: Name = "z.test.".parse().expect("a name");
        let rrset = |rtype, rdata: &[u8]| Rrset { rtype, ttl: Ttl::MAX, rdata: vec![rdata.into()] };
        // The name of a hash.
        let owner = |index: u32| -> Name { format!("{index:032}.z.test.").parse().expect("a name") };
        let nsec = rrset(RecordType::NSEC, b"\0\0\x01\x40");
        let nsec3 = rrset(RecordType::NSEC3, b"\x01\0\0\0\0\x01\x07\0\x01\x40");
        let parameters = rrset(RecordType::NSEC3PARAM, b"\x01\0\0\0\0");
        for (at_apex, proof) in [(nsec.clone(), nsec), (parameters, nsec3)] {
            let at_apex =
                |serial: u8| vec![rrset(RecordType::SOA, &[&[0; 2], &[serial; 20][..]].concat()), at_apex.clone()];
            let owners = (0..1_000).map(|index| (owner(index), vec![proof.clone()]));
            let mut contents = Contents::new(apex.clone());
            for (owner, rrsets) in owners.chain([(apex.clone(), at_apex(1))]) {
                rrsets.into_iter().for_each(|rrset| contents.set(owner.clone(), rrset).expect("is in the zone"));
            }
            let before = Zone::build(contents).expect("has a SOA");
            let change = |owner, rrsets| OwnerChange { owner, rrsets, weights: vec![] };
            let unlinked = before.with_changes(&[change(owner(500), vec![])]).expect("has a SOA");
            let renewed = unlinked.with_changes(&[change(apex.clone(), at_apex(2))]).expect("has a SOA");
            let denials = [before, unlinked, renewed].map(|zone| zone.denial.expect("a chain"));
            let places = |index: u32| {
                let key = match proof.rtype {
                    RecordType::NSEC => canonical_key(&owner(index), &apex),
                    _ => hash_in(&owner(index)).expect("a hash").to_vec(),
                };
                [&denials[0], &denials[1]].map(|denial| denial.chain.get(&key).map(<[u8]>::as_ptr))
            };
            assert!(matches!(places(500), [Some(_), None]), "{}", proof.rtype);
            let shared = (0..1_000).map(places).filter(|[before, after]| before == after).count();
            assert!((1_000 - 64..1_000).contains(&shared), "{}: {shared}", proof.rtype);
            assert!(Arc::ptr_eq(&denials[1], &denials[2]), "{}", proof.rtype);
        }
    }
}
