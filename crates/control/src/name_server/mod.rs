//! The loop that updates the zones from the API's objects: watch, reduce, compare, number, publish.
//!
//! ```text
//!  Routers ──────┐                       ┌─ Platform: conflicts, digests             ┌─► zone::publish
//!  RouteBindings ┼─► Change ─► Holds ─► Zones                     ─► Output ─► Publisher
//!  Zones ────────┘            (accepted) └─ VersionHistory: the serial of            └─► last-known-good state
//!  (the ledger)                             each state ([`version_history`])
//! ```
//!
//! Events drive the loop. The events that arrive during one batch form the next one, without a wait for more. Before the first
//! list of the objects, nothing is published and the map of zones is not ready, unless there is a last-known-good state from
//! before a restart, which is served immediately. The first publication contains all zones in one step: while a shard's zone is
//! missing, the parent zone's answers for its names would be wrong. While the API is unreachable, the existing zones are still
//! served.

use std::collections::HashSet;
use std::convert::Infallible;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures::FutureExt as _;
use kube::Api;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::denials::Denials;
use self::domain::{DomainMismatch, Domains, Duty};
use self::holds::{Holds, MayBeHeld};
use self::last_known_good::StateError;
use self::metrics::Publishing;
use self::objects::{Objects, Reduced, each, each_object, put_all};
use self::permission::Question;
use self::platform_zones::Zones;
use self::publisher::Publisher;
use self::restore::Restored;
use self::status::Status;
use self::version_history::Versions;
use crate::client::reflector::{Change, Store};
use crate::compiler::challenges::ChallengeInput;
use crate::compiler::former_domains::FormerDomain;
use crate::compiler::settings::text_of;
use crate::compiler::{Diagnostic, Digest, Platform, Settings, ShardView};
use crate::deletion_hold::hold::Decisions;
use crate::deletion_hold::reminder::Reminder;
use crate::put::Put as _;
use crate::world::ChallengeInfo;
use crate::world::parents::Parents;
use signpost_dns::wire::{Name, NameMap};
use signpost_dns::zone::Serial;
use signpost_dns::zone::image::DENIES_ALWAYS;
use signpost_dns::zone::parallel::in_parallel;
use signpost_dns::zone::publish;
use signpost_types::v1alpha1::deletion_hold::DeletionHoldKind;
use signpost_types::v1alpha1::zone::{Zone as LedgerZone, ZoneVersion};

pub mod domain;
pub mod objects;

pub mod holds;

pub mod denials;

pub mod permission;

pub mod reserved;

mod own_files;
pub mod platform_zones;
mod shards;
pub mod version_history;

mod publisher;

pub mod last_known_good;
pub mod record;
pub mod restore;

pub mod metrics;
pub mod status;

pub mod export;
pub mod files;

/// The most events of one batch: some milliseconds of work.
const BATCH_MAX: usize = 4096;
/// The shortest and the longest pause between lists of the ledger. An event of the ledger restores the shortest one.
const LEDGER_RELIST: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(600));
/// The interval at which old versions of zones are freed and diagnostics are updated, when nothing happens.
const HOUSEKEEPING: Duration = Duration::from_secs(5);
/// The most names of the parent zone's file that a warning lists as not served.
const HIDDEN_TOLD_MAX: usize = 10;
/// The time after its expiry for which a ChallengeRecord waits for the leader, who deletes it. Without this time, a name server would
/// publish its end under a provisional serial whenever its clock is a moment ahead.
const EXPIRY_GRACE_SECONDS: u64 = 30;

/// The inputs of the loop that exist before the API's objects.
pub struct Options {
    /// The platform's zones.
    pub settings: Arc<Settings>,
    /// The directory of the last-known-good state; `None`: no state.
    pub state: Option<PathBuf>,
    /// The former domain of the platform, if the domain was changed.
    pub former_domain: Option<String>,
    /// The publisher of the map of zones, shared with the loop of the zone files, which has loaded them already.
    pub zones: Arc<publish::Publisher>,
    /// The percentage of RouteBindings that can be missing from a list, and of any kind that can be deleted in a burst, before
    /// the loss is held (see [`crate::deletion_hold`]).
    pub deletion_hold_threshold: watch::Receiver<u32>,
    /// The longest time without word from the API for which names are denied (see [`denials`]); `None` if the API is in the same
    /// process, and with it its store: its zones are never behind once its objects are published.
    pub denial_longest: Option<Duration>,
    /// The status of the loop.
    pub status: Arc<Status>,
    /// The metric of publication times.
    pub publishing: Publishing,
    /// Dropped as soon as all names of the platform have an answer, from the last-known-good state or from the API's objects:
    /// query threads can wait for that.
    pub loading: oneshot::Sender<Infallible>,
}

