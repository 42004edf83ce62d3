//! Exponential backoff with an upper bound and jitter, so that many callers that failed together do not retry together.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::time::Duration;

/// The waits between tries: about `first`, then doubling up to `longest`, each shortened at random by up to half.
#[derive(Debug, Clone)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    /// Returns waits from `first` to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Backoff { first, longest, failures: 0 }
    }

    /// Returns the wait after one more failure.
    pub fn next_wait(&mut self) -> Duration {
        let wait = delay(self.first, self.longest, self.failures, random());
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// Resets the next wait to the first one, after a success.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Returns the wait after `failures` earlier failures: between half and the whole of `first` × 2^`failures`, at most `longest`.
/// `random` selects the value between.
pub fn delay(first: Duration, longest: Duration, failures: u32, random: u64) -> Duration {
    let whole = first.saturating_mul(1_u32.checked_shl(failures).unwrap_or(u32::MAX)).min(longest);
    let half = whole / 2;
    // The upper 32 bits as a fraction of the half.
    half + half.mul_f64((random >> 32) as f64 / f64::from(u32::MAX))
}

/// Returns a number that other processes cannot predict. It is good enough to spread waits, but not for secrets.
pub fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest() {
        let (first, longest) = (Duration::from_millis(100), Duration::from_secs(3));
        for (failures, whole_millis) in [(0, 100), (1, 200), (4, 1600), (5, 3000), (31, 3000), (40, 3000)] {
            let whole = Duration::from_millis(whole_millis);
            assert_eq!(delay(first, longest, failures, 0), whole / 2, "{failures}");
            assert_eq!(delay(first, longest, failures, u64::MAX), whole, "{failures}");
        }
    }
}
