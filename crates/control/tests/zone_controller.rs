//! Tests of serials: a leader and several name servers that see the same changes at different moments, in every order of events
//! that a network and crashes can cause.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use serde_json::json;
use signpost_control::client::reflector::{Applied, Change, ObjectKey};
use signpost_control::compiler::challenges::ChallengeInput;
use signpost_control::compiler::inputs::BindingInput;
use signpost_control::compiler::{Digest, Platform, Settings, ShardView, alias};
use signpost_control::ledger::write::Write;
use signpost_control::ledger::{BaseSerial, Ledger};
use signpost_control::name_server::objects::Event;
use signpost_control::name_server::platform_zones::{Output, Zones};
use signpost_control::name_server::record::Loaded;
use signpost_control::name_server::reserved;
use signpost_control::name_server::restore::Restored;
use signpost_control::name_server::version_history::Published;
use signpost_control::observe::verify::feed::{ZoneFeed, ZoneUpdate};
use signpost_control::work::controller::Plan;
use signpost_control::world::owners::Owners;
use signpost_control::world::{self, BindingInfo, ChallengeInfo, RouterInfo};
use signpost_dns::wire::{Name, NameMap};
use signpost_dns::zone::publish::{Publisher, Swap};
use signpost_dns::zone::{Contents, Serial, Zone, stored};
use signpost_types::v1alpha1::challenge_record::ChallengeRecord;
use signpost_types::v1alpha1::router::Router;
use signpost_types::v1alpha1::zone::Zone as LedgerZone;

const UNIX_START: u64 = 1_800_000_000;
/// A history has at most 120 steps, a write is one of them and writes at most eight zones.
const SETTLING_STEPS_MAX: usize = 120 * 8 * 8;

fn settings() -> Arc<Settings> {
    Arc::new(
        Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]).expect("good settings"),
    )
}

fn publisher() -> Publisher {
    let publisher = Publisher::new(Arc::default());
    reserved::reserve(&publisher, &settings(), &[]);
    publisher
}

fn router(number: u8, address: u8) -> Arc<ShardView> {
    router_info(number, address).shard.expect("it makes a zone")
}

fn router_info(number: u8, address: u8) -> RouterInfo {
    // Some have records at, or below, labels that have former names.
    let records: &[&str] = match address {
        1 => &["_acme-challenge.ns-b2 TXT x"],
        2 => &["ns-b2 TXT x", "other TXT y"],
        _ => &[],
    };
    let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
        "metadata": {"name": format!("r{number}"), "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"addresses": [{"ip": format!("192.0.2.{address}")}], "records": records}});
    let object: Router = serde_json::from_value(object).expect("a Router of a test");
    RouterInfo::new(&object, &world::Settings::of_domain("v3.example"))
}

fn binding(number: u8, shard: u8) -> Arc<BindingInput> {
    Arc::new(BindingInput {
        key: format!("ns/b{number}").into(),
        created: 0,
        label: format!("ns-b{number}").into(),
        shard: format!("r{shard}.v3.example").into(),
        // Every other one has come from elsewhere.
        former_names: (0..4)
            .filter(|left| number.is_multiple_of(2) && *left != shard)
            .map(|left| format!("r{left}.v3.example").parse().expect("a name"))
            .collect(),
        // One has returned, and its former names point to its former shard.
        adopted: None,
        custom: None,
        leads_to: (number == 2 && shard == 0).then(|| "r3.v3.example".into()),
    })
}

/// Returns a ChallengeRecord in the zone of a shard, the alias zone, or the parent zone.
fn challenge(number: u8, to: u8) -> ChallengeInfo {
    let name = match to {
        0 => "_acme-challenge.ns-b2.r0.v3.example",
        1 => "_acme-challenge.ns-b1.routes.v3.example",
        _ => "ns-b0.acme.v3.example",
    };
    let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "ChallengeRecord",
        "metadata": {"namespace": "ns", "name": format!("c{number}"), "creationTimestamp": "2026-01-01T00:00:00Z"},
        "spec": {"name": name, "value": format!("proof{number}"), "expiresAt": "2026-01-01T01:00:00Z"}});
    let object: ChallengeRecord = serde_json::from_value(object).expect("a ChallengeRecord of a test");
    ChallengeInfo::new(&object)
}