/// A name server that serves its last-known-good state, if it has one. [`run`] follows the API from there.
pub struct Started {
    settings: Arc<Settings>,
    domains: Domains,
    /// The former domains that the restored state has.
    former_domains: Vec<FormerDomain>,
    denial_longest: Option<Duration>,
    publisher: Publisher,
    holds: Holds,
    restored: Option<Zones>,
    questions: Option<mpsc::Receiver<Question>>,
}

impl Started {
    /// Makes the loop answer these questions.
    pub fn answering(self, questions: mpsc::Receiver<Question>) -> Self {
        Started { questions: Some(questions), ..self }
    }
}

/// Serves the last-known-good state: neither the API nor its client is needed for that. An error means that the directory of the
/// state cannot be used.
pub async fn start(options: Options) -> Result<Started, StateError> {
    let status = options.status.clone();
    let start = move || restart(options);
    let started = match Handle::current().runtime_flavor() {
        RuntimeFlavor::CurrentThread => start(),
        // This can take a second of processor time, which must not block the runtime.
        _ => tokio::task::spawn_blocking(start).await.expect("taking up the last-good state does not panic"),
    };
    started.inspect_err(|error| status.state().hindrance = Some(error.to_string()))
}

/// Follows the API's objects until `stop`. The error is that of the thread that writes the last-known-good state.
pub async fn run(
    client: kube::Client,
    objects: Objects,
    started: Started,
    stop: CancellationToken,
) -> Result<(), StateError> {
    let Started { settings, domains, mut former_domains, denial_longest, mut publisher, holds, restored, questions } =
        started;
    let mut parents = Parents::default();
    let mut sources = Sources::new(objects, settings, questions, &publisher);
    let denials = denial_longest.map(|longest| Denials::new(longest, tokio::time::Instant::now()));
    let mut log = DiagnosticLog::default();
    // The state from before a restart can lack the latest names.
    let denies_until = if denials.is_some() || restored.is_some() { 0 } else { DENIES_ALWAYS };
    let zones = match restored {
        Some(zones) => zones,
        None => {
            let (mut platform, ledger) = tokio::select! {
                gathered = gather(&mut sources, &mut log, &mut parents) => gathered,
                () = stop.cancelled() => return Ok(()),
            };
            if !wait_for_domain(&client, &domains, platform.domain(), &mut parents, &publisher.status, &stop).await {
                return Ok(());
            }
            former_domains = parents.former_domains_of(platform.domain(), domains.former_name().as_ref());
            let settings = whole(&sources.settings, &former_domains, &publisher.zones);
            platform.set_former_domains(&settings, &mut Vec::new());
            publisher.record(&platform);
            publisher.record_domains(&settings);
            let mut zones = Zones::new(platform, settings, Instant::now());
            zones.set_files(publisher.zones.files());
            ledger.into_iter().for_each(|(apex, versions)| zones.set_ledger(&apex, versions));
            zones
        }
    };
    publisher.status.state().adopted_hosts = zones.platform().adopted_hosts();
    let ended = publisher.ended();
    let ledger_relist = LedgerRelist::new();
    let reminder = Reminder::new("their names are still served");
    let mut run = Run {
        sources,
        parents,
        former_domains,
        holds,
        zones,
        publisher,
        log,
        reminder,
        ledger_relist,
        denials,
        denies_until,
        is_partial: false,
    };
    tokio::select! {
        () = run.follow(&stop) => Ok(()),
        why = ended => Err(why),
    }
    // The last-known-good state is synced to disk when it is dropped.
}

