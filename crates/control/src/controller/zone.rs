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
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::FutureExt as _;
use jiff::Timestamp;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::hold::{Decisions, Held, Hold, Losses, Rules};
use self::last_good::{LastKnownGood, Opened, StateError};
use self::metrics::Publishing;
use self::restore::Restored;
use self::status::Status;
use self::walks::PublishTraces;
use self::zones::{Output, Zones};
use super::apexes::ApexOwners;
use super::asked::register::Register;
use super::domain::{self, DomainMismatch, Domains, Duty};
use crate::client::reflector::{self, Change, Changes, ObjectKey, Store};
use crate::compiler::inputs::{BindingInput, RouterInput};
use crate::compiler::settings::text_of;
use crate::compiler::{Diagnostic, Digest, Platform, Settings};
use crate::world::{BindingInfo, RouterInfo, World};
use signpost_api::v1alpha1::deletion_hold::{Decision, DeletionHoldCause, DeletionHoldKind};
use signpost_api::v1alpha1::zone::Zone as LedgerZone;
use signpost_dns::wire::{Name, NameMap};
use signpost_dns::zone::{Serial, ZoneDb, db};

pub mod hold;
pub mod last_good;
pub mod metrics;
pub mod record;
pub mod restore;
mod shards;
pub mod status;
pub mod timeline;
pub mod walks;
pub mod zones;

/// Most events of one batch: some milliseconds of work.
const BATCH_MAX: usize = 4096;
/// How often the old versions of zones are freed and diagnostics are told, when nothing happens.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// Most names of the parent zone's file that a warning tells as not served.
const HIDDEN_TOLD_MAX: usize = 10;
/// How often the log tells of a hold that nobody has decided on.
const HELD_TOLD_AGAIN: Duration = Duration::from_secs(600);

/// How soon after something was held it is looked for in another list.
const LOOK_AGAIN_FIRST: Duration = Duration::from_secs(5);
/// How often at least, as long as anything is held.
const LOOK_AGAIN_LONGEST: Duration = Duration::from_secs(300);

/// What the loop is given.
pub struct Options {
    /// The configuration of now. The platform's domain must stay what it is.
    pub settings: watch::Receiver<Arc<Settings>>,
    /// The directory of the last-good state; `None`: none is kept, as where the API is in the same process.
    pub state: Option<PathBuf>,
    /// The objects.
    pub world: World,
    /// The domain that the platform had before, if that was changed.
    pub former_domain: Option<String>,
    /// The register of who serves what, shared with the loop of the zone files, which has loaded them by now.
    pub apexes: Arc<ApexOwners>,
    /// How many of a hundred RouteBindings may be missing from a list, and of any kind be deleted in a burst, before that is
    /// held (see [`hold`]).
    pub deletion_hold_threshold: watch::Receiver<u32>,
    /// Where the loop tells how it fares.
    pub status: Arc<Status>,
    /// Where the loop tells which former names of routes there are.
    pub asked: Arc<Register>,
    /// Where it tells how long publishing takes.
    pub publishing: Publishing,
    /// Dropped as soon as the last-good state is served, or found not to be there: who answers may wait for that.
    pub loading: oneshot::Sender<Infallible>,
}

