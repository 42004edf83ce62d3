//! The parts of two servers' answers that must be equal, and the permitted differences.

use std::collections::BTreeSet;
use std::fmt;

use hickory_proto::op::Message;
use hickory_proto::rr::{Name, RData, Record, RecordType};

/// The number of CNAMEs at which Knot and NSD cut off a chain; the rest of their answer is unknown.
const ENDLESS_ALIASES: usize = 5;
const NXDOMAIN: u16 = 3;
const RRSIG: u16 = 46;
const NSEC: u16 = 47;
pub const ANY: u16 = 255;

/// A response as an independent parser reads it; records as lower-case text, sorted.
pub struct Answer {
    rcode: u16,
    authoritative: bool,
    pub truncated: bool,
    answer: Vec<String>,
    authority: Vec<String>,
    additional: Vec<String>,
    /// The zone cut of a referral.
    cut: Option<Name>,
    /// The additional section's records, for owners to be compared.
    others: Vec<Record>,
    /// The queried name, and the targets of the CNAMEs in the answer section.
    pub path: Vec<Name>,
}

impl Answer {
    /// Parses `octets`, with each record once per section: see [`compare`].
    pub fn parse(octets: &[u8]) -> Answer {
        let mut answer = Self::parse_as_is(octets);
        [&mut answer.answer, &mut answer.authority, &mut answer.additional].into_iter().for_each(Vec::dedup);
        answer
    }

    /// Parses `octets`, with duplicate records.
    pub fn parse_as_is(octets: &[u8]) -> Answer {
        let message = Message::from_vec(octets).unwrap_or_else(|error| panic!("unreadable: {error}: {octets:02x?}"));
        let lines = |records: &[Record]| {
            let mut lines: Vec<String> = records.iter().map(|record| record.to_string().to_ascii_lowercase()).collect();
            lines.sort();
            lines
        };
        Answer {
            rcode: u16::from(message.metadata.response_code),
            authoritative: message.metadata.authoritative,
            truncated: message.metadata.truncation,
            answer: lines(&message.answers),
            authority: lines(&message.authorities),
            additional: lines(&message.additionals),
            cut: message
                .authorities
                .iter()
                .find(|record| record.record_type() == RecordType::NS)
                .map(|ns| ns.name.clone()),
            others: message.additionals,
            path: message
                .queries
                .iter()
                .map(|query| query.name.clone())
                .chain(message.answers.iter().filter_map(|record| match &record.data {
                    RData::CNAME(target) => Some(target.0.clone()),
                    _ => None,
                }))
                .collect(),
        }
    }

    /// Returns a record that occurs twice in a section, or in the additional section although the answer contains it (RFC 2181
    /// §5).
    fn repeated(&self) -> Option<&String> {
        let in_section = |section: &'_ [String]| section.windows(2).position(|pair| pair[0] == pair[1]);
        let sections = [&self.answer, &self.authority, &self.additional];
        let twice = sections.into_iter().find_map(|section| in_section(section).map(|at| &section[at]));
        twice.or_else(|| self.additional.iter().find(|line| self.answer.contains(line)))
    }

    fn aliases(&self) -> usize {
        self.answer.iter().filter(|line| line.contains(" in cname ")).count()
    }

    /// Returns the addresses of name servers at or below what is delegated.
    fn in_domain_glue(&self) -> Vec<String> {
        let Some(cut) = &self.cut else { return Vec::new() };
        let glue = self.others.iter().filter(|record| cut.zone_of(&record.name));
        let mut lines: Vec<String> = glue.map(|record| record.to_string().to_ascii_lowercase()).collect();
        lines.sort();
        lines
    }

    /// Returns the additional section's records of one owner and type, sorted.
    fn additional_rrset(&self, name: &Name, rtype: RecordType) -> Vec<String> {
        let same = self.others.iter().filter(|record| record.name == *name && record.record_type() == rtype);
        let mut lines: Vec<String> = same.map(|record| record.to_string().to_ascii_lowercase()).collect();
        lines.sort();
        lines
    }

    /// Returns the types of the additional section's records of one owner.
    fn additional_types(&self, name: &Name) -> BTreeSet<u16> {
        self.others.iter().filter(|record| record.name == *name).map(|record| record.record_type().into()).collect()
    }

    /// Returns the proof of nonexistence, with all signatures of that section.
    fn proof(&self) -> Vec<&String> {
        self.authority.iter().filter(|line| is_of_proof(line)).collect()
    }

