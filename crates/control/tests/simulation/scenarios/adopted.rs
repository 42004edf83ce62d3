//! Routes whose hosts a source's router admitted: their Routers, names, and moves.

use serde_json::{Value, json};
use signpost_types::names::host_claim_name;

use super::scheduling::{platform, scheduled, start};
use super::{Scene, condition, namespace, route, router, until};

/// Returns a Route whose host the router of a Gateway admitted, which the Router `router` represents.
fn adopted(namespace: &str, name: &str, host: &str, router: &str) -> Value {
    let by = "listener https of Gateway infra/eu";
    route(namespace, name, &json!({"host": host, "adopted": {"router": router, "by": by}}))
}

fn binding(api: &Scene, namespace: &str, name: &str) -> Option<Value> {
    api.get("routebindings", namespace, name).map(|binding| binding["spec"].clone())
}

fn reported(api: &Scene, namespace: &str, name: &str, kind: &str) -> Option<(String, String, String)> {
    condition(&api.get("routes", namespace, name).expect("it is there"), kind)
}

fn has_event(api: &Scene, name: &str, reason: &str) -> bool {
    api.count("events", |event| event["reason"] == reason && event["involvedObject"]["name"] == name) > 0
}

#[tokio::test]
async fn the_admission_decides_the_router_and_the_host_stays_as_it_is() {
    let api = platform(3).await;
    // Settings that exclude other Routes do not count: the router serves the host already.
    let cordoned = json!({"state": "cordoned", "routeSelector": {"matchLabels": {"tier": "none"}}, "addresses": []});
    api.put("routers", router("shard2", &cordoned));
    api.put("namespaces", namespace("shop"));
    // The namespace of another begins the host, and the host has several labels.
    api.put("routes", adopted("ns", "web", "shop-web.shard2.v3.example", "shard2"));
    api.put("routes", adopted("ns", "deep", "a.b.shard2.v3.example", "shard2"));
    api.put("routes", adopted("ns", "wild", "*.shard2.v3.example", "shard2"));
    api.put("routes", adopted("ns", "far", "www.shop.example", "shard2"));
    let running = start(&api);
    until("all are scheduled", || scheduled(&api) == 4).await;
    for (name, host, kind) in [
        ("web", "shop-web.shard2.v3.example", "adopted"),
        ("deep", "a.b.shard2.v3.example", "adopted"),
        ("wild", "*.shard2.v3.example", "adopted"),
        ("far", "www.shop.example", "custom"),
    ] {
        let spec = binding(&api, "ns", name).expect("it is bound");
        assert_eq!((&spec["router"], &spec["strategy"]), (&json!("shard2"), &json!("adopted")), "{name}");
        // The alias is that of the namespace and the name, and leads to a name that the same wildcard answers.
        assert_eq!(spec["label"], format!("ns-{name}"));
        assert_eq!(spec["names"][1]["name"], format!("ns-{name}.routes.v3.example"));
        assert_eq!((&spec["names"][2]["name"], &spec["names"][2]["type"]), (&json!(host), &json!(kind)));
        assert_eq!(spec["names"][2]["record"].is_string(), kind == "custom");
        let summary = spec["explanation"]["summary"].as_str().expect("a summary");
        assert_eq!(summary, format!("adopted: listener https of Gateway infra/eu admitted {host} on shard2"));
        let route = api.get("routes", "ns", name).expect("it is there");
        assert_eq!(route["status"]["dns"], host);
        let claim = api.get("nameclaims", "", &host_claim_name(host)).expect("the host is claimed");
        assert_eq!(claim["spec"]["holder"]["name"], name);
    }
    running.stop().await;
}

#[tokio::test]
async fn a_route_without_its_router_waits_for_it() {
    let api = platform(1).await;
    api.put("routers", router("inner", &json!({"dns": "inner.shard1.v3.example"})));
    api.put("routes", adopted("ns", "gone", "a.gone.v3.example", "gone"));
    api.put("routes", adopted("ns", "inner", "a.inner.shard1.v3.example", "shard1"));
    api.put("routes", adopted("ns", "apex", "inner.shard1.v3.example", "inner"));
    api.put("routes", adopted("ns", "nowhere", "*.nowhere.v3.example", "shard1"));
    let running = start(&api);
    let waits =
        |name: &str, reason: &str| reported(&api, "ns", name, "Scheduled").is_some_and(|(_, its, _)| its == reason);
    until("all wait", || {
        waits("gone", "RouterNotFound")
            && waits("inner", "HostInOtherZone")
            && waits("apex", "HostAtApex")
            && waits("nowhere", "HostInPlatformDomain")
    })
    .await;
    let (_, _, message) = reported(&api, "ns", "gone", "Scheduled").expect("it waits");
    assert_eq!(
        message,
        "Router gone does not exist, for which listener https of Gateway infra/eu admitted a.gone.v3.example"
    );
    let (_, _, message) = reported(&api, "ns", "inner", "Scheduled").expect("it waits");
    assert!(message.starts_with("a.inner.shard1.v3.example is in inner.shard1.v3.example, the zone of Router inner"));
    api.put("routers", router("gone", &json!({})));
    until("it is scheduled", || scheduled(&api) == 1).await;
    // The inner shard goes, and the closest zone is that of the named Router.
    api.delete("routers", "", "inner");
    until("it is scheduled, too", || binding(&api, "ns", "inner").is_some()).await;
    running.stop().await;
}

