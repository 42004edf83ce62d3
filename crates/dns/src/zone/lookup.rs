//! Lookup of a name and type in a zone: steps 3 and 4 of RFC 1034 §4.3.2, with the closest encloser and source of synthesis of
//! RFC 4592 §3.3 and DNAME (RFC 6672 §3.2).
//!
//! Every existing name is a node, also an empty non-terminal, so the closest encloser is the deepest suffix with a node;
//! suffixes are probed from the longest that the zone can contain. Cuts and DNAMEs override all names below them. Those names
//! are marked, so that only marked names need a search upwards.

use super::image::Zone;
use super::node::{Node, Records, flag};
use super::qname::{Qname, wildcard_hash};
use crate::wire::RecordType;

/// The result of the lookup of a name and type in a zone.
pub enum Lookup<'z> {
    /// The queried RRset.
    Answer(Found<'z>, Records<'z>),
    /// The name has a CNAME (RFC 1034 §3.6.2).
    Cname(Found<'z>, Records<'z>),
    /// An ancestor of the name redirects all names below it (RFC 6672).
    Dname(Ancestor<'z>, Records<'z>),
    /// The name is at or below a zone cut: its NS RRset.
    Referral(Ancestor<'z>, Records<'z>),
    /// The name exists, or is covered by a wildcard, and does not have the type (RFC 2308 §2.2).
    NoData(Found<'z>),
    /// The name does not exist (RFC 2308 §2.1): its closest encloser, which has no `*` below it.
    NxDomain(Ancestor<'z>),
}

/// The node that provides the data of a name.
#[derive(Clone, Copy)]
pub struct Found<'z> {
    /// The node: the name's own, or that of the wildcard that covers it.
    pub node: Node<'z>,
    /// The number of labels from the closest encloser to the name for a wildcard; otherwise 0.
    pub synthesised: usize,
}

/// A node at or above a name.
#[derive(Clone, Copy)]
pub struct Ancestor<'z> {
    /// The node.
    pub node: Node<'z>,
    /// The number of labels from the ancestor to the name.
    pub above: usize,
}

/// The position of a name in a zone, independent of the type.
pub enum NameMatch<'z> {
    /// The name exists or is covered by a wildcard.
    Found(Found<'z>),
    /// The name is at or below this zone cut.
    Cut(Ancestor<'z>),
    /// The name is below this DNAME's owner.
    Dname(Ancestor<'z>),
    /// The name does not exist; its closest encloser.
    Missing(Ancestor<'z>),
}

impl<'z> Found<'z> {
    /// Returns the RRset of this type that answers.
    #[inline]
    pub fn answer(&self, qtype: RecordType) -> Option<Records<'z>> {
        self.node.get(qtype).filter(|records| records.count() > 0 && !self.is_across_cut(qtype))
    }

    /// Returns whether this is a DS at the apex, on the wrong side of the cut: RFC 4035 §2.4 "MUST NOT"; §3.1.4.1 requires the
    /// parent's DS in the answer.
    #[inline]
    fn is_across_cut(&self, qtype: RecordType) -> bool {
        qtype == RecordType::DS && self.node.is_apex()
    }
}

/// Looks `qname` up, which is at or below the apex of `zone`. `None` if the zone has no contents.
pub fn lookup<'z>(zone: &'z Zone, qname: &Qname, qtype: RecordType) -> Option<Lookup<'z>> {
    lookup_at(place(zone, qname)?, qtype)
}

/// Returns the result for a name at `place` and a type.
pub fn lookup_at(place: NameMatch<'_>, qtype: RecordType) -> Option<Lookup<'_>> {
    Some(match place {
        NameMatch::Found(found) => match_type(found, qtype),
        // DS belongs to the parent's side of a cut (RFC 4035 §3.1.4.1).
        NameMatch::Cut(cut) if cut.above == 0 && qtype == RecordType::DS => {
            match_type(Found { node: cut.node, synthesised: 0 }, qtype)
        }
        NameMatch::Cut(cut) => Lookup::Referral(cut, cut.node.get(RecordType::NS)?),
        NameMatch::Dname(dname) => Lookup::Dname(dname, dname.node.get(RecordType::DNAME)?),
        NameMatch::Missing(encloser) => Lookup::NxDomain(encloser),
    })
}

/// Looks `qname` up for a query of type ANY, which gets one of the RRsets (RFC 8482 §4.1), and follows no CNAME.
pub fn lookup_any<'z>(zone: &'z Zone, qname: &Qname) -> Option<Lookup<'z>> {
    Some(match place(zone, qname)? {
        NameMatch::Found(found) => {
            let is_plain = |records: &Records<'_>| {
                records.count() > 0 && !matches!(records.rtype(), RecordType::NSEC | RecordType::NSEC3)
            };
            let one = found.node.rrsets().find(is_plain);
            one.map_or(Lookup::NoData(found), |records| Lookup::Answer(found, records))
        }
        // The rest is as for any type; no node has OPT.
        _ => lookup(zone, qname, RecordType::OPT)?,
    })
}

