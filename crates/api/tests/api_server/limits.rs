//! Limits on the size of objects, and on the objects of a namespace.

use std::sync::Arc;

use serde_json::{Value, json};
use signpost_api::identity::{GROUP_AUTHENTICATED, Identity, USER_SCHEDULER};
use signpost_api::kinds::quotas::Limits;
use signpost_apiserver::limits::Amount;
use signpost_apiserver::object;
use signpost_apiserver::store::memory::Memory;
use signpost_apiserver::store::{Key, Store, Txn, Write};

use crate::support::{GROUP, ROUTES, Reply, Server, route, router};

const MERGE: &[&str] = &["content-type: application/merge-patch+json"];
const EVENTS: &str = "/api/v1/namespaces/default/events";
const DEFAULT: &str = "/api/v1/namespaces/default";

/// Returns a Route with an annotation of `bytes` bytes.
fn sized(name: &str, bytes: usize) -> Value {
    let mut route = route(name);
    route["metadata"]["annotations"]["size"] = "x".repeat(bytes).into();
    route
}

async fn as_scheduler(server: &Server, method: &str, path: &str, headers: &[&str], body: &Value) -> Reply {
    let scheduler = Identity::user(USER_SCHEDULER);
    server.send_as(Some(scheduler), method, path, headers, body.to_string().into_bytes()).await
}

fn condition(message: &str) -> Value {
    json!({"type": "Scheduled", "status": "False", "reason": "Waiting", "message": message,
           "lastTransitionTime": "2026-01-01T00:00:00Z"})
}

#[track_caller]
fn too_large(reply: Reply, limit: usize) {
    let status = reply.expect(413);
    assert_eq!(status["reason"], "RequestEntityTooLarge");
    let message = status["message"].as_str().expect("a message");
    assert!(message.ends_with(&format!("bytes: limit is {limit}")), "{message}");
    assert_eq!(status["details"]["kind"], "routes");
}

#[track_caller]
fn exceeded(reply: Reply, quota: &str, rest: &str) {
    let status = reply.expect(403);
    assert_eq!(status["reason"], "Forbidden");
    let message = status["message"].as_str().expect("a message");
    assert!(message.contains(&format!("is forbidden: exceeded quota: {quota}, requested: ")), "{message}");
    assert!(message.contains(rest), "{message}");
    assert!(
        message.contains("have an administrator of the platform set the annotation signpost.dev/max-"),
        "{message}"
    );
}

#[tokio::test]
async fn an_object_has_a_largest_size() {
    let server = Server::start().await;
    let path = format!("{ROUTES}/big");
    for query in ["", "?dryRun=All"] {
        too_large(server.post(&format!("{ROUTES}{query}"), &sized("big", 66_000)).await, 65_536);
        let apply = ["content-type: application/apply-patch+yaml"];
        let applied = sized("big", 66_000).to_string();
        let separator = if query.is_empty() { "?" } else { "&" };
        let applied = server.send("PATCH", &format!("{path}{query}{separator}fieldManager=m"), &apply, applied).await;
        too_large(applied, 65_536);
    }
    assert_eq!(server.get(&path).await.status, 404);
    server.post(ROUTES, &sized("big", 64_000)).await.expect(201);
    let grown = json!({"metadata": {"annotations": {"more": "y".repeat(2_000)}}});
    for query in ["", "?dryRun=All"] {
        too_large(server.merge(&format!("{path}{query}"), &grown).await, 65_536);
    }
    // The object still has room for its status, and can still be changed if it does not grow.
    let status = json!({"status": {"conditions": [condition(&"z".repeat(10_000))]}});
    as_scheduler(&server, "PATCH", &format!("{path}/status"), MERGE, &status).await.expect(200);
    too_large(server.merge(&path, &json!({"metadata": {"annotations": {"more": "y"}}})).await, 65_536);
    server.merge(&path, &json!({"metadata": {"annotations": {"size": "x".repeat(63_000)}}})).await.expect(200);
    server.delete(&path).await.expect(200);
}

