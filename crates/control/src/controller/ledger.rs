//! The ledger of serials: the leading controller writes into each zone's `Zone` object which serial belongs to which state.
//!
//! It watches the same objects as the name servers and keeps the same digests, but no zones. Where a zone's digest is not
//! that of its newest version, the next version is written: serial max(previous + [`SERIAL_STRIDE`], seconds since 1970) in
//! the arithmetic of RFC 1982. Changes that come while a write is under way, or within [`WRITE_INTERVAL`] of the last one, share the next
//! version: 16 of them reach back far enough for a name server that lags to find a state that it has.
//!
//! The first serial of a zone is the clock's; of the parent zone it is also newer than what its zone file says, which was
//! served under that serial before the platform was there, and perhaps copied by secondaries ([`BaseSerial`]).
//!
//! A wrong version can do no harm: a name server publishes under it only what has its digest. So the ledger needs no fence
//! against a leader that was deposed and does not know it yet; it writes what was true a moment ago, and the next leader
//! writes what is true after it. The resourceVersion keeps the two from overwriting each other unseen.
//!
//! The Zone of the parent zone says, beside its versions, how the platform is configured ([`ZonePlatform`]): tools read it
//! there. A change of that is a write like any other, and no version.
//!
//! The `Zone` of a shard that is gone is deleted once the clock is past its newest serial and the room after it: if the shard
//! comes back, its first serial is the clock's, and newer than any that a name server took on its own. At a start, when most
//! Zones have no Router, nothing is deleted: that is how an API looks that has lost its objects. The parent and alias Zone of
//! another domain are never deleted, unless that is the one that this platform had before ([`super::domain`]).

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{DeleteParams, PostParams, Preconditions};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::live::feed::{AliasNews, ShardNews, ZoneFeed};
use super::zone::{each_object, ledger_name, unix_now};
use crate::client::reflector::Change;
use crate::compiler::inputs::{BindingInput, RouterInput};
use crate::compiler::platform;
use crate::compiler::settings::text_of;
use crate::compiler::{Digest, Platform, Settings, shard};
use crate::world::{BindingInfo, RouterInfo, World};
use signpost_api::v1alpha1::zone::{Zone, ZoneKind, ZonePlatform, ZoneSpec, ZoneVersion};
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;

/// Versions that a Zone keeps.
pub const VERSIONS_MAX: usize = 16;
/// The least time between two versions of a zone. With [`VERSIONS_MAX`] it is how far a name server may lag under steady
/// change; a single change on an idle zone never waits for it.
pub const WRITE_INTERVAL: Duration = Duration::from_millis(25);
/// The same while changes come one by one, as of routes that are each created after the one before was answered: they wait for
/// nothing else. At [`WRITE_INTERVAL`] each was answered after 25 ms. So few changes no name server is long behind.
pub const SMALL_WRITE_INTERVAL: Duration = Duration::from_millis(10);
/// Changed aliases up to which a version is small.
const SMALL_CHANGE: usize = 4;
/// How far apart the serials of two versions of a zone are at least. A name server that could not wait for the ledger
/// publishes under the serial after its last one; the room lets the ledger's next be newer still, so that all come to agree
/// again without another change. There is at most one such publication a second, while the clock goes on, too.
pub const SERIAL_STRIDE: u32 = 8;
/// Most writes under way at once.
const WRITES_MAX: usize = 64;
/// How long after a write failed it is tried again; if the API refuses it, each time twice as long, up to the longest.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// See [`RETRY_AFTER`]: an object that the API refuses will be refused again.
const RETRY_LONGEST: Duration = Duration::from_secs(60);
/// Most Routers that a line of the log names.
const SHARDS_TOLD_MAX: usize = 20;
/// Most events that one batch takes in before it writes.
const BATCH_MAX: usize = 4096;

/// Changed aliases that wait for a version, from which on several changes of one count as one.
const ALIASES_MAX: usize = 65_536;

/// What is known here of the serial in the parent zone's file, under which that zone may have been served so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BaseSerial {
    /// There is no such file.
    None,
    /// It says this.
    Known(Serial),
    /// The files are another process's. Most serials that people write are the day and two digits, `2009092001`, far above
    /// the clock's: the first serial is taken from after the end of today.
    Unknown,
}

impl BaseSerial {
    /// The least first serial of the parent zone.
    fn first_serial(self, unix_now: u64) -> Serial {
        match self {
            BaseSerial::None => Serial(unix_now as u32),
            BaseSerial::Known(serial) => Serial::next(with_room(serial), unix_now),
            BaseSerial::Unknown => {
                date_serial(unix_now).map_or(Serial(unix_now as u32), |serial| Serial::next(serial, unix_now))
            }
        }
    }
}

/// The last of the serials that name servers may have taken on their own after `serial`, when they could not wait for the
/// ledger's next. See [`SERIAL_STRIDE`].
fn with_room(serial: Serial) -> Serial {
    Serial(serial.0.wrapping_add(SERIAL_STRIDE - 1))
}

