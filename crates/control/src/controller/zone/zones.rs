//! All zones that are made from objects: which objects they are made of, what of them is published, and what is to be
//! published next. Pure: what happens comes in as calls, with the time; what is to be done goes out as [`Output`].
//!
//! A changed object costs what it changes. The parent zone and the alias zone may have a name for each of a million objects,
//! so their images are kept and changed name by name. A shard's zone is small and made anew, but for its former names: a shard that
//! was drained has one for each route that has left, and they come and go one by one (`shards`).

use std::collections::BTreeSet;
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use super::restore::Restored;
use super::shards::{Built, Found, Shard, build_shard};
use super::timeline::{Decision, Published, VersionHistory};
use crate::compiler::former_names::FormerNames;
use crate::compiler::inputs::{BindingInput, RouterInput};
use crate::compiler::platform::{Change, Platform};
use crate::compiler::{Diagnostic, Digest, Settings, alias, parent, shard};
use signpost_api::v1alpha1::router::Router;
use signpost_dns::wire::{Name, NameMap, NameSet};
use signpost_dns::zone::parallel::in_parallel;
use signpost_dns::zone::{OwnerChange, Serial, Zone, db};

/// From this many serials of zones that are gone, those that the clock has passed are forgotten.
const REMEMBERED_MAX: usize = 1024;

/// The zones of one platform.
pub struct Zones {
    settings: Arc<Settings>,
    config: Digest,
    platform: Platform,
    parent: Large,
    alias: Large,
    shards: NameMap<Shard>,
    /// What the ledger says of zones, newest first; also of such as are not, or not yet, made.
    ledger: NameMap<Ledger>,
    /// What was published of zones before a restart, or before they went, so that they come back with a newer serial.
    remembered: NameMap<Published>,
    /// Apexes that zone files serve: no shard's zone is published there.
    files: NameMap<Arc<Path>>,
    /// The same apexes in canonical order.
    file_apexes: BTreeSet<Name>,
    /// Apexes whose shard is gone while the map of zones may still have its zone.
    gone: NameSet,
    /// Zones that are as they were before a restart, made already.
    restored: NameMap<Built>,
    /// Zones to look at.
    dirty: NameSet,
    /// When to look at zones again that wait for their serial.
    waiting: BTreeSet<(Instant, Name)>,
    diagnostics: NameMap<Vec<Diagnostic>>,
    /// Whether diagnostics may have changed.
    changed: bool,
    /// What the run so far came to.
    pub counters: Counters,
}

type Ledger = Arc<[(Serial, Digest)]>;

/// What happened, in numbers that only grow.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counters {
    /// Zones published, each time.
    pub published: u64,
    /// Of these, under a serial of our own since the ledger named none.
    pub provisional: u64,
    /// Zones of shards made anew as a whole, rather than by what has changed in them.
    pub made_anew: u64,
    /// Zones taken away.
    pub removed: u64,
}

/// A zone that is changed name by name.
struct Large {
    timeline: VersionHistory<Vec<OwnerChange>>,
    /// The zone at the start of the timeline.
    image: Arc<Zone>,
}

/// What is to be done.
#[derive(Default)]
pub struct Output {
    /// For the map of zones, in one step.
    pub changes: Vec<db::ZoneUpdate>,
    /// For the last-good state: what was published, or `None` for what can be forgotten; of a shard with its zone.
    pub serials: Vec<(Name, Option<Published>, Option<Arc<Zone>>)>,
    /// New diagnostics, for the log.
    pub diagnostics: Vec<Diagnostic>,
}

impl Zones {
    /// The zones of no objects. `remembered` is what was published before a restart.
    pub fn new(settings: Arc<Settings>, remembered: NameMap<Published>, now: Instant) -> Self {
        Self::with_platform(Platform::new(&settings), settings, remembered, now)
    }

    /// The zones of what was known before a restart.
    pub fn with_platform(
        platform: Platform,
        settings: Arc<Settings>,
        remembered: NameMap<Published>,
        now: Instant,
    ) -> Self {
        Self::with_restored(platform, settings, remembered, Restored::default(), now)
    }

