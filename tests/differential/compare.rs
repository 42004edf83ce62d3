//! What must be equal between two servers' answers, and what need not be.

use std::fmt;

use hickory_proto::op::Message;
use hickory_proto::rr::{Name, Record, RecordType};

/// Where Knot and NSD end a chain of aliases; what they would have said after it is not known.
const ENDLESS_ALIASES: usize = 5;

/// A response as an independent parser reads it; records as lower-case text, sorted.
pub struct Answer {
    rcode: u16,
    authoritative: bool,
    truncated: bool,
    answer: Vec<String>,
    authority: Vec<String>,
    additional: Vec<String>,
    /// What a referral delegates.
    cut: Option<Name>,
    /// The additional section's records, for owners to be compared.
    others: Vec<Record>,
}

impl Answer {
    pub fn parse(octets: &[u8]) -> Answer {
        let message = Message::from_vec(octets).unwrap_or_else(|error| panic!("unreadable: {error}: {octets:02x?}"));
        let lines = |records: &[Record]| {
            let mut lines: Vec<String> = records.iter().map(|record| record.to_string().to_ascii_lowercase()).collect();
            lines.sort();
            lines.dedup();
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
        }
    }

    fn aliases(&self) -> usize {
        self.answer.iter().filter(|line| line.contains(" in cname ")).count()
    }

    /// The addresses of name servers at or below what is delegated.
    fn in_domain_glue(&self) -> Vec<String> {
        let Some(cut) = &self.cut else { return Vec::new() };
        let glue = self.others.iter().filter(|record| cut.zone_of(&record.name));
        let mut lines: Vec<String> = glue.map(|record| record.to_string().to_ascii_lowercase()).collect();
        lines.sort();
        lines
    }

    /// The additional section's records of one owner and type, sorted.
    fn additional_rrset(&self, name: &Name, rtype: RecordType) -> Vec<String> {
        let same = self.others.iter().filter(|record| record.name == *name && record.record_type() == rtype);
        let mut lines: Vec<String> = same.map(|record| record.to_string().to_ascii_lowercase()).collect();
        lines.sort();
        lines
    }

    fn is_referral(&self) -> bool {
        self.answer.is_empty() && !self.authoritative && self.authority.iter().any(|line| line.contains(" in ns "))
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

/// Whether the two answers agree in what the standards fix. Accepted differences:
///
/// - The order of records in a section: RFC 1034 §3.6 gives an RRset none.
/// - NS records of the zone beside a positive answer: RFC 1034 §4.3.2 step 6 leaves additional data to the server, and
///   minimal responses are allowed; NSD sends them.
/// - Which RRsets are in the additional section, except for a referral's in-domain glue, which RFC 9471 §3.1 demands: sibling
///   glue is as there is room (§3.2), addresses beside answers are the server's choice (RFC 1034 §4.3.2 step 6, RFC 9460 §4.1
///   says SHOULD). An RRset that both have is the same in both.
/// - A record twice in one section (RFC 2181 §5 has it once): Knot writes a CNAME that points at itself so.
/// - With TC set, what of the message remains: RFC 2181 §9 has the client throw it away.
/// - TC where in-domain glue does not fit: RFC 9471 §3.1 demands all of it or TC; NSD leaves a part out without TC.
/// - Where a chain of aliases that never ends is cut off: no standard says; every server has a bound of its own.
pub fn compare(ours: &Answer, theirs: &Answer, server: &str) -> Result<(), String> {
    check("rcode", &ours.rcode, &theirs.rcode)?;
    if theirs.aliases() >= ENDLESS_ALIASES {
        return Ok(());
    }
    if server == "nsd" && ours.is_referral() && ours.truncated && !theirs.truncated {
        let glue = theirs.in_domain_glue();
        // Where it has less of one name server than of another, a part is left out. Knot's answer tells if TC is right.
        let of = |server: &str| glue.iter().filter(|line| line.starts_with(&format!("{server} "))).count();
        let servers = theirs.authority.iter().filter_map(|line| line.split(" in ns ").nth(1));
        let counts: Vec<usize> = servers.map(of).collect();
        let is_uneven = counts.iter().min() != counts.iter().max();
        if is_uneven || ours.in_domain_glue().iter().any(|line| !glue.contains(line)) {
            return check("authority", &ours.authority, &theirs.authority);
        }
    }
    check("truncated", &ours.truncated, &theirs.truncated)?;
    if ours.truncated {
        return Ok(());
    }
    check("authoritative", &ours.authoritative, &theirs.authoritative)?;
    check("answer", &ours.answer, &theirs.answer)?;
    check("authority", &required_authority(ours), &required_authority(theirs))?;
    if ours.is_referral() {
        check("glue", &ours.in_domain_glue(), &theirs.in_domain_glue())?;
    }
    for record in &ours.others {
        let of = |answer: &Answer| answer.additional_rrset(&record.name, record.record_type());
        if !of(theirs).is_empty() && record.record_type() != RecordType::OPT {
            check("an additional RRset", &of(ours), &of(theirs))?;
        }
    }
    Ok(())
}

fn check<T: PartialEq + fmt::Debug>(what: &str, ours: &T, theirs: &T) -> Result<(), String> {
    if ours == theirs { Ok(()) } else { Err(format!("{what} differs: {ours:?} against {theirs:?}")) }
}

/// The authority section without the zone's NS of a positive answer.
fn required_authority(answer: &Answer) -> Vec<&String> {
    let negative = answer.authority.iter().any(|line| line.contains(" in soa "));
    let keep_ns = answer.answer.is_empty() || negative || !answer.authoritative;
    answer.authority.iter().filter(|line| keep_ns || !line.contains(" in ns ")).collect()
}
