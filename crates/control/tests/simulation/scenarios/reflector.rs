//! The informer: every way in which a watch can end, and every order in which events can come.

use std::time::Duration;

use serde_json::{Value, json};
use signpost_control::client::reflector::{Change, Changes, Informer, ObjectKey, Restart, Settings, Store, reflect};
use signpost_types::v1alpha1::router::Router;

use super::{Scene, router, until};
use crate::api::Behaviour;
use crate::connection::Weather;

fn settings() -> Settings {
    Settings {
        page_size: 3,
        backoff_first: Duration::from_millis(1),
        backoff_longest: Duration::from_millis(20),
        ..Settings::default()
    }
}

/// Returns an informer of the Routers' descriptions.
fn reflector(api: &Scene, settings: Settings) -> (Store<String>, Changes<String>) {
    reflect(api.client(), settings, |router: Router| router.spec.description.unwrap_or_default())
}

fn described(name: &str, description: &str) -> Value {
    router(name, &json!({"description": description}))
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::cluster(name)
}

/// Returns a short form of a change: `+a=1` applied, `~a=2` replaced, `!a=3` deleted and re-created, `-a` deleted, `R(…)` a full
/// list.
fn brief(change: &Change<String>) -> String {
    let applied = |applied: &signpost_control::client::reflector::Applied<String>| {
        let sign = match (&applied.before, applied.recreated) {
            (None, _) => '+',
            (Some(_), false) => '~',
            (Some(_), true) => '!',
        };
        format!("{sign}{}={}", applied.key, applied.now)
    };
    match change {
        Change::Applied(one) => applied(one),
        Change::Deleted { key, .. } => format!("-{key}"),
        Change::Relisted(resync) => {
            let mut parts: Vec<String> = resync.applied.iter().map(applied).collect();
            parts.extend(resync.vanished.iter().map(|(key, _)| format!("-{key}")));
            parts.sort();
            format!("R({}){}", parts.join(" "), resync.total)
        }
    }
}

async fn next(changes: &mut Changes<String>) -> String {
    brief(&tokio::time::timeout(Duration::from_secs(120), changes.next()).await.expect("a change comes"))
}

fn restarts(store: &Store<String>, reason: Restart) -> u64 {
    store.health().restarts[reason as usize].1
}

#[tokio::test]
async fn it_lists_in_pages_then_watches() {
    let api = Scene::start(Behaviour::Ours).await;
    for i in 0..8 {
        api.put("routers", described(&format!("r{i}"), "x"));
    }
    let (store, mut changes) = reflector(&api, settings());
    assert!(!store.is_synced() && store.health().age.is_none());
    assert!(next(&mut changes).await.ends_with("+r7=x)8"));
    assert!(store.is_synced());
    store.wait_synced().await;
    api.put("routers", described("r3", "y"));
    assert_eq!(next(&mut changes).await, "~r3=y");
    assert_eq!(store.get(&key("r3")).as_deref().map(String::as_str), Some("y"));
    api.delete("routers", "", "r4");
    assert_eq!(next(&mut changes).await, "-r4");
    api.put("routers", described("r9", "z"));
    assert_eq!(next(&mut changes).await, "+r9=z");
    assert_eq!(store.len(), 8);
    let health = store.health();
    assert!(health.connected && health.error.is_none() && health.age.is_some(), "{health:?}");
    assert_eq!((health.kind.as_str(), health.objects), ("Router", 8));
}

#[tokio::test]
async fn a_re_created_object_is_reported_as_such() {
    let api = Scene::start(Behaviour::Ours).await;
    api.put("routers", described("a", "1"));
    let (_, mut changes) = reflector(&api, settings());
    assert_eq!(next(&mut changes).await, "R(+a=1)1");
    // Seen by a list: the deletion itself was missed.
    api.recreate("routers", described("a", "2"));
    api.api.forget_history().await;
    api.put("routers", described("b", "1"));
    assert_eq!(next(&mut changes).await, "R(!a=2 +b=1)2");
    // Seen by the watch.
    api.recreate("routers", described("a", "3"));
    assert_eq!(next(&mut changes).await, "-a");
    assert_eq!(next(&mut changes).await, "+a=3");
}

#[tokio::test]
async fn a_list_after_forgotten_history_shows_what_vanished() {
    let api = Scene::start(Behaviour::Ours).await;
    for name in ["a", "b", "c"] {
        api.put("routers", described(name, "1"));
    }
    let (store, mut changes) = reflector(&api, settings());
    assert_eq!(next(&mut changes).await, "R(+a=1 +b=1 +c=1)3");
    api.delete("routers", "", "a");
    api.put("routers", described("b", "2"));
    api.api.forget_history().await;
    assert_eq!(next(&mut changes).await, "R(-a ~b=2)2");
    api.put("routers", described("c", "3"));
    assert_eq!(next(&mut changes).await, "~c=3");
    assert!(restarts(&store, Restart::Expired) > 0, "{:?}", store.health());
}

