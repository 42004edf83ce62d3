//! Random zones and questions: the engine against a model of RFC 1034 §4.3.2 and RFC 4592 that is slow and plain, reads the
//! zone's contents directly, and has no images, hashes or flags.

#[path = "conformance/stage.rs"]
#[allow(dead_code, reason = "the stage is the conformance tests'; these use a part of it")]
mod stage;

/// The stage queries no other server.
fn also_ask(_: &stage::Stage, _: &[u8]) {}

use proptest::prelude::*;
use signpost_dns::wire::{Name, RecordType};
use signpost_dns::zone::{Contents, Zone, diff};

use stage::{Stage, contents, records};

/// The content of a response, without order.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    head: String,
    answer: Vec<String>,
    authority: Vec<String>,
}

impl Answer {
    fn of(response: &[u8]) -> Answer {
        let head = stage::lines(response).swap_remove(0);
        let section = |section| {
            let in_section = records(response).into_iter().filter(|record| record.section == section);
            let mut lines: Vec<String> =
                in_section.map(|record| line(&record.owner, record.rtype, &record.rdata)).collect();
            lines.sort();
            lines
        };
        Answer { head, answer: section("an"), authority: section("ns") }
    }
}

fn line(owner: &Name, rtype: RecordType, rdata: &str) -> String {
    format!("{owner} {rtype} {rdata}").to_ascii_lowercase()
}

/// The model.
fn answer(zone: &Contents, qname: &Name, qtype: RecordType) -> Answer {
    let mut said = Answer { head: "NOERROR aa".into(), answer: Vec::new(), authority: Vec::new() };
    let mut name = qname.clone();
    let mut seen = vec![name.clone()];
    loop {
        match step(zone, &name, qtype) {
            Step::Data(rtype) => {
                let node = source(zone, &name).expect("was found");
                put(&mut said.answer, zone, &node, &name, rtype);
                break;
            }
            Step::NoData => {
                said.authority.push(line(zone.apex(), RecordType::SOA, ""));
                break;
            }
            Step::NxDomain => {
                said.head = "NXDOMAIN aa".into();
                said.authority.push(line(zone.apex(), RecordType::SOA, ""));
                break;
            }
            Step::Referral(cut) => {
                put(&mut said.authority, zone, &cut, &cut, RecordType::NS);
                if said.answer.is_empty() {
                    said.head = "NOERROR".into();
                }
                break;
            }
            Step::Alias(rtype, owner) => {
                let node = if rtype == RecordType::CNAME { source(zone, &name).expect("was found") } else { owner };
                let owner = if rtype == RecordType::CNAME { &name } else { &node };
                let target = Name::from_wire(&zone.get(&node, rtype).expect("was found").rdata[0]).expect("a name");
                let known = said.answer.clone();
                put(&mut said.answer, zone, &node, owner, rtype);
                said.answer.dedup();
                if rtype == RecordType::DNAME {
                    if known.contains(&said.answer[said.answer.len() - 1]) {
                        said.answer.pop();
                    }
                    let kept = name.label_count() - node.label_count();
                    let Ok(target) = Name::from_labels(name.labels().take(kept), &target) else {
                        said.head = "YXDOMAIN aa".into();
                        break;
                    };
                    said.answer.push(line(&name, RecordType::CNAME, &target.to_string()));
                    if qtype == RecordType::CNAME {
                        break;
                    }
                    name = target;
                } else {
                    name = target;
                }
                if !name.is_at_or_below(zone.apex()) || seen.contains(&name) || seen.len() == 8 {
                    break;
                }
                seen.push(name.clone());
            }
        }
    }
    said.answer.sort();
    said.authority.sort();
    said
}

enum Step {
    Data(RecordType),
    NoData,
    NxDomain,
    Referral(Name),
    Alias(RecordType, Name),
}

