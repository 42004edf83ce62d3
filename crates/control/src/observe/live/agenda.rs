//! Which checks are due, what each asks, and what follows from its end.
//!
//! There are two agendas: of what something waits for, and of what is only looked at again. The first goes first, so that a
//! great many zones to be looked at hold up no new route.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::check::{Check, Fault, PROBE_LABEL, Probe, Seen, Shown, WhenOld};
use super::proofs::{Agenda, IDLE_MAX, Proofs, SERVERS_MAX, alias_target, shard_of, system_name};
use super::standing::{Effect, PATIENCE, RETRY_LONGEST, State};
use super::zones::Zone;
use crate::compiler::settings::text_of;
use crate::world::expectation::Expected;
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;

/// Names with answers of their own that one check of a shard asks for; of more, others the next time.
const EXPLICIT_AT_A_TIME: usize = 8;
/// The least time between two checks of a server and a zone that are right: under steady change one check proves all that has
/// come meanwhile.
const GAP: Duration = Duration::from_millis(20);

/// Aliases that one check asks for of a server that stays at an old version, each by its name.
const OLD_AT_A_TIME: usize = 32;

/// The longest wait between checks of the alias zone on a server that has failed. Every server has that zone, so that this is how
/// soon a server that answers again is found, at two or three questions a second for each that does not.
const ALIAS_RETRY: Duration = Duration::from_secs(1);
/// The least time between two looks at all zones of a server of which one is right again, so that a server that answers now and
/// then is not asked for all of them each time.
const RECOVERY_GAP: Duration = Duration::from_secs(1);

/// Routes among which one is taken whose alias tells of the whole zone where another one's is answered wrong.
const WITNESSES: usize = 64;

/// A check to be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Which server, by its place in the list.
    pub server: usize,
    /// What is asked.
    pub check: Check,
    /// Which contents of the zone this speaks of.
    epoch: u64,
    /// The routes whose own names are asked for.
    labels: Vec<Box<str>>,
}

impl Proofs {
    /// When to ask for [`Self::next_job`] again, if nothing happens before.
    pub fn next_check_at(&self) -> Option<Instant> {
        let Agenda { urgent, periodic } = &self.agenda;
        [urgent, periodic].into_iter().filter_map(|checks| checks.first()).map(|(at, ..)| *at).min()
    }

    /// The next check that is due. Its end is to be told by [`Self::landed`]. `random` is a number of chance.
    pub fn next_job(&mut self, now: Instant, random: u64) -> Option<Job> {
        let Agenda { urgent, periodic } = &mut self.agenda;
        let checks = [urgent, periodic].into_iter().find(|checks| checks.first().is_some_and(|(at, ..)| *at <= now))?;
        let (_, apex, server) = checks.pop_first().expect("it was there");
        let job = match self.zones.is_alias(&apex) {
            true => self.alias_job(server, now, random),
            false => self.shard_job(&apex, server, now, random),
        };
        let zone = self.zones.get_mut(&apex)?;
        zone.due[server] = None;
        zone.standings[server].under_way = true;
        job
    }

