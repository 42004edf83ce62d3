//! The times of the last queries for names: query threads record them in passing, and other threads read them.
//!
//! A table of fixed size, addressed by the hashes that answers need anyway. A name gets its slot before a query can be recorded,
//! and keeps it for the lifetime of the table; for more slots, the owner creates a larger table, and reads both until the first
//! has no users. Recording a query takes a lookup of its slot and, once per second, one store: no lock, and no memory order,
//! because entries are independent.

use std::fmt;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use super::qname::NameHash;

/// The times of the last queries, by name.
pub struct LastQueried {
    /// The slots: a power of two, of which at most half are in use, so that every search ends.
    slots: Box<[Slot]>,
    taken: AtomicUsize,
}

/// The slot of a name.
#[derive(Default)]
struct Slot {
    /// The hash of the name; zero: the slot is free.
    hash: AtomicU64,
    /// The time of the last query for the name, in seconds since 1970; zero: never. It lasts until 2106.
    second: AtomicU32,
}

/// The minimum number of slots, of which half can be in use.
const SLOTS_MIN: usize = 64;

/// There is no slot for another name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl LastQueried {
    /// Returns an empty table with slots for at least `names` names.
    pub fn new(names: usize) -> LastQueried {
        let slots = (2 * names).next_power_of_two().max(SLOTS_MIN);
        LastQueried { slots: (0..slots).map(|_| Slot::default()).collect(), taken: AtomicUsize::new(0) }
    }

    /// Assigns a slot to the name with this hash, if it has none.
    ///
    /// # Errors
    ///
    /// [`Full`] if there is none left.
    pub fn place(&self, hash: NameHash) -> Result<(), Full> {
        let hash = stored(hash);
        for slot in self.probes(hash) {
            match slot.hash.load(Ordering::Relaxed) {
                found if found == hash => return Ok(()),
                0 => {
                    if self.taken.load(Ordering::Relaxed) >= self.slots.len() / 2 {
                        return Err(Full);
                    }
                    match slot.hash.compare_exchange(0, hash, Ordering::Relaxed, Ordering::Relaxed) {
                        Ok(_) => {
                            self.taken.fetch_add(1, Ordering::Relaxed);
                            return Ok(());
                        }
                        Err(found) if found == hash => return Ok(()),
                        Err(_) => {}
                    }
                }
                _ => {}
            }
        }
        Err(Full)
    }

    /// Records a query for the name with this hash in this second, if it has a slot.
    #[inline]
    pub fn mark(&self, hash: NameHash, second: u64) {
        let second = u32::try_from(second).unwrap_or(u32::MAX);
        if let Some(slot) = self.slot(stored(hash))
            && slot.second.load(Ordering::Relaxed) < second
        {
            slot.second.store(second, Ordering::Relaxed);
        }
    }

    /// Returns the second of the last query for the name with this hash; `None`: none since it has a slot.
    pub fn last(&self, hash: NameHash) -> Option<u64> {
        let second = self.slot(stored(hash))?.second.load(Ordering::Relaxed);
        (second > 0).then_some(u64::from(second))
    }

    fn slot(&self, hash: u64) -> Option<&Slot> {
        for slot in self.probes(hash) {
            match slot.hash.load(Ordering::Relaxed) {
                found if found == hash => return Some(slot),
                0 => return None,
                _ => {}
            }
        }
        None
    }

    /// Returns the slots of a hash, in the order of the search.
    fn probes(&self, hash: u64) -> impl Iterator<Item = &Slot> {
        let mask = self.slots.len() - 1;
        let first = hash as usize & mask;
        (0..self.slots.len()).map(move |step| &self.slots[(first + step) & mask])
    }
}

/// Returns the hash as stored in a slot, where zero has another meaning.
fn stored(hash: NameHash) -> u64 {
    hash.max(1)
}

impl fmt::Debug for LastQueried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LastQueried").field("taken", &self.taken).field("slots", &self.slots.len()).finish()
    }
}

/// Two tables are equal only if they are the same table.
impl PartialEq for LastQueried {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Eq for LastQueried {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::{HashMap, HashSet};

    proptest! {
        /// Against a map: names with a place have their latest mark, others none, and half the places can be taken.
        #[test]
        fn as_a_map_of_bounded_size(
            // Few bits decide where a hash stands, so that many collide; zero is one of them.
            places in proptest::collection::vec((0_u64..6, 0_u64..9), 0..80),
            marks in proptest::collection::vec((0_u64..6, 0_u64..9, 1_u64..1000), 0..200),
        ) {
            let asked = LastQueried::new(32);
            let (mut placed, mut last): (HashSet<u64>, HashMap<u64, u64>) = Default::default();
            let hash = |low: u64, high: u64| if (low, high) == (1, 0) { 70 } else { high << 40 | low };
            for (low, high) in places {
                let hash = hash(low, high);
                match asked.place(hash) {
                    Ok(()) => drop(placed.insert(hash)),
                    Err(Full) => prop_assert!(placed.len() == 32 && !placed.contains(&hash)),
                }
                prop_assert!(placed.len() <= 32);
            }
            for (low, high, second) in marks {
                let hash = hash(low, high);
                asked.mark(hash, second);
                if placed.contains(&hash) {
                    let mark = last.entry(hash).or_default();
                    *mark = second.max(*mark);
                }
                prop_assert_eq!(asked.last(hash), last.get(&hash).copied());
            }
        }
    }

    #[test]
    fn threads_mark_while_places_are_given() {
        let asked = LastQueried::new(1_000);
        std::thread::scope(|scope| {
            for thread in 1..4 {
                let asked = &asked;
                scope.spawn(move || {
                    (0..200).for_each(|round| (0..1_000).for_each(|hash| asked.mark(hash << 7, 10 * round + thread)));
                });
            }
            (0..1_000).for_each(|hash| asked.place(hash << 7).expect("there is room"));
        });
        for hash in 0..1_000 {
            asked.mark(hash << 7, 5_000);
            assert_eq!(asked.last(hash << 7), Some(5_000));
        }
        assert_eq!(asked.last(3), None);
    }
}
