//! Tests of the ledger without an API: its writes, their times, and its reports.

use std::collections::BTreeMap;

use super::*;
use crate::client::reflector;
use crate::name_server::version_history::SERIAL_STRIDE;
use crate::world::{self, BindingInfo, RouterInfo};

/// Returns the due writes.
fn due(ledger: &mut Ledger, now: Instant, unix_now: u64) -> Vec<(Name, Write)> {
    let mut writes = Vec::new();
    while let Some(apex) = ledger.queue.begin(now) {
        let plan = ledger.plan(&apex, now, unix_now);
        if let Plan::At(at) = plan {
            ledger.queue.plan(apex.clone(), at);
        }
        match plan {
            Plan::Act(write) => writes.push((apex, write)),
            _ => ledger.queue.end(&apex),
        }
    }
    writes
}

fn end(ledger: &mut Ledger, apex: Name, result: kube::Result<Option<Zone>>, now: Instant) {
    ledger.queue.end(&apex);
    ledger.written(apex, result, now);
}

#[test]
fn a_refused_write_is_retried_ever_more_rarely_and_reported() {
    let settings = Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
    let feed: Arc<ZoneFeed> = Arc::default();
    let mut ledger =
        Ledger::new(&settings.expect("good settings"), BaseSerial::None, Arc::clone(&feed), Owners::default());
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
    ledger.set_synced(now);
    let tries = |ledger: &mut Ledger, now| {
        let writes = due(ledger, now, 1_795_262_400);
        writes.iter().filter(|(of, write)| *of == apex && matches!(write, Write::Create(_))).count()
    };
    assert_eq!(tries(&mut ledger, now), 1);
    let refused = || {
        let response = kube::core::Status::failure("metadata.name: Invalid value", "Invalid").with_code(422);
        Err(kube::Error::Api(response.boxed()))
    };
    for (seconds, ttl) in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0].into_iter().zip(100..) {
        end(&mut ledger, apex.clone(), refused(), now);
        // A change meanwhile: the zone is checked, and keeps waiting.
        ledger.take(applied(ttl), now);
        assert_eq!(tries(&mut ledger, now + Duration::from_secs_f64(seconds - 0.01)), 0, "{seconds}");
        now += Duration::from_secs_f64(seconds);
        assert_eq!(tries(&mut ledger, now), 1, "{seconds}");
    }
    let reported = feed.take().refused;
    assert!(
        matches!(&reported[&apex], Some((router, error)) if &*router.name == "s" && error.contains("metadata.name"))
    );
    end(&mut ledger, apex.clone(), Ok(None), now);
    assert!(feed.take().refused[&apex].is_none());
}

#[test]
fn a_shard_whose_zone_has_names_of_another_one_is_withheld_and_reported() {
    let settings = Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
    let feed: Arc<ZoneFeed> = Arc::default();
    let mut ledger =
        Ledger::new(&settings.expect("good settings"), BaseSerial::None, Arc::clone(&feed), Owners::default());
    let router = |name: &str, dns: &str, second: u32| {
        let router = serde_json::json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router",
            "metadata": {"name": name, "creationTimestamp": format!("2026-01-01T00:00:{second:02}Z")},
            "spec": {"dns": dns, "addresses": [{"ip": "192.0.2.1"}]}});
        let router = serde_json::from_value(router).expect("a Router");
        let now = Arc::new(RouterInfo::new(&router, &world::Settings::of_domain("v3.example")));
        let key = reflector::ObjectKey { namespace: None, name: name.to_owned() };
        Event::Router(Change::Applied(reflector::Applied { key, now, before: None, recreated: false }))
    };
    let binding = serde_json::json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding",
        "metadata": {"namespace": "ns", "name": "app", "creationTimestamp": "2026-01-01T00:00:02Z"},
        "spec": {"routeNamespace": "ns", "routeName": "app", "routeUID": "u", "router": "apps", "dns": "apps.v3.example",
            "label": "eu", "strategy": "round-robin", "names": []}});
    let binding = Arc::new(BindingInfo::new(&serde_json::from_value(binding).expect("a RouteBinding")));
    let key = reflector::ObjectKey::namespaced("ns", "app");
    let (inner, now): (Name, _) = ("eu.apps.v3.example.".parse().expect("a name"), Instant::now());
    let bound = reflector::Applied { key: key.clone(), now: Arc::clone(&binding), before: None, recreated: false };
    ledger.take(router("apps", "apps.v3.example", 1), now);
    ledger.take(Event::Binding(Change::Applied(bound)), now);
    ledger.take(router("eu", "eu.apps.v3.example", 3), now);
    ledger.set_synced(now);
    let writes = due(&mut ledger, now, 1_795_262_400);
    assert!(writes.iter().all(|(apex, _)| *apex != inner), "{writes:?}");
    let withheld = feed.take().withheld.expect("it is reported");
    assert_eq!(withheld[&inner].0, "eu".into());
    // The name is gone.
    ledger.take(Event::Binding(Change::Deleted { key, last: binding }), now);
    assert_eq!(feed.take().withheld, Some(WithheldShards::new()));
    let later = now + Duration::from_secs(1);
    assert!(
        due(&mut ledger, later, 1_795_262_400)
            .iter()
            .any(|(apex, write)| *apex == inner && matches!(write, Write::Create(_)))
    );
}

