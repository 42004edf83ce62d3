//! The schedule of notifications of a zone: at once after a change, then at most once per [`INTERVAL`], one request at a time,
//! and again after increasing waits if there is no answer. Pure: the time comes from the caller.

use std::collections::BTreeSet;
use std::fmt;
use std::time::{Duration, Instant};

use crate::wire::header::Rcode;
use crate::wire::{Name, NameMap};
use crate::zone::Serial;

/// The least time between two requests about a zone to a secondary server. Changes in between are announced together: a shard changes
/// with the health of its routers.
const INTERVAL: Duration = Duration::from_secs(1);

/// The time for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The first wait after a failure, which doubles up to the longest one.
const RETRY_FIRST: Duration = Duration::from_secs(2);
const RETRY_LONGEST: Duration = Duration::from_secs(60);

/// The number of attempts, some five minutes, as RFC 1996 §3.6 suggests (five at 60 seconds). After them, the secondary server finds
/// the change by its own refresh.
const ATTEMPTS_MAX: u32 = 10;

/// A zone at a secondary server, which has this number.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Target {
    pub(super) secondary: usize,
    pub(super) apex: Name,
}

/// The state of a zone at a secondary server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The serial to announce.
    pub serial: Serial,
    /// The last serial whose announcement the secondary server has acknowledged.
    pub acknowledged: Option<Serial>,
    /// The reason why the last request failed.
    pub error: Option<Failure>,
    /// Whether the attempts have ended without an acknowledgement.
    pub has_given_up: bool,
    /// The time of the oldest change that the secondary server has not acknowledged.
    pub pending_since: Option<Instant>,
}

/// The progress of the announcement of a serial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The secondary server has acknowledged it.
    Acknowledged,
    /// The first request is due or in flight.
    Pending,
    /// The last request failed.
    Failed,
}

impl State {
    /// Returns the progress of the announcement of the current serial.
    pub fn progress(&self) -> Progress {
        match (self.acknowledged == Some(self.serial), self.error) {
            (true, _) => Progress::Acknowledged,
            (false, None) => Progress::Pending,
            (false, Some(_)) => Progress::Failed,
        }
    }
}

/// The failure of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// There was no answer in time.
    Silent,
    /// The answer is an error with this response code.
    Refused(u16),
    /// The request could not be sent.
    NotSent,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Silent => f.write_str("no response"),
            Failure::Refused(rcode) => write!(f, "the response is {}", Rcode(*rcode)),
            Failure::NotSent => f.write_str("the request could not be sent"),
        }
    }
}

#[derive(Debug)]
struct Entry {
    state: State,
    attempts: u32,
    sent_at: Option<Instant>,
    /// The serial of the request in flight.
    in_flight: Option<Serial>,
    /// The time of the next step: a request, or the end of the wait for an answer.
    at: Option<Instant>,
}

/// The zones of all secondary servers.
#[derive(Debug, Default)]
pub(super) struct Schedule {
    entries: Vec<NameMap<Entry>>,
    due: BTreeSet<(Instant, Target)>,
}

impl Schedule {
    /// Announces a serial.
    pub(super) fn change(&mut self, target: Target, serial: Serial, now: Instant) {
        if self.entries.len() <= target.secondary {
            self.entries.resize_with(target.secondary + 1, NameMap::default);
        }
        let entry = self.entries[target.secondary].entry(target.apex.clone()).or_insert_with(|| Entry {
            state: State { serial, acknowledged: None, error: None, has_given_up: false, pending_since: None },
            attempts: 0,
            sent_at: None,
            in_flight: None,
            at: None,
        });
        entry.state.serial = serial;
        entry.state.has_given_up = false;
        entry.state.pending_since.get_or_insert(now);
        entry.attempts = 0;
        if entry.in_flight.is_none() {
            let earliest = entry.sent_at.map_or(now, |sent| (sent + INTERVAL).max(now));
            set_time(&mut self.due, target, entry, Some(earliest));
        }
    }

    /// Forgets a zone that is not served any more.
    pub(super) fn remove(&mut self, target: &Target) {
        if let Some(entry) = self.entries.get_mut(target.secondary).and_then(|zones| zones.remove(&target.apex))
            && let Some(at) = entry.at
        {
            self.due.remove(&(at, target.clone()));
        }
    }

