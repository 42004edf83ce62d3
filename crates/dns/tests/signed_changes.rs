//! Random signed zones and random changes of them: a changed zone denies names with the same records as one that is built from the
//! resulting contents.

#[path = "conformance/stage.rs"]
#[allow(dead_code, reason = "the stage is the conformance tests'; these use a part of it")]
mod stage;

/// The stage queries no other server.
fn also_ask(_: &stage::Stage, _: &[u8]) {}

use std::collections::BTreeMap;
use std::fmt::Write;

use proptest::prelude::*;
use signpost_dns::wire::Name;
use signpost_dns::zone::denial::{Nsec3, Nsec3Hash};
use signpost_dns::zone::node::Node;
use signpost_dns::zone::{Contents, Zone, diff};

use stage::{Stage, contents};

const APEX: &str = "z.test.";

/// Names with wildcards, empty non-terminals, the first and the last in canonical order, and octets that sort unusually.
const NAMES: [&str; 14] =
    ["*", "\\000", "a", "*.a", "x.a", "Y.x.a", "w.v.a", "a0", "b", "\\000.b", "c.b", "m.n.o", "z", "\\255"];

/// NSEC3PARAM data: two chains, one that is too costly, and one that is ignored because of its flags.
const CHAINS: [&str; 4] = ["0100000000", "0100000101aa", "010001f400", "0101000000"];

/// The records of an owner; some are left out at the apex.
#[derive(Debug, Clone)]
struct Records {
    a: Option<u8>,
    /// Another type, by number: NS, DNAME, CNAME, DS.
    other: Option<u8>,
    nsec: bool,
    /// The chain of an NSEC3 record, and its flags.
    nsec3: Option<(usize, u8)>,
    signed: bool,
}

#[derive(Debug, Clone)]
enum Step {
    /// Sets the records of an owner, or removes it: a name, the name of its hash in a chain, or the first or last hash.
    Owner(usize, Option<usize>, Option<Records>),
    /// The proofs of the apex: NSEC, and the chains that have an NSEC3PARAM.
    Apex(bool, Vec<usize>),
    /// The apex and all names lose their proofs, and get those of NSEC (0), a chain of NSEC3, or none.
    Sign(usize),
}

/// A zone as lines by owner.
#[derive(Clone, Default)]
struct Model {
    apex: (bool, Vec<usize>),
    owners: BTreeMap<String, Records>,
    serial: u8,
}

impl Model {
    fn take(&mut self, step: &Step) {
        self.serial = self.serial.wrapping_add(1);
        match step {
            Step::Owner(at, chain, records) => {
                let owner = match chain {
                    Some(chain) => hashed(*at, *chain),
                    None => NAMES[*at].to_owned(),
                };
                match records {
                    Some(records) => self.owners.insert(owner, records.clone()),
                    None => self.owners.remove(&owner),
                };
            }
            Step::Apex(nsec, chains) => self.apex = (*nsec, chains.clone()),
            Step::Sign(kind) => {
                self.owners.retain(|owner, _| NAMES.contains(&&**owner));
                for records in self.owners.values_mut() {
                    (records.nsec, records.nsec3) = (*kind == 0, None);
                }
                self.apex = (*kind == 0, vec![]);
                if let 1 | 2 = kind {
                    let chain = kind - 1;
                    self.apex.1.push(chain);
                    let proof = Records { a: None, other: None, nsec: false, nsec3: Some((chain, 1)), signed: true };
                    let names = 0..NAMES.len();
                    let owners: Vec<String> =
                        names.map(|at| hashed(at, chain)).chain([hashed(NAMES.len(), chain)]).collect();
                    self.owners.extend(owners.into_iter().map(|owner| (owner, proof.clone())));
                }
            }
        }
    }

    fn contents(&self, filler: &str) -> Contents {
        let mut text = format!("@ SOA ns.elsewhere. admin {}\n@ NS ns.elsewhere.\n@ RRSIG SOA\n", self.serial);
        if self.apex.0 {
            text += "@ NSEC a\n@ RRSIG NSEC\n";
        }
        for chain in &self.apex.1 {
            let data = CHAINS[*chain];
            writeln!(text, "@ NSEC3PARAM \\# {} {data}", data.len() / 2).expect("a string");
        }
        for (owner, records) in &self.owners {
            let mut line = |rest: String, covered: &str| {
                writeln!(text, "{owner} {rest}").expect("a string");
                if records.signed {
                    writeln!(text, "{owner} RRSIG {covered}").expect("a string");
                }
            };
            if let Some(address) = records.a {
                line(format!("A 192.0.2.{address}"), "A");
            }
            match records.other {
                Some(0) => line("NS ns.elsewhere.".into(), "NS"),
                Some(1) => line("DNAME target.elsewhere.".into(), "DNAME"),
                Some(2) => line("CNAME target.elsewhere.".into(), "CNAME"),
                Some(_) => line("DS 7".into(), "DS"),
                None => {}
            }
            if records.nsec {
                line("NSEC a".into(), "NSEC");
            }
            if let Some((chain, flags)) = records.nsec3 {
                let data = format!("01{flags:02x}{}14{}000140", &CHAINS[chain][4..], "77".repeat(20));
                line(format!("NSEC3 \\# {} {data}", data.len() / 2), "NSEC3");
            }
        }
        contents(APEX, &(text + filler))
    }
}

