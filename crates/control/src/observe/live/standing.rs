//! How one name server stands with one zone, by the checks so far.
//!
//! ```text
//!   Unknown ──right──► Right ◄──────────────right──────────────┐
//!      │                 │ wrong                               │
//!      └─────wrong──► Doubtful ──still wrong, for a while──► Failed
//! ```
//!
//! A single failure is doubt, not a verdict: a datagram gets lost, a name server is a moment behind, or ahead of what is
//! known here. What is doubtful changes nothing that was told. Only what fails again and again for [`PATIENCE`] has failed.
//! A server with an old version answers right for what that version has. If it fails worse, that is doubt of its own, and the
//! old version counts until it is over.

use std::time::Duration;

use tokio::time::Instant;

use super::check::Fault;
use signpost_dns::zone::Serial;

/// How long a server fails before it has failed.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// The wait after a first failure; each further one is twice as long, up to [`RETRY_LONGEST`].
const RETRY_FIRST: Duration = Duration::from_millis(2);
/// The longest wait while it is in doubt.
pub const RETRY_LONGEST: Duration = Duration::from_millis(250);
/// The longest wait between checks of what has failed.
const FAILED_RETRY: Duration = Duration::from_secs(5);

/// A server and a zone.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug, Default)]
pub struct Standing {
    verified: Option<Serial>,
    failing: Option<Failing>,
    /// Whether the next right answer is news for all names of the zone.
    renewed: bool,
    /// When it was right last.
    pub last_right: Option<Instant>,
    /// Whether it is being checked.
    pub under_way: bool,
}

#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
struct Failing {
    fault: Fault,
    /// What the last check has found, if that is told otherwise.
    news: Option<Fault>,
    since: Instant,
    times: u32,
    settled: bool,
    /// The older version that it had before it failed worse, which counts until this is settled.
    before: Option<Before>,
}

/// An [`Fault::OldSerial`] that another fault has followed.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
struct Before {
    fault: Fault,
    since: Instant,
    settled: bool,
}

impl Failing {
    fn new(fault: Fault, now: Instant) -> Self {
        Failing { fault, since: now, news: None, times: 1, settled: false, before: None }
    }

    /// The fault that counts, and whether it is settled.
    fn counted(&self) -> (&Fault, bool) {
        match &self.before {
            Some(before) => (&before.fault, before.settled),
            None => (&self.fault, self.settled),
        }
    }

    /// Whether `fault` takes away names that are right as things are.
    fn is_worsened_by(&self, fault: &Fault) -> bool {
        match (&self.fault, fault) {
            (Fault::OldSerial { found: before, .. }, Fault::OldSerial { found, .. }) => before.is_after(*found),
            (before, _) => matches!(before, Fault::OldSerial { .. }),
        }
    }

    /// Another check has failed, with `fault`. Whether what counts is another fault than before.
    fn note(&mut self, fault: Fault, now: Instant) -> bool {
        if let Some(Before { since, settled, .. }) = self.before.take_if(|before| before.is_again(&fault)) {
            *self = Failing { settled, ..Failing::new(fault, since) };
            return false;
        }
        if self.is_worsened_by(&fault) {
            let before = self.before.take().unwrap_or_else(|| Before {
                fault: self.fault.clone(),
                since: self.since,
                settled: self.settled,
            });
            *self = Failing { before: Some(before), ..Failing::new(fault, now) };
            return false;
        }
        // Details may differ from check to check, and would be told anew each time: what comes twice in a row is true by now.
        let agrees = self.fault.says_as(&fault);
        let again = self.news.take().is_some_and(|news| news.says_as(&fault));
        let other = self.fault.reason() != fault.reason() || !agrees && again;
        if other || matches!(fault, Fault::OldSerial { .. }) {
            self.fault = fault;
        } else if !agrees {
            self.news = Some(fault);
        }
        other && self.before.is_none()
    }

