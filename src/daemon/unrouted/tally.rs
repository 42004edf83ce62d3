//! What was seen of names without a Route: a count for each zone, and for zones of late the names asked most.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use super::top::{Entry, Top};
use crate::admin::unrouted::{Asked, Report, Zone};
use signpost_dns::wire::Name;

/// Zones with names, at most; another one takes the place of the one that was asked longest ago. With the names of each some
/// 5 MiB.
const ZONES_MAX: usize = 256;
/// How many times as many names have a count as are told, so that those told are the right ones.
const PLACES_PER_NAME: usize = 4;
/// How long the names of now are counted until they become those of before; both are told.
const SPAN: SignedDuration = SignedDuration::from_hours(1);

/// A name in a zone: its label next to the apex, and whether there were more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Seen {
    /// The label, in lower case.
    pub label: Box<[u8]>,
    /// Whether the name was below it.
    pub is_below: bool,
}

/// The counts.
pub struct Tally {
    names_told: usize,
    /// Requests by the zone's number, and of all zones without one.
    requests: Vec<u64>,
    others: u64,
    zones: HashMap<Name, Names>,
    before_since: Timestamp,
    now_since: Timestamp,
}

/// The names of one zone.
struct Names {
    before: Option<Top<Seen>>,
    now: Top<Seen>,
    /// When names that have a place were asked last.
    asked: HashMap<Seen, Timestamp>,
    last: Timestamp,
}

impl Tally {
    /// Nothing yet. Of each zone so many names are told.
    pub fn new(names_told: usize, now: Timestamp) -> Tally {
        Tally { names_told, requests: Vec::new(), others: 0, zones: HashMap::new(), before_since: now, now_since: now }
    }

    /// Counts requests for a name of the zone `apex`, whose number is `number` if that is below `numbers`.
    pub fn add(&mut self, apex: &Name, number: Option<usize>, seen: Seen, weight: u64, now: Timestamp) {
        match number {
            Some(number) => {
                if self.requests.len() <= number {
                    self.requests.resize(number + 1, 0);
                }
                self.requests[number] += weight;
            }
            None => self.others += weight,
        }
        let places = self.names_told * PLACES_PER_NAME;
        if !self.zones.contains_key(apex) {
            if self.zones.len() >= ZONES_MAX {
                let oldest = self.zones.iter().min_by_key(|(_, names)| names.last).map(|(apex, _)| apex.clone());
                oldest.map(|apex| self.zones.remove(&apex));
            }
            let names = Names { before: None, now: Top::new(places), asked: HashMap::new(), last: now };
            self.zones.insert(apex.clone(), names);
        }
        let names = self.zones.get_mut(apex).expect("it was just put there");
        names.last = now;
        names.now.add(seen.clone(), weight);
        names.asked.insert(seen, now);
        if names.asked.len() > 4 * places {
            names.forget_others();
        }
    }

    /// Begins another span when the time has come.
    pub fn turn(&mut self, now: Timestamp) {
        // A clock that was set back begins one, too.
        if (SignedDuration::ZERO..SPAN).contains(&now.duration_since(self.now_since)) {
            return;
        }
        (self.before_since, self.now_since) = (self.now_since, now);
        let places = self.names_told * PLACES_PER_NAME;
        self.zones.retain(|_, names| {
            names.before = Some(std::mem::replace(&mut names.now, Top::new(places)));
            names.forget_others();
            names.before.as_ref().is_some_and(|before| before.total() > 0)
        });
    }

    /// Requests by the zones' numbers, and those of all other zones, since the start.
    pub fn requests(&self) -> (&[u64], u64) {
        (&self.requests, self.others)
    }

    /// The names asked most.
    pub fn report(&self) -> Report {
        let mut zones: Vec<Zone> = self.zones.iter().map(|(apex, names)| names.told(apex, self.names_told)).collect();
        zones.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.zone.cmp(&b.zone)));
        Report { since: self.before_since, zones }
    }
}

