//! The API at its bounds: many objects, many watches, old events, requests that are too large.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use futures::{FutureExt, StreamExt};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use signpost_api::kinds::quotas::Limits;
use signpost_apiserver::limits::Amount;
use signpost_apiserver::store::embedded::{Embedded, Options};
use signpost_apiserver::store::{Key, Outcome, Txn, Write};
use signpost_runtime::httpd;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{PATIENCE, ROUTES, Server, admin, route, version};

#[tokio::test]
async fn every_field_is_described() {
    fn visit(schema: &Value, at: &str, missing: &mut Vec<String>) {
        for (name, property) in schema["properties"].as_object().into_iter().flatten() {
            let at = format!("{at}.{name}");
            if property["description"].as_str().is_none_or(|text| text.trim().is_empty()) {
                missing.push(at.clone());
            }
            visit(property, &at, missing);
        }
        for inner in ["items", "additionalProperties"].into_iter().filter_map(|name| schema.get(name)) {
            visit(inner, at, missing);
        }
    }
    let server = Server::start().await;
    let index = server.get("/openapi/v3").await.expect(200);
    let mut missing = Vec::new();
    for (path, document) in index["paths"].as_object().expect("paths") {
        let url = document["serverRelativeURL"].as_str().expect("a URL");
        let document = server.get(url).await.expect(200);
        for (name, schema) in document["components"]["schemas"].as_object().expect("schemas") {
            assert!(schema["description"].as_str().is_some_and(|text| !text.is_empty()), "{path} {name}");
            visit(schema, name, &mut missing);
        }
    }
    assert_eq!(missing, Vec::<String>::new());
}

/// Puts copies of the stored Route `default/seed` under these names, many at once.
async fn copy_seed(server: &Server, names: &[String]) {
    let key = |name: &str| Key(format!("/signpost.dev/routes/default/{name}").as_str().into());
    let (_, seed) = server.store.get(&key("seed"), None).await.expect("reads");
    let seed = String::from_utf8(seed.expect("the seed").value.to_vec()).expect("JSON");
    for names in names.chunks(100) {
        let put = |name: &String| Write::Put {
            key: key(name),
            value: seed.replace("\"name\":\"seed\"", &format!("\"name\":\"{name}\"")).into(),
            ttl: None,
        };
        let txn = Txn { writes: names.iter().map(put).collect(), ..Txn::default() };
        assert!(matches!(server.store.commit(txn).await.expect("commits"), Outcome::Committed(_)));
    }
}

#[tokio::test]
async fn ten_thousand_objects_in_pages_of_37_under_writes() {
    let routes = Amount { objects: 20_000, bytes: 64 << 20 };
    let server = Server::start_with(Limits { routes, ..Limits::default() }).await;
    server.post(ROUTES, &route("seed")).await.expect(201);
    let mut names: Vec<String> = (0..10_000).map(|index| format!("r{index:05}")).collect();
    copy_seed(&server, &names).await;
    names.push("seed".to_owned());
    let (mut seen, mut token, mut at) = (Vec::new(), String::new(), None);
    loop {
        let page = server.get(&format!("{ROUTES}?limit=37&continue={token}")).await.expect(200);
        seen.extend(page["items"].as_array().expect("items").iter().map(|item| {
            assert!(item["spec"]["path"].is_null(), "unchanged since the first page");
            item["metadata"]["name"].as_str().expect("a name").to_owned()
        }));
        assert_eq!(*at.get_or_insert(version(&page)), version(&page), "all pages are of the first one's revision");
        token = page["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if token.is_empty() {
            break;
        }
        // A write between any two pages: before it, behind it, a new one and one that goes.
        let turn = seen.len();
        for other in [turn / 2, (turn + 500).min(9_999)] {
            let path = format!("{ROUTES}/r{other:05}");
            server.merge(&path, &json!({"spec": {"path": format!("/{turn}")}})).await;
        }
        server.post(ROUTES, &route(&format!("new{turn}"))).await.expect(201);
        server.delete(&format!("{ROUTES}/r{:05}", (turn + 1_000).min(9_999))).await;
    }
    assert_eq!(seen, names);
}