/// The last serial of the form `YYYYMMDDnn` that anyone on earth can write today.
fn date_serial(unix_now: u64) -> Option<Serial> {
    const DAY: u64 = 86_400;
    let tomorrow = Timestamp::from_second(i64::try_from(unix_now + DAY).ok()?).ok()?;
    let digits: String = tomorrow.to_string().chars().filter(char::is_ascii_digit).take(8).collect();
    Some(Serial(digits.parse::<u32>().ok()?.checked_mul(100)?.checked_add(99)?))
}

/// Serials a second by which a restored zone goes on, from its newest version in the backup to the restore: four changes a
/// second all the while. It grows with time so that a second restore of the same backup is newer than the first, too.
const RESTORED_PER_SECOND: i64 = SERIAL_STRIDE as i64 * 4;
/// By how much more, for a burst of 125,000 changes.
const RESTORED_MORE: i64 = 1_000_000;
/// By how much at most: half of how far serials can be compared (RFC 1982 §3.2).
const RESTORED_MOST: i64 = 1 << 30;

/// A `Zone` as it is to be restored from a backup at `now`: what is newest in it has a further version, of the same contents,
/// under a serial later than any that was given out since. Else name servers would be past all serials of the ledger, each
/// by its own count. `None`: it holds no version, and is restored as it is.
pub fn after_restore(mut zone: serde_json::Value, now: Timestamp) -> Option<serde_json::Value> {
    let versions = zone.pointer_mut("/spec/versions")?.as_array_mut()?;
    let mut version = versions.first()?.clone();
    let serial = u32::try_from(version["serial"].as_u64()?).ok()?;
    let at: Timestamp = version["at"].as_str()?.parse().ok()?;
    let seconds = now.duration_since(at).as_secs().max(0);
    let jump = seconds.saturating_mul(RESTORED_PER_SECOND).saturating_add(RESTORED_MORE).min(RESTORED_MOST);
    let moved_on = serial.wrapping_add(u32::try_from(jump).unwrap_or(0));
    let unix_now = u64::try_from(now.as_second()).unwrap_or(0);
    version["serial"] = Serial::next(Serial(moved_on), unix_now).0.into();
    version["at"] = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
    versions.insert(0, version);
    versions.truncate(VERSIONS_MAX);
    Some(zone)
}

/// What the ledger is written from.
#[derive(Clone)]
pub struct Sources {
    /// The objects.
    pub world: World,
    /// The platform.
    pub settings: Arc<Settings>,
    /// The domain that it had before, if that was changed: what is left of it goes.
    pub former: Option<String>,
    /// Whether the parent zone has a zone file, and under which serial; nothing is written before that is known.
    pub base: watch::Receiver<Option<BaseSerial>>,
    /// What the parent's Zone tells of the configuration.
    pub told: watch::Receiver<Option<ZonePlatform>>,
}

/// Writes the ledger until `stop`, which the end of this process's leadership is, too. `feed` is told what is in which zone
/// since when.
pub async fn run(client: kube::Client, sources: Sources, feed: Arc<ZoneFeed>, stop: CancellationToken) {
    let Sources { world, settings, former, mut base, mut told } = sources;
    let base = tokio::select! {
        () = stop.cancelled() => return,
        base = base.wait_for(Option::is_some) => base.map_or(None, |base| *base).unwrap_or(BaseSerial::Unknown),
    };
    let (routers, mut router_changes) = world.routers.read();
    let (bindings, mut binding_changes) = world.bindings.read();
    let (zones, mut zone_changes) = world.zones.read();
    let api: Api<Zone> = Api::all(client);
    let mut ledger = Ledger::new(&settings, base, feed);
    ledger.may_forget(former.and_then(|former| former.parse().ok()));
    ledger.describe(told.borrow_and_update().clone());
    let mut writes: FuturesUnordered<BoxFuture<'static, (Name, Outcome)>> = FuturesUnordered::new();
    loop {
        let mut taken = 0;
        let deadline = tokio::time::Instant::from_std(ledger.next_deadline().unwrap_or_else(Instant::now));
        let mut event = tokio::select! {
            () = stop.cancelled() => return,
            change = router_changes.next() => Some(Event::Router(change)),
            change = binding_changes.next() => Some(Event::Binding(change)),
            change = zone_changes.next() => Some(Event::Zone(change)),
            Some((apex, outcome)) = writes.next(), if !writes.is_empty() => Some(Event::Written(apex, outcome)),
            () = tokio::time::sleep_until(deadline), if ledger.next_deadline().is_some() => None,
            Ok(()) = told.changed() => {
                ledger.describe(told.borrow_and_update().clone());
                None
            }
        };
        // All that has come meanwhile becomes one version.
        while let Some(next) = event.take() {
            ledger.take(next, Instant::now());
            taken += 1;
            if taken >= BATCH_MAX {
                break;
            }
            event = router_changes.next().now_or_never().map(Event::Router);
            event = event.or_else(|| binding_changes.next().now_or_never().map(Event::Binding));
            event = event.or_else(|| zone_changes.next().now_or_never().map(Event::Zone));
        }
        if routers.is_synced() && bindings.is_synced() && zones.is_synced() {
            ledger.set_synced();
            for write in ledger.due(Instant::now(), unix_now(), WRITES_MAX.saturating_sub(writes.len())) {
                writes.push(carry_out(api.clone(), write).boxed());
            }
        }
    }
}

