//! Recent requests and their answers: a repeated request gets the first one's answer.

use std::collections::VecDeque;

use futures::future::{BoxFuture, Shared};

use crate::wire::header::Rcode;

/// The answer of a request, perhaps still to come.
pub type Pending = Shared<BoxFuture<'static, Rcode>>;

/// The maximum number of requests that are kept. Further ones displace the oldest.
const KEPT_MAX: usize = 1_024;

/// The longest time after which a client repeats a request with a new signature, in seconds: three times the 10 seconds that clients wait
/// at most.
const REPEAT_SECONDS: u64 = 30;

/// The properties by which a repeated request is recognized.
#[derive(Debug)]
pub struct Fingerprint {
    /// The signature. It includes the time, so a request with the same one is a copy, also from another client.
    pub mac: Box<[u8]>,
    /// A digest of the client's address and the message without its signature. The message includes the identifier.
    pub message: [u8; 32],
    /// The time at which it arrived, in seconds since the epoch.
    pub at: u64,
}

/// The recent requests.
#[derive(Default)]
pub struct Recent(VecDeque<(Fingerprint, Pending)>);

impl Recent {
    /// Returns the answer of the request that this one repeats.
    pub fn find(&self, request: &Fingerprint) -> Option<Pending> {
        let is_same = |first: &Fingerprint| {
            let is_retry = first.message == request.message && request.at.abs_diff(first.at) <= REPEAT_SECONDS;
            is_retry || first.mac == request.mac
        };
        self.0.iter().rev().find(|(first, _)| is_same(first)).map(|(_, pending)| pending.clone())
    }

    /// Keeps a request that repeats none.
    pub fn add(&mut self, request: Fingerprint, pending: Pending) {
        if self.0.len() == KEPT_MAX {
            self.0.pop_front();
        }
        self.0.push_back((request, pending));
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    #[test]
    fn copies_and_retries_are_found() {
        let pending = |rcode| std::future::ready(rcode).boxed().shared();
        let fingerprint = |mac: &[u8], message: u8, at| Fingerprint { mac: mac.into(), message: [message; 32], at };
        let mut recent = Recent::default();
        recent.add(fingerprint(b"one", 1, 1_000), pending(Rcode::NOERROR));
        for (request, expected) in [
            // A copy from elsewhere, at any time.
            (fingerprint(b"one", 9, 9_000), true),
            // A retry, signed again.
            (fingerprint(b"two", 1, 1_030), true),
            (fingerprint(b"two", 1, 1_031), false),
            (fingerprint(b"two", 2, 1_000), false),
        ] {
            let found = recent.find(&request).and_then(|pending| pending.now_or_never());
            assert_eq!(found, expected.then_some(Rcode::NOERROR), "{request:?}");
        }
        for number in 0..KEPT_MAX {
            recent.add(fingerprint(&number.to_be_bytes(), 3, 0), pending(Rcode::SERVFAIL));
        }
        assert_eq!(recent.0.len(), KEPT_MAX);
        assert!(recent.find(&fingerprint(b"one", 1, 1_000)).is_none(), "displaced");
    }
}
