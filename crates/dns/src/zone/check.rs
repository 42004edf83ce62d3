//! Semantic checks of a zone, similar to `kzonecheck`: faults of its records in combination.
//!
//! [`examine`] is pure and visits the owners once in canonical order, in which a zone cut comes directly before the names that it
//! hides. Errors are contents from which no server can answer correctly (RFC 1034 §4.2.1, RFC 2181, RFC 4592 §4, RFC 6672 §2);
//! faults are contents that are served but are useless to resolvers or validators; warnings are contents that are probably a
//! mistake. Each kind has a stable [`Code`]. The whole zone is always checked: only the number of reported findings is limited.

mod child;
mod code;
mod digest;
mod records;
mod report;
mod servers;
mod signed;
mod verify;

use std::collections::HashSet;

pub use code::{Code, Severity, UnparsedRecords};
pub use report::{CheckFinding, Report};

use super::Contents;
use super::denial::{self, has};
use super::rrset::Rrset;
use super::serial::Serial;
use crate::wire::header::HEADER_OCTETS;
use crate::wire::name::NAME_OCTETS_MAX;
use crate::wire::rdata::NameForm;
use crate::wire::{Name, RecordType, rdata};
use report::{Reporter, found};

/// The maximum number of findings that [`check`] reports of each kind: errors, faults, and others; in a zone with more, the first
/// ones show the problem.
pub const FINDINGS_MAX: usize = 200;

/// The options of a check.
#[derive(Debug, Clone, Copy)]
pub struct Options<'a> {
    /// The time at which signatures must be valid, in seconds since 1970; `None`: their times are not checked.
    pub now: Option<u64>,
    /// The number of threads that verify signatures and the zone's digest; `None`: they are not verified, which saves some 0.1 ms
    /// per signature.
    pub verify: Option<usize>,
    /// The maximum numbers of kept errors, of kept faults, and of other kept findings.
    pub kept_max: usize,
    /// The records of the zone that could not be parsed.
    pub unparsed: &'a UnparsedRecords,
}

/// Checks `zone`, except for cryptography and the times of signatures, and returns the findings: at most [`FINDINGS_MAX`] errors
/// (at least one if there is any), as many faults, and as many other findings.
pub fn check(zone: &Contents) -> Vec<CheckFinding> {
    let unparsed = UnparsedRecords::default();
    examine(zone, &Options { now: None, verify: None, kept_max: FINDINGS_MAX, unparsed: &unparsed }).findings
}

/// Checks `zone` with `options`, owner by owner in canonical order.
pub fn examine(zone: &Contents, options: &Options<'_>) -> Report {
    let mut report = Reporter::new(options.kept_max, options.unparsed);
    let view = CheckContext::new(zone, options.now);
    check_apex(&view, &mut report);
    if view.signed {
        signed::check_iterations(&view, &mut report);
    }
    let mut above = OccludedBy::Nothing;
    let mut to_verify = Vec::new();
    for (owner, rrsets) in zone.owners() {
        if above.name().is_some_and(|name| !owner.is_below(name)) {
            above = OccludedBy::Nothing;
        }
        check_shape(&view, owner, rrsets, &mut report);
        if view.servers.contains(owner) {
            servers::check_loopback(owner, rrsets, &mut report);
        }
        let hashed = is_hashed(&view, owner, rrsets);
        if options.verify.is_some() && view.signed && (hashed || matches!(above, OccludedBy::Nothing)) {
            to_verify.push((owner, rrsets));
        }
        match above {
            // Names of hashes do not exist as names (RFC 5155 §7.2.8): they are below no DNAME (RFC 6672 §2.3).
            _ if hashed => signed::check_owner(&view, owner, rrsets, &mut report),
            OccludedBy::Nothing => {
                check_targets(&view, owner, rrsets, &mut report);
                signed::check_owner(&view, owner, rrsets, &mut report);
                check_cut(&view, owner, rrsets, &mut report);
                records::check(owner, rrsets, &mut report);
                above = OccludedBy::of(&view, owner, rrsets);
            }
            OccludedBy::Cut(cut) => check_below_cut(&view, cut, owner, rrsets, &mut report),
            OccludedBy::Dname(dname) => {
                found!(report: Code::BelowDname, owner, rrsets.first().map(|rrset| rrset.rtype);
                    "{owner} is below the DNAME at {dname}; move the record, or remove the DNAME")
            }
        }
    }
    servers::check_unused_addresses(&view, &mut report);
    if view.signed {
        signed::check_chain(&view, &mut report);
    }
    child::check(&view, &mut report);
    if let Some(threads) = options.verify {
        verify::check(&view, &to_verify, threads, &mut report);
        digest::check(zone, &mut report);
    }
    report.finish()
}

