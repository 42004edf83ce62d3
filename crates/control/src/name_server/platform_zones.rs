//! All zones that are built from objects: their inputs, the published versions, and the next publications. Pure: events arrive as
//! calls, with the time; actions are returned as [`Output`]. [`signpost_dns::zone::publish`] has the zones themselves.
//!
//! The cost of a changed object depends on its change only. The parent zone and the alias zone can have a name for each of a
//! million objects, so they are changed name by name. A shard's zone is small and is rebuilt, except for its
//! former names: a drained shard has one for each route that has left, and they are added and removed singly (`shards`).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::own_files::FileZones;
use super::restore::Restored;
use super::shards::{Built, Shard};
use super::version_history::{Decision, Published, VersionHistory, Versions};
use crate::compiler::platform::{Change, Input, Platform};
use crate::compiler::{Diagnostic, Digest, Settings, ShardView, alias, apex, parent};
use signpost_dns::wire::{Name, NameMap, NameSet};
use signpost_dns::zone::parallel::in_parallel;
use signpost_dns::zone::publish::{self, Change as ZoneChange, Origin, What};
use signpost_dns::zone::{Contents, OwnerChange, Serial, Zone};

/// The number of serials of removed zones from which those that the clock has passed are forgotten.
const REMEMBERED_MAX: usize = 1024;

/// The zones of one platform.
pub struct Zones {
    settings: Arc<Settings>,
    config: Digest,
    platform: Platform,
    /// The parent and the alias zone of the platform's domain, then of each former domain.
    large: Vec<Large>,
    shards: NameMap<Shard>,
    /// The ledger's entries, including those of zones that do not exist, or are not built yet.
    ledger: NameMap<Versions>,
    /// The published versions of zones from before a restart or a removal, so that they return with a newer serial.
    remembered: NameMap<Published>,
    /// The apexes of zone files: no shard's zone is served there.
    files: FileZones,
    /// Apexes of deleted zones that the publisher may still have.
    gone: NameSet,
    /// The zones to check.
    dirty: NameSet,
    /// The times at which to check zones again that wait for their serial.
    waiting: BTreeSet<(Instant, Name)>,
    diagnostics: NameMap<Vec<Diagnostic>>,
    /// Whether diagnostics may have changed.
    changed: bool,
    /// The counters of this run.
    pub counters: Counters,
}

/// The counters of events, which only increase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Zones published, each time.
    pub published: u64,
    /// The publications under a provisional serial, because the ledger had none.
    pub provisional: u64,
    /// The shard zones that were rebuilt as a whole, not by their changes.
    pub made_anew: u64,
    pub removed: u64,
}

/// The actions to take.
#[derive(Default)]
pub struct Output {
    /// The changes to publish, in one step.
    pub changes: Vec<ZoneChange>,
    /// The removed zones whose last version does not matter any more.
    pub forgotten: Vec<Name>,
}

/// A zone that is changed name by name.
struct Large {
    kind: LargeKind,
    /// The settings of its domain, and their digest.
    settings: Arc<Settings>,
    config: Digest,
    apex: Name,
    timeline: VersionHistory<Vec<OwnerChange>>,
    /// The zone at the start of the timeline, until it is published.
    unpublished: Option<Arc<Zone>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LargeKind {
    Parent,
    Alias,
}

impl Zones {
    /// Returns the zones of these objects, without any published version.
    pub fn new(platform: Platform, settings: Arc<Settings>, now: Instant) -> Self {
        Self::of(platform, settings, NameMap::default(), Restored::default(), now)
    }

    /// Returns the zones of the state from before a restart: `published` are the versions at that time, already served if
    /// `restored`. The resulting actions serve all of them immediately, without waiting for the ledger.
    pub fn restore(
        platform: Platform,
        settings: Arc<Settings>,
        published: NameMap<Published>,
        restored: Restored,
        files: BTreeMap<Name, Arc<Path>>,
        now: Instant,
        unix_now: u64,
    ) -> (Self, Output) {
        let mut zones = Self::of(platform, settings, published, restored, now);
        zones.set_files(files);
        // Zones that were never served stay dirty, and wait for the ledger like new ones.
        let apexes: Vec<Name> = zones.dirty.iter().cloned().collect();
        let output = zones.publish(apexes, None, unix_now);
        (zones, output)
    }

