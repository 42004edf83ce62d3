//! The rate limit of events about clients without credentials.
//!
//! The size of the log's files is limited, so a flood of events removes older ones. A stranger must not be able to cause that, so all
//! clients without credentials share one token bucket.

use std::time::Instant;

/// The events per second that the bucket regains, and its capacity.
const PER_SECOND: f64 = 10.0;
const AT_ONCE: f64 = 100.0;

/// The bucket of all clients without credentials.
#[derive(Default)]
pub(super) struct StrangerLimit {
    /// The events taken and not regained yet.
    taken: f64,
    at: Option<Instant>,
}

impl StrangerLimit {
    /// Returns whether there is room for another event. If so, the event counts.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let regained = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64() * PER_SECOND);
        self.taken = (self.taken - regained).max(0.0);
        self.at = Some(now);
        let has_room = self.taken + 1.0 <= AT_ONCE;
        if has_room {
            self.taken += 1.0;
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_and_then_a_rate() {
        let (mut limit, start) = (StrangerLimit::default(), Instant::now());
        let mut written = |at| (0..1_000).filter(|_| limit.take(at)).count();
        assert_eq!(written(start), 100);
        assert_eq!(written(start + Duration::from_secs(2)), 20);
        assert_eq!(written(start + Duration::from_mins(1)), 100);
    }
}