/// A list above its maximum is the only fault that is reported: no rule has seen its items, which a rule may compare in pairs.
#[tokio::test]
async fn sizes_are_checked_before_anything_else() {
    const SERVICES: &str = "/api/v1/namespaces/default/services";
    const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let server = Server::start().await;
    let routers = format!("{GROUP}/routers");
    let many = |count: usize, item: fn(usize) -> Value| Value::from_iter((0..count).map(item));
    let address = |number: usize| json!({"ip": format!("2001:db8::{:x}:{:x}", number >> 16, number & 0xffff)});
    let with = |mut object: Value, pointer: &str, value: Value| {
        *object.pointer_mut(pointer).expect("it is there") = value;
        object
    };
    let (router, mut several) = (router("s1"), router("s1"));
    several["spec"]["records"] = json!([]);
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"ports": []}});
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "web"},
        "addressType": "IPv4", "endpoints": []});
    server.post(&routers, &router).await.expect(201);
    server.post(SERVICES, &with(service.clone(), "/spec/ports", json!([{"port": 80}]))).await.expect(201);
    server.post(SLICES, &slice).await.expect(201);
    let too_many = |field: &str, found: usize, maximum: usize| {
        json!([{"field": field, "reason": "FieldValueTooMany",
            "message": format!("Too many: {found}: must have at most {maximum} items")}])
    };
    for (path, object, expected) in [
        (
            routers.as_str(),
            // Without the check, their comparison takes minutes.
            with(router.clone(), "/spec/addresses", many(20_000, address)),
            too_many("spec.addresses", 20_000, 128),
        ),
        (
            &routers,
            with(router.clone(), "/spec/addresses", many(129, |_| json!({"ip": "none"}))),
            too_many("spec.addresses", 129, 128),
        ),
        (
            &routers,
            with(several, "/spec/records", many(257, |_| json!("$INCLUDE x"))),
            too_many("spec.records", 257, 256),
        ),
        (
            SERVICES,
            with(service, "/spec/ports", many(65, |_| json!({"port": 80, "name": "-"}))),
            too_many("spec.ports", 65, 64),
        ),
        (
            SLICES,
            with(slice, "/endpoints", many(1_001, |_| json!({"addresses": ["none"]}))),
            too_many("endpoints", 1_001, 1_000),
        ),
    ] {
        let name = object["metadata"]["name"].as_str().expect("a name");
        let one = format!("{path}/{name}");
        let mut unnamed = object.clone();
        unnamed["metadata"] = json!({"generateName": "x"});
        let apply = ["content-type: application/apply-patch+yaml"];
        for reply in [
            server.post(path, &unnamed).await,
            server.merge(&one, &object).await,
            server.send("PATCH", &format!("{one}?fieldManager=m"), &apply, object.to_string()).await,
            server
                .send("PATCH", &format!("{path}/other?fieldManager=m"), &apply, {
                    let mut other = object.clone();
                    other["metadata"]["name"] = json!("other");
                    other.to_string()
                })
                .await,
        ] {
            let status = reply.expect(422);
            assert_eq!(status["details"]["causes"], expected, "{path}");
        }
    }
}

/// An object can have more faults than an answer reports.
#[tokio::test]
async fn the_number_of_reported_faults_is_bounded() {
    let server = Server::start().await;
    let endpoints = vec![json!({"addresses": ["a", "b", "c", "d"]}); 1_000];
    let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": "web"},
        "addressType": "IPv4", "endpoints": endpoints});
    let status = server.post("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", &slice).await.expect(422);
    assert_eq!(status["details"]["causes"].as_array().map(Vec::len), Some(64));
}

