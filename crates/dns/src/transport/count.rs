//! A counter of one worker, which others read.

use std::sync::atomic::{AtomicU64, Ordering};

/// A number that one thread adds to and others read.
#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    /// Adds, from the only thread that is allowed to, so that no locked instruction is needed.
    pub(super) fn add(&self, number: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(number), Ordering::Relaxed);
    }

    /// Adds, from any thread.
    pub(super) fn add_shared(&self, number: u64) {
        self.0.fetch_add(number, Ordering::Relaxed);
    }

    pub(super) fn read(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