    fn shard_job(&mut self, apex: &Name, server: usize, now: Instant, random: u64) -> Option<Job> {
        let is_held = self.has_deletion_hold(apex);
        let shard = self.zones.shards.get_mut(apex)?;
        let bit = 1_u64 << server;
        let routes = &self.routes;
        let of_shard = |label: &str| {
            let route = routes.get(label).filter(|route| shard_of(&route.binding) == *apex);
            route.filter(|route| shard.expectation.taken(&system_name(&route.binding)).is_none())
        };
        let is_to_be_asked = |label: &str| of_shard(label).is_some_and(|route| route.to_ask & bit != 0);
        let mut labels: Vec<Box<str>> =
            self.asking.labels.iter().filter(|label| is_to_be_asked(label)).take(IDLE_MAX).cloned().collect();
        let failing =
            self.own.failing(server).filter(|label| !shard.explicit.contains(*label) && of_shard(label).is_some());
        let explicit: Vec<Box<str>> = shard.explicit.iter().chain(failing).cloned().collect();
        let count = explicit.len();
        if count > 0 {
            labels
                .extend(explicit.iter().cycle().skip(shard.turn % count).take(EXPLICIT_AT_A_TIME.min(count)).cloned());
            shard.turn = shard.turn.wrapping_add(EXPLICIT_AT_A_TIME);
            labels.sort();
            labels.dedup();
        }
        // In doubt the wildcard itself is asked for: one name that is answered wrong is not the zone.
        let is_in_doubt = shard.zone.standings[server].is_answer_wrong();
        let is_own = |label: &str| is_in_doubt || shard.explicit.contains(label) || self.own.is_failing(label, server);
        let probe = |name: Name, is_own| Probe { expected: shard.expectation.of(&name).clone(), name, is_own };
        let of_label = |label: &str| {
            let name = system_name(&routes.get(label)?.binding);
            let is_own = is_own(label);
            Some(probe(name, is_own))
        };
        let mut probes: Vec<Probe> = labels.iter().filter_map(|label| of_label(label)).collect();
        if probes.iter().all(|probe| probe.is_own)
            && let Ok(name) = apex.prepend(format!("{PROBE_LABEL}{random:016x}").as_bytes())
        {
            probes.push(probe(name, false));
        }
        let when_old = match shard.zone.standings[server].stays_at(now) {
            None => WhenOld::Stop,
            Some(_) if is_held => WhenOld::Ask,
            Some(_) => WhenOld::AskForAll,
        };
        let check = Check { apex: apex.clone(), serial: shard.zone.serial, probes, when_old };
        Some(Job { server, check, epoch: shard.zone.epoch, labels })
    }

    fn alias_job(&mut self, server: usize, now: Instant, random: u64) -> Option<Job> {
        let bit = 1_u64 << (server + SERVERS_MAX);
        let wants = |label: &str| self.routes.get(label).is_some_and(|route| route.to_ask & bit != 0);
        let mut labels: Vec<Box<str>> =
            self.asking.labels.iter().filter(|label| wants(label)).take(IDLE_MAX).cloned().collect();
        let stays_at = self.zones.alias.standings[server].stays_at(now);
        if let Some(found) = stays_at {
            self.add_behind(&mut labels, server, found);
        }
        // Under steady change a server is always a little behind: what has waited longest is what it must have.
        let oldest = self.waiting.oldest();
        let asked = labels.iter().filter_map(|label| Some(self.routes.get(label)?.serial));
        let serial = asked.fold(oldest.unwrap_or(self.zones.alias.serial), |a, b| if b.is_after(a) { b } else { a });
        let slot = server + SERVERS_MAX;
        let failing = self
            .own
            .failing(slot)
            .chain(&self.explicit_aliases)
            .filter(|label| self.routes.contains_key(label) && !labels.contains(label));
        let failing: BTreeSet<Box<str>> = failing.cloned().collect();
        if !failing.is_empty() {
            let turn = usize::try_from(random >> 33).unwrap_or(0) % failing.len();
            labels.extend(failing.iter().cycle().skip(turn).take(EXPLICIT_AT_A_TIME.min(failing.len())).cloned());
        }
        let is_in_doubt = self.zones.alias.standings[server].is_answer_wrong();
        let is_alone = |label: &str| self.explicit_aliases.contains(label) || self.own.is_failing(label, slot);
        if is_in_doubt || self.sample.as_deref().is_none_or(is_alone) {
            // The one that was answered wrong may be the only one that is: others are witnesses, one after the other.
            let some = usize::try_from(random >> 33).unwrap_or(0) % self.routes.len().clamp(1, WITNESSES);
            let last = std::mem::replace(&mut self.sample, self.routes.keys().nth(some).cloned());
            labels
                .extend(last.filter(|label| is_in_doubt && self.routes.contains_key(label) && !labels.contains(label)));
        }
        let is_own = |label: &str| is_in_doubt || is_alone(label);
        let is_witnessed = labels.iter().any(|label| !is_own(label));
        let sample = self.sample.iter().filter(|label| {
            let is_there = self.routes.get(label).is_some_and(|route| !route.serial.is_after(serial));
            is_there && !is_witnessed && !labels.contains(label) && !is_alone(label)
        });
        let probe = |label: &str, is_own| {
            let name = self.config.settings.alias_apex().prepend(label.as_bytes()).ok()?;
            let expected = Expected::Alias(alias_target(&self.routes.get(label)?.binding));
            Some(Probe { name, expected, is_own })
        };
        let of_labels = labels.iter().filter_map(|label| probe(label, is_own(label)));
        let probes = of_labels.chain(sample.filter_map(|label| probe(label, false))).collect();
        let when_old = if stays_at.is_some() { WhenOld::Ask } else { WhenOld::Stop };
        let check = Check { apex: self.config.settings.alias_apex().clone(), serial, probes, when_old };
        Some(Job { server, check, epoch: self.zones.alias.epoch, labels })
    }

