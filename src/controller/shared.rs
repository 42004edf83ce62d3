//! One copy of each binding for all loops of the process.
//!
//! The name server and the ledger of serials mirror the RouteBindings each for itself, and read the same from each. In a
//! process that has both roles, equal ones are one piece of memory. What is here keeps nothing alive.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};

use crate::compiler::inputs::BindingInput;

/// So many places are there before those of bindings that are gone are looked for.
const PLACES_MIN: usize = 1_024;

/// `binding`, or one like it that another loop has already.
pub fn binding(binding: BindingInput) -> Arc<BindingInput> {
    static BINDINGS: LazyLock<Mutex<Shared>> = LazyLock::new(Mutex::default);
    BINDINGS.lock().unwrap_or_else(PoisonError::into_inner).one(binding)
}

struct Shared {
    /// By the hash of a binding's key: of two with one hash the later is shared.
    places: HashMap<u64, Weak<BindingInput>>,
    hasher: RandomState,
    /// From how many places on those that are empty are given up.
    full: usize,
}

impl Default for Shared {
    fn default() -> Self {
        Shared { places: HashMap::new(), hasher: RandomState::new(), full: PLACES_MIN }
    }
}

impl Shared {
    fn one(&mut self, binding: BindingInput) -> Arc<BindingInput> {
        let hash = self.hasher.hash_one(&binding.key);
        if let Some(same) = self.places.get(&hash).and_then(Weak::upgrade).filter(|found| **found == binding) {
            return same;
        }
        let binding = Arc::new(binding);
        self.places.insert(hash, Arc::downgrade(&binding));
        if self.places.len() > self.full {
            self.places.retain(|_, binding| binding.strong_count() > 0);
            self.full = PLACES_MIN.max(2 * self.places.len());
        }
        binding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binding(key: usize, shard: &str) -> BindingInput {
        BindingInput {
            key: format!("n/{key}").into(),
            created: 0,
            label: "label".into(),
            shard: shard.into(),
            trails: Box::default(),
            trails_to: None,
        }
    }

    #[test]
    fn equal_bindings_are_one_as_long_as_someone_has_it() {
        let mut shared = Shared::default();
        let first = shared.one(binding(1, "a"));
        assert!(Arc::ptr_eq(&first, &shared.one(binding(1, "a"))));
        let changed = shared.one(binding(1, "b"));
        assert_eq!((&*first.shard, &*changed.shard), ("a", "b"));
        assert!(Arc::ptr_eq(&changed, &shared.one(binding(1, "b"))));
        drop((first, changed));
        assert!(shared.places.values().all(|place| place.strong_count() == 0));
    }

    #[test]
    fn places_of_bindings_that_are_gone_are_given_up() {
        let mut shared = Shared::default();
        let kept: Vec<_> = (0..10).map(|key| shared.one(binding(key, "a"))).collect();
        for key in 10..10 * PLACES_MIN {
            shared.one(binding(key, "a"));
        }
        assert!(shared.places.len() <= PLACES_MIN, "{}", shared.places.len());
        assert!(kept.iter().enumerate().all(|(key, kept)| Arc::ptr_eq(kept, &shared.one(binding(key, "a")))));
    }
}