#[tokio::test]
async fn an_outage_is_survived_and_visible() {
    let api = Scene::start(Behaviour::Ours).await;
    api.put("routers", described("a", "1"));
    api.set_down(true).await;
    let (store, mut changes) = reflector(&api, settings());
    let waiting = tokio::spawn(async move {
        let change = next(&mut changes).await;
        (change, changes)
    });
    until("the failure shows", || restarts(&store, Restart::Unreachable) > 2).await;
    assert!(!store.is_synced() && store.health().error.is_some());
    api.set_down(false).await;
    let (change, mut changes) = waiting.await.expect("it ends");
    assert_eq!(change, "R(+a=1)1");

    let waiting = tokio::spawn(async move {
        let change = next(&mut changes).await;
        (change, changes)
    });
    until("the watch is open", || store.health().connected).await;
    api.set_down(true).await;
    until("the end of the watch shows", || !store.health().connected).await;
    api.put("routers", described("a", "2"));
    api.set_down(false).await;
    let (change, _) = waiting.await.expect("it ends");
    assert!(change == "~a=2" || change == "R(~a=2)1", "{change}");
    assert_eq!(store.len(), 1, "the known object stays in the store");
}

#[tokio::test]
async fn a_forbidden_watch_is_visible_and_lists_go_on() {
    let api = Scene::start(Behaviour::Ours).await;
    api.put("routers", described("a", "1"));
    api.connection.forbid(Some("WATCH routers"));
    let (store, mut changes) = reflector(&api, settings());
    assert_eq!(next(&mut changes).await, "R(+a=1)1");
    api.put("routers", described("a", "2"));
    loop {
        match next(&mut changes).await.as_str() {
            "R()1" => {}
            "R(~a=2)1" => break,
            other => panic!("{other}"),
        }
    }
    let health = store.health();
    assert!(!health.connected && restarts(&store, Restart::Forbidden) > 0, "{health:?}");
}

#[tokio::test]
async fn one_bad_object_harms_no_other() {
    let api = Scene::start(Behaviour::Ours).await;
    api.put("routers", described("good", "1"));
    api.put("routers", router("bad", &json!({"state": "of-the-future"})));
    let (store, mut changes) = reflector(&api, settings());
    assert_eq!(next(&mut changes).await, "R(+good=1)1");
    assert!(store.health().undecodable > 0);
    // The object becomes valid, then invalid again: its last good value stays, and its deletion is seen.
    api.put("routers", described("bad", "repaired"));
    assert_eq!(next(&mut changes).await, "+bad=repaired");
    api.put("routers", router("bad", &json!({"state": 7})));
    api.put("routers", described("good", "2"));
    assert_eq!(next(&mut changes).await, "~good=2");
    assert_eq!(store.get(&key("bad")).as_deref().map(String::as_str), Some("repaired"));
    api.delete("routers", "", "bad");
    api.delete("routers", "", "good");
    let both = [next(&mut changes).await, next(&mut changes).await];
    assert_eq!(both, ["-bad", "-good"]);
}

#[tokio::test]
async fn what_the_server_cannot_read_is_known_to_exist() {
    let placeholder = |name: &str| {
        let mut object = router(name, &json!({}));
        object["metadata"]["annotations"] = json!({"signpost.dev/damaged": "true"});
        object["spec"] = json!("damaged");
        object
    };
    let api = Scene::start(Behaviour::Ours).await;
    api.put("routers", described("a", "1"));
    api.put("routers", placeholder("b"));
    let (store, mut changes) = reflector(&api, settings());
    assert_eq!(next(&mut changes).await, "R(+a=1)1");
    assert_eq!((store.unknown(), restarts(&store, Restart::InvalidResponse)), (vec![key("b")], 0));
    // Previously known objects stay known, and are not lost.
    api.put("routers", placeholder("a"));
    api.api.forget_history().await;
    assert_eq!(next(&mut changes).await, "R(+a=1)1");
    assert_eq!((store.get(&key("a")).as_deref().map(String::as_str), store.unknown().len()), (Some("1"), 1));
    // A deleted object leaves nothing behind.
    api.delete("routers", "", "b");
    assert_eq!(next(&mut changes).await, "R(+a=1)1");
    assert_eq!(store.unknown(), []);
    api.put("routers", described("a", "2"));
    assert_eq!(next(&mut changes).await, "~a=2");
}

