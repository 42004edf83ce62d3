//! How name servers stand with single names that they answer wrong, though the zone is right.
//!
//! A name that has an answer of its own says nothing of its zone: what fails for it is told of its route, and of no other.
//! Only what fails is kept.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::check::Fault;
use super::standing::{Effect, Standing, State};
use signpost_dns::zone::Serial;

/// Most names that are kept of one server and one kind of zone: more are found again when some of these are right.
const FAILING_MAX: usize = 1024;

/// The names that fail, by their labels. There is a slot for each server and kind of zone.
#[derive(Debug)]
pub struct OwnNames(Box<[BTreeMap<Box<str>, Standing>]>);

impl OwnNames {
    /// No name fails in any of so many slots.
    pub fn new(slots: usize) -> Self {
        OwnNames((0..slots).map(|_| BTreeMap::new()).collect())
    }

    /// Whether the name failed when it was asked for last.
    pub fn is_failing(&self, label: &str, slot: usize) -> bool {
        self.0[slot].contains_key(label)
    }

    /// The labels of the names that fail.
    pub fn failing(&self, slot: usize) -> impl Iterator<Item = &Box<str>> {
        self.0[slot].keys()
    }

    /// How the server stands with the name.
    pub fn state(&self, label: &str, slot: usize, need: Serial) -> State<'_> {
        self.0[slot].get(label).map_or(State::Right, |standing| standing.state(need))
    }

    /// The name was answered wrong. The answer is what that changes, and how it stands.
    pub fn failed(&mut self, label: &str, slot: usize, fault: Fault, now: Instant) -> Option<(Effect, &Standing)> {
        let names = &mut self.0[slot];
        if names.len() >= FAILING_MAX && !names.contains_key(label) {
            return None;
        }
        let standing = names.entry(label.into()).or_default();
        Some((standing.note(Err(fault), now), standing))
    }

    /// The name was answered right. Whether it was not before.
    pub fn right(&mut self, label: &str, slot: usize) -> bool {
        self.0[slot].remove(label).is_some()
    }

    /// The label is no route's any more, or leads elsewhere.
    pub fn forget(&mut self, label: &str) {
        self.0.iter_mut().for_each(|names| drop(names.remove(label)));
    }
}
