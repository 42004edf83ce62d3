//! Watches: their start, their events, and their end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::json;
use signpost_apiserver::store::memory::Memory;
use signpost_apiserver::store::{Revision, Store};

use crate::support::{GROUP, ROUTES, Server, labelled, route, version};

#[tokio::test]
async fn changes_after_a_list() {
    let server = Server::start().await;
    server.post(ROUTES, &route("before")).await.expect(201);
    let list = server.get(ROUTES).await.expect(200);
    let mut watch = server.watch(&format!("{ROUTES}?watch=true&resourceVersion={}", version(&list))).await;
    let created = server.post(ROUTES, &route("a")).await.expect(201);
    server.post(&format!("{GROUP}/routers"), &crate::support::router("r")).await.expect(201);
    let changed = server.merge(&format!("{ROUTES}/a"), &json!({"spec": {"path": "/x"}})).await.expect(200);
    server.delete(&format!("{ROUTES}/a")).await.expect(200);
    let added = watch.next().await.expect("a line");
    assert_eq!((added["type"].as_str(), &added["object"]), (Some("ADDED"), &created));
    let modified = watch.next().await.expect("a line");
    assert_eq!((modified["type"].as_str(), &modified["object"]), (Some("MODIFIED"), &changed));
    let deleted = watch.next().await.expect("a line");
    assert_eq!(deleted["type"], "DELETED");
    assert!(version(&deleted["object"]) > version(&changed), "the deletion's own revision");
    assert_eq!(deleted["object"]["spec"], changed["spec"]);
    assert!(watch.is_silent().await);
}

#[tokio::test]
async fn where_a_watch_begins() {
    let server = Server::start().await;
    let first = server.post(ROUTES, &route("a")).await.expect(201);
    server.post(ROUTES, &route("b")).await.expect(201);
    for (query, expected) in [
        // First, since it sees what the other rounds do.
        (format!("&resourceVersion={}", version(&first)), &["ADDED b", "ADDED c"][..]),
        (String::new(), &["ADDED a", "ADDED b", "ADDED c"]),
        ("&resourceVersion=0".into(), &["ADDED a", "ADDED b", "ADDED c"]),
        (
            "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true".into(),
            &["ADDED a", "ADDED b", "BOOKMARK -", "ADDED c"],
        ),
        ("&sendInitialEvents=false&resourceVersionMatch=NotOlderThan".into(), &["ADDED c"]),
        ("&fieldSelector=metadata.name%3Da".into(), &["ADDED a"]),
        ("&resourceVersion=1000000".into(), &[]),
    ] {
        let mut watch = server.watch(&format!("{ROUTES}?watch=1{query}")).await;
        // The start is settled; what comes now is a change.
        server.post(ROUTES, &route("c")).await.expect(201);
        for line in expected {
            assert_eq!(&watch.reported().await, line, "{query}");
        }
        assert!(watch.is_silent().await, "{query}");
        server.delete(&format!("{ROUTES}/c")).await.expect(200);
    }
    let one = format!("{ROUTES}/a?watch=true");
    assert_eq!(server.watch(&one).await.reported().await, "ADDED a");
    server.get(&format!("{ROUTES}?watch=true&sendInitialEvents=true")).await.expect(422);
    server.get(&format!("{ROUTES}?watch=true&resourceVersionMatch=NotOlderThan&resourceVersion=1")).await.expect(422);
}

#[tokio::test]
async fn the_bookmark_after_the_initial_objects() {
    let server = Server::start().await;
    let query = "?watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut watch = server.watch(&format!("{ROUTES}{query}")).await;
    let bookmark = watch.next().await.expect("a line");
    assert_eq!(bookmark["type"], "BOOKMARK");
    let object = &bookmark["object"];
    assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(
        (object["kind"].as_str(), object["apiVersion"].as_str()),
        (Some("Route"), Some("signpost.dev/v1alpha1"))
    );
    assert!(version(object) > 0);
}

#[tokio::test]
async fn objects_enter_and_leave_a_selector() {
    let server = Server::start().await;
    let mut watch = server.watch(&format!("{ROUTES}?watch=true&labelSelector=tier%3Dgold")).await;
    server.post(ROUTES, &labelled(route("a"), "tier", "silver")).await.expect(201);
    server.merge(&format!("{ROUTES}/a"), &json!({"metadata": {"labels": {"tier": "gold"}}})).await.expect(200);
    server.merge(&format!("{ROUTES}/a"), &json!({"spec": {"path": "/x"}})).await.expect(200);
    let left =
        server.merge(&format!("{ROUTES}/a"), &json!({"metadata": {"labels": {"tier": "tin"}}})).await.expect(200);
    server.delete(&format!("{ROUTES}/a")).await.expect(200);
    assert_eq!(watch.reported().await, "ADDED a");
    assert_eq!(watch.reported().await, "MODIFIED a");
    let deleted = watch.next().await.expect("a line");
    assert_eq!(deleted["type"], "DELETED");
    assert_eq!(deleted["object"]["metadata"]["labels"]["tier"], "gold", "the old object");
    assert_eq!(version(&deleted["object"]), version(&left), "at the new version");
    assert!(watch.is_silent().await);
}

