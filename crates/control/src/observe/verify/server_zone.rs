//! The state of one zone on one name server, by the checks so far. Pure.
//!
//! ```text
//!   Unknown ──right──► Right ◄──────────────right──────────────┐
//!      │                 │ wrong                               │
//!      └─────wrong──► in doubt ──still wrong, for a while──► Failed
//! ```
//!
//! A failure of a server that does not answer at all, or only SERVFAIL, is [`State::Silent`] instead: clients query another server.
//!
//! A single failure is doubt: a datagram can get lost, or a name server can be a moment behind or ahead of this process. Doubt
//! changes no condition. A check counts as failed only after it fails for [`DOUBT`]. An older version is a separate state: a
//! server with an older version answers correctly for the names of that version, until it has failed in another way for as long.

use std::time::Duration;

use tokio::time::Instant;

use super::check::Fault;
use signpost_dns::zone::Serial;

/// The time for which checks fail before the state is failed.
pub const DOUBT: Duration = Duration::from_secs(2);
/// The wait after a first failure; each further one is twice as long, up to [`RETRY_LONGEST`].
const RETRY_FIRST: Duration = Duration::from_millis(2);
/// The longest wait in doubt.
pub const RETRY_LONGEST: Duration = Duration::from_millis(250);
/// The longest wait between checks of a failed zone or name.
const FAILED_RETRY: Duration = Duration::from_secs(5);

/// A series of failures.
#[derive(Debug, Clone)]
pub struct Failure {
    fault: Fault,
    /// The fault of the last check, if it has the same reason and differs otherwise.
    other: Option<Fault>,
    since: Instant,
    /// The time since which all faults are silence, or none is.
    same_since: Instant,
    times: u32,
    has_failed: bool,
}

impl Failure {
    /// Returns the first failure.
    pub fn new(fault: Fault, since: Instant) -> Self {
        Failure { fault, other: None, since, same_since: since, times: 1, has_failed: false }
    }

    /// Adds another failure. Details can differ from check to check, and each would be a write: a new one counts when it occurs
    /// twice in a row. Returns whether the fault to report has changed.
    pub fn add(&mut self, fault: Fault, now: Instant) -> bool {
        self.times = self.times.saturating_add(1);
        let was_silence = self.fault.is_silence();
        let is_repeated = self.other.take().is_some_and(|other| other.is_like(&fault));
        let is_other = self.fault.reason() != fault.reason() || is_repeated && !self.fault.is_like(&fault);
        if is_other {
            self.fault = fault;
        } else if !self.fault.is_like(&fault) {
            self.other = Some(fault);
        }
        if self.fault.is_silence() != was_silence {
            self.same_since = now;
        }
        self.settle(now) || self.has_failed && is_other
    }

    /// Records whether it has failed for long enough. Returns whether that is new.
    fn settle(&mut self, now: Instant) -> bool {
        let had_failed = self.has_failed;
        self.has_failed |= now >= self.since + DOUBT;
        self.has_failed && !had_failed
    }

    pub fn state(&self) -> State<'_> {
        match self.has_failed {
            true if self.fault.is_silence() => State::Silent(&self.fault, self.same_since),
            true => State::Failed(&self.fault),
            false => State::Unknown,
        }
    }

    /// Returns the wait before the next check; `interval` is the wait after a right answer.
    pub fn wait(&self, interval: Duration) -> Duration {
        if self.has_failed {
            return interval.min(FAILED_RETRY);
        }
        let factor = 1_u32.checked_shl(self.times - 1).unwrap_or(u32::MAX);
        RETRY_FIRST.saturating_mul(factor).min(RETRY_LONGEST)
    }
}

/// The state of a zone or a name on a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State<'a> {
    /// The answers are right.
    Right,
    /// That is not known, or in doubt.
    Unknown,
    /// There are no answers since this time.
    Silent(&'a Fault, Instant),
    /// The answers are wrong.
    Failed(&'a Fault),
}

/// The end of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The server has a sufficiently new version, and the witness is correct.
    Right(Serial),
    /// The server has an older version.
    Stale {
        /// That version.
        found: Serial,
        /// Whether the witness is correct anyway.
        is_same: bool,
        /// Whether the server answers SERVFAIL for the names that it lacks; `None`: no such name was queried.
        is_unsure: Option<bool>,
    },
    /// The server answers incorrectly.
    Fault(Fault),
}

#[derive(Debug, Clone)]
pub struct ServerZone {
    serial: Option<Serial>,
    /// The series of checks that found an older version.
    stale: Option<Stale>,
    /// The series of checks that failed in another way.
    failure: Option<Failure>,
    /// The last certain state: the fault, whether an older version has the same answers, and whether the server is unsure. `None`:
    /// other contents.
    reported: Option<(Option<Fault>, bool, bool)>,
    /// The time of the last right check.
    pub last_right: Option<Instant>,
}

/// A series of checks that found an older version.
#[derive(Debug, Clone)]
struct Stale {
    failure: Failure,
    /// Whether the witness was correct in the last one.
    is_same: bool,
    /// The time since which the server answers SERVFAIL for the names that it lacks, so that clients query another one.
    unsure_since: Option<Instant>,
}

impl Stale {
    fn state(&self) -> State<'_> {
        match self.unsure_since {
            Some(since) if self.failure.has_failed => State::Silent(&self.failure.fault, since),
            _ => self.failure.state(),
        }
    }
}

