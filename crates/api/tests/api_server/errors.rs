//! Which request fails how: the table of errors, and the bounds.

use serde_json::{Value, json};

use crate::support::{GROUP, ROUTES, Server, route, version};

const JSON: &str = "content-type: application/json";
const MERGE: &str = "content-type: application/merge-patch+json";
const JSON_PATCH: &str = "content-type: application/json-patch+json";
const STRATEGIC: &str = "content-type: application/strategic-merge-patch+json";

struct Case {
    what: &'static str,
    request: (&'static str, &'static str),
    headers: &'static [&'static str],
    body: Value,
    code: u16,
    reason: &'static str,
    /// Must be in the message.
    message: &'static str,
}

fn case(
    what: &'static str,
    request: (&'static str, &'static str),
    headers: &'static [&'static str],
    body: Value,
    code: u16,
    reason: &'static str,
    message: &'static str,
) -> Case {
    Case { what, request, headers, body, code, reason, message }
}

#[tokio::test]
async fn table() {
    let server = Server::start().await;
    let created = server.post(ROUTES, &route("x")).await.expect(201);
    let with = |change: fn(&mut Value)| {
        let mut object = route("y");
        change(&mut object);
        object
    };
    let x = "/apis/signpost.dev/v1alpha1/namespaces/default/routes/x";
    let nosuch = "/apis/signpost.dev/v1alpha1/namespaces/default/routes/nosuch";
    let stale = {
        let mut object = created.clone();
        object["metadata"]["resourceVersion"] = json!("1");
        object["spec"]["path"] = json!("/p");
        object
    };
    let other_uid = {
        let mut object = created.clone();
        object["metadata"]["uid"] = json!("other");
        object
    };
    let unversioned = {
        let mut object = created.clone();
        object["metadata"]["resourceVersion"] = json!("");
        object
    };
    let cases = [
        case(
            "no such object",
            ("GET", nosuch),
            &[],
            json!(null),
            404,
            "NotFound",
            "routes.signpost.dev \"nosuch\" not found",
        ),
        case("deleting none", ("DELETE", nosuch), &[], json!(null), 404, "NotFound", "not found"),
        case(
            "PUT does not create",
            ("PUT", nosuch),
            &[JSON],
            {
                let mut object = route("nosuch");
                object["metadata"]["resourceVersion"] = json!("5");
                object
            },
            404,
            "NotFound",
            "not found",
        ),
        case(
            "no such namespace",
            ("POST", "/apis/signpost.dev/v1alpha1/namespaces/none/routes"),
            &[JSON],
            route("a"),
            404,
            "NotFound",
            "namespaces \"none\" not found",
        ),
        case(
            "it exists",
            ("POST", ROUTES),
            &[JSON],
            route("x"),
            409,
            "AlreadyExists",
            "routes.signpost.dev \"x\" already exists",
        ),
        case(
            "it exists, and is not valid",
            ("POST", ROUTES),
            &[JSON],
            {
                let mut object = route("x");
                object["spec"]["host"] = json!("no_good");
                object
            },
            422,
            "Invalid",
            "spec.host",
        ),
        case(
            "stale",
            ("PUT", x),
            &[JSON],
            stale,
            409,
            "Conflict",
            "Operation cannot be fulfilled on routes.signpost.dev \"x\": the object has been modified",
        ),
        case(
            "stale in a patch",
            ("PATCH", x),
            &[MERGE],
            json!({"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}}),
            409,
            "Conflict",
            "Operation cannot be fulfilled on routes.signpost.dev \"x\": the object has been modified",
        ),
        case("another uid", ("PUT", x), &[JSON], other_uid, 409, "Conflict", "UID in precondition: other"),
        case(
            "another uid in a patch",
            ("PATCH", x),
            &[MERGE],
            json!({"metadata": {"uid": "other"}}),
            422,
            "Invalid",
            "immutable",
        ),
        case(
            "no version",
            ("PUT", x),
            &[JSON],
            unversioned,
            422,
            "Invalid",
            "metadata.resourceVersion: Invalid value: 0x0: must be specified for an update",
        ),
        case(
            "another name",
            ("PUT", x),
            &[JSON],
            with(|_| ()),
            400,
            "BadRequest",
            "does not match the name on the URL",
        ),
        case(
            "another namespace",
            ("POST", ROUTES),
            &[JSON],
            with(|o| o["metadata"]["namespace"] = json!("z")),
            400,
            "BadRequest",
            "namespace",
        ),
        case(
            "a version at create",
            ("POST", ROUTES),
            &[JSON],
            with(|o| o["metadata"]["resourceVersion"] = json!("1")),
            400,
            "BadRequest",
            "resourceVersion",
        ),
        case(
            "wrong kind",
            ("POST", ROUTES),
            &[JSON],
            with(|o| o["kind"] = json!("Router")),
            422,
            "Invalid",
            "kind: Invalid value: \"Router\": must be Route",
        ),
        case(
            "wrong version",
            ("POST", ROUTES),
            &[JSON],
            with(|o| o["apiVersion"] = json!("signpost.dev/v1")),
            400,
            "BadRequest",
            "does not match the expected API version",
        ),
        case(
            "no name",
            ("POST", ROUTES),
            &[JSON],
            with(|o| o["metadata"] = json!({})),
            422,
            "Invalid",
            "metadata.name: Required value",
        ),
        case(
            "bad name",
            ("POST", ROUTES),
            &[JSON],
            with(|o| o["metadata"]["name"] = json!("A_b")),
            422,
            "Invalid",
            "metadata.name",
        ),
        case(
            "bad type",
            ("POST", ROUTES),
            &[JSON],
            with(|o| o["spec"]["path"] = json!(5)),
            422,
            "Invalid",
            "spec.path",
        ),
        case(
            "bad label",
            ("POST", ROUTES),
            &[JSON],
            with(|o| o["metadata"]["labels"] = json!({"a b": "c"})),
            422,
            "Invalid",
            "metadata.labels",
        ),
        case(
            "unknown field, strict",
            ("POST", "/apis/signpost.dev/v1alpha1/namespaces/default/routes?fieldValidation=Strict"),
            &[JSON],
            with(|o| o["spec"]["bogus"] = json!(1)),
            400,
            "BadRequest",
            "strict decoding error: unknown field \"spec.bogus\"",
        ),
        case(
            "unknown field in a patch, strict",
            ("PATCH", "/apis/signpost.dev/v1alpha1/namespaces/default/routes/x?fieldValidation=Strict"),
            &[MERGE],
            json!({"spec": {"bogus": 1}}),
            422,
            "Invalid",
            "strict decoding error: unknown field \"spec.bogus\"",
        ),
        case(
            "bad dryRun",
            ("POST", "/apis/signpost.dev/v1alpha1/namespaces/default/routes?dryRun=Bar"),
            &[JSON],
            route("y"),
            422,
            "Invalid",
            "CreateOptions.meta.k8s.io \"\" is invalid: dryRun",
        ),
        case(
            "bad fieldValidation",
            ("POST", "/apis/signpost.dev/v1alpha1/namespaces/default/routes?fieldValidation=Foo"),
            &[JSON],
            route("y"),
            422,
            "Invalid",
            "fieldValidation",
        ),
        case(
            "force on a merge patch",
            ("PATCH", "/apis/signpost.dev/v1alpha1/namespaces/default/routes/x?force=true"),
            &[MERGE],
            json!({}),
            422,
            "Invalid",
            "force: Forbidden",
        ),
        case(
            "apply without a manager",
            ("PATCH", x),
            &["content-type: application/apply-patch+yaml"],
            route("x"),
            422,
            "Invalid",
            "fieldManager: Required value",
        ),
        case(
            "initial events of a list",
            ("GET", "/apis/signpost.dev/v1alpha1/namespaces/default/routes?sendInitialEvents=true"),
            &[],
            json!(null),
            422,
            "Invalid",
            "sendInitialEvents",
        ),
        case(
            "strategic patch",
            ("PATCH", x),
            &[STRATEGIC],
            json!({}),
            415,
            "UnsupportedMediaType",
            "application/merge-patch+json",
        ),
        case(
            "unknown body type",
            ("POST", ROUTES),
            &["content-type: text/plain"],
            route("y"),
            415,
            "UnsupportedMediaType",
            "application/json",
        ),
        case(
            "protobuf for our kinds",
            ("POST", ROUTES),
            &["content-type: application/vnd.kubernetes.protobuf"],
            route("y"),
            415,
            "UnsupportedMediaType",
            "application/json",
        ),
        case(
            "protobuf answers",
            ("GET", ROUTES),
            &["accept: application/vnd.kubernetes.protobuf"],
            json!(null),
            406,
            "NotAcceptable",
            "application/json",
        ),
        case(
            "failed test",
            ("PATCH", x),
            &[JSON_PATCH],
            json!([{"op": "test", "path": "/spec/path", "value": "/no"}]),
            422,
            "Invalid",
            "",
        ),
        case(
            "path not there",
            ("PATCH", x),
            &[JSON_PATCH],
            json!([{"op": "remove", "path": "/spec/nosuch"}]),
            422,
            "Invalid",
            "",
        ),
        case("no list of operations", ("PATCH", x), &[JSON_PATCH], json!({}), 400, "BadRequest", ""),
        case(
            "a method that is not",
            ("POST", x),
            &[JSON],
            route("x"),
            405,
            "MethodNotAllowed",
            "does not allow this method",
        ),
        case(
            "deleting default",
            ("DELETE", "/api/v1/namespaces/default"),
            &[],
            json!(null),
            403,
            "Forbidden",
            "default",
        ),
        case(
            "a field that cannot be selected by",
            ("GET", "/apis/signpost.dev/v1alpha1/routes?fieldSelector=status.nosuch=x"),
            &[],
            json!(null),
            400,
            "BadRequest",
            "field label not supported: status.nosuch",
        ),
        case(
            "a broken selector",
            ("GET", "/apis/signpost.dev/v1alpha1/routes?labelSelector=a%20in%20b"),
            &[],
            json!(null),
            400,
            "BadRequest",
            "unable to parse requirement",
        ),
        case(
            "a broken version",
            ("GET", "/apis/signpost.dev/v1alpha1/routes?resourceVersion=x"),
            &[],
            json!(null),
            400,
            "BadRequest",
            "invalid resource version",
        ),
        case(
            "a broken token",
            ("GET", "/apis/signpost.dev/v1alpha1/routes?continue=x"),
            &[],
            json!(null),
            400,
            "BadRequest",
            "continue",
        ),
        case(
            "a set status",
            ("POST", ROUTES),
            &[JSON],
            with(|o| o["status"] = json!({"phase": "scheduled", "dns": "x.example"})),
            422,
            "Invalid",
            "status",
        ),
        case(
            "bad propagation",
            ("DELETE", "/apis/signpost.dev/v1alpha1/namespaces/default/routes/x?propagationPolicy=No"),
            &[],
            json!(null),
            422,
            "Invalid",
            "propagationPolicy",
        ),
        case(
            "a wrong precondition",
            ("DELETE", x),
            &[JSON],
            json!({"preconditions": {"uid": "other"}}),
            409,
            "Conflict",
            "UID in precondition: other",
        ),
    ];
    for case in cases {
        let body = if case.body.is_null() { String::new() } else { case.body.to_string() };
        let reply = server.send(case.request.0, case.request.1, case.headers, body).await;
        let status = reply.json();
        let found = (reply.status, status["reason"].as_str().unwrap_or_default());
        assert_eq!(found, (case.code, case.reason), "{}: {}", case.what, reply.text);
        assert_eq!(status["code"], case.code, "{}", case.what);
        assert_eq!((&status["kind"], &status["status"]), (&json!("Status"), &json!("Failure")), "{}", case.what);
        let message = status["message"].as_str().unwrap_or_default();
        assert!(message.contains(case.message), "{}: {message}", case.what);
    }
    let unchanged = server.get(x).await.expect(200);
    assert_eq!(version(&unchanged), version(&created), "nothing of all that was written");
}

#[tokio::test]
async fn a_failure_names_its_object() {
    let server = Server::start().await;
    let failure = |code: u16, reason: &str, message: &str| {
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
            "reason": reason, "details": {"name": "x", "group": "signpost.dev", "kind": "routes"}, "code": code})
    };
    let missing = server.get(&format!("{ROUTES}/x")).await;
    assert_eq!(missing.headers["content-type"], "application/json");
    assert_eq!(missing.expect(404), failure(404, "NotFound", "routes.signpost.dev \"x\" not found"));
    server.post(ROUTES, &route("x")).await.expect(201);
    let exists = server.post(ROUTES, &route("x")).await.expect(409);
    assert_eq!(exists, failure(409, "AlreadyExists", "routes.signpost.dev \"x\" already exists"));
}

