//! Limits requests in flight and open watches, in total and for each user.
//!
//! A request can block on its body or on a revision, and a watch stays open indefinitely. With only a global limit, one client
//! could use all capacity. Each user is therefore limited, too, and a part is reserved for some users
//! ([`Authorizer::is_reserved_for`]). Control loops of this process bypass the limiter, because their number is fixed.
//!
//! [`Authorizer::is_reserved_for`]: crate::auth::rules::Authorizer::is_reserved_for

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The divisor of the total for one user's limit. With a smaller share, one user's many controllers would wait while the server
/// is idle; with a larger one, a few users could use all capacity.
const USERS_PART: usize = 16;
/// The divisor of the total for the reserved part.
const RESERVED_PART: usize = 8;

/// A limit on places, and their current holders.
pub struct InFlightLimiter {
    places: usize,
    held: Mutex<Held>,
}

#[derive(Default)]
struct Held {
    all: usize,
    /// The count of each user that holds any, so it has at most `all` entries.
    by_user: HashMap<Arc<str>, usize>,
}

/// A place, freed when this is dropped.
pub struct InFlightPermit {
    of: Arc<InFlightLimiter>,
    user: Arc<str>,
}

impl InFlightLimiter {
    /// Returns a limiter with this many places.
    pub fn new(places: usize) -> Arc<Self> {
        Arc::new(InFlightLimiter { places, held: Mutex::default() })
    }

    /// Returns a place for `user`, also a reserved one if `has_reserve`; `None` if all that this user may take are taken.
    pub fn take(self: &Arc<Self>, user: &str, has_reserve: bool) -> Option<InFlightPermit> {
        let places = if has_reserve { self.places } else { self.places - self.places / RESERVED_PART };
        let mut held = self.held.lock();
        let known = held.by_user.get_key_value(user).map(|(user, count)| (user.clone(), *count));
        let (user, count) = known.unwrap_or_else(|| (user.into(), 0));
        if held.all >= places || count >= self.places / USERS_PART {
            return None;
        }
        held.all += 1;
        held.by_user.insert(user.clone(), count + 1);
        Some(InFlightPermit { of: self.clone(), user })
    }
}

impl Drop for InFlightPermit {
    fn drop(&mut self) {
        let mut held = self.of.held.lock();
        held.all -= 1;
        match held.by_user.get_mut(&self.user) {
            Some(count) if *count > 1 => *count -= 1,
            _ => drop(held.by_user.remove(&self.user)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_takes_all() {
        let in_flight = InFlightLimiter::new(160);
        let mut held = Vec::new();
        let mut take = |user: &str, times: usize| {
            let taken: Vec<_> = (0..times).map_while(|_| in_flight.take(user, user == "own")).collect();
            let count = taken.len();
            held.extend(taken);
            count
        };
        assert_eq!(take("alice", 100), 10, "a sixteenth");
        let others: usize = (0..20).map(|index| take(&format!("user-{index}"), 100)).sum();
        assert_eq!(others, 130, "all but an eighth");
        assert_eq!(take("own", 100), 10, "from the rest for the platform's own");
        held.clear();
        let left = in_flight.held.lock();
        assert_eq!((left.all, left.by_user.len()), (0, 0), "what was dropped is free again");
    }
}
