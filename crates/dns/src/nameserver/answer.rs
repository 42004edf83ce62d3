//! Answering from a zone: RFC 1034 §4.3.2, with the sections in the order of the message.
//!
//! Responses are minimal: no NS records next to an answer, and additional data only if a client would query it next. If required
//! data does not fit, TC is set; optional data is omitted without TC (RFC 2181 §9).
//!
//! Choices: CNAMEs are followed only within the zone, as in Knot, and at most [`CNAME_CHAIN_MAX`] of them. A loop ends the
//! chain. A CNAME to a name below one of the zone's cuts ends with the referral of that cut.

use super::names::{Names, after};
use super::proof;
use super::section::{Message, Owner, QUESTION, Section, Written};
use super::stats::Kind;
use super::zone_query::{CNAME_CHAIN_MAX, Current, ZoneQuery};
use crate::wire::RecordType;
use crate::wire::build::Full;
use crate::wire::header::Rcode;
use crate::wire::name::{NAME_OCTETS_MAX, expand, is_label_start, wire_end};
use crate::wire::question::QUESTION_AT;
use crate::zone::Zone;
use crate::zone::compression::RECORD_HEAD;
use crate::zone::lookup::{Ancestor, Found, Lookup, NameMatch, lookup_any, lookup_at, place};
use crate::zone::node::{Node, Records, Target, flag};
use crate::zone::qname::{NameHash, Qname};

/// The maximum number of names whose addresses are added to an answer; the in-domain glue of a referral has no such limit.
const ADDITIONAL_NAMES_MAX: usize = 16;

/// The outcome of an answer, apart from its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct AnswerOutcome {
    pub(super) rcode: Rcode,
    pub(super) authoritative: bool,
    pub(super) truncated: bool,
    pub(super) kind: Kind,
    /// The name that provides the answer: the owner of the records or of the first CNAME, also a wildcard; the cut; or the apex
    /// for a name that does not exist. Rate limiting counts by this name.
    pub(super) source: NameHash,
}

impl AnswerOutcome {
    /// Returns the outcome of a complete authoritative answer.
    #[inline(always)]
    fn of(rcode: Rcode, kind: Kind, source: NameHash) -> Self {
        AnswerOutcome { rcode, authoritative: true, truncated: false, kind, source }
    }

    /// Returns the outcome for a message without room for its records: clients would treat a part as complete (RFC 2181 §9). The
    /// response code is that of the complete message: with TC, it also refers to the last name of a chain (RFC 2308 §2.1).
    #[cold]
    fn cut(self, message: &mut Message<'_, '_>) -> Self {
        message.clear();
        AnswerOutcome { truncated: true, ..self }
    }
}

/// The end of the lookup of one name of a chain.
enum ChainStep {
    Done(AnswerOutcome),
    /// The name has a CNAME; this is the position of its target in the message.
    Cname {
        target_at: usize,
        /// The node of the CNAME or DNAME.
        source: NameHash,
    },
}

/// Writes the answer about `qname`, which is in the zone; [`Full`] if a required part does not fit.
#[inline]
pub(super) fn answer(ask: &ZoneQuery<'_>, qname: &Qname, message: &mut Message<'_, '_>) -> Result<AnswerOutcome, Full> {
    match attempt(ask, qname, message) {
        Ok(verdict) if !verdict.truncated => Ok(verdict),
        cut if !message.is_within_pointers() => cut,
        _ => attempt_again(ask, qname, message),
    }
}

/// Writes the answer again with compressed names, after it did not fit with its names as stored.
#[cold]
#[inline(never)]
fn attempt_again(ask: &ZoneQuery<'_>, qname: &Qname, message: &mut Message<'_, '_>) -> Result<AnswerOutcome, Full> {
    message.clear();
    let mut names = Names::new(message.writer.written(), QUESTION_AT);
    let mut again = message.again(&mut names);
    let result = attempt(ask, qname, &mut again);
    message.counts = again.counts;
    result
}

