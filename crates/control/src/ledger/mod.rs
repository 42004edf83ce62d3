//! The ledger of serials: the leading controller writes the serial of each state of a zone into its `Zone` object.
//!
//! The ledger watches the same objects as the name servers and computes the same digests, but builds no zones. If a zone's digest
//! differs from that of its newest version, it writes the next version, with the serial max(previous + `SERIAL_STRIDE`, seconds
//! since 1970) in the arithmetic of RFC 1982. Changes that arrive during a write, or within [`WRITE_INTERVAL`] of the last one,
//! share the next version. With 16 versions, a name server that lags finds a state that it has.
//!
//! [`Ledger`] is pure: it plans the writes that are due for a zone, and the work queue defines when to check it again. The
//! executor does the writes ([`crate::work`]).
//!
//! The first serial of a zone comes from the clock; the first serial of the parent zone is also newer than that in its zone
//! file. The file's zone was served under that serial before the platform existed, and secondaries may have copied it
//! ([`serials`]).
//!
//! A wrong version does no harm: a name server publishes under it only a state with the same digest. So the ledger needs no
//! fencing against a deposed leader that still writes: it writes a state that was correct a moment ago, and the next leader
//! writes the current one. The resourceVersion prevents unnoticed overwrites between the two.
//!
//! The Zone of the parent zone also contains the platform's configuration ([`ZonePlatform`]), which tools read there. A change of
//! the configuration is a normal write, but not a new version.
//!
//! The ledger deletes the `Zone` of a deleted shard when the clock has passed its newest serial plus the reserved range. If the
//! shard is re-created, its first serial comes from the clock, and is newer than any provisional serial of a name server. While the
//! loss of its Router is held ([`Owners`]), the Zone stays. After a start, this also applies to Zones whose Routers are missing, if they
//! are most of all: an API that has lost its objects looks the same.
//!
//! A change of the domain ([`crate::name_server::domain`]) begins with the Zone of the new parent zone, which lists the former domains. The
//! ledger allocates the serials of their parent and alias zones until an administrator removes them from the list. Then it deletes
//! their Zones: the alias Zone first, since a leader that starts meanwhile knows from the parent Zone that its domain has ended.
//! The parent and alias Zone of any other domain are never deleted.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::Preconditions;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::aliases::{AliasChange, AliasChanges};
use self::serials::with_room;
pub use self::serials::{BaseSerial, after_restore};
use self::write::{Write, carry_out, refusal};
use crate::client::reflector::{Change, Store};
use crate::compiler::former_domains::FormerDomain;
use crate::compiler::inputs::BindingInput;
use crate::compiler::settings::text_of;
use crate::compiler::{Digest, Platform, Settings, platform};
use crate::deletion_hold::keep::CHECK_AGAIN;
use crate::name_server::objects::{Event, each_object, put_all};
use crate::name_server::{ledger_name, read_version, unix_now};
use crate::observe::verify::feed::{WithheldShards, ZoneFeed};
use crate::work::controller::{self, Action, Controller, Inputs, Plan, changes};
use crate::work::queue::{Item, WorkQueue};
use crate::world::owners::Owners;
use crate::world::parents::Parents;
use crate::world::{BindingInfo, RouterInfo, World};
use signpost_dns::wire::Name;
use signpost_dns::zone::Serial;
use signpost_types::names::ALIAS_LABEL;
use signpost_types::v1alpha1::zone::{Zone, ZoneKind, ZonePlatform, ZoneSpec, ZoneVersion};

mod aliases;
pub mod serials;
pub mod write;