/// Runs until `stop`. The error is one of the start: the directory of the last-good state cannot be used.
pub async fn run(
    client: kube::Client,
    db: Arc<ZoneDb>,
    options: Options,
    stop: CancellationToken,
) -> Result<(), StateError> {
    let mut sources = Sources::new(&options);
    let domains = Domains { domain: options.settings.borrow().domain_text(), former: options.former_domain.clone() };
    let status = options.status.clone();
    let known = domains.clone();
    let start = move || Run::start(db, options, &known);
    let started = match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => start(),
        // It may take a second of a processor, which is not the runtime's to give.
        _ => tokio::task::spawn_blocking(start).await.expect("taking up the last-good state does not panic"),
    };
    let mut run = started.inspect_err(|error| status.set_hindrance(Some(error.to_string())))?;
    let (routers, bindings) = (sources.routers.0.clone(), sources.bindings.0.clone());
    run.unknown = Box::new(move || [routers.unknown(), bindings.unknown()]);
    run.loading = None;
    if run.zones.is_none() {
        tokio::select! {
            () = run.gather(&mut sources) => {}
            () = stop.cancelled() => return Ok(()),
        }
        let tell = |other: Option<&DomainMismatch>| status.set_hindrance(other.map(ToString::to_string));
        if !run.is_in_ledger && !domain::agreed(&client, &domains, Duty::Follow, &stop, tell).await {
            return Ok(());
        }
    }
    let ended = match &run.state {
        Some(state) => state.ended().left_future(),
        None => std::future::pending().right_future(),
    };
    tokio::select! {
        () = run.follow(&mut sources, &stop) => {}
        why = ended => return Err(StateError::Ended(why)),
    }
    // The last-good state is brought to the disk when it is dropped.
    drop(run);
    Ok(())
}

/// What the ledger says of one zone: its apex and versions, newest first. `None` if its name is no name.
pub(super) type LedgerEntry = Option<(Name, Arc<[(Serial, Digest)]>)>;

/// The streams of changes.
struct Sources {
    routers: (Store<RouterInfo>, Changes<RouterInfo>),
    bindings: (Store<BindingInfo>, Changes<BindingInfo>),
    ledger: (Store<LedgerZone>, Changes<LedgerZone>),
    settings: watch::Receiver<Arc<Settings>>,
    files: watch::Receiver<()>,
    decisions: watch::Receiver<Arc<Decisions>>,
}

/// One thing that happened.
enum Event {
    Router(Change<RouterInfo>),
    Binding(Change<BindingInfo>),
    Ledger(Change<LedgerZone>),
    Settings,
    HoldDecision,
}