    fn of(
        platform: Platform,
        settings: Arc<Settings>,
        remembered: NameMap<Published>,
        mut restored: Restored,
        now: Instant,
    ) -> Self {
        let large = domains(&settings).flat_map(|domain| LargeKind::ALL.map(|kind| (kind, Arc::clone(&domain))));
        let large = large.map(|(kind, domain)| {
            let apex = kind.apex(&domain);
            let (digest, last) = (kind.digest(&platform, &domain), remembered.get(apex).copied());
            let is_served = restored.large.contains_key(apex) && last.is_some_and(|last| last.digest == digest);
            Large::new(kind, last, is_served, &platform, domain, now)
        });
        let large: Vec<Large> = large.collect();
        let mut zones = Zones {
            config: settings.digest(),
            dirty: large.iter().map(|large| large.apex.clone()).collect(),
            large,
            shards: NameMap::default(),
            ledger: NameMap::default(),
            files: FileZones::default(),
            gone: NameSet::default(),
            waiting: BTreeSet::new(),
            diagnostics: NameMap::default(),
            changed: true,
            counters: Counters::default(),
            platform,
            settings,
            remembered,
        };
        let routers: Vec<_> = zones.platform.shards().map(|(_, router)| Arc::clone(router)).collect();
        for router in routers {
            let apex = router.apex.clone();
            let digest = router.digest.plus(zones.platform.former_names(&apex).digest());
            let is_last = |last: &Published| last.config == zones.config && last.digest == digest;
            let is_unchanged = zones.remembered.get(&apex).is_some_and(is_last);
            let is_restored = restored.shards.remove(&apex).is_some();
            // Former names at further records are found by building the zone.
            let is_served = is_unchanged && is_restored && router.records.is_empty();
            let shard = zones.add_shard(apex, router, digest, now);
            if is_served {
                shard.timeline.set_served();
            }
        }
        // Zones of Routers that were deleted before the restart, and whose removal was not published.
        zones.dirty.extend(restored.shards.keys().cloned());
        zones.gone.extend(restored.shards.into_keys());
        zones
    }

    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Puts an object in place of the known one of its name; `None`: deleted.
    pub fn put<I: Input>(&mut self, name: &str, object: Option<Arc<I>>, now: Instant) {
        let mut changes = Vec::new();
        self.platform.put(name, object, &mut changes);
        self.take(changes, now);
    }

    /// Records the ledger's entries for a zone. Empty: deleted.
    pub fn set_ledger(&mut self, apex: &Name, versions: Versions) {
        if let Some(large) = self.large.iter_mut().find(|large| large.apex == *apex) {
            large.timeline.set_ledger(versions.clone());
        } else if let Some(shard) = self.shards.get_mut(apex) {
            shard.timeline.set_ledger(versions.clone());
        }
        if versions.is_empty() {
            self.ledger.remove(apex);
        } else {
            self.ledger.insert(apex.clone(), versions);
            self.dirty.insert(apex.clone());
        }
    }

    /// Applies a changed configuration. The domain is the same: a change of it requires a restart. Former domains can come and go.
    pub fn set_settings(&mut self, settings: Arc<Settings>, now: Instant) {
        let identity = |settings: &Arc<Settings>| -> Vec<_> {
            domains(settings).map(|domain| (domain.domain().clone(), domain.digest())).collect()
        };
        if settings.domain() != self.settings.domain() || identity(&settings) == identity(&self.settings) {
            return;
        }
        let mut changes = Vec::new();
        self.platform.set_former_domains(&settings, &mut changes);
        self.take(changes, now);
        let config = settings.digest();
        if self.config != config {
            self.dirty.extend(self.shards.keys().cloned());
        }
        (self.settings, self.config) = (Arc::clone(&settings), config);
        let large = std::mem::take(&mut self.large);
        let mut large: NameMap<Large> = large.into_iter().map(|large| (large.apex.clone(), large)).collect();
        for domain in domains(&settings) {
            for kind in LargeKind::ALL {
                let large = large.remove(kind.apex(&domain));
                let large = self.reconfigured(kind, large, Arc::clone(&domain), now);
                self.large.push(large);
            }
        }
        // The zones of former domains whose service has ended.
        for (apex, large) in large {
            self.remembered.extend(large.timeline.published().map(|last| (apex.clone(), *last)));
            self.gone.insert(apex.clone());
            self.dirty.insert(apex);
        }
    }

