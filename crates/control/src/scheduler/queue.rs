//! The Routes that wait for a Router, each in one lane.
//!
//! ```text
//!          ┌───────────────── a change of the Route ──────────────────┐
//!          ▼                                                          │
//!   ──►   New ──────────┐                          ┌── bound ──► out  │
//!          ▲            ├─pop─► InFlight ───────────┼── no Router ──► Unschedulable
//!          │ unpark     │       RequeuedInFlight    ├── failed ─────► BackingOff
//!        Parked ◄── park┼──────────┘                              │
//!                       │                                         │
//!      Requeued ────────┘ ◄── a change that could help, or its time ┘
//! ```
//!
//! `New` and `Requeued` take turns: when a new Router requeues 100,000 Routes, a Route created at that moment does not wait
//! behind them. The number of requeued Routes in flight is limited, so that writes of new Routes do not wait behind theirs in the
//! API. Each lane is first come, first served.
//!
//! Waits grow exponentially up to a limit, with jitter, so that Routes that failed together do not retry together.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::backoff::delay;
use crate::client::reflector::ObjectKey;

/// The maximum number of requeued Routes in flight. Each costs the API about half a millisecond of processor time, so that a new
/// Route waits for at most sixteen of them. A larger number is faster only if each write takes very long.
const REQUEUED_IN_FLIGHT_MAX: usize = 16;

/// The wait times of Routes.
#[derive(Debug, Clone)]
pub struct BackoffSettings {
    /// The wait after the first failure in a row.
    pub failed_first: Duration,
    /// The longest wait after failures.
    pub failed_longest: Duration,
    /// The wait after the first time that no Router fits. A change that could help ends it.
    pub unschedulable_first: Duration,
    /// The longest such wait: the guard against a missed change.
    pub unschedulable_longest: Duration,
}

impl Default for BackoffSettings {
    fn default() -> Self {
        BackoffSettings {
            failed_first: Duration::from_millis(200),
            failed_longest: Duration::from_secs(60),
            unschedulable_first: Duration::from_secs(10),
            unschedulable_longest: Duration::from_secs(300),
        }
    }
}

/// The number of Routes in each state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depths {
    /// Due now.
    pub active: usize,
    /// Waiting after a failure.
    pub backing_off: usize,
    /// Waiting for a Router that fits.
    pub unschedulable: usize,
    /// Being scheduled.
    pub in_flight: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Lane {
    /// New, or changed.
    New,
    /// Due again: a wait has ended.
    Requeued,
    /// Due, but the webhook has its maximum number of calls.
    Parked,
    BackingOff,
    Unschedulable,
    InFlight,
    /// In flight, and popped from `Requeued`.
    RequeuedInFlight,
}

/// The queue. Times come from the caller.
#[derive(Debug)]
pub struct Queue {
    backoff: BackoffSettings,
    entries: HashMap<ObjectKey, QueueEntry>,
    /// Each lane in the order in which Routes entered it.
    lanes: BTreeMap<(Lane, u64), ObjectKey>,
    /// The ends of waits, soonest first.
    times: BTreeSet<(Instant, u64)>,
    /// The number of Routes by lane.
    counts: [usize; Lane::RequeuedInFlight as usize + 1],
    next_ticket: u64,
    is_requeued_next: bool,
}

#[derive(Debug)]
struct QueueEntry {
    lane: Lane,
    /// Given in the order in which Routes enter lanes.
    ticket: u64,
    /// The end of its wait.
    until: Option<Instant>,
    /// Failures, or times without a Router, in a row.
    attempts: u32,
    /// Whether the Route changed while it was in flight.
    again: bool,
}

/// The unschedulable Routes that are still to be checked after a change. Routes that become unschedulable later are not part of it.
#[derive(Debug)]
pub struct RequeuePass {
    next: u64,
    end: u64,
}

impl RequeuePass {
    /// Returns whether all were checked.
    pub fn is_over(&self) -> bool {
        self.next >= self.end
    }
}

impl Queue {
    /// Returns an empty queue.
    pub fn new(backoff: BackoffSettings) -> Self {
        Queue {
            backoff,
            entries: HashMap::new(),
            lanes: BTreeMap::new(),
            times: BTreeSet::new(),
            counts: Default::default(),
            next_ticket: 0,
            is_requeued_next: false,
        }
    }

    /// Adds a new or changed Route; it is due now, regardless of its former wait.
    pub fn push(&mut self, key: ObjectKey) {
        match self.entries.get_mut(&key) {
            Some(entry) if entry.lane <= Lane::Parked => {}
            Some(entry) if entry.is_in_flight() => entry.again = true,
            _ => {
                self.take(&key);
                self.put(key, Lane::New, 0, None);
            }
        }
    }

