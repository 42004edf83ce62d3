//! The loop that makes the zones what the API's objects say: watch, reduce, find what changed, number, publish.
//!
//! ```text
//!  Routers ─────┐                       ┌─ Platform: conflicts, digests      ┌─► ZoneDb
//!  RouteBindings┼─► Change ─► Zones ────┤                          ─► Output ┼─► last-good state
//!  Zones ───────┘   (by watch)          └─ Timelines: which state, which     └─► log, status
//!  (ledger)                                serial ([`timeline`])
//! ```
//!
//! Everything is driven by events. What has piled up while one batch was worked on is the next batch; nobody waits for more
//! to come. Before the objects were listed once, nothing is published and the map of zones is not ready, unless a last-good
//! state from before a restart is there: then it is served at once. What is published first is all of it, in one step: as
//! long as a shard's zone is missing, the parent zone's word on its names would be a wrong one. While the API is away, what
//! is there goes on.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::FutureExt as _;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use self::hold::Hold;
use self::last_good::{LastGood, Opened, StateError};
use self::restore::Restored;
use self::status::{Held, Status};
use self::zones::{Output, Zones};
use super::apexes::Apexes;
use crate::api::v1alpha1::route_binding::RouteBinding;
use crate::api::v1alpha1::router::Router;
use crate::api::v1alpha1::zone::Zone as LedgerZone;
use crate::client::reflector::{self, Change, Changes, ObjectKey, Resync, Store};
use crate::compiler::inputs::{BindingInput, RouterInput};
use crate::compiler::settings::text_of;
use crate::compiler::{Digest, Platform, Settings, Verdict};
use crate::wire::Name;
use crate::zone::{Serial, ZoneDb, db};

pub mod hold;
pub mod last_good;
pub mod parallel;
pub mod record;
pub mod restore;
pub mod status;
pub mod timeline;
pub mod zones;

/// Most events of one batch: some milliseconds of work.
const BATCH_MAX: usize = 4096;
/// How often the old versions of zones are freed and verdicts are told, when nothing happens.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// Most names of the parent zone's file that a warning tells as not served.
const HIDDEN_TOLD_MAX: usize = 10;
/// Fewer RouteBindings than this may vanish between two lists without question; of Routers, not even one may be the most.
const BINDING_LOSSES_MIN: usize = 10;

/// What the loop is given.
pub struct Options {
    /// The configuration of now. The platform's domain must stay what it is.
    pub settings: watch::Receiver<Arc<Settings>>,
    /// The directory of the last-good state; `None`: none is kept, as where the API is in the same process.
    pub state: Option<PathBuf>,
    /// The register of who serves what, shared with the loop of the zone files, which has loaded them by now.
    pub apexes: Arc<Apexes>,
    /// Where the loop tells how it fares.
    pub status: Arc<Status>,
}

/// Runs until `stop`. The error is one of the start: the directory of the last-good state cannot be used.
pub async fn run(
    client: kube::Client,
    db: Arc<ZoneDb>,
    options: Options,
    stop: CancellationToken,
) -> Result<(), StateError> {
    let mut sources = Sources::new(client, &options);
    let mut run = Run::start(db, options)?;
    if run.zones.is_none() {
        tokio::select! {
            () = run.gather(&mut sources) => {}
            () = stop.cancelled() => return Ok(()),
        }
    }
    run.follow(&mut sources, &stop).await;
    // The last-good state is brought to the disk when it is dropped.
    drop(run);
    Ok(())
}

/// An object as the compiler needs it, with what is wrong with it.
#[derive(Debug)]
struct Read<T> {
    input: Option<Arc<T>>,
    verdicts: Vec<Verdict>,
}

/// What the ledger says of one zone: its apex and versions, newest first. `None` if its name is no name.
pub(super) type LedgerEntry = Option<(Name, Arc<[(Serial, Digest)]>)>;

/// The streams of changes.
struct Sources {
    routers: (Store<Read<RouterInput>>, Changes<Read<RouterInput>>),
    bindings: (Store<Read<BindingInput>>, Changes<Read<BindingInput>>),
    ledger: (Store<LedgerEntry>, Changes<LedgerEntry>),
    settings: watch::Receiver<Arc<Settings>>,
    files: watch::Receiver<()>,
    approvals: watch::Receiver<u64>,
}

