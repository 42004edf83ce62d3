//! The state of name verification: the zones, the routes with names in them, and their results. Pure: time and chance are arguments.
//!
//! A name is verified when every listed name server has at least the version of the zone in which the name appeared, and answers
//! correctly. Not every name needs a query for that: a shard's wildcard answers for all of its names, and a version of the alias
//! zone contains all aliases of that time. So a check covers a *zone* on a server, and verifies all names that wait for it. A
//! name is also queried separately if
//!
//! - its Route is new and few are new, as on an idle system;
//! - it has an answer of its own (a record of the Router, or a zone file), or the server has answered incorrectly for it;
//! - it is an alias, and the server stays at an older version of the alias zone, as in a deletion hold.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::check::{DELETION_HELD, OLD_SERIAL};
use super::feed::{WithheldShards, ZoneUpdate};
use super::server_zone::{DOUBT, Failure, ServerZone};
use crate::compiler::former_names::top_label;
use crate::compiler::inputs::BindingInput;
use crate::compiler::{Settings, ShardView};
use crate::put::Put as _;
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;
use signpost_types::v1alpha1::deletion_hold::DeletionHoldKind;

/// The maximum number of servers: one machine word per route marks the servers that must be queried for its own names.
pub const SERVERS_MAX: usize = 32;
/// Each of this many routes within [`IDLE_WINDOW`] is queried by its own names.
pub(super) const IDLE_MAX: usize = 4;
/// The window of [`IDLE_MAX`]: at most 20 routes per second cause queries of their own.
const IDLE_WINDOW: Duration = Duration::from_millis(200);
/// The maximum number of routes that wait for such a query: they accumulate while a server is unreachable.
const SAMPLED_MAX: usize = 64;
/// The maximum number of aliases in one check of a server that stays at an old version.
const UNSHOWN_MAX: usize = 32;
/// The routes that one search for aliases checks that a server has not shown: many may be verified on this server and wait for
/// another.
const SEARCHED_MAX: usize = 1024;

/// The reason under which routes with an unknown state are counted.
pub const PENDING: &str = "Pending";

/// A name server that is queried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// The server's name, without a trailing dot; empty if only the address is configured.
    pub name: String,
    /// The server's address.
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

/// The state. Routes are found by their labels.
pub struct VerificationState {
    pub(super) config: Config,
    pub(super) zones: Zones,
    pub(super) routes: HashMap<Box<str>, RouteEntry>,
    /// The labels of each shard's routes.
    labels: HashMap<Name, HashSet<Box<str>>>,
    reasons: BTreeMap<&'static str, usize>,
    pub(super) waiting: Waiting,
    pub(super) sampled: Sampled,
    /// The names that servers answer incorrectly although the zone is correct. There is a slot for each server and kind of zone
    /// ([`slot`]).
    pub(super) failing: Box<[BTreeMap<Box<str>, Failure>]>,
    /// The versions of the alias zone in which servers that stay at old ones have shown aliases.
    shown: HashMap<Box<str>, BTreeMap<usize, Serial>>,
    /// The routes whose condition reports such a server.
    stale: BTreeSet<Box<str>>,
    /// The apexes of the zones that this process serves from files.
    files: BTreeSet<Name>,
    /// The deletion holds that name servers have entered.
    deletion_holds: BTreeMap<String, DeletionHoldKind>,
    /// The due checks: those for waiting names, and the periodic ones.
    pub(super) due: [BTreeSet<(Instant, Name, usize)>; 2],
    /// The time at which all failed names of a server were last checked again.
    pub(super) rechecked: Box<[Option<Instant>]>,
    changed: Changed,
}

/// The servers, and the platform whose names they answer.
pub(super) struct Config {
    pub platform: Arc<Settings>,
    pub servers: Box<[Server]>,
    /// Whether name servers are queried at all.
    pub queries: bool,
    /// The approximate time after which correct answers are checked again.
    pub interval: Duration,
    /// The time without an answer after which a server is not waited for.
    pub silence_longest: Duration,
}

pub(super) struct Zones {
    pub alias: Zone,
    pub shards: HashMap<Name, Shard>,
    /// The Routers of zones whose serials the API rejects, with the reason.
    pub refused: HashMap<Name, (Box<str>, String)>,
    /// The shards that are not served, because names of the zone around them are in the way.
    pub withheld: WithheldShards,
    /// The number of zone contents so far.
    epochs: u64,
}

