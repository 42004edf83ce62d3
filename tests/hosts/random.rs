//! Random numbers that follow from a seed (SplitMix64).

/// A sequence of random numbers.
pub struct Random(u64);

impl Random {
    /// Returns the sequence of `seed`, and of its `branch`.
    pub fn new(seed: u64, branch: u64) -> Random {
        Random(seed ^ branch.wrapping_mul(0xd134_2543_de82_ef95))
    }

    /// Returns a number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound as u64) as usize
    }

    /// Returns a random element.
    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}
