//! What is proven of which names, what is to be checked next, and what follows from a check. Pure: time and chance come in
//! as arguments.
//!
//! A name is proven when every listed name server has the zone at least in the version in which the name appeared, and
//! answers right. For that not every name must be asked for: a shard's wildcard answers for all of its names, and a version
//! of the alias zone holds all that were in it. So a check is one of a server and a *zone*, and proves all names that wait for
//! it. While few wait, as on an idle system, they are themselves the names that are asked for; else it is the wildcard by a
//! name of chance, and one alias. Names that a Router's `records` name have answers of their own, and are always asked for.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::check::{Check, Expected, Fault, PROBE_LABEL, Probe};
use super::feed::{AliasNews, ShardNews, ZoneNews};
use super::shard::Expectation;
use super::standing::{Effect, PATIENCE, Standing, State};
use crate::compiler::Settings;
use crate::compiler::inputs::{BindingInput, RouterInput};
use crate::wire::Name;
use crate::zone::Serial;

/// Most servers that are asked: a route remembers in one word which of them were asked for its own names.
pub const SERVERS_MAX: usize = 32;
/// While no more routes than this come within [`IDLE_WINDOW`], each is asked for by its own names.
const IDLE_MAX: usize = 4;
/// See [`IDLE_MAX`]: at most 20 routes a second cost questions of their own.
const IDLE_WINDOW: Duration = Duration::from_millis(200);
/// Most routes that are to be asked for by their own names: they pile up when a server is away and they are told so.
const ASKING_MAX: usize = 64;
/// Names with answers of their own that one check of a shard asks for; of more, others the next time.
const EXPLICIT_AT_A_TIME: usize = 8;
/// The least time between two checks of a server and a zone that are right: under steady change one check proves all that has
/// come meanwhile.
const GAP: Duration = Duration::from_millis(20);

/// A name server that is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its name, without a dot at the end; empty if it is known by its address alone.
    pub name: String,
    /// Where it answers.
    pub address: SocketAddr,
}

impl std::fmt::Display for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name.as_str() {
            "" => write!(f, "{}", self.address),
            name => write!(f, "{name} ({})", self.address),
        }
    }
}

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

/// The proofs of all names.
pub struct Proofs {
    pub(super) settings: Arc<Settings>,
    pub(super) servers: Box<[Server]>,
    /// Whether anyone is asked at all.
    pub(super) asks: bool,
    interval: Duration,
    pub(super) alias: Zone,
    pub(super) shards: HashMap<Name, Shard>,
    /// By label.
    pub(super) routes: HashMap<Box<str>, RouteState>,
    /// Routes that nothing can be said of yet.
    waiting: HashSet<Box<str>>,
    /// When the newest routes came, as many as may come on an idle system.
    arrivals: VecDeque<Instant>,
    /// Routes whose own names are to be asked for.
    asking: BTreeSet<Box<str>>,
    /// The route that was proven last: its alias is asked for when none else is.
    sample: Option<Box<str>>,
    /// Checks that something waits for.
    urgent: Agenda,
    /// Checks that see whether all still is as it was.
    periodic: Agenda,
    dirty: Dirty,
    later: BTreeSet<(Instant, Box<str>)>,
    changed_shards: HashSet<Name>,
    counts: BTreeMap<&'static str, usize>,
    /// How many contents of zones there were.
    epochs: u64,
}

/// What is said of routes that nothing is known of yet, where they are counted.
pub const PENDING: &str = "Pending";

/// A zone and how each server stands with it.
#[derive(Debug)]
pub(super) struct Zone {
    /// The version that the ledger named last; before it named any, no name is there either.
    pub serial: Serial,
    pub epoch: u64,
    pub standings: Box<[Standing]>,
    due: Box<[Option<(bool, Instant)>]>,
}

/// A shard.
#[derive(Debug)]
pub(super) struct Shard {
    pub zone: Zone,
    pub router: Arc<RouterInput>,
    pub expectation: Expectation,
    explicit: BTreeSet<Box<str>>,
    turn: usize,
}

/// A route's names.
#[derive(Debug)]
pub(super) struct RouteState {
    pub binding: Arc<BindingInput>,
    /// The version of the alias zone that it appeared in.
    pub serial: Serial,
    /// Since when that is known.
    pub since: Instant,
    /// Servers to be asked for its own names: below [`SERVERS_MAX`] about the shard, above about the alias.
    to_ask: u64,
    /// Why it is resolvable or not, as far as that is known.
    pub reason: Option<&'static str>,
}