/// The routes with an unknown state, in the order of the versions of the alias zone that they need.
pub(super) struct Waiting {
    pub routes: BTreeSet<(u64, Box<str>)>,
    /// The newest version of the alias zone.
    newest: u64,
    /// The version up to which each server has shown the alias zone, without a fault since.
    pub reached: Box<[Option<u64>]>,
}

/// The new routes that are queried by their own names, and the arrival times of the last of them.
#[derive(Debug, Default)]
pub(super) struct Sampled {
    pub labels: BTreeSet<Box<str>>,
    arrivals: VecDeque<Instant>,
}

#[derive(Debug)]
pub(super) struct Zone {
    /// The newest version, by the serial allocator.
    pub serial: Serial,
    /// A number for its contents: answers about earlier contents do not count.
    pub epoch: u64,
    pub servers: Box<[ZoneServer]>,
}

/// A zone on a server, with its checks.
#[derive(Debug, Default)]
pub(super) struct ZoneServer {
    pub state: ServerZone,
    /// The next check: its place in [`VerificationState::due`], and its time.
    pub due: Option<(usize, Instant)>,
    pub in_flight: bool,
    /// The number of checks so far: each queries different names.
    pub queried: usize,
}

#[derive(Debug)]
pub(super) struct Shard {
    pub zone: Zone,
    pub router: Arc<ShardView>,
    /// The time since which the zone is known.
    pub since: Instant,
}

/// A route's names.
#[derive(Debug)]
pub(super) struct RouteEntry {
    pub binding: Arc<BindingInput>,
    /// The version of the alias zone in which the route appeared.
    pub version: u64,
    /// The time since which that is known.
    pub since: Instant,
    /// The slots in which the route's own names must be queried before anything is reported.
    pub to_query: u64,
    /// The reason of its condition, if that is known.
    reason: Option<&'static str>,
}

impl RouteEntry {
    /// Returns the serial of the alias zone in which it appeared.
    pub fn serial(&self) -> Serial {
        serial_of(self.version)
    }
}

/// The routes and shards whose conditions must be computed.
#[derive(Debug, Default)]
struct Changed {
    queue: VecDeque<Box<str>>,
    queued: HashSet<Box<str>>,
    later: BTreeSet<(Instant, Box<str>)>,
    shards: HashSet<Name>,
}

impl VerificationState {
    /// Returns an empty state. Without `servers`, none is queried; there are at most [`SERVERS_MAX`]. Correct answers are checked
    /// again after about `interval`. A server without an answer for `silence_longest` is not waited for.
    pub fn new(
        platform: Arc<Settings>,
        servers: Option<Vec<Server>>,
        interval: Duration,
        silence_longest: Duration,
    ) -> Self {
        let queries = servers.is_some();
        let mut servers = servers.unwrap_or_default();
        servers.truncate(SERVERS_MAX);
        let alias = Zone::new(servers.len(), Serial(0), 0);
        VerificationState {
            zones: Zones {
                alias,
                shards: HashMap::new(),
                refused: HashMap::new(),
                withheld: WithheldShards::new(),
                epochs: 0,
            },
            routes: HashMap::new(),
            labels: HashMap::new(),
            reasons: BTreeMap::new(),
            // High enough for versions before the first.
            waiting: Waiting { routes: BTreeSet::new(), newest: 1 << 32, reached: vec![None; servers.len()].into() },
            sampled: Sampled::default(),
            failing: (0..SERVERS_MAX * 2).map(|_| BTreeMap::new()).collect(),
            shown: HashMap::new(),
            stale: BTreeSet::new(),
            files: BTreeSet::new(),
            deletion_holds: BTreeMap::new(),
            due: Default::default(),
            rechecked: vec![None; servers.len()].into(),
            changed: Changed::default(),
            config: Config { platform, servers: servers.into_boxed_slice(), queries, interval, silence_longest },
        }
    }

    /// Returns whether the existence of a shard's zone outside the platform's domain changes to `is_there`.
    pub fn is_other_elsewhere(&self, apex: &Name, is_there: bool) -> bool {
        !apex.is_below(self.config.platform.domain()) && self.zones.shards.contains_key(apex) != is_there
    }

