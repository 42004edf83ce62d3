//! Times as people read them: how long ago.

use jiff::Timestamp;

/// How long ago `then` was, in its one or two largest units: `12s`, `5m30s`, `3h`, `4d`.
pub(super) fn since(then: Timestamp, now: Timestamp) -> String {
    let seconds = u64::try_from(now.as_second().saturating_sub(then.as_second())).unwrap_or(0);
    of_seconds(seconds)
}

/// A span in its one or two largest units.
pub(super) fn of_seconds(seconds: u64) -> String {
    let two = |large: u64, unit: &str, small: u64, part: &str| match small {
        0 => format!("{large}{unit}"),
        _ => format!("{large}{unit}{small}{part}"),
    };
    match seconds {
        0..120 => format!("{seconds}s"),
        120..600 => two(seconds / 60, "m", seconds % 60, "s"),
        600..10_800 => format!("{}m", seconds / 60),
        10_800..28_800 => two(seconds / 3_600, "h", seconds % 3_600 / 60, "m"),
        28_800..172_800 => format!("{}h", seconds / 3_600),
        172_800..691_200 => two(seconds / 86_400, "d", seconds % 86_400 / 3_600, "h"),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (seconds, text) in [
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (135, "2m15s"),
            (3_600, "60m"),
            (10_860, "3h1m"),
            (90_000, "25h"),
            (176_400, "2d1h"),
            (864_000, "10d"),
        ] {
            assert_eq!(of_seconds(seconds), text);
        }
        let at = |second| Timestamp::from_second(second).expect("in range");
        assert_eq!((since(at(5), at(9)), since(at(9), at(5))), ("4s".to_owned(), "0s".to_owned()));
    }
}
