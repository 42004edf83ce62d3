//! The time. Pure modules take it as an argument instead.

use std::time::{SystemTime, UNIX_EPOCH};

/// Returns the seconds since the epoch; 0 on a machine whose clock is before it.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
