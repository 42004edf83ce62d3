//! The condition `Programmed`: the instances that have applied a binding, and the response of one of them to a probe.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use axum::http::{HeaderMap, StatusCode};
use axum::response::IntoResponse as _;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::{Value, json};
use signpost_api::identity::{Identity, USER_CONTROLLER, USER_SCHEDULER};
use signpost_api::kinds::{PlatformConfig, server_settings};
use signpost_control::client::lease::{Leadership, Term};
use signpost_control::observe::{instances as leases, programmed};
use signpost_control::reconcile::{self, Reconciler};
use signpost_control::world::{self, World};
use signpost_types::probe::{PROBE_HEADER, ROUTE_HEADER, route_id};
use signpost_types::v1alpha1::name_claim::NameClaim;
use signpost_types::v1alpha1::route::Route;
use signpost_types::v1alpha1::route_binding::RouteBinding;
use signpost_types::v1alpha1::router::{InstanceState, Router};
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::{Agent, PATIENCE, Running, admin};

/// A proxy that answers probes as the test defines.
#[derive(Clone, Default)]
struct Proxy {
    /// The identifier of the Route that it serves, by host.
    served: Arc<Mutex<Option<(String, String)>>>,
}

impl Proxy {
    async fn start(&self) -> SocketAddr {
        let served = self.served.clone();
        let answer = move |headers: HeaderMap| {
            let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default().to_owned();
            let id = served.lock().expect("no panic").clone().filter(|(of, _)| *of == host).map(|(_, id)| id);
            async move {
                assert!(headers.contains_key(PROBE_HEADER));
                match id {
                    Some(id) => (StatusCode::NO_CONTENT, [(ROUTE_HEADER, id)]).into_response(),
                    None => StatusCode::NOT_FOUND.into_response(),
                }
            }
        };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
        address
    }

    fn serve(&self, host: &str, uid: &str) {
        *self.served.lock().expect("no panic") = Some((host.to_owned(), route_id(uid)));
    }
}

/// A platform with a Router, a bound Route and the loops that are under test.
struct Scene {
    platform: Running,
    uid: String,
    metrics: Registry,
    _stop: tokio_util::sync::DropGuard,
}

fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).expect("an object of a test")
}

impl Scene {
    async fn start() -> Scene {
        let platform = Running::start(server_settings(PlatformConfig::new("v3.example"), Arc::default())).await;
        let router = object(json!({
            "apiVersion": "signpost.dev/v1alpha1", "kind": "Router", "metadata": {"name": "shard1"},
            "spec": {"addressesFrom": {"instances": true}},
        }));
        Api::<Router>::all(platform.client(admin())).create(&PostParams::default(), &router).await.expect("created");
        let stop = CancellationToken::new();
        let controller = platform.client(Identity::user(USER_CONTROLLER));
        let world =
            World::new(&platform.client(Identity::user(USER_SCHEDULER)), world::Settings::of_domain("v3.example"));
        let (lead, leadership) = watch::channel(Leadership::Leader(Term::unlimited()));
        let settings = reconcile::Settings { settle: Duration::from_millis(20), ..reconcile::Settings::default() };
        let reconciler = Reconciler::new(controller.clone(), &world, settings, reconcile::Metrics::default());
        let term = stop.clone();
        tokio::spawn(async move {
            reconciler.run(leadership, term).await;
            drop(lead);
        });
        let (counted, mut metrics) = (programmed::Metrics::default(), Registry::default());
        counted.register(&mut metrics);
        tokio::spawn(leases::run(controller.clone(), world.clone(), 50, leases::Metrics::default(), stop.clone()));
        tokio::spawn(programmed::run(controller, world, counted, stop.clone()));
        let uid = bind(&platform).await;
        Scene { platform, uid, metrics, _stop: stop.drop_guard() }
    }

    /// Returns the resource version of the binding.
    async fn revision(&self) -> u64 {
        let bindings = Api::<RouteBinding>::namespaced(self.platform.client(admin()), "default");
        let binding = bindings.get("web").await.expect("it is there");
        binding.metadata.resource_version.and_then(|version| version.parse().ok()).expect("a number")
    }

    async fn report(&self, agent: &Agent) {
        // Longer than any test takes: none of them is about a Lease that expires.
        agent.renew_for(&self.platform.client(admin()), Duration::from_secs(600)).await;
    }

