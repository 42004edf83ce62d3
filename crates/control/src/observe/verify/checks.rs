//! The checks of name verification: their schedule, their queries, and the results of their answers. Pure.
//!
//! Checks with waiting names go first, so that many due zones do not delay new routes.

use std::time::Duration;

use tokio::time::Instant;

use super::check::{Check, CheckResult, Fault, PROBE_LABEL, Probe, StaleSerialPolicy};
use super::server_zone::{DOUBT, Failure, Outcome, RETRY_LONGEST, State};
use super::state::{IDLE_MAX, RouteEntry, VerificationState, alias_target, serial_of, slot};
use crate::compiler::expectation::Expected;
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;

/// The maximum number of names with answers of their own in one check; the next check covers others.
const OWN_ANSWERS_MAX: usize = 8;
/// The maximum number of recorded wrong names of a server and a kind of zone: further ones are found again when some of these are
/// correct.
const FAILING_MAX: usize = 1024;
/// The routes from which one is chosen whose alias represents the alias zone.
const WITNESSES: usize = 64;
/// The minimum time between two correct checks of a server and a zone: under steady change, one check verifies all names that
/// arrived meanwhile.
const GAP: Duration = Duration::from_millis(20);
/// The longest wait between checks of the alias zone on a failed server. Every server has that zone, so this is the delay until a
/// recovery is noticed, at two or three queries per second for each failed server.
const ALIAS_RETRY: Duration = Duration::from_secs(1);
/// The minimum time between two checks of all failed names on a server that responds again, so that an intermittent server is not
/// queried about all of them each time.
const RECHECK_GAP: Duration = Duration::from_secs(1);

/// A check to be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// The server, by its place in the list.
    pub server: usize,
    /// The queries.
    pub check: Check,
    /// The contents of the zone that the expected answers are from.
    epoch: u64,
    /// The routes of the check's names.
    labels: Vec<Box<str>>,
}

impl VerificationState {
    /// Returns the time of the next call of [`Self::next_job`], if nothing happens before.
    pub fn next_check_at(&self) -> Option<Instant> {
        self.due.iter().filter_map(|checks| checks.first()).map(|(at, ..)| *at).min()
    }

    /// Takes the next due check. Report its end to [`Self::finish`]. `random` is a random number.
    pub fn next_job(&mut self, now: Instant, random: u64) -> Option<Job> {
        let checks = self.due.iter_mut().find(|checks| checks.first().is_some_and(|(at, ..)| *at <= now))?;
        let (_, apex, server) = checks.pop_first().expect("it was there");
        let job = self.job(apex, server, now, random)?;
        let zone = self.zone_mut(&job.check.apex)?;
        zone.servers[server].due = None;
        zone.servers[server].in_flight = true;
        zone.servers[server].queried += 1;
        Some(job)
    }

