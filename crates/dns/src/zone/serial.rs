//! Serial numbers of zones and their arithmetic (RFC 1982).

use std::cmp::Ordering;
use std::fmt;

/// A zone's serial number (RFC 1035 §3.3.13): 32 bits that wrap around.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Serial(pub u32);

impl Serial {
    /// Returns the serial after `previous` for a zone changed at `unix_now` (seconds since the epoch): max(previous + 1, now) in
    /// serial arithmetic, so that it never goes backwards and usually shows the time of the change.
    pub fn next(previous: Serial, unix_now: u64) -> Serial {
        let successor = Serial(previous.0.wrapping_add(1));
        // Serial arithmetic compares the low 32 bits of the clock, which wrap in 2106 as serials do.
        let now = Serial(unix_now as u32);
        if now.is_after(successor) { now } else { successor }
    }

    /// Returns whether this serial is newer than `other` (RFC 1982 §3.2).
    pub fn is_after(self, other: Serial) -> bool {
        self.partial_cmp(&other) == Some(Ordering::Greater)
    }
}

impl PartialOrd for Serial {
    /// RFC 1982 §3.2: serials 2^31 apart have no order.
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        match self.0.wrapping_sub(other.0) {
            0 => Some(Ordering::Equal),
            0x8000_0000 => None,
            1..0x8000_0000 => Some(Ordering::Greater),
            _ => Some(Ordering::Less),
        }
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_wraps() {
        for (a, b, order) in [
            (0, 1, Some(Ordering::Less)),
            (0xffff_ffff, 0, Some(Ordering::Less)),
            (0, 0x7fff_ffff, Some(Ordering::Less)),
            (0, 0x8000_0000, None),
            (0, 0x8000_0001, Some(Ordering::Greater)),
            (7, 7, Some(Ordering::Equal)),
        ] {
            assert_eq!(Serial(a).partial_cmp(&Serial(b)), order, "{a} {b}");
        }
    }

    #[test]
    fn next_is_the_clock_or_one_more() {
        for (previous, now, next) in [
            (2_009_092_001, 1_795_000_000, 2_009_092_002),
            (1_700_000_000, 1_795_000_000, 1_795_000_000),
            (1_795_000_000, 1_795_000_000, 1_795_000_001),
            (0xffff_ffff, 5, 5),
            (0xffff_ffff, 0, 0),
            // 2^31 from the clock: no order, so one more.
            (0, 0x8000_0001, 1),
        ] {
            assert_eq!(Serial::next(Serial(previous), now), Serial(next), "{previous} {now}");
        }
    }
}