/// One thing that happened.
enum Event {
    Router(Change<Read<RouterInput>>),
    Binding(Change<Read<BindingInput>>),
    Ledger(Change<LedgerEntry>),
    Settings,
    Approved,
}

impl Sources {
    fn new(client: kube::Client, options: &Options) -> Self {
        let domain = options.settings.borrow().domain_text();
        let settings = reflector::Settings::default;
        let sources = Sources {
            routers: reflector::reflect(client.clone(), settings(), move |router: Router| {
                let mut verdicts = Vec::new();
                let input = RouterInput::read(&router, &domain, &mut verdicts).map(Arc::new);
                Read { input, verdicts }
            }),
            bindings: reflector::reflect(client.clone(), settings(), |binding: RouteBinding| {
                let mut verdicts = Vec::new();
                let input = BindingInput::read(&binding, &mut verdicts).map(Arc::new);
                Read { input, verdicts }
            }),
            ledger: reflector::reflect(client, settings(), |zone: LedgerZone| ledger_entry(&zone)),
            settings: options.settings.clone(),
            files: options.apexes.subscribe(),
            approvals: options.status.approvals(),
        };
        let (routers, bindings, ledger) =
            (sources.routers.0.clone(), sources.bindings.0.clone(), sources.ledger.0.clone());
        options.status.set_mirrors(move || vec![routers.health(), bindings.health(), ledger.health()]);
        sources
    }

    /// The next event. Nothing is lost if it is dropped before it comes.
    async fn next(&mut self) -> Event {
        tokio::select! {
            change = self.routers.1.next() => Event::Router(change),
            change = self.bindings.1.next() => Event::Binding(change),
            change = self.ledger.1.next() => Event::Ledger(change),
            // A sender that is gone changes nothing any more.
            Ok(()) = self.settings.changed() => Event::Settings,
            Ok(()) = self.files.changed() => Event::Settings,
            Ok(()) = self.approvals.changed() => Event::Approved,
        }
    }

    fn are_synced(&self) -> bool {
        self.routers.0.is_synced() && self.bindings.0.is_synced() && self.ledger.0.is_synced()
    }
}

/// What a `Zone` object says; versions that cannot be read are left out.
pub(super) fn ledger_entry(zone: &LedgerZone) -> LedgerEntry {
    let apex = zone.metadata.name.as_deref()?.parse().ok()?;
    let versions = zone.spec.versions.iter();
    let versions = versions.filter_map(|version| Some((Serial(version.serial), version.digest.parse().ok()?)));
    Some((apex, versions.collect()))
}

struct Run {
    db: Arc<ZoneDb>,
    apexes: Arc<Apexes>,
    status: Arc<Status>,
    settings: watch::Receiver<Arc<Settings>>,
    state: Option<LastGood>,
    zones: Option<Zones>,
    routers: Hold,
    bindings: Hold,
    /// What was told to the log already.
    told: HashSet<Verdict>,
    /// Changes of objects for the last-good state.
    journal: Vec<last_good::Change>,
    /// Zones that wait until all are made; `None` from then on.
    first: Option<Vec<db::Change>>,
}

impl Run {
    /// Serves the last-good state, if there is one.
    fn start(db: Arc<ZoneDb>, options: Options) -> Result<Run, StateError> {
        let Options { settings, state, apexes, status } = options;
        let mut run = Run {
            db,
            apexes,
            status,
            settings,
            state: None,
            zones: None,
            routers: Hold::new("Router", 1),
            bindings: Hold::new("RouteBinding", BINDING_LOSSES_MIN),
            told: HashSet::new(),
            journal: Vec::new(),
            first: Some(Vec::new()),
        };
        let Some(directory) = state else { return Ok(run) };
        let current = run.current_settings();
        let (state, Opened { loaded, problem }) = LastGood::open(&directory, &current.domain_text())?;
        run.status.set_last_good(state.failing());
        run.state = Some(state);
        if let Some(problem) = problem {
            tracing::error!("last-good state: {problem}");
        }
        let Some(mut loaded) = loaded else { return Ok(run) };
        let restored = Restored::take(&mut loaded, &current);
        run.serve_restored(&restored, &current);
        let mut platform = Platform::new(&current);
        let mut ignored = Vec::new();
        for router in loaded.routers {
            platform.set_router(Arc::new(router), &mut ignored);
        }
        for binding in loaded.bindings {
            platform.set_binding(Arc::new(binding), &mut ignored);
        }
        let mut zones = Zones::with_restored(platform, current, loaded.published, restored, Instant::now());
        zones.set_files(run.apexes.files());
        let output = zones.resume(unix_now());
        let (routers, bindings) = zones.platform().counts();
        run.zones = Some(zones);
        run.carry_out(output);
        run.set_ready();
        tracing::info!(routers, bindings, "serving the last-good state until the API is heard");
        Ok(run)
    }