/// A change of an object.
#[derive(Debug, Clone, Copy)]
enum Edit {
    Router(u8, Option<u8>),
    Binding(u8, Option<u8>),
    Challenge(u8, Option<u8>),
}

#[derive(Debug, Clone)]
enum Step {
    Edit(Edit),
    /// The leader, or a second process that assumes it leads, receives this number of edits and of ledger events.
    Leader(usize, usize, usize),
    /// A leader makes the due writes; `true`: the response does not arrive.
    Write(usize, bool),
    /// A name server receives this number of edits and of ledger events, and publishes.
    Replica(usize, usize, usize),
    Restart(usize),
    Sleep(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let edit = prop_oneof![
        (0..3u8, proptest::option::weighted(0.7, 0..4u8)).prop_map(|(number, to)| Edit::Router(number, to)),
        (0..4u8, proptest::option::weighted(0.7, 0..3u8)).prop_map(|(number, to)| Edit::Binding(number, to)),
        (0..3u8, proptest::option::weighted(0.7, 0..3u8)).prop_map(|(number, to)| Edit::Challenge(number, to)),
    ];
    let step = prop_oneof![
        4 => edit.prop_map(Step::Edit),
        3 => (0..2usize, 0..4usize, 0..4usize).prop_map(|(who, edits, events)| Step::Leader(who, edits, events)),
        3 => (0..2usize, prop::bool::weighted(0.1)).prop_map(|(who, lost)| Step::Write(who, lost)),
        6 => (0..3usize, 0..4usize, 0..4usize).prop_map(|(who, edits, events)| Step::Replica(who, edits, events)),
        1 => (0..3usize).prop_map(Step::Restart),
        2 => prop_oneof![1..30u64, 900..1500u64].prop_map(Step::Sleep),
    ];
    proptest::collection::vec(step, 1..120)
}

/// Everyone's world.
struct World {
    now: Instant,
    start: Instant,
    edits: Vec<Edit>,
    /// The API's Zones, and every version of each in the order of a watch.
    zones: BTreeMap<String, LedgerZone>,
    zone_events: Vec<(String, Option<LedgerZone>)>,
    revision: u64,
    leaders: Vec<Leader>,
    replicas: Vec<Replica>,
    /// The digest of each serial of the ledger, as published by any server.
    meaning: HashMap<(Name, u32), Digest>,
}

struct Leader {
    ledger: Ledger,
    feed: Arc<ZoneFeed>,
    /// All its reports about zones.
    sent: ZoneUpdate,
    edits: usize,
    events: usize,
}

struct Replica {
    zones: Zones,
    publisher: Publisher,
    edits: usize,
    events: usize,
    published: NameMap<Published>,
    /// The zones of the last-good state.
    images: HashMap<Name, Arc<Zone>>,
    served: BTreeMap<Name, Contents>,
}

fn applied<V>(key: ObjectKey, value: V) -> Change<V> {
    Change::Applied(Applied { key, now: Arc::new(value), before: None, recreated: false })
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let leader = || {
            let feed = Arc::new(ZoneFeed::default());
            let mut ledger = Ledger::new(&settings(), BaseSerial::None, feed.clone(), Owners::default());
            ledger.set_synced(now.into());
            Leader { ledger, feed, sent: ZoneUpdate::default(), edits: 0, events: 0 }
        };
        let replica = || Replica {
            zones: Zones::new(Platform::new(&settings()), settings(), now),
            publisher: publisher(),
            edits: 0,
            events: 0,
            published: NameMap::default(),
            images: HashMap::new(),
            served: BTreeMap::new(),
        };
        World {
            now,
            start: now,
            edits: Vec::new(),
            zones: BTreeMap::new(),
            zone_events: Vec::new(),
            revision: 0,
            leaders: (0..2).map(|_| leader()).collect(),
            replicas: (0..3).map(|_| replica()).collect(),
            meaning: HashMap::new(),
        }
    }

    fn unix_now(&self) -> u64 {
        UNIX_START + (self.now - self.start).as_secs()
    }

