//! `spec.records` of a Router: further records of the shard's zone, in zone-file syntax (RFC 1035 §5.1).
//!
//! Each entry is one record, relative to the shard's zone, with the Router's TTL unless it names one. Directives are
//! refused: an object may not make a name server read its files. What an entry must not do is said here once, so that no
//! entry can make the zone unloadable: each bad one is left out with a verdict, and the others serve.

use super::inputs::RouterInput;
use super::verdict::Verdict;
use crate::wire::{Name, RecordType};
use crate::zone::Contents;
use crate::zone::rrset::{Rdata, Ttl};

/// Adds a Router's further records to its shard's, which so far are the wildcard's addresses.
pub fn add(contents: &mut Contents, router: &RouterInput, wildcard: &Name, verdicts: &mut Vec<Verdict>) {
    for (at, text) in router.records.iter().enumerate() {
        let added = read(text, router)
            .and_then(|records| records.into_iter().try_for_each(|record| add_one(contents, wildcard, record)));
        if let Err(message) = added {
            verdicts.push(Verdict::router(&router.name, format!("spec.records[{at}]"), message));
        }
    }
}

/// One record in the making.
struct Record {
    owner: Name,
    rtype: RecordType,
    ttl: Ttl,
    rdata: Rdata,
}

/// Reads one entry.
fn read(text: &str, router: &RouterInput) -> Result<Vec<Record>, String> {
    let _ = router;
    Err(format!("{text:?} is not read yet"))
}

/// Adds a record where its owner and type allow it.
fn add_one(contents: &mut Contents, wildcard: &Name, record: Record) -> Result<(), String> {
    let Record { owner, rtype, ttl, rdata } = record;
    let apex = contents.apex();
    if !owner.is_at_or_below(apex) {
        return Err(format!("{owner} is outside the shard's zone {apex}"));
    }
    let at_apex = owner == *apex;
    let at_wildcard = owner == *wildcard;
    let refusal = match rtype {
        RecordType::SOA => Some("the SOA is made from the platform's configuration"),
        RecordType::NS if at_apex => Some("the zone's name servers are those of the platform's configuration"),
        RecordType::CNAME if at_apex => {
            Some("a CNAME cannot stand beside the SOA at the zone's apex (RFC 1034 §3.6.2)")
        }
        RecordType::DNAME if at_apex => Some("a DNAME at the apex would hide the wildcard (RFC 6672 §2.4)"),
        RecordType::A | RecordType::AAAA if at_wildcard => Some("the wildcard's addresses are those of spec.addresses"),
        RecordType::CNAME if at_wildcard => {
            Some("a CNAME cannot stand beside the wildcard's addresses (RFC 1034 §3.6.2)")
        }
        RecordType::NS | RecordType::DNAME if owner.is_wildcard() => {
            Some("at a wildcard it has no defined meaning (RFC 4592 §4.2, §4.4)")
        }
        rtype if rtype.is_meta() => Some("the type exists in questions and messages only"),
        _ => None,
    };
    if let Some(refusal) = refusal {
        return Err(format!("{owner} {rtype}: {refusal}"));
    }
    let existing = contents.owner(&owner);
    if let Some(first) = existing.first() {
        let is_cname = first.rtype == RecordType::CNAME;
        if is_cname || rtype == RecordType::CNAME {
            let first = first.rtype;
            return Err(format!(
                "{owner} {rtype}: the name already has {first}, and a CNAME stands alone (RFC 1034 §3.6.2)"
            ));
        }
        if rtype == RecordType::DNAME && existing.iter().any(|rrset| rrset.rtype == RecordType::DNAME) {
            return Err(format!("{owner} {rtype}: the name already has one (RFC 6672 §2.4)"));
        }
    }
    if rtype == RecordType::DNAME && contents.has_below(&owner) {
        return Err(format!("{owner} DNAME: there are records below it (RFC 6672 §2.4)"));
    }
    if let Some(above) = dname_above(contents, &owner) {
        return Err(format!("{owner} {rtype}: it is below the DNAME at {above} (RFC 6672 §2.4)"));
    }
    match contents.add(owner, rtype, ttl, rdata) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// The closest name above `owner` with a DNAME.
fn dname_above(contents: &Contents, owner: &Name) -> Option<Name> {
    let mut above = owner.parent()?;
    while above.is_below(contents.apex()) {
        if contents.get(&above, RecordType::DNAME).is_some() {
            return Some(above);
        }
        above = above.parent()?;
    }
    None
}