    /// Answers from what was served before a restart, while the objects are still to be looked at.
    fn serve_restored(&self, restored: &Restored, settings: &Settings) {
        if restored.is_empty() {
            return;
        }
        self.apexes.publish_platform(restored.changes(settings), &self.db);
        self.db.set_ready();
        if restored.is_whole() {
            self.status.set_ready();
        }
    }

    /// The configuration of now, with the base of the parent zone.
    fn current_settings(&self) -> Arc<Settings> {
        let settings = Arc::clone(&self.settings.borrow());
        match self.apexes.base() {
            None => settings,
            base => Arc::new(settings.with_base(base)),
        }
    }

    /// Warns of what the base of the parent zone has where another zone is.
    fn warn_of_hidden(&self) {
        let Some(zones) = &self.zones else { return };
        for name in zones.hidden_base_names().into_iter().take(HIDDEN_TOLD_MAX) {
            tracing::warn!(%name, "the parent zone's file has records where a shard or the aliases have their zone; they are not served");
        }
    }

    /// Takes in all objects, and makes the zones when all are there.
    async fn gather(&mut self, sources: &mut Sources) {
        let mut platform = Platform::new(&self.current_settings());
        let mut ledger: HashMap<Name, Arc<[(Serial, Digest)]>> = HashMap::new();
        let mut ignored = Vec::new();
        while !sources.are_synced() {
            match sources.next().await {
                Event::Router(change) => each_object(change, |key, read| {
                    read.iter().flat_map(|read| &read.verdicts).for_each(|verdict| self.tell(verdict.clone()));
                    match read.and_then(|read| read.input.clone()) {
                        Some(router) => platform.set_router(router, &mut ignored),
                        None => drop(platform.remove_router(&key.to_string(), &mut ignored)),
                    }
                }),
                Event::Binding(change) => each_object(change, |key, read| {
                    read.iter().flat_map(|read| &read.verdicts).for_each(|verdict| self.tell(verdict.clone()));
                    match read.and_then(|read| read.input.clone()) {
                        Some(binding) => platform.set_binding(binding, &mut ignored),
                        None => drop(platform.remove_binding(&key.to_string(), &mut ignored)),
                    }
                }),
                Event::Ledger(change) => {
                    each_object(change, |key, entry| match entry.and_then(|entry| (**entry).clone()) {
                        Some((apex, versions)) => drop(ledger.insert(apex, versions)),
                        None => drop(key.name.parse().map(|apex: Name| ledger.remove(&apex))),
                    })
                }
                Event::Settings | Event::Approved => {}
            }
            ignored.clear();
        }
        if self.state.is_some() {
            let routers = platform.routers().map(|router| record::router(&router.name, Some(router)));
            self.journal.extend(routers);
            let bindings = platform.bindings().map(|binding| record::binding(&binding.key, Some(binding)));
            self.journal.extend(bindings);
        }
        let mut zones = Zones::with_platform(platform, self.current_settings(), HashMap::new(), Instant::now());
        zones.set_files(self.apexes.files());
        for (apex, versions) in ledger {
            zones.set_ledger(&apex, versions);
        }
        self.zones = Some(zones);
    }

