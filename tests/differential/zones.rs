//! Random small zones full of the shapes that go wrong: wildcards, empty non-terminals, cuts, glue of siblings, chains of CNAME
//! and DNAME, also through wildcards, targets of MX, SRV and SVCB, and labels that hold any octet.

use std::collections::{BTreeMap, BTreeSet};

/// A small, seedable source of chance (SplitMix64).
pub struct Chance(u64);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xd1b5_4a32_d192_ed03)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    fn one_in(&mut self, bound: usize) -> bool {
        self.below(bound) == 0
    }

    fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// A zone as a master file.
pub struct Zone {
    pub apex: String,
    pub text: String,
    /// Whether the text is signed.
    pub signed: bool,
    owners: Vec<String>,
}

/// Escapes are by number, so that a dot in the text parts two labels.
const LABELS: [&str; 10] = ["a", "b", "c", "*", "www", "ns", "x-1", r"d\046t", r"\000", r"\255\032z"];

impl Zone {
    pub fn random(chance: &mut Chance, number: usize) -> Zone {
        let apex = format!("z{number}.example.");
        let mut plan =
            Plan { apex: apex.clone(), owners: BTreeMap::new(), cuts: BTreeSet::new(), dnames: BTreeSet::new() };
        plan.add(
            &apex,
            format!("3600 IN SOA ns.{apex} host.{apex} {} 3600 600 86400 {}", 1 + number, 60 + chance.below(4000)),
        );
        plan.add(&apex, format!("3600 IN NS ns.{apex}"));
        plan.add(&format!("ns.{apex}"), "300 IN A 192.0.2.53".to_owned());
        if chance.one_in(2) {
            plan.add(&apex, "3600 IN NS ns.outside.test.".to_owned());
        }
        // As many name servers as fit in 512 octets only with what their names share written once.
        if chance.one_in(4) {
            ('a'..='m').for_each(|letter| {
                plan.add(&apex, format!("3600 IN NS {letter}.gtld-servers-of-somebody-else.test."));
            });
        }
        for _ in 0..4 + chance.below(24) {
            let owner = plan.owner(chance);
            plan.random_record(chance, &owner);
        }
        let mut text = String::new();
        for (owner, records) in &plan.owners {
            for record in records {
                text += &format!("{owner} {record}\n");
            }
        }
        Zone { apex, text, signed: false, owners: plan.owners.into_keys().collect() }
    }

    /// Returns a question that is near something in the zone: name, type, and EDNS size with the DO flag.
    pub fn question(&self, chance: &mut Chance) -> (String, u16, Option<(u16, bool)>) {
        let mut qname = chance.pick(&self.owners).clone();
        for _ in 0..chance.below(3) {
            qname = format!("{}.{qname}", chance.pick(&LABELS));
        }
        if chance.one_in(4)
            && qname != self.apex
            && let Some((_, parent)) = qname.split_once('.')
        {
            qname = parent.to_owned();
        }
        if chance.one_in(6) {
            qname = qname.to_ascii_uppercase();
        }
        let qtype =
            *chance.pick(&[1, 1, 1, 28, 28, 16, 15, 2, 5, 6, 33, 39, 43, 64, 65, 65, 257, 65_280, 46, 47, 48, 255]);
        let edns = match chance.below(4) {
            0 => None,
            1 => Some((512, false)),
            2 => Some((1232, true)),
            _ => Some((1232, self.signed)),
        };
        (qname, qtype, edns)
    }
}

struct Plan {
    apex: String,
    owners: BTreeMap<String, Vec<String>>,
    cuts: BTreeSet<String>,
    dnames: BTreeSet<String>,
}

impl Plan {
    fn add(&mut self, owner: &str, record: String) {
        let records = self.owners.entry(owner.to_owned()).or_default();
        if !records.contains(&record) {
            records.push(record);
        }
    }

    fn owner(&self, chance: &mut Chance) -> String {
        let mut owner = self.apex.clone();
        for _ in 0..1 + chance.below(3) {
            owner = format!("{}.{owner}", chance.pick(&LABELS));
        }
        owner
    }

    /// Returns whether `owner` is strictly below one of `tops`.
    fn is_below(owner: &str, tops: &BTreeSet<String>) -> bool {
        tops.iter().any(|top| owner.len() > top.len() && owner.ends_with(&format!(".{top}")))
    }

    fn has(&self, owner: &str, rtype: &str) -> bool {
        let wanted = format!(" IN {rtype} ");
        self.owners.get(owner).is_some_and(|records| records.iter().any(|record| record.contains(&wanted)))
    }