    /// Waits until the condition begins with these words: its status, its reason and its message.
    async fn wait_for(&self, expected: &str) {
        let routes = Api::<Route>::namespaced(self.platform.client(admin()), "default");
        let mut last = String::new();
        let looking = async {
            loop {
                let route = routes.get("web").await.expect("it is there");
                let conditions = route.status.map(|status| status.conditions).unwrap_or_default();
                let condition = conditions.iter().find(|condition| condition.type_ == "Programmed");
                last = condition.map_or(String::new(), |it| format!("{} {}: {}", it.status, it.reason, it.message));
                if last.starts_with(expected) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let is_said = tokio::time::timeout(PATIENCE, looking).await.is_ok();
        assert!(is_said, "{expected:?} is not reported, but {last:?}");
    }

    fn metric(&self, name: &str) -> Option<String> {
        let mut text = String::new();
        encode(&mut text, &self.metrics).expect("text");
        text.lines().find_map(|line| Some(line.strip_prefix(name)?.rsplit(' ').next()?.to_owned()))
    }
}

/// Binds a Route as the scheduler does. Returns its UID.
async fn bind(platform: &Running) -> String {
    let routes = Api::<Route>::namespaced(platform.client(admin()), "default");
    let route = object(json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "Route",
        "metadata": {"name": "web", "namespace": "default"}, "spec": {"to": {"name": "web"}}}));
    let uid = routes.create(&PostParams::default(), &route).await.expect("created").metadata.uid.expect("a UID");
    let claim =
        object(json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "NameClaim", "metadata": {"name": "default-web"},
        "spec": {"type": "label", "value": "default-web", "since": "2026-01-01T00:00:00Z",
                 "holder": {"namespace": "default", "name": "web", "uid": uid}}}));
    let scheduler = || platform.client(Identity::user(USER_SCHEDULER));
    Api::<NameClaim>::all(scheduler()).create(&PostParams::default(), &claim).await.expect("claimed");
    let binding = object(json!({"apiVersion": "signpost.dev/v1alpha1", "kind": "RouteBinding",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"routeNamespace": "default", "routeName": "web", "routeUID": uid, "router": "shard1",
            "dns": "shard1.v3.example", "label": "default-web", "strategy": "round-robin",
            "names": [{"name": "default-web.shard1.v3.example", "type": "system"},
                      {"name": "default-web.routes.v3.example", "type": "alias"}]}}));
    let bindings = Api::<RouteBinding>::namespaced(scheduler(), "default");
    bindings.create(&PostParams::default(), &binding).await.expect("bound");
    uid
}

const HOST: &str = "default-web.shard1.v3.example";

#[tokio::test]
async fn each_instance_has_to_apply_it_and_one_to_answer() {
    let scene = Scene::start().await;
    scene.wait_for("False NoInstance: no instance of Router shard1 serves").await;

    let proxy = Proxy::default();
    let address = proxy.start().await;
    let mut agent = Agent { address: address.ip(), port: address.port(), revision: 0, state: InstanceState::Serving };
    scene.report(&agent).await;
    scene.wait_for("False NotApplied: instances of Router shard1 have not applied the Route yet: 127.0.0.1").await;
    let lag = || scene.metric("router_unapplied_routes{router=\"shard1\"}");
    let shows = async |expected: Option<&str>| {
        while lag().as_deref() != expected {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(PATIENCE, shows(Some("1"))).await.expect("the lag is shown");

    // The agent reports the binding as applied, but serves another Route there.
    agent.revision = scene.revision().await;
    proxy.serve(HOST, "another");
    scene.report(&agent).await;
    scene.wait_for(&format!("False ProbeFailed: {address} serves another Route at the name")).await;
    tokio::time::timeout(PATIENCE, shows(None)).await.expect("the lag is over");

    proxy.serve(HOST, &scene.uid);
    scene.wait_for("True Programmed: 1 of 1 live instances of Router shard1 serve the Route").await;
    assert_eq!(scene.metric("routes_not_programmed").as_deref(), Some("0"));

    // Another instance starts, which has applied nothing yet. The condition is not true then.
    let mut other = Agent { address: [127, 0, 0, 2].into(), ..agent.clone() };
    other.revision = 0;
    scene.report(&other).await;
    scene.wait_for("False NotApplied: instances of Router shard1 have not applied the Route yet: 127.0.0.2").await;
    // It leaves before it has.
    other.state = InstanceState::Leaving;
    scene.report(&other).await;
    scene.wait_for("True Programmed: 1 of 1 live instances of Router shard1 serve the Route").await;
}

#[tokio::test]
async fn a_route_that_moves_is_judged_by_its_new_binding() {
    let scene = Scene::start().await;
    let proxy = Proxy::default();
    let address = proxy.start().await;
    proxy.serve(HOST, &scene.uid);
    let revision = scene.revision().await;
    let mut agent = Agent { address: address.ip(), port: address.port(), revision, state: InstanceState::Serving };
    scene.report(&agent).await;
    scene.wait_for("True Programmed").await;

    // The binding has changed, and the instance has not applied it.
    let bindings = Api::<RouteBinding>::namespaced(scene.platform.client(Identity::user(USER_SCHEDULER)), "default");
    let patch = Patch::Merge(json!({"metadata": {"annotations": {"test": "changed"}}}));
    bindings.patch("web", &PatchParams::default(), &patch).await.expect("patched");
    scene.wait_for("False NotApplied").await;
    agent.revision = scene.revision().await;
    scene.report(&agent).await;
    scene.wait_for("True Programmed").await;

    // No instance any more.
    let lease = signpost_types::instance::lease_name("shard1", agent.address, agent.port);
    let leases =
        Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(scene.platform.client(admin()), "default");
    leases.delete(&lease, &DeleteParams::default()).await.expect("deleted");
    scene.wait_for("False NoInstance").await;
}