/// Versions that a Zone keeps.
pub const VERSIONS_MAX: usize = 16;
/// The minimum time between two versions of a zone. With [`VERSIONS_MAX`], it defines the lag that a name server may have under
/// steady change; a single change on an idle zone never waits for it.
pub const WRITE_INTERVAL: Duration = Duration::from_millis(25);
/// The write interval while changes arrive singly, such as routes that are each created after the response for the previous one.
/// With [`WRITE_INTERVAL`], each response took 25 ms. Name servers keep up with such small changes.
pub const SMALL_WRITE_INTERVAL: Duration = Duration::from_millis(10);
/// The number of changed aliases up to which a version is small.
const SMALL_CHANGE: usize = 4;
/// The permits of the work queue, half of which one owner can hold: the most writes in flight.
const PLACES: usize = 2 * 64;
/// The longest that a write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
/// The wait after a failed write; if the API rejects the write, the wait doubles each time, up to the longest.
const RETRY_AFTER: Duration = Duration::from_millis(500);
/// The longest wait after [`RETRY_AFTER`]: an object that the API rejects will be rejected again.
const RETRY_LONGEST: Duration = Duration::from_secs(60);
/// The longest time until the Zone of a deleted shard is checked again: timers do not advance while a machine sleeps.
const DELETION_LONGEST: Duration = Duration::from_secs(3600);
/// The most Routers that a log line names.
const SHARDS_TOLD_MAX: usize = 20;

/// The inputs of the ledger.
#[derive(Clone)]
pub struct Sources {
    pub world: World,
    /// The platform.
    pub settings: Arc<Settings>,
    /// The former domain, for a change of the domain.
    pub former: Option<String>,
    /// The zone file's serial for the parent zone, if there is a file.
    pub base: BaseSerial,
    /// The configuration in the parent's Zone.
    pub description: watch::Receiver<Option<ZonePlatform>>,
}

/// Writes the ledger until `stop`, which also ends with this process's leadership. `feed` gets the contents of each zone and
/// their times.
pub async fn run(client: kube::Client, sources: Sources, feed: Arc<ZoneFeed>, stop: CancellationToken) {
    let Sources { world, settings, former, base, mut description } = sources;
    let mut inputs = Inputs::default();
    let routers = inputs.read(&world.routers, |this: &mut SerialAllocator, change| this.take(Event::Router(change)));
    let bindings = inputs.read(&world.bindings, |this, change| this.take(Event::Binding(change)));
    // Nothing waits for their list: a cluster with older definitions lacks the kind.
    inputs.read(&world.challenges, |this, change| this.take(Event::Challenge(change)));
    let zones = inputs.read(&world.zones, |this, change| this.take(Event::Zone(change)));
    let mut ledger = Ledger::new(&settings, base, feed, world.owners);
    ledger.change_from(former.and_then(|former| former.parse().ok()));
    ledger.describe(description.borrow_and_update().clone(), Instant::now());
    let allocator = SerialAllocator { ledger, api: Api::all(client), routers, bindings, zones };
    inputs.add(changes(description), |this, description| this.ledger.describe(description, Instant::now()));
    controller::run(allocator, inputs, stop).await;
}

/// The ledger with its inputs and its API.
struct SerialAllocator {
    ledger: Ledger,
    api: Api<Zone>,
    routers: Store<RouterInfo>,
    bindings: Store<BindingInfo>,
    zones: Store<Zone>,
}

impl SerialAllocator {
    fn take(&mut self, event: Event) {
        self.ledger.take(event, Instant::now());
    }
}

impl Controller for SerialAllocator {
    type Key = Name;
    type Job = Write;
    /// The Zone; `None`: it was deleted.
    type Done = Option<Zone>;

    const JOB_TIMEOUT: Duration = WRITE_TIMEOUT;

    fn queue(&mut self) -> &mut WorkQueue<Name> {
        &mut self.ledger.queue
    }

    fn prepare(&mut self, now: Instant) {
        if self.is_ready() {
            self.ledger.set_synced(now);
        }
    }

    fn is_ready(&self) -> bool {
        self.routers.is_synced() && self.bindings.is_synced() && self.zones.is_synced()
    }

    fn plan(&mut self, apex: &Name, now: Instant) -> Plan<Write> {
        self.ledger.plan(apex, now, unix_now())
    }

    fn act(&self, apex: &Name, write: Write) -> Action<Option<Zone>> {
        carry_out(self.api.clone(), apex.clone(), write).boxed()
    }