fn name(owner: &str) -> Name {
    Name::parse(owner.as_bytes(), &APEX.parse().expect("a name")).expect("a name")
}

/// The label of the hash of a name in a chain: after the names come the apex, the first hash, and the last.
fn hashed(at: usize, chain: usize) -> String {
    let owner = match at.checked_sub(NAMES.len()) {
        None => NAMES[at],
        Some(0) => "@",
        Some(1) => return "0".repeat(32),
        Some(_) => return "V".repeat(32),
    };
    let data = CHAINS[chain];
    let zone =
        format!("@ NSEC3PARAM \\# {} {data}\n{} NSEC3 \\# {} {data}", data.len() / 2, "0".repeat(32), data.len() / 2);
    let zone = stage::zone(APEX, &zone);
    let hash = zone.denial().and_then(|denial| denial.nsec3_hash(name(owner).to_lowercase().as_wire()));
    data_encoding::BASE32HEX_NOPAD.encode(&hash.expect("a chain in use")).to_ascii_lowercase()
}

fn records() -> impl Strategy<Value = Records> {
    let nsec3 = prop::option::weighted(0.4, (0..CHAINS.len(), 0..2u8));
    (prop::option::of(1..3u8), prop::option::weighted(0.3, 0..4u8), any::<bool>(), nsec3, any::<bool>())
        .prop_filter("no records", |(a, other, nsec, nsec3, _)| {
            a.is_some() || other.is_some() || *nsec || nsec3.is_some()
        })
        .prop_map(|(a, other, nsec, nsec3, signed)| Records { a, other, nsec, nsec3, signed })
}

/// Most names have no NSEC3 record, and most names of hashes have nothing else.
fn step() -> impl Strategy<Value = Step> {
    let plain = (0..NAMES.len(), prop::option::weighted(0.7, records()), prop::bool::weighted(0.9)).prop_map(
        |(at, mut records, is_plain)| {
            if let Some(records) = records.as_mut().filter(|_| is_plain) {
                (records.a, records.nsec3) = (records.a.or(Some(1)), None);
            }
            Step::Owner(at, None, records)
        },
    );
    let hash = (0..NAMES.len() + 3, 0..2usize, prop::option::weighted(0.6, records()), 0..8u8).prop_map(
        |(at, chain, mut records, kind)| {
            if let Some(records) = &mut records {
                // Usually the proof of the chain that the hash belongs to.
                if kind > 1 {
                    records.nsec3 = Some((chain, kind % 2));
                }
                if kind > 0 {
                    (records.a, records.other, records.nsec) = (None, None, false);
                    records.nsec3.get_or_insert((chain, 0));
                }
            }
            Step::Owner(at, Some(chain), records)
        },
    );
    let apex = (any::<bool>(), prop::sample::subsequence(vec![0, 1, 2, 3], 0..4))
        .prop_flat_map(|(nsec, chains)| (Just(nsec), Just(chains).prop_shuffle()))
        .prop_map(|(nsec, chains)| Step::Apex(nsec, chains));
    prop_oneof![8 => plain, 6 => hash, 1 => apex, 1 => (0..4usize).prop_map(Step::Sign)]
}

/// Steps of several changes each, from a zone with some names and one of the chains.
fn steps() -> impl Strategy<Value = Vec<Vec<Step>>> {
    let signed = prop::collection::vec(step(), 4..20).prop_flat_map(|some| {
        (Just(some), 0..4usize).prop_map(|(some, kind)| some.into_iter().chain([Step::Sign(kind)]).collect())
    });
    (signed, prop::collection::vec(prop::collection::vec(step(), 1..4), 1..12))
        .prop_map(|(first, rest)| std::iter::once(first).chain(rest).collect())
}

/// All records of a node.
fn described(node: Node<'_>) -> String {
    let rrsets = node.rrsets().map(|records| (records.rtype(), records.records(), records.signatures()));
    format!("{:?} {:?}", node.relative_as_written(), rrsets.collect::<Vec<_>>())
}