#[tokio::test]
async fn it_moves_with_its_admission_and_with_nothing_else() {
    let api = platform(3).await;
    api.put("routes", adopted("ns", "far", "www.shop.example", "shard1"));
    let running = start(&api);
    until("it is scheduled", || scheduled(&api) == 1).await;
    let change = |change: &dyn Fn(&mut Value)| {
        let mut object = api.get("routes", "ns", "far").expect("it is there");
        change(&mut object);
        api.put("routes", object);
    };
    change(&|route| route["metadata"]["annotations"] = json!({"signpost.dev/move-to": "shard2"}));
    let mut draining = api.get("routers", "", "shard1").expect("it is there");
    draining["spec"]["state"] = json!("draining");
    api.put("routers", draining);
    let pending = || reported(&api, "ns", "far", "MovePending");
    until("it stays", || pending().is_some_and(|(status, reason, _)| status == "True" && reason == "Adopted")).await;
    assert_eq!(binding(&api, "ns", "far").expect("it is bound")["router"], "shard1");
    change(&|route| route["spec"]["adopted"]["router"] = json!("shard3"));
    until("it moves", || binding(&api, "ns", "far").expect("it is bound")["router"] == "shard3").await;
    let spec = binding(&api, "ns", "far").expect("it is bound");
    assert_eq!(spec["strategy"], "adopted");
    assert_eq!(spec["formerNames"][0]["name"], "ns-far.shard1.v3.example");
    assert_eq!(spec["names"][2]["record"], "www.shop.example. IN CNAME ns-far.routes.v3.example.");
    // An admission by a Router that does not exist leaves it where it is.
    change(&|route| route["spec"]["adopted"]["router"] = json!("gone"));
    until("it waits", || pending().is_some_and(|(_, reason, _)| reason == "RouterNotFound")).await;
    assert_eq!(binding(&api, "ns", "far").expect("it is bound")["router"], "shard3");
    running.stop().await;
}

#[tokio::test]
async fn hosts_of_two_namespaces_may_overlap_and_equal_ones_are_of_the_first() {
    let api = platform(2).await;
    api.put("namespaces", namespace("other"));
    api.put("routes", adopted("ns", "all", "*.shop.example", "shard1"));
    let running = start(&api);
    until("the first is scheduled", || scheduled(&api) == 1).await;
    api.put("routes", adopted("other", "one", "a.shop.example", "shard2"));
    until("the other is, too", || scheduled(&api) == 2).await;
    until("a warning reports it", || has_event(&api, "one", "HostOverlaps")).await;
    assert!(!has_event(&api, "all", "HostOverlaps"));
    // The rule holds for Routes of tenants, and for equal hosts.
    api.put("routes", route("other", "tenant", &json!({"host": "b.shop.example"})));
    api.put("routes", adopted("other", "same", "*.shop.example", "shard2"));
    let refused = |name: &str| {
        reported(&api, "other", name, "Admitted")
            .is_some_and(|(status, reason, _)| status == "False" && reason == "HostAlreadyClaimed")
    };
    until("both are refused", || refused("tenant") && refused("same")).await;
    api.delete("routebindings", "ns", "all");
    api.delete("routes", "ns", "all");
    until("the host is free", || scheduled(&api) == 3).await;
    assert!(binding(&api, "other", "same").is_some() || binding(&api, "other", "tenant").is_some());
    running.stop().await;
}

/// A default name never is a host that a router has admitted to another Route, whichever comes first.
#[tokio::test]
async fn default_names_and_adopted_hosts_avoid_each_other() {
    let api = platform(1).await;
    api.put("routers", router("inner", &json!({"dns": "ns-cut.shard1.v3.example", "state": "cordoned"})));
    api.put("namespaces", namespace("shop"));
    // OpenShift's default host is NAME-NAMESPACE.
    api.put("routes", adopted("shop", "ns", "ns-shop.shard1.v3.example", "shard1"));
    let running = start(&api);
    until("it is scheduled", || scheduled(&api) == 1).await;
    api.put("routes", route("ns", "shop", &json!({})));
    api.put("routes", adopted("ns", "cut", "a.shard1.v3.example", "shard1"));
    api.put("routes", route("ns", "plain", &json!({})));
    until("all are scheduled", || scheduled(&api) == 4).await;
    for (name, is_own) in [("shop", false), ("cut", false), ("plain", true)] {
        let spec = binding(&api, "ns", name).expect("it is bound");
        let label = spec["label"].as_str().expect("a label");
        assert_eq!(label == format!("ns-{name}"), is_own, "{label}");
        assert!(label.starts_with(&format!("ns-{name}")), "{label}");
    }
    api.put("routes", adopted("shop", "late", "ns-plain.shard1.v3.example", "shard1"));
    let message = "ns-plain.shard1.v3.example is the name of another Route on Router shard1";
    until("the host is refused", || {
        reported(&api, "shop", "late", "Admitted").is_some_and(|(status, _, its)| status == "False" && its == message)
    })
    .await;
    running.stop().await;
}