    fn done(&mut self, apex: Name, result: kube::Result<Option<Zone>>, now: Instant) {
        self.ledger.written(apex, result, now);
    }
}

impl Item for Name {
    type Owner = ();

    fn owner(&self) -> &() {
        &()
    }
}

/// The desired and the actual state of the ledger. Pure.
pub struct Ledger {
    base: BaseSerial,
    /// The settings of the platform's domain, with those of former domains.
    settings: Settings,
    /// The former domains that are served.
    former_domains: Vec<FormerDomain>,
    domain: Name,
    alias_apex: Name,
    platform: Platform,
    parents: Parents,
    /// The digests of the contributions of Routers to the zones of their shards.
    own: HashMap<Name, Digest>,
    withheld: WithheldShards,
    known: HashMap<Name, KnownZone>,
    /// The zones to check.
    pub queue: WorkQueue<Name>,
    synced: bool,
    /// The Routers whose loss is held.
    owners: Owners,
    /// The configuration to write to the parent's Zone; `None`: no change.
    description: Option<ZonePlatform>,
    /// The domain of the objects before a change to this one.
    former: Option<Name>,
    /// The former domains that the Zone of the platform's domain should list; `None`: no change.
    listed: Option<Vec<Name>>,
    /// Former domains whose service has ended.
    ended: Vec<Name>,
    feed: Arc<ZoneFeed>,
    aliases: AliasChanges,
}

/// The known state of a zone's object.
#[derive(Default)]
struct KnownZone {
    zone: Option<Zone>,
    written: Option<Instant>,
    /// The number of rejections in a row, and the time of the next try.
    failed: Option<(u32, Instant)>,
    /// The newest serial ever seen here: a Zone that was deleted by hand is re-created with a newer one.
    last: Option<Serial>,
}

impl Ledger {
    /// Returns a ledger for the platform's domain, without any known state.
    pub fn new(settings: &Settings, base: BaseSerial, feed: Arc<ZoneFeed>, owners: Owners) -> Self {
        Ledger {
            base,
            settings: settings.clone(),
            former_domains: Vec::new(),
            parents: Parents::default(),
            domain: settings.domain().clone(),
            alias_apex: settings.alias_apex().clone(),
            platform: Platform::new(settings),
            own: HashMap::new(),
            withheld: WithheldShards::new(),
            known: HashMap::new(),
            queue: WorkQueue::new(PLACES, [Duration::ZERO; 2]),
            synced: false,
            owners,
            description: None,
            former: None,
            listed: None,
            ended: Vec::new(),
            feed,
            aliases: AliasChanges::default(),
        }
    }

    /// Sets the domain from which the platform changes to this one.
    pub fn change_from(&mut self, former: Option<Name>) {
        self.former = former;
    }

    /// Sets the configuration in the parent's Zone.
    pub fn describe(&mut self, description: Option<ZonePlatform>, now: Instant) {
        self.description = description;
        self.queue.add(self.domain.clone(), now);
    }

    /// Handles an event.
    pub fn take(&mut self, event: Event, now: Instant) {
        let mut changes = Vec::new();
        match event {
            Event::Router(change) => put_all(&mut self.platform, &change, &mut changes),
            Event::Binding(change) => put_all(&mut self.platform, &change, &mut changes),
            Event::Challenge(change) => put_all(&mut self.platform, &change, &mut changes),
            Event::Zone(change) => {
                let is_list = matches!(change, Change::Relisted(_));
                each_object(&change, |key, zone| {
                    if let Ok(apex) = key.name.parse() {
                        self.learn(apex, zone.map(|zone| (**zone).clone()), is_list, now);
                    }
                });
            }
        }
        changes.into_iter().for_each(|change| self.note(change, now));
        let withheld = self.platform.withheld();
        let withheld: WithheldShards =
            withheld.map(|(apex, router, outer)| (apex.clone(), (router.name.clone(), outer.clone()))).collect();
        if withheld != self.withheld {
            self.withheld.clone_from(&withheld);
            self.feed.update(|update| update.withheld = Some(withheld));
        }
    }