fn step(zone: &Contents, name: &Name, qtype: RecordType) -> Step {
    let mut above = vec![name.clone()];
    while above.last().is_some_and(|last| last != zone.apex()) {
        above.extend(above.last().and_then(Name::parent));
    }
    for ancestor in above.iter().rev().filter(|ancestor| !ancestor.is_wildcard()) {
        let is_cut = ancestor != zone.apex() && zone.get(ancestor, RecordType::NS).is_some();
        if is_cut && !(ancestor == name && qtype == RecordType::DS) {
            return Step::Referral(ancestor.clone());
        }
        if is_cut {
            break;
        }
        if ancestor != name && zone.get(ancestor, RecordType::DNAME).is_some() {
            return Step::Alias(RecordType::DNAME, ancestor.clone());
        }
    }
    let Some(node) = source(zone, name) else { return Step::NxDomain };
    // RFC 4035 §2.4: a DS at the apex is on the wrong side of the cut.
    let is_misplaced = qtype == RecordType::DS && node == *zone.apex();
    if zone.get(&node, qtype).is_some() && !is_misplaced {
        Step::Data(qtype)
    } else if zone.get(&node, RecordType::CNAME).is_some() {
        Step::Alias(RecordType::CNAME, node)
    } else {
        Step::NoData
    }
}

fn exists(zone: &Contents, name: &Name) -> bool {
    name == zone.apex() || !zone.owner(name).is_empty() || zone.has_below(name)
}

/// The name itself, or the wildcard at its closest encloser.
fn source(zone: &Contents, name: &Name) -> Option<Name> {
    if exists(zone, name) {
        return Some(name.clone());
    }
    let mut encloser = name.parent().expect("the apex exists");
    while !exists(zone, &encloser) {
        encloser = encloser.parent().expect("the apex exists");
    }
    encloser.wildcard().ok().filter(|wildcard| exists(zone, wildcard))
}

fn put(lines: &mut Vec<String>, zone: &Contents, node: &Name, owner: &Name, rtype: RecordType) {
    for rdata in &zone.get(node, rtype).expect("was found").rdata {
        let text = match rtype {
            RecordType::A => std::net::Ipv4Addr::from(<[u8; 4]>::try_from(&rdata[..]).expect("four")).to_string(),
            RecordType::TXT => String::from_utf8_lossy(&rdata[1..]).into_owned(),
            RecordType::DS => u16::from_be_bytes([rdata[0], rdata[1]]).to_string(),
            RecordType::SOA => String::new(),
            _ => Name::from_wire(rdata).expect("a name").to_string(),
        };
        lines.push(line(owner, rtype, &text));
    }
}

/// Names under the apex of few labels, so that they meet often.
fn owner() -> impl Strategy<Value = String> {
    let label = prop_oneof![4 => Just("a"), 4 => Just("b"), 1 => Just("B"), 3 => Just("*"), 1 => Just("a*"), 1 => Just(r"\000")];
    prop::collection::vec(label, 0..5).prop_map(|labels| match labels.as_slice() {
        [] => "@".into(),
        _ => labels.join("."),
    })
}

fn record() -> impl Strategy<Value = String> {
    (owner(), 0..14u8, owner(), 1..4u8).prop_map(|(owner, kind, target, number)| match kind {
        0..=4 => format!("{owner} A 192.0.2.{number}"),
        5..=6 => format!("{owner} TXT t{number}"),
        7 => format!("{owner} CNAME {target}"),
        8 => format!("{owner} CNAME {target}.elsewhere."),
        9 => format!("{owner} NS {target}"),
        10 => format!("{owner} NS ns{number}.elsewhere."),
        11 => format!("{owner} DNAME {target}"),
        12 => format!("{owner} DS {number}"),
        _ => format!("{owner} AAAA 2001:db8::{number}"),
    })
}

