//! The keys counted most, in bounded memory: Space-Saving (Metwally, Agrawal, El Abbadi: Efficient Computation of Frequent
//! and Top-k Elements in Data Streams, 2005), with weights.
//!
//! So many keys have a count. One that comes without having one takes the place, and the count, of the one counted least. So
//! a count is never too small; by how much it may be too large is kept with it; and whatever has more than its share of
//! everything counted, one part in as many as there are places, has a place.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

/// Counts of the keys counted most.
#[derive(Debug, Clone)]
pub struct Top<K> {
    places: usize,
    entries: Vec<Entry<K>>,
    by_key: HashMap<Arc<K>, usize>,
    total: u64,
}

/// A key's count.
#[derive(Debug, Clone)]
pub struct Entry<K> {
    /// The key.
    pub key: Arc<K>,
    /// How much was counted for it at most.
    pub count: u64,
    /// How much of that may have been another key's.
    pub over: u64,
}

impl<K: Hash + Eq> Top<K> {
    /// Nothing counted yet, with so many places, at least one. A key that is to lose its place is looked for among all, so that
    /// some hundred is what this is for.
    pub fn new(places: usize) -> Self {
        Top { places: places.max(1), entries: Vec::new(), by_key: HashMap::new(), total: 0 }
    }

    /// Counts `weight` more for `key`.
    pub fn add(&mut self, key: K, weight: u64) {
        self.total += weight;
        if let Some(at) = self.by_key.get(&key) {
            self.entries[*at].count += weight;
            return;
        }
        let key = Arc::new(key);
        if self.entries.len() < self.places {
            self.by_key.insert(Arc::clone(&key), self.entries.len());
            self.entries.push(Entry { key, count: weight, over: 0 });
            return;
        }
        let least = self.entries.iter().enumerate().min_by_key(|(_, entry)| entry.count).map(|(at, _)| at);
        let at = least.expect("there is one place at least");
        let entry = &mut self.entries[at];
        self.by_key.remove(&entry.key);
        self.by_key.insert(Arc::clone(&key), at);
        *entry = Entry { key, count: entry.count + weight, over: entry.count };
    }

    /// Everything counted, for whatever key.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The keys that have a place, in no order.
    pub fn entries(&self) -> &[Entry<K>] {
        &self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_newcomer_takes_the_place_of_the_least() {
        let mut top = Top::new(2);
        for (key, weight) in [("a", 5), ("b", 2), ("a", 1), ("c", 1)] {
            top.add(key, weight);
        }
        let mut told: Vec<_> = top.entries().iter().map(|entry| (*entry.key, entry.count, entry.over)).collect();
        told.sort_unstable();
        assert_eq!((told, top.total()), (vec![("a", 6, 0), ("c", 3, 2)], 9));
    }

    proptest! {
        /// Whatever is counted: a count is never too small, and too large by no more than it says; who has more than its share
        /// has a place; and there are never more places than allowed.
        #[test]
        fn what_a_count_promises(
            places in 1_usize..12,
            stream in proptest::collection::vec((0_u8..40, 1_u64..9), 0..400),
        ) {
            let mut top = Top::new(places);
            let mut exact: HashMap<u8, u64> = HashMap::new();
            for (key, weight) in &stream {
                top.add(*key, *weight);
                *exact.entry(*key).or_default() += weight;
            }
            let total: u64 = exact.values().sum();
            prop_assert_eq!(top.total(), total);
            prop_assert!(top.entries().len() <= places);
            prop_assert_eq!(top.entries().iter().map(|entry| entry.count).sum::<u64>(), total);
            for entry in top.entries() {
                let exact = exact[&*entry.key];
                prop_assert!(entry.count >= exact && entry.count - entry.over <= exact);
            }
            for (key, count) in &exact {
                if *count > total / places as u64 {
                    prop_assert!(top.entries().iter().any(|entry| *entry.key == *key), "{} of {}", count, total);
                }
            }
        }
    }
}
