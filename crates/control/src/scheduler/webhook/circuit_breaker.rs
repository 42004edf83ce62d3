//! The circuit breaker of the webhook, so that routes do not wait for one timeout after another.
//!
//! ```text
//!             failures in a row
//!   closed ──────────────────────► open ── its time ──► half-open: one call ──┬── answered ──► closed
//!                                    ▲                                        │
//!                                    └────────── failed: open, for longer ────┘
//! ```

use std::time::Duration;

use tokio::time::Instant;

/// The failures in a row after which the circuit opens. Fewer can be one restart of the endpoint.
const FAILURES_MAX: u32 = 5;
/// The first time for which the circuit is open; each further one is twice as long.
const REST_FIRST: Duration = Duration::from_secs(1);
/// The longest time for which the circuit is open: the delay until a recovery is noticed.
const REST_LONGEST: Duration = Duration::from_secs(30);

/// The state of the circuit. Times come from the caller.
#[derive(Debug, Default)]
pub struct CircuitBreaker {
    failures: u32,
    rests: u32,
    until: Option<Instant>,
    /// Whether the half-open call is in flight.
    trying: bool,
}

impl CircuitBreaker {
    /// Returns whether a call is allowed now; [`answered`](CircuitBreaker::answered) or [`failed`](CircuitBreaker::failed) must
    /// follow an allowed call.
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

    /// Records an answer, valid or not.
    pub fn answered(&mut self) {
        *self = CircuitBreaker::default();
    }

    /// Records a failure. Returns how long the circuit is open, if that begins now.
    pub fn failed(&mut self, now: Instant) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        // Calls that were in flight when the circuit opened also fail; that is not new information.
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

    /// Records that an allowed call was not made.
    pub fn withdrawn(&mut self) {
        self.trying = false;
    }

    /// Returns whether the circuit is open or half-open.
    pub fn is_resting(&self) -> bool {
        self.until.is_some()
    }

    /// Returns the number of failures in a row.
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
        assert_eq!(circuit_breaker.failed(now), None, "a call that was in flight");
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
