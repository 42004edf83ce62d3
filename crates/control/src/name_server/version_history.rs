//! The states of one zone, and the serial under which each is published. Pure.
//!
//! All name servers see the same objects change in the same order, but not at the same moment. The leading controller writes the
//! serial of each state into the zone's `Zone` object ([`crate::ledger`]). A state is identified by its digest. A
//! history contains the published state, and the steps since:
//!
//! ```text
//!  published ──step──► s1 ──step──► s2 ──step──► s3 (the current objects)
//!      │                            │
//!   serial 7                  ledger: serial 8 is s2        ⇒ publish s2 under 8; s3 waits for its serial
//! ```
//!
//! So an equal serial means equal contents on every name server, for any lag. If the ledger has no entry for any
//! state for [`SERIAL_WAIT_MAX`], the newest one is published under a *provisional* serial of this server: correct answers matter
//! more than equal serials. The ledger's serial replaces it once that is newer. A serial never decreases (RFC 1982 §3.2),
//! even across restarts, because the last one is part of the last-known-good state.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::compiler::Digest;
use signpost_dns::zone::Serial;

/// The smallest distance between the serials of two versions of a zone. A name server that could not wait for the ledger
/// publishes under the serial after its last one. The reserved range keeps the ledger's next serial newer, so that all name
/// servers agree again without another change. There is at most one such publication per second, and the clock advances as well.
pub const SERIAL_STRIDE: u32 = 8;
/// The time for which a state waits for its serial. A write to the API takes some milliseconds; a second is an acceptable delay
/// without a leading controller.
pub const SERIAL_WAIT_MAX: Duration = Duration::from_secs(1);
/// The most waiting steps. Beyond it, all are published at once: some seconds of the fastest bulk load.
pub const STEPS_MAX: usize = 65_536;
/// The lag of a zone's first provisional serial behind the clock, in seconds: large enough that the ledger's serial, which is the
/// clock's, is newer for any difference between the clocks, and replaces it.
const FIRST_PROVISIONAL_LAG: u64 = 86_400;

/// The ledger's entries for a zone, newest first.
pub type Versions = Arc<[(Serial, Digest)]>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// The SOA's serial.
    pub serial: Serial,
    /// The state of the objects.
    pub digest: Digest,
    /// Under which configuration it was made.
    pub config: Digest,
    /// Whether the serial is provisional, not the ledger's.
    pub provisional: bool,
}

/// The states of one zone, with a step from each to the next of type `S`.
#[derive(Debug, Clone)]
pub struct VersionHistory<S> {
    published: Option<Published>,
    /// Whether this process has published the version; false after a restart.
    served: bool,
    /// The state before the first step: the published one, or the state when the zone was first known.
    start: Digest,
    start_at: Instant,
    steps: VecDeque<Step<S>>,
    ledger: Versions,
    /// A serial under which others may know the zone; a provisional one is newer.
    before: Option<Serial>,
    /// The number of provisional publications since the last serial of the ledger.
    provisional: u32,
}

#[derive(Debug, Clone)]
struct Step<S> {
    what: S,
    digest: Digest,
    at: Instant,
}

/// The next action for a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The published state is the desired one.
    Nothing,
    /// Decide again after the next ledger entry, or at that time.
    WaitUntil(Instant),
    /// Apply the first `steps` steps and publish.
    Publish {
        /// The number of steps; 0: the same records under another serial or configuration.
        steps: usize,
        /// Under which serial, and which state that is.
        published: Published,
    },
}

impl<S> VersionHistory<S> {
    /// Returns the history of a zone in the state `start`; `last` is the version published before a restart.
    pub fn new(start: Digest, last: Option<Published>, now: Instant) -> Self {
        VersionHistory {
            published: last,
            served: false,
            start,
            start_at: now,
            steps: VecDeque::new(),
            ledger: Arc::default(),
            before: None,
            provisional: 0,
        }
    }

    /// Sets the serial under which the zone was served before it was built from objects.
    pub fn set_before(&mut self, serial: Option<Serial>) {
        self.before = serial;
    }