    /// Removes a bound or deleted Route. An attempt in flight continues, and is not repeated.
    pub fn remove(&mut self, key: &ObjectKey) {
        match self.entries.get_mut(key) {
            Some(entry) if entry.is_in_flight() => entry.again = false,
            _ => drop(self.take(key)),
        }
    }

    /// Returns the next due Route. It is then in flight, until one of the methods below ends the attempt.
    pub fn pop(&mut self) -> Option<ObjectKey> {
        let new = self.first(Lane::New);
        let may_be_requeued = self.count(Lane::RequeuedInFlight) < REQUEUED_IN_FLIGHT_MAX;
        let requeued = if may_be_requeued { self.first(Lane::Requeued) } else { None };
        let (key, lane) = match (new, requeued) {
            (Some(key), None) => (key, Lane::InFlight),
            (Some(key), Some(_)) if !self.is_requeued_next => (key, Lane::InFlight),
            (_, Some(key)) => (key, Lane::RequeuedInFlight),
            (None, None) => return None,
        };
        self.is_requeued_next = !self.is_requeued_next;
        self.change_lane(&key, lane);
        Some(key)
    }

    /// Ends an attempt that cannot continue before others end: the Route waits for [`Self::unpark`], and blocks no other.
    pub fn park(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.finish_attempt(key) {
            self.put(key.clone(), Lane::Parked, entry.attempts, None);
        }
    }

    /// Makes the first `count` parked Routes due again.
    pub fn unpark(&mut self, count: usize) {
        for _ in 0..count {
            let Some(key) = self.first(Lane::Parked) else { return };
            self.change_lane(&key, Lane::New);
        }
    }

    /// Ends an attempt whose Route no longer needs a Router.
    pub fn done(&mut self, key: &ObjectKey) {
        if self.finish_attempt(key).is_some_and(|entry| entry.again) {
            self.put(key.clone(), Lane::New, 0, None);
        }
    }

    /// Ends an attempt that failed: the Route is retried after a wait, or immediately if it changed meanwhile. Returns the number
    /// of failures in a row.
    pub fn failed(&mut self, key: &ObjectKey, now: Instant, random: u64) -> u32 {
        let waits = (self.backoff.failed_first, self.backoff.failed_longest);
        self.wait(key, Lane::BackingOff, waits, now, random)
    }

    /// Ends an attempt for which no Router fits: the Route waits for a change that could help.
    pub fn unschedulable(&mut self, key: &ObjectKey, now: Instant, random: u64) {
        let waits = (self.backoff.unschedulable_first, self.backoff.unschedulable_longest);
        self.wait(key, Lane::Unschedulable, waits, now, random);
    }

    /// Returns all Routes that are unschedulable now, to be checked by [`Self::requeue`].
    pub fn requeue_pass(&self) -> RequeuePass {
        let first = self.lane(Lane::Unschedulable, 0, u64::MAX).next();
        RequeuePass { next: first.map_or(self.next_ticket, |(ticket, _)| ticket), end: self.next_ticket }
    }

    /// Checks the next `checked_max` Routes of the pass, in the order in which their waits began, and requeues those to which the
    /// change is a hint. Returns the number of these.
    pub fn requeue(
        &mut self,
        pass: &mut RequeuePass,
        checked_max: usize,
        queueing_hint: impl Fn(&ObjectKey) -> bool,
    ) -> usize {
        if pass.is_over() {
            return 0;
        }
        let mut rest = self.lane(Lane::Unschedulable, pass.next, pass.end);
        let checked = rest.by_ref().take(checked_max);
        let requeued: Vec<ObjectKey> =
            checked.filter(|(_, key)| queueing_hint(key)).map(|(_, key)| key.clone()).collect();
        pass.next = rest.next().map_or(pass.end, |(ticket, _)| ticket);
        drop(rest);
        requeued.iter().for_each(|key| self.change_lane(key, Lane::Requeued));
        requeued.len()
    }

    /// Requeues the Routes whose waits are over.
    pub fn flush_expired_backoff(&mut self, now: Instant) {
        while let Some((_, ticket)) = self.times.first().copied().filter(|(time, _)| *time <= now) {
            let lanes = [Lane::BackingOff, Lane::Unschedulable];
            let Some(key) = lanes.into_iter().find_map(|lane| self.lanes.get(&(lane, ticket)).cloned()) else { return };
            self.change_lane(&key, Lane::Requeued);
        }
    }

    /// Returns when the next wait is over.
    pub fn next_time(&self) -> Option<Instant> {
        self.times.first().map(|(time, _)| *time)
    }

    /// Returns whether the queue has the Route, in any lane.
    pub fn holds(&self, key: &ObjectKey) -> bool {
        self.entries.contains_key(key)
    }

    /// Returns whether the Route is being scheduled.
    pub fn is_in_flight(&self, key: &ObjectKey) -> bool {
        self.entries.get(key).is_some_and(QueueEntry::is_in_flight)
    }

