//! The counts of names without a Route: one for each zone and, for recently queried zones, the names with the most queries.
//!
//! Names are counted in bounded memory by Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent and Top-k
//! Elements in Data Streams, 2005): a name without a count takes the place, and the count, of the name with the lowest count. A
//! count is therefore never too small, and its maximum excess is stored with it. A name with more than its share of the total
//! (one divided by the number of places) always has a place.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};

use crate::admin::unrouted::{QueriedName, Report, Zone};
use signpost_dns::wire::Name;

/// The maximum number of zones with names; another one replaces the zone with the oldest query. With the names of each, this
/// takes some 5 MiB.
const ZONES_MAX: usize = 256;
/// The number of counted names per reported name, so that the reported ones are accurate.
const PLACES_PER_NAME: usize = 4;
/// The length of a counting period; reports include the current and the previous period.
const SPAN: SignedDuration = SignedDuration::from_hours(1);

/// A name in a zone: its label next to the apex, and whether there were more.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NameKey {
    /// The label, in lower case.
    pub label: Box<[u8]>,
    /// Whether the name was below it.
    pub is_below: bool,
}

/// The counts.
pub struct Tally {
    names_reported: usize,
    /// Requests by the zone's number, and of all zones without one.
    requests: Vec<u64>,
    others: u64,
    zones: HashMap<Name, Names>,
    before_since: Timestamp,
    now_since: Timestamp,
}

/// The names of one zone.
struct Names {
    before: Span,
    now: Span,
    last: Timestamp,
}

/// The names with the most queries in one period.
#[derive(Default)]
struct Span {
    names: HashMap<NameKey, Count>,
    total: u64,
}

struct Count {
    requests: u64,
    /// The part of the count that can belong to other names.
    over: u64,
    last: Timestamp,
}

impl Span {
    /// Adds requests for a name to at most `places` counts, at least one.
    fn add(&mut self, seen: NameKey, weight: u64, places: usize, now: Timestamp) {
        self.total += weight;
        if let Some(count) = self.names.get_mut(&seen) {
            count.requests += weight;
            count.last = now;
            return;
        }
        let mut over = 0;
        if self.names.len() >= places {
            // A linear search: the data structure is meant for some hundred entries.
            let least = self.names.iter().min_by_key(|(_, count)| count.requests);
            let (least, requests) =
                least.map(|(seen, count)| (seen.clone(), count.requests)).expect("there is a place");
            self.names.remove(&least);
            over = requests;
        }
        self.names.insert(seen, Count { requests: over + weight, over, last: now });
    }
}

impl Tally {
    /// Returns an empty tally. Reports contain `names_reported` names per zone.
    pub fn new(names_reported: usize, now: Timestamp) -> Tally {
        Tally {
            names_reported,
            requests: Vec::new(),
            others: 0,
            zones: HashMap::new(),
            before_since: now,
            now_since: now,
        }
    }

    /// Counts requests for a name of the zone `apex`, whose number is `number` if that is below `numbers`.
    pub fn add(&mut self, apex: &Name, number: Option<usize>, seen: NameKey, weight: u64, now: Timestamp) {
        match number {
            Some(number) => {
                if self.requests.len() <= number {
                    self.requests.resize(number + 1, 0);
                }
                self.requests[number] += weight;
            }
            None => self.others += weight,
        }
        let places = self.names_reported * PLACES_PER_NAME;
        if !self.zones.contains_key(apex) {
            if self.zones.len() >= ZONES_MAX {
                let oldest = self.zones.iter().min_by_key(|(_, names)| names.last).map(|(apex, _)| apex.clone());
                oldest.map(|apex| self.zones.remove(&apex));
            }
            self.zones.insert(apex.clone(), Names { before: Span::default(), now: Span::default(), last: now });
        }
        let names = self.zones.get_mut(apex).expect("it was just put there");
        names.last = now;
        names.now.add(seen, weight, places, now);
    }

    /// Starts another period when it is due.
    pub fn turn(&mut self, now: Timestamp) {
        // A clock that was set back also starts one.
        if (SignedDuration::ZERO..SPAN).contains(&now.duration_since(self.now_since)) {
            return;
        }
        (self.before_since, self.now_since) = (self.now_since, now);
        self.zones.retain(|_, names| {
            names.before = std::mem::take(&mut names.now);
            names.before.total > 0
        });
    }

