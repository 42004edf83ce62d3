//! `spec.records` of a Router: further records of the shard's zone, in zone-file syntax (RFC 1035 §5.1).
//!
//! Each entry is one record, relative to the shard's zone, with the Router's TTL unless it names one. Directives are rejected: an
//! object must not make a name server read its files. The restrictions on entries are defined here once, so that no entry can
//! make the zone unloadable: each invalid one is omitted with a diagnostic, and the others are served.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use super::diagnostic::Diagnostic;
use super::inputs::RouterInput;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::{Contents, Ttl};
use signpost_dns::zonefile::{Record, Severity, read_records};

/// Adds a Router's further records to its shard's, which contain only the wildcard's addresses before. Names at and below `cuts` belong
/// to other shards.
pub fn add(
    contents: &mut Contents,
    router: &RouterInput,
    cuts: &BTreeSet<Name>,
    wildcard: &Name,
    diagnostics: &mut Vec<Diagnostic>,
) {
    for (at, text) in router.records.iter().enumerate() {
        let record = read(text, router).and_then(|record| match cut_above(cuts, &record.owner) {
            None => Ok(record),
            Some(cut) => {
                Err(format!("{} is in {cut}, the zone of another Router; add the record to that Router", record.owner))
            }
        });
        let added = record.and_then(|record| add_one(contents, wildcard, record, router.ttl));
        if let Err(message) = added {
            diagnostics.push(Diagnostic::router(&router.name, format!("spec.records[{at}]"), message));
        }
    }
}

/// Reads one entry.
fn read(text: &str, router: &RouterInput) -> Result<Record, String> {
    let text = text.trim_end();
    if text.starts_with('$') {
        return Err(format!("{text:?} is a directive; give a record, such as {EXAMPLE:?}"));
    }
    if text.contains(['\n', '\r']) {
        return Err(format!("{text:?} has several lines; make each record a separate entry"));
    }
    let called: Arc<Path> = Path::new("spec.records").into();
    let (records, findings) = read_records(text.as_bytes(), &called, &router.apex);
    if let Some(error) = findings.iter().find(|finding| finding.severity == Severity::Error) {
        return Err(format!("{text:?}, column {}: {}", error.column, error.message));
    }
    let mut records = records.into_iter();
    match (records.next(), records.next()) {
        (Some(record), None) => Ok(record),
        _ => Err(format!("{text:?} is not one record; give one, such as {EXAMPLE:?}")),
    }
}

/// A record to show how one is written.
const EXAMPLE: &str = "@ CAA 0 issue \"ca.example\"";