    /// The zones of what was known before a restart, of which `restored` is answered from already.
    pub fn with_restored(
        platform: Platform,
        settings: Arc<Settings>,
        remembered: NameMap<Published>,
        mut restored: Restored,
        now: Instant,
    ) -> Self {
        let last = |apex: &Name| remembered.get(apex).copied();
        let (domain, alias_apex) = (settings.domain().clone(), settings.alias_apex().clone());
        let is_last = |apex, digest| last(apex).is_some_and(|last| last.digest == digest);
        let restored_parent = restored.parent.filter(|_| is_last(&domain, platform.parent_digest()));
        let parent_image = restored_parent.unwrap_or_else(|| parent_image(&platform, &settings));
        let restored_alias = restored.alias.filter(|_| is_last(&alias_apex, platform.alias_digest()));
        let alias_image = restored_alias.unwrap_or_else(|| alias_image(&platform, &settings));
        let mut zones = Zones {
            config: settings.digest(),
            // What its file was served under before is set below.
            parent: Large {
                timeline: VersionHistory::new(platform.parent_digest(), last(&domain), now),
                image: parent_image,
            },
            alias: Large {
                timeline: VersionHistory::new(platform.alias_digest(), last(&alias_apex), now),
                image: alias_image,
            },
            shards: NameMap::default(),
            ledger: NameMap::default(),
            files: NameMap::default(),
            file_apexes: BTreeSet::new(),
            gone: NameSet::default(),
            restored: NameMap::default(),
            dirty: NameSet::from_iter([domain, alias_apex]),
            waiting: BTreeSet::new(),
            diagnostics: NameMap::default(),
            changed: true,
            counters: Counters::default(),
            platform,
            settings,
            remembered,
        };
        zones.parent.timeline.set_before(zones.settings.base_serial());
        let routers: Vec<_> = zones.platform.shards().map(|(_, router)| Arc::clone(router)).collect();
        let platform = &zones.platform;
        let (remembered, config, settings) = (&zones.remembered, zones.config, &zones.settings);
        let served = &restored.shards;
        let made = in_parallel(&routers, |router| {
            let mut diagnostics = Vec::new();
            let made = shard::compile(router, platform.former_names(&router.apex), &mut diagnostics);
            let digest = made.digest;
            let last = remembered.get(&router.apex).filter(|last| last.config == config && last.digest == digest);
            // What is wrong with further records is found by making the zone.
            if last.is_some() && router.records.is_empty() && served.contains_key(&router.apex) {
                return (digest, RestoredZone::Served);
            }
            // What is as it was will be served again under its serial: make the zone while its records are at hand.
            let former_names = platform.former_names(&router.apex);
            match last.map(|last| build_shard(router, former_names, made, diagnostics, settings, last.serial)) {
                Some(built) => (digest, RestoredZone::Built(Box::new(built))),
                None => (digest, RestoredZone::Not),
            }
        });
        for (router, (digest, as_before)) in made {
            let apex = &router.apex;
            let shard = zones.add_shard(apex.clone(), Arc::clone(router), digest, now);
            match as_before {
                RestoredZone::Served => shard.timeline.set_served(),
                RestoredZone::Built(built) => drop(zones.restored.insert(apex.clone(), *built)),
                RestoredZone::Not => {}
            }
            restored.shards.remove(apex);
        }
        // Zones of Routers that went before the restart, and whose end was not published any more.
        zones.dirty.extend(restored.shards.keys().cloned());
        zones.gone.extend(restored.shards.into_keys());
        zones
    }

    /// The objects.
    pub fn platform(&self) -> &Platform {
        &self.platform
    }

    /// Serves at once, without waiting for the ledger, all that was served before a restart.
    pub fn resume(&mut self, unix_now: u64) -> Output {
        // The zones never served yet stay dirty, and wait for the ledger as any new one.
        let apexes: Vec<Name> = self.dirty.iter().cloned().collect();
        let output = self.publish(apexes, When::Resume, unix_now);
        self.restored = NameMap::default();
        output
    }

    /// A Router was created or changed.
    pub fn set_router(&mut self, router: Arc<RouterInput>, now: Instant) {
        let mut changes = Vec::new();
        self.platform.set_router(router, &mut changes);
        self.take(changes, now);
    }

