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

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::behind::Behind;
use super::check::{DELETION_HELD, OLD_SERIAL};
use super::feed::{AliasNews, ShardNews, ZoneNews};
use super::looks::Looks;
use super::own::OwnNames;
use super::routes::{RouteState, RouteStates};
use super::standing::{PATIENCE, Standing};
use super::waiting::Waiting;
use super::zones::{Shard, Zone, Zones};
use crate::compiler::Settings;
use crate::compiler::former_names::top_label;
use crate::compiler::inputs::BindingInput;
use crate::compiler::settings::text_of;
use crate::world::expectation::Expectation;
use signpost_api::v1alpha1::deletion_hold::DeletionHoldKind;
use signpost_dns::wire::Name;

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
    pub(super) config: Config,
    pub(super) zones: Zones,
    /// By label.
    pub(super) routes: RouteStates,
    /// Routes that nothing can be said of yet.
    pub(super) waiting: Waiting,
    pub(super) asking: Asking,
    /// The route that was verified last: its alias is asked for when none else is.
    pub(super) sample: Option<Box<str>>,
    /// Names that are answered wrong while their zones are right.
    pub(super) own: OwnNames,
    /// Apexes of the zones that this process serves from files.
    files: Arc<BTreeSet<Name>>,
    /// Routes at or below whose aliases there is one of these.
    pub(super) explicit_aliases: BTreeSet<Box<str>>,
    pub(super) agenda: Agenda,
    pub(super) looks: Looks,
    pub(super) behind: Behind,
    /// What the deletion hold keeps, by the names of the DeletionHolds.
    deletion_holds: BTreeMap<String, DeletionHoldKind>,
    /// When all that had failed of a server was looked at last since something of it was right again. `None`: the next right
    /// check of the alias zone starts such a look.
    pub(super) recovered: Box<[Option<Instant>]>,
}

/// Who is asked, of which platform.
pub(super) struct Config {
    pub settings: Arc<Settings>,
    pub servers: Box<[Server]>,
    /// Whether anyone is asked at all.
    pub asks: bool,
    /// How long after it was right something is checked again, about.
    pub interval: Duration,
}

/// The checks that are due, by time: the zone, and the place of the server.
#[derive(Debug, Default)]
pub(super) struct Agenda {
    /// Those that something waits for.
    pub urgent: BTreeSet<(Instant, Name, usize)>,
    /// Those that see whether all still is as it was.
    pub periodic: BTreeSet<(Instant, Name, usize)>,
}

/// The routes whose own names are to be asked for.
#[derive(Debug, Default)]
pub(super) struct Asking {
    pub labels: BTreeSet<Box<str>>,
    /// When the newest routes came, as many as may come on an idle system.
    arrivals: VecDeque<Instant>,
}

