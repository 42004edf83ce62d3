//! Checks of a signed zone, for problems that validators would report (RFC 4034, RFC 4035 §2, RFC 5155 §7.1).
//!
//! These checks need no cryptography, which is in [`super::verify`]. They find the problems of a signed file that is edited,
//! truncated, or not re-signed: RRsets without a signature; signatures that are expired, have no key in the zone, or cover
//! nothing; and proofs that omit a name or a type. None of these is an error, because the zone is served unchanged, except a
//! chain with too many iterations.

use std::collections::{BTreeMap, BTreeSet};

use super::report::{Reporter, found};
use super::{CheckContext, Code, has, targets};
use crate::wire::rdata::types_in;
use crate::wire::{Name, RecordType};
use crate::zone::Contents;
use crate::zone::denial::{
    NSEC3_ITERATIONS_MAX, Nsec3Hash, hash_in, hash_name, is_of_chain, is_too_costly, iterations, parameters,
};
use crate::zone::rrset::Rrset;
use crate::zone::serial::Serial;

/// The length in octets of an RRSIG's data in front of the signer's name.
pub(super) const RRSIG_FIXED_OCTETS: usize = 18;

/// Returns the key tags and the algorithms of the zone's keys.
pub(super) fn keys(dnskeys: Option<&Rrset>) -> Vec<(u16, u8)> {
    zone_keys(dnskeys).map(|data| (key_tag(data), data[3])).collect()
}

/// Returns the data of DNSKEY records that may sign zones: RFC 4034 §2.1.1, §2.1.2 require the flag Zone Key and protocol 3.
pub(super) fn zone_keys(dnskeys: Option<&Rrset>) -> impl Iterator<Item = &[u8]> {
    let data = dnskeys.into_iter().flat_map(|rrset| &rrset.rdata).map(|data| &data[..]);
    data.filter(|data| matches!(data, [flags, _, 3, _, ..] if flags & 1 == 1))
}

/// RFC 4034 appendix B.
pub(super) fn key_tag(dnskey: &[u8]) -> u16 {
    // Algorithm 1 has another formula; validators no longer support it (RFC 8624 §3.1).
    let sum = dnskey.iter().enumerate().fold(0u32, |sum, (at, octet)| {
        sum.wrapping_add(if at % 2 == 0 { u32::from(*octet) << 8 } else { u32::from(*octet) })
    });
    (sum.wrapping_add(sum >> 16 & 0xffff) & 0xffff) as u16
}

/// The checked fields of one signature.
pub(super) struct Signature {
    pub(super) covered: RecordType,
    pub(super) algorithm: u8,
    pub(super) labels: u8,
    pub(super) original_ttl: u32,
    expiration: Serial,
    inception: Serial,
    pub(super) key_tag: u16,
}

impl Signature {
    pub(super) fn read(data: &[u8]) -> Option<Self> {
        let &[c0, c1, algorithm, labels, t0, t1, t2, t3, e0, e1, e2, e3, i0, i1, i2, i3, k0, k1] =
            data.first_chunk::<RRSIG_FIXED_OCTETS>()?;
        Some(Signature {
            covered: RecordType(u16::from_be_bytes([c0, c1])),
            algorithm,
            labels,
            original_ttl: u32::from_be_bytes([t0, t1, t2, t3]),
            expiration: Serial(u32::from_be_bytes([e0, e1, e2, e3])),
            inception: Serial(u32::from_be_bytes([i0, i1, i2, i3])),
            key_tag: u16::from_be_bytes([k0, k1]),
        })
    }
}

