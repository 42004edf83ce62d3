//! The work queue: the due times of items, and a fair allocation of the permits when many items wait and some hold permits for
//! long (a Router with unresponsive addresses, a namespace whose hosts' name servers are slow).
//!
//! An item waits once, for one due time. While it is in progress, it can be added again, and then waits when that ends. A failed item
//! returns after an exponential backoff with jitter, which its next success resets.
//!
//! A permit goes to the owner with the fewest permits, and among equals to the owner that has been due longest. An owner can
//! take another permit only while it holds fewer than are free: a single owner can hold half of the permits, two owners a third
//! each, and so on. So an owner that holds permits for long delays only its own items, and a new owner gets a permit
//! immediately, for any number of others. Only if there are as many owners as permits, and all of them are slow, all permits are
//! taken, one each.
//!
//! Pure: time and randomness are arguments.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use crate::client::backoff::delay;
use crate::client::reflector::ObjectKey;

/// Something that waits in a queue.
pub trait Item: Clone + Debug + Eq + Ord + Hash + Send + Sync + 'static {
    /// The owner whose permits the item uses.
    type Owner: Clone + Debug + Default + Eq + Ord + Hash + Send + Sync;

    /// Returns the item's owner.
    fn owner(&self) -> &Self::Owner;
}

/// Each namespace has its share of the permits.
impl Item for ObjectKey {
    type Owner = Option<String>;

    fn owner(&self) -> &Option<String> {
        &self.namespace
    }
}

/// The waiting items, their due times, and the permits of each owner.
#[derive(Debug)]
pub struct WorkQueue<T: Item> {
    places: usize,
    /// The items that hold a permit, each with the time at which it waits again after that, if it does.
    in_progress: HashMap<T, Option<Instant>>,
    owners: HashMap<T::Owner, OwnerState<T>>,
    times: HashMap<T, Instant>,
    /// The owners with waiting items, by the number of their permits and the due time of their first item.
    line: BTreeMap<usize, BTreeSet<(Instant, T::Owner)>>,
    /// The number of failures of an item in a row.
    failures: HashMap<T, u32>,
    retry: [Duration; 2],
}

#[derive(Debug)]
struct OwnerState<T> {
    due: BTreeSet<(Instant, T)>,
    held: usize,
}

impl<T: Item> WorkQueue<T> {
    /// Returns an empty queue with this number of permits, at least one. The backoff begins with the first of `retry` and ends
    /// with the other.
    pub fn new(places: usize, retry: [Duration; 2]) -> Self {
        let (owners, times, line) = (HashMap::new(), HashMap::new(), BTreeMap::new());
        let (in_progress, failures) = (HashMap::new(), HashMap::new());
        WorkQueue { places: places.max(1), in_progress, owners, times, line, failures, retry }
    }

    /// Adds the item, due at this time at the latest.
    pub fn add(&mut self, it: T, at: Instant) {
        let before = self.in_progress.get(&it).map_or_else(|| self.times.get(&it).copied(), |again| *again);
        if before.is_none_or(|before| at < before) {
            self.plan(it, at);
        }
    }

    /// Sets the item's only due time.
    pub fn plan(&mut self, it: T, at: Instant) {
        if let Some(again) = self.in_progress.get_mut(&it) {
            *again = Some(at);
            return;
        }
        self.remove(&it);
        self.times.insert(it.clone(), at);
        let owner = it.owner().clone();
        self.change(&owner, |share| share.due.insert((at, it)));
    }

    /// Removes a waiting item and its failures. Only [`Self::end`] returns the permit that it holds, if it does.
    pub fn forget(&mut self, it: &T) {
        self.failures.remove(it);
        match self.in_progress.get_mut(it) {
            Some(again) => *again = None,
            None => self.remove(it),
        }
    }

    fn remove(&mut self, it: &T) {
        if let Some(at) = self.times.remove(it) {
            self.change(it.owner(), |share| share.due.remove(&(at, it.clone())));
        }
    }

    /// Returns whether the item waits, now or after its current action.
    pub fn has(&self, it: &T) -> bool {
        self.times.contains_key(it) || self.in_progress.get(it).is_some_and(Option::is_some)
    }

    /// Returns the number of waiting items.
    pub fn depth(&self) -> usize {
        self.times.len()
    }

    /// Takes the next due item. It holds a permit until [`Self::end`].
    pub fn begin(&mut self, now: Instant) -> Option<T> {
        let (_, owner) = self.firsts().find(|(at, _)| *at <= now)?;
        let owner = owner.clone();
        let (_, it) = self.change(&owner, |share| {
            share.held += 1;
            share.due.pop_first()
        })?;
        self.times.remove(&it);
        if self.times.is_empty() {
            // After a burst of items, the memory is freed.
            self.times = HashMap::new();
        }
        self.in_progress.insert(it.clone(), None);
        Some(it)
    }

    /// Releases the item's permit.
    pub fn end(&mut self, it: &T) {
        let Some(again) = self.in_progress.remove(it) else { return };
        self.change(it.owner(), |share| share.held -= 1);
        if let Some(at) = again {
            self.plan(it.clone(), at);
        }
    }

    /// Records the item's success: its next failure counts as the first.
    pub fn succeeded(&mut self, it: &T) {
        self.failures.remove(it);
    }