    fn job(&self, apex: Name, server: usize, now: Instant, random: u64) -> Option<Job> {
        let (zone, is_alias) = (self.zone(&apex)?, self.is_alias(&apex));
        let slot = slot(server, is_alias);
        let stays_at = zone.servers[server].state.stays_at(now);
        let stale = match stays_at {
            None => StaleSerialPolicy::Stop,
            Some(_) if is_alias || self.has_deletion_hold(&apex) => StaleSerialPolicy::Query,
            Some(_) => StaleSerialPolicy::QueryAll,
        };
        let sampled = self.sampled.labels.iter().filter(|label| self.is_to_query(&apex, label, slot));
        let mut labels: Vec<Box<str>> = sampled.take(IDLE_MAX).cloned().collect();
        if let Some(found) = stays_at.filter(|_| is_alias) {
            let unshown = self.unshown(server, found).into_iter().filter(|label| !labels.contains(label));
            labels.extend(unshown.collect::<Vec<_>>());
        }
        let serial = if is_alias { self.serial_needed(&labels) } else { zone.serial };
        let mut own = self.labels_with_own_answers(&apex);
        own.extend(self.failing[slot].keys().filter(|label| self.name_in(&apex, label).is_some()).cloned());
        let next = own.iter().cycle().skip(zone.servers[server].queried * OWN_ANSWERS_MAX % own.len().max(1));
        let next = next.take(OWN_ANSWERS_MAX.min(own.len())).filter(|label| !labels.contains(label));
        labels.extend(next.cloned().collect::<Vec<_>>());
        let probe = |label: &str| self.probe(&apex, label);
        let (labels, names): (Vec<_>, Vec<_>) =
            labels.into_iter().filter_map(|label| probe(&label).map(|probe| (label, probe))).unzip();
        let witness = if is_alias {
            let is_fit = |label: &str, route: &RouteEntry| {
                let is_older = route.version <= self.waiting.version(serial);
                is_older && !own.contains(label) && !labels.iter().any(|other| **other == *label)
            };
            let start = usize::try_from(random >> 33).unwrap_or(0) % self.routes.len().clamp(1, WITNESSES);
            let mut routes = self.routes.iter().skip(start).take(WITNESSES);
            routes.find(|(label, route)| is_fit(label, route)).and_then(|(label, _)| probe(label))
        } else {
            let name = apex.prepend(format!("{PROBE_LABEL}{random:016x}").as_bytes()).ok();
            let expectation = &self.zones.shards.get(&apex)?.router.expectation;
            name.map(|name| Probe { expected: expectation.of(&name).clone(), name })
        };
        let epoch = zone.epoch;
        Some(Job { server, check: Check { apex, serial, witness, names, stale }, epoch, labels })
    }

    /// Returns the version of the alias zone that a server must have. Under steady change, a server always lags a little: the
    /// version is the longest awaited one, or that of these labels.
    fn serial_needed(&self, labels: &[Box<str>]) -> Serial {
        let oldest = self
            .waiting
            .routes
            .first()
            .map_or_else(|| self.waiting.version(self.zones.alias.serial), |(version, _)| *version);
        let versions = labels.iter().filter_map(|label| Some(self.routes.get(label)?.version));
        serial_of(versions.fold(oldest, u64::max))
    }

    fn probe(&self, apex: &Name, label: &str) -> Option<Probe> {
        let name = self.name_in(apex, label)?;
        let expected = match self.zones.shards.get(apex) {
            Some(shard) => shard.router.expectation.of(&name).clone(),
            None => Expected::Alias(alias_target(&self.routes.get(label)?.binding)),
        };
        Some(Probe { name, expected })
    }

    /// Handles the end of a check; `random` is a random number. Returns the zone's fault, if there is one.
    pub fn finish(&mut self, job: Job, result: Result<CheckResult, Fault>, now: Instant, random: u64) -> Option<Fault> {
        let Job { server, check, epoch, labels } = job;
        let apex = &check.apex;
        let (outcome, names) = outcome(&check, result);
        let (found, fault) = match &outcome {
            Outcome::Right(found) => (Some(*found), None),
            Outcome::Stale { found, .. } => (Some(*found), Some(Fault::OldSerial)),
            Outcome::Fault(fault) => (None, Some(fault.clone())),
        };
        let is_alias = self.is_alias(apex);
        let Some(zone) = self.zone_mut(apex) else { return fault };
        zone.servers[server].in_flight = false;
        if zone.epoch != epoch {
            self.schedule(apex, server, true, now);
            return fault;
        }
        let is_news = self.finish_zone(apex, server, outcome.clone(), now, random);
        let is_better = self.finish_names(apex, server, &outcome, labels.into_iter().zip(names), now);
        match found {
            _ if !is_alias => self.queue_shard(apex),
            Some(found) => self.reach(server, found),
            // The next correct check counts for all waiting names.
            None => self.waiting.reached[server] = None,
        }
        if is_news {
            self.queue_zone(apex);
        }
        if let Outcome::Right(found) = outcome
            && self.has_more_to_check(apex, server, found, is_better)
        {
            self.schedule_soon(apex, server, now);
        }
        fault
    }