impl Names {
    fn told(&self, apex: &Name, names_told: usize) -> Zone {
        let mut sums: HashMap<&Seen, (u64, u64)> = HashMap::new();
        for top in self.before.iter().chain([&self.now]) {
            for Entry { key, count, over } in top.entries() {
                let sum = sums.entry(&**key).or_default();
                *sum = (sum.0 + count, sum.1 + count - over);
            }
        }
        let requests = self.now.total() + self.before.as_ref().map_or(0, Top::total);
        let mut names: Vec<Asked> = sums
            .into_iter()
            .map(|(seen, (requests, at_least))| {
                let last_queried_time = self.asked.get(seen).copied().unwrap_or(self.last);
                Asked { name: name_of(apex, seen), requests, at_least, last_queried_time }
            })
            .collect();
        names.sort_by(|a, b| (b.requests, b.at_least).cmp(&(a.requests, a.at_least)).then_with(|| a.name.cmp(&b.name)));
        names.truncate(names_told);
        Zone { zone: apex.to_string().to_ascii_lowercase(), requests, names }
    }

    /// Forgets when names were asked that have no place any more.
    fn forget_others(&mut self) {
        let tops = self.before.iter().chain([&self.now]);
        let kept: std::collections::HashSet<&Seen> = tops.flat_map(Top::entries).map(|entry| &*entry.key).collect();
        self.asked.retain(|seen, _| kept.contains(seen));
    }
}

/// The name that is told: `*.` for whatever is below.
fn name_of(apex: &Name, seen: &Seen) -> String {
    let name = apex.prepend(&seen.label).map_or_else(|_| apex.to_string(), |name| name.to_string());
    let below = if seen.is_below { "*." } else { "" };
    format!("{below}{}", name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn apex(number: usize) -> Name {
        format!("shard{number}.v3.example.").parse().expect("a name")
    }

    fn seen(label: &str, is_below: bool) -> Seen {
        Seen { label: label.as_bytes().into(), is_below }
    }

    #[test]
    fn the_names_of_the_last_two_spans_are_told() {
        let mut tally = Tally::new(2, at(0));
        for (second, label, is_below, weight) in [
            (1, "old", false, 9),
            (3_700, "foo", false, 5),
            (3_701, "foo", true, 7),
            (3_702, "foo", false, 1),
            (3_703, "x", false, 1),
        ] {
            tally.turn(at(second));
            tally.add(&apex(1), Some(3), seen(label, is_below), weight, at(second));
        }
        tally.add(&apex(2), None, seen("a b", false), 2, at(3_704));
        type Names = Vec<(String, u64, i64)>;
        let told = |report: &Report| -> Vec<(String, u64, Names)> {
            let names = |zone: &Zone| {
                let told = |one: &Asked| (one.name.clone(), one.requests, one.last_queried_time.as_second());
                zone.names.iter().map(told).collect()
            };
            report.zones.iter().map(|zone| (zone.zone.clone(), zone.requests, names(zone))).collect()
        };
        let report = tally.report();
        let expected = vec![
            (
                "shard1.v3.example.".to_owned(),
                23,
                vec![("old.shard1.v3.example.".to_owned(), 9, 1), ("*.foo.shard1.v3.example.".to_owned(), 7, 3_701)],
            ),
            ("shard2.v3.example.".to_owned(), 2, vec![("a\\032b.shard2.v3.example.".to_owned(), 2, 3_704)]),
        ];
        assert_eq!((told(&report), report.since), (expected, at(0)));
        // An hour later what was asked first is not told any more; and when nothing comes, nothing is kept.
        tally.turn(at(7_400));
        assert_eq!(told(&tally.report())[0].1, 14);
        assert_eq!(tally.report().since, at(3_700));
        tally.turn(at(11_000));
        assert_eq!(tally.report(), Report { since: at(7_400), zones: Vec::new() });
        assert_eq!(tally.requests(), (&[0, 0, 0, 23][..], 2), "counters never go back");
    }

    #[test]
    fn however_many_zones_and_names_come_memory_is_bounded() {
        let mut tally = Tally::new(3, at(0));
        for number in 0..ZONES_MAX + 50 {
            for label in 0..200 {
                tally.add(&apex(number), None, seen(&format!("n{label}"), false), 1, at(number as i64));
            }
        }
        assert_eq!(tally.zones.len(), ZONES_MAX);
        assert!(!tally.zones.contains_key(&apex(0)) && tally.zones.contains_key(&apex(ZONES_MAX + 49)));
        assert!(tally.zones.values().all(|names| names.asked.len() <= 4 * 3 * PLACES_PER_NAME));
        assert!(tally.report().zones.iter().all(|zone| zone.names.len() == 3 && zone.requests == 200));
    }
}
