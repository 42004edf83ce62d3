//! Whether a history of one key is linearizable: whether every operation can take effect at one moment between its beginning
//! and its return, so that each ends as a register would let it end.
//!
//! This is the search of Wing and Gong ("Testing and Verifying Concurrent Objects", 1993) with Lowe's memory of the places where it has
//! been ("Testing for linearizability", 2017): it takes one operation after the other that no other one must precede, and goes back
//! where none fits. A place is the set of the operations that were taken and the state that they left.

use std::collections::HashSet;

use crate::history::{Action, Operation, Outcome, Version};

/// The maximum number of explored states. The history of a workload needs little more than one per operation; each takes a few
/// dozen octets.
const PLACES_MAX: usize = 2_000_000;

/// The object, if there is one.
pub type State = Option<Held>;

/// The object. Its revision is unknown after a write whose response was lost, until a client reads it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Held {
    value: u64,
    revision: Option<u64>,
}

/// The violation in a rejected history.
#[derive(Debug, PartialEq, Eq)]
pub enum Violation {
    /// No order of the operations explains it.
    NotLinearizable {
        /// The most operations that an order explains, by their numbers, in that order.
        longest: Vec<usize>,
        /// The operation that returns first of those that are left.
        stuck: usize,
    },
    /// The search has reached its bound.
    TooLong,
}

/// Accepts the history of a key that has no object at first.
pub fn check(history: &[Operation]) -> Result<(), Violation> {
    Search::new(history).run()
}

/// Returns the state after an operation takes effect; `None` if it could not have had its outcome.
fn step(state: State, operation: &Operation) -> Option<State> {
    let (action, outcome) = (operation.action, operation.outcome);
    match outcome {
        Outcome::Found(None) => state.is_none().then_some(None),
        Outcome::Found(Some(version)) => state?.seen_as(version).map(Some),
        Outcome::Written(revision) => written(state, action, revision).map(Some),
        Outcome::Deleted => {
            let held = state?;
            match action {
                Action::Delete(Some(expected)) => held.seen_as(expected).map(|_| None),
                _ => Some(None),
            }
        }
        Outcome::Absent => state.is_none().then_some(None),
        Outcome::Present => state.map(Some),
        Outcome::Differs => {
            let held = state?;
            let differs = match action {
                Action::Replace { expected, .. } | Action::Delete(Some(expected)) => !held.is(expected),
                Action::Swap { expected, .. } => held.value != expected,
                _ => true,
            };
            differs.then_some(state)
        }
        Outcome::Unknown => Some(after_unknown(state, action)),
        Outcome::Failed => Some(state),
    }
}

/// Returns the state after a write that was answered with a revision.
fn written(state: State, action: Action, revision: u64) -> Option<Held> {
    let value = action.written()?;
    let is_later = |held: Held| held.revision.is_none_or(|before| before < revision);
    match action {
        Action::Create(_) if state.is_some() => return None,
        Action::Create(_) => {}
        // Without a change it may write nothing, and show the revision that the object has.
        Action::Set(_) if state?.value == value => return state?.seen_as(Version { value, revision }),
        Action::Replace { expected, .. } => drop(state?.seen_as(expected)?),
        Action::Swap { expected, .. } if state?.value != expected => return None,
        _ => drop(state?),
    }
    state.is_none_or(is_later).then_some(Held { value, revision: Some(revision) })
}

/// Returns the state after a write without an answer took effect, which may change nothing.
fn after_unknown(state: State, action: Action) -> State {
    let new = action.written().map(|value| Held { value, revision: None });
    let takes_effect = match (action, state) {
        (Action::Create(_), held) => held.is_none(),
        (_, None) => false,
        (Action::Replace { expected, .. } | Action::Delete(Some(expected)), Some(held)) => {
            held.seen_as(expected).is_some()
        }
        (Action::Swap { expected, .. }, Some(held)) => held.value == expected,
        (Action::Set(value), Some(held)) => held.value != value,
        _ => true,
    };
    if takes_effect { new } else { state }
}

impl Held {
    /// Returns whether it is certainly this version.
    fn is(self, version: Version) -> bool {
        self.value == version.value && self.revision == Some(version.revision)
    }

    /// Returns the same state with the revision of `version`, if it can be this version.
    fn seen_as(self, version: Version) -> Option<Held> {
        let fits = self.value == version.value && self.revision.is_none_or(|revision| revision == version.revision);
        fits.then_some(Held { revision: Some(version.revision), ..self })
    }
}

