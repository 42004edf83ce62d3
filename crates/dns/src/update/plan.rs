//! The plan of an UPDATE request for one version of the zone: the prerequisites (RFC 2136 §3.2), the prescan of the
//! updates (§3.4.1), and the changes of TXT records that follow. Pure.

use super::request::{Record, Request};
use crate::wire::header::Rcode;
use crate::wire::rdata::validate;
use crate::wire::{Class, Name, RecordType};
use crate::zone::lookup::{NameMatch, place};
use crate::zone::node::Node;
use crate::zone::qname::Qname;
use crate::zone::rrset::Ttl;
use crate::zone::{Rrset, Zone};

/// A change of the TXT records of one name. The changes of a request apply in order (§3.4.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Operation {
    /// Add a record with this text (§2.5.1).
    Add(Name, Box<[u8]>),
    /// Delete the record with this text, if there is one (§2.5.4).
    Delete(Name, Box<[u8]>),
    /// Delete all records (§2.5.2, §2.5.3).
    DeleteAll(Name),
}

impl Operation {
    /// Returns the owner of the records.
    pub fn owner(&self) -> &Name {
        match self {
            Operation::Add(owner, _) | Operation::Delete(owner, _) | Operation::DeleteAll(owner) => owner,
        }
    }
}

/// Returns the changes that a request for this zone requests.
///
/// # Errors
///
/// The response code of the first check that fails, in the order of §3: NOTAUTH, the prerequisites, the prescan, and REFUSED for changes other
/// than of TXT records with one string.
pub fn plan(request: &Request, zone: &Zone) -> Result<Vec<Operation>, Rcode> {
    // §3.1.2.
    if request.class != Class::IN || request.zone != *zone.apex() {
        return Err(Rcode::NOTAUTH);
    }
    check_prerequisites(&request.prerequisites, zone)?;
    request.updates.iter().try_for_each(|record| prescan(record, zone))?;
    request.updates.iter().map(operation).collect()
}

/// Checks that a zone meets the prerequisites (§3.2.5).
fn check_prerequisites(records: &[Record], zone: &Zone) -> Result<(), Rcode> {
    // §3.2.3: records of the zone's class are whole RRsets together.
    let mut expected: Vec<(&Name, Rrset)> = Vec::new();
    for Record { owner, rtype, class, ttl, rdata } in records {
        if *ttl != 0 {
            return Err(Rcode::FORMERR);
        }
        let node = node_of(owner, zone)?;
        let is_in_use = || node.is_some_and(|node| node.rrsets().next().is_some());
        let has_type = || node.and_then(|node| node.get(*rtype)).is_some_and(|records| records.count() > 0);
        let (is_met, otherwise) = match (*class, *rtype) {
            (Class::ANY | Class::NONE, _) if !rdata.is_empty() => return Err(Rcode::FORMERR),
            (Class::ANY, RecordType::ANY) => (is_in_use(), Rcode::NXDOMAIN),
            (Class::ANY, _) => (has_type(), Rcode::NXRRSET),
            (Class::NONE, RecordType::ANY) => (!is_in_use(), Rcode::YXDOMAIN),
            (Class::NONE, _) => (!has_type(), Rcode::YXRRSET),
            (Class::IN, rtype) if !rtype.is_meta() && validate(rtype, rdata).is_ok() => {
                match expected.iter_mut().find(|(name, rrset)| *name == owner && rrset.rtype == rtype) {
                    Some((_, rrset)) if rrset.contains(rdata) => {}
                    Some((_, rrset)) => rrset.rdata.push(rdata.clone()),
                    None => {
                        expected.push((owner, Rrset { rtype, ttl: Ttl::default(), rdata: vec![rdata.clone()] }));
                    }
                }
                continue;
            }
            _ => return Err(Rcode::FORMERR),
        };
        if !is_met {
            return Err(otherwise);
        }
    }
    let is_equal = |(owner, expected): &(&Name, Rrset)| {
        let found = zone.owner(owner).into_iter().find(|rrset| rrset.rtype == expected.rtype);
        // Neither has duplicates.
        found.is_some_and(|found| {
            found.rdata.len() == expected.rdata.len() && expected.rdata.iter().all(|rdata| found.contains(rdata))
        })
    };
    if expected.iter().all(is_equal) { Ok(()) } else { Err(Rcode::NXRRSET) }
}

/// Checks the form of an update (§3.4.1.3).
fn prescan(record: &Record, zone: &Zone) -> Result<(), Rcode> {
    let Record { owner, rtype, class, ttl, rdata } = record;
    node_of(owner, zone)?;
    let is_record = !rtype.is_meta() && validate(*rtype, rdata).is_ok();
    let is_well_formed = match *class {
        Class::IN => is_record,
        Class::ANY => *ttl == 0 && rdata.is_empty() && (*rtype == RecordType::ANY || !rtype.is_meta()),
        Class::NONE => *ttl == 0 && is_record,
        _ => false,
    };
    if is_well_formed { Ok(()) } else { Err(Rcode::FORMERR) }
}

/// Returns the node with the records of a name; `None` if it has none. §2.4.4: "[...] this prerequisite IS NOT satisfied by empty
/// nonterminals", and neither by wildcards.
///
/// # Errors
///
/// NOTZONE if the name is not in the zone (§3.1.2, §3.4.1.3): names below a cut are in another one.
fn node_of<'z>(owner: &Name, zone: &'z Zone) -> Result<Option<Node<'z>>, Rcode> {
    if !owner.is_at_or_below(zone.apex()) {
        return Err(Rcode::NOTZONE);
    }
    let node = match place(zone, &Qname::of(owner.as_wire())).ok_or(Rcode::SERVFAIL)? {
        NameMatch::Found(found) if found.synthesised == 0 => found.node,
        NameMatch::Cut(cut) if cut.above == 0 => cut.node,
        NameMatch::Cut(_) => return Err(Rcode::NOTZONE),
        NameMatch::Found(_) | NameMatch::Dname(_) | NameMatch::Missing(_) => return Ok(None),
    };
    Ok(Some(node).filter(|node| !node.is_empty_non_terminal()))
}

/// Returns the change of an update that has passed the prescan. The name of a challenge has only TXT records, so all of its records are
/// those.
fn operation(record: &Record) -> Result<Operation, Rcode> {
    let owner = || record.owner.clone();
    match (record.class, record.rtype) {
        (Class::ANY, RecordType::ANY | RecordType::TXT) => Ok(Operation::DeleteAll(owner())),
        (Class::IN, RecordType::TXT) => Ok(Operation::Add(owner(), text(&record.rdata)?)),
        (Class::NONE, RecordType::TXT) => Ok(Operation::Delete(owner(), text(&record.rdata)?)),
        _ => Err(Rcode::REFUSED),
    }
}

/// Returns the only string of TXT data.
fn text(rdata: &[u8]) -> Result<Box<[u8]>, Rcode> {
    match rdata.split_first() {
        Some((&length, text)) if text.len() == usize::from(length) => Ok(text.into()),
        _ => Err(Rcode::REFUSED),
    }
}
