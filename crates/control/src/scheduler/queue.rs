//! The routes that wait for a Router.
//!
//! ```text
//!                 ┌────────── a change that could help, or its time ──────────┐
//!                 ▼                                                           │
//!   new ──►   active   ──pop──►   (in flight)  ──┬── bound: out               │
//!                 ▲                              ├── no Router ──►  unschedulable
//!                 │                              └── failed    ──►  backing off
//!                 └───────────────────── its time ─────────────────────────┘
//! ```
//!
//! What is active stands in two lines, fresh and woken, that take turns: when a new Router wakes 100,000 waiting routes, a
//! route created at that moment does not wait behind them; and only so many woken ones are in flight at a time, so that its
//! writes do not wait behind theirs in the API either. Within a line it is first come, first served.
//!
//! A route is at one place only. Each wait is longer than the one before, up to a bound, and shortened at random, so that
//! routes which failed together do not come back together. The queue holds no more than there are routes.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::client::backoff::delay;
use crate::client::reflector::ObjectKey;

/// Woken routes that are in flight at a time. Each takes the API some half a millisecond of a processor, so that a new route
/// waits for sixteen of these at most; more would be answered no sooner, but where each write takes very long.
const WOKEN_AT_A_TIME: usize = 16;
/// Names of removed routes that may stand in the lines, beyond as many as there are active ones.
const STALE_NAMES_MAX: usize = 1024;

/// How long routes wait.
#[derive(Debug, Clone)]
pub struct Waits {
    /// After the first failure in a row.
    pub failed_first: Duration,
    /// After many failures.
    pub failed_longest: Duration,
    /// After the first time no Router could take it; changes that could help end the wait.
    pub unschedulable_first: Duration,
    /// After many such times: the guard against a missed change.
    pub unschedulable_longest: Duration,
}

impl Default for Waits {
    fn default() -> Self {
        Waits {
            failed_first: Duration::from_millis(200),
            failed_longest: Duration::from_secs(60),
            unschedulable_first: Duration::from_secs(10),
            unschedulable_longest: Duration::from_secs(300),
        }
    }
}

/// How many routes are where.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Depths {
    /// To be looked at now.
    pub active: usize,
    /// Waiting after a failure.
    pub backing_off: usize,
    /// Waiting for a Router that can take them.
    pub unschedulable: usize,
    /// Being scheduled.
    pub in_flight: usize,
}

/// The queue. Times come from the caller.
#[derive(Debug)]
pub struct Queue {
    waits: Waits,
    places: HashMap<ObjectKey, Place>,
    fresh: VecDeque<ObjectKey>,
    woken: VecDeque<ObjectKey>,
    /// What was looked at, and waits until a question may be asked.
    aside: VecDeque<ObjectKey>,
    /// Those that wait, whatever for, by the number of their wait.
    waiting: BTreeMap<u64, ObjectKey>,
    /// When waits end, soonest first.
    times: BTreeSet<(Instant, u64)>,
    /// The number of the next wait.
    next_wait: u64,
    woken_next: bool,
    woken_in_flight: usize,
    depths: Depths,
}

#[derive(Debug)]
struct Place {
    stage: QueueState,
    /// Failures, or times without a Router, in a row.
    attempts: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueState {
    Active,
    Aside,
    BackingOff(Wait),
    Unschedulable(Wait),
    /// `again`: the route changed meanwhile. `line`: where it stood.
    InFlight {
        again: bool,
        line: Line,
    },
}

/// A wait: numbers are given in the order in which waits begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wait {
    number: u64,
    until: Instant,
}

/// The part of those that wait for a Router which is still to be looked at. Who begins to wait later is not in it.
#[derive(Debug)]
pub struct Round {
    next: u64,
    end: u64,
}

impl Round {
    /// Whether all were looked at.
    pub fn is_over(&self) -> bool {
        self.next >= self.end
    }
}