/// One thing that happened.
pub enum Event {
    /// Routers changed.
    Router(Change<RouterInfo>),
    /// RouteBindings changed.
    Binding(Change<BindingInfo>),
    /// The ledger itself changed.
    Zone(Change<Zone>),
    /// A write has ended.
    Written(Name, Outcome),
}

/// How a write ended.
#[derive(Debug, Clone)]
pub enum Outcome {
    /// The zone's object is this now; `None`: it is gone.
    Is(Option<Box<Zone>>),
    /// It failed.
    Failed {
        /// Why.
        error: String,
        /// Whether the API has refused the object, and will again.
        is_refused: bool,
    },
}

impl Outcome {
    fn failed(error: &kube::Error) -> Self {
        match error {
            kube::Error::Api(status) => {
                // Too many requests, or not its own fault: that passes.
                let is_refused = (400..500).contains(&status.code) && status.code != 429;
                Outcome::Failed { error: status.message.clone(), is_refused }
            }
            error => Outcome::Failed { error: error.to_string(), is_refused: false },
        }
    }
}

/// A write to be done.
#[derive(Debug, Clone)]
pub enum Write {
    /// Create the object.
    Create(Box<Zone>),
    /// Replace it, if it is still as it was seen.
    Replace(Box<Zone>),
    /// Delete it, if it is still the same.
    Delete {
        /// Its apex.
        apex: Name,
        /// `metadata.uid`.
        uid: Option<String>,
        /// `metadata.resourceVersion`.
        resource_version: Option<String>,
    },
}

async fn carry_out(api: Api<Zone>, write: Write) -> (Name, Outcome) {
    let (apex, result) = match write {
        Write::Create(zone) => (apex_of(&zone), api.create(&PostParams::default(), &zone).await.map(Some)),
        Write::Replace(zone) => {
            let name = zone.metadata.name.clone().unwrap_or_default();
            (apex_of(&zone), api.replace(&name, &PostParams::default(), &zone).await.map(Some))
        }
        Write::Delete { apex, uid, resource_version } => {
            let parameters = DeleteParams {
                preconditions: Some(Preconditions { uid, resource_version }),
                ..DeleteParams::default()
            };
            let deleted = api.delete(&ledger_name(&apex), &parameters).await.map(|_| None);
            (Some(apex), deleted)
        }
    };
    // The name was made from an apex.
    let apex = apex.unwrap_or_else(Name::root);
    let outcome = match result {
        Ok(zone) => Outcome::Is(zone.map(Box::new)),
        // Someone was faster, or it is gone: see what is there.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {
            match api.get_opt(&ledger_name(&apex)).await {
                Ok(zone) => Outcome::Is(zone.map(Box::new)),
                Err(error) => Outcome::failed(&error),
            }
        }
        Err(error) => Outcome::failed(&error),
    };
    if let Outcome::Failed { error, .. } = &outcome {
        tracing::warn!(zone = %apex, %error, "the zone's serial could not be written; trying again");
    }
    (apex, outcome)
}

fn apex_of(zone: &Zone) -> Option<Name> {
    zone.metadata.name.as_deref()?.parse().ok()
}

/// What the ledger should say, what it says, and what is under way. Pure.
pub struct Ledger {
    base: BaseSerial,
    domain: Name,
    alias_apex: Name,
    platform: Platform,
    /// The zones of shards.
    shards: HashMap<Name, ShardState>,
    known: HashMap<Name, Known>,
    /// Zones to look at. In canonical order, so that the parent comes before its shards.
    dirty: BTreeSet<Name>,
    later: BTreeSet<(Instant, Name)>,
    synced: bool,
    /// Routers until all is listed: they are given to the platform after the bindings, each of which would else change the
    /// former names of a Router by itself.
    first_routers: HashMap<String, Arc<RouterInput>>,
    /// Zones without a Router that are left alone, since there were too many at once.
    orphans: HashSet<Name>,
    /// What the parent's Zone is to tell of the configuration; `None`: what it tells is left alone.
    told: Option<ZonePlatform>,
    /// The domain of before.
    former: Option<Name>,
    feed: Arc<ZoneFeed>,
    /// Changed aliases that no version is known to hold yet, oldest first.
    aliases: VecDeque<ChangedAlias>,
    /// From this many on, several changes of one alias count as one.
    aliases_max: usize,
}