/// Waits until the API's objects are of this domain. Returns `false` if `stop` ended the wait.
async fn wait_for_domain(
    client: &kube::Client,
    domains: &Domains,
    own: &Name,
    parents: &mut Parents,
    status: &Status,
    stop: &CancellationToken,
) -> bool {
    if parents.are_of(own) {
        return true;
    }
    let report = |other: Option<&DomainMismatch>| status.state().hindrance = other.map(ToString::to_string);
    if !domain::agreed(client, domains, Duty::Follow, stop, report).await {
        return false;
    }
    // Another process can have made the change meanwhile: its list names the former domains to serve from the start.
    if let Ok(Some(zone)) = Api::<LedgerZone>::all(client.clone()).get_opt(&domains.domain).await {
        parents.set(own, Some(&zone));
    }
    true
}

/// Serves the last-known-good state, if there is one.
fn restart(options: Options) -> Result<Started, StateError> {
    options.status.state().is_denying = options.denial_longest.is_none();
    if options.denial_longest.is_some() {
        options.zones.set_denies_until(0);
    }
    let mut started = Started {
        domains: Domains { domain: options.settings.domain_text(), former: options.former_domain },
        settings: options.settings,
        former_domains: Vec::new(),
        denial_longest: options.denial_longest,
        holds: Holds::new(options.deletion_hold_threshold, options.status.losses().decisions()),
        publisher: Publisher::new(options.zones, options.status, options.publishing, options.loading),
        restored: None,
        questions: None,
    };
    let Started { settings: own, domains, publisher, holds, .. } = &mut started;
    let loaded = options.state.map(|directory| publisher.open_state(&directory, domains)).transpose()?.flatten();
    let Some(mut loaded) = loaded else { return Ok(started) };
    // After a change of the domain, the first one is that of the state.
    let mut former_domains = std::mem::take(&mut loaded.domains);
    former_domains.retain(|former| former.domain != domains.domain);
    let settings = whole(own, &former_domains, &publisher.zones);
    publisher.record_domains(&settings);
    // The state can be a moment older than the last name that was live.
    publisher.zones.set_denies_until(0);
    publisher.status.state().is_denying = false;
    let restored = Restored::take(&mut loaded, &settings);
    publisher.serve_restored(&restored, &settings);
    let (mut platform, mut ignored) = (Platform::new(&settings), Vec::new());
    for binding in loaded.bindings {
        platform.put(&binding.key.clone(), Some(Arc::new(binding)), &mut ignored);
        ignored.clear();
    }
    for (router, shard) in in_parallel(&loaded.routers, |router| Arc::new(ShardView::new(router.clone(), &settings))) {
        platform.put(&router.name, Some(shard), &mut ignored);
        ignored.clear();
    }
    for (key, challenge) in loaded.challenges {
        platform.put(&key, Some(Arc::new(challenge)), &mut ignored);
        ignored.clear();
    }
    holds.resume(loaded.held, &platform);
    let files = publisher.zones.files();
    let (zones, output) =
        Zones::restore(platform, settings, loaded.published, restored, files, Instant::now(), unix_now());
    publisher.carry_out(output, &zones);
    publisher.set_ready(&zones);
    let (routers, bindings) = zones.platform().counts();
    tracing::info!(routers, bindings, "serving the last-known-good state until the API is reachable");
    (started.former_domains, started.restored) = (former_domains, Some(zones));
    Ok(started)
}

/// Collects all objects, and the versions of the ledger.
async fn gather(
    sources: &mut Sources,
    log: &mut DiagnosticLog,
    parents: &mut Parents,
) -> (Platform, NameMap<Versions>) {
    let mut platform = Platform::new(&sources.settings);
    let mut ledger = NameMap::default();
    let mut ignored = Vec::new();
    while !sources.objects.are_synced() {
        match sources.objects.next().await {
            objects::Event::Router(change) => {
                log.add_all(&change);
                put_all(&mut platform, &change, &mut ignored);
            }
            objects::Event::Binding(change) => {
                log.add_all(&change);
                put_all(&mut platform, &change, &mut ignored);
            }
            objects::Event::Challenge(change) => put_all(&mut platform, &change, &mut ignored),
            objects::Event::Zone(change) => {
                parents.take(&change);
                each_ledger_entry(&change, |apex, versions| drop(ledger.put(apex, versions)));
            }
        }
        ignored.clear();
    }
    (platform, ledger)
}

