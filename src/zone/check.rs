//! Semantic checks of a zone, in the way of `kzonecheck`: what is wrong with its records taken together.
//!
//! [`check`] is pure and walks the owners once in canonical order, in which a zone cut comes directly before what it
//! hides. Errors are what no server can answer rightly from (RFC 1034 §4.2.1, RFC 2181, RFC 4592 §4, RFC 6672 §2);
//! warnings are what is served as it stands, but hardly meant. Each kind has a [`Code`] that stays.

mod signed;

use std::collections::HashSet;
use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use super::Contents;
use super::rrset::Rrset;
use super::serial::Serial;
use crate::wire::{Name, RecordType, rdata};

/// How bad a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The zone is served, but probably not what was meant.
    Warning,
    /// The zone is not served.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Severity::Error => "error",
            Severity::Warning => "warning",
        })
    }
}

/// Most findings of one check; a zone with more is broken in a way that the first ones show.
pub const FINDINGS_MAX: usize = 200;
/// Most RRs of one RRset: more than this cannot stand in a message of 65,535 octets, each taking 12 octets at least.
pub const RRSET_RECORDS_MAX: usize = 65_535 / 12;

macro_rules! codes {
    ($($variant:ident $text:literal $severity:ident $doc:literal),+ $(,)?) => {
        /// The kinds of findings. Their texts are stable: scripts may rely on them.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Code { $(#[doc = $doc] $variant),+ }

        impl Code {
            /// The code as scripts see it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Code::$variant => $text),+ }
            }

            /// How bad it is.
            pub const fn severity(self) -> Severity {
                match self { $(Code::$variant => Severity::$severity),+ }
            }
        }
    };
}

codes! {
    SoaMissing "soa-missing" Error "The apex has no SOA (RFC 1034 §4.2.1).",
    SoaMultiple "soa-multiple" Error "The apex has several SOA records (RFC 1035 §5.2).",
    SoaBelowApex "soa-below-apex" Error "A name below the apex has a SOA (RFC 1035 §5.2).",
    NsMissing "ns-missing" Error "The apex has no NS (RFC 1034 §4.2.1).",
    CnameNotAlone "cname-not-alone" Error "A CNAME stands beside other data (RFC 2181 §10.1).",
    CnameMultiple "cname-multiple" Error "A name has several CNAME records (RFC 2181 §10.1).",
    DnameMultiple "dname-multiple" Error "A name has several DNAME records (RFC 6672 §2.4).",
    DnameWithNs "dname-with-ns" Error "A DNAME stands at a zone cut (RFC 6672 §2.3).",
    BelowDname "below-dname" Error "Records lie below a DNAME (RFC 6672 §2.4).",
    DnameWildcard "dname-wildcard" Error "A wildcard has a DNAME (RFC 4592 §4.4).",
    NsWildcard "ns-wildcard" Error "A wildcard has an NS (RFC 4592 §4.2).",
    RrsetTooLarge "rrset-too-large" Error "An RRset fits in no message.",
    SoaMnameRoot "soa-mname-root" Warning "The SOA names the root as primary, that is: none.",
    NsNoAddress "ns-no-address" Warning "A name server has no address in the zone that should have it.",
    NsLoopback "ns-loopback" Warning "A name server's address is a loopback address.",
    NsAddressUnused "ns-address-unused" Warning "An address looks like a name server's, but no NS names it.",
    BelowCut "below-cut" Warning "Data at or below a zone cut that is neither glue nor the cut's own.",
    NsToCname "ns-to-cname" Warning "An NS names a CNAME (RFC 2181 §10.3).",
    MxToCname "mx-to-cname" Warning "An MX names a CNAME (RFC 2181 §10.3).",
    SrvToCname "srv-to-cname" Warning "A SRV names a CNAME (RFC 2782).",
    CnameToCname "cname-to-cname" Warning "A CNAME leads to another CNAME of the zone.",
    CnameLoop "cname-loop" Warning "A CNAME leads back to itself.",
    DsWithoutNs "ds-without-ns" Warning "A DS stands where no delegation is (RFC 4035 §2.4).",
    RrsigNothing "rrsig-covers-nothing" Warning "An RRSIG covers a type that its owner does not have.",
    RrsigSigner "rrsig-signer" Warning "An RRSIG's signer is not the zone (RFC 4035 §2.2).",
    Unsigned "rrset-unsigned" Warning "A signed zone has an RRset without RRSIG (RFC 4035 §2.2).",
    NoDenial "denial-missing" Warning "A signed zone has neither NSEC at its apex nor NSEC3PARAM.",
    RrsigExpired "rrsig-expired" Warning "A signature is no longer valid.",
    RrsigEarly "rrsig-not-yet-valid" Warning "A signature is not yet valid.",
    RrsigKey "rrsig-key-missing" Warning "A signature is by a key that is not in the zone.",
    RrsigLabels "rrsig-labels" Warning "A signature counts other labels than its owner has (RFC 4034 §3.1.3).",
    RrsigTtl "rrsig-ttl" Warning "An RRset has a longer TTL than was signed (RFC 4035 §2.2).",
    NsecMissing "nsec-missing" Warning "A name of a zone with NSEC has none (RFC 4035 §2.3).",
    NsecNext "nsec-next" Warning "An NSEC does not lead to the next name.",
    NsecTypes "nsec-types" Warning "An NSEC names other types than are there.",
    Nsec3Missing "nsec3-missing" Warning "A name of a zone with NSEC3 has none (RFC 5155 §7.1).",
    Nsec3Next "nsec3-next" Warning "An NSEC3 does not lead to the next hash.",
    Nsec3Types "nsec3-types" Warning "An NSEC3 names other types than are there.",
    Nsec3Stray "nsec3-stray" Warning "An NSEC3 is of no name of the zone.",
    Nsec3Iterations "nsec3-iterations" Warning "NSEC3 with further iterations (RFC 9276 §3.1).",
    Nsec3IterationsMax "nsec3-iterations-max" Error "NSEC3 with more iterations than anybody hashes: no proof can be given.",
    DsDigest "ds-digest" Warning "A DS whose digest has not the length of its type.",
}

