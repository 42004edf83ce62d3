//! Small numbers of zones, under which workers count: an apex keeps its number through every republication, and even while the
//! zone is removed, so that its counters never decrease.
//!
//! The number of slots is limited, and the first zones get them: the size of the exported data must not grow with the number of
//! tenants. Of zones that are added together, those with the fewest labels come first (the platform's own), then the shortest,
//! then in alphabetical order, so that the same zones have slots after each start. A slot is never reassigned: its counters
//! would have to restart, on threads that must not be disturbed.
//!
//! A [policy](super::policy) excludes a zone, or lets it come before all others. A slot is reserved for each such apex, as long as it has
//! none.

use std::collections::HashMap;

use super::image::{CounterSlot, Zone};
use super::policy::{Counters, Policies};
use crate::wire::Name;

/// The maximum number of zones with numbers. Each costs a cache line in each worker, and some lines in each scrape.
pub const NUMBERS_MAX: usize = 10_000;

/// The assignment of slots to zones.
pub(super) struct CounterSlots {
    most: usize,
    apexes: Vec<Name>,
    by_apex: HashMap<Name, u16>,
    policies: Policies,
}

impl CounterSlots {
    /// Creates an empty assignment with at most `most` slots, or [`NUMBERS_MAX`].
    pub(super) fn new(most: usize, policies: Policies) -> CounterSlots {
        CounterSlots { most: most.min(NUMBERS_MAX), apexes: Vec::new(), by_apex: HashMap::new(), policies }
    }

    /// Returns the total number of slots.
    pub(super) fn most(&self) -> usize {
        self.most
    }

    /// Returns the apexes that have numbers, by number.
    pub(super) fn apexes(&self) -> &[Name] {
        &self.apexes
    }

    /// Numbers zones that are about to be published.
    pub(super) fn assign<'a>(&mut self, zones: impl Iterator<Item = &'a Zone>) {
        let (mut always, mut first): (Vec<&Zone>, Vec<&Zone>) = Default::default();
        for zone in zones {
            match self.by_apex.get(zone.apex()) {
                Some(number) => zone.number.set(*number),
                None if self.apexes.len() < self.most => match self.policies.of(zone.apex()).counters {
                    Counters::Always => always.push(zone),
                    Counters::First => first.push(zone),
                    Counters::Never => zone.number.set(CounterSlot::NONE),
                },
                None => zone.number.set(CounterSlot::NONE),
            }
        }
        self.number(always, self.most);
        if !first.is_empty() {
            let reserved = self.policies.always_counted().filter(|apex| !self.by_apex.contains_key(apex)).count();
            self.number(first, self.most.saturating_sub(reserved));
        }
    }

    /// Gives zones the slots below `end`.
    fn number(&mut self, mut zones: Vec<&Zone>, end: usize) {
        let free = end.saturating_sub(self.apexes.len());
        if (1..zones.len()).contains(&free) {
            zones.select_nth_unstable_by(free, |a, b| rank(a).cmp(&rank(b)));
        }
        for zone in zones {
            // An apex can be in the changes twice.
            let number = match self.by_apex.get(zone.apex()) {
                Some(number) => *number,
                None if self.apexes.len() < end => {
                    let number = self.apexes.len() as u16;
                    self.apexes.push(zone.apex().clone());
                    self.by_apex.insert(zone.apex().clone(), number);
                    number
                }
                None => CounterSlot::NONE,
            };
            zone.number.set(number);
        }
    }
}

/// Returns the order in which zones get numbers.
fn rank(zone: &Zone) -> (usize, usize, &[u8]) {
    let apex = zone.apex_octets();
    (zone.apex_labels(), apex.len(), apex)
}

#[cfg(test)]
mod tests {
    use super::super::image::Unavailable;
    use super::super::policy::ZonePolicy;
    use super::*;

    fn zone(apex: &str) -> Zone {
        Zone::unavailable(apex.parse().expect("a name"), Unavailable::NotLoaded)
    }

    fn assign(numbers: &mut CounterSlots, zones: &[&Zone]) -> Vec<usize> {
        numbers.assign(zones.iter().copied());
        zones.iter().map(|zone| zone.number()).collect()
    }

    const NONE: usize = CounterSlot::NONE as usize;

    #[test]
    fn a_number_stays_with_its_apex() {
        let mut numbers = CounterSlots::new(2, Policies::default());
        let (a, b, c) = (zone("a.example."), zone("b.example."), zone("c.example."));
        assert_eq!(assign(&mut numbers, &[&a, &a]), [0, 0]);
        assert_eq!(assign(&mut numbers, &[&b]), [1]);
        assert_eq!(assign(&mut numbers, &[&c, &zone("A.Example.")]), [NONE, 0]);
        assert_eq!(assign(&mut numbers, &[&zone("b.example."), &c]), [1, NONE]);
        assert_eq!(numbers.apexes(), ["a.example.", "b.example."].map(|apex| apex.parse().expect("a name")));
    }

    #[test]
    fn where_not_all_can_have_one_the_shortest_names_do() {
        let shards: Vec<Zone> = (0..50).rev().map(|index| zone(&format!("shard{index}.v3.example."))).collect();
        let (parent, short) = (zone("v3.example."), zone("x.v3.example."));
        let mut all: Vec<&Zone> = shards.iter().chain([&short, &parent]).collect();
        // The result does not depend on the order: here, that of two hash maps.
        for _ in 0..2 {
            let mut numbers = CounterSlots::new(5, Policies::default());
            assign(&mut numbers, &all);
            let mut apexes: Vec<String> = numbers.apexes().iter().map(ToString::to_string).collect();
            apexes.sort_unstable();
            let shards = ["shard0.v3.example.", "shard1.v3.example.", "shard2.v3.example."];
            assert_eq!(apexes, [&shards[..], &["v3.example.", "x.v3.example."]].concat());
            all.reverse();
        }
        assert_eq!(assign(&mut CounterSlots::new(0, Policies::default()), &all).iter().min(), Some(&NONE));
    }

    #[test]
    fn policies_reserve_and_exclude() {
        let policy = |text: &str, counters| (text.parse().expect("a pattern"), ZonePolicy { counters });
        let policies = || {
            Policies::new([
                policy("late.example", Counters::Always),
                policy("*.b.example", Counters::Always),
                policy("x", Counters::Never),
            ])
        };
        let mut numbers = CounterSlots::new(3, policies());
        let (a, c, x, below) = (zone("a.example."), zone("c.example."), zone("x."), zone("y.z.b.example."));
        // The zone of a pattern comes first; of the others, one more has room.
        assert_eq!(assign(&mut numbers, &[&x, &c, &a, &below]), [NONE, NONE, 1, 0]);
        let late = zone("late.example.");
        assert_eq!(assign(&mut numbers, &[&c, &late]), [NONE, 2]);
        assert_eq!(assign(&mut numbers, &[&zone("b.b.example."), &late, &x]), [NONE, 2, NONE]);
        // More are reserved than there are.
        let mut numbers =
            CounterSlots::new(1, Policies::new([policy("a", Counters::Always), policy("b", Counters::Always)]));
        assert_eq!(
            assign(&mut numbers, &[&zone("b."), &c, &zone("a.")]).iter().filter(|number| **number == 0).count(),
            1
        );
        assert_eq!(assign(&mut numbers, &[&c]), [NONE]);
    }
}