/// A client that does not read its watch is disconnected; the other watches are not affected.
#[tokio::test]
async fn a_stalled_watch_among_5_000() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let server = Server::start().await;
    server.post(ROUTES, &route("seed")).await.expect(201);
    let mut stalled = server.watch(&format!("{ROUTES}?watch=true&resourceVersion=1")).await;
    assert_eq!(stalled.reported().await, "ADDED seed");
    let mut readers = Vec::new();
    for _ in 0..4_999 {
        let watch = server.open(Some(admin()), "GET", &format!("{LEASES}?watch=true"), &[], Vec::new()).await;
        readers.push(watch.into_body().into_data_stream());
    }
    // More than the cache keeps for the client that does not read.
    let names: Vec<String> = (0..6_000).map(|index| format!("r{index:05}")).collect();
    copy_seed(&server, &names).await;
    let lease =
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "notified"}, "spec": {}});
    server.post(LEASES, &lease).await.expect(201);
    for reader in &mut readers {
        let line =
            tokio::time::timeout(PATIENCE, reader.next()).await.expect("in time").expect("a line").expect("octets");
        assert!(line.starts_with(b"{\"type\":\"ADDED\""));
        assert!(reader.next().now_or_never().is_none(), "one change, one line");
    }
    assert_eq!(stalled.next().await, None, "it was cut off");
    assert_eq!(
        server.watch(&format!("{ROUTES}?watch=true")).await.reported().await,
        "ADDED r00000",
        "and may come back"
    );
}

static TURNED: AtomicU64 = AtomicU64::new(0);

#[tokio::test]
async fn events_are_gone_after_an_hour() {
    let now = || SystemTime::now() + Duration::from_secs(TURNED.load(Ordering::Relaxed));
    let folder = tempfile::tempdir().expect("a folder");
    let options = Options { now, ..Options::default() };
    let server = Server::over(Arc::new(Embedded::open(folder.path(), options).expect("a store"))).await;
    let event = |name: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name}, "reason": "Tested", "message": "m",
            "type": "Normal", "involvedObject": {"kind": "Route", "name": "r", "namespace": "default"}})
    };
    let core = "/api/v1/namespaces/default/events";
    let new = "/apis/events.k8s.io/v1/namespaces/default/events";
    server.post(core, &event("first")).await.expect(201);
    server.post(core, &event("repeated")).await.expect(201);
    let newer = json!({"apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "newer"}, "type": "Normal",
        "reason": "Tested", "action": "Test", "note": "m", "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "test", "reportingInstance": "one",
        "regarding": {"kind": "Route", "name": "r", "namespace": "default"}});
    server.post(new, &newer).await.expect(201);
    let watched = version(&server.get(core).await.expect(200));
    let mut watch = server.watch(&format!("{core}?watch=true&resourceVersion={watched}")).await;
    let mut view = server.watch(&format!("{new}?watch=true&resourceVersion={watched}")).await;
    TURNED.store(50 * 60, Ordering::Relaxed);
    // Reporting it again extends its life by another hour.
    server.merge(&format!("{core}/repeated"), &json!({"count": 2})).await.expect(200);
    assert_eq!(
        (watch.reported().await, view.reported().await),
        ("MODIFIED repeated".into(), "MODIFIED repeated".into())
    );
    TURNED.store(61 * 60, Ordering::Relaxed);
    for path in [format!("{core}/first"), format!("{new}/first"), format!("{core}/newer"), format!("{new}/newer")] {
        server.gone(&path).await;
    }
    assert_eq!(server.get(&format!("{new}/repeated")).await.expect(200)["deprecatedCount"], 2);
    for watch in [&mut watch, &mut view] {
        let mut reported = [watch.reported().await, watch.reported().await];
        reported.sort();
        assert_eq!(reported, ["DELETED first", "DELETED newer"]);
    }
    TURNED.store(3 * 60 * 60, Ordering::Relaxed);
    server.gone(&format!("{core}/repeated")).await;
    assert_eq!(server.get(new).await.expect(200)["items"], json!([]));
}

