//! The condition `ResolvedRefs`, and `Ready`, which follows from it.

use std::time::Duration;

use serde_json::{Value, json};
use signpost_control::client::lease::{Leadership, Term};
use signpost_control::observe::resolved_refs;
use signpost_control::reconcile::{self, Reconciler};
use signpost_types::backends::SERVICE_LABEL;
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::scheduling::{Running, platform, scheduled, scheduler};
use super::{Scene, condition, namespace, placement, route, router, until};

/// Less than the time for which a worse state must last.
const SHORT: Duration = Duration::from_secs(4);

/// The other conditions that `Ready` follows from; no loop of these scenarios writes them.
const OTHERS: [&str; 3] = ["Published", "Resolvable", "Programmed"];

/// Starts the loops that write the conditions of Routes.
fn start(api: &Scene) -> Running {
    let settings = placement::settings(|_| ());
    let world = placement::world(api);
    let scheduler = scheduler(api, &world, |_| ());
    let reconciler = Reconciler::new(api.client(), &world, settings, reconcile::Metrics::default());
    let reconciler = reconciler.with_scheduler(&scheduler);
    let (leadership, follow) = watch::channel(Leadership::Leader(Term::unlimited()));
    let stop = CancellationToken::new();
    let loops = (
        scheduler.run(follow.clone(), stop.clone()),
        reconciler.run(follow, stop.clone()),
        resolved_refs::run(world, resolved_refs::Metrics::default(), stop.clone()),
    );
    let task = tokio::spawn(async {
        tokio::join!(loops.0, loops.1, loops.2);
    });
    Running { leadership, stop, task }
}

fn service(namespace: &str, name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"namespace": namespace, "name": name},
        "spec": {"ports": [{"name": "http", "port": 80, "protocol": "TCP"}]}})
}

/// Returns the slice of a Service with these endpoints.
fn slice(namespace: &str, service: &str, endpoints: Value) -> Value {
    // As Kubernetes has it.
    let ports = match endpoints.as_array().is_some_and(Vec::is_empty) {
        true => Value::Null,
        false => json!([{"name": "http", "port": 8080, "protocol": "TCP"}]),
    };
    let metadata = json!({"namespace": namespace, "name": format!("{service}-1"), "labels": {SERVICE_LABEL: service}});
    json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "metadata": metadata, "addressType": "IPv4",
        "endpoints": endpoints, "ports": ports})
}

fn endpoint(is_ready: bool) -> Value {
    json!([{"addresses": ["192.0.2.80"], "conditions": {"ready": is_ready}}])
}

/// Creates a Route that meets all other conditions of `Ready`, and waits until it is bound.
async fn bound(api: &Scene, namespace: &str, name: &str, spec: &Value) {
    api.put("routes", route(namespace, name, spec));
    until("it is bound", || {
        api.get("routes", namespace, name).is_some_and(|route| route["status"]["phase"] == "scheduled")
    })
    .await;
    set(api, namespace, name, |route| {
        let conditions = route["status"]["conditions"].as_array_mut().expect("a list");
        conditions.extend(OTHERS.map(|kind| {
            json!({"type": kind, "status": "True", "reason": kind, "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2025-01-01T00:00:00Z"})
        }));
    });
}

fn set(api: &Scene, namespace: &str, name: &str, change: impl FnOnce(&mut Value)) {
    let mut route = api.get("routes", namespace, name).expect("it is there");
    change(&mut route);
    api.put("routes", route);
}

/// Returns `ResolvedRefs` and `Ready`: their statuses and reasons; empty: there is none.
fn reported(api: &Scene, namespace: &str, name: &str) -> (String, String) {
    let route = api.get("routes", namespace, name).expect("it is there");
    let of =
        |kind: &str| condition(&route, kind).map_or(String::new(), |(status, reason, _)| format!("{status}/{reason}"));
    (of("ResolvedRefs"), of("Ready"))
}

async fn expect(api: &Scene, name: &str, refs: &str, ready: &str) {
    until(&format!("{name}: {refs}, {ready}"), || reported(api, "ns", name) == (refs.to_owned(), ready.to_owned()))
        .await;
}