#[inline]
fn attempt(ask: &ZoneQuery<'_>, qname: &Qname, message: &mut Message<'_, '_>) -> Result<AnswerOutcome, Full> {
    match step(ask, Current { qname, at: QUESTION_AT, aliases: 0 }, message)? {
        ChainStep::Done(verdict) => Ok(verdict),
        ChainStep::Cname { target_at, source } => follow(ask, qname, target_at, source, message),
    }
}

/// Follows CNAMEs, starting at the target of the first one.
#[cold]
fn follow(
    ask: &ZoneQuery<'_>,
    asked: &Qname,
    mut target_at: usize,
    source: NameHash,
    message: &mut Message<'_, '_>,
) -> Result<AnswerOutcome, Full> {
    let left = AnswerOutcome::of(Rcode::NOERROR, Kind::Data, source);
    let mut seen: [NameHash; CNAME_CHAIN_MAX] = [asked.hash(0); CNAME_CHAIN_MAX];
    let mut qname = Qname::new();
    for aliases in 1..=CNAME_CHAIN_MAX {
        let mut octets = [0; NAME_OCTETS_MAX];
        let Some(target) = expand(message.writer.written(), target_at, &mut octets) else { break };
        qname.read(target);
        let above = qname.labels().checked_sub(ask.zone.apex_labels());
        if above.is_none_or(|above| qname.suffix(above) != ask.zone.apex_octets()) || seen.contains(&qname.hash(0)) {
            break;
        }
        if aliases == CNAME_CHAIN_MAX {
            break;
        }
        seen[aliases] = qname.hash(0);
        message.set_name(target_at, qname.length());
        match step(ask, Current { qname: &qname, at: target_at, aliases }, message)? {
            // The owner of the first name decides AA (RFC 1035 §4.1.1), and this server is authoritative for it.
            ChainStep::Done(verdict) => return Ok(AnswerOutcome { authoritative: true, source, ..verdict }),
            ChainStep::Cname { target_at: next, .. } => target_at = next,
        }
    }
    // The chain leaves the zone, is a loop, or is too long: it ends here.
    proof::expansions(ask, message)?;
    Ok(left)
}

/// Looks up one name and writes its records.
#[inline]
fn step(ask: &ZoneQuery<'_>, current: Current<'_>, message: &mut Message<'_, '_>) -> Result<ChainStep, Full> {
    let found = match ask.qtype {
        RecordType::RRSIG => return signatures_alone(ask, current, message),
        RecordType::ANY => lookup_any(ask.zone, current.qname),
        qtype => {
            let place = place(ask.zone, current.qname);
            // The common case, without a check of the rarer ones.
            if let Some(NameMatch::Found(found)) = &place
                && let Some(records) = found.answer(qtype)
            {
                return put_data(ask, current, found, &records, message);
            }
            place.and_then(|place| lookup_at(place, qtype))
        }
    };
    let apex = ask.zone.apex_hash();
    match found {
        Some(Lookup::Answer(found, records)) => put_rare_data(ask, current, &found, &records, message),
        Some(Lookup::NoData(found)) => {
            let proved = put_soa(ask, message).and_then(|()| proof::no_data(ask, current, &found, message));
            let verdict = AnswerOutcome::of(Rcode::NOERROR, Kind::NoData, apex);
            Ok(ChainStep::Done(proved.map_or_else(|Full| verdict.cut(message), |()| verdict)))
        }
        // The name may exist: the object that would provide it cannot be read, or has not arrived.
        Some(Lookup::NxDomain(_)) if !ask.zone.may_deny(ask.now) => Ok(ChainStep::Done(AnswerOutcome {
            authoritative: false,
            ..AnswerOutcome::of(Rcode::SERVFAIL, Kind::NoData, apex)
        })),
        Some(Lookup::NxDomain(encloser)) => {
            let proved = put_soa(ask, message).and_then(|()| proof::no_name(ask, current, &encloser, message));
            let verdict = AnswerOutcome::of(Rcode::NXDOMAIN, Kind::NxDomain, apex);
            Ok(ChainStep::Done(proved.map_or_else(|Full| verdict.cut(message), |()| verdict)))
        }
        Some(Lookup::Referral(cut, records)) => match put_referral(ask, current, &cut, &records, message) {
            Err(Full) if current.aliases == 0 => {
                // Truncated to nothing like any answer, but not authoritative: AA stays off.
                let verdict = AnswerOutcome::of(Rcode::NOERROR, Kind::Referral, cut.node.hash());
                Ok(ChainStep::Done(AnswerOutcome { authoritative: false, ..verdict.cut(message) }))
            }
            result => result.map(ChainStep::Done),
        },
        Some(Lookup::Cname(found, records)) => put_alias(ask, current, &found, &records, message),
        Some(Lookup::Dname(dname, records)) => put_dname(ask, current, &dname, &records, message),
        None => Ok(ChainStep::Done(AnswerOutcome {
            authoritative: false,
            ..AnswerOutcome::of(Rcode::SERVFAIL, Kind::NoData, apex)
        })),
    }
}

