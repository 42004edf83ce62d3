//! The log of requests that fail: a process that was frozen, or whose API is away, meets the same failure for each object that it
//! works on, which can be a thousand at once. The first few are logged, and of the others the number.

use std::time::Duration;

use tokio::time::Instant;

/// The number of failures that are logged in a [`WINDOW`].
const LOGGED_MAX: u32 = 5;
const WINDOW: Duration = Duration::from_secs(10);

/// The failures of one kind of work.
#[derive(Debug, Default)]
pub struct FailureLog {
    /// The begin of the window, and the number of failures in it.
    window: Option<(Instant, u32)>,
    omitted: u32,
}

impl FailureLog {
    /// Returns the number of failures that were not logged since the last one that was, if this one should be logged.
    pub fn take(&mut self, now: Instant) -> Option<u32> {
        let (begin, count) = self.window.filter(|(begin, _)| now.duration_since(*begin) < WINDOW).unwrap_or((now, 0));
        self.window = Some((begin, count + 1));
        if count < LOGGED_MAX {
            return Some(std::mem::take(&mut self.omitted));
        }
        self.omitted += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_burst_the_first_few_and_the_number_of_the_others_are_logged() {
        let (mut log, begin) = (FailureLog::default(), Instant::now());
        let burst: Vec<_> = (0..1_000).filter_map(|_| log.take(begin)).collect();
        assert_eq!(burst, [0; 5]);
        assert_eq!(log.take(begin + WINDOW), Some(995));
        assert_eq!(log.take(begin + WINDOW), Some(0));
    }
}