    /// Adds routes that the version `found`, at which the server stays, may not have, and that it has not shown to have: first
    /// those that wait, then some of those that were told of already, in turn.
    fn add_behind(&mut self, labels: &mut Vec<Box<str>>, server: usize, found: Serial) {
        let needs = |label: &str| self.routes.get(label).is_some_and(|route| route.serial.is_after(found));
        let waiting = self.waiting.iter().filter(|label| needs(label) && self.behind.shown(label, server).is_none());
        for label in waiting.take(OLD_AT_A_TIME) {
            if labels.len() < OLD_AT_A_TIME && !labels.contains(label) {
                labels.push(label.clone());
            }
        }
        let is_wanted = |label: &str| needs(label) && !labels.iter().any(|known| **known == *label);
        let told = self.behind.next_told(server, is_wanted, OLD_AT_A_TIME.saturating_sub(labels.len()));
        labels.extend(told);
    }

    /// A check has ended; `random` is a number of chance.
    pub fn landed(&mut self, job: &Job, result: Result<Seen, Fault>, now: Instant, random: u64) {
        let (apex, server) = (&job.check.apex, job.server);
        let Some(zone) = self.zones.get_mut(apex) else { return };
        zone.standings[server].under_way = false;
        if zone.epoch != job.epoch {
            return self.schedule(apex, server, true, now);
        }
        let (end, faults) = End::of(job, self.zones.is_alias(apex), &result, now);
        let (effect, has_become_right) = self.note_zone(&end, result.map(|seen| seen.serial), random);
        let is_better = self.note_names(&end, faults);
        if !end.is_alias {
            self.looks.push_shard(apex.clone());
        }
        // Of what this check was too early for it says nothing new.
        match end.found {
            Some(found) if end.is_alias => self.waiting.reach(server, found).for_each(|label| self.looks.push(label)),
            None if end.is_alias => self.waiting.doubt(server),
            _ if has_become_right => self.waiting.of_shard(&text_of(apex)).for_each(|label| self.looks.push(label)),
            _ => {}
        }
        if effect == Effect::Large {
            self.look_at_zone(apex);
        }
        if end.is_right && self.is_more_to_check(&end, is_better) {
            self.schedule_soon(apex, server, now);
        }
    }

