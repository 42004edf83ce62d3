//! Reports on the objects of a source cluster, as their owners see them there with kubectl: the entry in the status of an HTTPRoute, and
//! Events on the others. The statuses have the shapes of Istio, Envoy Gateway, NGINX Gateway Fabric, and OpenShift 4.

use serde_json::{Value, json};
use signpost_apiserver::kind::Kind;
use signpost_testing::program::{json, ok, run};
use signpost_testing::{DataDir, Kubectl, Ports, Server, dig, eventually};
use tokio_util::sync::CancellationToken;

use crate::sources::{CLASS, CONTROLLER, GATEWAY, OPENSHIFT_ROUTE, ROUTE, SERVICE, accepted, cluster_of};

const ISTIO: &str = "istio.io/gateway-controller";
const OURS: &str = "signpost.dev/dns";

/// Creates an object with its status.
pub(super) fn create(kubectl: &Kubectl, object: &Value) {
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    kubectl.ok_with(&["create", "--validate=false", "-f", "-"], &object.to_string());
    if object["status"].is_null() {
        return;
    }
    let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
    let (group, version) = object["apiVersion"].as_str().and_then(|text| text.split_once('/')).unwrap_or(("", "v1"));
    let resource = format!("{}.{version}.{group}", kind.to_lowercase());
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let patch = json!({"status": object["status"]}).to_string();
    kubectl.ok(&["patch", &resource, &name, "-n", namespace, "--subresource=status", "--type=merge", "-p", &patch]);
}

fn object(api_version: &str, kind: &str, namespace: &str, name: &str, spec: Value, status: Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind, "metadata": {"name": name, "namespace": namespace},
        "spec": spec, "status": status,
    })
}

/// The objects of a cluster with Istio and OpenShift: each source with a shard and a name, and what is wrong with some.
fn objects() -> Vec<Value> {
    const GATEWAY_API: &str = "gateway.networking.k8s.io/v1";
    let parent = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "eu", "namespace": "infra"});
    let route = |name: &str, host: &str, status: Value| {
        let spec = json!({"hostnames": [host], "parentRefs": [parent]});
        object(GATEWAY_API, "HTTPRoute", "shop", name, spec, status)
    };
    let condition = |kind: &str, reason: &str, generation: u32| {
        json!({"type": kind, "status": "True", "reason": reason, "message": "", "observedGeneration": generation,
               "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let of_istio = json!({
        "parentRef": parent, "controllerName": ISTIO,
        "conditions": [condition("Accepted", "Accepted", 1), condition("ResolvedRefs", "ResolvedRefs", 1)],
    });
    let of_policy = json!({
        "parentRef": parent, "controllerName": "kuadrant.io/policy-controller",
        "conditions": [condition("kuadrant.io/AuthPolicyAffected", "Accepted", 1)],
    });
    let controller = |name: &str, domain: &str, strategy: Value| {
        let status = json!({
            "domain": domain, "endpointPublishingStrategy": strategy,
            "conditions": [{"type": "Available", "status": "True"}, {"type": "DNSManaged", "status": "False"}],
        });
        object("operator.openshift.io/v1", "IngressController", "openshift-ingress-operator", name, json!({}), status)
    };
    let host_network = json!({
        "type": "HostNetwork", "hostNetwork": {"httpPort": 80, "httpsPort": 443, "protocol": "TCP", "statsPort": 1936},
    });
    let mut default = controller("default", "router.apps.example.com", host_network.clone());
    default["metadata"]["annotations"] = json!({"signpost.dev/addresses": "203.0.113.10"});
    let mut service = object(
        "v1",
        "Service",
        "shop",
        "db",
        json!({"type": "LoadBalancer", "ports": [{"port": 5432}]}),
        json!({"loadBalancer": {"ingress": [{"ip": "203.0.113.7", "ipMode": "VIP"}]}}),
    );
    service["metadata"]["annotations"] = json!({"external-dns.alpha.kubernetes.io/hostname": "db.apps.example.com."});
    let mut class = object(
        GATEWAY_API,
        "GatewayClass",
        "",
        "istio",
        json!({"controllerName": ISTIO}),
        json!({"conditions": accepted("Accepted")}),
    );
    class["metadata"] = json!({"name": "istio"});
    vec![
        class,
        object(
            GATEWAY_API,
            "Gateway",
            "infra",
            "eu",
            json!({"gatewayClassName": "istio", "listeners": [
                {"name": "https", "hostname": "*.eu.apps.example.com", "port": 443, "protocol": "HTTPS",
                 "allowedRoutes": {"namespaces": {"from": "All"}}},
            ]}),
            json!({"addresses": [{"type": "IPAddress", "value": "203.0.113.1"}], "conditions": accepted("Programmed")}),
        ),
        route("web", "web.eu.apps.example.com", json!({"parents": [of_istio, of_policy]})),
        route("refused", "refused.eu.apps.example.com", json!({"parents": []})),
        default,
        controller("private", "private.apps.example.com", json!({"type": "Private"})),
        controller("second", "router.apps.example.com", host_network),
        object(
            "route.openshift.io/v1",
            "Route",
            "shop",
            "api",
            json!({"host": "api-shop.router.apps.example.com", "to": {"kind": "Service", "name": "api"}}),
            json!({"ingress": [{
                "host": "api-shop.router.apps.example.com", "routerName": "default", "wildcardPolicy": "None",
                "routerCanonicalHostname": "router-default.router.apps.example.com",
                "conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
            }]}),
        ),
        service,
    ]
}