/// A shard's zone.
struct ShardState {
    router: Arc<RouterInput>,
    /// The digest of what the Router contributes.
    own: Digest,
    /// That of the zone, former names included.
    digest: Digest,
}

/// An alias that has come, changed, or gone.
struct ChangedAlias {
    label: Box<str>,
    binding: Option<Arc<BindingInput>>,
    /// The zone's digest after that.
    after: Digest,
    /// The zone's newest version then. One before it may have had the same contents, and does not count: who deletes a Route and makes
    /// it again brings the zone back to a state that it was in, but not back to that version.
    since: Option<Serial>,
}

impl ChangedAlias {
    fn is_held_by(&self, serial: Serial, digest: Digest) -> bool {
        self.after == digest && self.since.is_none_or(|since| serial == since || serial.is_after(since))
    }
}

#[derive(Default)]
struct Known {
    zone: Option<Zone>,
    under_way: bool,
    written: Option<Instant>,
    /// How often the API has refused it one time after the other, and when it may be tried again.
    failed: Option<(u32, Instant)>,
    /// The newest serial ever seen here: a Zone that someone deletes comes back with a newer one.
    last: Option<Serial>,
}

impl Ledger {
    /// A ledger for the platform's domain, of which nothing is known yet.
    pub fn new(settings: &Settings, base: BaseSerial, feed: Arc<ZoneFeed>) -> Self {
        Ledger {
            feed,
            aliases: VecDeque::new(),
            aliases_max: ALIASES_MAX,
            base,
            domain: settings.domain().clone(),
            alias_apex: settings.alias_apex().clone(),
            platform: Platform::new(settings),
            shards: HashMap::new(),
            known: HashMap::new(),
            dirty: BTreeSet::from([settings.domain().clone(), settings.alias_apex().clone()]),
            later: BTreeSet::new(),
            synced: false,
            first_routers: HashMap::new(),
            orphans: HashSet::new(),
            told: None,
            former: None,
        }
    }

    /// Sets the domain that the platform had before: its parent and alias Zone may go.
    pub fn may_forget(&mut self, former: Option<Name>) {
        self.former = former;
    }

    /// Sets what the parent's Zone tells of the configuration.
    pub fn describe(&mut self, told: Option<ZonePlatform>) {
        self.told = told;
        self.dirty.insert(self.domain.clone());
    }

    /// Takes in what happened.
    pub fn take(&mut self, event: Event, now: Instant) {
        let mut changes = Vec::new();
        match event {
            Event::Router(change) if !self.synced => {
                each_object(change, |key, router| match router.and_then(|router| router.input.clone()) {
                    Some(router) => drop(self.first_routers.insert(key.name.clone(), router)),
                    None => drop(self.first_routers.remove(&key.name)),
                })
            }
            Event::Router(change) => {
                each_object(change, |key, router| match router.and_then(|router| router.input.clone()) {
                    Some(router) => self.platform.set_router(router, &mut changes),
                    None => drop(self.platform.remove_router(&key.name, &mut changes)),
                })
            }
            Event::Binding(change) => {
                each_object(change, |key, read| match read.and_then(|read| read.input.clone()) {
                    Some(binding) => self.platform.set_binding(binding, &mut changes),
                    None => drop(self.platform.remove_binding(&key.to_string(), &mut changes)),
                });
            }
            Event::Zone(change) => {
                let is_list = matches!(change, Change::Relisted(_));
                each_object(change, |key, zone| {
                    if let Ok(apex) = key.name.parse() {
                        self.learn(apex, zone.map(|zone| (**zone).clone()), is_list);
                    }
                });
            }
            Event::Written(apex, outcome) => {
                let known = self.known.entry(apex.clone()).or_default();
                known.under_way = false;
                let failures = known.failed.take().map_or(0, |(refusals, _)| refusals);
                // What changed meanwhile was left for now.
                self.dirty.insert(apex.clone());
                match outcome {
                    Outcome::Is(zone) => {
                        known.written = Some(now);
                        if failures > 0 {
                            self.feed.tell(|news| drop(news.refused.insert(apex.clone(), None)));
                        }
                        self.learn(apex, zone.map(|zone| *zone), true);
                    }
                    Outcome::Failed { error, is_refused } => {
                        let refusals = if is_refused { failures } else { 0 };
                        let wait = RETRY_AFTER.saturating_mul(1_u32.checked_shl(refusals).unwrap_or(u32::MAX));
                        let at = now + wait.min(RETRY_LONGEST);
                        known.failed = Some((refusals + u32::from(is_refused), at));
                        self.dirty.remove(&apex);
                        if let Some(shard) = self.shards.get(&apex).filter(|_| is_refused) {
                            let router = Arc::clone(&shard.router);
                            self.feed.tell(|news| drop(news.refused.insert(apex.clone(), Some((router, error)))));
                        }
                        self.later.insert((at, apex));
                    }
                }
            }
        }
        self.note(changes);
    }