impl Sources {
    fn new(options: &Options) -> Self {
        let sources = Sources {
            routers: options.world.routers.read(),
            bindings: options.world.bindings.read(),
            ledger: options.world.zones.read(),
            settings: options.settings.clone(),
            files: options.apexes.subscribe(),
            decisions: options.status.decisions(),
        };
        let (routers, bindings, ledger) =
            (sources.routers.0.clone(), sources.bindings.0.clone(), sources.ledger.0.clone());
        options.status.set_informers(move || vec![routers.health(), bindings.health(), ledger.health()]);
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
            Ok(()) = self.decisions.changed() => Event::HoldDecision,
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
    apexes: Arc<ApexOwners>,
    status: Arc<Status>,
    asked: Arc<Register>,
    settings: watch::Receiver<Arc<Settings>>,
    state: Option<LastKnownGood>,
    /// In place of a state that was refused: what of the new one must be on the disk. Known when all zones are made.
    renewed: Option<u64>,
    zones: Option<Zones>,
    /// Whether the ledger had our parent zone when all was listed.
    is_in_ledger: bool,
    routers: Hold<RouterInput>,
    bindings: Hold<BindingInput>,
    deletion_hold_threshold: watch::Receiver<u32>,
    publishing: Publishing,
    decisions: watch::Receiver<Arc<Decisions>>,
    /// What the log was told of holds, with how many objects each had then, and when.
    told_held: (Vec<(String, Option<Decision>, usize)>, Instant),
    /// When what is held is looked for again, and how long was waited for that.
    looking_again: Option<(Instant, Duration)>,
    /// What was told to the log already.
    told: HashSet<Diagnostic>,
    /// What the last-good state says is held.
    kept_holds: HashSet<(DeletionHoldKind, Box<str>, Digest)>,
    /// The sums of that, and what the holds are named by.
    kept_sums: [(Digest, Digest); 2],
    /// Names on their way into the zones, of Routes that are traced.
    walks: PublishTraces,
    /// Changes of objects for the last-good state.
    journal: Vec<last_good::Change>,
    /// The Routers and the RouteBindings that exist and cannot be read.
    unknown: Box<dyn Fn() -> [Vec<ObjectKey>; 2] + Send>,
    /// Whether names are missing because of these.
    is_partial: bool,
    /// Zones that wait until all are made; `None` from then on.
    first: Option<Vec<db::ZoneUpdate>>,
    /// `None` from when the last-good state is served, or known not to be there.
    loading: Option<oneshot::Sender<Infallible>>,
}

impl Run {
    /// Serves the last-good state, if there is one.
    fn start(db: Arc<ZoneDb>, options: Options, domains: &Domains) -> Result<Run, StateError> {
        let Options { settings, state, apexes, deletion_hold_threshold, status, asked, publishing, loading, .. } =
            options;
        let share = *deletion_hold_threshold.borrow();
        let mut run = Run {
            decisions: status.decisions(),
            told_held: (Vec::new(), Instant::now()),
            db,
            apexes,
            status,
            asked,
            settings,
            state: None,
            renewed: None,
            zones: None,
            is_in_ledger: false,
            routers: Hold::new(Rules::routers(share)),
            bindings: Hold::new(Rules::bindings(share)),
            deletion_hold_threshold,
            publishing,
            looking_again: None,
            told: HashSet::new(),
            kept_holds: HashSet::new(),
            kept_sums: Default::default(),
            walks: PublishTraces::default(),
            journal: Vec::new(),
            unknown: Box::new(Default::default),
            is_partial: false,
            first: Some(Vec::new()),
            loading: Some(loading),
        };
        let Some(directory) = state else { return Ok(run) };
        let current = run.current_settings();
        let (state, Opened { loaded, problem, aside }) = LastKnownGood::open(&directory, domains)?;
        run.status.set_last_good(state.failing());
        run.state = Some(state);
        if let Some(problem) = problem {
            tracing::error!("last-good state: {problem}");
        }
        if aside.is_some() {
            run.status.set_last_good_refused(Timestamp::now());
            run.status.set_hindrance(Some("the last-good state could not be used".to_owned()));
            tracing::error!("without a last-good state the platform's names are SERVFAIL until the API was heard");
        }
        let Some(mut loaded) = loaded else { return Ok(run) };
        let restored = Restored::take(&mut loaded, &current);
        run.serve_restored(&restored, &current);
        let mut platform = Platform::new(&current);
        let mut ignored = Vec::new();
        // Routers come last: a binding that comes after its former Router's would change that one's former names, each by itself.
        for binding in loaded.bindings {
            platform.set_binding(Arc::new(binding), &mut ignored);
        }
        for router in loaded.routers {
            platform.set_router(Arc::new(router), &mut ignored);
        }
        let mut zones = Zones::with_restored(platform, current, loaded.published, restored, Instant::now());
        zones.set_files(run.apexes.files());
        let output = zones.resume(unix_now());
        let (routers, bindings) = zones.platform().counts();
        let of = |kind| loaded.held.iter().filter(move |(of, ..)| *of == kind);
        let keys = |kind| of(kind).map(|(_, name, _)| name.clone());
        let named = |kind| of(kind).find_map(|(.., named)| *named);
        run.routers.resume(keys(DeletionHoldKind::Router), named(DeletionHoldKind::Router), routers);
        run.bindings.resume(keys(DeletionHoldKind::RouteBinding), named(DeletionHoldKind::RouteBinding), bindings);
        let kept = |(kind, name, named): (_, _, Option<Digest>)| (kind, name, named.unwrap_or_default());
        run.kept_holds = loaded.held.into_iter().map(kept).collect();
        run.kept_sums = [(run.routers.keys().0, run.routers.keys().1), (run.bindings.keys().0, run.bindings.keys().1)];
        run.zones = Some(zones);
        run.carry_out(output);
        run.set_ready();
        tracing::info!(routers, bindings, "serving the last-good state until the API is heard");
        Ok(run)
    }