impl Queue {
    /// An empty queue.
    pub fn new(waits: Waits) -> Self {
        Queue {
            waits,
            places: HashMap::new(),
            fresh: VecDeque::new(),
            woken: VecDeque::new(),
            aside: VecDeque::new(),
            waiting: BTreeMap::new(),
            times: BTreeSet::new(),
            next_wait: 0,
            woken_next: false,
            woken_in_flight: 0,
            depths: Depths::default(),
        }
    }

    /// The route is new or has changed: it is to be looked at, whatever it waited for.
    pub fn push(&mut self, key: ObjectKey) {
        match self.places.get_mut(&key) {
            Some(Place { stage: QueueState::Active | QueueState::Aside, .. }) => {}
            Some(Place { stage: QueueState::InFlight { again, .. }, .. }) => *again = true,
            Some(place) => {
                place.attempts = 0;
                self.activate(key, Line::Fresh);
            }
            None => {
                self.places.insert(key.clone(), Place { stage: QueueState::Active, attempts: 0 });
                self.depths.active += 1;
                self.fresh.push_back(key);
            }
        }
    }

    /// The route is bound or gone: it need not be looked at.
    pub fn remove(&mut self, key: &ObjectKey) {
        match self.places.get_mut(key).map(|place| &mut place.stage) {
            // Its attempt is under way and will report; it shall not be tried again.
            Some(QueueState::InFlight { again, .. }) => *again = false,
            Some(_) => {
                self.leave(key);
                self.places.remove(key);
                // Its name stays in its line, where `pop` passes over it.
                self.compact();
            }
            None => {}
        }
    }

    /// The next route to look at; it is then in flight, until one of the methods below tells how that ended. `None` also while
    /// as many woken ones are in flight as may be, and no other waits.
    pub fn pop(&mut self) -> Option<ObjectKey> {
        loop {
            let may_be_woken = self.woken_in_flight < WOKEN_AT_A_TIME && !self.woken.is_empty();
            let line =
                if may_be_woken && (self.woken_next || self.fresh.is_empty()) { Line::Woken } else { Line::Fresh };
            let key = match line {
                Line::Fresh => self.fresh.pop_front()?,
                Line::Woken => self.woken.pop_front()?,
            };
            if let Some(place) = self.places.get_mut(&key)
                && place.stage == QueueState::Active
            {
                self.woken_next = !self.woken_next;
                place.stage = QueueState::InFlight { again: false, line };
                self.woken_in_flight += usize::from(line == Line::Woken);
                self.depths.active -= 1;
                self.depths.in_flight += 1;
                return Some(key);
            }
        }
    }

    /// The route cannot be gone on with before others are: it waits for [`Self::fetch`], and keeps none from being looked at.
    pub fn set_aside(&mut self, key: &ObjectKey) {
        if self.land(key).is_some()
            && let Some(place) = self.places.get_mut(key)
        {
            place.stage = QueueState::Aside;
            self.depths.active += 1;
            self.aside.push_back(key.clone());
        }
    }

    /// So many of those that were set aside longest are to be looked at again.
    pub fn fetch(&mut self, count: usize) {
        for _ in 0..count {
            let is_aside = |key: &ObjectKey| self.places.get(key).is_some_and(|place| place.stage == QueueState::Aside);
            let Some(key) = std::iter::from_fn(|| self.aside.pop_front()).find(is_aside) else { return };
            self.activate(key, Line::Fresh);
        }
    }

    /// The attempt ended, and the route needs no Router any more.
    pub fn done(&mut self, key: &ObjectKey) {
        if let Some(again) = self.land(key) {
            self.places.remove(key);
            if again {
                self.push(key.clone());
            }
        }
    }