    /// Applies a check's result for its zone, and schedules the next check. Returns whether the conditions of the zone's routes
    /// must be computed.
    fn finish_zone(&mut self, apex: &Name, server: usize, outcome: Outcome, now: Instant, random: u64) -> bool {
        let (is_alias, interval) = (self.is_alias(apex), self.config.interval);
        let is_alias_silent = self.zones.alias.servers[server].state.is_silent();
        let is_right = matches!(outcome, Outcome::Right(_));
        let zone = self.zone_mut(apex).expect("the caller has found it");
        let (serial, state) = (zone.serial, &mut zone.servers[server].state);
        let was_right = state.state(serial) == State::Right;
        let (was_failing, had_failed, was_silent) = (state.is_failing(), state.has_failed(), state.is_silent());
        let is_news = state.add(outcome, now);
        let has_become_right = !is_alias && !was_right && state.state(serial) == State::Right;
        let (is_failing, is_silent) = (state.is_failing(), state.is_silent());
        let wait = state.wait(interval);
        let wait = match is_failing {
            // Between three quarters and five quarters, so that zones that were first checked together drift apart.
            false => wait.mul_f64(0.75 + (random >> 32) as f64 / f64::from(u32::MAX) / 2.0),
            true if is_alias => wait.min(ALIAS_RETRY),
            // The alias zone shows when the server responds again. Checks of thousands of zones would only wait meanwhile.
            true if is_silent && is_alias_silent => wait.max(interval),
            true => wait,
        };
        self.schedule(apex, server, is_failing, now + wait);
        if is_right && (had_failed || is_alias && was_failing) || was_silent && !is_silent {
            self.recheck_failed(server, is_alias && had_failed, now);
        } else if is_silent && !was_silent && !is_alias {
            let alias_apex = self.config.platform.alias_apex().clone();
            self.schedule(&alias_apex, server, true, now);
        }
        is_news || has_become_right
    }

    /// Applies a check's results for the names that it queried separately. Returns whether one is correct again that was not.
    fn finish_names(
        &mut self,
        apex: &Name,
        server: usize,
        outcome: &Outcome,
        names: impl Iterator<Item = (Box<str>, Result<(), Fault>)>,
        now: Instant,
    ) -> bool {
        let is_alias = self.is_alias(apex);
        let (slot, interval) = (slot(server, is_alias), self.config.interval);
        let (mut is_better, mut next) = (false, Vec::new());
        for (label, answer) in names {
            let Some(route) = self.routes.get(&label) else { continue };
            let is_early = now < route.since + DOUBT * 2;
            match (outcome, answer) {
                (Outcome::Fault(_), _) => continue,
                (Outcome::Stale { .. }, Err(_)) => {
                    next.extend(is_early.then_some(RETRY_LONGEST));
                    continue;
                }
                (Outcome::Stale { found, .. }, Ok(())) if is_alias => {
                    self.set_shown(&label, server, *found);
                    // There may be more of them.
                    next.push(GAP);
                    self.queue(&label);
                }
                (_, Ok(())) => {
                    is_better |= self.failing[slot].remove(&label).is_some();
                    self.queue(&label);
                }
                (Outcome::Right(_), Err(fault)) => {
                    let failing = &mut self.failing[slot];
                    let has_room = failing.len() < FAILING_MAX;
                    let (is_news, wait) = match failing.get_mut(&label) {
                        Some(failure) => (failure.add(fault, now), failure.wait(interval)),
                        None => {
                            let failure = Failure::new(fault, now);
                            let wait = failure.wait(interval);
                            if has_room {
                                failing.insert(label.clone(), failure);
                            }
                            (!has_room, wait)
                        }
                    };
                    next.push(wait);
                    // Nothing is reported before a name's failure is certain.
                    if is_news {
                        self.queue(&label);
                    }
                }
            }
            self.set_queried(&label, slot);
        }
        if let Some(wait) = next.into_iter().min() {
            self.schedule(apex, server, true, now + wait);
        }
        is_better
    }