    /// Answers from what was served before a restart, while the objects are still to be looked at.
    fn serve_restored(&mut self, restored: &Restored, settings: &Settings) {
        if restored.is_empty() {
            return;
        }
        self.apexes.publish_platform(restored.changes(settings), &self.db);
        self.db.set_ready();
        if restored.is_whole() {
            self.status.set_ready();
            self.loading = None;
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
        let mut ledger: NameMap<Arc<[(Serial, Digest)]>> = NameMap::default();
        let mut ignored = Vec::new();
        // They are given to the platform last: see `start`.
        let mut routers: HashMap<String, Arc<RouterInput>> = HashMap::new();
        while !sources.are_synced() {
            match sources.next().await {
                Event::Router(change) => each_object(change, |key, read| {
                    read.iter().flat_map(|read| &read.diagnostics).for_each(|diagnostic| self.tell(diagnostic.clone()));
                    match read.and_then(|read| read.input.clone()) {
                        Some(router) => drop(routers.insert(key.to_string(), router)),
                        None => drop(routers.remove(&key.to_string())),
                    }
                }),
                Event::Binding(change) => {
                    self.asked.take(&change);
                    each_object(change, |key, read| {
                        read.iter()
                            .flat_map(|read| &read.diagnostics)
                            .for_each(|diagnostic| self.tell(diagnostic.clone()));
                        match read.and_then(|read| read.input.clone()) {
                            Some(binding) => platform.set_binding(binding, &mut ignored),
                            None => drop(platform.remove_binding(&key.to_string(), &mut ignored)),
                        }
                    });
                }
                Event::Ledger(change) => {
                    each_object(change, |key, entry| match entry.and_then(|zone| ledger_entry(zone)) {
                        Some((apex, versions)) => drop(ledger.insert(apex, versions)),
                        None => drop(key.name.parse().map(|apex: Name| ledger.remove(&apex))),
                    })
                }
                Event::Settings | Event::HoldDecision => {}
            }
            ignored.clear();
        }
        routers.into_values().for_each(|router| platform.set_router(router, &mut ignored));
        if self.state.is_some() {
            let routers = platform.routers().map(|router| record::router(&router.name, Some(router)));
            self.journal.extend(routers);
            let bindings = platform.bindings().map(|binding| record::binding(&binding.key, Some(binding)));
            self.journal.extend(bindings);
        }
        let mut zones = Zones::with_platform(platform, self.current_settings(), NameMap::default(), Instant::now());
        zones.set_files(self.apexes.files());
        self.is_in_ledger = ledger.contains_key(self.settings.borrow().domain());
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
            self.settle_unknown();
            self.publish_due();
            self.status.set_synced(sources.are_synced());
            let deadline = self.zones.as_ref().and_then(Zones::next_deadline);
            let deadline = deadline.map(tokio::time::Instant::from_std);
            tokio::select! {
                () = stop.cancelled() => return,
                event = sources.next() => {
                    let share = *self.deletion_hold_threshold.borrow();
                    self.routers.set_rules(Rules::routers(share));
                    self.bindings.set_rules(Rules::bindings(share));
                    self.take(event);
                    // What has come meanwhile is published together with it.
                    for _ in 1..BATCH_MAX {
                        let Some(event) = sources.next().now_or_never() else { break };
                        self.take(event);
                    }
                    self.apply_decisions();
                    self.walks.made();
                }
                () = tokio::time::sleep_until(deadline.unwrap_or_else(tokio::time::Instant::now)), if deadline.is_some() => {}
                _ = housekeeping.tick() => {
                    self.run_housekeeping();
                    self.relist_if_due(sources);
                }
            }
        }
    }