    /// Handles the end of a write: the zone's object is now this, or `None` if it was deleted.
    pub fn written(&mut self, apex: Name, result: kube::Result<Option<Zone>>, now: Instant) {
        let known = self.known.entry(apex.clone()).or_default();
        let refusals = known.failed.take().map_or(0, |(refusals, _)| refusals);
        match result {
            Ok(zone) => {
                known.written = Some(now);
                if refusals > 0 {
                    self.feed.update(|update| drop(update.refused.insert(apex.clone(), None)));
                }
                self.learn(apex, zone, true, now);
            }
            Err(error) => self.retry(apex, &error, refusals, now),
        }
    }

    /// Schedules a retry of a failed write, after the API had rejected others of this zone in a row.
    fn retry(&mut self, apex: Name, error: &kube::Error, refusals: u32, now: Instant) {
        tracing::warn!(zone = %apex, %error, "failed to write the zone's serial; retrying");
        let refusal = refusal(error);
        let refusals = if refusal.is_some() { refusals } else { 0 };
        let wait = RETRY_AFTER.saturating_mul(1_u32.checked_shl(refusals).unwrap_or(u32::MAX)).min(RETRY_LONGEST);
        let known = self.known.entry(apex.clone()).or_default();
        known.failed = Some((refusals + u32::from(refusal.is_some()), now + wait));
        if let Some((router, refusal)) = self.platform.shard(&apex).zip(refusal) {
            let refused = Some((Arc::clone(router), refusal.to_owned()));
            self.feed.update(|update| drop(update.refused.insert(apex.clone(), refused)));
        }
        self.queue.plan(apex, now + wait);
    }

    fn note(&mut self, change: platform::Change, now: Instant) {
        let apex = match change {
            platform::Change::Shard { apex, router } => {
                match router {
                    Some(router) => drop(self.own.insert(apex.clone(), router.digest)),
                    None => drop(self.own.remove(&apex)),
                }
                apex
            }
            platform::Change::FormerName { apex, .. } => apex,
            platform::Change::Delegation { domain, .. } => domain,
            platform::Change::AliasText { label, digest, .. } => {
                let binding = self.platform.alias(&label).cloned();
                self.note_alias(label, binding, digest, now)
            }
            platform::Change::Alias { label, binding, digest } => self.note_alias(label, binding, digest, now),
        };
        self.queue.add(apex, now);
    }

    /// Notes that the zone of aliases has this digest after a change of one of them. Returns its apex.
    fn note_alias(&mut self, label: Box<str>, binding: Option<Arc<BindingInput>>, after: Digest, now: Instant) -> Name {
        let zone = self.known.get(&self.alias_apex).and_then(|known| known.zone.as_ref());
        let since = zone.and_then(newest).map(|(serial, _)| serial);
        self.aliases.push(AliasChange { label, binding, after, since });
        let former = self.settings.former_domains().iter().map(|former| former.alias_apex().clone());
        former.for_each(|apex| self.queue.add(apex, now));
        self.alias_apex.clone()
    }

    /// Records the state of an object. An event of a watch can be the echo of an earlier write, older than the known state. A
    /// read or listed state (`is_current`) always counts, even if it is older: then the store was restored.
    fn learn(&mut self, apex: Name, zone: Option<Zone>, is_current: bool, now: Instant) {
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
        self.parents.set(&apex, zone.as_ref());
        known.zone = zone;
        if self.synced
            && (apex == self.domain || self.former_domains.iter().any(|former| former.domain == text_of(&apex)))
        {
            self.settle_former_domains(now);
        }
        if self.synced {
            // A write of this zone may be in flight: the next write waits for its end, but the feed does not.
            self.update_feed(&apex);
        }
        self.queue.add(apex, now);
    }