    /// Returns whether another check must soon follow a correct one: changes during it were not covered, and while it failed,
    /// more names arrived than one check queries. If one name is correct again, other failed ones can be, too: each such check
    /// has fewer left.
    fn has_more_to_check(&self, apex: &Name, server: usize, found: Serial, is_better: bool) -> bool {
        let is_alias = self.is_alias(apex);
        let slot = slot(server, is_alias);
        let is_waiting = |label: &str| {
            let route = self.routes.get(label);
            route.is_some_and(|route| self.waiting.routes.contains(&(route.version, label.into())))
        };
        let is_left = |label: &str| {
            self.is_to_query(apex, label, slot) && (self.sampled.labels.contains(label) || is_waiting(label))
        };
        is_alias && self.waiting.routes.last().is_some_and(|(newest, _)| *newest > self.waiting.version(found))
            || is_better && self.failing[slot].keys().any(|label| self.name_in(apex, label).is_some())
            || self.sampled.labels.iter().any(|label| is_left(label))
            || self.labels_with_own_answers(apex).iter().any(|label| is_left(label))
    }

    /// Checks other failed parts of a server immediately, without waiting until they are due, because one part is correct again.
    /// The query rate bounds that. `is_sure`: the alias zone had failed.
    fn recheck_failed(&mut self, server: usize, is_sure: bool, now: Instant) {
        let last = &mut self.rechecked[server];
        if !is_sure && last.is_some_and(|last| now < last + RECHECK_GAP) {
            return;
        }
        *last = Some(now);
        let alias = (self.config.platform.alias_apex(), &self.zones.alias);
        let zones = self.zones.shards.iter().map(|(apex, shard)| (apex, &shard.zone)).chain([alias]);
        let failed = zones.filter(|(_, zone)| zone.servers[server].state.has_failed());
        for apex in failed.map(|(apex, _)| apex.clone()).collect::<Vec<_>>() {
            self.schedule(&apex, server, true, now);
        }
    }

    pub(super) fn schedule_soon(&mut self, apex: &Name, server: usize, now: Instant) {
        let Some(zone) = self.zone(apex) else { return };
        let at = zone.servers[server].state.last_right.map_or(now, |right| now.max(right + GAP));
        self.schedule(apex, server, true, at);
    }

    /// Schedules a check, unless an earlier one is scheduled, or one is in flight.
    pub(super) fn schedule(&mut self, apex: &Name, server: usize, is_urgent: bool, at: Instant) {
        let Some(zone) = self.zone_mut(apex) else { return };
        let entry = &mut zone.servers[server];
        let before = entry.due;
        if entry.in_flight || before.is_some_and(|(_, before)| before <= at) {
            return;
        }
        let place = usize::from(!is_urgent);
        entry.due = Some((place, at));
        if let Some((place, at)) = before {
            self.due[place].remove(&(at, apex.clone(), server));
        }
        self.due[place].insert((at, apex.clone(), server));
    }
}

/// Splits a check's result into those for its zone and for its names.
fn outcome(check: &Check, result: Result<CheckResult, Fault>) -> (Outcome, Vec<Result<(), Fault>>) {
    match result {
        Err(fault) => (Outcome::Fault(fault), Vec::new()),
        Ok(CheckResult { serial: found, witness, names }) if !check.is_reached_by(found) => {
            let lacking = || names.iter().filter_map(|answer| answer.as_ref().err());
            let is_unsure = lacking().next().map(|_| lacking().all(Fault::is_silence));
            (Outcome::Stale { found, is_same: witness == Some(Ok(())), is_unsure }, names)
        }
        Ok(CheckResult { witness: Some(Err(fault)), names, .. }) => (Outcome::Fault(fault), names),
        Ok(CheckResult { serial, names, .. }) => (Outcome::Right(serial), names),
    }
}
