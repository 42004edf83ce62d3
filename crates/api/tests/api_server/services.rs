//! Services and EndpointSlices: defaults, the keys of their lists, their status, and a quota.

use serde_json::{Value, json};

use crate::support::Server;

const SERVICES: &str = "/api/v1/namespaces/default/services";
const SLICES: &str = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";

fn service(name: &str, port: &Value) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [port]}})
}

/// The patches are those of `kubectl edit`.
#[tokio::test]
async fn a_strategic_patch_finds_a_port_by_its_number() {
    let server = Server::start().await;
    server.post(SERVICES, &service("web", &json!({"name": "http", "port": 80}))).await.expect(201);
    let https = json!({"name": "https", "port": 443, "protocol": "TCP", "targetPort": 443});
    let http = json!({"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"});
    for (patch, expected) in [
        (
            json!({"$setElementOrder/ports": [{"port": 443}, {"port": 80}],
                "ports": [{"name": "https", "port": 443}, {"port": 80, "targetPort": "web"}]}),
            json!([https, http]),
        ),
        (
            json!({"$setElementOrder/ports": [{"port": 80}], "ports": [{"$patch": "delete", "port": 443}]}),
            json!([http]),
        ),
    ] {
        let headers = ["content-type: application/strategic-merge-patch+json"];
        let body = json!({"spec": patch}).to_string();
        let patched = server.send("PATCH", &format!("{SERVICES}/web"), &headers, body).await.expect(200);
        assert_eq!(patched["spec"]["ports"], expected, "{patch}");
    }
}

#[tokio::test]
async fn an_apply_finds_a_port_by_its_number_and_protocol() {
    let server = Server::start().await;
    let apply = |manager: &'static str, port: Value| {
        let (server, headers) = (&server, ["content-type: application/apply-patch+yaml"]);
        let path = format!("{SERVICES}/both?fieldManager={manager}");
        async move { server.send("PATCH", &path, &headers, service("both", &port).to_string()).await }
    };
    let made = apply("one", json!({"name": "a", "port": 53})).await.expect(201);
    assert_eq!(
        made["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]["f:ports"],
        json!({"k:{\"port\":53,\"protocol\":\"TCP\"}": {".": {}, "f:name": {}, "f:port": {}}})
    );
    let both = apply("two", json!({"name": "b", "port": 53, "protocol": "UDP"})).await.expect(200);
    let ports = both["spec"]["ports"].as_array().expect("ports").iter();
    let ports: Vec<_> = ports.map(|port| (&port["name"], &port["protocol"])).collect();
    assert_eq!(ports, [(&json!("a"), &json!("TCP")), (&json!("b"), &json!("UDP"))]);
}

#[tokio::test]
async fn the_status_is_written_apart() {
    let server = Server::start().await;
    server.post(SERVICES, &service("web", &json!({"port": 80}))).await.expect(201);
    let status = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}});
    let dropped = server.merge(&format!("{SERVICES}/web"), &status).await.expect(200);
    assert_eq!(dropped.get("status"), None, "{dropped}");
    let written = server.merge(&format!("{SERVICES}/web/status"), &status).await.expect(200);
    assert_eq!(written["status"], status["status"]);
}

#[tokio::test]
async fn endpoint_slices_have_defaults_and_a_quota() {
    let server = Server::start().await;
    let slice = |name: &str| {
        json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": {"name": name},
            "addressType": "IPv4", "endpoints": [{"addresses": ["192.0.2.7"]}], "ports": [{"port": 8080}]})
    };
    let made = server.post(SLICES, &slice("web-1")).await.expect(201);
    assert_eq!(made["ports"], json!([{"name": "", "port": 8080, "protocol": "TCP"}]));
    let quota = json!({"metadata": {"annotations": {"signpost.dev/max-endpoint-slices": "1"}}});
    server.merge("/api/v1/namespaces/default", &quota).await.expect(200);
    let refused = server.post(SLICES, &slice("web-2")).await.expect(403);
    let expected = "exceeded quota: namespace-endpoint-slices, requested: endpoint-slices=1, used: endpoint-slices=1, \
                    limited: endpoint-slices=1";
    assert!(refused["message"].as_str().is_some_and(|message| message.contains(expected)), "{refused}");
}
