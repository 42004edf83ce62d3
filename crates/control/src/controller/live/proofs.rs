//! What is verified of which names, what is to be checked next, and what follows from a check. Pure: time and chance come in
//! as arguments.
//!
//! A name is verified when every listed name server has the zone at least in the version in which the name appeared, and
//! answers right. For that not every name must be asked for: a shard's wildcard answers for all of its names, and a version
//! of the alias zone holds all that were in it. So a check is one of a server and a *zone*, and proves all names that wait for
//! it. While few wait, as on an idle system, they are themselves the names that are asked for; else it is the wildcard by a
//! name of chance, and one alias. Names that a Router's `records` name have answers of their own, and are always asked for.
//!
//! A server may stay at an old version while it answers right: where the deletion hold keeps back what was deleted, its zones are not
//! what the ledger counts, and it serves what is new under serials of its own. There each alias is asked for by its name,
//! some at a time, and is verified by the answer, from the version on in which it was seen.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::check::OLD_SERIAL;
use super::feed::{AliasNews, ShardNews, ZoneNews};
use super::own::OwnNames;
use super::routes::{RouteState, RouteStates};
use super::shard::Expectation;
use super::standing::{PATIENCE, Standing};
use super::verdict::DELETION_HELD;
use super::waiting::Waiting;
use crate::compiler::Settings;
use crate::compiler::former_names::top_label;
use crate::compiler::inputs::{BindingInput, RouterInput};
use signpost_api::v1alpha1::deletion_hold::DeletionHoldKind;
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;

/// Most servers that are asked: a route remembers in one word which of them were asked for its own names.
pub const SERVERS_MAX: usize = 32;
/// While no more routes than this come within [`IDLE_WINDOW`], each is asked for by its own names.
pub(super) const IDLE_MAX: usize = 4;
/// See [`IDLE_MAX`]: at most 20 routes a second cost questions of their own.
const IDLE_WINDOW: Duration = Duration::from_millis(200);
/// Most routes that are to be asked for by their own names: they pile up when a server is away and they are told so.
const ASKING_MAX: usize = 64;
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

/// The proofs of all names.
pub struct Proofs {
    pub(super) settings: Arc<Settings>,
    pub(super) servers: Box<[Server]>,
    /// Whether anyone is asked at all.
    pub(super) asks: bool,
    pub(super) interval: Duration,
    pub(super) alias: Zone,
    pub(super) shards: HashMap<Name, Shard>,
    /// By label.
    pub(super) routes: RouteStates,
    /// Routes that nothing can be said of yet.
    pub(super) waiting: Waiting,
    /// When the newest routes came, as many as may come on an idle system.
    arrivals: VecDeque<Instant>,
    /// Routes whose own names are to be asked for.
    pub(super) asking: BTreeSet<Box<str>>,
    /// The route that was verified last: its alias is asked for when none else is.
    pub(super) sample: Option<Box<str>>,
    /// Names that are answered wrong while their zones are right.
    pub(super) own: OwnNames,
    /// Apexes of the zones that this process serves from files.
    files: Arc<BTreeSet<Name>>,
    /// Routes at or below whose aliases there is one of these.
    pub(super) explicit_aliases: BTreeSet<Box<str>>,
    /// Checks that something waits for.
    pub(super) urgent: Agenda,
    /// Checks that see whether all still is as it was.
    pub(super) periodic: Agenda,
    pub(super) dirty: Dirty,
    /// Aliases that servers which stay at an old version have shown, each with that version.
    pub(super) shown: HashMap<Box<str>, BTreeMap<usize, Serial>>,
    /// Routes that were told that a server has an old version.
    pub(super) behind: BTreeSet<Box<str>>,
    /// The one of them that was looked at last.
    pub(super) behind_turn: Box<str>,
    /// Zones whose serials cannot be written: their Routers, and why.
    pub(super) refused: HashMap<Name, (Box<str>, String)>,
    /// What the deletion hold keeps, by the names of the DeletionHolds.
    deletion_holds: BTreeMap<String, DeletionHoldKind>,
    later: BTreeSet<(Instant, Box<str>)>,
    later_shards: BTreeSet<(Instant, Name)>,
    pub(super) changed_shards: HashSet<Name>,
    /// When all that had failed of a server was looked at last since something of it was right again. `None`: the next right
    /// check of the alias zone starts such a look.
    pub(super) recovered: Box<[Option<Instant>]>,
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
    pub due: Box<[Option<(bool, Instant)>]>,
}

/// A shard.
#[derive(Debug)]
pub(super) struct Shard {
    pub zone: Zone,
    pub router: Arc<RouterInput>,
    pub expectation: Expectation,
    pub explicit: BTreeSet<Box<str>>,
    pub turn: usize,
}

