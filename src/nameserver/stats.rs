//! Counters of one worker, written by it alone and read by whoever sums them.

/// Counters of one worker.
#[derive(Default)]
pub struct Stats {}

impl Stats {
    /// All zero.
    pub fn new() -> Self {
        Self::default()
    }
}