impl Asking {
    /// Whether a route that comes now is to be asked for by its own names: few routes come, and few are asked for.
    fn has_room(&mut self, now: Instant) -> bool {
        while self.arrivals.front().is_some_and(|at| *at + IDLE_WINDOW <= now) {
            self.arrivals.pop_front();
        }
        let is_idle = self.arrivals.len() < IDLE_MAX;
        if is_idle {
            self.arrivals.push_back(now);
        }
        is_idle && self.labels.len() < ASKING_MAX
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
            zones: Zones::new(settings.alias_apex().clone(), servers.len()),
            waiting: Waiting::new(servers.len()),
            recovered: vec![None; servers.len()].into(),
            config: Config { settings, servers: servers.into_boxed_slice(), asks, interval },
            routes: RouteStates::default(),
            asking: Asking::default(),
            sample: None,
            own: OwnNames::new(SERVERS_MAX * 2),
            files: Arc::default(),
            explicit_aliases: BTreeSet::new(),
            agenda: Agenda::default(),
            looks: Looks::default(),
            behind: Behind::default(),
            deletion_holds: BTreeMap::new(),
        }
    }

    /// Whether a shard's zone outside the platform's domain comes, or goes, when it `is_there`.
    pub fn is_other_elsewhere(&self, apex: &Name, is_there: bool) -> bool {
        !apex.is_below(self.config.settings.domain()) && self.zones.shards.contains_key(apex) != is_there
    }

    /// The binding whose names are those of `label`.
    pub fn binding(&self, label: &str) -> Option<&Arc<BindingInput>> {
        self.routes.get(label).map(|route| &route.binding)
    }

    /// Takes what the deletion hold keeps.
    pub fn take_deletion_holds(&mut self, deletion_holds: BTreeMap<String, DeletionHoldKind>) {
        if self.deletion_holds == deletion_holds {
            return;
        }
        self.deletion_holds = deletion_holds;
        self.behind.told().for_each(|label| self.looks.push(label));
        let is_failing = |shard: &Shard| shard.zone.standings.iter().any(Standing::is_failing);
        let failing = self.zones.shards.iter().filter(|(_, shard)| is_failing(shard)).map(|(apex, _)| apex.clone());
        failing.for_each(|apex| self.looks.push_shard(apex));
    }

    /// Whether a DeletionHold may keep the zone older than the ledger says: bindings are in the alias zone, and in their shards while
    /// former names lead there; a Router in its shard.
    pub(super) fn has_deletion_hold(&self, apex: &Name) -> bool {
        let is_alias = self.zones.is_alias(apex);
        self.deletion_holds.values().any(|kind| !is_alias || *kind == DeletionHoldKind::RouteBinding)
    }

    /// Takes the apexes of the zones that are served from files. One inside a zone of the platform hides a part of it, so that the
    /// routes there are asked for by their names from then on.
    pub fn take_files(&mut self, files: Arc<BTreeSet<Name>>, now: Instant) {
        let before = std::mem::replace(&mut self.files, files);
        let changed: Vec<Name> = before.symmetric_difference(&self.files).cloned().collect();
        for file in changed {
            let mut above = std::iter::successors(file.parent(), Name::parent);
            let Some(zone) = above.find(|zone| self.zones.get_mut(zone).is_some()) else { continue };
            let label = top_label(&file, &zone).and_then(|label| String::from_utf8(label.into()).ok());
            let route = label.as_ref().and_then(|label| self.routes.get(label));
            let (Some(label), Some(route)) = (label.as_deref(), route) else { continue };
            let name = system_name(&route.binding);
            if self.zones.is_alias(&zone) {
                match zone.prepend(label.as_bytes()).is_ok_and(|alias| self.has_file(&alias)) {
                    true => drop(self.explicit_aliases.insert(label.into())),
                    false => drop(self.explicit_aliases.remove(label)),
                }
            } else if shard_of(&route.binding) == zone {
                let has_file = self.has_file(&name);
                let Some(shard) = self.zones.shards.get_mut(&zone) else { continue };
                match shard.expectation.taken(&name).is_none() && (has_file || shard.expectation.is_explicit(&name)) {
                    true => drop(shard.explicit.insert(label.into())),
                    false => drop(shard.explicit.remove(label)),
                }
            }
            for server in 0..self.config.servers.len() {
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
                Some((router, error)) => drop(self.zones.refused.insert(apex.clone(), (router.name.clone(), error))),
                None => drop(self.zones.refused.remove(&apex)),
            }
            self.looks.push_shard(apex);
        }
        if let Some(serial) = news.alias_serial {
            self.zones.alias.serial = serial;
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
            self.zones.refused.remove(&apex);
            if let Some(gone) = self.zones.shards.remove(&apex) {
                self.unschedule(&apex, &gone.zone);
                self.look_at_zone(&apex);
            }
            return;
        };
        let known = self.zones.shards.get(&apex);
        let are_other = known.is_none_or(|known| known.router != router);
        if !are_other && known.is_some_and(|known| known.zone.serial == serial) {
            return;
        }
        let epoch = self.zones.next_epoch();
        if let Some(known) = self.zones.shards.get_mut(&apex) {
            known.zone.serial = serial;
            if are_other {
                // What was asked before speaks of other answers.
                known.zone.epoch = epoch;
            }
            known.zone.standings.iter_mut().for_each(|standing| standing.forget(are_other));
        }
        if are_other {
            let expectation = Expectation::new(&router, &self.config.settings);
            let explicit = self.explicit_labels(&apex, &expectation);
            self.ask_no_more(&apex, &expectation);
            let known = self.zones.shards.remove(&apex);
            let zone = known.map(|known| known.zone);
            let zone = zone.unwrap_or_else(|| Zone::new(self.config.servers.len(), serial, epoch));
            self.zones.shards.insert(apex.clone(), Shard { zone, router, expectation, explicit, turn: 0 });
            self.look_at_zone(&apex);
        }
        self.looks.push_shard(apex.clone());
        for server in 0..self.config.servers.len() {
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
                    self.asking.labels.remove(&*label);
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
        let shard = self.zones.shards.get_mut(&apex);
        let is_taken = shard.as_ref().is_some_and(|shard| shard.expectation.taken(&name).is_some());
        let shard = shard.filter(|shard| has_file && !is_taken || shard.expectation.is_explicit(&name));
        let explicit = shard.is_some_and(|shard| {
            shard.explicit.insert(label.clone());
            true
        });
        let alias = self.config.settings.alias_apex().prepend(label.as_bytes());
        let is_alias_explicit = alias.is_ok_and(|alias| self.has_file(&alias));
        if is_alias_explicit {
            self.explicit_aliases.insert(label.clone());
        }
        let all = (1_u64 << self.config.servers.len()) - 1;
        let ask = self.asking.has_room(now);
        let on_shard = if (ask || explicit) && !is_taken { all } else { 0 };
        let to_ask = on_shard | if ask || is_alias_explicit { all << SERVERS_MAX } else { 0 };
        self.waiting.insert(&label, &binding.shard, serial);
        self.routes.insert(RouteState { binding, serial, since: now, to_ask, reason: None });
        self.looks.push(&label);
        if ask {
            self.asking.labels.insert(label);
        }
        let alias = self.config.settings.alias_apex().clone();
        for server in 0..self.config.servers.len() {
            self.schedule_soon(&alias, server, now);
            if to_ask != 0 {
                self.schedule_soon(&apex, server, now);
            }
        }
    }

    /// The names of `label` are no more.
    fn forget(&mut self, label: &str) {
        let Some(route) = self.routes.remove(label) else { return };
        self.waiting.remove(label, &route.binding.shard, route.serial);
        self.asking.labels.remove(label);
        self.behind.forget(label);
        self.own.forget(label);
        self.explicit_aliases.remove(label);
        if let Some(shard) = self.zones.shards.get_mut(&shard_of(&route.binding)) {
            shard.explicit.remove(label);
        }
        if self.sample.as_deref() == Some(label) {
            self.sample = None;
        }
    }

    /// The route of `label` is to be judged again when it has waited for too long.
    pub fn look_at_when_late(&mut self, label: &str, now: Instant) {
        if let Some(at) = self.routes.get(label).map(|route| route.since + PATIENCE).filter(|at| *at > now) {
            self.looks.push_later(label, at);
        }
    }

    /// All routes with names in the zone are to be judged.
    pub(super) fn look_at_zone(&mut self, apex: &Name) {
        let is_alias = self.zones.is_alias(apex);
        let text = text_of(apex);
        for (label, route) in self.routes.iter() {
            if is_alias || *route.binding.shard == *text {
                self.looks.push(label);
            }
        }
    }

    /// The next route to be judged.
    pub fn pop_dirty(&mut self, now: Instant) -> Option<Box<str>> {
        std::iter::from_fn(|| self.looks.pop(now)).find(|label| self.routes.contains_key(label))
    }

    /// The next shard whose Router is to be judged.
    pub fn pop_changed_shard(&mut self) -> Option<Name> {
        self.looks.pop_shard()
    }

    /// The route of `label` was judged: with this reason, or `None` if nothing can be said yet.
    pub fn note(&mut self, label: &str, reason: Option<&'static str>) {
        let Some(route) = self.routes.get(label) else { return };
        let Some(reason) = reason else {
            // What was said before stands until there is something else to say, which the next right check may bring.
            self.waiting.insert(label, &route.binding.shard, route.serial);
            return;
        };
        self.waiting.remove(label, &route.binding.shard, route.serial);
        self.behind.set_told(label, matches!(reason, OLD_SERIAL | DELETION_HELD));
        let is_witness = |server| !self.own.is_failing(label, server + SERVERS_MAX);
        if (0..self.config.servers.len()).all(is_witness) && !self.explicit_aliases.contains(label) {
            self.sample = Some(label.into());
        }
        self.routes.set_reason(label, reason);
    }

    /// How many routes there are for each reason ever met; those that nothing can be said of yet are `PENDING`.
    pub fn reasons(&self) -> &BTreeMap<&'static str, usize> {
        self.routes.reasons()
    }

    /// Whether a route waits until this server was asked for its own names.
    pub(super) fn is_to_be_asked(route: &RouteState, server: usize) -> bool {
        route.to_ask & ((1 << server) | (1 << (server + SERVERS_MAX))) != 0
    }
}

/// The zone of the shard that a binding names.
pub(super) fn shard_of(binding: &BindingInput) -> Name {
    binding.shard.parse().expect("BindingInput::read has checked it")
}

/// The name to which the alias leads.
pub(super) fn alias_target(binding: &BindingInput) -> Name {
    let zone: Name = binding.target().parse().expect("BindingInput::read has checked it");
    zone.prepend(binding.label.as_bytes()).expect("BindingInput::read has checked the length")
}

/// The name on the shard.
pub(super) fn system_name(binding: &BindingInput) -> Name {
    shard_of(binding).prepend(binding.label.as_bytes()).expect("BindingInput::read has checked the length")
}
