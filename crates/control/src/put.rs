//! Entries of maps that are set, or removed without a value.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, Hash};

/// A map with such entries.
pub(crate) trait Put<K, V> {
    /// Sets the entry, or removes it without a value. Returns the value before.
    fn put(&mut self, key: K, value: Option<V>) -> Option<V>;
}

impl<K: Ord, V> Put<K, V> for BTreeMap<K, V> {
    fn put(&mut self, key: K, value: Option<V>) -> Option<V> {
        match value {
            Some(value) => self.insert(key, value),
            None => self.remove(&key),
        }
    }
}

impl<K: Eq + Hash, V, S: BuildHasher> Put<K, V> for HashMap<K, V, S> {
    fn put(&mut self, key: K, value: Option<V>) -> Option<V> {
        match value {
            Some(value) => self.insert(key, value),
            None => self.remove(&key),
        }
    }
}