    fn has_below(&self, owner: &str) -> bool {
        self.owners.keys().any(|other| other.len() > owner.len() && other.ends_with(&format!(".{owner}")))
    }

    /// Adds one record of a random type where the standard allows it.
    fn random_record(&mut self, chance: &mut Chance, owner: &str) {
        let hidden = Self::is_below(owner, &self.cuts) || self.cuts.contains(owner);
        if hidden || Self::is_below(owner, &self.dnames) || self.has(owner, "CNAME") {
            return;
        }
        let wildcard = owner.starts_with("*.");
        // One TTL for a type everywhere, so that no RRset has two (RFC 2181 §5.2).
        let target = if chance.one_in(5) { "www.outside.test.".to_owned() } else { self.owner(chance) };
        match chance.below(18) {
            0..=2 => {
                for _ in 0..1 + chance.below(4) {
                    self.add(owner, format!("300 IN A 192.0.2.{}", 1 + chance.below(200)));
                }
            }
            3 => self.add(owner, format!("300 IN AAAA 2001:db8::{}", 1 + chance.below(200))),
            4 => {
                let length = 1 + chance.below(250);
                for number in 0..1 + chance.below(4) {
                    self.add(owner, format!("120 IN TXT \"{number}{}\"", "t".repeat(length)));
                }
            }
            5 => self.add(owner, format!("300 IN MX {} {target}", chance.below(30))),
            6 => self.add(owner, format!("300 IN SRV 1 2 {} {target}", chance.below(60_000))),
            7 | 12 if !self.owners.contains_key(owner) => self.add(owner, format!("200 IN CNAME {target}")),
            // A DNAME into itself makes names that grow until a bound of the server's own.
            8 | 13 if target.ends_with(owner) => {}
            8 | 13 if !wildcard && !self.owners.contains_key(owner) && !self.has_below(owner) => {
                self.dnames.insert(owner.to_owned());
                self.add(owner, format!("200 IN DNAME {target}"));
            }
            9 | 10
                if !wildcard && !owner.contains("*.") && !self.owners.contains_key(owner) && !self.has_below(owner) =>
            {
                self.cuts.insert(owner.to_owned());
                self.add(owner, format!("900 IN NS ns.{owner}"));
                self.add(&format!("ns.{owner}"), format!("300 IN A 192.0.2.{}", 1 + chance.below(200)));
                if chance.one_in(2) {
                    self.add(owner, "900 IN NS ns.outside.test.".to_owned());
                }
                if chance.one_in(3) {
                    self.add(&format!("ns.{owner}"), format!("300 IN AAAA 2001:db8::{}", 1 + chance.below(200)));
                }
                // A name server below another zone cut, and one in the zone itself.
                if chance.one_in(3) && !self.cuts.is_empty() {
                    let cuts: Vec<String> = self.cuts.iter().cloned().collect();
                    self.add(owner, format!("900 IN NS ns.{}", chance.pick(&cuts)));
                }
                if chance.one_in(4) {
                    self.add(owner, format!("900 IN NS ns.{}", self.apex));
                }
                if chance.one_in(3) {
                    self.add(owner, format!("900 IN DS 12345 13 2 {}", "ab".repeat(32)));
                }
            }
            11 => self.add(owner, format!("60 IN HTTPS 1 {target} alpn=h2")),
            14 if !self.has(owner, "HTTPS") => self.add(owner, format!("60 IN HTTPS 0 {target}")),
            // Sets whose names share suffixes with each other and with their owner.
            16 => {
                let length = 1 + chance.below(40);
                for number in 0..2 + chance.below(12) {
                    let host = format!("mx{number:02}.{}.{target}", "m".repeat(length));
                    self.add(owner, format!("300 IN MX {number} {host}"));
                }
            }
            17 if !wildcard && !owner.contains("*.") && !self.owners.contains_key(owner) && !self.has_below(owner) => {
                self.cuts.insert(owner.to_owned());
                for number in 0..2 + chance.below(12) {
                    let server = format!("n{number:02}.servers.{owner}");
                    self.add(owner, format!("900 IN NS {server}"));
                    self.add(&server, format!("300 IN A 192.0.2.{}", 1 + number));
                    self.add(&server, format!("300 IN AAAA 2001:db8::{}", 1 + number));
                }
            }
            15 => self.add(owner, format!("60 IN SVCB {} {target} port=53", 1 + chance.below(3))),
            _ => self.add(owner, "60 IN CAA 0 issue \"ca.test\"".to_owned()),
        }
    }
}