#[inline]
fn match_type(found: Found<'_>, qtype: RecordType) -> Lookup<'_> {
    if let Some(records) = found.node.get(qtype)
        && records.count() > 0
    {
        return if found.is_across_cut(qtype) { Lookup::NoData(found) } else { Lookup::Answer(found, records) };
    }
    if found.node.has(flag::CNAME)
        && let Some(cname) = found.node.get(RecordType::CNAME)
    {
        return Lookup::Cname(found, cname);
    }
    Lookup::NoData(found)
}

/// Finds the position of `qname`. `None` if the zone has no contents.
#[inline]
pub fn place<'z>(zone: &'z Zone, qname: &Qname) -> Option<NameMatch<'z>> {
    let above = qname.labels() - zone.apex_labels();
    let apex_at = qname.start(above);
    let nearest = usize::from(zone.labels_max).min(qname.labels());
    let mut skipped = qname.labels() - nearest;
    // Each iteration probes one suffix; there are at most as many as the zone's deepest name has labels.
    let (node, skipped) = loop {
        if skipped >= above {
            break (zone.apex_node()?, above);
        }
        if let Some(node) = zone.find_below(qname.hash(skipped), || &qname.octets()[qname.start(skipped)..apex_at]) {
            break (node, skipped);
        }
        skipped += 1;
    };
    let flags = node.flags();
    if flags & (flag::OCCLUDED | flag::CUT | flag::DNAME) != 0
        && let Some(place) = redirected(zone, qname, Ancestor { node, above: skipped })
    {
        return Some(place);
    }
    if skipped == 0 {
        return Some(NameMatch::Found(Found { node, synthesised: 0 }));
    }
    if flags & flag::WILDCARD_CHILD != 0 {
        let wildcard = match skipped == above {
            true => zone.apex_wildcard(),
            false => find_wildcard(zone, qname, skipped, apex_at),
        };
        if let Some(wildcard) = wildcard {
            return Some(NameMatch::Found(Found { node: wildcard, synthesised: skipped }));
        }
    }
    Some(NameMatch::Missing(Ancestor { node, above: skipped }))
}

/// Returns the node of the wildcard under `qname` without its first `skipped` labels, below the apex, which begins at `apex_at`.
#[inline(never)]
fn find_wildcard<'z>(zone: &'z Zone, qname: &Qname, skipped: usize, apex_at: usize) -> Option<Node<'z>> {
    let hash = wildcard_hash(qname.hash(skipped));
    let encloser = &qname.octets()[qname.start(skipped)..apex_at];
    let mut relative = [0; 256];
    relative[..2].copy_from_slice(b"\x01*");
    relative[2..2 + encloser.len()].copy_from_slice(encloser);
    zone.find(hash, &relative[..2 + encloser.len()])
}

/// Returns the topmost cut or DNAME at or above `node`, if it redirects the name; it is above all names that are marked as
/// occluded.
#[cold]
fn redirected<'z>(zone: &'z Zone, qname: &Qname, mut at: Ancestor<'z>) -> Option<NameMatch<'z>> {
    let apex_at = qname.start(qname.labels() - zone.apex_labels());
    while at.node.has(flag::OCCLUDED) {
        let above = at.above + 1;
        if qname.start(above) >= apex_at {
            // A DNAME at the apex occludes all below it.
            at = Ancestor { node: zone.apex_node()?, above };
            break;
        }
        let relative = &qname.octets()[qname.start(above)..apex_at];
        at = Ancestor { node: zone.find(qname.hash(above), relative)?, above };
    }
    // If a node has both, the cut has priority: NS comes before DNAME in the order of RFC 6672 §3.2.
    if at.node.has(flag::CUT) {
        return Some(NameMatch::Cut(at));
    }
    // A DNAME does not redirect its own owner (RFC 6672 §2.3).
    (at.node.has(flag::DNAME) && at.above > 0).then_some(NameMatch::Dname(at))
}
