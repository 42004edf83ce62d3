//! Tests of the ledger without an API: its writes, their times, and its reports.

use super::*;
use crate::client::reflector;
use crate::controller::zone::version_history::SERIAL_STRIDE;
use crate::world::{self, BindingInfo, RouterInfo};

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
        let writes = ledger.due(now, 1_795_262_400);
        writes.iter().filter(|(of, write)| *of == apex && matches!(write, Write::Create(_))).count()
    };
    assert_eq!(tries(&mut ledger, now), 1);
    let refused = || {
        let response = kube::core::Status::failure("metadata.name: Invalid value", "Invalid").with_code(422);
        Err(kube::Error::Api(response.boxed()))
    };
    for (seconds, ttl) in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0].into_iter().zip(100..) {
        ledger.written(apex.clone(), refused(), now);
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
    ledger.written(apex.clone(), Ok(None), now);
    assert!(feed.take().refused[&apex].is_none());
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
        for (apex, write) in ledger.due(now, 1_795_262_400) {
            let (Write::Create(zone) | Write::Replace(zone)) = write else { panic!("nothing is deleted") };
            ledger.written(apex, Ok(Some(*zone)), now);
        }
        drop(ledger.due(now, 1_795_262_400));
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

/// The parent Zone stays until then, so that a later leader finishes the deletion.
#[test]
fn the_alias_zone_of_the_former_domain_is_deleted_before_its_parent_zone() {
    const NOW: u64 = 1_795_262_400;
    let settings = Settings::new("v4.example", Vec::new(), &["192.0.2.53".parse().expect("an address")]);
    let mut ledger =
        Ledger::new(&settings.expect("good settings"), BaseSerial::None, Arc::default(), Owners::default());
    let mut now = Instant::now();
    // The leader before has configured the new domain, and many changes have put the serial of the aliases ahead of the clock.
    for (apex, kind, serial) in [
        ("v4.example", ZoneKind::Parent, NOW as u32),
        ("v3.example", ZoneKind::Parent, NOW as u32 - 100),
        ("routes.v3.example", ZoneKind::Alias, NOW as u32 + 100),
    ] {
        let version = ZoneVersion { serial, digest: Digest::default().to_string(), at: Time(Timestamp::UNIX_EPOCH) };
        let zone = Zone::new(apex, ZoneSpec { kind, router: None, versions: vec![version], platform: None });
        ledger.learn(format!("{apex}.").parse().expect("a name"), Some(zone), true, now);
    }
    ledger.set_synced(now);
    let deleted = |ledger: &mut Ledger, now: Instant, unix_now: u64| {
        let mut deleted = Vec::new();
        for (apex, write) in ledger.due(now, unix_now) {
            match write {
                Write::Create(zone) | Write::Replace(zone) => ledger.written(apex, Ok(Some(*zone)), now),
                Write::Delete(_) => {
                    deleted.push(text_of(&apex));
                    ledger.written(apex, Ok(None), now);
                }
            }
        }
        deleted
    };
    for (unix_now, expected) in
        [(NOW, None), (NOW + 200, Some("routes.v3.example")), (NOW + 201, Some("v3.example")), (NOW + 202, None)]
    {
        assert_eq!(deleted(&mut ledger, now, unix_now), Vec::from_iter(expected), "{unix_now}");
        now += Duration::from_secs(1);
    }
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
        let spec = ZoneSpec { kind: ZoneKind::Alias, router: None, versions, platform: None };
        Some(Zone::new("routes.v3.example", spec))
    };
    let digest = ledger.platform.alias_digest();
    let (mut now, newest) = (Instant::now(), Serial(1_795_262_400));
    ledger.set_synced(now);
    for (serial, expected) in [(newest.0, None), (newest.0 - 100, Some(newest.0 + SERIAL_STRIDE))] {
        ledger.written(apex.clone(), Ok(version(serial, digest)), now);
        now += WRITE_INTERVAL;
        let written = ledger.due(now, 1_795_000_000).into_iter().find_map(|(of, write)| match write {
            Write::Replace(zone) if of == apex => Some(zone.spec.versions[0].serial),
            _ => None,
        });
        assert_eq!(written, expected);
    }
}
