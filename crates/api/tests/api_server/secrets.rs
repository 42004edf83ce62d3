//! Secrets: their data as clients see it, nothing of it in the store or the audit log, lost keys, and rights.

use std::sync::Arc;

use data_encoding::BASE64;
use serde_json::{Value, json};
use signpost_api::identity::Identity;
use signpost_apiserver::audit::log::{Bounds, Log};
use signpost_apiserver::audit::{Audit, Policy};
use signpost_apiserver::store::Key;
use signpost_apiserver::store::memory::Memory;

use crate::support::{PATIENCE, Server};

const SECRETS: &str = "/api/v1/namespaces/default/secrets";
/// A value of a Secret in Base64.
const MARKER: &str = "bWFya2VyLW9mLWEtc2VjcmV0";
const PLAIN: &str = "marker-of-a-secret";

fn secret(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"a": MARKER}})
}

fn has_marker(octets: &[u8]) -> bool {
    [MARKER, PLAIN].iter().any(|marker| octets.windows(marker.len()).any(|part| part == marker.as_bytes()))
}

#[tokio::test]
async fn the_data_as_clients_see_it() {
    let server = Server::start().await;
    let sent = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"a": PLAIN}});
    let made = server.post(SECRETS, &sent).await.expect(201);
    assert_eq!((&made["type"], &made["data"], made.get("stringData")), (&json!("Opaque"), &json!({"a": MARKER}), None));
    let path = format!("{SECRETS}/a");
    let applied = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}, "stringData": {"b": "b"}});
    let headers = ["content-type: application/apply-patch+yaml"];
    let both = server.send("PATCH", &format!("{path}?fieldManager=x"), &headers, applied.to_string()).await.expect(200);
    assert_eq!(both["data"], json!({"a": MARKER, "b": "Yg=="}));
    let headers = ["content-type: application/strategic-merge-patch+json"];
    let patched = server.send("PATCH", &path, &headers, json!({"data": {"b": null}}).to_string()).await.expect(200);
    assert_eq!(patched["data"], json!({"a": MARKER}));
    let table = "accept: application/json;as=Table;v=v1;g=meta.k8s.io";
    let table = server.send("GET", SECRETS, &[table], "").await.expect(200);
    let names: Vec<_> =
        table["columnDefinitions"].as_array().expect("columns").iter().map(|column| &column["name"]).collect();
    assert_eq!(names, ["Name", "Type", "Data", "Age"]);
    assert_eq!(
        table["rows"][0]["cells"].as_array().map(|cells| &cells[..3]),
        Some(&[json!("a"), json!("Opaque"), json!(1)][..])
    );
    let listed = server.get(&format!("{SECRETS}?fieldSelector=type%3DOpaque")).await.expect(200);
    assert_eq!(listed["items"].as_array().map(Vec::len), Some(1));
    let listed = server.get(&format!("{SECRETS}?fieldSelector=type%3Dkubernetes.io/tls")).await.expect(200);
    assert_eq!(listed["items"], json!([]));
    server.merge(&path, &json!({"immutable": true})).await.expect(200);
    server.merge(&path, &json!({"data": {"a": "YQ=="}})).await.expect(422);
    server.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    server.delete(&path).await.expect(200);
}

#[tokio::test]
async fn large_secrets_and_their_quota() {
    let server = Server::start().await;
    let of = |name: &str, bytes: usize| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": {"a": BASE64.encode(&vec![7; bytes])}});
    server.post(SECRETS, &of("a", 1 << 20)).await.expect(201);
    server.post(SECRETS, &of("b", (1 << 20) + 1)).await.expect(422);
    let mut annotated = of("c", 1 << 20);
    annotated["metadata"]["annotations"] = json!({"a": "x".repeat(100_000)});
    server.post(SECRETS, &annotated).await.expect(413);
    let quota = json!({"metadata": {"annotations": {"signpost.dev/max-secret-bytes": "3Mi"}}});
    server.merge("/api/v1/namespaces/default", &quota).await.expect(200);
    server.post(SECRETS, &of("d", 1 << 20)).await.expect(201);
    let refused = server.post(SECRETS, &of("e", 1 << 20)).await.expect(403);
    assert!(refused["message"].as_str().is_some_and(|message| message.contains("namespace-secret-bytes")), "{refused}");
}