    /// Returns the number of Routes in each state.
    pub fn depths(&self) -> Depths {
        Depths {
            active: self.count(Lane::New) + self.count(Lane::Requeued) + self.count(Lane::Parked),
            backing_off: self.count(Lane::BackingOff),
            unschedulable: self.count(Lane::Unschedulable),
            in_flight: self.count(Lane::InFlight) + self.count(Lane::RequeuedInFlight),
        }
    }

    fn wait(
        &mut self,
        key: &ObjectKey,
        lane: Lane,
        (first, longest): (Duration, Duration),
        now: Instant,
        random: u64,
    ) -> u32 {
        let Some(entry) = self.finish_attempt(key) else { return 0 };
        let attempts = entry.attempts.saturating_add(1);
        if entry.again {
            self.put(key.clone(), Lane::New, 0, None);
        } else {
            let until = now + delay(first, longest, entry.attempts, random);
            self.put(key.clone(), lane, attempts, Some(until));
        }
        attempts
    }

    /// Takes out a Route in flight; `None` if it is not.
    fn finish_attempt(&mut self, key: &ObjectKey) -> Option<QueueEntry> {
        if self.is_in_flight(key) { self.take(key) } else { None }
    }

    fn change_lane(&mut self, key: &ObjectKey, lane: Lane) {
        if let Some(entry) = self.take(key) {
            self.put(key.clone(), lane, entry.attempts, None);
        }
    }

    fn take(&mut self, key: &ObjectKey) -> Option<QueueEntry> {
        let entry = self.entries.remove(key)?;
        self.lanes.remove(&(entry.lane, entry.ticket));
        if let Some(until) = entry.until {
            self.times.remove(&(until, entry.ticket));
        }
        self.counts[entry.lane as usize] -= 1;
        Some(entry)
    }

    fn put(&mut self, key: ObjectKey, lane: Lane, attempts: u32, until: Option<Instant>) {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.counts[lane as usize] += 1;
        self.times.extend(until.map(|until| (until, ticket)));
        self.lanes.insert((lane, ticket), key.clone());
        self.entries.insert(key, QueueEntry { lane, ticket, until, attempts, again: false });
    }

    fn first(&self, lane: Lane) -> Option<ObjectKey> {
        self.lane(lane, 0, u64::MAX).next().map(|(_, key)| key.clone())
    }

    fn lane(&self, lane: Lane, from: u64, end: u64) -> impl Iterator<Item = (u64, &ObjectKey)> {
        self.lanes.range((lane, from)..(lane, end)).map(|((_, ticket), key)| (*ticket, key))
    }

    fn count(&self, lane: Lane) -> usize {
        self.counts[lane as usize]
    }
}

impl QueueEntry {
    fn is_in_flight(&self) -> bool {
        self.lane >= Lane::InFlight
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::namespaced("ns", name)
    }

    fn names(queue: &mut Queue) -> Vec<String> {
        std::iter::from_fn(|| queue.pop()).map(|key| key.name).collect()
    }

    fn requeue(queue: &mut Queue, queueing_hint: impl Fn(&ObjectKey) -> bool) -> usize {
        let mut pass = queue.requeue_pass();
        let requeued = queue.requeue(&mut pass, usize::MAX, queueing_hint);
        assert!(pass.is_over());
        requeued
    }

    #[test]
    fn first_come_first_served_each_once() {
        let mut queue = Queue::new(BackoffSettings::default());
        for name in ["a", "b", "a", "c"] {
            queue.push(key(name));
        }
        queue.remove(&key("b"));
        assert_eq!(queue.depths(), Depths { active: 2, ..Depths::default() });
        assert_eq!(names(&mut queue), ["a", "c"]);
        queue.push(key("a"));
        assert_eq!(queue.pop(), None, "it is in flight");
        queue.done(&key("a"));
        assert_eq!(names(&mut queue), ["a"], "it changed during its flight");
        queue.done(&key("a"));
        queue.done(&key("c"));
        assert_eq!(queue.depths(), Depths::default());
        assert!(!queue.holds(&key("a")));
    }

    #[test]
    fn failures_wait_longer_each_time() {
        let mut queue = Queue::new(BackoffSettings::default());
        queue.push(key("a"));
        for (failures, millis) in [(1, 200), (2, 400), (3, 800)] {
            assert!(queue.pop().is_some());
            let now = Instant::now();
            assert_eq!(queue.failed(&key("a"), now, u64::MAX), failures);
            assert_eq!(queue.next_time(), Some(now + Duration::from_millis(millis)));
            assert_eq!(requeue(&mut queue, |_| true), 0, "a change of Routers does not end a failure's wait");
            queue.flush_expired_backoff(now + Duration::from_millis(millis - 1));
            assert_eq!(queue.depths().backing_off, 1);
            queue.flush_expired_backoff(now + Duration::from_millis(millis));
        }
        assert_eq!(names(&mut queue), ["a"]);
    }