    fn note(&mut self, changes: Vec<platform::Change>) {
        for change in changes {
            match change {
                platform::Change::Shard { apex, router } => {
                    match router {
                        Some(router) => {
                            let own = shard::digest(&router);
                            let digest = own.plus(self.platform.former_names(&apex).digest());
                            self.shards.insert(apex.clone(), ShardState { router, own, digest });
                        }
                        None => drop(self.shards.remove(&apex)),
                    }
                    self.orphans.remove(&apex);
                    self.dirty.insert(apex);
                }
                platform::Change::FormerName { apex, digest, .. } => {
                    if let Some(shard) = self.shards.get_mut(&apex) {
                        shard.digest = shard.own.plus(digest);
                        self.dirty.insert(apex);
                    }
                }
                platform::Change::Delegation { .. } => drop(self.dirty.insert(self.domain.clone())),
                platform::Change::Alias { label, binding, digest } => {
                    let zone = self.known.get(&self.alias_apex).and_then(|known| known.zone.as_ref());
                    let since = zone.and_then(newest).map(|(serial, _)| serial);
                    self.aliases.push_back(ChangedAlias { label, binding, after: digest, since });
                    self.dirty.insert(self.alias_apex.clone());
                }
            }
        }
    }

    /// Notes what an object is. If a watch told it, that may be the echo of an earlier write, older than what is known. What was
    /// read or listed (`is_current`) is so, even if it is older: then the store has gone back in time.
    fn learn(&mut self, apex: Name, zone: Option<Zone>, is_current: bool) {
        let known = self.known.entry(apex.clone()).or_default();
        if let (Some(old), Some(new)) = (&known.zone, &zone)
            && !is_current
            && old.metadata.uid == new.metadata.uid
            && newest(old).is_some_and(|old| newest(new).is_none_or(|new| old.0.is_after(new.0)))
        {
            return;
        }
        let serial = zone.as_ref().and_then(newest).map(|(serial, _)| serial);
        if let Some(serial) = serial.filter(|serial| known.last.is_none_or(|last| serial.is_after(last))) {
            known.last = Some(serial);
        }
        known.zone = zone;
        self.dirty.insert(apex);
    }

    /// From now on everything is known: missing objects are missing.
    pub fn set_synced(&mut self) {
        if std::mem::replace(&mut self.synced, true) {
            return;
        }
        let mut changes = Vec::new();
        let routers = std::mem::take(&mut self.first_routers);
        routers.into_values().for_each(|router| self.platform.set_router(router, &mut changes));
        self.note(changes);
        let of_kind = |kind: ZoneKind| {
            self.known.iter().filter(move |(_, known)| known.zone.as_ref().is_some_and(|zone| zone.spec.kind == kind))
        };
        // Only on purpose does a platform come to have two parents. The way from one to the other was cut short.
        let mut parents = of_kind(ZoneKind::Parent).map(|(apex, _)| apex);
        if self.former.is_none() && parents.clone().any(|apex| *apex == self.domain) {
            self.former = parents.find(|apex| **apex != self.domain).cloned();
        }
        if let Some(former) = &self.former {
            let mut left: Vec<String> = self
                .shards
                .iter()
                .filter(|(apex, _)| apex.is_at_or_below(former) && !apex.is_at_or_below(&self.domain))
                .map(|(apex, shard)| format!("{} ({})", shard.router.name, text_of(apex)))
                .collect();
            left.sort_unstable();
            left.truncate(SHARDS_TOLD_MAX);
            if !left.is_empty() {
                tracing::warn!(
                    "Routers whose zones are still below the former domain {}: {}; their zones stay as they are, with the \
                     names in them; make Routers below {} and drain these",
                    text_of(former),
                    left.join(", "),
                    text_of(&self.domain)
                );
            }
        }
        let shard_zones: Vec<&Name> = of_kind(ZoneKind::Shard).map(|(apex, _)| apex).collect();
        let orphans: HashSet<Name> =
            shard_zones.iter().filter(|apex| !self.shards.contains_key(**apex)).map(|apex| (*apex).clone()).collect();
        if orphans.len() * 2 > shard_zones.len() {
            let (zones, orphans_count) = (shard_zones.len(), orphans.len());
            tracing::error!(
                zones,
                orphans = orphans_count,
                "most Zones have no Router; they are kept, see whether Routers were lost"
            );
            self.orphans = orphans;
        }
    }