/// [`put_data`] for rare queries.
#[inline(never)]
fn put_rare_data(
    ask: &ZoneQuery<'_>,
    current: Current<'_>,
    found: &Found<'_>,
    records: &Records<'_>,
    message: &mut Message<'_, '_>,
) -> Result<ChainStep, Full> {
    put_data(ask, current, found, records, message)
}

/// Writes a CNAME that was found instead of the queried data.
#[inline(never)]
fn put_alias(
    ask: &ZoneQuery<'_>,
    current: Current<'_>,
    found: &Found<'_>,
    records: &Records<'_>,
    message: &mut Message<'_, '_>,
) -> Result<ChainStep, Full> {
    let written = put_answer(ask, current, found, records, message)?;
    let owner_end = after(message.writer.written(), written.start);
    Ok(ChainStep::Cname { target_at: owner_end + RECORD_HEAD - 2, source: found.node.hash() })
}

/// Writes the queried data and the records that go with it. Always inlined, like its callees: this is the most common path.
#[inline(always)]
fn put_data(
    ask: &ZoneQuery<'_>,
    current: Current<'_>,
    found: &Found<'_>,
    records: &Records<'_>,
    message: &mut Message<'_, '_>,
) -> Result<ChainStep, Full> {
    let written = put_answer(ask, current, found, records, message)?;
    if message.has_expansions() {
        proof::expansions(ask, message)?;
    }
    if records.has_targets() {
        put_additional(ask, current, found, records, written, message);
    }
    Ok(ChainStep::Done(AnswerOutcome::of(Rcode::NOERROR, Kind::Data, found.node.hash())))
}

/// Writes an RRset into the answer section, with its signatures. If it is from a wildcard, the proof that no closer name exists
/// is added at the end of the chain, because it belongs in the next section.
#[inline(always)]
fn put_answer(
    ask: &ZoneQuery<'_>,
    current: Current<'_>,
    found: &Found<'_>,
    records: &Records<'_>,
    message: &mut Message<'_, '_>,
) -> Result<Written, Full> {
    let owner = owner(current, message);
    let rotates = matches!(records.rtype(), RecordType::A | RecordType::AAAA) && records.stride() > 0;
    let written = if rotates {
        message.put_rotated(Section::Answer, owner, records, ask.random)?
    } else {
        message.put(Section::Answer, owner, records)?
    };
    if ask.dnssec && records.signature_count() > 0 {
        message.put_signatures(Section::Answer, owner, records)?;
        if found.synthesised > 0 {
            message.expanded(current.at, found.synthesised);
        }
    }
    Ok(written)
}

/// Returns the owner of records about the current name.
#[inline]
fn owner<'a>(current: Current<'a>, message: &Message<'_, '_>) -> Owner<'a> {
    if current.aliases == 0 {
        return QUESTION;
    }
    ancestor_owner(current, 0, message)
}