#[tokio::test]
async fn a_router_with_all_that_it_may_have_fits() {
    let server = Server::start().await;
    let ip = |number: usize| format!("2001:db8:aaaa:bbbb:cccc:dddd:eeee:{number:04x}");
    let mut full = router("full");
    full["spec"]["description"] = "d".repeat(1_024).into();
    full["spec"]["addresses"] =
        (0..128).map(|number| json!({"ip": ip(number), "weight": 1000, "priority": 100})).collect();
    full["spec"]["records"] = (0..256).map(|number| format!("r{number} TXT {}", "t".repeat(1_000))).collect();
    server.post(&format!("{GROUP}/routers"), &full).await.expect(201);
    let since = "2026-01-01T00:00:00Z";
    let health = |number| json!({"ip": ip(number), "health": "unhealthy", "since": since, "error": "e".repeat(1_024)});
    let status = json!({"status": {
        "addresses": (0..128).map(health).collect::<Value>(), "conditions": [condition(&"m".repeat(4_096))]}});
    as_scheduler(&server, "PATCH", &format!("{GROUP}/routers/full/status"), MERGE, &status).await.expect(200);
    let stored = server.get(&format!("{GROUP}/routers/full")).await.text.len();
    assert!(stored < 512 << 10, "it has {stored} bytes, and may have 512 KiB without the platform's own status");
}

#[tokio::test]
async fn an_object_that_is_stored_larger_can_be_made_smaller_and_released() {
    let store = Arc::new(Memory::new());
    let names = ["shrinks", "released", "deleted", "stays"];
    // As a version with other limits stores it: larger than objects may be, with a text and a list beyond their maxima.
    for name in names {
        let mut large = sized(name, 200_000);
        large["metadata"]["namespace"] = "default".into();
        large["metadata"]["uid"] = name.into();
        large["status"]["phase"] = "new".into();
        large["metadata"]["finalizers"] = (0..80).map(|number| format!("example.com/f{number}")).collect();
        large["spec"]["tls"] = json!({"termination": "edge", "secretName": "s".repeat(5_000)});
        let key = Key(format!("/signpost.dev/routes/default/{name}").into());
        let put = Write::Put { key, value: object::encode(&large).into(), ttl: None };
        store.commit(Txn { writes: vec![put], ..Txn::default() }).await.expect("stored");
    }
    let server = Server::over(store).await;
    let path = |name: &str| format!("{ROUTES}/{name}");
    let status = json!({"status": {"conditions": [condition("it waits")]}});
    as_scheduler(&server, "PATCH", &format!("{}/status", path("stays")), MERGE, &status).await.expect(200);
    server
        .merge(&path("shrinks"), &json!({"metadata": {"annotations": {"size": "x".repeat(150_000)}}}))
        .await
        .expect(200);
    too_large(
        server.merge(&path("shrinks"), &json!({"metadata": {"annotations": {"more": "x".repeat(99)}}})).await,
        65_536,
    );
    server.delete(&path("released")).await.expect(200);
    for left in [40, 0] {
        let finalizers: Value = (0..left).map(|number| format!("example.com/f{number}")).collect();
        server.merge(&path("released"), &json!({"metadata": {"finalizers": finalizers}})).await.expect(200);
    }
    server.gone(&path("released")).await;
    server.merge(&path("deleted"), &json!({"metadata": {"finalizers": null}})).await.expect(200);
    server.delete(&path("deleted")).await.expect(200);
    server.gone(&path("deleted")).await;
}

fn limits(routes: Amount) -> Limits {
    Limits { routes, ..Limits::default() }
}

const fn amount(objects: u64, bytes: u64) -> Amount {
    Amount { objects, bytes }
}