    /// When something is due without anything happening before.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.later.first().map(|(at, _)| *at)
    }

    /// The writes that are due, at most `room`. Each must be reported by an [`Event::Written`].
    pub fn due(&mut self, now: Instant, unix_now: u64, room: usize) -> Vec<Write> {
        while let Some((at, _)) = self.later.first()
            && *at <= now
        {
            let (_, apex) = self.later.pop_first().expect("it was there");
            self.dirty.insert(apex);
        }
        let mut writes = Vec::new();
        while writes.len() < room
            && let Some(apex) = self.dirty.pop_first()
        {
            writes.extend(self.due_for(apex, now, unix_now));
        }
        writes
    }

    fn due_for(&mut self, apex: Name, now: Instant, unix_now: u64) -> Option<Write> {
        let wanted = self.wanted(&apex);
        self.tell(&apex);
        if wanted.is_none() && !self.known.contains_key(&apex) {
            return None;
        }
        let known = self.known.entry(apex.clone()).or_default();
        if known.under_way {
            // Its end comes as an event, and makes the zone dirty again.
            return None;
        }
        if let Some((_, at)) = known.failed.filter(|(_, at)| *at > now) {
            self.later.insert((at, apex));
            return None;
        }
        let Some((kind, router, digest)) = wanted else {
            let Some(zone) = &known.zone else {
                self.known.remove(&apex);
                return None;
            };
            let is_former = self.former.as_ref().is_some_and(|former| apex.is_at_or_below(former));
            if self.orphans.contains(&apex) || zone.spec.kind != ZoneKind::Shard && !is_former {
                return None;
            }
            if newest(zone).is_some_and(|(serial, _)| !Serial(unix_now as u32).is_after(with_room(serial))) {
                self.later.insert((now + Duration::from_secs(1), apex));
                return None;
            }
            known.under_way = true;
            let metadata = &zone.metadata;
            let (uid, resource_version) = (metadata.uid.clone(), metadata.resource_version.clone());
            return Some(Write::Delete { apex, uid, resource_version });
        };
        let told = self.told.as_ref().filter(|_| kind == ZoneKind::Parent);
        let has_state = |zone: &Zone| newest(zone).is_some_and(|(_, newest)| newest == digest);
        let is_told = |zone: &Zone| told.is_none_or(|told| zone.spec.platform.as_ref() == Some(told));
        if known.zone.as_ref().is_some_and(|zone| has_state(zone) && is_told(zone)) {
            return None;
        }
        let is_small = apex == self.alias_apex && self.aliases.len() <= SMALL_CHANGE;
        let interval = if is_small { SMALL_WRITE_INTERVAL } else { WRITE_INTERVAL };
        if let Some(at) = known.written.map(|written| written + interval).filter(|at| *at > now) {
            self.later.insert((at, apex));
            return None;
        }
        known.under_way = true;
        let mut zone = known.zone.clone().unwrap_or_else(|| {
            Zone::new(&ledger_name(&apex), ZoneSpec { kind, router: None, versions: Vec::new(), platform: None })
        });
        zone.spec.platform = told.cloned().or(zone.spec.platform);
        if known.zone.as_ref().is_some_and(has_state) {
            return Some(Write::Replace(Box::new(zone)));
        }
        // Before the first version nothing was published under a serial of the ledger.
        let serial = match known.last {
            Some(previous) => Serial::next(with_room(previous), unix_now),
            None if kind == ZoneKind::Parent => self.base.first_serial(unix_now),
            None => Serial(unix_now as u32),
        };
        let at = Timestamp::from_second(i64::try_from(unix_now).unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX);
        zone.spec.kind = kind;
        zone.spec.router = router;
        zone.spec.versions.insert(0, ZoneVersion { serial: serial.0, digest: digest.to_string(), at: Time(at) });
        zone.spec.versions.truncate(VERSIONS_MAX);
        let exists = known.zone.is_some();
        Some(if exists { Write::Replace(Box::new(zone)) } else { Write::Create(Box::new(zone)) })
    }

    /// Tells the feed what a zone holds by now.
    fn tell(&mut self, apex: &Name) {
        let versions = self.known.get(apex).and_then(|known| known.zone.as_ref()).map(|zone| &zone.spec.versions);
        let mut versions = versions.into_iter().flatten().filter_map(read_version);
        if *apex == self.alias_apex {
            let newest = versions.clone().next().map(|(serial, _)| serial);
            // A version holds what was changed before its state was reached.
            let held = versions.find_map(|(serial, digest)| {
                self.aliases.iter().rposition(|alias| alias.is_held_by(serial, digest)).map(|last| (serial, last))
            });
            if let Some((serial, last)) = held {
                let changes = self.aliases.drain(..=last);
                self.feed.tell(|news| {
                    news.alias_serial = newest;
                    for ChangedAlias { label, binding, .. } in changes {
                        news.aliases.insert(label, binding.map(|binding| AliasNews { binding, serial }));
                    }
                });
            }
            self.merge_aliases();
        } else if *apex != self.domain {
            match self.shards.get(apex) {
                None => self.feed.tell(|news| drop(news.shards.insert(apex.clone(), None))),
                Some(ShardState { router, digest, .. }) => {
                    if let Some((serial, _)) = versions.next().filter(|(_, newest)| newest == digest) {
                        let router = Arc::clone(router);
                        self.feed
                            .tell(|news| drop(news.shards.insert(apex.clone(), Some(ShardNews { router, serial }))));
                    }
                }
            }
        }
    }

    /// Bounds what waits for a version by the number of aliases, and some: what is held by none of the states between is held
    /// by the last.
    fn merge_aliases(&mut self) {
        if self.aliases.len() < self.aliases_max {
            return;
        }
        let Some(ChangedAlias { after, since, .. }) = self.aliases.back() else { return };
        let (after, since) = (*after, *since);
        let changes: HashMap<_, _> = self.aliases.drain(..).map(|alias| (alias.label, alias.binding)).collect();
        let merged = |(label, binding)| ChangedAlias { label, binding, after, since };
        self.aliases = changes.into_iter().map(merged).collect();
        self.aliases_max = self.aliases.len() + ALIASES_MAX;
    }

    /// What the ledger should say of a zone: its kind, its Router, its digest. `None`: there is no such zone.
    fn wanted(&self, apex: &Name) -> Option<(ZoneKind, Option<String>, Digest)> {
        if *apex == self.domain {
            return Some((ZoneKind::Parent, None, self.platform.parent_digest()));
        }
        if *apex == self.alias_apex {
            return Some((ZoneKind::Alias, None, self.platform.alias_digest()));
        }
        let shard = self.shards.get(apex)?;
        Some((ZoneKind::Shard, Some(shard.router.name.to_string()), shard.digest))
    }
}