/// The zone then has the contents of a former version again, but is not at that version.
#[test]
fn an_alias_that_goes_and_comes_back_is_reported_with_its_new_version() {
    let settings = Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
    let feed: Arc<ZoneFeed> = Arc::default();
    let mut ledger =
        Ledger::new(&settings.expect("good settings"), BaseSerial::None, Arc::clone(&feed), Owners::default());
    let binding = serde_json::json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding",
        "metadata": {"namespace": "ns", "name": "app"},
        "spec": {"routeNamespace": "ns", "routeName": "app", "routeUID": "u", "router": "s", "dns": "s.v3.example",
            "label": "ns-app", "strategy": "round-robin", "names": [
                {"name": "ns-app.s.v3.example", "type": "system"},
                {"name": "ns-app.routes.v3.example", "type": "alias"}]}});
    let mut binding: signpost_types::v1alpha1::route_binding::RouteBinding =
        serde_json::from_value(binding).expect("a RouteBinding");
    let (key, last) = (reflector::ObjectKey::namespaced("ns", "app"), Arc::new(BindingInfo::new(&binding)));
    binding.metadata.creation_timestamp = Some(Time(Timestamp::from_second(1_795_262_400).expect("a time")));
    let again = Arc::new(BindingInfo::new(&binding));
    let comes = |binding: &Arc<BindingInfo>| {
        let (key, now) = (key.clone(), Arc::clone(binding));
        Event::Binding(Change::Applied(reflector::Applied { key, now, before: None, recreated: false }))
    };
    let goes = || Event::Binding(Change::Deleted { key: key.clone(), last: Arc::clone(&last) });
    let apex: Name = "routes.v3.example.".parse().expect("a name");
    let mut now = Instant::now();
    // Writes the due versions, and returns the reports about the alias.
    let reported = |ledger: &mut Ledger, now: Instant| {
        for (apex, write) in due(ledger, now, 1_795_262_400) {
            let (Write::Create(zone) | Write::Replace(zone)) = write else { panic!("nothing is deleted") };
            end(ledger, apex, Ok(Some(*zone)), now);
        }
        drop(due(ledger, now, 1_795_262_400));
        feed.take().aliases.remove("ns-app").map(|alias| alias.map(|(_, serial)| serial))
    };
    let serial = |ledger: &Ledger| ledger.known[&apex].last;
    ledger.take(comes(&last), now);
    ledger.set_synced(now);
    assert_eq!(reported(&mut ledger, now), Some(serial(&ledger)));
    now += WRITE_INTERVAL;
    ledger.take(goes(), now);
    assert_eq!(reported(&mut ledger, now), Some(None));
    ledger.take(comes(&last), now);
    assert_eq!(reported(&mut ledger, now), None, "no version has it yet");
    now += WRITE_INTERVAL;
    assert_eq!(reported(&mut ledger, now), Some(serial(&ledger)));
    // A list shows a re-created binding as a change of the previous one, whose version has its names, too.
    let before = serial(&ledger);
    ledger.take(comes(&again), now);
    assert_eq!(reported(&mut ledger, now), Some(before));
    assert_eq!(serial(&ledger), before);
}

const NOW: u64 = 1_795_262_400;

/// Returns the ledger of a leader with this domain.
fn leader(domain: &str, former: Option<&str>) -> Ledger {
    let settings = Settings::new(domain, Vec::new(), &["192.0.2.53".parse().expect("an address")]);
    let mut ledger =
        Ledger::new(&settings.expect("good settings"), BaseSerial::None, Arc::default(), Owners::default());
    ledger.change_from(former.map(|former| former.parse().expect("a name")));
    ledger
}

fn parent_or_alias(apex: &str, serial: u32, former_domains: &[&str]) -> Zone {
    let kind = if apex.starts_with("routes.") { ZoneKind::Alias } else { ZoneKind::Parent };
    let version = ZoneVersion { serial, digest: Digest::default().to_string(), at: Time(Timestamp::UNIX_EPOCH) };
    let former_domains = former_domains.iter().map(ToString::to_string).collect();
    Zone::new(apex, ZoneSpec { kind, router: None, versions: vec![version], platform: None, former_domains })
}