    /// Takes in what happens and publishes what comes of it, until `stop`.
    async fn follow(&mut self, sources: &mut Sources, stop: &CancellationToken) {
        self.warn_of_hidden();
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
        housekeeping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.publish_due();
            self.status.set_synced(sources.are_synced());
            let deadline = self.zones.as_ref().and_then(Zones::next_deadline);
            let deadline = deadline.map(tokio::time::Instant::from_std);
            tokio::select! {
                () = stop.cancelled() => return,
                event = sources.next() => {
                    self.take(event);
                    // What has come meanwhile is published together with it.
                    for _ in 1..BATCH_MAX {
                        let Some(event) = sources.next().now_or_never() else { break };
                        self.take(event);
                    }
                }
                () = tokio::time::sleep_until(deadline.unwrap_or_else(tokio::time::Instant::now)), if deadline.is_some() => {}
                _ = housekeeping.tick() => self.keep_house(),
            }
        }
    }

    fn publish_due(&mut self) {
        let Some(zones) = &mut self.zones else { return };
        let output = zones.publish_due(Instant::now(), unix_now());
        let all_published = zones.next_deadline().is_none();
        self.carry_out(output);
        if all_published {
            self.set_ready();
        }
    }

    fn carry_out(&mut self, output: Output) {
        let Output { changes, serials, verdicts } = output;
        match &mut self.first {
            Some(first) => first.extend(changes),
            None if changes.is_empty() => {}
            None => self.apexes.publish_platform(changes, &self.db),
        }
        for verdict in verdicts {
            self.tell(verdict);
        }
        if let Some(zones) = &self.zones {
            self.status.set_counters(zones.counters, zones.count());
        }
        let Some(state) = &self.state else { return self.journal.clear() };
        let serials = serials.iter();
        let records = serials.map(|(apex, published, zone)| record::zone(apex, published.as_ref(), zone.as_deref()));
        self.journal.extend(records);
        state.write(std::mem::take(&mut self.journal));
    }

    fn set_ready(&mut self) {
        if let Some(first) = self.first.take() {
            self.apexes.publish_platform(first, &self.db);
            self.db.set_ready();
        }
        self.status.set_ready();
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Router(change) => self.take_router(change),
            Event::Binding(change) => self.take_binding(change),
            Event::Ledger(change) => {
                let Some(zones) = &mut self.zones else { return };
                each_object(change, |key, entry| match entry.and_then(|entry| (**entry).clone()) {
                    Some((apex, versions)) => zones.set_ledger(&apex, versions),
                    None => {
                        if let Ok(apex) = key.name.parse() {
                            zones.set_ledger(&apex, Arc::default());
                        }
                    }
                });
            }
            Event::Settings => {
                let settings = self.current_settings();
                if let Some(zones) = &mut self.zones {
                    zones.set_settings(settings, Instant::now());
                    zones.set_files(self.apexes.files());
                }
                self.warn_of_hidden();
            }
            Event::Approved => self.approve(),
        }
    }

    fn take_router(&mut self, change: Change<Read<RouterInput>>) {
        if let Change::Resynced(resync) = &change {
            let known =
                |run: &Run| run.known(|zones| zones.platform().routers().map(|router| router.name.clone()).collect());
            let (vanished, known) = self.vanished(resync, known, |run| &run.routers);
            let removed = self.routers.judge(known, vanished);
            removed.iter().for_each(|name| self.remove_router(name));
            self.tell_held();
        }
        let mut applied = Vec::new();
        each(change, |key, read| applied.push((key.to_string(), read.cloned())));
        for (name, read) in applied {
            self.routers.release(&name);
            let verdicts = read.iter().flat_map(|read| read.verdicts.clone()).collect::<Vec<_>>();
            verdicts.into_iter().for_each(|verdict| self.tell(verdict));
            match read.and_then(|read| read.input.clone()) {
                Some(router) => {
                    self.journal.push(record::router(&name, Some(&router)));
                    if let Some(zones) = &mut self.zones {
                        zones.set_router(router, Instant::now());
                    }
                }
                None => self.remove_router(&name),
            }
        }
    }

    fn take_binding(&mut self, change: Change<Read<BindingInput>>) {
        if let Change::Resynced(resync) = &change {
            let known =
                |run: &Run| run.known(|zones| zones.platform().bindings().map(|binding| binding.key.clone()).collect());
            let (vanished, known) = self.vanished(resync, known, |run| &run.bindings);
            let removed = self.bindings.judge(known, vanished);
            removed.iter().for_each(|key| self.remove_binding(key));
            self.tell_held();
        }
        let mut applied = Vec::new();
        each(change, |key, read| applied.push((key.to_string(), read.cloned())));
        for (key, read) in applied {
            self.bindings.release(&key);
            let verdicts = read.iter().flat_map(|read| read.verdicts.clone()).collect::<Vec<_>>();
            verdicts.into_iter().for_each(|verdict| self.tell(verdict));
            match read.and_then(|read| read.input.clone()) {
                Some(binding) => {
                    self.journal.push(record::binding(&key, Some(&binding)));
                    if let Some(zones) = &mut self.zones {
                        zones.set_binding(binding, Instant::now());
                    }
                }
                None => self.remove_binding(&key),
            }
        }
    }

    /// Which of the known objects a full list does not hold, those included that were held before, and how many are known.
    fn vanished<V>(
        &self,
        resync: &Resync<V>,
        known: impl Fn(&Run) -> HashSet<Box<str>>,
        hold: impl Fn(&Run) -> &Hold,
    ) -> (HashSet<Box<str>>, usize) {
        let known = known(self);
        let count = known.len();
        let mut vanished: HashSet<Box<str>> = if resync.first {
            // The mirror knew nothing before; the last-good state did.
            known
        } else {
            let told = resync.vanished.iter().map(|(key, _)| key.to_string().into_boxed_str());
            told.chain(hold(self).held().map(Into::into)).collect()
        };
        for applied in &resync.applied {
            vanished.remove(&*applied.key.to_string());
        }
        (vanished, count)
    }

    fn known(&self, names: impl Fn(&Zones) -> HashSet<Box<str>>) -> HashSet<Box<str>> {
        self.zones.as_ref().map(names).unwrap_or_default()
    }

    fn remove_router(&mut self, name: &str) {
        self.journal.push(record::router(name, None));
        if let Some(zones) = &mut self.zones {
            zones.remove_router(name, Instant::now());
        }
    }

    fn remove_binding(&mut self, key: &str) {
        self.journal.push(record::binding(key, None));
        if let Some(zones) = &mut self.zones {
            zones.remove_binding(key, Instant::now());
        }
    }

    /// Someone said that the losses which are held are right.
    fn approve(&mut self) {
        for name in self.routers.approve() {
            self.remove_router(&name);
        }
        for key in self.bindings.approve() {
            self.remove_binding(&key);
        }
        self.tell_held();
    }

    fn tell_held(&self) {
        let holds = [&self.routers, &self.bindings];
        let held = holds.into_iter().filter(|hold| hold.count() > 0);
        let held: Vec<Held> = held.map(|hold| Held { kind: hold.kind(), count: hold.count() }).collect();
        for Held { kind, count } in &held {
            tracing::error!(
                kind,
                count,
                "most objects of this kind are missing from the API's list; their names are still served: \
                 restore the objects, or approve the loss if it is meant"
            );
        }
        self.status.set_held(held);
    }

    fn tell(&mut self, verdict: Verdict) {
        // Bounded by forgetting: then it may be told twice.
        if self.told.len() >= BATCH_MAX {
            self.told.clear();
        }
        if self.told.insert(verdict.clone()) {
            tracing::warn!(object = %verdict.object, path = %verdict.path, "{}", verdict.message);
        }
    }

    fn keep_house(&mut self) {
        self.db.reclaim();
        let Some(verdicts) = self.zones.as_mut().and_then(Zones::changed_verdicts) else { return };
        for verdict in &verdicts {
            self.tell(verdict.clone());
        }
        self.status.set_verdicts(verdicts);
    }
}

/// Passes on each object that a change tells of: its value, or `None` if it was deleted. What a list shows as vanished is
/// not passed on: that is judged as a whole.
fn each<V>(change: Change<V>, mut on: impl FnMut(&ObjectKey, Option<&Arc<V>>)) {
    match change {
        Change::Applied(applied) => on(&applied.key, Some(&applied.now)),
        Change::Deleted { key, .. } => on(&key, None),
        Change::Resynced(resync) => resync.applied.iter().for_each(|applied| on(&applied.key, Some(&applied.now))),
    }
}

/// As [`each`], with what a list shows as vanished.
pub(super) fn each_object<V>(change: Change<V>, mut on: impl FnMut(&ObjectKey, Option<&Arc<V>>)) {
    if let Change::Resynced(resync) = &change {
        resync.vanished.iter().for_each(|(key, _)| on(key, None));
    }
    each(change, on);
}

/// Seconds since 1970.
pub(super) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The name of a zone's `Zone` object: its apex in lower case without the dot at the end.
pub fn ledger_name(apex: &Name) -> String {
    text_of(apex)
}
