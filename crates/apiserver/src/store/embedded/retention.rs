//! The bytes of retained history: superseded values and deletions that a watch or an older list can still read.
//!
//! The account is kept in steps of whole revisions, each of a part of the budget, so its size depends on neither the number of
//! revisions nor the number of keys.

use std::collections::VecDeque;

use crate::store::Event;

/// The number of steps in a full budget: over it, history is forgotten in pieces of this part.
const STEPS: u64 = 64;

/// The bytes that a revision's log entry and the keys in the tables take in addition to the keys.
const CHANGE_OVERHEAD: u64 = 64;

/// The account of retained history.
pub(super) struct Retention {
    budget: u64,
    bytes: u64,
    steps: VecDeque<Step>,
}

struct Step {
    /// The last revision of the step.
    last: u64,
    bytes: u64,
}

impl Retention {
    /// Returns an account without history, for at most `budget` bytes.
    pub(super) fn new(budget: u64) -> Self {
        Retention { budget, bytes: 0, steps: VecDeque::new() }
    }

    /// Adds the history that a revision makes. Revisions come in order.
    pub(super) fn add(&mut self, revision: u64, bytes: u64) {
        self.bytes += bytes;
        match self.steps.back_mut() {
            Some(step) if step.bytes < self.budget / STEPS => {
                step.last = revision;
                step.bytes += bytes;
            }
            _ => self.steps.push_back(Step { last: revision, bytes }),
        }
    }

    /// Records that history up to `revision` is deleted.
    pub(super) fn forget(&mut self, revision: u64) {
        while let Some(step) = self.steps.front().filter(|step| step.last <= revision) {
            self.bytes -= step.bytes;
            self.steps.pop_front();
        }
    }

    /// Returns the number of bytes.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the revision up to which the budget requires history to be forgotten; 0 if the budget is met.
    pub(super) fn excess(&self) -> u64 {
        let mut left = self.bytes;
        let mut upto = 0;
        for step in &self.steps {
            if left <= self.budget {
                break;
            }
            left -= step.bytes;
            upto = step.last;
        }
        upto
    }
}

/// Returns the bytes of history that a change of a key makes, whose value before had `before` bytes.
pub(super) fn charge(key: &str, before: usize) -> u64 {
    2 * key.len() as u64 + before as u64 + CHANGE_OVERHEAD
}

/// Returns the bytes of history that a revision makes.
pub(super) fn charge_of(events: &[Event]) -> u64 {
    let one = |event: &Event| charge(&event.now.key.0, event.before.as_ref().map_or(0, |before| before.value.len()));
    events.iter().map(one).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_history_beyond_the_budget_is_to_be_forgotten() {
        let mut retention = Retention::new(6_400);
        for revision in 1..=64 {
            retention.add(revision, 100);
        }
        assert_eq!(retention.excess(), 0);
        retention.add(65, 250);
        assert_eq!(retention.excess(), 3);
        retention.forget(2);
        assert_eq!(retention.excess(), 3);
        retention.forget(3);
        assert_eq!(retention.excess(), 0);
        // Small revisions share a step.
        let mut retention = Retention::new(6_400);
        (1..=100_000).for_each(|revision| retention.add(revision, 1));
        assert!(retention.steps.len() <= 1_001);
        assert!((100_000 - 6_400 - 1..100_000 - 6_200).contains(&retention.excess()), "{}", retention.excess());
    }
}