/// The signatures of one owner that is not below a cut.
pub(super) fn check_owner(view: &CheckContext<'_>, owner: &Name, rrsets: &[Rrset], report: &mut Reporter<'_>) {
    let signatures = rrsets.iter().find(|rrset| rrset.rtype == RecordType::RRSIG);
    let read: Vec<Signature> =
        signatures.into_iter().flat_map(|rrset| &rrset.rdata).filter_map(|data| Signature::read(data)).collect();
    for (index, signature) in read.iter().enumerate() {
        let covered = signature.covered;
        let first = !read[..index].iter().any(|other| other.covered == covered);
        if !has(rrsets, covered) && first {
            found!(report: Code::RrsigNothing, owner, RecordType::RRSIG;
                "{owner} has an RRSIG over {covered}, but no {covered}");
        }
        if view.signed {
            check_signature(view, owner, rrsets, signature, report);
        }
    }
    if let Some(signer) = signatures.and_then(|rrset| targets(rrset).find(|signer| signer != view.zone.apex())) {
        let apex = view.zone.apex();
        found!(report: Code::RrsigSigner, owner, RecordType::RRSIG;
            "an RRSIG of {owner} has the signer {signer}, expected {apex}");
    }
    if !view.signed {
        if owner == view.zone.apex() && read.iter().any(|signature| signature.covered == RecordType::SOA) {
            found!(report: Code::KeysMissing, owner, RecordType::RRSIG;
                "{owner} is signed, but has no DNSKEY: validators treat the whole zone as bogus");
        }
        return;
    }
    let cut = view.is_cut(owner, rrsets);
    for rrset in rrsets {
        let must = match rrset.rtype {
            RecordType::RRSIG => false,
            RecordType::DS | RecordType::NSEC => true,
            _ => !cut,
        };
        if must && !read.iter().any(|signature| signature.covered == rrset.rtype) {
            found!(report: Code::Unsigned, owner, rrset.rtype;
                "the zone has keys, but {owner} {} has no RRSIG", rrset.rtype);
        }
    }
    if owner == view.zone.apex() && !has(rrsets, RecordType::NSEC) && parameters(view.zone).next().is_none() {
        found!(report: Code::NoDenial, owner, RecordType::DNSKEY;
            "the zone has keys, but neither NSEC nor an NSEC3PARAM with algorithm 1 and without flags");
    }
}

fn check_signature(
    view: &CheckContext<'_>,
    owner: &Name,
    rrsets: &[Rrset],
    signature: &Signature,
    report: &mut Reporter<'_>,
) {
    let Signature { covered, algorithm, labels, original_ttl, expiration, inception, key_tag } = *signature;
    if !view.keys.contains(&(key_tag, algorithm)) {
        found!(report: Code::RrsigKey, owner, RecordType::RRSIG;
            "the RRSIG over {owner} {covered} refers to key {key_tag} of algorithm {algorithm}, which is not in the \
             zone");
    }
    // RFC 4034 §3.1.3: the wildcard's label and the root's do not count.
    let expected = owner.label_count() - usize::from(owner.is_wildcard());
    if usize::from(labels) != expected {
        found!(report: Code::RrsigLabels, owner, RecordType::RRSIG;
            "the RRSIG over {owner} {covered} has the label count {labels}, expected {expected}");
    }
    let ttl = rrsets.iter().find(|rrset| rrset.rtype == covered).map(|rrset| rrset.ttl.seconds());
    if let Some(ttl) = ttl.filter(|ttl| *ttl > original_ttl) {
        found!(report: Code::RrsigTtl, owner, RecordType::RRSIG;
            "{owner} {covered} has the TTL {ttl}, but was signed with {original_ttl}: validators reduce it (RFC 4035 \
             §5.3.3)");
    }
    let Some(now) = view.now else { return };
    if now.is_after(expiration) {
        found!(report: Code::RrsigExpired, owner, RecordType::RRSIG;
            "the RRSIG over {owner} {covered} has expired; sign the zone again");
    } else if inception.is_after(now) {
        found!(report: Code::RrsigEarly, owner, RecordType::RRSIG;
            "the RRSIG over {owner} {covered} is not valid yet; check the clock");
    }
}

/// A name that the proofs must contain, and the types that they must list for it.
struct Authority<'a> {
    owner: &'a Name,
    rrsets: &'a [Rrset],
    cut: bool,
}

impl Authority<'_> {
    /// RFC 4035 §2.3, RFC 5155 §7.1: at a cut, only the types for which the parent is authoritative.
    fn types(&self) -> BTreeSet<RecordType> {
        let types = self.rrsets.iter().map(|rrset| rrset.rtype);
        let at_cut = [RecordType::NS, RecordType::DS, RecordType::NSEC, RecordType::RRSIG];
        types.filter(|rtype| !self.cut || at_cut.contains(rtype)).collect()
    }
}

/// Checks that a signed zone with chains of proofs has a usable one.
pub(super) fn check_iterations(view: &CheckContext<'_>, report: &mut Reporter<'_>) {
    if let Some((fewest, salt)) = too_many_iterations(view.zone) {
        found!(report: Code::Nsec3IterationsMax, view.zone.apex(), RecordType::NSEC3PARAM;
            "NSEC3 with {fewest} additional iterations and a salt of {salt} octets: each proof would cost too much; at \
             most {NSEC3_ITERATIONS_MAX} iterations are supported, fewer with a salt of more than 35 octets; sign the \
             zone with 0 iterations and without salt (RFC 9276 §3.1)");
    }
}