/// Too much within a request.
#[tokio::test]
async fn what_is_too_much_is_refused() {
    let server = Server::start().await;
    let labels = |count: usize| -> Value {
        let labels: serde_json::Map<_, _> = (0..count).map(|index| (format!("l{index}"), json!("x"))).collect();
        let mut object = route(&format!("labels-{count}"));
        object["metadata"]["labels"] = labels.into();
        object
    };
    server.post(ROUTES, &labels(128)).await.expect(201);
    server.post(ROUTES, &labels(129)).await.expect(422);
    let mut object = route("annotated");
    object["metadata"]["annotations"] = json!({"a": "x".repeat(256 * 1024)});
    server.post(ROUTES, &object).await.expect(422);
    let nested = |levels: usize| format!("{}1{}", "{\"a\":".repeat(levels), "}".repeat(levels));
    for levels in [100, 10_000] {
        let body = format!(
            r#"{{"apiVersion":"signpost.dev/v1alpha1","kind":"Route","metadata":{{"name":"deep"}},"spec":{{"to":{{"name":"x"}},"path":{}}}}}"#,
            nested(levels)
        );
        let reply = server.send("POST", ROUTES, &["content-type: application/json"], body).await;
        assert!((400..500).contains(&reply.status), "{levels}: {}", reply.status);
    }
    let names = (0..6_000).map(|index| format!("n{index}")).collect::<Vec<_>>().join(",");
    let reply = server.get(&format!("{ROUTES}?labelSelector=l0%20in%20({names})")).await;
    assert!(reply.status == 200 || (400..500).contains(&reply.status), "{}", reply.status);
    let operations = format!("[{}]", vec![r#"{"op":"test","path":"/kind","value":"Route"}"#; 20_000].join(","));
    let path = format!("{ROUTES}/labels-128");
    let reply = server.send("PATCH", &path, &["content-type: application/json-patch+json"], operations).await;
    assert!((400..500).contains(&reply.status), "{}", reply.status);
    assert_eq!(server.get("/readyz").await.status, 200);
}

/// Too much before there is a request: a header of 10 MB, and a selector of a million names.
#[tokio::test]
async fn heads_without_end_are_refused() {
    let server = Server::start().await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(httpd::serve(listener, None, server.api.router(), httpd::Limits::default(), server.stop_token()));
    let names = (0..1_000_000).map(|index| format!("n{index}")).collect::<Vec<_>>().join(",");
    for (what, head) in [
        ("header", format!("GET /version HTTP/1.1\r\nHost: x\r\nX-Long: {}\r\n\r\n", "x".repeat(10_000_000))),
        ("selector", format!("GET {ROUTES}?labelSelector=a%20in%20({names}) HTTP/1.1\r\nHost: x\r\n\r\n")),
    ] {
        let stream = tokio::net::TcpStream::connect(address).await.expect("connects");
        let (mut read, mut write) = stream.into_split();
        // It may stop reading, and close, at any octet.
        let sends = tokio::spawn(async move {
            let _ = write.write_all(head.as_bytes()).await;
        });
        let mut answer = vec![0; 64];
        let count = tokio::time::timeout(PATIENCE, read.read(&mut answer)).await.expect("in time").unwrap_or(0);
        let answer = String::from_utf8_lossy(&answer[..count]).into_owned();
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{what}: {answer}");
        sends.abort();
    }
    let version = server.open(Some(admin()), "GET", "/version", &[], Vec::new()).await;
    assert!(version.into_body().collect().await.is_ok(), "it still answers");
}