/// All that the loop waits for.
struct Sources {
    objects: Objects,
    settings: Arc<Settings>,
    questions: Option<mpsc::Receiver<Question>>,
    files: watch::Receiver<()>,
    decisions: watch::Receiver<Arc<Decisions>>,
}

/// An event of the loop.
enum Event {
    Object(objects::Event),
    Files,
    HoldDecision,
    Question(Question),
}

impl Sources {
    fn new(
        objects: Objects,
        settings: Arc<Settings>,
        questions: Option<mpsc::Receiver<Question>>,
        publisher: &Publisher,
    ) -> Self {
        let (files, decisions) = (reserved::file_changes(&publisher.zones), publisher.status.losses().decisions());
        Sources { objects, settings, questions, files, decisions }
    }

    /// Waits for the next event. Dropping the future loses nothing.
    async fn next(&mut self) -> Event {
        let Sources { objects, questions, files, decisions, .. } = self;
        let question = async { questions.as_mut()?.recv().await };
        tokio::select! {
            event = objects.next() => Event::Object(event),
            Ok(()) = files.changed() => Event::Files,
            Ok(()) = decisions.changed() => Event::HoldDecision,
            Some(question) = question => Event::Question(question),
        }
    }
}

/// Returns the settings with former domains, whose apexes it reserves, and with the bases of the parent zones.
fn whole(settings: &Arc<Settings>, former: &[FormerDomain], zones: &publish::Publisher) -> Arc<Settings> {
    reserved::reserve(zones, settings, former);
    let base = zones.base(settings.domain());
    match (&base, former) {
        (None, []) => Arc::clone(settings),
        _ => Arc::new(settings.with_base(base).with_former_domains(former, |domain| zones.base(domain))),
    }
}

/// The loop, once there are zones.
struct Run {
    sources: Sources,
    parents: Parents,
    /// The former domains that are served.
    former_domains: Vec<FormerDomain>,
    holds: Holds,
    zones: Zones,
    publisher: Publisher,
    log: DiagnosticLog,
    reminder: Reminder,
    ledger_relist: LedgerRelist,
    denials: Option<Denials>,
    /// The time until which names may be denied, in seconds since the epoch.
    denies_until: u64,
    /// Whether names are missing because objects are unreadable.
    is_partial: bool,
}