    /// Returns the requests by the zones' numbers, and those of all other zones, since the start.
    pub fn requests(&self) -> (&[u64], u64) {
        (&self.requests, self.others)
    }

    /// Returns the names with the most queries.
    pub fn report(&self) -> Report {
        let mut zones: Vec<Zone> =
            self.zones.iter().map(|(apex, names)| names.report(apex, self.names_reported)).collect();
        zones.sort_by(|a, b| b.requests.cmp(&a.requests).then_with(|| a.zone.cmp(&b.zone)));
        Report { since: self.before_since, zones }
    }
}

impl Names {
    fn report(&self, apex: &Name, names_reported: usize) -> Zone {
        let mut sums: HashMap<&NameKey, QueriedName> = HashMap::new();
        for (seen, count) in self.before.names.iter().chain(&self.now.names) {
            let sum = sums.entry(seen).or_insert_with(|| QueriedName {
                name: name_of(apex, seen),
                requests: 0,
                at_least: 0,
                last_queried_time: count.last,
            });
            sum.requests += count.requests;
            sum.at_least += count.requests - count.over;
            sum.last_queried_time = sum.last_queried_time.max(count.last);
        }
        let requests = self.before.total + self.now.total;
        let mut names: Vec<QueriedName> = sums.into_values().collect();
        names.sort_by(|a, b| (b.requests, b.at_least).cmp(&(a.requests, a.at_least)).then_with(|| a.name.cmp(&b.name)));
        names.truncate(names_reported);
        Zone { zone: apex.to_string().to_ascii_lowercase(), requests, names }
    }
}

/// Returns the reported name: with `*.` for all names below it.
fn name_of(apex: &Name, seen: &NameKey) -> String {
    let name = apex.prepend(&seen.label).map_or_else(|_| apex.to_string(), |name| name.to_string());
    let below = if seen.is_below { "*." } else { "" };
    format!("{below}{}", name.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn apex(number: usize) -> Name {
        format!("shard{number}.v3.example.").parse().expect("a name")
    }

    fn seen(label: &str, is_below: bool) -> NameKey {
        NameKey { label: label.as_bytes().into(), is_below }
    }

    #[test]
    fn the_names_of_the_last_two_spans_are_reported() {
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
        let flat = |report: &Report| -> Vec<(String, u64, Names)> {
            let names = |zone: &Zone| {
                let of_name = |one: &QueriedName| (one.name.clone(), one.requests, one.last_queried_time.as_second());
                zone.names.iter().map(of_name).collect()
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
        assert_eq!((flat(&report), report.since), (expected, at(0)));
        // An hour later, the first names are no longer reported; without requests, nothing is kept.
        tally.turn(at(7_400));
        assert_eq!(flat(&tally.report())[0].1, 14);
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
        assert!(tally.zones.values().all(|names| names.now.names.len() <= 3 * PLACES_PER_NAME));
        assert!(tally.report().zones.iter().all(|zone| zone.names.len() == 3 && zone.requests == 200));
    }

    proptest! {
        /// The guarantees of a count: it is never too small, and too large by at most its stated excess; a name with more than
        /// its share has a place; and there are never more places than permitted.
        #[test]
        fn what_a_count_promises(
            places in 1_usize..12,
            stream in proptest::collection::vec((0_u8..40, 1_u64..9), 0..400),
        ) {
            let mut span = Span::default();
            let mut exact: HashMap<NameKey, u64> = HashMap::new();
            for (label, weight) in stream {
                let seen = NameKey { label: [label].into(), is_below: false };
                span.add(seen.clone(), weight, places, at(0));
                *exact.entry(seen).or_default() += weight;
            }
            let total: u64 = exact.values().sum();
            prop_assert_eq!((span.total, span.names.values().map(|count| count.requests).sum::<u64>()), (total, total));
            prop_assert!(span.names.len() <= places);
            for (seen, count) in &span.names {
                prop_assert!(count.requests >= exact[seen] && count.requests - count.over <= exact[seen]);
            }
            for (seen, count) in exact.iter().filter(|(_, count)| **count > total / places as u64) {
                prop_assert!(span.names.contains_key(seen), "{} of {}", count, total);
            }
        }
    }
}