    /// Marks the inputs as complete: missing objects do not exist.
    pub fn set_synced(&mut self, now: Instant) {
        if std::mem::replace(&mut self.synced, true) {
            return;
        }
        self.queue.add(self.domain.clone(), now);
        self.queue.add(self.alias_apex.clone(), now);
        self.listed = self.former.as_ref().and_then(|former| self.parents.after_change(&self.domain, former));
        self.settle_former_domains(now);
        if self.listed.is_none() && self.parents.are_of(&self.domain) {
            // Domains whose service has ended just before a new leader.
            self.ended = self.parents.others(&self.domain).cloned().collect();
        }
        self.log_left_behind();
        let of_kind = |kind: ZoneKind| {
            self.known.iter().filter(move |(_, known)| known.zone.as_ref().is_some_and(|zone| zone.spec.kind == kind))
        };
        let zones: Vec<_> = of_kind(ZoneKind::Shard).collect();
        let orphans = zones.iter().filter(|(apex, _)| self.platform.shard(apex).is_none());
        let named: Vec<&str> = orphans.filter_map(|(_, known)| known.zone.as_ref()?.spec.router.as_deref()).collect();
        // The Zone of a deleted Router stays for some seconds, so after a restart a few such Zones do not indicate a loss.
        if named.len() * 2 > zones.len() {
            self.owners.miss_routers(named);
        }
    }

    /// Takes over the former domains that the Zone of the platform's domain lists, or those after a change of the domain.
    fn settle_former_domains(&mut self, now: Instant) {
        let written = self.parents.former_domains(&self.domain);
        if self.listed.as_deref() == written && self.listed.take().is_some() {
            // After a change back, their own lists are over.
            self.settings.former_domains().iter().for_each(|former| self.queue.add(former.domain().clone(), now));
        }
        // Without the Zone, the list stays: it is written into the next one.
        let Some(listed) = self.listed.as_deref().or(written) else {
            self.listed = Some(self.former_domains.iter().filter_map(|former| former.domain.parse().ok()).collect());
            return;
        };
        let former: Vec<FormerDomain> = listed.iter().map(|domain| self.parents.former_domain(domain)).collect();
        if former == self.former_domains {
            return;
        }
        let settings = self.settings.with_former_domains(&former, |_| None);
        self.former_domains = former;
        let before = std::mem::replace(&mut self.settings, settings);
        let mut changes = Vec::new();
        self.platform.set_former_domains(&self.settings, &mut changes);
        changes.into_iter().for_each(|change| self.note(change, now));
        let is_served = |former: &Name| self.settings.former_domains().iter().any(|served| served.domain() == former);
        let ended = before.former_domains().iter().map(|former| former.domain()).filter(|former| !is_served(former));
        let ended: Vec<Name> = self.ended.iter().chain(ended).filter(|former| !is_served(former)).cloned().collect();
        self.ended = ended;
        for settings in before.former_domains().iter().chain(self.settings.former_domains()) {
            self.queue.add(settings.domain().clone(), now);
            self.queue.add(settings.alias_apex().clone(), now);
        }
        self.queue.add(self.domain.clone(), now);
    }

    /// Returns whether the zone is the parent or alias zone of a former domain that is served.
    fn is_former(&self, apex: &Name) -> bool {
        let mut former = self.settings.former_domains().iter();
        former.any(|former| former.domain() == apex || former.alias_apex() == apex)
    }

    /// Logs the Routers whose zones are below a former domain and not below the platform's.
    fn log_left_behind(&self) {
        for former in self.settings.former_domains() {
            let is_left = |apex: &Name| apex.is_at_or_below(former.domain()) && !apex.is_at_or_below(&self.domain);
            let left = self.platform.shards().filter(|(apex, _)| is_left(apex));
            let mut left: Vec<_> = left.map(|(apex, router)| format!("{} ({})", router.name, text_of(apex))).collect();
            left.sort_unstable();
            left.truncate(SHARDS_TOLD_MAX);
            if !left.is_empty() {
                tracing::warn!(
                    "Routers whose zones are still below the former domain {}: {}; these zones and their names do not \
                     change; create Routers below {} and drain these Routers",
                    former.domain_text(),
                    left.join(", "),
                    text_of(&self.domain)
                );
            }
        }
    }

