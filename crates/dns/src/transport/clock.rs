//! The time of day for one worker, made from the monotonic clock that is read for each batch anyway.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The interval between readings of the time of day: a step of the system's clock is followed with this delay.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// Converts moments of the monotonic clock to the time of day.
pub(super) struct WallClock {
    read_at: Instant,
    since_epoch: Duration,
}

impl WallClock {
    pub(super) fn new() -> WallClock {
        WallClock { read_at: Instant::now(), since_epoch: since_epoch() }
    }

    /// Returns the time since the epoch at `moment`, which is recent.
    pub(super) fn at(&mut self, moment: Instant) -> Duration {
        let elapsed = moment.saturating_duration_since(self.read_at);
        if elapsed < READ_AGAIN {
            return self.since_epoch + elapsed;
        }
        *self = WallClock { read_at: moment, since_epoch: since_epoch() };
        self.since_epoch
    }
}

/// Returns the time since the epoch; zero on a machine whose clock is before it.
fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_carried_on_and_read_again() {
        let mut clock = WallClock::new();
        let (read_at, since_epoch) = (clock.read_at, clock.since_epoch);
        let later = Duration::from_millis(999);
        assert_eq!(clock.at(read_at + later), since_epoch + later);
        assert_eq!(clock.read_at, read_at);
        // The system's clock has not advanced by an hour, and the system's clock is right.
        let at = clock.at(read_at + Duration::from_secs(3600));
        assert!(at < since_epoch + Duration::from_secs(1800));
        assert_eq!((clock.read_at, clock.since_epoch), (read_at + Duration::from_secs(3600), at));
    }
}