    /// Returns a zone of a domain under its current settings. `before`: the same zone until now.
    fn reconfigured(&mut self, kind: LargeKind, before: Option<Large>, domain: Arc<Settings>, now: Instant) -> Large {
        let published = match before {
            Some(large) if large.config == domain.digest() => return Large { settings: domain, ..large },
            Some(large) => large.timeline.published().copied(),
            None => self.remembered.remove(kind.apex(&domain)),
        };
        // The waiting steps are part of the new zone.
        let mut large = Large::new(kind, published, false, &self.platform, domain, now);
        let apex = &large.apex;
        large.timeline.set_ledger(self.ledger.get(apex).cloned().unwrap_or_default());
        self.gone.remove(apex);
        self.dirty.insert(apex.clone());
        large
    }

    /// Sets the apexes that zone files serve, for the diagnostics of the objects that they hide.
    pub fn set_files(&mut self, files: BTreeMap<Name, Arc<Path>>) {
        self.files = FileZones(files);
        self.changed = true;
    }

    /// Returns the published version of a zone, or its last one if it was removed, unless it is forgotten.
    pub fn version(&self, apex: &Name) -> Option<&Published> {
        let large = self.large.iter().find(|large| large.apex == *apex).map(|large| large.timeline.published());
        let shard = || self.shards.get(apex).map(|shard| shard.timeline.published());
        large.or_else(shard).unwrap_or_else(|| self.remembered.get(apex))
    }

    /// Returns all current diagnostics, if something has changed since the last call.
    pub fn changed_diagnostics(&mut self) -> Option<Vec<Diagnostic>> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let made = self.platform.refused().chain(self.diagnostics.values().flatten()).cloned();
        let mut diagnostics: Vec<Diagnostic> =
            made.chain(self.files.diagnostics(&self.platform, self.settings.alias_apex())).collect();
        diagnostics.sort();
        Some(diagnostics)
    }

    /// Returns the names in the base of the parent zone that another zone hides.
    pub fn hidden_base_names(&self) -> Vec<Name> {
        let of =
            |domain: Arc<Settings>| parent::hidden_base_names(self.platform.delegations_of(domain.domain()), &domain);
        domains(&self.settings).flat_map(of).collect()
    }

    pub fn count(&self) -> usize {
        self.shards.len() + self.large.len()
    }

    /// Returns the number of former domains whose zones are served.
    pub fn former_domains(&self) -> usize {
        self.settings.former_domains().len()
    }

    /// Returns the time for the next call of [`Self::publish_due`], if nothing happens before.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// Publishes every zone that can be published.
    pub fn publish_due(&mut self, now: Instant, unix_now: u64) -> Output {
        while let Some((at, _)) = self.waiting.first()
            && *at <= now
        {
            let (_, apex) = self.waiting.pop_first().expect("it was there");
            self.dirty.insert(apex);
        }
        let apexes: Vec<Name> = self.dirty.drain().collect();
        self.publish(apexes, Some(now), unix_now)
    }

    fn publish(&mut self, apexes: Vec<Name>, due: Option<Instant>, unix_now: u64) -> Output {
        let mut output = Output::default();
        let mut jobs = Vec::new();
        for apex in apexes {
            if let Some(large) = self.large.iter_mut().find(|large| large.apex == apex) {
                let decision = decide(&large.timeline, large.config, due, unix_now);
                if let Some((steps, published)) = self.counters.note(decision, &apex, &mut self.waiting) {
                    large.publish(steps, published, &mut output);
                }
            } else if let Some(shard) = self.shards.get_mut(&apex) {
                let decision = decide(&shard.timeline, self.config, due, unix_now);
                if let Some((steps, published)) = self.counters.note(decision, &apex, &mut self.waiting) {
                    let changed = shard.changed(steps, &published);
                    shard.pass(steps, published);
                    match changed {
                        Some(changed) => output.changes.push(ZoneChange::of(&apex, Origin::Objects, changed)),
                        None => jobs.push((apex, published.serial)),
                    }
                }
            }
        }
        let (settings, shards) = (&self.settings, &self.shards);
        let made = in_parallel(&jobs, |(apex, serial)| shards[apex].build(settings, *serial));
        for ((apex, _), built) in made {
            self.counters.made_anew += 1;
            self.publish_whole(apex, built, &mut output);
        }
        self.withdraw(unix_now, &mut output);
        output
    }