    fn leader_hears(&mut self, who: usize, edits: usize, events: usize) {
        let leader = &mut self.leaders[who];
        for edit in self.edits.iter().skip(leader.edits).take(edits) {
            leader.edits += 1;
            let event = match *edit {
                Edit::Router(number, to) => {
                    let key = ObjectKey::cluster(&format!("r{number}"));
                    Event::Router(match to {
                        Some(to) => applied(key, router_info(number, to)),
                        None => Change::Deleted { key, last: Arc::new(router_info(number, 0)) },
                    })
                }
                Edit::Binding(number, to) => {
                    let key = ObjectKey::namespaced("ns", &format!("b{number}"));
                    Event::Binding(match to {
                        Some(to) => {
                            applied(key, BindingInfo { input: Some(binding(number, to)), ..BindingInfo::default() })
                        }
                        None => Change::Deleted { key, last: Arc::default() },
                    })
                }
                Edit::Challenge(number, to) => {
                    let key = ObjectKey::namespaced("ns", &format!("c{number}"));
                    Event::Challenge(match to {
                        Some(to) => applied(key, challenge(number, to)),
                        None => Change::Deleted { key, last: Arc::new(challenge(number, 0)) },
                    })
                }
            };
            leader.ledger.take(event, self.now.into());
        }
        for (name, zone) in self.zone_events.iter().skip(leader.events).take(events) {
            leader.events += 1;
            let key = ObjectKey::cluster(name);
            let change = match zone {
                Some(zone) => applied(key, zone.clone()),
                None => Change::Deleted { key, last: Arc::new(LedgerZone::new(name, empty_spec())) },
            };
            leader.ledger.take(Event::Zone(change), self.now.into());
        }
    }

    /// Executes the leader's writes; returns whether there were any.
    fn leader_writes(&mut self, who: usize, lost: bool) -> bool {
        let unix_now = self.unix_now();
        let (leader, now) = (&mut self.leaders[who], self.now.into());
        let mut writes = Vec::new();
        while let Some(apex) = leader.ledger.queue.begin(now) {
            let plan = leader.ledger.plan(&apex, now, unix_now);
            if let Plan::At(at) = plan {
                leader.ledger.queue.plan(apex.clone(), at);
            }
            match plan {
                Plan::Act(write) => writes.push((apex, write)),
                _ => leader.ledger.queue.end(&apex),
            }
        }
        let news = leader.feed.take();
        leader.sent.shards.extend(news.shards);
        leader.sent.aliases.extend(news.aliases);
        let any = !writes.is_empty();
        for (apex, write) in writes {
            let there = self.write(&apex, write);
            let result = if lost { Err(no_answer()) } else { Ok(there) };
            self.leaders[who].ledger.queue.end(&apex);
            self.leaders[who].ledger.written(apex, result, self.now.into());
        }
        any
    }

    /// Applies the API's part of a write: creation and replacement as in Kubernetes.
    fn write(&mut self, apex: &Name, write: Write) -> Option<LedgerZone> {
        let name = signpost_control::compiler::settings::text_of(apex);
        let is_of = |version: &Option<String>| {
            self.zones.get(&name).is_some_and(|old| old.metadata.resource_version == *version)
        };
        let zone = match write {
            Write::Create(zone) => (!self.zones.contains_key(&name)).then_some(Some(zone)),
            Write::Replace(zone) => is_of(&zone.metadata.resource_version).then_some(Some(zone)),
            Write::Delete(preconditions) => is_of(&preconditions.resource_version).then_some(None),
        };
        match zone {
            Some(Some(mut zone)) => {
                self.revision += 1;
                zone.metadata.resource_version = Some(self.revision.to_string());
                zone.metadata.uid.get_or_insert_with(|| self.revision.to_string());
                self.zones.insert(name.clone(), (*zone).clone());
                self.zone_events.push((name.clone(), Some(*zone)));
            }
            Some(None) => {
                self.zones.remove(&name);
                self.zone_events.push((name.clone(), None));
            }
            // A conflict: the leader reads the current object.
            None => {}
        }
        self.zones.get(&name).cloned()
    }

