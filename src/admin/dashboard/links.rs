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
/// The maximum number of unused links; beyond it, the oldest one is invalid.
const LINKS_MAX: usize = 64;

/// The unused links of a process: the session of each, by a hash of its code.
#[derive(Default)]
pub struct Links(Mutex<HashMap<Box<[u8]>, Link>>);

struct Link {
    identifier: String,
    created: Instant,
}

impl Links {
    /// Creates a code for the session with this identifier.
    pub fn create(&self, identifier: String) -> Result<String, Failure> {
        let code = session::random()?;
        let mut links = self.0.lock();
        links.retain(|_, link| link.created.elapsed() < VALID);
        if links.len() >= LINKS_MAX {
            let oldest = links.iter().min_by_key(|(_, link)| link.created).map(|(key, _)| key.clone());
            oldest.and_then(|key| links.remove(&key));
        }
        links.insert(session::key(&code), Link { identifier, created: Instant::now() });
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
        let code = links.create("session".to_owned()).expect("random numbers");
        assert_eq!(links.redeem("other").expect_err("no such code").reason, "InvalidLink");
        assert_eq!(links.redeem(&code).expect("it is new"), "session");
        assert_eq!(links.redeem(&code).expect_err("it was used").status, StatusCode::FORBIDDEN);
    }

    #[test]
    fn only_the_newest_links_are_kept() {
        let links = Links::default();
        let codes: Vec<String> =
            (0..=LINKS_MAX).map(|number| links.create(number.to_string()).expect("random numbers")).collect();
        assert!(links.redeem(&codes[0]).is_err());
        assert_eq!(links.redeem(&codes[LINKS_MAX]).expect("it is the newest"), LINKS_MAX.to_string());
    }
}