    /// The attempt failed: the route is tried again after a wait, or at once if it changed meanwhile. The answer is how
    /// many failures in a row that makes.
    pub fn failed(&mut self, key: &ObjectKey, now: Instant, random: u64) -> u32 {
        let (first, longest) = (self.waits.failed_first, self.waits.failed_longest);
        self.wait(key, now, |attempts| delay(first, longest, attempts, random), QueueState::BackingOff)
    }

    /// No Router could take the route: it waits for a change that could help.
    pub fn unschedulable(&mut self, key: &ObjectKey, now: Instant, random: u64) {
        let (first, longest) = (self.waits.unschedulable_first, self.waits.unschedulable_longest);
        self.wait(key, now, |attempts| delay(first, longest, attempts, random), QueueState::Unschedulable);
    }

    /// All who wait for a Router now, to be looked at by [`Self::wake`].
    pub fn round(&self) -> Round {
        let next = self.waiting.keys().next().copied().unwrap_or(self.next_wait);
        Round { next, end: if self.depths.unschedulable == 0 { next } else { self.next_wait } }
    }

    /// Something changed: of the next `looked_at_max` routes of the round, in the order in which their waits began, those for
    /// which it `could_help` are looked at again. The answer is how many those are.
    pub fn wake(&mut self, round: &mut Round, looked_at_max: usize, could_help: impl Fn(&ObjectKey) -> bool) -> usize {
        if round.is_over() {
            return 0;
        }
        let places = &self.places;
        let waits_for_router =
            |key: &ObjectKey| places.get(key).is_some_and(|place| matches!(place.stage, QueueState::Unschedulable(_)));
        let mut keys = Vec::new();
        let mut rest = self.waiting.range(round.next..round.end);
        for (_, key) in rest.by_ref().take(looked_at_max) {
            if waits_for_router(key) && could_help(key) {
                keys.push(key.clone());
            }
        }
        round.next = rest.next().map_or(round.end, |(number, _)| *number);
        let count = keys.len();
        for key in keys {
            self.activate(key, Line::Woken);
        }
        count
    }

    /// Makes those active whose wait is over.
    pub fn ripen(&mut self, now: Instant) {
        while let Some((_, number)) = self.times.first().copied().filter(|(time, _)| *time <= now) {
            let Some(key) = self.waiting.get(&number).cloned() else { return };
            self.activate(key, Line::Woken);
        }
    }

    /// When the next wait is over.
    pub fn next_time(&self) -> Option<Instant> {
        self.times.first().map(|(time, _)| *time)
    }

    /// Whether the queue knows the route, wherever it is.
    pub fn holds(&self, key: &ObjectKey) -> bool {
        self.places.contains_key(key)
    }

    /// Whether the route is being scheduled.
    pub fn is_in_flight(&self, key: &ObjectKey) -> bool {
        matches!(self.places.get(key), Some(Place { stage: QueueState::InFlight { .. }, .. }))
    }

    /// How many routes are where.
    pub fn depths(&self) -> Depths {
        self.depths
    }

    fn wait(
        &mut self,
        key: &ObjectKey,
        now: Instant,
        length: impl Fn(u32) -> Duration,
        stage: impl Fn(Wait) -> QueueState,
    ) -> u32 {
        let Some(again) = self.land(key) else { return 0 };
        let Some(place) = self.places.get_mut(key) else { return 0 };
        let wait = Wait { number: self.next_wait, until: now + length(place.attempts) };
        self.next_wait += 1;
        place.attempts = place.attempts.saturating_add(1);
        let attempts = place.attempts;
        place.stage = stage(wait);
        match place.stage {
            QueueState::Unschedulable(_) => self.depths.unschedulable += 1,
            _ => self.depths.backing_off += 1,
        }
        self.waiting.insert(wait.number, key.clone());
        self.times.insert((wait.until, wait.number));
        if again {
            self.push(key.clone());
        }
        attempts
    }