#[tokio::test]
async fn an_expired_version_is_an_error_inside_a_200() {
    let store = Arc::new(Memory::new());
    {
        let server = Server::over(store.clone()).await;
        for name in ["a", "b"] {
            server.post(ROUTES, &route(name)).await.expect(201);
        }
    }
    let newest = store.revision().await.expect("a revision");
    // The second server's ring begins here; the history before it is in the store.
    let server = Server::over(store.clone()).await;
    let old = newest.0 - 1;
    let mut watch = server.watch(&format!("{ROUTES}?watch=true&resourceVersion={old}")).await;
    assert_eq!(watch.reported().await, "ADDED b");
    server.post(ROUTES, &route("c")).await.expect(201);
    server.post(ROUTES, &route("d")).await.expect(201);
    assert_eq!(watch.reported().await, "ADDED c");
    assert_eq!(watch.reported().await, "ADDED d");
    store.compact(Revision(newest.0)).await.expect("compacts");
    let mut watch = server.watch(&format!("{ROUTES}?watch=true&resourceVersion={old}")).await;
    let error = watch.next().await.expect("a line");
    assert_eq!(error["type"], "ERROR");
    assert_eq!((&error["object"]["code"], &error["object"]["reason"]), (&json!(410), &json!("Expired")));
    assert!(watch.next().await.is_none(), "the stream ends");
}

#[tokio::test]
async fn a_watch_ends_in_time_with_a_bookmark() {
    let server = Server::start().await;
    let begun = Instant::now();
    let query = format!("{ROUTES}?watch=true&timeoutSeconds=2&allowWatchBookmarks=true&resourceVersion=1");
    let mut watch = server.watch(&query).await;
    // A filtered-out change moves the bookmark on.
    let other = server.post(&format!("{GROUP}/routers"), &crate::support::router("r")).await.expect(201);
    let bookmark = watch.next().await.expect("a line");
    assert_eq!(bookmark["type"], "BOOKMARK");
    assert!(version(&bookmark["object"]) >= version(&other));
    assert!(watch.next().await.is_none());
    let lasted = begun.elapsed();
    assert!(lasted > Duration::from_millis(1_500), "{lasted:?}");
}

#[tokio::test]
async fn table_watches_have_columns_once() {
    let server = Server::start().await;
    server.post(ROUTES, &route("a")).await.expect(201);
    let table = "accept: application/json;as=Table;v=v1;g=meta.k8s.io";
    let mut watch = server.watch_as(&format!("{ROUTES}?watch=true"), &[table]).await;
    let first = watch.next().await.expect("a line");
    assert_eq!(first["object"]["kind"], "Table");
    assert!(first["object"]["columnDefinitions"].is_array());
    assert_eq!(first["object"]["rows"][0]["cells"][0], "a");
    server.post(ROUTES, &route("b")).await.expect(201);
    let second = watch.next().await.expect("a line");
    assert!(second["object"]["columnDefinitions"].is_null());
    let bookmarks = server.send("GET", &format!("{ROUTES}?watch=true&allowWatchBookmarks=true"), &[table], "").await;
    assert_eq!(bookmarks.status, 406);
}

#[tokio::test]
async fn a_watcher_that_does_not_read_is_cut_off_and_harms_nobody() {
    let server = Server::start().await;
    let list = server.get(ROUTES).await.expect(200);
    let path = format!("{ROUTES}?watch=true&resourceVersion={}", version(&list));
    let mut stalled = server.watch(&path).await;
    let created = server.post(ROUTES, &route("a")).await.expect(201);
    assert_eq!(stalled.reported().await, "ADDED a");
    let mut last = created;
    for index in 0..5_000 {
        last = server.merge(&format!("{ROUTES}/a"), &json!({"spec": {"path": format!("/{index}")}})).await.expect(200);
    }
    assert_eq!(stalled.next().await, None, "it was cut off");
    let mut resumed = server.watch(&path).await;
    assert_eq!(resumed.reported().await, "ADDED a", "history still has what it missed");
    let mut fresh = server.watch(&format!("{ROUTES}?watch=true&resourceVersion={}", version(&last) - 1)).await;
    assert_eq!(fresh.next().await.expect("a line")["object"], last);
}