    /// Returns the binding with the names of `label`.
    pub fn binding(&self, label: &str) -> Option<&Arc<BindingInput>> {
        self.routes.get(label).map(|route| &route.binding)
    }

    /// Sets the deletion holds that name servers have entered.
    pub fn set_deletion_holds(&mut self, deletion_holds: BTreeMap<String, DeletionHoldKind>) {
        if std::mem::replace(&mut self.deletion_holds, deletion_holds) != self.deletion_holds {
            self.stale.iter().for_each(|label| self.changed.push(label));
            let is_failing = |shard: &Shard| shard.zone.servers.iter().any(|server| server.state.is_failing());
            let failing = self.zones.shards.iter().filter(|(_, shard)| is_failing(shard));
            self.changed.shards.extend(failing.map(|(apex, _)| apex.clone()));
        }
    }

    /// Returns whether a DeletionHold may keep the zone older than the serial allocator has it: bindings are in the alias zone,
    /// and in their shards while former names exist there; a Router is in its shard.
    pub(super) fn has_deletion_hold(&self, apex: &Name) -> bool {
        let is_alias = self.is_alias(apex);
        self.deletion_holds.values().any(|kind| !is_alias || *kind == DeletionHoldKind::RouteBinding)
    }

    /// Sets the apexes of the zones that are served from files. One inside a zone of the platform hides a part of it, so the
    /// routes there are queried by their names from then on.
    pub fn set_files(&mut self, files: BTreeSet<Name>, now: Instant) {
        let before = std::mem::replace(&mut self.files, files);
        for file in &before ^ &self.files {
            let mut above = std::iter::successors(file.parent(), Name::parent);
            if let Some(apex) = above.find(|apex| self.zone(apex).is_some()) {
                (0..self.config.servers.len()).for_each(|server| self.schedule(&apex, server, true, now));
            }
        }
    }

    /// Applies an update of the zones.
    pub fn apply(&mut self, update: ZoneUpdate, now: Instant) {
        for (apex, shard) in update.shards {
            match shard {
                Some((router, serial)) => self.set_shard(apex, router, serial, now),
                None => self.remove_shard(&apex),
            }
        }
        for (apex, refused) in update.refused {
            let refused = refused.map(|(router, error)| (router.name.clone(), error));
            self.zones.refused.put(apex.clone(), refused);
            self.changed.shards.insert(apex);
        }
        if let Some(withheld) = update.withheld {
            let before = std::mem::replace(&mut self.zones.withheld, withheld);
            self.changed.shards.extend(before.into_keys().chain(self.zones.withheld.keys().cloned()));
        }
        if let Some(serial) = update.alias_serial {
            self.zones.alias.serial = serial;
        }
        for (label, alias) in update.aliases {
            self.remove_alias(&label);
            if let Some((binding, serial)) = alias {
                self.add_alias(label, binding, serial, now);
            }
        }
    }

    fn remove_shard(&mut self, apex: &Name) {
        self.zones.refused.remove(apex);
        let Some(shard) = self.zones.shards.remove(apex) else { return };
        for (server, entry) in shard.zone.servers.iter().enumerate() {
            if let Some((place, at)) = entry.due {
                self.due[place].remove(&(at, apex.clone(), server));
            }
        }
        self.queue_zone(apex);
    }

    fn set_shard(&mut self, apex: Name, router: Arc<ShardView>, serial: Serial, now: Instant) {
        let known = self.zones.shards.get(&apex);
        let has_other_contents = known.is_none_or(|known| known.router != router);
        if !has_other_contents && known.is_some_and(|known| known.zone.serial == serial) {
            return;
        }
        if has_other_contents {
            self.zones.epochs += 1;
            let (zone, since) = self.zones.shards.remove(&apex).map(|known| (known.zone, known.since)).unzip();
            let mut zone = zone.unwrap_or_else(|| Zone::new(self.config.servers.len(), serial, 0));
            zone.epoch = self.zones.epochs;
            let shard = Shard { zone, router, since: since.unwrap_or(now) };
            self.zones.shards.insert(apex.clone(), shard);
            self.queue_zone(&apex);
        }
        let zone = self.zone_mut(&apex).expect("it was there, or has come");
        zone.serial = serial;
        zone.servers.iter_mut().for_each(|server| server.state.forget(has_other_contents));
        (0..self.config.servers.len()).for_each(|server| self.schedule(&apex, server, true, now));
        self.changed.shards.insert(apex);
    }