type Agenda = BTreeSet<(Instant, Name, usize)>;

/// Routes to be judged, each once, in the order in which they came.
#[derive(Debug, Default)]
struct Dirty {
    line: VecDeque<Box<str>>,
    present: HashSet<Box<str>>,
}

impl Dirty {
    fn push(&mut self, label: &str) {
        if !self.present.contains(label) {
            self.present.insert(label.into());
            self.line.push_back(label.into());
        }
    }

    fn pop(&mut self) -> Option<Box<str>> {
        let label = self.line.pop_front()?;
        self.present.remove(&label);
        Some(label)
    }
}

impl Proofs {
    /// Nothing is known. Without `servers` nobody is asked; there are at most [`SERVERS_MAX`]. What is right is checked again
    /// after about `interval`.
    pub fn new(settings: Arc<Settings>, servers: Option<Vec<Server>>, interval: Duration) -> Self {
        let asks = servers.is_some();
        let mut servers = servers.unwrap_or_default();
        servers.truncate(SERVERS_MAX);
        Proofs {
            alias: Zone::new(servers.len(), Serial(0), 0),
            settings,
            servers: servers.into_boxed_slice(),
            asks,
            interval,
            shards: HashMap::new(),
            routes: HashMap::new(),
            waiting: HashSet::new(),
            arrivals: VecDeque::new(),
            asking: BTreeSet::new(),
            sample: None,
            urgent: Agenda::new(),
            periodic: Agenda::new(),
            dirty: Dirty::default(),
            later: BTreeSet::new(),
            changed_shards: HashSet::new(),
            counts: BTreeMap::new(),
            epochs: 0,
        }
    }

    /// The server at that place in the list.
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// The binding whose names are those of `label`.
    pub fn binding(&self, label: &str) -> Option<&Arc<BindingInput>> {
        self.routes.get(label).map(|route| &route.binding)
    }

    /// Takes what the ledger told.
    pub fn take(&mut self, news: ZoneNews, now: Instant) {
        for (apex, shard) in news.shards {
            self.take_shard(apex, shard, now);
        }
        if let Some(serial) = news.alias_serial {
            self.alias.serial = serial;
        }
        for (label, alias) in news.aliases {
            match alias {
                Some(alias) => self.take_alias(label, alias, now),
                None => self.forget(&label),
            }
        }
    }

    fn take_shard(&mut self, apex: Name, news: Option<ShardNews>, now: Instant) {
        let Some(ShardNews { router, serial }) = news else {
            if let Some(gone) = self.shards.remove(&apex) {
                self.unschedule(&apex, &gone.zone);
                self.look_at_zone(&apex);
            }
            return;
        };
        let known = self.shards.get_mut(&apex);
        if known.as_ref().is_some_and(|known| known.router == router && known.zone.serial == serial) {
            return;
        }
        let expectation = Expectation::new(&router, &self.settings);
        let explicit = match expectation.is_plain() {
            true => BTreeSet::new(),
            false => self.explicit_labels(&apex, &expectation),
        };
        self.epochs += 1;
        match self.shards.get_mut(&apex) {
            Some(known) => {
                known.zone.serial = serial;
                known.zone.epoch = self.epochs;
                known.zone.standings.iter_mut().for_each(Standing::forget);
                (known.router, known.expectation, known.explicit) = (router, expectation, explicit);
            }
            None => {
                let zone = Zone::new(self.servers.len(), serial, self.epochs);
                self.shards.insert(apex.clone(), Shard { zone, router, expectation, explicit, turn: 0 });
            }
        }
        self.changed_shards.insert(apex.clone());
        self.look_at_zone(&apex);
        for server in 0..self.servers.len() {
            self.schedule(&apex, server, true, now);
        }
    }

    fn explicit_labels(&self, apex: &Name, expectation: &Expectation) -> BTreeSet<Box<str>> {
        let of_shard = self.routes.iter().filter(|(_, route)| shard_of(&route.binding) == *apex);
        let explicit = of_shard.filter(|(_, route)| expectation.is_explicit(&system_name(&route.binding)));
        explicit.map(|(label, _)| label.clone()).collect()
    }

