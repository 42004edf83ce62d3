//! The Routes that have series of their own in metrics: the busiest ones, and one series for all others.
//!
//! The choice changes slowly, so that few series begin and end. A series counts from the time at which its Route was chosen, and the
//! requests before that are in `other`. Thus the sum of all series grows by each request once.

use std::collections::BTreeMap;

use super::Counters;
use crate::site::RouteKey;

/// The most Routes with series of their own.
pub const ROUTES_MAX: usize = 200;
/// The most Routes that are replaced after one reading.
const REPLACED_MAX: usize = 10;
/// The part of a score that remains after a reading: half of it after 7 readings.
const DECAY: f64 = 0.9;
/// The score below which a Route that is not chosen is forgotten.
const SCORE_MIN: f64 = 0.01;

/// The chosen Routes, and the scores of all that had requests lately.
#[derive(Debug, Default)]
pub(super) struct Busiest {
    routes: BTreeMap<RouteKey, Scored>,
    other: Counters,
}

#[derive(Debug)]
struct Scored {
    id: String,
    score: f64,
    /// The additions since it was chosen; `None`: it is not.
    chosen: Option<Counters>,
}

impl Busiest {
    /// Adds a change of a Route with an identifier.
    pub(super) fn add(&mut self, key: &RouteKey, id: &str, more: &Counters) {
        if more.total() == 0 && !self.routes.contains_key(key) {
            self.other.add(more);
            return;
        }
        let scored = self.routes.entry(key.clone());
        let scored = scored.or_insert_with(|| Scored { id: id.to_owned(), score: 0.0, chosen: None });
        scored.score += more.total() as f64;
        scored.chosen.as_mut().unwrap_or(&mut self.other).add(more);
    }

    /// Forgets a Route, unless it still has this identifier.
    pub(super) fn forget_unless(&mut self, key: &RouteKey, id: Option<&str>) {
        if self.routes.get(key).is_some_and(|scored| Some(&*scored.id) != id) {
            self.routes.remove(key);
        }
    }

    /// Chooses the Routes after a reading.
    pub(super) fn choose(&mut self) {
        let (mut chosen, mut others): (Vec<_>, Vec<_>) = self.routes.values_mut().partition(|one| one.chosen.is_some());
        others.sort_by(|one, other| other.score.total_cmp(&one.score));
        let mut others = others.into_iter();
        let free = ROUTES_MAX.saturating_sub(chosen.len());
        others.by_ref().take(free).for_each(|one| one.chosen = Some(Counters::default()));
        chosen.sort_by(|one, other| one.score.total_cmp(&other.score));
        // Twice the score, so that two Routes do not replace each other again and again.
        for (old, new) in chosen.into_iter().zip(others).take(REPLACED_MAX) {
            if new.score > 2.0 * old.score {
                (old.chosen, new.chosen) = (None, Some(Counters::default()));
            }
        }
        self.routes.values_mut().for_each(|one| one.score *= DECAY);
        self.routes.retain(|_, one| one.chosen.is_some() || one.score > SCORE_MIN);
    }

    /// Returns the counters of the chosen Routes, and of all others together.
    pub(super) fn counters(&self) -> (Vec<(&RouteKey, &Counters)>, &Counters) {
        let chosen = self.routes.iter().filter_map(|(key, one)| Some((key, one.chosen.as_ref()?)));
        (chosen.collect(), &self.other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(busiest: &mut Busiest, number: usize, requests: u64) {
        let key = format!("test/r{number:04}").parse().expect("a Route");
        let mut more = Counters::default();
        more.requests[2] = requests;
        busiest.add(&key, "id", &more);
    }

    fn sum(busiest: &Busiest) -> u64 {
        let (chosen, other) = busiest.counters();
        chosen.iter().map(|(_, counters)| counters.total()).sum::<u64>() + other.total()
    }

    #[test]
    fn the_busiest_are_chosen_and_all_are_counted() {
        let mut busiest = Busiest::default();
        for _ in 0..5 {
            (0..1_000).for_each(|number| add(&mut busiest, number, number as u64));
            busiest.choose();
        }
        assert_eq!(sum(&busiest), 5 * (999 * 1_000 / 2));
        let chosen =
            |busiest: &Busiest| busiest.counters().0.into_iter().map(|(key, _)| key.to_string()).collect::<Vec<_>>();
        assert_eq!((chosen(&busiest).len(), &*chosen(&busiest)[0]), (ROUTES_MAX, "test/r0800"));
        // A Route without requests stays until another one needs its place.
        for _ in 0..500 {
            busiest.choose();
        }
        assert_eq!((chosen(&busiest).len(), busiest.routes.len()), (ROUTES_MAX, ROUTES_MAX));
        add(&mut busiest, 5, 10);
        busiest.choose();
        assert!(chosen(&busiest).contains(&"test/r0005".to_owned()));
        busiest.forget_unless(&"test/r0005".parse().expect("a Route"), None);
        assert_eq!(chosen(&busiest).len(), ROUTES_MAX - 1);
    }
}
