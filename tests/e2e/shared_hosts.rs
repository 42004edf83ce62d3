//! Routes of one namespace that share a custom host, each with another path, through a real HAProxy and a real nginx.

use std::process::Output;

use serde_json::Value;

use crate::agent::{Agent, agent_user, application, platform, service};
use signpost_testing::{DataDir, Kubectl, Ports, program, until};

const HOST: &str = "www.shop.test";

fn router(name: &str, state: &str) -> String {
    format!(
        "---\napiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {{name: {name}}}\n\
         spec: {{ttl: 5, state: {state}, addressesFrom: {{instances: true}}}}\n"
    )
}

fn namespace(name: &str) -> String {
    format!("---\napiVersion: v1\nkind: Namespace\nmetadata: {{name: {name}}}\n")
}

/// Returns a Route whose target has its name.
fn route(namespace: &str, name: &str, path: &str) -> String {
    format!(
        "---\napiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {{name: {name}, namespace: {namespace}}}\n\
         spec: {{host: {HOST}, path: '{path}', to: {{name: {name}}}, port: {{targetPort: 80}}}}\n"
    )
}

fn apply(kubectl: &Kubectl, objects: &str) {
    kubectl.ok_with(&["apply", "-f", "-"], objects);
}

/// Waits until a Route has a condition with this status, reason and message.
#[track_caller]
fn expect(kubectl: &Kubectl, namespace: &str, name: &str, kind: &str, expected: [&str; 3]) {
    until(&format!("{namespace}/{name} reports {kind}={expected:?}"), || {
        let said = kubectl.condition(&["routes.signpost.dev", name, "-n", namespace], kind);
        let said = said.map(|said| [said.status, said.reason, said.message]);
        match said.as_ref().is_some_and(|said| expected.iter().zip(said).all(|(part, text)| text.contains(part))) {
            true => Ok(()),
            false => Err(format!("{said:?}")),
        }
    });
}

/// Waits until the proxy of an instance serves each path.
#[track_caller]
fn serves(agent: &Agent, paths: &[(&str, &str)]) {
    for (path, application) in paths {
        agent.answers_path(HOST, path, 200, application);
    }
}

fn routers_of(kubectl: &Kubectl) -> Vec<(String, String)> {
    let bindings = kubectl.json(&["routebindings.signpost.dev", "-n", "web"]);
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let all = bindings["items"].as_array().cloned().unwrap_or_default();
    all.iter().map(|one| (text(&one["metadata"]["name"]), text(&one["spec"]["router"]))).collect()
}

#[test]
fn routes_with_one_host_are_served_by_path_and_move_together() {
    let (data, ports) = (DataDir::new(), Ports::free());
    let (_server, kubectl) = platform(&data, ports);
    agent_user(&data, "shard2");
    let objects = [router("shard1", "active"), router("shard2", "cordoned"), namespace("web"), namespace("other")];
    apply(&kubectl, &objects.concat());
    let mut haproxy = Agent::on(&data, ports.dns, "shard1", "haproxy");
    let mut nginx = Agent::on(&data, ports.dns, "shard2", "nginx");
    haproxy.start();
    nginx.start();

    // One apply: all are served, the longest prefix first.
    let targets = ["root", "api", "v2", "late"].map(|name| service(name, application(name)));
    apply(&kubectl, &targets.concat());
    let routes = [route("web", "root", "/"), route("web", "api", "/api"), route("web", "v2", "/api/v2")];
    apply(&kubectl, &routes.concat());
    for name in ["root", "api", "v2"] {
        expect(&kubectl, "web", name, "Programmed", ["True", "", ""]);
    }
    let paths =
        [("/", "root"), ("/apix", "root"), ("/api", "api"), ("/api/v1", "api"), ("/api/v2", "v2"), ("/api/v2/x", "v2")];
    serves(&haproxy, &paths);

    // The command line names the Route of each path.
    let found = program::json(&["dig", HOST, &format!("@{}", ports.dns), "--data-dir", data.path()]);
    let mut of_paths: Vec<(&Value, &Value)> = found["why"]["steps"][0]["routes"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| (&one["route"], &one["path"]))
        .collect();
    of_paths.sort_by_key(|(route, _)| route.as_str().map(str::to_owned));
    let expected =
        [("web/api", "/api"), ("web/root", "/"), ("web/v2", "/api/v2")].map(|(a, b)| (Value::from(a), Value::from(b)));
    assert_eq!(of_paths, expected.each_ref().map(|(a, b)| (a, b)), "{found}");
    let why = program::ok(&["explain", "route", "web/v2", "--why-not", "shard2", "--data-dir", data.path()]);
    assert!(why.contains("is cordoned"), "{why}");

    // An equal path and another namespace are refused, and an invalid path by the API.
    apply(&kubectl, &(route("web", "late", "/") + &route("other", "thief", "/mine")));
    let message = "www.shop.test with the path / is held by Route root";
    expect(&kubectl, "web", "late", "Admitted", ["False", "HostAlreadyClaimed", message]);
    let message = "www.shop.test is held by a Route of another namespace";
    expect(&kubectl, "other", "thief", "Admitted", ["False", "HostAlreadyClaimed", message]);
    for (path, reason) in [("/a{b}", "must not contain any of"), ("/a//b", "empty segment"), ("/café", "must be ASCII")]
    {
        let refused = kubectl.refused(&["apply", "-f", "-"], &route("web", "odd", path));
        assert!(refused.contains("spec.path") && refused.contains(reason), "{refused}");
    }

    // The first one goes: the others stay, and its path goes to the Route that waits.
    kubectl.ok(&["delete", "routes.signpost.dev", "root", "-n", "web"]);
    expect(&kubectl, "web", "late", "Admitted", ["True", "", ""]);
    let paths = [("/", "late"), ("/api", "api"), ("/api/v2/x", "v2")];
    serves(&haproxy, &paths);

    // A drain moves all of them to the other Router, with nginx.
    let states = ["shard1", "shard2"].map(|name| {
        let state = if name == "shard1" { "draining" } else { "active" };
        let patch = format!(r#"{{"spec": {{"state": "{state}"}}}}"#);
        kubectl.run(&["patch", "router", name, "--type=merge", "-p", &patch])
    });
    assert!(states.iter().all(|state: &Output| state.status.success()), "{states:?}");
    until("all Routes are on shard2", || match routers_of(&kubectl) {
        all if all.len() == 3 && all.iter().all(|(_, router)| router == "shard2") => Ok(()),
        all => Err(format!("{all:?}")),
    });
    for name in ["late", "api", "v2"] {
        expect(&kubectl, "web", name, "Programmed", ["True", "", ""]);
    }
    serves(&nginx, &paths);
}
