//! Sources with a cluster: an API server that serves kinds of Gateway API as plain data.

use std::net::SocketAddr;
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use futures::StreamExt as _;

use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
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
use signpost_testing::{DataDir, Kubectl, Ports, Server, dig, eventually, free_address};
use tokio_util::sync::CancellationToken;

const GROUP: &str = "gateway.networking.k8s.io";

/// Any fields.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
pub(super) struct Free {
    #[serde(flatten)]
    #[schemars(skip)]
    fields: Map<String, Value>,
}

/// Makes the type of the spec of a kind that this program does not serve.
macro_rules! foreign {
    ($Spec:ident, $kind:literal, $group:literal $(, $scope:ident)?) => {
        #[derive(CustomResource, Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[kube(group = $group, version = "v1", kind = $kind, status = "Free" $(, $scope)?)]
        #[schemars(extend("x-kubernetes-preserve-unknown-fields" = true))]
        struct $Spec {
            #[serde(flatten)]
            #[schemars(skip)]
            fields: Map<String, Value>,
        }
    };
}

foreign!(GatewayClassSpec, "GatewayClass", "gateway.networking.k8s.io");
foreign!(GatewaySpec, "Gateway", "gateway.networking.k8s.io", namespaced);
foreign!(ListenerSetSpec, "ListenerSet", "gateway.networking.k8s.io", namespaced);
foreign!(HTTPRouteSpec, "HTTPRoute", "gateway.networking.k8s.io", namespaced);
foreign!(GRPCRouteSpec, "GRPCRoute", "gateway.networking.k8s.io", namespaced);
foreign!(TLSRouteSpec, "TLSRoute", "gateway.networking.k8s.io", namespaced);
foreign!(InfrastructureSpec, "Infrastructure", "config.openshift.io");
foreign!(IngressControllerSpec, "IngressController", "operator.openshift.io", namespaced);
foreign!(OpenShiftRouteSpec, "Route", "route.openshift.io", namespaced);

pub(super) static CLASS: LazyLock<Kind> = LazyLock::new(Kind::of::<GatewayClass>);
pub(super) static GATEWAY: LazyLock<Kind> = LazyLock::new(Kind::of::<Gateway>);
pub(super) static ROUTE: LazyLock<Kind> = LazyLock::new(Kind::of::<HTTPRoute>);
pub(super) static LISTENER_SET: LazyLock<Kind> = LazyLock::new(Kind::of::<ListenerSet>);
pub(super) static GRPC_ROUTE: LazyLock<Kind> = LazyLock::new(Kind::of::<GRPCRoute>);
pub(super) static TLS_ROUTE: LazyLock<Kind> = LazyLock::new(Kind::of::<TLSRoute>);
pub(super) static INFRASTRUCTURE: LazyLock<Kind> = LazyLock::new(Kind::of::<Infrastructure>);
pub(super) static CONTROLLER: LazyLock<Kind> = LazyLock::new(Kind::of::<IngressController>);
pub(super) static OPENSHIFT_ROUTE: LazyLock<Kind> = LazyLock::new(Kind::of::<Route>);
pub(super) static SERVICE: LazyLock<Kind> = LazyLock::new(built_in::<k8s_openapi::api::core::v1::Service>);
pub(super) static INGRESS: LazyLock<Kind> = LazyLock::new(built_in::<k8s_openapi::api::networking::v1::Ingress>);
pub(super) static INGRESS_CLASS: LazyLock<Kind> =
    LazyLock::new(built_in::<k8s_openapi::api::networking::v1::IngressClass>);
pub(super) static ENDPOINT_SLICE: LazyLock<Kind> =
    LazyLock::new(built_in::<k8s_openapi::api::discovery::v1::EndpointSlice>);

/// Returns a kind of Kubernetes.
fn built_in<T: k8s_openapi::Resource + JsonSchema>() -> Kind {
    let (has_status, namespaced) = (["Service", "Ingress"].contains(&T::KIND), T::KIND != "IngressClass");
    Kind { has_status, namespaced, ..Kind::built_in::<T>([]) }
}

struct PlainData;

impl Hooks for PlainData {}

/// The behavior of a cluster instead of an answer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Away,
    /// HTTPRoutes may not be read.
    Forbidden,
    /// The definition of HTTPRoutes is gone.
    Removed,
}

/// The fault, and the watches that the next fault cuts.
#[derive(Clone)]
struct Faults(Arc<Mutex<(Fault, CancellationToken)>>);

impl Faults {
    fn set(&self, fault: Fault) {
        let mut state = self.0.lock().expect("no test panics with it");
        state.1.cancel();
        *state = (fault, CancellationToken::new());
    }
}