    /// What a check says of its zone: how the server stands with it, and when the next check is due. The answer is for whom that
    /// is news, and whether the zone has become right.
    fn note_zone(&mut self, end: &End<'_>, result: Result<Serial, Fault>, random: u64) -> (Effect, bool) {
        let End { apex, server, is_alias, now, .. } = *end;
        let interval = self.config.interval;
        let alias_is_silent = self.zones.alias.standings[server].is_silent();
        let zone = self.zones.get_mut(apex).expect("landed has looked");
        let (serial, standing) = (zone.serial, &mut zone.standings[server]);
        let (was_right, showed_all) = (standing.state(serial) == State::Right, standing.shows_all());
        let (had_failed, was_silent) = (standing.has_failed(), standing.is_silent());
        let mut effect = standing.note(result, now);
        if !is_alias && standing.shows_all() != showed_all {
            effect = Effect::Large;
        }
        let has_become_right = !was_right && standing.state(serial) == State::Right;
        let mut wait = standing.next_wait(interval);
        let (is_urgent, is_silent) = (standing.is_failing(), standing.is_silent());
        if !is_urgent {
            // Between three quarters and five quarters, so that zones part that were first checked together.
            wait = wait.mul_f64(0.75 + (random >> 32) as f64 / f64::from(u32::MAX) / 2.0);
        } else if is_alias {
            wait = wait.min(ALIAS_RETRY);
        } else if is_silent && alias_is_silent {
            // The alias zone tells when the server answers again. To ask for each of thousands of zones meanwhile would keep all
            // checks busy with waiting.
            wait = wait.max(interval);
        }
        self.schedule(apex, server, is_urgent, now + wait);
        let is_awaited = is_alias && self.recovered[server].is_none();
        if (had_failed || is_awaited) && end.is_right || was_silent && !is_silent {
            self.recheck_failed(server, is_alias, now);
        } else if is_silent && !was_silent && !is_alias {
            // The alias zone is checked most often until the server answers again. Its check starts now, and its first answer
            // counts, even if its own check has not failed.
            self.recovered[server] = None;
            let alias_apex = self.config.settings.alias_apex().clone();
            self.schedule(&alias_apex, server, true, now);
        }
        (effect, has_become_right)
    }

    /// What a check says of the names that it asked for by themselves. The answer is whether one is right again that was not.
    fn note_names(&mut self, end: &End<'_>, mut faults: BTreeMap<usize, Fault>) -> bool {
        let End { apex, server, now, .. } = *end;
        let (mut is_news, mut is_early, mut is_better, mut again) = (false, false, false, None);
        for (at, label) in end.labels.iter().enumerate() {
            let Some(route) = self.routes.get_mut(label) else { continue };
            let fault = faults.remove(&at);
            let failed = fault.and_then(|fault| self.own.failed(label, end.slot, fault, now));
            let retry = failed.map(|(effect, standing)| (effect, standing.next_wait(self.config.interval)));
            if end.is_right && retry.is_none() {
                is_better |= self.own.right(label, end.slot);
            }
            if !end.is_right && !end.old.is_some_and(|(_, shown)| shown.has(at)) {
                is_early |= end.old.is_some() && now < route.since + PATIENCE * 2;
                continue;
            }
            route.to_ask &= !(1 << end.slot);
            if route.to_ask == 0 {
                self.asking.labels.remove(label);
            }
            // Before it is sure that a name fails there is nothing to be said.
            if retry.is_none_or(|(effect, _)| effect == Effect::Large) {
                self.looks.push(label);
            }
            if let Some((_, wait)) = retry {
                again = Some(again.map_or(wait, |again: Duration| again.min(wait)));
            }
            if let Some((found, _)) = end.old.filter(|_| end.is_alias) {
                self.behind.show(label, server, found);
                is_news = true;
            }
        }
        if is_news {
            // There may be more of them.
            self.schedule(apex, server, true, now + GAP);
        } else if is_early {
            self.schedule(apex, server, true, now + RETRY_LONGEST);
        }
        if let Some(wait) = again {
            self.schedule(apex, server, true, now + wait);
        }
        is_better
    }

    /// Whether a check that was right is to be followed by another at once: what has come while it was under way was no part of it,
    /// and while it failed more has come than one asks for. Where one name is right again, others that failed may be, too: each such
    /// check has fewer left.
    fn is_more_to_check(&self, end: &End<'_>, is_better: bool) -> bool {
        let zone = text_of(end.apex);
        let is_here =
            |label: &str| self.routes.get(label).filter(|route| end.is_alias || *route.binding.shard == *zone);
        let is_left = |label: &str| {
            let is_waiting = |shard: &str| self.asking.labels.contains(label) || self.waiting.contains(label, shard);
            is_here(label).is_some_and(|route| route.to_ask & (1 << end.slot) != 0 && is_waiting(&route.binding.shard))
        };
        let explicit = self.zones.shards.get(end.apex).into_iter().flat_map(|shard| &shard.explicit);
        let aliases = self.explicit_aliases.iter().filter(|_| end.is_alias);
        end.is_alias && end.found.is_some_and(|found| self.waiting.needs_after(found))
            || is_better && self.own.failing(end.slot).any(|label| is_here(label).is_some())
            || self.asking.labels.iter().chain(explicit).chain(aliases).any(|label| is_left(label))
    }