#[tokio::test]
async fn broken_bodies() {
    let server = Server::start().await;
    let deep = format!("{}1{}", "[".repeat(2_000), "]".repeat(2_000));
    for (what, content_type, body, code) in [
        ("empty", "application/json", String::new(), 400),
        ("half", "application/json", "{".to_owned(), 400),
        ("no object", "application/json", "5".to_owned(), 400),
        (
            "deep",
            "application/json",
            format!(r#"{{"apiVersion":"signpost.dev/v1alpha1","kind":"Route","spec":{deep}}}"#),
            400,
        ),
        ("bad YAML", "application/yaml", "a: [".to_owned(), 400),
        ("too large", "application/json", format!("\"{}\"", "a".repeat(3 * 1024 * 1024)), 413),
    ] {
        let reply = server.send("POST", ROUTES, &[&format!("content-type: {content_type}")], body).await;
        assert_eq!(reply.status, code, "{what}: {}", reply.text);
    }
    let protobuf = ["content-type: application/vnd.kubernetes.protobuf"];
    for body in [&b""[..], b"k8s\0", b"k8s\0\x1a\0", b"k8s\0\x0a\xff\xff\xff\xff\x0f", b"xxxx"] {
        let namespaces = "/api/v1/namespaces";
        let identity = Some(crate::support::admin());
        let reply = server.send_as(identity, "POST", namespaces, &protobuf, body.to_vec()).await;
        assert_eq!(reply.status, 400, "{body:?}: {}", reply.text);
    }
}

#[tokio::test]
async fn one_cause_for_each_fault() {
    let server = Server::start().await;
    let mut object = route("y");
    object["spec"] = json!({"host": "no_good", "path": 5, "to": {"name": ""}});
    let status = server.post(ROUTES, &object).await.expect(422);
    let mut fields: Vec<&str> = status["details"]["causes"]
        .as_array()
        .expect("causes")
        .iter()
        .filter_map(|cause| cause["field"].as_str())
        .collect();
    fields.sort_unstable();
    fields.dedup();
    assert_eq!(fields, ["spec.host", "spec.path", "spec.to.name"], "{status}");
    assert_eq!(status["details"]["kind"], "Route");
    assert_eq!(server.get(&format!("{ROUTES}/y")).await.status, 404);
}

#[tokio::test]
async fn unknown_and_duplicate_fields_are_reported() {
    let server = Server::start().await;
    let body = r#"{"apiVersion":"signpost.dev/v1alpha1","kind":"Route","metadata":{"name":"w"},
        "spec":{"bogus":1,"path":"/a","path":"/b"}}"#;
    let reply = server.send("POST", ROUTES, &["content-type: application/json"], body).await;
    let warnings: Vec<_> = reply.headers.get_all("warning").iter().filter_map(|value| value.to_str().ok()).collect();
    assert_eq!(warnings, [r#"299 - "duplicate field \"spec.path\"""#, r#"299 - "unknown field \"spec.bogus\"""#]);
    let object = reply.expect(201);
    assert_eq!(object["spec"].get("bogus"), None);
    let ignored = format!("{GROUP}/namespaces/default/routes?fieldValidation=Ignore");
    let reply =
        server.send("POST", &ignored, &["content-type: application/json"], body.replace("\"w\"", "\"v\"")).await;
    assert_eq!((reply.status, reply.headers.get("warning")), (201, None));
    let strict = format!("{GROUP}/namespaces/default/routes?fieldValidation=Strict");
    let reply = server.send("POST", &strict, &["content-type: application/json"], body.replace("\"w\"", "\"u\"")).await;
    assert!(reply.text.contains("duplicate field"), "{}", reply.text);
    assert_eq!(reply.status, 400);
}

#[tokio::test]
async fn paths_that_are_nothing() {
    let server = Server::start().await;
    for path in [
        "/nothing",
        "/apis/none.example/v1/things",
        "/apis/signpost.dev/v1alpha1/things",
        "/apis/signpost.dev/v9/routes",
        "/openapi/v4",
    ] {
        let reply = server.get(path).await;
        assert_eq!((reply.status, reply.text.trim_end()), (404, "404 page not found"), "{path}");
        assert!(reply.headers["content-type"].to_str().expect("text").starts_with("text/plain"));
    }
    for path in [
        "/api/v1/nosuchthings",
        "/api/v2/namespaces",
        "/api/v1/namespaces/default/pods",
        "/apis/events.k8s.io/v1/nosuchthings",
        "/apis/events.k8s.io/v9/events",
    ] {
        let expected = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "details": {}, "code": 404,
            "reason": "NotFound", "message": "the server could not find the requested resource",
        });
        assert_eq!(server.get(path).await.expect(404), expected, "{path}");
    }
}