    /// Adds the step to a new state of the objects.
    pub fn push(&mut self, what: S, digest: Digest, at: Instant) {
        self.steps.push_back(Step { what, digest, at });
    }

    /// Takes the ledger's entries for the zone.
    pub fn set_ledger(&mut self, versions: Versions) {
        self.ledger = versions;
    }

    /// Returns the published version, if known.
    pub fn published(&self) -> Option<&Published> {
        self.published.as_ref()
    }

    /// Returns whether the published version is not the current state.
    pub fn is_behind(&self) -> bool {
        self.published.is_none_or(|published| published.digest != self.digest())
    }

    /// Marks the version from before a restart as served.
    pub fn set_served(&mut self) {
        self.served = true;
    }

    /// Returns the current state of the objects.
    pub fn digest(&self) -> Digest {
        self.steps.back().map_or(self.start, |step| step.digest)
    }

    /// Returns the next action; `config` is the digest of the current configuration.
    pub fn decide(&self, config: Digest, now: Instant, unix_now: u64) -> Decision {
        if let Some((steps, serial)) = self.named_by_ledger() {
            let digest = steps.checked_sub(1).map_or(self.start, |last| self.steps[last].digest);
            return Decision::Publish { steps, published: Published { serial, digest, config, provisional: false } };
        }
        let own = |serial| self.publish_all(config, serial, true);
        let Some(published) = &self.published else {
            let deadline = self.start_at + SERIAL_WAIT_MAX;
            if now < deadline && self.steps.len() < STEPS_MAX {
                return Decision::WaitUntil(deadline);
            }
            // The ledger has the zone, but not this state: the serial is after those that other servers may have published.
            let newest = self.ledger.first().map(|(serial, _)| Serial(serial.0.wrapping_add(1)));
            let lagging = unix_now.saturating_sub(FIRST_PROVISIONAL_LAG);
            let first = self.before.map_or(Serial(lagging as u32), |before| Serial::next(before, lagging));
            return own(newest.unwrap_or(first));
        };
        let next = self.next_provisional(published.serial);
        if self.digest() == published.digest {
            return match (published.config == config, self.steps.len()) {
                (true, 0) if self.served => Decision::Nothing,
                // There and back again.
                (true, _) => self.publish_all(config, published.serial, published.provisional),
                (false, _) => own(next),
            };
        }
        // The ledger contains this state, but under a serial that this server has passed. It will not assign another one.
        if self.ledger.first().is_some_and(|(_, digest)| *digest == self.digest()) {
            return own(next);
        }
        let deadline = self.steps.front().map_or(self.start_at, |step| step.at) + SERIAL_WAIT_MAX;
        if now < deadline && self.steps.len() < STEPS_MAX {
            return Decision::WaitUntil(deadline);
        }
        own(next)
    }

    /// Returns the first action after a restart: the version from before the restart is served again, changed or not.
    pub fn resume(&self, config: Digest) -> Decision {
        let Some(last) = &self.published else { return Decision::Nothing };
        match last.config == config && last.digest == self.digest() {
            true if self.served => Decision::Nothing,
            true => self.publish_all(config, last.serial, last.provisional),
            false => self.publish_all(config, Serial(last.serial.0.wrapping_add(1)), true),
        }
    }

    /// Returns the provisional serial after `published`. There is room for less than a stride of them after a serial of the ledger.
    /// Beyond it, the ledger may have had the serial for other contents, such as before its store was restored.
    fn next_provisional(&self, published: Serial) -> Serial {
        let last = match self.ledger.first() {
            Some((newest, _)) if self.provisional >= SERIAL_STRIDE - 1 && newest.is_after(published) => *newest,
            _ => published,
        };
        Serial(last.0.wrapping_add(1))
    }

    fn publish_all(&self, config: Digest, serial: Serial, provisional: bool) -> Decision {
        let published = Published { serial, digest: self.digest(), config, provisional };
        Decision::Publish { steps: self.steps.len(), published }
    }

