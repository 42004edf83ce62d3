//! The condition `Programmed`: the instances that have applied a binding and a Route, and the response of one of them to a probe; and the
//! condition `CertificateReady`.

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
use signpost_control::observe::{certificates, instances as leases, programmed};
use signpost_control::reconcile::{self, Reconciler};
use signpost_control::world::{self, World};
use signpost_types::instance::{CertificateReport, CertificatesReport, ServedCertificate};
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
        tokio::spawn(certificates::run(world.clone(), certificates::Metrics::default(), stop.clone()));
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

    fn routes(&self) -> Api<Route> {
        Api::namespaced(self.platform.client(admin()), "default")
    }

    async fn patch(&self, patch: Value) {
        self.routes().patch("web", &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    }

    /// Lets agents apply the present objects and report that, until the Route is programmed at this generation.
    async fn apply(&self, agents: &mut [Agent], generation: i64) {
        let applying = async {
            while !matches!(self.condition("Programmed").await, (said, Some(at)) if said.starts_with("True") && at == generation)
            {
                let route = self.routes().get("web").await.expect("it is there");
                for agent in &mut *agents {
                    agent.routes = route.metadata.resource_version.as_ref().and_then(|version| version.parse().ok());
                    agent.revision = self.revision().await;
                    self.report(agent).await;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(PATIENCE, applying).await.expect("it is programmed");
    }

    async fn report(&self, agent: &Agent) {
        // Longer than any test takes: none of them is about a Lease that expires.
        agent.renew_for(&self.platform.client(admin()), Duration::from_secs(600)).await;
    }

    /// Returns a condition as its status, reason and message, and its generation.
    async fn condition(&self, kind: &str) -> (String, Option<i64>) {
        let route = self.routes().get("web").await.expect("it is there");
        let conditions = route.status.map(|status| status.conditions).unwrap_or_default();
        let found = conditions.iter().find(|condition| condition.type_ == kind);
        let said = found.map_or(String::new(), |it| format!("{} {}: {}", it.status, it.reason, it.message));
        (said, found.and_then(|found| found.observed_generation))
    }

    /// Waits until `Programmed` begins with these words: its status, its reason and its message.
    async fn wait_for(&self, expected: &str) {
        self.wait_for_condition("Programmed", |said, _| said.starts_with(expected)).await;
    }

    async fn wait_for_condition(&self, kind: &str, is_expected: impl Fn(&str, Option<i64>) -> bool) {
        let mut last = Default::default();
        let looking = async {
            loop {
                last = self.condition(kind).await;
                if is_expected(&last.0, last.1) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let is_said = tokio::time::timeout(PATIENCE, looking).await.is_ok();
        assert!(is_said, "{kind} is {last:?}");
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
    let mut agent = Agent::new(address.ip(), address.port());
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
    let mut agent = Agent { revision, ..Agent::new(address.ip(), address.port()) };
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
    let admin = scene.platform.client(admin());
    let leases = Agent::leases(&admin);
    let mut forged = leases.get(&lease).await.expect("it is there");
    // The same Lease in the namespace of a tenant does not count.
    forged.metadata.namespace = None;
    forged.metadata.resource_version = None;
    forged.metadata.managed_fields = None;
    let of_tenant = Api::<k8s_openapi::api::coordination::v1::Lease>::namespaced(admin.clone(), "default");
    of_tenant.create(&PostParams::default(), &forged).await.expect("created");
    leases.delete(&lease, &DeleteParams::default()).await.expect("deleted");
    scene.wait_for("False NoInstance").await;
}

#[tokio::test]
async fn a_changed_route_is_programmed_when_each_instance_has_applied_the_change() {
    let scene = Scene::start().await;
    let proxy = Proxy::default();
    let address = proxy.start().await;
    proxy.serve(HOST, &scene.uid);
    let mut agents = [Agent::new(address.ip(), address.port())];
    scene.apply(&mut agents, 1).await;

    // The instance has not applied it: the condition stays about the first generation, until the change takes long.
    scene.patch(json!({"spec": {"to": {"name": "b2"}}})).await;
    let waits_for = async |expected: &str, before: &str, (from, to): (i64, i64)| {
        let is_expected = |said: &str, generation: Option<i64>| {
            let is_there = said.starts_with(expected) && generation == Some(to);
            let stays = said.starts_with(before) && generation == Some(from);
            assert!(is_there || stays, "{said} at {generation:?}");
            is_there
        };
        scene.wait_for_condition("Programmed", is_expected).await;
    };
    let lags = |address: &str| {
        format!("False NotApplied: instances of Router shard1 have not applied the Route yet: {address}")
    };
    waits_for(&lags("127.0.0.1"), "True Programmed", (1, 2)).await;

    // One of two has applied it. The other one leaves.
    let [agent] = &mut agents;
    agent.routes = Some(u64::MAX);
    scene.report(agent).await;
    let mut other = Agent { routes: Some(0), revision: u64::MAX, ..Agent::new([127, 0, 0, 2].into(), agent.port) };
    scene.report(&other).await;
    scene.wait_for(&lags("127.0.0.2")).await;
    other.state = InstanceState::Leaving;
    scene.report(&other).await;
    scene.apply(&mut agents, 2).await;

    // Changed labels do not concern instances.
    scene.patch(json!({"metadata": {"labels": {"a": "b"}}})).await;
    assert_eq!(scene.condition("Programmed").await.1, Some(2));

    // An agent that does not report Routes: the probe decides.
    let [agent] = &mut agents;
    agent.routes = None;
    scene.report(agent).await;
    proxy.serve(HOST, "another");
    scene.patch(json!({"spec": {"path": "/cart"}})).await;
    waits_for("False ProbeFailed", "True Programmed", (2, 3)).await;
    proxy.serve(HOST, &scene.uid);
    waits_for("True Programmed", "False ProbeFailed", (3, 3)).await;
}

/// Returns a report of one certificate for a host, which is valid for an hour, beginning this number of seconds from now.
fn certificate(host: &str, from: i64) -> CertificatesReport {
    let not_before = jiff::Timestamp::now().as_second() + from;
    let (not_after, names) = (not_before + 3600, vec![host.to_owned()]);
    let served = Some(ServedCertificate { sha256: "ab".repeat(32), not_before, not_after, names });
    CertificatesReport::new(vec![CertificateReport { host: host.to_owned(), served, ..CertificateReport::default() }])
}

#[tokio::test]
async fn a_route_with_tls_needs_a_certificate_on_each_instance() {
    let scene = Scene::start().await;
    let waits_for = async |expected: &str, generation: Option<i64>| {
        let is_expected = |said: &str, at: Option<i64>| said.starts_with(expected) && at == generation;
        scene.wait_for_condition("CertificateReady", is_expected).await;
    };
    let mut agent = Agent::new([127, 0, 0, 1].into(), 80);
    scene.report(&agent).await;
    scene.wait_for("False").await;
    assert_eq!(scene.condition("CertificateReady").await, (String::new(), None), "a Route without TLS needs none");
    scene.patch(json!({"spec": {"tls": {"termination": "edge"}}})).await;
    let unknown = format!("Unknown NotReported: instances of Router shard1 do not report their certificate for {HOST}");
    waits_for(&unknown, Some(2)).await;
    agent.certificates = Some(CertificatesReport::default());
    scene.report(&agent).await;
    waits_for("False NoCertificate", Some(2)).await;
    agent.certificates = Some(certificate("*.shard1.v3.example", -1));
    scene.report(&agent).await;
    waits_for("True CertificateValid", Some(2)).await;

    // Another instance has none, and gets one that becomes valid.
    let mut other =
        Agent { certificates: Some(CertificatesReport::default()), ..Agent::new([127, 0, 0, 2].into(), 80) };
    scene.report(&other).await;
    let none = format!("False NoCertificate: instances of Router shard1 have no certificate for {HOST}: 127.0.0.2");
    waits_for(&none, Some(2)).await;
    other.certificates = Some(certificate(HOST, 2));
    scene.report(&other).await;
    waits_for("True CertificateValid", Some(2)).await;

    // Each generation is examined.
    scene.patch(json!({"spec": {"tls": {"termination": "reencrypt"}}})).await;
    waits_for("True CertificateValid", Some(3)).await;
    scene.patch(json!({"spec": {"tls": {"termination": "passthrough"}}})).await;
    scene.wait_for_condition("CertificateReady", |said, _| said.is_empty()).await;
}