/// Does the due writes on these Zones; returns the names of those that were written or, with a dash, deleted.
fn write_all(ledger: &mut Ledger, zones: &mut BTreeMap<String, Zone>, now: Instant, unix_now: u64) -> Vec<String> {
    let mut written = Vec::new();
    for (apex, write) in due(ledger, now, unix_now) {
        let name = text_of(&apex);
        match write {
            Write::Create(zone) | Write::Replace(zone) => {
                zones.insert(name.clone(), (*zone).clone());
                written.push(name);
                end(ledger, apex, Ok(Some(*zone)), now);
            }
            Write::Delete(_) => {
                zones.remove(&name);
                written.push(format!("-{name}"));
                end(ledger, apex, Ok(None), now);
            }
        }
    }
    written.sort();
    written
}

fn start(ledger: &mut Ledger, zones: &BTreeMap<String, Zone>, now: Instant) {
    for (apex, zone) in zones {
        ledger.learn(apex.parse().expect("a name"), Some(zone.clone()), true, now);
    }
    ledger.set_synced(now);
}

/// The parent Zone stays until then, so that a later leader finishes the deletion.
#[test]
fn the_alias_zone_of_an_ended_domain_is_deleted_before_its_parent_zone() {
    let start_time = Instant::now();
    // The list of the new domain was emptied before, and many changes have put the serial of the aliases ahead of the clock.
    let mut zones: BTreeMap<String, Zone> =
        [("v4.example", NOW as u32), ("v3.example", NOW as u32 - 100), ("routes.v3.example", NOW as u32 + 100)]
            .map(|(apex, serial)| (apex.to_owned(), parent_or_alias(apex, serial, &[])))
            .into();
    let mut ledger = leader("v4.example", Some("v3.example"));
    start(&mut ledger, &zones, start_time);
    for (seconds, expected) in
        [(0, Some("routes.v4.example")), (200, Some("-routes.v3.example")), (201, Some("-v3.example")), (202, None)]
    {
        let now = start_time + Duration::from_secs(seconds);
        let written = write_all(&mut ledger, &mut zones, now, NOW + seconds);
        assert_eq!(written, Vec::from_iter(expected), "after {seconds} s");
    }
}

#[test]
fn a_former_domain_is_kept_until_it_is_removed_from_the_list() {
    let mut now = Instant::now();
    let mut zones: BTreeMap<String, Zone> = ["v3.example", "routes.v3.example"]
        .map(|apex| (apex.to_owned(), parent_or_alias(apex, NOW as u32 - 100, &[])))
        .into();
    let serial_of = |zones: &BTreeMap<String, Zone>, apex: &str| zones[apex].spec.versions[0].serial;

    // The change: the new domain lists the former one, whose Zones do not change.
    let mut ledger = leader("v4.example", Some("v3.example"));
    start(&mut ledger, &zones, now);
    assert_eq!(write_all(&mut ledger, &mut zones, now, NOW), ["routes.v4.example", "v4.example"]);
    assert_eq!(zones["v4.example"].spec.former_domains, ["v3.example"]);

    // A process that still has the former domain changes nothing, also if it leads.
    let mut forgotten = leader("v3.example", None);
    start(&mut forgotten, &zones, now);
    assert_eq!(write_all(&mut forgotten, &mut zones, now, NOW), [""; 0]);

    // A later leader needs no setting. A new Route and a Router below the former domain change the former zones, too.
    let mut ledger = leader("v4.example", None);
    start(&mut ledger, &zones, now);
    assert_eq!(write_all(&mut ledger, &mut zones, now, NOW), [""; 0]);
    let before = ["v3.example", "routes.v3.example"].map(|apex| serial_of(&zones, apex));
    let router = serde_json::json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "s"},
        "spec": {"dns": "s.v3.example", "addresses": [{"ip": "192.0.2.1"}]}});
    let router =
        RouterInfo::new(&serde_json::from_value(router).expect("a Router"), &world::Settings::of_domain("v4.example"));
    let key = reflector::ObjectKey { namespace: None, name: "s".to_owned() };
    let change = reflector::Applied { key, now: Arc::new(router), before: None, recreated: false };
    ledger.take(Event::Router(Change::Applied(change)), now);
    let binding = serde_json::json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding",
        "metadata": {"namespace": "ns", "name": "app"}, "spec": {"routeNamespace": "ns", "routeName": "app", "routeUID": "u",
            "router": "s", "dns": "s.v3.example", "label": "ns-app", "strategy": "round-robin", "names": []}});
    let binding = BindingInfo::new(&serde_json::from_value(binding).expect("a RouteBinding"));
    let key = reflector::ObjectKey { namespace: Some("ns".to_owned()), name: "app".to_owned() };
    let change = reflector::Applied { key, now: Arc::new(binding), before: None, recreated: false };
    ledger.take(Event::Binding(Change::Applied(change)), now);
    now += Duration::from_secs(1);
    assert_eq!(
        write_all(&mut ledger, &mut zones, now, NOW),
        ["routes.v3.example", "routes.v4.example", "s.v3.example", "v3.example"]
    );
    for (apex, before) in ["v3.example", "routes.v3.example"].into_iter().zip(before) {
        assert!(Serial(serial_of(&zones, apex)).is_after(Serial(before)), "{apex}");
    }
    assert_eq!(zones["routes.v3.example"].spec.versions[0].digest, zones["routes.v4.example"].spec.versions[0].digest);

    // A Zone that was deleted by hand returns, with the list.
    ledger.learn("v4.example".parse().expect("a name"), None, true, now);
    now += Duration::from_secs(1);
    assert_eq!(write_all(&mut ledger, &mut zones, now, NOW + 100), ["v4.example"]);
    assert_eq!(zones["v4.example"].spec.former_domains, ["v3.example"]);

    // The end: without the domain in the list, its Zones go, and the shard stays.
    let mut own = zones["v4.example"].clone();
    own.spec.former_domains.clear();
    zones.insert("v4.example".to_owned(), own.clone());
    ledger.learn("v4.example".parse().expect("a name"), Some(own), true, now);
    let mut gone = Vec::new();
    for seconds in 0..4 {
        now += Duration::from_secs(1);
        gone.extend(write_all(&mut ledger, &mut zones, now, NOW + 1000 + seconds));
    }
    assert_eq!(gone, ["-routes.v3.example", "-v3.example"]);
    assert_eq!(zones.keys().collect::<Vec<_>>(), ["routes.v4.example", "s.v3.example", "v4.example"]);
}