    /// Returns the ledger's newest version that is newer than the published one and is one of the states here, with the number of
    /// steps that lead to it.
    fn named_by_ledger(&self) -> Option<(usize, Serial)> {
        for &(serial, digest) in &*self.ledger {
            // Versions are newest first: none after this one is newer either.
            if self.published.as_ref().is_some_and(|published| !serial.is_after(published.serial)) {
                return None;
            }
            if let Some(at) = self.steps.iter().rposition(|step| step.digest == digest) {
                return Some((at + 1, serial));
            }
            if self.start == digest {
                return Some((0, serial));
            }
        }
        None
    }

    /// Records that the zone was published as decided. Returns the steps that were part of it, oldest first.
    pub fn publish(&mut self, steps: usize, published: Published) -> impl Iterator<Item = S> {
        self.provisional = if published.provisional { self.provisional.saturating_add(1) } else { 0 };
        self.start = published.digest;
        self.published = Some(published);
        self.served = true;
        self.steps.drain(..steps).map(|step| step.what)
    }

    /// Returns the first `count` waiting steps, oldest first.
    pub fn steps(&self, count: usize) -> impl DoubleEndedIterator<Item = &S> {
        self.steps.range(..count).map(|step| &step.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: Digest = Digest(0);

    struct Case {
        published: Option<(u32, u128)>,
        start: u128,
        steps: &'static [u128],
        ledger: &'static [(u32, u128)],
        /// The decision at once, and after the wait limit: `(steps, serial, provisional)`; `None`: wait or nothing.
        at_once: Option<(usize, u32, bool)>,
        at_last: Option<(usize, u32, bool)>,
    }

    #[test]
    fn decisions() {
        let unix_now = 1_000_000;
        #[rustfmt::skip]
        let cases = [
            ("new, known", Case { published: None, start: 1, steps: &[], ledger: &[(7, 1)], at_once: Some((0, 7, false)), at_last: Some((0, 7, false)) }),
            ("new, unknown to the ledger", Case { published: None, start: 1, steps: &[], ledger: &[], at_once: None, at_last: Some((0, 913_600, true)) }),
            ("new, other states known", Case { published: None, start: 1, steps: &[], ledger: &[(7, 2)], at_once: None, at_last: Some((0, 8, true)) }),
            ("up to date", Case { published: Some((7, 1)), start: 1, steps: &[], ledger: &[(7, 1)], at_once: None, at_last: None }),
            ("the next", Case { published: Some((7, 1)), start: 1, steps: &[2], ledger: &[(8, 2), (7, 1)], at_once: Some((1, 8, false)), at_last: Some((1, 8, false)) }),
            ("up to the named one", Case { published: Some((7, 1)), start: 1, steps: &[2, 3, 4], ledger: &[(8, 3), (7, 1)], at_once: Some((2, 8, false)), at_last: Some((2, 8, false)) }),
            ("the newest of the named", Case { published: Some((7, 1)), start: 1, steps: &[2, 3, 4], ledger: &[(10, 5), (9, 3), (8, 2)], at_once: Some((2, 9, false)), at_last: Some((2, 9, false)) }),
            ("unnamed", Case { published: Some((7, 1)), start: 1, steps: &[2], ledger: &[(7, 1)], at_once: None, at_last: Some((1, 8, true)) }),
            ("an old name of the same state is not its new one", Case { published: Some((8, 2)), start: 2, steps: &[1], ledger: &[(8, 2), (7, 1)], at_once: None, at_last: Some((1, 9, true)) }),
            ("the same state, newly named", Case { published: Some((7, 1)), start: 1, steps: &[2, 1], ledger: &[(9, 1), (8, 2), (7, 1)], at_once: Some((2, 9, false)), at_last: Some((2, 9, false)) }),
            ("there and back", Case { published: Some((7, 1)), start: 1, steps: &[2, 1], ledger: &[(7, 1)], at_once: Some((2, 7, false)), at_last: Some((2, 7, false)) }),
            ("ahead of the ledger", Case { published: Some((9, 1)), start: 1, steps: &[2], ledger: &[(8, 2)], at_once: Some((1, 10, true)), at_last: Some((1, 10, true)) }),
            ("restart after a change", Case { published: Some((7, 1)), start: 2, steps: &[], ledger: &[], at_once: None, at_last: Some((0, 8, true)) }),
            ("serials wrap", Case { published: Some((u32::MAX, 1)), start: 1, steps: &[2], ledger: &[(0, 2)], at_once: Some((1, 0, false)), at_last: Some((1, 0, false)) }),
        ];
        for (what, case) in cases {
            let start = Instant::now();
            let last = case.published.map(|(serial, digest)| Published {
                serial: Serial(serial),
                digest: Digest(digest),
                config: CONFIG,
                provisional: false,
            });
            let mut history = VersionHistory::new(Digest(case.start), last, start);
            history.served = last.is_some();
            case.steps.iter().for_each(|digest| history.push((), Digest(*digest), start));
            history.set_ledger(case.ledger.iter().map(|(serial, digest)| (Serial(*serial), Digest(*digest))).collect());
            for (now, expected) in [(start, case.at_once), (start + SERIAL_WAIT_MAX, case.at_last)] {
                let decided = match history.decide(CONFIG, now, unix_now) {
                    Decision::Publish { steps, published } => Some((steps, published.serial.0, published.provisional)),
                    Decision::Nothing | Decision::WaitUntil(_) => None,
                };
                assert_eq!(decided, expected, "{what}, after {:?}", now - start);
            }
        }
    }

    #[test]
    fn provisional_serials_beyond_the_stride_follow_the_ledger() {
        let start = Instant::now();
        let published = Published { serial: Serial(7), digest: Digest(0), config: CONFIG, provisional: false };
        let mut history: VersionHistory<()> = VersionHistory::new(Digest(0), Some(published), start);
        history.set_ledger(Arc::from([(Serial(1_000), Digest(99))]));
        for (digest, expected) in (1..).zip([8, 9, 10, 11, 12, 13, 14, 1_001, 1_002]) {
            history.push((), Digest(digest), start);
            let Decision::Publish { steps, published } = history.decide(CONFIG, start + SERIAL_WAIT_MAX, 0) else {
                panic!("state {digest} is not published");
            };
            assert_eq!((published.serial, published.provisional), (Serial(expected), true));
            history.publish(steps, published).for_each(drop);
        }
    }

    #[test]
    fn the_first_provisional_serial_is_newer_than_a_files() {
        let start = Instant::now();
        for (before, expected) in [(None, 913_600), (Some(7), 913_600), (Some(2_000_000), 2_000_001)] {
            let mut history: VersionHistory<()> = VersionHistory::new(Digest(1), None, start);
            history.set_before(before.map(Serial));
            let decision = history.decide(CONFIG, start + SERIAL_WAIT_MAX, 1_000_000);
            let published =
                Published { serial: Serial(expected), digest: Digest(1), config: CONFIG, provisional: true };
            let own = Decision::Publish { steps: 0, published };
            assert_eq!(decision, own, "{before:?}");
        }
    }

    #[test]
    fn another_configuration_moves_the_serial() {
        let now = Instant::now();
        let published = Published { serial: Serial(7), digest: Digest(1), config: CONFIG, provisional: false };
        let mut history: VersionHistory<()> = VersionHistory::new(Digest(1), Some(published), now);
        let same = Decision::Publish { steps: 0, published };
        assert_eq!((history.decide(CONFIG, now, 0), history.resume(CONFIG)), (same, same), "it is not served yet");
        history.set_ledger(Arc::from([(Serial(7), Digest(1))]));
        let decision = history.decide(Digest(9), now, 0);
        let other = Published { serial: Serial(8), config: Digest(9), provisional: true, ..published };
        assert_eq!(decision, Decision::Publish { steps: 0, published: other });
    }
}
