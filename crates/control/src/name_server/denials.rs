//! The time for which the parent and the alias zone may deny names (NXDOMAIN).
//!
//! The leader does not wait for a name server that does not answer it ([`verify`](crate::observe::verify)): clients can use the
//! others. But such a server can still answer clients, from zones that lack the latest names. So a name server denies names only
//! while its zones contain everything that the API had [`DENIAL_LONGEST`] ago, and answers SERVFAIL after that. The leader waits
//! for longer than that ([`SILENCE_LONGEST`]) from the first sight of a name until it stops waiting for a silent server: at that time, the
//! server has the name, or no longer denies any.
//!
//! ```text
//!  watch requested ─────► bookmark: all earlier changes are in the store ─► taken by the loop ─► published ─► until = requested + 10 s
//! ```
//!
//! Bookmarks come once a minute otherwise, so the watches of these objects are renewed every [`WATCH_LONGEST`]. The time of the
//! request counts, because a message may have waited in a buffer while this process was stopped. Pure.

use std::time::Duration;

use tokio::time::Instant;

use super::version_history::SERIAL_WAIT_MAX;

/// The longest time without word from the API for which names are denied. Two watches in a row can fail meanwhile, or have no bookmark.
pub const DENIAL_LONGEST: Duration = Duration::from_secs(10);
/// The time from which a name is reported as live although a name server does not answer. The difference allows for clocks that do
/// not run at the same speed.
pub const SILENCE_LONGEST: Duration = Duration::from_secs(13);
/// The duration of a watch. API servers send a bookmark one to two seconds before its end.
pub const WATCH_LONGEST: Duration = Duration::from_secs(3);
/// The number of reads of the store in the longest time.
const LOOKS: u32 = 10;

/// The state of the zones' loop.
pub struct Denials {
    longest: Duration,
    /// The time of the last look, and the time up to which its changes are complete: they are taken, but may wait for serials.
    taken: Option<(Instant, Instant)>,
    /// The time up to which all changes are published.
    published: Option<Instant>,
    next_look: Instant,
}

impl Denials {
    pub fn new(longest: Duration, now: Instant) -> Self {
        Denials { longest, taken: None, published: None, next_look: now }
    }

    /// Returns the time for the next call of [`Self::update`], if nothing happens before.
    pub fn next_turn(&self, now: Instant) -> Instant {
        let until = self.until().filter(|until| *until > now);
        until.map_or(self.next_look, |until| self.next_look.min(until))
    }

    /// Adds that all changes up to `caught_up` are taken.
    pub fn take(&mut self, caught_up: Option<Instant>, now: Instant) {
        self.next_look = now + self.longest / LOOKS;
        // Under steady change, zones always wait for some serial: the oldest look must not be replaced before it is published.
        if let (Some(caught_up), None) = (caught_up, self.taken) {
            self.taken = Some((now, caught_up));
        }
    }

    /// Returns the time until which names may be denied; `None`: they may not. `is_waiting`: zones wait for their serials.
    pub fn update(&mut self, is_waiting: bool, now: Instant) -> Option<Instant> {
        if let Some((_, caught_up)) = self.taken.filter(|(at, _)| !is_waiting || *at + SERIAL_WAIT_MAX < now) {
            self.published = self.published.max(Some(caught_up));
            self.taken = None;
        }
        self.until().filter(|until| *until > now)
    }

    fn until(&self) -> Option<Instant> {
        Some(self.published? + self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reflector::BARREN_MAX;

    #[test]
    fn names_are_denied_while_the_published_zones_are_recent() {
        let start = Instant::now();
        let at = |millis: u64| start + Duration::from_millis(millis);
        let mut denials = Denials::new(DENIAL_LONGEST, start);
        assert_eq!(denials.update(false, start), None, "the zones of a restart are of any age");
        denials.take(None, at(0));
        assert_eq!((denials.update(false, at(0)), denials.next_turn(at(0))), (None, at(1000)));
        denials.take(Some(at(1500)), at(3000));
        assert_eq!(denials.update(false, at(3000)), Some(at(11_500)));
        // Without word, it ends at that time.
        denials.take(Some(at(1500)), at(11_000));
        assert_eq!((denials.update(false, at(11_000)), denials.next_turn(at(11_000))), (Some(at(11_500)), at(11_500)));
        assert_eq!((denials.update(false, at(11_500)), denials.next_turn(at(11_500))), (None, at(12_000)));
        // The zones that lack a serial are published a second later at the latest.
        denials.take(Some(at(20_000)), at(20_100));
        assert_eq!(denials.update(true, at(20_100)), None);
        denials.take(Some(at(20_900)), at(21_000));
        assert_eq!(denials.update(true, at(21_000)), None);
        assert_eq!(denials.update(true, at(21_200)), Some(at(30_000)));
        denials.take(Some(at(22_000)), at(22_100));
        assert_eq!(denials.update(false, at(22_100)), Some(at(32_000)));
    }

    #[test]
    fn the_times_leave_room_for_each_other() {
        assert!(SILENCE_LONGEST > DENIAL_LONGEST + SERIAL_WAIT_MAX);
        assert!(DENIAL_LONGEST > WATCH_LONGEST * BARREN_MAX + DENIAL_LONGEST / LOOKS + SERIAL_WAIT_MAX);
    }
}