    fn take_alias(&mut self, label: Box<str>, news: AliasNews, now: Instant) {
        let AliasNews { binding, serial } = news;
        self.forget(&label);
        let apex = shard_of(&binding);
        let shard = self.shards.get_mut(&apex);
        let explicit =
            shard.filter(|shard| shard.expectation.is_explicit(&system_name(&binding))).is_some_and(|shard| {
                shard.explicit.insert(label.clone());
                true
            });
        let all = (1_u64 << self.servers.len()) - 1;
        let ask = self.is_idle(now) && self.asking.len() < ASKING_MAX;
        let to_ask = match (ask, explicit) {
            (true, _) => all | (all << SERVERS_MAX),
            (false, true) => all,
            (false, false) => 0,
        };
        self.count(None, Some(PENDING));
        self.routes.insert(label.clone(), RouteState { binding, serial, since: now, to_ask, reason: None });
        self.dirty.push(&label);
        self.waiting.insert(label.clone());
        if ask {
            self.asking.insert(label);
        }
        let alias = self.settings.alias_apex().clone();
        for server in 0..self.servers.len() {
            self.schedule_soon(&alias, server, now);
            if to_ask != 0 {
                self.schedule_soon(&apex, server, now);
            }
        }
    }

    /// Whether few routes come, of which there is one now.
    fn is_idle(&mut self, now: Instant) -> bool {
        while self.arrivals.front().is_some_and(|at| *at + IDLE_WINDOW <= now) {
            self.arrivals.pop_front();
        }
        let is_idle = self.arrivals.len() < IDLE_MAX;
        if is_idle {
            self.arrivals.push_back(now);
        }
        is_idle
    }

    fn count(&mut self, off: Option<&'static str>, on: Option<&'static str>) {
        if let Some(count) = off.and_then(|reason| self.counts.get_mut(reason)) {
            *count -= 1;
        }
        if let Some(reason) = on {
            *self.counts.entry(reason).or_default() += 1;
        }
    }

    /// The names of `label` are no more.
    fn forget(&mut self, label: &str) {
        let Some(route) = self.routes.remove(label) else { return };
        self.count(Some(route.reason.unwrap_or(PENDING)), None);
        self.waiting.remove(label);
        self.asking.remove(label);
        if let Some(shard) = self.shards.get_mut(&shard_of(&route.binding)) {
            shard.explicit.remove(label);
        }
        if self.sample.as_deref() == Some(label) {
            self.sample = None;
        }
    }

    /// The route of `label` is to be judged.
    pub fn look_at(&mut self, label: &str) {
        if self.routes.contains_key(label) {
            self.dirty.push(label);
        }
    }

    /// The route of `label` is to be judged again when it has waited for too long.
    pub fn look_at_when_late(&mut self, label: &str, now: Instant) {
        if let Some(at) = self.routes.get(label).map(|route| route.since + PATIENCE).filter(|at| *at > now) {
            self.later.insert((at, label.into()));
        }
    }

    /// Whether name servers are asked at all.
    pub fn asks_anyone(&self) -> bool {
        self.asks
    }

    /// The same, at a later time.
    pub fn look_at_later(&mut self, label: &str, at: Instant) {
        self.later.insert((at, label.into()));
    }

    /// All routes with names in the zone are to be judged.
    fn look_at_zone(&mut self, apex: &Name) {
        let is_alias = *apex == *self.settings.alias_apex();
        let text = crate::compiler::settings::text_of(apex);
        for (label, route) in &self.routes {
            if is_alias || *route.binding.shard == *text {
                self.dirty.push(label);
            }
        }
    }

    /// The next route to be judged.
    pub fn pop_dirty(&mut self, now: Instant) -> Option<Box<str>> {
        while let Some((at, _)) = self.later.first()
            && *at <= now
        {
            let (_, label) = self.later.pop_first().expect("it was there");
            self.look_at(&label);
        }
        self.dirty.pop()
    }

    /// The next shard whose Router is to be judged.
    pub fn pop_changed_shard(&mut self) -> Option<Name> {
        let apex = self.changed_shards.iter().next()?.clone();
        self.changed_shards.take(&apex)
    }

    /// A shard's Router is to be judged again.
    pub fn look_at_shard(&mut self, apex: Name) {
        self.changed_shards.insert(apex);
    }

    /// The route of `label` was judged: with this reason, or `None` if nothing can be said yet.
    pub fn note(&mut self, label: &str, reason: Option<&'static str>) {
        let Some(route) = self.routes.get_mut(label) else { return };
        let Some(reason) = reason else {
            // What was said before stands until there is something else to say.
            if route.reason.is_none() {
                self.waiting.insert(label.into());
            }
            return;
        };
        let before = route.reason.replace(reason).unwrap_or(PENDING);
        self.waiting.remove(label);
        self.sample = Some(label.into());
        self.count(Some(before), Some(reason));
    }