    fn replica_hears(&mut self, who: usize, edits: usize, events: usize) -> Result<(), TestCaseError> {
        let replica = &mut self.replicas[who];
        for edit in self.edits.iter().skip(replica.edits).take(edits) {
            replica.edits += 1;
            match *edit {
                Edit::Router(number, to) => {
                    let router = to.map(|to| router(number, to));
                    replica.zones.put(&format!("r{number}"), router, self.now);
                }
                Edit::Binding(number, to) => {
                    let binding = to.map(|to| binding(number, to));
                    replica.zones.put(&format!("ns/b{number}"), binding, self.now);
                }
                Edit::Challenge(number, to) => {
                    let challenge = to.and_then(|to| challenge(number, to).input);
                    replica.zones.put(&format!("ns/c{number}"), challenge, self.now);
                }
            }
        }
        for (name, zone) in self.zone_events.iter().skip(replica.events).take(events) {
            replica.events += 1;
            let versions = zone.iter().flat_map(|zone| &zone.spec.versions);
            let versions = versions.map(|version| (Serial(version.serial), version.digest.parse().expect("a digest")));
            replica.zones.set_ledger(&name.parse().expect("an apex"), versions.collect());
        }
        let unix_now = self.unix_now();
        let output = self.replicas[who].zones.publish_due(self.now, unix_now);
        self.carry_out(who, output)
    }

    fn restart(&mut self, who: usize) -> Result<(), TestCaseError> {
        // A restart takes time: the clock bounds provisional serials.
        self.now += Duration::from_secs(1);
        let (now, unix_now) = (self.now, self.unix_now());
        let replica = &mut self.replicas[who];
        let platform = replica.zones.platform().clone();
        let mut loaded = Loaded {
            published: replica.published.clone(),
            zones: replica
                .images
                .iter()
                .filter_map(|(apex, zone)| Some((apex.clone(), stored::store(zone)?.into())))
                .collect(),
            bindings: platform.bindings().map(|binding| BindingInput::clone(binding)).collect(),
            challenges: platform.challenges().map(|(key, one)| (key.into(), ChallengeInput::clone(one))).collect(),
            ..Loaded::default()
        };
        let restored = Restored::take(&mut loaded, &settings());
        replica.publisher = publisher();
        replica.publisher.publish(restored.changes(&settings()));
        let zones = restored.shards.values().chain(restored.large.values());
        replica.served = zones.map(|zone| (zone.apex().clone(), zone.contents())).collect();
        let (zones, output) =
            Zones::restore(platform, settings(), loaded.published, restored, BTreeMap::new(), now, unix_now);
        replica.zones = zones;
        // The whole ledger is listed again.
        replica.events = 0;
        let had = replica.published.len();
        self.carry_out(who, output)?;
        let shards = self.replicas[who].zones.platform().shards().map(|(apex, _)| apex.clone()).collect::<Vec<_>>();
        let replica = &self.replicas[who];
        for apex in shards {
            let known = replica.published.contains_key(&apex);
            prop_assert!(!known || replica.served.contains_key(&apex), "{apex} of {had} is not served after a restart");
        }
        Ok(())
    }