    /// Settles what has been so for long enough. Whether anything was.
    fn settle(&mut self, now: Instant) -> bool {
        let was = std::mem::replace(&mut self.settled, now >= self.since + PATIENCE);
        if self.settled {
            self.before = None;
            return !was;
        }
        let Some(before) = &mut self.before else { return false };
        let was = std::mem::replace(&mut before.settled, now >= before.since + PATIENCE);
        before.settled && !was
    }
}

impl Before {
    /// Whether `fault` is that the server has this version again, or a newer one that is still too old.
    fn is_again(&self, fault: &Fault) -> bool {
        match (&self.fault, fault) {
            (Fault::OldSerial { found: before, .. }, Fault::OldSerial { found, .. }) => !before.is_after(*found),
            _ => false,
        }
    }
}

/// What is to be thought of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State<'a> {
    /// It answers right.
    Right,
    /// That is not known, or in doubt.
    Unknown,
    /// It does not.
    Failed(&'a Fault),
}

/// What one more check has changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// At most for what was waiting for it.
    Small,
    /// For all names of the zone.
    Large,
}

impl Standing {
    /// Whether it answers right for what needs the zone's version `need`.
    pub fn state(&self, need: Serial) -> State<'_> {
        let reaches = |serial: Serial| serial == need || serial.is_after(need);
        match self.failing.as_ref().map(Failing::counted) {
            Some((Fault::OldSerial { found, .. }, _)) if reaches(*found) => State::Right,
            Some((fault, true)) => State::Failed(fault),
            Some(_) => State::Unknown,
            None if self.verified.is_some_and(reaches) => State::Right,
            None => State::Unknown,
        }
    }

    /// The version that the server has, if that has been too old for so long that it may stay so: from then on names are asked
    /// for nevertheless.
    pub fn stays_at(&self, now: Instant) -> Option<Serial> {
        match &self.failing {
            Some(Failing { fault: Fault::OldSerial { found, .. }, since, .. }) if *since + PATIENCE / 2 <= now => {
                Some(*found)
            }
            _ => None,
        }
    }

    /// Whether it has an older version for good, which answers all the same as the zone of now.
    pub fn shows_all(&self) -> bool {
        let counted = self.failing.as_ref().map(Failing::counted);
        matches!(counted, Some((Fault::OldSerial { shown, .. }, true)) if shown.is_all())
    }

    /// The version that it has, as far as is known.
    pub fn serial(&self) -> Option<Serial> {
        match self.failing.as_ref().map(Failing::counted) {
            Some((Fault::OldSerial { found, .. }, _)) => Some(*found),
            _ => self.verified,
        }
    }

    /// The zone is to have another version: what is known of it counts no more. `are_other`: its names lead elsewhere by it.
    pub fn forget(&mut self, are_other: bool) {
        self.verified = None;
        // A server that is not there is not there for the new version either.
        let is_there = |failing: &mut Failing| !matches!(failing.fault, Fault::NotAnswering(_) | Fault::Documentation);
        let had_failed = self.failing.take_if(is_there).is_some_and(|failing| failing.counted().1);
        // The older version is one of what was.
        let had_old =
            self.failing.as_mut().and_then(|failing| failing.before.take()).is_some_and(|before| before.settled);
        self.renewed |= are_other || had_failed || had_old;
    }

    /// It was checked.
    pub fn note(&mut self, result: Result<Serial, Fault>, now: Instant) -> Effect {
        let fault = match result {
            Ok(serial) => {
                self.verified = Some(serial);
                self.last_right = Some(now);
                let had_failed = self.failing.take().is_some_and(|failing| failing.counted().1);
                let is_news = std::mem::take(&mut self.renewed) || had_failed;
                return if is_news { Effect::Large } else { Effect::Small };
            }
            Err(fault) => fault,
        };
        let Some(failing) = &mut self.failing else {
            self.failing = Some(Failing::new(fault, now));
            return Effect::Small;
        };
        failing.times = failing.times.saturating_add(1);
        let other = failing.note(fault, now);
        let is_news = failing.settle(now);
        if is_news || failing.counted().1 && other { Effect::Large } else { Effect::Small }
    }

    /// How long until the next check, if nothing happens before; `interval` is the wait after a right one.
    pub fn next_wait(&self, interval: Duration) -> Duration {
        match &self.failing {
            None => interval,
            Some(failing) if failing.settled => interval.min(FAILED_RETRY),
            Some(failing) => {
                let factor = 1_u32.checked_shl(failing.times - 1).unwrap_or(u32::MAX);
                RETRY_FIRST.saturating_mul(factor).min(RETRY_LONGEST)
            }
        }
    }

    /// Whether the last check failed by an answer for some name, which may be wrong for that name alone.
    pub fn is_answer_wrong(&self) -> bool {
        self.failing.as_ref().is_some_and(|failing| !matches!(failing.fault, Fault::OldSerial { .. }))
    }

    /// Whether it has failed, and not just once or for a moment.
    pub fn has_failed(&self) -> bool {
        self.failing.as_ref().is_some_and(|failing| failing.settled)
    }

    /// Whether it has failed by not answering at all.
    pub fn is_silent(&self) -> bool {
        let is_silence = |failing: &Failing| failing.settled && matches!(failing.fault, Fault::NotAnswering(_));
        self.failing.as_ref().is_some_and(is_silence)
    }

    /// Whether the last check failed.
    pub fn is_failing(&self) -> bool {
        self.failing.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dns_client::QueryError;
    use crate::observe::live::check::Shown;
    use signpost_dns::wire::header::Rcode;

    fn silent() -> Fault {
        Fault::NotAnswering(QueryError::Silent(PATIENCE))
    }

    fn old(found: u32) -> Fault {
        Fault::OldSerial { found: Serial(found), needed: Serial(9), shown: Shown::default() }
    }

    #[test]
    fn doubt_becomes_failure_after_a_while_and_ends_at_once() {
        let start = Instant::now();
        let mut standing = Standing::default();
        assert_eq!(standing.state(Serial(7)), State::Unknown);
        assert_eq!(standing.note(Ok(Serial(7)), start), Effect::Small);
        assert_eq!((standing.state(Serial(7)), standing.state(Serial(8))), (State::Right, State::Unknown));
        assert_eq!(standing.next_wait(Duration::from_secs(30)), Duration::from_secs(30));
        assert_eq!(standing.note(Err(silent()), start), Effect::Small);
        assert_eq!(standing.state(Serial(7)), State::Unknown, "doubt");
        assert_eq!(standing.next_wait(Duration::from_secs(30)), RETRY_FIRST);
        assert_eq!(standing.note(Err(silent()), start + PATIENCE), Effect::Large);
        assert_eq!(standing.state(Serial(7)), State::Failed(&silent()));
        assert_eq!(standing.next_wait(Duration::from_secs(30)), FAILED_RETRY);
        assert_eq!(standing.note(Err(silent()), start + PATIENCE), Effect::Small, "nothing new");
        assert_eq!(standing.note(Err(old(6)), start + PATIENCE), Effect::Large, "another fault");
        assert_eq!(standing.state(Serial(6)), State::Right, "what the old version has is there");
        // Of one kind, what is said follows when it is so twice.
        let refused = || Fault::NotAnswering(QueryError::Unreachable(std::io::ErrorKind::ConnectionRefused));
        let mut other = standing.clone();
        let later = start + 2 * PATIENCE;
        other.note(Err(silent()), start + PATIENCE);
        other.note(Err(silent()), later);
        for (fault, effect, told) in [
            (refused(), Effect::Small, silent()),
            (silent(), Effect::Small, silent()),
            (refused(), Effect::Small, silent()),
            (refused(), Effect::Large, refused()),
            (refused(), Effect::Small, refused()),
        ] {
            assert_eq!(other.note(Err(fault), later), effect);
            assert_eq!(other.state(Serial(7)), State::Failed(&told));
        }
        assert_eq!(standing.state(Serial(7)), State::Failed(&old(6)));
        assert_eq!(standing.note(Ok(Serial(9)), start + PATIENCE), Effect::Large);
        assert_eq!(standing.state(Serial(9)), State::Right);
    }

    #[test]
    fn what_follows_an_older_version_is_doubt_of_its_own() {
        let start = Instant::now();
        let at = |seconds: f64| start + Duration::from_secs_f64(seconds);
        let servfail = || Fault::Error { name: "z.test.".parse().expect("a name"), rcode: Rcode::SERVFAIL };
        for worse in [servfail(), silent(), old(5)] {
            let mut standing = Standing::default();
            standing.note(Err(old(7)), at(0.0));
            assert_eq!(standing.note(Err(old(7)), at(3.0)), Effect::Large);
            let mut back = standing.clone();
            // What the old version has was right until now, and is only in doubt.
            assert_eq!(standing.note(Err(worse.clone()), at(3.1)), Effect::Small);
            assert_eq!((standing.state(Serial(7)), standing.serial()), (State::Right, Some(Serial(7))));
            assert_eq!(standing.state(Serial(8)), State::Failed(&old(7)));
            assert_eq!(standing.next_wait(Duration::from_secs(30)), RETRY_FIRST, "it is asked again soon");
            assert_eq!(standing.note(Err(worse.clone()), at(5.0)), Effect::Small);
            assert_eq!(standing.state(Serial(7)), State::Right);
            assert_eq!(standing.note(Err(worse.clone()), at(5.1)), Effect::Large);
            assert_eq!(standing.state(Serial(7)), State::Failed(&worse));
            assert_eq!(standing.state(Serial(8)), State::Failed(&worse));
            // It was a moment.
            back.note(Err(worse.clone()), at(3.1));
            assert_eq!(back.note(Err(old(7)), at(3.2)), Effect::Small);
            assert_eq!((back.state(Serial(7)), back.state(Serial(8))), (State::Right, State::Failed(&old(7))));
            back.note(Err(worse.clone()), at(9.0));
            assert_eq!(back.state(Serial(7)), State::Right, "the next one is new");
            assert_eq!(back.note(Ok(Serial(9)), at(9.1)), Effect::Large);
            assert_eq!(back.state(Serial(9)), State::Right);
            // The old version is none of a new zone's.
            let mut other = Standing::default();
            other.note(Err(old(7)), at(0.0));
            other.note(Err(worse), at(0.1));
            other.forget(false);
            assert_eq!(other.state(Serial(7)), State::Unknown);
        }
        // What has failed for two seconds, one way or another, has failed.
        let mut standing = Standing::default();
        standing.note(Err(old(7)), at(0.0));
        standing.note(Err(servfail()), at(1.0));
        assert_eq!(standing.state(Serial(8)), State::Unknown);
        assert_eq!(standing.note(Err(servfail()), at(2.0)), Effect::Large);
        assert_eq!((standing.state(Serial(8)), standing.state(Serial(7))), (State::Failed(&old(7)), State::Right));
        assert_eq!(standing.note(Err(servfail()), at(3.0)), Effect::Large);
        assert_eq!(standing.state(Serial(7)), State::Failed(&servfail()));
    }

    #[test]
    fn new_contents_are_unknown_and_a_missing_server_stays_missing() {
        let start = Instant::now();
        for (fault, stays) in [(silent(), true), (Fault::Documentation, true), (old(1), false)] {
            let mut standing = Standing::default();
            standing.note(Err(fault.clone()), start);
            standing.note(Err(fault.clone()), start + PATIENCE);
            standing.forget(false);
            let expected = if stays { State::Failed(&fault) } else { State::Unknown };
            assert_eq!(standing.state(Serial(7)), expected);
            assert_eq!(standing.note(Ok(Serial(7)), start), Effect::Large);
            assert_eq!(standing.note(Ok(Serial(7)), start), Effect::Small);
            for (are_other, effect) in [(false, Effect::Small), (true, Effect::Large)] {
                standing.forget(are_other);
                assert_eq!(standing.state(Serial(7)), State::Unknown);
                assert_eq!(standing.note(Ok(Serial(8)), start), effect);
            }
        }
    }
}
