//! `Ready` is about the application: the result of `kubectl wait` for a Route agrees with the responses of a real HAProxy.

use serde_json::json;

use crate::agent::{Agent, application, platform_with, route, router, service};
use signpost_testing::{DataDir, Ports, http_get, program, until};

#[test]
fn a_route_is_ready_while_its_application_gets_requests() {
    let (data, ports) = (DataDir::new(), Ports::free());
    // Its own name server is queried, so that Routes become Resolvable.
    let (_server, kubectl) = platform_with(&data, ports, &["--domain", "example.org"]);
    let mut agent = Agent::new(&data, ports.dns);
    kubectl.ok_with(&["apply", "-f", "-"], &router(&format!("{{ip: {}}}", agent.http.ip())));
    agent.start();
    let endpoint = application("shop");
    kubectl.ok_with(&["apply", "-f", "-"], &(service("shop", endpoint) + &route("shop", "shop")));
    let wait = |condition: &str| {
        let condition = format!("--for=condition={condition}");
        kubectl.ok(&["wait", "-n", "web", &condition, "--timeout=120s", "route/shop"]);
    };
    let is = |status: &str, http: u16| {
        wait(&format!("ResolvedRefs={status}"));
        wait(&format!("Ready={status}"));
        agent.answers("web-shop.shard1.example.org", http, "");
    };
    let reason = || kubectl.condition(&["route", "shop", "-n", "web"], "ResolvedRefs").map(|found| found.reason);
    let patch = |object: &str, patch: serde_json::Value| {
        kubectl.ok(&["patch", object, "-n", "web", "--type=merge", "-p", &patch.to_string()]);
    };
    let endpoints = |endpoints: serde_json::Value| patch("endpointslice/shop-1", json!({"endpoints": endpoints}));
    is("True", 200);

    // Scaled to zero, and back.
    endpoints(json!([]));
    is("False", 503);
    assert_eq!(reason().as_deref(), Some("NoReadyEndpoints"));
    endpoints(json!([{"addresses": [endpoint.ip()]}]));
    is("True", 200);

    // A wrong port. No condition is about the new generation before it is known.
    patch("route/shop", json!({"spec": {"port": {"targetPort": "admin"}}}));
    is("False", 503);
    assert_eq!(reason().as_deref(), Some("InvalidPort"));
    patch("route/shop", json!({"spec": {"port": {"targetPort": "http"}}}));
    is("True", 200);

    kubectl.ok(&["delete", "service", "shop", "-n", "web"]);
    is("False", 503);
    assert_eq!(reason().as_deref(), Some("BackendNotFound"));
    let directory = ["--data-dir", data.path()];
    let explained = program::ok(&[&["explain", "route", "web/shop"][..], &directory].concat());
    assert!(explained.contains("Service shop does not exist; all requests get a 503"), "{explained}");
    let status = program::run(&[&["status"][..], &directory].concat());
    let warning = "1 Route with backends that are not ready, BackendNotFound: web/shop";
    assert!(format!("{}{}", status.out, status.err).contains(warning), "{}{}", status.out, status.err);
    until("the metric counts it", || {
        let (_, metrics) = http_get(ports.admin, "/metrics").unwrap_or_default();
        let line = "signpost_routes_refs_unresolved{reason=\"BackendNotFound\"} 1";
        if metrics.contains(line) { Ok(()) } else { Err(metrics) }
    });
    kubectl.ok_with(&["apply", "-f", "-"], &service("shop", endpoint));
    is("True", 200);
}