fn zone_text() -> impl Strategy<Value = String> {
    prop::collection::vec(record(), 0..14).prop_map(|lines| {
        let mut kept: Vec<String> = Vec::new();
        for line in lines {
            // One CNAME or DNAME per owner, and no CNAME with other data: the rest is for checks to refuse.
            let line = line.replace("@.elsewhere", "elsewhere");
            let owner = line.split(' ').next().unwrap_or_default().to_ascii_lowercase();
            let same = |kept: &&String| kept.split(' ').next().is_some_and(|other| other.eq_ignore_ascii_case(&owner));
            let single = line.contains("CNAME") || owner == "@" && line.contains(" NS ");
            let clashes = kept
                .iter()
                .filter(same)
                .any(|kept| single || kept.contains("CNAME") || kept.contains("DNAME") && line.contains("DNAME"));
            if !(clashes || owner == "@" && single) {
                kept.push(line);
            }
        }
        kept.join("\n")
    })
}

fn full(text: &str) -> Contents {
    contents("z.test.", &format!("@ SOA ns.elsewhere. admin\n@ NS ns.elsewhere.\n{text}"))
}

const QTYPES: [&str; 7] = ["A", "TXT", "CNAME", "NS", "DNAME", "DS", "SOA"];

/// Compares the engine with the model over every name that the alphabet can make to three labels, and some deeper ones.
fn agree(stage: &Stage, zone: &Contents, questions: &[String]) -> Result<(), TestCaseError> {
    for owner in questions {
        for qtype in QTYPES {
            let name = Name::parse(owner.as_bytes(), zone.apex()).expect("a name");
            let expected = answer(zone, &name, qtype.parse().expect("a type"));
            let found = Answer::of(&stage.ask(&format!("{name} {qtype} size=4096")));
            prop_assert_eq!(found, expected, "{} {}", name, qtype);
        }
    }
    Ok(())
}

/// Contents without the order in which RRsets and records were added, and without the case of owners: a change of that alone
/// is not a difference.
fn sorted(contents: &Contents) -> Vec<String> {
    let mut lines = Vec::new();
    for (owner, rrsets) in contents.owners() {
        let owner = owner.to_lowercase();
        for rrset in rrsets {
            lines.extend(
                rrset.rdata.iter().map(|rdata| format!("{owner} {} {} {rdata:?}", rrset.ttl.seconds(), rrset.rtype)),
            );
        }
    }
    lines.sort();
    lines
}

fn stage_of(zone: Zone) -> Stage {
    let mut stage = Stage::new([zone]);
    stage.settings.udp_payload_max = 4096;
    stage
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_agrees_with_the_model(text in zone_text(), questions in prop::collection::vec(owner(), 1..12)) {
        let zone = full(&text);
        let built = Zone::build(zone.clone()).expect("has a SOA");
        prop_assert_eq!(sorted(&built.contents()), sorted(&zone));
        agree(&stage_of(built), &zone, &questions)?;
    }

    #[test]
    fn a_changed_zone_is_as_if_built_anew(
        before in zone_text(),
        after in zone_text(),
        questions in prop::collection::vec(owner(), 1..12),
    ) {
        let (before, after) = (full(&before), full(&after));
        let built = Zone::build(before.clone()).expect("has a SOA");
        let changed = built.with_changes(&diff::owners(&before, &after)).expect("a zone");
        prop_assert_eq!(sorted(&changed.contents()), sorted(&after));
        prop_assert_eq!(changed.owner_count(), after.owner_count());
        agree(&stage_of(changed), &after, &questions)?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same in a zone that is large enough for a directory.
    #[test]
    fn a_large_zone_changes_as_a_small_one(
        versions in prop::collection::vec(zone_text(), 2..5),
        questions in prop::collection::vec(owner(), 1..12),
    ) {
        let filler: String = (0..700).map(|index| format!("n{index}.filler TXT t\n")).collect();
        let versions: Vec<Contents> = versions.iter().map(|text| full(&format!("{text}\n{filler}"))).collect();
        let mut zone = Zone::build(versions[0].clone()).expect("has a SOA");
        for pair in versions.windows(2) {
            zone = zone.with_changes(&diff::owners(&pair[0], &pair[1])).expect("a zone");
        }
        let last = versions.last().expect("at least two");
        prop_assert_eq!(sorted(&zone.contents()), sorted(last));
        prop_assert_eq!(zone.owner_count(), last.owner_count());
        agree(&stage_of(zone), last, &questions)?;
    }
}
