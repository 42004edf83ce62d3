//! Name servers and other hosts in records of the zone: whether clients find their addresses.

use std::collections::HashSet;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::report::{Reporter, found};
use super::{CheckContext, Code, OccludedBy, has};
use crate::wire::{Name, RecordType};
use crate::zone::rrset::Rrset;

/// Checks whether the server `target` of the NS at `owner` is reachable with the zone's contents.
pub(super) fn check(view: &CheckContext<'_>, owner: &Name, target: &Name, report: &mut Reporter<'_>) {
    if target.is_at_or_below(view.zone.apex()) {
        if has_no_address(view, owner, target) {
            found!(report: Code::NsNoAddress, owner, RecordType::NS;
                "the name server {target} of {owner} has no address; add an A or AAAA record for it");
        }
    } else if owner == view.zone.apex()
        && let Some(lookalike) = lookalike(view, target)
    {
        found!(report: Code::NsLookalike, owner, RecordType::NS;
            "the name server {target} is outside the zone and has no address here; the address at {lookalike} belongs \
             to another name");
    }
}

/// Returns whether the server `target` of the NS at `owner` needs an address in the zone and has none.
fn has_no_address(view: &CheckContext<'_>, owner: &Name, target: &Name) -> bool {
    if view.has_address(target) {
        return false;
    }
    match view.top_above(target) {
        OccludedBy::Dname(_) => true,
        // The server needs glue, and a wildcard provides none. A server below another cut of this zone has its address there;
        // only its own cut and the apex, whose servers are queried first, need it as glue.
        OccludedBy::Cut(_) => owner == view.zone.apex() || target.is_at_or_below(owner),
        OccludedBy::Nothing => {
            let wildcard = view.wildcard_for(target);
            let wildcard = wildcard.as_ref().map_or(&[][..], |wildcard| view.zone.owner(wildcard));
            ![RecordType::A, RecordType::AAAA].iter().any(|rtype| has(wildcard, *rtype))
        }
    }
}

/// Returns whether the host `target` of an MX or SRV, which has no CNAME, is in this zone and has no address there.
pub(super) fn has_no_host_address(view: &CheckContext<'_>, target: &Name) -> bool {
    target.is_at_or_below(view.zone.apex())
        && matches!(view.top_above(target), OccludedBy::Nothing)
        && has_no_address(view, target, target)
}

/// Describes the record of the zone that redirects `target`: its own CNAME, that of a wildcard, or a DNAME above it.
pub(super) fn alias(view: &CheckContext<'_>, target: &Name) -> Option<String> {
    if has(view.zone.owner(target), RecordType::CNAME) {
        return Some("a CNAME".to_owned());
    }
    if !target.is_at_or_below(view.zone.apex()) {
        return None;
    }
    match view.top_above(target) {
        OccludedBy::Dname(owner) => Some(format!("an alias by the DNAME of {owner}")),
        OccludedBy::Cut(_) => None,
        OccludedBy::Nothing => {
            let wildcard = view.wildcard_for(target)?;
            let redirects = has(view.zone.owner(&wildcard), RecordType::CNAME);
            redirects.then(|| format!("a CNAME by the wildcard {wildcard}"))
        }
    }
}

/// Returns the name in the zone that has addresses and the first label of the server `target`, which is outside the zone.
fn lookalike(view: &CheckContext<'_>, target: &Name) -> Option<Name> {
    let candidate = view.zone.apex().prepend(target.labels().next()?).ok()?;
    (view.has_address(&candidate) && !view.servers.contains(&candidate)).then_some(candidate)
}

/// Finds addresses such as `ns1 A …` that are probably for a server with another spelling in its NS record.
pub(super) fn check_unused_addresses(view: &CheckContext<'_>, report: &mut Reporter<'_>) {
    let mut seen = HashSet::new();
    for (label, server) in &view.outside {
        let Some(owner) = lookalike(view, server).filter(|owner| seen.insert(owner.clone())) else { continue };
        check_loopback(&owner, view.zone.owner(&owner), report);
        let rtype = view.zone.owner(&owner).first().map(|rrset| rrset.rtype);
        found!(report: Code::NsAddressUnused, &owner, rtype;
            "no NS record refers to {owner}, which appears to be the address of {server}; write its full name with a \
             final dot, '{}.', or add an NS record for it", label.escape_ascii());
    }
}

/// Checks for name servers that are reachable only from this machine.
pub(super) fn check_loopback(owner: &Name, rrsets: &[Rrset], report: &mut Reporter<'_>) {
    for rrset in rrsets {
        if let Some(address) = loopback_address(rrset) {
            found!(report: Code::NsLoopback, owner, rrset.rtype;
                "the name server {owner} has the loopback address {address}, which is not reachable from other \
                 machines");
        }
    }
}

/// Returns the first loopback address among the records of an A or AAAA RRset.
fn loopback_address(rrset: &Rrset) -> Option<String> {
    rrset.rdata.iter().find_map(|data| match rrset.rtype {
        RecordType::A => {
            let address = Ipv4Addr::from(<[u8; 4]>::try_from(&data[..]).ok()?);
            address.is_loopback().then(|| address.to_string())
        }
        RecordType::AAAA => {
            let address = Ipv6Addr::from(<[u8; 16]>::try_from(&data[..]).ok()?);
            address.is_loopback().then(|| address.to_string())
        }
        _ => None,
    })
}

impl<'a> CheckContext<'a> {
    /// Returns whether an address would be looked up in this zone and not at another server.
    fn has_address(&self, name: &Name) -> bool {
        let rrsets = self.zone.owner(name);
        has(rrsets, RecordType::A) || has(rrsets, RecordType::AAAA)
    }

    /// Returns the topmost cut or DNAME above `name`, or the cut at `name`: names below it are not looked up in this zone.
    fn top_above(&self, name: &Name) -> OccludedBy<'a> {
        let mut top = OccludedBy::Nothing;
        let mut at = Some(name.clone());
        while let Some(ancestor) = at.filter(|ancestor| ancestor.is_at_or_below(self.zone.apex())) {
            if let Some((owner, rrsets)) = self.zone.entry(&ancestor) {
                match OccludedBy::of(self, owner, rrsets) {
                    OccludedBy::Nothing => {}
                    // A DNAME does not redirect its own owner (RFC 6672 §2.3).
                    OccludedBy::Dname(owner) if owner == name => {}
                    found => top = found,
                }
            }
            at = ancestor.parent();
        }
        top
    }

    /// Returns the wildcard that answers for `name`, which is below no cut and no DNAME: the one directly below the closest
    /// encloser, if `name` itself does not exist (RFC 4592 §3.3.1). It may have no records.
    fn wildcard_for(&self, name: &Name) -> Option<Name> {
        let exists = |name: &Name| !self.zone.owner(name).is_empty() || self.zone.has_below(name);
        if exists(name) {
            return None;
        }
        let mut at = name.parent();
        while let Some(ancestor) = at.filter(|ancestor| ancestor.is_at_or_below(self.zone.apex())) {
            if exists(&ancestor) {
                return ancestor.wildcard().ok();
            }
            at = ancestor.parent();
        }
        None
    }
}
