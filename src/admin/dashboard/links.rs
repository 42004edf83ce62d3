//! One-time sign-in links, which `signpost dashboard` prints.
//!
//! The command sends the token of a kubeconfig and gets a code. The browser exchanges the code for the cookie of a session that
//! is open already, so the token is never in a URL. The code is in the fragment of the link, which browsers do not send.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use parking_lot::Mutex;

use super::ask::Failure;
use super::session;

/// The time in which a link can be used.
pub const VALID: Duration = Duration::from_secs(300);
/// The maximum number of unused links of one user; beyond it, the user's oldest one is invalid.
const LINKS_OF_USER_MAX: usize = 8;
/// The maximum number of unused links; beyond it, the oldest one of the user with the most is invalid.
const LINKS_MAX: usize = 1_024;

/// The unused links of a process: the session of each, by a hash of its code.
#[derive(Default)]
pub struct Links(Mutex<HashMap<Box<[u8]>, Link>>);

struct Link {
    user: String,
    identifier: String,
    created: Instant,
}

impl Links {
    /// Creates a code for the session of `user` with this identifier.
    pub fn create(&self, user: &str, identifier: String) -> Result<String, Failure> {
        let code = session::random()?;
        let mut links = self.0.lock();
        links.retain(|_, link| link.created.elapsed() < VALID);
        let mut counts: HashMap<&str, usize> = HashMap::new();
        links.values().for_each(|link| *counts.entry(&link.user).or_default() += 1);
        let full = match counts.get(user).copied() {
            Some(own) if own >= LINKS_OF_USER_MAX => Some(user.to_owned()),
            _ if links.len() < LINKS_MAX => None,
            _ => counts.into_iter().max_by_key(|(_, count)| *count).map(|(most, _)| most.to_owned()),
        };
        if let Some(user) = full {
            let own = links.iter().filter(|(_, link)| link.user == user);
            let oldest = own.min_by_key(|(_, link)| link.created).map(|(key, _)| key.clone());
            oldest.and_then(|key| links.remove(&key));
        }
        links.insert(session::key(&code), Link { user: user.to_owned(), identifier, created: Instant::now() });
        Ok(code)
    }

    /// Exchanges a code for the identifier of its session, once.
    pub fn redeem(&self, code: &str) -> Result<String, Failure> {
        let link = self.0.lock().remove(&session::key(code)).filter(|link| link.created.elapsed() < VALID);
        link.map(|link| link.identifier).ok_or_else(|| {
            let message = "the sign-in link was used, or is older than five minutes; run \"signpost dashboard\" again";
            Failure::new(StatusCode::FORBIDDEN, "InvalidLink", message)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_works_once() {
        let links = Links::default();
        let code = links.create("alice", "session".to_owned()).expect("random numbers");
        assert_eq!(links.redeem("other").expect_err("no such code").reason, "InvalidLink");
        assert_eq!(links.redeem(&code).expect("it is new"), "session");
        assert_eq!(links.redeem(&code).expect_err("it was used").status, StatusCode::FORBIDDEN);
    }

    #[test]
    fn the_links_of_one_user_leave_those_of_others_valid() {
        let links = Links::default();
        let create = |user: &str| links.create(user, user.to_owned()).expect("random numbers");
        let admins = create("admin");
        let tenants: Vec<String> = (0..=LINKS_MAX).map(|_| create("tenant")).collect();
        let valid: Vec<bool> = tenants.iter().map(|code| links.redeem(code).is_ok()).collect();
        let newest = LINKS_MAX + 1 - LINKS_OF_USER_MAX;
        assert!(valid.iter().enumerate().all(|(at, valid)| *valid == (at >= newest)), "{valid:?}");
        // Nor do those of many users, each of which has fewer.
        let second = create("admin");
        let others: Vec<String> = (1..LINKS_MAX).map(|number| create(&format!("user-{number}"))).collect();
        assert!(links.0.lock().len() <= LINKS_MAX);
        assert_eq!([&admins, &second].map(|code| links.redeem(code).is_ok()), [false, true]);
        assert!(others.iter().filter(|code| links.redeem(code).is_ok()).count() >= LINKS_MAX - 2);
    }
}