    /// How many routes there are for each reason ever met; those that nothing can be said of yet are [`PENDING`].
    pub fn reasons(&self) -> &BTreeMap<&'static str, usize> {
        &self.counts
    }

    /// When to ask for [`Self::next_job`] again, if nothing happens before.
    pub fn next_check_at(&self) -> Option<Instant> {
        [&self.urgent, &self.periodic].into_iter().filter_map(|agenda| agenda.first()).map(|(at, ..)| *at).min()
    }

    /// When to ask for [`Self::pop_dirty`] again, if nothing happens before.
    pub fn next_look_at(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// The next check that is due. Its end is to be told by [`Self::landed`]. `random` is a number of chance.
    pub fn next_job(&mut self, now: Instant, random: u64) -> Option<Job> {
        let is_due = |agenda: &Agenda| agenda.first().is_some_and(|(at, ..)| *at <= now);
        let agenda = if is_due(&self.urgent) {
            &mut self.urgent
        } else if is_due(&self.periodic) {
            &mut self.periodic
        } else {
            return None;
        };
        let (_, apex, server) = agenda.pop_first().expect("it was there");
        let job = match apex == *self.settings.alias_apex() {
            true => self.alias_job(server),
            false => self.shard_job(&apex, server, random),
        };
        let zone = self.zone_mut(&apex)?;
        zone.due[server] = None;
        zone.standings[server].under_way = true;
        job
    }

    fn shard_job(&mut self, apex: &Name, server: usize, random: u64) -> Option<Job> {
        let shard = self.shards.get_mut(apex)?;
        let bit = 1_u64 << server;
        let routes = &self.routes;
        let of_shard = |label: &&Box<str>| {
            routes.get(*label).is_some_and(|route| route.to_ask & bit != 0 && shard_of(&route.binding) == *apex)
        };
        let mut labels: Vec<Box<str>> = self.asking.iter().filter(of_shard).take(IDLE_MAX).cloned().collect();
        let count = shard.explicit.len();
        if count > 0 {
            let explicit = shard.explicit.iter().cycle().skip(shard.turn % count).take(EXPLICIT_AT_A_TIME.min(count));
            labels.extend(explicit.cloned());
            shard.turn = shard.turn.wrapping_add(EXPLICIT_AT_A_TIME);
            labels.sort();
            labels.dedup();
        }
        let mut probes: Vec<Probe> = labels
            .iter()
            .filter_map(|label| routes.get(label))
            .map(|route| system_name(&route.binding))
            .map(|name| Probe { expected: shard.expectation.of(&name).clone(), name })
            .collect();
        let is_seen = |probe: &Probe| !shard.expectation.is_explicit(&probe.name);
        if !probes.iter().any(is_seen)
            && let Ok(name) = apex.prepend(format!("{PROBE_LABEL}{random:016x}").as_bytes())
        {
            probes.push(Probe { expected: shard.expectation.of(&name).clone(), name });
        }
        let check = Check { apex: apex.clone(), serial: shard.zone.serial, probes };
        Some(Job { server, check, epoch: shard.zone.epoch, labels })
    }

    fn alias_job(&mut self, server: usize) -> Option<Job> {
        let bit = 1_u64 << (server + SERVERS_MAX);
        let wants = |label: &&Box<str>| self.routes.get(*label).is_some_and(|route| route.to_ask & bit != 0);
        let labels: Vec<Box<str>> = self.asking.iter().filter(wants).take(IDLE_MAX).cloned().collect();
        // Under steady change a server is always a little behind: what has waited longest is what it must have.
        let waiting = self.waiting.iter().filter_map(|label| Some(self.routes.get(label)?.serial));
        let oldest = waiting.reduce(|a, b| if a.is_after(b) { b } else { a });
        let asked = labels.iter().filter_map(|label| Some(self.routes.get(label)?.serial));
        let serial = asked.fold(oldest.unwrap_or(self.alias.serial), |a, b| if b.is_after(a) { b } else { a });
        if self.sample.is_none() {
            self.sample = self.routes.keys().next().cloned();
        }
        let sample = self.sample.iter().filter(|label| {
            labels.is_empty() && self.routes.get(*label).is_some_and(|route| !route.serial.is_after(serial))
        });
        let probes = labels.iter().chain(sample).filter_map(|label| {
            let name = self.settings.alias_apex().prepend(label.as_bytes()).ok()?;
            Some(Probe { name, expected: Expected::Alias(system_name(&self.routes.get(label)?.binding)) })
        });
        let check = Check { apex: self.settings.alias_apex().clone(), serial, probes: probes.collect() };
        Some(Job { server, check, epoch: self.alias.epoch, labels })
    }

    /// A check has ended; `random` is a number of chance.
    pub fn landed(&mut self, job: &Job, result: Result<Serial, Fault>, now: Instant, random: u64) {
        let Job { server, check: Check { apex, .. }, epoch, labels } = job;
        let (server, interval) = (*server, self.interval);
        let is_alias = *apex == *self.settings.alias_apex();
        let is_right = result.is_ok();
        let Some(zone) = self.zone_mut(apex) else { return };
        let standing = &mut zone.standings[server];
        standing.under_way = false;
        if zone.epoch != *epoch {
            return self.schedule(apex, server, true, now);
        }
        let effect = standing.note(result, now);
        let mut wait = standing.next_wait(interval);
        let is_urgent = standing.is_failing();
        if !is_urgent {
            // Between three quarters and five quarters, so that zones part that were first checked together.
            wait = wait.mul_f64(0.75 + (random >> 32) as f64 / f64::from(u32::MAX) / 2.0);
        }
        self.schedule(apex, server, is_urgent, now + wait);
        let bit = 1_u64 << if is_alias { server + SERVERS_MAX } else { server };
        if is_right {
            for label in labels {
                if let Some(route) = self.routes.get_mut(label) {
                    route.to_ask &= !bit;
                    if route.to_ask == 0 {
                        self.asking.remove(label);
                    }
                }
            }
        }
        if !is_alias {
            self.changed_shards.insert(apex.clone());
        }
        if effect == Effect::Large {
            return self.look_at_zone(apex);
        }
        let mut more = false;
        for label in &self.waiting {
            let Some(route) = self.routes.get(label) else { continue };
            if is_alias || shard_of(&route.binding) == *apex {
                self.dirty.push(label);
                let reached = !is_alias || self.alias.standings[server].state(route.serial) == State::Right;
                more |= is_right && (route.to_ask & bit != 0 || !reached);
            }
        }
        // What has come while the check was under way was no part of it.
        if more {
            self.schedule_soon(apex, server, now);
        }
    }

    /// Whether a route waits until this server was asked for its own names.
    pub(super) fn is_to_be_asked(route: &RouteState, server: usize) -> bool {
        route.to_ask & ((1 << server) | (1 << (server + SERVERS_MAX))) != 0
    }

    fn schedule_soon(&mut self, apex: &Name, server: usize, now: Instant) {
        let Some(zone) = self.zone_mut(apex) else { return };
        let at = zone.standings[server].last_right.map_or(now, |right| now.max(right + GAP));
        self.schedule(apex, server, true, at);
    }

    /// Puts a check on the agenda, unless an earlier one is there, or one is under way.
    fn schedule(&mut self, apex: &Name, server: usize, urgent: bool, at: Instant) {
        let Some(zone) = self.zone_mut(apex) else { return };
        if zone.standings[server].under_way {
            return;
        }
        let before = zone.due[server];
        if before.is_some_and(|(_, before)| before <= at) {
            return;
        }
        zone.due[server] = Some((urgent, at));
        if let Some((urgent, at)) = before {
            self.agenda(urgent).remove(&(at, apex.clone(), server));
        }
        self.agenda(urgent).insert((at, apex.clone(), server));
    }

    fn unschedule(&mut self, apex: &Name, zone: &Zone) {
        for (server, due) in zone.due.iter().enumerate() {
            if let Some((urgent, at)) = due {
                self.agenda(*urgent).remove(&(*at, apex.clone(), server));
            }
        }
    }

    fn agenda(&mut self, urgent: bool) -> &mut Agenda {
        if urgent { &mut self.urgent } else { &mut self.periodic }
    }

    fn zone_mut(&mut self, apex: &Name) -> Option<&mut Zone> {
        match *apex == *self.settings.alias_apex() {
            true => Some(&mut self.alias),
            false => self.shards.get_mut(apex).map(|shard| &mut shard.zone),
        }
    }
}

impl Zone {
    fn new(servers: usize, serial: Serial, epoch: u64) -> Self {
        Zone {
            serial,
            epoch,
            standings: (0..servers).map(|_| Standing::default()).collect(),
            due: (0..servers).map(|_| None).collect(),
        }
    }
}

/// The zone of the shard that a binding names.
pub(super) fn shard_of(binding: &BindingInput) -> Name {
    binding.shard.parse().expect("BindingInput::read has checked it")
}

/// The name on the shard.
pub(super) fn system_name(binding: &BindingInput) -> Name {
    shard_of(binding).prepend(binding.label.as_bytes()).expect("BindingInput::read has checked the length")
}