/// Returns the owner of the current name without its first `above` labels, at or below the apex.
pub(super) fn ancestor_owner<'a>(current: Current<'a>, above: usize, message: &Message<'_, '_>) -> Owner<'a> {
    let Owner::At(apex_at) = message.apex() else { return QUESTION };
    let start = current.qname.start(above);
    let apex_start = current.qname.length() - message.apex_octets();
    // In a target that ends in a pointer, only the labels above the apex are certain to be contiguous.
    if start >= apex_start {
        return Owner::At(apex_at);
    }
    message.owner_at(current.at + start, &current.qname.octets()[start..apex_start])
}

/// Writes the SOA of a negative answer (RFC 2308 §3).
fn put_soa(ask: &ZoneQuery<'_>, message: &mut Message<'_, '_>) -> Result<(), Full> {
    let soa = ask.zone.apex_node().and_then(|apex| apex.get(RecordType::SOA));
    let Some(soa) = soa else { return Ok(()) };
    message.put_negative(message.apex(), &soa, ask.zone.negative_ttl(), ask.dnssec)
}

/// Writes the DNAME, then the CNAME that it synthesizes for the current name (RFC 6672 §3.2).
#[cold]
fn put_dname(
    ask: &ZoneQuery<'_>,
    current: Current<'_>,
    dname: &Ancestor<'_>,
    records: &Records<'_>,
    message: &mut Message<'_, '_>,
) -> Result<ChainStep, Full> {
    let owner = ancestor_owner(current, dname.above, message);
    // A chain may pass the same DNAME twice; a message holds a record once (RFC 2181 §5).
    if current.aliases == 0 || !has_dname(message, current.qname.suffix(dname.above)) {
        message.put(Section::Answer, owner, records)?;
        if ask.dnssec {
            message.put_signatures(Section::Answer, owner, records)?;
        }
    }
    let source = dname.node.hash();
    let verdict = |rcode| AnswerOutcome::of(rcode, Kind::Data, source);
    let rdata = records.records().get(RECORD_HEAD..).unwrap_or_default();
    let Ok(target) = wire_end(rdata).map(|end| &rdata[..end]) else {
        return Ok(ChainStep::Done(verdict(Rcode::SERVFAIL)));
    };
    let kept = current.qname.start(dname.above);
    let length = kept + target.len();
    if length > NAME_OCTETS_MAX {
        proof::expansions(ask, message)?;
        return Ok(ChainStep::Done(verdict(Rcode::YXDOMAIN)));
    }
    let mut octets = [0; NAME_OCTETS_MAX];
    // The labels in front of the DNAME's owner as in the message, thus in the client's case.
    if expand(message.writer.written(), current.at, &mut octets).is_none() {
        return Ok(ChainStep::Done(verdict(Rcode::SERVFAIL)));
    }
    octets[kept..length].copy_from_slice(target);
    let target_at = message.put_cname(self::owner(current, message), records.ttl(), &octets[..length])?;
    if matches!(ask.qtype, RecordType::CNAME | RecordType::ANY) {
        // The query was for the CNAME.
        return Ok(ChainStep::Done(verdict(Rcode::NOERROR)));
    }
    Ok(ChainStep::Cname { target_at, source })
}

