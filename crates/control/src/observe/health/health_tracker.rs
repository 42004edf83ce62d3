//! The health verdict on an address, from the outcomes of probes. Pure.
//!
//! ```text
//!            first outcome: good            `fall` bad ones in a row
//!   unknown ───────────────────────► up ◄──────────────────────────► down
//!       └────────────────────────────────── first outcome: bad ──────► ▲
//!                                            `rise` good ones in a row ─┘  (more after each recent fall)
//! ```
//!
//! The first outcome decides immediately, so that a new address has its verdict before the first answer with it. After that, a
//! single outcome decides only if `rise` or `fall` is 1. An address that falls repeatedly must be healthy for longer each time
//! before it is up again: resolvers cache each answer for its TTL, so every change moves clients back and forth. Falls are never
//! delayed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Falls within this time make coming back harder.
const FLAPPING: Duration = Duration::from_secs(600);
/// The most falls that count: each after the first doubles the good outcomes needed.
const FALLS_MAX: usize = 4;

/// The judgement of one address.
#[derive(Debug, Clone)]
pub struct HealthTracker {
    rise: u32,
    fall: u32,
    verdict: Option<bool>,
    /// The outcomes in a row that contradict the verdict.
    against: u32,
    falls: VecDeque<Instant>,
}

impl HealthTracker {
    /// Returns the state of an address with a previously known `verdict`.
    pub fn new(rise: u32, fall: u32, verdict: Option<bool>) -> Self {
        HealthTracker { rise: rise.max(1), fall: fall.max(1), verdict, against: 0, falls: VecDeque::new() }
    }

    /// Returns the current verdict; `None` before the first outcome.
    pub fn verdict(&self) -> Option<bool> {
        self.verdict
    }

    /// Goes by other bounds from now on.
    pub fn set_bounds(&mut self, rise: u32, fall: u32) {
        (self.rise, self.fall) = (rise.max(1), fall.max(1));
    }

    /// Records an outcome; returns whether that changed the verdict.
    pub fn take(&mut self, good: bool, now: Instant) -> bool {
        while self.falls.front().is_some_and(|at| now.duration_since(*at) > FLAPPING) {
            self.falls.pop_front();
        }
        let needed = match self.verdict {
            None => 1,
            Some(verdict) if verdict == good => {
                self.against = 0;
                return false;
            }
            Some(true) => self.fall,
            Some(false) => self.rise_needed(),
        };
        self.against += 1;
        if self.against < needed {
            return false;
        }
        let fell = self.verdict == Some(true);
        (self.verdict, self.against) = (Some(good), 0);
        if fell {
            if self.falls.len() == FALLS_MAX {
                self.falls.pop_front();
            }
            self.falls.push_back(now);
        }
        true
    }

    /// Returns the number of good outcomes in a row that an address that is down currently needs.
    fn rise_needed(&self) -> u32 {
        self.rise << self.falls.len().saturating_sub(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the verdicts after each outcome, a second apart: `+` and `-` are outcomes, `u`, `d`, and `.` verdicts; `_` is a
    /// wait of eleven minutes.
    fn play(tracker: &mut HealthTracker, outcomes: &str) -> String {
        let mut now = Instant::now();
        let verdict = |tracker: &HealthTracker| match tracker.verdict() {
            None => '.',
            Some(true) => 'u',
            Some(false) => 'd',
        };
        let step = |outcome: char| {
            now += Duration::from_secs(if outcome == '_' { 660 } else { 1 });
            if outcome != '_' {
                let before = tracker.verdict();
                let changed = tracker.take(outcome == '+', now);
                assert_eq!(changed, before != tracker.verdict());
            }
            verdict(tracker)
        };
        outcomes.chars().map(step).collect()
    }

    #[test]
    fn rise_fall_and_flapping() {
        for (rise, fall, before, outcomes, verdicts) in [
            (2, 3, None, "+", "u"),
            (2, 3, None, "-", "d"),
            (2, 3, None, "+--+---", "uuuuuud"),
            (2, 3, Some(true), "---", "uud"),
            (2, 3, Some(false), "+-++", "dddu"),
            (1, 1, None, "+-+", "udu"),
            // The second fall within ten minutes doubles the outcomes needed, the third doubles them again.
            (1, 1, None, "+-+-++-++++", "ududduddddu"),
            (2, 1, None, "+-++-++++", "udduddddu"),
            // After a quiet time, a fall counts as the first again.
            (1, 1, None, "+-+_-+", "uduudu"),
        ] {
            let mut tracker = HealthTracker::new(rise, fall, before);
            let played = play(&mut tracker, outcomes);
            assert_eq!(played, verdicts, "{rise} {fall} {outcomes}");
        }
    }

    #[test]
    fn coming_back_is_harder_up_to_a_bound() {
        let mut tracker = HealthTracker::new(2, 1, Some(true));
        let mut now = Instant::now();
        let mut needed = Vec::new();
        for _ in 0..6 {
            now += Duration::from_secs(1);
            assert!(tracker.take(false, now), "falling is never damped");
            let good = (1..100).find(|_| tracker.take(true, now)).expect("it comes back");
            needed.push(good);
        }
        assert_eq!(needed, [2, 4, 8, 16, 16, 16]);
    }
}
