//! Bound Routes whose names are in no zone, as far as is known: they have [`PATIENCE`] to get there before they are told.

use std::collections::{BTreeSet, HashMap};

use tokio::time::Instant;

use super::standing::PATIENCE;
use crate::client::reflector::ObjectKey;

/// See the module. Nothing that is asked of it looks at all of them: in a storm of new Routes there are thousands.
#[derive(Debug, Default)]
pub(super) struct Unheld {
    since: HashMap<ObjectKey, Instant>,
    order: BTreeSet<(Instant, ObjectKey)>,
}

impl Unheld {
    /// The Route is without names, since now if it was not before.
    pub(super) fn insert(&mut self, key: ObjectKey, now: Instant) {
        let since = *self.since.entry(key.clone()).or_insert(now);
        if since == now {
            self.order.insert((now, key));
        }
    }

    /// The Route has its names, or needs none.
    pub(super) fn remove(&mut self, key: &ObjectKey) {
        if let Some(entry) = self.since.remove_entry(key) {
            self.order.remove(&(entry.1, entry.0));
        }
    }

    /// Takes out the Route that has waited longest, if that is too long.
    pub(super) fn pop_late(&mut self, now: Instant) -> Option<ObjectKey> {
        self.order.first().filter(|(since, _)| *since + PATIENCE <= now)?;
        let (_, key) = self.order.pop_first()?;
        self.since.remove(&key);
        Some(key)
    }

    /// When the next has waited too long.
    pub(super) fn next_late_at(&self) -> Option<Instant> {
        self.order.first().map(|(since, _)| *since + PATIENCE)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_longest_waiting_comes_first() {
        let begin = Instant::now();
        let at = |millis| begin + Duration::from_millis(millis);
        let key = |name: &str| ObjectKey::namespaced("n", name);
        let mut unheld = Unheld::default();
        assert_eq!((unheld.pop_late(at(9_999)), unheld.next_late_at()), (None, None));
        for (name, since) in [("b", 0), ("a", 5), ("b", 7), ("c", 9), ("d", 9)] {
            unheld.insert(key(name), at(since));
        }
        unheld.remove(&key("a"));
        unheld.remove(&key("nobody"));
        assert_eq!(unheld.next_late_at(), Some(begin + PATIENCE));
        assert_eq!(unheld.pop_late(begin + PATIENCE - Duration::from_millis(1)), None);
        // To come again does not begin the time anew.
        assert_eq!(unheld.pop_late(begin + PATIENCE), Some(key("b")));
        assert_eq!(unheld.pop_late(begin + PATIENCE), None);
        assert_eq!(unheld.next_late_at(), Some(at(9) + PATIENCE));
        // What has been taken out may come again.
        unheld.insert(key("b"), at(20));
        let late = at(20) + PATIENCE;
        assert_eq!(std::iter::from_fn(|| unheld.pop_late(late)).collect::<Vec<_>>(), [key("c"), key("d"), key("b")]);
        assert!(unheld.since.is_empty() && unheld.order.is_empty());
    }
}