/// Writes a referral: the cut's NS records, DS or the proof that there is none, and glue.
fn put_referral(
    ask: &ZoneQuery<'_>,
    current: Current<'_>,
    cut: &Ancestor<'_>,
    records: &Records<'_>,
    message: &mut Message<'_, '_>,
) -> Result<AnswerOutcome, Full> {
    let owner = ancestor_owner(current, cut.above, message);
    let written = message.put(Section::Authority, owner, records)?;
    // Without a signature the DS proves nothing; RFC 4035 §3.1.4.1 applies only to signed zones.
    match cut.node.get(RecordType::DS).filter(|ds| ask.dnssec && ds.signature_count() > 0) {
        Some(ds) => {
            message.put(Section::Authority, owner, &ds)?;
            message.put_signatures(Section::Authority, owner, &ds)?;
            proof::expansions(ask, message)?;
        }
        None => proof::no_ds(ask, current, cut, message)?,
    }
    let mut truncated = false;
    // RFC 9471 §3: all glue of name servers in the delegated domain, or TC. Other glue in this zone if there is room.
    for in_domain in [true, false] {
        for target in records.targets() {
            if is_at_or_below(target.relative, cut.node.relative()) != in_domain {
                continue;
            }
            let Some(node) = find_target(ask.zone, &target) else { continue };
            let owner = target_owner(written, &target, message);
            for rtype in [RecordType::A, RecordType::AAAA] {
                if put_address(ask, owner, &node, rtype, message).is_err() && in_domain {
                    truncated = true;
                }
            }
        }
    }
    let referral = AnswerOutcome::of(Rcode::NOERROR, Kind::Referral, cut.node.hash());
    Ok(AnswerOutcome { authoritative: false, truncated, ..referral })
}

/// Writes addresses of names in the answer's RDATA, while there is room.
#[cold]
fn put_additional(
    ask: &ZoneQuery<'_>,
    current: Current<'_>,
    found: &Found<'_>,
    records: &Records<'_>,
    written: Written,
    message: &mut Message<'_, '_>,
) {
    let is_service = matches!(records.rtype(), RecordType::SVCB | RecordType::HTTPS);
    let asked = current.qname.hash(0);
    let mut seen: [NameHash; ADDITIONAL_NAMES_MAX] = [0; ADDITIONAL_NAMES_MAX];
    let mut count = 0;
    for target in records.targets() {
        let hash = if target.is_owner { asked } else { target.hash };
        if seen[..count].contains(&hash) {
            continue;
        }
        if count == ADDITIONAL_NAMES_MAX {
            return;
        }
        seen[count] = hash;
        count += 1;
        let (node, owner) = if target.is_owner {
            (Some(found.node), owner(current, message))
        } else {
            (find_target(ask.zone, &target), target_owner(written, &target, message))
        };
        let Some(node) = node else { continue };
        if node.flags() & (flag::OCCLUDED | flag::CUT) != 0 {
            // Data at or below a cut belongs to the other zone. But the address of one of this zone's own name servers is glue:
            // without it, a client might not reach that server. Knot and NSD also add it.
            if records.rtype() == RecordType::NS {
                for rtype in [RecordType::A, RecordType::AAAA] {
                    let _ = put_glue(ask, owner, &node, rtype, message);
                }
            }
            continue;
        }
        // RFC 9460 §4.1: also the SVCB records of targets, but not those that are the answer.
        let service = (is_service && hash != asked).then_some(records.rtype());
        for rtype in [RecordType::A, RecordType::AAAA].into_iter().chain(service) {
            // Optional: addresses that do not fit are omitted.
            let _ = put_address(ask, owner, &node, rtype, message);
        }
    }
}

/// Returns the owner of a target's records: the position of the name in the written RRset, if a pointer reaches it.
fn target_owner<'a>(written: Written, target: &Target<'a>, message: &Message<'_, '_>) -> Owner<'a> {
    match target.relative {
        relative if written.as_stored => message.owner_at(written.start + target.at, relative),
        [] => message.apex(),
        relative => Owner::Relative(relative),
    }
}

fn put_address(
    ask: &ZoneQuery<'_>,
    owner: Owner<'_>,
    node: &Node<'_>,
    rtype: RecordType,
    message: &mut Message<'_, '_>,
) -> Result<(), Full> {
    let start = message.writer.position();
    put_glue(ask, owner, node, rtype, message)?;
    if ask.dnssec
        && let Some(records) = node.get(rtype)
        && records.count() > 0
        && records.signature_count() > 0
    {
        // RFC 4035 §3.1.1: if the signatures do not fit, the RRset may be sent without them.
        let _ = message.put_signatures(Section::Additional, message.same_owner(owner, start), &records);
    }
    Ok(())
}