/// Returns whether an owner has only NSEC3 records and their signatures, and at least one of them.
fn is_hashed(view: &CheckContext<'_>, owner: &Name, rrsets: &[Rrset]) -> bool {
    has(rrsets, RecordType::NSEC3)
        && owner.label_count() == view.zone.apex().label_count() + 1
        && denial::Denial::without_nsec3(rrsets).is_empty()
}

/// The facts about a zone that many checks need.
struct CheckContext<'a> {
    zone: &'a Contents,
    /// The targets of NS records that are in the zone.
    servers: HashSet<Name, foldhash::fast::RandomState>,
    /// The first labels of the apex's servers outside the zone, in lower case, with the whole name.
    outside: Vec<(Vec<u8>, Name)>,
    signed: bool,
    /// Key tags and algorithms of the zone's keys.
    keys: Vec<(u16, u8)>,
    /// The time at which signatures must be valid, in the arithmetic of their fields (RFC 4034 §3.1.5).
    now: Option<Serial>,
}

impl<'a> CheckContext<'a> {
    fn new(zone: &'a Contents, now: Option<u64>) -> Self {
        let mut servers = HashSet::default();
        let mut outside = Vec::new();
        for (owner, rrsets) in zone.owners() {
            for rrset in rrsets.iter().filter(|rrset| rrset.rtype == RecordType::NS) {
                for target in targets(rrset) {
                    if target.is_at_or_below(zone.apex()) {
                        servers.insert(target);
                    } else if owner == zone.apex()
                        && let Some(label) = target.labels().next()
                    {
                        outside.push((label.to_ascii_lowercase(), target.clone()));
                    }
                }
            }
        }
        let dnskeys = zone.get(zone.apex(), RecordType::DNSKEY);
        let now = now.map(|now| Serial(now as u32));
        CheckContext { zone, servers, outside, signed: dnskeys.is_some(), keys: signed::keys(dnskeys), now }
    }

    fn is_cut(&self, owner: &Name, rrsets: &[Rrset]) -> bool {
        owner != self.zone.apex() && has(rrsets, RecordType::NS) && !owner.is_wildcard()
    }
}

/// The reason why the names below are hidden.
enum OccludedBy<'a> {
    Nothing,
    Cut(&'a Name),
    Dname(&'a Name),
}

impl<'a> OccludedBy<'a> {
    fn of(view: &CheckContext<'_>, owner: &'a Name, rrsets: &[Rrset]) -> Self {
        if view.is_cut(owner, rrsets) {
            OccludedBy::Cut(owner)
        } else if has(rrsets, RecordType::DNAME) {
            OccludedBy::Dname(owner)
        } else {
            OccludedBy::Nothing
        }
    }

    fn name(&self) -> Option<&'a Name> {
        match *self {
            OccludedBy::Nothing => None,
            OccludedBy::Cut(name) | OccludedBy::Dname(name) => Some(name),
        }
    }
}

fn check_apex(view: &CheckContext<'_>, report: &mut Reporter<'_>) {
    let apex = view.zone.apex();
    match view.zone.get(apex, RecordType::SOA) {
        None => {
            found!(report: Code::SoaMissing, apex, None::<RecordType>; "{apex} has no SOA record; add one at the apex")
        }
        Some(soa) if soa.rdata.len() > 1 => {
            found!(report: Code::SoaMultiple, apex, RecordType::SOA;
                "{apex} has {} SOA records, expected one", soa.rdata.len());
        }
        Some(soa) if soa.rdata[0].first() == Some(&0) => found!(report: Code::SoaMnameRoot, apex, RecordType::SOA;
            "the primary server (MNAME) of the SOA is '.', which means none; set the server that receives NOTIFY and \
             updates"),
        Some(_) => {}
    }
    if view.zone.get(apex, RecordType::NS).is_none() {
        found!(report: Code::NsMissing, apex, None::<RecordType>; "{apex} has no NS record; add one at the apex");
    }
}