    fn add_alias(&mut self, label: Box<str>, binding: Arc<BindingInput>, serial: Serial, now: Instant) {
        let (shard, alias) = (shard_of(&binding), self.config.platform.alias_apex().clone());
        let version = self.waiting.version(serial);
        self.waiting.newest = self.waiting.newest.max(version);
        self.labels.entry(shard.clone()).or_default().insert(label.clone());
        self.waiting.routes.insert((version, label.clone()));
        self.count(None, Some(PENDING));
        let entry = RouteEntry { binding, version, since: now, to_query: 0, reason: None };
        self.routes.insert(label.clone(), entry);
        self.changed.push(&label);
        let is_sampled = self.sampled.has_room(now);
        let all = (1_u64 << self.config.servers.len()) - 1;
        let bits = |is_queried: bool, slot: usize| if is_queried { all << slot } else { 0 };
        let on_shard = is_sampled || self.has_own_answer(&shard, &label);
        let on_alias = is_sampled || self.has_own_answer(&alias, &label);
        let to_query = bits(on_shard, slot(0, false)) | bits(on_alias, slot(0, true));
        for server in 0..self.config.servers.len() {
            self.schedule_soon(&alias, server, now);
            if on_shard || on_alias {
                self.schedule_soon(&shard, server, now);
            }
        }
        self.routes.get_mut(&label).expect("it has just come").to_query = to_query;
        if is_sampled {
            self.sampled.labels.insert(label);
        }
    }

    fn remove_alias(&mut self, label: &str) {
        let Some(route) = self.routes.remove(label) else { return };
        self.count(Some(route.reason.unwrap_or(PENDING)), None);
        self.waiting.routes.remove(&(route.version, label.into()));
        self.sampled.labels.remove(label);
        self.shown.remove(label);
        self.stale.remove(label);
        self.failing.iter_mut().for_each(|names| drop(names.remove(label)));
        let shard = shard_of(&route.binding);
        if let Some(labels) = self.labels.get_mut(&shard) {
            labels.remove(label);
            if labels.is_empty() {
                self.labels.remove(&shard);
            }
        }
    }

    /// Returns the names of the zone that have answers of their own, by labels of routes.
    pub(super) fn labels_with_own_answers(&self, apex: &Name) -> BTreeSet<Box<str>> {
        let shard = self.zones.shards.get(apex);
        let explicit = shard.into_iter().flat_map(|shard| shard.router.expectation.explicit());
        // In canonical order, all names below a name follow it directly.
        let files = self.files.range(apex..).take_while(|file| file.is_at_or_below(apex));
        let labels = explicit.chain(files).filter_map(|name| String::from_utf8(top_label(name, apex)?.into()).ok());
        labels.map(String::into_boxed_str).filter(|label| self.name_in(apex, label).is_some()).collect()
    }

    fn has_own_answer(&self, apex: &Name, label: &str) -> bool {
        let Some(name) = self.name_in(apex, label) else { return false };
        let is_explicit = self.zones.shards.get(apex).is_some_and(|shard| shard.router.expectation.is_explicit(&name));
        is_explicit || self.files.range(&name..).next().is_some_and(|file| file.is_at_or_below(&name))
    }

    /// Returns the name of the route of `label` in the zone; `None` if it has none, or the name has another use.
    pub(super) fn name_in(&self, apex: &Name, label: &str) -> Option<Name> {
        let route = self.routes.get(label)?;
        if self.is_alias(apex) {
            return apex.prepend(label.as_bytes()).ok();
        }
        let shard = self.zones.shards.get(apex).filter(|_| shard_of(&route.binding) == *apex)?;
        let name = route.binding.name();
        shard.router.expectation.conflict(&name).is_none().then_some(name)
    }

    /// Returns whether a route waits until the zone's server of the slot was queried for its own name.
    pub(super) fn is_to_query(&self, apex: &Name, label: &str, slot: usize) -> bool {
        let is_set = self.routes.get(label).is_some_and(|route| route.to_query & (1 << slot) != 0);
        is_set && self.name_in(apex, label).is_some()
    }

    /// Records that the route of `label` was queried in the slot.
    pub(super) fn set_queried(&mut self, label: &str, slot: usize) {
        let Some(route) = self.routes.get_mut(label) else { return };
        route.to_query &= !(1 << slot);
        if route.to_query == 0 {
            self.sampled.labels.remove(label);
        }
    }