/// The search through the orders of a history.
struct Search<'a> {
    history: &'a [Operation],
    /// The operations that returned and those that never did, by their numbers, in the order of their beginnings.
    returned: Vec<usize>,
    open: Vec<usize>,
    taken: Vec<bool>,
    /// The number of leading operations of `returned` that were taken without a gap.
    front: usize,
    state: State,
    visited: HashSet<(Vec<usize>, State)>,
    longest: Vec<usize>,
}

/// One operation that was taken, and what to go back to.
struct Checkpoint {
    operation: usize,
    state: State,
    front: usize,
    /// The alternatives to it.
    others: Vec<usize>,
}

impl<'a> Search<'a> {
    fn new(history: &'a [Operation]) -> Self {
        let mut numbers: Vec<usize> = (0..history.len()).filter(|number| history[*number].counts()).collect();
        numbers.sort_by_key(|number| history[*number].invoked);
        let (open, returned) = numbers.into_iter().partition(|number| history[*number].outcome == Outcome::Unknown);
        let taken = vec![false; history.len()];
        let (visited, longest) = (HashSet::new(), Vec::new());
        Search { history, returned, open, taken, front: 0, state: None, visited, longest }
    }

    fn run(mut self) -> Result<(), Violation> {
        let mut path: Vec<Checkpoint> = Vec::new();
        let mut candidates = self.candidates();
        loop {
            // Operations without an answer need not take effect.
            if self.front == self.returned.len() {
                return Ok(());
            }
            if let Some(operation) = candidates.pop() {
                let Some(state) = step(self.state, &self.history[operation]) else { continue };
                let before = Checkpoint { operation, state: self.state, front: self.front, others: candidates };
                self.take(operation, state);
                if !self.visited.insert((self.place(), state)) {
                    candidates = self.go_back(before);
                    continue;
                }
                if self.visited.len() > PLACES_MAX {
                    return Err(Violation::TooLong);
                }
                path.push(before);
                candidates = self.candidates();
                continue;
            }
            if path.len() > self.longest.len() {
                self.longest = path.iter().map(|taken| taken.operation).collect();
            }
            if let Some(last) = path.pop() {
                candidates = self.go_back(last);
            } else {
                let left = self.returned.iter().filter(|number| !self.longest.contains(number));
                let stuck = left.min_by_key(|number| self.history[**number].returned);
                let stuck = *stuck.expect("otherwise all are explained");
                return Err(Violation::NotLinearizable { longest: self.longest, stuck });
            }
        }
    }

    /// Returns the operations that may be next: those that began before any that is left has returned. The last is tried first:
    /// one that returned soon; those without an answer only where nothing else fits.
    fn candidates(&self) -> Vec<usize> {
        let mut end = u64::MAX;
        let mut found = Vec::new();
        for number in &self.returned[self.front..] {
            let operation = &self.history[*number];
            if operation.invoked > end {
                break;
            }
            if !self.taken[*number] {
                end = end.min(operation.returned);
                found.push(*number);
            }
        }
        found.retain(|number| self.history[*number].invoked < end);
        found.sort_by_key(|number| std::cmp::Reverse(self.history[*number].returned));
        let open = self.open.iter().filter(|number| !self.taken[**number] && self.history[**number].invoked < end);
        // One that would change nothing here is as well left for later.
        let open = open.filter(|number| after_unknown(self.state, self.history[**number].action) != self.state);
        open.copied().chain(found).collect()
    }

    fn take(&mut self, operation: usize, state: State) {
        self.taken[operation] = true;
        self.state = state;
        while self.returned.get(self.front).is_some_and(|number| self.taken[*number]) {
            self.front += 1;
        }
    }

    fn go_back(&mut self, last: Checkpoint) -> Vec<usize> {
        self.taken[last.operation] = false;
        (self.state, self.front) = (last.state, last.front);
        last.others
    }

    /// Returns the set of operations that were taken: how far without a gap, those beyond it, and those without an answer.
    fn place(&self) -> Vec<usize> {
        let end = self.returned.get(self.front).map_or(0, |number| self.history[*number].returned);
        let beyond = self.returned[self.front..].iter().take_while(|number| self.history[**number].invoked < end);
        let taken = beyond.chain(&self.open).filter(|number| self.taken[**number]);
        std::iter::once(self.front).chain(taken.copied()).collect()
    }
}

mod tests;