    /// While an object exists that cannot be read and is not known from before, a name that is not found may be one of its.
    fn settle_unknown(&mut self) {
        let Some(zones) = &self.zones else { return };
        let [routers, bindings] = (self.unknown)();
        let platform = zones.platform();
        let router = routers.iter().find(|key| platform.router(&key.name).is_none());
        let binding = bindings.iter().find(|key| platform.binding(&key.to_string()).is_none());
        let first = router.map(|key| format!("Router {key}")).or(binding.map(|key| format!("RouteBinding {key}")));
        if first.is_some() != self.is_partial {
            self.is_partial = first.is_some();
            self.apexes.set_partial(self.is_partial, &self.db);
            match first {
                Some(object) => tracing::error!(
                    object,
                    routers = routers.len(),
                    bindings = bindings.len(),
                    "objects cannot be read from the API's store: until they are restored or deleted, names that are not found \
                     are answered with SERVFAIL, since they may be theirs"
                ),
                None => tracing::info!("every object can be read again: names that are not found do not exist"),
            }
        }
    }

    fn publish_due(&mut self) {
        let Some(zones) = &mut self.zones else { return };
        let begun = Instant::now();
        let output = zones.publish_due(begun, unix_now());
        let all_published = zones.next_deadline().is_none();
        let publishes = !output.changes.is_empty();
        self.carry_out(output);
        if publishes {
            self.publishing.took(begun.elapsed());
        }
        if all_published {
            self.set_ready();
        }
    }