    /// Schedules another evaluation of the route of `label` for when it has waited too long.
    pub fn queue_when_late(&mut self, label: &str, now: Instant) {
        if let Some(at) = self.routes.get(label).map(|route| route.since + DOUBT).filter(|at| *at > now) {
            self.changed.later.insert((at, label.into()));
        }
    }

    /// Schedules another evaluation of the route of `label`.
    pub fn queue_at(&mut self, label: &str, at: Instant) {
        self.changed.later.insert((at, label.into()));
    }

    /// Returns the time from which each server is reported as silent, if it does not answer before; by the alias zone, which is
    /// checked whenever another zone finds a server silent.
    pub fn silent_from(&self) -> impl Iterator<Item = Option<Instant>> {
        let since = self.zones.alias.servers.iter().map(|server| server.state.silent_since());
        since.map(|since| Some(since? + self.config.silence_longest))
    }

    /// Queues the computation of the conditions of the route of `label`.
    pub fn queue(&mut self, label: &str) {
        self.changed.push(label);
    }

    /// Queues the computation for all routes with names in the zone.
    pub(super) fn queue_zone(&mut self, apex: &Name) {
        if self.is_alias(apex) {
            self.routes.keys().for_each(|label| self.changed.push(label));
        } else {
            self.labels.get(apex).into_iter().flatten().for_each(|label| self.changed.push(label));
        }
    }

    /// Queues the computation of the conditions of the shard's Router.
    pub(super) fn queue_shard(&mut self, apex: &Name) {
        self.changed.shards.insert(apex.clone());
    }

    /// Takes the next route whose conditions must be computed.
    pub fn next_route(&mut self, now: Instant) -> Option<Box<str>> {
        std::iter::from_fn(|| self.changed.pop(now)).find(|label| self.routes.contains_key(label))
    }

    /// Takes the next shard whose Router's conditions must be computed.
    pub fn next_shard(&mut self) -> Option<Name> {
        let apex = self.changed.shards.iter().next()?.clone();
        self.changed.shards.take(&apex)
    }

    /// Returns the time at which the next late route must be evaluated.
    pub fn next_late_at(&self) -> Option<Instant> {
        self.changed.later.first().map(|(at, _)| *at)
    }

    /// Records the reason of a route's condition, or `None` if its state is unknown: then its condition stays until the next
    /// correct check can change it.
    pub fn set_reason(&mut self, label: &str, reason: Option<&'static str>) {
        let Some(route) = self.routes.get_mut(label) else { return };
        let entry = (route.version, label.into());
        let Some(reason) = reason else {
            self.waiting.routes.insert(entry);
            return;
        };
        let before = route.reason.replace(reason).unwrap_or(PENDING);
        self.waiting.routes.remove(&entry);
        match matches!(reason, OLD_SERIAL | DELETION_HELD) {
            true => drop(self.stale.insert(label.into())),
            false => drop(self.stale.remove(label)),
        }
        self.count(Some(before), Some(reason));
    }