    /// Ends a flight; `None` if there was none.
    fn land(&mut self, key: &ObjectKey) -> Option<bool> {
        match self.places.get(key)?.stage {
            QueueState::InFlight { again, line } => {
                self.depths.in_flight -= 1;
                self.woken_in_flight -= usize::from(line == Line::Woken);
                Some(again)
            }
            _ => None,
        }
    }

    fn activate(&mut self, key: ObjectKey, line: Line) {
        self.leave(&key);
        let Some(place) = self.places.get_mut(&key) else { return };
        place.stage = QueueState::Active;
        self.depths.active += 1;
        match line {
            Line::Fresh => self.fresh.push_back(key),
            Line::Woken => self.woken.push_back(key),
        }
    }

    /// Keeps the lines from filling with names that were removed: a process that does not lead never pops.
    fn compact(&mut self) {
        let names = self.fresh.len() + self.woken.len() + self.aside.len();
        if names > 2 * self.depths.active + STALE_NAMES_MAX {
            let mut seen = HashSet::new();
            let places = &self.places;
            let mut stays = |key: &ObjectKey, stage: QueueState| {
                places.get(key).is_some_and(|place| place.stage == stage) && seen.insert(key.clone())
            };
            self.fresh.retain(|key| stays(key, QueueState::Active));
            self.woken.retain(|key| stays(key, QueueState::Active));
            self.aside.retain(|key| stays(key, QueueState::Aside));
        }
    }