impl Code {
    /// Whether it is a fault of the records that are there, whatever else the zone may have.
    pub const fn holds_for_part(self) -> bool {
        use Code::{
            BelowDname, CnameMultiple, CnameNotAlone, DnameMultiple, DnameWildcard, DnameWithNs, DsDigest, NsWildcard,
            RrsetTooLarge, RrsigExpired, SoaBelowApex, SoaMnameRoot, SoaMultiple,
        };
        matches!(
            self,
            SoaMultiple
                | SoaBelowApex
                | SoaMnameRoot
                | CnameNotAlone
                | CnameMultiple
                | DnameMultiple
                | DnameWithNs
                | DnameWildcard
                | BelowDname
                | NsWildcard
                | RrsetTooLarge
                | DsDigest
                | RrsigExpired
        )
    }
}

/// One thing that is wrong with a zone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The kind.
    pub code: Code,
    /// Whose records.
    pub owner: Name,
    /// Which of them, if it is about some; a record of this type and owner is in the zone, or else missing there.
    pub rtype: Option<RecordType>,
    /// What was found, and what to do, for people.
    pub message: String,
}

/// Checks `zone` and returns what is wrong with it, owner by owner in canonical order, at most [`FINDINGS_MAX`].
pub fn check(zone: &Contents) -> Vec<Finding> {
    check_at(zone, None)
}

/// [`check`], and whether signatures are valid at `now`, in seconds since 1970.
pub fn check_at(zone: &Contents, now: Option<u64>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let view = View::new(zone, now);
    check_apex(&view, &mut findings);
    if view.signed {
        signed::check_iterations(&view, &mut findings);
    }
    let mut above = Above::Nothing;
    for (owner, rrsets) in zone.owners() {
        if findings.len() >= FINDINGS_MAX {
            break;
        }
        if above.name().is_some_and(|name| !owner.is_below(name)) {
            above = Above::Nothing;
        }
        check_shape(&view, owner, rrsets, &mut findings);
        if view.servers.contains(owner) {
            check_loopback(owner, rrsets, &mut findings);
        }
        match above {
            Above::Nothing => {
                check_targets(&view, owner, rrsets, &mut findings);
                signed::check_owner(&view, owner, rrsets, &mut findings);
                check_cut(&view, owner, rrsets, &mut findings);
                above = Above::of(&view, owner, rrsets);
            }
            Above::Cut(cut) => check_below_cut(&view, cut, owner, rrsets, &mut findings),
            Above::Dname(dname) => findings.push(Finding {
                code: Code::BelowDname,
                owner: owner.clone(),
                rtype: rrsets.first().map(|rrset| rrset.rtype),
                message: format!(
                    "{owner} lies below the DNAME at {dname}: nothing may; move it or take the DNAME away"
                ),
            }),
        }
    }
    check_unused_addresses(&view, &mut findings);
    if view.signed {
        signed::check_chain(&view, &mut findings);
    }
    findings.truncate(FINDINGS_MAX);
    findings
}

