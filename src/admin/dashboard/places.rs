//! Limits the open event streams: per user, and in total. A user with many streams cannot lock out others.
//!
//! Streams are counted by user over all sessions. When all places are taken, a user with fewer streams than the user with the
//! most takes that user's oldest place. With `places` in total and `n` users who want them, each has at least `places / n`.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

/// A limit on places, and their holders: the oldest first.
pub struct StreamLimiter {
    all: usize,
    of_user: usize,
    taken: Mutex<VecDeque<Arc<OpenStream>>>,
}

struct OpenStream {
    user: String,
    lost: CancellationToken,
}

/// A place, freed when this is dropped.
pub struct StreamPermit {
    of: Arc<StreamLimiter>,
    taken: Arc<OpenStream>,
}

impl StreamLimiter {
    /// Returns a limiter with `all` places in total and `of_user` per user.
    pub fn new(all: usize, of_user: usize) -> Arc<Self> {
        Arc::new(StreamLimiter { all, of_user, taken: Mutex::default() })
    }

    /// Returns a place for `user`; `None` if this user currently has the maximum number.
    pub fn take(self: &Arc<Self>, user: &str) -> Option<StreamPermit> {
        let mut taken = self.taken.lock();
        let mut counts: HashMap<&str, usize> = HashMap::new();
        taken.iter().for_each(|place| *counts.entry(&place.user).or_default() += 1);
        let own = counts.get(user).copied().unwrap_or(0);
        if own >= self.of_user {
            return None;
        }
        if taken.len() >= self.all {
            let most = counts.into_iter().max_by_key(|(_, count)| *count);
            // A user whose count does not exceed the requester's new count keeps the place: otherwise, two users would
            // alternately take it from each other.
            let (most, _) = most.filter(|(_, count)| *count > own + 1)?;
            let oldest = taken.iter().position(|place| place.user == most)?;
            taken.remove(oldest)?.lost.cancel();
        }
        let place = Arc::new(OpenStream { user: user.to_owned(), lost: CancellationToken::new() });
        taken.push_back(place.clone());
        Some(StreamPermit { of: self.clone(), taken: place })
    }
}

impl StreamPermit {
    /// Waits until the place was given to another user.
    pub async fn lost(&self) {
        self.taken.lost.cancelled().await;
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.of.taken.lock().retain(|place| !Arc::ptr_eq(place, &self.taken));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_a_bound_and_keeps_nobody_out() {
        let places = StreamLimiter::new(12, 8);
        let take = |user| std::iter::repeat_with(|| places.take(user)).map_while(|place| place).collect::<Vec<_>>();
        let count = |held: &[StreamPermit]| held.iter().filter(|place| !place.taken.lost.is_cancelled()).count();
        let (alice, bob) = (take("alice"), take("bob"));
        assert_eq!((alice.len(), count(&alice), count(&bob)), (8, 6, 6), "the rest, and then what makes it even");
        let carol = take("carol");
        assert_eq!([&alice, &bob, &carol].map(|held| count(held)), [4; 3]);
        assert!(alice[0].taken.lost.is_cancelled(), "the oldest goes first");
        drop((alice, bob, carol));
        let held: Vec<StreamPermit> = (0..12).filter_map(|user| places.take(&user.to_string())).collect();
        assert!(places.take("another").is_none() && count(&held) == 12, "no user with one place loses it");
        drop(held);
        assert!(places.taken.lock().is_empty());
    }
}