impl Default for ServerZone {
    fn default() -> Self {
        let reported = Some((None, false, false));
        ServerZone { serial: None, stale: None, failure: None, reported, last_right: None }
    }
}

impl ServerZone {
    /// Returns the state for names that need the zone's version `need`.
    pub fn state(&self, need: Serial) -> State<'_> {
        let is_reached = self.serial.is_some_and(|serial| serial == need || serial.is_after(need));
        match (&self.failure, &self.stale) {
            (Some(failure), _) if failure.has_failed => failure.state(),
            (_, Some(_)) if is_reached => State::Right,
            (_, Some(stale)) => stale.state(),
            (None, None) if is_reached => State::Right,
            _ => State::Unknown,
        }
    }

    /// Returns the older version of the zone that the server has had for a long time, so that it may stay: from then on, names are
    /// queried anyway.
    pub fn stays_at(&self, now: Instant) -> Option<Serial> {
        let stale = self.stale.as_ref().filter(|_| self.failure.is_none())?;
        self.serial.filter(|_| stale.failure.since + DOUBT / 2 <= now)
    }

    /// Returns whether the server stays at an older version that has the answers of the newest.
    pub fn is_same(&self) -> bool {
        let has_failed = self.failure.as_ref().is_some_and(|failure| failure.has_failed);
        self.stale.as_ref().is_some_and(|stale| stale.failure.has_failed && stale.is_same) && !has_failed
    }

    /// Returns the server's version, if that is known.
    pub fn serial(&self) -> Option<Serial> {
        self.serial
    }

    /// Forgets the state, because the zone has another version. `has_other_contents`: its names have other targets, too.
    pub fn forget(&mut self, has_other_contents: bool) {
        (self.serial, self.stale) = (None, None);
        // An unreachable server is unreachable for the new version, too.
        self.failure.take_if(|failure| !failure.fault.is_silence() && failure.fault != Fault::Documentation);
        if has_other_contents {
            self.reported = None;
        }
    }

    /// Adds a check. Returns whether that changes the state of all names in the zone.
    pub fn add(&mut self, outcome: Outcome, now: Instant) -> bool {
        match outcome {
            Outcome::Right(serial) => {
                (self.serial, self.stale, self.failure, self.last_right) = (Some(serial), None, None, Some(now));
            }
            Outcome::Stale { found, is_same, is_unsure } => {
                let is_older = self.serial.is_some_and(|serial| serial.is_after(found));
                let failed = self.failure.take().filter(|failure| failure.has_failed);
                self.serial = Some(found);
                let stale = match &mut self.stale {
                    Some(stale) if !is_older => {
                        stale.failure.add(Fault::OldSerial, now);
                        stale
                    }
                    // A long failure counts, in either form. After silence, the server may be about to catch up.
                    stale => {
                        let since =
                            failed.filter(|failed| !failed.fault.is_silence()).map_or(now, |failed| failed.since);
                        let failure = Failure::new(Fault::OldSerial, since);
                        stale.insert(Stale { failure, is_same, unsure_since: None })
                    }
                };
                stale.is_same = is_same;
                match is_unsure {
                    Some(true) => drop(stale.unsure_since.get_or_insert(now)),
                    Some(false) => stale.unsure_since = None,
                    None => {}
                }
            }
            Outcome::Fault(fault) => match &mut self.failure {
                Some(failure) => drop(failure.add(fault, now)),
                failure => *failure = Some(Failure::new(fault, now)),
            },
        }
        if let Some(stale) = &mut self.stale {
            stale.failure.settle(now);
        }
        if self.failure.as_mut().is_some_and(|failure| failure.settle(now) || failure.has_failed) {
            self.stale = None;
        }
        let reported = match (&self.failure, &self.stale) {
            (Some(failure), _) if failure.has_failed => (Some(failure.fault.clone()), false, false),
            (_, Some(Stale { failure, is_same, unsure_since })) if failure.has_failed => {
                (Some(Fault::OldSerial), *is_same, unsure_since.is_some())
            }
            (None, None) => (None, false, false),
            _ => return false,
        };
        self.reported.replace(reported) != self.reported
    }

    /// Returns the wait before the next check; `interval` is the wait after a right one.
    pub fn wait(&self, interval: Duration) -> Duration {
        let failure = self.failure.as_ref().or(self.stale.as_ref().map(|stale| &stale.failure));
        failure.map_or(interval, |failure| failure.wait(interval))
    }

    /// Returns whether the last check failed.
    pub fn is_failing(&self) -> bool {
        self.failure.is_some() || self.stale.is_some()
    }

    /// Returns whether the server has failed, not only once or for a moment.
    pub fn has_failed(&self) -> bool {
        let failure = self.failure.as_ref().or(self.stale.as_ref().map(|stale| &stale.failure));
        failure.is_some_and(|failure| failure.has_failed)
    }

    /// Returns the time since which the server does not answer, or answers SERVFAIL for the names that it lacks.
    pub fn silent_since(&self) -> Option<Instant> {
        let failure = self.failure.as_ref().filter(|failure| failure.has_failed).map(Failure::state);
        match failure.or(self.stale.as_ref().map(Stale::state))? {
            State::Silent(_, since) => Some(since),
            _ => None,
        }
    }

    /// Returns whether the server has failed by not answering at all.
    pub fn is_silent(&self) -> bool {
        let is_silence = |failure: &Failure| failure.has_failed && failure.fault.is_silence();
        self.failure.as_ref().is_some_and(is_silence)
    }
}
