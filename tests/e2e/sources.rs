//! `signpost sources` with a cluster: an API server that serves kinds of Gateway API as plain data.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::discovery::ApiResource;
use kube::{Client, CustomResource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use signpost_apiserver::auth::Authenticator;
use signpost_apiserver::auth::identity::{GROUP_MASTERS, Identity};
use signpost_apiserver::auth::rules::MastersOnly;
use signpost_apiserver::kind::Kind;
use signpost_apiserver::registry::Hooks;
use signpost_apiserver::registry::kinds::Kinds;
use signpost_apiserver::store::memory::Memory;
use signpost_apiserver::{ApiServer, Settings};
use signpost_testing::program::{json, ok, run};
use signpost_testing::{DataDir, free_address};
use tokio_util::sync::CancellationToken;

const GROUP: &str = "gateway.networking.k8s.io";

/// Any fields.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
struct Free {
    #[serde(flatten)]
    #[schemars(skip)]
    fields: Map<String, Value>,
}

#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[kube(group = "gateway.networking.k8s.io", version = "v1", kind = "GatewayClass", status = "Free")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
struct GatewayClassSpec {
    #[serde(flatten)]
    #[schemars(skip)]
    fields: Map<String, Value>,
}

#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[kube(group = "gateway.networking.k8s.io", version = "v1", kind = "Gateway", namespaced, status = "Free")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
struct GatewaySpec {
    #[serde(flatten)]
    #[schemars(skip)]
    fields: Map<String, Value>,
}

#[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[kube(group = "gateway.networking.k8s.io", version = "v1", kind = "HTTPRoute", namespaced, status = "Free")]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
struct HTTPRouteSpec {
    #[serde(flatten)]
    #[schemars(skip)]
    fields: Map<String, Value>,
}

static CLASS: LazyLock<Kind> = LazyLock::new(Kind::of::<GatewayClass>);
static GATEWAY: LazyLock<Kind> = LazyLock::new(Kind::of::<Gateway>);
static ROUTE: LazyLock<Kind> = LazyLock::new(Kind::of::<HTTPRoute>);

struct PlainData;

impl Hooks for PlainData {}

/// Starts a cluster with these objects, and returns the address of its API.
async fn cluster(objects: &[Value], stop: CancellationToken) -> SocketAddr {
    let kinds = [&*CLASS, &*GATEWAY, &*ROUTE].map(|kind| (kind, Arc::new(PlainData) as Arc<dyn Hooks>));
    let settings = Settings::new(
        Kinds::new(kinds).with_namespaces(&["infra", "shop"]),
        Arc::new(MastersOnly),
        Arc::new(Authenticator::default()),
    );
    let server = ApiServer::new(Arc::new(Memory::new()), settings);
    let running = server.clone();
    tokio::spawn(async move { running.run(stop).await });
    server.ready().await;
    let operator = Identity { user: "operator".to_owned(), groups: vec![GROUP_MASTERS.to_owned()] };
    let router = server.router().layer(axum::Extension(operator));
    let client = Client::new(router.clone(), "default");
    for object in objects {
        create(&client, object).await;
    }
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let address = listener.local_addr().expect("it is bound");
    tokio::spawn(async move { axum::serve(listener, router).await });
    address
}

/// Creates an object with its status.
async fn create(client: &Client, object: &Value) {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let kind = text(&object["kind"]);
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", &kind));
    let api: Api<DynamicObject> = match object["metadata"]["namespace"].as_str() {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let created = serde_json::from_value(object.clone()).expect("an object");
    api.create(&PostParams::default(), &created).await.expect("created");
    let status = Patch::Merge(json!({"status": object["status"]}));
    api.patch_status(&text(&object["metadata"]["name"]), &PatchParams::default(), &status).await.expect("reported");
}

fn objects() -> Vec<Value> {
    let api_version = format!("{GROUP}/v1");
    let parent = json!({"name": "eu", "namespace": "infra"});
    let accepted = |kind: &str| {
        json!([{"type": kind, "status": "True", "reason": "R", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"}])
    };
    let route = |name: &str, hosts: Value, conditions: Value| {
        json!({
            "apiVersion": api_version, "kind": "HTTPRoute", "metadata": {"name": name, "namespace": "shop"},
            "spec": {"hostnames": hosts, "parentRefs": [parent]},
            "status": {"parents": [{"parentRef": parent, "controllerName": "example.com/envoy", "conditions": conditions}]},
        })
    };
    vec![
        json!({
            "apiVersion": api_version, "kind": "GatewayClass", "metadata": {"name": "envoy"},
            "spec": {"controllerName": "example.com/envoy"}, "status": {"conditions": accepted("Accepted")},
        }),
        json!({
            "apiVersion": api_version, "kind": "Gateway", "metadata": {"name": "eu", "namespace": "infra"},
            "spec": {"gatewayClassName": "envoy", "listeners": [
                {"name": "http", "hostname": "*.eu.apps.example.com", "port": 80, "protocol": "HTTP",
                 "allowedRoutes": {"namespaces": {"from": "All"}}},
            ]},
            "status": {
                "addresses": [{"type": "IPAddress", "value": "203.0.113.1"}], "conditions": accepted("Programmed"),
            },
        }),
        route("web", json!(["web.eu.apps.example.com", "web.other.example"]), accepted("Accepted")),
        route("refused", json!(["refused.eu.apps.example.com"]), json!([])),
    ]
}

#[test]
fn the_sources_of_a_cluster() {
    let (data, stop) = (DataDir::new(), CancellationToken::new());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let address = runtime.block_on(cluster(&objects(), stop.clone()));
    let kubeconfig = |address: SocketAddr| {
        let file = data.join(&format!("{}.kubeconfig", address.port()));
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&file, text.to_string()).expect("written");
        file.to_str().expect("UTF-8").to_owned()
    };
    let of_cluster = kubeconfig(address);
    let arguments = ["sources", "--domain", "apps.example.com", "--cluster-kubeconfig", &of_cluster];
    let derived = json(&arguments);
    assert_eq!(derived["shards"][0]["dns"], "eu.apps.example.com", "{derived}");
    assert_eq!(derived["shards"][0]["addresses"], json!(["203.0.113.1"]));
    assert_eq!(derived["names"][0]["host"], "web.eu.apps.example.com");
    assert_eq!(derived["names"].as_array().map(Vec::len), Some(1), "{derived}");
    let notes: Vec<&Value> = derived["notes"].as_array().expect("a list").iter().map(|note| &note["reason"]).collect();
    assert_eq!(notes, ["NotAdmitted", "HostNotServed"], "{derived}");
    assert_eq!(ok(&[&arguments[..], &["-o", "name"]].concat()), "web.eu.apps.example.com\n");
    let table = ok(&arguments);
    for part in ["listener http of Gateway infra/eu", "HTTPRoute shop/web", "203.0.113.1", "NotAdmitted"] {
        assert!(table.contains(part), "{part:?} is not in\n{table}");
    }

    // The same objects in a file.
    let file = data.join("objects.yaml");
    let documents: Vec<String> = objects().iter().map(Value::to_string).collect();
    std::fs::write(&file, documents.join("\n---\n")).expect("written");
    let file = file.to_str().expect("UTF-8");
    assert_eq!(json(&["sources", "--domain", "apps.example.com", "-f", file]), derived);

    let unreachable = kubeconfig(free_address());
    let ran = run(&["sources", "--domain", "apps.example.com", "--cluster-kubeconfig", &unreachable]);
    assert!(ran.code == Some(1) && ran.err.contains("cannot be read"), "{}", ran.err);
    stop.cancel();
}