    /// Returns the number of routes for each reason so far, [`PENDING`] included.
    pub fn reasons(&self) -> &BTreeMap<&'static str, usize> {
        &self.reasons
    }

    fn count(&mut self, off: Option<&'static str>, on: Option<&'static str>) {
        if let Some(count) = off.and_then(|reason| self.reasons.get_mut(reason)) {
            *count -= 1;
        }
        if let Some(reason) = on {
            *self.reasons.entry(reason).or_default() += 1;
        }
    }

    /// Returns at most [`UNSHOWN_MAX`] aliases that the version `found`, at which the server stays, may lack, and that it has not
    /// shown: first those with an unknown state, and then some of those whose condition reports the server, different ones each
    /// time.
    pub(super) fn unshown(&self, server: usize, found: Serial) -> Vec<Box<str>> {
        let start = self.zones.alias.servers[server].queried * UNSHOWN_MAX % self.stale.len().max(1);
        let stale = self.stale.iter().cycle().skip(start).take(self.stale.len().min(SEARCHED_MAX));
        let is_unshown = |label: &str| {
            let needs = self.routes.get(label).is_some_and(|route| route.serial().is_after(found));
            needs && self.shown_in(label, server).is_none()
        };
        let waiting = self.waiting.routes.iter().map(|(_, label)| label);
        waiting.chain(stale).filter(|label| is_unshown(label)).take(UNSHOWN_MAX).cloned().collect()
    }

    /// Records that the server, which stays at the version `found`, has shown the alias.
    pub(super) fn set_shown(&mut self, label: &str, server: usize, found: Serial) {
        self.shown.entry(label.into()).or_default().insert(server, found);
    }

    /// Returns the version in which the server has shown the alias.
    pub(super) fn shown_in(&self, label: &str, server: usize) -> Option<Serial> {
        self.shown.get(label)?.get(&server).copied()
    }

    /// Records that a server has the alias zone in this version, and queues the routes that wait for it and that the server had
    /// not shown.
    pub(super) fn reach(&mut self, server: usize, serial: Serial) {
        let version = self.waiting.version(serial);
        let first = self.waiting.reached[server].replace(version).map_or(0, |before| before + 1);
        let shown = self.waiting.routes.range((first, Box::default())..).take_while(|(needs, _)| *needs <= version);
        shown.for_each(|(_, label)| self.changed.push(label));
    }

    pub(super) fn is_alias(&self, apex: &Name) -> bool {
        apex == self.config.platform.alias_apex()
    }

    pub(super) fn zone(&self, apex: &Name) -> Option<&Zone> {
        if self.is_alias(apex) { Some(&self.zones.alias) } else { self.zones.shards.get(apex).map(|shard| &shard.zone) }
    }

    pub(super) fn zone_mut(&mut self, apex: &Name) -> Option<&mut Zone> {
        if self.is_alias(apex) {
            Some(&mut self.zones.alias)
        } else {
            self.zones.shards.get_mut(apex).map(|shard| &mut shard.zone)
        }
    }
}

impl Sampled {
    /// Returns whether a new route must be queried by its own names: few routes arrive, and few are queried.
    fn has_room(&mut self, now: Instant) -> bool {
        while self.arrivals.front().is_some_and(|at| *at + IDLE_WINDOW <= now) {
            self.arrivals.pop_front();
        }
        let is_idle = self.arrivals.len() < IDLE_MAX;
        if is_idle {
            self.arrivals.push_back(now);
        }
        is_idle && self.labels.len() < SAMPLED_MAX
    }
}

impl Waiting {
    /// Returns a serial of the alias zone without wraparound, relative to the newest so far (RFC 1982).
    pub(super) fn version(&self, serial: Serial) -> u64 {
        // The low half is the serial of the newest version.
        let ahead = serial.0.wrapping_sub(self.newest as u32) as i32;
        self.newest.saturating_add_signed(i64::from(ahead))
    }
}

impl Changed {
    /// Queues each route once, in the order of arrival.
    fn push(&mut self, label: &str) {
        if !self.queued.contains(label) {
            self.queued.insert(label.into());
            self.queue.push_back(label.into());
        }
    }

    fn pop(&mut self, now: Instant) -> Option<Box<str>> {
        while self.later.first().is_some_and(|(at, _)| *at <= now) {
            let (_, label) = self.later.pop_first().expect("it was there");
            self.push(&label);
        }
        let Some(label) = self.queue.pop_front() else {
            // After a burst of changes, the memory is released.
            (self.queue, self.queued) = Default::default();
            return None;
        };
        self.queued.remove(&label);
        Some(label)
    }
}

impl Zone {
    fn new(servers: usize, serial: Serial, epoch: u64) -> Self {
        Zone { serial, epoch, servers: (0..servers).map(|_| ZoneServer::default()).collect() }
    }
}

/// Returns the slot of a server among those that are queried about shards, or about the alias zone.
pub(super) fn slot(server: usize, is_alias: bool) -> usize {
    if is_alias { server + SERVERS_MAX } else { server }
}

pub(super) fn serial_of(version: u64) -> Serial {
    Serial(version as u32)
}

/// Returns the zone of the shard that a binding names.
pub(super) fn shard_of(binding: &BindingInput) -> Name {
    binding.shard.parse().expect("BindingInput::read has checked it")
}

pub(super) fn alias_target(binding: &BindingInput) -> Name {
    let zone: Name = binding.target().parse().expect("BindingInput::read has checked it");
    zone.prepend(binding.label.as_bytes()).expect("BindingInput::read has checked the length")
}