    /// Takes the route out of the counts, and out of the times, of where it is.
    fn leave(&mut self, key: &ObjectKey) {
        let Some(place) = self.places.get(key) else { return };
        let wait = match place.stage {
            QueueState::Active | QueueState::Aside => {
                self.depths.active -= 1;
                return;
            }
            QueueState::InFlight { line, .. } => {
                self.depths.in_flight -= 1;
                self.woken_in_flight -= usize::from(line == Line::Woken);
                return;
            }
            QueueState::BackingOff(wait) => {
                self.depths.backing_off -= 1;
                wait
            }
            QueueState::Unschedulable(wait) => {
                self.depths.unschedulable -= 1;
                wait
            }
        };
        self.waiting.remove(&wait.number);
        self.times.remove(&(wait.until, wait.number));
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Fresh,
    Woken,
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

    fn wake(queue: &mut Queue, could_help: impl Fn(&ObjectKey) -> bool) -> usize {
        let mut round = queue.round();
        let woken = queue.wake(&mut round, usize::MAX, could_help);
        assert!(round.is_over());
        woken
    }

    #[test]
    fn first_come_first_served_each_once() {
        let mut queue = Queue::new(Waits::default());
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
        let mut queue = Queue::new(Waits::default());
        queue.push(key("a"));
        for (failures, millis) in [(1, 200), (2, 400), (3, 800)] {
            assert!(queue.pop().is_some());
            let now = Instant::now();
            assert_eq!(queue.failed(&key("a"), now, u64::MAX), failures);
            assert_eq!(queue.next_time(), Some(now + Duration::from_millis(millis)));
            assert_eq!(wake(&mut queue, |_| true), 0, "a change of Routers does not mend a failure");
            queue.ripen(now + Duration::from_millis(millis - 1));
            assert_eq!(queue.depths().backing_off, 1);
            queue.ripen(now + Duration::from_millis(millis));
        }
        assert_eq!(names(&mut queue), ["a"]);
    }

    #[test]
    fn what_could_help_wakes_and_fresh_ones_do_not_wait_behind() {
        let mut queue = Queue::new(Waits::default());
        for name in ["a", "b", "c", "d"] {
            queue.push(key(name));
        }
        while let Some(key) = queue.pop() {
            queue.unschedulable(&key, Instant::now(), 0);
        }
        assert_eq!(queue.depths().unschedulable, 4);
        assert_eq!(wake(&mut queue, |key| key.name != "b"), 3);
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
    fn only_so_many_woken_ones_are_in_flight() {
        let mut queue = Queue::new(Waits::default());
        for i in 0..2 * WOKEN_AT_A_TIME {
            queue.push(key(&i.to_string()));
        }
        for key in names(&mut queue) {
            queue.unschedulable(&ObjectKey::namespaced("ns", &key), Instant::now(), 0);
        }
        wake(&mut queue, |_| true);
        let flying = names(&mut queue);
        assert_eq!(flying.len(), WOKEN_AT_A_TIME);
        queue.push(key("fresh"));
        assert_eq!(names(&mut queue), ["fresh"]);
        queue.done(&key("fresh"));
        assert_eq!(names(&mut queue), Vec::<String>::new(), "the others are still in flight");
        queue.failed(&key(&flying[0]), Instant::now(), 0);
        queue.done(&key(&flying[1]));
        assert_eq!(names(&mut queue).len(), 2);
    }

    #[test]
    fn what_is_set_aside_keeps_nobody_waiting() {
        let mut queue = Queue::new(Waits::default());
        ["a", "b", "c", "d"].iter().for_each(|name| queue.push(key(name)));
        for name in ["a", "b", "c"] {
            assert_eq!(queue.pop(), Some(key(name)));
            queue.set_aside(&key(name));
        }
        assert_eq!((queue.depths().active, queue.depths().in_flight), (4, 0));
        // A change is seen when it is looked at again; one that is gone is passed over.
        queue.push(key("a"));
        queue.remove(&key("b"));
        assert_eq!((queue.pop(), queue.pop()), (Some(key("d")), None));
        queue.fetch(1);
        assert_eq!((queue.pop(), queue.pop()), (Some(key("a")), None));
        queue.fetch(9);
        assert_eq!(names(&mut queue), ["c"]);
        assert_eq!(queue.depths().active, 0);
    }

    #[test]
    fn removed_names_do_not_pile_up() {
        let mut queue = Queue::new(Waits::default());
        queue.push(key("stays"));
        for i in 0..10_000 {
            queue.push(key(&i.to_string()));
            queue.remove(&key(&i.to_string()));
        }
        assert!(queue.fresh.len() <= STALE_NAMES_MAX + 8, "{}", queue.fresh.len());
        assert_eq!(names(&mut queue), ["stays"]);
    }

    proptest! {
        /// Whatever happens, each route is at one place, the counts are right, and none is lost.
        #[test]
        fn counts_are_right(steps in proptest::collection::vec((0_u8..10, 0_u8..6), 0..200)) {
            let mut queue = Queue::new(Waits::default());
            let mut now = Instant::now();
            let mut flying: Vec<ObjectKey> = Vec::new();
            for (action, which) in steps {
                let key = key(&which.to_string());
                match action {
                    0 | 1 => queue.push(key),
                    2 => queue.remove(&key),
                    3 => flying.extend(queue.pop()),
                    4 => { wake(&mut queue, |key| key.name.as_str() < "3"); }
                    5 => { now += Duration::from_millis(150); queue.ripen(now); }
                    6 => if let Some(key) = flying.pop() { queue.failed(&key, now, 0); },
                    7 => if let Some(key) = flying.pop() { queue.set_aside(&key) },
                    8 => queue.fetch(which.into()),
                    _ => if let Some(key) = flying.pop() {
                        if which % 2 == 0 { queue.done(&key) } else { queue.unschedulable(&key, now, 0) }
                    },
                }
                let depths = queue.depths();
                prop_assert_eq!(depths.in_flight, flying.len());
                prop_assert_eq!(
                    depths.active + depths.backing_off + depths.unschedulable + depths.in_flight,
                    queue.places.len()
                );
                prop_assert_eq!(depths.backing_off + depths.unschedulable, queue.times.len());
                prop_assert_eq!(queue.waiting.len(), queue.times.len());
            }
            queue.fetch(usize::MAX);
            let active = queue.depths().active;
            prop_assert_eq!(names(&mut queue).len(), active);
        }
    }
}