/// Checks the rules for one owner's records that do not depend on its position.
fn check_shape(view: &CheckContext<'_>, owner: &Name, rrsets: &[Rrset], report: &mut Reporter<'_>) {
    for rrset in rrsets {
        let (rtype, count) = (rrset.rtype, rrset.rdata.len());
        let octets = answer_octets(view.zone.apex(), owner, rrset, rrsets);
        if octets > MESSAGE_OCTETS_MAX {
            found!(report: Code::RrsetTooLarge, owner, rtype;
                "an answer with the {count} {rtype} records of {owner} and their signatures has {octets} octets, but a \
                 message can have at most {MESSAGE_OCTETS_MAX}; remove some records");
        }
        match rtype {
            RecordType::SOA if owner != view.zone.apex() => found!(report: Code::SoaBelowApex, owner, rtype;
                "an SOA at {owner}, but the zone is {}; move it to a zone file of its own", view.zone.apex()),
            RecordType::CNAME if count > 1 => {
                found!(report: Code::CnameMultiple, owner, rtype; "{owner} has {count} CNAME records, expected one");
            }
            RecordType::DNAME if count > 1 => {
                found!(report: Code::DnameMultiple, owner, rtype; "{owner} has {count} DNAME records, expected one");
            }
            RecordType::DNAME if owner.is_wildcard() => {
                found!(report: Code::DnameWildcard, owner, rtype;
                    "a DNAME at the wildcard {owner} has no defined meaning");
            }
            RecordType::NS if owner.is_wildcard() => {
                found!(report: Code::NsWildcard, owner, rtype;
                    "an NS at the wildcard {owner} has no defined meaning; delegate each name separately");
            }
            _ => {}
        }
    }
    if has(rrsets, RecordType::CNAME) {
        // RFC 2181 §10.1 with RFC 4034 §3, §4: signatures and proofs are permitted next to it.
        const BESIDE: [RecordType; 6] =
            [RecordType::CNAME, RecordType::RRSIG, RecordType::NSEC, RecordType::SIG, RecordType::NXT, RecordType::KEY];
        if let Some(other) = rrsets.iter().find(|rrset| !BESIDE.contains(&rrset.rtype)) {
            found!(report: Code::CnameNotAlone, owner, other.rtype;
                "{owner} has a CNAME and also {}; a name with a CNAME cannot have other records", other.rtype);
        }
    }
    if owner != view.zone.apex() && has(rrsets, RecordType::NS) && has(rrsets, RecordType::DNAME) {
        found!(report: Code::DnameWithNs, owner, RecordType::DNAME; "{owner} has both NS and DNAME");
    }
}

/// The maximum length of a message over TCP in octets.
const MESSAGE_OCTETS_MAX: usize = 65_535;
/// The octets of a record except its data, with a pointer as the owner (RFC 1035 §4.1.3).
const RECORD_HEAD_OCTETS: usize = 12;
/// The octets of an OPT record with a client cookie and a server cookie (RFC 6891 §6.1.2, RFC 9018 §4).
const OPT_WITH_COOKIE_OCTETS: usize = 11 + 4 + 24;

/// Returns the number of octets of the answer with `rrset` and its signatures, for a query with DO and a cookie.
fn answer_octets(apex: &Name, owner: &Name, rrset: &Rrset, beside: &[Rrset]) -> usize {
    // Signatures are counted with the RRset that they cover.
    if rrset.rtype == RecordType::RRSIG {
        return 0;
    }
    let question = if owner.is_wildcard() { NAME_OCTETS_MAX } else { owner.as_wire().len() };
    // Names at or below the apex end with a pointer to it.
    let saved = |data: &[u8]| -> usize {
        let names = rdata::names(rrset.rtype, data).filter(|name| name.form == NameForm::Compressible);
        let inside = names.filter(|name| Name::from_wire(name.wire).is_ok_and(|name| name.is_at_or_below(apex)));
        inside.map(|_| apex.as_wire().len().saturating_sub(2)).sum()
    };
    let whole: usize = rrset.rdata.iter().map(|data| RECORD_HEAD_OCTETS + data.len()).sum();
    let covered = rrset.rtype.0.to_be_bytes();
    let signatures = beside.iter().filter(|other| other.rtype == RecordType::RRSIG).flat_map(|other| &other.rdata);
    let signatures = signatures.filter(|data| data.starts_with(&covered));
    let signatures: usize = signatures.map(|data| RECORD_HEAD_OCTETS + data.len()).sum();
    let octets = HEADER_OCTETS + question + 4 + whole + signatures + OPT_WITH_COOKIE_OCTETS;
    match octets > MESSAGE_OCTETS_MAX {
        true => octets - rrset.rdata.iter().map(|data| saved(data)).sum::<usize>(),
        false => octets,
    }
}