    /// Returns whether the response is only an RCODE, without a signed proof.
    fn is_bare_name_error(&self) -> bool {
        let sections = [&self.answer, &self.authority];
        self.rcode == NXDOMAIN && !self.authoritative && sections.iter().all(|section| section.is_empty())
    }

    /// Limits the TTL of SOA records in the authority section by their field MINIMUM; returns whether that changes one.
    pub fn limit_negative_ttl(&mut self) -> bool {
        let limited = |line: &String| -> Option<String> {
            let mut words: Vec<&str> = line.split(' ').collect();
            let (ttl, minimum) = (words[1], *words.last()?);
            let is_above = words[3] == "soa" && ttl.parse::<u32>().ok()? > minimum.parse().ok()?;
            is_above.then(|| {
                words[1] = minimum;
                words.join(" ")
            })
        };
        let mut is_changed = false;
        for line in &mut self.authority {
            if let Some(other) = limited(line) {
                (*line, is_changed) = (other, true);
            }
        }
        is_changed
    }

    /// Returns the CNAME and NS records of a referral, in whichever section they are, without those of the apex.
    pub fn referral(&self, apex: &str) -> BTreeSet<&String> {
        let is_of_apex = |line: &str| line.split(' ').next() == Some(apex);
        self.answer.iter().chain(&self.authority).filter(|line| !is_of_apex(line)).collect()
    }

    pub fn has_dname(&self) -> bool {
        self.answer.iter().any(|line| line.contains(" in dname "))
    }

    /// Returns whether this is a chain of CNAMEs with a negative response at its end, and `other` is only the chain.
    pub fn is_longer_than(&self, other: &Answer) -> bool {
        let has_chain = self.aliases() > 0 && self.answer == other.answer;
        has_chain && self.has_soa() && other.rcode == 0 && !other.has_soa()
    }

    fn has_soa(&self) -> bool {
        self.authority.iter().any(|line| line.contains(" in soa "))
    }

    /// Returns whether a response of Signpost is a referral, or a chain of CNAMEs that ends in one: Signpost adds NS records to
    /// this section in no other case.
    pub fn is_referral(&self) -> bool {
        self.authority.iter().any(|line| line.contains(" in ns "))
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "rcode {} aa {} tc {}", self.rcode, self.authoritative, self.truncated)?;
        for (title, records) in
            [("answer", &self.answer), ("authority", &self.authority), ("additional", &self.additional)]
        {
            records.iter().try_for_each(|record| writeln!(f, "{title}: {record}"))?;
        }
        Ok(())
    }
}

/// The difference between two answers.
#[derive(Debug)]
pub enum Difference {
    /// Differences only in NSEC and NSEC3 records and their signatures: those in our answer only, and those in theirs only.
    Proof { ours: Vec<String>, theirs: Vec<String> },
    /// In anything else.
    Other(String),
}