#[tokio::test]
async fn a_server_that_went_back_is_listed_anew() {
    let api = Scene::start(Behaviour::Ours).await;
    for i in 0..5 {
        api.put("routers", described("a", &i.to_string()));
    }
    let (store, mut changes) = reflector(&api, settings());
    assert_eq!(next(&mut changes).await, "R(+a=4)1");
    api.put("routers", described("b", "1"));
    assert_eq!(next(&mut changes).await, "+b=1");
    // Before the last two changes of "a", and before "b".
    api.api.go_back(3, false).await;
    api.put("routers", described("c", "1"));
    let mut seen = String::new();
    while !seen.contains("+c=1") {
        seen = next(&mut changes).await;
    }
    assert_eq!((store.len(), store.get(&key("a")).as_deref().map(String::as_str)), (2, Some("2")));
}

/// A correct API server never does this; a proxy that repeats and reorders does.
#[tokio::test]
async fn events_out_of_order_bring_no_object_back() {
    let api = Scene::start(Behaviour::Ours).await;
    api.set_weather(Weather { disorder: 1000, ..Weather::default() });
    let (store, mut changes) = reflector(&api, settings());
    assert_eq!(next(&mut changes).await, "R()0");
    let follower = tokio::spawn(async move {
        loop {
            changes.next().await;
        }
    });
    until("the watch is open", || store.health().connected).await;
    // All changes arrive together: nothing runs in between.
    api.put("routers", described("changed", "1"));
    api.put("routers", described("gone", "1"));
    api.put("routers", described("changed", "2"));
    api.put("routers", described("replaced", "1"));
    api.delete("routers", "", "gone");
    api.recreate("routers", described("replaced", "2"));
    api.recreate("routers", described("replaced", "3"));
    let is_true = |store: &Store<String>| {
        let described = |name: &str| store.get(&key(name)).map(|description| description.to_string());
        store.len() == 2
            && described("changed").as_deref() == Some("2")
            && described("replaced").as_deref() == Some("3")
            && described("gone").is_none()
    };
    until("the informer is as the API", || is_true(&store)).await;
    follower.abort();
}

/// Returns the Routers' descriptions, for any number of readers.
fn informer(api: &Scene) -> Informer<String> {
    Informer::new(api.client(), Settings::default(), |router: Router| router.spec.description.unwrap_or_default())
}

#[tokio::test]
async fn readers_share_one_watch() {
    let api = Scene::start(Behaviour::Ours).await;
    api.put("routers", described("a", "1"));
    let informer = informer(&api);
    let ((store, mut first), (other, mut second)) = (informer.read(), informer.read());
    assert_eq!(next(&mut first).await, "R(+a=1)1");
    assert!(store.is_synced() && !other.is_synced(), "the other was not notified");
    api.put("routers", described("b", "2"));
    assert_eq!(next(&mut first).await, "+b=2");
    assert_eq!((next(&mut second).await, next(&mut second).await), ("R(+a=1)1".to_owned(), "+b=2".to_owned()));
    assert_eq!(other.get(&key("b")).as_deref().map(String::as_str), Some("2"));
    assert_eq!((api.connection.requests("GET routers"), api.connection.requests("WATCH routers")), (1, 1));
    // A later reader starts with all existing objects, and no other reader is notified.
    let (_, mut third) = informer.read();
    assert_eq!(next(&mut third).await, "R(+a=1 +b=2)2");
    drop(first);
    api.recreate("routers", described("a", "3"));
    api.delete("routers", "", "b");
    for changes in [&mut second, &mut third] {
        assert_eq!([next(changes).await, next(changes).await, next(changes).await], ["-a", "+a=3", "-b"]);
    }
    store.relist();
    assert_eq!((next(&mut third).await, next(&mut second).await), ("R()1".to_owned(), "R()1".to_owned()));
    assert_eq!(store.health().restarts, other.health().restarts);
}

#[tokio::test]
async fn the_watch_closes_with_the_last_reader_and_begins_with_a_list() {
    let api = Scene::start(Behaviour::Ours).await;
    api.put("routers", described("a", "1"));
    let informer = informer(&api);
    let (store, mut changes) = informer.read();
    assert_eq!(next(&mut changes).await, "R(+a=1)1");
    // The informer connects while a reader polls.
    while !store.health().connected {
        assert!(tokio::time::timeout(Duration::from_millis(1), changes.next()).await.is_err(), "nothing has changed");
    }
    drop(changes);
    assert!(!store.health().connected);
    api.put("routers", described("b", "2"));
    api.delete("routers", "", "a");
    let (store, mut changes) = informer.read();
    assert!(!store.is_synced());
    assert_eq!(next(&mut changes).await, "R(+b=2)1");
    api.put("routers", described("b", "3"));
    assert_eq!(next(&mut changes).await, "~b=3");
}
