//! A status field that a client removes is restored by its owner, and a repeated report causes only one event.

use serde_json::Value;

use signpost_testing::{DataDir, Kubectl, Ports, Server, eventually};

const PLATFORM: &str = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n\
     apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: one}\nspec:\n  ttl: 3600\n  \
     addresses: [{ip: 127.0.0.1}]\n  healthCheck: {type: tcp, port: 1, intervalSeconds: 1}\n---\n\
     apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: cart, namespace: shop}\nspec: {to: {name: web}}\n---\n\
     apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: www, namespace: shop}\n\
     spec: {host: www.shop.example, to: {name: web}}\n";

/// Returns the conditions of an object, each with its status and reason.
fn conditions(object: &Value) -> Vec<(String, String, String)> {
    let text = |condition: &Value, name: &str| condition[name].as_str().unwrap_or_default().to_owned();
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    let mut conditions: Vec<_> =
        conditions.map(|one| (text(one, "type"), text(one, "status"), text(one, "reason"))).collect();
    conditions.sort();
    conditions
}

#[test]
fn what_is_taken_out_of_a_status_is_put_back() {
    let data = DataDir::new();
    let _server = Server::start(Ports::free(), &["--data-dir", data.path()]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], PLATFORM);
    let has = |object: &Value, kinds: &[&str]| {
        kinds.iter().all(|kind| conditions(object).iter().any(|(found, ..)| found == kind))
    };
    let route = |name: &str| kubectl.json(&["routes.signpost.dev", "-n", "shop", name]);
    let router = || kubectl.json(&["routers.signpost.dev", "one"]);
    for name in ["cart", "www"] {
        kubectl.ok(&["wait", "-n", "shop", &format!("rt/{name}"), "--for=condition=Resolvable", "--timeout=180s"]);
    }
    let serial = router()["status"]["serial"].clone();
    // From here, caches can hold its addresses for longer than its TTL.
    kubectl.ok(&["patch", "router", "one", "--type=merge", "-p", r#"{"spec":{"ttl":30}}"#]);
    let kinds = ["Accepted", "AddressesHealthy", "Ready", "ZonePublished"];
    let whole = eventually("the Router's status is whole", || {
        let router = router();
        let is_whole = has(&router, &kinds) && router["status"]["addresses"].is_array();
        let is_whole = is_whole && router["status"]["serial"] != serial;
        (is_whole && router["status"]["routes"] == 2 && router["status"]["ttlHorizon"].is_string()).then_some(router)
    });
    let routes = ["cart", "www"].map(|name| (name, conditions(&route(name))));

    let lie = r#"{"status":{"conditions":[{"type":"Scheduled","status":"False","reason":"Nonsense","message":"",
        "lastTransitionTime":"2026-01-01T00:00:00Z"}]}}"#;
    for patch in [r#"{"status":{"conditions":[]}}"#, lie] {
        for (name, before) in &routes {
            let patch = ["patch", "rt", name, "-n", "shop", "--subresource=status", "--type=merge", "-p", patch];
            kubectl.ok(&patch);
            eventually(&format!("{name} has its former conditions"), || {
                (conditions(&route(name)) == *before).then_some(())
            });
        }
    }
    // Both times, an Event reported it with the same text.
    let description = || kubectl.ok(&["describe", "rt", "cart", "-n", "shop"]);
    eventually("both events are one", || {
        description()
            .lines()
            .any(|line| line.contains("(x2 over") && line.contains("Scheduled: the Route is on one"))
            .then_some(())
    });
    let description = description();
    assert_eq!(description.matches("Scheduled: the Route is on one").count(), 1, "{description}");
    let nothing = r#"[{"op":"replace","path":"/status","value":{}}]"#;
    kubectl.ok(&["patch", "router", "one", "--subresource=status", "--type=json", "-p", nothing]);
    let horizon = whole["status"]["ttlHorizon"].clone();
    assert_eq!(router()["status"]["ttlHorizon"], horizon, "only the API knows it");
    let facts = |router: &Value| {
        let field = |name: &str| router["status"][name].clone();
        let addresses: Vec<Value> =
            router["status"]["addresses"].as_array().into_iter().flatten().map(|one| one["health"].clone()).collect();
        (conditions(router), ["routes", "serial", "panicThreshold", "ttlHorizon"].map(field), addresses)
    };
    eventually("the Router has its former status", || (facts(&router()) == facts(&whole)).then_some(()));
    // A condition alone, in addition to all other fields, as well.
    for kind in kinds {
        let at = router()["status"]["conditions"]
            .as_array()
            .and_then(|conditions| conditions.iter().position(|condition| condition["type"] == kind))
            .expect("it is there");
        let patch = format!(
            r#"[{{"op":"test","path":"/status/conditions/{at}/type","value":"{kind}"}},{{"op":"remove","path":"/status/conditions/{at}"}}]"#
        );
        kubectl.ok(&["patch", "router", "one", "--subresource=status", "--type=json", "-p", &patch]);
        eventually(&format!("the Router has {kind} again"), || (facts(&router()) == facts(&whole)).then_some(()));
    }
}