pub(super) type Agenda = BTreeSet<(Instant, Name, usize)>;

/// Routes to be judged, each once, in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Dirty {
    line: VecDeque<Box<str>>,
    present: HashSet<Box<str>>,
}

impl Dirty {
    pub fn push(&mut self, label: &str) {
        if !self.present.contains(label) {
            self.present.insert(label.into());
            self.line.push_back(label.into());
        }
    }

    fn pop(&mut self) -> Option<Box<str>> {
        let Some(label) = self.line.pop_front() else {
            // After a storm of them the room is given back.
            *self = Dirty::default();
            return None;
        };
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
            waiting: Waiting::new(servers.len()),
            recovered: vec![None; servers.len()].into(),
            settings,
            servers: servers.into_boxed_slice(),
            asks,
            interval,
            shards: HashMap::new(),
            routes: RouteStates::default(),
            arrivals: VecDeque::new(),
            asking: BTreeSet::new(),
            sample: None,
            own: OwnNames::default(),
            files: Arc::default(),
            explicit_aliases: BTreeSet::new(),
            urgent: Agenda::new(),
            periodic: Agenda::new(),
            dirty: Dirty::default(),
            shown: HashMap::new(),
            behind: BTreeSet::new(),
            behind_turn: Box::default(),
            refused: HashMap::new(),
            deletion_holds: BTreeMap::new(),
            later: BTreeSet::new(),
            later_shards: BTreeSet::new(),
            changed_shards: HashSet::new(),
            counts: BTreeMap::new(),
            epochs: 0,
        }
    }

    /// Whether a shard's zone outside the platform's domain comes, or goes, when it `is_there`.
    pub fn is_other_elsewhere(&self, apex: &Name, is_there: bool) -> bool {
        !apex.is_below(self.settings.domain()) && self.shards.contains_key(apex) != is_there
    }

    /// The server at that place in the list.
    pub fn server(&self, index: usize) -> &Server {
        &self.servers[index]
    }

    /// The binding whose names are those of `label`.
    pub fn binding(&self, label: &str) -> Option<&Arc<BindingInput>> {
        self.routes.get(label).map(|route| &route.binding)
    }

    /// Since when the ledger is known to have the names of this label.
    pub fn known_since(&self, label: &str) -> Option<Instant> {
        self.routes.get(label).map(|route| route.since)
    }

    /// Takes what the deletion hold keeps.
    pub fn take_deletion_holds(&mut self, deletion_holds: BTreeMap<String, DeletionHoldKind>) {
        if self.deletion_holds == deletion_holds {
            return;
        }
        self.deletion_holds = deletion_holds;
        self.behind.iter().for_each(|label| self.dirty.push(label));
        let is_failing = |shard: &Shard| shard.zone.standings.iter().any(Standing::is_failing);
        let failing = self.shards.iter().filter(|(_, shard)| is_failing(shard)).map(|(apex, _)| apex.clone());
        self.changed_shards.extend(failing);
    }

    /// Whether a DeletionHold may keep the zone older than the ledger says: bindings are in the alias zone, and in their shards while
    /// former names lead there; a Router in its shard.
    pub(super) fn has_deletion_hold(&self, apex: &Name) -> bool {
        let is_alias = *apex == *self.settings.alias_apex();
        self.deletion_holds.values().any(|kind| !is_alias || *kind == DeletionHoldKind::RouteBinding)
    }

    /// Takes the apexes of the zones that are served from files. One inside a zone of the platform hides a part of it, so that the
    /// routes there are asked for by their names from then on.
    pub fn take_files(&mut self, files: Arc<BTreeSet<Name>>, now: Instant) {
        let before = std::mem::replace(&mut self.files, files);
        let changed: Vec<Name> = before.symmetric_difference(&self.files).cloned().collect();
        for file in changed {
            let mut above = std::iter::successors(file.parent(), Name::parent);
            let Some(zone) = above.find(|zone| self.zone_mut(zone).is_some()) else { continue };
            let label = top_label(&file, &zone).and_then(|label| String::from_utf8(label.into()).ok());
            let route = label.as_ref().and_then(|label| self.routes.get(label));
            let (Some(label), Some(route)) = (label.as_deref(), route) else { continue };
            let name = system_name(&route.binding);
            if zone == *self.settings.alias_apex() {
                match zone.prepend(label.as_bytes()).is_ok_and(|alias| self.has_file(&alias)) {
                    true => drop(self.explicit_aliases.insert(label.into())),
                    false => drop(self.explicit_aliases.remove(label)),
                }
            } else if shard_of(&route.binding) == zone {
                let has_file = self.has_file(&name);
                let Some(shard) = self.shards.get_mut(&zone) else { continue };
                match shard.expectation.taken(&name).is_none() && (has_file || shard.expectation.is_explicit(&name)) {
                    true => drop(shard.explicit.insert(label.into())),
                    false => drop(shard.explicit.remove(label)),
                }
            }
            for server in 0..self.servers.len() {
                self.schedule(&zone, server, true, now);
            }
        }
    }

    /// Whether a zone is served from a file at or below `name`.
    fn has_file(&self, name: &Name) -> bool {
        // In the canonical order all that is below a name follows it.
        self.files.range(name..).next().is_some_and(|file| file.is_at_or_below(name))
    }

    /// Takes what the ledger told.
    pub fn take(&mut self, news: ZoneNews, now: Instant) {
        for (apex, shard) in news.shards {
            self.take_shard(apex, shard, now);
        }
        for (apex, refused) in news.refused {
            match refused {
                Some((router, error)) => drop(self.refused.insert(apex.clone(), (router.name.clone(), error))),
                None => drop(self.refused.remove(&apex)),
            }
            self.changed_shards.insert(apex);
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
            self.refused.remove(&apex);
            if let Some(gone) = self.shards.remove(&apex) {
                self.unschedule(&apex, &gone.zone);
                self.look_at_zone(&apex);
            }
            return;
        };
        let known = self.shards.get(&apex);
        let are_other = known.is_none_or(|known| known.router != router);
        if !are_other && known.is_some_and(|known| known.zone.serial == serial) {
            return;
        }
        self.epochs += 1;
        if let Some(known) = self.shards.get_mut(&apex) {
            known.zone.serial = serial;
            if are_other {
                // What was asked before speaks of other answers.
                known.zone.epoch = self.epochs;
            }
            known.zone.standings.iter_mut().for_each(|standing| standing.forget(are_other));
        }
        if are_other {
            let expectation = Expectation::new(&router, &self.settings);
            let explicit = self.explicit_labels(&apex, &expectation);
            self.ask_no_more(&apex, &expectation);
            let known = self.shards.remove(&apex);
            let zone = known.map(|known| known.zone);
            let zone = zone.unwrap_or_else(|| Zone::new(self.servers.len(), serial, self.epochs));
            self.shards.insert(apex.clone(), Shard { zone, router, expectation, explicit, turn: 0 });
            self.look_at_zone(&apex);
        }
        self.changed_shards.insert(apex.clone());
        for server in 0..self.servers.len() {
            self.schedule(&apex, server, true, now);
        }
    }

    /// Names that something else has in the shard are not to be asked for.
    fn ask_no_more(&mut self, apex: &Name, expectation: &Expectation) {
        for name in expectation.all_taken().filter(|name| name.parent().as_ref() == Some(apex)) {
            let label = name.labels().next().map(|label| label.to_ascii_lowercase());
            let label = label.and_then(|label| String::from_utf8(label).ok()).unwrap_or_default();
            let route = self.routes.get_mut(&label).filter(|route| shard_of(&route.binding) == *apex);
            if let Some(route) = route {
                route.to_ask &= !((1 << SERVERS_MAX) - 1);
                if route.to_ask == 0 {
                    self.asking.remove(&*label);
                }
            }
        }
    }

    /// The routes of the shard whose names have answers of their own.
    fn explicit_labels(&self, apex: &Name, expectation: &Expectation) -> BTreeSet<Box<str>> {
        let of_shard = |label: &str| {
            let route = self.routes.get(label);
            route.is_some_and(|route| shard_of(&route.binding) == *apex)
        };
        let names = expectation.explicit().filter(|name| name.parent().as_ref() == Some(apex));
        let files = self.files.range(apex..).take_while(|file| file.is_at_or_below(apex));
        let labels = names.chain(files).filter_map(|name| {
            let label = String::from_utf8(top_label(name, apex)?.into()).ok()?;
            let is_taken = apex.prepend(label.as_bytes()).is_ok_and(|name| expectation.taken(&name).is_some());
            (!is_taken).then(|| label.into_boxed_str())
        });
        labels.filter(|label| of_shard(label)).collect()
    }

    fn take_alias(&mut self, label: Box<str>, news: AliasNews, now: Instant) {
        let AliasNews { binding, serial } = news;
        self.forget(&label);
        let apex = shard_of(&binding);
        let name = system_name(&binding);
        let has_file = self.has_file(&name);
        let shard = self.shards.get_mut(&apex);
        let is_taken = shard.as_ref().is_some_and(|shard| shard.expectation.taken(&name).is_some());
        let shard = shard.filter(|shard| has_file && !is_taken || shard.expectation.is_explicit(&name));
        let explicit = shard.is_some_and(|shard| {
            shard.explicit.insert(label.clone());
            true
        });
        let alias = self.settings.alias_apex().prepend(label.as_bytes());
        let is_alias_explicit = alias.is_ok_and(|alias| self.has_file(&alias));
        if is_alias_explicit {
            self.explicit_aliases.insert(label.clone());
        }
        let all = (1_u64 << self.servers.len()) - 1;
        let ask = self.is_idle(now) && self.asking.len() < ASKING_MAX;
        let on_shard = if (ask || explicit) && !is_taken { all } else { 0 };
        let to_ask = on_shard | if ask || is_alias_explicit { all << SERVERS_MAX } else { 0 };
        self.count(None, Some(PENDING));
        self.waiting.insert(&label, &binding.shard, serial);
        self.routes.insert(RouteState { binding, serial, since: now, to_ask, reason: None });
        self.dirty.push(&label);
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
        self.waiting.remove(label, &route.binding.shard, route.serial);
        self.asking.remove(label);
        self.behind.remove(label);
        self.shown.remove(label);
        self.own.forget(label);
        self.explicit_aliases.remove(label);
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
    pub(super) fn look_at_zone(&mut self, apex: &Name) {
        let is_alias = *apex == *self.settings.alias_apex();
        let text = crate::compiler::settings::text_of(apex);
        for (label, route) in self.routes.iter() {
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
    pub fn pop_changed_shard(&mut self, now: Instant) -> Option<Name> {
        while let Some((at, _)) = self.later_shards.first()
            && *at <= now
        {
            self.changed_shards.extend(self.later_shards.pop_first().map(|(_, apex)| apex));
        }
        let apex = self.changed_shards.iter().next()?.clone();
        self.changed_shards.take(&apex)
    }

    /// A shard's Router is to be judged again.
    pub fn look_at_shard(&mut self, apex: Name) {
        self.changed_shards.insert(apex);
    }

    /// The same, at a later time.
    pub fn look_at_shard_later(&mut self, apex: Name, at: Instant) {
        self.later_shards.insert((at, apex));
    }

    /// The Router of this name is to be judged again.
    pub fn look_at_router(&mut self, name: &str) {
        let shards = self.shards.iter().filter(|(_, shard)| *shard.router.name == *name).map(|(apex, _)| apex);
        let refused = self.refused.iter().filter(|(_, (router, _))| **router == *name).map(|(apex, _)| apex);
        self.changed_shards.extend(shards.chain(refused).cloned());
    }

    /// The route of `label` was judged: with this reason, or `None` if nothing can be said yet.
    pub fn note(&mut self, label: &str, reason: Option<&'static str>) {
        let Some(route) = self.routes.get_mut(label) else { return };
        let Some(reason) = reason else {
            // What was said before stands until there is something else to say.
            if route.reason.is_none() {
                self.waiting.insert(label, &route.binding.shard, route.serial);
            }
            return;
        };
        let before = route.reason.replace(reason).unwrap_or(PENDING);
        self.waiting.remove(label, &route.binding.shard, route.serial);
        match reason {
            OLD_SERIAL | DELETION_HELD => drop(self.behind.insert(label.into())),
            _ => drop(self.behind.remove(label)),
        }
        let is_witness = |server| !self.own.is_failing(label, server + SERVERS_MAX);
        if (0..self.servers.len()).all(is_witness) && !self.explicit_aliases.contains(label) {
            self.sample = Some(label.into());
        }
        self.count(Some(before), Some(reason));
    }

    /// How many routes there are for each reason ever met; those that nothing can be said of yet are [`PENDING`].
    pub fn reasons(&self) -> &BTreeMap<&'static str, usize> {
        &self.counts
    }

    /// When to ask for [`Self::pop_dirty`] and [`Self::pop_changed_shard`] again, if nothing happens before.
    pub fn next_look_at(&self) -> Option<Instant> {
        let shards = self.later_shards.first().map(|(at, _)| *at);
        self.later.first().map(|(at, _)| *at).into_iter().chain(shards).min()
    }

    /// Whether a route waits until this server was asked for its own names.
    pub(super) fn is_to_be_asked(route: &RouteState, server: usize) -> bool {
        route.to_ask & ((1 << server) | (1 << (server + SERVERS_MAX))) != 0
    }

    pub(super) fn zone_mut(&mut self, apex: &Name) -> Option<&mut Zone> {
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