    /// Returns the due write for a zone. Its result must be reported to [`Self::written`].
    pub fn plan(&mut self, apex: &Name, now: Instant, unix_now: u64) -> Plan<Write> {
        self.update_feed(apex);
        let wanted = self.wanted(apex);
        if wanted.is_none() && !self.known.contains_key(apex) {
            return Plan::Nothing;
        }
        let known = self.known.entry(apex.clone()).or_default();
        if let Some((_, at)) = known.failed.filter(|(_, at)| *at > now) {
            return Plan::At(at);
        }
        // The domain was changed, and this process was forgotten.
        if !matches!(wanted, Some((ZoneKind::Shard, ..))) && self.listed.is_none() && self.is_replaced() {
            return Plan::Nothing;
        }
        let Some((kind, router, digest)) = wanted else { return self.plan_deletion(apex, now, unix_now) };
        let known = self.known.entry(apex.clone()).or_default();
        let is_own = *apex == self.domain;
        let description = self.description.as_ref().filter(|_| is_own);
        let former_domains: Option<Vec<String>> = match (is_own, kind) {
            (true, _) => self.listed.as_ref().map(|listed| listed.iter().map(text_of).collect()),
            // The platform has changed back: its domain has taken the list over.
            (false, ZoneKind::Parent) if self.listed.is_none() => Some(Vec::new()),
            _ => None,
        };
        // After a restore of the store, the state may be that of its newest version, which is older than the version that name
        // servers publish.
        let last = known.last;
        let has_state = |zone: &Zone| {
            newest(zone)
                .is_some_and(|(serial, newest)| newest == digest && last.is_none_or(|last| !last.is_after(serial)))
        };
        let is_described =
            |zone: &Zone| description.is_none_or(|description| zone.spec.platform.as_ref() == Some(description));
        let is_listed = |zone: &Zone| former_domains.as_ref().is_none_or(|listed| zone.spec.former_domains == *listed);
        if known.zone.as_ref().is_some_and(|zone| has_state(zone) && is_described(zone) && is_listed(zone)) {
            return Plan::Nothing;
        }
        let is_small = *apex == self.alias_apex && self.aliases.len() <= SMALL_CHANGE;
        let interval = if is_small { SMALL_WRITE_INTERVAL } else { WRITE_INTERVAL };
        if let Some(at) = known.written.map(|written| written + interval).filter(|at| *at > now) {
            return Plan::At(at);
        }
        let mut zone = known.zone.clone().unwrap_or_else(|| {
            let platform = self.parents.platform(apex).cloned();
            let spec = ZoneSpec { kind, router: None, versions: Vec::new(), platform, former_domains: Vec::new() };
            Zone::new(&ledger_name(apex), spec)
        });
        zone.spec.platform = description.cloned().or(zone.spec.platform);
        zone.spec.former_domains = former_domains.unwrap_or(zone.spec.former_domains);
        if !has_state(&zone) {
            // Before the first version, nothing was published under a serial of the ledger.
            let serial = match known.last {
                Some(previous) => Serial::next(with_room(previous), unix_now),
                None if is_own => self.base.first_serial(unix_now),
                None if kind == ZoneKind::Parent => BaseSerial::Unknown.first_serial(unix_now),
                None => Serial(unix_now as u32),
            };
            let at = Timestamp::from_second(i64::try_from(unix_now).unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX);
            (zone.spec.kind, zone.spec.router) = (kind, router);
            zone.spec.versions.insert(0, ZoneVersion { serial: serial.0, digest: digest.to_string(), at: Time(at) });
            zone.spec.versions.truncate(VERSIONS_MAX);
        }
        let write = if known.zone.is_some() { Write::Replace } else { Write::Create };
        Plan::Act(write(Box::new(zone)))
    }