#[tokio::test]
async fn concurrent_creates_do_not_exceed_the_quota_of_a_namespace() {
    let server = Server::start_with(limits(amount(5, 1 << 20))).await;
    let names: Vec<String> = (0..40).map(|number| format!("r{number}")).collect();
    let created =
        futures::future::join_all(names.iter().map(async |name| server.post(ROUTES, &route(name)).await)).await;
    let count = created.iter().filter(|reply| reply.status == 201).count();
    assert_eq!(count, 5, "neither more nor fewer");
    for reply in created.into_iter().filter(|reply| reply.status != 201) {
        exceeded(reply, "namespace-routes", "requested: routes=1, used: routes=5, limited: routes=5; ");
    }
    exceeded(server.post(&format!("{ROUTES}?dryRun=All"), &route("one")).await, "namespace-routes", "used: routes=5");
    // Another namespace has a quota of its own.
    server
        .post("/api/v1/namespaces", &json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other"}}))
        .await;
    server.post(&format!("{GROUP}/namespaces/other/routes"), &route("one")).await.expect(201);
    // What is deleted makes room, a dry run takes none, and a restart changes nothing.
    let list = server.get(ROUTES).await.json();
    let first = list["items"][0]["metadata"]["name"].as_str().expect("a name").to_owned();
    server.delete(&format!("{ROUTES}/{first}")).await.expect(200);
    server.post(&format!("{ROUTES}?dryRun=All"), &route("one")).await.expect(201);
    server.post(ROUTES, &route("one")).await.expect(201);
    let again = Server::over_with(server.store.clone(), limits(amount(5, 1 << 20))).await;
    exceeded(again.post(ROUTES, &route("two")).await, "namespace-routes", "used: routes=5, limited: routes=5");
}

#[tokio::test]
async fn the_bytes_of_a_namespace_count_at_every_write() {
    let server = Server::start_with(limits(amount(100, 100_000))).await;
    server.post(ROUTES, &sized("one", 40_000)).await.expect(201);
    server.post(ROUTES, &sized("two", 40_000)).await.expect(201);
    exceeded(
        server.post(ROUTES, &sized("three", 40_000)).await,
        "namespace-route-bytes",
        "limited: route-bytes=100000; ",
    );
    let annotation = |bytes: usize| json!({"metadata": {"annotations": {"size": "x".repeat(bytes)}}});
    let two = format!("{ROUTES}/two");
    exceeded(server.merge(&two, &annotation(62_000)).await, "namespace-route-bytes", "used: route-bytes=8");
    server.merge(&two, &annotation(50_000)).await.expect(200);
    // The limit is lowered below the current number: writes that shrink or keep the size are accepted, as is the platform's
    // status.
    let set =
        json!({"metadata": {"annotations": {"signpost.dev/max-route-bytes": "64Ki", "signpost.dev/max-routes": "1"}}});
    server.merge(DEFAULT, &set).await.expect(200);
    exceeded(server.merge(&two, &annotation(50_001)).await, "namespace-route-bytes", "limited: route-bytes=65536; ");
    server.merge(&two, &annotation(49_000)).await.expect(200);
    let status = json!({"status": {"conditions": [condition("it waits")]}});
    as_scheduler(&server, "PATCH", &format!("{two}/status"), MERGE, &status).await.expect(200);
    exceeded(server.post(ROUTES, &route("three")).await, "namespace-routes", "used: routes=2, limited: routes=1; ");
    // An administrator can raise the limit. A tenant cannot, and a value that is not a number is rejected.
    let set = |value: &str| {
        json!({"metadata": {"annotations": {
        "signpost.dev/max-routes": value, "signpost.dev/max-route-bytes": null}}})
    };
    let tenant =
        Identity { user: "tina".into(), groups: vec!["signpost:tenant:default".into(), GROUP_AUTHENTICATED.into()] };
    let refused = server.send_as(Some(tenant), "PATCH", DEFAULT, MERGE, set("9").to_string().into_bytes()).await;
    assert_eq!(refused.status, 403, "{}", refused.text);
    let refused = server.merge(DEFAULT, &set("many")).await.expect(422);
    assert_eq!(refused["details"]["causes"][0]["field"], "metadata.annotations[signpost.dev/max-routes]", "{refused}");
    server.merge(DEFAULT, &set("3")).await.expect(200);
    server.post(ROUTES, &route("three")).await.expect(201);
}

#[tokio::test]
async fn the_events_of_a_namespace_leave_room_for_those_of_the_platform() {
    let server = Server::start_with(Limits { events: amount(3, 1 << 20), ..Limits::default() }).await;
    let event = |number: usize| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": format!("e{number}")},
               "involvedObject": {"kind": "Route", "name": "r", "namespace": "default"}, "reason": "R", "message": "m"})
    };
    for number in 0..3 {
        server.post(EVENTS, &event(number)).await.expect(201);
    }
    exceeded(server.post(EVENTS, &event(3)).await, "namespace-events", "used: events=3, limited: events=3; ");
    let json_body = ["content-type: application/json"];
    for number in 3..6 {
        as_scheduler(&server, "POST", EVENTS, &json_body, &event(number)).await.expect(201);
    }
    let refused = as_scheduler(&server, "POST", EVENTS, &json_body, &event(6)).await;
    exceeded(refused, "namespace-events", "used: events=6, limited: events=6; ");
    server.delete(&format!("{EVENTS}/e0")).await.expect(200);
    as_scheduler(&server, "POST", EVENTS, &json_body, &event(6)).await.expect(201);
}