    /// Returns the time of the next step.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.due.first().map(|(at, _)| *at)
    }

    /// Returns the next request to send, which is in flight from now on.
    pub(super) fn next(&mut self, now: Instant) -> Option<(Target, Serial)> {
        loop {
            let (at, target) = self.due.first()?.clone();
            if at > now {
                return None;
            }
            let Some(entry) = self.entries.get_mut(target.secondary).and_then(|zones| zones.get_mut(&target.apex))
            else {
                self.due.pop_first();
                continue;
            };
            if entry.in_flight.is_some() {
                self.fail(&target, Failure::Silent, now);
                continue;
            }
            let serial = entry.state.serial;
            (entry.in_flight, entry.sent_at) = (Some(serial), Some(now));
            entry.attempts += 1;
            set_time(&mut self.due, target.clone(), entry, Some(now + ANSWER_MAX));
            return Some((target, serial));
        }
    }

    /// Records the acknowledgement of the request in flight.
    pub(super) fn acknowledge(&mut self, target: &Target, now: Instant) {
        let Some(entry) = self.entries.get_mut(target.secondary).and_then(|zones| zones.get_mut(&target.apex)) else {
            return;
        };
        let Some(serial) = entry.in_flight.take() else { return };
        (entry.state.acknowledged, entry.state.error) = (Some(serial), None);
        if serial == entry.state.serial {
            entry.state.pending_since = None;
        }
        let next = (serial != entry.state.serial).then(|| entry.sent_at.map_or(now, |sent| (sent + INTERVAL).max(now)));
        set_time(&mut self.due, target.clone(), entry, next);
    }

    /// Records the failure of the request in flight.
    pub(super) fn fail(&mut self, target: &Target, failure: Failure, now: Instant) {
        let Some(entry) = self.entries.get_mut(target.secondary).and_then(|zones| zones.get_mut(&target.apex)) else {
            return;
        };
        let Some(serial) = entry.in_flight.take() else { return };
        entry.state.error = Some(failure);
        let is_newest = serial == entry.state.serial;
        let next = if !is_newest {
            Some(entry.sent_at.map_or(now, |sent| (sent + INTERVAL).max(now)))
        } else if entry.attempts >= ATTEMPTS_MAX {
            entry.state.has_given_up = true;
            None
        } else {
            Some(now + RETRY_FIRST.saturating_mul(1 << (entry.attempts - 1).min(16)).min(RETRY_LONGEST))
        };
        set_time(&mut self.due, target.clone(), entry, next);
    }

    /// Returns whether a request is in flight.
    pub(super) fn is_in_flight(&self, target: &Target) -> bool {
        let zone = self.entries.get(target.secondary).and_then(|zones| zones.get(&target.apex));
        zone.is_some_and(|entry| entry.in_flight.is_some())
    }

    /// Returns the state of a zone at a secondary server; `None` if it is not notified of the zone.
    pub(super) fn state(&self, secondary: usize, apex: &Name) -> Option<&State> {
        Some(&self.entries.get(secondary)?.get(apex)?.state)
    }

    /// Returns the state of each zone at each secondary server.
    pub(super) fn states(&self) -> impl Iterator<Item = (usize, &Name, &State)> {
        let zones = self.entries.iter().enumerate();
        zones.flat_map(|(secondary, zones)| zones.iter().map(move |(apex, entry)| (secondary, apex, &entry.state)))
    }
}

fn set_time(due: &mut BTreeSet<(Instant, Target)>, target: Target, entry: &mut Entry, at: Option<Instant>) {
    if let Some(before) = entry.at.take() {
        due.remove(&(before, target.clone()));
    }
    entry.at = at;
    if let Some(at) = at {
        due.insert((at, target));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(apex: &str) -> Target {
        Target { secondary: 0, apex: apex.parse().expect("a name") }
    }

    fn state(schedule: &Schedule, apex: &str) -> State {
        let name: Name = apex.parse().expect("a name");
        schedule.states().find(|(_, apex, _)| **apex == name).expect("it is known").2.clone()
    }

    #[test]
    fn the_first_at_once_and_then_one_a_second() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        let at = |millis| start + Duration::from_millis(millis);
        let z = target("z.test.");
        schedule.change(z.clone(), Serial(1), at(0));
        assert_eq!(schedule.next(at(0)), Some((z.clone(), Serial(1))));
        // One at a time, and the newest serial.
        schedule.change(z.clone(), Serial(2), at(10));
        schedule.change(z.clone(), Serial(3), at(20));
        assert_eq!(schedule.next(at(30)), None);
        schedule.acknowledge(&z, at(40));
        let behind = state(&schedule, "z.test.");
        assert_eq!((behind.progress(), behind.pending_since), (Progress::Pending, Some(at(0))), "the oldest change");
        assert_eq!((schedule.next(at(999)), schedule.next_at()), (None, Some(at(1_000))));
        assert_eq!(schedule.next(at(1_000)), Some((z.clone(), Serial(3))));
        assert_eq!(state(&schedule, "z.test.").acknowledged, Some(Serial(1)));
        schedule.acknowledge(&z, at(1_010));
        assert_eq!((schedule.next_at(), state(&schedule, "z.test.").acknowledged), (None, Some(Serial(3))));
        assert_eq!(state(&schedule, "z.test.").pending_since, None);
        // Other zones do not wait for it.
        schedule.change(target("y.test."), Serial(1), at(1_020));
        assert_eq!(schedule.next(at(1_020)), Some((target("y.test."), Serial(1))));
        schedule.change(z.clone(), Serial(4), at(5_000));
        schedule.acknowledge(&target("y.test."), at(5_000));
        assert_eq!(schedule.next(at(5_000)), Some((z, Serial(4))));
    }

    #[test]
    fn a_silent_server_is_asked_less_and_less() {
        let (mut schedule, start) = (Schedule::default(), Instant::now());
        let z = target("z.test.");
        schedule.change(z.clone(), Serial(1), start);
        let (mut now, mut sent) = (start, Vec::new());
        while let Some(at) = schedule.next_at() {
            now = at;
            if schedule.next(now).is_some() {
                sent.push((now - start).as_secs());
            }
        }
        assert_eq!(sent, [0, 4, 10, 20, 38, 72, 134, 196, 258, 320]);
        let silent = Some(Failure::Silent);
        let pending_since = Some(start);
        let expected =
            State { serial: Serial(1), acknowledged: None, error: silent, has_given_up: true, pending_since };
        assert_eq!((state(&schedule, "z.test."), expected.progress()), (expected.clone(), Progress::Failed));
        // A change begins again; an error is repeated likewise, and a late answer is of no request.
        schedule.acknowledge(&z, now);
        schedule.change(z.clone(), Serial(2), now);
        assert_eq!(schedule.next(now), Some((z.clone(), Serial(2))));
        schedule.fail(&z, Failure::Refused(9), now);
        assert_eq!(schedule.next_at(), Some(now + RETRY_FIRST));
        assert_eq!(state(&schedule, "z.test.").error, Some(Failure::Refused(9)));
        schedule.remove(&z);
        assert_eq!((schedule.next_at(), schedule.states().count()), (None, 0));
    }
}