    fn carry_out(&mut self, output: Output) {
        let Output { changes, serials, diagnostics } = output;
        match &mut self.first {
            Some(first) => first.extend(changes),
            None if changes.is_empty() => {}
            None => self.publish(changes),
        }
        for diagnostic in diagnostics {
            self.tell(diagnostic);
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

    fn publish(&mut self, changes: Vec<db::ZoneUpdate>) {
        if self.walks.is_empty() {
            return self.apexes.publish_platform(changes, &self.db);
        }
        let apex = self.settings.borrow().alias_apex().clone();
        let aliases = changes.iter().find_map(|change| match change {
            db::ZoneUpdate::Publish(zone) if *zone.apex() == apex => Some(Arc::clone(zone)),
            _ => None,
        });
        self.apexes.publish_platform(changes, &self.db);
        if let Some(aliases) = aliases {
            self.walks.published(&aliases, &apex);
        }
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
                each_object(change, |key, entry| match entry.and_then(|zone| ledger_entry(zone)) {
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
            // All that was said is looked at when the batch is in.
            Event::HoldDecision => {}
        }
    }

    fn take_router(&mut self, change: Change<RouterInfo>) {
        let Some(zones) = &self.zones else { return };
        let known = zones.platform().counts().0;
        let is_loss = |name: &str, now: &Option<Arc<RouterInput>>| {
            let before = zones.platform().router(name);
            before.is_some_and(|before| match now {
                None => true,
                // One of that name with another zone takes the place of nothing.
                Some(now) if now.apex != before.apex => true,
                Some(now) => before.answering().next().is_some() && now.answering().next().is_none(),
            })
        };
        let [unknown, _] = unread(&change, &self.unknown);
        let names = || zones.platform().routers().map(|router| router.name.clone());
        let names = || names().filter(|name| !unknown.contains(name)).collect();
        let (losses, others) = sort_out(&change, |info: &RouterInfo| info.input.clone(), &is_loss, names);
        // What is there again is not missing, in this very list.
        others.keys().for_each(|name| self.routers.release(name));
        // Nobody misses a Router that no name leads to: signpost itself may have said that it can be deleted.
        let is_missed = |name: &str| {
            let platform = zones.platform();
            platform.router(name).is_some_and(|router| !platform.is_vacant(router))
        };
        let is_same = |now: &RouterInput| {
            let before = zones.platform().router(&now.name);
            before.is_some_and(|before| before.apex == now.apex)
        };
        let believed = match change {
            Change::Relisted(_) => self.routers.apply_list(known, losses),
            _ => told(&mut self.routers, known, losses, is_missed, is_same),
        };
        each(change, |_, read| self.tell_of(read.map(|read| &read.diagnostics[..]).unwrap_or_default()));
        believed.into_iter().chain(others).for_each(|(name, router)| self.set_router(&name, router));
    }

    fn take_binding(&mut self, change: Change<BindingInfo>) {
        self.asked.take(&change);
        let Some(zones) = &self.zones else { return };
        let known = zones.platform().counts().1;
        // One with another label is another alias; one with another shard has moved.
        let is_loss = |key: &str, now: &Option<Arc<BindingInput>>| {
            let before = zones.platform().binding(key);
            before.is_some_and(|before| now.as_ref().is_none_or(|now| now.label != before.label))
        };
        let [_, unknown] = unread(&change, &self.unknown);
        let keys = || zones.platform().bindings().map(|binding| binding.key.clone());
        let keys = || keys().filter(|key| !unknown.contains(key)).collect();
        let (losses, others) = sort_out(&change, |info: &BindingInfo| info.input.clone(), &is_loss, keys);
        others.keys().for_each(|key| self.bindings.release(key));
        if let Change::Applied(applied) = &change {
            self.trace(applied);
        }
        let believed = match change {
            Change::Relisted(_) => self.bindings.apply_list(known, losses),
            _ => told(&mut self.bindings, known, losses, |_| true, |_| false),
        };
        each(change, |_, read| self.tell_of(read.map(|read| &read.diagnostics[..]).unwrap_or_default()));
        believed.into_iter().chain(others).for_each(|(key, binding)| self.set_binding(&key, binding));
    }

    /// Follows the Route of a binding from here on, if it is traced and this gives it another name.
    fn trace(&mut self, applied: &reflector::Applied<BindingInfo>) {
        let name = |info: &BindingInfo| info.input.as_ref().map(|one| (one.label.clone(), one.shard.clone()));
        let is_known = applied.before.as_ref().is_some_and(|before| name(before) == name(&applied.now));
        if let Some(binding) = applied.now.input.as_ref().filter(|_| !is_known) {
            self.walks.heard(applied.now.trace.as_deref().copied(), binding);
        }
    }

    fn set_router(&mut self, name: &str, router: Option<Arc<RouterInput>>) {
        self.journal.push(record::router(name, router.as_deref()));
        let Some(zones) = &mut self.zones else { return };
        match router {
            Some(router) => zones.set_router(router, Instant::now()),
            None => zones.remove_router(name, Instant::now()),
        }
    }

    fn set_binding(&mut self, key: &str, binding: Option<Arc<BindingInput>>) {
        self.journal.push(record::binding(key, binding.as_deref()));
        let Some(zones) = &mut self.zones else { return };
        match binding {
            Some(binding) => zones.set_binding(binding, Instant::now()),
            None => zones.remove_binding(key, Instant::now()),
        }
    }

    /// Lets pass what is approved, and tells what is held now.
    fn apply_decisions(&mut self) {
        let decisions = self.decisions.borrow_and_update().clone();
        for (name, router) in self.routers.approved(&decisions) {
            tracing::warn!(router = %name, "its loss was approved; it is no longer served as it was");
            self.set_router(&name, router);
        }
        let approved = self.bindings.approved(&decisions);
        if !approved.is_empty() {
            tracing::warn!(
                count = approved.len(),
                "the loss of RouteBindings was approved; their names are no longer served"
            );
        }
        approved.into_iter().for_each(|(key, binding)| self.set_binding(&key, binding));
        let held = self.routers.held(&decisions).into_iter().chain(self.bindings.held(&decisions));
        self.status.set_held(held.collect());
        self.keep_holds();
    }

    /// Brings what is held to the last-good state, so that a restart lets nothing of it pass.
    fn keep_holds(&mut self) {
        let (routers, routers_hold, router_names) = self.routers.keys();
        let (bindings, bindings_hold, binding_keys) = self.bindings.keys();
        let sums = [(routers, routers_hold), (bindings, bindings_hold)];
        if self.state.is_none() || self.kept_sums == sums {
            return;
        }
        let names = router_names.map(|name| (DeletionHoldKind::Router, name.into(), routers_hold));
        let keys = binding_keys.map(|key| (DeletionHoldKind::RouteBinding, key.into(), bindings_hold));
        let held: HashSet<_> = names.chain(keys).collect();
        let (before, journal) = (&self.kept_holds, &mut self.journal);
        // First what goes: an object may have come from one hold to another.
        journal.extend(before.difference(&held).map(|(kind, name, _)| record::held(*kind, name, None)));
        journal.extend(held.difference(before).map(|(kind, name, hold)| record::held(*kind, name, Some(*hold))));
        (self.kept_holds, self.kept_sums) = (held, sums);
    }

    /// Has what is held looked for in another list, soon and then ever more rarely: a list that lacked objects by mistake is
    /// followed by watches that tell nothing of those, since nothing happens to them.
    fn relist_if_due(&mut self, sources: &Sources) {
        let held = self.status.held();
        if held.is_empty() {
            self.looking_again = None;
            return;
        }
        let now = Instant::now();
        let (due, wait) = *self.looking_again.get_or_insert((now + LOOK_AGAIN_FIRST, LOOK_AGAIN_FIRST));
        if now < due {
            return;
        }
        for held in &held {
            match held.kind {
                DeletionHoldKind::Router => sources.routers.0.relist(),
                DeletionHoldKind::RouteBinding => sources.bindings.0.relist(),
            }
        }
        let wait = (wait * 2).min(LOOK_AGAIN_LONGEST);
        self.looking_again = Some((now + wait, wait));
    }

    /// Tells the log what is held: when that begins or is decided, each time that it has doubled, and again and again while
    /// nobody has decided.
    fn log_holds(&mut self) {
        let held = self.status.held();
        let told: Vec<_> = held.iter().map(|held| (held.id.clone(), held.decision, held.count)).collect();
        let waits = held.iter().any(|held| held.decision.is_none());
        let (before, at) = &self.told_held;
        let is_told = |(now, before): (&(String, _, usize), &(String, _, usize))| {
            (&now.0, now.1) == (&before.0, before.1) && now.2 < before.2.saturating_mul(2)
        };
        let all_told = told.len() == before.len() && told.iter().zip(before).all(is_told);
        if all_told && !(waits && at.elapsed() >= HELD_TOLD_AGAIN) {
            return;
        }
        if held.is_empty() {
            tracing::info!("nothing is held any more");
        }
        for Held { id, kind, cause, count, known, names, decision, .. } in &held {
            let (kind, names) = (kind.word(), names.join(" "));
            if *decision == Some(Decision::Reject) {
                tracing::info!(%id, kind, count, "the loss was rejected; what is missing stays served");
                continue;
            }
            let how = match cause {
                DeletionHoldCause::List => "objects are missing from the API's list",
                DeletionHoldCause::Burst => "many objects were deleted in a short time",
            };
            tracing::error!(
                %id,
                kind,
                count,
                known,
                %names,
                "{how}; their names are still served: restore the objects, or say what is meant (signpost hold approve {id}, \
                 or reject)"
            );
        }
        self.told_held = (told, Instant::now());
    }

    fn tell_of(&mut self, diagnostics: &[Diagnostic]) {
        diagnostics.iter().for_each(|diagnostic| self.tell(diagnostic.clone()));
    }

    fn tell(&mut self, diagnostic: Diagnostic) {
        // Bounded by forgetting: then it may be told twice.
        if self.told.len() >= BATCH_MAX {
            self.told.clear();
        }
        if self.told.insert(diagnostic.clone()) {
            tracing::warn!(object = %diagnostic.object, path = %diagnostic.path, "{}", diagnostic.message);
        }
    }

    fn run_housekeeping(&mut self) {
        self.db.reclaim();
        self.log_holds();
        self.replace_refused();
        let Some(diagnostics) = self.zones.as_mut().and_then(Zones::changed_diagnostics) else { return };
        for diagnostic in &diagnostics {
            self.tell(diagnostic.clone());
        }
        self.status.set_diagnostics(diagnostics);
    }

    /// A state that was refused at the start is replaced when all zones were made since, and all that is on the disk.
    fn replace_refused(&mut self) {
        let Some(state) = self.state.as_ref().filter(|_| self.status.is_last_good_refused() && self.status.is_ready())
        else {
            return;
        };
        let mark = *self.renewed.get_or_insert_with(|| state.mark());
        if state.is_stored(mark) {
            self.status.set_last_good_again();
            tracing::info!("a new last-good state is on the disk");
        }
    }
}

/// What a change comes to: the losses among it, and all else. `known` gives the keys of all that is known, to find what a
/// first list does not hold: the informer knew nothing before it, but the last-good state did.
fn sort_out<I, V>(
    change: &Change<I>,
    input: impl Fn(&I) -> Option<Arc<V>>,
    is_loss: &dyn Fn(&str, &Option<Arc<V>>) -> bool,
    known: impl FnOnce() -> Vec<Box<str>>,
) -> (Losses<V>, Losses<V>) {
    let mut now: Losses<V> = Losses::new();
    if let Change::Relisted(resync) = change {
        let vanished = resync.vanished.iter().map(|(key, _)| key.to_string().into_boxed_str());
        now.extend(vanished.map(|key| (key, None)));
        if resync.first {
            now.extend(known().into_iter().map(|key| (key, None)));
        }
    }
    let mut put = |key: &ObjectKey, info: Option<&Arc<I>>| {
        now.insert(key.to_string().into_boxed_str(), info.and_then(|info| input(info)));
    };
    match change {
        Change::Applied(applied) => put(&applied.key, Some(&applied.now)),
        Change::Deleted { key, .. } => put(key, None),
        Change::Relisted(resync) => resync.applied.iter().for_each(|applied| put(&applied.key, Some(&applied.now))),
    }
    now.into_iter().partition(|(key, value)| is_loss(key, value))
}

/// The objects that the first list lacks only because they cannot be read: they are no losses.
fn unread<V>(change: &Change<V>, unknown: &dyn Fn() -> [Vec<ObjectKey>; 2]) -> [HashSet<Box<str>>; 2] {
    match change {
        Change::Relisted(_) => unknown().map(|keys| keys.iter().map(|key| key.to_string().into()).collect()),
        _ => Default::default(),
    }
}

/// Those losses that a watch has told and that are believed: of what nobody misses all, and of the rest what `hold` lets pass.
/// `is_same` tells an object that has the names of the one that is missed from another one that was given its name.
fn told<V>(
    hold: &mut Hold<V>,
    known: usize,
    losses: Losses<V>,
    is_missed: impl Fn(&str) -> bool,
    is_same: impl Fn(&V) -> bool,
) -> Losses<V> {
    let now = Instant::now();
    let mut is_believed = |key: &str, value: &Option<Arc<V>>| {
        // That the object was written once more, as each is when its status changes, says nothing of what is held.
        let is_news = !hold.holds(key) || value.as_ref().is_none_or(|now| !is_same(now));
        if is_news && !is_missed(key) {
            hold.release(key);
            return true;
        }
        !hold.keeps(key, value, &is_same) && hold.apply_watch_event(known, key, value.clone(), now)
    };
    losses.into_iter().filter(|(key, value)| is_believed(key, value)).collect()
}

/// Passes on each object that a change tells of: its value, or `None` if it was deleted. What a list shows as vanished is
/// not passed on: that is judged as a whole.
fn each<V>(change: Change<V>, mut on: impl FnMut(&ObjectKey, Option<&Arc<V>>)) {
    match change {
        Change::Applied(applied) => on(&applied.key, Some(&applied.now)),
        Change::Deleted { key, .. } => on(&key, None),
        Change::Relisted(resync) => resync.applied.iter().for_each(|applied| on(&applied.key, Some(&applied.now))),
    }
}

/// As [`each`], with what a list shows as vanished.
pub(super) fn each_object<V>(change: Change<V>, mut on: impl FnMut(&ObjectKey, Option<&Arc<V>>)) {
    if let Change::Relisted(resync) = &change {
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
