//! Who may have how many streams of changes open: some for each user, some for all together, and nobody is kept out by
//! one who has many.
//!
//! Places are counted by user, whatever sessions they signed in with. When all are taken, whoever comes with fewer than
//! the user with the most takes that user's oldest place. So with `places` in all and `n` users who want them, each has
//! `places / n` at least.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// A number of places, and who has which.
pub struct Places {
    all: usize,
    of_user: usize,
    taken: Mutex<Taken>,
}

#[derive(Default)]
struct Taken {
    all: usize,
    next: u64,
    /// Only users who have any, the oldest place first.
    by_user: HashMap<Arc<str>, VecDeque<(u64, CancellationToken)>>,
}

/// A place, free again when this is dropped.
pub struct Place {
    of: Arc<Places>,
    user: Arc<str>,
    number: u64,
    lost: CancellationToken,
}

impl Places {
    /// So many in all, and at most so many of one user.
    pub fn new(all: usize, of_user: usize) -> Arc<Self> {
        Arc::new(Places { all, of_user, taken: Mutex::default() })
    }

    /// A place for `user`; `None` if this user has as many as anyone may have now.
    pub fn take(self: &Arc<Self>, user: &str) -> Option<Place> {
        let mut taken = self.taken.lock();
        let own = taken.by_user.get(user).map_or(0, VecDeque::len);
        if own >= self.of_user {
            return None;
        }
        if taken.all >= self.all {
            let most = taken.by_user.iter().max_by_key(|(_, places)| places.len());
            // One who has no more than this user would have then keeps it: else two would take it from each other for ever.
            let most = most.filter(|(_, places)| places.len() > own + 1).map(|(user, _)| user.clone())?;
            taken.give_up_oldest(&most);
        }
        let user = taken.by_user.get_key_value(user).map_or_else(|| user.into(), |(user, _)| user.clone());
        let (number, lost) = (taken.next, CancellationToken::new());
        taken.next += 1;
        taken.all += 1;
        taken.by_user.entry(user.clone()).or_default().push_back((number, lost.clone()));
        drop(taken);
        Some(Place { of: self.clone(), user, number, lost })
    }
}

impl Taken {
    fn give_up_oldest(&mut self, user: &str) {
        if let Some((_, lost)) = self.by_user.get_mut(user).and_then(VecDeque::pop_front) {
            lost.cancel();
            self.all -= 1;
        }
    }
}

impl Place {
    /// Waits until somebody else was given the place.
    pub async fn lost(&self) {
        self.lost.cancelled().await;
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut taken = self.of.taken.lock();
        let Some(places) = taken.by_user.get_mut(&self.user) else { return };
        let before = places.len();
        places.retain(|(number, _)| *number != self.number);
        let (left, given_up) = (places.len(), before - places.len());
        taken.all -= given_up;
        if left == 0 {
            taken.by_user.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(places: &Arc<Places>, user: &str, times: usize) -> Vec<Place> {
        (0..times).map_while(|_| places.take(user)).collect()
    }

    fn count(held: &[Place]) -> usize {
        held.iter().filter(|place| !place.lost.is_cancelled()).count()
    }

    #[test]
    fn a_user_has_a_bound_and_keeps_nobody_out() {
        let places = Places::new(12, 8);
        let alice = take(&places, "alice", 100);
        assert_eq!(alice.len(), 8, "the bound of one user");
        let bob = take(&places, "bob", 100);
        assert_eq!((count(&alice), count(&bob)), (6, 6), "the rest, and then what makes it even");
        let carol = take(&places, "carol", 100);
        assert_eq!([&alice, &bob, &carol].map(|held| count(held)).into_iter().sum::<usize>(), 12);
        assert!(count(&carol) >= 4 && count(&alice) >= 4 && count(&bob) >= 4, "{}", count(&carol));
        assert!(alice[0].lost.is_cancelled(), "the oldest goes first");
        assert_eq!(places.taken.lock().all, 12);
        drop((alice, bob, carol));
        let left = places.taken.lock();
        assert_eq!((left.all, left.by_user.len()), (0, 0), "what was dropped is free again");
    }

    #[test]
    fn among_users_with_one_each_nobody_is_put_out() {
        let places = Places::new(3, 8);
        let held: Vec<Place> = ["a", "b", "c"].iter().filter_map(|user| places.take(user)).collect();
        assert!(places.take("d").is_none());
        assert_eq!(count(&held), 3);
    }
}