    /// Applies the actions of a name server, and checks each publication.
    fn carry_out(&mut self, who: usize, output: Output) -> Result<(), TestCaseError> {
        let replica = &mut self.replicas[who];
        let step = replica.publisher.publish(output.changes);
        prop_assert!(step.refused.is_empty(), "{:?}", step.refused);
        output.forgotten.iter().for_each(|apex| _ = replica.published.remove(apex));
        for swap in step.swaps {
            let Swap { apex, after, .. } = swap;
            match &after {
                Some(after) => replica.served.insert(apex.clone(), after.zone.contents()),
                None => replica.served.remove(&apex),
            };
            match after.map(|after| after.zone).filter(|zone| zone.is_shard()) {
                Some(zone) => replica.images.insert(apex.clone(), zone),
                None => replica.images.remove(&apex),
            };
            let published = replica.zones.version(&apex).copied();
            let Some(published) = published else {
                replica.published.remove(&apex);
                continue;
            };
            let Some(served) = replica.served.get(&apex) else {
                prop_assert_eq!(replica.published.get(&apex), Some(&published), "{} is gone, its serial is kept", apex);
                continue;
            };
            let served = signpost_control::compiler::apex::serial_of(served);
            prop_assert_eq!(served, Some(published.serial.0), "{} is served under what was decided", apex);
            if let Some(before) = replica.published.insert(apex.clone(), published) {
                let same = before.serial == published.serial && before.digest == published.digest;
                let newer = published.serial.is_after(before.serial);
                prop_assert!(newer || same, "{}: {:?} after {:?}", apex, published, before);
            }
            if !published.provisional {
                let meant = *self.meaning.entry((apex.clone(), published.serial.0)).or_insert(published.digest);
                prop_assert_eq!(meant, published.digest, "{} {}", apex, published.serial);
            }
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), TestCaseError> {
        match *step {
            Step::Edit(edit) => self.edits.push(edit),
            Step::Leader(who, edits, events) => self.leader_hears(who, edits, events),
            Step::Write(who, lost) => drop(self.leader_writes(who, lost)),
            Step::Replica(who, edits, events) => self.replica_hears(who, edits, events)?,
            Step::Restart(who) => self.restart(who)?,
            Step::Sleep(milliseconds) => self.now += Duration::from_millis(milliseconds),
        }
        Ok(())
    }

    /// Checks that a name server with the version in which a leader reported a name contains that name.
    fn what_was_sent_is_served(&self) -> Result<(), TestCaseError> {
        for (sent, replica) in
            self.leaders.iter().flat_map(|leader| self.replicas.iter().map(|one| (&leader.sent, one)))
        {
            let serves = |apex: &Name, serial: Serial| {
                let published = replica.published.get(apex);
                let same = published.is_some_and(|published| published.serial == serial && !published.provisional);
                replica.served.get(apex).filter(|_| same)
            };
            for (label, (binding, serial)) in
                sent.aliases.iter().filter_map(|(label, alias)| Some((label, alias.as_ref()?)))
            {
                let change = alias::change(label, Some(binding.target()), &settings());
                if let Some(zone) = serves(settings().alias_apex(), *serial) {
                    prop_assert_eq!(zone.owner(&change.owner), change.rrsets, "{}", label);
                }
            }
            for (apex, (router, serial)) in sent.shards.iter().filter_map(|(apex, shard)| Some((apex, shard.as_ref()?)))
            {
                if let Some(zone) = serves(apex, *serial) {
                    let made = router.contents();
                    let wildcard = apex.wildcard().expect("a short name");
                    prop_assert_eq!(zone.owner(&wildcard), made.owner(&wildcard), "{}", apex);
                }
            }
        }
        Ok(())
    }

    /// Checks that a leader has finally reported everything that exists, and nothing else.
    fn all_was_sent(&self) -> Result<(), TestCaseError> {
        let platform = self.replicas[0].zones.platform();
        let sent = &self.leaders[0].sent;
        let mut aliases: Vec<_> = sent.aliases.values().flatten().map(|(binding, _)| binding.clone()).collect();
        let mut expected: Vec<_> = platform.aliases().cloned().collect();
        aliases.sort_by(|a, b| a.key.cmp(&b.key));
        expected.sort_by(|a, b| a.key.cmp(&b.key));
        prop_assert_eq!(aliases, expected);
        let mut shards: Vec<_> = sent.shards.iter().filter_map(|(apex, shard)| Some((apex, shard.as_ref()?))).collect();
        shards.sort_by_key(|(apex, _)| *apex);
        prop_assert_eq!(shards.len(), platform.shards().count());
        for ((apex, (shard, serial)), (expected, router)) in shards.into_iter().zip(platform.shards()) {
            let named = &self.zones[&signpost_control::compiler::settings::text_of(apex)].spec.versions[0];
            prop_assert_eq!((apex, shard, serial.0), (expected, router, named.serial));
        }
        Ok(())
    }

    /// Delivers all events to all participants until nothing happens.
    ///
    /// Each version of a zone moves its serial up to eight seconds ahead of the clock, and a Zone is deleted only when the clock
    /// has passed its serial by as much: this bounds the steps for the versions that a history can write.
    fn settle(&mut self) -> Result<(), TestCaseError> {
        for _ in 0..SETTLING_STEPS_MAX {
            self.leader_hears(0, usize::MAX, usize::MAX);
            let any = self.leader_writes(0, false);
            for who in 0..self.replicas.len() {
                self.replica_hears(who, usize::MAX, usize::MAX)?;
            }
            let waits = self.replicas.iter().filter_map(|replica| replica.zones.next_deadline());
            let next = waits.chain(self.leaders[0].ledger.queue.next_at().map(Into::into)).min();
            match next {
                None if !any => return Ok(()),
                None => self.now += Duration::from_millis(100),
                Some(next) => self.now = next.max(self.now + Duration::from_millis(100)),
            }
        }
        Err(TestCaseError::fail("it does not settle"))
    }
}

impl World {
    fn all_serve_what_the_objects_say(&self) -> Result<(), TestCaseError> {
        let compiled = signpost_control::compiler::compile_platform(self.replicas[0].zones.platform(), &settings());
        for replica in &self.replicas {
            let apexes: Vec<&Name> = replica.served.keys().collect();
            let mut expected: Vec<&Name> = compiled.zones.iter().map(|zone| zone.contents.apex()).collect();
            expected.sort();
            prop_assert_eq!(apexes, expected);
            for zone in &compiled.zones {
                let apex = zone.contents.apex();
                let mut served = replica.served[apex].clone();
                signpost_control::compiler::apex::set_serial(&mut served, 0);
                prop_assert!(signpost_dns::zone::diff::owners(&served, &zone.contents).is_empty(), "{}", apex);
                let published = replica.published[apex];
                prop_assert_eq!(published.digest, zone.digest);
                let named = &self.zones[&signpost_control::compiler::settings::text_of(apex)].spec.versions[0];
                let ahead = published.provisional && !Serial(named.serial).is_after(published.serial);
                prop_assert!(ahead || published.serial.0 == named.serial, "{}: {:?}", apex, published);
            }
        }
        Ok(())
    }
}

fn no_answer() -> kube::Error {
    kube::Error::ReadEvents(std::io::Error::other("no answer"))
}

fn empty_spec() -> signpost_types::v1alpha1::zone::ZoneSpec {
    serde_json::from_value(json!({"type": "shard"})).expect("a spec")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Serials never decrease; one serial of the ledger means one state, on every name server and across restarts; and finally
    /// all serve the same zones under the same serials.
    #[test]
    fn name_servers_agree(history in steps()) {
        let mut world = World::new();
        for step in &history {
            world.step(step)?;
            world.what_was_sent_is_served()?;
        }
        world.settle()?;
        world.all_serve_what_the_objects_say()?;
        world.what_was_sent_is_served()?;
        world.all_was_sent()?;
        // A name server that published a provisional serial while no process led, and then found the objects back in the ledger's
        // state, is ahead of the ledger. The next change of the zone makes all equal.
        world.now += Duration::from_secs(1);
        for number in 0..3 {
            world.edits.push(Edit::Router(number, Some(9)));
            world.edits.push(Edit::Binding(number, Some(9)));
        }
        world.edits.push(Edit::Router(9, Some(9)));
        world.settle()?;
        world.all_serve_what_the_objects_say()?;
        for replica in &world.replicas {
            for (apex, published) in &replica.published {
                if replica.served.contains_key(apex) {
                    let named = &world.zones[&signpost_control::compiler::settings::text_of(apex)].spec.versions[0];
                    prop_assert_eq!(published.serial.0, named.serial, "{}", apex);
                    prop_assert!(!published.provisional, "{}", apex);
                }
            }
        }
    }
}

/// A drain of a shard with very many routes: the cost of each former name does not depend on the others.
#[test]
fn a_former_name_among_very_many_is_not_the_whole_zone_anew() {
    const FORMER_NAMES: u32 = 2_000;
    let former = |number: u32, shard: &str, left: &[&str]| {
        Arc::new(BindingInput {
            key: format!("ns/b{number}").into(),
            created: 0,
            label: format!("ns-b{number}").into(),
            shard: shard.into(),
            former_names: left.iter().map(|left| left.parse().expect("a name")).collect(),
            adopted: None,
            custom: None,
            leads_to: None,
        })
    };
    let mut now = Instant::now();
    let mut zones = Zones::new(Platform::new(&settings()), settings(), now);
    // One of the labels has records below it, so the zone is rebuilt for its former name.
    zones.put("r0", Some(router(0, 1)), now);
    zones.put("r1", Some(router(1, 9)), now);
    let publisher = publisher();
    let publish = |zones: &mut Zones, now: Instant| {
        publisher.publish(zones.publish_due(now, UNIX_START).changes);
        publisher.db().get(&"r0.v3.example.".parse().expect("a name"))
    };
    let wait = Duration::from_secs(2);
    now += wait;
    publish(&mut zones, now);
    let made_anew = zones.counters.made_anew;
    for number in 0..FORMER_NAMES {
        zones.put(&format!("ns/b{number}"), Some(former(number, "r1.v3.example", &["r0.v3.example"])), now);
        now += wait;
        publish(&mut zones, now);
    }
    assert_eq!(zones.counters.made_anew, made_anew + 1, "except the one whose label has records");
    let compiled = signpost_control::compiler::compile_platform(zones.platform(), &settings());
    let check = |zone: Arc<Zone>| {
        let mut contents = zone.contents();
        signpost_control::compiler::apex::set_serial(&mut contents, 0);
        let whole = compiled.zones.iter().find(|whole| whole.contents.apex() == zone.apex()).expect("it is made");
        assert!(signpost_dns::zone::diff::owners(&contents, &whole.contents).is_empty());
        zone.owner_count()
    };
    let served = publish(&mut zones, now).expect("it is served");
    let owners = check(served);
    assert!(owners >= 2 * (FORMER_NAMES as usize - 1), "{owners}");

    // All at once, and their end.
    for number in 0..FORMER_NAMES {
        zones.put(&format!("ns/b{number}"), Some(former(number, "r0.v3.example", &[])), now);
    }
    now += wait;
    let left = publish(&mut zones, now).expect("it is served").owner_count();
    // The apex, the wildcard, and the records of the one label, with the wildcards below it.
    assert!(left < 10, "{left}");
    assert_eq!(zones.counters.made_anew, made_anew + 2);
}

/// The zone of a deleted Router inside another one is served until the outer zone no longer delegates it.
#[test]
fn an_inner_zone_goes_after_its_delegation() {
    let router = |name: &str, dns: &str| {
        let object = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
            "metadata": {"name": name, "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"dns": dns, "addresses": [{"ip": "192.0.2.1"}]}});
        let object: Router = serde_json::from_value(object).expect("a Router of a test");
        RouterInfo::new(&object, &world::Settings::of_domain("v3.example")).shard.expect("it makes a zone")
    };
    let mut now = Instant::now();
    let mut zones = Zones::new(Platform::new(&settings()), settings(), now);
    zones.put("apps", Some(router("apps", "apps.v3.example")), now);
    zones.put("eu", Some(router("eu", "eu.apps.v3.example")), now);
    let publisher = publisher();
    let name = |text: &str| text.parse::<Name>().expect("a name");
    let (outer, inner) = (name("apps.v3.example."), name("eu.apps.v3.example."));
    now += Duration::from_secs(2);
    publisher.publish(zones.publish_due(now, UNIX_START).changes);
    let delegates = || {
        let zone = publisher.db().get(&outer).expect("it is served");
        zone.owner(&inner).iter().any(|rrset| rrset.rtype == signpost_dns::wire::RecordType::NS)
    };
    assert!(delegates() && publisher.db().get(&inner).is_some());
    zones.put::<ShardView>("eu", None, now);
    // The outer zone waits for its serial.
    publisher.publish(zones.publish_due(now, UNIX_START).changes);
    assert!(delegates() && publisher.db().get(&inner).is_some());
    now += Duration::from_secs(2);
    publisher.publish(zones.publish_due(now, UNIX_START).changes);
    assert!(!delegates() && publisher.db().get(&inner).is_none());
}