#[test]
fn the_domain_changes_back() {
    let mut now = Instant::now();
    let mut zones: BTreeMap<String, Zone> = BTreeMap::new();
    for (apex, former) in [("v4.example", &["v3.example", "v2.example"][..]), ("v3.example", &[]), ("v2.example", &[])]
    {
        for apex in [apex.to_owned(), format!("routes.{apex}")] {
            let former = if apex.starts_with("routes.") { &[][..] } else { former };
            zones.insert(apex.clone(), parent_or_alias(&apex, NOW as u32 - 100, former));
        }
    }
    let mut ledger = leader("v3.example", Some("v4.example"));
    start(&mut ledger, &zones, now);
    let mut written = Vec::new();
    for _ in 0..3 {
        written.extend(write_all(&mut ledger, &mut zones, now, NOW));
        now += Duration::from_secs(1);
    }
    assert_eq!(written, ["v3.example", "v4.example"]);
    let listed = ["v3.example", "v4.example"].map(|apex| zones[apex].spec.former_domains.join(" "));
    assert_eq!(listed, ["v4.example v2.example", ""]);
}

/// Zones and bindings return to an earlier state, but name servers and waiters for a version do not.
#[test]
fn a_store_that_went_back_gets_a_version_newer_than_any_that_was_seen() {
    let settings = Settings::new("v3.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
    let mut ledger =
        Ledger::new(&settings.expect("good settings"), BaseSerial::None, Arc::default(), Owners::default());
    let apex: Name = "routes.v3.example.".parse().expect("a name");
    let version = |serial: u32, digest: Digest| {
        let at = Time(Timestamp::UNIX_EPOCH);
        let versions = vec![ZoneVersion { serial, digest: digest.to_string(), at }];
        let spec =
            ZoneSpec { kind: ZoneKind::Alias, router: None, versions, platform: None, former_domains: Vec::new() };
        Some(Zone::new("routes.v3.example", spec))
    };
    let digest = ledger.platform.alias_digest();
    let (mut now, newest) = (Instant::now(), Serial(1_795_262_400));
    ledger.set_synced(now);
    for (serial, expected) in [(newest.0, None), (newest.0 - 100, Some(newest.0 + SERIAL_STRIDE))] {
        end(&mut ledger, apex.clone(), Ok(version(serial, digest)), now);
        now += WRITE_INTERVAL;
        let written = due(&mut ledger, now, 1_795_000_000).into_iter().find_map(|(of, write)| match write {
            Write::Replace(zone) if of == apex => Some(zone.spec.versions[0].serial),
            _ => None,
        });
        assert_eq!(written, expected);
    }
}
