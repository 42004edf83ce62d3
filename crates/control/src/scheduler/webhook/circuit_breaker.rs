//! MoveSource a webhook alone that does not work, so that routes do not wait for it one timeout after the other.
//!
//! ```text
//!            failures in a row
//!   asked ──────────────────────► resting ── its time ──► one question is let through ──┬── answered: asked again
//!     ▲                              ▲                                                  └── failed: rests, for longer
//!     └──────── an answer ───────────┴──────────────────────────────────────────────────────────┘
//! ```

use std::time::Duration;

use tokio::time::Instant;

/// Failures in a row after which it rests. Fewer may be one restart of it.
const FAILURES_MAX: u32 = 5;
/// Its first rest; each further one is twice as long.
const REST_FIRST: Duration = Duration::from_secs(1);
/// Its longest rest: how late it is noticed that it works again.
const REST_LONGEST: Duration = Duration::from_secs(30);

/// Whether to ask. Times come from the caller.
#[derive(Debug, Default)]
pub struct CircuitBreaker {
    failures: u32,
    rests: u32,
    until: Option<Instant>,
    /// Whether the one question after a rest is under way.
    trying: bool,
}

impl CircuitBreaker {
    /// Whether a question may be put now; one that may is to be followed by [`answered`](CircuitBreaker::answered) or
    /// [`failed`](CircuitBreaker::failed).
    pub fn may_ask(&mut self, now: Instant) -> bool {
        match self.until {
            None => true,
            Some(until) if now >= until && !self.trying => {
                self.trying = true;
                true
            }
            Some(_) => false,
        }
    }

    /// It answered, whatever it said.
    pub fn answered(&mut self) {
        *self = CircuitBreaker::default();
    }

    /// It did not. The answer is how long it rests, if that begins now.
    pub fn failed(&mut self, now: Instant) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        // Questions that were under way when the rest began fail too; that is no news.
        if self.failures < FAILURES_MAX || (self.until.is_some() && !self.trying) {
            return None;
        }
        let circuit_breaker =
            REST_FIRST.saturating_mul(1_u32.checked_shl(self.rests).unwrap_or(u32::MAX)).min(REST_LONGEST);
        self.rests = self.rests.saturating_add(1);
        self.until = Some(now + circuit_breaker);
        self.trying = false;
        Some(circuit_breaker)
    }

    /// It was not asked after all.
    pub fn withdrawn(&mut self) {
        self.trying = false;
    }

    /// Whether it is left alone at the moment, but for one question.
    pub fn is_resting(&self) -> bool {
        self.until.is_some()
    }

    /// How many failures in a row there were.
    pub fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_after_failures_and_is_tried_once() {
        let mut circuit_breaker = CircuitBreaker::default();
        let mut now = Instant::now();
        for _ in 1..FAILURES_MAX {
            assert!(circuit_breaker.may_ask(now));
            assert_eq!(circuit_breaker.failed(now), None);
        }
        assert_eq!(circuit_breaker.failed(now), Some(REST_FIRST));
        assert_eq!(circuit_breaker.failed(now), None, "one that was under way");
        assert!(!circuit_breaker.may_ask(now));
        now += REST_FIRST;
        assert!(circuit_breaker.may_ask(now));
        assert!(!circuit_breaker.may_ask(now), "one is enough");
        circuit_breaker.withdrawn();
        assert!(circuit_breaker.may_ask(now));
        assert_eq!(circuit_breaker.failed(now), Some(2 * REST_FIRST));
        for _ in 0..40 {
            now += REST_LONGEST;
            assert!(circuit_breaker.may_ask(now));
            circuit_breaker.failed(now);
        }
        assert!(!circuit_breaker.may_ask(now + REST_LONGEST - Duration::from_millis(1)));
        assert!(circuit_breaker.may_ask(now + REST_LONGEST));
        circuit_breaker.answered();
        assert!(circuit_breaker.may_ask(now) && circuit_breaker.may_ask(now));
        assert_eq!(circuit_breaker.failed(now), None);
    }

    #[test]
    fn an_answer_in_between_begins_the_count_anew() {
        let mut circuit_breaker = CircuitBreaker::default();
        let now = Instant::now();
        for _ in 0..20 {
            for _ in 1..FAILURES_MAX {
                assert_eq!(circuit_breaker.failed(now), None);
            }
            circuit_breaker.answered();
        }
        assert!(circuit_breaker.may_ask(now));
    }
}
