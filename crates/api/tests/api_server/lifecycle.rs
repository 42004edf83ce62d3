//! The life of objects from create to delete: fields that the server sets, no-op writes, status, finalizers, namespaces, owners,
//! events.

use serde_json::{Value, json};

use crate::support::{GROUP, ROUTES, Server, route, router, version};

const NAMESPACES: &str = "/api/v1/namespaces";
const EVENTS: &str = "/api/v1/namespaces/default/events";

#[tokio::test]
async fn what_the_server_sets() {
    let server = Server::start().await;
    let mut sent = route("a");
    sent["metadata"]["uid"] = json!("mine");
    sent["metadata"]["generation"] = json!(7);
    sent["metadata"]["creationTimestamp"] = json!("2000-01-01T00:00:00Z");
    let made = server.post(ROUTES, &sent).await.expect(201);
    let meta = &made["metadata"];
    assert_eq!(meta["uid"].as_str().map(str::len), Some(36));
    assert_eq!(meta["generation"], 1);
    assert_eq!(meta["namespace"], "default");
    let created = meta["creationTimestamp"].as_str().expect("a time");
    assert!(created.len() == 20 && created.ends_with('Z') && !created.starts_with("2000"), "{created}");
    assert_eq!(server.get(&format!("{ROUTES}/a")).await.expect(200), made);

    let mut generated = route("x");
    generated["metadata"] = json!({"generateName": "web-"});
    let made = server.post(ROUTES, &generated).await.expect(201);
    let name = made["metadata"]["name"].as_str().expect("a name");
    assert!(name.starts_with("web-") && name.len() == 9, "{name}");

    let dry = server.post(&format!("{ROUTES}?dryRun=All"), &route("dry")).await.expect(201);
    assert!(dry["metadata"]["uid"].is_string() && dry["metadata"].get("resourceVersion").is_none(), "{dry}");
    server.get(&format!("{ROUTES}/dry")).await.expect(404);

    let yaml = "apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata:\n  name: written\nspec:\n  path: /y\n";
    let made = server.send("POST", ROUTES, &["content-type: application/yaml"], yaml).await.expect(201);
    assert_eq!(made["spec"]["path"], "/y");
}

#[tokio::test]
async fn writes_that_change_nothing() {
    let server = Server::start().await;
    let made = server.post(ROUTES, &route("a")).await.expect(201);
    let path = format!("{ROUTES}/a");
    let mut watch = server.watch(&format!("{ROUTES}?watch=true&resourceVersion={}", version(&made))).await;
    let put = server.put(&path, &made).await.expect(200);
    assert_eq!(version(&put), version(&made));
    let patched = server.merge(&path, &json!({"spec": {"to": {"name": "web"}}})).await.expect(200);
    assert_eq!(version(&patched), version(&made));
    assert!(watch.is_silent().await);
    let changed = server.merge(&path, &json!({"metadata": {"labels": {"a": "b"}}})).await.expect(200);
    assert!(version(&changed) > version(&made));
    assert_eq!(changed["metadata"]["generation"], 1, "labels do not count");
    let changed = server.merge(&path, &json!({"spec": {"path": "/p"}})).await.expect(200);
    assert_eq!(changed["metadata"]["generation"], 2);
    let dry = server.merge(&format!("{path}?dryRun=All"), &json!({"spec": {"path": "/q"}})).await.expect(200);
    assert_eq!((&dry["spec"]["path"], version(&dry)), (&json!("/q"), version(&changed)));
    assert_eq!(server.get(&path).await.expect(200)["spec"]["path"], "/p");
}