    /// Withdraws the deleted zones, except for those that the published version of the zone around them still delegates: it would refer to
    /// this server, which would not have the zone.
    fn withdraw(&mut self, unix_now: u64, output: &mut Output) {
        let is_due = |apex: &&Name| !self.shards.contains_key(*apex) && !self.is_delegated(apex);
        let due: Vec<Name> = self.gone.iter().filter(is_due).cloned().collect();
        for apex in due {
            self.gone.remove(&apex);
            self.forget(&apex, unix_now, output);
            self.counters.removed += 1;
            output.changes.push(ZoneChange::of(&apex, Origin::Objects, What::Withdraw));
        }
    }

    /// Returns whether the shard around a deleted zone has changes that are not published, such as the end of the delegation.
    fn is_delegated(&self, apex: &Name) -> bool {
        let mut above = std::iter::successors(apex.parent(), Name::parent);
        let around = above.find_map(|above| self.shards.get(&above));
        around.is_some_and(|shard| shard.is_published && shard.timeline.is_behind())
    }

    fn publish_whole(&mut self, apex: &Name, built: Built, output: &mut Output) {
        let Built { zone, diagnostics } = built;
        self.gone.remove(apex);
        output.changes.push(ZoneChange::whole(Origin::Objects, zone));
        self.shards.get_mut(apex).expect("the zone was made from it").is_published = true;
        if diagnostics.is_empty() {
            self.diagnostics.remove(apex);
        } else if self.diagnostics.get(apex) != Some(&diagnostics) {
            self.changed = true;
            self.diagnostics.insert(apex.clone(), diagnostics);
        }
    }

    /// Forgets the serial of a removed zone once the clock has passed it: later zones use the clock's.
    fn forget(&mut self, apex: &Name, unix_now: u64, output: &mut Output) {
        let is_past = |last: &Published| Serial(unix_now as u32).is_after(last.serial);
        if self.remembered.get(apex).is_some_and(is_past) {
            self.remembered.remove(apex);
            output.forgotten.push(apex.clone());
        }
        if self.remembered.len() > REMEMBERED_MAX {
            let past = self.remembered.extract_if(|_, last| is_past(last));
            output.forgotten.extend(past.map(|(apex, _)| apex));
        }
    }

    fn take(&mut self, changes: Vec<Change>, now: Instant) {
        // The loser of a conflict changes no zone, but has a diagnostic.
        self.changed = true;
        for change in changes {
            match change {
                Change::Delegation { apex, domain, digest } => {
                    // A former domain that has just come gets its zones with all delegations.
                    if let Some(parent) = self.large.iter_mut().find(|large| large.apex == domain) {
                        let delegations = self.platform.delegations_of(&domain);
                        parent.timeline.push(parent::changes(&apex, delegations, &parent.settings), digest, now);
                        self.dirty.insert(domain);
                    }
                }
                Change::Alias { label, binding, digest } => {
                    for alias in self.large.iter_mut().filter(|large| large.kind == LargeKind::Alias) {
                        // A Route can be on another shard while its alias still has the former target.
                        if digest != alias.timeline.digest() {
                            let target = binding.as_ref().map(|binding| binding.target());
                            let step = alias::change(&label, target, &alias.settings);
                            alias.timeline.push(vec![step], digest, now);
                            self.dirty.insert(alias.apex.clone());
                        }
                    }
                }
                Change::AliasText { label, values, digest } => {
                    for alias in self.large.iter_mut().filter(|large| large.kind == LargeKind::Alias) {
                        let step = alias::text_change(&label, &values, &alias.settings);
                        alias.timeline.push(step.into_iter().collect(), digest, now);
                        self.dirty.insert(alias.apex.clone());
                    }
                }
                Change::Shard { apex, router: Some(router) } => {
                    let former_names = self.platform.former_names(&apex).digest();
                    match self.shards.get_mut(&apex) {
                        Some(shard) => shard.push_router(router, former_names, now),
                        None => {
                            let digest = router.digest.plus(former_names);
                            self.add_shard(apex.clone(), router, digest, now);
                        }
                    }
                    self.dirty.insert(apex);
                }
                Change::FormerName { apex, label, zone, digest } => {
                    if let Some(shard) = self.shards.get_mut(&apex) {
                        shard.push_former_name(label, zone, digest, now);
                        self.dirty.insert(apex);
                    }
                }
                Change::Shard { apex, router: None } => {
                    if let Some(last) = self.shards.remove(&apex).and_then(|shard| shard.timeline.published().copied())
                    {
                        self.remembered.insert(apex.clone(), last);
                    }
                    self.diagnostics.remove(&apex);
                    self.gone.insert(apex.clone());
                    self.dirty.insert(apex);
                }
            }
        }
    }