/// Returns the entry of a controller in the status of an HTTPRoute.
fn entry(kubectl: &Kubectl, name: &str, controller: &str) -> Option<Value> {
    let route = kubectl.json(&["httproutes", name, "-n", "shop"]);
    let parents = route["status"]["parents"].as_array().cloned().unwrap_or_default();
    parents.into_iter().find(|entry| entry["controllerName"] == controller)
}

/// Returns the status and reason of a condition of an entry.
pub(super) fn condition(entry: &Value, kind: &str) -> Option<(String, String)> {
    let conditions = entry["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    Some((found["status"].as_str()?.to_owned(), found["reason"].as_str()?.to_owned()))
}

#[test]
fn owners_see_the_state_of_their_names_on_their_own_objects() {
    let (data, stop) = (DataDir::new(), CancellationToken::new());
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let kinds: [&'static Kind; 6] = [&CLASS, &GATEWAY, &ROUTE, &CONTROLLER, &OPENSHIFT_ROUTE, &SERVICE];
    let cluster = runtime.block_on(cluster_of(&kinds, &[], stop.clone()));
    let of_cluster = data.kubeconfig(cluster.address);
    let source = Kubectl::new(of_cluster.clone().into());
    objects().iter().for_each(|object| create(&source, object));
    let uses = ["gateway", "openshift", "service"].map(|source| format!("--sources-{source}=publish"));
    let arguments = ["--data-dir", data.path(), "--domain", "apps.example.com", "--sources-kubeconfig", &of_cluster];
    let arguments: Vec<&str> = arguments.into_iter().chain(uses.iter().map(String::as_str)).collect();
    let server = Server::start(Ports::free(), &arguments);
    let platform = ["--data-dir", data.path()];

    // The entry of the HTTPRoute, next to those of others.
    let (published, resolvable) = ("signpost.dev/Published", "signpost.dev/Resolvable");
    let own = eventually("the name is resolvable", || {
        let own = entry(&source, "web", OURS)?;
        (condition(&own, resolvable)?.0 == "True").then_some(own)
    });
    assert_eq!(condition(&own, published), Some(("True".to_owned(), "Published".to_owned())), "{own}");
    assert_eq!(own["conditions"].as_array().map(Vec::len), Some(2), "{own}");
    assert_eq!(own["parentRef"]["name"], "eu");
    let route = source.json(&["httproutes", "web", "-n", "shop"]);
    for condition in own["conditions"].as_array().expect("a list") {
        assert_eq!(condition["observedGeneration"], route["metadata"]["generation"], "{condition}");
        let message = condition["message"].as_str().unwrap_or_default();
        assert!(message.contains("web.eu.apps.example.com (alias ") && message.contains("serial"), "{message}");
    }
    for foreign in [ISTIO, "kuadrant.io/policy-controller"] {
        assert!(entry(&source, "web", foreign).is_some(), "the entry of {foreign} is lost");
    }
    let refused = eventually("a Route that is not admitted has an entry", || entry(&source, "refused", OURS));
    assert_eq!(condition(&refused, published), Some(("False".to_owned(), "NotAdmitted".to_owned())), "{refused}");

    // Events on the other objects.
    let events = || source.json(&["events.events.k8s.io", "-A"])["items"].as_array().cloned().unwrap_or_default();
    for (kind, name, reason) in [
        ("Gateway", "eu", "Published"),
        ("IngressController", "default", "Published"),
        ("IngressController", "private", "AddressNotUsable"),
        ("IngressController", "second", "DomainAlreadyInUse"),
        ("Route", "api", "Resolvable"),
        ("Service", "db", "Published"),
    ] {
        let event = eventually(&format!("{kind} {name} has the Event {reason}"), || {
            let is_it = |event: &Value| {
                let about = &event["regarding"];
                about["kind"] == kind && about["name"] == name && event["reason"] == reason
            };
            events().into_iter().find(is_it)
        });
        assert_eq!(event["reportingController"], OURS, "{event}");
        assert!(
            event["regarding"]["apiVersion"].as_str().is_some_and(|version| !version.contains("signpost")),
            "{event}"
        );
    }
    assert!(!events().iter().any(|event| event["regarding"]["kind"] == "HTTPRoute"), "their status has it");
    // The name of a Service has no Route: its zone has the addresses itself.
    let addresses = |name: &str| dig(server.dns, name, "A", &[]).data("A").join(" ");
    assert_eq!(addresses("db.apps.example.com"), "203.0.113.7");
    assert_eq!(addresses("api-shop.router.apps.example.com"), "203.0.113.10");

    // The platform explains an object of the cluster by its own name.
    let explain = |arguments: &[&str]| ok(&[&["explain"][..], arguments, &platform].concat());
    let text = explain(&["httproute/web", "-n", "shop"]);
    for part in ["HTTPRoute shop/web", "from Gateway infra/eu", "listener https of Gateway infra/eu", "resolvable"] {
        assert!(text.contains(part), "{part:?} is not in\n{text}");
    }
    assert!(explain(&["gateway/infra/eu"]).contains("web.eu.apps.example.com"));
    assert!(explain(&["svc/shop/db"]).contains("db.apps.example.com (203.0.113.7)"));
    let none = run(&[&["explain", "httproute/shop/none"][..], &platform].concat());
    assert!(none.code == Some(1) && none.err.contains("signpost sources"), "{}", none.err);
    let admin = format!("http://{}", server.admin);
    let report = json(&["sources", "--admin", &admin]);
    assert_eq!(report["names"].as_array().map(Vec::len), Some(2), "{report}");
    assert!(report["shards"].as_array().is_some_and(|shards| shards.iter().all(|shard| shard["mode"] == "publish")));
    assert!(ok(&["sources", "--admin", &admin]).contains("DomainAlreadyInUse"));

    // A Route that leaves the Gateway loses the entry, and nothing else.
    let patch = |name: &str, patch: Value| {
        source.ok(&["patch", "httproutes", name, "-n", "shop", "--type=merge", "-p", &patch.to_string()]);
    };
    patch("refused", json!({"spec": {"parentRefs": []}}));
    eventually("the entry is gone", || entry(&source, "refused", OURS).is_none().then_some(()));

    // A controller that replaces the list as a whole.
    let foreign = json!({"status": {"parents": [entry(&source, "web", ISTIO).expect("it is there")]}}).to_string();
    let contended = || {
        let is_it = |event: &Value| event["reason"] == "StatusContended" && event["regarding"]["name"] == "web";
        events().into_iter().any(|event| is_it(&event))
    };
    let mut rounds = 0;
    while !contended() {
        assert!(rounds < 20, "it does not give up");
        let is_back = || entry(&source, "web", OURS).is_some() || contended();
        eventually("the entry is back, or is given up", || is_back().then_some(()));
        if contended() {
            break;
        }
        source.ok(&[
            "patch",
            "httproutes",
            "web",
            "-n",
            "shop",
            "--subresource=status",
            "--type=merge",
            "-p",
            &foreign,
        ]);
        rounds += 1;
    }
    assert!(rounds >= 5, "it gives up after {rounds} races");

    // Another generation is another try.
    source.ok(&["patch", "httproutes", "web", "-n", "shop", "--subresource=status", "--type=merge", "-p", &foreign]);
    patch("web", json!({"spec": {"hostnames": ["www.eu.apps.example.com"]}}));
    eventually("the entry is back", || entry(&source, "web", OURS));
    stop.cancel();
}