#[tokio::test]
async fn status_and_spec_are_apart() {
    let server = Server::start().await;
    let routers = format!("{GROUP}/routers");
    let made = server.post(&routers, &router("s")).await.expect(201);
    let path = format!("{routers}/s");
    let condition = json!({"type": "Ready", "status": "True", "reason": "X", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let mut sent = made.clone();
    sent["status"]["conditions"] = json!([condition]);
    sent["spec"]["ttl"] = json!(99);
    sent["metadata"]["labels"] = json!({"a": "b"});
    let written = server.put(&format!("{path}/status"), &sent).await.expect(200);
    assert_eq!(written["status"]["conditions"][0]["type"], "Ready");
    assert_eq!(written["spec"], made["spec"], "a status write leaves the spec alone");
    assert_eq!(written["metadata"].get("labels"), None);
    assert_eq!(written["metadata"]["generation"], 1);
    let patched = server.merge(&path, &json!({"spec": {"ttl": 99}})).await.expect(200);
    assert_eq!(patched["status"], written["status"], "a spec write leaves the status alone");
    let status = server.get(&format!("{path}/status")).await.expect(200);
    assert_eq!(status, patched);
    let patch = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"ttl": 98}, "status": {"routes": 1}});
    let written = server.merge(&format!("{path}/status"), &patch).await.expect(200);
    assert_eq!((&written["status"]["routes"], &written["spec"]), (&json!(1), &patched["spec"]));
    assert_eq!(written["metadata"].get("labels"), None);
}

#[tokio::test]
async fn each_manager_has_the_fields_that_it_wrote_last() {
    let server = Server::start().await;
    let fields = |object: &Value, manager: &str| {
        let entries = object["metadata"]["managedFields"].as_array().expect("a list");
        let entry = entries.iter().find(|entry| entry["manager"] == manager && entry["operation"] == "Update");
        entry.map(|entry| entry["fieldsV1"].clone())
    };
    let mut sent = route("a");
    sent["spec"]["path"] = json!("/a");
    // Without fieldManager, the manager is the program in User-Agent.
    let client = ["content-type: application/json", "user-agent: some-client/1.2 (linux)"];
    let made = server.send("POST", ROUTES, &client, sent.to_string()).await.expect(201);
    let to = json!({".": {}, "f:kind": {}, "f:name": {}});
    assert_eq!(fields(&made, "some-client"), Some(json!({"f:spec": {".": {}, "f:path": {}, "f:to": to}})));

    let a = format!("{ROUTES}/a");
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let labelled = server.merge(&format!("{a}?fieldManager=label"), &label).await.expect(200);
    assert_eq!(fields(&labelled, "label"), Some(json!({"f:metadata": {"f:labels": {".": {}, "f:a": {}}}})));
    let edited = server.merge(&format!("{a}?fieldManager=edit"), &json!({"spec": {"path": "/b"}})).await.expect(200);
    assert_eq!(fields(&edited, "edit"), Some(json!({"f:spec": {"f:path": {}}})));
    assert_eq!(fields(&edited, "some-client"), Some(json!({"f:spec": {".": {}, "f:to": to}})));

    let condition = json!({"type": "Published", "status": "True", "reason": "R", "message": "m",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"status": {"conditions": [condition]}});
    let written = server.merge(&format!("{a}/status?fieldManager=status"), &status).await.expect(200);
    let members =
        json!({".": {}, "f:lastTransitionTime": {}, "f:message": {}, "f:reason": {}, "f:status": {}, "f:type": {}});
    let conditions = json!({".": {}, "k:{\"type\":\"Published\"}": members});
    assert_eq!(fields(&written, "status"), Some(json!({"f:status": {"f:conditions": conditions}})));

    // A replacement without the labels takes them from their manager.
    sent["metadata"]["resourceVersion"] = written["metadata"]["resourceVersion"].clone();
    let replaced = server.put(&format!("{a}?fieldManager=replace"), &sent).await.expect(200);
    assert_eq!((fields(&replaced, "label"), fields(&replaced, "edit")), (None, None));
    assert_eq!(fields(&replaced, "replace"), Some(json!({"f:spec": {"f:path": {}}})));
    assert_eq!(fields(&replaced, "status"), fields(&written, "status"));
}

