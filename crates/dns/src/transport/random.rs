//! The random numbers of a worker.

use std::hash::{BuildHasher, RandomState};

/// The random number generator of a worker (wyrand): two multiplications a number, good enough to choose which address comes
/// first. Nothing that must not be guessed is made from it. super) struct Random(u64);   Random { A generator with another
/// sequence for each worker and each start. super) fn new() -> Self { he one source of randomness in the standard library: the
/// keys of each `RandomState` differ. om(RandomState::new().hash_one(0))   super) fn next(&mut self) -> u32 { .0 =
/// self.0.wrapping_add(0xa076_1d64_78bd_642f); product = u128::from(self.0) * u128::from(self.0 ^ 0xe703_7ed1_a0b4_28db); oduct
/// >> 64) ^ product) as u32
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