/// The rules by which Flux, Helm, Argo CD and `kubectl wait` judge an object (kstatus): what it reports is about the present generation.
#[test]
fn every_report_follows_the_generation() {
    let data = DataDir::new();
    let _server = Server::start(Ports::free(), &["--data-dir", data.path()]);
    let kubectl = Kubectl::new(data.join("kubeconfig"));
    kubectl.ok_with(&["apply", "-f", "-"], PLATFORM);
    kubectl.ok(&["wait", "-n", "shop", "rt/www", "--for=condition=Resolvable", "--timeout=180s"]);
    // One Route whose host is taken, and one that requests a Router that takes none.
    let waiting = "apiVersion: signpost.dev/v1alpha1\nkind: Router\nmetadata: {name: closed}\n\
         spec: {state: cordoned, addresses: [{ip: 127.0.0.1}]}\n---\n\
         apiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n---\n\
         apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: taken, namespace: other}\n\
         spec: {host: www.shop.example, to: {name: web}}\n---\n\
         apiVersion: signpost.dev/v1alpha1\nkind: Route\nmetadata: {name: nowhere, namespace: other, annotations: {signpost.dev/move-to: closed}}\n\
         spec: {to: {name: web}}\n";
    kubectl.ok_with(&["apply", "-f", "-"], waiting);
    let to = r#"{"spec":{"to":{"name":"another"}}}"#;
    for (object, namespace, kind, status, patch) in [
        ("rt/cart", "shop", "Scheduled", "True", to),
        ("rt/www", "shop", "Scheduled", "True", to),
        ("rt/taken", "other", "Admitted", "False", to),
        ("rt/nowhere", "other", "Scheduled", "False", to),
        ("router/one", "", "Accepted", "True", r#"{"spec":{"ttl":60}}"#),
    ] {
        let now = || kubectl.json(&["-n", namespace, object]);
        eventually(&format!("{object} reports {kind}={status}"), || {
            conditions(&now()).iter().any(|(found, is, _)| (&**found, &**is) == (kind, status)).then_some(())
        });
        kubectl.ok(&["patch", "-n", namespace, object, "--type=merge", "-p", patch]);
        eventually(&format!("{object} reports its generation"), || {
            let object = now();
            let generation = &object["metadata"]["generation"];
            assert_eq!(*generation, 2, "{object}");
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            let mut observed = conditions.map(|condition| &condition["observedGeneration"]);
            let is_present = object["status"]["observedGeneration"] == *generation;
            (is_present && observed.all(|observed| observed == generation)).then_some(())
        });
        // An object without `Ready` counts as done.
        let is_ready = conditions(&now()).into_iter().find(|(found, ..)| found == "Ready").map(|(_, status, _)| status);
        let waits = namespace == "other";
        assert_eq!(is_ready.as_deref() == Some("False"), waits, "{object}: {:?}", conditions(&now()));
    }
}
