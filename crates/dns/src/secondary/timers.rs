//! The timers of a zone from a primary server (RFC 1035 §3.3.13): when to look for a newer version, and when the zone expires. Pure: the
//! time comes from the caller.

use std::time::{Duration, Instant};

/// The limits of the values in SOA records.
const REFRESH_MIN: Duration = Duration::from_secs(30);
const REFRESH_MAX: Duration = Duration::from_secs(7 * 86_400);
const RETRY_MIN: Duration = Duration::from_secs(10);

/// The wait after a first failure, which doubles up to the retry time.
const RETRY_FIRST: Duration = Duration::from_secs(2);
/// The retry time of a zone that was never transferred.
const RETRY_UNKNOWN: Duration = Duration::from_secs(60);

/// The least time between two attempts: NOTIFY can come at any rate, and from anywhere.
const INTERVAL: Duration = Duration::from_secs(1);

/// The values of a SOA record, within limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Soa {
    refresh: Duration,
    retry: Duration,
    pub(super) expire: Duration,
}

impl Soa {
    /// Reads the data of a SOA record.
    pub(super) fn of(rdata: &[u8]) -> Option<Soa> {
        let numbers: &[u8; 20] = rdata.last_chunk()?;
        let seconds = |at: usize| {
            let octets = [numbers[at], numbers[at + 1], numbers[at + 2], numbers[at + 3]];
            Duration::from_secs(u32::from_be_bytes(octets).into())
        };
        let refresh = seconds(4).clamp(REFRESH_MIN, REFRESH_MAX);
        let retry = seconds(8).clamp(RETRY_MIN, refresh);
        // A zone must not expire while its primary servers are queried regularly.
        Some(Soa { refresh, retry, expire: seconds(12).max(refresh + retry) })
    }
}

/// The timers of a zone.
#[derive(Debug)]
pub(super) struct Timers {
    soa: Option<Soa>,
    /// The number of failed attempts since the last good one.
    failures: u32,
    /// The time of the last attempt.
    attempted: Option<Instant>,
    next: Instant,
    /// The time at which the zone expires; `None` without a zone, and after it has expired.
    expires: Option<Instant>,
    /// Whether a NOTIFY has come since the last attempt began: that attempt can have found the version before.
    is_notified: bool,
}

impl Timers {
    /// Returns the timers of a zone without data, which is requested at once.
    pub(super) fn new(now: Instant) -> Timers {
        Timers { soa: None, failures: 0, attempted: None, next: now, expires: None, is_notified: false }
    }

    /// Sets the values of a zone that was last refreshed this long ago. Returns false if it has expired.
    pub(super) fn restore(&mut self, soa: Soa, age: Duration, now: Instant) -> bool {
        self.soa = Some(soa);
        self.expires = soa.expire.checked_sub(age).map(|left| now + left);
        self.expires.is_some()
    }

    /// Records that an attempt begins.
    pub(super) fn begin(&mut self) {
        self.is_notified = false;
    }

    /// Records that a primary server has confirmed the version with these values, or sent it.
    pub(super) fn refreshed(&mut self, soa: Soa, now: Instant) {
        *self = Timers { soa: Some(soa), failures: 0, expires: Some(now + soa.expire), ..*self };
        self.end(now, soa.refresh);
    }

    /// Records that all primary servers failed.
    pub(super) fn failed(&mut self, now: Instant) {
        let most = self.soa.map_or(RETRY_UNKNOWN, |soa| soa.retry);
        let pause = RETRY_FIRST.saturating_mul(1 << self.failures.min(16)).min(most);
        self.failures = self.failures.saturating_add(1);
        self.end(now, pause);
    }

    /// Records that an attempt has ended, with the wait for the next one unless a NOTIFY came meanwhile.
    fn end(&mut self, now: Instant, wait: Duration) {
        self.attempted = Some(now);
        self.next = now + if self.is_notified { INTERVAL } else { wait };
    }

    /// Requests an attempt, because of a NOTIFY.
    pub(super) fn notify(&mut self, now: Instant) {
        let earliest = self.attempted.map_or(now, |attempted| (attempted + INTERVAL).max(now));
        self.next = self.next.min(earliest);
        self.is_notified = true;
    }

    /// Returns the time of the next attempt.
    pub(super) fn next(&self) -> Instant {
        self.next
    }