/// A Zone's newest version.
fn newest(zone: &Zone) -> Option<(Serial, Digest)> {
    zone.spec.versions.first().and_then(read_version)
}

fn read_version(version: &ZoneVersion) -> Option<(Serial, Digest)> {
    Some((Serial(version.serial), version.digest.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::reflector;
    use crate::world;

    #[test]
    fn what_the_api_refuses_is_tried_ever_more_rarely_and_told() {
        let settings = Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
        let feed: Arc<ZoneFeed> = Arc::default();
        let mut ledger = Ledger::new(&settings.expect("good settings"), BaseSerial::None, Arc::clone(&feed));
        let applied = |ttl: u32| {
            let router = serde_json::json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
                "metadata": {"name": "s"}, "spec": {"ttl": ttl, "addresses": [{"ip": "192.0.2.1"}]}});
            let router = serde_json::from_value(router).expect("a Router");
            let now = Arc::new(RouterInfo::new(&router, &world::Settings::of_domain("v3.example")));
            let key = reflector::ObjectKey { namespace: None, name: "s".to_owned() };
            Event::Router(Change::Applied(reflector::Applied { key, now, before: None, recreated: false }))
        };
        let apex: Name = "s.v3.example.".parse().expect("a name");
        let mut now = Instant::now();
        ledger.take(applied(60), now);
        ledger.set_synced();
        let tries = |ledger: &mut Ledger, now| {
            let writes = ledger.due(now, 1_795_262_400, 16);
            writes
                .iter()
                .filter(|write| matches!(write, Write::Create(zone) if apex_of(zone).as_ref() == Some(&apex)))
                .count()
        };
        assert_eq!(tries(&mut ledger, now), 1);
        let refused = || Outcome::Failed { error: "metadata.name: Invalid value".to_owned(), is_refused: true };
        for (seconds, ttl) in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0].into_iter().zip(100..) {
            ledger.take(Event::Written(apex.clone(), refused()), now);
            // Something changes meanwhile: the zone is looked at, and waits on.
            ledger.take(applied(ttl), now);
            assert_eq!(tries(&mut ledger, now + Duration::from_secs_f64(seconds - 0.01)), 0, "{seconds}");
            now += Duration::from_secs_f64(seconds);
            assert_eq!(tries(&mut ledger, now), 1, "{seconds}");
        }
        let told = feed.take().refused;
        assert!(
            matches!(&told[&apex], Some((router, error)) if &*router.name == "s" && error.contains("metadata.name"))
        );
        ledger.take(Event::Written(apex.clone(), Outcome::Is(None)), now);
        assert!(feed.take().refused[&apex].is_none());
    }

    /// The zone then has the contents of a former version again, but is not back at that version.
    #[test]
    fn an_alias_that_goes_and_comes_back_is_told_with_its_new_version() {
        let settings = Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
        let feed: Arc<ZoneFeed> = Arc::default();
        let mut ledger = Ledger::new(&settings.expect("good settings"), BaseSerial::None, Arc::clone(&feed));
        let binding = serde_json::json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding",
            "metadata": {"namespace": "ns", "name": "app"},
            "spec": {"routeNamespace": "ns", "routeName": "app", "routeUID": "u", "router": "s", "dns": "s.v3.example",
                "label": "ns-app", "strategy": "round-robin", "names": [
                    {"name": "ns-app.s.v3.example", "type": "system"},
                    {"name": "ns-app.routes.v3.example", "type": "alias"}]}});
        let binding = serde_json::from_value(binding).expect("a RouteBinding");
        let (key, last) = (reflector::ObjectKey::namespaced("ns", "app"), Arc::new(BindingInfo::new(&binding)));
        let comes = || {
            let (key, now) = (key.clone(), Arc::clone(&last));
            Event::Binding(Change::Applied(reflector::Applied { key, now, before: None, recreated: false }))
        };
        let goes = || Event::Binding(Change::Deleted { key: key.clone(), last: Arc::clone(&last) });
        let apex: Name = "routes.v3.example.".parse().expect("a name");
        let mut now = Instant::now();
        // Writes what is due, and says what is told of the alias.
        let told = |ledger: &mut Ledger, now: Instant| {
            for write in ledger.due(now, 1_795_262_400, 16) {
                let (Write::Create(zone) | Write::Replace(zone)) = write else { panic!("nothing is deleted") };
                let apex = apex_of(&zone).expect("made from an apex");
                ledger.take(Event::Written(apex, Outcome::Is(Some(zone))), now);
            }
            drop(ledger.due(now, 1_795_262_400, 16));
            feed.take().aliases.remove("ns-app").map(|alias| alias.map(|alias| alias.serial))
        };
        let serial = |ledger: &Ledger| ledger.known[&apex].last;
        ledger.take(comes(), now);
        ledger.set_synced();
        assert_eq!(told(&mut ledger, now), Some(serial(&ledger)));
        now += WRITE_INTERVAL;
        ledger.take(goes(), now);
        assert_eq!(told(&mut ledger, now), Some(None));
        ledger.take(comes(), now);
        assert_eq!(told(&mut ledger, now), None, "no version has it yet");
        now += WRITE_INTERVAL;
        assert_eq!(told(&mut ledger, now), Some(serial(&ledger)));
    }

    #[test]
    fn the_first_serial_of_the_parent_zone() {
        // 21 November 2026, around noon.
        let now = 1_795_262_400;
        for (base, expected) in [
            (BaseSerial::None, 1_795_262_400),
            (BaseSerial::Known(Serial(7)), 1_795_262_400),
            (BaseSerial::Known(Serial(2_009_092_001)), 2_009_092_009),
            (BaseSerial::Known(Serial(2_026_112_101)), 2_026_112_109),
            (BaseSerial::Known(Serial(u32::MAX)), 1_795_262_400),
            (BaseSerial::Known(Serial(3_942_746_040)), 3_942_746_048),
            // The day after, in the last time zone.
            (BaseSerial::Unknown, 2_026_112_300),
        ] {
            let first = base.first_serial(now);
            assert_eq!(first, Serial(expected), "{base:?}");
            if let BaseSerial::Known(serial) = base {
                assert!(first.is_after(serial), "{base:?}");
            }
        }
    }
    #[test]
    fn a_restored_zone_goes_on_later_than_anything_since() {
        let zone = |serial: u32, at: &str| {
            let version = serde_json::json!({"serial": serial, "digest": "00ff", "at": at});
            serde_json::json!({"metadata": {"name": "v3.example"}, "spec": {"type": "parent", "versions": vec![version; 16]}})
        };
        let restored = |zone: &serde_json::Value, now: &str| {
            let now: Timestamp = now.parse().expect("a time");
            let zone = after_restore(zone.clone(), now).expect("it has versions");
            let versions = zone["spec"]["versions"].as_array().expect("a list").clone();
            assert_eq!((versions.len(), &versions[0]["digest"]), (VERSIONS_MAX, &versions[1]["digest"]));
            Serial(u32::try_from(versions[0]["serial"].as_u64().expect("a number")).expect("32 bits"))
        };
        // One that counts from a date, one that counts from the clock, one about to wrap around, one of long ago.
        for (serial, at) in [
            (2_026_112_116, "2026-11-21T12:00:00Z"),
            (1_795_262_400, "2026-11-21T12:00:00Z"),
            (u32::MAX - 7, "2026-11-21T12:00:00Z"),
            (1_795_262_400, "1990-01-01T00:00:00Z"),
        ] {
            let backup = zone(serial, at);
            let first = restored(&backup, "2026-11-22T00:00:00Z");
            let changed_since = Serial(serial.wrapping_add(100_000 * SERIAL_STRIDE));
            assert!(first.is_after(Serial(serial)) && first.is_after(changed_since), "{serial} {at} {first}");
            // All but the last, and the one that takes the clock's serial, which is after its own.
            if at.starts_with("2026") && serial < u32::MAX - 7 {
                let second = restored(&backup, "2026-11-22T00:01:00Z");
                assert!(second.is_after(Serial(first.0.wrapping_add(60 * SERIAL_STRIDE))), "{serial} {first} {second}");
            }
        }
        let none = serde_json::json!({"spec": {"type": "alias", "versions": []}});
        assert_eq!(after_restore(none, Timestamp::UNIX_EPOCH), None);
    }
}
