//! Whose turn it is, where many wait for few places and some hold theirs for long: a Router whose addresses do not answer, a
//! namespace whose hosts' name servers are slow.
//!
//! A place goes to the owner who holds the fewest, and of the others to who has been due longest. An owner may take one more
//! only while it holds fewer than are free: alone it can hold half of the places, two can hold a third each, and so on. So
//! whoever holds places for long keeps only its own waiting, and a place is free at once for an owner who comes, however few
//! the others are. Only as many owners as there are places, all of them slow, hold them all, one each.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt::Debug;
use std::hash::Hash;

use tokio::time::Instant;

/// Something that waits for its turn.
pub(super) trait Waiting: Clone + Debug + Eq + Ord + Hash {
    /// Whose places it takes.
    type Owner: Clone + Debug + Default + Eq + Ord + Hash;

    /// Whose it is.
    fn owner(&self) -> &Self::Owner;
}

/// What waits, when each is due, and how many places each owner holds.
#[derive(Debug)]
pub(super) struct Turns<T: Waiting> {
    places: usize,
    held: usize,
    owners: HashMap<T::Owner, Share<T>>,
    times: HashMap<T, Instant>,
    /// Owners for whom something waits, by how many places they hold and when the first of theirs is due.
    line: BTreeMap<usize, BTreeSet<(Instant, T::Owner)>>,
}

/// What is one owner's.
#[derive(Debug)]
struct Share<T> {
    due: BTreeSet<(Instant, T)>,
    held: usize,
}

impl<T: Waiting> Turns<T> {
    /// With so many places, at least one, and nothing that waits.
    pub(super) fn new(places: usize) -> Self {
        let (owners, times, line) = (HashMap::new(), HashMap::new(), BTreeMap::new());
        Turns { places: places.max(1), held: 0, owners, times, line }
    }

    /// This is due at this time, and at no other.
    pub(super) fn plan(&mut self, it: T, at: Instant) {
        self.forget(&it);
        self.times.insert(it.clone(), at);
        let owner = it.owner().clone();
        self.change(&owner, |share| share.due.insert((at, it)));
    }

    /// It waits no more. The place that it holds, if it does, is given back by [`Self::end`] alone.
    pub(super) fn forget(&mut self, it: &T) {
        if let Some(at) = self.times.remove(it) {
            self.change(it.owner(), |share| share.due.remove(&(at, it.clone())));
        }
    }

    /// Whether it waits.
    pub(super) fn has(&self, it: &T) -> bool {
        self.times.contains_key(it)
    }

    /// The next one, which holds a place until [`Self::end`].
    pub(super) fn begin(&mut self, now: Instant) -> Option<T> {
        let (_, owner) = self.firsts().find(|(at, _)| *at <= now)?;
        let owner = owner.clone();
        let (_, it) = self.change(&owner, |share| {
            share.held += 1;
            share.due.pop_first()
        })?;
        self.held += 1;
        self.times.remove(&it);
        Some(it)
    }

    /// It needs its place no more.
    pub(super) fn end(&mut self, it: &T) {
        self.held = self.held.saturating_sub(1);
        self.change(it.owner(), |share| share.held = share.held.saturating_sub(1));
    }

    /// When one can begin next; `None`: not before a place is given back, or something is planned.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.firsts().map(|(at, _)| *at).min()
    }

    /// Of owners who may have one more place, by how many they hold, the one who has been due longest.
    fn firsts(&self) -> impl Iterator<Item = &(Instant, T::Owner)> {
        let free = self.places.saturating_sub(self.held);
        self.line.range(..free).filter_map(|(_, owners)| owners.first())
    }

    /// Changes what is an owner's, and the owner's place in the line with it.
    fn change<R>(&mut self, owner: &T::Owner, change: impl FnOnce(&mut Share<T>) -> R) -> R {
        let share = self.owners.entry(owner.clone()).or_insert_with(|| Share { due: BTreeSet::new(), held: 0 });
        let stands = |share: &Share<T>| share.due.first().map(|(at, _)| (share.held, *at));
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
    use std::time::Duration;

    use super::*;

    impl Waiting for (&'static str, u64) {
        type Owner = &'static str;

        fn owner(&self) -> &&'static str {
            &self.0
        }
    }

    fn begun(turns: &mut Turns<(&'static str, u64)>, now: Instant) -> Vec<(&'static str, u64)> {
        std::iter::from_fn(|| turns.begin(now)).collect()
    }

    /// How many places each of `slow` owners gets of sixteen, with more to do than there are places; and that another one gets
    /// its place at once, and gives and takes it as often as it likes.
    #[test]
    fn who_is_slow_keeps_only_its_own_waiting() {
        const SLOW: [&str; 5] = ["slow1", "slow2", "slow3", "slow4", "slow5"];
        for (slow, held) in [(1, 8), (2, 5), (3, 4), (4, 3), (5, 2)] {
            let (mut turns, start) = (Turns::new(16), Instant::now());
            for number in 0..300 {
                SLOW[..slow].iter().for_each(|owner| turns.plan((*owner, number), start));
            }
            let all = begun(&mut turns, start);
            for owner in &SLOW[..slow] {
                let mine = all.iter().filter(|it| it.owner() == owner).count();
                assert!((held..=held + 1).contains(&mine), "{slow} slow ones: {mine}");
            }
            assert_eq!(turns.next_at(), None, "no slow one may have more");
            for number in 0..1000 {
                turns.plan(("quick", number), start);
            }
            for number in 0..1000 {
                assert_eq!(turns.begin(start), Some(("quick", number)), "{slow}");
                turns.end(&("quick", number));
            }
        }
    }

    #[test]
    fn a_free_place_goes_to_who_holds_fewest_and_has_waited_longest() {
        let (mut turns, start) = (Turns::new(6), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        for it in [("a", 1), ("a", 2), ("a", 3)] {
            turns.plan(it, start);
        }
        turns.plan(("b", 1), at(1));
        turns.plan(("c", 1), at(2));
        turns.plan(("late", 1), at(60));
        assert_eq!(begun(&mut turns, start), [("a", 1), ("a", 2), ("a", 3)]);
        assert_eq!(turns.next_at(), Some(at(1)));
        turns.plan(("a", 4), start);
        assert_eq!(begun(&mut turns, at(9)), [("b", 1), ("c", 1)]);
        assert_eq!((turns.begin(at(9)), turns.next_at()), (None, Some(at(60))), "who comes has a place");
        turns.end(&("b", 1));
        turns.plan(("b", 2), at(9));
        assert_eq!((turns.begin(at(9)), turns.begin(at(9))), (Some(("b", 2)), None));
    }

    #[test]
    fn all_is_planned_once_and_nothing_is_left_over() {
        let (mut turns, start) = (Turns::new(1), Instant::now());
        let it = ("a", 1);
        turns.plan(it, start);
        turns.plan(it, start + Duration::from_secs(9));
        assert_eq!((turns.begin(start), turns.next_at()), (None, Some(start + Duration::from_secs(9))));
        turns.forget(&it);
        assert_eq!((turns.has(&it), turns.next_at()), (false, None));
        turns.plan(it, start);
        assert_eq!(turns.begin(start), Some(it), "one place is enough for one");
        turns.plan(it, start);
        assert_eq!((turns.begin(start), turns.has(&it)), (None, true));
        turns.end(&it);
        assert_eq!(turns.begin(start), Some(it));
        turns.end(&it);
        assert!(turns.owners.is_empty() && turns.times.is_empty() && turns.line.is_empty() && turns.held == 0);
    }
}