#[tokio::test]
async fn concurrent_changes_lose_nothing() {
    let server = Server::start().await;
    let mut first = route("a");
    first["metadata"]["annotations"] = json!({"n": "0"});
    server.post(ROUTES, &first).await.expect(201);
    let path = format!("{ROUTES}/a");
    let writers = (0..20).map(|_| async {
        for _ in 0..50 {
            loop {
                let mut object = server.get(&path).await.expect(200);
                let n: u32 = object["metadata"]["annotations"]["n"].as_str().and_then(|n| n.parse().ok()).expect("n");
                object["metadata"]["annotations"]["n"] = (n + 1).to_string().into();
                let reply = server.put(&path, &object).await;
                match reply.status {
                    200 => break,
                    409 => {}
                    other => panic!("{other}: {}", reply.text),
                }
            }
        }
    });
    futures::future::join_all(writers).await;
    let object = server.get(&path).await.expect(200);
    assert_eq!(object["metadata"]["annotations"]["n"], "1000");
}

#[tokio::test]
async fn deletion_and_finalizers() {
    let server = Server::start().await;
    let made = server.post(ROUTES, &route("a")).await.expect(201);
    let path = format!("{ROUTES}/a");
    let status = server.delete(&path).await.expect(200);
    assert_eq!(status["status"], "Success");
    assert_eq!(
        status["details"],
        json!({"name": "a", "group": "signpost.dev", "kind": "routes", "uid": made["metadata"]["uid"]})
    );

    let mut held = route("a");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    let held = server.post(ROUTES, &held).await.expect(201);
    let marked = server.delete(&path).await.expect(200);
    assert_eq!(marked["kind"], "Route");
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    assert_eq!(
        (&marked["metadata"]["deletionGracePeriodSeconds"], &marked["metadata"]["generation"]),
        (&json!(0), &json!(2))
    );
    let again = server.delete(&path).await.expect(200);
    assert_eq!(again, marked, "a second delete changes nothing");
    let more = json!({"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}});
    let refused = server.merge(&path, &more).await.expect(422);
    assert!(
        refused["message"].as_str().is_some_and(|message| message.contains("metadata.finalizers: Forbidden")),
        "{refused}"
    );
    let mut watch = server.watch(&format!("{ROUTES}?watch=true&resourceVersion={}", version(&marked))).await;
    let released = server.merge(&path, &json!({"metadata": {"finalizers": null}})).await.expect(200);
    assert_eq!(released["metadata"]["uid"], held["metadata"]["uid"]);
    assert_eq!(watch.reported().await, "DELETED a");
    server.get(&path).await.expect(404);
}

#[tokio::test]
async fn collections_are_deleted_by_selector() {
    let server = Server::start().await;
    for name in ["a", "b", "c"] {
        server.post(ROUTES, &crate::support::labelled(route(name), "n", name)).await.expect(201);
    }
    let deleted = server.delete(&format!("{ROUTES}?labelSelector=n!%3Db")).await.expect(200);
    assert_eq!((deleted["kind"].as_str(), deleted["items"].as_array().map(Vec::len)), (Some("RouteList"), Some(2)));
    let left = server.get(ROUTES).await.expect(200);
    assert_eq!(left["items"][0]["metadata"]["name"], "b");
}

fn owned(name: &str, owner: &Value, blocks: bool) -> Value {
    let mut object = route(name);
    object["metadata"]["ownerReferences"] = json!([{
        "apiVersion": owner["apiVersion"], "kind": owner["kind"], "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "blockOwnerDeletion": blocks,
    }]);
    object
}

#[tokio::test]
async fn dependents_follow_their_owner() {
    let server = Server::start().await;
    for (policy, survives) in [("Background", false), ("Foreground", false), ("Orphan", true)] {
        let owner = server.post(ROUTES, &route("owner")).await.expect(201);
        server.post(ROUTES, &owned("dependent", &owner, true)).await.expect(201);
        server.delete(&format!("{ROUTES}/owner?propagationPolicy={policy}")).await.expect(200);
        server.gone(&format!("{ROUTES}/owner")).await;
        if survives {
            let orphan = server.get(&format!("{ROUTES}/dependent")).await.expect(200);
            assert_eq!(orphan["metadata"].get("ownerReferences"), None, "{policy}");
            server.delete(&format!("{ROUTES}/dependent")).await.expect(200);
        }
        server.gone(&format!("{ROUTES}/dependent")).await;
    }
    let mut nobody = route("missing");
    nobody["metadata"]["uid"] = json!("0000");
    server.post(ROUTES, &owned("orphan", &nobody, false)).await.expect(201);
    server.gone(&format!("{ROUTES}/orphan")).await;
}

#[tokio::test]
async fn a_foreground_deletion_waits() {
    let server = Server::start().await;
    let owner = server.post(ROUTES, &route("owner")).await.expect(201);
    let mut dependent = owned("dependent", &owner, true);
    dependent["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(ROUTES, &dependent).await.expect(201);
    let held = server.delete(&format!("{ROUTES}/owner?propagationPolicy=Foreground")).await.expect(200);
    assert_eq!(held["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    let mut deleting = false;
    for _ in 0..3_000 {
        deleting =
            server.get(&format!("{ROUTES}/dependent")).await.expect(200)["metadata"]["deletionTimestamp"].is_string();
        if deleting {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert!(deleting, "the dependent is being deleted");
    server.get(&format!("{ROUTES}/owner")).await.expect(200);
    server.merge(&format!("{ROUTES}/dependent"), &json!({"metadata": {"finalizers": null}})).await.expect(200);
    server.gone(&format!("{ROUTES}/owner")).await;
}

#[tokio::test]
async fn namespaces_end_with_their_contents() {
    let server = Server::start().await;
    let made = server.post(NAMESPACES, &json!({"metadata": {"name": "shop"}})).await.expect(201);
    assert_eq!(made["metadata"]["labels"]["kubernetes.io/metadata.name"], "shop");
    assert_eq!((&made["spec"]["finalizers"], &made["status"]["phase"]), (&json!(["kubernetes"]), &json!("Active")));
    let routes = format!("{GROUP}/namespaces/shop/routes");
    let mut held = route("held");
    held["metadata"]["finalizers"] = json!(["example.com/hold"]);
    server.post(&routes, &held).await.expect(201);
    server.post(&routes, &route("plain")).await.expect(201);
    let ending = server.delete(&format!("{NAMESPACES}/shop")).await.expect(200);
    assert_eq!(ending["status"]["phase"], "Terminating");
    let refused = server.post(&routes, &route("late")).await.expect(403);
    assert_eq!(refused["details"]["causes"][0]["reason"], "NamespaceTerminating");
    server.gone(&format!("{routes}/plain")).await;
    server.get(&format!("{NAMESPACES}/shop")).await.expect(200);
    server.merge(&format!("{routes}/held"), &json!({"metadata": {"finalizers": null}})).await.expect(200);
    server.gone(&format!("{NAMESPACES}/shop")).await;
    assert_eq!(server.get(&routes).await.expect(200)["items"], json!([]), "a missing namespace is an empty list");
}

#[tokio::test]
async fn a_namespace_is_edited_as_kubectl_does_it() {
    let server = Server::start().await;
    server.post(NAMESPACES, &json!({"metadata": {"name": "shop"}})).await.expect(201);
    let path = format!("{NAMESPACES}/shop?fieldValidation=Strict");
    let strategic = ["content-type: application/strategic-merge-patch+json"];
    for (patch, expected) in [
        (
            json!({"metadata": {"$setElementOrder/finalizers": ["a.test/x"], "finalizers": ["a.test/x"]}}),
            json!(["a.test/x"]),
        ),
        (json!({"metadata": {"finalizers": ["b.test/y"]}}), json!(["a.test/x", "b.test/y"])),
        (
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a.test/x"],
                "$setElementOrder/finalizers": ["b.test/y"]}}),
            json!(["b.test/y"]),
        ),
        (json!({"metadata": {"labels": {"a": "b"}}}), json!(["b.test/y"])),
        (json!({"metadata": {"finalizers": null}}), Value::Null),
    ] {
        let patched = server.send("PATCH", &path, &strategic, patch.to_string()).await.expect(200);
        assert_eq!(patched["metadata"]["finalizers"], expected, "{patch}");
    }
    let bad = json!({"metadata": {"ownerReferences": [{"name": "x"}]}});
    server.send("PATCH", &path, &strategic, bad.to_string()).await.expect(400);
    server.send("PATCH", &format!("{ROUTES}/a"), &strategic, "{}").await.expect(415);
}

#[tokio::test]
async fn events_have_two_views() {
    let server = Server::start().await;
    let event = json!({
        "apiVersion": "v1", "kind": "Event", "metadata": {"name": "a.1"},
        "involvedObject": {"kind": "Route", "namespace": "default", "name": "a"},
        "reason": "Scheduled", "message": "on shard1", "type": "Normal", "count": 2,
        "source": {"component": "scheduler"},
    });
    server.post(EVENTS, &event).await.expect(201);
    let new_view = "/apis/events.k8s.io/v1/namespaces/default/events";
    let viewed = server.get(&format!("{new_view}/a.1")).await.expect(200);
    assert_eq!((&viewed["apiVersion"], &viewed["kind"]), (&json!("events.k8s.io/v1"), &json!("Event")));
    assert_eq!((&viewed["regarding"]["name"], &viewed["note"]), (&json!("a"), &json!("on shard1")));
    let selected = server
        .get(&format!("{EVENTS}?fieldSelector=involvedObject.name%3Da,involvedObject.kind%3DRoute"))
        .await
        .expect(200);
    assert_eq!(selected["items"].as_array().map(Vec::len), Some(1));
    let selected = server.get(&format!("{new_view}?fieldSelector=regarding.name%3Db")).await.expect(200);
    assert_eq!(selected["items"], json!([]));
    let posted = json!({
        "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "b.1"},
        "regarding": {"kind": "Route", "namespace": "default", "name": "b"}, "reason": "R", "note": "n", "type": "Normal",
        "action": "Bind", "reportingController": "c", "reportingInstance": "c-0", "eventTime": "2026-01-01T00:00:00.000000Z",
    });
    let mut watch = server.watch(&format!("{EVENTS}?watch=true&fieldSelector=involvedObject.name%3Db")).await;
    server.post(new_view, &posted).await.expect(201);
    let seen = watch.next().await.expect("a line");
    assert_eq!((&seen["object"]["apiVersion"], &seen["object"]["involvedObject"]["name"]), (&json!("v1"), &json!("b")));
    let series = json!({"series": {"count": 2, "lastObservedTime": "2026-01-01T00:00:01.000000Z"}});
    let patched = server.merge(&format!("{new_view}/b.1"), &series).await.expect(200);
    assert_eq!(patched["series"]["count"], 2);

    let reported = |status: &Value| -> Vec<String> {
        let causes = status["details"]["causes"].as_array().expect("causes").iter();
        causes.filter_map(|cause| cause["field"].as_str().map(str::to_owned)).collect()
    };
    let status = server.merge(&format!("{new_view}/b.1"), &json!({"note": "another"})).await.expect(422);
    assert_eq!(reported(&status), ["message"], "{status}");
    let mut elsewhere = posted.clone();
    elsewhere["metadata"]["name"] = json!("c.1");
    elsewhere["regarding"]["namespace"] = json!("elsewhere");
    server.post(new_view, &elsewhere).await.expect(201);
    elsewhere["metadata"]["name"] = json!("c.2");
    elsewhere["reportingController"] = json!("not a name");
    assert_eq!(reported(&server.post(new_view, &elsewhere).await.expect(422)), ["reportingController"]);
    let mut old = event.clone();
    old["metadata"]["name"] = json!("d.1");
    old["involvedObject"]["namespace"] = json!("elsewhere");
    assert_eq!(reported(&server.post(EVENTS, &old).await.expect(422)), ["involvedObject.namespace"]);
    let mut wrong = posted;
    wrong["metadata"]["name"] = json!("e.1");
    wrong["type"] = json!("Odd");
    wrong["note"] = json!("n".repeat(1025));
    wrong["deprecatedCount"] = json!(1);
    let status = server.post(new_view, &wrong).await.expect(422);
    assert_eq!((status["details"].get("group"), &status["details"]["kind"]), (None, &json!("Event")));
    assert_eq!(
        status["message"],
        "Event \"e.1\" is invalid: [message: Invalid value: \"\": can have at most 1024 characters, type: Invalid value: \
         \"\": has invalid value: Odd, count: Invalid value: \"\": needs to be unset]"
    );
}

#[tokio::test]
async fn a_binding_sets_the_status_of_its_route_at_once() {
    let server = Server::start().await;
    let shard = server.post(&format!("{GROUP}/routers"), &router("s1")).await.expect(201);
    let made = server.post(ROUTES, &route("a")).await.expect(201);
    let uid = &made["metadata"]["uid"];
    let claim = json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim", "metadata": {"name": "default-a"},
        "spec": {"type": "label", "value": "default-a", "since": "2026-01-01T00:00:00Z",
            "holder": {"namespace": "default", "name": "a", "uid": uid}},
    });
    server.post(&format!("{GROUP}/nameclaims"), &claim).await.expect(201);
    let binding = json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding", "metadata": {"name": "a"},
        "spec": {"routeNamespace": "default", "routeName": "a", "routeUID": uid,
            "routeResourceVersion": made["metadata"]["resourceVersion"], "router": "s1", "dns": shard["spec"]["dns"],
            "label": "default-a", "strategy": "round-robin", "names": [
                {"name": "default-a.s1.v3.example", "type": "system"},
                {"name": "default-a.routes.v3.example", "type": "alias"}]},
    });
    let bindings = format!("{GROUP}/namespaces/default/routebindings");
    let refused = server.post(&bindings, &binding).await.expect(403);
    assert!(refused["message"].as_str().is_some_and(|message| message.contains("only the scheduler")), "{refused}");
    let as_scheduler = ["content-type: application/json", "impersonate-user: system:signpost:scheduler"];
    let bound = server.send("POST", &bindings, &as_scheduler, binding.to_string()).await.expect(201);
    let seen = server.get(&format!("{ROUTES}/a")).await.expect(200);
    assert_eq!(version(&seen), version(&bound), "one transaction");
    assert_eq!((&seen["status"]["phase"], &seen["status"]["router"]), (&json!("scheduled"), &json!("s1")));
    assert_eq!(seen["status"]["dns"], "default-a.s1.v3.example");
    server.send("POST", &bindings, &as_scheduler, binding.to_string()).await.expect(409);
    // A change of the binding would set the status as well.
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    server.merge(&format!("{bindings}/a"), &patch).await.expect(403);
    server.put(&format!("{bindings}/a"), &bound).await.expect(403);
    let as_scheduler = ["content-type: application/merge-patch+json", as_scheduler[1]];
    server.send("PATCH", &format!("{bindings}/a"), &as_scheduler, patch.to_string()).await.expect(200);
    server.delete(&format!("{ROUTES}/a")).await.expect(200);
    server.get(&format!("{bindings}/a")).await.expect(404);
}