/// Neither the store nor the audit log has a part of a Secret, also after invalid requests.
#[tokio::test]
async fn nothing_of_a_secret_leaves_the_server() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.log");
    let audit = Arc::new(Audit::new(Policy::All, Log::open(&path, Bounds::default()).expect("opens")));
    let server = Server::start().await;
    server.api.audit_to(audit.clone());
    server.post(SECRETS, &secret("a")).await.expect(201);
    let mut annotated = secret("b");
    annotated["metadata"]["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": PLAIN});
    server.post(SECRETS, &annotated).await.expect(201);
    let (mut requests, one) = (2, format!("{SECRETS}/a"));
    let type_of = |media: &'static str| format!("content-type: application/{media}");
    for (method, path, media, body) in [
        ("POST", SECRETS, "json", secret("a").to_string()),
        ("POST", SECRETS, "json", format!("{{\"data\": {{\"a\": \"{MARKER}\"")),
        ("POST", SECRETS, "yaml", format!("data: {{a: {MARKER}}}\n  b: [")),
        ("POST", SECRETS, "json", secret("c").to_string().replace("\"a\"", "\"a/b\"")),
        ("PUT", &one, "json", secret("other").to_string()),
        ("PATCH", &one, "json-patch+json", format!(r#"[{{"op": "test", "path": "/data/a", "value": "{PLAIN}"}}]"#)),
        ("PATCH", &one, "json-patch+json", format!(r#"[{{"op": "add", "path": "/metadata", "value": "{PLAIN}"}}]"#)),
        ("PATCH", &one, "merge-patch+json", json!({"data": {"a": {"b": MARKER}}}).to_string()),
        ("PATCH", &one, "merge-patch+json", json!({"data": {"b": "*marker"}, "type": PLAIN}).to_string()),
        ("PATCH", &one, "strategic-merge-patch+json", json!({"data": {"$patch": PLAIN}}).to_string()),
    ] {
        let reply = server.send(method, path, &[&type_of(media)], body).await;
        assert!((400..500).contains(&reply.status), "{}", reply.text);
        requests += 1;
    }
    let written = async {
        while audit.log().counts().written < requests {
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, written).await.expect("the events are written");
    let text = std::fs::read_to_string(&path).expect("reads");
    assert!(!has_marker(text.as_bytes()), "{text}");
    let stored = server.store.list(&Key("/".into()), None, None, None).await.expect("lists").items;
    let secrets: Vec<_> = stored.iter().filter(|item| item.key.0.starts_with("/core/secrets/")).collect();
    assert_eq!(secrets.len(), 2);
    assert!(!stored.iter().any(|item| has_marker(&item.value)));
}

/// A Secret whose key is lost exists without its contents, and only a deletion removes it.
#[tokio::test]
async fn a_lost_key_loses_only_its_own_secrets() {
    let store = Arc::new(Memory::new());
    let server = Server::over(store.clone()).await;
    server.post(SECRETS, &secret("a")).await.expect(201);
    let service = json!({"metadata": {"name": "web"}, "spec": {"ports": [{"port": 80}]}});
    server.post("/api/v1/namespaces/default/services", &service).await.expect(201);
    drop(server);
    let other = Server::over_with_key(store.clone(), [9; 32]).await;
    other.get("/api/v1/namespaces/default/services/web").await.expect(200);
    other.post(SECRETS, &secret("b")).await.expect(201);
    let listed = other.get(SECRETS).await;
    assert!(
        listed.headers.get("warning").is_some_and(|warning| warning.to_str().is_ok_and(|it| it.contains("default/a")))
    );
    let items = listed.expect(200)["items"].clone();
    let names: Vec<_> =
        items.as_array().expect("a list").iter().map(|item| (&item["metadata"]["name"], &item["data"])).collect();
    assert_eq!(names, [(&json!("a"), &Value::Null), (&json!("b"), &json!({"a": MARKER}))]);
    for reply in [
        other.get(&format!("{SECRETS}/a")).await,
        other.post(SECRETS, &secret("a")).await,
        other.put(&format!("{SECRETS}/a"), &secret("a")).await,
    ] {
        assert!(matches!(reply.status, 409 | 500), "{} {}", reply.status, reply.text);
    }
    drop(other);
    // The key is back.
    let server = Server::over(store).await;
    assert_eq!(server.get(&format!("{SECRETS}/a")).await.expect(200)["data"], json!({"a": MARKER}));
    server.get(&format!("{SECRETS}/b")).await.expect(500);
    server
        .send("DELETE", &format!("{SECRETS}/b?ignoreStoreReadErrorWithClusterBreakingPotential=true"), &[], "")
        .await
        .expect(200);
    server.gone(&format!("{SECRETS}/b")).await;
}

#[tokio::test]
async fn an_agent_gets_only_what_routes_of_its_router_name() {
    let server = Server::start().await;
    server.post(SECRETS, &secret("a")).await.expect(201);
    let agent = || {
        let groups = vec!["signpost:router-agent:s1".to_owned(), "system:authenticated".to_owned()];
        Some(Identity { groups, ..Identity::user("agent") })
    };
    let denied = async |name: &str| {
        let path = format!("{SECRETS}/{name}");
        let denied = server.send_as(agent(), "GET", &path, &[], Vec::new()).await.expect(403);
        denied["message"].as_str().expect("a message").replace(&format!("{name:?}"), "NAME")
    };
    let there = denied("a").await;
    let expected = "an agent can read only Secrets that Routes of its own Router name in spec.tls.secretName, and certificates of its own Router";
    assert!(there.ends_with(expected), "{there}");
    assert_eq!(there, denied("absent").await, "a rejection does not reveal whether it exists");
    // Not bound to its Router.
    let route = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": "r"},
        "spec": {"to": {"name": "web"}, "tls": {"termination": "edge", "secretName": "a"}}});
    server.post("/apis/signpost.dev/v1alpha1/namespaces/default/routes", &route).await.expect(201);
    denied("a").await;
    for path in [SECRETS.to_owned(), format!("{SECRETS}?watch=true"), format!("{SECRETS}/a?watch=true")] {
        server.send_as(agent(), "GET", &path, &[], Vec::new()).await.expect(403);
    }
}