async fn with_faults(State(faults): State<Faults>, request: Request, next: Next) -> Response {
    let (fault, cut) = faults.0.lock().expect("no test panics with it").clone();
    let path = request.uri().path().to_owned();
    let is_of_routes = path.ends_with("/httproutes");
    let response = match fault {
        Fault::Away => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Fault::Forbidden if is_of_routes => return status(StatusCode::FORBIDDEN),
        Fault::Removed if is_of_routes => return status(StatusCode::NOT_FOUND),
        _ => next.run(request).await,
    };
    let (parts, body) = response.into_parts();
    if fault == Fault::Removed && path == format!("/apis/{GROUP}/v1") {
        let text = axum::body::to_bytes(body, usize::MAX).await.expect("a list");
        let mut list: Value = serde_json::from_slice(&text).expect("JSON");
        list["resources"].as_array_mut().expect("a list").retain(|resource| resource["kind"] != "HTTPRoute");
        return json_response(StatusCode::OK, &list);
    }
    Response::from_parts(parts, Body::from_stream(body.into_data_stream().take_until(cut.cancelled_owned())))
}

fn status(code: StatusCode) -> Response {
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "simulated", "reason": code.canonical_reason(), "code": code.as_u16()});
    json_response(code, &status)
}

fn json_response(code: StatusCode, body: &Value) -> Response {
    (code, [("content-type", "application/json")], body.to_string()).into_response()
}

/// A running cluster.
pub(super) struct Cluster {
    pub(super) address: SocketAddr,
    client: Client,
    faults: Faults,
}

/// Starts a cluster with these objects.
async fn cluster(objects: &[Value], stop: CancellationToken) -> Cluster {
    cluster_of(&[&CLASS, &GATEWAY, &ROUTE], objects, stop).await
}

/// Starts a cluster that serves these kinds.
pub(super) async fn cluster_of(kinds: &[&'static Kind], objects: &[Value], stop: CancellationToken) -> Cluster {
    let kinds: Vec<_> = kinds.iter().map(|kind| (*kind, Arc::new(PlainData) as Arc<dyn Hooks>)).collect();
    let settings = Settings::new(
        Kinds::new(kinds).with_namespaces(&["infra", "openshift-ingress-operator", "shop"]),
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
    let faults = Faults(Arc::new(Mutex::new((Fault::None, CancellationToken::new()))));
    let router = router.layer(from_fn_with_state(faults.clone(), with_faults));
    tokio::spawn(async move { axum::serve(listener, router).await });
    Cluster { address, client, faults }
}

/// Returns the API of the objects of this kind.
fn api(client: &Client, kind: &str, namespace: Option<&str>) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk(GROUP, "v1", kind));
    match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    }
}

/// Creates an object with its status.
async fn create(client: &Client, object: &Value) {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    let api = api(client, &text(&object["kind"]), object["metadata"]["namespace"].as_str());
    let created = serde_json::from_value(object.clone()).expect("an object");
    api.create(&PostParams::default(), &created).await.expect("created");
    let status = Patch::Merge(json!({"status": object["status"]}));
    api.patch_status(&text(&object["metadata"]["name"]), &PatchParams::default(), &status).await.expect("reported");
}