/// Writes an RRset of the additional section without signatures: glue has none (RFC 4035 §2.2).
fn put_glue(
    ask: &ZoneQuery<'_>,
    owner: Owner<'_>,
    node: &Node<'_>,
    rtype: RecordType,
    message: &mut Message<'_, '_>,
) -> Result<(), Full> {
    let Some(records) = node.get(rtype).filter(|records| records.count() > 0) else { return Ok(()) };
    if records.stride() > 0 && rtype != RecordType::SVCB && rtype != RecordType::HTTPS {
        message.put_rotated(Section::Additional, owner, &records, ask.random)?;
    } else {
        message.put(Section::Additional, owner, &records)?;
    }
    Ok(())
}

/// Returns the node with a target's addresses: its own, or that of the wildcard that covers it.
fn find_target<'z>(zone: &'z Zone, target: &Target<'_>) -> Option<Node<'z>> {
    let mut octets = [0; NAME_OCTETS_MAX];
    let (relative, rest) = octets.split_at_mut(target.relative.len());
    relative.copy_from_slice(target.relative);
    relative.make_ascii_lowercase();
    if let Some(node) = zone.find(target.hash, relative) {
        return Some(node);
    }
    let apex = zone.apex_octets();
    rest.get_mut(..apex.len())?.copy_from_slice(apex);
    match place(zone, &Qname::of(&octets[..target.relative.len() + apex.len()]))? {
        NameMatch::Found(found) => Some(found.node),
        _ => None,
    }
}

/// Returns whether the labels above the apex, in any case, belong to a name at or below the name with the labels `ancestor`, in
/// lower case.
fn is_at_or_below(relative: &[u8], ancestor: &[u8]) -> bool {
    let Some(start) = relative.len().checked_sub(ancestor.len()) else { return false };
    is_label_start(relative, start) && relative[start..].eq_ignore_ascii_case(ancestor)
}

/// Returns whether the answer section has a DNAME record of `owner`, which is in lower case, in wire form.
fn has_dname(message: &Message<'_, '_>, owner: &[u8]) -> bool {
    let written = message.writer.written();
    let mut at = message.question_end();
    for _ in 0..message.counts[Section::Answer as usize] {
        let mut octets = [0; NAME_OCTETS_MAX];
        let name = expand(written, at, &mut octets);
        at = after(written, at);
        let is_dname = written[at..at + 2] == RecordType::DNAME.0.to_be_bytes();
        if is_dname && name.is_some_and(|name| name.eq_ignore_ascii_case(owner)) {
            return true;
        }
        at += 10 + usize::from(u16::from_be_bytes([written[at + 8], written[at + 9]]));
    }
    false
}

/// Adds all signatures at the name, for a query for RRSIG.
#[cold]
fn signatures_alone(
    ask: &ZoneQuery<'_>,
    current: Current<'_>,
    message: &mut Message<'_, '_>,
) -> Result<ChainStep, Full> {
    if let Some(NameMatch::Found(found)) = place(ask.zone, current.qname) {
        let mut any = false;
        // DS at the apex belongs to the parent zone, and so do its signatures.
        let is_ours = |records: &Records<'_>| !(found.node.is_apex() && records.rtype() == RecordType::DS);
        for records in found.node.rrsets().filter(|records| records.signature_count() > 0 && is_ours(records)) {
            message.put_signatures(Section::Answer, owner(current, message), &records)?;
            any = true;
        }
        if any {
            if ask.dnssec && found.synthesised > 0 {
                message.expanded(current.at, found.synthesised);
            }
            if message.has_expansions() {
                proof::expansions(ask, message)?;
            }
            return Ok(ChainStep::Done(AnswerOutcome::of(Rcode::NOERROR, Kind::Data, found.node.hash())));
        }
    }
    // The answer is the same as for a type that no name has.
    step(&ZoneQuery { qtype: RecordType::OPT, ..*ask }, current, message)
}
