//! Permissions, and access reviews.

use serde_json::json;
use signpost_api::identity::{Identity, USER_NAME_SERVER};

use crate::support::{GROUP, ROUTES, Server, TOKEN, admin, route};

#[tokio::test]
async fn credentials() {
    let server = Server::start().await;
    let bearer = format!("authorization: Bearer {TOKEN}");
    for (what, headers, path, code) in [
        ("anonymous version", &[][..], "/version", 200),
        ("anonymous health", &[], "/readyz?verbose", 200),
        ("anonymous discovery", &[], "/apis", 403),
        ("anonymous list", &[], ROUTES, 403),
        ("anonymous nothing", &[], "/nothing", 403),
        ("wrong token", &["authorization: Bearer wrong"], "/version", 401),
        ("token", &[&bearer], ROUTES, 200),
        ("token elsewhere", &[&bearer], "/apis/signpost.dev/v1alpha1/namespaces/kube-system/routes", 403),
        ("token everywhere", &[&bearer], "/apis/signpost.dev/v1alpha1/routes", 403),
        ("token discovery", &[&bearer], "/apis", 200),
        ("token impersonates", &[&bearer, "impersonate-user: root"], ROUTES, 403),
    ] {
        let reply = server.send_as(None, "GET", path, headers, Vec::new()).await;
        assert_eq!(reply.status, code, "{what}: {}", reply.text);
    }
    let refused = server.send_as(None, "GET", ROUTES, &[], Vec::new()).await.expect(403);
    assert_eq!(
        refused["message"],
        "routes.signpost.dev is forbidden: User \"system:anonymous\" cannot list resource \"routes\" in API group \
         \"signpost.dev\" in the namespace \"default\""
    );
}

#[tokio::test]
async fn a_name_server_reads_and_no_more() {
    let server = Server::start().await;
    let identity = || Some(Identity::user(USER_NAME_SERVER));
    for (method, path, code) in [
        ("GET", format!("{GROUP}/routes"), 200),
        ("GET", format!("{GROUP}/zones"), 200),
        ("GET", "/api/v1/namespaces".to_owned(), 200),
        ("GET", "/api/v1/events".to_owned(), 403),
        ("POST", ROUTES.to_owned(), 403),
        ("DELETE", format!("{GROUP}/routers/x"), 403),
    ] {
        let reply = server.send_as(identity(), method, &path, &[], route("a").to_string().into_bytes()).await;
        assert_eq!(reply.status, code, "{method} {path}: {}", reply.text);
    }
}

#[tokio::test]
async fn reviews() {
    let server = Server::start().await;
    let access = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let ask = |verb: &str, namespace: &str| {
        json!({"spec": {"resourceAttributes":
            {"verb": verb, "group": "signpost.dev", "resource": "routes", "namespace": namespace}}})
        .to_string()
    };
    let token = format!("authorization: Bearer {TOKEN}");
    let headers = [token.as_str(), "content-type: application/json"];
    for (verb, namespace, allowed) in [("create", "default", true), ("create", "other", false), ("list", "", false)] {
        let answer =
            server.send_as(None, "POST", access, &headers, ask(verb, namespace).into_bytes()).await.expect(201);
        assert_eq!(answer["status"]["allowed"], allowed, "{verb} {namespace}");
    }
    // An administrator may do all to most kinds; bindings are the scheduler's to write.
    for (verb, resource, allowed) in [
        ("*", "routes", true),
        ("*", "routebindings", false),
        ("create", "routebindings", false),
        ("patch", "routebindings", false),
        ("delete", "routebindings", true),
    ] {
        let body = json!({"spec": {"resourceAttributes":
            {"verb": verb, "group": "signpost.dev", "resource": resource, "namespace": "default"}}});
        let answer = server.post(access, &body).await.expect(201);
        assert_eq!(answer["status"]["allowed"], allowed, "{verb} {resource}");
    }
    let rules = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews";
    let body = json!({"spec": {"namespace": "default"}}).to_string().into_bytes();
    let answer = server.send_as(None, "POST", rules, &headers, body).await.expect(201);
    assert_eq!(answer["status"]["incomplete"], false);
    assert!(answer["status"]["resourceRules"].as_array().is_some_and(|rules| rules.len() > 2));
    let who = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = server.send_as(None, "POST", who, &headers, b"{}".to_vec()).await.expect(201);
    assert_eq!(answer["status"]["userInfo"]["username"], "tina");
    let other = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
    let body = json!({"spec": {"user": "x", "groups": ["system:masters"], "resourceAttributes":
        {"verb": "delete", "group": "signpost.dev", "resource": "routers"}}});
    let answer = server
        .send_as(Some(admin()), "POST", other, &["content-type: application/json"], body.to_string().into_bytes())
        .await
        .expect(201);
    assert_eq!(answer["status"]["allowed"], true);
    let refused = server.send_as(None, "POST", other, &headers, body.to_string().into_bytes()).await;
    assert_eq!(refused.status, 403);
}

#[tokio::test]
async fn bodies_in_protobuf() {
    let server = Server::start().await;
    // k8s\0, Unknown{typeMeta{apiVersion: v1, kind: Namespace}, raw: Namespace{metadata{name: proto}}}
    let field = |number: u8, content: &[u8]| {
        [&[number << 3 | 2, u8::try_from(content.len()).expect("short")], content].concat()
    };
    let meta = field(1, b"proto");
    let raw = field(1, &meta);
    let r#type = [field(1, b"v1"), field(2, b"Namespace")].concat();
    let body = [&b"k8s\0"[..], &field(1, &r#type), &field(2, &raw)].concat();
    let headers = [
        "content-type: application/vnd.kubernetes.protobuf",
        "accept: application/vnd.kubernetes.protobuf, application/json",
    ];
    let made = server.send_as(Some(admin()), "POST", "/api/v1/namespaces", &headers, body).await.expect(201);
    assert_eq!(made["metadata"]["name"], "proto");
}