    /// Requeues a failed item after a wait that depends on its failures in a row; `random` is a random number.
    pub fn failed(&mut self, it: &T, now: Instant, random: u64) {
        let failures = self.failures.entry(it.clone()).or_default();
        let wait = delay(self.retry[0], self.retry[1], *failures, random);
        *failures = failures.saturating_add(1);
        self.plan(it.clone(), now + wait);
    }

    /// Returns the time at which the next item can begin; `None`: not before a permit is returned, or an item is added.
    pub fn next_at(&self) -> Option<Instant> {
        self.firsts().map(|(at, _)| *at).min()
    }

    /// Returns the longest due owner for each number of held permits, among owners that may take one more.
    fn firsts(&self) -> impl Iterator<Item = &(Instant, T::Owner)> {
        let free = self.places.saturating_sub(self.in_progress.len());
        self.line.range(..free).filter_map(|(_, owners)| owners.first())
    }

    /// Changes an owner's state, and the owner's position in the order.
    fn change<R>(&mut self, owner: &T::Owner, change: impl FnOnce(&mut OwnerState<T>) -> R) -> R {
        let share = self.owners.entry(owner.clone()).or_insert_with(|| OwnerState { due: BTreeSet::new(), held: 0 });
        let stands = |share: &OwnerState<T>| share.due.first().map(|(at, _)| (share.held, *at));
        let before = stands(share);
        let result = change(share);
        let after = stands(share);
        if share.due.is_empty() && share.held == 0 {
            self.owners.remove(owner);
        }
        if before != after {
            if let Some((held, at)) = before
                && let Some(level) = self.line.get_mut(&held)
            {
                level.remove(&(at, owner.clone()));
                if level.is_empty() {
                    self.line.remove(&held);
                }
            }
            if let Some((held, at)) = after {
                self.line.entry(held).or_default().insert((at, owner.clone()));
            }
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RETRY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(4)];

    impl Item for (&'static str, u64) {
        type Owner = &'static str;

        fn owner(&self) -> &&'static str {
            &self.0
        }
    }

    fn begun(queue: &mut WorkQueue<(&'static str, u64)>, now: Instant) -> Vec<(&'static str, u64)> {
        std::iter::from_fn(|| queue.begin(now)).collect()
    }

    /// The permits, of sixteen, for each of `slow` owners with more work than permits. Another owner gets its permit immediately,
    /// and can return and take it any number of times.
    #[test]
    fn who_is_slow_keeps_only_its_own_waiting() {
        const SLOW: [&str; 5] = ["slow1", "slow2", "slow3", "slow4", "slow5"];
        for (slow, held) in [(1, 8), (2, 5), (3, 4), (4, 3), (5, 2)] {
            let (mut queue, start) = (WorkQueue::new(16, RETRY), Instant::now());
            for number in 0..300 {
                SLOW[..slow].iter().for_each(|owner| queue.plan((*owner, number), start));
            }
            let all = begun(&mut queue, start);
            for owner in &SLOW[..slow] {
                let mine = all.iter().filter(|it| it.owner() == owner).count();
                assert!((held..=held + 1).contains(&mine), "{slow} slow ones: {mine}");
            }
            assert_eq!(queue.next_at(), None, "no slow one may have more");
            for number in 0..1000 {
                queue.plan(("quick", number), start);
            }
            for number in 0..1000 {
                assert_eq!(queue.begin(start), Some(("quick", number)), "{slow}");
                queue.end(&("quick", number));
            }
        }
    }

    #[test]
    fn a_free_place_goes_to_who_holds_fewest_and_has_waited_longest() {
        let (mut queue, start) = (WorkQueue::new(6, RETRY), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for it in [("a", 1), ("a", 2), ("a", 3)] {
            queue.plan(it, start);
        }
        queue.plan(("b", 1), at(1));
        queue.plan(("c", 1), at(2));
        queue.plan(("late", 1), at(60));
        assert_eq!(begun(&mut queue, start), [("a", 1), ("a", 2), ("a", 3)]);
        assert_eq!(queue.next_at(), Some(at(1)));
        queue.plan(("a", 4), start);
        assert_eq!(begun(&mut queue, at(9)), [("b", 1), ("c", 1)]);
        assert_eq!((queue.begin(at(9)), queue.next_at()), (None, Some(at(60))), "who comes has a place");
        queue.end(&("b", 1));
        queue.plan(("b", 2), at(9));
        assert_eq!((queue.begin(at(9)), queue.begin(at(9))), (Some(("b", 2)), None));
    }

    #[test]
    fn all_is_planned_once_and_nothing_is_left_over() {
        let (mut queue, start) = (WorkQueue::new(1, RETRY), Instant::now());
        let it = ("a", 1);
        queue.plan(it, start);
        queue.plan(it, start + Duration::from_secs(9));
        assert_eq!((queue.begin(start), queue.next_at()), (None, Some(start + Duration::from_secs(9))));
        queue.forget(&it);
        assert_eq!((queue.has(&it), queue.next_at()), (false, None));
        queue.plan(it, start);
        assert_eq!(queue.begin(start), Some(it), "one place is enough for one");
        queue.plan(it, start);
        assert_eq!((queue.begin(start), queue.has(&it)), (None, true));
        queue.end(&it);
        assert_eq!(queue.begin(start), Some(it));
        queue.end(&it);
        assert!(
            queue.owners.is_empty() && queue.times.is_empty() && queue.line.is_empty() && queue.in_progress.is_empty()
        );
    }
}