#[tokio::test]
async fn server_side_apply() {
    let server = Server::start().await;
    let apply = |path: String, body: Value| {
        let server = &server;
        async move { server.send("PATCH", &path, &["content-type: application/apply-patch+yaml"], body.to_string()).await }
    };
    let a = format!("{ROUTES}/a");
    let config = |path: &str| json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route", "metadata": {"name": "a"}, "spec": {"path": path}});
    let made = apply(format!("{a}?fieldManager=one"), config("/1")).await.expect(201);
    assert_eq!(made["metadata"]["managedFields"][0]["operation"], "Apply");
    let again = apply(format!("{a}?fieldManager=one"), config("/1")).await.expect(200);
    assert_eq!(again, made, "an apply that changes nothing does not write");
    let shared = apply(format!("{a}?fieldManager=two"), config("/1")).await.expect(200);
    assert_eq!(shared["metadata"]["managedFields"].as_array().map(Vec::len), Some(2));
    let conflict = apply(format!("{a}?fieldManager=two"), config("/2")).await.expect(409);
    let cause = &conflict["details"]["causes"][0];
    assert_eq!((&cause["reason"], &cause["field"]), (&json!("FieldManagerConflict"), &json!(".spec.path")));
    let forced = apply(format!("{a}?fieldManager=two&force=true"), config("/2")).await.expect(200);
    assert_eq!((&forced["spec"]["path"], &forced["metadata"]["generation"]), (&json!("/2"), &json!(2)));
    let mut unknown = config("/2");
    unknown["spec"]["bogus"] = json!(1);
    apply(format!("{a}?fieldManager=two"), unknown).await.expect(400);
    apply(format!("{ROUTES}/none/status?fieldManager=two"), {
        let mut status = config("/2");
        status["metadata"]["name"] = json!("none");
        status
    })
    .await
    .expect(404);
    let mut status = config("/2");
    status["status"] = json!({"phase": "scheduled"});
    apply(format!("{a}?fieldManager=two"), status).await.expect(422);
    let mut stale = config("/3");
    stale["metadata"]["resourceVersion"] = made["metadata"]["resourceVersion"].clone();
    apply(format!("{a}?fieldManager=two"), stale).await.expect(409);
    let dry = apply(format!("{a}?fieldManager=two&dryRun=All"), config("/4")).await.expect(200);
    assert_eq!(dry["spec"]["path"], "/4");
    assert_eq!(server.get(&a).await.expect(200)["spec"]["path"], "/2");
}

