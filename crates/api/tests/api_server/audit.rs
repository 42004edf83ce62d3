//! Tests of the audit log (recorded and omitted requests), and of impersonation, which the log and `whoami` show.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use signpost_api::identity::{Identity, USER_SCHEDULER};
use signpost_apiserver::audit::log::{Bounds, Log};
use signpost_apiserver::audit::{Audit, Policy};

use crate::support::{GROUP, PATIENCE, ROUTES, Server, TOKEN, admin, route};

const JSON: &str = "content-type: application/json";
const WHO: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

struct Audited {
    server: Server,
    audit: Arc<Audit>,
    path: PathBuf,
    _folder: tempfile::TempDir,
}

async fn start(policy: Policy) -> Audited {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("audit.log");
    let audit = Arc::new(Audit::new(policy, Log::open(&path, Bounds::default()).expect("opens")));
    let server = Server::start().await;
    server.api.audit_to(audit.clone());
    Audited { server, audit, path, _folder: folder }
}

impl Audited {
    /// Returns the events, when there are as many as are expected.
    async fn events(&self, count: u64) -> Vec<Value> {
        let written = async {
            while self.audit.log().counts().written < count {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, written).await.expect("the events are written");
        let text = std::fs::read_to_string(&self.path).expect("reads");
        let events: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(events.len() as u64, count, "{text}");
        events
    }
}

#[tokio::test]
async fn writes_and_refusals_are_written_down() {
    let audited = start(Policy::Writes).await;
    let server = &audited.server;
    let mut generated = route("x");
    generated["metadata"] = json!({"generateName": "gen-"});
    let made = server.post(ROUTES, &generated).await.expect(201);
    let name = made["metadata"]["name"].as_str().expect("a name").to_owned();
    // Reads are not written down, nor are questions.
    server.get(ROUTES).await.expect(200);
    server.send("POST", WHO, &[JSON], "{}").await.expect(201);
    let bad = json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": "b"}, "spec": {"path": "x"}});
    server.post(ROUTES, &bad).await.expect(422);
    let token = format!("authorization: Bearer {TOKEN}");
    let elsewhere = "/apis/signpost.dev/v1alpha1/namespaces/kube-system/routes?limit=5";
    server.send_as(None, "GET", elsewhere, &[&token, "user-agent: test/1"], Vec::new()).await.expect(403);
    server.send_as(None, "GET", ROUTES, &["authorization: Bearer wrong"], Vec::new()).await.expect(401);
    server.delete(&format!("{ROUTES}/{name}")).await.expect(200);

    let events = audited.events(5).await;
    for event in &events {
        assert_eq!(event["kind"], "Event");
        assert_eq!(event["apiVersion"], "audit.k8s.io/v1");
        assert_eq!((&event["level"], &event["stage"]), (&json!("Metadata"), &json!("ResponseComplete")));
        assert_eq!(event["auditID"].as_str().map(str::len), Some(36));
        for time in ["requestReceivedTimestamp", "stageTimestamp"] {
            let text = event[time].as_str().expect("a time");
            assert!(text.len() == 27 && text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok(), "{text}");
        }
    }
    let [create, invalid, forbidden, unauthorized, delete] = &events[..] else { panic!("five events") };
    assert_eq!(create["verb"], "create");
    assert_eq!(create["user"]["username"], "admin");
    assert_eq!(create["objectRef"]["name"], name.as_str(), "the server chose it");
    assert_eq!(create["objectRef"]["uid"], made["metadata"]["uid"]);
    assert_eq!(create["objectRef"]["resourceVersion"], made["metadata"]["resourceVersion"]);
    assert_eq!(create["objectRef"]["namespace"], "default");
    assert_eq!(create["responseStatus"], json!({"metadata": {}, "code": 201}));
    assert_eq!(
        (&invalid["responseStatus"]["code"], &invalid["responseStatus"]["reason"]),
        (&json!(422), &json!("Invalid"))
    );
    assert_eq!(forbidden["user"]["username"], "tina");
    assert_eq!((&forbidden["verb"], &forbidden["userAgent"]), (&json!("list"), &json!("test/1")));
    assert_eq!(forbidden["requestURI"], elsewhere);
    assert_eq!(forbidden["responseStatus"]["status"], "Failure");
    assert_eq!(unauthorized["user"], json!({}), "no user was authenticated");
    assert_eq!(unauthorized["responseStatus"]["code"], 401);
    assert_eq!((&delete["verb"], &delete["objectRef"]["name"]), (&json!("delete"), &json!(name)));
    let text = std::fs::read_to_string(&audited.path).expect("reads");
    assert!(!text.contains(TOKEN) && !text.contains("wrong"), "no token is written down");
}

#[tokio::test]
async fn leases_and_events_of_the_process_itself_are_left_out() {
    let audited = start(Policy::Writes).await;
    let server = &audited.server;
    let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "l"}, "spec": {}});
    let path = "/apis/coordination.k8s.io/v1/namespaces/signpost-system/leases";
    let scheduler = Some(Identity::user(USER_SCHEDULER));
    server.send_as(scheduler, "POST", path, &[JSON], lease.to_string().into_bytes()).await.expect(201);
    server.post(ROUTES, &route("a")).await.expect(201);
    let events = audited.events(1).await;
    assert_eq!(events[0]["objectRef"]["resource"], "routes");
}

