//! Spans of time as `kubectl` prints ages: `12s`, `5m30s`, `3h`, `4d`.

use jiff::Timestamp;
use signpost_apiserver::kind::columns::human_duration;

/// Returns how long ago `then` was.
pub(super) fn since(then: Timestamp, now: Timestamp) -> String {
    human_duration(now.as_second().saturating_sub(then.as_second()).max(0))
}

/// Returns a span.
pub(super) fn of_seconds(seconds: u64) -> String {
    human_duration(seconds.try_into().unwrap_or(i64::MAX))
}
