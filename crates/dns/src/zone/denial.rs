//! Authenticated denial of a signed zone: finding the NSEC or NSEC3 record that matches or covers a name
//! (RFC 4034 §4, RFC 5155).
//!
//! A zone that another signer signed contains its chain. NSEC records are at their owners like other records; this module has
//! only their canonical order. NSEC3 records are at names of hashes, which do not exist as names (RFC 5155 §7.2.8). This module
//! stores them, including those outside the chain in use; they are not among the zone's nodes.

use aws_lc_rs::digest;

use super::contents::Contents;
use super::node::Node;
use super::node::compile::{self, NodeSource};
use super::qname::{NameHash, Qname};
use super::rrset::Rrset;
use crate::wire::name::NAME_OCTETS_MAX;
use crate::wire::{Name, RecordType};

/// The chain of proofs of a signed zone, and all of its NSEC3 records.
pub struct Denial {
    chain: Chain,
    /// Compiled owners of NSEC3 records that do not belong to the chain in use.
    leftover: Vec<Vec<u8>>,
}

enum Chain {
    /// Nothing can be proved.
    None,
    /// In canonical order.
    Nsec(Vec<NsecOwner>),
    /// In the order of their hashes.
    Nsec3 { salt: Box<[u8]>, iterations: u16, owners: Vec<Nsec3Owner> },
}

struct NsecOwner {
    key: Box<[u8]>,
    hash: NameHash,
    relative: Box<[u8]>,
}

struct Nsec3Owner {
    hash: Nsec3Hash,
    node: Vec<u8>,
}

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

impl Denial {
    /// Returns the chain in `contents`, and NSEC3 records of other chains; `None` if there are neither.
    pub(super) fn build(contents: &Contents) -> Option<Denial> {
        let chain = Chain::of(contents);
        let has_nsec3 = |(_, rrsets): &(&Name, &[Rrset])| is_hashed(rrsets);
        let leftover = contents.owners().filter(has_nsec3).filter(|(owner, _)| !chain.has_nsec3_of(owner));
        let leftover: Vec<_> = leftover.map(|(owner, rrsets)| compile_nsec3(owner, contents.apex(), rrsets)).collect();
        let is_any = !matches!(chain, Chain::None) || !leftover.is_empty();
        is_any.then_some(Denial { chain, leftover })
    }

    /// Returns the RRsets without NSEC3 and the signatures over it.
    pub(super) fn without_nsec3(rrsets: &[Rrset]) -> Vec<Rrset> {
        rrsets.iter().filter_map(|rrset| nsec3_part(rrset, false)).collect()
    }

    /// Returns the owners of NSEC3 records with these records.
    pub(super) fn hashed_owners(&self, apex: &Name) -> Vec<(Name, Vec<Rrset>)> {
        let of_chain = match &self.chain {
            Chain::Nsec3 { owners, .. } => &owners[..],
            Chain::Nsec(_) | Chain::None => &[],
        };
        let with_name = |octets: &Vec<u8>| {
            let node = Node::at(octets);
            let wire = [node.relative_as_written(), apex.as_wire()].concat();
            let name = Name::from_wire(&wire).expect("it was a name when it was compiled");
            (name, node.to_rrsets(apex))
        };
        of_chain.iter().map(|owner| &owner.node).chain(&self.leftover).map(with_name).collect()
    }

    /// Returns whether the chain is of NSEC3 records.
    pub fn is_hashed_chain(&self) -> bool {
        matches!(self.chain, Chain::Nsec3 { .. })
    }

    /// In a chain of NSEC records, the last owner that is not after the name with these labels above the apex (in lower case):
    /// the hash and the labels of its node, whose record matches the name or covers it (RFC 4034 §4.1.1).
    pub fn nsec(&self, relative: &[u8]) -> Option<(NameHash, &[u8])> {
        let Chain::Nsec(owners) = &self.chain else { return None };
        let key = CanonicalKey::of(relative);
        let after = owners.partition_point(|owner| *owner.key <= *key.octets());
        let owner = &owners[after.checked_sub(1)?];
        Some((owner.hash, &owner.relative))
    }

    /// In a chain of NSEC3 records, the hash of a name in lower case, in wire form (RFC 5155 §5).
    pub fn nsec3_hash(&self, name: &[u8]) -> Option<Nsec3Hash> {
        let Chain::Nsec3 { salt, iterations, .. } = &self.chain else { return None };
        Some(hash_name(name, salt, *iterations))
    }

    /// Returns the NSEC3 record that matches a hash, as a node; otherwise the covering record.
    pub fn nsec3(&self, hash: &Nsec3Hash) -> Option<Nsec3<'_>> {
        let Chain::Nsec3 { owners, .. } = &self.chain else { return None };
        match owners.binary_search_by(|owner| owner.hash.cmp(hash)) {
            Ok(at) => Some(Nsec3::Matching(Node::at(&owners[at].node))),
            // Hashes before the first are covered by the last: the chain is a ring.
            Err(at) => Some(Nsec3::Covering(Node::at(&owners[at.checked_sub(1).unwrap_or(owners.len() - 1)].node))),
        }
    }
}