/// Returns the fewest iterations of the zone's chains of NSEC3 records, and the length of the salt, if all are too costly and
/// there is no NSEC. One usable chain is sufficient, because a zone can have two during a change.
fn too_many_iterations(zone: &Contents) -> Option<(u16, usize)> {
    if zone.get(zone.apex(), RecordType::NSEC).is_some() {
        return None;
    }
    let mut fewest = None;
    for parameters in parameters(zone) {
        let (iterations, salt) = (iterations(parameters), &parameters[5..]);
        if !is_too_costly(iterations, salt) {
            return None;
        }
        let chain = (iterations, salt.len());
        fewest = Some(fewest.map_or(chain, |other: (u16, usize)| other.min(chain)));
    }
    fewest
}

/// The chain of NSEC or NSEC3 records of a signed zone.
pub(super) fn check_chain(view: &CheckContext<'_>, report: &mut Reporter<'_>) {
    let zone = view.zone;
    if too_many_iterations(zone).is_some() {
        return;
    }
    let mut names = Vec::new();
    let mut above: Option<&Name> = None;
    for (owner, rrsets) in zone.owners() {
        if above.is_some_and(|above| owner.is_below(above)) || has(rrsets, RecordType::NSEC3) {
            continue;
        }
        let cut = view.is_cut(owner, rrsets);
        above = (cut || has(rrsets, RecordType::DNAME)).then_some(owner);
        names.push(Authority { owner, rrsets, cut });
    }
    let chains = parameters(zone).filter(|parameters| check_nsec3(view, &names, parameters, report)).count();
    if chains == 0 && zone.get(zone.apex(), RecordType::NSEC).is_some() {
        check_nsec(&names, report);
    }
}

fn check_nsec(names: &[Authority<'_>], report: &mut Reporter<'_>) {
    for (at, name) in names.iter().enumerate() {
        let owner = name.owner;
        let nsec = name.rrsets.iter().find(|rrset| rrset.rtype == RecordType::NSEC);
        let Some((next, bitmap)) = nsec.and_then(|rrset| Name::split_from(rrset.rdata.first()?).ok()) else {
            found!(report: Code::NsecMissing, owner, RecordType::NSEC;
                "{owner} has no NSEC: validators cannot verify which types it has");
            continue;
        };
        let expected = names[(at + 1) % names.len()].owner;
        if next != *expected {
            found!(report: Code::NsecNext, owner, RecordType::NSEC;
                "the NSEC of {owner} points to {next}, but the next name is {expected}");
        }
        if let Some(difference) = difference(bitmap, &name.types()) {
            found!(report: Code::NsecTypes, owner, RecordType::NSEC; "the NSEC of {owner} {difference}");
        }
    }
}

/// Checks the chain of NSEC3 records with these parameters; returns whether proofs can use it.
fn check_nsec3(view: &CheckContext<'_>, names: &[Authority<'_>], parameters: &[u8], report: &mut Reporter<'_>) -> bool {
    let zone = view.zone;
    let Some((_, salt)) = parameters.split_first_chunk::<5>() else { return false };
    let iterations = iterations(parameters);
    if iterations > 0 {
        found!(report: Code::Nsec3Iterations, zone.apex(), RecordType::NSEC3PARAM;
            "NSEC3 with {iterations} additional iterations: they cost every validator and protect nothing; use 0 (RFC \
             9276 §3.1)");
    }
    if is_too_costly(iterations, salt) {
        return false;
    }
    let chain = nsec3_chain(zone, parameters);
    if chain.is_empty() {
        found!(report: Code::Nsec3Missing, zone.apex(), RecordType::NSEC3PARAM;
            "the NSEC3 records of the NSEC3PARAM are missing; sign the zone again");
        return false;
    }
    let hash_of = |name: &Name| hash_name(name.to_lowercase().as_wire(), salt, iterations);
    let all = nsec3_names(zone, names, |name| chain.contains_key(&hash_of(name)));
    let mut matched = BTreeSet::new();
    for (name, types, must) in all {
        let hash = hash_of(&name);
        match chain.get(&hash) {
            Some((owner, rest, _)) => {
                matched.insert(hash);
                let bitmap = rest.split_first().and_then(|(length, rest)| rest.get(usize::from(*length)..));
                if let Some(difference) = difference(bitmap.unwrap_or_default(), &types) {
                    found!(report: Code::Nsec3Types, owner, RecordType::NSEC3; "the NSEC3 of {name} {difference}");
                }
            }
            None => {
                let covering = chain.range(..hash).next_back().or_else(|| chain.last_key_value());
                let opted_out = covering.is_some_and(|(_, (.., opts_out))| *opts_out);
                if must || !opted_out {
                    found!(report: Code::Nsec3Missing, &name, RecordType::NSEC3;
                        "{name} has no NSEC3: negative answers would prove to validators that it does not exist");
                }
            }
        }
    }
    let nexts = chain.keys().skip(1).chain(chain.keys().take(1));
    for ((hash, (owner, rest, _)), next) in chain.iter().zip(nexts) {
        if rest.get(1..21) != Some(&next[..]) {
            let next = data_encoding::BASE32HEX_NOPAD.encode(next).to_ascii_lowercase();
            found!(report: Code::Nsec3Next, owner, RecordType::NSEC3;
                "the NSEC3 at {owner} does not point to the next hash, {next}");
        }
        if !matched.contains(hash) {
            found!(report: Code::Nsec3Stray, owner, RecordType::NSEC3;
                "the NSEC3 at {owner} matches no name of the zone");
        }
    }
    true
}