    /// Returns the time at which the zone expires; `None` without a zone, or after that.
    pub(super) fn expires(&self) -> Option<Instant> {
        self.expires
    }

    /// Returns whether the zone expires now, the first time.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        self.expires.take_if(|expires| *expires <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soa(refresh: u32, retry: u32, expire: u32) -> Soa {
        let rdata = [&[0, 0][..], &[1, refresh, retry, expire, 60].map(u32::to_be_bytes).concat()].concat();
        Soa::of(&rdata).expect("five numbers")
    }

    #[test]
    fn values_are_limited() {
        let seconds = |soa: Soa| [soa.refresh, soa.retry, soa.expire].map(|time| time.as_secs());
        for (values, expected) in [
            ([7_200, 900, 1_209_600], [7_200, 900, 1_209_600]),
            ([0, 0, 0], [30, 10, 40]),
            ([u32::MAX, u32::MAX, u32::MAX], [604_800, 604_800, u64::from(u32::MAX)]),
            ([60, 3_600, 30], [60, 60, 120]),
        ] {
            assert_eq!(seconds(soa(values[0], values[1], values[2])), expected, "{values:?}");
        }
        assert_eq!(Soa::of(b"\0\0"), None);
    }

    #[test]
    fn refresh_retry_expire() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut timers = Timers::new(start);
        assert_eq!((timers.next(), timers.expires()), (start, None));
        // Never loaded: more and more seldom, at least once a minute.
        let mut waits = Vec::new();
        for _ in 0..7 {
            let now = timers.next();
            timers.failed(now);
            waits.push((timers.next() - now).as_secs());
        }
        assert_eq!(waits, [2, 4, 8, 16, 32, 60, 60]);
        assert!(!timers.expire(at(1_000_000)), "nothing can expire");
        timers.refreshed(soa(3_600, 300, 10_000), at(0));
        assert_eq!((timers.next(), timers.expires()), (at(3_600), Some(at(10_000))));
        // All fail until it has expired, once; then they are still queried.
        let mut expirations = Vec::new();
        while timers.next() < at(20_000) {
            let now = timers.next();
            expirations.extend(timers.expire(now).then_some(now));
            timers.failed(now);
        }
        assert_eq!(expirations.len(), 1);
        assert!((at(10_000)..at(10_301)).contains(&expirations[0]));
        timers.refreshed(soa(3_600, 300, 10_000), at(20_000));
        assert_eq!(timers.expires(), Some(at(30_000)));
    }

    #[test]
    fn many_notifications_are_one_attempt_a_second() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut timers = Timers::new(start);
        timers.refreshed(soa(3_600, 300, 10_000), at(0));
        timers.notify(at(10));
        timers.notify(at(20));
        assert_eq!(timers.next(), at(1_000));
        timers.begin();
        timers.failed(at(1_000));
        timers.notify(at(1_001));
        assert_eq!(timers.next(), at(2_000), "also after a failure, but not in a loop");
        timers.begin();
        timers.refreshed(soa(3_600, 300, 10_000), at(2_000));
        timers.notify(at(90_000));
        assert_eq!(timers.next(), at(90_000));
    }

    /// The attempt can have found an older version than the announced one.
    #[test]
    fn a_notification_during_an_attempt_is_followed_by_another_one() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut timers = Timers::new(start);
        for (ends, expected) in [(5_000, 6_000), (9_000, 9_000 + 3_600_000)] {
            timers.begin();
            if ends == 5_000 {
                timers.notify(at(ends - 1));
            }
            timers.refreshed(soa(3_600, 300, 10_000), at(ends));
            assert_eq!(timers.next(), at(expected));
        }
        timers.begin();
        timers.notify(at(20_000));
        timers.failed(at(30_000));
        assert_eq!(timers.next(), at(31_000));
    }

    #[test]
    fn a_restart_does_not_prolong_a_zone() {
        let now = Instant::now();
        let mut timers = Timers::new(now);
        let soa = soa(3_600, 300, 10_000);
        assert!(timers.restore(soa, Duration::from_secs(9_000), now));
        assert_eq!((timers.next(), timers.expires()), (now, Some(now + Duration::from_secs(1_000))));
        assert!(!timers.restore(soa, Duration::from_secs(10_001), now));
        assert_eq!(timers.expires(), None);
    }
}