/// Checks the targets of the records of an authoritative owner or of a cut.
fn check_targets(view: &CheckContext<'_>, owner: &Name, rrsets: &[Rrset], report: &mut Reporter<'_>) {
    for rrset in rrsets {
        let code = match rrset.rtype {
            RecordType::NS => Code::NsToCname,
            RecordType::MX => Code::MxToCname,
            RecordType::SRV => Code::SrvToCname,
            RecordType::CNAME => Code::CnameToCname,
            _ => continue,
        };
        for target in targets(rrset) {
            if code == Code::CnameToCname {
                let is_chain = has(view.zone.owner(&target), RecordType::CNAME);
                match is_chain.then(|| leads_back(view.zone, owner)) {
                    Some(true) => found!(report: Code::CnameLoop, owner, rrset.rtype;
                        "the CNAME of {owner} is part of a loop"),
                    Some(false) => found!(report: code, owner, rrset.rtype;
                        "the CNAME of {owner} points to {target}, which is a CNAME"),
                    None => {}
                }
            } else if let Some(alias) = servers::alias(view, &target) {
                found!(report: code, owner, rrset.rtype;
                    "the {} of {owner} points to {target}, which is {alias}", rrset.rtype);
            } else if code == Code::NsToCname {
                servers::check(view, owner, &target, report);
            } else if servers::has_no_host_address(view, &target) {
                let code = if code == Code::MxToCname { Code::MxNoAddress } else { Code::SrvNoAddress };
                found!(report: code, owner, rrset.rtype;
                    "the {} of {owner} points to {target}, which has no address here", rrset.rtype);
            }
        }
    }
}

/// The maximum length of a chain of CNAMEs in the search for a loop; servers give up earlier.
const CHAIN_MAX: usize = 16;

fn leads_back(zone: &Contents, start: &Name) -> bool {
    let mut at = start.clone();
    for _ in 0..CHAIN_MAX {
        let Some(next) = zone.get(&at, RecordType::CNAME).and_then(|rrset| targets(rrset).next()) else { return false };
        if next == *start {
            return true;
        }
        at = next;
    }
    false
}

/// Checks the types that are permitted at a cut in addition to NS (RFC 4035 §2.4 to §2.6): DS and its proof, and the cut's own
/// glue.
fn check_cut(view: &CheckContext<'_>, owner: &Name, rrsets: &[Rrset], report: &mut Reporter<'_>) {
    let cut = view.is_cut(owner, rrsets);
    for rrset in rrsets {
        let rtype = rrset.rtype;
        if rtype == RecordType::DS && owner == view.zone.apex() {
            found!(report: Code::DsAtApex, owner, rtype;
                "the DS at {owner}, the apex, is never served; it belongs in the parent zone (RFC 4035 §2.4)");
        } else if rtype == RecordType::DS && !cut {
            found!(report: Code::DsWithoutNs, owner, rtype; "a DS at {owner}, which is not delegated here");
        }
        let own = matches!(
            rtype,
            RecordType::NS
                | RecordType::DS
                | RecordType::RRSIG
                | RecordType::NSEC
                | RecordType::DNAME
                | RecordType::CNAME
        );
        if cut && !own && !is_glue(view, owner, rtype) {
            found!(report: Code::BelowCut, owner, rtype; "{owner} is delegated, so its {rtype} is never served");
        }
    }
}

fn check_below_cut(view: &CheckContext<'_>, cut: &Name, owner: &Name, rrsets: &[Rrset], report: &mut Reporter<'_>) {
    let is_glue = |rtype| is_glue(view, owner, rtype);
    let signed = |rrset: &Rrset| rrset.rtype == RecordType::RRSIG && rrsets.iter().any(|rrset| is_glue(rrset.rtype));
    if rrsets.iter().any(signed) {
        found!(report: Code::GlueSigned, owner, RecordType::RRSIG;
            "{owner} is glue below the zone cut at {cut}, and glue must not be signed (RFC 4035 §2.2)");
    }
    if let Some(rrset) = rrsets.iter().find(|rrset| !is_glue(rrset.rtype) && !signed(rrset)) {
        found!(report: Code::BelowCut, owner, rrset.rtype;
            "{owner} is below the zone cut at {cut}, so its {} is never served", rrset.rtype);
    }
}

fn is_glue(view: &CheckContext<'_>, owner: &Name, rtype: RecordType) -> bool {
    matches!(rtype, RecordType::A | RecordType::AAAA) && view.servers.contains(owner)
}

/// Returns the last name in each record: the target of NS, MX, SRV and CNAME, the signer of RRSIG.
fn targets(rrset: &Rrset) -> impl Iterator<Item = Name> {
    rrset.rdata.iter().filter_map(|data| Name::from_wire(rdata::names(rrset.rtype, data).last()?.wire).ok())
}