impl Chain {
    /// Returns the chain in `contents`.
    fn of(contents: &Contents) -> Chain {
        if let Some(chain) = parameters(contents).find_map(|parameters| Self::nsec3(contents, parameters)) {
            return chain;
        }
        if contents.get(contents.apex(), RecordType::NSEC).is_none() {
            return Chain::None;
        }
        let apex_octets = contents.apex().as_wire().len();
        let with_nsec =
            contents.owners().filter(|(_, rrsets)| rrsets.iter().any(|rrset| rrset.rtype == RecordType::NSEC));
        let mut owners: Vec<NsecOwner> = with_nsec
            .map(|(owner, _)| {
                let qname = Qname::of(owner.as_wire());
                let relative = &qname.octets()[..qname.length() - apex_octets];
                NsecOwner {
                    key: CanonicalKey::of(relative).octets().into(),
                    hash: qname.hash(0),
                    relative: relative.into(),
                }
            })
            .collect();
        owners.sort_by(|a, b| a.key.cmp(&b.key));
        Chain::Nsec(owners)
    }

    /// Returns the chain of NSEC3 records that belongs to the NSEC3PARAM record `parameters` (RFC 5155 §4.2).
    fn nsec3(contents: &Contents, parameters: &[u8]) -> Option<Chain> {
        let (_, salt) = parameters.split_first_chunk::<5>()?;
        let iterations = iterations(parameters);
        if is_too_costly(iterations, salt) {
            return None;
        }
        let mut owners = Vec::new();
        for (owner, rrsets) in contents.owners() {
            let Some(rrset) = rrsets.iter().find(|rrset| rrset.rtype == RecordType::NSEC3) else { continue };
            let Some(hash) = hash_in(owner) else { continue };
            if owner.label_count() != contents.apex().label_count() + 1
                || !rrset.rdata.iter().all(|rdata| is_of_chain(rdata, parameters))
            {
                continue;
            }
            owners.push(Nsec3Owner { hash, node: compile_nsec3(owner, contents.apex(), rrsets) });
        }
        owners.sort_by_key(|owner| owner.hash);
        (!owners.is_empty()).then(|| Chain::Nsec3 { salt: salt.into(), iterations, owners })
    }

    /// Returns whether the NSEC3 records of `owner` are in this chain.
    fn has_nsec3_of(&self, owner: &Name) -> bool {
        let Chain::Nsec3 { owners, .. } = self else { return false };
        let hash = hash_in(owner).and_then(|hash| owners.binary_search_by(|other| other.hash.cmp(&hash)).ok());
        hash.is_some_and(|at| Qname::of(owner.as_wire()).hash(0) == Node::at(&owners[at].node).hash())
    }
}

/// Returns the hash in a name's first label.
pub(super) fn hash_in(owner: &Name) -> Option<Nsec3Hash> {
    let label = owner.labels().next()?.to_ascii_uppercase();
    data_encoding::BASE32HEX_NOPAD.decode(&label).ok().and_then(|hash| Nsec3Hash::try_from(hash).ok())
}

/// Returns whether these RRsets make their owner the name of a hash (RFC 5155 §7.2.8).
pub(super) fn is_hashed(rrsets: &[Rrset]) -> bool {
    rrsets.iter().any(|rrset| rrset.rtype == RecordType::NSEC3)
}

/// Returns the NSEC3 records among these, with their signatures, as a node.
fn compile_nsec3(owner: &Name, apex: &Name, rrsets: &[Rrset]) -> Vec<u8> {
    let only: Vec<Rrset> = rrsets.iter().filter_map(|rrset| nsec3_part(rrset, true)).collect();
    compile::compile(&NodeSource { owner, apex, rrsets: &only, weights: &|_| None })
}

/// Returns the data of the apex's usable NSEC3PARAM records: SHA-1, and no flags, because records with flags "MUST be ignored"
/// (RFC 5155 §4.1.2). The chain of NSEC3 records that they announce can be incomplete.
pub(super) fn parameters(contents: &Contents) -> impl Iterator<Item = &[u8]> {
    let rrset = contents.get(contents.apex(), RecordType::NSEC3PARAM);
    let data = rrset.into_iter().flat_map(|rrset| &rrset.rdata).map(|data| &data[..]);
    data.filter(|data| matches!(data, [1, 0, _, _, length, salt @ ..] if usize::from(*length) == salt.len()))
}

/// Returns the number of additional iterations in the data of an NSEC3PARAM.
pub(super) fn iterations(parameters: &[u8]) -> u16 {
    u16::from_be_bytes([parameters[2], parameters[3]])
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
        let denial = Denial {
            chain: Chain::Nsec3 { salt: [0xaa, 0xbb, 0xcc, 0xdd].into(), iterations: 12, owners: Vec::new() },
            leftover: Vec::new(),
        };
        for (name, hash) in
            [("example.", "0p9mhaveqvm6t7vbl5lop2u3t2rp3tom"), ("x.y.w.example.", "2vptu5timamqttgl4luu9kg21e0aor3s")]
        {
            let name: Name = name.parse().expect("a name");
            let found = denial.nsec3_hash(name.as_wire()).expect("is a chain of NSEC3");
            assert_eq!(data_encoding::BASE32HEX_NOPAD.encode(&found).to_ascii_lowercase(), hash);
        }
    }
}