/// The owner of an NSEC3 record, its data after the parameters, and whether it opts out.
type Nsec3Data<'z> = (&'z Name, &'z [u8], bool);

/// Returns the NSEC3 records of these parameters by their hashes.
fn nsec3_chain<'z>(zone: &'z Contents, parameters: &[u8]) -> BTreeMap<Nsec3Hash, Nsec3Data<'z>> {
    let mut chain = BTreeMap::new();
    for (owner, rrsets) in zone.owners() {
        let Some(rrset) = rrsets.iter().find(|rrset| rrset.rtype == RecordType::NSEC3) else { continue };
        let Some(hash) = hash_in(owner) else { continue };
        for data in rrset.rdata.iter().filter(|data| is_of_chain(data, parameters)) {
            chain.insert(hash, (owner, &data[parameters.len()..], data[1] & 1 == 1));
        }
    }
    chain
}

/// Returns the names that a chain must prove, with their types, and whether opt-out must not omit them. `is_proven`: whether the chain
/// has a name.
fn nsec3_names(
    zone: &Contents,
    names: &[Authority<'_>],
    is_proven: impl Fn(&Name) -> bool,
) -> impl Iterator<Item = (Name, BTreeSet<RecordType>, bool)> {
    let must = |name: &Authority<'_>| !name.cut || has(name.rrsets, RecordType::DS);
    // RFC 5155 §7.1: an empty non-terminal must have a record "unless the empty non-terminal is only derived from an insecure
    // delegation covered by an Opt-Out NSEC3 RR". A delegation with a record of its own is not covered by another one.
    let mut between: BTreeMap<Name, bool> = BTreeMap::new();
    for name in names {
        let mut above = name.owner.parent();
        let mut must_above = None;
        while let Some(parent) = above.filter(|parent| parent.is_below(zone.apex()) && zone.owner(parent).is_empty()) {
            above = parent.parent();
            *between.entry(parent).or_default() |=
                *must_above.get_or_insert_with(|| must(name) || is_proven(name.owner));
        }
    }
    let owners = names.iter().map(move |name| (name.owner.clone(), name.types(), must(name)));
    owners.chain(between.into_iter().map(|(name, must)| (name, BTreeSet::new(), must)))
}

/// Describes the difference between a bitmap and the existing types.
fn difference(bitmap: &[u8], expected: &BTreeSet<RecordType>) -> Option<String> {
    let found: BTreeSet<RecordType> = types_in(bitmap).collect();
    let list = |types: Vec<&RecordType>| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
    let missing: Vec<_> = expected.difference(&found).collect();
    let extra: Vec<_> = found.difference(expected).collect();
    match (missing.is_empty(), extra.is_empty()) {
        (true, true) => None,
        (false, _) => Some(format!("lacks {}", list(missing))),
        (true, false) => Some(format!("lists {}, which does not exist", list(extra))),
    }
}