impl Run {
    /// Applies events and publishes the zones that they change, until `stop`.
    async fn follow(&mut self, stop: &CancellationToken) {
        self.warn_of_hidden();
        let mut housekeeping = tokio::time::interval(HOUSEKEEPING);
        housekeeping.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.settle_unknown();
            self.publisher.publish_due(&mut self.zones, unix_now());
            self.publisher.status.losses().set_synced(self.sources.objects.are_synced());
            self.limit_denials();
            let deadline = self.zones.next_deadline().map(tokio::time::Instant::from_std);
            let look = self.denials.as_ref().map(|denials| denials.next_turn(tokio::time::Instant::now()));
            tokio::select! {
                () = stop.cancelled() => return,
                event = self.sources.next() => self.take_batch(Some(event)),
                () = tokio::time::sleep_until(look.unwrap_or_else(tokio::time::Instant::now)), if look.is_some() => {
                    self.take_batch(None);
                }
                () = tokio::time::sleep_until(deadline.unwrap_or_else(tokio::time::Instant::now)), if deadline.is_some() => {}
                _ = housekeeping.tick() => self.run_housekeeping(),
            }
        }
    }

    /// Applies an event, and those that have arrived: they are published together.
    fn take_batch(&mut self, first: Option<Event>) {
        // Read before the events: later ones do not count.
        let caught_up = self.sources.objects.caught_up();
        first.into_iter().for_each(|event| self.take(event));
        for _ in 1..BATCH_MAX {
            let Some(event) = self.sources.next().now_or_never() else { break };
            self.take(event);
        }
        self.apply_decisions();
        if let Some(denials) = &mut self.denials {
            let caught_up = caught_up.filter(|_| !self.sources.objects.are_behind());
            denials.take(caught_up, tokio::time::Instant::now());
        }
    }

    /// Sets the time until which the parent and the alias zone may deny names.
    fn limit_denials(&mut self) {
        let (now, is_waiting) = (tokio::time::Instant::now(), self.zones.next_deadline().is_some());
        let seconds = match &mut self.denials {
            Some(denials) => denials.update(is_waiting, now).map_or(0, |until| {
                let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                (since_epoch + until.duration_since(now)).as_secs()
            }),
            // The store is in this process: only the state from before a restart can be behind it.
            None if self.denies_until == 0 && (is_waiting || !self.sources.objects.is_taken()) => 0,
            None => DENIES_ALWAYS,
        };
        let before = std::mem::replace(&mut self.denies_until, seconds);
        if before == seconds {
            return;
        }
        self.publisher.zones.set_denies_until(seconds);
        if (before > 0) == (seconds > 0) {
            return;
        }
        self.publisher.status.state().is_denying = seconds > 0;
        match seconds > 0 {
            true => tracing::info!("up to date with the API: names that are not found get NXDOMAIN"),
            false => tracing::warn!(
                "no current answer from the API: names that are not found get SERVFAIL, because they can be new"
            ),
        }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Object(objects::Event::Router(change)) => {
                let store = self.sources.objects.routers.0.clone();
                self.take_objects(&store, &change);
            }
            Event::Object(objects::Event::Binding(change)) => {
                let store = self.sources.objects.bindings.0.clone();
                self.take_objects(&store, &change);
            }
            Event::Object(objects::Event::Challenge(change)) => self.take_challenges(&change),
            Event::Object(objects::Event::Zone(change)) => {
                self.ledger_relist.wait = LEDGER_RELIST.0;
                self.parents.take(&change);
                self.settle_former_domains();
                each_ledger_entry(&change, |apex, versions| {
                    self.zones.set_ledger(&apex, versions.unwrap_or_default());
                });
            }
            Event::Files => self.set_settings(),
            // All decisions are applied at the end of the batch.
            Event::HoldDecision => {}
            Event::Question(question) => question.answer(self.zones.platform()),
        }
    }

    fn set_settings(&mut self) {
        let settings = whole(&self.sources.settings, &self.former_domains, &self.publisher.zones);
        self.zones.set_settings(settings, Instant::now());
        self.zones.set_files(self.publisher.zones.files());
        self.warn_of_hidden();
    }

    /// Serves the former domains that the Zone of the platform's domain lists. Without that Zone, nothing is known to have ended.
    fn settle_former_domains(&mut self) {
        let own = self.zones.platform().domain();
        // Another domain has replaced this one, and has taken its list over.
        if self.parents.successor(own).is_some() {
            return;
        }
        let Some(listed) = self.parents.former_domains(own) else { return };
        let known = |domain: &Name| self.former_domains.iter().find(|known| known.domain == text_of(domain)).cloned();
        // Its Zone can be missing for a moment: then the settings stay.
        let settings = |domain: &Name| match self.parents.platform(domain) {
            None => known(domain).unwrap_or_else(|| self.parents.former_domain(domain)),
            Some(_) => self.parents.former_domain(domain),
        };
        let former: Vec<FormerDomain> = listed.iter().map(settings).collect();
        if former == self.former_domains {
            return;
        }
        let ended = self.former_domains.iter().filter(|known| former.iter().all(|one| one.domain != known.domain));
        ended.for_each(|ended| tracing::info!(domain = ended.domain, "the service of a former domain has ended"));
        self.former_domains = former;
        self.set_settings();
        let settings = whole(&self.sources.settings, &self.former_domains, &self.publisher.zones);
        self.publisher.record_domains(&settings);
    }

    fn take_objects<I: Reduced<Input: MayBeHeld>>(&mut self, store: &Store<I>, change: &Change<I>) {
        let accepted = self.holds.apply(change, self.zones.platform(), store);
        self.log.add_all(change);
        self.put(accepted);
    }

    /// Applies a change of ChallengeRecords. A lost one costs a client its next try, so none is held.
    fn take_challenges(&mut self, change: &Change<ChallengeInfo>) {
        // Those of the state from before a restart that are not in the first list.
        if let Change::Relisted(_) = change {
            let listed: HashSet<String> =
                self.sources.objects.challenges.0.all().into_iter().map(|(key, _)| key.to_string()).collect();
            let known = self.zones.platform().challenges().map(|(key, _)| key);
            let gone: Vec<Box<str>> = known.filter(|key| !listed.contains(*key)).map(Into::into).collect();
            gone.iter().for_each(|key| self.put_challenge(key, None));
        }
        each_object(change, |key, read| {
            let challenge = read.and_then(|read| read.input()).filter(|challenge| !is_expired(challenge));
            self.put_challenge(&key.to_string(), challenge.cloned());
        });
    }

    /// Ends ChallengeRecords that no leader has deleted, such as while the API is unreachable.
    fn expire_challenges(&mut self) {
        let challenges = self.zones.platform().challenges().filter(|(_, challenge)| is_expired(challenge));
        let expired: Vec<Box<str>> = challenges.map(|(key, _)| key.into()).collect();
        expired.iter().for_each(|key| self.put_challenge(key, None));
    }

    fn put_challenge(&mut self, key: &str, challenge: Option<Arc<ChallengeInput>>) {
        self.publisher.journal.push(record::challenge(key, challenge.as_deref()));
        self.zones.put(key, challenge, Instant::now());
    }

    /// Puts objects into the zones and the last-known-good state; `None`: deleted.
    fn put<V: MayBeHeld>(&mut self, objects: impl IntoIterator<Item = (Box<str>, Option<Arc<V>>)>) {
        for (name, object) in objects {
            self.publisher.journal.push(V::entry(&name, object.as_deref()));
            self.zones.put(&name, object, Instant::now());
        }
    }

    /// Releases the approved holds, and reports the others.
    fn apply_decisions(&mut self) {
        let (routers, bindings) = self.holds.approved();
        self.put(routers);
        self.put(bindings);
        self.publisher.status.losses().set_held(self.holds.held());
        self.holds.store(&mut self.publisher.journal);
    }

    /// Updates the partial mode: while an unreadable object without a known value exists, a missing name may be one of its names.
    fn settle_unknown(&mut self) {
        let Objects { routers, bindings, .. } = &self.sources.objects;
        let (routers, bindings) = (routers.0.unknown(), bindings.0.unknown());
        let platform = self.zones.platform();
        let router = routers.iter().find(|key| platform.router(&key.name).is_none());
        let binding = bindings.iter().find(|key| platform.binding(&key.to_string()).is_none());
        let first = router.map(|key| format!("Router {key}")).or(binding.map(|key| format!("RouteBinding {key}")));
        if first.is_some() == self.is_partial {
            return;
        }
        self.is_partial = first.is_some();
        self.publisher.zones.set_partial(self.is_partial);
        match first {
            Some(object) => tracing::error!(
                object,
                routers = routers.len(),
                bindings = bindings.len(),
                "objects in the API's store are unreadable: until they are restored or deleted, names that are not \
                 found get SERVFAIL, because they can belong to these objects"
            ),
            None => tracing::info!("every object is readable again: names that are not found get NXDOMAIN"),
        }
    }

    /// Logs a warning about names in the base of the parent zone that other zones hide.
    fn warn_of_hidden(&self) {
        for name in self.zones.hidden_base_names().into_iter().take(HIDDEN_TOLD_MAX) {
            tracing::warn!(%name, "the parent zone's file has records at or below the apex of a shard or of the alias \
                                   zone; they are not served");
        }
    }

    fn run_housekeeping(&mut self) {
        self.publisher.zones.db().reclaim();
        self.publisher.replace_refused();
        self.expire_challenges();
        let held = self.publisher.status.losses().held();
        self.reminder.log(&held);
        if self.reminder.is_relist_due(&held, Instant::now()) {
            for held in &held {
                match held.kind {
                    DeletionHoldKind::Router => self.sources.objects.routers.0.relist(),
                    DeletionHoldKind::RouteBinding => self.sources.objects.bindings.0.relist(),
                }
            }
        }
        if self.ledger_relist.is_due(self.zones.counters.provisional, Instant::now()) {
            self.sources.objects.zones.0.relist();
        }
        if let Some(diagnostics) = self.zones.changed_diagnostics() {
            diagnostics.iter().for_each(|diagnostic| self.log.add(diagnostic));
            self.publisher.status.state().diagnostics = diagnostics;
        }
    }
}