    /// A Router is gone.
    pub fn remove_router(&mut self, name: &str, now: Instant) {
        let mut changes = Vec::new();
        self.platform.remove_router(name, &mut changes);
        self.take(changes, now);
    }

    /// A RouteBinding was created or changed.
    pub fn set_binding(&mut self, binding: Arc<BindingInput>, now: Instant) {
        let mut changes = Vec::new();
        self.platform.set_binding(binding, &mut changes);
        self.take(changes, now);
    }

    /// A RouteBinding is gone.
    pub fn remove_binding(&mut self, key: &str, now: Instant) {
        let mut changes = Vec::new();
        self.platform.remove_binding(key, &mut changes);
        self.take(changes, now);
    }

    /// The ledger of a zone was written; newest version first. Empty: it is gone.
    pub fn set_ledger(&mut self, apex: &Name, versions: Ledger) {
        if apex == self.settings.domain() {
            self.parent.timeline.set_ledger(versions.clone());
        } else if apex == self.settings.alias_apex() {
            self.alias.timeline.set_ledger(versions.clone());
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

    /// The configuration was changed. The domain is the same: another one takes a restart.
    pub fn set_settings(&mut self, settings: Arc<Settings>, now: Instant) {
        let config = settings.digest();
        if config == self.config || settings.domain() != self.settings.domain() {
            return;
        }
        (self.settings, self.config) = (settings, config);
        let (parent_image, alias_image) =
            (parent_image(&self.platform, &self.settings), alias_image(&self.platform, &self.settings));
        for (large, image, digest, apex) in [
            (&mut self.parent, parent_image, self.platform.parent_digest(), self.settings.domain()),
            (&mut self.alias, alias_image, self.platform.alias_digest(), self.settings.alias_apex()),
        ] {
            // The waiting steps are part of the new image.
            let published = large.timeline.published().copied();
            *large = Large { timeline: VersionHistory::new(digest, published, now), image };
            large.timeline.set_ledger(self.ledger.get(apex).cloned().unwrap_or_default());
            self.dirty.insert(apex.clone());
        }
        self.parent.timeline.set_before(self.settings.base_serial());
        self.dirty.extend(self.shards.keys().cloned());
    }

    /// Zone files serve these apexes. A shard of such an apex is not published; one whose file is gone is, at once.
    pub fn set_files(&mut self, files: NameMap<Arc<Path>>) {
        let changed = |apex: &&Name| self.files.contains_key(*apex) != files.contains_key(*apex);
        let changed: Vec<Name> = self.files.keys().chain(files.keys()).filter(changed).cloned().collect();
        for apex in changed {
            // Whatever was published of the shard, the map of zones has it no more.
            if let Some(shard) = self.shards.get_mut(&apex) {
                shard.timeline.unserve();
            }
            // The file's zone is ours to take away.
            self.gone.insert(apex.clone());
            self.dirty.insert(apex);
        }
        self.file_apexes = files.keys().cloned().collect();
        self.files = files;
        self.changed = true;
    }

    /// The Router whose shard is at `apex`.
    pub fn router_of(&self, apex: &Name) -> Option<&str> {
        self.platform.shard(apex).map(|router| &*router.name)
    }

    /// All diagnostics of now.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        let mut diagnostics: Vec<Diagnostic> = self.platform.refused().cloned().collect();
        diagnostics.extend(self.diagnostics.values().flatten().cloned());
        let mut both = |apex: &Name| {
            if let (Some(router), Some(path)) = (self.platform.shard(apex), self.files.get(apex)) {
                diagnostics.push(clash(&router.name, apex, path));
            }
        };
        if self.files.len() < self.shards.len() {
            self.files.keys().for_each(&mut both);
        } else {
            self.shards.keys().for_each(&mut both);
        }
        diagnostics.extend(self.shadows());
        diagnostics.sort();
        diagnostics
    }

    /// What is to be said of zone files that lie inside a zone made from objects, and hide a part of it.
    fn shadows(&self) -> Vec<Diagnostic> {
        let files: BTreeSet<&Name> = match self.files.len() < self.shards.len() {
            true => self.file_apexes.iter().collect(),
            false => self.shards.keys().flat_map(|zone| self.files_inside(zone)).collect(),
        };
        let of_shard = |file: &Name| {
            let mut above = std::iter::successors(file.parent(), Name::parent);
            Some(shadow(&above.find_map(|zone| self.platform.shard(&zone))?.name, file, self.files.get(file)?))
        };
        let alias_apex = self.settings.alias_apex();
        let of_alias = |file: &Name| {
            let label = file.labels().next().filter(|_| file.parent().as_ref() == Some(alias_apex))?;
            let binding = self.platform.alias(std::str::from_utf8(label).ok()?)?;
            let path = self.files.get(file)?.display();
            let message = format!("the alias {file} is answered from the file {path}, not from here; remove the file");
            Some(Diagnostic::binding(&binding.key, "spec.label", message))
        };
        files
            .into_iter()
            .filter_map(of_shard)
            .chain(self.files_inside(alias_apex).into_iter().filter_map(of_alias))
            .collect()
    }

    fn files_inside<'a>(&'a self, zone: &Name) -> Vec<&'a Name> {
        // In the canonical order all that is below a name follows it.
        let after = self.file_apexes.range((Bound::Excluded(zone), Bound::Unbounded));
        after.take_while(|file| file.is_below(zone)).collect()
    }

    /// All diagnostics of now, if something has changed since this was asked last.
    pub fn changed_diagnostics(&mut self) -> Option<Vec<Diagnostic>> {
        std::mem::take(&mut self.changed).then(|| self.diagnostics())
    }

    /// What the base of the parent zone has where another zone is.
    pub fn hidden_base_names(&self) -> Vec<Name> {
        parent::hidden_base_names(self.platform.delegations(), &self.settings)
    }

    /// How many zones there are.
    pub fn count(&self) -> usize {
        self.shards.len() + 2
    }

    /// When to call [`Self::publish_due`] again, if nothing happens before.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.waiting.first().map(|(at, _)| *at)
    }

    /// Publishes what can be.
    pub fn publish_due(&mut self, now: Instant, unix_now: u64) -> Output {
        while let Some((at, _)) = self.waiting.first()
            && *at <= now
        {
            let (_, apex) = self.waiting.pop_first().expect("it was there");
            self.dirty.insert(apex);
        }
        let apexes: Vec<Name> = self.dirty.drain().collect();
        self.publish(apexes, When::Due(now), unix_now)
    }

    fn publish(&mut self, apexes: Vec<Name>, when: When, unix_now: u64) -> Output {
        let mut output = Output::default();
        let mut jobs = Vec::new();
        for apex in apexes {
            if apex == *self.settings.domain() {
                let apex_change = |serial| parent::apex_change(&self.settings, serial);
                let decision = when.decide(&self.parent.timeline, self.config, unix_now);
                self.counters.note(decision, &apex, &mut self.waiting);
                self.parent.publish(decision, self.config, apex_change, &mut output);
            } else if apex == *self.settings.alias_apex() {
                let apex_change = |serial| alias::apex_change(&self.settings, serial);
                let decision = when.decide(&self.alias.timeline, self.config, unix_now);
                self.counters.note(decision, &apex, &mut self.waiting);
                self.alias.publish(decision, self.config, apex_change, &mut output);
            } else if self.files.contains_key(&apex) {
                self.gone.remove(&apex);
            } else if let Some(shard) = self.shards.get(&apex) {
                let decision = when.decide(&shard.timeline, self.config, unix_now);
                self.counters.note(decision, &apex, &mut self.waiting);
                if let Decision::Publish { steps, serial, provisional } = decision {
                    let digest = shard.timeline.digest_after(steps);
                    let published = Published { serial, digest, config: self.config, provisional };
                    let restored = self.restored.remove(&apex).filter(|_| matches!(when, When::Resume));
                    let shard = self.shards.get_mut(&apex).expect("it was there");
                    match restored.or_else(|| shard.changed(steps, &published)) {
                        Some(built) => {
                            shard.pass(steps, published);
                            self.publish_shard(&apex, published, built, &mut output);
                        }
                        None => {
                            shard.pass(steps, published);
                            jobs.push((apex, published));
                        }
                    }
                }
            } else if self.gone.remove(&apex) {
                self.forget(&apex, unix_now, &mut output);
                self.counters.removed += 1;
                output.changes.push(db::ZoneUpdate::Remove(apex));
            }
        }
        self.publish_shards(&jobs, &mut output);
        output
    }

    /// Makes the zones of shards anew and publishes them.
    fn publish_shards(&mut self, jobs: &[(Name, Published)], output: &mut Output) {
        let (settings, shards) = (&self.settings, &self.shards);
        let made = in_parallel(jobs, |(apex, published)| shards[apex].build(settings, published.serial));
        for ((apex, published), built) in made {
            self.counters.made_anew += 1;
            self.publish_shard(apex, *published, built, output);
        }
    }

    fn publish_shard(&mut self, apex: &Name, published: Published, built: Built, output: &mut Output) {
        let shard = self.shards.get_mut(apex).expect("the zone was made from it");
        self.gone.remove(apex);
        let Built { zone, found } = built;
        let (diagnostics, own_labels) = found.map(Found::split).unzip();
        shard.keep(&zone, own_labels);
        output.serials.push((apex.clone(), Some(published), Some(Arc::clone(&zone))));
        output.changes.push(db::ZoneUpdate::Publish(zone));
        // Former names that have changed alone are no matter of diagnostics.
        let Some(diagnostics) = diagnostics else { return };
        if diagnostics.is_empty() {
            self.diagnostics.remove(apex);
        } else if self.diagnostics.get(apex) != Some(&diagnostics) {
            self.changed = true;
            output.diagnostics.extend(diagnostics.iter().cloned());
            self.diagnostics.insert(apex.clone(), diagnostics);
        }
    }

    /// Forgets the serial of a zone that is gone, once the clock is past it: what comes after takes the clock's.
    fn forget(&mut self, apex: &Name, unix_now: u64, output: &mut Output) {
        let is_past = |last: &Published| Serial(unix_now as u32).is_after(last.serial);
        if self.remembered.get(apex).is_some_and(is_past) {
            self.remembered.remove(apex);
            output.serials.push((apex.clone(), None, None));
        } else if let Some(last) = self.remembered.get(apex) {
            // Its serial is kept, its zone is not served any more.
            output.serials.push((apex.clone(), Some(*last), None));
        }
        if self.remembered.len() > REMEMBERED_MAX {
            let past = self.remembered.extract_if(|_, last| is_past(last));
            output.serials.extend(past.map(|(apex, _)| (apex, None, None)));
        }
    }

    fn take(&mut self, changes: Vec<Change>, now: Instant) {
        // A loser of a conflict changes no zone, and has a diagnostic nevertheless.
        self.changed = true;
        for change in changes {
            match change {
                Change::Delegation { apex, digest } => {
                    let step = parent::changes(&apex, self.platform.delegations(), &self.settings);
                    self.parent.timeline.push(step, digest, now);
                    self.dirty.insert(self.settings.domain().clone());
                }
                Change::Alias { label, binding, digest } => {
                    let step = alias::change(&label, binding.as_ref().map(|binding| &*binding.shard), &self.settings);
                    self.alias.timeline.push(vec![step], digest, now);
                    self.dirty.insert(self.settings.alias_apex().clone());
                }
                Change::Shard { apex, router: Some(router) } => {
                    let former_names = self.platform.former_names(&apex).digest();
                    match self.shards.get_mut(&apex) {
                        Some(shard) => shard.push_router(router, former_names, now),
                        None => {
                            let digest = shard::digest(&router).plus(former_names);
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

    fn add_shard(&mut self, apex: Name, router: Arc<RouterInput>, digest: Digest, now: Instant) -> &mut Shard {
        let mut timeline = VersionHistory::new(digest, self.remembered.remove(&apex), now);
        timeline.set_ledger(self.ledger.get(&apex).cloned().unwrap_or_default());
        self.dirty.insert(apex.clone());
        let shard = Shard::new(router, self.platform.former_names(&apex).clone(), timeline);
        self.shards.entry(apex).insert_entry(shard).into_mut()
    }
}

impl Large {
    fn publish(
        &mut self,
        decision: Decision,
        config: Digest,
        apex_change: impl FnOnce(u32) -> OwnerChange,
        output: &mut Output,
    ) {
        let Decision::Publish { steps, serial, provisional } = decision else { return };
        let digest = self.timeline.digest_after(steps);
        // Of several changes of one owner the last one holds.
        let mut changes: NameMap<OwnerChange> = NameMap::default();
        let published = Published { serial, digest, config, provisional };
        for change in self.timeline.publish(steps, published).flatten().chain([apex_change(serial.0)]) {
            changes.insert(change.owner.clone(), change);
        }
        let changes: Vec<OwnerChange> = changes.into_values().collect();
        self.image = Arc::new(self.image.with_changes(&changes).expect("the change of the apex brings a SOA"));
        output.changes.push(db::ZoneUpdate::Publish(Arc::clone(&self.image)));
        output.serials.push((self.image.apex().clone(), Some(published), None));
    }
}

impl Counters {
    fn note(&mut self, decision: Decision, apex: &Name, waiting: &mut BTreeSet<(Instant, Name)>) {
        match decision {
            Decision::Nothing => {}
            Decision::WaitUntil(at) => {
                waiting.insert((at, apex.clone()));
            }
            Decision::Publish { provisional, .. } => {
                self.published += 1;
                self.provisional += u64::from(provisional);
            }
        }
    }
}

/// Why zones are looked at.
#[derive(Clone, Copy)]
enum When {
    /// This process has just started.
    Resume,
    /// Something may be due.
    Due(Instant),
}

impl When {
    fn decide<S>(self, timeline: &VersionHistory<S>, config: Digest, unix_now: u64) -> Decision {
        match self {
            When::Resume => timeline.resume(config),
            When::Due(now) => timeline.decide(config, now, unix_now),
        }
    }
}

/// What is known of a shard's zone that is as it was before a restart.
enum RestoredZone {
    /// It is not.
    Not,
    /// It is answered from.
    Served,
    /// It has been made anew.
    Built(Box<Built>),
}

/// What is wrong with a Router, as far as it alone can tell: what a name server leaves out of its zone, and why.
pub fn examine(router: &Router, settings: &Settings) -> Vec<Diagnostic> {
    let mut diagnostics = Vec::new();
    if let Some(input) = RouterInput::read(router, &settings.domain_text(), &mut diagnostics) {
        let mut left_out = Vec::new();
        let former_names = FormerNames::default();
        let made = shard::compile(&input, &former_names, &mut left_out);
        let built = build_shard(&input, &former_names, made, left_out, settings, Serial(0));
        diagnostics.extend(built.found.into_iter().flat_map(|found| found.diagnostics));
    }
    diagnostics
}

fn parent_image(platform: &Platform, settings: &Settings) -> Arc<Zone> {
    let contents = parent::zone(platform.delegations(), settings, 0);
    Arc::new(Zone::build(&contents).expect("the zone has been given a SOA"))
}

fn alias_image(platform: &Platform, settings: &Settings) -> Arc<Zone> {
    let contents = alias::zone(platform.aliases().map(|binding| &**binding), settings, 0);
    Arc::new(Zone::build(&contents).expect("the zone has been given a SOA"))
}

/// A zone file inside a Router's zone: it hides the names at and below its apex.
fn shadow(router: &str, file: &Name, path: &std::path::Path) -> Diagnostic {
    let message = format!(
        "names at and below {file} are answered from the file {}, not from the Router's zone; remove the file, unless no route \
         has that name",
        path.display()
    );
    Diagnostic::router(router, "spec.dns", message)
}

/// A Router and a zone file that want one apex: the file serves.
pub fn clash(router: &str, apex: &Name, path: &std::path::Path) -> Diagnostic {
    let message = format!(
        "the zone {apex} is served from the file {}; remove the file, or make the Router again with another dns",
        path.display()
    );
    Diagnostic::router(router, "spec.dns", message)
}