#[tokio::test]
async fn reads_are_written_down_where_that_is_wanted() {
    let audited = start(Policy::All).await;
    audited.server.get(ROUTES).await.expect(200);
    audited.server.get("/version").await.expect(200);
    let events = audited.events(2).await;
    assert_eq!((&events[0]["verb"], &events[1]["verb"]), (&json!("list"), &json!("get")));
    assert!(events[1]["objectRef"].is_null());
}

/// Requests without a credential take nothing from the events of a user.
#[tokio::test]
async fn strangers_get_a_few_events_and_then_a_count() {
    let audited = start(Policy::Writes).await;
    let server = &audited.server;
    for _ in 0..1_000 {
        server.send_as(None, "GET", ROUTES, &["authorization: Bearer wrong"], Vec::new()).await.expect(401);
    }
    let suppressed = audited.audit.log().counts().suppressed;
    // A hundred at once, and ten per second, however slow the machine is.
    assert!((1..=900).contains(&suppressed), "{suppressed}");
    let token = format!("authorization: Bearer {TOKEN}");
    for _ in 0..200 {
        server.send_as(None, "DELETE", &format!("{GROUP}/routers"), &[&token], Vec::new()).await.expect(403);
    }
    assert_eq!(audited.audit.log().counts().suppressed, suppressed);
    let events = audited.events(1_200 - suppressed).await;
    assert_eq!(events.iter().filter(|event| event["user"]["username"] == "tina").count(), 200);
}

#[tokio::test]
async fn whoever_speaks_for_another_is_named_beside_them() {
    let audited = start(Policy::Writes).await;
    let server = &audited.server;
    let viewer = ["impersonate-user: vic", "impersonate-group: signpost:viewers"];
    let uid_and_extra = ["impersonate-uid: u-7", "impersonate-extra-reason: drill"];
    let all = [&viewer[..], &uid_and_extra, &[JSON]].concat();

    // An administrator is then no more than whom they speak for.
    server.send("GET", ROUTES, &viewer, "").await.expect(200);
    server.send("POST", ROUTES, &all, route("a").to_string()).await.expect(403);
    let who = server.send("POST", WHO, &all, "{}").await.expect(201);
    assert_eq!(
        who["status"]["userInfo"],
        json!({"username": "vic", "uid": "u-7", "groups": ["signpost:viewers", "system:authenticated"],
            "extra": {"reason": ["drill"]}})
    );
    // A tenant cannot impersonate another user with any of the headers.
    let token = format!("authorization: Bearer {TOKEN}");
    for headers in [
        &viewer[..1],
        &viewer,
        &["impersonate-user: tina", uid_and_extra[0]],
        &["impersonate-user: tina", uid_and_extra[1]],
    ] {
        let headers = [&[token.as_str()], headers].concat();
        server.send_as(None, "GET", ROUTES, &headers, Vec::new()).await.expect(403);
    }
    // By hand, as the scheduler: the one way for an administrator to make a binding. There is no such Route, so it fails later.
    let as_scheduler = [JSON, "impersonate-user: system:signpost:scheduler"];
    let bindings = format!("{GROUP}/namespaces/default/routebindings");
    let reply = server.send("POST", &bindings, &as_scheduler, "{}").await;
    assert!(matches!(reply.status, 400 | 422), "{}", reply.text);

    let events = audited.events(6).await;
    let refused = &events[0];
    assert_eq!(refused["user"]["username"], admin().user);
    assert_eq!(
        refused["impersonatedUser"],
        json!({"username": "vic", "uid": "u-7", "groups": ["signpost:viewers", "system:authenticated"],
            "extra": {"reason": ["drill"]}})
    );
    assert_eq!(refused["responseStatus"]["code"], 403);
    assert!(
        events[1..5].iter().all(|event| event["user"]["username"] == "tina" && event["impersonatedUser"].is_null())
    );
    assert_eq!(events[5]["impersonatedUser"]["username"], USER_SCHEDULER);
}