/// The time of the next list of the ledger.
///
/// Provisional serials can mean that the watch of Zones delivers nothing while the others do. After `SERIAL_STRIDE` of them in a
/// row, this name server would use a serial of the ledger for other contents.
struct LedgerRelist {
    /// The number of provisional publications at the last list.
    provisional: u64,
    due: Instant,
    wait: Duration,
}

impl LedgerRelist {
    fn new() -> Self {
        LedgerRelist { provisional: 0, due: Instant::now(), wait: LEDGER_RELIST.0 }
    }

    fn is_due(&mut self, provisional: u64, now: Instant) -> bool {
        if provisional == self.provisional || now < self.due {
            return false;
        }
        (self.provisional, self.due) = (provisional, now + self.wait);
        self.wait = (self.wait * 2).min(LEDGER_RELIST.1);
        true
    }
}

/// Diagnostics that were logged already.
#[derive(Default)]
struct DiagnosticLog(HashSet<Diagnostic>);

impl DiagnosticLog {
    fn add_all<I: Reduced>(&mut self, change: &Change<I>) {
        each(change, |_, read| read.into_iter().flat_map(|read| read.diagnostics()).for_each(|one| self.add(one)));
    }

    fn add(&mut self, diagnostic: &Diagnostic) {
        // Bounded: a diagnostic may be logged twice.
        if self.0.len() >= BATCH_MAX {
            self.0.clear();
        }
        if self.0.insert(diagnostic.clone()) {
            tracing::warn!(object = %diagnostic.object, path = %diagnostic.path, "{}", diagnostic.message);
        }
    }
}