    /// Returns the due work for a zone that should not exist.
    fn plan_deletion(&mut self, apex: &Name, now: Instant, unix_now: u64) -> Plan<Write> {
        let Some(zone) = self.known.get(apex).and_then(|known| known.zone.as_ref()) else {
            self.known.remove(apex);
            return Plan::Nothing;
        };
        let has_ended = self.ended.iter().any(|former| apex.is_at_or_below(former));
        if zone.spec.kind != ZoneKind::Shard && !has_ended {
            return Plan::Nothing;
        }
        if zone.spec.router.as_deref().is_some_and(|router| self.owners.keeps_router(router)) {
            return Plan::At(now + CHECK_AGAIN);
        }
        // A later leader learns the former domain from its parent Zone.
        if zone.spec.kind == ZoneKind::Parent && self.has_alias_zone(apex) {
            return Plan::At(now + Duration::from_secs(1));
        }
        if let Some(last) = newest(zone).map(|(serial, _)| with_room(serial))
            && !Serial(unix_now as u32).is_after(last)
        {
            let wait = Duration::from_secs(last.0.wrapping_sub(unix_now as u32).into());
            return Plan::At(now + wait.clamp(Duration::from_secs(1), DELETION_LONGEST));
        }
        let (uid, resource_version) = (zone.metadata.uid.clone(), zone.metadata.resource_version.clone());
        Plan::Act(Write::Delete(Preconditions { uid, resource_version }))
    }

    /// Returns whether the alias Zone of a domain exists.
    fn has_alias_zone(&self, domain: &Name) -> bool {
        let known = domain.prepend(ALIAS_LABEL.as_bytes()).ok().and_then(|apex| self.known.get(&apex));
        known.is_some_and(|known| known.zone.as_ref().is_some_and(|zone| zone.spec.kind == ZoneKind::Alias))
    }

    /// Returns whether another domain has replaced the platform's.
    fn is_replaced(&self) -> bool {
        self.parents.successor(&self.domain).is_some()
    }

    /// Sends the current contents of a zone to the feed.
    fn update_feed(&mut self, apex: &Name) {
        let versions = self.known.get(apex).and_then(|known| known.zone.as_ref()).map(|zone| &zone.spec.versions);
        let mut versions = versions.into_iter().flatten().filter_map(read_version);
        if *apex == self.alias_apex {
            let newest = versions.clone().next().map(|(serial, _)| serial);
            if let Some((serial, changes)) = self.aliases.take_held(versions) {
                self.feed.update(|update| {
                    update.alias_serial = newest;
                    for AliasChange { label, binding, .. } in changes {
                        update.aliases.insert(label, binding.map(|binding| (binding, serial)));
                    }
                });
            }
            self.aliases.merge();
        } else if *apex != self.domain && !self.is_former(apex) {
            let shard = match self.platform.shard(apex) {
                None => None,
                Some(router) => match versions.next().filter(|(_, newest)| *newest == self.shard_digest(apex)) {
                    Some((serial, _)) => Some((Arc::clone(router), serial)),
                    None => return,
                },
            };
            self.feed.update(|update| drop(update.shards.insert(apex.clone(), shard)));
        }
    }

    /// Returns the desired ledger entry of a zone: its kind, its Router, its digest. `None`: the zone does not exist.
    fn wanted(&self, apex: &Name) -> Option<(ZoneKind, Option<String>, Digest)> {
        if *apex == self.domain {
            return Some((ZoneKind::Parent, None, self.platform.delegations().digest()));
        }
        if *apex == self.alias_apex {
            return Some((ZoneKind::Alias, None, self.platform.alias_digest()));
        }
        if let Some(former) = self.settings.former_domains().iter().find(|former| former.domain() == apex) {
            return Some((ZoneKind::Parent, None, self.platform.delegations_of(former.domain()).digest()));
        }
        if self.is_former(apex) {
            return Some((ZoneKind::Alias, None, self.platform.alias_digest()));
        }
        let router = self.platform.shard(apex)?;
        Some((ZoneKind::Shard, Some(router.name.to_string()), self.shard_digest(apex)))
    }

    fn shard_digest(&self, apex: &Name) -> Digest {
        let own = self.own.get(apex).copied().unwrap_or_default();
        own.plus(self.platform.former_names(apex).digest())
    }
}

/// Returns a Zone's newest version.
fn newest(zone: &Zone) -> Option<(Serial, Digest)> {
    zone.spec.versions.first().and_then(read_version)
}

#[cfg(test)]
mod tests;