    #[test]
    fn a_hint_requeues_and_new_routes_do_not_wait_behind() {
        let mut queue = Queue::new(BackoffSettings::default());
        for name in ["a", "b", "c", "d"] {
            queue.push(key(name));
        }
        while let Some(key) = queue.pop() {
            queue.unschedulable(&key, Instant::now(), 0);
        }
        assert_eq!(queue.depths().unschedulable, 4);
        assert_eq!(requeue(&mut queue, |key| key.name != "b"), 3);
        queue.push(key("fresh1"));
        queue.push(key("fresh2"));
        let order = names(&mut queue);
        assert_eq!(order.len(), 5);
        assert!(order[..4].contains(&"fresh1".to_owned()) && order[..4].contains(&"fresh2".to_owned()), "{order:?}");
        assert_eq!(queue.depths().unschedulable, 1);
        queue.push(key("b"));
        assert_eq!(names(&mut queue), ["b"], "the route itself changed");
    }

    #[test]
    fn requeued_routes_in_flight_are_limited() {
        let mut queue = Queue::new(BackoffSettings::default());
        for i in 0..2 * REQUEUED_IN_FLIGHT_MAX {
            queue.push(key(&i.to_string()));
        }
        for key in names(&mut queue) {
            queue.unschedulable(&ObjectKey::namespaced("ns", &key), Instant::now(), 0);
        }
        requeue(&mut queue, |_| true);
        let flying = names(&mut queue);
        assert_eq!(flying.len(), REQUEUED_IN_FLIGHT_MAX);
        queue.push(key("fresh"));
        assert_eq!(names(&mut queue), ["fresh"]);
        queue.done(&key("fresh"));
        assert_eq!(names(&mut queue), Vec::<String>::new(), "the others are still in flight");
        queue.failed(&key(&flying[0]), Instant::now(), 0);
        queue.done(&key(&flying[1]));
        assert_eq!(names(&mut queue).len(), 2);
    }

    #[test]
    fn parked_routes_block_no_other() {
        let mut queue = Queue::new(BackoffSettings::default());
        ["a", "b", "c", "d"].iter().for_each(|name| queue.push(key(name)));
        for name in ["a", "b", "c"] {
            assert_eq!(queue.pop(), Some(key(name)));
            queue.park(&key(name));
        }
        assert_eq!((queue.depths().active, queue.depths().in_flight), (4, 0));
        // The next attempt sees a change; a deleted Route is skipped.
        queue.push(key("a"));
        queue.remove(&key("b"));
        assert_eq!((queue.pop(), queue.pop()), (Some(key("d")), None));
        queue.unpark(1);
        assert_eq!((queue.pop(), queue.pop()), (Some(key("a")), None));
        queue.unpark(9);
        assert_eq!(names(&mut queue), ["c"]);
        assert_eq!(queue.depths().active, 0);
    }

    proptest! {
        /// Each Route is in one lane, the counts are correct, and none is lost.
        #[test]
        fn counts_are_right(steps in proptest::collection::vec((0_u8..10, 0_u8..6), 0..200)) {
            let mut queue = Queue::new(BackoffSettings::default());
            let mut now = Instant::now();
            let mut flying: Vec<ObjectKey> = Vec::new();
            for (action, which) in steps {
                let key = key(&which.to_string());
                match action {
                    0 | 1 => queue.push(key),
                    2 => queue.remove(&key),
                    3 => flying.extend(queue.pop()),
                    4 => { requeue(&mut queue, |key| key.name.as_str() < "3"); }
                    5 => { now += Duration::from_millis(150); queue.flush_expired_backoff(now); }
                    6 => if let Some(key) = flying.pop() { queue.failed(&key, now, 0); },
                    7 => if let Some(key) = flying.pop() { queue.park(&key) },
                    8 => queue.unpark(which.into()),
                    _ => if let Some(key) = flying.pop() {
                        if which % 2 == 0 { queue.done(&key) } else { queue.unschedulable(&key, now, 0) }
                    },
                }
                let depths = queue.depths();
                prop_assert_eq!(depths.in_flight, flying.len());
                prop_assert_eq!(
                    depths.active + depths.backing_off + depths.unschedulable + depths.in_flight,
                    queue.entries.len()
                );
                prop_assert_eq!(depths.backing_off + depths.unschedulable, queue.times.len());
                prop_assert_eq!(queue.lanes.len(), queue.entries.len());
            }
            queue.unpark(usize::MAX);
            let active = queue.depths().active;
            prop_assert_eq!(names(&mut queue).len(), active);
        }
    }
}