/// Returns the apex and the versions of a `Zone` object; `None` if its name is not a domain name. Unreadable versions are
/// omitted.
pub(super) fn ledger_entry(zone: &LedgerZone) -> Option<(Name, Versions)> {
    let apex = zone.metadata.name.as_deref()?.parse().ok()?;
    Some((apex, zone.spec.versions.iter().filter_map(read_version).collect()))
}

/// Returns a version of the ledger; `None` if it is unreadable.
pub(super) fn read_version(version: &ZoneVersion) -> Option<(Serial, Digest)> {
    Some((Serial(version.serial), version.digest.parse().ok()?))
}

/// Calls `on` for each zone of a change; `None`: the ledger does not have it.
fn each_ledger_entry(change: &Change<LedgerZone>, mut on: impl FnMut(Name, Option<Versions>)) {
    each_object(change, |key, zone| match zone.and_then(|zone| ledger_entry(zone)) {
        Some((apex, versions)) => on(apex, Some(versions)),
        None => drop(key.name.parse().map(|apex| on(apex, None))),
    });
}

fn is_expired(challenge: &ChallengeInput) -> bool {
    u64::try_from(challenge.expires).unwrap_or(0) + EXPIRY_GRACE_SECONDS < unix_now()
}

/// Seconds since 1970.
pub(super) fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Returns the name of a zone's `Zone` object: its apex in lower case without a trailing dot.
pub fn ledger_name(apex: &Name) -> String {
    text_of(apex)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provisional_serials_cause_lists_at_growing_intervals() {
        let mut relist = LedgerRelist::new();
        let mut now = relist.due;
        assert!(!relist.is_due(0, now), "there is no provisional serial");
        for (provisional, seconds) in (1..).zip([5, 10, 20, 40, 80, 160, 320, 600, 600]) {
            assert!(relist.is_due(provisional, now));
            let next = now + Duration::from_secs(seconds);
            assert!(!relist.is_due(provisional + 1, next - Duration::from_millis(1)), "{seconds} s");
            now = next;
            assert!(!relist.is_due(provisional, now), "no further serial is provisional");
        }
    }
}