/// What the checks ask of a zone again and again.
struct View<'a> {
    zone: &'a Contents,
    /// The names that NS records of the zone point at, where they lie in the zone.
    servers: HashSet<Name, foldhash::fast::RandomState>,
    /// The first labels of the apex's servers that lie outside the zone, in lower case, with the whole name.
    outside: Vec<(Vec<u8>, Name)>,
    signed: bool,
    /// Key tags and algorithms of the zone's keys.
    keys: Vec<(u16, u8)>,
    /// When signatures should be valid, in the arithmetic of their fields (RFC 4034 §3.1.5).
    now: Option<Serial>,
}

impl<'a> View<'a> {
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
        View { zone, servers, outside, signed: dnskeys.is_some(), keys: signed::keys(dnskeys), now }
    }

    fn is_cut(&self, owner: &Name, rrsets: &[Rrset]) -> bool {
        owner != self.zone.apex() && has(rrsets, RecordType::NS) && !owner.is_wildcard()
    }

    /// Whether an address would be looked up here rather than at someone else's server.
    fn has_address(&self, name: &Name) -> bool {
        let rrsets = self.zone.owner(name);
        has(rrsets, RecordType::A) || has(rrsets, RecordType::AAAA)
    }

    /// Whether a wildcard or DNAME of the zone, or a cut above `name`, may give it what it lacks.
    fn may_exist_otherwise(&self, name: &Name) -> bool {
        let mut ancestor = name.parent();
        while let Some(above) = ancestor.filter(|above| above.is_at_or_below(self.zone.apex())) {
            let wildcard = above.wildcard();
            if wildcard.is_ok_and(|wildcard| !self.zone.owner(&wildcard).is_empty()) {
                return true;
            }
            let rrsets = self.zone.owner(&above);
            if has(rrsets, RecordType::DNAME) {
                return true;
            }
            ancestor = above.parent();
        }
        false
    }
}

/// What hides the names below it.
enum Above<'a> {
    Nothing,
    Cut(&'a Name),
    Dname(&'a Name),
}

impl<'a> Above<'a> {
    fn of(view: &View<'_>, owner: &'a Name, rrsets: &[Rrset]) -> Self {
        if view.is_cut(owner, rrsets) {
            Above::Cut(owner)
        } else if has(rrsets, RecordType::DNAME) {
            Above::Dname(owner)
        } else {
            Above::Nothing
        }
    }

    fn name(&self) -> Option<&'a Name> {
        match *self {
            Above::Nothing => None,
            Above::Cut(name) | Above::Dname(name) => Some(name),
        }
    }
}

fn check_apex(view: &View<'_>, findings: &mut Vec<Finding>) {
    let apex = view.zone.apex();
    let mut push = |code, rtype, message| findings.push(Finding { code, owner: apex.clone(), rtype, message });
    match view.zone.get(apex, RecordType::SOA) {
        None => push(Code::SoaMissing, None, format!("{apex} has no SOA record: a zone needs one at its apex")),
        Some(soa) if soa.rdata.len() > 1 => {
            push(
                Code::SoaMultiple,
                Some(RecordType::SOA),
                format!("{apex} has {} SOA records, expected one", soa.rdata.len()),
            );
        }
        Some(soa) if soa.rdata[0].first() == Some(&0) => push(
            Code::SoaMnameRoot,
            Some(RecordType::SOA),
            "the SOA's primary is '.', which means none: name a server that NOTIFY and updates may go to".into(),
        ),
        Some(_) => {}
    }
    if view.zone.get(apex, RecordType::NS).is_none() {
        push(Code::NsMissing, None, format!("{apex} has no NS record: a zone needs one at its apex"));
    }
}

