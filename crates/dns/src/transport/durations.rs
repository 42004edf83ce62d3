//! Request durations, measured once per batch: the clock is read when a batch has arrived and when its answers have been passed
//! to the kernel, and each of its requests is recorded with the time between.
//!
//! A batch is the result of one system call: up to 64 datagrams, or one read of a stream. Each request is recorded with the time
//! of the slowest request of its batch, which is also its own time if the answers leave together. The time before that, in the
//! socket, is not included.

use std::time::Duration;

use super::count::Count;

/// The upper bounds of the buckets in seconds, inclusive; longer durations are in one more bucket. A batch of one takes some ten
/// microseconds, one of 64 some hundred; beyond a few milliseconds the machine is short of processors.
pub const BOUNDS_SECONDS: [f64; 16] = [
    0.000_01, 0.000_025, 0.000_05, 0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
    1.0, 5.0,
];

/// A histogram with one writer, or with many tasks that use the shared method.
#[derive(Default)]
pub(super) struct Durations {
    requests: [Count; BOUNDS_SECONDS.len() + 1],
    nanoseconds: Count,
}

/// A histogram at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct DurationCounts {
    /// Requests by bucket, see [`BOUNDS_SECONDS`].
    pub requests: [u64; BOUNDS_SECONDS.len() + 1],
    /// The sum of their durations in seconds.
    pub seconds: f64,
}

impl Durations {
    /// Records a batch of this many requests, from the one thread that is allowed to.
    pub(super) fn record(&self, requests: u64, took: Duration) {
        self.record_by(Count::add, requests, took);
    }

    /// Records a batch of this many requests, from any thread.
    pub(super) fn record_shared(&self, requests: u64, took: Duration) {
        self.record_by(Count::add_shared, requests, took);
    }

    fn record_by(&self, add: impl Fn(&Count, u64), requests: u64, took: Duration) {
        // The nanoseconds of a few centuries fit.
        let nanoseconds = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        add(&self.requests[bucket(took)], requests);
        add(&self.nanoseconds, requests.wrapping_mul(nanoseconds));
    }
}

impl DurationCounts {
    pub(super) fn add(&mut self, durations: &Durations) {
        for (mine, theirs) in self.requests.iter_mut().zip(&durations.requests) {
            *mine += theirs.read();
        }
        self.seconds += durations.nanoseconds.read() as f64 / 1e9;
    }

    /// Returns the number of requests.
    pub fn request_count(&self) -> u64 {
        self.requests.iter().sum()
    }
}

fn bucket(took: Duration) -> usize {
    let seconds = took.as_secs_f64();
    BOUNDS_SECONDS.iter().position(|bound| seconds <= *bound).unwrap_or(BOUNDS_SECONDS.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_request_of_a_batch_is_recorded_with_its_batch() {
        assert!(BOUNDS_SECONDS.is_sorted());
        let durations = Durations::default();
        durations.record(64, Duration::from_micros(100));
        durations.record_shared(2, Duration::from_nanos(100_001));
        durations.record(1, Duration::from_secs(60));
        durations.record(1, Duration::ZERO);
        let mut counts = DurationCounts::default();
        counts.add(&durations);
        counts.add(&durations);
        assert_eq!((counts.requests[0], counts.requests[3], counts.requests[4], counts.requests[16]), (2, 128, 4, 2));
        assert_eq!(counts.request_count(), 136);
        assert!((counts.seconds - 2.0 * (64.0 * 100e-6 + 2.0 * 100.001e-6 + 60.0)).abs() < 1e-9, "{}", counts.seconds);
    }
}
