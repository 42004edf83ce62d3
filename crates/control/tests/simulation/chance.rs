//! Chance that follows from the seed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::system::mix;

/// A source of random numbers; clones draw from the same one.
#[derive(Clone)]
pub struct Chance(Arc<AtomicU64>);

impl Chance {
    pub fn new(seed: u64) -> Chance {
        Chance(Arc::new(AtomicU64::new(mix(seed))))
    }

    /// Returns a number from 0 to `bound`, exclusive.
    pub fn below(&self, bound: u64) -> u64 {
        mix(self.0.fetch_add(1, Ordering::Relaxed)) % bound.max(1)
    }

    /// Returns a random element.
    pub fn one_of<'a, T>(&self, of: &'a [T]) -> Option<&'a T> {
        of.get(usize::try_from(self.below(of.len() as u64)).ok()?)
    }
}