/// What one owner's records must not be, wherever it lies.
fn check_shape(view: &View<'_>, owner: &Name, rrsets: &[Rrset], findings: &mut Vec<Finding>) {
    let mut push =
        |code, rtype, message| findings.push(Finding { code, owner: owner.clone(), rtype: Some(rtype), message });
    for rrset in rrsets {
        let (rtype, count) = (rrset.rtype, rrset.rdata.len());
        let octets: usize = rrset.rdata.iter().map(|rdata| 12 + rdata.len()).sum();
        if octets > 65_535 {
            push(
                Code::RrsetTooLarge,
                rtype,
                format!("the {count} {rtype} records of {owner} need {octets} octets; a message holds 65535"),
            );
        }
        match rtype {
            RecordType::SOA if owner != view.zone.apex() => push(
                Code::SoaBelowApex,
                rtype,
                format!("a SOA at {owner}, but the zone is {}: put it into a zone file of its own", view.zone.apex()),
            ),
            RecordType::CNAME if count > 1 => {
                push(Code::CnameMultiple, rtype, format!("{owner} has {count} CNAME records, expected one"));
            }
            RecordType::DNAME if count > 1 => {
                push(Code::DnameMultiple, rtype, format!("{owner} has {count} DNAME records, expected one"));
            }
            RecordType::DNAME if owner.is_wildcard() => {
                push(Code::DnameWildcard, rtype, format!("a DNAME at the wildcard {owner} has no defined meaning"));
            }
            RecordType::NS if owner.is_wildcard() => {
                push(Code::NsWildcard, rtype, format!("an NS at the wildcard {owner}: delegate each name by itself"));
            }
            _ => {}
        }
    }
    if has(rrsets, RecordType::CNAME) {
        // RFC 2181 §10.1 with RFC 4034 §3, §4: signatures and proofs may stand beside it.
        const BESIDE: [RecordType; 6] =
            [RecordType::CNAME, RecordType::RRSIG, RecordType::NSEC, RecordType::SIG, RecordType::NXT, RecordType::KEY];
        if let Some(other) = rrsets.iter().find(|rrset| !BESIDE.contains(&rrset.rtype)) {
            push(
                Code::CnameNotAlone,
                other.rtype,
                format!("{owner} has a CNAME and also {}: a CNAME stands alone", other.rtype),
            );
        }
    }
    if owner != view.zone.apex() && has(rrsets, RecordType::NS) && has(rrsets, RecordType::DNAME) {
        push(Code::DnameWithNs, RecordType::DNAME, format!("{owner} has both NS and DNAME"));
    }
}

/// Where the records of an authoritative owner, or of a cut, point.
fn check_targets(view: &View<'_>, owner: &Name, rrsets: &[Rrset], findings: &mut Vec<Finding>) {
    for rrset in rrsets {
        let code = match rrset.rtype {
            RecordType::NS => Code::NsToCname,
            RecordType::MX => Code::MxToCname,
            RecordType::SRV => Code::SrvToCname,
            RecordType::CNAME => Code::CnameToCname,
            _ => continue,
        };
        for target in targets(rrset) {
            let mut push = |code, message| {
                findings.push(Finding { code, owner: owner.clone(), rtype: Some(rrset.rtype), message })
            };
            if has(view.zone.owner(&target), RecordType::CNAME) {
                match code {
                    Code::CnameToCname if leads_back(view.zone, owner) => {
                        push(Code::CnameLoop, format!("the CNAME of {owner} leads back to itself"));
                    }
                    _ => push(code, format!("{owner} {} points at {target}, which is a CNAME", rrset.rtype)),
                }
            } else if code == Code::NsToCname {
                check_server(view, owner, &target, &mut push);
            }
        }
    }
}

/// How far a chain of CNAMEs is followed when looking for a loop; servers give up earlier.
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

/// Whether the server `target` of the NS at `owner` can be reached by what the zone says.
fn check_server(view: &View<'_>, owner: &Name, target: &Name, push: &mut impl FnMut(Code, String)) {
    if target.is_at_or_below(view.zone.apex()) {
        // A server below another cut of this zone has its address there; only its own cut needs it as glue.
        let needs_address = owner == view.zone.apex() || target.is_at_or_below(owner) || !below_a_cut(view, target);
        if needs_address && !view.has_address(target) && !view.may_exist_otherwise(target) {
            push(
                Code::NsNoAddress,
                format!("the name server {target} of {owner} has no address: add an A or AAAA record for it"),
            );
        }
    } else if owner == view.zone.apex()
        && let Some(lookalike) = lookalike(view, target)
    {
        push(
            Code::NsNoAddress,
            format!(
                "the name server {target} lies outside the zone, which has no address for it: the address at {lookalike} \
                 is another name"
            ),
        );
    }
}

fn below_a_cut(view: &View<'_>, name: &Name) -> bool {
    let mut at = Some(name.clone());
    while let Some(ancestor) = at.filter(|ancestor| ancestor.is_below(view.zone.apex())) {
        if view.is_cut(&ancestor, view.zone.owner(&ancestor)) {
            return true;
        }
        at = ancestor.parent();
    }
    false
}