/// The names at and around those of the zone.
fn probes(filler: &[String]) -> Vec<Name> {
    let owners =
        NAMES.iter().chain(&["@", "d", "q.a", "q.v.a", "q.w.v.a", "q.b", "q"]).map(|owner| (*owner).to_owned());
    let around = |owner: String| {
        let below = match owner.as_str() {
            "@" => "\\000".to_owned(),
            owner => format!("\\000.{owner}"),
        };
        [owner, below]
    };
    owners.chain(filler.iter().cloned()).flat_map(around).map(|owner| name(&owner)).collect()
}

/// Everything that a zone's chain answers.
fn denials(zone: &Zone, probes: &[Name]) -> Vec<String> {
    let Some(denial) = zone.denial() else { return vec![] };
    let mut found = vec![format!("hashed: {}", denial.is_hashed_chain())];
    let mut hashes: Vec<Nsec3Hash> = vec![[0; 20], [0xff; 20]];
    for probe in probes {
        let folded = probe.to_lowercase();
        let relative = &folded.as_wire()[..folded.as_wire().len() - zone.apex().as_wire().len()];
        found.push(format!("{probe} {:?}", denial.nsec(relative)));
        hashes.extend(denial.nsec3_hash(folded.as_wire()));
    }
    for hash in hashes {
        // Also directly before and after the hash.
        for last in [hash[19].wrapping_sub(1), hash[19], hash[19].wrapping_add(1)] {
            let mut hash = hash;
            hash[19] = last;
            found.push(match denial.nsec3(&hash) {
                Some(Nsec3::Matching(node)) => format!("{hash:?} = {}", described(node)),
                Some(Nsec3::Covering(node)) => format!("{hash:?} < {}", described(node)),
                None => format!("{hash:?} -"),
            });
        }
    }
    found
}

/// Contents without the order in which RRsets and records were added.
fn sorted(contents: &Contents) -> Vec<String> {
    let mut lines: Vec<String> = contents
        .owners()
        .flat_map(|(owner, rrsets)| {
            let of_rrset = move |rrset: &signpost_dns::zone::Rrset| {
                let (ttl, rtype) = (rrset.ttl.seconds(), rrset.rtype);
                rrset.rdata.iter().map(|rdata| format!("{owner} {ttl} {rtype} {rdata:?}")).collect::<Vec<_>>()
            };
            rrsets.iter().flat_map(of_rrset)
        })
        .collect();
    lines.sort();
    lines
}

/// Changes a zone step by step, and compares each version with one that is built from its contents.
fn compare(steps: &[Vec<Step>], filler: &[String], text: &str) -> Result<(), TestCaseError> {
    let probes = probes(filler);
    let mut model = Model::default();
    let mut before = model.contents(text);
    let mut zone = Zone::build(before.clone()).expect("has a SOA");
    for step in steps {
        step.iter().for_each(|step| model.take(step));
        let after = model.contents(text);
        zone = zone.with_changes(&diff::owners(&before, &after)).expect("a zone");
        let built = Zone::build(after.clone()).expect("has a SOA");
        prop_assert_eq!(sorted(&zone.contents()), sorted(&after), "{:?}", step);
        prop_assert_eq!(zone.owner_count(), built.owner_count());
        prop_assert_eq!(zone.denial().is_some(), built.denial().is_some());
        prop_assert_eq!(denials(&zone, &probes), denials(&built, &probes), "{:?}", step);
        before = after;
    }
    let (changed, built) = (Stage::new([zone]), Stage::new([Zone::build(before).expect("has a SOA")]));
    for probe in &probes {
        for qtype in ["A", "DS", "TXT"] {
            let query = stage::query(&format!("{probe} {qtype} do size=4096"));
            prop_assert_eq!(changed.respond(&query), built.respond(&query), "{} {}", probe, qtype);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_zone_denies_as_one_that_is_built(steps in steps()) {
        compare(&steps, &[], "")?;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, failure_persistence: None, ..ProptestConfig::default() })]

    /// The same in a zone with a directory, and with a chain of several blocks.
    #[test]
    fn a_large_zone_changes_as_a_small_one(steps in steps()) {
        let mut text = String::new();
        for index in 0..2_000u32 {
            writeln!(text, "n{index}.f A 192.0.2.1\nn{index}.f NSEC a").expect("a string");
            let label = index.wrapping_mul(0x9e37_79b1).to_be_bytes().repeat(5);
            let label = data_encoding::BASE32HEX_NOPAD.encode(&label);
            // Half of the hashes are in each chain.
            let chain = &CHAINS[index as usize % 2][4..];
            let data = format!("0101{chain}14{}000140", "77".repeat(20));
            writeln!(text, "{label} NSEC3 \\# {} {data}", data.len() / 2).expect("a string");
        }
        let filler: Vec<String> = (0..2_000).step_by(250).map(|index| format!("n{index}.f")).collect();
        compare(&steps, &filler, &text)?;
    }
}