/// Adds a record where its owner and type allow it.
fn add_one(contents: &mut Contents, wildcard: &Name, record: Record, default_ttl: Ttl) -> Result<(), String> {
    let Record { owner, rtype, ttl, rdata } = record;
    let apex = contents.apex();
    if !owner.is_at_or_below(apex) {
        return Err(format!("{owner} is outside the shard's zone {apex}"));
    }
    let at_apex = owner == *apex;
    let at_wildcard = owner == *wildcard;
    let refusal = match rtype {
        RecordType::SOA => Some("the SOA comes from the platform's configuration"),
        RecordType::NS if at_apex => Some("the zone's name servers come from the platform's configuration"),
        RecordType::CNAME if at_apex => {
            Some("a CNAME cannot coexist with the SOA at the zone's apex (RFC 1034 §3.6.2)")
        }
        RecordType::DNAME if at_apex => Some("a DNAME at the apex would hide the wildcard (RFC 6672 §2.4)"),
        RecordType::A | RecordType::AAAA if at_wildcard => Some("the wildcard's addresses come from spec.addresses"),
        RecordType::CNAME if at_wildcard => {
            Some("a CNAME cannot coexist with the wildcard's addresses (RFC 1034 §3.6.2)")
        }
        RecordType::NS | RecordType::DNAME if owner.is_wildcard() => {
            Some("at a wildcard it has no defined meaning (RFC 4592 §4.2, §4.4)")
        }
        rtype if rtype.is_meta() => Some("the type is valid only in queries and messages"),
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
                "{owner} {rtype}: the name already has {first}, and a CNAME must be its only record (RFC 1034 §3.6.2)"
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
    match contents.add(owner, rtype, ttl.unwrap_or(default_ttl), rdata) {
        Ok(_) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Returns the closest name above `owner` with a DNAME.
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

/// Returns the cut that `name` is at or below.
pub(super) fn cut_above<'a>(cuts: &'a BTreeSet<Name>, name: &Name) -> Option<&'a Name> {
    // In canonical order, a name comes before all names below it, and cuts are not inside one another.
    cuts.range(..=name).next_back().filter(|cut| name.is_at_or_below(cut))
}

#[cfg(test)]
mod tests {
    use super::*;
    use signpost_types::v1alpha1::router::Mode;

    /// Checks the result of these entries: the records, and the positions of diagnostics with a part of each message.
    fn check(entries: &[&str], owners: &[&str], diagnostics: &[(&str, &str)]) {
        let apex: Name = "s.example.".parse().expect("a name");
        let router = RouterInput {
            name: "s".into(),
            created: 0,
            apex: apex.clone(),
            ttl: Ttl::new(30).expect("small"),
            mode: Mode::ActiveActive,
            addresses: Box::default(),
            records: entries.iter().map(|entry| (*entry).into()).collect(),
            panic_percent: 0,
        };
        let mut contents = Contents::new(apex.clone());
        let mut found = Vec::new();
        add(&mut contents, &router, &BTreeSet::new(), &apex.wildcard().expect("room"), &mut found);
        let rrsets = contents.owners().flat_map(|(owner, rrsets)| {
            rrsets.iter().map(move |rrset| format!("{owner} {} {}", rrset.ttl.seconds(), rrset.rtype))
        });
        assert_eq!(rrsets.collect::<Vec<_>>(), owners, "{entries:?}");
        assert_eq!(found.len(), diagnostics.len(), "{entries:?}: {found:?}");
        for (found, (path, part)) in found.iter().zip(diagnostics) {
            assert_eq!(found.path, *path, "{entries:?}");
            assert!(found.message.contains(part), "{entries:?}: {}", found.message);
        }
    }

    #[test]
    fn good_entries() {
        check(
            &[
                "@ CAA 0 issue \"ca.example\"",
                "_acme-challenge.app 5 TXT token\n",
                "* MX 10 mail.example.",
                "a TXT ( x ) ; why",
                // An applicant for the Public Suffix List proves control of the zone in this way.
                "_psl TXT \"https://github.com/publicsuffix/list/pull/1\"",
            ],
            &[
                "s.example. 30 CAA",
                "*.s.example. 30 MX",
                "_psl.s.example. 30 TXT",
                "a.s.example. 30 TXT",
                "_acme-challenge.app.s.example. 5 TXT",
            ],
            &[],
        );
    }

    #[test]
    fn bad_entries_are_left_out_and_the_others_stay() {
        let one = |entry: &str, part: &str| {
            check(&[entry, "a TXT x"], &["a.s.example. 30 TXT"], &[("spec.records[0]", part)])
        };
        one("$INCLUDE /etc/passwd", "directive");
        one("b TXT x\n$INCLUDE /etc/passwd", "several lines");
        one("", "not one record");
        one("b A 192.0.2.300", "column");
        one("b.example. TXT x", "outside");
        one("@ NS ns.example.", "configuration");
        one("@ SOA ns.example. h.example. 1 1 1 1 1", "SOA");
        one("@ CNAME b", "apex");
        one("@ DNAME b", "apex");
        one("* A 192.0.2.1", "spec.addresses");
        one("* CNAME b", "wildcard");
        one("*.b NS ns.example.", "wildcard");
        check(
            &["b CNAME c", "b TXT x", "d TXT x", "d CNAME c", "e DNAME f.example.", "x.e TXT x"],
            &["b.s.example. 30 CNAME", "d.s.example. 30 TXT", "e.s.example. 30 DNAME"],
            &[
                ("spec.records[1]", "only record"),
                ("spec.records[3]", "only record"),
                ("spec.records[5]", "below the DNAME"),
            ],
        );
    }
}