/// The objects that the credential of a machine can create are limited by number and by size.
#[tokio::test]
async fn what_machines_create_is_limited() {
    const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/signpost-machines/leases";
    let server = Server::start().await;
    let agent = |router: &str| Identity {
        user: format!("agent-{router}"),
        groups: vec![format!("signpost:router-agent:{router}"), GROUP_AUTHENTICATED.into()],
    };
    let lease = |router: &str, number: usize| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "spec": {},
            "metadata": {"name": format!("router-{router}.192-0-2-1-{number}")}})
    };
    let create = async |router: &str, number: usize| {
        let lease = lease(router, number);
        let path = format!("{LEASES}/{}?fieldManager=agent", lease["metadata"]["name"].as_str().expect("a name"));
        let apply = ["content-type: application/apply-patch+yaml"];
        server.send_as(Some(agent(router)), "PATCH", &path, &apply, lease.to_string().into_bytes()).await
    };
    let refused = |reply: Reply, quota: &str| {
        let message = reply.expect(403)["message"].as_str().expect("a message").to_owned();
        assert!(message.contains(&format!("exceeded quota: {quota}, requested: ")), "{message}");
        assert!(message.ends_with("; delete some"), "{message}");
    };
    for number in 0..256 {
        create("one", number).await.expect(201);
    }
    refused(create("one", 256).await, "leases");
    create("two", 0).await.expect(201);
    // A scheduler creates none there, and has the same limits where it elects its leader, with any name.
    let other = |number: usize| json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": format!("router-l{number}.x")}, "spec": {}});
    as_scheduler(&server, "POST", LEASES, &[], &lease("three", 0)).await.expect(403);
    let election = LEASES.replace("/signpost-machines/", "/signpost-system/");
    for number in 0..256 {
        as_scheduler(&server, "POST", &election, &[], &other(number)).await.expect(201);
    }
    refused(as_scheduler(&server, "POST", &election, &[], &other(256)).await, "leases");
    // A Lease that is deleted makes room.
    server.delete(&format!("{election}/router-l0.x")).await.expect(200);
    as_scheduler(&server, "POST", &election, &[], &other(256)).await.expect(201);
    let large = json!({"metadata": {"annotations": {"x": "x".repeat(120_000)}}});
    let mut replies = Vec::new();
    for number in 1..=140 {
        let path = format!("{election}/router-l{number}.x");
        let merge = ["content-type: application/merge-patch+json"];
        replies.push(as_scheduler(&server, "PATCH", &path, &merge, &large).await);
    }
    assert_eq!(replies[0].status, 200, "{}", replies[0].text);
    refused(replies.pop().expect("a reply"), "lease-bytes");
    // DeletionHolds have a limit of their number, and this one of their bytes.
    let hold = |number: usize| {
        json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "DeletionHold",
            "metadata": {"name": format!("h{number}"), "annotations": {"x": "x".repeat(250_000)}},
            "spec": {"type": "Router", "objects": 3, "known": 3, "cause": "list", "names": []}})
    };
    let server_of_names = Identity { user: "ns".to_owned(), groups: vec!["signpost:name-servers".to_owned()] };
    let mut replies = Vec::new();
    for number in 0..80 {
        let (path, json) = (format!("{GROUP}/deletionholds"), ["content-type: application/json"]);
        let body = hold(number).to_string().into_bytes();
        replies.push(server.send_as(Some(server_of_names.clone()), "POST", &path, &json, body).await);
    }
    assert_eq!(replies[0].status, 201, "{}", replies[0].text);
    refused(replies.pop().expect("a reply"), "deletion-hold-bytes");
}
