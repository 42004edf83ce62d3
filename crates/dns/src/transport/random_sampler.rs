//! Random sampling of one request in N: the common part of the query log and wildcard hits.

use std::num::NonZeroU32;

use super::random::Random;

/// The sampler of a worker: the number of requests to skip before the next sample.
#[derive(Default)]
pub(super) struct RandomSampler {
    every: Option<NonZeroU32>,
    left: u64,
}

impl RandomSampler {
    /// Returns the first of the next `requests` requests to sample, if there is one. Call again for the rest.
    ///
    /// The gaps are drawn again each time, between zero and twice the interval: otherwise, clients with a regular rhythm would be
    /// sampled always, or never.
    pub(super) fn pick(&mut self, every: NonZeroU32, requests: usize, random: &mut Random) -> Option<usize> {
        if self.every != Some(every) {
            self.every = Some(every);
            self.left = gap(every, random);
        }
        if self.left >= requests as u64 {
            self.left -= requests as u64;
            return None;
        }
        let picked = self.left as usize;
        self.left = gap(every, random);
        Some(picked)
    }
}

/// Returns the number of requests to skip: on average one less than `every`.
fn gap(every: NonZeroU32, random: &mut Random) -> u64 {
    let most = 2 * u128::from(every.get()) - 1;
    // The high part of the product is even over 0..most, except for one part in four thousand million.
    ((u128::from(random.next()) * most) >> 32) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of `batches` batches of `size` that are sampled.
    fn picked(draw: &mut RandomSampler, every: u32, batches: usize, size: usize) -> usize {
        let (every, mut random) = (NonZeroU32::new(every).expect("not zero"), Random::new());
        let mut count = 0;
        for _ in 0..batches {
            let mut from = 0;
            while let Some(at) = draw.pick(every, size - from, &mut random) {
                assert!(from + at < size);
                count += 1;
                from += at + 1;
            }
        }
        count
    }

    #[test]
    fn one_in_so_many_is_picked() {
        let mut draw = RandomSampler::default();
        assert_eq!(picked(&mut draw, 1, 100, 64), 6_400);
        for (every, size) in [(2, 1), (10, 64), (10, 3), (100, 64)] {
            let requests = 1_000_000;
            let expected = requests / every as usize;
            let found = picked(&mut draw, every, requests / size, size);
            assert!(found.abs_diff(expected) < expected / 10, "1 in {every}: {found} of {requests}");
        }
        let (longest, mut random) = (NonZeroU32::MAX, Random::new());
        let gaps: Vec<u64> = (0..1_000).map(|_| gap(longest, &mut random)).collect();
        assert!(
            gaps.iter().all(|gap| *gap < 2 * u64::from(u32::MAX)) && gaps.iter().any(|gap| *gap > u64::from(u32::MAX))
        );
        // A change takes effect without waiting for the previous gap.
        picked(&mut draw, u32::MAX, 1, 1);
        assert_eq!(picked(&mut draw, 1, 1, 1), 1);
    }
}