/// Returns the unaccepted differences between our answer and those of Knot and NSD, each with the server's name. `arbiter` is the
/// answer of `named`, which is queried only about proofs of nonexistence; `zone` is the zone's text.
///
/// Each record of a proof must be in the answer of one of the three other servers, and a record in the answers of two of them
/// must not be missing. The accepted differences of one server are:
///
/// - Knot omits the proof that there is no closer name in a query for a wildcard's own name, even below another wildcard that
///   then covers it. RFC 4035 §3.1.3.3 and RFC 5155 §7.2.5, §7.2.6 demand it.
/// - Knot and `named` omit the proof that a wildcard does not have the type if the wildcard exists only because of names below
///   it. RFC 4035 §3.1.3.4 demands it.
/// - Knot returns NXDOMAIN without AA and without any records if the closest encloser exists only for unsigned delegations, and
///   opt-out has left it out of the chain. RFC 5155 §7.2.1 uses the closest provable encloser.
/// - NSD omits the NSEC3 record that matches the closest encloser, or returns those of other names, in three cases: if a wildcard
///   does not have the type, after a DNAME, and if opt-out has left names out of the chain: RFC 5155 §7.2.1, §7.2.5.
/// - NSD returns one more NSEC3 record for a query for a wildcard's own name. RFC 5155 §7.2.3 has only the matching one.
/// - NSD omits the NSEC record that covers the target name of a DNAME. RFC 4035 §3.1.3.2 and §3.1.3.4 demand it.
/// - NSD returns, instead of the NSEC record that covers a wildcard or in addition to it, one that covers nothing, if there are
///   names below a label that sorts before `*`. RFC 4035 §3.1.3.2 demands the record that covers the wildcard in canonical order
///   (RFC 4034 §6.1).
/// - For a query for RRSIG, Knot returns the signatures of one RRset only, like RFC 8482 §4.1 permits for ANY. Signpost returns
///   all, like NSD and `named`.
/// - For a query for RRSIG or NSEC at a CNAME without such records, Knot and `named` return NODATA. Signpost follows the CNAME
///   like for any type (RFC 1034 §4.3.2 step 3a), as NSD does.
/// - For a query for ANY, each server chooses its answer (RFC 8482 §4.1): ours must be a part of `named`'s, see [`compare_any`]. Its proofs are
///   those of `named`, and at most those that another server adds.
/// - TC, if the whole answer fits for Signpost and for another of the three: RFC 1035 §4.1.4 leaves name compression to the
///   server.
pub fn differences(
    qtype: u16,
    ours: &Answer,
    others: [(&'static str, &Answer); 2],
    arbiter: &Answer,
    zone: &str,
) -> Vec<(&'static str, String)> {
    let proofs = [others[0].1, others[1].1, arbiter].map(Answer::proof);
    let givers = |line: &String| proofs.iter().filter(|proof| proof.contains(&line)).count();
    let mut differences = Vec::new();
    if let Some(line) = ours.repeated() {
        differences.push(("signpost", format!("is there twice: {line}")));
    }
    if qtype == ANY {
        let any = compare_any(ours, arbiter).err();
        differences.extend(any.map(|difference| ("named", difference)));
        let (ours, theirs) = (ours.proof(), arbiter.proof());
        let is_excess = |line: &&String| !theirs.contains(line) && givers(line) == 0;
        if ours.iter().any(is_excess) || theirs.iter().any(|line| !ours.contains(line)) {
            differences.push(("named", format!("proofs differ: {ours:?} against {theirs:?}")));
        }
        return differences;
    }
    for (server, theirs) in others {
        // A DNAME may have led to the alias.
        let stops_before = || theirs.rcode == 0 && theirs.answer.iter().all(|line| ours.answer.contains(line));
        let follows = matches!(qtype, RRSIG | NSEC) && ours.aliases() > 0;
        let stays = follows && theirs.answer.len() < ours.answer.len() && stops_before();
        if server == "knot" && (qtype == RRSIG && !ours.answer.is_empty() || stays) {
            continue;
        }
        let fits_elsewhere = [others[0].1, others[1].1, arbiter].iter().any(|answer| !answer.truncated);
        if theirs.truncated && !ours.truncated && fits_elsewhere {
            continue;
        }
        if server == "knot" && theirs.is_bare_name_error() && ours.rcode == theirs.rcode && has_opt_out(zone) {
            continue;
        }
        match compare(ours, theirs, server) {
            Ok(()) => {}
            Err(Difference::Other(text)) => differences.push((server, text)),
            Err(Difference::Proof { ours, theirs }) => {
                // If only NSD follows the CNAME, no other server has the records that it omits.
                if !follows && ours.iter().any(|line| givers(line) == 0) || theirs.iter().any(|line| givers(line) > 1) {
                    differences.push((server, format!("proofs differ: {ours:?} against {theirs:?}")));
                }
            }
        }
    }
    differences
}

/// Whether our answer to ANY is a part of what `named` gives, in which all RRsets of a name are.
fn compare_any(ours: &Answer, theirs: &Answer) -> Result<(), String> {
    let text = |difference| format!("{difference:?}");
    check("rcode", &ours.rcode, &theirs.rcode).map_err(text)?;
    if ours.truncated || theirs.truncated {
        return Ok(());
    }
    check("authoritative", &ours.authoritative, &theirs.authoritative).map_err(text)?;
    check("whether there are answers", &ours.answer.is_empty(), &theirs.answer.is_empty()).map_err(text)?;
    if let Some(line) = ours.answer.iter().find(|line| !theirs.answer.contains(line)) {
        return Err(format!("is not there for named: {line}"));
    }
    Ok(())
}

/// Returns whether a zone's text has NSEC3 records with the flag for opt-out.
fn has_opt_out(zone: &str) -> bool {
    zone.lines().any(|line| line.split_ascii_whitespace().skip_while(|word| *word != "NSEC3").nth(2) == Some("1"))
}

/// Returns whether this is a record of NSEC or NSEC3, or a signature.
fn is_of_proof(line: &str) -> bool {
    [" in nsec ", " in nsec3 ", " in rrsig "].iter().any(|rtype| line.contains(rtype))
}

/// Compares two answers in all parts that the standards define. Accepted differences:
///
/// - The order of records in a section: RFC 1034 §3.6 defines no order in an RRset.
/// - NS records of the zone in addition to a positive answer: RFC 1034 §4.3.2 step 6 leaves additional data to the server, and
///   minimal responses are allowed; NSD sends them.
/// - The RRsets in the additional section, except for a referral's in-domain glue, which RFC 9471 §3.1 demands: sibling glue
///   depends on space (§3.2), and addresses for answers are the server's choice (RFC 1034 §4.3.2 step 6; a SHOULD in RFC 9460
///   §4.1). An RRset in both answers is the same in both.
/// - A record twice in one section (once according to RFC 2181 §5): Knot writes a CNAME that points to itself twice.
/// - With TC set, the remaining content of the message: according to RFC 2181 §9, the client discards it.
/// - TC if in-domain glue does not fit, even at the end of a chain of CNAMEs: RFC 9471 §3.1 demands all of it or TC; NSD omits a
///   part without TC.
/// - The length at which an endless chain of CNAMEs is cut off: no standard defines it; every server has its own limit.
pub fn compare(ours: &Answer, theirs: &Answer, server: &str) -> Result<(), Difference> {
    check("rcode", &ours.rcode, &theirs.rcode)?;
    if theirs.aliases() >= ENDLESS_ALIASES {
        return Ok(());
    }
    if server == "nsd" && ours.is_referral() && ours.truncated && !theirs.truncated {
        let glue = theirs.in_domain_glue();
        // If it has fewer addresses of one name server than of another, a part is missing. Knot's answer shows whether TC is
        // correct.
        let of = |server: &str| glue.iter().filter(|line| line.starts_with(&format!("{server} "))).count();
        let servers = theirs.authority.iter().filter_map(|line| line.split(" in ns ").nth(1));
        let counts: Vec<usize> = servers.map(of).collect();
        let is_uneven = counts.iter().min() != counts.iter().max();
        if is_uneven || ours.in_domain_glue().iter().any(|line| !glue.contains(line)) {
            check("answer", &ours.answer, &theirs.answer)?;
            return check("authority", &ours.authority, &theirs.authority);
        }
    }
    check("truncated", &ours.truncated, &theirs.truncated)?;
    if ours.truncated {
        return Ok(());
    }
    check("authoritative", &ours.authoritative, &theirs.authoritative)?;
    check("answer", &ours.answer, &theirs.answer)?;
    let required = |answer| required_authority(answer, ours.is_referral());
    let ([ours_plain, ours_proof], [theirs_plain, theirs_proof]) = (required(ours), required(theirs));
    check("authority", &ours_plain, &theirs_plain)?;
    let without = |all: &[&String], other: &[&String]| -> Vec<String> {
        all.iter().filter(|line| !other.contains(line)).map(|line| (*line).clone()).collect()
    };
    let proof = (without(&ours_proof, &theirs_proof), without(&theirs_proof, &ours_proof));
    if ours.is_referral() {
        check("glue", &ours.in_domain_glue(), &theirs.in_domain_glue())?;
    }
    for record in &ours.others {
        let of = |answer: &Answer| answer.additional_rrset(&record.name, record.record_type());
        // Signatures are there for those RRsets that are.
        let is_comparable = match record.record_type() {
            RecordType::OPT => false,
            RecordType::RRSIG => ours.additional_types(&record.name) == theirs.additional_types(&record.name),
            _ => true,
        };
        if is_comparable && !of(theirs).is_empty() {
            check("an additional RRset", &of(ours), &of(theirs))?;
        }
    }
    match proof {
        (ours, theirs) if ours.is_empty() && theirs.is_empty() => Ok(()),
        (ours, theirs) => Err(Difference::Proof { ours, theirs }),
    }
}

fn check<T: PartialEq + fmt::Debug>(what: &str, ours: &T, theirs: &T) -> Result<(), Difference> {
    match ours == theirs {
        true => Ok(()),
        false => Err(Difference::Other(format!("{what} differs: {ours:?} against {theirs:?}"))),
    }
}

/// Returns the authority section, without the zone's NS records of a positive answer: records that prove nothing, and proofs with
/// all signatures.
fn required_authority(answer: &Answer, is_referral: bool) -> [Vec<&String>; 2] {
    let keep_ns = is_referral || answer.answer.is_empty() || answer.has_soa() || !answer.authoritative;
    let required = answer.authority.iter().filter(|line| keep_ns || !line.contains(" in ns "));
    let (proof, plain) =
        required.partition(|line| [" in nsec ", " in nsec3 ", " in rrsig "].iter().any(|rtype| line.contains(rtype)));
    [plain, proof]
}