/// Tools that apply files often apply nothing of a Namespace but its name.
#[tokio::test]
async fn a_namespace_is_applied_by_its_name() {
    let server = Server::start().await;
    let apply = |metadata: Value| {
        let (server, headers) = (&server, ["content-type: application/apply-patch+yaml"]);
        let path = format!("{NAMESPACES}/bare?fieldManager=files&force=false");
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}).to_string();
        async move { server.send("PATCH", &path, &headers, body).await }
    };
    let made = apply(json!({"name": "bare"})).await.expect(201);
    assert_eq!(apply(json!({"name": "bare"})).await.expect(200), made, "an apply that changes nothing does not write");
    let emptied = apply(json!({"name": "bare", "labels": {}, "annotations": {}})).await.expect(200);
    assert_eq!(emptied["metadata"]["labels"], json!({"kubernetes.io/metadata.name": "bare"}));
    assert_eq!(emptied["metadata"].get("annotations"), None);
}

#[tokio::test]
async fn status_is_applied_apart() {
    let server = Server::start().await;
    server.post(&format!("{GROUP}/routers"), &router("s")).await.expect(201);
    let config = json!({
        "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "s"},
        "status": {"routes": 3},
    });
    let path = format!("{GROUP}/routers/s/status?fieldManager=controller&force=true");
    let headers = ["content-type: application/apply-patch+yaml"];
    let applied = server.send("PATCH", &path, &headers, config.to_string()).await.expect(200);
    assert_eq!((&applied["status"]["routes"], &applied["metadata"]["generation"]), (&json!(3), &json!(1)));
    let managed = applied["metadata"]["managedFields"].as_array().expect("field sets");
    assert!(
        managed.iter().any(|entry| entry["subresource"] == "status" && entry["manager"] == "controller"),
        "{managed:?}"
    );
}
