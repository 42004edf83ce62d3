//! The routes on draining Routers: the next one to move, and the time.
//!
//! ```text
//!   add ─► waiting ──(its turn)──► released ──moved──► (gone: its binding names another Router)
//!             ▲                       │
//!             └──something changed── stuck ◄──no target
//! ```
//!
//! A move changes the name of a route and redirects its users, so a drain has a configured rate. Routes with the fewest attempts
//! move first, so that many routes without a target do not delay others after each change. Among these, the order is that of the
//! routes' names, which is the same after a restart, when the lists are rebuilt from the bindings. Pure: time is an argument.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::reflector::ObjectKey;

/// The part of a pause that is caught up. A short delay of the loop must not slow a drain down, and a long one must not move all
/// routes at once.
const CATCH_UP: Duration = Duration::from_millis(100);

/// The routes to be moved away.
#[derive(Debug)]
pub struct Drain {
    interval: Duration,
    released_max: usize,
    routers: BTreeSet<String>,
    /// The waiting routes, with the number of attempts for each.
    waiting: BTreeSet<(u32, ObjectKey)>,
    released: BTreeSet<ObjectKey>,
    stuck: BTreeSet<ObjectKey>,
    /// The number of attempts for each route in one of these sets, if there were any.
    attempts: HashMap<ObjectKey, u32>,
    next: Option<Instant>,
}

impl Drain {
    /// Returns a state without draining Routers. `per_second` routes are released per second, at least one, and at most
    /// `released_max` at a time.
    pub fn new(per_second: u32, released_max: usize) -> Self {
        Drain {
            interval: Duration::from_secs(1) / per_second.max(1),
            released_max,
            routers: BTreeSet::new(),
            waiting: BTreeSet::new(),
            released: BTreeSet::new(),
            stuck: BTreeSet::new(),
            attempts: HashMap::new(),
            next: None,
        }
    }

    pub fn drains(&self, router: &str) -> bool {
        self.routers.contains(router)
    }

    /// Returns whether no Router drains.
    pub fn is_idle(&self) -> bool {
        self.routers.is_empty()
    }

    /// Sets whether a Router is draining; returns whether that is a change.
    pub fn set_router(&mut self, router: &str, drains: bool) -> bool {
        if drains { self.routers.insert(router.to_owned()) } else { self.routers.remove(router) }
    }

    /// Adds a route on a draining Router; returns whether that is a change.
    pub fn add(&mut self, key: &ObjectKey) -> bool {
        !self.holds(key) && self.waiting.insert((0, key.clone()))
    }

    /// Removes a route that is no longer on a draining Router; returns whether it was.
    pub fn remove(&mut self, key: &ObjectKey) -> bool {
        // Nearly always there are none.
        if self.is_empty() {
            return false;
        }
        let attempts = self.attempts.remove(key).unwrap_or(0);
        self.waiting.remove(&(attempts, key.clone())) | self.released.remove(key) | self.stuck.remove(key)
    }

    /// Returns the next route to move, if it is time.
    pub fn release(&mut self, now: Instant) -> Option<ObjectKey> {
        if self.released.len() >= self.released_max || self.next.is_some_and(|next| next > now) {
            return None;
        }
        let (attempts, key) = self.waiting.pop_first()?;
        self.attempts.insert(key.clone(), attempts.saturating_add(1));
        let from = self.next.unwrap_or(now).max(now.checked_sub(CATCH_UP).unwrap_or(now));
        self.next = Some(from + self.interval);
        self.released.insert(key.clone());
        Some(key)
    }

    /// Returns whether a route was released and has not moved.
    pub fn is_released(&self, key: &ObjectKey) -> bool {
        self.released.contains(key)
    }

    /// Marks a released route as without a target.
    pub fn mark_stuck(&mut self, key: &ObjectKey) {
        if self.released.remove(key) {
            self.stuck.insert(key.clone());
        }
    }