    fn add_shard(&mut self, apex: Name, router: Arc<ShardView>, digest: Digest, now: Instant) -> &mut Shard {
        let mut timeline = VersionHistory::new(digest, self.remembered.remove(&apex), now);
        timeline.set_ledger(self.ledger.get(&apex).cloned().unwrap_or_default());
        self.dirty.insert(apex.clone());
        let shard = Shard::new(router, self.platform.former_names(&apex).clone(), timeline);
        self.shards.entry(apex).insert_entry(shard).into_mut()
    }
}

/// Returns the settings of each domain: the platform's, then the former ones.
fn domains(settings: &Arc<Settings>) -> impl Iterator<Item = Arc<Settings>> {
    [settings].into_iter().chain(settings.former_domains()).cloned()
}

impl LargeKind {
    const ALL: [LargeKind; 2] = [LargeKind::Parent, LargeKind::Alias];

    fn apex(self, settings: &Settings) -> &Name {
        match self {
            LargeKind::Parent => settings.domain(),
            LargeKind::Alias => settings.alias_apex(),
        }
    }

    fn digest(self, platform: &Platform, settings: &Settings) -> Digest {
        match self {
            LargeKind::Parent => platform.delegations_of(settings.domain()).digest(),
            LargeKind::Alias => platform.alias_digest(),
        }
    }

    fn contents(self, platform: &Platform, settings: &Settings) -> Contents {
        match self {
            LargeKind::Parent => parent::zone(platform.delegations_of(settings.domain()), settings, 0),
            LargeKind::Alias => {
                alias::zone(platform.aliases().map(|binding| &**binding), platform.alias_texts(), settings, 0)
            }
        }
    }
}

impl Large {
    /// Returns the zone of the current objects. `published` is its published version; `is_served`: it is this zone, and is served.
    fn new(
        kind: LargeKind,
        published: Option<Published>,
        is_served: bool,
        platform: &Platform,
        settings: Arc<Settings>,
        now: Instant,
    ) -> Self {
        let mut timeline = VersionHistory::new(kind.digest(platform, &settings), published, now);
        if let LargeKind::Parent = kind {
            // Its file was served under this before.
            timeline.set_before(settings.base.as_deref().and_then(apex::serial_of).map(Serial));
        }
        if is_served {
            timeline.set_served();
        }
        let build = || publish::build(kind.contents(platform, &settings)).expect("the zone has been given a SOA");
        let unpublished = (!is_served).then(build);
        Large { kind, config: settings.digest(), apex: kind.apex(&settings).clone(), settings, timeline, unpublished }
    }

    fn publish(&mut self, steps: usize, published: Published, output: &mut Output) {
        output.changes.extend(self.unpublished.take().map(|zone| ZoneChange::whole(Origin::Objects, zone)));
        let changes = self.timeline.publish(steps, published).flatten().collect();
        let what = What::Owners { changes, serial: published.serial };
        output.changes.push(ZoneChange::of(&self.apex, Origin::Objects, what));
    }
}

impl Counters {
    /// Counts a decision, and schedules the next check. Returns what to publish.
    fn note(
        &mut self,
        decision: Decision,
        apex: &Name,
        waiting: &mut BTreeSet<(Instant, Name)>,
    ) -> Option<(usize, Published)> {
        match decision {
            Decision::Nothing => None,
            Decision::WaitUntil(at) => {
                waiting.insert((at, apex.clone()));
                None
            }
            Decision::Publish { steps, published } => {
                self.published += 1;
                self.provisional += u64::from(published.provisional);
                Some((steps, published))
            }
        }
    }
}

/// Returns the next action for a zone; without `due`, the process has just started.
fn decide<S>(timeline: &VersionHistory<S>, config: Digest, due: Option<Instant>, unix_now: u64) -> Decision {
    due.map_or_else(|| timeline.resume(config), |now| timeline.decide(config, now, unix_now))
}