    /// Something of the server is right again: what else of it has failed is checked at once, and not only when its own turn
    /// comes. The pace of questions bounds that. `is_sure`: it was the zone that every server has.
    fn recheck_failed(&mut self, server: usize, is_sure: bool, now: Instant) {
        let last = &mut self.recovered[server];
        if !is_sure && last.is_some_and(|last| now < last + RECOVERY_GAP) {
            return;
        }
        *last = Some(now);
        let failed = self.zones.iter().filter(|(_, zone)| zone.standings[server].has_failed());
        for apex in failed.map(|(apex, _)| apex.clone()).collect::<Vec<_>>() {
            self.schedule(&apex, server, true, now);
        }
    }

    pub(super) fn schedule_soon(&mut self, apex: &Name, server: usize, now: Instant) {
        let Some(zone) = self.zones.get_mut(apex) else { return };
        let at = zone.standings[server].last_right.map_or(now, |right| now.max(right + GAP));
        self.schedule(apex, server, true, at);
    }

    /// Puts a check on the agenda, unless an earlier one is there, or one is under way.
    pub(super) fn schedule(&mut self, apex: &Name, server: usize, urgent: bool, at: Instant) {
        let Some(zone) = self.zones.get_mut(apex) else { return };
        if zone.standings[server].under_way {
            return;
        }
        let before = zone.due[server];
        if before.is_some_and(|(_, before)| before <= at) {
            return;
        }
        zone.due[server] = Some((urgent, at));
        if let Some((urgent, at)) = before {
            self.agenda.of(urgent).remove(&(at, apex.clone(), server));
        }
        self.agenda.of(urgent).insert((at, apex.clone(), server));
    }

    pub(super) fn unschedule(&mut self, apex: &Name, zone: &Zone) {
        for (server, due) in zone.due.iter().enumerate() {
            if let Some((urgent, at)) = due {
                self.agenda.of(*urgent).remove(&(*at, apex.clone(), server));
            }
        }
    }
}

impl Agenda {
    fn of(&mut self, is_urgent: bool) -> &mut BTreeSet<(Instant, Name, usize)> {
        if is_urgent { &mut self.urgent } else { &mut self.periodic }
    }
}

/// How a check has ended.
struct End<'a> {
    apex: &'a Name,
    server: usize,
    is_alias: bool,
    /// The routes whose own names were asked for, and the place of the server among those of their names.
    labels: &'a [Box<str>],
    slot: usize,
    is_right: bool,
    /// The version at which the server stays though it is too old, and what it shows all the same.
    old: Option<(Serial, Shown)>,
    /// The version that it has, if it answered.
    found: Option<Serial>,
    now: Instant,
}

impl<'a> End<'a> {
    /// Of a check of the alias zone or a shard; and what is wrong with single names, by their places.
    fn of(job: &'a Job, is_alias: bool, result: &Result<Seen, Fault>, now: Instant) -> (Self, BTreeMap<usize, Fault>) {
        let (found, old) = match result {
            Ok(seen) => (Some(seen.serial), None),
            Err(Fault::OldSerial { found, shown, .. }) => (Some(*found), Some((*found, *shown))),
            Err(_) => (None, None),
        };
        let slot = if is_alias { job.server + SERVERS_MAX } else { job.server };
        let faults = result.iter().flat_map(|seen| seen.faults.iter().cloned()).collect();
        let (apex, server, labels) = (&job.check.apex, job.server, &job.labels[..]);
        (End { apex, server, is_alias, labels, slot, is_right: result.is_ok(), old, found, now }, faults)
    }
}