fn generation(api: &Scene, kind: &str) -> Value {
    let route = api.get("routes", "ns", "app").expect("it is there");
    let conditions = route["status"]["conditions"].as_array().cloned().unwrap_or_default();
    conditions.into_iter().find(|condition| condition["type"] == kind).expect("it has it")["observedGeneration"].take()
}

const GOOD: [&str; 2] = ["True/ResolvedRefs", "True/Ready"];
const NOT_READY: &str = "False/BackendsNotReady";

async fn scene() -> Scene {
    let api = platform(0).await;
    api.put("routers", router("shard1", &json!({"type": "haproxy", "instances": 1})));
    api
}

#[tokio::test]
async fn an_outage_of_the_application_is_reported_and_a_restart_is_not() {
    let api = scene().await;
    let running = start(&api);
    let to = |port: Value| json!({"to": {"kind": "Service", "name": "app"}, "port": {"targetPort": port}});
    // The Service comes a second after the Route.
    bound(&api, "ns", "app", &to(json!(80))).await;
    let created = Instant::now();
    sleep(Duration::from_secs(1)).await;
    let before = reported(&api, "ns", "app");
    assert!(before.0.is_empty() && before.1 != GOOD[1], "{before:?}");
    api.put("services", service("ns", "app"));
    api.put("endpointslices", slice("ns", "app", endpoint(true)));
    expect(&api, "app", GOOD[0], GOOD[1]).await;
    assert!(created.elapsed() < SHORT, "{:?}", created.elapsed());

    // A restart causes no write at all.
    sleep(Duration::from_secs(2)).await;
    let writes = api.connection.requests("PATCH routes");
    for _ in 0..3 {
        api.put("endpointslices", slice("ns", "app", endpoint(false)));
        sleep(SHORT).await;
        api.put("endpointslices", slice("ns", "app", endpoint(true)));
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!((reported(&api, "ns", "app").0.as_str(), api.connection.requests("PATCH routes")), (GOOD[0], writes));

    // Scaled to zero and back; not ready; deleted.
    for (endpoints, reason) in [(json!([]), "NoReadyEndpoints"), (endpoint(false), "NoReadyEndpoints")] {
        api.put("endpointslices", slice("ns", "app", endpoints));
        expect(&api, "app", &format!("False/{reason}"), NOT_READY).await;
        api.put("endpointslices", slice("ns", "app", endpoint(true)));
        expect(&api, "app", GOOD[0], GOOD[1]).await;
    }
    api.delete("endpointslices", "ns", "app-1");
    expect(&api, "app", "False/NoReadyEndpoints", NOT_READY).await;
    api.put("endpointslices", slice("ns", "app", endpoint(true)));
    expect(&api, "app", GOOD[0], GOOD[1]).await;
    api.delete("services", "ns", "app");
    expect(&api, "app", "False/BackendNotFound", NOT_READY).await;
    let route = api.get("routes", "ns", "app").expect("it is there");
    let (.., message) = condition(&route, "ResolvedRefs").expect("it has it");
    assert_eq!(message, "Service app does not exist; all requests get a 503");
    // Another fault of a Route that is reported anyway.
    api.put("services", service("ns", "app"));
    api.delete("endpointslices", "ns", "app-1");
    expect(&api, "app", "False/NoReadyEndpoints", NOT_READY).await;
    api.put("endpointslices", slice("ns", "app", endpoint(true)));
    expect(&api, "app", GOOD[0], GOOD[1]).await;
    running.stop().await;
}

#[tokio::test]
async fn a_changed_route_is_judged_at_its_new_generation() {
    let api = scene().await;
    api.put("services", service("ns", "app"));
    api.put("endpointslices", slice("ns", "app", endpoint(true)));
    let running = start(&api);
    bound(&api, "ns", "app", &json!({"to": {"kind": "Service", "name": "app"}})).await;
    expect(&api, "app", GOOD[0], GOOD[1]).await;
    let change = |generation: u64, spec: Value| {
        set(&api, "ns", "app", |route| {
            route["metadata"]["generation"] = json!(generation);
            route["spec"] = spec;
            // The other conditions of `Ready` are about it at once.
            let conditions = route["status"]["conditions"].as_array_mut().expect("a list");
            for condition in
                conditions.iter_mut().filter(|condition| OTHERS.contains(&condition["type"].as_str().expect("a type")))
            {
                condition["observedGeneration"] = json!(generation);
            }
        });
    };
    // Until it is known, no condition is about the new generation.
    change(2, json!({"to": {"kind": "Service", "name": "app"}, "port": {"targetPort": "admin"}}));
    sleep(SHORT).await;
    assert_eq!((reported(&api, "ns", "app").1.as_str(), generation(&api, "Ready")), (GOOD[1], json!(1)));
    expect(&api, "app", "False/InvalidPort", NOT_READY).await;
    assert_eq!((generation(&api, "ResolvedRefs"), generation(&api, "Ready")), (json!(2), json!(2)));
    change(3, json!({"to": {"kind": "Service", "name": "app"}, "port": {"targetPort": "http"}}));
    expect(&api, "app", GOOD[0], GOOD[1]).await;
    assert_eq!((generation(&api, "ResolvedRefs"), generation(&api, "Ready")), (json!(3), json!(3)));
    // The same targets: the conditions are still about the new generation.
    change(4, json!({"to": {"kind": "Service", "name": "app"}, "path": "/shop"}));
    until("they are of generation 4", || generation(&api, "Ready") == 4 && generation(&api, "ResolvedRefs") == 4).await;
    assert_eq!(reported(&api, "ns", "app"), (GOOD[0].to_owned(), GOOD[1].to_owned()));
    // The proxies of this Router are no longer the platform's.
    api.put("routers", router("shard1", &json!({"type": "external"})));
    expect(&api, "app", "", "True/Ready").await;
    running.stop().await;
}

#[tokio::test]
async fn unknown_services_block_nothing() {
    let api = scene().await;
    api.connection.forbid(Some("GET services"));
    let running = start(&api);
    bound(&api, "ns", "app", &json!({"to": {"kind": "Service", "name": "app"}})).await;
    expect(&api, "app", "", GOOD[1]).await;
    // The finding of a former leader, which could list them, is not known to be true.
    set(&api, "ns", "app", |route| {
        let conditions = route["status"]["conditions"].as_array_mut().expect("a list");
        conditions.push(json!({"type": "ResolvedRefs", "status": "False", "reason": "BackendNotFound", "message": "",
            "observedGeneration": 1, "lastTransitionTime": "2025-01-01T00:00:00Z"}));
    });
    until("it is withdrawn", || reported(&api, "ns", "app").0.is_empty()).await;
    assert_eq!(reported(&api, "ns", "app").1, GOOD[1]);
    api.connection.forbid(None);
    expect(&api, "app", "False/BackendNotFound", NOT_READY).await;
    running.stop().await;
}

#[tokio::test]
async fn a_service_of_many_routes_delays_no_other_tenant() {
    const MANY: usize = 600;
    let api = scene().await;
    api.put("namespaces", namespace("other"));
    for namespace in ["ns", "other"] {
        api.put("services", service(namespace, "app"));
    }
    let running = start(&api);
    let spec = json!({"to": {"kind": "Service", "name": "app"}});
    for at in 0..MANY {
        api.put("routes", route("ns", &format!("r{at}"), &spec));
    }
    api.put("routes", route("other", "app", &spec));
    until("all are bound", || scheduled(&api) == MANY + 1).await;
    let count = |wanted: &str| {
        api.count("routes", |route| condition(route, "ResolvedRefs").is_some_and(|(.., reason, _)| reason == wanted))
    };
    until("all report it", || count("NoReadyEndpoints") == MANY + 1).await;
    sleep(Duration::from_secs(1)).await;
    for namespace in ["ns", "other"] {
        api.put("endpointslices", slice(namespace, "app", endpoint(true)));
    }
    until("the other tenant is served", || reported(&api, "other", "app").0 == GOOD[0]).await;
    let written = count("ResolvedRefs");
    assert!(written < MANY / 2, "{written} Routes of the first tenant were written before");
    until("all are", || count("ResolvedRefs") == MANY + 1).await;
    running.stop().await;
}
