//! The random numbers of a worker.

use std::hash::{BuildHasher, RandomState};

/// The random number generator of a worker (wyrand): two multiplications per number, good enough to select the first address.
/// It must not be used for values that an attacker must not guess.
pub(super) struct Random(u64);

impl Random {
    /// Returns a generator with another sequence for each worker and each start.
    pub(super) fn new() -> Self {
        // The only source of randomness in the standard library: the keys of each `RandomState` differ.
        Random(RandomState::new().hash_one(0))
    }

    pub(super) fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0xa076_1d64_78bd_642f);
        let product = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db);
        ((product >> 64) ^ product) as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_dice_are_even_and_each_workers_own() {
        let mut random = Random::new();
        let mut counts = [0u32; 6];
        for _ in 0..60_000 {
            counts[(random.next() % 6) as usize] += 1;
        }
        // Ten times the standard deviation of about 91.
        assert!(counts.iter().all(|count| count.abs_diff(10_000) < 910), "{counts:?}");
        let first = |mut random: Random| (random.next(), random.next());
        assert_ne!(first(Random::new()), first(Random::new()));
    }
}