    /// Retries the routes without a target after a change.
    pub fn retry(&mut self) {
        let attempts = |key: &ObjectKey| self.attempts.get(key).copied().unwrap_or(0);
        self.waiting.extend(std::mem::take(&mut self.stuck).into_iter().map(|key| (attempts(&key), key)));
    }

    /// Retries a changed route if it had no target.
    pub fn retry_one(&mut self, key: &ObjectKey) {
        if self.stuck.remove(key) {
            let attempts = self.attempts.get(key).copied().unwrap_or(0);
            self.waiting.insert((attempts, key.clone()));
        }
    }

    /// Returns the time at which the next route can be released, if there is one.
    pub fn next_time(&self, now: Instant) -> Option<Instant> {
        let may = !self.waiting.is_empty() && self.released.len() < self.released_max;
        may.then(|| self.next.unwrap_or(now))
    }

    /// Returns the number of routes that wait or are being moved, and of those without a target.
    pub fn depths(&self) -> (usize, usize) {
        (self.waiting.len() + self.released.len(), self.stuck.len())
    }

    /// Returns whether a route is known to be on a draining Router.
    pub fn holds(&self, key: &ObjectKey) -> bool {
        let is_waiting = || {
            let attempts = self.attempts.get(key).copied().unwrap_or(0);
            self.waiting.contains(&(attempts, key.clone()))
        };
        !self.is_empty() && (self.released.contains(key) || self.stuck.contains(key) || is_waiting())
    }

    fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.released.is_empty() && self.stuck.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::namespaced("ns", name)
    }

    #[test]
    fn one_after_the_other_at_the_pace_that_is_set() {
        let mut drain = Drain::new(10, 2);
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        for name in ["c", "a", "b", "d"] {
            assert!(drain.add(&key(name)));
            assert!(!drain.add(&key(name)));
        }
        assert_eq!(drain.next_time(start), Some(start));
        assert_eq!(drain.release(start), Some(key("a")));
        assert_eq!((drain.release(at(99)), drain.next_time(at(99))), (None, Some(at(100))));
        assert_eq!(drain.release(at(100)), Some(key("b")));
        assert_eq!((drain.release(at(1000)), drain.next_time(at(1000))), (None, None), "two are on their way");
        assert!(drain.remove(&key("a")) && !drain.remove(&key("a")));
        // At most a tenth of a second of a pause is caught up.
        assert_eq!(drain.release(at(1000)), Some(key("c")));
        drain.remove(&key("c"));
        assert_eq!(drain.release(at(1000)), Some(key("d")));
        assert_eq!(drain.next_time(at(1000)), None);
    }

    #[test]
    fn who_had_no_turn_comes_before_who_had_one() {
        let mut drain = Drain::new(1000, 8);
        let now = Instant::now();
        let at = |millis| now + Duration::from_millis(millis);
        for name in ["a", "b", "c"] {
            drain.add(&key(name));
        }
        assert_eq!(drain.release(at(0)), Some(key("a")));
        drain.mark_stuck(&key("a"));
        assert_eq!(drain.release(at(10)), Some(key("b")));
        drain.mark_stuck(&key("b"));
        drain.retry();
        assert_eq!(drain.release(at(20)), Some(key("c")), "it has had no turn yet");
        drain.mark_stuck(&key("c"));
        assert_eq!(drain.release(at(30)), Some(key("a")));
        drain.mark_stuck(&key("a"));
        drain.retry_one(&key("c"));
        drain.retry_one(&key("c"));
        assert_eq!(drain.depths(), (2, 1), "the other one was not due");
        assert_eq!((drain.release(at(40)), drain.release(at(50))), (Some(key("b")), Some(key("c"))));
        assert!(drain.remove(&key("a")) && drain.remove(&key("b")) && drain.remove(&key("c")));
        assert!(drain.attempts.is_empty() && drain.is_empty());
    }
}