pub(super) fn accepted(kind: &str) -> Value {
    json!([{"type": kind, "status": "True", "reason": "R", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z"}])
}

fn route(name: &str, hosts: &Value, conditions: &Value) -> Value {
    let parent = json!({"name": "eu", "namespace": "infra"});
    json!({
        "apiVersion": format!("{GROUP}/v1"), "kind": "HTTPRoute", "metadata": {"name": name, "namespace": "shop"},
        "spec": {"hostnames": hosts, "parentRefs": [parent]},
        "status": {"parents": [{"parentRef": parent, "controllerName": "example.com/envoy", "conditions": conditions}]},
    })
}

fn objects() -> Vec<Value> {
    let api_version = format!("{GROUP}/v1");
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
        route("web", &json!(["web.eu.apps.example.com", "web.other.example"]), &accepted("Accepted")),
        route("refused", &json!(["refused.eu.apps.example.com"]), &json!([])),
    ]
}

#[test]
fn the_sources_of_a_cluster() {
    let (data, stop) = (DataDir::new(), CancellationToken::new());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let cluster = runtime.block_on(cluster(&objects(), stop.clone()));
    let of_cluster = data.kubeconfig(cluster.address);
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

    let unreachable = data.kubeconfig(free_address());
    let ran = run(&["sources", "--domain", "apps.example.com", "--cluster-kubeconfig", &unreachable]);
    assert!(ran.code == Some(1) && ran.err.contains("cannot be read"), "{}", ran.err);
    stop.cancel();
}

/// The answers of a platform that publishes the Gateways of a cluster: after each change, and during each fault of the cluster.
#[test]
fn a_cluster_is_published() {
    let (data, stop) = (DataDir::new(), CancellationToken::new());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let cluster = runtime.block_on(cluster(&objects(), stop.clone()));
    let of_cluster = data.kubeconfig(cluster.address);
    let arguments = [
        "--data-dir",
        data.path(),
        "--domain",
        "apps.example.com",
        "--sources-gateway",
        "publish",
        "--sources-kubeconfig",
        &of_cluster,
    ];
    let server = Server::start(Ports::free(), &arguments);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    // An alias leads to a name in another zone.
    let addresses = |name: &str| {
        let found = dig(server.dns, name, "A", &[]);
        let target = found.data("CNAME").first().map(|target| dig(server.dns, target, "A", &[]));
        target.unwrap_or(found).data("A").join(" ")
    };
    let answers = |name: &str, expected: &str| {
        eventually(&format!("{name} is {expected:?}"), || (addresses(name) == expected).then_some(()));
    };
    // The stable alias of the name of a Route of the cluster.
    let alias = |source: &str| {
        let routes = kubectl.json(&["routes.signpost.dev", "-n", "shop"]);
        let is_it = |route: &&Value| route["metadata"]["annotations"]["signpost.dev/source-object"] == source;
        let route = routes["items"].as_array().expect("a list").iter().find(is_it)?;
        route["status"]["canonicalName"].as_str().map(str::to_owned)
    };
    answers("web.eu.apps.example.com", "203.0.113.1");
    let web = eventually("it has an alias", || alias("HTTPRoute shop/web"));
    answers(&web, "203.0.113.1");

    // A new name, another address, and a name that is no longer admitted.
    let late = route("late", &json!(["late.eu.apps.example.com"]), &accepted("Accepted"));
    runtime.block_on(create(&cluster.client, &late));
    let late = eventually("a new Route has an alias", || alias("HTTPRoute shop/late"));
    answers(&late, "203.0.113.1");
    let gateways = api(&cluster.client, "Gateway", Some("infra"));
    let moved = Patch::Merge(json!({"status": {"addresses": [{"type": "IPAddress", "value": "203.0.113.9"}]}}));
    runtime.block_on(gateways.patch_status("eu", &PatchParams::default(), &moved)).expect("patched");
    answers("web.eu.apps.example.com", "203.0.113.9");
    answers(&late, "203.0.113.9");
    let routes = api(&cluster.client, "HTTPRoute", Some("shop"));
    let report = |parents: &Value| {
        let patch = Patch::Merge(json!({"status": {"parents": parents}}));
        runtime.block_on(routes.patch_status("late", &PatchParams::default(), &patch)).expect("patched");
    };
    // A controller that restarts removes its entry, which does not refuse the Route.
    report(&json!([]));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(addresses(&late), "203.0.113.9");
    let parent = json!({"name": "eu", "namespace": "infra"});
    let mut refusal = accepted("Accepted");
    refusal[0]["status"] = "False".into();
    report(&json!([{"parentRef": parent, "controllerName": "example.com/envoy", "conditions": refusal}]));
    answers(&late, "");
    assert_eq!(alias("HTTPRoute shop/late"), None);

    // Unknown is not empty: longer than the interval of discovery.
    for fault in [Fault::Away, Fault::Forbidden, Fault::Removed] {
        cluster.faults.set(fault);
        std::thread::sleep(Duration::from_secs(12));
        assert_eq!(
            (addresses("web.eu.apps.example.com"), addresses(&web)),
            ("203.0.113.9".into(), "203.0.113.9".into())
        );
        cluster.faults.set(Fault::None);
    }

    // It follows again, and a Gateway that is deleted goes with its names.
    let again = route("again", &json!(["again.eu.apps.example.com"]), &accepted("Accepted"));
    runtime.block_on(create(&cluster.client, &again));
    let again = eventually("a new Route has an alias", || alias("HTTPRoute shop/again"));
    answers(&again, "203.0.113.9");
    runtime.block_on(routes.delete("again", &DeleteParams::default())).expect("deleted");
    answers(&again, "");
    runtime.block_on(gateways.delete("eu", &DeleteParams::default())).expect("deleted");
    eventually("its name does not exist", || {
        (dig(server.dns, "web.eu.apps.example.com", "A", &[]).status == "NXDOMAIN").then_some(())
    });
    stop.cancel();
}
