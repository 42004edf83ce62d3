//! The rate limit of one user's rejected requests in the audit log.
//!
//! The size of the log's files is limited, so a user with many events removes older ones. Each user therefore has a token bucket,
//! and all clients without credentials share one. Successful changes take nothing from a bucket: a flood of rejected requests
//! cannot hide a change.

use std::collections::HashMap;
use std::time::Instant;

/// The events per second that a bucket regains, and the capacity of a bucket.
const PER_SECOND: f64 = 10.0;
const AT_ONCE: f64 = 100.0;
/// The maximum number of users with their own bucket. One takes about 150 bytes. Full buckets are dropped when there are more
/// users.
const USERS_MAX: usize = 4_096;

/// The buckets of all users.
#[derive(Default)]
pub(super) struct Limits {
    strangers: Bucket,
    users: HashMap<String, Bucket>,
}

#[derive(Default)]
struct Bucket {
    /// The events taken and not regained yet.
    taken: f64,
    at: Option<Instant>,
}

impl Limits {
    /// Returns whether there is room for an event of `user`, which is `None` for a sender without credentials. If so, the event
    /// counts.
    pub(super) fn take(&mut self, user: Option<&str>, now: Instant) -> bool {
        let Some(user) = user else { return self.strangers.take(now) };
        if !self.users.contains_key(user) {
            if self.users.len() >= USERS_MAX {
                self.users.retain(|_, bucket| bucket.taken(now) > 0.0);
            }
            if self.users.len() >= USERS_MAX {
                return self.strangers.take(now);
            }
        }
        self.users.entry(user.to_owned()).or_default().take(now)
    }
}

impl Bucket {
    fn taken(&self, now: Instant) -> f64 {
        let regained = self.at.map_or(0.0, |at| now.saturating_duration_since(at).as_secs_f64() * PER_SECOND);
        (self.taken - regained).max(0.0)
    }

    fn take(&mut self, now: Instant) -> bool {
        self.taken = self.taken(now);
        self.at = Some(now);
        let has_room = self.taken + 1.0 <= AT_ONCE;
        if has_room {
            self.taken += 1.0;
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn each_user_has_a_bucket() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        let mut written = |user, count, at| (0..count).filter(|_| limits.take(user, at)).count();
        assert_eq!(written(Some("a"), 1_000, start), 100);
        assert_eq!(written(Some("b"), 50, start), 50, "the flood of one user leaves the others alone");
        assert_eq!(written(None, 1_000, start), 100);
        assert_eq!(written(Some("a"), 1_000, start + Duration::from_secs(2)), 20);
    }

    #[test]
    fn the_number_of_buckets_is_bounded() {
        let (mut limits, start) = (Limits::default(), Instant::now());
        let all = USERS_MAX + 1_000;
        let written = (0..all).filter(|user| limits.take(Some(&user.to_string()), start)).count();
        assert_eq!((written, limits.users.len()), (USERS_MAX + 100, USERS_MAX));
        assert!(limits.take(Some("late"), start + Duration::from_secs(1)));
        assert_eq!(limits.users.len(), 1, "full buckets are forgotten");
    }
}