/// The name in the zone that carries addresses and has the first label of the server `target`, which lies outside.
fn lookalike(view: &View<'_>, target: &Name) -> Option<Name> {
    let candidate = view.zone.apex().prepend(target.labels().next()?).ok()?;
    (view.has_address(&candidate) && !view.servers.contains(&candidate)).then_some(candidate)
}

/// Addresses such as `ns1 A …` that were meant for a server whose name is spelled differently in the NS record.
fn check_unused_addresses(view: &View<'_>, findings: &mut Vec<Finding>) {
    for (label, server) in &view.outside {
        let Some(owner) = lookalike(view, server) else { continue };
        if findings.iter().any(|known| known.code == Code::NsAddressUnused && known.owner == owner) {
            continue;
        }
        check_loopback(&owner, view.zone.owner(&owner), findings);
        let rtype = view.zone.owner(&owner).first().map(|rrset| rrset.rtype);
        let message = format!(
            "no NS record names {owner}: it looks like the address of {server}; write '{}.' with its whole name and a \
             dot at the end, or name it in an NS record",
            label.escape_ascii()
        );
        findings.push(Finding { code: Code::NsAddressUnused, owner, rtype, message });
    }
}

/// Name servers that only this machine could ask.
fn check_loopback(owner: &Name, rrsets: &[Rrset], findings: &mut Vec<Finding>) {
    for rrset in rrsets {
        if let Some(address) = loopback_address(rrset) {
            findings.push(Finding {
                code: Code::NsLoopback,
                owner: owner.clone(),
                rtype: Some(rrset.rtype),
                message: format!("the name server {owner} has the loopback address {address}: others cannot reach it"),
            });
        }
    }
}

/// What may stand at a cut beside NS (RFC 4035 §2.4 to §2.6): DS and what proves it, and the cut's own glue.
fn check_cut(view: &View<'_>, owner: &Name, rrsets: &[Rrset], findings: &mut Vec<Finding>) {
    let cut = view.is_cut(owner, rrsets);
    for rrset in rrsets {
        let rtype = rrset.rtype;
        let mut push =
            |code, message| findings.push(Finding { code, owner: owner.clone(), rtype: Some(rtype), message });
        if rtype == RecordType::DS && !cut {
            push(Code::DsWithoutNs, format!("a DS at {owner}, which is not delegated here"));
        }
        if rtype == RecordType::DS
            && let Some((kind, found, expected)) = rrset.rdata.iter().find_map(|data| wrong_digest(data))
        {
            push(
                Code::DsDigest,
                format!("a DS of {owner} has a digest of {found} octets; one of type {kind} has {expected}"),
            );
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
            push(Code::BelowCut, format!("{owner} is delegated, so its {rtype} is never answered here"));
        }
    }
}

fn check_below_cut(view: &View<'_>, cut: &Name, owner: &Name, rrsets: &[Rrset], findings: &mut Vec<Finding>) {
    if let Some(rrset) = rrsets.iter().find(|rrset| !is_glue(view, owner, rrset.rtype)) {
        findings.push(Finding {
            code: Code::BelowCut,
            owner: owner.clone(),
            rtype: Some(rrset.rtype),
            message: format!("{owner} lies below the zone cut at {cut}, so its {} is never answered here", rrset.rtype),
        });
    }
}

fn is_glue(view: &View<'_>, owner: &Name, rtype: RecordType) -> bool {
    matches!(rtype, RecordType::A | RecordType::AAAA) && view.servers.contains(owner)
}

/// Digest type, length and right length of a DS whose digest is too short or too long.
fn wrong_digest(ds: &[u8]) -> Option<(u8, usize, usize)> {
    let &kind = ds.get(3)?;
    let found = ds.len() - 4;
    let expected = match kind {
        1 => 20,
        2 | 3 => 32,
        4 => 48,
        _ => return None,
    };
    (found != expected).then_some((kind, found, expected))
}

fn has(rrsets: &[Rrset], rtype: RecordType) -> bool {
    rrsets.iter().any(|rrset| rrset.rtype == rtype)
}

/// The last name in each record: the target of NS, MX, SRV and CNAME, the signer of RRSIG.
fn targets(rrset: &Rrset) -> impl Iterator<Item = Name> {
    rrset.rdata.iter().filter_map(|data| Name::from_wire(rdata::names(rrset.rtype, data).last()?.wire).ok())
}

/// The first loopback address among the records of an A or AAAA RRset.
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
